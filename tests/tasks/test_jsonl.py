"""Prompts and answers of one's own: what a file may hold, and which rows are held out."""

import json
import sys
import unicodedata

import pytest

from rlhf_minimal.lab.jsonl import FEWEST
from rlhf_minimal.tasks import Problem, get_task
from rlhf_minimal.tasks.base import normalised

ROWS = [{"prompt": f"What comes after {i}?", "answer": str(i + 1), "source": "a book"} for i in range(80)]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def write(rows, name="own.jsonl"):
    lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
    with open(name, "w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)


@pytest.mark.parametrize("kind", ["exact", "math"])
def test_training_and_held_out_problems_are_disjoint(kind):
    write(ROWS)
    task = get_task(f"{kind}:own.jsonl")
    train, held_out = ({p.prompt for p in task.problems(split, 1000, seed=0)} for split in ("train", "held_out"))
    assert train | held_out == {row["prompt"] for row in ROWS}
    assert not train & held_out
    assert task.problems("train", 9, seed=1) == task.problems("train", 9, seed=1) != task.problems("train", 9, seed=2)
    assert (task.name, task.about) == (f"{kind}:own.jsonl", "80 prompts of own.jsonl")
    assert (task.alphabet, task.max_new_tokens, task.instruction, task.score_range) == ("", 64, "", None)
    assert task.problems("train", 1, seed=0)[0].entry is None


def test_a_prompt_that_stands_twice_counts_once():
    write([*ROWS, *[ROWS[0]] * 5000])
    counted = [problem.prompt for problem in get_task("exact:own.jsonl").problems("train", 2000, seed=0)]
    assert counted.count(ROWS[0]["prompt"]) < 100


# One question, as files that were put together write it.
WRITTEN = {
    "spaces": lambda text: text.replace(" ", "  "),
    "a space at the end": lambda text: text + " ",
    "lines": lambda text: text.replace(" ", "\n"),
    "no-break spaces": lambda text: text.replace(" ", "\u00a0"),
    "thin spaces": lambda text: text.replace(" ", "\u2009"),
    "zero width": lambda text: text.replace(" ", " \u200b"),
    "joiners": lambda text: "\u2060".join(text),
    "a byte order mark": lambda text: "\ufeff" + text,
    "soft hyphens": lambda text: text.replace("o", "o\u00ad"),
    "accents of their own": lambda text: unicodedata.normalize("NFD", text),
    "an accent held off": lambda text: unicodedata.normalize("NFD", text).replace("e\u0301", "e\u200d\u0301"),
    "full width": lambda text: "".join(chr(ord(c) + 0xFEE0) if c in "0123456789?" else c for c in text),
    "variants": lambda text: text.replace("?", "?\ufe0e"),
}


@pytest.mark.parametrize("kind", ["exact", "math"])
@pytest.mark.parametrize("how", WRITTEN)
def test_one_question_is_on_one_side_however_it_is_written(kind, how):
    rows = [{"prompt": f"Café no. {i}: how many?", "answer": str(i)} for i in range(60)]
    others = [{**row, "prompt": WRITTEN[how](row["prompt"])} for row in rows]
    assert all(one["prompt"] != other["prompt"] for one, other in zip(rows, others, strict=True))
    write(rows)
    task = get_task(f"{kind}:own.jsonl")
    for one, other in zip(rows, others, strict=True):
        assert task.is_held_out(one["prompt"]) == task.is_held_out(other["prompt"])
    write([*rows, *others], "both.jsonl")
    task = get_task(f"{kind}:both.jsonl")
    assert task.about == "60 prompts of both.jsonl"
    write([*rows, {**others[7], "answer": "1000"}], "against.jsonl")
    with pytest.raises(
        ValueError, match=r"against.jsonl, row 61: the prompt is the same as in against.jsonl, row 8, but the"
    ):
        get_task(f"{kind}:against.jsonl")


def test_the_same_answer_written_in_two_ways_is_no_contradiction():
    write([*ROWS, {**ROWS[0], "answer": " 1 "}])
    get_task("exact:own.jsonl")
    write([*ROWS, {**ROWS[0], "answer": "2/2"}])
    get_task("math:own.jsonl")
    with pytest.raises(ValueError, match="the answer differs"):
        get_task("exact:own.jsonl")


def test_letters_keep_their_case_and_powers_their_place():
    assert normalised("Solve for x") != normalised("Solve for X")
    write([*ROWS, {"prompt": "What is 2\u00b2?", "answer": "4"}, {"prompt": "What is 22?", "answer": "22"}])
    assert get_task("exact:own.jsonl").about == "82 prompts of own.jsonl"  # NFKC makes one text of these two


@pytest.mark.parametrize(
    ("completion", "exact", "math"),
    [  # exact: compares all that was written, math: looks for the last formula of the final answer
        ("8", 1, 1),
        (" 8\n", 1, 1),
        ("8.0", 0, 1),
        ("It is 8.", 0, 1),
        ("<answer>8</answer>", 0, 1),
        (r"\boxed{\frac{16}{2}}", 0, 1),
        ("7", 0, 0),
        ("", 0, 0),
    ],
)
def test_what_is_right(completion, exact, math):
    write(ROWS)
    problem = Problem("What comes after 7?", "8")
    assert get_task("exact:own.jsonl").verify(completion, problem) == exact
    assert get_task("math:own.jsonl").verify(completion, problem) == math


def test_the_answers_own_white_space_does_not_count():
    write([{**row, "answer": f" {row['answer']} "} for row in ROWS])
    assert get_task("exact:own.jsonl").verify("8", Problem("", " 8 ")) == 1
    assert get_task("math:own.jsonl").verify("8", Problem("", " 8 ")) == 1


@pytest.mark.parametrize("kind", ["exact", "math"])
@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": "1?"}, "there is no column 'answer', only 'prompt'; rename or add it"),
        ({"question": "1?", "answer": "1"}, "there is no column 'prompt', only 'question', 'answer'; rename or add it"),
        ({"prompt": "1?", "answer": 1}, "answer is 1, and should be a text; write it in quotes"),
        ({"prompt": ["1?"], "answer": "1"}, "prompt is ['1?'], and should be a text"),
        ({"prompt": [{"role": "user", "content": "1?"}], "answer": "1"}, "and should be a text"),
        ({"prompt": " ", "answer": "1"}, "the prompt is empty; remove the row"),
        ({"prompt": "1?", "answer": "\n"}, "the answer is empty; remove the row"),
        (
            {"prompt": "What comes after 7?", "answer": "9"},
            "the prompt is the same as in own.jsonl, row 8, but the answer differs ('9', not '8')",
        ),
        ({"prompt": "\ud800", "answer": "1"}, "prompt or answer holds half a character"),
        ("[1]", "expected an object with named columns; got list"),
        ('{"prompt": "1?", ', "this line is not JSON"),
    ],
)
def test_a_bad_row_is_named(kind, row, message):
    write([*ROWS, row])
    with pytest.raises(ValueError) as caught:
        get_task(f"{kind}:own.jsonl")
    assert str(caught.value).startswith("own.jsonl, row 81: ")
    assert message in str(caught.value)


