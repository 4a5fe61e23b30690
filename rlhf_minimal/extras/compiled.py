"""Decoding with fixed shapes, so that one compiled step can be used for every token.

On a GPU, a token of a small batch is computed faster than Python can launch the few hundred kernels that it needs. If
the shapes of a step never change, the kernels can be recorded once and replayed: `torch.compile` does that with CUDA
graphs (mode "reduce-overhead"), and on the CPU it generates C++. The cost is what `decoding.ShrinkingDecoder` saves:
rows that have ended stay in the batch, and attention reads the whole cache, empty places included.
"""

from functools import cache
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import Cache, PreTrainedModel
from transformers.cache_utils import DynamicLayer, StaticLayer

from rlhf_minimal.training.decoding import Decoder, InOnePrecision, multiplied_in
from rlhf_minimal.training.sampler import Samples, sample

STRIDE = 64  # cache lengths are multiples of this, so that prompts of many lengths share one compiled step


def sample_compiled(
    model: PreTrainedModel,
    prompts: Int[Tensor, "P S"],
    prompt_mask: Int[Tensor, "P S"],
    *,
    compiled: bool = True,
    **options: Any,
) -> Samples:
    """`sampler.sample` with a cache of fixed size and a compiled step; it samples the same tokens.

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
    return sample(model, prompts, prompt_mask, decoder=CompiledDecoder if compiled else FixedDecoder, **options)


class FixedDecoder(Decoder):
    """A decoder whose cache has room for all tokens from the start, and that keeps all rows to the end."""

    def for_groups(self, cache: Cache, group_size: int) -> Cache:
        """As in `Decoder`, in layers of a fixed length."""
        if any(type(layer) is not DynamicLayer for layer in cache.layers):
            raise ValueError(
                f"{type(self.model).__name__} does not keep the keys and values of all tokens: use decoding='dynamic'"
            )
        room = -(-self.attention_mask.shape[1] // STRIDE) * STRIDE
        layers = [_FixedLayer(room) for _ in cache.layers]
        for layer, read in zip(layers, cache.layers, strict=True):
            assert isinstance(read, DynamicLayer)
            kept = [x.to(multiplied_in(x)) for x in (read.keys, read.values) if x is not None]
            layer.update(*(x.repeat_interleave(group_size, 0) for x in kept))
        # Added to attention's scores: a place in the cache can be attended to once a token was written there.
        real, kind = self.attention_mask[:, : self.length].bool(), self.logits.dtype
        self.seen = torch.full((len(real), 1, 1, room), torch.finfo(kind).min, dtype=kind, device=real.device)
        self.seen[:, 0, 0, : self.length].masked_fill_(real, 0.0)
        return Cache(layers=[*layers])

    def step(self, tokens: Int[Tensor, " B"], rows: Int[Tensor, " n"]) -> Float[Tensor, "n V"]:
        """As in `Decoder`."""
        self.seen[..., self.length] = 0.0
        position = self.position_ids[:, self.length, None]
        self.length += 1
        return self.run(self.model, tokens[:, None], self.seen, position, self.cache)[rows]

    def run(self, *args: Any) -> Float[Tensor, "B V"]:
        """The step."""
        return _step(*args)


class CompiledDecoder(FixedDecoder):
    """A decoder of fixed shapes whose step is compiled."""

    def run(self, *args: Any) -> Float[Tensor, "B V"]:
        """The step, compiled."""
        torch.compiler.cudagraph_mark_step_begin()  # the output of the last replay is not needed any more
        try:
            logits: Tensor = _compiled_step()(*args)
        except torch._dynamo.exc.BackendCompilerFailed as error:
            raise ValueError(
                f"decoding='compiled' cannot compile on this machine ({str(error).splitlines()[0]}): install a C++ "
                "compiler, or use decoding='dynamic'"
            ) from error
        return logits


class _FixedLayer(InOnePrecision, StaticLayer):
    pass


def _step(
    model: PreTrainedModel,
    tokens: Int[Tensor, "B 1"],
    seen: Float[Tensor, "B 1 1 L"],
    position: Int[Tensor, "B 1"],
    cache: Cache,
) -> Float[Tensor, "B V"]:
    """One token for every row."""
    output = model(input_ids=tokens, attention_mask=seen, position_ids=position, past_key_values=cache, use_cache=True)
    return output.logits[:, -1]


@cache
def _compiled_step():  # type: ignore[no-untyped-def]
    return torch.compile(_step, mode="reduce-overhead", dynamic=False)
