"""Execute the chapters in place and save them in one normal form: `python book/_tools/notebooks.py notebooks/*.ipynb`.

    python book/_tools/notebooks.py --pictures notebooks/*.ipynb    replaces nothing but the figures

What a run leaves behind by chance (timings, kernel versions, memory addresses, widget ids) is removed. So executing
an unchanged chapter twice gives the same bytes, and a difference in version control is a difference in results.
"""

import argparse
import copy
import os
import re
import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parents[2]
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
LANGUAGE = {"name": "python", "pygments_lexer": "ipython3"}
# Cell metadata that carries meaning for the reader, the book or the tests; editors add much else.
KEPT_CELL_METADATA = {"tags", "mystnb", "jupyter", "concepts", "from"}
KEPT_NOTEBOOK_METADATA = {"widgets", "mystnb"}
FOLDED = {"hide-input", "hide-cell", "install"}  # on the page; JupyterLab has a setting of its own for the same
ADDRESS = re.compile(r"\b0x[0-9a-f]{6,16}\b")
WIDGETS = "application/vnd.jupyter.widget-state+json"


def execute(notebook: NotebookNode, folder: Path) -> None:
    """Run all cells in a fresh kernel, as the tests do: one thread, no network, inline figures."""
    environment = {name: value for name, value in os.environ.items() if name != "MPLBACKEND"}
    environment |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    paths = [str(ROOT), str(ROOT / "notebooks"), os.environ.get("PYTHONPATH")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    client = NotebookClient(
        notebook,
        kernel_name="python3",
        timeout=600,
        coalesce_streams=True,
        store_widget_state=True,
        resources={"metadata": {"path": str(folder)}},
    )
    notebook.metadata.pop("widgets", None)  # of an earlier run
    client.execute(env=environment)


def normalise(notebook: NotebookNode) -> str:
    """Return the text of the notebook file without anything that depends on chance or on this machine."""
    notebook = copy.deepcopy(notebook)
    kept = {key: value for key, value in notebook.metadata.items() if key in KEPT_NOTEBOOK_METADATA}
    notebook.metadata = nbformat.from_dict({"kernelspec": KERNEL, "language_info": LANGUAGE, **kept})
    count = 0
    for number, cell in enumerate(notebook.cells, start=1):
        cell.setdefault("id", f"cell-{number:03d}")
        cell.metadata = {key: value for key, value in cell.metadata.items() if key in KEPT_CELL_METADATA}
        if cell.cell_type != "code":
            continue
        if FOLDED & set(cell.metadata.get("tags", [])):
            cell.metadata["jupyter"] = cell.metadata.get("jupyter", {}) | {"source_hidden": True}
        count += bool(cell.source.strip())
        cell.execution_count = count if cell.source.strip() else None
        for output in cell.outputs:
            if "execution_count" in output:
                output.execution_count = cell.execution_count
            if "text" in output:
                output.text = ADDRESS.sub("0x…", output.text)
            for kind in ("text/plain", "text/html", "text/markdown"):
                if kind in output.get("data", {}):
                    output.data[kind] = ADDRESS.sub("0x…", output.data[kind])
    text = nbformat.writes(notebook, version=nbformat.NO_CONVERT)
    # Widgets are numbered in the order of their creation, which is the order of the saved state.
    state = notebook.metadata.get("widgets", {}).get(WIDGETS, {}).get("state", {})
    for number, name in enumerate(state, start=1):
        text = text.replace(name, f"widget-{number:04d}")
    if state:  # the new names sort in their own order
        text = nbformat.writes(nbformat.reads(text, as_version=4), version=nbformat.NO_CONVERT)
    return text.rstrip("\n") + "\n"


def pictures(cell: NotebookNode) -> list[NotebookNode]:
    """The data of each output that holds a picture."""
    shown = [output.get("data", {}) for output in cell.get("outputs", [])]
    return [data for data in shown if any(kind.startswith("image/") for kind in data)]


def take_pictures(notebook: NotebookNode, drawn: NotebookNode) -> None:
    """Put the figures of an executed notebook into the same notebook as it was; all numbers and texts stay.

    A number that is trained on another machine differs in its last places, and what the chapter says was written beside
    the old one. A new style of the figures is no reason to write it again.

    Raises:
        ValueError: a cell draws more or fewer figures than it did.
    """
    for cell, new in zip(notebook.cells, drawn.cells, strict=True):
        here, there = pictures(cell), pictures(new)
        if len(here) != len(there):
            raise ValueError(f"cell {cell.id} drew {len(here)} figures and draws {len(there)}: execute it whole")
        for data, taken in zip(here, there, strict=True):
            for kind in [kind for kind in data if kind.startswith("image/")]:
                del data[kind]
            data.update({kind: value for kind, value in taken.items() if kind.startswith("image/")})


def main(words: list[str]) -> None:
    """Execute and normalise each notebook; one that raises stops everything and is left as it was."""
    parser = argparse.ArgumentParser(description="Execute the chapters in place and save them in one normal form.")
    parser.add_argument("--pictures", action="store_true", help="replace figures only; skip notebooks without any")
    parser.add_argument("paths", nargs="+", type=Path)
    asked = parser.parse_args(words)
    for path in asked.paths:
        start = time.monotonic()
        notebook = nbformat.read(path, as_version=4)
        if asked.pictures and not any(map(pictures, notebook.cells)):
            continue
        executed = copy.deepcopy(notebook)
        execute(executed, path.resolve().parent)
        if asked.pictures:
            take_pictures(notebook, executed)
        path.write_text(normalise(notebook if asked.pictures else executed), encoding="utf-8")
        print(f"{path}: {time.monotonic() - start:.1f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
