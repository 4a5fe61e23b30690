"""The recorded runs on the clock: what an arm is, that today's code begins as was recorded, and what came out."""

import dataclasses

import pytest
import torch

from rlhf_minimal import Algorithm
from rlhf_minimal.config import Config
from rlhf_minimal.functional import advantages
from rlhf_minimal.tasks import Problem, get_task
from tests.results.scripts import load, separated

script, RECORD = load("clock_runs")
RUNS = {(run["arm"], run["seed"]): run for run in RECORD["runs"]}
ON_FILE = list(dict.fromkeys(arm for arm, _ in RUNS))

# What is compared: names of arms, and in what they may differ from the first.
COMPARED = {
    ("growth", "coin"): {"reward"},
    ("outcome", "future", "own", "blame"): {"marks", "advantage"},
    ("future", "fine"): {"marks"},
    ("future", "marks"): {"reward"},
    ("divisor-own", "divisor-tokens", "divisor-constant"): {"aggregate"},
    ("band-token", "band-none"): {"gate"},
    ("band-paper", "band-wide"): {"gate"},
    ("band-token", "band-wide"): {"ratio", "gate"},
    ("group", "critic-1", "critic-0.95"): {"advantage"},
    ("paid-position", "paid-critic-1", "paid-critic-0.95"): {"advantage"},
    ("critic-1", "paid-critic-1"): {"marks"},
    ("critic-0.95", "paid-critic-0.95"): {"marks"},
}


def column(arm, name):
    """[seeds] a number of each seed's run."""
    return torch.tensor([run[name] for (of, _), run in RUNS.items() if of == arm], dtype=torch.float64)


def settings(arm):
    """Everything that makes an arm, by name."""
    what = script.ARMS[arm]
    cells = {field.name: getattr(what.algorithm, field.name) for field in dataclasses.fields(Algorithm)}
    numbers = {field.name: getattr(what.config, field.name) for field in dataclasses.fields(Config)}
    found = cells | numbers | {"task": what.task, "reward": what.reward, "marks": what.marks}
    return {name: repr(value) for name, value in found.items()}


def test_every_arm_has_every_seed_and_every_step():
    assert ON_FILE == list(script.ARMS)
    for arm in ON_FILE:
        seeds = [seed for of, seed in RUNS if of == arm]
        assert seeds == list(script.SEEDS)
    for (arm, _), run in RUNS.items():
        curves = (*script.KEPT, *script.ARMS[arm].kept)
        assert all(len(run[name]) == script.ARMS[arm].config.steps for name in curves)
    assert {"torch", "transformers", "rlhf_minimal", "python"} <= set(RECORD["versions"])


@pytest.mark.parametrize("arm", ON_FILE)
def test_the_first_steps_are_those_on_record(arm):
    """Another machine may round differently and draw a few other tokens."""
    again = script.run(arm, 0, steps=2)
    for name in ("accuracy", "length", "right"):
        assert again[name] == pytest.approx(RUNS[arm, 0][name][:2], abs=0.02 if name != "length" else 0.5)


def test_what_is_compared_differs_in_what_is_named_and_in_nothing_else():
    for (first, *others), names in COMPARED.items():
        here = settings(first)
        for other in others:
            there = settings(other)
            differing = {name for name in here if here[name] != there[name]}
            assert differing
            assert differing <= names, (first, other)
    assert {arm for arms in COMPARED for arm in arms} == set(script.ARMS)


def test_a_dial_that_pays_no_idle_moves():
    task = get_task("clock:slip")
    marks = script.no_idle_moves(task)(
        prompts=["3+8+....:"], completions=["3d8k.l.l=l"], problem=[Problem("3+8+....:", "l")]
    )
    assert [[tuple(step) for step in steps] for steps in marks] == [[(2, 1.0), (4, 0.0)]]


