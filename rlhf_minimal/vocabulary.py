"""Text to token ids and back: one id per character, or a real model's tokenizer with the same methods."""

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date
from functools import cached_property, partial
from itertools import takewhile
from typing import Any, ClassVar

from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from rlhf_minimal.timeouts import call_with_timeout

END = "<|end|>"  # the text of the end-of-answer token, for tokenizers, which need one

# A chat as plain text: the contents of the messages in order, with nothing between. A small alphabet cannot write
# "user" and "assistant", so the text itself has to show where a message ends (by a question mark, or a colon).
MINIMAL_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"

TEMPLATE_SECONDS = 10.0  # a chat template is a program that a model brings along, and may have no end

Message = Mapping[str, Any]  # {"role": "user", "content": "..."}


class Vocabulary:
    """One token per character, plus one special token: the end of the answer.

    Id 0 ends an answer and is also the padding after it. The two can share an id because this library never tests
    `ids != pad`: masks are made from lengths, which include the first end-of-answer token.

    Args:
        alphabet: The characters, each once, in the order of their ids (1, 2, ...).

    Raises:
        ValueError: If the alphabet is empty or repeats a character.

    Example:
        >>> vocabulary = Vocabulary("0123456789+=")
        >>> vocabulary.encode("1+2=")
        [2, 11, 3, 12]
        >>> vocabulary.decode([4, 0, 7])  # reading stops at the first end-of-answer token
        '3'
    """

    def __init__(self, alphabet: str):
        if not alphabet or len(set(alphabet)) != len(alphabet):
            raise ValueError(f"an alphabet needs at least one character, and each only once; got {alphabet!r}")
        self.alphabet = alphabet
        self.eos_id = self.pad_id = self.end_id = 0
        self.eos_ids: tuple[int, ...] = (0,)
        self._ids = {character: i for i, character in enumerate(alphabet, start=1)}

    def __len__(self) -> int:
        return len(self.alphabet) + 1

    def encode(self, text: str) -> list[int]:
        """The ids of a text; a character outside the alphabet is a ValueError."""
        unknown = [character for character in dict.fromkeys(text) if character not in self.alphabet]
        if unknown:
            raise ValueError(
                f"characters {', '.join(unknown)} of {text!r} are not in this model's alphabet {self.alphabet}; "
                "use these, or a model that knows the others"
            )
        return [self._ids[character] for character in text]

    def encode_beginning(self, text: str) -> list[int]:
        """The ids of a text that stands at the beginning of a sequence: `encode`, since nothing is put before it."""
        return self.encode(text)

    def encode_after(self, prompt: str, text: str) -> list[int]:
        """The ids of a text that stands behind a prompt: `encode`, since no character depends on the one before."""
        return self.encode(text)

    def render(self, messages: Sequence[Message], *, ask: bool) -> str:
        """A conversation as text: the contents in order, with nothing between (`MINIMAL_TEMPLATE`)."""
        return "".join(message["content"] for message in messages)

    def encode_prompt(self, text: str, *, system: str = "") -> list[int]:
        """The ids that the model reads before it writes an answer: those of the prompt.

        Args:
            text: The prompt.
            system: A system message, which becomes a line before the prompt; "" for none.
        """
        return self.encode(self.prompt_text(text, system=system))

    def prompt_text(self, text: str, *, system: str = "") -> str:
        """The prompt as the model reads it, the system message included; what `encode_prompt` encodes."""
        return _on_two_lines(system, text)

    def decode(self, ids: Iterable[int]) -> str:
        """The text before the first end-of-answer token."""
        return "".join(self.alphabet[i - 1] for i in takewhile(lambda i: i != self.eos_id, ids))

    def token_of(self, ids: Sequence[int], end: int) -> int:
        """The place in `ids` of the token that completes the first `end` characters of their text."""
        return end - 1


