"""The supervised start: what the loss counts, and that the shipped start is what its command makes."""

import json
import random

import pytest
import torch

from rlhf_minimal import ALGORITHMS
from rlhf_minimal.cli import main
from rlhf_minimal.cli.starts import ASSETS
from rlhf_minimal.models import Vocabulary, tiny_llama
from rlhf_minimal.tasks import get_task
from rlhf_minimal.training import FitConfig, Recipe, evaluate, imitate, load_policy, supervised_loss


def test_loss_counts_the_answer_and_its_end_and_nothing_of_the_prompt():
    vocabulary = Vocabulary("0123456789+=")
    policy = tiny_llama(13, width=16, heads=2)
    loss = supervised_loss(policy, vocabulary, ["1+2=", "30+4="], ["3", "430"])
    total, tokens = 0.0, 0
    for prompt, answer in (("1+2=", "3"), ("30+4=", "430")):
        ids = [*vocabulary.encode(prompt + answer), vocabulary.eos_id]
        logp = torch.log_softmax(policy(torch.tensor([ids])).logits[0], -1)
        for i in range(len(prompt), len(ids)):
            total, tokens = total - logp[i - 1, ids[i]].item(), tokens + 1
    assert tokens == 6  # two answers of one and three characters, and two ends
    assert loss.item() == pytest.approx(total / tokens, rel=1e-5)


QUICK = FitConfig(steps=30, batch_size=32)


def test_imitation_learns_and_repeats():
    task = get_task("reverse")
    vocabulary = Vocabulary(task.alphabet)
    losses = []
    for _ in range(2):
        policy = tiny_llama(len(vocabulary), width=32, layers=1, heads=2)
        losses.append([])
        imitate(policy, vocabulary, task, QUICK, lambda metrics: losses[-1].append(metrics["loss"]))
    assert losses[0] == losses[1]
    assert losses[0][-1] < losses[0][0] - 0.3  # nats per token


def test_imitation_is_the_loop_written_out():
    """AdamW on fresh problems of the teacher, with a learning rate that rises for fifty steps and falls to zero."""
    task, config = get_task("reverse"), FitConfig(steps=4, batch_size=8, seed=3)
    vocabulary = Vocabulary(task.alphabet)
    mine, other = (tiny_llama(len(vocabulary), width=32, layers=1, heads=2) for _ in range(2))
    mean = imitate(mine, vocabulary, task, config)
    optimizer, losses = torch.optim.AdamW(other.parameters(), weight_decay=0.0), []
    for step in range(1, 5):
        problems = task.problems("train", 8, seed=f"imitate/3/{step}")
        rng = random.Random(f"teacher/3/{step}")
        answers = [task.teacher(problem, rng) for problem in problems]
        loss = supervised_loss(other, vocabulary, [problem.prompt for problem in problems], answers)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(other.parameters(), 1.0)
        optimizer.param_groups[0]["lr"] = 3e-3 * min(step / 50, 1.0, (5 - step) / 4)
        optimizer.step()
        losses.append(loss.item())
    assert mean == sum(losses) / 4
    assert all(torch.equal(a, b) for a, b in zip(mine.parameters(), other.parameters(), strict=True))


def test_a_task_without_a_teacher_cannot_be_imitated():
    task = get_task("even")
    vocabulary = Vocabulary(task.alphabet)
    with pytest.raises(ValueError, match="no teacher"):
        imitate(tiny_llama(len(vocabulary), width=16, heads=2), vocabulary, task)


def shares(folder):
    policy, vocabulary = load_policy(folder)
    result = evaluate(policy, vocabulary, Recipe(ALGORITHMS["reinforce"], get_task("addition")), n=2000, seed="test")
    return result.sampled, result.greedy


def test_the_shipped_start_is_small_and_right_in_under_a_third():
    notes = json.loads((ASSETS / "addition" / "pretrain.json").read_text())
    assert 0.10 < notes["loss"] < 0.13
    assert (ASSETS / "addition" / "model.safetensors").stat().st_size < 2_000_000
    sampled, greedy = shares(ASSETS / "addition")
    assert 0.2 < sampled.share < 1 / 3
    assert 0.1 < greedy.share < 1 / 3
    assert greedy.share < sampled.share  # its most likely answer forgets to carry


def test_the_command_reproduces_the_shipped_start(tmp_path, capsys):
    """About a minute: the real command with its defaults. Equal to the last bit only on an equal machine."""
    assert main(["pretrain", "--out", str(tmp_path / "start")]) == 0
    shipped = json.loads((ASSETS / "addition" / "pretrain.json").read_text())
    made = json.loads((tmp_path / "start" / "config.json").read_text())
    flags = "--task {task} --steps {steps} --batch-size {batch_size} --lr {lr} --seed {seed}".format(**made)
    assert f"python -m rlhf_minimal pretrain {flags}" == shipped["command"]
    evaluation = json.loads((tmp_path / "start" / "evaluation.json").read_text())
    assert evaluation["training_loss"] == pytest.approx(shipped["loss"], abs=0.02)
    for mine, theirs in zip(shares(tmp_path / "start"), shares(ASSETS / "addition"), strict=True):
        assert mine.share == pytest.approx(theirs.share, abs=0.06)
