"""The pages that are no chapters: their snippets run, their lists are complete, and what they point at exists."""

import ast
import doctest
import importlib.util
import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

import api_pages
import apparatus_pages
import book_facts
import equation_index as index
import llms_txt
import rows as pages
import theme
from apparatus import Claim, claims
from rlhf_book.facts import facts_of
from rlhf_minimal import ALGORITHMS
from tests.complete import all_rows_complete

ROOT = Path(__file__).resolve().parents[1]

PAGES = sorted((ROOT / "book").rglob("*.md"))
PAGES = [page for page in PAGES if not any(part.startswith("_") for part in page.relative_to(ROOT).parts)]
SNIPPETS = [
    pytest.param(code, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, code in enumerate(re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S))
]


@pytest.mark.parametrize("code", SNIPPETS)
def test_a_snippet_of_a_page_runs(code):
    if ">>>" not in code:
        exec(compile(code, "page", "exec"), {})
        return
    test = doctest.DocTestParser().get_doctest(code, {}, "page", None, 0)
    assert doctest.DocTestRunner().run(test).failed == 0


def test_there_are_snippets():
    assert len(SNIPPETS) >= 2


@all_rows_complete
def test_every_step_between_rows_is_on_its_page():
    assert "```{generated} rows:steps\n" in (ROOT / "book" / "paper-to-paper.md").read_text(encoding="utf-8")
    rows = {name: facts_of(name) for name in ALGORITHMS}
    steps = [(rows[step.start].title, row.title) for row in rows.values() for step in row.steps]
    assert {row for step in steps for row in step} == {row.title for row in rows.values()}
    sections = re.split(r"^### (.*)\n", pages.steps(), flags=re.MULTILINE)[1:]
    assert sorted(sections[::2]) == sorted(f"{first} to {second}" for first, second in steps)
    for section in sections[1::2]:
        assert "| column |" in section
        assert "**Addresses**" in section
        assert "**Leaves open**" in section


def test_the_glossary_is_in_order_and_explains_each_word_once():
    block = re.search(r"```\{glossary\}\n(.*?)```", (ROOT / "book" / "glossary.md").read_text(), re.DOTALL)[1]
    terms = [line for line in block.splitlines() if line and not line.startswith(" ")]
    assert terms == sorted(set(terms), key=str.lower)


def test_llms_txt_has_every_page_once_with_its_title():
    text = llms_txt.text()
    links = re.findall(r"^- \[[^]]+\]\(([^)]+)\.html\): \S", text, re.MULTILINE)
    assert links == [page for page in index.pages_of_the_book() if page != "book/index"]
    assert text.startswith("# rlhf-minimal\n\n> ")


def test_every_chapter_has_a_recorded_time():
    chapters = [page.removeprefix("notebooks/") for page in index.pages_of_the_book() if page.startswith("notebooks/")]
    recorded = book_facts.times()["notebooks"]
    assert [name for name in chapters if name not in recorded] == [], "run python book/_tools/run_times.py"
    assert max(recorded.values()) < 120


def test_the_versions_are_those_that_are_installed():
    found = book_facts.versions()
    assert ("torch", "2.13.0") in [(name, pinned) for name, pinned, _ in found]
    assert [name for name, _, installed in found if installed == "not installed"] == []


def test_reading_takes_longer_the_more_there_is(tmp_path):
    import nbformat

    def minutes(*cells):
        path = tmp_path / "a.ipynb"
        nbformat.write(nbformat.v4.new_notebook(cells=list(cells)), path)
        return book_facts.reading_minutes(path)

    text = nbformat.v4.new_markdown_cell("word " * 900)
    assert minutes(text) == 5
    assert minutes(text, nbformat.v4.new_code_cell("x = 1\n" * 300)) == 25
    assert minutes(text, nbformat.v4.new_markdown_cell("$$\nx\n$$\n" * 10)) == 10


def test_folded_code_is_not_read(tmp_path):
    import nbformat

    code = nbformat.v4.new_code_cell("x = 1\n" * 300)
    nbformat.write(nbformat.v4.new_notebook(cells=[code]), tmp_path / "a.ipynb")
    code.metadata["tags"] = ["hide-input"]
    nbformat.write(nbformat.v4.new_notebook(cells=[code]), tmp_path / "b.ipynb")
    assert [book_facts.reading_minutes(tmp_path / name) for name in ("a.ipynb", "b.ipynb")] == [20, 0]


def test_exercises_take_the_time_of_those_that_the_chapter_sets(tmp_path):
    import nbformat

    cells = [
        nbformat.v4.new_markdown_cell("a", metadata={"from": f"exercise/{name}"})
        for name in ("grpo-k3/statement", "grpo-k3/solution", "grpo-process/statement")
    ]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "a.ipynb")
    assert book_facts.exercise_minutes(tmp_path / "a.ipynb") == 10 + 15


