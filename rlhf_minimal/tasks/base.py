"""What a task is: it makes problems, checks answers, and splits problems into training and held-out ones."""

import random
import re
import unicodedata
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from rlhf_minimal.functional.checks import check_name

Split = Literal["train", "held_out"]

# Invisible characters that are not in Unicode's category Cf: fillers, variation selectors, joiners, and what Unicode
# keeps free for further ones.
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u3164\uffa0\ufe00-\ufe0f\ufff0-\ufff8\U000e0000-\U000e0fff]"
)

_CONTROL = re.compile("[\x00-\x08\x0e-\x1b\x7f]")  # those of ASCII that are no white space

# What stands around a question and does not belong to it: a head ("Question:", "### Task 3", "7."), the word behind
# which the answer is to stand, and sentences that say how to answer.
_HEAD = re.compile(
    r"(?i)\s*(?:#+ [^\n:]{1,40}(?:\n|:|$)|\*\*[^*\n]{1,40}(?:\*\*:|:\*\*|\*\*\s*\n)|\d{1,3}[.)]\s"
    r"|[a-z\u00c0-\u052f]{1,15}(?: [a-z\u00c0-\u052f]{1,15})?(?:(?: ?\d+)?| ):(?=\s)"
    r"|(?:\u95ee\u9898|\u9898\u76ee|\u554f\u984c|\u8cea\u554f|[\u95ee\u9898])[:\uff1a]"
    r"|(?:question|problem|task|exercise|frage|aufgabe)(?: \d+)?[.:]?[ ]*\n)\s*"
)
_TAIL = re.compile(
    r"(?i)(?:\n\s*(?:#+ [^\n]{1,40}|(?:\*\*)?[^\W\d_]{1,15}(?: [^\W\d_]{1,15})? ?(?::\*\*|\*\*:|:))"
    r"|\s(?:answer|a|solution|response|output|assistant|antwort)\s?:)\s*$"
)
_WRAPPED = re.compile(r"^\s*(?:<(\w+)>([^<]*)</\1>|[\"\u201c]([^\"\u201c\u201d]*)[\"\u201d])\s*$")
_ANSWER = r"(?:answer|reasoning|response|solution|output|thoughts|work|working|question|problem|task|exercise|step)s?"
_HOW_TO_ANSWER = re.compile(
    r"(?i)step[- ]by[- ]step|schritt f\u00fcr schritt|pas \u00e0 pas|paso a paso|\u9010\u6b65|\u4e00\u6b65"
    r"|\\boxed|let.?s think|^you (?:must|should|need to|will be)|^you are .*(?:assistant|expert|tutor|solver)"
    r"|^a \w+ between .*assistant|^the (?:user|assistant) (?:asks|first|then|will|must)"
    r"|\byour (?:\w+ )?(?:answer|reasoning|response|output)s?\b"
    rf"|^(?:the following|below|here|this) (?:is|are) .*(?:instruction|{_ANSWER}\b)"
    r"|^(?:please |now )?(?:think|reason|answer|respond|reply|take a deep|denke|antworte|be (?:brief|concise|precise"
    r"|careful))\b|^(?:the )?(?:final )?answer (?:should|must|in|as|only)\b|the answer to the (?:problem|question)"
    r"|^(?:please |now |first )?(?:give|write|put|state|provide|solve|show|explain|use|remember|express|enter|read"
    r"|complete|do|don.t|end|finish|return|report|box|make|only|just|output|follow|work|include|consider)\b.*\b(?:final"
    r"|your|the|this|following|only|single|short|correct|an?) (?:\w+ )?"
    rf"(?:instruction|{_ANSWER}\b)"
)
# Before NFKC: where a digit begins to be raised (10\u00b2 is 10^2, not 102), and what stands apart in 3\u00bd.
RAISED = re.compile("(?<![\u2070-\u207f\u00b2\u00b3\u00b9])(?=[\u2070-\u207f\u00b2\u00b3\u00b9])")
APART = re.compile(r"(?<=[\d\u2080-\u2089])(?=[\u00bc-\u00be\u2150-\u215e])|(?<=[\u2080-\u2089])(?=[0-9])")

DRAWS = 2000  # how many draws in a row may belong to the other split; after that `Task.problems` raises an error


