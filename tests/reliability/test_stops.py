"""A full disk, no memory, a loss that is no number: one clear line, and the last checkpoint as it was."""

import json

import pytest

from rlhf_minimal.training import load_policy
from rlhf_minimal.training.checkpoints import FORMAT

TRAIN = "train grpo --task even --start untrained --steps 6 --prompts 2 --group-size 4 --held-out 4 --save-every 2"
TRAIN += " --out run"


def steps(folder):
    return [json.loads(line)["step"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("loss_is_nan", "error: step 6: the gradient is not finite"),
        ("gradient_is_infinite", "error: step 6: the gradient is not finite"),
        ("cuda_memory", "error: out of memory: raise --micro-batches, or lower --prompts, --group-size or --max-new"),
        ("python_memory", "error: out of memory: raise --micro-batches"),
        ("cpu_memory", "error: out of memory: raise --micro-batches"),
    ],
)
def test_a_step_that_cannot_be_taken_is_one_line_and_the_checkpoint_before_it_stays(command, tmp_path, fault, message):
    assert command(tmp_path, TRAIN.replace("--steps 6", "--steps 2")).code == 0
    ended = command(tmp_path, "train grpo --out run --resume --steps 6 --save-every 1", faults=[fault])
    assert ended.code == 1
    assert message in ended.line
    assert "the checkpoint of step 5 in run/checkpoint is whole" in ended.line
    assert steps(tmp_path / "run") == [1, 2, 3, 4, 5]
    load_policy(tmp_path / "run")
    assert command(tmp_path, "train grpo --out run --resume").code == 0  # without the fault it goes on
    assert steps(tmp_path / "run") == [1, 2, 3, 4, 5, 6]


def test_more_memory_than_there_is(command, tmp_path):
    ended = command(tmp_path, TRAIN.replace("--prompts 2", "--prompts 20000"), limits={"as": 150_000_000}, timeout=120)
    assert ended.code == 1
    assert "error: out of memory: raise --micro-batches" in ended.line


# Small enough for the configs to fail, for the lines of metrics, for the model, and for the trainer's state only.
@pytest.mark.parametrize("size", [100, 2000, 100_000, "model"])
def test_a_full_disk_is_one_line_and_nothing_is_lost(command, tmp_path, size):
    assert command(tmp_path, TRAIN.replace("--steps 6", "--steps 2")).code == 0
    files = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    if size == "model":
        size = len(files[tmp_path / "run" / "checkpoint" / "model.safetensors"]) + 1000
    argv = "train grpo --out run --resume --steps 4 --save-every 1"
    ended = command(tmp_path, argv, limits={"fsize": size})
    assert ended.code == 1
    assert ended.line.startswith("error: cannot write run/")
    assert "File too large; make room, then go on" in ended.line
    checkpoint = tmp_path / "run" / "checkpoint"
    assert all(path.read_bytes() == before for path, before in files.items() if path.parent == checkpoint)
    assert not list((tmp_path / "run").rglob("*.new"))  # nothing half-written is left to fill the disk
    assert command(tmp_path, argv).code == 0  # once there is room
    assert steps(tmp_path / "run") == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "argv", ["sft --steps 2 --rows 99 --batch-size 4 --task addition", "pretrain --steps 2 --accept 9 --held-out 99"]
)
def test_a_full_disk_stops_the_others_too(command, tmp_path, argv):
    ended = command(tmp_path, f"{argv} --out run", limits={"fsize": 1000})
    assert ended.code == 1
    assert "cannot write" in ended.line
    assert "File too large" in ended.line


def test_a_picture_that_finds_no_room_is_named(command, tmp_path):
    ended = command(tmp_path, TRAIN, faults=["no_room_for_the_picture"])
    assert ended.code == 1
    assert ended.line == "error: cannot write run/learning-curve.png: No space left on device; make room, then go on"


def test_a_pipe_that_closes_is_no_traceback(command, tmp_path):
    assert command(tmp_path, "table", faults=["closed_pipe"]).err == ""


# --- verifiers from the command line -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "reason", "options"),
    [
        ("verifier_raises", "ValueError: invalid literal for int() with base 10: 'no\\nnumber'", ""),
        ("verifier_hangs", "TimeoutError: it took longer than 0.02 seconds", " --verifier-timeout 0.02"),
    ],
)
def test_a_failing_verifier_is_told_once_and_counted(command, tmp_path, fault, reason, options):
    ended = command(tmp_path, TRAIN + options, faults=[fault])
    assert ended.code == 0, ended.err
    first, total = ended.err.splitlines()
    assert first.startswith("warning: a verifier or reward function has failed, and its completion gets 0: ")
    assert reason in first
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    errors = sum(row.get("verifier_errors", 0) for row in rows)
    assert total == f"warning: the verifier failed on {errors} completions of this run, which got 0"
    assert 0 < errors < 6 * 8


# --- run folders ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(command, tmp_path_factory):
    folder = tmp_path_factory.mktemp("settings")
    assert command(folder, TRAIN.replace("--steps 6", "--steps 1")).code == 0
    return folder


def changed(run, **settings):
    file = run / "run" / "config.json"
    before = json.loads(file.read_text())
    after = {name: value for name, value in (before | settings).items() if value != "drop"}
    return file, before, after


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lrr": 1.0}, "error: run/config.json: unknown setting 'lrr'; did you mean lr?"),
        ({"colour": "red"}, "unknown setting 'colour'; take it out"),
        ({"steps": "6"}, "steps is '6', and should be int"),
        ({"steps": True}, "steps is True, and should be int"),
        ({"lr": None}, "lr is None, and should be float"),
        ({"reference": "melting"}, "reference is 'melting', and should be Literal['frozen', 'refresh', 'ema']"),
        ({"prompts": 0}, "prompts is 0, and the checkpoint was written with"),
        ({"seed": 10**30}, f"seed is {10**30}, and the checkpoint was written with 0"),
        ({"epochs": "drop"}, "the setting epochs is missing"),
        (
            {"format": "drop"},
            "was written by an older version of rlhf_minimal and cannot be continued by this one: start",
        ),
        (
            {"format": 99},
            f"was written by a newer version of rlhf_minimal (format 99, this one reads {FORMAT})",
        ),
        ({"format": "1"}, "its format is '1', not a number"),
        ({"command": "sft"}, "was made by the command sft, not train"),
    ],
)
def test_a_config_is_checked_when_it_is_read(command, run, settings, message):
    file, before, after = changed(run, **settings)
    file.write_text(json.dumps(after))
    ended = command(run, "train grpo --out run --resume")
    file.write_text(json.dumps(before))
    assert ended.code == 1
    assert message in ended.line


def test_other_versions_are_told_when_a_run_is_resumed(command, run):
    file, before, _ = changed(run)
    before["versions"]["torch"] = "1.0"
    file.write_text(json.dumps(before))
    ended = command(run, "train grpo --out run --resume")
    assert ended.code == 0
    assert ended.line.startswith("warning: run was begun with other versions (torch 1.0 -> ")
    assert command(run, "train grpo --out run --resume").err == ""  # told once: config.json names the new ones now
