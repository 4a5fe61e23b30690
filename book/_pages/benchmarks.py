"""Tables of notebooks/results/benchmarks.json, which `make bench` writes: Markdown for `{generated}`.

A ratio is the median of its turns; behind it stands the range of the middle half, then the number of turns.
"""

from data_files import ROOT, read, using
from printing import table

RECORD = ROOT / "notebooks" / "results" / "benchmarks.json"


def without_head(measured):
    """The cases alone, without what they were measured on."""
    return {name: found for name, found in measured.items() if name not in ("machine", "minutes")}


def spread(found):
    low, high = found["middle_half"]
    return f"**{found['ratio']:.1f}** ({low:.1f} to {high:.1f}; {found['n']})"


def step(found):
    yield (
        "completions",
        "tokens: mean, longest",
        "TRL, samples/s",
        "ours, samples/s",
        "ours : TRL",
        "plain : TRL",
        "tokens read, TRL : ours",
    )
    for name, case in found.items():
        tokens = f"{case['tokens']['mean']:.1f}, {case['tokens']['longest']:.0f}"
        speeds = [f"{x}" for x in case["samples_per_second"]]
        tokens_read = f"{case['tokens_read']:.1f}"
        yield name, tokens, *speeds, spread(case), spread(case["plain_loop_against_trl"]), tokens_read


def sampling(found):
    yield "completions", "`generate`, s", "ours, s", "ours : `generate`"
    for name, case in found.items():
        yield name, *(f"{s:.3f}" for s in case["seconds"]), spread(case)


def updates(found):
    means = list(next(iter(found.values())))
    yield "completions", "plain, s", *means
    for name, case in found.items():
        yield name, f"{case[means[-1]]['seconds'][0]:.3f}", *(spread(case[one]) for one in means)


def idle(found):
    yield "completions", "every row, s", "idle rows skipped, s", "gain"
    for name, case in found.items():
        yield name, *(f"{s:.3f}" for s in case["seconds"]), spread(case)


def memory(found):
    yield "completions", "TRL, MB", "plain loop, MB", "ours, MB", "ours : TRL"
    for name, case in found.items():
        sides = [f"{case[side]['peak']} ({case[side]['step']})" for side in ("trl", "plain", "ours")]
        yield name, *sides, f"**{case['ratio_of_peaks']:.2f}** ({case['ratio_of_steps']:.2f})"


def roofline(found):
    yield "completions", "weights", "needed, GFLOP", "peak, GFLOP/s", "step at the peak, s", "share of the peak"
    for name, case in found.items():
        share, (low, high) = case["share"], case["range"]
        numbers = (
            f"{case['gflop_needed']:.1f}",
            f"{case['peak_gflop_per_second']:.0f}",
            f"{case['seconds_at_peak']:.3f}",
        )
        yield name, f"{case['weights']:,}", *numbers, f"**{share:.0%}** ({low:.0%} to {high:.0%})"


def floor(found):
    yield (
        "completions",
        "step, s",
        "forwards: to sample, to learn",
        "products alone, s",
        "calls alone, s",
        "both : step",
        "inside the model : step",
    )
    for name, case in found.items():
        seconds, calls, (low, high) = case["seconds"], case["forwards"], case["range"]
        alone = [f"{seconds[part]:.3f}" for part in ("products", "calls")]
        share = f"**{case['floor_share']:.0%}** ({low:.0%} to {high:.0%})"
        counts = f"{calls['sampling']}, {calls['update']}"
        yield name, f"{seconds['step']:.3f}", counts, *alone, share, f"**{case['inside_share']:.0%}**"


def learning(found):
    yield "seed", "TRL: steps", "TRL, s", "ours: steps", "ours, s", "ours : TRL"
    for run in found["runs"]:
        trl, ours = run["seconds"]["trl"], run["seconds"]["ours"]
        steps = [f"{run['steps'].get(side, 'not reached')}" for side in ("trl", "ours")]
        yield f"{run['seed']}", steps[0], f"{trl:.1f}", steps[1], f"{ours:.1f}", f"**{trl / ours:.1f}**"


def machine(found):
    yield "what", "which"
    for name, value in found.items():
        yield name.replace("_", " "), f"{value}"


def goals(record):
    """What was aimed at before anything was measured, and what came out."""
    yield "what", "aimed at", "measured", "reached", "bound", "share of the bound"
    steps, updates = record["step"], record["updates"]["long"]["both"]
    aims = [(f"a step, {name}", 6, steps[name]) for name in ("short", "short, prompts of 48", "addition")]
    aims += [("a step, long", 5, steps["long"]), ("the update, long", 2, updates)]
    aims += [(f"sampling, {name}", 2, found) for name, found in without_head(record["sampling"]).items()]
    for what, aim, found in aims:
        most = found.get("tokens_read")  # of a full step: see the page
        bound = [f"{most:.1f}", f"{found['ratio'] / most:.0%}"] if most else ["", ""]
        yield what, f"at least {aim} times", spread(found), "yes" if found["ratio"] >= aim else "no", *bound
    memory = record["memory"]["long"]["ratio_of_peaks"]
    yield "peak memory, long", "at most half of TRL's", f"**{memory:.2f}**", "yes" if memory <= 0.5 else "no", "", ""


TABLES = {
    function.__name__: function for function in (step, sampling, updates, idle, memory, roofline, floor, learning)
}


def markdown(name):
    """A table as Markdown; "machine" is that of the full steps, "goals" looks at all of them."""
    if name not in (known := ("machine", "goals", *TABLES)):
        raise ValueError(f"there is no table {name!r}; there are {', '.join(known)}")
    with using(RECORD):
        record = read(RECORD)
        if name == "machine":
            rows = list(machine(record["step"]["machine"]))
        elif name == "goals":
            rows = [[f"{cell}" for cell in row] for row in goals(record)]
        else:
            rows = list(TABLES[name](without_head(record[name])))
        return table(*rows[:1], rows[1:])
