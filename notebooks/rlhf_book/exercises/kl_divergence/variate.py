"""The best multiple of the control variate inside k3."""

import torch
from torch import Generator, Tensor

from ..draws import integer
from ..exercise import Case, Exercise, Mistake
from ..mistakes import negated, swapped


def my_best_multiple(policy: Tensor, reference: Tensor) -> Tensor:
    """[V] probabilities -> the number of least variance for d + c (exp(-d) - 1)."""
    d = torch.log(policy / reference)
    x = torch.exp(-d) - 1  # its mean under the policy is 0
    covariance = (policy * d * x).sum()
    return -covariance / (policy * x**2).sum()


def _k3(policy: Tensor, reference: Tensor) -> Tensor:
    return torch.ones((), dtype=policy.dtype)


def _by_reference(policy: Tensor, reference: Tensor) -> Tensor:
    d = torch.log(policy / reference)
    x = torch.exp(-d) - 1
    return -(reference * d * x).sum() / (reference * x**2).sum()


def _unweighted(policy: Tensor, reference: Tensor) -> Tensor:
    d = torch.log(policy / reference)
    x = torch.exp(-d) - 1
    return -(d * x).sum() / (x**2).sum()


def _of_d(policy: Tensor, reference: Tensor) -> Tensor:
    d = torch.log(policy / reference)
    x = torch.exp(-d) - 1
    mean = (policy * d).sum()
    return -(policy * d * x).sum() / (policy * (d - mean) ** 2).sum()


def _half(policy: Tensor, reference: Tensor) -> Tensor:
    return my_best_multiple(policy, reference) / 2


def _draw(generator: Generator) -> Case:
    size = integer(generator, 2, 7)
    both = torch.randn(2, size, generator=generator, dtype=torch.float64).softmax(-1)
    return Case({"policy": both[0], "reference": both[1]})


def _case(policy: list[float], reference: list[float]) -> Case:
    return Case(
        {
            "policy": torch.tensor(policy, dtype=torch.float64),
            "reference": torch.tensor(reference, dtype=torch.float64),
        }
    )


VARIATE = Exercise(
    id="kl-variate",
    title="a better k3",
    concept="kl-estimators",
    minutes=15,
    difficulty="core",
    statement=r"""
    $k_3$ adds $e^{-d} - 1$, whose mean is 0, to $d$. Any multiple of it would do: for every constant $c$

    $$k(c) = d + c\, (e^{-d} - 1)$$

    has the mean $\mathrm{KL}(\pi \,\|\, \pi_{ref})$. Which $c$ has the least variance on samples of $\pi$? Write
    `my_best_multiple(policy, reference)` for two lists of probabilities `[V]`, all above 0 and not equal to each other;
    the result is one number. The page withheld the step: the variance is a parabola in $c$.
    """,
    solution=my_best_multiple,
    cases=(
        _case([0.7, 0.2, 0.1], [0.2, 0.3, 0.5]),
        _case([0.36, 0.33, 0.31], [0.34, 0.33, 0.33]),
        _case([0.9, 0.1], [0.1, 0.9]),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            negated(my_best_multiple),
            "The sign: where d is large, exp(-d) - 1 is small, so their covariance is negative.",
        ),
        Mistake(
            _k3,
            "That is k3 itself. It is the best choice only in the limit of equal policies.",
        ),
        Mistake(
            _by_reference,
            "You take the means under the reference. The samples come from the policy.",
        ),
        Mistake(
            _unweighted,
            "You average over outcomes without their probabilities. Which distribution are the samples drawn from?",
        ),
        Mistake(
            swapped(my_best_multiple, "policy", "reference"),
            "Policy and reference are exchanged.",
        ),
        Mistake(
            _of_d,
            "You divide by the variance of d. The parabola's square term belongs to what c multiplies.",
        ),
        Mistake(
            _half,
            "Half of the right number: differentiate the parabola once more, by hand.",
        ),
    ),
    where="Write the variance of k(c) as Var(d) + 2 c Cov + c^2 Var, and set its derivative to 0.",
    idea=r"""
    Call $x = e^{-d} - 1$; its mean under $\pi$ is 0. So $\mathrm{Cov}(d, x)$ is the mean of $d\,x$, and
    $\mathrm{Var}(x)$ the mean of $x^2$: no mean has to be subtracted. The lowest point of a parabola $\alpha + 2
    \beta c + \gamma c^2$ is where?
    """,
    outline="""
    ```python
    d = ...
    x = ...  # mean 0 under the policy
    covariance = ...  # a sum weighted by the policy
    return -covariance / ...
    ```
    """,
    right="Right. Near the reference it tends to 1, which is k3. Why can nobody use it in training as it stands?",
)
