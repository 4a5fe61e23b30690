"""What the files at the root say is true: versions agree, README is up to date, every chapter is in the book."""

import json
import re
import statistics
import subprocess
import sys
import tomllib
from pathlib import Path

import nbformat
import yaml

import rlhf_minimal
from tests import versions
from tests.complete import all_rows_complete

ROOT = Path(__file__).resolve().parent.parent
README, CONTRIBUTING, USE = (
    (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "CONTRIBUTING.md", "book/api/use.md")
)
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


@all_rows_complete
def test_generated_text_is_up_to_date():
    """README's table and the cells of the chapters that are filled from a source."""
    command = [sys.executable, ROOT / "book" / "_tools" / "generate.py", "--check"]
    found = subprocess.run(command, capture_output=True, text=True)
    assert found.returncode == 0, f"stale, run python book/_tools/generate.py: {found.stdout} {found.stderr[-500:]}"
    assert f"<!-- algorithms -->\n{rlhf_minimal.table()}\n<!-- /algorithms -->" in README


def test_the_example_of_the_library_runs():
    example = re.search(r"```python\n(.*?)```", USE, re.DOTALL)
    names: dict = {}
    exec(example[1], names)
    # The completion that was right becomes likelier, the other one less likely.
    assert (names["logp"].grad[0] < 0).all()
    assert (names["logp"].grad[1] > 0).all()


def test_the_readmes_figures_are_the_recorded_ones():
    runs = json.loads((ROOT / "notebooks" / "results" / "learning-curve.json").read_text())["runs"]

    def percent(reward: str, key: str) -> str:
        values = [run[key] for run in runs if run["reward"] == reward]
        assert len(values) == 5
        return f"{100 * statistics.mean(values):.1f} %"

    learned = (
        f"sampled answers go from {percent('verifier', 'before_sampled')} right to "
        f"{percent('verifier', 'after_sampled')}, greedy ones from {percent('verifier', 'before_greedy')} to "
        f"{percent('verifier', 'after_greedy')}; with the coin, {percent('random', 'after_sampled')} and "
        f"{percent('random', 'after_greedy')}."
    )
    assert learned in " ".join(README.split())


def test_the_figures_of_a_real_model_are_the_recorded_ones():
    record = json.loads((ROOT / "notebooks" / "results" / "scaling-cpu.json").read_text())

    def percent(counts: list[int]) -> int:  # right completions of 16, a problem each
        assert len(counts) == 60
        return round(100 * statistics.mean(counts) / 16)

    runs = [run["tries"]["after"] for run in record["learn"]]
    assert (len(runs), len({run["arm"] for run in record["learn"]})) == (9, 3)
    start = {temperature: percent(counts) for temperature, counts in record["temperature"].items()}
    after = round(statistics.mean(100 * statistics.mean(counts) / 16 for counts in runs))
    words = " ".join(USE.split())
    assert f"from {start['1.0']} % right to {after} % (mean of nine runs, three rows of the table, 60 held-out" in words
    assert f"a temperature of 0.25 gives {start['0.25']} %" in words


def test_the_contributing_page_names_what_make_does():
    recipes = dict(re.findall(r"^(\w+): env.*\n\t(\S.*)$", MAKEFILE, re.MULTILINE))
    assert set(recipes) >= {"book", "test", "train", "lab", "notebooks"}
    for target, command in recipes.items():
        assert f"| `make {target}` | `{command.replace('$(BIN)', '.venv/bin')}` |" in CONTRIBUTING


def test_the_readme_says_which_torch_before_it_downloads_one():
    choice = README.index("choose your build of PyTorch")
    assert choice < README.index("make book ")
    assert choice < README.index("pip install")


def test_the_readme_takes_two_screens_and_three_commands():
    """A stranger reads no more: question, picture, three commands, the table, where to read on."""
    assert len(README.splitlines()) <= 75
    assert re.findall(r"^make (\w+) ", README, re.MULTILINE) == ["book", "train", "lab"]
    for name in ("PPO", "GRPO", "DAPO", "GSPO", "RLHF", "RLVR"):
        assert name in README.partition("![")[0], name


