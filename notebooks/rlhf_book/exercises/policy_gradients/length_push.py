"""What a mean over tokens pushes where every completion is paid alike."""

from torch import Generator

from ..draws import integer, uniform
from ..exercise import Case, Exercise, Mistake
from ..mistakes import given, negated


def my_length_push(
    p: float, short: int, long: int, reward: float, baseline: float
) -> float:
    """The mean push on the logit x of ending early; p = sigmoid(x)."""
    return p * (1 - p) * (reward - baseline) * (1 / short - 1 / long)


def _paid_alike(
    p: float, short: int, long: int, reward: float, baseline: float
) -> float:
    return 0.0 * p


def _baseline_outside(
    p: float, short: int, long: int, reward: float, baseline: float
) -> float:
    return my_length_push(p, short, long, reward, 0.0) - baseline * p * (1 - p)


def _sum_of_tokens(
    p: float, short: int, long: int, reward: float, baseline: float
) -> float:
    return p * (1 - p) * (reward - baseline) * (short - long)


def _no_chance(
    p: float, short: int, long: int, reward: float, baseline: float
) -> float:
    return (reward - baseline) * (1 / short - 1 / long)


def _short_alone(
    p: float, short: int, long: int, reward: float, baseline: float
) -> float:
    return p * (1 - p) * (reward - baseline) / short


def _not_weighted(
    p: float, short: int, long: int, reward: float, baseline: float
) -> float:
    return (reward - baseline) * ((1 - p) / short - p / long)


def _draw(generator: Generator) -> Case:
    p, reward, baseline = uniform(generator, 3).tolist()
    short = integer(generator, 1, 9)
    return Case(
        {
            "p": 0.05 + 0.9 * p,
            "short": short,
            "long": short + integer(generator, 0, 30),
            "reward": reward,
            "baseline": baseline,
        }
    )


def _case(p: float, short: int, long: int, reward: float, baseline: float) -> Case:
    return Case(
        {
            "p": p,
            "short": short,
            "long": long,
            "reward": reward,
            "baseline": baseline,
        }
    )


LENGTH_PUSH = Exercise(
    id="pg-length-push",
    title="paid alike, and still pushed",
    concept="policy-gradient",
    minutes=10,
    difficulty="core",
    statement=r"""
    A policy makes one decision: with probability $p = 1/(1 + e^{-x})$ its completion has `short` tokens, otherwise
    `long` tokens. All other tokens are certain. Both completions get the same `reward`, so the expected reward does
    not depend on $x$. Now the loss is *averaged* over the tokens of a completion: its weight is
    $(R - b) / |o|$, with a constant `baseline` $b$. Write `my_length_push`: the mean of
    $\frac{R - b}{|o|}\, \frac{\partial}{\partial x} \log \pi(o)$. Predict first: do completions get shorter or
    longer with $R = 0$ and $b = 0.5$? And with $R = 1$ and $b = 2$?
    """,
    solution=my_length_push,
    cases=(
        _case(0.5, 2, 8, 1.0, 0.0),
        _case(0.5, 2, 8, 0.0, 0.5),
        _case(0.5, 2, 8, 1.0, 2.0),
        _case(0.3, 1, 4, 1.0, 0.75),
        _case(0.9, 3, 3, 1.0, 0.25),
        _case(0.2, 5, 20, 0.5, 0.5),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _paid_alike,
            "The expected reward is flat, but the mean over tokens follows the gradient of something else. What does it "
            "weigh a short completion by?",
        ),
        Mistake(
            negated(my_length_push),
            "The wrong way round. With a reward of 1 and no baseline, which completion has the larger weight?",
        ),
        Mistake(
            given(my_length_push, baseline=0.0),
            "You left the baseline out, as if it changed nothing. Does its part still sum to zero when it is divided by "
            "the length?",
        ),
        Mistake(
            _baseline_outside,
            "The baseline is subtracted from the reward, so it is divided by the length as well.",
        ),
        Mistake(
            _sum_of_tokens,
            "You multiply by the lengths. A mean over tokens divides by them.",
        ),
        Mistake(
            _no_chance,
            "Each completion counts as often as it is drawn, and its score is not 1.",
        ),
        Mistake(
            _short_alone,
            "What the long completion pushes is missing.",
        ),
        Mistake(
            _not_weighted,
            "These are the two scores with their weights. How often is each completion drawn?",
        ),
    ),
    where="The scores are 1 - p for the short completion and -p for the long one. Average weight times score over both.",
    idea="""
    There are two completions. Write a row for each: probability, weight $(R - b)/|o|$, score. The push is the sum
    of the two products, and $p(1-p)$ is in both of them.
    """,
    outline="""
    Push = (probability × weight × score of the short one) + (the same of the long one). The scores have opposite
    signs, so after taking out $p(1-p)$ and $R - b$ a *difference* of two terms is left, one for each length. Which
    ones?
    """,
    right=(
        "Right. This is the derivative of E[(R - b)/|o|]. Above the baseline the policy learns to be short, below it to "
        "be long, although the reward asks for neither."
    ),
)
