"""The measurements of a real model: the script works on a tiny one, and what is on file is what it would write."""

import dataclasses
import json
import math
import statistics

import pytest
import torch

from rlhf_minimal.config import Config
from rlhf_minimal.evaluate import wilson
from rlhf_minimal.models import load_pretrained
from tests.results.scripts import FOLDER, module

script = module("scaling")
RECORDS = {device: FOLDER / f"scaling-{device}.json" for device in ("cpu", "cuda")}
FOUND = {device: json.loads(file.read_text()) for device, file in RECORDS.items() if file.exists()}
SMALL = Config(steps=2, prompts=4, group_size=2, lr=1e-5, max_new_tokens=4, max_refills=1)


@pytest.fixture
def bench(chat_model, monkeypatch):
    def load(name, **options):
        assert name == script.MODEL
        return load_pretrained(str(chat_model), **options)

    monkeypatch.setattr(script, "load_pretrained", load)
    scale = script.Scale(learn=SMALL, seeds=(0,), timed=SMALL, turns=1, held_out=4, tried=3, compared=2)
    return script.Bench(torch.device("cpu"), scale)


def test_runs_are_added_one_by_one(bench):
    *_, runs = bench.learn([])
    assert [run["arm"] for run in runs] == list(script.ARMS)
    steps = {run["arm"]: (len(run["reward"]), run["stopped"] is None) for run in runs}
    assert steps["grpo"] == steps["rloo"] == (2, True)
    assert steps["dapo"] == (0, False)  # an untrained model's answers are all wrong: the filter keeps none
    assert all(run["after"]["sampled"]["n"] == 4 for run in runs)
    for run in runs:
        assert all(len(counts) == 3 and max(counts) <= script.TRIES for counts in run["tries"].values())
    assert list(bench.learn(runs)) == []  # all are on file


def test_controls_are_the_same_runs_without_the_verifier_or_without_reinforcement(bench):
    *_, runs = bench.controls([])
    assert [(run["arm"], run["seed"]) for run in runs] == [(arm, 0) for arm in script.CONTROLS]
    coin, own = runs
    assert coin["accuracy"] == [0.0, 0.0]  # an untrained model's answers are all wrong
    assert 0 < sum(coin["reward"]) < 2  # and the coin pays all the same
    assert (own["drawn"], own["imitated"], own["loss"]) == (16, 0, [])
    assert coin["before"] == own["before"]
    assert list(bench.controls(runs)) == []  # all are on file


def test_own_right_completions_are_imitated_three_times_each(bench, monkeypatch):
    """Completions that the budget has cut end with their first sentence, if that is right."""
    recipe = bench.recipe(SMALL, "grpo")
    recipe = dataclasses.replace(recipe, task=dataclasses.replace(recipe.task, verify=lambda *_: 1.0))
    learner, seen = bench.learner(recipe), []
    monkeypatch.setattr(script, "imitate", lambda *given: seen.append(given))
    found = bench.imitate_own(learner, recipe)
    ((policy, _, rows, config, _),) = seen
    assert policy is learner.policy
    assert found["drawn"] == found["imitated"] == len(rows) == 16
    assert (config.steps, config.batch_size, config.lr) == (3, 16, SMALL.lr)
    assert all(row.completion.count(".") <= 1 for row in rows if row.completion.endswith("."))
    assert found["accuracy"] == [1.0, 1.0]
    nearly = dataclasses.replace(recipe, task=dataclasses.replace(recipe.task, verify=lambda *_: 0.9))
    found = bench.imitate_own(learner, nearly)
    assert (found["drawn"], found["imitated"], found["accuracy"]) == (16, 0, [0.0, 0.0])


def test_a_start_is_asked_at_several_temperatures(bench):
    found = bench.temperature()
    assert list(found) == [str(value) for value in script.TEMPERATURES]
    assert all(len(counts) == 3 for counts in found.values())


def test_start_and_trained_model_are_asked_the_same_at_the_same_temperatures(bench):
    *_, found = bench.sharper({})
    assert found["start"].keys() == found["trained"].keys() == {str(value) for value in script.SHARPER}
    assert all(len(counts) == 2 for who in ("start", "trained") for counts in found[who].values())
    assert len(set(found["prompts"])) == 2
    assert len(found["reward"]) == SMALL.steps
    begun = {"start": {"1.0": [script.TRIES, 0]}}
    assert next(iter(bench.sharper(begun)))["start"]["1.0"] == [script.TRIES, 0]  # what is on file stays


