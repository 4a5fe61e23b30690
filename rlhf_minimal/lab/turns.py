"""Turns of a real model: it ends its turn, a tool is called, and the result comes back in the chat template.

`sample(..., reply=ChatReplies(...))` is all it takes. The model's end token ends a turn; if the turn holds a call, the
tool's result is read as the next message, and the model has the word again. What was sampled stays as ids: nothing is
decoded and encoded again, so the transcript that is trained is the one that was sampled. A tool that fails or takes too
long replies with its error, for the policy to deal with.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from rlhf_minimal.timeouts import call_with_timeout
from rlhf_minimal.vocabulary import TokenizerVocabulary

CALL = re.compile(r"<calculator>(.*?)</calculator>", re.DOTALL)
SUM = re.compile(r"\s*(-?\d{1,9})\s*([-+*])\s*(-?\d{1,9})\s*")


def calculator(turn: str) -> str | None:
    """The result of the first call in a turn, `<calculator>12 * 7</calculator>`; None if there is no call.

    Raises:
        ValueError: If what is called is not two whole numbers with +, - or * between. Nothing else is carried out.

    Example:
        >>> calculator("Let me see. <calculator>12 * 7</calculator>"), calculator("84")
        ('84', None)
    """
    called = CALL.search(turn)
    if called is None:
        return None
    read = SUM.fullmatch(called[1])
    if read is None:
        raise ValueError("write two whole numbers with +, - or * between them")
    a, b = int(read[1]), int(read[3])
    return str({"+": a + b, "-": a - b, "*": a * b}[read[2]])


@dataclass
class ChatReplies:
    """The argument `reply` of `sample`, for a model with a chat template.

    Args:
        vocabulary: The model's, with a chat template.
        tool: A turn of the model as text -> what the tool says, or None if the turn calls none: then it is the last.
        turns: The most replies in a transcript; after them the next end is the end.
        longest: The most tokens of a tool's text; the rest is cut off.
        seconds: The most that a call may take.
        role: The role of a result in the template: `user` is known to every template, some know `tool`.

    Raises:
        ValueError: If the vocabulary has no chat template, or the template does not show where a turn ends.
    """

    vocabulary: TokenizerVocabulary
    tool: Callable[[str], str | None]
    turns: int = 4
    longest: int = 64
    seconds: float = 5.0
    role: str = "user"
    # For each row: where its turn begins in its tokens, and how many replies it has had.
    _rows: dict[int, tuple[int, int]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.vocabulary.chat:
            raise ValueError("a turn ends where the chat template says: give a vocabulary with one (chat=True)")
        said, result = "@said@", "@result@"
        messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": said}]
        messages += [{"role": self.role, "content": result}]
        _, found, behind = self.vocabulary.render(messages, ask=True).partition(said)
        before, also, after = behind.partition(result)
        if not (found and also):
            raise ValueError(f"the chat template does not write what the role {self.role!r} says: give another role")
        ids = self.vocabulary.encode(before)
        if not ids or ids[0] not in self.vocabulary.eos_ids:
            raise ValueError("the chat template ends a turn with ordinary text, not with a token: no turn can end")
        self._text_before, self._before = before, ids[1:]
        self._after = self.vocabulary.encode_after(before + result, after)

    def __call__(self, row: int, ids: list[int]) -> list[int]:
        """What row `row` reads next, behind its tokens `ids`; `[]` while it has the word, and at the end."""
        begins, had = self._rows.get(row, (0, 0)) if len(ids) > 1 else (0, 0)
        if len(ids) == 1:
            self._rows[row] = (0, 0)  # a new batch
        if ids[-1] not in self.vocabulary.eos_ids or had == self.turns:
            return []
        said = self._ask(self.vocabulary.decode(ids[begins:-1]))
        if said is None:
            return []
        answer = self.vocabulary.encode_after(self._text_before, said)[: self.longest]
        reply = [*self._before, *answer, *self._after]
        self._rows[row] = (len(ids) + len(reply), had + 1)
        return reply

    def _ask(self, turn: str) -> str | None:
        try:
            said = call_with_timeout(lambda: self.tool(turn), self.seconds)
        except TimeoutError:
            return f"error: no answer within {self.seconds:g} s"
        except Exception as error:  # a tool may raise anything, and the policy is told
            return f"error: {error}"
        return None if said is None else str(said)
