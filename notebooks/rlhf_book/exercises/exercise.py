"""How an exercise is written down, and how a reader's function is judged.

An exercise is a statement, a solution, cases of growing difficulty and the mistakes that people make, each as a small
wrong function with the sentence that helps. The checker never looks at the reader's text, only at what the function
returns (and at its gradient, where the exercise is about a loss):

1. the batch printed in the chapter, 2. cases that each separate one mistake from the right answer, 3. a thousand
drawn batches. At the first difference it asks which known mistake gives the same numbers on every case so far.

Whatever the function does, there is a verdict, and the next one does not depend on it: it may raise, exit, run for
ever (see `timeouts` for what can be cut off), change settings and names (see `world`), or return no number at all.

Left out on purpose: timing, style, and any way of reading the solution out of a verdict.
"""

import ast
import html
import inspect
import re
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Generator, Tensor

from rlhf_minimal.timeouts import TimeoutInterrupt, call_with_timeout

from .cells import FOR_READERS, as_code, levels
from .world import World, left_as_it_is, made_with

HIDDEN_DRAWS = 1000
_SEED = 20240205  # of the drawn batches; every run draws the same ones
# Routes that differ in rounding agree within this, in single precision too; no mistake on a list is that small.
_RTOL, _ATOL = 5e-4, 1e-5
_SECONDS = 10.0  # that a reader's function may take for one call; a solution takes about a millisecond
_TOGETHER = 60.0  # and for all of them
_LARGEST = (
    10**6
)  # numbers in an answer; an expanded tensor may claim more than any memory holds
_STUB = "This is still the stub: write your code where it returns `...`."
_ALSO_THE_SIGN = "The sign is wrong, and it is not the only mistake. "
_ONLY_SHOWN = "Right on the first example, but not on others. "


@dataclass(frozen=True)
class Verdict:
    """What the checker says. True if the function passed; shows itself as text or as a box in a notebook.

    Example:
        >>> Verdict("an-exercise", False, "The sign is wrong.")
        Not yet (an-exercise). The sign is wrong.
        >>> bool(Verdict("an-exercise", True, "Right."))
        True
    """

    exercise: str
    passed: bool
    message: str
    begun: bool = True  # False for the stub as it was printed

    def __bool__(self) -> bool:
        return self.passed

    def __repr__(self) -> str:
        return f"{'Passed' if self.passed else 'Not yet'} ({self.exercise}). {self.message}"

    def _ipython_display_(self) -> None:
        """A notebook shows nothing for a stub: it is no wrong answer. Otherwise the forms below."""
        if self.begun:
            raise NotImplementedError

    def _repr_html_(self) -> str:
        colour = (
            "#0072B2" if self.passed else "#D55E00"
        )  # the book's colours of the two signs
        head = f"{'✓ Passed' if self.passed else '✗ Not yet'}"
        return (
            f'<div role="status" style="border-left: 4px solid {colour}; padding: 0.3em 0.8em; margin: 0.3em 0">'
            f"<strong>{head}</strong> <code>{html.escape(self.exercise)}</code><br>{html.escape(self.message)}</div>"
        )


@dataclass(frozen=True)
class Case:
    """One call: the arguments by name, in the order of the signature.

    Args:
        arguments: name -> tensor, number or text.
        exact: the answer has to be equal to the last bit, as the zeros of a constant group have.
        kind: what sort of input it is, in a few words; a wrong answer that nobody foresaw is told which sorts it fails.
    """

    arguments: dict[str, Any]
    exact: bool = False
    kind: str = ""

    @property
    def size(self) -> int:
        """How many numbers it holds; the smallest failing case is the one worth printing."""
        return sum(
            x.numel() if isinstance(x, Tensor) else 1 for x in self.arguments.values()
        )

    def __str__(self) -> str:
        small = self.size <= 40
        shown = (
            (name, x if small or not isinstance(x, Tensor) else x.shape)
            for name, x in self.arguments.items()
        )
        return ", ".join(f"{name}={_show(x)}" for name, x in shown)


