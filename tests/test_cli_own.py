"""A row, or a task, of one's own from the command line: a Python file that the user names."""

import json
import signal

import pytest

from rlhf_minimal.cli import main
from rlhf_minimal.training.progress import Progress
from tests.commands import fails, rows

TINY = ["--prompts", "4", "--group-size", "4", "--held-out", "10", "--steps", "3"]
ROWS = """
from dataclasses import replace
from functools import partial
from rlhf_minimal import ALGORITHMS
from rlhf_minimal.functional import gates

WIDE = replace(ALGORITHMS["dr_grpo"], gate=partial(gates.clip, low=0.2, high=0.4))
NUMBER = 3
"""
TASKS = """
from rlhf_minimal.tasks import Problem, Task

LETTER = "0"  # what the verifier reads when it is called

def begins_with_it(completion, problem):
    return float(completion.startswith(LETTER))

FIRST = Task("first", "an answer that begins with 0", "0123456789:", 2,
             make=lambda rng: Problem(f"{rng.randrange(1000)}:", "0"), verify=begins_with_it,
             teacher=lambda problem, rng: rng.choice("0123456789"))
"""
OWN = ["--row", "my_rows.py:WIDE"]
TASK = ["--task", "my_tasks.py:FIRST", "--start", "untrained"]


@pytest.fixture(autouse=True)
def _files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_rows.py").write_text(ROWS)
    (tmp_path / "my_tasks.py").write_text(TASKS)


def stop_at(patch, at):
    update = Progress.update

    def pressing(self, step, metrics):
        update(self, step, metrics)
        if step == at:
            signal.raise_signal(signal.SIGINT)

    patch.setattr(Progress, "update", pressing)


def test_the_program_of_a_start_is_not_run_unless_it_is_named(tmp_path, capsys):
    assert main(["train", *OWN, *TASK, *TINY, "--out", "first"]) == 0
    (tmp_path / "my_tasks.py").write_text(TASKS + "\nopen('it-was-run', 'w').close()\n")
    for words in (["train", "grpo"], ["sft"], ["prefer", "dpo"]):
        said = fails(capsys, *words, "--start", "first")
        assert "say with --task what is to be learnt: the run in first has my_tasks.py:FIRST" in said
    assert not (tmp_path / "it-was-run").exists()


