"""A chat template that writes the day: one for a whole run, also when it is resumed on another."""

import json
import signal
from datetime import date
from types import SimpleNamespace

import pytest
from transformers import AutoTokenizer
from transformers.utils import chat_template_utils

from rlhf_minimal.cli import main
from rlhf_minimal.lab.rows import read_rows
from rlhf_minimal.models import TokenizerVocabulary
from rlhf_minimal.tasks import CompletionRow
from rlhf_minimal.training.progress import Progress
from tests.chat_model import TEMPLATE, tokenizer, write_chat_model

DAY = "{% if not date_string is defined %}{% set date_string = strftime_now('%d %b %Y') %}{% endif %}"
TEMPLATES = {  # as of Llama 3.2, of Granite, in other ways, and with the minute
    "a line of its own": DAY + "Today: {{ date_string }}\n" + TEMPLATE,
    "in a system message": "<|im_start|>system\nToday is {{ strftime_now('%B %d, %Y') }}.<|im_end|>\n" + TEMPLATE,
    "in a format of its own": "{% set form = '%d %B' ~ ' %Y' %}\n  {{ strftime_now(form) }}\n" + TEMPLATE,
    "in a macro": "\n{% macro now() %}{{ strftime_now('%-d' ~ \" %b\") }}{% endmacro %}{{ now() }}\n" + TEMPLATE,
    "with the minute": "{{ strftime_now('%Y-%m-%d %H:%M') }}\n" + TEMPLATE,
}
EVE, MORNING = date(2026, 12, 31), date(2027, 1, 1)
each = pytest.mark.parametrize("name", TEMPLATES)


@each
def test_the_template_is_told_the_day_of_the_vocabulary(name, monkeypatch):
    vocabulary = TokenizerVocabulary(tokenizer(TEMPLATES[name]))
    ask, said = {"role": "user", "content": "What is 12?"}, {"role": "assistant", "content": "12"}
    found = []
    for day in (EVE, MORNING):
        monkeypatch.setattr(TokenizerVocabulary, "day", day)
        monkeypatch.setattr(chat_template_utils, "datetime", SimpleNamespace(now=lambda day=day: day))
        whole = vocabulary.tokenizer.apply_chat_template([ask], add_generation_prompt=True, return_dict=False)
        (row,) = read_rows([{"messages": [ask, said]}], CompletionRow, vocabulary, max_length=500)
        assert vocabulary.encode_prompt("What is 12?") == whole
        assert row.prompt == vocabulary.prompt_text("What is 12?")
        found.append(whole)
    assert found[0] != found[1]


COMMANDS = {
    "train": ["train", "grpo", "--task", "addition", "--prompts", "2", "--group-size", "2"],
    "sft": ["sft", "--task", "addition", "--rows", "8"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_run_that_is_resumed_on_another_day_reads_what_it_read(command, tmp_path, monkeypatch):
    start = write_chat_model(tmp_path / "start")
    own = AutoTokenizer.from_pretrained(start)
    own.chat_template = TEMPLATES["a line of its own"]
    own.save_pretrained(start)
    days, write = set(), TokenizerVocabulary._by_template

    def noted(self, *args, **how):
        text = write(self, *args, **how)
        days.add(text.split("\n")[0].removeprefix("Today: "))
        return text

    def pressing(self, step, metrics, update=Progress.update):
        update(self, step, metrics)
        if step == 1:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(TokenizerVocabulary, "_by_template", noted)
    monkeypatch.setattr(TokenizerVocabulary, "day", EVE)
    words = [*COMMANDS[command], "--start", str(start), "--steps", "2", "--held-out", "2", "--save-every", "1"]
    words += ["--max-new-tokens", "3"] * (command == "train")
    assert main([*words, "--out", str(tmp_path / "whole")]) == 0
    with monkeypatch.context() as patch:
        patch.setattr(Progress, "update", pressing)
        assert main([*words, "--out", str(tmp_path / "cut")]) == 130
    assert days == {"31 Dec 2026"}
    monkeypatch.setattr(TokenizerVocabulary, "day", MORNING)
    days.clear()
    assert main([*words[: 1 + (command == "train")], "--out", str(tmp_path / "cut"), "--resume"]) == 0
    assert days == {"31 Dec 2026"}
    assert numbers(tmp_path / "whole") == numbers(tmp_path / "cut")
    assert json.loads((tmp_path / "cut" / "config.json").read_text())["versions"]["day"] == "2026-12-31"


def numbers(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: x for name, x in line.items() if "seconds" not in name and "memory" not in name} for line in lines]
