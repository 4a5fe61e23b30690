"""The online loop: it computes what an algorithm needs and no more, and no way of cutting the work changes it."""

import copy
import dataclasses
import math
import time
import warnings
from functools import partial

import pytest
import torch

from rlhf_minimal import ALGORITHMS, KL, contrib
from rlhf_minimal.config import Config
from rlhf_minimal.evaluate import wilson
from rlhf_minimal.functional import advantages, corrections
from rlhf_minimal.lab.trust_region import trpo_step
from rlhf_minimal.metrics import METRICS, NONDETERMINISTIC, UpdateStats, explained_variance
from rlhf_minimal.models import Vocabulary, tiny_llama
from rlhf_minimal.runs import resume_learner, save_learner
from rlhf_minimal.sample import join, select
from rlhf_minimal.tasks import Problem, VerifierWarning, get_task, random_reward
from rlhf_minimal.train import (
    NothingToLearn,
    Recipe,
    collect,
    prepare_batch,
    roll_out,
    train,
    train_step,
    update,
)
from rlhf_minimal.train_state import Learner

EVEN = get_task("even")
SMALL = Config(steps=3, prompts=4, group_size=4, lr=1e-3)


def begin(algorithm, config=SMALL, *, task=EVEN, reward=None, seed=0):
    if isinstance(algorithm, str):
        algorithm = ALGORITHMS[algorithm]
    vocabulary = Vocabulary(task.alphabet)
    policy = tiny_llama(len(vocabulary), width=16, layers=1, heads=2, seed=seed)
    teacher = tiny_llama(len(vocabulary), width=8, layers=1, heads=2) if algorithm.needs_teacher else None
    learner = Learner.begin(policy, vocabulary, algorithm, config, teacher=teacher)
    return learner, Recipe(algorithm, task, config, reward)


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()]).clone()


def without_clock(history):
    return [{name: value for name, value in metrics.items() if name not in NONDETERMINISTIC} for metrics in history]


# --- the whole step ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_row_runs_and_every_number_it_reports_is_explained(name):
    pieces = 1 if ALGORITHMS[name].needs_whole_step else 2
    learner, recipe = begin(name, dataclasses.replace(SMALL, epochs=2, minibatches=2, micro_batches=pieces))
    before = weights(learner.policy)
    history = train(learner, recipe)
    assert [metrics["step"] for metrics in history] == [1, 2, 3]
    assert set().union(*history) <= set(METRICS)
    assert all(math.isfinite(value) for metrics in history for value in metrics.values())
    assert not torch.equal(before, weights(learner.policy))
    assert ("value_loss" in history[0]) == ("explained_variance" in history[0]) == (learner.critic is not None)


def test_every_metric_that_is_explained_is_reported_by_somebody():
    seen = set()
    for name in ("ppo", "dapo", "opd"):
        learner, recipe = begin(name)
        seen |= set().union(*train(learner, recipe))
    config = dataclasses.replace(SMALL, target_kl=1.0, score_clip=1.0)
    learner, recipe = begin("ppo", config, reward=random_reward(0))
    seen |= set().union(*train(learner, recipe))
    seen |= set(trpo_step(*begin("dr_grpo")))
    learner, recipe = begin("grpo")
    marks = dataclasses.replace(
        recipe, step_reward=lambda completions, **_: [[(1, 1.0)] if c else [] for c in completions]
    )
    seen |= set(train_step(learner, marks))
    learner, recipe = begin("rloo", reward=lambda completions, **columns: 1 / 0)
    learner.step = 1  # the first step would stop the run
    with pytest.warns(VerifierWarning):
        seen |= set().union(*train(learner, recipe))
    assert seen == set(METRICS)


