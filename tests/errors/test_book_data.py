"""What the book's pages are made of, damaged in every way: an error that names file or page, never a traceback."""

import copy
import json
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import apparatus
import benchmarks
import book_facts
import data_files
import errata
import fidelity
import library_settings
import llms_txt
import recorded_runs
from rlhf_book import facts

ROOT = Path(__file__).resolve().parents[2]


COLUMNS = "kl | KL (nats); gold | true score"


def read_runs(path):
    with data_files.using(path):
        return recorded_runs.lines(data_files.read(path), recorded_runs.columns(COLUMNS))


def read_benchmarks(path):
    benchmarks.RECORD = path
    return [benchmarks.markdown(name) for name in ("machine", "goals", *benchmarks.TABLES)]


def read_rows(path):
    found = {name: facts.facts_of(name, path) for name in facts.names(path)}
    return facts.families(path), [fidelity.markdown(name, row, path) for name, row in found.items()]


def read_settings(path):
    library_settings.libraries.cache_clear()
    return library_settings.summary(path), library_settings.page(path)


def read_ideas(path):
    apparatus.concepts.cache_clear()
    return apparatus.concepts(path)


def read_questions(path):
    apparatus.questions.cache_clear()
    return apparatus.questions(path)


def read_errata(path):
    errata.errata.cache_clear()
    return errata.errata(path)


def read_times(path):
    book_facts.TIMES = path
    return book_facts.times()


def read_notebook(path):
    return (
        data_files.title_of(path.with_suffix("")),
        book_facts.reading_minutes(path),
        book_facts.exercise_minutes(path),
    )


# What reads a file, the file as it is, and how much of it is enough to try everything that is read.
READERS = {
    "runs": (read_runs, recorded_runs.RESULTS / "ppo-rlhf.json"),
    "benchmarks": (read_benchmarks, benchmarks.RECORD),
    "rows": (read_rows, facts.ROWS),
    "settings": (read_settings, library_settings.DATA),
    "ideas": (read_ideas, apparatus.DATA / "concepts.yml"),
    "questions": (read_questions, apparatus.DATA / "questions.yml"),
    "errata": (read_errata, errata.ERRATA),
    "times": (read_times, book_facts.TIMES),
    "notebook": (read_notebook, ROOT / "notebooks" / "gspo.ipynb"),
}
HOSTILE = [None, True, -1, 1e300, math.nan, 10**400, "", "a | b\nc", "\0", "\ud800", [], {}, [[]], {"": None}]


@pytest.fixture(autouse=True)
def _as_it_was(monkeypatch):
    """The files of the modules, and what they have read so far."""
    for module, name in ((benchmarks, "RECORD"), (book_facts, "TIMES")):
        monkeypatch.setattr(module, name, getattr(module, name))
    real = apparatus.concepts  # questions name ideas of the real file
    yield
    for cached in (real, apparatus.questions, library_settings.libraries):
        cached.cache_clear()


def places(data, above=()):
    """Every place in a nested file, as the keys that lead to it."""
    yield above
    entries = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in entries:
        yield from places(value, (*above, key))


def load(path):
    text = path.read_text(encoding="utf-8")
    return yaml.safe_load(text) if path.suffix == ".yml" else json.loads(text)


def beginning(name):
    """What is damaged: as much of the file as says everything once."""
    data = load(READERS[name][1])
    if name == "runs":
        kept = ("arm", "seed", "kl", "gold")
        return {
            **data,
            "runs": [{key: run[key] for key in kept} for run in data["runs"] if run["arm"] in ("beta-0", "beta-0.1")],
        }
    if name == "rows":
        return {part: dict(list(entries.items())[:2]) for part, entries in data.items()}
    if name == "settings":
        kinds = ('loss_type="dapo"', "use_bias_correction_kl=True", "AsyncGRPOTrainer", "reward_clip_range=(-10, 10)")
        found = [entry for group in data["trl"]["groups"] for entry in group["settings"]]
        found = [entry for entry in found if entry["setting"] in kinds or "use_adaptive" in entry["setting"]]
        return {"trl": {"title": "TRL", "groups": [{"title": "all", "settings": found}]}}
    if name == "ideas":
        return {part: entries[:2] for part, entries in list(data.items())[:2]}
    if name == "notebook":
        cells = [cell for cell in data["cells"] if cell["cell_type"] == "markdown"][:2] + data["cells"][-2:]
        return {**data, "cells": [{key: cell[key] for key in ("cell_type", "metadata", "source")} for cell in cells]}
    return data[:2] if name == "questions" else data


