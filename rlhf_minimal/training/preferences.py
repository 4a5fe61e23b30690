"""From samples to a reward model: pairs with noisy labels, a loss, and how good the model can be.

The true preference is known here, so that what usually can only be guessed is computed: how often the best possible
judge agrees with the labels (`bayes_accuracy`), how often this model does, free of the labels' noise
(`expected_accuracy`), and whether it is as sure as it should be (`calibration`).
"""

import math
import random
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel

from rlhf_minimal.functional.pairwise import bradley_terry, logistic_loss
from rlhf_minimal.models import RewardModel, TokenizerVocabulary, Vocabulary
from rlhf_minimal.pairwise import Pairs, PairwiseAlgorithm, pairwise_loss
from rlhf_minimal.tasks import PairRow, Task, verify_all
from rlhf_minimal.tasks.base import Split
from rlhf_minimal.training.sampler import pad_left, sample


def preference_loss(
    algorithm: PairwiseAlgorithm, reward_model: RewardModel, rows: Sequence[PairRow]
) -> Float[Tensor, ""]:
    """What a row of the second table says of a reward model's scores, all 2 B answers in one forward.

    Args:
        algorithm: `PAIRWISE["bradley_terry"]` or a variant of it.
        reward_model: Its raw scores are read, with gradient; normalisation does not matter.
        rows: A batch of pairs.

    Returns:
        A scalar to minimise, in nats per pair.
    """
    chosen, rejected = pair_scores(reward_model, rows)
    return pairwise_loss(algorithm, Pairs(chosen_scores=chosen, rejected_scores=rejected))


