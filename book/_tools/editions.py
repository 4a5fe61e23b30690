"""What the editions of the book have in common: which pages they hold, and what a page leaves at home.

Two editions, each as EPUB (`epub.py`) and as PDF (`pdf.py`): the **cores** alone, with what one looks things up in; and
**cores with depths**, which has the solutions, questions and lists as well. Pages that live by being moved, and the
listings of the library, stay on the site: a link to one of them becomes plain text.

Both are made of the pages that Sphinx's epub builder writes into a folder of its own, since a page that has been read
keeps the addresses of the builder for which it was read: `jupyter-book build . --builder custom --custom-builder epub
--path-output _build/editions`. A live figure is the still that its notebook has saved, or its first picture
(`stills.py`). `NOTE` tells the reader what an edition leaves out; where something else is left out, say it there.
"""

import functools
import posixpath
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import yaml
from bs4 import BeautifulSoup, Tag

sys.path.insert(0, str(Path(__file__).parent))

from stills import place_stills  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
BUILT = ROOT / "_build" / "editions" / "_build" / "epub"
TITLE = "Reinforcement learning for language models"
EDITIONS = {"cores": "the cores", "depths": "cores and depths"}
# What the reader of a file has to know of it; a list of paragraphs.
NOTE = {
    "cores": (
        "The main line of every chapter, with notation, tables, glossary and references. The sections in depth, the "
        "solutions and the questions are in the other edition, cores and depths.",
    ),
    "depths": ("Every chapter with its sections in depth, the solutions, the questions and the lists.",),
}
NOTE_OF_BOTH = (
    "This edition stands still. A figure that moves in the web book is shown as it begins there, and what is folded "
    "away there lies open. Programs that the web book folds are left out, unless the text speaks of one.",
    "Words with dots below them name a page that is not in this edition: it stands in the web book.",
)
MATHJAX = ROOT / "book" / "_static" / "vendor" / "mathjax" / "tex-svg-full.js"
CSS = Path(__file__).with_name("edition.css")

LIVE = {
    "library",
    "playground",
    "figures",
    "trainer",
    "inspector",
    "comparison",
    "course",
    "build-report",
    "concept-index",
}
LOOKED_UP = {"index", "how-to-read", "notation", "statistics", "algorithms", "cheat-sheet", "glossary", "bibliography"}
# Of a browser: what is pressed, what is unfolded to read a figure's program, and anchors beside headings.
LEFT_OUT = (
    'script:not([type$="widget-view+json"]), '  # where a live figure stands, which `stills` looks for
    "noscript, style, template, button, input, form, iframe, a.headerlink, .copybtn, p.downloads, "
    ".hero-words .sd-btn, .link-target, details.above-input, .tag_remove-cell, .exercise-tick, div.mjs-figure, "
    "svg a > title"
)
# What a caption asks of who can press something, and what is said of answers that lie open here.
ASKED = re.compile(r"Where the figure moves, (?:[^.?]|[.](?=\d))*[.?]")
FOLDED_AWAY = re.compile(r", (?:folded away|then unfold)(?=[.,;])")
SPEAKS_OF = re.compile(r"\b[Ff]olded\b(?!\s+(?:away|here))[\s(]*(\w*)")  # a program that the web book folds
SHORT = 16  # lines of a program or an output that are kept on one page
WIDTH_OF = re.compile(r'data-width="([\d.]+)"')  # of a formula as MathML, in the height of an x
# From which width on a formula has its number below it, and is set smaller; on a page 600 wide, in a font for MathML
# that is wider than that of MathJax.
BROAD = {"broad": 50, "broadest": 66}
SET_UP_ENDS = re.compile(r"(?!import |from |[\s#)]|$)")  # a line that imports nothing
NO_ATTRIBUTES = re.compile(
    r"^(data-|on|aria-hidden$|align$|valign$|border$|width$|height$|bgcolor$|name$|target$|rel$)"
)


@dataclass(frozen=True)
class Part:
    """A part of the book: its caption, and its pages in order, each with whether it stands under the one before."""

    caption: str
    pages: tuple[tuple[str, bool], ...]


