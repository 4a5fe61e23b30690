"""The shipped starts of the clock: as good, and as bad, as their notes say, and right more often the more they work."""

import json

import pytest

from rlhf_minimal import ALGORITHMS
from rlhf_minimal.cli.starts import ASSETS, shipped_start
from rlhf_minimal.evaluate import evaluate
from rlhf_minimal.tasks import get_task
from rlhf_minimal.train import Recipe
from rlhf_minimal.training import load_policy

# A name: steps of imitation, and the least share of its moves that is right; the teacher's is 0.95, and 0.75 for slip.
CLOCKS = {"clock": (1000, 0.92), "clock10": (600, 0.9), "clock:slip": (600, 0.68), "clock:long": (600, 0.85)}


@pytest.mark.parametrize("name", CLOCKS)
def test_a_start_is_what_its_notes_say(name):
    task, (steps_taken, right_moves) = get_task(name), CLOCKS[name]
    notes = json.loads((shipped_start(task) / "pretrain.json").read_text())
    assert f"pretrain --task {name} --steps {steps_taken} --batch-size 64 --lr 0.003" in notes["command"]
    assert (shipped_start(task) / "model.safetensors").stat().st_size < 400_000
    found = evaluate(*load_policy(shipped_start(task)), Recipe(ALGORITHMS["reinforce"], task), n=600, seed="shipped")
    assert found.sampled.share == pytest.approx(notes["held_out"]["sampled"], abs=0.06)
    assert found.greedy.share == pytest.approx(notes["held_out"]["greedy"], abs=0.06)
    steps = [task.steps(text, p) for text, p in zip(found.samples.texts, found.samples.problems, strict=True)]
    marks = [mark for found_steps in steps for _, mark in found_steps]
    assert right_moves < sum(marks) / len(marks) < 0.97
    whole = [len(s) >= p.prompt.count("+") for s, p in zip(steps, found.samples.problems, strict=True)]
    right = (found.samples.correct == 1).tolist()
    worked = [ok for ok, all_of_it in zip(right, whole, strict=True) if all_of_it]
    not_worked = [ok for ok, all_of_it in zip(right, whole, strict=True) if not all_of_it]
    assert sum(worked) / len(worked) > sum(not_worked) / len(not_worked) + 0.05


def test_every_start_that_a_clock_names_is_shipped():
    assert {shipped_start(get_task(name)) for name in CLOCKS} == {
        ASSETS / name for name in ("clock", "clock10", "clock-slip", "clock-long")
    }
