"""The recorded runs of the chapter on reward models: what equal numbers of comparisons are worth, used in four ways.

    python notebooks/results/pair_runs.py          runs what is not yet recorded (25 runs, some 7 minutes of one core)
    python notebooks/results/pair_runs.py dpo      only the arms named

Writes notebooks/results/pair-runs.json, a line a run. Task: reviews, whose gold score is known exactly. The start, and
the reference, is the shipped fine-tuned policy. Every arm gets PAIRS comparisons, labelled with Bradley-Terry noise, and
the same coefficient BETA of the KL penalty, in units of the gold score per nat:

    dpo        the row dpo on pairs of the start's samples
    coin       the same completions, and a coin decides which is preferred: nothing can be learnt
    online     the row dpo, but the pairs come in ROUNDS parts, each sampled from the policy of that moment
    reward-rl  the same pairs as dpo: a Bradley-Terry reward model, then RL against its raw score with the row rloo
    gold-rl    the same RL against the gold score: what a perfect reward model would give

`gold` and `kl` (nats a completion, against the start) are means over 1000 held-out prompts, one sample each.
`ranked` is the share of 1000 held-out pairs of the start's samples that the arm's score ranks as labelled, averaged over
the labels' noise: beta times the log-ratio for a policy, the reward model's score for reward-rl. Of the same pairs,
`chosen` and `rejected` are the mean log-ratios to the start of the policy at the end, in nats; `chosen_by_step` and `rejected_by_step` are
those of a step's training pairs. Seeds 0 to 4 were fixed beforehand and all are recorded; a seed makes the pairs, their order and
the samples. Learning rates and steps were chosen on seed 100 alone.
"""

import copy
import time
from dataclasses import replace
from functools import cache, partial
from importlib.resources import as_file, files
from typing import Any

import torch
from recording import SEEDS as SEEDS
from recording import record
from transformers import PreTrainedModel

from rlhf_minimal import ALGORITHMS, KL
from rlhf_minimal.config import Config
from rlhf_minimal.fit import FitConfig, batch_of_step, fit, pair_scores
from rlhf_minimal.functional.logprobs import token_logprobs
from rlhf_minimal.lab.fast import fast
from rlhf_minimal.lab.reward_model_quality import expected_accuracy
from rlhf_minimal.lab.sampled_rows import sample_pairs
from rlhf_minimal.lab.train_pairs import (
    EncodedPair,
    add_reference_logprobs,
    direct_preference_loss,
    encode_pairs,
    make_pairs,
    train_pairwise,
)
from rlhf_minimal.models import RewardModel, Vocabulary, policy_logits
from rlhf_minimal.pairs import PAIRWISE, PairwiseAlgorithm, pairwise_scores
from rlhf_minimal.tasks import PairRow, get_task, model_reward
from rlhf_minimal.train import Recipe, roll_out, train
from rlhf_minimal.train_state import Learner
from rlhf_minimal.training import load_policy

TASK = get_task("reviews")
PAIRS, HELD_OUT, ROUNDS = 2000, 1000, 5
BETA = 0.3
STEPS, BATCH, LR = 150, 64, 5e-4  # of dpo and coin; of all rounds of online together
REWARD_STEPS, REWARD_LR = 150, 2e-3
RL_STEPS, PROMPTS, GROUP, RL_LR = 40, 16, 8, 1e-3
ARMS = ("dpo", "coin", "online", "reward-rl", "gold-rl")

Policy = tuple[PreTrainedModel, Vocabulary]


def start() -> Policy:
    """The shipped fine-tuned policy."""
    with as_file(files("rlhf_minimal") / "assets" / "reviews") as folder:
        policy, vocabulary = load_policy(folder)
    assert isinstance(vocabulary, Vocabulary)
    return policy, vocabulary


def row() -> PairwiseAlgorithm:
    """The row of the second table that dpo, coin and online train with."""
    found = PAIRWISE["dpo"]
    return replace(found, loss=partial(found.loss.func, beta=BETA))  # type: ignore[attr-defined]


def pairs_of(
    policy: PreTrainedModel, vocabulary: Vocabulary, seed: int, part: int, n: int
) -> list[PairRow]:
    """Comparisons of a policy's own samples; equal seeds and policies give equal pairs."""
    return sample_pairs(policy, vocabulary, TASK, n, seed=1000 * seed + part)


@cache
def pairs_of_start(seed: int) -> list[PairRow]:
    """What dpo, coin and reward-rl get."""
    return pairs_of(*start(), seed, 0, PAIRS)


@cache
def held_out_pairs() -> list[PairRow]:
    """On which all arms are measured."""
    return sample_pairs(*start(), TASK, HELD_OUT, split="held_out", seed=7)


def tossed(rows: list[PairRow], seed: int) -> list[PairRow]:
    """The same completions; a coin decides which is preferred."""
    coins = torch.rand(len(rows), generator=torch.Generator().manual_seed(seed)) < 0.5
    return [
        PairRow(
            one.prompt, one.rejected, one.chosen, one.score_rejected, one.score_chosen
        )
        if turn
        else one
        for one, turn in zip(rows, coins.tolist(), strict=True)
    ]


