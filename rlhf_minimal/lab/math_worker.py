r"""The process that compares formulas: `python math_worker.py`. It is a program of its own, so that it can be killed.

It reads one JSON list a line, `[answer]` or `[answer, claim]`, and writes `true` or `false`: can the answer be read, or
is the claim the same? Its memory and its time on the processor have limits. It imports math-verify and sympy, and
nothing of this library.

**No program that a model writes is run.** A model's text reaches sympy through the grammar of latex2sympy (antlr),
which builds expressions. Four ways on to Python's `eval` and `compile` are closed. latex2sympy hands the digits of a
number to `sympy.Number`, which evaluates them as a text: `_number_of` stands in its place, and in this process
`sympy.parse_expr` raises an error. math-verify's reader of plain text ends there, too: it is not used. Infinite sums
are compared by `lambdify`, which compiles the names that stand in them, and named operators become functions of these
names: so a formula is read only if it consists of letters, digits, signs and the commands in `COMMANDS` (fractions,
roots, powers, elementary functions, brackets, sets, matrices), and not if it holds a sum, a product, an integral, a
limit or a named operator. That is checked after the clean-up of the LaTeX, which turns ``\\sum`` into ``\sum``. And a
formula of more than `LONGEST` characters or `DEEPEST` brackets within each other, or with numbers that no memory holds
(`is_affordable`), is not read at all.
"""

import json
import logging
import re
import signal
import sys
from collections.abc import Sequence
from functools import lru_cache, partial
from importlib import import_module
from typing import Any

LONGEST = 500  # largest number of characters in a formula
DEEPEST = 12  # most brackets within each other; deeper ones make the parser slow
SECONDS = 2.0  # of the processor's time for one request; a busy machine changes no reward
MEMORY = 2**31  # bytes of address space

COMMANDS = (
    "frac dfrac tfrac cfrac sqrt binom cdot times div pm mp "
    "left right lfloor rfloor lceil rceil lvert rvert langle rangle "
    "sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln exp min max gcd lcm "
    "pi infty circ degree emptyset varnothing cup cap setminus in le leq ge geq lt gt ne neq approx "
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho sigma tau "
    "upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega quad qquad"
).split()
_READABLE = re.compile(
    r"(?>(?:[A-Za-z0-9\s+\-*/^_=<>()\[\]{}.,;:|!'&~]"
    r"|\\(?:text|mathrm|mathbf|mbox)\s?\{[A-Za-z0-9 ,.-]*+\}"
    r"|\\mathbb\s?\{[NZQRC]\}"
    r"|\\(?:begin|end)\{[bpv]?matrix\}"
    rf"|\\(?:{'|'.join(COMMANDS)})(?![A-Za-z])"
    r"|\\[\\,;:{}| ])*)"
)
_PERCENT = re.compile(r"\s*\\?%(?=\s*(?:[,;)\]}]|\\[})\]]|$))")
# Texts that would be read wrongly: 5..., 5' and 5\text{6} as 5, and 5 with a word of `_NEGATION`, as in "not 5".
_UNCLEAR = re.compile(
    r"\.\s*\.|\\\w*dots|[\d)}]\s*'|\d(?:\s|~|\\[,;: ])*\\(?:text|mathrm|mathbf|mbox)\s?\{(?:[^}]*[\d!]|\s*[kKM]\s*\})"
)
_NEGATION = re.compile(
    r"\b(?:not?|isn|or|and|wrong|false|incorrect|never|about|nearly|almost|than|least|most|unless|dozen|mn|bn|factorial"
    r"|hundred|thousand|[mbtr]+illion|half|halves|thirds?|quarters?|fourths?|fifths?|tenths?|squared|cubed)\b",
    re.IGNORECASE,
)
_SIDES = re.compile(r"((?<![<>!:=])=(?!=)|\\approx(?![A-Za-z]))")
_NAME = re.compile(r"(?:\\[A-Za-z]+|[A-Za-z])(?:_\{?\w+\}?)?'?(?:\([A-Za-z]\))?|\\(?:text|mathrm|mbox)\s?\{[^{}]*\}")
_VALUE_OF = re.compile(  # a side
    r"(?:\\angle ?)?[A-Z]{2,3}|\([A-Za-z](?:, ?[A-Za-z])+\)|[A-Za-z]\([A-Za-z\d]+\)"
    r"|\\(?:sin|cos|tan)\s?(?:\\?[a-z]+|[A-Z])"
)
_RELATIVE = 5e-6  # largest relative difference between two equal numbers, which may be rounded