@pytest.mark.parametrize("name", [name for name, row in ALGORITHMS.items() if not row.needs_whole_step])
def test_micro_batches_change_nothing(name):
    """Parameters after one SGD step of size 1 are the gradient itself; 16 rows in 1, 3 and 16 pieces."""
    results = []
    for pieces in (1, 3, 16):
        config = dataclasses.replace(SMALL, micro_batches=pieces, grad_clip=1e9)
        learner, recipe = begin(name, config)
        learner.optimizer = torch.optim.SGD(learner.policy.parameters(), lr=1.0)
        if learner.critic is not None:
            learner.critic_optimizer = torch.optim.SGD(learner.critic.parameters(), lr=1.0)
        metrics = train_step(learner, recipe)
        lengths_differ = 1 < metrics["length"] < 4
        assert lengths_differ  # else no denominator could go wrong
        results.append((weights(learner.policy), learner.critic and weights(learner.critic), metrics))
    for policy, critic, metrics in results[1:]:
        torch.testing.assert_close(policy, results[0][0], rtol=1e-4, atol=1e-5)
        if critic is not None:
            torch.testing.assert_close(critic, results[0][1], rtol=1e-4, atol=1e-5)
        for key in ("loss", "grad_norm", "entropy", "clip_fraction"):
            assert metrics[key] == pytest.approx(results[0][2][key], rel=1e-3, abs=1e-5)


def test_an_update_is_the_gradient_of_the_policy_loss():
    """One step of the loop against REINFORCE written out by hand on the same rollout."""
    config = dataclasses.replace(SMALL, grad_clip=1e9)
    learner, recipe = begin("reinforce", config)
    learner.optimizer = torch.optim.SGD(learner.policy.parameters(), lr=1.0)
    groups, _ = collect(learner.policy, learner.vocabulary, recipe, step=1)
    by_hand = copy.deepcopy(learner.policy)

    batch, _ = prepare_batch(learner, recipe, groups, step=1)
    update(learner, recipe, groups, batch, step=1)

    loss = 0.0
    for i in range(16):
        prompt = groups.prompts[i][groups.prompt_mask[i] == 1].tolist()
        answer = groups.completions[i][groups.mask[i] == 1].tolist()
        logp = torch.log_softmax(by_hand(torch.tensor([prompt + answer])).logits[0], -1)
        for t, token in enumerate(answer):
            loss = loss - groups.rewards[i] * logp[len(prompt) + t - 1, token] / 16
    loss.backward()
    expected = torch.cat([(p - p.grad).flatten() for p in by_hand.parameters()])
    torch.testing.assert_close(weights(learner.policy), expected, rtol=1e-4, atol=1e-5)


def test_a_run_is_a_function_of_its_seed():
    runs = []
    for seed in (0, 0, 1):
        learner, recipe = begin("grpo", dataclasses.replace(SMALL, seed=seed))
        runs.append(without_clock(train(learner, recipe)))
    assert runs[0] == runs[1] != runs[2]


def test_training_stops_when_told_to():
    learner, recipe = begin("grpo")
    assert len(train(learner, recipe, on_step=lambda metrics: False)) == 1
    assert len(train(learner, recipe)) == 2  # and goes on with what is left


# --- what an algorithm needs ---------------------------------------------------------------------------------------


def count_forwards(model):
    calls = []
    model.register_forward_hook(lambda *_: calls.append(1))
    return calls


def test_the_reference_runs_only_for_those_who_need_it():
    config = dataclasses.replace(SMALL, reference="ema")  # a model of its own, so that its forwards can be counted
    for name, needed in (("grpo", True), ("rloo", True), ("dr_grpo", False), ("reinforce", False)):
        learner, recipe = begin(name, config)
        assert (learner.reference is not None) == needed, name  # nor is one kept
        calls = count_forwards(learner.reference) if needed else []
        train_step(learner, recipe)
        assert bool(calls) == needed, name
    learner, recipe = begin(dataclasses.replace(ALGORITHMS["grpo"], kl=(KL(0.0, "k3"),)), config)
    assert learner.reference is None  # a coefficient of zero needs none
    train_step(learner, recipe)


def test_the_distance_from_the_start_is_reported_for_a_row_without_a_kl():
    """It is 0 while the policy equals the start, then above 0; it is missing with `watch_kl` off alone."""
    assert ALGORITHMS["dr_grpo"].kl == ()
    history = train(*begin("dr_grpo"))
    assert history[0]["kl"] == pytest.approx(0, abs=1e-6)
    assert history[-1]["kl"] > 1e-6
    assert "kl" not in train(*begin("dr_grpo", dataclasses.replace(SMALL, watch_kl="off")))[-1]


