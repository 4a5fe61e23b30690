"""What the tests of the command line share: commands that must fail, and the numbers that a run has written."""

import inspect
import json

from matplotlib.figure import Figure

from rlhf_minimal.cli import fitting, main
from rlhf_minimal.metrics import NONDETERMINISTIC

# What a run on rows draws in the end to score its policy: a thousand samples take longer than its steps in a test.
SCORED = inspect.unwrap(fitting.score_samples)
USUAL, SCORED.__defaults__ = SCORED.__defaults__, (50,)


def fails(capsys, *argv):
    """Runs a command that must fail, and say why in one line; returns that line."""
    try:
        code = main(list(argv))
    except SystemExit as stopped:
        code = stopped.code
    captured = capsys.readouterr()
    assert code not in (0, None)
    lines = captured.err.splitlines()
    assert len(lines) == 1, captured.err
    assert lines[0].startswith("error: "), lines[0]
    return lines[0]


def rows(run):
    """The metrics of every step, without the clock's."""
    found = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if name not in NONDETERMINISTIC} for row in found]


class Blank(Figure):
    """The picture of a run: made, filled and written, but not drawn, which takes longer than two steps of training."""

    def draw(self, renderer):
        """Nothing."""
