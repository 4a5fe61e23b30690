"""Every check this repository has, in order, with one summary at the end: `python -m tests`.

All checks run even after one has failed; the exit status is 0 only when all of them passed. Words after the
command choose checks by name: `python -m tests unit errors`. The summary says where the time went: every check, the
files that took the longest, and every chapter.

`python -m tests row NAME` runs what holds one row of the tables, and says where each of its functions is tested.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

from tests import costs, row

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
PYTEST = "python -m pytest -q -rs"
# A worker that has nothing left takes over half of what the other still has, in the middle of a file if need be. The
# cells of a notebook have to stay together: they share a kernel.
SIDE_BY_SIDE, BY_NOTEBOOK = "-n 2 --dist worksteal", "-n 2 --dist loadfile"

# Shapes are checked while the tests run: the hook turns every jaxtyping annotation into an assertion.
SHAPES = "--jaxtyping-packages=rlhf_minimal,rlhf_book,beartype.beartype"

CHECKS = {
    "style": "ruff check .",
    "format": "ruff format --check .",
    "errors": f"{PYTEST} tests/errors",  # without the hook: a reader gets our errors, not the hook's
    "unit": f"{PYTEST} {SIDE_BY_SIDE} tests rlhf_minimal notebooks/rlhf_book --doctest-modules {SHAPES} "
    "--ignore tests/errors --ignore tests/book --ignore tests/browser",
    "types": "mypy",
    "book": "jupyter-book build . -W -n --keep-going --all",
    "notebooks": f"{PYTEST} {BY_NOTEBOOK} --nbval-lax --nbval-current-env notebooks",
    "pages": f"{PYTEST} tests/book tests/browser",
}
# These keep one core busy each, one after the other, and so does `errors`: they begin when the checks begin.
BESIDE = ("types", "book")


def run(command: str, to: Path | None = None) -> tuple[bool, float]:
    """Run one command of this environment; say whether it passed and how long it took. `to` gets what it prints."""
    program, *arguments = command.split()
    start = time.monotonic()
    with open(to, "wb") if to else nullcontext() as file:
        said = {"stdout": file, "stderr": subprocess.STDOUT} if to else {}
        code = subprocess.run([BIN / program, *arguments], cwd=ROOT, **said).returncode
    return code == 0, time.monotonic() - start


def run_all(names: list[str], reports: Path) -> dict[str, tuple[bool, float]]:
    """Run checks in order, some beside those that come before them; what these print is shown at their turn."""

    def command(name: str) -> str:
        return CHECKS[name] + (f" --junit-xml={reports / name}.xml" if "pytest" in CHECKS[name] else "")

    results = {}
    with ThreadPoolExecutor(1) as other:
        if "book" in names:  # a build that writes nothing must not be mistaken for the last one
            shutil.rmtree(ROOT / "_build" / "html", ignore_errors=True)
        beside = {name: other.submit(run, command(name), reports / f"{name}.txt") for name in names if name in BESIDE}
        for name in names:
            print(f"\n── {name}: {CHECKS[name]}", flush=True)
            if name in beside:
                results[name] = beside[name].result()
                print((reports / f"{name}.txt").read_text(encoding="utf-8", errors="replace"), flush=True)
            else:
                results[name] = run(command(name))
    return results


def print_costs(reports: Path) -> None:
    """Where the time went: the slowest files of each check, and what each chapter costs."""
    cases = {file.stem: costs.read(file) for file in sorted(reports.glob("*.xml"))}
    for name, those in cases.items():
        print(f"\n── slowest files of {name}")
        for seconds, tests in costs.slowest(those):
            print(f"{seconds:6.1f} s  {tests}")
    if cases:
        print("\n── what a chapter costs, in seconds of one core: its notebook, the tests of its exercises and of its")
        print("   recorded runs, its page in a browser")
        print("\n".join(costs.table(costs.Book().costs([case for those in cases.values() for case in those]))))


def main(names: list[str]) -> int:
    if names[:1] == ["row"]:
        return row.main(names[1:])
    if unknown := set(names) - set(CHECKS):
        print(f"unknown check: {', '.join(sorted(unknown))}; choose among {', '.join(CHECKS)}, or: row NAME")
        return 2
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # Hundreds of commands and kernels import the library: what the first has compiled, the others read.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tests-") as folder:
        results = run_all([name for name in CHECKS if name in names or not names], Path(folder))
        print_costs(Path(folder))
    print("\n── summary")
    for name, (passed, seconds) in results.items():
        print(f"{'passed' if passed else 'FAILED'}  {name:<10} {seconds:6.1f} s")
    failed = [name for name, (passed, _) in results.items() if not passed]
    print(f"        {'all':<10} {time.monotonic() - start:6.1f} s")
    print("everything passed" if not failed else f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
