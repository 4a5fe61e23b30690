"""How runs that take too long for a chapter are recorded: fixed seeds, all of them kept, a line a run.

A file of recorded runs has a script beside it that names its arms. Running the script adds what is missing and leaves
what is there; delete a line, or the file, to have it measured again.
"""

import argparse
import json
import platform
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
import transformers

from rlhf_minimal import __version__

SEEDS = range(5)  # fixed before anything was measured


def record(
    script: str,
    arms: Iterable[str],
    run: Callable[[str, int], dict[str, Any]],
    *,
    seeds: Iterable[int] = SEEDS,
    fewer: Mapping[str, int] | None = None,
    **head: Any,
) -> None:
    """Run every arm with every seed that is not on file, or only the arms named on the command line.

    Args:
        script: the calling file; its record has the same name with hyphens, and ends in .json.
        arms: their names, in the order in which they are written.
        run: (arm, seed) -> what is kept of that run; "arm" and "seed" are added.
        seeds: those that every arm gets.
        fewer: how many of them, the first ones, some arms get instead.
        head: what holds for all runs, such as the number of steps.
    """
    arms, seeds, fewer = list(arms), list(seeds), fewer or {}
    parser = argparse.ArgumentParser(
        prog=Path(script).name, description=f"{len(arms)} arms, seeds {seeds}."
    )
    parser.add_argument("arm", nargs="*", help=f"only these arms: {', '.join(arms)}")
    chosen = parser.parse_args().arm
    if unknown := set(chosen) - set(arms):
        parser.error(
            f"no arm {', '.join(sorted(unknown))}; there are {', '.join(arms)}"
        )
    torch.set_num_threads(1)
    data = record_of(script)
    runs = json.loads(data.read_text())["runs"] if data.exists() else []
    done = {(one["arm"], one["seed"]) for one in runs}
    for arm in chosen or arms:
        for seed in seeds[: fewer.get(arm)]:
            if (arm, seed) in done:
                continue
            runs.append({"arm": arm, "seed": seed, **run(arm, seed)})
            single = {
                name: value
                for name, value in runs[-1].items()
                if not isinstance(value, list)
            }
            print(*(f"{name} {value}" for name, value in single.items()), flush=True)
            runs.sort(key=lambda one: (arms.index(one["arm"]), one["seed"]))
            save(data, script, head, runs)


def record_of(script: str) -> Path:
    """The file of a script: grpo_sweeps.py -> grpo-sweeps.json."""
    path = Path(script)
    return path.with_name(path.stem.replace("_", "-") + ".json")


def save(
    data: Path, script: str, head: dict[str, Any], runs: list[dict[str, Any]]
) -> None:
    """A line a run, so that a changed run is a changed line."""
    versions = {
        "rlhf_minimal": __version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
    }
    command = f"python notebooks/results/{Path(script).name}"
    top = json.dumps({"command": command, **head, "versions": versions})
    data.write_text(
        top[:-1] + ', "runs": [\n' + ",\n".join(map(json.dumps, runs)) + "\n]}\n"
    )
