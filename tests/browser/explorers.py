"""What is asked of every interactive figure in the browser."""

import json
import re
from pathlib import Path
from typing import Any

from playwright.sync_api import Locator, Page

from rlhf_book.figures import joined


def press(control: Locator, key: str, times: int = 1) -> None:
    """Give a control the focus, once, and press a key."""
    control.focus()
    for _ in range(times):
        control.page.keyboard.press(key)


def button(figure: Locator, name: str) -> Locator:
    """The first button with exactly these letters."""
    return figure.locator("button").filter(has_text=re.compile(rf"^\s*{re.escape(name)}\s*$")).first


def said(figure: Locator) -> str:
    """The sentences below a figure."""
    return figure.locator(".said").text_content() or ""


def texts(found: Locator) -> list[str]:
    """What elements say, with the minus of a keyboard."""
    return [text.replace("\u2212", "-") for text in found.all_text_contents()]


def drawn(found: Locator) -> list[Any]:
    """What elements say, or where their lines and bars go."""
    names = ["points", "d", "width"]
    return found.evaluate_all(
        "(all, names) => all.map((e) => [e.textContent, names.map((n) => e.getAttribute(n))])", names
    )


def has_focus(control: Locator) -> bool:
    """Whether it has the focus."""
    return bool(control.evaluate("(e) => e === document.activeElement"))


def stays_in_its_place(figure: Locator, width: int) -> bool:
    """Nothing is wider than the page, and no number or control is cut by the figure."""
    assert figure.page.evaluate("document.documentElement.scrollWidth") <= width
    return bool(
        figure.evaluate(
            "(figure) => { const right = (e) => e.getBoundingClientRect().right;"
            "return Math.max(...[...figure.querySelectorAll(':not(g, polyline)')].map(right)) <= right(figure) + 1; }"
        )
    )


def unnamed(figure: Locator) -> int:
    """How many controls and pictures have no words for those who do not see them."""
    return int(
        figure.locator("input, select, button, svg:not([aria-hidden])").evaluate_all(
            "(all) => all.filter((e) => !(e.ariaLabel || e.textContent.trim() || e.labels?.[0]?.textContent.trim()))"
            ".length"
        )
    )


def style(found: Locator, name: str) -> str:
    """A computed style of an element."""
    return str(found.evaluate("(e, name) => getComputedStyle(e)[name]", name))


def ground(figure: Locator) -> str:
    """The colour behind a figure."""
    return str(
        figure.evaluate(
            "(e) => { const behind = (e) => getComputedStyle(e).backgroundColor;"
            "while (behind(e) === 'rgba(0, 0, 0, 0)') e = e.parentElement; return behind(e); }"
        )
    )


def luminance(colour: str) -> float:
    """As WCAG computes it."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """As WCAG computes it, from 1 to 21."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def in_browser(page: Page, module: Path, expression: str, given: Any = None) -> Any:
    """The value of an expression of a module's `maths` and what is `given`, as JSON, on an empty page."""
    source = joined(module).replace("export default", "window.figure =")
    page.add_script_tag(content=source, type="module")
    page.wait_for_function("window.figure")
    return json.loads(page.evaluate(f"(given) => JSON.stringify(((maths) => {expression})(figure.maths))", given))