def test_what_is_timed_adds_up(bench, monkeypatch):
    monkeypatch.setattr(bench, "peak_flops", lambda: 1e9)
    monkeypatch.setattr(script, "sample_compiled", script.sample)  # compiling takes a minute
    found = bench.speed()
    assert found["tokens_written"] == 4 * 2 * 4
    assert set(found["sampling"]) == {"ours", "compiled", "generate"}
    for way in found["sampling"].values():
        assert way["tokens_per_second"] == pytest.approx(32 / way["seconds"][0], rel=0.05)
    assert found["update"]["plain"]["tokens_read"] > found["update"]["ours"]["tokens_read"]  # prompts once, not twice


def test_trl_takes_its_turns(bench, monkeypatch):
    pytest.importorskip("trl")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    found = bench.trl()
    assert len(found["seconds"]["ours"]) == len(found["seconds"]["trl"]) == bench.scale.turns
    assert len(found["lengths"]["trl"]) == bench.scale.turns


def test_both_precisions_are_compared(bench):
    found = bench.precision()
    assert set(found) == {"float32, dynamic", "bfloat16, dynamic"}
    assert found["float32, dynamic"]["log_ratio_most"] < 1e-4
    assert found["bfloat16, dynamic"]["log_ratio_most"] < 0.1


@pytest.mark.parametrize("name", script.WAYS_TO_SAVE)
def test_every_way_to_save_memory_is_a_run_that_works(bench, name):
    found = bench.one_step(script.WAYS_TO_SAVE[name])
    assert 0 < found["empty"] <= found["peak"]
    assert found["ledger"] > 0
    if "lora_rank" in script.WAYS_TO_SAVE[name]:
        assert found["trained_parameters"] < bench.one_step({})["trained_parameters"]


@pytest.mark.parametrize("device", FOUND)
def test_the_record_is_whole(device):
    record = FOUND[device]
    scale = script.CPU if device == "cpu" else script.CUDA
    config = {**dataclasses.asdict(scale.learn), "held_out": scale.held_out}
    newer = {name: default for name, default in dataclasses.asdict(Config()).items() if name.startswith("value_")}
    command = {"fast", "decoding"}  # settings of the command, which were the loop's when this was recorded
    recorded = {name: value for name, value in record["learn_config"].items() if name not in command}
    assert newer | recorded == config  # settings of the critic, which these rows have not
    assert [(run["arm"], run["seed"]) for run in record["learn"]] == [(a, s) for s in scale.seeds for a in script.ARMS]
    for run in record["learn"]:
        assert len(run["reward"]) == scale.learn.steps or (run["stopped"] and len(run["reward"]) < scale.learn.steps)
        for when in ("before", "after"):
            share = run[when]["sampled"]
            assert len(run["tries"][when]) == scale.tried
            worth = share.get("worth", share["n"])  # problems were drawn with replacement when this was recorded
            assert worth <= share["problems"] <= share["n"]
            assert [share["low"], share["high"]] == pytest.approx(wilson(share["share"] * worth, worth), abs=1e-4)
    assert [row["name"] for row in record["memory"]] == list(script.WAYS_TO_SAVE)
    assert {"device", "torch", "transformers", "threads"} <= set(record["machine"])


def test_the_controls_on_record_begin_as_the_runs_with_a_verifier_do():
    """Two arms of three seeds."""
    found = FOUND["cpu"]["controls"]
    order = [(arm, seed) for arm in script.CONTROLS for seed in script.CPU.seeds]
    assert [(run["arm"], run["seed"]) for run in found] == order
    verified = {run["seed"]: run for run in FOUND["cpu"]["learn"] if run["arm"] == "grpo"}
    for run in found:
        other = verified[run["seed"]]
        assert run["accuracy"][0] == other["accuracy"][0]  # the same model, questions and draws
        assert len(run["accuracy"]) == script.CPU.learn.steps
        assert run["before"] == found[0]["before"]
        if run["arm"] == "coin":
            assert run["length"][0] == other["length"][0]
            assert statistics.mean(run["reward"]) == pytest.approx(0.5, abs=0.03)
            assert statistics.mean(run["accuracy"][-10:]) < statistics.mean(other["accuracy"][-10:]) - 0.2
        else:
            assert run["drawn"] == sum(script.CPU.learn.prompts * script.CPU.learn.group_size for _ in run["accuracy"])
            assert run["imitated"] == pytest.approx(run["drawn"] * statistics.mean(run["accuracy"]), abs=1)


