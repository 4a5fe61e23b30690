"""Checks the weights in a folder: exactly those of the model in its config, floating-point, in safetensors files.

For a missing weight, transformers uses a random value; an unknown weight it ignores; it only warns. Such a model writes
nonsense, and no later error would say why. So this module raises an error that names the weights that do not fit.
"""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import safe_open
from torch import nn
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel
from transformers.utils import cached_file

from rlhf_minimal.models.vocabulary import AnyVocabulary, TokenizerVocabulary, Vocabulary

# Options of `from_pretrained` that decide where it looks for files; this module has to look in the same place.
_WHERE = ("cache_dir", "revision", "subfolder", "token", "local_files_only")


def check_place(place: str | Path, options: Mapping[str, Any] | None = None) -> None:
    """Checks the names of weight files in a folder or a hub's repository, before any weight is read.

    An index of weights is a list of file names by the folder's author, and `from_pretrained` opens every file in it: a
    pickle if the name does not end in `.safetensors`, and a file outside of the folder if the name is such a path.

    Args:
        place: A folder, or a name on a hub.
        options: The options of `from_pretrained`.

    Raises:
        ValueError: If it holds an adapter of PEFT, or names a weight file that is not a safetensors file in it.
        OSError: If there is no such place.
    """
    options = options or {}
    if _find(place, "adapter_config.json", options):
        raise ValueError(
            "it holds an adapter of PEFT, not a whole model: load it with peft, merge it into its model "
            "(merge_and_unload), save the result, and give the folder in which it is"
        )
    for name in [] if "gguf_file" in options else _candidates(place, options):
        if not name.endswith(".index.json"):
            _check_name(name, "config.json")
        if path := _find(place, name, options):
            for file in set(_weight_map(path).values()) if name.endswith(".index.json") else ():
                _check_name(file, name)
            check_layers(_config(place, options), path)


def check_layers(config: PreTrainedConfig, file: str | Path) -> None:
    """Refuses a config with more layers than its file, or index, has weights: before a thousand million are made.

    Raises:
        ValueError: With both numbers.
    """
    if str(file).endswith(".index.json"):
        weights = len(_weight_map(str(file)))
    else:
        with safe_open(file, framework="pt") as tensors:
            weights = len(tensors.keys())
    layers = getattr(config.get_text_config(), "num_hidden_layers", 0)
    if layers > max(weights, 1000):  # fewer cost little, and whoever makes them can name what is missing
        raise ValueError(f"its config has {layers} layers, and its file only {weights} weights")


def check_loaded(model: PreTrainedModel, loading_info: Mapping[str, Any]) -> None:
    """Raises an error if a weight of a model is missing, unknown, or has another shape in its file.

    Args:
        model: The model from `from_pretrained`. Tied weights, of which a file holds one, and buffers that are computed
            do not count as missing.
        loading_info: The loading info that `from_pretrained` returns.

    Raises:
        ValueError: With the names.
    """
    mismatched = loading_info["mismatched_keys"]
    shapes = [f"{name} ({_by(stored)}, not {_by(wanted)})" for name, stored, wanted in mismatched]
    _check(model, loading_info["missing_keys"], loading_info["unexpected_keys"], shapes)


def check_numbers(model: PreTrainedModel, place: str | Path, options: Mapping[str, Any] | None = None) -> None:
    """Raises an error if weights are stored as integers or booleans: converted to floats they would be wrong.

    Args:
        model: The loaded model.
        place: The folder or hub name of its weights.
        options: The options of `from_pretrained`.

    Raises:
        ValueError: With the names.
    """
    options = {
        **(options or {}),
        "local_files_only": True,
    }  # the files have just been loaded, so they are on this machine
    if "gguf_file" in options:
        return  # quantised weights, which transformers has converted to floats
    for name in _candidates(place, options):
        path = _find(place, name, options)
        if path is None:
            continue
        shards = sorted(set(_weight_map(path).values())) if name.endswith(".index.json") else [name]
        for shard in shards:
            if file := _find(place, shard, options):
                _check_floating(model, file)
        return


def load_weights(model: PreTrainedModel, file: Path) -> None:
    """Reads one safetensors file into a model, strictly.

    Raises:
        ValueError: If a weight is missing, unknown, of another shape or not floating-point; with the names.
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
    """Raises an error for an encoder, which sees the tokens that it should predict.

    Raises:
        ValueError: If the model is an encoder.
    """
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

    config = model.config.get_text_config()
    if config.model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES and not getattr(config, "is_decoder", False):
        raise ValueError(
            f"{type(model).__name__} is an encoder, which sees later tokens; use a causal language model instead"
        )


def know_tokens(model: PreTrainedModel, vocabulary: AnyVocabulary) -> None:
    """Sets how many tokens a tokenizer's model knows, so that `encode` refuses a text with other tokens.

    Raises:
        ValueError: If a character vocabulary has another size than the model, or the model does not know a tokenizer's
            end token or its padding token.
    """
    if isinstance(vocabulary, Vocabulary) and len(vocabulary) != model.config.vocab_size:
        raise ValueError("vocabulary.json does not belong to this model: their sizes differ")
    embedding = model.get_input_embeddings()
    if not isinstance(vocabulary, TokenizerVocabulary) or not isinstance(embedding, nn.Embedding):
        return
    vocabulary.known = embedding.num_embeddings
    for name, token in (("end", vocabulary.eos_id), ("padding", vocabulary.pad_id)):
        if not 0 <= token < vocabulary.known:
            raise ValueError(f"the tokenizer's {name} token has the id {token}, and the model knows {vocabulary.known}")


def _check(model: PreTrainedModel, missing: Iterable[str], unexpected: Iterable[str], shapes: Iterable[str]) -> None:
    wrong = (("missing", missing), ("not of this model", unexpected), ("of another shape", shapes))
    faults = [f"{what}: {in_short(names)}" for what, names in wrong if names]
    if faults:
        raise ValueError(f"its weights do not fit the {type(model).__name__} in its config ({'; '.join(faults)})")


def in_short(names: Iterable[str], most: int = 4) -> str:
    """The first few names, and the number of all names if there are more."""
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
        raise ValueError(f"some of its weights are not floating-point numbers: {in_short(wrong)}")


def _candidates(place: str | Path, options: Mapping[str, Any]) -> list[str]:
    """The files in which transformers looks for weights or for an index of them, in its order."""
    named = getattr(_config(place, options), "transformers_weights", None)  # a config may name the file itself
    if named is not None:
        return [str(named)]
    variant = f".{options['variant']}" if options.get("variant") else ""
    return [f"model{variant}.safetensors", f"model.safetensors.index{variant}.json"]


def _config(place: str | Path, options: Mapping[str, Any]) -> PreTrainedConfig:
    where = {name: value for name, value in options.items() if name in _WHERE}
    return AutoConfig.from_pretrained(place, trust_remote_code=False, **where)


def _find(place: str | Path, name: str, options: Mapping[str, Any]) -> str | None:
    """The path of a file on this machine; None if the place has no such file."""
    where = {key: value for key, value in options.items() if key in _WHERE}
    path: str | None = cached_file(
        str(place),
        name,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_gated_repo=False,
        _raise_exceptions_for_connection_errors=False,
        **where,
    )
    return path


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
