"""A clock with two languages and an untidy start: the task of the chapter on DeepSeek-R1.

A question is a row of moves; a hand starts at hour a of a dial of ten, and the final hour is asked for. A completion may
work the moves, and ends with the hour, which belongs into a box of brackets:

    3d8b5g(g)      works every move, tidy, small letters
    3D8b5G(g)      the same with a mixture of the two languages
    3D8B5GG        without a box: the final hour is right, the format is not
    (g)            says the hour at once

A small letter and a capital are the same hour in two languages. Three rules read a completion, and none reads another's
part: `accuracy` the last letter, in either language; `in_format` the brackets; `consistency` the share of the letters that
are small. A second kind of question has no rule: it names letters, `c?a?f?`, and people like a reply that names the same.
How much, only `liking` knows; a reward model has to learn it from comparisons.
"""

import random
import re
from dataclasses import dataclass

from rlhf_minimal.tasks import Problem, Task

HOURS = "abcdefghij"
SLOTS = 6  # places for moves, or for letters
SMALL, CAPITAL, MIXED = LANGUAGES = "small", "capital", "mixed"
FORM = re.compile(r"([0-9][a-jA-J])*\([a-jA-J]\)")
BRACKETS = ("()", "(", ")", "")  # the whole box, half of it, none


@dataclass(frozen=True)
class Writer:
    """Somebody whose completions are imitated.

    Attributes:
        habits: Shares of completions that say the hour at once, after some of the moves, after all of them.
        languages: Shares of small, capital and mixed completions.
        slips: Share of the moves that end at a random hour, by the language in which the hour is written.
        brackets: Shares of the four ways to set brackets.
        echo: Share of the letters of a question that a reply repeats.
    """

    habits: tuple[float, float, float]
    languages: tuple[float, float, float]
    slips: tuple[float, float]
    brackets: tuple[float, float, float, float]
    echo: float


CROWD = Writer((0.55, 0.2, 0.25), (0.35, 0.45, 0.2), (0.12, 0.03), (0.4, 0.2, 0.2, 0.2), 0.6)  # fmt: skip
TIDY = Writer((0.0, 0.0, 1.0), (1.0, 0.0, 0.0), (0.05, 0.05), (1.0, 0.0, 0.0, 0.0), 0.6)  # fmt: skip


def moves_of(prompt: str) -> list[int]:
    """The moves of a question; none if it is of the other kind.

    Example:
        >>> moves_of("3+8+........:"), moves_of("c?a?........:")
        ([3, 8], [])
    """
    return [int(move) for move in prompt[::2] if move.isdigit()]


def letters_of(prompt: str) -> str:
    """The letters that a question of the other kind names.

    Example:
        >>> letters_of("c?a?........:")
        'ca'
    """
    return "".join(c for c in prompt if c in HOURS)


def has_rule(prompt: str) -> bool:
    """Whether a rule can say if a completion is right: questions of moves, not those of letters."""
    return prompt[1] == "+"


def speak(letter: str, language: str, rng: random.Random) -> str:
    """A small letter in a language; in the mixed one either, by lot."""
    loud = rng.random() < 0.5 if language == MIXED else language == CAPITAL
    return letter.upper() if loud else letter


def write(prompt: str, writer: Writer, rng: random.Random) -> str:
    """A completion of somebody's."""
    (language,) = rng.choices(LANGUAGES, writer.languages)
    if not has_rule(prompt):
        named = letters_of(prompt)
        said = [c if rng.random() < writer.echo else rng.choice(HOURS) for c in named]
        return "".join(speak(c, language, rng) for c in said)
    moves, at, work = moves_of(prompt), 0, ""
    (habit,) = rng.choices((0, 1, 2), writer.habits)
    worked = (0, rng.randrange(len(moves)), len(moves))[habit]
    for move in moves[:worked]:
        at = (at + move) % len(HOURS)
        shown = speak(HOURS[at], language, rng)
        if rng.random() < writer.slips[shown.isupper()]:
            at = rng.randrange(len(HOURS))
            shown = HOURS[at].upper() if shown.isupper() else HOURS[at]
        work += f"{move}{shown}"
    last = speak(HOURS[(at + sum(moves[worked:])) % len(HOURS)], language, rng)
    (brackets,) = rng.choices(BRACKETS, writer.brackets)
    return work + "(" * ("(" in brackets) + last + ")" * (")" in brackets)


