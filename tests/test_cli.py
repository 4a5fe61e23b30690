"""The command line, called in-process: a run from start to end, and one clear line for everything that can go wrong."""

import io
import json
import os
import re
import shutil
import signal
from dataclasses import fields
from pathlib import Path

import pytest
import torch
import transformers

from rlhf_minimal import ALGORITHMS
from rlhf_minimal.cli import ELSEWHERE, main, parser
from rlhf_minimal.cli.starts import ASSETS
from rlhf_minimal.cli.train_flags import REAL_MODEL_LR
from rlhf_minimal.config import Config
from rlhf_minimal.metrics import METRICS
from rlhf_minimal.models import tiny_llama
from rlhf_minimal.tasks import get_task
from rlhf_minimal.training import load_policy
from rlhf_minimal.training.progress import Progress
from tests.commands import fails, rows

ROOT = Path(__file__).resolve().parents[1]
TINY = ["--prompts", "4", "--group-size", "4", "--held-out", "20"]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a run without --out must land under the current folder, and only there


def press_ctrl_c(patch, at):
    update = Progress.update

    def pressing(self, step, metrics):
        update(self, step, metrics)
        if step == at:
            signal.raise_signal(signal.SIGINT)

    patch.setattr(Progress, "update", pressing)


# --- a run ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("drawn")
def test_train_leaves_a_whole_run_behind_and_sample_and_evaluate_read_it(tmp_path, capsys):
    assert main(["train", "grpo", "--steps", "3", "--out", "run", *TINY]) == 0
    out = capsys.readouterr().out
    assert "held-out accuracy, 20 distinct problems, 95 % interval" in out
    assert "step 3/3  reward" in out
    run = tmp_path / "run"
    expected = {"config.json", "metrics.jsonl", "evaluation.json", "report.txt", "learning-curve.png", "checkpoint"}
    assert {path.name for path in run.iterdir()} == expected | {"run.lock"}
    settings = json.loads((run / "config.json").read_text())
    assert (settings["algorithm"], settings["steps"], settings["prompts"]) == ("grpo", 3, 4)
    assert [row["step"] for row in rows(run)] == [1, 2, 3]
    assert set().union(*rows(run)) <= set(METRICS)
    assert (run / "learning-curve.png").read_bytes().startswith(b"\x89PNG")
    evaluation = json.loads((run / "evaluation.json").read_text())
    assert evaluation["after"]["greedy"]["n"] == 20

    assert main(["sample", "run", "-n", "3"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert main(["sample", "run", "--prompt", "123+456=", "--temperature", "0"]) == 0
    prompt, answer = capsys.readouterr().out.split()
    assert prompt == "123+456="
    assert set(answer) <= set("0123456789+=")
    assert main(["evaluate", "run/checkpoint", "-n", "10"]) == 0
    assert "held out: 10 distinct problems, 95 % interval" in capsys.readouterr().out


def test_right_completions_are_written_as_rows_that_sft_trains_on(tmp_path, capsys):
    sampled = ["sample", "start", "-n", "40", "--group-size", "4", "--rows"]
    assert main([*sampled, "made/right.jsonl"]) == 0
    out = capsys.readouterr().out
    right, every = tmp_path / "made" / "right.jsonl", tmp_path / "every.jsonl"
    assert main([*sampled, "every.jsonl", "--keep", "all"]) == 0
    kept, written = ([json.loads(line) for line in file.read_text().splitlines()] for file in (right, every))
    assert f"wrote {len(kept)} of 160 completions of 40 training problems into made/right.jsonl" in out
    task = get_task("addition")
    for row in written:
        a, b = row["prompt"][:-1].split("+")
        assert (row in kept) == (row["completion"] == f"{int(a) + int(b):04d}"[::-1])
        assert not task.is_held_out(row["prompt"])
    start = str(ASSETS / "addition")
    assert main(["sft", "--data", "made/right.jsonl", "--start", start, "--steps", "2", "--out", "student"]) == 0


def test_without_a_name_sample_takes_the_newest_run(tmp_path, capsys):
    assert "train first" in fails(capsys, "sample")
    assert main(["train", "dr_grpo", "--steps", "1", *TINY]) == 0
    (run,) = (tmp_path / "runs").iterdir()
    assert run.name.startswith("dr_grpo-addition-")
    capsys.readouterr()
    assert main(["sample", "-n", "1"]) == 0
    assert run.name in capsys.readouterr().err


def test_the_newest_run_is_one_of_a_policy(tmp_path, capsys):
    assert main(["train", "dr_grpo", "--steps", "1", *TINY, "--out", "runs/policy"]) == 0
    scores = tmp_path / "runs" / "scores"
    scores.mkdir()
    (scores / "metrics.jsonl").write_text("")
    settings = json.loads((tmp_path / "runs" / "policy" / "config.json").read_text())
    (scores / "config.json").write_text(json.dumps({**settings, "command": "reward"}))
    os.utime(scores / "metrics.jsonl", (2**31, 2**31))
    capsys.readouterr()
    assert main(["evaluate", "-n", "2"]) == 0
    assert "newest run: runs/policy" in capsys.readouterr().err
    (tmp_path / "runs" / "policy" / "metrics.jsonl").unlink()
    assert "no run of a policy under runs/" in fails(capsys, "sample")


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_row_trains_from_the_command_line(tmp_path, name):
    pieces = "1" if ALGORITHMS[name].needs_whole_step else "2"
    options = ["--steps", "2", "--epochs", "2", "--minibatches", "2", "--micro-batches", pieces]
    if ALGORITHMS[name].needs_teacher:
        options += ["--teacher", "shipped"]
    assert main(["train", name, *options, *TINY, "--out", "run"]) == 0
    assert len(rows(tmp_path / "run")) == 2
    load_policy(tmp_path / "run")


def test_the_default_run_mends_the_start(capsys):
    """`make train` itself, its first half: under a third before, over nine tenths at its end in all recorded seeds.

    No setting reads how many steps there are, so these hundred are the first of the recorded two hundred.
    """
    record = json.loads((ROOT / "notebooks" / "results" / "learning-curve.json").read_text())
    runs = [run for run in record["runs"] if run["reward"] == "verifier"]
    assert len(runs) == 5
    assert min(run[f"after_{how}"] for run in runs for how in ("sampled", "greedy")) > 0.9
    assert runs[0]["command"] == "python -m rlhf_minimal train grpo --seed 0 --reward verifier"  # both are the defaults

    assert main(["train", "grpo", "--out", "run", "--steps", "100"]) == 0
    evaluation = json.loads(open("run/evaluation.json").read())
    for how in ("sampled", "greedy"):
        assert evaluation["before"][how]["share"] < 1 / 3
        assert evaluation["after"][how]["share"] > 0.85
    settings = json.loads(open("run/config.json").read())
    assert (settings["seed"], settings["reward"], Config().steps) == (0, "verifier", len(runs[0]["accuracy"]))
    # Another machine may round differently and draw a few other tokens: at the step a share of 512 completions.
    accuracy = [row["accuracy"] for row in rows(Path("run"))]
    assert accuracy[:2] == pytest.approx(runs[0]["accuracy"][:2], abs=0.05)
    assert sum(accuracy[80:]) / 20 == pytest.approx(sum(runs[0]["accuracy"][80:100]) / 20, abs=0.07)


def test_other_tasks_and_settings(tmp_path):
    options = ["--task", "even", "--start", "untrained", "--steps", "2"]
    options += ["--reward", "random", "--reference", "ema", "--value-clip", "0.2"]
    assert main(["train", "ppo", *options, *TINY, "--out", "run"]) == 0
    settings = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (settings["task"], settings["start"], settings["reward"]) == ("even", "untrained", "random")
    assert settings["value_clip"] == 0.2
    # and from another run's checkpoint
    again = ["train", "rloo", "--start", "run", "--steps", "1", *TINY, "--out", "second"]
    assert main(again) == 0
    second = json.loads((tmp_path / "second" / "config.json").read_text())
    assert (second["start"], second["task"]) == ("run", "even")  # that of the run, unless another is named
    assert main([*again, "--resume"]) == 0


def test_every_setting_of_the_loop_has_a_flag_and_a_line_of_help():
    helps = {action.dest: action.help for action in commands()["train"]._actions}
    for field in fields(Config):
        assert helps[field.name], field.name


def commands():
    return next(action.choices for action in parser()._actions if hasattr(action, "add_parser"))


@pytest.mark.parametrize("name", commands())
def test_help_is_written_in_sentences(name):
    sub = commands()[name]
    sub.format_help()
    for text in [sub.description, *(action.help for action in sub._actions)]:
        assert text[0].isupper(), text
        assert text.endswith("."), text
        assert ".." not in text.replace("...", ""), text


def test_a_default_is_said_as_it_is():
    """What help says of a flag and what a run gets come from one place."""
    for name, value in {"save_every": 25, "held_out": 1000, "max_kl": 0.01, "steps": Config().steps}.items():
        (text,) = [action.help for action in commands()["train"]._actions if action.dest == name]
        assert text.endswith(f"(default {value}).")
    for action in commands()["train"]._actions:
        if action.dest in ("lr", "value_lr"):
            assert f"{REAL_MODEL_LR:g} for a real model" in action.help


def test_help_speaks_of_flags_and_of_what_holds_without_one():
    """The same sentences stand in Python's docstrings, with fields' names and None."""
    for name, sub in commands().items():
        for action in sub._actions:
            assert not re.search(r"\bNone\b|`|=\"|[a-z]_[a-z]+ ", action.help.replace("gspo_token", "")), (
                name,
                action.help,
            )
    helps = {action.dest: action.help for action in commands()["train"]._actions}
    assert helps["max_new_tokens"] == "Token budget of a completion (default the task's)."
    assert "With a number here or in --value-minibatches, --target-kl no longer ends" in helps["value_epochs"]
    assert helps["value_epochs"].endswith("(default those of the policy).")
    assert "in the mean of --baseline ema, per step" in helps["baseline_decay"]


@pytest.mark.parametrize(
    ("row", "flag", "value"),
    [
        *(("dr_grpo", flag, value) for flag, value in (("--value-clip", "0.2"), ("--value-lr", "0.1"))),
        *(("grpo", flag, value) for flag, value in (("--value-coef", "1"), ("--value-head-init", "normal"))),
        *(("dr_grpo", flag, value) for flag, value in (("--baseline", "greedy"), ("--reference", "ema"))),
        *(("remax", flag, value) for flag, value in (("--baseline", "greedy"), ("--baseline-decay", "0.5"))),
        *(("grpo", "--max-refills", "2"), ("grpo --kl-coef 0", "--reference", "ema")),
    ],
)
def test_a_flag_that_the_row_does_not_read_is_refused(tmp_path, capsys, row, flag, value):
    said = fails(capsys, "train", *row.split(), flag, value, *TINY)
    assert f"{flag} changes nothing for {row.split()[0]}: leave it out" in said
    assert not list(tmp_path.iterdir())


def test_a_run_that_has_nothing_to_learn_from_says_so_and_ends_well(capsys):
    flags = ["--task", "reverse", "--start", "untrained", "--max-refills", "1", "--steps", "3", "--out", "run"]
    assert main(["train", "dapo", *flags, *TINY]) == 0
    assert "stopped early at step 1: in 2 rounds of 4 problems the algorithm kept no group" in capsys.readouterr().out


def test_pretrain_writes_a_start_that_train_takes(tmp_path, capsys):
    quick = ["pretrain", "--task", "reverse", "--steps", "5", "--batch-size", "8", "--held-out", "10"]
    message = fails(capsys, *quick)
    assert "the start is not accepted: its training loss is" in message
    start = tmp_path / "runs" / "start-reverse"
    assert not (start / "evaluation.json").exists()
    assert "already holds a run" in fails(capsys, *quick)
    assert "the start is not accepted" in fails(capsys, "pretrain", "--out", str(start), "--resume")
    assert main(["pretrain", "--out", str(start), "--resume", "--accept", "9"]) == 0  # it is taken as it is
    assert json.loads((start / "evaluation.json").read_text())["sampled"]["n"] == 10
    assert json.loads((start / "config.json").read_text())["accept"] == 9
    assert main(["pretrain", "--out", str(start), "--resume"]) == 0  # what was accepted once stays accepted
    assert main([*quick, "--accept", "9", "--overwrite"]) == 0
    train = ["train", "grpo", "--task", "reverse", "--steps", "1", *TINY, "--out", "run"]
    assert main([*train, "--start", str(start)]) == 0


def test_an_imitation_that_is_stopped_goes_on_as_if_it_was_not(tmp_path, monkeypatch):
    quick = ["pretrain", "--steps", "5", "--batch-size", "8", "--held-out", "10", "--accept", "9", "--save-every", "2"]
    assert main([*quick, "--out", "whole"]) == 0
    with monkeypatch.context() as patch:
        press_ctrl_c(patch, 3)
        assert main([*quick, "--out", "cut"]) == 130
    assert main(["pretrain", "--out", "cut", "--resume"]) == 0
    assert rows(tmp_path / "cut") == rows(tmp_path / "whole")
    one, two = (load_policy(tmp_path / name)[0].state_dict() for name in ("cut", "whole"))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_table_and_diff(capsys):
    assert main(["table"]) == 0
    assert "| `gspo` |" in (shown := capsys.readouterr().out)
    assert "| `icepop` |" not in shown
    assert main(["table", "--all"]) == 0
    assert {f"| `{name}` |" in shown for shown in [capsys.readouterr().out] for name in ALGORITHMS} == {True}
    assert main(["diff", "grpo", "gspo"]) == 0
    assert "ratio: token -> sequence" in capsys.readouterr().out
    assert main(["diff", "grpo", "grpo"]) == 0
    assert capsys.readouterr().out == "no cell differs\n"


# --- stopping and going on -----------------------------------------------------------------------------------------


def test_ctrl_c_saves_and_resume_repeats_the_uninterrupted_numbers(tmp_path, capsys, monkeypatch):
    arguments = ["train", "ppo", "--steps", "5", *TINY]
    assert main([*arguments, "--out", "whole"]) == 0

    with monkeypatch.context() as patch:
        press_ctrl_c(patch, 2)
        assert main([*arguments, "--out", "cut"]) == 130
    assert "--resume" in capsys.readouterr().out
    assert len(rows(tmp_path / "cut")) == 2
    load_policy(tmp_path / "cut")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

    assert main(["train", "ppo", "--out", "cut", "--resume"]) == 0
    assert rows(tmp_path / "cut") == rows(tmp_path / "whole")
    one, two = (load_policy(tmp_path / name)[0].state_dict() for name in ("cut", "whole"))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_the_same_words_and_resume_go_on(tmp_path, capsys):
    """What is kept of a start and of a teacher is what was given, and not how the library found them."""
    words = ["train", "opd", "--start", "shipped", "--teacher", "shipped", "--steps", "1", *TINY, "--out", "run"]
    assert main(words) == 0
    assert main([*words, "--resume"]) == 0
    settings = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (settings["start"], settings["teacher"]) == ("shipped", "shipped")
    capsys.readouterr()
    assert "has start shipped, not untrained" in fails(capsys, *words, "--resume", "--start", "untrained")


def test_a_run_folder_of_an_older_version_goes_on(tmp_path):
    """It keeps descriptions in place of names, which can be loaded as well."""
    train = ["train", "opd", "--teacher", "shipped", *TINY]
    assert main([*train, "--steps", "2", "--out", "whole"]) == 0
    assert main([*train, "--steps", "1", "--out", "run"]) == 0
    for file in ("config.json", "checkpoint/trainer.json"):
        kept = json.loads((tmp_path / "run" / file).read_text())
        described = kept | dict.fromkeys(("start", "teacher"), "shipped (addition)")
        (tmp_path / "run" / file).write_text(json.dumps(described))
    assert main(["train", "opd", "--out", "run", "--resume", "--steps", "2"]) == 0
    assert rows(tmp_path / "run") == rows(tmp_path / "whole")


def test_a_crash_between_two_checkpoints_is_resumed_from_the_last_one(tmp_path, capsys, monkeypatch):
    arguments = ["train", "grpo", "--steps", "5", "--save-every", "2", *TINY]
    assert main([*arguments, "--out", "whole"]) == 0
    update = Progress.update

    def crash(self, step, metrics):
        if step == 4:
            raise MemoryError  # before the checkpoint of step 4, after its line in metrics.jsonl
        update(self, step, metrics)

    monkeypatch.setattr(Progress, "update", crash)
    line = fails(capsys, *arguments, "--out", "cut")
    assert "out of memory: raise --micro-batches, or lower --prompts" in line
    assert "the checkpoint of step 2 in cut/checkpoint is whole" in line
    monkeypatch.setattr(Progress, "update", update)
    assert len(rows(tmp_path / "cut")) == 4
    assert main(["train", "grpo", "--out", "cut", "--resume"]) == 0
    assert rows(tmp_path / "cut") == rows(tmp_path / "whole")


def test_a_finished_run_can_be_made_longer_but_not_otherwise_changed(tmp_path, capsys):
    assert main(["train", "grpo", "--steps", "2", *TINY, "--out", "run"]) == 0
    assert "lr 0.0008, not 0.1" in fails(capsys, "train", "grpo", "--out", "run", "--resume", "--lr", "0.1")
    assert "algorithm grpo" in fails(capsys, "train", "gspo", "--out", "run", "--resume")
    assert main(["train", "grpo", "--out", "run", "--resume", "--steps", "3"]) == 0
    assert len(rows(tmp_path / "run")) == 3


# --- what can go wrong ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["train", "grop"], "unknown algorithm 'grop'; did you mean grpo?"),
        (["train", "grpo", "--task", "sums"], "unknown task 'sums'; choose one of addition"),
        (
            ["train", "grpo", "--task", "reasoning-gym:lcm"],
            "reasoning-gym:lcm is written in plain language, and this start",
        ),
        (["train", "grpo", "--task", "reasoning-gym:lcm", "--start", "START"], "give a real model with --model NAME"),
        (["train", "grpo", "--task", "reasoning-gym:lmc"], "reasoning-gym has no dataset 'lmc'; did you mean lcm?"),
        (["train", "grpo", "--task", "exact:none.jsonl"], "cannot read none.jsonl: No such file"),
        (["evaluate", "START", "--task", "reasoning-gym:lcm"], "give a real model with --model NAME"),
        (["train", "grpo", "--device", "abacus"], "cannot use the device 'abacus'"),
        (["train", "grpo", "--device", "meta:x"], "cannot use the device"),
        (["train", "grpo", "--start", "nowhere"], "no checkpoint in nowhere"),
        (["train", "grpo", "--start", "hf:nobody/nothing"], "cannot load the model 'nobody/nothing'"),
        (["train", "grpo", "--task", "even", "--start", "START"], "is written in"),
        (["train", "grpo", "--steps", "0"], "steps must be at least 1"),
        (["train", "grpo", "--steps", "many"], "invalid int value: 'many'"),
        (["train", "grpo", "--lr", "-1"], "lr must be above 0"),
        (["train", "grpo", "--group-size", "1"], "--group-size must be at least 2"),
        (["train", "grpo", "--reward", "applause"], "invalid choice: 'applause'"),
        (["train", "grpo", "--save-every", "0"], "--save-every must be at least 1"),
        (["train", "grpo", "--held-out", "0"], "--held-out must be at least 1"),
        (["train", "grpo", "--resume"], "--resume needs --out"),
        (["train", "grpo", "--resume", "--out", "nowhere"], "no run in nowhere"),
        (["train", "grpo", "--out", "file/run"], "cannot write"),
        (["train", "grpo", "--out", "file"], "is a file"),
        (["train", "grpo", "--out", "full"], "holds files that do not belong to a run"),
        (["train", "grpo", "--out", "full", "--overwrite"], "holds files that do not belong to a run"),
        (["train"], "one of the arguments ALGORITHM --row is required"),
        (["train", "grpo", "--row", "rows.py:MINE"], "not allowed with argument ALGORITHM"),
        (["train", "grpo", "--task", "reverse"], "make one with `pretrain --task reverse --out runs/start-reverse`"),
        (["train", "grpo", "--task", "even"], "would begin with random weights: name one with --start FOLDER, or give"),
        (["pretrain", "--task", "even"], "no teacher"),
        (["pretrain", "--out", "file/start"], "cannot write"),
        (["pretrain", "--out", "full", "--overwrite"], "holds files that do not belong to a run"),
        (["pretrain", "--steps", "0"], "steps must be at least 1"),
        (["pretrain", "--device", "abacus"], "cannot use the device"),
        (["sample", "nowhere"], "no checkpoint in nowhere"),
        (
            ["sample", "start", "--prompt", "hello"],
            "characters h, e, l, o of 'hello' are not in this model's alphabet 0123456789+=",
        ),
        (["sample", "start", "--prompt", ""], "the prompt is empty"),
        (["sample", "start", "--task", "reverse"], "no checkpoint in"),
        (["sample", "start", "-n", "0"], "-n"),
        (["sample", "start", "--keep", "all"], "give --rows FILE.jsonl as well"),
        (["sample", "start", "--rows", "file"], "file exists already: name a new file"),
        (["sample", "start", "--rows", "file/rows"], "cannot write"),
        (["sample", "start", "--rows", "new", "--prompt", "1"], "--rows asks training problems"),
        (["sample", "start", "--rows", "new", "--group-size", "0"], "--group-size must be at least 1"),
        (["evaluate", "start", "-n", "0"], "error: -n must be at least 1"),
        (["evaluate", "start", "--device", "abacus"], "'abacus': expected cpu, cuda or mps"),
        (["evaluate", "start", "--device", "tpu"], "'tpu': expected cpu, cuda or mps"),
        (["evaluate", "start", "--device", "xla"], "'xla': expected cpu, cuda or mps"),
        (["diff", "grpo", "nothing"], "unknown algorithm 'nothing'"),
        (["dance"], "invalid choice: 'dance'"),
        ([], "required: COMMAND"),
    ],
)
def test_one_line_and_nothing_written(tmp_path, capsys, argv, message):
    (tmp_path / "file").write_text("a file where a folder should be")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("precious")
    argv = [str(ASSETS / "addition") if word == "START" else word for word in argv]
    assert message in fails(capsys, *argv)
    assert {path.name for path in tmp_path.iterdir()} == {"file", "full"}
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize(
    ("argv", "flag"),
    [
        (("train", "grpo", "--stpes", "3"), "--steps"),
        (("train", "grpo", "--learning-rate", "3"), "--lr"),
        (("train", "grpo", "--num_generations=8"), "--group-size"),
        (("train", "grpo", "--Max_Completion_Lenght", "8"), "--max-new-tokens"),
        (("sft", "--lerning-rate", "3"), "--lr"),
        (("memory", "grpo", "--sequence_s", "3"), "--sequences"),
    ],
)
def test_an_unknown_flag_is_answered_with_the_one_that_was_meant(capsys, argv, flag):
    assert f"did you mean {flag}?" in fails(capsys, *argv)


