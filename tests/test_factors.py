"""The factors of a token's weight: their product is the weight, in every row that is offered, and by hand."""

import dataclasses
import math

import pytest
import torch

from rlhf_book.factors import Factors, factors_of, fitting_rows
from rlhf_minimal import ALGORITHMS, Batch, policy_loss, prepare

ROWS = fitting_rows()


def batch(seed=0, groups=3, size=4, width=6):
    """A ragged batch of whole groups, one of them all wrong, far enough from the old policy for every gate to act."""
    draw = torch.Generator().manual_seed(seed)
    n = groups * size
    lengths = torch.randint(1, width + 1, (n,), generator=draw)
    mask = (torch.arange(width) < lengths[:, None]).float()
    old = -3 * torch.rand(n, width, generator=draw, dtype=torch.float64) - 0.05
    near = 0.6 * torch.randn(3, n, width, generator=draw, dtype=torch.float64)
    now, ref, sampler = (torch.minimum(old + one, torch.tensor(-1e-3)) for one in near)
    rewards = torch.randint(0, 2, (n,), generator=draw).double()
    rewards[:size] = 0.0
    rewards[size : size + 2] = torch.tensor([1.0, 0.0], dtype=torch.float64)
    return now, Batch(old, old, mask, rewards, size, ref_logp=ref, sampler_logp=sampler, budget=8)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("row", ROWS)
def test_the_product_of_the_factors_is_the_weight(row, seed):
    now, whole = batch(seed)
    algorithm = ALGORITHMS[row]
    prepared = dataclasses.replace(prepare(algorithm, whole), logp=now)
    found = factors_of(algorithm, prepared)
    torch.testing.assert_close(found.product, found.weight, rtol=1e-9, atol=1e-12)


SMOOTH = ("grpo", "dr_grpo", "dapo", "gspo", "gmpo", "sapo", "icepop", "olmo3", "lite_ppo", "maxrl", "luspo")


@pytest.mark.parametrize("row", SMOOTH)
def test_the_weight_is_a_finite_difference_of_the_loss(row):
    """In rows without a weight that is kept from the gradient: there the loss's value has the loss's slope."""
    now, whole = batch(1)
    prepared = dataclasses.replace(prepare(ALGORITHMS[row], whole), logp=now)
    weight, step = factors_of(ALGORITHMS[row], prepared).weight, 1e-6
    for place in torch.nonzero(whole.mask)[4::5].tolist():
        loss = []
        for sign in (1, -1):
            logp = now.clone()
            logp[tuple(place)] += sign * step
            loss.append(policy_loss(ALGORITHMS[row], dataclasses.replace(prepared, logp=logp)).item())
        assert weight[tuple(place)].item() == pytest.approx((loss[1] - loss[0]) / (2 * step), abs=1e-7)


def test_every_kind_of_factor_is_met():
    """A product would hold of factors that are all 1."""
    now, whole = batch(0)
    found = {
        row: factors_of(ALGORITHMS[row], dataclasses.replace(prepare(ALGORITHMS[row], whole), logp=now)) for row in ROWS
    }
    inside = whole.mask != 0
    for kind, row in (("gate", "grpo"), ("correct", "icepop"), ("trust", "dppo"), ("pull", "grpo"), ("ratio", "gspo")):
        assert len(set(getattr(found[row], kind)[inside].tolist())) > 1, (kind, row)
    assert (found["grpo"].gate[inside] == 0).any()
    assert found["grpo"].gate[:4].isnan().all()  # all wrong: there is nothing to gate
    assert not found["dr_grpo"].weight[:4].any()
    assert not any(one.weight[~inside].any() for one in found.values())
    assert len({tuple(one.weight.flatten().tolist()) for one in found.values()}) > 20


def test_a_clipped_token_by_hand():
    """Completions of one and two tokens, GRPO without its KL: shares of 1/2 and 1/4, one token beyond the clip."""
    old = torch.log(torch.tensor([[0.2, 0.5], [0.4, 0.4]], dtype=torch.float64))
    now = torch.log(torch.tensor([[0.22, 0.5], [0.2, 0.44]], dtype=torch.float64))
    mask = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    rewards = torch.tensor([1.0, 0.0], dtype=torch.float64)
    row = dataclasses.replace(ALGORITHMS["grpo"], kl=())
    found = factors_of(row, dataclasses.replace(prepare(row, Batch(old, old, mask, rewards, 2)), logp=now))
    a = 0.5 / (math.sqrt(0.5) + 1e-4)
    torch.testing.assert_close(found.ratio, torch.tensor([[1.1, 1.0], [0.5, 1.1]], dtype=torch.float64))
    wanted = torch.tensor([[a * 1.1 / 2, 0.0], [0.0, -a * 1.1 / 4]], dtype=torch.float64)
    torch.testing.assert_close(found.weight, wanted)
    assert found.gate[1, 0] == 0


def test_gmpo_by_hand():
    """The gradient of the geometric mean, written out: its value over the length, for every token that is not cut."""
    old = torch.full((2, 2), -1.0, dtype=torch.float64)
    now = old + torch.tensor([[0.1, 0.3], [0.2, -0.9]], dtype=torch.float64)
    row, rewards = ALGORITHMS["gmpo"], torch.tensor([1.0, 0.0], dtype=torch.float64)
    whole = prepare(row, Batch(old, old, torch.ones(2, 2), rewards, 2))
    found = factors_of(row, dataclasses.replace(whole, logp=now))
    a = 0.5 / (math.sqrt(0.5) + 1e-4)
    good, bad = a * math.exp(0.2) / 4, a * math.exp((0.2 - 0.4) / 2) / 4
    wanted = torch.tensor([[good, good], [-bad, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(found.weight, wanted)
    torch.testing.assert_close(found.product, wanted)


def test_what_is_left_out_needs_more_than_the_batch():
    now, whole = batch(0)
    left = set(ALGORITHMS) - set(ROWS)
    assert left == {"ppo", "sao", "opd", "sdpo", "remax", "high_entropy", "gdpo"}
    for row in left - {"opd", "sdpo"}:
        with pytest.raises(ValueError, match="needs"):
            policy_loss(ALGORITHMS[row], dataclasses.replace(whole, logp=now))


def test_a_batch_without_advantages_is_refused():
    _, whole = batch(0)
    with pytest.raises(ValueError, match=r"no advantages yet: prepare\(algorithm, batch\)"):
        factors_of(ALGORITHMS["grpo"], whole)


def test_some_rows_of_them():
    _, whole = batch(0)
    found = factors_of(ALGORITHMS["dr_grpo"], prepare(ALGORITHMS["dr_grpo"], whole))
    part = found.rows(slice(4, 8))
    assert isinstance(part, Factors)
    assert part.weight.equal(found.weight[4:8])
