"""The numbers that the token inspector shows, from the recorded steps; the figure's module holds no row and no formula."""

import math
from typing import Any

import torch

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
# What the divisor of a share is made of, on-policy: completions, tokens of the completion, of the batch, of the budget.
DIVISORS = {
    "sequence_sum": ("completions",),
    "sequence_mean": ("completions", "own"),
    "geometric_mean": ("completions", "own"),
    "token_mean": ("tokens",),
    "fixed_length": ("completions", "budget"),
}


def inspector_table(record: dict[str, Any] | None = None) -> dict[str, Any]:
    """Everything that the figure is given.

    Args:
        record: As `token_inspector.py` has written it; None reads the book's.

    Returns:
        `runs`, each with its `name`, `title`, `note` and `steps`; a step has the counts of its whole batch, the `budget` of a
        completion, the `scale` of each row (the mean size of its weights that are not 0) and `groups`. A group has the tokens
        of its completions, their log-probs, `values`, for each row the places of its factors in `values`, in the order of
        `kinds`, and the `shaped` rewards of rows with a shape. `rows` are names with their cells and what divides a share;
        `examples` are choices of the menus.

    Example:
        >>> [run["name"] for run in inspector_table()["runs"]][0]
        'clock'
    """
    record = read_record(RECORD) if record is None else record
    if record is None:
        return {"runs": [], "rows": [], "kinds": list(KINDS), "examples": []}
    runs = [
        {
            "name": run["arm"],
            "title": TITLES[run["arm"]],
            "note": NOTES[run["arm"]],
            "steps": [_step(step) for step in run["steps"]],
        }
        for run in record["runs"]
    ]
    rows = [
        {
            "name": name,
            "cells": cells_of(name),
            "divisors": list(DIVISORS.get(cells_of(name)["aggregate"], ())),
        }
        for name in record["rows"]
    ]
    shown = {"runs": runs, "rows": rows, "kinds": list(KINDS)}
    return {**shown, "examples": examples(record) if runs else []}


def budget_of(step: dict[str, Any]) -> int:
    """The tokens that a completion could have had: what Dr. GRPO divides by.

    Example:
        >>> [budget_of(step) for step in read_record("token-inspector")["runs"][0]["steps"]]
        [44, 44, 44]
    """
    group = step["groups"][0]
    share = group["values"][group["rows"]["dr_grpo"]["share"]]
    return round(1 / share / step["completions"])


def unit_of(step: dict[str, Any], name: str) -> float:
    """The mean size of a row's weights that are not 0, over the whole batch.

    A KL penalty in the loss pulls at every token; in another row a token has a weight if it has an advantage that
    nothing cuts.
    """
    if any(term.place == "loss" for term in ALGORITHMS[name].kl):
        count = step["tokens"]
    else:
        count = step["credited"][name] - step["silent"][name]
    return float(step["scale"][name]) * step["tokens"] / count if count else 0.0


def examples(record: dict[str, Any]) -> list[dict[str, Any]]:
    """What the page tells one to look for, as choices of the menus, each at a token that shows it."""
    clock = next(run for run in record["runs"] if run["arm"] == "clock")
    first, last = clock["steps"][0], clock["steps"][-1]
    i, t = most_pulled(first["groups"][0])
    prompt, j, u = first_cut(last)
    start = {"run": "clock", "step": first["step"], "prompt": 0, "first": "grpo"}
    end = {**start, "step": last["step"]}
    opening = {**start, "second": "dr_grpo", "completion": 0, "token": 0}
    cut = {**end, "prompt": prompt, "second": "cispo", "completion": j, "token": u}
    whole = {**end, "second": "gspo", "completion": 0, "token": 0}
    pulled = {**start, "second": "kimi_k2", "completion": i, "token": t}
    return [
        {"title": "what a length costs", "set": opening},
        {"title": "what the clip cuts", "set": cut},
        {"title": "one ratio for a completion", "set": whole},
        {"title": "a pull without a push", "set": pulled},
    ]


def first_cut(step: dict[str, Any], row: str = "grpo") -> tuple[int, int, int]:
    """Group, completion and token of the first token of a step that a row's gate cuts; the very first if there is none."""
    for g, group in enumerate(step["groups"]):
        for i, t in _places(group):
            if number_at(group, row, "gate", i, t) == 0:
                return g, i, t
    return 0, 0, 0


def most_pulled(group: dict[str, Any], row: str = "grpo") -> tuple[int, int]:
    """Completion and token of those that a row's gate cuts at which its KL penalty pulls most; of all if none is cut."""
    places = _places(group)
    cut = [one for one in places if number_at(group, row, "gate", *one) == 0]
    return max(cut or places, key=lambda one: abs(number_at(group, row, "pull", *one)))


def number_at(group: dict[str, Any], row: str, kind: str, i: int, t: int) -> Any:
    """A factor of one token, which may be the same for a completion or for the whole group."""
    value = group["values"][group["rows"][row][kind]]
    own = value[i] if isinstance(value, list) else value
    return own[t] if isinstance(own, list) else own


def _places(group: dict[str, Any]) -> list[tuple[int, int]]:
    return [(i, t) for i, own in enumerate(group["tokens"]) for t in range(len(own))]


def _step(step: dict[str, Any]) -> dict[str, Any]:
    """A step as the figure has it."""
    budget = budget_of(step)
    return {
        **step,
        "budget": budget,
        "scale": {
            name: _rounded(unit_of(step, name), DIGITS) for name in step["scale"]
        },
        "groups": [
            {**_group(one), "shaped": shaped(one, budget)} for one in step["groups"]
        ],
    }


def shaped(group: dict[str, Any], budget: int) -> dict[str, list[float | int]]:
    """Row -> the group's rewards as the row's shape leaves them, for rows that have one."""
    rewards = torch.tensor(group["rewards"], dtype=torch.float64)
    lengths = torch.tensor([len(own) for own in group["tokens"]])
    known = {"group_size": len(rewards), "budget": budget}
    return {
        name: _rounded(
            ALGORITHMS[name].call("shape", rewards, lengths, **known).tolist(), DIGITS
        )
        for name in group["rows"]
        if ALGORITHMS[name].shape is not None
    }


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
