"""Exchange one function at a time and ask the tests, in forks of a process that has collected them once.

A library for this would be mutmut or cosmic-ray. mutmut 3.8 skips every decorated function, and here those are most
cells and `prepare`; cosmic-ray starts a new interpreter for each mutant, and importing torch alone takes longer than
most of these tests. So the tests are collected once, and each mutant is a fork of that process in which one function's
code has been exchanged. A change outside of any function cannot be exchanged: that fork imports the library and its
tests anew, one file of tests at a time.

First, every mutant meets a few cases of each test that reaches its line (known from a traced run), those first that
have killed its neighbours for the least time. What lives through that has to live through all the others, unless
explained.json says already why no test can kill it.
"""

import gc
import importlib
import importlib.abc
import importlib.machinery
import json
import os
import resource
import selectors
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import coverage
import hypothesis
import pytest
import torch
from _pytest.runner import runtestprotocol

from tests.mutation.mutator import Mutant
from tests.mutation.record import (
    CRASHED,
    MODULE,
    SURVIVED,
    TIMED_OUT,
    Function,
    Now,
    digest,
    kind,
    test_hash,
    tests_hash,
)
from tests.mutation.report import EXPLAINED, mutant_names
from tests.mutation.sources import ROOT, tests_of_sources

TRACES = ROOT / "_build" / "mutation_traces.json"
# The first round: so many cases of each parametrised test, and so many seconds of processor time, as traced.
CASES, SECONDS = 2, 12.0
# A fork may use so many seconds of processor time, and so many times what its tests needed when they were traced.
PATIENCE, FACTOR = 20.0, 5.0
QUIET = ["-q", "-p", "no:cacheprovider", "--tb=no", "--disable-warnings", "--no-header", "--no-summary"]


# ---- processes ------------------------------------------------------------------------------------------------------


def forks(jobs: Iterator[tuple[object, Callable, float]], workers: int) -> Iterator[tuple[object, object]]:
    """For each job (its key, what to do, how many seconds of processor time it may use): key and answer, as they end.

    What a job does runs in a fork and returns something that JSON can say. A fork whose time is up answers TIMED_OUT,
    one that died otherwise CRASHED. The next job is asked for when a worker is free.
    """
    running: dict[int, tuple[object, int, list[bytes], float]] = {}  # by the pipe that it answers through
    late: set[int] = set()
    selector = selectors.DefaultSelector()
    try:
        while True:
            while len(running) < workers and (job := next(jobs, None)) is not None:
                key, work, seconds = job
                pipe, child = start(work, seconds)
                # On a busy machine a second of processor time takes longer; a fork that only waits ends here.
                running[pipe] = key, child, [], time.monotonic() + 60 + 10 * seconds
                selector.register(pipe, selectors.EVENT_READ)
            if not running:
                return
            for ready, _ in selector.select(timeout=5):
                key, child, chunks, _ = running[ready.fd]
                if chunk := os.read(ready.fd, 1 << 16):
                    chunks.append(chunk)
                    continue
                selector.unregister(ready.fd)
                os.close(ready.fd)
                del running[ready.fd]
                status = os.waitpid(child, 0)[1]
                timed_out = child in late or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU)
                yield key, json.loads(b"".join(chunks)) if chunks else TIMED_OUT if timed_out else CRASHED
            for _, child, _, deadline in running.values():
                if time.monotonic() > deadline:
                    late.add(child)
                    os.kill(child, signal.SIGKILL)
    finally:
        for pipe, (_, child, _, _) in running.items():
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(pipe)


def start(work: Callable, seconds: float) -> tuple[int, int]:
    read, write = os.pipe()
    child = os.fork()
    if child:
        os.close(write)
        return read, child
    os.close(read)
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 2))
    try:
        answer = work()
    except BaseException as error:  # nothing that is raised may leave the fork and run on as its parent
        answer = {"error": repr(error)}
    with os.fdopen(write, "wb") as pipe:
        pipe.write(json.dumps(answer).encode())
    os._exit(0)


