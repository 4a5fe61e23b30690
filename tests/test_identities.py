"""Two roads to one number: identities between rows, cells and the formulas of papers and libraries.

Where a formula stands on one side, it is written out here and not taken from the library; where two rows must agree,
both are the library's and the identity is the test. Float64, many seeds.
"""

import itertools
import math
from dataclasses import replace
from functools import partial

import pytest
import torch

from rlhf_minimal import ALGORITHMS, KL, Algorithm, Batch, contrib, gradient_weight, policy_loss, prepare
from rlhf_minimal.contracts import read_cell
from rlhf_minimal.functional import (
    advantages,
    aggregation,
    corrections,
    filters,
    gates,
    logprobs,
    masked,
    ratios,
    shaping,
)

SEEDS = range(10)
INF = float("inf")
P, G, T = 3, 4, 6
B = P * G


def close(actual, expected, tolerance=1e-11):
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def differ(actual, expected):
    assert (actual - expected).abs().max() > 1e-3


def sample(seed, spread=0.4):
    g = torch.Generator().manual_seed(seed)

    def normal(*size):
        return torch.randn(*size, generator=g, dtype=torch.float64)

    mask = (torch.rand(B, T, generator=g) < 0.8).double()
    mask[:, 0] = 1
    old = -normal(B, T).abs() - 0.1
    return {
        "logp": (old + spread * normal(B, T)).clamp(max=-0.02),
        "old_logp": old,
        "mask": mask,
        "rewards": normal(B),
        "ref_logp": (old + 0.3 * normal(B, T)).clamp(max=-0.02),
        "values": normal(B, T),
    }


def run(algorithm, x, **more):
    """Value, gradient, and the advantages that were used."""
    logp = x["logp"].clone().requires_grad_()
    batch = Batch(**{"budget": T + 2} | x | {"logp": logp} | more, group_size=G)
    if batch.advantages is None:
        batch = prepare(algorithm, batch)
    loss = policy_loss(algorithm, batch)
    return loss.detach(), torch.autograd.grad(loss, logp)[0], batch.advantages


def cells(row, **changes) -> Algorithm:
    return replace(ALGORITHMS[row] if isinstance(row, str) else row, **changes)


def plain(gate, ratio=ratios.token, aggregate=aggregation.token_mean) -> Algorithm:
    return Algorithm(advantages.group_normalized, ratio, gate, aggregate)


# ---- between rows -----------------------------------------------------------------------------------------------


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


# ---- gates ------------------------------------------------------------------------------------------------------


def grid():
    w = torch.linspace(0.01, 6, 240, dtype=torch.float64)
    A = torch.tensor([-2.0, -0.5, 0.0, 0.5, 2.0], dtype=torch.float64)
    w, A = torch.meshgrid(w, A, indexing="ij")
    return w.contiguous().requires_grad_(), A.contiguous()


def curve(gate):
    w, A = grid()
    value = gate(w, A)
    return value.detach(), torch.autograd.grad(value.sum(), w)[0]


def both(gate, formula):
    for ours, theirs in zip(curve(gate), curve(formula), strict=True):
        close(ours, theirs)


@pytest.mark.parametrize(("low", "high", "delta"), [(0.2, 0.2, 3.0), (0.2, 0.28, 1.5), (0.1, 0.5, 4.0)])
def test_dual_clip_is_trls_delta(low, high, delta):
    """TRL 1.16: coef_1 = clamp(w, max=delta), then min(coef_1 A, clamp(w, 1 - low, 1 + high) A)."""

    def trl(w, A):
        return torch.min(w.clamp(max=delta) * A, w.clamp(1 - low, 1 + high) * A)

    both(partial(contrib.gates.dual_clip, low=low, high=high, c=delta), trl)


def test_dual_clip_with_a_far_floor_is_clip():
    both(partial(contrib.gates.dual_clip, low=0.2, high=0.3, c=1e9), partial(gates.clip, low=0.2, high=0.3))


def test_dual_clip_holds_bad_tokens_at_c():
    value, slope = curve(partial(contrib.gates.dual_clip, low=0.2, high=0.2, c=3.0))
    w, A = grid()
    far = (w > 3) & (A < 0)
    close(value[far], 3 * A[far])
    assert (slope[far] == 0).all()


def test_clip_with_infinite_bounds_is_no_clip():
    both(partial(gates.clip, low=INF, high=INF), gates.none)


def test_clip_by_cases():
    """PPO's minimum as the drawing that everybody knows: flat where the policy has gone far enough, w A elsewhere."""
    value, slope = curve(partial(gates.clip, low=0.2, high=0.3))
    w, A = (x.detach() for x in grid())
    expected_value, expected_slope = w * A, A.clone()
    up, down = (w > 1.3) & (A > 0), (w < 0.8) & (A < 0)
    expected_value[up], expected_value[down] = 1.3 * A[up], 0.8 * A[down]
    expected_slope[up | down] = 0
    close(value, expected_value)
    close(slope, expected_slope)


def test_clip_never_promises_more_than_no_clip():
    value, _ = curve(partial(gates.clip, low=0.2, high=0.3))
    assert (value <= curve(gates.none)[0]).all()


@pytest.mark.parametrize(("floor", "cap"), [(0.0, 5.0), (0.0, 1.0), (0.8, 1.2)])
@pytest.mark.parametrize("seed", SEEDS)
def test_cispo_gradient(seed, floor, cap):
    """-sg[clip(w)] A grad log pi over the tokens of the batch, summed by hand."""
    x = sample(seed, spread=1.0)
    ours = run(plain(partial(gates.clip_weight, cap=cap, floor=floor)), x)
    expected = torch.zeros(B, T, dtype=torch.float64)
    for i in range(B):
        for t in range(T):
            if x["mask"][i, t]:
                w = math.exp(x["logp"][i, t] - x["old_logp"][i, t])
                expected[i, t] = -min(max(w, floor), cap) * ours[2][i, t] / x["mask"].sum()
    close(ours[1], expected)


def test_cispo_keeps_every_gradient_that_clip_drops():
    _, slope = curve(partial(gates.clip_weight, cap=5.0))
    w, A = (x.detach() for x in grid())
    close(slope * w, w.clamp(max=5.0) * A)  # the weight on grad log pi is slope times w


@pytest.mark.parametrize(("tau_pos", "tau_neg"), [(1.0, 1.05), (0.3, 5.0)])
def test_sapo_slope(tau_pos, tau_neg):
    """4 p (1 - p) A with p = sigmoid(tau (w - 1)): A at w = 1, fading on both sides alike."""
    _, slope = curve(partial(gates.sigmoid, tau_pos=tau_pos, tau_neg=tau_neg))
    w, A = (x.detach() for x in grid())
    for i in range(len(w)):
        for j in range(A.shape[1]):
            tau = tau_pos if A[i, j] > 0 else tau_neg
            p = 1 / (1 + math.exp(-tau * (float(w[i, j]) - 1)))
            assert float(slope[i, j]) == pytest.approx(4 * p * (1 - p) * float(A[i, j]), abs=1e-12)


# ---- GMPO -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_gmpo_is_the_exponential_of_a_clipped_mean(seed):
    """The authors' form: clip log w to [-.4, .4] on the side that A's sign asks for, then exp of the mean, times A."""
    x = sample(seed, spread=0.6)
    value, gradient, A = run(ALGORITHMS["gmpo"], x)
    logp = x["logp"].clone().requires_grad_()
    total = torch.zeros((), dtype=torch.float64)
    for i in range(B):
        a = float(A[i, 0])
        logs = [logp[i, t] - x["old_logp"][i, t] for t in range(T) if x["mask"][i, t]]
        logs = [log.clamp(max=0.4) if a > 0 else log.clamp(min=-0.4) for log in logs]
        total = total + a * torch.stack(logs).mean().exp()
    expected = -total / B
    close(value, expected.detach())
    close(gradient, torch.autograd.grad(expected, logp)[0])


@pytest.mark.parametrize("seed", SEEDS)
def test_gmpo_without_its_clip_is_gspo_without_its_clip(seed):
    x = sample(seed)
    gmpo, gspo = (run(cells(row, gate=gates.none), x) for row in ("gmpo", "gspo"))
    close(gmpo[0], gspo[0])
    close(gmpo[1], gspo[1])


