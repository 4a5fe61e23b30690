"""Facts about this build and its chapters, collected when the page is written: versions, run times, reading times."""

import importlib.metadata
import platform
import re

import apparatus
import numbering
from data_files import ROOT, cells_of, pages_below, read, title_of, using
from printing import made_by, table

TIMES = ROOT / "book" / "data" / "run-times.json"
WORDS_A_MINUTE = 180  # technical prose
SECONDS_A_LINE = 4  # of code
MINUTES_AN_EQUATION = 0.5
MINUTES_A_FIGURE = 1
FIGURES = {"image/svg+xml", "image/png", "application/vnd.jupyter.widget-view+json"}
MAIN_POINT = "main-point"  # the tag of the cell with which a chapter's opening ends
GENERATED = re.compile(r"^```\{generated\} (.+)\n((?:.*\n)*?)```$", re.MULTILINE)
EXERCISE = "exercise"  # the tag of a cell that belongs to an exercise and is made of no source
FOLDED = {"install", "remove-cell", "remove-input", "hide-cell", "hide-input"}


def reading_minutes(path):
    """The minutes of a notebook without its exercises, rounded up to the next five."""
    return rounded(estimate(cells_of(path)))


def opening_minutes(path):
    """Whole minutes to read as far as the cell with the tag `main-point`; None where no cell has it.

    They are short, and a path has many of them: up to the next five would be half too much.
    """
    cells = cells_of(path)
    for number, cell in enumerate(cells):
        if MAIN_POINT in cell["metadata"].get("tags", []):
            return round(estimate(cells[: number + 1]))
    return None


def page_minutes(page, levels=None, only=None):
    """The minutes to read any page of the book, generated text with it; of questions those of `levels` or `only`."""
    if (path := ROOT / f"{page}.ipynb").is_file():
        return reading_minutes(path)
    if not (path := ROOT / f"{page}.md").is_file():
        raise ValueError(f"there is no page {page!r}")
    text = path.read_text(encoding="utf-8")
    said = GENERATED.sub(lambda found: "" if found[1].startswith("apparatus_pages:") else printed(found), text)
    if "apparatus_pages:interview_questions" in text:
        for asked in apparatus.questions().values():
            if (levels and asked.level not in levels) or (only and asked.id not in only):
                continue
            follow_ups = (f"{one.question} {one.answer}" for one in asked.follow_ups)
            said += "\n" + "\n".join((asked.question, asked.answer, asked.wrong, *follow_ups))
    return rounded(len(said.replace("|", " ").split()) / WORDS_A_MINUTE)


def printed(found):
    """What a `{generated}` block prints: the words of its first line are arguments, its content is the last one."""
    content = "\n".join(line for line in found[2].splitlines() if not line.startswith(":"))
    return made_by(*found[1].split(), *([content] if content else []))