@dataclass(frozen=True)
class Mistake:
    """A wrong answer people give, and what to tell them: what is wrong and where to look, never the solution."""

    wrong: Callable[..., Any]
    message: str


@dataclass(frozen=True)
class _Outcome:
    value: Tensor | None = None
    gradient: Tensor | None = None
    problem: str | None = None

    def times(self, sign: int) -> "_Outcome":
        value, gradient = (
            None if x is None else sign * x for x in (self.value, self.gradient)
        )
        return _Outcome(value, gradient, self.problem)


@dataclass(frozen=True)
class Exercise:
    """Everything about one exercise, in one place: the chapter, the checker and the tests all read it here.

    Args:
        id: chapter and topic, hyphenated; never changes.
        title: a few words.
        concept: what it practises, an id of the book's concept list.
        minutes: for a reader who has just read the section.
        difficulty: "warm-up", "core" or "stretch".
        statement: Markdown; says what goes in, what comes out, and every convention the checker insists on.
        solution: a plain function whose first docstring is the stub's; `solution("id")` prints its source.
        cases: the chapter's own batch first, then cases that each catch something.
        draw: one random batch, from the generator alone.
        mistakes: in the order in which they are tried.
        where: where to look: the first hint, and what is said when no known mistake fits.
        right: what to say, and to think about next, when it passes.
        idea: the second hint: the thought, or the intermediate quantity to write down.
        outline: the third hint: the shape of the code, with gaps where it decides.
        gradient_of: the argument whose gradient is compared too, for losses; or several.
    """

    id: str
    title: str
    concept: str
    minutes: int
    difficulty: str
    statement: str
    solution: Callable[..., Any]
    cases: tuple[Case, ...]
    draw: Callable[[Generator], Case]
    mistakes: tuple[Mistake, ...]
    where: str
    right: str
    idea: str
    outline: str
    gradient_of: str | tuple[str, ...] | None = None

    @property
    def markdown(self) -> str:
        """The statement as the chapter shows it."""
        head = f"**Exercise: {self.title}** ({self.minutes} minutes, {self.difficulty})"
        return f"{head}\n\n{textwrap.dedent(self.statement).strip()}"

    @property
    def stub(self) -> str:
        """The cell the reader fills in: signature and docstring of the solution, nothing of its body."""
        source = inspect.getsource(self.solution)
        function = ast.parse(source).body[0]
        assert isinstance(function, ast.FunctionDef)
        documentation = function.body[0]
        head = "\n".join(source.splitlines()[: documentation.end_lineno])
        return f'{head}\n    return ...  # your code\n\n\ncheck("{self.id}", {function.name})'

    @property
    def needs(self) -> tuple[str, ...]:
        """What has to be imported before the stub can be filled in."""
        uses_math = "math." in inspect.getsource(self.solution)
        return (*(("math",) if uses_math else ()), "torch", "Tensor", *FOR_READERS)

    @property
    def hint(self) -> str:
        """Where to look, without the answer; a wrong answer that nobody foresaw is told the same."""
        return self.where

    @property
    def hints(self) -> tuple[str, ...]:
        """From where to look to the shape of the code; the decisive line stands in none."""
        return levels(self.hint, self.idea, self.outline)

    @property
    def solution_markdown(self) -> str:
        """The solution's source, and what to think about next."""
        then = re.sub(r"^Right[^.:]*[.:]\s*", "", self.right)
        return f"{as_code(self.solution)}\n\n{then[:1].upper()}{then[1:]}"

    def hidden(self) -> Iterator[Case]:
        """The drawn batches; the same ones every time, and none of them printed anywhere."""
        generator = torch.Generator().manual_seed(_SEED)
        return (self.draw(generator) for _ in range(HIDDEN_DRAWS))

    def check(self, function: Any) -> Verdict:
        """Try the reader's function on every case, and explain the first difference.

        Args:
            function: takes the arguments by position.

        Returns:
            The verdict, after a good minute at the latest. Exceptions of the function become messages, except Ctrl-C's.
            The global random state, torch's settings and the names of its functions are left as they were.
        """
        if not callable(function):
            return Verdict(self.id, False, not_a_function(function))
        with left_as_it_is(self._judges) as world:
            message = self._first_problem(_Reader(self, function, world))
        begun = message is None or _STUB not in message
        return Verdict(self.id, message is None, message or self.right, begun)

    def rightly_drawn(self, function: Any) -> tuple[int, int]:
        """How many of the drawn batches a function has right, and how many there are; none if it fails the chapter's own.

        It says how far a function is that `check` has turned down.
        """
        numbers = range(len(self.cases), len(self._every_case))
        if not callable(function):
            return 0, len(numbers)
        with left_as_it_is(self._judges) as world:
            reader = _Reader(self, function, world)
            if not self._agrees(reader, 0):
                return 0, len(numbers)
            return sum(self._agrees(reader, k) for k in numbers), len(numbers)

    def most_with_one_answer(self) -> float:
        """The largest share of the drawn batches that one and the same answer has right."""
        numbers = range(len(self.cases), len(self._every_case))
        right = [self._right(number) for number in numbers]
        exact = [self._every_case[number].exact for number in numbers]
        alike = (
            sum(map(_same, [answer] * len(right), right, exact)) for answer in right
        )
        return max(alike) / len(right)

    def _agrees(self, reader: "_Reader", number: int) -> bool:
        case = self._every_case[number]
        return _same(reader.run(case), self._right(number), case.exact)

    @cached_property
    def _judges(self) -> tuple[Any, ...]:
        wrong = (mistake.wrong for mistake in self.mistakes)
        return made_with(self.check, self.draw, self.solution, *wrong)

    def _first_problem(self, reader: "_Reader") -> str | None:
        for number, case in enumerate(self._every_case):
            right, mine = self._right(number), reader.run(case)
            if mine.problem:
                known = self._known_by_its_error(mine, case)
                return known or (_ONLY_SHOWN if number else "") + mine.problem
            if not _same(mine, right, case.exact):
                return self._diagnose(reader, number)
        return None

    @property
    def _every_case(self) -> tuple[Case, ...]:
        # Drawn once, and anew when another number of draws is asked for.
        if HIDDEN_DRAWS not in self._drawn:
            self._drawn[HIDDEN_DRAWS] = (*self.cases, *self.hidden())
        return self._drawn[HIDDEN_DRAWS]

    @cached_property
    def _drawn(self) -> dict[int, tuple[Case, ...]]:
        return {}

    @cached_property
    def _answered(self) -> dict[int, _Outcome]:
        return {}

    def _right(self, number: int) -> _Outcome:
        """What the solution makes of a case. It is the same in every check, and a reader checks more than once."""
        if number not in self._answered:
            self._answered[number] = self._run(self.solution, self._every_case[number])
        return self._answered[number]

    def _known_by_its_error(self, mine: _Outcome, case: Case) -> str | None:
        known = (
            mistake
            for mistake in self.mistakes
            if self._run(mistake.wrong, case).problem == mine.problem
        )
        return next((mistake.message for mistake in known), None)

    def _diagnose(self, reader: "_Reader", failing: int) -> str:
        shown = len(self.cases)
        numbers = [
            *range(shown),
            failing,
            *range(shown, min(shown + 20, len(self._every_case))),
        ]
        probes = [self._every_case[number] for number in numbers]
        mine = [reader.run(case) for case in probes]
        right = [self._right(number) for number in numbers]
        differing = [
            i
            for i, case in enumerate(probes)
            if not _same(mine[i], right[i], case.exact)
        ]
        # Rounding of zeros is a question of its own: it neither proves nor hides another mistake.
        telling = [i for i in differing if not probes[i].exact]
        compared = [i for i, case in enumerate(probes) if not (telling and case.exact)]
        for sign, also in ((1, ""), (-1, _ALSO_THE_SIGN)):
            for mistake in self.mistakes:
                if all(
                    _same(
                        mine[i],
                        self._run(mistake.wrong, probes[i]).times(sign),
                        probes[i].exact,
                    )
                    for i in compared
                ):
                    return also + mistake.message
        differing = telling or differing
        smallest = min(differing, key=lambda i: probes[i].size)
        leaves = " and ".join(f"`{name}`" for name in self._leaves) or None
        general = _by_its_looks(mine, right, smallest, differing, leaves)
        example = _example(probes[smallest], mine[smallest], right[smallest], leaves)
        kinds = dict.fromkeys(probes[i].kind for i in differing if probes[i].kind)
        wrongly = f"Judged wrongly: {'; '.join(kinds)}." if kinds else ""
        parts = " ".join(
            part for part in (general, wrongly, example, self.where) if part
        )
        return (_ONLY_SHOWN if failing > 0 else "") + parts

    @property
    def _leaves(self) -> tuple[str, ...]:
        """The arguments whose gradients are compared."""
        of = self.gradient_of or ()
        return (of,) if isinstance(of, str) else of

    def _run(
        self, function: Callable[..., Any], case: Case, world: World | None = None
    ) -> _Outcome:
        given = {
            name: x.clone() if isinstance(x, Tensor) else x
            for name, x in case.arguments.items()
        }
        leaves = [given[name].requires_grad_() for name in self._leaves]
        for name, leaf in zip(self._leaves, leaves, strict=True):
            # A copy, so that writing into it is seen below, and not by autograd.
            given[name] = leaf.clone()
        try:
            try:
                answer = function(*given.values())
            finally:
                if world is not None:
                    world.restore()
            value = _as_tensor(answer)
        except (KeyboardInterrupt, TimeoutInterrupt):
            raise
        except BaseException as error:  # whatever the reader's code may raise
            return _Outcome(
                problem=f"Your function raised {said(error)} It was called with {case}."
            )
        if answer is ...:
            return _Outcome(problem=_STUB)
        if answer is None:
            return _Outcome(
                problem="Your function returned None: it lacks a return, at the end or in a branch."
            )
        if value is None:
            odd = (
                _oddity(answer)
                if isinstance(answer, Tensor)
                else _a(type(answer).__name__)
            )
            return _Outcome(
                problem=f"Your function returned {odd}, expected numbers or a tensor of them."
            )
        for name, x in case.arguments.items():
            if isinstance(x, Tensor) and not _equal(given[name].detach(), x):
                return _Outcome(
                    problem=f"Your function changed its argument `{name}` in place: work on a copy."
                )
        gradient = None
        if leaves and value.requires_grad:
            try:
                parts = torch.autograd.grad(
                    value, leaves, torch.ones_like(value), allow_unused=True
                )  # of the sum
                gradient = _together(parts, leaves)
            except (KeyboardInterrupt, TimeoutInterrupt):
                raise
            except BaseException as error:
                return _Outcome(
                    problem=f"What your function returns has no gradient, but an error: {said(error)}"
                )
        return _Outcome(value.detach().to(torch.float64, copy=True), gradient)