def test_a_learner_without_a_start_is_saved_and_goes_on(tmp_path):
    learner, recipe = begin("dr_grpo", dataclasses.replace(SMALL, watch_kl="off"))
    assert learner.start is None
    train_step(learner, recipe)
    save_learner(learner, tmp_path / "checkpoint", {})
    other = resume_learner(tmp_path / "checkpoint", recipe.algorithm, recipe.config, "cpu")
    assert other.start is None
    for one in (learner, other):
        train_step(one, recipe)
    assert torch.equal(weights(learner.policy), weights(other.policy))


def test_a_frozen_reference_costs_no_second_forward():
    counts = []
    for name in ("grpo", "dr_grpo"):  # with a reference, and without any
        learner, recipe = begin(name)
        assert learner.reference is learner.start
        calls = count_forwards(learner.start)
        train_step(learner, recipe)
        counts.append(len(calls))
    assert counts[0] == counts[1] == 1  # few rows are one piece


def test_only_ppo_has_a_critic_and_it_learns():
    assert begin("grpo")[0].critic is None
    # With a coin for a reward and a policy that stands still, one half is the right expectation before every token.
    config = Config(steps=40, prompts=16, group_size=8, lr=1e-9, value_lr=3e-3)
    learner, recipe = begin(dataclasses.replace(ALGORITHMS["ppo"], kl=()), config, reward=random_reward(0))
    history = train(learner, recipe)
    groups, _ = collect(learner.policy, learner.vocabulary, recipe, step=99)
    batch, _ = prepare_batch(learner, recipe, groups, step=99)
    assert batch.values[batch.mask == 1].mean().item() == pytest.approx(0.5, abs=0.1)
    assert history[-1]["value_loss"] < history[0]["value_loss"]


def test_given_baselines():
    algorithm = dataclasses.replace(ALGORITHMS["reinforce"], advantage=contrib.advantages.given_baseline)
    learner, recipe = begin(algorithm)
    learner.mean_reward = 0.25
    groups, _ = collect(learner.policy, learner.vocabulary, recipe, step=1)
    batch, _ = prepare_batch(learner, recipe, groups, step=1)
    torch.testing.assert_close(batch.baseline, torch.full((16,), 0.25))

    learner, recipe = begin(algorithm, dataclasses.replace(SMALL, baseline="greedy"))
    batch, _ = prepare_batch(learner, recipe, groups, step=1)
    for i in range(0, 16, 4):
        greedy = roll_out(learner.policy, learner.vocabulary, groups.problems[i : i + 1], recipe, temperature=0.0)
        assert batch.baseline[i : i + 4].tolist() == greedy.rewards.tolist() * 4


def test_the_mean_reward_baseline_follows_past_rewards_only():
    config = dataclasses.replace(SMALL, baseline_decay=0.8)
    learner, recipe = begin("reinforce", config)
    first = train_step(learner, recipe)["reward"]
    assert learner.mean_reward == pytest.approx(0.2 * first)
    second = train_step(learner, recipe)["reward"]
    assert learner.mean_reward == pytest.approx(0.16 * first + 0.2 * second)


def test_truncated_importance_weights_get_the_samplers_opinion_and_the_trainers():
    algorithm = dataclasses.replace(ALGORITHMS["dr_grpo"], correct=corrections.truncated_importance)
    learner, recipe = begin(algorithm)
    groups, _ = collect(learner.policy, learner.vocabulary, recipe, step=1)
    batch, _ = prepare_batch(learner, recipe, groups, step=1)
    assert torch.equal(batch.sampler_logp, groups.logp)
    assert batch.old_logp is not batch.sampler_logp
    torch.testing.assert_close(batch.old_logp * batch.mask, groups.logp, rtol=1e-4, atol=1e-5)
    train(learner, recipe)


