"""The interview questions as cards: what the trainer and the Anki deck have in common. Nothing of Sphinx in here."""

from dataclasses import dataclass

import apparatus
import numbering
from data_files import title_of


@dataclass(frozen=True)
class Card:
    """A question, and the chapter under which it is learned."""

    question: apparatus.Question
    chapter: str  # the page of the core: notebooks/grpo

    @property
    def name(self) -> str:
        """The chapter's short name, for a tag: grpo."""
        return self.chapter.rpartition("/")[2]


def cards() -> list[Card]:
    """A card for each question: by level, and within a level in the order of the book.

    Raises:
        ValueError: a question that belongs to no chapter.
    """
    printed = printing_pages()
    order = list(numbering.chapters())
    made = [Card(asked, _chapter(asked, printed, order)) for asked in apparatus.questions().values()]
    return sorted(made, key=lambda card: (card.question.level, order.index(card.chapter)))


def printing_pages() -> dict[str, str]:
    """The first page of the book that prints each question."""
    pages: dict[str, str] = {}
    for page in numbering.chapters():
        for kind, *names in numbering.origins(page):
            if kind == "question":
                pages.setdefault(names[0], page)
    return pages


def _chapter(asked: apparatus.Question, printed: dict[str, str], order: list[str]) -> str:
    """The core of the chapter that prints a question, or else of the first that proves it."""
    page = printed.get(asked.id) or next((proof.page for proof in asked.proof if proof.page in order), None)
    if page is None:
        raise ValueError(f"{asked.id}: no chapter prints it or proves it, so it belongs to none")
    return page.removesuffix(numbering.DEPTH)


def title(chapter: str) -> str:
    """A chapter's title with its number, as the book prints it."""
    return numbering.numbered(title_of(chapter), chapter)