def test_geometric_mean_of_no_advantage_is_nothing():
    x = sample(0)
    x["rewards"] = torch.ones(B, dtype=torch.float64)
    x["rewards"][:G] = torch.arange(G)
    value, gradient, A = run(ALGORITHMS["gmpo"], x)
    assert (A[G:] == 0).all()
    assert (gradient[G:] == 0).all()
    assert torch.isfinite(value)
    assert (gradient[:G][x["mask"][:G] != 0] != 0).any()


def test_geometric_mean_by_hand():
    numbers = torch.tensor([[2.0, 8.0, 99.0], [-1.0, -1.0, -27.0], [0.0, 5.0, 5.0]], dtype=torch.float64)
    mask = torch.tensor([[1, 1, 0], [1, 1, 1], [1, 1, 1]])
    close(aggregation.geometric_mean(numbers, mask), torch.tensor((4 - 3 + 0) / 3, dtype=torch.float64))


def test_geometric_mean_of_a_number_too_small_to_divide_by_counts_as_zero():
    """1 / x of a subnormal number overflows: the gradient would be infinite though the mean is not."""
    tiny = torch.finfo(torch.float32).tiny
    for small, counts in ((tiny, True), (tiny / 4, False)):
        x = torch.tensor([[small, 1.0]], requires_grad=True)
        mean = aggregation.geometric_mean(x, torch.ones(1, 2))
        (gradient,) = torch.autograd.grad(mean, x)
        assert torch.isfinite(gradient).all()
        assert (mean > 0) == counts
        assert (gradient != 0).all() == counts


# ---- Kimi K2 ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tau", [0.1, 1.0])
@pytest.mark.parametrize("seed", SEEDS)
def test_kimi_k2_gradient_is_the_squared_loss_over_two_tau(seed, tau):
    """(R - mean R - tau log(pi / pi_old))^2 / (2 tau), over whole responses, written from the report."""
    x = sample(seed)
    row = cells("kimi_k2", kl=(KL(tau, "k2", against="old", level="sequence"),))
    _, gradient, A = run(row, x)
    logp = x["logp"].clone().requires_grad_()
    centred = x["rewards"] - x["rewards"].view(P, G).mean(-1).repeat_interleave(G)
    log_ratio = ((logp - x["old_logp"]) * x["mask"]).sum(-1)
    squared = ((centred - tau * log_ratio) ** 2).mean() / (2 * tau)
    close(gradient, torch.autograd.grad(squared, logp)[0])
    close(A[:, 0], centred)


def test_kimi_k2_per_token_is_another_gradient():
    """As two libraries have it: the square of each token's log-ratio instead of the response's."""
    x = sample(0)
    per_token = cells("kimi_k2", kl=(KL(1.0, "k2", against="old", aggregate=aggregation.sequence_sum),))
    per_response = cells("kimi_k2", kl=(KL(1.0, "k2", against="old", level="sequence"),))
    differ(run(per_token, x)[1], run(per_response, x)[1])


def test_kimi_k2_on_policy_is_the_centred_policy_gradient():
    x = sample(0, spread=0.0)
    close(run(ALGORITHMS["kimi_k2"], x)[1], run(cells("rloo", kl=(), advantage=advantages.group_centered), x)[1])


# ---- KL ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_k1_in_the_reward_as_a_token_and_as_a_response(seed):
    """For one number a response it does not matter where in the response the penalty stands; for returns it does."""
    x = sample(seed)
    token, response = (KL(0.3, "k1", place="reward", level=level) for level in ("token", "sequence"))
    rloo = [run(cells("rloo", kl=(kl,)), x) for kl in (token, response)]
    close(rloo[0][1], rloo[1][1])
    reinforce = [run(cells("reinforce", kl=(kl,)), x) for kl in (token, response)]
    differ(reinforce[0][1], reinforce[1][1])


def test_k1_in_the_reward_by_hand():
    """Reward minus beta times the response's log-ratio of the *sampler* to the reference."""
    x = sample(1)
    A = run(cells("rloo", kl=(KL(0.3, "k1", place="reward"),)), x)[2]
    total = x["rewards"] - 0.3 * ((x["old_logp"] - x["ref_logp"]) * x["mask"]).sum(-1)
    others = (total.view(P, G).sum(-1, keepdim=True) - total.view(P, G)) / (G - 1)
    close(A[:, 0], (total.view(P, G) - others).flatten())


@pytest.mark.parametrize("estimator", ["k2", "k3"])
def test_k2_and_k3_of_a_response_in_the_reward(estimator):
    x = sample(2)
    A = run(cells("rloo", kl=(KL(0.3, estimator, place="reward", level="sequence"),)), x)[2]
    d = ((x["old_logp"] - x["ref_logp"]) * x["mask"]).sum(-1)
    penalty = d**2 / 2 if estimator == "k2" else (-d).exp() - 1 + d
    total = (x["rewards"] - 0.3 * penalty).view(P, G)
    close(A[:, 0], (total - (total.sum(-1, keepdim=True) - total) / (G - 1)).flatten())


