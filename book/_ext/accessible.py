"""What the theme and the notebooks' reader leave without a name, or with one that is not what stands there.

Every page passes through `mended` as it is rendered:

- the search button and a bar over hidden code are named by the words on them, and by no other label;
- the icons of the button for light and dark are pictures, and their words no text of the button.

A pattern that finds nothing on any page is a warning of the build: the theme has changed, and this file is to follow.
`tests/browser/axe.py` asks the rules of WCAG 2.2 of the built pages.
"""

import re

from sphinx.util import logging

SEARCH = re.compile(r'(<button class="[^"]*\bsearch-button-field\b[^"]*"[^>]*?) aria-label="[^"]*"')
HIDDEN = re.compile(r'<summary aria-label="Toggle hidden content">')
ICON = re.compile(r'(<i class="theme-switch [^"]*" data-mode="\w+")\s+title="[^"]*"')


MENDS = {
    "the search button": (SEARCH, r"\1"),
    "the bars over hidden code": (HIDDEN, "<summary>"),
    "the icons of light and dark": (ICON, r'\1 aria-hidden="true"'),
}


def mended(page: str, found: set[str] | None = None) -> str:
    """The page with names; `found` collects what was there to mend."""
    for what, (pattern, replacement) in MENDS.items():
        page, count = pattern.subn(replacement, page)
        if count and found is not None:
            found.add(what)
    return page


def wrap(app):
    """Let every page that the builder renders pass through `mended`."""
    if app.builder.format != "html":
        return
    render, app.builder.accessible = app.builder.templates.render, set()

    def rendered(template, context):
        return mended(render(template, context), app.builder.accessible)

    app.builder.templates.render = rendered


def check(app, problem):
    found = getattr(app.builder, "accessible", None)
    if problem is None and found is not None and app.config.master_doc == "book/index":
        for what in MENDS.keys() - found:
            logging.getLogger(__name__).warning(f"accessible.py: no page has {what} as they were; look at the theme")


def setup(app):
    app.connect("builder-inited", wrap)
    app.connect("build-finished", check)
    return {"parallel_read_safe": True, "parallel_write_safe": False}
