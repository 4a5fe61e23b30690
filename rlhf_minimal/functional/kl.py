r"""Estimators of KL(pi || ref) from one sample of pi, per token or per sequence.

With :math:`d = \log\pi - \log\pi_{ref}` on a sample of :math:`\pi`. Mind the direction: k3 uses exp(-d), the ratio
ref/pi. With exp(d) it estimates another divergence (chi-squared minus KL).

What is unbiased as a *value* need not be as a *gradient*. Summed over tokens, or divided by a constant, and
differentiated inside the loss on samples of pi: k1 gives zero in expectation, k2 the gradient of KL(pi || ref), k3 that
of KL(ref || pi). Weighted by the ratio, k1 and k3 give the gradient of KL(pi || ref). If d is summed over a completion,
these are divergences between distributions over completions; token by token, between those over the next token, with
the visited prefixes held fixed.

None of this holds with a divisor that depends on later tokens. Under ``sequence_mean`` the expected gradient of k1 is
that of E[1/len], which changes the length; those of k2 and k3 are no longer the gradients above; and the means of k1
and k3 differ. ``token_mean`` has the same error to a lesser degree.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from .checks import check_fits, check_pair


def k1(logp: Float[Tensor, "*shape"], ref_logp: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    r"""The log-ratio itself (:eq:`eq-k1`): unbiased value, high variance, may be negative.

    .. math:: k_1 = \log\pi - \log\pi_{ref}

    The right choice in the reward. In the loss, summed or divided by a constant, its expected gradient is zero.

    Chapter: kl-divergence. Source: Schulman, "Approximating KL divergence" (2020).

    Args:
        logp: log-probs under the policy that was sampled, any shape.
        ref_logp: log-probs of the same tokens under the reference.

    Returns:
        The same shape, in nats; its mean over samples of pi is KL(pi || ref).

    Raises:
        ValueError: shapes that differ.

    Example:
        >>> k1(torch.tensor([-1.0]), torch.tensor([-3.0]))
        tensor([2.])
    """
    return _difference(logp, ref_logp)


def k2(logp: Float[Tensor, "*shape"], ref_logp: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    r"""Half the squared log-ratio (:eq:`eq-k2`): a biased value with the right gradient on-policy.

    .. math:: k_2 = \tfrac12 (\log\pi - \log\pi_{ref})^2

    Like a spring, it pulls every sampled log-prob back in proportion to how far it has moved.

    Chapter: kl-divergence. Source: Schulman (2020).

    Args:
        logp: log-probs under the policy, any shape.
        ref_logp: log-probs of the same tokens under the reference.

    Returns:
        The same shape, at least 0.

    Raises:
        ValueError: shapes that differ.

    Example:
        >>> k2(torch.tensor([-1.0]), torch.tensor([-3.0]))
        tensor([2.])
    """
    d = _difference(logp, ref_logp)
    square = d**2
    check_fits("k2", square[torch.isfinite(d)])
    return 0.5 * square


def k3(logp: Float[Tensor, "*shape"], ref_logp: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    r"""Control-variate estimator (:eq:`eq-k3`): unbiased value, never negative.

    .. math:: k_3 = \frac{\pi_{ref}}{\pi} - 1 - \log\frac{\pi_{ref}}{\pi}

    The linear term has mean zero and cancels most of k1's noise while the policies are near. Unbiased only where pi
    covers the reference: top-p sampling breaks it. In the loss, summed or divided by a constant, its gradient is that
    of the forward KL(ref || pi).

    Chapter: kl-divergence. Source: Schulman (2020); GRPO: DeepSeekMath, arXiv 2402.03300, eq. 4.

    Args:
        logp: log-probs under the policy, any shape.
        ref_logp: log-probs of the same tokens under the reference.

    Returns:
        The same shape, at least 0; its mean over samples of pi is KL(pi || ref).

    Raises:
        ValueError: shapes that differ.

    Example:
        >>> k3(torch.tensor([-1.0]), torch.tensor([-1.0]))
        tensor([0.])
    """
    d = _difference(logp, ref_logp)
    return torch.expm1(-d) + d  # expm1: exact to the last bit where the policies almost agree


def absolute(logp: Float[Tensor, "*shape"], ref_logp: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    r"""The size of the log-ratio (:eq:`eq-kl-absolute`): no estimate of a KL, a pull of one strength.

    .. math:: k_{abs} = \lvert \log\pi - \log\pi_{ref} \rvert

    In the loss, summed or divided by a constant, its expected gradient on samples of pi is that of
    :math:`\sum_y \lvert \pi(y) - \pi_{ref}(y) \rvert`, which is twice the total variation.

    Chapter: kl-divergence. Source: verl's `abs`.

    Args:
        logp: log-probs under the policy, any shape.
        ref_logp: log-probs of the same tokens under the reference.

    Returns:
        The same shape, at least 0.

    Raises:
        ValueError: shapes that differ.

    Example:
        >>> absolute(torch.tensor([-3.0]), torch.tensor([-1.0]))
        tensor([2.])
    """
    return _difference(logp, ref_logp).abs()


ESTIMATORS = {"k1": k1, "k2": k2, "k3": k3, "absolute": absolute}


def _difference(logp: Tensor, ref_logp: Tensor) -> Tensor:
    check_pair(logp=logp, ref_logp=ref_logp)
    return logp - ref_logp
