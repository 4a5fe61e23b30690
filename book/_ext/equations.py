"""Links between equations, functions, chapters, rows and tests, in both directions.

    ```{equation-links} eq-gae
    ```

    ```{generated} equations:equation_table
    ```

In docstrings, "Chapter: gae." becomes a link to the chapter once it exists, "arXiv 1506.02438" one to the paper, and
a name in single backticks a link to what it names, or plain code where it names nothing that has a page.
"""

import re
import sys
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import make_refnode

sys.path.insert(0, str(Path(__file__).parent))
import equation_index as index
from generated import table

ARXIV = re.compile(r"(?<!\w)arXiv (\d{4}\.\d{4,5})")


def function_link(function, docname, text=None):
    """A link to the function's entry among the API pages."""
    shown = nodes.literal("", text or function.short)
    return addnodes.pending_xref(
        "", shown, refdomain="py", reftype="obj", reftarget=function.path, refdoc=docname, refexplicit=True
    )


def source_link(builder, function, docname):
    """A link to the highlighted source that viewcode writes."""
    page = "_modules/" + function.module.replace(".", "/")
    if builder.format != "html":
        return nodes.inline("", "source")
    return nodes.reference("", "source", refuri=f"{builder.get_relative_uri(docname, page)}#{function.name}")


def chapter_link(name, builder, docname):
    page = index.chapter_page(name)
    if page is None:
        return nodes.emphasis("", name, classes=["to-come"])
    return nodes.reference("", name, internal=True, refuri=builder.get_relative_uri(docname, page))


def joined(items, separator=", "):
    result = []
    for item in items:
        result += [nodes.Text(separator), item] if result else [item]
    return result


def tests_summary(tests):
    """[(file, names)] in the order of the files."""
    files = {}
    for test in tests:
        files.setdefault(test.file, []).append(test.name)
    return list(files.items())


class EquationLinks(SphinxDirective):
    """The line under an equation: function, source, chapter, rows, tests."""

    required_arguments = 1

    def run(self):
        label = self.arguments[0]
        functions = index.by_label().get(label)
        if not functions:
            raise self.error(f"no docstring of the library carries :eq:`{label}`")
        self.env.note_reread()
        docname, builder = self.env.docname, self.env.app.builder
        result = []
        for function in functions:
            line = nodes.paragraph(classes=["equation-links"])
            line += [function_link(function, docname), nodes.Text(" ("), source_link(builder, function, docname)]
            line += nodes.Text(")")
            if function.chapters:
                line += nodes.Text(" · derived in ")
                line += joined(chapter_link(name, builder, docname) for name in function.chapters)
            if rows := index.rows_with(function):
                line += nodes.Text(" · used by ")
                line += joined(nodes.literal("", row) for row in rows)
            result.append(line)
            result.append(self.tests(function))
        return result

    def tests(self, function):
        named = tests_summary(index.tests_of(function))
        rows = index.rows_with(function)
        if not named and not rows:
            return nodes.paragraph("", "no test yet", classes=["equation-links"])
        count = sum(len(names) for _, names in named)
        tests = "1 test" if count == 1 else f"{count} tests"
        words = [f"{tests} by name"] if named else []
        words += (
            [
                f"the transcription{'s' if len(rows) > 1 else ''} of its rows"
                if len(rows) > 1
                else "the transcription of its row"
            ]
            if rows
            else []
        )
        # Details are native HTML where there is HTML; elsewhere the summary is enough.
        body = "".join(
            f"<li><code>{file}</code>: {', '.join(f'<code>{name}</code>' for name in names)}</li>"
            for file, names in named
        )
        body += "".join(f"<li><code>tests/transcriptions/{row}.py</code>, written from the paper</li>" for row in rows)
        html = (
            f'<details class="equation-tests"><summary>Held by {" and ".join(words)}</summary><ul>{body}</ul></details>'
        )
        return nodes.raw("", html, format="html")


def equation_table():
    """Equation, function, chapter, rows, tests: one line each, in the order of the page, as Markdown."""
    lines = []
    for label in index.printed():
        for function in index.by_label().get(label, ()):
            pages = ((name, index.chapter_page(name)) for name in function.chapters)
            rows, tests = index.rows_with(function), len(index.tests_of(function))
            counted = [f"{tests} by name"] * bool(tests)
            counted += [f"{len(rows)} transcription{'s' * (len(rows) > 1)}"] * bool(rows)
            lines.append(
                [
                    f"{{eq}}`{label}` {index.titles()[label]}",
                    f"{{py:obj}}`{function.short} <{function.path}>`",
                    ", ".join(f"[{name}](/{page}.ipynb)" if page else f"*{name}*" for name, page in pages),
                    ", ".join(f"`{name}`" for name in rows),
                    ", ".join(counted),
                ]
            )
    return table(["equation", "function", "chapter", "rows", "tests"], lines)


def link_docstring(app, what, name, obj, options, lines):
    """Turn the plain words of a docstring into links."""
    if what == "module":
        lines[:] = shown_as_they_stand(lines)
    text = "\n".join(lines)
    text = ARXIV.sub(r"`arXiv \1 <https://arxiv.org/abs/\1>`__", text)
    found = re.search(r"(Chapter: )(.*?)(\.(?:\s|$))", text, re.DOTALL)
    if found:
        named = re.sub(
            r"[a-z0-9]+(?:-[a-z0-9]+)*",
            lambda word: f":doc:`{word[0]} </{page}>`" if (page := index.chapter_page(word[0])) else word[0],
            found[2],
        )
        text = text[: found.start(2)] + named + text[found.end(2) :]
    lines[:] = text.split("\n")


def shown_as_they_stand(lines):
    """A module's docstring draws its diagrams and calls as indented blocks: keep them as they are typed."""
    result, before = [], ""
    for number, line in enumerate(lines):
        opens = line.startswith("    ") and not (number and lines[number - 1].strip())
        if opens and before and not before.startswith((" ", "..")) and not before.endswith("::"):
            result += ["::", ""]
        result.append(line)
        before = line if line.strip() else before
    return result


def library_role(role, rawtext, text, lineno, inliner, options=None, content=None):
    """A name in single backticks: a link where the name has a page, code where it has none."""
    env = inliner.document.settings.env
    shown = nodes.literal(rawtext, text)
    node = addnodes.pending_xref(
        rawtext, shown, refdomain="py", reftype="obj", reftarget=text, refdoc=env.docname, refexplicit=True, soft=True
    )
    node["py:module"] = env.ref_context.get("py:module")
    node["py:class"] = env.ref_context.get("py:class")
    return [node], []


def keep_as_code(app, env, node, contnode):
    """Names may be short, as `gates.clip`. Those that name nothing here, `None` or a file, are no mistake: code."""
    if not node.get("soft"):
        return None
    domain = env.get_domain("py")
    for prefix in ("rlhf_minimal.", "rlhf_minimal.functional.", "rlhf_minimal.contrib."):
        target = prefix + node["reftarget"]
        if found := domain.objects.get(target) or domain.modules.get(target):
            return make_refnode(app.builder, node["refdoc"], found.docname, found.node_id, contnode, target)
    return contnode


def setup(app):
    app.add_directive("equation-links", EquationLinks)
    app.add_role("library", library_role)
    app.connect("autodoc-process-docstring", link_docstring)
    app.connect("missing-reference", keep_as_code)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
