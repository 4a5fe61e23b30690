"""Recorded runs of the chapters on scaling up and on off-policy data: the sampler is some steps behind. What then?

    python notebooks/results/lag_runs.py              runs what is not yet recorded (an hour of one core)
    python notebooks/results/lag_runs.py 16-blind     only the arms named

Writes notebooks/results/lag-runs.json, a line a run. Every run takes 60 steps of 512 completions from the shipped
start, one update a step, without a KL term. An arm is a lag and a way. With lag k the completions of step t are written
by the policy as it was k steps before, or by the start while there have not been so many. Ways:

    blind       as if the samples were fresh: the old log-probs are the learner's own, and every ratio is 1
    ratio       the old log-probs are the sampler's, and the ratio to them is clipped as in PPO
    truncated   the old log-probs are the learner's own, and each token is weighted by how much likelier it is under the
                learner than under the sampler, 2 at most
    masked      as truncated, but a token whose weight is below 0.5 or above 2 is left out (IcePop)
    sequence    as blind, but a bad completion is left out if its tokens have lost more than 0.5 nats in the mean since
                they were sampled (the mask of DeepSeek-V3.2)
    unclipped   as ratio, without the clip
    dppo        as unclipped, but a token is left out once its probability has gone 0.2 too far (the mask of DPPO)
    narrow      as masked, but the band is 0.8 to 1.2, the width of the clip
    wide        as ratio, but the clip is at 0.5 and 2, the width of the mask
    product     as truncated, but a completion has one weight, the product over its tokens, without a cap
    product-3   the same, 3 at most
    product-0-above-3   the same, but a completion whose weight is above 3 is left out (TRL's default)

Truncated, masked, narrow, sequence and the products differ from blind in one cell, "correct" or "trust"; ratio and dppo from unclipped in
one, "gate" or "trust". Without a lag the first three are the same run, so there is one arm for it. Arms that end in
"slow" have a quarter of the learning rate: they were added after the others had been seen, to tell staleness from too
long a step. So were the arms with one step of lag, the usual lag of a pipeline, to see how far what 4 and 16 steps do
holds for it. Masked, sequence, unclipped and dppo were added after all of these, with the numbers that their rows in
the table have; nothing was tried first. Narrow and wide came last, at a lag of 16 only: they tell a clip's width from
its direction. Seeds 0 and 1 of these two had been looked at before they were recorded. The products were added
after all others, at a lag of 16; seeds 0 to 2 of product-3, 0 and 1 of product-0-above-3 and 0 of product had been
looked at. 1-unclipped is the newest, one step of lag with a plain weight. Seeds 0 to 4 were fixed beforehand and all are recorded; settings were tried on seed 100 before
that.
"""

import copy
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.resources import as_file, files
from typing import Any

import torch
from jaxtyping import Float
from recording import SEEDS as SEEDS
from recording import record
from torch import Tensor
from transformers import PreTrainedModel

from rlhf_minimal import ALGORITHMS, Algorithm, contrib
from rlhf_minimal.config import Config
from rlhf_minimal.evaluate import evaluate
from rlhf_minimal.functional import corrections, gates
from rlhf_minimal.lab.fast import Fast, fast
from rlhf_minimal.sample import Rollout
from rlhf_minimal.tasks import get_task
from rlhf_minimal.train import Recipe, collect, prepare_batch, update
from rlhf_minimal.train_state import Learner
from rlhf_minimal.training import load_policy

STEPS = 60
KEPT = ("reward", "apart", "outside", "grad_norm")  # by step

GRPO = replace(ALGORITHMS["grpo"], kl=())
UNCLIPPED = replace(GRPO, gate=gates.none)
NO_CAP = 1e9
WAYS: dict[str, Algorithm] = {
    "blind": GRPO,
    "ratio": GRPO,
    "truncated": replace(GRPO, correct=corrections.truncated_importance),
    "masked": replace(GRPO, correct=contrib.corrections.masked_importance),
    "sequence": replace(GRPO, trust=contrib.trust.off_policy_sequence),
    "unclipped": UNCLIPPED,
    "dppo": replace(UNCLIPPED, trust=contrib.trust.dppo_tv),
    "narrow": replace(
        GRPO, correct=partial(contrib.corrections.masked_importance, low=0.8, high=1.2)
    ),
    "wide": replace(GRPO, gate=partial(gates.clip, low=0.5, high=1.0)),
    "product": replace(
        GRPO,
        correct=partial(corrections.truncated_importance, level="sequence", cap=NO_CAP),
    ),
    "product-3": replace(
        GRPO,
        correct=partial(corrections.truncated_importance, level="sequence", cap=3.0),
    ),
    "product-0-above-3": replace(
        GRPO,
        correct=partial(
            contrib.corrections.masked_importance, level="sequence", low=0.0, high=3.0
        ),
    ),
}
FIRST = ("blind", "ratio", "truncated")
LATER = ("masked", "dppo", "unclipped", "sequence")
WHOLE = ("product-3", "product-0-above-3", "product")
LR, SLOW = 8e-4, 2e-4

