"""Trained pretrained models that can be compared: what an entry has to show, and its line in the table.

    python -m rlhf_book.entries notebooks/results/real-model-cpu.json

A published number of this kind is mostly one run's, without a control, by the author's own reading of the answers. An
entry here is a file that `notebooks/results/real_model.py` writes, and the scores are computed from the completions in
it. The rules:

1. The model before training is measured on the same held-out questions as after it, with as many completions.
2. Three seeds or more of every arm, named beforehand, all of them in the file.
3. A coin as control: the same runs with a reward that does not look at the completion.
4. Every completion of the held-out questions is in the file. No question stands in it twice.
5. The settings, the seconds of every run, and the machine.

A score is strict (the number behind `####`) and lenient (the last number of the completion). Both are told.
"""

import json
import math
import sys
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlhf_minimal.evaluate import pass_at
from rlhf_minimal.lab.word_problems import lenient, number, strict

CONTROL, START = "coin", "start"
FEWEST_SEEDS = 3
# Held-out questions that an entry cannot choose: the name of a task, and the checksum of its questions and answers.
KNOWN = {"sums in words": 2954279053}


@dataclass(frozen=True)
class Score:
    """What a run's held-out completions are worth; shares between 0 and 1.

    Attributes:
        drawn: Right among the completions drawn at temperature 1, strictly read.
        drawn_lenient: The same, leniently read.
        greedy: Right among the greedy completions, strictly read.
        greedy_lenient: The same, leniently read.
        passed: k -> chance that one of k drawn completions is right (`pass_at`), strictly read.
    """

    drawn: float
    drawn_lenient: float
    greedy: float
    greedy_lenient: float
    passed: dict[int, float]


def mean(values: Sequence[float | int]) -> float:
    return sum(values) / len(values)


def score(run: Mapping[str, Any], answers: Sequence[str]) -> Score:
    """The scores of one run, read from its texts.

    Args:
        run: With `greedy_texts`, one for each answer, and `drawn_texts`, n for each of the first answers.
        answers: The right ones.

    Example:
        >>> run = {"greedy_texts": ["#### 7", "It is 8."], "drawn_texts": [["#### 7", "7"]]}
        >>> found = score(run, ["7", "8"])
        >>> found.drawn, found.drawn_lenient, found.greedy, found.greedy_lenient, found.passed
        (0.5, 1.0, 0.5, 1.0, {1: 0.5, 2: 1.0})
    """
    gold = [number(answer) for answer in answers]
    right = [
        [strict(text) == answer for text in texts]
        for texts, answer in zip(run["drawn_texts"], gold, strict=False)
    ]
    last = [
        lenient(text) == answer
        for texts, answer in zip(run["drawn_texts"], gold, strict=False)
        for text in texts
    ]
    n = len(right[0])
    powers = [2**i for i in range(int(math.log2(n)) + 1)]
    greedy = run["greedy_texts"]
    return Score(
        drawn=mean([mean(row) for row in right]),
        drawn_lenient=mean(last),
        greedy=mean([strict(x) == a for x, a in zip(greedy, gold, strict=True)]),
        greedy_lenient=mean(
            [lenient(x) == a for x, a in zip(greedy, gold, strict=True)]
        ),
        passed={k: mean([pass_at(k, sum(row), n) for row in right]) for k in powers},
    )


def checksum(start: Mapping[str, Any]) -> int:
    """Of the held-out questions and their answers."""
    both = zip(start["prompts"], start["answers"], strict=True)
    return zlib.crc32(json.dumps(list(both)).encode())


