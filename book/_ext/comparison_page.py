"""The page that compares the rows: tables and sentences from notebooks/results/row-benchmark.json, for `{generated}`.

Nothing here orders rows by their results. What is called separated follows from `rlhf_book.comparison`.
"""

from data_files import using
from generated import box, table
from recorded_runs import RESULTS

from rlhf_book.benchmark import MEASURES, middle, read_groups
from rlhf_book.comparison import critical, needed, paired
from rlhf_book.records import read_record, recorded_with

PATH = RESULTS / "row-benchmark.json"


def code(name):
    return f"`{name}`"


def number(value):
    """0.812, with a minus sign that is as wide as a plus."""
    return f"{value:.3f}".replace("-", "\u2212")


def signed(value):
    return ("+" if value >= 0 else "") + number(value)


def group_of(name):
    """The group of that name; None while nothing is recorded at all."""
    groups = read_groups()
    if groups and name not in groups:
        raise ValueError(f"there is no group {name!r}; there are {', '.join(groups)}")
    return groups.get(name)


def missing(group):
    """What stands in place of numbers that are not there."""
    if group is None:
        return "Not recorded yet."
    return (
        f"Not recorded yet: {group.recorded} of {group.planned} runs are on file, and nothing is said before all are."
    )


def settings():
    """What was run: a line a group."""
    with using(PATH):
        head = ["group", "completions a run", "a rollout", "rates tried", "runs on file", "a seed"]
        lines = []
        for group in read_groups().values():
            has = group.settings
            rates = ", ".join(f"{rate:g}" for rate in has["rates"])
            rows = f"{len(has['runs'])} rows in {len(group.own)} runs, and the coin"
            paid = "the shipped reward model" if has["reward"] == "model" else "the verifier"
            rollout = f"{has['prompts']} prompts x {has['group_size']}"
            state = "all" if group.whole else f"{group.recorded} of {group.planned}"
            lines.append([group.title, f"{has['samples']:,}", rollout, rates, state, f"{rows}; {paid} pays"])
        return table(head, lines) if lines else "Not recorded yet."


def recorded():
    """With what it was recorded, and how many core-hours the training took."""
    with using(PATH):
        record = read_record("row-benchmark")
        if record is None:
            return "Not recorded yet."
        hours = sum(run["cpu"] for run in record["runs"]) / 3600
        return (
            f"Recorded with {recorded_with(record)}, by `{record['command']}`: {len(record['runs'])} runs, "
            f"{hours:.2f} core-hours of training steps on one thread each."
        )


def results(name):
    """The table of a group: a line for each row that has runs of its own, and the control."""
    with using(PATH):
        group = group_of(name)
        if group is None or not group.whole:
            return missing(group)
        what = group.measure
        head = [
            "row",
            "rate",
            f"{what}, sampled",
            f"{what}, greedy",
            "area",
            "entropy",
            "KL",
            "updates",
            "CPU s",
        ]
        head += ["reward model"] if what == "score" else []
        lines = []
        for row in [*group.own, group.control]:
            runs = group.runs[row]
            names = " = ".join(map(code, group.sharing(row))) if row != group.control else row
            line = [names, f"{runs[0]['lr']:g}"]
            line += [spread([run[key] for run in runs]) for key in ("sampled", "greedy", "area")]
            line += [f"{middle(group, row, key):.{digits}f}" for key, digits in (("entropy", 3), ("kl", 2))]
            line += [f"{middle(group, row, 'updates'):.0f}", f"{middle(group, row, 'cpu'):.1f}"]
            line += [number(middle(group, row, "proxy"))] if what == "score" else []
            lines.append(line)
        return box("sortable", table(head, lines))


def spread(values):
    """`0.812 [0.790, 0.834]`: the mean and its 95 % interval over the seeds."""
    one = paired(values, [0.0] * len(values))
    return f"{number(one.mean)} [{number(one.low)}, {number(one.high)}]"


