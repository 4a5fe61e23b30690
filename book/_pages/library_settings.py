"""Every setting of two production libraries beside what says the same here, from book/data/coverage.yml.

A cell in that file is a name and numbers. It becomes a function by `getattr` on the module of its column, and the
setting an `Algorithm`: what cannot be built stops the build of the page.
"""

from dataclasses import dataclass, field, fields, replace
from functools import cache, partial
from inspect import signature
from typing import Any

import fidelity
from data_files import ROOT, made, read, using
from equation_index import unwrapped
from printing import box, folded, table
from rlhf_minimal import ALGORITHMS, KL, Algorithm, Batch, contrib
from rlhf_minimal.config import Config
from rlhf_minimal.functional import advantages, aggregation, corrections, filters, gates, ratios, shaping
from rows import cells

DATA = ROOT / "book" / "data" / "coverage.yml"
STATUSES = {  # as the page prints it, and what it means
    "row": "a row of [the table](algorithms.md), or one with the cells that are named",
    "cells": "cells, which any row may have",
    "loop": "a setting of the training loop",
    "not": "not here, with the reason",
}
MODULES = {
    "advantage": (advantages, contrib.advantages),
    "targets": (advantages, contrib.advantages),
    "normalize": (advantages, contrib.advantages),
    "ratio": (ratios, contrib.ratios),
    "gate": (gates, contrib.gates),
    "aggregate": (aggregation, contrib.aggregation),
    "entropy_aggregate": (aggregation, contrib.aggregation),
    "shape": (shaping, contrib.shaping),
    "keep": (filters, contrib.filters),
    "correct": (corrections, contrib.corrections),
    "trust": (contrib.trust,),
}
# What stands in the columns that a setting leaves open.
OPEN = Algorithm(advantages.returns_to_go, ratios.on_policy, gates.none, aggregation.token_mean)
OPTIONAL = {"row": {"with", "given"}, "cells": {"given"}, "loop": set(), "not": set()}


@dataclass(frozen=True)
class Setting:
    """One setting of a library.

    Args:
        name: in the library's words.
        means: what it does.
        status: one of `STATUSES`.
        ours: what stands under it in the file: a row's name, cells, settings of the loop or a reason.
        changes: columns in which the row is changed.
        given: fields of the batch -> the one that takes its place.
        note: what a reader has to know beside it.
        held: tests that compare numbers, as in `fidelity.test_of`.
    """

    name: str
    means: str
    status: str
    ours: Any
    changes: dict[str, Any]
    given: dict[str, str] = field(default_factory=dict)
    note: str = ""
    held: tuple[str, ...] = ()

    def algorithm(self):
        """The setting as an `Algorithm`, with what it leaves open as in `OPEN`; None where it is none."""
        if self.status == "row":
            if self.ours not in ALGORITHMS:
                raise ValueError(f"{self.name}: there is no row {self.ours!r}")
            return built(ALGORITHMS[self.ours], self.changes)
        return built(OPEN, self.ours) if self.status == "cells" else None


def built(base, columns):
    """A row with some columns changed."""
    known = {one.name for one in fields(Algorithm)}
    if unknown := set(columns) - known:
        raise ValueError(f"there is no column {', '.join(sorted(unknown))}; there are {', '.join(sorted(known))}")
    return replace(base, **{column: cell(column, said) for column, said in columns.items()})


def cell(column, said):
    """What stands in a column: a function with its numbers, the KLs, a coefficient, or nothing."""
    if column == "entropy":
        return float(said)
    if column == "kl":
        return tuple(KL(**term) for term in said)
    if said is None:
        return None
    ((name, numbers),) = said.items() if isinstance(said, dict) else ((said, {}),)
    function = next((found for module in MODULES[column] if (found := getattr(module, name, None))), None)
    if not callable(function):
        raise ValueError(f"{column}: {MODULES[column][0].__name__} has no {name!r}")
    if unknown := set(numbers) - set(signature(function).parameters):
        raise ValueError(f"{column}: {name} takes no {', '.join(sorted(unknown))}")
    return partial(function, **numbers) if numbers else function


def words(entry, key):
    """The text that stands there."""
    if not isinstance(entry[key], str) or not entry[key].strip():
        raise ValueError(f"{key} is {entry[key]!r}, expected words")
    return entry[key]


