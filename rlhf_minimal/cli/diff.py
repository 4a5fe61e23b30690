"""`diff`: the cells in which two rows differ."""

import argparse

from rlhf_minimal import anatomy
from rlhf_minimal.cli.python_file import is_program, load
from rlhf_minimal.objective import Algorithm


def add_arguments(sub: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    sub.add_argument("first", metavar="A", help="A row of either table, or FILE.py:NAME for one of your own.")
    sub.add_argument("second", metavar="B", help="Another row.")


def run(args: argparse.Namespace) -> int:
    """Prints column: first -> second."""
    first, second = (load(one, Algorithm) if is_program(one) else one for one in (args.first, args.second))
    print(anatomy.diff(first, second) or "no cell differs")
    return 0
