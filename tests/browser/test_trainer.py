"""The trainer on a page: by keyboard, with another clock, with files, on a phone and at night.

A small book in the book's own theme has the page of the trainer as it stands in the repository. What needs the
chapters, the links to proofs, is looked at in the whole book, if that is built.
"""

import datetime
import json
import re
import sys
import time
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.browser.tiny_book import with_the_trainer
from tests.browser.visits import PALE

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "book" / "_ext"))

import apparatus  # noqa: E402
import cards  # noqa: E402
import trainer  # noqa: E402

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
def page(browser, book):
    """The page as somebody sees it who has never been there."""
    browser.open(book).evaluate("localStorage.clear()")
    return browser.open(book)


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
    page.evaluate(
        f"[...document.querySelectorAll('.interview-trainer button')].find((b) => b.textContent === '{name}').focus()"
    )
    page.press("Enter")


def choose_file(page, path):
    """What the file dialog does when somebody has chosen a file."""
    found = page.send("Runtime.evaluate", expression="document.querySelector('.interview-trainer input[type=file]')")
    page.send("DOM.setFileInputFiles", files=[str(path)], objectId=found["result"]["objectId"])
    page.settle(0.2)


def downloaded(page, folder):
    """The one file that the page has written there."""
    for _ in range(30):
        if files := [path for path in folder.glob("*.json") if path.stat().st_size]:
            break
        page.settle(0.1)
    (file,) = files
    return file


def test_a_question_is_asked_opened_and_graded_by_keyboard(page):
    deck = cards.cards()
    assert page.evaluate(ASKED) == deck[0].question.question
    assert page.evaluate(STATUS) == f"0 due, {len(deck)} new, {len(deck)} chosen."
    assert page.evaluate(FOCUS) == ""  # the page does not take the focus by itself
    page.press("3")  # nothing to grade yet
    page.press("Space")
    assert page.evaluate(OPEN)
    assert page.evaluate(FOCUS) == "trainer-shown"
    words = page.evaluate("document.querySelector('.trainer-shown').textContent")
    for part in ("Often said, and wrong.", "They may ask next.", "Where it is proved."):
        assert part in words
    page.press("3")
    assert page.evaluate(STATUS) == f"Good: comes back in 10 minutes. 0 due, {len(deck) - 1} new, {len(deck)} chosen."
    assert page.evaluate(ASKED) == deck[1].question.question
    assert not page.evaluate(OPEN)
    for number in range(1, 6):  # on and on, without the mouse and without losing the focus
        assert page.evaluate(FOCUS) == "trainer-question"
        assert page.evaluate(ASKED) == deck[number].question.question
        page.press("Enter")
        assert page.evaluate(FOCUS) == "trainer-shown"
        page.press("4")
    assert page.evaluate(f"Object.keys({KEPT}).length") == 6
    assert page.errors == []
    assert page.outside_requests == []


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
    page.press("Space")
    assert page.evaluate(FOCUS) == "trainer-question"
    assert page.evaluate(STATUS).startswith(f"Easy: comes back in {days} days.")
    button(page, "Undo the last grade")
    assert page.evaluate(ASKED) == deck[0].question.question
    assert page.evaluate(OPEN)
    assert page.evaluate(FOCUS) == "trainer-shown"
    assert page.evaluate(f"Object.keys({KEPT})") == []
    page.press("1")
    once = page.evaluate(KEPT)
    clock(page, 2)
    page.press("Space")
    page.press("4")
    page.press("Space")  # the first one again, which is due
    page.press("3")
    assert page.evaluate(KEPT)[deck[0].question.id]["reps"] == 2
    button(page, "Undo the last grade")  # as it was, and not as if it had never been asked
    assert page.evaluate(KEPT)[deck[0].question.id] == once[deck[0].question.id]


