"""`train ppo --reward-model FOLDER` from the command line: both scores in sight, and nothing trained on nonsense."""

import json
import math
import signal

import pytest
import torch

from rlhf_minimal.cli import main
from rlhf_minimal.cli.starts import ASSETS
from rlhf_minimal.models import RewardModel, Vocabulary, tiny_llama
from rlhf_minimal.tasks import get_task
from rlhf_minimal.training import load_policy, write_folder
from rlhf_minimal.training.progress import Progress
from tests.commands import fails, rows

TINY = ["--task", "even", "--start", "untrained", "--prompts", "4", "--group-size", "4", "--held-out", "20"]
PPO = ["train", "ppo", *TINY, "--steps", "4", "--reward-model", "judge"]


@pytest.fixture(autouse=True)
def judge(tmp_path, monkeypatch):
    """An untrained reward model of the task's vocabulary, in ./judge."""
    monkeypatch.chdir(tmp_path)
    vocabulary = Vocabulary(get_task("even").alphabet)
    model = RewardModel.from_policy(tiny_llama(len(vocabulary), width=16, layers=1, heads=2), vocabulary)
    write_folder(tmp_path / "judge", model.save)
    return model


def test_proxy_and_gold_stand_side_by_side(tmp_path, capsys):
    assert main([*PPO, "--out", "run", "--critic", "shared", "--kl-coef", "0.3", "--kl-control", "adaptive"]) == 0
    out = capsys.readouterr().out
    assert "step 4/4  reward" in out
    assert "  gold 0." in out
    settings = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (settings["reward_model"], settings["kl_coef"], settings["critic"]) == ("judge", 0.3, "shared")
    for row in rows(tmp_path / "run"):
        assert row["gold"] == row["accuracy"]  # this task's verifier says 0 or 1
        assert row["reward"] != row["gold"]
    assert rows(tmp_path / "run")[0]["kl_coef"] == 0.3


def test_the_reward_is_the_models_score(tmp_path, judge):
    assert main([*PPO, "--out", "run", "--steps", "1"]) == 0
    seen = []
    score = RewardModel.score

    def noted(self, prompts, completions):
        seen.append(score(self, prompts, completions))
        return seen[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RewardModel, "score", noted)
        assert main([*PPO, "--out", "again", "--steps", "1"]) == 0
    (step,) = [scores for scores in seen if len(scores) == 16]
    assert rows(tmp_path / "again")[0]["reward"] == pytest.approx(step.mean().item())
    assert rows(tmp_path / "run") == rows(tmp_path / "again")


def test_a_stopped_run_goes_on_with_its_reward_model(tmp_path, monkeypatch, capsys):
    assert main([*PPO, "--out", "whole"]) == 0
    draw = Progress.update

    def press_ctrl_c(self, step, metrics):
        draw(self, step, metrics)
        if step == 2:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Progress, "update", press_ctrl_c)
    assert main([*PPO, "--out", "cut"]) == 130
    monkeypatch.setattr(Progress, "update", draw)
    assert main(["train", "ppo", "--out", "cut", "--resume"]) == 0
    assert rows(tmp_path / "cut") == rows(tmp_path / "whole")
    capsys.readouterr()
    again = ["train", "ppo", "--out", "cut", "--resume", "--steps", "6"]
    assert "has reward_model judge, not other" in fails(capsys, *again, "--reward-model", "other")
    (tmp_path / "judge").rename(tmp_path / "elsewhere")
    assert "no checkpoint in judge" in fails(capsys, *again)


def test_a_judge_of_another_vocabulary(tmp_path, capsys):
    other = Vocabulary("0123456789+=")
    model = RewardModel.from_policy(tiny_llama(len(other), width=16, layers=1, heads=2), other)
    write_folder(tmp_path / "other", model.save)
    line = fails(capsys, *PPO[:-1], "other", "--out", "run")
    assert "the reward model has another vocabulary than the policy" in line
    assert not (tmp_path / "run").exists()


def test_a_judge_that_says_nan_is_refused_before_anything_is_written(tmp_path, capsys, judge):
    with torch.no_grad():
        judge.model.score.weight.fill_(math.nan)
    write_folder(tmp_path / "judge", judge.save)
    assert "the reward model scores row 1" in fails(capsys, *PPO, "--out", "run")
    assert not (tmp_path / "run").exists()


def test_a_score_that_turns_nan_in_the_middle_names_the_row_and_leaves_a_whole_checkpoint(
    tmp_path, capsys, monkeypatch
):
    score, steps = RewardModel.score, []

    def breaks(self, prompts, completions):
        scores = score(self, prompts, completions)
        if len(scores) == 16:
            steps.append(1)
            if len(steps) == 3:
                scores[4] = math.nan
        return scores

    monkeypatch.setattr(RewardModel, "score", breaks)
    assert "got nan in row 5, for the prompt" in fails(capsys, *PPO, "--out", "run", "--save-every", "2")
    assert len(rows(tmp_path / "run")) == 2
    load_policy(tmp_path / "run")
    monkeypatch.setattr(RewardModel, "score", score)
    assert main(["train", "ppo", "--out", "run", "--resume"]) == 0
    assert main([*PPO, "--out", "whole", "--save-every", "2"]) == 0
    assert rows(tmp_path / "run") == rows(tmp_path / "whole")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["ppo", "--reward-model", "nowhere"], "no checkpoint in nowhere"),
        (["ppo", "--reward-model", str(ASSETS / "addition")], "holds no reward model"),
        (["ppo", "--reward-model", "judge", "--reward", "random"], "two rewards: give one of them"),
        (["grpo", "--critic", "shared"], "this algorithm has no critic"),
        (["dapo", "--kl-control", "adaptive"], "none above 0"),
        (["dapo", "--kl-coef", "0.1"], "dapo has 0 of them"),
        (["ppo", "--kl-coef", "-1"], "coef"),
        (["ppo", "--target-kl", "0"], "target_kl must be above 0, or None"),
    ],
)
def test_one_line_and_nothing_written(tmp_path, capsys, flags, message):
    assert message in fails(capsys, "train", *flags, *TINY, "--out", "run")
    assert not (tmp_path / "run").exists()
