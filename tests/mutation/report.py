"""REPORT.md: what the record says, and which of it no longer holds."""

import json
import platform
from collections import Counter
from importlib.metadata import version
from pathlib import Path

from tests.mutation.record import MODULE, SURVIVED, TIMED_OUT, Function, Now, kind
from tests.mutation.sources import ASKED

EXPLAINED = Path(__file__).parent / "explained.json"
REPORT = Path(__file__).parent / "REPORT.md"
GOAL = 0.95


def mutant_names(now: Now) -> dict[str, tuple]:
    """A name that does not move with the lines above: file, function, change, and which of several alike."""
    named, alike = {}, Counter()
    for (file, function), found in now.mutants.items():
        for i, mutant in enumerate(found):
            name = f"{file}, {function}: {mutant.change}"
            alike[name] += 1
            named[name + (f"  #{alike[name]}" if alike[name] > 1 else "")] = (file, function), i
    return named


def not_fresh(stale: dict[Function, str]) -> list[str]:
    """By file and reason, the functions. `test_record.py` reads these lines."""
    by_reason: dict[tuple[str, str], list[str]] = {}
    for (file, function), why in stale.items():
        by_reason.setdefault((file, why), []).append(f"`{function}`")
    return [f"- `{file}`, {why}: {', '.join(functions)}" for (file, why), functions in by_reason.items()]


def report(now: Now) -> tuple[str, list[str]]:
    """The page, and what is wrong: survivors without an explanation, explanations without a survivor, too few kills."""
    explained, stale, wrong = json.loads(EXPLAINED.read_text()), now.stale(), []
    by_file: dict[str, Counter] = {}
    for (file, _), outcomes in now.outcomes.items():
        by_file.setdefault(file, Counter()).update(map(kind, outcomes))
    total = sum(by_file.values(), Counter())
    alive, tried = total[SURVIVED], total.total() - total["not tried"]
    killed = tried - alive
    share = f" ({killed / tried:.1%})" if tried else ""
    commits = Counter()
    for function, outcomes in now.outcomes.items():
        if len(outcomes) > outcomes.count(None):
            commits[now.record.functions[function]["commit"]] += len(outcomes) - outcomes.count(None)
    lines = [
        "# Mutation report",
        "",
        "Written by `make mutants`. An outcome is kept for as long as the function and the test that killed its",
        "mutant stay as they were (`tests/mutation/record.py` says exactly what is compared). What has changed since",
        "this page was written: `python -m tests.mutation --stale`.",
        "",
        f"**{total.total()} mutants; {tried} tried, {killed} of these killed{share}, of which {total[TIMED_OUT]} by",
        f"running out of time; {alive} survived.** Excluded: none, by no pattern and no pragma. Not mutated, since it",
        "is no program: annotations, docstrings, `__all__`, and the words of an error message (its `raise` is dropped",
        "instead).",
        "",
        f"Python {platform.python_version()}, torch {version('torch')}. Mutants by the commit at which they were tried",
        "(`+`: with uncommitted changes): "
        + (", ".join(f"{commit} {count}" for commit, count in commits.most_common()) or "none")
        + ".",
        "",
        "## Not fresh",
        "",
        *(
            []
            if stale
            else ["Nothing: all of this holds for the library and the tests that this page was written for."]
        ),
        *not_fresh(stale),
        "",
        "## By file",
        "",
        "| file | mutants | killed | survived | not tried |",
        "|---|---|---|---|---|",
    ]
    for file, counts in by_file.items():
        dead = counts.total() - counts[SURVIVED] - counts["not tried"]
        numbers = (counts.total(), dead, counts[SURVIVED], counts["not tried"])
        lines.append(f"| `{file}` | " + " | ".join(map(str, numbers)) + " |")
    lines += ["", "Asked were only these tests. The enumeration oracle, TRL live, the doctests and the notebooks were"]
    lines += ["not; they could only kill more. A survivor whose reason was known faced two cases of each test.", ""]
    asked: dict[tuple[str, ...], list[str]] = {}
    for pattern, tests in ASKED.items():
        asked.setdefault(tests, []).append(f"`{pattern}`")
    for tests, patterns in asked.items():
        lines.append(f"- {', '.join(patterns)}: {', '.join(f'`{test}`' for test in tests)}")
    lines += ["", "## Survivors", "", "Each with the reason why no test can tell it from the program.", ""]
    names, survivors = mutant_names(now), set()
    for name, (function, i) in names.items():
        if now.outcomes[function][i] == SURVIVED:
            survivors.add(name)
            mutant, reason = now.mutants[function][i], explained.get(name)
            if reason is None:
                wrong.append(f"not explained: {name}")
            where = f"{function[0]}:{mutant.line}, {'module' if function[1] == MODULE else function[1]}"
            change = f"`{mutant.before}` to `{mutant.after or 'nothing'}`"
            lines.append(f"- {where}: {change}. {reason or '**Not explained.**'}")
    for name in set(explained) - survivors:
        if name not in names or kind(now.outcomes[names[name][0]][names[name][1]]) != "not tried":
            wrong.append(f"explained, but not alive: {name}")
    if tried and killed < GOAL * tried:
        wrong.append(f"fewer than {GOAL:.0%} were killed")
    return "\n".join(lines).rstrip() + "\n", wrong
