"""Evaluation on held-out problems, with sampled and greedy completions and an interval around each share."""

import math
from dataclasses import dataclass

from transformers import PreTrainedModel

from rlhf_minimal.models import TokenizerVocabulary, Vocabulary
from rlhf_minimal.training.groups import Rollout, join
from rlhf_minimal.training.metrics import wilson
from rlhf_minimal.training.processes import ALONE, Processes
from rlhf_minimal.training.recipe import Recipe
from rlhf_minimal.training.rollout import roll_out

HELD_OUT = 1000  # problems of an evaluation: a share's 95 % interval is then at most 6 points wide


@dataclass(frozen=True)
class Accuracy:
    """A share of right completions, with its 95 % interval (Wilson).

    Example:
        >>> print(Accuracy(90, 100))
        90.0% [82.6%, 94.5%]
    """

    right: int
    n: int

    @property
    def share(self) -> float:
        """Right completions per problem."""
        return self.right / self.n

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval."""
        return wilson(self.right, self.n)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.share:.1%} [{low:.1%}, {high:.1%}]"

    def as_json(self) -> dict[str, float]:
        """Share, counts and interval as plain values."""
        low, high = self.interval
        return {"share": self.share, "right": self.right, "n": self.n, "low": low, "high": high}


@dataclass(frozen=True)
class MeanScore:
    """The mean score of completions, with its 95 % interval (normal).

    Example:
        >>> print(MeanScore(8.25, 1.0, 1000))
        8.25 [8.19, 8.31]
    """

    mean: float
    std: float
    n: int

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval."""
        half = 1.96 * self.std / math.sqrt(self.n)
        return self.mean - half, self.mean + half

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.mean:.2f} [{low:.2f}, {high:.2f}]"

    def as_json(self) -> dict[str, float]:
        """Mean, spread, count and interval as plain values."""
        low, high = self.interval
        return {"mean": self.mean, "std": self.std, "n": self.n, "low": low, "high": high}


@dataclass(frozen=True)
class Evaluation:
    """One completion sampled at temperature 1 and one greedy completion for each of `n` held-out problems.

    Attributes:
        sampled: Share of the sampled completions that are right.
        greedy: Share of the greedy ones.
        samples: The sampled completions.
        greedy_samples: The greedy ones.
        scores: Mean scores of sampled and greedy completions, if the task gives scores instead of right or wrong.
    """

    sampled: Accuracy
    greedy: Accuracy
    samples: Rollout
    greedy_samples: Rollout
    scores: tuple[MeanScore, MeanScore] | None = None

    @property
    def in_words(self) -> tuple[str, str]:
        """Sampled and greedy: mean scores if the task gives scores, else shares; with intervals."""
        sampled, greedy = self.scores or (self.sampled, self.greedy)
        return str(sampled), str(greedy)

    def as_json(self) -> dict[str, dict[str, float]]:
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
) -> Evaluation:
    """Accuracy or mean score on held-out problems, by the task's own verifier, whatever reward was trained for.

    Args:
        policy: The model.
        vocabulary: Its vocabulary.
        recipe: Its task and budget are used.
        n: Number of problems.
        seed: Names the draw of problems and samples; equal seeds compare two policies on equal problems.
        batch_size: How many problems are sampled at once.
        processes: Each samples its share of them.

    Returns:
        Both accuracies, both mean scores if the task gives scores, and the completions themselves.
    """
    problems = recipe.task.problems("held_out", n, seed=f"evaluate/{seed}")
    answers = []
    for temperature in (1.0, 0.0):
        batches = [
            roll_out(
                policy,
                vocabulary,
                problems[i : i + batch_size],
                recipe,
                temperature=temperature,
                seed=f"evaluate/{seed}/{i}",
                processes=processes if n - i >= processes.count else ALONE,
            )
            for i in range(0, n, batch_size)
        ]
        answers.append(join(batches))
    sampled, greedy = (Accuracy(int((rollout.correct == 1).sum()), n) for rollout in answers)
    scores = None
    if recipe.task.score_range is not None:
        drawn, best = (_mean_score(rollout) for rollout in answers)
        scores = drawn, best
    return Evaluation(sampled, greedy, answers[0], answers[1], scores)


def _mean_score(rollout: Rollout) -> MeanScore:
    n = len(rollout.correct)
    return MeanScore(rollout.correct.mean().item(), rollout.correct.std().item() if n > 1 else 0.0, n)
