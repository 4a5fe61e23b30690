"""LoRA: a correction of low rank beside every frozen matrix, through peft."""

import copy
import importlib.util

import torch
from torch import Tensor
from transformers import PreTrainedModel

from rlhf_minimal.models.weights import in_short


def add_lora(policy: PreTrainedModel, *, rank: int, alpha: float = 32.0, seed: int = 0) -> None:
    """Freezes a model and gives every linear layer but the vocabulary head a trainable correction of low rank.

    A layer then computes W x + (alpha / rank) B A x with A of [rank, in] and B of [out, rank]. B begins at 0, so
    that the model is at first what it was. The model's class and names stay: only its linear layers are wrapped.

    Chapter: scaling-up. Paper: arXiv 2106.09685, equation 3.

    Args:
        policy: A causal language model of transformers; changed in place.
        rank: Of the correction.
        alpha: Its weight times the rank.
        seed: Decides A; the global random state is left as it was.

    Raises:
        ValueError: If peft is not installed, the rank is below 1, or the model has such corrections already.
    """
    _check_installed()
    from peft import LoraConfig, inject_adapter_in_model

    if rank < 1:
        raise ValueError(f"the rank must be at least 1; got {rank}")
    if adapter(policy):
        raise ValueError("this model has a LoRA already")
    policy.requires_grad_(False)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        # The class is kept, and so are `generate`, `config` and whoever asks for the model's body or head.
        inject_adapter_in_model(LoraConfig(r=rank, lora_alpha=alpha, target_modules="all-linear"), policy)  # type: ignore[arg-type]


def share_weights(model: PreTrainedModel) -> PreTrainedModel:
    """A copy that shares every frozen weight with the model and owns the others: a reference that costs no memory."""
    frozen = {id(weight): weight for weight in model.parameters() if not weight.requires_grad}
    return copy.deepcopy(model, frozen)


def adapter(policy: PreTrainedModel) -> dict[str, Tensor]:
    """The corrections' matrices by name; empty for a model without any."""
    return {name: weight.detach() for name, weight in policy.named_parameters() if "lora_" in name}


def load_adapter(policy: PreTrainedModel, tensors: dict[str, Tensor]) -> None:
    """Puts saved corrections back.

    Raises:
        ValueError: If they are not those of this model, or no floating numbers; the message names some.
    """
    own = adapter(policy)
    wrong = [name for name in own.keys() & tensors.keys() if own[name].shape != tensors[name].shape]
    wrong += [*(own.keys() ^ tensors.keys())]
    if wrong:
        raise ValueError(f"the LoRA in the checkpoint is not of this model and rank: {in_short(wrong)}")
    whole = [f"{name} ({tensor.dtype})" for name, tensor in tensors.items() if not tensor.is_floating_point()]
    if whole:
        raise ValueError(f"the LoRA in the checkpoint holds no floating numbers: {in_short(whole)}")
    for name, weight in own.items():
        weight.copy_(tensors[name])


@torch.no_grad()
def merged(policy: PreTrainedModel, start: PreTrainedModel) -> PreTrainedModel:
    """The policy as a plain model: the corrections added to copies of the weights.

    Args:
        policy: A model with corrections.
        start: The model without them, as `share_weights` made it before.
    """
    from peft.tuners.lora import Linear

    plain = copy.deepcopy(start)
    for name, module in policy.named_modules():
        if isinstance(module, Linear):
            weight = plain.get_submodule(name).weight
            assert isinstance(weight, Tensor)
            weight += module.get_delta_weight(module.active_adapters[0])
    return plain


def _check_installed() -> None:
    if importlib.util.find_spec("peft") is None:
        raise ValueError("LoRA needs the package peft: pip install peft")
