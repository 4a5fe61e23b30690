"""A completion ends where its model ends it: end tokens of tokenizer, config, generation config and chat template."""

import pytest
import torch

from rlhf_minimal.functional.masked import completion_mask
from rlhf_minimal.lab.sampled_rows import sample_ids
from rlhf_minimal.model_files import first_line
from rlhf_minimal.models import TokenizerVocabulary, Vocabulary, load_policy, load_pretrained, save_policy, tiny_llama
from tests.chat_model import tokenizer

TURN = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}END{% endfor %}"
ENDS = {  # what a template writes behind what the assistant says: the end token that is found
    "<|im_end|>\n": "<|im_end|>",
    "<|im_end|>": "<|im_end|>",
    " <|im_end|><|endoftext|>": "<|im_end|>",  # the first of two, whatever blanks stand before it
    "\n": None,
    "\n\n### ": None,
    "": None,
}


def chat(template=None, eos="<|endoftext|>"):
    own = tokenizer(template)
    own.eos_token = own.pad_token = eos
    return own


@pytest.mark.parametrize("end", ENDS)
def test_a_turn_ends_with_the_templates_own_token(end):
    own = chat(TURN.replace("END", end))
    vocabulary = TokenizerVocabulary(own)
    assert vocabulary.eos_id == own.convert_tokens_to_ids("<|endoftext|>")
    assert vocabulary.end_id == own.convert_tokens_to_ids(ENDS[end] or "<|endoftext|>")  # trained on behind an answer
    assert TokenizerVocabulary(own, chat=False).end_id == vocabulary.eos_id
    want = {vocabulary.eos_id} | ({own.convert_tokens_to_ids(ENDS[end])} if ENDS[end] else set())
    assert set(vocabulary.eos_ids) == want
    said = vocabulary.encode("42") + vocabulary.encode(end) + vocabulary.encode("12")
    assert vocabulary.decode(said).rstrip(" ") == ("42" if ENDS[end] else f"42{end}12")


@pytest.mark.parametrize(
    "template",
    [
        None,
        "{{ raise_exception('no') }}",
        "{% for m in messages %}x{% endfor %}",
        TURN.replace("'content']", "'content'] | upper"),
    ],
)
def test_without_a_turn_to_see_the_end_is_the_tokenizers(template):
    vocabulary = TokenizerVocabulary(chat(template))
    assert vocabulary.eos_ids == (vocabulary.eos_id,)
    assert Vocabulary("ab").eos_ids == (0,)


@pytest.mark.parametrize("where", ["config", "generation_config"])
@pytest.mark.parametrize("listed", [True, False])
def test_every_end_of_the_model_counts_and_stays(where, listed, tmp_path):
    own = chat()
    model = tiny_llama(len(own), width=16, heads=2, layers=1)
    model.config.eos_token_id = model.generation_config.eos_token_id = None
    getattr(model, where).eos_token_id = [7, 9, 10**6] if listed else 7  # one that the model does not know
    model.save_pretrained(tmp_path / "start")
    own.save_pretrained(tmp_path / "start")
    policy, vocabulary = load_pretrained(str(tmp_path / "start"))
    assert set(vocabulary.eos_ids) == {vocabulary.eos_id, 7} | ({9} if listed else set())
    (tmp_path / "saved").mkdir()
    save_policy(tmp_path / "saved", policy, vocabulary)
    assert set(load_policy(tmp_path / "saved")[1].eos_ids) == set(vocabulary.eos_ids)


def test_sampling_stops_at_every_end_and_the_answer_is_alone():
    own = chat(TURN.replace("END", "<|im_end|>\n"))
    vocabulary = TokenizerVocabulary(own)
    model = tiny_llama(len(own), width=16, heads=2, layers=1)
    ends = set(vocabulary.eos_ids)
    with torch.no_grad():  # ends often, with either token
        model.lm_head.weight[list(ends)] = 0.0
        model.model.norm.weight.mul_(0.3)
    samples = sample_ids(
        model,
        vocabulary,
        [vocabulary.encode_prompt("12 + 30 =")],
        max_new_tokens=40,
        group_size=400,
        generator=torch.Generator().manual_seed(0),
    )
    last = set()
    for ids, mask, cut in zip(samples.completions.tolist(), samples.mask, samples.truncated, strict=True):
        n = int(mask.sum())
        assert not ends & {*ids[: n - 1]}
        assert (ids[n - 1] in ends) is not bool(cut)
        last |= set() if cut else {ids[n - 1]}
        text = vocabulary.decode(ids)
        assert not any(end in text for end in ("<|im_end|>", "<|endoftext|>"))
        assert text == own.decode(ids[: n - (not cut)])
    assert last == ends  # both were met


@pytest.mark.parametrize("kind", [tuple, list, set, frozenset])
def test_a_completion_mask_ends_at_the_first_of_several(kind):
    ids = torch.tensor([[5, 2, 3], [5, 3, 2], [5, 6, 7], [3, 3, 3]])
    want = [[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [1.0, 1.0, 1.0], [1.0, 0.0, 0.0]]
    assert completion_mask(ids, kind((2, 3))).tolist() == want
    assert torch.equal(completion_mask(ids, kind((2,))), completion_mask(ids, 2))


def test_an_error_says_its_reason_where_that_stands_on_the_next_line():
    said = "Validation error for field 'hidden_size':\n    TypeError: expected int, got 'x'\nand more"
    assert first_line(ValueError(said)) == "Validation error for field 'hidden_size': TypeError: expected int, got 'x'"
    assert first_line(ValueError("one\ntwo")) == "one"
    assert first_line(KeyError("a")) == "'a' is missing"
    assert first_line(OSError()) == "OSError"
