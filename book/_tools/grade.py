"""Grade a folder of notebooks: `python book/_tools/grade.py SUBMISSIONS --plan ten-weeks --seed 7 --out grades`.

A submission is `STUDENT/week-03.ipynb`, `STUDENT/week-03/week-03.ipynb` (as nbgrader has it) or
`STUDENT-week-03.ipynb`. Its code runs in a process of its own, behind walls; the checker does not. Where
no walls work it grades nothing, unless told `--without-walls`. Written are grades.csv (a row an exercise, with the
checker's sentence), totals.csv (a row a student) and grades.json, after every submission, and at the end
feedback/STUDENT.md, which is for that student. Stopped with Ctrl-C, or repeated, it goes on where it was.

Keep the folder of grades to yourself, but for feedback: secret.json in it draws the hidden batches.
"""

import argparse
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "book" / "_pages"), str(ROOT / "notebooks"), str(ROOT)]

import course_pages  # noqa: E402
from rlhf_book.course import grading, isolation  # noqa: E402

HELP = """\
Install bubblewrap, or allow user namespaces. Ubuntu 24.04 forbids them: `sudo sysctl -w
kernel.apparmor_restrict_unprivileged_userns=0` allows them until the next start. `--without-walls` grades with process
limits alone; read what they do not stop first."""


def main(arguments: list[str]) -> int:
    """Read the command line, say which walls there are, grade."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("submissions", type=Path)
    parser.add_argument("--plan", choices=list(course_pages.plans()), default="ten-weeks")
    parser.add_argument("--seed", type=int, required=True, help="of the course, as in its handouts")
    parser.add_argument("--out", type=Path, required=True, help="the folder of grades")
    parser.add_argument("--week", type=int, help="of notebooks whose path names none")
    parser.add_argument("--isolation", choices=list(isolation.WALLS), default="", help="default: the first that works")
    parser.add_argument(
        "--without-walls", action="store_true", help="process limits only: students' code can read, write and forge"
    )
    parser.add_argument("--minutes", type=float, default=5.0, help="that one submission may take (5)")
    parser.add_argument("--memory-gb", type=float, default=4.0, help="that it may use (4)")
    parser.add_argument("--again", action="store_true", help="also what has been graded before")
    given = parser.parse_args(arguments)
    if not given.submissions.is_dir():
        parser.error(f"{given.submissions} is no folder")
    given.out.mkdir(mode=0o700, parents=True, exist_ok=True)
    week = f"week-{given.week:02d}" if given.week else ""
    found = list(grading.submissions(given.submissions, week))
    if unnamed := grading.nobody(found):
        parser.error(
            f"{len(unnamed)} of {len(found)} notebooks do not say whose they are, {unnamed[0]} for one: nothing was "
            "graded. Name them STUDENT/week-03.ipynb, STUDENT/week-03/week-03.ipynb or STUDENT-week-03.ipynb"
        )
    sys.stdout.reconfigure(errors="backslashreplace")
    for stop in ("SIGTERM", "SIGHUP"):  # as Ctrl-C: the student who is graded then is not to blame
        if hasattr(signal, stop):
            signal.signal(getattr(signal, stop), signal.default_int_handler)
    limits = isolation.Limits(seconds=60 * given.minutes, memory=int(given.memory_gb * 2**30))
    with tempfile.TemporaryDirectory(prefix="rlhf-course-library-") as folder:
        library = Path(folder)
        isolation.library_copy(library)
        try:
            draws = grading.secret(given.out)
            wanted = "limits" if given.without_walls else given.isolation
            way = grading.strongest(library, limits, wanted, [ROOT, given.submissions, given.out])
        except RuntimeError as problem:
            parser.error(f"there are no walls here, and nothing was graded.\n{problem}\n{HELP}")
        print(f"Isolation: {way.name}.\nIt stops: {way.does}.\nIt does not stop: {way.does_not}.", flush=True)
        plan = course_pages.plans()[given.plan]
        grader = grading.Grader(plan.exercises, given.seed, draws, way, limits, library)
        try:
            rows = grading.grade_all(
                grader, found, given.out, again=given.again, chapters=course_pages.read_again(plan)
            )
        except KeyboardInterrupt:
            print("Stopped. What has been graded is written; the same command goes on.")
            return 130
    print(f"{len(found)} notebooks, {len({row.student for row in rows})} students: {given.out / 'grades.csv'}")
    print(f"For the students: a file each in {given.out / 'feedback'}. The rest of the folder is yours.")
    notebooks = {(row.student, row.week, row.notebook) for row in rows}
    for (student, week), count in Counter((student, week) for student, week, _ in notebooks).items():
        if count > 1:
            print(f"{student} has {count} notebooks for {week}, of which the best counts: is it one student?")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
