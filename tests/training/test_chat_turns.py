"""Turns of a model with a chat template: what is read, what is trained, budgets, time limits and errors."""

import time

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from rlhf_minimal.functional.logprobs import token_logprobs
from rlhf_minimal.lab.sampled_rows import sample_ids
from rlhf_minimal.lab.turns import ChatReplies, calculator
from rlhf_minimal.models import TokenizerVocabulary, policy_logits
from tests.chat_model import tokenizer

VOCABULARY = TokenizerVocabulary(tokenizer())
END = VOCABULARY.eos_id


def tiny():
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "max_position_embeddings": 256}
    return LlamaForCausalLM(
        LlamaConfig(vocab_size=len(VOCABULARY), num_attention_heads=2, num_key_value_heads=1, **sizes)
    ).eval()


def play(replies, turns):
    """The ids of a row whose turns are given, with what it is told between them; and who wrote each."""
    ids, own = [], []
    for turn in turns:
        for token in [*VOCABULARY.encode(turn), END]:
            ids.append(token)
            own.append(1)
            if said := replies(0, list(ids)):
                ids += said
                own += [0] * len(said)
        if own[-1] == 1:
            break
    return ids, own


def test_a_transcript_is_what_the_template_would_write():
    """Joined from ids, never rendered; here the template agrees, since nothing was tokenised in two ways."""
    turns = ["<calculator>12 * 7</calculator>", "It is 84"]
    ids, own = play(ChatReplies(VOCABULARY, calculator), turns)
    conversation = [
        {"role": "user", "content": "12*7"},
        {"role": "assistant", "content": turns[0]},
        {"role": "user", "content": "84"},
        {"role": "assistant", "content": turns[1]},
    ]
    whole = VOCABULARY.render(conversation, ask=False)
    prompt = VOCABULARY.render(conversation[:1], ask=True)
    written = prompt + VOCABULARY.tokenizer.decode(ids)
    assert whole.startswith(written)
    assert whole.removeprefix(written).strip() == ""
    mine = VOCABULARY.tokenizer.decode([i for i, mark in zip(ids, own, strict=True) if mark])
    assert mine == turns[0] + "<|im_end|>" + turns[1] + "<|im_end|>"


def test_an_error_and_a_time_limit_are_replies():
    def slow(turn):
        if "wait" in turn:
            time.sleep(5)
        return calculator(turn)

    replies = ChatReplies(VOCABULARY, slow, seconds=0.1)
    ids, own = play(replies, ["<calculator>import os</calculator>", "wait", "done"])
    told = VOCABULARY.tokenizer.decode([i for i, mark in zip(ids, own, strict=True) if not mark])
    assert "error: write two whole numbers" in told
    assert "error: no answer within 0.1 s" in told


def test_budgets_of_turns_and_of_tokens():
    def babbles(turn):
        return "12 + 30 = " * 50

    replies = ChatReplies(VOCABULARY, babbles, turns=2, longest=10)
    ids, own = play(replies, ["a", "b", "c", "d"])
    holes = "".join(map(str, own)).strip("1").split("1")
    lengths = [len(hole) for hole in holes if hole]
    extra = len(replies._before) + len(replies._after)
    assert lengths == [10 + extra] * 2
    assert VOCABULARY.tokenizer.decode(ids[-2:-1]) == "c"  # the third turn is the last


def test_a_sampled_batch_is_read_again_with_its_own_log_probs():
    """A tool that always answers: every row has several turns, at different columns."""
    policy = tiny()
    replies = ChatReplies(VOCABULARY, lambda turn: str(len(turn) % 7), turns=2)
    prompts = [VOCABULARY.encode_prompt("What is 12 + 30 ="), VOCABULARY.encode_prompt("12")] * 8
    head = policy.lm_head  # with a bias, ends come often enough to see all turns
    policy.lm_head = torch.nn.Linear(head.in_features, head.out_features)
    with torch.no_grad():
        policy.lm_head.weight.copy_(head.weight)
        policy.lm_head.bias.zero_()
        policy.lm_head.bias[END] = 4.0
    draws = torch.Generator().manual_seed(3)
    samples = sample_ids(policy, VOCABULARY, prompts, max_new_tokens=150, generator=draws, reply=replies)
    own = samples.mask != 0
    turns = ((samples.completions == END) & own).sum(1)
    assert turns.max() == 3
    for row, prompt in enumerate(prompts):
        ids = torch.tensor([prompt])
        with torch.no_grad():
            logits = policy_logits(policy, ids, torch.ones_like(ids), samples.completions[row : row + 1])
        read = token_logprobs(logits, samples.completions[row : row + 1])[0]
        torch.testing.assert_close(read[own[row]], samples.logp[row][own[row]], atol=2e-4, rtol=0)


def test_a_second_batch_begins_anew():
    replies = ChatReplies(VOCABULARY, lambda turn: "1", turns=1)
    first = play(replies, ["a", "b"])
    assert play(replies, ["a", "b"]) == first


def test_what_has_no_turns_is_refused():
    with pytest.raises(ValueError, match="chat template"):
        ChatReplies(TokenizerVocabulary(tokenizer(), chat=False), calculator)
    silent = tokenizer(
        template="{% for m in messages %}{% if m['role'] == 'assistant' %}{{ m['content'] }}{% endif %}{% endfor %}"
    )
    with pytest.raises(ValueError, match="give another role"):
        ChatReplies(TokenizerVocabulary(silent), calculator)
    open_ended = tokenizer(template="{% for m in messages %}{{ m['content'] }} {% endfor %}")
    with pytest.raises(ValueError, match="no turn can end"):
        ChatReplies(TokenizerVocabulary(open_ended), calculator)


@pytest.mark.parametrize("call", ["__import__('os')", "1 + 1 + 1", "2 ** 9", "9999999999 + 1", ""])
def test_nothing_but_a_sum_is_carried_out(call):
    with pytest.raises(ValueError, match="two whole numbers"):
        calculator(f"<calculator>{call}</calculator>")
