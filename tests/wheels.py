"""The wheel and the source distribution, built from a clean copy of what git knows, without a network."""

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def clean_copy(folder: Path) -> Path:
    """The files of the working tree that git tracks or would track: no build, no cache, no run."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("this is no git repository: what belongs to a distribution cannot be told from what lies about")
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():  # one that was deleted and not committed yet is still listed
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def sdist(source: Path, out: Path) -> Path:
    """The source distribution of a folder, as a build front-end makes it."""
    program = f"from setuptools import build_meta; print(build_meta.build_sdist({str(out)!r}))"
    done = subprocess.run([sys.executable, "-c", program], cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return out / done.stdout.splitlines()[-1]


def wheel(source: Path, out: Path) -> Path:
    """The wheel of a folder or of a source distribution; setuptools is here already."""
    options = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *options, "-w", out, source], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (built,) = out.glob("*.whl")
    return built


def unpacked(archive: Path, folder: Path) -> Path:
    """The one folder that a source distribution holds."""
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    (inside,) = folder.iterdir()
    return inside
