"""The page of errata, and the form with which every page asks for the next one (`theme.py` puts the link there).

What was wrong is told in `book/data/errata.yml`, whose head says what the fields mean. Every entry names the cell or
the test that shows what is said now; a link that leads nowhere is an error of the build.
"""

from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import apparatus
from data_files import made, read, using
from printing import flat

ERRATA = apparatus.DATA / "errata.yml"
FORM = "erratum.yml"


@dataclass(frozen=True)
class Erratum:
    """One statement that was corrected."""

    id: str
    date: date
    page: str
    was: str
    now: str
    proof: tuple[apparatus.Proof, ...]
    reported: str = ""

    def problems(self, found: list[apparatus.Claim]) -> list[str]:
        """What of it leads nowhere."""
        texts = [proof.problem(found) for proof in self.proof]
        if self.page not in apparatus.pages_of_the_book():
            texts.append(f"{self.page} is not a page of the book")
        return [f"{self.id}: {text}" for text in texts if text]


@cache
def errata(path: Path = ERRATA) -> tuple[Erratum, ...]:
    """Every entry, newest first as in the file.

    Raises:
        ValueError: an entry that is incomplete, stands twice or is out of order, naming it.
    """
    with using(path):
        found: dict[str, Erratum] = {}
        for entry in read(path, list):
            erratum = _erratum(entry)
            if erratum.id in found:
                raise ValueError(f"{erratum.id} stands twice")
            if found and erratum.date > list(found.values())[-1].date:
                raise ValueError(f"{erratum.id}: newest first, and it is newer than the entry before it")
            found[erratum.id] = erratum
        return tuple(found.values())


def _erratum(entry: dict[str, Any]) -> Erratum:
    told = {key: value for key, value in entry.items() if key != "date"}
    try:
        day = date.fromisoformat(str(entry.get("date")))
    except ValueError as problem:
        raise ValueError(f"{str(entry)[:60]}: expected a date such as 2026-11-23") from problem
    return made(Erratum, told, date=day)


def listed() -> str:
    """The page's list, as Markdown.

    Raises:
        ValueError: an entry that leads nowhere.
    """
    found = apparatus.claims()
    if wrong := [text for erratum in errata() for text in erratum.problems(found)]:
        raise ValueError("; ".join(wrong))
    return "\n\n".join(_told(erratum, found) for erratum in errata())


def _told(erratum: Erratum, found: list[apparatus.Claim]) -> str:
    source = next(apparatus.ROOT.glob(f"{erratum.page}.*"))
    proofs = []
    for proof in erratum.proof:
        if proof.test:
            proofs.append(f"by the test `{proof.test}`")
        else:
            proofs.append(f"under {proof.claim(found).link}")
    thanks = f" Reported by {erratum.reported}." if erratum.reported else ""
    return "\n".join(
        [
            f"(erratum-{erratum.id})=",
            f"**{erratum.date.isoformat()}, [](/{source.relative_to(apparatus.ROOT).as_posix()})**",
            "",
            f"- *It said:* {flat(erratum.was)}",
            f"- *It says:* {flat(erratum.now)}",
            f"- *Shown* {', and '.join(proofs)}.{thanks}",
        ]
    )


def form(repository: str, page: str = "") -> str:
    """The address of the form, with the page's name in its first field."""
    words = {"template": FORM, **({"where": page} if page else {})}
    return f"{repository.rstrip('/')}/issues/new?{urlencode(words, safe='/')}"


def repository() -> str:
    """The address of the repository, empty until somebody has published it."""
    return (read(apparatus.ROOT / "_config.yml").get("repository") or {}).get("url") or ""


def way_to_report() -> str:
    """Where the form is, for the page of errata."""
    if address := repository():
        return f"[Report an error]({form(address)}): a form that asks where, what it says, and what shows it wrong."
    return (
        "In the repository that this book was built from: **Issues**, **New issue**, **Erratum**. This copy does not"
        " know that repository's address (`repository: url` in `_config.yml`). With it, every page links to the form."
    )
