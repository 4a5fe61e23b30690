"""The front page and the paths through the book: the picture and the minutes follow what they are made of."""

import copy
import re
from pathlib import Path

import nbformat
import pytest

import book_facts
import learning_picture
import recorded_runs
import rows as pages

ROOT = Path(__file__).resolve().parents[1]

RECORD = {
    "completions_a_step": 10,
    "runs": [
        {"arm": arm, "seed": seed, "right": right}
        for arm, runs in {
            "checked": ([2, 4, 8, 8, 8, 8, 8], [4, 4, 6, 6, 6, 6, 6]),
            "coin": ([2, 1, 1, 1, 1, 1, 1], [4, 1, 1, 1, 1, 1, 1]),
        }.items()
        for seed, right in enumerate(runs)
    ],
}


def curves(record=RECORD):
    return learning_picture.curves_of(record, "checked", "coin")


def test_caption_and_alternative_text_say_what_was_recorded():
    for words in (curves().told(), curves().alt()):
        assert re.findall(r"\b[01]\.\d\d\b", words) == ["0.56", "0.70", "0.10"]
    assert "2 seeds" in curves().told()
    assert "rises" in curves().alt()
    swapped = learning_picture.curves_of(RECORD, "coin", "checked")
    assert "falls" in swapped.alt()


def test_a_seed_that_stays_behind_is_told():
    assert curves().parted() == ""
    record = copy.deepcopy(RECORD)
    for seed, right in enumerate(([4, 4, 7, 7, 7, 7, 7], [3, 3, 4, 4, 4, 4, 4]), start=2):
        record["runs"] += [{"arm": arm, "seed": seed, "right": right} for arm in ("checked", "coin")]
    found = curves(record)
    assert found.parted() == ": 3 end at 0.60 or above, and 1 at 0.40"
    assert found.parted() in found.told()
    assert found.parted() in found.alt()
    record["runs"][0]["right"] = [2, 2, 2, 2, 2, 2, 2]  # two of four: no minority
    assert curves(record).parted() == ""


def test_every_seed_is_a_line_and_every_step_a_point_of_it():
    drawn = learning_picture.svg(curves())
    lines = re.findall(r'<polyline class="(\w+) (\w+)" points="([^"]+)"', drawn)
    assert [(kind, arm) for kind, arm, _ in lines] == [
        *[("run", "coin")] * 2,
        ("mean", "coin"),
        *[("run", "checked")] * 2,
        ("mean", "checked"),
    ]
    assert {len(points.split()) for _, _, points in lines} == {7}
    height = {arm: float(points.split()[-1].split(",")[1]) for kind, arm, points in lines if kind == "mean"}
    assert height["checked"] < height["coin"]  # downwards in an SVG
    assert 'role="img"' in drawn
    assert curves().alt() in drawn


def test_words_stand_beside_the_line_they_name():
    low, high = [[0.1, 0.05, 0.1, 0.05]] * 4, [[0.5, 0.9, 0.85, 0.9]] * 4
    astray = [*high, [0.1, 0.1, 0.3, 0.2]]  # one run of the upper arm stays below
    for upper in (high, astray):
        for own, other in ((low, upper), (upper, low)):
            ends, others = (sum(run[-1] for run in runs) / len(runs) for runs in (own, other))
            at = learning_picture.word_at(own, other)
            assert abs(at - ends) < abs(at - others)
            assert not any(at < run[-1] < at + 0.09 for run in (*own, *other))


def test_a_new_recording_changes_the_picture():
    other = copy.deepcopy(RECORD)
    other["runs"][0]["right"][-1] = 3
    assert learning_picture.svg(curves(other)) != learning_picture.svg(curves())
    assert curves(other).told() != curves().told()


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda record: record["runs"].pop(), "the same seeds"),
        (lambda record: record.update(runs=record["runs"][:2]), "no run has the arm 'coin'; there are checked"),
        (lambda record: record["runs"][0]["right"].pop(), "different numbers of steps"),
        (lambda record: record["runs"][0]["right"].append(11) or record["runs"][1]["right"].append(1), "between 0 and"),
    ],
)
def test_a_record_that_lacks_something_is_refused(damage, said):
    record = copy.deepcopy(RECORD)
    damage(record)
    with pytest.raises(ValueError, match=said):
        curves(record)


def test_the_front_page_draws_a_record_that_exists():
    text = (ROOT / "book" / "index.md").read_text(encoding="utf-8")
    name, arm, control = re.search(r"\{learning-picture\} (.+)\n:arm: (.+)\n:control: (.+)\n", text).groups()
    path = learning_picture.path_of(name)
    found = learning_picture.curves_of(learning_picture.read(path), arm, control)
    assert found.last > 0.5 > found.last_coin  # what the text around it says
    assert found.stray == 0
    assert len(found.checked) == len(found.coin) == 5


def test_a_seed_that_the_record_says_was_replaced_is_not_drawn():
    replaced = curves(RECORD | {"replaced": {"0": 1}})
    assert "Not drawn: 1 start that was replaced by the next seed, ending at 0.80." in replaced.told()
    assert "Not drawn" not in curves().told()
    assert replaced.checked == [curves().checked[1]]
    assert replaced.coin == [curves().coin[1]]


# ── paths and their minutes ──────────────────────────────────────────────────────────────────────────────────────


