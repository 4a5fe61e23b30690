"""The page on history: its data against the bibliography, the rows and the pages that it links to."""

import re
from pathlib import Path
from xml.etree import ElementTree

from docutils.nodes import make_id

import bibliography
import history
import rows as pages
from rlhf_book.facts import facts_of, families
from rlhf_minimal import ALGORITHMS, PAIRWISE, diff

ROOT = Path(__file__).resolve().parents[1]

TIMELINE, READING = history.entries("timeline"), history.entries("reading")


def test_every_paper_is_in_the_bibliography_and_stands_once():
    for entries in (TIMELINE, READING):
        keys = [entry["paper"] for entry in entries if "paper" in entry]
        assert len(set(keys)) == len(keys)
        assert set(keys) <= history.papers().keys()


def test_the_bibliography_is_read_whole():
    text = (ROOT / "book" / "references.bib").read_text(encoding="utf-8")
    assert len(history.papers()) == len(re.findall(r"^@", text, re.MULTILINE))
    assert history.papers()["lambert2024tulu3"]["title"].startswith("Tülu 3: ")
    assert bibliography.plain(r"Gall{\'e} and {\"U}st{\"u}n, Kov\'{a}{\v{c}} and Fran\c{c}ois") == (
        "Gallé and Üstün, Kováč and François"
    )
    for paper in history.papers().values():
        assert not re.search(r"""[{}]|\\["'`^~=.]""", "".join(paper.values())), paper
    assert sum(bool(paper["eprint"]) for paper in history.papers().values()) == len(re.findall("eprint = ", text))


def test_papers_stand_in_the_order_of_time():
    """By the arXiv's number where there is one: it counts months, and papers within a month."""
    dated = [history.papers()[entry["paper"]]["eprint"] for entry in TIMELINE]
    numbers = [float(number) for number in dated if number]
    assert numbers == sorted(numbers)
    years = [history.month(entry["paper"])[:4] for entry in TIMELINE]
    assert years == sorted(years)
    assert history.month("schulman2017ppo") == "2017-07"
    assert history.month("williams1992") == "1992"


def test_the_drawn_timeline_names_every_paper_to_scale_and_no_two_lines_overlap():
    drawing = ElementTree.fromstring(history.drawn_timeline())
    names = [part.text for part in drawing.iter("tspan") if "name" in part.get("class", "")]
    assert sorted(names) == sorted(entry["name"] for entry in TIMELINE)
    heights = [float(text.get("y")) for text in drawing.findall("text") if text.get("x") == str(history.AXIS + 26)]
    assert heights == sorted(heights)
    assert all(low - high >= history.APART for high, low in zip(heights, heights[1:], strict=False))
    year = history.since("2026-01") - history.since("2025-01")
    assert year == 6 * (history.since("2016-01") - history.since("2015-01"))  # as the page says
    assert history.since("2023-01") - history.since("2022-12") == history.SLOW


def test_a_row_on_the_timeline_is_that_papers_row():
    for entry in TIMELINE:
        for row in entry.get("rows", ()):
            assert entry["paper"] in facts_of(row).paper, (entry["paper"], row)
        assert set(entry.get("pairs", ())) <= set(PAIRWISE)


def test_every_row_is_on_the_timeline():
    named = {row for entry in TIMELINE for row in entry.get("rows", ())}
    assert named == set(ALGORITHMS), "book/data/history.yml names a row under its paper: `rows: [name]`"
    assert {row for entry in TIMELINE for row in entry.get("pairs", ())} == set(PAIRWISE) - {"bradley_terry"}


def test_each_says_in_one_sentence_what_changed():
    for entry in TIMELINE:
        assert entry["changed"].endswith(".")
        assert len(entry["changed"].split()) <= 30
    lines = history.timeline().splitlines()
    assert len(lines) == 2 + len(TIMELINE)


def test_a_row_of_several_papers_has_the_months_of_the_first_and_the_last():
    assert history.born("grpo") == "2024-02"
    assert history.born("ppo") == "2017-07 to 2022-03"
    assert history.born("rloo") == "2019 to 2024-02"
    assert history.born("kimi_k2") == "2025-01 to 2025-07"
    assert all(history.born(row) for row in ALGORITHMS)


def test_stars_are_at_columns_that_change():
    with_choices = history.entries("ours")
    assert set(with_choices) <= set(ALGORITHMS)
    for row, told in with_choices.items():
        assert told["columns"]
        assert set(told["columns"]) <= set(history.changed(history.nearest()[row], row)), row
        assert told["instead"] in history.tree_in_words()
        assert history.svg().count(f">{facts_of(row).title}<") == 1
        for column in told["columns"]:
            assert f"{column}*" in history.columns(history.nearest()[row], row)


