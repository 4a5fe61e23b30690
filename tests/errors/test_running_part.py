"""Bad input to tasks, models and the loop: a ValueError that says what to do. Runs without the shape hook."""

import math
from pathlib import Path

import pytest
import torch

from rlhf_book import plotting
from rlhf_minimal import ALGORITHMS
from rlhf_minimal.cli import main
from rlhf_minimal.config import Config
from rlhf_minimal.fit import imitate
from rlhf_minimal.functional.logprobs import token_logprobs
from rlhf_minimal.lab.rows import TextRow, read_rows
from rlhf_minimal.lab.sampled_rows import sample_completions
from rlhf_minimal.lab.trust_region import mean_kl
from rlhf_minimal.models import Vocabulary, tiny_llama
from rlhf_minimal.sample import sample
from rlhf_minimal.tasks import PairRow, get_task
from rlhf_minimal.train import Recipe


def test_an_unknown_split():
    with pytest.raises(ValueError, match="'train' or 'held_out'; got 'test'"):
        get_task("addition").problems("test", 1, seed=0)


WRONG_CHOICES = [
    {"reference": "melting"},
    {"baseline": "hunch"},
    {"critic": "twin"},
    {"value_head_init": "xavier"},
    {"score_scaling": "z"},
    {"kl_control": "pid"},
]


@pytest.mark.parametrize("wrong", WRONG_CHOICES)
def test_config_lists_the_choices(wrong):
    ((name, value),) = wrong.items()
    with pytest.raises(ValueError, match=f"{name} must be .*got '{value}'"):
        Config(**wrong)


@pytest.mark.parametrize("name", ["value_warm_up", "value_epochs", "value_minibatches", "value_layers"])
def test_settings_of_a_critic_need_one(name):
    config = Config(**{name: 1})
    with pytest.raises(ValueError, match=f"{name} is for a critic, but this algorithm has none"):
        Recipe(ALGORITHMS["grpo"], get_task("addition"), config)


def test_which_completions_are_kept_is_one_of_two_words():
    recipe, vocabulary = Recipe(ALGORITHMS["grpo"], get_task("even")), Vocabulary("0123456789:")
    with pytest.raises(ValueError, match="keep must be 'all' or 'right'; got 'best'"):
        sample_completions(tiny_llama(12, width=16), vocabulary, recipe, problems=1, keep="best")
    with pytest.raises(ValueError, match="problems is 0, expected a whole number of at least 1"):
        sample_completions(tiny_llama(12, width=16), vocabulary, recipe, problems=0)


def test_rows_to_imitate_are_a_list_or_a_task():
    with pytest.raises(ValueError, match="^row 1: expected an object with named columns; got int"):
        imitate(tiny_llama(12, width=16), Vocabulary("0123456789:"), [3])
    for file in ("nowhere.jsonl", Path("nowhere.jsonl")):
        with pytest.raises(ValueError, match="nowhere.jsonl.*: read a file with rlhf_minimal.lab.rows.read_rows"):
            imitate(tiny_llama(12, width=16), Vocabulary("0123456789:"), file)


def test_a_stack_task_lists_its_options():
    with pytest.raises(ValueError, match="'depth=3' is none of tests=hidden, tests=visible, score=all and score=share"):
        get_task("stack:depth=3")


def test_a_learning_curve_needs_one_value_per_step():
    from matplotlib.figure import Figure

    ax = Figure().add_subplot()
    with pytest.raises(ValueError, match=r"one value per step \(3\); got 2"):
        plotting.learning_curve(ax, [1, 2, 3], [torch.zeros(2)], label="", color="k")


def test_logits_and_mask_of_a_mean_kl_must_fit():
    with pytest.raises(ValueError, match=r"must be \[B, T, V\]"):
        mean_kl(torch.zeros(1, 2, 3), torch.zeros(1, 2, 4), torch.ones(1, 2))


def test_rows_that_are_no_objects_are_named():
    with pytest.raises(ValueError, match="^row 3: expected an object with named columns; got str"):
        read_rows([{"text": "a"}, {"text": "b"}, "a"], TextRow, Vocabulary("ab"), max_length=9)


def test_a_dict_of_splits_is_not_read_as_rows():
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_list([{"prompt": "a", "chosen": "a", "rejected": "b"}])
    with pytest.raises(ValueError, match="choose one of train"):
        read_rows(datasets.DatasetDict({"train": rows}), PairRow, Vocabulary("ab"), max_length=9)


@pytest.mark.parametrize("temperature", ["inf", "-inf", "nan", "-1", "1e-40"])
@pytest.mark.parametrize(
    "command", [["sample", "start"], ["train", "grpo", "--steps", "1"]], ids=lambda words: words[0]
)
def test_a_temperature_is_a_number(command, temperature, tmp_path, capsys):
    out = ["--out", str(tmp_path / "run")] if command[0] == "train" else []
    assert main([*command, *out, f"--temperature={temperature}"]) != 0
    (said,) = capsys.readouterr().err.strip().splitlines()
    assert "temperature" in said


@pytest.mark.parametrize("temperature", [math.inf, math.nan, -1.0, 1e-40])
def test_the_functions_that_sample_say_so_too(temperature):
    ids = torch.ones(1, 2, dtype=torch.long)
    model = tiny_llama(5, width=16, heads=2, layers=1, max_length=9)
    with pytest.raises(ValueError, match="temperature"):
        sample(model, ids, ids, max_new_tokens=1, eos_id=0, pad_id=0, temperature=temperature)
    with pytest.raises(ValueError, match="temperature"):
        token_logprobs(torch.zeros(1, 2, 5), ids, temperature=temperature)
