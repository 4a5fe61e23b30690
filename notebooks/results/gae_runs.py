"""The recorded runs of the chapter on GAE: lambda, the critic as it is born, and a critic that was taught beforehand.

    python notebooks/results/gae_runs.py             runs what is not yet recorded (35 runs, ten minutes)
    python notebooks/results/gae_runs.py lambda-0    only the arms named

Writes notebooks/results/gae-runs.json, a line a run. Every run takes 50 steps of 256 completions from the shipped
start, with the row `ppo`; an arm changes lambda, or teaches the critic first, or takes the critic away. Seeds 0 to 4
were fixed beforehand and all are recorded. Tried on seed 100 before that, and fixed then: the number of steps, and 100
steps of teaching (20 left the critic at an explained variance of .12, 100 at .48, 300 at .58).

Teaching is VC-PPO's value pretraining (arXiv 2503.01491): the policy stands still, the critic alone is trained, on the
rewards that came (lambda 1). It costs 100 steps of sampling that the other arms do not have.

`explained_variance` in the record is measured against the critic's own targets, which at lambda 0 are mostly its own
opinions. `outcome_variance` is measured against what really came after each token, on 512 completions that no
update has seen, after the steps in `LOOKS`; `within_prompt` is the same with the mean of a prompt's completions at each
position taken out of values and rewards, since a critic that knows which prompts are hard need not know anything else.
"""

import time
from dataclasses import replace
from functools import partial
from importlib.resources import as_file, files
from typing import Any

import torch
from recording import SEEDS as SEEDS
from recording import record
from torch import Tensor

from rlhf_minimal import ALGORITHMS, Algorithm, Batch
from rlhf_minimal.config import Config
from rlhf_minimal.evaluate import evaluate
from rlhf_minimal.functional import advantages
from rlhf_minimal.lab.fast import fast
from rlhf_minimal.metrics import Metrics, explained_variance
from rlhf_minimal.models import critic_values
from rlhf_minimal.objective import value_loss
from rlhf_minimal.sample import Rollout
from rlhf_minimal.tasks import get_task
from rlhf_minimal.train import Recipe, prepare_batch, roll_out, train, update
from rlhf_minimal.train_state import Learner
from rlhf_minimal.training import load_policy

STEPS, PROMPTS, GROUP_SIZE, LESSONS = 50, 16, 16, 100
LOOKS = (0, 5, 10, 20, 30, 40, 50)
KEPT = ("reward", "kl", "entropy", "explained_variance")


def ppo(lam: float) -> Algorithm:
    """The row with another lambda."""
    return replace(
        ALGORITHMS["ppo"], advantage=partial(advantages.gae, gamma=1.0, lam=lam)
    )


# arm: (algorithm, steps of teaching the critic beforehand)
ARMS: dict[str, tuple[Algorithm, int]] = {
    "lambda-0.95": (
        ppo(0.95),
        0,
    ),  # the row as it stands: what the others are compared with
    "lambda-0": (ppo(0.0), 0),
    "lambda-0.5": (ppo(0.5), 0),
    "lambda-1": (ppo(1.0), 0),
    "taught-0": (ppo(0.0), LESSONS),
    "taught-0.95": (ppo(0.95), LESSONS),
    "no-critic": (replace(ALGORITHMS["ppo"], advantage=advantages.returns_to_go), 0),
}


def begin(arm: str, seed: int, *, steps: int = STEPS) -> tuple[Learner, Recipe]:
    """A learner at the shipped start, and what it trains; the critic is not taught yet."""
    algorithm, _ = ARMS[arm]
    config = Config(steps=steps, seed=seed, prompts=PROMPTS, group_size=GROUP_SIZE)
    with as_file(files("rlhf_minimal") / "assets" / "addition") as folder:
        policy, vocabulary = load_policy(folder)
    return Learner.begin(policy, vocabulary, algorithm, config), fast(
        Recipe(algorithm, get_task("addition"), config)
    )


