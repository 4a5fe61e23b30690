"""The optimiser: made here, and nowhere else, and its moments saved and restored with a checkpoint."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

MOMENTS = {"step", "exp_avg", "exp_avg_sq"}  # what the optimiser keeps for each parameter, and a checkpoint holds


def new_optimizer(
    parameters: Iterable[nn.Parameter], lr: float, *, eps: float = 1e-8, weight_decay: float = 0.0
) -> torch.optim.Optimizer:
    """The optimiser of every model that is trained here.

    Args:
        parameters: The parameters that it updates.
        lr: Learning rate.
        eps: Added to the denominator.
        weight_decay: 0 by default: in RL it would pull the weights of the start towards zero for no reward.
    """
    return torch.optim.AdamW(parameters, lr=lr, eps=eps, weight_decay=weight_decay)


def parameters_of(optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
    """The parameters that an optimiser updates."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def optimizer_tensors(optimizer: torch.optim.Optimizer, prefix: str) -> dict[str, Tensor]:
    """An optimiser's moments as named tensors: `<prefix>.<parameter number>.<moment>`."""
    state = optimizer.state_dict()["state"]
    return {f"{prefix}.{i}.{name}": value for i, moments in state.items() for name, value in moments.items()}


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor], prefix: str) -> None:
    """Restores the moments; learning rates and other settings come from the config, not from the file."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        if key.startswith(prefix + "."):
            number, name = key[len(prefix) + 1 :].split(".", 1)
            state.setdefault(int(number), {})[name] = value
    parameters = parameters_of(optimizer)
    if state and not 0 <= min(state) <= max(state) < len(parameters):
        raise ValueError(f"{prefix} holds moments of {max(state) + 1} tensors, and there are {len(parameters)}")
    for i, moments in state.items():
        if set(moments) != MOMENTS:
            raise ValueError(f"{prefix}.{i} holds {', '.join(sorted(moments))}, not the moments of AdamW")
        if any(moments[name].shape != parameters[i].shape for name in MOMENTS - {"step"}):
            raise ValueError(f"{prefix}.{i} is of another shape than its parameter")
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
