"""The recorded runs of the chapter on Dr. GRPO: do wrong completions lengthen, and what do the two changes do, apart?

    python notebooks/results/dr_grpo_runs.py             runs what is not yet recorded (110 runs, some 45 minutes of one core)
    python notebooks/results/dr_grpo_runs.py informed-own    only the arms named

Writes notebooks/results/dr-grpo-runs.json, a line a run. Every run trains a fresh tiny Llama (one layer, width 32) on
completions of at most 32 tokens. An arm is a situation, an advantage, a divisor and a learning rate.

Situations. In "informed", "rare" and "blind" a completion is right or wrong by a coin that the policy cannot influence.
"informed" and "rare" (whose coin falls right in one case of eight) show the coin to the policy before it writes; all
that it decides is when to stop. A group there mixes the two prompts that stand for the two sides of the coin, which
GRPO itself never does. "blind" shows it another coin, which says nothing. In "learnt" there are eight prompts, the
first token is the answer, and whatever follows does not matter. "mixed" is "learnt" with prompts of two kinds: four are
hard (one first token of 17 is right), four are easy (thirteen are). "coin" has the prompts of "mixed" and a coin for a
reward. Groups of "learnt", "mixed" and "coin" are of one prompt.

Divisors. "own": each completion's own length, as in GRPO. "batch": the tokens of the batch, as in DAPO. "constant": the
budget, as in Dr. GRPO. Advantages are GRPO's, with the division by the group's std; an arm with "centred" in its name
leaves the std out. The one exception is "learnt-constant", the row dr_grpo, without the std; "learnt-zscore-constant"
is what lies between it and "learnt-own".

The arms of "mixed" are the four combinations of advantage and divisor, each at the same two learning rates; GRPO alone
was also run at 0.01, to see whether the higher of them is the best. The norm of the gradient is not clipped there, and
there is no KL penalty: AdamW's step does not depend on the gradient's scale, so nothing else does. "coin" is GRPO.

Seeds 0 to 4 were fixed beforehand and all are recorded. The settings of "mixed" and "coin" were tried on seed 100 alone
before that, in runs of 100 steps.
"""

import itertools
import time
from dataclasses import dataclass, replace
from typing import Any

import torch
from recording import SEEDS as SEEDS
from recording import record
from torch import Generator, Tensor
from transformers import PreTrainedModel

from rlhf_minimal import ALGORITHMS, Algorithm, Batch, policy_loss
from rlhf_minimal.functional import advantages, aggregation
from rlhf_minimal.models import policy_logits, tiny_llama
from rlhf_minimal.sample import sample

BUDGET, PROMPTS, GROUP = 32, 8, 16
END, WORDS = (
    0,
    8,
)  # token ids: the end, then the words; what stands in the prompt comes after them
FIRST_CUE = END + 1 + WORDS
EASY = 13  # right first tokens of an easy prompt, of the 17; a hard one has one
# What is kept by step, of PROMPTS * GROUP completions; of MORE, where something can be learnt or a coin decides.
KEPT = ("right", "right_tokens", "wrong_tokens")
MORE = ("hard_right", "equal_groups", "norm")

GRPO = replace(ALGORITHMS["grpo"], kl=())
DIVISORS = {
    "own": aggregation.sequence_mean,
    "batch": aggregation.token_mean,
    "constant": aggregation.fixed_length,
}
ADVANTAGES = {
    "zscore": advantages.group_normalized,
    "centred": advantages.group_centered,
}
RATES = {"0.001": 1e-3, "0.003": 3e-3}


@dataclass(frozen=True)
class Situation:
    """How right and wrong come about. ``chance``: of the coin, or None where the first token decides."""

    chance: float | None
    informed: bool
    lr: float
    steps: int
    mixed: bool = False  # prompts of two kinds, nothing clipped, more kept


SITUATIONS = {
    "informed": Situation(1 / 2, informed=True, lr=3e-4, steps=150),
    "blind": Situation(1 / 2, informed=False, lr=3e-4, steps=150),
    "rare": Situation(1 / 8, informed=True, lr=3e-4, steps=150),
    "learnt": Situation(None, informed=False, lr=1e-3, steps=120),
    "mixed": Situation(None, informed=False, lr=1e-3, steps=60, mixed=True),
    "coin": Situation(1 / 2, informed=False, lr=1e-3, steps=60, mixed=True),
}


@dataclass(frozen=True)
class Arm:
    """What a run does: where, with which advantage and divisor, how fast."""

    situation: str
    advantage: str
    divisor: str
    lr: float


