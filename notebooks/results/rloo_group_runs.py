"""The recorded runs of RLOO with groups of different sizes: who should get more samples, at equal cost?

    python notebooks/results/rloo_group_runs.py            runs what is not yet recorded (20 runs, three minutes)
    python notebooks/results/rloo_group_runs.py hard       only the arms named

Writes notebooks/results/rloo-group-runs.json, a line a run. Every run takes 30 steps of 256 completions for 32 prompts
of addition, and every prompt has the same weight in the loss, however many completions it has. An
arm decides how the 256 completions are shared out. What it knows of a prompt is its number of carries, 0 to 3, and the
share of right completions among all earlier ones with that number (running means, the first step knows nothing and
shares out equally). So the sizes do not depend on the rewards of the step, and the gradient stays unbiased.

`equal`: eight each. `neyman`: in proportion to the root of p (1 - p), the standard deviation of a reward. `hard`: in
proportion to 1 - p. `easy`: in proportion to p, a control that prefers some prompts and not the hard ones. Everybody
gets at least two, since leave-one-out needs them.

Seeds 0 to 4 were fixed beforehand and all are recorded; seed 100 was used before that, to see how long a run takes.
"""

import time
import zlib
from dataclasses import replace
from importlib.resources import as_file, files
from typing import Any

import torch
from recording import SEEDS as SEEDS
from recording import record
from torch import Tensor

from rlhf_minimal import ALGORITHMS, Batch, policy_loss
from rlhf_minimal.tasks import get_task
from rlhf_minimal.training import Config, Learner, Recipe, evaluate, load_policy
from rlhf_minimal.training.rollout import roll_out

STEPS, PROMPTS, SAMPLES, LEAST, LR = 30, 32, 256, 2, 1e-3
DECAY = 0.8  # of the running share of right completions
RLOO = replace(ALGORITHMS["rloo"], kl=())
KEPT = ("accuracy", "norm", "spread", "equal_groups", "most")

# arm: what a prompt's size is in proportion to, given the share p of right completions of its kind, [P]
ARMS = {
    "equal": torch.ones_like,
    "neyman": lambda p: (p * (1 - p)).sqrt(),
    "hard": lambda p: 1 - p,
    "easy": lambda p: p,
}


def carries(prompt: str) -> int:
    """How often a column of the sum is above 9: 0 to 3."""
    carry = count = 0
    for x, y in zip(*(reversed(part) for part in prompt[:-1].split("+")), strict=True):
        carry = int(int(x) + int(y) + carry > 9)
        count += carry
    return count


def sizes(share: Tensor, total: int = SAMPLES, least: int = LEAST) -> Tensor:
    """[P] numbers above 0 to [P] whole sizes: `least` each, the rest in proportion, `total` together."""
    spare = total - least * len(share)
    # What is in proportion over all, where `least` is not more than that; the rest is shared out again.
    exact = share / share.sum() * total
    above = (exact - least).clamp(min=0.0)
    above = above / above.sum() * spare
    whole = above.floor()
    missing = int(round(spare - whole.sum().item()))
    whole[(above - whole).argsort(descending=True, stable=True)[:missing]] += 1
    return (whole + least).long()


def leave_one_out(rewards: Tensor, prompt: Tensor, size: Tensor) -> Tensor:
    """[B] rewards, [B] the prompt of each, [P] sizes -> [B]: minus the mean of its prompt's others."""
    total = torch.zeros(len(size)).index_add_(0, prompt, rewards)
    n = size[prompt]
    return rewards - (total[prompt] - rewards) / (n - 1)


def begin(seed: int, *, steps: int = STEPS) -> tuple[Learner, Recipe]:
    """A learner at the shipped start, and what it is trained with."""
    config = Config(
        steps=steps, seed=seed, prompts=SAMPLES, group_size=1, lr=LR, grad_clip=1e9
    )
    what = Recipe(RLOO, get_task("addition"), config)
    with as_file(files("rlhf_minimal") / "assets" / "addition") as folder:
        policy, vocabulary = load_policy(folder)
    return Learner.begin(policy, vocabulary, RLOO, config), what


def learn(learner: Learner, what: Recipe, arm: str) -> dict[str, list[float]]:
    """Trains, and returns what is kept, by step."""
    kept: dict[str, list[float]] = {name: [] for name in KEPT}
    known = torch.full((4,), 0.5)  # by number of carries
    for step in range(what.config.steps):
        seed = f"{what.config.seed}/{step}"
        problems = what.task.problems("train", PROMPTS, seed=seed)
        kind = torch.tensor([carries(one.prompt) for one in problems])  # [P]
        size = sizes(ARMS[arm](known[kind].clamp(0.02, 0.98)))  # [P]
        prompt = torch.arange(PROMPTS).repeat_interleave(size)  # [B]
        asked = [problems[i] for i in prompt.tolist()]
        torch.manual_seed(zlib.crc32(seed.encode()))
        rollout = roll_out(learner.policy, learner.vocabulary, asked, what, seed=seed)
        A = leave_one_out(rollout.correct, prompt, size)
        weight = len(asked) / (PROMPTS * size[prompt])  # every prompt counts alike
        rows = torch.arange(len(asked))
        logp = what.reader.read(learner.policy, rollout, rows, what.config).logp
        batch = Batch(
            logp,
            rollout.logp,
            rollout.mask,
            rollout.correct,
            1,
            advantages=(A * weight)[:, None] * rollout.mask,
        )
        policy_loss(RLOO, batch).backward()
        norm = torch.nn.utils.clip_grad_norm_(learner.policy.parameters(), 1e9)
        learner.optimizer.step()
        learner.optimizer.zero_grad()
        ones = torch.zeros(PROMPTS).index_add_(0, prompt, rollout.correct)
        rate = ones / size  # [P]
        for k in range(4):
            if (of := kind == k).any():
                first = step == 0
                known[k] += (1.0 if first else 1 - DECAY) * (rate[of].mean() - known[k])
        equal = ((ones == 0) | (ones == size)).float().mean()
        values = (rate.mean(), norm, rate.std(), equal, size.max())
        for name, value in zip(KEPT, values, strict=True):
            kept[name].append(round(float(value), 4))
    return kept


def run(arm: str, seed: int) -> dict[str, Any]:
    """One run, as it is recorded."""
    began = time.perf_counter()
    learner, what = begin(seed)
    kept = learn(learner, what, arm)
    after = evaluate(learner.policy, learner.vocabulary, what)
    return {
        "sampled": after.sampled.share,
        "greedy": after.greedy.share,
        "seconds": round(time.perf_counter() - began, 1),
        **kept,
    }


if __name__ == "__main__":
    record(
        __file__,
        ARMS,
        run,
        steps=STEPS,
        samples_per_step=SAMPLES,
        held_out_problems=1000,
    )
