"""The command line, `python -m rlhf_minimal train grpo` and its other commands: one module each.

A mistake of the user ends in one line on standard error and a status that is not zero; settings are checked before the
first file is written.
"""

import argparse
import difflib
import importlib
import os
import re
import sys
from typing import Any

import torch

from rlhf_minimal.cli.console import OneVerifierWarning, Parser, at_least_1, one_line, printable
from rlhf_minimal.functional.checks import check_name

# A command is a module of this folder with `add_arguments` and `run`. It is imported when it is called: `table` needs
# neither transformers nor the laboratory.
COMMANDS = {
    "train": "Train a policy with any row of the table.",
    "pretrain": (
        "Train next-token prediction on the task's texts or on those of a file. If the task has no texts, the model "
        "imitates its teacher, including the mistakes; the result is a start for train."
    ),
    "sft": "Fine-tune on demonstrations, with the loss on the completion only.",
    "reward": (
        "Train a reward model by Bradley-Terry, on pairs of a policy's samples or on those of a file. With "
        "--label-steps, train a process reward model on the steps of samples, for train --step-reward and evaluate "
        "--scorer."
    ),
    "prefer": (
        "Train a policy on preferences without a reward model. The policy before training is the reference, kept in "
        "reference/. The row spin prefers the completions of the data to samples of the reference. One run is one "
        "iteration; start the next run from its result."
    ),
    "sample": (
        "Print completions of a checkpoint for held-out problems or for prompts of your own; or, with --rows, write "
        "its completions of training problems into a file that sft reads."
    ),
    "evaluate": "Measure the accuracy of a checkpoint on held-out problems, by single completions or by votes of many.",
    "diagnose": "Say what stands out in a run's metrics, and what may cause it.",
    "table": "Print the table of algorithms.",
    "memory": "Count the bytes that every model of a run holds.",
    "export": "Write the files with which a production library repeats a run.",
    "diff": "Print the cells in which two algorithms differ.",
}


# What other libraries call a flag.
ELSEWHERE = {
    "--beta": "--kl-coef",
    "--dataset-name": "--task",
    "--learning-rate": "--lr",
    "--max-completion-length": "--max-new-tokens",
    "--max-grad-norm": "--grad-clip",
    "--max-response-length": "--max-new-tokens",
    "--max-steps": "--steps",
    "--model-name-or-path": "--start",
    "--n-samples-per-prompt": "--group-size",
    "--num-generations": "--group-size",
    "--num-iterations": "--epochs",
    "--output-dir": "--out",
}


def main(argv: list[str] | None = None) -> int:
    """Runs one command.

    Args:
        argv: The words after `python -m rlhf_minimal`; None takes the process's own.

    Returns:
        0 if all went well, 1 after an error, 130 after Ctrl-C. Words that cannot be parsed exit with 2.
    """
    args = parsed(argv)
    if transformers := sys.modules.get("transformers"):  # the command needs it
        transformers.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
    threads = torch.get_num_threads()
    try:
        at_least_1(vars(args), "threads")
        torch.set_num_threads(args.threads)
        with OneVerifierWarning():
            return int(args.command.run(args))
    except (Exception, KeyboardInterrupt) as error:
        return _failed(error, args.command)
    finally:
        torch.set_num_threads(threads)


def _failed(error: BaseException, command: Any) -> int:
    """One line about an error of the user or of the machine, and the status; an error of this library is raised on."""
    from rlhf_minimal.model_files import is_out_of_memory  # which needs transformers, so only after an error

    if isinstance(error, KeyboardInterrupt):
        print("interrupted", file=sys.stderr)
        return 130
    if isinstance(error, BrokenPipeError):  # `| head` has read enough; what is still to be flushed goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    elif isinstance(error, ValueError | OSError):
        print(f"error: {one_line(error)}", file=sys.stderr)
    elif is_out_of_memory(error):
        advice = getattr(command, "OOM_HINT", "take a smaller model")
        notes = getattr(error, "__notes__", [])
        print(printable(f"error: {'; '.join([f'out of memory: {advice}', *notes])}"), file=sys.stderr)
    else:
        raise error  # a report of it needs the traceback
    return 1


def parsed(argv: list[str] | None) -> argparse.Namespace:
    """The words of a command line as the flags of a command."""
    words = sys.argv[1:] if argv is None else argv
    grammar = parser(words[0] if words else "")
    args, unknown = grammar.parse_known_args(words)
    if unknown:
        grammar.error(f"unrecognized arguments: {' '.join(unknown)}{_advice(unknown, args.flags)}")
    for name, value in vars(args).items():
        if value == []:  # what argparse makes of `--flag=--`
            grammar.error(f"argument --{name.replace('_', '-')}: expected one argument")
        if isinstance(value, str) and name not in ("system", "force_text"):  # those are texts; all others are names
            try:
                check_name(f"--{name.replace('_', '-')}", value)
            except ValueError as error:
                grammar.error(str(error))
    return args


def _advice(unknown: list[str], known: list[str]) -> str:
    """Which flag of a command may have been meant by the first one that it does not know."""
    flag = next((word.partition("=")[0][2:] for word in unknown if word.startswith("--")), "")
    names = {name[2:]: name for name in known} | {name[2:]: new for name, new in ELSEWHERE.items() if new in known}
    near = difflib.get_close_matches(flag.replace("_", "-").lower(), names, n=1, cutoff=0.7)
    return f"; did you mean {names[near[0]]}?" if near else ""


def parser(*names: str) -> Parser:
    """The command line's grammar; of other commands than those named (none: all are), the name and what it does."""
    top = Parser(prog="python -m rlhf_minimal", description="Reinforcement learning for language models.")
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    for name, about in COMMANDS.items():
        sub = commands.add_parser(name, help=about, description=about)
        if names and name not in names:
            continue
        command = importlib.import_module(f"rlhf_minimal.cli.{name}")
        # Sums in another order round differently, so the number of threads is part of a run's recipe.
        sub.add_argument(
            "--threads",
            type=int,
            default=1,
            help="Threads on the CPU (default %(default)s). Tiny models gain nothing from more.",
        )
        command.add_arguments(sub)
        sub.set_defaults(command=command, flags=re.findall(r"--[\w-]+", sub.format_usage()))
    return top
