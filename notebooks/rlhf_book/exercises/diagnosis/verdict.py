"""Name the disease from five numbers of a dashboard."""

from torch import Generator

from ..draws import integer, uniform
from ..exercise import Case, Exercise, Mistake
from ..mistakes import given


def my_verdict(
    gap_first: float, gap_last: float, trained: float, agreement: float, rise: float
) -> int:
    """Five numbers of a run -> the number of its likeliest cause, 0 for none."""
    if abs(trained - 1) > 0.001:
        return 1
    if gap_first > 1e-3:
        return 2
    if gap_last > 1e-3:
        return 3
    if agreement < -0.2:
        return 4
    return 5 if rise < -0.05 else 0


def _no_order(
    gap_first: float, gap_last: float, trained: float, agreement: float, rise: float
) -> int:
    if rise < -0.05:
        return 5
    return my_verdict(gap_first, gap_last, trained, agreement, rise)


def _stale_first(
    gap_first: float, gap_last: float, trained: float, agreement: float, rise: float
) -> int:
    if abs(trained - 1) <= 0.001 and gap_last > 1e-3:
        return 3
    return my_verdict(gap_first, gap_last, trained, agreement, rise)


def _exact(
    gap_first: float, gap_last: float, trained: float, agreement: float, rise: float
) -> int:
    if abs(trained - 1) > 0.001:
        return 1
    if gap_first > 0:
        return 2
    return my_verdict(gap_first, gap_last, trained, agreement, rise)


def _any_fall(
    gap_first: float, gap_last: float, trained: float, agreement: float, rise: float
) -> int:
    found = my_verdict(gap_first, gap_last, trained, agreement, rise)
    return 5 if found == 0 and rise < 0 else found


def _sign_by_reward(
    gap_first: float, gap_last: float, trained: float, agreement: float, rise: float
) -> int:
    found = my_verdict(gap_first, gap_last, trained, agreement, rise)
    return 4 if found == 5 else found


def _one(generator: Generator, *choices: float) -> float:
    return choices[integer(generator, 0, len(choices))]


def _draw(generator: Generator) -> Case:
    first = _one(generator, 1e-7, 1e-7, 0.05)
    return _case(
        first,
        max(first, _one(generator, 1e-7, 1e-7, 0.2)),
        _one(generator, 1.0, 1.0, 1.0, 0.8, 1.05),
        _one(generator, 0.95, 0.95, -0.9),
        round(0.7 * uniform(generator, 1).item() - 0.3, 3),
    )


def _case(
    gap_first: float, gap_last: float, trained: float, agreement: float, rise: float
) -> Case:
    return Case(
        {
            "gap_first": gap_first,
            "gap_last": gap_last,
            "trained": trained,
            "agreement": agreement,
            "rise": rise,
        }
    )


VERDICT = Exercise(
    id="diag-verdict",
    title="five numbers of an unseen run",
    concept="diagnosis",
    minutes=10,
    difficulty="warm-up",
    statement=r"""
    Five numbers of a run: the gap between trainer and sampler in the first step and in the last, the share of sampled
    tokens that is trained, the agreement of advantages with rewards, and by how much the reward has risen. Write
    `my_verdict(gap_first, gap_last, trained, agreement, rise)`, which returns the number of the likeliest cause:

    1 the mask lacks tokens or has too many, 2 sampler and trainer compute different distributions, 3 the sampler is stale, 4 the advantage has the
    wrong sign, 5 the sign is wrong further on, in the ratio or the loss, 0 nothing stands out.

    Of several, name the one whose number a healthy loop knows best, in the order 1 to 5. That order is by certainty, not by harm. Thresholds: 0.001 from 1 for `trained`, to either side, 0.001
    for gaps, -0.2 for the agreement, -0.05 for the rise. Predict first: the gap is 0.05 in both, agreement -0.9, the reward has fallen
    by 0.2. What do you mend first, and what do you look at after that?
    """,
    solution=my_verdict,
    cases=(
        _case(1e-7, 1e-7, 1.0, 0.95, -0.2),
        _case(0.05, 0.05, 1.0, -0.9, -0.2),
        _case(1e-7, 0.2, 1.0, 0.95, 0.1),
        _case(1e-7, 1e-7, 0.8, 0.95, 0.3),
        _case(1e-7, 1e-7, 1.05, 0.95, 0.3),
        _case(1e-7, 1e-7, 1.0, 0.95, -0.01),
        _case(1e-7, 1e-7, 1.0, -0.9, -0.2),
        _case(0.05, 0.05, 0.8, -0.9, -0.2),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _no_order,
            "A falling reward has many causes: ask first what has only one.",
        ),
        Mistake(
            _stale_first,
            "A stale sampler agrees with the trainer as long as nothing has been trained.",
        ),
        Mistake(
            given(my_verdict, trained=1.0),
            "You never look at the share of trained tokens.",
        ),
        Mistake(
            given(my_verdict, trained=lambda trained: min(trained, 1.0)),
            "More tokens trained than were sampled is off the value, too: padding is read.",
        ),
        Mistake(_exact, "Rounding leaves a gap of 1e-7, and that is no disease."),
        Mistake(
            _any_fall, "Rewards are noisy: a fall within the threshold says nothing."
        ),
        Mistake(
            _sign_by_reward,
            "The advantages agree with the rewards there, so the sign is lost further on.",
        ),
    ),
    where="Go through the causes in the order of their numbers, and return at the first that fits.",
    idea="""
    There are five questions in the order 1 to 5, each with one threshold, and the first yes is the answer.
    `trained` may miss 1 to either side; the agreement and the rise are bad when they are low.
    """,
    outline="""
    ```python
    if abs(...) > 0.001:
        return 1
    if ...:
        return 2
    ...  # 3 and 4 in the same way
    return 5 if ... else 0
    ```
    """,
    right="Right. Mend what has one explanation, run again, and only then look at what has several.",
)
