"""A release: one version everywhere, a changelog that says what is new, and workflows that publish what was tried."""

import importlib.util
import re
import shlex
import shutil
import zipfile
from pathlib import Path

import pytest
import yaml

from tests import versions

ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = ROOT / ".github" / "workflows"


def workflow(name):
    found = yaml.safe_load((WORKFLOWS / name).read_text(encoding="utf-8"))
    return {**found, "on": found.pop(True)}  # YAML 1.1 takes the word `on` for a truth


# ── the version ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def copy(tmp_path):
    """The four places, to be changed."""
    for place in versions.places():
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / place, tmp_path / place)
    return tmp_path


def test_every_place_says_the_same(capsys):
    (version, _, _), *_ = versions.released()
    assert versions.differences(version) == []
    assert versions.main([f"v{version}"]) == 0
    assert versions.main(["v9.9.9"]) == 1
    assert capsys.readouterr().out.count("says") == len(versions.places())
    assert versions.main([version]) == 2


@pytest.mark.parametrize("place", list(versions.places()))
def test_a_place_that_was_forgotten_is_named(copy, place):
    (version, _, _), *_ = versions.released()
    text = (copy / place).read_text(encoding="utf-8")
    assert text.count(version) >= 1
    head = re.search(rf'^(version(: | = ")|__version__ = "|## ){re.escape(version)}', text, re.MULTILINE)
    (copy / place).write_text(text[: head.start()] + head[0].replace(version, "0.0.9") + text[head.end() :])
    assert versions.differences(version, copy) == [f"{place} says 0.0.9"]


def test_another_day_is_noticed(copy):
    (version, day, _), *_ = versions.released()
    text = (copy / "CITATION.cff").read_text(encoding="utf-8")
    (copy / "CITATION.cff").write_text(text.replace(day, "2020-01-01"))
    assert versions.differences(version, copy) == [f"CITATION.cff says 2020-01-01, the changelog {day}"]


def test_the_changelog_is_in_groups_and_newest_first(capsys):
    text = versions.read("CHANGELOG.md")
    heads = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert heads[0] == "Unreleased"
    assert heads[1:] == [f"{number}, {day}" for number, day, _ in versions.released()]
    days = [day for _, day, _ in versions.released()]
    assert days == sorted(days, reverse=True)
    assert versions.unreleased()
    for _, _, section in versions.released():
        introduction, *groups = re.split(r"^### .+\n", section, flags=re.MULTILINE)
        assert introduction.strip()
        assert len(groups) >= 3
        assert all(group.strip().startswith("- ") for group in groups)
    assert versions.main(["--notes"]) == 0
    assert capsys.readouterr().out.strip() == versions.released()[0][2]


def test_the_citation_is_whole():
    citation = yaml.safe_load(versions.read("CITATION.cff"))
    assert {"cff-version", "message", "title", "authors", "version", "date-released", "license"} <= citation.keys()
    assert all({"name"} <= author.keys() or {"family-names"} <= author.keys() for author in citation["authors"])


# ── workflows ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", sorted(WORKFLOWS.glob("*.yml")), ids=lambda path: path.name)
def test_what_a_workflow_runs_exists(path):
    """Files, modules and targets of make that its commands name; and every job that another one waits for."""
    jobs = workflow(path.name)["jobs"]
    targets = set(re.findall(r"^(\w+):", versions.read("Makefile"), re.MULTILINE))
    for job in jobs.values():
        needed = job.get("needs", [])
        assert {needed} if isinstance(needed, str) else {*needed} <= jobs.keys()
        for step in job["steps"]:
            assert ("run" in step) != ("uses" in step)
            command = step.get("run", "")
            assert all(target in targets for target in re.findall(r"^make (\w+)", command, re.MULTILINE))
            for file in re.findall(r"(?<![\w/-])((?:book|tests|notebooks|\.ci)/[\w./-]+)", command):
                assert (ROOT / file).exists(), file
            for module in re.findall(r"python -m (tests[\w.]*)", command):
                assert (ROOT / f"{module.replace('.', '/')}.py").is_file(), module


def test_what_is_published_was_tried_first_and_needs_no_token():
    release = workflow("release.yml")
    jobs = release["jobs"]
    assert release["on"]["push"] == {"tags": ["v*.*.*"]}
    assert (jobs["try"]["needs"], jobs["publish"]["needs"], jobs["notes"]["needs"]) == ("build", "try", "publish")
    assert jobs["publish"]["if"] == "startsWith(github.ref, 'refs/tags/v')"
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert release["permissions"] == {"contents": "read"}
    assert [name for name, job in jobs.items() if "permissions" in job] == ["publish", "notes"]
    text = (WORKFLOWS / "release.yml").read_text(encoding="utf-8")
    assert "secrets." not in text
    assert "password" not in re.sub(r"^#.*", "", text, flags=re.MULTILINE)
    commands = " ".join(step.get("run", "") for step in jobs["try"]["steps"])
    assert "[notebooks]" in commands
    assert "tests/installed.py" in commands


def test_the_site_has_its_downloads_before_it_is_uploaded():
    steps = workflow("publish.yml")["jobs"]["build"]["steps"]
    order = [step.get("run") or step["uses"] for step in steps]
    built, put = order.index("make book"), order.index(".venv/bin/python book/_tools/downloads.py --publish")
    uploaded = next(i for i, words in enumerate(order) if words.startswith("actions/upload-pages-artifact"))
    assert built < put < uploaded
    assert steps[uploaded]["with"]["path"] == "_build/html"


