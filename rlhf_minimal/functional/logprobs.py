r"""From logits to the log-probabilities of the tokens that were sampled.

The temperature belongs here: if tokens were sampled from softmax(logits / temperature), then only
these log-probs have a score with mean zero under the sampler, and only then does a baseline add no bias.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear

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


def chunked_logprobs(
    hidden: Float[Tensor, "B T H"],
    weight: Float[Tensor, "V H"],
    ids: Int[Tensor, "B T"],
    *,
    bias: Float[Tensor, " V"] | None = None,
    temperature: float = 1.0,
    chunk: int = 1024,
) -> tuple[Float[Tensor, "B T"], Float[Tensor, "B T"]]:
    r"""`token_logprobs` and `token_entropy` from the last hidden states, ``chunk`` tokens at a time.

    A vocabulary of 50 000 makes [B, T, V] the largest tensor of a step, several times over: logits, log-softmax and
    the gradient of each. Here only [chunk, V] exists at any time. The backward computes the logits again (one more
    matrix product) and their gradient in closed form:

    .. math::
        \frac{\partial \log \pi(o)}{\partial z_v} = \frac{1[v = o] - \pi(v)}{\tau}, \qquad
        \frac{\partial H}{\partial z_v} = -\frac{\pi(v) \big(\log \pi(v) + H\big)}{\tau}

    Chapter: making-it-fast-in-depth.

    Args:
        hidden: [B, T, H] last hidden states that predict ``ids``.
        weight: [V, H] of the vocabulary head.
        ids: [B, T] sampled tokens.
        bias: [V] of the head, where it has one.
        temperature: temperature of the sampler.
        chunk: tokens whose logits exist at once.

    Returns:
        [B, T] log-probs and [B, T] entropies in nats; both carry the gradient, which cannot be differentiated again.

    Raises:
        ValueError: as `token_logprobs`, or a chunk below 1.

    Example:
        >>> logp, entropy = chunked_logprobs(torch.zeros(1, 1, 2), torch.ones(4, 2), torch.tensor([[2]]))
        >>> logp.exp(), entropy
        (tensor([[0.2500]]), tensor([[1.3863]]))
    """
    check_floating("hidden", hidden)
    check_floating("weight", weight)
    check_integers("ids", ids)
    check_temperature(temperature)
    check_count(chunk=chunk)
    if bias is not None:
        check_floating("bias", bias)
        if weight.dim() != 2 or bias.shape != weight.shape[:1]:
            raise ValueError(
                f"bias {tuple(bias.shape)} and weight {tuple(weight.shape)} do not fit: expected [V] and [V, H]"
            )
    if hidden.dim() != 3 or weight.dim() != 2 or hidden.shape[:2] != ids.shape or hidden.shape[-1] != weight.shape[-1]:
        raise ValueError(
            f"hidden {tuple(hidden.shape)}, weight {tuple(weight.shape)} and ids {tuple(ids.shape)} do not fit: "
            "expected [B, T, H], [V, H] and [B, T]"
        )
    _check_ids(ids, len(weight))
    rows = hidden.flatten(0, 1)
    logp, entropy = _ChunkedHead.apply(rows, weight, bias, ids.flatten(), float(temperature), int(chunk))
    return logp.view(ids.shape), entropy.view(ids.shape)


class _ChunkedHead(torch.autograd.Function):
    """Rows [N, H] and ids [N] to log-probs and entropies [N]."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, ids: Tensor, *options: Any) -> Any:
        temperature, chunk = options
        parts = []
        for rows, picked in zip(hidden.split(chunk), ids.split(chunk), strict=True):
            logp = _log_softmax(linear(rows, weight, bias), temperature)
            parts.append((logp.gather(-1, picked[:, None]).squeeze(-1), _entropy(logp)))
        logp, entropy = (torch.cat(column) for column in zip(*parts, strict=True))
        ctx.save_for_backward(hidden, weight, bias, ids, entropy)
        ctx.options = options
        kind = hidden.device.type  # the backward recomputes the forward's logits exactly
        ctx.autocast = kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind)
        ctx.set_materialize_grads(False)
        return logp, entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_logp: Tensor | None, of_entropy: Tensor | None) -> Any:
        hidden, weight, bias, ids, entropy = ctx.saved_tensors
        temperature, chunk = ctx.options
        in_hidden, in_weight, in_bias = torch.zeros_like(hidden), torch.zeros_like(weight), None
        if bias is not None:
            in_bias = torch.zeros_like(bias)
        for start in range(0, len(ids), chunk):
            part = slice(start, start + chunk)
            rows = hidden[part]
            with torch.autocast(*ctx.autocast):
                logp = _log_softmax(linear(rows, weight, bias), temperature)
            p = logp.exp()
            slope = torch.zeros_like(p)  # [chunk, V] of the loss in the logits over the temperature
            if of_logp is not None:
                slope = torch.addcmul(slope, p, of_logp[part, None], value=-1)
                slope.scatter_add_(-1, ids[part, None], of_logp[part, None])
            if of_entropy is not None:
                slope -= p * (logp.nan_to_num(neginf=0.0) + entropy[part, None]) * of_entropy[part, None]
            slope = (slope / temperature).to(weight.dtype)
            in_hidden[part] = slope @ weight
            in_weight.addmm_(slope.T, rows.to(weight.dtype))
            if in_bias is not None:
                in_bias += slope.sum(0)
        return in_hidden, in_weight, in_bias, None, None, None


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
