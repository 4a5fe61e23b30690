"""Every built page, opened once for all that is asked of it.

Loading a chapter and typesetting its formulas takes seconds, and each question after that takes little. So a page is
opened once, looked at in every width and in both colour schemes, and what was seen is kept for the tests to judge. The
pages are opened by a thread with a Chromium of its own, beside the other tests; when these have nothing left to do but
to wait for it, by two.
"""

import time
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from playwright.sync_api import Page

from tests.browser import axe
from tests.browser.chromium import go, new_page, prefer, resize, started

TOGETHER = 2
SIZES = ((1400, 900), (390, 844), (1600, 900), (1920, 1080))  # two desks, a phone between them, and a large screen
READ_AT = (1400, 390)  # where both colour schemes are looked at, and the colours of all text: wider ones have no others

# Sphinx puts the file's own address where an author said nothing.
SILENT = "[...document.querySelectorAll('.bd-article img')].filter(i => !i.alt.trim() || i.alt.includes('_images/'))"

# Every piece of text that is paler than WCAG's level AA asks for: 4.5 to 1 against its ground, 3 to 1 if it is large.
# A control that cannot be used is left out, as there.
PALE = r"""(() => {
  // "rgb(26, 95, 156)", and of a mixture "color(srgb 0.1 0.37 0.61 / 0.8)".
  const rgba = (colour) => {
    const [r, g, b, alpha = 1] = colour.match(/[\d.]+(e-\d+)?/g).map(Number);
    const most = colour.startsWith("color(srgb ") ? 255 : 1;
    return [r * most, g * most, b * most, alpha];
  };
  const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
  const linear = (c) => (c / 255 <= 0.03928 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
  const luminance = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  // What lies behind an element, and how faded it is, follows from its parent: each is asked once.
  const known = new Map();
  const look = (element) => {
    if (!element) return { ground: [255, 255, 255, 1], opacity: 1 };
    if (!known.has(element)) {
      const style = getComputedStyle(element), behind = look(element.parentElement);
      const told = behind.ground && style.backgroundImage === "none";
      known.set(element, {
        ground: told ? over(rgba(style.backgroundColor), behind.ground) : null,  // a picture's colours are not known
        opacity: style.opacity * behind.opacity,
      });
    }
    return known.get(element);
  };
  const left_out = "script, style, option, :disabled, [aria-hidden=true], mjx-assistive-mml, .headerlink";
  const found = new Set(), texts = document.createTreeWalker(document.querySelector(".bd-main"), NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const e = texts.currentNode.parentElement, text = texts.currentNode.textContent.trim();
    if (!text || e.closest(left_out) || !e.checkVisibility({ opacityProperty: true, visibilityProperty: true })) {
      continue;
    }
    const style = getComputedStyle(e), { ground: below, opacity } = look(e);
    if (!below) continue;
    const ink = rgba(style.color);
    ink[3] *= opacity;
    const [dark, bright] = [luminance(over(ink, below)), luminance(below)].sort((a, b) => a - b);
    const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    const ratio = (bright + 0.05) / (dark + 0.05);
    if (ratio < (large ? 3 : 4.5)) found.add(`${e.tagName}.${e.className} ${ratio.toFixed(2)}: ${text.slice(0, 40)}`);
  }
  return [...found].slice(0, 10);
})()"""

# What a page that scrolls sideways has beyond the right edge of the window, other than in a box that scrolls.
OVER = r"""(() => {
  const over = [...document.querySelectorAll(".bd-main *")].filter((element) => {
    if (element.getBoundingClientRect().right <= document.documentElement.clientWidth + 1) return false;
    if (!element.checkVisibility({ opacityProperty: true, visibilityProperty: true })) return false;
    for (let e = element.parentElement; e; e = e.parentElement) {
      if (e !== document.body && getComputedStyle(e).overflowX !== "visible") return false;
    }
    return true;
  });
  return over.slice(0, 5).map((e) => `${e.tagName}.${e.getAttribute("class")}`);
})()"""


