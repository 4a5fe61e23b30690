"""The page of errata: every entry says what shows it, the front page links it, and every page leads to the form."""

import copy
import re
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import parse_qs, urlsplit

import jinja2
import pytest
import yaml

import apparatus
import errata
import theme

ROOT = Path(__file__).resolve().parents[1]

CLAIMS = apparatus.claims()
TOLD = errata.listed()
FORM = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / errata.FORM).read_text(encoding="utf-8"))
CONFIG = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
each = pytest.mark.parametrize("erratum", errata.errata(), ids=lambda erratum: erratum.id)


@each
def test_what_an_entry_says_now_is_shown(erratum):
    assert erratum.problems(CLAIMS) == []
    assert erratum.proof


@each
def test_an_entry_is_a_statement_and_says_what_changed(erratum):
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", erratum.id)
    assert erratum.was != erratum.now
    for text in (erratum.was, erratum.now):
        assert text.count("$") % 2 == 0
        assert text.count("`") % 2 == 0
    assert f"(erratum-{erratum.id})=" in TOLD
    for text in (erratum.was, erratum.now):
        assert " ".join(text.split()) in TOLD
    assert erratum.date <= date.today()


ENTRY = {
    "id": "a-number",
    "date": date(2026, 11, 23),
    "page": "book/errata",
    "was": "It is 1.",
    "now": "It is 2.",
    "proof": [{"test": "tests/test_errata.py::test_a_whole_entry_is_read"}],
}


def read(tmp_path, *entries):
    (tmp_path / "errata.yml").write_text(yaml.safe_dump(list(entries)))
    return errata.errata(tmp_path / "errata.yml")


def test_a_whole_entry_is_read(tmp_path):
    (plain, named) = read(tmp_path, ENTRY, {**ENTRY, "id": "b", "reported": "Ada"})
    assert plain.problems([]) == []
    assert "Reported by" not in errata._told(plain, [])
    assert "Reported by Ada." in errata._told(named, [])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"was": None}, "a-number: lacks"),
        ({"whta": "x"}, "mean nothing"),
        ({"date": "yesterday"}, "a-number.*: expected a date"),
        ({"proof": []}, "under proof, got"),
        ({"now": " "}, "under now, got"),
    ],
)
def test_an_incomplete_entry_is_refused(tmp_path, change, said):
    entry = {key: value for key, value in {**ENTRY, **change}.items() if value is not None}
    with pytest.raises(ValueError, match=said):
        read(tmp_path, entry)


def test_entries_stand_once_and_newest_first(tmp_path):
    with pytest.raises(ValueError, match="stands twice"):
        read(tmp_path, ENTRY, ENTRY)
    errata.errata.cache_clear()
    with pytest.raises(ValueError, match="newest first"):
        read(tmp_path, {**ENTRY, "date": date(2026, 11, 1)}, {**ENTRY, "id": "b"})


def test_an_entry_that_leads_nowhere_is_found(tmp_path):
    entry = {**copy.deepcopy(ENTRY), "page": "book/nothing"}
    entry["proof"].append({"page": "notebooks/grpo", "cell": "no-such-idea"})
    (erratum,) = read(tmp_path, entry)
    assert len(erratum.problems(CLAIMS)) == 2


# ── the way to report one ────────────────────────────────────────────────────────────────────────────────────────────


def test_the_form_asks_for_what_an_entry_needs():
    fields = {part["id"]: part for part in FORM["body"]}
    assert len(fields) == len(FORM["body"])
    assert {"where", "said", "wrong", "shown", "name"} <= set(fields)
    required = {name for name, part in fields.items() if part.get("validations", {}).get("required")}
    assert required == {"where", "said", "wrong"}
    assert all(part["type"] in ("input", "textarea") and part["attributes"]["label"] for part in FORM["body"])


def test_the_link_names_the_form_and_fills_in_the_page():
    address = urlsplit(errata.form("https://github.com/someone/something/", "notebooks/grpo"))
    assert address.path == "/someone/something/issues/new"
    asked = {name: value for name, (value,) in parse_qs(address.query).items()}
    assert asked == {"template": errata.FORM, "where": "notebooks/grpo"}
    assert {*asked} - {"template"} <= {part["id"] for part in FORM["body"]}


def shown_on(page, address):
    """The line at the foot of a page, from its template."""
    app = SimpleNamespace(config=SimpleNamespace(html_theme_options={"repository_url": address}))
    context = {"pathto": lambda other: f"../{other}.html"}
    theme.ask(app, page, "page.html", context, None)
    template = (ROOT / "book" / "_templates" / "report-error.html").read_text(encoding="utf-8")
    return jinja2.Environment(autoescape=True).from_string(template).render(context)


def test_every_page_ends_with_the_link():
    (name,) = CONFIG["sphinx"]["config"]["html_theme_options"]["article_footer_items"]
    assert [ROOT / folder / name for folder in CONFIG["sphinx"]["config"]["templates_path"]] == [
        ROOT / "book" / "_templates" / "report-error.html"
    ]
    assert "theme" in CONFIG["sphinx"]["local_extensions"]
    line = shown_on("notebooks/grpo", "https://github.com/a/b")
    assert 'href="https://github.com/a/b/issues/new?template=erratum.yml&amp;where=notebooks/grpo"' in line
    assert 'href="../book/errata.html#how-to-report-one"' in shown_on("notebooks/grpo", "")


def test_the_page_says_where_the_form_is(monkeypatch):
    monkeypatch.setattr(errata, "repository", lambda: "https://github.com/a/b")
    assert "](https://github.com/a/b/issues/new?template=erratum.yml)" in errata.way_to_report()
    monkeypatch.setattr(errata, "repository", lambda: "")
    assert FORM["name"] in errata.way_to_report()
    assert "http" not in errata.way_to_report()
    text = (ROOT / "book" / "errata.md").read_text(encoding="utf-8")
    assert "\n## How to report one\n" in text


def test_the_front_page_links_the_errata():
    assert "](errata.md)" in (ROOT / "book" / "index.md").read_text(encoding="utf-8")
    assert "book/errata" in apparatus.pages_of_the_book()
