r"""When two texts ask the same question, however they are spelt.

`folded` is what a question says: letters without case and accents, numbers, and the signs that stand between operands.
`3×4`, ``3 \cdot 4`` and `3*4` fold alike, as do `3½` and ``3\frac{1}{2}``, `1,000` and `1 000`, `café` and `CAFE`; 3+4,
3-4, 3^4 and 34 do not. Words are not kept apart, so that a question is found where its lines are broken in another way.

Two questions may fold alike (AB and ab): that costs a row of training. The opposite would train on what is measured.
"""

import html
import re
import unicodedata
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from rlhf_minimal.tasks.base import APART, RAISED, normalised, question_core
from rlhf_minimal.tasks.rows import Asked

Row = TypeVar("Row", bound=Asked)

TAG = re.compile(
    r"(?i)<[|\uff5c][^<>\n]{0,40}>|<[^<>\s]{1,40}[|\uff5c]>|</?[a-z]+(?:_[a-z\d]+)+>|</?(?:s|bos|eos|start|end|sep|user"
    r"|assistant|human|model|system)>|\[/?(?:INST|[A-Z]+_[A-Z_]+)\]|<</?SYS>>"
)
_WRITTEN_OUT = re.compile(r"\\u([\dA-Fa-f]{4})|\\[nrt](?![a-z])")  # as in JSON
_GREEK = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho sigma tau upsilon"
_NAMES = dict(zip("αβγδεζηθικλμνξοπρστυφχψω", f"{_GREEK} phi chi psi omega".split(), strict=True))
_NAMES |= {"√": "sqrt", "∞": "infty", "°": "degrees", "%": "percent", "∠": "angle", "△": "triangle", "∛": "sqrt 3"}
_MATH = {*_NAMES.values(), *"sin cos tan log ln exp lim max min mod".split()}
_LETTERS = str.maketrans(
    {sign: f" {name} " for sign, name in _NAMES.items()}
    | {"ø": "o", "ł": "l", "đ": "d", "ı": "i", "æ": "ae", "œ": "oe", "_": " "}
)
_ONE_FORM = str.maketrans("×·⋅∙∗÷⁄∕‐‑‒–—―−∣~∘", "*****///-------| °")
# Of LaTeX, without case, and of programs: each is the last of its line. A command that is not here is a word.
_SIGNS = {
    written: sign
    for line in "times cdot ast *,div /,le leq leqslant <= ≤,ge geq geqslant >= ≥,ne neq != ≠,lt <,gt >,pm ±,cup ∪,cap "
    "∩,in ∈,notin ∉,subset ⊂,subseteq ⊆,supset ⊃,approx ≈,equiv ≡,to rightarrow →,implies ⇒,circ °,mid vert |,sum ∑,"
    "prod ∏,int ∫,lfloor ⌊,rfloor ⌋,lceil ⌈,rceil ⌉,bmod pmod mod,dbinom tbinom \\binom,dfrac tfrac cfrac \\frac,** ^,"
    "== === =,varepsilon epsilon,varphi phi,vartheta theta".split(",")
    for *others, sign in [line.split()]
    for written in others
}


def _digits(number: re.Match[str]) -> str:
    return re.sub(r"\D", "", number[0])


