"""The recorded runs of the chapter on soft gates: sixteen updates a rollout, and one gate or another.

    python notebooks/results/gate_runs.py          runs what is not yet recorded (50 runs, 12 minutes of one core)
    python notebooks/results/gate_runs.py sapo     only the arms named

Writes notebooks/results/gate-runs.json, a line a run. Every run takes 20 rollouts of 256 completions (32 prompts, eight
each) from the shipped start of the adding task, and sixteen updates a rollout: four epochs of four minibatches, so that
the ratios leave 1. The row is GRPO's without its KL penalty. An arm is a gate and differs in nothing else,
but for `gmpo`: it differs from `log-clip`, which has the same gate, in its mean (geometric).

    none         no gate: the control
    clip         PPO's and GRPO's, 0.2 on either side
    log-clip     the same function with GMPO's bounds, 0.4 in the logarithm
    gmpo         those bounds and GMPO's geometric mean
    sapo         the sigmoid, temperatures 1 and 1.05
    sapo-steep   temperatures ten times as high, 10 and 10.5
    cispo        the weight is at most 5
    cispo-0.2    at most 0.2, which a library's default makes of it
    cispo-floor  at most 5 and at least 0.8
    cispo-near   between 0.8 and 1.2, another library's default

The learning rate is 4e-4. Seeds 0 to 4, the rate and the arms were fixed before anything was recorded, but for two arms that
were added when others had been seen: `sapo-steep` and `cispo-floor`. Arms at half the rate had been planned, too; they were
dropped for time after two runs, which are not kept. Settings were tried on seed 100. What is kept by
update is the gate's own weight, in `gmpo` that before the mean. Seconds are those of the processor.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.resources import as_file, files
from typing import Any

import torch
from recording import SEEDS as SEEDS
from recording import record
from torch import Tensor

from rlhf_minimal import ALGORITHMS, Algorithm
from rlhf_minimal.config import Config
from rlhf_minimal.evaluate import evaluate
from rlhf_minimal.functional import gates
from rlhf_minimal.lab.fast import fast
from rlhf_minimal.tasks import get_task
from rlhf_minimal.train import Recipe, train
from rlhf_minimal.train_state import Learner
from rlhf_minimal.training import load_policy

STEPS, PROMPTS, EPOCHS, MINIBATCHES = 20, 32, 4, 4
UPDATES = EPOCHS * MINIBATCHES
RATE = 4e-4
KEPT = ("reward", "kl", "entropy", "grad_norm", "ratio_min", "ratio_max")
SEEN = ("spread", "outside", "silent", "weight")  # by update within a rollout

ROW, GMPO = replace(ALGORITHMS["grpo"], kl=()), ALGORITHMS["gmpo"]
ARMS: dict[str, Algorithm] = {
    "none": replace(ROW, gate=gates.none),
    "clip": ROW,
    "log-clip": replace(ROW, gate=GMPO.gate),
    "gmpo": replace(ROW, gate=GMPO.gate, aggregate=GMPO.aggregate),
    "sapo": replace(ROW, gate=ALGORITHMS["sapo"].gate),
    "cispo": replace(ROW, gate=ALGORITHMS["cispo"].gate),
    "cispo-0.2": replace(ROW, gate=partial(gates.clip_weight, cap=0.2)),
    "sapo-steep": replace(ROW, gate=partial(gates.sigmoid, tau_pos=10.0, tau_neg=10.5)),
    "cispo-floor": replace(ROW, gate=partial(gates.clip_weight, floor=0.8, cap=5.0)),
    "cispo-near": replace(ROW, gate=partial(gates.clip_weight, floor=0.8, cap=1.2)),
}


@dataclass
class Watch:
    """A gate that writes down, one entry an update, how far the ratios are and what it makes of them."""

    gate: Callable[[Tensor, Tensor], Tensor]
    seen: dict[str, list[float]] = field(
        default_factory=lambda: {name: [] for name in SEEN}
    )

    def __call__(self, ratio: Tensor, advantage: Tensor) -> Tensor:
        """Of tokens with an advantage: spread of log w; shares outside 0.2 and without a gradient; mean |weight|."""
        if not ratio.is_leaf:  # the loss's own call; the metrics ask again, with a copy
            counted = advantage != 0  # the loss has zeroed the padding
            w = ratio.detach().requires_grad_()
            (slope,) = torch.autograd.grad(self.gate(w, advantage).sum(), w)
            w = w.detach()[counted].double()
            size = (slope[counted] * w / advantage[counted]).abs()  # d / d log pi, by A
            for name, value in (
                ("spread", w.log().std()),
                ("outside", ((w - 1).abs() > 0.2).double().mean()),
                ("silent", (size == 0).double().mean()),
                ("weight", size.mean()),
            ):
                self.seen[name].append(value.item())
        return self.gate(ratio, advantage)


def begin(arm: str, seed: int, *, steps: int = STEPS) -> tuple[Learner, Recipe, Watch]:
    """A learner at the shipped start, what it is trained with, and what its gate writes down."""
    watch = Watch(ARMS[arm].gate)
    config = Config(
        steps=steps,
        seed=seed,
        prompts=PROMPTS,
        epochs=EPOCHS,
        minibatches=MINIBATCHES,
        lr=RATE,
    )
    what = fast(Recipe(replace(ARMS[arm], gate=watch), get_task("addition"), config))
    with as_file(files("rlhf_minimal") / "assets" / "addition") as folder:
        policy, vocabulary = load_policy(folder)
    return Learner.begin(policy, vocabulary, what.algorithm, config), what, watch


def kept(history: list[dict[str, Any]], watch: Watch) -> dict[str, list[float]]:
    """Metrics by rollout; what the gate saw by the number of the update within its rollout, the mean over rollouts."""
    numbers: dict[str, list[float]] = {
        name: [round(step[name], 4) for step in history] for name in KEPT
    }
    for name, values in watch.seen.items():
        by_update = torch.tensor(values).view(len(history), UPDATES)
        # A minibatch without a mixed group has no advantages, and counts in no mean.
        numbers[name] = [round(x, 5) for x in by_update.nanmean(0).tolist()]
    return numbers


def run(arm: str, seed: int) -> dict[str, Any]:
    """One run, as it is recorded."""
    began = time.process_time()
    learner, what, watch = begin(arm, seed)
    history = train(learner, what)
    after = evaluate(learner.policy, learner.vocabulary, what)
    return {
        "sampled": after.sampled.share,
        "greedy": after.greedy.share,
        "seconds": round(time.process_time() - began, 1),
        **kept(history, watch),
    }


if __name__ == "__main__":
    record(
        __file__,
        ARMS,
        run,
        steps=STEPS,
        completions=PROMPTS * 8,
        updates=UPDATES,
        held_out_problems=1000,
    )