def _together(
    gradients: Sequence[Tensor | None], leaves: list[Tensor]
) -> Tensor | None:
    """One gradient as it is, several one after the other; 0 for an argument that was not used beside one that was."""
    if len(leaves) == 1 or all(gradient is None for gradient in gradients):
        return gradients[0]
    parts = (
        torch.zeros_like(leaf) if gradient is None else gradient
        for gradient, leaf in zip(gradients, leaves, strict=True)
    )
    return torch.cat([part.flatten() for part in parts])


def not_a_function(given: Any) -> str:
    """What to say to somebody who hands over anything but a function."""
    return f"This is {_a(type(given).__name__)}: pass the function itself, without calling it."


class _Reader:
    """The reader's function, and what is left of its time."""

    def __init__(self, exercise: Exercise, function: Callable[..., Any], world: World):
        self.exercise, self.function, self.world = exercise, function, world
        self.seconds = _TOGETHER
        self.over: _Outcome | None = (
            None  # what every call gets, once there is no time left
        )

    def run(self, case: Case) -> _Outcome:
        """What the function makes of a case, in bounded time."""
        if self.over:
            return self.over
        began = time.monotonic()
        try:
            outcome: _Outcome = call_with_timeout(
                lambda: self.exercise._run(self.function, case, self.world), _SECONDS
            )
        except TimeoutError:
            words = f"Your function takes longer than {_SECONDS:g} seconds. Is there a loop that does not end?"
            outcome = self.over = _Outcome(
                problem=f"{words} It was called with {case}."
            )
        self.world.restore()  # a gradient of the reader's own runs after the function
        self.seconds -= time.monotonic() - began
        if self.seconds < 0 and not self.over:
            words = f"is too slow to be tried on all cases: they took longer than {_TOGETHER:g} seconds together."
            self.over = _Outcome(problem=f"Your function {words}")
        return outcome


