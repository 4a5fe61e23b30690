"""The recorded runs of the chapter on judges: one rubric of four criteria, one of which can be fooled.

    python notebooks/results/judge_runs.py            runs what is not yet recorded (35 runs, some seven minutes of one core)
    python notebooks/results/judge_runs.py sum veto   only the arms named

Writes notebooks/results/judge-runs.json, a line a run. Every run is the row `grpo` without KL from the shipped start of
`reviews`, 60 steps of 16 prompts with 8 completions, one update a step at 4e-4. `marks` are the four criteria of the
rubric: 1 if the guest's dish is named, 1 if no word is said more than twice, the shipped reward model's score through a
sigmoid, and one point for each `yum` of the first five words. An arm is one change of what is made of these marks:

    sum      their sum
    coin     a coin, the control
    half     the sum of the criteria that are kept: each with probability 1/2, drawn anew for each prompt, at least one
    one      the same with exactly one criterion, drawn anew for each prompt
    scale    the sum with a fifth of a point for each `yum`, so that each criterion gives 0 to 1
    veto     the product of the first two times the sum of the others
    ranks    the share of its group that a completion beats by the sum, a tie counting one half

`gold` is the cook's own score. `judge` is the sum of the marks, in every arm: the rubric as it was written. Both, and
the means of the four marks (`names`, `varied`, `liked`, `warm`), are of each step's completions before its update.
`held_out` are the same for one completion of each of 600 held-out prompts after the last step, `texts` the first six of
them. Seeds 0 to 4 were fixed beforehand; one setting was tried, with seed 10, where each arm but `one` was run once.
"""

import random
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import as_file, files
from typing import Any

import torch
from recording import SEEDS as SEEDS
from recording import record
from torch import Tensor

from rlhf_minimal import ALGORITHMS
from rlhf_minimal.config import Config
from rlhf_minimal.lab.fast import fast
from rlhf_minimal.models import RewardModel, load_reward_model
from rlhf_minimal.sample import Rollout
from rlhf_minimal.tasks import RewardFunction, get_task, random_reward
from rlhf_minimal.train import Recipe, roll_out, train
from rlhf_minimal.train_state import Learner
from rlhf_minimal.training import load_policy

TASK = get_task("reviews")
ROW = replace(ALGORITHMS["grpo"], kl=())
STEPS, PROMPTS, GROUP, LR, HELD_OUT = 60, 16, 8, 4e-4, 600
ARMS = ("sum", "coin", "half", "one", "scale", "veto", "ranks")
CRITERIA = ("names", "varied", "liked", "warm")
KEPT = ("gold", "judge", *CRITERIA)


@cache
def reward_model() -> RewardModel:
    """The small trained model among the judge's criteria."""
    with as_file(files("rlhf_minimal") / "assets" / "reviews-reward") as folder:
        return load_reward_model(folder)


def marks(prompts: Sequence[str], completions: Sequence[str]) -> Tensor:
    """[B, 4]: what each completion gets for each of `CRITERIA`."""
    liked = reward_model().score(list(prompts), list(completions)).sigmoid().tolist()
    rows = []
    for prompt, completion, score in zip(prompts, completions, liked, strict=True):
        words, dish = completion.split()[:5], prompt.removesuffix("?").split()[-1]
        varied = all(words.count(word) <= 2 for word in words)
        rows.append([dish in words, varied, score, words.count("yum")])
    return torch.tensor(rows, dtype=torch.float64)


def kept(arm: str, draws: random.Random) -> list[float]:
    """Which of the four criteria are used for one prompt: 1 or 0 for each."""
    if arm == "one":
        chosen = draws.randrange(4)
        return [float(k == chosen) for k in range(4)]
    mask = [0.0] * 4
    while not any(mask):
        mask = [float(draws.random() < 0.5) for _ in range(4)]
    return mask


def paid(arm: str, m: Tensor, draws: random.Random) -> Tensor:
    """[B] what an arm pays for the marks [B, 4], completions of one prompt next to each other."""
    if arm in ("half", "one"):
        groups = m.reshape(-1, GROUP, 4)
        masks = torch.tensor(
            [kept(arm, draws) for _ in groups], dtype=m.dtype
        )  # [P, 4]
        return (groups * masks[:, None]).sum(-1).flatten()
    if arm == "scale":
        return (m / torch.tensor([1, 1, 1, 5], dtype=m.dtype)).sum(1)
    if arm == "veto":
        return m[:, 0] * m[:, 1] * (m[:, 2] + m[:, 3])
    total = m.sum(1)
    if arm == "ranks":
        s = total.reshape(-1, GROUP)  # [P, G]
        beats = (s[:, :, None] > s[:, None]).double()
        beats += 0.5 * (s[:, :, None] == s[:, None]).double()  # [P, G, G]
        return ((beats.sum(-1) - 0.5) / (GROUP - 1)).flatten()
    return total


def reward_of(arm: str, seed: int) -> RewardFunction:
    """What an arm is trained for, as a reward function."""
    if arm == "coin":
        return random_reward(seed)

    def reward(
        prompts: Sequence[str],
        completions: Sequence[str],
        step: Sequence[int],
        **columns: Any,
    ) -> list[float]:
        draws = random.Random(f"judges/{seed}/{step[0]}")
        rewards: list[float] = paid(arm, marks(prompts, completions), draws).tolist()
        return rewards

    return reward


def watch(out: Rollout) -> dict[str, float]:
    """Gold and marks of the completions of one step."""
    m = marks([problem.prompt for problem in out.problems], out.texts)
    means = dict(zip(CRITERIA, m.mean(0).tolist(), strict=True))
    seen = {"gold": out.correct.mean().item(), "judge": m.sum(1).mean().item()} | means
    return {name: round(value, 4) for name, value in seen.items()}


def begin(arm: str, seed: int, *, steps: int = STEPS) -> tuple[Learner, Recipe]:
    """A learner at the shipped start, and what it trains."""
    config = Config(steps=steps, prompts=PROMPTS, group_size=GROUP, lr=LR, seed=seed)
    recipe = fast(Recipe(ROW, TASK, config, reward_of(arm, seed)))
    with as_file(files("rlhf_minimal") / "assets" / "reviews") as folder:
        policy, vocabulary = load_policy(folder)
    return Learner.begin(policy, vocabulary, ROW, config), recipe


def run(arm: str, seed: int) -> dict[str, Any]:
    """One run, as it is recorded."""
    learner, recipe = begin(arm, seed)
    seen: list[dict[str, float]] = []
    began = time.process_time()
    train(learner, recipe, on_rollout=lambda step, out: seen.append(watch(out)))
    measured: dict[str, Any] = {"cpu_seconds": round(time.process_time() - began, 1)}
    problems = TASK.problems("held_out", HELD_OUT, seed="judges")
    exam = roll_out(
        learner.policy, learner.vocabulary, problems, Recipe(ROW, TASK), seed="judges"
    )
    measured["held_out"] = watch(exam)
    measured["texts"] = exam.texts[:6]
    return measured | {name: [step[name] for step in seen] for name in KEPT}


if __name__ == "__main__":
    record(
        __file__,
        ARMS,
        run,
        seeds=SEEDS,
        steps=STEPS,
        samples_per_step=PROMPTS * GROUP,
    )
