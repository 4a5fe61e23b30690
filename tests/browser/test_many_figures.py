"""Twenty figures on one page: each looks as it does alone in its chapter."""

import pytest

from tests.browser.explorers import opened

CLIP = "document.querySelector('.clip-explorer')"
LOOK = f"""(() => {{
  const look = (selector, name) => [...{CLIP}.querySelectorAll(selector)].map((e) => getComputedStyle(e)[name]);
  return [look(".curve", "fill"), look(".curve", "strokeWidth"), look("label", "display")];
}})()"""
STYLES = (
    "[...document.querySelectorAll('style')].filter((e) => e.textContent.includes('.live-figure button'))"
    ".map((e) => e.parentElement.tagName)"
)


@pytest.mark.parametrize("dark", [False, True])
def test_a_figure_is_not_repainted_by_those_behind_it(browser, dark):
    """What all figures share was once written again with each, and won over the style of the figures before."""
    alone = opened(browser, "notebooks/ppo-clip.html", CLIP, dark=dark).evaluate(LOOK)
    page = opened(browser, "book/figures.html", CLIP, dark=dark)
    assert page.evaluate("document.querySelectorAll('.live-figure').length") > 15
    assert page.evaluate(LOOK) == alone
    assert set(alone[0]) == {"none"}


@pytest.mark.parametrize("name", ["book/figures.html", "notebooks/ppo-clip.html"])
def test_what_figures_share_stands_once(browser, name):
    page = opened(browser, name, "document.querySelector('.live-figure')")
    assert page.evaluate(STYLES) == ["HEAD"]