def _arms() -> dict[str, Arm]:
    arms = {}
    for name in ("informed", "blind", "rare", "learnt"):
        for divisor in DIVISORS:
            advantage = (
                "centred" if (name, divisor) == ("learnt", "constant") else "zscore"
            )
            arms[f"{name}-{divisor}"] = Arm(
                name, advantage, divisor, SITUATIONS[name].lr
            )
    del arms["rare-batch"]
    arms["learnt-zscore-constant"] = Arm(
        "learnt", "zscore", "constant", SITUATIONS["learnt"].lr
    )
    for advantage, divisor in itertools.product(ADVANTAGES, ("own", "constant")):
        for rate, lr in RATES.items():
            arms[f"mixed-{advantage}-{divisor}-{rate}"] = Arm(
                "mixed", advantage, divisor, lr
            )
    arms["mixed-zscore-own-0.01"] = Arm("mixed", "zscore", "own", 1e-2)
    arms["coin-zscore-own-0.001"] = Arm("coin", "zscore", "own", 1e-3)
    return arms


ARMS = _arms()


def algorithm(arm: str) -> Algorithm:
    """What an arm trains with."""
    what = ARMS[arm]
    return replace(
        GRPO, advantage=ADVANTAGES[what.advantage], aggregate=DIVISORS[what.divisor]
    )


def begin(seed: int) -> PreTrainedModel:
    """An untrained model; it ends a response about once in sixteen tokens."""
    return tiny_llama(
        FIRST_CUE + PROMPTS,
        width=32,
        layers=1,
        heads=4,
        max_length=BUDGET + 2,
        seed=seed,
    )


def ask(situation: Situation, generator: Generator) -> tuple[Tensor, Tensor]:
    """The prompts of a step, [B, 1], and the coin of each completion, [B]."""
    B = PROMPTS * GROUP
    groups = FIRST_CUE + torch.arange(PROMPTS).repeat_interleave(GROUP)[:, None]
    if situation.chance is None:
        return groups, torch.zeros(B)
    coin = (torch.rand(B, generator=generator) < situation.chance).float()
    if situation.mixed:
        return groups, coin
    seen = (
        coin
        if situation.informed
        else (torch.rand(B, generator=generator) < 0.5).float()
    )
    return FIRST_CUE + seen.long()[:, None], coin


def rewards_of(
    situation: Situation, prompts: Tensor, coin: Tensor, completions: Tensor
) -> Tensor:
    """1 for a right completion: by its coin, or by its first token.

    In "learnt" the right word of prompt j is word j mod 4. In "mixed" an even prompt is hard and an odd one easy, and
    the right tokens of prompt j are the first 1 or 13 of all 17, counted from the word j + 1.
    """
    if situation.chance is not None:
        return coin
    number = prompts[:, 0] - FIRST_CUE
    if not situation.mixed:
        return (completions[:, 0] == END + 1 + number % 4).float()
    allowed = torch.where(number % 2 == 0, 1, EASY)
    return ((completions[:, 0] - 1 - number) % (FIRST_CUE + PROMPTS) < allowed).float()


def train(arm: str, seed: int, steps: int | None = None) -> list[dict[str, float]]:
    """One run: what each of its steps sampled."""
    situation, row = SITUATIONS[ARMS[arm].situation], algorithm(arm)
    policy, generator = begin(seed), torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(
        policy.parameters(), lr=ARMS[arm].lr, weight_decay=0.0
    )
    history = []
    for _ in range(steps or situation.steps):
        prompts, coin = ask(situation, generator)
        ones = torch.ones_like(prompts)
        drawn = sample(
            policy,
            prompts,
            ones,
            max_new_tokens=BUDGET,
            eos_id=END,
            pad_id=END,
            generator=generator,
        )
        rewards = rewards_of(situation, prompts, coin, drawn.completions)
        logits = policy_logits(policy, prompts, ones, drawn.completions)
        logp = logits.log_softmax(-1).gather(-1, drawn.completions[..., None])[..., 0]
        batch = Batch(logp, drawn.logp, drawn.mask, rewards, GROUP, budget=BUDGET)
        optimizer.zero_grad()
        policy_loss(row, batch).backward()
        largest = float("inf") if situation.mixed else 1.0
        norm = torch.nn.utils.clip_grad_norm_(policy.parameters(), largest)
        optimizer.step()
        right, lengths = rewards == 1, batch.lengths
        counts = (right.sum(), lengths[right].sum(), lengths[~right].sum())
        kept: dict[str, float] = {
            name: int(count) for name, count in zip(KEPT, counts, strict=True)
        }
        if situation.mixed:
            groups = rewards.view(PROMPTS, GROUP)
            kept["hard_right"] = int(groups[::2].sum())
            kept["equal_groups"] = int((groups.amax(1) == groups.amin(1)).sum())
            kept["norm"] = round(norm.item(), 5)
        history.append(kept)
    return history


def run(arm: str, seed: int) -> dict[str, Any]:
    """One run, as it is recorded."""
    began = time.perf_counter()
    history = train(arm, seed)
    seconds = round(time.perf_counter() - began, 1)
    return {
        "seconds": seconds,
        **{name: [step[name] for step in history] for name in history[0]},
    }


if __name__ == "__main__":
    record(
        __file__,
        ARMS,
        run,
        responses_a_step=PROMPTS * GROUP,
        group_size=GROUP,
        budget=BUDGET,
    )
