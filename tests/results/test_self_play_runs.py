"""The recorded runs on self-play: whole, still what the code of today begins to do, and as the chapter tells them."""

import math
import random

import pytest
import torch

from rlhf_minimal.fit import FitConfig
from rlhf_minimal.train import roll_out
from tests.results.scripts import load, separated

script, RECORD = load("self_play_runs")
RUNS = {(run["arm"], run["seed"]): run for run in RECORD["runs"]}


def ends(arm, name="right"):
    """[5]: the mean of the last ten steps."""
    return torch.tensor([sum(RUNS[arm, seed][name][-10:]) / 10 for seed in script.SEEDS])


def test_every_arm_has_every_seed_and_every_step():
    assert list(RUNS) == [(arm, seed) for arm in script.ARMS for seed in script.SEEDS]
    for (arm, _), run in RUNS.items():
        assert 0 <= run["sampled"] <= 1
        if script.METHOD[arm] is script.train:
            if arm in script.SHOWN_TO_START:
                reads = torch.tensor(run["start_reads"])  # [10, kinds, (completions, yes)]
                assert reads[..., 0].sum(1).eq(script.EVERY * script.PROMPTS * script.GROUP).all()
                assert (reads[..., 1] <= reads[..., 0]).all()
            assert all(len(run[name]) == script.STEPS for name in script.SEEN if name != "exam")
            assert len(run["exam"]) == script.STEPS // script.EVERY
            assert all(x is None or math.isfinite(x) for name in script.SEEN for x in run[name])
        else:
            assert len(run["right"]) == len(run["held_out"]) == RECORD["rounds"] == script.ROUNDS
    assert {"torch", "transformers", "rlhf_minimal", "python"} <= set(RECORD["versions"])


@pytest.mark.parametrize("arm", ["dose-0", "dose-20", "taught-5"])
def test_the_first_steps_come_out_as_recorded(arm):
    """Another machine may round differently and draw a few other tokens."""
    _, seen = script.train(arm, 0, steps=2)
    recorded = RUNS[arm, 0]
    for name in ("reward", "right"):
        assert seen[name] == pytest.approx(recorded[name][:2], abs=0.05)
    assert seen["exam"][0] == pytest.approx(recorded["exam"][0], abs=0.02)


@pytest.mark.parametrize("arm", ["rft", "rft-clipped", "clipped", "spin-right"])
def test_the_first_samples_of_a_round_come_out_as_recorded(arm):
    _, seen = script.METHOD[arm](arm, 0, rounds=1, passes=1)
    assert seen["right"][0] == pytest.approx(RUNS[arm, 0]["right"][0], abs=0.03)


def test_the_shipped_start_judges_and_a_new_one_begins_to():
    """The start that is shipped was made by `judge_start`; some of its lessons already move the answers."""
    exam, key = script.examination()
    model, vocabulary = script.begin()

    def share(judge):
        said = script.judgements(judge, vocabulary, [q for q, _ in exam], [t for _, t in exam])
        return ((said > 0.5) == key).float().mean().item()

    assert share(model) > 0.85
    raw = share(script.shipped()[0])
    begun, _ = script.judge_start(FitConfig(steps=12, batch_size=128, lr=2e-3, warm_up=5), n=300)
    assert raw < 0.65
    assert share(begun) != raw


def test_rewards_are_what_their_names_say():
    model, vocabulary = script.begin()
    problems = script.TASK.problems("train", 4, seed="test")
    out = roll_out(model, vocabulary, problems, script.RECIPE, group_size=script.GROUP, seed="test")
    verified = torch.tensor([True, False, False, True]).repeat_interleave(script.GROUP)
    yes = torch.arange(32).remainder(2).float()
    paid = script.rewards_of("dose-50", out, yes, verified, random.Random(0))
    assert torch.equal(paid[verified], (out.correct == 1).float()[verified])
    assert torch.equal(paid[~verified], yes[~verified])
    votes = script.paid_by_majority(["a", "b", "b", "c", "b", "a", "d", "e", *"xxxxxxxx"])
    assert votes == [0, 1, 1, 0, 1, 0, 0, 0] + [1] * 8


