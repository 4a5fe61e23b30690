"""Every committed chapter is executed, in normal form, and proves something.

That its outputs are still right is nbval's part: `pytest --nbval-lax --nbval-current-env notebooks`.
"""

import ctypes
import importlib.util
import os
import sys
import time
from pathlib import Path

import nbformat
import pytest
from jupyter_client.manager import start_new_kernel
from jupyter_client.provisioning import local_provisioner
from nbclient.exceptions import CellExecutionError

from tests import kernels

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

spec = importlib.util.spec_from_file_location("notebook_tool", ROOT / "book" / "_tools" / "notebooks.py")
tool = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tool)

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def code_cells(path):
    return [
        cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code" and cell.source.strip()
    ]


@each_notebook
def test_it_is_saved_in_normal_form(path):
    saved = path.read_text(encoding="utf-8")
    assert tool.normalise(nbformat.reads(saved, as_version=4)) == saved, "run `make notebooks`"


@each_notebook
def test_it_was_executed_from_top_to_bottom_without_an_error(path):
    cells = code_cells(path)
    assert cells
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1)), "run `make notebooks`"
    outputs = [output for cell in cells for output in cell.outputs]
    assert [output.ename for output in outputs if output.output_type == "error"] == []
    # A warning in the reader's face is a fault of the chapter; a progress bar leaves noise in version control.
    assert [output.text for output in outputs if output.get("name") == "stderr"] == []


@each_notebook
def test_it_asserts_what_it_says_and_has_outputs_that_are_compared(path):
    cells = code_cells(path)
    assert any("assert" in cell.source for cell in cells)
    compared = [cell for cell in cells if "nbval-check-output" in cell.metadata.get("tags", [])]
    assert compared
    assert all(cell.outputs for cell in compared), "a cell without output has nothing to compare"


@each_notebook
def test_what_the_page_folds_is_folded_in_jupyterlab(path):
    for cell in code_cells(path):
        folded = bool({"hide-input", "hide-cell", "install"} & set(cell.metadata.get("tags", [])))
        assert cell.metadata.get("jupyter", {}).get("source_hidden", False) == folded, cell.source[:80]


@each_notebook
def test_it_says_nothing_about_the_machine_it_ran_on(path):
    text = path.read_text(encoding="utf-8")
    assert str(ROOT) not in text
    assert str(Path.home()) + "/" not in text


def test_normal_form_does_not_depend_on_chance():
    def noisy(widget: str, address: str, count: int, seconds: str):
        cell = nbformat.v4.new_code_cell("object()", execution_count=count, id="a")
        cell.metadata = {"execution": {"iopub.execute_input": seconds}, "tags": ["kept"], "scrolled": True}
        cell.outputs = [
            nbformat.v4.new_output("execute_result", {"text/plain": f"<object at {address}>"}, execution_count=count),
            nbformat.v4.new_output("display_data", {"application/vnd.jupyter.widget-view+json": {"model_id": widget}}),
        ]
        state = {widget: {"state": {"layout": f"IPY_MODEL_{widget}"}}}
        metadata = {
            "kernelspec": {"name": f"my-kernel-{count}", "display_name": "Mine"},
            "language_info": {"name": "python", "version": f"3.{count}"},
            "widgets": {tool.WIDGETS: {"state": state}},
        }
        return nbformat.v4.new_notebook(cells=[cell], metadata=metadata)

    one = tool.normalise(noisy("5f0c" * 8, "0x7f31c2d0a1b0", 3, "2026-01-01T00:00:00"))
    two = tool.normalise(noisy("a9b1" * 8, "0x7fa0c4e2ff50", 8, "2027-01-01T00:00:00"))
    assert one == two
    assert tool.normalise(nbformat.reads(one, as_version=4)) == one
    cell = nbformat.reads(one, as_version=4).cells[0]
    assert cell.execution_count == 1
    assert cell.metadata == {"tags": ["kept"]}


def test_a_chapter_that_raises_is_left_as_it_was(tmp_path):
    path = tmp_path / "broken.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1 / 0")]), path)
    before = path.read_bytes()
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        tool.main([str(path)])
    assert path.read_bytes() == before


def test_two_runs_of_a_chapter_give_the_same_bytes(tmp_path):
    path = tmp_path / "chapter.ipynb"
    source = "from rlhf_book import plotting\nplotting.use_style()\nimport matplotlib.pyplot as plt\nprint(object())\n"
    source += "plt.plot([1, 2])\nplt.show()"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source, id="a")]), path)
    tool.main([str(path)])
    first = path.read_bytes()
    assert b"image/svg+xml" in first
    assert b"image/png" not in first
    tool.main([str(path)])
    assert path.read_bytes() == first


