r"""Whether two answers are mathematically the same, as 1/2, 0.5 and ``\frac{1}{2}`` are. Uses the package math-verify.

**No program that a model writes is run. math-verify alone does not guarantee this.** Its parser of LaTeX has a grammar
of its own and evaluates nothing but numbers. Its parser of plain text passes only digits and `. + - * / ^ ( )` to
`sympy.parse_expr`, which is Python's `eval`; no name can be written with these characters. But when it compares
numbers, sympy turns infinite sums into Python code (`lambdify`): for ``\sum_{n=0}^{\infty} \frac{1}{(n+f(3))!}`` it
compiles `n + f(3) + 1`, which calls the Python function with the name f. So a formula is read only if it consists of
letters, digits, signs and the commands in `COMMANDS`: fractions, roots, powers, elementary functions, brackets, sets
and matrices, but no sum, product, integral, limit or named operator. This is checked after math-verify has cleaned up
the LaTeX, because the clean-up turns ``\\sum`` and ``\\!sum`` into ``\sum``.

math-verify's own time limits are switched off: they use the same system timer as the time limit of every verifier
(`tasks.guard`), which also stops 9^{9^{9^9}}.
"""

import logging
import re
from functools import lru_cache
from typing import Any

from rlhf_minimal.tasks.final_answer import final_answer, package_is_missing

LONGEST = 500  # largest number of characters in a formula; nested brackets make the parser slow

COMMANDS = (
    "frac dfrac tfrac cfrac sqrt binom cdot times div pm mp "
    "left right lfloor rfloor lceil rceil lvert rvert langle rangle "
    "sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln exp min max gcd lcm "
    "pi infty circ degree emptyset varnothing cup cap setminus in le leq ge geq lt gt ne neq approx "
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho sigma tau "
    "upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega quad qquad"
).split()
_READABLE = re.compile(
    r"(?:[A-Za-z0-9\s+\-*/^_=<>()\[\]{}.,;:|!'&~]"
    r"|\\(?:text|mathrm|mathbf|mbox)\s?\{[A-Za-z0-9 ,.-]*+\}"
    r"|\\mathbb\s?\{[NZQRC]\}"
    r"|\\(?:begin|end)\{[bpv]?matrix\}"
    rf"|\\(?:{'|'.join(COMMANDS)})(?![A-Za-z])"
    r"|\\[\\,;:{}| ])*+"
)
_NUMBERS = re.compile(r"(?<![A-Za-z\d])[-+(]{0,40}\.?\d[\d .,+\-*/^()]*")
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}")
_COMMAND = re.compile(r"\\[A-Za-z]+(?:\s?\{[A-Za-z ]*\})?")
_PERCENT = re.compile(r"\s*\\?%(?=\s*(?:[,;)\]}]|\\[})\]]|$))")
# Texts that would be read wrongly: 5... and 5' as 5, and a 5 with one of the words in `_NEGATION`, as in "not 5".
_UNCLEAR = re.compile(r"\.\s*\.|\\\w*dots|[\d)}]\s*'")
_NEGATION = re.compile(
    r"\b(?:not?|isn|or|and|wrong|false|incorrect|never|about|nearly|almost|than|least|most|unless)\b", re.IGNORECASE
)
_SIDES = re.compile(r"((?<![<>!:=])=(?!=)|\\approx(?![A-Za-z]))")
_NAME = re.compile(r"(?:\\[A-Za-z]+|[A-Za-z])(?:_\{?\w+\}?)?'?(?:\([A-Za-z]\))?|\\(?:text|mathrm|mbox)\s?\{[^{}]*\}")
_RELATIVE = 5e-6  # largest relative difference between two equal numbers, which may be rounded

HIGHEST_POWER = 2000  # highest exponent in a formula; powers of powers are multiplied
HIGHEST_FACTORIAL = 999
FORMULAS = 50  # how many formulas of a completion are tried, beginning with the last


