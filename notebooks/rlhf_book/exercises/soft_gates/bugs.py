"""Find the bug: a gate that lost its stop-gradient."""

from collections.abc import Callable

import torch
from torch import Tensor

from ..bug import Bug


def suspect_weight(ratio: Tensor, advantage: Tensor, cap: float) -> Tensor:
    """CISPO's objective per token: the weight is clipped, the gradient stays."""
    return ratio.clamp(max=cap) * advantage


def pull_of_a_ratio(gate: Callable[..., Tensor]) -> None:
    """One good token, further and further from the sampler, cap 5."""
    for w in (0.5, 1.0, 4.0, 6.0, 20.0):
        logp = torch.tensor([[w]]).log().requires_grad_()
        gate(logp.exp(), torch.ones(1, 1), 5.0).sum().backward()
        assert logp.grad is not None
        print(f"ratio {w:4.1f}: weight on grad log pi {logp.grad.item():.2f}")


def every_token_keeps_a_gradient(gate: Callable[..., Tensor]) -> None:
    """At every ratio and for both signs the weight on grad log pi is the clipped ratio times the advantage."""
    for w in (0.25, 1.0, 4.9, 5.1, 30.0):
        for sign in (1.0, -2.0):
            logp = torch.tensor([[w]], dtype=torch.float64).log().requires_grad_()
            gate(logp.exp(), torch.full((1, 1), sign).double(), 5.0).sum().backward()
            assert logp.grad is not None
            found, expected = logp.grad.item(), min(w, 5.0) * sign
            assert abs(found - expected) < 1e-9, (
                f"at a ratio of {w:g} and A = {sign:g} the weight is {found:.3f}, expected {expected:.3f}"
            )


def mended_weight(ratio: Tensor, advantage: Tensor, cap: float) -> Tensor:
    """CISPO's objective per token: the weight is clipped, the gradient stays."""
    weight = ratio.detach().clamp(max=cap)
    return weight / ratio.detach() * ratio * advantage


FLAT_TOP = Bug(
    id="flat-top",
    title="every token keeps a gradient, does it?",
    concept="cispo",
    minutes=5,
    statement="""
    "Clip the weight, keep every token": this gate has a cap of 5, and the loss looks right at every ratio. The rare words that the method was made for
    still stop learning within a rollout. The cell prints the weight on the gradient of the log-probability. What should the last two lines say?
    """,
    wrong=suspect_weight,
    symptom=pull_of_a_ratio,
    reveals=every_token_keeps_a_gradient,
    mended=mended_weight,
    idea="""
    Differentiate the objective at a ratio above the cap. The value is right there. Where is the gradient?
    """,
    outline=r"""
    The weight is a number, and the gradient has to come through another factor: one whose value is 1 and whose
    derivative is that of $\log\pi$.

    ```python
    weight = ...  # capped, and without gradient
    return weight * ... * advantage
    ```
    """,
    moral="""
    The clipped ratio is differentiated, and above the cap it is a constant: the objective is flat there, and the gradient 0. That is a clip without its
    minimum, for both signs. CISPO's weight is a number: it is detached, and the gradient comes through another factor, the log-probability or the
    ratio over itself. The habit: differentiate a gate at ratios on both sides of its bound; the value does not tell.
    """,
)

BUGS = (FLAT_TOP,)
