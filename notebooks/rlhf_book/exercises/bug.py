"""Find the bug: plausible code that is wrong, the number that looks odd, the property that gives it away, the mend.

Each of these was found in published code. They pass tests that check shapes or repeat the formula; each fails one
property that takes a line to say. The chapters print the sources of these functions, and a test runs them.
"""

import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


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

    @property
    def markdown(self) -> str:
        """The Markdown cell: what to look for."""
        head = f"**Find the bug: {self.title}** ({self.minutes} minutes)"
        return f"{head}\n\n{_flush(self.statement)}"

    @property
    def symptom_cell(self) -> str:
        """The code cell with the code under suspicion and what it does."""
        call = f"{self.symptom.__name__}({self.wrong.__name__})"
        return (
            f"{_IMPORTS}{_source(self.wrong)}\n\n\n{_source(self.symptom)}\n\n\n{call}"
        )

    @property
    def property_cell(self) -> str:
        """The collapsed code cell with the property, which fails."""
        name = self.reveals.__name__
        return (
            f"{_source(self.reveals)}\n\n\ntry:\n    {name}({self.wrong.__name__})\n"
            'except AssertionError as problem:\n    print("The property fails:", problem)'
        )

    @property
    def mended_cell(self) -> str:
        """The collapsed code cell with the mend, for which the property holds."""
        call = f"{self.reveals.__name__}({self.mended.__name__})"
        return f'{_source(self.mended)}\n\n\n{call}\nprint("The property holds.")'

    @property
    def moral_markdown(self) -> str:
        """The collapsed Markdown cell: what was wrong, and the habit that prevents it."""
        return f"<details>\n<summary>What was wrong</summary>\n\n{_flush(self.moral)}\n\n</details>"


_IMPORTS = "from collections.abc import Callable\n\nimport torch\nfrom torch import Tensor\n\n\n"


def _source(function: Callable[..., Any]) -> str:
    return inspect.getsource(function).rstrip()


def _flush(text: str) -> str:
    return textwrap.dedent(text).strip()