def test_an_entropy_bonus_keeps_entropy_up():
    ends = []
    for coefficient in (0.0, 0.5):
        algorithm = dataclasses.replace(ALGORITHMS["dr_grpo"], entropy=coefficient)
        learner, recipe = begin(algorithm, Config(steps=15, prompts=8, group_size=8, lr=3e-3))
        ends.append(train(learner, recipe)[-1]["entropy"])
    assert ends[1] > ends[0] + 0.1


def test_trust_sees_the_entropy_and_costs_no_gradient_of_it():
    """The quantile is the optimiser step's: one piece, or an error that says so before anything is sampled."""
    algorithm = dataclasses.replace(ALGORITHMS["dr_grpo"], trust=partial(contrib.trust.high_entropy, share=0.5))
    config = dataclasses.replace(SMALL, epochs=2, minibatches=2)
    learner, recipe = begin(algorithm, config)
    shut = [metrics["clip_fraction"] for metrics in train(learner, recipe)]
    assert all(0.3 < fraction < 0.7 for fraction in shut)
    with pytest.raises(ValueError, match="all those of an optimiser step: set micro_batches=1"):
        begin(algorithm, dataclasses.replace(config, micro_batches=2))


def test_a_row_asks_for_the_greedy_reward_by_itself():
    learner, recipe = begin("remax")
    groups, _ = collect(learner.policy, learner.vocabulary, recipe, step=1)
    batch, _ = prepare_batch(learner, recipe, groups, step=1)
    for i in range(0, 16, 4):
        greedy = roll_out(learner.policy, learner.vocabulary, groups.problems[i : i + 1], recipe, temperature=0.0)
        assert batch.greedy_rewards[i : i + 4].tolist() == greedy.rewards.tolist() * 4
    expected = (batch.rewards - batch.greedy_rewards)[:, None] * batch.mask
    torch.testing.assert_close(batch.advantages * batch.mask, expected)


def test_a_reward_in_parts():
    """The task's parts, where it has some; one part, the reward, where it has none."""
    learner, recipe = begin("gdpo")
    groups, _ = collect(learner.policy, learner.vocabulary, recipe, step=1)
    batch, _ = prepare_batch(learner, recipe, groups, step=1)
    assert torch.equal(batch.reward_parts, groups.rewards[:, None])

    def parts(completion, problem):
        return float(completion == problem.answer), float(len(completion) > 1), 0.0

    recipe = dataclasses.replace(recipe, task=dataclasses.replace(recipe.task, parts=parts))
    batch, _ = prepare_batch(learner, recipe, groups, step=1)
    rows = [parts(text, problem) for text, problem in zip(groups.texts, groups.problems, strict=True)]
    assert batch.reward_parts.tolist() == [list(row) for row in rows]
    train(learner, recipe)

    uneven = dataclasses.replace(recipe.task, parts=lambda completion, problem: [0.0] * (1 + len(completion)))
    groups = dataclasses.replace(groups, texts=["a" * (i % 2) for i in range(len(groups.texts))])
    with pytest.raises(ValueError, match="give as many for all"):
        prepare_batch(learner, dataclasses.replace(recipe, task=uneven), groups, step=1)


def test_scores_that_are_changed_would_not_reach_the_parts():
    for change in ({"score_scaling": "batch"}, {"score_clip": 1.0}, {"missing_eos_penalty": 1.0}):
        with pytest.raises(ValueError, match="this algorithm reads its parts: leave them out"):
            begin("gdpo", dataclasses.replace(SMALL, **change))


def test_a_critic_with_targets_of_its_own_and_a_penalty_after_the_baseline():
    row = dataclasses.replace(
        ALGORITHMS["ppo"],
        targets=partial(advantages.gae, lam=1.0),
        kl=(KL(0.1, "k1", place="advantage"),),
    )
    learner, recipe = begin(row)
    groups, _ = collect(learner.policy, learner.vocabulary, recipe, step=1)
    batch, _ = prepare_batch(learner, recipe, groups, step=1)
    to_go = batch.rewards[:, None].expand_as(batch.mask) * batch.mask  # the whole outcome is still to come
    torch.testing.assert_close(batch.returns, to_go)
    assert batch.ref_logp is not None
    train(learner, recipe)


