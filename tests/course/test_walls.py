"""Each way to put walls around a submission, by itself, as the user who runs the tests.

Where a machine has not got one its tests are skipped with the reason, or fail if RLHF_WALLS names it. What is run
behind the walls here is a short script in the worker's place: it needs no torch, and starts at once.
"""

import json
import os
import platform
import re
import select
import signal
import socket
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rlhf_book.course import bounds, grading, isolation, launch
from rlhf_book.course.grading import Grader
from rlhf_book.course.isolation import Limits, Process
from tests.course.conftest import missing, readable
from tests.course.submitted import DEMANDED, FULL, LIMITS, ROOT, SECOND, SEED, WEEKS, hand_in, points

SMALL = Limits(seconds=20.0, memory=256 * 2**20, processes=24)


@pytest.fixture
def behind(tmp_path):
    """Start a script behind walls; it is ended with the test."""
    going = []

    def start(way, script, limits=SMALL):
        folder = tmp_path / f"library-{len(going)}"
        folder.mkdir()
        (folder / "worker.py").write_text(textwrap.dedent(script))
        (folder / "worker.py").chmod(0o644)
        going.append(Process(way, readable(folder), limits))
        return going[-1]

    yield start
    for process in going:
        process.end()


def line(process, seconds=30.0):
    """The next line that it prints; "" when it has ended."""
    said, pipe = b"", process.popen.stdout.fileno()
    while not said.endswith(b"\n"):
        assert select.select([pipe], [], [], seconds)[0], "it says nothing"
        part = os.read(pipe, 1)
        if not part:
            return ""
        said += part
    return said.decode().strip()


# ── what works behind each, and what does not ────────────────────────────────────────────────────────────────────────

LOOPS = """
def my_masked_mean(x, mask):
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass
"""


def test_a_notebook_is_graded_and_a_loop_costs_its_own_exercise(each_way, library, tmp_path, monkeypatch):
    from rlhf_book.exercises import exercise

    monkeypatch.setattr(exercise, "_SECONDS", 3.0)
    monkeypatch.setattr(grading, "DRAWS", 40)
    grader = Grader(WEEKS, SEED, 99, each_way, LIMITS, library)
    rows = grader.grade(hand_in(tmp_path, "a/week-01.ipynb", "while True: pass", LOOPS, SECOND))
    assert points(rows) == [0, FULL[1]], rows
    assert "longer than" in rows[0].says
    assert "cell 1 left out: it took longer than" in rows[0].note


PROBES = """
import json, os, shutil, signal, socket

def tried(f, *given):
    try:
        f(*given)
    except BaseException:
        return 0
    return 1

def written(path):
    with open(path, "a") as file:
        file.write("forged")

def filled(folder, most):
    count = 0
    try:
        for k in range(3):
            with open(f"{folder}/{k}", "wb") as file:
                while file.tell() < most:
                    count += file.write(bytes(2**16))
                    file.flush()
    except OSError:
        pass
    return count

def forks():
    made = []
    for _ in range(100):
        try:
            pid = os.fork()
        except OSError:
            break
        if pid == 0:
            signal.pause()
            os._exit(0)
        made.append(pid)
    for pid in made:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return len(made)

given = GIVEN
said = {
    "read": [path for path in given["files"] if tried(lambda: open(path).read())],
    "written": [path for path in given["places"] if tried(written, path)],
    "reached": [a for a in given["addresses"] if tried(lambda: socket.create_connection(a, timeout=1).close())],
    "killed": [p for p in given["processes"] if os.path.exists(f"/proc/{p}/cmdline") and tried(os.kill, p, 0)],
    "became root": tried(os.setuid, 0) if os.getuid() else 0,
    "made": tried(os.mkdir, "/work-of-mine"),
    "removed": tried(lambda: [shutil.rmtree(p) for p in ("/usr", "/course")]),
    "home": tried(written, os.environ["HOME"] + "/mine"),
    "forks": forks(),
    "filled": {p: filled(p, given["most"]) for p in ("/scratch", "/tmp", "/dev/shm") if os.path.isdir(p)},
}
print(json.dumps(said), flush=True)
"""


