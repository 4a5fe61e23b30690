"""Write the interview questions as a deck for Anki: `python book/_tools/deck.py`, which is `make deck`.

    python book/_tools/deck.py                                  writes _build/rlhf-interview.apkg
    python book/_tools/deck.py --address https://…/book         and links to the book where it is published

Everything comes from book/data/questions.yml. The ids of the deck, of its note type and of every note stay the same, so
that importing a newer deck updates the cards and keeps what Anki knows about a reader's memory. The book's address is
that of `html: baseurl` in _config.yml; while there is none, proofs are named by chapter and section, without a link.
"""

import argparse
import sys
from datetime import date
from html import escape
from pathlib import Path

import genanki
import yaml
from markdown_it import MarkdownIt
from mdit_py_plugins.dollarmath import dollarmath_plugin
from mdit_py_plugins.myst_role import myst_role_plugin

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "book" / "_pages"), str(ROOT / "notebooks")]

import apparatus  # noqa: E402
import cards  # noqa: E402

OUT = ROOT / "_build" / "rlhf-interview.apkg"
# Drawn once. Anki knows the deck and the note type by them: never change them.
DECK, NOTE_TYPE = 1746239051, 1893460227
NAME = "Reinforcement learning for language models: interview"
FIELDS = ["Id", "Question", "Answer", "Wrong", "Next", "Proof", "About"]

FRONT = '<div class="about">{{About}}</div><div class="question">{{Question}}</div>'
BACK = """\
{{FrontSide}}<hr id="answer">
{{Answer}}
<p><b>Often said, and wrong.</b></p>{{Wrong}}
<p><b>They may ask next.</b></p>{{Next}}
<p><b>Where it is proved.</b></p>{{Proof}}"""
STYLE = """\
.card { font-family: sans-serif; font-size: 18px; line-height: 1.45; text-align: start;
  max-width: 40em; margin: 0 auto; padding: 0.5em; }
.question { font-size: 1.15em; font-weight: 600; }
.about { font-size: 0.8em; opacity: 0.75; }
code { overflow-wrap: anywhere; }"""


class Note(genanki.Note):
    """A note that Anki knows by its question's id, whatever its words are."""

    @property
    def guid(self):
        return genanki.guid_for("rlhf-minimal", self.fields[0])


def mathematics(text: str, options: dict) -> str:
    """A formula as Anki's MathJax takes it."""
    left, right = ("\\[", "\\]") if options["display_mode"] else ("\\(", "\\)")
    return f"{left}{escape(text.strip(), quote=False)}{right}"


def _formula(self, tokens, index, options, env):
    return mathematics(tokens[index].content, {"display_mode": tokens[index].type != "math_inline"})


MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table")
MARKDOWN.use(dollarmath_plugin, double_inline=True).use(myst_role_plugin)
for kind in ("math_inline", "math_inline_double", "math_block"):
    MARKDOWN.add_render_rule(kind, _formula)


def html(text: str, where: str, *, inline: bool = False) -> str:
    """Markdown as a field of a note; `inline` for a title, which is no paragraph even if it begins with "1. ".

    Raises:
        ValueError: a role, a link into the book or a lone dollar, none of which means anything in Anki.
    """
    for token in MARKDOWN.parseInline(text) if inline else MARKDOWN.parse(text):
        for part in (token, *(token.children or ())):
            if part.type == "myst_role":
                raise ValueError(f"{where}: a card cannot show the role {{{part.meta['name']}}}`{part.content}`")
            if part.type == "link_open" and "://" not in str(part.attrs["href"]):
                raise ValueError(f"{where}: the link to {part.attrs['href']!r} leads nowhere outside the book")
            if part.type == "text" and "$" in part.content:
                raise ValueError(f"{where}: a dollar without a partner in {part.content!r}")
    return (MARKDOWN.renderInline(text) if inline else MARKDOWN.render(text)).strip()


def proofs(asked: apparatus.Question, found: list[apparatus.Claim], address: str) -> str:
    """Where an answer is proved: chapters and sections, links where the book has an address, and names of tests."""
    lines = []
    for proof in asked.proof:
        if proof.test:
            lines.append(f"the test <code>{escape(proof.test)}</code>")
            continue
        claim = proof.claim(found)
        if claim is None:
            raise ValueError(f"{asked.id}: {proof.problem(found)}")
        section = html(f"{cards.title(proof.page)}, under *{claim.heading}*", asked.id, inline=True)
        if address:
            section = f'<a href="{escape(address.rstrip("/"))}/{proof.page}.html#{escape(claim.name)}">{section}</a>'
        lines.append(section)
    return "<ul>" + "".join(f"<li>{line}</li>" for line in lines) + "</ul>"


def fields(card: cards.Card, found: list[apparatus.Claim], address: str) -> list[str]:
    """The fields of a card's note, in the order of FIELDS."""
    asked = card.question
    follow_ups = "\n".join(f"- *{one.question}* {one.answer}" for one in asked.follow_ups)
    return [
        asked.id,
        escape(asked.question, quote=False),
        html(asked.answer, asked.id),
        html(asked.wrong, asked.id),
        html(follow_ups, asked.id),
        proofs(asked, found, address),
        escape(
            f"Level {asked.level} ({apparatus.LEVELS[asked.level]}), chapter {cards.title(card.chapter)}", quote=False
        ),
    ]


def description(config: dict, address: str) -> str:
    """What Anki shows above the deck: from which book it is, whose, under which licence, and of which day."""
    repository = (config.get("repository") or {}).get("url") or ""
    places = [f'<a href="{escape(place)}">{escape(place)}</a>' for place in (address, repository) if place]
    lines = [
        f"The interview questions of <i>{escape(config['title'])}</i>, as of {date.today().isoformat()}.",
        f"Text: {escape(str(config['copyright']))}, {escape(config['author'])},"
        ' <a href="https://creativecommons.org/licenses/by/4.0/">CC BY 4.0</a>.',
        *([" ".join(places)] if places else []),
    ]
    return "<br>".join(lines)


def deck(address: str = "") -> genanki.Deck:
    """The deck, with a note for each question, in the order in which the trainer asks them."""
    style = [{"name": "Question", "qfmt": FRONT, "afmt": BACK}]
    kind = genanki.Model(NOTE_TYPE, "Interview question", [{"name": name} for name in FIELDS], style, css=STYLE)
    made, found = genanki.Deck(DECK, NAME, description(configured(), address)), apparatus.claims()
    for card in cards.cards():
        tags = [f"chapter::{card.name}", f"level::{card.question.level}"]
        tags += [f"topic::{topic.replace(' ', '-')}" for topic in card.question.topics]
        made.add_note(Note(model=kind, fields=fields(card, found, address), tags=tags))
    return made


def configured() -> dict:
    """The book's _config.yml."""
    return yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))


def published() -> str:
    """The address of the book, empty until somebody has published it."""
    return (configured().get("html") or {}).get("baseurl") or ""


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Write the interview questions as a deck for Anki.")
    parser.add_argument("--out", type=Path, default=OUT, help="the file to write")
    parser.add_argument("--address", default=published(), help="where the book is published, for links to its proofs")
    asked = parser.parse_args(words)
    if asked.address and not asked.address.startswith(("http://", "https://")):
        parser.error(f"--address {asked.address!r}: expected an address that begins with http:// or https://")
    made = deck(asked.address)
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    genanki.Package(made).write_to_file(str(asked.out))
    print(f"{len(made.notes)} questions: {asked.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