@pytest.mark.parametrize("seed", SEEDS)
def test_several_kl_penalties_add_up(seed):
    x = sample(seed)
    first, second = KL(0.1, "k2"), KL(0.2, "k3", weighted=True, aggregate=aggregation.token_mean)
    none, a, b, c = (run(cells("grpo", kl=kl), x)[1] for kl in ((), (first,), (second,), (first, second)))
    close(c - none, (a - none) + (b - none))


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("against", ["reference", "old"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("estimator", ["k1", "k2", "k3", "absolute"])
def test_every_kl_penalty_in_the_loss_by_hand(estimator, weighted, against, level):
    """No advantage, so that the loss is the leash: summed in a loop over tokens or over responses."""
    x = sample(3)
    mean = None if level == "sequence" else aggregation.token_mean
    kl = KL(0.7, estimator, against=against, level=level, weighted=weighted, aggregate=mean)
    ours = run(cells("grpo", kl=(kl,)), x, advantages=torch.zeros(B, dtype=torch.float64))
    logp = x["logp"].clone().requires_grad_()
    target = x["ref_logp" if against == "reference" else "old_logp"]
    total, count = torch.zeros((), dtype=torch.float64), 0
    for i in range(B):
        tokens = [t for t in range(T) if x["mask"][i, t]]
        pieces = [[t] for t in tokens] if level == "token" else [tokens]
        for piece in pieces:
            d = sum(logp[i, t] - target[i, t] for t in piece)
            estimate = {"k1": d, "k2": d * d / 2, "k3": torch.exp(-d) - 1 + d, "absolute": abs(d)}[estimator]
            w = torch.exp(sum(logp[i, t] - x["old_logp"][i, t] for t in piece)) if weighted else 1.0
            total, count = total + w * estimate, count + 1
    expected = 0.7 * total / count
    close(ours[0], expected.detach())
    close(ours[1], torch.autograd.grad(expected, logp)[0])


def test_the_entropy_bonus_by_hand():
    x = sample(4)
    entropy = torch.rand(B, T, dtype=torch.float64).requires_grad_()
    row = cells("grpo", kl=(), entropy=0.02)
    batch = Batch(**x, group_size=G, entropy=entropy)
    loss = policy_loss(row, batch)
    bonus = ((entropy * x["mask"]).sum(-1) / x["mask"].sum(-1)).mean()
    close(loss, run(cells("grpo", kl=()), x)[0] - 0.02 * bonus)
    close(torch.autograd.grad(loss, entropy)[0], -0.02 * x["mask"] / x["mask"].sum(-1, keepdim=True) / B)


# ---- what happens to the reward --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("length", "penalty"),
    [(1, 0), (79, 0), (80, 0), (81, -0.05), (90, -0.5), (99, -0.95), (100, -1), (101, -1), (150, -1)],
)
def test_soft_overlong_penalty(length, penalty):
    """L = 100, C = 20: free up to 80, a ramp to -1 at 100, -1 beyond. DAPO's eq. 13 on a table of values."""
    rewards = torch.tensor([1.0, -1.0, 0.3], dtype=torch.float64)
    shaped = shaping.soft_overlong(rewards, torch.full((3,), length), budget=100)
    close(shaped, rewards + penalty)


def test_soft_overlong_of_other_fractions():
    lengths = torch.tensor([1, 50, 75, 100])
    rewards = torch.zeros(4, dtype=torch.float64)
    whole = shaping.soft_overlong(rewards, lengths, budget=100, cache_fraction=1.0)
    close(whole, torch.tensor([-0.01, -0.5, -0.75, -1.0], dtype=torch.float64))
    lengths = torch.tensor([99, 100, 101, 200])
    cliff = shaping.soft_overlong(rewards, lengths, budget=100, cache_fraction=0.0)
    close(cliff, torch.tensor([0.0, 0.0, -1.0, -1.0], dtype=torch.float64))


def test_shaping_counts_trained_tokens_and_moves_the_advantage():
    x = sample(0)
    x["mask"] = (torch.arange(T) < torch.tensor([2, 6, 1, 3] * P)[:, None]).double()
    row = cells("dr_grpo", shape=partial(shaping.soft_overlong, cache_fraction=0.5))
    A = run(row, x)[2]  # the budget is T + 2 = 8: free up to 4, so 6 tokens cost a half
    shaped = x["rewards"] - 0.5 * (torch.tensor([0, 1, 0, 0] * P))
    close(A[:, 0], (shaped.view(P, G) - shaped.view(P, G).mean(-1, keepdim=True)).flatten())


@pytest.mark.parametrize(
    ("length", "right", "wrong"), [(0, 3, -4), (25, 2.7071067811865475, -3.4142135623730951), (50, 2, -2), (100, 1, 0)]
)
def test_cosine_between_its_values(length, right, wrong):
    """Half way is the mean of the two ends, a quarter of the way the curve is still nearer to the short one."""
    rewards = torch.tensor([1.0, 0.2, 0.0, -1.0], dtype=torch.float64)
    numbers = {"right_short": 3.0, "right_long": 1.0, "wrong_short": -4.0, "wrong_long": 0.0}
    shaped = contrib.shaping.cosine(rewards, torch.full((4,), length), budget=100, **numbers)
    close(shaped, torch.tensor([right, right, wrong, wrong], dtype=torch.float64))


def test_cosine_stays_where_it_is_behind_the_budget():
    rewards = torch.tensor([1.0, 1.0, 1.0], dtype=torch.float64)
    shaped = contrib.shaping.cosine(rewards, torch.tensor([100, 150, 200]), budget=100)
    close(shaped, torch.full((3,), 0.5, dtype=torch.float64))


def test_length_reward_of_kimi():
    """lambda = .5 - (len - min) / (max - min) for the right answers, min(0, lambda) for the wrong ones."""
    rewards = torch.tensor([1.0, 1.0, 0.0, 0.0, 1.0, 0.0], dtype=torch.float64)
    lengths = torch.tensor([10, 20, 10, 20, 7, 7])
    shaped = contrib.shaping.length_reward(rewards, lengths, group_size=2, coef=0.4)
    bonus = torch.tensor([0.5, -0.5, 0.0, -0.5, 0.0, 0.0], dtype=torch.float64)
    close(shaped, rewards + 0.4 * bonus)
    three = contrib.shaping.length_reward(torch.tensor([1.0, 1.0, 0.0]).double(), torch.tensor([4, 5, 8]), group_size=3)
    close(three, torch.tensor([1.5, 1.25, -0.5], dtype=torch.float64))
    assert torch.equal(contrib.shaping.length_reward(rewards, lengths, group_size=2, coef=0.0), rewards)
    by_one_token = contrib.shaping.length_reward(rewards, torch.tensor([4, 5] * 3), group_size=2)
    close(by_one_token, torch.tensor([1.5, 0.5, 0.0, -0.5, 1.5, -0.5], dtype=torch.float64))


def test_mixed_outcomes_goes_by_spread_and_not_by_the_mean():
    """Equal fractional rewards are as dead as equal zeros, although their mean is neither 0 nor 1."""
    rewards = torch.tensor([0.3, 0.3, 0.3, 0.3, 0.0, 0.0, 1.0, 1.0, 0.3, 0.3000001, 5.0, -5.0])
    kept = filters.mixed_outcomes(rewards, group_size=2)
    assert kept.tolist() == [False] * 8 + [True] * 4
    assert filters.mixed_outcomes(rewards, group_size=4).tolist() == [False] * 4 + [True] * 8


def test_not_truncated():
    truncated = torch.tensor([True, False, True])
    assert contrib.filters.not_truncated(torch.ones(3), truncated=truncated).tolist() == [False, True, False]


# ---- advantages ---------------------------------------------------------------------------------------------------


def test_given_baseline_of_a_running_mean():
    x = sample(5)
    baseline = torch.linspace(-1, 1, P, dtype=torch.float64).repeat_interleave(G)
    row = cells("reinforce", advantage=contrib.advantages.given_baseline)
    A = run(row, x, baseline=baseline)[2]
    close(A, ((x["rewards"] - baseline)[:, None] * x["mask"]))
    ema, means = 0.0, x["rewards"].view(P, G).mean(-1)
    for mean in means:  # a baseline known before the prompt's own responses: it cannot look at them
        ema = 0.9 * ema + 0.1 * float(mean)
    after = run(row, x, baseline=torch.full((B,), ema, dtype=torch.float64))[2]
    close(after[:, 0], x["rewards"] - ema)


def test_given_baseline_of_the_greedy_response():
    """ReMax: the group's own mean as the baseline is the centred advantage, the greedy reward is not."""
    x = sample(6)
    mean = x["rewards"].view(P, G).mean(-1).repeat_interleave(G)
    row = cells("reinforce", advantage=contrib.advantages.given_baseline)
    centred = cells("reinforce", advantage=advantages.group_centered)
    close(run(row, x, baseline=mean)[1], run(centred, x)[1])
    differ(run(row, x, baseline=mean + 0.5)[1], run(centred, x)[1])


def test_the_greedy_baseline_is_a_given_one():
    x = sample(6)
    greedy = torch.linspace(-1, 1, P, dtype=torch.float64).repeat_interleave(G)
    given = cells("reinforce", advantage=contrib.advantages.given_baseline)
    close(run(cells("remax"), x, greedy_rewards=greedy)[1], run(given, x, baseline=greedy)[1])
    differ(run(cells("remax"), x, greedy_rewards=greedy)[1], run(cells("remax"), x, greedy_rewards=-greedy)[1])


def test_a_product_with_a_tokens_own_gradient():
    """The value is the product's; summed over a row, the product gives each token the gradient |o| times as large."""
    x = sample(2)
    logp = x["logp"].clone().requires_grad_()
    whole, own = (
        f(logp, x["old_logp"], x["mask"]) for f in (contrib.ratios.sequence_product, contrib.ratios.product_token)
    )
    trained = x["mask"] != 0
    close(own[trained], whole[trained])
    lengths = x["mask"].sum(-1, keepdim=True)
    by_whole, by_own = (torch.autograd.grad((f * x["mask"]).sum(), logp)[0] for f in (whole, own))
    close(by_whole, lengths * by_own)
    close(by_own, (whole * x["mask"]).detach())


def test_topr_of_the_whole_completion_and_vespo_differ_in_the_taper_alone():
    """On the policy that sampled both are REINFORCE on the same advantage; far from it a taper falls on both sides."""
    x = sample(4)
    on_policy = x | {"logp": x["old_logp"]}
    topr = cells("topr", ratio=contrib.ratios.product_token)
    plain = cells("topr", ratio=ratios.on_policy, gate=gates.none)
    close(run(topr, on_policy)[1], run(plain, on_policy)[1])
    same = cells(topr, gate=contrib.gates.vespo)
    close(run(same, on_policy)[1], run(plain, on_policy)[1])
    differ(run(topr, x)[1], run(same, x)[1])


@pytest.mark.parametrize(("A", "k", "lam"), [(1.0, 2.0, 3.0), (-1.0, 3.0, 2.0), (0.5, 1.5, 0.7), (-2.0, 4.0, 5.0)])
def test_the_gamma_gate_is_a_hill(A, k, lam):
    """1 at ratio 1, highest at k / lambda, falling on both sides; its gradient is weight times A, w times over."""
    w = torch.cat([torch.linspace(0.01, 6, 600, dtype=torch.float64), torch.tensor([1.0, k / lam]).double()])[None]
    w.requires_grad_()
    numbers = {"k_pos": k, "lam_pos": lam} if A > 0 else {"k_neg": k, "lam_neg": lam}
    value = contrib.gates.vespo(w, torch.full_like(w, A), **numbers)
    (slope,) = torch.autograd.grad(value.sum(), w)
    weight = (w * slope / A).detach()[0]
    close(weight, (value / A).detach()[0])
    close(weight[600], torch.ones((), dtype=torch.float64))
    assert weight[601] >= weight.max() * (1 - 1e-12)
    top = k / lam
    rising, falling = w[0, :600] < top - 0.01, w[0, :600] > top + 0.01
    assert (weight[:600][rising].diff() > 0).all()
    assert (weight[:600][falling].diff() < 0).all()


def test_process_supervision_by_hand():
    """Two responses, steps ended at the marks: (1, 0) and (0, 0, 1). Mean .4, sample std .5477 over the five steps."""
    ends = torch.tensor([[0, 1, 0, 1, 0, 0], [1, 0, 1, 1, 0, 0]])
    steps = torch.tensor([[0, 1.0, 0, 0, 9, 9], [0, 0, 0, 1.0, 9, 9]], dtype=torch.float64)
    mask = torch.tensor([[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 0, 0]])
    ours = contrib.advantages.process(steps, mask, group_size=2, step_ends=ends, eps=0.0)
    good, bad = 0.6 / math.sqrt(0.3), -0.4 / math.sqrt(0.3)
    expected = torch.tensor(
        [
            [good + bad, good + bad, bad, bad, 0, 0],
            [2 * bad + good, bad + good, bad + good, good, 0, 0],
        ],
        dtype=torch.float64,
    )
    close(ours, expected)
    population = contrib.advantages.process(steps, mask, group_size=2, step_ends=ends, eps=0.0, ddof=0)
    close(population, expected * math.sqrt(0.3 / 0.24))


def test_process_supervision_of_the_last_token_is_outcome_supervision():
    x = sample(7)
    outcome, process = (
        run(cells("grpo", advantage=cell), x) for cell in (advantages.group_normalized, contrib.advantages.process)
    )
    close(outcome[2], process[2])


def test_process_supervision_from_a_batch():
    """step_rewards replace the outcome on the last token, and the algorithm's shape is still added there."""
    ends = torch.tensor([[1, 0, 1], [0, 1, 1]])
    steps = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]], dtype=torch.float64)
    logp = torch.zeros(2, 3, dtype=torch.float64)
    batch = Batch(
        logp, logp, torch.ones(2, 3), torch.tensor([7.0, 8.0]), 2, step_rewards=steps, step_ends=ends, budget=100
    )
    row = cells("grpo", advantage=partial(contrib.advantages.process, eps=0.0), kl=())
    expected = torch.tensor([[1, 0, 1], [0, 1, 1]]) * steps
    normal = (expected - 0.75) / 0.5 * ends
    close(prepare(row, batch).advantages, normal.flip(-1).cumsum(-1).flip(-1))
    longer = cells(row, shape=lambda rewards, lengths, *, group_size, budget: rewards + torch.tensor([0.0, 1.0]))
    steps_after = torch.tensor([1.0, 0.0, 1.0, 2.0], dtype=torch.float64)
    z = (steps_after - steps_after.mean()) / steps_after.std()
    by_hand = torch.tensor([[z[0] + z[1], z[1], z[1]], [z[2] + z[3], z[2] + z[3], z[3]]])
    close(prepare(longer, batch).advantages, by_hand)


