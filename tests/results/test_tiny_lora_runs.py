"""The recorded runs of TinyLoRA, a reward against imitation: whole, alike but for one thing, and still what begins."""

import pytest
import torch
from torch import nn

from rlhf_minimal.evaluate import evaluate
from rlhf_minimal.train import collect
from tests.results.scripts import load, separated

script, RECORD = load("tiny_lora_runs")
RUNS = {(run["arm"], run["seed"]): run for run in RECORD["runs"]}
SEARCHED = [arm for arm in script.ARMS if arm != script.CONTROL]


def ends(arm, how="sampled"):
    return torch.tensor([RUNS[arm, seed][how] for seed in script.SEEDS])


def test_every_arm_has_every_seed_and_every_step():
    seeds = [*script.SEEDS, script.CHOICE]
    of = {arm: seeds if arm in SEARCHED else seeds[:-1] for arm in script.ARMS}
    assert list(RUNS) == [(arm, seed) for arm in script.ARMS for seed in of[arm]]
    for (arm, seed), run in RUNS.items():
        if seed == script.CHOICE:
            lrs = script.FULL_LRS if arm.endswith("full") else script.LRS
            assert {f"{lr:g}" for lr in lrs} <= set(run["search"])
            assert list(run["search"]) == sorted(run["search"], key=float)
        else:
            series = "right" if arm.startswith(("reward", "coin")) else "loss"
            assert len(run[series]) == script.STEPS == RECORD["steps"]
    assert RECORD["completions_a_step"] == script.PROMPTS * script.GROUP_SIZE
    assert RECORD["ranks"] == {str(numbers): rank for numbers, rank in script.RANKS.items()}


@pytest.mark.parametrize("arm", script.ARMS)
def test_an_arm_has_the_learning_rate_that_its_search_found_best(arm):
    searched = RUNS[arm.replace("coin", "reward"), script.CHOICE]["search"]
    assert {RUNS[arm, seed]["lr"] for seed in script.SEEDS} == {script.best(searched)}
    assert searched[f"{script.best(searched):g}"] == max(searched.values())
    assert script.best(searched) not in (float(next(iter(searched))), float(list(searched)[-1]))  # neither end


def test_arms_differ_in_what_they_learn_from_and_in_how_many_numbers_are_trained():
    begun = {arm: script.begin(arm, 0, 0.1) for arm in script.ARMS}
    configs = {recipe.config for _, recipe in begun.values()}
    assert len(configs) == 1
    assert all(recipe.algorithm == script.ALGORITHMS["dr_grpo"] for _, recipe in begun.values())
    assert [arm for arm, (_, recipe) in begun.items() if recipe.reward is not None] == [script.CONTROL]
    for arm, (learner, _) in begun.items():
        size, trained = arm.partition("-")[2], [w for w in learner.policy.parameters() if w.requires_grad]
        count = sum(w.numel() for w in trained)
        assert count == (83_072 if size == "full" else int(size))
        assert {RUNS[arm, seed]["trained"] for seed in script.SEEDS} == {count}
        assert [id(w) for w in learner.optimizer.param_groups[0]["params"]] == [id(w) for w in trained]


def test_all_begin_as_the_start():
    for arm in ("reward-full", *(f"reward-{numbers}" for numbers in script.RANKS)):
        learner, recipe = script.begin(arm, 0, 0.1)
        found = evaluate(learner.policy, learner.vocabulary, recipe)
        assert {"sampled": found.sampled.share, "greedy": found.greedy.share} == pytest.approx(
            RECORD["start"], abs=0.01
        )


def test_the_correction_is_the_paper_s_formula():
    generator = torch.Generator().manual_seed(1)
    weight, v = torch.randn(7, 5, generator=generator), nn.Parameter(torch.zeros(3))
    module = script.TinyLoRA(weight, v, rank=2, draws=generator)
    assert torch.equal(module(weight), weight)
    v.data = torch.tensor([0.5, -1.0, 2.0])
    U, S, Vh = torch.linalg.svd(weight, full_matrices=False)
    signs = [1.0 if U[U[:, k].abs().argmax(), k] > 0 else -1.0 for k in range(2)]
    by_hand = weight.clone()
    for out in range(7):
        for into in range(5):
            for a in range(2):
                for b in range(2):
                    between = sum(float(v[i].detach()) * module.projections[i, a, b] for i in range(3))
                    by_hand[out, into] += signs[a] * U[out, a] * S[a] * between * signs[b] * Vh[b, into]
    torch.testing.assert_close(module(weight), by_hand)
    assert torch.linalg.matrix_rank(module(weight) - weight) == 2


