"""The first cell of every chapter, run for real: from a wheel built here, into a folder that is thrown away."""

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "book" / "_tools"))

import install_cell  # noqa: E402

CHAPTERS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_it_is_the_first_cell_of_every_chapter(path):
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert cells[0].source == install_cell.source(install_cell.address()), "run python book/_tools/install_cell.py"
    assert set(install_cell.TAGS) <= set(cells[0].metadata.tags)


def test_it_does_nothing_where_the_library_is_installed(monkeypatch):
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("it called pip"))
    exec(install_cell.source("https://github.com/someone/something"), {})


def test_it_installs_the_repository_it_was_given(monkeypatch):
    called = []
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr(subprocess, "run", lambda command, check: called.append(command[-1]))
    monkeypatch.delenv("RLHF_MINIMAL", raising=False)
    exec(install_cell.source("https://github.com/someone/something"), {})
    exec(install_cell.source(""), {})
    assert called == ["git+https://github.com/someone/something", ".."]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    """A wheel of the working tree, built without the network: setuptools is here already."""
    folder = tmp_path_factory.mktemp("wheel")
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE", "LICENSE-TEXT"):
        (source / name).write_bytes((ROOT / name).read_bytes())
    (source / "notebooks").mkdir()
    for package in ("rlhf_minimal", "notebooks/rlhf_book"):
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


def test_it_installs_a_built_wheel_and_the_chapter_goes_on(wheel, tmp_path):
    """A Python that does not see this working tree runs the cell, then imports and uses what was installed."""
    target = tmp_path / "site"
    program = "\n".join(
        [
            "import sys",
            # An editable install of the working tree would be found first: this Python must not know it.
            f"roots = {[str(ROOT), str(ROOT / 'notebooks')]!r}",
            "sys.meta_path = [f for f in sys.meta_path if 'editable' not in repr(f)]",
            "sys.path = [p for p in sys.path if p not in ('', *roots)]",
            "import importlib.util",
            "assert importlib.util.find_spec('rlhf_minimal') is None, 'the working tree is still visible'",
            "assert importlib.util.find_spec('rlhf_book') is None, 'the working tree is still visible'",
            f"sys.path.insert(0, {str(target)!r})",
            install_cell.source(""),
            "import rlhf_minimal",
            "from rlhf_minimal.tasks import get_task",
            "from rlhf_book.exercises import EXERCISES",
            "from rlhf_book.figures.widgets import GroupExplorer",
            "assert EXERCISES and GroupExplorer()._esm",
            f"assert rlhf_minimal.__file__.startswith({str(target)!r}), rlhf_minimal.__file__",
            "print(rlhf_minimal.diff('gspo', 'gspo_token'), len(get_task('addition').problems('held_out', 3, seed=0)))",
        ]
    )
    environment = {
        **os.environ,
        "RLHF_MINIMAL": str(wheel),
        "PYTHONPATH": "",
        # As on Colab: torch and the rest are there. Into a folder of its own, without an index to ask.
        "PIP_TARGET": str(target),
        "PIP_NO_DEPS": "1",
        "PIP_NO_INDEX": "1",
    }
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.split("\n")[-2] == "ratio: sequence -> sequence_token 3"
    assert not (ROOT / "build").exists()


def test_the_address_is_refused_where_it_is_none(tmp_path, monkeypatch):
    config = tmp_path / "_config.yml"
    config.write_text('repository:\n  url: ""\n')
    monkeypatch.setattr(install_cell, "CONFIG", config)
    with pytest.raises(SystemExit, match="no address"):
        install_cell.write_address("my-repository")
    install_cell.write_address("https://github.com/someone/something")
    assert install_cell.address() == "https://github.com/someone/something"
