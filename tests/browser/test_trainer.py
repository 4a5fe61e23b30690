"""The trainer on a page: by keyboard, with another clock, with files, on a phone and at night.

A small book in the book's own theme has the page of the trainer as it stands in the repository. What needs the
chapters, the links to proofs, is looked at in the whole book, if that is built.
"""

import datetime
import json
import re
from pathlib import Path
from urllib.parse import unquote

import pytest
from playwright.sync_api import expect

import apparatus
import cards
import trainer
from tests.browser.chromium import draw, go
from tests.browser.explorers import button as named
from tests.browser.explorers import press
from tests.browser.tiny_book import with_the_trainer
from tests.browser.visits import PALE

ROOT = Path(__file__).resolve().parents[2]

BUILT = ROOT / "_build" / "html" / "book" / "trainer.html"
KEY = "rlhf-interview-trainer"

TEXT = "document.querySelector('{}').textContent"
STATUS, TROUBLE, ASKED = (TEXT.format(f".trainer-{name}") for name in ("status", "trouble", "question"))
FOCUS = "document.activeElement.className"
OPEN = "!document.querySelector('.trainer-shown').hidden"
KEPT = f"JSON.parse(localStorage.getItem('{KEY}') ?? '{{\"cards\": {{}}}}').cards"


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    return with_the_trainer(tmp_path_factory.mktemp("trainer") / "book")


@pytest.fixture
def page(opened, book):
    """The page as somebody sees it who has never been there."""
    return opened(book)


def saved(*ids, **changes):
    """A text as the page keeps it: questions that were graded a month ago and are due."""
    ago = [
        (datetime.datetime.now(datetime.UTC) - datetime.timedelta(days)).strftime("%Y-%m-%dT%H:%M:%S.000Z")
        for days in (30, 20)
    ]
    card = {"due": ago[1], "last_review": ago[0], "stability": 10.0, "difficulty": 5.1, "scheduled_days": 10}
    card |= {"learning_steps": 0, "reps": 3, "lapses": 0, "state": 2, **changes}
    return json.dumps({"format": 1, "cards": dict.fromkeys(ids, card)})


def keep(page, text):
    """Another tab, of which this page hears nothing."""
    page.evaluate(f"localStorage.setItem('{KEY}', {json.dumps(text)})")


def clock(page, minutes):
    """From now on the page's clock is ahead by so many minutes."""
    page.evaluate(
        "(() => { const Real = (window.RealDate ??= Date), ahead = " + str(minutes) + " * 60e3;"
        "window.Date = class extends Real {"
        "constructor(...given) { if (given.length) super(...given); else super(Real.now() + ahead); }"
        "static now() { return Real.now() + ahead; } }; })()"
    )


def button(page, name):
    """The button of that name, by keyboard."""
    press(named(page.locator(".interview-trainer"), name), "Enter")


def choose_file(page, path):
    """What the file dialog does when somebody has chosen a file."""
    page.locator(".interview-trainer input[type=file]").set_input_files(path)
    page.wait_for_function("document.querySelector('.interview-trainer input[type=file]').value === ''")


def downloaded(page, name):
    """The file that a button writes, and what is in it."""
    with page.expect_download() as download:
        button(page, name)
    return download.value.suggested_filename, download.value.path().read_text()


