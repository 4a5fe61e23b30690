"""What the book says of a row beside its cells: `rlhf_minimal/row_facts.yml`, read and checked.

The cells decide what runs. Names of papers, formulas as they are printed, colours and reasons are said once, in that
file; pages, figures and tests take them from here.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

import rlhf_minimal

ROWS = Path(rlhf_minimal.__file__).with_name("row_facts.yml")
LINES = ("solid", "dashed", "dotted", "dashdot", "dashdotdot")
LIBRARIES = ("trl", "verl", "openrlhf")

# key -> what to write there; the head of row_facts.yml says it at length.
KEYS = {
    "title": "the name as papers write it",
    "family": "one of the families at the head of the file",
    "line": f"{', '.join(LINES[:-1])} or {LINES[-1]}, another one for each row of a family",
    "paper": "a list of keys of book/references.bib",
    "objective": "TeX, the objective to maximise",
    "weight": "TeX, what multiplies grad log pi of a response's only token",
    "weight_code": "the weight in Python, of the ratio w and the advantage A",
    "share": "TeX, a token's part of a batch at ratio 1",
    "share_code": "the share in Python, of B, N, P, L, N_p and n",
    "why": "a sentence on what the row is for",
    "steps": "a list of {from: a row, addresses: ..., leaves_open: ...}",
    "fidelity": f"{{paper: ..., {', '.join(f'{name}: {{differs: ...}}' for name in LIBRARIES)}}}",
}


@dataclass(frozen=True)
class Family:
    """Rows that share a colour in figures.

    Args:
        title: What the family has in common, as a heading.
        color: As `#rrggbb`.
    """

    title: str
    color: str


@dataclass(frozen=True)
class Step:
    """How a row follows from another one; which cells change is what `diff` says.

    Args:
        start: The row that the step begins with.
        addresses: The problem that the step is for, in Markdown.
        leaves_open: What it does not solve.
        measured_in: Links to chapters that show it; empty where none does.
    """

    start: str
    addresses: str
    leaves_open: str
    measured_in: str = ""


@dataclass(frozen=True)
class Facts:
    """What is said of one row; the head of `row_facts.yml` explains each field.

    Args:
        title: The name as papers write it.
        family: Its family, by the key in `families`.
        line: One of `LINES`.
        paper: Keys of the book's bibliography.
        objective: TeX, to maximise.
        weight: TeX, what multiplies grad log pi of a response's only token.
        weight_code: The same in Python; only tests evaluate it.
        share: TeX, a token's part of a batch at ratio 1.
        share_code: The same in Python; only tests evaluate it.
        why: One sentence.
        steps: The rows that it is a step from.
        fidelity: What the paper and the production libraries do, by name.
    """

    title: str
    family: str
    line: str
    paper: tuple[str, ...]
    objective: str
    weight: str
    weight_code: str
    share: str
    share_code: str
    why: str
    steps: tuple[Step, ...]
    fidelity: Mapping[str, Any]


def facts_of(name: str, path: Path | None = None) -> Facts:
    """What the book says of a row.

    Args:
        name: Of a row of the table.
        path: Another file of the same form as `row_facts.yml`.

    Returns:
        The facts, complete.

    Raises:
        ValueError: An unknown row, with the nearest known one; or one of which something is missing, with every key
            that is to be written.

    Example:
        >>> facts_of("rloo").title
        'RLOO'
        >>> facts_of("rlo")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ValueError: .../row_facts.yml says nothing of the row 'rlo'; did you mean rloo? ...
    """
    path = path or ROWS
    rows = _read(path)["rows"]
    if name not in rows:
        near = difflib.get_close_matches(str(name), map(str, rows), n=1)
        hint = f"; did you mean {near[0]}?" if near else "."
        raise ValueError(
            f"{path} says nothing of the row {name!r}{hint} An entry has {', '.join(KEYS)}"
        )
    if lacking := missing(name, path):
        raise ValueError(f"{path}, row {name}: {'; '.join(lacking)}"[:700])
    entry = rows[name]
    steps = tuple(
        Step(
            step["from"],
            step["addresses"],
            step["leaves_open"],
            step.get("measured_in", ""),
        )
        for step in entry["steps"]
    )
    return Facts(**{**entry, "paper": tuple(entry["paper"]), "steps": steps})


def missing(name: str, path: Path | None = None) -> list[str]:
    """What is still to be written of a row: one line a key, empty where its entry is complete.

    Args:
        name: Of a row of the table.
        path: Another file of the same form as `row_facts.yml`.

    Returns:
        The lines.

    Raises:
        ValueError: The file as a whole cannot be read.

    Example:
        >>> missing("grpo")
        []
        >>> missing("a row of mine")[0]
        'title is missing: write the name as papers write it'
    """
    path = path or ROWS
    rows = _read(path)["rows"]
    entry = rows.get(name, {})
    if not isinstance(entry, dict):
        return [
            f"its entry is {_short(entry)}, and should be a mapping with {', '.join(KEYS)}"
        ]
    problems = [
        f"{_short(key)} is no key of a row; there are {', '.join(KEYS)}"
        for key in entry
        if key not in KEYS
    ]
    for key, words in KEYS.items():
        if key not in entry:
            problems.append(f"{key} is missing: write {words}")
        elif not _fits(key, entry[key], rows, path):
            problems.append(f"{key} is {_short(entry[key])}, and should be {words}")
    others = {
        other: says
        for other, says in rows.items()
        if other != name and isinstance(says, dict)
    }
    for other, says in others.items():
        if "line" in entry and [says.get("family"), says.get("line")] == [
            entry.get("family"),
            entry["line"],
        ]:
            problems.append(
                f"line: {_short(entry['line'])} is taken by {other}, of the same family; {KEYS['line']}"
            )
    if entry.get("steps") == [] and not any(
        _starts(says.get("steps"), name) for says in others.values()
    ):
        problems.append(
            f"steps is empty, and no other row is a step from this one: write {KEYS['steps']}"
        )
    return problems


def names(path: Path | None = None) -> list[str]:
    """The rows of which something is said, in the order of the file.

    Args:
        path: Another file of the same form as `row_facts.yml`.

    Returns:
        Their names.

    Raises:
        ValueError: The file as a whole cannot be read.

    Example:
        >>> names()[:2]
        ['reinforce', 'rloo']
    """
    path = path or ROWS
    return list(_read(path)["rows"])


def families(path: Path | None = None) -> dict[str, Family]:
    """The families of rows, by their keys.

    Args:
        path: Another file of the same form as `row_facts.yml`.

    Returns:
        key -> family, in the order of the file.

    Raises:
        ValueError: The file cannot be read, or an entry is no family.

    Example:
        >>> families()["grpo"].color
        '#1f77b4'
    """
    path = path or ROWS
    found = {}
    for key, entry in _read(path)["families"].items():
        if (
            not isinstance(entry, dict)
            or entry.keys() != {"title", "color"}
            or not _all_text(*entry.values())
        ):
            raise ValueError(
                f"{path}: the family {_short(key)} is {_short(entry)}, expected {{title: ..., color: ...}}"
            )
        found[key] = Family(**entry)
    return found


def _read(path: Path) -> dict[str, dict[Any, Any]]:
    """Both parts of the file, each a mapping that is not empty; what is in them is checked by whoever uses it."""
    try:
        found = _parse(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise ValueError(f"{path} cannot be read: {problem.strerror}") from problem
    except (yaml.YAMLError, ValueError, RecursionError) as problem:
        raise ValueError(
            f"{path} is no YAML: {' '.join(str(problem).split())[:200]}"
        ) from problem
    for part in ("families", "rows"):
        if (
            not isinstance(found, dict)
            or not isinstance(found.get(part), dict)
            or not found[part]
        ):
            raise ValueError(
                f"{path} should hold two mappings, families and rows; {part} is not there"
            )
    return found


@lru_cache(maxsize=8)
def _parse(text: str) -> Any:
    return yaml.safe_load(text)


def _fits(key: str, value: Any, rows: dict[Any, Any], path: Path) -> bool:
    """Whether a value can stand under a key."""
    if key == "family":
        return isinstance(value, str) and value in families(path)
    if key == "line":
        return value in LINES
    if key == "paper":
        return isinstance(value, list) and bool(value) and _all_text(*value)
    if key == "steps":
        return isinstance(value, list) and all(_is_step(step, rows) for step in value)
    if key == "fidelity":
        says = (
            isinstance(value, dict)
            and value.keys() == {"paper", *LIBRARIES}
            and _all_text(value["paper"])
        )
        return says and all(
            isinstance(value[name], dict) and _all_text(value[name].get("differs"))
            for name in LIBRARIES
        )
    return _all_text(value)


def _is_step(step: Any, rows: dict[Any, Any]) -> bool:
    keys = {"from", "addresses", "leaves_open"}
    if not isinstance(step, dict) or not keys <= step.keys() <= keys | {"measured_in"}:
        return False
    return _all_text(*step.values()) and step["from"] in rows


def _starts(steps: Any, name: str) -> bool:
    """Whether one of a row's steps begins with this one."""
    return isinstance(steps, list) and any(
        isinstance(step, dict) and step.get("from") == name for step in steps
    )


def _all_text(*values: Any) -> bool:
    return all(isinstance(value, str) and value.strip() for value in values)


def _short(value: Any) -> str:
    return repr(value)[:60]
