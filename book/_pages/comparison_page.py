"""The page that compares the rows: tables and sentences from notebooks/results/row-benchmark.json, for `{generated}`.

Nothing here orders rows by their results. What is called separated follows from `rlhf_book.comparison`.
"""

from math import sqrt
from statistics import correlation, median, stdev

from data_files import using
from printing import box, code, number, table
from recorded_runs import RESULTS
from rlhf_book.benchmark import MEASURES, middle, read_groups
from rlhf_book.comparison import critical, needed, paired
from rlhf_book.records import read_record, recorded_with

PATH = RESULTS / "row-benchmark.json"
NOTHING = "Not recorded yet."
# What is said of a task under its first heading.
ABOUT = {
    "clock": "Completions are longer here and of unequal lengths, so that divisors and baselines that look at lengths "
    "differ.",
    "reviews": "Rows are trained for the reward model of the task. Results are the task's own score, which the reward "
    "model only approximates, and rates are chosen by it; nobody could do that where the true score is unknown. There "
    "are ten held-out prompts only: scores are means over a hundred completions of each, and over one greedy one. Runs "
    "end after the same number of samples; where a longer run would have begun to over-optimise is another question.",
}


# A measure, and where it is: what a sentence says of all groups.
WHERE = {"sampled": "in sampled completions at the end", "greedy": "in greedy ones", "area": "over the whole curve"}


def whole_groups():
    """The groups of which every run is on file; nothing is said of the others."""
    return {name: group for name, group in read_groups().items() if group.whole}


def answer():
    """What the page comes to, a line a group that is whole."""
    with using(PATH):
        groups = whole_groups()
        if not groups:
            return NOTHING
        lines, first = [], {measure: {} for measure in MEASURES}
        for name, group in groups.items():
            found = {measure: group.pairs(measure) for measure in MEASURES}
            apart = {measure: sum(one.separated for one in pairs.values()) for measure, pairs in found.items()}
            beside = group.beside_the_control("sampled").values()
            above = sum(one.separated and one.mean > 0 for one in beside)
            below = sum(one.separated and one.mean < 0 for one in beside)
            doubted = len(group.doubtful("sampled"))
            lines.append(
                f"- **{group.title}**: of {len(found['sampled'])} pairs of rows {apart['sampled']} are separated in "
                f"{group.measure} of sampled completions at the end{f' ({doubted} of them doubtful)' * bool(doubted)}, "
                f"{apart['greedy']} in that of greedy ones; {above} of {len(beside)} rows are separated from the "
                f"{group.control}, above it{f', and {below} below it' * bool(below)}."
            )
            for measure in MEASURES:
                if row := group.ahead_of_all(measure):
                    first[measure][name] = row
        if not any(first.values()):
            lines.append("\nNo row is separated from all others, in any measure of any group: these runs choose none.")
            return "\n".join(lines)
        said = []
        for measure, ahead in first.items():
            told = ", ".join(f"{code(row)} in {groups[name].title}" for name, row in ahead.items())
            said.append(f"{WHERE[measure]}, {told or 'no row of any group'}")
        lines.append(
            f"\nSeparated from all other rows, and above them: {'; '.join(said)}. Everywhere else these runs choose "
            "none."
        )
        return "\n".join(lines)


def settings():
    """What was run: a line a group, and one sentence on those that are not whole."""
    with using(PATH):
        head = ["group", "completions a run", "a rollout", "rates tried", "runs", "a seed"]
        lines, open_ones = [], []
        for group in read_groups().values():
            if not group.whole:
                open_ones.append(f"{group.title} ({group.recorded} of {group.planned} runs)")
                continue
            has = group.settings
            rates = ", ".join(f"{rate:g}" for rate in has["rates"])
            rows = f"{len(has['runs'])} rows in {len(group.own)} runs, and the coin"
            paid = "the shipped reward model" if has["reward"] == "model" else "the verifier"
            rollout = f"{has['prompts']} prompts x {has['group_size']}"
            lines.append(
                [group.title, f"{has['samples']:,}", rollout, rates, str(group.planned), f"{rows}; {paid} pays"]
            )
        said = [table(head, lines) if lines else NOTHING]
        if open_ones:
            said.append(f"Planned and not whole on file, so nothing is said of it: {'; '.join(open_ones)}.")
        return "\n\n".join(said)


