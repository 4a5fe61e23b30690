"""The command line: `python -m rlhf_minimal train grpo`, and what goes with it.

Whatever a user can get wrong ends in one line on standard error and a status that is not zero; everything is checked
before the first file is written.
"""

import argparse
import dataclasses
import json
import os
import sys
import typing
from contextlib import nullcontext, redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import torch
import transformers
from matplotlib.axes import Axes
from transformers import PreTrainedConfig, PreTrainedModel

from rlhf_minimal import cli_fit, diff, table
from rlhf_minimal.algorithms import ALGORITHMS, get_algorithm
from rlhf_minimal.cli_shared import (
    ASSETS,
    OneVerifierWarning,
    StopOnCtrlC,
    add_model_flag,
    at_least_1,
    check_alphabet,
    check_writable,
    find_device,
    in_brief,
    load_start,
    model_as_start,
    one_line,
    pointing_to_the_checkpoint,
    report,
    settle,
    untrained,
)
from rlhf_minimal.extras import curves
from rlhf_minimal.extras.compiled import sample_compiled
from rlhf_minimal.extras.export import ONLY_VERIFIER, export_trl, export_verl
from rlhf_minimal.extras.memory import Dtypes, in_units, memory_ledger, memory_table, most_at_once
from rlhf_minimal.extras.trackers import TRACKERS, Trackers
from rlhf_minimal.models import (
    TokenizerVocabulary,
    Vocabulary,
    check_same_vocabulary,
    load_config,
    load_reward_model,
)
from rlhf_minimal.models.folder import is_out_of_memory
from rlhf_minimal.tasks import TASK_NAMES, TASKS, Problem, Task, get_task, model_reward, random_reward
from rlhf_minimal.training import (
    Config,
    Evaluation,
    Learner,
    NothingToLearn,
    Recipe,
    TrustRegion,
    evaluate,
    imitate,
    roll_out,
    save_policy,
    train,
    trust_region_update,
    write_folder,
)
from rlhf_minimal.training.metrics import Metrics, throughput
from rlhf_minimal.training.processes import Processes, launched
from rlhf_minimal.training.progress import Progress
from rlhf_minimal.training.run_folder import RunFolder
from rlhf_minimal.training.trpo import check_trust_region

SHOWN = {"reward": ".2f", "gold": ".2f", "accuracy": ".2f", "kl": ".3f", "entropy": ".3f", "length": ".1f"}

# The settings of `train`, and what may stand there.
KINDS: dict[str, Any] = {
    **dict.fromkeys(("algorithm", "task", "start", "device"), str),
    "reward": typing.Literal["verifier", "random"],
    "reward_model": str | None,
    "kl_coef": float | None,
    "optimizer": typing.Literal["adamw", "trpo"],
    "max_kl": float,
    "chat": typing.Literal["auto", "on", "off"],
    "system": str | None,
    "save_every": int,
    "held_out": int,
    **typing.get_type_hints(Config),
}
FREE = ("save_every", "held_out")  # settings that the training does not feel

# One line of help for every field of `Config`; the flag is the field's name with dashes.
CONFIG_HELP = {
    "steps": "training steps",
    "prompts": "problems per step",
    "group_size": "completions per problem",
    "epochs": "passes over a step's samples",
    "minibatches": "optimiser steps per pass",
    "micro_batches": "forward-backward pieces per optimiser step; saves memory, does not change the result",
    "lr": "learning rate of the policy",
    "value_lr": "learning rate of the critic, for algorithms that have one",
    "value_clip": "clip range of the value loss",
    "critic": "a network of its own, or a value head on the policy's body (with algorithms that have a critic)",
    "value_coef": "weight of the value loss beside the policy's, with --critic shared",
    "value_head_init": "how the critic's head begins",
    "adam_eps": "epsilon of the optimisers",
    "grad_clip": "largest norm of a gradient",
    "temperature": "of the sampler; the log-probs that are trained include it",
    "max_new_tokens": "token budget of a completion; the task's own if not given",
    "score_scaling": "rewards as they are, standardised over the step, or by mean and deviation of all so far",
    "score_clip": "rewards are then clipped to plus or minus this",
    "missing_eos_penalty": "subtracted from completions that ran into the token budget",
    "reference": "what KL terms refer to: the frozen start, the policy every so often, or its moving average",
    "refresh_every": "steps between refreshes, with --reference refresh",
    "ema_decay": "weight of the past per step, with --reference ema",
    "kl_control": "the coefficient of a KL against the reference stays, or follows a controller",
    "kl_control_target": "nats per completion that --kl-control adaptive aims at",
    "kl_control_horizon": "completions in which it may change the coefficient by a fifth",
    "target_kl": "nats per token from the sampler at which a step's updates end",
    "baseline": "for algorithms that take one: mean of past rewards, or the greedy answer's reward",
    "baseline_decay": "weight of the past per step, with --baseline ema",
    "verifier_timeout": "seconds for the verifier of one completion, which gets 0 if they are not enough",
    "max_refills": "extra rounds of sampling to replace groups that the algorithm filters out",
    "watch_kl": "report the distance from the start, which costs a forward a step",
    "fast": "leave out what would be computed twice or for nothing; off is the plain path, results are the same",
    "precision": "of forward and backward; weights and moments are float32 in any case",
    "gradient_checkpointing": "keep each layer's input only and compute the rest again in the backward; saves memory",
    "lora_rank": "train corrections of this rank beside the frozen weights",
    "lora_alpha": "a correction counts this much over the rank",
    "decoding": "a cache that grows, or fixed shapes and a compiled step, on CUDA a graph",
    "seed": "decides everything random",
}