def edges(name):
    """Which rows were best at the lowest or highest of the four rates."""
    with using(PATH):
        group = group_of(name)
        if group is None or not group.whole:
            return ""
        found = group.at_an_edge()
        if not found:
            return "No row had its best rate at an edge of the four."
        rows = ", ".join(f"{code(row)} ({end})" for row, end in found.items())
        return f"At an edge of the four rates, so that a better one may lie outside: {rows}."


def shared(name):
    """Who has run for whom."""
    group = group_of(name)
    if group is None:
        return ""
    same = [group.sharing(row) for row in group.own if len(group.sharing(row)) > 1]
    if not same:
        return "No two of these rows take the same steps."
    lists = "; ".join(" = ".join(map(code, names)) for names in same)
    return f"The same steps, by their gradients, and so run once: {lists}."


def separated(name):
    """What the runs of a group separate, and what they do not, in sentences; and the matrix."""
    with using(PATH):
        group = group_of(name)
        if group is None or not group.whole:
            return missing(group)
        said = [in_words(group, measure) for measure in MEASURES]
        return "\n\n".join([*said, box("benchmark-matrix", matrix(group))])


def in_words(group, measure):
    """One paragraph for one measure."""
    found = group.pairs(measure)
    apart = {pair: one for pair, one in found.items() if one.separated}
    rest = {pair: one for pair, one in found.items() if not one.separated}
    said = [f"**{group.measure.capitalize()} {MEASURES[measure]}.** Of {len(found)} pairs {len(apart)} are separated."]
    ahead = {}
    for (one, other), gap in apart.items():
        first, second = (one, other) if gap.mean > 0 else (other, one)
        ahead.setdefault(first, []).append(f"{code(second)} (by {number(abs(gap.mean))})")
    said += [f"{code(row)} is ahead of {', '.join(ahead[row])}." for row in group.own if row in ahead]
    if rest:
        (one, other), gap = max(rest.items(), key=lambda item: abs(item[1].mean))
        one, other = (one, other) if gap.mean >= 0 else (other, one)
        said.append(
            f"{'The other' if apart else 'All'} {len(rest)} are not separated; the largest difference of means among "
            f"them is {number(abs(gap.mean))}, {code(one)} before {code(other)}."
        )
    said.append(
        f"In half of the pairs a mean difference of {number(needed(found))} or less would have been enough to "
        "be the first that is separated."
    )
    beside = group.beside_the_control(measure)
    above = [one for (one, _), gap in beside.items() if gap.separated and gap.mean > 0]
    others = [code(one) for (one, _) in beside if one not in above]
    if not others:
        said.append(f"All {len(above)} are separated from the {group.control}, above it.")
    else:
        said.append(
            f"{len(above)} of {len(beside)} are separated from the {group.control}, above it; not so "
            f"{', '.join(others)}."
        )
    return " ".join(said)


def matrix(group):
    """Row minus column, at the end, where the pair is separated; a dot where it is not."""
    found = group.pairs("sampled")
    lines = []
    for one in group.own:
        line = [code(one)]
        for other in group.own:
            gap = found.get((one, other)) or found.get((other, one))
            if gap is None:
                line.append("")
            elif not gap.separated:
                line.append("·")
            else:
                line.append(signed(gap.mean if (one, other) in found else -gap.mean))
        lines.append(line)
    return table(["", *map(code, group.own)], lines)


def limit(pairs, seeds):
    """The t that one pair of so many has to reach, for a sentence."""
    return f"{critical(0.05 / int(pairs), int(seeds) - 1):.1f}"


def test():
    """How strict the correction is, for the largest and smallest group on file."""
    groups = read_groups()
    if not groups:
        return "Not recorded yet."
    counts = sorted({len(group.own) * (len(group.own) - 1) // 2 for group in groups.values()})
    seeds = len(next(iter(groups.values())).seeds)
    alone = f"{critical(0.05, seeds - 1):.1f}"
    asked = ", ".join(f"{limit(n, seeds)} among {n} pairs" for n in counts)
    return (
        f"With {seeds} seeds a single pair would be called separated where its mean difference is {alone} of its own "
        f"standard errors. The first of many has to reach {asked}."
    )
