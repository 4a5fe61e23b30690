"""The token inspector on its page: by keyboard, without a network, in the dark, on a phone, within a megabyte."""

import re

import pytest

from tests.browser import axe
from tests.browser.explorers import press, stays_in_its_place, unnamed
from tests.browser.tiny_book import with_the_inspector
from tests.viz.test_token_inspector import TABLE

FIGURE = "document.querySelector('.token-inspector')"
FOCUS = "document.activeElement"
DETAIL = f"{FIGURE}.querySelector('.detail').textContent"
SAID = f"{FIGURE}.querySelector('.said').textContent"
LINES = f"{FIGURE}.querySelectorAll('.line')"


@pytest.fixture(scope="module")
def inspector(tmp_path_factory):
    """The page as it is."""
    return with_the_inspector(tmp_path_factory.mktemp("inspector") / "book")


def choose(page, name, value):
    page.locator(f".token-inspector select.{name}").select_option(str(value))


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 390, 1280])
def test_arrow_keys_go_from_token_to_token(opened, inspector, dark, width):
    page = opened(inspector, width=width, dark=dark)
    assert page.evaluate(f"{FIGURE}.querySelectorAll('.token[tabindex=\"0\"]').length") == 1  # one stop of the tab key
    page.evaluate(f"{FIGURE}.querySelector('.token[tabindex=\"0\"]').focus()")
    assert "Token 1 of 5" in page.evaluate(DETAIL)
    press(page.locator(":focus"), "ArrowRight", 3)
    assert "Token 4 of 5" in page.evaluate(DETAIL)
    label = page.evaluate(f"{FOCUS}.ariaLabel")
    assert label.startswith("token 4, c, grpo")
    assert label.endswith("the gate gives it no gradient; the KL penalty alone acts")
    page.keyboard.press("ArrowDown")  # the same completion under the other row
    assert page.evaluate(f"{FOCUS}.ariaLabel").startswith("token 4, c, dr_grpo")
    page.keyboard.press("ArrowDown")
    assert "Token 4 of 15" in page.evaluate(DETAIL)
    page.keyboard.press("End")
    assert "Token 15 of 15" in page.evaluate(DETAIL)
    assert "(the end)" in page.evaluate(DETAIL)
    page.keyboard.press("Home")
    page.keyboard.press("ArrowLeft")  # there is nothing before it
    assert "Token 1 of 15" in page.evaluate(DETAIL)
    press(page.locator(":focus"), "ArrowUp", 9)
    assert page.evaluate(f"{LINES}[0].contains({FOCUS})")
    assert stays_in_its_place(page.locator(".token-inspector"), width)


def test_enter_and_a_click_show_a_token(opened, inspector):
    page = opened(inspector)
    page.evaluate(f"{LINES}[3].querySelectorAll('.token')[6].focus()")
    page.keyboard.press("Enter")
    assert "Token 7 of 15" in page.evaluate(DETAIL)
    page.evaluate(f"{LINES}[0].querySelectorAll('.token')[2].click()")
    assert "Token 3 of 5" in page.evaluate(DETAIL)
    assert page.evaluate(f"{FIGURE}.querySelectorAll('.token[aria-pressed=true]').length") == 2  # in both rows


def test_what_is_coloured_is_what_was_recorded(opened, inspector):
    """Every token of a group: blue above zero, orange below, dotted where an advantage has no gradient."""
    page = opened(inspector)
    for run, step, first in (("clock", 40, "grpo"), ("clock", 20, "gspo"), ("smollm2", 6, "icepop")):
        choose(page, "run", run)
        choose(page, "step", step)
        choose(page, "prompt", 1)
        choose(page, "second", "")
        choose(page, "first", first)
        look = next(one for r in TABLE["runs"] if r["name"] == run for one in r["steps"] if one["step"] == step)
        group = look["groups"][1]
        classes = page.evaluate(
            f"[...{LINES}].map((line) => [...line.querySelectorAll('.token')].map((e) => e.className))"
        )
        assert [len(line) for line in classes] == [len(own) for own in group["tokens"]]
        values = dict(zip(TABLE["kinds"], (group["values"][k] for k in group["rows"][first]), strict=True))

        def at(kind, i, t, values=values):
            own = values[kind][i] if isinstance(values[kind], list) else values[kind]
            return own[t] if isinstance(own, list) else own

        for i, line in enumerate(classes):
            for t, name in enumerate(line):
                weight = at("weight", i, t) / look["scale"][first]
                if abs(weight) > 0.01:
                    assert ("up" if weight > 0 else "down") in name.split()
                silent = at("advantage", i, t) != 0 and at("gate", i, t) * at("correct", i, t) * at("trust", i, t) == 0
                assert ("cut" in name.split()) == silent
        assert f"batch's {look['credited'][first]} tokens" in page.evaluate(SAID)


def test_a_button_shows_an_example(opened, inspector):
    page = opened(inspector)
    buttons = f"[...{FIGURE}.querySelectorAll('.examples button')]"
    titles = page.evaluate(f"{buttons}.map((e) => e.textContent)")
    assert titles == [one["title"] for one in TABLE["examples"]]
    for number, one in enumerate(TABLE["examples"]):
        page.evaluate(f"{buttons}[{number}].click()")
        chosen = one["set"]
        for name in ("run", "step", "prompt", "first", "second"):
            assert page.evaluate(f"{FIGURE}.querySelector('select.{name}').value") == str(chosen[name])
        assert f"Token {chosen['token'] + 1} of " in page.evaluate(DETAIL)
    page.evaluate(f"{buttons}[1].focus()")
    page.keyboard.press("Enter")
    assert "grpo: the gate gives it no gradient" in page.evaluate(DETAIL)


