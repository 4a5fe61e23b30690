"""Step rewards on their way into a batch: which token ends a step, which loop carries it, and who sees a rollout."""

import copy
import dataclasses
import functools
import math
import random
import zlib

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from rlhf_minimal import ALGORITHMS, contrib
from rlhf_minimal.config import Config
from rlhf_minimal.functional import filters
from rlhf_minimal.lab.processes import Several
from rlhf_minimal.metrics import METRICS
from rlhf_minimal.models import TokenizerVocabulary, Vocabulary, tiny_llama
from rlhf_minimal.tasks import Problem, Step, VerifierWarning, checked_steps, get_task, score_all
from rlhf_minimal.train import Recipe, _scatter_steps, collect, prepare_batch, roll_out, train, train_step
from rlhf_minimal.train_state import Learner
from rlhf_minimal.vocabulary import character_tokenizer
from tests.training.reading import Plain, read_by

CLOCK = get_task("clock10")
SMALL = Config(steps=2, prompts=4, group_size=4, lr=1e-3)
OWN = dataclasses.replace(ALGORITHMS["grpo"], advantage=contrib.advantages.own_step)


def marker(completions, **columns):
    """A mark for every second character, the later the better: any text has steps."""
    return [[Step(end, end / 10) for end in range(2, len(text) + 1, 2)] for text in completions]


def begin(algorithm=OWN, config=SMALL, *, step_reward=marker, task=CLOCK, **options):
    vocabulary = Vocabulary(task.alphabet)
    policy = tiny_llama(len(vocabulary), width=16, layers=1, heads=2, max_length=128)
    return Learner.begin(policy, vocabulary, algorithm, config), Recipe(
        algorithm, task, config, step_reward=step_reward, **options
    )


