"""The loop for fixed rows: equal to one written by hand, and a resumed run is equal to one that was never stopped."""

import copy
import json
import math
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from rlhf_minimal.models import Vocabulary, tiny_llama
from rlhf_minimal.training import FitConfig, Student, load_policy, save_policy, supervised_loss
from rlhf_minimal.training.fit import fit, rows_of_step

VOCABULARY = Vocabulary("abc:")
ROWS = [("a:", "b"), ("b:", "cc"), ("c:", "a"), ("ab:", "abc"), ("ca:", ""), ("bb:", "b")]
CONFIG = FitConfig(steps=6, batch_size=4, lr=1e-2, warm_up=2, weight_decay=0.1, grad_clip=0.5, seed=3)


def model(seed=0):
    return tiny_llama(len(VOCABULARY), width=16, layers=1, heads=2, seed=seed)


def begin(policy, config=CONFIG):
    return Student.begin(policy, lambda folder: save_policy(folder, policy, VOCABULARY), config)


def loss_of(policy, config=CONFIG):
    def loss(step):
        prompts, answers = zip(*rows_of_step(ROWS, step, config.batch_size, config.seed), strict=True)
        return supervised_loss(policy, VOCABULARY, list(prompts), list(answers))

    return loss


def numbers(history):
    return [{name: value for name, value in metrics.items() if name != "seconds"} for metrics in history]


def test_it_is_a_loop_written_by_hand():
    """AdamW from its paper, with the clipped gradient and the learning rate of the step, in float64."""
    policy = model().double()
    mine, loss = copy.deepcopy(policy), loss_of(policy)
    history = fit(begin(policy), CONFIG, loss)
    parameters = list(mine.parameters())
    first = [torch.zeros_like(p) for p in parameters]
    second = [torch.zeros_like(p) for p in parameters]
    for step in range(1, 7):
        value = loss_of(mine)(step)
        gradients = torch.autograd.grad(value, parameters)
        norm = math.sqrt(sum((g**2).sum().item() for g in gradients))
        rate = 0.01 * [1 / 2, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6][step - 1]
        with torch.no_grad():
            for p, g, m, v in zip(parameters, gradients, first, second, strict=True):
                g = g * min(1.0, 0.5 / norm)
                m.copy_(0.9 * m + 0.1 * g)
                v.copy_(0.999 * v + 0.001 * g**2)
                p.mul_(1 - rate * 0.1)
                p.sub_(rate * (m / (1 - 0.9**step)) / ((v / (1 - 0.999**step)).sqrt() + 1e-8))
        found = history[step - 1]
        assert found["step"] == step
        assert (found["loss"], found["grad_norm"], found["lr"]) == pytest.approx((value.item(), norm, rate), rel=1e-5)
        assert norm > 0.5  # so the clip is at work
    for name, value in mine.state_dict().items():
        torch.testing.assert_close(policy.state_dict()[name], value, rtol=0, atol=1e-7)


def test_the_learning_rate_rises_falls_and_ends_just_above_zero():
    config = replace(CONFIG, steps=8, warm_up=3)
    policy = model()
    rates = [metrics["lr"] for metrics in fit(begin(policy, config), config, loss_of(policy, config))]
    assert rates == pytest.approx([0.01 * x for x in (1 / 3, 2 / 3, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8)])
    config = replace(CONFIG, steps=2, warm_up=0)
    policy = model()
    rates = [metrics["lr"] for metrics in fit(begin(policy, config), config, loss_of(policy, config))]
    assert rates == pytest.approx([0.01, 0.005])


@pytest.mark.parametrize("damage", ["the loss", "its gradient"])
def test_a_step_that_is_not_finite_is_not_taken(damage):
    policy, bad_step = model(), 3
    student, loss = begin(policy), loss_of(policy)

    def damaged(step):
        value = loss(step)
        if step < bad_step:
            return value
        if damage == "the loss":
            return value * math.inf
        zero = sum(p.sum() for p in policy.parameters()) * 0.0
        return value + torch.sqrt(zero)  # finite, with a slope that is not

    kept = []
    with pytest.raises(ValueError, match="step 3: the loss is .* lower --lr"):
        fit(student, CONFIG, damaged, lambda metrics: kept.append(copy.deepcopy(policy.state_dict())))
    assert student.step == len(kept) == 2
    assert all(torch.equal(value, policy.state_dict()[name]) for name, value in kept[-1].items())


def test_it_stops_when_it_is_told_to_and_goes_on_from_there():
    policy = model()
    student = begin(policy)
    assert [m["step"] for m in fit(student, CONFIG, loss_of(policy), lambda metrics: metrics["step"] < 2)] == [1, 2]
    assert [m["step"] for m in fit(student, CONFIG, loss_of(policy), lambda metrics: None)] == [3, 4, 5, 6]
    assert fit(student, CONFIG, loss_of(policy)) == []


