"""The rules of WCAG 2.2, levels A and AA, asked of built pages by axe-core, in light and in dark.

    npm pack axe-core@4.14.1 --pack-destination _build/axe && tar xzf _build/axe/axe-core-4.14.1.tgz -C _build/axe
    python -m tests.browser.axe                       every page of _build/html; some minutes
    python -m tests.browser.axe book/index            only those

`make axe` does both. axe-core (MPL-2.0) is not part of this repository: where it is not in `_build/axe`, nothing is
asked. What a machine can see is about half of what the guidelines want; the rest are the tests beside this file, which
use the keyboard, read names and look at the sizes of the letters.

Known, and not mended: on the pages of the library a signature of several lines is a list without terms, as Sphinx
writes it (`definition-list`).
"""

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.browser.chrome import Browser, Page

ROOT = Path(__file__).resolve().parents[2]
BUILT = ROOT / "_build" / "html"
SCRIPT = ROOT / "_build" / "axe" / "package" / "axe.min.js"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]


@dataclass(frozen=True)
class Violation:
    """One rule that some elements of a page break."""

    rule: str
    help: str
    elements: tuple[str, ...]  # how to find each of them, and what axe says of it

    def __str__(self) -> str:
        """The rule, and its first elements."""
        more = f"\n      and {len(self.elements) - 5} more" if len(self.elements) > 5 else ""
        return f"{self.rule}: {self.help}" + "".join(f"\n      {e}" for e in self.elements[:5]) + more


def violations(page: Page, script: Path = SCRIPT) -> list[Violation]:
    """What axe finds on the page that is open."""
    page.evaluate(script.read_text(encoding="utf-8") + ";undefined")
    options = json.dumps({"runOnly": {"type": "tag", "values": RULES}, "resultTypes": ["violations"]})
    found = page.evaluate(
        f"axe.run(document, {options}).then((r) => r.violations.map((v) => ({{rule: v.id, help: v.help, elements: "
        "v.nodes.map((n) => n.target.flat(9).join(' ') + ': ' + "
        "[...n.any, ...n.all, ...n.none].map((c) => c.message).join('; ').slice(0, 200))})))"
    )
    assert isinstance(found, list)
    return [Violation(each["rule"], each["help"], tuple(each["elements"])) for each in found]


def looks(browser: Browser, path: Path, script: Path = SCRIPT) -> Iterator[tuple[str, list[Violation]]]:
    """The page in light and in dark, with what axe finds."""
    for dark in (False, True):
        # In a low window its edge cuts through a line of the contents, which then is too small a target.
        page = browser.open(path, dark=dark, height=4000)
        page.draw()
        yield "dark" if dark else "light", violations(page, script)


def main(names: list[str]) -> int:
    """Look at the pages named, or at all of them; say what each breaks."""
    if not SCRIPT.is_file() or not BUILT.is_dir():
        print(f"expected axe-core at {SCRIPT} and a built book at {BUILT}: `make axe`")
        return 2
    pages = [BUILT / f"{name}.html" for name in names] or [
        page for page in sorted(BUILT.rglob("*.html")) if "_static" not in page.parts
    ]
    broken, start = 0, time.monotonic()
    with Browser() as browser:
        for page in pages:
            for look, found in looks(browser, page):
                broken += bool(found)
                for violation in found:
                    print(f"{page.relative_to(BUILT)} ({look})\n    {violation}", flush=True)
    print(f"{len(pages)} pages, light and dark, {time.monotonic() - start:.0f} s: {broken} looks with a violation")
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
