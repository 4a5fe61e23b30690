"""How many completions a weighted batch is worth."""

import torch
from torch import Generator, Tensor

from ..draws import any_batch, books_batch
from ..exercise import Case, Exercise, Mistake
from ..mistakes import swapped


def my_effective_share(logp: Tensor, sampler_logp: Tensor, mask: Tensor) -> Tensor:
    """[B, T] -> scalar between 1/B and 1: the share of the batch that still counts."""
    W = torch.exp(((logp - sampler_logp) * mask).sum(-1))  # [B]
    return W.sum() ** 2 / (len(W) * (W**2).sum())


def _share(W: Tensor) -> Tensor:
    return W.sum() ** 2 / (W.numel() * (W**2).sum())


def _geometric(logp: Tensor, sampler_logp: Tensor, mask: Tensor) -> Tensor:
    return _share(
        torch.exp(((logp - sampler_logp) * mask).sum(-1) / mask.sum(-1)),
    )


def _padding(logp: Tensor, sampler_logp: Tensor, mask: Tensor) -> Tensor:
    return _share(torch.exp((logp - sampler_logp).sum(-1)))


def _tokens(logp: Tensor, sampler_logp: Tensor, mask: Tensor) -> Tensor:
    return _share(torch.exp(logp - sampler_logp)[mask != 0])


def _number(logp: Tensor, sampler_logp: Tensor, mask: Tensor) -> Tensor:
    return len(mask) * my_effective_share(logp, sampler_logp, mask)


def _largest(logp: Tensor, sampler_logp: Tensor, mask: Tensor) -> Tensor:
    W = torch.exp(((logp - sampler_logp) * mask).sum(-1))
    return W.mean() / W.max()


def _root(logp: Tensor, sampler_logp: Tensor, mask: Tensor) -> Tensor:
    return my_effective_share(logp, sampler_logp, mask) ** 0.5


def _draw(generator: Generator) -> Case:
    drawn = any_batch(generator)
    return Case(
        {
            "logp": drawn["logp"],
            "sampler_logp": drawn["old_logp"],
            "mask": drawn["mask"],
        }
    )


_BOOK = books_batch()
_TWO = torch.tensor([[0.2, 0.5], [0.4, 0.5]], dtype=torch.float64).log()
_OLD = torch.tensor([[0.4, 0.25], [0.1, 0.5]], dtype=torch.float64).log()

SAMPLE_SIZE = Exercise(
    id="off-sample-size",
    title="what is a batch still worth?",
    concept="off-policy-bias-noise",
    minutes=10,
    difficulty="warm-up",
    statement=r"""
    A mean over completions with weights $W_i$ is as noisy as a plain mean over fewer of them. For rewards that do not
    depend on the weights their number is about $(\sum_i W_i)^2 / \sum_i W_i^2$, the *effective sample size*. It is a
    good number to monitor. Write `my_effective_share(logp, sampler_logp, mask)`: the effective sample size of whole
    completions as a share of the batch. Log-probs and mask are `[B, T]`; under a 0 of the mask stands some finite
    number without meaning. The result is one number between $1/B$ and 1.
    """,
    solution=my_effective_share,
    cases=(
        Case(
            {
                "logp": _BOOK["logp"],
                "sampler_logp": _BOOK["old_logp"],
                "mask": _BOOK["mask"],
            }
        ),
        Case(
            {
                "logp": _TWO,
                "sampler_logp": _OLD,
                "mask": torch.ones(2, 2, dtype=torch.float64),
            }
        ),
        Case(
            {
                "logp": _TWO,
                "sampler_logp": _OLD,
                "mask": torch.tensor([[1.0, 0.0], [1.0, 1.0]], dtype=torch.float64),
            }
        ),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _geometric,
            "You take the mean of a completion's log-ratios. The weight of a completion is a product.",
        ),
        Mistake(_padding, "What stands under a 0 of the mask is in your sum."),
        Mistake(
            _tokens,
            "That is the effective number of tokens, each with its own weight. Asked is that of completions.",
        ),
        Mistake(_number, "That is the size itself. Asked is its share of the batch."),
        Mistake(
            swapped(my_effective_share, "logp", "sampler_logp"),
            "The ratio is turned over: samples of the sampler are to stand for the policy.",
        ),
        Mistake(
            _largest,
            "Mean over largest weight is a rougher measure. Use the squares of the weights.",
        ),
        Mistake(_root, "You have taken a root; the share is linear in the batch size."),
    ),
    where="One weight per completion first: the exponential of a masked sum. Then two sums over the batch.",
    idea="""
    A weight for a whole completion is the product of its tokens' ratios: a masked sum in logarithms, then one
    exponential. The effective number is (sum of weights)² over the sum of squares; as a share it is divided by $B$.
    """,
    outline="""
    ```python
    W = ...  # [B]
    return ... / (len(W) * ...)
    ```
    """,
    right="Right. Compute it on batches of 8 and of 512 with equal mismatch: why is the share larger in the small one?",
)
