"""Exercises with another convention than the book's, drawn from a course's seed.

The book's solutions are public. A variant asks for the same idea with one convention changed, so that the published
code is a wrong answer, and the checker says so. It keeps the exercise's cases and draws: they are inputs, and the
reference of the variant says what is right for them.

It is no secret: whoever reads this file finds the references. It stops copying, not reading.
"""

import math
import random
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from ..exercises import EXERCISES, Exercise
from ..exercises.exercise import Case, Mistake


@dataclass(frozen=True)
class Choice:
    """One convention of an exercise: what is asked, and the function that does it."""

    name: str
    asks: str  # Markdown: what to do otherwise than the statement says
    answer: Callable[..., Any]


@dataclass(frozen=True)
class Drawn(Exercise):
    """An exercise whose hidden batches are not those that everybody can draw at home."""

    draws: int = 20240205
    count: int = 1000

    def hidden(self) -> Iterator[Case]:
        """The drawn batches, from a seed of the grader's own."""
        generator = torch.Generator().manual_seed(self.draws)
        return (self.draw(generator) for _ in range(self.count))


def choice(exercise: str, seed: int) -> Choice | None:
    """The convention that a course's seed draws; None where an exercise has only the book's.

    Example:
        >>> choice("grpo-advantage", 7) == choice("grpo-advantage", 7)
        True
        >>> choice("scale-verifier", 7) is None
        True
    """
    known = VARIANTS.get(exercise)
    # A text as a seed gives the same number in every version of Python.
    return random.Random(f"{exercise} {seed}").choice(known) if known else None


def exercise_for(
    exercise: str, seed: int, *, draws: int = 20240205, count: int = 1000
) -> Drawn:
    """The exercise as the course with this seed sets it.

    Args:
        exercise: an id.
        seed: the course's.
        draws: the seed of the hidden batches; a grader takes one that nobody knows.
        count: how many batches are drawn.

    Raises:
        ValueError: an id that does not exist.
    """
    if exercise not in EXERCISES:
        raise ValueError(f"there is no exercise {exercise!r}")
    return apply(EXERCISES[exercise], choice(exercise, seed), draws=draws, count=count)


def apply(
    book: Exercise,
    picked: Choice | None,
    *,
    draws: int = 20240205,
    count: int = 1000,
) -> Drawn:
    """An exercise with one convention changed; with None as the book has it."""
    values = {field.name: getattr(book, field.name) for field in fields(Exercise)}
    if picked is not None:
        others = [other for other in VARIANTS[book.id] if other is not picked]
        values |= {
            "statement": f"{textwrap.dedent(book.statement).strip()}\n\n"
            f"**In this course, unlike in the book:** {picked.asks}",
            "solution": picked.answer,
            "right": "Right, with this course's convention.",
            "mistakes": (
                Mistake(
                    book.solution,
                    "This is the book's version. Your course asks for another: read "
                    "the last paragraph of the statement again.",
                ),
                *(
                    Mistake(
                        other.answer,
                        "This is another course's version: read the last paragraph "
                        "of the statement again.",
                    )
                    for other in others
                ),
                *(m for m in book.mistakes if not _agrees(book, m, picked)),
            ),
        }
    return Drawn(**values, draws=draws, count=count)


def _agrees(book: Exercise, mistake: Mistake, picked: Choice) -> bool:
    """Whether what is a mistake in the book is right with this convention, on the printed batch."""
    case = book.cases[0]
    wrong, right = book._run(mistake.wrong, case), book._run(picked.answer, case)
    if wrong.value is None or right.value is None:
        return False
    return wrong.value.shape == right.value.shape and torch.allclose(
        wrong.value, right.value, equal_nan=True
    )


# ── the conventions ──────────────────────────────────────────────────────────────────


