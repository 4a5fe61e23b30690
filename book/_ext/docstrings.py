"""What the reference pages make of docstrings, beyond autodoc: plain words become links.

"Chapter: gae." leads to the chapter once it exists, "arXiv 1506.02438" to the paper, and a name in single backticks to
what it names; one that names nothing with a page is plain code.
"""

import re

from docutils import nodes
from sphinx import addnodes
from sphinx.util.nodes import make_refnode

import equation_index as index

ARXIV = re.compile(r"(?<!\w)arXiv (\d{4}\.\d{4,5})")


def link_docstring(app, what, name, obj, options, lines):
    """Turn the plain words of a docstring into links."""
    if what == "module":
        lines[:] = shown_as_they_stand(lines)
    text = "\n".join(lines)
    text = ARXIV.sub(r"`arXiv \1 <https://arxiv.org/abs/\1>`__", text)
    found = re.search(r"(Chapter: )(.*?)(\.(?:\s|$))", text, re.DOTALL)
    if found:
        named = re.sub(
            r"[a-z0-9]+(?:-[a-z0-9]+)*",
            lambda word: f":doc:`{word[0]} </{page}>`" if (page := index.chapter_page(word[0])) else word[0],
            found[2],
        )
        text = text[: found.start(2)] + named + text[found.end(2) :]
    lines[:] = text.split("\n")


def shown_as_they_stand(lines):
    """A module's docstring draws its diagrams and calls as indented blocks: keep them as they are typed."""
    result, before = [], ""
    for number, line in enumerate(lines):
        opens = line.startswith("    ") and not (number and lines[number - 1].strip())
        if opens and before and not before.startswith((" ", "..")) and not before.endswith("::"):
            result += ["::", ""]
        result.append(line)
        before = line if line.strip() else before
    return result


def library_role(role, rawtext, text, lineno, inliner, options=None, content=None):
    """A name in single backticks: a link where the name has a page, code where it has none."""
    env = inliner.document.settings.env
    shown = nodes.literal(rawtext, text)
    node = addnodes.pending_xref(
        rawtext, shown, refdomain="py", reftype="obj", reftarget=text, refdoc=env.docname, refexplicit=True, soft=True
    )
    node["py:module"] = env.ref_context.get("py:module")
    node["py:class"] = env.ref_context.get("py:class")
    return [node], []


def keep_as_code(app, env, node, contnode):
    """Names may be short, as `gates.clip`. Those that name nothing here, `None` or a file, are no mistake: code."""
    if not node.get("soft"):
        return None
    domain = env.get_domain("py")
    for prefix in ("rlhf_minimal.", "rlhf_minimal.functional.", "rlhf_minimal.contrib."):
        target = prefix + node["reftarget"]
        if found := domain.objects.get(target) or domain.modules.get(target):
            return make_refnode(app.builder, node["refdoc"], found.docname, found.node_id, contnode, target)
    return contnode


def setup(app):
    app.add_role("library", library_role)
    app.connect("autodoc-process-docstring", link_docstring)
    app.connect("missing-reference", keep_as_code)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
