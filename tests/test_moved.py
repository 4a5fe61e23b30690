"""Addresses last: an anchor that has moved leads to one that exists, and is not there any more itself."""

import json
import re
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import docutils.utils
import pytest
from docutils import nodes

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "book" / "_ext"))

import apparatus  # noqa: E402
import moved  # noqa: E402

anchors_of = cache(moved.anchors_of)
ENTRIES = [(page, old, *target) for page, found in moved.moved().items() for old, target in found.items()]


@pytest.mark.parametrize(("page", "old", "now", "anchor"), ENTRIES, ids=lambda part: part)
def test_an_old_anchor_leads_to_one_that_exists(page, old, now, anchor):
    assert now in apparatus.pages_of_the_book()
    assert anchor in anchors_of(now)
    assert old not in anchors_of(page)


def test_the_script_has_every_address_relative_to_its_page():
    text = moved.script_of("notebooks/grpo", lambda page: f"{page.removeprefix('notebooks/')}.html")
    addresses = json.loads(re.search(r"moved = (\{.*?\});", text, re.DOTALL)[1])
    assert addresses["concept-group-size"] == "grpo-in-depth.html#concept-group-size"
    assert addresses["why-is-the-loss-zero"] == "#one-batch-by-hand"
    assert moved.script_of("book/index", str) is None


def test_what_is_written_wrongly_is_said(tmp_path):
    path = tmp_path / "moved.yml"
    path.write_text("book/index:\n  old: book/index\n")
    with pytest.raises(ValueError, match="expected page#anchor"):
        moved.moved(path)
    with pytest.raises(ValueError, match="no page"):
        moved.anchors_of("book/nothing")


def test_a_page_that_is_gone_is_a_sentence_with_a_link():
    assert set(moved.gone()) == {"book/over-optimisation", "book/ppo-details"}
    assert not set(moved.gone()) & set(apparatus.pages_of_the_book())
    app = App()
    app.env = SimpleNamespace(titles={now: nodes.title(text="PPO & more") for now, _ in moved.gone().values()})
    for page, context, template in moved.signposts(app):
        now, anchor = moved.gone()[page]
        assert f'<a href="{now.rpartition("/")[2]}.html#{anchor}">PPO &amp; more</a>' in context["body"]
        assert template == "page.html"
        moved.lead_on(app, page, template, context, None)
        assert f"#{anchor}" in app.scripts.pop()


class App:
    """What the extension uses of Sphinx: it collects the scripts of a page."""

    def __init__(self):
        self.scripts = []
        self.builder = self

    def get_relative_uri(self, page, target):
        return f"{target.rpartition('/')[2]}.html"

    def add_js_file(self, name, body):
        self.scripts.append(body)


def test_only_a_page_that_has_lost_something_gets_a_script():
    app = App()
    moved.lead_on(app, "book/index", "page.html", {}, None)
    assert app.scripts == []
    moved.lead_on(app, "notebooks/grpo", "page.html", {}, None)
    assert "grpo-in-depth.html#concept-group-size" in app.scripts[0]


class Book:
    """An environment whose pages have the anchors of their sources, without some."""

    def __init__(self, *lost):
        self.found_docs = apparatus.pages_of_the_book()
        self.lost = lost

    def get_doctree(self, page):
        document = docutils.utils.new_document(page)
        document += [nodes.section(ids=[name]) for name in moved.anchors_of(page) if name not in self.lost]
        return document


def test_the_build_warns_of_a_target_that_is_not_there(monkeypatch):
    said = []
    monkeypatch.setattr(moved.logging, "getLogger", lambda name: SimpleNamespace(warning=said.append))
    moved.check(None, Book())
    assert said == []
    moved.check(None, Book("concept-group-size"))
    assert len(said) == 1
    assert "concept-group-size, which does not exist" in said[0]
