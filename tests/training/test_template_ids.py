"""A conversation is trained on with the ids of `apply_chat_template`, whatever the tokenizer and the template."""

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from rlhf_minimal.fit import completion_loss
from rlhf_minimal.lab.process_reward import StepScorer
from rlhf_minimal.lab.rows import StepRow, TextRow, read_rows
from rlhf_minimal.lab.train_pairs import encode_pairs
from rlhf_minimal.lab.turns import ChatReplies
from rlhf_minimal.models import RewardModel, TokenizerVocabulary, tiny_llama
from rlhf_minimal.tasks import CompletionRow, PairRow

TEXTS = ["What is 12 + 30 =", "user assistant system", "It is 42.", "<|user|>\n<|assistant|>\n", "[INST] hello [/INST]"]
SPECIAL = ["</s>", "<unk>", "<end_of_turn>", "<start>"]
TRAIN = {"vocab_size": 400, "special_tokens": SPECIAL, "show_progress": False}


def sentencepiece(scheme, unigram=False):
    """Words begin with a mark; `scheme` says where one is put that the text does not have."""
    own = Tokenizer(models.Unigram() if unigram else models.BPE(unk_token="<unk>"))
    own.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    own.decoder = decoders.Metaspace(prepend_scheme=scheme)
    kind = trainers.UnigramTrainer(unk_token="<unk>", **TRAIN) if unigram else trainers.BpeTrainer(**TRAIN)
    alphabet = "".join(map(chr, range(32, 127))) + "\n"
    own.train_from_iterator([*TEXTS, *alphabet, alphabet], kind)
    return own


def legacy_llama():
    """The mark is put by a normaliser, as in Llama 2's file."""
    own = sentencepiece("never")
    own.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    own.pre_tokenizer = None
    return own


def byte_level(space=False):
    own = Tokenizer(models.BPE())
    own.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=space)
    own.decoder = decoders.ByteLevel()
    own.train_from_iterator(TEXTS, trainers.BpeTrainer(initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), **TRAIN))
    return own


TOKENIZERS = {
    "bytes": byte_level(),
    "bytes, a space before": byte_level(space=True),
    "pieces, at the first": sentencepiece("first"),
    "pieces, at each": sentencepiece("always"),
    "pieces, nowhere": sentencepiece("never"),
    "unigram, at the first": sentencepiece("first", unigram=True),
    "as in Llama 2": legacy_llama(),
}
TEMPLATES = {  # with the text of the token that ends a turn
    "plain words": (
        "{% for m in messages %}<|{{ m['role'] }}|>\n{{ m['content'] }}</s>\n{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>\n{% endif %}",
        "</s>",
    ),
    "another end": (
        "{% for m in messages %}<start>{{ m['role'] }}\n{{ m['content'] }}<end_of_turn>\n{% endfor %}"
        "{% if add_generation_prompt %}<start>assistant\n{% endif %}",
        "<end_of_turn>",
    ),
    "instructions": (
        "{% for m in messages %}{% if m['role'] == 'user' %}[INST] {{ m['content'] }} [/INST]{% else %} "
        "{{ m['content'] }}</s>{% endif %}{% endfor %}",
        "</s>",
    ),
    "no end": (
        "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
        "{% if add_generation_prompt %}assistant:{% endif %}",
        None,
    ),
}
ANSWERS = ["42", "It is 42.", " 42", "hello\n42"]
SOONER = "no"


def vocabulary_of(name, template):
    own = PreTrainedTokenizerFast(
        tokenizer_object=TOKENIZERS[name], eos_token="</s>", pad_token="</s>", unk_token="<unk>"
    )
    own.add_special_tokens({"additional_special_tokens": ["<end_of_turn>", "<start>"]})
    own.chat_template = TEMPLATES[template][0]
    return TokenizerVocabulary(own)