def test_a_question_is_asked_opened_and_graded_by_keyboard(page):
    deck = cards.cards()
    assert page.evaluate(ASKED) == deck[0].question.question
    assert page.evaluate(STATUS) == f"0 due, {len(deck)} new, {len(deck)} chosen."
    assert page.evaluate(FOCUS) == ""  # the page does not take the focus by itself
    page.keyboard.press("3")  # nothing to grade yet
    page.keyboard.press("Space")
    assert page.evaluate(OPEN)
    assert page.evaluate(FOCUS) == "trainer-shown"
    words = page.evaluate("document.querySelector('.trainer-shown').textContent")
    for part in ("Often said, and wrong.", "They may ask next.", "Where it is proved."):
        assert part in words
    page.keyboard.press("3")
    assert page.evaluate(STATUS) == f"Good: comes back in 10 minutes. 0 due, {len(deck) - 1} new, {len(deck)} chosen."
    assert page.evaluate(ASKED) == deck[1].question.question
    assert not page.evaluate(OPEN)
    for number in range(1, 6):  # on and on, without the mouse and without losing the focus
        assert page.evaluate(FOCUS) == "trainer-question"
        assert page.evaluate(ASKED) == deck[number].question.question
        page.keyboard.press("Enter")
        assert page.evaluate(FOCUS) == "trainer-shown"
        page.keyboard.press("4")
    assert page.evaluate(f"Object.keys({KEPT}).length") == 6


def test_buttons_do_the_same(page):
    deck = cards.cards()
    button(page, "Show the answer")
    assert page.evaluate(FOCUS) == "trainer-shown"
    grades = "[...document.querySelectorAll('.trainer-grades button')]"
    *soon, easy = page.evaluate(f"{grades}.map((b) => b.ariaLabel)")
    assert soon == [
        "Again: did not know it, comes back in 1 minute",
        "Hard: with effort, comes back in 6 minutes",
        "Good: knew it, comes back in 10 minutes",
    ]
    days = re.fullmatch(r"Easy: at once, comes back in (\d+) days", easy)[1]
    assert 6 <= int(days) <= 10  # eight, spread
    page.evaluate(f"{grades}[3].focus()")
    page.keyboard.press("Space")
    assert page.evaluate(FOCUS) == "trainer-question"
    assert page.evaluate(STATUS).startswith(f"Easy: comes back in {days} days.")
    button(page, "Undo the last grade")
    assert page.evaluate(ASKED) == deck[0].question.question
    assert page.evaluate(OPEN)
    assert page.evaluate(FOCUS) == "trainer-shown"
    assert page.evaluate(f"Object.keys({KEPT})") == []
    page.keyboard.press("1")
    once = page.evaluate(KEPT)
    clock(page, 2)
    page.keyboard.press("Space")
    page.keyboard.press("4")
    page.keyboard.press("Space")  # the first one again, which is due
    page.keyboard.press("3")
    assert page.evaluate(KEPT)[deck[0].question.id]["reps"] == 2
    button(page, "Undo the last grade")  # as it was, and not as if it had never been asked
    assert page.evaluate(KEPT)[deck[0].question.id] == once[deck[0].question.id]


def test_a_graded_question_comes_back_when_it_is_due(page, book):
    first = page.evaluate(ASKED)
    page.keyboard.press("Space")
    page.keyboard.press("1")  # again: a minute
    second = page.evaluate(ASKED)
    assert second != first
    clock(page, 2)
    page.keyboard.press("Space")
    page.keyboard.press("4")
    assert page.evaluate(ASKED) == first
    assert "1 due" in page.evaluate(STATUS)
    page.keyboard.press("Space")
    page.keyboard.press("4")
    assert page.evaluate(ASKED) not in (first, second)

    go(page, book)  # the next day: the browser has kept it
    assert "0 due, " in page.evaluate(STATUS)
    assert page.evaluate(f"Object.keys({KEPT}).length") == 2
    once = page.evaluate(KEPT)
    clock(page, 11 * 24 * 60)
    page.keyboard.press("Space")
    page.keyboard.press("4")
    assert "2 due" in page.evaluate(STATUS)
    early, late = sorted(once, key=lambda id: once[id]["due"])
    words = {card.question.id: card.question.question for card in cards.cards()}
    assert {words[early], words[late]} == {first, second}
    assert page.evaluate(ASKED) == words[early]
    page.keyboard.press("Space")
    page.keyboard.press("3")
    assert page.evaluate(ASKED) == words[late]
    assert "1 due" in page.evaluate(STATUS)


