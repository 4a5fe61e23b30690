"""The smallest dose of verified completions at which the right answer earns most."""

import torch
from torch import Generator, Tensor

from ..draws import integer
from ..exercise import Case, Exercise, Mistake
from ..mistakes import given


def my_dose(yes: Tensor, found: float) -> float:
    """[A] rates of yes, answer 0 is right -> the smallest share to verify."""
    lead = max(0.0, (yes[1:].max() - yes[0]).item())
    return lead / (lead + found)


def _mean(yes: Tensor, found: float) -> float:
    lead = max(0.0, (yes[1:].mean() - yes[0]).item())
    return lead / (lead + found)


def _lead(yes: Tensor, found: float) -> float:
    return max(0.0, (yes[1:].max() - yes[0]).item())


def _unclamped(yes: Tensor, found: float) -> float:
    lead = (yes[1:].max() - yes[0]).item()
    return lead / (lead + found)


def _odds(yes: Tensor, found: float) -> float:
    return max(0.0, (yes[1:].max() - yes[0]).item()) / found


def _errors(yes: Tensor, found: float) -> float:
    return 1 - yes[0].item()


def _draw(generator: Generator) -> Case:
    yes = torch.rand(integer(generator, 3, 6), generator=generator, dtype=torch.float64)
    found = 0.2 + 0.7 * torch.rand(1, generator=generator).item()
    return Case({"yes": yes, "found": found})


def _case(yes: list[float], found: float) -> Case:
    return Case({"yes": torch.tensor(yes, dtype=torch.float64), "found": found})


DOSE = Exercise(
    id="play-dose",
    title="a verifier that misses some",
    concept="f-verifier-dose",
    minutes=10,
    difficulty="core",
    statement=r"""
    A completion is verified with probability $d$, and else judged. The judge says yes to answer $a$ with probability
    `yes[a]`; answer 0 is right. The verifier never accepts a wrong answer, but it knows a right one only with probability `found`
    (it cannot read every form). Write `my_dose(yes, found)`: the smallest $d$ at which the right answer earns at least as much
    as every other one.

    Predict first: the judge says yes to the right answer with 0.6 and to nine wrong ones with 0.1, 0.1, ..., 0.1, 0.9. It is a
    good judge of nearly all of them. How large is the dose with `found` at 1, and at 0.5?
    """,
    solution=my_dose,
    cases=(
        _case([0.4, 0.7, 0.2], 1.0),
        _case([0.6, 0.1, 0.1, 0.9], 0.5),
        _case([0.9, 0.3], 0.8),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            given(my_dose, found=1.0),
            "This verifier pays a right answer only if it knows it.",
        ),
        Mistake(
            _mean,
            "You compare with the average wrong answer. Training goes to the one that is paid best.",
        ),
        Mistake(
            _lead,
            "Verified completions are not judged: the judge's lead counts only for the share 1 - d.",
        ),
        Mistake(
            _unclamped, "A judge that is right needs no dose, and no negative one."
        ),
        Mistake(
            _odds, "That is the ratio of verified to judged ones, not the share of all."
        ),
        Mistake(_errors, "Compare answers with each other, not with a perfect judge."),
    ),
    where="Write down what the right answer earns, and what the best paid wrong one earns.",
    idea=r"""
    The right answer earns $d \cdot \text{found} + (1-d) \cdot \text{yes}_0$, a wrong one $(1-d) \cdot
    \text{yes}_a$. Only the best paid wrong answer matters. Set the two equal; where the judge already ranks them
    rightly no dose is needed.
    """,
    outline="""
    ```python
    lead = max(0.0, ...)  # by how much the judge prefers a wrong answer
    return lead / (...)
    ```
    """,
    right="Right. One wrong answer that the judge overrates decides, however good the judge is on average.",
)
