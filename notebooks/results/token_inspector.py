"""The recorded steps behind the token inspector: what every row that can read a batch gives to each of its tokens.

    python notebooks/results/token_inspector.py            both runs, if they are not yet recorded (5 minutes of one core)
    python notebooks/results/token_inspector.py clock      only the run named

Writes notebooks/results/token-inspector.json, a line a run. Both runs train the row `grpo` with seed 0 and make two updates on
each rollout, both with the whole of it. At steps that were fixed beforehand, the second update is looked at:
the rollout was drawn before the first, so ratios have left 1. `prepare_batch` then makes a batch for each row that reads
no more than that rollout and its log-probs, `policy_loss` its gradient, and nothing of it is trained on, but for GRPO's own.

    clock      the task clock from its shipped start: 8 prompts with 8 completions a step, 40 steps
    smollm2    SmolLM2-135M-Instruct on sums of two numbers, as in the chapter on scaling up: 6 prompts with 4 completions a
               step, 6 steps. It is sampled in bfloat16 and trained in float32, so that sampler and trainer disagree a little

Of each step looked at, the first two groups with different rewards are kept; shares, whitening and `scale`, the mean size
of a row's weights, are of the whole batch, and so are the counts: `credited`, tokens with an advantage, and `silent`, those
of them to which the row gives no gradient from it. Log-probs are in nats: `sampler` by the engine that sampled, `old` by the trainer
before the first update, `now` before the second, `ref` by the start. The factors of `rlhf_book.factors` are places in `values`,
since many rows share them. A number that is the same for all tokens of a completion is written once for it, and once for a
group if it is the same for all of that.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from importlib.resources import as_file, files
from typing import Any

import torch
from recording import record
from torch import Tensor

from rlhf_book.factors import Factors, factors_of, fitting_rows
from rlhf_minimal import ALGORITHMS, Batch
from rlhf_minimal.config import Config
from rlhf_minimal.lab.fast import fast
from rlhf_minimal.metrics import Metrics
from rlhf_minimal.models import load_pretrained
from rlhf_minimal.sample import Rollout, sample
from rlhf_minimal.tasks import get_task
from rlhf_minimal.train import Recipe, prepare_batch, train, update
from rlhf_minimal.train_state import Learner
from rlhf_minimal.training import load_policy

SEEDS = range(1)
ROW = ALGORITHMS["grpo"]
GROUPS = 2  # kept of a step
KEPT = tuple(field.name for field in fields(Factors))


@dataclass(frozen=True)
class Arm:
    """A run, and the steps at which it is looked at."""

    task: str
    config: Config
    steps: tuple[int, ...]
    model: str | None = None


ARMS = {
    "clock": Arm(
        "clock",
        Config(steps=40, prompts=8, group_size=8, lr=5e-4),
        (1, 20, 40),
    ),
    "smollm2": Arm(
        "reasoning-gym:chain_sum,min_terms=2,max_terms=2,min_digits=1,max_digits=2",
        Config(steps=6, prompts=6, group_size=4, lr=1e-5, max_new_tokens=8),
        (1, 6),
        model="smollm2-135m",
    ),
}


def in_bfloat16(policy: Any, *given: Any, **options: Any) -> Any:
    """The sampler of an engine with half the precision of the trainer."""
    with torch.autocast(policy.device.type, torch.bfloat16):
        return sample(policy, *given, **options)


def begin(arm: str, seed: int) -> tuple[Learner, Recipe]:
    """A learner at its start, and what it is trained with."""
    plan = ARMS[arm]
    config, task = replace(plan.config, seed=seed), get_task(plan.task)
    if plan.model is None:
        with as_file(
            files("rlhf_minimal") / "assets" / (task.start or task.name)
        ) as folder:
            policy, vocabulary = load_policy(folder)
        recipe = fast(Recipe(ROW, task, config))
    else:
        policy, vocabulary = load_pretrained(plan.model, chat=False)
        task = replace(task, instruction="")  # as the chapter on scaling up asks it
        recipe = fast(Recipe(ROW, task, config, sample=in_bfloat16))
    return Learner.begin(policy, vocabulary, ROW, config), recipe


@torch.no_grad()
def logp_of(learner: Learner, recipe: Recipe, groups: Rollout) -> Tensor:
    """[B, T] the policy's log-probs of what was sampled."""
    assert recipe.compute_logprobs is not None
    every = torch.arange(len(groups.mask))
    return recipe.compute_logprobs(learner.policy, groups, every, recipe.config).logp