def test_the_mean_at_a_position_is_that_of_the_others():
    rewards = torch.tensor([[1.0, 0.0, 2.0], [0.0, 4.0, 0.0]])
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]])
    found = script.at_its_position(rewards, mask, group_size=2)
    assert found.tolist() == [[3 - 4, 2 - 4, 2 - 0], [4 - 3, 4 - 2, 0]]
    assert advantages.returns_to_go(rewards, mask).tolist() == [[3, 2, 2], [4, 4, 0]]


def test_on_long_problems_marks_of_the_own_move_teach_what_the_outcome_does_not():
    ends = {arm: column(arm, "last_accuracy") for arm in ("outcome", "future", "own", "blame", "fine", "marks")}
    for arm in ("future", "own", "blame", "marks"):
        assert column(arm, "right")[:, -10:].mean() > 0.9
        assert separated(ends["fine"], ends[arm])
    by_size = ends["outcome"].sort().values
    assert by_size[2] < 0.05  # three seeds of five stay at chance, where all begin
    assert 0.2 < by_size[3]
    assert by_size[4] < 0.4
    assert abs(column("outcome", "accuracy")[:, :5].mean() - 1 / 26) < 0.01
    for arm in ("own", "blame"):
        assert ends[arm].min() > 0.55
        assert separated(ends["outcome"], ends[arm])
        assert separated(ends["future"], ends[arm])
    assert separated(ends["marks"], ends["future"])


def test_two_ways_of_paying_are_hacked():
    """A payment for each right move breeds idle moves, and a fine for the first wrong one teaches to write none."""
    idle = {arm: column(arm, "last_idle") for arm in ("outcome", "future", "own", "blame", "marks")}
    assert column("future", "idle")[:, 0].mean() < 0.5
    assert idle["future"].min() > 2
    assert idle["marks"].min() > 3.9
    assert separated(idle["outcome"], idle["future"])
    assert separated(idle["future"], idle["marks"])
    assert separated(idle["own"], idle["future"])
    assert separated(idle["blame"], idle["own"])  # a right idle move is an easy mark
    assert idle["blame"].max() < 0.5
    assert column("fine", "last_length").max() < 3.1
    assert (column("fine", "moves")[:, 40:].mean(1) < 0.01).all()


def test_accuracy_and_length_follow_the_verifier_and_not_the_coin():
    growth, coin = ({name: column(arm, name) for name in ("accuracy", "length", "right")} for arm in ("growth", "coin"))
    for name in growth:
        assert (growth[name][:, 0] == coin[name][:, 0]).all()  # the same first completions
    assert growth["accuracy"][:, :5].mean() < 0.3
    assert column("growth", "last_accuracy").min() > 0.79
    assert 2 * growth["length"][:, 0].max() < column("growth", "last_length").min()
    # The control does not stay where it is, at either rate that was tried; it loses accuracy.
    assert separated(coin["accuracy"][:, :10].mean(1), column("coin", "last_accuracy"))
    assert 0.07 < column("coin", "last_accuracy").min()
    assert column("coin", "last_accuracy").max() < 0.15
    assert column("coin", "last_length").max() < 10


def test_completions_grow_first_and_slip_less_later():
    """By step 20 the length has its last value; the moves go on to be right more often."""
    length, right = column("growth", "length"), column("growth", "right")
    grown = (length[:, 20:30].mean(1) - length[:, 0]) / (length[:, 50:].mean(1) - length[:, 0])
    assert grown.min() > 0.9
    assert separated(right[:, 20:30].mean(1), right[:, 50:].mean(1))


