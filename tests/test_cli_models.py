"""A resumed run reads its reward model, its teacher and its scorer of steps again: they must be what they were."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from rlhf_minimal.cli import main, train_flags
from rlhf_minimal.cli.starts import ASSETS
from rlhf_minimal.models import RewardModel
from rlhf_minimal.training import load_policy, save_policy
from tests.commands import fails

TINY = ["--prompts", "2", "--group-size", "2", "--held-out", "4", "--steps", "1"]
RESUME = ["--out", "run", "--resume", "--steps", "2"]


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def policy(folder, task="addition"):
    save_policy(folder, *load_policy(ASSETS / task))
    return folder


def reward_model(folder):
    folder.mkdir()
    RewardModel.from_policy(*load_policy(ASSETS / "addition")).save(folder)
    return folder


def scorer(folder):
    main(
        [
            "reward",
            "--task",
            "clock10",
            "--label-steps",
            "program",
            "--rows",
            "8",
            "--held-out",
            "4",
            "--steps",
            "1",
            "--batch-size",
            "4",
            "--out",
            str(folder),
        ]
    )
    return folder / "checkpoint"


KINDS = {
    "--reward-model": (reward_model, ["ppo", "--task", "addition"]),
    "--teacher": (policy, ["opd", "--task", "addition"]),
    "--step-reward": (scorer, ["grpo", "--task", "clock10", "--start", "untrained"]),
    "--start": (policy, ["reinforce", "--task", "addition", "--watch-kl", "off"]),
}


def begun(tmp_path, flag):
    """A run with a model of its own, and the folder where its weights are."""
    make, words = KINDS[flag]
    weights = make(tmp_path / "model")
    assert main(["train", *words, flag, "model", *TINY, "--out", "run"]) == 0
    return words, weights


def change(weights):
    tensors = load_file(weights / "model.safetensors")
    name = next(name for name in tensors if tensors[name].is_floating_point())
    tensors[name] = tensors[name] + torch.tensor(1e-3, dtype=tensors[name].dtype)
    save_file(tensors, weights / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize("flag", KINDS)
def test_a_run_is_not_resumed_with_another_model_of_the_same_name(tmp_path, capsys, flag):
    words, weights = begun(tmp_path, flag)
    kept = (tmp_path / "run" / "metrics.jsonl").read_text()
    before = (weights / "model.safetensors").read_bytes()
    change(weights)
    capsys.readouterr()
    said = fails(capsys, "train", words[0], *RESUME)
    assert "has changed since the run was begun, and a resumed run needs it as it was" in said
    assert "model" in said
    assert (tmp_path / "run" / "metrics.jsonl").read_text() == kept
    (weights / "model.safetensors").write_bytes(before)
    assert main(["train", words[0], *RESUME]) == 0
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 2


def test_what_is_read_beside_the_weights_counts_and_other_files_do_not(tmp_path, capsys):
    words, weights = begun(tmp_path, "--teacher")
    (weights / "README.md").write_text("mine")
    (weights / "trainer.json").write_text("{}")
    assert main(["train", words[0], *RESUME]) == 0
    (weights / "generation_config.json").write_text('{"eos_token_id": 3}')
    capsys.readouterr()
    assert "has changed" in fails(capsys, "train", words[0], "--out", "run", "--resume", "--steps", "3")


def test_a_start_of_which_the_run_keeps_a_copy_may_go(tmp_path):
    weights = policy(tmp_path / "model")
    assert main(["train", "grpo", "--task", "addition", "--start", "model", *TINY, "--out", "run"]) == 0
    shutil.rmtree(weights)
    assert main(["train", "grpo", *RESUME]) == 0


def test_a_run_from_before_there_were_checksums_goes_on(tmp_path):
    words, weights = begun(tmp_path, "--teacher")
    for file in (tmp_path / "run" / "config.json", tmp_path / "run" / "checkpoint" / "trainer.json"):
        notes = json.loads(file.read_text())
        assert notes["programs"].pop("--teacher")
        file.write_text(json.dumps(notes))
    change(weights)
    assert main(["train", words[0], *RESUME]) == 0


def test_of_a_model_on_a_hub_it_is_the_commit(monkeypatch):
    class Hub:
        _commit_hash = "1" * 40

    monkeypatch.setattr(train_flags, "load_config", lambda name: Hub)
    settings = {"programs": {}, "reward_model": None, "teacher": "hf:someone/model", "step_reward": None}
    recipe = train_flags.recipe_of(
        {**{s.name: s.default for s in train_flags.SETTINGS}, "algorithm": "grpo", "programs": {}}, None, None
    )
    train_flags.check_same_models(settings, recipe, resumed=False)
    assert settings["programs"] == {"--teacher": "1" * 40}
    train_flags.check_same_models(settings, recipe, resumed=True)
    Hub._commit_hash = "2" * 40
    with pytest.raises(ValueError, match="--teacher hf:someone/model has another commit than when the run was begun"):
        train_flags.check_same_models(settings, recipe, resumed=True)
