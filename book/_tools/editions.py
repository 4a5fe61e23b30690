"""What the editions of the book have in common: which pages they hold, and what a page leaves at home.

Two editions, each as EPUB (`epub.py`) and as PDF (`pdf.py`): the **cores** alone, with what one looks things up in; and
**cores with depths**, which has the solutions, questions and lists as well. Pages that live by being moved, and the
listings of the library, stay on the site: a link to one of them becomes plain text.

Both are made of the pages that Sphinx's epub builder writes into a folder of its own, since a page that has been read
keeps the addresses of the builder for which it was read: `jupyter-book build . --builder custom --custom-builder epub
--path-output _build/editions`. There a live figure is the still that its notebook has saved.
"""

import posixpath
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from urllib.parse import unquote, urlsplit

import yaml
from bs4 import BeautifulSoup, Tag

ROOT = Path(__file__).resolve().parents[2]
BUILT = ROOT / "_build" / "editions" / "_build" / "epub"
TITLE = "Reinforcement learning for language models"
EDITIONS = {"cores": "the cores", "depths": "cores and depths"}
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
    "script, noscript, style, template, button, input, form, iframe, a.headerlink, .copybtn, p.downloads, "
    ".hero-words .sd-btn, .link-target, details.above-input, .tag_remove-cell, .exercise-tick, div.mjs-figure, "
    "svg a > title"
)
LIVE_FIGURE = 'div.mjs-figure, script[type="application/vnd.jupyter.widget-view+json"]'  # where no still was saved
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
    ids = {name: tidy(text) for name, text in texts.items()}
    formulas = {name: [(math, *tex_of(math)) for math in text.select(".math")] for name, text in texts.items()}
    found = set_formulas([(tex, display) for on in formulas.values() for _, tex, display, _ in on], form)
    pages = {}
    for name, text in texts.items():
        heading = text.select_one("h1")
        title = " ".join(heading.get_text().split()) if heading else name
        for i, (math, _, _, number) in enumerate(formulas[name]):
            math.clear()
            math.extend([*number, f"\ue000{i}\ue001"])
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
    for figure in main.select(LIVE_FIGURE):
        said = soup.new_tag("p")
        said.string = f"A live figure stands here on the site. {figure.get('aria-label', '')}".strip()
        said["class"] = "still"
        figure.insert_before(said)
    for gone in main.select(LEFT_OUT):
        gone.decompose()
    for box in main.select(".toctree-wrapper, .clearer"):
        if not box.get_text(strip=True):
            box.decompose()
    for link in main.select("svg a"):
        link.unwrap()
    return main


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
    for code in text.select("td code, th code"):  # a long name may be broken behind an underscore
        for said in list(code.find_all(string=re.compile("_"))):
            pieces = re.split(r"(?<=_)(?=[^_])", str(said))
            breaks = (BeautifulSoup("<wbr/>", "html.parser") for _ in pieces)
            said.replace_with(*[node for pair in zip(pieces, breaks, strict=True) for node in pair][:-1])
    return ids


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
            found.unwrap()
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
            "mml": "MathJax.tex2mml(tex, {display})",
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