@dataclass(frozen=True)
class Problem:
    """A prompt and the answer that the verifier will accept; the policy sees the prompt only.

    Attributes:
        prompt: The question.
        answer: The right answer, or one of several right answers.
        entry: More data for the verifier, where it needs more than the answer. Two problems may be equal although
            their entries differ.
    """

    prompt: str
    answer: str
    entry: Any = field(default=None, compare=False, repr=False)


class Step(NamedTuple):
    """A step of a completion, and how good it is.

    Args:
        end: Where it ends: the number of characters of the completion up to there.
        mark: 1 if the step is right, 0 if it is wrong; a model's mark may be any number.
    """

    end: int
    mark: float


def exact_match(completion: str, problem: Problem) -> float:
    """1 if the completion is the answer, character for character, else 0."""
    return float(completion == problem.answer)


def whole(completion: str) -> str | None:
    """The default final answer: the whole completion."""
    return completion


def _own_family(prompt: str) -> str:
    """The default family: every prompt is a family of its own."""
    return prompt


def normalised(text: str) -> str:
    r"""A text as a reader sees it: two questions that look the same become the same text.

    Unicode has several forms of many characters; NFKC replaces them by one. Invisible and control characters are
    removed, and any run of white space becomes one space. Letters keep their case: x and X may be two unknowns.

    Example:
        >>> normalised("What\u00a0is  1\u200b+2?\n") == normalised("What is 1+2?")
        True
    """
    if text.isascii():  # it has one form, and nothing invisible but control characters
        return " ".join(_CONTROL.sub("", text).split())
    for _ in range(2):  # an invisible character may stand between a letter and its accent: combine them after removal
        text = unicodedata.normalize("NFKC", text)
        seen = _INVISIBLE.sub("", text)
        text = "".join(c for c in seen if c.isspace() or unicodedata.category(c) not in ("Cf", "Cc"))
    return " ".join(text.split())


def question_core(text: str) -> str:
    r"""A question as a reader sees it, without what is written around it to have it answered.

    Heads, the word before an answer, and whole sentences at its beginning or end that say how to answer and hold no
    number are taken away, so long as something is left.

    Example:
        >>> question_core("### Question 7:\nWhat is 1+2? Let's think step by step.\nAnswer:")
        'What is 1+2?'
    """
    before = ""
    while text != before and any(c.isalpha() or c == "#" for c in text):
        before, text = text, _TAIL.sub("", _WRAPPED.sub(r"\2\3", text), count=1)
        text = text[found.end() :] if (found := _HEAD.match(text)) and found.end() < len(text) else text
        parts = [part for part in re.split(r"(?<=[.?!:\u3002\uff1f])\s+|\n+", text) if part.strip()]
        kept = [i for i, part in enumerate(parts) if not _HOW_TO_ANSWER.search(part) or re.search(r"\d|\?\s*$", part)]
        if kept and len(kept) < len(parts):
            text = " ".join(parts[kept[0] : kept[-1] + 1])
        text = text if text.strip() else before
    return normalised(APART.sub(" ", RAISED.sub("^", text)))


def falls_on_held_out_side(text: str) -> bool:
    """Whether a text is held out, decided by its checksum: one text in ten is."""
    return zlib.crc32(text.encode()) % 10 == 0