def same_formula(completion: str, answer: str) -> bool:
    r"""Whether the last formula of a completion is the right answer.

    The formula is searched for in the completion's `final_answer`. It is the last ``\boxed{...}``. Without a box, it is
    the last formula between dollars, ``\(...\)`` or ``\[...\]`` that can be read. Without these, it is the whole text
    if that is one line without a word, and otherwise the last number or plain expression in it.

    Of an equation, the last side counts, if every other side is a name or has the same value: x = 5 and 2 + 3 = 5 mean
    5, and 6 = 5 means nothing. Of an approximation, both sides count, if one is the other after rounding. A percent
    sign is read as a unit, on both sides: 50% is 50, and not 0.5. Other units are not compared.

    Args:
        completion: What the model wrote.
        answer: The right answer, as `read_answer` reads it.

    Returns:
        True for the same text, and for formulas that math-verify finds equal: numbers agree in six decimals and in
        about six digits, expressions are simplified, and the order in sets does not matter.

    Raises:
        ImportError: If math-verify is not installed.
    """
    text = final_answer(completion)
    if text == answer.strip():
        return True
    return _same(list(read_answer(answer)), _read_last(text, whole=bool(_SIDES.search(answer))))


@lru_cache(maxsize=4096)
def read_answer(answer: str) -> tuple[Any, ...]:
    """A right answer as math-verify's expressions. It may stand in dollars, in a box, or alone.

    Args:
        answer: LaTeX, or a plain expression of numbers.

    Returns:
        Its possible meanings, an expression of sympy first; () if it is a sentence, or math-verify cannot read it.

    Raises:
        ImportError: If math-verify is not installed.
    """
    if "\\boxed" in answer or marked(answer):
        return tuple(_read_last(answer, whole=True))
    expressions = _read_latex(answer)
    return tuple(expressions if expressions or not _NUMBERS.fullmatch(answer.strip()) else _read_plain(answer))


def check_math_verify(task: str) -> None:
    """Raises an error if math-verify is not installed.

    Args:
        task: The full name of the task that needs it.

    Raises:
        ValueError: If it is not installed; the message says how to install it.
    """
    try:
        import math_verify  # noqa: F401
    except ImportError as error:
        raise package_is_missing(task, "math-verify") from error


def _read_last(text: str, *, whole: bool) -> list[Any]:
    read = _read_latex if whole else _read_claim
    start = text.rfind("\\boxed")
    if start >= 0:
        return read(_in_braces(text, start + len("\\boxed")))
    places = marked(text)
    for _, _, formula in reversed(places[-FORMULAS:]):
        expressions = read(formula) if _words(formula) <= 1 else []
        if expressions:
            return expressions
    if "\n" not in text and not _words(text):
        return read(text)
    kept, end = [], 0
    for start, stop, _ in places:
        if "\\" in text[start:stop]:
            kept.append(text[end:start])
            end = stop
    return _read_plain("".join([*kept, text[end:]]))


def marked(text: str) -> list[tuple[int, int, str]]:
    """Every formula in dollars or brackets: where it begins, where it ends, and its text. Takes one pass."""
    unclosed = set()  # marks that are not closed in the rest of the text, so that it is searched only once for each
    formulas = []
    at = 0
    while opened := _OPEN.search(text, at):
        start, mark = opened.start(), opened[0]
        at = start + 1
        inside = start + len(mark)
        # $$$$ and \(\) are empty, and not a formula.
        end = -1 if mark in unclosed else text.find(_CLOSE[mark], inside + (mark != "$"))
        if end < 0:
            unclosed.add(mark)
        # A dollar before a digit does not end a formula: it is money ($5 and $7).
        elif mark != "$" or (end > inside and not text[end + 1 : end + 2].isdigit()):
            at = end + len(mark)
            formulas.append((start, at, text[inside:end]))
    return formulas


_CLOSE = {"$$": "$$", "$": "$", "\\(": "\\)", "\\[": "\\]"}
_OPEN = re.compile(r"\$\$|\$|\\\(|\\\[")


