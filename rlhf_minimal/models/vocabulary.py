"""Text to token ids and back: one id per character, or a real model's tokenizer behind the same four names."""

from collections.abc import Iterable
from typing import Any


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

    def decode(self, ids: Iterable[int]) -> str:
        """The text before the first end-of-answer token."""
        text = []
        for i in ids:
            if i == self.eos_id:
                break
            text.append(self.alphabet[i - 1])
        return "".join(text)


class TokenizerVocabulary:
    """A Hugging Face tokenizer behind `Vocabulary`'s names, so that the same loop trains a real model.

    Args:
        tokenizer: Any transformers tokenizer with an end-of-sequence token.

    Raises:
        ValueError: If the tokenizer has no end-of-sequence token: no answer could ever end.
    """

    def __init__(self, tokenizer: Any):
        if tokenizer.eos_token_id is None:
            raise ValueError("this tokenizer has no end-of-sequence token, so no answer could end; set eos_token")
        self.tokenizer = tokenizer
        self.eos_id = int(tokenizer.eos_token_id)
        self.pad_id = self.eos_id if tokenizer.pad_token_id is None else int(tokenizer.pad_token_id)

    def __len__(self) -> int:
        return len(self.tokenizer)

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without special tokens."""
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def decode(self, ids: Iterable[int]) -> str:
        """The text before the first end-of-sequence token."""
        ids = list(ids)
        if self.eos_id in ids:
            ids = ids[: ids.index(self.eos_id)]
        return str(self.tokenizer.decode(ids))
