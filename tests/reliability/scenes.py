"""What a child of the server does or suffers, by name: scenes are played instead of a command, faults before one."""

import errno
import math
import os
import time
from pathlib import Path

import torch
from matplotlib import figure

from rlhf_minimal import ALGORITHMS
from rlhf_minimal import train as loop
from rlhf_minimal.config import Config
from rlhf_minimal.runs import resume_learner, save_learner
from rlhf_minimal.tasks import get_task
from rlhf_minimal.train import Recipe, train_step


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
    return resume_learner(Path(folder), fixed.algorithm, fixed.config, "cpu"), fixed


def take_a_step_and_save():
    found, fixed = learner("checkpoint")
    train_step(found, fixed)
    save_learner(found, Path("checkpoint"), {})


# --- faults ----------------------------------------------------------------------------------------------------------


def _verify_with(wrong):
    def verify(completion, problem):
        return wrong() if completion[:1] in tuple("01234") else 1.0

    for name in ("even", "addition"):
        object.__setattr__(get_task(name), "verify", verify)


def verifier_raises():
    _verify_with(lambda: int("no\nnumber"))


def verifier_hangs():
    _verify_with(lambda: time.sleep(60))


def _at_step(number, fault):
    """Something happens in the middle of a step's update."""
    update = loop.policy_loss

    def policy_loss(algorithm, batch):
        policy_loss.calls += 1
        return fault(update(algorithm, batch)) if policy_loss.calls >= number else update(algorithm, batch)

    policy_loss.calls = 0
    loop.policy_loss = policy_loss


def loss_is_nan():
    _at_step(4, lambda loss: loss * math.nan)


def gradient_is_infinite():
    _at_step(4, lambda loss: loss * 1e38 * 1e38)


def _raise(error):
    raise error


def cuda_memory():
    _at_step(4, lambda loss: _raise(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.\nMore")))


def python_memory():
    _at_step(4, lambda loss: _raise(MemoryError()))


def cpu_memory():
    _at_step(4, lambda loss: torch.zeros(10**14))


def closed_pipe():
    reader, writer = os.pipe()
    os.close(reader)
    os.dup2(writer, 1)


def no_room_for_the_picture():
    figure.Figure.savefig = lambda *_, **__: _raise(OSError(errno.ENOSPC, "No space left on device"))