def rounded(minutes):
    """Up to the next five."""
    return 5 * -(-int(minutes + 0.999) // 5)


def estimate(cells):
    """Minutes to read these cells: words, equations, figures and unfolded lines of code, without exercises and bugs."""
    words = lines = equations = figures = 0
    for cell in cells:
        of_an_exercise = EXERCISE in cell["metadata"].get("tags", [])
        if of_an_exercise or str(cell["metadata"].get("from", "")).startswith(("exercise/", "bug/")):
            continue
        source = cell["source"]
        if cell["cell_type"] == "markdown":
            equations += source.count("$$") // 2
            text = re.sub(r"\$\$.*?\$\$", "", source, flags=re.DOTALL)
            words += sum(bool(re.search(r"\w", word)) for word in text.split())  # the lines of a table are none
            continue
        figures += any(FIGURES & set(output.get("data", {})) for output in cell["outputs"])
        if not FOLDED & set(cell["metadata"].get("tags", [])):
            lines += sum(1 for line in source.splitlines() if line.strip())
    together = words / WORDS_A_MINUTE + lines * SECONDS_A_LINE / 60
    return together + equations * MINUTES_AN_EQUATION + figures * MINUTES_A_FIGURE


def exercise_minutes(path):
    """What the exercises that a notebook sets, and the bugs that it hides, say that they take."""
    from rlhf_book.exercises import BUGS, EXERCISES

    cells = cells_of(path)
    origins = [str(cell["metadata"].get("from", "")) for cell in cells]
    tagged = "".join(cell["source"] for cell in cells if EXERCISE in cell["metadata"].get("tags", []))
    return sum(int(minutes) for minutes in re.findall(r"\((\d+) minutes\)", tagged)) + sum(
        item.minutes
        for item in [*EXERCISES.values(), *BUGS.values()]
        if any(f"/{item.id}/" in origin for origin in origins)
    )


def times():
    """What book/_tools/run_times.py wrote; no notebook, where nothing is recorded."""
    if not TIMES.exists():
        return {"notebooks": {}}
    with using(TIMES):
        recorded = read(TIMES)
        for name, seconds in recorded["notebooks"].items():
            if not isinstance(seconds, int | float) or not 0 <= seconds < 1e6:
                raise ValueError(f"the seconds of {name} are {str(seconds)[:40]!r}")
        missing = [name for name in ("date", "python", "torch", "machine", "cores") if name not in recorded]
        if missing:
            raise ValueError(f"lacks {', '.join(missing)}")
    return recorded


def versions():
    """(package, installed) for every exact pin of requirements.txt."""
    pins = re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "requirements.txt").read_text(encoding="utf-8"), re.MULTILINE)
    found = []
    for name, pinned in pins:
        try:
            installed = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            installed = "not installed"
        found.append((name, pinned, installed.split("+")[0]))
    return found


def link(page):
    """A page by its title."""
    suffix = "ipynb" if (ROOT / f"{page}.ipynb").is_file() else "md"
    return f"[{numbering.numbered(title_of(page), page)}](/{page}.{suffix})"


def reading_times():
    """Each chapter with the minutes to read it and to do its exercises, and the seconds to run it."""
    measured, rows = times()["notebooks"], []
    for page in numbering.chapters():
        path = ROOT / f"{page}.ipynb"
        seconds, exercises = measured.get(path.stem), exercise_minutes(path)
        minutes = [f"{reading_minutes(path)} min", f"{exercises} min" if exercises else "none"]
        rows.append([link(page), *minutes, f"{seconds:.0f} s" if seconds else "not recorded"])
    return table(["chapter", "to read", "exercises", "to run"], rows)


def reading_path(lines):
    """A path through the book, with the minutes of every step and their sum.

        ```{generated} book_facts:reading_path
        notebooks/from-zero | whole | everything from text to gradient
        openings | | the main point of each of the other chapters
        book/interview | whole | say an answer aloud, then open ours
        ```

    A line is a page, how much of it, and what it is good for. How much is "whole", "exercises" (a chapter and what it
    sets) or "opening" (as far as its main point); of the interview page also "levels 1, 2" (the questions of these
    levels) and "twenty" (those for two hours). The word `openings` in place of a page stands for the openings of all
    chapters that mark one and are not named in this list, or of those in the parts of `_toc.yml` named there:
    `openings | PPO, Critic-free | why it exists`.
    """
    steps, rows = steps_of(lines.splitlines(), list(numbering.chapters())), []
    for page, part, why, minutes in steps:
        words = PARTS_OF_A_PAGE.get(part, f"the questions of {part}")
        rows.append([f"{link(page)}, {words}" if words else link(page), why, in_words(minutes)])
    return table(["what", "for", "time"], [*rows, ["**together**", "", total(steps)]])


MINUTES_ALOUD = 2  # to say an answer, hear what was wrong with it, and say it again
TWENTY = "twenty"  # the questions for two hours, with their whole answers
PARTS_OF_A_PAGE = {"whole": "", "exercises": "with its exercises", "opening": "to its main point"}
PARTS_OF_A_PAGE[TWENTY] = "the twenty for two hours"


