"""The transcript of an agent by keyboard and by mouse, without a network, in the dark and on a phone."""

import pytest

from tests.browser.chromium import resize
from tests.browser.explorers import button, press, said, stays_in_its_place, style, texts, unnamed


def choose(shown, *names):
    for name in names:
        press(button(shown, name), "Enter")


def pressed(shown):
    return texts(shown.locator("[aria-pressed=true]"))


def weights(shown):
    return [text for text in texts(shown.locator(".weight td")) if text]


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 390, 320])
def test_the_keyboard_moves_it_and_nothing_leaves_its_place(figure, width, dark):
    shown = figure("turn_weights", width=width, dark=dark)
    assert pressed(shown) == ["masked", "nothing", "one number", "nothing"]
    assert weights(shown) == ["1.00", "1.00", "0", "1.00", "1.00", "0", *["1.00"] * 3, "0", "0", *["1.00"] * 4]
    assert "This is the policy gradient." in said(shown)
    assert shown.locator("table").count() == {1280: 2, 390: 3, 320: 4}[width]
    choose(shown, "in the loss")
    assert weights(shown) == ["1.00"] * 15
    assert texts(shown.page.locator(":focus")) == ["in the loss"], "focus was lost"
    choose(shown, "all tokens (15)")
    assert weights(shown) == ["0.067"] * 15
    choose(shown, "masked", "reset at a reply", "0.3")
    assert pressed(shown) == ["masked", "all tokens (15)", "reset at a reply", "0.3"]
    assert weights(shown)[6:9] == ["-0.020"] * 3
    assert "is pushed down although it was right" in said(shown)
    assert stays_in_its_place(shown, width)


@pytest.mark.parametrize("width", [1280, 390, 320])
def test_no_number_runs_into_the_next(figure, width):
    """The longest numbers: six characters, with a minus."""
    shown = figure("turn_weights", width=width)
    choose(shown, "in the loss", "all tokens (15)", "\u00d7 0.8 a token", "0.3")
    assert max(map(len, weights(shown))) == 6
    cut = "(all) => all.filter((cell) => cell.scrollWidth > cell.clientWidth + 1).map((cell) => cell.textContent)"
    assert shown.locator("td, th, .box").evaluate_all(cut) == []


def test_a_click_moves_it_and_who_wrote_a_token_is_told_without_colour(figure):
    shown = figure("turn_weights")
    button(shown, "turns (4)").click()
    assert set(weights(shown)) == {"0.25", "0"}
    heads = shown.locator("thead th[scope]").evaluate_all("(all) => all.map((h) => [h.textContent, h.colSpan])")
    assert heads == [
        ["turn 1", 2],
        ["reply", 1],
        ["turn 2", 2],
        ["reply", 1],
        ["turn 3", 3],
        ["reply", 2],
        ["turn 4", 4],
    ]
    for cell, line in (("td:not(.heard)", "solid"), (".heard", "dashed")):
        assert style(shown.locator(f"{cell} .box").first, "borderStyle") == line
    assert unnamed(shown) == 0


def test_it_takes_another_width(figure):
    shown = figure("turn_weights", width=1280)
    resize(shown.page, 390)
    shown.page.wait_for_function("document.querySelectorAll('.turn-weights table').length === 3")
    assert len(weights(shown)) == 15


@pytest.mark.parametrize("name", ["notebooks/agents.html", "book/figures.html"])
def test_it_is_alive_in_the_chapter_and_on_the_page_of_figures(kept, name):
    shown = kept(name, width=390).locator(".turn-weights")
    choose(shown, "in the loss")
    assert weights(shown) == ["1.00"] * 15
    assert "Biased, because the replies are trained" in said(shown)