def _read_claim(formula: str) -> list[Any]:
    """The expressions of a formula in a completion; of an equation, those of its last side if the equation is true."""
    sides = _SIDES.split(formula)
    if len(sides) == 1 or len(formula) > LONGEST:
        return _read_latex(formula)
    values = [_read_latex(side) for side in sides[::2]]
    signs = ["=" if sign == "=" else "approx" for sign in sides[1::2]]
    if _NAME.fullmatch(sides[0].strip()):
        if signs == ["="]:
            return _read_latex(formula)
        values, signs, sides = values[1:], signs[1:], sides[2:]
    claimed = values[-1]
    for sign, one, other, text in zip(signs, values, values[1:], sides[2::2], strict=False):
        if sign == "=" and not _same(one, other):
            return []
        if sign == "approx":
            if not _is_rounded(one, other, text):
                return []
            claimed = claimed + one
    return claimed


def _is_rounded(one: list[Any], other: list[Any], text: str) -> bool:
    """Whether the second number is the first one, rounded to at least three significant digits."""
    digits = re.fullmatch(r"\s*-?(\d+)(?:\.(\d+))?\s*", text)
    value, rounded = _number(one), _number(other)
    if digits is None or value is None or rounded is None or len((digits[1] + (digits[2] or "")).lstrip("0")) < 3:
        return False
    return abs(value - rounded) <= 0.5000001 * 10.0 ** -len(digits[2] or "")


def _same(answers: list[Any], others: list[Any]) -> bool:
    from math_verify import verify

    if not answers or not others or not verify(answers, others, timeout_seconds=None):
        return False
    # math-verify rounds to six decimals, so it takes 0.0000004 and 0 for the same number.
    return any(_near(one, other) for one in answers for other in others)


def _near(one: Any, other: Any) -> bool:
    """Whether the numbers in two expressions that math-verify finds equal are also equal relative to their size."""
    if isinstance(one, str) or isinstance(other, str):
        return bool(one == other)
    ours, theirs = _numbers(one), _numbers(other)
    if ours is None or theirs is None or len(ours) != len(theirs):
        return True  # these are not numbers: math-verify has compared them without rounding
    return all(abs(a - b) <= _RELATIVE * max(abs(a), abs(b)) for a, b in zip(ours, theirs, strict=True))


def _numbers(expression: Any) -> list[complex] | None:
    """The numbers in an expression (one number, or a set, tuple, interval or matrix of numbers), in a fixed order."""
    import sympy

    if isinstance(expression, sympy.FiniteSet | sympy.Tuple | sympy.Interval):
        entries = list(expression.args[:2] if isinstance(expression, sympy.Interval) else expression.args)
    elif isinstance(expression, sympy.MatrixBase):
        entries = list(expression)
    else:
        value = _number([expression])
        return None if value is None else [value]
    values = [_number([entry]) for entry in entries]
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    in_order = sorted(known, key=lambda value: (value.real, value.imag))
    return in_order if isinstance(expression, sympy.FiniteSet) else known


def _number(expressions: list[Any]) -> complex | None:
    if not expressions or not getattr(expressions[0], "is_number", False):
        return None
    try:
        value = complex(expressions[0])
    except (TypeError, ValueError, OverflowError):
        return None
    return value if value == value and abs(value) < 1e300 else None


def _read_plain(text: str) -> list[Any]:
    from math_verify import ExprExtractionConfig

    matches = list(_NUMBERS.finditer(text))
    if not matches:
        return []
    last = matches[-1][0].rstrip(" .,+-*/^(")

    def read(formula: str) -> list[Any]:
        if len(formula) > LONGEST or not is_affordable(formula):
            return []
        return _parse(formula, ExprExtractionConfig()) or _parse(formula.strip("()"), ExprExtractionConfig())

    expressions = read(last)
    if len(matches) > 1 and text[matches[-2].end() : matches[-1].start()].strip() == "=":
        before = read(matches[-2][0].strip())
        return expressions if _same(before, expressions) else []
    return expressions


