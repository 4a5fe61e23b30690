"""What a batch of old completions says about the new policy's reward."""

import torch
from torch import Generator, Tensor

from ..draws import any_batch, batch, books_batch
from ..exercise import Case, Exercise, Mistake
from ..mistakes import swapped


def my_reweighted_reward(
    logp: Tensor, old_logp: Tensor, mask: Tensor, rewards: Tensor
) -> Tensor:
    """[B, T], rewards [B] -> scalar: unbiased for the new policy's mean reward."""
    log_ratio = (logp - old_logp) * mask  # [B, T]
    weight = torch.exp(
        log_ratio.sum(1)
    )  # [B], the product of the ratios of a completion's tokens
    return (weight * rewards).mean()


def _log_ratio(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask > 0, logp - old_logp, 0.0)


def _geometric(logp: Tensor, old_logp: Tensor, mask: Tensor, rewards: Tensor) -> Tensor:
    return (
        torch.exp(_log_ratio(logp, old_logp, mask).sum(1) / mask.sum(1)) * rewards
    ).mean()


def _token_mean(
    logp: Tensor, old_logp: Tensor, mask: Tensor, rewards: Tensor
) -> Tensor:
    ratio = torch.exp(_log_ratio(logp, old_logp, mask)) * mask
    return (ratio.sum(1) / mask.sum(1) * rewards).mean()


def _token_sum(logp: Tensor, old_logp: Tensor, mask: Tensor, rewards: Tensor) -> Tensor:
    return (
        (torch.exp(_log_ratio(logp, old_logp, mask)) * mask).sum(1) * rewards
    ).mean()


def _expanded(logp: Tensor, old_logp: Tensor, mask: Tensor, rewards: Tensor) -> Tensor:
    return (
        (1 + (torch.exp(_log_ratio(logp, old_logp, mask)) - 1).sum(1)) * rewards
    ).mean()


def _no_mask(logp: Tensor, old_logp: Tensor, mask: Tensor, rewards: Tensor) -> Tensor:
    return (torch.exp((logp - old_logp).sum(1)) * rewards).mean()


def _normalised(
    logp: Tensor, old_logp: Tensor, mask: Tensor, rewards: Tensor
) -> Tensor:
    weight = torch.exp(_log_ratio(logp, old_logp, mask).sum(1))
    return (weight * rewards).sum() / weight.sum()


def _no_weight(logp: Tensor, old_logp: Tensor, mask: Tensor, rewards: Tensor) -> Tensor:
    return rewards.mean()


def _last_token(
    logp: Tensor, old_logp: Tensor, mask: Tensor, rewards: Tensor
) -> Tensor:
    last = mask.sum(1).long() - 1
    return (
        torch.exp((logp - old_logp)[torch.arange(len(logp)), last]) * rewards
    ).mean()


def _case(drawn: dict[str, Tensor]) -> Case:
    rewards = drawn.get("rewards", drawn["advantages"])
    return Case(
        {
            "logp": drawn["logp"],
            "old_logp": drawn["old_logp"],
            "mask": drawn["mask"],
            "rewards": rewards,
        }
    )


def _draw(generator: Generator) -> Case:
    return _case(any_batch(generator))


REWEIGHT = Exercise(
    id="gspo-reweight",
    title="the new policy's reward, from old completions",
    concept="misapplied-is",
    minutes=10,
    difficulty="warm-up",
    statement=r"""
    The completions of a batch were sampled from an old policy. Write `my_reweighted_reward(logp, old_logp, mask,
    rewards)`: an estimate of $\mathbb E_{y \sim \pi}[R(y)]$, the mean reward of the *new* policy, whose expectation
    over old samples is exactly that. Log-probs and mask are `[B, T]`, and under a 0 of the mask stands some
    finite number without meaning. `rewards` is `[B]`, one number per completion. The result is one number, an average
    over completions that is divided by $B$ and by nothing else.
    """,
    solution=my_reweighted_reward,
    cases=(
        _case(books_batch()),
        _case(batch([2], Generator().manual_seed(5))),
        _case(batch([4, 1, 3, 2], Generator().manual_seed(6))),
        _case(batch([1, 1, 1], Generator().manual_seed(7), width=3)),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _no_mask,
            "The mask is not used: the padding's numbers enter the weight of a completion.",
        ),
        Mistake(
            _geometric,
            "This is GSPO's ratio, a geometric mean. It is no importance weight: try a completion of two tokens, each "
            "twice as probable as before. How much more probable is the completion?",
        ),
        Mistake(
            _token_mean,
            "You average the token ratios. A completion of two tokens, each twice as probable as before, is not twice as "
            "probable as before.",
        ),
        Mistake(
            _token_sum,
            "You add the token ratios up. Try a policy that has not moved: what weight should a completion have then?",
        ),
        Mistake(
            _expanded,
            "This is the first-order expansion of the right weight. It is near while the policies are; the exercise "
            "asks for the weight itself.",
        ),
        Mistake(
            swapped(my_reweighted_reward, "logp", "old_logp"),
            "Upside down: a completion that the new policy likes better should count more, not less.",
        ),
        Mistake(
            _normalised,
            "You divide by the sum of the weights. That tames the variance and costs exactness: the quotient of two "
            "averages is not unbiased.",
        ),
        Mistake(
            _no_weight,
            "This is the old policy's mean reward. Nothing here has looked at the new policy.",
        ),
        Mistake(
            _last_token,
            "Only the last token is corrected. The tokens before it came from the old policy as well.",
        ),
    ),
    where="How likely is a whole completion under each of the two policies? Start from one completion of two tokens.",
    idea=r"""
    The unbiased weight of a completion is $\pi(y)/\pi_{\text{old}}(y)$: the *product* of its tokens' ratios, with
    no root. In logarithms that is a sum over the trained tokens.
    """,
    outline="""
    ```python
    log_ratio = ...  # [B, T], 0 where nothing was trained
    weight = torch.exp(...)  # [B], one for each completion
    return ...
    ```
    """,
    right="Right. Print the largest weight of a batch of long completions: that is the price.",
)
