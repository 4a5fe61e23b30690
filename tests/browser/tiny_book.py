"""Books of a few pages, for what a figure does on a page of its own and for what stops a build."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXTENSIONS = [str(ROOT / "book" / "_ext"), str(ROOT / "book" / "_pages")]
FIGURES = ROOT / "notebooks" / "rlhf_book" / "figures"

PAGE = "# A page\n\n```{{mjs-figure}} {name}.mjs\n:alt: An interactive figure, on a page of its own.\n{given}```\n"
# What a figure is given on its page, where it draws numbers of Python's.
GIVEN = {
    "trust_explorer": ":params-from: rlhf_book.figures.trust:trust_table\n",
    "divergence_explorer": ":params-from: rlhf_book.figures.divergences:tabulate\n"
    ':params: {"divergence": "forward", "centre": 10}\n',
    "gate_gallery": ":params-from: rlhf_book.figures.gates:gate_gallery\n"
    ':params: {"first": "grpo", "second": "sapo", "log2": 0.3}\n',
    "pass_rates": ":params-from: rlhf_book.figures.pass_rates:pass_rates\n"
    ':params: {"first": "grpo", "second": "maxrl", "size": 8, "rate": 0.1}\n',
    "budget_explorer": ":params-from: rlhf_book.figures.budget:budget_table\n"
    ':params: {"shown": "both", "set": "all", "place": 16}\n',
    "routing_explorer": ":params-from: rlhf_book.figures.routing:routing\n"
    ':params: {"layers": 12, "experts": 32, "picked": 2, "noise": 0.003}\n',
    "row_benchmark": ":params-from: rlhf_book.benchmark:explorer_table\n"
    ':params: {"first": "reinforce", "second": "gspo"}\n',
    "playground": ":params-from: rlhf_book.figures.playground:playground\n",
    "token_inspector": ":params-from: rlhf_book.figures.inspector:inspector_table\n"
    ':params: {"run": "clock", "step": 40, "first": "grpo", "second": "gspo"}\n',
}


def build(folder: Path, pages: dict[str, str], modules: dict[str, str]) -> subprocess.CompletedProcess:
    """Build a book; the first of its pages is the one that it begins with."""
    (folder / "viz").mkdir(parents=True)
    for name, source in modules.items():
        (folder / "viz" / name).write_text(source, encoding="utf-8")
    first, *others = pages
    for name, text in pages.items():
        contents = "\n```{toctree}\n" + "\n".join(others) + "\n```\n" if name == first and others else ""
        (folder / f"{name}.md").write_text(text + contents, encoding="utf-8")
    (folder / "conf.py").write_text(
        f"import sys\nsys.path[:0] = {EXTENSIONS}\nroot_doc = {first!r}\n"
        "extensions = ['myst_parser', 'figures']\nmjs_figure_path = 'viz'\nnumfig = True\n"
    )
    strict = ["-W", "--keep-going", "-n", "-q"]
    command = [sys.executable, "-m", "sphinx", *strict, "-b", "html", str(folder), str(folder / "out")]
    return subprocess.run(command, capture_output=True, text=True)


def with_every_figure(folder: Path) -> Path:
    """A book with a page for each figure, named like the figure; returns where it was built."""
    modules = {path.name: path.read_text(encoding="utf-8") for path in sorted(FIGURES.glob("*.mjs"))}
    names = [Path(name).stem for name in modules if name != "kit.mjs"]
    pages = {"index": "# Figures\n"} | {name: PAGE.format(name=name, given=GIVEN.get(name, "")) for name in names}
    result = build(folder, pages, modules)
    assert result.returncode == 0, result.stderr
    return folder / "out"


def with_the_trainer(folder: Path) -> Path:
    """A book of three pages with the trainer on one, in the book's own theme; returns the trainer's page.

    The chapters are not in it, so links to proofs are words here. The whole book is looked at in test_trainer, too.
    """
    (folder / "book").mkdir(parents=True)
    (folder / "index.md").write_text("# Index\n\n```{toctree}\nbook/trainer\nbook/interview\n```\n", encoding="utf-8")
    (folder / "book" / "interview.md").write_text("# All questions\n", encoding="utf-8")
    page = ROOT / "book" / "trainer.md"
    (folder / "book" / "trainer.md").write_text(page.read_text(encoding="utf-8"), encoding="utf-8")
    (folder / "conf.py").write_text(
        f"import sys\nsys.path[:0] = {[*EXTENSIONS, str(ROOT / 'notebooks')]}\n"
        "extensions = ['myst_parser', 'sphinx.ext.mathjax', 'generated', 'theme']\n"
        "myst_enable_extensions = ['dollarmath', 'attrs_inline']\nmathjax_path = 'vendor/mathjax/tex-svg-full.js'\n"
        f"html_theme = 'sphinx_book_theme'\nhtml_static_path = [{str(ROOT / 'book' / '_static')!r}]\n"
        "html_css_files = ['book.css', 'pages.css']\nhtml_context = {'default_mode': 'auto'}\n"
    )
    command = [sys.executable, "-m", "sphinx", "-Q", "-b", "html", str(folder), str(folder / "out")]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return folder / "out" / "book" / "trainer.html"


def with_the_comparison(folder: Path, table: str) -> Path:
    """A book of the page that compares the rows, as it is, and of one with a table to sort, in the book's theme.

    Args:
        folder: Where to.
        table: Markdown.

    Returns:
        The folder of the two pages, comparison.html and table.html.
    """
    others = {"book/table": f"# A table\n\n{table}\n"}
    linked = ("book/algorithms", "book/api/tasks", "notebooks/choosing", "notebooks/ppo-rlhf")
    return _in_the_theme(folder, "comparison", others, linked)


def with_the_inspector(folder: Path) -> Path:
    """A book of the page of the token inspector, as it is, in the book's theme; returns the page."""
    return (
        _in_the_theme(folder, "inspector", {}, ("book/comparison", "book/cheat-sheet", "notebooks/anatomy"))
        / "inspector.html"
    )