CHAT_HELP = "write prompts with the model's chat template (default auto: if it has one)"

# Steps of a size that leaves a real model standing; the defaults of `Config` are for tiny ones.
REAL_MODEL = {"lr": 1e-5, "value_lr": 1e-5}
REAL_MODEL_WITH_LORA = {"lr": 1e-4, "value_lr": 1e-4}

# What can be lowered, command by command.
IF_MEMORY_RUNS_OUT = {
    "train": "raise --micro-batches, or lower --prompts, --group-size or --max-new-tokens",
    "pretrain": "lower --batch-size, or --rows",
    "sft": "lower --batch-size, or --rows",
    "reward": "lower --batch-size, or --rows",
    "sample": "lower -n",
    "evaluate": "lower -n",
}


def main(argv: list[str] | None = None) -> int:
    """Runs one command.

    Args:
        argv: The words after `python -m rlhf_minimal`; None takes the process's own.

    Returns:
        0 if all went well, 1 after an error, 130 after Ctrl-C. Words that cannot be parsed exit with 2.
    """
    grammar = parser()
    args = grammar.parse_args(argv)
    for name, value in vars(args).items():
        if value == []:  # what argparse makes of `--flag=--`
            grammar.error(f"argument --{name.replace('_', '-')}: expected one argument")
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    threads = torch.get_num_threads()
    try:
        at_least_1(vars(args), "threads")
        torch.set_num_threads(args.threads)
        with OneVerifierWarning():
            return int(args.command(args))
    except ValueError as error:
        return _fail(one_line(error))
    except BrokenPipeError:  # `| head` has read enough; what is still to be flushed goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        return _fail(one_line(error))
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise  # a mistake of ours, and its traceback is wanted
        notes = getattr(error, "__notes__", [])
        return _fail("; ".join([f"out of memory: {args.advice}", *notes]))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    finally:
        torch.set_num_threads(threads)


def _fail(line: str) -> int:
    print(f"error: {line}", file=sys.stderr)
    return 1


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {one_line(ValueError(message))} (try --help)\n")