def test_a_graded_question_comes_back_when_it_is_due(page, browser, book):
    first = page.evaluate(ASKED)
    page.press("Space")
    page.press("1")  # again: a minute
    second = page.evaluate(ASKED)
    assert second != first
    clock(page, 2)
    page.press("Space")
    page.press("4")
    assert page.evaluate(ASKED) == first
    assert "1 due" in page.evaluate(STATUS)
    page.press("Space")
    page.press("4")
    assert page.evaluate(ASKED) not in (first, second)

    page = browser.open(book)  # the next day: the browser has kept it
    assert "0 due, " in page.evaluate(STATUS)
    assert page.evaluate(f"Object.keys({KEPT}).length") == 2
    once = page.evaluate(KEPT)
    clock(page, 11 * 24 * 60)
    page.press("Space")
    page.press("4")
    assert "2 due" in page.evaluate(STATUS)
    early, late = sorted(once, key=lambda id: once[id]["due"])
    words = {card.question.id: card.question.question for card in cards.cards()}
    assert {words[early], words[late]} == {first, second}
    assert page.evaluate(ASKED) == words[early]
    page.press("Space")
    page.press("3")
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
        page.press("Space")
        page.press("3")
    done = TEXT.format(".trainer-done")
    assert "Nothing is due." in page.evaluate(done)
    assert "comes back in 10 minutes" in page.evaluate(done)
    assert page.evaluate("document.activeElement.textContent") == "Nothing is due."
    clock(page, 11)
    page.settle(1.3)
    assert page.evaluate(ASKED) == wanted[0].question
    assert page.evaluate(STATUS).startswith("A question is due. ")
    assert page.evaluate(FOCUS) == "trainer-question"
    for _ in wanted:
        page.press("Space")
        page.press("4")
    button(page, "Ask it now")
    assert page.evaluate(FOCUS) == "trainer-question"
    assert page.evaluate(ASKED) in [asked.question for asked in wanted]


def test_levels_and_chapters_choose_and_are_remembered(page, browser, book):
    page.evaluate("document.querySelector('input[name=level][value=\"3\"]').focus()")
    page.press("Space")
    deck = [card for card in cards.cards() if card.question.level == 3]
    assert page.evaluate(STATUS) == f"0 due, {len(deck)} new, {len(deck)} chosen."
    assert page.evaluate(ASKED) == deck[0].question.question
    assert page.evaluate("document.activeElement.value") == "3"
    offered = page.evaluate("[...document.querySelectorAll('.interview-trainer option')].map((o) => o.textContent)")
    assert offered[0] == "all chapters"
    assert cards.title("notebooks/grpo") in offered
    page = browser.open(book)
    assert page.evaluate(ASKED) == deck[0].question.question
    empty = "document.querySelector('.interview-trainer select')"
    page.evaluate(
        f"(() => {{ {empty}.value = 'grpo'; {empty}.dispatchEvent(new Event('change', {{bubbles: true}})); }})()"
    )
    both = [card for card in deck if card.name == "grpo"]
    assert page.evaluate(STATUS) == f"0 due, {len(both)} new, {len(both)} chosen."


def test_keys_elsewhere_are_left_alone(page):
    page.evaluate("document.querySelector('input[name=level]').focus()")
    page.press("Enter")
    assert not page.evaluate(OPEN)
    page.press("Space")
    page.press("Space")  # chosen, and not
    assert not page.evaluate(OPEN)
    page.evaluate("document.querySelector('.bd-article h1 a, .bd-article a').focus()")
    page.press("Space")
    assert not page.evaluate(OPEN)
    page.evaluate("document.activeElement.blur()")
    shifted = "{key: ' ', shiftKey: true, bubbles: true, cancelable: true}"
    assert page.evaluate(
        f"document.body.dispatchEvent(new KeyboardEvent('keydown', {shifted}))"
    )  # Shift and Space scroll up, as everywhere
    assert not page.evaluate(OPEN)
    page.evaluate("document.querySelector('.trainer-question').focus()")
    page.press("Space")
    page.evaluate("document.querySelector('.bd-article section section p > a').focus()")
    page.press("1")  # on a link outside of the trainer a digit is a digit
    assert page.evaluate(f"Object.keys({KEPT})") == []
    page.evaluate("document.activeElement.blur()")
    page.press("1")  # where nothing has the focus it grades, as Space opens
    assert page.evaluate(f"Object.keys({KEPT}).length") == 1