def with_the_playground(folder: Path) -> Path:
    """A book of the page of the playground, as it is, and of one with its small form as on the front page.

    Returns:
        The folder of the two pages, playground.html and front.html.
    """
    text = (ROOT / "book" / "playground.md").read_text(encoding="utf-8")
    linked = dict.fromkeys(re.findall(r"\]\(\.\./(notebooks/[a-z-]+)\.ipynb\)", text))
    front = re.search(r"```\{mjs-figure\} playground.mjs.*?```", (ROOT / "book" / "index.md").read_text(), re.DOTALL)
    recorded = '```{raw} html\n<figure class="learning-picture"><p>recorded</p></figure>\n```'
    pages = {"book/front": f"# Front\n\n{front[0].replace('.ipynb)', '.md)')}\n\n{recorded}\n"}
    return _in_the_theme(folder, "playground", pages, (*linked, "book/algorithms", "book/comparison"))


def _in_the_theme(folder: Path, name: str, pages: dict[str, str], linked: tuple[str, ...]) -> Path:
    """A page of book/ as it is, with further pages and empty ones for its links; returns the page's folder."""
    (folder / "book" / "api").mkdir(parents=True)
    (folder / "notebooks").mkdir()
    contents = "\n".join((f"book/{name}", *pages, *linked))
    (folder / "index.md").write_text(f"# Index\n\n```{{toctree}}\n{contents}\n```\n", encoding="utf-8")
    page = (ROOT / "book" / f"{name}.md").read_text(encoding="utf-8")
    (folder / "book" / f"{name}.md").write_text(page.replace(".ipynb)", ".md)"), encoding="utf-8")
    for other, text in (pages | dict.fromkeys(linked, "# Another page\n")).items():
        (folder / f"{other}.md").write_text(text, encoding="utf-8")
    (folder / "conf.py").write_text(
        f"import sys\nsys.path[:0] = {[*EXTENSIONS, str(ROOT / 'notebooks'), str(ROOT)]}\n"
        "extensions = ['myst_parser', 'sphinx.ext.mathjax', 'generated', 'figures']\n"
        "mathjax_path = 'vendor/mathjax/tex-svg-full.js'\nmyst_enable_extensions = ['dollarmath']\n"
        f"mjs_figure_path = {str(FIGURES)!r}\nnumfig = True\n"
        f"html_theme = 'sphinx_book_theme'\nhtml_static_path = [{str(ROOT / 'book' / '_static')!r}]\n"
        "html_css_files = ['book.css', 'pages.css']\nhtml_js_files = ['sortable.js']\n"
        "html_context = {'default_mode': 'auto'}\n"
    )
    options = ["-W", "--keep-going", "-q", "-b", "html"]
    command = [sys.executable, "-m", "sphinx", *options, str(folder), str(folder / "out")]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return folder / "out" / "book"
