"""Whatever a reader's function does, its checker says in bounded time, and in one sentence, what is wrong."""

import asyncio
import builtins
import io
import itertools
import math
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest
import torch

from rlhf_book.exercises import BUGS, EXERCISES, Verdict, check, hint
from rlhf_book.exercises import exercise as machinery
from rlhf_minimal.timeouts import call_with_timeout

PLAIN, LOSS = "grpo-leave-one-out", "grpo-clipped-loss"  # what they return is compared; the gradient, too


def spin():
    while True:
        pass


def swallow():
    try:
        time.sleep(60)
    except BaseException:  # ours among them
        time.sleep(60)


def catch_most():
    while True:
        try:
            time.sleep(0.01)
        except Exception:
            pass


def recurse():
    return recurse()


class Speechless(Exception):
    def __str__(self):
        raise RuntimeError("no words")


class Backwards(torch.autograd.Function):
    """Whose gradient does what `Backwards.act` does."""

    @staticmethod
    def forward(context, x):
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        return Backwards.act()


def throws(error):
    def function():
        raise error

    return function


def endless():
    numbers = [1.0]
    numbers.append(numbers)
    return numbers


async def later():
    return 1.0


def grows():
    yield 1.0


HANGING = {"spins": spin, "sleeps": lambda: time.sleep(60), "swallows": swallow, "catches": catch_most}
WRONG = {
    "raises": (throws(KeyError("x")), "raised KeyError: 'x'. It was called with"),
    "raises lines": (throws(RuntimeError("a\n\nb" + "c" * 5000)), "raised RuntimeError: a bccc"),
    "raises nothing to read": (throws(AssertionError()), "raised AssertionError. It was called with"),
    "raises what cannot be read": (throws(Speechless()), "raised Speechless. It was called with"),
    "runs out of time itself": (throws(TimeoutError("mine")), "raised TimeoutError: mine."),
    "exits": (sys.exit, "raised SystemExit. It was called"),
    "exits with words": (lambda: sys.exit("bye"), "raised SystemExit: bye."),
    "recurses": (recurse, "raised RecursionError"),
    "holds itself": (endless, "raised RecursionError"),
    "wants all memory": (lambda: bytearray(10**18), "raised MemoryError"),
    "wants all of torch's": (lambda: torch.zeros(10**16), "raised RuntimeError"),
    "none": (lambda: None, "returned None"),
    "nones": (lambda: [None, None], "returned a list, expected numbers"),
    "text": (lambda: "1", "returned a str"),
    "bytes": (lambda: b"1", "returned a bytes"),
    "a set": (lambda: {1.0}, "returned a set"),
    "a function": (lambda: math.sqrt, "returned a builtin_function_or_method"),
    "a class without a name": (lambda: type("", (), {})(), "returned a "),
    "a coroutine": (later, "returned a coroutine"),
    "a generator": (grows, "returned a generator"),
    "a range without end": (lambda: range(10**12), "returned a range"),
    "a complex": (lambda: 1j, "returned a complex"),
    "complex numbers": (lambda: torch.ones(3, dtype=torch.complex64), "returned a tensor of torch.complex64"),
    "sparse": (lambda: torch.eye(3).to_sparse(), "returned a tensor that is sparse"),
    "without values": (lambda: torch.ones(3, device="meta"), "returned a tensor without values"),
    "larger than memory": (lambda: torch.ones(1).expand(10**14), "returned a tensor of 100,000,000,000,000 numbers"),
    "larger, of numpy": (lambda: np.broadcast_to(np.float64(1), (10**7, 10**7)), "returned a ndarray"),
    "objects": (lambda: np.array([None, "x"], dtype=object), "returned a ndarray"),
    "of two shapes": (lambda: (torch.ones(2), torch.ones(3)), "returned a tuple"),
    "no number": (lambda: math.nan, "."),
    "nothing at all": (lambda: [], "returned a list, expected numbers"),
    "truth": (lambda: torch.tensor([[[True]]]), "The shape is (1, 1, 1)"),
    "integers": (lambda: torch.tensor([[[7]]], dtype=torch.uint8), "The shape is (1, 1, 1)"),
}


