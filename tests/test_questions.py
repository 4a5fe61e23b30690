"""The questions' source is complete, every link to a proof resolves, and the loader refuses what is not."""

import re
from pathlib import Path

import nbformat
import pytest
import yaml

import apparatus
from apparatus import Claim, Proof, claims, concepts, question_markdown, questions
from printing import flat

ROOT = Path(__file__).resolve().parents[1]

CLAIMS = claims()
each_question = pytest.mark.parametrize("question", questions().values(), ids=lambda question: question.id)


@each_question
def test_every_link_to_a_proof_resolves(question):
    assert [text for proof in question.proof if (text := proof.problem(CLAIMS))] == []


@each_question
def test_a_question_is_worth_asking(question):
    assert question.question.endswith(("?", "."))
    assert len(question.answer.split()) >= 40  # an answer, not a slogan
    assert "$" not in question.question  # it is a heading and a link
    text = question_markdown(question, "notebooks/grpo", [])
    assert text.count("$") % 2 == 0
    for part in (
        question.answer,
        question.wrong,
        *(f"*{flat(one.question)}* {flat(one.answer)}" for one in question.follow_ups),
    ):
        assert part in text


def test_every_question_among_the_ideas_is_asked():
    """Under its own id or, where the chapter that answers it has another name for it, under that one."""
    ideas = [idea.id for idea in concepts().values() if idea.part == "interview"]
    others = apparatus.other_names()
    assert others == {"q-x-clip-geometry": "q-tr-clip-geometry", "f-ema-mixing": "q-rloo-mixture"}
    assert [name for name in ideas if name not in questions() and others.get(name) not in questions()] == []
    for idea, question in others.items():
        assert any(proof.cell == idea for proof in questions()[question].proof), "the proof is the cell that claims it"


def test_an_idea_that_no_question_asks_is_named(monkeypatch):
    left = {name: question for name, question in questions().items() if name != "f-adaptive-g"}
    monkeypatch.setattr(apparatus, "questions", lambda: left)
    with pytest.raises(ValueError, match="no question asks f-adaptive-g"):
        apparatus.other_names()


def test_the_pilots_questions_are_there():
    assert {"q-l1-grpo-saves", "q-l3-value-baseline", "q-x-group-size", "q-x-all-wrong"} <= questions().keys()
    assert {question.level for question in questions().values()} == {1, 2, 3}


ENTRY = {
    "id": "q-x-group-size",
    "level": 1,
    "topics": ["x"],
    "question": "Why?",
    "answer": "Because.",
    "wrong": "No.",
    "follow_ups": [{"question": "And?", "answer": "So."}],
    "proof": [{"test": "tests/test_questions.py::test_the_pilots_questions_are_there"}],
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"answer": "word " * 91}, "91 words"),
        ({"level": 4}, "expected a level"),
        ({"proof": []}, "under proof, got"),
        ({"topics": []}, "under topics, got"),
        ({"follow_ups": []}, "under follow_ups, got"),
        ({"id": "q-unknown"}, "is no idea"),
        ({"wrnog": "typo"}, "mean nothing"),
        ({"wrong": None}, "lacks"),
    ],
)
def test_an_incomplete_entry_is_refused(tmp_path, change, message):
    entry = {key: value for key, value in {**ENTRY, **change}.items() if value is not None}
    (tmp_path / "q.yml").write_text(yaml.safe_dump([entry]))
    with pytest.raises(ValueError, match=message):
        questions(tmp_path / "q.yml")


def test_a_complete_entry_is_read(tmp_path):
    (tmp_path / "q.yml").write_text(yaml.safe_dump([ENTRY]))
    (question,) = questions(tmp_path / "q.yml").values()
    assert question.concept in concepts()
    assert question.proof[0].problem([]) is None


def test_links_that_lead_nowhere_are_found():
    claim = Claim("concept-group-size", "book/index", 0, "code", "Size", 0, "assert x")
    assert Proof(page="book/index", cell="group-size").problem([claim]) is None
    assert "no cell" in Proof(page="book/index", cell="proof-x").problem([claim])
    assert "not a page" in Proof(page="notebooks/none", cell="group-size").problem([claim])
    silent = Claim("proof-x", "book/index", 0, "code", "Size", 0, "x")
    assert "asserts nothing" in Proof(page="book/index", cell="proof-x").problem([silent])
    assert "no test" in Proof(test="tests/test_questions.py::test_none").problem([])
    assert "no test" in Proof(test="rlhf_minimal/cli/train.py::run").problem([])


def test_what_a_chapter_prints_names_the_proof_in_words():
    question = next(iter(questions().values()))
    test = Proof(test="tests/test_questions.py::test_the_pilots_questions_are_there")
    asked = apparatus.Question(**{**vars(question), "proof": (Proof(page="notebooks/x", cell="group-size"), test)})
    claim = Claim("concept-group-size", "notebooks/x", 3, "code", "How many?", 1, "assert x")
    text = question_markdown(asked, "notebooks/x", [claim])
    assert "**Where it is proved.** In this chapter under *How many?* and by a test of the library; [" in text
    assert "**Where it is proved.** In other chapters under *How many?*" in question_markdown(
        asked, "notebooks/y", [claim]
    )


@each_question
def test_paths_of_tests_stand_on_the_page_of_all_questions_only(question):
    text = question_markdown(question, "notebooks/grpo", CLAIMS).partition("**Where it is proved.**")[2]
    assert "tests/" not in text
    assert text.count("](") == 1


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_core_asks_three_questions_at_most(path):
    """A chapter is in the new form once it says where its main point stands; before that it may ask more."""
    cells = nbformat.read(path, as_version=4).cells
    asked = [cell for cell in cells if str(cell.metadata.get("from", "")).startswith("question/")]
    core = any("main-point" in cell.metadata.get("tags", ()) for cell in cells)
    assert len(asked) <= 3 or not core


# ── twenty for two hours ─────────────────────────────────────────────────────────────────────────────────────────


def test_twenty_answers_can_be_spoken():
    found = apparatus.spoken()
    assert len(found) == 20
    words = [len(text.split()) for text in found.values()]
    assert max(words) <= apparatus.ALOUD
    assert 40 <= sum(words) / 20 <= 47
    first = [re.split(r"(?<=[.:?])\s", text)[0] for text in found.values()]
    assert max(len(sentence.split()) for sentence in first) <= 26  # the claim comes first


def test_the_numbers_of_the_spoken_answers_are_those_of_the_table():
    import rlhf_minimal

    rows, said = rlhf_minimal.ALGORITHMS, apparatus.spoken()
    assert str(rows["ppo"].gate.keywords["high"]) in said["q-clip-six-cells"]
    assert str(rows["ppo"].advantage.keywords["lam"]) in said["q-gae-lambda"]
    assert f"to {rows['dapo'].gate.keywords['high']}." in said["q-anatomy-dapo-cells"]
    low, high = (f"{rows['gspo'].gate.keywords[side]:.4f}" for side in ("low", "high"))
    assert f"{low} and {high}" in said["q-gspo-band"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("q-nothing: x\n", "no such question"),
        (f"q-pg-number: {'word ' * 51}\n", "51 words, 50 can be said"),
        ("q-pg-number: It is $x$.\n", "no formula"),
    ],
)
def test_an_answer_that_nobody_can_speak_is_refused(tmp_path, text, said):
    (tmp_path / "spoken.yml").write_text(text)
    with pytest.raises(ValueError, match=said):
        apparatus.spoken(tmp_path / "spoken.yml")
