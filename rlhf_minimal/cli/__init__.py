"""The command line, `python -m rlhf_minimal train grpo` and its other commands: one module each.

A mistake of the user ends in one line on standard error and a status that is not zero; settings are checked before the
first file is written.
"""

import argparse
import os
import sys
from typing import Any

import torch
import transformers

from rlhf_minimal.cli import (
    diagnose,
    diff,
    evaluate,
    export,
    memory,
    prefer,
    pretrain,
    reward,
    sample,
    sft,
    table,
    train,
)
from rlhf_minimal.cli.console import OneVerifierWarning, Parser, at_least_1, one_line, printable
from rlhf_minimal.models import is_out_of_memory
from rlhf_minimal.tasks.base import check_name

# A command is a module with `ABOUT`, `add_arguments` and `run`.
COMMANDS: Any = (train, pretrain, sft, reward, prefer, sample, evaluate, diagnose, table, memory, export, diff)


def main(argv: list[str] | None = None) -> int:
    """Runs one command.

    Args:
        argv: The words after `python -m rlhf_minimal`; None takes the process's own.

    Returns:
        0 if all went well, 1 after an error, 130 after Ctrl-C. Words that cannot be parsed exit with 2.
    """
    args = parsed(argv)
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
    grammar = parser()
    args = grammar.parse_args(argv)
    for name, value in vars(args).items():
        if value == []:  # what argparse makes of `--flag=--`
            grammar.error(f"argument --{name.replace('_', '-')}: expected one argument")
        if isinstance(value, str) and name not in ("system", "force_text"):  # those are texts; all others are names
            try:
                check_name(f"--{name.replace('_', '-')}", value)
            except ValueError as error:
                grammar.error(str(error))
    return args


def parser() -> Parser:
    """The command line's grammar."""
    top = Parser(prog="python -m rlhf_minimal", description="Reinforcement learning for language models.")
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    for command in COMMANDS:
        name, about = command.__name__.rpartition(".")[2].lower(), command.ABOUT
        sub = commands.add_parser(name, help=about, description=about)
        # Sums in another order round differently, so the number of threads is part of a run's recipe.
        sub.add_argument(
            "--threads",
            type=int,
            default=1,
            help="Threads on the CPU (default %(default)s). Tiny models gain nothing from more.",
        )
        command.add_arguments(sub)
        sub.set_defaults(command=command)
    return top
