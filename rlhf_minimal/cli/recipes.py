"""The settings of `train`, and what they mean: an algorithm, a task, numbers, a reward."""

import dataclasses
from typing import Any, Literal

import torch

from rlhf_minimal.algorithms import ALGORITHMS
from rlhf_minimal.cli.programs import find_algorithm, find_task
from rlhf_minimal.cli.settings import Setting, fields_of
from rlhf_minimal.cli.starts import ASSETS, CHAT, CHAT_HELP, DEFAULT_TASK, DEVICE_HELP
from rlhf_minimal.models import TokenizerVocabulary, Vocabulary, check_same_vocabulary, load_reward_model
from rlhf_minimal.tasks import TASK_NAMES, model_reward, random_reward
from rlhf_minimal.training import Config, Recipe, TrustRegion
from rlhf_minimal.training.evaluation import HELD_OUT
from rlhf_minimal.training.trpo import check_trust_region

# Steps of a size that leaves a real model standing; the defaults of `Config` are for tiny ones.
REAL_MODEL_LR = 1e-5
REAL_MODEL_LORA_LR = 1e-4
_REAL = f"(default {Config().lr:g}; {REAL_MODEL_LR:g} for a real model, {REAL_MODEL_LORA_LR:g} with --lora-rank)"

# A sentence for every field of `Config`, whose flag is the field's name with dashes.
CONFIG_HELP = {
    "steps": "Training steps",
    "prompts": "Problems per step",
    "group_size": "Completions per problem",
    "epochs": "Passes over a step's samples",
    "minibatches": "Optimiser steps per pass",
    "micro_batches": "Forward-backward pieces per optimiser step. They save memory and do not change the result",
    "lr": f"Learning rate of the policy {_REAL}",
    "value_lr": f"Learning rate of the critic, for algorithms that have one {_REAL}",
    "value_clip": "Clip range of the value loss",
    "critic": "A network of its own for the critic, or a value head on the policy's body",
    "value_coef": "Weight of the value loss beside the policy's, with --critic shared",
    "value_head_init": "How the critic's head is initialised",
    "adam_eps": "Epsilon of the optimisers",
    "grad_clip": "Largest norm of a gradient",
    "temperature": "Sampling temperature. The log-probs that are trained include it",
    "max_new_tokens": "Token budget of a completion (default: the task's own)",
    "score_scaling": "Rewards as they are, standardised over the step, or by mean and deviation of all so far",
    "score_clip": "Rewards are clipped to plus or minus this, after the scaling",
    "missing_eos_penalty": "Subtracted from completions that ran into the token budget",
    "reference": "What KL terms refer to: the frozen start, the policy every so often, or its moving average",
    "refresh_every": "Steps between refreshes, with --reference refresh",
    "ema_decay": "Weight of the past per step, with --reference ema",
    "kl_control": "Whether the coefficient of a KL against the reference is fixed, or follows a controller",
    "kl_control_target": "Nats per completion that --kl-control adaptive aims at",
    "kl_control_horizon": "Completions in which --kl-control adaptive may change the coefficient by a fifth",
    "target_kl": "Nats per token from the sampler at which a step's updates end",
    "baseline": "For algorithms that take one: the mean of past rewards, or the greedy answer's reward",
    "baseline_decay": "Weight of the past per step, with --baseline ema",
    "verifier_timeout": "Seconds for the verifier of one completion, which gets 0 if they are not enough",
    "max_refills": "Extra rounds of sampling to replace groups that the algorithm filters out",
    "watch_kl": "Whether the distance from the start is reported, which costs a forward a step",
    "shared_prefix": "Whether an update reads each prompt once for all its completions",
    "sort_lengths": "Whether rows of like length are read together",
    "skip_idle": "Whether rows that nothing in the loss acts on go without a backward",
    "logit_chunk": "Most logits that exist at once in an update",
    "precision": "Precision of forward and backward. Weights and moments are float32 in any case",
    "gradient_checkpointing": "Keep each layer's input only, and compute the rest again in the backward. It saves "
    "memory",
    "lora_rank": "Train corrections of this rank beside the frozen weights",
    "lora_alpha": "A correction counts this much over the rank",
    "decoding": "A cache that grows, or fixed shapes and a compiled step (on CUDA a graph)",
    "seed": "Decides everything random",
}
# The settings that are no field of `Config`.
RUN_SETTINGS = [
    Setting("task", str, DEFAULT_TASK, f"What to learn: {TASK_NAMES}, or FILE.py:NAME for a task of your own"),
    Setting("start", str, "shipped", "Where to begin: a checkpoint or run folder, 'untrained', 'shipped', or hf:NAME"),
    Setting("chat", Literal[CHAT], "auto", CHAT_HELP),
    Setting("system", str | None, None, "System message before every prompt (default: the task's own)", metavar="TEXT"),
    Setting(
        "reward", Literal["verifier", "random"], "verifier", "What is trained for. A random reward is the control arm"
    ),
    Setting(
        "reward_model",
        str | None,
        None,
        "Train for a reward model's score: a folder as `reward` writes one, or 'shipped' (task reviews)",
        metavar="FOLDER",
    ),
    Setting("kl_coef", float | None, None, "Another coefficient in the row's KL cell (default: the row's)"),
    Setting("optimizer", Literal["adamw", "trpo"], "adamw", "Minibatches with AdamW, or one step in a trust region"),
    Setting("max_kl", float, TrustRegion().max_kl, "Bound on a trust region's step, in nats a token"),
    Setting("device", str, "cpu", DEVICE_HELP),
    Setting("save_every", int, 25, "Steps between checkpoints"),
    Setting("held_out", int, HELD_OUT, "Problems of the evaluation"),
]
SETTINGS = [*RUN_SETTINGS, *fields_of(Config, CONFIG_HELP)]
ROW = Setting("algorithm", str, None, "A row of the table, or FILE.py:NAME")  # two flags name it


