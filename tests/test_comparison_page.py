"""The page that compares the rows: what it says of numbers that were made up, and nothing of missing ones."""

import re
import sys
from pathlib import Path

import pytest

from rlhf_book import benchmark
from rlhf_book.benchmark import explorer_table, read_groups
from tests.results.made_up import made_up_record, script

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "book" / "_ext"))

import comparison_page as page  # noqa: E402

TEXT = (ROOT / "book" / "comparison.md").read_text(encoding="utf-8")
PARTS = re.findall(r"^```\{generated\} comparison_page:(\w+)(?: (\S+))?$", TEXT, re.MULTILINE)


@pytest.fixture
def recorded(monkeypatch):
    """Puts a record in the place of the book's."""

    def put(record):
        monkeypatch.setattr(benchmark, "read_record", lambda name: record)
        monkeypatch.setattr(page, "read_record", lambda name: record)

    return put


def all_parts():
    return {(name, group): getattr(page, name)(*([group] if group else [])) for name, group in PARTS}


def test_the_page_has_every_group():
    for name in script.GROUPS:
        assert ("results", name) in PARTS
        assert ("separated", name) in PARTS
    assert ("settings", "") in PARTS
    assert not re.search(r"0\.\d{2,}", TEXT.replace("0.05", ""))  # no result is typed in by hand


@pytest.mark.parametrize("record", [None, made_up_record(("addition-1",), left_out=1)])
def test_what_is_not_recorded_is_said_to_be_so(recorded, record):
    recorded(record)
    found = all_parts()
    for (name, group), text in found.items():
        if name in ("results", "separated"):
            assert text.startswith("Not recorded yet"), (name, group)
        assert " is ahead of " not in text
    if record:
        planned = len(script.plan(["addition-1"]))
        assert f"{planned - 1} of {planned} runs" in found["results", "addition-1"]
        assert f"0 of {len(script.plan(['clock-4']))}" in found["settings", ""]
    assert explorer_table(record)["groups"] == []


def test_a_row_that_is_ahead_is_said_to_be_and_noise_is_not(recorded):
    recorded(made_up_record(("addition-1", "addition-4"), ahead=("reinforce",)))
    for name in ("addition-1", "addition-4"):
        text = page.separated(name)
        group = read_groups()[name]
        pairs = group.pairs("sampled")
        apart = {pair for pair, one in pairs.items() if one.separated}
        others = [row for row in group.own if row != "reinforce"]
        assert apart <= {("reinforce", row) for row in others}
        assert len(apart) > len(others) // 2
        end = text.split("\n\n")[0]
        assert f"Of {len(pairs)} pairs {len(apart)} are separated." in end
        (ahead,) = re.findall(r"`(\w+)` is ahead of (.*?)\. ", end)
        assert ahead[0] == "reinforce"
        assert set(re.findall(r"`(\w+)`", ahead[1])) == {row for _, row in apart}
        assert f"The other {len(pairs) - len(apart)} are not separated" in end
        assert f"All {len(group.own)} are separated from the coin" in end


def test_where_all_are_alike_the_page_says_that(recorded):
    recorded(made_up_record(("clock-4",), ahead=()))
    end = page.separated("clock-4").split("\n\n")[0]
    assert "Of 136 pairs 0 are separated. All 136 are not separated" in end
    assert " is ahead of " not in end


def test_a_table_has_a_line_a_run_in_the_order_of_the_book(recorded):
    recorded(made_up_record(("addition-1", "reviews-4")))
    lines = page.results("addition-1").splitlines()[1:-1]
    names = [line.split("|")[1].strip() for line in lines[2:]]
    assert names[:4] == ["`reinforce`", "`rloo`", "`ppo`", "`reinforce_pp`"]
    assert "`gspo` = `gspo_token` = `gmpo` = `sapo`" in names
    assert "`cispo` = `vespo`" in names
    assert names[-1] == "coin"
    assert len(names) == 14
    assert "reward model" in page.results("reviews-4")
    assert "reward model" not in page.results("addition-1")
    assert "`dr_grpo` = `kimi_k2`" in page.shared("addition-1")
    assert "No two" in page.shared("reviews-4")


def test_intervals_are_those_of_the_seeds():
    assert page.spread([0.1, 0.2, 0.3]) == "0.200 [\u22120.048, 0.448]"  # .2 +- 4.303 x .1 / sqrt(3)


def test_the_matrix_turns_its_sign_and_marks_what_is_not_separated(recorded):
    recorded(made_up_record(("addition-1",)))
    group = read_groups()["addition-1"]
    head, _, *lines = page.matrix(group).splitlines()
    names = re.findall(r"`(\w+)`", head)
    cells = {line.split("`")[1]: [cell.strip() for cell in line.strip("|").split("|")[1:]] for line in lines}
    for i, one in enumerate(names):
        assert cells[one][i] == ""
        for j, other in enumerate(names):
            there, back = cells[one][j], cells[other][i]
            assert (there == "·") == (back == "·")
            if "+" in there:
                assert back == there.replace("+", "\u2212")
    assert any("+" in cell for cell in cells["reinforce"])


def test_an_edge_of_the_rates_is_told(recorded, monkeypatch):
    monkeypatch.setattr("tests.results.made_up.BEST", 0)
    recorded(made_up_record(("reviews-4",)))
    assert "`ppo` (lowest)" in page.edges("reviews-4")
    monkeypatch.setattr("tests.results.made_up.BEST", 1)
    recorded(made_up_record(("reviews-4",)))
    assert page.edges("reviews-4") == "No row had its best rate at an edge of the four."


def test_a_group_that_does_not_exist_is_an_error_of_the_page(recorded):
    recorded(made_up_record(("reviews-4",)))
    with pytest.raises(ValueError, match="no group 'addition-2'"):
        page.results("addition-2")


def test_all_parts_can_be_made_from_the_record_as_it_is():
    for part, text in all_parts().items():
        assert isinstance(text, str), part


def test_what_would_have_been_enough_is_that_of_the_first_pair(recorded):
    recorded(made_up_record(("reviews-4",)))
    assert "would have been enough to be the first that is separated." in page.separated("reviews-4")


def test_the_versions_are_those_of_the_lines(recorded):
    record = made_up_record(("reviews-4",))
    recorded(record)
    assert "Recorded with torch 0, python 3, by `" in page.recorded()
    record["runs"][0]["versions"] = {"torch": "1"}
    rest = len(record["runs"]) - 1
    assert f"Recorded with torch 0 ({rest} runs) and 1 (1 run), python 3, by `" in page.recorded()


def test_a_record_without_anything_gives_no_groups():
    """And not those of the book's own record."""
    assert read_groups({}) == {}
    assert explorer_table({})["groups"] == []
