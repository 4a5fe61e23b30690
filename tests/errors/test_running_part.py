"""Bad input to tasks, models and the loop: a ValueError that says what to do. Runs without the shape hook."""

import pytest
import torch

from rlhf_book import plotting
from rlhf_minimal.models import Vocabulary
from rlhf_minimal.tasks import PairRow, TextRow, get_task, read_rows
from rlhf_minimal.training import Config
from rlhf_minimal.training.trpo import mean_kl


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
