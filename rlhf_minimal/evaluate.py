"""Evaluation on held-out problems, with sampled and greedy completions and an interval around each share.

Every problem is another one (`Task.problems(distinct=True)`), and the interval is by problem: completions of one
problem are not independent, so a thousand of ten problems say what ten problems can say.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel

from rlhf_minimal.models import TokenizerVocabulary, Vocabulary
from rlhf_minimal.sample import Rollout, join
from rlhf_minimal.train import Recipe, check_context, roll_out
from rlhf_minimal.train_state import ALONE, Processes

HELD_OUT = 1000  # problems of an evaluation: a share's 95 % interval is then at most 6 points wide
DRAWS = 10  # completions sampled of each problem, at most, where the task has fewer than were asked for


def wilson(successes: float | int, n: float | int) -> tuple[float, float]:
    """Wilson's confidence interval of 95 % for a share: it has a width at 0 and 1, too, where the normal one has none.

    Args:
        successes: How many succeeded.
        n: Of how many independent ones.

    Returns:
        Lower and upper end, within 0 and 1.

    Example:
        >>> [round(end, 3) for end in wilson(10, 10)]
        [0.722, 1.0]
    """
    share, z = successes / n, 1.96  # standard errors
    center = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(0.0, center - half), min(1.0, center + half)


def t_quantile(degrees: int) -> float:
    """The 97.5 % quantile of Student's t distribution: how many standard errors an interval of 95 % is wide.

    Below ten degrees of freedom tabulated, else Fisher's expansion in 1 / degrees (right to 0.2 %).

    Example:
        >>> t_quantile(0), t_quantile(9), round(t_quantile(30), 3)
        (inf, 2.262, 2.042)
    """
    if degrees < 10:
        return (math.inf, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)[degrees]
    z = 1.959964
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)


def pass_at(k: int, right: int, n: int) -> float:
    r"""Pass@k: does one of k completions solve the problem, estimated without bias from n of them (:eq:`eq-pass-at-k`).

    .. math:: 1 - \binom{n - c}{k} \Big/ \binom{n}{k}

    The share of all choices of k among the n completions with at least one of the c right ones. From c / n alone,
    1 - (1 - c/n)^k would be too low.

    Chapter: test-time-scaling. Source: Chen et al. 2021, arXiv 2107.03374, eq. 1.

    Args:
        k: Completions that one may try, at most n.
        right: c, the right ones.
        n: Completions that were sampled.

    Example:
        >>> pass_at(2, right=1, n=4)
        0.5
    """
    if not 1 <= k <= n or not 0 <= right <= n:
        raise ValueError(f"pass@k needs 1 <= k <= n and 0 <= right <= n; got k {k}, right {right}, n {n}")
    return 1 - math.comb(n - right, k) / math.comb(n, k)


@dataclass(frozen=True)
class Accuracy:
    """A share of right completions, with its 95 % interval (Wilson).

    Attributes:
        right: Completions that are right.
        n: Of how many.
        problems: Distinct problems that they answer; all of them have the same number of completions. Default: `n`.
        worth: Independent completions that would tell as much. Default: `n`.

    Example:
        >>> print(Accuracy(90, 100))
        90.0% [82.6%, 94.5%]
    """

    right: float | int
    n: int
    problems: int | None = None
    worth: float | None = None

    @classmethod
    def of(cls, correct: Tensor) -> "Accuracy":
        """The share of right completions, and what they are worth.

        With P problems, K completions of each, s^2 the variance of the P problems' shares and p their mean, p has the
        variance s^2 / P. Independent completions would have p (1 - p) / (N - 1), so these are worth

            N = (1 + p (1 - p) P / s^2) (t_PK / t_P)^2,    at most P K; and P, where all are right or all are wrong,

        with t_x Student's quantile of x - 1 degrees of freedom: s^2 is itself uncertain. So one completion of each
        problem is worth one. The variance is that of a mean of clusters (Miller, arXiv 2411.00640, section 2.2), N
        with its correction the effective sample size of Korn and Graubard (Survey Methodology 24, 1998).

        Args:
            correct: [P, K] 1.0 where a completion is right.

        Example:
            >>> import torch
            >>> print(Accuracy.of(torch.tensor([[1.0], [0.0]]).expand(2, 50).repeat(5, 1)), Accuracy(5, 10))
            50.0% [21.0%, 79.0%] 50.0% [23.7%, 76.3%]
        """
        whole = cls.of_shares((correct == 1).double().mean(1), draws=correct.shape[1])
        return replace(whole, right=round(whole.right))

    @classmethod
    def of_shares(cls, shares: Tensor, *, draws: int) -> "Accuracy":
        """As `of`, from one share for each problem that `draws` completions of it have told.

        Args:
            shares: [P] numbers from 0 to 1.
            draws: K, completions of each problem.
        """
        problems, share = len(shares), shares.double().mean().item()
        n, worth = problems * draws, float(problems)
        if draws > 1 and problems > 1 and 0 < share < 1:
            spread = shares.double().var().item()
            worth = 1 + share * (1 - share) * problems / spread if spread else math.inf
            worth = min(float(n), worth * (t_quantile(n - 1) / t_quantile(problems - 1)) ** 2)
        return cls(share * n, n, problems, worth)

    @property
    def share(self) -> float:
        """Right completions per problem."""
        return self.right / self.n

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval."""
        worth = self.n if self.worth is None else self.worth
        return wilson(self.share * worth, worth)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.share:.1%} [{low:.1%}, {high:.1%}]"

    def as_json(self) -> dict[str, float]:
        """Share, counts and interval as plain values."""
        low, high = self.interval
        problems = self.n if self.problems is None else self.problems
        return {"share": self.share, "right": self.right, "n": self.n, "problems": problems, "low": low, "high": high}