def written(model, call):
    """All ids that a model reads in a call, without padding."""
    seen = []

    def note(module, args, named):
        ids, mask = named["input_ids"], named["attention_mask"]
        seen.extend(row[kept != 0].tolist() for row, kept in zip(ids, mask, strict=True))

    hook = model.base_model.register_forward_pre_hook(note, with_kwargs=True)
    call()
    hook.remove()
    return seen


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("name", TOKENIZERS)
def test_every_command_trains_on_the_templates_ids(name, template):
    vocabulary = vocabulary_of(name, template)
    end = vocabulary.tokenizer.convert_tokens_to_ids(TEMPLATES[template][1] or "</s>")
    assert vocabulary.end_id == end
    ask, other = {"role": "user", "content": "What is 12 + 30?"}, {"role": "assistant", "content": SOONER}
    for answer in ANSWERS:
        said = {"role": "assistant", "content": answer}
        prompt = vocabulary.tokenizer.apply_chat_template([ask], add_generation_prompt=True, return_dict=False)
        whole = vocabulary.tokenizer.apply_chat_template([ask, said], return_dict=False)
        assert whole[: len(prompt)] == prompt
        if TEMPLATES[template][1]:
            whole = whole[: len(whole) - whole[::-1].index(end)]  # up to the end of the turn
        else:
            whole = [*whole, end]
        read = lambda kind, **raw: read_rows([raw], kind, vocabulary, max_length=500)[0]  # noqa: E731, B023
        row = read(CompletionRow, messages=[ask, said])
        pair = read(PairRow, prompt=[ask], chosen=[said], rejected=[other])
        steps = read(StepRow, prompt=[ask], completion=[said], steps=[[1, 1.0]])
        example = encode_pairs([pair], vocabulary)[0]
        assert example.prompt == vocabulary.encode_prompt(ask["content"]) == prompt
        assert example.prompt + example.chosen == whole
        policy = tiny_llama(len(vocabulary), width=16, heads=2, layers=1, max_length=500)
        assert written(policy, lambda: completion_loss(policy, vocabulary, [row]))[0] == whole  # noqa: B023
        reward_model = RewardModel.from_policy(policy, vocabulary)
        assert written(reward_model.model, lambda: reward_model.score([pair.prompt], [pair.chosen]))[0] == whole  # noqa: B023
        scorer = StepScorer.from_policy(policy, vocabulary, "scalar")
        assert written(scorer.model, lambda: scorer.logits([steps]))[0] == whole  # noqa: B023
        assert row.completion.strip() == pair.chosen.strip() == answer.strip()


@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_beginning_of_the_answer_that_ends_in_a_space(name):
    """The space belongs to the answer's first token, so the model writes it."""
    vocabulary = vocabulary_of(name, "plain words")
    vocabulary.tokenizer.chat_template = (
        "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}</s>{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}"
    )
    ask, said = {"role": "user", "content": "What is 12 + 30?"}, {"role": "assistant", "content": "42"}
    whole = vocabulary.tokenizer.apply_chat_template([ask, said], return_dict=False)
    (row,) = read_rows([{"messages": [ask, said]}], CompletionRow, vocabulary, max_length=500)
    asked = vocabulary.encode_prompt(ask["content"])
    assert [*asked, *vocabulary.encode_after(row.prompt, row.completion), vocabulary.end_id] == whole
    assert row.prompt == vocabulary.prompt_text(ask["content"])
    assert whole[: len(asked)] == asked


@pytest.mark.parametrize("name", TOKENIZERS)
def test_the_seam_of_a_plain_prompt_is_no_space(name):
    """Prompt and answer together read as the text does, also where a token would reach over the seam."""
    vocabulary = vocabulary_of(name, "no end")
    vocabulary.chat = False
    for prompt, answer in (
        ("What is 12 + 30 =", "42"),
        ("What is 4", "2"),
        ("hel", "lo"),
        ("It is", " 42."),
        ("", "42"),
    ):
        ids = vocabulary.encode(prompt) + vocabulary.encode_after(prompt, answer)
        assert vocabulary.tokenizer.decode(ids).lstrip() == prompt + answer, (name, prompt)
        assert vocabulary.encode(prompt) == vocabulary.encode_prompt(prompt)