# What is written in several ways, in this order.
_WAYS: list[tuple[re.Pattern[str], Any]] = [
    (re.compile(written), form)
    for written, form in [
        (r"</?[a-z]+(?: [a-z-]+=[^<>]*)? ?/?>|\\[()\[\]]|\\[;: ]", " "),
        (r"\\(?:left|right|big\w*|q?quad|[lc]?dots|text\w*|math\w*|operatorname|displaystyle)(?![a-z])\*?", ""),
        (r" ?\\rvert(?![a-z])|\\l?vert(?![a-z]) ?", "|"),
        (r"(?<=\d)(?: ?,|\{,\}|,?\\[,!])(?=\d{3}(?!\d))", ","),
        (r"(?<![\d.])\d{1,3}(?:(?:,\d\d)*,\d{3}|(?: \d{3})+|(?:['\u2019]\d{3})+)(?![\d'])", _digits),
        (r"(?<![\d\w)])\.(?=\d)", "0."),
        (r"(?<![\w)*])(\*{1,2})(?=[^\s*])([^*\n]+)(?<=\S)\1(?![\w*])", r"\2"),  # bold
        (r"\\[a-z]+|[<>!]=|==+|\*\*", lambda found: _SIGNS.get(found[0].lstrip("\\"), found[0])),
        (r"(?<=\d) ?x ?(?=\d)", "*"),
        (r"\^ ?(?:°|\{ ?° ?\})", "°"),
        (r"(\\frac|\\binom) ?(\w)", r"\1{\2}"),
        (r"(\\(?:frac|binom) *\{[^{}]*\}) ?(\w)", r"\1{\2}"),
        (r"\\[,!]|-(?=-)|\$|\\(?=[{}%&#$])", ""),
    ]
]
_FRACTION = re.compile(r"\\frac\{([^{}]*)\} ?\{([^{}]*)\}")
_GROUP = re.compile(r"(?<!\\frac)(?<!\})\{([^{}]*)\}|[(\[]([^()\[\]{}]*)[)\]]")
_TOKEN = re.compile(r"\d+(?:\.\d+)?|[a-z]+|[^\W\da-z]+|[\x01\x02]| +|.")
_OPERATORS = "+-*/^=<>≤≥≠±∪∩∈∉⊂⊆⊃≈≡→⇒:"
_BLOCK = 8  # letters and digits by which a question is looked up
_RARE = 20  # questions in which a block may stand, so that it is looked up beside the rarest one
_GAP = 40  # most letters and digits between two pieces of a question ("assistant ok user"); a piece for each so many
_ROOM = 200  # letters and digits that all gaps may take, before the place where a question is looked up, and behind it
_WORD = re.compile(r"\d+|[^\W\d_]+|[^\w\s.,;:?!\"'()\[\]{}*_`$\\]")
_DEPTH = 9  # of brackets and fractions in each other


def folded(text: str) -> str:
    r"""What a text says: letters, numbers and the operators between them, however they are spelt.

    Example:
        >>> folded(r"What is $\dfrac{1}{2} \cdot 1{,}000$?") == folded("what is ½ × 1000")
        True
        >>> folded("What is 3-4?"), folded("What is 3, 4?")
        ('whatis3-4', 'whatis3_4')
    """
    text = _WRITTEN_OUT.sub(lambda found: chr(int(found[1], 16)) if found[1] else " ", TAG.sub(" ", text))
    text = normalised(APART.sub(" ", RAISED.sub("^", html.unescape(text))))
    if not text.isascii():
        parts = (c for c in unicodedata.normalize("NFD", text) if not _is_accent(c))
        text = "".join(str(unicodedata.decimal(c, c)) for c in unicodedata.normalize("NFC", "".join(parts)))
    text = text.casefold().translate(_ONE_FORM)
    for written, form in _WAYS:
        text = written.sub(form, text)
    text = text.translate(_LETTERS)
    for _ in range(_DEPTH):
        before, text = text, _GROUP.sub(_bracket, _FRACTION.sub(r" (\1)/(\2) ", text))
        if text == before:
            break
    tokens = _TOKEN.findall(re.sub(r"\\(?=[a-z])", " ", text))
    said = list[str]()
    for i, token in enumerate(tokens):
        if token.isspace():
            continue
        if token[0].isdigit() and said and said[-1][-1].isdigit():
            said.append("_")
        if token[0].isalnum() or token in "\x01\x02⌊⌋⌈⌉∑∏∫" or unicodedata.category(token[0])[0] == "M":
            said.append(token)
        elif token in _OPERATORS + "!|" and _operates(tokens, i):
            said.append(token)
    return "".join(said).translate({1: "(", 2: ")"})


def same_question(text: str) -> str:
    """What is the same for all ways to ask a question: what it says, without what is written around it."""
    return folded(question_core(text)) or normalised(text)


def _is_accent(character: str) -> bool:
    """Whether it is a mark that may be left out. Vowels of Indian scripts and the marks of kana may not."""
    kind = unicodedata.combining(character)
    return kind >= 200 or 10 <= kind <= 35


def _bracket(found: re.Match[str]) -> str:
    """Brackets stay around a formula only: `2(3+4)`."""
    inside = next(group for group in found.groups() if group is not None)
    words = re.findall(r"[^\W\d_]{3,}", inside)
    formula = re.search(rf"[\w\x02!)] *[{re.escape(_OPERATORS[:-1])}]", inside) and _MATH.issuperset(words)
    return f"\x01{inside}\x02" if formula else f" {inside} "


