"""The recorded runs of the chapter on PPO for RLHF: a critic or a group, and a reward model that is trained again.

    python notebooks/results/rlhf_runs.py            runs what is not yet recorded (50 runs, some 40 minutes of one core)
    python notebooks/results/rlhf_runs.py ppo rloo   only the arms named

Writes notebooks/results/rlhf-runs.json, a line a run. Task: `reviews`; the start is the shipped fine-tuned policy, the
first reward model the shipped one, both of seed 0. A seed of this record is a seed of the RL run (and of the pairs that
a reward model gets), not of another pipeline. A step has 128 completions; there are STEPS steps in the first group of
arms and WITHOUT_STEPS in the second.

A critic or a group: the row `ppo` with k1 in the reward at BETA, and the same reward model, clip range, updates and learning
rate in all arms. They differ in whom a completion is compared with:

    ppo         the critic: GAE, lambda 0.95, whitened; 32 prompts of 4
    ppo-wide    the same with 128 prompts of 1: a critic needs no group
    no-critic   nobody: the return to go, whitened; 32 prompts of 4
    grpo        the group's mean and standard deviation; 32 prompts of 4
    rloo        the mean of the others in the group; 32 prompts of 4

Without a KL penalty (the row `ppo` with an empty KL cell), each time from the start:

    first       against the shipped reward model
    fresh       against a reward model of its own: the command `reward` with seed 1 + seed and 32,000 comparisons of the
                shipped start, made under runs/ when it is missing
    more        the control: against the shipped model trained on with PAIRS comparisons of two completions of the start
    again       as `more`, but half of the comparisons have a completion that `first` wrote on its way on one side, a
                quarter of them after each of FOUND steps, and one of the start on the other

What a step costs, measured side by side, since a shared machine is now faster and now slower:

    price       the five arms of the first group take their steps in turn; `step_seconds` is the median of PRICED steps each

`gold` and `proxy` are means over 1000 held-out prompts, one sample each, after the last step; `kl` is nats a completion
from the start, the mean of the last five steps. `reward_of_step`, `gold_of_step`, `kl_sequence_of_step`: means over the step's 128 samples, before its
update. `seconds_of_step` is the time that the process computed, one thread, from the first step on. `usual_accuracy` and
`mixed_accuracy` are the reward model's, averaged over the labels' noise: on 1000 held-out pairs of the start, and on 1000
pairs of a completion of the policy that `first` ended with and one of the start, held-out prompts both times. Seeds 0 to 4 were fixed beforehand and all are
recorded. PAIRS, FIT_STEPS and FIT_LR were tried on seed 100 alone; the other settings are those of ppo_rlhf.py.
"""

import copy
import random
import time
from dataclasses import replace
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path
from statistics import median
from typing import Any

from recording import SEEDS as SEEDS
from recording import record
from transformers import PreTrainedModel

from rlhf_minimal import ALGORITHMS, KL, Algorithm
from rlhf_minimal.cli import main
from rlhf_minimal.config import Config
from rlhf_minimal.fit import FitConfig
from rlhf_minimal.functional import advantages
from rlhf_minimal.lab.fast import fast
from rlhf_minimal.lab.reward_model_quality import evaluate_reward_model
from rlhf_minimal.lab.sampled_rows import label_pair, sample_pairs, write_completions
from rlhf_minimal.lab.train_pairs import train_pairwise
from rlhf_minimal.models import RewardModel, Vocabulary, load_reward_model
from rlhf_minimal.pairs import PAIRWISE
from rlhf_minimal.tasks import PairRow, get_task, model_reward, verify_all
from rlhf_minimal.tasks.base import Split
from rlhf_minimal.train import Recipe, roll_out, train_step
from rlhf_minimal.train_state import Learner
from rlhf_minimal.training import load_policy

STEPS, WITHOUT_STEPS, PROMPTS, GROUP, BETA = 30, 40, 32, 4, 0.05
FOUND = (10, 20, 30, 40)
PAIRS, FIT_STEPS, FIT_LR = 2000, 150, 1e-3
HELD_OUT, PRICED, LAST = 1000, 5, 5
KEPT = ("reward", "gold", "kl_sequence", "entropy")
TASK = get_task("reviews")

LEASH = (KL(BETA, "k1", place="reward"),)
PPO = replace(ALGORITHMS["ppo"], kl=LEASH)
ROWS: dict[str, Algorithm] = {
    "ppo": PPO,
    "ppo-wide": PPO,
    "no-critic": replace(PPO, advantage=advantages.returns_to_go),
    "grpo": replace(PPO, advantage=advantages.group_normalized, normalize=None),
    "rloo": replace(PPO, advantage=advantages.leave_one_out, normalize=None),
}
WITHOUT = ("first", "fresh", "more", "again")
ARMS = (*ROWS, *WITHOUT, "price")
SHIPPED = files("rlhf_minimal") / "assets"


