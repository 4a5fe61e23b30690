"""Fill the cells that are rendered from a source: `python book/_tools/fill_cells.py notebooks/*.ipynb`.

A cell says where its text comes from in its metadata, `{"from": "exercise/grpo-advantage/stub"}`. Run this before the
notebook is executed. What there is to fill in is told in book/data/README.md.
"""

import sys
from pathlib import Path

import nbformat

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "_pages"), str(Path(__file__).resolve().parent)]
import apparatus  # noqa: E402
import notebooks  # noqa: E402


def main(paths: list[str]) -> None:
    """Fill each notebook, and say which cells had to change."""
    for path in map(Path, paths):
        notebook = nbformat.read(path, as_version=4)
        changed = apparatus.fill(apparatus.page_of(path), notebook)
        if changed:
            path.write_text(notebooks.normalise(notebook), encoding="utf-8")
        print(f"{path}: {len(changed)} cells changed", *changed, sep="\n  ")


if __name__ == "__main__":
    main(sys.argv[1:])
