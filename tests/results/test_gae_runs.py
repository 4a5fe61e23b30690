"""The recorded runs behind the chapter on GAE: whole, still what the code begins to do, and saying what is quoted."""

import pytest
import torch

from rlhf_minimal.metrics import explained_variance
from rlhf_minimal.train import train
from tests.results.scripts import load

script, RECORD = load("gae_runs")
RUNS = {(run["arm"], run["seed"]): run for run in RECORD["runs"]}


def of(arm, key):
    return [RUNS[arm, seed][key] for seed in script.SEEDS]


def test_every_arm_has_every_seed_and_every_step():
    assert list(RUNS) == [(arm, seed) for arm in script.ARMS for seed in script.SEEDS]
    for (arm, _), run in RUNS.items():
        kept = [name for name in script.KEPT if arm != "no-critic" or name != "explained_variance"]
        assert all(len(run[name]) == script.STEPS for name in kept)
        looks = [] if arm == "no-critic" else list(map(str, script.LOOKS))
        assert list(run["outcome_variance"]) == list(run["within_prompt"]) == looks
    assert (RECORD["steps"], RECORD["samples_per_step"]) == (script.STEPS, script.PROMPTS * script.GROUP_SIZE)
    assert {"torch", "transformers", "rlhf_minimal", "python"} <= set(RECORD["versions"])


def test_an_arm_changes_what_its_name_says():
    for arm, (algorithm, lessons) in script.ARMS.items():
        kind, _, lam = arm.partition("-")
        if kind != "no":
            assert algorithm.advantage.keywords == {"gamma": 1.0, "lam": float(lam)}
        assert lessons == (script.LESSONS if kind == "taught" else 0)
        assert ("values" in algorithm.needs) == (kind != "no")


# What a taught arm does is taught-0.95 with fewer lessons: the hundred would take longer than a test may.
@pytest.mark.parametrize("arm", ["lambda-0.95", "lambda-0", "lambda-0.5", "lambda-1", "no-critic"])
def test_the_first_steps_come_out_as_recorded(arm):
    """Another machine may round differently and draw a few other tokens: the tolerance is ten completions of 256."""
    learner, recipe = script.begin(arm, 0, steps=2)
    history = train(learner, recipe, update=script.by_own_targets)
    for step in range(2):
        assert history[step]["reward"] == pytest.approx(RUNS[arm, 0]["reward"][step], abs=0.04)
        assert history[step]["kl"] == pytest.approx(RUNS[arm, 0]["kl"][step], abs=0.01)
        assert history[step]["entropy"] == pytest.approx(RUNS[arm, 0]["entropy"][step], abs=0.02)
        if arm != "no-critic":
            recorded = RUNS[arm, 0]["explained_variance"][step]
            assert history[step]["explained_variance"] == pytest.approx(recorded, abs=0.1)


def test_lessons_teach_the_critic_and_leave_the_policy_alone():
    learner, recipe = script.begin("taught-0.95", 0)
    policy = {name: x.clone() for name, x in learner.policy.state_dict().items()}
    before = {name: x.clone() for name, x in learner.critic.state_dict().items()}
    script.teach(learner, recipe, 2)
    assert all(torch.equal(x, policy[name]) for name, x in learner.policy.state_dict().items())
    assert any(not torch.equal(x, before[name]) for name, x in learner.critic.state_dict().items())
    assert learner.step == 0


def test_within_takes_out_the_prompt_and_nothing_else():
    generator = torch.Generator().manual_seed(0)
    rows, width = 2 * script.GROUP_SIZE, 3
    mask = (torch.rand(rows, width, generator=generator) < 0.8).float()
    returns = torch.randn(rows, width, generator=generator)
    knows_the_prompt = torch.tensor([0.2, 0.9]).repeat_interleave(script.GROUP_SIZE)[:, None].expand(rows, width)
    left = script.within(returns + knows_the_prompt, mask)
    torch.testing.assert_close(left, script.within(returns, mask))
    assert script.within(knows_the_prompt, mask).abs().max() < 1e-6
    assert explained_variance(script.within(returns, mask), script.within(returns, mask), mask) == pytest.approx(1.0)


def test_lambda_zero_fails_with_and_without_a_taught_critic():
    for arm in ("lambda-0", "taught-0"):
        assert max(of(arm, "sampled")) < 0.5
    for arm in ("lambda-0.5", "lambda-0.95", "lambda-1", "taught-0.95", "no-critic"):
        assert min(of(arm, "sampled")) > 0.65


def test_what_a_taught_critic_explains_is_mostly_the_prompt():
    for seen, inside in zip(of("taught-0", "outcome_variance"), of("taught-0", "within_prompt"), strict=True):
        assert seen["0"] > 0.4
        assert inside["0"] < 0.3 * seen["0"]
    assert all(seen["5"] < 0 for seen in of("taught-0.95", "outcome_variance"))