def parser() -> argparse.ArgumentParser:
    """The command line's grammar."""
    top = _Parser(prog="python -m rlhf_minimal", description="Reinforcement learning for language models.")
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Any, about: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=about, description=about)
        # Sums in another order round differently, so the number of threads is part of a run's recipe.
        sub.add_argument(
            "--threads", type=int, default=1, help="CPU threads; tiny models gain nothing by more (default 1)"
        )
        sub.set_defaults(command=run, advice=IF_MEMORY_RUNS_OUT.get(name, "take a smaller model"))
        return sub

    sub = command("train", _train, "train a policy with any row of the table")
    sub.add_argument("algorithm", metavar="ALGORITHM", help=", ".join(ALGORITHMS))
    sub.add_argument("--task", help=f"{TASK_NAMES} (default addition)")
    sub.add_argument("--start", help="a checkpoint folder, 'untrained', or hf:NAME (default: the shipped one)")
    add_model_flag(sub, "--start")
    sub.add_argument("--chat", choices=["auto", "on", "off"], help=CHAT_HELP)
    sub.add_argument("--system", metavar="TEXT", help="system message before every prompt (default: the task's own)")
    sub.add_argument("--reward", choices=["verifier", "random"], help="random is the control arm (default verifier)")
    sub.add_argument(
        "--reward-model",
        metavar="FOLDER",
        help="train for a reward model's score: a folder as `reward` writes one, or 'shipped' (task reviews)",
    )
    sub.add_argument("--kl-coef", type=float, metavar="FLOAT", help="another coefficient in the row's KL cell")
    sub.add_argument(
        "--optimizer", choices=["adamw", "trpo"], help="minibatches with AdamW, or one step in a trust region"
    )
    sub.add_argument(
        "--max-kl", type=float, metavar="FLOAT", help="bound on a trust region's step, nats a token (default 0.01)"
    )
    sub.add_argument("--device", help="cpu, cuda, mps (default cpu)")
    sub.add_argument(
        "--tracker", action="append", choices=TRACKERS, help="hand the metrics on as well; may be repeated"
    )
    sub.add_argument("--out", help="run folder (default: a new one under runs/)")
    sub.add_argument("--resume", action="store_true", help="continue the run in --out with its own settings")
    sub.add_argument("--overwrite", action="store_true", help="replace the run in --out")
    sub.add_argument("--save-every", type=int, help="steps between checkpoints (default 25)")
    sub.add_argument("--held-out", type=int, help="problems of the evaluation (default 1000)")
    kinds = typing.get_type_hints(Config)
    for field in dataclasses.fields(Config):
        options = typing.get_args(kinds[field.name])  # of `float | None` or of `Literal["a", "b"]`
        kind = options[0] if options else kinds[field.name]
        choices = options if isinstance(kind, str) else None
        sub.add_argument(
            "--" + field.name.replace("_", "-"),
            type=str if choices else kind,
            choices=choices,
            metavar=None if choices else kind.__name__.upper(),
            help=f"{CONFIG_HELP[field.name]} (default {field.default})",
        )

    sub = command("pretrain", _pretrain, cli_fit.ABOUT["pretrain"])
    having = [task.name for task in TASKS.values() if task.corpus or task.teacher]
    sub.add_argument("--task", help=f"{', '.join(having)} (default addition)")
    sub.add_argument("--steps", type=int, help="optimiser steps (default 1300, on texts 300)")
    sub.add_argument("--batch-size", type=int, help="problems or texts per step (default 128, on texts 64)")
    sub.add_argument("--lr", type=float, help="peak learning rate (default 3e-3)")
    sub.add_argument("--seed", type=int, help="decides weights and problems or texts (default 0)")
    sub.add_argument("--accept", type=float, default=0.14, help="largest loss of an acceptable start (default .14)")
    sub.add_argument("--device", help="cpu, cuda, mps (default cpu)")
    sub.add_argument("--out", help="checkpoint folder (default runs/start-TASK); on texts, run folder")
    sub.add_argument("--overwrite", action="store_true", help="replace what is in --out")
    cli_fit.add_arguments(sub.add_argument_group("on texts"), "pretrain")
    for name in ("sft", "reward", "prefer"):
        cli_fit.add_arguments(command(name, partial(cli_fit.run, command=name), cli_fit.ABOUT[name]), name)

    for name, run, about in (
        ("sample", _sample, "let a checkpoint answer problems"),
        ("evaluate", _evaluate, "accuracy of a checkpoint on held-out problems"),
    ):
        sub = command(name, run, about)
        sub.add_argument("checkpoint", nargs="?", help="run or checkpoint folder, or 'start' (default: the newest run)")
        add_model_flag(sub, "a checkpoint")
        sub.add_argument("--chat", choices=["auto", "on", "off"], default="auto", help=CHAT_HELP)
        sub.add_argument("--system", metavar="TEXT", help="system message (default: the run's own, else the task's)")
        sub.add_argument("--task", help="default: the run's own, else addition")
        sub.add_argument("--device", default="cpu", help="cpu, cuda, mps (default cpu)")
        sub.add_argument("--seed", type=int, default=0, help="decides problems and samples (default 0)")
        if name == "sample":
            sub.add_argument("--prompt", action="append", help="your own prompt; may be repeated")
            sub.add_argument("-n", type=int, default=8, help="held-out problems, if no prompt is given (default 8)")
            sub.add_argument("--temperature", type=float, default=1.0, help="0 is greedy (default 1)")
        else:
            sub.add_argument("-n", type=int, default=1000, help="held-out problems (default 1000)")

    sub = command("table", _table, "print the table of algorithms")
    sub.add_argument("--all", action="store_true", help="Also print the rows that have no chapter yet.")
    sub = command("memory", _memory, "count the bytes that every model of a run holds")
    sub.add_argument("algorithm", metavar="ALGORITHM", help=", ".join(ALGORITHMS))
    sub.add_argument("--model", help="as train has it, or a run; no weight is read (default: the shipped start)")
    sub.add_argument(
        "--reward-model", nargs="?", const="", metavar="FOLDER", help="the reward is learned; default: as the policy"
    )
    sub.add_argument("--sequences", type=int, default=8, help="completions in one forward-backward (default 8)")
    sub.add_argument("--sampled", type=int, help="completions sampled at once (default: as --sequences)")
    sub.add_argument("--prompt-length", type=int, help="in tokens (default 512, or half of the context)")
    sub.add_argument("--completion-length", type=int, help="in tokens (default 512, or half of the context)")
    sub.add_argument("--lora-rank", type=int, help="corrections of this rank are trained beside frozen weights")
    sub.add_argument("--gradient-checkpointing", choices=["on", "off"], default="off", help="as train has it")
    precisions = sub.add_mutually_exclusive_group()
    precisions.add_argument(
        "--precision", choices=["float32", "bfloat16"], default="float32", help="as train has it: weights are float32"
    )
    precisions.add_argument(
        "--mixed",
        action="store_true",
        help="as other libraries have it: bfloat16 weights, with moments and a master copy in float32",
    )
    sub = command("export", _export, "write a run down for a production library")
    sub.add_argument("run", metavar="RUN", help="run folder of train")
    sub.add_argument("--to", choices=["trl", "verl"], required=True, help="TRL 1.16 or verl 0.9")
    sub.add_argument("--out", help="folder to write (default: the run's, with -trl or -verl at the end)")
    sub.add_argument("--overwrite", action="store_true", help="replace an export that is there")
    sub = command("diff", _diff, "print the cells in which two algorithms differ")
    sub.add_argument("first", metavar="A")
    sub.add_argument("second", metavar="B")
    return top