# --- keep and refill -----------------------------------------------------------------------------------------------


def test_groups_without_a_kept_row_are_replaced_by_fresh_problems():
    learner, recipe = begin("dapo", Config(steps=1, prompts=6, group_size=2))
    groups, sampled = collect(learner.policy, learner.vocabulary, recipe, step=1)
    rewards = groups.rewards.view(6, 2)
    assert (rewards[:, 0] != rewards[:, 1]).all()  # mixed outcomes only
    assert len(sampled) > 1
    mixed = [r for part in sampled for r in part.rewards.view(-1, 2) if r[0] != r[1]]
    assert torch.equal(rewards, torch.stack(mixed[:6]))  # in the order in which they were found
    metrics = train_step(learner, recipe)
    assert metrics["refills"] == len(sampled) - 1
    assert metrics["reward"] == pytest.approx(torch.cat([part.rewards for part in sampled]).mean().item())
    assert metrics["groups"] == 6


def test_a_kept_group_keeps_the_rewards_of_its_masked_rows():
    algorithm = dataclasses.replace(ALGORITHMS["dr_grpo"], keep=contrib.filters.not_truncated)
    learner, recipe = begin(algorithm, dataclasses.replace(SMALL, max_new_tokens=2))
    groups, sampled = collect(learner.policy, learner.vocabulary, recipe, step=1)
    assert (groups.mask.sum(-1) == 0).any()
    assert torch.equal(groups.mask.sum(-1) == 0, groups.truncated)
    batch, _ = prepare_batch(learner, recipe, groups, step=1)
    centred = groups.rewards.view(-1, 4) - groups.rewards.view(-1, 4).mean(-1, keepdim=True)
    trained = groups.mask[:, 0] == 1
    torch.testing.assert_close(batch.advantages[:, 0][trained], centred.flatten()[trained])
    train(learner, recipe)


def test_a_filter_may_ask_for_lengths():
    def short(rewards, *, lengths, budget):
        assert budget == 2
        return lengths < budget

    algorithm = dataclasses.replace(ALGORITHMS["dr_grpo"], keep=short)
    learner, recipe = begin(algorithm, dataclasses.replace(SMALL, max_new_tokens=2))
    groups, _ = collect(learner.policy, learner.vocabulary, recipe, step=1)
    assert set(groups.mask.sum(-1).tolist()) == {0.0, 1.0}


def test_refilling_has_a_limit_and_says_what_it_found():
    def never(rewards, *, group_size):
        return torch.zeros_like(rewards, dtype=torch.bool)

    algorithm = dataclasses.replace(ALGORITHMS["grpo"], keep=never)
    learner, recipe = begin(algorithm, dataclasses.replace(SMALL, max_refills=2))
    before = weights(learner.policy)
    with pytest.raises(NothingToLearn, match=r"step 1: in 3 rounds of 4 problems .*mean reward 0\.\d\d"):
        train_step(learner, recipe)
    assert learner.step == 0
    assert torch.equal(before, weights(learner.policy))


def test_fewer_groups_than_asked_for_are_trained_on_and_counted():
    kept = []

    def one_group_a_round(rewards, *, group_size):
        kept.append(1)
        return torch.arange(len(rewards)) < group_size

    algorithm = dataclasses.replace(ALGORITHMS["grpo"], keep=one_group_a_round)
    learner, recipe = begin(algorithm, dataclasses.replace(SMALL, max_refills=2, minibatches=2))
    metrics = train_step(learner, recipe)
    assert (metrics["groups"], metrics["refills"], len(kept)) == (3, 2, 3)


