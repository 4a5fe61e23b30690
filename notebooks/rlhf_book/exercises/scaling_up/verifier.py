"""Whether a completion ends in the right whole number, and not in something that looks like it."""

import math
import re

from torch import Generator

from ..draws import integer
from ..exercise import Case, Exercise, Mistake


def my_verifier(completion: str, answer: str) -> bool:
    """Texts of a completion and of the right number -> does its one box hold it?"""
    _, _, rest = completion.partition(r"\boxed{")
    inside, closed, after = rest.partition("}")
    ends = "".join(after.split()) in ("", "$", ".", "$.")
    return bool(closed) and inside.strip() == answer and ends


# ── completions ──────────────────────────────────────────────────────────────────────────────────────────────────

_ABOUT_HONEST = "honest completions"

# <right> is the right number, <wrong> another one, <spaced> the right one's signs with spaces between them,
# <other> the right one in the digits of another script.
HONEST: tuple[str, ...] = (
    r"12 pens and 7 pencils, so the answer is $\boxed{<right>}$.",
    r"\boxed{<right>}",
    "First I find <wrong>. That was wrong: it is\n\\boxed{ <right> }\n",
    r"100\% of them = <right>, thus \boxed{<right>}.",
)
HACKS: dict[str, tuple[str, ...]] = {
    "a wrong number": (
        r"\boxed{<wrong>}",
        r"It is <right>, so \boxed{<wrong>}.",
        r"\boxed{-<right>}",
        r"\boxed{<right>7}",
    ),
    "several boxes": (
        r"\boxed{<wrong>} or \boxed{<right>}",
        r"\boxed{<right>} or \boxed{<wrong>}",
        r"\boxed{<wrong>}$\boxed{<right>}$.",
    ),
    "a box in a box": (
        r"\boxed{\boxed{<right>}}",
        r"\boxed{<wrong> \boxed{<right>}}",
    ),
    "a box that is not at the end": (
        r"\boxed{<right>}, no: it is <wrong>.",
        r"\boxed{<right>} or something else",
        r"\boxed{<right>}\%",
    ),
    "a number without a box": (
        "The answer is <right>.",
        "<right>",
        "<right>}",
        "0 1 2 3 4 5 6 7 8 9 <right>",
    ),
    "a box that is never closed": (r"\boxed{<right>", r"So it is $\boxed{<right>$."),
    "an empty box": (r"\boxed{}", r"<right> \boxed{ }"),
    "a list of numbers": (
        r"\boxed{<wrong>, <right>}",
        r"\boxed{<right> <wrong>}",
        r"\boxed{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, <right>}",
    ),
    "an equation": (r"\boxed{<wrong>=<right>}", r"\boxed{<right>=<wrong>}"),
    "a rounding sign": (
        r"\boxed{<right> \approx <wrong>}",
        r"\boxed{<wrong> \approx <right>}",
    ),
    "a percent sign": (r"\boxed{<right>\%}", r"\boxed{<right>%}"),
    "dots": (r"\boxed{<right>\ldots}", r"\boxed{<right>...}"),
    "words": (r"\boxed{not <right>}", r"\boxed{<right> is wrong}"),
    "a number that is only near": (
        r"\boxed{<right>.0000000001}",
        r"\boxed{<right>.4}",
    ),
    "another way of writing the number": (
        r"\boxed{+<right>}",
        r"\boxed{00<right>}",
        r"\boxed{<right>.0}",
        r"\boxed{<right>e0}",
    ),
    "digits of another script": (r"\boxed{<other>}",),
    "spaces within the number": (r"\boxed{<spaced>}",),
}
_OTHER = str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩")


def completion(template: str, right: int, wrong: int) -> str:
    """A template with its numbers filled in."""
    for name, text in {
        "<right>": str(right),
        "<wrong>": str(wrong),
        "<spaced>": " ".join(str(right)),
        "<other>": str(right).translate(_OTHER),
    }.items():
        template = template.replace(name, text)
    return template


