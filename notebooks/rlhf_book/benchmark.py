"""The benchmark of all rows as it was recorded: which runs there are, and what they separate.

`notebooks/results/row_benchmark.py` records it and says what a group, a rate and a control are.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

from rlhf_book.comparison import (
    LEVEL,
    Difference,
    against,
    all_pairs,
    critical,
    holm,
    two_sided,
)
from rlhf_book.facts import facts_of
from rlhf_book.records import read_record
from rlhf_minimal import ALGORITHMS

RECORD = "row-benchmark"
MEASURES = {
    "sampled": "of sampled completions at the end",
    "greedy": "of greedy completions at the end",
    "area": "of sampled completions over the whole curve",
}


@dataclass(frozen=True)
class Group:
    """A task and a number of updates a rollout, with the runs on file.

    Attributes:
        name: Such as "addition-1".
        settings: As recorded.
        runs: The reported ones: a row's, one a seed, in the order of the seeds.
        tuning: What the choice of a row's rate saw: row -> rate -> a result a tuning seed.
        control: The name of the row that a coin pays.
        seeds: Those that are reported.
        recorded: Runs on file, those for the choice of rates included.
        planned: How many there will be.
        drawn: Completions of an evaluation at the end, and at each point before.
    """

    name: str
    settings: Mapping[str, Any]
    runs: Mapping[str, list[dict[str, Any]]]
    tuning: Mapping[str, Mapping[float, list[float]]]
    control: str
    seeds: tuple[int, ...]
    recorded: int
    planned: int
    drawn: tuple[int, int]

    @property
    def whole(self) -> bool:
        """Whether every run of the plan is on file; before that nothing is compared."""
        return self.recorded == self.planned

    @property
    def title(self) -> str:
        """The task, and how many updates a rollout."""
        updates = self.settings["updates"]
        count = "one update" if updates == 1 else f"{updates} updates"
        return f"{self.settings['task']}, {count} a rollout"

    @property
    def measure(self) -> str:
        """What held-out results are called here."""
        return "score" if self.settings["reward"] == "model" else "accuracy"

    @property
    def own(self) -> list[str]:
        """Rows that have runs of their own, in the order of the table."""
        return list(dict.fromkeys(self.settings["runs"].values()))

    def sharing(self, row: str) -> list[str]:
        """The rows for which the runs of this one stand, itself first."""
        return [name for name, runs in self.settings["runs"].items() if runs == row]

    def results(self, measure: str, *, control: bool = False) -> dict[str, list[float]]:
        """A number a seed for each row that has runs of its own."""
        names = [*self.own, self.control] if control else self.own
        return {name: [run[measure] for run in self.runs[name]] for name in names}

    def pairs(self, measure: str) -> dict[tuple[str, str], Difference]:
        """All pairs of rows that have runs of their own, corrected for all of them."""
        return all_pairs(self.results(measure))

    def beside_the_control(self, measure: str) -> dict[tuple[str, str], Difference]:
        """Every row minus the control, corrected for all of these."""
        return against(self.control, self.results(measure, control=True))

    def rate(self, row: str) -> float:
        """The learning rate of a row's reported runs."""
        return float(self.runs[row][0]["lr"])

    def narrow_rates(self) -> dict[str, float]:
        """Rows whose rate won by less than two tuning seeds differ at it or at the next best, and by how much."""
        found = {}
        for row in self.own:
            tried = sorted(self.tuning[row].values(), key=mean, reverse=True)[:2]
            gap = mean(tried[0]) - mean(tried[1])
            if gap < max(max(seen) - min(seen) for seen in tried):
                found[row] = gap
        return found

    def noise(self, measure: str, one: str, other: str) -> float:
        """The standard deviation of a seed's difference if nothing but two independent evaluations made it.

        For right and wrong answers: a share of n independent ones has the variance p (1 - p) / n. Nothing is known of a
        score, and a greedy completion is not drawn: 0 for both. All rows have the start's point in common.
        """
        if self.measure == "score" or measure == "greedy":
            return 0.0
        variance = 0.0
        for run in (run for row in (one, other) for run in self.runs[row]):
            at_end, before = self.drawn
            end = run["sampled"] * (1 - run["sampled"]) / at_end
            if measure == "area":
                inner = sum(
                    share * (1 - share) / before for share in run["curve"][1:-1]
                )
                end = (inner + end / 4) / (len(run["curve"]) - 1) ** 2
            variance += end / len(self.seeds)
        return math.sqrt(variance)

    def doubtful(self, measure: str) -> set[tuple[str, str]]:
        """Separated pairs that would not be with `noise` in place of a spread that is smaller."""
        found = self.pairs(measure)
        raised = []
        for pair, gap in found.items():
            spread = max(stdev(gap.values), self.noise(measure, *pair))
            t = gap.mean * math.sqrt(len(gap.values)) / spread if spread else math.inf
            raised.append(two_sided(t, len(gap.values) - 1) if gap.mean else 1.0)
        return {
            pair
            for (pair, gap), p in zip(found.items(), holm(raised), strict=True)
            if gap.separated and p >= LEVEL
            if stdev(gap.values) < self.noise(measure, *pair)
        }

    def start(self) -> float:
        """The result of the start, the same for all runs."""
        (value,) = {run["curve"][0] for row in self.own for run in self.runs[row]}
        return float(value)

    def stands_for(self, row: str) -> str:
        """What a row that is run for several is here, or "": with one update its ratio and its gate do nothing."""
        if self.settings["updates"] > 1 or len(self.sharing(row)) < 2:
            return ""
        columns = (
            "advantage",
            "normalize",
            "aggregate",
            "shape",
            "keep",
            "correct",
            "trust",
        )
        acting = {
            name: [str(getattr(ALGORITHMS[name], column)) for column in columns]
            for name in self.own
        }
        for name, cells in acting.items():
            if name != row and cells == acting[row] and ALGORITHMS[name].kl:
                return f"here {facts_of(name).title} without its KL"
        return "here no ratio acts"

    def ahead_of_all(self, measure: str) -> str | None:
        """The row that is separated from every other one and above it; None where there is none."""
        ahead = dict.fromkeys(self.own, 0)
        for (one, other), gap in self.pairs(measure).items():
            ahead[one if gap.mean > 0 else other] += gap.separated
        return next((row for row in ahead if ahead[row] == len(self.own) - 1), None)

    def at_an_edge(self) -> dict[str, str]:
        """Rows whose best rate is the lowest or the highest of the four, and which."""
        ends = {
            self.settings["rates"][0]: "lowest",
            self.settings["rates"][-1]: "highest",
        }
        return {
            row: ends[self.runs[row][0]["lr"]]
            for row in self.own
            if self.runs[row][0]["lr"] in ends
        }


