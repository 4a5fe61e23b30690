"""Reading the book's data, such that an error names the file, and in a directive the page and the line as well.

Nothing of Sphinx in here: the pages, the tools and the tests read data in the same way.
"""

import copy
import json
from contextlib import contextmanager
from functools import cache, wraps
from pathlib import Path

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


def told_on_the_page(run):
    """For the `run` of a directive: what a ValueError says becomes an error of the page, at its line."""

    @wraps(run)
    def told(self):
        try:
            return run(self)
        except ValueError as problem:
            raise self.error(f"{self.name}: {problem}") from problem

    return told
