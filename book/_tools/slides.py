"""One deck of slides a core, in _build/slides: `python book/_tools/slides.py`, which is `make slides`.

A deck holds what its chapter has: the question, the first figure, the main point, an equation, the batch by hand, the
result with its caption, three questions and the summary. The speaker's notes are the chapter's own paragraphs around
what is shown. Nothing is written twice, so a deck is as right as its chapter. Each is one HTML file that needs no
network: pictures and formulas are inside, and without JavaScript the slides stand one below the other.
"""

import argparse
import json
import re
import sys
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from markdown_it import MarkdownIt
from mdit_py_plugins.dollarmath import dollarmath_plugin

sys.path.insert(0, str(Path(__file__).parent))

from editions import ROOT, TITLE, parts, set_formulas  # noqa: E402

OUT = ROOT / "_build" / "slides"
CSS, SCRIPT = (Path(__file__).with_name(name).read_text(encoding="utf-8") for name in ("slides.css", "slides.js"))
WORDS, ROWS = 60, 10  # that one reads from a slide; the notes, and the chapter, have the rest
BEHIND = re.compile(r"In practice|Exercises|What to remember|Replace these|Three interview|Summary")
RESULT = re.compile(r"\b(helps?|teach|hold|matter|work on|bought|Measured|right\?|real model|runs say|equal pairs)\b")
BY_HAND = re.compile(r"by hand|worked batch")


@dataclass(frozen=True)
class Block:
    """A paragraph, a list, a table or a figure of a chapter, and where it stands."""

    kind: str  # text, heading, math, figure, table
    text: str  # Markdown; of a figure its picture, as an address that holds it
    section: str
    alt: str = ""
    origin: str = ""
    main_point: bool = False
    labelled: bool = False  # an equation that the chapter numbers


@dataclass
class Slide:
    """What is shown, and what the speaker says."""

    title: str
    shown: list[Block]
    notes: list[Block] = field(default_factory=list)


def blocks(notebook: dict) -> Iterator[Block]:
    """A chapter, piece by piece, without its programs."""
    section = ""
    for cell in notebook["cells"]:
        data, source = cell["metadata"], "".join(cell["source"])
        tags, origin = data.get("tags", []), data.get("from", "")
        if cell["cell_type"] == "markdown":
            for piece in _pieces(re.sub(r"</?details>|<summary>.*?</summary>", "", source, flags=re.DOTALL)):
                labelled = "<!-- eq-" in piece
                piece = re.sub(r"<!--.*?-->", "", piece, flags=re.DOTALL).strip()
                if heading := re.match(r"#+ +(.+)", piece):
                    section = heading[1] if piece.startswith("## ") else section
                    yield Block("heading", heading[1], section, origin=origin)
                    continue
                kind = "math" if piece.startswith("$$") else "table" if piece.startswith("|") else "text"
                if piece:
                    main_point = "main-point" in tags
                    yield Block(kind, piece, section, origin=origin, main_point=main_point, labelled=labelled)
        elif "remove-cell" not in tags:
            alt = data.get("mystnb", {}).get("image", {}).get("alt", "")
            for output in cell["outputs"]:
                shown = output.get("data", {})
                if drawn := _picture(shown):
                    yield Block("figure", drawn, section, alt)
                elif "text/markdown" in shown:
                    text = "".join(shown["text/markdown"]).strip()
                    yield Block("table" if text.startswith("|") else "text", text, section)


def _picture(shown: dict) -> str:
    """What a cell has drawn, as an address that holds it; nothing, if it has drawn nothing."""
    if "image/svg+xml" in shown:
        return f"data:image/svg+xml;base64,{b64encode(''.join(shown['image/svg+xml']).encode()).decode()}"
    return f"data:image/png;base64,{''.join(shown.get('image/png', '')).replace(chr(10), '')}" * ("image/png" in shown)


def _pieces(source: str) -> list[str]:
    """Paragraphs, a list or a formula as one; a blank line inside a list does not end it."""
    found: list[str] = []
    for piece in re.split(r"\n\s*\n", source.strip()):
        listed = re.match(r"\s*([-*]|\d+\.) |  ", piece)
        if listed and found and re.match(r"\s*([-*]|\d+\.) ", found[-1]):
            found[-1] += f"\n\n{piece}"
        elif piece.strip():
            heading, _, rest = piece.partition("\n")
            found += [heading, *([rest] if rest else [])] if heading.startswith("#") else [piece]
    return found


def shortened(text: str, words: int = WORDS) -> str:
    """The first sentences of a paragraph, or rows of a table, about as many as a slide holds; a list, a formula and the
    caption of a figure are left as they are.

    Example:
        >>> shortened("One two three. Four five six. Seven.", words=5)
        'One two three. Four five six.'
    """
    if text.startswith("|"):
        lines = text.split("\n")
        more = len(lines) - 2 - ROWS
        return "\n".join(lines[: ROWS + 2]) + (f"\n\n({more} more rows in the chapter.)" if more > 1 else "")
    if re.match(r"\s*([-*]|\d+\.) |\*[^*]", text) or "$$" in text:
        return text
    kept: list[str] = []
    for sentence in re.split(r"(?<=[.?!*])\s+(?=[A-Z*`$(])", text):
        if kept and len(" ".join(kept).split()) >= words:
            break
        kept.append(sentence)
    said = " ".join(kept)
    return said if said.count("*") % 2 == 0 and said.count("$") % 2 == 0 else text