def rejected(exercise, function, words, *, within=30.0):
    began = time.monotonic()
    verdict = check(exercise, function)
    assert time.monotonic() - began < within
    assert not verdict.passed
    assert words in verdict.message
    assert verdict.message == " ".join(verdict.message.split())
    assert len(verdict.message) < 1500
    assert "<div" in verdict._repr_html_()
    # Nothing is left behind that could strike later.
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL
    assert torch.is_grad_enabled()
    return verdict


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(machinery, "_SECONDS", 0.1)


def patient_at_first(monkeypatch, calls):
    """So many calls of the function have a minute each: a right answer takes long on a busy machine."""
    seen = itertools.count()
    monkeypatch.setattr(
        machinery,
        "call_with_timeout",
        lambda call, seconds: call_with_timeout(call, 60.0 if next(seen) < calls else seconds),
    )


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("exercise", [PLAIN, LOSS])
@pytest.mark.parametrize("name", WRONG)
def test_a_function_that_is_no_answer(name, exercise):
    act, words = WRONG[name]
    rejected(exercise, lambda *given: act(), words)


@pytest.mark.parametrize("exercise", EXERCISES)
def test_every_exercise_survives_all_of_them(exercise):
    for act in (throws(KeyError("x")), sys.exit, *(act for name, (act, _) in WRONG.items() if name[0] in "acnst")):
        rejected(exercise, lambda *given, act=act: act(), "")


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("exercise", [PLAIN, LOSS])
@pytest.mark.parametrize("name", HANGING)
def test_a_function_that_hangs(name, exercise):
    words = "takes longer than 0.1 seconds. Is there a loop that does not end? It was called with"
    rejected(exercise, lambda *given: HANGING[name](), words)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("right", [1, 30])
def test_a_function_that_hangs_later(monkeypatch, right):
    patient_at_first(monkeypatch, right)
    solution, calls = EXERCISES[LOSS].solution, itertools.count()
    verdict = rejected(LOSS, lambda *given: solution(*given) if next(calls) < right else spin(), "a loop that does not")
    assert verdict.message.startswith("Right on the first example, but not on others. Your function takes longer")


@pytest.mark.usefixtures("impatient")
def test_a_function_that_hangs_while_its_mistake_is_looked_for(monkeypatch):
    patient_at_first(monkeypatch, 1)
    calls = itertools.count()
    rejected(PLAIN, lambda *given: 7.0 if next(calls) == 0 else spin(), "a loop that does not end")
    assert next(calls) == 2  # it is not tried again and again


def test_a_function_that_is_slow_throughout(monkeypatch):
    monkeypatch.setattr(machinery, "_TOGETHER", 0.3)
    solution, calls = EXERCISES[PLAIN].solution, itertools.count()

    def slow(*given):
        next(calls)
        time.sleep(0.05)
        return solution(*given)

    rejected(PLAIN, slow, "too slow to be tried on all cases: they took longer than 0.3 seconds together")
    assert next(calls) < 10


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (throws(KeyError("x")), "What your function returns has no gradient, but an error: KeyError: 'x'."),
        (throws(SystemExit(3)), "What your function returns has no gradient, but an error: SystemExit: 3."),
        (spin, "a loop that does not end"),
        (lambda: None, "The value is right, but no gradient reaches `logp`"),
        (lambda: torch.ones(7, 9), "What your function returns has no gradient, but an error: RuntimeError"),
    ],
)
def test_a_gradient_of_its_own_that_misbehaves(act, words, monkeypatch):
    monkeypatch.setattr(Backwards, "act", staticmethod(act), raising=False)
    if act is spin:
        monkeypatch.setattr(machinery, "_SECONDS", 0.1)
    solution = EXERCISES[LOSS].solution
    rejected(LOSS, lambda logp, *rest: solution(Backwards.apply(logp), *rest), words)


