"""What is asked of every interactive figure in the browser."""

from pathlib import Path
from typing import Any

import pytest

from rlhf_book.figures import joined
from tests.browser.chrome import Browser, Page

BUILT = Path(__file__).resolve().parents[2] / "_build" / "html"


def opened(browser: Browser, name: str, figure: str, **look: Any) -> Page:
    """A page of the built book once its figure stands there: the widget manager of a chapter takes its time."""
    if not (BUILT / name).is_file():
        pytest.skip(f"{name} is not built: run `make book` first")
    page = browser.keep(BUILT / name, **look)
    for _ in range(50):
        if page.evaluate(f"Boolean({figure})"):
            break
        page.settle(0.1)
    assert page.evaluate(f"Boolean({figure})"), f"{figure} finds nothing on {name}"
    return page


def stays_in_its_place(page: Page, figure: str, width: int) -> bool:
    """No error, no request to a network, nothing wider than the page, and no number or control cut by the figure."""
    right = "e.getBoundingClientRect().right"
    widest = f"Math.max(...[...{figure}.querySelectorAll(':not(g, polyline)')].map((e) => {right}))"
    assert page.errors == []
    assert page.outside_requests == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    return bool(page.evaluate(widest) <= page.evaluate(f"{figure}.getBoundingClientRect().right") + 1)


def unnamed(page: Page, figure: str) -> int:
    """How many controls and pictures have no words for those who do not see them."""
    return int(
        page.evaluate(
            f"[...{figure}.querySelectorAll('input, select, button, svg:not([aria-hidden])')].filter((e) => "
            "!(e.ariaLabel || e.textContent.trim() || e.labels?.[0]?.textContent.trim())).length"
        )
    )


def press(page: Page, figure: str, name: str) -> None:
    """The button of that name, by keyboard."""
    page.evaluate(f"[...{figure}.querySelectorAll('button')].find((b) => b.textContent === '{name}').focus()")
    page.press("Enter")


def in_browser(browser: Browser, folder: Path, module: Path, expression: str) -> Any:
    """The value of an expression of a module's `figure`: the comparison of tests/viz, for machines without Node."""
    source = joined(module).replace("export default", "window.figure =")
    page = folder / "page.html"
    page.write_text(f'<meta charset="utf-8"><script type="module">{source}</script>', encoding="utf-8")
    return browser.open(page).evaluate(expression)
