"""Walls around a student's process, and in words what each of them does not stop.

The stronger that works on this machine is taken: it is tried with the worker itself before anything is graded. Where
neither works nothing is graded, unless `limits` is asked for by name.

- bubblewrap, unshare: an empty root with the system's libraries and Python's, read-only; a network of its own without
  devices; process ids of its own; a home and a /tmp in memory; a filter of system calls (`inside.py`). The grader's
  files, the book and other submissions are not there.
- limits: what the kernel counts for one process, and on Linux the same filter. The student's code can read your files,
  and write where you can, the grades included. As root it becomes nobody first.
"""

import contextlib
import ctypes
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from . import bounds

NOBODY = 65534
_HERE = Path(__file__).resolve()
WORKER = _HERE.parent / "worker.py"
_INSIDE = (_HERE.parent / "inside.py").read_text(encoding="utf-8")
BOOK = _HERE.parents[1]  # rlhf_book: solutions and references stand in it


@dataclass(frozen=True)
class Limits:
    """What one submission may use. Whatever goes beyond ends its process."""

    seconds: float = 300.0  # of the clock, in all
    cell_seconds: float = 60.0
    memory: int = 4 * 2**30  # address space of a process, and memory of all together
    processes: int = 32  # threads included
    file_bytes: int = 32 * 2**20  # of one file; twice that, of all of them in memory
    open_files: int = 64
    files: int = 4096  # links and folders too, in each folder in memory
    shared: int = 2**30  # growth of the machine's files in memory while it runs


@dataclass(frozen=True)
class Isolation:
    """One way to start the worker.

    Args:
        name: for the command line.
        does: what it stops, for the lecturer.
        does_not: what it does not stop.
        command: the words to start Python with, from the private folder of a submission.
    """

    name: str
    does: str
    does_not: str
    command: Callable[[Path, Path, Limits, tuple[str, ...]], list[str]]
    private: tuple[str, ...] = ()  # folders that must not be seen from inside
    bound: str = ""  # of `bounds.KINDS`: how all its processes together are bounded

    def with_bound(self, bound: str) -> "Isolation":
        """The same walls with what bounds all processes together, and in words what that means."""
        does, does_not = self.does, self.does_not
        if bound:
            does += f"; {bounds.SAYS[bound]}"
        else:
            does_not += f"; {_WATCHED}"
        return replace(self, bound=bound, does=does, does_not=does_not)


def python_paths() -> list[str]:
    """The folders and files that Python, torch and its libraries are read from."""
    wanted = [
        *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64"),
        *("/etc/ld.so.cache", "/etc/alternatives"),
        *(sys.base_prefix, sys.prefix, os.path.realpath(sys.prefix)),
        *(sysconfig.get_path("purelib"), sysconfig.get_path("platlib")),
    ]
    found: list[str] = []
    for path in map(os.path.normpath, wanted):
        inside = any(path == have or path.startswith(f"{have}/") for have in found)
        if os.path.exists(path) and not inside:
            found.append(path)
    return found


def _below(path: str, place: str) -> bool:
    return f"{path}/".startswith(f"{place.rstrip('/')}/")


def hidden_paths(private: tuple[str, ...] = ()) -> list[str]:
    """What would be visible in there and must not be: the book's package beside torch, and the private folders.

    Raises:
        RuntimeError: Python is read from within one of them, so that it cannot be hidden.
    """
    bound = python_paths()
    real = [os.path.realpath(path) for path in bound]
    places = {str(BOOK), *(f"{p}/rlhf_book" for p in sys.path if p)}
    for path in bound:
        if os.path.isdir(path):
            for inner in ("lib/python*/*-packages", "local/lib/python*/*-packages"):
                places |= {str(p) for p in Path(path).glob(f"{inner}/rlhf_book")}
    found = {p for p in places if os.path.isdir(p) and any(_below(p, b) for b in bound)}
    for path in map(os.path.realpath, private):
        if any(_below(path, b) for b in real):
            if any(_below(b, path) for b in (*real, os.path.realpath(sys.executable))):
                raise RuntimeError(
                    f"Python is read from {path}, which has to be hidden: move one of them"
                )
            found.add(path)
    return sorted(found)


def canaries(private: tuple[str, ...]) -> list[str]:
    """What lies directly in the private folders and is no part of Python: inside, none of it exists."""
    bound = [*python_paths(), *(os.path.realpath(p) for p in python_paths())]
    found = [
        os.path.join(place, name)
        for place in private
        if os.path.isdir(place)
        for name in sorted(os.listdir(place))[:100]
    ]
    return [path for path in found if not any(_below(b, path) for b in bound)]


