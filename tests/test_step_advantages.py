"""Paying for steps: each cell beside a slow transcription that loops over tokens, its properties and its gradient."""

import math
from dataclasses import replace
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlhf_minimal import ALGORITHMS, Batch, contrib, policy_loss, prepare
from rlhf_minimal.functional import advantages

G = 3
CELLS = (contrib.advantages.own_step, contrib.advantages.first_wrong)


@st.composite
def groups(draw):
    """Two groups of completions: masks with holes, steps anywhere, marks of 0 and 1, an outcome on the last token."""
    B, T = 2 * G, draw(st.integers(2, 7))
    bits = st.lists(st.integers(0, 1), min_size=T, max_size=T)
    mask = torch.tensor([draw(bits.filter(any)) for _ in range(B)]).double()
    ends = torch.tensor([draw(bits) for _ in range(B)])
    rewards = torch.tensor([draw(bits) for _ in range(B)]).double() * ends
    outcomes = torch.tensor([float(draw(st.integers(0, 1))) for _ in range(B)]).double()
    return rewards, ends, outcomes, mask


def trained(mask, i):
    return [t for t in range(mask.shape[1]) if mask[i, t]]


def total(rewards, ends, outcomes, mask):
    """Marks at the ends of steps, and the outcome on the last trained token, as the loop puts them together."""
    put = torch.zeros_like(rewards)
    for i in range(len(mask)):
        tokens = trained(mask, i)
        for t in tokens[:-1]:
            put[i, t] = rewards[i, t]
        put[i, tokens[-1]] = outcomes[i]
    return put


def zscores(numbers, eps=1e-4):
    mean = sum(numbers) / len(numbers)
    if all(x == numbers[0] for x in numbers):
        return [0.0] * len(numbers)
    return [(x - mean) / (math.sqrt(sum((y - mean) ** 2 for y in numbers) / (len(numbers) - 1)) + eps) for x in numbers]


def transcription(rewards, ends, outcomes, mask, pay):
    """Token by token: the outcome's z-score, plus what `pay` says of the step that the token is in."""
    A = [[0.0] * mask.shape[1] for _ in mask]
    for first in range(0, len(mask), G):
        rows = range(first, first + G)
        steps = {}  # row -> the last tokens of its steps; the last token of all belongs to the outcome
        for i in rows:
            steps[i] = [t for t in trained(mask, i)[:-1] if ends[i, t]]
        paid = pay({(i, t): float(rewards[i, t]) for i in rows for t in steps[i]}, steps)
        z = dict(zip(rows, zscores([float(outcomes[i]) for i in rows]), strict=True))
        for i in rows:
            for t in trained(mask, i):
                later = [end for end in steps[i] if end >= t]
                A[i][t] = z[i] + (paid.get((i, later[0]), 0.0) if later else 0.0)
    return torch.tensor(A, dtype=torch.float64)


def own(marks, steps):
    return dict(zip(marks, zscores(list(marks.values())), strict=True)) if len(marks) > 1 else {}


def blame(marks, steps):
    wrong = {i: [t for t in ends if marks[i, t] < 0.5] for i, ends in steps.items()}
    return {(i, ends[0]): -1.0 for i, ends in wrong.items() if ends}


@settings(deadline=None, max_examples=60)
@given(groups())
@pytest.mark.parametrize(("cell", "pay"), [(contrib.advantages.own_step, own), (contrib.advantages.first_wrong, blame)])
def test_the_cell_is_its_transcription(cell, pay, case):
    rewards, ends, outcomes, mask = case
    ours = cell(total(*case), mask, group_size=G, step_ends=ends)
    torch.testing.assert_close(ours, transcription(rewards, ends, outcomes, mask, pay), atol=1e-9, rtol=0)


@settings(deadline=None, max_examples=20)
@given(groups())
@pytest.mark.parametrize("cell", CELLS)
def test_without_steps_or_without_pay_it_is_grpo(cell, case):
    rewards, ends, outcomes, mask = case
    grpo = advantages.group_normalized(total(0 * rewards, ends, outcomes, mask), mask, group_size=G)
    none = torch.zeros_like(ends)
    torch.testing.assert_close(cell(total(0 * rewards, ends, outcomes, mask), mask, group_size=G, step_ends=none), grpo)
    torch.testing.assert_close(cell(total(*case), mask, group_size=G, step_ends=ends, coef=0.0), grpo)


