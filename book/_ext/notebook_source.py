"""What the book reads of a notebook in another form than Jupyter shows it. The file itself stays plain Markdown.

- The title gets the chapter's number, and the statement of an exercise its own: "Exercise 3.4". It becomes an anchor of
  the page, `#exercise-grpo-advantage`.
- A bar over hidden code says what the code is for: the imports, the figure, or the output under it.
- A comment `<!-- eq-gae-error -->` in the line after a displayed equation, which Jupyter and Colab do not show, is its
  label: the book numbers that equation, and {eq}`eq-gae-error` refers to it.
"""

import json
import re

import numbering
from data_files import ROOT

LABEL = re.compile(r"^\$\$[ \t]*\n<!-- (eq-[a-z0-9-]+) -->[ \t]*$", re.MULTILINE)
STATEMENT = re.compile(r"\A\*\*(Exercise|Find the bug)\b")


def labelled(text):
    """Equations with the labels that MyST knows."""
    return LABEL.sub(r"$$ (\1)", text)


def statement(text, name, number):
    """An exercise with its number and an anchor."""
    if not STATEMENT.match(text):
        raise ValueError(f"the statement of {name} should begin with **Exercise: or **Find the bug:")
    return f"(exercise-{name})=\n" + STATEMENT.sub(rf"**\1 {number}", text, count=1)


def purpose(cell):
    """What the hidden code of a cell is for, as the bar over it says after "Show" and "Hide"."""
    shown = [kind for output in cell.get("outputs", []) for kind in output.get("data", {"text/plain": ""})]
    if any(kind.startswith("image/") for kind in shown):
        return "the code of this figure"
    if shown:
        return "the code of this output"
    return "the imports" if re.search(r"^import ", "".join(cell["source"]), re.MULTILINE) else "this code"


def as_the_book_reads_it(page, notebook):
    """Change the Markdown cells of a notebook and the bars over hidden code, in place."""
    numbers, titled = numbering.exercises(), False
    for cell in notebook["cells"]:
        if "hide-input" in cell["metadata"].get("tags", ()):
            bar = {f"code_prompt_{verb}": f"{verb.title()} {purpose(cell)}" for verb in ("show", "hide")}
            cell["metadata"]["mystnb"] = bar | cell["metadata"].get("mystnb", {})
        if cell["cell_type"] != "markdown":
            continue
        text = labelled("".join(cell["source"]))
        if not titled and (found := re.search(r"^# (.+)$", text, re.MULTILINE)):
            text = f"{text[: found.start(1)]}{numbering.numbered(found[1], page)}{text[found.end(1) :]}"
            titled = True
        for name in numbering.set_by([numbering.origin(cell)]):
            text = statement(text, name, numbers[name])
        cell["source"] = text


def read_source(app, page, source):
    if not app.env.doc2path(page).endswith(".ipynb"):
        return
    app.env.note_dependency(str(ROOT / "_toc.yml"))
    notebook = json.loads(source[0])
    as_the_book_reads_it(page, notebook)
    source[0] = json.dumps(notebook)


def setup(app):
    app.connect("source-read", read_source)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
