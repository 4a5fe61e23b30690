"""What a task is: a way to make problems, a way to check answers, and a wall between training and held-out ones."""

import random
import re
import unicodedata
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

Split = Literal["train", "held_out"]

# Characters without a picture of their own beside those of the category Cf: fillers, selectors, joiners.
_UNSEEN = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\uffa0\ufe00-\ufe0f\U000e0100-\U000e01ef]")

DRAWS = 2000  # in a row that may fall on the wrong side of the wall before a draw of problems gives up


@dataclass(frozen=True)
class Problem:
    """A prompt and the answer that the verifier will accept; the policy sees the prompt only.

    Attributes:
        prompt: What is asked.
        answer: What is right, or one of the answers that are.
        entry: What the verifier needs besides, where it needs more than the answer; no part of what makes two problems
            equal.
    """

    prompt: str
    answer: str
    entry: Any = field(default=None, compare=False, repr=False)


def exact_match(completion: str, problem: Problem) -> float:
    """1 if the completion is the answer, character for character, else 0."""
    return float(completion == problem.answer)


def own_family(prompt: str) -> str:
    """Every prompt stands for itself."""
    return prompt


def normalised(text: str) -> str:
    r"""A text as a reader sees it: two questions that look alike are one question.

    Unicode writes many of them in several ways (NFKC makes these one), some characters cannot be seen, and white space
    is white space. Letters keep their case: x and X may be two unknowns.

    Example:
        >>> normalised("What\u00a0is  1\u200b+2?\n") == normalised("What is 1+2?")
        True
    """
    for _ in range(2):  # what is taken out may have kept a letter from its accent
        text = unicodedata.normalize("NFKC", text)
        text = "".join(c for c in _UNSEEN.sub("", text) if unicodedata.category(c) != "Cf")
    return " ".join(text.split())


def falls_on_held_out_side(text: str) -> bool:
    """Which side of the wall a text is on, by its checksum: one in ten is held out."""
    return zlib.crc32(text.encode()) % 10 == 0


@dataclass(frozen=True)
class Task:
    """Prompts and a verifier.

    Which side of the train / held-out wall a problem falls on is a property of the problem itself (a checksum of its
    text), not of a list or of a seed: one in ten families is held out, for everybody and for ever.

    Args:
        name: What `--task` calls it.
        about: One line for people.
        alphabet: All characters that prompts and answers use; "" if they are plain language, for real models.
        max_new_tokens: Generation budget in tokens, the end-of-answer token included.
        make: Draws one problem from a random number generator.
        verify: (completion, problem) -> reward; by default 1 for an exact match, else 0.
        teacher: (problem, generator) -> an answer to imitate, right or wrong; None if there is nothing to imitate.
        family: Prompts with the same family are never split between training and evaluation
            (12+34 and 34+12 are one question).
        corpus: generator -> one text of the task's language, for pretraining; None if there is no such text.
        score_range: The worst and the best score, where `verify` grades answers; None where it calls them right (1)
            or wrong (anything less).
        instruction: A system message, for models that are asked in conversations; "" for none.

    Example:
        >>> EVEN = Task("even", "any even digit", "0123456789:", 2,
        ...             make=lambda rng: Problem(f"{rng.randrange(1000)}:", ""),
        ...             verify=lambda completion, problem: float(completion in set("02468")))
        >>> EVEN.verify("4", EVEN.problems("train", 1, seed=0)[0])
        1.0
    """

    name: str
    about: str
    alphabet: str
    max_new_tokens: int
    make: Callable[[random.Random], Problem]
    verify: Callable[[str, Problem], float] = exact_match
    teacher: Callable[[Problem, random.Random], str] | None = None
    family: Callable[[str], str] = own_family
    corpus: Callable[[random.Random], str] | None = None
    score_range: tuple[float, float] | None = None
    instruction: str = ""

    def problems(self, split: Split, n: int, *, seed: int | str) -> list[Problem]:
        """`n` problems of one split, drawn with replacement; the same seed gives the same problems.

        Args:
            split: `"train"` or `"held_out"`.
            n: How many.
            seed: A number, or any text that names the draw.

        Raises:
            ValueError: If a split has no name of the two, or if no problem of it turns up in `DRAWS` draws.
        """
        if split not in ("train", "held_out"):
            raise ValueError(f"a split is 'train' or 'held_out'; got {split!r}")
        rng = random.Random(f"{self.name}/{split}/{seed}")
        found: list[Problem] = []
        misses = 0
        while len(found) < n:
            problem = self.make(rng)
            if self.is_held_out(problem.prompt) == (split == "held_out"):
                found.append(problem)
                misses = 0
            else:
                misses += 1
            if misses == DRAWS:
                raise ValueError(
                    f"{self.name} has no {split} problem in {DRAWS} draws: it has too few different prompts to be "
                    "split between training and evaluation; choose settings with more"
                )
        return found

    def is_held_out(self, prompt: str) -> bool:
        """Which side of the wall a prompt is on: one family in ten is held out."""
        return falls_on_held_out_side(self.family(prompt))