@pytest.mark.parametrize(("numbers", "rank"), script.RANKS.items())
def test_one_vector_serves_all_matrices_and_every_number_has_an_effect_of_its_own(numbers, rank):
    """The rank is the smallest with room for them, at least that of the paper."""
    learner, _ = script.begin(f"reward-{numbers}", 0, 0.1)
    modules = [m for m in learner.policy.modules() if isinstance(m, script.TinyLoRA)]
    assert len(modules) == 14
    assert len({id(m.v) for m in modules}) == 1
    effects = torch.cat([m.projections.flatten(1) for m in modules], dim=1)  # [u, 14 r^2]
    assert torch.linalg.matrix_rank(effects) == numbers
    assert rank == max(2, next(r for r in range(1, 20) if 14 * r * r >= numbers))


def test_who_imitates_sees_the_questions_of_the_reward_or_sixteen_times_as_many():
    learner, recipe = script.begin("reward-13", 3, 0.1)
    groups, _ = collect(learner.policy, learner.vocabulary, recipe, 2)
    rows = {way: script.demonstrations(way, recipe, 2) for way in ("answers", "more", "noisy")}
    assert [row.prompt for row in rows["answers"]] == [p.prompt for p in groups.problems[:: script.GROUP_SIZE]]
    assert [row.completion for row in rows["answers"]] == [p.answer for p in groups.problems[:: script.GROUP_SIZE]]
    assert len(groups.problems) == len(rows["more"]) == len(rows["noisy"]) == script.PROMPTS * script.GROUP_SIZE
    for plain, noisy in zip(rows["more"], rows["noisy"], strict=True):
        assert plain.prompt == noisy.prompt
        assert noisy.completion[:4] == plain.completion
        assert len(noisy.completion) == 7
    assert len({row.completion[4:] for row in rows["noisy"]}) > 200


def test_what_comes_after_the_answer_is_not_read():
    problem = script.get_task("addition").problems("train", 1, seed="0")[0]
    for tail, right in (("", 1.0), ("7", 1.0), ("123", 1.0)):
        assert script.begins(problem.answer + tail, problem) == right
    assert script.begins(problem.answer[:3], problem) == 0.0
    assert script.begins("x" + problem.answer, problem) == 0.0


@pytest.mark.parametrize("arm", script.ARMS)
def test_the_first_steps_come_out_as_recorded(arm):
    """Another machine may round differently and draw a few other tokens: the tolerance is six completions of 256."""
    learner, recipe = script.begin(arm, 0, RUNS[arm, 0]["lr"], steps=2)
    for name, found in script.train(arm, learner, recipe).items():
        assert found == pytest.approx(RUNS[arm, 0][name][:2], abs=0.025)


def test_the_seeds_are_paired():
    """Arms that learn from a reward meet the same first rollout; those that imitate the same first loss."""
    for seed in script.SEEDS:
        assert len({RUNS[arm, seed]["right"][0] for arm in SEARCHED if arm.startswith("reward")}) == 1
        for way in ("answers", "more", "noisy"):
            first = {round(RUNS[f"{way}-{size}", seed]["loss"][0], 3) for size in script.SIZES}
            assert max(first) - min(first) < 0.002


def test_what_the_chapter_says_of_the_record():
    """Plain answers are never worse than a reward; noise behind them costs much until all weights are trained."""
    for how in ("sampled", "greedy"):
        for size in script.SIZES:
            reward = ends(f"reward-{size}", how)
            assert ends(f"answers-{size}", how).mean() > reward.mean()
            assert ends(f"more-{size}", how).mean() > reward.mean()
            if size != "full":
                assert ends(f"noisy-{size}", how).max() < reward.min()
        assert ends("noisy-full", how).mean() > ends("reward-full", how).mean()
        assert separated(ends("noisy-128", how), ends("reward-128", how))
        assert separated(ends("noisy-1024", how), ends("reward-1024", how))
        assert ends(script.CONTROL, how).max() < RECORD["start"][how]
        means = [ends(f"reward-{size}", how).mean() for size in script.SIZES]
        assert means == sorted(means)
    assert not separated(ends("answers-1024"), ends("reward-1024"))
