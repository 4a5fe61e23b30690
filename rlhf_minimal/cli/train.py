"""`train`: trains a policy with a row of the table on a task, by one call of `train.train`."""

import argparse
import os
from collections.abc import Iterable, Sequence
from contextlib import nullcontext, redirect_stdout
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from transformers import PreTrainedModel

from rlhf_minimal.cli import starts, train_flags, user_code
from rlhf_minimal.cli.console import at_least_1, printable
from rlhf_minimal.cli.journal import Journal, warn_of_verifier_errors
from rlhf_minimal.cli.report import report_training
from rlhf_minimal.cli.settings import add_flags, add_run_flags, check_read, settings_of_run
from rlhf_minimal.evaluate import Evaluation, evaluate
from rlhf_minimal.lab.processes import launched
from rlhf_minimal.lab.trackers import TRACKERS, Trackers
from rlhf_minimal.lab.trust_region import TrustRegion, trust_region_update
from rlhf_minimal.objective import Algorithm
from rlhf_minimal.runs import resume_learner, save_learner
from rlhf_minimal.train import NothingToLearn, Recipe, check_context, train, update
from rlhf_minimal.train_state import Learner, Processes
from rlhf_minimal.training.run_folder import RunFolder

OOM_HINT = "raise --micro-batches, or lower --prompts, --group-size or --max-new-tokens"
RESUME_OVERRIDES = ("steps", "device", "save_every", "held_out")  # settings that a resumed run may be given anew
# Flags that are read only where another one has a value, or (None) has any (see `check_read`).
FLAG_DEPENDENCIES = {
    "max_kl": ("optimizer", "trpo"),
    "lr": ("optimizer", "adamw"),
    "lora_alpha": ("lora_rank", None),
    "kl_control_target": ("kl_control", "adaptive"),
    "kl_control_horizon": ("kl_control", "adaptive"),
    "refresh_every": ("reference", "refresh"),
    "ema_decay": ("reference", "ema"),
    "baseline_decay": ("baseline", "ema"),
    "value_coef": ("critic", "shared"),
}
# Flags that are read only for a row that needs this.
FLAGS_OF_NEEDS = {
    "values": ("value_lr", "value_clip", "value_coef", "value_head_init"),
    "ref_logp": ("reference",),
    "baseline": ("baseline", "baseline_decay"),
    "keep": ("max_refills",),
}
# A trust region leaves these to the critic, so that without one nothing reads them.
CRITIC_ONLY_FLAGS = dict.fromkeys(("epochs", "minibatches", "grad_clip", "adam_eps"), ("optimizer", "adamw"))
SHOWN = {"reward": ".2f", "gold": ".2f", "accuracy": ".2f", "kl": ".3f", "entropy": ".3f", "length": ".1f"}


def add_arguments(sub: argparse.ArgumentParser) -> None:
    """The command's flags."""
    train_flags.add_row_flags(sub)
    starts.add_model_flag(sub, "--start")
    sub.add_argument(
        "--tracker",
        action="append",
        choices=TRACKERS,
        help="Send the metrics to this experiment tracker as well. May be repeated.",
    )
    add_run_flags(sub)
    add_flags(sub, train_flags.SETTINGS)


@dataclass
class Run:
    """What is known of a run before anything is loaded.

    Attributes:
        args: The command's flags.
        folder: The run's folder.
        settings: All settings, as `config.json` keeps them.
        recipe: What is trained.
        device: The device it runs on.
        processes: The processes that share it.
    """

    args: argparse.Namespace
    folder: RunFolder
    settings: dict[str, Any]
    recipe: Recipe
    device: torch.device
    processes: Processes


def run(args: argparse.Namespace) -> int:
    """Trains, from the words of the command to the report of the run."""
    plan = _plan(args)
    trackers = Trackers(args.tracker, plan.folder.path, plan.settings, plan.device) if args.tracker else None
    main = plan.processes.is_main
    try:
        with open(os.devnull, "w", encoding="utf-8") as nowhere, nullcontext() if main else redirect_stdout(nowhere):
            return _train(plan, trackers)
    finally:
        plan.processes.close()