HIGHEST_POWER = 2000  # highest exponent in a formula; powers of powers are multiplied
HIGHEST_FACTORIAL = 999


def is_same(answer: str, claim: str) -> bool:
    """Whether a claim has the answer's value; of an answer that is an equation, that of an equation."""
    read = read_formula if _SIDES.search(answer) else _read_claim
    return _same(read_formula(answer), read(claim))


def _read_claim(formula: str) -> Sequence[Any]:
    """The expressions of a formula in a completion; of an equation, those of its last side if the equation is true."""
    sides = _SIDES.split(formula)
    if len(sides) == 1 or len(formula) > LONGEST:
        return read_formula(formula)
    values = [read_formula(side) for side in sides[::2]]
    signs = ["=" if sign == "=" else "approx" for sign in sides[1::2]]
    if _NAME.fullmatch(sides[0].strip()) and signs == ["="]:
        return read_formula(formula)
    if _NAME.fullmatch(sides[0].strip()) or _VALUE_OF.fullmatch(sides[0].strip()):
        values, signs, sides = values[1:], signs[1:], sides[2:]
    claimed = values[-1]
    for sign, one, other, text in zip(signs, values, values[1:], sides[2::2], strict=False):
        if sign == "=" and not _same(one, other):
            return ()
        if sign == "approx":
            if not _is_rounded(one, other, text):
                return ()
            claimed = (*claimed, *one)
    return claimed


def _is_rounded(one: Sequence[Any], other: Sequence[Any], text: str) -> bool:
    """Whether the second number is the first one, rounded to at least three significant digits."""
    digits = re.fullmatch(r"\s*-?(\d+)(?:\.(\d+))?\s*", text)
    value, rounded = _number(one), _number(other)
    if digits is None or value is None or rounded is None or len((digits[1] + (digits[2] or "")).lstrip("0")) < 3:
        return False
    return abs(value - rounded) <= 0.5000001 * 10.0 ** -len(digits[2] or "")


def _same(answers: Sequence[Any], others: Sequence[Any]) -> bool:
    from math_verify import verify

    letters = [re.sub(r"\W", "", text) for text in (*answers, *others) if isinstance(text, str)]
    if len(letters) == 2 and all(re.fullmatch("[A-Za-z]", letter) for letter in letters):
        return letters[0] == letters[1]  # math-verify takes e and E for one
    if not answers or not others or not verify(list(answers), list(others), timeout_seconds=None):
        return False
    # math-verify rounds to six decimals, so it takes 0.0000004 and 0 for the same number.
    return any(_near(one, other) for one in answers for other in others)


def _near(one: Any, other: Any) -> bool:
    """Whether the numbers in two expressions that math-verify finds equal are also equal relative to their size."""
    import sympy

    if isinstance(one, str) or isinstance(other, str):
        return bool(one == other)
    if {isinstance(x, sympy.FiniteSet) for x in (one, other)} == {True, False} and isinstance(
        other if isinstance(one, sympy.FiniteSet) else one, sympy.Tuple | sympy.Interval
    ):
        return False  # a set has no order, and a pair or an interval has one
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


def _number(expressions: Sequence[Any]) -> complex | None:
    if not expressions or not getattr(expressions[0], "is_number", False):
        return None
    try:
        value = complex(expressions[0])
    except (TypeError, ValueError, OverflowError):
        return None
    return value if value == value and abs(value) < 1e300 else None


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


