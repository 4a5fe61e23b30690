"""A run with a bug ends early for one reason alone: its numbers are not finite any more."""

import pytest
import torch

from rlhf_book import diseases
from rlhf_book.diseases import Disease, Setting, run
from rlhf_minimal.config import Config
from rlhf_minimal.objective import NotFinite

SMALL = Setting("grpo", "addition", Config(steps=3, prompts=4, group_size=4))


def put(monkeypatch, name, infect):
    monkeypatch.setitem(diseases.DISEASES, name, Disease(name, "made up", None, infect))


def test_a_run_whose_numbers_overflow_keeps_the_steps_before(monkeypatch):
    def infect(patient):
        patient.config = diseases.replace(patient.config, lr=1e6)

    put(monkeypatch, "far-too-high", infect)
    history = run(SMALL, "far-too-high", 0)
    assert [one["step"] for one in history] == [1]


def test_a_bug_that_the_loop_refuses_is_no_short_run(monkeypatch):
    def infect(patient):
        patient.reward = lambda prompts, completions, **known: [1.0]

    put(monkeypatch, "one-reward", infect)
    with pytest.raises(ValueError, match="reward") as refused:
        run(SMALL, "one-reward", 0)
    assert not isinstance(refused.value, NotFinite)


def test_rewards_that_are_not_finite_are_no_collapse(monkeypatch):
    def infect(patient):
        patient.reward = lambda prompts, completions, **known: torch.full((len(prompts),), torch.nan)

    put(monkeypatch, "reward-of-nothing", infect)
    with pytest.raises((ValueError, TypeError)) as refused:
        run(SMALL, "reward-of-nothing", 0)
    assert not isinstance(refused.value, NotFinite)
