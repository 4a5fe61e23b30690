"""Which weights a folder may hold: those of the model in its config, all of them, as floating numbers, in safetensors.

transformers gives a weight that it does not find a random value, leaves out one that it does not know, and says so in
a warning. A model like that writes rubbish, and nothing later would say why. So whatever does not fit is refused, by
name.
"""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import safe_open
from torch import nn
from transformers import AutoConfig, PreTrainedModel
from transformers.utils import cached_file

from rlhf_minimal.models.vocabulary import TokenizerVocabulary, Vocabulary

# What `from_pretrained` is told so that the folder is searched in the way that it searches.
_WHERE = ("cache_dir", "revision", "subfolder", "token", "local_files_only")


def check_place(place: str | Path, options: Mapping[str, Any] | None = None) -> None:
    """Refuses a folder or a hub's repository before anything of its weights is read.

    An index of weights is a list of file names that the folder's author wrote, and `from_pretrained` opens whatever
    stands there: a pickle if the name does not end in `.safetensors`, a file elsewhere if the name leads out of the
    folder.

    Args:
        place: A folder, or a name on a hub.
        options: Those of `from_pretrained`.

    Raises:
        ValueError: If it holds an adapter of PEFT, or names weights that are no safetensors file of its own.
        OSError: If there is no such place.
    """
    options = options or {}
    if _find(place, "adapter_config.json", options):
        raise ValueError(
            "it holds an adapter of PEFT, not a whole model: load it with peft, merge it into its model "
            "(merge_and_unload), save that, and name the folder"
        )
    for name in [] if "gguf_file" in options else _candidates(place, options):
        if not name.endswith(".index.json"):
            _check_name(name, "config.json")
        elif path := _find(place, name, options):
            for file in set(_weight_map(path).values()):
                _check_name(file, name)


def check_loaded(model: PreTrainedModel, found: Mapping[str, Any]) -> None:
    """Refuses a model of which a weight is missing, unknown, or of another shape than its file has it.

    Args:
        model: As `from_pretrained` made it. Tied weights, of which a file holds one, and buffers that are computed are
            not missing.
        found: Its loading info.

    Raises:
        ValueError: With the names.
    """
    shapes = [f"{name} ({_by(of)}, not {_by(wanted)})" for name, of, wanted in found["mismatched_keys"]]
    _check(model, found["missing_keys"], found["unexpected_keys"], shapes)


def check_numbers(model: PreTrainedModel, place: str | Path, options: Mapping[str, Any] | None = None) -> None:
    """Refuses weights that are kept as integers or truth values: read as floats they would be something else.

    Args:
        model: The loaded model.
        place: Where its weights lie.
        options: Those of `from_pretrained`.

    Raises:
        ValueError: With the names.
    """
    options = {**(options or {}), "local_files_only": True}  # what has just been loaded is here
    if "gguf_file" in options:
        return  # quantised numbers, which were multiplied out
    for name in _candidates(place, options):
        path = _find(place, name, options)
        if path is None:
            continue
        parts = sorted(set(_weight_map(path).values())) if name.endswith(".index.json") else [name]
        for part in parts:
            if file := _find(place, part, options):
                _check_floating(model, file)
        return


def load_weights(model: PreTrainedModel, file: Path) -> None:
    """Reads one safetensors file into a model, strictly.

    Raises:
        ValueError: If a weight is missing, unknown, of another shape or no floating number; with the names.
        OSError: If the file cannot be read; safetensors raises an error of its own if it is damaged.
    """
    own = [(name, list(tensor.shape)) for name, tensor in model.state_dict().items()]
    with safe_open(file, framework="pt") as tensors:
        stored = {name: tensors.get_slice(name).get_shape() for name in tensors.keys()}  # noqa: SIM118  (no dict)
    others = [(name, stored.get(name, shape), shape) for name, shape in own]
    shapes = [f"{name} ({_by(other)}, not {_by(shape)})" for name, other, shape in others if other != shape]
    _check(model, (), (), shapes)
    _check_floating(model, file)
    missing, unexpected = safetensors.torch.load_model(model, str(file), strict=False)
    _check(model, missing, unexpected, ())