@lru_cache(maxsize=4096)
def read_formula(formula: str) -> tuple[Any, ...]:
    """A formula in LaTeX as math-verify's expressions, an expression of sympy first; () if it cannot be read."""
    from latex2sympy2_extended import NormalizationConfig, latex2sympy2, normalize_latex
    from math_verify import LatexExtractionConfig, parse, parser

    formula = _PERCENT.sub("", formula.strip().removesuffix("."))
    if not formula or len(formula) > LONGEST or _UNCLEAR.search(formula) or not is_affordable(formula):
        return ()
    if _depth(formula) > DEEPEST or (re.search(r"\d", formula) and _NEGATION.search(formula)):
        return ()
    if re.search(r"\d\s*_", formula):  # a number in another base than ten; math-verify would ignore the base
        return ("".join(formula.split()).replace("{", "").replace("}", ""),)
    latex2sympy2._Latex2Sympy.parse_number = lambda _, text: _number_of(text)
    latex2sympy2.Number = _number_of
    config = LatexExtractionConfig()
    formula = normalize_latex(formula, config.normalization_config).replace("\n", " ").strip()
    words = re.findall(r"(?<![\\A-Za-z])[A-Za-z]{2,}", re.sub(r"\\[A-Za-z]+(?:\s?\{[A-Za-z ]*\})?", "", formula))
    if not formula or not _READABLE.fullmatch(formula) or len(words) > 1:
        return ()  # one word may be a name, two are a sentence
    as_it_is = NormalizationConfig(basic_latex=False, boxed="none")  # the text that was checked must not change again
    config = LatexExtractionConfig(normalization_config=as_it_is)
    letters_as_they_are = latex2sympy2.ConversionConfig(lowercase_symbols=False)
    parser.latex2sympy = partial(latex2sympy2.latex2sympy, conversion_config=letters_as_they_are)
    found = parse(f"${formula}$", [config], parsing_timeout=None)
    return tuple(found) if any(not isinstance(expression, str) for expression in found) else ()


def _number_of(text: Any) -> Any:
    """A number from its digits."""
    import sympy

    text = str(text).replace(",", "")
    return sympy.Integer(int(text)) if text.isdigit() else sympy.Float(text)


def _refuse(*_: object) -> None:
    raise ValueError("a text would have been evaluated")


def _depth(formula: str) -> int:
    depth = deepest = 0
    for character in formula:
        depth += (character in "([{") - (character in ")]}")
        deepest = max(deepest, depth)
    return deepest


class OutOfTime(BaseException):
    """Not an `Exception`: sympy and math-verify catch these."""


def _ring(*_: object) -> None:
    raise OutOfTime


def serve() -> None:
    """Answers requests until standard input ends. An error of the parser means that a formula cannot be read."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, ValueError, OSError):  # not every system has these limits; the limit on time remains
        pass
    for name in ("parser", "grader"):  # they warn that their own time limits are off, which only a main thread has
        logging.getLogger(f"math_verify.{name}").setLevel(logging.ERROR)
    import_module("sympy.physics.units")  # simplify imports it, and evaluates texts of its own then
    from sympy.parsing import sympy_parser

    sympy_parser.eval_expr = _refuse
    timed = hasattr(signal, "setitimer")
    if timed:
        signal.signal(signal.SIGPROF, _ring)
    for line in sys.stdin:
        try:
            request = json.loads(line)
            if timed and request != ["1"]:  # the first request, which imports sympy
                signal.setitimer(signal.ITIMER_PROF, SECONDS, SECONDS)
            result = is_same(*request) if len(request) == 2 else bool(read_formula(request[0]))
        except (Exception, OutOfTime):
            result = False
        if timed:
            signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.write(f"{json.dumps(bool(result))}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve()
