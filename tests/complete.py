"""Which rows of the table are complete, and what is still to be written of the others.

A row is declared by its cells. What else a row needs is said here, in one list, and asked for by one test,
`tests/test_rows.py`. All other tests leave out a row that is not complete (`tests/conftest.py`), so that one omission
is one red test.
"""

import ast
import math
import operator
import re
from pathlib import Path

import pytest
import yaml

import rlhf_minimal
from rlhf_book import facts
from rlhf_minimal import ALGORITHMS

ROOT = Path(__file__).resolve().parents[1]
TRANSCRIPTIONS = ROOT / "tests" / "transcriptions"
SIGNATURE = "loss(*, logp, old_logp, mask, rewards, group_size, ref_logp=None, values=None, budget=None)"
PAPERS = set(
    re.findall(r"^@\w+\{([^,]+),", (ROOT / "book" / "references.bib").read_text(encoding="utf-8"), re.MULTILINE)
)
SAID = yaml.safe_load(facts.ROWS.read_text(encoding="utf-8"))["rows"]
README = (ROOT / "README.md").read_text(encoding="utf-8")
FUNCTIONS = {"exp": math.exp, "log": math.log, "min": min, "sigmoid": lambda x: 1 / (1 + math.exp(-x))}
ARITHMETIC = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}
COMPARED = {ast.Gt: operator.gt, ast.Lt: operator.lt}


def missing(name: str) -> list[str]:
    """What to write for a row, and where; one line a thing."""
    found = [f"rlhf_minimal/row_facts.yml, under {name}: {words}" for words in facts.missing(name)]
    if not (TRANSCRIPTIONS / f"{name}.py").exists():
        found.append(
            f"tests/transcriptions/{name}.py: {SIGNATURE}, and sampler_logp=None, entropy=None, ... "
            "where it is read, from the paper, in loops, importing only torch and math"
        )
    papers = SAID.get(name, {}).get("paper") or ["of its paper"]
    found += [f"book/references.bib: an entry {key}" for key in papers if key not in PAPERS]
    if f"| `{name}` |" in rlhf_minimal.table() and f"| `{name}` |" not in README:
        found.append("README.md has its table from the rows: run python book/_tools/generate.py")
    return found


INCOMPLETE = {name: lines for name in ALGORITHMS if (lines := missing(name))}
COMPLETE = [name for name in ALGORITHMS if name not in INCOMPLETE]
# For a test of what is made of all rows together.
all_rows_complete = pytest.mark.skipif(bool(INCOMPLETE), reason=f"not complete, see test_rows: {', '.join(INCOMPLETE)}")


def value(code: str, **names: float) -> float:
    """What a formula of row_facts.yml is, for numbers given by name.

    Formulas are data: no Python is run. What is not arithmetic of these names, `FUNCTIONS` and conditions is an error.
    """

    def of(node: ast.AST) -> float:
        match node:
            case ast.Constant(value=int() | float() as number):
                return number
            case ast.Name(id=name) if name in names:
                return names[name]
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -of(operand)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
                return ARITHMETIC[type(op)](of(left), of(right))
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in COMPARED:
                return COMPARED[type(op)](of(left), of(right))
            case ast.BoolOp(op=op, values=parts):
                return (all if isinstance(op, ast.And) else any)(of(part) for part in parts)
            case ast.IfExp(test=test, body=body, orelse=other):
                return of(body) if of(test) else of(other)
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in FUNCTIONS:
                return FUNCTIONS[name](*map(of, arguments))
        raise ValueError(f"{code!r} holds {ast.unparse(node)!r}, which is no arithmetic of {', '.join(names)}")

    return float(of(ast.parse(code, mode="eval").body))


def weight(name: str, w: float, A: float) -> float:
    """What multiplies grad log pi of a response's only token, by the formula of the row."""
    return value(facts.facts_of(name).weight_code, w=w, A=A)


def share(name: str, mask: list[list[int]], i: int, budget: int, group_size: int = 1) -> float:
    """What a token of response i weighs in a batch at ratio 1, by the formula of the row."""
    lengths = list(map(sum, mask))
    first = i - i % group_size
    prompt = {"P": len(mask) // group_size, "N_p": sum(lengths[first : first + group_size])}
    counts = {"B": len(mask), "N": sum(lengths), "L": budget, "n": lengths[i], **prompt}
    return value(facts.facts_of(name).share_code, **counts)