@dataclass(frozen=True)
class Look:
    """A page at one width in one colour scheme."""

    width: int
    dark: bool
    scroll_width: int
    over: list[str]  # what widens it, if it is wider than its window
    theme: str
    pale: list[str]


@dataclass(frozen=True)
class Visit:
    """All that the tests ask about a page, and what it took to see it."""

    formulas: int
    typeset: int
    misprinted: int
    silent: list[str]
    looks: list[Look] = field(default_factory=list)
    broken: dict[str, dict[str, str]] = field(default_factory=dict)  # by axe-core, where it was asked
    wrong: list[str] = field(default_factory=list)  # errors, and requests that left the disk
    seconds: float = 0.0


def visit(page: Page, file: Path, *, listing: bool = False, rules: bool = False) -> Visit:
    """Open a page and look at it from all sides; at a listing of code in two widths only, and with axe-core if told."""
    began = time.monotonic()
    page.evaluate("document.documentElement.hidden = true")  # the page before this one need not be laid out anew
    resize(page, *SIZES[0])
    prefer(page, dark=False)
    go(page, file)
    count = "(selector) => document.querySelectorAll(selector).length"
    seen = Visit(
        formulas=page.evaluate(count, ".math.notranslate"),
        typeset=page.evaluate(count, ".math.notranslate mjx-container svg"),
        misprinted=page.evaluate(count, "mjx-merror, [data-mjx-error]"),
        silent=page.evaluate(f"{SILENT}.map(i => i.src)"),
    )
    sizes, read_at = (SIZES[:2], ()) if listing else (SIZES, READ_AT)
    now = (*SIZES[0], False)
    for width, height in sizes:  # laying out a chapter anew takes longer than painting it anew
        # A new width begins in the colours of the last one: one thing changes at a time, and nothing twice.
        for dark in (now[2], not now[2]) if width in read_at else (False,):
            if (width, height) != now[:2]:
                resize(page, width, height)
            if dark != now[2]:
                prefer(page, dark=dark)
            now = width, height, dark
            scroll_width = page.evaluate("document.documentElement.scrollWidth")
            seen.looks.append(
                Look(
                    width=width,
                    dark=dark,
                    scroll_width=scroll_width,
                    over=page.evaluate(OVER) if scroll_width > width else [],
                    theme=page.evaluate("document.documentElement.dataset.theme"),
                    pale=page.evaluate(PALE) if width in read_at else [],
                )
            )
    if rules:
        seen.broken.update(axe.looks(page))
    return replace(seen, seconds=time.monotonic() - began)


class Visits:
    """Visits pages in the background, in the order in which they will be asked for; a context manager."""

    def __init__(self, folder: Path, names: Iterable[str], listings: Iterable[str] = (), rules: Iterable[str] = ()):
        self._folder, self._listings, self._rules = folder, frozenset(listings), frozenset(rules)
        self._visits: dict[str, Future[Visit]] = {name: Future() for name in names}
        self._left = deque(self._visits)
        self._pool = ThreadPoolExecutor(TOGETHER, thread_name_prefix="visits")
        self._workers = [self._pool.submit(self._work)]

    def __enter__(self) -> "Visits":
        return self

    def __exit__(self, *_: object) -> None:
        self._left.clear()
        self._pool.shutdown()

    def _work(self) -> None:
        """What one thread does: Playwright wants all of a browser to be done by the thread that started it."""
        with started() as browser, suppress(IndexError):
            page = new_page(browser, wrong := [])
            while True:
                name = self._left.popleft()
                wrong.clear()
                try:
                    seen = visit(page, self._folder / name, listing=name in self._listings, rules=name in self._rules)
                    self._visits[name].set_result(replace(seen, wrong=list(wrong)))
                except Exception as problem:
                    self._visits[name].set_exception(problem)

    def of(self, name: str) -> Visit:
        """What was seen on a page; waits for it if need be, and raises what went wrong on the way."""
        if not self._visits[name].done() and len(self._workers) < TOGETHER:
            self._workers.append(self._pool.submit(self._work))
        for worker in self._workers:
            if worker.done():
                worker.result()  # a thread that could not start its browser says why
        return self._visits[name].result(timeout=900)
