"""Completions that go on from a beginning, and answers forced out of a budget."""

import dataclasses

import pytest
import torch

from rlhf_minimal import ALGORITHMS
from rlhf_minimal.config import Config
from rlhf_minimal.lab.fast import Fast
from rlhf_minimal.lab.forced_tokens import force, roll_out_from_prefixes
from rlhf_minimal.models import TokenizerVocabulary, Vocabulary, tiny_llama
from rlhf_minimal.tasks import get_task
from rlhf_minimal.train import Recipe, prepare_batch, roll_out
from rlhf_minimal.train_state import Learner
from rlhf_minimal.vocabulary import character_tokenizer
from tests.training.reading import Plain, read_by

CLOCK = get_task("clock10")
ROW = dataclasses.replace(ALGORITHMS["grpo"], kl=())
PROBLEMS = CLOCK.problems("train", 3, seed=0)


def policy_of(vocabulary):
    return tiny_llama(len(vocabulary), width=16, layers=1, heads=2, max_length=128)


VOCABULARY = Vocabulary(CLOCK.alphabet)
POLICY = policy_of(VOCABULARY)


def recipe(budget=12, reading=None, **options):
    config = Config(prompts=3, group_size=2, max_new_tokens=budget)
    return read_by(Recipe(ROW, CLOCK, config, **options), reading)


def tokens(rollout, row):
    """What a row holds up to its last trained token."""
    last = int(rollout.mask[row].nonzero().max())
    return rollout.completions[row, : last + 1].tolist()


@pytest.mark.parametrize("reading", [Plain(), Fast()])
def test_a_greedy_completion_goes_on_from_any_of_its_beginnings(reading):
    plan = recipe(reading=reading)
    whole = roll_out(POLICY, VOCABULARY, PROBLEMS, plan, temperature=0.0)
    for cut in (0, 1, 5):
        beginnings = [tokens(whole, row)[: min(cut + row, len(tokens(whole, row)) - 1)] for row in range(3)]
        again = roll_out_from_prefixes(POLICY, VOCABULARY, PROBLEMS, plan, temperature=0.0, prefixes=beginnings)
        assert again.texts == whole.texts
        assert torch.equal(again.truncated, whole.truncated)
        assert again.correct.tolist() == whole.correct.tolist()
        for row, beginning in enumerate(beginnings):
            assert tokens(again, row) == tokens(whole, row)
            assert again.mask[row].tolist()[: len(beginning)] == [0.0] * len(beginning)
            assert again.mask[row].sum() == whole.mask[row].sum() - len(beginning)


@pytest.mark.parametrize("vocabulary", [VOCABULARY, TokenizerVocabulary(character_tokenizer(CLOCK.alphabet))])
def test_log_probs_are_those_of_the_sampled_tokens_and_the_beginning_has_none(vocabulary):
    plan = recipe(reading=Plain())
    prefixes = [vocabulary.encode(text) for text in ("3d", "3d8b=", "")]
    sampled = roll_out_from_prefixes(POLICY, vocabulary, PROBLEMS, plan, group_size=2, seed="x", prefixes=prefixes)
    read = Plain().logp(POLICY, sampled, plan.config)
    torch.testing.assert_close(sampled.logp, read * sampled.mask, atol=1e-5, rtol=0)
    for row, text in enumerate(sampled.texts):
        assert text.startswith(("3d", "3d", "3d8b=", "3d8b=", "", "")[row])
    learner = Learner.begin(POLICY, vocabulary, ROW, plan.config)
    batch, _ = prepare_batch(learner, plan, sampled, 1)
    assert (batch.advantages[sampled.mask == 0] == 0).all()


def test_the_budget_holds_for_beginning_and_end_together():
    prefixes = [VOCABULARY.encode("1" * n) for n in (1, 4, 7)]
    sampled = roll_out_from_prefixes(
        POLICY, VOCABULARY, PROBLEMS, recipe(budget=8), group_size=40, prefixes=prefixes, seed="b"
    )
    assert sampled.completions.shape[1] == 8
    ended = (sampled.completions * (sampled.mask != 0) == VOCABULARY.eos_id) & (sampled.mask != 0)
    assert torch.equal(sampled.truncated, ~ended.any(-1))
    lengths = sampled.mask.sum(-1).view(3, 40)
    assert [int(x) for x in lengths.amax(-1)] == [7, 4, 1]
    assert sampled.truncated.any()


@pytest.mark.parametrize(
    ("prefixes", "message"),
    [
        ([[1]], "one prefix for each problem: got 1 for 3 problems"),
        ([[1], [1, 0], [1]], r"prefix of problem 2 has 2 tokens of a budget of 12, or holds the token that ends"),
        ([[1], [1], [1] * 12], r"prefix of problem 3 has 12 tokens of a budget of 12"),
    ],
)
def test_beginnings_from_which_nothing_goes_on(prefixes, message):
    with pytest.raises(ValueError, match=message):
        roll_out_from_prefixes(POLICY, VOCABULARY, PROBLEMS, recipe(), prefixes=prefixes)


def test_what_has_not_ended_in_time_gets_the_text_and_the_rest_is_left_alone():
    plan = recipe(budget=16)
    options = {"group_size": 30, "seed": "f"}
    forced = force(POLICY, VOCABULARY, PROBLEMS, plan, at=5, text="=", **options)
    short = roll_out(POLICY, VOCABULARY, PROBLEMS, recipe(budget=5), **options)
    kinds = set()
    for row, (text, before) in enumerate(zip(forced.texts, short.texts, strict=True)):
        assert text.startswith(before)
        assert forced.problems[row] == short.problems[row]
        if not short.truncated[row]:
            kinds.add("ended")
            assert text == before
            assert forced.mask[row].sum() == short.mask[row].sum()
        elif "=" in before:
            kinds.add("had it")
            assert forced.mask[row, :6].tolist() == [1.0] * 6
        else:
            kinds.add("forced")
            assert text[5] == "="
            assert forced.mask[row, :7].tolist() == [1.0] * 5 + [0.0, 1.0]
    assert kinds == {"ended", "had it", "forced"}
    read = Plain().logp(POLICY, forced, plan.config)
    torch.testing.assert_close(forced.logp * forced.mask, read * forced.mask, atol=1e-5, rtol=0)


def test_nothing_is_forced_where_everything_has_ended():
    plan = recipe(budget=64)
    wholes = (roll_out(POLICY, VOCABULARY, PROBLEMS[:1], plan, seed=str(seed)) for seed in range(100))
    seed, whole = next((seed, whole) for seed, whole in enumerate(wholes) if not whole.truncated.any())
    at = int(whole.mask.sum())
    assert force(POLICY, VOCABULARY, PROBLEMS[:1], plan, at=at, text="=", seed=str(seed)).texts == whole.texts
