r"""From logits to the log-probabilities of the tokens that were sampled.

The temperature belongs here: if tokens were sampled from softmax(logits / temperature), then only
these log-probs have a score with mean zero under the sampler, and only then does a baseline add no bias.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .checks import check_count, check_floating, check_integers, check_temperature


def completion_logits(logits: Float[Tensor, "B L V"], length: int) -> Float[Tensor, "B T V"]:
    """The logits that predict the last ``length`` tokens of each row: the shift by one, in this one place.

    Position t of a causal model predicts token t + 1.

    Args:
        logits: [B, L, V] for prompt and completion together, L = S + T.
        length: T, completion tokens a row (padding on the right included).

    Returns:
        [B, T, V]: row t is the distribution that completion token t was drawn from.

    Raises:
        ValueError: if fewer than ``length`` tokens have a predecessor; logits that are not [B, L, V].

    Example:
        >>> completion_logits(torch.arange(4.0).reshape(1, 4, 1), 2).flatten()
        tensor([1., 2.])
    """
    _check(logits)
    check_count(length=length)
    if not length < logits.shape[1]:
        raise ValueError(
            f"{length} completion tokens asked of {logits.shape[1]} positions: at least one prompt token "
            "must come before the completion"
        )
    return logits[:, -length - 1 : -1]


def token_logprobs(
    logits: Float[Tensor, "B T V"], ids: Int[Tensor, "B T"], *, temperature: float = 1.0
) -> Float[Tensor, "B T"]:
    r"""Log-probability of each token under the distribution it was sampled from (:eq:`eq-token-logprobs`).

    .. math:: \log \pi(o_t) = z_{o_t}/\tau - \log \sum_v \exp(z_v/\tau)

    Chapter: language-models.

    Args:
        logits: [B, T, V] predicting ``ids`` (see `completion_logits`).
        ids: [B, T] sampled tokens.
        temperature: temperature of the sampler, usually 0.6 to 1.

    Returns:
        [B, T] log-probs in nats, at most 0; float32 at least.

    Raises:
        ValueError: shapes that do not match, ids outside the vocabulary, a temperature of 0 or below.

    Example:
        >>> token_logprobs(torch.zeros(1, 1, 4), torch.tensor([[2]])).exp()
        tensor([[0.2500]])
    """
    _check(logits)
    check_temperature(temperature)
    check_integers("ids", ids)
    if logits.shape[:2] != ids.shape:
        raise ValueError(f"logits {tuple(logits.shape)} and ids {tuple(ids.shape)} must agree in [B, T]")
    _check_ids(ids, logits.shape[-1])
    return _log_softmax(logits, temperature).gather(-1, ids.unsqueeze(-1)).squeeze(-1)


def token_entropy(logits: Float[Tensor, "B T V"], *, temperature: float = 1.0) -> Float[Tensor, "B T"]:
    r"""Entropy of the sampling distribution at each position, in nats (:eq:`eq-token-entropy`).

    .. math:: H_t = -\sum_v \pi(v) \log \pi(v)

    Chapter: dapo (where it collapses).

    Args:
        logits: [B, T, V].
        temperature: temperature of the sampler.

    Returns:
        [B, T] between 0 and log V.

    Raises:
        ValueError: logits that are not [B, T, V], a temperature of 0 or below.

    Example:
        >>> token_entropy(torch.zeros(1, 1, 4))
        tensor([[1.3863]])
    """
    _check(logits)
    check_temperature(temperature)
    return _entropy(_log_softmax(logits, temperature))


def _check(logits: Tensor) -> None:
    check_floating("logits", logits)
    if logits.dim() != 3:
        raise ValueError(f"logits have shape {tuple(logits.shape)}, expected [B, T, V], one distribution per position")


def _check_ids(ids: Tensor, vocabulary: int) -> None:
    if not ((ids >= 0) & (ids < vocabulary)).all():
        raise ValueError(
            f"ids go from {ids.min()} to {ids.max()}, but the vocabulary has {vocabulary} tokens: "
            "pad with a token's id, the mask says what is trained"
        )


def _entropy(logp: Tensor) -> Tensor:
    return -(logp.exp() * logp.nan_to_num(neginf=0.0)).sum(-1)


def _log_softmax(logits: Tensor, temperature: float) -> Tensor:
    # bfloat16 keeps 8 bits: rounding would be larger than differences of log-probs.
    logits = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
    return torch.log_softmax(logits / temperature, dim=-1)
