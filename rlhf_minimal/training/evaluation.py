"""How good is a policy? Held-out problems, both ways of answering, and an interval around each share."""

from dataclasses import dataclass

from transformers import PreTrainedModel

from rlhf_minimal.models import TokenizerVocabulary, Vocabulary
from rlhf_minimal.training.config import Recipe
from rlhf_minimal.training.metrics import wilson
from rlhf_minimal.training.rollout import Rollout, join, roll_out


@dataclass(frozen=True)
class Accuracy:
    """A share of right answers, with its 95 % interval (Wilson).

    Example:
        >>> print(Accuracy(90, 100))
        90.0% [82.6%, 94.5%]
    """

    right: int
    n: int

    @property
    def share(self) -> float:
        """Right answers per problem."""
        return self.right / self.n

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval."""
        return wilson(self.right, self.n)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.share:.1%} [{low:.1%}, {high:.1%}]"


@dataclass(frozen=True)
class Evaluation:
    """One answer drawn at temperature 1 and one greedy answer to each of `n` held-out problems."""

    sampled: Accuracy
    greedy: Accuracy
    samples: Rollout
    greedy_samples: Rollout

    def as_json(self) -> dict[str, dict[str, float]]:
        """The two shares, with their counts and intervals."""
        return {
            name: {
                "share": share.share,
                "right": share.right,
                "n": share.n,
                "low": share.interval[0],
                "high": share.interval[1],
            }
            for name, share in (("sampled", self.sampled), ("greedy", self.greedy))
        }


def evaluate(
    policy: PreTrainedModel,
    vocabulary: Vocabulary | TokenizerVocabulary,
    recipe: Recipe,
    *,
    n: int = 1000,
    seed: str = "0",
    batch_size: int = 1000,
) -> Evaluation:
    """Accuracy on held-out problems, by the task's own verifier whatever the reward was.

    Args:
        policy: The model.
        vocabulary: Its vocabulary.
        recipe: Its task and budget are used.
        n: Number of problems; with 1000 the interval is at most 6 points wide.
        seed: Names the draw of problems and samples; equal seeds compare two policies on equal problems.
        batch_size: Problems written at once.

    Returns:
        Both accuracies, and the answers themselves.
    """
    problems = recipe.task.problems("held_out", n, seed=f"evaluate/{seed}")
    found = []
    for temperature in (1.0, 0.0):
        parts = [
            roll_out(
                policy,
                vocabulary,
                problems[i : i + batch_size],
                recipe,
                temperature=temperature,
                seed=f"evaluate/{seed}/{i}",
            )
            for i in range(0, n, batch_size)
        ]
        found.append(join(parts))
    sampled, greedy = (Accuracy(int((part.correct == 1).sum()), n) for part in found)
    return Evaluation(sampled, greedy, *found)