@settings(deadline=None, max_examples=20)
@given(groups(), st.randoms(use_true_random=False))
@pytest.mark.parametrize("cell", CELLS)
def test_neither_padding_nor_the_order_within_a_group_matters(cell, case, rng):
    _, ends, _, mask = case
    token_rewards = total(*case)
    A = cell(token_rewards, mask, group_size=G, step_ends=ends)
    order = [*rng.sample(range(G), G), *range(G, 2 * G)]
    moved = cell(token_rewards[order], mask[order], group_size=G, step_ends=ends[order])
    torch.testing.assert_close(moved, A[order])
    wide = partial(torch.nn.functional.pad, pad=(0, 2))
    torch.testing.assert_close(cell(wide(token_rewards), wide(mask), group_size=G, step_ends=wide(ends)), wide(A))


def test_who_is_paid_for_a_late_wrong_step():
    """Two completions of three steps, equal outcomes; the second one's last step is wrong.

    Summed over the future, its first steps are blamed as well; by its own step, and by the first wrong one, only that
    step's tokens are.
    """
    marks = torch.tensor([[1.0, 0, 1, 0, 1, 0, 0], [1, 0, 1, 0, 0, 0, 0]]).double().roll(1, -1)
    ends = torch.tensor([[0, 1, 0, 1, 0, 1, 0]] * 2)
    mask, outcome = torch.ones(2, 7).double(), torch.zeros(2, 7).double()
    gap = {}
    for cell in (contrib.advantages.process, *CELLS):
        A = cell(marks + outcome, mask, group_size=2, step_ends=ends)
        gap[cell.__name__] = (A[0] - A[1]).tolist()
    assert all(x > 1 for x in gap["process"][:6])
    assert gap["own_step"][:4] == gap["first_wrong"][:4] == [0.0] * 4
    assert all(x > 1 for x in gap["own_step"][4:6])
    assert gap["first_wrong"][4:6] == [1.0, 1.0]
    assert gap["process"][6] == gap["own_step"][6] == gap["first_wrong"][6] == 0.0


def test_one_more_right_step_pays_the_earlier_ones_only_if_the_future_is_summed():
    """An idle right step at the end: `process` pays every token before it, the other two pay nothing before it."""
    ends = torch.tensor([[0, 1, 0, 1, 0], [0, 1, 0, 0, 0], [0, 1, 0, 0, 0]])
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 1, 1, 0, 0]]).double()
    marks = torch.tensor([[0, 1.0, 0, 1.0, 0], [0, 1.0, 0, 0, 0], [0, 0.0, 0, 0, 0]]).double()
    first = {}
    for cell in (contrib.advantages.process, *CELLS):
        A = cell(marks, mask, group_size=3, step_ends=ends)
        first[cell.__name__] = float(A[0, 0] - A[1, 0])
    assert first["process"] > 0.4
    assert first["own_step"] == first["first_wrong"] == 0.0


@pytest.mark.parametrize("cell", CELLS)
def test_the_gradient_reaches_the_tokens_of_the_step_alone(cell):
    """Equal outcomes: a row with the cell has a gradient in the tokens of marked steps, GRPO has none at all."""
    ends = torch.tensor([[0, 1, 0, 0], [0, 1, 0, 0]])
    step_rewards = torch.tensor([[0, 0.0, 0, 1.0], [0, 1.0, 0, 1.0]])
    row = replace(ALGORITHMS["grpo"], kl=(), advantage=cell)
    logp = torch.full((2, 4), -1.0, requires_grad=True)
    batch = Batch(
        logp, logp.detach(), torch.ones(2, 4), torch.ones(2), 2, step_rewards=step_rewards, step_ends=ends, budget=4
    )
    policy_loss(row, batch).backward()
    assert (logp.grad[0, :2] > 0).all()  # a wrong step becomes less likely: the loss falls with its log-prob
    assert (logp.grad[:, 2:] == 0).all()
    assert (logp.grad[1, :2] < 0).all() if cell is contrib.advantages.own_step else (logp.grad[1] == 0).all()


def test_a_row_that_pays_for_steps_needs_their_ends():
    row = replace(ALGORITHMS["grpo"], kl=(), advantage=contrib.advantages.own_step)
    assert "step_ends" in row.needs
    logp = torch.zeros(2, 3)
    with pytest.raises(ValueError, match="needs step_ends: pass Batch"):
        prepare(row, Batch(logp, logp, torch.ones(2, 3), torch.ones(2), 2))
