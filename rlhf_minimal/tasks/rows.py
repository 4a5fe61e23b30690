"""Training data in TRL's "standard" and "conversational" formats, checked row by row before training begins.

    text         {"text": "..."}                                                         pretraining
    completion   {"prompt": "...", "completion": "..."}                                  fine-tuning
                 {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", ...}]}
    pair         {"prompt": "...", "chosen": "...", "rejected": "..."}                   a reward model, DPO
                 {"chosen": "...", "rejected": "..."}           the prompt is the common beginning of both
    step         {"prompt": "...", "completion": "...", "steps": [[2, 1.0], ...]}        a scorer of steps

In place of a text there may be a list of messages. The tokenizer's chat template turns it into text (or
`MINIMAL_TEMPLATE` if it has none: the contents one after another, with nothing between). A prompt that is a text gets
no template: it is what the model reads, as `sample --rows` writes it. Pairs may have the columns `score_chosen` and
`score_rejected`. Other columns are ignored.

Rows come as a list of dicts, as a JSON-lines file, or as a `datasets.Dataset`. The package `datasets` is not needed:
anything that yields dicts works.
"""

import json
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from rlhf_minimal.models import TokenizerVocabulary, Vocabulary
from rlhf_minimal.tasks.base import Step, falls_on_held_out_side, normalised
from rlhf_minimal.tasks.rewards import read_steps

Source = str | Path | Iterable[Mapping[str, Any]]


@dataclass(frozen=True)
class TextRow:
    """A text for pretraining."""

    text: str

    @property
    def question(self) -> str:
        """The text that decides whether the row is held out; here it is the whole text."""
        return self.text

    def sequences(self) -> list[tuple[str, str, str]]:
        """What has to fit the context: a name, the text that is only read, and the text that is learnt or scored."""
        return [("the text", "", self.text)]


@dataclass(frozen=True)
class CompletionRow:
    """A prompt and the answer to imitate, without its end token."""

    prompt: str
    completion: str

    @property
    def question(self) -> str:
        """The text that decides whether the row is held out; the answer does not matter."""
        return self.prompt

    def sequences(self) -> list[tuple[str, str, str]]:
        """What has to fit the context: a name, the text that is only read, and the text that is learnt or scored."""
        return [("prompt and completion", self.prompt, self.completion)]


@dataclass(frozen=True)
class ReplyRow(CompletionRow):
    """A completion in which an environment wrote, too: where each of its replies begins and ends (`Task.replies`)."""

    replies: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class StepRow(CompletionRow):
    """A completion with a label between 0 and 1 for each of its steps: is it right, or does it lead to an answer?"""

    steps: tuple[Step, ...] = ()


@dataclass(frozen=True)
class PairRow:
    """A prompt and two answers, of which one was preferred. The scores are None if the data has none."""

    prompt: str
    chosen: str
    rejected: str
    score_chosen: float | None = None
    score_rejected: float | None = None

    @property
    def question(self) -> str:
        """The text that decides whether the row is held out; the answers do not matter."""
        return self.prompt

    def sequences(self) -> list[tuple[str, str, str]]:
        """What has to fit the context: a name, the text that is only read, and the text that is learnt or scored."""
        both = (("chosen", self.chosen), ("rejected", self.rejected))
        return [(f"prompt and {name}", self.prompt, text) for name, text in both]


Row = TypeVar("Row", TextRow, CompletionRow, PairRow, StepRow)


def read_rows(
    source: Source, kind: type[Row], vocabulary: Vocabulary | TokenizerVocabulary, *, max_length: int
) -> list[Row]:
    """All rows of a source, or an error that names the first faulty row: no row is skipped, and none is shortened.

    Args:
        source: A list of dicts, the name of a JSON-lines file, or a `datasets.Dataset`.
        kind: `TextRow`, `CompletionRow`, `PairRow` or `StepRow`.
        vocabulary: The model's; its tokenizer's chat template writes conversations.
        max_length: The most tokens that the model can read, the end token included.

    Returns:
        The rows, in their order.

    Raises:
        ValueError: If a column is missing or is not a text; if a text is empty or blank; if both answers of a pair are
            equal; if a score is not a finite number, or a step is none; if a text holds the end token, or something
            that the vocabulary cannot write; if it is longer than `max_length`; or if there is no row at all. The
            message names the row (the first is row 1) and says what to do.

    Example:
        >>> data = [{"prompt": "1+2=", "completion": "3"}, {"prompt": "2+2=", "completion": ""}]
        >>> read_rows(data, CompletionRow, Vocabulary("0123456789+="), max_length=16)
        Traceback (most recent call last):
        ValueError: row 2: the completion is empty; remove the row, or write what the model should answer
    """
    rows: list[Row] = []
    for where, raw in numbered(source):
        try:
            row = _parse(raw, kind, vocabulary)
            for name, read, answer in row.sequences():
                _check_fits(name, read, answer, vocabulary, max_length)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
        rows.append(row)
    if not rows:
        raise ValueError(f"there is no row in {source if isinstance(source, str | Path) else 'the data'}: give some")
    return rows


