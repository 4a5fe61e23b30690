"""The recorded runs of pretraining and fine-tuning: whole, and still what the code of today begins to do."""

import pytest

from rlhf_book import two_stages
from rlhf_book.two_stages import PAIRS, SEEN, SHIFTED, reply
from tests.results.scripts import load

script, RECORD = load("two_stage_runs")
RUNS = {(run["arm"], run["seed"]): run for run in RECORD["runs"]}
STEPS = {arm: settings["steps"] for arm, (*_, settings) in script.ARMS.items()}


def test_every_arm_has_every_seed_and_every_step():
    assert list(RUNS) == [(arm, seed) for arm in ("base", *script.ARMS) for seed in script.SEEDS]
    for (arm, _), run in RUNS.items():
        assert len(run["losses"]) == STEPS.get(arm, 200)
        for name in ("seen", "unseen"):
            assert sum(run[f"shares_{name}"]) == pytest.approx(1)
            assert arm.startswith("shifted") or run[f"right_{name}"] == run[f"shares_{name}"][3]  # of the format >


def test_arms_differ_in_one_thing_each():
    arms = script.ARMS
    assert arms["prompts"] == (False, PAIRS, True, script.TUNING)
    assert arms["scratch"] == (True, *arms["sft"][1:])
    assert arms["shifted"] == (False, SHIFTED, *arms["sft"][2:])
    assert SHIFTED == [(letter + "?", reply(letter, ">", 3)) for letter in SEEN]


def test_pretraining_begins_as_recorded(monkeypatch):
    losses = []
    plain = two_stages.next_token_loss

    def first_twenty(*batch):
        if len(losses) == 20:
            raise InterruptedError
        losses.append(loss := plain(*batch))
        return loss

    monkeypatch.setattr(two_stages, "next_token_loss", first_twenty)
    with pytest.raises(InterruptedError):
        script.pretrained(0)
    assert [loss.item() for loss in losses] == pytest.approx(RUNS["base", 0]["losses"][:20], abs=0.01)


def test_a_run_from_random_weights_comes_out_as_recorded(monkeypatch):
    monkeypatch.setattr(script, "pretrained", lambda seed: (None, []))
    found = script.run("scratch", 0)
    recorded = RUNS["scratch", 0]
    assert found["losses"] == pytest.approx(recorded["losses"], abs=0.02)
    assert found["right_seen"] == pytest.approx(recorded["right_seen"], abs=0.1)
