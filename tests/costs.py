"""What a run of the checks has cost, from the reports that pytest writes: by file, and by chapter."""

import re
import xml.etree.ElementTree as ElementTree
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHAPTERS = ROOT / "notebooks"
KINDS = ("notebook", "exercises", "records", "pages")
NO_CHAPTER = "(records that no chapter reads)"


@dataclass(frozen=True)
class Case:
    """One test of a report: the file (or class) that it stands in, what it is called, and what it took."""

    file: str
    name: str
    seconds: float

    @property
    def parameters(self) -> str:
        """What pytest writes in square brackets behind a test's name."""
        return self.name.partition("[")[2].removesuffix("]")


def read(report: Path) -> list[Case]:
    """The tests of a report, `--junit-xml`. A test that waited for work done elsewhere notes the seconds of that."""
    found = []
    for case in ElementTree.parse(report).iter("testcase"):
        noted = [p.get("value") for p in case.iter("property") if p.get("name") == "seconds"]
        seconds = float(noted[0] if noted else case.get("time", 0.0))
        found.append(Case(case.get("classname", "?"), case.get("name", ""), seconds))
    return found


def slowest(cases: list[Case], n: int = 15) -> list[tuple[float, str]]:
    """The seconds of the files that took the longest, their tests added up.

    Two tests run at a time, so the seconds of all files add up to about twice those of the check.
    """
    seconds: Counter[str] = Counter()
    for case in cases:
        seconds[case.file] += case.seconds
    return [(time, name) for name, time in seconds.most_common(n) if time >= 1]


class Book:
    """Which chapter a test is about: the one that asks the exercise, reads the record, or is the page or notebook."""

    def __init__(self, folder: Path = CHAPTERS):
        texts = {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.ipynb"))}
        self.chapters = list(texts)
        self.asks = {
            id: chapter for chapter, text in texts.items() for id in re.findall(r'check\(\\"([\w-]+)\\"', text)
        }
        records = [path.stem for path in (folder / "results").glob("*.json")]
        self.reads = {r: [chapter for chapter, text in texts.items() if f"{r}.json" in text] for r in records}

    def about(self, case: Case) -> tuple[str, list[str]]:
        """The kind of a test, one of `KINDS`, and the chapters that share its cost; "" if it is of none."""
        folder, _, file = case.file.rpartition(".")
        if file == "ipynb":
            return "notebook", [case.file.split(".")[-2]]
        if pages := [c for c in self.chapters if f"notebooks/{c}.html" in case.parameters]:
            return "pages", pages[:1]
        stem = file.removeprefix("test_").replace("_", "-")
        if folder == "tests.results":
            readers = {chapter for record, those in self.reads.items() if record.startswith(stem) for chapter in those}
            return "records", sorted(readers) or [NO_CHAPTER]
        if folder == "tests.exercises":
            asked = [id for id in self.asks if case.parameters == id or case.parameters.startswith(f"{id}-")]
            if asked:
                return "exercises", [self.asks[max(asked, key=len)]]
            return "exercises", [c for c in self.chapters if c == stem]
        return "", []

    def costs(self, cases: list[Case]) -> dict[str, Counter[str]]:
        """chapter -> kind -> seconds, dearest chapter first."""
        found: dict[str, Counter[str]] = defaultdict(Counter, {chapter: Counter() for chapter in self.chapters})
        for case in cases:
            kind, chapters = self.about(case)
            for chapter in chapters:
                found[chapter][kind] += case.seconds / len(chapters)
        return dict(sorted(found.items(), key=lambda item: -item[1].total()))


def table(costs: dict[str, Counter[str]]) -> Iterator[str]:
    """A line a chapter, in seconds."""
    yield "".join(f"{word:>10}" for word in (*KINDS, "all")) + "  chapter"
    for chapter, seconds in costs.items():
        yield "".join(f"{x:10.1f}" for x in (*(seconds[kind] for kind in KINDS), seconds.total())) + f"  {chapter}"