def start() -> tuple[PreTrainedModel, Vocabulary]:
    """The shipped fine-tuned policy."""
    with as_file(SHIPPED / "reviews") as folder:
        policy, vocabulary = load_policy(folder)
    assert isinstance(vocabulary, Vocabulary)
    return policy, vocabulary


def first_reward_model() -> RewardModel:
    """The shipped reward model."""
    with as_file(SHIPPED / "reviews-reward") as folder:
        return load_reward_model(folder)


def fresh_reward_model(seed: int) -> RewardModel:
    """One made as the shipped one was, from other comparisons: kept under runs/, made where it is missing."""
    folder = Path(__file__).parents[2] / "runs" / f"fresh-reward-{seed}"
    if not (folder / "evaluation.json").exists():
        with as_file(SHIPPED / "reviews") as policy:
            argv = ["reward", "--task", TASK.name, "--start", str(policy)]
            argv += ["--seed", str(1 + seed), "--out", str(folder), "--overwrite"]
            if main(argv) != 0:
                raise RuntimeError(f"no reward model was made: {argv}")
    return load_reward_model(folder)


def begin(
    arm: str, seed: int, reward_model: RewardModel, *, steps: int = STEPS
) -> tuple[Learner, Recipe]:
    """A learner at the start, and what it trains."""
    row = ROWS.get(arm, replace(ALGORITHMS["ppo"], kl=()))
    prompts, group = (PROMPTS * GROUP, 1) if arm == "ppo-wide" else (PROMPTS, GROUP)
    config = Config(
        steps=steps,
        prompts=prompts,
        group_size=group,
        epochs=2,
        minibatches=4,
        lr=4e-4,
        seed=seed,
        **({"value_lr": 2e-3} if "values" in row.needs else {}),
    )
    policy, vocabulary = start()
    recipe = fast(Recipe(row, TASK, config, model_reward(reward_model)))
    return Learner.begin(policy, vocabulary, row, config), recipe


def measure(learner: Learner, recipe: Recipe) -> dict[str, float]:
    """Gold score and proxy on held-out prompts, one sample each."""
    problems = TASK.problems("held_out", HELD_OUT, seed="rlhf-runs")
    found = roll_out(
        learner.policy, learner.vocabulary, problems, recipe, seed="rlhf-runs"
    )
    return {
        "gold": found.correct.mean().item(),
        "proxy": found.rewards.mean().item(),
    }


def learn(
    arm: str,
    seed: int,
    reward_model: RewardModel,
    *,
    steps: int = STEPS,
    keep: list[PreTrainedModel] | None = None,
) -> tuple[Learner, Recipe, dict[str, Any]]:
    """One RL run: the learner at its end, and what was seen at each step.

    A list that is given as `keep` gets copies of the policy after each of FOUND steps.
    """
    learner, recipe = begin(arm, seed, reward_model, steps=steps)
    began, seen = time.process_time(), []
    for step in range(1, steps + 1):
        metrics = train_step(learner, recipe)
        seen.append({**metrics, "seconds": time.process_time() - began})
        if keep is not None and step in FOUND:
            keep.append(copy.deepcopy(learner.policy).eval())
    by_step = {
        f"{name}_of_step": [round(one[name], 4) for one in seen]
        for name in (*KEPT, "seconds")
    }
    return learner, recipe, by_step


def mixed_pairs(
    one: PreTrainedModel,
    other: PreTrainedModel,
    vocabulary: Vocabulary,
    n: int,
    seed: str,
    *,
    split: Split = "train",
) -> list[PairRow]:
    """Comparisons of a completion of one policy with one of another, labelled as `sample_pairs` labels."""
    problems = TASK.problems(split, n, seed=f"mixed/{seed}")
    prompts = [problem.prompt for problem in problems]
    sides = [
        write_completions(
            policy,
            vocabulary,
            prompts,
            group_size=1,
            max_new_tokens=TASK.max_new_tokens,
            seed=f"mixed/{seed}/{name}",
        )
        for name, policy in (("one", one), ("other", other))
    ]
    scores = [verify_all(TASK, problems, texts).values for texts in sides]
    rng = random.Random(seed)
    rows = zip(prompts, *sides, *scores, strict=True)
    return [label_pair(p, (a, b), (x, y), rng) for p, a, b, x, y in rows if a != b]


