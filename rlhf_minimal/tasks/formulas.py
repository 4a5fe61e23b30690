r"""Are two answers the same piece of mathematics? 1/2, 0.5 and ``\frac{1}{2}`` are. By the package math-verify.

**No program that a model writes is run; math-verify alone does not promise that.** Its parser of LaTeX has a grammar
of its own and evaluates nothing but numbers. Its parser of plain text hands digits and `. + - * / ^ ( )`, and nothing
else, to `sympy.parse_expr`, which is Python's `eval`; no name can be written in these. But when it compares numbers,
sympy turns infinite sums into Python code (`lambdify`): for ``\sum_{n=0}^{\infty} \frac{1}{(n+f(3))!}`` it compiles
`n + f(3) + 1`, a call of whatever Python knows by the name f. So a formula is read only if it is made of letters,
digits, signs and the commands in `COMMANDS`: fractions, roots, powers, elementary functions, brackets, sets and
matrices, but no sum, product, integral, limit or named operator. That is decided after math-verify's own clean-up of
LaTeX, which makes ``\sum`` of ``\\sum`` and of ``\\!sum``.

math-verify's own time limits are off: they would take the alarm from the verifier's guard (`tasks.guard`), which stops
9^{9^{9^9}} as it stops everything else.
"""

import logging
import re
from functools import lru_cache
from typing import Any

from rlhf_minimal.tasks.real import final_answer, package_is_missing

LONGEST = 500  # characters of a formula; brackets within brackets cost the parser more and more

COMMANDS = (
    "frac dfrac tfrac cfrac sqrt binom cdot times div pm mp "
    "left right lfloor rfloor lceil rceil lvert rvert langle rangle "
    "sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln exp min max gcd lcm "
    "pi infty circ degree emptyset varnothing cup cap setminus in le leq ge geq lt gt ne neq approx "
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho sigma tau "
    "upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega quad qquad ldots dots"
).split()
_READABLE = re.compile(
    r"(?:[A-Za-z0-9\s+\-*/^_=<>()\[\]{}.,;:|!'&~%]"
    r"|\\(?:text|mathrm|mathbf|mbox)\s?\{[A-Za-z0-9 ,.-]*+\}"
    r"|\\mathbb\s?\{[NZQRC]\}"
    r"|\\(?:begin|end)\{[bpv]?matrix\}"
    rf"|\\(?:{'|'.join(COMMANDS)})(?![A-Za-z])"
    r"|\\[\\,;:{}%| ])*+"
)
# A dollar before a digit does not end a formula: it is money ($5 and $7).
_MATHS = re.compile(r"\$\$(.+?)\$\$|\$([^$]+)\$(?!\d)|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)
_NUMBERS = re.compile(r"(?<![A-Za-z\d])[-+(]*\.?\d[\d .,+\-*/^()]*")
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}")
_COMMAND = re.compile(r"\\[A-Za-z]+(?:\s?\{[A-Za-z ]*\})?")


def same_formula(completion: str, answer: str) -> bool:
    r"""Whether the last formula of a completion is the right answer.

    Which part of a completion is looked at: `final_answer` of it; in that the last ``\boxed{...}``, else the last
    formula between dollars, ``\(...\)`` or ``\[...\]`` that can be read; without any of these all of it if it is one
    line without a word, else the last number or plain expression in it.

    Args:
        completion: What the model wrote.
        answer: The right answer, as `read_answer` reads it.

    Returns:
        True for the same text, and for formulas of the same value as math-verify sees it: numbers are rounded to six
        decimals, expressions are simplified, the order in sets does not matter.

    Raises:
        ImportError: If math-verify is not installed.
    """
    text = final_answer(completion)
    if text == answer.strip():
        return True
    from math_verify import verify

    found = _read_last(text)
    return bool(found) and bool(verify(list(read_answer(answer)), found, timeout_seconds=None))


@lru_cache(maxsize=4096)
def read_answer(answer: str) -> tuple[Any, ...]:
    """A right answer as math-verify's expressions: with dollars or in a box, or as it stands.

    Args:
        answer: LaTeX, or a plain expression of numbers.

    Returns:
        What it may mean, an expression of sympy first; () if it is a sentence, or math-verify can make nothing of it.

    Raises:
        ImportError: If math-verify is not installed.
    """
    marked = "\\boxed" in answer or _MATHS.search(answer)
    if marked:
        return tuple(_read_last(answer))
    found = _read_latex(answer)
    return tuple(found if found or not _NUMBERS.fullmatch(answer.strip()) else _read_plain(answer))


def check_math_verify(task: str) -> None:
    """Refuses to go on without the package.

    Args:
        task: The whole name of the task that needs it.

    Raises:
        ValueError: If it is not installed; the line says what to do.
    """
    try:
        import math_verify  # noqa: F401
    except ImportError as error:
        raise package_is_missing(task, "math-verify") from error


def _read_last(text: str) -> list[Any]:
    start = text.rfind("\\boxed")
    if start >= 0:
        return _read_latex(_in_braces(text, start + len("\\boxed")))
    for groups in reversed(_MATHS.findall(text)):
        formula = "".join(groups)
        found = _read_latex(formula) if _words(formula) <= 1 else []
        if found:
            return found
    if "\n" not in text and not _words(text):
        return _read_latex(text)
    return _read_plain(_MATHS.sub(lambda found: "" if "\\" in found[0] else found[0], text))


def _read_plain(text: str) -> list[Any]:
    from math_verify import ExprExtractionConfig

    numbers = _NUMBERS.findall(text)
    last = numbers[-1].rstrip(" .,+-*/^(") if numbers else ""
    if len(last) > LONGEST:
        return []
    return _parse(last, ExprExtractionConfig()) or _parse(last.strip("()"), ExprExtractionConfig())


def _words(text: str) -> int:
    return len(_WORD.findall(_COMMAND.sub("", text)))


def _in_braces(text: str, start: int) -> str:
    """What stands in the braces that open at `start`; "" if they do not open there, or are never closed."""
    if text[start : start + 1] != "{":
        return ""
    depth = 0
    for i in range(start, len(text)):
        depth += (text[i] == "{") - (text[i] == "}")
        if depth == 0:
            return text[start + 1 : i]
    return ""


def _read_latex(formula: str) -> list[Any]:
    from latex2sympy2_extended import NormalizationConfig, normalize_latex
    from math_verify import LatexExtractionConfig

    formula = formula.strip().removesuffix(".")
    if not formula or len(formula) > LONGEST:
        return []
    clean = LatexExtractionConfig().normalization_config
    formula = normalize_latex(formula, clean).replace("\n", " ").strip()
    if not formula or not _READABLE.fullmatch(formula) or _words(formula) > 1:
        return []  # one word may be a name, two are a sentence
    as_it_is = NormalizationConfig(basic_latex=False, boxed="none")  # what was looked at is what is read
    return _parse(f"${formula}$", LatexExtractionConfig(normalization_config=as_it_is))


def _parse(text: str, config: Any) -> list[Any]:
    from math_verify import parse

    for name in ("parser", "grader"):  # they warn that their time limits are off
        logging.getLogger(f"math_verify.{name}").setLevel(logging.ERROR)
    found = parse(text, [config], parsing_timeout=None)
    return found if any(not isinstance(expression, str) for expression in found) else []
