"""From a folder of notebooks to a table of points, a submission at a time.

Each result is written as soon as it is there. A run that was stopped goes on where it was, and a run that is repeated
changes nothing: what has been graded is known by the notebook's checksum, the exercises, the seeds and this code.
"""

import csv
import hashlib
import io
import json
import os
import re
import secrets
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

import rlhf_minimal
from rlhf_minimal.timeouts import TimeoutInterrupt

from ..exercises import EXERCISES
from . import bounds, feedback, halves, isolation
from .isolation import Isolation, Limits
from .session import Ended, Session
from .variants import exercise_for

NOTEBOOK_BYTES = 8 * 2**20
CELLS = 500
FOLDERS = 8  # below each other; what lies deeper is not looked for
NEWEST = 3  # notebooks of a student for a week that are graded
DRAWS = 300  # hidden batches an exercise; each is a call into another process
COLUMNS = ("student", "week", "exercise", "points", "of", "says", "notebook", "note")


@dataclass(frozen=True)
class Row:
    """What one exercise of one submission got, and why."""

    student: str
    week: str
    exercise: str
    points: int
    of: int
    says: str
    notebook: str
    note: str = ""


@dataclass(frozen=True)
class Submission:
    """A notebook, whose it is, and for which week ("" if the path does not say)."""

    path: Path
    name: str  # its path in the folder of submissions
    student: str
    week: str


def submissions(folder: Path, week: str = "") -> Iterator[Submission]:
    """Every notebook below a folder; links are not followed.

    The name of the student is the first folder, or the file's name without the week:
    `anna/week-03.ipynb`, `anna/week-03/week-03.ipynb` and `anna-week-03.ipynb` are the same.
    """
    for top, folders, files in os.walk(folder):
        deep = len(Path(top).relative_to(folder).parts) >= FOLDERS
        shown = [name for name in folders if not deep and not name.startswith(".")]
        folders[:] = sorted(shown)
        for file in sorted(files):
            path = Path(top, file)
            if not file.endswith(".ipynb") or file.startswith("."):
                continue
            name = path.relative_to(folder).as_posix()
            weeks = re.findall(r"week-?0*(\d{1,2})(?!\d)", name)
            said = f"week-{int(weeks[-1]):02d}" if weeks else week
            first, _, rest = name.partition("/")
            student = first if rest else re.sub(r"[-_ .]*week-?\d+.*$", "", path.stem)
            yield Submission(path, name, _name(student.strip()) or "?", said)


def nobody(found: Sequence[Submission]) -> list[str]:
    """Notebooks whose path names no student: `week-03/anna.ipynb` would make one student of all who hand in."""
    return [
        one.name
        for one in found
        if one.student == "?" or re.fullmatch(r"(?i)week[-_ .]?\d*", one.student)
    ]


def too_many(found: Sequence[Submission]) -> set[Path]:
    """Of a student's notebooks for a week all but the newest: none of them may take the grader's whole night."""
    each: dict[tuple[str, str], list[Submission]] = {}
    for mine in found:
        each.setdefault((mine.student, mine.week), []).append(mine)

    def age(mine: Submission) -> tuple[int, str]:
        try:
            return -mine.path.lstat().st_mtime_ns, mine.name
        except OSError:
            return 0, mine.name

    return {m.path for group in each.values() for m in sorted(group, key=age)[NEWEST:]}


def bytes_of(path: Path) -> bytes:
    """What is in a file of a student's: nothing is followed, waited for or read for ever.

    Raises:
        ValueError: it is a link, a pipe, a folder or a device, cannot be read, or is too large.
    """
    words = "this is a link, or no file: hand in the notebook itself"
    flags = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            raise ValueError(words)
        handle = os.open(path, os.O_RDONLY | flags)
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise ValueError(words)  # it has been changed in between
            with open(handle, "rb", closefd=False) as file:
                found = file.read(NOTEBOOK_BYTES + 1)
        finally:
            os.close(handle)
    except OSError as problem:
        raise ValueError(f"it cannot be read ({problem.strerror})") from None
    if len(found) > NOTEBOOK_BYTES:
        raise ValueError(
            f"the file has more than {NOTEBOOK_BYTES // 2**20} MB: clear the outputs"
        )
    return found


