"""What a model, a file of data or a run folder says is text to the terminal, and never a command to it."""

import json
import unicodedata
import warnings

import pytest
import transformers

import rlhf_minimal
from rlhf_minimal.cli import main, table
from rlhf_minimal.cli.console import in_brief, printable

TINY = ["--prompts", "4", "--group-size", "4", "--held-out", "40", "--steps", "2"]
FIT = ["--rows", "12", "--held-out", "9", "--steps", "2", "--batch-size", "4"]
# Clear the screen, a new title, the clipboard, one-byte CSI, back to the line's beginning, delete, reading order.
COMMANDS = "\x1b\x07\x9b\r\b\x7f\u202e\u2066\u2028"
TASKS = f"""
from rlhf_minimal.tasks import Problem, Task

COMMANDS = {COMMANDS!r}

def share(completion, problem):
    return sum(c in COMMANDS for c in completion) / 8

def show(completion, problem):
    return "picture of " + completion

BAD = Task("bad", "completions that \\x1b]0;owned\\x07 the terminal", "0123456789:" + COMMANDS, 8,
           make=lambda rng: Problem(f"{{rng.randrange(1000)}}" + COMMANDS + ":", COMMANDS[:7]), verify=share,
           teacher=lambda problem, rng: "".join(rng.choice(COMMANDS) for _ in range(4)), picture=show,
           score_range=(0.0, 1.0))
"""
TASK = ["--task", "bad_tasks.py:BAD"]


def commands_in(text):
    """Characters that a terminal may obey; line ends are not among them."""
    bad = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
    return sorted({c for c in text if c != "\n" and unicodedata.category(c) in bad})


@pytest.mark.parametrize("c", [*COMMANDS, "\x00", "\ud800", "\ue000", "\u200b", "\ufeff", "\U000e0041", "\x85"])
def test_what_a_terminal_obeys_is_an_escape(c):
    shown = printable(f"a{c}b")
    assert not commands_in(shown)
    assert shown == "a" + c.encode("unicode_escape", "surrogatepass").decode() + "b"
    assert printable(shown) == shown
    assert not commands_in(in_brief(f"a{c}b\nc"))


@pytest.mark.parametrize(
    "text", ["7", "two\nlines\tof text", "naïve ¿日本語?", "１\u3000２", "a\xa0b", "می\u200cخواهم", "👩\u200d💻"]
)
def test_a_text_stays_as_it_is(text):
    assert printable(text) == text


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("terminal")
    (folder / "bad_tasks.py").write_text(TASKS, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["train", "grpo", *TASK, "--start", "untrained", *TINY[:-1], "10", "--out", "run"]) == 0
    return folder


COMMAND_LINES = {
    "train": ["train", "grpo", *TASK, "--start", "run", *TINY],
    "resume": ["train", "grpo", *TASK, *TINY[:-1], "11", "--out", "run", "--resume"],
    "sample": ["sample", "run", *TASK, "-n", "30"],
    "a prompt of one's own": ["sample", "run", *TASK, "--prompt", "1:"],
    "evaluate": ["evaluate", "run", *TASK, "-n", "20"],
    "sft": ["sft", *TASK, "--start", "run", *FIT],
    "prefer": ["prefer", "dpo", *TASK, "--start", "run", *FIT],
    "reward": ["reward", *TASK, "--start", "run", *FIT],
    "diagnose": ["diagnose", "run"],
}


@pytest.mark.parametrize("name", COMMAND_LINES)
def test_no_command_prints_or_writes_a_control_character(folder, monkeypatch, capsys, recwarn, tmp_path, name):
    monkeypatch.chdir(folder)
    argv = COMMAND_LINES[name]
    out = [] if "--out" in argv or argv[0] in ("sample", "evaluate", "diagnose") else ["--out", str(tmp_path / "out")]
    assert main([*argv, *out]) == 0
    said = capsys.readouterr()
    warned = "".join(str(warning.message) for warning in recwarn)  # which would be printed
    assert not commands_in(said.out + said.err + warned), said
    for report in (*tmp_path.glob("out/report.txt"), folder / "run" / "report.txt"):
        assert not commands_in(report.read_text(encoding="utf-8"))
    if name in ("train", "resume", "sample", "sft"):
        assert r"\x1b" in said.out


def test_what_a_strangers_run_folder_says_is_text(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    file = folder / "run" / "config.json"
    before = file.read_text()
    try:
        settings = json.loads(before)
        settings["algorithm"] = "grpo\x1b[2J"
        settings["versions"]["torch"] = "2\x1b]0;owned\x07"
        file.write_text(json.dumps(settings))
        assert main(["diagnose", "run"]) == 0
        settings["algorithm"] = "grpo"
        file.write_text(json.dumps(settings))
        assert main(["train", "grpo", *TASK, *TINY[:-1], "12", "--out", "run", "--resume"]) == 0
    finally:
        file.write_text(before)
    said = capsys.readouterr()
    assert r"grpo\x1b[2J, " in said.out
    assert r"torch 2\x1b]0;owned\x07 -> " in said.err
    assert not commands_in(said.out + said.err), said


@pytest.mark.parametrize("category", [FutureWarning, DeprecationWarning])
def test_what_a_library_says_of_coming_versions_is_not_the_readers_matter(recwarn, monkeypatch, tmp_path, category):
    """It is said to who calls it: to us, and the weekly tests fail on it. A file of the user's own is his."""
    own = str(tmp_path / "my_rows.py")

    def run(_):
        for file in (transformers.__file__, rlhf_minimal.__file__, own):
            warnings.warn_explicit(f"from {file}", category, file, 1)
            warnings.warn_explicit(f"user's from {file}", UserWarning, file, 2)

        return 0

    monkeypatch.setattr(table, "run", run)
    assert main(["table"]) == 0
    shown = [str(warning.message) for warning in recwarn]
    assert [said for said in shown if said.startswith("from")] == [f"from {own}"]
    assert len([said for said in shown if said.startswith("user")]) == 3