def test_new_figures_leave_every_number_as_it_was():
    def notebook(number, kind, figures=1):
        outputs = [nbformat.v4.new_output("stream", text=number)]
        shown = {kind: number, "text/plain": number}
        outputs += [nbformat.v4.new_output("display_data", shown) for _ in range(figures)]
        return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("draw()", outputs=outputs, id="a")])

    old, new = notebook("1", "image/png"), notebook("2", "image/svg+xml")
    tool.take_pictures(old, new)
    assert [output.get("text") or output.data for output in old.cells[0].outputs] == [
        "1",
        {"image/svg+xml": "2", "text/plain": "1"},
    ]
    with pytest.raises(ValueError, match="cell a drew 1 figures and draws 2: execute it whole"):
        tool.take_pictures(old, notebook("2", "image/svg+xml", figures=2))


def test_a_notebook_without_figures_is_not_run_for_them(tmp_path):
    path = tmp_path / "chapter.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1 / 0")]), path)
    tool.main(["--pictures", str(path)])


def test_a_kernel_that_dies_at_birth_is_started_again(monkeypatch):
    found = importlib.util.spec_from_file_location("root_conftest", ROOT / "conftest.py")
    conftest = importlib.util.module_from_spec(found)
    found.loader.exec_module(conftest)
    nbval_kernel = pytest.importorskip("nbval.kernel")
    calls = []

    def start(deaths):
        calls.append(deaths)
        if len(calls) <= deaths:
            raise RuntimeError("Kernel died before replying to kernel_info")
        return "kernel"

    monkeypatch.setattr(nbval_kernel, "start_new_kernel", start)
    conftest._start_kernel_patiently()
    assert nbval_kernel.start_new_kernel(1) == "kernel"
    calls.clear()
    with pytest.raises(RuntimeError, match="died"):
        nbval_kernel.start_new_kernel(3)
    assert len(calls) == 3


WHAT_A_KERNEL_IS = """
import os, subprocess, sys
names = {name.partition(".")[0] for name in sys.modules}
print(sorted(names & {"fractions", "tests", "rlhf_minimal", "rlhf_book"}), names >= {"torch"}, "tests" in sys.path[0])
print(__name__, os.getsid(0) == os.getpid(), os.getcwd(), os.environ["SAID"], subprocess.run(["false"]).returncode)
"""
DRAWS = "import matplotlib.pyplot as plt; plt.plot([1, 2]);"


@pytest.fixture(params=[0, 1], ids=["as they are", "adopted"])
def orphans(request):
    """A process whose parent has ended goes to the first one, or to this one, as it does once something was graded."""
    prctl, before = ctypes.CDLL(None).prctl, ctypes.c_int()
    prctl(37, ctypes.byref(before), 0, 0, 0)  # PR_GET_CHILD_SUBREAPER
    prctl(36, request.param, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    yield
    prctl(36, before.value, 0, 0, 0)


@pytest.mark.skipif(sys.platform != "linux", reason="kernels are started from nothing here")
@pytest.mark.usefixtures("orphans")
def test_a_forked_kernel_has_what_kernels_share_and_nothing_of_ours(tmp_path, monkeypatch):
    """And it is a kernel like any other: its folder, environment, session and children; it goes with its parent."""
    monkeypatch.delenv("MPLBACKEND")
    nursery = kernels.Nursery(["fractions", "matplotlib.figure", "ipykernel.kernelapp"])
    monkeypatch.setattr(local_provisioner, "launch_kernel", nursery.launch)
    one = {"extra_arguments": [], "cwd": str(tmp_path), "env": os.environ | {"SAID": "so"}}
    manager, client = start_new_kernel(kernel_name="python3", **one)
    said = []
    client.execute_interactive(
        WHAT_A_KERNEL_IS, output_hook=lambda message: said.append(message["content"]), timeout=60
    )
    printed = "".join(content.get("text", "") for content in said)
    assert printed == f"['fractions'] False False\n__main__ True {tmp_path} so 1\n", said
    said.clear()
    client.execute_interactive(DRAWS, timeout=60, output_hook=lambda told: said.append(told["content"]))
    assert [kind for content in said for kind in content.get("data", ())] == ["text/plain", "image/png"]
    assert manager.is_alive()
    client.stop_channels()
    nursery.process.stdin.close()
    nursery.process.wait(timeout=60)
    process = manager.provisioner.process
    for _ in range(600):  # it looks for its parent once a second
        if process.poll() is None:
            time.sleep(0.1)
    ended = process.poll() is not None
    process.kill()
    assert ended
    manager.cleanup_resources()