def over(arm, first, last):
    """[5]: the mean share right from one step to another, the first step being 1."""
    return torch.tensor([sum(RUNS[arm, seed]["right"][first - 1 : last]) / (last - first + 1) for seed in script.SEEDS])


def test_under_a_judge_frozen_or_not_nearly_all_is_lost_and_a_coin_does_no_better_at_this_rate():
    assert ends("dose-0", "reward").min() > 0.97
    assert ends("frozen", "reward").min() > 0.65
    assert max(ends(arm).max() for arm in ("dose-0", "frozen", "coin")) < 0.1
    assert ends("dose-100").min() > 0.85
    for arm in ("dose-0", "frozen"):
        assert separated(over("coin", 1, 10), over(arm, 1, 10))
        assert not separated(ends(arm), ends("coin"))
        assert not separated(ends("coin"), ends(arm))


def test_at_a_quarter_of_the_rate_a_judge_helps_first_and_ends_below_the_start_but_not_surely_below_a_coin():
    for arm in ("slow-dose-0", "slow-frozen"):
        assert separated(over("slow-coin", 21, 30), over(arm, 21, 30))
        assert separated(ends(arm), over(arm, 1, 1))
        assert (ends(arm) < 0.6 * over(arm, 21, 30)).all()
        assert not separated(ends(arm), ends("slow-coin"))
    assert not separated(ends("slow-coin"), over("slow-coin", 1, 1))
    assert not separated(over("slow-dose-0", 21, 30), over("slow-frozen", 21, 30))
    assert (ends("slow-dose-0", "reward") > 0.95).all()
    assert ends("slow-dose-100").min() > 0.6


def test_a_frozen_judge_accepts_more_of_what_it_pays_than_wear_alone_brings_and_wear_brings_some():
    def last(arm):
        return [RUNS[arm, seed]["start_reads"][-1] for seed in script.SEEDS]

    def accepted(arm, kinds=slice(1, None)):
        return torch.tensor([sum(yes for _, yes in of[kinds]) / sum(n for n, _ in of[kinds]) for of in last(arm)])

    assert separated(accepted("slow-coin"), accepted("coin"))
    assert separated(accepted("coin"), accepted("slow-frozen"))
    for one in (2, 3):  # within a kind as well
        kind = slice(one, one + 1)
        assert separated(accepted("coin", kind), accepted("slow-frozen", kind))
    whole = script.EVERY * script.PROMPTS * script.GROUP
    dropped = {arm: [of[1][0] / whole for of in last(arm)] for arm in script.SHOWN_TO_START}
    assert max(dropped["coin"] + dropped["slow-frozen"]) < 0.1 < 0.3 < min(dropped["slow-coin"])


def test_kinds_of_completions():
    kinds = [script.kind("175+050=", "5220", text) for text in ("5220", "5210", "5320", "0000", "52")]
    assert kinds == list(script.KINDS[:1]) + [script.KINDS[1]] + list(script.KINDS[2:])


def test_a_judge_taught_on_few_labels_says_no():
    assert ends("taught-5", "reward").max() < 0.05


def test_more_dose_more_right():
    ladder = [ends(f"dose-{dose}") for dose in (0, 5, 20, 50, 100)]
    assert not separated(ladder[0], ladder[1])
    assert all(separated(low, high) for low, high in zip(ladder[1:], ladder[2:], strict=False))


def test_right_completions_teach_more_than_a_clip_lets_through():
    for seed in script.SEEDS:
        rft, clipped = RUNS["rft", seed], RUNS["clipped", seed]
        assert rft["right"][0] == clipped["right"][0]  # the same first samples
        both = RUNS["rft-clipped", seed]["held_out"]
        assert all(a > b > c for a, b, c in zip(rft["held_out"], both, clipped["held_out"], strict=True))


def test_spin_takes_what_it_is_shown():
    last = {arm: [RUNS[arm, seed]["held_out"][-1] for seed in script.SEEDS] for arm in script.SHOWN}
    assert min(last["spin-right"]) > max(last["spin-teacher"])