def test_when_nothing_is_left_the_page_waits_for_what_comes_back(page):
    page.evaluate(
        "(() => { const select = document.querySelector('.interview-trainer select'); select.value = 'gae';"
        "document.querySelector('input[name=level][value=\"1\"]').checked = true;"
        "select.dispatchEvent(new Event('change', {bubbles: true})); })()"
    )
    wanted = [c.question for c in cards.cards() if c.name == "gae" and c.question.level == 1]
    assert page.evaluate(STATUS) == f"0 due, {len(wanted)} new, {len(wanted)} chosen."
    page.evaluate("document.querySelector('.trainer-question').focus()")
    for asked in wanted:
        assert page.evaluate(ASKED) == asked.question
        page.keyboard.press("Space")
        page.keyboard.press("3")
    done = TEXT.format(".trainer-done")
    assert "Nothing is due." in page.evaluate(done)
    assert "comes back in 10 minutes" in page.evaluate(done)
    assert page.evaluate("document.activeElement.textContent") == "Nothing is due."
    clock(page, 11)
    expect(page.locator(".trainer-status")).to_contain_text("A question is due. ")
    assert page.evaluate(ASKED) == wanted[0].question
    assert page.evaluate(STATUS).startswith("A question is due. ")
    assert page.evaluate(FOCUS) == "trainer-question"
    for _ in wanted:
        page.keyboard.press("Space")
        page.keyboard.press("4")
    button(page, "Ask it now")
    assert page.evaluate(FOCUS) == "trainer-question"
    assert page.evaluate(ASKED) in [asked.question for asked in wanted]


def test_levels_and_chapters_choose_and_are_remembered(page, book):
    press(page.locator("input[name=level][value='3']"), "Space")
    deck = [card for card in cards.cards() if card.question.level == 3]
    assert page.evaluate(STATUS) == f"0 due, {len(deck)} new, {len(deck)} chosen."
    assert page.evaluate(ASKED) == deck[0].question.question
    assert page.evaluate("document.activeElement.value") == "3"
    offered = page.evaluate("[...document.querySelectorAll('.interview-trainer option')].map((o) => o.textContent)")
    assert offered[0] == "all chapters"
    assert cards.title("notebooks/grpo") in offered
    go(page, book)
    assert page.evaluate(ASKED) == deck[0].question.question
    empty = "document.querySelector('.interview-trainer select')"
    page.evaluate(
        f"(() => {{ {empty}.value = 'grpo'; {empty}.dispatchEvent(new Event('change', {{bubbles: true}})); }})()"
    )
    both = [card for card in deck if card.name == "grpo"]
    assert page.evaluate(STATUS) == f"0 due, {len(both)} new, {len(both)} chosen."


def test_keys_elsewhere_are_left_alone(page):
    press(page.locator("input[name=level]").first, "Enter")
    assert not page.evaluate(OPEN)
    page.keyboard.press("Space")
    page.keyboard.press("Space")  # chosen, and not
    assert not page.evaluate(OPEN)
    press(page.locator(".bd-article a").first, "Space")
    assert not page.evaluate(OPEN)
    page.evaluate("document.activeElement.blur()")
    shifted = "{key: ' ', shiftKey: true, bubbles: true, cancelable: true}"
    assert page.evaluate(
        f"document.body.dispatchEvent(new KeyboardEvent('keydown', {shifted}))"
    )  # Shift and Space scroll up, as everywhere
    assert not page.evaluate(OPEN)
    press(page.locator(".trainer-question"), "Space")
    press(
        page.locator(".bd-article section section p > a:not(.interview-trainer a)").first, "1"
    )  # on a link outside of the trainer a digit is a digit
    assert page.evaluate(f"Object.keys({KEPT})") == []
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("1")  # where nothing has the focus it grades, as Space opens
    assert page.evaluate(f"Object.keys({KEPT}).length") == 1