def recorded():
    """With what it was recorded, and how many core-hours the training took."""
    with using(PATH):
        record = read_record("row-benchmark")
        if record is None:
            return NOTHING
        hours = sum(run["cpu"] for run in record["runs"]) / 3600
        return (
            f"Recorded with {recorded_with(record)}, by `{record['command']}`: {len(record['runs'])} runs, "
            f"{hours:.2f} core-hours of training steps on one thread each."
        )


def sections():
    """A section for each group that is whole."""
    with using(PATH):
        parts, told = [], set()
        for group in whole_groups().values():
            task = group.settings["task"]
            parts.append(f"## {group.title[0].upper()}{group.title[1:]}")
            if task in ABOUT and task not in told:
                parts.append(ABOUT[task])
            told.add(task)
            parts += [results(group), shared(group), rates(group)]
            parts += [f"### What separates: {group.title}", matrix(group), separated(group)]
        return "\n\n".join(parts) or NOTHING


def results(group):
    """The table of a group: a line for each row that has runs of its own, and the control."""
    what, means = group.measure, {"entropy": ".3f", "kl": ".2f", "updates": ".0f", "cpu": ".1f"}
    head = ["row", "rate", f"{what}, sampled", f"{what}, greedy", "area", "entropy", "KL", "updates", "CPU s"]
    if what == "score":
        head, means = [*head, "reward model"], means | {"proxy": ".3f"}
    lines = []
    for row in [*group.own, group.control]:
        runs, names = group.runs[row], row
        if row != group.control:
            names = " = ".join(map(code, group.sharing(row)))
            names += f" ({group.stands_for(row)})" * bool(group.stands_for(row))
        spreads = [spread([run[key] for run in runs]) for key in ("sampled", "greedy", "area")]
        numbers = [number(middle(group, row, key), form) for key, form in means.items()]
        lines.append([names, f"{runs[0]['lr']:g}", *spreads, *numbers])
    start = ["start", "", number(group.start()), "", number(group.start())]
    lines.append(start + [""] * (len(head) - len(start)))
    return box("sortable", table(head, lines))


def matrix(group):
    """A square a pair, in colour: the row at its left minus the row above it, at the end; its sentence when pressed."""
    pairs, doubtful = group.pairs("sampled"), group.doubtful("sampled")
    largest = max(abs(gap.mean) for gap in pairs.values())

    def square(one, other):
        if one == other:
            return "<td></td>"
        sign, pair = (1, (one, other)) if (one, other) in pairs else (-1, (other, one))
        gap = pairs[pair]
        low, high = sorted((sign * gap.low, sign * gap.high))
        said = ("separated" if gap.separated else "not separated") + " (doubtful)" * (pair in doubtful)
        color = "0 114 178" if sign * gap.mean > 0 else "213 94 0"
        text = (
            f"{one} minus {other}: {number(sign * gap.mean)} in {group.measure}, [{number(low)}, {number(high)}] for "
            f"this pair alone; after the correction {said}."
        )
        return (
            f'<td style="background: rgb({color} / {0.55 * abs(gap.mean) / largest:.2f})" tabindex="-1" '
            f'title="{text}">{"■" if gap.separated else "&nbsp;"}</td>'
        )

    head = "".join(f'<th scope="col"><span>{row}</span></th>' for row in group.own)
    lines = [
        f'<tr><th scope="row">{one}</th>{"".join(square(one, other) for other in group.own)}</tr>' for one in group.own
    ]
    told = (
        "Blue: the row at the left is ahead of the one above. Orange: it is behind. Strongest: "
        f"{number(largest)}. A square: separated."
    )
    return (
        f'<div class="pair-matrix"><p>{told}</p><div class="pair-matrix-box"><table role="grid" '
        f'aria-label="{group.title}: rows minus rows"><thead><tr><td></td>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
        f'<p class="said" aria-live="polite">Press a cell, or walk with the arrow keys.</p></div>'
    )


