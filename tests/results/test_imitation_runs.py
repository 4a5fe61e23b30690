"""The recorded runs on the limits of imitation: whole, and still what the code of today begins to do."""

import random
import statistics

import pytest
import torch

from rlhf_book import loop
from tests.results.scripts import load

script, RECORD = load("imitation_runs")
RUNS = {(run["arm"], run["seed"]): run for run in RECORD["runs"]}
ARMS = [*script.FROM_NOTHING, *script.GOING_ON]


def test_every_arm_has_every_seed_and_every_step():
    assert list(RUNS) == [(arm, seed) for arm in ARMS for seed in script.SEEDS]
    for (arm, _), run in RUNS.items():
        assert len(run["losses"]) == 26 if arm in script.FROM_NOTHING else len(run["right"]) == script.STEPS
    assert {"torch", "transformers", "rlhf_minimal", "python"} <= set(RECORD["versions"])


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def test_imitation_is_that_of_the_book_s_loop(monkeypatch):
    one, other = loop.new_model(0), loop.new_model(0)
    script.imitate(one, 0, steps=4)
    loop.imitate(other, steps=4, seed=0)
    torch.testing.assert_close(weights(one), weights(other))


def test_the_mask_alone_tells_the_arm_prompts_from_the_first():
    assert script.FROM_NOTHING == {
        "forgets": {},
        "prompts": {"prompts": True},
        "careless": {"teacher": script.careless},
    }
    model, ids = loop.new_model(0), loop.encode(["128+345=3740$"])
    logp = model(ids).logits.log_softmax(-1)[0]
    nats = [-logp[t, ids[0, t + 1]] for t in range(12)]
    for prompts, learnt in ((False, nats[-5:]), (True, nats)):
        torch.testing.assert_close(script.imitation_loss(model, ids, prompts=prompts), sum(learnt) / len(learnt))


def test_the_careless_teacher_is_right_in_two_of_five_and_else_wrong_in_every_digit():
    rng = random.Random(0)
    replies = [script.careless("128+345=", rng) for _ in range(2000)]
    right = [reply == "3740$" for reply in replies]
    assert statistics.mean(right) == pytest.approx(0.4, abs=0.04)
    for reply in set(replies) - {"3740$"}:
        assert reply[-1] == "$"
        assert all(a != b for a, b in zip(reply[:4], "3740", strict=True))


@pytest.mark.parametrize("arm", script.FROM_NOTHING)
def test_the_first_losses_come_out_as_recorded(arm):
    options = script.FROM_NOTHING[arm]
    losses = script.imitate(loop.new_model(0), 0, stop=50, **options)
    assert sum(losses) / 50 == pytest.approx(RUNS[arm, 0]["losses"][0], abs=0.01)


def test_the_arms_that_go_on_differ_in_who_writes_and_in_what_counts(monkeypatch):
    """`more` and `filtered` meet the same completions; `once` draws from what the model wrote rightly."""
    seen = {}
    original = script.imitation_loss
    for arm in script.GOING_ON:
        seen[arm] = []

        def spy(model, ids, *, prompts, arm=arm):
            assert not prompts
            seen[arm].append([loop.decode(row) for row in ids])
            return original(model, ids, prompts=prompts)

        monkeypatch.setattr(script, "imitation_loss", spy)
        monkeypatch.setattr(script, "pool_of_right", lambda model, rng: ["128+345=3740$", "001+002=3000$"])
        right = script.go_on(loop.new_model(0), arm, seed=0, steps=1)
        if arm != "once":
            assert right == pytest.approx(RUNS[arm, 0]["right"][:1], abs=1e-4)
    (more,), (filtered,), (once,) = (seen[arm] for arm in ("more", "filtered", "once"))
    assert len(more) == len(once) == script.ROWS
    assert filtered == [text for text in more if text[8:] == loop.right_answer(text[:8])]
    assert 0 < len(filtered) < len(more)
    assert set(once) == {"128+345=3740$", "001+002=3000$"}


def test_the_pool_holds_right_samples_of_the_model_alone(monkeypatch):
    monkeypatch.setattr(script, "STEPS", 2)
    wrong = loop.encode(["0000$"])[0]

    def sample(model, ids):
        answers = [loop.encode([loop.right_answer(loop.decode(row))])[0] for row in ids]
        return torch.stack([answer if i % 16 == 3 else wrong for i, answer in enumerate(answers)])

    monkeypatch.setattr(script, "sample", sample)
    pool = script.pool_of_right(loop.new_model(0), random.Random(0))
    assert len(pool) == 2 * 16  # one of sixteen samples of each question
    assert all(script.are_right(pool))


def test_the_starts_are_those_of_the_chapter_from_zero():
    """So its runs with a checker go on from the models that these go on from."""
    _, other = load("from_zero")
    shared = [run for run in other["runs"] if ("forgets", run["seed"]) in RUNS]  # all but the seed that replaces one
    assert {run["seed"] for run in shared} == set(range(5))
    for run in shared:
        assert RUNS["forgets", run["seed"]]["losses"][-1] == pytest.approx(run["imitation_loss"], abs=0.002)