def test_a_reward_at_every_token_is_a_return():
    x = sample(8)
    steps = torch.randn(B, T, dtype=torch.float64, generator=torch.Generator().manual_seed(8))
    A = run(ALGORITHMS["reinforce"], x, step_rewards=steps)[2]
    for i in range(B):
        for t in range(T):
            expected = sum(float(steps[i, k]) for k in range(t, T) if x["mask"][i, k]) if x["mask"][i, t] else 0.0
            assert float(A[i, t]) == pytest.approx(expected, abs=1e-12)


def test_returns_are_the_critics_targets_before_whitening():
    x = sample(9)
    batch = Batch(**x, group_size=G)
    prepared = prepare(ALGORITHMS["ppo"], batch)
    raw = prepare(cells("ppo", normalize=None), batch)
    close(prepared.returns, raw.returns)
    close(raw.returns, (raw.advantages + x["values"]) * x["mask"])
    differ(prepared.advantages, raw.advantages)
    assert prepare(ALGORITHMS["grpo"], batch).returns is None


def test_whitening_stands_after_the_penalty_and_sees_all_tokens():
    x = sample(1)
    A = run(ALGORITHMS["reinforce_pp"], x)[2]
    penalised = torch.zeros(B, T, dtype=torch.float64)
    for i in range(B):
        tokens = [t for t in range(T) if x["mask"][i, t]]
        for t in tokens:
            later = [k for k in tokens if k >= t]
            penalty = sum(float(x["old_logp"][i, k] - x["ref_logp"][i, k]) for k in later)
            penalised[i, t] = float(x["rewards"][i]) - 0.01 * penalty
    trained = penalised[x["mask"] != 0]
    close(A[x["mask"] != 0], (trained - trained.mean()) / (trained.var() + 1e-8).sqrt())


def test_leave_one_out_over_the_others_std_by_hand():
    rewards = torch.tensor([[1.0], [2.0], [4.0]], dtype=torch.float64)
    ours = contrib.advantages.leave_one_out_normalized(rewards, torch.ones(3, 1), group_size=3, std="others", eps=0.5)
    expected = [(1 - 3) / (2**0.5 + 0.5), (2 - 2.5) / (4.5**0.5 + 0.5), (4 - 1.5) / (0.5**0.5 + 0.5)]
    close(ours.flatten(), torch.tensor(expected, dtype=torch.float64))


def test_two_scored_steps_are_enough_to_compare():
    steps = torch.tensor([[1.0, 0.0], [0.0, 0.0]], dtype=torch.float64)
    ends = torch.tensor([[1, 1], [0, 0]])
    ours = contrib.advantages.process(steps, torch.ones(2, 2), group_size=2, step_ends=ends, eps=0.0)
    close(ours, torch.tensor([[0.0, -(0.5**0.5)], [0.0, 0.0]], dtype=torch.float64))


def test_of_a_masked_row_only_the_parked_reward_is_read():
    """It stands on the first position; what else the row holds is padding like any other."""
    rewards = torch.tensor([[1.0, 9.0, math.nan], [0.0, 2.0, 0.0]], dtype=torch.float64)
    mask = torch.tensor([[0, 0, 0], [1, 1, 0]])
    ours = advantages.group_centered(rewards, mask, group_size=2)
    close(ours, torch.tensor([[0.0, 0, 0], [0.5, 0.5, 0]], dtype=torch.float64))


def test_placed_rewards_keep_their_dtype():
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        for mask in (torch.ones(1, 2), torch.ones(1, 2, dtype=torch.float64), torch.ones(1, 2, dtype=torch.bool)):
            assert advantages.place_rewards(torch.ones(1, dtype=dtype), mask).dtype == dtype


# module of functional -> column, and the cells of another column than their neighbours'
COLUMN_OF = {
    "advantages": "advantage",
    "aggregation": "aggregate",
    "shaping": "shape",
    "filters": "keep",
    "corrections": "correct",
    "trust": "trust",
    advantages.whiten: "normalize",
    contrib.advantages.zscore_rows: "normalize",
}
NEEDS = {
    advantages.gae: {"values"},
    advantages.returns_to_go: set(),
    advantages.group_centered: {"group"},
    advantages.group_normalized: {"group"},
    advantages.leave_one_out: {"group"},
    contrib.advantages.leave_one_out_normalized: {"group"},
    contrib.advantages.process: {"group"},
    contrib.advantages.given_baseline: {"baseline"},
    contrib.advantages.greedy_baseline: {"greedy_rewards"},
    contrib.advantages.gpg: {"group"},
    advantages.whiten: set(),
    contrib.advantages.batch_std: {"group"},
    contrib.advantages.gae_by_length: {"values"},
    contrib.advantages.maxrl: {"group"},
    contrib.advantages.opo: {"group"},
    contrib.advantages.best_minus_second: {"group"},
    contrib.advantages.teacher_gap: {"ref_logp"},
    contrib.advantages.prefix_weighted: {"ref_logp"},
    contrib.advantages.gdpo: {"group", "reward_parts"},
    contrib.advantages.zscore_rows: set(),
    aggregation.token_mean: set(),
    contrib.aggregation.token_sum: set(),
    contrib.aggregation.prompt_mean: set(),  # what it divides by is counted from every batch
    aggregation.sequence_mean: set(),
    aggregation.sequence_sum: set(),
    aggregation.fixed_length: {"budget"},
    aggregation.geometric_mean: set(),
    shaping.soft_overlong: {"budget"},
    contrib.shaping.cosine: {"budget"},
    contrib.shaping.length_reward: {"group"},  # it compares the completions of a prompt
    filters.mixed_outcomes: {"group"},
    contrib.filters.not_truncated: {"truncated"},
    contrib.trust.off_policy_sequence: {"sampler_logp"},
    contrib.trust.dppo_tv: set(),
    contrib.trust.dppo_kl: set(),
    contrib.trust.probability_band: set(),
    contrib.trust.high_entropy: {"entropy"},
    contrib.trust.clip_cov: set(),
    contrib.corrections.masked_importance: set(),
    contrib.corrections.normalized_importance: set(),
    corrections.truncated_importance: set(),  # whose column always takes sampler_logp
}


