"""Reading the book's data, such that an error names the file, and in a directive the page and the line as well.

Nothing of Sphinx in here: the pages, the tools and the tests read data in the same way.
"""

import ast
import copy
import json
import re
from contextlib import contextmanager
from dataclasses import MISSING, fields, is_dataclass
from functools import cache, wraps
from pathlib import Path
from typing import get_args, get_origin

import yaml

ROOT = Path(__file__).resolve().parents[2]


def shown(path):
    """A file as a reader of the repository knows it."""
    path = Path(path)
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


@contextmanager
def using(path):
    """Names the file in whatever goes wrong while its contents are used.

    Example:
        >>> with using("numbers.json"):
        ...     {"one": 1}["two"]
        Traceback (most recent call last):
        ValueError: numbers.json: there is no 'two'
    """
    try:
        yield
    except KeyError as problem:
        raise ValueError(f"{shown(path)}: there is no {problem}") from problem
    except (TypeError, AttributeError, IndexError, ArithmeticError, RecursionError) as problem:
        words = f"{type(problem).__name__}: {' '.join(str(problem).split())[:200]}"
        raise ValueError(f"{shown(path)} does not hold what it should: {words}") from problem
    except (ValueError, LookupError) as problem:  # raised with words of our own, or by a parser
        words = " ".join(str(problem).split())
        raise ValueError(words if words.startswith(shown(path)) else f"{shown(path)}: {words}") from problem


def read(path, kind=dict):
    """What a JSON or YAML file holds.

    Args:
        path: The file; what it is written in follows from its name.
        kind: `dict` or `list`, which is what should stand there.

    Raises:
        ValueError: Naming the file, if it is missing, damaged, empty or holds something else.
    """
    path = Path(path)
    with using(path):
        try:
            text = path.read_text(encoding="utf-8")
            found = json.loads(text) if path.suffix in (".json", ".ipynb") else copy.deepcopy(_yaml(text))
        except OSError as problem:
            raise ValueError(f"cannot be read: {problem.strerror}") from problem
        except yaml.YAMLError as problem:
            raise ValueError(f"is no YAML: {problem}") from problem
        except json.JSONDecodeError as problem:
            raise ValueError(f"is no JSON: {problem}") from problem
        if not isinstance(found, kind) or not found:
            expected = {dict: "an object with entries", list: "a list with entries"}[kind]
            given = type(found).__name__ if found else "nothing"
            raise ValueError(f"holds {given}, expected {expected}")
    return found


@cache  # many pages read the same files, and YAML is slow
def _yaml(text):
    return yaml.safe_load(text)


def pages_below(node):
    """Every page that a part of `_toc.yml` names, in its order."""
    if isinstance(node, dict):
        parts = ([value] if key in ("file", "root") else pages_below(value) for key, value in node.items())
        return [page for found in parts for page in found]
    return [page for value in node for page in pages_below(value)] if isinstance(node, list) else []


@cache
def pages_of_the_book():
    """Every page that `_toc.yml` names, in the order of the book."""
    return tuple(pages_below(read(ROOT / "_toc.yml")))


def made(kind, entry, **given):
    """An entry of a file as an object of a dataclass, whose fields say what has to stand there.

    Args:
        kind: The dataclass. A field without a default is needed, and no other name means anything.
        entry: Field -> value.
        given: Fields that the entry does not say.
    """
    if not isinstance(entry, dict):
        raise ValueError(f"expected an entry with names, got {str(entry)[:60]!r}")
    name = entry.get("id") or given.get("name") or str(entry)[:60]
    known = {one.name: one for one in fields(kind) if one.name not in given}
    needed = {key for key, one in known.items() if one.default is one.default_factory is MISSING}
    missing, extra = needed - entry.keys(), entry.keys() - known.keys()
    if missing or extra:
        raise ValueError(f"{name}: lacks {sorted(missing)}, has {sorted(map(str, extra))} that mean nothing")
    for key, value in entry.items():
        if (value := fitting(value, known[key].type, key in needed)) is None:
            raise ValueError(f"{name}: expected something else under {key}, got {str(entry[key])[:60]!r}")
        given[key] = value
    return kind(**given)


def fitting(value, type_, needed):
    """A value as a field of this type has it: text that is not blank, a list, made of objects where they have a class.

    None stands for a value that is something else, and for a list that is needed and empty.
    """
    if type_ is str:
        return isinstance(value, str) and value.strip() or None
    if (kind := get_origin(type_) or type_) is not tuple:
        return value if isinstance(value, kind) else None
    if not isinstance(value, list) or (needed and not value):
        return None
    inner = get_args(type_)[0]
    return tuple(made(inner, one) if is_dataclass(inner) else one for one in value)


def cells_of(path):
    """The cells of a notebook as they stand in the file."""
    with using(path):
        found = read(path)["cells"]
        cells = [{name: cell[name] for name in ("source", "cell_type", "metadata")} for cell in found]
        for number, (cell, whole) in enumerate(zip(cells, found, strict=True)):
            lines = cell["source"] if isinstance(cell["source"], list) else [cell["source"]]
            if not isinstance(cell["metadata"], dict) or not all(isinstance(line, str) for line in lines):
                raise ValueError(f"cell {number} is none: expected lines of text, and an object as metadata")
            cell |= {"source": "".join(lines), "outputs": whole.get("outputs", [])}
    return cells


def text_of(page):
    """The text of a page, or the Markdown cells of a notebook."""
    if (path := ROOT / f"{page}.md").is_file():
        return path.read_text(encoding="utf-8")
    cells = cells_of(ROOT / f"{page}.ipynb")
    return "\n\n".join(cell["source"] for cell in cells if cell["cell_type"] == "markdown")


def title_of(page):
    """The first heading of a page, without a number; its name where it has none."""
    found = re.search(r"^# (.+)$", text_of(page), re.MULTILINE)
    return found[1] if found else str(page)


def parsed(code):
    """The syntax tree of a cell's code, without what only Jupyter understands."""
    return ast.parse("\n".join(line for line in code.splitlines() if not line.lstrip().startswith(("%", "!", "?"))))


def told_on_the_page(run):
    """For the `run` of a directive: what a ValueError says becomes an error of the page, at its line."""

    @wraps(run)
    def told(self):
        try:
            return run(self)
        except ValueError as problem:
            raise self.error(f"{self.name}: {problem}") from problem

    return told
