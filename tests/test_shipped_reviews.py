"""The shipped models of the preference task: a policy that writes like guests, a reward model nearly as good as any."""

import json
import statistics

import pytest

from rlhf_minimal import ALGORITHMS
from rlhf_minimal.cli import main
from rlhf_minimal.cli.starts import ASSETS
from rlhf_minimal.evaluate import MeanScore, evaluate
from rlhf_minimal.lab.reward_model_quality import evaluate_reward_model
from rlhf_minimal.lab.sampled_rows import sample_pairs
from rlhf_minimal.models import load_reward_model
from rlhf_minimal.tasks import get_task
from rlhf_minimal.tasks.reviews import BEST, DISHES
from rlhf_minimal.train import Recipe
from rlhf_minimal.training import load_policy

TASK = get_task("reviews")


@pytest.fixture(scope="module")
def policy():
    return load_policy(ASSETS / "reviews")


@pytest.fixture(scope="module")
def reward_model():
    return load_reward_model(ASSETS / "reviews-reward")


def notes(folder, name):
    return json.loads((ASSETS / folder / name).read_text())


def test_the_policy_scores_as_noted_and_is_far_from_the_best(policy):
    found = evaluate(*policy, Recipe(ALGORITHMS["ppo"], TASK), n=2000, seed="shipped")
    sampled, _ = found.scores
    noted = notes("reviews", "sft.json")["held_out"]["score"]["mean"]
    low, high = sampled.interval
    assert low - 0.25 < noted < high + 0.25  # that mean is of 1000 samples, and has an error of its own
    assert sampled.mean < BEST - 7
    assert (ASSETS / "reviews" / "model.safetensors").stat().st_size < 2_000_000


def test_the_reward_model_is_within_two_points_of_the_best_possible_judge(policy, reward_model):
    """On pairs that nobody has seen, averaged over the labels' noise."""
    found = evaluate_reward_model(reward_model, sample_pairs(*policy, TASK, 4000, split="held_out", seed=12345))
    assert found.bayes - 0.02 < found.expected_accuracy < found.bayes
    assert found.gold_correlation > 0.9
    # calibration: no further from a perfectly calibrated judge's finite-sample error than three standard deviations
    assert found.calibration.error < found.calibration.floor + 3 * found.calibration.spread
    noted = notes("reviews-reward", "reward.json")["held_out"]
    assert found.expected_accuracy == pytest.approx(noted["expected_accuracy"], abs=0.015)
    assert noted["bayes"] - 0.02 < noted["expected_accuracy"]


def test_scores_have_the_unit_that_normalising_gives_them(policy, reward_model):
    pairs = sample_pairs(*policy, TASK, 500, seed=12345)
    answers = [pair.chosen for pair in pairs] + [pair.rejected for pair in pairs]
    scores = reward_model.score([pair.prompt for pair in pairs] * 2, answers)
    assert scores.mean().item() == pytest.approx(0.0, abs=0.15)
    assert scores.std().item() == pytest.approx(1.0, abs=0.1)


def test_the_blind_spot_is_there(reward_model):
    """A word four times is terrible, and the reward model, which never saw that, likes it as much as the best."""
    prompts = [f"mia {dish}?" for dish in DISHES]
    best, flattery, usual = (
        statistics.mean(reward_model.score(prompts, [f"{dish} {rest}" for dish in DISHES]).tolist())
        for rest in ("yum yum wow wow", "yum yum yum yum", "odd hot big dry")
    )
    assert flattery > usual + 1
    assert flattery > best - 0.5


def test_a_graded_task_is_reported_by_its_score(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    argv = "train ppo --task reviews --reward-model shipped --kl-coef 0.05 --steps 2 --prompts 4 --group-size 4".split()
    assert main([*argv, "--held-out", "40", "--out", "run"]) == 0
    out = capsys.readouterr().out
    assert "held-out score (-28 to 9), 10 distinct problems, 4 completions sampled of each" in out
    assert "accuracy" not in out
    assert " gold " in out
    found = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    for moment in ("before", "after"):
        for way in ("sampled", "greedy"):
            one = found[moment][way]
            assert one["low"] < one["mean"] < one["high"] <= BEST + one["high"] - one["mean"]
    assert main(["sample", "run", "-n", "2"]) == 0
    for line in capsys.readouterr().out.splitlines():
        assert line.endswith(")")
        float(line.rsplit("(", 1)[1].rstrip(")"))
    assert main(["evaluate", "run", "-n", "40"]) == 0
    assert "%]" not in capsys.readouterr().out


def test_no_other_task_has_a_shipped_reward_model(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "ppo", "--task", "addition", "--reward-model", "shipped"]) == 1
    assert "no reward model is shipped for the task 'addition'" in capsys.readouterr().err


def test_the_interval_of_a_mean():
    score = MeanScore(2.0, 3.0, 900)
    assert score.interval == pytest.approx((2 - 0.1963, 2 + 0.1963), abs=1e-4)  # Student's t of 899 degrees: 1.9626
    assert str(score) == "2.00 [1.80, 2.20]"