@pytest.mark.parametrize("argv", [("train", "grpo", "--foo", "3"), ("table", "--learning-rate", "3"), ("table", "3")])
def test_no_flag_is_guessed_where_none_is_near(capsys, argv):
    assert "did you mean" not in fails(capsys, *argv)


def test_what_other_libraries_call_a_flag_is_no_flag_of_train_and_leads_to_one():
    known = parser("train").parse_args(["train", "grpo"]).flags
    assert {*ELSEWHERE.values()} <= {*known}
    assert not {*ELSEWHERE} & {*known}


def test_a_run_is_not_overwritten_by_accident(tmp_path, capsys):
    assert main(["train", "grpo", "--steps", "1", *TINY, "--out", "run"]) == 0
    before = rows(tmp_path / "run")
    again = ["train", "grpo", "--steps", "2", *TINY, "--out", "run"]
    assert "already holds a run: --resume continues it, --overwrite replaces it" in fails(capsys, *again)
    assert rows(tmp_path / "run") == before
    assert main([*again, "--overwrite"]) == 0
    assert len(rows(tmp_path / "run")) == 2


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of one step, for tests that harm a copy of it."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    assert main(["train", "grpo", "--steps", "1", *TINY, "--out", str(folder)]) == 0
    return folder


@pytest.mark.parametrize("file", ["model.safetensors", "config.json", "vocabulary.json"])
@pytest.mark.parametrize("command", ["sample", "evaluate", "train"])
def test_a_corrupt_checkpoint_is_one_line(trained, tmp_path, capsys, file, command):
    shutil.copytree(trained, tmp_path / "run")
    (tmp_path / "run" / "checkpoint" / file).write_text("{ corrupt")
    argv = ["train", "grpo", "--out", "run", "--resume"] if command == "train" else [command, "run"]
    assert "cannot read the checkpoint in run" in fails(capsys, *argv)


