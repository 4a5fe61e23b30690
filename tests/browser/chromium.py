"""A headless Chromium with its network cut off, driven by Playwright, which takes this machine's and downloads none.

The book promises to work from a folder, without a server and without a network. The only honest test of that
is a browser that opens the pages, notes everything they ask for, and runs what is on them.

    with started() as browser:
        page = open_page(browser, Path("_build/html/index.html"), wrong := [])
        page.title()
        assert wrong == []
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from playwright.sync_api import Browser, CDPSession, Page, expect, sync_playwright

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
NETLESS = ["--host-resolver-rules=MAP * ~NOTFOUND", "--proxy-server=direct://", "--disable-quic", "--disable-gpu"]
_SESSIONS: WeakKeyDictionary[Page, CDPSession] = WeakKeyDictionary()  # a page's size lasts as long as its session
PATIENCE = 60_000  # milliseconds: a busy machine takes its time
INSIDE = ("file:", "data:", "blob:", "about:", "chrome:")

# All of the page is there, it leads to no other, and its figures are drawn in their places: each ends with the sentence
# below it. Playwright asks this again and again. It does not wait for a promise, so what takes time is asked below.
ARRIVED = """() => document.readyState === "complete" && !document.querySelector("meta[http-equiv=refresh i]")
  && [...document.querySelectorAll("script[type='application/vnd.jupyter.widget-view+json']")]
    .every((script) => script.previousElementSibling?.querySelector(".lm-Widget .said"))"""

# Its mathematics is typeset, and the browser has nothing left to do.
SETTLED = """async () => {
  await window.MathJax?.startup?.promise;
  await new Promise((resolve) => requestIdleCallback(resolve, { timeout: 5000 }));
}"""

# Listeners to a size or a colour scheme are called with the next frame, and what they change is drawn with the one
# after. What fades is put at its end: how long it takes to get there depends on how busy the machine is.
DRAWN = """async () => {
  const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
  await frame();
  await frame();
  for (const animation of document.getAnimations()) {
    if (animation.effect.getComputedTiming().endTime !== Infinity) animation.finish();
  }
  await frame();
}"""


@contextmanager
def started() -> Iterator[Browser]:
    """Chromium, for as long as the block runs; used by the thread that started it.

    Raises:
        FileNotFoundError: If there is none.
    """
    if PROGRAM is None:
        raise FileNotFoundError("no Chromium found: install Debian's package `chromium`")
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=PROGRAM, args=NETLESS)
        yield browser
        browser.close()


def new_page(
    browser: Browser, wrong: list[str], *, width: int = 1400, height: int = 900, dark: bool = False, **context: Any
) -> Page:
    """An empty page that has its own storage; `wrong` hears of every error on it and every request that leaves it.

    Args:
        browser: The running Chromium.
        wrong: What goes wrong is appended here, as text.
        width: Of the window in CSS pixels; below 600 it is a phone.
        height: Of the window.
        dark: Whether the reader's system is set to dark.
        context: Further options of Playwright's `new_context`.
    """
    look: dict[str, Any] = {"viewport": {"width": width, "height": height}, "is_mobile": width < 600}
    look["color_scheme"] = "dark" if dark else "light"
    page = browser.new_context(offline=True, **look, **context).new_page()
    page.set_default_timeout(PATIENCE)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    page.on("request", lambda asked: None if asked.url.startswith(INSIDE) else wrong.append(asked.url))
    return page


def go(page: Page, address: Path | str, *, scripts: bool = True) -> None:
    """Open a built page from disk, or any address; follow a redirect, and wait for what its scripts do."""
    page.goto(address.resolve().as_uri() if isinstance(address, Path) else address)
    if scripts:
        page.wait_for_function(ARRIVED)
        page.evaluate(SETTLED)


def open_page(browser: Browser, address: Path | str, wrong: list[str], **look: Any) -> Page:
    """A new page, with what stands at an address; see `new_page` and `go`."""
    page = new_page(browser, wrong, **look)
    go(page, address, scripts=look.get("java_script_enabled", True))
    return page


def resize(page: Page, width: int, height: int = 900) -> None:
    """Set the size of the window; below 600 wide it is a phone, which Playwright cannot say of a page that is open."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    if page not in _SESSIONS:
        _SESSIONS[page] = page.context.new_cdp_session(page)
    _SESSIONS[page].send("Emulation.setDeviceMetricsOverride", size)
    draw(page)


def prefer(page: Page, *, dark: bool) -> None:
    """Pretend that the reader's system is set to dark, or to light."""
    page.emulate_media(color_scheme="dark" if dark else "light")
    draw(page)


def draw(page: Page) -> None:
    """Wait until what was changed (a size, a colour scheme) is on the screen."""
    page.evaluate(DRAWN)
