"""`sample`: print completions of a checkpoint."""

import argparse

from rlhf_minimal.cli import checkpoint
from rlhf_minimal.cli.console import in_brief, mark
from rlhf_minimal.tasks import Problem
from rlhf_minimal.training import roll_out

ABOUT = "Print completions of a checkpoint for held-out problems or for prompts of your own."
IF_MEMORY_RUNS_OUT = "lower -n"


def add_arguments(sub: argparse.ArgumentParser) -> None:
    """The command's flags."""
    checkpoint.add_arguments(sub)
    sub.add_argument("--prompt", action="append", help="A prompt of your own. May be repeated.")
    sub.add_argument(
        "-n", type=int, default=8, help="Held-out problems to ask, if no prompt is given (default %(default)s)."
    )
    sub.add_argument(
        "--temperature", type=float, default=1.0, help="Sampling temperature, 0 for greedy (default %(default)g)."
    )


def run(args: argparse.Namespace) -> int:
    """Prints one line for each problem: prompt, completion, and what the verifier says."""
    if args.n < 1 or args.temperature < 0:
        raise ValueError(f"need -n at least 1 and --temperature at least 0; got {args.n} and {args.temperature}")
    if "" in (args.prompt or []):
        raise ValueError("the prompt is empty: give --prompt at least one character")
    policy, vocabulary, recipe = checkpoint.load(args)
    # A prompt of the user's own comes without an answer, so no verifier can check its completion.
    own = [Problem(prompt, answer="") for prompt in args.prompt or []]
    problems = own or recipe.task.problems("held_out", args.n, seed=f"sample/{args.seed}", distinct=True)
    written = roll_out(policy, vocabulary, problems, recipe, temperature=args.temperature, seed=str(args.seed))
    asked = [in_brief(problem.prompt) for problem in problems]
    first, width = max(12, 2 + max(map(len, asked))), max(12, 2 + max(map(len, written.texts)))
    for prompt, text, correct in zip(asked, written.texts, written.correct.tolist(), strict=True):
        verdict = "" if own else mark(recipe.task, correct)
        if "\n" in text:  # a completion of several lines is shown as it was written
            print(f"{prompt}  {verdict}\n{text}\n")
        else:
            print(f"{prompt:<{first}}{text:<{width}}{verdict}".rstrip())
    return 0
