"""Trained pretrained models that can be compared: what an entry has to show, and its line in the table.

    python -m rlhf_book.entries notebooks/results/real-model-cpu.json

A published number of this kind is mostly one run's, without a control, by the author's own reading of the answers. An
entry here is a file that `notebooks/results/real_model.py` writes, and the scores are computed from the completions in
it. The rules:

1. The model before training is measured on the same held-out questions as after it, with as many completions.
2. Three seeds or more, named beforehand, all of them in the file.
3. A coin as control: the same runs with a reward that does not look at the completion.
4. Every completion of the held-out questions is in the file. No question stands in it twice.
5. The settings, the seconds of every run, and the machine.

A score is strict (the number behind `####`) and lenient (the last number of the completion). Both are told.

`faults` holds an entry to what a file can show: arms, seeds, counts of completions, that no two runs have the same ones,
that the coin's rewards are a coin's. That seeds were named beforehand and that the texts are the model's, it cannot show.
"""

import json
import re
import sys
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from rlhf_book.sampling import sizes
from rlhf_minimal.evaluate import pass_at
from rlhf_minimal.lab.word_problems import lenient, number, strict
from rlhf_minimal.tasks.base import normalised

CONTROL, START = "coin", "start"
FEWEST_SEEDS, FEWEST_QUESTIONS, FEWEST_TRIES = 3, 30, 8
# Held-out questions that an entry cannot choose: the name of a task, and the checksum of its questions and answers.
KNOWN = {"sums in words": 2954279053}


@dataclass(frozen=True)
class Score:
    """What a run's held-out completions are worth; shares between 0 and 1.

    Attributes:
        passed: k -> chance that one of k drawn completions is right (`pass_at`), strictly read.
        drawn_lenient: Right among the drawn completions, leniently read.
        greedy: Right among the greedy completions, strictly read.
        greedy_lenient: The same, leniently read.
    """

    passed: dict[int, float]
    drawn_lenient: float
    greedy: float
    greedy_lenient: float

    @property
    def drawn(self) -> float:
        """Right among the drawn completions, strictly read."""
        return self.passed[1]


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
    drawn = list(zip(run["drawn_texts"], gold, strict=False))
    greedy = list(zip(run["greedy_texts"], gold, strict=True))
    right = [sum(strict(x) == a for x in texts) for texts, a in drawn]
    n = len(run["drawn_texts"][0])
    return Score(
        passed={k: fmean(pass_at(k, c, n) for c in right) for k in sizes(n)},
        drawn_lenient=fmean(lenient(x) == a for texts, a in drawn for x in texts),
        greedy=fmean(strict(x) == a for x, a in greedy),
        greedy_lenient=fmean(lenient(x) == a for x, a in greedy),
    )


def checksum(start: Mapping[str, Any]) -> int:
    """Of the held-out questions and their answers."""
    both = zip(start["prompts"], start["answers"], strict=True)
    return zlib.crc32(json.dumps(list(both)).encode())


def faults(entry: Any, arm: str = "grpo") -> list[str]:
    """What an entry lacks, in words; an empty list if it can stand in the table.

    Args:
        entry: What `real_model.py` has written; anything else is told what it is not.
        arm: The one that is entered.
    """
    try:
        return _faults(entry, arm)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as problem:
        kind = type(problem).__name__
        return [f"this is no file of real_model.py ({kind}: {problem})"]


def _faults(entry: Mapping[str, Any], arm: str) -> list[str]:
    by_arm: dict[str, list[Mapping[str, Any]]] = {}
    for run in entry["runs"]:
        by_arm.setdefault(run["arm"], []).append(run)
    missing = [name for name in (START, arm, CONTROL) if name not in by_arm]
    if missing:
        return [f"there is no run of {name}" for name in missing]
    found = [
        f"{what} is missing"
        for what in ("model", "task", "config", "machine")
        if not entry.get(what)
    ]
    if found:
        return found
    if not str(entry["machine"]["device"]).strip():
        found.append("the machine's device is missing")
    start, *more = by_arm[START]
    if more:
        found.append("there are several runs of start")
    prompts, answers = start["prompts"], start["answers"]
    if len(prompts) != len(answers) or not prompts:
        return [*found, "the start's run holds no questions with their answers"]
    if strange := [one for one in answers if number(one) is None]:
        found.append(f"an answer is no number: {strange[0]!r}")
    if twice := len(prompts) - len(set(map(normalised, prompts))):
        found.append(f"{twice} questions stand there twice")
    expected = KNOWN.get(entry["task"])
    if expected is not None and checksum(start) != expected:
        found.append(f"these are not the held-out questions of {entry['task']}")
    return found + _faults_of_runs(entry, start, by_arm[arm], by_arm[CONTROL])