def sample_pairs(
    policy: PreTrainedModel,
    vocabulary: Vocabulary | TokenizerVocabulary,
    task: Task,
    n: int,
    *,
    split: Split = "train",
    seed: int = 0,
    batch_size: int = 500,
) -> list[PairRow]:
    """Pairs of a policy's own samples, labelled by the task's verifier with Bradley-Terry noise.

    Two answers to one prompt, drawn at temperature 1; the first is chosen with probability
    sigmoid(gold of the first - gold of the second). Equal answers and empty ones are drawn again, and those that the
    verifier fails on, too. The gold scores stay
    with the row, for measuring; the reward model never sees them.

    Args:
        policy: Whose samples are compared.
        vocabulary: Its vocabulary.
        task: Its `verify` is the gold score.
        n: How many pairs.
        split: Which problems to ask, `"train"` or `"held_out"`.
        seed: Decides problems, samples and labels.
        batch_size: Problems asked at once.

    Raises:
        ValueError: If the policy's answers are nearly all equal or empty, so that no pairs can be made.
    """
    pairs: list[PairRow] = []
    for attempt in range(10 + 10 * n // batch_size):
        name = f"pairs/{split}/{seed}/{attempt}"
        problems = task.problems(split, batch_size, seed=name)
        prompts, budget = [problem.prompt for problem in problems], task.max_new_tokens
        texts = write_answers(policy, vocabulary, prompts, group_size=2, max_new_tokens=budget, seed=name)
        rng = random.Random(name)
        scored = verify_all(task, [problem for problem in problems for _ in range(2)], texts)
        for i, (prompt, one, other) in enumerate(zip(prompts, texts[::2], texts[1::2], strict=True)):
            if one != other and one.strip() and other.strip() and not scored.faults.keys() & {2 * i, 2 * i + 1}:
                pairs.append(label_pair(prompt, (one, other), (scored.values[2 * i], scored.values[2 * i + 1]), rng))
        if len(pairs) >= n:
            return pairs[:n]
    raise ValueError(
        f"{attempt + 1} rounds of {batch_size} prompts gave only {len(pairs)} pairs of two different answers: the "
        "policy answers nearly always the same; take an earlier checkpoint"
    )


def label_pair(prompt: str, answers: tuple[str, str], gold: tuple[float, float], rng: random.Random) -> PairRow:
    """One comparison: the first answer wins with probability sigmoid(its gold score - the other's)."""
    chance = bradley_terry(*torch.tensor(gold, dtype=torch.float64).unbind()).item()
    if rng.random() < chance:
        return PairRow(prompt, *answers, *gold)
    return PairRow(prompt, *answers[::-1], *gold[::-1])


def bayes_accuracy(gold_differences: Float[Tensor, " N"]) -> float:
    """How often the best possible judge agrees with Bradley-Terry labels: the mean of sigmoid(abs(gold difference)).

    Nobody can do better, since the label itself is a coin with that bias.

    Example:
        >>> round(bayes_accuracy(torch.tensor([0.0, 2.0, -2.0])), 3)
        0.754
    """
    return gold_differences.double().abs().sigmoid().mean().item()


def expected_accuracy(differences: Float[Tensor, " N"], gold_differences: Float[Tensor, " N"]) -> float:
    """How often a judge agrees with the labels on average over their noise: no coin is thrown for it.

    Args:
        differences: [N] the judge's score of one answer minus that of the other; 0 counts one half.
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
    """How sure a reward model is, against how often it is right.

    Attributes:
        table: One line a bin of confidence: its edges, mean confidence, share of right calls, pairs.
        error: Expected calibration error: mean over pairs of abs(share right - mean confidence) of their bin.
        spread: Standard deviation of that over bootstrap samples of the pairs.
        floor: What a perfectly calibrated judge with these confidences would get on average. It is not 0, since a
            bin's share is counted from finitely many pairs.
    """

    table: list[dict[str, Any]]
    error: float
    spread: float
    floor: float

    def __str__(self) -> str:
        return f"{self.error:.3f} +- {self.spread:.3f} (a perfectly calibrated judge: {self.floor:.3f})"


def calibration(
    differences: Float[Tensor, " N"], *, bins: int = 10, resamples: int = 500, seed: int = 0
) -> Calibration:
    """Is a reward model right as often as it says?

    Its confidence in a pair is sigmoid(abs(difference)), between one half and one; it is right if it prefers the
    chosen answer. Confidence is cut into equal bins (Guo et al., arXiv 1706.04599, equation 3).

    Args:
        differences: [N] score of the chosen answer minus that of the rejected one; unnormalised, since scaling
            scores changes what they claim.
        bins: Between one half and one.
        resamples: Of the bootstrap, and of the floor's coins.
        seed: Decides both.

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
class Judgement:
    """A reward model on held-out pairs.

    Attributes:
        pairs: How many.
        accuracy: Share of pairs in which the chosen answer has the higher score.
        loss: Bradley-Terry loss, in nats per pair.
        calibration: Is it as sure as it should be?
        expected_accuracy: Accuracy averaged over the labels' noise; None without gold scores, like the next two.
        bayes: What the best possible judge gets.
        gold_correlation: Correlation of score and gold score over the answers; None, too, where all are equal.
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
                f"averaged over the labels' noise: accuracy {self.expected_accuracy:.4f}, and the best possible judge "
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
def judge_reward_model(reward_model: RewardModel, rows: Sequence[PairRow]) -> Judgement:
    """How good a reward model is on pairs it was not trained on.

    Args:
        reward_model: The model; normalisation does not matter, raw scores are read.
        rows: Held-out pairs; what needs gold scores is computed if every row has them.
    """
    parts = [pair_scores(reward_model, rows[i : i + 500]) for i in range(0, len(rows), 500)]
    chosen, rejected = (torch.cat(scores).cpu() for scores in zip(*parts, strict=True))
    differences = chosen - rejected
    known: dict[str, float] = {}
    gold = [(r.score_chosen, r.score_rejected) for r in rows]
    if all(one is not None and other is not None for one, other in gold):
        gold_chosen, gold_rejected = torch.tensor(gold, dtype=torch.float64).unbind(-1)
        apart = gold_chosen - gold_rejected
        both = torch.stack([torch.cat([chosen, rejected]).double(), torch.cat([gold_chosen, gold_rejected])])
        known = {"expected_accuracy": expected_accuracy(differences, apart), "bayes": bayes_accuracy(apart)}
        correlation = torch.corrcoef(both)[0, 1].item()
        if math.isfinite(correlation):
            known["gold_correlation"] = correlation
    return Judgement(
        len(rows),
        ((differences > 0).double() + 0.5 * (differences == 0)).mean().item(),
        logistic_loss(differences).mean().item(),
        calibration(differences),
        **known,
    )


def pair_scores(reward_model: RewardModel, rows: Sequence[PairRow]) -> tuple[Float[Tensor, " B"], Float[Tensor, " B"]]:
    """[B] raw scores of the chosen and of the rejected answers, with gradient: all 2 B in one forward."""
    answers = [row.chosen for row in rows] + [row.rejected for row in rows]
    chosen, rejected = reward_model.raw_scores([row.prompt for row in rows] * 2, answers).chunk(2)
    return chosen, rejected


def write_answers(
    policy: PreTrainedModel,
    vocabulary: Vocabulary | TokenizerVocabulary,
    prompts: list[str],
    *,
    group_size: int,
    max_new_tokens: int,
    seed: str,
) -> list[str]:
    """Samples at temperature 1 as text, the answers to one prompt next to each other; equal seeds give equal ones."""
    ids, mask = pad_left([vocabulary.encode(prompt) for prompt in prompts], vocabulary.pad_id)
    samples = sample(
        policy,
        ids.to(policy.device),
        mask.to(policy.device),
        max_new_tokens=max_new_tokens,
        eos_id=vocabulary.eos_id,
        pad_id=vocabulary.pad_id,
        group_size=group_size,
        generator=torch.Generator(policy.device).manual_seed(zlib.crc32(f"answers/{seed}".encode())),
    )
    return [vocabulary.decode(row) for row in samples.completions.tolist()]
