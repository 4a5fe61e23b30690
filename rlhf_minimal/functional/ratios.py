r"""The ratio column: how far has the policy moved since it sampled, and at which level is that measured?

Every ratio is [B, T], and the gradient enters the loss only through it. Under a zero mask it is finite and the loss
leaves it out: 1 where each token has a ratio of its own, and the row's number where that is the whole row's.
Arguments and errors are those of `contracts.RatioCell`.
"""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from .checks import check
from .masked import sequence_mean, zero_outside


def on_policy(
    logp: Float[Tensor, "B T"], old_logp: Float[Tensor, "B T"], mask: Shaped[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    r"""No ratio, written as one (:eq:`eq-ratio-on-policy`): value 1, gradient of log pi.

    .. math:: w_t = \pi_t / \mathrm{sg}[\pi_t]

    So REINFORCE and PPO are the same code. The value of the loss is the surrogate's, -mean(A), and not -A log pi; the
    gradients are equal.

    Chapter: policy-gradients. Source: Williams 1992; the magic-box form of Foerster et al., arXiv 1802.05098.

    Args:
        old_logp: [B, T], checked but not used.

    Returns:
        [B, T], 1 everywhere.

    Example:
        >>> on_policy(torch.tensor([[-2.0]]), torch.tensor([[-9.0]]), torch.ones(1, 1))
        tensor([[1.]])
    """
    check(mask, logp=logp, old_logp=old_logp)
    logp = zero_outside(logp, mask)
    return torch.exp(logp - logp.detach())


def token(
    logp: Float[Tensor, "B T"], old_logp: Float[Tensor, "B T"], mask: Shaped[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    r"""Each token's own ratio (:eq:`eq-ratio-token`), as in PPO and GRPO.

    .. math:: w_t = \pi(o_t \mid s_t) / \pi_{old}(o_t \mid s_t)

    Above 1 the token has become likelier. Exact importance weight for one action in one state; over a sequence the
    prefixes are old too, so it is a first-order surrogate.

    Chapter: ppo-clip. Source: arXiv 1707.06347, section 3.

    Returns:
        [B, T], positive.

    Example:
        >>> token(torch.tensor([[0.5]]).log(), torch.tensor([[0.25]]).log(), torch.ones(1, 1))
        tensor([[2.]])
    """
    return torch.exp(_log_ratio(logp, old_logp, mask))


def sequence(
    logp: Float[Tensor, "B T"], old_logp: Float[Tensor, "B T"], mask: Shaped[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    r"""One ratio a sequence, the geometric mean of its tokens' (:eq:`eq-ratio-sequence`), as in GSPO.

    .. math:: s_i = \Big(\prod_t w_{i,t}\Big)^{1/|o_i|} = \exp\Big(\frac1{|o_i|}\sum_t \log w_{i,t}\Big)

    A reward for the whole completion gets one weight for the whole completion. It is not the importance
    weight (that is `sequence_product`): the root gives up exactness, and keeps ratios of all lengths on one scale.

    Chapter: gspo. Source: arXiv 2507.18071, eq. 7.

    Returns:
        [B, T], the same number on every token of a row.

    Example:
        >>> sequence(torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.25, 0.5]]).log(), torch.ones(1, 2))
        tensor([[1.4142, 1.4142]])
    """
    mean = sequence_mean(_log_ratio(logp, old_logp, mask), mask)  # [B]
    return torch.exp(mean)[:, None].expand_as(logp)


def sequence_token(
    logp: Float[Tensor, "B T"], old_logp: Float[Tensor, "B T"], mask: Shaped[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    r"""The sequence ratio's value with each token's own gradient (:eq:`eq-ratio-sequence-token`): GSPO-token.

    .. math:: s_{i,t} = \mathrm{sg}[s_i] \cdot \pi_t / \mathrm{sg}[\pi_t]

    Equal to `sequence` when all tokens of a completion share one advantage, and still right when they do not.

    Chapter: gspo. Source: arXiv 2507.18071, eq. 14.

    Returns:
        [B, T], the same number on every token of a row, each with its own gradient.

    Example:
        >>> sequence_token(torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.25, 0.5]]).log(), torch.ones(1, 2))
        tensor([[1.4142, 1.4142]])
    """
    return sequence(logp, old_logp, mask).detach() * on_policy(logp, old_logp, mask)


def _log_ratio(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    check(mask, logp=logp, old_logp=old_logp)
    # The old log-prob is detached: if it carried a graph, its gradient would cancel that of logp.
    return zero_outside(logp, mask) - zero_outside(old_logp.detach(), mask)
