"""The terminal: errors in one line, texts as text, long ones cut, one verifier warning."""

import argparse
import sys
import unicodedata
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import torch

from rlhf_minimal.timeouts import VerifierWarning

VERSION_WARNINGS = (FutureWarning, DeprecationWarning, PendingDeprecationWarning)
LIBRARIES = (Path(__file__).resolve().parents[1], Path(torch.__file__).resolve().parents[1])


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line, and whose help describes `--help` in a sentence."""

    def __init__(self, **options: Any):
        super().__init__(add_help=False, **options)
        self.add_argument("-h", "--help", action="help", help="Show this help and exit.")

    def error(self, message: str) -> NoReturn:
        """One line on standard error, and status 2."""
        self.exit(2, f"error: {one_line(ValueError(message))} (try --help)\n")


def one_line(error: BaseException) -> str:
    """The message of an error and its notes as one line that a terminal can show."""
    text = "; ".join([str(error) or type(error).__name__, *getattr(error, "__notes__", [])])
    return printable(" ".join(text.split()))


def printable(text: str) -> str:
    r"""A text of a model, of a data file or of a run folder, as a terminal may show it.

    To a terminal, control characters are commands: they retitle its window, erase what was printed before, or write to
    the clipboard. They, halves of characters and characters that change the direction of reading are written as
    escapes. Line ends, tabs, all kinds of space and the two joiners of Persian, Hindi and emoji stay.

    Example:
        >>> print(printable("7\x1b[2J \u202e8"))
        7\x1b[2J \u202e8
    """
    return "".join(
        c if c.isprintable() or c in "\n\t\u200c\u200d" or unicodedata.category(c) == "Zs" else repr(c)[1:-1]
        for c in text
    )


def in_brief(text: str, most: int = 48) -> str:
    """A prompt or a completion on one line, cut to at most `most` characters, for a printed table."""
    text = printable(" ".join(text.split()) if "\n" in text else text)
    return text if len(text) <= most else text[: most - 1] + "…"


def at_least_1(given: Mapping[str, Any], *names: str) -> None:
    """Refuses flags below 1; None is a flag that was not given."""
    for name in names:
        if given[name] is not None and given[name] < 1:
            flag = f"-{name}" if len(name) == 1 else f"--{name.replace('_', '-')}"
            raise ValueError(f"{flag} must be at least 1; got {given[name]}")


class OneVerifierWarning(warnings.catch_warnings):
    """The first failure of a verifier is one line on standard error; the metrics count the others.

    What a newer version of a library warns its callers of is no matter of who runs a command, and is not shown: the
    weekly tests fail on it. Warnings of the user's own files are.
    """

    def __init__(self) -> None:
        super().__init__(record=False)
        self.told = False

    def __enter__(self) -> None:
        super().__enter__()
        warnings.simplefilter("always", VerifierWarning)
        show = warnings.showwarning

        def tell(message: Warning | str, category: type[Warning], filename: str, *rest: Any, **named: Any) -> None:
            if issubclass(category, VERSION_WARNINGS) and any(map(Path(filename).resolve().is_relative_to, LIBRARIES)):
                return
            if not issubclass(category, VerifierWarning):
                show(message, category, filename, *rest, **named)
            elif not self.told:
                self.told = True
                print(f"warning: {one_line(Exception(message))}", file=sys.stderr)

        warnings.showwarning = tell
