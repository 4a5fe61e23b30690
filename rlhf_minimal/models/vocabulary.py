"""Text to token ids and back: one id per character, or a real model's tokenizer behind the same four names."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

END = "<|end|>"  # how the end-of-answer token is written where it has to be written

# A chat as plain text: what was said, in order, and nothing between. A small alphabet has no words for "user" and
# "assistant", so who speaks has to be clear from the text itself (a question mark, a colon).
MINIMAL_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"

Message = Mapping[str, Any]  # {"role": "user", "content": "..."}


class Vocabulary:
    """One token per character, plus one special token: the end of the answer.

    Id 0 ends an answer and also fills the rectangle behind it. The two may share an id because nothing in this
    library asks `ids != pad`: masks are made from lengths, with the first end-of-answer token included.

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
            raise ValueError(f"an alphabet needs at least one character and each only once; got {alphabet!r}")
        self.alphabet = alphabet
        self.eos_id = 0
        self.pad_id = 0
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

    def render(self, messages: Sequence[Message], *, ask: bool) -> str:
        """A conversation as text: what was said, in order, and nothing between (`MINIMAL_TEMPLATE`)."""
        return "".join(message["content"] for message in messages)

    def encode_prompt(self, text: str, *, system: str = "") -> list[int]:
        """The ids of what a problem's prompt becomes before an answer is written; here, of the prompt itself.

        Args:
            text: The prompt.
            system: What is said before it, on a line of its own.
        """
        return self.encode(_on_two_lines(system, text))

    def decode(self, ids: Iterable[int]) -> str:
        """The text before the first end-of-answer token."""
        text = []
        for i in ids:
            if i == self.eos_id:
                break
            text.append(self.alphabet[i - 1])
        return "".join(text)


def character_tokenizer(alphabet: str) -> PreTrainedTokenizerFast:
    """A `Vocabulary` as a real tokenizer of the `tokenizers` library, with the same ids.

    It is saved beside every model with a character vocabulary, so that `AutoTokenizer.from_pretrained` reads the
    folder and any tool that speaks to tokenizers can use the model. Its chat template is `MINIMAL_TEMPLATE`.

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
    """A Hugging Face tokenizer behind `Vocabulary`'s names, so that the same loop trains a real model.

    Args:
        tokenizer: Any transformers tokenizer with an end-of-sequence token.
        chat: Whether prompts and conversations are written with the tokenizer's chat template; None (the default)
            does so where it has one. A model that was trained on conversations answers a bare prompt by going on
            with it; a base model has no template.

    Raises:
        ValueError: If the tokenizer has no end-of-sequence token: no answer could ever end. If a chat template is
            asked for and there is none.

    Example:
        >>> vocabulary = TokenizerVocabulary(character_tokenizer("0123456789+="))
        >>> vocabulary.encode_prompt("1+2=")
        [2, 11, 3, 12]
    """

    def __init__(self, tokenizer: Any, *, chat: bool | None = None):
        if tokenizer.eos_token_id is None:
            raise ValueError("this tokenizer has no end-of-sequence token, so no answer could end; set eos_token")
        if chat and not tokenizer.chat_template:
            raise ValueError("this tokenizer has no chat template: leave chat away, or take an instruction-tuned model")
        self.tokenizer = tokenizer
        self.chat = bool(tokenizer.chat_template) if chat is None else chat
        self.eos_id = int(tokenizer.eos_token_id)
        self.pad_id = self.eos_id if tokenizer.pad_token_id is None else int(tokenizer.pad_token_id)
        self.known: int | None = None  # tokens that the model knows, where one has been loaded (`weights.know_tokens`)

    def __len__(self) -> int:
        return len(self.tokenizer)

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without special tokens; text that the tokenizer cannot write is a ValueError."""
        try:
            ids = list(self.tokenizer.encode(text, add_special_tokens=False))
        except Exception as error:  # `tokenizers` raises no narrower class
            raise ValueError(f"this model's tokenizer cannot write {text!r}: {error}") from error
        if self.known is not None and max(ids, default=0) >= self.known:
            token = self.tokenizer.convert_ids_to_tokens(max(ids))
            raise ValueError(
                f"the tokenizer writes {token!r} as token {max(ids)}, and the model knows {self.known} only; take it "
                f"out of {text!r}"
            )
        return ids

    def render(self, messages: Sequence[Message], *, ask: bool) -> str:
        """A conversation as text, by the chat template, or, without one, contents one after the other.

        Args:
            messages: Each with a `role` and a `content`.
            ask: Whether it is now the assistant's turn, which the template may open.

        Raises:
            ValueError: If the template refuses the conversation.
        """
        if not self.chat:
            return "".join(message["content"] for message in messages)
        try:
            return str(self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=ask))
        except Exception as error:  # a template is a program of its own and may raise anything
            raise ValueError(f"the tokenizer's chat template refuses this conversation: {error}") from error

    def encode_prompt(self, text: str, *, system: str = "") -> list[int]:
        """The ids of what a problem's prompt becomes before an answer is written.

        With a chat template: the user's turn, after a system message if one is given, and the opening of the
        assistant's. Without: the text, after the token that begins every text if this tokenizer writes one.

        Args:
            text: The prompt.
            system: The system message; without a chat template, a line before the prompt.
        """
        if self.chat:  # the template writes a beginning-of-text token itself, if the model wants one
            said = [{"role": "system", "content": system}] if system else []
            return self.encode(self.render([*said, {"role": "user", "content": text}], ask=True))
        return self._begin() + self.encode(_on_two_lines(system, text))

    def _begin(self) -> list[int]:
        begin = self.tokenizer.bos_token_id
        return [begin] if begin is not None and self.tokenizer.encode("a")[:1] == [begin] else []

    def decode(self, ids: Iterable[int]) -> str:
        """The text before the first end-of-sequence token."""
        ids = list(ids)
        if self.eos_id in ids:
            ids = ids[: ids.index(self.eos_id)]
        return str(self.tokenizer.decode(ids))


def check_same_vocabulary(
    policy: Vocabulary | TokenizerVocabulary, other: Vocabulary | TokenizerVocabulary, what: str = "reward model"
) -> None:
    """Refuses two models that do not read the same tokens.

    Args:
        policy: The policy's vocabulary.
        other: The other model's.
        what: What the other model is called in the message.

    Raises:
        ValueError: If a token of one is missing in the other or has another id.

    Example:
        >>> check_same_vocabulary(Vocabulary("abc"), TokenizerVocabulary(character_tokenizer("abc")))
    """
    own, its = _ids(policy), _ids(other)
    if own == its:
        return
    apart = sorted(token for token in own.keys() | its.keys() if own.get(token) != its.get(token))
    shown = ", ".join(map(repr, apart[:5])) + (", ..." if len(apart) > 5 else "")
    raise ValueError(
        f"the {what} has another vocabulary than the policy ({len(its)} tokens, not {len(own)}; they differ in "
        f"{shown}): train it from this policy or from its own start"
    )


def _on_two_lines(system: str, text: str) -> str:
    return f"{system}\n{text}" if system else text


def _ids(vocabulary: Vocabulary | TokenizerVocabulary) -> dict[str, int]:
    if isinstance(vocabulary, TokenizerVocabulary):
        return dict(vocabulary.tokenizer.get_vocab())
    return {END: 0} | {character: i for i, character in enumerate(vocabulary.alphabet, start=1)}