def byte_pairs(texts):
    """A byte-level tokenizer with merges, like those of real models: a character may take several tokens."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=290, initial_alphabet=alphabet, show_progress=False)
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    tokenizer.add_special_tokens({"eos_token": "<end>"})
    return TokenizerVocabulary(tokenizer)


BYTES = byte_pairs(["3d8b5g9f=f and so on, step by step", "7 + 5 = 12, so 12 + 9 = 21"])


# --- where a step ends -----------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=100)
@given(st.text(alphabet="3d8b=f ,é漢😀", min_size=1, max_size=12), st.data())
def test_a_step_ends_at_the_token_that_completes_its_text(text, data):
    end = data.draw(st.integers(1, len(text)))
    ids = BYTES.encode(text)
    place = BYTES.token_of(ids, end)
    assert BYTES.decode(ids[: place + 1]).startswith(text[:end])
    assert not BYTES.decode(ids[:place]).startswith(text[:end])


@given(st.text(alphabet="abc", min_size=1, max_size=9), st.data())
def test_both_kinds_of_vocabulary_place_a_character_at_its_token(text, data):
    end = data.draw(st.integers(1, len(text)))
    plain, tokenizer = Vocabulary("abc"), TokenizerVocabulary(character_tokenizer("abc"))
    assert plain.token_of(plain.encode(text), end) == tokenizer.token_of(tokenizer.encode(text), end) == end - 1


def placed(vocabulary, text, steps, budget=20):
    ids = [*vocabulary.encode(text), vocabulary.eos_id][:budget]
    mask = torch.ones(1, len(ids))
    found = _scatter_steps(vocabulary, torch.tensor([ids]), mask, [steps])
    return [(t, found["step_marks"][0, t].item()) for t in found["step_ends"][0].nonzero().flatten().tolist()]


def test_the_last_token_belongs_to_the_outcome():
    vocabulary = Vocabulary("abc=")
    assert placed(vocabulary, "abca", [Step(2, 1.0), Step(4, 0.0)]) == [(1, 1.0), (3, 0.0)]
    assert placed(vocabulary, "abca", [Step(2, 1.0), Step(4, 0.0)], budget=4) == [(1, 1.0)]


def test_steps_in_one_token_become_one_with_the_lowest_mark():
    merged = next(i for i in range(len(BYTES)) if len(BYTES.decode([i])) >= 3 and i != BYTES.eos_id)
    text = BYTES.decode([merged])
    steps = [Step(1, 0.5), Step(2, -1.0), Step(len(text), 1.0)]
    assert BYTES.encode(text) == [merged]
    assert placed(BYTES, text, steps) == [(0, -1.0)]


# --- through the loop ------------------------------------------------------------------------------------------------


def test_marks_and_outcome_reach_the_batch_where_they_were_earned():
    learner, recipe = begin()
    groups, _ = collect(learner.policy, learner.vocabulary, recipe, 1)
    batch, _ = prepare_batch(learner, recipe, groups, 1)
    for row, text in enumerate(groups.texts):
        last = int(groups.mask[row].sum()) - 1
        expected = {end - 1: mark for end, mark in marker([text])[0] if end - 1 < last}
        assert expected.keys() | {last} == set(batch.step_ends[row].nonzero().flatten().tolist())
        for t in range(batch.mask.shape[1]):
            paid = groups.rewards[row].item() if t == last else expected.get(t, 0.0)
            assert batch.step_rewards[row, t].item() == pytest.approx(paid)
    known = {"group_size": 4, "step_ends": batch.step_ends}
    torch.testing.assert_close(batch.advantages, contrib.advantages.own_step(batch.step_rewards, batch.mask, **known))


def test_the_fast_room_and_the_plain_path_take_the_same_step():
    after = []
    for reading in (None, Plain()):
        learner, recipe = begin()
        metrics = train_step(learner, read_by(recipe, reading))
        weights = torch.cat([p.detach().flatten() for p in learner.policy.parameters()])
        after.append((metrics["steps"], metrics["step_mark"], metrics["loss"], weights))
    assert after[0][:2] == after[1][:2]
    assert after[0][2] == pytest.approx(after[1][2], abs=1e-6)
    torch.testing.assert_close(after[0][3], after[1][3], atol=1e-5, rtol=0)


def test_refilled_groups_carry_their_marks():
    row = dataclasses.replace(OWN, keep=filters.mixed_outcomes)
    learner, recipe = begin(row, dataclasses.replace(SMALL, max_refills=40))
    coin = dataclasses.replace(
        recipe, reward=lambda completions, **_: [float(zlib.crc32(text.encode()) % 2) for text in completions]
    )
    groups, sampled = collect(learner.policy, learner.vocabulary, coin, 1)
    assert len(sampled) >= 1
    for i, text in enumerate(groups.texts):
        ends = [end - 1 for end, _ in marker([text])[0] if end < int(groups.mask[i].sum())]
        assert groups.step_ends[i].nonzero().flatten().tolist() == ends


def test_a_row_without_steps_of_its_own_is_paid_at_the_tokens():
    """Marks are rewards of single tokens: a return sums those that follow, a group's baseline all of a completion."""
    learner, recipe = begin(dataclasses.replace(ALGORITHMS["reinforce"], kl=()))
    groups, _ = collect(learner.policy, learner.vocabulary, recipe, 1)
    batch, _ = prepare_batch(learner, recipe, groups, 1)
    to_go = (groups.step_marks.flip(-1).cumsum(-1).flip(-1) + groups.rewards[:, None]) * groups.mask
    torch.testing.assert_close(batch.advantages, to_go)


def test_without_a_step_reward_nothing_changes():
    learner, recipe = begin(ALGORITHMS["grpo"], step_reward=None)
    groups, _ = collect(learner.policy, learner.vocabulary, recipe, 1)
    assert not groups.step_ends.any()
    assert prepare_batch(learner, recipe, groups, 1)[0].step_rewards is None
    assert "steps" not in train_step(learner, recipe)


def test_a_recipe_that_pays_for_steps_needs_somebody_to_mark_them():
    with pytest.raises(ValueError, match=r"pays for single steps, and nothing marks them: give a step reward"):
        Recipe(OWN, CLOCK)
    Recipe(OWN, CLOCK, step_reward=checked_steps(CLOCK))


class TwoOfThem(Several):
    """The first of two processes; what the other would send is a copy of its own share."""

    def all_gather_object(self, own):
        return [own, own]


