"""The 35 questions of "RL Interview Questions 2026": all are answered, and every proof is there."""

import re
import sys
from pathlib import Path

import pytest
import torch

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
