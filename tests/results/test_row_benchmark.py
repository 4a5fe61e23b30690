"""The benchmark of all rows: what its plan promises, that it survives being killed, and that runs begin as recorded."""

import dataclasses
import json
import multiprocessing
import time
from collections import Counter
from functools import partial

import pytest

from rlhf_minimal import ALGORITHMS, Algorithm, contrib
from rlhf_minimal.config import Config
from rlhf_minimal.functional import advantages, gates
from tests.results.made_up import made_up_run
from tests.results.scripts import FOLDER, module

script = module("row_benchmark")
FILE = FOLDER / "row-benchmark.json"
RECORD = json.loads(FILE.read_text()) if FILE.exists() else None
RUNS = RECORD["runs"] if RECORD else []
ON_FILE = [name for name in script.GROUPS if any(run["group"] == name for run in RUNS)]


# ---- the plan ----


def test_every_row_of_a_chapter_is_there_and_five_of_the_field_that_no_other_cell_replaces():
    assert set(script.CHAPTERS) == set(ALGORITHMS) - set(contrib.ALGORITHMS)
    assert len(script.OTHERS) == 5
    assert set(script.OTHERS) <= set(contrib.ALGORITHMS)
    columns = [field.name for field in dataclasses.fields(Algorithm)]
    for name in script.OTHERS:
        others = [ALGORITHMS[row] for row in script.ROWS if row != name]
        cells = {column: getattr(ALGORITHMS[name], column) for column in columns}
        functions = {column: getattr(cell, "func", cell) for column, cell in cells.items() if cell}
        own = [
            column
            for column, cell in functions.items()
            if cell not in [getattr(getattr(row, column), "func", getattr(row, column)) for row in others]
        ]
        assert own, name
    for name in ("addition-1", "addition-4", "clock-1", "clock-4"):
        assert script.GROUPS[name].rows == script.ROWS
    assert len(script.GROUPS["reviews-4"].rows) == 5


@pytest.mark.parametrize("name", script.GROUPS)
def test_a_group_gives_the_same_to_every_row(name):
    group = script.GROUPS[name]
    own = list(dict.fromkeys(script.partners(group.rows, group.updates).values()))
    jobs = script.plan([name])
    tuning = [job for job in jobs if job.lr is not None]
    reported = [job for job in jobs if job.lr is None]
    expected = {(row, seed, lr) for row in own for seed in script.TUNING for lr in group.rates}
    assert {(job.row, job.seed, job.lr) for job in tuning} == expected
    assert {(job.row, job.seed) for job in reported} == {(row, s) for row in (*own, "coin") for s in script.SEEDS}
    assert len(set(jobs)) == len(jobs)
    assert jobs.index(reported[0]) == len(tuning)  # rates first
    assert len(group.rates) == 4
    for lower, higher in zip(group.rates, group.rates[1:], strict=False):
        assert higher == 2 * lower
    assert group.steps % script.POINTS == 0
    configs = {repr(dataclasses.replace(script.recipe(name, row, 0, 1e-3).config)) for row in (*own, "coin")}
    assert len(configs) == 1


def test_tuning_seeds_are_not_reported():
    assert set(script.TUNING).isdisjoint(script.SEEDS)
    assert len(script.SEEDS) == 5


def test_the_control_differs_from_its_row_in_the_reward_alone():
    row, coin = (script.recipe("addition-4", name, 3, 1e-3) for name in (script.CONTROLLED, "coin"))
    assert (row.algorithm, row.config, row.task) == (coin.algorithm, coin.config, coin.task)
    assert row.reward is None
    assert set(coin.reward(["1+1="] * 50, ["2"] * 50, step=[1] * 50)) == {0.0, 1.0}


# ---- rows that take the same steps ----


