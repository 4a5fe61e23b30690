"""Several processes on one run: the gradient of one process, and a run folder like any other."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from rlhf_minimal import ALGORITHMS
from rlhf_minimal.lab.processes import Several, launched
from rlhf_minimal.train_state import ALONE

HERE = Path(__file__).parent
LAUNCH = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"]
LAUNCH += ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0"]


def launch(*words, cwd):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE.parent.parent)}
    return subprocess.run(
        [*LAUNCH, *map(str, words)], cwd=cwd, env=environment, capture_output=True, text=True, timeout=300
    )


def test_two_processes_have_the_gradient_of_one_for_every_row(tmp_path):
    run = launch(HERE / "two_processes.py", cwd=tmp_path)
    assert run.returncode == 0, run.stderr[-3000:]
    rows = {line.split()[0]: [float(x) for x in line.split()[1:]] for line in run.stdout.splitlines() if line.strip()}
    # A filter may keep nothing.
    assert rows.keys() >= {name for name, row in ALGORITHMS.items() if row.keep is None and not row.needs_whole_step}
    for name, (step, apart, numbers) in rows.items():
        assert step > 1e-6, f"{name} did not move, so that nothing was compared"
        assert apart < 1e-9, name
        assert numbers < 1e-6, f"{name}: what the two runs watched differs"


def test_a_launched_command_writes_one_run(tmp_path):
    words = ["-m", "rlhf_minimal", "train", "grpo", "--prompts", "4", "--group-size", "4", "--held-out", "9"]
    run = launch(*words, "--steps", "1", "--out", "r", cwd=tmp_path)
    assert run.returncode == 0, run.stderr[-3000:]
    assert run.stdout.count("held-out accuracy, 9 distinct problems") == 1
    assert len((tmp_path / "r" / "metrics.jsonl").read_text().splitlines()) == 1
    # A start takes longer than a run: the one that goes on and the one that is refused share it.
    words, resumed = words[2:], ["--steps", "2", "--out", "r", "--resume", "--tracker", "tensorboard"]
    refused = [*words, "--steps", "1", "--out", "r"]
    run = launch(HERE / "commands_of_two.py", json.dumps([*words, *resumed]), json.dumps(refused), cwd=tmp_path)
    assert len((tmp_path / "r" / "metrics.jsonl").read_text().splitlines()) == 2
    assert list((tmp_path / "r").rglob("events.out.tfevents.*"))
    assert run.returncode != 0
    assert "AssertionError" not in run.stderr
    assert "already holds a run" in run.stderr


@pytest.mark.parametrize("n", [2, 5, 6, 1])
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_shares_are_neighbours_and_together_everything(n, count):
    shares = [list(range(n))[Several(rank, count).share(n)] for rank in range(count)]
    assert [row for share in shares for row in share] == list(range(n))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_alone_everything_stays_what_it_is():
    x = torch.arange(6).view(3, 2)
    assert ALONE.all_gather(x) is x
    assert torch.equal(ALONE.all_reduce_sum(x), x)
    assert torch.equal(ALONE.all_reduce_max(x), x)
    assert ALONE.all_reduce_any(True)
    assert not ALONE.all_reduce_any(False)
    assert ALONE.is_main
    assert launched(torch.device("cpu")) == (ALONE, torch.device("cpu"))


@pytest.mark.parametrize(("name", "words"), [("FSDP", "FSDP"), ("DEEPSPEED", "DeepSpeed")])
def test_a_launcher_that_shards_is_told_where_to_go(monkeypatch, name, words):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv(f"ACCELERATE_USE_{name}", "true")
    with pytest.raises(ValueError, match=f"{words} shards a model.*export --to trl"):
        launched(torch.device("cpu"))
