"""Two roads to one number: baselines, process rewards, returns, whitening."""

import math
from functools import partial

import pytest
import torch

from rlhf_minimal import ALGORITHMS, Batch, contrib, prepare
from rlhf_minimal.functional import advantages, gates, ratios
from tests.identities.batches import B, G, P, T, cells, close, differ, run, sample


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