def _advantage(spread: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    def my_group_advantage(
        rewards: Tensor, group_size: int, eps: float = 1e-4
    ) -> Tensor:
        groups = rewards.view(-1, group_size)
        centred = groups - groups.mean(-1, keepdim=True)
        scores = centred / (spread(groups) + eps)
        constant = groups.amax(-1, keepdim=True) == groups.amin(-1, keepdim=True)
        return scores.masked_fill(constant, 0.0).flatten()

    return my_group_advantage


def _population(groups: Tensor) -> Tensor:
    return groups.std(-1, keepdim=True, correction=0)


def _deviation(groups: Tensor) -> Tensor:
    return (groups - groups.mean(-1, keepdim=True)).abs().mean(-1, keepdim=True)


def _range(groups: Tensor) -> Tensor:
    return groups.amax(-1, keepdim=True) - groups.amin(-1, keepdim=True)


def _over_tokens(x: Tensor, mask: Tensor) -> Tensor:
    return (x * mask).sum() / mask.sum()


def _sums(x: Tensor, mask: Tensor) -> Tensor:
    return (x * mask).sum(1).mean()


def _root_lengths(x: Tensor, mask: Tensor) -> Tensor:
    return ((x * mask).sum(1) / mask.sum(1).sqrt()).mean()


_TOKENS = (
    "the mean is one mean over all trained tokens of the batch, not a mean of the "
    "completions' means."
)
_SUMMED = (
    "a completion counts with the *sum* over its trained tokens, not their mean; then "
    "the mean over completions."
)
_ROOTS = (
    "the sum over a completion's trained tokens is divided by the *square root* of "
    "their number; then the mean over completions."
)


def _clipped(aggregate: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    def my_clipped_loss(
        logp: Tensor,
        old_logp: Tensor,
        advantages: Tensor,
        mask: Tensor,
        low: float = 0.2,
        high: float = 0.2,
    ) -> Tensor:
        ratio, A = torch.exp(logp - old_logp), advantages[:, None]
        kept = torch.minimum(ratio * A, ratio.clamp(1 - low, 1 + high) * A)
        return -aggregate(kept, mask)

    return my_clipped_loss


def _penalty(
    estimate: Callable[[Tensor], Tensor], aggregate: Callable[[Tensor, Tensor], Tensor]
) -> Callable[..., Tensor]:
    def my_k3_penalty(logp: Tensor, ref_logp: Tensor, mask: Tensor) -> Tensor:
        return aggregate(estimate(ref_logp - logp), mask)

    return my_k3_penalty


def _k3(log_ratio: Tensor) -> Tensor:
    return torch.exp(log_ratio) - 1 - log_ratio


def _k2(log_ratio: Tensor) -> Tensor:
    return log_ratio**2 / 2


def _mean_of_means(x: Tensor, mask: Tensor) -> Tensor:
    return ((x * mask).sum(1) / mask.sum(1)).mean()


def _against(
    rival: Callable[[Tensor], Tensor],
) -> Callable[..., Tensor]:
    def my_leave_one_out(rewards: Tensor, group_size: int) -> Tensor:
        groups = rewards.view(-1, group_size)
        others = [
            rival(torch.cat([groups[:, :i], groups[:, i + 1 :]], 1))
            for i in range(group_size)
        ]
        return (groups - torch.stack(others, 1)).flatten()

    return my_leave_one_out


def _largest(others: Tensor) -> Tensor:
    return others.amax(1)


def _smallest(others: Tensor) -> Tensor:
    return others.amin(1)


def _live_share(p: Tensor, group_size: int) -> Tensor:
    return (1 - p**group_size - (1 - p) ** group_size).mean()


def _at_most_one(p: Tensor, group_size: int) -> Tensor:
    one = group_size * p * (1 - p) ** (group_size - 1)
    return (p**group_size + (1 - p) ** group_size + one).mean()


def _gae(*, last: bool, returns: bool) -> Callable[..., Tensor]:
    def my_gae(
        rewards: Tensor, values: Tensor, mask: Tensor, gamma: float, lam: float
    ) -> Tensor:
        answer = torch.zeros_like(rewards)
        for i in range(len(rewards)):
            kept = [t for t in range(rewards.shape[1]) if mask[i, t] != 0]
            after = values[i, kept[-1]] if last and kept else torch.zeros(())
            advantage: Tensor = torch.zeros(())
            for t in reversed(kept):
                delta = rewards[i, t] + gamma * after - values[i, t]
                advantage = delta + gamma * lam * advantage
                after = values[i, t]
                answer[i, t] = advantage + values[i, t] if returns else advantage
        return answer

    return my_gae


def _smaller_error(
    values: Tensor, old_values: Tensor, returns: Tensor, mask: Tensor, clip: float
) -> Tensor:
    near = old_values + (values - old_values).clamp(-clip, clip)
    error = torch.minimum((values - returns) ** 2, (near - returns) ** 2)
    return 0.5 * (error * mask).sum() / mask.sum()


def _absolute_error(
    values: Tensor, old_values: Tensor, returns: Tensor, mask: Tensor, clip: float
) -> Tensor:
    near = old_values + (values - old_values).clamp(-clip, clip)
    error = torch.maximum((values - returns).abs(), (near - returns).abs())
    return (error * mask).sum() / mask.sum()


def _n_step(gamma: float) -> Choice:
    def my_n_step(rewards: Tensor, values: Tensor, n: int) -> Tensor:
        T = len(rewards)
        answer = []
        for t in range(T):
            end = min(t + n, T)
            came = sum(gamma ** (s - t) * rewards[s] for s in range(t, end))
            promised = gamma**n * values[t + n] if t + n < T else 0.0
            answer.append(came + promised - values[t])
        return torch.stack(answer)

    return Choice(
        f"gamma {gamma:g}",
        f"rewards and values are discounted, with $\\gamma = {gamma:g}$ a token.",
        my_n_step,
    )


def _ratio(exponent: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    def my_sequence_ratio(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
        return (((logp - old_logp) * mask).sum(1) * exponent(mask.sum(1))).exp()

    return my_sequence_ratio


def _root(lengths: Tensor) -> Tensor:
    return lengths**-0.5


def _eighth(lengths: Tensor) -> Tensor:
    return torch.full_like(lengths, 1 / 8)


def _sequence_loss(exponent: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    def my_gspo_loss(
        logp: Tensor,
        old_logp: Tensor,
        advantages: Tensor,
        mask: Tensor,
        low: float = 3e-4,
        high: float = 4e-4,
    ) -> Tensor:
        s = _ratio(exponent)(logp, old_logp, mask)
        clipped = s.clamp(1 - low, 1 + high)
        return -torch.minimum(s * advantages, clipped * advantages).mean()

    return my_gspo_loss


_ROOT = (
    "the exponent is $1/\\sqrt{|y_i|}$ in the place of $1/|y_i|$: the log-ratio of a "
    "completion is divided by the square root of its length."
)
_EIGHTH = (
    "the exponent is $1/8$ for every completion, whatever its length: the generation "
    "budget of this course."
)


def _margin(margin: float) -> Choice:
    def my_reward_loss(chosen: Tensor, rejected: Tensor) -> Tensor:
        return -logsigmoid(chosen - rejected - margin).mean()

    return Choice(
        f"margin {margin:g}",
        f"the chosen one wins with probability $\\sigma(r_c - r_r - {margin:g})$: it "
        f"has to lead by a margin of {margin:g}.",
        my_reward_loss,
    )


def _smoothed(flip: float) -> Choice:
    def my_dpo_loss(
        chosen: Tensor,
        rejected: Tensor,
        ref_chosen: Tensor,
        ref_rejected: Tensor,
        beta: float,
    ) -> Tensor:
        margin = beta * ((chosen - ref_chosen) - (rejected - ref_rejected))
        right, wrong = logsigmoid(margin), logsigmoid(-margin)
        return -((1 - flip) * right + flip * wrong).mean()

    return Choice(
        f"smoothing {flip:g}",
        f"a share of {flip:g} of the labels is taken to be flipped. The loss of a pair "
        f"is {1 - flip:g} times the loss of the pair as it is labelled, plus {flip:g} "
        "times the loss of the pair with the two completions exchanged.",
        my_dpo_loss,
    )


def _mixture(share: float) -> Choice:
    def my_logprobs(logits: Tensor, ids: Tensor, temperature: float) -> Tensor:
        logp = (logits[:, :-1] / temperature).log_softmax(-1)
        logp = logp.gather(-1, ids[:, 1:, None]).squeeze(-1)
        any_token = torch.full_like(logp, math.log(share / logits.shape[-1]))
        return torch.logaddexp(logp + math.log1p(-share), any_token)

    return Choice(
        f"mixture {share:g}",
        f"what was sampled is a mixture: with probability {share:g} a token is drawn "
        "uniformly from the $V$ tokens, otherwise from that softmax. Return log-probs "
        "under the mixture.",
        my_logprobs,
    )


def _mean_square(x: Tensor, mask: Tensor) -> Tensor:
    kept = x.where(mask != 0, torch.zeros_like(x))
    return (kept**2).sum() / mask.sum()


def _row_sums(x: Tensor, mask: Tensor) -> Tensor:
    return x.where(mask != 0, torch.zeros_like(x)).sum() / len(x)


def _dr_grpo(low: float, high: float) -> Choice:
    def my_dr_grpo_loss(
        logp: Tensor,
        old_logp: Tensor,
        rewards: Tensor,
        mask: Tensor,
        group_size: int,
        budget: int,
    ) -> Tensor:
        groups = rewards.view(-1, group_size)
        A = (groups - groups.mean(1, keepdim=True)).view(-1, 1)
        ratio = torch.exp(logp - old_logp)
        kept = torch.minimum(ratio * A, ratio.clamp(1 - low, 1 + high) * A)
        return -(kept * mask).sum() / (len(rewards) * budget)

    return Choice(
        f"clip {low:g}/{high:g}",
        f"the clip range is {low:g} below and {high:g} above: ratios are held between "
        f"{1 - low:g} and {1 + high:g}.",
        my_dr_grpo_loss,
    )


def _corrected(weight: Callable[[Tensor, float], Tensor]) -> Callable[..., Tensor]:
    def my_corrected_loss(
        logp: Tensor, sampler_logp: Tensor, advantages: Tensor, mask: Tensor, cap: float
    ) -> Tensor:
        trained = mask != 0
        gap = torch.where(trained, logp.detach() - sampler_logp, 0.0)
        kept = torch.where(trained, logp, 0.0)
        objective = weight(gap.exp(), cap) * advantages[:, None] * kept
        return -objective.sum() / trained.sum()

    return my_corrected_loss


def _dropped(ratio: Tensor, cap: float) -> Tensor:
    return ratio * (ratio <= cap)


def _floored(ratio: Tensor, cap: float) -> Tensor:
    return ratio.clamp(1 / cap, cap)


def _lora(scale: Callable[[float, int], float]) -> Callable[..., Tensor]:
    def my_lora(
        x: Tensor, weight: Tensor, down: Tensor, up: Tensor, alpha: float
    ) -> Tensor:
        return x @ weight.T + scale(alpha, len(down)) * (x @ down.T @ up.T)

    return my_lora


def _root_rank(alpha: float, rank: int) -> float:
    return alpha / math.sqrt(rank)


def _plain_alpha(alpha: float, rank: int) -> float:
    return alpha


VARIANTS: dict[str, tuple[Choice, ...]] = {
    "grpo-advantage": (
        Choice(
            "population",
            "the standard deviation is the population's: divide by $G$.",
            _advantage(_population),
        ),
        Choice(
            "absolute deviation",
            "in the place of the standard deviation stands the mean absolute "
            "deviation, $\\frac1G \\sum_j |R_j - \\mathrm{mean}(R)|$.",
            _advantage(_deviation),
        ),
        Choice(
            "range",
            "in the place of the standard deviation stands the range, the group's "
            "largest reward minus its smallest.",
            _advantage(_range),
        ),
    ),
    "grpo-clipped-loss": (
        Choice("tokens", _TOKENS, _clipped(_over_tokens)),
        Choice("sums", _SUMMED, _clipped(_sums)),
        Choice("root lengths", _ROOTS, _clipped(_root_lengths)),
    ),
    "grpo-k3": (
        Choice("tokens", _TOKENS, _penalty(_k3, _over_tokens)),
        Choice("sums", _SUMMED, _penalty(_k3, _sums)),
        Choice(
            "k2",
            "the estimator is $k_2 = \\frac12 (\\log r)^2$; the means stay as they are.",
            _penalty(_k2, _mean_of_means),
        ),
    ),
    "grpo-leave-one-out": (
        Choice(
            "largest",
            "subtract the *largest* of the other rewards, not their mean.",
            _against(_largest),
        ),
        Choice(
            "smallest",
            "subtract the *smallest* of the other rewards, not their mean.",
            _against(_smallest),
        ),
    ),
    "grpo-dead-groups": (
        Choice(
            "live",
            "return the share of groups that are *not* dead.",
            _live_share,
        ),
        Choice(
            "at most one",
            "a group with exactly one right completion is counted among the dead, "
            "too. Every group has at least two completions.",
            _at_most_one,
        ),
    ),
    "gae-recursion": (
        Choice(
            "cut off",
            "every completion was cut off at its budget. The value of the state after "
            "the last token with mask 1 is not 0: take the value of that last token's "
            "own state for it.",
            _gae(last=True, returns=False),
        ),
        Choice(
            "returns",
            "return the critic's targets, advantage plus value, and 0 where the mask "
            "is 0.",
            _gae(last=False, returns=True),
        ),
    ),
    "gae-value-loss": (
        Choice(
            "smaller",
            "the *smaller* of the two squared errors counts.",
            _smaller_error,
        ),
        Choice(
            "absolute",
            "absolute errors stand in the place of squared ones, and the loss is their "
            "mean, without the factor of one half.",
            _absolute_error,
        ),
    ),
    "gae-n-step": tuple(map(_n_step, (0.8, 0.9, 0.95))),
    "board-gspo-ratio": (
        Choice("root", _ROOT, _ratio(_root)),
        Choice("eighth", _EIGHTH, _ratio(_eighth)),
    ),
    "gspo-loss": (
        Choice("root", _ROOT, _sequence_loss(_root)),
        Choice("eighth", _EIGHTH, _sequence_loss(_eighth)),
    ),
    "board-reward-loss": tuple(map(_margin, (0.5, 1.0, 2.0))),
    "board-dpo": tuple(map(_smoothed, (0.05, 0.1, 0.2))),
    "board-logprobs": tuple(map(_mixture, (0.05, 0.1, 0.25))),
    "board-masked-mean": (
        Choice(
            "squares",
            "the mean is that of the *squares* of the numbers.",
            _mean_square,
        ),
        Choice(
            "row sums",
            "add up the trained numbers and divide by the number of rows, $B$, in the "
            "place of the number of tokens.",
            _row_sums,
        ),
    ),
    "dr-grpo-loss": tuple(_dr_grpo(*bounds) for bounds in ((0.1, 0.1), (0.2, 0.4))),
    "scale-truncated": (
        Choice(
            "dropped",
            "a token whose weight would be above `cap` gets weight 0. It is still "
            "counted in the mean.",
            _corrected(_dropped),
        ),
        Choice(
            "floored",
            "the weight is also at least `1 / cap`.",
            _corrected(_floored),
        ),
    ),
    "scale-lora": (
        Choice(
            "root rank",
            "the correction is scaled by $\\alpha / \\sqrt r$.",
            _lora(_root_rank),
        ),
        Choice(
            "alpha",
            "the correction is scaled by $\\alpha$ alone.",
            _lora(_plain_alpha),
        ),
    ),
}


def seed_of(text: str) -> int:
    """A seed for a generator of torch, from any text."""
    return random.Random(text).getrandbits(62)