def test_nothing_outside_can_be_read_written_reached_or_killed(walls, behind, tmp_path, monkeypatch):
    """A mount below a folder that Python is read from is read-only, too, and was writable before."""
    lib = tmp_path / "lib with % and space"
    (lib / "below").mkdir(parents=True)
    lib.chmod(0o777)
    paths = [*isolation.python_paths(), str(lib)]
    monkeypatch.setattr(isolation, "python_paths", lambda: paths)
    grades = tmp_path / "out" / "grades.csv"
    grades.parent.mkdir()
    grades.write_text("untouched")
    files = [grades, ROOT / "book" / "data" / "course.yml", isolation.BOOK / "course" / "variants.py"]
    files += [Path.home() / ".bashrc", "/proc/1/root/etc/passwd"]
    places = ["/course/worker.py", "/usr/bin/forged", torch.__file__, "/dev/forged", "/proc/sys/kernel/hostname"]
    server = socket.create_server(("127.0.0.1", 0))
    given = {
        "files": [str(path) for path in files],
        "places": [*map(str, files), *places, f"{lib}/forged", f"{lib}/below/forged"],
        "addresses": [server.getsockname(), ("10.255.255.1", 80)],
        # Behind the walls there is another process 1; it is the parent of a suite that was started in the background.
        "processes": [os.getpid(), *({os.getppid()} - {1})],
        "most": SMALL.file_bytes - 2**16,
    }
    command = walls.command

    def with_a_mount(*asked):
        mounts = 'mount -t tmpfs -o mode=777,nosuid,nodev tmpfs "$0/below"; echo x > "$0/below/there"; exec "$@"'
        mine = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        return ["unshare", *mine, "--mount", "sh", "-c", mounts, str(lib), *command(*asked)]

    script = PROBES.replace("GIVEN", repr(given))
    script += f"print(open({f'{lib}/below/there'!r}).read(), end='', flush=True)\n"
    try:
        process = behind(replace(walls, command=with_a_mount), script)
        said = json.loads(line(process))
        assert line(process) == "x"  # the mount is there
    finally:
        server.close()
    home, forks, filled = said.pop("home"), said.pop("forks"), said.pop("filled")
    assert not any(said.values()), said
    assert grades.read_text() == "untouched"
    assert home == 1
    assert 0 < forks <= SMALL.processes
    assert filled["/scratch"] > 0
    assert all(size <= SMALL.file_bytes for size in filled.values()), filled


FILTERED = """
import ctypes, errno, json, mmap, multiprocessing, os, socket, struct, sys

libc = ctypes.CDLL(None, use_errno=True)

def call(number, *given):
    done = libc.syscall(number, *given)
    return errno.errorcode[ctypes.get_errno()] if done < 0 else "done"

def family(number, pair=False):
    for kind in (1, 2, 3, 5):
        try:
            made = (socket.socketpair if pair else socket.socket)(number, kind, 0)
        except OSError as problem:
            if problem.errno != errno.EAFNOSUPPORT:
                return errno.errorcode[problem.errno]
            continue
        for one in made if pair else (made,):
            one.close()
        return "done"
    return "EAFNOSUPPORT"

def in_child(what):
    pid = os.fork()
    if pid == 0:
        os._exit(what() == "done")
    status = os.waitpid(pid, 0)[1]
    return f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "done" if os.WEXITSTATUS(status) else "no"

def old():  # mov eax, 20 (getpid of 32 bits); int 0x80; ret
    code = mmap.mmap(-1, 4096, prot=7)
    code.write(bytes.fromhex("b814000000cd80c3"))
    found = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()
    return "done" if found == os.getpid() else "no"

def filled(folder):
    count, problem = 0, ""
    try:
        for count in range(20_000):
            (os.mkdir if count % 3 == 1 else lambda p: os.close(os.open(p, os.O_CREAT)))(f"{folder}/{count}")
            if count % 3 == 2:
                os.symlink("x", f"{folder}/{count}-")
    except OSError as error:
        problem = errno.errorcode[error.errno]
    return count, problem

def readable(path):
    try:
        return bool(open(path).read())
    except OSError:
        return False

N = GIVEN
said = {
    "keys": {name: call(N[name], b"user", b"mine", b"code", 4, -4) for name in ("add_key", "request_key")},
    "keyctl": {k: call(N["keyctl"], k, -4, 0, 0, 0) for k in (0, 1, 3, 8, 11, 14, 22)},
    "sockets": {k: family(k) for k in range(46)},
    "pairs": {k: family(k, True) for k in range(46)},
    "names": {k: in_child(lambda: call(N["unshare"], 1 << k)) for k in (17, 25, 26, 27, 28, 29, 30)},
    "clone": {k: in_child(lambda: call(N["clone"], 1 << k | 17, 0, 0, 0, 0)) for k in (25, 26, 27, 28, 29, 30)},
    "setns": call(N["setns"], os.open("/proc/self/ns/net", os.O_RDONLY), 0),
    "unknown": {k: call(k, 0, 0, 0) for k in N["unknown"]},
    "x32": call(0x40000000 + 39) if N["x86"] else "ENOSYS",
    "32 bits": in_child(old) if N["x86"] else "signal 31",
    "shown": [p for p in ("/proc/keys", "/proc/key-users") if readable(p)],
    "rights": [line.split()[1] for line in open("/proc/self/status") if line[:6] in ("CapEff", "CapPrm", "CapAmb")],
    "files": {p: filled(p) for p in ("/scratch", "/tmp", "/dev/shm") if os.path.isdir(p) and N["walls"]},
}
here, there = multiprocessing.Pipe()  # what honest notebooks need: workers that talk
child = multiprocessing.get_context("fork").Process(target=there.send, args=("hello",))
child.start()
said["worker"] = here.recv()
child.join()
print(json.dumps(said), flush=True)
"""
CALLS = {
    "x86_64": {
        "add_key": 248, "request_key": 249, "keyctl": 250, "unshare": 272, "clone": 56, "setns": 308,
        "unknown": [425, 426, 427, 435, 29, 64, 68, 240],
    },
    "aarch64": {
        "add_key": 217, "request_key": 218, "keyctl": 219, "unshare": 97, "clone": 220, "setns": 268,
        "unknown": [425, 426, 427, 435, 194, 190, 186, 180],
    },
}  # fmt: skip