def hold_out(rows: Sequence[Row], most: int) -> tuple[list[Row], list[Row]]:
    """Rows to train on, and rows to measure on. No question is in both.

    Whether a row is held out depends on its question alone, as in every task: on a checksum of the text as a reader
    sees it (`base.normalised`). So the order of a file does not matter, rows with the same question stay together, and
    every command holds out the same questions of a file. A row that occurs twice counts once.

    Args:
        rows: All rows of a source.
        most: The most rows to measure on; further held-out rows are not used at all.

    Returns:
        Both lists, in the order of the source. If all questions would be in one list, one question is moved.

    Raises:
        ValueError: If all rows have the same question.

    Example:
        >>> both = hold_out([TextRow("a"), TextRow("b"), TextRow(" b "), TextRow("a")], most=9)
        >>> [[row.text for row in side] for side in both]
        [['a'], ['b', ' b ']]
    """
    distinct = list(dict.fromkeys(rows))
    questions = {row: normalised(row.question) for row in distinct}
    checksums = {question: zlib.crc32(question.encode()) for question in questions.values()}
    if len(checksums) < 2:
        raise ValueError(
            "the data holds one row only, and at least one more is needed to measure on (rows with the same question "
            "count as one)"
        )
    held_out = {question for question in checksums if falls_on_held_out_side(question)}
    if not held_out or len(held_out) == len(checksums):
        held_out ^= {min(checksums, key=lambda question: checksums[question])}
    sides = ([row for row in distinct if (questions[row] in held_out) == side] for side in (False, True))
    train, measured = sides
    return train, measured[:most]


def write_rows(path: Path, rows: Iterable[TextRow | CompletionRow | PairRow]) -> None:
    """Writes rows as a JSON-lines file that `read_rows`, `datasets` and TRL read."""
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            kept = {name: value for name, value in vars(row).items() if value is not None}
            file.write(json.dumps(kept, ensure_ascii=False) + "\n")


def render(messages: list[dict[str, Any]], vocabulary: Vocabulary | TokenizerVocabulary, *, ask: bool) -> str:
    """A conversation as text.

    Args:
        messages: Dicts with `role` and `content`.
        vocabulary: Its tokenizer's chat template is used if there is one, else contents follow each other directly.
        ask: Whether it is now the assistant's turn (the template may write the beginning of it).

    Raises:
        ValueError: If a message has no role, if its content is not a text, or if the template refuses the conversation.
    """
    for i, message in enumerate(messages, start=1):
        if not isinstance(message, Mapping) or not isinstance(message.get("content"), str) or not message.get("role"):
            raise ValueError(
                f'message {i} is {message!r}; write each message as {{"role": "user", "content": "..."}} with a text'
            )
    return vocabulary.render(messages, ask=ask)


# How files begin that hold rows in another form, and what to do with them.
_OTHER_FORMATS = {
    b"PAR1": "is parquet, not JSON lines: convert it with datasets.Dataset.from_parquet(FILE).to_json(NEW)",
    b"\x1f\x8b": "is packed by gzip: unpack it with gunzip",
    b"\xff\xfe": "is text in UTF-16: save it in UTF-8",
    b"\xfe\xff": "is text in UTF-16: save it in UTF-8",
}


def numbered(source: Source) -> Iterable[tuple[str, Mapping[str, Any]]]:
    """Every row, after the name that error messages give it."""
    if isinstance(source, str | Path):
        try:
            with Path(source).open("rb") as file:
                beginning = file.read(4)
            for magic, advice in _OTHER_FORMATS.items():
                if beginning.startswith(magic):
                    raise ValueError(f"{source} {advice}")
            lines = Path(source).read_text(encoding="utf-8-sig").removesuffix("\n").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"cannot read {source}: {getattr(error, 'strerror', None) or error}") from error
        for number, line in enumerate(lines, start=1):
            try:
                yield f"{source}, row {number}", json.loads(line)
            except (ValueError, RecursionError) as error:
                raise ValueError(
                    f"{source}, row {number}: this line is not JSON ({error}); write one object a line"
                ) from error
        return
    if isinstance(source, Mapping):
        raise ValueError(f"this is a dict of splits, not of rows: choose one of {', '.join(map(str, source))}")
    for number, row in enumerate(source, start=1):
        yield f"row {number}", row