def deck(notebook: dict) -> tuple[str, list[Slide]]:
    """A chapter's title and its slides.

    Raises:
        ValueError: If the chapter lacks what a deck cannot do without: a question, a figure, a main point, an equation.
    """
    all_blocks = list(blocks(notebook))
    title = next(block.text for block in all_blocks if block.kind == "heading")
    main = next((i for i, block in enumerate(all_blocks) if block.main_point), None)
    if main is None:
        raise ValueError(f"{title}: no cell has the tag main-point")
    opening = [block for block in all_blocks[1:main] if not block.section and block.kind == "text"]
    opening = [block for block in opening if not block.text.startswith("**Time:**")]
    question = next((block for block in opening if "?" in block.text), opening[0] if opening else None)
    told = [i for i, block in enumerate(all_blocks) if not block.origin and not BEHIND.search(block.section)]
    figures = [i for i in told if all_blocks[i].kind == "figure"]
    maths = [i for i in told if "$$" in all_blocks[i].text and all_blocks[i].kind in ("math", "text")]
    if question is None or not figures or not maths:
        raise ValueError(f"{title}: a deck needs a question in the opening, a figure and an equation")
    slides = [Slide(title, [question], [block for block in opening if block is not question])]
    slides.append(_around(all_blocks, figures[0]))
    point = [block for block in all_blocks if block.main_point]
    start = next((i for i, block in enumerate(point) if block.text.startswith("**The main point")), 0)
    end = next((i for i, block in enumerate(point) if i > start and block.kind == "heading"), len(point))
    slides.append(Slide("The main point", point[start:end], point[:start]))
    equation = next((i for i in maths if all_blocks[i].labelled), next((i for i in maths if i > main), maths[-1]))
    slides.append(_around(all_blocks, equation))
    by_hand = [i for i in told if BY_HAND.search(all_blocks[i].section) and all_blocks[i].kind in ("table", "figure")]
    if by_hand:
        slides.append(_around(all_blocks, by_hand[0]))
    results = [i for i in told if i > main and i not in (figures[0], *by_hand[:1])]
    results = [i for i in results if all_blocks[i].kind in ("figure", "table")]
    measured = [i for i in results if RESULT.search(all_blocks[i].section)] or [i for i in results if i in figures]
    if measured:
        last = [i for i in measured if all_blocks[i].section == all_blocks[measured[-1]].section]
        slides.append(_around(all_blocks, next((i for i in last if i in figures), last[0]), scope=True))
    elif said := [all_blocks[i] for i in told if all_blocks[i].kind == "text" and RESULT.search(all_blocks[i].section)]:
        slides.append(Slide(said[0].section, said[:2], said))
    asked = [block for block in all_blocks if block.origin.startswith("question/")]
    heads = [
        next(block for block in asked if block.origin == origin) for origin in dict.fromkeys(b.origin for b in asked)
    ]
    if heads:
        slides.append(Slide("Three questions", heads, asked))
    summary = [block for block in all_blocks if block.section.startswith(("Summary", "What to remember"))]
    if listed := [block for block in summary if re.match(r"[-*] |\d+\. ", block.text) and not block.origin][:1]:
        slides.append(Slide("Summary", listed))
    return title, slides


def _around(all_blocks: list[Block], at: int, *, scope: bool = False) -> Slide:
    """A slide for one block: its caption behind it, the paragraphs beside it as notes; for a result, what was run."""
    block = all_blocks[at]
    inside = [i for i, other in enumerate(all_blocks) if other.section == block.section and not other.origin]
    texts = [i for i in inside if all_blocks[i].kind == "text"]
    shown, notes = [block], [i for i in texts if abs(i - at) <= 4]
    caption = all_blocks[at + 1] if at + 1 < len(all_blocks) else None
    if block.kind == "figure" and caption is not None and caption.kind == "text" and caption.text.startswith("*"):
        shown.append(caption)
    elif block.kind != "figure" and (before := [i for i in texts if i < at][-1:]):
        shown.insert(0, all_blocks[before[0]])
    if scope:
        said = [i for i in texts if re.search(r"\*\*In short|[Ss]cope", all_blocks[i].text)] or texts[:1]
        if said and all_blocks[said[0]] not in shown:
            shown.insert(0, all_blocks[said[0]])
        notes = texts
    kept = [all_blocks[i] for i in notes if all_blocks[i] not in shown or all_blocks[i] is shown[0]]
    return Slide(block.section or "In one picture", shown, kept)


