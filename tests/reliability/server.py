"""Runs our commands in children that may die: `python server.py`, one JSON request a line, one JSON answer a line.

Importing torch takes seconds, and a test that kills processes needs many of them. So one process imports, and forks for
every request; it has one thread and does nothing else, which makes forking safe. A child has its own standard output
and error, its own limits, and whatever fault the request asks for:

    argv        what follows `python -m rlhf_minimal`
    scene       instead of it, the name of a function of `scenes.py`
    cwd         where
    kill_at     the number, from 1, of the change to the file system before which (or in the middle of which) the child
                kills itself with SIGKILL, so that nothing can be tidied up
    kill_after  seconds after which the server kills the child
    limits      {"fsize": bytes a file may have, "as": bytes of address space on top of what is in use}
    faults      names of functions of `scenes.py`, called before the command
    timeout     seconds after which the child counts as hanging

The answer: how it ended (`code`, negative for a signal, "hangs" if it did), what it printed, how many changes to the
file system it made, and how long it took.
"""

import json
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

import safetensors.torch
import scenes
from matplotlib.backends import backend_agg  # noqa: F401  (what a command imports late, no child imports anew)
from PIL import Image
from transformers.conversion_mapping import get_checkpoint_conversion_mapping

from rlhf_minimal.cli import main, parser, report
from tests.commands import Blank

report.Figure = Blank
Image.init()
get_checkpoint_conversion_mapping("llama")  # hundreds of patterns are compiled when the first model is read
parser()  # and the modules of all commands are imported when the first of them is parsed
CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir"}


class Changes:
    """Counts what a process does to the file system, and kills it when it comes to number `kill_at`."""

    def __init__(self, kill_at, log):
        self.count, self.kill_at, self.log = 0, kill_at, log
        self.half = False
        sys.addaudithook(self.see)
        for name in ("save_file", "save_model"):
            setattr(safetensors.torch, name, self.by_halves(getattr(safetensors.torch, name)))
        write_text = Path.write_text
        Path.write_text = lambda path, text, *rest, **named: self.halving(path, text, write_text, *rest, **named)

    def see(self, event, arguments):
        changes = event in CHANGES or (
            event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        )
        if changes and not self.half and arguments[0] != os.devnull:
            self.tick(f"{event} {arguments[0]}")

    def tick(self, what):
        self.count += 1
        self.log.write(what + "\n")
        if self.count == self.kill_at:
            self.die()

    def die(self):
        self.log.flush()
        os.kill(os.getpid(), signal.SIGKILL)

    def by_halves(self, save):
        """Tensors are written by Rust, which no audit event tells of: one kill before it, one in its middle."""

        def saved(tensors, file, *rest, **named):
            self.tick(f"before {file}")
            save(tensors, file, *rest, **named)
            if self.count + 1 == self.kill_at:
                os.truncate(file, os.path.getsize(file) // 2)
            self.tick(f"in {file}")

        return saved

    def halving(self, path, text, write_text, *rest, **named):
        self.tick(f"before {path}")
        self.half = True  # opening it is no change of its own
        if self.count + 1 == self.kill_at:
            write_text(path, text[: len(text) // 2], *rest, **named)
        else:
            write_text(path, text, *rest, **named)
        self.half = False
        self.tick(f"in {path}")


def limit(limits):
    if "fsize" in limits:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # or the write would kill instead of failing
        resource.setrlimit(resource.RLIMIT_FSIZE, (limits["fsize"], limits["fsize"]))
    if "as" in limits:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (used + limits["as"], used + limits["as"]))


def child(request, out, err, log):
    os.dup2(out.fileno(), 1)
    os.dup2(err.fileno(), 2)
    sys.stdin = open(os.devnull)
    code = 70
    try:
        os.chdir(request["cwd"])
        for name in request.get("faults", ()):
            getattr(scenes, name)()
        changes = Changes(request.get("kill_at"), log)
        limit(request.get("limits", {}))
        try:
            scene = request.get("scene")
            code = getattr(scenes, scene)() if scene else main(request["argv"])
        except SystemExit as stopped:
            code = stopped.code
        log.write(f"{changes.count}\n")
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr, log):
            stream.flush()
        os._exit(code or 0)


def serve(request):
    with (
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as err,
        tempfile.TemporaryFile("w+") as log,
    ):
        began = time.monotonic()
        pid = os.fork()
        if pid == 0:
            child(request, out, err, log)
        code, until = None, began + request.get("timeout", 60)
        while code is None:
            done, status = os.waitpid(pid, os.WNOHANG)
            now = time.monotonic()
            if done:
                code = os.waitstatus_to_exitcode(status)
            elif now > until:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                code = "hangs"
            elif now > began + request.get("kill_after", 1e9):
                os.kill(pid, signal.SIGKILL)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            else:
                time.sleep(0.005)
        texts = []
        for file in (out, err, log):
            file.seek(0)
            texts.append(file.read())
    changes = texts[2].splitlines()
    return {
        "code": code,
        "out": texts[0],
        "err": texts[1],
        "changes": changes,
        "seconds": time.monotonic() - began,
    }


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        print(json.dumps(serve(json.loads(line))), file=answers, flush=True)
