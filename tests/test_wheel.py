"""What is published works where there is nothing else: in an empty environment and a folder that holds nothing."""

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests import wheels
from tests.browser.chromium import PROGRAM, open_page, started

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
VENDOR = ROOT / "book" / "_static" / "vendor" / "widgets"


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return wheels.clean_copy(tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="module")
def sdist(source, tmp_path_factory):
    return wheels.sdist(source, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def wheel(sdist, tmp_path_factory):
    """Built from the source distribution, as an installer builds it that finds no wheel."""
    return wheels.wheel(sdist, tmp_path_factory.mktemp("wheel"))


def names_in(wheel):
    return set(zipfile.ZipFile(wheel).namelist())


def test_the_source_distribution_holds_what_the_wheel_is_made_of(source, sdist, wheel, tmp_path):
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "LICENSE-TEXT", "rlhf_minimal/row_facts.yml"} <= inside
    assert names_in(wheel) == names_in(wheels.wheel(source, tmp_path))


def test_both_packages_and_all_their_data_are_in_the_wheel(source, wheel):
    """Whatever git knows below a package is in the wheel, but for what is named here."""
    packages = {
        "rlhf_minimal": "rlhf_minimal",
        "notebooks/rlhf_book": "rlhf_book",
        "notebooks/results": "rlhf_book/results",
    }
    left_out = []
    for folder, package in packages.items():
        for file in (source / folder).rglob("*"):
            name = f"{package}/{file.relative_to(source / folder).as_posix()}"
            if file.is_file() and "__pycache__" not in name and name not in names_in(wheel):
                left_out.append(name)
    assert left_out == []
    tops = {name.partition("/")[0] for name in names_in(wheel)}
    assert tops == {"rlhf_minimal", "rlhf_book", f"rlhf_minimal-{PROJECT['version']}.dist-info"}


def test_the_wheel_says_what_it_is(wheel):
    metadata = zipfile.ZipFile(wheel).read(f"rlhf_minimal-{PROJECT['version']}.dist-info/METADATA").decode()
    assert f"\nVersion: {PROJECT['version']}\n" in metadata
    assert "\nLicense-Expression: Apache-2.0\n" in metadata
    assert {"LICENSE", "LICENSE-TEXT"} <= set(re.findall(r"^License-File: (.+)$", metadata, re.MULTILINE))
    for link in re.findall(r"\]\(([^)#]+)\)", metadata.partition("\n\n")[2]):
        if not link.startswith("https:"):
            assert (ROOT / link).exists(), f"the description links to {link}"


# ── installed ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _without_this_repository():
    """The environment less the paths that tests add: by them pip would find the editable install and be content."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory):
    """The Python of an empty environment with the wheel and nothing else; its dependencies are read where they lie.

    A path file adds the packages that are installed here, behind those of the environment. What such a folder says of
    further paths, an editable install of this repository for one, is not followed.
    """
    folder = tmp_path_factory.mktemp("empty") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    asked = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    packages = Path(subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip())
    assert list(packages.iterdir()) == []
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel]
    subprocess.run(pip, check=True, capture_output=True, cwd=folder, env=_without_this_repository())
    assert (python.parent / "rlhf-minimal").exists(), "pip installed nothing"
    here = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
    (packages / "dependencies.pth").write_text("\n".join(here) + "\n", encoding="utf-8")
    return python


PARTS = ("packages", "train", "tables", "exercise", "figure")


@pytest.fixture(scope="module")
def tried(python, tmp_path_factory):
    """The parts of tests/installed.py, run in a folder that holds nothing; the folder, and what was said."""
    nothing = tmp_path_factory.mktemp("nothing")
    words = [python, ROOT / "tests" / "installed.py", *PARTS]
    environment = _without_this_repository()
    done = subprocess.run(words, cwd=nothing, env=environment, capture_output=True, text=True, check=False)
    return nothing, done


def test_in_an_empty_folder_it_trains_prints_checks_and_saves(tried):
    _, done = tried
    assert done.returncode == 0, done.stderr[-3000:]
    assert [line for line in done.stdout.splitlines() if line.startswith("works: ")] == [f"works: {p}" for p in PARTS]


def test_a_figure_that_was_saved_moves(tried):
    """The page that the empty environment saved, opened in a browser beside the widget manager of the book."""
    page = tried[0] / "figure.html"
    if PROGRAM is None:
        pytest.skip("no Chromium on this machine: the figure was made and saved, and is not looked at")
    scripts = "".join(
        f'<script src="{(VENDOR / name).as_uri()}"></script>' for name in ("require.js", "setup.js", "embed-amd.js")
    )
    page.write_text(page.read_text(encoding="utf-8").replace("<script", scripts + "<script", 1), encoding="utf-8")
    with started() as browser:
        opened = open_page(browser, page, wrong := [])
        expect(opened.locator("input[type=range]").nth(3)).to_be_attached()
        values = opened.locator("input[type=range]").evaluate_all("(all) => all.map((e) => Number(e.value))")
        assert values[-4:] == [1, 0, 0, 1]
    assert wrong == []


def test_the_tried_packages_are_not_those_of_the_working_tree(tmp_path):
    """The check bites: where the packages are the repository's own, it says so."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "notebooks")])}
    words = [sys.executable, ROOT / "tests" / "installed.py", "packages"]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "is not in" in done.stderr.splitlines()[-1]
