"""`{mjs-figure}`: an interactive figure that lives in the page itself, without a kernel and without a network.

    ```{mjs-figure} gates.mjs
    :name: fig-gates
    :alt: Each gate's effective gradient weight as a curve over the ratio; a slider moves the bounds.
    :params: {"low": 0.2, "high": 0.28}
    The caption, in Markdown.
    ```

The module is written as for anywidget, `export default { render({ model, el }) { … } }`, and lies in the folder
named by the configuration value `mjs_figure_path`; the same file serves the notebooks. Here it is copied into the
page, with the kit that it imports: a page opened from disk may not import modules from other files.

What Python computes comes from `:params-from: module:function`, a function that returns a dictionary of values.
"""

import json
import re
from html import escape
from pathlib import Path

from data_files import told_on_the_page
from docutils import nodes
from docutils.parsers.rst import directives
from generated import made_by
from sphinx.util.docutils import SphinxDirective

from rlhf_book.figures import joined

EXPORT = re.compile(r"^export\s+default\b", re.MULTILINE)
OTHER_MODULE_SYNTAX = re.compile(r"^\s*(import\b[^(.]|export\b(?!\s+default\b))", re.MULTILINE)

# What anywidget calls a model, as much of it as one page needs: values by name, and who wants to hear of changes.
PAGE = """\
<div id="{id}" class="mjs-figure" role="group" aria-label="{alt}"></div>
<noscript><p>{alt}</p></noscript>
<script type="module">
{source}
const values = {params}, listeners = {{}};
const model = {{
  get: (name) => values[name],
  set: (name, value) => {{
    if (Object.is(values[name], value)) return;
    values[name] = value;
    for (const call of [...(listeners[`change:${{name}}`] ?? []), ...(listeners["change"] ?? [])]) call();
  }},
  on: (event, call) => (listeners[event] ??= []).push(call),
  off: (event, call) => {{ listeners[event] = (listeners[event] ?? []).filter((other) => other !== call); }},
  save_changes: () => {{}},
}};
const widget = typeof module_ === "function" ? await module_() : module_;
await widget.initialize?.({{ model }});
await widget.render({{ model, el: document.getElementById("{id}") }});
</script>
"""


class mjs_figure(nodes.General, nodes.Element):
    """The interactive part of the figure; builders other than HTML show the alternative text instead."""


class MjsFigure(SphinxDirective):
    required_arguments = 1
    has_content = True
    option_spec = {
        "alt": directives.unchanged_required,
        "name": directives.unchanged,
        "params": directives.unchanged,
        "params-from": directives.unchanged_required,
    }

    @told_on_the_page
    def run(self):
        path = Path(self.env.srcdir) / self.config.mjs_figure_path / self.arguments[0]
        if not path.is_file():
            raise self.error(f"mjs-figure: there is no module {path}")
        if not self.options.get("alt", "").strip():
            raise self.error("mjs-figure: `:alt:` is required; say what a reader who sees no figure should know")
        try:
            params = json.loads(self.options.get("params", "{}"))
        except (json.JSONDecodeError, RecursionError) as problem:
            raise self.error(f"mjs-figure: `:params:` is not JSON: {problem}") from problem
        if not isinstance(params, dict):
            raise self.error("mjs-figure: `:params:` has to be a JSON object, with a value for each name")
        if "params-from" in self.options:
            target = self.options["params-from"].strip()
            if not isinstance(values := made_by(target), dict):
                raise ValueError(f"{target} returned a {type(values).__name__}, expected values by name")
            params = {**values, **params}
            self.env.note_reread()
        try:
            source = joined(path)
        except FileNotFoundError as problem:
            raise self.error(f"mjs-figure: {path.name} imports a kit, and there is none beside it") from problem
        except UnicodeDecodeError as problem:
            raise self.error(f"mjs-figure: {path} is no UTF-8: {problem}") from problem
        if len(EXPORT.findall(source)) != 1 or OTHER_MODULE_SYNTAX.search(source):
            raise self.error(
                f"mjs-figure: {path.name} has to have one `export default` and no other export or import "
                "than that of ./kit.mjs, because it is copied into the page"
            )
        for file in (path, path.parent / "kit.mjs"):
            self.env.note_dependency(str(file))

        figure = nodes.figure(classes=["mjs"])
        figure += mjs_figure(
            id=f"mjs-{self.env.new_serialno('mjs-figure')}",
            source=EXPORT.sub("const module_ =", source).replace("</script", "<\\/script"),
            alt=" ".join(self.options["alt"].split()),
            params=json.dumps(params).replace("</", "<\\/"),
        )
        if self.content:
            text = nodes.Element()
            self.state.nested_parse(self.content, self.content_offset, text)
            if not text.children or not isinstance(text.children[0], nodes.paragraph):
                raise self.error("mjs-figure: the content has to begin with a paragraph, the caption")
            caption, *legend = text.children
            figure += nodes.caption("", "", *caption.children)
            if legend:
                figure += nodes.legend("", *legend)
        self.set_source_info(figure)
        self.add_name(figure)
        return [figure]


def visit_html(self, node):
    self.body.append(
        PAGE.format(id=node["id"], alt=escape(node["alt"], quote=True), source=node["source"], params=node["params"])
    )
    raise nodes.SkipNode


def visit_text(self, node):
    self.visit_Text(nodes.Text(node["alt"]))
    raise nodes.SkipNode


def setup(app):
    app.add_config_value("mjs_figure_path", "notebooks/rlhf_book/figures", "env", [str])
    app.add_node(
        mjs_figure,
        html=(visit_html, None),
        latex=(visit_text, None),
        text=(visit_text, None),
    )
    app.add_directive("mjs-figure", MjsFigure)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
