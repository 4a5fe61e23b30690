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

`{learning-picture}`: recorded runs of a chapter as a picture, drawn by book/_pages/learning_picture.py.

    ```{learning-picture} from-zero
    :arm: GRPO
    :control: GRPO, reward from a coin
    What the caption says before the numbers.
    ```
"""

import json
from html import escape
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective

import learning_picture
from data_files import told_on_the_page
from printing import as_script, made_by
from rlhf_book.figures import joined

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


class Figure(SphinxDirective):
    """What both have in common: a name of a file, and a caption in Markdown."""

    required_arguments = 1
    has_content = True

    def figure(self, kind, page, told=""):
        """The figure with this HTML in it; `told` stands behind the caption's own words."""
        figure, text = nodes.figure(classes=[kind]), nodes.Element()
        figure += nodes.raw("", page, format="html")
        self.state.nested_parse(self.content, self.content_offset, text)
        caption, *legend = text.children or [nodes.paragraph()]
        if not isinstance(caption, nodes.paragraph):
            raise self.error(f"{self.name}: the content has to begin with a paragraph, the caption")
        if self.content or told:
            figure += nodes.caption("", "", *caption.children, *([nodes.Text(f" {told}")] if told else []))
        if legend:
            figure += nodes.legend("", *legend)
        self.set_source_info(figure)
        self.add_name(figure)
        return [figure]


class MjsFigure(Figure):
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
            raise ValueError(f"there is no module {path}")
        alt = " ".join(self.options.get("alt", "").split())
        if not alt:
            raise ValueError("`:alt:` is required; say what a reader who sees no figure should know")
        for file in (path, path.parent / "kit.mjs"):
            self.env.note_dependency(str(file))
        name, params = f"mjs-{self.env.new_serialno('mjs-figure')}", json.dumps(self.params()).replace("</", "<\\/")
        source = as_script(path.name, with_kit(path), "module_")
        return self.figure("mjs", PAGE.format(id=name, source=source, alt=escape(alt), params=params))

    def params(self):
        """The values that the module is given: what Python computes, and what stands on the page."""
        try:
            params = json.loads(self.options.get("params", "{}"))
        except (json.JSONDecodeError, RecursionError) as problem:
            raise ValueError(f"`:params:` is not JSON: {problem}") from problem
        if not isinstance(params, dict):
            raise ValueError("`:params:` has to be a JSON object, with a value for each name")
        if target := self.options.get("params-from", "").strip():
            self.env.note_reread()
            if not isinstance(values := made_by(target), dict):
                raise ValueError(f"{target} returned a {type(values).__name__}, expected values by name")
            params = {**values, **params}
        return params


def with_kit(path):
    """The module as one text with the kit that it imports."""
    try:
        return joined(path)
    except FileNotFoundError as problem:
        raise ValueError(f"{path.name} imports a kit, and there is none beside it") from problem
    except UnicodeDecodeError as problem:
        raise ValueError(f"{path} is no UTF-8: {problem}") from problem


class LearningPicture(Figure):
    option_spec = {"arm": directives.unchanged_required, "control": directives.unchanged_required}  # noqa: RUF012

    @told_on_the_page
    def run(self):
        self.env.note_reread()
        drawn, said = learning_picture.drawn(self.arguments[0], self.options.get("arm"), self.options.get("control"))
        return self.figure("learning-picture", drawn, said)


def setup(app):
    app.add_config_value("mjs_figure_path", "notebooks/rlhf_book/figures", "env", [str])
    app.add_directive("mjs-figure", MjsFigure)
    app.add_directive("learning-picture", LearningPicture)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
