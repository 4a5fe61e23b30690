"""What runs last before a submission's process, inside its walls: what no option of theirs can do.

It is given to `python -I -S -c` as text, with what to do as JSON and the next command, and imports the standard library
only. No code of a student's has run yet.

- Folders in memory get a limit on files: an empty one takes a kilobyte of the kernel's memory, which no limit on bytes
  counts.
- The process gets a session keyring of its own, and may make no call on keys: keyrings belong to a user, whichever
  walls he is behind, so that one submission could leave code there for the next.
- Of sockets it may have those of its own machine's processes (AF_UNIX; multiprocessing needs them). A network
  namespace bounds the internet's families only: a virtual machine's (AF_VSOCK) reach its host.
- It may not make namespaces, in which it could mount memory without limits, nor memory that belongs to no process
  (System V's and message queues), nor use io_uring, which does what calls do beside this filter.
"""

import ctypes
import json
import os
import platform
import struct
import sys

ENOSYS, EPERM, EAFNOSUPPORT, AF_UNIX = 38, 1, 97, 1
NAMESPACES = (
    0x7E020000  # CLONE_NEW* of user, mount, cgroup, UTS, IPC, process ids and network
)
COMMON = (
    425,
    426,
    427,
    435,
)  # io_uring's three, and clone3: libc then takes clone, whose flags can be seen
MACHINES = {  # name -> its number in the kernel; numbers of calls
    "x86_64": (0xC000003E, (248, 249, 250, 29, 64, 68, 240), (272, 308), (41, 53), 56),
    "aarch64": (
        0xC00000B7,
        (217, 218, 219, 194, 190, 186, 180),
        (97, 268),
        (198, 199),
        220,
    ),
}
KEYCTL = {"x86_64": 250, "aarch64": 219}
LOAD, EQUAL, GREATER, BITS, RETURN = (
    0x20,
    0x15,
    0x35,
    0x45,
    0x06,
)  # of the kernel's filter language
KILL, ERROR, ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
CALL, MACHINE, FIRST = (
    0,
    4,
    16,
)  # where the call's number, the machine and the first argument's low half stand


def program(machine: str) -> bytes:
    """The filter: of each call in turn, whether it may be made."""
    number, unknown, refused, sockets, clone = MACHINES[machine]
    lines = [(LOAD, 0, 0, MACHINE), (EQUAL, 1, 0, number), (RETURN, 0, 0, KILL)]
    lines += [(LOAD, 0, 0, CALL)]
    # x86_64 knows a second set of numbers for the same calls (x32), from here on
    lines += [(GREATER, 0, 1, 0x40000000), (RETURN, 0, 0, ERROR | ENOSYS)]
    for error, calls in ((ENOSYS, (*unknown, *COMMON)), (EPERM, refused)):
        for call in calls:
            lines += [(EQUAL, 0, 1, call), (RETURN, 0, 0, ERROR | error)]
    for call in sockets:
        lines += [(EQUAL, 0, 4, call), (LOAD, 0, 0, FIRST), (EQUAL, 1, 0, AF_UNIX)]
        lines += [(RETURN, 0, 0, ERROR | EAFNOSUPPORT), (RETURN, 0, 0, ALLOW)]
    lines += [(EQUAL, 0, 3, clone), (LOAD, 0, 0, FIRST), (BITS, 0, 1, NAMESPACES)]
    lines += [(RETURN, 0, 0, ERROR | EPERM), (RETURN, 0, 0, ALLOW)]
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


def checked(libc: ctypes.CDLL, result: int, what: str) -> None:
    """Nothing of a student's runs if one of these does not work."""
    if result != 0:
        sys.exit(f"{what}: {os.strerror(ctypes.get_errno())}")


def limit_files(libc: ctypes.CDLL, folders: list[str], options: str) -> None:
    """Limits of folders in memory, which are mounted already; programs of other users' rights and devices stay off."""
    for folder in folders:
        flags = 32 | 2 | 4  # MS_REMOUNT, MS_NOSUID, MS_NODEV
        done = libc.mount(None, folder.encode(), None, flags, options.encode())
        checked(libc, done, f"no limit on files in {folder}")


def drop_rights(libc: ctypes.CDLL) -> None:
    """No capabilities in the next program either."""
    libc.prctl(47, 4, 0, 0, 0)  # PR_CAP_AMBIENT, clear all
    header = struct.pack("=Ii", 0x20080522, 0)
    checked(libc, libc.capset(header, bytes(24)), "capabilities stay")


def filter_calls(libc: ctypes.CDLL, machine: str) -> None:
    """A keyring of its own, and from now on the filter, for all that it starts, too."""
    libc.syscall(
        KEYCTL[machine], 1, None
    )  # join a new session; a kernel without keys says no
    checked(libc, libc.prctl(38, 1, 0, 0, 0), "no_new_privs")
    lines = program(machine)
    kept = ctypes.create_string_buffer(lines, len(lines))
    given = struct.pack("HP", len(lines) // 8, ctypes.addressof(kept))
    checked(libc, libc.prctl(22, 2, given, 0, 0), "no filter of system calls")


def main(asked: str, command: list[str]) -> None:
    """Do what is asked, and become the command."""
    given = json.loads(asked)
    machine = platform.machine()
    if sys.platform == "linux" and (machine in MACHINES or given["walls"]):
        if machine not in MACHINES or sys.maxsize < 2**32:
            sys.exit(f"no filter of system calls is written for {machine}")
        libc = ctypes.CDLL(None, use_errno=True)
        limit_files(libc, given["folders"], given["options"])
        filter_calls(libc, machine)
        if given["drop"]:
            drop_rights(libc)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
