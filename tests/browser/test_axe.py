"""One page of each kind breaks no rule of WCAG 2.2 AA that axe-core knows; `make axe` asks them all."""

import pytest

from tests.browser import axe

KINDS = [
    "book/index",
    "book/playground",
    "book/errata",
    "book/cheat-sheet",
    "book/interview",
    "book/trainer",
    "book/bug-museum",
    "notebooks/gae",
    "search",
]


def test_what_is_broken_is_found(browser, tmp_path):
    """The check bites: a picture without words, letters that are hardly there, a button without a name."""
    if not axe.SCRIPT.is_file():
        pytest.skip("no axe-core here: `make axe` brings it")
    page = tmp_path / "page.html"
    page.write_text(
        '<!doctype html><html lang="en"><title>Page</title><main><h1>Page</h1>'
        '<img src="data:image/svg+xml,%3Csvg xmlns=%22http://www.w3.org/2000/svg%22/%3E">'
        '<p style="color:#ccc;background:#fff">pale</p><button></button></main></html>'
    )
    assert {found.rule for found in axe.violations(browser.open(page))} == {
        "image-alt",
        "color-contrast",
        "button-name",
    }


@pytest.mark.parametrize("name", KINDS)
def test_a_page_of_each_kind_breaks_no_rule(browser, name):
    page = axe.BUILT / f"{name}.html"
    if not axe.SCRIPT.is_file():
        pytest.skip("no axe-core here: `make axe` brings it")
    if not page.is_file():
        pytest.skip(f"{name} is not built: run `make book` first")
    for look, found in axe.looks(browser, page):
        assert found == [], f"{look}: " + "\n".join(map(str, found))
