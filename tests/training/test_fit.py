"""The loop for fixed rows: equal to one written by hand, and a resumed run is equal to one that was never stopped."""

import copy
import json
import math
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from rlhf_minimal.cli.fitting import load_fit, save_fit
from rlhf_minimal.fit import FitConfig, batch_of_step, fit, optimizer_of, supervised_loss
from rlhf_minimal.models import Vocabulary, tiny_llama
from rlhf_minimal.training import load_policy, save_policy

VOCABULARY = Vocabulary("abc:")
ROWS = [("a:", "b"), ("b:", "cc"), ("c:", "a"), ("ab:", "abc"), ("ca:", ""), ("bb:", "b")]
CONFIG = FitConfig(steps=6, batch_size=4, lr=1e-2, warm_up=2, weight_decay=0.1, grad_clip=0.5, seed=3)


def model(seed=0):
    return tiny_llama(len(VOCABULARY), width=16, layers=1, heads=2, seed=seed)


def save(folder, policy, optimizer, step, notes=None):
    save_fit(folder, lambda new: save_policy(new, policy, VOCABULARY), optimizer, step, notes or {})


def loss_of(policy):
    def loss(rows):
        prompts, completions = zip(*rows, strict=True)
        return supervised_loss(policy, VOCABULARY, list(prompts), list(completions))

    return loss


def run(policy, config=CONFIG, **options):
    return fit(policy, ROWS, loss_of(policy), config, **options)


def numbers(history):
    return [{name: value for name, value in metrics.items() if name != "seconds"} for metrics in history]


def test_it_is_a_loop_written_by_hand():
    """AdamW from its paper, with the clipped gradient and the learning rate of the step, in float64."""
    policy = model().double()
    mine = copy.deepcopy(policy)
    history = run(policy)
    parameters = list(mine.parameters())
    first = [torch.zeros_like(p) for p in parameters]
    second = [torch.zeros_like(p) for p in parameters]
    for step in range(1, 7):
        value = loss_of(mine)(batch_of_step(ROWS, step, 4, 3))
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
    rates = [metrics["lr"] for metrics in run(policy, config)]
    assert rates == pytest.approx([0.01 * x for x in (1 / 3, 2 / 3, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8)])
    config = replace(CONFIG, steps=2, warm_up=0)
    policy = model()
    rates = [metrics["lr"] for metrics in run(policy, config)]
    assert rates == pytest.approx([0.01, 0.005])


@pytest.mark.parametrize("damage", ["the loss", "its gradient"])
def test_a_step_that_is_not_finite_is_not_taken(damage):
    policy, bad_step, kept = model(), 3, []
    loss = loss_of(policy)

    def damaged(rows):
        value = loss(rows)
        if len(kept) + 1 < bad_step:
            return value
        if damage == "the loss":
            return value * math.inf
        zero = sum(p.sum() for p in policy.parameters()) * 0.0
        return value + torch.sqrt(zero)  # finite, with a slope that is not

    with pytest.raises(ValueError, match="step 3: the loss is .* lower --lr"):
        fit(policy, ROWS, damaged, CONFIG, on_step=lambda metrics: kept.append(copy.deepcopy(policy.state_dict())))
    assert len(kept) == 2
    assert all(torch.equal(value, policy.state_dict()[name]) for name, value in kept[-1].items())


def test_it_stops_when_it_is_told_to_and_goes_on_from_there():
    policy = model()
    options = {"optimizer": optimizer_of(policy, CONFIG)}
    assert [m["step"] for m in run(policy, on_step=lambda metrics: metrics["step"] < 2, **options)] == [1, 2]
    assert [m["step"] for m in run(policy, done=2, on_step=lambda metrics: None, **options)] == [3, 4, 5, 6]
    assert run(policy, done=6, **options) == []


