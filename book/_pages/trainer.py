"""The interview questions one at a time, graded by the reader, brought back when they are due.

Three things go into the page, since a page opened from disk may not fetch any of them: the list of cards as JSON, the
answers as <template>s, with links and formulas as on every other page, and two modules, `trainer.mjs` beside this file
and the vendored ts-fsrs. Everything about a question comes from book/data/questions.yml, in the order of `cards.py`.
"""

import base64
import json
from pathlib import Path

import apparatus
import cards
from apparatus_pages import answer
from printing import as_script

MODULE = Path(__file__).with_name("trainer.mjs")
LIBRARY = apparatus.ROOT / "book" / "_static" / "vendor" / "ts-fsrs" / "index.mjs"

PAGE = """\
<link rel="stylesheet" href="../_static/trainer.css">
<div class="interview-trainer" tabindex="-1"></div>
<noscript><p>The trainer needs JavaScript. Without it, read <a href="interview.html">all questions on one page</a>.</p>
</noscript>

<script type="application/json" id="trainer-deck">{deck}</script>
<script type="module">
{module}
const library = await import("data:text/javascript;base64,{library}");
trainer.start({{
  root: document.querySelector(".interview-trainer"),
  deck: JSON.parse(document.getElementById("trainer-deck").textContent),
  library,
  now: () => new Date(),
}});
</script>
"""


TEMPLATE = """\
<template class="trainer-answer" data-id="{}">

{}

</template>"""


def deck_of(found: list[cards.Card]) -> dict:
    """What the page is told of its cards: everything but the answers."""
    chapters = list(dict.fromkeys(card.chapter for card in sorted(found, key=in_the_book)))
    return {
        "levels": apparatus.LEVELS,
        "chapters": [{"name": chapter.rpartition("/")[2], "title": cards.title(chapter)} for chapter in chapters],
        "cards": [
            {
                "id": card.question.id,
                "level": card.question.level,
                "chapter": card.name,
                "question": card.question.question,
            }
            for card in found
        ],
    }


def in_the_book(card: cards.Card) -> int:
    """The place of a card's chapter in the book."""
    return list(cards.numbering.chapters()).index(card.chapter)


def answers() -> str:
    """All answers, for the page to show one at a time; the search finds them on the page of all questions."""
    found = apparatus.claims()
    return "\n\n".join(TEMPLATE.format(card.question.id, answer(card.question, found)) for card in cards.cards())


def page() -> str:
    """What asks for them."""
    return PAGE.format(
        deck=json.dumps(deck_of(cards.cards())).replace("</", "<\\/"),
        module=as_script(MODULE.name, MODULE.read_text(encoding="utf-8"), "trainer"),
        library=base64.b64encode(LIBRARY.read_bytes()).decode("ascii"),
    )
