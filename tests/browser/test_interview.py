"""The interview page: readable without a script, chosen from by keyboard, and every proof it leads to is there."""

import re
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "book" / "_ext"))

import apparatus  # noqa: E402

BUILT = Path(__file__).resolve().parents[2] / "_build" / "html"
INTERVIEW, INDEX = BUILT / "book" / "interview.html", BUILT / "book" / "concept-index.html"

pytestmark = pytest.mark.skipif(not INTERVIEW.is_file(), reason="the book is not built: run `make book` first")

SHOWN = "[...document.querySelectorAll('.question:not(.spoken)')].filter((q) => !q.hidden)"


def test_levels_and_topics_choose_questions(browser):
    page = browser.open(INTERVIEW)
    total = page.evaluate(f"{SHOWN}.length")
    assert total == page.evaluate("document.querySelectorAll('.question:not(.spoken)').length") >= 14
    page.evaluate("document.querySelector('.question-filter input[name=level][value=\"3\"]').focus()")
    page.press("Space")
    assert set(page.evaluate(f"{SHOWN}.map((q) => q.dataset.level)")) == {"3"}
    page.evaluate("document.querySelector('.question-filter input[name=topic][value=kl]').focus()")
    page.press("Space")
    chosen = [asked.id for asked in apparatus.questions().values() if asked.level == 3 and "kl" in asked.topics]
    assert "q-k3-gradient" in chosen
    assert page.evaluate(f"{SHOWN}.map((q) => q.id)") == chosen
    said = page.evaluate("document.querySelector('.question-filter output').textContent")
    assert said == f"{len(chosen)} of {total} questions"
    page.press("Space")
    assert page.evaluate(f"{SHOWN}.length") > len(chosen)
    page.evaluate("document.querySelector('.question-filter .open').focus()")
    page.press("Enter")
    assert page.evaluate(f"{SHOWN}.every((q) => q.querySelector('details').open)")
    assert page.errors == []
    assert page.outside_requests == []


def test_a_link_to_a_question_opens_it(browser):
    browser.open(INDEX)  # from another page, as readers come
    page = browser.open(INTERVIEW.as_uri() + "#q-x-group-size")
    opened = "[...document.querySelectorAll('.question details')].filter((d) => d.open).map((d) => d.parentElement.id)"
    assert page.evaluate(opened) == ["q-x-group-size"]


def test_without_a_script_everything_can_be_read(browser, tmp_path):
    """The page as a browser sees it that runs no script: all of them are taken out."""
    text = re.sub(r"<script\b.*?</script>", "", INTERVIEW.read_text(encoding="utf-8"), flags=re.DOTALL)
    (tmp_path / "interview.html").write_text(text, encoding="utf-8")
    page = browser.open(tmp_path / "interview.html")
    assert page.evaluate("getComputedStyle(document.querySelector('.question-filter')).display") == "none"
    assert page.evaluate(f"{SHOWN}.length") >= 14
    page.evaluate("document.querySelector('.question:not(.spoken) summary').focus()")
    page.press("Enter")
    assert page.evaluate("document.querySelector('.question:not(.spoken) details').open")
    assert "critic" in page.evaluate("document.querySelector('.question:not(.spoken) details').innerText")


@pytest.mark.parametrize("page", [INTERVIEW, INDEX], ids=lambda page: page.stem)
def test_every_proof_leads_to_a_cell_or_a_section_that_exists(page):
    text = page.read_text(encoding="utf-8").split('<article class="bd-article">')[1].split("</article>")[0]
    links = [unquote(link) for link in re.findall(r'<a class="reference internal" href="([^"]+#[^"]+)"', text)]
    assert len(links) > 5
    for link in links:
        file, anchor = link.split("#")
        target = (page.parent / file).resolve() if file else page
        assert f'id="{anchor}"' in target.read_text(encoding="utf-8"), link


def test_on_paper_every_answer_is_open_and_then_as_it_was(browser):
    page = browser.open(INTERVIEW)
    opened = "[...document.querySelectorAll('.question details')].filter((d) => d.open).length"
    total = page.evaluate("document.querySelectorAll('.question details').length")
    assert page.evaluate(opened) == 0 < len(apparatus.spoken()) < total
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(opened) == total
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(opened) == 0
