"""What exercises and bugs are printed with: imports that a page lacks, source as Markdown, text that shows itself."""

import inspect
import textwrap
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

FOR_READERS = ("check", "hint", "solution")
# In the order in which they are printed: the standard library, other packages, ours.
_SECTIONS = (
    {
        "math": "import math",
        "Callable": "from collections.abc import Callable",
    },
    {
        "torch": "import torch",
        "Tensor": "from torch import Tensor",
    },
)


def imports(names: Collection[str], known: Collection[str] = ()) -> str:
    """The block of imports that a cell begins with, "" if everything is known already.

    Args:
        names: what the cell needs.
        known: what cells above have imported.

    Example:
        >>> imports(["Tensor", "check"], known=["Tensor"])
        'from rlhf_book.exercises import check\\n\\n\\n'
    """
    missing = set(names) - set(known)
    sections = [
        [line for name, line in section.items() if name in missing]
        for section in _SECTIONS
    ]
    if ours := [name for name in FOR_READERS if name in missing]:
        used = "" if ours == ["check"] else "  # noqa: F401"
        sections.append([f"from rlhf_book.exercises import {', '.join(ours)}{used}"])
    blocks = ["\n".join(lines) for lines in sections if lines]
    return "\n\n".join(blocks) + "\n\n\n" if blocks else ""


def source(*functions: Callable[..., Any]) -> str:
    """The source of functions, one below the other."""
    return "\n\n\n".join(inspect.getsource(function).rstrip() for function in functions)


def levels(*hints: str) -> tuple[str, ...]:
    """The hints that there are, from the vaguest to the plainest.

    Example:
        >>> levels("Where to look.", "", "")
        ('Where to look.',)
    """
    flush = (textwrap.dedent(hint).strip() for hint in hints)
    return tuple(hint for hint in flush if hint)


def as_code(*functions: Callable[..., Any]) -> str:
    """The source of functions as Markdown."""
    return f"```python\n{source(*functions)}\n```"


@dataclass(frozen=True)
class Shown:
    """Markdown that a notebook renders and a terminal prints.

    Example:
        >>> Shown("**Hint.** Look at the sign.")
        **Hint.** Look at the sign.
    """

    markdown: str

    def __repr__(self) -> str:
        return self.markdown

    def _repr_markdown_(self) -> str:
        return self.markdown
