"""Recorded runs of off-policy in depth: the sampler's weights are rounded to a few bits, the trainer's are not.

    python notebooks/results/mismatch_runs.py            runs what is not yet recorded (minutes of one core)
    python notebooks/results/mismatch_runs.py 3-blind    only the arms named

Writes notebooks/results/mismatch-runs.json, a line a run. Every run takes 60 steps of 256 completions from the shipped
start, one update a step, without a KL term and without a lag: before each step every matrix of the policy is copied,
its rows are rounded (`rounded`), and the copy samples. Products stay in float32, so nothing is faster, and what differs
is the rounding of the weights alone. An arm is a number of bits and a way, and "exact" samples with the policy itself.
The ways are those of lag_runs.py:

    blind       as if nothing were rounded: the old log-probs are the learner's own, and every ratio is 1
    truncated   as blind, but each token is weighted by learner over sampler, 2 at most
    masked      as blind, but a token whose weight is below 0.5 or above 2 is left out, and the others are weighted
    product-3   as blind, but a completion has one weight, the product over its tokens, 3 at most
    ratio       the old log-probs are the sampler's, and the ratio to them is clipped as in PPO

The first four differ in one cell, "correct". Seeds 0 to 4 were fixed beforehand and all are recorded; the numbers of
bits were chosen on seed 100.
"""

import copy
from functools import partial
from importlib.resources import as_file, files

import torch
from lag_runs import LR, WAYS, run, step_from
from recording import SEEDS as SEEDS
from recording import record
from transformers import PreTrainedModel

from rlhf_minimal.config import Config
from rlhf_minimal.lab.fast import fast
from rlhf_minimal.tasks import get_task
from rlhf_minimal.train import Recipe
from rlhf_minimal.train_state import Learner
from rlhf_minimal.training import load_policy

STEPS, PROMPTS = 60, 16
KEPT = ("reward", "apart", "kl", "beyond", "mean_weight")  # by step

# arm: bits of the sampler's weights (None: not rounded), and the way
ARMS: dict[str, tuple[int | None, str]] = {"exact": (None, "blind")}
ARMS |= {"8-blind": (8, "blind")}
ARMS |= {f"4-{way}": (4, way) for way in ("blind", "truncated", "masked")}
ARMS |= {
    f"3-{way}": (3, way)
    for way in ("blind", "truncated", "masked", "product-3", "ratio")
}


@torch.no_grad()
def rounded(model: PreTrainedModel, bits: int) -> PreTrainedModel:
    """A copy whose matrices are rounded, a row at a time, to 2^bits - 1 levels between plus and minus its largest."""
    coarse, levels = copy.deepcopy(model), 2 ** (bits - 1) - 1
    for weight in coarse.parameters():
        if weight.dim() == 2:  # norms have one number a channel: left as they are
            step = weight.abs().amax(1, keepdim=True) / levels
            weight.copy_((weight / step).round() * step)
    return coarse


def train(
    arm: str, seed: int, steps: int = STEPS
) -> tuple[Learner, Recipe, dict[str, list[float]]]:
    """One run: the learner at its end, and what was seen at each step.

    `reward` is that of the samples, and so of the rounded copy. The rest compares it with the learner before the
    update, over sampled tokens: the standard deviation of the log-ratio, its mean from the sampler's side (an estimate
    of the KL in nats a token), the share of ratios below 0.5 or above 2, and the mean ratio.
    """
    bits, way = ARMS[arm]
    config = Config(steps=STEPS, prompts=PROMPTS, seed=seed, lr=LR, watch_kl="off")
    recipe = fast(Recipe(WAYS[way], get_task("addition"), config))
    with as_file(files("rlhf_minimal") / "assets" / "addition") as folder:
        policy, vocabulary = load_policy(folder)
    learner = Learner.begin(policy, vocabulary, recipe.algorithm, config)
    seen: dict[str, list[float]] = {name: [] for name in KEPT}
    for step in range(1, steps + 1):
        sampler = rounded(learner.policy, bits) if bits else learner.policy
        groups, log_ratio, _ = step_from(sampler, learner, recipe, way, step)
        ratio = log_ratio.exp()
        seen["reward"].append(round(groups.rewards.mean().item(), 4))
        seen["apart"].append(round(log_ratio.std().item(), 5))
        seen["kl"].append(round(-log_ratio.mean().item(), 5))
        seen["beyond"].append(
            round(((ratio < 0.5) | (ratio > 2)).float().mean().item(), 5)
        )
        seen["mean_weight"].append(round(ratio.mean().item(), 5))
    return learner, recipe, seen


if __name__ == "__main__":
    record(
        __file__,
        ARMS,
        partial(run, train=train),
        steps=STEPS,
        completions=PROMPTS * 16,
        held_out_problems=1000,
        lr=LR,
    )
