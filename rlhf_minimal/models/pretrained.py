"""Real models, by hub name or local folder."""

from typing import Any

from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from rlhf_minimal.models.folder import is_out_of_memory
from rlhf_minimal.models.vocabulary import TokenizerVocabulary


def load_pretrained(name: str, **options: Any) -> tuple[PreTrainedModel, TokenizerVocabulary]:
    """A causal language model and its tokenizer, ready for the same loop as the tiny ones.

    Nothing that a model brings along is executed: weights are read from safetensors (or GGUF) files, never from
    pickles, and a model that needs code of its own is refused.

    Weights are loaded in float32 unless `options` say otherwise: AdamW's small steps vanish when they are added to
    bfloat16 weights.

    Args:
        name: A hub name such as `"HuggingFaceTB/SmolLM2-135M-Instruct"`, or a folder.
        **options: Passed on to both `from_pretrained` calls, for example `gguf_file="model.gguf"`.

    Returns:
        The model in evaluation mode and its tokenizer behind `Vocabulary`'s names.

    Raises:
        ValueError: If transformers cannot load it; the message names the model and repeats the first line of why. If
            `trust_remote_code` is asked for.
    """
    if options.pop("trust_remote_code", False):
        raise ValueError(
            f"cannot load the model {name!r} with trust_remote_code: code that a model brings along is never run"
        )
    dtype = options.pop("dtype", "float32")
    try:
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False, **options)
        safe = {} if "gguf_file" in options else {"use_safetensors": True}
        model = AutoModelForCausalLM.from_pretrained(name, dtype=dtype, trust_remote_code=False, **safe, **options)
    except Exception as error:  # transformers may raise anything over a hostile folder
        if is_out_of_memory(error):
            raise
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(f"cannot load the model {name!r}: {reason}") from error
    return model.eval(), TokenizerVocabulary(tokenizer)