def test_rows_that_coincide_are_those_that_theory_says():
    """On-policy every gate has slope A, a geometric mean is a mean, and a penalty against the sampler has no slope."""
    one, four = (script.partners(script.ROWS, updates) for updates in (1, 4))
    assert {name for name in one if one[name] == "gspo"} == {"gspo", "gspo_token", "gmpo", "sapo"}
    assert {name for name in one if one[name] == "dr_grpo"} == {"dr_grpo", "kimi_k2"}
    assert {name for name in one if one[name] == "cispo"} == {"cispo", "vespo"}
    assert len(set(one.values())) == 13
    assert {name for name, runs in four.items() if name != runs} == {"gspo_token"}


def test_a_factor_does_not_matter_and_anything_else_does():
    row = ALGORITHMS["dr_grpo"]

    def twice(token_rewards, mask, *, group_size):
        return 2 * advantages.group_centered(token_rewards, mask, group_size=group_size)

    same = partial(script.coincide, row)
    assert same(dataclasses.replace(row, advantage=twice), on_policy=False)
    assert same(dataclasses.replace(row, gate=gates.none), on_policy=True)
    assert not same(dataclasses.replace(row, gate=gates.none), on_policy=False)
    assert not same(dataclasses.replace(row, keep=ALGORITHMS["dapo"].keep), on_policy=True)
    assert not same(ALGORITHMS["grpo"], on_policy=True)
    # A factor that differs from group to group is not one factor: both advantages agree in sign everywhere.
    assert not same(dataclasses.replace(row, advantage=advantages.group_normalized), on_policy=True)


def test_batches_hold_what_tells_rows_apart():
    for batch in script.batches(False):
        groups = batch.rewards.view(-1, 4)
        spread = groups.std(1)
        assert (spread == 0).any()
        assert (spread > 0).any()
        assert len(batch.mask.sum(1).unique()) > 4
        assert (batch.logp != batch.old_logp).any()
    assert all((batch.logp == batch.old_logp).all() for batch in script.batches(True))


def test_shared_runs_are_the_same_run():
    """Two rows of which one stands for the other, trained for a few steps: the same held-out completions come out."""
    for one, other in (("gspo", "sapo"), ("dr_grpo", "kimi_k2")):
        first, second = (script.run("addition-1", row, 100, 8e-4, points=1) for row in (one, other))
        assert first["sampled"] == pytest.approx(second["sampled"], abs=0.004)
    apart = script.run("addition-1", "reinforce", 100, 8e-4, points=1)
    assert abs(apart["sampled"] - first["sampled"]) > 0.004


# ---- a run ----


def test_refills_are_paid_from_the_same_samples():
    run = script.run("addition-1", "dapo", 0, 8e-4, points=2)
    plain = script.run("addition-1", "cispo", 0, 8e-4, points=2)
    assert run["samples"] == plain["samples"] == script.GROUPS["addition-1"].samples // 3
    assert run["updates"] < plain["updates"] == 14
    assert len(run["curve"]) == len(plain["curve"]) == 3
    assert run["curve"][0] == plain["curve"][0]  # one start, the same problems, the same draws


def test_the_distance_and_the_area_are_what_they_are_called():
    still = script.run("addition-1", "grpo", 0, 1e-12, points=1)
    assert still["kl"] == pytest.approx(0, abs=2e-3)
    assert still["area"] == pytest.approx(sum(still["curve"]) / 2, abs=1e-4)
    assert 0 < still["entropy"] < 1
    assert still["curve"][0] == pytest.approx(still["curve"][1], abs=0.05)  # 500 completions, and 1000


# ---- the record ----


def fake(name, row, seed, lr):
    return made_up_run(name, row, seed, lr)


