"""The rules of WCAG 2.2, levels A and AA, asked of built pages by axe-core, in light and in dark.

    python -m tests.browser.axe                       every page of _build/html; half an hour
    python -m tests.browser.axe book/index            only those

`make axe` builds the book first. The script of axe-core (MPL-2.0) comes with the package axe-playwright-python. What a
machine can see is about half of what the guidelines want; the rest are the tests beside this file, which use the
keyboard, read names and look at the sizes of the letters.

Known, left out, and not mended: on the pages of the library a signature of several lines is a list without terms, as
Sphinx writes it.
"""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from tests.browser.chromium import go, new_page, prefer, resize, started

BUILT = Path(__file__).resolve().parents[2] / "_build" / "html"
KNOWN = "definition-list"
# One of each kind, for every run of the tests.
KINDS = [f"{name}.html" for name in ("book/index", "book/cheat-sheet", "book/trainer", "notebooks/gae", "search")]
RULES = {
    "runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]},
    "resultTypes": ["violations"],
    "preload": False,  # style sheets again, which a page from disk may not ask for
}


def violations(page: Page) -> dict[str, str]:
    """The rules that the open page breaks, each with what axe says of the elements that break it."""
    return {
        rule["id"]: "\n      ".join(
            [rule["help"], *(f"{node['target']}: {node['failureSummary']}" for node in rule["nodes"])]
        )
        for rule in Axe().run(page, options=RULES).response["violations"]
    }


def looks(page: Page) -> Iterator[tuple[str, dict[str, str]]]:
    """The open page in light and in dark, with what axe finds."""
    # In a low window its edge cuts through a line of the contents, which then is too small a target.
    resize(page, 1400, 4000)
    for look in ("light", "dark"):
        prefer(page, dark=look == "dark")
        yield look, violations(page)


def main(names: list[str]) -> int:
    """Look at the pages named, or at all of them; say what each breaks."""
    pages = [BUILT / f"{name}.html" for name in names] or [
        page for page in sorted(BUILT.rglob("*.html")) if "_static" not in page.parts
    ]
    if not pages:
        print(f"expected a built book at {BUILT}: `make axe`")
        return 2
    broken, start = 0, time.monotonic()
    with started() as browser:
        page = new_page(browser, [])
        for file in pages:
            go(page, file)
            for look, found in looks(page):
                if "api" in file.parts:
                    found.pop(KNOWN, None)
                broken += bool(found)
                for rule, said in found.items():
                    print(f"{file.relative_to(BUILT)} ({look})\n    {rule}: {said}", flush=True)
    print(f"{len(pages)} pages, light and dark, {time.monotonic() - start:.0f} s: {broken} looks with a violation")
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
