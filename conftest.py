"""What every test run needs, and every notebook kernel that it starts: kernels inherit this environment."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).parent

# Kernels and commands that tests start do not see pytest's own `pythonpath`.
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [str(ROOT), str(ROOT / "notebooks"), os.environ.get("PYTHONPATH")])
)
# Tests run side by side, one core each; two threads apiece would only get in each other's way.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Nothing here may need a model hub: fail at once instead of waiting for a network.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"


# pytest's `--jaxtyping-packages` has just hooked itself into imports, and none of our packages is imported yet.
if any(type(finder).__name__ == "_JaxtypingFinder" for finder in sys.meta_path):
    from tests import shapes

    shapes.install()


def pytest_configure(config):
    if config.getoption("nbval") or config.getoption("nbval_lax"):
        os.environ.pop("MPLBACKEND", None)  # kernels choose the inline backend unless told otherwise
        _start_kernel_patiently()
        _fork_kernels()
        _compare_no_drawings()
    else:
        os.environ["MPLBACKEND"] = "Agg"  # tests draw without a screen


def _compare_no_drawings():
    """Let nbval pass over drawings as over other pictures: another matplotlib may place a letter elsewhere."""
    from nbval.plugin import IPyNbFile

    begin = IPyNbFile.__init__

    def begin_without_drawings(self, *args, **kwargs):
        begin(self, *args, **kwargs)
        self.skip_compare = (*self.skip_compare, "image/svg+xml")

    IPyNbFile.__init__ = begin_without_drawings


def _fork_kernels():
    """Let notebooks begin with what most of them import, where a process that has imported it can be forked."""
    if sys.platform == "linux":
        from jupyter_client.provisioning import local_provisioner

        from tests.kernels import Nursery

        local_provisioner.launch_kernel = Nursery().launch


def _start_kernel_patiently():
    """Let nbval start a kernel again when the first one died at birth.

    A kernel is handed five TCP ports that were free a moment before. When two notebooks start at the same time, one
    now and then takes a port of the other, whose kernel dies before it has said a word (seen once in 480 starts). That
    says nothing about the notebook. A kernel that cannot start at all still fails, at the third attempt.
    """
    import nbval.kernel

    start = nbval.kernel.start_new_kernel

    def start_patiently(*args, attempts=3, **kwargs):
        for attempt in range(1, attempts + 1):
            try:
                return start(*args, **kwargs)
            except RuntimeError:
                if attempt == attempts:
                    raise

    nbval.kernel.start_new_kernel = start_patiently
