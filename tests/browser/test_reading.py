"""What a reader does with the built pages: search, print, tick an exercise, read code and tables without scrolling."""

import re
from pathlib import Path

import pytest

from tests.browser.chromium import draw, go
from tests.browser.explorers import press, style

BUILT = Path(__file__).resolve().parents[2] / "_build" / "html"

pytestmark = pytest.mark.skipif(
    not (BUILT / "search.html").is_file(), reason="the book is not built: run `make book` first"
)


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("GRPO", "notebooks/grpo.html"),
        ("gspo", "notebooks/gspo.html"),
        ("PPO", "notebooks/ppo-clip.html"),
        ("KL", "notebooks/kl-divergence.html"),
        ("Kullback", "notebooks/kl-divergence.html"),
        ("KL estimators", "book/equations.html#kl-estimators-and-penalties"),
        ("reward hacking", "notebooks/ppo-rlhf.html"),
        ("policy gradient", "notebooks/policy-gradients.html"),
    ],
)
def test_search_finds_the_page_that_explains_a_word_first(opened, query, first):
    page = opened((BUILT / "search.html").as_uri() + "?q=" + query.replace(" ", "+"))
    assert page.locator("#search-results li a").first.get_attribute("href") == first


@pytest.mark.parametrize("name", ["notebooks/scaling-up.html", "book/api/command-line.html", "book/index.html"])
def test_the_search_field_is_in_sight(opened, name):
    page = opened(BUILT / name)
    for scrolled in (0, 10_000):
        page.locator(".bd-sidebar-primary").evaluate("(bar, far) => { bar.scrollTop = far; }", scrolled)
        draw(page)
        box = page.locator(".bd-sidebar-primary .search-button-field").bounding_box()
        assert 0 <= box["y"] < box["y"] + box["height"] <= 300
        assert page.evaluate(  # nothing lies over it
            "({ x, y }) => document.elementFromPoint(x + 40, y + 10).closest('.search-button-field') !== null", box
        )


@pytest.mark.parametrize("width", [960, 1024, 1240, 1280, 1366, 1440, 1920])
def test_a_line_of_88_characters_fits_beside_the_contents(opened, width):
    page = opened(BUILT / "notebooks/from-zero.html", width=width)
    fits = """(pre, length) => {
      pre.textContent = "x".repeat(length);
      return pre.scrollWidth <= pre.clientWidth && pre.parentElement.scrollWidth <= pre.parentElement.clientWidth;
    }"""
    pre = page.locator("div.cell_input pre").first
    assert pre.evaluate(fits, 88)
    assert not pre.evaluate(fits, 188)


def cut(tables):
    """How many of them are wider than their box."""
    return tables.evaluate_all("(all) => all.filter((e) => e.scrollWidth > e.clientWidth + 1).length")


@pytest.mark.parametrize(
    "name", ["notebooks/grpo.html", "notebooks/gspo.html", "book/cheat-sheet.html", "book/index.html"]
)
def test_tables_are_whole_on_a_large_screen(opened, name):
    page = opened(BUILT / name, width=1920)
    assert page.locator(".bd-article table").count() > 0
    assert cut(page.locator(".pst-scrollable-table-container, .cell_output:has(table)")) == 0


@pytest.mark.parametrize(("name", "count"), [("index", 1), ("cheat-sheet", 2), ("comparison", 5), ("inspector", 1)])
def test_the_tables_of_a_page_are_whole_on_a_small_laptop(opened, name, count):
    page = opened(BUILT / f"book/{name}.html", width=1280)
    boxes = page.locator(":is(.algorithm-table, .cheat-sheet, .sortable, .numbers) .pst-scrollable-table-container")
    assert boxes.count() >= count
    assert cut(boxes) == 0


def test_a_table_that_is_cut_has_a_shadow_at_the_edge_and_keeps_its_names(opened):
    """Where rows are no cards yet: the box has four layers of background, and the first column stays in its place."""
    box = opened(BUILT / "book/comparison.html", width=610).locator(".sortable .pst-scrollable-table-container").first
    assert cut(box) == 1
    assert style(box, "backgroundImage").count("linear-gradient") == 4
    name = box.locator("tbody td").first
    before = name.bounding_box()["x"]
    box.evaluate("(e) => { e.scrollLeft = 200; }")
    assert name.bounding_box()["x"] == pytest.approx(before, abs=1)


