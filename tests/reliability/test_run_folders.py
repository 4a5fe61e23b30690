"""One writer at a time, and nobody changes what a resumed run rests on without being told."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rlhf_minimal.cli import main
from rlhf_minimal.training.run_folder import RunFolder
from tests.commands import fails

TINY = ["--prompts", "2", "--group-size", "2", "--held-out", "2", "--save-every", "1"]
TRAIN = ["train", "grpo", *TINY, "--steps", "2", "--out", "run"]
MORE = ["train", "grpo", "--out", "run", "--resume", "--steps", "3"]
SFT = [
    "sft",
    "--task",
    "reviews",
    "--rows",
    "8",
    "--batch-size",
    "4",
    "--steps",
    "2",
    "--held-out",
    "4",
    "--out",
    "run",
]
HOLD = """
import sys
from rlhf_minimal.training.run_folder import RunFolder
folder = RunFolder(sys.argv[1])
folder.hold()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(TRAIN) == 0
    return folder / "run"


@pytest.fixture
def run(trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return shutil.copytree(trained, tmp_path / "run")


@pytest.fixture
def other(run):
    """Another process that is writing into the run."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(run)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()


def contents(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_run_has_one_writer_until_that_has_died(run, other, capsys):
    before = contents(run)
    for words in (MORE, [*TRAIN, "--overwrite"]):
        said = fails(capsys, *words)
        assert f"process {other.pid} is writing into run: wait until it has ended" in said
    assert contents(run) == before
    other.kill()  # with no time to clean up
    other.wait()
    assert main(MORE) == 0
    assert [row["step"] for row in RunFolder(run).history()] == [1, 2, 3]


def test_reading_a_run_needs_no_lock(run, other):
    assert main(["evaluate", "run", "-n", "2"]) == 0
    assert main(["sample", "run", "-n", "1"]) == 0


def test_systems_without_such_locks_go_on_without(run, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)
    assert main(MORE) == 0
    assert "lock" not in capsys.readouterr().err


def test_a_folder_with_nothing_but_the_lock_is_known_for_ours(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.lock").write_text("1\n")
    assert "killed before it began: --overwrite starts it again" in fails(capsys, *TRAIN)
    assert main([*TRAIN, "--overwrite"]) == 0


@pytest.mark.parametrize(
    ("name", "value"), [("lr", 0.5), ("seed", 7), ("reward", "random"), ("task", "even"), ("kl_coef", 0.0)]
)
def test_edited_settings_are_noticed(run, name, value, capsys):
    settings = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**settings, name: value}))
    said = fails(capsys, *MORE)
    assert f"{name} is {value!r}, and the checkpoint was written with {settings[name]!r}: put it back" in said
    (run / "config.json").write_text(json.dumps({**settings, "save_every": 5}))  # may change
    assert main(MORE) == 0


@pytest.mark.parametrize("damage", ["shortened", "doubled", "empty"])
def test_metrics_that_lack_steps_are_noticed(run, damage, capsys):
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    changed = {"shortened": lines[1:], "doubled": [lines[0], *lines], "empty": []}[damage]
    (run / "metrics.jsonl").write_text("".join(changed))
    assert "for the 2 steps of the checkpoint" in fails(capsys, *MORE)
    assert (run / "metrics.jsonl").read_text() == "".join(changed)


def test_changed_answers_are_noticed(chat_model, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [{"prompt": f"What is {i}?", "answer": "1"} for i in range(60)]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["--model", str(chat_model), "--task", "exact:rows.jsonl", "--max-new-tokens", "2"]
    assert main([*TRAIN, *words]) == 0
    before = Path("rows.jsonl").read_text()
    Path("rows.jsonl").write_text(before.replace('"1"}', '"2"}'))
    assert "rows.jsonl has changed since the run was begun" in fails(capsys, *MORE)
    Path("rows.jsonl").write_text(before)
    assert main(MORE) == 0


@pytest.mark.parametrize("name", ["rows.jsonl", "held-out.jsonl"])
def test_changed_rows_of_a_run_folder_are_noticed(name, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(SFT) == 0
    file = tmp_path / "run" / name
    file.write_text(file.read_text().replace("yum", "bad"))
    assert f"{name} has changed since the run was begun" in fails(capsys, "sft", "--out", "run", "--resume")


@pytest.mark.parametrize("what", ["file", "link to a file", "link to a folder", "dangling link"])
@pytest.mark.parametrize("name", ["checkpoint.new", "checkpoint.old"])
def test_what_stands_in_the_way_of_a_checkpoint_is_removed_and_nothing_else(run, what, name, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("mine")
    if what == "file":
        (run / name).write_text("stray")
    else:
        target = {"link to a file": "mine/file", "link to a folder": "mine", "dangling link": "nothing"}[what]
        (run / name).symlink_to(tmp_path / target)
    assert main(MORE) == 0
    assert (tmp_path / "mine" / "file").read_text() == "mine"
    assert RunFolder(run).whole_step() == 3


def test_a_checkpoint_that_is_a_link_is_saved_twice(run, tmp_path):
    shutil.move(run / "checkpoint", tmp_path / "elsewhere")
    (run / "checkpoint").symlink_to(tmp_path / "elsewhere")
    before = contents(tmp_path / "elsewhere")
    assert main([*MORE[:-1], "4"]) == 0
    assert RunFolder(run).whole_step() == 4
    assert contents(tmp_path / "elsewhere") == before
