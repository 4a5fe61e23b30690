"""Runs that take too long for a chapter, as they were recorded: `notebooks/results/` of the repository.

They travel in the wheel, so a chapter that was downloaded alone draws the same figures.
"""

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# In a wheel the records lie in this package, in a clone beside it.
FOLDERS = (Path(__file__).parent / "results", Path(__file__).parents[1] / "results")


def read_record(name: str) -> dict[str, Any] | None:
    """One file of recorded runs.

    Args:
        name: Of the file, without its ending.

    Returns:
        What the file holds, or None if nothing was recorded under that name.

    Example:
        >>> sorted(read_record("learning-curve"))
        ['command', 'held_out_problems', 'runs', 'threads', 'versions']
        >>> read_record("nothing-yet") is None
        True
    """
    for folder in FOLDERS:
        file = folder / f"{name}.json"
        if file.exists():
            loaded: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
            return loaded
    return None


def versions_of(record: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """With what the runs of a record were recorded: package -> version -> how many runs.

    Args:
        record: What `read_record` returns. Its `versions` hold for every run that has no others of its own.

    Example:
        >>> versions_of({"versions": {"torch": "2"}, "runs": [{}, {"versions": {"torch": "3"}}, {}]})
        {'torch': {'2': 2, '3': 1}}
    """
    of_runs = [record["versions"] | run.get("versions", {}) for run in record["runs"]]
    found = {}
    for package, number in record["versions"].items():
        counted = Counter(one[package] for one in of_runs) or {number: 0}
        found[package] = {which: counted[which] for which in sorted(counted)}
    return found


def recorded_with(record: Mapping[str, Any]) -> str:
    """The same in words.

    Args:
        record: What `read_record` returns.

    Example:
        >>> recorded_with({"versions": {"torch": "2", "python": "3"}, "runs": [{}, {"versions": {"torch": "3"}}, {}]})
        'torch 2 (2 runs) and 3 (1 run), python 3'
    """
    said = []
    for package, counted in versions_of(record).items():
        numbers = [
            f"{which} ({n} run{'s' * (n != 1)})" if len(counted) > 1 else which
            for which, n in counted.items()
        ]
        *before, last = numbers
        said.append(
            f"{package} {' and '.join([', '.join(before), last]) if before else last}"
        )
    return ", ".join(said)