def test_progress_is_exported_and_imported(page, book, tmp_path):
    for key in "314":
        page.keyboard.press("Space")
        page.keyboard.press(key)
    name, text = downloaded(page, "Export progress")
    assert page.evaluate(STATUS).startswith("Exported: 3 graded questions.")
    assert re.fullmatch(r"rlhf-interview-\d{4}-\d\d-\d\d\.json", name)
    graded = page.evaluate(KEPT)
    assert json.loads(text) == {"format": 1, "cards": graded}

    page.evaluate("localStorage.clear()")  # another browser
    go(page, book)
    clock(page, 60)
    page.keyboard.press("Space")
    page.keyboard.press("4")
    (tmp_path / name).write_text(text)
    choose_file(page, tmp_path / name)
    first, second, third = (card.question.id for card in cards.cards()[:3])
    assert page.evaluate(STATUS).startswith("Imported: 3 graded questions, 2 of them newer than here.")
    assert page.evaluate(f"{KEPT}['{second}']") == graded[second]
    assert page.evaluate(f"{KEPT}['{first}'].due") > graded[first]["due"]  # what was graded here is later
    assert page.evaluate(ASKED) == cards.cards()[1].question.question  # "again", an hour ago
    assert page.evaluate(TROUBLE) == ""
    assert third in graded


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("not JSON", "it is no JSON"),
        ('{"format": 7, "cards": {}}', "its format is 7, and this page reads 1"),
        ('{"format": 1, "cards": {"q-x": {"due": "x"}}}', "the card q-x has no usable due"),
        ("[" + " " * 2**20 + "]", "it is larger than a megabyte"),
        (saved("q-x", stability=0.000001), "the card q-x has no usable stability"),
        (saved("q-x", last_review="+275760-09-13T00:00:00.000Z"), "the card q-x has no usable last_review"),
        (
            saved("q-x", last_review="2150-01-01T00:00:00.000Z"),
            "the card q-x was graded on 2150-01-01, which is yet to come: a clock is wrong",
        ),
    ],
)
def test_a_bad_file_changes_nothing_and_says_why(page, tmp_path, text, said):
    page.keyboard.press("Space")
    page.keyboard.press("2")
    before = page.evaluate(f"localStorage.getItem('{KEY}')"), page.evaluate(ASKED)
    (tmp_path / "bad.json").write_text(text)
    choose_file(page, tmp_path / "bad.json")
    assert page.evaluate(TROUBLE) == f"bad.json was not imported: {said}. Nothing has changed."
    assert page.evaluate("document.querySelector('.trainer-trouble').role") == "alert"
    assert (page.evaluate(f"localStorage.getItem('{KEY}')"), page.evaluate(ASKED)) == before
    assert page.evaluate(STATUS).startswith("Hard: comes back in 6 minutes.")


def test_what_cannot_be_read_is_set_aside(page, book):
    page.evaluate(f"localStorage.setItem('{KEY}', '{{\"format\": 1')")
    go(page, book)
    assert "cannot be read: it is no JSON" in page.evaluate(TROUBLE)
    page.keyboard.press("Space")
    page.keyboard.press("3")
    assert page.evaluate(f"localStorage.getItem('{KEY}-unreadable')") == '{"format": 1'
    assert page.evaluate(f"Object.keys({KEPT}).length") == 1