def judge(name, path):
    """Whether the file is refused, which has to happen in one line that names it."""
    try:
        READERS[name][0](path)
    except ValueError as problem:
        words = str(problem)
    else:
        return False
    assert str(path) in words
    assert len(words.splitlines()) == 1
    assert len(words) < 800
    return True


@pytest.mark.parametrize("name", READERS)
def test_the_file_as_it_is_can_be_read(name, tmp_path):
    path = tmp_path / READERS[name][1].name
    path.write_text(json.dumps(beginning(name), default=str))  # a date is its text
    assert READERS[name][0](READERS[name][1])
    assert READERS[name][0](path)


@pytest.mark.parametrize("name", READERS)
def test_every_place_of_a_file_missing_or_holding_something_else(name, tmp_path):
    """JSON is YAML, too: every damaged file is written as JSON under the file's own name."""
    whole, path = beginning(name), tmp_path / READERS[name][1].name.replace(".yml", ".json")
    refused = 0
    for place in places(whole):
        for number, value in enumerate([*HOSTILE, ...]):
            if len(place) > 2 and number % 5 and value is not ...:
                continue  # deep down a few are enough
            data = copy.deepcopy(whole)
            if not place:
                data = None if value is ... else value
            else:
                inner = data
                for key in place[:-1]:
                    inner = inner[key]
                if value is ...:
                    del inner[place[-1]]
                else:
                    inner[place[-1]] = value
            path.write_text(json.dumps(data, default=str))
            refused += judge(name, path)
    assert refused > len(HOSTILE)


