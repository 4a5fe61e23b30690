"""The first cell of every chapter, run for real: from a wheel built here, into a folder that is thrown away."""

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from setuptools import find_packages

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "book" / "_tools"))

import install_cell  # noqa: E402

CHAPTERS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_it_is_the_first_cell_of_every_chapter(path):
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert cells[0].source == install_cell.source(install_cell.address(), path.stem), (
        "run python book/_tools/install_cell.py"
    )
    assert set(install_cell.TAGS) <= set(cells[0].metadata.tags)


def test_it_does_nothing_where_the_library_is_installed(monkeypatch):
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("it called pip"))
    exec(install_cell.source("https://github.com/someone/something"), {})


@pytest.fixture
def pip(monkeypatch):
    """What the cell asks pip for, in a Python that has nothing; `pip.here` names what it has."""
    asked = SimpleNamespace(calls=[], here=set())
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object() if name in asked.here else None)
    monkeypatch.setattr(subprocess, "run", lambda command, check: asked.calls.append(command[5:]))
    monkeypatch.delenv("RLHF_MINIMAL", raising=False)
    return asked


def test_it_installs_the_repository_it_was_given(pip):
    exec(install_cell.source("https://github.com/someone/something"), {})
    assert pip.calls == [["rlhf-minimal[notebooks] @ git+https://github.com/someone/something"]]


def test_it_installs_the_repository_in_which_the_chapter_lies(pip, monkeypatch):
    monkeypatch.chdir(ROOT / "notebooks")
    exec(install_cell.source(""), {})
    assert pip.calls == [[f"rlhf-minimal[notebooks] @ {ROOT.as_uri()}"]]


def test_it_installs_what_the_reader_names(pip, monkeypatch, tmp_path):
    wheel = tmp_path / "rlhf_minimal-0.2.0-py3-none-any.whl"
    wheel.touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RLHF_MINIMAL", wheel.name)
    exec(install_cell.source("https://github.com/someone/something"), {})
    assert pip.calls == [[f"rlhf-minimal[notebooks] @ {wheel.as_uri()}"]]


def test_in_a_folder_that_holds_no_project_it_says_what_to_do(pip, monkeypatch, tmp_path):
    """A notebook that was downloaded alone: pip is not asked to install a folder that is no project."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RuntimeError, match=r"Install it from its wheel.*RLHF_MINIMAL"):
        exec(install_cell.source(""), {})
    monkeypatch.setenv("RLHF_MINIMAL", "nowhere.whl")
    with pytest.raises(RuntimeError, match=r"'nowhere.whl': there is no such file"):
        exec(install_cell.source(""), {})
    assert pip.calls == []


def test_what_moves_the_figures_is_asked_for_alone_where_the_library_is_here(pip):
    """An editable install of a clone is not replaced by a copy."""
    pip.here = {"rlhf_minimal", "rlhf_book", "ipywidgets"}
    exec(install_cell.source(""), {})
    assert pip.calls == [["anywidget"]]


def test_the_extra_that_it_asks_for_has_what_chapters_import():
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["notebooks"]
    assert {"anywidget", "ipywidgets", "ipykernel"} <= {re.match(r"[\w-]+", wanted)[0] for wanted in extra}


def test_without_anywidget_a_figure_says_what_to_install():
    program = "import sys; sys.modules['anywidget'] = None; import rlhf_book.figures.widgets"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "notebooks")])}
    result = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert result.returncode == 1
    assert "python -m pip install anywidget ipywidgets" in result.stderr.splitlines()[-1]


def test_a_chapter_without_the_library_installs_only_what_is_missing(monkeypatch):
    assert set(install_cell.ALONE) <= {path.stem for path in CHAPTERS}
    called = []
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "matplotlib" else object())
    monkeypatch.setattr(subprocess, "run", lambda command, check: called.append(command[3:]))
    cell = install_cell.source("https://github.com/someone/something", "from-zero")
    exec(cell, {})
    assert called == [["install", "--quiet", "matplotlib"]]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    exec(cell, {})
    assert len(called) == 1
    assert "rlhf" not in cell


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    """A wheel of the working tree, built without the network: setuptools is here already."""
    folder = tmp_path_factory.mktemp("wheel")
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE", "LICENSE-TEXT"):
        (source / name).write_bytes((ROOT / name).read_bytes())
    (source / "notebooks").mkdir()
    for package in ("rlhf_minimal", "notebooks/rlhf_book", "notebooks/results"):
        subprocess.run(["cp", "-r", ROOT / package, source / package], check=True)
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        folder,
        source,
    ]
    subprocess.run(command, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


def hidden_working_tree(target: Path) -> str:
    """A program's first lines: its Python does not see this working tree, only what is installed in `target`."""
    return "\n".join(
        [
            "import sys",
            # An editable install of the working tree would be found first: this Python must not know it.
            f"roots = {[str(ROOT), str(ROOT / 'notebooks')]!r}",
            "sys.meta_path = [f for f in sys.meta_path if 'editable' not in repr(f)]",
            "sys.path = [p for p in sys.path if p not in roots]",
            "import importlib.util",
            "for package in ('rlhf_minimal', 'rlhf_book'):",
            "    assert importlib.util.find_spec(package) is None, 'the working tree is still visible'",
            f"sys.path.insert(0, {str(target)!r})",
        ]
    )


