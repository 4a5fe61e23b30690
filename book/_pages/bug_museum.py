"""The bug museum: every bug of the book with its symptom, its mend, what catches it, and where it was met in public.

    ```{generated} bug_museum:index
    ```

    ```{generated} bug_museum:rooms
    ```

Symptoms are printed by the bugs themselves when the page is made (a second for all of them, and torch's first import);
diffs are made of their sources. Bugs of chapters come from `rlhf_book.exercises`, the others from `rlhf_book.museum`,
places from `book/data/bug-sources.yml`.
"""

import contextlib
import difflib
import io
import re
from functools import cache

import apparatus
import numbering
from data_files import read, title_of, using
from printing import folded

SOURCES = apparatus.DATA / "bug-sources.yml"
ANYWHERE = "Met in public code, and set in no chapter"


@cache
def bugs():
    """Every bug by id: those of the chapters in the book's order, then the others."""
    from rlhf_book.exercises import BUGS
    from rlhf_book.museum import FOUND

    of_chapters = {name: BUGS[name] for name in apparatus.pages_of_exercises() if name in BUGS}
    others = {bug.id: bug for bug in FOUND}
    if twice := of_chapters.keys() & others.keys():
        raise ValueError(f"two bugs have the id {', '.join(sorted(twice))}")
    return of_chapters | others


def sources(path=SOURCES):
    """Id of a bug -> the places where it was met, and the list of what was reported and is no bug.

    Raises:
        ValueError: a place of a bug that does not exist, or without a name, an address or words.
    """
    with using(path):
        found = read(path)
        known = bugs()
        for name, met in found["bugs"].items():
            if name not in known:
                raise ValueError(f"there is no bug {name!r}")
            for place in met:
                if place.keys() != {"name", "url", "said"} or not place["url"].startswith("https://"):
                    raise ValueError(f"{name}: expected a name, an address and what is said there, got {place}")
        for entry in found["none"]:
            if entry.keys() != {"title", "said", "fact", "see", "sources"}:
                raise ValueError(f"{entry.get('title')!r}: expected a title, said, fact, see and sources")
        return found


@cache
def symptom(name):
    """What a bug prints."""
    bug = bugs()[name]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        bug.symptom(bug.wrong)
    return out.getvalue().rstrip("\n")


def diff(bug):
    """From the wrong code to the mended one, every line of both, with one name for the two."""
    from rlhf_book.exercises.cells import source

    wrong, mended = source(bug.wrong), source(bug.mended)
    mended = re.sub(rf"\b{bug.mended.__name__}\b", bug.wrong.__name__, mended)
    before, after = wrong.splitlines(), mended.splitlines()
    lines = difflib.unified_diff(before, after, n=max(len(before), len(after)), lineterm="")
    return "\n".join(list(lines)[3:])  # without the names of files and the numbers of lines


def heading_of(page):
    return numbering.numbered(title_of(page), page) if page else ANYWHERE


def title(bug):
    return bug.title[0].upper() + bug.title[1:]


def by_page():
    """Page, or None -> its bugs. A depth stands with its own heading, after its core."""
    found, places = {}, apparatus.pages_of_exercises()
    for name, bug in bugs().items():
        found.setdefault(places.get(name), []).append(bug)
    return found


def link(bug):
    return f"[{title(bug)}](#museum-{bug.id})"


def index():
    """Two lists to choose from: by chapter, and by idea."""
    met = sources()["bugs"]
    lines = ["## By chapter", "", "A star marks those that were met in public code.", ""]
    for page, rooms in by_page().items():
        name = f"[{heading_of(page)}](/{page}.ipynb)" if page else f"*{ANYWHERE}*"
        shown = ", ".join(link(bug) + ("\\*" if bug.id in met else "") for bug in rooms)
        lines.append(f"- {name}: {shown}")
    lines += ["", "## By idea", ""]
    ideas = {}
    for bug in bugs().values():
        ideas.setdefault(bug.concept, []).append(bug)
    known = apparatus.concepts()
    for name in (name for name in known if name in ideas):
        lines.append(f"- {known[name].title}: {', '.join(link(bug) for bug in ideas[name])}")
    if lost := ideas.keys() - known.keys():
        raise ValueError(f"no idea has the id {', '.join(sorted(lost))}")
    return "\n".join(lines)


def rooms():
    """Every room, under the chapter that sets it."""
    met, parts = sources()["bugs"], []
    for page, found in by_page().items():
        parts.append(f"## {heading_of(page)}")
        for bug in found:
            parts += room(bug, page, met.get(bug.id, ()))
    return "\n\n".join(parts)


def room(bug, page, met):
    """One bug: what somebody noticed, what it prints, the code; folded what catches and what mends it."""
    from rlhf_book.exercises.cells import as_code

    _head, _, statement = bug.markdown.partition("\n\n")
    threads = [f"- [{place['name']}]({place['url']}): {place['said']}." for place in met]
    number = numbering.exercises().get(bug.id)
    asked = f"{{ref}}`exercise {number} <exercise-{bug.id}>` of its chapter, with a checker for your own mend"
    return [
        f"(museum-{bug.id})=\n### {title(bug)}",
        statement,
        f"```text\n{symptom(bug.id)}\n```",
        as_code(bug.wrong),
        *([f"It is {asked}."] if page else []),
        folded("What printed this", as_code(bug.symptom)),
        folded("The property that catches it", f"{bug.hint}\n\n{as_code(bug.reveals)}"),
        folded("The mend, and the moral", f"```diff\n{diff(bug)}\n```\n\n{moral(bug)}"),
        *([folded("Where it was met", "\n".join(threads))] if threads else []),
    ]


def moral(bug):
    return bug.solution_markdown.rpartition("**What was wrong.** ")[2]


def none():
    """What was reported as a bug, and is none."""
    parts = []
    for entry in sources()["none"]:
        threads = ", ".join(f"[{place['name']}]({place['url']})" for place in entry["sources"])
        chapter = f"[{title_of(entry['see'])}](/{entry['see']}.ipynb)"
        parts.append(
            f"**{entry['title']}.** {entry['said']} {entry['fact']} Chapter: {chapter}. Reported in {threads}."
        )
    return "\n\n".join(parts)
