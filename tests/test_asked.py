"""The 35 questions of "RL Interview Questions 2026": all are answered, and every proof is there."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "book" / "_ext"))

import asked  # noqa: E402

ALL = [entry for entries in asked.asked().values() for entry in entries]


def test_there_are_35_answers_and_no_question_twice():
    assert len(ALL) == 35
    assert len({entry.about for entry in ALL}) == len({entry.answer for entry in ALL}) == 35


def test_every_proof_leads_to_a_cell_that_asserts_or_to_a_test():
    assert asked.problems() == []


def test_most_are_shown_and_the_others_say_why_not():
    assert sum(bool(entry.proof) for entry in ALL) >= 30
    assert all(entry.cannot for entry in ALL if not entry.proof)


@pytest.mark.parametrize(("part", "numbers"), [("algorithms", range(1, 20)), ("infrastructure", range(20, 36))])
def test_the_page_has_them_in_order_with_their_evidence(part, numbers):
    text = asked.page(part)
    assert [int(n) for n in re.findall(r"^### (\d+)\. ", text, re.MULTILINE)] == list(numbers)
    rooms = re.split(r"^### ", text, flags=re.MULTILINE)[1:]
    for room, entry in zip(rooms, asked.asked()[part], strict=True):
        assert room.count("\n- ") == len(entry.proof)
        assert ("Cannot be shown here" in room) == bool(entry.cannot)
        assert entry.answer in room


def test_the_page_stands_beside_the_interview():
    toc = (ROOT / "_toc.yml").read_text(encoding="utf-8")
    assert "file: book/interview\n      - file: book/asked\n" in toc
    text = (ROOT / "book" / "asked.md").read_text(encoding="utf-8")
    assert all(f"{{generated}} asked:page {part}" in text for part in asked.PARTS)


ANSWER = " ".join(45 * ["word"])


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("{about: a}", "expected about, answer, proof and cannot"),
        ("{about: a, answer: too short, cannot: b}", "40 to 60 words, and this has 2"),
        (f"{{about: a, answer: {ANSWER}}}", "it has no proof, and does not say what cannot be shown"),
        (f"{{about: a, answer: {ANSWER}, cannot: b}}", "expected .*19.*, got"),
    ],
)
def test_an_incomplete_entry_is_refused(tmp_path, entry, said):
    path = tmp_path / "asked.yml"
    path.write_text(f"algorithms:\n  - {entry}\ninfrastructure: []\n", encoding="utf-8")
    with pytest.raises(ValueError, match=said):
        asked.asked(path)


def test_a_proof_that_is_not_there_is_named(monkeypatch):
    entry = asked.Asked("a", ANSWER, ("grpo#no-such-idea", "tests/test_asked.py::test_no_such_test", "no-page#x"))
    monkeypatch.setattr(asked, "asked", lambda path: {"algorithms": [entry]})
    assert len(asked.problems()) == 3