def test_rollouts_of_different_widths_join_without_a_change():
    learner, recipe = begin("grpo")
    short = roll_out(learner.policy, learner.vocabulary, [Problem("1:", "")], recipe, group_size=2)
    long = roll_out(learner.policy, learner.vocabulary, [Problem("123:", "")], recipe, group_size=2)
    both = join([short, long])
    assert both.prompts.shape[1] == 4
    assert both.prompt_mask.sum(-1).tolist() == [2, 2, 4, 4]
    again = select(both, torch.tensor([2, 3, 0, 1]))
    assert again.texts == long.texts + short.texts
    batch, distance = prepare_batch(
        learner, dataclasses.replace(recipe, config=dataclasses.replace(SMALL, group_size=2)), both, 1
    )
    assert distance["kl"] == pytest.approx(0, abs=1e-6)  # the log-probs of the start are still those of the sampler


# --- the reference -------------------------------------------------------------------------------------------------


def test_a_frozen_reference_stays():
    learner, recipe = begin("grpo")
    before = weights(learner.reference)
    train(learner, recipe)
    assert torch.equal(before, weights(learner.reference))


def test_a_refreshed_reference_jumps_every_n_steps():
    learner, recipe = begin("grpo", dataclasses.replace(SMALL, steps=4, reference="refresh", refresh_every=3))
    start = weights(learner.policy)
    seen = []
    train(learner, recipe, lambda metrics: seen.append((weights(learner.reference), weights(learner.policy))))
    assert torch.equal(seen[1][0], start)
    assert torch.equal(seen[2][0], seen[2][1])
    assert torch.equal(seen[3][0], seen[2][1])
    assert torch.equal(weights(learner.start), start)  # KL in the metrics still means the distance from the start


def test_an_averaged_reference_drifts_after_the_policy():
    learner, recipe = begin("grpo", dataclasses.replace(SMALL, steps=1, reference="ema", ema_decay=0.9))
    start = weights(learner.policy)
    train(learner, recipe)
    torch.testing.assert_close(weights(learner.reference), 0.9 * start + 0.1 * weights(learner.policy))


# --- metrics -------------------------------------------------------------------------------------------------------


def test_clip_fraction_counts_where_the_gate_is_shut_and_nothing_else():
    """Below, inside and above the window, for both signs of A: two of six are shut. Tokens with A = 0 do not count."""
    from rlhf_minimal import Batch

    ratio = torch.tensor([[0.5, 1.0, 1.5], [0.5, 1.0, 1.5], [0.5, 1.0, 1.5]])
    advantage = torch.tensor([[1.0] * 3, [-1.0] * 3, [0.0] * 3])
    zeros = torch.zeros(3, 3)
    batch = Batch(ratio.log() - 1, zeros - 1, torch.ones(3, 3), torch.zeros(3), 1, advantages=advantage)
    stats = UpdateStats()
    stats.add_tokens(ALGORITHMS["grpo"], batch, entropy=zeros + 0.5, sampled=batch.mask)
    found = stats.metrics()
    assert found["clip_fraction"] == pytest.approx(2 / 6)
    assert (found["ratio_min"], found["ratio_max"]) == (pytest.approx(0.5), pytest.approx(1.5))
    assert found["entropy"] == pytest.approx(0.5)


def test_a_token_that_is_not_trusted_counts_as_clipped():
    from rlhf_minimal import Batch

    old = torch.tensor([[0.1, 0.5, 0.5, 0.5]]).log()
    new = torch.tensor([[0.2, 0.6, 0.8, 0.1]]).log()
    batch = Batch(new, old, torch.ones(1, 4), torch.zeros(1), 1, advantages=torch.ones(1))
    stats = UpdateStats()
    stats.add_tokens(ALGORITHMS["dppo"], batch, entropy=torch.zeros(1, 4), sampled=batch.mask)
    assert stats.metrics()["clip_fraction"] == pytest.approx(1 / 4)  # the third rose by 0.3


def test_ratio_one_on_the_first_update_and_clipping_only_later():
    learner, recipe = begin("grpo", dataclasses.replace(SMALL, lr=2e-2))
    first = train_step(learner, recipe)
    assert first["ratio_min"] == pytest.approx(1, abs=1e-4)
    assert first["ratio_max"] == pytest.approx(1, abs=1e-4)
    assert first["clip_fraction"] == 0
    learner, recipe = begin("grpo", dataclasses.replace(SMALL, lr=2e-2, epochs=4))
    later = train_step(learner, recipe)
    assert later["ratio_min"] < 0.8
    assert later["ratio_max"] > 1.2
    assert later["clip_fraction"] > 0


