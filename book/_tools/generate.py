"""Write all generated text of tracked files again: `python book/_tools/generate.py`.

- README.md, between `<!-- name -->` and `<!-- /name -->`: what the library prints.
- notebooks/README.md: the chapters in their order, for somebody who opens the folder and not the book; and the same as
  a notebook, notebooks/contents/chapters.ipynb, because JupyterLab renders a notebook and shows Markdown as source.
- The cells of chapters that say in their metadata where their text comes from (see book/data/README.md), and the first
  cell of every chapter.

What changed is named; a chapter that changed has to be executed again (`make notebooks`), unless nothing changed
but text and stubs. With `--check` nothing is written, and the exit status says whether something is stale.
"""

import re
import sys
from pathlib import Path

import nbformat

import rlhf_minimal

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "book" / "_pages"), str(ROOT / "book" / "_tools")]

import install_cell  # noqa: E402

import apparatus  # noqa: E402
import notebooks  # noqa: E402
import numbering  # noqa: E402
from data_files import pages_below, read, title_of  # noqa: E402

# name of the marks in README.md -> what stands between them
README = {"algorithms": rlhf_minimal.table}


def readme(text: str) -> str:
    """README.md with every generated part as it should be."""
    for name, printed in README.items():
        marks = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        if len(marks.findall(text)) != 1:
            raise ValueError(f"README.md should have one part between <!-- {name} --> and <!-- /{name} -->")
        text = marks.sub(lambda found, printed=printed: f"{found[1]}{printed()}\n{found[2]}", text)
    return text


ORDER = """\
# The chapters, in their order

<!-- written by book/_tools/generate.py from _toc.yml -->

Chapter 1 needs nothing but torch, transformers and matplotlib. Running a notebook changes its file; `git checkout
notebooks/` takes the changes back, and your own with them, so work on a copy.
"""


def reading_order() -> str:
    """Every chapter with its number, under the part of the book to which it belongs."""
    lines = [ORDER]
    for part in read(ROOT / "_toc.yml")["parts"]:
        pages = [page for page in pages_below(part) if page in numbering.chapters()]
        if pages:
            lines += [f"**{part['caption']}**", ""]
        for page in pages:
            number = "    -" if page.endswith(numbering.DEPTH) else f"{numbering.chapters()[page]}."
            lines.append(f"{number} [{title_of(page)}]({Path(page).name}.ipynb)")
        if pages:
            lines.append("")
    return "\n".join(lines).rstrip("\n") + "\n"


def contents() -> str:
    """The same as a notebook in a folder beside the chapters, one cell a part."""
    text = re.sub(r"\]\((?=[\w-]+\.ipynb\))", "](../", reading_order())
    parts = re.split(r"\n\n(?=\*\*)", text.rstrip("\n"))
    cells = [nbformat.v4.new_markdown_cell(part, id=f"part-{number:02d}") for number, part in enumerate(parts)]
    return notebooks.normalise(nbformat.v4.new_notebook(cells=cells))


def chapter(path: Path) -> list[str]:
    """What is filled in anew in a chapter, and written unless nothing is."""
    notebook = nbformat.read(path, as_version=4)
    changed = apparatus.fill(apparatus.page_of(path), notebook)
    (install,) = (cell for cell in notebook.cells if "install" in cell.metadata.get("tags", []))
    if install.source != (wanted := install_cell.source(install_cell.address(), path.stem)):
        install.source = wanted
        changed.append("the first cell")
    if changed and "--check" not in sys.argv:
        path.write_text(notebooks.normalise(notebook), encoding="utf-8")
    return changed


def main() -> int:
    """Go through all files; say which were stale."""
    stale = 0
    folder = ROOT / "notebooks"
    texts = {
        ROOT / "README.md": readme,
        folder / "README.md": lambda _: reading_order(),
        folder / "contents" / "chapters.ipynb": lambda _: contents(),
    }
    for path, made in texts.items():
        before = path.read_text(encoding="utf-8") if path.is_file() else ""
        if (after := made(before)) != before:
            stale += 1
            print(path.relative_to(ROOT))
            if "--check" not in sys.argv:
                path.write_text(after, encoding="utf-8")
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        if changed := chapter(path):
            stale += 1
            print(f"{path.relative_to(ROOT)}: {', '.join(changed)}")
    if not stale:
        print("all generated text is as it should be")
    return int(bool(stale) and "--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
