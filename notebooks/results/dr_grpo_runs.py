"""The recorded runs of the chapter on Dr. GRPO: do wrong responses lengthen, and what does a divisor cost in tokens?

    python notebooks/results/dr_grpo_runs.py             runs what is not yet recorded (55 runs, ten minutes)
    python notebooks/results/dr_grpo_runs.py told-own    only the arms named

Writes notebooks/results/dr-grpo-runs.json, a line a run. Every run trains a fresh tiny Llama (one layer, width 32) on
responses of at most 32 tokens. An arm is a situation and a divisor.

Situations. In "told", "rare" and "blind" a response is right or wrong by a coin that the policy cannot influence.
"told" and "rare" (whose coin falls right in one case of eight) show the coin to the policy before it writes; all that
it decides is when to stop. "blind" shows it another coin, which says nothing. In "learnt" there are eight prompts, the
first token is the answer, and whatever follows does not matter.

Divisors. "own": each response's own length, as in GRPO. "batch": the tokens of the batch, as in DAPO. "constant": the
budget, as in Dr. GRPO. In the first three situations nothing else differs, and the division by the group's std stays
on. In "learnt" the constant arm is the row dr_grpo, without the std.

Seeds 0 to 4 were fixed beforehand and all are recorded; settings were tried on seeds 100 and 101 before that.
"""

import time
from dataclasses import dataclass, replace
from typing import Any

import torch
from recording import SEEDS as SEEDS
from recording import record
from torch import Generator, Tensor
from transformers import PreTrainedModel

from rlhf_minimal import ALGORITHMS, Algorithm, Batch, policy_loss
from rlhf_minimal.functional import aggregation
from rlhf_minimal.models import policy_logits, tiny_llama
from rlhf_minimal.training import sample

BUDGET, PROMPTS, GROUP = 32, 8, 16
END, WORDS = (
    0,
    8,
)  # token ids: the end, then the words; what stands in the prompt comes after them
FIRST_CUE = END + 1 + WORDS
KEPT = (
    "right",
    "right_tokens",
    "wrong_tokens",
)  # by step, of PROMPTS * GROUP responses

GRPO = replace(ALGORITHMS["grpo"], kl=())
DIVISORS: dict[str, Algorithm] = {
    "own": GRPO,
    "batch": replace(GRPO, aggregate=aggregation.token_mean),
    "constant": replace(GRPO, aggregate=aggregation.fixed_length),
}


@dataclass(frozen=True)
class Situation:
    """How right and wrong come about. ``chance``: of the coin, or None where the first token decides."""

    chance: float | None
    told: bool
    lr: float
    steps: int


SITUATIONS = {
    "told": Situation(1 / 2, told=True, lr=3e-4, steps=150),
    "blind": Situation(1 / 2, told=False, lr=3e-4, steps=150),
    "rare": Situation(1 / 8, told=True, lr=3e-4, steps=150),
    "learnt": Situation(None, told=False, lr=1e-3, steps=120),
}
ARMS = {
    f"{situation}-{divisor}": (situation, divisor)
    for situation in SITUATIONS
    for divisor in DIVISORS
}
del ARMS["rare-batch"]


def algorithm(arm: str) -> Algorithm:
    """What an arm trains with."""
    situation, divisor = ARMS[arm]
    return (
        ALGORITHMS["dr_grpo"]
        if (situation, divisor) == ("learnt", "constant")
        else DIVISORS[divisor]
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
    """The prompts of a step, [B, 1], and the coin of each response, [B]."""
    B = PROMPTS * GROUP
    if situation.chance is None:
        return FIRST_CUE + torch.arange(PROMPTS).repeat_interleave(GROUP)[
            :, None
        ], torch.zeros(B)
    coin = (torch.rand(B, generator=generator) < situation.chance).float()
    seen = (
        coin if situation.told else (torch.rand(B, generator=generator) < 0.5).float()
    )
    return FIRST_CUE + seen.long()[:, None], coin


def rewards_of(
    situation: Situation, prompts: Tensor, coin: Tensor, completions: Tensor
) -> Tensor:
    """1 for a right response: by its coin, or by its first token; the right word of prompt j is word j mod 4."""
    if situation.chance is not None:
        return coin
    return (completions[:, 0] == END + 1 + (prompts[:, 0] - FIRST_CUE) % 4).float()


def train(arm: str, seed: int, steps: int | None = None) -> list[dict[str, int]]:
    """One run: what each of its steps sampled."""
    situation, row = SITUATIONS[ARMS[arm][0]], algorithm(arm)
    policy, generator = begin(seed), torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(
        policy.parameters(), lr=situation.lr, weight_decay=0.0
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
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        right, lengths = rewards == 1, batch.lengths
        counts = (right.sum(), lengths[right].sum(), lengths[~right].sum())
        history.append(
            {name: int(count) for name, count in zip(KEPT, counts, strict=True)}
        )
    return history


def run(arm: str, seed: int) -> dict[str, Any]:
    """One run, as it is recorded."""
    began = time.perf_counter()
    history = train(arm, seed)
    seconds = round(time.perf_counter() - began, 1)
    return {
        "seconds": seconds,
        **{name: [step[name] for step in history] for name in KEPT},
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