def add_row_flags(sub: Any) -> None:
    """A row: by its name, or as a program of one's own."""
    row = sub.add_mutually_exclusive_group(required=True)
    row.add_argument("algorithm", metavar="ALGORITHM", nargs="?", help=f"A row of the table: {', '.join(ALGORITHMS)}.")
    row.add_argument(
        "--row", metavar="FILE.py:NAME", help="A row of your own in place of ALGORITHM: the Python file is run."
    )


def recipe_of(settings: dict[str, Any], row: str | None, task: str | None) -> Recipe:
    """What a run trains, by its settings; a reward model comes later.

    Args:
        settings: The run's.
        row: What `--row` says in this command line (see `programs`).
        task: What `--task` says there.
    """
    algorithm, learnt = find_algorithm(settings, row), find_task(settings, task)
    name, coef = settings["algorithm"], settings["kl_coef"]
    config = Config(**{field.name: settings[field.name] for field in dataclasses.fields(Config)})
    if "group" in algorithm.needs and config.group_size < 2:
        raise ValueError(f"{name} compares completions of one prompt: --group-size must be at least 2")
    if coef is not None:
        if len(algorithm.kl) != 1:
            raise ValueError(f"--kl-coef changes a row's KL cell, but {name} has {len(algorithm.kl)} of them")
        algorithm = dataclasses.replace(algorithm, kl=(dataclasses.replace(algorithm.kl[0], coef=coef),))
    if settings["system"] is not None:
        learnt = dataclasses.replace(learnt, instruction=settings["system"])
    if settings["reward"] == "random" and settings["reward_model"] is not None:
        raise ValueError("--reward random and --reward-model are two rewards: give one of them")
    recipe = Recipe(algorithm, learnt, config, random_reward(config.seed) if settings["reward"] == "random" else None)
    if settings["optimizer"] == "trpo":
        TrustRegion(max_kl=settings["max_kl"])
        check_trust_region(recipe)
    return recipe


def with_reward_model(
    recipe: Recipe, folder: str | None, vocabulary: Vocabulary | TokenizerVocabulary, device: torch.device
) -> Recipe:
    """The recipe with the reward model's score as its reward, where one is given: it must read what the policy says."""
    if folder is None:
        return recipe
    shipped = ASSETS / f"{recipe.task.name}-reward"
    if folder == "shipped" and not shipped.is_dir():
        raise ValueError(
            f"no reward model is shipped for the task {recipe.task.name!r}: make one with the command reward"
        )
    reward_model = load_reward_model(shipped if folder == "shipped" else folder).to(device)
    check_same_vocabulary(vocabulary, reward_model.vocabulary)
    problems = recipe.task.problems("held_out", 8, seed="reward model")
    reward_model.score([p.prompt for p in problems], [""] * len(problems))  # one that says NaN is refused here and now
    return dataclasses.replace(recipe, reward=model_reward(reward_model))
