"""Templates that end every turn but the last, want a system message, or want turns that alternate."""

import pytest

from rlhf_minimal.lab.rows import asked_in, read_rows
from rlhf_minimal.models import TokenizerVocabulary
from rlhf_minimal.tasks import CompletionRow, PairRow
from tests.chat_model import tokenizer

EACH = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}"
BUT_LAST = "{% if not loop.last %}<|im_end|>\n{% endif %}{% endfor %}"
ASK = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
END_AND_ASK = "{% if add_generation_prompt %}<|im_end|>\n<|im_start|>assistant\n{% endif %}"
WANTS = "{% if messages[0]['role'] != 'system' %}{{ raise_exception('no system message') }}{% endif %}"
HAS = "{% if messages[0]['role'] != 'system' %}<|im_start|>system\nYou help.<|im_end|>\n{% endif %}"
ALTERNATES = (
    "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}{% endfor %}"
)
WORDS = (
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}{% if not loop.last %}<|im_end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_end|>assistant: {% endif %}"
)
TEMPLATES = {
    "but the last": EACH + BUT_LAST + END_AND_ASK,
    "but the last, a system message of its own": HAS + EACH + BUT_LAST + END_AND_ASK,
    "but the last, a system message": WANTS + EACH + BUT_LAST + END_AND_ASK,
    "but the last, in words": WORDS,
    "but the last, then a line": EACH
    + "{% if not loop.last or add_generation_prompt %}<|im_end|>{% endif %}\n{% endfor %}"
    + ASK,
    "a system message": WANTS + EACH + "<|im_end|>\n{% endfor %}" + ASK,
    "alternates": ALTERNATES + EACH + "<|im_end|>\n{% endfor %}" + ASK,
}
SYSTEM, USER, YES, NO = (
    {"role": role, "content": content}
    for role, content in (("system", "Be brief."), ("user", "What is 12?"), ("assistant", "42"), ("assistant", "no"))
)


def vocabulary_of(template):
    own = tokenizer(template)
    own.eos_token = own.pad_token = "<|endoftext|>"
    return TokenizerVocabulary(own)


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("messages", [[USER, YES], [SYSTEM, USER, YES], [USER, NO, USER, YES]], ids=len)
def test_the_ids_are_the_templates_and_the_end_of_a_turn_is_learnt(name, messages):
    vocabulary = vocabulary_of(TEMPLATES[name])
    end = vocabulary.tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert vocabulary.end_id == end
    assert end in vocabulary.eos_ids  # sampling stops there
    assert vocabulary.decode([*vocabulary.encode("42"), end, *vocabulary.encode("\n<|im_start|>user")]) == "42"
    try:
        whole = vocabulary.tokenizer.apply_chat_template(messages, return_dict=False)
    except Exception:  # the template's own
        with pytest.raises(
            ValueError, match="row 1: .* refuses this conversation: .*; if it .* system message, .*--sys"
        ):
            read_rows([{"messages": messages}], CompletionRow, vocabulary, max_length=500)
        return
    (row,) = read_rows([{"messages": messages}], CompletionRow, vocabulary, max_length=500)
    (pair,) = read_rows(
        [{"prompt": messages[:-1], "chosen": [YES], "rejected": [NO]}], PairRow, vocabulary, max_length=500
    )
    for text in (row.completion, pair.chosen):
        ids = [*vocabulary.encode_beginning(row.prompt), *vocabulary.encode_after(row.prompt, text), vocabulary.end_id]
        assert ids[: len(whole)] == whole[: len(ids)]
        assert ids[len(whole) :] in ([], [end])
    assert row.asked == tuple(message["content"] for message in messages if message["role"] == "user")


@pytest.mark.parametrize("name", ["but the last, a system message", "a system message"])
def test_a_prompt_without_the_system_message_that_a_template_wants_is_refused_before_training(name):
    vocabulary = vocabulary_of(TEMPLATES[name])
    with pytest.raises(
        ValueError, match="no system message; if it wants a system message, give one, as a message or wi"
    ):
        vocabulary.encode_prompt("What is 12?")
    prompt = vocabulary.prompt_text("What is 12?", system="Be brief.")
    assert asked_in(prompt, vocabulary) == ("What is 12?",)  # and a rendered prompt is known for its question


@pytest.mark.parametrize(
    "template",
    [EACH + "\n{% endfor %}" + ASK, EACH + "{% endfor %}" + ASK, HAS + EACH + "\n{% endfor %}" + ASK],
)
def test_what_begins_the_users_turn_is_no_end(template):
    vocabulary = vocabulary_of(template)
    assert vocabulary.end_id == vocabulary.eos_id
    assert vocabulary.eos_ids == (vocabulary.eos_id,)
