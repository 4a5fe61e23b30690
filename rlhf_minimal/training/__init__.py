"""What is saved of a run."""

from rlhf_minimal.models import load_policy, save_policy
from rlhf_minimal.training.checkpoints import write_folder

__all__ = ["load_policy", "save_policy", "write_folder"]
