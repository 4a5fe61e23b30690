"""What is peculiar to the exercises on choosing: their solutions against simulation and against the ledger."""

import pytest
import torch
from transformers import LlamaConfig

from rlhf_book.exercises import BUGS, EXERCISES, check
from rlhf_book.exercises.choosing.honest import my_honest
from rlhf_book.exercises.choosing.room import my_largest
from rlhf_book.exercises.choosing.seeds import TABLE, my_seeds
from rlhf_minimal import ALGORITHMS
from rlhf_minimal.lab.memory import Dtypes, memory_ledger

IDS = ["choose-seeds", "choose-honest", "choose-room"]


def test_they_stand_in_the_order_of_the_chapter():
    assert [name for name in EXERCISES if name.startswith("choose-")] == IDS
    assert "a-row-without-a-bound" in BUGS


def test_the_numbers_of_the_verdicts():
    assert my_seeds(1.0, 1.0, TABLE) == 7
    assert my_seeds(0.5, 1.0, TABLE) == 18
    assert my_seeds(1.25, 1.0, TABLE) == 5
    assert my_seeds(1.23, 1.0, TABLE) == 6
    none = torch.zeros(0, dtype=torch.float64)
    both = torch.ones(2, dtype=torch.float64)
    assert my_largest(80.0, 0.0, none) == pytest.approx(4.5)
    assert my_largest(80.0, 1.0, both) == pytest.approx(2.0)


def test_a_choice_among_equal_arms_is_worth_no_more_than_their_mean():
    scores = torch.randn(4000, 5, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    honest = torch.tensor([my_honest(one) for one in scores])
    assert honest.mean() < 0.01
    assert scores.mean(2).max(1).values.mean() > 0.4  # what the same seeds promise


def test_bytes_a_weight_are_those_of_the_ledger():
    config = LlamaConfig(
        vocab_size=97,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    policy, critic, reference = memory_ledger(ALGORITHMS["ppo"], config, dtypes=Dtypes(frozen=torch.bfloat16))
    n = policy.parameters
    held = policy.held + critic.held + reference.held
    sizes = torch.tensor([reference.parameters / n], dtype=torch.float64)
    assert my_largest(held / 0.9, critic.parameters / n, sizes) == pytest.approx(n)


def test_other_rows_with_the_properties_are_accepted():
    """Any row that has what a situation asks for will do; one that lacks it is named."""
    assert check("a-row-without-a-bound", lambda updates, critic, learned: "grpo").passed
    assert check("a-row-without-a-bound", lambda updates, critic, learned: "ppo").passed is False
    assert check("a-row-without-a-bound", lambda updates, critic, learned: "dapo").passed is False
    assert check("a-row-without-a-bound", lambda updates, critic, learned: "nothing").passed is False