def test_rows_may_be_made_for_each_step_and_a_loss_may_come_with_metrics():
    one, other = model(), model()
    plain, loss = run(one), loss_of(other)

    def made(step):
        return batch_of_step(ROWS, step, CONFIG.batch_size, CONFIG.seed)

    both = fit(other, made, lambda rows: (loss(rows), {"rows": len(rows)}), CONFIG)
    assert numbers(both) == [{**metrics, "rows": 4} for metrics in numbers(plain)]
    assert all(torch.equal(*pair) for pair in zip(one.parameters(), other.parameters(), strict=True))
    with pytest.raises(ValueError, match="there is no row to train on"):
        fit(one, [], loss_of(one), CONFIG)


@pytest.mark.parametrize("stop", [1, 3, 5])
def test_a_resumed_run_repeats_every_bit(tmp_path, stop):
    """Model, moments and numbers, through files."""
    whole = model()
    optimizer = optimizer_of(whole, CONFIG)
    history = run(whole, optimizer=optimizer)
    save(tmp_path / "whole", whole, optimizer, 6)

    cut = model()
    optimizer = optimizer_of(cut, CONFIG)
    early = run(cut, optimizer=optimizer, on_step=lambda metrics: metrics["step"] < stop)
    save(tmp_path / "cut", cut, optimizer, stop, {"note": "kept"})
    again, _ = load_policy(tmp_path / "cut")
    optimizer = optimizer_of(again, CONFIG)
    assert load_fit(tmp_path / "cut", optimizer) == stop
    late = run(again, optimizer=optimizer, done=stop)
    save(tmp_path / "cut", again, optimizer, 6)

    assert numbers(early + late) == numbers(history)
    for file in ("model.safetensors", "trainer.safetensors"):
        one, two = (load_file(tmp_path / name / file) for name in ("cut", "whole"))
        assert one.keys() == two.keys()
        assert all(torch.equal(one[name], two[name]) for name in one)


def test_a_checkpoint_of_another_model_or_without_a_step_is_refused(tmp_path):
    policy = model()
    optimizer = optimizer_of(policy, CONFIG)
    run(policy, optimizer=optimizer, on_step=lambda metrics: False)
    save(tmp_path / "small", policy, optimizer, 1)
    for sizes, reason in (
        ({"width": 16, "layers": 2}, "optimizer.10 is of another shape than its parameter"),
        ({"width": 32, "layers": 1}, "optimizer.0 is of another shape than its parameter"),
    ):
        larger = tiny_llama(len(VOCABULARY), heads=2, **sizes)
        with pytest.raises(ValueError, match=f"the checkpoint in .*small does not fit this model: {reason}"):
            load_fit(tmp_path / "small", optimizer_of(larger, CONFIG))
    notes = json.loads((tmp_path / "small" / "trainer.json").read_text())
    del notes["step"]
    (tmp_path / "small" / "trainer.json").write_text(json.dumps(notes))
    with pytest.raises(ValueError, match="small .*step"):
        load_fit(tmp_path / "small", optimizer)


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

    policy = model()
    optimizer = optimizer_of(policy, CONFIG)
    save(tmp_path / "cut", policy, optimizer, 0)
    monkeypatch.setattr(optimizer, "load_state_dict", load)
    with pytest.raises(type(full)) as caught:
        load_fit(tmp_path / "cut", optimizer)
    assert caught.value is full


# --- which rows a step sees ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "batch"), [(12, 4), (10, 4), (7, 3), (3, 8), (1, 4), (5, 5)])
def test_every_row_once_a_pass_in_a_new_order(n, batch):
    """Steps strung together are passes strung together, whether or not a pass ends where a step does."""
    seen = [row for step in range(1, 6 * n + 1) for row in batch_of_step(range(n), step, batch, seed=0)]
    assert len(seen) == 6 * n * batch
    passes = [seen[i : i + n] for i in range(0, len(seen), n)]
    assert all(sorted(one) == list(range(n)) for one in passes)
    if n > 4:
        assert len({tuple(one) for one in passes[:6]}) == 6


def test_the_order_comes_from_the_seed_and_nothing_else():
    one = batch_of_step(range(100), 3, 10, seed=0)
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    assert batch_of_step(range(100), 3, 10, seed=0) == one
    assert torch.equal(before, torch.random.get_rng_state())
    assert batch_of_step(range(100), 3, 10, seed=1) != one
    assert batch_of_step(range(100), 4, 10, seed=0) != one


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