@dataclass(frozen=True)
class Page:
    """A page as the editions print it, and its title."""

    text: Tag
    title: str
    ids: frozenset[str]
    formulas: list[str]  # in the text their numbers stand between two signs of private use

    def html(self) -> str:
        """The page's elements as text, with its formulas."""
        said = self.text.decode_contents(formatter="minimal")
        return re.sub("\ue000(\\d+)\ue001", lambda found: self.formulas[int(found[1])], said)


def parts(edition: str, toc: Path = ROOT / "_toc.yml") -> list[Part]:
    """The pages of an edition, as the contents have them.

    Args:
        edition: One of `EDITIONS`.
        toc: The book's contents.

    Raises:
        ValueError: If there is no such edition.
    """
    if edition not in EDITIONS:
        raise ValueError(f"there is no edition {edition!r}; choose one of {', '.join(EDITIONS)}")
    contents = yaml.safe_load(toc.read_text(encoding="utf-8"))
    found = [Part("", ((contents["root"], False),))]
    for part in contents["parts"]:
        pages = []
        for chapter in part["chapters"]:
            pages.append((chapter["file"], False))
            pages += [(section["file"], True) for section in chapter.get("sections", [])]
        if kept := tuple(page for page in pages if _belongs(page[0], edition)):
            found.append(Part(part["caption"], kept))
    return found


def _belongs(page: str, edition: str) -> bool:
    folder, _, name = page.partition("/")
    if name.startswith("api/") or name in LIVE:
        return False
    if edition == "cores":
        return name in LOOKED_UP if folder == "book" else not name.endswith("-in-depth")
    return True


def read(built: Path, contents: list[Part], form: str) -> dict[str, Page]:
    """The pages of an edition, tidied, with their formulas set.

    Args:
        built: Where Sphinx's builder wrote them, `name.xhtml`.
        contents: Parts and pages.
        form: What becomes of a formula, `mml` or `svg`.

    Raises:
        ValueError: If a page has not been built, or a formula cannot be set.
    """
    names = [page for part in contents for page, _ in part.pages]
    texts = {name: text_of(built / f"{name}.xhtml") for name in names}
    with _one_chromium() as browser:
        for name, text in texts.items():
            place_stills(text, ROOT / f"{name}.ipynb", built, "../" * name.count("/"), browser)
    ids = {name: tidy(text) for name, text in texts.items()}
    formulas = {name: [(math, *tex_of(math)) for math in text.select(".math")] for name, text in texts.items()}
    found = set_formulas([(tex, display) for on in formulas.values() for _, tex, display, _ in on], form)
    pages = {}
    for name, text in texts.items():
        heading = text.select_one("h1")
        title = " ".join(heading.get_text().split()) if heading else name
        for i, (math, _, _, number) in enumerate(formulas[name]):
            math.clear()
            broad = []
            if form == "mml" and (width := WIDTH_OF.search(found[formulas[name][i][1:3]])):
                broad = [kind for kind, room in BROAD.items() if math.name == "div" and float(width[1]) > room]
                math["class"] = [*math.get("class", []), *broad]
            set_ = f"\ue000{i}\ue001"
            math.extend([set_, *number] if broad else [*number, set_])  # its number beside it, or below
        pages[name] = Page(text, title, frozenset(ids[name]), [found[key[1], key[2]] for key in formulas[name]])
    return pages


def text_of(page: Path) -> Tag:
    """A built page's own text, without what only a browser can use; what is folded there lies open here.

    Raises:
        ValueError: If the page has not been built, or holds no text.
    """
    if not page.is_file():
        raise ValueError(f"{page} has not been built: run the builder first, as `make epub` and `make pdf` do")
    soup = BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")
    main = soup.select_one('[role="main"]') or soup.select_one("main") or soup.body
    if main is None:
        raise ValueError(f"{page} holds no text")
    for figure in main.select("div.mjs-figure"):
        box, twin = figure.find_parent("figure"), None
        if box is not None:
            twin = box.find_next_sibling()
        if twin is not None and "learning-picture" in twin.get("class", []):  # the same, drawn of recorded runs
            box.decompose()
            continue
        said = soup.new_tag("p")
        said.string = f"A live figure stands here in the web book. {figure.get('aria-label', '')}".strip()
        said["class"] = "still"
        figure.insert_before(said)
    for tests in main.select("details.equation-tests"):  # a list of their names, to look up beside the files
        summary = tests.find("summary")
        counted = soup.new_tag("p")
        counted.string = f"{' '.join(summary.get_text().split()) if summary else 'Held by tests'}."
        tests.replace_with(counted)
    unfold(main)
    for gone in main.select(LEFT_OUT):
        gone.decompose()
    for box in main.select(".toctree-wrapper, .clearer"):
        if not box.get_text(strip=True):
            box.decompose()
    for link in main.select("svg a"):
        link.unwrap()
    for said in list(main.find_all(string=re.compile("Where the figure moves|folded away|then unfold"))):
        still = ASKED.sub("In the web book this figure moves.", str(said))
        said.replace_with(FOLDED_AWAY.sub("", still))
    return main