def test_what_is_written_over_before_the_gradient():
    def over(logp, *rest):
        ratio = logp.exp()
        loss = ratio.square().sum()
        ratio += 1
        return loss

    rejected(LOSS, over, "What your function returns has no gradient, but an error: RuntimeError: one of the variables")


TENSORS = {
    name: [key for key, x in e.cases[0].arguments.items() if torch.is_tensor(x)] for name, e in EXERCISES.items()
}


@pytest.mark.parametrize("name", [name for name in TENSORS if TENSORS[name]])
def test_writing_into_any_tensor_is_seen(monkeypatch, name):
    monkeypatch.setattr(machinery, "HIDDEN_DRAWS", 40)  # a wrong answer meets the first twenty at most
    exercise = EXERCISES[name]
    argument = TENSORS[name][0]
    place = list(exercise.cases[0].arguments).index(argument)

    def change(*given):
        answer = exercise.solution(*[x.clone() if torch.is_tensor(x) else x for x in given])
        given[place].detach().fill_(77)
        return answer

    rejected(name, change, f"changed its argument `{argument}` in place")
    exercise.check(lambda *given: given[place].detach().resize_(0))
    assert exercise.check(exercise.solution)  # nothing of it has reached the cases


def test_switching_gradients_off_for_good_hides_nothing():
    calls = itertools.count()

    def off(*given):
        answer = EXERCISES[LOSS].solution(*given)
        torch.set_grad_enabled(False)
        return answer if next(calls) == 0 else answer.detach()

    rejected(LOSS, off, "no gradient reaches `logp`")


def test_one_tensor_for_all_answers_is_read_when_it_is_returned():
    """A buffer that every call writes into holds the last answer only."""
    solution = EXERCISES["grpo-closed-form"].solution
    buffer = torch.zeros(2, dtype=torch.float64)

    def buffered(*given):
        return buffer.copy_(-torch.as_tensor(solution(*given), dtype=torch.float64))

    assert "Every number has the wrong sign." in rejected("grpo-closed-form", buffered, "").message


def test_ctrl_c_comes_through():
    with pytest.raises(KeyboardInterrupt):
        check(PLAIN, lambda *given: throws(KeyboardInterrupt())())


def test_off_the_main_thread_and_inside_a_running_loop(monkeypatch):
    """A widget's callback may run in another thread; a notebook's cells run inside an event loop."""
    found = []

    def try_both(hanging):
        monkeypatch.setattr(machinery, "_SECONDS", 0.2)
        found.append(check(PLAIN, hanging))
        monkeypatch.undo()
        found.append(check(LOSS, EXERCISES[LOSS].solution))

    def work():
        try_both(lambda *given: time.sleep(2))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(60)

    async def cell():
        try_both(lambda *given: spin())

    asyncio.run(cell())
    assert [verdict.passed for verdict in found] == [False, True] * 2
    assert all("a loop that does not end" in verdict.message for verdict in found[::2])


def test_a_call_that_is_left_behind_puts_nothing_back_when_it_ends(monkeypatch):
    """Off the main thread nothing can end it: it ends later, in the middle of another check."""
    monkeypatch.setattr(machinery, "_SECONDS", 0.05)
    go_on, calls = threading.Event(), []

    def hanging(*given):
        calls.append(threading.current_thread())
        go_on.wait(60)

    thread = threading.Thread(target=lambda: check(PLAIN, hanging))
    thread.start()
    thread.join(60)
    monkeypatch.setattr(machinery, "_SECONDS", 10.0)
    monkeypatch.setattr(machinery, "HIDDEN_DRAWS", 7)
    go_on.set()
    for call in calls:
        call.join(60)
    assert len(calls) == 1
    assert (machinery._SECONDS, machinery.HIDDEN_DRAWS) == (10.0, 7)


@pytest.mark.parametrize("name", [None, 3, "", "\ud800", ("grpo-advantage",), ["grpo-advantage"], check])
def test_what_is_no_exercise(name):
    with pytest.raises(ValueError, match="there is no exercise"):
        check(name, lambda *given: None)


# ── and leaves nothing behind ────────────────────────────────────────────────────────────────────────────────────────


