"""The figures of the first sections by keyboard, mouse and touch, without a network, in the dark and on a phone."""

import pytest

from tests.browser.chromium import resize
from tests.browser.explorers import button, has_focus, press, said, stays_in_its_place, texts, unnamed

# Of each figure the place of a handle, and where its number goes with one arrow key.
HANDLES = {
    "group_strip": ("reward 0.00", "reward 0.05"),
    "gae_staircase": ("0.4", "0.45"),
    "mean_balance": ("0.30", "0.31"),
}

each_figure = pytest.mark.parametrize("name", HANDLES)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 390])
@each_figure
def test_a_handle_moves_by_keyboard(figure, name, width, dark):
    shown = figure(name, width=width, dark=dark)
    handle, words, (before, after) = shown.locator(".handle").first, said(shown), HANDLES[name]

    def number(of="now"):
        return handle.get_attribute("aria-valuetext") or handle.get_attribute(f"aria-value{of}")

    assert number().startswith(before)
    press(handle, "ArrowUp")
    assert number().startswith(after)
    assert said(shown) != words
    assert has_focus(handle), "focus was lost"
    press(handle, "Home")
    press(handle, "End")
    assert handle.get_attribute("aria-valuenow") == handle.get_attribute("aria-valuemax")
    assert stays_in_its_place(shown, width)


@each_figure
def test_a_handle_follows_the_pointer_while_it_is_held(figure, name):
    shown = figure(name)
    words, mouse = said(shown), shown.page.mouse
    hit = shown.locator(".handle").first.locator(".hit")
    hit.scroll_into_view_if_needed()
    box = hit.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    mouse.move(x, y)
    mouse.move(x + 60, y + 20)  # not held
    assert said(shown) == words
    mouse.move(x, y)
    mouse.down()
    mouse.move(x + 60, y + 20)
    assert said(shown) != words
    mouse.up()


@each_figure
def test_every_example_changes_what_is_said_and_everything_has_a_name(figure, name):
    shown = figure(name)
    names = shown.locator("[aria-label=examples] > *").all_text_contents()
    heard = set()
    for example in names:
        press(button(shown, example), "Enter")
        heard.add(said(shown))
    assert len(heard) == len(names) >= 5
    assert unnamed(shown) == 0
    assert shown.locator(".handle").evaluate_all("(all) => all.filter((e) => !e.ariaLabel).length") == 0


def test_the_buttons_of_a_choice_say_which_is_pressed(figure):
    shown = figure("gae_staircase")
    press(button(shown, "48"), "Enter")
    assert "the advantage of \u201c48\u201d is \u22120.20 \u00d7 1.00 \u2212 0.10 \u00d7 0.50 = \u22120.25" in said(
        shown
    )
    assert texts(shown.locator("[aria-pressed=true]")) == ["48", "wrong, 0"]
    press(shown.locator(".lam"), "Home")
    assert "With \u03bb = 0.00" in said(shown)


def test_a_figure_draws_itself_anew_at_another_width(figure):
    shown = figure("mean_balance", width=1280)
    box = shown.locator("svg").first.get_attribute("viewBox")
    resize(shown.page, 390)
    shown.page.wait_for_function(
        "(before) => document.querySelector('.mean-balance svg').viewBox.baseVal.width < before",
        arg=float(box.split()[2]),
    )
