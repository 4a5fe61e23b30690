"""Writing completions: many at once, each prompt read once, every token's log-probability kept.

Three things make this fast, and each is a few lines below: the prompt is read once and its cache shared by the G
completions of its group; a step feeds one token per row; a row that has ended leaves the batch, and its place in the
cache goes to one of the last, so that the others need not move.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad
from transformers import Cache, PreTrainedModel
from transformers.cache_utils import DynamicLayer

from rlhf_minimal.functional.masked import completion_mask
from rlhf_minimal.models.forward import positions


@dataclass(frozen=True)
class Samples:
    """Completions of a batch of prompts; the G completions of one prompt are neighbours.

    Attributes:
        completions: [B, T] token ids, padded on the right; T is the longest completion, at most the budget.
        logp: [B, T] log-probability of each token under the distribution it was drawn from (temperature included);
            0 in the padding.
        mask: [B, T] 1.0 for written tokens, the end-of-answer token included.
        truncated: [B] True where the budget ran out before the end-of-answer token.
    """

    completions: Int[Tensor, "B T"]
    logp: Float[Tensor, "B T"]
    mask: Float[Tensor, "B T"]
    truncated: Bool[Tensor, "B"]


@torch.no_grad()
def sample(
    model: PreTrainedModel,
    prompts: Int[Tensor, "P S"],
    prompt_mask: Int[Tensor, "P S"],
    *,
    max_new_tokens: int,
    eos_id: int,
    pad_id: int,
    group_size: int = 1,
    temperature: float = 1.0,
    generator: torch.Generator | None = None,
) -> Samples:
    """Draws `group_size` completions for every prompt, with a key-value cache.

    No top-k and no top-p: a policy gradient is unbiased only for the distribution that was sampled, and both cut
    pieces out of it that the log-probabilities of training would still contain.

    Args:
        model: Any causal language model of transformers.
        prompts: [P, S] ids, padded on the left.
        prompt_mask: [P, S], 1 for real prompt tokens.
        max_new_tokens: Budget in tokens, the end-of-answer token included.
        eos_id: The token that ends an answer.
        pad_id: What fills the rectangle behind it (may equal `eos_id`).
        group_size: Completions per prompt, G.
        temperature: Logits are divided by it; 1 is the policy itself. 0 is greedy decoding: the most likely token
            is then certain, so its log-probability is 0.
        generator: Source of randomness, on the model's device.

    Returns:
        `Samples` with B = P x G rows, on the model's device.

    Raises:
        ValueError: If the budget or the group size is below 1, the temperature negative, a prompt empty, or the
            policy's logits are not a number.
    """
    check_request(prompt_mask, max_new_tokens, group_size, temperature)

    # Read every prompt once, then let the G completions of a group share what was read.
    output = model(
        input_ids=prompts,
        attention_mask=prompt_mask.long(),
        position_ids=positions(prompt_mask),
        use_cache=True,
        logits_to_keep=1,
    )
    cache = _as_multiplied(output.past_key_values, prompts.device)
    cache.batch_repeat_interleave(group_size)
    logits = output.logits[:, -1].repeat_interleave(group_size, dim=0)  # [B, V]
    batch, S = logits.shape[0], prompts.shape[1]
    attention_mask = pad(prompt_mask.long(), (0, max_new_tokens), value=1)
    attention_mask = attention_mask.repeat_interleave(group_size, dim=0)  # [B, S + budget]
    position_ids = positions(attention_mask)
    completions = torch.full((batch, max_new_tokens), pad_id, device=prompts.device)
    logp = torch.zeros(batch, max_new_tokens, device=prompts.device)
    ended = torch.zeros(batch, dtype=torch.bool, device=prompts.device)
    rows = torch.arange(batch, device=prompts.device)  # which rows are still being written
    places = rows  # where in the cache each of them is kept

    for t in range(max_new_tokens):
        tokens, token_logp = draw(logits, temperature, generator)
        completions[rows, t], logp[rows, t] = tokens, token_logp
        ended[rows] = tokens == eos_id
        writing = (tokens != eos_id).nonzero().squeeze(-1)
        if len(writing) == 0 or t == max_new_tokens - 1:
            break
        if len(writing) < len(rows):
            rows, tokens = rows[writing], tokens[writing]
            places = _close_gaps(cache, places[writing])
        lying = places.argsort()  # the model gets the rows in the cache's order, the generator in their own
        logits = model(
            input_ids=tokens[lying, None],
            attention_mask=attention_mask[rows[lying], : S + t + 1],
            position_ids=position_ids[rows[lying], S + t : S + t + 1],
            past_key_values=cache,
            use_cache=True,
        ).logits[places, -1]

    completions, logp = completions[:, : t + 1], logp[:, : t + 1]  # nobody wrote further than this
    return Samples(completions, logp, completion_mask(completions, eos_id), ~ended)


class InOnePrecision:
    """Keys and values are kept in the precision of the first ones, whatever comes later (mixed into a cache's layer).

    Under autocast a model hands over keys in float32, since they were rotated, and values in bfloat16. Attention
    rounds both before it multiplies them. To keep them rounded changes no product, and halves the cache.
    """

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """What `transformers.cache_utils.CacheLayerMixin.update` does."""
        if self.is_initialized:  # type: ignore[attr-defined]
            key_states, value_states = (x.to(self.dtype) for x in (key_states, value_states))  # type: ignore[attr-defined]
        return super().update(key_states, value_states, *args, **kwargs)  # type: ignore[misc]


class _Growing(InOnePrecision, DynamicLayer):
    pass


SIMPLE = (DynamicLayer, _Growing)  # layers that hold keys and values of all tokens and nothing more


def multiplied_in(x: Tensor) -> torch.dtype:
    """The precision in which matrix products read `x` here: autocast's, or its own."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def _as_multiplied(cache: Cache, device: torch.device) -> Cache:
    """Under autocast the same cache in autocast's precision; a layer of another kind stays as it is."""
    if not torch.is_autocast_enabled(device.type):
        return cache
    for i, layer in enumerate(cache.layers):
        if type(layer) is DynamicLayer and layer.keys is not None and layer.values is not None:
            cache.layers[i] = rounded = _Growing()
            rounded.update(layer.keys.to(multiplied_in(layer.keys)), layer.values.to(multiplied_in(layer.values)))
    return cache


def _close_gaps(cache: Cache, places: Tensor) -> Tensor:
    """Shortens a cache to the n rows that go on: those behind the n-th move to places that became free.

    All others stay where they are. Rows end at almost every step, and to copy the cache each time would cost as much
    as attention does.

    Args:
        cache: Changed in place.
        places: [n] where in it each row that goes on is kept.

    Returns:
        [n] where it is kept from now on: the numbers below n, each once.
    """
    n = len(places)
    behind = places >= n
    free = torch.ones(n, dtype=torch.bool, device=places.device)
    free[places[~behind]] = False
    gaps, movers = free.nonzero().squeeze(-1), places[behind]
    after = places.clone()
    after[behind] = gaps
    simple = [layer for layer in cache.layers if isinstance(layer, DynamicLayer) and type(layer) in SIMPLE]
    if len(simple) < len(cache.layers):  # some layer holds something else than keys and values, or something more
        cache.batch_select_indices(places[after.argsort()])
        return after

    def shortened(x: Tensor | None) -> Tensor | None:
        return None if x is None else x.index_copy_(0, gaps, x.index_select(0, movers))[:n]

    for layer in simple:
        layer.keys, layer.values = shortened(layer.keys), shortened(layer.values)
    return after


def check_request(prompt_mask: Tensor, max_new_tokens: int, group_size: int, temperature: float) -> None:
    """What every way of sampling asks of its arguments.

    Raises:
        ValueError: If one of them is out of its range, or a prompt ends in padding.
    """
    if max_new_tokens < 1 or group_size < 1 or temperature < 0:
        raise ValueError(
            "need max_new_tokens >= 1, group_size >= 1 and temperature >= 0; "
            f"got {max_new_tokens}, {group_size} and {temperature}"
        )
    if prompt_mask.shape[1] == 0 or not bool((prompt_mask[:, -1] == 1).all()):
        raise ValueError("a prompt ends in padding: pad prompts on the left, and give every prompt at least one token")


def draw(logits: Tensor, temperature: float, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
    """One token for each row of [B, V] and its log-probability under the distribution it came from.

    Raises:
        ValueError: If the logits are not a number.
    """
    if logits.isnan().any():
        raise ValueError("the policy's logits are not a number: training has destroyed it; lower the learning rate")
    if temperature == 0:
        tokens = logits.argmax(-1)
        return tokens, torch.zeros_like(logits[:, 0], dtype=torch.float32)
    scores = torch.log_softmax(logits.float() / temperature, dim=-1)
    tokens = torch.multinomial(scores.exp(), 1, generator=generator)  # [B, 1]
    return tokens.squeeze(-1), scores.gather(-1, tokens).squeeze(-1)


def pad_left(rows: list[list[int]], pad_id: int) -> tuple[Int[Tensor, "P S"], Int[Tensor, "P S"]]:
    """Prompts of different lengths as one rectangle that ends flush on the right, and its mask.

    Example:
        >>> ids, mask = pad_left([[5], [6, 7, 8]], pad_id=0)
        >>> ids.tolist(), mask.tolist()
        ([[0, 0, 5], [6, 7, 8]], [[0, 0, 1], [1, 1, 1]])
    """
    width = max(len(row) for row in rows)
    ids = torch.tensor([[pad_id] * (width - len(row)) + row for row in rows], dtype=torch.long)
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows], dtype=torch.long)
    return ids, mask


def pad_right(rows: list[list[int]], pad_id: int) -> Int[Tensor, "B T"]:
    """Completions of different lengths as one rectangle that starts flush on the left.

    Example:
        >>> pad_right([[5], [6, 7, 8]], pad_id=0).tolist()
        [[5, 0, 0], [6, 7, 8]]
    """
    width = max(len(row) for row in rows)
    return torch.tensor([row + [pad_id] * (width - len(row)) for row in rows])
