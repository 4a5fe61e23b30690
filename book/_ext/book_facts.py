"""Facts about this build and its chapters, collected when the page is written: versions, run times, reading times.

And the one place for the repository's address: launch buttons appear when it is filled in.
"""

import importlib.metadata
import platform
import re
from pathlib import Path

from data_files import read, told_on_the_page, using
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).resolve().parents[2]
TIMES = ROOT / "book" / "data" / "run-times.json"
WORDS_A_MINUTE = 180  # technical prose
SECONDS_A_LINE = 4  # of code
MINUTES_AN_EQUATION = 0.5
FOLDED = {"install", "remove-cell", "remove-input", "hide-cell", "hide-input"}


def chapters(env):
    """Docname of every notebook of the book, in its order."""
    found = [name for name in env.found_docs if name.startswith("notebooks/")]
    text = (ROOT / "_toc.yml").read_text(encoding="utf-8")
    return sorted(found, key=lambda name: text.find(name))


def cells_of(path):
    """The cells of a notebook as they stand in the file."""
    with using(path):
        cells = [{name: cell[name] for name in ("cell_type", "metadata", "source")} for cell in read(path)["cells"]]
        for number, cell in enumerate(cells):
            source = cell["source"] if isinstance(cell["source"], list) else [cell["source"]]
            if not isinstance(cell["metadata"], dict) or not all(isinstance(line, str) for line in source):
                raise ValueError(f"cell {number} is none: expected lines of text, and an object as metadata")
    return cells


def reading_minutes(path):
    """Words, displayed equations and unfolded lines of code of a notebook, as minutes; rounded up to the next five."""
    words = lines = equations = 0
    for cell in cells_of(path):
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            equations += source.count("$$") // 2
            words += len(re.sub(r"\$\$.*?\$\$", "", source, flags=re.DOTALL).split())
        elif not FOLDED & set(cell["metadata"].get("tags", [])):
            lines += sum(1 for line in source.splitlines() if line.strip())
    minutes = words / WORDS_A_MINUTE + lines * SECONDS_A_LINE / 60 + equations * MINUTES_AN_EQUATION
    return 5 * -(-int(minutes + 0.999) // 5)


def exercise_minutes(path):
    """What the exercises that a notebook sets, and the bugs that it hides, say that they take."""
    from rlhf_book.exercises import BUGS, EXERCISES

    origins = [str(cell["metadata"].get("from", "")) for cell in cells_of(path)]
    return sum(
        item.minutes
        for item in [*EXERCISES.values(), *BUGS.values()]
        if any(f"/{item.id}/" in origin for origin in origins)
    )


def title(path):
    for cell in cells_of(path):
        if match := re.search(r"^# (.+)$", "".join(cell["source"]), re.MULTILINE):
            return match[1]
    return path.stem


def times():
    """What book/_tools/run_times.py wrote; no notebook, where nothing is recorded."""
    if not TIMES.exists():
        return {"notebooks": {}}
    with using(TIMES):
        recorded = read(TIMES)
        for name, seconds in recorded["notebooks"].items():
            if not isinstance(seconds, int | float) or not 0 <= seconds < 1e6:
                raise ValueError(f"the seconds of {name} are {str(seconds)[:40]!r}")
        missing = [name for name in ("date", "python", "torch", "machine", "cores") if name not in recorded]
        if missing:
            raise ValueError(f"lacks {', '.join(missing)}")
    return recorded


def versions():
    """(package, installed) for every exact pin of requirements.txt."""
    pins = re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "requirements.txt").read_text(encoding="utf-8"), re.MULTILINE)
    found = []
    for name, pinned in pins:
        try:
            installed = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            installed = "not installed"
        found.append((name, pinned, installed.split("+")[0]))
    return found


def table(head, rows):
    group = nodes.tgroup("", *(nodes.colspec(colwidth=1) for _ in head), cols=len(head))
    thead, tbody = nodes.thead(), nodes.tbody()
    for body, lines in ((thead, [head]), (tbody, rows)):
        for line in lines:
            cells = (cell if isinstance(cell, nodes.Node) else nodes.Text(cell) for cell in line)
            body += nodes.row("", *(nodes.entry("", nodes.paragraph("", "", cell)) for cell in cells))
    group += [thead, tbody]
    return nodes.table("", group)


class ReadingTimes(SphinxDirective):
    """Each chapter with the minutes to read it and to do its exercises, and the seconds to run it."""

    @told_on_the_page
    def run(self):
        measured = times()["notebooks"]
        rows = []
        for name in chapters(self.env):
            path = ROOT / f"{name}.ipynb"
            self.env.note_dependency(str(path))
            uri = self.env.app.builder.get_relative_uri(self.env.docname, name)
            link = nodes.reference("", title(path), internal=True, refuri=uri)
            seconds = measured.get(path.stem)
            exercises = exercise_minutes(path)
            minutes = [f"{reading_minutes(path)} min", f"{exercises} min" if exercises else "none"]
            rows.append([link, *minutes, f"{seconds:.0f} s" if seconds else "not recorded"])
        self.env.note_dependency(str(TIMES))
        shown = table(["chapter", "to read", "exercises", "to run"], rows)
        shown["classes"].append("reading-times")
        return [shown]


class Versions(SphinxDirective):
    """What this book was built with, beside what requirements.txt asks for."""

    def run(self):
        self.env.note_reread()
        rows = [["Python", "3.11 or newer", platform.python_version()]]
        rows += [[name, pinned, installed] for name, pinned, installed in versions()]
        return [table(["package", "asked for", "this build"], rows)]


class RunTimes(SphinxDirective):
    """How long each chapter took when times were last recorded, and on what."""

    @told_on_the_page
    def run(self):
        self.env.note_dependency(str(TIMES))
        recorded = times()
        if not recorded["notebooks"]:
            return [nodes.paragraph("", "No run has been recorded yet: python book/_tools/run_times.py.")]
        rows = [[name, f"{seconds:.1f} s"] for name, seconds in recorded["notebooks"].items()]
        rows.append([nodes.strong("", "together"), f"{sum(recorded['notebooks'].values()):.0f} s"])
        words = f"Recorded on {recorded['date']}: Python {recorded['python']}, torch {recorded['torch']}, "
        words += f"{recorded['machine']}, {recorded['cores']} cores, one thread a chapter."
        return [nodes.paragraph("", words), table(["chapter", "seconds"], rows)]


def no_buttons_to_nowhere(app, config):
    """Without the repository's address (`repository: url` in _config.yml) Colab and Binder have nothing to open."""
    if not config.html_theme_options.get("repository_url"):
        config.html_theme_options.pop("launch_buttons", None)


def setup(app):
    app.connect("config-inited", no_buttons_to_nowhere)
    app.add_directive("reading-times", ReadingTimes)
    app.add_directive("versions", Versions)
    app.add_directive("run-times", RunTimes)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
