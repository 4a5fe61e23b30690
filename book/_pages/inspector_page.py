"""The page of the token inspector: what it says of notebooks/results/token-inspector.json, for `{generated}`."""

from math import exp

from data_files import using
from printing import box, code, number, table
from recorded_runs import RESULTS
from rlhf_book.factors import fitting_rows
from rlhf_book.figures.inspector import TITLES, budget_of, first_cut, most_pulled, number_at, unit_of
from rlhf_book.records import read_record, recorded_with
from rlhf_minimal import ALGORITHMS

PATH = RESULTS / "token-inspector.json"


def of_the_record(tell):
    """What a function tells of the record, or that there is none."""

    def told():
        with using(PATH):
            record = read_record("token-inspector")
            return tell(record) if record else "Not recorded yet."

    told.__name__, told.__doc__ = tell.__name__, tell.__doc__
    return told


def of_the_clock(tell):
    """The same of its run *clock*."""
    told = of_the_record(lambda record: tell(next(run for run in record["runs"] if run["arm"] == "clock")))
    told.__name__, told.__doc__ = tell.__name__, tell.__doc__
    return told


@of_the_record
def recorded(record):
    """A column a run, and with what it was recorded."""
    runs = record["runs"]
    arms = [run["arm"] for run in runs]
    lines = [
        ["completions a rollout", *(f"{record['prompts'][arm]} prompts x {record['group_size'][arm]}" for arm in arms)],
        ["tokens that a completion may have", *(str(budget_of(run["steps"][0])) for run in runs)],
        ["steps shown", *(", ".join(str(look["step"]) for look in run["steps"]) for run in runs)],
        ["tokens in their batches", *(", ".join(str(look["tokens"]) for look in run["steps"]) for run in runs)],
        ["mean reward, first and last", *(f"{run['reward'][0]:.2f} and {run['reward'][-1]:.2f}" for run in runs)],
    ]
    tasks = "; ".join(f"*{TITLES[arm]}*: `{record['task'][arm]}`" for arm in arms)
    return (
        f"{table(['', *(TITLES[arm] for arm in arms)], lines)}\n\nTasks: {tasks}.\n\n"
        f"Recorded with {recorded_with(record)}, by `{record['command']}`."
    )


@of_the_clock
def lengths(run):
    """Shares of the shortest and the longest completion of the group that the figure opens with."""
    group = run["steps"][0]["groups"][0]
    counts = [len(tokens) for tokens in group["tokens"]]
    short, long = counts.index(min(counts)), counts.index(max(counts))
    own = group["values"][group["rows"]["grpo"]["share"]]
    n, budget = run["steps"][0]["completions"], budget_of(run["steps"][0])
    brief, full = (f"1/({n} x {counts[at]})" for at in (short, long))
    return (
        f"There a completion of {counts[short]} tokens has a share of {brief} a token in `grpo`, and one of "
        f"{counts[long]} tokens {full}: a factor of {own[short] / own[long]:.1f}. In `dr_grpo` both have "
        f"1/({n} x {budget}), where {budget} is the budget."
    )


@of_the_clock
def cut(run):
    """Where to see a token that the clip cuts: the place to which the figure's button leads."""
    step = run["steps"][-1]
    prompt, i, t = first_cut(step)
    group = step["groups"][prompt]
    before, after = (exp(group[name][i][t]) for name in ("sampler", "now"))
    credit = number(number_at(group, "grpo", "advantage", i, t), "+.2f")
    return (
        f"Run *clock*, step {step['step']}, prompt {prompt + 1}, rows `grpo` and `cispo`: token {t + 1} of "
        f"completion {i + 1}, with an advantage of {credit}, went from {before:.2f} to {after:.2f}, by a ratio of "
        f"{number_at(group, 'grpo', 'ratio', i, t):.2f}. `grpo` asks for no more of it; `cispo` does."
    )


@of_the_clock
def pulled(run):
    """The token of the opening group at which the KL penalty pulls hardest, alone."""
    step = run["steps"][0]
    group = step["groups"][0]
    i, t = most_pulled(group)
    start, now = (exp(group[name][i][t]) for name in ("ref", "now"))
    weight = number_at(group, "grpo", "pull", i, t)
    kimi = {kind: number_at(group, "kimi_k2", kind, i, t) for kind in ("share", "advantage", "pull", "weight")}
    credit = number(number_at(group, "grpo", "advantage", i, t), "+.2f")
    relative = number(weight / unit_of(step, "grpo"), "+.1f")
    push = number(kimi["share"] * kimi["advantage"], "+.4f")
    return (
        f"Run *clock*, step {step['step']}, prompt 1: token {t + 1} of completion {i + 1} has an advantage of "
        f"{credit}, and one update took it from {start:.3f} to {now:.4f}. The gate cuts it, and the penalty $k_3$, "
        f"whose pull grows as $\\pi_{{ref}}/\\pi - 1 = {start / now - 1:.0f}$, gives it a weight of "
        f"{number(weight, '+.4f')}, or {relative} mean sizes, against its own advantage. In `kimi_k2`, beside it, "
        f"nothing is cut: a push of {push} and a pull of {number(kimi['pull'], '+.4f')} leave "
        f"{number(kimi['weight'], '+.4f')}."
    )


