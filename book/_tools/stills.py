"""A live figure's still, for the editions that stand still: its first picture, drawn in Chromium from what its notebook
has saved.

The controls are left out, because nothing can be pressed on paper. What the figure says in words below its picture
becomes a sentence of the caption.
"""

import hashlib
import json
from pathlib import Path

from bs4 import BeautifulSoup, Tag

MOVES = "Still of a figure that moves in the web book."
WIDGET = 'script[type="application/vnd.jupyter.widget-view+json"]'
WIDTH = 640  # CSS pixels, about those of a column of text; each is drawn as two
LOOK = """body { margin: 0; background: #fff; color: #111; font: 16px "Liberation Sans", Arial, sans-serif; }
#here { padding: 2px; box-sizing: border-box; }
#here :is(.controls, .examples, .said, label, button, input, select) { display: none; }
#here :is(.controls, .examples) * { display: none; }
#here td :is(button, label):not(.examples *, .controls *), #here th :is(button, label):not(.examples *) {
  display: inline; border: 0; padding: 0; background: none; }"""
# What anywidget calls a model, as much of it as a first picture needs. Of a slider or a menu stays what it is set to,
# and of a group of buttons the one that is pressed; nobody is asked to press one.
RENDER = """async ([source, values]) => {
  const module = await import(URL.createObjectURL(new Blob([source], { type: "text/javascript" })));
  const model = { get: (name) => values[name], set: () => {}, on: () => {}, off: () => {}, save_changes: () => {} };
  const here = document.getElementById("here"), set = [];
  await module.default.initialize?.({ model });
  await module.default.render({ model, el: here });
  for (let i = 0; i < 3; i += 1) await new Promise((resolve) => requestAnimationFrame(resolve));
  for (const label of here.querySelectorAll("label")) {
    if (label.closest("td, th")) continue;
    const input = label.querySelector("select, input"), shown = label.querySelector("output");
    const name = label.cloneNode(true);
    for (const inner of name.querySelectorAll("select, input, output")) inner.remove();
    const value = shown ? shown.textContent : input?.tagName === "SELECT" ? input.selectedOptions[0]?.text
      : input?.type === "checkbox" ? (input.checked ? "yes" : "no") : "";
    if (value) set.push(`${name.textContent.trim()} ${value}`);
  }
  for (const button of here.querySelectorAll("button[aria-pressed=true]")) {
    const group = button.closest("[role=group][aria-label]:not(.live-figure)");
    const of = group ? `${group.getAttribute("aria-label")}: ` : "";
    if (!button.closest("td, th")) set.push(of + button.textContent);
  }
  for (const words of here.querySelectorAll("p")) {
    const asked = /(?<=^|[.] )(Press|Drag|Move|Choose) [^.]*[.]/g;
    if (!words.children.length) words.textContent = words.textContent.replace(asked, "").trim();
  }
  return [here.querySelector(".said")?.textContent ?? "", set.map((one) => one.replace(/\\s+/g, " "))];
}"""


def saved(notebook: Path) -> dict[str, dict]:
    """The live figures that a notebook has saved: what each was given, by the number that its page names it with."""
    if not notebook.is_file():
        return {}
    widgets = json.loads(notebook.read_text(encoding="utf-8"))["metadata"].get("widgets", {})
    models = widgets.get("application/vnd.jupyter.widget-state+json", {}).get("state", {})
    return {number: model["state"] for number, model in models.items() if "_esm" in model["state"]}


def place_stills(text: Tag, notebook: Path, built: Path, folder: str, browser) -> None:
    """Put a still, with its words, where a page has a live figure; one that is not saved becomes a sentence.

    Args:
        text: The page; it is changed.
        notebook: Of which it was made.
        built: Where its pictures lie, in `_images`.
        folder: The way from the page to `built`, such as `../`.
        browser: A function that gives a running Chromium.
    """
    make = BeautifulSoup("", "html.parser").new_tag
    figures = saved(notebook) if text.select_one(WIDGET) else {}
    for script in text.select(WIDGET):
        state = figures.get(json.loads(script.get_text() or "{}").get("model_id", ""))
        if state is None:
            words = make("p", attrs={"class": "still"})
            words.string = "A live figure stands here in the web book."
            script.replace_with(words)
            continue
        name = f"still-{hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()[:12]}.png"
        picture, said = draw(state, browser())
        (built / "_images").mkdir(exist_ok=True)
        (built / "_images" / name).write_bytes(picture)
        image = make("img", attrs={"src": f"{folder}_images/{name}", "alt": state.get("alt", ""), "class": "live"})
        caption = make("figcaption")
        caption.string = f"{MOVES} {said}".strip()
        figure = make("figure")
        figure.extend([image, caption])
        cell = script.find_parent(class_="cell")
        if cell is not None and (call := cell.select_one(".cell_input")) is not None:
            call.decompose()  # one line, that makes the figure move
        script.replace_with(figure)


def draw(state: dict, browser) -> tuple[bytes, str]:
    """A live figure's first picture as PNG, and what it says below."""
    page = browser.new_page(viewport={"width": WIDTH, "height": 900}, device_scale_factor=2)
    try:
        page.set_content(f'<!DOCTYPE html><style>{LOOK}</style><div id="here"></div>')
        values = {name: value for name, value in state.items() if not name.startswith("_")}
        said, settings = page.evaluate(RENDER, [state["_esm"], values])
        said = " ".join(said.split())
        if settings:
            said += f" Set to: {'; '.join(settings)}."
        return page.locator("#here").screenshot(), said.strip()
    finally:
        page.close()