@pytest.mark.parametrize("stop", [1, 3, 5])
def test_a_resumed_run_repeats_every_bit(tmp_path, stop):
    """Model, moments and numbers, through files."""
    whole = model()
    student = begin(whole)
    history = fit(student, CONFIG, loss_of(whole))
    student.save(tmp_path / "whole", {})

    cut = model()
    student = begin(cut)
    early = fit(student, CONFIG, loss_of(cut), lambda metrics: metrics["step"] < stop)
    student.save(tmp_path / "cut", {"note": "kept"})
    again, _ = load_policy(tmp_path / "cut")
    student = begin(again)
    student.restore(tmp_path / "cut")
    assert student.step == stop
    late = fit(student, CONFIG, loss_of(again))
    student.save(tmp_path / "cut", {})

    assert numbers(early + late) == numbers(history)
    for file in ("model.safetensors", "trainer.safetensors"):
        one, two = (load_file(tmp_path / name / file) for name in ("cut", "whole"))
        assert one.keys() == two.keys()
        assert all(torch.equal(one[name], two[name]) for name in one)


def test_a_checkpoint_of_another_model_or_without_a_step_is_refused(tmp_path):
    policy = model()
    student = begin(policy)
    fit(student, CONFIG, loss_of(policy), lambda metrics: False)
    student.save(tmp_path / "small", {})
    for sizes, reason in (
        ({"width": 16, "layers": 2}, "optimizer.10 is of another shape than its parameter"),
        ({"width": 32, "layers": 1}, "optimizer.0 is of another shape than its parameter"),
    ):
        larger = tiny_llama(len(VOCABULARY), heads=2, **sizes)
        with pytest.raises(ValueError, match=f"the checkpoint in .*small does not fit this model: {reason}"):
            begin(larger).restore(tmp_path / "small")
    notes = json.loads((tmp_path / "small" / "trainer.json").read_text())
    del notes["step"]
    (tmp_path / "small" / "trainer.json").write_text(json.dumps(notes))
    with pytest.raises(ValueError, match="small .*step"):
        begin(policy).restore(tmp_path / "small")


@pytest.mark.parametrize(
    "full",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB."),
        RuntimeError("[enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate memory"),
    ],
    ids=["on a GPU", "on a CPU"],
)
def test_memory_that_runs_out_is_not_taken_for_another_model(tmp_path, monkeypatch, full):
    def load(state):
        raise full

    student = begin(model())
    student.save(tmp_path / "cut", {})
    monkeypatch.setattr(student.optimizer, "load_state_dict", load)
    with pytest.raises(type(full)) as caught:
        student.restore(tmp_path / "cut")
    assert caught.value is full


# --- which rows a step sees ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "batch"), [(12, 4), (10, 4), (7, 3), (3, 8), (1, 4), (5, 5)])
def test_every_row_once_a_pass_in_a_new_order(n, batch):
    """Steps strung together are passes strung together, whether or not a pass ends where a step does."""
    seen = [row for step in range(1, 6 * n + 1) for row in rows_of_step(range(n), step, batch, seed=0)]
    assert len(seen) == 6 * n * batch
    passes = [seen[i : i + n] for i in range(0, len(seen), n)]
    assert all(sorted(one) == list(range(n)) for one in passes)
    if n > 4:
        assert len({tuple(one) for one in passes[:6]}) == 6


def test_the_order_comes_from_the_seed_and_nothing_else():
    one = rows_of_step(range(100), 3, 10, seed=0)
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    assert rows_of_step(range(100), 3, 10, seed=0) == one
    assert torch.equal(before, torch.random.get_rng_state())
    assert rows_of_step(range(100), 3, 10, seed=1) != one
    assert rows_of_step(range(100), 4, 10, seed=0) != one


# --- settings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"steps": 0}, "steps must be at least 1; got 0"),
        ({"batch_size": -1}, "batch_size must be at least 1; got -1"),
        ({"lr": 0.0}, "lr must be above 0; got 0.0"),
        ({"lr": math.nan}, "lr must be a finite number; got nan"),
        ({"lr": math.inf}, "lr must be a finite number; got inf"),
        ({"grad_clip": 0.0}, "grad_clip must be above 0"),
        ({"grad_clip": math.nan}, "grad_clip must be a finite number"),
        ({"warm_up": -1}, "warm_up must be at least 0"),
        ({"weight_decay": -0.1}, "weight_decay must be at least 0"),
        ({"weight_decay": math.inf}, "weight_decay must be a finite number"),
    ],
)
def test_a_setting_out_of_range_is_named(wrong, message):
    with pytest.raises(ValueError, match=message):
        FitConfig(**wrong)