def spread(values):
    """`0.812 [0.790, 0.834]`: the mean and its 95 % interval over the seeds."""
    one = paired(values, [0.0] * len(values))
    return f"{number(one.mean)} [{number(one.low)},\u00a0{number(one.high)}]"  # an interval stays on one line


def rates(group):
    """Which rows were best at the lowest or highest of the four rates, and which rates won by little."""
    edge, narrow = group.at_an_edge(), group.narrow_rates()
    said = "No row had its best rate at an edge of the four."
    if edge:
        rows = ", ".join(f"{code(row)} ({end})" for row, end in edge.items())
        said = f"At an edge of the four rates, so that a better one may lie outside: {rows}."
    if narrow:
        rows = ", ".join(f"{code(row)} (by {number(gap)})" for row, gap in narrow.items())
        said += (
            " The rate won by less than the two tuning seeds at it, or at the next best, differ, and two other seeds "
            f"might have chosen another: {rows}."
        )
    return said


def shared(group):
    """Who has run for whom."""
    same = [" = ".join(map(code, group.sharing(row))) for row in group.own if len(group.sharing(row)) > 1]
    if not same:
        return "No two of these rows take the same steps."
    return f"The same steps, by their gradients, and so run once: {'; '.join(same)}."


def separated(group):
    """What the runs of a group separate, and what they do not, in sentences."""
    return "\n\n".join([*(in_words(group, measure) for measure in MEASURES), *sharpness(group)])


def in_order(pair, gap):
    """The two rows of a pair, the one that is ahead first."""
    return pair if gap.mean > 0 else pair[::-1]


def doubt(group, one, other):
    """What to know of the rates of a pair: whether they differ, and whether one lies at an edge of those tried."""
    said = ["rates differ"] if group.rate(one) != group.rate(other) else []
    return said + [f"{code(row)} at the edge of the rates" for row in (one, other) if row in group.at_an_edge()]


def beside_noise(group, measure):
    """What the doubtful pairs of a group are, in a sentence; nothing where there is none."""
    doubtful = group.doubtful(measure)
    if not doubtful:
        return []
    gaps = group.pairs(measure)
    told = []
    for pair in sorted(doubtful, key=lambda pair: abs(gaps[pair].mean)):
        gap, (first, second) = gaps[pair], in_order(pair, gaps[pair])
        told.append(
            f"{code(first)} ahead of {code(second)} (a spread of {number(stdev(gap.values))}, where two evaluations "
            f"differ by {number(group.noise(measure, *pair))})"
        )
    return [f"Doubtful, by their spread: {', '.join(told)}."]


def example():
    """The smallest difference that is separated and doubtful, of all groups."""
    with using(PATH):
        found = [
            (abs(gap.mean), group, pair, gap)
            for group in whole_groups().values()
            for pair, gap in group.pairs("sampled").items()
            if pair in group.doubtful("sampled")
        ]
        if not found:
            return ""
        size, group, pair, gap = min(found, key=lambda line: line[0])
        first, second = in_order(pair, gap)
        return (
            f"The example: in {group.title}, {code(first)} is ahead of {code(second)} by {number(size)}, with a spread "
            f"of {number(stdev(gap.values))} over the seeds, where two independent evaluations differ by "
            f"{number(group.noise('sampled', *pair))}."
        )