def said(error: BaseException) -> str:
    """The kind of an error and what it says, as one sentence."""
    try:
        text = " ".join(str(error).split())[:200].rstrip(".")
    except (KeyboardInterrupt, TimeoutInterrupt):
        raise
    except BaseException:  # an error of the reader's own may fail at that
        text = ""
    return f"{type(error).__name__}: {text}." if text else f"{type(error).__name__}."


def _a(noun: str) -> str:
    return f"{'an' if noun[:1].lower() in tuple('aeiou') else 'a'} {noun}"


def _as_tensor(answer: Any) -> Tensor | None:
    """Tensors, numbers, arrays, and tuples or lists of them; None for anything else."""
    if isinstance(answer, Tensor):
        return answer.cpu() if _oddity(answer) is None else None
    if isinstance(answer, tuple | list) and answer:
        parts = [_as_tensor(part) for part in answer]
        if (
            any(part is None for part in parts)
            or len({part.shape for part in parts if part is not None}) > 1
        ):
            return None
        return torch.stack([part.double() for part in parts if part is not None])
    if not hasattr(answer, "__float__") or getattr(answer, "size", 1) > _LARGEST:
        return None
    try:
        return torch.as_tensor(answer, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        return None


def _oddity(answer: Tensor) -> str | None:
    """Why a tensor cannot be compared with numbers."""
    if answer.is_complex() or answer.is_quantized:
        return f"a tensor of {answer.dtype}"
    if answer.layout is not torch.strided or answer.is_nested:
        return "a tensor that is sparse or nested"
    if answer.device.type == "meta":
        return "a tensor without values, on the device meta"
    return (
        f"a tensor of {answer.numel():,} numbers" if answer.numel() > _LARGEST else None
    )


def _same(a: _Outcome, b: _Outcome, exact: bool = False) -> bool:
    if a.problem or b.problem or a.value is None or b.value is None:
        return False
    if exact and not _equal(a.value, b.value):
        return False
    # Gradients of a mean over tokens are small numbers: they get a smaller absolute tolerance.
    return _equal(a.value, b.value, _RTOL, _ATOL) and _equal(
        _or_zero(a, b), _or_zero(b, a), _RTOL, 0.01 * _ATOL
    )


def _or_zero(a: _Outcome, other: _Outcome) -> Tensor:
    """No gradient is the same as a gradient of zero."""
    if a.gradient is not None:
        return a.gradient
    return (
        torch.zeros(()) if other.gradient is None else torch.zeros_like(other.gradient)
    )


def _equal(a: Tensor, b: Tensor, rtol: float = 0.0, atol: float = 0.0) -> bool:
    if a.shape != b.shape:
        return False
    if a.dtype == b.dtype and torch.equal(
        a, b
    ):  # most are, and this takes a tenth of the time
        return True
    return torch.allclose(a.double(), b.double(), rtol=rtol, atol=atol, equal_nan=True)


def _near(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and _equal(a, b, _RTOL, _ATOL)


def _by_its_looks(
    mine: list[_Outcome],
    right: list[_Outcome],
    smallest: int,
    differing: list[int],
    gradient_of: str | None,
) -> str:
    """What can be said about any wrong answer: its shape, its NaN, a sign, a factor, a gradient that is missing."""
    problem = next((m.problem for m in mine if m.problem), None)
    if problem:
        return problem
    got, want = _values(mine)[smallest], _values(right)[smallest]
    if got.shape != want.shape:
        return f"The shape is {tuple(got.shape)}, expected {tuple(want.shape)}."
    if not torch.isfinite(got).all():
        return "Some of the numbers are not finite: look for a division by zero or a logarithm of zero."
    pairs = list(zip(_values(mine), _values(right), strict=True))
    if gradient_of and all(_near(a, b) for a, b in pairs):
        if all(not bool(_or_zero(mine[i], right[i]).any()) for i in differing):
            return f"The value is right, but no gradient reaches {gradient_of}: nothing would be learned."
        return f"The value is right, but its gradient with respect to {gradient_of} is not."
    if not any(a.any() for a, _ in pairs):
        return "Every number that you return is 0."
    if all(_near(a, -b) for a, b in pairs):
        return "Every number has the wrong sign."
    factors = [
        float((a * b).sum() / (b * b).sum())
        for a, b in pairs
        if a.shape == b.shape and b.any()
    ]
    scaled = [(a, b) for a, b in pairs if a.shape == b.shape and b.any()]
    if (
        scaled
        and abs(factors[0] - 1) > 1e-3
        and all(_near(a, factors[0] * b) for a, b in pairs)
    ):
        return f"Every number is {factors[0]:.4g} times the right one."
    if scaled and all(
        b.numel() > 1 for _, b in scaled
    ):  # two single numbers are always proportional
        varies = max(factors) - min(factors) > 1e-3 * abs(factors[0])
        if varies and all(
            _near(a, f * b) for (a, b), f in zip(scaled, factors, strict=True)
        ):
            return "Within a call every number is off by one factor, and the factor changes from call to call."
    return ""


def _values(outcomes: list[_Outcome]) -> list[Tensor]:
    return [
        torch.zeros(0) if outcome.value is None else outcome.value
        for outcome in outcomes
    ]


def _example(
    case: Case, mine: _Outcome, right: _Outcome, gradient_of: str | None
) -> str:
    if mine.problem or mine.value is None or right.value is None:
        return ""
    if mine.value.shape != right.value.shape:
        return f"It was called with {case}."  # what is expected would give numbers away that were not tried
    if not _near(mine.value, right.value):
        return f"With {case} you return {_show(mine.value)}, expected {_show(right.value)}."
    if gradient_of is None:
        return f"With {case} every number has to be exactly 0, yours are {_show(mine.value, exact=True)}."
    got, want = _show(_or_zero(mine, right)), _show(_or_zero(right, mine))
    names = gradient_of.replace("`", "")
    return (
        f"With {case} the gradient with respect to {names} is {got}, expected {want}."
    )


def _show(x: Any, exact: bool = False) -> str:
    if isinstance(x, torch.Size):
        return f"<{' x '.join(map(str, x))} tensor>"
    if isinstance(x, Tensor):
        if x.numel() > 32:
            return _show(x.shape)
        return _show(x.tolist(), exact)
    if isinstance(x, list | tuple):
        return "[" + ", ".join(_show(part, exact) for part in x) + "]"
    if isinstance(x, str):
        return repr(x)
    if isinstance(x, float):
        return f"{x:.3g}" if exact else f"{round(x, 4):g}"
    return str(x)