def test_what_the_scheduler_refuses_is_set_aside_and_everything_else_kept(page, book):
    """A card that would make every answer throw: the page goes on, the other cards count, the old text can be had."""
    bad, good = (card.question.id for card in cards.cards()[:2])
    both = json.loads(saved(bad, good))
    both["cards"][bad]["stability"] = 0.000001
    keep(page, json.dumps(both))
    go(page, book)
    said = page.evaluate(TROUBLE)
    assert f"cannot be read in 1 of 2 questions: the card {bad} has no usable stability" in said
    assert "is set aside" in said
    assert f"1 due, {len(cards.cards()) - 1} new" in page.evaluate(STATUS)
    for _ in range(2):  # what was kept, and then the bad one, as if it were new
        page.keyboard.press("Space")
        assert page.evaluate(OPEN)
        assert page.evaluate("document.querySelectorAll('.trainer-grades button').length") == 4
        page.keyboard.press("3")
    assert page.evaluate(KEPT)[bad]["reps"] == 1
    assert page.evaluate(KEPT)[good]["reps"] == 4
    keep(page, '{"format": 1')  # a second one does not take the place of the first
    go(page, book)
    assert page.evaluate(f"localStorage.getItem('{KEY}-unreadable')") == json.dumps(both)
    assert page.evaluate(f"localStorage.getItem('{KEY}-unreadable-2')") == '{"format": 1'
    go(page, book)  # read once more before a grade: it is the same one
    assert page.evaluate(f"localStorage.getItem('{KEY}-unreadable-3')") is None
    assert downloaded(page, "Download what could not be read")[1] == json.dumps(both) + '\n\n{"format": 1'


def test_what_cannot_even_be_set_aside_can_be_downloaded(page, book):
    keep(page, '{"format": 1')
    page.add_init_script(
        f"Storage.prototype.setItem = (key) => {{ if (key.startsWith('{KEY}')) throw new Error('full'); }};"
    )
    go(page, book)
    assert "could not be set aside: download it" in page.evaluate(TROUBLE)
    assert downloaded(page, "Download what could not be read")[1] == '{"format": 1'


def test_one_can_begin_anew_and_think_better_of_it(page, book):
    button(page, "Begin anew")
    assert page.evaluate(STATUS).startswith("Nothing is graded yet.")
    page.evaluate("document.activeElement.blur()")
    for key in "314":
        page.keyboard.press("Space")
        page.keyboard.press(key)
    graded = page.evaluate(KEPT)
    _, text = downloaded(page, "Begin anew")
    assert page.evaluate(STATUS).startswith("3 graded questions were exported and then forgotten. 0 due")
    assert json.loads(text) == {"format": 1, "cards": graded}
    assert page.evaluate(KEPT) == {}
    assert page.evaluate(ASKED) == cards.cards()[0].question.question
    button(page, "Undo “Begin anew”")
    assert page.evaluate(KEPT) == graded
    button(page, "Undo the last grade")  # and on, one by one
    assert page.evaluate(f"Object.keys({KEPT}).length") == 2
    go(page, book)
    assert page.evaluate(f"Object.keys({KEPT}).length") == 2
    assert page.evaluate("document.querySelector('.trainer-undo').disabled")


def test_an_import_is_taken_back(page, tmp_path):
    first, second, third = (card.question.id for card in cards.cards()[:3])
    page.keyboard.press("Space")
    page.keyboard.press("3")
    mine = page.evaluate(KEPT)
    (tmp_path / "theirs.json").write_text(saved(first, second, third))
    choose_file(page, tmp_path / "theirs.json")
    assert page.evaluate(STATUS).startswith("Imported: 3 graded questions, 2 of them newer than here.")
    page.keyboard.press("Space")
    page.keyboard.press("3")  # the second question, which theirs had
    button(page, "Undo the last grade")
    button(page, "Undo the import")
    assert page.evaluate(STATUS).startswith("Taken back: the import.")
    assert page.evaluate(KEPT) == mine


def test_what_another_page_wrote_unheard_is_kept(page):
    """A page out of the back/forward cache, a frozen tab: no event, and an old state in its memory."""
    first, second, third = (card.question.id for card in cards.cards()[:3])
    page.keyboard.press("Space")
    keep(page, saved(second, third))
    page.keyboard.press("4")  # the first one
    kept = page.evaluate(KEPT)
    assert kept.keys() == {first, second, third}
    assert [kept[id]["reps"] for id in (first, second, third)] == [1, 3, 3]
    assert "2 due" in page.evaluate(STATUS)
    assert page.evaluate(ASKED) == cards.cards()[1].question.question
    keep(page, saved(first, second, third))  # the same question, graded again there
    button(page, "Undo the last grade")
    assert page.evaluate(STATUS).startswith("Not taken back: it was graded again elsewhere.")
    assert [page.evaluate(KEPT)[id]["reps"] for id in (first, second, third)] == [3, 3, 3]


