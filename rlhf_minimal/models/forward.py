"""The forward over prompt and completion, with gradient: in one piece, or the prompt once for its whole group.

Policy and critic are read at the same places: the prompt's last token and all completion tokens but the last, where
the T completion tokens are predicted (`functional.logprobs.completion_logits` holds that shift).

`policy_logits` and its neighbours read every row from its first token to its last, without a cache: what tests trust.
`read_prompts` and `continue_prompts` say the same in two calls. G completions of a prompt of S tokens then cost
S + G T tokens in place of G (S + T), in the backward too, and may be read a few rows at a time.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import Cache, DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer

from rlhf_minimal.functional.logprobs import completion_logits
from rlhf_minimal.models.heads import Critic


def positions(attention_mask: Tensor) -> Tensor:
    """Position of every token, counted from the first real one: left padding does not move a prompt.

    Args:
        attention_mask: [B, L], 1 for real tokens, 0 for padding.

    Returns:
        [B, L] integers; padding gets 0, which is never attended to.

    Example:
        >>> positions(torch.tensor([[0, 0, 1, 1, 1]])).tolist()
        [[0, 0, 0, 1, 2]]
    """
    return (attention_mask.long().cumsum(-1) - 1).clamp(min=0)


def policy_logits(
    model: PreTrainedModel,
    prompts: Int[Tensor, "B S"],
    prompt_mask: Int[Tensor, "B S"],
    completions: Int[Tensor, "B T"],
) -> Float[Tensor, "B T V"]:
    """The scores from which each completion token was drawn, or would be drawn.

    Args:
        model: Any causal language model of transformers.
        prompts: [B, S] ids, padded on the left.
        prompt_mask: [B, S], 1 for real prompt tokens.
        completions: [B, T] ids, padded on the right with anything: what follows the end cannot be seen by what
            precedes it.

    Returns:
        [B, T, V] logits; entry t belongs to completion token t.
    """
    ids, attention_mask = _join(prompts, prompt_mask, completions)
    logits = model(
        input_ids=ids,
        attention_mask=attention_mask,
        position_ids=positions(attention_mask),
        use_cache=False,
        logits_to_keep=completions.shape[1] + 1,
    ).logits
    return completion_logits(logits, completions.shape[1])


def policy_hidden(
    model: PreTrainedModel,
    prompts: Int[Tensor, "B S"],
    prompt_mask: Int[Tensor, "B S"],
    completions: Int[Tensor, "B T"],
) -> tuple[Float[Tensor, "B T H"], bool]:
    """The last hidden states behind `policy_logits`, for a head that is applied a few tokens at a time.

    Args and padding as in `policy_logits`.

    Returns:
        [B, T, H], and whether the model's head is such a one (`has_linear_head`).
    """
    ids, attention_mask = _join(prompts, prompt_mask, completions)
    output = model(
        input_ids=ids,
        attention_mask=attention_mask,
        position_ids=positions(attention_mask),
        use_cache=False,
        logits_to_keep=1,
        output_hidden_states=True,
    )
    hidden = output.hidden_states[-1]
    return completion_logits(hidden, completions.shape[1]), has_linear_head(model, output.logits, hidden[:, -1:])


def critic_values(
    critic: Critic,
    prompts: Int[Tensor, "B S"],
    prompt_mask: Int[Tensor, "B S"],
    completions: Int[Tensor, "B T"],
) -> Float[Tensor, "B T"]:
    """The critic's estimate before each completion token is written: entry t has seen tokens 0 to t - 1 only.

    Args and padding as in `policy_logits`.

    Returns:
        [B, T] values, in units of reward.
    """
    ids, attention_mask = _join(prompts, prompt_mask, completions)
    values = critic(ids, attention_mask, positions(attention_mask))  # [B, S + T]
    return completion_logits(values.unsqueeze(-1), completions.shape[1]).squeeze(-1)


def policy_logits_and_values(
    model: PreTrainedModel,
    critic: Critic,
    prompts: Int[Tensor, "B S"],
    prompt_mask: Int[Tensor, "B S"],
    completions: Int[Tensor, "B T"],
) -> tuple[Float[Tensor, "B T V"], Float[Tensor, "B T"]]:
    """`policy_logits` and `critic_values` of a shared trunk, in one pass through it.

    Args:
        model: The policy.
        critic: A critic that shares its body.
        prompts: As in `policy_logits`, like the two that follow.
        prompt_mask: [B, S].
        completions: [B, T].

    Returns:
        [B, T, V] logits and [B, T] values; a gradient of either reaches the one body.

    Raises:
        ValueError: If the critic has a body of its own.
    """
    if not critic.shared:
        raise ValueError("this critic has a body of its own: read it with critic_values")
    ids, attention_mask = _join(prompts, prompt_mask, completions)
    T = completions.shape[1]
    output = model(
        input_ids=ids,
        attention_mask=attention_mask,
        position_ids=positions(attention_mask),
        use_cache=False,
        logits_to_keep=T + 1,
        output_hidden_states=True,
    )
    values = critic.values(output.hidden_states[-1])  # [B, S + T]; the last entry has been through the last norm
    return completion_logits(output.logits, T), completion_logits(values.unsqueeze(-1), T).squeeze(-1)


@dataclass(frozen=True)
class Prefix:
    """Prompts that a model has read: what a completion needs in order to go on from there.

    Attributes:
        mask: [P, S] 1 for real prompt tokens, S the longest prompt.
        cache: Keys and values, one after the other for each layer, each [P, heads, S, size].
        logits: [P, 1, V] that predict the first completion token; None for a body without a vocabulary head.
        hidden: [P, 1, H] last hidden state of the prompt's last token; None unless it was asked for.
    """

    mask: Int[Tensor, "P S"]
    cache: tuple[Tensor, ...]
    logits: Float[Tensor, "P 1 V"] | None
    hidden: Float[Tensor, "P 1 H"] | None


def read_prompts(
    model: nn.Module, prompts: Int[Tensor, "P S"], prompt_mask: Int[Tensor, "P S"], *, hidden: bool = False
) -> Prefix | None:
    """Every prompt once, whatever number of completions will go on from it.

    Chapter: making-it-fast.

    Args:
        model: A causal language model of transformers, or its body (`model.base_model`, `critic.body`).
        prompts: [P, S] ids, padded on the left.
        prompt_mask: [P, S], 1 for real prompt tokens.
        hidden: Whether last hidden states are wanted beside logits; a body has them in any case.

    Returns:
        What `continue_prompts` takes; None if the model keeps something else than the keys and values of all tokens
        (a sliding window, a recurrent state, nothing while activations are checkpointed): read whole rows then.

    Example:
        >>> from rlhf_minimal.models import tiny_llama
        >>> model = tiny_llama(13)
        >>> prompts, completions = torch.tensor([[1, 2, 3]]), torch.tensor([[4, 5], [6, 7]])
        >>> prefix = read_prompts(model, prompts, torch.ones_like(prompts))
        >>> logits, _ = continue_prompts(model, prefix, torch.tensor([0, 0]), completions)
        >>> twice = prompts.expand(2, 3)
        >>> torch.allclose(logits, policy_logits(model, twice, torch.ones_like(twice), completions), atol=1e-5)
        True
    """
    S = int(prompt_mask.sum(-1).max())
    prompts, prompt_mask = prompts[:, -S:], prompt_mask[:, -S:]
    last, cache = _forward(model, prompts, prompt_mask.long(), positions(prompt_mask), None, 1, hidden)
    layers = getattr(cache, "layers", [])
    if not layers or any(type(layer) is not DynamicLayer for layer in layers):
        return None
    return Prefix(prompt_mask, tuple(x for layer in layers for x in (layer.keys, layer.values)), **last)


def continue_prompts(
    model: nn.Module, prefix: Prefix, rows: Int[Tensor, " b"], completions: Int[Tensor, "b T"], *, logits: bool = True
) -> tuple[Float[Tensor, "b T V"] | None, Float[Tensor, "b T H"] | None]:
    """`policy_logits` of completions whose prompts were read before.

    Chapter: making-it-fast.

    Args:
        model: The one that read the prompts.
        prefix: From `read_prompts`.
        rows: [b] which prompt each completion belongs to.
        completions: [b, T] ids, padded on the right.
        logits: False leaves the vocabulary head to whoever takes the hidden states (`chunked_logprobs`).

    Returns:
        [b, T, V] logits (None from a body, or if not wanted) and [b, T, H] hidden states (None if the prefix kept
        none). Entry t belongs to completion token t.
    """
    found = {
        "logits": prefix.logits.index_select(0, rows) if logits and prefix.logits is not None else None,
        "hidden": prefix.hidden.index_select(0, rows) if prefix.hidden is not None else None,
    }
    if completions.shape[1] > 1:  # nobody asks what follows the last token
        pairs = zip(prefix.cache[::2], prefix.cache[1::2], strict=True)
        cache = DynamicCache([(_rows_of(key, rows), _rows_of(value, rows)) for key, value in pairs])
        ids = completions[:, :-1]
        attention_mask = torch.cat([prefix.mask[rows].long(), torch.ones_like(ids)], dim=1)
        where = positions(attention_mask)[:, prefix.mask.shape[1] :]
        keep = ids.shape[1] if logits else 1
        further, _ = _forward(model, ids, attention_mask, where, cache, keep, found["hidden"] is not None)
        found = {
            name: None if first is None else torch.cat([first, further[name]], dim=1) for name, first in found.items()
        }
    return found["logits"], found["hidden"]


def has_linear_head(model: PreTrainedModel, logits: Float[Tensor, "b n V"], hidden: Float[Tensor, "b n H"]) -> bool:
    """Whether a model's logits are its output matrix times its last hidden state and nothing more.

    Some models scale or squash what comes out of the matrix, and `functional.logprobs.chunked_logprobs` knows nothing
    of that.

    Args:
        model: The model.
        logits: [b, n, V] of some tokens.
        hidden: [b, n, H] last hidden states of the same tokens.
    """
    head = model.get_output_embeddings()
    if not isinstance(head, nn.Linear):
        return False
    with torch.no_grad():
        return torch.allclose(head(hidden), logits, rtol=1e-3, atol=1e-3)


def _rows_of(x: Tensor, rows: Tensor) -> Tensor:
    """`x[rows]`, with a backward that adds whole rows up.

    That of `x[rows]` adds one number at a time, and so does that of `index_select` where the gradient is a slice of
    something wider, as the cache hands it back, which keeps prompt and completion in one piece.
    """
    found = x.index_select(0, rows)
    if found.requires_grad:
        found.register_hook(lambda slope: slope.contiguous())
    return found


def _forward(
    model: nn.Module,
    ids: Tensor,
    attention_mask: Tensor,
    where: Tensor,
    cache: Cache | None,
    keep: int,
    hidden: bool,
) -> tuple[dict[str, Any], Cache | None]:
    """Logits of the last `keep` tokens and hidden states (of the last token, or all where a cache went before)."""
    options: dict[str, Any] = {"past_key_values": cache, "use_cache": True}
    is_body = getattr(model, "get_output_embeddings", lambda: None)() is None
    if not is_body:
        options |= {"logits_to_keep": keep, "output_hidden_states": hidden}
    output = model(input_ids=ids, attention_mask=attention_mask, position_ids=where, **options)
    states = output.last_hidden_state if is_body else output.hidden_states[-1] if hidden else None
    if states is not None and cache is None:
        states = states[:, -1:]
    return {"logits": None if is_body else output.logits, "hidden": states}, output.past_key_values


def _join(prompts: Tensor, prompt_mask: Tensor, completions: Tensor) -> tuple[Tensor, Tensor]:
    ids = torch.cat([prompts, completions], dim=1)  # [B, S + T]
    return ids, torch.cat([prompt_mask.long(), torch.ones_like(completions)], dim=1)
