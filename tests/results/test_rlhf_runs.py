"""The recorded runs of the chapter on PPO for RLHF: whole, what its text says of them, and what code begins to do."""

import statistics

import pytest

from tests.results.scripts import load

script, RECORD = load("rlhf_runs")
RUNS = {(run["arm"], run["seed"]): run for run in RECORD["runs"]}


def of(arm, name):
    return [RUNS[arm, seed][name] for seed in script.SEEDS]


def test_every_arm_has_every_seed_and_every_step():
    assert sorted(RUNS) == sorted((arm, seed) for arm in script.ARMS for seed in script.SEEDS)
    for (arm, _), run in RUNS.items():
        steps = {"price": None}.get(arm, script.STEPS if arm in script.ROWS else script.WITHOUT_STEPS)
        if steps is None:
            assert set(run["step_seconds"]) == set(script.ROWS)
            continue
        assert all(len(run[f"{name}_of_step"]) == steps for name in (*script.KEPT, "seconds"))
        assert run["kl"] == pytest.approx(statistics.mean(run["kl_sequence_of_step"][-script.LAST :]), abs=1e-3)
    assert {"torch", "transformers", "rlhf_minimal", "python"} <= set(RECORD["versions"])


def test_arms_of_the_first_group_differ_in_the_advantage_alone():
    ppo = script.ROWS["ppo"]
    for arm, row in script.ROWS.items():
        assert (row.ratio, row.gate, row.aggregate, row.kl) == (ppo.ratio, ppo.gate, ppo.aggregate, ppo.kl)
        assert ("values" in row.needs) == arm.startswith("ppo")
    model = script.first_reward_model()
    for arm in script.ROWS:
        _, recipe = script.begin(arm, 0, model, steps=1)
        assert recipe.config.prompts * recipe.config.group_size == script.PROMPTS * script.GROUP


def test_without_a_penalty_the_first_reward_model_is_pleased_and_ranks_what_it_likes_the_wrong_way_round():
    assert max(of("first", "gold")) < 0 < min(of("first", "proxy"))
    assert max(of("first", "mixed_accuracy")) < 0.1 < 0.85 < min(of("first", "usual_accuracy"))


def test_more_of_the_usual_comparisons_do_not_show_the_flaw():
    assert max(of("more", "mixed_accuracy")) < 0.1


def test_comparisons_of_what_the_policy_wrote_show_the_flaw():
    assert min(of("again", "mixed_accuracy")) > 0.95
    assert max(of("again", "usual_accuracy")) < min(of("first", "usual_accuracy"))
    assert min(of("again", "loss_before")) > max(of("more", "loss_before"))


def test_a_step_with_a_critic_costs_more():
    for run in of("price", "step_seconds"):
        assert min(run["ppo"], run["ppo-wide"]) > 1.3 * max(run["grpo"], run["rloo"], run["no-critic"])


@pytest.mark.parametrize("arm", ["ppo", "rloo", "first"])
def test_the_first_steps_come_out_as_recorded(arm):
    """Another machine may round differently and draw a few other tokens of the 2500 of a step."""
    _, _, seen = script.learn(arm, 0, script.first_reward_model(), steps=2)
    recorded = RUNS[arm, 0]
    for step in range(2):
        assert seen["gold_of_step"][step] == pytest.approx(recorded["gold_of_step"][step], abs=0.25)
        assert seen["reward_of_step"][step] == pytest.approx(recorded["reward_of_step"][step], abs=0.1)
        assert seen["entropy_of_step"][step] == pytest.approx(recorded["entropy_of_step"][step], abs=0.02)


def test_the_reward_model_begins_to_be_trained_on_as_recorded():
    _, losses = script.trained_on(0, [], steps=2)
    assert losses[0] == pytest.approx(RUNS["more", 0]["loss_before"], abs=0.01)


def test_mixed_pairs_hold_one_completion_of_each_policy_and_labels_with_noise():
    policy, vocabulary = script.start()
    rows = script.mixed_pairs(policy, policy, vocabulary, 200, "test")
    assert 100 < len(rows) <= 200
    assert all(row.chosen != row.rejected for row in rows)
    agreed = statistics.mean(row.score_chosen >= row.score_rejected for row in rows)
    assert 0.7 < agreed < 1