@pytest.mark.parametrize("answer", ["?", r"\sum_{n=0}^{3} n", r"\frac{", "$", "\\boxed{}", "It is five"])
def test_an_answer_has_to_be_a_formula(answer):
    write([*ROWS, {"prompt": "1?", "answer": answer}])
    with pytest.raises(ValueError, match=r"own.jsonl, row 81: math-verify cannot read the answer .* as a formula"):
        get_task("math:own.jsonl")
    get_task("exact:own.jsonl")


def test_what_is_no_file():
    for name, reason in (("none.jsonl", "No such file"), ("", "Is a directory"), ("\0", "null")):
        with pytest.raises(ValueError, match=reason):
            get_task(f"exact:{name}")


def test_too_few_prompts():
    write(ROWS[: FEWEST - 1] * 3)
    with pytest.raises(ValueError, match="own.jsonl has 9 different prompts; it needs at least 10, so add rows"):
        get_task("exact:own.jsonl")


def test_a_side_of_the_wall_without_a_prompt():
    write(ROWS)
    task = get_task("exact:own.jsonl")
    for held_out, empty in ((False, "evaluation"), (True, "training")):
        rows = [{"prompt": str(i), "answer": "1"} for i in range(500) if task.is_held_out(str(i)) == held_out]
        write(rows[:12], f"{empty}.jsonl")
        with pytest.raises(
            ValueError, match=f"{empty}.jsonl: none of the 12 prompts is left for {empty} .*; add more rows"
        ):
            get_task(f"exact:{empty}.jsonl")


def test_a_file_that_has_changed_is_read_again():
    write(ROWS)
    get_task("exact:own.jsonl")
    write(ROWS[:60])
    assert get_task("exact:own.jsonl").about == "60 prompts of own.jsonl"


def test_without_math_verify(monkeypatch):
    write(ROWS)
    monkeypatch.setitem(sys.modules, "math_verify", None)
    with pytest.raises(ValueError) as caught:
        get_task("math:own.jsonl")
    assert str(caught.value) == "the task math:own.jsonl needs the package math-verify: pip install math-verify"
    get_task("exact:own.jsonl")


@pytest.mark.parametrize("kind", ["exact", "math"])
def test_one_file_has_the_same_draws_under_every_path(kind, tmp_path):
    write(ROWS)
    write(ROWS, "copy.jsonl")
    write([*ROWS[1:], ROWS[0]], "other.jsonl")
    names = ["own.jsonl", "./own.jsonl", str(tmp_path / "own.jsonl"), "copy.jsonl", "other.jsonl"]
    draws = [get_task(f"{kind}:{name}").problems("held_out", 50, seed=3) for name in names]
    assert draws[0] == draws[1] == draws[2] == draws[3] != draws[4]
