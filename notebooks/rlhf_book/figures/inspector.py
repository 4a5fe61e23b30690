"""The numbers that the token inspector shows, from the recorded steps; the figure's module holds no row and no formula."""

import math
from typing import Any

from rlhf_book.records import read_record
from rlhf_minimal import ALGORITHMS, table

RECORD = "token-inspector"
TITLES = {"clock": "clock, a tiny model", "smollm2": "sums, SmolLM2-135M"}
NOTES = {
    "clock": "A digit moves the hand, the letter behind it says where it stands, = announces the answer, \u25a0 is the end.",
    "smollm2": "The model goes on with the text; \u25a0 is the end. A reward between 0 and 1 is for a right number among other text.",
}
KINDS = (
    "ratio",
    "advantage",
    "gate",
    "correct",
    "trust",
    "share",
    "pull",
    "weight",
)
LOGP = ("sampler", "old", "now", "ref")
DIGITS = 5


def inspector_table(record: dict[str, Any] | None = None) -> dict[str, Any]:
    """Everything that the figure is given.

    Args:
        record: As `token_inspector.py` has written it; None reads the book's.

    Returns:
        `runs`, each with its `name`, `title`, `note` and `steps`; a step has the counts of its whole batch, the `scale` of each
        row (the mean size of its weights) and `groups`. A group has the tokens of its completions, their log-probs, `values`,
        and for each row the places of its factors in `values`, in the order of `kinds`. `rows` are names with their cells.

    Example:
        >>> [run["name"] for run in inspector_table()["runs"]][0]
        'clock'
    """
    record = read_record(RECORD) if record is None else record
    if record is None:
        return {"runs": [], "rows": [], "kinds": list(KINDS)}
    runs = [
        {
            "name": run["arm"],
            "title": TITLES[run["arm"]],
            "note": NOTES[run["arm"]],
            "steps": [
                {**step, "groups": [_group(one) for one in step["groups"]]}
                for step in run["steps"]
            ],
        }
        for run in record["runs"]
    ]
    rows = [{"name": name, "cells": cells_of(name)} for name in record["rows"]]
    return {"runs": runs, "rows": rows, "kinds": list(KINDS)}


def cells_of(name: str) -> dict[str, str]:
    """The cells of a row as the table prints them.

    Example:
        >>> cells_of("gspo")["ratio"]
        'sequence'
    """
    head, _, line = table({name: ALGORITHMS[name]}).splitlines()
    columns, cells = (
        [cell.strip(" `") for cell in text.strip("|").split(" | ")]
        for text in (head, line)
    )
    return dict(zip(columns[1:], cells[1:], strict=True))


def _group(group: dict[str, Any]) -> dict[str, Any]:
    """A group with fewer digits, and values that are now alike in one place."""
    values: list[Any] = []
    place: list[int] = []
    for value in group["values"]:
        rounded = _rounded(value, DIGITS)
        if rounded not in values:
            values.append(rounded)
        place.append(values.index(rounded))
    rows = {
        name: [place[kinds[kind]] for kind in KINDS]
        for name, kinds in group["rows"].items()
    }
    logps = {name: _rounded(group[name], DIGITS - 1) for name in LOGP}
    return {**group, **logps, "rows": rows, "values": values}


def _rounded(value: Any, digits: int) -> Any:
    """Numbers with so many digits, those below 1e-9 as 0, in lists of any depth."""
    if isinstance(value, list):
        return [_rounded(one, digits) for one in value]
    if value is None or isinstance(value, int):
        return value
    short = 0.0 if abs(value) < 1e-9 else float(f"{value:.{digits}g}")
    return int(short) if math.isfinite(short) and short == int(short) else short