def filtered(said, walls):
    assert set(said["keys"].values()) | set(said["keyctl"].values()) == {"ENOSYS"}
    for which in ("sockets", "pairs"):
        assert said[which].pop("1") == "done"
        assert set(said[which].values()) == {"EAFNOSUPPORT"}
    assert {*said["names"].values(), *said["clone"].values()} == {"no"}
    assert said["setns"] == "EPERM"
    assert set(said["unknown"].values()) == {said["x32"]} == {"ENOSYS"}
    assert said["32 bits"] == "signal 31"
    assert {int(rights, 16) for rights in said["rights"]} == {0}
    if walls:
        assert said["shown"] == []
        assert len(said["files"]) >= 2
        assert all(problem == "ENOSPC" and count < SMALL.files for count, problem in said["files"].values())
    assert said["worker"] == "hello"


def test_keys_sockets_namespaces_and_memory_that_nobody_counts_are_closed(each_way, behind):
    walled = each_way.name in isolation.WALLS
    machine = platform.machine()
    given = {**CALLS[machine], "x86": machine == "x86_64", "walls": walled}
    said = json.loads(line(behind(each_way, FILTERED.replace("GIVEN", repr(given)))))
    filtered(said, walled)


def test_without_the_filter_the_same_script_gets_through(monkeypatch, behind, walls):
    """The script can tell: without the last step inside there are sockets, system calls and any number of files."""
    python = isolation._python

    def bare(*given, **how):
        words = python(*given, **how)
        at = words.index("-c")
        return [*words[: at - 3], *words[at + 3 :]]

    monkeypatch.setattr(isolation, "_python", bare)
    machine = platform.machine()
    given = {**CALLS[machine], "x86": machine == "x86_64", "walls": False}
    said = json.loads(line(behind(walls, FILTERED.replace("GIVEN", repr(given)))))
    assert {k for k, found in said["sockets"].items() if found == "done"} > {"1", "2"}
    assert set(said["unknown"].values()) != {"ENOSYS"}
    with pytest.raises(AssertionError):
        filtered(said, False)


LEAVES = """
import os, signal, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)
os.wait()
print("up", flush=True)
time.sleep(600)
"""


def alive(before):
    return set(isolation.family(os.getpid())) - before


def gone(before, seconds=5.0):
    end = time.monotonic() + seconds
    while alive(before) and time.monotonic() < end:
        time.sleep(0.02)
    return not alive(before)


def test_nothing_is_left_running(each_way, behind):
    """A child in a session of its own, whose parent has ended, is found and ended with its submission."""
    before = set(isolation.family(os.getpid()))
    process = behind(each_way, LEAVES)
    assert line(process) == "up"
    assert len(alive(before)) >= 2
    process.end()
    assert gone(before, 1.0)


WAITS = "import time\nprint('up', flush=True)\ntime.sleep(600)"