def test_both_train_stop_and_go_on(tmp_path, capsys, monkeypatch):
    assert main(["train", *OWN, *TASK, *TINY, "--out", "whole"]) == 0
    settings = json.loads((tmp_path / "whole" / "config.json").read_text())
    assert (settings["algorithm"], settings["task"]) == ("my_rows.py:WIDE", "my_tasks.py:FIRST")
    assert {len(checksum) for checksum in settings["programs"].values()} == {64}
    with monkeypatch.context() as patch:
        stop_at(patch, 1)
        assert main(["train", *OWN, *TASK, *TINY, "--out", "cut"]) == 130
    said = capsys.readouterr().out.splitlines()[-1].partition(" rlhf_minimal ")[2]
    assert said == "train --row my_rows.py:WIDE --task my_tasks.py:FIRST --out cut --resume"
    assert main(said.split()) == 0
    assert rows(tmp_path / "cut") == rows(tmp_path / "whole")
    capsys.readouterr()
    assert main(["sample", "whole", "--task", "my_tasks.py:FIRST", "-n", "2"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_a_row_of_ones_own_is_that_row(tmp_path):
    """Where it is one of the table's, the run is the table's."""
    (tmp_path / "my_rows.py").write_text("from rlhf_minimal import ALGORITHMS\nWIDE = ALGORITHMS['rloo']\n")
    assert main(["train", *OWN, *TINY, "--out", "own"]) == 0
    assert main(["train", "rloo", *TINY, "--out", "table"]) == 0
    assert rows(tmp_path / "own") == rows(tmp_path / "table")


def test_the_other_commands_take_them(capsys):
    assert main(["diff", "dr_grpo", "my_rows.py:WIDE"]) == 0
    assert "gate: clip(low=0.2, high=0.2) -> clip(low=0.2, high=0.4)" in capsys.readouterr().out
    assert main(["table", *OWN]) == 0
    assert "| `WIDE` | `group_centered` |" in capsys.readouterr().out
    assert main(["memory", *OWN]) == 0
    assert "policy" in capsys.readouterr().out
    assert main(["train", *OWN, *TINY, "--out", "run"]) == 0
    assert "run only if you name it: add --row my_rows.py:WIDE" in fails(capsys, "export", "run", "--to", "trl")
    assert main(["export", "run", "--to", "trl", *OWN]) == 0


def test_a_task_of_ones_own_gets_its_start_from_pretrain(tmp_path, capsys):
    message = fails(capsys, "train", "grpo", "--task", "my_tasks.py:FIRST", *TINY)
    assert "make one with `pretrain --task my_tasks.py:FIRST --out runs/start-first` and give --start" in message
    quick = ["--steps", "2", "--batch-size", "8", "--accept", "9", "--held-out", "9"]
    assert main(["pretrain", "--task", "my_tasks.py:FIRST", *quick]) == 0
    start = ["--task", "my_tasks.py:FIRST", "--start", "runs/start-first"]
    assert main(["train", "grpo", *start, *TINY, "--out", "run"]) == 0
    assert main(["sft", "--task", "my_tasks.py:FIRST", "--start", "untrained", "--rows", "9", *quick[:4]]) == 0


def test_a_file_that_is_gone_or_changed_stops_a_resumed_run(tmp_path, capsys):
    assert main(["train", *OWN, *TASK, *TINY, "--out", "run"]) == 0
    capsys.readouterr()
    again = ["train", *OWN, *TASK[:2], "--out", "run", "--resume", "--steps", "4"]
    assert "add --task my_tasks.py:FIRST" in fails(capsys, *again[:3], *again[5:])
    assert "has algorithm my_rows.py:WIDE, not grpo" in fails(capsys, "train", "grpo", *again[3:])
    (tmp_path / "my_rows.py").write_text(ROWS + "\n")
    assert "my_rows.py has changed since the run was begun" in fails(capsys, *again)
    (tmp_path / "my_rows.py").unlink()
    assert "cannot read my_rows.py: No such file" in fails(capsys, *again)
    (tmp_path / "my_rows.py").write_text(ROWS)
    assert main(again) == 0
    assert len(rows(tmp_path / "run")) == 4


@pytest.mark.parametrize("words", ["sample run", "evaluate run -n 3"])
def test_a_run_does_not_run_its_task_by_itself(tmp_path, capsys, words):
    assert main(["train", "grpo", *TASK, *TINY, "--out", "run"]) == 0
    capsys.readouterr()
    assert "a Python program, which is run only if you name it" in fails(capsys, *words.split())
    assert "only tasks of the library are exported" in fails(capsys, "export", "run", "--to", "trl")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--row", "my_rows.py"], "names no value of a Python file: write FILE.py:NAME"),
        (["--row", "grpo"], "names no value of a Python file: write FILE.py:NAME"),
        (
            ["--row", "my_rows.py:NARROW"],
            "there is no NARROW, and an rlhf_minimal Algorithm is needed; the file defines",
        ),
        (["--row", "my_rows.py:NUMBER"], "my_rows.py: NUMBER is 3, and an rlhf_minimal Algorithm is needed"),
        (["--row", "my_tasks.py:FIRST"], "and an rlhf_minimal Algorithm is needed; the file defines none"),
        (["--row", "nowhere.py:MINE"], "cannot read nowhere.py: No such file"),
        (["--row", "folder.py:MINE"], "cannot read folder.py: Is a directory"),
        (["--row", "syntax.py:MINE"], "syntax.py, line 2: "),
        (["--row", "raises.py:MINE"], "raises.py, line 4: ZeroDivisionError: division by zero"),
        (["--row", "exits.py:MINE"], "exits.py, line 2: SystemExit: 3"),
        (["--row", "neighbour.py:MINE"], "syntax.py, line 2: "),
        (["grpo", "--task", "my_tasks.py:LAST"], "an rlhf_minimal Task is needed; the file defines FIRST"),
        (["grpo", "--task", "my_tasks.py"], "unknown task 'my_tasks.py'"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line(tmp_path, capsys, words, message):
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "syntax.py").write_text("x = 1\ny = = 2\n")
    (tmp_path / "raises.py").write_text("\n\ndef f():\n    return 1 / 0\n\nf()\n")
    (tmp_path / "exits.py").write_text("import sys\nsys.exit(3)\n")
    (tmp_path / "neighbour.py").write_text("import syntax\n")
    before = {path.name for path in tmp_path.iterdir()}
    assert message in fails(capsys, "train", *words, *TINY, "--out", "run")
    assert {path.name for path in tmp_path.iterdir()} - {"__pycache__"} == before


STEPS = """
def first_half(prompts, completions, problem, **columns):
    return [[(len(text) // 2, 1.0)] if len(text) > 1 else [] for text in completions]

NUMBER = 3
"""


def test_a_step_reward_of_ones_own_reaches_the_run(tmp_path, capsys):
    (tmp_path / "my_steps.py").write_text(STEPS)
    own = ["--step-reward", "my_steps.py:first_half", "--task", "clock10", "--start", "untrained"]
    assert main(["train", "grpo", *own, *TINY, "--out", "run"]) == 0
    assert all(row["step_mark"] == 1.0 for row in rows(tmp_path / "run"))
    settings = json.loads((tmp_path / "run" / "config.json").read_text())
    assert settings["step_reward"] == "my_steps.py:first_half"
    assert "my_steps.py:first_half" in settings["programs"]
    more = ["train", "grpo", "--out", "run", "--resume", "--steps", "4"]
    assert "is run only if you name it: add --step-reward my_steps.py:first_half" in fails(capsys, *more)
    assert main([*more, *own[:2]]) == 0
    assert "and a function is needed; the file defines first_half" in fails(
        capsys, "train", "grpo", "--step-reward", "my_steps.py:NUMBER", "--out", "other"
    )


def test_the_tasks_own_checker_marks_steps(tmp_path, capsys):
    own = ["--step-reward", "task", "--start", "untrained"]
    assert main(["train", "grpo", *own, "--task", "clock10", *TINY, "--out", "run"]) == 0
    assert any("steps" in row for row in rows(tmp_path / "run"))
    message = fails(capsys, "train", "grpo", *own, "--task", "even", *TINY, "--out", "other")
    assert "the task 'even' cannot check steps: give a step reward of your own" in message


def test_a_sample_of_a_task_with_a_picture_shows_it(tmp_path, capsys):
    assert main(["train", "grpo", "--start", "untrained", "--task", "clock10", *TINY, "--out", "run"]) == 0
    capsys.readouterr()
    assert main(["sample", "run", "-n", "2"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("     abcdefghij\n     ^") == 2
