"""The first cell of every chapter: it does nothing where the library is installed, and installs it elsewhere.

    python book/_tools/install_cell.py                       put the current cell into every chapter
    python book/_tools/install_cell.py https://github.com/…  write the repository's address into _config.yml first
    python book/_tools/install_cell.py --published-at URL    whether the buttons open this repository

The address of the repository is written down once, in `_config.yml` (repository: url). While it is empty the book has
no Colab and Binder buttons, and the cell installs the repository in which the chapter lies; where it lies in none, it
says what to do. The address has to be committed: a button opens what the repository holds, and not what was built.
"""

import json
import re
import sys
from pathlib import Path

import nbformat
import yaml

sys.path.insert(0, str(Path(__file__).parent))
import notebooks

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "_config.yml"
TAGS = ["install", "remove-cell"]  # readers of the page have nothing to install

CELL = """\
# Nothing happens here where the packages of the book are installed. Elsewhere, as on
# Colab or in a fresh clone, they are installed now. To take them from a wheel or a
# folder of your own, name it in the environment variable RLHF_MINIMAL.
import importlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

needed = ["rlhf_minimal", "rlhf_book", "anywidget", "ipywidgets"]
missing = [name for name in needed if importlib.util.find_spec(name) is None]
if "rlhf_minimal" in missing or "rlhf_book" in missing:
    source = os.environ.get("RLHF_MINIMAL") or "{address}"
    if not source and Path("../rlhf_minimal/__init__.py").is_file():
        source = ".."  # this notebook lies in the repository
    if not source:
        raise RuntimeError(
            "This notebook needs the library of the book, rlhf-minimal, which is not "
            "installed here. Install it from its wheel or a copy of the repository, "
            "python -m pip install 'PATH[notebooks]', or set the environment variable "
            "RLHF_MINIMAL to that path. Then run this cell again."
        )
    if "://" not in source:
        if not Path(source).exists():
            raise RuntimeError(f"RLHF_MINIMAL is {{source!r}}: there is no such file")
        source = Path(source).resolve().as_uri()
    missing = [f"rlhf-minimal[notebooks] @ {{source}}"]
if missing:
    command = [sys.executable, "-m", "pip", "install", "--quiet", *missing]
    subprocess.run(command, check=True)
    importlib.invalidate_caches()"""

# Chapters that need no library of ours, and what they import instead.
ALONE = {"from-zero": ["torch", "transformers", "matplotlib"]}

CELL_ALONE = """\
# Nothing happens here where these are installed; what is missing is installed now.
import importlib.util
import subprocess
import sys

needed = {packages}
missing = [name for name in needed if importlib.util.find_spec(name) is None]
if missing:
    command = [sys.executable, "-m", "pip", "install", "--quiet", *missing]
    subprocess.run(command, check=True)
    importlib.invalidate_caches()"""


def address() -> str:
    """The repository's address, empty until somebody has published it."""
    return (yaml.safe_load(CONFIG.read_text(encoding="utf-8")).get("repository") or {}).get("url") or ""


def source(url: str, chapter: str = "") -> str:
    """The text of the cell, in a chapter that needs the library or in one of those that do not."""
    if chapter in ALONE:
        return CELL_ALONE.format(packages=json.dumps(ALONE[chapter]))
    return CELL.format(address=f"git+{url}" if url else "")


def write_address(url: str) -> None:
    """Put the address into its one place."""
    if not re.fullmatch(r"https://[\w.-]+/[\w.-]+/[\w.-]+", url):
        raise SystemExit(f"{url} is no address of a repository, such as https://github.com/someone/rlhf-minimal")
    text = CONFIG.read_text(encoding="utf-8")
    changed, count = re.subn(r'^(  url: )"[^"\n]*"', rf'\1"{url}"', text, flags=re.MULTILINE)
    if count != 1:
        raise SystemExit('_config.yml should have exactly one line `  url: "…"`, under `repository:`')
    CONFIG.write_text(changed, encoding="utf-8")


def check_published(url: str) -> None:
    """A copy of the repository whose buttons open another one, or another one's library, is not published."""
    written, repository = address(), url.removesuffix(".git").rstrip("/")
    mend = f"python book/_tools/install_cell.py {repository}, and commit what it changes"
    if not written:
        print(f"The book has no Colab and Binder buttons. To have them: {mend}.")
    elif written.lower() != repository.lower():
        raise SystemExit(f"The Colab and Binder buttons would open {written}, and this is {repository}: {mend}.")


def put_into(path: Path) -> bool:
    """Insert or renew the cell; say whether the file changed."""
    notebook = nbformat.read(path, as_version=4)
    cells = [cell for cell in notebook.cells if "install" not in cell.metadata.get("tags", [])]
    first = next((number for number, cell in enumerate(cells) if cell.cell_type == "code"), len(cells))
    text = source(address(), path.stem)
    cell = nbformat.v4.new_code_cell(text, id="install", execution_count=1, metadata={"tags": TAGS})
    notebook.cells = [*cells[:first], cell, *cells[first:]]
    before, after = path.read_text(encoding="utf-8"), notebooks.normalise(notebook)
    path.write_text(after, encoding="utf-8")
    return before != after


def main(arguments: list[str]) -> None:
    """Write the address if there is one, then the cell into every chapter; or compare the address and write nothing."""
    if arguments[:1] == ["--published-at"]:
        return check_published(arguments[1])
    for url in arguments:
        write_address(url.removesuffix(".git").rstrip("/"))
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        if put_into(path):
            print(path.relative_to(ROOT))


if __name__ == "__main__":
    main(sys.argv[1:])
