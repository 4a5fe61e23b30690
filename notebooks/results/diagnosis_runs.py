"""The recorded runs on diagnosis: the loop with one bug put in, and without any.

    python notebooks/results/diagnosis_runs.py                       runs what is not yet recorded (20 minutes of one core)
    python notebooks/results/diagnosis_runs.py written:grpo/dropout  only the arms named

Writes notebooks/results/diagnosis-runs.json, a line a run, with the metrics that `diagnose` reads. The bugs are those of
rlhf_book/diseases.py; an arm is SET:SETTING/BUG.

The rules of rlhf_minimal/lab/diagnosis.py and their thresholds were written with the arms "written:" alone (the task
addition, rows grpo and ppo, seeds 100 and 101). The arms "scored:" and "healthy:" are other tasks, other rows and the
seeds 0 to 3, and were run when the rules had been committed; rules that came later say so. The arms "later:" came after
the score: controls, and bugs at milder doses.
"""

import time
from dataclasses import replace
from typing import Any

from recording import SEEDS as SEEDS
from recording import record

from rlhf_book.diseases import DISEASES, MILD, Setting
from rlhf_book.diseases import run as run_of
from rlhf_minimal.config import Config

STEPS = 24
KEPT = (
    "reward accuracy kl kl_reference kl_coef entropy length truncated dead_groups groups refills clip_fraction "
    "gap trained agreement between weight_norm grad_norm explained_variance verifier_errors"
).split()

ADDITION = Config(steps=STEPS, prompts=16, group_size=8)
STACK = Config(steps=STEPS, prompts=16, group_size=8)
CLOCK = Config(steps=STEPS, prompts=8, group_size=8, minibatches=2, lr=4e-4)

WRITTEN = {
    "grpo": Setting("grpo", "addition", ADDITION, cut=3),
    "ppo": Setting("ppo", "addition", replace(ADDITION, epochs=2), cut=3),
}
SCORED = {
    "rloo": Setting("rloo", "stack", STACK, cut=6),
    "dr_grpo": Setting("dr_grpo", "clock:slip", CLOCK, cut=8),
    "ppo": Setting("ppo", "stack", STACK, cut=6),
    "grpo": Setting("grpo", "stack", STACK, cut=6),
}
# Runs without a bug: rows that no rule was written with, on three tasks, at two learning rates.
HEALTHY = {
    f"{row}-{task}-{factor:g}": Setting(
        row, task, replace(config, lr=factor * config.lr)
    )
    for row, task, config, factor in (
        ("rloo", "stack", STACK, 0.5),
        ("dr_grpo", "clock:slip", CLOCK, 0.5),
        ("dapo", "stack", STACK, 0.5),
        ("dapo", "clock:slip", CLOCK, 1.0),
        ("gspo", "addition", ADDITION, 1.0),
        ("gmpo", "addition", ADDITION, 0.5),
        ("cispo", "stack", STACK, 1.0),
        ("sapo", "clock:slip", CLOCK, 1.0),
        ("reinforce_pp", "stack", STACK, 0.5),
        ("kimi_k2", "stack", STACK, 0.5),
    )
}
HEALTHY_SEEDS = 2
# Made after the score: what the bugs without a trace are compared with, two settings that had been on the list of
# healthy ones and were taken off it for time, and bugs at milder doses.
LATER = {
    "grpo": SCORED["grpo"],
    "clipped": Setting("grpo", "stack", replace(STACK, epochs=4, minibatches=2), cut=6),
    "rloo": SCORED["rloo"],
    "rloo-clock": Setting("rloo", "clock:slip", CLOCK),
    "dr_grpo-stack": Setting("dr_grpo", "stack", STACK),
}
TWICE = (
    "rate-high",
    "entropy-bonus",
    "inverted-ratio",
    "kl-high",
)  # while writing, with the row ppo too


def place(arm: str) -> tuple[Setting, str | None, int]:
    """What an arm runs: the setting, the bug, and what is added to its seeds."""
    kind, _, rest = arm.partition(":")
    where, _, disease = rest.partition("/")
    settings = {
        "written": WRITTEN,
        "scored": SCORED,
        "healthy": HEALTHY,
        "later": LATER,
    }[kind]
    return settings[where], disease or None, 100 if kind == "written" else 0


def arms() -> dict[str, int]:
    """Every arm and its number of seeds: the bugs once or twice while writing, four times for the score."""
    found = {"written:grpo": 2, "written:ppo": 2}
    for one in DISEASES.values():
        first = "ppo" if one.needs == "critic" else "grpo"
        found[f"written:{first}/{one.id}"] = 1
    found |= {f"written:ppo/{name}": 1 for name in TWICE}
    for one in DISEASES.values():
        if one.id == "larger-of-two":
            continue  # it acts only where a rollout gets several updates: among the later ones
        if one.cause is None:
            found[f"scored:grpo/{one.id}"] = 4
        elif one.needs in ("kl", "critic"):
            found[f"scored:{'ppo' if one.needs == 'critic' else 'rloo'}/{one.id}"] = 4
        else:
            found |= {f"scored:rloo/{one.id}": 2, f"scored:dr_grpo/{one.id}": 2}
    found |= {f"healthy:{name}": HEALTHY_SEEDS for name in HEALTHY}
    found |= {"later:grpo": 4, "later:clipped": 4, "later:clipped/larger-of-two": 4}
    found |= {f"later:{name}": 2 for name in ("rloo", "rloo-clock", "dr_grpo-stack")}
    return found | {f"later:rloo/{one.id}": 2 for one in MILD.values()}


def short(name: str, value: float) -> float:
    """Four digits, counted from the first one; of a norm, of which the change matters, nine."""
    return float(f"{value:.{9 if name == 'weight_norm' else 4}g}")


def run(arm: str, seed: int, steps: int = STEPS) -> dict[str, Any]:
    """One run: the metrics that it has, a number a step (None in a step that has none)."""
    setting, disease, add = place(arm)
    began = time.process_time()
    history = run_of(setting, disease, seed + add, steps)
    curves = {
        name: [short(name, row[name]) if name in row else None for row in history]
        for name in KEPT
        if any(name in row for row in history)
    }
    return {"seconds": round(time.process_time() - began, 1), **curves}


if __name__ == "__main__":
    record(__file__, arms(), run, fewer=arms(), steps=STEPS)
