"""The version, wherever it stands, and what is new in it.

python -m tests.versions v0.2.0     says if a place has another version than the tag; the release begins with it
python -m tests.versions --notes    prints the newest section of the changelog, as the notes of a release
"""

import re
import sys
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
HEADING = re.compile(r"^## (\d+\.\d+\.\d+), (\d{4}-\d\d-\d\d)$", re.MULTILINE)


def read(name: str, root: Path = ROOT) -> str:
    return (root / name).read_text(encoding="utf-8")


def released(root: Path = ROOT) -> list[tuple[str, str, str]]:
    """The changelog's versions, newest first: number, day, text."""
    _, *parts = HEADING.split(read("CHANGELOG.md", root))
    return [(number, day, text.strip()) for number, day, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True)]


def unreleased(root: Path = ROOT) -> str:
    """What stands in the changelog above the newest version."""
    text = HEADING.split(read("CHANGELOG.md", root))[0]
    return text.partition("\n## Unreleased\n")[2].strip()


def places(root: Path = ROOT) -> dict[str, tuple[str, str]]:
    """Version and day by the file that says them; "" where it says no day."""
    citation = yaml.safe_load(read("CITATION.cff", root))
    (number,) = re.findall(r'^__version__ = "(.+)"$', read("rlhf_minimal/__init__.py", root), re.MULTILINE)
    return {
        "pyproject.toml": (tomllib.loads(read("pyproject.toml", root))["project"]["version"], ""),
        "rlhf_minimal/__init__.py": (number, ""),
        "CITATION.cff": (str(citation["version"]), str(citation["date-released"])),
        "CHANGELOG.md": released(root)[0][:2],
    }


def differences(version: str, root: Path = ROOT) -> list[str]:
    """The places that say another version than this one, or another day than the changelog."""
    day = places(root)["CHANGELOG.md"][1]
    wrong = [f"{place} says {number}" for place, (number, _) in places(root).items() if number != version]
    return wrong + [
        f"{place} says {of}, the changelog {day}" for place, (_, of) in places(root).items() if of not in ("", day)
    ]


def main(words: list[str]) -> int:
    """One tag, or --notes."""
    if words == ["--notes"]:
        print(released()[0][2])
        return 0
    if len(words) != 1 or not re.fullmatch(r"v\d+\.\d+\.\d+", words[0]):
        print("expected one tag such as v0.2.0, or --notes")
        return 2
    wrong = differences(words[0].removeprefix("v"))
    print("\n".join(wrong) or f"{words[0]}: every place agrees")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
