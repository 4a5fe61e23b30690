"""Log-probs of a large vocabulary, without all of its logits in memory at once: a part of the fast path."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear

from rlhf_minimal.functional.checks import check_count, check_floating, check_integers, check_temperature
from rlhf_minimal.functional.logprobs import _check_ids, _entropy, _log_softmax


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