# ── the downloads of the site ────────────────────────────────────────────────────────────────────────────────────────


def tool(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "book" / "_tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


DOWNLOADS = tool("downloads")


@pytest.fixture
def html(tmp_path):
    """What a build leaves, small."""
    folder = tmp_path / "html"
    for name in ("index.html", "book/index.html", "_static/book.css", ".doctrees/a.doctree", ".buildinfo"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{name} {DOWNLOADS.PLACE if name == 'book/index.html' else ''}")
    return folder


def test_the_zip_holds_the_pages_and_not_what_the_build_needed(html, tmp_path):
    target = tmp_path / "out" / "book.zip"
    assert DOWNLOADS.write_zip(html, target) == 3
    with zipfile.ZipFile(target) as book:
        assert book.testzip() is None
        assert set(book.namelist()) == {
            f"rlhf-book/{name}" for name in ("index.html", "book/index.html", "_static/book.css")
        }
    assert [file.name for file in target.parent.iterdir()] == ["book.zip"]


def test_the_published_front_page_links_to_what_is_there(html, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "book" / "_tools"))
    line = DOWNLOADS.publish(html)
    front = html / "book" / "index.html"
    assert line in front.read_text()
    assert DOWNLOADS.PLACE not in front.read_text()
    links = re.findall(r'href="([^"]+)"', line)
    assert sorted((front.parent / link).resolve().name for link in links) == ["rlhf-book.zip", "rlhf-interview.apkg"]
    for link in links:
        assert zipfile.is_zipfile(front.parent / link), link
    with zipfile.ZipFile(html / "downloads" / "rlhf-book.zip") as book:
        assert DOWNLOADS.PLACE in book.read("rlhf-book/book/index.html").decode()  # no link that leads nowhere
        assert not any("downloads" in name for name in book.namelist())


def test_a_second_publishing_puts_new_links_in_the_place_of_the_first(html, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "book" / "_tools"))
    front = html / "book" / "index.html"
    before = front.read_text()
    DOWNLOADS.publish(html)
    line = DOWNLOADS.publish(html)
    assert front.read_text() == before.replace(DOWNLOADS.PLACE, line)
    for zipped in (html / "downloads" / "rlhf-book.zip", tmp_path / "offline.zip"):
        if not zipped.exists():
            DOWNLOADS.write_zip(html, zipped)  # `make offline` after it: the links would lead nowhere in it
        with zipfile.ZipFile(zipped) as book:
            assert book.read("rlhf-book/book/index.html").decode() == before
    front.write_text(before.replace(DOWNLOADS.PLACE, ""))
    with pytest.raises(ValueError, match="make book"):
        DOWNLOADS.publish(html)
    front.write_text(before + DOWNLOADS.PLACE)
    with pytest.raises(ValueError, match="expected once"):
        DOWNLOADS.publish(html)


def test_editions_and_slides_are_published_where_they_have_been_made(html, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "book" / "_tools"))
    (html.parent / "slides").mkdir()
    made = ["rlhf-book-cores.epub", "rlhf-book-cores.pdf", "rlhf-book-depths.pdf", "slides/index.html"]
    for name in made:
        (html.parent / name).write_text(name)
    line = DOWNLOADS.publish(html)
    links = re.findall(r'href="../downloads/([^"]+)"', line)
    assert links == ["rlhf-book.zip", *made, "rlhf-interview.apkg"]
    assert all((html / "downloads" / link).is_file() for link in links)
    with zipfile.ZipFile(html / "downloads" / "rlhf-book.zip") as book:
        assert len(book.namelist()) == 3


@pytest.mark.parametrize("target", ["epub", "pdf", "slides"])
def test_editions_and_slides_have_a_target_and_the_workflow_makes_them(target):
    makefile = versions.read("Makefile")
    assert re.search(rf"^{target}: \w+  ## .+\n\t\$\(BIN\)/python book/_tools/{target}.py$", makefile, re.MULTILINE)
    assert target in re.search(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)[1].split()
    builder = re.search(r"^pages: env.*\n\t\$\(BIN\)/(.+)$", makefile, re.MULTILINE)[1]
    contributing = versions.read("CONTRIBUTING.md")
    assert f"`make {target}`" in contributing
    assert f"`.venv/bin/{builder}`" in contributing
    assert re.search(rf"run: make .*\b{target}\b", versions.read(".github/workflows/publish.yml"))


def test_without_a_built_book_it_says_what_to_do(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(DOWNLOADS, "HTML", tmp_path / "html")
    assert DOWNLOADS.main([]) == 1
    assert "run `make book` first" in capsys.readouterr().err


def test_the_front_page_has_a_place_for_the_downloads():
    assert versions.read("book/index.md").count(DOWNLOADS.PLACE) == 1
    recipe = re.search(r"^offline: book.*\n\t(\S.*)$", versions.read("Makefile"), re.MULTILINE)[1]
    assert shlex.split(recipe) == ["$(BIN)/python", "book/_tools/downloads.py"]
    assert f"| `make offline` | `{recipe.replace('$(BIN)', '.venv/bin')}` |" in versions.read("CONTRIBUTING.md")
    assert "offline" in re.search(r"^\.PHONY: (.+)$", versions.read("Makefile"), re.MULTILINE)[1].split()
