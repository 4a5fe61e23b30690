"""Supervised learning and what is saved of a run."""

from rlhf_minimal.training.checkpoints import load_policy, save_policy, write_folder
from rlhf_minimal.training.fit import FitConfig, Student, fit, rows_of_step
from rlhf_minimal.training.pairwise import train_pairwise
from rlhf_minimal.training.preferences import bayes_accuracy, evaluate_reward_model, preference_loss, sample_pairs
from rlhf_minimal.training.steps import StepScorer, load_step_scorer, sample_steps, scored_steps, weigh_steps
from rlhf_minimal.training.supervised import imitate, sample_completions, supervised_loss

__all__ = [
    "FitConfig",
    "StepScorer",
    "Student",
    "bayes_accuracy",
    "evaluate_reward_model",
    "fit",
    "imitate",
    "load_policy",
    "load_step_scorer",
    "preference_loss",
    "rows_of_step",
    "sample_completions",
    "sample_pairs",
    "sample_steps",
    "save_policy",
    "scored_steps",
    "supervised_loss",
    "train_pairwise",
    "weigh_steps",
    "write_folder",
]
