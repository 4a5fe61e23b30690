"""The gate gallery, moved in a browser without a network: its numbers are the library's, its picture follows."""

from pathlib import Path

import torch

from rlhf_book import plotting
from rlhf_book.figures.gates import gate_gallery
from rlhf_minimal import ALGORITHMS, gradient_weight
from tests.browser.explorers import press, said
from tests.complete import all_rows_complete

SOURCE = Path(__file__).resolve().parents[2] / "notebooks" / "rlhf_book" / "figures" / "gate_gallery.mjs"
LOG2 = [-3, -1, -0.6, -0.3, -0.01, 0, 0.01, 0.25, 0.3, 0.35, 0.5, 0.6, 1, 2.3, 3]

# Choose a row, a sign and a ratio with the page's own controls, and read the weight that it shows.
READ = """
(root, ratios) => {
  const set = (selector, value, event) => {
    const control = root.querySelector(selector);
    control.value = value;
    control.dispatchEvent(new Event(event, { bubbles: true }));
  };
  const result = {};
  for (const { value: row } of [...root.querySelector('select.first').options]) {
    for (const sign of [1, -1]) {
      set('select.first', row, 'change'); set('select.sign', sign, 'change');
      const weight = (x) => { set('input.ratio', x, 'input'); return Number(root.dataset.first); };
      result[`${row} ${sign}`] = ratios.map(weight);
    }
  }
  return result;
}
"""


def test_its_numbers_are_the_gradients_of_the_library(figure):
    shown = figure("gate_gallery").evaluate(READ, LOG2)
    assert set(shown) == {f"{row} {sign}" for row in ALGORITHMS for sign in (1, -1)}
    ratios = 2 ** torch.tensor(LOG2, dtype=torch.float64)
    for row in ALGORITHMS:
        for sign in (1, -1):
            ours = gradient_weight(row, ratios, float(sign))
            theirs = torch.tensor(shown[f"{row} {sign}"], dtype=torch.float64)
            torch.testing.assert_close(theirs, ours, rtol=1e-6, atol=0)  # the table has seven digits


def test_the_keyboard_moves_the_ratio_and_the_picture_follows(figure):
    shown = figure("gate_gallery")
    before = shown.locator("svg").inner_html()
    assert "grpo: weight 0.00. It has been helped enough." in said(shown)
    press(shown.locator("input.ratio"), "ArrowLeft", 10)
    assert shown.locator("svg").inner_html() != before
    assert "grpo: weight 1.15" in said(shown)
    assert shown.get_attribute("aria-label") != ""


def test_it_fits_a_phone_and_can_be_seen_in_the_dark(figure):
    shown = figure("gate_gallery", width=390, height=844, dark=True)
    assert shown.page.evaluate("document.documentElement.scrollWidth") <= 390


@all_rows_complete
def test_it_is_drawn_in_the_books_colours_and_lines(figure):
    shown = figure("gate_gallery")
    drawn = []
    for name in shown.locator("select.first option").evaluate_all("(all) => all.map((e) => e.value)"):
        shown.locator("select.first").select_option(name)
        line = shown.locator("polyline.first").first
        drawn.append((name, line.get_attribute("stroke"), line.get_attribute("stroke-dasharray") != "none"))
    assert [name for name, _, _ in drawn] == list(ALGORITHMS)
    for name, color, dashed in drawn:
        assert color in (plotting.color(name), "currentColor")
        assert dashed == (plotting.line_style(name) != "solid")
    assert [name for name, color, _ in drawn if color == "currentColor"] == [
        name for name in ALGORITHMS if plotting.color(name) == "#222222"
    ]  # nearly black, which cannot be seen on a dark page


def test_the_module_names_no_row_and_no_colour():
    source = SOURCE.read_text(encoding="utf-8")
    assert [name for name in ALGORITHMS if f'"{name}"' in source or f"{name}:" in source] == []
    assert [row["color"] for row in gate_gallery()["rows"] if row["color"] in source and row["color"][0] == "#"] == []
