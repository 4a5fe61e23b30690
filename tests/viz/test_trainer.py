"""What the trainer decides: when a question comes back, what is asked next, and which file it believes.

The module runs under Node here with the vendored scheduler and clocks of our own. Where Node is missing the test is
skipped and says so; tests/browser tries the same on the page.
"""

import json
import re
from pathlib import Path

import pytest

from tests.viz.node import run_in_node

ROOT = Path(__file__).resolve().parents[2]
MODULE = ROOT / "book" / "_pages" / "trainer.mjs"
VENDOR = ROOT / "book" / "_static" / "vendor"
LIBRARY = VENDOR / "ts-fsrs" / "index.mjs"
CARDS = [
    {"id": "a", "level": 1, "chapter": "gae"},
    {"id": "b", "level": 1, "chapter": "grpo"},
    {"id": "c", "level": 2, "chapter": "grpo"},
]


def run(script):
    """What the script leaves in `out`; `library`, `cards` and a few words are at hand."""
    head = (
        f"const library = await import({json.dumps(LIBRARY.as_uri())}), cards = {json.dumps(CARDS)};\n"
        'const at = (minutes) => new Date(Date.parse("2026-01-05T12:00:00Z") + minutes * 60e3);\n'
        "const grade = (state, id, rating, minutes) =>\n"
        "  maths.put(state, id, maths.outcomes(library, id, state.cards[id], at(minutes))[rating - 1]);\n"
        "const minutes = (card) => (Date.parse(card.due) - at(0)) / 60e3;\n"
        "const read = (text, more = {}) =>\n"
        "  maths.parse(text, { library, now: at(0), latest: at(0).getTime() + 864e5, ...more });\n"
        "const said = (work) => { try { work(); return null; } catch (problem) { return problem.message; } };\n"
        "let out;\n"
    )
    return run_in_node(MODULE, f"{head}{script}\nconsole.log(JSON.stringify(out));")


def test_the_vendored_scheduler_is_the_version_that_is_named():
    (version,) = re.findall(r"`ts-fsrs` (\d+\.\d+\.\d+)", (VENDOR / "README.md").read_text(encoding="utf-8"))
    assert run("out = library.FSRSVersion;").startswith(f"v{version} ")
    assert "MIT License" in (VENDOR / "ts-fsrs" / "LICENSE").read_text(encoding="utf-8")


def test_a_new_question_comes_back_in_minutes_or_days():
    found = run(
        "out = maths.outcomes(library, 'a', undefined, at(0)).map((card) => [minutes(card), card.state, card.reps]);"
    )
    assert [row[0] for row in found[:3]] == [1, 6, 10]
    assert 6 <= found[3][0] / (24 * 60) <= 10  # eight days, spread
    assert [row[1:] for row in found] == [[1, 1], [1, 1], [1, 1], [2, 1]]  # learning, and after "easy" in review


def test_every_success_moves_it_further_and_a_failure_near():
    found = run(
        "let state = maths.empty(), day = 24 * 60, now = 0; out = [];\n"
        "for (const rating of [3, 3, 3, 3, 3, 1]) {\n"
        '  state = grade(state, "a", rating, now);\n'
        "  out.push(minutes(state.cards.a) - now);\n"
        "  now = minutes(state.cards.a);\n"
        "}\nout.push(state.cards.a.lapses);"
    )
    *good, again, lapses = found
    assert good[0] == 10
    assert good[1:] == sorted(set(good[1:]))
    assert good[1] >= 24 * 60
    assert again == 10  # the first step of learning again
    assert lapses == 1


def test_the_times_are_those_of_the_scheduler():
    """FSRS says when the probability of knowing it has fallen to 0.9: about that day it is due."""
    found = run(
        "out = Array.from({ length: 100 }, (_, i) => {\n"
        "  const card = maths.outcomes(library, `q-${i}`, undefined, at(0))[3], days = card.scheduled_days;\n"
        "  return [card.stability, days, library.fsrs().forgetting_curve(days, card.stability)];\n});"
    )
    assert {stability for stability, _, _ in found} == {found[0][0]}
    days = [days for _, days, _ in found]
    assert sum(days) / 100 == pytest.approx(found[0][0], abs=0.5)
    assert all(known == pytest.approx(0.9, abs=0.025) for _, _, known in found)
    assert max(days.count(day) for day in days) < 50  # what was learned on one day does not return on one day


def test_a_button_says_the_time_that_comes_true():
    """The spread hangs on the question and on how often it was asked, not on the moment of the click."""
    found = run(
        'const card = maths.outcomes(library, "a", undefined, at(0))[3];\n'
        "const days = (state, minutes) =>\n"
        "  maths.outcomes(library, 'a', state, at(minutes)).map((card) => card.scheduled_days);\n"
        "out = [days(undefined, 0), days(undefined, 3), days(card, 14400), days(card, 14401)];"
    )
    assert found[0] == found[1]
    assert found[2] == found[3]


