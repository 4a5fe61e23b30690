"""The Anki deck, read back as Anki would: a zip with a database in it."""

import importlib.util
import json
import re
import sqlite3
import zipfile
from html.parser import HTMLParser
from pathlib import Path

import pytest

import apparatus
import cards

ROOT = Path(__file__).resolve().parents[1]


def tool():
    spec = importlib.util.spec_from_file_location("deck", ROOT / "book" / "_tools" / "deck.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


DECK = tool()


def read(folder, path):
    """The notes of a deck, {id of the question: (guid, tags, fields by name)}, and what the collection says of it."""
    with zipfile.ZipFile(path) as package:
        package.extract("collection.anki2", folder)
    database = sqlite3.connect(folder / "collection.anki2")
    models, decks = (json.loads(text) for text in database.execute("select models, decks from col").fetchone())
    (model,) = models.values()
    names = [field["name"] for field in model["flds"]]
    rows = database.execute("select guid, mid, tags, flds from notes").fetchall()
    numbers = [database.execute(f"select count(*) from {table}").fetchone()[0] for table in ("notes", "cards")]
    database.close()
    notes = {}
    for guid, kind, tags, text in rows:
        assert str(kind) == str(model["id"])
        values = dict(zip(names, text.split("\x1f"), strict=True))
        notes[values["Id"]] = (guid, tags.split(), values)
    return notes, model, decks, numbers


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("deck")
    assert DECK.main(["--out", str(folder / "deck.apkg"), "--address", ""]) == 0
    return read(folder, folder / "deck.apkg")


def test_every_question_is_a_note_with_one_card(made):
    notes, _, _, numbers = made
    assert set(notes) == set(apparatus.questions())
    assert numbers == [len(notes), len(notes)]


def test_a_note_has_all_that_the_page_of_questions_has(made):
    notes, model, _, _ = made
    for id, asked in apparatus.questions().items():
        values = notes[id][2]
        assert all(values.values()), id
        assert DECK.html(asked.answer, id) in values["Answer"]
        assert values["Next"].count("<li>") == len(asked.follow_ups)
        assert values["Proof"].count("<li>") == len(asked.proof)
        assert all(proof.test in values["Proof"] for proof in asked.proof)
    (template,) = model["tmpls"]
    shown = set(re.findall(r"{{(\w+)}}", template["qfmt"] + template["afmt"])) - {"FrontSide"}
    assert shown | {"Id"} == set(notes["q-x-group-size"][2])


def test_formulas_are_ankis_and_nothing_of_the_book_is_left(made):
    formulas = 0
    for id, (_, _, values) in made[0].items():
        text = "".join(values.values())
        assert "$" not in text, id
        assert not re.search(r"\{[\w:.-]+\}`", text), id
        assert "**" not in text, id
        assert text.count("\\(") == text.count("\\)"), id
        assert text.count("\\[") == text.count("\\]"), id
        formulas += text.count("\\(")
    assert formulas > 100
    assert r"\(2 \arcsin\sqrt p\)" in made[0]["q-x-group-size"][2]["Answer"]


class Balanced(HTMLParser):
    """Every element that is opened is closed."""

    def __init__(self, text):
        super().__init__()
        self.open = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        if tag not in ("br", "hr"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_fields_are_whole_html(made):
    for _, _, values in made[0].values():
        for text in values.values():
            assert Balanced(text).open == []
    assert Balanced("<p>x").open == ["p"]


def test_tags_name_chapter_level_and_topics(made):
    for card in cards.cards():
        tags = made[0][card.question.id][1]
        assert {f"chapter::{card.name}", f"level::{card.question.level}"} <= set(tags)
        assert len(tags) == 2 + len(card.question.topics)
    assert "chapter::mixture-of-experts" in made[0]["q-moe-gspo"][1]  # printed there, proved first in another chapter


def test_a_second_import_updates(made, tmp_path, monkeypatch):
    """Anki knows a note by its guid and its type: a question whose words change keeps both."""
    notes, model, decks, _ = made
    assert (int(model["id"]), DECK.DECK) == (1893460227, 1746239051)
    assert "1746239051" in decks
    assert notes["q-x-group-size"][0] == "j{MD0uA{vh"
    assert len({guid for guid, _, _ in notes.values()}) == len(notes)
    old = apparatus.questions()["q-x-group-size"]
    new = apparatus.Question(**{**vars(old), "question": "What else?", "level": 1})
    asked = {**apparatus.questions(), old.id: new}
    monkeypatch.setattr(apparatus, "questions", lambda: asked)
    DECK.main(["--out", str(tmp_path / "deck.apkg"), "--address", ""])
    later, again, _, _ = read(tmp_path, tmp_path / "deck.apkg")
    assert again["id"] == model["id"]
    assert {id: note[0] for id, note in later.items()} == {id: note[0] for id, note in notes.items()}
    assert later[old.id][2]["Question"] == "What else?"


def test_the_deck_says_whose_it_is_and_under_which_licence(made):
    words = made[2][str(DECK.DECK)]["desc"]
    config = DECK.configured()
    for part in (config["title"], config["author"], "CC BY 4.0", "creativecommons.org/licenses/by/4.0/"):
        assert part in words
    assert re.search(r"as of \d{4}-\d\d-\d\d\.", words)
    assert words.count("<br>") == 1  # no address, no line for it
    there = DECK.description({**config, "repository": {"url": "https://example.org/code"}}, "https://example.org/b?a&b")
    assert 'href="https://example.org/code"' in there
    assert 'href="https://example.org/b?a&amp;b"' in there


def test_without_an_address_chapter_and_section_are_named(made):
    proof = made[0]["q-x-group-size"][2]["Proof"]
    assert "href" not in "".join("".join(values.values()) for _, _, values in made[0].values())
    claim = next(c for c in apparatus.claims() if (c.page, c.concept) == ("notebooks/grpo-in-depth", "q-x-group-size"))
    assert cards.title("notebooks/grpo-in-depth") in proof
    assert f"<em>{claim.heading}</em>" in proof


def test_with_an_address_links_are_absolute(tmp_path):
    DECK.main(["--out", str(tmp_path / "deck.apkg"), "--address", "https://example.org/book/"])
    notes, _, _, _ = read(tmp_path, tmp_path / "deck.apkg")
    links = [link for _, _, v in notes.values() for link in re.findall(r'href="([^"]+)"', "".join(v.values()))]
    assert len(links) == sum(not proof.test for asked in apparatus.questions().values() for proof in asked.proof)
    assert all(link.startswith("https://example.org/book/notebooks/") for link in links)
    assert "https://example.org/book/notebooks/grpo-in-depth.html#concept-q-x-group-size" in links
    with pytest.raises(SystemExit):
        DECK.main(["--address", "example.org"])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("half $a < b$ done", r"<p>half \(a &lt; b\) done</p>"),
        ("all\n\n$$\nx_1\n$$\n", "<p>all</p>\n\\[x_1\\]"),
        ("all $$x$$ in a line", r"<p>all \[x\] in a line</p>"),
        ("`a < $b$` and *c*", "<p><code>a &lt; $b$</code> and <em>c</em></p>"),
        ("<b>no tags</b>", "<p>&lt;b&gt;no tags&lt;/b&gt;</p>"),
        ("[GRPO](https://arxiv.org/abs/2402.03300)", '<p><a href="https://arxiv.org/abs/2402.03300">GRPO</a></p>'),
    ],
)
def test_markdown_becomes_html_and_mathjax(text, shown):
    assert DECK.html(text, "q-x") == shown


def test_a_title_that_begins_with_a_number_is_no_list():
    assert DECK.html("3. Three *of* $k$", "q-x", inline=True) == r"3. Three <em>of</em> \(k\)"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("see {eq}`eq-gae`", "the role {eq}`eq-gae`"),
        ("so say {cite:p}`grpo`", "the role {cite:p}`grpo`"),
        ("[there](../notebooks/grpo.ipynb)", "leads nowhere outside the book"),
        ("it costs 3 $ at most", "a dollar without a partner"),
    ],
)
def test_what_a_card_cannot_show_is_refused(text, said):
    with pytest.raises(ValueError, match="q-x: ") as problem:
        DECK.html(text, "q-x")
    assert said in str(problem.value)


def test_a_question_that_belongs_to_no_chapter_is_refused():
    asked = next(iter(apparatus.questions().values()))
    lost = apparatus.Question(**{**vars(asked), "proof": (apparatus.Proof(test="tests/test_deck.py::tool"),)})
    with pytest.raises(ValueError, match="no chapter prints it or proves it"):
        cards._chapter(lost, {}, list(cards.numbering.chapters()))
