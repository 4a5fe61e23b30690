"""The figures of the first sections by keyboard, mouse and touch, without a network, in the dark and on a phone."""

import pytest

from tests.browser.explorers import press, stays_in_its_place, unnamed

# Of each figure the place of a handle, and where its number goes with one arrow key.
HANDLES = {
    "group_strip": ("reward 0.00", "reward 0.05"),
    "gae_staircase": ("0.4", "0.45"),
    "mean_balance": ("0.30", "0.31"),
}

each_figure = pytest.mark.parametrize("name", HANDLES)


def found(name):
    figure = f"document.querySelector('.{name.replace('_', '-')}')"
    return figure, f"{figure}.querySelector('.said').textContent", f"{figure}.querySelector('.handle')"


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 390])
@each_figure
def test_a_handle_moves_by_keyboard(browser, figures, name, width, dark):
    figure, said, handle = found(name)
    page = browser.open(figures / f"{name}.html", width=width, dark=dark)
    before, after = HANDLES[name]
    number = f"({handle}.getAttribute('aria-valuetext') ?? {handle}.getAttribute('aria-valuenow'))"
    words = page.evaluate(said)
    assert page.evaluate(number).startswith(before)
    page.evaluate(f"{handle}.focus()")
    page.press("ArrowUp")
    assert page.evaluate(number).startswith(after)
    assert page.evaluate(said) != words
    assert page.evaluate(f"{handle} === document.activeElement"), "focus was lost"
    page.press("Home")
    page.press("End")
    assert page.evaluate(f"{handle}.getAttribute('aria-valuenow') === {handle}.getAttribute('aria-valuemax')")
    assert stays_in_its_place(page, f"{figure}", width)


@each_figure
def test_a_handle_follows_the_pointer_while_it_is_held(browser, figures, name):
    figure, said, handle = found(name)
    page = browser.open(figures / f"{name}.html")
    words = page.evaluate(said)
    page.evaluate(
        f"""{{
        const handle = {handle}, place = handle.querySelector('.hit').getBoundingClientRect();
        const x = place.x + place.width / 2, y = place.y + place.height / 2;
        handle.setPointerCapture = () => {{}};
        handle.hasPointerCapture = () => window.held;
        const send = (type, dx, dy) => handle.dispatchEvent(
          new PointerEvent(type, {{ clientX: x + dx, clientY: y + dy, pointerId: 1, bubbles: true }}));
        window.held = false;
        send('pointermove', 60, 20); // not held
        window.before = {said};
        window.held = true;
        send('pointerdown', 0, 0);
        send('pointermove', 60, 20);
        }}"""
    )
    assert page.evaluate("window.before") == words
    assert page.evaluate(said) != words
    assert page.errors == []


@each_figure
def test_every_example_changes_what_is_said_and_everything_has_a_name(browser, figures, name):
    figure, said, _ = found(name)
    page = browser.open(figures / f"{name}.html")
    names = page.evaluate(f"[...{figure}.querySelector('[aria-label=examples]').children].map((b) => b.textContent)")
    heard = set()
    for example in names:
        press(page, figure, example)
        heard.add(page.evaluate(said))
    assert len(heard) == len(names) >= 5
    assert unnamed(page, figure) == 0
    assert page.evaluate(f"[...{figure}.querySelectorAll('.handle')].filter((e) => !e.ariaLabel).length") == 0


def test_the_buttons_of_a_choice_say_which_is_pressed(browser, figures):
    figure, said, _ = found("gae_staircase")
    page = browser.open(figures / "gae_staircase.html")
    press(page, figure, "48")
    assert (
        "the advantage of \u201c48\u201d is \u22120.20 \u00d7 1.00 \u2212 0.10 \u00d7 0.50 = \u22120.25"
        in page.evaluate(said)
    )
    pressed = f"[...{figure}.querySelectorAll('[aria-pressed=true]')].map((b) => b.textContent)"
    assert page.evaluate(pressed) == ["48", "wrong, 0"]
    page.evaluate(f"{figure}.querySelector('.lam').focus()")
    page.press("Home")
    assert "With \u03bb = 0.00" in page.evaluate(said)


def test_a_figure_draws_itself_anew_at_another_width(browser, figures):
    page = browser.open(figures / "mean_balance.html", width=1280)
    box = "document.querySelector('.mean-balance svg').viewBox.baseVal.width"
    wide = page.evaluate(box)
    page.resize(390, 900)
    page.settle(0.3)
    assert page.evaluate(box) < wide
