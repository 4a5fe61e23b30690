"""The checks' own tools: what a chapter costs, and what is run for one row of the tables."""

import re
import signal
import subprocess
import sys
from functools import cache

import pytest

from rlhf_minimal import ALGORITHMS, PAIRWISE
from tests import costs, row

REPORT = """\
<testsuites><testsuite>
<testcase classname="notebooks.grpo.ipynb" name="Cell 0" time="3.5" />
<testcase classname="notebooks.grpo.ipynb" name="Cell 1" time="1.5" />
<testcase classname="notebooks.dr-grpo.ipynb" name="Cell 0" time="2.0" />
<testcase classname="tests.exercises.test_checkers" name="test_the_solution_passes[grpo-k3]" time="0.5" />
<testcase classname="tests.exercises.test_checkers" name="test_each_mistake[dr-grpo-loss-mean]" time="0.25" />
<testcase classname="tests.exercises.test_dr_grpo" name="test_a_variant" time="0.125" />
<testcase classname="tests.exercises.test_checkers" name="test_verdicts_are_the_same" time="7" />
<testcase classname="tests.results.test_sweeps" name="test_the_first_steps[a]" time="4" />
<testcase classname="tests.results.test_unread" name="test_the_first_steps[a]" time="9" />
<testcase classname="tests.browser.test_pages" name="test_a_page[notebooks/dr-grpo.html]" time="0.01">
<properties><property name="seconds" value="6.0" /></properties></testcase>
<testcase classname="tests.test_properties" name="test_padding[grpo]" time="11" />
</testsuite></testsuites>
"""


@pytest.fixture
def cases(tmp_path):
    (tmp_path / "report.xml").write_text(REPORT)
    return costs.read(tmp_path / "report.xml")


@pytest.fixture
def book(tmp_path):
    (tmp_path / "results").mkdir()
    for name in ("sweeps", "unread"):
        (tmp_path / "results" / f"{name}.json").write_text("{}")
    (tmp_path / "grpo.ipynb").write_text(r'{"source": ["check(\"grpo-k3\", f)", "open(\"results/sweeps.json\")"]}')
    (tmp_path / "dr-grpo.ipynb").write_text(r'{"source": ["check(\"dr-grpo-loss\", f)", "results/sweeps.json"]}')
    return costs.Book(tmp_path)


def test_what_a_chapter_costs(cases, book):
    found = book.costs(cases)
    assert found == {
        costs.NO_CHAPTER: {"records": 9.0},
        "dr-grpo": {"notebook": 2.0, "exercises": 0.375, "records": 2.0, "pages": 6.0},  # a record is shared by two
        "grpo": {"notebook": 5.0, "exercises": 0.5, "records": 2.0},
    }
    head, *lines = costs.table(found)
    assert head.split() == [*costs.KINDS, "all", "chapter"]
    assert lines[0].split() == ["2.0", "0.4", "2.0", "6.0", "10.4", "dr-grpo"]


def test_the_slowest_files(cases):
    assert costs.slowest(cases, n=3) == [
        (11.0, "tests.test_properties"),
        (9.0, "tests.results.test_unread"),
        (7.75, "tests.exercises.test_checkers"),
    ]


def test_every_exercise_and_every_record_of_a_chapter_is_counted():
    """Else the table would be too small, silently: each chapter asks its exercises, and its records have tests."""
    book = costs.Book()
    for id, chapter in book.asks.items():
        assert book.about(costs.Case("tests.exercises.test_checkers", f"test_x[{id}]", 1.0)) == ("exercises", [chapter])
    assert len(book.asks) > 40
    assert {chapter for chapters in book.reads.values() for chapter in chapters} <= set(book.chapters)


@pytest.fixture(scope="module")
def named_by():
    """The files of tests that name a function; rows share most of theirs."""
    tests = {
        str(path): path.read_text(encoding="utf-8")
        for path in (row.ROOT / "tests").glob("**/test_*.py")
        if path.name != "test_suite.py"
    }
    return cache(lambda function: row.where(function, tests))