def unfold(main: Tag) -> None:
    """Of the programs that lie folded in the web book, open those that the text speaks of; `LEFT_OUT` takes the others.

    "The folded block" is what follows the paragraph, or, if nothing does, what stands before it. A name behind "folded"
    is that of a function in a folded program. What a folded cell shows is never left out.
    """
    for details in main.select("details.above-input"):
        cell = details.find_parent(class_="cell")
        for output in details.select(".cell_output"):
            (cell or details).append(output.extract())
    runs: list[tuple[list[Tag], list[Tag]]] = [([], [])]  # paragraphs, and the cells behind them
    for tag in main.select("h1, h2, h3, p, li:not(:has(p)), div.cell:not(.tag_remove-cell)"):
        if "cell" in tag.get("class", []):
            runs[-1][1].append(tag)
        elif tag.find_parent("div", class_="cell") is None:
            if runs[-1][1] or tag.name.startswith("h"):
                runs.append(([], []))
            runs[-1][0].append(tag)

    def programs(cells: list[Tag]) -> list[Tag]:
        folded = [cell.select_one("details.above-input") for cell in cells if not cell.select_one(".cell_output img")]
        there = [one for one in folded if one is not None]
        return [one for one in there if not _imports(one)] or there

    every = main.select("details.above-input")
    opened: dict[int, tuple[Tag, Tag | None]] = {}  # a program, and where it goes if it is a function alone
    for i, (paragraphs, cells) in enumerate(runs):
        for tag in paragraphs:
            for found in SPEAKS_OF.finditer(" ".join(tag.get_text().split())):
                start = re.compile(rf"^def {found[1]}\b", re.MULTILINE)
                named = next((one for one in every if found[1] and start.search(one.get_text())), None)
                if named is not None and _imports(named):  # far from here, and most of it is set-up
                    if (function := _lines(named, start, function=True)) is not None:
                        opened[id(function)] = (function, tag)
                    continue
                before = next((programs(c)[-1:] for _, c in runs[i - 1 :: -1] if c), []) if i else []
                for one in [named] if named is not None else programs(cells) or before:
                    opened[id(one)] = (one, None)
    for details, paragraph in opened.values():
        program = details if paragraph is not None else details.select_one(".cell_input")
        if program is not None:
            if paragraph is None and _imports(details):
                program = _lines(details, SET_UP_ENDS, function=False) or program
            label = BeautifulSoup("", "html.parser").new_tag("p", attrs={"class": "still lead"})
            label.string = "Folded in the web book:"
            if paragraph is None:
                details.insert_before(label, program.extract())
            elif paragraph.name == "li":
                paragraph.extend([label, program.extract()])
            else:
                paragraph.insert_after(label, program.extract())


def _lines(details: Tag, start: re.Pattern[str], *, function: bool) -> Tag | None:
    """A folded program from the first line that begins like this: to the end of that function, or all that follows."""
    program = BeautifulSoup(str(details), "html.parser").find("details")
    pre = program.find("pre") if isinstance(program, Tag) else None
    if not isinstance(pre, Tag):
        return None
    lines = [(line, _pre(line).get_text()) for line in pre.decode_contents().split("\n")]
    while lines and not start.match(lines[0][1]):
        lines.pop(0)
    if function:
        end = (i for i, (_, said) in enumerate(lines) if i and said and not said.startswith((" ", ")")))
        lines = lines[: next(end, len(lines))]
    pre.replace_with(_pre("\n".join(line for line, _ in lines).rstrip() + "\n"))
    return program.select_one(".cell_input") if lines else None


