"""A line an arm of a file under notebooks/results/, with mean, smallest and largest of its seeds.

```{generated} recorded_runs:markdown ppo-rlhf
kl | KL (nats); gold | true score
```

A column is the name of a number in the record, a bar, and the words of the table's head.
"""

import math
import statistics

from data_files import ROOT, read, using
from printing import table
from rlhf_book.records import recorded_with

RESULTS = ROOT / "notebooks" / "results"


def path_of(name):
    """The file of a record."""
    known = sorted(path.stem for path in RESULTS.glob("*.json"))
    if name not in known:
        raise ValueError(f"there is no record {name!r} in {RESULTS.name}/; there are {', '.join(known)}")
    return RESULTS / f"{name}.json"


def columns(text):
    """name -> head of a column."""
    found = {}
    for column in text.split(";"):
        name, bar, head = (part.strip() for part in column.partition("|"))
        if not (name and bar and head):
            raise ValueError(
                f"{column.strip()!r} is no column: expected a number's name, a bar and the words of the table's head"
            )
        if name in found:
            raise ValueError(f"the column {name!r} is named twice")
        found[name] = head
    return found


def lines(record, names):
    """One list of cells an arm, in the order of the record: its name, then mean [smallest, largest] of each number."""
    arms = {}
    for run in record["runs"]:
        arms.setdefault(str(run["arm"]), []).append(run)
    if not arms:
        raise ValueError("no run is recorded")
    seeds = {arm: sorted(run["seed"] for run in runs) for arm, runs in arms.items()}
    first, wanted = next(iter(seeds.items()))
    for arm, found in seeds.items():
        if found != wanted or len(set(found)) < len(found):
            raise ValueError(f"every arm should have the same seeds, once; {first} has {wanted}, {arm} has {found}")
    return [[arm, *(spread([number(run, name) for run in runs]) for name in names)] for arm, runs in arms.items()]


def number(run, name):
    """A number of a run, by name."""
    where = f"the run of arm {run['arm']}, seed {run['seed']}"
    if name not in run:
        known = [key for key, value in run.items() if isinstance(value, int | float) and key not in ("arm", "seed")]
        raise ValueError(f"{where} has no {name!r}; its numbers are {', '.join(known)}")
    value = run[name]
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise ValueError(f"{where}: {name!r} should be a finite number, and is {str(value)[:40]}")
    return value


def spread(values):
    """`8.17 [8.02, 8.31]`"""
    return f"{statistics.mean(values):.2f} [{min(values):.2f}, {max(values):.2f}]"


def markdown(name, text):
    """The table of a record, and how it was recorded."""
    path, chosen = path_of(name), columns(text)
    with using(path):
        record = read(path)
        shown = table(["arm", *chosen.values()], lines(record, chosen))
        seeds = len({run["seed"] for run in record["runs"]})
        how = f"Recorded with {recorded_with(record)}, by `{record['command']}`."
        note = f"Mean [smallest, largest] of {seeds} seeds. {how}"
    return f"{shown}\n\n{note}"


# Where the task addition is trained: page, record, the key that names a run's arm, the arm, its control.
ADDITION = """
[from zero](../notebooks/from-zero.ipynb), last five batches | from-zero | arm | GRPO | GRPO, reward from a coin
[policy gradients](../notebooks/policy-gradients.ipynb), REINFORCE | policy-gradient-runs | arm | zero | coin
[GRPO](../notebooks/grpo.ipynb) | grpo-sweeps | arm | group-16 | random-reward
the README, `make train` | learning-curve | reward | verifier | random
"""
BATCH = 512  # completions a step where a record does not say: what `train` does


def addition():
    """Where runs on the task addition end, by the page that trains them."""
    lines = []
    for line in ADDITION.strip().splitlines():
        where, name, key, *arms = (part.strip() for part in line.split(" | "))
        path = path_of(name)
        with using(path):
            record = read(path)
            runs = [[run for run in record["runs"] if run[key] == arm] for arm in arms]
            steps = record.get("steps") or len(runs[0][0]["accuracy"])
            each = record.get("completions_a_step") or record.get("samples_per_step") or BATCH
            ends = [statistics.mean(end(run, each) for run in those) for those in runs]
        lines.append([where, f"{steps} x {each}", *(f"{share:.2f}" for share in ends)])
    return table(["where", "steps x completions", "ends at", "a coin ends at"], lines)


def end(run, each):
    """Right completions at a run's end: on new problems, or in its last five steps where it has no others."""
    if "right" in run:
        return statistics.mean(run["right"][-5:]) / each
    return run["after_sampled"] if "after_sampled" in run else number(run, "sampled")
