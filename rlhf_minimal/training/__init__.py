"""The part that runs: sampling, the online loop, supervised learning, checkpoints. It reads no algorithm's name."""

from rlhf_minimal.models import load_policy, save_policy
from rlhf_minimal.training.checkpoints import write_folder
from rlhf_minimal.training.config import Config
from rlhf_minimal.training.evaluation import Evaluation, MeanScore, evaluate
from rlhf_minimal.training.fast import Fast
from rlhf_minimal.training.fit import FitConfig, Student, fit, rows_of_step
from rlhf_minimal.training.groups import Rollout
from rlhf_minimal.training.learner import Learner
from rlhf_minimal.training.loop import NothingToLearn, fit_critic, train, train_step
from rlhf_minimal.training.metrics import METRICS, wilson
from rlhf_minimal.training.pairwise import train_pairwise
from rlhf_minimal.training.preferences import bayes_accuracy, evaluate_reward_model, preference_loss, sample_pairs
from rlhf_minimal.training.reading import Plain
from rlhf_minimal.training.recipe import Recipe
from rlhf_minimal.training.rollout import check_context, collect, force, roll_out
from rlhf_minimal.training.sampler import sample
from rlhf_minimal.training.steps import StepScorer, load_step_scorer, sample_steps, scored_steps, weigh_steps
from rlhf_minimal.training.supervised import imitate, sample_completions, supervised_loss
from rlhf_minimal.training.trpo import TrustRegion, trust_region_update
from rlhf_minimal.training.votes import evaluate_votes, pass_at, verified_steps

__all__ = [
    "METRICS",
    "Config",
    "Evaluation",
    "Fast",
    "FitConfig",
    "Learner",
    "MeanScore",
    "NothingToLearn",
    "Plain",
    "Recipe",
    "Rollout",
    "StepScorer",
    "Student",
    "TrustRegion",
    "bayes_accuracy",
    "check_context",
    "collect",
    "evaluate",
    "evaluate_votes",
    "force",
    "imitate",
    "evaluate_reward_model",
    "fit",
    "fit_critic",
    "load_policy",
    "load_step_scorer",
    "pass_at",
    "preference_loss",
    "roll_out",
    "rows_of_step",
    "sample",
    "sample_completions",
    "sample_pairs",
    "sample_steps",
    "save_policy",
    "scored_steps",
    "supervised_loss",
    "train",
    "train_pairwise",
    "train_step",
    "trust_region_update",
    "verified_steps",
    "weigh_steps",
    "wilson",
    "write_folder",
]
