from pathlib import Path

import pytest

from tests.browser.chrome import PROGRAM, Browser
from tests.browser.tiny_book import with_every_figure
from tests.browser.visits import Visits

BUILT = Path(__file__).resolve().parents[2] / "_build" / "html"


@pytest.fixture(scope="session")
def browser():
    if PROGRAM is None:
        pytest.skip("no Chromium on this machine: install it (Debian: apt-get install chromium) to look at the pages")
    with Browser() as browser:
        yield browser


@pytest.fixture(scope="session")
def figures(tmp_path_factory):
    """The folder of a small book with a page for each interactive figure."""
    return with_every_figure(tmp_path_factory.mktemp("figures") / "book")


def asked(session):
    """The pages that the chosen tests will ask for, in their order."""
    items = [item for item in session.items if "visits" in getattr(item, "fixturenames", ())]
    return [item.callspec.params["name"] for item in items]


def is_listing(name):
    """Whether a page is one of a hundred listings of code: all alike; their index is none."""
    return name.startswith("_modules/rlhf_")


@pytest.fixture(scope="session")
def visits(browser, request):
    """The pages that this run's tests ask for, visited in the background."""
    names = asked(request.session)
    with Visits(browser, BUILT, names, listings=filter(is_listing, names)) as visits:
        yield visits


@pytest.fixture(scope="session", autouse=True)
def _visit_from_the_start(request):
    """The other tests here wait for a page most of the time: meanwhile the visits go on."""
    if PROGRAM and asked(request.session):
        request.getfixturevalue("visits")
