"""One page of each kind breaks no rule of WCAG 2.2 AA that axe-core knows; `make axe` asks them all."""

import pytest

from tests.browser import axe


def test_what_is_broken_is_found(opened, tmp_path):
    """The check bites: a picture without words, letters that are hardly there, a button without a name."""
    page = tmp_path / "page.html"
    page.write_text(
        '<!doctype html><html lang="en"><title>Page</title><main><h1>Page</h1>'
        '<img src="data:image/svg+xml,%3Csvg xmlns=%22http://www.w3.org/2000/svg%22/%3E">'
        '<p style="color:#ccc;background:#fff">pale</p><button></button></main></html>'
    )
    assert axe.violations(opened(page)).keys() == {"image-alt", "color-contrast", "button-name"}


@pytest.mark.parametrize("name", axe.KINDS)
def test_a_page_of_each_kind_breaks_no_rule(visits, name):
    if not (axe.BUILT / name).is_file():
        pytest.skip(f"{name} is not built: run `make book` first")
    assert visits.of(name).broken == {"light": {}, "dark": {}}