# --- train ---------------------------------------------------------------------------------------------------------


def _train(args: argparse.Namespace) -> int:
    folder, settings, recipe, device = _plan(args)
    processes, device = launched(device)
    if processes.count > 1 and settings["optimizer"] == "trpo":
        raise ValueError("--optimizer trpo takes its step in one process: launch it without accelerate")
    if recipe.config.prompts < processes.count:
        raise ValueError(f"{processes.count} processes share {recipe.config.prompts} problems a step: raise --prompts")
    trackers = Trackers(args.tracker, folder.path, settings, device) if args.tracker else None
    try:
        with open(os.devnull, "w") as nowhere, nullcontext() if processes.is_main else redirect_stdout(nowhere):
            return _train_as(processes, args, folder, settings, recipe, device, trackers)
    finally:
        processes.disconnect()


def _train_as(
    processes: Processes,
    args: argparse.Namespace,
    folder: RunFolder,
    settings: dict[str, Any],
    recipe: Recipe,
    device: torch.device,
    trackers: Trackers | None,
) -> int:
    """A run, as one of the processes that share it; only the main one writes."""
    main = processes.is_main
    if args.resume:
        learner = Learner.resume(folder.checkpoint, recipe.algorithm, recipe.config, device)
        recipe = _with_reward_model(recipe, settings["reward_model"], learner.vocabulary, device)
        processes.wait()  # until all have read what is written anew below
        if main:
            folder.rewind(learner.step)
            folder.write_settings(settings)
        print(f"resuming {folder.path} after step {learner.step}")
    else:
        folder.check_free(overwrite=args.overwrite)
        start, seed = settings["start"], recipe.config.seed
        policy, vocabulary, described = load_start(start, recipe.task, seed, settings["chat"])
        check_alphabet(vocabulary, recipe.task)
        recipe = _with_reward_model(recipe, settings["reward_model"], vocabulary, device)
        settings["start"] = described
        policy.to(device)  # type: ignore[arg-type]
        learner = Learner.begin(policy, vocabulary, recipe.algorithm, recipe.config)
        processes.wait()  # until all have found the folder free
        if main:
            folder.create(settings, overwrite=args.overwrite)
            learner.save(folder.checkpoint, settings)  # so that there is something to load from the first second on
        print(f"{args.algorithm} on {recipe.task.name} ({recipe.task.about}), start: {described}")
    learner.processes = processes
    start_policy = _start_policy(learner, settings, recipe).to(device)  # type: ignore[arg-type]
    before = evaluate(start_policy, learner.vocabulary, recipe, n=settings["held_out"], processes=processes)
    del start_policy
    updater = None
    if settings["optimizer"] == "trpo":
        updater = partial(trust_region_update, region=TrustRegion(max_kl=settings["max_kl"]))

    graded = recipe.task.score_range is not None  # then nothing is simply right, and an accuracy says nothing
    shown = {name: form for name, form in SHOWN.items() if not (graded and name == "accuracy")}
    progress = Progress(recipe.config.steps, shown, done=learner.step)
    stop = StopOnCtrlC()
    if trackers is not None:
        trackers.begin()

    def on_step(metrics: Metrics) -> bool:
        stop.asked = processes.agree(stop.asked)
        if main:
            folder.append(metrics)
        progress.update(learner.step, metrics)
        if trackers is not None:
            trackers.log(metrics)
        if main and (learner.step % settings["save_every"] == 0 or stop.asked):
            folder.flush()
            learner.save(folder.checkpoint, settings)
        return not stop.asked

    early = None
    try:
        with stop, pointing_to_the_checkpoint(folder):
            train(learner, recipe, on_step, updater=updater)
    except NothingToLearn as reason:
        early = str(reason)
    finally:
        progress.close()
        if trackers is not None:
            trackers.end()
    if early:
        print(f"stopped early at {early}")
    if main:
        if errors := sum(row.get("verifier_errors", 0) for row in folder.history()):
            print(f"warning: the verifier failed on {errors} completions of this run, which got 0", file=sys.stderr)
        with pointing_to_the_checkpoint(folder):
            folder.flush()
            learner.save(folder.checkpoint, settings)
    if stop.asked and learner.step < recipe.config.steps:
        again = f"python -m rlhf_minimal train {args.algorithm} --out {folder.path} --resume"
        print(f"stopped after step {learner.step}; go on with: {again}")
        return 130
    after = evaluate(learner.policy, learner.vocabulary, recipe, n=settings["held_out"], processes=processes)
    if main:
        _report(folder, settings, recipe, before, after)
        weights = list(learner.policy.parameters())
        size, trained = sum(w.numel() for w in weights), sum(w.numel() for w in weights if w.requires_grad)
        print(f"speed:      {throughput(folder.history(), size, trained)}")
    return 0


