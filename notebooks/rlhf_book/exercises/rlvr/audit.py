"""The two error rates of a verifier from an audit of what it passed and of what it failed."""

import torch
from torch import Generator

from ..exercise import Case, Exercise, Mistake
from ..mistakes import given


def my_rates(
    passed: int, failed: int, wrong_passed: float, right_failed: float
) -> tuple[float, float]:
    """(a, b): the share of wrong completions that pass, and of right ones that fail."""
    accepted, rejected = passed * wrong_passed, failed * right_failed
    wrong = accepted + failed * (1 - right_failed)
    right = rejected + passed * (1 - wrong_passed)
    return accepted / wrong, rejected / right


def _as_audited(
    passed: int, failed: int, wrong_passed: float, right_failed: float
) -> tuple[float, float]:
    return wrong_passed, right_failed


def _swapped(
    passed: int, failed: int, wrong_passed: float, right_failed: float
) -> tuple[float, float]:
    a, b = my_rates(passed, failed, wrong_passed, right_failed)
    return b, a


def _of_all(
    passed: int, failed: int, wrong_passed: float, right_failed: float
) -> tuple[float, float]:
    both = passed + failed
    return passed * wrong_passed / both, failed * right_failed / both


def _of_the_failed(
    passed: int, failed: int, wrong_passed: float, right_failed: float
) -> tuple[float, float]:
    return passed * wrong_passed / failed, failed * right_failed / passed


def _kept(
    passed: int, failed: int, wrong_passed: float, right_failed: float
) -> tuple[float, float]:
    a, b = my_rates(passed, failed, wrong_passed, right_failed)
    return 1 - a, 1 - b


def _draw(generator: Generator) -> Case:
    passed, failed = torch.randint(20, 500, (2,), generator=generator).tolist()
    shares = (0.02 + 0.6 * torch.rand(2, generator=generator)).tolist()
    return _case(passed, failed, *shares)


def _case(passed: int, failed: int, wrong_passed: float, right_failed: float) -> Case:
    return Case(
        {
            "passed": passed,
            "failed": failed,
            "wrong_passed": wrong_passed,
            "right_failed": right_failed,
        }
    )


AUDIT = Exercise(
    id="rlvr-audit",
    title="what an audit says about a verifier",
    concept="rlvr",
    minutes=10,
    difficulty="core",
    statement=r"""
    You cannot read every completion, so you read some that passed and some that failed. In a step's batch `passed` completions
    passed and `failed` failed. Of those that passed and that you read, a share `wrong_passed` was wrong; of those that failed, a
    share `right_failed` was right. Estimate the false-positive rate $a$ and the false-negative rate $b$ of this chapter:
    `my_rates(passed, failed, wrong_passed, right_failed)` gives `(a, b)`.

    Predict first: of 1000 completions 100 pass, and 3 in 10 of these are wrong; of the 900 that fail, all are wrong. Is the
    verifier a bad one, by $a$?
    """,
    solution=my_rates,
    cases=(
        _case(100, 900, 0.3, 0.0),
        _case(600, 400, 0.1, 0.2),
        _case(50, 50, 0.5, 0.25),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _as_audited,
            "That is the share of wrong ones among what passed. The rate asks for the share that passes among the wrong ones.",
        ),
        Mistake(_swapped, "The false negatives come second."),
        Mistake(
            _of_all,
            "You divide by all completions: a rate has only the wrong ones, or only the right ones, below the line.",
        ),
        Mistake(
            _of_the_failed,
            "Below the line of the first rate stand all wrong completions, also those that passed.",
        ),
        Mistake(
            given(my_rates, passed=1, failed=1),
            "The two piles are not equally large. Count completions before you divide.",
        ),
        Mistake(_kept, "You return how often the verdict is right."),
    ),
    where="How many wrong completions are there in all, in both piles together?",
    idea="""
    Draw a table of four: passed or failed, right or wrong. The piles and the shares that you read fill all four
    numbers. $a$ divides by all *wrong* ones, $b$ by all *right* ones.
    """,
    outline="""
    ```python
    accepted, rejected = ..., ...  # wrong but passed, right but failed
    wrong = accepted + ...
    right = rejected + ...
    return accepted / ..., rejected / ...
    ```
    """,
    right="Right. Here a is small and yet three of ten rewards went to wrong completions: with few right ones a small rate is much.",
)
