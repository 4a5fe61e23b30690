"""The map of pairs on the page that compares rows: a cell says its sentence, by mouse and by keyboard."""

import pytest

from tests.browser.conftest import BUILT

BOX = "document.querySelector('.pair-matrix')"
SAID = f"{BOX}.querySelector('.said').textContent"


@pytest.fixture
def page(browser):
    if not (BUILT / "book" / "comparison.html").is_file():
        pytest.skip("the book is not built: make book")
    return browser.open(BUILT / "book" / "comparison.html")


def test_a_cell_says_its_sentence(page):
    before = page.evaluate(SAID)
    page.evaluate(f"{BOX}.querySelectorAll('tbody tr')[0].querySelectorAll('td')[1].click()")
    first = page.evaluate(SAID)
    assert first != before
    assert " 0." in first
    page.press("ArrowDown")
    page.press("ArrowDown")
    assert page.evaluate(SAID) not in (before, first)
    assert page.evaluate(f"{BOX}.querySelectorAll('tbody [tabindex=\"0\"]').length") == 1
    assert page.evaluate(f"{BOX}.contains(document.activeElement)")
    assert page.errors == []
