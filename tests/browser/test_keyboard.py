"""In JupyterLab the keys of a figure's controls move the figure, not the cells around it.

JupyterLab leaves a key to an element that carries `data-lm-suppress-shortcuts`, and looks at that element alone.
"""

import json
from pathlib import Path

import pytest

from rlhf_book.figures import joined, widgets

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
CONTROLS = "[...document.querySelectorAll('#figure :is(input, select, button)')]"
OPEN_TO_SHORTCUTS = f"{CONTROLS}.filter((c) => c.dataset.lmSuppressShortcuts !== 'true').length"


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


def opened(browser, tmp_path, file, source):
    text = PAGE.format(source=json.dumps(source).replace("</", "<\\/"), values=json.dumps(values_of(file), default=str))
    (tmp_path / "page.html").write_text(text, encoding="utf-8")
    page = browser.open(tmp_path / "page.html")
    for _ in range(30):
        if page.evaluate(f"{CONTROLS}.length > 0"):
            break
        page.settle(0.1)
    assert page.errors == []
    assert page.evaluate(f"{CONTROLS}.length") >= 3
    return page


@pytest.mark.parametrize("file", FIGURES, ids=lambda file: file.stem)
def test_every_control_of_every_figure_keeps_its_keys(browser, tmp_path, file):
    page = opened(browser, tmp_path, file, widgets.in_a_notebook(file))
    assert page.evaluate(OPEN_TO_SHORTCUTS) == 0
    assert page.evaluate("typeof window.cleanup") == "function"  # anywidget calls it when the cell goes


def test_controls_that_are_made_later_keep_theirs(browser, tmp_path):
    (file,) = (file for file in FIGURES if file.name == "group_explorer.mjs")
    page = opened(browser, tmp_path, file, widgets.in_a_notebook(file))
    before = page.evaluate(f"{CONTROLS}.length")
    page.evaluate("model.set('rewards', [0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1])")
    page.settle(0.1)
    assert page.evaluate(f"{CONTROLS}.length") > before
    assert page.evaluate(OPEN_TO_SHORTCUTS) == 0
    page.evaluate("document.querySelectorAll('.reward-slider')[9].focus()")
    page.press("ArrowLeft", times=4)
    assert page.evaluate("model.get('rewards')[9]") == pytest.approx(0.8)


def test_without_it_the_keys_would_go_to_the_notebook(browser, tmp_path):
    file = FIGURES[0]
    page = opened(browser, tmp_path, file, joined(file))
    assert page.evaluate(OPEN_TO_SHORTCUTS) == page.evaluate(f"{CONTROLS}.length")


def test_a_module_without_its_export_is_refused(tmp_path):
    (tmp_path / "none.mjs").write_text("const a = 1;\n")
    with pytest.raises(ValueError, match="has 0 `export default`"):
        widgets.in_a_notebook(tmp_path / "none.mjs")