def library_copy(folder: Path) -> None:
    """The library, without the book: what a student may import."""
    import rlhf_minimal

    source = Path(rlhf_minimal.__file__).parent
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(source, folder / "rlhf_minimal", ignore=ignored)
    shutil.copy(WORKER, folder / "worker.py")
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


def _python(
    library: str,
    home: str,
    rights: list[str],
    *,
    walls: bool = True,
    folders: tuple[str, ...] = (),
    options: str = "",
) -> list[str]:
    """The last step inside, then what gives up rights, then the worker."""
    environment = {
        "HOME": home,
        "USER": "student",
        "TMPDIR": home,
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "PYTHONPATH": library,
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "MPLBACKEND": "agg",
    }
    words = [f"{name}={value}" for name, value in environment.items()]
    asked = {"walls": walls, "folders": folders, "options": options, "drop": not rights}
    inside = [sys.executable, "-I", "-S", "-c", _INSIDE, json.dumps(asked)]
    worker = [sys.executable, f"{library}/worker.py"]
    return ["env", "-i", *words, *inside, *rights, *worker]


def _without_rights() -> list[str]:
    if os.geteuid() != 0:
        return []
    ids = [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    ids += ["--pdeathsig", "KILL"]  # a change of ids has cleared it
    return ["setpriv", *ids, *_without_bounds()[1:]]


def _without_bounds() -> list[str]:
    return ["setpriv", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]


def _bwrap(
    work: Path, library: Path, limits: Limits, private: tuple[str, ...] = ()
) -> list[str]:
    words = ["bwrap", "--die-with-parent", "--new-session"]
    words += ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
    rights = _without_rights()
    if not rights:  # root of a namespace whose root has the user's rights outside
        words += ["--unshare-user", "--uid", "0", "--gid", "0", "--cap-drop", "ALL"]
        rights = _without_bounds()
    for right in ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP", "CAP_SYS_ADMIN"):
        words += ["--cap-add", right]  # until files are limited and rights given up
    for place in ("/scratch", "/tmp"):  # first: Python may be installed below /tmp
        words += ["--perms", "1777", "--size", str(limits.file_bytes), "--tmpfs", place]
    for path in python_paths():
        for parent in reversed(Path(path).parents[:-1]):
            words += ["--dir", str(parent)]  # otherwise only root may enter it
        is_link = os.path.islink(path)
        words += ["--symlink", os.readlink(path)] if is_link else ["--ro-bind", path]
        words.append(path)
    for path in hidden_paths(private):
        words += ["--tmpfs", path, "--remount-ro", path]
    words += ["--ro-bind", str(library), "/course"]
    words += ["--proc", "/proc", "--dev", "/dev"]
    for path in filter(os.path.exists, ("/proc/keys", "/proc/key-users")):
        words += ["--ro-bind", "/dev/null", path]
    words += ["--perms", "1777", "--size", str(limits.file_bytes)]
    words += ["--tmpfs", "/dev/shm", "--remount-ro", "/dev"]
    words += ["--remount-ro", "/"]
    folders, options = ("/scratch", "/tmp", "/dev/shm"), _of_memory(limits)
    inside = _python("/course", "/scratch", rights, folders=folders, options=options)
    return [*words, "--", *inside]


def _of_memory(limits: Limits) -> str:
    """The options of a folder in memory."""
    return f"size={limits.file_bytes},nr_inodes={limits.files},mode=1777"


_UNSHARE = """
set -e
root=$1; library=$2; options=$3; shift 3
readonly_here() {  # a mount, and the mounts below it, which a remount of the first leaves as they are
    cat /proc/self/mountinfo > "$root/mounts"
    while read -r _ _ _ _ place _; do
        place=$(printf "$(printf %s "$place" | sed 's/%/%%/g')")  # a space is \\040 there
        case "$place/" in "$1"/*) mount -o remount,ro,bind "$place" ;; esac
    done < "$root/mounts"
    rm "$root/mounts"
}
mount -t tmpfs -o size=1m,mode=755 tmpfs "$root"
for name in scratch tmp; do
    mkdir "$root/$name"; mount -t tmpfs -o "nosuid,nodev,$options" tmpfs "$root/$name"
done
while [ "$1" != "::" ]; do
    if [ -L "$1" ]; then
        mkdir -p "$root$(dirname "$1")"; ln -s "$(readlink "$1")" "$root$1"
    else
        if [ -d "$1" ]; then mkdir -p "$root$1"
        else mkdir -p "$root$(dirname "$1")"; touch "$root$1"; fi
        mount --rbind "$1" "$root$1"; readonly_here "$root$1"
    fi
    shift
done
shift
while [ "$1" != "::" ]; do mount -t tmpfs -o ro,size=1m tmpfs "$root$1"; shift; done
shift
mkdir -p "$root/course" "$root/proc" "$root/dev"
mount --rbind "$library" "$root/course"; readonly_here "$root/course"
mount -t proc proc "$root/proc"
for name in keys key-users; do
    if [ -e "$root/proc/$name" ]; then mount --bind /dev/null "$root/proc/$name"; fi
done
for name in null zero urandom random; do
    touch "$root/dev/$name"; mount --bind "/dev/$name" "$root/dev/$name"
done
mount -o remount,ro,bind "$root"
exec chroot "$root" "$@"
"""


def _unshare(
    work: Path, library: Path, limits: Limits, private: tuple[str, ...] = ()
) -> list[str]:
    root = work / "root"
    root.mkdir(exist_ok=True)
    words = ["unshare", "--mount", "--net", "--pid", "--ipc", "--uts", "--fork"]
    words += ["--kill-child"]
    rights = _without_rights()
    if not rights:
        words += ["--user", "--map-root-user"]
        rights = _without_bounds()
    words += ["sh", "-c", _UNSHARE, "sh", str(root), str(library)]
    words += [
        _of_memory(limits),
        *python_paths(),
        "::",
        *hidden_paths(private),
        "::",
    ]
    return [*words, *_python("/course", "/scratch", rights)]


def _limits(
    work: Path, library: Path, limits: Limits, private: tuple[str, ...] = ()
) -> list[str]:
    home = work / "home"
    home.mkdir(exist_ok=True)
    rights = _without_rights()
    if rights:
        os.chown(home, NOBODY, NOBODY)
    return _python(str(library), str(home), rights, walls=False)


_STOPPED = (
    "reading or changing your files, the book's, the grades and other submissions "
    "(they are not there), a network, keys that the kernel keeps for a user, signals to "
    "other processes, too many processes and files, too much time, and too much memory "
    "of a process"
)
_NOT_STOPPED = "an error in the kernel that lets a process out; side channels"
_WATCHED = (
    "memory that all processes together take between two looks, a quarter of a second "
    "apart, or that belongs to none (files in memory up to the limit on them, buffers, "
    "what is swapped out)"
)
WAYS = {
    way.name: way
    for way in (
        Isolation("bubblewrap", _STOPPED, _NOT_STOPPED, _bwrap),
        Isolation("unshare", _STOPPED, _NOT_STOPPED, _unshare),
        Isolation(
            "limits",
            "endless loops, too much memory of a process, large files; on Linux a "
            "network; as root also what the user nobody may not do",
            "reading what you can read (the references, other submissions), this "
            "machine's services that have a socket, elsewhere than on Linux a network, "
            "filling the disk; if you are not root also deleting and writing what you "
            "can: other files, the grader, grades, so that results can be forged",
            _limits,
        ),
    )
}
WALLS = ("bubblewrap", "unshare")


class Process:
    """A worker behind one of the walls, and its end with all that it started."""

    def __init__(
        self,
        way: Isolation,
        library: Path,
        limits: Limits,
        complaints: int = subprocess.DEVNULL,
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="rlhf-course-"))
        self.folder.chmod(0o755)
        self.problem = ""
        _adopt_orphans()
        self._before = set(children_of(os.getpid()))
        self._met: set[int] = set()  # what it has started, as far as it was seen
        start_in = self.folder / "home"
        self._group: bounds.Group | None = None
        try:
            command = way.command(self.folder, library, limits, way.private)
            self._group = bounds.make(way.bound, limits.memory, limits.processes)
            if way.bound and self._group is None:
                raise OSError("a control group cannot be had any longer")
            begin = self.folder / "start.json"
            begin.write_text(bounds.start(self._group, command, _limits_of(limits)))
            self.popen = subprocess.Popen(
                [*bounds.words(self._group), str(begin)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                start_new_session=True,
                cwd=start_in if start_in.is_dir() else self.folder,
                env=bounds.environment(),
            )
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            if self._group is not None:
                self._group.remove()
            raise
        self._shared = _shared()
        self._limits = limits
        self._over = threading.Event()
        self._watch = threading.Thread(target=self._look, daemon=True)
        self._watch.start()

    def _look(self) -> None:
        """All processes of a submission together may use as much memory as one."""
        while not self._over.wait(0.25):
            if self._group is not None:  # the kernel counts, and ends them
                if not self._group.ran_out(self.popen.pid):
                    continue
                self.problem = "it used too much memory"
            elif _taken(self._family(), self._limits.memory) > self._limits.memory:
                self.problem = "it used too much memory"
            elif _shared() - self._shared > self._limits.shared:
                self.problem = "files in memory grew too large while it ran"
            else:
                continue
            self._kill()
            return

    def _family(self) -> list[int]:
        """What it has started, also what has left its session and whose parent has ended."""
        mine = set(children_of(os.getpid())) - self._before - {self.popen.pid}
        return sorted(
            {p for root in (self.popen.pid, *mine) for p in family(root)} | mine
        )

    def why(self) -> str:
        """What is known of its end."""
        if not self.problem and self._group is not None:
            if self._group.ran_out(self.popen.pid):
                self.problem = "it used too much memory"
        return self.problem

    def _kill(self) -> None:
        self._met |= set(self._family())  # of a dead one nobody knows whose it was
        if self._group is not None:
            self._group.kill(self.popen.pid)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self._met |= set(self._family())
        for pid in [*self._family(), self.popen.pid]:
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass

    def end(self) -> None:
        """Kill it and everything that it started; remove its folder."""
        self._over.set()
        self._kill()
        self._watch.join()
        for _ in range(50):  # a fork may be under way while we look
            self._kill()
            if not self._family():
                break
            time.sleep(0.02)
        for stream in (self.popen.stdin, self.popen.stdout):
            if stream is not None:
                try:
                    stream.close()
                except OSError:
                    pass
        self.popen.wait()
        for pid in (
            self._met
        ):  # those that this process has adopted: nobody else asks how they ended
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        if self._group is not None:
            self._group.remove()
        shutil.rmtree(self.folder, ignore_errors=True)


def _processes() -> dict[int, tuple[int, int]]:
    """Process -> its parent and its session, of all that have not ended."""
    found = {}
    for entry in os.listdir("/proc") if os.path.isdir("/proc") else []:
        if not entry.isdigit():
            continue
        try:
            text = Path(f"/proc/{entry}/stat").read_text(errors="replace")
        except OSError:
            continue
        state, parent, _, session = text.rpartition(")")[2].split()[:4]
        if state not in "ZX":
            found[int(entry)] = int(parent), int(session)
    return found


def children_of(pid: int) -> list[int]:
    """The processes whose parent it is."""
    return [child for child, (parent, _) in _processes().items() if parent == pid]


def family(pid: int) -> list[int]:
    """The processes that a process has started, and those that they have, and what is left of its session."""
    processes = _processes()
    found = {child for child, (_, session) in processes.items() if session == pid}
    while True:
        more = {c for c, (parent, _) in processes.items() if parent in found | {pid}}
        if more <= found:
            return sorted(found - {pid, os.getpid()})
        found |= more


def _adopt_orphans() -> None:
    """On Linux a process whose parent has ended becomes a child of this one, so that it can be found."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def _taken(processes: list[int], limit: int) -> int:
    """Bytes of memory of processes; what they share counts once, where that can be looked up."""
    resident = {pid: _resident(pid) for pid in processes}
    if sum(resident.values()) <= limit:  # the quick look, in which it counts each time
        return sum(resident.values())
    return sum(_share(pid, most) for pid, most in resident.items())


def _share(pid: int, otherwise: int) -> int:
    try:
        found = Path(f"/proc/{pid}/smaps_rollup").read_text().partition("\nPss:")[2]
        return 1024 * int(found.split()[0])
    except (OSError, IndexError, ValueError):
        return otherwise


def _resident(pid: int) -> int:
    try:
        pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * resource.getpagesize()


def _shared() -> int:
    """Bytes of the machine's files in memory: they count for no process that has not mapped them."""
    try:
        found = Path("/proc/meminfo").read_text().partition("Shmem:")[2].split()
        return 1024 * int(found[0])
    except (OSError, IndexError, ValueError):
        return 0


def _threads_of() -> int:
    """How many threads the user has, under whose id the worker will run."""
    user = NOBODY if os.geteuid() == 0 else os.getuid()
    count = 0
    for entry in os.listdir("/proc") if os.path.isdir("/proc") else []:
        if entry.isdigit():
            try:
                if os.stat(f"/proc/{entry}").st_uid == user:
                    count += len(os.listdir(f"/proc/{entry}/task"))
            except OSError:
                continue
    return count


def _limits_of(limits: Limits) -> dict[str, int]:
    """The kernel's limits on each process, by their names."""
    return {
        "RLIMIT_CPU": 2 * int(limits.seconds) + 5,
        "RLIMIT_AS": limits.memory,
        "RLIMIT_FSIZE": limits.file_bytes,
        "RLIMIT_NOFILE": limits.open_files,
        "RLIMIT_NPROC": _threads_of() + limits.processes,
        "RLIMIT_CORE": 0,
    }
