"""Files in the form of GSM8K and of MATH: what an answer is, what is none, which rows are left out, which held out."""

import json

import pytest

from rlhf_minimal.cli import main
from rlhf_minimal.lab.word_problems import lenient, number, strict
from rlhf_minimal.tasks import Problem, get_task
from tests.chat_model import write_chat_model
from tests.commands import fails


def asked(i):
    return f"Ann has {i} pens and buys {i % 7} more. How many has she?"


GSM8K = [
    {
        "question": asked(i),
        "answer": f"She has {i} + {i % 7} = <<{i}+{i % 7}={i + i % 7}>>{i + i % 7}.\n#### {i + i % 7}",
    }
    for i in range(1000, 1080)
]
MATH = [
    {"problem": f"Halve ${i}$.", "level": "Level 1", "solution": rf"Half of it is $\boxed{{\frac{{{i}}}{{2}}}}$."}
    for i in range(60)
]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def write(rows, name="own.jsonl"):
    with open(name, "w", encoding="utf-8") as file:
        file.writelines(f"{json.dumps(row)}\n" for row in rows)


def found(task, prompt):
    return next(problem for problem in task.listed if problem.prompt == prompt)


@pytest.mark.parametrize(
    ("completion", "by_strict", "by_lenient"),
    [
        ("48 / 2 = 24.\n#### 72", "72", "72"),
        ("####72", "72", "72"),
        ("#### $1,200.00", "1200", "1200"),
        ("#### -3", "-3", "-3"),
        ("#### \u22123.", "-3", "-3"),
        ("#### 15%", "15", "15"),
        ("#### 72\n#### 72.0", "72", "72"),
        ("#### 71\n#### 72", None, "72"),  # two answers are none
        ("#### 71 #### 72", None, "72"),
        ("#### 72 pens", None, "72"),
        ("#### about 72", None, "72"),
        ("### 72", None, "72"),
        ("####", None, None),
        ("The answer is 72", None, "72"),
        ("She has 5-3 = 2 and (4)-1", None, "1"),
        ("1,2", None, None),  # a list, or a decimal of another country
        ("12,34", None, None),
        ("1" * 31, None, None),
        ("no idea", None, None),
        ("", None, None),
    ],
)
def test_what_an_answer_is(completion, by_strict, by_lenient):
    assert strict(completion) == by_strict
    assert lenient(completion) == by_lenient


def test_numbers_are_compared_by_value():
    assert number("1,200") == number("$1200.00") == number(" 1200 ") == "1200"
    assert number("0.5") == number("0.50") == "1/2"
    assert [number(text) for text in ("", "five", "1 2", "1/2", "1e3", "--1", "\u0663")] == [None] * 7


def test_strict_and_lenient_read_one_file_and_differ_in_form_alone():
    write(GSM8K)
    tidy, loose = get_task("gsm8k:own.jsonl"), get_task("gsm8k-lenient:own.jsonl")
    assert tidy.about == loose.about == "80 questions of own.jsonl"
    assert tidy.listed == loose.listed
    problem = found(tidy, asked(1005))
    assert problem.answer == "1009"
    worked = tidy.teacher(problem, None)
    assert worked == "She has 1005 + 4 = 1009.\n#### 1009"
    assert [task.verify(worked, problem) for task in (tidy, loose)] == [1, 1]
    assert [task.verify("So 1,009", problem) for task in (tidy, loose)] == [0, 1]
    assert [task.verify("#### 1008", problem) for task in (tidy, loose)] == [0, 0]
    assert [task.final("So 1,009") for task in (tidy, loose)] == [None, "1009"]


def test_rows_without_an_answer_are_left_out_and_counted():
    write([*GSM8K, {"question": "Who?", "answer": "Ann, I think."}, {"question": "Why?", "answer": "#### because"}])
    task = get_task("gsm8k:own.jsonl")
    assert task.about == "80 questions of own.jsonl; left out: 2 rows without a readable answer"
    assert len(task.listed) == 80


def test_two_files_are_training_and_evaluation_and_what_is_in_both_is_not_trained_on():
    write(GSM8K[:60], "train.jsonl")
    write([*GSM8K[60:], {**GSM8K[0], "question": GSM8K[0]["question"].replace(" ", "  ")}], "test.jsonl")
    task = get_task("gsm8k:train.jsonl,test.jsonl")
    said = "left out: 1 questions of train.jsonl: they stand in test.jsonl, too"
    assert task.about == f"80 questions of train.jsonl and test.jsonl; {said}"
    drawn = {side: {p.answer for p in task.problems(side, 2000, seed=0)} for side in ("train", "held_out")}
    answers = [row["answer"].rpartition(" ")[2] for row in GSM8K]
    assert drawn == {"train": set(answers[1:60]), "held_out": {*answers[60:], answers[0]}}
    assert len(task.problems("held_out", 100, seed=0, distinct=True)) == 21


def test_one_file_is_split_without_overlap():
    write(GSM8K)
    task = get_task("gsm8k:own.jsonl")
    sides = [{p.prompt for p in task.problems(side, 1000, seed=0)} for side in ("train", "held_out")]
    assert sides[0] | sides[1] == {row["question"] for row in GSM8K}
    assert not sides[0] & sides[1]


