"""Runs every arm of the playground's challenges over its seeds, and writes playground_challenges.json: minutes.

    python tests/data/playground_challenges.py

`tests/viz/test_playground.py` holds every sentence of an explanation to these runs, and runs their first steps again.
"""

import json
import subprocess
from pathlib import Path

from rlhf_book.figures.playground import ENGINE
from tests.viz.engine import challenges, in_engine
from tests.viz.node import run_in_node

OUT = Path(__file__).with_name("playground_challenges.json")
MODULE = ENGINE.parent / "playground.mjs"
SHIFTS = (0, 1, 2)  # added to the seeds of a challenge
WINDOWS = {"1-20": (1, 20), "101-120": (101, 120)}  # all that the claims speak of
MEASURES = ("right", "reward", "entropy", "clipped", "norm", "kl")
FIRST = 3  # steps that are run again by the test


def runs(shifts=SHIFTS):
    """The settings of each run once, as the engine takes them, by a name: challenges share arms."""
    script = (
        "const { rows, all, shifts } = %s, found = {};"
        "for (const { arms } of all) for (const given of arms) for (const shift of shifts) {"
        "  const arm = { ...maths.DEFAULT, ...given, seed: String(Number(given.seed ?? 0) + shift) };"
        "  const { row, seeds, ...settings } = maths.settings(arm, rows);"
        "  const bounds = Object.fromEntries(Object.entries(row.bounds).map(([k, v]) => [k, "
        "Number.isFinite(v) ? v : 1e9]));"
        "  found[maths.address([arm])] = { ...settings, row: arm.row, bounds, seed: Number(arm.seed) }; }"
        "console.log(JSON.stringify(found));"
    )
    given = {
        "rows": json.loads((ENGINE / "rows.json").read_text(encoding="utf-8")),
        "all": challenges(),
        "shifts": list(shifts),
    }
    return run_in_node(MODULE, script % json.dumps(given))


# One run: its first steps, and the means of its windows.
RUN = """
const found = {};
for (const [name, settings] of Object.entries(RUNS)) {
  const trainer = make(settings), steps = [];
  for (let i = 0; i < STEPS; i++) { const { kept, ...step } = trainer.step(); steps.push(step); }
  const over = (from, to, key) => {
    const values = steps.filter((one) => one.step >= from && one.step <= to && one[key] !== undefined).map((one) =>
      one[key]);
    return Number(mean(values).toPrecision(6));
  };
  found[name] = {
    first: steps.slice(0, FIRST).map(({ right, entropy, norm }) => [right, entropy, norm].map((x) =>
      Number(x.toPrecision(6)))),
    ...(STEPS < 120 ? {} : Object.fromEntries(Object.entries(WINDOWS).map(([name, [from, to]]) => [name,
      Object.fromEntries(MEASURES.map((key) => [key, over(from, to, key)]))]))),
  };
}
say(found);
"""


def measure(chosen, steps):
    """The numbers of these runs, by name."""
    given = {"RUNS": chosen, "STEPS": steps, "FIRST": FIRST, "WINDOWS": WINDOWS, "MEASURES": MEASURES}
    return in_engine(RUN, timeout=3600, **given)


if __name__ == "__main__":
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    found = measure(runs(), 120)
    lines = ",\n".join(f"    {json.dumps(name)}: {json.dumps(run)}" for name, run in found.items())
    OUT.write_text(f'{{\n  "node": "{version}",\n  "runs": {{\n{lines}\n  }}\n}}\n', encoding="utf-8")
    print(f"{len(found)} runs")
