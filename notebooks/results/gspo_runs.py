"""The recorded runs of the chapter on GSPO: one band or another, on sequence ratios or on token ratios, or no clip.

    python notebooks/results/gspo_runs.py             runs what is not yet recorded (25 runs, ten minutes of one core)
    python notebooks/results/gspo_runs.py gspo-paper  only the arms named

Writes notebooks/results/gspo-runs.json, a line a run. Every run takes 50 steps of 512 completions from the shipped
start, each rollout cut into four minibatches, as in section 5.1 of arXiv 2507.18071: with one update a rollout every
ratio is 1 and all arms are the same run. No arm has a KL term. An arm is a ratio and a gate and differs in nothing
else. Seeds 0 to 4 were fixed beforehand and all are recorded; settings were tried on seed 100 before that.
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

STEPS, MINIBATCHES = 50, 4
KEPT = ("reward", "kl", "entropy")
SEEN = ("tokens_clipped", "responses_clipped", "log_ratio_std")

GRPO, GSPO = replace(ALGORITHMS["grpo"], kl=()), ALGORITHMS["gspo"]

# arm: its row. "none" is the control: the token ratio without any clip.
ARMS: dict[str, Algorithm] = {
    "grpo": GRPO,
    "gspo-paper": GSPO,
    "gspo-wide": replace(GSPO, gate=partial(gates.clip, low=0.03, high=0.04)),
    "gspo-grpo-band": replace(GSPO, gate=partial(gates.clip, low=0.2, high=0.2)),
    "none": replace(GRPO, gate=gates.none),
}


@dataclass
class Clipping:
    """A gate that writes down what it clips, in two units, one entry a minibatch."""

    gate: Callable[[Tensor, Tensor], Tensor]
    tokens: list[float] = field(default_factory=list)
    responses: list[float] = field(default_factory=list)
    spread: list[float] = field(default_factory=list)

    def __call__(self, ratio: Tensor, advantage: Tensor) -> Tensor:
        """Among tokens with an advantage: the share without a gradient; and the responses with no gradient at all."""
        if not ratio.is_leaf:  # the loss's own call; the metrics ask again, with a copy
            w = ratio.detach().requires_grad_()
            (slope,) = torch.autograd.grad(self.gate(w, advantage).sum(), w)
            counted = advantage != 0  # the loss has zeroed the padding
            silent = counted & (slope == 0)
            rows = counted.any(-1)
            self.tokens.append((silent.sum() / counted.sum()).item())
            self.responses.append(
                (silent.sum(-1) == counted.sum(-1))[rows].float().mean().item()
            )
            self.spread.append(ratio.detach()[counted].log().std().item())
        return self.gate(ratio, advantage)


def begin(
    arm: str, seed: int, *, steps: int = STEPS
) -> tuple[Learner, Recipe, Clipping]:
    """A learner at the shipped start, what it is trained with, and what its gate writes down."""
    watched = Clipping(ARMS[arm].gate)
    what = fast(
        Recipe(
            replace(ARMS[arm], gate=watched),
            get_task("addition"),
            Config(steps=steps, seed=seed, minibatches=MINIBATCHES),
        )
    )
    with as_file(files("rlhf_minimal") / "assets" / "addition") as folder:
        policy, vocabulary = load_policy(folder)
    return Learner.begin(policy, vocabulary, what.algorithm, what.config), what, watched


def kept(history: list[dict[str, Any]], watched: Clipping) -> dict[str, list[Any]]:
    """What is kept of a run: metrics by step, and what the gate saw, by step and minibatch."""
    numbers: dict[str, list[Any]] = {
        name: [round(step[name], 4) for step in history] for name in KEPT
    }
    for name, values in zip(
        SEEN, (watched.tokens, watched.responses, watched.spread), strict=True
    ):
        rounded = [round(x, 5) for x in values]
        numbers[name] = [
            rounded[i : i + MINIBATCHES] for i in range(0, len(rounded), MINIBATCHES)
        ]
    return numbers


def run(arm: str, seed: int) -> dict[str, Any]:
    """One run, as it is recorded."""
    began = time.perf_counter()
    learner, what, watched = begin(arm, seed)
    history = train(learner, what)
    after = evaluate(learner.policy, learner.vocabulary, what)
    return {
        "sampled": after.sampled.share,
        "greedy": after.greedy.share,
        "seconds": round(time.perf_counter() - began, 1),
        **kept(history, watched),
    }


if __name__ == "__main__":
    record(
        __file__,
        ARMS,
        run,
        steps=STEPS,
        minibatches=MINIBATCHES,
        held_out_problems=1000,
    )
