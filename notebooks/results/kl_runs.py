"""The recorded runs of the chapter on the KL penalty: one cell of the table, five entries, three situations.

    python notebooks/results/kl_runs.py              runs what is not yet recorded (95 runs, some 10 minutes of one core)
    python notebooks/results/kl_runs.py learn-none   only the arms named

Writes notebooks/results/kl-runs.json, a line a run. Every run takes 30 steps of 128 completions (16 prompts of 8), one
update a step, with a centred advantage, a token ratio, the clip and a constant divisor. An arm is a situation, an entry
of the column "kl" and its coefficient, and arms of one situation differ in that cell alone:

    none        no KL term
    k1-reward   k1 in the reward, before the baseline
    k1-loss     k1 in the loss
    k2-loss     k2 in the loss
    k3-loss     k3 in the loss

Situations. "learn": the shipped start learns to add; the reference is the start. "coin": the same, but a coin decides
each reward, so there is nothing to learn, and whatever moves the policy is noise. "back": every reward is 0, and the
policy begins as the start with noise on its weights: only the KL term has a gradient.

`kl` is KL(policy || start) in nats a completion: at each position of sampled completions the exact divergence of the
next token over the whole vocabulary, summed over the completion; the mean over the step's samples. `far` is the same
after the last step, on 1024 fresh completions. `sampled` and `greedy` are shares of right answers on 1000 held-out
problems. Seeds 0 to 4 were fixed beforehand and all are recorded. Coefficients, learning rate and noise were chosen on
seed 100 alone.
"""

import time
from dataclasses import replace
from importlib.resources import as_file, files
from typing import Any

import torch
from recording import SEEDS as SEEDS
from recording import record
from torch import Generator, Tensor

from rlhf_minimal import ALGORITHMS, KL, Algorithm
from rlhf_minimal.config import Config
from rlhf_minimal.evaluate import evaluate
from rlhf_minimal.lab.fast import fast
from rlhf_minimal.models import policy_logits
from rlhf_minimal.sample import Rollout
from rlhf_minimal.tasks import get_task
from rlhf_minimal.train import Recipe, collect, prepare_batch, update
from rlhf_minimal.train_state import Learner
from rlhf_minimal.training import load_policy

STEPS, PROMPTS, GROUP = 30, 16, 8
LR, NOISE = 8e-4, 0.03
KEPT = ("reward", "kl", "grad_norm")  # by step

PLACES = {
    "k1-reward": ("k1", "reward"),
    "k1-loss": ("k1", "loss"),
    "k2-loss": ("k2", "loss"),
    "k3-loss": ("k3", "loss"),
}
# situation: the coefficients that its KL terms get
SITUATIONS = {"learn": (0.1, 0.4), "coin": (0.1,), "back": (0.1,)}


def _arms() -> dict[str, tuple[str, tuple[KL, ...]]]:
    arms: dict[str, tuple[str, tuple[KL, ...]]] = {}
    for situation, coefficients in SITUATIONS.items():
        arms[f"{situation}-none"] = (situation, ())
        for beta in coefficients:
            for name, (estimator, place) in PLACES.items():
                term = KL(beta, estimator, place=place)
                arms[f"{situation}-{name}-{beta:g}"] = (situation, (term,))
    return arms


ARMS = _arms()


def algorithm(arm: str) -> Algorithm:
    """What an arm trains with: Dr. GRPO with the arm's entry in the column "kl"."""
    return replace(ALGORITHMS["dr_grpo"], kl=ARMS[arm][1])


def begin(arm: str, seed: int) -> tuple[Learner, Recipe]:
    """A learner, at the shipped start or at some distance from it, and what it is trained with."""
    config = Config(steps=STEPS, seed=seed, prompts=PROMPTS, group_size=GROUP, lr=LR)
    recipe = fast(Recipe(algorithm(arm), get_task("addition"), config))
    with as_file(files("rlhf_minimal") / "assets" / "addition") as folder:
        policy, vocabulary = load_policy(folder)
    learner = Learner.begin(policy, vocabulary, recipe.algorithm, config)
    if ARMS[arm][0] == "back":
        generator = Generator().manual_seed(seed)
        with torch.no_grad():
            for weight in learner.policy.parameters():
                weight += NOISE * torch.randn(weight.shape, generator=generator)
    return learner, recipe


def rewards_of(situation: str, verified: Tensor, seed: int, step: int) -> Tensor:
    """The rewards of a step's completions: the verifier's, a coin's, or all 0."""
    if situation == "learn":
        return verified
    if situation == "back":
        return torch.zeros_like(verified)
    generator = Generator().manual_seed(1_000 * (seed + 1) + step)
    return torch.randint(2, verified.shape, generator=generator).to(verified.dtype)


@torch.no_grad()
def distance(learner: Learner, groups: Rollout) -> float:
    """KL(policy || start) in nats a completion, exact at each position of these completions."""
    assert learner.start is not None
    given = (groups.prompts, groups.prompt_mask, groups.completions)
    policy, start = (
        policy_logits(model, *given).log_softmax(-1)
        for model in (learner.policy, learner.start)
    )
    by_token = (policy.exp() * (policy - start)).sum(-1)  # [B, T]
    return float(torch.where(groups.mask != 0, by_token, 0.0).sum(1).mean())


def train(
    arm: str, seed: int, steps: int = STEPS
) -> tuple[Learner, Recipe, dict[str, list[float]]]:
    """One run: the learner at its end, and what was seen at each step."""
    learner, recipe = begin(arm, seed)
    seen: dict[str, list[float]] = {name: [] for name in KEPT}
    for step in range(1, steps + 1):
        groups, _ = collect(learner.policy, learner.vocabulary, recipe, step)
        assert groups is not None
        seen["reward"].append(round(groups.rewards.mean().item(), 4))
        seen["kl"].append(round(distance(learner, groups), 4))
        rewards = rewards_of(ARMS[arm][0], groups.rewards, seed, step)
        groups = replace(groups, rewards=rewards)
        batch, _ = prepare_batch(learner, recipe, groups, step)
        metrics = update(learner, recipe, groups, batch, step)
        learner.step = step
        seen["grad_norm"].append(round(metrics["grad_norm"], 4))
    return learner, recipe, seen


def run(arm: str, seed: int) -> dict[str, Any]:
    """One run, as it is recorded."""
    began = time.perf_counter()
    learner, recipe, seen = train(arm, seed)
    fresh = replace(recipe, config=replace(recipe.config, prompts=1024 // GROUP))
    groups, _ = collect(learner.policy, learner.vocabulary, fresh, STEPS + 1)
    assert groups is not None
    after = evaluate(learner.policy, learner.vocabulary, recipe)
    return {
        "sampled": after.sampled.share,
        "greedy": after.greedy.share,
        "far": round(distance(learner, groups), 4),
        "seconds": round(time.perf_counter() - began, 1),
        **seen,
    }


if __name__ == "__main__":
    record(
        __file__,
        ARMS,
        run,
        steps=STEPS,
        samples_per_step=PROMPTS * GROUP,
        held_out_problems=1000,
        lr=LR,
        noise=NOISE,
    )
