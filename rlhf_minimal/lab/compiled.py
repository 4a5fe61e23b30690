"""Decoding with fixed shapes, so that one compiled step can be used for every token.

On a GPU, a token of a small batch is computed faster than Python can launch the few hundred kernels that it needs. If
the shapes of a step never change, the kernels can be recorded once and replayed: `torch.compile` does that with CUDA
graphs (mode "reduce-overhead"), and on the CPU it generates C++. The cost is what `sample.decode_with_cache` saves:
rows that have ended stay in the batch, and attention reads the whole cache, empty places included.
"""

from functools import cache, partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad
from transformers import Cache, PreTrainedModel
from transformers.cache_utils import DynamicLayer, StaticLayer

from rlhf_minimal.models import cache_name, forward_with_cache, positions
from rlhf_minimal.sample import Samples, Step, sample

STRIDE = 64  # cache lengths are multiples of this, so that prompts of many lengths share one compiled step


def sample_compiled(
    model: PreTrainedModel,
    prompts: Int[Tensor, "P S"],
    prompt_mask: Int[Tensor, "P S"],
    *,
    compiled: bool = True,
    **options: Any,
) -> Samples:
    """`sample.sample` with a cache of fixed size and a compiled step; it samples the same tokens.

    Chapter: scaling-up-in-depth.

    Args:
        model: A causal language model of transformers that keeps the keys and values of all tokens.
        prompts: As in `sample`, like the mask and all options.
        prompt_mask: [P, S].
        compiled: False runs the same steps without compiling them.
        **options: Budget, group size, temperature and the like.

    Returns:
        `Samples` with B = P x G rows.

    Raises:
        ValueError: As `sample`; if the model has another kind of cache; or if this machine cannot compile.
    """
    decode = partial(decode_with_fixed_cache, run=_run_compiled if compiled else _step)
    return sample(model, prompts, prompt_mask, decode=decode, **options)


def decode_with_fixed_cache(
    model: PreTrainedModel,
    prompts: Int[Tensor, "P S"],
    prompt_mask: Int[Tensor, "P S"],
    group_size: int,
    max_new_tokens: int,
    *,
    run: Any,
) -> tuple[Float[Tensor, "B V"], Step]:
    """As `sample.decode_with_cache`, with room for all tokens from the start; all rows stay to the end."""
    length = prompts.shape[1]
    mask = pad(prompt_mask.long(), (0, max_new_tokens), value=1)  # [P, S + max_new_tokens]
    places = positions(mask)
    first, cache = forward_with_cache(model, prompts, mask[:, :length], places[:, :length], None)
    mask, places, logits = (x.repeat_interleave(group_size, dim=0) for x in (mask, places, first))
    if any(type(layer) is not DynamicLayer for layer in cache.layers):
        raise ValueError(
            f"{type(model).__name__} does not keep the keys and values of all tokens: use decoding='dynamic'"
        )
    room = -(-mask.shape[1] // STRIDE) * STRIDE
    layers = [_FixedLayer(room) for _ in cache.layers]
    for layer, read in zip(layers, cache.layers, strict=True):
        assert isinstance(read, DynamicLayer)
        kept = [x.to(multiplied_in(x)) for x in (read.keys, read.values) if x is not None]
        layer.update(*(x.repeat_interleave(group_size, 0) for x in kept))
    # Added to attention's scores: a place in the cache can be attended to once a token was written there.
    real, kind = mask[:, :length].bool(), logits.dtype
    seen = torch.full((len(real), 1, 1, room), torch.finfo(kind).min, dtype=kind, device=real.device)
    seen[:, 0, 0, :length].masked_fill_(real, 0.0)
    fixed = {cache_name(model): Cache(layers=[*layers])}

    def step(tokens: Tensor, rows: Tensor, t: int) -> Tensor:
        at = length + t
        seen[..., at] = 0.0
        logits: Tensor = run(model, tokens[:, None], seen, places[:, at, None], fixed)
        return logits[rows]

    return logits, step


def _run_compiled(*args: Any) -> Float[Tensor, "B V"]:
    torch.compiler.cudagraph_mark_step_begin()  # the output of the last replay is not needed any more
    try:
        logits: Tensor = _compiled_step()(*args)
    except torch._dynamo.exc.BackendCompilerFailed as error:
        raise ValueError(
            f"decoding='compiled' cannot compile on this machine ({str(error).splitlines()[0]}): install a C++ "
            "compiler, or use decoding='dynamic'"
        ) from error
    return logits


class _FixedLayer(StaticLayer):
    """Keys and values are kept in the precision of the first ones, whatever comes later.

    Under autocast a model hands over keys in float32, since they were rotated, and values in bfloat16. Attention
    rounds both before it multiplies them. Keeping them rounded changes no product and halves the cache.
    """

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """What `transformers.cache_utils.CacheLayerMixin.update` does."""
        if self.keys is not None:
            key_states, value_states = (x.to(self.keys.dtype) for x in (key_states, value_states))
        return super().update(key_states, value_states, *args, **kwargs)


def multiplied_in(x: Tensor) -> torch.dtype:
    """The precision in which matrix products read `x` here: autocast's, or its own."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def _step(
    model: PreTrainedModel,
    tokens: Int[Tensor, "B 1"],
    seen: Float[Tensor, "B 1 1 L"],
    position: Int[Tensor, "B 1"],
    cache: dict[str, Cache],
) -> Float[Tensor, "B V"]:
    """One token for every row."""
    output = model(input_ids=tokens, attention_mask=seen, position_ids=position, use_cache=True, **cache)
    return output.logits[:, -1]


@cache
def _compiled_step():  # type: ignore[no-untyped-def]
    return torch.compile(_step, mode="reduce-overhead", dynamic=False)
