"""Every check this repository has, in order, with one summary at the end: `python -m tests`.

All checks run even after one has failed; the exit status is 0 only when all of them passed. Words after the
command choose checks by name: `python -m tests unit errors`. The summary says where the time went: every check, and the
files that took the longest.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
PYTEST = "python -m pytest -q -rs"
SIDE_BY_SIDE = "-n 2 --dist loadfile"  # without loadfile, one notebook's cells are spread over two kernels

CHECKS = {
    "style": "ruff check .",
    "format": "ruff format --check .",
    "types": "mypy",
    # Shapes are checked while the tests run: the hook turns every jaxtyping annotation into an assertion.
    "unit": f"{PYTEST} {SIDE_BY_SIDE} tests rlhf_minimal notebooks/rlhf_book --doctest-modules "
    "--ignore tests/errors --ignore tests/book --ignore tests/browser "
    "--jaxtyping-packages=rlhf_minimal,rlhf_book,beartype.beartype",
    # A reader gets our errors, not the hook's: these run without it.
    "errors": f"{PYTEST} tests/errors",
    "notebooks": f"{PYTEST} {SIDE_BY_SIDE} --nbval-lax --nbval-current-env notebooks",
    "book": "jupyter-book build . -W -n --keep-going --all",
    "pages": f"{PYTEST} tests/book tests/browser",
}


def run(command: str) -> tuple[bool, float]:
    """Run one command of this environment; say whether it passed and how long it took."""
    program, *arguments = command.split()
    start = time.monotonic()
    code = subprocess.run([BIN / program, *arguments], cwd=ROOT).returncode
    return code == 0, time.monotonic() - start


def slowest(report: Path, n: int = 15) -> list[tuple[float, str]]:
    """The seconds of the files that took the longest, their tests added up, from what `--junit-xml` writes.

    Two files run at a time, so the seconds of all files add up to about twice those of the check.
    """
    seconds: Counter[str] = Counter()
    for case in ElementTree.parse(report).iter("testcase"):
        seconds[case.get("classname", "?")] += float(case.get("time", 0.0))
    return [(time, name) for name, time in seconds.most_common(n) if time >= 1]


def main(names: list[str]) -> int:
    unknown = set(names) - set(CHECKS)
    if unknown:
        print(f"unknown check: {', '.join(sorted(unknown))}; choose among {', '.join(CHECKS)}")
        return 2
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    results = {}
    reports = Path(tempfile.mkdtemp(prefix="tests-"))
    for name in names or CHECKS:
        if name == "book":  # a build that writes nothing must not be mistaken for the last one
            shutil.rmtree(ROOT / "_build" / "html", ignore_errors=True)
        print(f"\n── {name}: {CHECKS[name]}", flush=True)
        report = f" --junit-xml={reports / name}.xml" if "pytest" in CHECKS[name] else ""
        results[name] = run(CHECKS[name] + report)
    for file in sorted(reports.glob("*.xml")):
        print(f"\n── slowest files of {file.stem}")
        for seconds, tests in slowest(file):
            print(f"{seconds:6.1f} s  {tests}")
    shutil.rmtree(reports)
    print("\n── summary")
    for name, (passed, seconds) in results.items():
        print(f"{'passed' if passed else 'FAILED'}  {name:<10} {seconds:6.1f} s")
    failed = [name for name, (passed, _) in results.items() if not passed]
    print(f"        {'all':<10} {sum(seconds for _, seconds in results.values()):6.1f} s")
    print("everything passed" if not failed else f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