def _pre(inside: str) -> Tag:
    """A program's lines; elsewhere a parser of HTML gives up the spaces before them."""
    made = BeautifulSoup(f"<pre>{inside}</pre>", "html.parser").find("pre")
    assert isinstance(made, Tag)
    return made


def _imports(details: Tag) -> bool:
    summary = details.find("summary")
    return summary is not None and "imports" in summary.get_text()


def tidy(text: Tag) -> set[str]:
    """Make a page's elements valid XHTML; returns its ids."""
    ids: set[str] = set()
    drawn = {id(tag) for svg in text.select("svg") for tag in (svg, *svg.find_all(True))}
    for tag in text.find_all(True):
        for name in list(tag.attrs):
            kept = id(tag) in drawn or (tag.name == "img" and name in ("width", "height"))
            if NO_ATTRIBUTES.match(name) and not kept:
                del tag[name]
        if tag.name == "img":
            for name in ("width", "height"):
                if not str(tag.get(name, "1")).isdigit():
                    del tag[name]
            tag["alt"] = tag.get("alt") or ""
        if "id" in tag.attrs:
            if not tag["id"] or tag["id"] in ids or re.search(r"\s", tag["id"]):
                del tag["id"]
            else:
                ids.add(tag["id"])
        if tag.name == "details":
            tag["open"] = "open"
        if tag.name == "pre" and tag.get_text().count("\n") < SHORT:
            tag["class"] = [*tag.get("class", []), "short"]
        if tag.name == "p" and _leads(tag):
            tag["class"] = [*tag.get("class", []), "lead"]
        if tag.get("role") in (
            "doc-biblioentry",
            "status",
        ):  # the first is given up; the second is of a page that changes
            del tag["role"]
        if tag.name == "svg":
            tag["xmlns"] = "http://www.w3.org/2000/svg"
            if tag.get("role") == "group":  # of links, and none is left in it
                tag["role"] = "img"
        if tag.name == "table" and "wide" not in (tag.parent.get("class") or []):
            tag.wrap(BeautifulSoup("", "html.parser").new_tag("div", attrs={"class": "wide"}))
        if tag.name in ("tt", "big", "center"):
            tag.name = "span"
        # A paragraph holds no block, nor does a span hold a division.
        if tag.name in ("p", "span") and tag.find(("div", "p", "ul", "ol", "table", "pre", "figure", "details")):
            tag.name = "div"
    for cell in text.select("td"):  # a sentence needs more room than its longest word
        if len(cell.get_text()) > 24 and not cell.select_one(".math"):
            cell["class"] = [*cell.get("class", []), "long"]
    for cell in text.select("td"):
        if re.fullmatch(r"\d{4}-\d{2}", cell.get_text().strip()):
            cell["class"] = [*cell.get("class", []), "month"]
    for code in text.select("td code, th code"):  # a long name may be broken behind an underscore
        for said in list(code.find_all(string=re.compile("_"))):
            pieces = re.split(r"(?<=_)(?=[^_])", str(said))
            breaks = (BeautifulSoup("<wbr/>", "html.parser") for _ in pieces)
            said.replace_with(*[node for pair in zip(pieces, breaks, strict=True) for node in pair][:-1])
    return ids


def _leads(paragraph: Tag) -> bool:
    """Whether a paragraph announces what follows it: it ends with a colon, or it is a title such as an exercise has."""
    said = paragraph.get_text().strip()
    first = next((one for one in paragraph.contents if str(one).strip()), None)
    bold = isinstance(first, Tag) and first.name == "strong"
    title = bold and (said.startswith("Exercise") or first.get_text().strip() == said) and len(said) < 100
    return paragraph.parent.name not in ("td", "th", "li") and (said.endswith(":") or title)


def link(name: str, page: Page, pages: dict[str, Page], address_of) -> None:
    """Links lead to a place in the edition, or out of it to an address; any other becomes plain text.

    Args:
        name: The page's name.
        page: What it holds.
        pages: All pages of the edition.
        address_of: (page, id or "") -> what a link to that place says.
    """
    for found in page.text.select("a[href]"):
        address = urlsplit(found["href"])
        if address.scheme in ("http", "https", "mailto"):
            continue
        place = posixpath.normpath(posixpath.join(posixpath.dirname(name), unquote(address.path)))
        target = re.sub(r"\.x?html$", "", place) if address.path else name
        if address.scheme or address.netloc or target not in pages:
            listing = "/api/" in f"/{target}" or found.find("code") is not None
            if listing or not found.get_text().strip() or not re.match(r"(book|notebooks)/", target):
                found.unwrap()
            else:
                found.name, found.attrs = "span", {"class": "elsewhere"}
        else:
            fragment = unquote(address.fragment)
            found["href"] = address_of(target, fragment if fragment in pages[target].ids else "")
    for found in page.text.select("a:not([href])"):
        found.name = "span"


