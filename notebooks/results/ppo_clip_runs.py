"""The recorded runs of the chapter on PPO's clip: one update a rollout or sixteen, with the clip and without.

    python notebooks/results/ppo_clip_runs.py               runs what is not yet recorded (105 runs, 30 minutes)
    python notebooks/results/ppo_clip_runs.py once-0.0002   only the arms named

Writes notebooks/results/ppo-clip-runs.json, a line a run. Every run takes 30 rollouts of 256 completions from the
shipped start, so all arms see the same number of samples. The row is PPO's with the raw reward in place of the critic
and no KL term: whitened rewards, token ratios, clip at 0.2. An arm is a way of using a rollout and a learning rate:

    once       one update on the whole rollout: every ratio is 1 and the clip never acts
    split      sixteen updates, each on a sixteenth of the rollout: many updates, no sample used twice
    reuse      sixteen updates: four epochs of four minibatches, every sample used four times
    free       as reuse, without the clip

All four have the same grid of learning rates; once has 1e-2 besides. Seeds 0 to 4 were fixed beforehand and all are
recorded. The rates 2e-4, 8e-4, 3e-3 and 1e-2 were chosen on seed 100 before anything was recorded; 4e-4 and 1.6e-3 were
added after the others had been seen, and then the grid was filled for every way.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib.resources import as_file, files
from typing import Any

import torch
from recording import SEEDS as SEEDS
from recording import record
from torch import Tensor

from rlhf_minimal import ALGORITHMS, Algorithm
from rlhf_minimal.config import Config
from rlhf_minimal.evaluate import evaluate
from rlhf_minimal.functional import advantages, gates
from rlhf_minimal.lab.fast import fast
from rlhf_minimal.tasks import get_task
from rlhf_minimal.train import Recipe, train
from rlhf_minimal.train_state import Learner
from rlhf_minimal.training import load_policy

STEPS, SAMPLES, EPS = 30, 256, 0.2
KEPT = (
    "reward",
    "kl",
    "entropy",
    "clip_fraction",
    "ratio_min",
    "ratio_max",
    "truncated",
)

CLIPPED = replace(ALGORITHMS["ppo"], advantage=advantages.returns_to_go, kl=())
FREE = replace(CLIPPED, gate=gates.none)

# way of using a rollout: (row, epochs, minibatches)
WAYS: dict[str, tuple[Algorithm, int, int]] = {
    "once": (CLIPPED, 1, 1),
    "split": (CLIPPED, 1, 16),
    "reuse": (CLIPPED, 4, 4),
    "free": (FREE, 4, 4),
}
GRID = (2e-4, 4e-4, 8e-4, 1.6e-3, 3e-3)  # the same for the four ways that are compared
RATES: dict[str, tuple[float, ...]] = dict.fromkeys(WAYS, GRID) | {
    "once": (*GRID, 1e-2)
}
ARMS = {
    f"{way}-{rate:g}": (way, rate) for way, rates in RATES.items() for rate in rates
}


@dataclass
class Drift:
    """A gate that writes down how far the policy is from the one that sampled, one entry an update."""

    gate: Callable[[Tensor, Tensor], Tensor]
    outside: list[float] = field(default_factory=list)
    kl: list[float] = field(default_factory=list)

    def __call__(self, ratio: Tensor, advantage: Tensor) -> Tensor:
        """The share of tokens outside the clip range, whatever their sign, and KL(old || new) a token, estimated."""
        if not ratio.is_leaf:  # the loss's own call; the metrics ask again, with a copy
            w = ratio.detach()[
                advantage != 0
            ].double()  # the loss has zeroed the padding
            self.outside.append(((w - 1).abs() > EPS).double().mean().item())
            self.kl.append((w - 1 - w.log()).mean().item())
        return self.gate(ratio, advantage)


def begin(arm: str, seed: int, *, steps: int = STEPS) -> tuple[Learner, Recipe, Drift]:
    """A learner at the shipped start, what it is trained with, and what its gate writes down."""
    way, rate = ARMS[arm]
    row, epochs, minibatches = WAYS[way]
    drift = Drift(row.gate)
    config = Config(
        steps=steps,
        seed=seed,
        prompts=SAMPLES,
        group_size=1,
        epochs=epochs,
        minibatches=minibatches,
        lr=rate,
    )
    what = fast(Recipe(replace(row, gate=drift), get_task("addition"), config))
    with as_file(files("rlhf_minimal") / "assets" / "addition") as folder:
        policy, vocabulary = load_policy(folder)
    return Learner.begin(policy, vocabulary, what.algorithm, config), what, drift


def kept(
    arm: str, history: list[dict[str, Any]], drift: Drift
) -> dict[str, list[float]]:
    """Metrics by rollout; drift by the number of the update within its rollout, the mean over rollouts."""
    _, epochs, minibatches = WAYS[ARMS[arm][0]]
    numbers: dict[str, list[float]] = {
        name: [round(step[name], 4) for step in history] for name in KEPT
    }
    for name, values in (("outside", drift.outside), ("drift", drift.kl)):
        by_update = torch.tensor(values).view(len(history), epochs * minibatches)
        # A rollout without a single right answer has no advantages, and counts in neither mean.
        numbers[name] = [round(x, 5) for x in by_update.nanmean(0).tolist()]
    return numbers


def run(arm: str, seed: int) -> dict[str, Any]:
    """One run, as it is recorded."""
    began = time.perf_counter()
    learner, what, drift = begin(arm, seed)
    numbers = kept(arm, train(learner, what), drift)
    after = evaluate(learner.policy, learner.vocabulary, what)
    seconds = round(time.perf_counter() - began, 1)
    return {
        "sampled": after.sampled.share,
        "greedy": after.greedy.share,
        "seconds": seconds,
        **numbers,
    }


if __name__ == "__main__":
    record(
        __file__,
        ARMS,
        run,
        steps=STEPS,
        samples_per_step=SAMPLES,
        held_out_problems=1000,
    )
