"""A teacher in the reference's place: what it pays, that it stays outside of checkpoints, and what is refused."""

import dataclasses

import pytest
import torch

from rlhf_minimal import ALGORITHMS, KL
from rlhf_minimal.cli import main
from rlhf_minimal.config import Config
from rlhf_minimal.models import Vocabulary, tiny_llama
from rlhf_minimal.runs import resume_learner, save_learner
from rlhf_minimal.tasks import get_task, random_reward
from rlhf_minimal.train import Recipe, train_step
from rlhf_minimal.train_state import Learner
from rlhf_minimal.training import load_policy, save_policy

EVEN = get_task("even")
VOCABULARY = Vocabulary(EVEN.alphabet)
OPD = ALGORITHMS["opd"]
SMALL = Config(prompts=8, group_size=4, lr=3e-3)


def model(seed):
    return tiny_llama(len(VOCABULARY), width=16, layers=1, heads=2, seed=seed)


def begin(algorithm=OPD, teacher=5, reward=None, **options):
    config = dataclasses.replace(SMALL, **options)
    given = None if teacher is None else model(teacher)
    learner = Learner.begin(model(0), VOCABULARY, algorithm, config, teacher=given)
    return learner, Recipe(algorithm, EVEN, config, reward)


def weights(module):
    return torch.cat([p.detach().flatten() for p in module.parameters()]).clone()


def test_the_student_comes_near_its_teacher_and_the_teacher_stays():
    learner, recipe = begin(teacher=5)
    with torch.no_grad():  # random weights are all near the uniform distribution: sharpen the teacher
        learner.reference.get_output_embeddings().weight.mul_(8.0)
    before = weights(learner.reference)
    distance = [train_step(learner, recipe)["kl_reference"] for _ in range(60)]
    assert sum(distance[-5:]) < 0.5 * sum(distance[:5])
    assert torch.equal(weights(learner.reference), before)


def test_no_outcome_is_paid():
    ends = []
    for reward in (None, random_reward(3)):
        learner, recipe = begin(reward=reward)
        for _ in range(3):
            train_step(learner, recipe)
        ends.append(weights(learner.policy))
    assert torch.equal(*ends)
    assert not torch.equal(ends[0], weights(model(0)))


def test_a_teacher_is_also_what_a_kl_is_measured_against():
    row = dataclasses.replace(ALGORITHMS["grpo"], kl=(KL(0.5, "k3"),))
    learner, recipe = begin(row)
    metrics = train_step(learner, recipe)
    assert metrics["kl"] == pytest.approx(0, abs=1e-9)  # still at its own start
    assert metrics["kl_reference"] > 1e-4


def test_a_checkpoint_does_not_hold_the_teacher_and_is_resumed_with_it(tmp_path):
    learner, recipe = begin()
    train_step(learner, recipe)
    save_learner(learner, tmp_path / "checkpoint", {})
    from safetensors import safe_open

    with safe_open(next((tmp_path / "checkpoint").glob("trainer*.safetensors")), "pt") as file:
        assert not [name for name in file.keys() if name.startswith("reference.")]  # noqa: SIM118
    again = resume_learner(tmp_path / "checkpoint", OPD, recipe.config, "cpu", teacher=model(5))
    for one in (learner, again):
        train_step(one, recipe)
    assert torch.equal(weights(learner.policy), weights(again.policy))
    with pytest.raises(ValueError, match="learns from a teacher alone"):
        resume_learner(tmp_path / "checkpoint", OPD, recipe.config, "cpu")


@pytest.mark.parametrize(
    ("algorithm", "teacher", "options", "message"),
    [
        (OPD, None, {}, "this algorithm learns from a teacher alone"),
        (ALGORITHMS["rloo"], 5, {}, "nothing reads a teacher"),
        (ALGORITHMS["grpo"], 5, {"reference": "refresh"}, "a teacher stands still"),
    ],
)
def test_what_has_no_meaning_is_refused(algorithm, teacher, options, message):
    row = dataclasses.replace(algorithm, kl=()) if algorithm is ALGORITHMS["rloo"] else algorithm
    with pytest.raises(ValueError, match=message):
        begin(row, teacher, **options)


TINY = ["--task", "even", "--start", "untrained", "--steps", "4", "--prompts", "4", "--group-size", "4"]
TINY += ["--held-out", "20", "--save-every", "2", "--out"]


def test_the_command_takes_a_folder_as_teacher_and_resumes(tmp_path, capsys):
    save_policy(tmp_path / "teacher", model(5), VOCABULARY)
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    taught = ["--teacher", str(tmp_path / "teacher")]
    assert main(["train", "opd", *TINY, str(whole), *taught]) == 0
    assert main(["train", "opd", *TINY, str(halves), *taught, "--steps", "2"]) == 0
    assert main(["train", "opd", "--out", str(halves), "--resume", "--steps", "4"]) == 0
    assert torch.equal(*(weights(load_policy(folder)[0]) for folder in (whole, halves)))
    capsys.readouterr()
    assert main(["train", "opd", *TINY, str(tmp_path / "no")]) == 1
    assert "give one, --teacher FOLDER" in capsys.readouterr().err
    other = Vocabulary("abc")
    save_policy(tmp_path / "foreign", tiny_llama(len(other), width=16), other)
    assert main(["train", "opd", *TINY, str(tmp_path / "no"), "--teacher", str(tmp_path / "foreign")]) == 1
    assert "the teacher has another vocabulary" in capsys.readouterr().err
    assert not (tmp_path / "no").exists()