def cells_of(path: Path) -> list[str]:
    """The source of a notebook's code cells, without the cell that installs the library.

    Raises:
        ValueError: it is none, in words for its author.
    """
    text = bytes_of(path)
    try:
        found = json.loads(text)  # UTF-8, with a byte-order mark too, or UTF-16
        cells = [cell for cell in found["cells"] if cell.get("cell_type") == "code"]
        sources = []
        for cell in cells:
            source = cell["source"]
            joined = source if isinstance(source, str) else "".join(source)
            if "install" not in (cell.get("metadata") or {}).get("tags", []):
                sources.append(joined)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError("this is no notebook: save it again from Jupyter") from None
    if len(sources) > CELLS:
        raise ValueError(f"it has more than {CELLS} code cells")
    return sources


@dataclass(frozen=True)
class Grader:
    """A course, and how its submissions are run.

    Args:
        weeks: week -> ids of its exercises.
        seed: the course's.
        draws: of the hidden batches, known to the grader alone.
        way: the walls around a submission.
        limits: what one may use.
        library: a folder with `worker.py` and the library.
    """

    weeks: Mapping[str, Sequence[str]]
    seed: int
    draws: int
    way: Isolation
    limits: Limits
    library: Path

    def key(self, submission: Submission) -> str:
        """The same for the same notebook, exercises, seeds and code."""
        parts: list[Any] = [self.seed, self.draws, self.weeks.get(submission.week)]
        parts += [submission.week, submission.student, self.way.name, str(self.limits)]
        digest = hashlib.sha256(json.dumps(parts).encode())
        digest.update(_code())
        try:
            digest.update(bytes_of(submission.path))
        except ValueError as problem:
            digest.update(str(problem).encode())
        return digest.hexdigest()

    def grade(self, submission: Submission) -> list[Row]:
        """The points of one notebook. Whatever is in it, there is a row an exercise."""
        try:
            if submission.week not in self.weeks:
                known = f"{min(self.weeks)} to {max(self.weeks)}"
                raise ValueError(f"no week is known for it: name it {known}")
            cells = cells_of(submission.path)
        except (ValueError, OSError) as problem:
            return self.nothing(submission, str(problem))
        running = Session(self.way, self.library, self.limits, cells)
        try:
            rows = [
                self._one(running, submission, name)
                for name in self.weeks[submission.week]
            ]
        finally:
            running.close()
        if not running.notes:
            return rows
        note = "; ".join(
            f"cell {k} {said}" for k, said in sorted(running.notes.items())
        )
        return [Row(**(asdict(row) | {"note": _plain(note)[:500]})) for row in rows]

    def nothing(self, submission: Submission, why: str) -> list[Row]:
        """No points for any exercise of the week, and the reason."""
        return [
            self._row(submission, name, 0, f"Not graded: {why}.")
            for name in self.weeks.get(submission.week, ("",))
        ]

    def _one(self, running: Session, submission: Submission, name: str) -> Row:
        function = EXERCISES[name].solution.__name__
        exercise = exercise_for(name, self.seed, draws=self.draws, count=DRAWS)
        leaves = [list(exercise.cases[0].arguments).index(x) for x in exercise._leaves]
        try:
            running.start()
            if not running.has(function):
                words = f"There is no function `{function}` in this notebook."
                return self._row(submission, name, 0, words)
        except Ended as problem:
            return self._row(submission, name, 0, f"Not graded: {problem}.")
        running.problem = half = ""
        try:
            answer = running.function(function, leaves)
            verdict = exercise.check(answer)
            ended = running.problem  # before anything else is asked
            if verdict.begun and not verdict.passed and not ended:
                with running.beside():  # the checker bounds what it asks for
                    half = halves.half(exercise, answer)
        except (Exception, TimeoutInterrupt) as problem:  # no answer may end the grader
            running.close()
            words = f"the checker failed on its answers: {type(problem).__name__}"
            return self._row(submission, name, 0, f"Not graded: {words}.")
        words = verdict.message
        if ended and not verdict.passed and "longer than" not in words:
            words = f"While `{function}` ran, its process was ended: {ended}."
        if half:  # rounded down
            return self._row(submission, name, exercise.minutes // 2, f"{half} {words}")
        points = exercise.minutes if verdict.passed else 0
        return self._row(submission, name, points, words)

    def _row(self, submission: Submission, name: str, points: int, says: str) -> Row:
        of = EXERCISES[name].minutes if name else 0
        return Row(
            submission.student,
            submission.week,
            name,
            points,
            of,
            _plain(says)[:1000],
            _name(submission.name),
        )


@cache
def _code() -> bytes:
    """Of all that decides about points: both packages, and torch."""
    digest = hashlib.sha256(torch.__version__.encode())
    for package in (isolation.BOOK, Path(rlhf_minimal.__file__).parent):
        for path in sorted(package.rglob("*.py")):
            digest.update(path.relative_to(package.parent).as_posix().encode())
            digest.update(path.read_bytes())
    return digest.digest()


def _name(text: str) -> str:
    """A name as it is, with what cannot be printed or is no UTF-8 as an escape: two stay two."""
    return "".join(
        c
        if c.isprintable() and c != "\\"
        else c.encode("unicode_escape").decode("ascii")
        for c in text
    )


def _plain(text: str) -> str:
    """One line without control characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _cell(value: Any) -> Any:
    """A text as one that no spreadsheet takes for a formula.

    One begins with a sign, full-width and small ones too, where a cell begins: at the beginning, and after what other
    countries' spreadsheets have for a comma.
    """
    if not isinstance(value, str):
        return value
    return re.sub(
        r"""(^|[;|\t])([\s"]*)([=+\-@＝＋－＠﹦﹢﹣﹫−])""", r"\1\2'\3", value
    )


def table(rows: Sequence[Row]) -> str:
    """CSV: a row an exercise."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows({k: _cell(v) for k, v in asdict(row).items()} for row in rows)
    return text.getvalue()


def totals(rows: Sequence[Row], weeks: Mapping[str, Sequence[str]]) -> str:
    """CSV: a row a student, a column a week; of several notebooks for one week the best counts."""
    each: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        each.setdefault((row.student, row.week), []).append(row)
    best: dict[str, dict[str, int]] = {}
    for (student, week), of_all in each.items():
        points = sum(row.points for row in feedback.best(of_all))
        best.setdefault(student, {})[week] = points
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["student", *weeks, "sum", "of"])
    of = sum(EXERCISES[name].minutes for week in weeks.values() for name in week)
    for student in sorted(best):
        columns = [best[student].get(week, "") for week in weeks]
        writer.writerow([_cell(student), *columns, sum(best[student].values()), of])
    return text.getvalue()


def write(path: Path, text: str) -> None:
    """A whole file or none, also if the grader is stopped now."""
    beside = path.with_name(path.name + ".new")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


def secret(out: Path) -> int:
    """The seed of the hidden batches: made once for a folder of grades, and kept there."""
    path = out / "secret.json"
    if not path.is_file():
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(file, "w", encoding="utf-8") as writer:
            writer.write(json.dumps({"draws": secrets.randbits(62)}) + "\n")
    return int(json.loads(path.read_text(encoding="utf-8"))["draws"])


def grade_all(
    grader: Grader,
    found: Sequence[Submission],
    out: Path,
    *,
    again: bool = False,
    say: Callable[[str], None] = print,
    chapters: Mapping[str, str] | None = None,
) -> list[Row]:
    """Grade what has not been graded yet, and write the tables after each submission.

    Args:
        grader: the course.
        found: the submissions.
        out: the folder of grades.
        again: also what has been graded.
            What earlier runs have graded and this one was not given stays in the tables.
        say: is told of each submission.
        chapters: exercise -> what to read again, for the students' files.
    """
    kept, running = out / "results", out / "running.json"
    kept.mkdir(mode=0o700, parents=True, exist_ok=True)
    earlier = _earlier(grader, kept, {_place(submission) for submission in found})
    began = running.read_text(encoding="utf-8") if running.is_file() else ""
    rows: list[Row] = []
    older = too_many(found)
    try:
        for submission in found:
            if submission.path in older:
                words = f"of a student's notebooks for a week the newest {NEWEST} are"
                rows += grader.nothing(submission, words)
                continue
            key = grader.key(submission)
            path = kept / f"{_place(submission)}.json"
            known = _known(path, key)
            if known is not None and not again:
                rows += known
                continue
            if began == key:  # whatever it did, it does it once
                words = "the grader was ended while it ran; grade it by hand"
                mine = grader.nothing(submission, words)
                began = ""
            else:
                write(running, key)
                try:
                    mine = grader.grade(submission)
                except (
                    Exception,
                    TimeoutInterrupt,
                ) as problem:  # its failure, and nobody else's
                    words = f"the grader failed on it ({type(problem).__name__})"
                    mine = grader.nothing(submission, words)
            plain = {
                "seed": grader.seed,
                "key": key,
                "rows": [asdict(row) for row in mine],
            }
            write(path, json.dumps(plain, indent=1) + "\n")
            running.unlink(missing_ok=True)
            rows += mine
            points = f"{sum(r.points for r in mine)} of {sum(r.of for r in mine)}"
            say(f"{submission.student} {submission.week}: {points} points")
            _write_tables([*earlier, *rows], grader, out)
    except KeyboardInterrupt:
        running.unlink(missing_ok=True)  # the lecturer stopped it, not the notebook
        raise
    finally:
        _write_tables([*earlier, *rows], grader, out)
        feedback.write([*earlier, *rows], grader.weeks, chapters or {}, out, write)
    return rows


def _earlier(grader: Grader, kept: Path, here: set[str]) -> list[Row]:
    """What is known of notebooks that are not in this run's folder: those of other weeks."""
    rows = []
    for path in sorted(kept.glob("*.json")):
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            mine = [Row(**row) for row in found["rows"]]
            if path.stem not in here and found["seed"] == grader.seed:
                rows += [r for r in mine if r.exercise in grader.weeks.get(r.week, ())]
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return rows


def _place(submission: Submission) -> str:
    """Of its result: the same file name for another week is another place."""
    name = f"{submission.week}/{submission.name}"
    return hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:24]


def _known(path: Path, key: str) -> list[Row] | None:
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        return [Row(**row) for row in kept["rows"]] if kept["key"] == key else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write_tables(found: Sequence[Row], grader: Grader, out: Path) -> None:
    rows = sorted(found, key=lambda row: (row.student, row.week, row.notebook))
    write(out / "grades.csv", table(rows))
    write(out / "totals.csv", totals(rows, grader.weeks))
    plain = {
        "seed": grader.seed,
        "isolation": grader.way.name,
        "bound": bounds.SAYS[grader.way.bound],
        "does not stop": grader.way.does_not,
        "limits": asdict(grader.limits),
        "rows": [asdict(row) for row in rows],
    }
    write(out / "grades.json", json.dumps(plain, indent=1) + "\n")


def strongest(
    library: Path,
    limits: Limits,
    wanted: str = "",
    private: Sequence[Path] = (),
    bound: str | None = None,
) -> Isolation:
    """The first of the walls that starts a worker here; or the way that is wanted, if it does.

    Args:
        library: a folder with `worker.py` and the library.
        limits: what a submission may use.
        wanted: a name in `isolation.WAYS`; only so are process limits alone taken.
        private: files and folders that a worker behind walls must not see; it is looked for from inside.
        bound: of all processes together, one of `bounds.KINDS` or ""; by default the first that works here.

    Raises:
        RuntimeError: it does not, and why.
    """
    reasons = []
    places = tuple(os.path.abspath(path) for path in private)
    if bound is None:
        bound = bounds.best(limits.memory, limits.processes)
    for name in [wanted] if wanted else isolation.WALLS:
        way = replace(isolation.WAYS[name], private=places).with_bound(bound)
        with tempfile.TemporaryFile() as complaints:
            trial = Session(way, library, limits, [])
            trial.complaints = complaints.fileno()
            try:
                trial.start()
                if name not in isolation.WALLS:
                    return way
                files = isolation.canaries(places)
                look = f"import os\nif any(map(os.path.exists, {files!r})): seen = len"
                trial.ask({"do": "cell", "source": look, "number": 0}, 20.0)
                if not trial.has("seen"):
                    return way
                reasons.append(
                    f"{name}: the answers or the grades can be seen from inside"
                )
            except (Ended, OSError, RuntimeError) as problem:
                complaints.seek(0)
                said = complaints.read().decode("utf-8", "replace")[-300:]
                reasons.append(_plain(f"{name}: {problem}. {said}"))
            finally:
                trial.close()
    raise RuntimeError("\n".join(reasons))
