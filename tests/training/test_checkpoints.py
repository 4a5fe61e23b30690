"""Checkpoints: whole or not at all, readable by transformers, and good enough to repeat a run's numbers."""

import dataclasses
import json
import os

import pytest
import torch
from transformers import AutoModelForCausalLM

from rlhf_minimal import ALGORITHMS
from rlhf_minimal.config import Config
from rlhf_minimal.metrics import NONDETERMINISTIC
from rlhf_minimal.models import Vocabulary, tiny_llama
from rlhf_minimal.runs import resume_learner, save_learner
from rlhf_minimal.tasks import get_task
from rlhf_minimal.train import Recipe, train
from rlhf_minimal.train_state import Learner
from rlhf_minimal.training import load_policy, save_policy, write_folder
from rlhf_minimal.training.checkpoints import FORMAT, load_trainer
from rlhf_minimal.training.run_folder import RunFolder

VOCABULARY = Vocabulary("abc")


@pytest.fixture
def policy():
    return tiny_llama(4, width=16, layers=1, heads=2, seed=2)


@pytest.fixture
def folder(tmp_path, policy):
    path = tmp_path / "checkpoint"
    write_folder(path, lambda new: save_policy(new, policy, VOCABULARY))
    return path


IDS = torch.tensor([[1, 2, 3]])


def test_a_policy_comes_back_as_it_was(folder, policy):
    loaded, vocabulary = load_policy(folder)
    assert vocabulary.alphabet == "abc"
    assert torch.equal(loaded(IDS).logits, policy(IDS).logits)
    assert torch.equal(load_policy(folder.parent)[0](IDS).logits, policy(IDS).logits)  # named by its run folder


def test_transformers_reads_the_same_folder(folder, policy):
    assert torch.equal(AutoModelForCausalLM.from_pretrained(folder).eval()(IDS).logits, policy(IDS).logits)


def test_a_tokenizer_speaks_where_the_alphabet_is_lost(folder):
    (folder / "vocabulary.json").unlink()
    vocabulary = load_policy(folder)[1]
    assert vocabulary.encode("cab") == VOCABULARY.encode("cab")
    for file in folder.glob("tokenizer*"):
        file.unlink()
    with pytest.raises(ValueError, match="cannot read the checkpoint"):
        load_policy(folder)


def test_nothing_in_a_checkpoint_is_a_pickle(folder):
    assert {path.suffix for path in folder.iterdir()} == {".json", ".safetensors"}


def cut_short(path):
    path.write_bytes(path.read_bytes()[:-100])


def overwrite(text):
    return lambda path: path.write_text(text)


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("model.safetensors", lambda path: path.unlink()),
        ("model.safetensors", cut_short),
        ("model.safetensors", overwrite("not a tensor")),
        ("model.safetensors", lambda path: path.write_bytes(b"")),
        ("config.json", lambda path: path.unlink()),
        ("config.json", overwrite("{")),
        ("config.json", overwrite('{"model_type": "no such model"}')),
        ("config.json", overwrite("[]")),
        ("vocabulary.json", overwrite('{"alphabet": "ab"}')),
        ("vocabulary.json", overwrite("{}")),
        ("vocabulary.json", overwrite("[]")),
    ],
)
def test_a_damaged_checkpoint_is_one_clear_line(folder, file, damage):
    damage(folder / file)
    with pytest.raises(ValueError, match="checkpoint") as error:
        load_policy(folder)
    assert "\n" not in str(error.value)
    assert str(folder) in str(error.value)


def test_weights_of_another_shape_are_refused(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 2}))
    with pytest.raises(ValueError, match="cannot read the checkpoint"):
        load_policy(folder)


def test_a_missing_checkpoint_says_where_it_looked(tmp_path):
    with pytest.raises(ValueError, match="no checkpoint in .*nowhere"):
        load_policy(tmp_path / "nowhere")


def test_a_failed_write_leaves_the_old_checkpoint_alone(folder, policy):
    def fails(new):
        (new / "config.json").write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(ValueError, match="cannot write .*No space left"):
        write_folder(folder, fails)
    assert torch.equal(load_policy(folder)[0](IDS).logits, policy(IDS).logits)
    assert [path.name for path in folder.parent.iterdir()] == ["checkpoint"]


def test_a_process_killed_in_the_middle_of_the_swap_loses_nothing(folder, policy):
    folder.rename(folder.with_name("checkpoint.old"))
    for name in (folder, folder.parent):
        assert torch.equal(load_policy(name)[0](IDS).logits, policy(IDS).logits)


