"""The settings of `train`, and the `Recipe` that they make: an algorithm, a task, numbers, a reward."""

import contextlib
import dataclasses
import os
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from transformers import PreTrainedModel

from rlhf_minimal.algorithms import ALGORITHMS
from rlhf_minimal.cli.python_file import is_program
from rlhf_minimal.cli.settings import Setting, fields_of
from rlhf_minimal.cli.starts import (
    ASSETS,
    DEFAULT_TASK,
    REAL_MODEL_LORA_LR,
    REAL_MODEL_LR,
    check_same_vocabulary,
    load_config,
    load_start,
    shipped_start,
)
from rlhf_minimal.cli.user_code import find_algorithm, find_step_reward, find_task
from rlhf_minimal.config import Config
from rlhf_minimal.evaluate import HELD_OUT
from rlhf_minimal.lab.compiled import sample_compiled
from rlhf_minimal.lab.fast import fast
from rlhf_minimal.lab.trust_region import TrustRegion, check_trust_region
from rlhf_minimal.model_files import find_checkpoint
from rlhf_minimal.models import TokenizerVocabulary, Vocabulary, load_reward_model
from rlhf_minimal.tasks import TASK_NAMES, Task, model_reward, random_reward
from rlhf_minimal.train import Recipe
from rlhf_minimal.train_state import check_critic_start, check_teacher
from rlhf_minimal.training import load_policy
from rlhf_minimal.training.run_folder import check_same


@dataclass(frozen=True)
class RunConfig:
    """Options of `train` besides the numbers of `Config`.

    Args:
        task: What to learn: the name of a task, or FILE.py:NAME for a task of your own. Of a completion, exact:
            compares the whole text, and math: the last formula of the final answer.
        start: Where to begin: a checkpoint or run folder, 'untrained', 'shipped', or hf:NAME.
        chat: Whether prompts are written with the model's chat template; auto, if it has one.
        system: System message before every prompt; None: the task's own.
        reward: The reward of training: the verifier's, or as a control a coin's, 0 or 1.
        reward_model: Train for a reward model's score: a folder as the command reward writes one, or 'shipped' (task
            reviews); None: the reward above.
        critic_start: Folder of the model whose body the critic begins with: a policy or a reward model that reads the
            same tokens; None: a copy of the policy's.
        teacher: A better model in the place of the reference: the row opd pays each token by its log-prob, and a KL
            keeps the policy near it. A run or checkpoint folder, 'shipped', or hf:NAME, that reads the same tokens.
        step_reward: Marks for the steps of a completion, besides the reward: task, by the task's own checker, a folder
            as reward --label-steps writes one, or FILE.py:NAME for a step reward of your own.
        kl_coef: Coefficient of the KL penalty; None: the row's.
        optimizer: Minibatches with AdamW, or one step in a trust region.
        max_kl: Bound on a trust region's step, in nats a token.
        fast: Whether computation that is repeated or has no effect is left out (chapter making-it-fast): the same
            gradients in about half the time.
        decoding: How completions are sampled: `"dynamic"`, with a cache that grows and without the rows that have
            ended, or `"compiled"`: fixed shapes and a compiled step, on CUDA a graph that is replayed. The first
            rollout of a shape then takes up to a minute; it pays for large models and long completions.
        device: Where to compute: cpu, cuda or mps.
        save_every: Steps between checkpoints.
        held_out: Number of problems in the evaluations before and after training.
    """

    task: str = DEFAULT_TASK
    start: str = "shipped"
    chat: Literal["auto", "on", "off"] = "auto"
    system: str | None = None
    reward: Literal["verifier", "random"] = "verifier"
    reward_model: str | None = None
    critic_start: str | None = None
    teacher: str | None = None
    step_reward: str | None = None
    kl_coef: float | None = None
    optimizer: Literal["adamw", "trpo"] = "adamw"
    max_kl: float = TrustRegion().max_kl
    fast: Literal["off", "on"] = "off"
    decoding: Literal["dynamic", "compiled"] = "dynamic"
    device: str = "cpu"
    save_every: int = 25
    held_out: int = HELD_OUT


_REAL = f"{Config().lr:g}; {REAL_MODEL_LR:g} for a real model, {REAL_MODEL_LORA_LR:g} with a LoRA"
SETTINGS = [
    Setting("algorithm", str, None),  # ALGORITHM or --row
    *fields_of(RunConfig, {"task": f"that of the run in --start, else {DEFAULT_TASK}; there are {TASK_NAMES}"}),
    *fields_of(Config, {"lr": _REAL, "value_lr": _REAL}),
]


def add_row_flags(sub: Any) -> None:
    """The flags that choose a row: by its name, or as a program of the user's own."""
    row = sub.add_mutually_exclusive_group(required=True)
    row.add_argument("algorithm", metavar="ALGORITHM", nargs="?", help=f"A row of the table: {', '.join(ALGORITHMS)}.")
    row.add_argument(
        "--row", metavar="FILE.py:NAME", help="A row of your own in place of ALGORITHM: the Python file is run."
    )


