"""A model's folder: how it is found, and the vocabulary in it.

    config.json  model.safetensors                the model; transformers' `from_pretrained` reads it
    tokenizer.json  tokenizer_config.json         its tokenizer; `AutoTokenizer.from_pretrained` reads it
    vocabulary.json                               a character vocabulary's alphabet; else, whether prompts are chats
    steps.json                                    where the model scores steps (`lab.process_reward`): what kind it is

Policies and reward models are saved in the same way.
"""

import json
from collections.abc import Callable
from pathlib import Path

import torch
from transformers import AutoTokenizer, PreTrainedModel

from rlhf_minimal.models.vocabulary import AnyVocabulary, TokenizerVocabulary, Vocabulary, character_tokenizer
from rlhf_minimal.models.weights import know_tokens

OF_STEPS = "steps.json"  # a step scorer's folder has this file, and no other has it


def find_checkpoint(folder: str | Path, *, of_steps: bool | None = None) -> Path:
    """The checkpoint folder that a path means: the folder itself, or `checkpoint/` in a run folder.

    Args:
        folder: The path.
        of_steps: Whether it has to be a step scorer's; None if it does not matter.

    Raises:
        ValueError: If there is none; if it is a step scorer's and must not be one, or the other way round.
    """
    folder = Path(folder)
    for candidate in (folder / "checkpoint", folder):
        # A new checkpoint replaces the old one by two renames. If the process is killed between them, the last good
        # checkpoint has the name that `spare` gives.
        for place in (candidate, spare(candidate)):
            if (place / "config.json").exists() and (place / "model.safetensors").exists():
                if of_steps is not None and of_steps != (place / OF_STEPS).exists():
                    make = "no step scorer: make one with `python -m rlhf_minimal reward --label-steps program`"
                    use = "a step scorer: that is for --step-reward and --scorer"
                    raise ValueError(f"{folder} holds {make if of_steps else use}")
                return place
    raise ValueError(f"no checkpoint in {folder}: expected config.json and model.safetensors there")


def spare(folder: Path) -> Path:
    """The name of the old checkpoint while a new one takes its place."""
    return folder.with_name(folder.name + ".old")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out. Python and CUDA have a class for this error; torch on the CPU only has a message."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    )


def damaged(folder: Path, reason: object) -> str:
    """One line about a checkpoint that cannot be read."""
    if isinstance(reason, KeyError):
        reason = f"{reason} is missing"
    first_line = (str(reason).strip() or type(reason).__name__).splitlines()[0]
    return f"cannot read the checkpoint in {folder}: {first_line}"


def save_vocabulary(folder: Path, vocabulary: AnyVocabulary) -> None:
    """Writes a vocabulary's files into an existing folder, a character vocabulary as a tokenizer too."""
    if isinstance(vocabulary, Vocabulary):
        (folder / "vocabulary.json").write_text(json.dumps({"alphabet": vocabulary.alphabet}) + "\n", encoding="utf-8")
        character_tokenizer(vocabulary.alphabet).save_pretrained(folder, save_jinja_files=False)
    else:
        (folder / "vocabulary.json").write_text(json.dumps({"chat": vocabulary.chat}) + "\n", encoding="utf-8")
        vocabulary.tokenizer.save_pretrained(folder)


def load_vocabulary(folder: Path) -> AnyVocabulary:
    """Reads a vocabulary that `save_vocabulary` wrote.

    Raises:
        OSError, ValueError, KeyError, TypeError: If its files are missing or damaged.
    """
    chat = None
    if (folder / "vocabulary.json").exists():
        own = json.loads((folder / "vocabulary.json").read_text(encoding="utf-8"))
        if "chat" not in own:
            return Vocabulary(own["alphabet"])
        chat = own["chat"]
        if not isinstance(chat, bool):
            raise ValueError(f"chat in vocabulary.json is {chat!r}, and should be true or false")
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    return TokenizerVocabulary(tokenizer, chat=chat)


def load_model(
    read: Callable[[Path], PreTrainedModel], folder: str | Path, *, of_steps: bool
) -> tuple[PreTrainedModel, Vocabulary | TokenizerVocabulary]:
    """A model and its vocabulary from the checkpoint in a folder.

    Args:
        read: Reads config and weights; is given the checkpoint's folder, and may raise any error.
        folder: A checkpoint folder, or a run folder that holds one under `checkpoint/`.
        of_steps: Whether it has to be a step scorer's.

    Raises:
        ValueError: If it is missing or damaged; the message says in one line which file and why.
    """
    folder = find_checkpoint(folder, of_steps=of_steps)
    try:
        model = read(folder)
        vocabulary = load_vocabulary(folder)
        know_tokens(model, vocabulary)
    except Exception as error:  # four libraries read these files; for a malicious file they may raise any error
        if is_out_of_memory(error):
            raise
        raise ValueError(damaged(folder, error)) from error
    model.config.return_dict = True  # a config may have False, but this library reads outputs by their names
    return model.eval(), vocabulary