@pytest.mark.parametrize(
    "event",
    [
        "dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }))",
        "document.dispatchEvent(new Event('visibilitychange'))",
    ],
)
def test_a_page_that_is_returned_to_looks_again(page, event):
    wanted = cards.cards()[5].question
    keep(page, saved(wanted.id))
    page.evaluate(event)
    assert page.evaluate(ASKED) == wanted.question
    assert "1 due" in page.evaluate(STATUS)


def test_a_real_return_over_the_history_keeps_what_was_graded_meanwhile(page, book):
    """Grade, go to another page of the book, grade in the trainer there, and come back by the history."""
    page.keyboard.press("Space")
    page.keyboard.press("3")
    go(page, book.with_name("interview.html"))
    both = {**page.evaluate(KEPT), **json.loads(saved(cards.cards()[5].question.id))["cards"]}
    keep(page, json.dumps({"format": 1, "cards": both}))
    page.go_back()
    expect(page.locator(".trainer-status")).to_contain_text("1 due")
    page.keyboard.press("Space")
    page.keyboard.press("3")
    kept = page.evaluate(KEPT)
    assert kept.keys() == both.keys()
    assert kept[cards.cards()[5].question.id]["reps"] == 4


def test_the_browser_is_asked_once_to_keep_it_for_good(page):
    page.evaluate(
        "Object.defineProperty(navigator, 'storage', { value: { persist: () => {"
        "window.asked = (window.asked ?? 0) + 1; return Promise.reject(new Error('no')); } } })"
    )
    for _ in range(2):
        page.keyboard.press("Space")
        page.keyboard.press("4")
    assert page.evaluate("window.asked") == 1


def test_a_grade_of_a_question_that_is_not_chosen_any_more_is_taken_back_unseen(page):
    page.keyboard.press("Space")
    page.keyboard.press("3")
    page.evaluate("document.querySelector('input[name=level][value=\"3\"]').click()")
    shown = page.evaluate(ASKED)
    button(page, "Undo the last grade")
    assert page.evaluate(KEPT) == {}
    assert page.evaluate(ASKED) == shown
    assert page.evaluate(STATUS).startswith("Taken back: the last grade. 0 due")


def test_a_browser_that_keeps_nothing_says_so(page):
    page.evaluate("() => { Storage.prototype.setItem = () => { throw new Error('full'); }; }")
    page.keyboard.press("Space")
    page.keyboard.press("3")
    assert "does not keep your progress" in page.evaluate(TROUBLE)
    assert page.evaluate(STATUS).startswith("Good: comes back in 10 minutes.")
    page.keyboard.press("Space")
    assert page.evaluate(OPEN)


def test_another_tab_is_heard(page):
    graded = cards.cards()[0].question.id
    page.keyboard.press("Space")
    page.keyboard.press("4")
    text = page.evaluate(f"localStorage.getItem('{KEY}')")
    press(page.locator(".trainer-undo"), "Enter")
    page.keyboard.press("Escape")
    page.evaluate(
        f"(() => {{ localStorage.setItem('{KEY}', {json.dumps(text)});"
        f"dispatchEvent(new StorageEvent('storage', {{ key: '{KEY}' }})); }})()"
    )
    assert f"{len(cards.cards()) - 1} new" in page.evaluate(STATUS)
    assert page.evaluate(f"Object.keys({KEPT})") == [graded]


