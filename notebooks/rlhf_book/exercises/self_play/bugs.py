"""Find the bug: a reward from the model's own majority, as it was once written."""

from collections.abc import Callable

from ..bug import Bug


def suspect_majority_reward(answers: list[str | None]) -> list[float]:
    """1 for each completion whose final answer is the most frequent of its group."""
    elected = max(answers, key=answers.count)
    return [float(answer == elected) for answer in answers]


def fewer_and_fewer_answers(reward: Callable[..., list[float]]) -> None:
    """A group of six, in which more and more completions stop without an answer."""
    for silent in range(4):
        answers = ["f", "f", "g", "h", "k", "m"][: 6 - silent] + [None] * silent
        print(f"{silent} without an answer: {reward(answers)}")


def silence_is_never_paid(reward: Callable[..., list[float]]) -> None:
    """A completion without an answer gets nothing, and takes nothing from the others."""
    for silent in range(1, 9):
        answers = ["f", "f", "g", *[None] * silent]
        paid = reward(answers)
        assert paid[3:] == [0.0] * silent, f"{silent} without an answer are paid {paid}"
        assert paid[:3] == [1.0, 1.0, 0.0], f"f leads with two votes, paid is {paid}"
    assert reward([None, None]) == [0.0, 0.0], "two that say nothing are no majority"


def mended_majority_reward(answers: list[str | None]) -> list[float]:
    """1 for each completion whose final answer is the most frequent of its group."""
    votes = [answer for answer in answers if answer is not None]
    elected = max(votes, key=votes.count) if votes else None
    return [float(answer is not None and answer == elected) for answer in answers]


SILENCE = Bug(
    id="votes-for-nothing",
    title="a majority for silence",
    concept="self-rewarding",
    minutes=5,
    statement="""
    A run pays each completion that agrees with its group's majority. The reward rises to 1 within some steps, and the completions
    become empty. The cell lets one completion after the other stop without a final answer. What should the last line say?
    """,
    wrong=suspect_majority_reward,
    symptom=fewer_and_fewer_answers,
    reveals=silence_is_never_paid,
    mended=mended_majority_reward,
    idea="""
    Let three of four completions have no answer. Which "answer" is the most frequent one?
    """,
    outline="""
    ```python
    votes = ...  # those that can be read
    elected = ...  # the most frequent of them, if there are any
    return [float(...) for answer in answers]  # no answer is paid nothing, whoever is elected
    ```
    """,
    moral="""
    A parser that finds no answer returns None, and None equals None. So all that cannot be read are one party, and as soon as it is
    the largest, silence is paid with 1. Leave them out of the election and out of the pay. The habit: feed every reward an empty
    completion, a cut one, and a group of nothing else, before the first run.
    """,
)

BUGS = (SILENCE,)
