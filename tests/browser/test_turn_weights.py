"""The transcript of an agent by keyboard and by mouse, without a network, in the dark and on a phone."""

import json

import pytest

from tests.browser.explorers import in_browser, opened, press, stays_in_its_place, unnamed
from tests.viz.test_turn_weights import MODULE, NUMBERS, STATES, compare_numbers

FIGURE = "document.querySelector('.turn-weights')"
SAID = f"{FIGURE}.querySelector('.said').textContent"
PRESSED = f"[...{FIGURE}.querySelectorAll('[aria-pressed=true]')].map((b) => b.textContent)"
WEIGHTS = f"[...{FIGURE}.querySelectorAll('.weight td')].map((cell) => cell.textContent).filter(Boolean)"
FIRST = ["masked", "nothing", "one number", "nothing"]


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 390, 320])
def test_the_keyboard_moves_it_and_nothing_leaves_its_place(browser, figures, width, dark):
    page = browser.open(figures / "turn_weights.html", width=width, dark=dark)
    assert page.evaluate(PRESSED) == FIRST
    assert page.evaluate(WEIGHTS) == ["1.00", "1.00", "0", "1.00", "1.00", "0", *["1.00"] * 3, "0", "0", *["1.00"] * 4]
    assert "This is the policy gradient." in page.evaluate(SAID)
    assert page.evaluate(f"{FIGURE}.querySelectorAll('table').length") == {1280: 2, 390: 3, 320: 4}[width]
    press(page, FIGURE, "in the loss")
    assert page.evaluate(WEIGHTS) == ["1.00"] * 15
    assert page.evaluate("document.activeElement.textContent") == "in the loss", "focus was lost"
    press(page, FIGURE, "all tokens (15)")
    assert page.evaluate(WEIGHTS) == ["0.067"] * 15
    press(page, FIGURE, "masked")
    press(page, FIGURE, "reset at a reply")
    press(page, FIGURE, "0.3")
    assert page.evaluate(PRESSED) == ["masked", "all tokens (15)", "reset at a reply", "0.3"]
    assert page.evaluate(WEIGHTS)[6:9] == ["\u22120.020"] * 3
    assert "is pushed down although it was right" in page.evaluate(SAID)
    assert stays_in_its_place(page, FIGURE, width)


@pytest.mark.parametrize("width", [1280, 390, 320])
def test_no_number_runs_into_the_next(browser, figures, width):
    """The longest numbers: six characters, with a minus."""
    page = browser.open(figures / "turn_weights.html", width=width)
    for name in ("in the loss", "all tokens (15)", "\u00d7 0.8 a token", "0.3"):
        press(page, FIGURE, name)
    assert max(map(len, page.evaluate(WEIGHTS))) == 6
    cut = (
        f"[...{FIGURE}.querySelectorAll('td, th, .box')].filter((cell) => cell.scrollWidth > cell.clientWidth + 1)"
        ".map((cell) => cell.textContent)"
    )
    assert page.evaluate(cut) == []


def test_a_click_moves_it_and_who_wrote_a_token_is_told_without_colour(browser, figures):
    page = browser.open(figures / "turn_weights.html")
    page.evaluate(f"[...{FIGURE}.querySelectorAll('button')].find((b) => b.textContent === 'turns (4)').click()")
    assert set(page.evaluate(WEIGHTS)) == {"0.25", "0"}
    heads = f"[...{FIGURE}.querySelectorAll('thead th[scope]')].map((h) => [h.textContent, h.colSpan])"
    assert page.evaluate(heads) == [
        ["turn 1", 2],
        ["reply", 1],
        ["turn 2", 2],
        ["reply", 1],
        ["turn 3", 3],
        ["reply", 2],
        ["turn 4", 4],
    ]
    border = f"getComputedStyle({FIGURE}.querySelector('%s .box')).borderStyle"
    assert (page.evaluate(border % "td:not(.heard)"), page.evaluate(border % ".heard")) == ("solid", "dashed")
    assert unnamed(page, FIGURE) == 0
    assert page.errors == []


def test_it_takes_another_width(browser, figures):
    page = browser.open(figures / "turn_weights.html", width=1280)
    page.resize(390, 900)
    page.settle(0.3)
    assert page.evaluate(f"{FIGURE}.querySelectorAll('table').length") == 3
    assert len(page.evaluate(WEIGHTS)) == 15


@pytest.mark.parametrize("name", ["notebooks/agents.html", "book/figures.html"])
def test_it_is_alive_in_the_chapter_and_on_the_page_of_figures(browser, name):
    page = opened(browser, name, FIGURE, width=390)
    press(page, FIGURE, "in the loss")
    assert page.evaluate(WEIGHTS) == ["1.00"] * 15
    assert "Biased, because the replies are trained" in page.evaluate(SAID)


def test_its_numbers_are_the_librarys_in_the_browser_too(browser, tmp_path):
    """The comparison of tests/viz, for machines without Node."""
    maths = f"((maths) => {json.dumps(STATES)}.map({NUMBERS}))(figure.maths)"
    compare_numbers(in_browser(browser, tmp_path, MODULE, maths))