@pytest.mark.parametrize("name", ["notebooks/grpo.html", "notebooks/dr-grpo.html"])
def test_the_first_table_of_a_chapter_is_whole_beside_the_contents(opened, name):
    first = ".bd-article .cell_output:has(table), .bd-article .pst-scrollable-table-container"
    assert cut(opened(BUILT / name, width=1400).locator(first).first) == 0


@pytest.mark.parametrize(
    ("name", "least"), [("book/cheat-sheet.html", 11), ("book/algorithms.html", 12), ("notebooks/anatomy.html", 12)]
)
def test_no_code_in_a_table_is_too_small_to_read(opened, name, least):
    code = opened(BUILT / name, width=1400).locator(".bd-article table code")
    assert min(code.evaluate_all("(all) => all.map((e) => parseFloat(getComputedStyle(e).fontSize))")) >= least


# ── on paper ─────────────────────────────────────────────────────────────────────────────────────────────────────


def pages_of(pdf):
    """(width, height) in points of each sheet."""
    sheets = re.findall(rb"/MediaBox\s*\[\s*0\s+0\s+([\d.]+)\s+([\d.]+)\s*\]", pdf)
    return [(round(float(width)), round(float(height))) for width, height in sheets]


def test_the_cheat_sheet_is_two_sheets_of_a4_landscape(opened):
    pdf = opened(BUILT / "book" / "cheat-sheet.html").pdf(prefer_css_page_size=True, print_background=True)
    assert [(abs(w - 842) <= 1, abs(h - 595) <= 1) for w, h in pages_of(pdf)] == [(True, True)] * 2


def test_a_chapter_prints_whole(opened):
    """As wide as a sheet: no code and no table is cut at the edge, and no heading of a folded answer stands alone."""
    page = opened(BUILT / "notebooks" / "grpo.html", width=720, height=1000)
    page.emulate_media(media="print")
    draw(page)
    over = """(all) => all.filter((e) => e.checkVisibility() &&
      (e.scrollWidth > e.clientWidth + 1 || e.getBoundingClientRect().right > innerWidth + 1))
      .map((e) => e.innerText)"""
    assert page.locator(".bd-article :is(pre, table)").evaluate_all(over) == []
    folded = page.locator(".bd-article details:not([open]) > summary")
    seen = "(all) => all.filter((e) => e.checkVisibility()).length"
    assert folded.count() > 5
    assert folded.evaluate_all(seen) == 0
    page.emulate_media(media="screen")
    assert folded.evaluate_all(seen) > 5


# ── numbers, labels, ticks ───────────────────────────────────────────────────────────────────────────────────────


def test_equations_of_a_chapter_have_numbers_and_no_label_is_text():
    text = (BUILT / "notebooks" / "gae.html").read_text(encoding="utf-8")
    assert 'id="equation-eq-gae-backwards"' in text
    assert "(eq-" not in re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    assert re.search(r'class="eqno">\(\d', text)


def test_an_exercise_is_ticked_on_its_page_and_counted_in_the_list(opened):
    page = opened(BUILT / "notebooks" / "grpo.html")
    boxes = page.locator(".exercise-done input")
    count = boxes.count()
    ticked = "(all) => all.map((box) => box.checked)"
    assert count >= 3
    assert boxes.evaluate_all(ticked) == [False] * count
    assert re.fullmatch(r"Exercise \d+\.1: .+ is done", boxes.first.get_attribute("aria-label"))
    press(boxes.first, "Space")
    go(page, BUILT / "notebooks" / "grpo.html")
    assert boxes.evaluate_all(ticked) == [True] + [False] * (count - 1)
    go(page, BUILT / "book" / "exercises.html")
    done = page.locator("table.exercises input:checked")
    assert done.count() == 1
    told = page.locator(".bd-article p").filter(has_text=" done)").all_text_contents()
    assert [text for text in told if "(1 of " in text] != []
    done.evaluate("(box) => box.click()")
    assert page.evaluate("localStorage.getItem('rlhf-exercises-done')") == "[]"
