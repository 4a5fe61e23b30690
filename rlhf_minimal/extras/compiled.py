"""Writing completions with fixed shapes, so that one compiled step serves every token.

A large model on a GPU computes a token of a small batch faster than Python can ask for its few hundred kernels. If
nothing about a step changes but numbers, the kernels can be asked for once and replayed: `torch.compile` does that with
CUDA graphs (mode "reduce-overhead"), and on the CPU it writes C++. The price is what `sampler.sample` saves: rows that
have ended stay in the batch, and attention reads the cache to its end, empty places included.
"""

from functools import cache

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import Cache, PreTrainedModel
from transformers.cache_utils import DynamicLayer, StaticLayer

from rlhf_minimal.functional.masked import completion_mask
from rlhf_minimal.models.forward import positions
from rlhf_minimal.training.sampler import InOnePrecision, Samples, check_request, draw, multiplied_in

STRIDE = 64  # cache lengths are multiples of this: one compiled step serves prompts of many lengths


@torch.no_grad()
def sample_compiled(
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
    compiled: bool = True,
) -> Samples:
    """`sampler.sample` with a cache of fixed size and a compiled step.

    The same distribution, but other draws: the generator also draws for rows that have ended.

    Chapter: scaling-up.

    Args:
        model: A causal language model of transformers that keeps the keys and values of all tokens.
        prompts: As in `sample`, like all that follow but the last.
        prompt_mask: [P, S].
        max_new_tokens: Budget in tokens.
        eos_id: The token that ends an answer.
        pad_id: What fills the rectangle behind it.
        group_size: Completions per prompt, G.
        temperature: 0 is greedy.
        generator: Source of randomness.
        compiled: False runs the same steps uncompiled.

    Returns:
        `Samples` with B = P x G rows.

    Raises:
        ValueError: As `sample`; if the model keeps another kind of cache; or if nothing can be compiled here.
    """
    check_request(prompt_mask, max_new_tokens, group_size, temperature)
    S, batch = prompts.shape[1], len(prompts) * group_size
    length = -(-(S + max_new_tokens) // STRIDE) * STRIDE
    output = model(
        input_ids=prompts,
        attention_mask=prompt_mask.long(),
        position_ids=positions(prompt_mask),
        use_cache=True,
        logits_to_keep=1,
    )
    grown = output.past_key_values
    if any(type(layer) is not DynamicLayer for layer in grown.layers):
        raise ValueError(f"{type(model).__name__} keeps another cache than of all tokens: take decoding='dynamic'")
    layers = [_FixedLayer(length) for _ in grown.layers]
    for layer, read in zip(layers, grown.layers, strict=True):
        layer.update(*(x.to(multiplied_in(x)).repeat_interleave(group_size, 0) for x in (read.keys, read.values)))
    cache = Cache(layers=[*layers])
    del grown, output.past_key_values
    logits = output.logits[:, -1].repeat_interleave(group_size, dim=0)  # [B, V]

    # What is added to attention's scores: a place in the cache is seen once something was written there.
    unseen = torch.finfo(logits.dtype).min
    seen = torch.full((batch, 1, 1, length), unseen, dtype=logits.dtype, device=logits.device)
    real = prompt_mask.repeat_interleave(group_size, dim=0)
    seen[:, 0, 0, :S].masked_fill_(real.bool(), 0.0)
    position = real.sum(-1, keepdim=True)  # [B, 1]
    step = _compiled_step() if compiled else _step

    completions = torch.full((batch, max_new_tokens), pad_id, device=prompts.device)
    logp = torch.zeros(batch, max_new_tokens, device=prompts.device)
    ended = torch.zeros(batch, dtype=torch.bool, device=prompts.device)
    for t in range(max_new_tokens):
        tokens, token_logp = draw(logits, temperature, generator)
        tokens = torch.where(ended, pad_id, tokens)
        completions[:, t], logp[:, t] = tokens, torch.where(ended, 0.0, token_logp)
        ended = ended | (tokens == eos_id)
        if ended.all() or t == max_new_tokens - 1:
            break
        seen[..., S + t] = 0.0
        if compiled:
            torch.compiler.cudagraph_mark_step_begin()  # what the last replay wrote has been read
        try:
            logits = step(model, tokens[:, None], seen, position, cache)
        except torch._dynamo.exc.BackendCompilerFailed as error:
            raise ValueError(
                f"decoding='compiled' cannot compile on this machine ({str(error).splitlines()[0]}): install a C++ "
                "compiler, or take decoding='dynamic'"
            ) from error
        position = position + 1

    completions, logp = completions[:, : t + 1], logp[:, : t + 1]
    return Samples(completions, logp, completion_mask(completions, eos_id), ~ended)


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