def test_every_command_has_an_example_that_parses_and_its_flags():
    from rlhf_minimal.cli import parser

    text = api_pages.commands()
    assert re.findall(r"^## `(\w+)`", text, re.MULTILINE) == list(api_pages.EXAMPLES)
    for name, line in api_pages.EXAMPLES.items():
        assert shlex.split(line)[0] == name
        parser().parse_args(shlex.split(line))
    assert {"--group-size", "--resume", "--accept", "--prompt", "--threads"} <= set(re.findall(r"--[a-z-]+", text))


def test_an_idea_is_split_into_a_title_and_the_rest():
    assert apparatus_pages.split_idea("What if all are wrong; a second question?") == (
        "What if all are wrong?",
        "A second question?",
    )
    assert apparatus_pages.split_idea("no end to this idea") == ("No end to this idea", "")


def test_a_heading_that_is_linked_has_its_formulas_and_its_code():
    claim = Claim("concept-x", "notebooks/grpo", 3, "code", "5. Does $1/|o|$ make `it` longer?", 2, "")
    assert claim.link == "[5. Does $1/|o|$ make `it` longer?](<#notebooks/grpo#concept-x>)"
    assert replace(claim, kind="markdown").link.endswith("(<#notebooks/grpo#section-2>)")
    for claim in claims():  # neither ends the link's text nor begins another one
        assert not set("[]<>") & set(re.sub(r"\$[^$]+\$|`[^`]+`", "", claim.heading)), claim.heading


def test_a_test_is_a_link_where_the_repository_has_an_address(monkeypatch):
    def shown(url):
        monkeypatch.setattr(apparatus_pages.errata, "repository", lambda: url)
        return apparatus_pages.test_link("tests/test_x.py::test_y")

    assert shown("") == "`tests/test_x.py::test_y`{.proof}"
    assert shown("https://github.com/a/b/") == f"[{shown('')}](https://github.com/a/b/blob/HEAD/tests/test_x.py)"


def test_launch_buttons_need_an_address():
    from types import SimpleNamespace

    def buttons(url):
        config = SimpleNamespace(html_theme_options={"repository_url": url, "launch_buttons": {"colab_url": "x"}})
        theme.no_buttons_to_nowhere(None, config)
        return "launch_buttons" in config.html_theme_options

    assert not buttons("")
    assert buttons("https://github.com/someone/something")


@pytest.mark.parametrize("name", ["publish", "test"])
def test_a_workflow_calls_what_exists(name):
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text(encoding="utf-8"))
    commands = "\n".join(step.get("run", "") for job in workflow["jobs"].values() for step in job["steps"])
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"\bmake (\w+)", commands):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for path in re.findall(r"(?<![\w/])((?:book|tests|\.ci)/[\w./-]+)", commands):
        assert (ROOT / path).exists(), path
    assert commands.strip()


def test_the_style_guide_names_files_that_exist():
    text = (ROOT / "book" / "contributing.md").read_text(encoding="utf-8")
    paths = re.findall(r"`((?:book|tests|rlhf_minimal|notebooks|\.github)/[\w./-]+)`", text)
    assert len(paths) > 5
    missing = [path for path in paths if not (ROOT / path).exists()]
    assert [path for path in missing if "kl-divergence" not in path] == []  # the example of a chapter's labels


def test_the_extensions_of_the_book_parse_on_the_oldest_python():
    for path in (path for folder in ("_ext", "_pages") for path in (ROOT / "book" / folder).glob("*.py")):
        ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 11))


def test_the_address_of_the_repository_has_one_place():
    spec = importlib.util.spec_from_file_location("install_cell", ROOT / "book" / "_tools" / "install_cell.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    config = (ROOT / "_config.yml").read_text(encoding="utf-8")
    assert len(re.findall(r"^  url: ", config, re.MULTILINE)) == 1
    assert tool.address() == yaml.safe_load(config)["repository"]["url"]


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_chapter_says_how_long_it_takes(path):
    """To within ten minutes of what the page "how to read" computes from its words, lines and exercises."""
    words = " ".join(
        "".join(cell["source"]) for cell in json.loads(path.read_text(encoding="utf-8"))["cells"][:8]
    )  # near the top
    read = re.search(r"[Aa]bout (\d+) minutes", words)
    assert read, "say near the top: about N minutes to read, and about M more for the exercises"
    assert abs(int(read[1]) - book_facts.reading_minutes(path)) <= 10
    practice = re.search(r"about (\d+) more for the exercises", " ".join(words.split()))
    assert abs((int(practice[1]) if practice else 0) - book_facts.exercise_minutes(path)) <= 10


def test_a_formula_in_a_quotation_stands_behind_an_empty_line():
    # Behind a line of words MyST takes it for one that runs on in them, and prints two of its dollar signs.
    glued = re.compile(r"^> *[^\s>][^\n]*\n> *\$\$", re.MULTILINE)
    assert glued.search("> So\n> $$x$$")
    assert not glued.search("> So\n>\n> $$x$$")
    for path in sorted([*(ROOT / "notebooks").glob("*.ipynb"), *(ROOT / "book").rglob("*.md")]):
        text = path.read_text(encoding="utf-8")
        cells = json.loads(text)["cells"] if path.suffix == ".ipynb" else [{"cell_type": "markdown", "source": text}]
        said = ("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
        assert not any(map(glued.search, said)), path.name
