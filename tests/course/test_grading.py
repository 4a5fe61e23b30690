"""Submissions that are right, wrong, broken and hostile: each costs or helps its own author, and nobody else.

They run behind the strongest walls that this machine has; each kind by itself is in `test_walls.py`, forged results in
`test_forging.py`.
"""

import contextlib
import csv
import dataclasses
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from rlhf_book.course import choice, grading, isolation, session, worker
from rlhf_book.course.grading import Grader, grade_all, submissions
from rlhf_book.course.isolation import Limits
from rlhf_book.exercises import EXERCISES
from tests.course import submitted
from tests.course.submitted import (
    ANSWERS,
    BOTH,
    FIRST,
    FULL,
    IMPORTS,
    LIMITS,
    ROOT,
    SECOND,
    SEED,
    WEEKS,
    hand_in,
    notebook,
    points,
)

grader, _fewer_draws = submitted.grader, submitted.fewer_draws


# ── what is right gets its points, and what is wrong a sentence ──────────────────────────────────────────────────────


def test_right_answers_get_their_points_and_the_books_do_not(grader, tmp_path):
    import inspect

    magics = "%matplotlib inline\n!rm -rf ~\nx = 7 \\\n  % 4\nassert x == 3"
    mine = hand_in(tmp_path, "anna/week-01.ipynb", magics, "%%bash\nrm -rf ~", FIRST, "1 / 0", SECOND)
    rows = grader.grade(mine)
    assert points(rows) == FULL, rows
    assert {(row.student, row.week) for row in rows} == {("anna", "week-01")}
    assert "cell 4 raised ZeroDivisionError" in rows[0].note
    books = [
        IMPORTS + "from torch import Tensor\n" + inspect.getsource(EXERCISES[n].solution) for n in WEEKS["week-01"]
    ]
    rows = grader.grade(hand_in(tmp_path, "ben/week-01.ipynb", *books))
    assert points(rows) == [0, 0]
    assert all("This is the book's version" in row.says for row in rows)


def test_a_cell_that_is_timed_is_run():
    assert worker._plain_python("%%time\nx = 1") == "x = 1"
    assert worker._plain_python("%%bash\nx = 1") == ""
    assert worker._plain_python("%%time") == ""


def test_commands_beside_a_function_do_not_lose_it():
    """What Jupyter accepts in a cell does nothing here, and what only looks like it stays as it is."""
    for line in (
        "f?",
        "?f",
        "files = !ls",
        "t = %timeit -o 1+1",
        "!ls",
        "%matplotlib inline",
        "text = '''\n% n\n'''\n!ls",
    ):
        names = {"get_ipython": worker._NoShell}
        assert worker._run_cell(names, f"def f():\n    return 3\n{line}", 1) == {"done": True}, line
        assert names["f"]() == 3
    assert names["text"] == "\n% n\n"
    assert worker._run_cell({}, "def f(:", 1)["error"][0] == "SyntaxError"


def test_a_tuple_of_unlike_tensors_is_an_answer_like_any_other():
    """Loss and ratios, say: the checker's sentence is the same here as at home."""
    x = torch.ones(3)
    request = {"name": "f", "arguments": [worker.encode(x)], "leaves": [0]}
    reply = worker._call({"f": lambda x: (x.sum(), x)}, request)
    assert [part["shape"] for part in reply["value"]["tuple"]] == [[], [3]]
    assert "gradients" not in reply
    assert "gradients" in worker._call({"f": lambda x: (x, 2 * x)}, request)


