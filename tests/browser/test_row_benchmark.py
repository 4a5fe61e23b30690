"""The figure of the benchmark and its page's tables: by keyboard, without a network, in the dark and on a phone."""

import json

import pytest

from rlhf_book import benchmark
from rlhf_book.figures import joined
from tests.browser.explorers import drawn, has_focus, press, said, stays_in_its_place, texts, unnamed
from tests.browser.tiny_book import build, with_the_comparison
from tests.test_comparison_page import page as page_of_tables
from tests.viz.test_row_benchmark import MODULE, RECORD, TABLE

FIRST = "[...document.querySelectorAll('.sortable tbody tr')].map((r) => r.cells[0].textContent.trim())"


@pytest.fixture(scope="module")
def figure_page(tmp_path_factory):
    """A page with the figure, on numbers that were made up."""
    folder = tmp_path_factory.mktemp("figure") / "book"
    params = json.dumps(TABLE | {"first": "reinforce", "second": "gspo"})
    text = f"# A page\n\n```{{mjs-figure}} row_benchmark.mjs\n:alt: Two rows, seed by seed.\n:params: {params}\n```\n"
    result = build(folder, {"index": text}, {MODULE.name: joined(MODULE)})
    assert result.returncode == 0, result.stderr
    return folder / "out" / "index.html"


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The page as it is, and one with a table of the made-up record."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(benchmark, "read_record", lambda name: RECORD)
        patch.setattr(page_of_tables, "read_record", lambda name: RECORD)
        group = page_of_tables.whole_groups()["addition-1"]
        tables = [page_of_tables.results(group), page_of_tables.separated(group)]
    return with_the_comparison(tmp_path_factory.mktemp("comparison") / "book", "\n\n".join(tables))


@pytest.fixture
def shown(opened, figure_page):
    return opened(figure_page).locator(".row-benchmark")


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 390, 1400])
def test_the_menus_move_it_by_keyboard(opened, figure_page, dark, width):
    shown = opened(figure_page, width=width, dark=dark).locator(".row-benchmark")
    assert "reinforce minus gspo" in said(shown)
    for name, key in (("first", "ArrowDown"), ("second", "ArrowUp")):
        before, menu = (drawn(shown.locator("polyline")), said(shown)), shown.locator(f".{name}")
        press(menu, key)
        assert drawn(shown.locator("polyline")) != before[0]
        assert said(shown) != before[1]
        assert has_focus(menu), "focus was lost"
    assert stays_in_its_place(shown, width)


def test_labels_of_the_axis_stand_at_their_numbers(shown):
    """Their distances on the page are those of what they say."""
    ticks = shown.locator("text.tick")
    found = [
        (float(text), float(tick.get_attribute("y"))) for text, tick in zip(texts(ticks), ticks.all(), strict=True)
    ]
    slopes = [(y - found[2][1]) / value for value, y in found if value]
    assert len(slopes) == 4
    assert slopes == pytest.approx([slopes[0]] * 4)
    assert "difference in accuracy" in shown.locator("svg").text_content()


def test_another_task_has_its_own_rows(shown):
    press(shown.locator(".group"), "End")
    assert "in score" in said(shown)
    names = shown.locator(".second option").evaluate_all("(all) => all.map((o) => o.value)")
    assert names == ["ppo", "reinforce_pp", "rloo", "grpo", "dr_grpo", "coin"]


def test_a_row_and_one_that_shares_its_runs(shown):
    for name, row in (("first", "gspo"), ("second", "sapo")):
        shown.locator(f".{name}").select_option(row)
    assert said(shown) == "gspo and sapo are the same runs here: their gradients take the same steps."


def test_everything_has_a_name(shown):
    assert unnamed(shown) == 0


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1400])
def test_a_table_is_sorted_by_keyboard(opened, pages, dark, width):
    page = opened(pages / "table.html", width=width, dark=dark)
    heads = page.locator(".sortable").first.locator("th")
    before = page.evaluate(FIRST)
    assert before[:2] == ["reinforce", "rloo"]
    assert before[-2:] == ["coin", "start"]
    lines = "[...document.querySelectorAll('.sortable tbody tr')].slice(0, -2)"
    numbers = f"{lines}.map((r) => parseFloat(r.cells[2].textContent))"
    press(heads.nth(2).locator("button"), "Enter")
    falling = page.evaluate(numbers)  # the best first
    assert falling == sorted(falling, reverse=True)
    assert heads.nth(2).get_attribute("aria-sort") == "descending"
    assert page.evaluate(FIRST)[0] == "reinforce"  # the one that is ahead in these numbers
    page.keyboard.press("Enter")
    assert page.evaluate(numbers) == falling[::-1]
    assert heads.nth(2).get_attribute("aria-sort") == "ascending"
    assert page.evaluate(FIRST)[-2:] == ["coin", "start"]  # at the foot in any order
    press(heads.nth(0).locator("button"), "Enter")
    assert page.evaluate(FIRST) == sorted(before[:-2]) + ["coin", "start"]
    assert heads.nth(2).get_attribute("aria-sort") is None
    assert page.evaluate("document.documentElement.scrollWidth") <= width  # a wide table scrolls in its own box


def test_the_page_as_it_is_can_be_read(opened, pages):
    page = opened(pages / "comparison.html", width=390)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert "What separated means" in page.locator("article").text_content()
    assert len(said(page.locator(".row-benchmark"))) > 10