def setting_of(entry):
    """One entry of the file, checked."""
    name = words(entry, "setting")
    kinds = [status for status in STATUSES if status in entry]
    if len(kinds) != 1:
        raise ValueError(f"{name}: expected one of {', '.join(STATUSES)}, got {', '.join(kinds) or 'none'}")
    (status,) = kinds
    if unknown := {"with", "given"} & entry.keys() - OPTIONAL[status]:
        raise ValueError(f"{name}: {', '.join(sorted(unknown))} does not belong to an entry with {status}")
    if status == "not" and (not isinstance(entry["not"], str) or len(entry["not"].split()) < 3 or "held" in entry):
        raise ValueError(f"{name}: a setting that is not here has a reason in a sentence, and nothing is held")
    said = {key: value for key, value in entry.items() if key not in ("setting", "with", status)}
    found = made(Setting, said, name=name, status=status, ours=entry[status], changes=entry.get("with", {}))
    found.algorithm()
    if status == "loop":
        Config(**found.ours)
    if unknown := {*found.given, *found.given.values()} - {one.name for one in fields(Batch)}:
        raise ValueError(f"{name}: a batch has no {', '.join(sorted(unknown))}")
    for mark in found.held:
        fidelity.test_of(mark)
    return found


@cache
def libraries(path=DATA):
    """Library -> its title, and group -> settings.

    Raises:
        ValueError: naming the file, for an entry that says nothing, too much, or what does not exist.
    """
    with using(path):
        return {
            library: (
                words(says, "title"),
                {words(group, "title"): [*map(setting_of, group["settings"])] for group in says["groups"]},
            )
            for library, says in read(path).items()
        }


def settings(library, path=DATA):
    """All settings of a library, in order."""
    return [setting for group in libraries(path)[library][1].values() for setting in group]


def counts(library, path=DATA):
    """How many settings a library has in all, of each status, here, and held to numbers."""
    found = settings(library, path)
    of = {status: sum(setting.status == status for setting in found) for status in STATUSES}
    return {
        "settings": len(found),
        "here": len(found) - of["not"],
        **of,
        "held": sum(bool(setting.held) for setting in found),
    }


def summary(path=DATA):
    """The table of counts, a column a library."""
    with using(path):
        found = {title: counts(library, path) for library, (title, _) in libraries(path).items()}
        lines = [[name, *(str(of[name]) for of in found.values())] for name in next(iter(found.values()))]
        return table(["", *found], lines)


def statuses():
    """What each status means."""
    return "\n".join(f"- *{status}*: {meaning}" for status, meaning in STATUSES.items())


def page(path=DATA):
    """Every setting, a table a group."""
    text = []
    with using(path):
        for title, groups in libraries(path).values():
            text.append(f"## {title}")
            for group, found in groups.items():
                lines = table(["setting", "here", "held"], map(line, found))
                text += [f"### {title.split()[0]}: {group}", box("coverage", lines), tests_of(found)]
    return "\n\n".join(text)


def line(setting):
    """The setting and what it does; what says the same; how many tests hold it."""
    held = f"✓ {len(setting.held)}" if setting.held else ""
    return [f"`{setting.name}`<br>{setting.means}", here(setting), held]


def here(setting):
    """The column in the middle: the status, and the row with its changed cells, or cells, or settings of the loop."""
    found = setting.algorithm()
    columns = setting.ours if setting.status == "cells" else setting.changes
    said = ", ".join(f"{column} {shown(found, column)}" for column in columns)
    if setting.status == "row":
        said = f"[`{setting.ours}`](#fidelity-{setting.ours})" + f" with {said}" * bool(said)
    elif setting.status == "loop":
        said = ", ".join(f"`{name}={value!r}`" for name, value in setting.ours.items())
    elif setting.status == "not":
        said = setting.ours.strip()
    text = f"*{setting.status}:* {said}"
    text += "".join(f"; `{other}` in the place of `{one}`" for one, other in setting.given.items())
    return f"{text}. {setting.note}" if setting.note else text


def shown(algorithm, column):
    """A cell as the table prints it, with a link to its function; "off" where the column is empty."""
    printed = cells(algorithm).get(column, "-")
    function = unwrapped(getattr(algorithm, column))
    if printed == "-" or column in ("kl", "entropy"):
        return "off" if printed == "-" else printed
    return f"{{py:func}}`{printed.strip('`')} <{function.__module__}.{function.__name__}>`"


def tests_of(found):
    """The tests that hold the settings of a group, folded."""
    held = [setting for setting in found if setting.held]
    lines = [f"- `{one.name}`: " + ", ".join(f"`{fidelity.test_of(mark)}`" for mark in one.held) for one in held]
    return folded("Tests", "\n\n".join(lines), "equation-tests") if lines else ""