@pytest.mark.parametrize("name", [*ALGORITHMS, *PAIRWISE])
def test_each_function_of_a_row_is_named_by_a_test(name, named_by):
    functions = list(row.functions(row.rows()[name]))
    assert functions
    assert [function.__name__ for function in functions if not named_by(function)] == []


def test_the_functions_of_a_row_are_those_of_its_cells():
    names = [function.__name__ for function in row.functions(ALGORITHMS["grpo"])]
    assert names == ["group_normalized", "token", "clip", "sequence_mean", "k3"]


def test_where_a_function_is_named():
    tests = {"a": "gates.clip(r) + gates.clip_weight(r)", "b": "from x.gates import (none)\n", "c": "torch.clip(r)"}
    (clip,) = (f for f in row.functions(ALGORITHMS["grpo"]) if f.__name__ == "clip")
    (k3,) = (f for f in row.functions(ALGORITHMS["grpo"]) if f.__name__ == "k3")
    assert row.where(clip, tests) == {"a": 1}
    assert row.where(clip, {"d": "from x.gates import clip"}) == {"d": 1}
    assert row.where(k3, {"e": 'KL(0.1, "k3")'}) == {"e": 1}


class Item:
    """A test as pytest collects it, as much of it as is asked for."""

    def __init__(self, function, **params):
        self.function = function
        if params:
            self.callspec = type("Spec", (), {"params": params})


def test_tests_of_a_row_are_chosen_by_parameter_or_by_source():
    def of_every_row(name):
        assert name

    def names_one():
        assert ALGORITHMS["grpo"] is not ALGORITHMS["dr_grpo"]

    assert row.is_about(Item(of_every_row, name="grpo"), "grpo")
    assert not row.is_about(Item(of_every_row, name="dr_grpo"), "grpo")
    assert row.is_about(Item(of_every_row, name="trl: grpo eps=.2"), "grpo")
    assert row.is_about(Item(names_one), "grpo")
    assert row.is_about(Item(names_one, seed=3), "dr_grpo")
    assert not row.is_about(Item(names_one), "ppo")
    assert not row.is_about(Item(names_one, name="ppo"), "grpo")  # a test of each row, given another one


def test_an_unknown_row_is_an_error_with_the_nearest_one(capsys):
    assert row.main(["gropo"]) == 2
    assert capsys.readouterr().out == "error: the tables have no row 'gropo'; the nearest is grpo\n"


@pytest.mark.parametrize("arguments", [[], ["grpo", "ppo"], ["--help"]])
def test_without_one_name_it_says_how_it_is_used(arguments, capsys):
    assert row.main(arguments) == 2
    assert re.match(r"usage: python -m tests row NAME\b", capsys.readouterr().out)


@pytest.mark.skipif(sys.platform == "win32", reason="it has no such signals")
def test_an_interrupt_reaches_a_test_and_the_commands_that_it_starts():
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    waits = "import signal\nsignal.alarm(60)\nprint('up', flush=True)\nsignal.pause()"
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM, signal.SIGQUIT):
        going = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", waits], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        try:
            assert going.stdout.readline() == b"up\n"
            going.send_signal(number)
            assert going.wait(30) in (-number, 128 + number)
        finally:
            going.kill()
            going.stdout.close()


@pytest.mark.skipif(sys.platform == "win32", reason="it has no such signals")
def test_a_suite_in_the_background_is_the_same_suite():
    """As `make test &`, nohup and cron start it: with signals that are ignored."""
    one = f"{__file__}::test_an_interrupt_reaches_a_test_and_the_commands_that_it_starts"
    start = ["sh", "-c", 'trap "" INT QUIT HUP TERM ALRM; exec "$@"', "sh", sys.executable, "-m", "pytest", "-q"]
    run = subprocess.run([*start, "-p", "no:cacheprovider", one], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout
    assert "1 passed" in run.stdout