@pytest.mark.parametrize("cell", NEEDS)
def test_what_a_training_loop_must_provide_for_a_cell(cell):
    column = COLUMN_OF.get(cell) or COLUMN_OF[cell.__module__.rpartition(".")[2]]
    assert set(read_cell(column, cell).needs) == set(read_cell(column, partial(cell)).needs) == NEEDS[cell]


def test_what_a_training_loop_must_provide_for_a_row():
    expected = {
        "reinforce": set(),
        "rloo": {"group", "ref_logp"},
        "ppo": {"values", "ref_logp"},
        "reinforce_pp": {"ref_logp"},
        "grpo": {"group", "ref_logp"},
        "dr_grpo": {"group", "budget"},
        "dapo": {"group", "budget"},
        "reinforce_pp_baseline": {"group", "ref_logp"},
        **dict.fromkeys(["icepop", "olmo3"], {"group", "sampler_logp"}),
        "deepseek_v32": {"group", "ref_logp", "sampler_logp"},
        **dict.fromkeys(["gspo", "gspo_token", "gmpo", "cispo", "sapo", "kimi_k2", "dppo", "scalerl"], {"group"}),
        **dict.fromkeys(["lite_ppo", "dro", "luspo", "kimi_k25", "topr", "maxrl", "opo", "pass_at_k"], {"group"}),
        "sao": {"values"},
        "opd": {"ref_logp"},
        "sdpo": {"ref_logp"},
        "remax": {"greedy_rewards"},
        "high_entropy": {"group", "entropy"},
        "gdpo": {"group", "reward_parts"},
        "vespo": {"group"},
    }
    assert {name: set(row.needs) for name, row in ALGORITHMS.items()} == expected


# ---- the sampler's own log-probs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("cap", [1.1, 2.0, INF])
def test_truncated_importance_weights_the_objective(level, cap):
    x = sample(2)
    noise = torch.randn(B, T, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    sampler = (x["old_logp"] + 0.5 * noise).clamp(max=-0.02)
    row = cells("grpo", kl=(), correct=partial(corrections.truncated_importance, cap=cap, level=level))
    ours = run(row, x, sampler_logp=sampler)
    plain_gradient = run(cells("grpo", kl=()), x)[1]
    for i in range(B):
        logs = [(float(x["old_logp"][i, t] - sampler[i, t]) if x["mask"][i, t] else 0.0) for t in range(T)]
        for t in range(T):
            weight = min(math.exp(sum(logs) if level == "sequence" else logs[t]), cap)
            close(ours[1][i, t], weight * plain_gradient[i, t])


def test_truncated_importance_has_no_gradient():
    old = torch.zeros(1, 2, requires_grad=True)
    sampler = torch.full((1, 2), -0.1, requires_grad=True)
    assert not corrections.truncated_importance(old, sampler, torch.ones(1, 2)).requires_grad


# ---- the columns of 2026: each new cell is an old one where it has nothing to say ---------------------------------


def sampler_of(x, seed=1):
    noise = torch.randn(B, T, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return (x["old_logp"] + 0.5 * noise).clamp(max=-0.02)


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("seed", SEEDS)
def test_icepop_without_a_band_is_clip_times_importance(seed, level):
    x = sample(seed)
    x["sampler_logp"] = sampler_of(x)
    wide = partial(contrib.corrections.masked_importance, low=0.0, high=INF, level=level)
    weighted = partial(corrections.truncated_importance, cap=INF, level=level)
    ours, capped = (run(cells("icepop", correct=cell), x) for cell in (wide, weighted))
    close(ours[1], capped[1])
    differ(ours[1], run(ALGORITHMS["icepop"], x)[1])
    # ... and of a sampler that is the trainer, clip alone.
    x["sampler_logp"] = x["old_logp"]
    close(run(ALGORITHMS["icepop"], x)[1], run(cells("icepop", correct=None), x)[1])


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_normalized_weights_have_the_mean_1_and_undo_an_offset(level):
    x = sample(2)
    x["mask"][3] = 0  # a row without a trained token belongs to no mean
    sampler, mask = sampler_of(x), x["mask"]
    of = partial(contrib.corrections.normalized_importance, mask=mask, cap=INF, level=level)
    plain_weights = corrections.truncated_importance(x["old_logp"], sampler, mask, cap=INF, level=level)
    weights = of(x["old_logp"], sampler)
    counted = weights[mask != 0] if level == "token" else weights[(mask != 0).any(-1), 0]
    close(counted.mean(), torch.tensor(1.0, dtype=torch.float64))
    trained = mask != 0
    share = (weights / plain_weights)[trained]
    close(share, share[:1].expand_as(share))
    differ(weights[trained], plain_weights[trained])
    if level == "token":  # every token sampled with a log-prob that is too low by the same number
        close(of(x["old_logp"], sampler - 0.7)[trained], weights[trained])
    # In a row it changes the size of the gradient and not its direction.
    x["sampler_logp"] = sampler
    scaled, plain_gradient = (
        run(cells("grpo", kl=(), correct=partial(cell, cap=INF, level=level)), x)[1]
        for cell in (contrib.corrections.normalized_importance, corrections.truncated_importance)
    )
    close(scaled, plain_gradient * share[0])


@pytest.mark.parametrize(("low", "high"), [(0.5, 2.0), (0.9, 1.2)])
def test_a_mask_is_the_truncated_weight_inside_its_band_and_nothing_outside(low, high):
    x = sample(3)
    old, sampler, mask = x["old_logp"], sampler_of(x), x["mask"]
    masked_, capped = (
        contrib.corrections.masked_importance(old, sampler, mask, low=low, high=high),
        corrections.truncated_importance(old, sampler, mask, floor=low, cap=high),
    )
    inside = (capped > low) & (capped < high)
    assert torch.equal(masked_[inside], capped[inside])
    assert (masked_[~inside] == 0).all()
    assert 0 < int(inside.sum()) < inside.numel()


@pytest.mark.parametrize("seed", SEEDS)
def test_dppo_with_endless_bounds_has_no_gate(seed):
    x = sample(seed, spread=1.0)
    free = partial(contrib.trust.dppo_tv, low=1.0, high=1.0)
    close(run(cells("dppo", trust=free), x)[1], run(cells("dppo", trust=None), x)[1])
    endless = partial(contrib.trust.dppo_kl, low=INF, high=INF)
    close(run(cells("dppo", trust=endless), x)[1], run(cells("dppo", trust=None), x)[1])
    differ(run(ALGORITHMS["dppo"], x)[1], run(cells("dppo", trust=None), x)[1])


def test_a_bound_of_zero_stops_all_that_moves_on_and_nothing_that_comes_back():
    """Both distances with bound 0: what is left is the tokens that moved against their advantage."""
    x = sample(5)
    A = run(cells("dppo", kl=()), x)[2]
    back = (x["logp"] - x["old_logp"]) * A <= 0
    for cell in (contrib.trust.dppo_tv, contrib.trust.dppo_kl):
        _, gradient, _ = run(cells("dppo", kl=(), trust=partial(cell, low=0.0, high=0.0)), x)
        assert torch.equal(gradient != 0, back & (x["mask"] != 0) & (A != 0))


@pytest.mark.parametrize("bound", [0.05, 0.2])
def test_the_band_keeps_what_both_sides_of_dppo_keep(bound):
    """A token is inside the band if it is kept as a good one and as a bad one."""
    x = sample(5)
    given = {name: x[name] for name in ("logp", "old_logp")}
    ones = torch.ones_like(x["logp"])
    up, down = (contrib.trust.dppo_tv(x["mask"], **given, advantages=A, low=bound, high=bound) for A in (ones, -ones))
    band = contrib.trust.probability_band(x["mask"], **given, bound=bound)
    assert torch.equal(band, up * down)
    assert 0 < band.sum() < up.sum()


def test_the_distances_of_dppo_by_hand():
    p, q = 0.6, 0.7
    logs = {"old_logp": math.log(p), "logp": math.log(q)}
    given = {name: torch.full((1, 1), x, dtype=torch.float64) for name, x in logs.items()}
    given |= {"mask": torch.ones(1, 1), "advantages": torch.ones(1, 1).double()}
    kl = p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))
    for cell, distance in ((contrib.trust.dppo_tv, q - p), (contrib.trust.dppo_kl, kl)):
        assert cell(**given, high=distance + 1e-9).item() == 1
        assert cell(**given, high=distance - 1e-9).item() == 0
        falling = given | {"old_logp": given["logp"], "logp": given["old_logp"], "advantages": -given["advantages"]}
        back = cell(**falling, low=(q - p + 1e-9 if cell is contrib.trust.dppo_tv else 1.0))
        assert back.item() == 1
    certain = given | {"logp": torch.zeros(1, 1).double(), "old_logp": torch.zeros(1, 1).double()}
    assert contrib.trust.dppo_kl(**certain).item() == 1  # a token that has probability 1, before and now
    assert contrib.trust.dppo_kl(**given | {"logp": torch.zeros(1, 1).double()}).item() == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_a_sequence_that_may_drift_without_end_is_always_trusted(seed):
    x = sample(seed)
    x["sampler_logp"] = sampler_of(x)
    row = cells("deepseek_v32", kl=())
    anything = cells(row, trust=partial(contrib.trust.off_policy_sequence, delta=INF))
    close(run(anything, x)[1], run(cells(row, trust=None), x)[1])
    nothing_bad = cells(row, trust=partial(contrib.trust.off_policy_sequence, delta=0.0))
    _, gradient, A = run(nothing_bad, x)
    drift = ((x["sampler_logp"] - x["logp"]) * x["mask"]).sum(-1) / x["mask"].sum(-1)
    forgotten = (drift > 0) & (A[:, 0] < 0)
    assert (gradient[forgotten] == 0).all()
    plain_gradient = run(cells(row, trust=None), x)[1]
    close(gradient[~forgotten], plain_gradient[~forgotten])


