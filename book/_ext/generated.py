"""`{generated}`: Markdown that a Python function returns, parsed where it stands.

```{generated} rows:changes grpo dapo
```

The function is named by its module (of book/_pages, or any other that can be imported) and its name; the words after it
are its arguments, and what stands between the fences, if anything does, is the last one. `:class:` puts the result in a
box of that class. Without it the Markdown may have headings, which become sections of the page. What has `:no-search:`
is not found by the search.

In a sentence it is a role, for a word or a number: {generated}`book_facts:page_minutes notebooks/from-zero`.

A `ValueError` of the function becomes an error of the page, at its line. Pages with generated text are read anew at
every build, so they cannot be older than what they are made of.
"""

import sys
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective, SphinxRole

sys.path.insert(0, str(Path(__file__).parents[1] / "_pages"))  # for all extensions: it is the first
from data_files import told_on_the_page
from printing import made_by


class unsearched(nodes.comment):
    """What stands on the page, and what the search passes by, as it does with comments."""


class Generated(SphinxDirective):
    required_arguments = 1
    optional_arguments = 8
    has_content = True
    option_spec = {"class": directives.class_option, "no-search": directives.flag}  # noqa: RUF012

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
        found = unsearched() if "no-search" in self.options else nodes.container(classes=classes or [])
        lines = StringList(text.splitlines(), source=target)
        self.state.nested_parse(lines, self.content_offset, found, match_titles=not classes)
        return [found] if self.options else found.children


class GeneratedWords(SphinxRole):
    def run(self):
        self.env.note_reread()
        try:
            return [nodes.Text(str(made_by(*self.text.split())))], []
        except ValueError as problem:
            message = self.inliner.reporter.error(f"generated: {problem}", line=self.lineno)
            return [self.inliner.problematic(self.rawtext, self.rawtext, message)], [message]


def pass_by(self, node):
    """Nothing stands around it."""


def setup(app):
    app.add_node(unsearched, html=(pass_by, pass_by))
    app.add_directive("generated", Generated)
    app.add_role("generated", GeneratedWords())
    return {"parallel_read_safe": True, "parallel_write_safe": True}