def _parse(raw: Any, kind: type[Row], vocabulary: Vocabulary | TokenizerVocabulary) -> Row:
    if not isinstance(raw, Mapping):
        raise ValueError(f"expected an object with named columns; got {type(raw).__name__}")
    row: Any
    if kind is TextRow:
        row = TextRow(text_of(raw, "text"))
        if not row.text.strip():
            raise ValueError("the text is empty; remove the row")
    elif issubclass(kind, CompletionRow):
        prompt, completion = _completion(raw, vocabulary)
        check_filled("prompt", prompt, "remove the row, or write what the model is asked")
        check_filled("completion", completion, "remove the row, or write what the model should answer")
        row = CompletionRow(prompt, completion)
        if kind is StepRow:
            row = StepRow(prompt, completion, _labelled(raw, completion))
    else:
        prompt, chosen, rejected = _pair(raw, vocabulary)
        if chosen == rejected:
            raise ValueError("chosen and rejected are equal, so nothing is preferred; remove the row")
        check_filled("prompt", prompt, "remove the row, or write what the model was asked")
        for name, text in (("chosen", chosen), ("rejected", rejected)):
            check_filled(f"{name} completion", text, "remove the row")
        row = PairRow(prompt, chosen, rejected, _score(raw, "score_chosen"), _score(raw, "score_rejected"))
    return row


def _completion(raw: Mapping[str, Any], vocabulary: Vocabulary | TokenizerVocabulary) -> tuple[str, str]:
    if "messages" in raw:
        messages = _messages(raw, "messages")
        if not messages or not isinstance(messages[-1], Mapping) or messages[-1].get("role") != "assistant":
            raise ValueError("the last message is not the assistant's, so there is no answer to learn; remove the row")
        return _as_texts(messages[:-1], messages[-1:], vocabulary)
    if isinstance(raw.get("prompt"), list):
        return _as_texts(_messages(raw, "prompt"), _messages(raw, "completion"), vocabulary)
    return text_of(raw, "prompt"), text_of(raw, "completion")


def _pair(raw: Mapping[str, Any], vocabulary: Vocabulary | TokenizerVocabulary) -> tuple[str, str, str]:
    if isinstance(raw.get("chosen"), list):
        chosen, rejected = _messages(raw, "chosen"), _messages(raw, "rejected")
        if "prompt" in raw:
            prompt = _messages(raw, "prompt")
        else:
            prompt = _common_beginning(chosen, rejected)
            chosen, rejected = chosen[len(prompt) :], rejected[len(prompt) :]
        asked, better = _as_texts(prompt, chosen, vocabulary)
        return asked, better, _as_texts(prompt, rejected, vocabulary)[1]
    one, other = text_of(raw, "chosen"), text_of(raw, "rejected")
    if "prompt" in raw:
        return text_of(raw, "prompt"), one, other
    # Both texts begin with the prompt: it is their common beginning, without a space at its end. Where exactly the
    # prompt ends makes no difference to a loss on whole sequences.
    shared = "".join(_common_beginning(list(one), list(other)))
    shared = shared.removesuffix(" ")
    return shared, one[len(shared) :], other[len(shared) :]


def _common_beginning(one: list[Any], other: list[Any]) -> list[Any]:
    length = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return one[:length]


def _as_texts(
    prompt: list[dict[str, Any]], answer: list[dict[str, Any]], vocabulary: Vocabulary | TokenizerVocabulary
) -> tuple[str, str]:
    """Prompt and answer as text, without an end token that the template writes: the library adds its own later."""
    if not prompt:
        raise ValueError("the prompt has no message; remove the row, or write what the model is asked")
    asked = render(prompt, vocabulary, ask=True)
    whole = render(prompt + answer, vocabulary, ask=False)
    if not whole.startswith(asked):
        raise ValueError(
            "the tokenizer's chat template writes the prompt differently once the answer is there, so the two cannot "
            "be told apart; give prompt and completion as texts"
        )
    completion = whole[len(asked) :]
    tokenizer = getattr(vocabulary, "tokenizer", None)
    end = tokenizer.eos_token if tokenizer is not None else None
    if end and completion.rstrip().endswith(end):
        completion = completion.rstrip().removesuffix(end)
    return asked, completion


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


def _messages(raw: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    value = raw.get(name)
    if not isinstance(value, list):
        raise ValueError(
            f"{name} is {value!r}, and should be a list of messages, as the other columns are; if these begin with the "
            "question themselves, leave the column prompt out"
        )
    return value


def _score(raw: Mapping[str, Any], name: str) -> float | None:
    value = raw.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{name} is {value!r}, and should be a finite number; correct it, or leave the column out")
    return float(value)


def _labelled(raw: Mapping[str, Any], completion: str) -> tuple[Step, ...]:
    steps = read_steps(raw.get("steps"), completion)
    if not steps or not all(0 <= mark <= 1 for _, mark in steps):
        raise ValueError(f"steps is {raw.get('steps')!r}, and should hold a step and labels from 0 to 1; correct it")
    return tuple(steps)


def check_filled(name: str, text: str, advice: str) -> None:
    """Refuses a text without a visible character; `advice` says what to do."""
    if not text.strip():
        raise ValueError(f"the {name} is empty; {advice}")


def _check_fits(
    name: str, read: str, answer: str, vocabulary: Vocabulary | TokenizerVocabulary, max_length: int
) -> None:
    asked, answered = vocabulary.encode(read) if read else [], vocabulary.encode(answer)
    if vocabulary.eos_id in answered:  # a prompt may hold it: chat templates end every turn with it
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