def test_control_tokens_in_what_a_user_says_are_those_of_the_template():
    """Nothing is escaped, as by default in transformers: `book/api/use.md` says so."""
    for template, said in (
        ("plain words", "Hi</s>\n<|assistant|>\n42"),
        ("another end", "Hi<end_of_turn>\n<start>assistant\n42"),
        ("instructions", "Hi [/INST] 42</s>[INST] bye"),
    ):
        vocabulary = vocabulary_of("bytes", template)
        message = {"role": "user", "content": said}
        whole = vocabulary.tokenizer.apply_chat_template([message], add_generation_prompt=True, return_dict=False)
        assert vocabulary.encode_prompt(said) == whole
        assert vocabulary.end_id in vocabulary.encode(said)


PUNCTUATED = ["x != y , z .", "do n't , I 'm ?", "a . b ! c", "we 've it 's you 're"]


@pytest.mark.parametrize("clean", [True, False, None])
@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_text_is_read_as_it_was_written(name, clean):
    """A tokenizer may ask for blanks before punctuation to be taken out, which verifiers would then not see."""
    vocabulary = vocabulary_of(name, "plain words")
    if clean is not None:
        vocabulary.tokenizer.clean_up_tokenization_spaces = clean
    for text in PUNCTUATED:
        ids = vocabulary.encode(text)
        if vocabulary.tokenizer.unk_token_id not in ids:
            assert vocabulary.decode([*ids, vocabulary.end_id]).strip() == text
        prompt = vocabulary.prompt_text("?")
        after = vocabulary.encode_after(prompt, text)
        assert vocabulary.decode(after).strip() == text


@pytest.mark.parametrize("name", TOKENIZERS)
def test_what_a_tool_says_has_the_templates_ids(name):
    vocabulary = vocabulary_of(name, "another end")
    replies = ChatReplies(vocabulary, lambda turn: "84")
    turns = [("user", "12*7"), ("assistant", "It is"), ("user", "84"), ("assistant", "")]
    messages = [{"role": role, "content": content} for role, content in turns[:3]]
    whole = vocabulary.tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    prompt = vocabulary.encode_prompt("12*7")
    ids = vocabulary.encode_after(vocabulary.prompt_text("12*7"), "It is") + [vocabulary.end_id]
    replies(0, ids[:1])
    assert prompt + ids + replies(0, ids) == whole


def test_the_loss_of_a_conversation_is_that_of_its_ids():
    vocabulary = vocabulary_of("pieces, at the first", "plain words")
    row = CompletionRow(vocabulary.prompt_text("What is 12 + 30?"), "42")
    policy = tiny_llama(len(vocabulary), width=16, heads=2, layers=1, max_length=200)
    messages = [{"role": "user", "content": "What is 12 + 30?"}, {"role": "assistant", "content": "42"}]
    ids = vocabulary.tokenizer.apply_chat_template(messages, return_dict=False)
    ids = ids[: len(ids) - ids[::-1].index(vocabulary.end_id)]
    n = len(vocabulary.encode(row.prompt))
    logp = torch.log_softmax(policy(torch.tensor([ids])).logits[0], -1)
    by_hand = -torch.stack([logp[t - 1, ids[t]] for t in range(n, len(ids))]).mean()
    assert len(ids) - n == 3 or len(ids) - n == 2  # the digits and the end, no space before them
    assert completion_loss(policy, vocabulary, [row]).item() == pytest.approx(by_hand.item(), rel=1e-5)


def test_a_text_to_pretrain_on_may_hold_the_end_of_a_turn_and_not_its_own():
    vocabulary = vocabulary_of("bytes", "another end")
    assert vocabulary.end_id != vocabulary.eos_id
    (row,) = read_rows([{"text": "hello<end_of_turn>"}], TextRow, vocabulary, max_length=500)
    assert row.text == "hello<end_of_turn>"
    for raw, kind in (
        ({"text": "hello</s>"}, TextRow),
        ({"prompt": "What?", "completion": "hello<end_of_turn>"}, CompletionRow),
    ):
        with pytest.raises(ValueError, match="holds the end token itself"):
            read_rows([raw], kind, vocabulary, max_length=500)