BROKEN = {
    "empty": b"",
    "blank": b" \n\n",
    "null": b"null",
    "no entry": b"{}",
    "no entry in a list": b"[]",
    "half": b'{"runs": [{"arm": "a", "seed": 0, ',
    "binary": bytes(range(256)),
    "no utf-8": '{"runs": "é"}'.encode("latin-1"),
    "deep": b"[" * 100_000,
    "deep objects": b'{"a":' * 100_000,
    "many digits": b'{"runs": ' + b"9" * 5000 + b"}",
    "a tab": b"\trow: 1",
    "a program": b"!!python/object/apply:os.system ['echo gotcha']",
    "unbalanced": b"a: [1, 2\nb: }",
    "two documents": b"--- {}\n--- {}\n",
    "a date": b"2026-13-45",
    "no such anchor": b"a: *nothing",
    "a list in a key": b"? [1, 2]\n: 3",
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("how", BROKEN)
def test_a_file_that_is_broken_as_a_whole(name, how, tmp_path):
    path = tmp_path / READERS[name][1].name
    path.write_bytes(BROKEN[how])
    assert judge(name, path)


@pytest.mark.parametrize("name", [name for name in READERS if name != "times"])  # whose file may be missing
def test_a_file_that_is_not_there_or_is_a_folder(name, tmp_path):
    path = tmp_path / READERS[name][1].name
    assert judge(name, path)
    path.mkdir()
    assert judge(name, path)


def test_words_that_help(tmp_path):
    path = tmp_path / "runs.json"
    run = {"arm": "a", "seed": 0, "kl": 1.0, "gold": 2.0}
    for runs, words in (
        ([{**run, "gold": None}], f"{path}: the run of arm a, seed 0: 'gold' should be a finite number, and is None"),
        ([{**run, "gold": math.nan}], "'gold' should be a finite number, and is nan"),
        ([{**run, "gold": True}], "'gold' should be a finite number, and is True"),
        ([{"arm": "a", "seed": 0, "kl": 1}], "arm a, seed 0 has no 'gold'; its numbers are kl"),
        ([], "no run is recorded"),
        ([run, run], "every arm should have the same seeds, once; a has [0, 0]"),
        ([run, {**run, "arm": "b", "seed": 1}], "a has [0], b has [1]"),
        ([{"seed": 0}], "there is no 'arm'"),
    ):
        path.write_text(json.dumps({"runs": runs}))
        with pytest.raises(ValueError, match=re.escape(words)):
            read_runs(path)
    path.write_text(json.dumps({"runs": [run]}))
    assert read_runs(path) == [["a", "1.00 [1.00, 1.00]", "2.00 [2.00, 2.00]"]]


@pytest.mark.parametrize("name", ["a | b", "a\nb"])
def test_a_name_that_would_break_a_table_is_refused(name, tmp_path):
    record = load(benchmarks.RECORD)
    record["sampling"] = {name: record["sampling"]["short"]}
    path = tmp_path / "benchmarks.json"
    path.write_text(json.dumps(record))
    benchmarks.RECORD = path
    with pytest.raises(ValueError, match="a bar or a new line cannot stand in a table"):
        benchmarks.markdown("sampling")


def test_a_page_without_a_title_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(data_files, "ROOT", tmp_path)
    (tmp_path / "page.md").write_text("no heading\n")
    with pytest.raises(ValueError, match=r"page has no title: it should begin with a line `# …`"):
        llms_txt.entry("page")
    (tmp_path / "chapter.ipynb").write_text('{"cells": [{"cell_type": "markdown"}]}')
    with pytest.raises(ValueError, match=r"chapter.ipynb: there is no 'source'"):
        llms_txt.entry("chapter")


@given(st.text(st.characters(codec="utf-8") | st.sampled_from("|;\n "), max_size=40))
def test_columns_are_names_and_heads_or_refused(text):
    parts = [part.partition("|") for part in text.split(";")]
    whole = all(name.strip() and head.strip() for name, _, head in parts)
    names = [name.strip() for name, _, _ in parts]
    if whole and len(set(names)) == len(names):
        assert list(recorded_runs.columns(text)) == names
    else:
        with pytest.raises(ValueError, match="is no column|is named twice"):
            recorded_runs.columns(text)


# --- on a page -------------------------------------------------------------------------------------------------------

# A directive without its fences, and what the build says of it. Each stands on a page of its own.
PAGES = [
    ("generated} rows", "generated: expected module:function, got 'rows'"),
    ("generated} wors:steps", "generated: there is no module 'wors'"),
    ("generated} rows:pariwise", "generated: rows has no function 'pariwise'; there are pairwise, in_words, field"),
    ("generated} rows:table", "generated: rows:table takes head rows: missing a required argument: 'head'"),
    ("generated} rows:cells grpo", "generated: rows:cells returned a dict, expected Markdown"),
    ("generated} recorded_runs:markdown nothing\nkl | KL", "generated: there is no record 'nothing' in"),
    ("generated} recorded_runs:markdown ../results/runs\nkl | KL", "generated: there is no record '../results/runs'"),
    ("generated} recorded_runs:markdown runs", "recorded_runs:markdown takes name text: missing a required argument"),
    ("generated} recorded_runs:markdown runs\nkl", "generated: 'kl' is no column: expected a number's name, a bar"),
    ("generated} recorded_runs:markdown runs\nkl | KL; kl | again", "generated: the column 'kl' is named twice"),
    ("generated} recorded_runs:markdown runs\nlk | KL", "runs.json: the run of arm a, seed 0 has no 'lk'; its numbers"),
    ("generated} recorded_runs:markdown half\nkl | KL", "half.json: is no JSON: Expecting value"),
    ("generated} recorded_runs:markdown bare\nkl | KL", "bare.json: there is no 'versions'"),
    ("generated} benchmarks:markdown stpe", "there is no table 'stpe'; there are machine, goals, step"),
    ("generated} benchmarks:markdown step", "benchmarks.json: there is no 'step'"),
    ("generated} rows:changes grpo gpro", "generated: unknown algorithm"),
    ("generated} fidelity:page", "row_facts.yml, row rloo: why is missing: write a sentence"),
    ("generated} equations:links eq-none", "no docstring of the library carries :eq:`eq-none`"),
    ("generated} rows:cheat_sheet\n:class: cheat-sheet", "row_facts.yml, row rloo: why is missing: write a sentence"),
    ("generated} book_facts:run_times", "run-times.json: lacks date, python"),
    ("mjs-figure} ../viz/nothing.mjs\n:alt: x", "mjs-figure: there is no module"),
    ('mjs-figure} clip_explorer.mjs\n:alt: x\n:params: {"a": ', "mjs-figure: `:params:` is not JSON"),
    ("mjs-figure} clip_explorer.mjs\n:alt: x\n:params: [1]", "mjs-figure: `:params:` has to be a JSON object"),
    ("mjs-figure} clip_explorer.mjs\n:alt: x\n:params-from: rows:gates", "mjs-figure: rows has no function 'gates'"),
    ("mjs-figure} clip_explorer.mjs\n:alt: x\n:params-from: rows:pairwise", "rows:pairwise returned a str"),
    ("mjs-figure} clip_explorer.mjs\n:alt: x\n\n- no caption", "mjs-figure: the content has to begin with a para"),
]
CONF = """\
import pathlib, sys
sys.path[:0] = {extensions!r}
here = pathlib.Path({here!r})
import benchmarks, book_facts, recorded_runs, rlhf_book.facts
recorded_runs.RESULTS = here / "results"
benchmarks.RECORD = here / "results" / "benchmarks.json"
rlhf_book.facts.ROWS = here / "row_facts.yml"
book_facts.TIMES = here / "run-times.json"
extensions = ["myst_parser", "sphinx.ext.autodoc", "generated", "figures"]
mjs_figure_path = {viz!r}
html_theme_options = {{}}
"""


@pytest.fixture(scope="module")
def warnings(tmp_path_factory):
    """page -> what one build of all pages says of it."""
    here = tmp_path_factory.mktemp("book")
    (here / "results").mkdir()
    run = {"arm": "a", "seed": 0, "kl": 1.0}
    (here / "results" / "runs.json").write_text(json.dumps({"runs": [run], "versions": {}, "command": "x"}))
    (here / "results" / "bare.json").write_text(json.dumps({"runs": [run]}))
    (here / "results" / "half.json").write_text('{"runs": ')
    (here / "results" / "benchmarks.json").write_text('{"steps": 3}')
    entries = yaml.safe_load(facts.ROWS.read_text(encoding="utf-8"))
    del entries["rows"]["rloo"]["why"]
    (here / "row_facts.yml").write_text(yaml.safe_dump(entries))
    (here / "run-times.json").write_text('{"notebooks": {"grpo": 3.0}}')
    names = [f"page-{number}" for number in range(len(PAGES))]
    for name, (text, _) in zip(names, PAGES, strict=True):
        (here / f"{name}.md").write_text(f"# Page\n\n```{{{text}\n```\n")
    (here / "index.md").write_text("# Book\n\n```{toctree}\n" + "\n".join(names) + "\n```\n")
    viz = str(ROOT / "notebooks" / "rlhf_book" / "figures")
    (here / "conf.py").write_text(
        CONF.format(extensions=[str(ROOT / "book" / name) for name in ("_ext", "_pages")], here=str(here), viz=viz)
    )
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "--keep-going",
        "-n",
        "-q",
        "-b",
        "html",
        str(here),
        str(here / "out"),
    ]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 1, built.stderr  # and not 2, an exception
    assert "Traceback" not in built.stderr
    assert all((here / "out" / f"{name}.html").is_file() for name in names)
    found = {name: [] for name in names}
    for page, said in re.findall(r"(page-\d+)\.md:3: (.*)", built.stderr):
        found[page].append(said)
    return found


@pytest.mark.parametrize(("number", "words"), list(enumerate(words for _, words in PAGES)))
def test_a_directive_that_is_wrong_is_told_with_its_page_and_line(warnings, number, words):
    (said,) = warnings[f"page-{number}"]
    assert said.startswith("ERROR: ")
    assert words in said