def _plan(args: argparse.Namespace) -> Run:
    """Reads and checks all settings before anything is loaded or written."""
    starts.complete(args)
    args.algorithm, declared = args.algorithm or args.row, starts.with_rates(train_flags.SETTINGS, args)
    folder, settings, given = settings_of_run(args, declared, "train", args.algorithm, RESUME_OVERRIDES)
    at_least_1(settings, "save_every", "held_out")
    recipe = train_flags.recipe_of(settings, args.row, args.task, args.step_reward)
    _check_row_reads(settings, given, recipe.algorithm)
    check_read(settings, given, FLAG_DEPENDENCIES | ({} if "values" in recipe.algorithm.needs else CRITIC_ONLY_FLAGS))
    starts.check_start(settings["start"], recipe.task, settings["task"])
    train_flags.check_same_models(settings, recipe, resumed=args.resume)
    processes, device = launched(starts.find_device(settings["device"]))
    if processes.count > 1 and settings["optimizer"] == "trpo":
        raise ValueError("--optimizer trpo takes its step in one process: launch it without accelerate")
    if recipe.config.prompts < processes.count:
        raise ValueError(f"{processes.count} processes share {recipe.config.prompts} problems a step: raise --prompts")
    return Run(args, folder, settings, recipe, device, processes)


def _check_row_reads(settings: dict[str, Any], given: Iterable[str], algorithm: Algorithm) -> None:
    """Refuses flags that only other rows read."""
    needs = algorithm.needs | ({"keep"} if algorithm.keep else set())
    unread = {name for need, names in FLAGS_OF_NEEDS.items() if need not in needs for name in names}
    for name in given:
        if name in unread:
            raise ValueError(f"--{name.replace('_', '-')} changes nothing for {settings['algorithm']}: leave it out")


def _train(plan: Run, trackers: Trackers | None) -> int:
    """The run itself, as one of the processes that share it; only the main one writes."""
    learner = _resume(plan) if plan.args.resume else _begin(plan)
    learner.processes = plan.processes
    before, early, how = _evaluate(plan, learner, _start_policy(learner, plan)), None, update
    if plan.settings["optimizer"] == "trpo":
        how = partial(trust_region_update, region=TrustRegion(max_kl=plan.settings["max_kl"]))
    with _journal(plan, learner, trackers) as journal:
        try:
            train(learner, plan.recipe, journal, update=how)
        except NothingToLearn as reason:
            early = str(reason)
        journal.save()
    if early:
        print(f"stopped early at {early}")
    return _finish(plan, learner, journal, before)


def _evaluate(plan: Run, learner: Learner, policy: PreTrainedModel) -> Evaluation:
    """A policy on the run's held-out problems."""
    n = plan.settings["held_out"]
    return evaluate(policy, learner.vocabulary, plan.recipe, n=n, processes=plan.processes)


def _journal(plan: Run, learner: Learner, trackers: Trackers | None) -> Journal:
    """What writes the run down, step by step."""
    graded = plan.recipe.task.score_range is not None  # then a share of exactly right completions says nothing
    shown = {name: form for name, form in SHOWN.items() if not (graded and name == "accuracy")}
    return Journal(
        plan.folder, plan.settings, partial(save_learner, learner), shown, learner.step, plan.processes, trackers
    )


def _finish(plan: Run, learner: Learner, journal: Journal, before: Evaluation) -> int:
    """What follows the last step: the evaluation and the report, unless Ctrl-C has ended the run."""
    if plan.processes.is_main:
        warn_of_verifier_errors(plan.folder)
    row = "" if plan.args.row else f" {plan.settings['algorithm']}"
    if journal.stopped(f"train{row}{user_code.flags(plan.args)}"):
        return 130
    after = _evaluate(plan, learner, learner.policy)
    if plan.processes.is_main:
        report_training(plan.folder, plan.recipe, plan.settings, before, after)
        weights = list(learner.policy.parameters())
        size, trained = sum(w.numel() for w in weights), sum(w.numel() for w in weights if w.requires_grad)
        print(f"speed:      {throughput(plan.folder.history(), size, trained)}")
    return 0


