"""The part that runs: sampling, the online loop, checkpoints. It reads no algorithm's name."""

from rlhf_minimal.training.checkpoints import load_policy, save_policy, write_folder
from rlhf_minimal.training.config import Config
from rlhf_minimal.training.evaluation import Evaluation, MeanScore, evaluate
from rlhf_minimal.training.fast import Fast
from rlhf_minimal.training.groups import Rollout
from rlhf_minimal.training.learner import Learner
from rlhf_minimal.training.loop import NothingToLearn, fit_critic, train, train_step
from rlhf_minimal.training.metrics import METRICS, wilson
from rlhf_minimal.training.reading import Plain
from rlhf_minimal.training.recipe import Recipe
from rlhf_minimal.training.rollout import check_context, collect, force, roll_out
from rlhf_minimal.training.sampler import sample
from rlhf_minimal.training.trpo import TrustRegion, trust_region_update
from rlhf_minimal.training.votes import evaluate_votes, pass_at, verified_steps

__all__ = [
    "METRICS",
    "Config",
    "Evaluation",
    "Fast",
    "Learner",
    "MeanScore",
    "NothingToLearn",
    "Plain",
    "Recipe",
    "Rollout",
    "TrustRegion",
    "check_context",
    "collect",
    "evaluate",
    "evaluate_votes",
    "force",
    "fit_critic",
    "load_policy",
    "pass_at",
    "roll_out",
    "sample",
    "save_policy",
    "train",
    "train_step",
    "trust_region_update",
    "verified_steps",
    "wilson",
    "write_folder",
]
