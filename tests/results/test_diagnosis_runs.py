"""The recorded runs on diagnosis: whole, still what the code begins to do, and told apart as the chapter says."""

import pytest

from rlhf_book.diseases import DISEASES, MILD
from rlhf_book.diseases import run as run_of
from rlhf_minimal.lab.diagnosis import DATA, diagnose, likely
from tests.results.scripts import FOLDER, load

script, RECORD = load("diagnosis_runs")
RUNS = {(run["arm"], run["seed"]): run for run in RECORD["runs"]}


def history(run):
    names = [name for name, values in run.items() if isinstance(values, list)]
    return [
        {"step": i + 1} | {name: run[name][i] for name in names if run[name][i] is not None}
        for i in range(len(run["reward"]))
    ]


def places(kind):
    """By bug, the place of its cause in each of its runs; 0 if it is not among three."""
    found = {}
    for (arm, _), run in RUNS.items():
        bug = arm.partition("/")[2]
        if arm.startswith(kind) and bug and (cause := DISEASES[bug].cause):
            causes = likely(diagnose(history(run)))
            found.setdefault(bug, []).append(causes.index(cause) + 1 if cause in causes else 0)
    return found


def alarms(kind, bugs=(None,)):
    found = [likely(diagnose(history(r))) for (a, _), r in RUNS.items() if a.startswith(kind) and a.endswith(bugs)]
    return sum(map(bool, found)), len(found)


def test_every_arm_has_every_seed_and_every_step():
    assert list(RUNS) == [(arm, seed) for arm, n in script.arms().items() for seed in range(n)]
    assert all(len(run["reward"]) == script.STEPS == RECORD["steps"] for run in RUNS.values())
    assert {"torch", "transformers", "rlhf_minimal", "python"} <= set(RECORD["versions"])
    assert (FOLDER / "diagnosis-runs.json").stat().st_size < 600_000


def test_what_is_scored_was_not_used_for_writing():
    kinds = {
        kind: [script.place(arm) for arm in script.arms() if arm.startswith(kind)] for kind in ("written", "scored")
    }
    written, scored = kinds["written"], kinds["scored"]
    assert {setting.task for setting, *_ in written} == {"addition"}
    assert "addition" not in {setting.task for setting, *_ in scored}
    settings = {(setting.row, setting.task) for setting, *_ in written}
    assert not settings & {(setting.row, setting.task) for setting, *_ in scored}
    assert {add for *_, add in written} == {100}
    assert {add for *_, add in scored} == {0}
    assert max(script.arms().values()) < 100


@pytest.mark.parametrize(
    "arm",
    ["written:grpo", "written:ppo/frozen-critic", "scored:rloo/mixed-groups", "scored:dr_grpo/untrained-end",
     "scored:rloo/shifted-logp", "scored:dr_grpo/dropout", "scored:grpo/k1-in-loss", "healthy:kimi_k2-stack-0.5",
     "later:clipped/larger-of-two", "later:rloo/temperature-0.97"],
)  # fmt: skip
def test_the_first_steps_come_out_as_recorded(arm):
    """Another machine may round differently and draw a few other tokens: the tolerance is some completions of 64."""
    setting, disease, add = script.place(arm)
    for metrics, recorded in zip(run_of(setting, disease, add, steps=2), history(RUNS[arm, 0]), strict=False):
        for name in ("reward", "accuracy", "dead_groups"):
            assert metrics[name] == pytest.approx(recorded[name], abs=0.13 if name == "dead_groups" else 0.05)
        assert metrics["gap"] == pytest.approx(recorded["gap"], rel=0.2, abs=1e-5)
        assert metrics["trained"] == pytest.approx(recorded["trained"], abs=0.02)


def test_the_score_is_the_chapters():
    found = places("scored")
    everywhere = [place for where in found.values() for place in where]
    assert (len(found), len(everywhere)) == (22, 88)
    assert sum(place == 1 for place in everywhere) == 76
    assert sum(place > 0 for place in everywhere) == 86
    assert {bug for bug, where in found.items() if not all(where)} == {"inverted-ratio", "reward-hole"}
    assert all(place == 1 for bug, where in places("written").items() for place in where[:1] if bug != "rate-high")


def test_no_alarm_without_a_bug_and_none_for_bugs_that_no_rule_sees():
    assert alarms("healthy", ("",)) == (0, 20)
    well = [diagnose(history(run)) for (arm, _), run in RUNS.items() if arm.startswith("later") and "/" not in arm]
    assert (len(well), sum(map(bool, well))) == (14, 0)
    quiet = tuple(one.id for one in DISEASES.values() if one.cause is None)
    assert alarms("scored", quiet) == (0, 8)
    assert alarms("later", quiet) == (0, 4)


def test_the_three_new_rules_change_no_place():
    new = {rule["name"] for rule in DATA["rules"] if "added" in rule}
    assert len(new) == 3
    for (arm, _), run in RUNS.items():
        bug = arm.partition("/")[2]
        if arm.startswith("scored") and (cause := DISEASES[bug].cause):
            found = diagnose(history(run))
            named = [likely(found), likely([one for one in found if one.rule not in new])]
            assert len({where.index(cause) if cause in where else -1 for where in named}) == 1


def test_mild_rates_and_bonuses_are_missed_and_other_mild_doses_are_not():
    for bug, one in MILD.items():
        named = [likely(diagnose(history(RUNS[f"later:rloo/{bug}", seed]))) for seed in (0, 1)]
        if bug.startswith("temperature"):
            assert all(where[0] == one.cause for where in named)
        elif bug == "kl-x9":
            assert all(where.index(one.cause) == 2 for where in named)
        else:
            assert named == [[], []]


def test_the_larger_of_two_acts_where_a_rollout_gets_several_updates():
    for seed in range(4):
        sick, well = (RUNS[arm, seed] for arm in ("later:clipped/larger-of-two", "later:clipped"))
        assert min(sum(run["clip_fraction"][-5:]) for run in (sick, well)) > 0
        assert sick["reward"] != well["reward"]


def test_a_bug_that_no_rule_sees_learns():
    for (arm, _), run in RUNS.items():
        if arm.startswith(("scored:grpo", "later:grpo")):
            assert sum(run["accuracy"][-5:]) / 5 > 0.9
        if arm.startswith("later:clipped"):
            assert sum(run["accuracy"][-5:]) / 5 > 0.65 > 2 * run["accuracy"][0]