@of_the_clock
def moved(run):
    """A token that is pushed both ways in one group, and how many tokens moved as their advantage asked."""
    counts = []
    for step in (run["steps"][0], run["steps"][-1]):
        there, all_ = asked_and_moved(step["groups"][0])
        counts.append(f"{there} of {all_} at step {step['step']}")
    group = run["steps"][0]["groups"][0]
    token, up, down = both_ways(group)
    before, after = (exp(group[name][up[0]][0]) for name in ("old", "now"))
    return (
        f"In the group that the figure opens with, {len(up) + len(down)} completions begin with `{token}`: `grpo` "
        f"pushes it up in {places(up)} and down in {places(down)}. It is one probability, and the update before, "
        f"with the same advantages, took it from {before:.3f} to {after:.3f}. Of the tokens of prompt 1 with an "
        f"advantage, the first update moved as the advantage asked {' and '.join(counts)}."
    )


def asked_and_moved(group):
    """How many tokens the first update moved to the side of their advantage, and how many have one."""
    ways = [
        number_at(group, "grpo", "advantage", i, t) * (now - old)
        for i, (after, before) in enumerate(zip(group["now"], group["old"], strict=True))
        for t, (now, old) in enumerate(zip(after, before, strict=True))
        if number_at(group, "grpo", "advantage", i, t) != 0
    ]
    return sum(way > 0 for way in ways), len(ways)


def both_ways(group):
    """The first token that `grpo` pushes up in some completions and down in others, and in which."""
    for token in dict.fromkeys(own[0] for own in group["tokens"]):
        here = [i for i, own in enumerate(group["tokens"]) if own[0] == token]
        up = [i for i in here if number_at(group, "grpo", "weight", i, 0) > 0]
        down = [i for i in here if number_at(group, "grpo", "weight", i, 0) < 0]
        if up and down:
            return token, up, down
    raise ValueError("no token that begins completions of both kinds")


def places(completions):
    """`completion 2`, or `completions 1 and 6`."""
    *first, last = (str(i + 1) for i in completions)
    return f"completions {', '.join(first)} and {last}" if first else f"completion {last}"


@of_the_record
def silent(record):
    """How many tokens of the last batch of each run have an advantage and no gradient from it, in some rows."""
    rows = ["grpo", "gmpo", "icepop", "cispo", "dppo", "gspo"]  # the same tokens have an advantage in all of them
    lines = []
    for run in (run for arm in TITLES for run in record["runs"] if run["arm"] == arm):
        for look in run["steps"]:
            counts = [look["step"], look["credited"]["grpo"], *(look["silent"][row] for row in rows)]
            lines.append([TITLES[run["arm"]], *map(str, counts)])
    text = box("numbers", table(["run", "step", "with an advantage", *map(code, rows)], lines))
    return f"Tokens of the batch that have an advantage, and how many of them get no gradient from it:\n\n{text}"


@of_the_clock
def together(run):
    """How many completions of the kept groups GSPO cuts as a whole."""
    look, gates = run["steps"][-1], []
    for group in look["groups"]:
        gate = group["values"][group["rows"]["gspo"]["gate"]]
        gates += gate if isinstance(gate, list) else [gate] * len(group["tokens"])
    return (
        f"At step {look['step']} of the clock it cuts {gates.count(0)} of the {len(gates)} completions that are shown."
    )


def left_out():
    """Rows that need more than the batch has."""
    words = {
        "values": "a critic",
        "greedy_rewards": "the greedy completion",
        "reward_parts": "parts of a reward",
        "entropy": "entropies",
        "ref_logp": "a teacher",
    }
    left = [name for name in ALGORITHMS if name not in fitting_rows()]
    needed = {name: next(text for need, text in words.items() if need in ALGORITHMS[name].needs) for name in left}
    said = ", ".join(f"{code(name)} ({text})" for name, text in needed.items())
    return f"{said}. The other {len(fitting_rows())} rows are."