def _faults_of_runs(
    entry: Mapping[str, Any],
    start: Mapping[str, Any],
    entered: Sequence[Mapping[str, Any]],
    control: Sequence[Mapping[str, Any]],
) -> list[str]:
    found = []
    arm = entered[0]["arm"]
    seeds, others = (sorted(run["seed"] for run in runs) for runs in (entered, control))
    if len(set(seeds)) < len(seeds):
        found.append(f"a seed of {arm} stands there twice")
    if len(set(seeds)) < FEWEST_SEEDS:
        found.append(f"{arm} has {len(set(seeds))} seeds; {FEWEST_SEEDS} are needed")
    if seeds != others:
        found.append(f"{CONTROL} and {arm} have other seeds")
    tried, tries = len(start["drawn_texts"]), len(start["drawn_texts"][0])
    if not FEWEST_QUESTIONS <= tried <= len(start["prompts"]) or tries < FEWEST_TRIES:
        found.append(
            f"{tries} completions are drawn of {tried} questions; at least "
            f"{FEWEST_TRIES} of {FEWEST_QUESTIONS} are needed"
        )
    steps, seen = entry["config"]["steps"], dict[str, str]()
    for run in (start, *entered, *control):
        who = f"{run['arm']}, seed {run['seed']}"
        if [len(texts) for texts in run["drawn_texts"]] != [tries] * tried:
            found.append(f"{who}: not as many drawn completions as of the start")
        if len(run["greedy_texts"]) != len(start["prompts"]):
            found.append(f"{who}: not one greedy completion of each question")
        if (before := seen.setdefault(json.dumps(run["drawn_texts"]), who)) != who:
            found.append(f"{who}: the completions of {before}")
        if run is start:
            continue
        if not run["seconds"] > 0:
            found.append(f"{who}: the seconds are missing")
        if len(run["reward"]) != steps:
            found.append(f"{who}: {len(run['reward'])} rewards for {steps} steps")
        elif run["arm"] == CONTROL and not 0.4 < fmean(run["reward"]) < 0.6:
            found.append(f"{who}: a mean reward of {fmean(run['reward']):.2f}")
    return found


HEAD = (
    "| model | task | before | after, by seed | coin | lenient, before and after "
    "| pass@{k}, before and after | minutes a run | machine |\n"
    "|:--|:--|--:|:--|:--|:--|:--|--:|:--|"
)


def line(entry: Mapping[str, Any], arm: str = "grpo") -> str:
    """An entry's line of the table: shares of drawn completions that are right, in percent.

    Minutes are those of the training; of a run on a CPU those that the processor worked, if the entry has them.

    Raises:
        ValueError: If the entry has faults; the message lists them.
    """
    if wrong := faults(entry, arm):
        raise ValueError("this entry cannot stand in the table: " + "; ".join(wrong))
    of_arm = {
        name: [run for run in entry["runs"] if run["arm"] == name]
        for name in (START, arm, CONTROL)
    }
    answers = of_arm[START][0]["answers"]
    scores = {
        name: [score(run, answers) for run in runs] for name, runs in of_arm.items()
    }
    (before,), after, coin = scores.values()
    most = max(before.passed)
    seconds = [run.get("cpu_seconds", run["seconds"]) for run in of_arm[arm]]

    def percent(values: Sequence[float]) -> str:
        return ", ".join(f"{100 * value:.0f}" for value in values)

    cells = [
        entry["model"],
        entry["task"],
        percent([before.drawn]),
        percent([one.drawn for one in after]),
        percent([one.drawn for one in coin]),
        f"{percent([before.drawn_lenient])} → {percent([one.drawn_lenient for one in after])}",
        f"{percent([before.passed[most]])} → {percent([one.passed[most] for one in after])}",
        f"{fmean(seconds) / 60:.0f}",
        entry["machine"]["device"],
    ]
    return "| " + " | ".join(re.sub(r"[|\s]+", " ", str(cell)) for cell in cells) + " |"


def main(files: Sequence[str]) -> int:
    """Prints the table of the entries that can stand in it, and what the others lack."""
    lines, refused = [], 0
    for file in files:
        try:
            entry = json.loads(Path(file).read_text(encoding="utf-8"))
            wrong = faults(entry)
        except (OSError, ValueError) as problem:
            wrong = [f"cannot be read ({problem})"]
        refused += bool(wrong)
        lines += [f"{file}: {fault}" for fault in wrong]
        if not wrong:
            most = sizes(len(entry["runs"][0]["drawn_texts"][0]))[-1]
            lines += [HEAD.format(k=most), line(entry)]
    print("\n".join(lines) or __doc__)
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
