"""What a child of the server does or suffers, by name: scenes are played instead of a command, faults before one."""

from pathlib import Path

from rlhf_minimal import ALGORITHMS
from rlhf_minimal.tasks import get_task
from rlhf_minimal.training import Config, Learner, Recipe, train_step


# A critic, a reference of its own, an adaptive leash and running scores: everything that a learner can carry.
def recipe():
    config = Config(
        steps=9,
        prompts=2,
        group_size=4,
        lr=2e-3,
        reference="ema",
        kl_control="adaptive",
        kl_control_horizon=100,
        score_scaling="running",
    )
    return Recipe(ALGORITHMS["ppo"], get_task("even"), config)


def learner(folder):
    fixed = recipe()
    return Learner.resume(Path(folder), fixed.algorithm, fixed.config, "cpu"), fixed


def take_a_step_and_save():
    found, fixed = learner("checkpoint")
    train_step(found, fixed)
    found.save(Path("checkpoint"), {})