def test_a_path_that_names_no_student_is_refused_before_anything_runs(tmp_path, capsys):
    import grade

    for name in ("week-03/anna.ipynb", "week-03-anna.ipynb", "Week 4/ben.ipynb"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    hand_in(tmp_path, "carl/week-03.ipynb", "1")
    assert len(grading.nobody(list(submissions(tmp_path)))) >= 2
    with pytest.raises(SystemExit):
        grade.main([str(tmp_path), "--seed", "7", "--out", str(tmp_path / "grades")])
    assert "do not say whose they are" in capsys.readouterr().err
    assert not (tmp_path / "grades" / "grades.csv").exists()


def test_the_secret_is_its_owners_alone(tmp_path):
    first = grading.secret(tmp_path)
    assert (tmp_path / "secret.json").stat().st_mode & 0o077 == 0
    assert grading.secret(tmp_path) == first


def test_what_is_missing_or_blank_is_said(grader, tmp_path):
    blank = "def my_masked_mean(x, mask):\n    return ..."
    rows = grader.grade(hand_in(tmp_path, "a/week-01.ipynb", blank))
    assert points(rows) == [0, 0]
    assert "still the stub" in rows[0].says
    assert "no function `my_lora`" in rows[1].says


def test_functions_that_misbehave_cost_their_own_points_and_no_others(grader, tmp_path):
    """A loop and an end of the process in one exercise: the next one is graded in a new process."""
    ends = "import os\ndef my_masked_mean(x, mask):\n    os._exit(0)"
    rows = grader.grade(hand_in(tmp_path, "a/week-01.ipynb", ends, SECOND))
    assert points(rows) == [0, FULL[1]], rows
    assert "its process ended" in rows[0].says
    leaves = "def my_masked_mean(x, mask):\n    raise SystemExit(0)"
    deep = "def my_lora(*given):\n    return my_lora(*given)"
    rows = grader.grade(hand_in(tmp_path, "b/week-01.ipynb", leaves, deep))
    assert points(rows) == [0, 0]
    assert "SystemExit" in rows[0].says
    assert "RecursionError" in rows[1].says


def test_whatever_the_grader_raises_is_one_submissions_failure(grader, tmp_path, monkeypatch):
    from rlhf_minimal.timeouts import TimeoutInterrupt

    found = [hand_in(tmp_path / "in", f"{name}/week-01.ipynb", FIRST) for name in ("anna", "ben", "carl")]
    raised = iter((RecursionError("deep"), TimeoutInterrupt(), None))

    def grade(self, submission):
        if (problem := next(raised)) is not None:
            raise problem
        return [self._row(submission, name, 3, "Right.") for name in self.weeks[submission.week]]

    monkeypatch.setattr(Grader, "grade", grade)
    rows = grade_all(grader, found, tmp_path / "out", say=lambda _: None)
    assert points(rows) == [0, 0, 0, 0, 3, 3]
    assert "the grader failed on it (RecursionError)" in rows[0].says
    assert not (tmp_path / "out" / "running.json").exists()


# ── harm ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_memory_and_a_gigabyte_of_text_cost_nothing_but_the_answer(grader, tmp_path):
    prints = "import os\ntext = 'x' * 10**7\nfor _ in range(100):\n    print(text)\nos.write(1, text.encode())"
    takes = "def my_masked_mean(x, mask):\n    keep = bytearray(2**33)\n    return float(len(keep))"
    rows = grader.grade(hand_in(tmp_path, "a/week-01.ipynb", prints, takes, SECOND))
    assert points(rows) == [0, FULL[1]], rows
    assert not rows[0].note  # what is printed goes nowhere, and is no mistake
    assert "MemoryError" in rows[0].says or "memory" in rows[0].says


# ── which walls ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_without_walls_nothing_is_graded_unless_it_is_asked_for(library, monkeypatch):
    def fails(*_):
        return ["sh", "-c", "echo this cannot be done here >&2; exit 1"]

    for name in isolation.WALLS:
        monkeypatch.setitem(isolation.WAYS, name, dataclasses.replace(isolation.WAYS[name], command=fails))
    with pytest.raises(RuntimeError, match="bubblewrap: .*cannot be done here[^$]*unshare: .*cannot be done here"):
        grading.strongest(library, LIMITS)
    try:
        said = grading.strongest(library, LIMITS, "limits").name
    except RuntimeError as problem:
        said = str(problem)
    refused = os.geteuid() == 0 and "Permission denied" in said  # root becomes nobody, who may not read this Python
    assert said == "limits" or refused


def test_walls_through_which_the_answers_can_be_seen_are_refused(walls, library, monkeypatch, tmp_path):
    """A folder below one that Python is read from is hidden, or refused if Python itself lies in it."""
    bound = Path(torch.__file__).resolve().parents[1]
    inside = str(bound / "torch" / "include")
    assert os.path.isdir(inside)
    assert inside in isolation.hidden_paths((inside,))
    assert grading.strongest(library, LIMITS, walls.name, [Path(inside)])
    with pytest.raises(RuntimeError, match="has to be hidden"):
        isolation.hidden_paths((sys.prefix,))
    with pytest.raises(RuntimeError, match="has to be hidden"):
        grading.strongest(library, LIMITS, walls.name, [Path(sys.prefix)])
    monkeypatch.setattr(isolation, "hidden_paths", lambda *_: [])
    with pytest.raises(RuntimeError, match="can be seen from inside"):
        grading.strongest(library, LIMITS, walls.name, [Path(inside)])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become nobody")
def test_without_walls_root_becomes_nobody(library, tmp_path):
    (tmp_path / "grades.csv").write_text("untouched")
    command = isolation.WAYS["limits"].command(tmp_path, library, LIMITS, ())
    assert (tmp_path / "home").stat().st_uid == isolation.NOBODY
    script = f"""
id -u
echo forged >> {tmp_path}/grades.csv
echo forged >> {library}/worker.py
kill -0 {os.getpid()} && echo reached
"""
    said = subprocess.run([*command[:-2], "sh", "-c", script], stdout=subprocess.PIPE, text=True, timeout=60)
    assert said.stdout.split() == [str(isolation.NOBODY)]
    assert (tmp_path / "grades.csv").read_text() == "untouched"
    assert (library / "worker.py").read_bytes() == isolation.WORKER.read_bytes()


# ── files that are no notebooks ──────────────────────────────────────────────────────────────────────────────────────


def test_files_that_are_no_notebooks_get_a_sentence_and_no_process(grader, tmp_path, monkeypatch):
    def no_process(*_):
        raise AssertionError("nothing has to be run for this")

    monkeypatch.setattr(grading, "Session", no_process)
    texts = {
        "empty": "",
        "json": "{",
        "deep": "[" * 100_000,
        "number": '{"cells": ' + "1" * 10_000 + "}",
        "shape": '{"cells": [{"cell_type": "code", "source": 5}]}',
        "nothing": '{"cells": null}',
        "many": notebook(*["x"] * 501),
    }
    for name, text in texts.items():
        (tmp_path / f"{name}-week-01.ipynb").write_text(text)
    (tmp_path / "huge-week-01.ipynb").write_bytes(b" " * (grading.NOTEBOOK_BYTES + 1))
    (tmp_path / "link-week-01.ipynb").symlink_to("/dev/zero")
    (tmp_path / "binary-week-01.ipynb").write_bytes(bytes(range(256)))
    (tmp_path / "who.ipynb").write_text(notebook(FIRST))
    found = list(submissions(tmp_path))
    assert len(found) == len(texts) + 4
    for mine in found:
        rows = grader.grade(mine)
        assert all(row.points == 0 and row.says.startswith("Not graded: ") for row in rows), mine
        assert mine.student == mine.path.stem.removesuffix("-week-01")


@pytest.mark.parametrize("how", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_a_notebook_is_read_with_a_byte_order_mark_and_as_some_editors_of_windows_save_it(tmp_path, how):
    mine = hand_in(tmp_path, "anna/week-01.ipynb", FIRST, "word = 'Größe'")
    plain = grading.cells_of(mine.path)
    mine.path.write_bytes(mine.path.read_text().encode(how))
    assert grading.cells_of(mine.path) == plain == [FIRST, "word = 'Größe'"]


FORMULAS = ["=", "+", "-", "@", "＝", "＋", "－", "＠", "﹦", "﹢", "﹣", "﹫", "−"]  # noqa: RUF001


@pytest.mark.parametrize("sign", FORMULAS)
@pytest.mark.parametrize("before", ["", " ", "\u3000", "\xa0", ";", "a;", "a; ", 'a;"', "a|", "a\t", "\t", '"', "x;;"])
def test_no_cell_of_a_table_begins_like_a_formula(sign, before):
    """As any spreadsheet splits it: at commas, or at another country's separator, with or without quotation marks."""
    row = grading.Row("anna", "week-01", "board-masked-mean", 0, 3, f"{before}{sign}cmd(A1)", "w.ipynb")
    for text in (grading.table([row]), grading.totals([dataclasses.replace(row, student=row.says)], WEEKS)):
        for separator in ",;|\t":
            for quotes in (csv.QUOTE_MINIMAL, csv.QUOTE_NONE):
                for cells in csv.reader(io.StringIO(text), delimiter=separator, quoting=quotes):
                    begins = [cell.lstrip().lstrip('"').lstrip()[:1] for cell in cells]
                    assert not set(begins) & set(FORMULAS), cells


def test_what_is_no_formula_stays_as_it_is():
    for text in ("at [0.5, -0.3] got 1, expected -2", "a=b", "x - y; 3", "1 + 1 = 2", "anna-maria", "a:-b"):
        assert grading._cell(text) == text
    assert grading._cell(3) == 3


def test_links_pipes_and_strange_names_stop_nobody_elses_grades(grader, tmp_path):
    """Through the whole run, in a process that is ended if it reads for ever."""
    folder = tmp_path / "in"
    for name in ("anna", "ben", "carl", "dora"):
        (folder / name).mkdir(parents=True)
    (folder / "anna" / "week-01.ipynb").symlink_to("/dev/zero")
    os.mkfifo(folder / "ben" / "week-01.ipynb")
    (folder / "carl" / "week-01.ipynb").mkdir()
    (folder / "dora" / "week-01.ipynb").symlink_to(tmp_path / "nowhere")
    strange = [b"J\xf6rg", b"J\xf7rg", "Jörg".encode(), b"a\nb", b"back\\slash"]
    for name in strange:
        place = os.fsencode(folder) + b"/" + name
        os.mkdir(place)
        with open(place + b"/week-01.ipynb", "w") as file:
            file.write("{}")  # no notebook: it needs no process
    hand_in(folder, "zoe/week-01.ipynb", FIRST, SECOND)
    before = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it waits for ever"))
    signal.alarm(100)
    try:
        rows = grade_all(grader, list(submissions(folder)), tmp_path / "out", say=lambda _: None)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert len(rows) == 2 * (3 + len(strange) + 1)
    assert sum(points(rows)) == BOTH
    links = [row for row in rows if row.student in ("anna", "ben", "dora")]
    assert all("this is a link, or no file" in row.says for row in links)
    named = {row.student for row in rows} - {"anna", "ben", "dora", "zoe"}
    assert named == {"J\\udcf6rg", "J\\udcf7rg", "Jörg", "a\\nb", "back\\\\slash"}
    written = (tmp_path / "out" / "totals.csv").read_text(encoding="utf-8")
    assert len(written.splitlines()) == 1 + 4 + len(strange)


def test_whose_it_is_and_for_which_week(tmp_path):
    names = {
        "anna/week-03.ipynb": ("anna", "week-03"),
        "ben/week-03/week-03.ipynb": ("ben", "week-03"),
        "carl-week-3.ipynb": ("carl", "week-03"),
        "dora.ipynb": ("dora", "week-09"),
        ".ipynb_checkpoints/week-03-checkpoint.ipynb": None,
    }
    for name in names:
        hand_in_path = tmp_path / name
        hand_in_path.parent.mkdir(parents=True, exist_ok=True)
        hand_in_path.write_text("{}")
    found = {s.name: (s.student, s.week) for s in submissions(tmp_path, "week-09")}
    assert found == {name: wanted for name, wanted in names.items() if wanted}


def test_of_many_notebooks_for_a_week_the_newest_are_graded(grader, counted, tmp_path):
    """A thousand loops of one student are not a thousand times five minutes of everybody's night."""
    for k, name in enumerate(("a", "b", "c", "d", "e")):
        path = hand_in(tmp_path / "in", f"anna/{name}/week-01.ipynb", FIRST).path
        os.utime(path, (10**9 - k, 10**9 - k))
    hand_in(tmp_path / "in", "anna/a/week-02.ipynb", FIRST)
    hand_in(tmp_path / "in", "ben/week-01.ipynb", FIRST)
    rows = grade_all(grader, list(submissions(tmp_path / "in")), tmp_path / "out", say=lambda _: None)
    assert len(counted) == grading.NEWEST + 2
    left = {row.notebook for row in rows if "the newest 3 are" in row.says}
    assert left == {"anna/d/week-01.ipynb", "anna/e/week-01.ipynb"}
    assert "the newest 3 are" in (tmp_path / "out" / "grades.csv").read_text()


@pytest.mark.parametrize(("again", "loops"), [(2.0, 6), (0.0, 2)], ids=["now", "as it was"])
def test_an_honest_notebook_beside_a_loop_keeps_its_points(monkeypatch, library, way, again, loops):
    """Two minutes of training, and calls that loop: what is run again after each is beside the five minutes' clock."""
    now, done = [0.0], 0
    monkeypatch.setattr(session, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(session, "Process", lambda *_: SimpleNamespace(end=lambda: None))
    monkeypatch.setattr(session, "AGAIN", again)

    class Timed(session.Session):
        def _hear(self, seconds):
            now[0] += 2.0
            return {"ready": 1}

        def ask(self, request, seconds):
            if self.seconds_left <= 0:
                self.close()
                raise session.Ended("the time of this submission is up")
            now[0] += {"cell": 60.0, "call": 10.0}[request["do"]]
            if request["do"] == "call":
                self.close()
            return {}

    hers = Timed(way, library, Limits(seconds=300.0), ["train", "train"])
    with contextlib.suppress(session.Ended):
        while True:
            hers.start()
            hers.ask({"do": "call"}, 10.0)
            done += 1
    assert hers.seconds_left <= 0
    assert done == loops
    assert now[0] <= (1 + again) * 300.0 + 122.0


# ── the tables ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def counted(grader, monkeypatch):
    """How often a submission was really run; the answers are made up, the tables are not."""
    calls = []

    def grade(self, submission):
        calls.append(submission.student)
        if submission.student == "stop":
            raise KeyboardInterrupt
        return [self._row(submission, name, 3, "=SUM(A1)\nRight.") for name in self.weeks[submission.week]]

    monkeypatch.setattr(Grader, "grade", grade)
    return calls


def test_grades_are_written_once_and_again_the_same(grader, counted, tmp_path):
    folder, out = tmp_path / "in", tmp_path / "out"
    for name in ("anna/week-01.ipynb", "=ben/week-01.ipynb", "anna/week-02.ipynb", "anna/second/week-02.ipynb"):
        hand_in(folder, name, FIRST)
    found = list(submissions(folder))
    grade_all(grader, found, out, say=lambda _: None)
    first = {path.name: path.read_bytes() for path in out.glob("grades.*")} | {"t": (out / "totals.csv").read_bytes()}
    assert len(counted) == 4
    grade_all(grader, found, out, say=lambda _: None)
    assert len(counted) == 4
    again = {path.name: path.read_bytes() for path in out.glob("grades.*")} | {"t": (out / "totals.csv").read_bytes()}
    assert again == first
    table = list(csv.DictReader(io.StringIO(first["grades.csv"].decode())))
    assert [row["points"] for row in table] == ["3"] * 6
    assert {row["says"] for row in table} == {"'=SUM(A1) Right."}  # no formula, one line
    assert {row["student"] for row in table} == {"anna", "'=ben"}
    plain = json.loads(first["grades.json"])
    assert len(plain["rows"]) == 6
    assert plain["does not stop"] == grader.way.does_not
    totals = list(csv.DictReader(io.StringIO(first["t"].decode())))
    of = str(BOTH + EXERCISES["lm-micro-weights"].minutes)
    assert {"student": "anna", "week-01": "6", "week-02": "3", "sum": "9", "of": of} in totals
    hand_in(folder, "anna/week-01.ipynb", FIRST, SECOND)  # a new version is graded, the others are not
    grade_all(grader, list(submissions(folder)), out, say=lambda _: None)
    assert len(counted) == 5


def test_the_tables_keep_the_weeks_of_earlier_runs(grader, counted, tmp_path):
    """Each week's folder is graded alone, with the same file names; another course's results do not count."""
    out = tmp_path / "out"
    for week in ("week-01", "week-02"):
        (tmp_path / week).mkdir()
        (tmp_path / week / "anna.ipynb").write_text(notebook(FIRST))
        grade_all(grader, list(submissions(tmp_path / week, week)), out, say=lambda _: None)
    of = str(BOTH + EXERCISES["lm-micro-weights"].minutes)
    written = list(csv.DictReader(io.StringIO((out / "totals.csv").read_text())))
    assert written == [{"student": "anna", "week-01": "6", "week-02": "3", "sum": "9", "of": of}]
    other = dataclasses.replace(grader, seed=SEED + 1)
    grade_all(other, list(submissions(tmp_path / "week-02", "week-02")), out, say=lambda _: None)
    written = list(csv.DictReader(io.StringIO((out / "totals.csv").read_text())))
    assert written == [{"student": "anna", "week-01": "", "week-02": "3", "sum": "3", "of": of}]
    assert (out / "secret.json").exists() is False
    grading.secret(out)
    assert (out / "secret.json").stat().st_mode & 0o077 == 0
    assert (out / "results").stat().st_mode & 0o077 == 0


def test_what_was_graded_before_a_stop_is_kept(grader, counted, tmp_path):
    folder, out = tmp_path / "in", tmp_path / "out"
    for name in ("anna/week-01.ipynb", "stop/week-01.ipynb", "zoe/week-01.ipynb"):
        hand_in(folder, name, FIRST)
    with pytest.raises(KeyboardInterrupt):
        grade_all(grader, list(submissions(folder)), out, say=lambda _: None)
    assert "anna" in (out / "grades.csv").read_text()
    assert counted == ["anna", "stop"]
    with pytest.raises(KeyboardInterrupt):
        grade_all(grader, list(submissions(folder)), out, say=lambda _: None)
    assert counted == ["anna", "stop", "stop"]


def test_a_notebook_that_has_ended_the_grader_is_not_run_twice(grader, counted, tmp_path):
    folder, out = tmp_path / "in", tmp_path / "out"
    found = [hand_in(folder, "anna/week-01.ipynb", FIRST), hand_in(folder, "ben/week-01.ipynb", FIRST)]
    out.mkdir()
    (out / "running.json").write_text(grader.key(found[0]))  # as a grader that was killed leaves it
    rows = grade_all(grader, found, out, say=lambda _: None)
    assert counted == ["ben"]
    assert "the grader was ended while it ran" in rows[0].says


def test_hidden_batches_are_the_graders_own(grader, tmp_path):
    out = tmp_path
    assert grading.secret(out) == grading.secret(out)
    (out / "other").mkdir()
    assert grading.secret(out) != grading.secret(out / "other")
    from rlhf_book.course import exercise_for

    drawn = [next(exercise_for("scale-lora", 7, draws=draws).hidden()).arguments["x"] for draws in (1, 1, 2)]
    assert torch.equal(drawn[0], drawn[1])
    assert drawn[0].shape != drawn[2].shape or not torch.equal(drawn[0], drawn[2])


def test_a_sheet_that_is_filled_in_gets_the_points_that_stand_on_it(library, way, tmp_path):
    """From `make course` to the table: the cells as they are printed, with answers in the place of the stubs."""
    sys.path[:0] = [str(ROOT / "book" / "_pages"), str(ROOT / "book" / "_tools")]
    import course

    import course_pages

    plan = course_pages.plans()["weekend"]
    week = plan.weeks[0]
    sheet = course.handout(plan, week, SEED)
    blank = tmp_path / "in" / "ben" / f"{week.name}.ipynb"
    blank.parent.mkdir(parents=True)
    blank.write_text(json.dumps(sheet))
    for cell in sheet.cells:
        for name in week.exercises:
            if f'check("{name}"' in cell.source:
                answer = ANSWERS[name, choice(name, SEED).name]
                cell.source = answer + "\n\n" + cell.source.splitlines()[-1]
    full = tmp_path / "in" / "anna" / f"{week.name}.ipynb"
    full.parent.mkdir(parents=True)
    full.write_text(json.dumps(sheet))
    hers = Grader(plan.exercises, SEED, 5, way, LIMITS, library)
    rows = grade_all(hers, list(submissions(tmp_path / "in")), tmp_path / "out", say=lambda _: None)
    got = {student: sum(row.points for row in rows if row.student == student) for student in ("anna", "ben")}
    assert got == {"anna": week.solving, "ben": 0}, rows
    assert all("still the stub" in row.says and not row.note for row in rows if row.student == "ben"), rows


# ── the command ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_command_says_its_walls_and_ctrl_c_leaves_what_is_done(way, tmp_path):
    folder, out = tmp_path / "in", tmp_path / "out"
    hand_in(folder, "anna/week-01.ipynb", "x = 1")
    hand_in(folder, "ben/week-01.ipynb", "while True: pass")
    command = [
        sys.executable,
        str(ROOT / "book" / "_tools" / "grade.py"),
        str(folder),
        "--seed",
        "7",
        "--out",
        str(out),
    ]
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'notebooks'}"}
    if way.name == "limits":
        command.append("--without-walls")
    going = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        end = time.monotonic() + 120
        while not (out / "running.json").is_file() or not (out / "grades.csv").is_file():
            assert time.monotonic() < end
            assert going.poll() is None
            time.sleep(0.1)
        while "ben" in (out / "grades.csv").read_text() or not list((out / "results").glob("*.json")):
            time.sleep(0.1)
        going.send_signal(signal.SIGINT)
        said, _ = going.communicate(timeout=60)
    finally:
        going.kill()
    assert going.returncode == 130, said
    assert f"Isolation: {way.name}." in said
    assert "It does not stop: " in said
    assert "anna" in (out / "grades.csv").read_text()
    assert "There is no function" in (out / "grades.csv").read_text()
