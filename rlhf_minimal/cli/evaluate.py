"""`evaluate`: the accuracy of a checkpoint on held-out problems."""

import argparse

from rlhf_minimal import training
from rlhf_minimal.cli import checkpoint
from rlhf_minimal.cli.console import at_least_1
from rlhf_minimal.training.evaluation import HELD_OUT

ABOUT = "Measure the accuracy of a checkpoint on held-out problems."
IF_MEMORY_RUNS_OUT = "lower -n"


def add_arguments(sub: argparse.ArgumentParser) -> None:
    """The command's flags."""
    checkpoint.add_arguments(sub)
    sub.add_argument("-n", type=int, default=HELD_OUT, help="Held-out problems (default %(default)s).")


def run(args: argparse.Namespace) -> int:
    """Prints the accuracy of sampled and of greedy completions, or their mean scores."""
    at_least_1(vars(args), "n")
    policy, vocabulary, recipe = checkpoint.load(args)
    result = training.evaluate(policy, vocabulary, recipe, n=args.n, seed=str(args.seed))
    print(f"{recipe.task.about}, held out: {result.about}")
    print("sampled  {}\ngreedy   {}".format(*result.in_words))
    return 0