def read_groups(record: Mapping[str, Any] | None = None) -> dict[str, Group]:
    """The groups of a record, by name.

    Args:
        record: What `row_benchmark.py` has written; None reads the book's, and gives no groups if there is none.

    Example:
        >>> all(group.recorded <= group.planned for group in read_groups().values())
        True
    """
    if record is None:
        record = read_record(RECORD)
    if not record:  # nothing on file, or nothing in the file
        return {}
    found = {}
    seeds, tuning = record["seeds"], record["tuning_seeds"]
    for name, settings in record["groups"].items():
        on_file = [run for run in record["runs"] if run["group"] == name]
        own = set(settings["runs"].values())
        runs: dict[str, list[dict[str, Any]]] = {
            row: [] for row in [*own, record["control"]]
        }
        tuned: dict[str, dict[float, list[float]]] = {row: {} for row in own}
        for run in sorted(on_file, key=lambda run: run["seed"]):
            if run["seed"] in seeds:
                runs[run["row"]].append(run)
            else:
                tuned[run["row"]].setdefault(run["lr"], []).append(run["sampled"])
        tried = len(own) * len(tuning) * len(settings["rates"])
        planned = tried + (len(own) + 1) * len(seeds)
        found[name] = Group(
            name,
            settings,
            runs,
            tuned,
            record["control"],
            tuple(seeds),
            len(on_file),
            planned,
            (record["held_out"], record["held_out_on_the_way"]),
        )
    return found


def explorer_table(record: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What the figure of the benchmark draws: curves by group, row and seed, and which pairs are separated at the end.

    Returns:
        `groups`, those that are whole, each with its `title`, the `measure`, the `samples` at which a curve has its
        points, `rows` (name, the row whose runs it has, and what that is here), `curves` (row -> seeds -> points), `pairs` and `controls`,
        how many pairs of either kind were corrected for, and `separated`, [one, other] of those, and of them the
        `doubtful`; `seeds`; and `t`, the quantile for an interval of 95 % over the seeds.
    """
    groups = [group for group in read_groups(record).values() if group.whole]
    shown = []
    for group in groups:
        every = group.settings["samples"]
        points = len(group.runs[group.own[0]][0]["curve"]) - 1
        found, beside = group.pairs("sampled"), group.beside_the_control("sampled")
        rows = [
            {"name": name, "run": run, "note": group.stands_for(run)}
            for name, run in group.settings["runs"].items()
        ]
        shown.append(
            {
                "name": group.name,
                "title": group.title,
                "measure": group.measure,
                "samples": [every * i // points for i in range(points + 1)],
                "rows": [
                    *rows,
                    {"name": group.control, "run": group.control, "note": ""},
                ],
                "curves": {
                    row: [run["curve"] for run in group.runs[row]]
                    for row in [*group.own, group.control]
                },
                "pairs": len(found),
                "controls": len(beside),
                "control": group.control,
                "separated": [
                    list(pair)
                    for pair, one in (found | beside).items()
                    if one.separated
                ],
                "doubtful": sorted(list(pair) for pair in group.doubtful("sampled")),
            }
        )
    seeds = len(groups[0].seeds) if groups else 2
    return {"groups": shown, "seeds": seeds, "t": critical(LEVEL, seeds - 1)}


def middle(group: Group, row: str, name: str) -> float:
    """The mean over the seeds of a number of a row's runs."""
    return mean(float(run[name]) for run in group.runs[row])