def check_reads_forward(model: PreTrainedModel) -> None:
    """Refuses an encoder: it sees the tokens that it should predict.

    Raises:
        ValueError: If the model is one.
    """
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

    config = model.config.get_text_config()
    if config.model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES and not getattr(config, "is_decoder", False):
        raise ValueError(f"{type(model).__name__} is an encoder, which sees what follows; take a causal language model")


def know_tokens(model: PreTrainedModel, vocabulary: Vocabulary | TokenizerVocabulary) -> None:
    """Tells a tokenizer how many tokens its model knows, so that it refuses a text that needs another one.

    Raises:
        ValueError: If the end token or the padding is none of them.
    """
    embedding = model.get_input_embeddings()
    if not isinstance(vocabulary, TokenizerVocabulary) or not isinstance(embedding, nn.Embedding):
        return
    vocabulary.known = embedding.num_embeddings
    for name, token in (("end", vocabulary.eos_id), ("padding", vocabulary.pad_id)):
        if not 0 <= token < vocabulary.known:
            raise ValueError(f"the tokenizer's {name} token has the id {token}, and the model knows {vocabulary.known}")


def _check(model: PreTrainedModel, missing: Iterable[str], unexpected: Iterable[str], shapes: Iterable[str]) -> None:
    wrong = (("missing", missing), ("not of this model", unexpected), ("of another shape", shapes))
    said = [f"{what}: {in_short(names)}" for what, names in wrong if names]
    if said:
        raise ValueError(f"its weights are not those of a {type(model).__name__} of its config ({'; '.join(said)})")


def in_short(names: Iterable[str], most: int = 4) -> str:
    """The first few names, and how many there are."""
    names = sorted(names)
    return ", ".join(names[:most]) + (f", ... ({len(names)} in all)" if len(names) > most else "")


def _by(shape: Iterable[int]) -> str:
    return " x ".join(map(str, shape)) or "one number"


def _check_floating(model: PreTrainedModel, file: str | Path) -> None:
    parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}

    def is_parameter(name: str) -> bool:  # a file may leave out, or add, the name of the body
        tail = f".{name}"
        return name in parameters or any(p.endswith(tail) or name.endswith(f".{p}") for p in parameters)

    with safe_open(file, framework="pt") as tensors:
        kinds = {name: tensors.get_slice(name).get_dtype() for name in tensors.keys()}  # noqa: SIM118  (no dict)
    # buffers may be integers: masks, positions
    wrong = [f"{name} ({kind})" for name, kind in kinds.items() if not re.match("B?F", kind) and is_parameter(name)]
    if wrong:
        raise ValueError(f"some of its weights are no floating numbers: {in_short(wrong)}")


def _candidates(place: str | Path, options: Mapping[str, Any]) -> list[str]:
    """The files in which transformers looks for the names of weights, in its order."""
    config = AutoConfig.from_pretrained(
        place, trust_remote_code=False, **{name: value for name, value in options.items() if name in _WHERE}
    )
    named = getattr(config, "transformers_weights", None)  # a config may name the file itself
    if named is not None:
        return [str(named)]
    variant = f".{options['variant']}" if options.get("variant") else ""
    return [f"model{variant}.safetensors", f"model.safetensors.index{variant}.json"]


def _find(place: str | Path, name: str, options: Mapping[str, Any]) -> str | None:
    """Where a file of the place lies on this machine; None if there is none."""
    where = {key: value for key, value in options.items() if key in _WHERE}
    found: str | None = cached_file(
        str(place),
        name,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_gated_repo=False,
        _raise_exceptions_for_connection_errors=False,
        **where,
    )
    return found


def _weight_map(path: str) -> dict[str, str]:
    index = json.loads(Path(path).read_text(encoding="utf-8"))
    files = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(files, dict) or not all(isinstance(file, str) for file in files.values()):
        raise ValueError(f"{Path(path).name} has no weight_map from names to files")
    return files


def _check_name(file: str, source: str) -> None:
    if not file.endswith((".safetensors", ".safetensors.index.json")) or re.search(r"[/\\\0]", file):
        raise ValueError(
            f"{source} names the file {file!r} for weights: weights are read from .safetensors files of the folder "
            "itself, and never from pickles"
        )