def test_sampler_trainer_and_reference_agree_about_the_temperature():
    entropy = []
    for temperature in (0.5, 1.0, 2.0):
        learner, recipe = begin("grpo", dataclasses.replace(SMALL, temperature=temperature))
        metrics = train_step(learner, recipe)
        assert metrics["ratio_min"] == pytest.approx(1, abs=1e-4)
        assert metrics["ratio_max"] == pytest.approx(1, abs=1e-4)
        assert metrics["kl"] == pytest.approx(0, abs=1e-6)
        entropy.append(metrics["entropy"])
    assert entropy[0] + 0.1 < entropy[1] < entropy[2] - 0.1 < math.log(12)  # hotter is more even, up to the uniform


def test_kl_is_zero_at_the_start_and_near_the_exact_one_later():
    """k3 on samples against the exact KL of the next-token distributions, position by position."""
    learner, recipe = begin("dr_grpo", Config(steps=5, prompts=64, group_size=16, lr=3e-3))
    history = train(learner, recipe)
    assert history[0]["kl"] == pytest.approx(0, abs=1e-6)
    groups, _ = collect(learner.policy, learner.vocabulary, recipe, step=6)
    _, distance = prepare_batch(learner, recipe, groups, step=6)
    ids = torch.cat([groups.prompts, groups.completions], 1)
    mask = torch.cat([groups.prompt_mask, torch.ones_like(groups.completions)], 1)
    position = (mask.cumsum(-1) - 1).clamp(min=0)
    with torch.no_grad():
        now, then = (
            torch.log_softmax(m(ids, attention_mask=mask, position_ids=position).logits, -1)
            for m in (learner.policy, learner.start)
        )
    exact = (now.exp() * (now - then)).sum(-1)[:, groups.prompts.shape[1] - 1 : -1]
    exact = (exact * groups.mask).sum() / groups.mask.sum()
    assert exact > 0.05
    assert distance["kl"] == pytest.approx(exact.item(), rel=0.15)


def test_dead_groups_and_accuracy_under_another_reward():
    learner, recipe = begin("grpo", reward=lambda completions, **columns: [1.0] * len(completions))
    metrics = train_step(learner, recipe)
    assert metrics["dead_groups"] == 1
    assert metrics["reward"] == 1
    assert metrics["accuracy"] < 1  # the verifier's word, whatever is trained for


def test_explained_variance():
    mask = torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0]])
    returns = torch.tensor([[0.0, 2.0, 9.0], [4.0, 6.0, 9.0]])
    assert explained_variance(returns, returns, mask) == 1
    assert explained_variance(torch.full_like(returns, 3.0), returns, mask) == 0
    assert explained_variance(-returns, returns, mask) == pytest.approx(-3)
    assert explained_variance(returns, torch.ones_like(returns), mask) == 0


@pytest.mark.parametrize(("successes", "n"), [(0, 10), (3, 10), (10, 10), (967, 1000)])
def test_wilson_ends_are_where_the_observed_share_is_exactly_z_standard_errors_away(successes, n):
    share = successes / n
    for end in wilson(successes, n):
        if 0 < end < 1:
            assert abs(share - end) == pytest.approx(1.96 * math.sqrt(end * (1 - end) / n))
    low, high = wilson(successes, n)
    assert 0 <= low <= share <= high <= 1


# --- bad input -----------------------------------------------------------------------------------------------------


def test_a_gradient_that_is_not_finite_stops_the_run():
    learner, recipe = begin("grpo", dataclasses.replace(SMALL, steps=20, lr=1e30))
    with pytest.raises(ValueError, match=r"finite|not a number|overflow"):
        train(learner, recipe)


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": 0},
        {"prompts": 0},
        {"lr": 0.0},
        {"lr": float("nan")},
        {"temperature": 0.0},
        {"ema_decay": 1.0},
        {"max_new_tokens": 0},
        {"max_refills": -1},
        {"minibatches": 600},
        {"value_clip": 0.0},
    ],
)
def test_config_names_the_number_that_is_wrong(wrong):
    (name,) = wrong
    with pytest.raises(ValueError, match=name.replace("es", "e")):
        Config(**wrong)


