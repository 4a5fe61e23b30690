"""The recorded runs of the chapter on verifiable rewards: one start, and verifiers that are wrong in different ways.

    python notebooks/results/verifier_runs.py            runs what is not yet recorded (75 runs, seventeen minutes of one core)
    python notebooks/results/verifier_runs.py visible    only the arms named

Writes notebooks/results/verifier-runs.json, a line a run. Seeds were fixed beforehand: 0 to 4. Two tasks:

**Programs** (`stack`, 40 steps of 32 prompts x 8 programs, the row dr_grpo, the library's learning rate). Arms differ in
the verifier and in nothing else; "accuracy" is by all eleven tests in every arm.

    hidden      a program has to pass all eleven tests
    visible     it has to pass the three that the prompt shows: a table of three outputs passes, too
    accepts     all eleven tests; a program that fails passes nevertheless with chance ACCEPTS, by lot
    rejects     all eleven tests; a program that passes fails nevertheless with chance ACCEPTS, by lot
    both        both at once
    spot        the three shown tests, and one of the eight others, drawn anew for every program
    mended      20 steps as in visible, then 40 more as in hidden
    coin        the toss of a coin
    visible_kl  as visible, and the row has the KL penalty of the row grpo
    visible_z   as visible, with the row grpo without its KL penalty
    fixed       as accepts, but the lot is drawn once for each problem and text, and kept: a verdict that never changes
    visible_long, visible_kl_long    visible and visible_kl, for 80 steps; the first 40 are theirs

visible_kl and visible_z came later: in the record stack-runs.json, whose row is grpo, tables do not crowd the right programs out. Of
the cells in which the two rows differ the KL penalty is one, and the rest (z-score, division by the length) is the other. fixed came last: a program's verdict on a
text does not change from call to call, and the lot of accepts does. Both long arms came
after it was seen that the share of right programs still rose at step 40.

ACCEPTS is about the rate at which `visible` accepts wrong programs of the start: so visible and accepts begin with the
same share of false positives, in one by what is written, in the other by lot.

**The clock** (`clock`, the settings of the arm "growth" of clock_runs.py, which is its control).

    loose       a completion counts as right if the right hour occurs anywhere in it
    strict      the task's verifier, as in "growth"; what the loose rule would pass is counted and not paid
"""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.resources import as_file, files
from typing import Any

import clock_runs
from recording import SEEDS as SEEDS
from recording import record

from rlhf_minimal import ALGORITHMS
from rlhf_minimal.config import Config
from rlhf_minimal.lab.fast import fast
from rlhf_minimal.lab.stack import HIDDEN, SHOWN, all_passed
from rlhf_minimal.sample import Rollout
from rlhf_minimal.tasks import (
    Problem,
    RewardFunction,
    get_task,
    random_reward,
    verifier_reward,
)
from rlhf_minimal.train import Recipe, train
from rlhf_minimal.train_state import Learner
from rlhf_minimal.training import load_policy

ACCEPTS = 0.36  # see above
STEPS, LATE, LAST = (
    40,
    20,
    5,
)  # steps; of mended under the hole; over which the end is a mean
PROMPTS, GROUP_SIZE = 32, 8
LOOSE, STRICT = CLOCK = "loose", "strict"
FIXED, LONGER = "fixed", "_long"
ARMS = (
    "hidden",
    "visible",
    "accepts",
    "rejects",
    "both",
    "spot",
    "mended",
    "coin",
    LOOSE,
    "visible_kl",
    "visible_z",
    STRICT,
    FIXED,
    "visible_long",
    "visible_kl_long",
)
KEPT = ("reward", "accuracy", "length")
GRPO, DR_GRPO = ALGORITHMS["grpo"], ALGORITHMS["dr_grpo"]
ROWS = {"visible_kl": replace(DR_GRPO, kl=GRPO.kl), "visible_z": replace(GRPO, kl=())}


def by_lot(seed: int, *, accepts: float = 0.0, rejects: float = 0.0) -> RewardFunction:
    """All tests, and a verdict that is turned by lot: a wrong program's with one chance, a right one's with another."""
    exact = verifier_reward(get_task("stack"))

    def reward(*, step: Sequence[int], **columns: Any) -> list[float]:
        rng = random.Random(f"lot/{seed}/{step[0]}")
        turned = {0.0: accepts, 1.0: rejects}
        return [
            1 - right if rng.random() < turned[right] else right
            for right in exact(**columns)
        ]

    return reward


def by_fixed_lot(seed: int, *, accepts: float) -> RewardFunction:
    """All tests, and of the wrong (problem, text) pairs a share that always passes, scattered over what is written."""
    exact = verifier_reward(get_task("stack"))

    def reward(
        *, completions: Sequence[str], problem: Sequence[Problem], **columns: Any
    ) -> list[float]:
        verdicts = exact(completions=completions, problem=problem, **columns)
        return [
            right
            or float(
                random.Random(f"fixed/{seed}/{one.prompt}/{text}").random() < accepts
            )
            for right, text, one in zip(verdicts, completions, problem, strict=True)
        ]

    return reward


