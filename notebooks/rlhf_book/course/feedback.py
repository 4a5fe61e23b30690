"""What a student gets back: a Markdown file with points, the checker's sentences, and what to read again.

Everything that comes from outside stands between backticks or in a block of text: an exception may say what it likes,
and is neither a link nor a heading.
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from ..exercises import EXERCISES

FOLDER = "feedback"


# What no plain name may be: names of devices, and names as those below that end in a digest.
_TAKEN = re.compile(r"aux|con|nul|prn|(com|lpt)[0-9]|.*-[0-9a-f]{32}")


def file_name(student: str) -> str:
    """One that every system takes; two students never share it, whatever they call themselves.

    Example:
        >>> file_name("anna"), file_name("../x")[:4]
        ('anna.md', '___x')
    """
    plain = re.sub(r"[^a-z0-9_-]", "_", student.lower())[:60]
    if plain == student and not _TAKEN.fullmatch(plain):
        return f"{plain}.md"
    digest = hashlib.sha256(student.encode("utf-8", "surrogateescape")).hexdigest()
    return f"{plain}-{digest[:32]}.md"


def best(rows: Sequence[Any]) -> list[Any]:
    """Of a student's notebooks for a week the rows of the one that counts, here and in the totals."""
    notebooks = {
        name: list(of)
        for name, of in groupby(
            sorted(rows, key=lambda row: row.notebook), key=lambda row: row.notebook
        )
    }
    return max(notebooks.values(), key=lambda of: sum(row.points for row in of))


def text(
    student: str,
    rows: Sequence[Any],
    weeks: Mapping[str, Sequence[str]],
    chapters: Mapping[str, str],
) -> str:
    """The file of one student.

    Args:
        student: the name.
        rows: all of the student's, as `grading.Row`.
        weeks: week -> ids of its exercises.
        chapters: exercise -> what to read again, in Markdown.
    """
    parts, sums = [], []
    known = [week for week in weeks if any(row.week == week for row in rows)]
    for week in known:
        mine = best([row for row in rows if row.week == week])
        got, of = sum(row.points for row in mine), sum(row.of for row in mine)
        sums.append(f"| {week} | {got} | {of} |")
        parts.append(f"## {week}: {got} of {of} points\n\n{_code(mine[0].notebook)}")
        parts += [_one(row, chapters.get(row.exercise, "")) for row in mine]
        if mine[0].note:
            parts.append(f"**While your cells ran**\n\n{_block(mine[0].note)}")
    lost = [row for row in rows if row.week not in weeks]
    parts += [f"{_code(row.notebook)}\n\n{_block(row.says)}" for row in lost]
    table = ["| week | points | of |", "| --- | --- | --- |", *sums] if sums else []
    return "\n\n".join([f"# {_code(student)}", "\n".join(table), *parts]) + "\n"


def _one(row: Any, again: str) -> str:
    title = EXERCISES[row.exercise].title if row.exercise in EXERCISES else ""
    head = f"**{title}** (`{row.exercise}`): {row.points} of {row.of}"
    read = f"\n\nRead again: {again}." if again and row.points < row.of else ""
    return f"{head}\n\n{_block(row.says)}{read}"


def _longest(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)


def _code(text: str) -> str:
    """A name as code in a line, whatever is in it."""
    fence = "`" * (_longest(text) + 1)
    return f"{fence} {text} {fence}"


def _block(text: str) -> str:
    """A sentence as a block of text, whatever is in it."""
    fence = "`" * max(3, _longest(text) + 1)
    return f"{fence}text\n{' '.join(text.split())}\n{fence}"


def write(
    rows: Sequence[Any],
    weeks: Mapping[str, Sequence[str]],
    chapters: Mapping[str, str],
    out: Path,
    writer: Callable[[Path, str], None],
) -> None:
    """A file for each student, below the folder of grades.

    Args:
        rows: of all students.
        weeks: week -> ids of its exercises.
        chapters: exercise -> what to read again.
        out: the folder of grades.
        writer: writes a whole file or none.
    """
    folder = out / FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    for student in sorted({row.student for row in rows}):
        mine = [row for row in rows if row.student == student]
        writer(folder / file_name(student), text(student, mine, weeks, chapters))
