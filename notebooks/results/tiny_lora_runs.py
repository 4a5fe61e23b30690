"""The recorded runs of TinyLoRA: a reward against answers to imitate, at equal numbers of trained weights.

    python notebooks/results/tiny_lora_runs.py              runs what is not yet recorded (85 runs, after a search of about as many)
    python notebooks/results/tiny_lora_runs.py reward-13    only the arms named

Writes notebooks/results/tiny-lora-runs.json, a line a run. Every run takes 40 steps of 256 completions from the shipped
start of addition. An arm is what it learns from and how many numbers are trained.

    reward    Dr. GRPO: 16 questions a step, 16 completions of each, and 1 for each that is right
    coin      the same at the same learning rate, but a coin that does not look at the completion decides
    answers   imitation of the right answers to the same 16 questions (16 times each, which changes no mean)
    more      imitation of the right answers to 256 questions a step, among them none twice as a rule
    noisy     the same 256, with three digits behind each answer that are drawn at random

    13, 128, 1024   numbers that TinyLoRA trains: one vector for all 14 matrices (arXiv 2602.04118)
    full            all weights

A completion is right if it begins with the sum; what comes after that is not read. So the digits of `noisy` are neither
right nor wrong: they stand for all that a demonstration shows and a reward does not ask for.

The rank is 2 for 13 numbers, as in the paper. With 14 matrices and rank r there is room for 14 r^2 numbers, so it is 4
for 128 and 9 for 1024, the smallest with room for them all.

**Learning rates.** Every arm but the coin has its own, the best of five on seed 100 by sampled answers to held-out
questions, another draw than that of the evaluation. Where the best was the smallest or the largest of the five, a
further one beyond it was tried, until it was neither. The line of seed 100 holds that search. Seeds 0 to 4 were fixed
beforehand and all are recorded.
"""

import dataclasses
import random
import time
from functools import cache
from importlib.resources import as_file, files
from typing import Any

import torch
from recording import SEEDS as SEEDS
from recording import Record, record, record_of
from torch import Tensor, nn
from torch.nn.utils import parametrize
from transformers import PreTrainedModel

from rlhf_minimal import ALGORITHMS
from rlhf_minimal.config import Config
from rlhf_minimal.evaluate import evaluate
from rlhf_minimal.fit import completion_loss
from rlhf_minimal.lab.fast import fast
from rlhf_minimal.tasks import CompletionRow, Problem, get_task, random_reward
from rlhf_minimal.train import Recipe, step_optimizer
from rlhf_minimal.train import train as train_on
from rlhf_minimal.train_state import Learner
from rlhf_minimal.training import load_policy

STEPS, PROMPTS, GROUP_SIZE = 40, 16, 16
CHOICE = 100  # the seed on which learning rates are chosen
RANKS = {13: 2, 128: 4, 1024: 9}
LRS = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1)  # of TinyLoRA
FULL_LRS = (2e-4, 4e-4, 8e-4, 1.6e-3, 3.2e-3)  # of all weights
BEYOND = 3  # the step to a further rate, where the best is the smallest or the largest
WAYS = ("reward", "answers", "more", "noisy")
SIZES = (*map(str, RANKS), "full")
CONTROL = "coin-128"
ARMS = (*(f"{way}-{size}" for way in WAYS for size in SIZES), CONTROL)


class TinyLoRA(nn.Module):
    """A matrix W as W + U S (sum_i v_i P_i) V^T; U, S, V and the P_i are fixed, and v is trained.

    Args:
        weight: W, [out, in].
        v: The trained numbers, [u]; other matrices may share them.
        rank: Of the correction, r.
        draws: Where the entries of the P_i come from, normal with variance 1 / u.
    """

    left: Tensor
    right: Tensor
    projections: Tensor

    def __init__(
        self, weight: Tensor, v: nn.Parameter, rank: int, draws: torch.Generator
    ):
        super().__init__()
        U, S, Vh = torch.linalg.svd(weight, full_matrices=False)
        U, S, Vh = U[:, :rank], S[:rank], Vh[:rank]
        # A singular vector has no sign of its own: its largest entry is made positive.
        sign = U.gather(0, U.abs().argmax(0, keepdim=True)).sign()  # [1, r]
        P = torch.randn(len(v), rank, rank, generator=draws) / len(v) ** 0.5
        self.v = v
        self.register_buffer("left", U * sign * S)
        self.register_buffer("right", Vh * sign.T)
        self.register_buffer("projections", P)

    def forward(self, weight: Tensor) -> Tensor:
        """The corrected matrix."""
        between = torch.einsum("u,uab->ab", self.v, self.projections)  # [r, r]
        return weight + self.left @ between @ self.right


def add_tiny_lora(
    policy: PreTrainedModel, numbers: int, rank: int, seed: int = 0
) -> nn.Parameter:
    """Freezes a model and corrects every linear layer but the head; one vector for all, which is returned."""
    policy.requires_grad_(False)
    v = nn.Parameter(torch.zeros(numbers))
    draws = torch.Generator().manual_seed(seed)
    head = policy.get_output_embeddings()
    for layer in [m for m in policy.modules() if isinstance(m, nn.Linear)]:
        if layer is not head:
            corrected = TinyLoRA(layer.weight.detach(), v, rank, draws)
            parametrize.register_parametrization(layer, "weight", corrected)
    return v