# ---- exchanging code ------------------------------------------------------------------------------------------------


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def exchange(path: Path, mutant: Mutant) -> bool:
    """Give the live function the mutant's code; every reference to it, in tables and partials too, then has it.

    False if the mutant cannot even be imported.
    """
    live = sys.modules[module_name(path)]
    scratch = type(live)(live.__name__)
    scratch.__package__, scratch.__file__ = live.__package__, live.__file__
    sys.modules[live.__name__] = scratch  # dataclasses look their module up by name
    try:
        exec(mutant.code(str(path)), scratch.__dict__)
    except Exception:
        return False
    finally:
        sys.modules[live.__name__] = live
    for old, new in zip(found(live, mutant.function), found(scratch, mutant.function), strict=True):
        old.__code__, old.__defaults__, old.__kwdefaults__ = new.__code__, new.__defaults__, new.__kwdefaults__
    return True


def found(module, qualified_name: str) -> list:
    """The plain functions of that name: one, or a property's getter, setter and deleter."""
    *classes, name = qualified_name.split(".")
    owner = module
    for part in classes:
        owner = vars(owner)[part]
    function = vars(owner)[name]
    if isinstance(function, property):
        functions = [part for part in (function.fget, function.fset, function.fdel) if part is not None]
    else:
        functions = [getattr(function, "func", getattr(function, "__func__", function))]  # cached_property, classmethod
    for i, function in enumerate(functions):
        while hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        functions[i] = function
    return functions


