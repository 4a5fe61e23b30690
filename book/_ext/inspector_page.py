"""The page of the token inspector: what it says of notebooks/results/token-inspector.json, for `{generated}`."""

from data_files import using
from generated import table
from recorded_runs import RESULTS

from rlhf_book.factors import fitting_rows
from rlhf_book.figures.inspector import TITLES
from rlhf_book.records import read_record, recorded_with
from rlhf_minimal import ALGORITHMS

PATH = RESULTS / "token-inspector.json"
MISSING = "Not recorded yet."


def code(names):
    return ", ".join(f"`{name}`" for name in names)


def run_of(arm):
    """A recorded run, or None."""
    record = read_record("token-inspector")
    return next((run for run in record["runs"] if run["arm"] == arm), None) if record else None


def recorded():
    """A column a run, and with what it was recorded."""
    with using(PATH):
        record = read_record("token-inspector")
        if record is None:
            return MISSING
        runs = record["runs"]
        arms = [run["arm"] for run in runs]
        lines = [
            [
                "completions a rollout",
                *(f"{record['prompts'][arm]} prompts x {record['group_size'][arm]}" for arm in arms),
            ],
            ["steps shown", *(", ".join(str(look["step"]) for look in run["steps"]) for run in runs)],
            ["tokens in their batches", *(", ".join(str(look["tokens"]) for look in run["steps"]) for run in runs)],
            ["mean reward, first and last", *(f"{run['reward'][0]:.2f} and {run['reward'][-1]:.2f}" for run in runs)],
        ]
        tasks = "; ".join(f"*{TITLES[arm]}*: `{record['task'][arm]}`" for arm in arms)
        return (
            f"{table(['', *(TITLES[arm] for arm in arms)], lines)}\n\nTasks: {tasks}.\n\n"
            f"Recorded with {recorded_with(record)}, by `{record['command']}`."
        )


def lengths():
    """Shares of the shortest and the longest completion of the group that the figure opens with."""
    with using(PATH):
        run = run_of("clock")
        if run is None:
            return MISSING
        group = run["steps"][0]["groups"][0]
        counts = [len(tokens) for tokens in group["tokens"]]
        short, long = counts.index(min(counts)), counts.index(max(counts))
        own = group["values"][group["rows"]["grpo"]["share"]]
        one = group["values"][group["rows"]["dr_grpo"]["share"]]
        return (
            f"There a completion of {counts[short]} tokens has a share of {own[short]:.4f} a token in `grpo`, and one "
            f"of {counts[long]} tokens {own[long]:.4f}: a factor of {own[short] / own[long]:.1f}. In `dr_grpo` both "
            f"have {one:.5f}."
        )


def silent():
    """How many tokens of the last batch of each run have an advantage and no gradient from it, in some rows."""
    with using(PATH):
        runs = [run for arm in TITLES if (run := run_of(arm))]
        if not runs:
            return MISSING
        rows = ["grpo", "gmpo", "icepop", "cispo", "dppo", "gspo"]  # the same tokens have an advantage in all of them
        lines = []
        for run in runs:
            for look in run["steps"]:
                numbers = [str(look["silent"][row]) for row in rows]
                lines.append([TITLES[run["arm"]], str(look["step"]), str(look["credited"]["grpo"]), *numbers])
        text = table(["run", "step", "with an advantage", *(f"`{row}`" for row in rows)], lines)
        return f"Tokens of the batch that have an advantage, and how many of them get no gradient from it:\n\n{text}"


def together():
    """How many completions of the kept groups GSPO cuts as a whole."""
    with using(PATH):
        run = run_of("clock")
        if run is None:
            return MISSING
        look = run["steps"][-1]
        cut = whole = 0
        for group in look["groups"]:
            gates = group["values"][group["rows"]["gspo"]["gate"]]
            gates = gates if isinstance(gates, list) else [gates] * len(group["tokens"])
            cut += gates.count(0)
            whole += len(gates)
        return f"At step {look['step']} of the clock it cuts {cut} of the {whole} completions that are shown."


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
    said = []
    for name in left:
        needs = ALGORITHMS[name].needs
        said.append(f"`{name}` ({next(text for need, text in words.items() if need in needs)})")
    return f"{', '.join(said)}. The other {len(fitting_rows())} rows are."