def test_being_killed_while_the_swap_happens_loses_nothing(folder, policy, monkeypatch):
    replace, moves = os.replace, []

    def killed_at_the_second(source, target):
        moves.append(source)
        if len(moves) == 2:
            raise KeyboardInterrupt  # the old checkpoint is out of the way, the new one not yet in its place
        replace(source, target)

    monkeypatch.setattr(os, "replace", killed_at_the_second)
    other = tiny_llama(4, width=16, layers=1, heads=2, seed=9)
    with pytest.raises(KeyboardInterrupt):
        write_folder(folder, lambda new: save_policy(new, other, VOCABULARY))
    assert len(moves) == 2
    assert torch.equal(load_policy(folder)[0](IDS).logits, policy(IDS).logits)


def test_replacing_leaves_nothing_behind(folder):
    other = tiny_llama(4, width=16, layers=1, heads=2, seed=9)
    write_folder(folder, lambda new: save_policy(new, other, VOCABULARY))
    assert torch.equal(load_policy(folder)[0](IDS).logits, other(IDS).logits)
    assert [path.name for path in folder.parent.iterdir()] == ["checkpoint"]


# --- resuming ------------------------------------------------------------------------------------------------------

TASK = get_task("even")
ROWS = {
    "grpo": {"reference": "ema"},
    "rloo": {"reference": "refresh", "refresh_every": 2},
    "ppo": {"epochs": 2, "minibatches": 2},
    "dapo": {},
}


def learner_and_recipe(name, **options):
    config = Config(steps=6, prompts=4, group_size=4, lr=2e-3, **options)
    recipe = Recipe(ALGORITHMS[name], TASK, config)
    vocabulary = Vocabulary(TASK.alphabet)
    policy = tiny_llama(len(vocabulary), width=16, layers=1, heads=2)
    return Learner.begin(policy, vocabulary, recipe.algorithm, config), recipe


def numbers(history):
    return [{name: value for name, value in metrics.items() if name not in NONDETERMINISTIC} for metrics in history]


@pytest.mark.parametrize("name", ROWS)
def test_a_resumed_run_repeats_the_uninterrupted_one_bit_for_bit(tmp_path, name):
    learner, recipe = learner_and_recipe(name, **ROWS[name])
    whole = train(learner, recipe)

    learner, recipe = learner_and_recipe(name, **ROWS[name])
    first = train(learner, recipe, lambda metrics: metrics["step"] < 3)
    save_learner(learner, tmp_path / "checkpoint", {})
    resumed = resume_learner(tmp_path / "checkpoint", recipe.algorithm, recipe.config, "cpu")
    assert resumed.step == 3
    assert resumed.mean_reward == learner.mean_reward
    second = train(resumed, recipe)
    assert numbers(first + second) == numbers(whole)


def test_a_checkpoint_of_another_algorithm_does_not_fit(tmp_path):
    learner, recipe = learner_and_recipe("grpo")
    save_learner(learner, tmp_path / "checkpoint", {})
    with pytest.raises(ValueError, match="does not fit"):
        resume_learner(tmp_path / "checkpoint", ALGORITHMS["ppo"], recipe.config, "cpu")
    other = dataclasses.replace(recipe.config, reference="ema")
    with pytest.raises(ValueError, match="does not fit"):
        resume_learner(tmp_path / "checkpoint", ALGORITHMS["grpo"], other, "cpu")


def test_a_damaged_trainer_state_is_one_clear_line(tmp_path):
    learner, recipe = learner_and_recipe("grpo")
    save_learner(learner, tmp_path / "checkpoint", {})
    (tmp_path / "checkpoint" / "trainer.json").write_text(json.dumps({"format": FORMAT}))
    with pytest.raises(ValueError, match="trainer.json names no step"):
        resume_learner(tmp_path / "checkpoint", recipe.algorithm, recipe.config, "cpu")
    cut_short(tmp_path / "checkpoint" / "trainer.safetensors")
    with pytest.raises(ValueError, match="cannot read the checkpoint"):
        load_trainer(tmp_path / "checkpoint")


# --- run folders ---------------------------------------------------------------------------------------------------


def test_history_forgives_half_a_last_line_only(tmp_path):
    run = RunFolder(tmp_path / "run")
    run.create({"algorithm": "grpo"})
    for step in (1, 2, 3):
        run.append({"step": step})
    with run.metrics.open("a") as file:
        file.write('{"step": 4, "rew')
    assert [row["step"] for row in run.history()] == [1, 2, 3]
    run.rewind(2)
    assert run.metrics.read_text() == '{"step": 1}\n{"step": 2}\n'
    run.metrics.write_text('{"st\n{"step": 2}\n')
    with pytest.raises(ValueError, match="cannot read"):
        run.history()
