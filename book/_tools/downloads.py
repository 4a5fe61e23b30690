"""The built book as one zip that opens from disk: `python book/_tools/downloads.py`, which is `make offline`.

    python book/_tools/downloads.py              writes _build/rlhf-book.zip
    python book/_tools/downloads.py --publish    puts the zip and the deck for Anki into _build/html/downloads, and
                                                 EPUB, PDF and slides where `make epub pdf slides` has made them, and
                                                 links to them from the front page, as the publishing workflow does

The zip holds what the build wrote, in one folder; `index.html` in it is where one begins. What is only for the site
that is published, the links to the downloads, is not in it, also after they were put on the front page.
"""

import argparse
import re
import shutil
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HTML = ROOT / "_build" / "html"
NAME = "rlhf-book"
# Of the build and not of the book, or on the site alone.
LEFT_OUT = {".doctrees", ".buildinfo", ".buildinfo.bak", "objects.inv", "downloads"}
PLACE = '<p class="downloads" hidden></p>'
LINE = re.compile(r'<p class="downloads"(?: hidden)?>.*?</p>', re.DOTALL)  # the place, or the links in it
FRONT = Path("book", "index.html")


def pages_in(html: Path) -> list[Path]:
    """The files that a reader's browser may ask for.

    Raises:
        ValueError: there is no built book.
    """
    if not (html / "index.html").is_file():
        raise ValueError(f"{html} holds no index.html: run `make book` first")
    return [f for f in sorted(html.rglob("*")) if f.is_file() and f.relative_to(html).parts[0] not in LEFT_OUT]


def write_zip(html: Path, target: Path) -> int:
    """Write the zip, and say how many files it holds."""
    files = pages_in(html)
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_suffix(".part")
    with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as book:
        for file in files:
            name = f"{NAME}/{file.relative_to(html).as_posix()}"
            if file == html / FRONT:  # links to the downloads lead nowhere in the zip
                book.writestr(name, LINE.sub(PLACE, file.read_text(encoding="utf-8")), zipfile.ZIP_DEFLATED)
            else:
                book.write(file, name)
    unfinished.replace(target)
    return len(files)


def publish(html: Path, address: str = "") -> str:
    """Put the downloads beside the pages and link to them, or link anew; say what the front page says now.

    Raises:
        ValueError: the front page has no place for the links.
    """
    front = html / FRONT
    text = front.read_text(encoding="utf-8") if front.is_file() else ""
    if (count := len(LINE.findall(text))) != 1:
        raise ValueError(f"{front} has {count} times {PLACE}, or links in it, expected once: run `make book` first")
    import deck  # beside this file; it needs genanki, which a zip does not

    folder = html / "downloads"
    write_zip(html, folder / f"{NAME}.zip")
    deck.main(["--out", str(folder / deck.OUT.name), *(["--address", address] if address else [])])
    size = (folder / f"{NAME}.zip").stat().st_size / 1e6
    book, cards = f"../downloads/{NAME}.zip", f"../downloads/{deck.OUT.name}"
    line = (
        f'<p class="downloads"><a href="{book}">The whole book as a zip</a> ({size:.0f} MB): unpack it and open '
        f'<code>index.html</code>. {editions(html)}<a href="{cards}">The interview questions for Anki</a>.</p>'
    )
    front.write_text(LINE.sub(lambda _: line, text), encoding="utf-8")
    return line


def editions(html: Path) -> str:
    """Put EPUB, PDF and slides beside the pages, those that have been made, and say where they are."""
    said, folder = [], html / "downloads"
    for edition, called in (("cores", "The chapters"), ("depths", "Chapters and depths")):
        files = [file for kind in ("epub", "pdf") if (file := html.parent / f"{NAME}-{edition}.{kind}").is_file()]
        links = []
        for file in files:
            shutil.copy(file, folder)
            size = file.stat().st_size / 1e6
            links.append(f'<a href="../downloads/{file.name}">{file.suffix[1:].upper()}</a> ({size:.0f} MB)')
        said += [f"{called} as {' or '.join(links)}. "] * bool(links)
    if (html.parent / "slides" / "index.html").is_file():
        shutil.copytree(html.parent / "slides", folder / "slides", dirs_exist_ok=True)
        said.append('<a href="../downloads/slides/index.html">Slides</a>, a deck a chapter. ')
    return "".join(said)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="The built book as one zip that opens from disk.")
    parser.add_argument("--publish", action="store_true", help="put zip and deck beside the pages, with links")
    parser.add_argument("--address", default="", help="where the book is published, for links in the deck")
    asked = parser.parse_args(words)
    try:
        if asked.publish:
            print(publish(HTML, asked.address))
        else:
            target = HTML.parent / f"{NAME}.zip"
            print(f"{write_zip(HTML, target)} files: {target}")
    except ValueError as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