def trained_on(
    seed: int, found: list[PreTrainedModel], *, steps: int = FIT_STEPS
) -> tuple[RewardModel, list[float]]:
    """The shipped reward model after PAIRS more comparisons, normalised on the start's completions; and its losses.

    Args:
        seed: Of the pairs, and of their order.
        found: Policies whose completions stand against the start's, in half of the comparisons; empty for none.
        steps: After how many of FIT_STEPS to stop.
    """
    policy, vocabulary = start()
    rows = sample_pairs(policy, vocabulary, TASK, PAIRS, seed=1000 + seed)
    answers = [row.chosen for row in rows] + [row.rejected for row in rows]
    asked = [row.prompt for row in rows] * 2
    new: list[PairRow] = []
    for number, one in enumerate(found):
        n = PAIRS // 2 // len(found)
        new += mixed_pairs(one, policy, vocabulary, n, f"{seed}/{number}")
    rows = rows[: PAIRS - len(new)] + new
    model = first_reward_model()
    config = FitConfig(steps=FIT_STEPS, batch_size=64, lr=FIT_LR, warm_up=20, seed=seed)
    history = train_pairwise(
        PAIRWISE["bradley_terry"],
        model,
        vocabulary,
        rows,
        config,
        on_step=lambda metrics: metrics["step"] < steps,
    )
    model.model.eval()
    model.normalize(asked, answers)
    return model, [metrics["loss"] for metrics in history]


@cache
def without_penalty(
    arm: str, seed: int, *, steps: int = WITHOUT_STEPS, fit_steps: int = FIT_STEPS
) -> tuple[Learner, Recipe, RewardModel, list[PreTrainedModel], dict[str, Any]]:
    """A run of the second group: its learner, recipe and reward model, policies on its way, and what is kept of it."""
    model = fresh_reward_model(seed) if arm == "fresh" else first_reward_model()
    kept: dict[str, Any] = {}
    if arm in ("more", "again"):
        first = without_penalty("first", seed, steps=steps)[3]
        model, losses = trained_on(
            seed, first if arm == "again" else [], steps=fit_steps
        )
        kept = {"loss_before": round(losses[0], 4), "loss_after": round(losses[-1], 4)}
    found: list[PreTrainedModel] = []
    learner, recipe, by_step = learn(arm, seed, model, steps=steps, keep=found)
    learner.policy.eval()
    return learner, recipe, model, found, {**kept, **by_step}


def ranks(model: RewardModel, found: PreTrainedModel, seed: int) -> dict[str, float]:
    """Accuracy over the labels' noise: on the start's pairs, and on pairs of the found policy and the start."""
    policy, vocabulary = start()
    usual = sample_pairs(policy, vocabulary, TASK, HELD_OUT, split="held_out", seed=7)
    mixed = mixed_pairs(
        found, policy, vocabulary, HELD_OUT, f"ranks/{seed}", split="held_out"
    )
    kept: dict[str, float] = {}
    for name, rows in (("usual", usual), ("mixed", mixed)):
        quality = evaluate_reward_model(model, rows)
        assert quality.expected_accuracy is not None
        assert quality.bayes is not None
        kept |= {f"{name}_accuracy": quality.expected_accuracy}
        kept |= {f"{name}_bayes": quality.bayes}
    return {name: round(value, 4) for name, value in kept.items()}


def price(seed: int) -> dict[str, float]:
    """Median seconds of a step of each arm of the first group, which take their steps in turn."""
    learners = {arm: begin(arm, seed, first_reward_model()) for arm in ROWS}
    seconds: dict[str, list[float]] = {arm: [] for arm in ROWS}
    for _ in range(1 + PRICED):
        for arm, (learner, recipe) in learners.items():
            began = time.process_time()
            train_step(learner, recipe)
            seconds[arm].append(time.process_time() - began)
    return {arm: round(median(each[1:]), 4) for arm, each in seconds.items()}


def run(arm: str, seed: int) -> dict[str, Any]:
    """One run, as it is recorded."""
    began = time.process_time()
    if arm == "price":
        return {"step_seconds": price(seed)}
    if arm in ROWS:
        learner, recipe, kept = learn(arm, seed, first_reward_model())
    else:
        numbers = {
            "steps": WITHOUT_STEPS
        }  # named alike: a run of `first` is kept by its arguments
        hacked = without_penalty("first", seed, **numbers)[3][-1]
        learner, recipe, model, _, kept = without_penalty(arm, seed, **numbers)
        kept = ranks(model, hacked, seed) | kept
    after = {name: round(x, 4) for name, x in measure(learner, recipe).items()}
    seconds = round(time.process_time() - began, 1)
    kl = round(sum(kept["kl_sequence_of_step"][-LAST:]) / LAST, 4)
    return {**after, "kl": kl, "seconds": seconds, **kept}


if __name__ == "__main__":
    record(
        __file__,
        ARMS,
        run,
        steps=STEPS,
        without_steps=WITHOUT_STEPS,
        completions=PROMPTS * GROUP,
        beta=BETA,
        pairs=PAIRS,
        fit_lr=FIT_LR,
    )
