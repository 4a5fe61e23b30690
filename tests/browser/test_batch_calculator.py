"""The batch calculator by keyboard, without a network, in the dark and on a phone."""

import pytest

from tests.browser.explorers import button, has_focus, press, said, stays_in_its_place, style


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1400, 360])
def test_the_keyboard_moves_it(figure, dark, width):
    shown = figure("batch_calculator", width=width, dark=dark)
    for name in ("num_iterations", "processes"):
        before, field = said(shown), shown.locator(f".field-{name}")
        press(field, "ArrowUp")
        assert field.input_value() == "2"
        assert said(shown) != before
        assert has_focus(field), "focus was lost"
    assert stays_in_its_place(shown, width)


@pytest.fixture
def verl(figure):
    shown = figure("batch_calculator")
    press(button(shown, "verl"), "Enter")
    return shown


def test_another_library_has_other_fields(verl):
    assert verl.locator("input").count() == 6
    assert "128 prompts, 1024 completions" in said(verl)
    press(button(verl, "prime-rl"), "Enter")
    assert verl.locator("input").count() == 3
    assert "Every update is off-policy" in said(verl)


def seen(shown):
    """What is said, how many bars, their words, the key, and how many fields are marked."""
    bars, invalid = (shown.locator(found).count() for found in ("rect", "[aria-invalid=true]"))
    return (
        said(shown),
        bars,
        shown.locator("svg").get_attribute("aria-label"),
        shown.locator(".key").text_content(),
        invalid,
    )


def into(shown, name, text):
    """Type a setting in the place of what stands there, by keys: a field of numbers takes `fill` for numbers alone."""
    shown.locator(f".field-{name}").select_text()
    shown.page.keyboard.press("Delete")
    shown.page.keyboard.insert_text(text)


def test_what_is_no_setting_is_named_and_stays_until_it_is_mended(verl):
    before = seen(verl)
    for text in ("2.5", "", "-1", "1e7", "0"):
        into(verl, "gpus", text)
        words, bars, label, _, invalid = seen(verl)
        got = text.replace("1e7", "10000000") or "nothing"
        problem = f"gpus: expected a whole number from 1 to 1000000, got {got}"
        assert (words, bars, label, invalid) == (f"This does not work: {problem}.", 0, f"no updates: {problem}", 1)
        into(verl, "ppo_epochs", "2")  # another field does not take it away
        assert verl.locator(".field-gpus").input_value() == text
        assert problem in said(verl)
        into(verl, "ppo_epochs", "1")
        into(verl, "gpus", "8")
        assert seen(verl) == before


def test_a_thousand_may_be_written_as_1e3_and_the_bars_are_counted(verl):
    into(verl, "ppo_epochs", "1e3")
    words, bars, label, key, _ = seen(verl)
    assert "pays for 4000 updates" in words
    assert bars == 48
    assert label.startswith("ages of the first 48 of 4000 updates: 0, 1, 2,")
    assert "of the first 48" in key
    into(verl, "ppo_epochs", "12")
    _, bars, label, key, _ = seen(verl)
    assert bars == 48
    assert label.startswith("ages of 48 updates: 0, 1")
    assert "until both begin together again" in key


def test_prime_rl_may_take_turns_and_the_bars_have_the_colours_of_the_kit(figure):
    shown = figure("batch_calculator")
    press(button(shown, "prime-rl"), "Enter")
    bar = shown.locator("rect").first
    assert style(bar, "fill") == "rgb(217, 103, 30)"
    into(shown, "max_async_level", "0")
    assert "on-policy, and a clip has nothing to do" in said(shown)
    assert style(bar, "fill") == "rgb(59, 143, 207)"
    into(shown, "max_async_level", "-1")
    assert "max_async_level: expected a whole number from 0 to 1000000, got -1" in said(shown)
