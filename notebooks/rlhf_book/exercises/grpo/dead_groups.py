"""The share of groups without a signal."""

import torch
from torch import Generator, Tensor

from ..draws import integer, uniform
from ..exercise import Case, Exercise, Mistake


def my_dead_share(p: Tensor, group_size: int) -> Tensor:
    """p [P], a chance per prompt -> scalar: the expected share of groups with A = 0."""
    return (p**group_size + (1 - p) ** group_size).mean()


def _mean_first(p: Tensor, group_size: int) -> Tensor:
    return p.mean() ** group_size + (1 - p.mean()) ** group_size


def _all_right(p: Tensor, group_size: int) -> Tensor:
    return (p**group_size).mean()


def _all_wrong(p: Tensor, group_size: int) -> Tensor:
    return ((1 - p) ** group_size).mean()


def _alive(p: Tensor, group_size: int) -> Tensor:
    return 1 - my_dead_share(p, group_size)


def _times(p: Tensor, group_size: int) -> Tensor:
    return (p * group_size + (1 - p) * group_size).mean()


def _each_prompt(p: Tensor, group_size: int) -> Tensor:
    return p**group_size + (1 - p) ** group_size


def _summed(p: Tensor, group_size: int) -> Tensor:
    return _each_prompt(p, group_size).sum()


def _both_at_once(p: Tensor, group_size: int) -> Tensor:
    return (p**group_size * (1 - p) ** group_size).mean()


def _draw_chances(generator: Generator) -> Case:
    p = uniform(generator, integer(generator, 1, 9))
    return Case({"p": p, "group_size": integer(generator, 2, 17)})


DEAD_GROUPS = Exercise(
    id="grpo-dead-groups",
    title="how many groups are wasted?",
    concept="zero-std-groups",
    minutes=5,
    difficulty="warm-up",
    statement=r"""
    A completion of prompt $j$ is right with probability $p_j$, independently of the others. A group in which all $G$
    completions are right, or all wrong, has advantage 0. Write `my_dead_share(p, group_size)`: `p` is `[P]`, and the
    result is the expected share of such groups in a batch with one group a prompt. Then try half the prompts at
    $p = 0.1$ and half at $p = 0.9$, with $G = 8$, beside all prompts at $p = 0.5$: the mean of $p$ is the same.
    """,
    solution=my_dead_share,
    cases=(
        Case({"p": torch.tensor([0.5]), "group_size": 4}),
        Case({"p": torch.tensor([0.1]), "group_size": 2}),
        Case({"p": torch.tensor([0.1, 0.9]), "group_size": 8}),
        Case({"p": torch.tensor([0.0, 1.0, 0.25]), "group_size": 3}),
    ),
    draw=_draw_chances,
    mistakes=(
        Mistake(
            _mean_first,
            "You average p first. Dead groups come from the extremes: a prompt at 0.1 and one at 0.9 waste far more "
            "than two at 0.5.",
        ),
        Mistake(
            _all_right,
            "You count the groups in which all are right. What about those where all are wrong?",
        ),
        Mistake(
            _all_wrong,
            "You count the groups in which all are wrong. What about those where all are right?",
        ),
        Mistake(
            _alive,
            "This is the share of groups that teach something: the exercise asks for the others.",
        ),
        Mistake(
            _times,
            "A group is dead when every one of its completions agrees: independent events multiply.",
        ),
        Mistake(
            _each_prompt,
            "One number a prompt: the exercise asks for the share in the whole batch.",
        ),
        Mistake(
            _summed, "This is the expected number of dead groups, not their share."
        ),
        Mistake(
            _both_at_once,
            "All right and all wrong cannot happen together: they exclude each other.",
        ),
    ),
    where="List the four outcomes of a group of two: with which probability does each happen?",
    idea="""
    A group is dead in two ways that exclude each other: all $G$ right, or all $G$ wrong. Write the chance of each
    for one prompt. The expected share is the mean over prompts of the chance, not the chance at the mean.
    """,
    outline="""
    ```python
    dead = ... + ...  # [P], for each prompt
    return dead.mean()
    ```
    """,
    right="Right. Twice as many samples a prompt kill fewer groups, but never those of a prompt with p = 0 or 1.",
)