@dataclass(frozen=True)
class Task:
    """Prompts and a verifier.

    Whether a problem is held out depends on the problem alone (a checksum of its text), not on a list or a seed. So
    one family in ten is held out, and it is the same one in every run.

    Args:
        name: The name that `--task` takes.
        about: A description in one line.
        alphabet: All characters that prompts and answers use; "" if they are plain language, for real models.
        max_new_tokens: Generation budget in tokens, the end-of-answer token included.
        make: Draws one problem from a random number generator.
        verify: (completion, problem) -> reward; by default 1 for an exact match, else 0.
        teacher: (problem, generator) -> an answer to imitate, right or wrong; None if there is nothing to imitate.
        family: Prompts with the same family are never split between training and evaluation
            (12+34 and 34+12 are one question).
        corpus: generator -> one text of the task's language, for pretraining; None if there is no such text.
        score_range: The worst and the best score, if `verify` grades answers; None if an answer is either right (1) or
            wrong (anything less).
        instruction: A system message, for models that are asked in conversations; "" for none.
        listed: All problems, where they are known one by one; `()` where they are made.
        final: completion -> its final answer, for votes; None if it has none.
        steps: (completion, problem) -> the marks of its steps, in order; None if the task cannot check steps.
        parts: (completion, problem) -> the parts of a reward, as many for every completion, for an algorithm that
            compares each of them apart (`contrib.advantages.gdpo`); None if the reward is what `verify` says.
        picture: (completion, problem) -> a picture of it as lines of text; None if there is none.
        sizes: Arguments of `models.tiny_llama` for a model that learns this task, where its own do not do.
        start: The name of the shipped start, if another task's fits; "" for the task's own.
        reply: (completion so far, problem) -> what the environment writes now, or None while the policy has the word;
            asked after every character of the policy. A function of its arguments alone, so that a completion can be
            played again (`replies`). None if nobody answers.
        draws: What the draws of problems depend on beside split and seed; "" for the task's name. A file's task gives
            its content, so that one file has the same draws under every path.

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
    family: Callable[[str], str] = _own_family
    corpus: Callable[[random.Random], str] | None = None
    score_range: tuple[float, float] | None = None
    instruction: str = ""
    listed: Sequence[Problem] = ()
    final: Callable[[str], str | None] = whole
    steps: Callable[[str, Problem], Sequence[Step]] | None = None
    parts: Callable[[str, Problem], Sequence[float]] | None = None
    picture: Callable[[str, Problem], str] | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    start: str = ""
    draws: str = ""
    reply: Callable[[str, Problem], str | None] | None = None

    def __post_init__(self) -> None:
        check_name("the name of a task", self.name)

    def problems(self, split: Split, n: int, *, seed: int | str, distinct: bool = False) -> list[Problem]:
        """`n` problems of one split, drawn with replacement; the same seed gives the same problems.

        Args:
            split: `"train"` or `"held_out"`.
            n: How many.
            seed: A number, or any text that names the draw.
            distinct: Draw without replacement: one problem of a family. They are fewer than `n` if the task has no
                more, so far as 20 repeats in a row, and 5 more for each problem found, can tell.

        Raises:
            ValueError: If `split` is neither of the two, or if `DRAWS` draws in a row give no problem of it.
        """
        if split not in ("train", "held_out"):
            raise ValueError(f"a split is 'train' or 'held_out'; got {split!r}")
        rng = random.Random(f"{self.draws or self.name}/{split}/{seed}")
        drawn: list[Problem] = []
        families: set[str] = set()
        misses = repeats = 0
        while len(drawn) < n and repeats < 20 + 5 * len(drawn):
            problem = self.make(rng)
            family = self.identity(problem.prompt)
            if falls_on_held_out_side(family) != (split == "held_out"):
                misses += 1
            elif distinct and family in families:
                misses, repeats = 0, repeats + 1
            else:
                misses = repeats = 0
                families.add(family)
                drawn.append(problem)
            if misses == DRAWS:
                raise ValueError(
                    f"{self.name} has no {split} problem in {DRAWS} draws: it has too few different prompts to be "
                    "split between training and evaluation; choose settings with more"
                )
        return drawn

    def replies(self, completion: str, problem: Problem) -> list[tuple[int, int]]:
        """Where the environment wrote in a completion: beginning and end of each reply, found by playing it again."""
        spans, at = list[tuple[int, int]](), 1
        while self.reply is not None and at < len(completion):
            if said := self.reply(completion[:at], problem):
                spans.append((at, min(at + len(said), len(completion))))
            at += len(said or "") + 1
        return spans

    def identity(self, prompt: str) -> str:
        """What decides whether a prompt is held out: the family of its `question_core`, without the task's instruction.

        Rows of data are divided by it, too (`lab.rows.hold_out`), in whatever form they hold the question.
        """
        asked = prompt.removeprefix(f"{self.instruction}\n") if self.instruction else prompt
        return normalised(self.family(question_core(asked)))

    def is_held_out(self, prompt: str) -> bool:
        """Whether a prompt is held out: one family in ten is."""
        return falls_on_held_out_side(self.identity(prompt))