def test_a_plan_that_is_stopped_goes_on_where_it_was(tmp_path):
    path, done = tmp_path / "row-benchmark.json", []

    def stopping(*run):
        if len(done) == 33:
            raise KeyboardInterrupt
        done.append(run)
        return fake(*run)

    with pytest.raises(KeyboardInterrupt):
        script.work(script.Record(path), ["reviews-4"], stopping)
    assert len(script.Record(path).runs()) == 33
    script.work(script.Record(path), ["reviews-4"], lambda *run: done.append(run) or fake(*run))
    runs = script.Record(path).runs()
    assert Counter(done).most_common(1)[0][1] == 1  # none of them twice
    assert len(done) == len(runs) == len(script.plan(["reviews-4"]))
    for job, run in zip(script.plan(["reviews-4"]), runs, strict=True):
        assert job.of(run)  # in the order of the plan
    head = json.loads(path.read_text())
    assert head["groups"]["reviews-4"]["samples"] == 3840
    assert {"torch", "python", "transformers", "rlhf_minimal"} <= set(head["versions"])


def test_a_line_that_is_deleted_is_measured_again(tmp_path):
    path = tmp_path / "row-benchmark.json"
    script.work(script.Record(path), ["reviews-4"], fake)
    text = path.read_text().splitlines(keepends=True)
    path.write_text("".join(text[:3] + text[4:]))
    again = []
    script.work(script.Record(path), ["reviews-4"], lambda *run: again.append(run) or fake(*run))
    assert len(again) == 1
    assert path.read_text() == "".join(text)


def worker(folder, name, pause=0.01):
    """A process of its own that works on the plan, and writes down each run that it begins."""

    def slow(*run):
        with (folder / f"{name}.log").open("a") as log:
            log.write(" ".join(map(str, run)) + "\n")
        time.sleep(pause)
        return fake(*run)

    def work():
        script.work(script.Record(folder / "row-benchmark.json"), ["reviews-4"], slow, wait=0.05)

    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    return process


def wait_for(condition):
    for _ in range(1200):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError("it did not happen in two minutes")


def test_one_that_is_killed_in_a_run_loses_that_run_alone_and_two_share_the_rest(tmp_path):
    script.plan(["reviews-4"])
    log, path = tmp_path / "killed.log", tmp_path / "row-benchmark.json"
    killed = worker(tmp_path, "killed", pause=600)
    wait_for(lambda: log.exists() and log.read_text().endswith("\n"))
    beside = worker(tmp_path, "beside")  # while the first one still holds its run
    wait_for(lambda: path.exists() and len(json.loads(path.read_text())["runs"]) >= 5)
    killed.kill()
    killed.join()
    other = worker(tmp_path, "other")
    for process in (beside, other):
        process.join(timeout=120)
        assert process.exitcode == 0
    logs = [tmp_path / f"{name}.log" for name in ("beside", "other")]
    begun = Counter(line for one in logs if one.exists() for line in one.read_text().splitlines())
    assert max(begun.values()) == 1
    assert len(begun) == len(json.loads(path.read_text())["runs"]) == len(script.plan(["reviews-4"]))
    assert log.read_text().strip() in begun  # the run that was lost has been done by another


def test_the_best_of_four_rates_is_chosen_on_the_tuning_seeds_alone():
    def line(seed, lr, sampled):
        return {"group": "reviews-4", "row": "ppo", "seed": seed, "lr": lr, "sampled": sampled}

    rates = script.GROUPS["reviews-4"].rates
    runs = [line(100, lr, score) for lr, score in zip(rates, (1.0, 2.0, 4.0, 3.0), strict=True)]
    assert script.chosen(runs, "reviews-4", "ppo") is None
    runs += [line(101, lr, score) for lr, score in zip(rates, (1.0, 5.0, 3.0, 3.0), strict=True)]
    assert script.chosen(runs, "reviews-4", "ppo") == rates[1]  # of two equal sums, the lower rate
    runs += [line(0, rates[3], 99.0)]
    assert script.chosen(runs, "reviews-4", "ppo") == rates[1]
    dr_grpo = [one | {"row": "dr_grpo", "sampled": -one["sampled"]} for one in runs]
    assert script.chosen(runs + dr_grpo, "reviews-4", "coin") == rates[0]


