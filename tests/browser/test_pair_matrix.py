"""The map of pairs on the page that compares rows: a cell says its sentence, by mouse and by keyboard."""

import pytest

from tests.browser.conftest import BUILT
from tests.browser.explorers import said


def test_a_cell_says_its_sentence(opened):
    if not (BUILT / "book" / "comparison.html").is_file():
        pytest.skip("the book is not built: make book")
    box = opened(BUILT / "book" / "comparison.html").locator(".pair-matrix").first
    before = said(box)
    box.locator("tbody tr").nth(0).locator("td").nth(1).click()
    first = said(box)
    assert first != before
    assert " 0." in first
    box.page.keyboard.press("ArrowDown")
    box.page.keyboard.press("ArrowDown")
    assert said(box) not in (before, first)
    assert box.locator('tbody [tabindex="0"]').count() == 1
    assert box.locator(":focus").count() == 1
