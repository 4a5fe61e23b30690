"""The figure of the benchmark and its page's tables: by keyboard, without a network, in the dark and on a phone."""

import json

import pytest

from rlhf_book import benchmark
from rlhf_book.figures import joined
from tests.browser.explorers import in_browser, stays_in_its_place, unnamed
from tests.browser.tiny_book import build, with_the_comparison
from tests.test_comparison_page import page as page_of_tables
from tests.viz.test_row_benchmark import MODULE, RECORD, TABLE, compare, expression

FIGURE = "document.querySelector('.row-benchmark')"
SAID = f"{FIGURE}.querySelector('.said').textContent"
LINES = f"[...{FIGURE}.querySelectorAll('polyline')].map((e) => e.getAttribute('points')).join('|')"
FIRST = "[...document.querySelectorAll('.sortable tbody tr')].map((r) => r.cells[0].textContent.trim())"
HEADS = "document.querySelectorAll('.sortable th')"


@pytest.fixture(scope="module")
def figure(tmp_path_factory):
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
        tables = [page_of_tables.results("addition-1"), page_of_tables.separated("addition-1")]
    return with_the_comparison(tmp_path_factory.mktemp("comparison") / "book", "\n\n".join(tables))


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 390, 1400])
def test_the_menus_move_it_by_keyboard(browser, figure, dark, width):
    page = browser.open(figure, width=width, dark=dark)
    assert "reinforce minus gspo" in page.evaluate(SAID)
    for name, key in (("first", "ArrowDown"), ("second", "ArrowUp")):
        before, said = page.evaluate(LINES), page.evaluate(SAID)
        page.evaluate(f"{FIGURE}.querySelector('.{name}').focus()")
        page.press(key)
        assert page.evaluate(LINES) != before
        assert page.evaluate(SAID) != said
        assert page.evaluate(f"{FIGURE}.querySelector('.{name}') === document.activeElement"), "focus was lost"
    assert stays_in_its_place(page, FIGURE, width)


def test_labels_of_the_axis_stand_at_their_numbers(browser, figure):
    """Their distances on the page are those of what they say."""
    page = browser.open(figure)
    read = f"[...{FIGURE}.querySelectorAll('text.tick')].map((e) => [e.textContent, Number(e.getAttribute('y'))])"
    found = [(float(text.replace("\u2212", "-")), y) for text, y in page.evaluate(read)]
    slopes = [(y - found[2][1]) / value for value, y in found if value]
    assert len(slopes) == 4
    assert slopes == pytest.approx([slopes[0]] * 4)
    assert "difference in accuracy" in page.evaluate(f"{FIGURE}.querySelector('svg').textContent")


def test_another_task_has_its_own_rows(browser, figure):
    page = browser.open(figure)
    page.evaluate(f"{FIGURE}.querySelector('.group').focus()")
    page.press("End")
    assert "in score" in page.evaluate(SAID)
    names = f"[...{FIGURE}.querySelector('.second').options].map((o) => o.value)"
    assert page.evaluate(names) == ["ppo", "reinforce_pp", "rloo", "grpo", "dr_grpo", "coin"]
    assert page.errors == []


def test_a_row_and_one_that_shares_its_runs(browser, figure):
    page = browser.open(figure)
    for name, row in (("first", "gspo"), ("second", "sapo")):
        page.evaluate(
            f"(() => {{ const menu = {FIGURE}.querySelector('.{name}'); menu.value = '{row}'; "
            "menu.dispatchEvent(new Event('change')); })()"
        )
    assert page.evaluate(SAID) == "gspo and sapo are the same runs here: their gradients take the same steps."


def test_everything_has_a_name(browser, figure):
    assert unnamed(browser.open(figure), FIGURE) == 0


def test_its_numbers_are_those_of_the_statistics_in_the_browser_too(browser, tmp_path):
    """The comparison of tests/viz, for machines without Node."""
    compare(in_browser(browser, tmp_path, MODULE, f"((maths) => {expression()})(figure.maths)"))


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1400])
def test_a_table_is_sorted_by_keyboard(browser, pages, dark, width):
    page = browser.open(pages / "table.html", width=width, dark=dark)
    before = page.evaluate(FIRST)
    assert before[:2] == ["reinforce", "rloo"]
    assert before[-2:] == ["coin", "start"]
    lines = "[...document.querySelectorAll('.sortable tbody tr')].slice(0, -2)"
    numbers = f"{lines}.map((r) => parseFloat(r.cells[2].textContent))"
    page.evaluate(f"{HEADS}[2].querySelector('button').focus()")
    page.press("Enter")
    falling = page.evaluate(numbers)  # the best first
    assert falling == sorted(falling, reverse=True)
    assert page.evaluate(f"{HEADS}[2].ariaSort") == "descending"
    assert page.evaluate(FIRST)[0] == "reinforce"  # the one that is ahead in these numbers
    page.press("Enter")
    assert page.evaluate(numbers) == falling[::-1]
    assert page.evaluate(f"{HEADS}[2].ariaSort") == "ascending"
    assert page.evaluate(FIRST)[-2:] == ["coin", "start"]  # at the foot in any order
    page.evaluate(f"{HEADS}[0].querySelector('button').focus()")
    page.press("Enter")
    assert page.evaluate(FIRST) == sorted(before[:-2]) + ["coin", "start"]
    assert page.evaluate(f"{HEADS}[2].ariaSort") is None
    assert page.evaluate("document.documentElement.scrollWidth") <= width  # a wide table scrolls in its own box
    assert page.errors == []


def test_the_page_as_it_is_can_be_read(browser, pages):
    page = browser.open(pages / "comparison.html", width=390)
    assert page.errors == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    text = page.evaluate("document.querySelector('article').textContent")
    assert "What separated means" in text
    assert page.evaluate(f"{FIGURE}.querySelector('.said').textContent.length") > 10
