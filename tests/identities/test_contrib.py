"""Two roads to one number: each newer cell is an old one where it has nothing to say."""

import itertools
import math
from functools import partial

import pytest
import torch

from rlhf_minimal import ALGORITHMS, KL, Batch, contrib, gradient_weight, policy_loss, prepare
from rlhf_minimal.functional import advantages, aggregation, corrections, gates, masked, ratios
from tests.identities.batches import INF, SEEDS, B, G, P, T, cells, close, differ, run, sample, sampler_of

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
