"""Break the library in every small way that the mutator knows, and see whether a test goes red: `make mutants`.

    python -m tests.mutation                all mutants, about an hour on one core; writes REPORT.md
    python -m tests.mutation --survivors    after a test was added: only those that the last run left alive

A library for this would be mutmut or cosmic-ray. mutmut 3.8 skips every decorated function, and here those are ten
advantage, shaping, filter and correction cells and `prepare`; cosmic-ray starts a new interpreter for each mutant, and
importing torch alone takes longer than most of these tests. So the tests are collected once, and each mutant is a fork
of that process in which one function's code has been exchanged. The tests that reach its line (known from a traced run)
go first by how often they have killed a neighbour, then by how fast they are. A change outside of any function cannot
be exchanged: that fork imports the library and the tests anew.
"""

import hashlib
import importlib
import importlib.abc
import importlib.machinery
import json
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
import torch
from _pytest.runner import runtestprotocol

from tests.mutation.mutator import Mutant, mutants

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [
    *sorted((ROOT / "rlhf_minimal" / "functional").glob("*.py")),
    *(ROOT / "rlhf_minimal" / name for name in ("objective.py", "pairwise.py")),
]
# The part of the suite that takes a minute: exact and independent numbers, properties, identities, bad input.
TESTS = [
    *("tests/transcriptions", "tests/test_golden.py", "tests/test_pitfalls.py", "tests/test_identities.py"),
    *("tests/test_anatomy.py", "tests/test_properties.py", "tests/errors/test_functional.py"),
    *("tests/errors/test_checks.py", "tests/errors/test_objective.py", "tests/test_defaults.py"),
    *("tests/test_pairwise.py", "tests/errors/test_pairwise.py"),
]
RESULTS = ROOT / "_build" / "mutants.jsonl"
TRACE = ROOT / "_build" / "mutants_trace.json"
# First, two cases of each parametrised test and so many seconds (as traced; three times less in truth). A mutant that
# lives through these has to live through all tests that reach its line.
CASES, SECONDS = 2, 30.0
EXPLAINED = Path(__file__).parent / "explained.json"
REPORT = Path(__file__).parent / "REPORT.md"
KILLED, SURVIVED, TIMED_OUT = "killed", "survived", "timed out"


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def all_mutants() -> dict[str, tuple[Path, Mutant]]:
    """By a name that does not move with the lines above: file, function, change, and which of several alike."""
    named: dict[str, tuple[Path, Mutant]] = {}
    for path in SOURCES:
        for mutant in mutants(path.read_text()):
            name = f"{path.relative_to(ROOT)}, {mutant.function or 'the module'}: {mutant.change}"
            alike = sum(other == name or other.startswith(name + "  #") for other in named)
            named[name + (f"  #{alike + 1}" if alike else "")] = path, mutant
    return named


# ---- exchanging code ------------------------------------------------------------------------------------------


def exchange(path: Path, mutant: Mutant) -> bool:
    """Give the live function the mutant's code; every reference to it, in tables and partials too, then has it.

    False if the mutant cannot even be imported.
    """
    live = sys.modules[module_name(path)]
    scratch = type(live)(live.__name__)
    scratch.__package__, scratch.__file__ = live.__package__, live.__file__
    sys.modules[live.__name__] = scratch  # dataclasses look their module up by name
    try:
        exec(compile(mutant.source, str(path), "exec"), scratch.__dict__)
    except Exception:
        return False
    finally:
        sys.modules[live.__name__] = live
    old, new = (find(module, mutant.function) for module in (live, scratch))
    old.__code__, old.__defaults__, old.__kwdefaults__ = new.__code__, new.__defaults__, new.__kwdefaults__
    return True


def find(module, qualified_name):
    *classes, name = qualified_name.split(".")
    owner = module
    for part in classes:
        owner = vars(owner)[part]
    function = vars(owner)[name]
    function = getattr(function, "fget", None) or getattr(function, "__func__", function)
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function


