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

Only the last message is learnt. What the assistant says before it belongs to the prompt; to learn every turn, give a
row for each.

A question is the same one in all of these forms (`hold_out`): as a text, as what the user says in messages, in a text
that this chat template or another one has written, under a heading, with a sentence that says how to answer
(`base.question_core`), in another spelling (`questions.folded`), and in a text to pretrain on.

Rows come as a list of dicts, as a JSON-lines file, or as a `datasets.Dataset`. The package `datasets` is not needed:
anything that yields dicts works.
"""

import json
import math
import os
import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from rlhf_minimal.lab.questions import TAG, containing, questions_of, same_question
from rlhf_minimal.models import TokenizerVocabulary, Vocabulary
from rlhf_minimal.tasks.base import Step, falls_on_held_out_side, question_core
from rlhf_minimal.tasks.rows import Asked, CompletionRow, PairRow, check_filled, check_fits, text_of
from rlhf_minimal.tasks.scoring import read_steps

Source = str | Path | Iterable[Mapping[str, Any]]
Around = dict[str, Any]  # the fields of `Asked`
_NOT_DATA = tuple(vars(Asked()))


@dataclass(frozen=True)
class TextRow(Asked):
    """A text for pretraining."""

    text: str

    def sequences(self) -> list[tuple[str, str, str]]:
        """What has to fit the context: a name, the text that is only read, and the text that is learnt or scored."""
        return [("the text", "", self.text)]


@dataclass(frozen=True)
class StepRow(CompletionRow):
    """A completion with a label between 0 and 1 for each of its steps: is it right, or does it lead to an answer?"""

    steps: tuple[Step, ...] = ()


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
                check_fits(name, read, answer, vocabulary, max_length)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
        rows.append(row)
    if not rows:
        raise ValueError(f"there is no row in {source if isinstance(source, str | Path) else 'the data'}: give some")
    return rows


def hold_out(
    rows: Sequence[Row], most: int, identity: Callable[[str], str] = same_question, known: Iterable[str] = ()
) -> tuple[list[Row], list[Row]]:
    """Rows to train on, and rows to measure on. No question is in both.

    Whether a row is held out depends on its question alone, as in every task: on a checksum of what it says
    (`questions.same_question`). So the order of a file does not matter, rows with one question stay together, and
    every command holds out the same questions, whatever form a file has them in. A row that occurs twice counts once.

    A conversation holds several questions, and the text of a pair without a prompt may end its question in several
    places. Such a row is trained on if none of them is held out, and measured if none of them is trained on. What many
    conversations hold beside other questions ("Go on") decides nothing.

    Nor is a row trained on that asks or contains a question which is known to be held out, however it is spelt
    (`questions.folded`) and whatever is written around it, in the prompt or the answer. Known are `known` and what the
    rows themselves ask. A few words may stand between two parts of a long question, as where it goes on in another
    message. A short one (`questions.containing`) is found only where it is all that is asked: ``12+34=`` stands in many
    texts.

    Args:
        rows: All rows of a source.
        most: The most rows to measure on; further held-out rows are not used at all.
        identity: What is the same for all ways to ask a question; that of a task is `Task.identity`.
        known: Further questions that are held out, such as a task's own.

    Returns:
        Both lists, in the order of the source. If nothing is left to measure on, one question is moved there.

    Raises:
        ValueError: If all rows have the same question, or if all of them are held out.

    Example:
        >>> both = hold_out([TextRow("a"), TextRow("b"), TextRow(" b "), TextRow("a")], most=9)
        >>> [[row.text for row in side] for side in both]
        [['a'], ['b', ' b ']]
    """
    distinct = list(dict.fromkeys(rows))
    asked = _deciding(distinct, identity)
    questions = {deciding[-1] for deciding in asked.values()}
    if len(questions) < 2:
        raise ValueError(
            "the data holds one row only, and at least one more is needed to measure on (rows with the same question "
            "count as one)"
        )
    own = {
        question_core(question)
        for row, deciding in asked.items()
        if len(deciding) == 1 and falls_on_held_out_side(deciding[0])
        for question in questions_of(row)
        if identity(question) == deciding[0]
    }
    found = containing(distinct, own | {question_core(question) for question in known})
    train = [row for row in distinct if row not in found and not any(map(falls_on_held_out_side, asked[row]))]
    if not train:
        raise ValueError(
            "every row holds a question that all commands hold out (one in ten is, by a checksum of its text), so none "
            "is left to train on: add rows"
        )

    def measured() -> list[Row]:
        trained = set[str]().union(*(asked[row] for row in train))
        return [row for row in distinct if trained.isdisjoint(asked[row])]

    left = measured()
    for question in sorted(questions, key=lambda question: zlib.crc32(question.encode()))[:100]:
        if left:
            break
        moved = {question_core(q) for row in train for q in questions_of(row) if identity(q) == question}
        there = containing(train, moved)
        train = [row for row in train if row not in there and question not in asked[row]] or train
        left = measured()
    if not left:
        raise ValueError("every question of the data occurs in a row to train on, too: give pairs a column prompt")
    return train, left[:most]


MANY = 10  # a message in so many conversations may be one that goes with every question


def _deciding(rows: Sequence[Row], identity: Callable[[str], str]) -> dict[Row, tuple[str, ...]]:
    """The questions of each row that decide on which side it stands.

    Of several these do not: one that stands in more than half of all rows, and a later message of `MANY` conversations.
    """
    asked = {row: tuple(dict.fromkeys(map(identity, questions_of(row)))) for row in rows}
    rows_with = Counter(question for questions in asked.values() for question in questions)
    many = {question for question, n in rows_with.items() if n >= MANY}
    common = {question for question in many if rows_with[question] > len(rows) / 2}

    def deciding(row: Row) -> tuple[str, ...]:
        first, *later = asked[row]
        without = many if row.turns_before else common
        return tuple({first} - common) + tuple(question for question in later if question not in without) or asked[row]

    return {row: deciding(row) for row in rows}


def write_rows(path: Path, rows: Iterable[TextRow | CompletionRow | PairRow]) -> None:
    """Writes rows as a JSON-lines file that `read_rows`, `datasets` and TRL read."""
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            kept = {name: value for name, value in vars(row).items() if value is not None and name not in _NOT_DATA}
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
        parts = [message.get(name) for name in ("role", "content")] if isinstance(message, Mapping) else [None]
        if not all(isinstance(part, str) for part in parts) or not parts[0]:
            raise ValueError(
                f'message {i} is {message!r}; write each message as {{"role": "user", "content": "..."}} with a text'
            )
    return vocabulary.render(messages, ask=ask)


# How files begin that hold rows in another form, and what to do with them.
_OTHER_FORMATS = {
    b"PAR1": "is parquet, not JSON lines: convert it with datasets.Dataset.from_parquet(FILE).to_json(NEW)",
    b"\x1f\x8b": "is packed by gzip: unpack it with gunzip",
    b"BZh": "is packed by bzip2: unpack it with bunzip2",
    b"\xfd7zX": "is packed by xz: unpack it with unxz",
    b"\x28\xb5\x2f\xfd": "is packed by zstd: unpack it with unzstd",
    b"PK\x03\x04": "is a zip file: unpack it with unzip",
    b"ARRO": "is arrow, not JSON lines: convert it with datasets.Dataset.from_file(FILE).to_json(NEW)",
    b"\xff\xfe\0\0": "is text in UTF-32: save it in UTF-8",
    b"\0\0\xfe\xff": "is text in UTF-32: save it in UTF-8",
    b"\xff\xfe": "is text in UTF-16: save it in UTF-8",
    b"\xfe\xff": "is text in UTF-16: save it in UTF-8",
    b"{\0": "is text in UTF-16: save it in UTF-8",  # without a mark of its order
    b"\0{": "is text in UTF-16: save it in UTF-8",
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
        except UnicodeDecodeError as error:
            raise ValueError(
                f"cannot read {source}: it is no text in UTF-8 ({error}), so save it as JSON lines in UTF-8"
            ) from error
        except OSError as error:
            raise ValueError(f"cannot read {source}: {error.strerror or error}") from error
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
        row = TextRow(text_of(raw, "text"), asked=_asked_in_text(text_of(raw, "text"), vocabulary))
        if not row.text.strip():
            raise ValueError("the text is empty; remove the row")
    elif issubclass(kind, CompletionRow):
        prompt, completion, around = _completion(raw, vocabulary)
        check_filled("prompt", prompt, "remove the row, or write what the model is asked")
        check_filled("completion", completion, "remove the row, or write what the model should answer")
        row = CompletionRow(prompt, completion, **around)
        row = StepRow(**vars(row), steps=_labelled(raw, completion)) if kind is StepRow else row
    else:
        prompt, chosen, rejected, around = _pair(raw, vocabulary)
        if chosen == rejected:
            raise ValueError("chosen and rejected are equal, so nothing is preferred; remove the row")
        check_filled("prompt", prompt, "remove the row, or write what the model was asked")
        for name, text in (("chosen", chosen), ("rejected", rejected)):
            check_filled(f"{name} completion", text, "remove the row")
        scores = _score(raw, "score_chosen"), _score(raw, "score_rejected")
        row = PairRow(prompt, chosen, rejected, *scores, **around)
    return row


def _completion(raw: Mapping[str, Any], vocabulary: Vocabulary | TokenizerVocabulary) -> tuple[str, str, Around]:
    if "messages" in raw:
        messages = _messages(raw, "messages")
        if not messages or not isinstance(messages[-1], Mapping) or messages[-1].get("role") != "assistant":
            raise ValueError("the last message is not the assistant's, so there is no answer to learn; remove the row")
        return *_as_texts(messages[:-1], messages[-1:], vocabulary), _around(messages[:-1])
    if isinstance(raw.get("prompt"), list):
        prompt = _messages(raw, "prompt")
        return *_as_texts(prompt, _messages(raw, "completion"), vocabulary), _around(prompt)
    text = text_of(raw, "prompt")
    return text, text_of(raw, "completion"), _around_text(text, vocabulary)


def _pair(raw: Mapping[str, Any], vocabulary: Vocabulary | TokenizerVocabulary) -> tuple[str, str, str, Around]:
    if isinstance(raw.get("chosen"), list):
        chosen, rejected = _messages(raw, "chosen"), _messages(raw, "rejected")
        if "prompt" in raw:
            prompt = _messages(raw, "prompt")
        else:
            prompt = _common_messages(chosen, rejected)
            chosen, rejected = chosen[len(prompt) :], rejected[len(prompt) :]
        asked, better = _as_texts(prompt, chosen, vocabulary)
        return asked, better, _as_texts(prompt, rejected, vocabulary)[1], _around(prompt)
    one, other = text_of(raw, "chosen"), text_of(raw, "rejected")
    if "prompt" in raw:
        text = text_of(raw, "prompt")
        return text, one, other, _around_text(text, vocabulary)
    shared = _common_text(one, other)
    said, _ = _said(shared, vocabulary)
    around = _of_conversation(said) if said else _around_shared(shared)
    return shared, one[len(shared) :], other[len(shared) :], around


def _common_messages(one: list[Any], other: list[Any]) -> list[Any]:
    """The prompt of two conversations: what they have in common, up to where the assistant is to speak."""
    length = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    while length and isinstance(one[length - 1], Mapping) and one[length - 1].get("role") == "assistant":
        length -= 1
    return one[:length]


def _common_text(one: str, other: str) -> str:
    """The prompt of two texts: their common beginning, as far as whole words go, without a space at its end."""
    shared = os.path.commonprefix([one, other])
    behind = [text[len(shared) :][:1] for text in (one, other)]
    within_a_word = all(behind) and any(c.isalnum() or unicodedata.combining(c) for c in behind)
    # If one is the other's beginning, its last word is an answer. Read from the end: from the front it takes n² steps.
    last_word = r"\W*\w+" if not all(behind) else r"\w+" if within_a_word else ""
    found = re.match(last_word, shared[::-1])
    cut = shared[: len(shared) - (found.end() if found else 0)]
    return (cut if cut.strip() else shared).removesuffix(" ")


# Who speaks, in bare words, as a heading, in bold, or in a template's tags: "Q:", "### Instruction", "**User:**",
# "<|user|>", "<|im_start|>user", "<start_of_turn>user", "[INST]".
_ASKING = "human|user|customer|question|problem|instruction|prompt|query|task|exercise|frage|aufgabe|prompter|q|h"
_WHO = (
    rf"{_ASKING}|assistant|bot|ai|agent|chatbot|model|answer|solution|response|output|antwort|a|system|developer|tool"
)
_SPEAKER = re.compile(
    rf"(?i)(?:^|\n)\s*(?:#+ ?|\*\*)?(?:gpt4 correct )?({_WHO})(?: ?\d+)?(?::\*\*|\*\*:|:) ?"
    rf"|(?:^|\n) *#+ ({_WHO})(?: ?\d+)? *(?=\n|$)|\s((?-i:User|USER|Human|HUMAN|Assistant|ASSISTANT)): ?"
)
_TURN = re.compile(rf"(?i)\0({_WHO})\0|\0\0\s*({_WHO})[ :]*(?=\n|\0|$)")
_MEANS = {"inst": "user", "/inst": "assistant", "sys": "system", "/sys": "user"}
LONGEST_QUESTION = 1000  # characters, of a question that stands before an answer without a mark
MOST_ENDS = 32  # of a question that nothing marks; of a longer text those at its beginning and at its end are kept


def _around_shared(shared: str) -> Around:
    """What two texts without a prompt may ask, if this is their common beginning.

    The answers may begin alike, and the question may end at every mark, before every word with a capital, at every end
    of a line, and behind the last of them at every word.
    """
    ends = [
        match.end()
        for match in re.finditer(r"[.?!:=\u2026\u3002\uff1f\uff01]+|(?=\n)|(?<=[a-z\d])(?=\s?[A-Z][a-z])", shared)
    ]
    last = max(ends, default=0)
    ends += [last + match.end() for match in re.finditer(r"\S+", shared[last:])]
    ends = sorted({*ends})
    if len(ends) > MOST_ENDS:
        ends = [*ends[: MOST_ENDS // 2], *ends[-MOST_ENDS // 2 :]]
    return {"asked": tuple(shared[:end] for end in ends if shared[:end].strip())}


def _said(text: str, vocabulary: Vocabulary | TokenizerVocabulary) -> tuple[tuple[str, ...], bool]:
    """What the asking one says in a text, and whether a template says so: by tags, or its own; else by words."""

    def mark(found: re.Match[str]) -> str:
        word = re.sub("[^a-z/]", "", found[0].lower().replace("token", ""))
        who = _MEANS.get(word, word)
        return f"\0{who}\0" if re.fullmatch(_WHO, who) else "\0\0"

    tagged = TAG.sub(mark, text.replace("\0", ""))
    turns = [*_TURN.finditer(tagged)]
    if not turns and (own := asked_in(text, vocabulary)):
        return own, True
    by_template, turns = bool(turns), turns or [*_SPEAKER.finditer(tagged)]
    ends = [*(turn.start() for turn in turns[1:]), len(tagged)]
    spoken = [(turn[turn.lastindex or 0], tagged[turn.end() : end]) for turn, end in zip(turns, ends, strict=False)]
    said = [words.lstrip("\0 \n").partition("\0")[0] for who, words in spoken if re.fullmatch(_ASKING, who.lower())]
    return tuple(words for words in said if words.strip()), by_template


def asked_in(text: str, vocabulary: Vocabulary | TokenizerVocabulary) -> tuple[str, ...]:
    """What the user says in a conversation that the chat template has written as text, message by message.

    `()` if the text is no such conversation, or if the vocabulary uses no template.
    """
    chat = isinstance(vocabulary, TokenizerVocabulary) and vocabulary.chat
    before, after = _around_a_question(vocabulary) if chat else ("", "")
    return tuple(said.partition(after)[0] for said in text.split(before)[1:]) if before else ()


@lru_cache(maxsize=8)
def _around_a_question(vocabulary: TokenizerVocabulary) -> tuple[str, str]:
    """What the chat template writes before and behind what the user says; ("", "") if it does not mark that."""
    parts = re.split("It is [ua].", vocabulary.example("uau", ask=True))
    if len(parts) != 4:  # no template, or one that refuses this conversation or writes it in another way
        return "", ""
    first, after, before, last = parts
    before = os.path.commonprefix([first[::-1], before[::-1]])[::-1]  # what varies, as a date, stands before
    after = os.path.commonprefix([after, last])
    return (before, after) if before.strip() and after.strip() else ("", "")


def _asked_in_text(text: str, vocabulary: Vocabulary | TokenizerVocabulary) -> tuple[str, ...]:
    """What a text to pretrain on may ask: what its speakers ask, or else what ends at a question mark or a line."""
    asked = list[str]()
    for said in _said(text, vocabulary)[0] or (text,):
        ends = [found.end() for found in re.finditer(r"[?\uff1f]+|[=:](?!.*[?\uff1f])", said[:LONGEST_QUESTION])]
        ends = sorted({*ends[:1], *ends[-1:], said.rfind("\n", 0, LONGEST_QUESTION)})
        asked += [said, *(said[:end] for end in ends if said[: max(end, 0)].strip() and said[end:].strip())]
    return tuple(asked)


def _of_conversation(said: tuple[str, ...]) -> Around:
    return {"asked": said, "turns_before": len(said) - 1}


def _around(prompt: list[dict[str, Any]]) -> Around:
    """The fields `asked` and `turns_before` of a row whose prompt are these messages."""
    roles = [message["role"] for message in prompt]
    said = tuple(message["content"] for message in prompt if message["role"] == "user")
    return {"asked": said, "turns_before": roles.count("assistant")}


def _around_text(prompt: str, vocabulary: Vocabulary | TokenizerVocabulary) -> Around:
    """The same of a prompt that a chat template has written, or that names its speakers in words.

    `{}` for another text. In the second case the whole text is asked, too: a task may have it as its prompt.
    """
    said, by_template = _said(prompt, vocabulary)
    return _of_conversation(said) if said and by_template else {"asked": (*said, prompt)} if said else {}


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
    if not isinstance(vocabulary, TokenizerVocabulary):
        return asked, completion
    for end in (vocabulary.end_id, vocabulary.eos_id):
        text, found, behind = completion.rpartition(vocabulary.tokenizer.convert_ids_to_tokens(end))
        if found and (not behind.strip() or vocabulary.behind_an_answer.endswith(behind)):
            return asked, text
    return asked, completion


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
