"""The book's one small batch: a policy could say it, it holds every case of the clip, and every row can train on it."""

from collections import defaultdict
from dataclasses import replace

import pytest
import torch

from rlhf_book.exercises.worked_example import COMPLETIONS, GROUP_SIZE, PROMPTS, REWARDS, worked_example
from rlhf_minimal import ALGORITHMS, policy_loss

OLD, NEW, REFERENCE, VALUE = 1, 2, 3, 4


def tokens():
    """(prefix, token with its numbers) of everything in the batch; the prefix begins with the prompt."""
    for number, completion in enumerate(COMPLETIONS):
        prefix = (PROMPTS[number // GROUP_SIZE],)
        for token in completion:
            yield prefix, token
            prefix = (*prefix, token[0])


@pytest.mark.parametrize("policy", [OLD, NEW, REFERENCE])
def test_a_policy_could_say_it(policy):
    following = defaultdict(dict)
    for prefix, token in tokens():
        assert following[prefix].setdefault(token[0], token[policy]) == token[policy]
    assert all(0 < p < 1 for options in following.values() for p in options.values())
    assert all(sum(options.values()) <= 1 for options in following.values())


def test_the_critic_has_one_opinion_of_a_prefix():
    values = {}
    assert all(values.setdefault(prefix, token[VALUE]) == token[VALUE] for prefix, token in tokens())


def test_each_case_outside_the_band_stands_on_one_token():
    cases = []
    for number, completion in enumerate(COMPLETIONS):
        group = REWARDS[number // GROUP_SIZE * GROUP_SIZE :][:GROUP_SIZE]
        good = REWARDS[number] > sum(group) / GROUP_SIZE
        for token in completion:
            ratio = token[NEW] / token[OLD]
            if not 0.8 <= ratio <= 1.2:
                cases.append((good, ratio > 1, token[0]))
    assert sorted(cases) == [(False, False, "<eos>"), (False, True, "about"), (True, False, "it"), (True, True, "42")]


def test_the_batch_says_what_the_table_above_it_says():
    batch = worked_example()
    assert batch.lengths.tolist() == [len(completion) for completion in COMPLETIONS]
    assert batch.logp.dtype == torch.float64
    assert batch.logp.is_leaf
    assert batch.logp.requires_grad
    for row, completion in enumerate(COMPLETIONS):
        for t, (_, old, new, reference, value) in enumerate(completion):
            found = [x[row, t].item() for x in (batch.old_logp.exp(), batch.logp.exp(), batch.ref_logp.exp())]
            assert found == pytest.approx([old, new, reference])
            assert batch.values[row, t] == value


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_row_can_train_on_it(name):
    batch = worked_example()
    greedy = torch.tensor([1.0] * GROUP_SIZE + [0.0] * GROUP_SIZE)
    # Sampled by the trainer's own model; for ReMax its most probable completions, one right and one wrong; for GDPO two
    # rewards, of which the second is the same for all; for the tokens of high entropy, each token's own term of it.
    parts = torch.stack([batch.rewards, torch.ones_like(batch.rewards)], 1)
    entropy = -batch.logp.exp() * batch.logp
    batch = replace(batch, sampler_logp=batch.old_logp, greedy_rewards=greedy, reward_parts=parts, entropy=entropy)
    policy_loss(ALGORITHMS[name], batch).backward()
    assert torch.isfinite(batch.logp.grad).all()
    assert batch.logp.grad[batch.mask == 1].any()
    assert not batch.logp.grad[batch.mask == 0].any()
