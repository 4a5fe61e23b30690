"""Gradient checkpointing: keep only the input of each layer, and compute the layer again in the backward pass."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer


@contextmanager
def recomputing(model: nn.Module, *, on: bool = True) -> Iterator[None]:
    """A forward pass in this context keeps only the input of each layer. The backward pass may come after the context.

    transformers recomputes in training mode only. Training mode also switches dropout on, and then the trained policy
    would not be the policy that sampled. So training mode is set on the layers themselves, but on no module in them.

    A forward pass in this context writes no cache.

    Chapter: scaling-up-in-depth. Paper: arXiv 1604.06174.

    Args:
        model: A model of transformers.
        on: If False, the context does nothing.

    Raises:
        ValueError: If the model has no such layers, or if its config switches dropout on.

    Example:
        >>> import torch
        >>> from rlhf_minimal.models import tiny_llama
        >>> model = tiny_llama(13)
        >>> with recomputing(model):
        ...     loss = model(torch.tensor([[1, 2, 3]])).logits.sum()
        >>> loss.backward()
    """
    if not on:
        yield
        return
    repeated = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not repeated or not isinstance(model, PreTrainedModel) or not model.supports_gradient_checkpointing:
        raise ValueError(f"{type(model).__name__} cannot compute its layers again: switch gradient_checkpointing off")
    drops = {name: value for name, value in vars(model.config).items() if "drop" in name and value}
    if drops:
        raise ValueError(
            f"this model uses dropout ({', '.join(f'{name} {value}' for name, value in drops.items())}), and its "
            "layers would draw it again: set it to 0 in its config.json, or switch gradient_checkpointing off"
        )
    # transformers 5.2x has new names for these two methods, and warns if the old names are used
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    disable = getattr(model, "activation_checkpointing_disable", None) or model.gradient_checkpointing_disable
    enable({"use_reentrant": False})
    try:
        for layer in repeated:
            layer.training = True
        yield
    finally:
        for layer in repeated:
            layer.training = False
        disable()