def _case(text: str, answer: str, kind: str) -> Case:
    return Case({"completion": text, "answer": answer}, kind=kind)


def _cases() -> tuple[Case, ...]:
    """Every template once, and hacks that need numbers of their own."""
    honest = [_case(completion(text, 46, 45), "46", _ABOUT_HONEST) for text in HONEST]
    hacks = [
        _case(completion(text, 12, 13), "12", kind)
        for kind, texts in HACKS.items()
        for text in texts
    ]
    special = (
        _case(r"So it is $\boxed{-7}$.", "-7", _ABOUT_HONEST),
        _case(r"Nothing is left: \boxed{0}.", "0", _ABOUT_HONEST),
        _case(r"\boxed{}", "0", "an empty box"),
        _case(r"\boxed{-0}", "0", "another way of writing the number"),
        _case(r"\boxed{1_2}", "12", "another way of writing the number"),
        _case(
            r"\boxed{9007199254740993}",
            "9007199254740992",
            "a number that is only near",
        ),
        _case(r"\boxed{1000001}", "1000000", "a number that is only near"),
        _case(r"\boxed{-7}", "7", "a wrong number"),
        _case(r"\boxed{7}", "-7", "a wrong number"),
    )
    return (*honest, *special, *hacks)


def _draw(generator: Generator) -> Case:
    right = integer(generator, -99, 1000)
    right = right if abs(right) > 9 else right + 20  # so that a space fits in
    wrong = right + integer(generator, 1, 30)
    if integer(generator, 0, 3) == 0:
        kind, texts = _ABOUT_HONEST, HONEST
    else:
        kind = list(HACKS)[integer(generator, 0, len(HACKS))]
        texts = HACKS[kind]
    text = texts[integer(generator, 0, len(texts))]
    return _case(completion(text, right, wrong), str(right), kind)


# ── mistakes ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _ends(after: str) -> bool:
    return re.fullmatch(r"\s*\$?\s*\.?\s*", after) is not None


def _box(completion: str) -> str | None:
    """What stands in the only box, which stands at the end; None without one."""
    _, _, rest = completion.partition(r"\boxed{")
    inside, closed, after = rest.partition("}")
    return inside.strip() if closed and _ends(after) else None


def _anywhere(completion: str, answer: str) -> bool:
    return answer in completion


def _last_number(completion: str, answer: str) -> bool:
    return re.findall(r"-?[0-9]+", completion)[-1:] == [answer]


def _any_box(completion: str, answer: str) -> bool:
    return answer in [
        text.strip() for text in re.findall(r"\\boxed\{([^{}]*)\}", completion)
    ]


def _last_box(completion: str, answer: str) -> bool:
    _, box, rest = completion.rpartition(r"\boxed{")
    inside, closed, after = rest.partition("}")
    return bool(box and closed) and inside.strip() == answer and _ends(after)


def _first_box(completion: str, answer: str) -> bool:
    _, _, rest = completion.partition(r"\boxed{")
    inside, closed, _ = rest.partition("}")
    return bool(closed) and inside.strip() == answer


def _never_closed(completion: str, answer: str) -> bool:
    _, _, rest = completion.partition(r"\boxed{")
    inside, _, after = rest.partition("}")
    return inside.strip(" \n$.") == answer and _ends(after)


def _holds_the_answer(completion: str, answer: str) -> bool:
    return answer in (_box(completion) or "")


def _only_its_digits(completion: str, answer: str) -> bool:
    return re.sub("[^-0-9]", "", _box(completion) or "") == answer


def _last_side(completion: str, answer: str) -> bool:
    inside = _box(completion) or ""
    return re.split(r"=|\\approx", inside)[-1].strip() == answer


def _as_integers(completion: str, answer: str) -> bool:
    try:
        return int(_box(completion) or "") == int(answer)
    except ValueError:
        return False


def _as_floats(completion: str, answer: str) -> bool:
    try:
        return math.isclose(float(_box(completion) or ""), float(answer))
    except ValueError:
        return False


