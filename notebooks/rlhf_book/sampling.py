"""Many completions of each problem, as `notebooks/results/sampling_runs.py` recorded them, and what they come to.

P problems, K completions of each. Everything here reads tables [P, K] and is exact or draws with a fixed seed.
"""

import math
import string
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from rlhf_book.records import read_record


@dataclass(frozen=True)
class Completions:
    """K completions of each of P problems.

    Attributes:
        answers: [P, K] the final answer as a number, 0 for `a`; -1 where there is none.
        right: [P, K] whether it is right.
        sound: [P, K] whether it is right, and all moves are written before it and right.
        tokens: [P, K] the tokens of the completion, its end included.
    """

    answers: Tensor
    right: Tensor
    sound: Tensor
    tokens: Tensor

    @property
    def cost(self) -> float:
        """Mean tokens of a completion."""
        return self.tokens.double().mean().item()


@cache
def record() -> dict[str, Any]:
    """The whole record.

    Raises:
        ValueError: if it is missing.
    """
    found = read_record("sampling-runs")
    if found is None:
        raise ValueError(
            "there is no record of the sampling runs: run notebooks/results/sampling_runs.py"
        )
    return found


def runs_of(arm: str) -> list[dict[str, Any]]:
    """The runs of an arm, by seed."""
    return [run for run in record()["runs"] if run["arm"] == arm]


def truth() -> Tensor:
    """[P] the right answers, as numbers."""
    return torch.tensor([string.ascii_lowercase.index(a) for a in record()["answers"]])


def moves() -> Tensor:
    """[P] how many moves each problem has."""
    return torch.tensor(record()["moves"])


def completions_of(run: dict[str, Any]) -> Completions:
    """The table of one run."""
    rows: list[str] = run["answers"]
    answers = torch.tensor(
        [[string.ascii_lowercase.find(c.lower()) for c in row] for row in rows]
    )
    sound = torch.tensor([[c.isupper() for c in row] for row in rows])
    tokens = torch.tensor([numbers(row) for row in run["lengths"]])
    return Completions(answers, answers == truth()[:, None], sound, tokens)


def numbers(row: str) -> list[int]:
    """What was written a character each.

    Example:
        >>> numbers("0az")
        [0, 10, 35]
    """
    return [record()["digits"].index(c) for c in row]


def scores_of(run: dict[str, Any], name: str) -> Tensor:
    """[P, K] the scores of a run, two characters each, in hundredths from -39."""
    digits: str = record()["digits"]
    place = {c: i for i, c in enumerate(digits)}
    rows = [
        [place[row[i]] * len(digits) + place[row[i + 1]] for i in range(0, len(row), 2)]
        for row in run[name]
    ]
    return (torch.tensor(rows, dtype=torch.float64) - 3900) / 100


def pass_at(k: int, right: Tensor, n: int) -> Tensor:
    """[P] the unbiased estimate of pass@k from the counts [P] of right ones among n.

    Example:
        >>> pass_at(2, torch.tensor([1, 3]), 4).tolist()
        [0.5, 1.0]
    """
    chances = [1 - math.comb(n - c, k) / math.comb(n, k) for c in range(n + 1)]
    return torch.tensor(chances, dtype=torch.float64)[right]


def best_of(n: int, scores: Tensor, right: Tensor) -> Tensor:
    """[P] the mean over all choices of n completions of whether the best by score is right; ties count in part.

    Args:
        n: completions that one may choose from.
        scores: [P, K].
        right: [P, K].

    Example:
        >>> best_of(3, torch.tensor([[4.0, 3.0, 2.0, 1.0]]), torch.tensor([[False, True, True, True]])).tolist()
        [0.25]
    """
    K = scores.shape[1]
    order = scores.argsort(dim=1, descending=True, stable=True)
    weights = [math.comb(K - 1 - r, n - 1) / math.comb(K, n) for r in range(K)]
    weigh = torch.tensor(weights, dtype=torch.float64)
    marks = right.double()
    equal = scores[:, :, None] == scores[:, None, :]  # [P, K, K]
    marks = (equal * marks[:, None, :]).sum(2) / equal.sum(2)  # the mean among ties
    return (marks.gather(1, order) * weigh).sum(1)


def voted(
    n: int,
    answers: Tensor,
    weights: Tensor | None = None,
    *,
    draws: int = 64,
    seed: int = 0,
) -> Tensor:
    """[P] how often a vote of n completions is right, over choices of n among the K; ties count in part.

    Args:
        n: completions that vote.
        answers: [P, K] numbers from 0 to 25, -1 for none, which has no vote.
        weights: [P, K] what each counts, at least 0. Default: 1.
        draws: choices of n that are tried; all K have only one.
        seed: of the choices.
    """
    P, K = answers.shape
    generator = torch.Generator().manual_seed(seed)
    weights = torch.ones(P, K) if weights is None else weights
    draws = 1 if n == K else draws
    weights = (weights * (answers >= 0)).double()
    if n == 1:  # every completion once
        draws, chosen = K, torch.arange(K)[None, :, None].expand(P, K, 1)
    else:
        chosen = torch.rand(P, draws, K, generator=generator).argsort(-1)[..., :n]
    own = answers.clamp(min=0)[:, None].expand(P, draws, K).gather(2, chosen)
    worth = weights[:, None].expand(P, draws, K).gather(2, chosen)
    sums = torch.zeros(P, draws, 26, dtype=torch.float64).scatter_add_(2, own, worth)
    first = (sums >= sums.amax(-1, keepdim=True) - 1e-9) & (sums > 0)
    shares = first.double() / first.sum(-1, keepdim=True).clamp(min=1)
    at = truth()[:P, None, None].expand(P, draws, 1)
    return shares.gather(2, at).squeeze(2).mean(1)


def interval(by_problem: Tensor, draws: int = 2000) -> tuple[float, float]:
    """The middle 95 % of the mean over problems that are drawn again; [P] one number a problem."""
    P = len(by_problem)
    again = torch.randint(P, (draws, P), generator=torch.Generator().manual_seed(1))
    means = by_problem[again].mean(1)
    low, high = means.quantile(torch.tensor([0.025, 0.975], dtype=means.dtype)).tolist()
    return low, high


def sizes(most: int) -> Sequence[int]:
    """1, 2, 4, ... up to a number."""
    return [2**i for i in range(most.bit_length()) if 2**i <= most]
