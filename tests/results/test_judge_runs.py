"""The recorded runs of the chapter on judges: whole, still what the code begins to do, and what the text says."""

import random

import pytest
import torch

from rlhf_minimal.contrib.advantages import gdpo
from rlhf_minimal.functional.advantages import group_normalized
from rlhf_minimal.tasks.reviews import gold_score
from rlhf_minimal.train import train
from tests.results.scripts import load, separated

script, RECORD = load("judge_runs")
RUNS = {(run["arm"], run["seed"]): run for run in RECORD["runs"]}
GROUP = ("tea yum yum wow wow", "tea yum yum yum yum", "yum yum yum yum yum", "hot tea big odd wow")
MARKS = script.marks(["mia tea?"] * 4, GROUP)


def ends(arm, name="gold"):
    return torch.tensor([RUNS[arm, seed]["held_out"][name] for seed in script.SEEDS])


def test_every_arm_has_every_seed_and_every_step():
    assert list(RUNS) == [(arm, seed) for arm in script.ARMS for seed in script.SEEDS]
    assert all(len(run[name]) == script.STEPS == RECORD["steps"] for run in RUNS.values() for name in script.KEPT)
    assert {"torch", "transformers", "rlhf_minimal", "python"} <= set(RECORD["versions"])


@pytest.mark.parametrize("arm", script.ARMS)
def test_the_first_steps_come_out_as_recorded(arm):
    """Another machine may round differently and draw a few other tokens."""
    learner, recipe = script.begin(arm, 0, steps=2)
    seen = []
    train(learner, recipe, on_rollout=lambda step, out: seen.append(script.watch(out)))
    for step in range(2):
        assert seen[step]["gold"] == pytest.approx(RUNS[arm, 0]["gold"][step], abs=0.4)
        assert seen[step]["judge"] == pytest.approx(RUNS[arm, 0]["judge"][step], abs=0.2)


def test_all_arms_begin_alike():
    for seed in script.SEEDS:
        assert len({RUNS[arm, seed]["judge"][0] for arm in script.ARMS}) == 1


def test_marks_are_what_the_rubric_says():
    assert MARKS[:, :2].tolist() == [[1, 1], [1, 0], [0, 0], [1, 1]]
    assert MARKS[:, 3].tolist() == [2, 4, 5, 0]
    assert ((MARKS[:, 2] > 0) & (MARKS[:, 2] < 1)).all()
    assert script.marks(["mia tea?"], ["yum yum yum yum yum yum"])[0, 3] == 5  # the judge reads five words


def test_arms_pay_what_their_names_say():
    m = MARKS.repeat(2, 1)  # one group of eight
    draws = random.Random(0)
    assert torch.equal(script.paid("sum", m, draws), m.sum(1))
    assert script.paid("veto", m, draws)[[1, 2]].tolist() == [0, 0]
    assert script.paid("scale", m, draws)[0].item() == pytest.approx(m[0, :3].sum().item() + 0.4)
    ranks = script.paid("ranks", m, draws)
    assert ranks[2] > ranks[1] > ranks[0] > ranks[3]
    assert ranks.mean().item() == pytest.approx(0.5)
    for arm, counts in (("half", {1, 2, 3, 4}), ("one", {1})):
        found = {int(sum(script.kept(arm, draws))) for _ in range(200)}
        assert found == counts


def test_one_criterion_is_gdpo_in_the_mean():
    mask = torch.ones(8, 1, dtype=torch.float64)
    m = MARKS.repeat(2, 1)
    each = [group_normalized(m[:, k : k + 1], mask, group_size=8) for k in range(4)]
    whole = gdpo(torch.zeros_like(mask), mask, group_size=8, reward_parts=m, eps=1e-4)
    assert torch.allclose(torch.stack(each).mean(0), whole / 4)


def test_the_judges_score_rises_and_gold_falls_below_the_start():
    assert ends("sum").max() < -7
    assert ends("sum", "judge").min() > 5.8
    assert separated(ends("sum"), ends("coin"))
    for seed in script.SEEDS:
        gold = RUNS["sum", seed]["gold"]
        assert max(gold[:20]) > gold[0] + 2


def test_a_scale_and_a_veto_keep_gold_high_and_dropping_half_does_not():
    assert min(ends("scale").min(), ends("veto").min()) > 7.5
    for arm in ("scale", "veto"):
        assert separated(ends("half"), ends(arm))
    assert ends("half").max() < 0


def test_ranks_end_where_the_sum_ends():
    assert ends("ranks").max() < -7


@pytest.mark.parametrize("arm", ["sum", "veto"])
def test_kept_texts_are_of_held_out_prompts(arm):
    problems = script.TASK.problems("held_out", 6, seed="judges")
    texts = RUNS[arm, 0]["texts"]
    mean = sum(map(gold_score, texts, problems)) / 6
    assert abs(mean - RUNS[arm, 0]["held_out"]["gold"]) < 2
