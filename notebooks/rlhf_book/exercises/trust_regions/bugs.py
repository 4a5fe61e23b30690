"""Find the bug: a trust region that bounds nothing, and conjugate gradients that forget their directions."""

from collections.abc import Callable

import torch
from torch import Tensor

from ..bug import Bug

# ── a KL that never grows ────────────────────────────────────────────────────────────────────────────────────────


def suspect_divergence(
    policy: Callable[[Tensor], Tensor], theta: Tensor
) -> Callable[[Tensor], Tensor]:
    """Parameters [N] -> the function that measures KL(old || new) from them."""

    def measure(new: Tensor) -> Tensor:
        old_logp = policy(theta).log_softmax(-1)
        logp = policy(new).log_softmax(-1)
        return (old_logp.exp() * (old_logp - logp)).sum()

    return measure


def longer_and_longer_steps(make: Callable[..., Callable[[Tensor], Tensor]]) -> None:
    """The parameters are moved in place, as an optimiser does."""
    theta = torch.tensor([0.5, 0.0, -0.5])
    measure = make(lambda x: x, theta)
    for length in (0.1, 1.0, 10.0):
        theta += torch.tensor([length, 0.0, 0.0])
        print(f"step {length:4.1f}: KL from the old policy {measure(theta).item():.4f}")


def a_moved_policy_is_away_from_the_old_one(
    make: Callable[..., Callable[[Tensor], Tensor]],
) -> None:
    """After a step in place, the KL has to be that of a step in a copy."""
    start, step = torch.tensor([0.5, 0.0, -0.5]), torch.tensor([1.0, 0.0, 0.0])
    copied = make(lambda x: x, start.clone())(start + step).item()
    theta = start.clone()
    measure = make(lambda x: x, theta)
    theta += step
    gap = abs(measure(theta).item() - copied)
    assert gap < 1e-6, f"moved in place, the KL differs by {gap:.4f}"


def mended_divergence(
    policy: Callable[[Tensor], Tensor], theta: Tensor
) -> Callable[[Tensor], Tensor]:
    """Parameters [N] -> the function that measures KL(old || new) from them."""
    old_logp = policy(theta).log_softmax(-1).detach().clone()

    def measure(new: Tensor) -> Tensor:
        logp = policy(new).log_softmax(-1)
        return (old_logp.exp() * (old_logp - logp)).sum()

    return measure


MOVING_OLD = Bug(
    id="tr-moving-old",
    title="a bound that is never reached",
    concept="trpo",
    minutes=5,
    statement="""
    The line search accepts every step at once, and after some steps the policy is ruined. The block moves the parameters further and
    further and prints the KL from the old policy. What is compared with what?
    """,
    wrong=suspect_divergence,
    symptom=longer_and_longer_steps,
    reveals=a_moved_policy_is_away_from_the_old_one,
    mended=mended_divergence,
    idea="""
    Print the old log-probs inside `measure` before and after a step in place. At which moment are they computed,
    and from which parameters?
    """,
    outline="""
    ```python
    old_logp = ...  # here, once, and with memory of its own
    def measure(new):
        logp = policy(new).log_softmax(-1)
        return ...  # uses old_logp, computes it no more
    ```
    """,
    moral="""
    The old policy is computed when it is asked for, from parameters that have moved in the meantime: the new policy is compared with
    itself. PPO has the same bug in another form, ratios that are always 1, when the old log-probs are computed again before each update.
    The habit: freeze what is called *old* once, right after sampling, and check that a step that you know to be large has a large KL.
    """,
)


# ── conjugate gradients ──────────────────────────────────────────────────────────────────────────────────────────


def suspect_conjugate_gradients(
    product: Callable[[Tensor], Tensor], b: Tensor, products: int
) -> Tensor:
    """Solves A x = b from products with A alone."""
    x, r, d = torch.zeros_like(b), b.clone(), b.clone()
    for _ in range(products):
        Ad = product(d)
        length = (r @ r) / (d @ Ad)
        x = x + length * d
        r = r - length * Ad
        d = r + (r @ r) / (r @ r) * d
    return x


def solve_three_unknowns(solve: Callable[..., Tensor]) -> None:
    """A has three different eigenvalues, so three products should do."""
    A, b = torch.diag(torch.tensor([1.0, 3.0, 10.0])), torch.ones(3)
    for products in (1, 2, 3, 4):
        x = solve(lambda v: A @ v, b, products)
        left = (A @ x - b).norm() / b.norm()
        print(f"{products} products: what is left is {left:.3f} of b")


def three_products_solve_three_unknowns(solve: Callable[..., Tensor]) -> None:
    """With n unknowns, n products solve the system but for rounding."""
    A = torch.tensor([[4.0, 1, 0], [1, 3, 1], [0, 1, 2]], dtype=torch.float64)
    b = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    left = (A @ solve(lambda v: A @ v, b, 3) - b).norm().item()
    assert left < 1e-9, f"after three products {left:.4f} is left"


def mended_conjugate_gradients(
    product: Callable[[Tensor], Tensor], b: Tensor, products: int
) -> Tensor:
    """Solves A x = b from products with A alone."""
    x, r, d = torch.zeros_like(b), b.clone(), b.clone()
    for _ in range(products):
        Ad = product(d)
        before = r @ r
        length = before / (d @ Ad)
        x = x + length * d
        r = r - length * Ad
        d = r + (r @ r) / before * d
    return x


OVERWRITTEN = Bug(
    id="tr-overwritten",
    title="a solver that does not arrive",
    concept="trpo",
    minutes=6,
    statement="""
    Conjugate gradients, written from memory. They run, and the steps of the policy look reasonable. The block solves a system of three
    unknowns. Which line is wrong, and why does nothing crash?
    """,
    wrong=suspect_conjugate_gradients,
    symptom=solve_three_unknowns,
    reveals=three_products_solve_three_unknowns,
    mended=mended_conjugate_gradients,
    idea=r"""
    The method needs $\lVert r_{\text{new}} \rVert^2 / \lVert r_{\text{old}} \rVert^2$. Print numerator and
    denominator of the quotient in the code. Which `r` does each of them see?
    """,
    outline="""
    ```python
    before = ...  # while r is still the old one
    ...  # x and r move on
    d = r + ... / before * d
    ```
    """,
    moral="""
    The new direction needs the squared residual after the update divided by the one before it. Here `r` is the new one in both places, so the
    quotient is 1 and the directions are not conjugate. Nothing crashes, because any vector is a direction. The habit: test a solver on a system
    whose answer is known, and print its residual in training.
    """,
)

BUGS = (MOVING_OLD, OVERWRITTEN)