@pytest.fixture(scope="session")
def installed(wheel, tmp_path_factory):
    """The folder into which the install cell puts the wheel, as on Colab: torch and the rest are there already."""
    target = tmp_path_factory.mktemp("site")
    empty = tmp_path_factory.mktemp("empty")
    program = "\n".join([hidden_working_tree(target), install_cell.source("")])
    environment = {
        **os.environ,
        "RLHF_MINIMAL": str(wheel),
        "PYTHONPATH": "",
        # Into a folder of its own, without an index to ask.
        "PIP_TARGET": str(target),
        "PIP_NO_DEPS": "1",  # what the extra asks for is here already
        "PIP_NO_INDEX": "1",
    }
    result = subprocess.run([sys.executable, "-c", program], cwd=empty, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert not (ROOT / "build").exists()
    return target


def test_every_package_and_every_record_is_in_the_wheel(wheel):
    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    found = {p for p in find_packages(str(ROOT)) if p.split(".")[0] == "rlhf_minimal"}
    found |= set(find_packages(str(ROOT / "notebooks"))) | {"rlhf_book.results"}
    assert listed == found, "pyproject.toml lists the packages of the wheel"
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder, package in (
        (ROOT / "notebooks" / "results", "rlhf_book/results"),
        (ROOT / "rlhf_minimal", "rlhf_minimal"),
    ):
        for file in folder.rglob("*"):
            if file.suffix in (".json", ".safetensors", ".yml"):
                assert f"{package}/{file.relative_to(folder).as_posix()}" in names


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_no_chapter_reads_what_lies_beside_it(path):
    """What a chapter reads comes from the packages: a chapter that was downloaded alone has nothing beside it."""
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "code" and "install" not in cell.metadata.get("tags", []):
            assert not re.search(r"""\b(Path|open)\(\s*f?["'](?!/)""", cell.source), cell.source


# The others are held by the test above; this one reads records, sets exercises and shows a figure that moves.
@pytest.mark.parametrize("name", ["rlvr"])
def test_a_chapter_runs_in_a_folder_that_holds_nothing_else(installed, tmp_path, name):
    """The wheel is installed, the chapter was downloaded, and there is nothing else."""
    cells = [
        c for c in nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4).cells if c.cell_type == "code"
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(hidden_working_tree(installed)), *cells])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    (tmp_path / "chapter.ipynb").write_text(nbformat.writes(notebook))
    program = (
        "import nbformat; from nbclient import NotebookClient; n = nbformat.read('chapter.ipynb', as_version=4);"
        "NotebookClient(n, timeout=300, resources={'metadata': {'path': '.'}}).execute();"
        "print(sum(bool(cell.get('outputs')) for cell in n.cells))"
    )
    environment = {**os.environ, "PYTHONPATH": "", "OMP_NUM_THREADS": "1"}
    environment.pop("MPLBACKEND", None)
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr[-2000:]
    assert int(result.stdout) == sum(bool(cell.outputs) for cell in cells)


def test_what_was_installed_is_what_the_chapter_goes_on_with(installed, tmp_path):
    program = "\n".join(
        [
            hidden_working_tree(installed),
            "import rlhf_minimal",
            "from rlhf_minimal.tasks import get_task",
            "from rlhf_book.exercises import EXERCISES",
            "from rlhf_book.figures.widgets import GroupExplorer",
            "from rlhf_book.records import read_record",
            "assert EXERCISES and GroupExplorer()._esm and read_record('grpo-sweeps')['runs']",
            f"assert rlhf_minimal.__file__.startswith({str(installed)!r}), rlhf_minimal.__file__",
            "print(rlhf_minimal.diff('gspo', 'gspo_token'), len(get_task('addition').problems('held_out', 3, seed=0)))",
        ]
    )
    environment = {**os.environ, "PYTHONPATH": ""}
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.split("\n")[-2] == "ratio: sequence -> sequence_token 3"


def test_the_address_is_refused_where_it_is_none(tmp_path, monkeypatch):
    config = tmp_path / "_config.yml"
    config.write_text('repository:\n  url: ""\n')
    monkeypatch.setattr(install_cell, "CONFIG", config)
    with pytest.raises(SystemExit, match="no address"):
        install_cell.write_address("my-repository")
    install_cell.write_address("https://github.com/someone/something")
    assert install_cell.address() == "https://github.com/someone/something"


def test_a_book_whose_buttons_open_another_repository_is_not_published(tmp_path, monkeypatch, capsys):
    """A button opens what a repository holds: an address that only the workflow wrote would be missing there."""
    config = tmp_path / "_config.yml"
    monkeypatch.setattr(install_cell, "CONFIG", config)
    config.write_text('repository:\n  url: ""\n')
    install_cell.main(["--published-at", "https://github.com/someone/book"])
    assert "no Colab and Binder buttons" in capsys.readouterr().out
    config.write_text('repository:\n  url: "https://github.com/someone/book"\n')
    install_cell.main(["--published-at", "https://github.com/Someone/book.git"])
    with pytest.raises(SystemExit, match=r"would open https://github.com/someone/book, .*commit what it changes"):
        install_cell.main(["--published-at", "https://github.com/fork/book"])
    assert config.read_text() == 'repository:\n  url: "https://github.com/someone/book"\n'


def test_binder_makes_the_environment_that_was_tested():
    folder = ROOT / ".binder"
    post_build = folder / "postBuild"
    assert os.access(post_build, os.X_OK)
    assert subprocess.run(["bash", "-n", post_build], check=False).returncode == 0
    assert "-r requirements.txt -e ." in post_build.read_text()
    first = (ROOT / "requirements.txt").read_text().splitlines()[0]
    assert f"Python {(folder / 'runtime.txt').read_text().strip().removeprefix('python-')}" in first