def test_what_is_due_comes_first_then_what_is_new():
    found = run(
        "let state = maths.empty(); const next = (minutes) => maths.next(state, cards, at(minutes))?.id ?? null;\n"
        'out = [next(0)]; state = grade(state, "a", 3, 0);\n'  # due at 10
        'out.push(next(0)); state = grade(state, "b", 1, 0);\n'  # due at 1
        'out.push(next(0.5), next(1), next(11)); state = grade(state, "c", 4, 2);\n'
        "out.push(next(0.5), next(10.5));\n"
        "out.push(maths.byDue(state, cards).map((card) => card.id).join(), maths.fresh(state, cards).length);"
    )
    assert found == ["a", "b", "c", "b", "b", None, "b", "b,a,c", 0]


def test_levels_and_chapters_choose():
    found = run(
        'out = [[[], ""], [[1], ""], [[], "grpo"], [[2], "grpo"], [[2], "gae"]].map(([levels, chapter]) =>\n'
        '  maths.chosen(cards, { levels, chapter }).map((card) => card.id).join(""));'
    )
    assert found == ["abc", "ab", "bc", "c", ""]


def test_a_clock_that_was_set_back_changes_no_more_than_it_must():
    found = run(
        'let state = grade(grade(maths.empty(), "a", 3, 0), "a", 3, 10);\n'
        'state = grade(state, "a", 3, -500);\n'
        "out = [state.cards.a.last_review === at(10).toISOString(), minutes(state.cards.a) > 10];"
    )
    assert found == [True, True]


def test_a_card_that_was_graded_by_a_clock_years_ahead_begins_now():
    found = run(
        'let state = grade(maths.empty(), "a", 4, 60 * 24 * 365 * 60);\n'
        'state = grade(state, "a", 3, 0);\n'
        "out = [state.cards.a.last_review === at(0).toISOString(), minutes(state.cards.a) / 60 / 24];"
    )
    assert found[0]
    assert 1 <= found[1] <= 12


def test_what_is_exported_is_read_again():
    found = run(
        'const state = grade(grade(maths.empty(), "a", 1, 0), "b-2", 4, 3);\nout = [read(maths.text(state)), state];'
    )
    assert found[0] == found[1]
    assert found[1]["cards"].keys() == {"a", "b-2"}


def test_of_two_states_the_later_grade_counts_and_nothing_is_lost():
    found = run(
        'const mine = grade(grade(maths.empty(), "a", 1, 5), "b", 3, 0);\n'
        'const theirs = grade(grade(maths.empty(), "a", 4, 0), "c", 2, 1);\n'
        "const one = maths.merge(mine, theirs), other = maths.merge(theirs, mine), same = maths.merge(mine, mine);\n"
        "out = [one.taken, other.taken, same.taken, Object.keys(one.state.cards).sort().join(),\n"
        "  one.state.cards.a.due === mine.cards.a.due, other.state.cards.a.due === mine.cards.a.due];"
    )
    assert found == [1, 2, 0, "a,b,c", True, True]


GOOD = {
    "due": "2026-01-05T12:10:00.000Z",
    "last_review": "2026-01-05T12:00:00.000Z",
    "stability": 2.3,
    "difficulty": 5.1,
    "scheduled_days": 0,
    "learning_steps": 1,
    "reps": 1,
    "lapses": 0,
    "state": 1,
}


def card(**changes):
    return json.dumps({"format": 1, "cards": {"a": {**GOOD, **changes}}})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it is no JSON"),
        ("{", "it is no JSON"),
        ("null", "it was not written by this trainer"),
        ("[1]", "it was not written by this trainer"),
        ('{"cards": {}}', "it was not written by this trainer"),
        ('{"format": 2, "cards": {}}', "its format is 2, and this page reads 1"),
        ('{"format": 1}', "it holds no cards"),
        ('{"format": 1, "cards": []}', "it holds no cards"),
        ('{"format": 1, "cards": {"a": null}}', "the card a has no usable contents"),
        ('{"format": 1, "cards": {"a b": {}}}', '"a b" is no question\'s id'),
        (card(due="soon"), "the card a has no usable due"),
        (card(due=5), "the card a has no usable due"),
        (card(last_review=None), "the card a has no usable last_review"),
        (card(stability=-1), "the card a has no usable stability"),
        (card(stability="2"), "the card a has no usable stability"),
        (card(difficulty=11), "the card a has no usable difficulty"),
        (card(reps=0), "the card a has no usable reps"),
        (card(reps=1.5), "the card a has no usable reps"),
        (card(state=0), "the card a has no usable state"),
        (card(scheduled_days=1e9), "the card a has no usable scheduled_days"),
        (card(stability=0.000001, state=2), "the card a has no usable stability"),
        (card(stability=36501, state=2), "the card a has no usable stability"),
        (card(last_review="+275760-09-13T00:00:00.000Z"), "the card a has no usable last_review"),
        (card(last_review="-000001-01-01T00:00:00.000Z"), "the card a has no usable last_review"),
        (card(due="+275760-09-13T00:00:00.000Z"), "the card a has no usable due"),
        (
            card(last_review="2026-01-07T00:00:00.000Z"),
            "the card a was graded on 2026-01-07, which is yet to come: a clock is wrong",
        ),
    ],
)
def test_a_bad_file_is_refused_with_what_is_wrong(text, said):
    assert run(f"out = said(() => read({json.dumps(text)}));") == said