# ---- what is on file ----


@pytest.mark.skipif(not RUNS, reason="nothing is recorded yet")
def test_the_record_is_of_this_plan():
    for name, settings in RECORD["groups"].items():
        if name in ON_FILE:
            assert settings == json.loads(json.dumps(script.of_group(name))), name
    jobs = script.plan()
    for run in RUNS:
        mine = [job for job in jobs if job.of(run) and (job.lr is None) == script.is_reported(run)]
        assert len(mine) == 1, run
        assert run["samples"] == script.GROUPS[run["group"]].samples
        if script.is_reported(run):
            assert len(run["curve"]) == script.POINTS + 1
            assert run["lr"] == script.chosen(RUNS, run["group"], run["row"])
            assert run["curve"][-1] == run["sampled"]
    assert len(FILE.read_bytes()) < 400_000


@pytest.mark.parametrize("name", ON_FILE)
def test_the_first_steps_are_those_on_record(name, monkeypatch):
    """Two rows of each group, up to the first point of the curve. Another machine may draw a few other completions."""
    reported = [run for run in RUNS if run["group"] == name and script.is_reported(run) and run["seed"] == 0]
    if not reported:
        pytest.skip("only rates were tried so far")
    ask = script.held_out

    def on_the_way(learner, what, n=script.ON_THE_WAY, *, temperature=1.0):
        """What is measured of the end alone, greedily and over more completions, is not."""
        return ask(learner, what, n if temperature else 1, temperature=temperature)

    monkeypatch.setattr(script, "held_out", on_the_way)
    monkeypatch.setattr(script, "distance", lambda *_: {})
    for recorded in (reported[0], reported[len(reported) // 2]):
        again = script.run(name, recorded["row"], 0, recorded["lr"], points=1)
        wide = 0.05 if script.GROUPS[name].reward == "verifier" else 0.6
        assert again["curve"] == pytest.approx(recorded["curve"][:2], abs=wide)


def test_nothing_else_is_set():
    """What the settings of a group leave open is the library's default, save what the script's head says."""
    config, default = script.recipe("addition-1", "ppo", 1, 4e-4).config, Config()
    said = {"steps", "prompts", "group_size", "minibatches", "lr", "grad_clip", "watch_kl", "seed"}
    for field in dataclasses.fields(Config):
        assert field.name in said or getattr(config, field.name) == getattr(default, field.name)


def test_where_a_model_rewards_rows_are_told_apart_by_real_rewards():
    row = ALGORITHMS["dr_grpo"]

    def graded(token_rewards, mask, *, group_size):
        return advantages.group_centered((token_rewards > 0.5).to(mask.dtype), mask, group_size=group_size)

    other = dataclasses.replace(row, advantage=graded)
    assert script.coincide(row, other, on_policy=False)  # the same while rewards are 0 and 1
    assert not script.coincide(row, other, on_policy=False, reward="model")
    for batch in script.batches(False, reward="model"):
        groups = batch.rewards.view(-1, 4)
        assert len(batch.rewards.unique()) > 12
        assert (groups.std(1) == 0).any()
        assert (groups.std(1) > 0).any()


def test_the_rows_that_a_reward_model_trains_are_shared_as_recorded():
    group = script.GROUPS["reviews-4"]
    shared = script.partners(group.rows, group.updates, group.reward)
    assert shared == {row: row for row in script.LEARNED}
    assert script.of_group("reviews-4")["runs"] == shared


def test_the_plan_asks_with_the_rewards_of_the_group(monkeypatch):
    asked = []

    def partners(names, updates, reward="verifier"):
        asked.append(reward)
        return {name: name for name in names}

    monkeypatch.setattr(script, "partners", partners)
    script.plan(["reviews-4"])
    script.chosen([], "reviews-4", "coin")
    script.of_group("reviews-4")
    assert asked == ["model"] * 3