def draw(
    learner: Learner, recipe: Recipe, seed: str, *, prompts: int = PROMPTS
) -> Rollout:
    """Completions of fresh problems, sampled as in training."""
    problems = recipe.task.problems("train", prompts, seed=seed)
    return roll_out(
        learner.policy,
        learner.vocabulary,
        problems,
        recipe,
        group_size=GROUP_SIZE,
        seed=seed,
    )


def look_at(learner: Learner, recipe: Recipe) -> tuple[float, float]:
    """Explained variance against the rewards that came (lambda 1 in every arm): of all, and within prompts."""
    honest = replace(recipe, algorithm=ppo(1.0))
    batch, _ = prepare_batch(
        learner,
        honest,
        draw(learner, honest, f"look/{learner.step}", prompts=2 * PROMPTS),
        learner.step,
    )
    assert batch.values is not None
    assert batch.returns is not None
    values, returns = (
        within(batch.values, batch.mask),
        within(batch.returns, batch.mask),
    )
    return explained_variance(
        batch.values, batch.returns, batch.mask
    ), explained_variance(values, returns, batch.mask)


def within(x: Tensor, mask: Tensor) -> Tensor:
    """[B, T] minus the mean of the group at the same position: what is left says nothing of which prompt it was."""
    groups, kept = (y.view(-1, GROUP_SIZE, y.shape[1]) for y in (x, mask))  # [P, G, T]
    mean = (groups * kept).sum(1, keepdim=True) / kept.sum(1, keepdim=True).clamp(min=1)
    return ((groups - mean) * kept).view(x.shape)


def by_own_targets(
    learner: Learner, recipe: Recipe, groups: Rollout, batch: Batch, step: int
) -> Metrics:
    """The loop's update; explained variance is recorded against the critic's own targets, beside `look_at`'s."""
    metrics = update(learner, recipe, groups, batch, step)
    if batch.values is None or batch.returns is None:
        return metrics
    own = explained_variance(batch.values, batch.returns, batch.mask)
    return metrics | {"explained_variance": own}


def teach(learner: Learner, recipe: Recipe, lessons: int) -> None:
    """The critic alone, on returns of lambda 1, while the policy stands still."""
    assert learner.critic is not None
    assert learner.critic_optimizer is not None
    honest = replace(recipe, algorithm=ppo(1.0))
    for lesson in range(lessons):
        groups = draw(learner, honest, f"lesson/{recipe.config.seed}/{lesson}")
        batch, _ = prepare_batch(learner, honest, groups, 0)
        assert batch.values is not None
        assert batch.returns is not None
        values = critic_values(
            learner.critic, groups.prompts, groups.prompt_mask, groups.completions
        )
        value_loss(values, batch.values, batch.returns, batch.mask).backward()
        torch.nn.utils.clip_grad_norm_(
            learner.critic.parameters(), recipe.config.grad_clip
        )
        learner.critic_optimizer.step()
        learner.critic_optimizer.zero_grad()


def run(arm: str, seed: int) -> dict[str, Any]:
    """One run, as it is recorded."""
    began = time.perf_counter()
    learner, recipe = begin(arm, seed)
    if ARMS[arm][1]:
        teach(learner, recipe, ARMS[arm][1])
    looks: dict[str, dict[str, float]] = {"outcome_variance": {}, "within_prompt": {}}

    def look(_: Metrics | None = None) -> None:
        if learner.critic is not None and learner.step in LOOKS:
            for name, seen in zip(looks, look_at(learner, recipe), strict=True):
                looks[name][str(learner.step)] = round(seen, 4)

    look()
    history = train(learner, recipe, look, update=by_own_targets)
    after = evaluate(learner.policy, learner.vocabulary, recipe)
    return {
        "sampled": after.sampled.share,
        "greedy": after.greedy.share,
        "seconds": round(time.perf_counter() - began, 1),
        **looks,
        **{
            name: [round(step[name], 4) for step in history]
            for name in KEPT
            if name in history[0]
        },
    }


if __name__ == "__main__":
    record(
        __file__,
        ARMS,
        run,
        steps=STEPS,
        samples_per_step=PROMPTS * GROUP_SIZE,
        held_out_problems=1000,
    )
