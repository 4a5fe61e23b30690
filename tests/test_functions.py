"""No function of the library is longer than fits in the head: 60 lines of code, docstrings and comments not counted."""

import ast
import io
import tokenize
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "rlhf_minimal"
MOST = 60
QUIET = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def lines_of_code(source):
    """The numbers of the lines on which there is code."""
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in QUIET:
            lines |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            value = body[0].value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                lines -= set(range(body[0].lineno, body[0].end_lineno + 1))
    return lines


def too_long(source):
    lines = lines_of_code(source)
    functions = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    sizes = {f.name: len(lines & set(range(f.body[0].lineno, f.end_lineno + 1))) for f in functions}
    return {name: size for name, size in sizes.items() if size > MOST}


@pytest.mark.parametrize("file", sorted(PACKAGE.rglob("*.py")), ids=lambda file: str(file.relative_to(PACKAGE)))
def test_no_function_is_longer_than_fits_in_the_head(file):
    assert too_long(file.read_text()) == {}


def test_a_long_function_is_found_and_its_docstring_is_not_counted():
    body = "\n".join(["    x = 1  # why", "    # a comment", ""] * MOST)
    text = "\n".join("    words" for _ in range(99))
    assert too_long(f'def f():\n    """One.\n{text}\n    """\n{body}') == {}
    assert too_long(f"def f():\n{body}\n    return (\n        x\n    )") == {"f": MOST + 3}
