"""What runs first in a submission's process: limits that all later programs inherit, then the walls.

It is started with `python -I -S` and a file that says what to do, and imports the standard library only: between the
grader's fork and the next program no Python of the grader's runs, which has torch's threads.
"""

import contextlib
import ctypes
import json
import os
import resource
import signal
import sys

DIES_WITH_PARENT = 1  # PR_SET_PDEATHSIG


def group_folder(process: str = "self") -> str:
    """The folder of a process's control group, version 2; "" if this machine has none."""
    try:
        with open(f"/proc/{process}/cgroup") as file:
            own = [line[3:].rstrip("\n") for line in file if line.startswith("0::")]
        with open("/proc/self/mountinfo") as file:
            mounts = [line.split(" ") for line in file]
    except OSError:
        return ""
    for words in mounts:
        if own and words[words.index("-") + 1] == "cgroup2":
            root, place = words[3].rstrip("/"), words[4]
            inside = own[0].removeprefix(root) if own[0].startswith(root) else own[0]
            return os.path.normpath(f"{place}/{inside}")
    return ""


def look() -> dict[str, str]:
    """The group that this process is in, and its bounds."""
    folder, found = group_folder(), {}
    for name in ("memory.max", "pids.max"):
        with contextlib.suppress(OSError), open(f"{folder}/{name}") as file:
            found[name] = file.read().strip()
    return {"folder": folder, **found}


def main(path: str) -> None:
    """Do what the file says: join a group, die with the grader, set limits, and become the command."""
    with open(path) as file:
        given = json.load(file)
    if given["joins"]:
        with open(given["joins"], "w") as file:
            file.write("0")
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DIES_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != given["parent"]:
            sys.exit("the grader has ended")
    for name, most in given["limits"].items():
        which = getattr(resource, name, None)
        if which is None:
            continue
        hard = resource.getrlimit(which)[1]
        value = most if hard == resource.RLIM_INFINITY else min(most, hard)
        quiet = () if sys.platform == "linux" else (ValueError, OSError)
        with contextlib.suppress(*quiet):  # macOS knows some of them only by name
            resource.setrlimit(which, (value, value))
    if given["command"]:
        words, path = given["command"], os.environ.get("PATH", os.defpath)
        os.execvpe(words[0], words, {"PATH": path})
    print(json.dumps(look()))


if __name__ == "__main__":
    main(sys.argv[1])
