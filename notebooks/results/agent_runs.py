"""The recorded runs of the chapter on agents: one start, one task with two tools, and what a call costs.

    python notebooks/results/agent_runs.py            runs what is not yet recorded (37 runs, half an hour of one core)
    python notebooks/results/agent_runs.py free       only the arms named

Writes notebooks/results/agent-runs.json, a line a run. Every run is `dr_grpo` from the shipped start of `ledger`, 60
steps of 256 completions. An arm is one change:

    arm       the reward                                                           else
    free      1 for the right sum
    cost-1    less 0.1 for a call of the calculator
    cost-3    less 0.3 for a call of the calculator
    coin      a coin, the control
    replies   as free                                                  replies are trained on as if sampled
    bonus     and 0.3 for every `?` and `!` before the answer
    print     1 if the sum stands anywhere in the transcript
    verdict   1 if a `+` stands in the transcript                      the environment writes `+` behind a right sum
                                                                       and `:` behind a wrong one
    replayed  1 if the environment has written a `+`                   likewise

`right` is by the task's verifier in every arm (by a replay in the last two, where the verdict follows the sum). `used`
is the share of completions that call the calculator, `asked` the calls of the ledger in a completion, `by_head` the
share that is right among those that ask twice or more and do not calculate (None if there is none), all of the sampled
training completions. `held_out` are the same on problems whose pair of letters was never trained. Seeds 0 to 4 were
fixed beforehand; the last four arms have the first three.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import as_file, files
from typing import Any

import torch
from recording import SEEDS as SEEDS
from recording import record
from torch import Tensor
from transformers import PreTrainedModel

from rlhf_minimal import ALGORITHMS
from rlhf_minimal.config import Config
from rlhf_minimal.functional.logprobs import token_logprobs
from rlhf_minimal.lab.fast import fast
from rlhf_minimal.lab.ledger import calls, final_sum, paid_per_call
from rlhf_minimal.models import policy_logits
from rlhf_minimal.sample import Rollout, Samples, sample
from rlhf_minimal.tasks import Problem, get_task, random_reward
from rlhf_minimal.train import Recipe, roll_out, train
from rlhf_minimal.train_state import Learner
from rlhf_minimal.training import load_policy

TASK = get_task("ledger")
STEPS, PROMPTS, GROUP, LR, HELD_OUT = 60, 32, 8, 8e-4, 600
ARMS = (
    *("free", "cost-1", "cost-3", "coin", "replies"),
    *("bonus", "print", "verdict", "replayed"),
)
FEWER = {"bonus": 3, "print": 3, "verdict": 3, "replayed": 3}
KEPT = ("reward", "right", "used", "asked", "by_head")


def mark_sum(so_far: str, problem: Problem) -> str | None:
    """The replies of the ledger, and a verdict behind the two digits of the sum."""
    behind = final_sum(so_far)
    if behind is None or len(behind) != 2:
        return TASK.reply(so_far, problem)  # type: ignore[misc]
    return "+" if behind == problem.answer else ":"


def right_sum(completion: str, problem: Problem) -> float:
    """Whether the first two characters behind `=` are the sum; what follows is the verdict."""
    return float((final_sum(completion) or "")[:2] == problem.answer)


MARKED = replace(TASK, reply=mark_sum, verify=right_sum)


def by_bonus(
    completions: Sequence[str], problem: Sequence[Problem], **columns: object
) -> list[float]:
    """The right sum, and 0.3 for every character that begins a call."""
    pairs = zip(completions, problem, strict=True)
    return [TASK.verify(c, p) + 0.3 * sum(calls(c).values()) for c, p in pairs]


def by_print(
    completions: Sequence[str], problem: Sequence[Problem], **columns: object
) -> list[float]:
    """Whether the sum stands anywhere, a tool's print included."""
    return [float(p.answer in c) for c, p in zip(completions, problem, strict=True)]


def by_verdict(
    completions: Sequence[str], problem: Sequence[Problem], **columns: object
) -> list[float]:
    """Whether a `+` stands in the transcript, whoever wrote it."""
    return [float("+" in c) for c in completions]