def test_start_and_one_trained_model_were_asked_other_problems_at_all_temperatures():
    found = FOUND["cpu"]["sharper"]
    assert len(set(found["prompts"])) == script.CPU.compared
    for who in ("start", "trained"):
        assert set(found[who]) == {str(value) for value in script.SHARPER}
        assert all(len(counts) == script.CPU.compared and max(counts) <= script.TRIES for counts in found[who].values())
    # The run is the first of `learn` over again.
    assert found["reward"] == pytest.approx(FOUND["cpu"]["learn"][0]["reward"], abs=1e-3)


def test_each_at_its_best_temperature_only_one_attempt_is_separated():
    """Trained minus start, by problem: two standard errors on both sides of the mean."""
    found = FOUND["cpu"]["sharper"]

    def shares(who, k, value):
        return [pass_at(k, [count]) for count in found[who][value]]

    def best(who, k):
        return max(found[who], key=lambda value: sum(shares(who, k, value)))

    def gain(k, before, now):
        gains = [b - a for a, b in zip(shares("start", k, before), shares("trained", k, now), strict=True)]
        mean, error = statistics.mean(gains), statistics.stdev(gains) / len(gains) ** 0.5
        return mean - 2 * error, mean + 2 * error

    assert [best("start", 1), best("trained", 1)] == ["0.25", "0.25"]
    assert [best("start", 16), best("trained", 16)] == ["0.5", "1.25"]
    assert gain(1, "0.25", "0.25")[0] > 0.02
    assert gain(16, "0.5", "1.25")[0] < 0.01
    assert gain(16, "0.5", "1.25")[1] > 0.15
    assert gain(16, "1.0", "1.0")[0] > 0.03
    assert gain(16, "0.5", "0.5")[0] < 0 < gain(16, "0.5", "0.5")[1]


def pass_at(k, right):
    n = script.TRIES
    return sum(1 - math.comb(n - c, k) / math.comb(n, k) for c in right) / len(right)


def test_most_of_the_gain_is_what_a_temperature_gives():
    """At one attempt every run is above the start at the four temperatures; at sixteen the record decides nothing."""
    start, runs = FOUND["cpu"]["temperature"], FOUND["cpu"]["learn"]
    assert all(run["tries"]["before"] == start["1.0"] for run in runs)
    best = {k: max(pass_at(k, right) for right in start.values()) for k in (1, 16)}
    after = {k: [pass_at(k, run["tries"]["after"]) for run in runs] for k in (1, 16)}
    assert min(after[1]) > best[1]
    gain = sum(after[1]) / len(runs) - pass_at(1, start["1.0"])
    assert best[1] - pass_at(1, start["1.0"]) > gain / 2
    # By problem, the runs' mean against the start at its best: two standard errors reach from below none to a tenth.
    suits = max(start, key=lambda value: pass_at(16, start[value]))
    found = [[count > 0 for count in run["tries"]["after"]] for run in runs]
    shares = [sum(of_problem) / len(runs) for of_problem in zip(*found, strict=True)]
    gains = [share - (count > 0) for share, count in zip(shares, start[suits], strict=True)]
    mean, tried = statistics.mean(gains), FOUND["cpu"]["tried"]
    clusters = [sum(gain - mean for gain, one in zip(gains, tried, strict=True) if one == p) for p in set(tried)]
    error = statistics.stdev(clusters) * len(clusters) ** 0.5 / len(gains)
    assert mean - 2 * error < 0
    assert mean + 2 * error > 0.08


@pytest.mark.parametrize("device", FOUND)
def test_what_the_chapter_says_of_the_record(device):
    """A verifier alone makes drawn answers right: every arm gains beyond its intervals, the first one 30 points."""
    for run in FOUND[device]["learn"]:
        before, after = (run[when]["sampled"] for when in ("before", "after"))
        assert after["low"] > before["high"], run["arm"]
    first = FOUND[device]["learn"][0]
    assert first["after"]["sampled"]["share"] - first["before"]["sampled"]["share"] > 0.3
    rows = {row["name"]: row for row in FOUND[device]["memory"]}
    assert rows["the loop's own means"]["peak"] < rows["plain"]["peak"]
    assert rows["all of them"]["peak"] == min(row["peak"] for row in rows.values())
