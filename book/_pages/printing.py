"""What pages are made of: a function that is named on a page, and the pieces of Markdown that such functions return."""

import importlib
import inspect
import re


def made_by(target, *arguments):
    """What the function `module:name` returns for these arguments."""
    module, colon, name = target.partition(":")
    if not (module and colon and name):
        raise ValueError(f"expected module:function, got {target!r}")
    try:
        found = importlib.import_module(module)
    except ImportError as problem:
        raise ValueError(f"there is no module {module!r}: {problem}") from problem
    function = getattr(found, name, None)
    if not inspect.isfunction(inspect.unwrap(function)):  # a cached function is one, too
        known = [key for key, value in vars(found).items() if inspect.isfunction(value) and value.__module__ == module]
        raise ValueError(f"{module} has no function {name!r}; there are {', '.join(known)}")
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError as problem:
        takes = " ".join(inspect.signature(function).parameters) or "nothing"
        raise ValueError(f"{target} takes {takes}: {problem}") from problem
    return function(*arguments)


def table(head, rows):
    """A table; every cell is text."""
    lines = [list(head), *map(list, rows)]
    for cell in (cell for line in lines for cell in line):
        if not set(cell).isdisjoint("|\n\r"):
            raise ValueError(f"a bar or a new line cannot stand in a table: {cell!r}")
    lines = ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def box(kind, text):
    """A box of a class, for text with headings outside of it."""
    return f"````{{container}} {kind}\n{text}\n````"


def folded(summary, text, kind=""):
    """Text behind a line to press, in a box of a class if it has one."""
    attribute = f' class="{kind}"' * bool(kind)
    return f"<details{attribute}>\n<summary>{summary}</summary>\n\n{text}\n\n</details>"


def code(name):
    """A name as code; the "-" of an empty cell as it is."""
    return name if name == "-" else f"`{name}`"


def number(value, form=".3f"):
    """0.812, with a minus sign that is as wide as a plus."""
    return f"{value:{form}}".replace("-", "\u2212")


def flat(text):
    """Text of a file in one line."""
    return " ".join(text.split())


EXPORT = re.compile(r"^export\s+default\b", re.MULTILINE)
OTHER_MODULE_SYNTAX = re.compile(r"^\s*(import\b[^(.]|export\b(?!\s+default\b))", re.MULTILINE)


def as_script(name, source, constant):
    """A module as a piece of a page's script: its default export becomes a constant. A page on disk imports nothing."""
    if len(EXPORT.findall(source)) != 1 or OTHER_MODULE_SYNTAX.search(source):
        raise ValueError(
            f"{name} has to have one `export default` and no other export or import than that of ./kit.mjs, because it "
            "is copied into the page"
        )
    return EXPORT.sub(f"const {constant} =", source).replace("</script", "<\\/script")
