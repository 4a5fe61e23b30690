"""Find the bug: plausible code that is wrong, the number that looks odd, the property that gives it away, the mend.

Each of these was found in published code. They pass tests that check shapes or repeat the formula; each fails one
property that takes a line to say. The chapters print the code and the number; the rest is the solution.
"""

import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rlhf_minimal.timeouts import TimeoutInterrupt, call_with_timeout

from .cells import FOR_READERS, as_code, levels, source
from .exercise import Verdict, not_a_function, said
from .world import World, left_as_it_is, made_with

_SECONDS = 60.0  # that the property may take to be tried on a reader's version; ours takes about a second


@dataclass(frozen=True)
class Bug:
    """One plausible mistake.

    Args:
        id: hyphenated; never changes.
        title: a few words that do not give it away.
        concept: what it is about, an id of the book's concept list.
        minutes: to find it.
        statement: Markdown: what the code is for, and what somebody noticed. No numbers: the symptom prints them.
        wrong: the code under suspicion.
        symptom: takes the code and prints what looks odd about it.
        reveals: takes the code and raises AssertionError if the property does not hold.
        mended: the code as it should be.
        moral: Markdown: what was wrong, and the habit that prevents it.
        idea: the second hint: what to print or to work out. "" in the museum, where nobody is asked to find it.
        outline: the third hint: the shape of the mended lines, with gaps where they decide.
    """

    id: str
    title: str
    concept: str
    minutes: int
    statement: str
    wrong: Callable[..., Any]
    symptom: Callable[[Callable[..., Any]], None]
    reveals: Callable[[Callable[..., Any]], None]
    mended: Callable[..., Any]
    moral: str
    idea: str = ""
    outline: str = ""

    @property
    def markdown(self) -> str:
        """The Markdown cell: what to look for."""
        head = f"**Find the bug: {self.title}** ({self.minutes} minutes)"
        return f"{head}\n\n{_flush(self.statement)}"

    @property
    def symptom_cell(self) -> str:
        """The code cell with the code under suspicion and what it does."""
        call = f"{self.symptom.__name__}({self.wrong.__name__})"
        return f"{source(self.wrong, self.symptom)}\n\n\n{call}"

    @property
    def needs(self) -> tuple[str, ...]:
        """What has to be imported before that cell can run."""
        return ("Callable", "torch", "Tensor", *FOR_READERS)

    @property
    def hint(self) -> str:
        """The property that the code breaks, in words."""
        return " ".join((self.reveals.__doc__ or "").split())

    @property
    def hints(self) -> tuple[str, ...]:
        """From the property to the shape of the mended lines; the decisive one stands in none."""
        return levels(self.hint, self.idea, self.outline)

    @property
    def solution_markdown(self) -> str:
        """The property, the mended code, and what was wrong."""
        parts = (
            "The property that reveals it, which the printed code does not have:",
            as_code(self.reveals),
            "The mended code, which has it:",
            as_code(self.mended),
            f"**What was wrong.** {_flush(self.moral)}",
        )
        return "\n\n".join(parts)

    def check(self, function: Any) -> Verdict:
        """Whether the property that the wrong code breaks holds for the reader's version of it.

        Args:
            function: the code as the reader has mended it.

        Returns:
            The verdict. It speaks of that one property: code that is wrong in another way may pass.
        """
        if not callable(function):
            return Verdict(self.id, False, not_a_function(function))
        with left_as_it_is(made_with(self.check, self.reveals)) as world:
            try:
                problem = call_with_timeout(
                    lambda: self._problem(function, world), _SECONDS
                )
            except TimeoutError:
                problem = f"Your version takes longer than {_SECONDS:g} seconds. Is there a loop that does not end?"
        held = "The property that the code broke holds for your version."
        return Verdict(self.id, problem is None, problem or held)

    def _problem(self, function: Callable[..., Any], world: World) -> str | None:
        def alone(*given: Any, **named: Any) -> Any:
            try:
                return function(*given, **named)
            finally:
                world.restore()  # so that the property is asked with torch as it was

        try:
            self.reveals(alone)
        except AssertionError as failed:
            words = " ".join(str(failed).split()) or "no more is known"
            return f"There is a property that your version does not have: {words}."
        except (KeyboardInterrupt, TimeoutInterrupt):
            raise
        except BaseException as error:
            return f"Your version, or what uses its result, raised {said(error)}"
        return None


def _flush(text: str) -> str:
    return textwrap.dedent(text).strip()
