"""Small things that a hostile test has found: a template without end, numbers that JSON cannot hold, idle flags."""

import dataclasses
import json
import time

import pytest
import torch

from rlhf_minimal import ALGORITHMS, vocabulary
from rlhf_minimal.cli import main
from rlhf_minimal.cli.starts import ASSETS
from rlhf_minimal.config import Config
from rlhf_minimal.models import TokenizerVocabulary, load_pretrained, load_reward_model
from rlhf_minimal.tasks import get_task
from rlhf_minimal.train import Recipe, train
from rlhf_minimal.train_state import Learner
from rlhf_minimal.training import load_policy, save_policy
from rlhf_minimal.training.run_folder import RunFolder
from tests.chat_model import tokenizer
from tests.commands import fails

TINY = ["--prompts", "2", "--group-size", "2", "--held-out", "2", "--out", "run"]
HANGS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"


def test_a_chat_template_without_end_is_interrupted(monkeypatch):
    monkeypatch.setattr(vocabulary, "TEMPLATE_SECONDS", 0.2)
    asked = TokenizerVocabulary(tokenizer(HANGS))
    began = time.monotonic()
    with pytest.raises(ValueError, match="chat template refuses this conversation: it took longer than 0.2 seconds"):
        asked.encode_prompt("1+1=")
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_metrics_that_json_cannot_hold_are_not_written(value, tmp_path):
    folder = RunFolder(tmp_path)
    folder.append({"step": 1, "reward": 0.5})
    with pytest.raises(ValueError, match=f"step 2: reward is {value}: the policy or the reward has gone astray"):
        folder.append({"step": 2, "reward": value})
    assert [json.loads(line)["step"] for line in folder.metrics.read_text().splitlines()] == [1]


def test_a_run_is_not_resumed_into_its_past(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "grpo", "--steps", "3", *TINY]) == 0
    before = (tmp_path / "run" / "config.json").read_text()
    said = fails(capsys, "train", "grpo", "--out", "run", "--resume", "--steps", "2")
    assert "run has taken 3 steps already: give --steps that many or more" in said
    assert (tmp_path / "run" / "config.json").read_text() == before
    assert main(["train", "grpo", "--out", "run", "--resume", "--steps", "3"]) == 0  # the report once more


@pytest.mark.parametrize(
    ("flag", "other"),
    [
        ("--lora-alpha", "--lora-rank N"),
        ("--kl-control-horizon", "--kl-control adaptive"),
        ("--kl-control-target", "--kl-control adaptive"),
        ("--refresh-every", "--reference refresh"),
        ("--max-kl", "--optimizer trpo"),
    ],
)
def test_a_flag_that_nothing_would_read_is_refused(flag, other, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = fails(capsys, "train", "grpo", "--steps", "1", flag, "16", *TINY)
    assert f"{flag} changes nothing by itself: give {other} as well" in said
    assert not list(tmp_path.iterdir())


def test_with_what_it_belongs_to_a_flag_is_taken(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "grpo", "--steps", "1", "--lora-rank", "2", "--lora-alpha", "16", *TINY]) == 0


@pytest.mark.parametrize(
    ("asset", "load"),
    [("addition", load_policy), ("addition", load_pretrained), ("reviews-reward", load_reward_model)],
)
def test_a_thousand_million_layers_are_refused_before_they_are_made(asset, load, tmp_path):
    if load is load_reward_model:
        load_reward_model(ASSETS / asset).save(tmp_path)
    else:
        save_policy(tmp_path, *load_policy(ASSETS / asset))
    config = json.loads((tmp_path / "config.json").read_text())
    changed = {"num_hidden_layers": 10**9, "layer_types": None}
    (tmp_path / "config.json").write_text(json.dumps({**config, **changed}))
    began = time.monotonic()
    with pytest.raises(ValueError, match="its config has 1000000000 layers, and its file only .* weights"):
        load(str(tmp_path))
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("who", ["verifier", "reward"])
def test_a_function_that_switches_gradients_off_changes_nothing(who):
    def meddles(completion, problem):
        torch.set_grad_enabled(False)
        return float(completion == problem.answer)

    def reward(prompts, completions, **columns):
        torch.set_grad_enabled(False)
        return [float(text.count("1")) for text in completions]

    task = get_task("addition")
    task = dataclasses.replace(task, verify=meddles) if who == "verifier" else task
    config = Config(steps=1, prompts=4, group_size=4, seed=0)
    recipe = Recipe(ALGORITHMS["grpo"], task, config, reward if who == "reward" else None)
    learner = Learner.begin(*load_policy(ASSETS / "addition"), recipe.algorithm, config)
    assert train(learner, recipe)[0]["grad_norm"] > 0
    assert torch.is_grad_enabled()
