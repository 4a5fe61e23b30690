"""A row of the table is declared once, and what belongs to it is there: facts, transcription, paper, generated text."""

import shutil

import pytest
import yaml
from matplotlib.colors import to_rgb

from rlhf_book import facts, plotting
from rlhf_minimal import ALGORITHMS
from tests import complete


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_row_is_complete(name):
    if lacking := complete.missing(name):
        lines = "\n".join(f"  - {line}" for line in lacking)
        pytest.fail(f"the row {name!r} is declared, and this is still to be written:\n{lines}", pytrace=False)


def test_everything_that_a_new_row_needs_is_said_at_once():
    words = "\n".join(complete.missing("mine"))
    for key in facts.KEYS:
        assert f"rlhf_minimal/row_facts.yml, under mine: {key} is missing: write " in words
    assert "book/references.bib: an entry of its paper" in words
    assert "tests/transcriptions/mine.py: loss(*, logp, old_logp, mask" in words


def test_no_word_is_about_a_row_that_is_not_there():
    assert [name for name in facts.names() if name not in ALGORITHMS] == []


# ---- the reader ---------------------------------------------------------------------------------------------------


@pytest.fixture
def edited(tmp_path):
    """A copy of the file in which one row is changed."""

    def edit(name, **changes):
        path = tmp_path / "row_facts.yml"
        shutil.copy(facts.ROWS, path)
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
        data["rows"].setdefault(name, {}).update(changes)
        data["rows"][name] = {key: value for key, value in data["rows"][name].items() if value is not None}
        path.write_text(yaml.safe_dump(data), encoding="utf-8")
        return path

    return edit


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"why": None}, "why is missing: write a sentence on what the row is for"),
        (
            {"why": None, "share": 3},
            "share is 3, and should be TeX, a token's part of a batch at ratio 1; why is missing",
        ),
        ({"family": "kings"}, "family is 'kings', and should be one of the families"),
        ({"line": "wavy"}, "line is 'wavy', and should be solid, dashed"),
        ({"line": "solid"}, "line: 'solid' is taken by reinforce, of the same family"),
        ({"paper": "kool2019"}, "paper is 'kool2019', and should be a list of keys"),
        ({"steps": [{"from": "nowhere", "addresses": "a", "leaves_open": "b"}]}, "steps is [{"),
        ({"fidelity": {"paper": "x"}}, "fidelity is {'paper': 'x'}, and should be {paper: ..., trl: {differs: ...}"),
        ({"colour": "red"}, "'colour' is no key of a row; there are title, family"),
    ],
)
def test_what_is_wrong_with_an_entry_is_said_with_its_row(edited, changes, words):
    path = edited("rloo", **changes)
    with pytest.raises(ValueError) as caught:
        facts.facts_of("rloo", path)
    assert str(caught.value).startswith(f"{path}, row rloo: ")
    assert words in str(caught.value)


def test_a_row_that_nothing_leads_to_or_from_is_not_complete(edited):
    (line,) = facts.missing("sapo", edited("sapo", steps=[]))
    assert line.startswith("steps is empty, and no other row is a step from this one")
    assert facts.missing("grpo", edited("grpo", steps=[])) == []


def test_an_unknown_row_is_told_with_the_nearest():
    with pytest.raises(ValueError, match=r"row_facts.yml says nothing of the row 'rlo'; did you mean rloo\?"):
        facts.facts_of("rlo")


# ---- colours ------------------------------------------------------------------------------------------------------


def test_a_family_has_a_colour_that_nothing_else_has():
    found = facts.families()
    assert len(found) <= 8, "more colours cannot be told apart: give the row to one of the families"
    colours = [*(family.color for family in found.values()), plotting.POSITIVE, plotting.NEGATIVE, plotting.CONTROL]
    assert len({to_rgb(colour) for colour in colours}) == len(colours)
    assert {facts.facts_of(name).family for name in complete.COMPLETE} == set(found), "a family without a row"


def test_no_two_rows_are_drawn_alike():
    drawn = {name: (plotting.color(name), plotting.line_style(name)) for name in complete.COMPLETE}
    assert len(set(drawn.values())) == len(drawn)
    assert set(plotting.LINES) == set(facts.LINES)
    assert (plotting.color("mine"), plotting.line_style("mine")) == ("#000000", "solid")


@pytest.mark.parametrize("code", ["__import__('os')", "w.real", "w ** 9", "[w]", "open('x')", "lambda: w", "v"])
def test_a_formula_is_arithmetic_and_nothing_else(code):
    with pytest.raises(ValueError, match="no arithmetic"):
        complete.value(code, w=1.0)
    assert complete.value("0 if (w > 1.2 and w < 2) or w < 0.5 else -min(w, 5) / 2", w=3.0) == -1.5
