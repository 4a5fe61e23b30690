"""The memory ledger: how many bytes each model of a run holds, counted from a config before anything is loaded.

    trained model:  weights + gradients + AdamW's two moments (+ a master copy of the weights, in mixed precision)
                    + activations: what autograd keeps of a forward pass until the backward pass
    frozen model:   weights
    sampling:       the key-value cache

The algorithm's `needs` decide which models there are (with "values" a critic, with "ref_logp" a reference), and a
learned reward adds a reward model. The algorithm's name does not matter.

Weights, gradients and moments are exact for every causal language model of transformers: parameters are counted on the
meta device, where a model of any size has shapes and no bytes. Activations and cache come from formulas for Llama-like
models (`activation_bytes`, `cache_bytes`).

Activations are counted for whole rows, each with its prompt and its padding. With `Config.fast` the loop keeps less,
depending on the lengths; the ledger is then an upper bound.

Not counted: tensors that exist only briefly (logits of a frozen model, the optimiser's temporaries; while sampling
under autocast, the rounded copies of the weights, which are counted among the activations of training), the
memory that the allocator reserves beyond that, and the copy of the start that this library keeps for its KL metric
(`Config.watch_kl`) if an algorithm has no reference.

Chapter: ppo-rlhf (and grpo-in-depth, which counts the same by hand).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from rlhf_minimal.functional.checks import check_count
from rlhf_minimal.models import adapter, wrap_layers
from rlhf_minimal.objective import Algorithm

# The architectures whose activations and cache the two formulas describe, value: whether queries and keys are normed.
LLAMA_LIKE = {"llama": False, "mistral": False, "qwen2": False, "qwen3": True}


@dataclass(frozen=True)
class Dtypes:
    """The precision of each kind of tensor in a run.

    Args:
        weights: Weights of trained models, and their gradients.
        frozen: Weights of reference and reward model.
        moments: AdamW's two moments.
        activations: Of the forward pass, and of the key-value cache. Norms and log-probs keep float32 in any case.
            If coarser than the weights, autocast is meant (`Config.precision`): the backward then also keeps a copy of
            the weights in this precision.
        master: Precision of the finer copy of the weights that mixed precision updates; None for no copy.

    Example:
        >>> mixed = Dtypes(torch.bfloat16, torch.bfloat16, torch.float32, torch.bfloat16, master=torch.float32)
        >>> 2 * mixed.weights.itemsize + 2 * mixed.moments.itemsize + mixed.master.itemsize  # a trained parameter
        16
    """

    weights: torch.dtype = torch.float32
    frozen: torch.dtype = torch.float32
    moments: torch.dtype = torch.float32
    activations: torch.dtype = torch.float32
    master: torch.dtype | None = None


@dataclass(frozen=True)
class ModelMemory:
    """One row of the ledger: what one model holds, in bytes.

    Attributes:
        model: "policy", "critic", "reference" or "reward model".
        parameters: How many numbers it has.
        weights: Bytes of these.
        gradients: As large as the weights, for a trained model.
        optimizer: AdamW's two moments, and the master copy if there is one. (Its step counters, four bytes a tensor,
            are left out.)
        activations: Kept by autograd between one forward and its backward pass; None for an architecture that the
            formula does not describe.
        cache: Keys and values at the end of sampling (of the policy only); None likewise.
    """

    model: str
    parameters: int
    weights: int
    gradients: int = 0
    optimizer: int = 0
    activations: int | None = 0
    cache: int | None = 0

    @property
    def held(self) -> int:
        """Bytes held all the time: weights, gradients, optimiser."""
        return self.weights + self.gradients + self.optimizer


def memory_ledger(
    algorithm: Algorithm,
    policy: PreTrainedConfig,
    *,
    reward_model: PreTrainedConfig | None = None,
    critic: PreTrainedConfig | None = None,
    sequences: int = 8,
    sampled: int | None = None,
    prompt_length: int = 512,
    completion_length: int = 512,
    padded: bool = False,
    gradient_checkpointing: bool = False,
    lora_rank: int | None = None,
    dtypes: Dtypes = Dtypes(),
) -> list[ModelMemory]:
    """The bytes that every model of a run holds.

    Args:
        algorithm: A row of the table, or a variant.
        policy: A transformers config, such as `AutoConfig.from_pretrained(folder)`.
        reward_model: The config of a learned reward's model, often the policy's; None for a verifier, which has none.
        critic: The critic's config, if the algorithm needs a critic; default: the policy's.
        sequences: Completions in one forward-backward: B of a micro-batch.
        sampled: Completions sampled at once; default: `sequences`.
        prompt_length: S, tokens of a prompt, padding included.
        completion_length: T, tokens of a completion.
        padded: Prompts differ in length, so that attention gets a mask (see `activation_bytes`).
        gradient_checkpointing: Layers are recomputed in the backward (see `activation_bytes`).
        lora_rank: The policy's weights are frozen, and LoRA adapters of this rank are trained
            (`models.add_lora`); a frozen reference then shares them. Activations are those of training the weights:
            what the adapters add, and what frozen layers save, is left out.
        dtypes: The precision of each kind of tensor.

    Returns:
        The rows: the policy first, then critic, reference and reward model, if there are any.

    Raises:
        ValueError: Counts below 1, a config of no causal language model; a LoRA without peft, or on a model that peft
            does not adapt.

    Example:
        >>> from rlhf_minimal import ALGORITHMS
        >>> from rlhf_minimal.models import tiny_llama
        >>> config = tiny_llama(13).config
        >>> [row.model for row in memory_ledger(ALGORITHMS["ppo"], config, reward_model=config)]
        ['policy', 'critic', 'reference', 'reward model']
        >>> [row.held // row.parameters for row in memory_ledger(ALGORITHMS["grpo"], config)]
        [16, 4]
    """
    check_count(sequences=sequences, prompt_length=prompt_length, completion_length=completion_length)
    sampled = sequences if sampled is None else sampled
    check_count(sampled=sampled)

    shape: dict[str, Any] = {
        "prompt_length": prompt_length,
        "completion_length": completion_length,
        "dtype": dtypes.activations,
    }
    options: dict[str, Any] = {
        "sequences": sequences,
        "padded": padded,
        "recomputed": gradient_checkpointing,
        "weights": dtypes.weights,
    }
    known, needs = policy.model_type in LLAMA_LIKE, algorithm.needs

    lm = _on_meta(policy)
    kept = activation_bytes(policy, entropy=bool(algorithm.entropy), **shape, **options) if known else None
    cache = cache_bytes(policy, sequences=sampled, **shape) if known else None
    if lora_rank is None:
        rows = [_trained("policy", _count(lm), dtypes, kept, cache)]
    else:
        check_count(lora_rank=lora_rank)
        base = _frozen("policy", _count(lm), dtypes)
        with torch.device("meta"):
            wrap_layers(lm, rank=lora_rank)  # what peft adds, whatever it adapts
        own = _trained("policy", sum(weight.numel() for weight in adapter(lm).values()), dtypes, kept, cache)
        rows = [replace(own, parameters=own.parameters + base.parameters, weights=own.weights + base.weights)]
    if "values" in needs:
        config = critic or policy
        known = config.model_type in LLAMA_LIKE
        kept = activation_bytes(config, head="value", **shape, **options) if known else None
        parameters = _count(_on_meta(config).base_model) + config.hidden_size + 1  # one number, with a bias
        rows.append(_trained("critic", parameters, dtypes, kept))
    if "ref_logp" in needs and lora_rank is None:
        rows.append(_frozen("reference", _count(lm), dtypes))
    if reward_model is not None:
        parameters = _count(_on_meta(reward_model).base_model) + reward_model.hidden_size
        rows.append(_frozen("reward model", parameters, dtypes))
    return rows


def _trained(
    model: str, parameters: int, dtypes: Dtypes, activations: int | None, cache: int | None = 0
) -> ModelMemory:
    moments = 2 * dtypes.moments.itemsize + (0 if dtypes.master is None else dtypes.master.itemsize)
    weights = parameters * dtypes.weights.itemsize
    return ModelMemory(model, parameters, weights, weights, parameters * moments, activations, cache)


def _frozen(model: str, parameters: int, dtypes: Dtypes) -> ModelMemory:
    return ModelMemory(model, parameters, parameters * dtypes.frozen.itemsize)


def activation_bytes(
    config: PreTrainedConfig,
    *,
    sequences: int,
    prompt_length: int,
    completion_length: int,
    padded: bool = False,
    head: Literal["logits", "value"] = "logits",
    entropy: bool = False,
    recomputed: bool = False,
    dtype: torch.dtype = torch.float32,
    weights: torch.dtype | None = None,
) -> int:
    r"""The bytes that autograd keeps of one forward pass of a Llama-like model (:eq:`eq-activation-bytes`).

    .. math::
        n \big( N (a(2d + 2he + 2ke + 4f) + (2r + 8) d + 8) + 4 B h L \big) + N (2re + (r + 4) d + 12) + \text{head}

    with N = B L tokens of length L = S + T, n layers of width d, feed-forward width f, h heads and k key-value heads of
    size e, a bytes a number (float32: 4) and r bytes a weight. Term by term, for each layer:

    - two norms: the input (float32 in any case), its root mean square (likewise), the normed input;
    - the input of the projections behind each norm, shared by q, k and v, and by gate and up;
    - attention: q, k, v, its output, and a float32 log-normaliser for each head. No score is kept: the fused kernels
      (`sdpa`, flash) compute them again. With `padded`, the CPU's kernel keeps a mask [B, L, L] a layer as well, and
      transformers repeats k and v for the heads that share them (h in place of k, if k > 1);
    - the gated MLP: gate, its silu, up, and their product.

    Once a model: token ids, cosines and sines, the last norm. Its head: the T + 1 positions that are read, [B, T, V]
    log-probs in float32 and the sampled ids; the entropy, where the loss has one, keeps three more [B, T, V]. A value
    head keeps its input instead.

    Under autocast, a < r: the tensors passed from layer to layer have the weights' precision, so the normed inputs have
    r bytes a number. Each of q, k, v, gate and up rounds its own copy of the input, so a layer has 5 such inputs and
    not 2. And a copy of each weight matrix is kept, with a bytes a number.

    Recomputed (gradient checkpointing), the forward keeps only the input of each layer, N r d bytes. The backward then
    has the inner tensors of one layer at a time. All inputs and the inner tensors of one layer are counted.

    Chapter: ppo-rlhf, scaling-up. Checked against `torch.autograd.graph.saved_tensors_hooks`: exact on the CPU with
    transformers 5.23. Kernels on other devices may keep more or less.

    Args:
        config: Of a Llama, Mistral, Qwen2 or Qwen3.
        sequences: B.
        prompt_length: S.
        completion_length: T.
        padded: Prompts of different lengths.
        head: "logits" for a policy, "value" for a critic.
        entropy: The loss has an entropy bonus.
        recomputed: With gradient checkpointing.
        dtype: Precision of the forward pass.
        weights: Precision of the weights, if finer (autocast); default: `dtype`.

    Returns:
        Bytes.

    Raises:
        ValueError: Another architecture, counts below 1.

    Example:
        >>> from rlhf_minimal.models import tiny_llama
        >>> activation_bytes(tiny_llama(13).config, sequences=512, prompt_length=8, completion_length=5) / 2**20
        63.63671875
    """
    _check_llama_like(config)
    B, S, T = sequences, prompt_length, completion_length
    check_count(sequences=B, prompt_length=S, completion_length=T)
    d, f, V, L = config.hidden_size, config.intermediate_size, config.vocab_size, S + T
    h, k, e = _heads(config)
    a, tokens = dtype.itemsize, B * L
    r = a if weights is None else weights.itemsize

    norm = tokens * ((4 + r) * d + 4)
    apart = h if padded and k > 1 else k  # heads of k and v that are kept; one that is shared by all is not repeated
    attention = tokens * a * (2 * h * e + 2 * apart * e) + 4 * B * h * L
    if padded:
        attention += a * tokens * L
    if LLAMA_LIKE[config.model_type]:  # queries and keys go through norms of their own, head by head
        attention += tokens * (h + k) * ((4 + a) * e + 4)
    copies = 0 if a == r else a  # bytes a number of a matrix, kept in the forward's precision
    layer = 2 * norm + (2 if a == r else 5) * a * tokens * d + attention + 4 * a * tokens * f
    layer += copies * (2 * d * h * e + 2 * d * k * e + 3 * d * f)
    layers = config.num_hidden_layers * (r * tokens * d if recomputed else layer) + (layer if recomputed else 0)
    body = layers + norm + tokens * (2 * r * e + 8)
    if head == "value":
        return body + r * tokens * d  # autocast is switched off for this head
    return body + B * (a * (T + 1) * d + 4 * T * V * (4 if entropy else 1) + 8 * T) + copies * V * d


def cache_bytes(
    config: PreTrainedConfig,
    *,
    sequences: int,
    prompt_length: int,
    completion_length: int,
    dtype: torch.dtype = torch.float32,
) -> int:
    r"""Keys and values at the end of sampling (:eq:`eq-cache-bytes`).

    .. math:: 2\, a\, n\, B\, (S + T - 1)\, k\, e

    For each of n layers and each token that was read, k key-value heads of size e, twice, in a bytes. The last token
    is written and never read.

    Chapter: ppo-rlhf.

    Args:
        config: Of a Llama, Mistral, Qwen2 or Qwen3.
        sequences: B, completions sampled at once.
        prompt_length: S.
        completion_length: T.
        dtype: Precision of the cache.

    Returns:
        Bytes.

    Raises:
        ValueError: Another architecture, counts below 1.

    Example:
        >>> from rlhf_minimal.models import tiny_llama
        >>> cache_bytes(tiny_llama(13).config, sequences=512, prompt_length=8, completion_length=5) / 2**20
        6.0
    """
    _check_llama_like(config)
    check_count(sequences=sequences, prompt_length=prompt_length, completion_length=completion_length)
    _, k, e = _heads(config)
    read = sequences * (prompt_length + completion_length - 1)
    return 2 * dtype.itemsize * config.num_hidden_layers * read * k * e


def most_at_once(rows: Sequence[ModelMemory]) -> int:
    """The largest number of bytes at any time: what is held all the time, plus the larger of activations and cache.

    Sampling is over before training begins, so activations and the cache never exist together. The activations of
    policy and critic are added, as if both were trained at the same time; this library trains one after the other.

    Raises:
        ValueError: If a row's activations or cache are unknown.

    Example:
        >>> most_at_once([ModelMemory("policy", 1, 4, 4, 8, 30, 20), ModelMemory("critic", 1, 4, 4, 8, 25)])
        87
    """
    if any(x is None for row in rows for x in (row.activations, row.cache)):
        raise ValueError(f"activations are known for {', '.join(LLAMA_LIKE)} only: give configs of these")
    activations, cache = (sum(getattr(row, name) for row in rows) for name in ("activations", "cache"))
    return sum(row.held for row in rows) + max(activations, cache)


def memory_table(rows: Sequence[ModelMemory]) -> str:
    """The ledger as a Markdown table, with a last line for the sum.

    Bytes are printed in the largest unit that leaves a number of at least 1 (1 KiB is 1024 bytes). The last column is
    what is held all the time, in bytes per parameter of the policy, to compare algorithms.

    Example:
        >>> print(memory_table([ModelMemory("policy", 1024, 4096, 4096, 8192, 2048, 512)]))
        | model | parameters | weights | gradients | optimizer | activations | cache | held, bytes / parameter |
        |:--|--:|--:|--:|--:|--:|--:|--:|
        | policy | 1,024 | 4.0 KiB | 4.0 KiB | 8.0 KiB | 2.0 KiB | 512 B | 16.00 |
        | all | 1,024 | 4.0 KiB | 4.0 KiB | 8.0 KiB | 2.0 KiB | 512 B | 16.00 |
    """
    columns = ("weights", "gradients", "optimizer", "activations", "cache")
    lines = [f"| model | parameters | {' | '.join(columns)} | held, bytes / parameter |", "|:--|" + "--:|" * 7]
    for name, part in [*((row.model, [row]) for row in rows), ("all", list(rows))]:
        cells = [name, f"{sum(row.parameters for row in part):,}"]
        for column in columns:
            values = [getattr(row, column) for row in part]
            cells.append("not known" if None in values else in_units(sum(values)))
        cells.append(f"{sum(row.held for row in part) / rows[0].parameters:.2f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def in_units(size: int | float) -> str:
    """Bytes in the largest unit that leaves a number of at least 1.

    Example:
        >>> in_units(1536), in_units(16 * 2**30)
        ('1.5 KiB', '16.0 GiB')
    """
    if size < 1024:
        return f"{size:.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        size /= 1024
        if size < 1024:
            return f"{size:.1f} {unit}"
    return f"{size / 1024:.1f} TiB"


def _on_meta(config: PreTrainedConfig) -> PreTrainedModel:
    """The model of a config on the meta device: shapes without data."""
    try:
        with torch.device("meta"):
            return AutoModelForCausalLM.from_config(config)
    except ValueError as error:
        kind = getattr(config, "model_type", type(config).__name__)
        raise ValueError(f"a config of type {kind!r} makes no causal language model of transformers") from error


def _count(model: nn.Module) -> int:
    """Number of parameters; tied ones count once."""
    return sum(p.numel() for p in model.parameters())


def _heads(config: PreTrainedConfig) -> tuple[int, int, int]:
    """The number of heads, of key-value heads, and the size of a head."""
    heads = config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // heads
    return heads, getattr(config, "num_key_value_heads", None) or heads, size


def _check_llama_like(config: PreTrainedConfig) -> None:
    if config.model_type not in LLAMA_LIKE:
        raise ValueError(
            f"no formula for activations and cache of a {config.model_type!r}: there is one for {', '.join(LLAMA_LIKE)}"
        )
