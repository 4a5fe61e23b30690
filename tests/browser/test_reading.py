"""What a reader does with the built pages: search, print, tick an exercise, read code and tables without scrolling."""

import re
from pathlib import Path

import pytest

BUILT = Path(__file__).resolve().parents[2] / "_build" / "html"

pytestmark = pytest.mark.skipif(
    not (BUILT / "search.html").is_file(), reason="the book is not built: run `make book` first"
)


def found_by(browser, query):
    """Addresses of the results, best first."""
    page = browser.open((BUILT / "search.html").as_uri() + "?q=" + query.replace(" ", "+"))
    links = "[...document.querySelectorAll('#search-results li a')].map((a) => a.getAttribute('href'))"
    for _ in range(50):
        before = page.evaluate(links)
        page.settle(0.2)
        if before and page.evaluate(links) == before:
            break
    assert page.errors == []
    assert page.outside_requests == []
    return page.evaluate(links)


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
def test_search_finds_the_page_that_explains_a_word_first(browser, query, first):
    assert found_by(browser, query)[0] == first


@pytest.mark.parametrize("name", ["notebooks/scaling-up.html", "book/api/command-line.html", "book/index.html"])
def test_the_search_field_is_in_sight(browser, name):
    page = browser.open(BUILT / name, width=1400, height=900)
    field = "document.querySelector('.bd-sidebar-primary .search-button-field').getBoundingClientRect()"
    for scrolled in (0, 10_000):
        page.evaluate(f"document.querySelector('.bd-sidebar-primary').scrollTop = {scrolled}")
        page.draw()
        assert 0 <= page.evaluate(f"{field}.top") < page.evaluate(f"{field}.bottom") <= 300
        assert page.evaluate(  # nothing lies over it
            f"document.elementFromPoint({field}.left + 40, {field}.top + 10).closest('.search-button-field') !== null"
        )


@pytest.mark.parametrize("width", [960, 1024, 1240, 1280, 1366, 1440, 1920])
def test_a_line_of_88_characters_fits_beside_the_contents(browser, width):
    page = browser.open(BUILT / "notebooks" / "from-zero.html", width=width)
    fits = """(() => {
      const pre = document.querySelector("div.cell_input pre");
      pre.textContent = "x".repeat(LENGTH);
      return pre.scrollWidth <= pre.clientWidth && pre.parentElement.scrollWidth <= pre.parentElement.clientWidth;
    })()"""
    assert page.evaluate(fits.replace("LENGTH", "88"))
    assert not page.evaluate(fits.replace("LENGTH", "188"))


CUT = "[...document.querySelectorAll('TABLES')].filter((e) => e.scrollWidth > e.clientWidth + 1).length"


@pytest.mark.parametrize(
    "name", ["notebooks/grpo.html", "notebooks/gspo.html", "book/cheat-sheet.html", "book/index.html"]
)
def test_tables_are_whole_on_a_large_screen(browser, name):
    page = browser.open(BUILT / name, width=1920, height=1080)
    assert page.evaluate("document.querySelectorAll('.bd-article table').length") > 0
    assert page.evaluate(CUT.replace("TABLES", ".pst-scrollable-table-container, .cell_output:has(table)")) == 0


@pytest.mark.parametrize(("name", "count"), [("index", 1), ("cheat-sheet", 2), ("comparison", 5), ("inspector", 1)])
def test_the_tables_of_a_page_are_whole_on_a_small_laptop(browser, name, count):
    page = browser.open(BUILT / "book" / f"{name}.html", width=1280)
    boxes = ":is(.algorithm-table, .cheat-sheet, .sortable, .numbers) .pst-scrollable-table-container"
    assert page.evaluate(f"document.querySelectorAll('{boxes}').length") >= count
    assert page.evaluate(CUT.replace("TABLES", boxes)) == 0


def test_a_table_that_is_cut_has_a_shadow_at_the_edge_and_keeps_its_names(browser):
    """Where rows are no cards yet: the box has four layers of background, and the first column stays in its place."""
    page = browser.open(BUILT / "book" / "comparison.html", width=610)
    box = "document.querySelector('.sortable .pst-scrollable-table-container')"
    assert page.evaluate(f"{box}.scrollWidth > {box}.clientWidth")
    assert page.evaluate(f"getComputedStyle({box}).backgroundImage").count("linear-gradient") == 4
    name = f"{box}.querySelector('tbody td').getBoundingClientRect().left"
    before = page.evaluate(name)
    page.evaluate(f"{box}.scrollLeft = 200")
    assert page.evaluate(name) == pytest.approx(before, abs=1)


