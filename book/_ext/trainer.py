"""`{interview-trainer}`: the interview questions one at a time, graded by the reader, brought back when they are due.

    ```{interview-trainer}
    ```

Three things go into the page, since a page opened from disk may not fetch any of them: the list of cards as JSON, the
answers as <template>s, with links and formulas as on every other page, and two modules, `trainer.mjs` beside this file
and the vendored ts-fsrs. Everything about a question comes from book/data/questions.yml, in the order of `cards.py`.
"""

import base64
import json
from html import escape
from pathlib import Path

import apparatus
import cards
from apparatus_pages import Apparatus, html
from data_files import told_on_the_page
from docutils import nodes

MODULE = Path(__file__).with_name("trainer.mjs")
LIBRARY = apparatus.ROOT / "book" / "_static" / "vendor" / "ts-fsrs" / "index.mjs"
ALL_QUESTIONS = "book/interview"

PAGE = """\
<div class="interview-trainer" tabindex="-1"></div>
<noscript><p>The trainer needs JavaScript. Without it, read <a href="{plain}">all questions on one page</a>.</p>
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


def script() -> str:
    """The trainer's module as part of a script: its default export becomes a constant."""
    source = MODULE.read_text(encoding="utf-8")
    head, export, rest = source.partition("export default ")
    if not export or "export " in rest:
        raise ValueError(
            f"{MODULE.name} has to have one `export default` and no other export: it is copied into the page"
        )
    return f"{head}const trainer = {rest}".replace("</script", "<\\/script")


class InterviewTrainer(Apparatus):
    @told_on_the_page
    def run(self):
        self.env.note_reread()
        found, made = apparatus.claims(), cards.cards()
        builder = self.env.app.builder
        page = PAGE.format(
            plain=escape(builder.get_relative_uri(self.env.docname, ALL_QUESTIONS)),
            deck=json.dumps(deck_of(made)).replace("</", "<\\/"),
            module=script(),
            library=base64.b64encode(LIBRARY.read_bytes()).decode("ascii"),
        )
        answers = [trainer_answer("", "", *self.answer(card.question, found), card=card.question.id) for card in made]
        return [*answers, html(page)]


class trainer_answer(nodes.comment):
    """What stands in a <template>. The search passes comments by: answers are found on the page of all questions."""


def visit_html(self, node):
    self.body.append(f'<template class="trainer-answer" data-id="{escape(node["card"])}">')


def depart_html(self, node):
    self.body.append("</template>")


def visit_elsewhere(self, node):
    raise nodes.SkipNode


def style(app, pagename, templatename, context, doctree):
    """The trainer's style sheet, on its page alone."""
    if 'class="interview-trainer"' in context.get("body", ""):
        app.add_css_file("trainer.css")


def setup(app):
    app.add_directive("interview-trainer", InterviewTrainer)
    elsewhere = (visit_elsewhere, None)
    app.add_node(trainer_answer, html=(visit_html, depart_html), latex=elsewhere, text=elsewhere)
    app.connect("html-page-context", style)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