class Writer:
    """Writes Markdown as HTML, and collects the formulas, which are all set at once in the end."""

    def __init__(self) -> None:
        self.formulas: list[tuple[str, bool]] = []
        self.markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
        self.markdown.use(dollarmath_plugin, double_inline=True)
        for kind in ("math_inline", "math_inline_double", "math_block"):
            self.markdown.add_render_rule(kind, lambda _, *said: self._formula(*said))
        self.markdown.add_render_rule("link_open", lambda *_: "")
        self.markdown.add_render_rule("link_close", lambda *_: "")

    def _formula(self, tokens, index, _options, _env) -> str:
        token = tokens[index]
        display = token.type != "math_inline"
        self.formulas.append((token.content.strip(), display))
        name = "div" if display else "span"
        return f'<{name} class="math">\ue000{len(self.formulas) - 1}\ue001</{name}>'

    def block(self, block: Block, *, whole: bool) -> str:
        if block.kind == "figure":
            return f'<img src="{block.text}" alt="{escape(block.alt)}">'
        if block.kind == "heading":
            return f"<p><b>{self.markdown.renderInline(block.text)}</b></p>"
        return self.markdown.render(block.text if whole else shortened(block.text))

    def deck(self, title: str, slides: list[Slide]) -> str:
        sections = []
        for i, slide in enumerate(slides):
            name = self.markdown.renderInline(slide.title)
            heading = f"<h1>{name}</h1>" if i == 0 else f"<h2>{name}</h2>"
            shown = "".join(self.block(block, whole=False) for block in slide.shown)
            # What a slide cuts short is told whole beside it.
            cut = [b for b in slide.shown if b.kind == "text" and shortened(b.text) != b.text and b not in slide.notes]
            told = [block for block in [*cut, *slide.notes] if block.kind != "figure"]
            notes = "".join(self.block(block, whole=True) for block in told)
            aside = f'<aside class="notes" aria-label="Speaker notes">{notes}</aside>' if notes else ""
            where = f'aria-label="Slide {i + 1} of {len(slides)}"'
            sections.append(f'<section {where}><div class="shown">{heading}{shown}</div>{aside}</section>')
        name = escape(re.sub(r"[$*`]", "", title))
        sections[0] = sections[0].replace("<h1>", f'<p class="book">{TITLE}</p><h1>', 1)
        return PAGE.format(title=f"{name} · {TITLE}", css=CSS, body="".join(sections), script=SCRIPT)


PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>{css}</style></head>
<body><main>{body}</main>
<nav aria-label="Slides"><button id="back" aria-label="Previous slide">←</button>
<output id="at" aria-live="polite"></output><button id="on" aria-label="Next slide">→</button>
<button id="say" aria-pressed="false">Notes</button> <a href="index.html">All decks</a></nav>
<script>{script}</script></body></html>
"""
INDEX = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Slides · {title}</title>
<style>body {{ font: 1.1rem/1.6 sans-serif; max-width: 40em; margin: 2em auto; padding: 0 1em; }}</style></head><body>
<h1>{title}: slides</h1><p>A deck a chapter. Arrow keys turn the slides, <kbd>n</kbd> shows the speaker's
notes, and printing gives one slide a page.</p><ol>{lines}</ol></body></html>
"""


def cores() -> list[Path]:
    """The notebooks of the cores, in the order of the contents; one without a main point derives nothing: no deck."""
    names = [page for part in parts("cores") for page, _ in part.pages if page.startswith("notebooks/")]
    return [path for name in names if '"main-point"' in (path := ROOT / f"{name}.ipynb").read_text(encoding="utf-8")]


def write(notebooks: list[Path], out: Path) -> list[Path]:
    """Write the decks of chapters, and an index of them.

    Raises:
        ValueError: If a chapter lacks what a deck needs, or a formula cannot be set.
    """
    writer, texts, lines = Writer(), {}, []
    for path in notebooks:
        title, slides = deck(json.loads(path.read_text(encoding="utf-8")))
        texts[out / f"{path.stem}.html"] = writer.deck(title, slides)
        lines.append(f'<li><a href="{path.stem}.html">{writer.markdown.renderInline(title)}</a></li>')
    texts[out / "index.html"] = INDEX.format(title=TITLE, lines="".join(lines))
    found = set_formulas(writer.formulas, "svg")
    out.mkdir(parents=True, exist_ok=True)
    for file, text in texts.items():
        set_ = re.sub("\ue000(\\d+)\ue001", lambda number: found[writer.formulas[int(number[1])]], text)
        file.write_text(set_, encoding="utf-8")
    return list(texts)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="One deck of slides a core, from what its chapter has.")
    parser.add_argument("--out", type=Path, default=OUT, help="the folder for the decks")
    asked = parser.parse_args(words)
    try:
        files = write(cores(), asked.out)
    except ValueError as problem:
        print(problem, file=sys.stderr)
        return 1
    size = sum(file.stat().st_size for file in files) / 1e6
    print(f"{len(files) - 1} decks, {size:.0f} MB: {asked.out / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
