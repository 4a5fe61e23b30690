import pytest

from tests.browser.chrome import PROGRAM, Browser


@pytest.fixture(scope="session")
def browser():
    if PROGRAM is None:
        pytest.skip("no Chromium on this machine: install it (Debian: apt-get install chromium) to look at the pages")
    with Browser() as browser:
        yield browser