def test_a_corrupt_run_is_one_line(trained, tmp_path, capsys):
    shutil.copytree(trained, tmp_path / "run")
    (tmp_path / "run" / "config.json").write_text("{ corrupt")
    assert "damaged" in fails(capsys, "train", "grpo", "--out", "run", "--resume")
    assert "damaged" in fails(capsys, "sample", "run")


# --- the progress line ---------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def __init__(self, live):
        super().__init__()
        self.live = live

    def isatty(self):
        return self.live


def test_the_progress_line_is_redrawn_in_a_terminal_and_plain_elsewhere(monkeypatch):
    for live in (True, False):
        stream = Terminal(live)
        monkeypatch.setattr("sys.stdout", stream)
        progress = Progress(50, {"reward": ".2f"}, every=25)
        for step in range(1, 51):
            progress.update(step, {"reward": step / 50, "other": 1.0})
        progress.close()
        text = stream.getvalue()
        assert "reward 1.00  done" in text
        assert text.count("reward") == (50 if live else 3)  # without a terminal: steps 1, 25 and 50
        assert ("\r" in text) == live
        assert text.endswith("\n")


def test_a_run_that_keeps_no_start_finds_it_again_when_it_is_resumed(tmp_path, capsys):
    command = ["train", "dr_grpo", "--task", "even", "--start", "untrained", "--watch-kl", "off", *TINY]
    assert main([*command, "--out", "whole", "--steps", "4"]) == 0
    whole = capsys.readouterr().out.splitlines()
    assert main([*command, "--out", "run", "--steps", "2"]) == 0
    capsys.readouterr()
    assert main(["train", "dr_grpo", "--out", "run", "--resume", "--steps", "4", *TINY]) == 0
    resumed = capsys.readouterr().out.splitlines()
    held_out = [line for line in whole if line.startswith(("sampled", "greedy"))]
    assert len(held_out) == 2
    assert held_out == [line for line in resumed if line.startswith(("sampled", "greedy"))]
    assert rows(tmp_path / "run") == rows(tmp_path / "whole")


