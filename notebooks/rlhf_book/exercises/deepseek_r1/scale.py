"""By how much to scale a reward model's score beside a rule."""

from torch import Generator

from ..draws import uniform
from ..exercise import Case, Exercise, Mistake
from ..mistakes import given


def my_scale(rule: float, model: float, share: float, wanted: float) -> float:
    """Two spreads, share of prompts, wanted share of the push -> factor."""
    return wanted * (1 - share) * rule / ((1 - wanted) * share * model)


def _equal(rule: float, model: float, share: float, wanted: float) -> float:
    return rule / model


def _prompts(rule: float, model: float, share: float, wanted: float) -> float:
    return wanted * rule / ((1 - wanted) * model)


def _spread(rule: float, model: float, share: float, wanted: float) -> float:
    return wanted * (1 - share) / ((1 - wanted) * share)


def _inverse(rule: float, model: float, share: float, wanted: float) -> float:
    return 1 / my_scale(rule, model, share, wanted)


def _ratio(rule: float, model: float, share: float, wanted: float) -> float:
    return wanted * (1 - share) * rule / (share * model)


def _draw(generator: Generator) -> Case:
    rule, model, share, wanted = (0.1 + 0.8 * uniform(generator, 4)).tolist()
    return Case({"rule": rule, "model": 3 * model, "share": share, "wanted": wanted})


SCALE = Exercise(
    id="r1-scale",
    title="a score beside a rule",
    concept="r1-recipe",
    minutes=10,
    difficulty="core",
    statement=r"""
    In one batch a share $m$ of the prompts is scored by a reward model, with spread `model` (standard deviation) within a group, the
    others by a rule with spread `rule`. The advantage is the reward minus the group's mean, *without* a division. Say that a kind of
    prompt pushes with its share of the prompts times its spread. Write `my_scale(rule, model, share, wanted)`: the factor by which the
    scores must be multiplied, so that the prompts with a reward model have the share `wanted` of the whole push.

    Predict first: with spreads 0.4 and 2 and half of the prompts each, which share of the push do the scores have unscaled? Which
    factor makes it one half? And under a z-score, at any factor: if all groups differ, and if a third of the rule's groups are alike?
    """,
    solution=my_scale,
    cases=(
        Case({"rule": 0.4, "model": 2.0, "share": 0.5, "wanted": 0.5}),
        Case({"rule": 0.3, "model": 0.6, "share": 0.25, "wanted": 0.4}),
        Case({"rule": 0.5, "model": 1.5, "share": 0.8, "wanted": 0.2}),
    ),
    draw=_draw,
    mistakes=(
        Mistake(_equal, "That makes the spreads equal, whatever share is wanted."),
        Mistake(_prompts, "How many prompts of each kind there are counts as well."),
        Mistake(_spread, "You have left out how far the two rewards spread."),
        Mistake(_inverse, "Upside down: a wider score needs a smaller factor."),
        Mistake(
            _ratio, "A share of the whole is wanted, not a ratio of one to the other."
        ),
        Mistake(
            given(my_scale, rule=lambda rule: rule**2, model=lambda model: model**2),
            "The push grows with the standard deviation, not the variance.",
        ),
    ),
    where="Write the share of the push with an unknown factor, and solve for it.",
    idea=r"""
    With a factor $x$ the model's prompts push $m \cdot x \cdot \text{model}$ and the rule's $(1-m) \cdot
    \text{rule}$. The wanted share is the first over the sum of both.
    """,
    outline="""
    Write share = (…)/(… + …), multiply the denominator to the left, and collect the terms with $x$: what stands on
    the other side carries `wanted` and `1 - share`.

    ```python
    return ... / (...)
    ```
    """,
    right="Right. With the z-score the factor drops out; what counts is the share of the groups that are not all alike: "
    "0.5 if all differ, and 0.6 if a third of the rule's groups are alike.",
)