def test_shares_are_fractions_and_shaped_rewards_are_said(opened, inspector):
    page = opened(inspector)
    assert "1/(64 \u00d7 5)" in page.evaluate(DETAIL)
    assert "1/(64 \u00d7 44)" in page.evaluate(DETAIL)
    assert "reward after shaping" not in page.evaluate(DETAIL)
    choose(page, "first", "dapo")
    assert "1/412" in page.evaluate(DETAIL)
    assert "reward after shaping" in page.evaluate(DETAIL)


def test_a_row_of_tokens_wraps_under_itself(opened, inspector):
    """Not under the row's name: both rows have their tokens in the same columns."""
    page = opened(inspector, width=1280)
    choose(page, "step", 20)
    side = f"[...{FIGURE}.querySelectorAll('.line .NAME')].map((e) => e.getBoundingClientRect().SIDE)"
    tokens = page.evaluate(side.replace("NAME", "token").replace("SIDE", "left"))
    names = page.evaluate(side.replace("NAME", "name").replace("SIDE", "right"))
    assert min(tokens) >= max(names)
    assert tokens.count(min(tokens)) > len(names)  # some lines are wrapped


def test_a_row_alone_and_a_row_beside_it(opened, inspector):
    page = opened(inspector)
    n = len(TABLE["runs"][0]["steps"][0]["groups"][0]["tokens"])
    assert page.evaluate(f"{LINES}.length") == 2 * n
    choose(page, "second", "")
    assert page.evaluate(f"{LINES}.length") == n
    assert "dr_grpo" not in page.evaluate(DETAIL)
    choose(page, "second", "icepop")
    assert "correction" in page.evaluate(DETAIL)
    choose(page, "first", "icepop")  # a row is not put beside itself
    assert page.evaluate(f"{LINES}.length") == n
    names = page.evaluate(f"[...{FIGURE}.querySelector('select.second').options].map((o) => o.value)")
    assert "icepop" not in names
    assert len(names) == len(TABLE["rows"])  # "none", and all but that row


def test_the_menus_move_by_keyboard_and_keep_their_focus(opened, inspector):
    page = opened(inspector)
    for name in ("step", "prompt", "first", "second", "run"):
        before = page.evaluate(f"{FIGURE}.querySelector('.completions').textContent")
        press(page.locator(f".token-inspector select.{name}"), "ArrowDown")
        assert page.evaluate(f"{FIGURE}.querySelector('.completions').textContent") != before, name
        assert page.evaluate(f"{FIGURE}.querySelector('select.{name}') === {FOCUS}"), "focus was lost"


@pytest.mark.parametrize("width", [390, 1280])
def test_everything_has_a_name_and_a_size_that_a_finger_hits(opened, inspector, width):
    page = opened(inspector, width=width)
    assert unnamed(page.locator(".token-inspector")) == 0
    small = f"[...{FIGURE}.querySelectorAll('.token')].filter((e) => e.offsetWidth < 24 || e.offsetHeight < 24).length"
    assert page.evaluate(small) == 0


def test_colour_is_not_the_only_sign(opened, inspector):
    page = opened(inspector)
    style = f"getComputedStyle({FIGURE}.querySelector('.line .NAME')).borderBottomStyle"
    found = [page.evaluate(style.replace("NAME", name)) for name in ("up:not(.cut)", "down:not(.cut)", "cut")]
    assert found == ["solid", "dashed", "dotted"]


@pytest.mark.parametrize("dark", [False, True])
def test_letters_can_be_read_on_every_colour(opened, inspector, dark):
    """A contrast of 4.5 between a token's letters and its ground, on a page of either colour."""
    page = opened(inspector, dark=dark)
    read = (
        f"(() => {{ const e = {FIGURE}; let page = e; while (getComputedStyle(page).backgroundColor === "
        "'rgba(0, 0, 0, 0)') page = page.parentElement; return [getComputedStyle(page).backgroundColor, "
        "[...e.querySelectorAll('.line .token')].map((t) => [getComputedStyle(t).color, "
        "getComputedStyle(t).backgroundColor])]; })()"
    )
    ground, tokens = page.evaluate(read)
    worst = min(contrast(letters, over(colour, ground)) for letters, colour in tokens)
    assert worst > 4.5


def numbers(colour):
    found = [float(x) for x in re.findall(r"[\d.]+", colour)]
    return found[:3], found[3] if len(found) > 3 else 1.0


def over(colour, ground):
    (top, alpha), (below, _) = numbers(colour), numbers(ground)
    return "rgb({}, {}, {})".format(*(alpha * a + (1 - alpha) * b for a, b in zip(top, below, strict=True)))


def contrast(one, other):
    def light(colour):
        parts = [x / 255 for x in numbers(colour)[0]]
        linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


def test_it_breaks_no_rule_of_accessibility(opened, inspector):
    for look, found in axe.looks(opened(inspector)):
        assert [said for said in found.values() if "token-inspector" in said] == [], look


def test_the_page_with_its_data_is_within_a_megabyte(inspector):
    assert inspector.stat().st_size < 1_000_000