def is_affordable(formula: str) -> bool:
    r"""Whether the numbers in a formula are small enough to be computed with all their digits, as the parser does.

    ``10^{10^{10}}`` has ten billion digits, and ``9!!!!!!`` has more digits than there are atoms. A limit on time does
    not help: one product of such numbers uses up all memory before.

    Args:
        formula: LaTeX, or a plain expression of numbers.

    Returns:
        False if an exponent is above `HIGHEST_POWER`, where powers of powers are multiplied; if a number stands in the
        exponent of an exponent; if a factorial is that of a number above `HIGHEST_FACTORIAL`, of another factorial or
        of a power; if a binomial coefficient has numbers above `HIGHEST_FACTORIAL`.
    """
    formula = re.sub(r"\\(?:left|right|,|;|:|!|quad|qquad|\s)", "", formula.replace("**", "^"))
    numbers = [int(digits[-20:]) for digits in re.findall(r"\d+", formula)]
    largest = max(numbers, default=0)
    if "!" in formula:
        after_bracket = re.search(r"[)}\]|]\s*!", formula)
        operands = [int(digits[-20:]) for digits in re.findall(r"(\d+)\s*!", formula)]
        if re.search(r"!\s*[!^)}\]]*\s*!|!\s*\^|\^\s*\{?\s*\d*\s*!", formula):
            return False
        if max(operands, default=0) > HIGHEST_FACTORIAL or (after_bracket and largest > 20):
            return False
        if after_bracket and re.search(r"\d\s*\^|\^\s*\{?\s*\d\d", formula):
            return False
    if "\\binom" in formula and (largest > HIGHEST_FACTORIAL or "^" in formula):
        return False
    single, of_brackets = 1, 1
    for hat in re.finditer(r"\^", formula):
        exponent = _exponent(formula[hat.end() :])
        if exponent is None:
            return False
        size = 1
        for number in re.findall(r"\d+", exponent):
            size *= max(int(number[-20:]), 1)
        if re.search(r"[)}\]|]\s*$", formula[: hat.start()]):
            of_brackets *= size
        else:
            single = max(single, size)
        if single * of_brackets > HIGHEST_POWER:
            return False
    return True


def _exponent(text: str) -> str | None:
    """The exponent at the start of a text; None if it holds a factorial, or a power whose base may be a number."""
    text = text.lstrip(" +-")
    if text[:1] in ("{", "("):
        depth = end = 0
        while end < len(text) and (depth or end == 0):
            depth += (text[end] in "{(") - (text[end] in "})")
            end += 1
        exponent, rest = text[:end], text[end:]
    else:
        match = re.match(r"[\d.,]+|\\[A-Za-z]+|.", text, re.DOTALL)
        exponent, rest = (match[0], text[match.end() :]) if match else ("", "")
    powers = re.findall(r"(\S?\S)\s*\^", exponent)
    of_letters = all(re.fullmatch(r"[^A-Za-z\\]?[a-df-zA-Z]", base) for base in powers)
    if not of_letters or "!" in exponent or re.match(r"\s*[\^!]", rest):
        return None
    return exponent


def _words(text: str) -> int:
    return len(_WORD.findall(_COMMAND.sub("", text)))


def _in_braces(text: str, start: int) -> str:
    """The text in the braces that open at `start`; "" if none open there, or they are never closed."""
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

    formula = _PERCENT.sub("", formula.strip().removesuffix("."))
    if not formula or len(formula) > LONGEST or _UNCLEAR.search(formula) or not is_affordable(formula):
        return []
    if re.search(r"\d", formula) and _NEGATION.search(formula):
        return []
    if re.search(r"\d\s*_", formula):  # a number in another base than ten; math-verify would ignore the base
        return ["".join(formula.split()).replace("{", "").replace("}", "")]
    clean = LatexExtractionConfig().normalization_config
    formula = normalize_latex(formula, clean).replace("\n", " ").strip()
    if not formula or not _READABLE.fullmatch(formula) or _words(formula) > 1:
        return []  # one word may be a name, two are a sentence
    as_it_is = NormalizationConfig(basic_latex=False, boxed="none")  # the text that was checked must not change again
    return _parse(f"${formula}$", LatexExtractionConfig(normalization_config=as_it_is))


def _parse(text: str, config: Any) -> list[Any]:
    from math_verify import parse

    for name in ("parser", "grader"):  # they warn that their time limits are off
        logging.getLogger(f"math_verify.{name}").setLevel(logging.ERROR)
    expressions = parse(text, [config], parsing_timeout=None)
    return expressions if any(not isinstance(expression, str) for expression in expressions) else []
