"""The house style: a curve draws what it was given. (Colours of rows: test_rows.py.)"""

import re
import sys
import types

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure

from rlhf_book import plotting
from rlhf_minimal.tasks import Problem, get_task


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


def test_a_dial_has_an_arrow_for_each_move_in_the_colour_of_its_sign():
    task, problem = get_task("clock10"), Problem("3+8+....:", "b")
    hours, text = task.alphabet[14:], "3d8c.c=c"
    steps = task.steps(text, problem)
    places = [0, *(hours.index(text[end - 1]) for end, _ in steps)]
    ax = Figure().add_subplot()
    plotting.dial(ax, hours, places, [mark == 1 for _, mark in steps])
    letters = [one.get_text() for one in ax.texts if one.get_text() in hours]
    assert "".join(letters) == hours
    numbers = {one.get_text(): one.get_color() for one in ax.texts if one.get_text().isdigit()}
    assert numbers == {"1": plotting.POSITIVE, "2": plotting.NEGATIVE, "3": plotting.POSITIVE}
    assert len(ax.lines) == 1  # the idle move stays where it is


def test_a_figure_is_drawn_alike_each_time_and_to_a_hundredth_of_a_point():
    def drawn():
        figure = Figure(figsize=(3, 2))
        ax = figure.add_subplot()
        ax.plot(np.linspace(0, 1, 50), np.random.default_rng(0).normal(size=50))
        ax.set_title("a title", fontsize=10.5)
        return plotting.as_svg(figure)

    text = drawn()
    assert text == drawn()
    assert re.fullmatch("<svg .*</svg>", text)
    assert not re.search(r"<text|Date|Matplotlib|\d{4}-\d\d-\d\d", text)
    longer = re.findall(r"\d+\.\d{3,}", re.sub(r"scale\(.*?\)", "", text))
    assert longer == []
    assert "scale(0.105 -0.105)" in text


@pytest.mark.parametrize("shell", [None, "notebook"])
def test_the_style_draws_in_a_notebook_and_needs_none(shell, monkeypatch):
    chosen = {}

    class Formatter(dict):
        def for_type(self, kind, function):
            chosen[kind] = function

    formatters = {name: Formatter({Figure: "before"}) for name in ("image/png", "image/svg+xml")}
    display_formatter = types.SimpleNamespace(formatters=formatters)
    found = types.SimpleNamespace(display_formatter=display_formatter) if shell else None
    ipython = types.SimpleNamespace(get_ipython=lambda: found)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "matplotlib_inline.backend_inline", types.ModuleType("backend_inline"))
    with mpl.rc_context():
        plotting.use_style()
    assert chosen == ({Figure: plotting.as_svg} if shell else {})
    assert formatters["image/png"] == ({} if shell else {Figure: "before"})
