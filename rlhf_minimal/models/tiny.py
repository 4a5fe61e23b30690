"""A language model small enough to train on a laptop: an ordinary Llama with small sizes in its config."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM


def tiny_llama(
    vocab_size: int, *, width: int = 64, layers: int = 2, heads: int = 8, max_length: int = 64, seed: int = 0
) -> LlamaForCausalLM:
    """A newly initialised Llama with about 83 000 parameters at the default sizes.

    Nothing is simplified: it has rotary positions, RMS norm and a gated MLP, as large models have, so the same loop
    trains both. Two settings are unusual on purpose:

    - `initializer_range` is 0.12 instead of 0.02. The usual value is meant for widths of thousands. At width 64, the
      network would start so close to zero that the first part of a short run would bring almost no progress.
    - `rope_theta` is 100 instead of 10 000. Sequences have some dozen tokens; with the usual value, the slow rotations
      would hardly turn.

    Args:
        vocab_size: Number of tokens, the end-of-answer token included.
        width: Size of the hidden state, a multiple of 2 x `heads`; 32 to 128 here.
        layers: Number of blocks; 1 to 4 here.
        heads: Attention heads per layer.
        max_length: Largest number of tokens in prompt and completion together.
        seed: Seed of the initial weights. The global random state does not change.

    Returns:
        The model, float32, on the CPU, in evaluation mode (it has no dropout).

    Raises:
        ValueError: If `width` is not a multiple of 2 x `heads` (rotary positions rotate pairs of numbers).

    Example:
        >>> model = tiny_llama(13)
        >>> sum(p.numel() for p in model.parameters())
        83072
    """
    if width % (2 * heads):
        raise ValueError(f"width must be a multiple of 2 x heads = {2 * heads}; got {width}")
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        max_position_embeddings=max_length,
        initializer_range=0.12,
        rope_parameters={"rope_type": "default", "rope_theta": 100.0},
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=0,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config).eval()