def test_several_processes_gather_the_marks_with_the_rest():
    learner, recipe = begin()
    problems = CLOCK.problems("train", 4, seed=0)
    write = functools.partial(roll_out, learner.policy, learner.vocabulary, recipe=recipe)
    together = TwoOfThem(0, 2).roll_out(write, problems, group_size=2, seed="s")
    alone = roll_out(learner.policy, learner.vocabulary, problems[:2], recipe, group_size=2, seed="s/process 0")
    assert alone.step_ends.any()
    assert torch.equal(together.step_ends, alone.step_ends.repeat(2, 1))
    assert torch.equal(together.step_marks, alone.step_marks.repeat(2, 1))


# --- step rewards that fail ------------------------------------------------------------------------------------------


def test_a_step_reward_that_fails_on_some_completions_costs_them_their_steps():
    def picky(completions, **columns):
        if any(len(text) % 2 for text in completions):
            raise RuntimeError("odd")
        return marker(completions)

    learner, recipe = begin(step_reward=picky)
    with pytest.warns(VerifierWarning, match="RuntimeError: odd"):
        groups, _ = collect(learner.policy, learner.vocabulary, recipe, 2)
    odd = [len(text) % 2 == 1 for text in groups.texts]
    assert any(odd)
    assert groups.failed.tolist() == odd
    assert not groups.step_ends[torch.tensor(odd)].any()
    assert groups.step_ends.any()


@pytest.mark.parametrize(
    "steps",
    [
        [(0, 1.0)],
        [(3, 1.0)],
        [(2, 1.0), (1, 1.0)],
        [(1, 1.0), (1, 1.0)],
        [(1, math.nan)],
        [(1.5, 1.0)],
        [1.0],
        1.0,
        "ab",
    ],
)
def test_steps_that_are_none_end_the_run(steps):
    with pytest.raises(ValueError, match=r"steps must be pairs \(end, mark\).*from 1 to the 2 characters.*in row 2"):
        score_all(lambda **_: [[], steps], [Problem("1:", "")] * 2, ["22", "22"], 1, of_steps=True)


def test_one_list_of_steps_for_each_completion():
    with pytest.raises(ValueError, match="one list of steps per completion, 2 in a list; got 1"):
        score_all(lambda **_: [[]], [Problem("1:", "")] * 2, ["22", "22"], 1, of_steps=True)


# --- who sees it -----------------------------------------------------------------------------------------------------


def test_a_hook_sees_everything_that_was_sampled():
    row = dataclasses.replace(OWN, keep=filters.mixed_outcomes)
    learner, recipe = begin(row, dataclasses.replace(SMALL, max_refills=40))
    rng = random.Random(0)
    recipe = dataclasses.replace(
        recipe, reward=lambda completions, **_: [float(rng.random() < 0.1) for _ in completions]
    )
    seen = []
    before = copy.deepcopy(learner.policy.state_dict())

    def look(step, rollout):
        if step == 1:  # before the update
            assert all(torch.equal(before[name], x) for name, x in learner.policy.state_dict().items())
        seen.append((step, len(rollout.texts), rollout.rewards.mean().item(), rollout.step_ends.sum().item()))

    history = train(learner, recipe, on_rollout=look)
    assert [one[0] for one in seen] == [1, 2]
    for (_, rows, reward, ends), metrics in zip(seen, history, strict=True):
        assert rows == (1 + metrics["refills"]) * 16
        assert reward == pytest.approx(metrics["reward"])
        assert ends / rows == pytest.approx(metrics["steps"])
    assert any(metrics["refills"] for metrics in history)


def test_lengths_of_right_and_wrong_completions_are_told_apart():
    learner, recipe = begin()
    recipe = dataclasses.replace(
        recipe, task=dataclasses.replace(CLOCK, verify=lambda text, problem: float("a" in text))
    )
    seen = []
    metrics = train_step(learner, recipe, on_rollout=lambda step, rollout: seen.append(rollout))
    lengths = {True: [], False: []}
    for i, text in enumerate(seen[0].texts):
        lengths["a" in text].append(int(seen[0].mask[i].sum()))
    assert metrics["length_right"] == pytest.approx(sum(lengths[True]) / len(lengths[True]))
    assert metrics["length_wrong"] == pytest.approx(sum(lengths[False]) / len(lengths[False]))
    assert metrics["step_mark"] == pytest.approx(float(seen[0].step_marks.sum() / seen[0].step_ends.sum()))
    assert {"length_right", "length_wrong", "steps", "step_mark"} <= set(METRICS)