def character_tokenizer(alphabet: str) -> PreTrainedTokenizerFast:
    """A `Vocabulary` as a real tokenizer of the `tokenizers` library, with the same ids.

    It is saved with every model that has a character vocabulary, so that `AutoTokenizer.from_pretrained` can read the
    folder and other tools can use the model. Its chat template is `MINIMAL_TEMPLATE`.

    Args:
        alphabet: The characters, each once, in the order of their ids (1, 2, ...).

    Returns:
        A tokenizer with one token per character; id 0 ends an answer and pads.

    Raises:
        ValueError: If the alphabet is empty or repeats a character.

    Example:
        >>> tokenizer = character_tokenizer("0123456789+=")
        >>> tokenizer("1+2=")["input_ids"]
        [2, 11, 3, 12]
        >>> tokenizer.decode([2, 11, 3, 12, 0], skip_special_tokens=True)
        '1+2='
    """
    ids = {END: 0} | {character: i for i, character in enumerate(Vocabulary(alphabet).alphabet, start=1)}
    backend = Tokenizer(WordLevel(ids))
    backend.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    backend.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token=END,
        pad_token=END,
        clean_up_tokenization_spaces=False,
        chat_template=MINIMAL_TEMPLATE,
    )


class TokenizerVocabulary:
    """A Hugging Face tokenizer with the methods of `Vocabulary`, so that the same loop trains a real model.

    Args:
        tokenizer: Any transformers tokenizer with an end-of-sequence token.
        chat: Whether prompts and conversations are written with the tokenizer's chat template; None (the default)
            does so if it has one. Without the template, a model that was trained on conversations continues the
            prompt instead of answering it; a base model has no template.

    Attributes:
        eos_id: The tokenizer's end-of-sequence token: the one that is written behind a text to train on.
        day: The day that chat templates are told which write a date. One for all, so that no run changes at midnight;
            a resumed run has that on which it was begun.

    Raises:
        ValueError: If the tokenizer has no end-of-sequence token, so that no answer could end. If `chat` is True and
            the tokenizer has no chat template.

    Example:
        >>> vocabulary = TokenizerVocabulary(character_tokenizer("0123456789+="))
        >>> vocabulary.encode_prompt("1+2=")
        [2, 11, 3, 12]
    """

    day: ClassVar[date] = date.today()

    def __init__(self, tokenizer: Any, *, chat: bool | None = None):
        if tokenizer.eos_token_id is None:
            raise ValueError("this tokenizer has no end-of-sequence token, so no answer could end; set eos_token")
        if chat and not tokenizer.chat_template:
            raise ValueError("this tokenizer has no chat template: leave chat out, or use an instruction-tuned model")
        self.tokenizer = tokenizer
        self.chat = bool(tokenizer.chat_template) if chat is None else chat
        self.eos_id = int(tokenizer.eos_token_id)
        self.pad_id = self.eos_id if tokenizer.pad_token_id is None else int(tokenizer.pad_token_id)
        # `models.know_tokens` sets these two: how many tokens the model knows, and those with which it ends a text
        self.known: int | None = None
        self.model_eos_ids: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.tokenizer)

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """The tokens at which sampling stops, and before which the answer ends: `eos_id` and further ones.

        Models of conversations often end a turn with another token than the tokenizer's end of sequence, such as
        `<end_of_turn>`. So the end tokens of the model's config and of its generation config count as well, and the
        token that the chat template writes behind what the assistant says.
        """
        every = dict.fromkeys([self.eos_id, *self.model_eos_ids, *self._turn_end])
        return tuple(i for i in every if self.known is None or 0 <= i < self.known)

    @property
    def end_id(self) -> int:
        """The token that is written behind an answer to train on: the one with which a chat template ends a turn.

        Without a template, or where it ends the turn with ordinary text, it is `eos_id`.
        """
        return next((i for i in self._turn_end if self.chat and i in self.eos_ids), self.eos_id)

    @cached_property
    def behind_an_answer(self) -> str:
        """What the chat template writes behind what the assistant says; "" without a template that can tell."""
        return ["", *self.example("ua").split("It is a.")[1:]][-1]

    @cached_property
    def _turn_end(self) -> tuple[int, ...]:
        """The token with which the chat template ends the assistant's turn; none if it does so with ordinary text.

        Some templates end every turn but the last. There it is the first token between two turns, if that does not
        begin the user's.
        """
        special = {*self.tokenizer.all_special_ids, *self.tokenizer.get_added_vocab().values()}

        def marks(text: str) -> list[int | None]:
            ids = self.tokenizer.encode(text.lstrip(), add_special_tokens=False)
            words = self.tokenizer.convert_ids_to_tokens(ids)
            known = {i for i, word in zip(ids, words, strict=True) if i in special or re.fullmatch("<.+>", word)}
            return [i if i in known else None for i in ids]

        first, between, *_ = re.split("It is u\\.", self.example("uau")) + [""]
        within = marks(between.partition("It is a.")[2])
        begins_user = {*within[1:]} <= {None} and {*within[:1]} <= {*marks(first)}
        ends = (*marks(self.behind_an_answer)[:1], *([] if begins_user else within[:1]))
        return tuple(i for i in ends if i not in (None, self.tokenizer.bos_token_id))[:1]

    def example(self, turns: str, *, ask: bool = False) -> str:
        """Turns of user and assistant (u, a) by the template, with a system message if it wants one; "" if refused."""
        roles = {"u": "user", "a": "assistant", "s": "system"}
        for before in ("", "s"):
            with suppress(Exception):  # no template, or one that refuses this conversation
                messages = [{"role": roles[turn], "content": f"It is {turn}."} for turn in before + turns]
                return self._by_template(messages, ask=ask)
        return ""

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without special tokens; text that the tokenizer cannot write is a ValueError."""
        try:
            ids = list(self.tokenizer.encode(text, add_special_tokens=False))
        except Exception as error:  # `tokenizers` raises no narrower class
            raise ValueError(f"this model's tokenizer cannot write {text!r}: {error}") from error
        if self.known is not None and max(ids, default=0) >= self.known:
            token = self.tokenizer.convert_ids_to_tokens(max(ids))
            raise ValueError(
                f"the tokenizer writes {token!r} as token {max(ids)}, and the model knows {self.known} only; remove it "
                f"from {text!r}"
            )
        return ids

    def encode_after(self, prompt: str, text: str) -> list[int]:
        """The ids of a text that stands behind a prompt: what the tokenizer writes for both, without the prompt's.

        So a conversation has the ids of `apply_chat_template`. Some tokenizers put a space before a text that they are
        given alone, which then is none within a conversation. Where a token would reach over the seam, the prompt
        keeps its own ids, as the sampler reads them, and the text gets its own, without such a space.
        """
        alone, before, both = self.encode(text), self.encode(prompt), self.encode(prompt + text)
        if both[: len(before)] == before:
            return both[len(before) :]
        line, on_a_line = self.encode("\n"), self.encode("\n" + text)
        if self.tokenizer.decode([*line, *alone], clean_up_tokenization_spaces=False) == "\n" + text:
            return alone
        return on_a_line[len(line) :] if on_a_line[: len(line)] == line else alone

    def encode_beginning(self, text: str) -> list[int]:
        """The ids of a text that stands at the beginning of a sequence, such as the prompt of a row.

        No chat template is added: the text has one already if it is to have one (see `prompt_text`). The
        beginning-of-text token is, if this tokenizer writes one and the text does not begin with it. A chat gets none:
        its template writes the token itself, if the model needs one.
        """
        begin, ids = [] if self.chat else self._begin(), self.encode(text)
        return ids if ids[: len(begin)] == begin else begin + ids

    def render(self, messages: Sequence[Message], *, ask: bool) -> str:
        """A conversation as text, by the chat template; without it, the contents one after the other.

        Args:
            messages: Each with a `role` and a `content`.
            ask: Whether it is now the assistant's turn; the template may write the beginning of it.

        Raises:
            ValueError: If the template refuses the conversation.
        """
        if not self.chat:
            return "".join(message["content"] for message in messages)
        return self._by_template(messages, ask=ask)

    def _by_template(self, messages: Sequence[Message], *, ask: bool) -> str:
        try:
            template = self._clock() + self.tokenizer.get_chat_template()
            write = partial(self.tokenizer.apply_chat_template, messages, chat_template=template, tokenize=False)
            text = str(call_with_timeout(partial(write, add_generation_prompt=ask), TEMPLATE_SECONDS))
            # Behind a space the model would write other tokens than the whole conversation has: it writes the space.
            return text.rstrip(" ") if ask else text
        except Exception as error:  # a template is a program of its own and may raise anything
            hint = "; if it wants a system message, give one, as a message or with --system"
            if any(message["role"] == "system" for message in messages):
                hint = '; if it takes no system message, leave that out, on the command line with --system ""'
            raise ValueError(f"the tokenizer's chat template refuses this conversation: {error}{hint}") from error

    def encode_prompt(self, text: str, *, system: str = "") -> list[int]:
        """The ids that the model reads before it writes an answer.

        With a chat template: the system message if there is one, the prompt as the user's message, and the beginning of
        the assistant's message. Without: the prompt, after the beginning-of-text token if this tokenizer writes one.

        Args:
            text: The prompt.
            system: The system message; without a chat template, a line before the prompt.
        """
        return self.encode_beginning(self.prompt_text(text, system=system))

    def prompt_text(self, text: str, *, system: str = "") -> str:
        """The prompt as the model reads it, with template and system message: what `encode_prompt` encodes.

        Rows hold their prompts like this, so that training reads what the sampler reads (see `lab.rows`).
        """
        if not self.chat:
            return _on_two_lines(system, text)
        before = [{"role": "system", "content": system}] if system else []
        return self.render([*before, {"role": "user", "content": text}], ask=True)

    def _clock(self) -> str:
        """A macro of templates in place of the function that tells them the day: it tells `day`, whatever the format.

        The line end behind it is dropped, and the template begins on a line of its own, as it does alone.
        """
        parts = {f"%{c}": self.day.strftime(f"%{c}") for c in "aAbBcdfHIjmMpSUwWxXyYzZ"}
        parts |= {f"%-{c}": parts[f"%{c}"].lstrip("0") for c in "dm"}
        told = "".join(f"|replace({part!r}, {value!r})" for part, value in parts.items())
        return f"{{% macro strftime_now(form) %}}{{{{ form{told} }}}}{{% endmacro %}}\n"

    def _begin(self) -> list[int]:
        begin = self.tokenizer.bos_token_id
        return [begin] if begin is not None and self.tokenizer.encode("a")[:1] == [begin] else []

    def decode(self, ids: Iterable[int]) -> str:
        """The text before the first end token (`eos_ids`): the answer alone."""
        # Cleaned up, `x , y` would be `x, y`.
        end = {*self.eos_ids}
        return str(self.tokenizer.decode([*takewhile(lambda i: i not in end, ids)], clean_up_tokenization_spaces=False))

    def token_of(self, ids: Sequence[int], end: int) -> int:
        """The place in `ids` of the token that completes the first `end` characters of their text.

        A character may take several tokens, and a token may write several characters: so it is the first token up to
        which the ids already read as the text does up to there.
        """
        text = self.decode(ids)[:end]
        return bisect_left(range(len(ids)), True, key=lambda i: self.decode(ids[: i + 1]).startswith(text))


AnyVocabulary = Vocabulary | TokenizerVocabulary


def _on_two_lines(system: str, text: str) -> str:
    return f"{system}\n{text}" if system else text