@pytest.mark.parametrize(("width", "dark"), [(1400, False), (390, True), (360, False)])
def test_every_answer_fits_and_is_typeset(opened, book, width, dark):
    """All answers one after the other; formulas without a network; text that can be read in both lights."""
    page = opened(book, width=width, dark=dark)
    assert page.evaluate("document.documentElement.dataset.theme") == ("dark" if dark else "light")
    formulas = 0
    for number, _ in enumerate(deck := cards.cards()):
        page.keyboard.press("Space")
        left = ".trainer-shown .math:not(:has(mjx-container svg))"
        page.wait_for_function("(left) => !document.querySelector(left)", arg=left)
        seen = page.evaluate("document.querySelectorAll('.trainer-shown mjx-container').length")
        formulas += seen
        assert page.evaluate("document.querySelectorAll('mjx-merror, [data-mjx-error]').length") == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= width, deck[number].question.id
        if number == 3:
            draw(page)
            assert page.evaluate(PALE) == []
        page.keyboard.press("4")
    assert formulas > 50
    assert "Nothing is due." in page.evaluate(TEXT.format(".trainer-done"))
    assert page.evaluate(PALE) == []


def test_everything_has_a_name(page):
    page.keyboard.press("Space")
    unnamed = (
        "[...document.querySelectorAll('.interview-trainer :is(input, select, button, form, section, [role=group], "
        "[role=region])')].filter((e) => !(e.ariaLabel || e.textContent.trim() || e.labels?.[0]?.textContent.trim()))"
    )
    assert page.evaluate(f"{unnamed}.length") == 0
    assert page.evaluate("document.querySelector('.trainer-status').role") == "status"
    assert page.evaluate("document.querySelectorAll('.interview-trainer fieldset > legend').length") == 1


def test_without_a_script_the_page_says_so_and_leads_to_all_questions(opened, book):
    """The page as a browser sees it that runs no script: noscript is shown, and answers stay in their templates."""
    text = book.read_text(encoding="utf-8")
    (said,) = re.findall(r"<noscript>(.*?)</noscript>", text.split('class="interview-trainer"')[1], re.DOTALL)
    assert "needs JavaScript" in said
    (link,) = re.findall(r'href="([^"]+)"', said)
    assert (book.parent / link).resolve().is_file()
    assert text.count("<template ") == text.count("</template>") == len(apparatus.questions())
    shown = opened(book, java_script_enabled=False).locator(".interview-trainer ~ noscript a")
    assert "interview.html" in shown.get_attribute("href")
    assert shown.bounding_box()["width"] > 0


@pytest.mark.skipif(not BUILT.is_file(), reason="the book is not built: run `make book` first")
def test_in_the_book_every_proof_is_a_link_that_leads_somewhere():
    text = BUILT.read_text(encoding="utf-8")
    answers = re.findall(r'<template class="trainer-answer" data-id="([^"]+)">(.*?)</template>', text, re.DOTALL)
    assert {id for id, _ in answers} == apparatus.questions().keys()
    for id, answer in answers:
        links = [unquote(link) for link in re.findall(r'<a class="reference internal" href="([^"]+#[^"]+)"', answer)]
        assert len(links) == sum(not proof.test for proof in apparatus.questions()[id].proof)
        for link in links:
            file, anchor = link.split("#")
            assert f'id="{anchor}"' in (BUILT.parent / file).resolve().read_text(encoding="utf-8"), link


def test_the_search_does_not_find_the_answers_twice(book):
    """They are in the index once, under the page of all questions, which is empty in this book."""
    text = (book.parents[1] / "searchindex.js").read_text(encoding="utf-8")
    found = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    assert "book/trainer" in found["docnames"]
    assert "browser" in found["terms"]  # of the text around the trainer
    words = {word for asked in apparatus.questions().values() for word in re.findall(r"[a-z]{6,}", asked.answer)}
    around = ((ROOT / "book" / "trainer.md").read_text(encoding="utf-8") + trainer.PAGE).lower()
    assert [word for word in found["terms"] if word in words and word not in around] == []