class Instead(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from a mutant's source."""

    def __init__(self, path: Path, mutant: "Mutant | Unchanged"):
        self.path, self.mutant = path, mutant

    def find_spec(self, fullname, path, target=None):
        if fullname == module_name(self.path):
            return importlib.machinery.ModuleSpec(fullname, self, origin=str(self.path))
        return None

    def exec_module(self, module):
        module.__file__ = str(self.path)
        exec(self.mutant.code(str(self.path)), module.__dict__)


class Unchanged:
    """In the place of a mutant, the program."""

    def __init__(self, path: Path):
        self.path = path

    def code(self, filename: str):
        return compile(self.path.read_text(), filename, "exec")


class FirstFailure:
    """A pytest plugin: the name of what failed first, a test or a file. Few cases of each test, if so wished."""

    def __init__(self, few: bool):
        self.few, self.name = few, None

    def pytest_collection_modifyitems(self, items):
        if self.few:
            items[:] = few_cases(items)

    def pytest_collectreport(self, report):
        if report.failed:
            self.name = self.name or report.nodeid

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.name = self.name or report.nodeid


def run_afresh(path: Path, mutant: "Mutant | Unchanged", files: list[Path], few: bool) -> str | None:
    """The test that goes red when library and tests are imported anew together with the mutant, if any does."""
    for name in [n for n in sys.modules if n.partition(".")[0] in ("rlhf_minimal", "tests", "conftest")]:
        del sys.modules[name]
    sys.meta_path.insert(0, Instead(path, mutant))
    for file in files:
        first = FirstFailure(few)
        code = pytest.main(["-x", *QUIET, str(file)], plugins=[first, NoShrinking()])
        if code != pytest.ExitCode.OK:
            return first.name or str(file.relative_to(ROOT))
    return None


def few_cases(items: list) -> list:
    cases: Counter = Counter()
    some = []
    for item in items:
        test = item.nodeid.partition("[")[0]
        cases[test] += 1
        if cases[test] <= CASES:
            some.append(item)
    return some


class NoShrinking:
    """A pytest plugin: hypothesis makes the same examples, and does not look for a smaller one that fails too."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self):
        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        profile = hypothesis.settings.get_profile("repeatable")
        hypothesis.settings.register_profile("mutation", profile, phases=phases, report_multiple_bugs=False)
        hypothesis.settings.load_profile("mutation")


# ---- which tests reach which lines ----------------------------------------------------------------------------------


def passes(item, nextitem) -> bool:
    return not any(report.failed for report in runtestprotocol(item, log=False, nextitem=nextitem))


def trace(items: list, sources: list[Path]) -> list[dict]:
    """Which lines of which source each test runs, and how long it takes. All of them should pass."""
    tool = coverage.Coverage(data_file=None, config_file=False, include=[str(path) for path in sources], messages=False)
    tool.set_option("run:disable_warnings", ["no-data-collected"])
    good, seconds = [], []
    tool.start()
    for i, item in enumerate(items):
        start = time.process_time()
        tool.switch_context(str(i))
        good.append(passes(item, items[i + 1] if i + 1 < len(items) else None))
        seconds.append(time.process_time() - start)
    tool.stop()
    data = tool.get_data()
    lines: list[dict[str, list[int]]] = [{} for _ in items]
    for path in sources:
        for line, contexts in data.contexts_by_lineno(str(path)).items():
            for context in filter(None, contexts):
                lines[int(context)].setdefault(str(path.relative_to(ROOT)), []).append(line)
    return [{"good": g, "seconds": s, "lines": n} for g, s, n in zip(good, seconds, lines, strict=True)]


# ---- the run --------------------------------------------------------------------------------------------------------


class Mutation:
    """A pytest plugin: where the tests would run once, run them against each mutant."""

    def __init__(self, now: Now, work: list[tuple[Function, int]], workers: int, measure: Path | None = None):
        self.now, self.work, self.workers, self.measure = now, work, workers, measure
        reasons = json.loads(EXPLAINED.read_text())
        self.explained = {key for name, key in mutant_names(now).items() if name in reasons}

    def pytest_runtestloop(self, session):
        if session.testsfailed:
            raise session.Interrupted("the tests cannot even be collected")
        self.items = session.items
        self.hashes = {item.nodeid: test_hash(item.nodeid) for item in self.items}
        self.sources = sorted({ROOT / file for (file, _), _ in self.work})
        records = self.traced(session)
        self.seconds = [record["seconds"] for record in records]
        self.asked = {}  # by source, the tests by number
        self.reached: dict[tuple[str, int], set[int]] = {}
        for path in self.sources:
            file, tests = str(path.relative_to(ROOT)), set(tests_of_sources()[path])
            self.asked[file] = {i for i, item in enumerate(self.items) if item.path in tests}
            for i in self.asked[file]:
                for line in records[i]["lines"].get(file, ()):
                    self.reached.setdefault((file, line), set()).add(i)
        self.looking = {i for i, record in enumerate(records) if not record["lines"]}
        self.kills: Counter = Counter()
        for function, entry in self.now.record.functions.items():  # what killed before will kill again
            for outcome in entry["outcomes"]:
                if kind(outcome) == "killed":
                    self.count_kill(function, outcome[0])
        head = commit()
        for function in dict(self.work):
            again = {i for f, i in self.work if f == function}
            old = self.now.outcomes[function]
            self.now.record.functions[function] = {
                "code": self.now.codes[function],
                "tests": tests_hash(function[0]),
                "commit": head,
                "outcomes": [None if i in again else x for i, x in enumerate(old)],
            }
        gc.collect()
        gc.freeze()  # the forks share what is there now, as long as nobody touches it
        self.began = time.monotonic()
        self.control(session)
        left = self.work
        for few in (True, False):
            try:
                left = self.round(left, few)
            finally:
                self.now.record.save()
        return True

    def traced(self, session) -> list[dict]:
        """A trace by file of tests, kept while it, what it leans on and the library stay as they are."""
        library = digest(*(path.read_text() for path in sorted((ROOT / "rlhf_minimal").rglob("*.py"))))
        state = digest(library, *map(str, self.sources))
        known = json.loads(TRACES.read_text()) if TRACES.exists() else {}
        files: dict[str, list[int]] = {}
        for i, item in enumerate(self.items):
            files.setdefault(item.nodeid.partition("::")[0], []).append(i)
        states = {f: digest(state, *(self.hashes[self.items[i].nodeid] or "" for i in own)) for f, own in files.items()}
        todo = [file for file in files if known.get(file, {}).get("state") != states[file]]
        print(f"\n{len(self.items)} tests; tracing {len(todo)} of {len(files)} files ...", flush=True)

        def jobs():
            for file in todo:
                own = [self.items[i] for i in files[file]]
                yield file, lambda own=own: trace(own, self.sources), 3600

        for file, records in forks(jobs(), self.workers):
            if not isinstance(records, list):
                raise session.Interrupted(f"the traced run of {file} failed: {records}")
            red = [self.items[i].nodeid for i, r in zip(files[file], records, strict=True) if not r["good"]]
            if red:
                raise session.Interrupted(f"red without any mutation: {red[:5]}")
            known[file] = {"state": states[file], "records": records}
        TRACES.parent.mkdir(exist_ok=True)
        TRACES.write_text(json.dumps(known))
        everything: list[dict] = [{}] * len(self.items)
        for file, own in files.items():
            for i, record in zip(own, known[file]["records"], strict=True):
                everything[i] = record
        return everything

    def control(self, session) -> None:
        """The library itself, imported anew as a mutant is, has to live: or all that is tried so would be killed."""
        paths = {tests_of_sources()[ROOT / file]: ROOT / file for (file, name), _ in self.work if name == MODULE}
        jobs = ((path, *self.afresh(path, Unchanged(path), few=True)) for path in paths.values())
        for path, killer in forks(jobs, self.workers):
            if killer is not None:
                raise session.Interrupted(f"{path.name} imported anew, without any mutation: {killer}")

    def round(self, work: list[tuple[Function, int]], few: bool) -> list[tuple[Function, int]]:
        """Try every mutant; those that lived, if there is a second round for them."""
        alive, done, counts = [], 0, Counter()
        saved = time.monotonic()
        jobs = (self.job(key, few) for key in work)
        for key, (outcome, seconds) in self.answers(jobs):
            function, i = key
            done += 1
            counts[kind(outcome)] += 1
            if outcome == SURVIVED and few and key not in self.explained:
                alive.append(key)
            else:
                self.now.record.functions[function]["outcomes"][i] = outcome
            if isinstance(outcome, tuple):
                self.count_kill(function, outcome[0])
            change = self.now.mutants[function][i].change
            if self.measure:
                with self.measure.open("a") as file:
                    file.write(json.dumps([round(seconds, 2), few, kind(outcome), *function, change, outcome]) + "\n")
            if not isinstance(outcome, tuple) and not few:
                print(f"  {outcome}: {', '.join(function)}: {change}", flush=True)
            if done % 100 == 0 or done == len(work):
                print(f"{time.monotonic() - self.began:6.0f} s  {done}/{len(work)}  {dict(counts)}", flush=True)
            if time.monotonic() - saved > 30:
                self.now.record.save()
                saved = time.monotonic()
        return sorted(alive)

    def answers(self, jobs):
        for key, answer in forks(jobs, self.workers):
            function, i = key
            if answer in (TIMED_OUT, CRASHED):
                yield key, (answer, 0.0)
                continue
            if "error" in answer:
                raise RuntimeError(f"{function}, {self.now.mutants[function][i].change}: {answer['error']}")
            name = answer["killer"]
            outcome = SURVIVED if name is None else (name, self.hashes.get(name) or test_hash(name) or "")
            yield key, (outcome, answer["seconds"])

    def job(self, key, few: bool):
        (file, name), i = function, _ = key
        path, mutant = ROOT / file, self.now.mutants[function][i]
        if name == MODULE:
            work, seconds = self.afresh(path, mutant, few)
        else:
            work, seconds = self.exchanged(path, mutant, few)

        def timed():
            start = time.process_time()
            return {"killer": work(), "seconds": time.process_time() - start}

        return key, timed, PATIENCE + FACTOR * seconds

    def afresh(self, path: Path, mutant: Mutant | Unchanged, few: bool):
        file = str(path.relative_to(ROOT))
        cost, kills = Counter(), Counter()
        for i in self.asked[file]:
            cost[self.items[i].path] += self.seconds[i]
            kills[self.items[i].path] += self.kills[(file, MODULE), self.items[i].nodeid]
        for test in tests_of_sources()[path]:
            kills[test] += self.kills[(file, MODULE), str(test.relative_to(ROOT))]  # it could not be collected
        files = sorted(cost, key=lambda test: -(kills[test] + 0.1) / (cost[test] + 3))
        return lambda: run_afresh(path, mutant, files, few), 60 + sum(cost.values())

    def exchanged(self, path: Path, mutant: Mutant, few: bool):
        file = str(path.relative_to(ROOT))
        chosen = {i for line in mutant.lines for i in self.reached.get((file, line), ())}
        if not chosen:  # the head of a function: whatever calls it, or only looks at it
            codes = [function.__code__ for function in found(sys.modules[module_name(path)], mutant.function)]
            lines = {line for code in codes for _, _, line in code.co_lines() if line}
            chosen = {i for line in lines for i in self.reached.get((file, line), ())}
            chosen |= self.looking & self.asked[file]

        def worth(i):  # kills among its neighbours, by second
            test = self.items[i].nodeid
            near = self.kills[(file, mutant.function), test]
            alike = self.kills[(file, mutant.function), test.partition("[")[0]]
            return (0.05 + 2 * near + alike + 0.1 * self.kills[file, test.partition("[")[0]]) / (self.seconds[i] + 0.01)

        order = sorted(chosen, key=worth, reverse=True)
        first = self.few(order)
        order = first if few else [i for i in order if i not in set(first)]  # the second round: all the others

        def work() -> str | None:
            if not exchange(path, mutant):  # whoever imports it goes red
                return str(tests_of_sources()[path][0].relative_to(ROOT))
            for position, i in enumerate(order):
                following = self.items[order[position + 1]] if position + 1 < len(order) else None
                if not passes(self.items[i], following):
                    return self.items[i].nodeid
            return None

        return work, sum(self.seconds[i] for i in order)

    def few(self, order: list[int]) -> list[int]:
        cases: Counter = Counter()
        spent, some = 0.0, []
        for i in order:
            test = self.items[i].nodeid.partition("[")[0]
            cases[test] += 1
            if cases[test] <= CASES and spent < SECONDS:
                some.append(i)
                spent += self.seconds[i]
        return some

    def count_kill(self, function: Function, test: str) -> None:
        for key in (function, function[0]):
            self.kills[key, test] += 1
            self.kills[key, test.partition("[")[0]] += "[" in test


def commit() -> str:
    """The commit under test, and a plus sign if the library or its tests are not as they are in it."""
    head = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    changed = subprocess.run(["git", "diff", "--quiet", "HEAD", "--", "rlhf_minimal", "tests"], cwd=ROOT).returncode
    return head.stdout.strip() + ("+" if changed else "")


def run(now: Now, work: list[tuple[Function, int]], workers: int, measure: Path | None = None) -> int:
    """Try this work, and write what it met with into the record."""
    os.nice(5)
    torch.set_num_threads(1)
    files = sorted({str(test) for (file, _), _ in work for test in tests_of_sources()[ROOT / file]})
    plugins = [Mutation(now, work, workers, measure), NoShrinking()]
    return int(pytest.main([*QUIET[:-2], *files], plugins=plugins))
