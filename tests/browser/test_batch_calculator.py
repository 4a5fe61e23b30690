"""The batch calculator by keyboard, without a network, in the dark and on a phone."""

import json

import pytest

from tests.browser.explorers import in_browser, press, stays_in_its_place, unnamed
from tests.viz.test_batch_calculator import CASES, MODULE, compare

FIGURE = "document.querySelector('.batch-calculator')"
SAID = f"{FIGURE}.querySelector('.said').textContent"


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1400, 360])
def test_the_keyboard_moves_it(browser, figures, dark, width):
    page = browser.open(figures / "batch_calculator.html", width=width, dark=dark)
    for name in ("num_iterations", "processes"):
        said = page.evaluate(SAID)
        field = f"{FIGURE}.querySelector('.field-{name}')"
        page.evaluate(f"{field}.focus()")
        page.press("ArrowUp")
        assert page.evaluate(f"{field}.value") == "2"
        assert page.evaluate(SAID) != said
        assert page.evaluate(f"{field} === document.activeElement"), "focus was lost"
    assert stays_in_its_place(page, FIGURE, width)


def test_another_library_has_other_fields(browser, figures):
    page = browser.open(figures / "batch_calculator.html")
    press(page, FIGURE, "verl")
    assert page.evaluate(f"{FIGURE}.querySelectorAll('input').length") == 6
    assert "128 prompts, 1024 completions" in page.evaluate(SAID)
    press(page, FIGURE, "prime-rl")
    assert page.evaluate(f"{FIGURE}.querySelectorAll('input').length") == 3
    assert "Every update is off-policy" in page.evaluate(SAID)
    assert page.errors == []


SCREEN = f"""[{SAID}, {FIGURE}.querySelectorAll('rect').length,
  {FIGURE}.querySelector('svg').getAttribute('aria-label'),
  {FIGURE}.querySelector('.key').textContent, {FIGURE}.querySelectorAll('[aria-invalid=true]').length]"""


def into(page, name, text):
    """Type a setting in the place of what stands there."""
    page.evaluate(f"{FIGURE}.querySelector('.field-{name}').select()")
    page.evaluate("document.execCommand('delete')")
    if text:
        page.type(text)


@pytest.mark.parametrize("text", ["2.5", "", "-1", "1e7", "0"])
def test_what_is_no_setting_is_named_and_stays_until_it_is_mended(browser, figures, text):
    page = browser.open(figures / "batch_calculator.html")
    press(page, FIGURE, "verl")
    before = page.evaluate(SCREEN)
    into(page, "gpus", text)
    said, bars, label, _, invalid = page.evaluate(SCREEN)
    got = text.replace("1e7", "10000000") or "nothing"
    problem = f"gpus: expected a whole number from 1 to 1000000, got {got}"
    assert (said, bars, label, invalid) == (f"This does not work: {problem}.", 0, f"no updates: {problem}", 1)
    into(page, "ppo_epochs", "2")  # another field does not take it away
    assert page.evaluate(f"{FIGURE}.querySelector('.field-gpus').value") == text
    assert problem in page.evaluate(SAID)
    into(page, "ppo_epochs", "1")
    into(page, "gpus", "8")
    assert page.evaluate(SCREEN) == before
    assert page.errors == []


def test_a_thousand_may_be_written_as_1e3_and_the_bars_are_counted(browser, figures):
    page = browser.open(figures / "batch_calculator.html")
    press(page, FIGURE, "verl")
    into(page, "ppo_epochs", "1e3")
    said, bars, label, key, _ = page.evaluate(SCREEN)
    assert "pays for 4000 updates" in said
    assert bars == 48
    assert label.startswith("ages of the first 48 of 4000 updates: 0, 1, 2,")
    assert "of the first 48" in key
    into(page, "ppo_epochs", "12")
    _, bars, label, key, _ = page.evaluate(SCREEN)
    assert bars == 48
    assert label.startswith("ages of 48 updates: 0, 1")
    assert "until both begin together again" in key
    assert page.errors == []


def test_prime_rl_may_take_turns_and_the_bars_have_the_colours_of_the_kit(browser, figures):
    page = browser.open(figures / "batch_calculator.html")
    press(page, FIGURE, "prime-rl")
    fill = f"getComputedStyle({FIGURE}.querySelector('rect')).fill"
    assert page.evaluate(fill) == "rgb(217, 103, 30)"
    into(page, "max_async_level", "0")
    assert "on-policy, and a clip has nothing to do" in page.evaluate(SAID)
    assert page.evaluate(fill) == "rgb(59, 143, 207)"
    into(page, "max_async_level", "-1")
    assert "max_async_level: expected a whole number from 0 to 1000000, got -1" in page.evaluate(SAID)


def test_everything_has_a_name(browser, figures):
    page = browser.open(figures / "batch_calculator.html")
    assert unnamed(page, FIGURE) == 0


def test_its_numbers_are_pythons_in_the_browser_too(browser, tmp_path):
    """The comparison of tests/viz, for machines without Node."""
    numbers = f"{json.dumps(CASES)}.map((c) => figure.maths.compute(...c))"
    compare(in_browser(browser, tmp_path, MODULE, numbers))
