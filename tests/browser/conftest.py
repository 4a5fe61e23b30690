import re
from pathlib import Path

import pytest

from tests.browser import axe
from tests.browser.chromium import PROGRAM, open_page, prefer, started
from tests.browser.tiny_book import with_every_figure
from tests.browser.visits import Visits

HERE = Path(__file__).resolve().parent
BUILT = HERE.parents[1] / "_build" / "html"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """What is asked of visits stands last in this folder: until then they go on beside the other tests."""
    here = [i for i, item in enumerate(items) if item.path.parent == HERE]
    in_order = sorted((items[i] for i in here), key=lambda item: "visits" in getattr(item, "fixturenames", ()))
    for i, item in zip(here, in_order, strict=True):
        items[i] = item


@pytest.fixture(scope="package")  # not longer: while it runs, no other test could run an event loop of its own
def chromium():
    if PROGRAM is None:
        pytest.skip("no Chromium on this machine: install it (Debian: apt-get install chromium) to look at the pages")
    with started() as browser:
        yield browser


@pytest.fixture
def opened(chromium):
    """Opens pages, each with a storage of its own. After the test nothing has gone wrong on any of them."""
    pages, wrong = [], []

    def opened(address, **look):
        pages.append(open_page(chromium, address, wrong, **look))
        return pages[-1]

    yield opened
    for page in pages:
        page.context.close()
    assert wrong == []


@pytest.fixture(scope="package")
def kept(chromium):
    """Opens a built page, or gives it as the last test at this width has left it; seven are kept."""
    pages, wrong = {}, []

    def kept(name, *, width=1400, dark=False):
        if not (BUILT / name).is_file():
            pytest.skip(f"{name} is not built: run `make book` first")
        page = pages.pop((name, width), None) or open_page(chromium, BUILT / name, wrong, width=width)
        pages[name, width] = page
        if len(pages) > 7:
            pages.pop(next(iter(pages))).context.close()
        prefer(page, dark=dark)
        assert wrong == []
        return page

    yield kept
    for page in pages.values():
        page.context.close()
    assert wrong == []


@pytest.fixture(scope="package")
def figures(tmp_path_factory):
    """The folder of a small book with a page for each interactive figure."""
    return with_every_figure(tmp_path_factory.mktemp("figures") / "book")


@pytest.fixture
def figure(opened, figures):
    """Opens an interactive figure on a page of its own."""
    return lambda name, **look: opened(figures / f"{name}.html", **look).locator(".live-figure")


def asked(session):
    """The pages that the chosen tests will ask for, in their order."""
    items = [item for item in session.items if "visits" in getattr(item, "fixturenames", ())]
    return list(dict.fromkeys(item.callspec.params["name"] for item in items))


def is_listing(name):
    """Whether a page is one of a hundred listings of code; their index is none."""
    return name.startswith("_modules/rlhf_")


def around_the_code(name):
    """A listing without its code and its name: the listings of a folder are one page but for these."""
    module = name.removeprefix("_modules/").removesuffix(".html")
    text = re.sub(r"<pre>.*?</pre>", "<pre></pre>", (BUILT / name).read_text(encoding="utf-8"), flags=re.DOTALL)
    return text.replace(module, "").replace(module.replace("/", "."), "")


@pytest.fixture(scope="package")
def visits(request):
    """The pages that this run's tests ask for, visited in the background."""
    names = asked(request.session)
    with Visits(BUILT, names, listings=filter(is_listing, names), rules=axe.KINDS) as visits:
        yield visits


@pytest.fixture(scope="package", autouse=True)
def _visit_from_the_start(request):
    """The other tests here wait for a page most of the time: meanwhile the visits go on."""
    if PROGRAM and asked(request.session):
        request.getfixturevalue("visits")