def test_progress_is_exported_and_imported(page, browser, book, tmp_path):
    for key in "314":
        page.press("Space")
        page.press(key)
    page.send("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    button(page, "Export progress")
    assert page.evaluate(STATUS).startswith("Exported: 3 graded questions.")
    file = downloaded(page, tmp_path)
    assert re.fullmatch(r"rlhf-interview-\d{4}-\d\d-\d\d\.json", file.name)
    graded = page.evaluate(KEPT)
    assert json.loads(file.read_text()) == {"format": 1, "cards": graded}

    page.evaluate("localStorage.clear()")  # another browser
    page = browser.open(book)
    clock(page, 60)
    page.press("Space")
    page.press("4")
    choose_file(page, file)
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
    page.press("Space")
    page.press("2")
    before = page.evaluate(f"localStorage.getItem('{KEY}')"), page.evaluate(ASKED)
    (tmp_path / "bad.json").write_text(text)
    choose_file(page, tmp_path / "bad.json")
    assert page.evaluate(TROUBLE) == f"bad.json was not imported: {said}. Nothing has changed."
    assert page.evaluate("document.querySelector('.trainer-trouble').role") == "alert"
    assert (page.evaluate(f"localStorage.getItem('{KEY}')"), page.evaluate(ASKED)) == before
    assert page.evaluate(STATUS).startswith("Hard: comes back in 6 minutes.")


def test_what_cannot_be_read_is_set_aside(page, browser, book):
    page.evaluate(f"localStorage.setItem('{KEY}', '{{\"format\": 1')")
    page = browser.open(book)
    assert "cannot be read: it is no JSON" in page.evaluate(TROUBLE)
    page.press("Space")
    page.press("3")
    assert page.evaluate(f"localStorage.getItem('{KEY}-unreadable')") == '{"format": 1'
    assert page.evaluate(f"Object.keys({KEPT}).length") == 1


def test_what_the_scheduler_refuses_is_set_aside_and_everything_else_kept(page, browser, book, tmp_path):
    """A card that would make every answer throw: the page goes on, the other cards count, the old text can be had."""
    bad, good = (card.question.id for card in cards.cards()[:2])
    both = json.loads(saved(bad, good))
    both["cards"][bad]["stability"] = 0.000001
    keep(page, json.dumps(both))
    page = browser.open(book)
    said = page.evaluate(TROUBLE)
    assert f"cannot be read in 1 of 2 questions: the card {bad} has no usable stability" in said
    assert "is set aside" in said
    assert f"1 due, {len(cards.cards()) - 1} new" in page.evaluate(STATUS)
    for _ in range(2):  # what was kept, and then the bad one, as if it were new
        page.press("Space")
        assert page.evaluate(OPEN)
        assert page.evaluate("document.querySelectorAll('.trainer-grades button').length") == 4
        page.press("3")
    assert page.evaluate(KEPT)[bad]["reps"] == 1
    assert page.evaluate(KEPT)[good]["reps"] == 4
    keep(page, '{"format": 1')  # a second one does not take the place of the first
    page = browser.open(book)
    assert page.evaluate(f"localStorage.getItem('{KEY}-unreadable')") == json.dumps(both)
    assert page.evaluate(f"localStorage.getItem('{KEY}-unreadable-2')") == '{"format": 1'
    page = browser.open(book)  # read once more before a grade: it is the same one
    assert page.evaluate(f"localStorage.getItem('{KEY}-unreadable-3')") is None
    page.send("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    button(page, "Download what could not be read")
    assert downloaded(page, tmp_path).read_text() == json.dumps(both) + '\n\n{"format": 1'
    assert page.errors == []


def test_what_cannot_even_be_set_aside_can_be_downloaded(page, browser, book, tmp_path):
    keep(page, '{"format": 1')
    script = page.send(
        "Page.addScriptToEvaluateOnNewDocument",
        source="Storage.prototype.setItem = () => { throw new Error('full'); };",
    )["identifier"]
    try:
        page = browser.open(book)
    finally:
        page.send("Page.removeScriptToEvaluateOnNewDocument", identifier=script)
    assert "could not be set aside: download it" in page.evaluate(TROUBLE)
    page.send("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    button(page, "Download what could not be read")
    assert downloaded(page, tmp_path).read_text() == '{"format": 1'


def test_one_can_begin_anew_and_think_better_of_it(page, browser, book, tmp_path):
    button(page, "Begin anew")
    assert page.evaluate(STATUS).startswith("Nothing is graded yet.")
    page.evaluate("document.activeElement.blur()")
    for key in "314":
        page.press("Space")
        page.press(key)
    graded = page.evaluate(KEPT)
    page.send("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    button(page, "Begin anew")
    assert page.evaluate(STATUS).startswith("3 graded questions were exported and then forgotten. 0 due")
    assert json.loads(downloaded(page, tmp_path).read_text()) == {"format": 1, "cards": graded}
    assert page.evaluate(KEPT) == {}
    assert page.evaluate(ASKED) == cards.cards()[0].question.question
    button(page, "Undo “Begin anew”")
    assert page.evaluate(KEPT) == graded
    button(page, "Undo the last grade")  # and on, one by one
    assert page.evaluate(f"Object.keys({KEPT}).length") == 2
    page = browser.open(book)
    assert page.evaluate(f"Object.keys({KEPT}).length") == 2
    assert page.evaluate("document.querySelector('.trainer-undo').disabled")


def test_an_import_is_taken_back(page, tmp_path):
    first, second, third = (card.question.id for card in cards.cards()[:3])
    page.press("Space")
    page.press("3")
    mine = page.evaluate(KEPT)
    (tmp_path / "theirs.json").write_text(saved(first, second, third))
    choose_file(page, tmp_path / "theirs.json")
    assert page.evaluate(STATUS).startswith("Imported: 3 graded questions, 2 of them newer than here.")
    page.press("Space")
    page.press("3")  # the second question, which theirs had
    button(page, "Undo the last grade")
    button(page, "Undo the import")
    assert page.evaluate(STATUS).startswith("Taken back: the import.")
    assert page.evaluate(KEPT) == mine


def test_what_another_page_wrote_unheard_is_kept(page):
    """A page out of the back/forward cache, a frozen tab: no event, and an old state in its memory."""
    first, second, third = (card.question.id for card in cards.cards()[:3])
    page.press("Space")
    keep(page, saved(second, third))
    page.press("4")  # the first one
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
    page.press("Space")
    page.press("3")
    page.goto(book.with_name("interview.html").resolve().as_uri())
    both = {**page.evaluate(KEPT), **json.loads(saved(cards.cards()[5].question.id))["cards"]}
    keep(page, json.dumps({"format": 1, "cards": both}))
    entries = page.send("Page.getNavigationHistory")
    page.send("Page.navigateToHistoryEntry", entryId=entries["entries"][entries["currentIndex"] - 1]["id"])
    time.sleep(1)
    assert "1 due" in page.evaluate(STATUS)
    page.press("Space")
    page.press("3")
    kept = page.evaluate(KEPT)
    assert kept.keys() == both.keys()
    assert kept[cards.cards()[5].question.id]["reps"] == 4


def test_the_browser_is_asked_once_to_keep_it_for_good(page):
    page.evaluate(
        "Object.defineProperty(navigator, 'storage', { value: { persist: () => {"
        "window.asked = (window.asked ?? 0) + 1; return Promise.reject(new Error('no')); } } })"
    )
    for _ in range(2):
        page.press("Space")
        page.press("4")
    assert page.evaluate("window.asked") == 1
    assert page.errors == []


def test_a_grade_of_a_question_that_is_not_chosen_any_more_is_taken_back_unseen(page):
    page.press("Space")
    page.press("3")
    page.evaluate("document.querySelector('input[name=level][value=\"3\"]').click()")
    shown = page.evaluate(ASKED)
    button(page, "Undo the last grade")
    assert page.evaluate(KEPT) == {}
    assert page.evaluate(ASKED) == shown
    assert page.evaluate(STATUS).startswith("Taken back: the last grade. 0 due")


def test_a_browser_that_keeps_nothing_says_so(page):
    page.evaluate("Storage.prototype.setItem = () => { throw new Error('full'); }")
    page.press("Space")
    page.press("3")
    assert "does not keep your progress" in page.evaluate(TROUBLE)
    assert page.evaluate(STATUS).startswith("Good: comes back in 10 minutes.")
    page.press("Space")
    assert page.evaluate(OPEN)
    assert page.errors == []


def test_another_tab_is_heard(page):
    graded = cards.cards()[0].question.id
    page.press("Space")
    page.press("4")
    text = page.evaluate(f"localStorage.getItem('{KEY}')")
    page.evaluate("document.querySelector('.trainer-undo').focus()")
    page.press("Enter")
    page.press("Escape")
    page.evaluate(
        f"(() => {{ localStorage.setItem('{KEY}', {json.dumps(text)});"
        f"dispatchEvent(new StorageEvent('storage', {{ key: '{KEY}' }})); }})()"
    )
    assert f"{len(cards.cards()) - 1} new" in page.evaluate(STATUS)
    assert page.evaluate(f"Object.keys({KEPT})") == [graded]


@pytest.mark.parametrize(("width", "dark"), [(1400, False), (390, True), (360, False)])
def test_every_answer_fits_and_is_typeset(browser, book, width, dark):
    """All answers one after the other; formulas without a network; text that can be read in both lights."""
    browser.open(book).evaluate("localStorage.clear()")
    page = browser.open(book, width=width, dark=dark)
    assert page.evaluate("document.documentElement.dataset.theme") == ("dark" if dark else "light")
    formulas = 0
    for number, _ in enumerate(deck := cards.cards()):
        page.press("Space")
        page.evaluate("MathJax.startup.promise")
        for _ in range(40):
            left = page.evaluate(
                "document.querySelectorAll('.trainer-shown .math').length"
                " - document.querySelectorAll('.trainer-shown .math mjx-container svg').length"
            )
            if not left:
                break
            page.settle(0.05)
        assert left == 0
        seen = page.evaluate("document.querySelectorAll('.trainer-shown mjx-container').length")
        formulas += seen
        assert page.evaluate("document.querySelectorAll('mjx-merror, [data-mjx-error]').length") == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= width, deck[number].question.id
        if number == 3:
            page.draw()
            assert page.evaluate(PALE) == []
        page.press("4")
    assert formulas > 50
    assert "Nothing is due." in page.evaluate(TEXT.format(".trainer-done"))
    assert page.evaluate(PALE) == []
    assert page.errors == []
    assert page.outside_requests == []


def test_everything_has_a_name(page):
    page.press("Space")
    unnamed = (
        "[...document.querySelectorAll('.interview-trainer :is(input, select, button, form, section, [role=group], "
        "[role=region])')].filter((e) => !(e.ariaLabel || e.textContent.trim() || e.labels?.[0]?.textContent.trim()))"
    )
    assert page.evaluate(f"{unnamed}.length") == 0
    assert page.evaluate("document.querySelector('.trainer-status').role") == "status"
    assert page.evaluate("document.querySelectorAll('.interview-trainer fieldset > legend').length") == 1


def test_without_a_script_the_page_says_so_and_leads_to_all_questions(browser, book):
    """The page as a browser sees it that runs no script: noscript is shown, and answers stay in their templates."""
    text = book.read_text(encoding="utf-8")
    (said,) = re.findall(r"<noscript>(.*?)</noscript>", text.split('class="interview-trainer"')[1], re.DOTALL)
    assert "needs JavaScript" in said
    (link,) = re.findall(r'href="([^"]+)"', said)
    assert (book.parent / link).resolve().is_file()
    assert text.count("<template ") == text.count("</template>") == len(apparatus.questions())
    page = browser.open(book)
    page.send("Emulation.setScriptExecutionDisabled", value=True)
    try:
        page.send("Page.reload")
        link = "document.querySelector('.interview-trainer ~ noscript a')"
        for _ in range(100):  # the page's own scripts are off, the protocol's are not; but no promise is ever kept
            time.sleep(0.1)
            asked = f"{link} && [{link}.getAttribute('href'), {link}.getBoundingClientRect().width]"
            shown = page.send("Runtime.evaluate", expression=asked, returnByValue=True)["result"].get("value")
            if shown:
                break
        assert "interview.html" in shown[0]
        assert shown[1] > 0
    finally:
        page.send("Emulation.setScriptExecutionDisabled", value=False)


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
