"""The directive that puts an interactive figure into a page, on a tiny book of its own."""

import re

import pytest

from rlhf_book.figures import joined
from tests.browser.explorers import press
from tests.browser.tiny_book import build

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


def test_a_figure_moves_without_kernel_or_network(opened, tmp_path):
    result = build(tmp_path / "book", {"index": PAGE}, {"slider.mjs": SLIDER})
    assert result.returncode == 0, result.stderr
    page = opened(tmp_path / "book" / "out" / "index.html")
    texts = page.locator("output")
    assert texts.all_text_contents() == [
        'value 3 of </script> & "</script><b>"',
        'value 7 of </script> & "undefined"',
    ]
    press(page.locator("input[type=range]").first, "ArrowRight", 2)
    assert texts.nth(0).text_content().startswith("value 5 ")
    assert texts.nth(1).text_content().startswith("value 7 ")  # two figures on a page do not share state
    assert page.locator(".mjs-figure").first.get_attribute("aria-label") == 'A slider "from zero" to ten & its value.'
    assert "Fig. 1" in page.locator("figcaption").first.text_content()


def test_a_figure_on_the_kit_stands_alone(tmp_path):
    kit = "export const a = 1;\nexport function b() { return a; }\nconst exported = 'export const c';\n"
    figure = '// A figure.\n\nimport {\n  a, b,\n} from "./kit.mjs";\n\nconst c = b();\nexport default { c };\n'
    (tmp_path / "kit.mjs").write_text(kit, encoding="utf-8")
    (tmp_path / "one.mjs").write_text(figure, encoding="utf-8")
    assert joined(tmp_path / "one.mjs") == (
        "// A figure.\n\nconst a = 1;\nfunction b() { return a; }\nconst exported = 'export const c';\n\n"
        "const c = b();\nexport default { c };\n"
    )
    (tmp_path / "two.mjs").write_text(SLIDER, encoding="utf-8")
    assert joined(tmp_path / "two.mjs") == SLIDER  # one that names no kit is left as it is


BROKEN = {  # name: (the figure, the module that it names, what is wrong)
    "silent": ("```{mjs-figure} {name}.mjs\n```\n", SLIDER, "`:alt:` is required"),
    "absent": ("```{mjs-figure} {name}.mjs\n:alt: x\n```\n", None, "there is no module"),
    "no-json": ("```{mjs-figure} {name}.mjs\n:alt: x\n:params: {low}\n```\n", SLIDER, "is not JSON"),
    "import": (
        "```{mjs-figure} {name}.mjs\n:alt: x\n```\n",
        "import { a } from './b.mjs';\n" + SLIDER,
        "no other export or import",
    ),
    "no-kit": (
        "```{mjs-figure} {name}.mjs\n:alt: x\n```\n",
        'import { say } from "./kit.mjs";\n' + SLIDER,
        "imports a kit, and there is none beside it",
    ),
    "export": (
        "```{mjs-figure} {name}.mjs\n:alt: x\n```\n",
        "export const a = 1;\n" + SLIDER,
        "no other export or import",
    ),
    "no-export": ("```{mjs-figure} {name}.mjs\n:alt: x\n```\n", "const a = 1;\n", "one `export default`"),
}


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """One build of a book with all of them, each on a page of its own."""
    pages = {"index": "# Figures\n"}
    pages |= {name: "# A page\n\n" + text.replace("{name}", name) for name, (text, _, _) in BROKEN.items()}
    modules = {f"{name}.mjs": source for name, (_, source, _) in BROKEN.items() if source}
    return build(tmp_path_factory.mktemp("broken") / "book", pages, modules)


@pytest.mark.parametrize("name", BROKEN)
def test_a_figure_that_cannot_work_stops_the_build(broken, name):
    """Under -W every line that names a page is a reason to fail."""
    assert broken.returncode != 0
    told = re.findall(
        rf"^\S*/{name}\.md:\d+: (?:ERROR|WARNING|CRITICAL): .*(?:\n(?!/).*)*", broken.stderr, re.MULTILINE
    )
    assert len(told) == 1, broken.stderr
    assert BROKEN[name][2] in " ".join(told[0].split())