def test_a_grader_that_is_killed_takes_the_submission_with_it(each_way, behind):
    """`kill -9` leaves no time to clean up: the kernel ends what the grader has started."""
    isolation._adopt_orphans()
    before = set(isolation.family(os.getpid()))
    ready, told = os.pipe()
    grader = os.fork()
    if grader == 0:
        try:
            os.write(told, line(behind(each_way, WAITS)).encode() or b"-")
            signal.pause()
        finally:
            os._exit(1)
    try:
        assert select.select([ready], [], [], 30.0)[0]
        assert os.read(ready, 2) == b"up"
        assert len(alive(before)) >= 2
        os.kill(grader, signal.SIGKILL)
        os.waitpid(grader, 0)
        assert gone(before), "something still runs"
    finally:
        for pid in alive(before):
            os.kill(pid, signal.SIGKILL)
        os.close(ready)
        os.close(told)


def test_no_python_of_the_graders_runs_between_fork_and_the_next_program(each_way, behind, monkeypatch):
    """Its threads may hold locks there: all limits are set by a program of its own."""
    popen, asked = subprocess.Popen, []
    monkeypatch.setattr(subprocess, "Popen", lambda *words, **how: asked.append(how) or popen(*words, **how))
    script = "import json, resource\nprint(json.dumps([resource.getrlimit(getattr(resource, n)) for n in NAMES]))"
    wanted = isolation._limits_of(SMALL)
    process = behind(each_way, script.replace("NAMES", repr([*wanted])))
    said = dict(zip(wanted, json.loads(line(process)), strict=True))
    assert [how.get("preexec_fn") for how in asked] == [None]
    wanted.pop("RLIMIT_NPROC")  # counted from what runs at the time
    assert {name: said[name] for name in wanted} == {name: [most, most] for name, most in wanted.items()}


# ── memory of all together ───────────────────────────────────────────────────────────────────────────────────────────

HOLDS = """
import os, time
held = [os.memfd_create(str(k)) for k in range(COUNT)]
print("up", flush=True)
for file in held:
    for _ in range(16):
        os.write(file, bytes(2**20))
print("held", flush=True)
time.sleep(600)
"""
TOGETHER = """
import os, time
print("up", flush=True)  # before it has too much: it is ended at any moment after that
for _ in range(3):
    if os.fork() == 0:
        held = bytearray(120 * 2**20)
        time.sleep(600)
time.sleep(600)
"""


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (HOLDS.replace("COUNT", "8"), "files in memory grew too large while it ran"),
        (TOGETHER, "it used too much memory"),
    ],
    ids=["files in memory", "several processes"],
)
def test_without_a_control_group_memory_is_watched(each_way, behind, script, says):
    process = behind(each_way, script, replace(SMALL, shared=64 * 2**20))
    assert line(process) == "up"
    end = time.monotonic() + 10
    while not process.why() and time.monotonic() < end:
        time.sleep(0.05)
    assert process.why() == says


SHARED = """
import os, time
held = bytearray(100 * 2**20)
for _ in range(4):
    if os.fork() == 0:
        time.sleep(600)
print("up", flush=True)
time.sleep(600)
"""


def test_memory_that_processes_share_counts_once(each_way, behind):
    """Four workers of an honest notebook hold what their parent has read: 100 MB, not 500."""
    process = behind(each_way, SHARED)
    assert line(process) == "up"
    time.sleep(0.7)
    assert sum(map(isolation._resident, process._family())) > SMALL.memory
    assert not process.why()
    assert process.popen.poll() is None


def zombies():
    mine = str(os.getpid())
    states = [
        path.read_text().rpartition(")")[2].split() for path in Path("/proc").glob("[0-9]*/stat") if path.exists()
    ]
    return sum(state[0] == "Z" and state[1] == mine for state in states)


def test_no_dead_process_is_kept(each_way, behind):
    """What was adopted is also waited for: a class of a hundred leaves no hundred entries."""
    before = zombies()
    process = behind(each_way, LEAVES)
    assert line(process) == "up"
    process.end()
    end = time.monotonic() + 2
    while zombies() > before and time.monotonic() < end:
        time.sleep(0.02)
    assert zombies() <= before


@pytest.fixture(params=bounds.KINDS)
def kind(request, monkeypatch):
    monkeypatch.setattr(bounds, "KINDS", (request.param,))
    if not bounds.best(64 * 2**20, 24):
        missing(request.param.replace(" ", "-"), "no control group of version 2 with memory and pids can be made")
    return request.param