# arm: its lag, its way, its learning rate
ARMS: dict[str, tuple[int, str, float]] = {"0": (0, "blind", LR)}
ARMS |= {f"{lag}-{way}": (lag, way, LR) for lag in (4, 16) for way in FIRST}
ARMS |= {"0-slow": (0, "blind", SLOW)} | {
    f"16-{way}-slow": (16, way, SLOW) for way in FIRST
}
ARMS |= {
    "1-blind": (1, "blind", LR),
    "1-ratio": (1, "ratio", LR),
    "4-blind-slow": (4, "blind", SLOW),
    "1-truncated": (1, "truncated", LR),
}
ARMS |= {f"1-{way}-slow": (1, way, SLOW) for way in FIRST}
ARMS |= {f"16-{way}": (16, way, LR) for way in LATER}
ARMS |= {f"{lag}-{way}": (lag, way, LR) for lag in (4, 1) for way in ("masked", "dppo")}
ARMS |= {"4-unclipped": (4, "unclipped", LR)}
ARMS |= {f"16-{way}": (16, way, LR) for way in ("narrow", "wide")}
ARMS |= {f"16-{way}": (16, way, LR) for way in WHOLE}
ARMS |= {"1-unclipped": (1, "unclipped", LR)}


class Behind:
    """The policy as it was `lag` steps ago."""

    def __init__(self, learner: Learner, lag: int):
        self.model: PreTrainedModel = copy.deepcopy(learner.policy)
        self.past = deque([self._weights(learner)], maxlen=lag + 1)

    def follow(self, learner: Learner) -> None:
        """To be called after each step of the learner."""
        self.past.append(self._weights(learner))
        self.model.load_state_dict(self.past[0])

    @staticmethod
    def _weights(learner: Learner) -> dict[str, torch.Tensor]:
        return {
            name: weight.clone() for name, weight in learner.policy.state_dict().items()
        }


def begin(arm: str, seed: int) -> tuple[Learner, Recipe, Behind]:
    """A learner at the shipped start, what it is trained with, and its sampler."""
    lag, way, lr = ARMS[arm]
    recipe = fast(
        Recipe(
            WAYS[way],
            get_task("addition"),
            Config(steps=STEPS, seed=seed, lr=lr, watch_kl="off"),
        )
    )
    with as_file(files("rlhf_minimal") / "assets" / "addition") as folder:
        policy, vocabulary = load_policy(folder)
    learner = Learner.begin(policy, vocabulary, recipe.algorithm, recipe.config)
    return learner, recipe, Behind(learner, lag)


def step_from(
    sampler: PreTrainedModel, learner: Learner, recipe: Recipe, way: str, step: int
) -> tuple[Rollout, Float[Tensor, "tokens"], dict[str, Any]]:
    """One step on samples of another policy: they, learner over sampler for their tokens before the update, metrics."""
    groups, _ = collect(sampler, learner.vocabulary, recipe, step)
    assert groups is not None
    every = torch.arange(len(groups.mask))
    with torch.no_grad():
        own = Fast().read(learner.policy, groups, every, recipe.config).logp
    log_ratio = (own - groups.logp)[groups.mask != 0]
    if way == "blind":
        groups = replace(groups, logp=own)
    batch, _ = prepare_batch(learner, recipe, groups, step)
    metrics = update(learner, recipe, groups, batch, step)
    learner.step = step
    return groups, log_ratio, metrics


def train(
    arm: str, seed: int, steps: int = STEPS
) -> tuple[Learner, Recipe, dict[str, list[float]]]:
    """One run: the learner at its end, and what was seen at each step.

    `reward` is that of the samples, and so of the policy that wrote them. `apart` and `outside` compare learner and
    sampler before the update: the standard deviation of a token's log-ratio, and the share of tokens whose ratio is
    further than 0.2 from 1.
    """
    way = ARMS[arm][1]
    learner, recipe, behind = begin(arm, seed)
    seen: dict[str, list[float]] = {name: [] for name in KEPT}
    for step in range(1, steps + 1):
        groups, log_ratio, metrics = step_from(behind.model, learner, recipe, way, step)
        behind.follow(learner)
        seen["reward"].append(round(groups.rewards.mean().item(), 4))
        seen["apart"].append(round(log_ratio.std().item(), 5))
        seen["outside"].append(
            round((log_ratio.exp() - 1).abs().gt(0.2).float().mean().item(), 5)
        )
        seen["grad_norm"].append(round(metrics["grad_norm"], 4))
    return learner, recipe, seen


def run(arm: str, seed: int, train: Callable[..., Any] = train) -> dict[str, Any]:
    """One run, as it is recorded. `sampled` is the learner's share of right held-out sums."""
    began = time.perf_counter()
    learner, recipe, seen = train(arm, seed)
    after = evaluate(learner.policy, learner.vocabulary, recipe)
    seconds = round(time.perf_counter() - began, 1)
    return {
        "sampled": after.sampled.share,
        "greedy": after.greedy.share,
        "seconds": seconds,
        **seen,
    }


if __name__ == "__main__":
    record(__file__, ARMS, run, steps=STEPS, held_out_problems=1000, lr=LR, slow=SLOW)