def test_a_question_with_two_answers_is_left_out_and_one_answer_in_two_spellings_is_not():
    write([*GSM8K, {**GSM8K[3], "answer": "#### 5"}, {**GSM8K[4], "answer": "#### 1,007.0"}])
    task = get_task("gsm8k:own.jsonl")
    assert task.about == "79 questions of own.jsonl; left out: 1 questions with two answers"
    assert GSM8K[3]["question"] not in {problem.prompt for problem in task.listed}
    assert found(task, GSM8K[4]["question"]).answer == "1007"
    write([*MATH, {"problem": "Halve $7$.", "solution": r"\boxed{3.5}"}])
    assert get_task("competition-math:own.jsonl").about == "60 questions of own.jsonl"


def test_a_large_file_beside_a_small_one_gives_problems_of_both_sides():
    write([{"question": f"Is it {i}?", "answer": f"#### {i}"} for i in range(3000)], "train.jsonl")
    write([{"question": "Is it five?", "answer": "#### 5"}], "test.jsonl")
    task = get_task("gsm8k:train.jsonl,test.jsonl")
    assert [problem.prompt for problem in task.problems("held_out", 2, seed=0)] == ["Is it five?"] * 2
    assert task.is_held_out("Is it five?")
    assert not task.is_held_out("Is it 5?")


@pytest.mark.parametrize(
    ("completion", "right", "answer"),
    [
        (r"\boxed{3.5}", 1, "3.5"),
        (r"\boxed{7}, no: $\boxed{ \dfrac72 }$.", 1, r"\dfrac72"),
        (r"<think>\boxed{7}</think>\boxed{7/2}", 1, "7/2"),
        (r"\boxed{7}", 0, "7"),
        (r"So $\frac{7}{2}$", 0, None),  # right, and not in MATH's form
        (r"\boxed{3.5} or \boxed{", 0, None),
        (r"\boxed{}", 0, None),
        (r"<think>\boxed{3.5}", 0, None),
        ("half of it", 0, None),
    ],
)
def test_the_form_of_math(completion, right, answer):
    write([*MATH, {"problem": "Which day?", "solution": r"\boxed{\text{Tuesday}}"}])
    task = get_task("competition-math:own.jsonl")
    problem = found(task, "Halve $7$.")
    assert problem == Problem("Halve $7$.", r"\frac{7}{2}")
    assert task.final(completion) == answer
    assert task.verify(completion, problem) == right
    day = found(task, "Which day?")
    assert [task.verify(text, day) for text in (r"\boxed{\text{Tuesday}}", r"\boxed{\text{Monday}}")] == [1, 0]


def test_any_questions_and_answers():
    write([{"question": f"Capital {i}?", "answer": "New  York" if i % 2 else f"{i}.0"} for i in range(60)])
    task = get_task("qa:own.jsonl")
    city, even = found(task, "Capital 1?"), found(task, "Capital 4?")
    assert [task.verify(text, city) for text in ("New York", "<answer>New York</answer>", "York")] == [1, 1, 0]
    assert [task.verify(text, even) for text in ("4", "4.00", "5", "")] == [1, 1, 0, 0]
    assert task.final(" ") is None


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"prompt": "1?", "answer": "#### 1"}], r"own.jsonl, row 1: there is no column 'question'"),
        ([{"question": "1?", "answer": 1}], "row 1: answer is 1, and should be a text"),
        ([{"question": " ", "answer": "#### 1"}], "row 1: the question is empty"),
        ([[1]], "expected an object with named columns; got list"),
        ([{"question": "\ud800", "answer": "#### 1"}], "half a character"),
        ([{"question": "1?", "answer": "#### 1"}] * 12, "has 1 questions; it needs at least 10"),
        (MATH, "there is no column 'question', only 'problem'"),
        ([{"question": str(i), "answer": str(i)} for i in range(50)], "50 of 50 rows have no answer that this form"),
        (GSM8K[:9], "has 9 questions; it needs at least 10"),
    ],
)
def test_bad_files_are_refused_with_advice(rows, said):
    write(rows)
    with pytest.raises(ValueError, match=said):
        get_task("gsm8k:own.jsonl")


def test_names_that_mean_no_files():
    for name in ("gsm8k:", "gsm8k:a,b,c", "gsm8k:a,"):
        with pytest.raises(ValueError, match="give gsm8k:FILE.jsonl, or gsm8k:TRAIN.jsonl,TEST.jsonl"):
            get_task(name)
    with pytest.raises(ValueError, match="cannot read none.jsonl"):
        get_task("gsm8k:none.jsonl")
    with pytest.raises(ValueError, match="unknown task 'gsm8k'"):
        get_task("gsm8k")


def test_a_model_trains_on_the_file_and_evaluate_counts_what_is_no_answer(tmp_path, capsys):
    write(GSM8K)
    write_chat_model(tmp_path / "chat")
    words = ["--task", "gsm8k:own.jsonl", "--max-new-tokens", "4", "--system", ""]
    few = ["--prompts", "2", "--group-size", "2", "--start", "chat", "--held-out", "4", "--steps", "2", "--out", "run"]
    assert main(["train", "grpo", *words, *few]) == 0
    capsys.readouterr()
    assert main(["evaluate", "run", "-n", "4"]) == 0
    assert "without an answer: sampled 4 of 4, greedy 4 of 4" in capsys.readouterr().out
    assert main(["evaluate", "run", "-n", "4", "--samples", "2"]) == 0
    said = capsys.readouterr().out
    assert "pass@n" in said
    assert "without an answer: sampled 8 of 8" in said
    write(GSM8K[:9])
    assert "own.jsonl has 9 questions; it needs at least 10" in fails(capsys, "evaluate", "run")
