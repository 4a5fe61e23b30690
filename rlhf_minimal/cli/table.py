"""`table`: the table of algorithms."""

import argparse

from rlhf_minimal import anatomy
from rlhf_minimal.algorithms import ALGORITHMS, ROWS
from rlhf_minimal.cli.python_file import load
from rlhf_minimal.objective import Algorithm
from rlhf_minimal.pairs import PAIRWISE


def add_arguments(sub: argparse.ArgumentParser) -> None:
    """The command's flags."""
    sub.add_argument("--all", action="store_true", help="Print the further rows, of losses in use in 2026, as well.")
    sub.add_argument("--pairs", action="store_true", help="Print the second table: rows that learn from preferences.")
    sub.add_argument(
        "--row",
        metavar="FILE.py:NAME",
        action="append",
        help="Print a row of your own as well: the Python file is run. May be repeated.",
    )


def run(args: argparse.Namespace) -> int:
    """Prints it as Markdown."""
    own = {text.rpartition(":")[2]: load(text, Algorithm) for text in args.row or []}
    chapters = {name: row for name, row in ALGORITHMS.items() if args.all or name in ROWS}
    print(anatomy.table(PAIRWISE if args.pairs else chapters | own))
    return 0
