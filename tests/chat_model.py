"""A tiny model with the tokenizer, special tokens and chat template of a large one."""

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def tokenizer(template=TEMPLATE, **options):
    """Byte-pair encoding, learnt on a few lines: as a real one, but for its size."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator(
        ["What is 12 + 30 =", "user assistant system", "Answer with the number only."],
        trainers.BpeTrainer(vocab_size=320, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False),
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|im_end|>", pad_token="<|im_end|>", chat_template=template, **options
    )


def write_chat_model(place):
    """A model of transformers as one finds it: a folder with a tokenizer and a chat template."""
    own = tokenizer()
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "max_position_embeddings": 128}
    config = LlamaConfig(vocab_size=len(own), num_attention_heads=2, num_key_value_heads=1, **sizes)
    LlamaForCausalLM(config).save_pretrained(place)
    own.save_pretrained(place)
    return place
