"""The record takes an outcome over when nothing that it depends on has changed, and the report never claims more."""

import shutil

import pytest

from tests.mutation import record, report, sources
from tests.mutation.mutator import mutants
from tests.mutation.record import MODULE, SURVIVED, Now, Record, code_hashes
from tests.mutation.report import REPORT

LIBRARY = '''
"""What stands here."""

FACTOR = 2


def double(x: int) -> int:
    """Twice x."""
    return FACTOR * x  # not x + x


def less(a, b=1):
    return a < b
'''

TESTS = """
import json
from pathlib import Path

from tests.helper import three

from library.maths import double, less

CASES = json.loads((Path(__file__).parent / "data" / "cases.json").read_text())


def close(a, b):
    return abs(a - b) < 1e-9


def test_double(small):
    assert close(double(three()), 6)


def test_less():
    assert less(0)
"""

CONFTEST = """
import pytest


@pytest.fixture
def small():
    return 1


@pytest.fixture
def large():
    return 1000
"""

FUNCTIONS = {"double", "less", MODULE}


@pytest.fixture
def house(tmp_path, monkeypatch):
    """A library of one file with its tests, tried once: `test_double` and `test_less` killed all mutants but one."""
    files = {
        "library/maths.py": LIBRARY,
        "tests/test_maths.py": TESTS,
        "tests/conftest.py": CONFTEST,
        "tests/helper.py": "def three():\n    return 3\n",
        "tests/data/cases.json": "[1]",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for module in (record, sources):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(record, "DATA", tmp_path / "tests" / "data")
    monkeypatch.setattr(record, "RECORD", tmp_path / "record.json")
    monkeypatch.setattr(sources, "ASKED", {"library/*.py": ("tests/test_maths.py",)})
    forget()
    written = Record()
    now = Now(written)
    for function, found in now.mutants.items():
        killer = "tests/test_maths.py::test_less" if function[1] == "less" else "tests/test_maths.py::test_double"
        written.functions[function] = {
            "code": now.codes[function],
            "tests": record.tests_hash(function[0]),
            "commit": "0123456789ab",
            "outcomes": [(killer, record.test_hash(killer))] * len(found),
        }
    written.functions["library/maths.py", "less"]["outcomes"][-1] = SURVIVED
    written.save()
    yield tmp_path
    forget()


def forget():
    """Files are read once in a run."""
    for function in (record.parsed, record.hashes, record.around, record.test_hash, record.tests_hash):
        function.cache_clear()


def after(house, name, old, new):
    """The names of the functions that are stale, and those to try, after an edit of one file."""
    text = (house / name).read_text()
    assert old in text
    (house / name).write_text(text.replace(old, new, 1))
    forget()
    now = Now(Record.load())
    return {function for _, function in now.stale()}, {function for (_, function), _ in now.to_try()}


def test_what_has_not_changed_is_not_tried_again(house):
    assert Now(Record.load()).to_try() == []
    assert Now(Record.load()).stale() == {}


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("library/maths.py", "Twice x.", "x and x."),
        ("library/maths.py", "  # not x + x", ""),
        ("library/maths.py", "FACTOR * x", "(FACTOR\n        * x)"),
        ("tests/conftest.py", "1000", "2000"),
    ],
)
def test_words_and_layout_and_what_is_not_used_change_nothing(house, file, old, new):
    assert after(house, file, old, new) == (set(), set())


@pytest.mark.parametrize(
    ("file", "old", "new", "stale"),
    [
        ("library/maths.py", "FACTOR * x", "x * FACTOR", {"double"}),
        ("library/maths.py", "b=1", "b=2", {"less", MODULE}),
        ("library/maths.py", "FACTOR = 2", "FACTOR = 3", {MODULE}),
        ("tests/test_maths.py", "three()), 6", "three()), 6.0", {"double", MODULE}),
        ("tests/test_maths.py", "test_less", "test_smaller", {"less"}),
        ("tests/test_maths.py", "1e-9", "1e-3", FUNCTIONS),
        ("tests/conftest.py", "return 1\n", "return 2\n", FUNCTIONS),
        ("tests/helper.py", "return 3", "return 6 / 2", FUNCTIONS),
        ("tests/data/cases.json", "1", "2", FUNCTIONS),
    ],
)
def test_a_change_makes_stale_what_leans_on_it(house, file, old, new, stale):
    assert after(house, file, old, new)[0] == stale


def test_a_test_more_kills_no_less_and_may_kill_a_survivor(house):
    stale, work = after(house, "tests/test_maths.py", "def test_less", "def test_more():\n    pass\n\n\ndef test_less")
    assert stale == set()
    assert work == {"less"}


def test_a_case_that_is_named_after_a_file_beside_it_reads_that_file(house):
    (house / "tests" / "grpo.py").write_text("BETA = 1")
    hashes = {}
    for beta in (1, 2):
        (house / "tests" / "grpo.py").write_text(f"BETA = {beta}")
        forget()
        hashes[beta] = [record.test_hash(f"tests/test_maths.py::test_less[{case}]") for case in ("grpo-x", "ppo-x")]
    assert hashes[1][0] != hashes[2][0]
    assert hashes[1][1] == hashes[2][1]


def test_a_record_is_read_as_it_was_written(house):
    written = Record.load()
    written.save()
    assert Record.load().functions == written.functions


def test_a_source_that_has_moved_is_an_error(house):
    shutil.move(house / "library", house / "elsewhere")
    with pytest.raises(FileNotFoundError, match=r"library/\*\.py"):
        sources.tests_of_sources()


PROPERTY = """
class C:
    @property
    def x(self):
        return 1

    @x.setter
    def x(self, y):
        self.y = {}
"""


def test_a_property_is_its_getter_and_its_setter():
    one, two = (code_hashes(text, mutants(text)) for text in (PROPERTY.format("y"), PROPERTY.format("-y")))
    assert one["C.x"] != two["C.x"]
    assert one[MODULE] == two[MODULE]


def test_the_report_names_everything_that_is_stale():
    """Functions that have changed since they were tried, or whose tests have: `--report` names them, in a second."""
    now = Now(Record.load())
    lines = REPORT.read_text().partition("## Not fresh")[2].partition("\n## ")[0].splitlines()
    named = {
        (file, function)
        for file in {file for file, _ in now.mutants}
        for line in lines
        if line.startswith(f"- `{file}`, ")
        for function in line.partition(": ")[2].replace("`", "").split(", ")
    }
    silent = [", ".join((*function, why)) for function, why in now.stale().items() if function not in named]
    assert not silent, (
        "tests/mutation/REPORT.md speaks of code or tests that have changed. `make mutants` tries them again, "
        "`python -m tests.mutation --report` says in the report that they are stale:\n" + "\n".join(silent)
    )


def test_the_report_counts_what_the_record_says():
    """Nobody edits the page by hand: its figures are those of the record, unless it says what is stale."""
    now = Now(Record.load())
    text, _ = report.report(now)
    figure = next(line for line in text.splitlines() if line.startswith("**"))
    if not now.stale():
        assert figure in REPORT.read_text()
    assert figure.startswith(f"**{sum(map(len, now.mutants.values()))} mutants")