def begins(completion: str, problem: Problem) -> float:
    """1 if the completion begins with the answer, whatever comes after it."""
    return float(completion.startswith(problem.answer))


def begin(
    arm: str, seed: int, lr: float, *, steps: int = STEPS
) -> tuple[Learner, Recipe]:
    """A learner at the shipped start, and what it is trained with."""
    way, _, size = arm.partition("-")
    task = dataclasses.replace(get_task("addition"), verify=begins)
    config = Config(
        steps=steps,
        prompts=PROMPTS,
        group_size=GROUP_SIZE,
        seed=seed,
        lr=lr,
        watch_kl="off",
    )
    reward = random_reward(seed) if way == "coin" else None
    recipe = fast(Recipe(ALGORITHMS["dr_grpo"], task, config, reward=reward))
    with as_file(files("rlhf_minimal") / "assets" / "addition") as folder:
        policy, vocabulary = load_policy(folder)
    if size.isdigit():
        add_tiny_lora(policy, int(size), RANKS[int(size)])
    return Learner.begin(policy, vocabulary, recipe.algorithm, config), recipe


def demonstrations(way: str, recipe: Recipe, step: int) -> list[CompletionRow]:
    """What is imitated in a step."""
    config = recipe.config
    count = PROMPTS if way == "answers" else PROMPTS * GROUP_SIZE
    problems = recipe.task.problems("train", count, seed=f"{config.seed}/{step}/0")
    draws = random.Random(f"noise/{config.seed}/{step}")
    rows = []
    for problem in problems:
        noise = draws.choices("0123456789", k=3) if way == "noisy" else ()
        rows.append(CompletionRow(problem.prompt, problem.answer + "".join(noise)))
    return rows


def train(arm: str, learner: Learner, recipe: Recipe) -> dict[str, list[float]]:
    """Trains in place; the reward of every step, or its loss. The optimiser is the same for both."""
    way = arm.partition("-")[0]
    if way in ("reward", "coin"):
        history = train_on(learner, recipe)
        return {"right": [round(step["accuracy"], 4) for step in history]}
    losses = []
    for step in range(1, recipe.config.steps + 1):
        rows = demonstrations(way, recipe, step)
        loss = completion_loss(learner.policy, learner.vocabulary, rows)
        loss.backward()
        step_optimizer(learner.optimizer, recipe.config, step)
        losses.append(round(loss.item(), 4))
    return {"loss": losses}


def search(arm: str, found: dict[str, float] | None = None) -> dict[str, float]:
    """Learning rate -> share of sampled answers that are right, on questions of their own.

    Args:
        arm: Which one.
        found: What is known already.
    """
    lrs = FULL_LRS if arm.endswith("full") else LRS
    found = {f"{lr:g}": -1.0 for lr in lrs} | (found or {})
    while True:
        for lr in [lr for lr, share in found.items() if share < 0]:
            learner, recipe = begin(arm, CHOICE, float(lr))
            train(arm, learner, recipe)
            after = evaluate(learner.policy, learner.vocabulary, recipe, seed="choose")
            found[lr] = after.sampled.share
        found = dict(sorted(found.items(), key=lambda one: float(one[0])))
        first, *_, last = found
        if f"{best(found):g}" == first:
            found[f"{float(first) / BEYOND:g}"] = -1.0
        elif f"{best(found):g}" == last:
            found[f"{float(last) * BEYOND:g}"] = -1.0
        else:
            return found


@cache
def searched(arm: str) -> dict[str, float]:
    """The search of an arm, from the record if it is there."""
    lines = Record(record_of(__file__), __file__).runs()
    found = [x["search"] for x in lines if (x["arm"], x["seed"]) == (arm, CHOICE)]
    return found[0] if found else search(arm)


def best(found: dict[str, float]) -> float:
    """The learning rate that a search has chosen."""
    return float(max(found, key=lambda lr: found[lr]))


def measured(learner: Learner, recipe: Recipe) -> dict[str, float]:
    """Shares of 1000 held-out questions that are answered rightly."""
    found = evaluate(learner.policy, learner.vocabulary, recipe)
    return {"sampled": found.sampled.share, "greedy": found.greedy.share}


def run(arm: str, seed: int) -> dict[str, Any]:
    """One run, as it is recorded; of the seed of the choice, what was chosen from."""
    if seed == CHOICE:
        return {"search": searched(arm)}
    lr = best(searched(arm.replace("coin", "reward")))
    began = time.process_time()
    learner, recipe = begin(arm, seed, lr)
    trained = sum(w.numel() for w in learner.policy.parameters() if w.requires_grad)
    series = train(arm, learner, recipe)
    return {
        "trained": trained,
        "lr": lr,
        **measured(learner, recipe),
        "cpu_seconds": round(time.process_time() - began, 1),
        **series,
    }


if __name__ == "__main__":
    record(
        __file__,
        ARMS,
        run,
        seeds=(*SEEDS, CHOICE),
        fewer={CONTROL: len(SEEDS)},
        steps=STEPS,
        completions_a_step=PROMPTS * GROUP_SIZE,
        held_out_problems=1000,
        ranks=RANKS,
        start=measured(*begin("reward-full", 0, 1.0)),
    )