def test_the_own_length_as_divisor_ends_a_little_lower_and_nothing_runs_away():
    bounds = {"own": (0.54, 0.65), "tokens": (0.58, 0.67), "constant": (0.615, 0.66)}
    ends = {name: column(f"divisor-{name}", "last_accuracy") for name in bounds}
    wrong, right = ({n: column(f"divisor-{n}", f"length_{side}") for n in bounds} for side in ("wrong", "right"))
    gaps = {name: (wrong[name] - right[name])[:, -10:].mean(1) for name in bounds}
    for name, (low, high) in bounds.items():
        assert len(ends[name]) == 5
        assert low < ends[name].min()
        assert ends[name].max() < high
        assert 3 < gaps[name].min()
        assert gaps[name].max() < 6
        assert 17.5 < column(f"divisor-{name}", "last_length").min()
        assert column(f"divisor-{name}", "last_length").max() < 22
    for name, more in (("tokens", 0.033), ("constant", 0.045)):
        assert separated(ends["own"], ends[name])
        assert not separated(ends["own"][:3], ends[name][:3])  # three seeds were too few
        assert (ends[name] - ends["own"]).mean() == pytest.approx(more, abs=0.001)
    assert not separated(ends["tokens"], ends["constant"])
    less = gaps["own"] - gaps["constant"]
    assert separated(gaps["constant"][:3], gaps["own"][:3])
    assert not separated(gaps["constant"], gaps["own"])
    assert less.mean() == pytest.approx(0.5, abs=0.05)
    assert less.min() < 0


def test_the_range_of_the_paper_is_too_narrow_for_twenty_tokens():
    ends = {arm: column(arm, "last_accuracy") for arm in ("band-paper", "band-wide", "band-token", "band-none")}
    clipped = {arm: column(arm, "clip_fraction") for arm in ends}
    for arm in ("band-wide", "band-token", "band-none"):
        assert separated(ends["band-paper"], ends[arm])
        assert (0.70 if arm == "band-wide" else 0.71) < ends[arm].min()
        assert ends[arm].max() < (0.77 if arm == "band-none" else 0.76)
        assert clipped[arm].mean() < 0.03
        below = ends[arm] - ends["band-paper"]
        assert 0.09 < below.min()
        assert below.max() < 0.20
    assert not separated(ends["band-token"], ends["band-wide"])
    assert not separated(ends["band-none"], ends["band-wide"])
    assert clipped["band-wide"][:, :10].mean(1).max() < 0.04
    assert not separated(ends["band-token"], ends["band-none"])
    assert 0.56 < ends["band-paper"].min()
    assert ends["band-paper"].max() < 0.63
    assert 0.39 < clipped["band-paper"][:, -10:].mean(1).min()
    assert clipped["band-paper"][:, :10].mean(1).max() < 0.47
    assert (clipped["band-none"] == 0).all()


def test_a_critic_pays_a_little_for_the_outcome_and_falls_behind_where_moves_are_paid():
    bounds = {
        "group": (0.59, 0.67),
        "critic-1": (0.60, 0.69),
        "critic-0.95": (0.58, 0.70),
        "paid-position": (0.61, 0.71),
        "paid-critic-1": (0.14, 0.51),
        "paid-critic-0.95": (0.34, 0.59),
    }
    ends = {arm: column(arm, "last_accuracy") for arm in bounds}
    for arm, (low, high) in bounds.items():
        assert low < ends[arm].min()
        assert ends[arm].max() < high
    for lam in ("1", "0.95"):
        assert separated(ends["group"], ends[f"critic-{lam}"]) == (lam == "1")
        assert not separated(ends["group"][:3], ends[f"critic-{lam}"][:3])  # three seeds were too few
        assert separated(ends[f"paid-critic-{lam}"], ends["paid-position"])
        known = column(f"critic-{lam}", "explained_variance")[:, -10:].mean(1)
        paid = column(f"paid-critic-{lam}", "explained_variance")[:, -10:].mean(1)
        assert 0.01 < known.min()
        assert known.max() < 0.1
        assert 0.5 < paid.min()
        assert paid.max() < 0.7
    assert not separated(ends["critic-1"], ends["critic-0.95"])
    assert 0.02 < (ends["critic-1"] - ends["group"]).mean() < 0.03
    slower = column("critic-1", "seconds").mean() / column("group", "seconds").mean()
    assert slower == pytest.approx(1.6, abs=0.1)
