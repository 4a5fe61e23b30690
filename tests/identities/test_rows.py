"""Two roads to one number: where two rows of the table must agree, and where they must not."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from rlhf_minimal import ALGORITHMS, contrib
from rlhf_minimal.functional import advantages, aggregation, filters, gates, ratios, shaping
from tests.identities.batches import SEEDS, B, G, T, cells, close, differ, plain, run, sample


@pytest.mark.parametrize("seed", SEEDS)
def test_ppo_at_ratio_one_is_reinforce_with_its_advantages(seed):
    x = sample(seed, spread=0.0)
    value, gradient, A = run(ALGORITHMS["ppo"], x)
    reinforce = cells("reinforce", aggregate=aggregation.sequence_mean)
    same_value, same_gradient, _ = run(reinforce, x, advantages=A)
    close(gradient, same_gradient)
    close(value, same_value)
    moved = sample(seed)
    differ(run(ALGORITHMS["ppo"], moved)[1], run(reinforce, moved, advantages=run(ALGORITHMS["ppo"], moved)[2])[1])


@pytest.mark.parametrize("seed", SEEDS)
def test_gspo_token_is_gspo_for_one_advantage_a_sequence(seed):
    x = sample(seed, spread=1e-3)
    for gate in (ALGORITHMS["gspo"].gate, gates.none, partial(gates.clip, low=1e-5, high=1e-5)):
        ours = run(cells("gspo_token", gate=gate), x)
        close(ours[0], run(cells("gspo", gate=gate), x)[0])
        close(ours[1], run(cells("gspo", gate=gate), x)[1])


def test_gspo_token_is_another_gradient_where_advantages_differ_by_token():
    x = sample(0, spread=1e-4)
    A = torch.randn(B, T, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    ours, theirs = (run(cells(row, gate=gates.none), x, advantages=A) for row in ("gspo_token", "gspo"))
    close(ours[0], theirs[0])
    differ(ours[1], theirs[1])


@pytest.mark.parametrize("seed", SEEDS)
def test_rloo_is_the_centred_gradient_scaled(seed):
    x = sample(seed)
    rloo = cells("rloo", kl=())
    _, gradient, A = run(rloo, x)
    _, centred, centred_A = run(cells(rloo, advantage=advantages.group_centered), x)
    close(A, G / (G - 1) * centred_A)
    close(gradient, G / (G - 1) * centred)


@pytest.mark.parametrize("seed", SEEDS)
def test_dr_grpo_is_dapo_without_the_std_up_to_a_constant(seed):
    """Both count tokens alike: one divides by those that there are, the other by those that there could be."""
    x = sample(seed)
    gate = partial(gates.clip, low=0.2, high=0.2)
    dr = run(ALGORITHMS["dr_grpo"], x)
    token_mean = cells("dapo", advantage=advantages.group_centered, gate=gate, shape=None, keep=None)
    close(dr[1], run(token_mean, x)[1] * x["mask"].sum() / (B * (T + 2)))


def test_dapo_is_grpo_with_four_cells_replaced():
    grpo = ALGORITHMS["grpo"]
    dapo = replace(
        grpo,
        gate=partial(gates.clip, low=0.2, high=0.28),
        aggregate=aggregation.token_mean,
        kl=(),
        shape=shaping.soft_overlong,
        keep=filters.mixed_outcomes,
    )
    for seed in SEEDS:
        x = sample(seed) | {"budget": T}  # so that the longest responses pay
        close(run(dapo, x)[0], run(ALGORITHMS["dapo"], x)[0])
        close(run(dapo, x)[1], run(ALGORITHMS["dapo"], x)[1])
        assert run(dapo, x)[1].ne(run(grpo, x)[1]).any()


def test_each_cell_of_dapo_matters():
    for cell in ("gate", "aggregate", "shape"):
        without = cells("dapo", **{cell: getattr(ALGORITHMS["grpo"], cell)})
        batches = [sample(seed) | {"budget": T} for seed in SEEDS]
        differ(*(torch.stack([run(row, x)[1] for x in batches]) for row in (without, ALGORITHMS["dapo"])))


@pytest.mark.parametrize("seed", SEEDS)
def test_responses_of_one_length_do_not_see_how_they_are_averaged(seed):
    x = sample(seed) | {"mask": torch.ones(B, T)}
    rows = [cells("grpo", kl=(), aggregate=mean) for mean in (aggregation.token_mean, aggregation.sequence_mean)]
    close(run(rows[0], x)[1], run(rows[1], x)[1])
    summed = cells("grpo", kl=(), aggregate=aggregation.sequence_sum)
    close(run(summed, x)[1], T * run(rows[0], x)[1])
    fixed = cells("grpo", kl=(), aggregate=aggregation.fixed_length)
    close(run(summed, x)[1], (T + 2) * run(fixed, x)[1])


@pytest.mark.parametrize("seed", SEEDS)
def test_one_token_responses_have_one_ratio(seed):
    x = sample(seed)
    mask = torch.zeros_like(x["mask"])
    mask[:, 2] = 1
    x["mask"] = mask
    expected = run(plain(gates.none, ratios.token), x)
    for ratio in (ratios.sequence, ratios.sequence_token, contrib.ratios.sequence_product):
        close(run(plain(gates.none, ratio), x)[1], expected[1])
