"""Gradient checkpointing: keep what enters a layer, compute the rest again when the backward comes."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer


def layers(model: nn.Module) -> list[GradientCheckpointingLayer]:
    """The layers of a transformers model whose forward can be done again."""
    return [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]


@contextmanager
def recomputing(model: nn.Module, *, on: bool = True) -> Iterator[None]:
    """Forwards in this context keep only the inputs of each layer for their backward, which may come later.

    transformers recomputes in training mode only, and training mode switches dropout on as well: the policy that is
    trained would not be the one that sampled. So it is switched on for the layers as such and for nothing inside them.

    A forward in this context writes no cache.

    Chapter: scaling-up. Paper: arXiv 1604.06174.

    Args:
        model: A model of transformers.
        on: False does nothing, so that a setting can be passed on.

    Raises:
        ValueError: If the model has no such layers, or draws dropout in the layer itself.

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
    found = layers(model)
    if not found or not isinstance(model, PreTrainedModel) or not model.supports_gradient_checkpointing:
        raise ValueError(f"{type(model).__name__} cannot compute its layers again: switch gradient_checkpointing off")
    drops = {name: value for name, value in vars(model.config).items() if "drop" in name and value}
    if drops:
        raise ValueError(
            f"this model draws dropout ({', '.join(f'{name} {value}' for name, value in drops.items())}), and its "
            "layers would draw it again: set it to 0 in its config.json, or switch gradient_checkpointing off"
        )
    # transformers 5.2x calls it by its other name, and warns of the old one
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    disable = getattr(model, "activation_checkpointing_disable", None) or model.gradient_checkpointing_disable
    enable({"use_reentrant": False})
    try:
        for layer in found:
            layer.training = True
        yield
    finally:
        for layer in found:
            layer.training = False
        disable()