def faults(entry: Mapping[str, Any], arm: str = "grpo") -> list[str]:
    """What an entry lacks, in words; an empty list if it can stand in the table.

    Args:
        entry: What `real_model.py` has written.
        arm: The one that is entered.
    """
    by_arm: dict[str, list[Mapping[str, Any]]] = {}
    for run in entry.get("runs", []):
        by_arm.setdefault(run["arm"], []).append(run)
    missing = [name for name in (START, arm, CONTROL) if name not in by_arm]
    if missing:
        return [f"there is no run of {name}" for name in missing]
    found = [
        f"{what} is missing"
        for what in ("model", "task", "config", "machine")
        if not entry.get(what)
    ]
    start = by_arm[START][0]
    prompts, answers = start.get("prompts", []), start.get("answers", [])
    if not prompts or len(prompts) != len(answers):
        return [*found, "the start's run holds no questions with their answers"]
    if strange := [answer for answer in answers if number(str(answer)) is None]:
        found.append(f"an answer is no number: {strange[0]!r}")
    if len(set(prompts)) < len(prompts):
        found.append(f"{len(prompts) - len(set(prompts))} questions stand there twice")
    expected = KNOWN.get(str(entry.get("task")))
    if expected is not None and checksum(start) != expected:
        found.append(f"these are not the held-out questions of {entry['task']}")
    seeds = {name: [run["seed"] for run in by_arm[name]] for name in (arm, CONTROL)}
    if len(set(seeds[arm])) < FEWEST_SEEDS:
        found.append(
            f"{arm} has {len(set(seeds[arm]))} seeds; {FEWEST_SEEDS} are needed"
        )
    if sorted(seeds[arm]) != sorted(seeds[CONTROL]):
        found.append(f"{CONTROL} and {arm} have other seeds")
    shape = [len(texts) for texts in start.get("drawn_texts", [])]
    for run in (start, *by_arm[arm], *by_arm[CONTROL]):
        who = f"{run['arm']}, seed {run['seed']}"
        if [len(texts) for texts in run.get("drawn_texts", [])] != shape or not shape:
            found.append(f"{who}: not as many drawn completions as of the start")
        if len(run.get("greedy_texts", [])) != len(prompts):
            found.append(f"{who}: not one greedy completion of each question")
        if run is not start and not run.get("seconds", 0) > 0:
            found.append(f"{who}: the seconds are missing")
    return found


HEAD = (
    "| model | task | before | after, by seed | coin | lenient, before and after "
    "| pass@{k}, before and after | minutes a run | machine |\n"
    "|:--|:--|--:|:--|:--|:--|:--|--:|:--|"
)


def line(entry: Mapping[str, Any], arm: str = "grpo") -> str:
    """An entry's line of the table: shares of drawn completions that are right, in percent.

    Raises:
        ValueError: If the entry has faults; the message lists them.
    """
    if wrong := faults(entry, arm):
        raise ValueError("this entry cannot stand in the table: " + "; ".join(wrong))
    start = next(run for run in entry["runs"] if run["arm"] == START)
    answers = start["answers"]

    def of(name: str) -> list[Score]:
        return [score(run, answers) for run in entry["runs"] if run["arm"] == name]

    def percent(values: Sequence[float]) -> str:
        return ", ".join(f"{100 * value:.0f}" for value in values)

    (before,), after, coin = of(START), of(arm), of(CONTROL)
    most = max(before.passed)
    own = [run for run in entry["runs"] if run["arm"] == arm]
    seconds = [run.get("cpu_seconds") or run["seconds"] for run in own]
    return " | ".join(
        [
            f"| {entry['model']}",
            str(entry["task"]),
            percent([before.drawn]),
            percent([one.drawn for one in after]),
            percent([one.drawn for one in coin]),
            f"{percent([before.drawn_lenient])} → {percent([one.drawn_lenient for one in after])}",
            f"{percent([before.passed[most]])} → {percent([one.passed[most] for one in after])}",
            f"{mean(seconds) / 60:.0f}",
            f"{entry['machine']['device']} |",
        ]
    )


def main(files: Sequence[str]) -> int:
    """Prints the table of the entries that can stand in it, and what the others lack."""
    lines, refused = [], 0
    for file in files:
        entry = json.loads(Path(file).read_text(encoding="utf-8"))
        wrong = faults(entry)
        refused += bool(wrong)
        lines += [f"{file}: {fault}" for fault in wrong]
        if not wrong:
            tries = len(entry["runs"][0]["drawn_texts"][0])
            lines += [HEAD.format(k=2 ** int(math.log2(tries))), line(entry)]
    print("\n".join(lines) or __doc__)
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
