"""The page with answers to the 35 questions of "RL Interview Questions 2026", from book/data/asked.yml."""

from dataclasses import dataclass
from functools import cache

import apparatus
from data_files import ROOT, made, read, title_of, using

ASKED = ROOT / "book" / "data" / "asked.yml"
WORDS = range(40, 61)  # an answer's length
PARTS = {"algorithms": 19, "infrastructure": 16}


@dataclass(frozen=True)
class Asked:
    """A question that was asked in public, with our answer.

    Args:
        about: what is asked, in our words.
        answer: forty to sixty words.
        proof: ids of questions, "page#idea" or "tests/file.py::name".
        cannot: what the book cannot show of it.
    """

    about: str
    answer: str
    proof: tuple[str, ...] = ()
    cannot: str = ""


@cache
def asked(path=ASKED):
    """Part -> its questions, in order.

    Raises:
        ValueError: naming the file, for a part too many or too few, an answer without evidence or of another length.
    """
    with using(path):
        found = {part: [_entry(entry) for entry in entries] for part, entries in read(path).items()}
        if (sizes := {part: len(entries) for part, entries in found.items()}) != PARTS:
            raise ValueError(f"expected {PARTS}, got {sizes}")
        return found


def _entry(entry):
    found = made(Asked, entry)
    if not (found.proof or found.cannot):
        raise ValueError(f"{found.about!r}: it has no proof, and does not say what cannot be shown")
    if (length := len(found.answer.split())) not in WORDS:
        raise ValueError(f"{found.about!r}: an answer has 40 to 60 words, and this has {length}")
    return found


def proof_of(name):
    """What stands behind one line of `proof`: of a question, its first proof."""
    if name in apparatus.questions():
        return apparatus.questions()[name].proof[0]
    if name.startswith("tests/"):
        return apparatus.Proof(test=name)
    page, _, cell = name.partition("#")
    return apparatus.Proof(page=f"notebooks/{page}", cell=cell)


def problem(name, found):
    """Why a line of `proof` leads nowhere, with its name, or None; `found` are the book's claims."""
    if name not in apparatus.questions() and "#" not in name and not name.startswith("tests/"):
        return f"{name}: there is no such question"
    lost = proof_of(name).problem(found)
    return f"{name}: {lost}" if lost else None


def problems(path=ASKED):
    """Every proof that leads nowhere, in words."""
    found = apparatus.claims()
    named = [name for entries in asked(path).values() for entry in entries for name in entry.proof]
    return [lost for name in named if (lost := problem(name, found))]


def shown(name, found):
    """A line of evidence, with its link; `found` are the book's claims.

    Raises:
        ValueError: it leads nowhere.
    """
    if lost := problem(name, found):
        raise ValueError(lost)
    proof = proof_of(name)
    whole = apparatus.questions()[name].question if name in apparatus.questions() else ""
    if proof.test:
        where = f"{apparatus.test_docstring(proof.test) or 'A test:'} `{proof.test}`"
    else:
        claim = proof.claim(found)
        where = f"{title_of(claim.page)}, under {claim.link}"
    return f"- [{whole}](interview.md): {where}" if whole else f"- {where}"


def page(part):
    """The questions of a part, each with its answer and what stands behind it.

    Raises:
        ValueError: naming the file and the proof, for one that leads nowhere.
    """
    first = 1 if part == "algorithms" else 1 + PARTS["algorithms"]
    found, text = apparatus.claims(), []  # of all pages, read once
    for number, entry in enumerate(asked()[part], first):
        text += [f"### {number}. {entry.about}", entry.answer]
        if entry.proof:
            with using(ASKED):
                lines = [shown(name, found) for name in entry.proof]
            text.append("**Shown in**\n\n" + "\n".join(lines))
        if entry.cannot:
            text.append(f"**Cannot be shown here.** {entry.cannot}")
    return "\n\n".join(text)
