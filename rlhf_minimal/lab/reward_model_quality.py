"""How good a reward model is and can be, on pairs it was not trained on: accuracy, its bounds, calibration.

In our tasks the true preference is known, so three numbers can be computed that elsewhere can only be estimated: how
often the best possible model agrees with the labels (`bayes_accuracy`), how often this model does on average over the
labels' noise (`expected_accuracy`), and whether its confidence matches its accuracy (`calibration`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from rlhf_minimal.fit import pair_scores
from rlhf_minimal.models import RewardModel
from rlhf_minimal.pairs import logistic_loss
from rlhf_minimal.tasks import PairRow


def bayes_accuracy(gold_differences: Float[Tensor, " N"]) -> float:
    """How often the best possible model agrees with Bradley-Terry labels: the mean of sigmoid(abs(gold difference)).

    No model can do better, because the label itself is drawn with that probability.

    Example:
        >>> round(bayes_accuracy(torch.tensor([0.0, 2.0, -2.0])), 3)
        0.754
    """
    return gold_differences.double().abs().sigmoid().mean().item()


def expected_accuracy(differences: Float[Tensor, " N"], gold_differences: Float[Tensor, " N"]) -> float:
    """How often a model agrees with the labels on average over their noise, computed exactly, not sampled.

    Args:
        differences: [N] the model's score of one completion minus that of the other; 0 counts one half.
        gold_differences: [N] the gold scores' difference, likewise.

    Example:
        >>> gold = torch.tensor([2.0, -2.0, 1.0])
        >>> expected_accuracy(3 * gold, gold) == bayes_accuracy(gold)
        True
    """
    signed = differences.double().sign() * gold_differences.double()
    return signed.sigmoid().mean().item()  # a tie has sign 0, and sigmoid(0) is one half


@dataclass(frozen=True)
class Calibration:
    """The confidence of a reward model, compared with how often it is right.

    Attributes:
        table: One entry for each bin of confidence: its edges, mean confidence, share of pairs ranked right, pairs.
        error: Expected calibration error: mean over pairs of abs(share right - mean confidence) of their bin.
        spread: Standard deviation of that over bootstrap samples of the pairs.
        floor: The mean error of a perfectly calibrated model with these confidences. It is not 0, since a
            bin's share is counted from finitely many pairs.
    """

    table: list[dict[str, Any]]
    error: float
    spread: float
    floor: float

    def __str__(self) -> str:
        return f"{self.error:.3f} +- {self.spread:.3f} (a perfectly calibrated model: {self.floor:.3f})"


def calibration(
    differences: Float[Tensor, " N"], *, bins: int = 10, resamples: int = 500, seed: int = 0
) -> Calibration:
    """Whether a reward model is right as often as its scores claim.

    Its confidence in a pair is sigmoid(abs(difference)), between one half and one; it is right if it prefers the
    chosen completion. Confidence is cut into equal bins (Guo et al., arXiv 1706.04599, equation 3).

    Args:
        differences: [N] score of the chosen completion minus that of the rejected one; unnormalised, since scaling
            scores changes what they claim.
        bins: Number of bins between one half and one.
        resamples: Number of bootstrap samples, and of simulated outcomes for the floor.
        seed: Seed of both.

    Raises:
        ValueError: If there is no pair or a difference is not finite.
    """
    if len(differences) == 0 or not differences.isfinite().all():
        raise ValueError("calibration needs at least one pair, and finite scores; got none, or NaN")
    differences = differences.double().cpu()
    confidence = differences.abs().sigmoid()  # [N]
    right = (differences > 0).double() + 0.5 * (differences == 0)  # [N]
    place = ((confidence - 0.5) * 2 * bins).long().clamp(max=bins - 1)  # [N]

    def error(confidence: Tensor, right: Tensor, place: Tensor) -> float:
        gaps = torch.zeros(bins, dtype=torch.float64).index_add_(0, place, right - confidence)
        return (gaps.abs().sum() / len(right)).item()

    table: list[dict[str, Any]] = []
    for b in place.unique().tolist():
        mine = place == b
        edges = 0.5 + b / (2 * bins), 0.5 + (b + 1) / (2 * bins)
        table.append({"from": edges[0], "to": edges[1], "confidence": confidence[mine].mean().item()})
        table[-1] |= {"right": right[mine].mean().item(), "pairs": int(mine.sum())}
    generator = torch.Generator().manual_seed(seed)
    drawn, fair = [], []
    for _ in range(resamples):
        rows = torch.randint(len(right), (len(right),), generator=generator)
        drawn.append(error(confidence[rows], right[rows], place[rows]))
        coins = torch.rand(len(right), generator=generator, dtype=torch.float64) < confidence
        fair.append(error(confidence, coins.double(), place))
    spread = torch.tensor(drawn).std().item()
    return Calibration(table, error(confidence, right, place), spread, sum(fair) / len(fair))


@dataclass(frozen=True)
class RewardModelQuality:
    """A reward model on held-out pairs.

    Attributes:
        pairs: How many.
        accuracy: Share of pairs in which the chosen completion has the higher score.
        loss: Bradley-Terry loss, in nats per pair.
        calibration: How its confidence compares with its accuracy.
        expected_accuracy: Accuracy averaged over the labels' noise; None without gold scores, like the next two.
        bayes: The accuracy of the best possible model.
        gold_correlation: Correlation of score and gold score over the completions; also None where all are equal.
    """

    pairs: int
    accuracy: float
    loss: float
    calibration: Calibration
    expected_accuracy: float | None = None
    bayes: float | None = None
    gold_correlation: float | None = None

    def __str__(self) -> str:
        lines = [f"{self.pairs} pairs held out: accuracy {self.accuracy:.3f}, loss {self.loss:.3f}"]
        if self.bayes is not None:
            lines.append(
                f"averaged over the labels' noise: accuracy {self.expected_accuracy:.4f}, and the best possible model "
                f"has {self.bayes:.4f}"
            )
        if self.gold_correlation is not None:
            lines.append(f"correlation with the gold score: {self.gold_correlation:.3f}")
        lines += [f"calibration error: {self.calibration}", "  confidence    right   pairs"]
        lines += [f"  {b['confidence']:10.3f} {b['right']:8.3f} {b['pairs']:7d}" for b in self.calibration.table]
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {**vars(self), "calibration": vars(self.calibration)}


@torch.no_grad()
def evaluate_reward_model(reward_model: RewardModel, rows: Sequence[PairRow]) -> RewardModelQuality:
    """How good a reward model is on pairs it was not trained on.

    Args:
        reward_model: The model; normalisation does not matter, raw scores are read.
        rows: Held-out pairs; what needs gold scores is computed if every row has them.
    """
    parts = [pair_scores(reward_model, rows[i : i + 500]) for i in range(0, len(rows), 500)]
    chosen, rejected = (torch.cat(scores).cpu() for scores in zip(*parts, strict=True))
    differences = chosen - rejected
    with_gold: dict[str, float] = {}
    gold = [(r.score_chosen, r.score_rejected) for r in rows]
    if all(one is not None and other is not None for one, other in gold):
        gold_chosen, gold_rejected = torch.tensor(gold, dtype=torch.float64).unbind(-1)
        apart = gold_chosen - gold_rejected
        both = torch.stack([torch.cat([chosen, rejected]).double(), torch.cat([gold_chosen, gold_rejected])])
        with_gold = {"expected_accuracy": expected_accuracy(differences, apart), "bayes": bayes_accuracy(apart)}
        correlation = torch.corrcoef(both)[0, 1].item()
        if math.isfinite(correlation):
            with_gold["gold_correlation"] = correlation
    return RewardModelQuality(
        len(rows),
        ((differences > 0).double() + 0.5 * (differences == 0)).mean().item(),
        logistic_loss(differences).mean().item(),
        calibration(differences),
        **with_gold,
    )