def learn_pairs(
    arm: str, seed: int, steps: int = STEPS
) -> tuple[PreTrainedModel, list[dict[str, float]]]:
    """dpo, coin and online: the policy at the end, and what was seen at each step."""
    reference, vocabulary = start()
    policy = copy.deepcopy(reference)
    algorithm = row()
    examples: list[EncodedPair] = []

    def batch(step: int) -> list[EncodedPair]:
        """A step's pairs: all made at the beginning, or a part at the beginning of each round."""
        rows = None
        if arm == "online" and (step - 1) % (STEPS // ROUNDS) == 0:
            rows = pairs_of(
                policy,
                vocabulary,
                seed,
                (step - 1) // (STEPS // ROUNDS),
                PAIRS // ROUNDS,
            )
        elif step == 1:
            rows = pairs_of_start(seed)
            rows = tossed(rows, seed) if arm == "coin" else rows
        if rows is not None:
            examples[:] = add_reference_logprobs(
                encode_pairs(rows, vocabulary), reference, vocabulary
            )
        return batch_of_step(examples, step, BATCH, seed)

    config = FitConfig(steps=STEPS, batch_size=BATCH, lr=LR, warm_up=20, seed=seed)
    history = fit(
        policy,
        batch,
        partial(direct_preference_loss, algorithm, policy, vocabulary),
        config,
        on_step=lambda metrics: metrics["step"] < steps,
    )
    return policy.eval(), history


def learn_reward(
    seed: int, steps: int = REWARD_STEPS
) -> tuple[RewardModel, list[float]]:
    """A reward model from the pairs that dpo gets, and its losses."""
    policy, vocabulary = start()
    rows = pairs_of_start(seed)
    model = RewardModel.from_policy(policy, vocabulary, seed=seed)
    config = FitConfig(
        steps=REWARD_STEPS, batch_size=BATCH, lr=REWARD_LR, warm_up=20, seed=seed
    )
    history = train_pairwise(
        PAIRWISE["bradley_terry"],
        model,
        vocabulary,
        rows,
        config,
        on_step=lambda metrics: metrics["step"] < steps,
    )
    model.model.eval()
    return model, [metrics["loss"] for metrics in history]


def learn_rl(
    seed: int, reward_model: RewardModel | None, steps: int = RL_STEPS
) -> tuple[PreTrainedModel, list[Any]]:
    """RL against a reward model's raw score, or against the gold score."""
    policy, vocabulary = start()
    algorithm = replace(ALGORITHMS["rloo"], kl=(KL(BETA, "k1", place="reward"),))
    config = Config(steps=steps, prompts=PROMPTS, group_size=GROUP, lr=RL_LR, seed=seed)
    reward = [] if reward_model is None else [model_reward(reward_model)]
    recipe = fast(Recipe(algorithm, TASK, config, *reward))
    learner = Learner.begin(policy, vocabulary, algorithm, config)
    return learner.policy, train(learner, recipe)


@torch.no_grad()
def log_ratios(
    policy: PreTrainedModel, rows: list[PairRow]
) -> tuple[torch.Tensor, torch.Tensor]:
    """[N] and [N]: log-ratios to the start, of the chosen and of the rejected completions."""
    reference, vocabulary = start()
    examples = add_reference_logprobs(
        encode_pairs(rows, vocabulary), reference, vocabulary
    )
    found = []
    for i in range(0, len(examples), 500):
        pairs = make_pairs(row(), policy, vocabulary, examples[i : i + 500])
        found.append(pairwise_scores(row(), pairs))
    chosen, rejected = (torch.cat(side) for side in zip(*found, strict=True))
    return chosen, rejected


@torch.no_grad()
def measure(
    policy: PreTrainedModel, reward_model: RewardModel | None = None
) -> dict[str, float]:
    """Gold score and distance of fresh samples; ranking and log-ratios of held-out pairs."""
    reference, vocabulary = start()
    held_out = held_out_pairs()
    chosen, rejected = log_ratios(policy, held_out)
    gap = chosen - rejected
    if reward_model is not None:
        parts = [
            pair_scores(reward_model, held_out[i : i + 500])
            for i in range(0, HELD_OUT, 500)
        ]
        gap = torch.cat([better - worse for better, worse in parts])
    gold = torch.tensor([one.score_chosen - one.score_rejected for one in held_out])
    recipe = fast(Recipe(ALGORITHMS["rloo"], TASK, Config(steps=1)))
    problems = TASK.problems("held_out", HELD_OUT, seed="pair-runs")
    found = roll_out(policy, vocabulary, problems, recipe, seed="pair-runs")
    given = (found.prompts, found.prompt_mask, found.completions)
    policy_logp, start_logp = (
        token_logprobs(policy_logits(m, *given), given[2]) for m in (policy, reference)
    )
    far = torch.where(found.mask != 0, policy_logp - start_logp, 0.0).sum(1)
    return {
        "gold": found.rewards.mean().item(),
        "kl": far.mean().item(),
        "ranked": expected_accuracy(gap, gold),
        "chosen": chosen.mean().item(),
        "rejected": rejected.mean().item(),
    }


def run(arm: str, seed: int) -> dict[str, Any]:
    """One run, as it is recorded."""
    began = time.process_time()
    reward_model = None
    by_step: dict[str, list[float]] = {}
    if arm.endswith("rl"):
        if arm == "reward-rl":
            reward_model, by_step["loss"] = learn_reward(seed)
        policy, history = learn_rl(seed, reward_model)
        by_step["reward"] = [metrics["reward"] for metrics in history]
    else:
        policy, seen = learn_pairs(arm, seed)
        by_step = {
            name: [one[name] for one in seen] for name in ("loss", "chosen", "rejected")
        }
    seconds = round(time.process_time() - began, 1)
    found = {
        name: round(value, 4) for name, value in measure(policy, reward_model).items()
    }
    steps = {
        f"{name}_by_step": [round(x, 3) for x in xs] for name, xs in by_step.items()
    }
    return {**found, "seconds": seconds, **steps}


if __name__ == "__main__":
    record(
        __file__,
        ARMS,
        run,
        pairs=PAIRS,
        held_out=HELD_OUT,
        rounds=ROUNDS,
        beta=BETA,
        steps=STEPS,
        lr=LR,
    )