def _start_policy(learner: Learner, settings: dict[str, Any], recipe: Recipe) -> PreTrainedModel:
    """What the run began with: the learner's own, or, where it keeps none (`watch_kl`), from where it came."""
    if learner.start is not None:
        return learner.start
    return learner.policy if learner.step == 0 else _load_again(settings, recipe)[0]


def _load_again(
    settings: dict[str, Any], recipe: Recipe
) -> tuple[PreTrainedModel, Vocabulary | TokenizerVocabulary, str]:
    """The start of a run that was described by `load_start`."""
    name = "shipped" if settings["start"].startswith("shipped") else settings["start"]
    return load_start(name, recipe.task, recipe.config.seed, settings["chat"])


def _plan(args: argparse.Namespace) -> tuple[RunFolder, dict[str, Any], Recipe, torch.device]:
    """Everything that can be settled, and found wrong, before anything is loaded or written."""
    model_as_start(args)
    given = {f.name: getattr(args, f.name) for f in dataclasses.fields(Config) if getattr(args, f.name) is not None}
    others = (
        "algorithm",
        "task",
        "start",
        "chat",
        "system",
        "reward",
        "reward_model",
        "kl_coef",
        "optimizer",
        "max_kl",
        "device",
        *FREE,
    )
    given |= {name: getattr(args, name) for name in others if getattr(args, name) is not None}
    defaults: dict[str, Any] = {"command": "train", "algorithm": args.algorithm}
    defaults |= {"task": "addition", "reward": "verifier", "save_every": 25, "held_out": 1000}
    defaults |= {"reward_model": None, "kl_coef": None, "optimizer": "adamw", "max_kl": TrustRegion().max_kl}
    defaults |= {"start": "shipped", "device": "cpu", "chat": "auto", "system": None} | dataclasses.asdict(Config())
    if given.get("start", "").startswith("hf:"):
        defaults |= REAL_MODEL_WITH_LORA if "lora_rank" in given else REAL_MODEL
    get_algorithm(args.algorithm)  # a name that does not exist is said first
    may_change = ("steps", "device", *FREE)
    folder, settings = settle(args, defaults, given, kinds=KINDS, may_change=may_change, name=args.algorithm)

    at_least_1(settings, *FREE)
    recipe, device = _recipe(settings), find_device(settings["device"])
    if settings["optimizer"] == "trpo":
        TrustRegion(max_kl=settings["max_kl"])
        check_trust_region(recipe)
    elif "max_kl" in given:
        raise ValueError("--max-kl is the bound of a trust region: give --optimizer trpo as well")
    return folder, settings, recipe, device


