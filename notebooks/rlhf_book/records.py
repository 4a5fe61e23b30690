"""Runs that take too long for a chapter, as they were recorded: `notebooks/results/` of the repository.

They travel in the wheel, so a chapter that was downloaded alone draws the same figures.
"""

import json
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