def _begin(plan: Run) -> Learner:
    """A learner at the start that the settings name, and its new folder."""
    settings, recipe, main = plan.settings, plan.recipe, plan.processes.is_main
    plan.folder.check_free(overwrite=plan.args.overwrite)
    policy, vocabulary, described = starts.load_start(
        settings["start"], recipe.task, recipe.config.seed, settings["chat"]
    )
    starts.check_alphabet(vocabulary, recipe.task)
    first = recipe.task.listed or recipe.task.problems("train", recipe.config.prompts, seed=f"{recipe.config.seed}/1/0")
    check_context(policy, vocabulary, recipe, first)  # of made problems those of the first step
    if settings["reward_model"] is not None:
        plan.recipe = train_flags.with_reward_model(recipe, settings["reward_model"], vocabulary, plan.device)
    policy.to(plan.device)  # type: ignore[arg-type]
    critic = teacher = None
    if settings["critic_start"] is not None:
        critic = train_flags.critic_start(settings["critic_start"], vocabulary)
    if settings["teacher"] is not None:
        teacher = train_flags.teacher(settings, recipe.task, vocabulary)
    learner = Learner.begin(policy, vocabulary, recipe.algorithm, recipe.config, critic, teacher)
    plan.processes.barrier()  # until all have checked that the folder is free
    if main:
        plan.folder.create(settings, overwrite=plan.args.overwrite)
        save_learner(learner, plan.folder.checkpoint, settings)  # from now on there is a checkpoint to load
    print(printable(f"{settings['algorithm']} on {recipe.task.name} ({recipe.task.about}), start: {described}"))
    return learner


def _resume(plan: Run) -> Learner:
    """The learner of the folder's checkpoint."""
    if plan.processes.is_main:
        plan.folder.hold()
    checkpoint, recipe, settings = plan.folder.checkpoint, plan.recipe, plan.settings
    critic = teacher = None
    if settings["critic_start"] is not None:
        critic = train_flags.critic_start(settings["critic_start"])  # the checkpoint has its weights
    if settings["teacher"] is not None:
        teacher = train_flags.teacher(settings, recipe.task)
    learner = resume_learner(checkpoint, recipe.algorithm, recipe.config, plan.device, critic, teacher)
    if plan.recipe.config.steps < learner.step:
        raise ValueError(f"{plan.folder.path} has taken {learner.step} steps already: give --steps that many or more")
    if settings["reward_model"] is not None:
        plan.recipe = train_flags.with_reward_model(recipe, settings["reward_model"], learner.vocabulary, plan.device)
    plan.processes.barrier()  # until all have read the files that are rewritten below
    if plan.processes.is_main:
        plan.folder.rewind(learner.step)
        plan.folder.write_settings(plan.settings)
    print(f"resuming {plan.folder.path} after step {learner.step}")
    return learner


def _start_policy(learner: Learner, plan: Run) -> PreTrainedModel:
    """The policy before training: the learner's copy, or loaded again if it keeps none (`watch_kl="off"`)."""
    if learner.start is not None:
        return learner.start
    if learner.step == 0:
        return learner.policy
    recipe, settings = plan.recipe, plan.settings
    policy = starts.load_start(settings["start"], recipe.task, recipe.config.seed, settings["chat"])[0]
    return policy.to(plan.device)  # type: ignore[arg-type]


def throughput(history: Sequence[dict[str, int | float]], parameters: int, trained: int | None = None) -> str:
    """One line on how fast a run was: tokens a second, and the arithmetic that they stand for.

    A forward costs two operations for each parameter and token; a backward two for handing the gradient on, and two
    for a parameter's own, if it is trained. Divided by the machine's peak, this is the model FLOPs utilisation; the
    products inside attention, and what checkpointing computes again, are not counted.

    Args:
        history: The metrics of some steps.
        parameters: Of the model.
        trained: How many of them have a gradient (fewer with LoRA). Default: all.

    Example:
        >>> step = {"tokens": 1000, "tokens_read": 1500, "sampling_seconds": 2.0, "update_seconds": 3.0}
        >>> throughput([step], 1_000_000)
        'sampling 500 tokens/s, update 500 tokens/s (0.003 TFLOP/s)'
        >>> throughput([step], 1_000_000, trained=0)
        'sampling 500 tokens/s, update 500 tokens/s (0.002 TFLOP/s)'
    """
    written, read, sampling, updating = (
        sum(step.get(name, 0) for step in history)
        for name in ("tokens", "tokens_read", "sampling_seconds", "update_seconds")
    )
    told = [f"sampling {written / sampling:,.0f} tokens/s"] if sampling else []
    if updating and read:
        operations = 4 * parameters + 2 * (parameters if trained is None else trained)  # a token
        told.append(f"update {read / updating:,.0f} tokens/s ({operations * read / updating / 1e12:.3g} TFLOP/s)")
    if peak := max((step.get("peak_memory", 0) for step in history), default=0):
        told.append(f"peak memory {peak / 2**30:.2f} GiB")
    return ", ".join(told)
