"""Many completions of one problem: does one of them solve it, and what do they decide together?

A problem counts once, whatever the number of its completions: intervals are by problem.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedModel

from rlhf_minimal.evaluate import HELD_OUT, Accuracy, pass_at
from rlhf_minimal.models import TokenizerVocabulary, Vocabulary
from rlhf_minimal.sample import Rollout, join
from rlhf_minimal.tasks import RewardFunction, Task, checked_steps, score_all
from rlhf_minimal.train import Recipe, check_context, roll_out


@dataclass(frozen=True)
class Votes:
    """What n completions of each problem are worth, for n = 1, 2, 4, ... up to all that were sampled.

    Attributes:
        passed: n -> share of problems of which one of n completions is right (`pass_at`).
        majority: n -> share of problems whose most frequent final answer is right.
        weighted: n -> the same with each completion's weight in place of 1; empty without a scorer.
        best: n -> share of problems of which the completion with the largest weight is right; likewise.
        ties: n -> share of the majority votes with a tie, which counts as a draw among its answers.
        samples: The completions, those of one problem next to each other.
    """

    passed: dict[int, Accuracy]
    majority: dict[int, Accuracy]
    weighted: dict[int, Accuracy]
    best: dict[int, Accuracy]
    ties: dict[int, float]
    samples: Rollout


def vote(answers: Sequence[str | None], right: Sequence[bool], weights: Sequence[float]) -> tuple[float, bool]:
    """The chance that the answer with the largest sum of weights is right, and whether several have it.

    A tie is drawn by lot, so each of its answers counts in part. Completions without a final answer have no vote.

    Args:
        answers: The final answer of each completion, None for none.
        right: Whether each completion is right.
        weights: What each counts.

    Example:
        >>> vote(["f", "g", None], [True, False, False], [1.0, 1.0, 1.0])
        (0.5, True)
    """
    sums: Counter[str] = Counter()
    known: dict[str, list[bool]] = {}
    for answer, is_right, weight in zip(answers, right, weights, strict=True):
        if answer is not None:
            sums[answer] += weight  # type: ignore[assignment]
            known.setdefault(answer, []).append(is_right)
    most = max(sums.values(), default=0)
    first = [answer for answer, weight in sums.items() if math.isclose(weight, most)]
    shares = [sum(known[answer]) / len(known[answer]) for answer in first]
    return (sum(shares) / len(shares) if shares else 0.0), len(first) > 1


def verified_steps(task: Task) -> RewardFunction:
    """A scorer from the task's checker: the number of steps if none of them is wrong, else 0.

    So a completion without a step has no weight, and one that works further has more.

    Example:
        >>> from rlhf_minimal.tasks import Problem, get_task
        >>> scorer, problem = verified_steps(get_task("clock10")), [Problem("3+8:", "b")] * 3
        >>> scorer(prompts=["3+8:"] * 3, completions=["3d8b=b", "3d8c=c", "=b"], problem=problem)
        [2.0, 0.0, 0.0]
    """
    check = checked_steps(task)
    return lambda **columns: [
        float(len(steps)) if all(mark >= 0.5 for _, mark in steps) else 0.0 for steps in check(**columns)
    ]


def evaluate_votes(
    policy: PreTrainedModel,
    vocabulary: Vocabulary | TokenizerVocabulary,
    recipe: Recipe,
    *,
    samples: int,
    n: int = HELD_OUT,
    seed: str = "0",
    batch_size: int = 1000,
    scorer: RewardFunction | None = None,
    rollout_fn: Callable[..., Rollout] = roll_out,
) -> Votes:
    """Pass@n and votes on held-out problems, from `samples` completions of each at temperature 1.

    A number for fewer completions than were sampled is the mean over all choices (`pass_at`), or over the disjoint
    groups of that size in the order of sampling (votes).

    Args:
        policy: The model.
        vocabulary: Its vocabulary.
        recipe: Its task and budget are used; `Task.final` reads the answers that are voted on.
        samples: Completions of each problem.
        n: Number of problems, no two of one family.
        seed: Names the draw of problems and samples.
        batch_size: How many completions are sampled at once.
        scorer: A reward function, whose numbers are the weights of the weighted vote; at least 0 each.
        rollout_fn: What samples: `roll_out`, or `partial(force, at=..., text=...)`.

    Raises:
        ValueError: If the task grades completions, so that none is simply right; if there is no completion to sample,
            or a weight is negative.
    """
    if recipe.task.score_range is not None or samples < 1:
        raise ValueError(
            f"votes need a task whose answers are right or wrong, and samples of at least 1; got {samples}"
        )
    problems = recipe.task.problems("held_out", n, seed=f"evaluate/{seed}", distinct=True)
    check_context(policy, vocabulary, recipe, problems)
    width = max(1, batch_size // samples)
    batches = [
        rollout_fn(policy, vocabulary, problems[i : i + width], recipe, group_size=samples, seed=f"votes/{seed}/{i}")
        for i in range(0, len(problems), width)
    ]
    rollout = join(batches)
    answers = [recipe.task.final(text) for text in rollout.texts]
    weights = None
    if scorer is not None:
        weights = score_all(scorer, rollout.problems, rollout.texts, 0, seconds=recipe.config.verifier_timeout).values
        if min(weights) < 0:
            raise ValueError(f"a weight of a vote must be at least 0; the scorer gives {min(weights):g}")
    own = [slice(i, i + samples) for i in range(0, len(answers), samples)]  # rows of each problem
    right = (rollout.correct == 1).tolist()
    votes: dict[str, dict[int, Any]] = {name: {} for name in ("passed", "majority", "weighted", "best", "ties")}
    for k in [2**i for i in range(samples.bit_length()) if 2**i < samples] + [samples]:
        by_problem = [_decided(k, right[rows], answers[rows], weights and weights[rows]) for rows in own]
        for name in by_problem[0]:
            shares = torch.tensor([shares[name] for shares in by_problem])  # [P]
            votes[name][k] = shares.mean().item() if name == "ties" else Accuracy.of_shares(shares, draws=samples)
    return Votes(**votes, samples=rollout)


def _decided(k: int, right: list[bool], answers: list[str | None], weights: list[float] | None) -> dict[str, float]:
    """The fields of `Votes` for one problem: what k of its completions decide, the mean over disjoint groups of k."""
    found: dict[str, list[float]] = {"passed": [pass_at(k, sum(right), len(right))], "majority": [], "ties": []}
    found |= {} if weights is None else {"weighted": [], "best": []}
    for i in range(0, len(right) - k + 1, k):
        rows = slice(i, i + k)
        share, tie = vote(answers[rows], right[rows], [1.0] * k)
        found["majority"].append(share)
        found["ties"].append(tie)
        if weights is not None:
            found["weighted"].append(vote(answers[rows], right[rows], weights[rows])[0])
            best = [r for r, w in zip(right[rows], weights[rows], strict=True) if w == max(weights[rows])]
            found["best"].append(sum(best) / len(best))
    return {name: sum(numbers) / len(numbers) for name, numbers in found.items()}