def test_a_partial_with_other_bounds_is_a_row_like_any_other():
    from rlhf_minimal.functional import gates

    algorithm = dataclasses.replace(ALGORITHMS["grpo"], gate=partial(gates.clip, low=0.1, high=0.3), kl=())
    learner, recipe = begin(algorithm)
    assert len(train(learner, recipe)) == 3


# --- what a careful reader of the loop found ------------------------------------------------------------------------


def test_a_filter_may_leave_fewer_rows_than_there_are_minibatches():
    """One group of four is kept: eight minibatches of it are four, each of one row."""
    config = dataclasses.replace(SMALL, prompts=2, minibatches=8, max_refills=0)

    def one_group(rewards, *, group_size):
        return torch.arange(len(rewards)) < group_size

    row = dataclasses.replace(ALGORITHMS["dr_grpo"], keep=one_group)
    learner, recipe = begin(row, config, reward=random_reward(0))
    before = weights(learner.policy)
    metrics = train_step(learner, recipe)
    assert metrics["groups"] == 1
    assert not torch.equal(before, weights(learner.policy))


def test_a_reward_that_fails_in_an_evaluation_costs_no_report():
    def broken(completions, **_):
        raise RuntimeError("the model behind it is gone")

    learner, recipe = begin("grpo", reward=broken)
    with pytest.warns(VerifierWarning):
        found = roll_out(learner.policy, learner.vocabulary, EVEN.problems("held_out", 4, seed=0), recipe)
    assert found.failed.all()
    with pytest.raises(ValueError, match="fails on all 16 completions of the first step"):
        train_step(learner, recipe)


def test_another_reward_than_the_tasks_has_no_parts():
    """A coin is a control also for a row that reads parts: it may not see those of the task."""
    parted = dataclasses.replace(EVEN, parts=lambda completion, problem: [1.0, 2.0])
    for reward, columns in ((None, 2), (random_reward(0), 1)):
        learner, recipe = begin("gdpo", task=parted, reward=reward)
        groups, _ = collect(learner.policy, learner.vocabulary, recipe, 1)
        batch, _ = prepare_batch(learner, recipe, groups, 1)
        assert batch.reward_parts.shape[1] == columns


@pytest.mark.parametrize("kind", ["raises", "hangs", "is no number", "is infinite", "is no list"])
def test_parts_that_fail_cost_their_completion_and_no_more(kind):
    """The task's code for parts has the limits of a verifier."""
    answers = {"is no number": ["x", 1.0], "is infinite": [math.inf, 1.0], "is no list": 3}

    def parts(completion, problem):
        if completion != "bad":
            return [1.0, 2.0]
        if kind == "raises":
            raise RuntimeError("no")
        if kind == "hangs":
            time.sleep(60)
        return answers[kind]

    task = dataclasses.replace(EVEN, parts=parts)
    learner, recipe = begin("gdpo", dataclasses.replace(SMALL, verifier_timeout=0.05), task=task)
    groups, _ = collect(learner.policy, learner.vocabulary, recipe, step=1)
    groups = dataclasses.replace(groups, texts=["bad", *groups.texts[1:]])
    began = time.monotonic()
    with pytest.warns(UserWarning, match="its completion gets 0"):
        batch, _ = prepare_batch(learner, recipe, groups, step=1)
    assert time.monotonic() - began < 20
    assert batch.reward_parts.tolist() == [[0.0, 0.0], *[[1.0, 2.0]] * (len(groups.texts) - 1)]
    groups = dataclasses.replace(groups, texts=["bad"] * len(groups.texts))
    for step, says in ((1, "fails on all"), (2, "its parts are no numbers")):
        with pytest.raises(ValueError, match=says), warnings.catch_warnings(action="ignore"):
            prepare_batch(learner, recipe, groups, step=step)
