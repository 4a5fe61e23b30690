"""Write llms.txt beside the built pages: what this book is, and every page of it with its first sentence.

The head is book/data/llms-head.txt; the list is the table of contents, so that no page can be forgotten.
"""

import re
from pathlib import Path

from data_files import ROOT, pages_below, read, text_of, using

HEAD = ROOT / "book" / "data" / "llms-head.txt"


def entry(page):
    """One line: title, address, and how the page begins."""
    text = text_of(page)
    found = re.search(r"^# (.+)$", text, re.MULTILINE)
    if not found:
        raise ValueError(f"{page} has no title: it should begin with a line `# …`")
    title = found[1]
    paragraphs = [p for p in re.split(r"\n\s*\n", text.split(title, 1)[1]) if re.match(r"\s*[\w*`\"(]", p)]
    first = " ".join(paragraphs[0].split()) if paragraphs else ""
    first = re.sub(r"\[([^]]*)\]\([^)]*\)|\{[\w:]+\}|[*`$]", r"\1", first)
    sentence = re.match(r".*?[.?!](?=\s|$)", first)
    return f"- [{title}]({page}.html)" + (f": {sentence[0]}" if sentence else "")


def text():
    lines = [HEAD.read_text(encoding="utf-8").rstrip(), ""]
    with using(toc := ROOT / "_toc.yml"):
        for part in read(toc)["parts"]:
            lines += [f"## {part['caption']}", "", *map(entry, pages_below(part)), ""]
    return "\n".join(lines)


def write(app, problem):
    if problem is None and app.builder.format == "html":
        (Path(app.outdir) / "llms.txt").write_text(text(), encoding="utf-8")


def setup(app):
    app.connect("build-finished", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
