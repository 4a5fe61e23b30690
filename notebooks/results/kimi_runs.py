"""The recorded runs of the chapter on Kimi's squared loss: brakes of the policy, on fresh samples and on old ones.

    python notebooks/results/kimi_runs.py                runs what is not yet recorded (some six minutes of one core)
    python notebooks/results/kimi_runs.py 4-clip-0.0008  only the arms named

Writes notebooks/results/kimi-runs.json, a line a run. Every run takes 40 steps of 256 completions (16 prompts of 16)
from the shipped start, one update a step. An arm is a lag, a brake and a learning rate. With lag 4 the completions of
step t are written by the policy as it was four steps before, or by the start while there have not been so many; the old
log-probs are the sampler's. Every arm has the group's centred rewards and the sum over a completion's tokens, and each
brake gets the same learning rates. Brakes:

    none      no ratio, no gate, no KL: the control
    clip      the token ratio and PPO's clip, 0.2 and 0.28
    window    the same ratio and bounds, but a token outside them is left out whatever the sign of its advantage
    k25       the window and k2 of each token, coefficient 0.02: the cells of `kimi_k25`
    token     no ratio, no gate, and k2 of each token, coefficient 0.1: the cells of `dro`
    seq       no ratio, no gate, and k2 of the whole completion, tau 0.1: the row `kimi_k2`
    seq-1     the same with tau 1
    var-1     the same with tau 1, the log-ratio centred within its group: the variance of the residual is minimised

On fresh samples, lag 0, all brakes are one run in exact arithmetic, so there is one arm for a learning rate, and a test
holds their first updates together. Seeds 0 to 4 were fixed beforehand and all are recorded; steps, sizes and the
learning rates were chosen on seed 100 alone.
"""

import time
from dataclasses import replace
from functools import partial
from importlib.resources import as_file, files
from typing import Any

import torch
from lag_runs import Behind
from recording import SEEDS as SEEDS
from recording import record
from torch import Tensor

from rlhf_minimal import ALGORITHMS, KL, Algorithm, contrib
from rlhf_minimal.config import Config
from rlhf_minimal.evaluate import evaluate
from rlhf_minimal.functional import aggregation, gates, ratios
from rlhf_minimal.lab.fast import Fast, fast
from rlhf_minimal.objective import Totals
from rlhf_minimal.tasks import get_task
from rlhf_minimal.train import Recipe, collect, prepare_batch, update
from rlhf_minimal.train_state import Learner
from rlhf_minimal.training import load_policy

STEPS, PROMPTS, GROUP = 40, 16, 16
RATES = (8e-4, 2e-4)
KEPT = ("reward", "apart", "outside", "back", "grad_norm")  # by step
BOUNDS = {"low": 0.2, "high": 0.28}


def spread(log_ratio: Tensor, mask: Tensor, *, totals: Totals) -> Tensor:
    """Half the squared distance of each completion's log-ratio from its group's mean, averaged over completions."""
    groups = (log_ratio * mask).sum(-1).view(-1, GROUP)  # [P, G]
    return (groups - groups.mean(-1, keepdim=True)).square().sum() / (
        2 * totals.sequences
    )


NONE = replace(ALGORITHMS["kimi_k2"], kl=())
RATIO = replace(NONE, ratio=ratios.token)
WINDOW = replace(RATIO, gate=partial(contrib.gates.mask_weight, **BOUNDS))
assert NONE.aggregate is aggregation.sequence_sum

BRAKES: dict[str, Algorithm] = {
    "none": NONE,
    "clip": replace(RATIO, gate=partial(gates.clip, **BOUNDS)),
    "window": WINDOW,
    "k25": replace(WINDOW, kl=(KL(0.02, "k2", against="old"),)),
    "token": replace(NONE, kl=(KL(0.1, "k2", against="old"),)),
    "seq": ALGORITHMS["kimi_k2"],
    "seq-1": replace(NONE, kl=(KL(1.0, "k2", against="old", level="sequence"),)),
    "var-1": replace(NONE, kl=(KL(1.0, "k1", against="old", aggregate=spread),)),
}

# arm: its lag, its brake, its learning rate
ARMS: dict[str, tuple[int, str, float]] = {
    f"{lag}-{brake}-{lr:g}": (lag, brake, lr)
    for lr in RATES
    for lag, brakes in ((0, ["none"]), (4, list(BRAKES)))
    for brake in brakes
}


def begin(arm: str, seed: int) -> tuple[Learner, Recipe, Behind]:
    """A learner at the shipped start, what it is trained with, and its sampler."""
    lag, brake, lr = ARMS[arm]
    config = Config(
        steps=STEPS,
        seed=seed,
        lr=lr,
        prompts=PROMPTS,
        group_size=GROUP,
        watch_kl="off",
    )
    recipe = fast(Recipe(BRAKES[brake], get_task("addition"), config))
    with as_file(files("rlhf_minimal") / "assets" / "addition") as folder:
        policy, vocabulary = load_policy(folder)
    learner = Learner.begin(policy, vocabulary, recipe.algorithm, config)
    return learner, recipe, Behind(learner, lag)


def train(
    arm: str, seed: int, steps: int = STEPS
) -> tuple[Learner, Recipe, dict[str, list[float]]]:
    """One run: the learner at its end, and what was seen at each step.

    `reward` is that of the samples, and so of the policy that wrote them. The others compare learner and sampler before
    the update. `apart`: the standard deviation of a token's log-ratio. `outside`: the share of tokens outside the
    window. `back`: the share of tokens which are outside and whose advantage would lead them back, so that PPO's clip
    keeps their gradient.
    """
    learner, recipe, behind = begin(arm, seed)
    seen: dict[str, list[float]] = {name: [] for name in KEPT}
    for step in range(1, steps + 1):
        groups, _ = collect(behind.model, learner.vocabulary, recipe, step)
        assert groups is not None
        every = torch.arange(len(groups.mask))
        with torch.no_grad():
            own = Fast().read(learner.policy, groups, every, recipe.config).logp
        batch, _ = prepare_batch(learner, recipe, groups, step)
        used = groups.mask != 0
        log_ratio = (own - groups.logp)[used]
        assert batch.advantages is not None
        A = batch.advantages[used]
        above = log_ratio.exp() >= 1 + BOUNDS["high"]
        below = log_ratio.exp() <= 1 - BOUNDS["low"]
        back = (above & (A < 0)) | (below & (A > 0))
        metrics = update(learner, recipe, groups, batch, step)
        learner.step = step
        behind.follow(learner)
        seen["reward"].append(round(groups.rewards.mean().item(), 4))
        seen["apart"].append(round(log_ratio.std().item(), 5))
        seen["outside"].append(round((above | below).float().mean().item(), 5))
        seen["back"].append(round(back.float().mean().item(), 5))
        seen["grad_norm"].append(round(metrics["grad_norm"], 4))
    return learner, recipe, seen


def run(arm: str, seed: int) -> dict[str, Any]:
    """One run, as it is recorded."""
    began = time.perf_counter()
    learner, recipe, seen = train(arm, seed)
    after = evaluate(learner.policy, learner.vocabulary, recipe)
    return {
        "sampled": after.sampled.share,
        "greedy": after.greedy.share,
        "seconds": round(time.perf_counter() - began, 1),
        **seen,
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    record(
        __file__,
        ARMS,
        run,
        steps=STEPS,
        samples_per_step=PROMPTS * GROUP,
        held_out_problems=1000,
    )