def accuracy(completion: str, problem: Problem) -> float:
    """1 if the last letter is the right hour, in either language and in any format.

    Example:
        >>> accuracy("3D8bB", Problem("3+8+........:", "b"))
        1.0
    """
    return float(completion.rstrip(")")[-1:].lower() == problem.answer != "")


def in_format(completion: str) -> float:
    """1 if the completion is moves with their hours, and then one hour in brackets; right or wrong.

    Example:
        >>> in_format("3D8b(a)"), in_format("3d8bb)")
        (1.0, 0.0)
    """
    return float(FORM.fullmatch(completion) is not None)


def consistency(completion: str) -> float:
    """The share of the letters that are small; 0 if there is no letter.

    Example:
        >>> consistency("3D8b(b)")
        0.6666666666666666
    """
    letters = [c for c in completion if c.isalpha()]
    return sum(c.islower() for c in letters) / max(len(letters), 1)


def right_moves(completion: str, problem: Problem) -> tuple[int, int, bool]:
    """How many moves are written, how many of them are right, and whether all moves of the question are written.

    Example:
        >>> right_moves("3d8c(c)", Problem("3+8+........:", "b"))
        (2, 1, True)
    """
    due, at, right = moves_of(problem.prompt), 0, 0
    pairs = re.findall(r"([0-9])([a-jA-J])", completion)
    for i, (move, hour) in enumerate(pairs):
        place = HOURS.index(hour.lower())
        told = i < len(due) and int(move) == due[i]
        right += told and place == (at + int(move)) % len(HOURS)
        at = place
    return len(pairs), right, [int(m) for m, _ in pairs] == due


def liking(completion: str, problem: Problem) -> float:
    """What people feel about a reply: 4 for all letters in their places, less for each that is not, or that is too much.

    Example:
        >>> liking("cb", Problem("c?a?........:", ""))
        2.0
    """
    named = letters_of(problem.prompt)
    same = sum(a == b for a, b in zip(named, completion.lower(), strict=False))
    return 4 * same / len(named) - abs(len(completion) - len(named))


def verify(completion: str, problem: Problem) -> float:
    """`accuracy` for a question of moves, `liking` for one of letters: what nobody but the examiner knows of both."""
    judge = accuracy if has_rule(problem.prompt) else liking
    return judge(completion, problem)


def make_reasoning(rng: random.Random) -> Problem:
    """A question of two to six moves."""
    moves = [rng.randrange(10) for _ in range(rng.randint(2, SLOTS))]
    text = "".join(f"{move}+" for move in moves).ljust(2 * SLOTS, ".") + ":"
    return Problem(text, HOURS[sum(moves) % len(HOURS)])


def make_general(rng: random.Random) -> Problem:
    """A question of two to six letters."""
    named = [rng.choice(HOURS) for _ in range(rng.randint(2, SLOTS))]
    return Problem("".join(f"{c}?" for c in named).ljust(2 * SLOTS, ".") + ":", "")


def make_either(rng: random.Random) -> Problem:
    """A question of either kind, by a fair coin."""
    return make_reasoning(rng) if rng.random() < 0.5 else make_general(rng)


def task(kind: str, writer: Writer = CROWD) -> Task:
    """The task with questions of one kind or of both, and a writer to imitate.

    Args:
        kind: "reasoning", "general" or "both".
        writer: Whose completions `imitate` reads.
    """
    makers = {"reasoning": make_reasoning, "general": make_general, "both": make_either}
    return Task(
        name=f"tongues-{kind}",
        about="hours of a clock in two languages, and replies that no rule can check",
        alphabet="0123456789+?.:()" + HOURS + HOURS.upper(),
        max_new_tokens=2 * SLOTS + 8,
        make=makers[kind],
        verify=verify,
        teacher=lambda problem, rng: write(problem.prompt, writer, rng),
        score_range=(-2.0 * SLOTS - 8.0, 4.0),
        sizes={"heads": 4, "max_length": 64},
    )