class Unheard(BaseException):
    """Neither an `Exception` nor an exit."""


def right(*given):
    return EXERCISES[PLAIN].solution(*given)


def says_the_same(*_, **__):
    return True


def vandal(change):
    """A right answer that changes something on the way."""

    def function(*given):
        answer = right(*given)
        change()
        return answer

    return function


def patch(place, name, value):
    return lambda: setattr(place, name, value)


LEFT_BEHIND = {
    "the default dtype": lambda: torch.set_default_dtype(torch.float16),
    "the default device": lambda: torch.set_default_device("meta"),
    "gradients": lambda: torch.set_grad_enabled(False),
    "deterministic algorithms": lambda: torch.use_deterministic_algorithms(True),
    "threads": lambda: torch.set_num_threads(torch.get_num_threads() + 1),
    "the recursion limit": lambda: sys.setrecursionlimit(2000),
    "a seed": lambda: torch.manual_seed(3),
    "a seed of Python's": lambda: random.seed(3),
    "a seed of numpy's": lambda: np.random.seed(3),  # noqa: NPY002
    "output": lambda: setattr(sys, "stdout", io.StringIO()),
    "the comparison of torch": patch(torch, "allclose", says_the_same),
    "a method of tensors": patch(torch.Tensor, "double", lambda self: torch.zeros(())),
    "the comparison": patch(machinery, "_same", says_the_same),
    "its parts": patch(machinery, "_equal", says_the_same),
    "the checker": patch(machinery.Exercise, "check", lambda self, function: Verdict(self.id, True, "hurrah")),
    "the verdict": patch(machinery.Verdict, "__bool__", lambda self: True),
    "the judge's call": patch(machinery.Exercise, "_run", lambda *_: machinery._Outcome(torch.zeros(()))),
    "the time limit": patch(machinery, "call_with_timeout", lambda call, seconds: call()),
    "a builtin": patch(builtins, "len", lambda thing: 0),
    "the interrupt": lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    "the alarm": lambda: signal.signal(signal.SIGALRM, signal.SIG_DFL),
    "a timer": lambda: signal.setitimer(signal.ITIMER_REAL, 0.01),
    "warnings": lambda: warnings.simplefilter("error"),
}


def names(*places):
    """Every name of these places and which object it is.

    A submodule that was imported stays. `__warningregistry__` is Python's: it appears in whatever module runs when a
    warning is given, even by the collector of garbage.
    """
    return {
        f"{place.__name__}.{name}": id(value)
        for place in places
        for name, value in vars(place).items()
        if not isinstance(value, ModuleType) and name != "__warningregistry__"
    }


def settings():
    """Whatever the next exercise depends on."""
    return {
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "gradients": torch.is_grad_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "threads": torch.get_num_threads(),
        "recursion": sys.getrecursionlimit(),
        "output": sys.stdout,
        "random": (torch.get_rng_state().tolist(), random.getstate(), str(np.random.get_state())),  # noqa: NPY002
        "names": names(torch, torch.Tensor, builtins, machinery, machinery.Exercise),
        "signals": [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGALRM, signal.SIGVTALRM)],
        "timer": signal.getitimer(signal.ITIMER_REAL),
        "filters": list(warnings.filters),
    }


def test_a_timer_of_the_call_does_not_shorten_its_time():
    def call():
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        time.sleep(0.1)
        return "done"

    assert call_with_timeout(call, 60) == "done"
    with pytest.raises(TimeoutError):  # and it has no more time than it was given
        call_with_timeout(lambda: (signal.setitimer(signal.ITIMER_REAL, 0.01), time.sleep(60)), 0.2)


