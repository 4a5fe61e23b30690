"""The interview page: readable without a script, chosen from by keyboard, and every proof it leads to is there."""

import re
from pathlib import Path
from urllib.parse import unquote

import pytest
from playwright.sync_api import expect

import apparatus
from tests.browser.explorers import press

BUILT = Path(__file__).resolve().parents[2] / "_build" / "html"
INTERVIEW, INDEX = BUILT / "book" / "interview.html", BUILT / "book" / "concept-index.html"

pytestmark = pytest.mark.skipif(not INTERVIEW.is_file(), reason="the book is not built: run `make book` first")

QUESTION = ".question:not(.spoken)"


def test_levels_and_topics_choose_questions(opened):
    page = opened(INTERVIEW)
    questions, shown = page.locator(QUESTION), page.locator(f"{QUESTION}:not([hidden])")
    total = shown.count()
    assert total == questions.count() >= 14
    press(page.locator(".question-filter input[name=level][value='3']"), "Space")
    assert set(shown.evaluate_all("(all) => all.map((q) => q.dataset.level)")) == {"3"}
    press(page.locator(".question-filter input[name=topic][value=kl]"), "Space")
    chosen = [asked.id for asked in apparatus.questions().values() if asked.level == 3 and "kl" in asked.topics]
    assert "q-k3-gradient" in chosen
    assert shown.evaluate_all("(all) => all.map((q) => q.id)") == chosen
    assert page.locator(".question-filter output").text_content() == f"{len(chosen)} of {total} questions"
    page.keyboard.press("Space")
    assert shown.count() > len(chosen)
    press(page.locator(".question-filter .open"), "Enter")
    assert shown.evaluate_all("(all) => all.every((q) => q.querySelector('details').open)")


def test_a_link_to_a_question_opens_it(opened):
    page = opened(INTERVIEW.as_uri() + "#q-x-group-size")
    ids = "(all) => all.map((d) => d.parentElement.id)"
    assert page.locator(".question details[open]").evaluate_all(ids) == ["q-x-group-size"]


def test_without_a_script_everything_can_be_read(opened):
    page = opened(INTERVIEW, java_script_enabled=False)
    expect(page.locator(".question-filter")).to_be_hidden()
    assert page.locator(QUESTION).count() >= 14
    answer = page.locator(f"{QUESTION} details").first
    press(answer.locator("summary"), "Enter")
    assert answer.get_attribute("open") is not None
    assert "critic" in answer.inner_text()


@pytest.mark.parametrize("page", [INTERVIEW, INDEX], ids=lambda page: page.stem)
def test_every_proof_leads_to_a_cell_or_a_section_that_exists(page):
    text = page.read_text(encoding="utf-8").split('<article class="bd-article">')[1].split("</article>")[0]
    links = [unquote(link) for link in re.findall(r'<a class="reference internal" href="([^"]+#[^"]+)"', text)]
    assert len(links) > 5
    for link in links:
        file, anchor = link.split("#")
        target = (page.parent / file).resolve() if file else page
        assert f'id="{anchor}"' in target.read_text(encoding="utf-8"), link


def test_on_paper_every_answer_is_open_and_then_as_it_was(opened):
    page = opened(INTERVIEW)
    answers, unfolded = page.locator(".question details"), page.locator(".question details[open]")
    total = answers.count()
    assert unfolded.count() == 0 < len(apparatus.spoken()) < total
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert unfolded.count() == total
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert unfolded.count() == 0