# --- trust regions and memory --------------------------------------------------------------------------------------


def test_a_run_in_a_trust_region_keeps_its_bound_and_resumes(tmp_path, capsys):
    even = ["--task", "even", "--start", "untrained"]
    trpo = ["train", "grpo", *even, "--optimizer", "trpo", "--max-kl", "0.02", "--out", "run", *TINY]
    assert main([*trpo, "--steps", "2"]) == 0
    settings = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (settings["optimizer"], settings["max_kl"]) == ("trpo", 0.02)
    assert all(0 <= row["step_kl"] <= 0.02 for row in rows(tmp_path / "run"))
    assert main(["train", "grpo", "--out", "run", "--resume", "--steps", "4", *TINY]) == 0
    assert main([*trpo[: -len(TINY) - 1], "whole", "--steps", "4", *TINY]) == 0
    assert rows(tmp_path / "run") == rows(tmp_path / "whole")
    assert len(rows(tmp_path / "run")) == 4
    capsys.readouterr()
    assert "has max_kl 0.02, not 0.1" in fails(
        capsys, "train", "grpo", "--out", "run", "--resume", "--max-kl", "0.1", *TINY
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["reinforce", "--optimizer", "trpo"], "ratio is always 1"),
        (["ppo", "--optimizer", "trpo", "--critic", "shared"], "shares the policy's body"),
        (["grpo", "--optimizer", "trpo", "--target-kl", "0.1"], "target_kl"),
        (["grpo", "--optimizer", "trpo", "--max-kl", "0"], "max_kl is 0.0"),
        (["grpo", "--max-kl", "0.1"], "--optimizer trpo"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_does_not_fit_a_trust_region_is_said_before_anything_is_written(tmp_path, capsys, options, message):
    assert message in fails(capsys, "train", *options, "--out", "run", *TINY)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("flag", ["--lr", "--grad-clip", "--adam-eps", "--epochs", "--minibatches"])
def test_what_a_trust_region_does_not_read_is_refused(tmp_path, capsys, flag):
    """A step has no learning rate and no minibatches; where there is a critic, AdamW trains it with all but `lr`."""
    value, trpo = "2" if flag in ("--epochs", "--minibatches") else "0.01", ["--optimizer", "trpo", "--steps", "1"]
    said = fails(capsys, "train", "grpo", *trpo, flag, value, *TINY)
    assert f"{flag} changes nothing with --optimizer trpo: leave it out, or give --optimizer adamw" in said
    assert not list(tmp_path.iterdir())
    words = ["train", "ppo", *trpo, flag, value, "--out", "run", *TINY]
    if flag == "--lr":
        assert "--lr changes nothing with --optimizer trpo" in fails(capsys, *words)
    else:
        assert main(words) == 0


def test_memory_prints_the_ledger(tmp_path, capsys):
    assert main(["memory", "ppo", "--reward-model", "policy"]) == 0
    printed = capsys.readouterr().out
    assert [line.split()[1] for line in printed.splitlines()[2:7]] == ["policy", "critic", "reference", "reward", "all"]
    assert "| 40.02 |" in printed
    assert "at once, at most" in printed
    assert main(["memory", "grpo", "--precision", "mixed", "--sequences", "4", "--sampled", "64"]) == 0
    assert "| 18.00 |" in capsys.readouterr().out  # the frozen reference costs 2 instead of 4
    tiny_llama(12, width=16, layers=1, heads=2).config.save_pretrained(tmp_path / "small")
    assert main(["memory", "ppo", "--critic-start", "small"]) == 0
    counted = {line.split()[1]: line.split()[3] for line in capsys.readouterr().out.splitlines()[2:5]}
    assert counted["policy"] == counted["reference"] != counted["critic"]
    most = []
    for more in ([], ["--precision", "bfloat16"], ["--gradient-checkpointing", "on"], ["--lora-rank", "2"]):
        assert main(["memory", "grpo", "--sequences", "64", *more]) == 0
        most.append(float(re.search(r"at most: ([0-9.]+) MiB", capsys.readouterr().out).group(1)))
    assert max(most[1:]) < most[0]  # each of train's means saves something
    config = transformers.GPT2Config(n_embd=8, n_layer=1, n_head=2)
    config.save_pretrained(tmp_path / "other")
    assert main(["memory", "grpo", "--model", "other", "--reward-model", "other"]) == 0
    printed = capsys.readouterr().out
    assert "not known" in printed
    assert "at once" not in printed


def test_memory_says_what_it_cannot_count(tmp_path, capsys):
    assert "cannot read the config of the model 'nowhere'" in fails(capsys, "memory", "grpo", "--model", "nowhere")
    assert "unknown algorithm" in fails(capsys, "memory", "grp")
    assert "an algorithm with a critic" in fails(capsys, "memory", "grpo", "--critic-start", "nowhere")
    assert "context is 64" in fails(capsys, "memory", "grpo", "--prompt-length", "64")
    assert "sequences is 0" in fails(capsys, "memory", "grpo", "--sequences", "0")
    assert "invalid choice: 'float8'" in fails(capsys, "memory", "grpo", "--precision", "float8")