def run(arm: str, seed: int, *, steps: int | None = None) -> dict[str, Any]:
    """One run, as it is recorded; with `steps`, the beginning of it."""
    began = time.process_time()
    plan = ARMS[arm]
    learner, recipe = begin(arm, seed)
    recipe = replace(
        recipe, config=replace(recipe.config, steps=steps or plan.config.steps)
    )
    looks: list[dict[str, Any]] = []

    def twice(
        learner: Learner, recipe: Recipe, groups: Rollout, batch: Batch, step: int
    ) -> Metrics:
        if step not in plan.steps:
            update(learner, recipe, groups, batch, step)
            return update(learner, recipe, groups, batch, step)
        batches = {
            name: prepare_batch(
                learner, replace(recipe, algorithm=ALGORITHMS[name]), groups, step
            )[0]
            for name in fitting_rows()
        }
        old = logp_of(learner, recipe, groups)
        update(learner, recipe, groups, batch, step)
        now = logp_of(learner, recipe, groups)
        looks.append({"step": step, **look(learner, recipe, groups, batches, old, now)})
        return update(learner, recipe, groups, batch, step)

    history = train(learner, recipe, update=twice)
    return {
        "row": "grpo",
        "reward": [round(step["reward"], 3) for step in history],
        "seconds": round(time.process_time() - began, 1),
        "steps": looks,
    }


def look(
    learner: Learner,
    recipe: Recipe,
    groups: Rollout,
    batches: dict[str, Batch],
    old: Tensor,
    now: Tensor,
) -> dict[str, Any]:
    """What a step's batch gives to every row, and of it the groups that are kept."""
    size, found = recipe.config.group_size, dict[str, Factors]()
    for name, batch in batches.items():
        found[name] = factors_of(ALGORITHMS[name], replace(batch, logp=now))
    trained = groups.mask != 0
    lengths = groups.mask.sum(-1).int().tolist()
    reference = batches["grpo"].ref_logp
    assert reference is not None
    mixed = [
        at
        for at, rewards in enumerate(groups.rewards.view(-1, size))
        if rewards.min() < rewards.max()
    ][:GROUPS]
    kept = []
    for at in mixed:
        rows = slice(at * size, (at + 1) * size)
        own = lengths[rows]
        known = {"sampler": groups.logp, "old": old, "now": now, "ref": reference}
        values: list[Any] = []

        def place(value: Any, values: list[Any] = values) -> int:
            if value not in values:
                values.append(value)
            return values.index(value)

        kept.append(
            {
                "prompt": groups.problems[rows.start].prompt,
                "answer": str(groups.problems[rows.start].answer),
                "rewards": short(groups.rewards[rows]),
                "truncated": groups.truncated[rows].int().tolist(),
                "tokens": [
                    pieces(learner, ids[:length])
                    for ids, length in zip(
                        groups.completions[rows].tolist(), own, strict=True
                    )
                ],
                **{
                    name: [
                        short(one[:length])
                        for one, length in zip(logp[rows], own, strict=True)
                    ]
                    for name, logp in known.items()
                },
                "rows": {
                    name: {
                        kind: place(packed(getattr(factors.rows(rows), kind), own))
                        for kind in KEPT
                    }
                    for name, factors in found.items()
                },
                "values": values,
            }
        )
    return {
        "completions": len(lengths),
        "tokens": sum(lengths),
        "scale": {
            name: short(one.weight[trained].abs().mean()[None])[0]
            for name, one in found.items()
        },
        "credited": {
            name: int((one.advantage != 0)[trained].sum())
            for name, one in found.items()
        },
        "silent": {
            name: int(
                ((one.gate * one.correct * one.trust == 0) & (one.advantage != 0))[
                    trained
                ].sum()
            )
            for name, one in found.items()
        },
        "groups": kept,
    }


def pieces(learner: Learner, ids: list[int]) -> list[str]:
    """The text that each token adds; "" for the token that ends a completion."""
    decode: Callable[..., str] = learner.vocabulary.decode
    texts = [decode(ids[:n]) for n in range(len(ids) + 1)]
    return [
        after.removeprefix(before)
        for before, after in zip(texts, texts[1:], strict=False)
    ]


def short(values: Tensor) -> list[float | int | None]:
    """Seven digits of each, and None for NaN."""
    return [
        None if x != x else int(x) if x == int(x) else float(f"{x:.7g}")
        for x in values.double().tolist()
    ]


def packed(values: Tensor, lengths: list[int]) -> Any:
    """[G, T] as lists, or as single numbers where it is the same throughout."""
    rows: list[Any] = []
    for one, length in zip(values, lengths, strict=True):
        numbers = short(one[:length])
        rows.append(numbers[0] if len(set(numbers)) == 1 else numbers)
    alike = not any(isinstance(row, list) for row in rows) and len(set(rows)) == 1
    return rows[0] if alike else rows


if __name__ == "__main__":
    record(
        __file__,
        ARMS,
        run,
        seeds=SEEDS,
        task={name: arm.task for name, arm in ARMS.items()},
        prompts={name: arm.config.prompts for name, arm in ARMS.items()},
        group_size={name: arm.config.group_size for name, arm in ARMS.items()},
        updates=2,
        rows=fitting_rows(),
    )
