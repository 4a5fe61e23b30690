"""LoRA: a trainable low-rank correction is added to every frozen matrix, with the package peft."""

import copy
import importlib.util

import torch
from torch import Tensor
from transformers import PreTrainedModel

from rlhf_minimal.models.weights import in_short


def add_lora(policy: PreTrainedModel, *, rank: int, alpha: float = 32.0, seed: int = 0) -> None:
    """Freezes a model and gives every linear layer but the vocabulary head a trainable correction of low rank.

    A layer then computes W x + (alpha / rank) B A x with A of [rank, in] and B of [out, rank]. B begins at 0, so
    at first the model computes the same as before. The model keeps its class and its names: only its linear layers are
    wrapped.

    Chapter: scaling-up-in-depth. Paper: arXiv 2106.09685, equation 3.

    Args:
        policy: A causal language model of transformers; changed in place.
        rank: The rank of the correction.
        alpha: The correction is multiplied by alpha / rank.
        seed: Seed of A's random weights; the global random state does not change.

    Raises:
        ValueError: If peft is not installed, the rank is below 1, or the model already has such corrections.
    """
    if importlib.util.find_spec("peft") is None:
        raise ValueError("LoRA needs the package peft: pip install peft")
    from peft import LoraConfig, inject_adapter_in_model

    if rank < 1:
        raise ValueError(f"the rank must be at least 1; got {rank}")
    if adapter(policy):
        raise ValueError("this model has a LoRA already")
    policy.requires_grad_(False)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        # The model keeps its class, so `generate`, `config` and access to its body and head work as before.
        inject_adapter_in_model(LoraConfig(r=rank, lora_alpha=alpha, target_modules="all-linear"), policy)  # type: ignore[arg-type]


def share_weights(model: PreTrainedModel) -> PreTrainedModel:
    """A copy that shares every frozen weight with the model and owns the others: a reference that costs no memory."""
    frozen = {id(weight): weight for weight in model.parameters() if not weight.requires_grad}
    return copy.deepcopy(model, frozen)


def adapter(policy: PreTrainedModel) -> dict[str, Tensor]:
    """The corrections' matrices by name; empty for a model without any."""
    return {name: weight.detach() for name, weight in policy.named_parameters() if "lora_" in name}


def load_adapter(policy: PreTrainedModel, tensors: dict[str, Tensor]) -> None:
    """Copies saved corrections into a model.

    Args:
        policy: A model with corrections; changed in place.
        tensors: Floating-point numbers, by the names that `adapter` gives.

    Raises:
        ValueError: If they are not those of this model; the message names some.
    """
    own = adapter(policy)
    wrong = [name for name in own.keys() & tensors.keys() if own[name].shape != tensors[name].shape]
    wrong += [*(own.keys() ^ tensors.keys())]
    if wrong:
        raise ValueError(f"the LoRA in the checkpoint does not fit this model and rank: {in_short(wrong)}")
    for name, weight in own.items():
        weight.copy_(tensors[name])


@torch.no_grad()
def merged(policy: PreTrainedModel, start: PreTrainedModel) -> PreTrainedModel:
    """The policy as an ordinary model: the corrections are added to copies of the weights.

    Args:
        policy: A model with corrections.
        start: The model without them, as `share_weights` made it before they were added.
    """
    from peft.tuners.lora import Linear

    plain = copy.deepcopy(start)
    for name, module in policy.named_modules():
        if isinstance(module, Linear):
            weight = plain.get_submodule(name).weight
            assert isinstance(weight, Tensor)
            weight += module.get_delta_weight(module.active_adapters[0])
    return plain