def test_every_file_that_the_readme_points_at_exists():
    pointed = re.findall(r"\]\((?!https?:)([^)#]+)\)", README)
    assert pointed
    assert [path for path in pointed if not (ROOT / path).exists()] == []
    for anchor in re.findall(r"\]\(CONTRIBUTING\.md#([a-z-]+)\)", README):
        assert f"## {anchor.replace('-', ' ').capitalize()}\n" in CONTRIBUTING
    tree = re.search(r"## Where to find what\n\n```\n(.*?)```", CONTRIBUTING, re.DOTALL)[1]
    missing, folder = [], ""
    for line in tree.splitlines():
        if line.startswith(" " * 12):  # goes on with what the line before says
            continue
        names = re.match(r" *((?:[\w.]+/? )+)", line)[1].split()[: 2 if line.startswith("_") else 1]
        folder = folder if line.startswith(" ") else ""
        missing += [name for name in names if not (ROOT / folder / name).exists()]
        folder = names[0] if not line.startswith(" ") else folder
    assert missing == []


def test_there_is_one_version():
    assert versions.differences(rlhf_minimal.__version__) == []


def test_requirements_are_exact_and_within_the_librarys_ranges():
    from packaging.requirements import Requirement

    lines = (ROOT / "requirements.txt").read_text().splitlines()
    pins = [Requirement(line) for line in lines if line.strip() and not line.startswith("#")]
    assert [str(pin) for pin in pins if [s.operator for s in pin.specifier] != ["=="]] == []
    pinned = {pin.name.lower(): next(iter(pin.specifier)).version for pin in pins}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    ranges = project["dependencies"] + sum(project["optional-dependencies"].values(), [])
    for requirement in map(Requirement, ranges):
        if requirement.name.lower() in pinned:
            assert requirement.specifier.contains(pinned[requirement.name.lower()]), requirement


def test_every_chapter_and_page_is_in_the_book():
    """Files outside the table of contents are left out of the build, silently."""
    contents = yaml.safe_load((ROOT / "_toc.yml").read_text())
    listed = {contents["root"]}

    def collect(node):
        for value in node.values() if isinstance(node, dict) else node:
            if isinstance(value, dict | list):
                collect(value)
        if isinstance(node, dict) and "file" in node:
            listed.add(node["file"].removesuffix(".md").removesuffix(".ipynb"))

    collect(contents)
    chapters = {p.relative_to(ROOT).with_suffix("").as_posix() for p in (ROOT / "notebooks").glob("*.ipynb")}
    pages = {
        p.relative_to(ROOT).with_suffix("").as_posix()
        for p in (ROOT / "book").rglob("*.md")
        if not any(part.startswith("_") for part in p.relative_to(ROOT).parts) and p.name != "README.md"
    }
    assert (chapters | pages) - listed == set()
    assert {name for name in listed if not list(ROOT.glob(f"{name}.*"))} == set()


def test_vendored_widgets_match_the_installed_ones():
    """A chapter's saved widgets are drawn by the vendored code: both have to be the same version."""
    import anywidget

    installed = Path(anywidget.__file__).parent / "nbextension" / "index.js"
    vendored = ROOT / "book" / "_static" / "vendor" / "widgets" / "anywidget.js"
    assert vendored.read_bytes() == installed.read_bytes()


def test_no_text_has_a_formula_that_github_refuses():
    """GitHub's Markdown refuses these commands (github/markup, issue 1688); `\\mathrm` writes a name as well."""
    files = [file for place in (ROOT, ROOT / "book", ROOT / "notebooks", ROOT / "tests") for file in place.glob("*.md")]
    texts = {file.name: file.read_text(encoding="utf-8") for file in files}
    assert "README.md" in texts
    for file in (ROOT / "notebooks").glob("*.ipynb"):
        cells = nbformat.read(file, as_version=4).cells
        texts[file.name] = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    for name, whole in texts.items():
        text = re.sub(r"```.*?```|`[^`\n]*`", "", whole, flags=re.DOTALL)
        assert not re.search(r"\\(operatorname|newcommand|DeclareMathOperator|require|def)\b", text), name
