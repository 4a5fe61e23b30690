"""A teacher with two modes and a student with one: every divergence of the chapter on distillation, tabulated.

The student has a single knob, the centre of a bell of fixed width, so it cannot be like the teacher. `fit` says where
each divergence puts it. `tabulate` is what the live figure shows.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

OUTCOMES, WIDTH, TOP = 12, 1.3, 3
CENTRES = torch.arange(0, 111, dtype=torch.float64) / 10


def bell(centre: Tensor | float, width: float = WIDTH) -> Tensor:
    """[..., 12] probabilities of a bell over the outcomes.

    Args:
        centre: [...] any numbers.
        width: its standard deviation, before it is cut at both ends.

    Returns:
        Probabilities that sum to 1.

    Example:
        >>> bell(3.0).argmax().item()
        3
    """
    x = torch.arange(OUTCOMES, dtype=torch.float64)
    c = torch.as_tensor(centre, dtype=torch.float64)[..., None]
    return (-((x - c) ** 2) / (2 * width**2)).softmax(-1)


def two_modes() -> Tensor:
    """[12]: the teacher. Six tenths stand around outcome 2, four tenths around outcome 8, little between.

    Example:
        >>> two_modes().sum().item(), two_modes().argmax().item()
        (1.0, 2)
    """
    return 0.6 * bell(2.0, 0.8) + 0.4 * bell(8.0, 0.8)


def kl(a: Tensor, b: Tensor) -> Tensor:
    """KL(a || b) over the last dimension; 0 log 0 is 0."""
    return (torch.xlogy(a, a) - torch.xlogy(a, b)).sum(-1)


def jsd(p: Tensor, u: Tensor, beta: float) -> Tensor:
    """The generalised Jensen-Shannon divergence of GKD: teacher u has weight beta in the mixture and outside of it."""
    m = beta * u + (1 - beta) * p
    return beta * kl(u, m) + (1 - beta) * kl(p, m)


def cut(p: Tensor, u: Tensor, k: int = TOP) -> Tensor:
    """The terms of KL(p || u) at the teacher's k most probable outcomes, and no others."""
    top = u.topk(k).indices
    a, b = p[..., top], u[top]
    return (torch.xlogy(a, a) - torch.xlogy(a, b)).sum(-1)


def with_rest(p: Tensor, u: Tensor, k: int = TOP) -> Tensor:
    """KL(p || u) after all but the teacher's k most probable outcomes have been put into one."""
    top = u.topk(k).indices
    a = torch.cat([p[..., top], 1 - p[..., top].sum(-1, keepdim=True)], dim=-1)
    return kl(a, torch.cat([u[top], 1 - u[top].sum(-1, keepdim=True)]))


DIVERGENCES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "forward": lambda p, u: kl(u, p),
    "jsd 0.1": lambda p, u: jsd(p, u, 0.1),
    "jsd 0.5": lambda p, u: jsd(p, u, 0.5),
    "jsd 0.9": lambda p, u: jsd(p, u, 0.9),
    "reverse": kl,
    "top 3, cut": cut,
    "top 3 and rest": with_rest,
}


def fit(name: str, u: Tensor | None = None) -> float:
    """The centre at which a divergence from the teacher is smallest, to a tenth.

    Args:
        name: one of `DIVERGENCES`.
        u: the teacher; default: `two_modes()`.

    Raises:
        KeyError: another name.

    Example:
        >>> fit("reverse"), 3.5 < fit("forward") < 5.5
        (1.9, True)
    """
    teacher = two_modes() if u is None else u
    return CENTRES[DIVERGENCES[name](bell(CENTRES), teacher).argmin()].item()


def logit_gradient(name: str, centre: float) -> Tensor:
    """[12]: the derivative of a divergence by each logit of the student, as if every logit were free.

    Args:
        name: one of `DIVERGENCES`.
        centre: where the student stands.

    Example:
        >>> bool(logit_gradient("forward", 2.0).sum().abs() < 1e-12)
        True
    """
    logits = bell(centre).log().requires_grad_()
    loss = DIVERGENCES[name](logits.softmax(-1), two_modes())
    return torch.autograd.grad(loss, logits)[0]


def tabulate() -> dict[str, Any]:
    """All that the live figure shows, as plain numbers.

    Returns:
        `table`: `teacher` [12]; `centres` [56]; `student` [56][12]; and by divergence `loss` [56], `gradient` [56][12] and
        `best`, the number of the centre with the smallest loss.
    """
    centres = CENTRES[::2]
    teacher, student = two_modes(), bell(centres)

    def numbers(x: Tensor) -> list[Any]:
        rounded: list[Any] = [round(v, 4) for v in x.flatten().tolist()]
        if x.ndim == 1:
            return rounded
        return [rounded[i : i + x.shape[1]] for i in range(0, len(rounded), x.shape[1])]

    table: dict[str, Any] = {
        "teacher": numbers(teacher),
        "centres": numbers(centres),
        "student": numbers(student),
        "divergences": {},
    }
    for name, divergence in DIVERGENCES.items():
        loss = divergence(student, teacher)
        gradient = torch.stack([logit_gradient(name, c) for c in centres.tolist()])
        table["divergences"][name] = {
            "loss": numbers(loss),
            "gradient": numbers(gradient),
            "best": int(loss.argmin()),
        }
    return {"table": table}