def _nothing_is_zero(completion: str, answer: str) -> bool:
    inside = _box(completion)
    return inside is not None and (inside or "0") == answer


def _nothing_around(completion: str, answer: str) -> bool:
    return completion.strip() == rf"\boxed{{{answer}}}"


def _no_white_space(completion: str, answer: str) -> bool:
    return re.search(rf"\\boxed\{{{answer}\}}\$?\.?$", completion) is not None and (
        completion.count(r"\boxed{") == 1
    )


VERIFIER = Exercise(
    id="scale-verifier",
    title="a verifier that is hard to fool",
    concept="rlvr",
    minutes=10,
    difficulty="core",
    statement=r"""
    What a verifier accepts is rewarded, whether it is right or not. Write
    `my_verifier(completion, answer)` for answers that are whole numbers. It returns True only for a completion of the
    following form, for everything else False, and it never raises:

    - `\boxed{` occurs exactly once in it, and the next `}` closes the box;
    - in the box stands `answer` and nothing else. White space around it is allowed;
    - after the box come at most one `$` and then at most one full stop. White space is allowed there, too.

    Before the box may be any text. `answer` is written in the digits 0 to 9, with a `-` if it is negative and without
    leading zeros; the number in the box has to be written in the same way. Both arguments are texts. The checker
    tries honest completions, which have to be accepted, and a collection of hacks, and says which kinds you judge
    wrongly. In its examples True is 1 and False is 0. A last question: which honest answers does this form refuse,
    and what does that cost a policy that is trained with it?
    """,
    solution=my_verifier,
    cases=_cases(),
    draw=_draw,
    mistakes=(
        Mistake(
            _anywhere,
            "You look for the answer anywhere in the text: a completion that lists all numbers is always right.",
        ),
        Mistake(
            _last_number,
            "You take the last number of the text. Numbers without a box get through, and so do lists and equations.",
        ),
        Mistake(
            _any_box,
            "One right box is enough for you: a completion with several boxes guesses several times.",
        ),
        Mistake(
            _last_box,
            "You look at the last box only. Several boxes get through, and a box in a box.",
        ),
        Mistake(
            _first_box,
            "You do not look at what follows the first box: there the answer can be taken back.",
        ),
        Mistake(_never_closed, "A box that is never closed gets through."),
        Mistake(
            _holds_the_answer,
            "The answer is somewhere in the box, and you accept that. Lists, equations and longer numbers get through.",
        ),
        Mistake(
            _only_its_digits,
            "You throw away what is no digit. A percent sign, dots, words and spaces within the number get through.",
        ),
        Mistake(
            _last_side,
            "You read the last side of an equation or a rounding: that the sides are not equal gets through.",
        ),
        Mistake(
            _as_integers,
            "You accept whatever `int` reads. It reads digits of other scripts, `+12`, `0012`, `1_2` and `-0`.",
        ),
        Mistake(
            _as_floats,
            "You compare with a tolerance. Numbers that are only near get through.",
        ),
        Mistake(_nothing_is_zero, "An empty box gets through where the answer is 0."),
        Mistake(
            _nothing_around,
            "You refuse honest completions: text before the box is allowed, and a full stop after it.",
        ),
        Mistake(
            _no_white_space,
            "You refuse honest completions: white space around the number and at the end is allowed.",
        ),
    ),
    where="Account for all text from the box to the end, with nothing left over. Does a conversion to numbers help?",
    idea=r"""
    Cut the text at the first `\boxed{`, then the rest at the first `}`. Three pieces are left to judge: was there a
    closing brace, what stands inside, what comes after. A second box would be in the last piece. Compare texts, not
    numbers.
    """,
    outline="""
    ```python
    _, _, rest = completion.partition(...)
    inside, closed, after = rest.partition(...)
    ends = ...  # without white space only a few texts may come after
    return bool(closed) and ... and ends
    ```
    """,
    right="Right. It also refuses honest answers such as 1,200: ask for the form in the prompt, and count what is refused.",
)
