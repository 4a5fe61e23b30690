"""How many groups are decided by the format alone."""

from torch import Generator, Tensor

from ..draws import integer, uniform
from ..exercise import Case, Exercise, Mistake
from ..mistakes import given, swapped


def my_format_groups(p: Tensor, f: Tensor, G: int) -> Tensor:
    """[N] and [N] chances of right and tidy -> [N]: groups decided by format."""
    equal = p**G + (1 - p) ** G
    return equal * (1 - f**G - (1 - f) ** G)


def _wrong_only(p: Tensor, f: Tensor, G: int) -> Tensor:
    return (1 - p) ** G * (1 - f**G - (1 - f) ** G)


def _any_format(p: Tensor, f: Tensor, G: int) -> Tensor:
    return p**G + (1 - p) ** G


def _mixed(p: Tensor, f: Tensor, G: int) -> Tensor:
    return (1 - p**G - (1 - p) ** G) * (1 - f**G - (1 - f) ** G)


def _some(p: Tensor, f: Tensor, G: int) -> Tensor:
    return (p**G + (1 - p) ** G) * (1 - (1 - f) ** G)


def _summed(p: Tensor, f: Tensor, G: int) -> Tensor:
    return p**G + (1 - p) ** G - f**G - (1 - f) ** G


def _draw(generator: Generator) -> Case:
    n = integer(generator, 1, 5)
    return Case(
        {
            "p": 0.02 + 0.96 * uniform(generator, n),
            "f": 0.02 + 0.96 * uniform(generator, n),
            "G": integer(generator, 2, 9),
        }
    )


def _case(p: list[float], f: list[float], G: int) -> Case:
    import torch

    return Case(
        {
            "p": torch.tensor(p, dtype=torch.float64),
            "f": torch.tensor(f, dtype=torch.float64),
            "G": G,
        }
    )


DECIDED = Exercise(
    id="r1-decided",
    title="who decides in a group",
    concept="r1-zero",
    minutes=10,
    difficulty="core",
    statement=r"""
    A completion is right with probability $p$ and tidy with probability $f$, independently, and a group has $G$ of them.
    If rightness is the same in the whole group and tidiness is not, the z-score hands the group to the format, whatever its weight.
    Write `my_format_groups(p, f, G)`: the share of such groups.

    Predict first: $p = 0.15$, $f = 0.4$ and $G = 8$, the base of this chapter. A tenth, a quarter, a half? And after a cold start, with
    $p = 0.37$ and $f = 0.87$?
    """,
    solution=my_format_groups,
    cases=(
        _case([0.15, 0.37], [0.4, 0.87], 8),
        _case([0.9, 0.5, 0.1], [0.2, 0.7, 0.5], 3),
        _case([0.95], [0.6], 2),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _wrong_only,
            "All wrong is one way for rightness to say nothing. There is another.",
        ),
        Mistake(
            _any_format,
            "In some of these groups the format is the same for all as well, and nothing decides.",
        ),
        Mistake(
            _mixed, "Those are the groups in which both vary, so rightness has a say."
        ),
        Mistake(_some, "If all are tidy, the format separates nobody."),
        Mistake(
            swapped(my_format_groups, "p", "f"),
            "You have exchanged the two: these are groups that rightness decides alone.",
        ),
        Mistake(
            given(my_format_groups, G=lambda G: G - 1),
            "The group has G completions; none of them is fixed beforehand.",
        ),
        Mistake(
            _summed,
            "Both events must happen in the same group, and they are independent.",
        ),
    ),
    where="Write the chance that G independent draws are all alike, once for rightness, once for the format.",
    idea="""
    Rightness is the same in a whole group with the chance $p^G + (1-p)^G$. Tidiness is *not* the same with 1 minus
    such a chance. The two are independent.
    """,
    outline="""
    ```python
    equal = ... + ...  # [N], all right or all wrong
    return equal * (...)  # and not all tidy or all untidy
    ```
    """,
    right="Right. A weight cannot help in these groups, because the spread by which the z-score divides carries the same weight. "
    "This is for questions alike; easy and hard ones leave more ties: after the cold start rightness ties in 0.03 of the "
    "groups by the formula, and in 0.10 (training questions) to 0.13 (held out) as counted.",
)