def in_words(group, measure):
    """One paragraph for one measure."""
    found = group.pairs(measure)
    apart = {pair: one for pair, one in found.items() if one.separated}
    rest = {pair: one for pair, one in found.items() if not one.separated}
    said = [f"**{group.measure.capitalize()} {MEASURES[measure]}.** Of {len(found)} pairs {len(apart) or 'none'} "]
    said[0] += "is separated." if len(apart) < 2 else "are separated."
    ahead, doubted = {}, 0
    for pair, gap in apart.items():
        first, second = in_order(pair, gap)
        doubts = doubt(group, first, second)
        doubted += bool(doubts)
        here = [group.stands_for(second)] if group.stands_for(second) else []
        told = "; ".join([*here, f"by {number(abs(gap.mean))}", *doubts])
        ahead.setdefault(first, []).append(f"{code(second)} ({told})")
    said += [f"{code(row)} is ahead of {', '.join(ahead[row])}." for row in group.own if row in ahead]
    if doubted:
        said.append(
            f"In {doubted} of these {len(apart)} the rates differ or one lies at the edge of those tried, and some or "
            "all of the difference may be the rates'."
        )
    said += beside_noise(group, measure)
    if rest:
        (one, other), gap = max(rest.items(), key=lambda item: abs(item[1].mean))
        said.append(
            f"The largest mean difference that is not separated is {number(abs(gap.mean))}, between {code(one)} and "
            f"{code(other)}."
        )
    spreads = [stdev(one.values) for one in found.values()]
    said.append(
        f"The {len(group.seeds)} differences of a pair have standard deviations from {number(min(spreads))} to "
        f"{number(max(spreads))}, with median {number(median(spreads))}. With the median spread, the first separation "
        f"takes {number(needed(found))}."
    )
    if measure == "sampled":
        risen = [row for row in group.own if middle(group, row, "sampled") > group.start()]
        ends = f"the start's {number(group.start())}"
        if len(risen) == len(group.own):
            said.append(f"All {len(risen)} end above {ends}.")
        else:
            fallen = ", ".join(code(row) for row in group.own if row not in risen)
            said.append(f"{len(risen)} of {len(group.own)} end above {ends}; not so {fallen}.")
    beside = group.beside_the_control(measure)
    above = [one for (one, _), gap in beside.items() if gap.separated and gap.mean > 0]
    below = [one for (one, _), gap in beside.items() if gap.separated and gap.mean < 0]
    others = [code(one) for (one, _) in beside if one not in (*above, *below)]
    if len(above) == len(beside):
        said.append(f"All {len(above)} are separated from the {group.control}, above it.")
    else:
        parts = [f"{len(above)} of {len(beside)} are separated from the {group.control}, above it"]
        parts += [f"below it {', '.join(map(code, below))}"] if below else []
        parts += [f"not separated {', '.join(others)}"] if others else []
        said.append(f"{'; '.join(parts)}.")
    return " ".join(said)


def ranks(values):
    """From 0, equal values with the mean of their places."""
    order = sorted(values)
    return [order.index(value) + (order.count(value) - 1) / 2 for value in values]


def sharpness(group):
    """How the means of rows go with their entropy; nothing where there is no order."""
    columns = {key: [middle(group, row, key) for row in group.own] for key in ("sampled", "greedy", "entropy")}
    if any(len(set(values)) == 1 for values in columns.values()):  # a correlation needs two
        return []
    order = ranks(columns["entropy"])
    sampled, greedy = (
        f"{correlation(ranks(columns[key]), order):.2f}".replace("-", "\u2212") for key in ("sampled", "greedy")
    )
    return [
        f"**Sharpness.** Over the {len(group.own)} rows the rank correlation of the entropy with the {group.measure} "
        f"of sampled completions is {sampled}, with that of greedy ones {greedy}."
    ]


def limit(pairs, seeds):
    """The t that one pair of so many has to reach, for a sentence."""
    return f"{critical(0.05 / int(pairs), int(seeds) - 1):.1f}"


def test():
    """How strict the correction is, for each number of pairs in the plan."""
    groups = read_groups()
    if not groups:
        return NOTHING
    counts = sorted({len(group.own) * (len(group.own) - 1) // 2 for group in groups.values()})
    seeds = len(next(iter(groups.values())).seeds)
    alone = f"{critical(0.05, seeds - 1):.1f}"
    asked = ", ".join(f"{limit(n, seeds)} among {n} pairs" for n in counts)
    drawn, before = next(iter(groups.values())).drawn
    return (
        f"With {seeds} seeds a single pair would be called separated where its mean difference is {alone} of its own "
        f"standard errors. The first of many has to reach {asked}. Much of a spread is the evaluation's: two "
        f"independent draws of {drawn} completions at an accuracy of 0.8 differ by "
        f"{number(sqrt(2 * 0.8 * 0.2 / drawn))} (standard deviation) without any training between them. Points before "
        f"the end, and so most of the area, have {before}."
    )
