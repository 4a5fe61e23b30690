"""`sample`: print completions of a checkpoint, or write them down as rows that `sft` reads."""

import argparse
import shlex
from pathlib import Path
from typing import Any

from rlhf_minimal.cli import checkpoint
from rlhf_minimal.cli.console import at_least_1, in_brief, printable
from rlhf_minimal.cli.journal import check_writable, mark
from rlhf_minimal.functional.checks import check_temperature
from rlhf_minimal.lab.rows import write_rows
from rlhf_minimal.lab.sampled_rows import sample_completions
from rlhf_minimal.tasks import Problem
from rlhf_minimal.train import roll_out
from rlhf_minimal.training.checkpoints import clear_io_errors

OOM_HINT = "lower -n"


def add_arguments(sub: argparse.ArgumentParser) -> None:
    """The command's flags."""
    checkpoint.add_arguments(sub)
    sub.add_argument("--prompt", action="append", help="A prompt of your own. May be repeated.")
    sub.add_argument("-n", type=int, default=8, help="Problems to ask, if no prompt is given (default %(default)s).")
    sub.add_argument(
        "--temperature", type=float, default=1.0, help="Sampling temperature, 0 for greedy (default %(default)g)."
    )
    sub.add_argument(
        "--rows",
        metavar="FILE.jsonl",
        help="Write prompts and completions of training problems into this new file, for sft --data, and print none.",
    )
    sub.add_argument(
        "--group-size", type=int, metavar="INT", help="Completions for each problem, with --rows (default 1)."
    )
    sub.add_argument(
        "--keep",
        choices=("right", "all"),
        help="Which completions --rows writes: those that the verifier calls right, or all that end (default right).",
    )


def run(args: argparse.Namespace) -> int:
    """Prints one line for each problem: prompt, completion, and what the verifier says; or writes rows."""
    if args.n < 1 or args.temperature < 0:
        raise ValueError(f"need -n at least 1 and --temperature at least 0; got {args.n} and {args.temperature}")
    if args.temperature:  # what is no number is refused here
        check_temperature(args.temperature)
    if "" in (args.prompt or []):
        raise ValueError("the prompt is empty: give --prompt at least one character")
    if args.rows is not None:
        return _write_rows(args)
    if args.group_size is not None or args.keep is not None:
        raise ValueError("--group-size and --keep say what --rows writes: give --rows FILE.jsonl as well")
    policy, vocabulary, recipe = checkpoint.load(args)
    # A prompt of the user's own comes without an answer, so no verifier can check its completion.
    own = [Problem(prompt, answer="") for prompt in args.prompt or []]
    problems = own or recipe.task.problems("held_out", args.n, seed=f"sample/{args.seed}", distinct=True)
    written = roll_out(policy, vocabulary, problems, recipe, temperature=args.temperature, seed=str(args.seed))
    asked, texts = [in_brief(problem.prompt) for problem in problems], [printable(text) for text in written.texts]
    first, width = max(12, 2 + max(map(len, asked))), max(12, 2 + max(map(len, texts)))
    for i, (prompt, text, correct) in enumerate(zip(asked, texts, written.correct.tolist(), strict=True)):
        verdict = "" if own else mark(recipe.task, correct)
        if "\n" in text:  # a completion of several lines is shown as it was written
            print(f"{prompt}  {verdict}\n{text}\n")
        else:
            print(f"{prompt:<{first}}{text:<{width}}{verdict}".rstrip())
        if recipe.task.picture is not None:
            print(printable(recipe.task.picture(written.texts[i], problems[i])), end="\n\n")
    return 0


def _write_rows(args: argparse.Namespace) -> int:
    """Completions of training problems as rows of a file: for rejection sampling, or for a student."""
    file, group_size, keep = Path(args.rows), 1 if args.group_size is None else args.group_size, args.keep or "right"
    if args.prompt:
        raise ValueError("--rows asks training problems, and --prompt is one of your own: give one of them")
    at_least_1(vars(args), "group_size")
    if file.exists():
        raise ValueError(f"{file} exists already: name a new file with --rows, or remove it")
    check_writable(file)
    policy, vocabulary, recipe = checkpoint.load(args)
    options: dict[str, Any] = {"temperature": args.temperature, "seed": args.seed, "keep": keep}
    rows = sample_completions(policy, vocabulary, recipe, problems=args.n, group_size=group_size, **options)
    words = f"{len(rows)} of {args.n * group_size} completions of {args.n} training problems"
    if not rows:
        raise ValueError(f"{words} are kept, so there is no row to write: raise -n or --group-size, or give --keep all")
    with clear_io_errors(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_rows(file, rows)
    print(f"wrote {words} into {file}: train on them with `sft --data {shlex.quote(str(file))} --start FOLDER`")
    return 0