def pictures(name: str, page: Page, built: Path) -> Iterable[tuple[Tag, str]]:
    """A page's pictures with their files; one that the build lacks becomes its alternative text."""
    for picture in page.text.select("img"):
        source = unquote(picture.get("src", ""))
        file = posixpath.normpath(posixpath.join(posixpath.dirname(name), source))
        if source.startswith("data:"):
            continue
        if (built / file).is_file():
            yield picture, file
        else:
            picture.replace_with(picture["alt"])


def styles(built: Path) -> str:
    """How an edition looks: the colours of programs as the build has them, and what is said here."""
    file = built / "_static" / "pygments.css"
    return (file.read_text(encoding="utf-8") if file.is_file() else "") + CSS.read_text(encoding="utf-8")


def tex_of(math: Tag) -> tuple[str, bool, list[Tag]]:
    r"""The TeX of a formula as Sphinx marks it, without \( \); whether it has a line of its own; and its number."""
    number = [found.extract() for found in math.select(".eqno")]
    text = math.get_text().strip()
    display = text.startswith(("\\[", "\\begin"))
    return re.sub(r"^\\[(\[]|\\[)\]]$", "", text).strip(), display, number


def set_formulas(formulas: list[tuple[str, bool]], form: str) -> dict[tuple[str, bool], str]:
    """Every formula as MathML (`mml`) or as a drawing (`svg`), by the MathJax that the book ships, run in Chromium.

    Raises:
        ValueError: If MathJax cannot read one, or there is no Chromium.
    """
    keys = list(dict.fromkeys(formulas))
    if not keys:
        return {}
    with chromium() as browser:
        page = browser.new_page()
        settings = "{startup: {typeset: false}, loader: {load: []}, svg: {fontCache: 'none'}}"
        page.evaluate(f"() => {{ globalThis.MathJax = {settings}; }}")
        page.add_script_tag(path=MATHJAX)
        page.evaluate("MathJax.startup.promise.then(() => true)")
        does = {
            "mml": "MathJax.tex2mml(tex, {display}).replace('<math', '<math data-width=\"' + "
            "(parseFloat(MathJax.tex2svg(tex, {display}).querySelector('svg').getAttribute('width')) || 0) + '\"')",
            "svg": "MathJax.tex2svg(tex, {display}).querySelector('svg').outerHTML",
        }
        found = page.evaluate(f"(keys) => keys.map(([tex, display]) => {does[form]})", keys)
        page.close()
    for (tex, _), said in zip(keys, found, strict=True):
        if "<merror" in said or 'data-mml-node="merror"' in said:
            raise ValueError(f"MathJax cannot read {tex!r}")
    alt = {"mml": ("<math ", "<math alttext="), "svg": ("<svg ", '<svg role="img" aria-label=')}[form]
    written = (said.replace(alt[0], f'{alt[1]}"{escape(key[0])}" ', 1) for key, said in zip(keys, found, strict=True))
    return dict(zip(keys, written, strict=True))


@contextmanager
def _one_chromium() -> Iterator[Callable[[], Any]]:
    """A function that starts Chromium when it is called first, and gives the same one again."""
    with ExitStack() as stack:
        yield functools.cache(lambda: stack.enter_context(chromium()))


def note(edition: str) -> list[str]:
    """What the reader of an edition is told of it, paragraph by paragraph; of another name nothing."""
    return [*NOTE[edition], *NOTE_OF_BOTH] if edition in NOTE else []


def chromium():
    """A headless Chromium, without a network.

    Raises:
        ValueError: If there is none.
    """
    sys.path[:0] = [str(ROOT)] * (str(ROOT) not in sys.path)
    from tests.browser.chromium import PROGRAM, started

    if PROGRAM is None:
        raise ValueError("formulas and pages are set in Chromium: install it (Debian: apt-get install chromium)")
    return started()