@pytest.mark.parametrize("what", LEFT_BEHIND)
def test_no_answer_has_an_effect_on_the_next_verdict(monkeypatch, what):
    monkeypatch.setattr(machinery, "_SECONDS", 120.0)  # a first call may make torch import a part of itself
    monkeypatch.setattr(machinery, "HIDDEN_DRAWS", 20)  # for the sake of time
    monkeypatch.setitem(EXERCISES, PLAIN, replace(EXERCISES[PLAIN]))  # one that has not drawn them yet
    check(PLAIN, lambda *given: torch.zeros(3))  # what torch imports on its first call is no change of the answer's
    change, before = LEFT_BEHIND[what], settings()
    assert check(PLAIN, vandal(change))
    assert settings() == before

    def wrong(*given):
        change()
        return torch.zeros(3)

    verdict = check(PLAIN, wrong)
    assert verdict.passed is False, "the change has not helped"
    assert settings() == before

    def failing(*given):
        change()
        raise Unheard

    assert "raised Unheard." in check(PLAIN, failing).message
    assert settings() == before
    assert check(PLAIN, right)
    assert "The sign is the other way round" in check(PLAIN, lambda *given: -right(*given)).message


@pytest.mark.parametrize("error", [Unheard("so"), GeneratorExit("so"), asyncio.CancelledError("so"), SystemExit("so")])
@pytest.mark.parametrize("exercise", [PLAIN, LOSS])
def test_no_kind_of_error_escapes(error, exercise):
    def raising(*_):
        raise error

    assert f"raised {type(error).__name__}: so." in check(exercise, raising).message


def test_a_patch_inside_a_mended_version_does_not_help_it():
    """The property that reveals a bug is asked with the functions as they were."""
    before = settings()

    def patched(*given, **named):
        torch.Tensor.abs = lambda self: torch.zeros(())
        builtins.abs = lambda x: 0
        torch.set_default_dtype(torch.float64)
        return BUGS["gae-padding-leak"].wrong(*given, **named)

    assert "a property that your version does not have" in check("gae-padding-leak", patched).message
    assert settings() == before
    assert check("gae-padding-leak", BUGS["gae-padding-leak"].mended)


FIGHTS = """
import signal, sys, threading, time

from rlhf_book.exercises import EXERCISES, check
from rlhf_book.exercises import exercise as machinery

def spin():
    while True:
        pass

def ignore(): signal.signal(signal.SIGALRM, signal.SIG_IGN)
def like(): signal.signal(signal.SIGALRM, lambda *_: None)
def give_back(): signal.signal(signal.SIGALRM, signal.SIG_DFL)
def switch_off(): signal.setitimer(signal.ITIMER_REAL, 0)
def block(): signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})

if "traced" in sys.argv:
    def trace(*_): return trace
    sys.settrace(trace)
    threading.settrace(trace)
machinery._SECONDS = 0.5
right = EXERCISES["grpo-leave-one-out"].solution
if "traced" in sys.argv:
    machinery.HIDDEN_DRAWS = 100
for take in (ignore, like, give_back, switch_off, block):
    for hang in (spin, lambda: time.sleep(60)):
        began = time.monotonic()
        verdict = check("grpo-leave-one-out", lambda *_: (take(), hang()))
        assert "takes longer than 0.5 seconds" in verdict.message, verdict
        assert time.monotonic() - began < 20
        assert signal.getsignal(signal.SIGALRM) == signal.getsignal(signal.SIGURG) == signal.SIG_DFL
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())
    machinery._SECONDS = 10.0
    assert check("grpo-leave-one-out", right)
    machinery._SECONDS = 0.5
time.sleep(1)
assert threading.active_count() == 1, threading.enumerate()
print("all have a verdict")
"""


@pytest.mark.parametrize("how", ["plain", "traced"])
def test_a_function_that_takes_the_alarm_over_gets_its_verdict(how):
    """In a process of its own, which a mistake here may end or hang; traced, as for a report of coverage."""
    done = subprocess.run([sys.executable, "-c", FIGHTS, how], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, "all have a verdict\n"), done.stderr


@pytest.mark.parametrize("level", [1.0, "2"])
def test_a_level_of_a_hint_that_is_no_whole_number_is_told_the_range(level):
    with pytest.raises(ValueError, match=f"no hint {level!r} for 'grpo-k3': expected a level from 1 to 3"):
        hint("grpo-k3", level)