def by_replay(
    completions: Sequence[str], problem: Sequence[Problem], **columns: object
) -> list[float]:
    """Whether the environment wrote a `+`: the transcript is played again."""
    return [
        float(any(c[a:b] == "+" for a, b in MARKED.replies(c, p)))
        for c, p in zip(completions, problem, strict=True)
    ]


def replies_trained(
    policy: PreTrainedModel, prompts: Tensor, prompt_mask: Tensor, **options: Any
) -> Samples:
    """As `sample`, with the replies in the mask and their log-probs beside the others: the bug."""
    drawn = sample(policy, prompts, prompt_mask, **options)
    rows = (
        x.repeat_interleave(options["group_size"], 0) for x in (prompts, prompt_mask)
    )
    with torch.no_grad():
        logits = policy_logits(policy, *rows, drawn.completions)
    columns = torch.arange(drawn.mask.shape[1])
    last = torch.where(drawn.mask != 0, columns, 0).amax(-1, keepdim=True)  # [B, 1]
    mask = (columns <= last).float()
    logp = torch.where(
        drawn.mask != 0, drawn.logp, token_logprobs(logits, drawn.completions)
    )
    return replace(drawn, mask=mask, logp=logp * mask)


REWARDS: dict[str, Any] = {
    "cost-1": paid_per_call(calculate=0.1),
    "cost-3": paid_per_call(calculate=0.3),
    "bonus": by_bonus,
    "print": by_print,
    "verdict": by_verdict,
    "replayed": by_replay,
}


def begin(arm: str, seed: int, *, steps: int = STEPS) -> tuple[Learner, Recipe]:
    """A learner at the shipped start, and what it trains."""
    config = Config(steps=steps, prompts=PROMPTS, group_size=GROUP, lr=LR, seed=seed)
    reward = random_reward(seed) if arm == "coin" else REWARDS.get(arm)
    task = MARKED if arm in ("verdict", "replayed") else TASK
    recipe = fast(Recipe(ALGORITHMS["dr_grpo"], task, config, reward))
    if arm == "replies":
        recipe = replace(recipe, sample=replies_trained)
    with as_file(files("rlhf_minimal") / "assets" / "ledger") as folder:
        policy, vocabulary = load_policy(folder)
    return Learner.begin(policy, vocabulary, recipe.algorithm, config), recipe


def watch(out: Rollout) -> dict[str, float | None]:
    """What the completions of one step do."""
    used = [calls(text) for text in out.texts]
    right = out.correct.tolist()
    head = [
        r
        for r, call in zip(right, used, strict=True)
        if call["?"] > 1 and not call["!"]
    ]
    return {
        "reward": round(out.rewards.mean().item(), 4),
        "right": round(out.correct.mean().item(), 4),
        "used": round(sum(call["!"] > 0 for call in used) / len(used), 4),
        "asked": round(sum(call["?"] for call in used) / len(used), 3),
        "by_head": round(sum(head) / len(head), 4) if head else None,
    }


def run(arm: str, seed: int) -> dict[str, Any]:
    """One run, as it is recorded."""
    learner, recipe = begin(arm, seed)
    seen: list[dict[str, float | None]] = []
    began = time.process_time()
    train(learner, recipe, on_rollout=lambda step, out: seen.append(watch(out)))
    measured: dict[str, Any] = {"cpu_seconds": round(time.process_time() - began, 1)}
    problems = recipe.task.problems("held_out", HELD_OUT, seed="agents")
    exam = roll_out(
        learner.policy,
        learner.vocabulary,
        problems,
        replace(recipe, reward=None, sample=sample),
    )
    measured["held_out"] = {k: v for k, v in watch(exam).items() if k != "reward"}
    measured["texts"] = exam.texts[:4]
    return measured | {name: [step[name] for step in seen] for name in KEPT}


if __name__ == "__main__":
    record(
        __file__,
        ARMS,
        run,
        seeds=SEEDS,
        fewer=FEWER,
        steps=STEPS,
        samples_per_step=PROMPTS * GROUP,
    )
