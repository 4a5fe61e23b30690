"""The list of contents beside a page is short, opens where the reader is, and leads everywhere; tables become cards."""

import json
import re
from pathlib import Path

import pytest

import narrow_tables
import navigation
import search_words
from data_files import pages_below, pages_of_the_book, read

ROOT = Path(__file__).resolve().parents[1]


def contents(page):
    return navigation.contents(page, lambda other: f"{other}.html")


def test_every_page_is_in_the_list_once_whichever_is_open():
    for page in ("book/index", "notebooks/grpo", "book/solutions/gae", "genindex"):
        assert re.findall(r'href="([^"]+)\.html"', contents(page)) == list(pages_of_the_book())


@pytest.mark.parametrize("page", [page for page in pages_of_the_book() if page != "book/index"])
def test_only_the_part_of_the_open_page_is_unfolded_and_the_page_is_marked(page):
    found = contents(page)
    parts = re.split(r"(?=<details)", found)
    (own,) = (part["caption"] for part in read(ROOT / "_toc.yml")["parts"] if page in pages_below(part))
    unfolded = [re.search(r"<summary>(.*?)</summary>", part)[1] for part in parts if part.startswith("<details open")]
    assert unfolded == [own] + ["Solutions"] * page.startswith("book/solutions/")
    assert re.findall(r'href="([^"]+)\.html"[^>]*aria-current="page"', found) == [page]


def test_titles_are_short_and_said_once():
    named = navigation.data()["titles"]
    assert len(set(named.values())) == len(named)
    untitled = [page for page in pages_of_the_book() if page not in named and not page.endswith(navigation.DEPTH)]
    assert [page for page in untitled if not page.startswith("book/solutions/")] == ["book/index"]
    assert list(navigation.data()["words"]) == ["Read", "Figures", "Exercises", "Interview", "Teach"]
    assert set(navigation.data()["words"].values()) <= set(pages_of_the_book())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("words: {}\ntitles: {book/nothing: x}\n", "there is no page book/nothing"),
        (f"words: {{}}\ntitles: {{book/index: {'x' * 27}}}\n", "has more than 26 characters"),
    ],
)
def test_titles_that_do_not_fit_are_refused(text, said, tmp_path, monkeypatch):
    (tmp_path / "navigation.yml").write_text(text)
    monkeypatch.setattr(navigation, "NAVIGATION", tmp_path / "navigation.yml")
    with pytest.raises(ValueError, match=said):
        navigation.data.__wrapped__()


# ── tables on a phone ────────────────────────────────────────────────────────────────────────────────────────────


def table(*rows, classes="table", kind="p"):
    def row(cells, tag):
        return "<tr>" + "".join(f"<{tag}><{kind}>{cell}</{kind}></{tag}>" for cell in cells) + "</tr>"

    body = "".join(row(cells, "td") for cells in rows[1:])
    return f'<table class="{classes}">\n<thead>{row(rows[0], "th")}</thead>\n<tbody>{body}</tbody>\n</table>'


WORDS = table(
    ["advantage", r"\(\rho_t\)", "what the clip does"],
    ["positive, so the token was good", "above the range", "no gradient at all <em>from it</em>"],
)


def carded(text):
    return narrow_tables.TABLE.sub(narrow_tables.carded, text)


def test_a_table_of_words_says_in_each_cell_which_column_it_is():
    found = carded(WORDS)
    assert re.findall(r'<td role="cell" data-label="([^"]*)">', found) == ["advantage", "ρ_t", "what the clip does"]
    assert re.sub(r' (role|data-label)="[^"]*"', "", found).replace(" cards", "").replace("\n", "") == WORDS.replace(
        "\n", ""
    )
    assert found.count('role="row"') == 2
    assert found.count('role="columnheader"') == 3


@pytest.mark.parametrize(
    "text",
    [
        table(["a", "b", "c"], ["0.1", "0.2", "0.3"]),
        table(["a", "b"], ["x" * 60, "y" * 60]),
        WORDS.replace('class="table"', 'class="table sortable"'),
        WORDS.replace("<td>", '<td colspan="2">', 1),
        f'<div class="algorithm-table docutils">\n{WORDS}</div>',
        table(["a", "b", "c"]),
    ],
    ids=["numbers", "two columns", "sortable", "span", "across", "empty"],
)
def test_other_tables_stay_tables(text):
    assert carded(text) == text


# ── search ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_order_of_what_is_found_has_every_word_and_no_placeholder():
    script = search_words.order()
    places = json.loads(re.search(r"words: (\{.*?\}),\n", script)[1])
    assert places["gspo"] == "notebooks/gspo"
    assert len(places) == sum(map(len, search_words.words().values()))
    assert "WORDS," not in script