def recipe_of(settings: dict[str, Any], row: str | None, task: str | None, marks: str | None = None) -> Recipe:
    """What a run trains, by its settings; a reward model comes later.

    Args:
        settings: The run's.
        row: What `--row` says in this command line (see `user_code`).
        task: What `--task` says there.
        marks: What `--step-reward` says there.
    """
    algorithm, learnt = find_algorithm(settings, row), find_task(settings, task)
    config = Config(**{field.name: settings[field.name] for field in dataclasses.fields(Config)})
    if "group" in algorithm.needs and config.group_size < 2:
        raise ValueError(f"{settings['algorithm']} compares completions of one prompt: --group-size must be at least 2")
    if settings["kl_coef"] is not None:
        if len(algorithm.kl) != 1:
            raise ValueError(
                f"--kl-coef changes a row's KL cell, but {settings['algorithm']} has {len(algorithm.kl)} of them"
            )
        algorithm = dataclasses.replace(algorithm, kl=(dataclasses.replace(algorithm.kl[0], coef=settings["kl_coef"]),))
    if settings["system"] is not None:
        learnt = dataclasses.replace(learnt, instruction=settings["system"])
    if settings["critic_start"] is not None:
        check_critic_start(algorithm, config)
    check_teacher(algorithm, config, given=settings["teacher"] is not None)
    if settings["reward"] == "random" and settings["reward_model"] is not None:
        raise ValueError("--reward random and --reward-model are two rewards: give one of them")
    reward = random_reward(config.seed) if settings["reward"] == "random" else None
    step_reward = None if settings["step_reward"] is None else find_step_reward(settings, marks, learnt)
    recipe = Recipe(algorithm, learnt, config, reward, step_reward)
    if settings["decoding"] == "compiled":
        recipe = dataclasses.replace(recipe, sample=sample_compiled)
    if settings["fast"] == "on":
        recipe = fast(recipe)
    if settings["optimizer"] == "trpo":
        TrustRegion(max_kl=settings["max_kl"])
        check_trust_region(recipe)
    return recipe


def check_same_models(settings: dict[str, Any], recipe: Recipe, *, resumed: bool) -> None:
    """Notes the checksums of the models that a resumed run reads again; refuses one of which any has changed.

    They are the reward model, the teacher, the scorer of steps, and the start where no copy of it is kept. What the
    critic began with is not among them: the checkpoint has its weights. Of a model on a hub the commit is noted.

    Args:
        settings: The run's; `programs` keeps the checksums.
        recipe: What it trains.
        resumed: Whether it goes on; a run that was begun by a version without these checksums gets none.

    Raises:
        ValueError: Naming the model that has changed.
    """
    config, task = recipe.config, recipe.task
    kept = config.watch_kl == "on" or config.lora_rank is not None
    kept = kept or (config.reference == "frozen" and "ref_logp" in recipe.algorithm.needs)
    shipped = {"reward_model": ASSETS / f"{task.name}-reward"}
    for flag in ("reward_model", "teacher", "step_reward", *(() if kept else ("start",))):
        name, key = settings[flag], f"--{flag.replace('_', '-')}"
        if (
            name is None
            or name in ("task", "untrained")
            or is_program(name)
            or (resumed and key not in settings["programs"])
        ):
            continue
        if name.startswith("hf:") and not os.path.exists(name.removeprefix("hf:")):
            commit = getattr(load_config(name.removeprefix("hf:")), "_commit_hash", None)
            if commit is not None and settings["programs"].setdefault(key, commit) != commit:
                raise ValueError(f"{key} {name} has another commit than when the run was begun: resume with that one")
            continue
        place = shipped.get(flag, shipped_start(task)) if name.startswith("shipped") else name.removeprefix("hf:")
        with contextlib.suppress(ValueError):  # a folder without a checkpoint of ours: from elsewhere, or refused later
            place = find_checkpoint(place)
        if os.path.exists(place):
            check_same(settings, key, place)


def critic_start(folder: str, vocabulary: Vocabulary | TokenizerVocabulary | None = None) -> PreTrainedModel:
    """The model that the critic begins with; its vocabulary must be the policy's, if that is given."""
    config = find_checkpoint(folder) / "config.json"
    if "ForSequenceClassification" in config.read_text(encoding="utf-8", errors="replace"):
        reward_model = load_reward_model(folder)
        model, read = reward_model.model, reward_model.vocabulary
    else:
        model, read = load_policy(folder)
    if vocabulary is not None:
        check_same_vocabulary(vocabulary, read, "critic's start")
    return model


def teacher(
    settings: dict[str, Any], task: Task, vocabulary: Vocabulary | TokenizerVocabulary | None = None
) -> PreTrainedModel:
    """The model in the reference's place; its vocabulary must be the policy's, if that is given."""
    name = settings["teacher"]
    chat = settings["chat"] if name.startswith("hf:") else "auto"
    model, read, _ = load_start(name, task, settings["seed"], chat)
    if vocabulary is not None:
        check_same_vocabulary(vocabulary, read, "teacher")
    return model


def with_reward_model(
    recipe: Recipe, folder: str, vocabulary: Vocabulary | TokenizerVocabulary, device: torch.device
) -> Recipe:
    """The recipe with a reward model's score as its reward; its vocabulary must be the policy's."""
    shipped = ASSETS / f"{recipe.task.name}-reward"
    if folder == "shipped" and not shipped.is_dir():
        raise ValueError(
            f"no reward model is shipped for the task {recipe.task.name!r}: make one with the command reward"
        )
    reward_model = load_reward_model(shipped if folder == "shipped" else folder).to(device)
    check_same_vocabulary(vocabulary, reward_model.vocabulary)
    problems = recipe.task.problems("held_out", 8, seed="reward model")
    write = partial(reward_model.vocabulary.prompt_text, system=recipe.task.instruction)
    # raises for a model whose scores are NaN
    reward_model.score([write(problem.prompt) for problem in problems], [""] * len(problems))
    return dataclasses.replace(recipe, reward=model_reward(reward_model, write))