def test_pages_that_say_how_much_a_step_changes_count_it():
    changed = [len(history.changed(start, row)) for row, start in history.nearest().items() if start is not None]
    steps, few = len(changed), sum(count <= 3 for count in changed)
    front, readme = ((ROOT / page).read_text(encoding="utf-8") for page in ("book/index.md", "README.md"))
    assert f"of {steps} steps from one method to another, {few} change at most three" in " ".join(front.split())
    assert f"of {steps} steps from one method to another, {few} change at most three" in " ".join(readme.split())
    assert few > steps / 2


def test_reading_names_a_reason_and_a_chapter():
    assert 10 <= len(READING) <= 15
    for entry in READING:
        assert (ROOT / f"{entry['chapter']}.ipynb").exists()
        assert len(entry["why"].split()) >= 8
        assert ("paper" in entry) != ("link" in entry)


def test_the_tree_has_every_row_once_below_one_that_it_is_a_step_from():
    order = [row for row, _ in history.in_order()]
    assert sorted(order) == sorted(ALGORITHMS)
    depth = dict(history.in_order())
    for row in order:
        start = history.nearest()[row]
        if start is None:
            assert (row, depth[row]) == ("reinforce", 0)
            continue
        starts = [step.start for step in facts_of(row).steps]
        assert start in starts
        assert all(len(history.changed(start, row)) <= len(history.changed(other, row)) for other in starts)
        assert depth[row] == depth[start] + 1
        assert order.index(start) < order.index(row)


def test_the_tree_is_neither_descent_nor_likeness():
    """An older row below a younger one, and rows whose nearest row is not the one above, counted here pair by pair."""
    text = history.not_descent()
    years = [int(year) for year in re.findall(r"\((\d{4})-\d\d\)", text)]
    assert years[0] < years[1]
    start = history.nearest()["dro"]
    assert f"in {diff(start, 'dro').count('; ') + 1} columns" in text
    assert f"Kimi K1.5 and K2 in {diff('kimi_k2', 'dro').count('; ') + 1}" in text
    below = {row: start for row, start in history.nearest().items() if start is not None}
    nearer = [
        row
        for row, start in below.items()
        if any(diff(one, row).count("; ") < diff(start, row).count("; ") for one in ALGORITHMS if one != row)
    ]
    assert f"Of the {len(below)} rows below another, {len(nearer)} have" in text


def test_a_key_names_every_colour_of_the_tree():
    found = dict(re.findall(r'fill="(#\w+)"/></svg> ([^<]*)<', history.key()))
    assert set(found) == set(re.findall(r'<circle [^>]*fill="(#\w+)"', history.svg()))
    assert len(found) == len(families())
    assert "PPO, with a critic and without" in found.values()


def test_an_edge_says_the_columns_that_change():
    names = {"s": "{http://www.w3.org/2000/svg}"}
    drawing = ElementTree.fromstring(history.svg().replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1))
    links = drawing.findall(f"{names['s']}a")
    assert len(links) == len(ALGORITHMS)
    for link, (row, _) in zip(links, history.in_order(), strict=True):
        text = "".join(link.itertext())
        assert facts_of(row).title in text
        start = history.nearest()[row]
        if start is not None:
            assert diff(start, row) in text
            assert history.columns(start, row) in text
    assert len(drawing.findall(f"{names['s']}path")) == len(ALGORITHMS) - 1
    assert drawing.get("aria-label")


def test_a_line_of_the_tree_fits_its_width():
    """At 15 and 13 pixels a letter is at most 8.5 and 7.2 wide on average."""
    for row, depth in history.in_order():
        start = history.nearest()[row]
        small = f" {history.born(row)} " + (history.columns(start, row) if start else "")
        small += "".join(f" · also from {facts_of(one).title}" for one in history.others(row))
        width = history.LEFT + history.INDENT * depth + 12 + 8.5 * len(facts_of(row).title) + 7.2 * len(small)
        assert width <= history.WIDTH, row


def test_a_link_of_the_tree_is_a_section_of_the_page_of_steps():
    sections = {make_id(title) for title in re.findall(r"^### (.*)$", pages.steps(), re.MULTILINE)}
    for row in ALGORITHMS:
        page, _, anchor = history.place_of(row).partition("#")
        assert (ROOT / "book" / page.replace(".html", ".md")).exists()
        assert not anchor or anchor in sections, anchor


def test_the_tree_in_words_has_every_step():
    text = history.tree_in_words()
    steps = [(step.start, row) for row in ALGORITHMS for step in facts_of(row).steps]
    assert text.count(", from ") == len(steps)
    for start, row in steps:
        assert diff(start, row).split("; ")[0].replace("->", "→") in text