@dataclass(frozen=True)
class MeanScore:
    """The mean score of problems, with its 95 % interval (Student's t): mean +- t std / sqrt(n).

    Attributes:
        mean: Over the problems.
        std: Standard deviation of the problems' scores; of a problem with several completions, of their means.
        n: Distinct problems.

    Example:
        >>> print(MeanScore(8.25, 1.0, 1000))
        8.25 [8.19, 8.31]
    """

    mean: float
    std: float
    n: int

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval; one problem says nothing of others."""
        half = t_quantile(self.n - 1) * self.std / math.sqrt(self.n) if self.n > 1 else math.inf
        return self.mean - half, self.mean + half

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.mean:.2f} [{low:.2f}, {high:.2f}]"

    def as_json(self) -> dict[str, Any]:
        """Mean, spread, count and interval as plain values; no ends where there is no interval."""
        low, high = self.interval if self.n > 1 else (None, None)
        return {"mean": self.mean, "std": self.std, "n": self.n, "problems": self.n, "low": low, "high": high}


@dataclass(frozen=True)
class Evaluation:
    """Completions sampled at temperature 1 and one greedy completion for each of some distinct held-out problems.

    Attributes:
        sampled: Share of the sampled completions that are right.
        greedy: Share of the greedy ones.
        samples: The sampled completions, those of one problem next to each other.
        greedy_samples: The greedy ones.
        scores: Mean scores of sampled and greedy completions, if the task gives scores instead of right or wrong.
    """

    sampled: Accuracy
    greedy: Accuracy
    samples: Rollout
    greedy_samples: Rollout
    scores: tuple[MeanScore, MeanScore] | None = None

    @property
    def draws(self) -> int:
        """Completions sampled of each problem."""
        return len(self.samples.texts) // len(self.greedy_samples.texts)

    @property
    def about(self) -> str:
        """How many problems, how many completions of each, and what the interval is."""
        each = f", {self.draws} completions sampled of each" if self.draws > 1 else ""
        problems = len(self.greedy_samples.texts)
        return f"{problems} distinct problem{'s' * (problems != 1)}{each}, 95 % interval"

    @property
    def in_words(self) -> tuple[str, str]:
        """Sampled and greedy: mean scores if the task gives scores, else shares; with intervals."""
        sampled, greedy = self.scores or (self.sampled, self.greedy)
        return str(sampled), str(greedy)

    def as_json(self) -> dict[str, dict[str, Any]]:
        """The two shares, or mean scores, with their counts and intervals."""
        sampled, greedy = self.scores or (self.sampled, self.greedy)
        return {"sampled": sampled.as_json(), "greedy": greedy.as_json()}


def evaluate(
    policy: PreTrainedModel,
    vocabulary: Vocabulary | TokenizerVocabulary,
    recipe: Recipe,
    *,
    n: int = HELD_OUT,
    seed: str = "0",
    batch_size: int = 1000,
    processes: Processes = ALONE,
    rollout_fn: Callable[..., Rollout] = roll_out,
) -> Evaluation:
    """Accuracy or mean score on held-out problems, by the task's own verifier, whatever reward was trained for.

    Args:
        policy: The model.
        vocabulary: Its vocabulary.
        recipe: Its task and budget are used.
        n: Number of problems, no two of one family. If the task has fewer, up to `DRAWS` completions are sampled of
            each, `n` in all at most.
        seed: Names the draw of problems and samples; equal seeds compare two policies on equal problems.
        batch_size: How many completions are sampled at once.
        processes: Each samples its share of them.
        rollout_fn: What samples: `roll_out`, or `partial(force, at=..., text=...)`.

    Returns:
        Both accuracies, both mean scores if the task gives scores, and the completions themselves.
    """
    problems = recipe.task.problems("held_out", n, seed=f"evaluate/{seed}", distinct=True)
    check_context(policy, vocabulary, recipe, problems)
    answers = []
    for temperature, draws in ((1.0, min(DRAWS, n // len(problems))), (0.0, 1)):
        width = max(1, batch_size // draws)
        batches = [
            (processes if len(problems) - i >= processes.count else ALONE).roll_out(
                partial(rollout_fn, policy, vocabulary, recipe=recipe, temperature=temperature),
                problems[i : i + width],
                group_size=draws,
                seed=f"evaluate/{seed}/{i}",
            )
            for i in range(0, len(problems), width)
        ]
        answers.append(join(batches))
    by_problem = [rollout.correct.view(len(problems), -1) for rollout in answers]  # [P, K]
    sampled, greedy = map(Accuracy.of, by_problem)
    scores = None
    if recipe.task.score_range is not None:
        drawn, best = map(_mean_score, by_problem)
        scores = drawn, best
    return Evaluation(sampled, greedy, answers[0], answers[1], scores)


def _mean_score(scores: Tensor) -> MeanScore:
    means = scores.mean(1)  # [P]
    return MeanScore(means.mean().item(), means.std().item() if len(means) > 1 else 0.0, len(means))
