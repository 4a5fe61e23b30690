"""Rows of training data, checked one by one before training begins.

    completion   {"prompt": "...", "completion": "..."}                                  fine-tuning
    pair         {"prompt": "...", "chosen": "...", "rejected": "..."}                   a reward model, DPO

A prompt is what the model reads, as `sample --rows` writes it: of a chat model, with its template. Files, conversations
and other forms are read by `lab.rows`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rlhf_minimal.models import TokenizerVocabulary, Vocabulary


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the rows have in common.

    Attributes:
        asked: The questions that the row holds, where its prompt has more around them: what the user says in a
            conversation. All of them decide whether the row is held out.
        turns_before: How many turns of the assistant belong to the prompt; they are read and not learnt.
    """

    asked: tuple[str, ...] = field(default=(), compare=False, repr=False)
    turns_before: int = field(default=0, compare=False, repr=False)

    def sequences(self) -> list[tuple[str, str, str]]:
        """What has to fit the context: a name, the text that is only read, and the text that is learnt or scored."""
        raise NotImplementedError


@dataclass(frozen=True)
class CompletionRow(Asked):
    """A prompt and the answer to imitate, without its end token."""

    prompt: str
    completion: str

    def sequences(self) -> list[tuple[str, str, str]]:
        """What has to fit the context: a name, the text that is only read, and the text that is learnt or scored."""
        return [("prompt and completion", self.prompt, self.completion)]


@dataclass(frozen=True)
class ReplyRow(CompletionRow):
    """A completion in which an environment wrote, too: where each of its replies begins and ends (`Task.replies`)."""

    replies: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class PairRow(Asked):
    """A prompt and two answers, of which one was preferred. The scores are None if the data has none."""

    prompt: str
    chosen: str
    rejected: str
    score_chosen: float | None = None
    score_rejected: float | None = None

    def sequences(self) -> list[tuple[str, str, str]]:
        """What has to fit the context: a name, the text that is only read, and the text that is learnt or scored."""
        both = (("chosen", self.chosen), ("rejected", self.rejected))
        return [(f"prompt and {name}", self.prompt, text) for name, text in both]


def completion_rows(
    source: Iterable[Any], vocabulary: Vocabulary | TokenizerVocabulary, *, max_length: int
) -> list[CompletionRow]:
    """Rows with a prompt and a completion that a model can read, or an error that names the first faulty one.

    Args:
        source: `CompletionRow`s, or dicts with the columns `prompt` and `completion`.
        vocabulary: The model's.
        max_length: The most tokens that the model can read, the end token included.

    Raises:
        ValueError: If a row is none of both; if a text is missing or blank, cannot be written, or is too long; if there
            is no row at all.

    Example:
        >>> data = [{"prompt": "1+2=", "completion": "3"}, {"prompt": "2+2=", "completion": ""}]
        >>> completion_rows(data, Vocabulary("0123456789+="), max_length=16)
        Traceback (most recent call last):
        ValueError: row 2: the completion is empty; remove the row, or write what the model should answer
    """
    if isinstance(source, str) or not isinstance(source, Iterable):
        raise ValueError(f"expected rows; got {source!r}: read a file with rlhf_minimal.lab.rows.read_rows")
    rows: list[CompletionRow] = []
    for number, raw in enumerate(source, start=1):
        try:
            row = raw if isinstance(raw, CompletionRow) else _completion_row(raw)
            check_filled("prompt", row.prompt, "remove the row, or write what the model is asked")
            check_filled("completion", row.completion, "remove the row, or write what the model should answer")
            for name, read, answer in row.sequences():
                check_fits(name, read, answer, vocabulary, max_length)
        except ValueError as error:
            raise ValueError(f"row {number}: {error}") from error
        rows.append(row)
    if not rows:
        raise ValueError("there is no row in the data: give some")
    return rows


def _completion_row(raw: Mapping[str, Any]) -> CompletionRow:
    """A row from its two columns."""
    if not isinstance(raw, Mapping):
        raise ValueError(f"expected an object with named columns; got {type(raw).__name__}")
    if "messages" in raw or isinstance(raw.get("prompt"), list):
        raise ValueError("this is a conversation: read the rows with rlhf_minimal.lab.rows.read_rows first")
    return CompletionRow(text_of(raw, "prompt"), text_of(raw, "completion"))


def text_of(raw: Mapping[str, Any], name: str) -> str:
    """The text in a column of a row.

    Raises:
        ValueError: If there is no such column, or no text in it.
    """
    if name not in raw:
        raise ValueError(
            f"there is no column {name!r}, only {', '.join(map(repr, raw)) or 'nothing'}; rename or add it"
        )
    if not isinstance(raw[name], str):
        raise ValueError(f"{name} is {raw[name]!r}, and should be a text; write it in quotes")
    return str(raw[name])


def check_filled(name: str, text: str, advice: str) -> None:
    """Refuses a text without a visible character; `advice` says what to do."""
    if not text.strip():
        raise ValueError(f"the {name} is empty; {advice}")


def check_fits(
    name: str, read: str, answer: str, vocabulary: Vocabulary | TokenizerVocabulary, max_length: int
) -> None:
    """Refuses a text that the vocabulary cannot write, that holds the end token itself, or that is too long."""
    asked, answered = vocabulary.encode(read) if read else [], vocabulary.encode_after(read, answer)
    ends = {vocabulary.eos_id, vocabulary.end_id if read else vocabulary.eos_id}  # a text to pretrain on ends in eos
    if not ends.isdisjoint(answered):  # a prompt may hold them: every turn ends so
        raise ValueError(f"{answer!r} holds the end token itself; remove it: it is added to every answer")
    unknown = getattr(getattr(vocabulary, "tokenizer", None), "unk_token_id", None)
    if unknown is not None and unknown in asked + answered:
        raise ValueError(
            f"something in {name} is unknown to the tokenizer ({read + answer!r}); remove it, or use another model"
        )
    length = len(vocabulary.encode_beginning(read)) + len(answered) + 1
    if length > max_length:
        raise ValueError(
            f"{length} tokens in {name}, the end included, and the model reads at most {max_length}; shorten the row, "
            "or remove it"
        )