def test_every_card_that_is_believed_can_be_asked_and_is_believed_again():
    """The corners of every bound, and years later: the scheduler takes each, and what it returns is read again."""
    found = run(
        """
        const all = {
          due: ["1970-01-01T00:00:00.000Z", "2399-12-31T00:00:00.000Z"],
          last_review: ["1970-01-01T00:00:00.000Z", "2026-01-06T12:00:00.000Z"],
          stability: [0.001, 2.3, 36500], difficulty: [1, 10], scheduled_days: [0, 36500],
          learning_steps: [0, 1, 2, 100], reps: [1, 999999], lapses: [0, 999999], state: [1, 2, 3],
        };
        const corners = Object.entries(all).reduce((found, [name, values]) =>
          found.flatMap((card) => values.map((value) => ({ ...card, [name]: value }))), [{}]);
        out = [corners.length, 0];
        for (const a of corners) {
          const { cards } = read(JSON.stringify({ format: 1, cards: { a } }));
          for (const minutes of [0, 60 * 24 * 365 * 30]) {
            for (const after of maths.outcomes(library, "a", cards.a, at(minutes))) {
              maths.card("a", after, Infinity);
              out[1] += 1;
            }
          }
        }"""
    )
    assert found == [2**6 * 3 * 4 * 3, 8 * 2**6 * 3 * 4 * 3]


def test_what_the_scheduler_refuses_is_refused_whatever_its_numbers():
    found = run(
        'const other = { ...library, fsrs: () => { throw new Error("Invalid memory state"); } };\n'
        f"out = said(() => read({json.dumps(card())}, {{ library: other }}));"
    )
    assert found == "Invalid memory state"


def test_of_what_the_browser_kept_the_good_cards_are_read():
    text = json.dumps({"format": 1, "cards": {"a": GOOD, "b": {**GOOD, "stability": 0}, "c d": GOOD, "e": GOOD}})
    found = run(
        f"const spoiled = []; out = [Object.keys(read({json.dumps(text)}, {{ spoiled }}).cards).join(), spoiled];"
    )
    assert found == ["a,e", ["the card b has no usable stability", '"c d" is no question\'s id']]


def test_a_step_is_taken_back_but_for_what_was_graded_since():
    found = run(
        'const old = grade(grade(maths.empty(), "a", 3, 0), "b", 3, 0);\n'
        'const next = grade(grade(grade(old, "a", 1, 5), "b", 1, 5), "c", 1, 5);\n'
        "const changes = maths.changes(old, next);\n"
        'const since = read(maths.text(grade(next, "b", 4, 6)));\n'  # other objects, of the same contents
        "const back = maths.undone(since, changes);\n"
        "out = [Object.keys(changes).join(), back.cards.a === old.cards.a,\n"
        "  back.cards.b === since.cards.b, 'c' in back.cards];\n"
        "const none = maths.changes(old, maths.empty());\n"  # all forgotten, and one begun again
        'const again = maths.undone(grade(maths.empty(), "b", 1, 9), none);\n'
        "out.push(again.cards.a === old.cards.a, again.cards.b.reps);"
    )
    assert found == ["a,b,c", True, True, False, True, 1]


def test_names_that_mean_something_to_javascript_are_refused_too():
    text = '{"format": 1, "cards": {"__proto__": ' + json.dumps(GOOD) + "}}"
    found = run(f"out = [said(() => read({json.dumps(text)})), {{}}.due ?? null];")
    assert found == ['"__proto__" is no question\'s id', None]


def test_a_card_keeps_only_what_belongs_to_it():
    text = card(extra="<b>x</b>")
    assert run(f"out = read({json.dumps(text)}).cards.a;") == GOOD


@pytest.mark.parametrize(
    ("minutes", "words"),
    [
        (0.2, "1 minute"),
        (10, "10 minutes"),
        (60, "1 hour"),
        (23.4 * 60, "23 hours"),
        (24 * 60, "1 day"),
        (8 * 24 * 60, "8 days"),
        (90 * 24 * 60, "3 months"),
        (1100 * 24 * 60, "3 years"),
    ],
)
def test_a_time_in_words(minutes, words):
    assert run(f"out = maths.wait({minutes} * 60e3);") == words