def steps_of(lines, all_chapters):
    """[(page, part, why, minutes)] of a reading path."""
    wanted = [[word.strip() for word in line.split("|")] for line in lines if line.strip()]
    if wrong := [step for step in wanted if len(step) != 3]:
        raise ValueError(f"{wrong[0]} is no step: expected a page, how much of it and what for, between bars")
    named, steps = {page for page, _, _ in wanted}, []
    for page, part, why in wanted:
        if page == "openings":
            among = set(all_chapters if not part else pages_in(part)) - named
            marked = {name: opening_minutes(ROOT / f"{name}.ipynb") for name in all_chapters if name in among}
            steps += [(name, "opening", why, minutes) for name, minutes in marked.items() if minutes is not None]
        else:
            steps.append((page, part, why, step_minutes(page, part)))
    return steps


def step_minutes(page, part):
    """The minutes of so much of a page."""
    path = ROOT / f"{page}.ipynb"
    if part.startswith("levels "):
        return page_minutes(page, levels_of(page, part))
    if part == TWENTY:
        levels_of(page, "levels 1")  # refuses another page than that of the questions
        twenty = apparatus.spoken()
        return page_minutes(page, only=twenty) + MINUTES_ALOUD * len(twenty)
    if part not in PARTS_OF_A_PAGE:
        raise ValueError(f"{page}: how much is {part!r}, expected one of {', '.join(PARTS_OF_A_PAGE)}")
    if part != "whole" and not path.is_file():
        raise ValueError(f"{page}: only a chapter has an opening and exercises")
    minutes = opening_minutes(path) if part == "opening" else page_minutes(page)
    if minutes is None:
        raise ValueError(f"{page}: no cell has the tag {MAIN_POINT!r}")
    return minutes + (exercise_minutes(path) if part == "exercises" else 0)


def levels_of(page, part):
    """{1, 2} of "levels 1, 2"; only the page of questions has levels."""
    if page != "book/interview":
        raise ValueError(f"{page}: only the questions of book/interview have levels")
    words = [word.strip() for word in part.removeprefix("levels ").split(",")]
    if unknown := [word for word in words if word not in map(str, apparatus.LEVELS)]:
        raise ValueError(f"{page}: there is no level {unknown[0]!r}; there are {', '.join(map(str, apparatus.LEVELS))}")
    return {int(word) for word in words}


def pages_in(captions):
    """The pages of parts of the contents, which are named by their captions with commas between."""
    contents = read(ROOT / "_toc.yml")["parts"]
    parts = {part["caption"]: part["chapters"] for part in contents}
    wanted = [caption.strip() for caption in captions.split(",")]
    if unknown := [caption for caption in wanted if caption not in parts]:
        raise ValueError(f"there is no part {unknown[0]!r} in _toc.yml; there are {', '.join(parts)}")
    return set(pages_below([parts[caption] for caption in wanted]))


def total(steps):
    """The sum of a path's minutes, in words."""
    minutes = sum(step[-1] for step in steps)
    return in_words(minutes) if minutes <= 240 else f"{minutes / 60:.0f} hours"


def in_words(minutes):
    """`95 min`, `2 h 50 min`"""
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02d} min"


def built_with():
    """What this book was built with, beside what requirements.txt asks for."""
    return table(
        ["package", "asked for", "this build"], [["Python", "3.11 or newer", platform.python_version()], *versions()]
    )


def run_times():
    """How long each chapter took when times were last recorded, and on what."""
    recorded = times()
    if not recorded["notebooks"]:
        return "No run has been recorded yet: python book/_tools/run_times.py."
    rows = [[name, f"{seconds:.1f} s"] for name, seconds in recorded["notebooks"].items()]
    rows.append(["**together**", f"{sum(recorded['notebooks'].values()):.0f} s"])
    words = f"Recorded on {recorded['date']}: Python {recorded['python']}, torch {recorded['torch']}, "
    words += f"{recorded['machine']}, {recorded['cores']} cores, one thread a chapter."
    return f"{words}\n\n{table(['chapter', 'seconds'], rows)}"