@pytest.mark.parametrize("name", ["notebooks/grpo.html", "notebooks/dr-grpo.html"])
def test_the_first_table_of_a_chapter_is_whole_beside_the_contents(browser, name):
    page = browser.open(BUILT / name, width=1400)
    first = "document.querySelector('.bd-article .cell_output:has(table), .bd-article .pst-scrollable-table-container')"
    assert page.evaluate(f"{first}.scrollWidth <= {first}.clientWidth + 1")


@pytest.mark.parametrize(
    ("name", "least"), [("book/cheat-sheet.html", 11), ("book/algorithms.html", 12), ("notebooks/grpo.html", 12)]
)
def test_no_code_in_a_table_is_too_small_to_read(browser, name, least):
    page = browser.open(BUILT / name)
    sizes = (
        "[...document.querySelectorAll('.bd-article table code')].map((e) => parseFloat(getComputedStyle(e).fontSize))"
    )
    assert min(page.evaluate(sizes)) >= least


# ── on paper ─────────────────────────────────────────────────────────────────────────────────────────────────────


def pages_of(pdf):
    """(width, height) in points of each sheet."""
    sheets = re.findall(rb"/MediaBox\s*\[\s*0\s+0\s+([\d.]+)\s+([\d.]+)\s*\]", pdf.read_bytes())
    return [(round(float(width)), round(float(height))) for width, height in sheets]


def test_the_cheat_sheet_is_two_sheets_of_a4_landscape(browser, tmp_path):
    browser.open(BUILT / "book" / "cheat-sheet.html").print_to_pdf(tmp_path / "sheet.pdf")
    assert [(abs(w - 842) <= 1, abs(h - 595) <= 1) for w, h in pages_of(tmp_path / "sheet.pdf")] == [(True, True)] * 2


def test_a_chapter_prints_whole(browser):
    """As wide as a sheet: no code and no table is cut at the edge, and no heading of a folded answer stands alone."""
    page = browser.open(BUILT / "notebooks" / "grpo.html", width=720, height=1000)
    page.prefer(medium="print")
    page.draw()
    wide = "[...document.querySelectorAll('.bd-article :is(pre, table)')].filter((e) => e.checkVisibility())"
    cut = f"{wide}.filter((e) => e.scrollWidth > e.clientWidth + 1 || e.getBoundingClientRect().right > innerWidth + 1)"
    assert page.evaluate(f"{cut}.map((e) => e.textContent.trim().slice(0, 60))") == []
    folded = "[...document.querySelectorAll('.bd-article details:not([open]) > summary')]"
    assert page.evaluate(f"{folded}.length") > 5
    assert page.evaluate(f"{folded}.filter((e) => e.checkVisibility()).length") == 0
    page.prefer()
    assert page.evaluate(f"{folded}.filter((e) => e.checkVisibility()).length") > 5


# ── numbers, labels, ticks ───────────────────────────────────────────────────────────────────────────────────────


def test_equations_of_a_chapter_have_numbers_and_no_label_is_text():
    text = (BUILT / "notebooks" / "gae.html").read_text(encoding="utf-8")
    assert 'id="equation-eq-gae-expanded"' in text
    assert "(eq-" not in re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    assert re.search(r'class="eqno">\(\d', text)


def test_an_exercise_is_ticked_on_its_page_and_counted_in_the_list(browser):
    page = browser.open(BUILT / "notebooks" / "grpo.html")
    boxes = "[...document.querySelectorAll('.exercise-done input')]"
    count = page.evaluate(f"{boxes}.length")
    assert count >= 3
    assert page.evaluate(f"{boxes}.filter((box) => box.checked).length") == 0
    assert re.fullmatch(r"Exercise \d+\.1: .+ is done", page.evaluate(f"{boxes}[0].getAttribute('aria-label')"))
    page.evaluate(f"{boxes}[0].focus()")
    page.press("Space")
    page = browser.open(BUILT / "notebooks" / "grpo.html")
    assert page.evaluate(f"{boxes}.map((box) => box.checked)") == [True] + [False] * (count - 1)
    page = browser.open(BUILT / "book" / "exercises.html")
    assert page.evaluate("document.querySelectorAll('table.exercises input:checked').length") == 1
    told = (
        "[...document.querySelectorAll('.bd-article p')].map((p) => p.textContent).filter((t) => t.includes(' done)'))"
    )
    assert [text for text in page.evaluate(told) if "(1 of " in text] != []
    page.evaluate("document.querySelector('table.exercises input:checked').click()")
    assert page.evaluate("localStorage.getItem('rlhf-exercises-done')") == "[]"
    assert page.errors == []
    assert page.outside_requests == []