def chapter(folder, *cells):
    nbformat.write(nbformat.v4.new_notebook(cells=list(cells)), folder / "a.ipynb")
    return folder / "a.ipynb"


def test_an_opening_ends_with_the_main_point(tmp_path):
    def text(name, **metadata):
        return nbformat.v4.new_markdown_cell("word " * 850, id=name, metadata=metadata)

    before, point = text("a"), text("b", tags=["main-point"])
    after = [text("c"), text("d")]
    assert book_facts.opening_minutes(chapter(tmp_path, before, point, *after)) == 9
    assert book_facts.opening_minutes(chapter(tmp_path, before, *after)) is None
    assert book_facts.reading_minutes(chapter(tmp_path, before, point, *after)) == 20


def test_a_page_takes_as_long_as_what_is_generated_on_it(monkeypatch, tmp_path):
    (tmp_path / "page.md").write_text("word " * 170 + "\n```{generated} some:words\n:class: x\n```\n")
    monkeypatch.setattr(book_facts, "ROOT", tmp_path)
    monkeypatch.setattr(book_facts, "made_by", lambda target: "word " * 1800)
    assert book_facts.page_minutes("page") == 15
    with pytest.raises(ValueError, match="no page 'other'"):
        book_facts.page_minutes("other")


def paths():
    text = (ROOT / "book" / "how-to-read.md").read_text(encoding="utf-8")
    head = r"```\{generated\} book_facts:reading_path\n:class: reading-times\n\n"
    blocks = re.findall(rf"^## (.+)\n(?:(?!## ).*\n)*?{head}((?:.+\n)+?)```", text, re.MULTILINE)
    chapters = [f"notebooks/{path.stem}" for path in (ROOT / "notebooks").glob("*.ipynb")]
    return {title: book_facts.steps_of(lines.splitlines(), chapters) for title, lines in blocks}


def test_the_paths_take_what_their_names_say():
    found = paths()
    assert list(found) == ["An hour", "A weekend", "Two hours before an interview", "A course"]
    hours = {title: sum(step[-1] for step in steps) / 60 for title, steps in found.items()}
    assert 0.5 <= hours["An hour"] <= 1.1
    assert 4 <= hours["A weekend"] <= 14
    assert hours["A course"] > hours["A weekend"]
    assert 1.5 <= hours["Two hours before an interview"] <= 2.25, "leave something out of this path"
    for steps in found.values():
        assert steps[0][0] == "notebooks/from-zero"


def test_the_course_reads_every_chapter_in_the_order_of_the_book():
    toc = re.findall(r"file: (notebooks/\S+)", (ROOT / "_toc.yml").read_text(encoding="utf-8"))
    read = [step[0] for step in paths()["A course"] if step[0].startswith("notebooks/")]
    where = "the path *A course* of book/how-to-read.md has a line for every chapter, in the order of _toc.yml"
    assert read == [page for page in toc if page in read], where
    assert set(toc) == set(read), where


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("notebooks/from-zero, whole", "expected a page, how much of it and what for"),
        ("notebooks/from-zero | half | x", "'half', expected one of whole"),
        ("book/glossary | exercises | x", "only a chapter has"),
        ("book/glossary | levels 1 | x", "only the questions of book/interview have levels"),
        ("book/interview | levels 1, 7 | x", "there is no level '7'; there are 1, 2, 3"),
        ("notebooks/nothing | whole | x", "no page 'notebooks/nothing'"),
        ("openings | PPO, Poetry | x", "no part 'Poetry' in _toc.yml; there are Before you start, "),
    ],
)
def test_a_step_that_is_none_is_refused(line, said):
    with pytest.raises(ValueError, match=said):
        book_facts.steps_of([line], ["notebooks/gae"])


def test_openings_are_those_of_all_chapters_or_of_the_parts_that_are_named():
    chapters = ["notebooks/gspo", "notebooks/gae", "notebooks/gae-in-depth", "notebooks/ppo-clip"]
    for parts, found in (
        ("", ["notebooks/gspo", "notebooks/gae"]),
        ("PPO", ["notebooks/gae"]),
        ("PPO, Ratios and gates: from GSPO on", ["notebooks/gspo", "notebooks/gae"]),
    ):
        steps = book_facts.steps_of([f"openings | {parts} | x", "notebooks/ppo-clip | whole | x"], chapters)
        assert [page for page, part, *_ in steps if part == "opening"] == found


def test_the_table_in_words_has_words_for_its_cells_or_says_that_it_has_none():
    lines = pages.in_words("reinforce", "rloo", "ppo", "grpo").splitlines()
    assert len(lines) == 2 + 4
    assert all(line.count("|") == lines[0].count("|") for line in lines)
    assert len({line.partition(" | ")[2] for line in lines[2:]}) == 4  # no two rows in the same words
    with pytest.raises(ValueError, match="gspo: no words for its ratio sequence; there are some for on_policy, token"):
        pages.in_words("gspo")


def test_where_the_runs_on_addition_end_is_read_from_their_records():
    lines = recorded_runs.addition().splitlines()[2:]
    assert len(lines) == len(recorded_runs.ADDITION.strip().splitlines())
    for line in lines:
        ends, coin = (float(cell) for cell in line.strip("| ").split(" | ")[-2:])
        assert coin < 0.3 < 0.7 < ends
    assert recorded_runs.end({"right": [0, 0, 8, 8, 8, 8, 8]}, 16) == 0.5
