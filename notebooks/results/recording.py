"""How runs that take too long for a chapter are recorded: fixed seeds, all of them kept, a line a run.

A file of recorded runs has a script beside it that names its arms. Running the script adds what is missing and leaves
what is there; delete a line, or the file, to have it measured again. Several processes may run a script at once: each
holds a lock on the run that it is in, which the system lets go when it ends, however it ends, and each reads the file
again before it adds a line. Whoever reads meanwhile, or after one was killed, sees a whole file.

**Versions.** At the head are those with which the first line was recorded. A line that was recorded with others has
`versions` of its own, those that differ; `rlhf_book.records.recorded_with` says it in words.
"""

import argparse
import json
import os
import platform
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import torch
import transformers

from rlhf_minimal import __version__

try:
    import fcntl
except ImportError:  # Windows has no such locks: there one process at a time
    fcntl = None  # type: ignore[assignment]

SEEDS = range(5)  # fixed before anything was measured


def record(
    script: str,
    arms: Iterable[str],
    run: Callable[[str, int], dict[str, Any]],
    *,
    seeds: Iterable[int] = SEEDS,
    fewer: Mapping[str, int] | None = None,
    to: Path | None = None,
    only: Iterable[str] | None = None,
    **head: Any,
) -> None:
    """Run every arm with every seed that is not on file, or only the arms named on the command line.

    Args:
        script: the calling file; its record has the same name with hyphens, and ends in .json.
        arms: their names, in the order in which they are written.
        run: (arm, seed) -> what is kept of that run; "arm" and "seed" are added.
        seeds: those that every arm gets.
        fewer: how many of them, the first ones, some arms get instead.
        to: the record, if it is not the script's own.
        only: the arms that are asked for, if the script has read the command line; all of them if it is empty.
        head: what holds for all runs, such as the number of steps.
    """
    arms, seeds, fewer = list(arms), list(seeds), fewer or {}
    parser = argparse.ArgumentParser(
        prog=Path(script).name, description=f"{len(arms)} arms, seeds {seeds}."
    )
    parser.add_argument("arm", nargs="*", help=f"only these arms: {', '.join(arms)}")
    chosen = parser.parse_args().arm if only is None else list(only)
    if unknown := set(chosen) - set(arms):
        parser.error(
            f"no arm {', '.join(sorted(unknown))}; there are {', '.join(arms)}"
        )
    torch.set_num_threads(1)
    file = Record(to or record_of(script), script)

    def place(one: dict[str, Any]) -> tuple[int, int]:
        return arms.index(one["arm"]), one["seed"]

    for arm in chosen or arms:
        for seed in seeds[: fewer.get(arm)]:
            with file.claim(number_of(arm, seed)) as own:
                if not own:
                    print(f"arm {arm} seed {seed} is under way in another process")
                    continue
                if (arm, seed) in {(one["arm"], one["seed"]) for one in file.runs()}:
                    continue
                line = {"arm": arm, "seed": seed, **run(arm, seed)}
                file.add(line, head, place)
            single = {
                name: value
                for name, value in line.items()
                if not isinstance(value, list)
            }
            print(*(f"{name} {value}" for name, value in single.items()), flush=True)


def record_of(script: str) -> Path:
    """The file of a script: grpo_sweeps.py -> grpo-sweeps.json."""
    path = Path(script)
    return path.with_name(path.stem.replace("_", "-") + ".json")


def number_of(arm: str, seed: int) -> int:
    """The number under which a run is claimed, the same in every process and in every version of a script."""
    return zlib.crc32(f"{arm}/{seed}".encode())


def versions() -> dict[str, str]:
    """With what this process records."""
    return {
        "rlhf_minimal": __version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
    }


def cpu_name() -> str:
    """What the processor calls itself."""
    lines = (
        Path("/proc/cpuinfo").read_text().splitlines()
        if Path("/proc/cpuinfo").exists()
        else []
    )
    found = [
        line.partition(":")[2].strip()
        for line in lines
        if line.startswith("model name")
    ]
    return found[0] if found else platform.processor() or platform.machine()


def write(path: Path, text: str) -> None:
    """A reader sees the old file or the new one, also where the writer is killed."""
    new = path.with_suffix(".new")
    new.write_text(text)
    os.replace(new, path)


class Record:
    """A file of runs, which several processes may write, and the locks on runs that are under way.

    Args:
        path: Of the file.
        script: Whose runs they are.
    """

    def __init__(self, path: Path, script: str) -> None:
        self.path, self.script = path, script
        self.locks: IO[bytes] = path.with_suffix(".lock").open("a+b")

    def _lock(self, *how: str, place: int) -> None:
        if fcntl is not None:
            ways = sum(getattr(fcntl, name) for name in how)
            fcntl.lockf(self.locks, ways, 1, place)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else writes."""
        self._lock("LOCK_EX", place=0)
        try:
            yield
        finally:
            self._lock("LOCK_UN", place=0)

    @contextmanager
    def claim(self, number: int) -> Iterator[bool]:
        """Whether the run of that number is this process's until the block ends."""
        try:
            self._lock("LOCK_EX", "LOCK_NB", place=1 + number)
        except OSError:
            yield False
            return
        try:
            yield True
        finally:
            self._lock("LOCK_UN", place=1 + number)

    def runs(self) -> list[dict[str, Any]]:
        """Those on file."""
        found: list[dict[str, Any]] = self.read().get("runs", [])
        return found

    def read(self) -> dict[str, Any]:
        """All that is on file."""
        found: dict[str, Any] = (
            json.loads(self.path.read_text()) if self.path.exists() else {}
        )
        return found

    def add(
        self,
        run: dict[str, Any],
        head: Mapping[str, Any],
        place: Callable[[dict[str, Any]], Any],
    ) -> None:
        """Adds a line to what is on file by then: a line a run, so that a changed run is a changed line.

        Args:
            run: What is kept of it.
            head: What holds for all runs.
            place: The runs are sorted by it.
        """
        with self.alone():
            old, own = self.read(), versions()
            runs = old.get("runs", [])
            first = old["versions"] if runs else own
            differ = {name: own[name] for name in own if own[name] != first.get(name)}
            runs = sorted(
                [*runs, run | ({"versions": differ} if differ else {})], key=place
            )
            command = f"python notebooks/results/{Path(self.script).name}"
            top = json.dumps({"command": command, **head, "versions": first})
            lines = ",\n".join(map(json.dumps, runs))
            write(self.path, f'{top[:-1]}, "runs": [\n{lines}\n]}}\n')
