"""Find the bug: a verifier of programs, as it is often written."""

from collections.abc import Callable

from ..bug import Bug


def suspect_passes(program: Callable[[int], int], tests: dict[int, int]) -> float:
    """1 if the program passes the tests {input: output}, else 0."""
    for x, expected in tests.items():
        try:
            if program(x) != expected:
                return 0.0
        except Exception:  # no program may stop the training run
            continue
    return 1.0


def what_is_rewarded(passes: Callable[..., float]) -> None:
    """Programs for the tests of 3x + 7, with what each of them earns."""
    tests = {0: 7, 1: 10, 10: 37}
    for about, program in {
        "right": lambda x: 3 * x + 7,
        "wrong": lambda x: 3 * x,
        "right for 0, then stops": lambda x: 7 if x == 0 else [][x],
        "stops at once": lambda x: [][x],
    }.items():
        print(f"{about:24s}reward {passes(program, tests)}")


def only_right_outputs_pass(passes: Callable[..., float]) -> None:
    """A program passes only if it ends, on every test, with the test's output."""
    tests = {0: 7, 1: 10, 10: 37}
    assert passes(lambda x: 3 * x + 7, tests) == 1, "a right program earns 1"
    for about, program in {
        "wrong": lambda x: 3 * x,
        "right for 0 alone": lambda x: 7,
        "stops at once": lambda x: [][x],
        "right, but stops for 10": lambda x: 3 * x + 7 if x < 10 else 1 // 0,
        "gives nothing": lambda x: None,
    }.items():
        earned = passes(program, tests)
        assert earned == 0, f"a program that is {about!r} earned {earned}"


def mended_passes(program: Callable[[int], int], tests: dict[int, int]) -> float:
    """1 if the program passes the tests {input: output}, else 0."""
    for x, expected in tests.items():
        try:
            output = program(x)
        except Exception:  # no program may stop the training run
            return 0.0
        if output != expected:
            return 0.0
    return 1.0


STOPPED = Bug(
    id="rlvr-lenient-tests",
    title="a policy that stops writing programs",
    concept="rlvr",
    minutes=5,
    statement="""
    The reward is 1 if a program passes its tests. Programs come from a model, so they may be broken in every way, and the verifier must not
    raise. Soon the mean reward is 1, and the completions are one line long. (In earnest a program of a model runs in a sandbox.)
    """,
    wrong=suspect_passes,
    symptom=what_is_rewarded,
    reveals=only_right_outputs_pass,
    mended=mended_passes,
    idea="""
    Give the code a program that always raises an error. Which line does it run through for each test, and what is
    returned at the end?
    """,
    outline="""
    ```python
    try:
        output = program(x)
    except Exception:
        ...  # no answer is what kind of answer?
    ```
    """,
    moral="""
    A test that could not be carried out was skipped, and so it counted as passed: what always stops with an error passed everything. Whatever
    goes wrong while a completion is judged (an error, no answer, a time limit) has to be a failure, and be counted in a
    metric of its own. The habit: give the verifier an empty completion, a broken one and one that never ends before the first step.
    """,
)

BUGS = (STOPPED,)