def test_high_entropy_of_all_tokens_is_no_trust_at_all():
    x = sample(2)
    entropy = torch.rand(B, T, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    row = cells("dapo", shape=None, trust=partial(contrib.trust.high_entropy, share=1.0))
    close(run(row, x, entropy=entropy)[1], run(cells(row, trust=None), x)[1])
    some = cells(row, trust=partial(contrib.trust.high_entropy, share=0.25))
    kept = contrib.trust.high_entropy(x["mask"], entropy=entropy, share=0.25) != 0
    close(run(some, x, entropy=entropy)[1], run(cells(row, trust=None), x)[1] * kept)
    assert abs(int(kept.sum()) - 0.25 * int(x["mask"].sum())) <= 1


def test_clip_cov_leaves_out_a_share_of_the_tokens_in_its_band():
    x = sample(2, spread=0.4)
    A = torch.randn(B, T, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    of = partial(
        contrib.trust.clip_cov, x["mask"], logp=x["logp"], old_logp=x["old_logp"], advantages=A, low=0.01, high=2.0
    )
    trained, ratio = x["mask"] != 0, (x["logp"] - x["old_logp"]).exp()
    among = set()  # by hand, in a loop
    mean_a, mean_l = float(A[trained].mean()), float(x["logp"][trained].mean())
    for i, t in trained.nonzero().tolist():
        a, w = float(A[i, t]), float(ratio[i, t])
        stopped = (a > 0 and w > 1.2) or (a < 0 and w < 0.8)
        if not stopped and 0.01 < (a - mean_a) * (float(x["logp"][i, t]) - mean_l) < 2.0:
            among.add((i, t))
    drops = [set(map(tuple, (trained & (of(share=share) == 0)).nonzero().tolist())) for share in (1.0, 0.3, 0.0)]
    N = int(trained.sum())
    assert drops[0] == among
    assert [len(drop) for drop in drops[1:]] == [min(int(0.3 * N), len(among)), 1]
    assert drops[2] < drops[1] <= drops[0]
    draws = [of(share=0.0, seed=seed).flatten().tolist() for seed in range(1, 9)]
    assert draws[0] == of(share=0.0).flatten().tolist()
    assert any(draw != draws[0] for draw in draws)
    # A wider clip range stops fewer tokens, so that more may be drawn; and in a row its tokens have no gradient.
    assert (of(share=1.0, clip_low=0.9, clip_high=9.0) <= of(share=1.0)).all()
    differ(of(share=1.0, clip_low=0.9, clip_high=9.0), of(share=1.0))
    row = cells("dapo", shape=None, trust=partial(contrib.trust.clip_cov, low=0.01, high=2.0, share=1.0))
    kept = run(row, x, advantages=A)[1]
    close(kept, run(cells(row, trust=None), x, advantages=A)[1] * of(share=1.0, clip_high=0.2))


def test_gpg_is_the_centred_reward_times_one_number():
    x = sample(3)
    x["rewards"] = torch.tensor([1.0, 0.0, 0.0, 0.0] * P, dtype=torch.float64)[:B]
    gpg, centred = (cells("reinforce", advantage=cell) for cell in (contrib.advantages.gpg, advantages.group_centered))
    close(run(gpg, x)[1], run(centred, x)[1] * B / int(x["rewards"].sum()))
    x["rewards"] = torch.zeros(B, dtype=torch.float64)
    assert (run(gpg, x)[1] == 0).all()


def test_a_sum_is_the_mean_times_the_tokens():
    x = sample(1)
    whole, mean = (
        run(cells("grpo", kl=(), aggregate=cell), x) for cell in (contrib.aggregation.token_sum, aggregation.token_mean)
    )
    close(whole[1], mean[1] * x["mask"].sum())


@pytest.mark.parametrize("seed", SEEDS)
def test_a_prompt_mean_of_one_prompt_is_the_token_mean(seed):
    x = {name: value[:G] for name, value in sample(seed).items()}
    scalerl = ALGORITHMS["scalerl"]
    close(run(scalerl, x)[1], run(cells(scalerl, aggregate=aggregation.token_mean), x)[1])
    x = sample(seed)
    x["mask"][0, 1:] = x["mask"][1, 1:] = 0  # prompts of different length
    differ(run(scalerl, x)[1], run(cells(scalerl, aggregate=aggregation.token_mean), x)[1])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_prompt_mean_of_equal_lengths_is_the_sequence_mean(seed):
    x = sample(seed)
    x["mask"] = torch.ones_like(x["mask"])
    x["mask"][:, T - seed % T :] = 0
    scalerl = ALGORITHMS["scalerl"]
    close(run(scalerl, x)[1], run(cells(scalerl, aggregate=aggregation.sequence_mean), x)[1])
    # One completion a prompt: a prompt's tokens are the completion's.
    mask = sample(seed)["mask"]
    whole = aggregation.Totals(B, int(mask.sum()), prompts=B)
    single = contrib.aggregation.prompt_mean(x["values"], mask, prompt_tokens=masked.lengths(mask), totals=whole)
    close(single, aggregation.sequence_mean(x["values"], mask))


def test_a_minibatch_counts_a_prompts_tokens_anew_and_a_part_does_not():
    x = sample(1)
    prepared = prepare(ALGORITHMS["scalerl"], Batch(**x, group_size=G))
    lengths = masked.lengths(x["mask"]).tolist()
    rows = torch.tensor([0, 1, G, 2 * G])  # of three prompts
    mini = prepared.minibatch(rows)
    assert mini.totals.prompts == 3
    assert mini.prompt_tokens.tolist() == [lengths[0] + lengths[1]] * 2 + [lengths[G], lengths[2 * G]]
    parts = mini.split(2)  # through the first prompt, whose number goes along
    assert [part.totals for part in parts] == [mini.totals] * 2
    assert torch.cat([part.prompt_tokens for part in parts]).tolist() == mini.prompt_tokens.tolist()
    again = mini.minibatch(torch.tensor([1, 2]))
    assert again.prompt_tokens.tolist() == [lengths[1], lengths[G]]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_batchs_spread_is_the_groups_where_there_is_one_group(seed):
    x = {name: value[:G] for name, value in sample(seed).items()}
    one = run(cells("grpo", kl=(), advantage=contrib.advantages.batch_std), x)
    close(one[2], run(cells("grpo", kl=()), x)[2])
    x = sample(seed)
    A = run(cells("grpo", kl=(), advantage=contrib.advantages.batch_std), x)[2]
    centred = run(cells("grpo", kl=(), advantage=advantages.group_centered), x)[2]
    close(A, centred / (x["rewards"].std() + 1e-4))


@pytest.mark.parametrize("seed", SEEDS)
def test_gae_by_length_is_gae_with_each_rows_own_lambda(seed):
    x = sample(seed)
    rewards = advantages.place_rewards(x["rewards"], x["mask"])
    ours = contrib.advantages.gae_by_length(rewards, x["mask"], values=x["values"], alpha=0.8)
    for i, n in enumerate(masked.lengths(x["mask"]).tolist()):
        row = slice(i, i + 1)
        lam = 1 - 1 / max(0.8 * n, 1.0)
        if n:
            close(ours[row], advantages.gae(rewards[row], x["mask"][row], values=x["values"][row], lam=lam))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_baseline_of_opo_balances_tokens_and_that_of_the_mean_rows(seed):
    x = sample(seed)
    rewards = advantages.place_rewards(x["rewards"], x["mask"])
    A = contrib.advantages.opo(rewards, x["mask"], group_size=G)
    close(A.view(-1, G * T).sum(-1), torch.zeros(B // G, dtype=torch.float64))
    assert (masked.sequence_mean(A, x["mask"]).view(-1, G).sum(-1).abs() > 1e-6).any()
    whole = torch.ones_like(x["mask"])  # equal lengths
    close(*(cell(rewards, whole, group_size=G) for cell in (contrib.advantages.opo, advantages.group_centered)))


def test_maxrl_gives_a_prompt_one_over_its_pass_rate():
    rewards = torch.tensor([1, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0], dtype=torch.float64)[:, None]
    A = contrib.advantages.maxrl(rewards, torch.ones(12, 1), group_size=4, eps=0.0).flatten()
    expected = [1 / 0.25 - 1, -1, -1, -1, *[1 / 0.75 - 1] * 3, -1, 0, 0, 0, 0]  # R / p - 1; nothing where p is 0
    close(A, torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("p", [0.1, 0.5, 0.8])
@pytest.mark.parametrize("size", [2, 3, 5])
def test_best_minus_second_is_the_gradient_of_pass_at_k(size, p):
    """All outcomes of G throws of a coin with P(1) = sigmoid(theta), whose score is R - p; without the division."""
    total = 0.0
    for throws in itertools.product((0.0, 1.0), repeat=size):
        rewards = torch.tensor(throws, dtype=torch.float64)
        A = contrib.advantages.best_minus_second(
            rewards[:, None], torch.ones(size, 1), group_size=size, eps=1.0
        ).flatten()
        lead = A * (rewards.std() + 1.0)
        chance = math.prod(p if r else 1 - p for r in throws)
        total += chance * float((lead * (rewards - p)).sum())
    assert total == pytest.approx(size * (1 - p) ** (size - 1) * p * (1 - p), abs=1e-12)  # d/dtheta 1 - (1 - p)^G


def test_a_window_forgets_where_a_clip_leads_back():
    """The two are one inside the band, and outside it where the clip is still as well."""
    w = torch.linspace(0.1, 3, 30, dtype=torch.float64).repeat(2)
    A = torch.tensor([-1.0, 1.0], dtype=torch.float64).repeat_interleave(30)
    window, clipped = (
        gradient_weight(cells("dr_grpo", gate=partial(gate, low=0.25, high=0.35)), w, A)
        for gate in (contrib.gates.mask_weight, gates.clip)
    )
    inside = (w > 0.75) & (w < 1.35)
    back = ((w > 1.35) & (A < 0)) | ((w < 0.75) & (A > 0))
    close(window, torch.where(inside, w * A, torch.zeros_like(w)))
    close(clipped - window, torch.where(back, w * A, torch.zeros_like(w)))
    assert back.any()
    assert (inside & (A < 0)).any()


@pytest.mark.parametrize("seed", SEEDS)
def test_topr_is_reinforce_for_the_good_and_capped_at_1_for_the_bad(seed):
    x = sample(seed)
    tapered = run(cells("topr"), x)
    reinforced, capped = (
        run(cells("topr", **other), x)
        for other in ({"ratio": ratios.on_policy, "gate": gates.none}, {"gate": partial(gates.clip_weight, cap=1.0)})
    )
    close(tapered[1], torch.where(tapered[2] > 0, reinforced[1], capped[1]))
    differ(tapered[1], capped[1])


def test_sao_takes_a_group_of_one_and_its_critic_learns_plain_returns():
    x = sample(0)
    row = ALGORITHMS["sao"]
    prepared = prepare(row, Batch(**x, group_size=1))
    rewards = advantages.place_rewards(x["rewards"], x["mask"])
    close(prepared.returns, advantages.returns_to_go(rewards, x["mask"]))


@pytest.mark.parametrize("seed", SEEDS)
def test_one_part_of_a_reward_is_the_reward(seed):
    x = sample(seed)
    x["mask"][0, 0] = 1
    parts = {"reward_parts": x["rewards"][:, None]}
    ours = run(cells("grpo", kl=(), advantage=partial(contrib.advantages.gdpo, eps=1e-4)), x, **parts)
    close(ours[2], run(cells("grpo", kl=()), x)[2])
    weighted = partial(contrib.advantages.gdpo, eps=1e-4, weights=(2.0, -1.0))
    both = {"reward_parts": torch.stack([x["rewards"], x["rewards"]], dim=1)}
    close(run(cells("grpo", kl=(), advantage=weighted), x, **both)[2], ours[2])


def test_parts_that_are_compared_before_they_are_added():
    """Rewards (0, 2) and (0, 1): added first they are the same z-score, part by part they are not."""
    parts = torch.tensor([[0.0, 2.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]).double()
    other = torch.tensor([[1.0, 2.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]).double()
    call = {"token_rewards": torch.zeros(4, 1).double(), "mask": torch.ones(4, 1), "group_size": 4, "eps": 0.0}
    one, two = (contrib.advantages.gdpo(**call, reward_parts=p) for p in (parts, other))
    close(two, 2 * one)
    close(one[0, 0], torch.tensor(1.5).double())


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_are_normalised_as_tokens_are_where_lengths_are_equal(seed):
    x = sample(seed)
    x["mask"] = torch.ones_like(x["mask"])
    A = run(cells("dr_grpo"), x)[2]
    rows = contrib.advantages.zscore_rows(A, x["mask"], eps=0.0, ddof=0)
    close(rows, advantages.whiten(A, x["mask"], eps=0.0, ddof=0))
    mask = sample(seed)["mask"]
    short = contrib.advantages.zscore_rows(masked.zero_outside(A, mask), mask, eps=0.0)
    close(short[:, 0], (A[:, 0] - A[:, 0].mean()) / A[:, 0].std())


@pytest.mark.parametrize("seed", SEEDS)
def test_a_penalty_after_the_baseline_is_not_compared_with_the_siblings(seed):
    """In the reward, the group's mean is subtracted from it too: A differs by beta times the siblings' mean KL."""
    x = sample(seed)
    in_reward, after = (
        run(cells("dr_grpo", kl=(KL(0.3, "k1", place=place, level="sequence"),)), x)
        for place in ("reward", "advantage")
    )
    d = ((x["old_logp"] - x["ref_logp"]) * x["mask"]).sum(-1)
    siblings = d.view(P, G).mean(-1).repeat_interleave(G)[:, None].expand(B, T)
    close((in_reward[2] - after[2]), 0.3 * masked.zero_outside(siblings, x["mask"]))
    bare = run(cells("dr_grpo"), x)[2]
    by_token = run(cells("dr_grpo", kl=(KL(0.3, "k2", place="advantage"),)), x)[2]
    close(bare - by_token, 0.15 * masked.zero_outside((x["old_logp"] - x["ref_logp"]) ** 2, x["mask"]))


def test_where_nothing_is_subtracted_reward_and_advantage_are_one_place():
    x = sample(0)
    row = cells("reinforce", advantage=partial(advantages.returns_to_go, gamma=0.0))
    first, second = (run(cells(row, kl=(KL(0.3, "k3", place=place),)), x)[2] for place in ("reward", "advantage"))
    close(first, second)


def test_a_penalty_in_the_advantage_comes_before_whitening_and_not_into_the_critics_targets():
    x = sample(6)
    leash = KL(0.3, "k1", place="advantage")
    bare, leashed = (prepare(cells("ppo", kl=kl), Batch(**x, group_size=G)) for kl in ((), (leash,)))
    assert torch.equal(bare.returns, leashed.returns)
    raw = prepare(cells("ppo", kl=(leash,), normalize=None), Batch(**x, group_size=G)).advantages
    close(leashed.advantages, advantages.whiten(raw, x["mask"]))


def test_targets_teach_the_critic_and_leave_the_policy_alone():
    x = sample(4)
    own = partial(advantages.gae, gamma=1.0, lam=0.95)
    plain_, same_, other = (
        prepare(cells("ppo", targets=targets), Batch(**x, group_size=G))
        for targets in (None, own, partial(advantages.gae, lam=1.0))
    )
    assert torch.equal(plain_.returns, same_.returns)
    assert torch.equal(plain_.advantages, other.advantages)
    monte_carlo = run(cells("ppo", kl=(), advantage=advantages.returns_to_go, normalize=None), x)[2]
    with_leash = prepare(cells("ppo", kl=(), targets=partial(advantages.gae, lam=1.0)), Batch(**x, group_size=G))
    close(with_leash.returns, monte_carlo)


def test_an_entropy_bonus_with_its_own_mean():
    x = sample(4)
    entropy = torch.rand(B, T, dtype=torch.float64).requires_grad_()
    row = cells("grpo", kl=(), entropy=0.02, entropy_aggregate=aggregation.token_mean)
    loss = policy_loss(row, Batch(**x, group_size=G, entropy=entropy))
    close(torch.autograd.grad(loss, entropy)[0], -0.02 * x["mask"] / x["mask"].sum())


# ---- from logits --------------------------------------------------------------------------------------------


def test_the_logits_of_a_completion_are_shifted_by_one():
    """Position t predicts token t + 1: the last two of five tokens are predicted at positions 2 and 3."""
    logits = torch.arange(10.0).reshape(1, 5, 2)
    assert logprobs.completion_logits(logits, 2).tolist() == [[[4.0, 5.0], [6.0, 7.0]]]
    assert logprobs.completion_logits(logits, 4).tolist() == logits[:, :4].tolist()


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probs_and_entropy_by_hand(temperature):
    """A token of logit -inf has no probability, and 0 log 0 is 0."""
    logits = torch.tensor([[[1.0, 2.0, -math.inf], [0.0, -1.0, 3.0]], [[5.0, 5.0, 5.0], [-2.0, 0.5, 0.1]]]).double()
    ids = torch.tensor([[1, 2], [0, 2]])
    options = {} if temperature == 1.0 else {"temperature": temperature}
    logp, entropy = logprobs.token_logprobs(logits, ids, **options), logprobs.token_entropy(logits, **options)
    for i in range(2):
        for t in range(2):
            weights = [math.exp(z / temperature) for z in logits[i, t].tolist()]
            probs = [w / sum(weights) for w in weights]
            assert float(logp[i, t]) == pytest.approx(math.log(probs[ids[i, t]]), abs=1e-12)
            assert float(entropy[i, t]) == pytest.approx(-sum(p * math.log(p) for p in probs if p), abs=1e-12)


def test_half_precision_logits_become_float32_log_probs():
    logits = torch.tensor([[[1.0, 2.0, 3.0]]])
    for dtype in (torch.bfloat16, torch.float16):
        ours = logprobs.token_logprobs(logits.to(dtype), torch.tensor([[1]]))
        assert ours.dtype == torch.float32
        close(ours, logprobs.token_logprobs(logits, torch.tensor([[1]])))
    assert logprobs.token_entropy(logits.double()).dtype == torch.float64


# ---- masks and places -----------------------------------------------------------------------------------------


def test_the_completion_mask_counts_the_first_eos_in_and_stops():
    ids = torch.tensor([[5, 2, 7, 2], [5, 6, 7, 8], [2, 2, 2, 2], [2, 5, 5, 5]])
    expected = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0], [1, 0, 0, 0]]).float()
    assert torch.equal(masked.completion_mask(ids, eos_id=2), expected)
    limits = torch.tensor([4, 2, 4, 4])
    assert masked.completion_mask(ids, eos_id=2).dtype == torch.float32
    cut = expected.clone()
    cut[1, 2:] = 0
    assert torch.equal(masked.completion_mask(ids, eos_id=2, limits=limits), cut)


def test_an_outcome_stands_on_the_last_trained_token():
    mask = torch.tensor([[1, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0]])
    expected = torch.tensor([[0, 1, 0, 0], [0, 0, 2, 0], [0, 0, 0, 3], [4, 0, 0, 0]]).double()
    assert torch.equal(advantages.place_rewards(torch.tensor([1.0, 2, 3, 4]).double(), mask), expected)
    for dtype in (torch.float64, torch.float32):
        assert masked.last_token(mask.to(dtype)).dtype == dtype


@pytest.mark.parametrize("seed", SEEDS)
def test_both_forms_of_on_policy_distillation_agree_until_the_first_update(seed):
    """Paid before the updates, or weighted k3 in the loss: the same gradient where pi is pi_old, and then no longer."""
    x = sample(seed)
    in_the_loss = cells("opd", advantage=advantages.returns_to_go, kl=(KL(1.0, "k3", weighted=True),))
    nothing = {"rewards": torch.zeros_like(x["rewards"])}
    differ(run(cells("opd"), x)[1], run(in_the_loss, x | nothing)[1])
    x["old_logp"] = x["logp"].detach().clone()
    close(run(cells("opd"), x)[1], run(in_the_loss, x | nothing)[1])


@pytest.mark.parametrize("seed", SEEDS)
def test_prefix_weights_fall_with_the_share_of_the_gap_that_lies_before(seed):
    x = sample(seed)
    call = {"token_rewards": x["mask"].double(), "mask": x["mask"]} | {k: x[k] for k in ("old_logp", "ref_logp")}
    gap = contrib.advantages.teacher_gap(**call)
    close(contrib.advantages.prefix_weighted(**call, gamma=0.0), gap)
    ours = contrib.advantages.prefix_weighted(**call, gamma=0.7)
    for row, weighted in zip(gap.tolist(), ours.tolist(), strict=True):
        before, total = 0.0, sum(map(abs, row))
        for a, A in zip(row, weighted, strict=True):
            assert A == pytest.approx((1 + 0.7 * (1 - before / total)) * a if total else 0.0, abs=1e-12)
            before += abs(a)
    differ(ours, gap)


def test_prefix_weights_of_a_teacher_that_agrees_are_nothing():
    x = sample(0)
    call = {"token_rewards": x["mask"].double(), "mask": x["mask"], "old_logp": x["ref_logp"]}
    assert torch.equal(contrib.advantages.prefix_weighted(**call, ref_logp=x["ref_logp"]), torch.zeros(B, T).double())


def test_a_limit_caps_what_a_teacher_pays():
    x = sample(0)
    call = {"token_rewards": torch.zeros_like(x["mask"]), "mask": x["mask"]} | {
        k: x[k] for k in ("old_logp", "ref_logp")
    }
    free, capped = contrib.advantages.teacher_gap(**call), contrib.advantages.teacher_gap(**call, limit=0.1)
    close(capped, free.clamp(-0.1, 0.1))
    differ(capped, free)
