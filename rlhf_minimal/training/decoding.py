"""The key-value cache during sampling: with all rows, or without those that have ended.

`Decoder` is the plain one: every row stays to the end. `ShrinkingDecoder` samples the same tokens in less time: a row
that has ended is removed from the cache, and one of the last rows takes its place, so that the others need not move.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad
from transformers import Cache, PreTrainedModel
from transformers.cache_utils import DynamicLayer

from rlhf_minimal.models import positions, read_on


class Decoder:
    """A model that is sampling B = P x G completions, the G completions of one prompt next to each other.

    Args:
        model: Any causal language model of transformers. It reads every prompt once, for its whole group.
        prompts: [P, S] ids, padded on the left.
        prompt_mask: [P, S], 1 for real prompt tokens.
        group_size: Completions per prompt, G.
        max_new_tokens: Largest number of tokens that will be sampled for a row.

    Attributes:
        logits: [B, V] from which the first tokens are drawn.
    """

    cache: Any = None  # the model makes one of its own kind when it reads the prompts

    def __init__(
        self,
        model: PreTrainedModel,
        prompts: Int[Tensor, "P S"],
        prompt_mask: Int[Tensor, "P S"],
        group_size: int,
        max_new_tokens: int,
    ) -> None:
        self.model, self.length = model, 0  # tokens of each row that the cache holds
        self.attention_mask = pad(prompt_mask.long(), (0, max_new_tokens), value=1)  # [P, S + max_new_tokens]
        self.position_ids = positions(self.attention_mask)
        logits = self._read(prompts, torch.arange(len(prompts), device=prompts.device))  # [P, V]
        self.attention_mask, self.position_ids, self.logits = (
            x.repeat_interleave(group_size, dim=0) for x in (self.attention_mask, self.position_ids, logits)
        )  # [B, ...]
        self.cache = self.for_groups(self.cache, group_size)

    def for_groups(self, cache: Cache, group_size: int) -> Cache:
        """The cache of P prompts as that of their P x G completions."""
        prompts = len(self.attention_mask) // group_size
        rows: Any = torch.arange(prompts, device=self.attention_mask.device).repeat_interleave(group_size)
        cache.reorder_cache(rows)
        return cache

    def step(self, tokens: Int[Tensor, " B"], rows: Int[Tensor, " n"]) -> Float[Tensor, "n V"]:
        """Reads one more token of every row.

        Args:
            tokens: [B] the tokens that were sampled last.
            rows: [n] the rows that have not ended. A row that was missing once never comes back.

        Returns:
            [n, V] from which their next tokens are drawn.
        """
        return self._read(tokens[:, None], torch.arange(len(tokens), device=tokens.device))[rows]

    def _read(self, tokens: Int[Tensor, "m n"], rows: Int[Tensor, " m"]) -> Float[Tensor, "m V"]:
        """Reads n more tokens of some rows: a whole prompt, or the token that was sampled last."""
        before, self.length = self.length, self.length + tokens.shape[1]
        mask, places = self.attention_mask[rows, : self.length], self.position_ids[rows, before : self.length]
        logits, self.cache = read_on(self.model, tokens, mask, places, self.cache)
        return logits


class ShrinkingDecoder(Decoder):
    """Stops reading rows that have ended: the same samples in less time.

    Chapter: making-it-fast.
    """

    def for_groups(self, cache: Cache, group_size: int) -> Cache:
        """As in `Decoder`, in the precision in which attention multiplies it."""
        cache = super().for_groups(_as_multiplied(cache, self.attention_mask.device), group_size)
        self.kept = len(self.attention_mask)  # rows that the cache holds
        self.places = torch.arange(self.kept, device=self.attention_mask.device)  # [B] where it holds each of them
        return cache

    def step(self, tokens: Int[Tensor, " B"], rows: Int[Tensor, " n"]) -> Float[Tensor, "n V"]:
        """As in `Decoder`."""
        places = self.places[rows]
        if len(rows) < self.kept:
            places = _close_gaps(self.cache, places)
            self.places[rows], self.kept = places, len(rows)
        in_cache_order = rows[places.argsort()]
        return self._read(tokens[in_cache_order, None], in_cache_order)[places]


class InOnePrecision:
    """Keys and values are kept in the precision of the first ones, whatever comes later (mixed into a cache's layer).

    Under autocast a model hands over keys in float32, since they were rotated, and values in bfloat16. Attention
    rounds both before it multiplies them. Keeping them rounded changes no product and halves the cache.
    """

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """What `transformers.cache_utils.CacheLayerMixin.update` does."""
        if self.is_initialized:  # type: ignore[attr-defined]
            key_states, value_states = (x.to(self.keys.dtype) for x in (key_states, value_states))  # type: ignore[attr-defined]
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
        kept: Any = places[after.argsort()]
        cache.reorder_cache(kept)
        return after

    def shortened(x: Tensor | None) -> Tensor | None:
        return None if x is None else x.index_copy_(0, gaps, x.index_select(0, movers))[:n]

    for layer in simple:
        layer.keys, layer.values = shortened(layer.keys), shortened(layer.values)
    return after