def test_a_control_group_bounds_all_together(kind):
    """128 MB of files in memory, within 64 MB; and a hundred processes, within 24."""
    small = HOLDS.replace("COUNT", "8").partition("time.sleep")[0]
    group = bounds.make(kind, 64 * 2**20, 24)
    try:
        said = bounds.started(group, [sys.executable, "-I", "-S", "-c", small])
        assert b"up" in said
        assert b"held" not in said
    finally:
        group.remove()
    group = bounds.make(kind, 64 * 2**20, 24)
    count = PROBES[PROBES.index("def forks") : PROBES.index("given = ")] + "print(forks())"
    try:
        said = bounds.started(group, [sys.executable, "-I", "-S", "-c", f"import os, signal\n{count}"])
        assert 0 < int(said) <= 24 + bounds.SPARE
    finally:
        group.remove()
    assert group.folder is None or not group.folder.exists()


def test_a_submission_in_a_control_group_is_ended_for_its_memory(kind, each_way, behind):
    process = behind(each_way.with_bound(kind), HOLDS.replace("COUNT", "30"), replace(SMALL, shared=2**40))
    assert line(process) == "up"
    assert line(process) == ""
    assert process.why() == "it used too much memory"


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A control group's tree as the kernel shows it, of plain files: what would be written where."""
    top = tmp_path / "cgroup"
    own = top / "user.slice" / "session"
    own.mkdir(parents=True)
    for folder, controls in ((top, "cpu memory pids"), (own.parent, "memory pids"), (own, "")):
        (folder / "cgroup.subtree_control").write_text(controls)
    monkeypatch.setattr(launch, "group_folder", lambda _="self": str(own))
    return own


def test_a_group_by_hand_is_made_as_near_as_it_can_be(tree):
    group = bounds.make("by hand", 2**30, 32)
    assert group.folder.parent == tree.parent  # not at the top: bounds on the session stay
    written = {path.name: path.read_text() for path in group.folder.iterdir()}
    assert written == {"memory.max": str(2**30), "pids.max": "40", "memory.swap.max": "0", "memory.oom.group": "1"}
    assert group.joins == str(group.folder / "cgroup.procs")
    (group.folder / "memory.events").write_text("low 0\noom 1\noom_kill 0\n")
    assert not group.ran_out(os.getpid())
    (group.folder / "memory.events").write_text("low 0\noom 2\noom_kill 1\n")
    assert group.ran_out(os.getpid())
    (tree.parent / "cgroup.subtree_control").write_text("pids")
    assert bounds.make("by hand", 2**30, 32).folder.parent == tree.parents[1]
    (tree.parents[1] / "cgroup.subtree_control").write_text("")
    assert bounds.make("by hand", 2**30, 32) is None


def test_no_other_group_is_ever_ended(tree):
    """`cgroup.kill` of the grader's own group would end the grader."""
    (tree / "cgroup.kill").write_text("")
    group = bounds.Group(f"{bounds.PREFIX}0123.scope", ["systemd-run"])
    group.kill(os.getpid())
    assert group.find(os.getpid()) is None
    assert (tree / "cgroup.kill").read_text() == ""


def test_a_group_that_does_not_bound_is_not_taken(tree):
    """Plain files bound nothing: the trial finds itself elsewhere, and memory is watched."""
    assert bounds.best(2**30, 32) == ""
    assert list(tree.parent.glob(f"{bounds.PREFIX}*/cgroup.procs"))  # it was tried


def test_what_systemd_is_asked_for(monkeypatch):
    monkeypatch.setattr(bounds.shutil, "which", lambda _: "/usr/bin/systemd-run")
    for user, whose in ((0, []), (1000, ["--user"])):
        monkeypatch.setattr(os, "geteuid", lambda user=user: user)
        group = bounds.make("systemd", 4 * 2**30, 32)
        assert group.words[1 : 1 + len(whose)] == whose
        assert {"--scope", "MemoryMax=4294967296", "MemorySwapMax=0", "TasksMax=40", f"--unit={group.name}"} <= set(
            group.words
        )
        assert not any("$" in word for word in [*group.words, *bounds.words(group)])  # some versions would fill it in


def test_what_is_said_goes_with_the_bound():
    way = isolation.WAYS["unshare"]
    assert "between two looks" in way.with_bound("").does_not
    assert "between two looks" not in way.with_bound("systemd").does_not
    assert "control group" in way.with_bound("systemd").does
    assert set(bounds.SAYS) == {*bounds.KINDS, ""}


def test_ci_demands_every_way_as_a_user_or_as_root():
    workflow = (ROOT / ".github" / "workflows" / "test.yml").read_text()
    named = {name for said in re.findall(r'RLHF_WALLS(?:: |=")([^"\n]+)', workflow) for name in said.split()}
    known = {*isolation.WAYS, *(kind.replace(" ", "-") for kind in bounds.KINDS)}
    assert named == known
    assert set(DEMANDED) <= known
    assert "install -y -qq bubblewrap" in workflow