def _recipe(settings: dict[str, Any]) -> Recipe:
    """What a run trains, by its settings; a reward model is checked against the start before it is the reward."""
    name, coef = settings["algorithm"], settings["kl_coef"]
    algorithm, task = get_algorithm(name), get_task(settings["task"])
    config = Config(**{field.name: settings[field.name] for field in dataclasses.fields(Config)})
    if "group" in algorithm.needs and config.group_size < 2:
        raise ValueError(f"{name} compares completions of one prompt: --group-size must be at least 2")
    if coef is not None:
        if len(algorithm.kl) != 1:
            raise ValueError(f"--kl-coef changes a row's KL cell, but {name} has {len(algorithm.kl)} of them")
        algorithm = dataclasses.replace(algorithm, kl=(dataclasses.replace(algorithm.kl[0], coef=coef),))
    if settings["system"] is not None:
        task = dataclasses.replace(task, instruction=settings["system"])
    reward = random_reward(config.seed) if settings["reward"] == "random" else None
    if settings["reward_model"] is not None and reward is not None:
        raise ValueError("--reward random and --reward-model are two rewards: give one of them")
    return Recipe(algorithm, task, config, reward, sampler=sample_compiled if config.decoding == "compiled" else None)


def _with_reward_model(
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


def _report(folder: RunFolder, settings: dict[str, Any], recipe: Recipe, before: Evaluation, after: Evaluation) -> None:
    """The end of a run: samples before and after, accuracies with their intervals, and the curve."""
    rows = [("problem", "before", "after")]
    for i in range(min(8, len(before.samples.texts))):
        marks = [_mark(recipe.task, float(e.samples.correct[i])) for e in (before, after)]
        cells = [f"{in_brief(e.samples.texts[i])} {mark}" for e, mark in zip((before, after), marks, strict=True)]
        rows.append((in_brief(before.samples.problems[i].prompt), cells[0], cells[1]))
    first, width = (
        max(12, 2 + max(len(cell) for cell, _, _ in rows)),
        max(16, 2 + max(len(cell) for _, cell, _ in rows)),
    )
    lines = [f"{problem:<{first}}{one:<{width}}{other}" for problem, one, other in rows]
    lines += ["", f"held-out {_measure(recipe.task)}, {before.sampled.n} problems, 95 % interval"]
    lines.append(f"{'':<12}{'before':<24}{'after':<24}")
    for name, one, other in zip(("sampled", "greedy"), before.in_words, after.in_words, strict=True):
        lines.append(f"{name:<12}{one:<24}{other:<24}")

    def draw(ax: Axes, history: list[Metrics]) -> None:
        steps = [row["step"] for row in history]
        color = curves.POLICY if settings["reward"] == "verifier" else curves.CONTROL
        if recipe.task.score_range is None:
            name, limits = "accuracy", (0.0, 1.0)
        else:
            name, limits = "gold" if recipe.reward else "reward", recipe.task.score_range
        measured = [row[name] for row in history]
        curves.learning_curve(ax, steps, [measured], label=settings["algorithm"], color=color, smooth=5)
        ax.set(xlabel="training step", ylabel=f"{_measure(recipe.task)}, sampled", ylim=limits)
        ax.set_title(f"{recipe.task.about}, seed {recipe.config.seed}, mean of 5 steps", fontsize=9)

    text = "\n".join(line.rstrip() for line in lines)
    report(folder, text, {"before": before.as_json(), "after": after.as_json()}, draw)
    print(f"try it:     python -m rlhf_minimal sample {folder.path}")


# --- pretrain ------------------------------------------------------------------------------------------------------


def _pretrain(args: argparse.Namespace) -> int:
    if args.resume:
        return cli_fit.run(args, "pretrain")  # the run knows its task
    args.task = args.task or "addition"
    task = get_task(args.task)
    if task.corpus or args.data:
        return cli_fit.run(args, "pretrain")
    for name in ("start", "rows", "held_out"):
        if getattr(args, name) is not None:
            raise ValueError(
                f"--{name.replace('_', '-')} is for texts, and {task.name} has none: give --data, or use sft"
            )
    defaults = {"steps": 1300, "batch_size": 128, "lr": 3e-3, "seed": 0, "device": "cpu"}
    vars(args).update({name: value for name, value in defaults.items() if getattr(args, name) is None})
    device = find_device(args.device)
    at_least_1(vars(args), "steps", "batch_size")
    out = Path(args.out or f"runs/start-{task.name}")
    if out.exists() and not args.overwrite:
        raise ValueError(f"{out} exists already: --overwrite replaces it")
    if out.exists() and not (out / "model.safetensors").exists():
        raise ValueError(f"{out} is no checkpoint of ours, so it is not replaced; name another folder with --out")
    if task.teacher is None:
        instead = "--start untrained" if task.alphabet else "--model NAME"
        raise ValueError(f"the task {task.name!r} has no teacher to imitate; train on it with {instead}")
    check_writable(out)  # now, and not after a minute's work

    model, vocabulary = untrained(task, args.seed)
    model.to(device)  # type: ignore[arg-type]
    progress = Progress(args.steps, {"loss": ".3f"}, every=100)
    try:
        loss = imitate(
            model,
            vocabulary,
            task,
            steps=args.steps,
            batch_size=args.batch_size,
            lr=args.lr,
            seed=args.seed,
            on_step=lambda step, loss: progress.update(step, {"loss": loss}),
        )
    finally:
        progress.close()
    recipe = Recipe(ALGORITHMS["reinforce"], task)  # any row: only its task is used to evaluate
    result = evaluate(model, vocabulary, recipe)
    print(f"loss {loss:.4f}; held-out accuracy sampled {result.sampled}, greedy {result.greedy}")
    if not loss <= args.accept:
        raise ValueError(
            f"the start is not accepted and not written: its loss is {loss:.3f}, and should be at most {args.accept} "
            "(RL from a start that has not learnt all of the teacher stalls); try another --seed or more --steps"
        )
    notes = {
        "command": f"python -m rlhf_minimal pretrain --task {task.name} --steps {args.steps} "
        f"--batch-size {args.batch_size} --lr {args.lr} --seed {args.seed}",
        "loss": round(loss, 4),
        "held_out": {"n": 1000, "sampled": result.sampled.share, "greedy": result.greedy.share},
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
    }

    def write(new: Path) -> None:
        save_policy(new, model, vocabulary)
        (new / "pretrain.json").write_text(json.dumps(notes, indent=2) + "\n")

    write_folder(out, write)
    print(f"wrote {out}")
    return 0


# --- export --------------------------------------------------------------------------------------------------------


def _export(args: argparse.Namespace) -> int:
    folder, out = RunFolder(args.run), Path(args.out or f"{args.run}-{args.to}")
    settings = folder.settings("train", KINDS)
    if out.exists() and not args.overwrite:
        raise ValueError(f"{out} exists already: --overwrite replaces it")
    if out.exists() and not (out / "model").is_dir():
        raise ValueError(f"{out} is no export of ours, so it is not replaced; name another folder with --out")
    check_writable(out)
    if settings["optimizer"] != "adamw":
        raise ValueError(f"only runs with AdamW are exported, and {folder.path} has {settings['optimizer']}")
    if settings["reward_model"] is not None:
        raise ValueError(ONLY_VERIFIER)
    recipe = _recipe(settings)
    policy, vocabulary, _ = _load_again(settings, recipe)
    {"trl": export_trl, "verl": export_verl}[args.to](recipe, policy, vocabulary, out)
    print(f"wrote {out}: {'python train.py' if args.to == 'trl' else 'bash train.sh'} there trains it")
    return 0


# --- memory --------------------------------------------------------------------------------------------------------


def _memory(args: argparse.Namespace) -> int:
    algorithm = get_algorithm(args.algorithm)
    policy = _model_config(args.model or str(ASSETS / "addition"))
    reward_model = policy if args.reward_model == "" else args.reward_model and _model_config(args.reward_model)
    context = policy.max_position_embeddings
    lengths = {name: getattr(args, name) for name in ("prompt_length", "completion_length")}
    lengths = {name: min(512, context // 2) if value is None else value for name, value in lengths.items()}
    if sum(lengths.values()) > context:
        raise ValueError(f"prompt and completion are {sum(lengths.values())} tokens, this model's context is {context}")
    half = torch.bfloat16
    dtypes = Dtypes(activations=half) if args.precision == "bfloat16" else Dtypes()
    if args.mixed:
        dtypes = Dtypes(half, half, torch.float32, half, master=torch.float32)
    rows = memory_ledger(
        algorithm,
        policy,
        reward_model=reward_model,
        sequences=args.sequences,
        sampled=args.sampled,
        gradient_checkpointing=args.gradient_checkpointing == "on",
        lora_rank=args.lora_rank,
        dtypes=dtypes,
        **lengths,
    )
    print(memory_table(rows))
    if rows[0].activations is not None:
        print(f"\nat once, at most: {in_units(most_at_once(rows))}")
    return 0


def _model_config(name: str) -> PreTrainedConfig:
    run = Path(name) / "checkpoint"
    return load_config(str(run) if run.is_dir() else name)


# --- sample, evaluate, table, diff ---------------------------------------------------------------------------------


def _sample(args: argparse.Namespace) -> int:
    if args.n < 1 or args.temperature < 0:
        raise ValueError(f"need -n at least 1 and --temperature at least 0; got {args.n} and {args.temperature}")
    if "" in (args.prompt or []):
        raise ValueError("the prompt is empty: give --prompt at least one character")
    policy, vocabulary, recipe = _load(args)
    task = recipe.task
    # A prompt of one's own comes without an answer, so nobody can mark it.
    own = [Problem(prompt, answer="") for prompt in args.prompt or []]
    problems = own or task.problems("held_out", args.n, seed=f"sample/{args.seed}")
    found = roll_out(policy, vocabulary, problems, recipe, temperature=args.temperature, seed=str(args.seed))
    asked = [in_brief(problem.prompt) for problem in problems]
    first, width = max(12, 2 + max(map(len, asked))), max(12, 2 + max(map(len, found.texts)))
    for prompt, text, correct in zip(asked, found.texts, found.correct.tolist(), strict=True):
        if "\n" in text:  # an answer of several lines is shown as it was written
            print(f"{prompt}  {'' if own else _mark(task, correct)}\n{text}\n")
        else:
            print(f"{prompt:<{first}}{text:<{width}}{'' if own else _mark(task, correct)}".rstrip())
    return 0


def _evaluate(args: argparse.Namespace) -> int:
    at_least_1(vars(args), "n")
    policy, vocabulary, recipe = _load(args)
    result = evaluate(policy, vocabulary, recipe, n=args.n, seed=str(args.seed))
    print(f"{recipe.task.about}: {args.n} held-out problems, 95 % interval")
    print("sampled  {}\ngreedy   {}".format(*result.in_words))
    return 0


def _table(args: argparse.Namespace) -> int:
    print(table(ALGORITHMS if args.all else None))
    return 0


def _diff(args: argparse.Namespace) -> int:
    print(diff(args.first, args.second) or "no cell differs")
    return 0


# --- shared --------------------------------------------------------------------------------------------------------


def _load(args: argparse.Namespace) -> tuple[PreTrainedModel, Vocabulary | TokenizerVocabulary, Recipe]:
    """Model, task and budget of `sample` and `evaluate`: those of a run, unless others are named."""
    device, path = find_device(args.device), args.checkpoint
    if args.task:
        get_task(args.task)
    if path is not None and args.model is not None:
        raise ValueError("--model is evaluated in place of a checkpoint: give one of them")
    if path is None and args.model is not None:
        path = f"hf:{args.model}"
    if path is None:
        runs = list(Path("runs").glob("*/metrics.jsonl"))
        if not runs:
            raise ValueError("no run under runs/: train first, or name a checkpoint folder, or 'start'")
        path = str(max(runs, key=lambda found: found.stat().st_mtime).parent)
        print(f"newest run: {path}", file=sys.stderr)
    own = {}
    if path == "start":
        path = str(ASSETS / (args.task or "addition"))
    elif (Path(path) / "metrics.jsonl").exists():
        own = RunFolder(path).settings()
    task = get_task(args.task or own.get("task", "addition"))
    system = own.get("system") if args.system is None else args.system
    if system is not None:
        task = dataclasses.replace(task, instruction=system)
    policy, vocabulary, _ = load_start(path, task, 0, args.chat)
    check_alphabet(vocabulary, task)
    policy.to(device)  # type: ignore[arg-type]
    same = {} if args.task else {k: own[k] for k in ("max_new_tokens", "precision") if k in own}
    # Any row of the table: only task, budget and precision are used to sample and to evaluate.
    return policy, vocabulary, Recipe(ALGORITHMS["reinforce"], task, Config(**same))


def _mark(task: Task, score: float) -> str:
    """What the task's verifier said of one answer."""
    if task.score_range is not None:
        return f"({score:g})"
    return "right" if score == 1 else "wrong"


def _measure(task: Task) -> str:
    """What an evaluation of the task is the mean of."""
    if task.score_range is None:
        return "accuracy"
    return "score ({:g} to {:g})".format(*task.score_range)
