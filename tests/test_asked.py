"""The 35 questions of "RL Interview Questions 2026": all are answered, and every proof is there."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import apparatus
import asked

ROOT = Path(__file__).resolve().parents[1]

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
        ("{about: a}", "lacks .*answer"),
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


LOST = {
    "grpo#no-such-idea": "no cell of notebooks/grpo claims 'no-such-idea'",
    "grpo#proof-no-such-anchor": "no cell of notebooks/grpo claims 'proof-no-such-anchor'",
    "no-page#x": "notebooks/no-page is not a page of the book",
    "q-no-such-question": "there is no such question",
    "tests/test_asked.py::test_no_such_test": "there is no test tests/test_asked.py::test_no_such_test",
}


@pytest.mark.parametrize("name", LOST)
def test_a_proof_that_is_not_there_is_named_and_stops_the_page(monkeypatch, name):
    entry = asked.Asked("a", ANSWER, ("grpo#group-advantage", name, "q-pg-baseline"))
    monkeypatch.setattr(asked, "asked", lambda *_: {"algorithms": [entry]})
    said = f"{name}: {LOST[name]}"
    assert asked.problems() == [said]
    with pytest.raises(ValueError, match=f"asked.yml: {re.escape(said)}"):
        asked.page("algorithms")


def test_a_cell_that_asserts_nothing_any_more_stops_the_page(monkeypatch):
    found = [replace(c, source="") if c.page == "notebooks/grpo" else c for c in apparatus.claims()]
    monkeypatch.setattr(apparatus, "claims", lambda: found)
    with pytest.raises(ValueError, match="grpo#group-advantage: the cell of notebooks/grpo .* asserts nothing"):
        asked.page("algorithms")


def test_the_notebooks_are_read_once_for_a_page(monkeypatch):
    claims, calls = apparatus.claims(), []
    monkeypatch.setattr(apparatus, "claims", lambda: calls.append(1) or claims)
    asked.page("infrastructure")
    assert len(calls) == 1


# ── proofs that stand nowhere else ───────────────────────────────────────────────────────────────────────────────────


def summed(numbers, pieces):
    """A sum in float32, from left to right within each piece, then over the pieces."""
    partial = []
    for piece in numbers.chunk(pieces):
        total = torch.zeros(())
        for number in piece:
            total = total + number
        partial.append(total)
    whole = torch.zeros(())
    for total in partial:
        whole = whole + total
    return whole.item()


def test_a_sum_cut_into_other_pieces_has_other_last_digits():
    """No threads, no atomic addition: a cut gives the same number every time, and another cut another number."""
    numbers = torch.randn(1024, generator=torch.Generator().manual_seed(0))
    found = {pieces: summed(numbers, pieces) for pieces in (1, 4, 16, 64)}
    assert found == {pieces: summed(numbers, pieces) for pieces in found}
    assert len(set(found.values())) > 1
    exact = numbers.double().sum().item()
    assert max(abs(value - exact) for value in found.values()) < 1e-4


def test_a_second_reduction_multiplies_a_sum_and_leaves_a_mean():
    """Four ranks: reduced once and twice, and what SGD and Adam make of the factor."""
    ranks = torch.randn(4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    mean, total = ranks.mean(0).expand(4, 3), ranks.sum(0).expand(4, 3)
    torch.testing.assert_close(mean.mean(0), mean[0])
    torch.testing.assert_close(total.sum(0), 4 * total[0])

    def moved(optimizer, gradient, **settings):
        weights = torch.zeros(3, dtype=torch.float64, requires_grad=True)
        weights.grad = gradient.clone()
        optimizer([weights], lr=0.1, **settings).step()
        return weights.detach()

    once, twice = total[0], total.sum(0)
    torch.testing.assert_close(moved(torch.optim.SGD, twice), 4 * moved(torch.optim.SGD, once))
    torch.testing.assert_close(moved(torch.optim.Adam, twice), moved(torch.optim.Adam, once), rtol=1e-6, atol=1e-9)
