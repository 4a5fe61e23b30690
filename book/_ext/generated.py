"""`{generated}`: Markdown that a Python function returns, parsed where it stands.

```{generated} rows:changes grpo dapo
```

The function is named by its module (of this folder, or any other that can be imported) and its name; the words after it
are its arguments, and what stands between the fences, if anything does, is the last one. `:class:` puts the result in a
box of that class. Without it the Markdown may have headings, which become sections of the page.

A `ValueError` of the function becomes an error of the page, at its line. Pages with generated text are read anew at
every build, so they cannot be older than what they are made of.
"""

import importlib
import inspect

from data_files import told_on_the_page
from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective


def made_by(target, *arguments):
    """What the function `module:name` returns for these arguments."""
    module, colon, name = target.partition(":")
    if not (module and colon and name):
        raise ValueError(f"expected module:function, got {target!r}")
    try:
        found = importlib.import_module(module)
    except ImportError as problem:
        raise ValueError(f"there is no module {module!r}: {problem}") from problem
    function = getattr(found, name, None)
    if not inspect.isfunction(inspect.unwrap(function)):  # a cached function is one, too
        known = [key for key, value in vars(found).items() if inspect.isfunction(value) and value.__module__ == module]
        raise ValueError(f"{module} has no function {name!r}; there are {', '.join(known)}")
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError as problem:
        takes = " ".join(inspect.signature(function).parameters) or "nothing"
        raise ValueError(f"{target} takes {takes}: {problem}") from problem
    return function(*arguments)


def table(head, rows):
    """A table in Markdown; every cell is text."""
    lines = [list(head), *map(list, rows)]
    for cell in (cell for line in lines for cell in line):
        if not set(cell).isdisjoint("|\n\r"):
            raise ValueError(f"a bar or a new line cannot stand in a table: {cell!r}")
    lines = ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def box(kind, text):
    """Markdown in a box of a class, for text with headings outside of it."""
    return f"````{{container}} {kind}\n{text}\n````"


class Generated(SphinxDirective):
    required_arguments = 1
    optional_arguments = 8
    has_content = True
    option_spec = {"class": directives.class_option}  # noqa: RUF012

    @told_on_the_page
    def run(self):
        self.env.note_reread()
        target, *words = self.arguments
        if self.content:
            words.append("\n".join(self.content))
        text = made_by(target, *words)
        if not isinstance(text, str):
            raise ValueError(f"{target} returned a {type(text).__name__}, expected Markdown")
        classes = self.options.get("class")
        found = nodes.container(classes=classes or [])
        lines = StringList(text.splitlines(), source=target)
        self.state.nested_parse(lines, self.content_offset, found, match_titles=not classes)
        return [found] if classes else found.children


def setup(app):
    app.add_directive("generated", Generated)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