def _operates(tokens: Sequence[str], i: int) -> bool:
    """Whether a sign stands between two operands, or before or behind the one that it belongs to."""
    sign, near = tokens[i], (tokens[i - 1] if i else "", tokens[i + 1] if i + 1 < len(tokens) else "")
    left, right = (tokens[i - 2] if i > 1 else "") if near[0].isspace() else near[0], near[1]
    right = (tokens[i + 2] if i + 2 < len(tokens) else "") if right.isspace() else right
    longest = 1 if sign in "-/" else 3
    before, behind = ((t.isalpha() and (len(t) <= longest or t in _MATH)) or t[:1].isdigit() for t in (left, right))
    before, behind = before or left in ("\x02", "!", "|"), behind or right in ("\x01", "|")
    if sign == "!":
        return before and not near[0].isspace() and (len(left) == 1 or left.isdigit())
    if sign == "|":
        return (before and left == near[0]) or ((behind or right == "-") and right == near[1])
    if sign == ":":
        return left[:1].isdigit() and right[:1].isdigit() and near[0].isspace() == near[1].isspace()
    signed = sign in "-±" and behind and right == near[1] and not near[0].isalnum()
    return signed or (before and (behind or right in ("-", "±", "√")))


def _begins_with(text: str, question: str, gaps: int) -> bool:
    """Whether a text begins with a question, if so many gaps are allowed; no number is cut."""
    while not text.startswith(question):
        same = bisect_left(range(len(question)), True, key=lambda n: not text.startswith(question[: n + 1]))
        while question[same - 1 : same].isdigit():
            same -= 1
        piece = question[same : same + _BLOCK]
        at = text.find(piece, same, same + _GAP + len(piece))
        if not gaps or at < 0 or len(piece) < _BLOCK - 2 or (piece[0].isdigit() and text[at - 1 : at].isdigit()):
            return False
        text, question, gaps = text[at:], question[same:], gaps - 1
    return not (question[-1:].isdigit() and text[len(question) : len(question) + 1].isdigit())


def questions_of(row: Asked) -> tuple[str, ...]:
    """What decides whether a row is held out: what is asked in it, or its prompt, or all of a text without one."""
    _, prompt, text = row.sequences()[0]
    return row.asked or (prompt or text,)


def containing(rows: Sequence[Row], questions: Iterable[str]) -> set[Row]:
    """The rows that ask one of the questions, or in which one stands: one pass, however many questions there are.

    A short question stands in many texts (fewer than six words, or four with a number; two letters of a script without
    blanks count as a word). It is found where it is all that is asked.
    """
    wholes = set[str]()
    sought = dict[str, set[str]]()  # and the numbers of each
    for question in questions:
        wholes.add(said := folded(question))
        words = _WORD.findall(question.casefold())
        n = sum(len(word) // 2 if "\u0e00" < word < "\uac00" else word.isalpha() and len(word) > 1 for word in words)
        if n > 5 or (n > 1 and len(words) > 3 and not words[0].isdigit() and any(map(str.isdigit, words))):
            sought[said] = {*re.findall(r"\d+", said)}
    starts = {question: range(0, max(len(question) - _BLOCK, 0) + 1, _BLOCK) for question in sought}
    often = Counter(question[i : i + _BLOCK] for question in sought for i in starts[question])
    places: dict[str, list[tuple[str, int]]] = {}
    for question in sought:
        by_rarity = sorted((often[question[i : i + _BLOCK]], i) for i in starts[question])[:3]
        for i in (i for n, i in by_rarity if n <= max(by_rarity[0][0], _RARE)):
            places.setdefault(question[i : i + _BLOCK], []).append((question, i))
    lengths = {*map(len, places)}

    def holds(row: Row) -> bool:
        if not wholes.isdisjoint(folded(question_core(asked)) for asked in questions_of(row)):
            return True
        text: str = folded("\n".join(dict.fromkeys(said for _, *both in row.sequences() for said in both)))
        numbers = {*re.findall(r"\d+", text)}
        return any(
            sought[question] <= numbers
            and _begins_with(text[at : at + len(question) + _ROOM], question[i:], len(question) // _GAP)
            and _begins_with(
                text[max(at - i - _ROOM, 0) : at + 1][::-1], question[: i + 1][::-1], len(question) // _GAP
            )
            for n in lengths
            for at in range(len(text))
            for question, i in places.get(text[at : at + n], ())
        )

    return {row for row in rows if holds(row)}
