"""In JupyterLab the keys of a figure's controls move the figure, not the cells around it.

JupyterLab leaves a key to an element that carries `data-lm-suppress-shortcuts`, and looks at that element alone.
"""

import json
from pathlib import Path

import pytest
from playwright.sync_api import expect

from rlhf_book.figures import joined, widgets
from tests.browser.explorers import press

FIGURES = sorted(file for file in Path(widgets.__file__).parent.glob("*.mjs") if file.name != "kit.mjs")
PARAMS = {"gate_gallery.mjs": "rlhf_book.figures.gates:gate_gallery"}

# A page that calls the module as anywidget does, with a model that keeps values and tells of changes.
PAGE = """<!doctype html><meta charset="utf-8"><div id="figure"></div>
<script type="module">
const source = {source}, values = {values}, told = {{}};
const model = {{
  get: (name) => values[name],
  set: (name, value) => {{ values[name] = value; (told["change:" + name] ?? []).forEach((call) => call()); }},
  on: (event, call) => (told[event] ??= []).push(call), off: () => {{}}, save_changes: () => {{}},
}};
const module_ = await import("data:text/javascript;charset=utf-8," + encodeURIComponent(source));
window.cleanup = await module_.default.render({{ model, el: document.getElementById("figure") }});
window.model = model;
</script>"""
CONTROLS = "#figure :is(input, select, button)"
OPEN_TO_SHORTCUTS = f"{CONTROLS}:not([data-lm-suppress-shortcuts=true])"


def values_of(file):
    if file.name == "gate_gallery.mjs":
        from rlhf_book.figures.gates import gate_gallery

        return {**gate_gallery(), "first": "grpo", "second": "sapo", "log2": 0.3}
    if file.name == "playground.mjs":  # no widget yet
        from rlhf_book.figures.playground import playground

        return playground()
    (figure,) = (
        made
        for made in vars(widgets).values()
        if isinstance(made, type) and getattr(made, "_esm", None) == widgets.in_a_notebook(file)
    )
    state = figure().get_state()
    return {
        name: value for name, value in state.items() if not name.startswith("_") and name not in ("layout", "tooltip")
    }


@pytest.fixture
def in_a_cell(opened, tmp_path):
    def in_a_cell(file, source):
        values = json.dumps(values_of(file), default=str)
        text = PAGE.format(source=json.dumps(source).replace("</", "<\\/"), values=values)
        (tmp_path / "page.html").write_text(text, encoding="utf-8")
        page = opened(tmp_path / "page.html")
        page.wait_for_function("window.model")
        assert page.locator(CONTROLS).count() >= 3
        return page

    return in_a_cell


@pytest.mark.parametrize("file", FIGURES, ids=lambda file: file.stem)
def test_every_control_of_every_figure_keeps_its_keys(in_a_cell, file):
    page = in_a_cell(file, widgets.in_a_notebook(file))
    assert page.locator(OPEN_TO_SHORTCUTS).count() == 0
    assert page.evaluate("typeof window.cleanup") == "function"  # anywidget calls it when the cell goes


def test_controls_that_are_made_later_keep_theirs(in_a_cell):
    (file,) = (file for file in FIGURES if file.name == "group_explorer.mjs")
    page = in_a_cell(file, widgets.in_a_notebook(file))
    before = page.locator(CONTROLS).count()
    page.evaluate("model.set('rewards', [0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1])")
    expect(page.locator(OPEN_TO_SHORTCUTS)).to_have_count(0)
    assert page.locator(CONTROLS).count() > before
    press(page.locator(".reward-slider").nth(9), "ArrowLeft", 4)
    assert page.evaluate("model.get('rewards')[9]") == pytest.approx(0.8)


def test_without_it_the_keys_would_go_to_the_notebook(in_a_cell):
    page = in_a_cell(FIGURES[0], joined(FIGURES[0]))
    assert page.locator(OPEN_TO_SHORTCUTS).count() == page.locator(CONTROLS).count()


def test_a_module_without_its_export_is_refused(tmp_path):
    (tmp_path / "none.mjs").write_text("const a = 1;\n")
    with pytest.raises(ValueError, match="has 0 `export default`"):
        widgets.in_a_notebook(tmp_path / "none.mjs")
