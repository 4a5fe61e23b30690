"""A bound for all processes of a submission together: a control group (version 2) of the kernel, where one can be had.

`systemd-run` makes one, for an ordinary user too. As root, or in a part of the tree that was handed over, one is made
by hand. Where neither works only a process is bounded, and `isolation.Process` watches what all of them take.
"""

import contextlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import launch

PREFIX = "rlhf-course-"
SPARE = 8  # processes of the walls themselves
KINDS = ("systemd", "by hand")
SAYS = {
    "systemd": "a control group (systemd-run) bounds memory, files in memory included, "
    "and processes of all together",
    "by hand": "a control group bounds memory, files in memory included, and processes "
    "of all together",
    "": "memory of all processes together and files in memory are only watched",
}


@dataclass
class Group:
    """The control group of one submission.

    Args:
        name: its last part; no other group is ever touched.
        words: the words before the command that put it in there.
        joins: or the file into which `launch.py` writes.
        folder: where it is, as soon as that is known.
    """

    name: str
    words: list[str]
    joins: str = ""
    folder: Path | None = None

    def find(self, pid: int) -> Path | None:
        """Its folder, seen from a process that should be in it."""
        if self.folder is None:
            found = Path(launch.group_folder(str(pid)))
            self.folder = found if found.name == self.name else None
        return self.folder

    def ran_out(self, pid: int) -> bool:
        """Whether the kernel has ended one of its processes for its memory."""
        folder = self.find(pid)
        try:
            said = (folder / "memory.events").read_text() if folder else ""
        except OSError:
            return False
        counts = dict(line.split() for line in said.splitlines())
        return int(counts.get("oom_kill", 0)) > 0

    def kill(self, pid: int) -> None:
        """End all that is in it."""
        folder = self.find(pid)
        if folder is not None:
            with (
                contextlib.suppress(OSError),
                open(folder / "cgroup.kill", "r+") as file,
            ):
                file.write("1")

    def remove(self) -> None:
        """Remove a group that was made by hand; systemd removes its own."""
        if self.joins and self.folder is not None:
            for _ in range(50):  # the last process may still be on its way out
                with contextlib.suppress(OSError):
                    self.folder.rmdir()
                if not self.folder.exists():
                    return
                time.sleep(0.02)


def environment() -> dict[str, str]:
    """What `systemd-run` needs to find the user's own systemd."""
    known = {"PATH": os.environ.get("PATH", "/usr/bin:/bin")}
    runtime = f"/run/user/{os.getuid()}"
    if os.path.isdir(runtime):
        known["XDG_RUNTIME_DIR"] = runtime
    for name in ("XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"):
        if name in os.environ:
            known[name] = os.environ[name]
    return known


def make(kind: str, memory: int, processes: int) -> Group | None:
    """A group with these bounds, still empty; None if this way cannot be had.

    Args:
        kind: one of `KINDS`, or "" for none.
        memory: bytes, of all together; nothing is swapped out.
        processes: how many, threads included.
    """
    name = f"{PREFIX}{secrets.token_hex(6)}"
    if kind == "systemd" and shutil.which("systemd-run"):
        whose = [] if os.geteuid() == 0 else ["--user"]
        words = ["systemd-run", *whose, "--scope", "--quiet", "--collect"]
        words += [f"--unit={name}.scope", "-p", f"MemoryMax={memory}"]
        words += ["-p", "MemorySwapMax=0", "-p", f"TasksMax={processes + SPARE}"]
        return Group(f"{name}.scope", words)
    if kind == "by hand":
        for parent in _parents():
            folder = parent / name
            try:
                folder.mkdir()
                (folder / "memory.max").write_text(str(memory))
                (folder / "pids.max").write_text(str(processes + SPARE))
                for file, value in (
                    ("memory.swap.max", "0"),
                    ("memory.oom.group", "1"),
                ):
                    with contextlib.suppress(OSError):  # older kernels
                        (folder / file).write_text(value)
                return Group(name, [], str(folder / "cgroup.procs"), folder)
            except OSError:
                with contextlib.suppress(OSError):
                    folder.rmdir()
    return None


def _parents() -> Iterator[Path]:
    """Groups below which a bounded one can be made, the nearest first: the bounds on this process stay."""
    own = launch.group_folder()
    for folder in (Path(own), *Path(own).parents) if own else ():
        try:
            controls = (folder / "cgroup.subtree_control").read_text().split()
        except OSError:
            return  # above the tree
        if {"memory", "pids"} <= set(controls):
            yield folder


def best(memory: int, processes: int) -> str:
    """The first of `KINDS` that works here: a process is started, and says what bounds it finds itself under."""
    for kind in KINDS:
        group = make(kind, memory, processes)
        if group is None:
            continue
        try:
            said = json.loads(started(group, []))
            page = os.sysconf("SC_PAGE_SIZE")
            right = str(memory // page * page), str(processes + SPARE)
            if Path(said["folder"]).name == group.name and right == (
                said.get("memory.max"),
                said.get("pids.max"),
            ):
                return kind
        except (OSError, ValueError, subprocess.SubprocessError):
            continue
        finally:
            group.remove()
    return ""


def started(group: Group, command: list[str], seconds: float = 20.0) -> bytes:
    """What a command says that runs in a group, without other limits; for trials."""
    with tempfile.TemporaryDirectory(prefix=PREFIX) as folder:
        path = Path(folder, "start.json")
        path.write_text(start(group, command, {}))
        return subprocess.run(
            [*words(group), str(path)],
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            timeout=seconds,
        ).stdout


def words(group: Group | None) -> list[str]:
    """The command that starts `launch.py`, but for the file that it reads."""
    before = [] if group is None else group.words
    return [*before, sys.executable, "-I", "-S", launch.__file__]


def start(group: Group | None, command: list[str], limits: dict[str, int]) -> str:
    """What `launch.py` reads."""
    given: dict[str, Any] = {
        "joins": "" if group is None else group.joins,
        "parent": os.getpid(),
        "limits": limits,
        "command": command,
    }
    return json.dumps(given)
