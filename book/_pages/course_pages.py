"""Courses made of this book: plans from `book/data/course.yml`, with minutes counted in the chapters and exercises."""

import re
from dataclasses import dataclass
from functools import cache

import apparatus
import bibliography
import book_facts
import numbering
from data_files import ROOT, made, read, text_of, title_of, using
from printing import table

SOURCE = ROOT / "book" / "data" / "course.yml"
ROLES = {"board": "On the board", "show": "To show", "room": "For the room", "print": "To print"}


@dataclass(frozen=True)
class Week:
    """One meeting, and what is done for it."""

    name: str  # of its handout: week-03
    number: int
    title: str
    point: str
    chapters: tuple[str, ...]
    readings: tuple[str, ...]
    exercises: tuple[str, ...]
    prepare: str
    wrong: str
    agenda: tuple[tuple[int, str], ...]  # minutes, and what is done
    links: dict[str, tuple[str, ...]]  # role -> Markdown
    project: int = 0  # minutes
    can: str = ""  # what students can do after it

    @property
    def reading(self):
        """Minutes to read its chapters."""
        return sum(map(reading_minutes, self.chapters))

    @property
    def solving(self):
        """Minutes of its exercises, which are their points, too."""
        return sum(exercise(name).minutes for name in self.exercises)

    @property
    def running(self):
        """Minutes that its notebooks compute, rounded up."""
        seconds = book_facts.times()["notebooks"]
        return -(-int(sum(seconds.get(chapter, 0) for chapter in self.chapters)) // 60)


@dataclass(frozen=True)
class Plan:
    """A course."""

    name: str
    title: str
    who: str
    session: int
    hours: tuple[float, ...]  # at least, and at most
    read: str  # when its chapters are read
    weeks: tuple[Week, ...]
    projects: tuple[str, ...] = ()  # of which everybody does one

    def minutes(self, week):
        """All that a week takes of a student."""
        return self.session + week.reading + week.solving + week.project

    @property
    def minutes_in_all(self):
        """What all of its weeks take."""
        return sum(map(self.minutes, self.weeks))

    @property
    def exercises(self):
        """Week -> ids, as the grader wants them."""
        return {week.name: list(week.exercises) for week in self.weeks}

    @property
    def left_out(self):
        """Chapters of the book that the plan does not read."""
        read_here = {chapter for week in self.weeks for chapter in week.chapters}
        names = [page.removeprefix("notebooks/") for page in numbering.chapters() if not page.endswith(numbering.DEPTH)]
        return [name for name in names if name not in read_here]


@cache
def plans():
    """Name -> plan.

    Raises:
        ValueError: a field is missing or unknown, or names what does not exist.
    """
    with using(SOURCE):
        return {name: _plan(name, entry) for name, entry in read(SOURCE)["plans"].items()}


def _known(name):
    if name not in plans():
        raise ValueError(f"there is no plan {name!r}: expected one of {', '.join(plans())}")
    return plans()[name]


@cache
def projects():
    """The projects with their rubrics, as they stand in the file."""
    with using(SOURCE):
        found = read(SOURCE)["projects"]
        for project in found:
            if (total := sum(part["points"] for part in project["rubric"])) != 100:
                raise ValueError(f"the rubric of {project['id']} adds up to {total}, expected 100")
        return found


def _plan(name, entry):
    weeks = tuple(_week(number, found) for number, found in enumerate(entry["weeks"], start=1))
    found = made(Plan, {key: value for key, value in entry.items() if key != "weeks"}, name=name, weeks=weeks)
    of = {project["id"]: project["minutes"] for project in projects()}
    for project in found.projects:
        if (minutes := sum(week.project for week in weeks)) != of.get(project):
            raise ValueError(f"{name}: {minutes} minutes for the project {project}, expected {of.get(project)}")
    for week in weeks:
        if (minutes := sum(part for part, _ in week.agenda)) != found.session:
            raise ValueError(f"{name}, week {week.number}: an agenda of {minutes} minutes, expected {found.session}")
    return found


def _week(number, entry):
    agenda = [(int(minutes), text) for part in entry["agenda"] for minutes, text in part.items()]
    if unknown := set(entry["links"]) - set(ROLES):
        raise ValueError(f"week {number} has links for {sorted(unknown)}, expected {sorted(ROLES)}")
    links = {role: tuple(map(link, entry["links"][role])) for role in ROLES if role in entry["links"]}
    found = made(Week, entry | {"agenda": agenda, "links": links}, name=f"week-{number:02d}", number=number)
    for chapter in found.chapters:
        if not path(chapter).is_file():
            raise ValueError(f"there is no chapter {chapter!r}")
    for name in found.exercises:
        exercise(name)
    for key in found.readings:
        if key not in papers():
            raise ValueError(f"references.bib has no {key!r}")
    return found


def link(target):
    """Markdown, from book/course.md: "grpo#4. One batch by hand", "figures#The KL explorer" or "cheat-sheet".

    Raises:
        ValueError: there is no such page, or no such heading on it.
    """
    page, _, heading = target.partition("#")
    notebook = path(page).is_file()
    file = path(page) if notebook else ROOT / "book" / f"{page}.md"
    if not file.is_file():
        raise ValueError(f"there is no page {page!r}")
    text, name = text_of(file.with_suffix("")), title_of(file.with_suffix(""))
    if not heading:
        return f"[{name}]({file.name})"
    if not re.search(rf"^#+ {re.escape(heading)}$", text, re.MULTILINE):
        raise ValueError(f"{page} has no heading {heading!r}")
    anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
    where = f"../notebooks/{page}.ipynb" if notebook else f"{page}.md"
    return f"[{f'{_short(name)}, {heading}' if notebook else heading}]({where}#{anchor})"


def path(chapter):
    """The notebook of a chapter."""
    return ROOT / "notebooks" / f"{chapter}.ipynb"


@cache
def reading_minutes(chapter):
    """Minutes to read it."""
    return book_facts.reading_minutes(path(chapter))


@cache
def title(chapter):
    """The chapter's title."""
    return title_of(f"notebooks/{chapter}")


def exercise(name):
    """An exercise by its id, as a ValueError if there is none."""
    from rlhf_book.exercises import EXERCISES

    if name not in EXERCISES:
        raise ValueError(f"there is no exercise {name!r}")
    return EXERCISES[name]


@cache
def papers():
    """Key -> "authors year, title", of every entry of the bibliography."""
    return {key: f"{of['who']} {of['year']}, *{of['title']}*" for key, of in bibliography.papers().items()}


def syllabus(name):
    """Markdown: a plan on one screen, a row a week.

    Raises:
        ValueError: a plan that does not exist, or a week that does not say what students can do after it.
    """
    found = _known(name)
    rows = []
    for week in found.weeks:
        if not week.can:
            raise ValueError(f"{name}, week {week.number} does not say what students can do after it (can)")
        numbers = numbering.chapters()
        chapters = ", ".join(f"[{numbers[f'notebooks/{c}']}](../notebooks/{c}.ipynb)" for c in week.chapters)
        rows.append((f"{week.number}. {week.title}", chapters, week.can, f"{found.minutes(week) / 60:.1f}"))
    rows.append(("together", "", "", f"{found.minutes_in_all / 60:.0f}"))
    return table(("week", "chapters", "after it students can", "hours"), rows)


def plan(name):
    """Markdown: a plan, week for week, with its minutes."""
    found = _known(name)
    rows = []
    for week in found.weeks:
        chapters = "<br>".join(
            f"[{numbering.chapters()[f'notebooks/{c}']}. {_short(title(c))}](../notebooks/{c}.ipynb)"
            for c in week.chapters
        )
        total = found.minutes(week)
        minutes = week.reading, week.solving, week.project, week.running
        rows.append((f"{week.number}", week.title, *map(str, minutes), f"{total / 60:.1f}", chapters))
    read = "read before" if found.read.startswith("before") else f"read {found.read}"
    head = ("", "meeting", "reading, min", "exercises, min", "project, min", "computing, min", "hours in all", read)
    hours = f"{found.minutes_in_all / 60:.0f}"
    parts = [
        f"For {found.who}. A meeting takes {found.session} minutes; all of it takes {hours} hours.",
        table(head, rows),
        *(_told(week) for week in found.weeks),
    ]
    if found.left_out:
        names = ", ".join(f"[{_short(title(c))}](../notebooks/{c}.ipynb)" for c in found.left_out)
        parts.append(f"Not read in this plan: {names}.")
    return "\n\n".join(parts)


def _told(week):
    exercises = ", ".join(f"{exercise(name).title} (`{name}`, {exercise(name).minutes})" for name in week.exercises)
    papers_of_it = "; ".join(papers()[key] for key in week.readings)
    return "\n".join(
        [
            f"**{week.number}. {week.title}.** *{week.point}*",
            "",
            *(f"- {minutes} minutes: {text}" for minutes, text in week.agenda),
            *(f"- {ROLES[role]}: {'; '.join(targets)}." for role, targets in week.links.items()),
            f"- Papers: {papers_of_it}.",
            f"- Exercises, with points: {exercises}.",
            f"- Prepare: {week.prepare}",
            f"- What goes wrong: {week.wrong}",
        ]
    )


def _short(title):
    return title.partition(":")[0]


def project_pages():
    """Markdown: the projects, each with its rubric."""
    parts = []
    for project in projects():
        rows = [(part["name"], f"{part['points']}", part["full"], part["half"]) for part in project["rubric"]]
        hours = f"{project['minutes'] / 60:g}"
        parts += [
            f"**{project['title']}** ({project['people']} people, {hours} hours each)",
            project["task"].strip(),
            table(("", "points", "all of them", "half of them"), rows),
        ]
    return "\n\n".join(parts)


def variants():
    """Markdown: which exercises have variants, and what may be asked."""
    from rlhf_book.course import VARIANTS

    rows = [(exercise(name).title, f"`{name}`", f"{len(known)}") for name, known in VARIANTS.items()]
    return table(("exercise", "id", "conventions beside the book's"), rows)


def read_again(found):
    """Exercise of a plan -> the chapter, and how far, for somebody who lost points with it."""
    from rlhf_book.whiteboard import TASKS

    back = {task.id: (task.page, f"section *{task.section}*") for task in TASKS}
    told = {}
    for name in (name for week in found.weeks for name in week.exercises):
        page, place = chapter_of(name).removeprefix("notebooks/"), f"up to exercise {numbering.exercises()[name]}"
        if page == "whiteboard":
            page, place = back[name]
        number = numbering.chapters()[f"notebooks/{page}"]
        told[name] = f"chapter {number}, *{title(page)}*, {place} (`notebooks/{page}.ipynb`)"
    return told


def chapter_of(name):
    """The page that sets an exercise."""
    return apparatus.pages_of_exercises()[name]
