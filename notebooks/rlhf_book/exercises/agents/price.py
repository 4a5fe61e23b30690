"""The highest price at which calling a tool still pays."""

from torch import Generator

from ..draws import integer, uniform
from ..exercise import Case, Exercise, Mistake


def my_highest_price(right_with: float, right_without: float, calls: int) -> float:
    """The price of a call at which both policies earn the same."""
    return (right_with - right_without) / calls


def _whole(right_with: float, right_without: float, calls: int) -> float:
    return right_with - right_without


def _ratio(right_with: float, right_without: float, calls: int) -> float:
    return right_with / (right_without * calls)


def _with_alone(right_with: float, right_without: float, calls: int) -> float:
    return right_with / calls


def _turned(right_with: float, right_without: float, calls: int) -> float:
    return (right_without - right_with) / calls


def _one_more(right_with: float, right_without: float, calls: int) -> float:
    return (right_with - right_without) / (calls + 1)


def _relative(right_with: float, right_without: float, calls: int) -> float:
    return (right_with - right_without) / right_without / calls


def _draw(generator: Generator) -> Case:
    a, b = uniform(generator, 2).tolist()
    return Case(
        {
            "right_with": 0.5 + 0.5 * a,
            "right_without": 0.02 + 0.4 * b,
            "calls": integer(generator, 2, 6),
        }
    )


PRICE = Exercise(
    id="agents-price",
    title="when asking stops to pay",
    concept="tool-that-pays",
    minutes=10,
    difficulty="core",
    statement=r"""
    A completion is paid 1 if it is right, less $c$ for each call. A policy that makes $n$ calls is right with probability
    `right_with`; without them it guesses, and is right with `right_without`. Write `my_highest_price(right_with, right_without, calls)`: the $c$ at
    which both earn the same. Then put in a *trained* policy of this chapter that asks twice (0.95 and 0.06), and a *beginner* that asks
    twice and adds badly (0.13 and 0.06). What happens at a price between the two, to each of them?
    """,
    solution=my_highest_price,
    cases=(
        Case({"right_with": 0.95, "right_without": 0.06, "calls": 2}),
        Case({"right_with": 0.13, "right_without": 0.06, "calls": 2}),
        Case({"right_with": 1.0, "right_without": 0.1, "calls": 3}),
    ),
    draw=_draw,
    mistakes=(
        Mistake(_turned, "The sign is turned: what calls add is positive here."),
        Mistake(
            _whole, "That is the price of all calls together. Asked is that of one."
        ),
        Mistake(_with_alone, "Without the calls the policy is right sometimes, too."),
        Mistake(
            _one_more, "You divide by one call too many: the answer itself is free."
        ),
        Mistake(
            _relative,
            "That is a gain relative to guessing. Rewards are subtracted, not divided.",
        ),
        Mistake(_ratio, "Rewards are subtracted, not divided."),
    ),
    where="Set the expected reward with calls equal to that without them.",
    idea="""
    With calls a completion earns `right_with` minus the price of all its calls. Without them it earns
    `right_without`. Set the two equal.
    """,
    outline="""
    Bring the price to one side: it is a difference of two chances, shared out over something. Over what?
    """,
    right="Right. Between the two prices the trained policy goes on asking, and the beginner stops and never learns what to do with an answer: raise prices after the skill, not before.",
)
