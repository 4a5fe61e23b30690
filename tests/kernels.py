"""Kernels that need not import PyTorch: each notebook's is forked from one process that has imported it.

A kernel from nothing spends four seconds of a core on importing what nearly every notebook begins with. Here one
process imports that, once for all notebooks of a worker. It imports nothing of this repository, so every notebook
still imports the library and the book anew; and a name that it has not imported itself, a notebook does not have.
Matplotlib's interface is left out, because it looks for a notebook around it when it is imported. The notebooks are
written by kernels from nothing: book/_tools/notebooks.py.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from pathlib import Path

SHARED = (
    "torch",
    "torch.distributed.tensor",  # transformers imports it with a model, and with it half of torch
    "transformers.models.auto.modeling_auto",
    "transformers.models.llama.modeling_llama",
    "transformers.tokenization_utils_tokenizers",
    "matplotlib.figure",
    "matplotlib.backends.backend_agg",
    "IPython",
    "ipykernel.kernelapp",
)
INLINE = "module://matplotlib_inline.backend_inline"
FROM_NOTHING = [sys.executable, "-m", "ipykernel_launcher"]


class Kernel:
    """A process that somebody else has forked, with what Jupyter asks of a `subprocess.Popen`."""

    stdin = stdout = stderr = None

    def __init__(self, pid: int):
        self.pid = pid

    def poll(self) -> int | None:
        """None while it runs. What it ended with, only its parent has heard."""
        with suppress(ChildProcessError):  # a process that adopts orphans, as grading does, has to ask for its end
            os.waitpid(self.pid, os.WNOHANG)
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return 0
        return None

    def wait(self) -> int:
        """Jupyter asks when it has ended."""
        return 0

    def send_signal(self, number: int) -> None:
        """To the kernel alone."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill(self) -> None:
        """At once."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Asked to end."""
        self.send_signal(signal.SIGTERM)


class Nursery:
    """The process that has imported what kernels share, from the first of them on.

    Args:
        shared: Modules.
    """

    def __init__(self, shared: Iterable[str] = SHARED):
        self.shared = shared
        self.process: subprocess.Popen | None = None

    def launch(self, command: list[str], *, env: dict[str, str], cwd: str | None = None, **_: object) -> Kernel:
        """In place of Jupyter's `launch_kernel`."""
        assert command[:3] == FROM_NOTHING, command
        if self.process is None:
            words = [sys.executable, __file__, *self.shared]
            self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, text=True)
        wanted = {"argv": command[2:], "env": env, "cwd": cwd or os.getcwd()}
        print(json.dumps(wanted), file=self.process.stdin, flush=True)
        return Kernel(int(self.process.stdout.readline()))


def become_a_kernel(argv: list[str], env: dict[str, str], cwd: str) -> None:
    """What `python -m ipykernel_launcher` does, until the notebook has ended."""
    os.setsid()  # before anybody hears of it: Jupyter sends signals to all of a kernel's group
    print(os.getpid(), flush=True)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    sys.argv = argv
    from ipykernel.kernelapp import launch_new_instance

    launch_new_instance()


def main() -> None:
    """Fork a kernel for every line that comes in; end, and with it the kernels, when no more can come."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # what has ended is gone: nobody asks for its status
    sys.path.remove(str(Path(__file__).parent))
    os.environ.setdefault("MPLBACKEND", INLINE)  # as a kernel does before anything can import Matplotlib
    os.environ["JPY_PARENT_PID"] = str(os.getpid())  # which a kernel outlives by a second; read when it is imported
    for name in sys.argv[1:]:
        with suppress(ImportError):  # which a notebook that needs it will tell
            import_module(name)
    for line in sys.stdin:
        if os.fork():
            continue
        try:
            become_a_kernel(**json.loads(line))
        finally:
            os._exit(0)


if __name__ == "__main__":
    main()
