"""Real models, by hub name or local folder."""

from typing import Any

from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from rlhf_minimal.models.vocabulary import TokenizerVocabulary


def load_pretrained(name: str, **options: Any) -> tuple[PreTrainedModel, TokenizerVocabulary]:
    """A causal language model and its tokenizer, ready for the same loop as the tiny ones.

    Weights are loaded in float32 unless `options` say otherwise: AdamW's small steps vanish when they are added to
    bfloat16 weights.

    Args:
        name: A hub name such as `"HuggingFaceTB/SmolLM2-135M-Instruct"`, or a folder.
        **options: Passed on to both `from_pretrained` calls, for example `gguf_file="model.gguf"`.

    Returns:
        The model in evaluation mode and its tokenizer behind `Vocabulary`'s names.

    Raises:
        ValueError: If transformers cannot load it; the message names the model and repeats the first line of why.
    """
    dtype = options.pop("dtype", "float32")
    try:
        tokenizer = AutoTokenizer.from_pretrained(name, **options)
        model = AutoModelForCausalLM.from_pretrained(name, dtype=dtype, **options)
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ValueError(f"cannot load the model {name!r}: {reason}") from error
    return model.eval(), TokenizerVocabulary(tokenizer)