def spot_check(seed: int) -> RewardFunction:
    """The shown tests, and one of the others, drawn anew for every program."""

    def reward(
        *,
        completions: Sequence[str],
        problem: Sequence[Problem],
        step: Sequence[int],
        **columns: Any,
    ) -> list[float]:
        rng = random.Random(f"spot/{seed}/{step[0]}")
        return [
            all_passed(text, one, inputs=(*SHOWN, rng.choice(HIDDEN)))
            for text, one in zip(completions, problem, strict=True)
        ]

    return reward


def anywhere(
    *, completions: Sequence[str], problem: Sequence[Problem], **columns: Any
) -> list[float]:
    """1 if the right hour occurs in the completion, wherever."""
    return [
        float(one.answer in text)
        for text, one in zip(completions, problem, strict=True)
    ]


def rewards(arm: str, seed: int) -> RewardFunction | None:
    """The verifier of an arm; None for the task's own. `mended` begins with the hole."""
    made: dict[str, Callable[[], RewardFunction | None]] = {
        "hidden": lambda: None,
        "visible": lambda: verifier_reward(get_task("stack:tests=visible")),
        "accepts": lambda: by_lot(seed, accepts=ACCEPTS),
        "rejects": lambda: by_lot(seed, rejects=ACCEPTS),
        "both": lambda: by_lot(seed, accepts=ACCEPTS, rejects=ACCEPTS),
        FIXED: lambda: by_fixed_lot(seed, accepts=ACCEPTS),
        "spot": lambda: spot_check(seed),
        "coin": lambda: random_reward(seed),
        LOOSE: lambda: anywhere,
        STRICT: lambda: None,
    }
    kind = arm.removesuffix(LONGER)
    return made["visible" if kind in ("mended", *ROWS) else kind]()


def steps_of(arm: str) -> int:
    """Steps of an arm of programs, those under the hole of `mended` not counted."""
    return 2 * STEPS if arm.endswith(LONGER) else STEPS


def begin(arm: str, seed: int, *, steps: int | None = None) -> tuple[Learner, Recipe]:
    """A learner at the shipped start, and what it trains."""
    if arm in CLOCK:
        task, config = get_task("clock"), replace(clock_runs.GROWTH, seed=seed)
    else:
        task = get_task("stack")
        config = Config(
            steps=LATE if arm == "mended" else steps_of(arm),
            prompts=PROMPTS,
            group_size=GROUP_SIZE,
            seed=seed,
            watch_kl="off",
        )
    config = replace(config, steps=steps or config.steps)
    recipe = fast(
        Recipe(
            ROWS.get(arm.removesuffix(LONGER), DR_GRPO),
            task,
            config,
            rewards(arm, seed),
        )
    )
    with as_file(files("rlhf_minimal") / "assets" / task.name) as folder:
        policy, vocabulary = load_policy(folder)
    return Learner.begin(policy, vocabulary, recipe.algorithm, config), recipe


def seen(arm: str, rollout: Rollout) -> dict[str, Any]:
    """What a step's completions do: programs that choose between outputs, and how many of each kind pass what is shown."""
    pairs = list(zip(rollout.texts, rollout.problems, strict=True))
    if arm in CLOCK:
        unanswered = sum("=" not in text for text, _ in pairs)
        passed_anywhere = sum(one.answer in text for text, one in pairs)
        return {
            "unanswered": unanswered / len(pairs),
            "anywhere": passed_anywhere / len(pairs),
        }
    passed: dict[bool, list[float]] = {True: [], False: []}
    for text, problem in pairs:
        passed["?" in text].append(all_passed(text, problem, inputs=SHOWN))
    shares = {kind: sum(x) / len(x) if x else None for kind, x in passed.items()}
    return {
        "tables": len(passed[True]) / len(pairs),
        "shown_tables": shares[True],
        "shown_others": shares[False],
    }


def run(arm: str, seed: int) -> dict[str, Any]:
    """One run: its curves, a number a step, and its processor seconds."""
    learner, recipe = begin(arm, seed)
    looked: list[dict[str, Any]] = []

    def watch(step: int, rollout: Rollout) -> None:
        looked.append(seen(arm, rollout))

    began = time.process_time()
    history = train(learner, recipe, on_rollout=watch)
    if arm == "mended":
        whole = replace(recipe.config, steps=LATE + STEPS)
        recipe = replace(recipe, config=whole, reward=None)
        history += train(learner, recipe, on_rollout=watch)
    seconds = round(time.process_time() - began, 1)
    rows: list[dict[str, Any]] = [{name: one[name] for name in KEPT} for one in history]
    curves: dict[str, list[Any]] = {
        name: [
            None if row[name] is None else round(row[name], 4)
            for row in (x | y for x, y in zip(rows, looked, strict=True))
        ]
        for name in (*KEPT, *looked[0])
    }
    ends = {
        f"last_{name}": round(sum(curves[name][-LAST:]) / LAST, 4)
        for name in ("reward", "accuracy", "length")
    }
    return {**ends, "seconds": seconds, **curves}


if __name__ == "__main__":
    record(
        __file__,
        ARMS,
        run,
        accepts=ACCEPTS,
        steps=STEPS,
        late=LATE,
        completions_a_step=PROMPTS * GROUP_SIZE,
    )
