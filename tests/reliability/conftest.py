"""The server that runs our commands in processes which may be killed."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.commands import rows

HERE = Path(__file__).parent
collect_ignore = ["scenes.py", "server.py"]  # programs of their own, which are run and not imported


@dataclass
class Ended:
    code: int | str
    out: str
    err: str
    changes: list[str]
    seconds: float

    @property
    def line(self):
        """The one line that an error is allowed."""
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        return lines[0]


@pytest.fixture(scope="session")
def command():
    """Runs a command in a process of its own: `command(tmp_path, "train grpo --steps 2", kill_at=7)`."""
    server = subprocess.Popen(
        [sys.executable, str(HERE / "server.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )

    def run(cwd, argv="", **request):
        argv = argv.split() if isinstance(argv, str) else argv
        server.stdin.write(json.dumps({"cwd": str(cwd), "argv": argv, **request}) + "\n")
        server.stdin.flush()
        return Ended(**json.loads(server.stdout.readline()))

    yield run
    server.stdin.close()
    assert server.wait(timeout=20) == 0


def state_of(folder):
    """A checkpoint: parameters, moments, critic, reference, running numbers; no clock and no path."""
    found = {}
    for path in folder.iterdir():
        head, body = path.read_bytes(), b""
        if path.suffix == ".safetensors":  # eight bytes say how long the JSON head is
            length = 8 + int.from_bytes(head[:8], "little")
            head, body = head[8:length], head[length:]
        found[path.name] = json.loads(head), body  # parsed, since what is in a head may stand in any order
    return found


@pytest.fixture(scope="session")
def state():
    return state_of


@pytest.fixture(scope="session")
def same_run():
    """Two run folders hold the same numbers."""

    def check(one, other):
        assert rows(one) == rows(other)
        assert state_of(one / "checkpoint") == state_of(other / "checkpoint")
        assert (one / "evaluation.json").read_text() == (other / "evaluation.json").read_text()
        assert (one / "report.txt").read_text() == (other / "report.txt").read_text()
        assert {path.name for path in one.iterdir()} == {path.name for path in other.iterdir()}  # nothing left over

    return check