class Instead(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from a mutant's source."""

    def __init__(self, path: Path, mutant: Mutant):
        self.path, self.mutant = path, mutant

    def find_spec(self, fullname, path, target=None):
        if fullname == module_name(self.path):
            return importlib.machinery.ModuleSpec(fullname, self, origin=str(self.path))
        return None

    def exec_module(self, module):
        module.__file__ = str(self.path)
        exec(compile(self.mutant.source, str(self.path), "exec"), module.__dict__)


def run_afresh(path: Path, mutant: Mutant) -> bool:
    """Whether the tests, imported anew together with the mutant, go red."""
    for name in [n for n in sys.modules if n.partition(".")[0] in ("rlhf_minimal", "tests", "conftest")]:
        del sys.modules[name]
    sys.meta_path.insert(0, Instead(path, mutant))
    return pytest.main(["-x", "-q", "-p", "no:cacheprovider", *TESTS]) != pytest.ExitCode.OK


# ---- processes --------------------------------------------------------------------------------------------------


def in_a_fork(work, seconds: float):
    """What ``work()`` returns, a JSON value, from a process of its own; None when its time is up."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        try:
            answer = work()
        except BaseException as error:  # nothing that is raised may leave the fork and run on as its parent
            answer = {"error": repr(error)}
        with os.fdopen(write, "wb") as pipe:
            pipe.write(json.dumps(answer).encode())
        os._exit(0)
    os.close(write)
    timer = threading.Timer(seconds, os.kill, (child, signal.SIGKILL))
    timer.start()
    with os.fdopen(read, "rb") as pipe:
        answer = pipe.read()
    timer.cancel()
    os.waitpid(child, 0)
    return json.loads(answer) if answer else None


def passes(item, nextitem) -> bool:
    return not any(report.failed for report in runtestprotocol(item, log=False, nextitem=nextitem))


def trace(items) -> list[dict]:
    """Which lines of which source each test runs, and how long it takes. All of them must pass."""
    wanted = {str(path): path.name if path.name != "__init__.py" else "" for path in SOURCES}
    records = []
    for i, item in enumerate(items):
        lines: set[tuple[str, int]] = set()

        def tracer(frame, event, argument, lines=lines):
            if frame.f_code.co_filename not in wanted:
                return None
            if event == "line":
                lines.add((frame.f_code.co_filename, frame.f_lineno))
            return tracer  # noqa: B023

        start = time.perf_counter()
        sys.settrace(tracer)
        good = passes(item, items[i + 1] if i + 1 < len(items) else None)
        sys.settrace(None)
        records.append({"good": good, "seconds": time.perf_counter() - start, "lines": sorted(lines)})
    return records


# ---- the run ------------------------------------------------------------------------------------------------------


class Mutation:
    """A pytest plugin: where the tests would run once, run them against each mutant."""

    def __init__(self, only_survivors: bool):
        self.only_survivors = only_survivors

    def pytest_runtestloop(self, session):
        if session.testsfailed:
            raise session.Interrupted("the tests cannot even be collected")
        items = session.items
        print(f"\n{len(items)} tests, traced once ...", flush=True)
        files = [*SOURCES, *sorted({item.path for item in items})]
        state = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
        cached = json.loads(TRACE.read_text()) if TRACE.exists() else {}
        records = cached["records"] if cached.get("state") == state else in_a_fork(lambda: trace(items), 3600)
        if not isinstance(records, list):
            raise session.Interrupted(f"the traced run failed: {records}")
        TRACE.write_text(json.dumps({"state": state, "records": records}))
        red = [item.nodeid for item, record in zip(items, records, strict=True) if not record["good"]]
        if red:
            raise session.Interrupted(f"red without any mutation: {red[:5]}")
        self.seconds = [record["seconds"] for record in records]
        self.reached: dict[tuple[str, int], set[int]] = {}
        for i, record in enumerate(records):
            for file, line in record["lines"]:
                self.reached.setdefault((file, line), set()).add(i)
        self.looking = {i for i, record in enumerate(records) if not record["lines"]}
        self.kills: Counter = Counter()
        results = load() if self.only_survivors else {}
        with RESULTS.open("a" if self.only_survivors else "w") as file:
            file.write(json.dumps(["again" if self.only_survivors else "commit", commit()]) + "\n")
        work = {name: where for name, where in all_mutants().items() if results.get(name) not in (KILLED, TIMED_OUT)}
        start = time.monotonic()
        for sampled in (True, False):
            alive = {}
            for n, (name, (path, mutant)) in enumerate(work.items(), 1):
                outcome = self.try_one(items, path, mutant, sampled)
                if outcome == SURVIVED:
                    alive[name] = path, mutant
                with RESULTS.open("a") as file:
                    file.write(json.dumps([name, outcome]) + "\n")
                if outcome != KILLED or n % 100 == 0:
                    print(f"{n}/{len(work)} {time.monotonic() - start:5.0f} s  {outcome}: {name}", flush=True)
            work = {name: where for name, where in alive.items() if where[1].function is not None}
            print(f"{len(alive)} alive; {len(work)} of them face every test that reaches them", flush=True)
        return True

    def try_one(self, items, path: Path, mutant: Mutant, sampled: bool) -> str:
        if mutant.function is None:
            dead = in_a_fork(lambda: run_afresh(path, mutant), 900)
            if isinstance(dead, dict):
                raise RuntimeError(f"{mutant}: the harness failed, not the mutant: {dead['error']}")
            return TIMED_OUT if dead is None else KILLED if dead else SURVIVED
        chosen = {i for line in mutant.lines for i in self.reached.get((str(path), line), ())}
        if not chosen:  # the head of a function: whatever calls it, or only looks at it
            first = find(sys.modules[module_name(path)], mutant.function).__code__
            lines = {line for _, _, line in first.co_lines() if line}
            chosen = {i for line in lines for i in self.reached.get((str(path), line), ())} | self.looking
        order = sorted(chosen, key=lambda i: (-self.kills[path, mutant.function, i], self.seconds[i]))
        if sampled:
            order = self.sample(items, order)

        def work():
            if not exchange(path, mutant):
                return order[0] if order else 0
            for position, i in enumerate(order):
                following = items[order[position + 1]] if position + 1 < len(order) else None
                if not passes(items[i], following):
                    return i
            return -1

        killer = in_a_fork(work, 30 + 5 * sum(self.seconds[i] for i in order))
        if isinstance(killer, dict):
            raise RuntimeError(f"{mutant}: the harness failed, not the mutant: {killer['error']}")
        if killer is None:
            return TIMED_OUT
        self.kills[path, mutant.function, killer] += killer >= 0
        return SURVIVED if killer == -1 else KILLED

    def sample(self, items, order: list[int]) -> list[int]:
        cases: Counter = Counter()
        spent, some = 0.0, []
        for i in order:
            test = items[i].nodeid.partition("[")[0]
            cases[test] += 1
            if cases[test] <= CASES and spent < SECONDS:
                some.append(i)
                spent += self.seconds[i]
        return some


def commit() -> str:
    """The commit under test, and a word if the files under test are not as they are in it."""
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    files = [str(path) for path in SOURCES] + TESTS
    changed = subprocess.run(["git", "diff", "--quiet", "HEAD", "--", *files], cwd=ROOT).returncode
    return head + (" with uncommitted changes" if changed else "")


def load() -> dict[str, str]:
    return dict(json.loads(line) for line in RESULTS.read_text().splitlines()) if RESULTS.exists() else {}


# ---- the report ---------------------------------------------------------------------------------------------------


def report() -> int:
    """Write REPORT.md; the exit status is 1 if a survivor is unexplained or fewer than 95 % were killed."""
    work, results, explained = all_mutants(), load(), json.loads(EXPLAINED.read_text())
    outcomes = {name: results.get(name, "not run") for name in work}
    by_file = {path: Counter(outcomes[name] for name, (p, _) in work.items() if p == path) for path in SOURCES}
    total = sum(by_file.values(), Counter())
    dead = total[KILLED] + total[TIMED_OUT]
    again = f", with its survivors tried again at {results['again']}" if "again" in results else ""
    lines = [
        "# Mutation report",
        "",
        "Written by `make mutants` (`tests/mutation/__main__.py` says how it works and why it is our own).",
        "",
        f"Commit {results.get('commit')}{again}; Python {platform.python_version()}, torch {torch.__version__}.",
        "",
        f"**{total.total()} mutants, {dead} killed ({dead / total.total():.1%}), of these {total[TIMED_OUT]} by",
        f"running out of time; {total[SURVIVED]} survived.** Excluded: none, by no pattern and no pragma. Not mutated,",
        "since it is no program: annotations, docstrings, `__all__`, and the words of an error message (its `raise` is",
        "dropped instead).",
        "",
        f"Tests: {', '.join(f'`{test}`' for test in TESTS)}. The enumeration oracle, TRL live, the doctests and the",
        "notebooks were not asked; they could only kill more.",
        "",
        "| file | mutants | killed | timed out | survived |",
        "|---|---|---|---|---|",
    ]
    for path, counts in by_file.items():
        if counts:
            numbers = (counts.total(), counts[KILLED], counts[TIMED_OUT], counts[SURVIVED])
            lines.append(f"| `{path.relative_to(ROOT)}` | " + " | ".join(map(str, numbers)) + " |")
    lines += ["", "## Survivors", "", "Each with the reason why no test can tell it from the program.", ""]
    alive = [name for name, outcome in outcomes.items() if outcome not in (KILLED, TIMED_OUT)]
    unexplained = []
    for name in alive:
        path, mutant = work[name]
        reason = explained.get(name)
        if reason is None:
            unexplained.append(name)
        where = f"{path.relative_to(ROOT)}:{mutant.line}, {mutant.function or 'module'}"
        lines.append(f"- {where}: `{mutant.before}` to `{mutant.after or 'nothing'}`. {reason or '**Not explained.**'}")
    stale = set(explained) - set(alive)
    REPORT.write_text("\n".join(lines).rstrip() + "\n")
    print(f"\n{dead}/{total.total()} killed; {len(alive)} survived, {len(unexplained)} of them unexplained")
    print("\n".join(f"  unexplained: {name}" for name in unexplained))
    print("\n".join(f"  explained, but not alive: {name}" for name in stale))
    return int(bool(unexplained) or total["not run"] > 0 or dead < 0.95 * total.total())


def main(arguments: list[str]) -> int:
    os.chdir(ROOT)
    torch.set_num_threads(1)
    RESULTS.parent.mkdir(exist_ok=True)
    if arguments != ["--report"]:
        plugin = Mutation(only_survivors="--survivors" in arguments)
        code = pytest.main(["-q", "-p", "no:cacheprovider", *TESTS], plugins=[plugin])
        if code != pytest.ExitCode.OK:
            return int(code)
    return report()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
