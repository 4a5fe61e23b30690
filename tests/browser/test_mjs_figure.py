"""The directive that puts an interactive figure into a page, on a tiny book of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

EXTENSIONS = Path(__file__).resolve().parents[2] / "book" / "_ext"

SLIDER = """\
// A slider and the number it stands for, as an anywidget module.
export default {
  render({ model, el }) {
    const slider = Object.assign(document.createElement("input"), { type: "range", min: 0, max: 10 });
    slider.value = model.get("start");
    const shown = document.createElement("output");
    const show = () => { shown.textContent = `value ${model.get("value")} of </script> & "${model.get("word")}"`; };
    slider.addEventListener("input", () => { model.set("value", Number(slider.value)); model.save_changes(); });
    model.on("change:value", show);
    model.set("value", model.get("start"));
    el.append(slider, shown);
  },
};
"""

PAGE = """\
# A page

See {numref}`fig-slider`.

```{mjs-figure} slider.mjs
:name: fig-slider
:alt: A slider "from zero" to ten & its value.
:params: {"start": 3, "word": "</script><b>"}
The **slider** and its value.
```

```{mjs-figure} slider.mjs
:alt: The same slider again.
:params: {"start": 7}
```
"""


def build(folder: Path, page: str, modules: dict[str, str]) -> subprocess.CompletedProcess:
    (folder / "viz").mkdir(parents=True)
    for name, source in modules.items():
        (folder / "viz" / name).write_text(source)
    (folder / "index.md").write_text(page)
    (folder / "conf.py").write_text(
        f"import sys\nsys.path.insert(0, {str(EXTENSIONS)!r})\n"
        "extensions = ['myst_parser', 'mjs_figure']\nmjs_figure_path = 'viz'\nnumfig = True\n"
    )
    command = [sys.executable, "-m", "sphinx", "-W", "-n", "-q", "-b", "html", str(folder), str(folder / "out")]
    return subprocess.run(command, capture_output=True, text=True)


def test_a_figure_moves_without_kernel_or_network(browser, tmp_path):
    result = build(tmp_path, PAGE, {"slider.mjs": SLIDER})
    assert result.returncode == 0, result.stderr
    page = browser.open(tmp_path / "out" / "index.html")
    assert page.errors == []
    assert page.outside_requests == []
    texts = "[...document.querySelectorAll('output')].map(o => o.textContent)"
    assert page.evaluate(texts) == [
        'value 3 of </script> & "</script><b>"',
        'value 7 of </script> & "undefined"',
    ]
    page.evaluate("document.querySelector('input[type=range]').focus()")
    page.press("ArrowRight", times=2)
    assert page.evaluate(texts)[0].startswith("value 5 ")
    assert page.evaluate(texts)[1].startswith("value 7 ")  # two figures on a page do not share state
    label = "document.querySelector('.mjs-figure').getAttribute('aria-label')"
    assert page.evaluate(label) == 'A slider "from zero" to ten & its value.'
    assert "Fig. 1" in page.evaluate("document.querySelector('figcaption').textContent")


@pytest.mark.parametrize(
    ("page", "modules", "message"),
    [
        ("```{mjs-figure} slider.mjs\n```\n", {"slider.mjs": SLIDER}, "`:alt:` is required"),
        ("```{mjs-figure} none.mjs\n:alt: x\n```\n", {}, "there is no module"),
        ("```{mjs-figure} a.mjs\n:alt: x\n:params: {low}\n```\n", {"a.mjs": SLIDER}, "is not JSON"),
        (
            "```{mjs-figure} a.mjs\n:alt: x\n```\n",
            {"a.mjs": "import { a } from './b.mjs';\n" + SLIDER},
            "no other export or import",
        ),
        (
            "```{mjs-figure} a.mjs\n:alt: x\n```\n",
            {"a.mjs": "export const a = 1;\n" + SLIDER},
            "no other export or import",
        ),
        ("```{mjs-figure} a.mjs\n:alt: x\n```\n", {"a.mjs": "const a = 1;\n"}, "one `export default`"),
    ],
)
def test_a_figure_that_cannot_work_stops_the_build(tmp_path, page, modules, message):
    result = build(tmp_path, "# A page\n\n" + page, modules)
    assert result.returncode != 0
    assert message in " ".join(result.stderr.split())
