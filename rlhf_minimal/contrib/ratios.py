r"""More cells of the ratio column: the weight of a whole sequence, without a root."""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from ..functional.masked import sequence_sum
from ..functional.ratios import _log_ratio, on_policy


def sequence_product(
    logp: Float[Tensor, "B T"], old_logp: Float[Tensor, "B T"], mask: Shaped[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    r"""The exact importance weight of a whole sequence (:eq:`eq-ratio-product`).

    .. math:: W_i = \prod_t w_{i,t} = \exp\Big(\sum_t \log w_{i,t}\Big)

    Unbiased; if every token adds noise, its variance grows exponentially with the length.

    Chapter: gspo. Source: RLOO's ratio in TRL 1.16; importance sampling, e.g. Precup et al. 2000.

    Returns:
        [B, T], the same number on every token of a row. With ``aggregation.sequence_mean`` it counts once a row.

    Example:
        >>> sequence_product(torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.25, 0.25]]).log(), torch.ones(1, 2))
        tensor([[4., 4.]])
    """
    total = sequence_sum(_log_ratio(logp, old_logp, mask), mask)  # [B]
    return torch.exp(total)[:, None].expand_as(logp)


def product_token(
    logp: Float[Tensor, "B T"], old_logp: Float[Tensor, "B T"], mask: Shaped[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    r"""The whole sequence's weight with each token's own gradient (:eq:`eq-ratio-product-token`).

    .. math:: W_{i,t} = \mathrm{sg}[W_i] \cdot \pi_t / \mathrm{sg}[\pi_t]

    What a loss needs that weighs a completion by its importance weight and averages over tokens. `sequence_product` has
    the same value, and on every token the gradient of all tokens.

    Chapter: soft-gates. Source: VESPO, arXiv 2602.10693; TOPR, arXiv 2503.14286.

    Returns:
        [B, T], the same number on every token of a row, each with its own gradient.

    Example:
        >>> product_token(torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.25, 0.25]]).log(), torch.ones(1, 2))
        tensor([[4., 4.]])
    """
    return sequence_product(logp, old_logp, mask).detach() * on_policy(logp, old_logp, mask)
