"""The house style: a curve draws what it was given. (Colours of rows: test_rows.py.)"""

import numpy as np
import pytest
from matplotlib.figure import Figure

from rlhf_book import plotting


def test_a_curve_shows_every_seed_and_their_mean():
    ax = Figure().add_subplot()
    plotting.learning_curve(ax, [1, 2, 3], [[0, 1, 2], [2, 3, 4]], label="grpo", color=plotting.color("grpo"))
    drawn = [line.get_ydata().tolist() for line in ax.lines]
    assert drawn == [[0, 1, 2], [2, 3, 4], [1, 2, 3]]
    assert ax.lines[-1].get_label() == "grpo: mean of 2 seeds"


@pytest.mark.parametrize("width", [1, 3, 50])
def test_running_mean_against_a_loop(width):
    values = np.random.default_rng(0).normal(size=20)
    expected = [np.mean(values[max(0, i - width + 1) : i + 1]) for i in range(20)]
    np.testing.assert_allclose(plotting.running_mean(values, width), expected)
