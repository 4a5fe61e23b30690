"""The sampler against a forward without a cache, and against the exact distribution of everything it can say."""

import itertools
import math
from collections import Counter
from functools import partial

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, MistralConfig, MistralForCausalLM

from rlhf_minimal.config import Config
from rlhf_minimal.functional.logprobs import token_entropy, token_logprobs
from rlhf_minimal.models import policy_logits, tiny_llama
from rlhf_minimal.sample import pad_left, pad_right, sample

PROMPTS, PROMPT_MASK = pad_left([[3], [4, 5, 2, 6], [5, 5]], pad_id=0)


@pytest.fixture
def policy():
    return tiny_llama(8, width=16, heads=2, seed=5)


def draw(policy, *, seed=0, prompts=PROMPTS, mask=PROMPT_MASK, **options):
    options = {"max_new_tokens": 6, "eos_id": 0, "pad_id": 0} | options
    return sample(policy, prompts, mask, generator=torch.Generator().manual_seed(seed), **options)


@pytest.mark.parametrize("temperature", [1.0, 0.6, 1.7])
def test_logp_is_that_of_a_full_forward_at_the_sampling_temperature(policy, temperature):
    samples = draw(policy, group_size=40, temperature=temperature)
    lengths = samples.mask.sum(-1)
    assert len(lengths.unique()) > 3  # rows did end at different times, so the batch was compacted
    for i in range(0, 120, 7):  # each row on its own: no batch, no padding, no cache
        length = int(lengths[i])
        prompt = PROMPTS[i // 40][PROMPT_MASK[i // 40] == 1]
        ids = torch.cat([prompt, samples.completions[i, :length]])
        with torch.no_grad():
            logits = policy(ids[None]).logits[0, len(prompt) - 1 : -1]
        expected = torch.log_softmax(logits / temperature, -1)[torch.arange(length), ids[len(prompt) :]]
        torch.testing.assert_close(samples.logp[i, :length], expected, rtol=1e-5, atol=1e-5)
        assert torch.equal(samples.logp[i, length:], torch.zeros_like(samples.logp[i, length:]))


def test_samples_follow_the_exact_distribution():
    """Vocabulary of three, at most three tokens: all 15 completions are listed with their probabilities."""
    policy = tiny_llama(3, width=16, heads=2, seed=0)
    prompts, mask = pad_left([[1, 2], [2]], pad_id=0)
    n, temperature = 20_000, 0.8
    samples = draw(policy, prompts=prompts, mask=mask, max_new_tokens=3, group_size=n, temperature=temperature)

    for p, prompt in enumerate([[1, 2], [2]]):
        exact = {}
        for tokens in itertools.product(range(3), repeat=3):
            with torch.no_grad():
                logits = policy(torch.tensor([[*prompt, *tokens]])).logits[0, len(prompt) - 1 : -1]
            logp = torch.log_softmax(logits.double() / temperature, -1)
            end = tokens.index(0) + 1 if 0 in tokens else 3
            exact[tokens[:end]] = math.exp(sum(logp[t, tokens[t]].item() for t in range(end)))
        assert len(exact) == 15
        assert sum(exact.values()) == pytest.approx(1)

        rows = slice(p * n, (p + 1) * n)
        lengths = samples.mask[rows].sum(-1).int().tolist()
        written = zip(samples.completions[rows].tolist(), lengths, strict=True)
        counts = Counter(tuple(ids[:length]) for ids, length in written)
        assert set(counts) <= set(exact)
        for tokens, probability in exact.items():
            spread = math.sqrt(n * probability * (1 - probability))
            assert abs(counts[tokens] - n * probability) < 4.5 * spread + 1, (prompt, tokens)


def test_greedy_takes_the_most_likely_token_every_time(policy):
    samples = draw(policy, temperature=0.0)
    for i, prompt in enumerate([[3], [4, 5, 2, 6], [5, 5]]):
        ids = list(prompt)
        while len(ids) < len(prompt) + 6:
            with torch.no_grad():
                ids.append(int(policy(torch.tensor([ids])).logits[0, -1].argmax()))
            if ids[-1] == 0:
                break
        written = samples.completions[i][samples.mask[i] == 1].tolist()
        assert written == ids[len(prompt) :]
    assert torch.equal(samples.logp, torch.zeros_like(samples.logp))  # a certain choice


def test_the_end_is_trained_and_what_follows_is_not_although_pad_and_end_are_one_token(policy):
    samples = draw(policy, group_size=50)
    for ids, mask, truncated in zip(samples.completions, samples.mask, samples.truncated, strict=True):
        length = int(mask.sum())
        assert mask.tolist() == [1.0] * length + [0.0] * (len(mask) - length)
        assert 0 not in ids[: length - 1]
        assert bool(truncated) == (ids[length - 1] != 0)
        if truncated:
            assert length == 6
    assert 0 < samples.truncated.float().mean() < 1  # both cases were seen


def test_every_prompt_is_read_once_and_finished_rows_leave_the_batch(policy):
    shapes = []
    hook = policy.register_forward_pre_hook(
        lambda module, args, kwargs: shapes.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    samples = draw(policy, group_size=30)
    hook.remove()
    assert shapes[0] == (3, 4)  # three prompts, not ninety
    alive = [int((samples.mask.sum(-1) > t).sum()) for t in range(1, samples.completions.shape[1])]
    assert shapes[1:] == [(rows, 1) for rows in alive]
    assert alive[0] > alive[-1]


def with_a_window(vocab_size):
    """A model whose cache holds three tokens."""
    config = MistralConfig(
        vocab_size=vocab_size, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, sliding_window=3, initializer_range=0.3,
    )  # fmt: skip
    torch.manual_seed(0)
    return MistralForCausalLM(config).eval()


@pytest.mark.parametrize("make", [partial(tiny_llama, width=16, heads=2, seed=5), with_a_window])
def test_wherever_a_row_is_kept_it_draws_as_in_a_loop_over_rows_without_a_cache(make):
    model, G, budget = make(8), 30, 8
    generator = torch.Generator().manual_seed(0)
    texts = [row[keep == 1].tolist() for row, keep in zip(PROMPTS, PROMPT_MASK, strict=True) for _ in range(G)]
    expected = [[] for _ in texts]
    for _ in range(budget):
        writing = [i for i, ids in enumerate(expected) if 0 not in ids]
        with torch.no_grad():
            logits = [model(torch.tensor([texts[i] + expected[i]])).logits[0, -1] for i in writing]
        drawn = torch.multinomial(torch.stack(logits).softmax(-1), 1, generator=generator).squeeze(-1)
        for i, token in zip(writing, drawn.tolist(), strict=True):
            expected[i].append(token)
    samples = draw(model, group_size=G, max_new_tokens=budget)
    written = zip(samples.completions.tolist(), samples.mask.sum(-1).int().tolist(), strict=True)
    assert [ids[:length] for ids, length in written] == expected
    assert len({len(ids) for ids in expected}) == budget


def test_completions_of_a_group_are_neighbours():
    # A policy whose next token is surely the prompt's last one shows which prompt a row belongs to.
    policy = tiny_llama(8, width=16, heads=2)
    with torch.no_grad():
        for layer in policy.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        policy.model.embed_tokens.weight.copy_(20 * torch.eye(8, 16))
    samples = draw(policy, prompts=torch.tensor([[3], [5]]), mask=torch.ones(2, 1).long(), group_size=2)
    assert samples.completions[:, 0].tolist() == [3, 3, 5, 5]


def test_a_generator_decides_everything(policy):
    before = torch.random.get_rng_state()
    first, again, other = draw(policy, group_size=9), draw(policy, group_size=9), draw(policy, group_size=9, seed=1)
    assert torch.equal(first.completions, again.completions)
    assert not torch.equal(first.logp, other.logp)
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"group_size": 0}, "group_size"),
        ({"temperature": -1.0}, "temperature"),
        ({"mask": torch.tensor([[0, 0, 0, 1], [1, 1, 1, 1], [1, 1, 0, 0]])}, "left"),
    ],
)
def test_what_cannot_be_sampled_is_refused(policy, options, message):
    with pytest.raises(ValueError, match=message):
        draw(policy, **options)


def test_a_policy_that_has_become_nan_is_said_so(policy):
    with torch.no_grad():
        policy.model.norm.weight.fill_(float("nan"))
    with pytest.raises(ValueError, match="not a number"):
        draw(policy)


def test_cached_and_uncached_agree_in_a_batch_with_left_padding(policy):
    samples = draw(policy, group_size=10)
    with torch.no_grad():
        logits = policy_logits(
            policy, PROMPTS.repeat_interleave(10, 0), PROMPT_MASK.repeat_interleave(10, 0), samples.completions
        )
    logp = torch.log_softmax(logits, -1).gather(-1, samples.completions[..., None]).squeeze(-1)
    torch.testing.assert_close(samples.logp, logp * samples.mask, rtol=1e-5, atol=1e-5)


def test_learned_positions_are_those_of_an_unpadded_prompt():
    """Rotary models only feel distances and would forgive wrong positions; one with a table of positions does not."""
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=8, n_embd=16, n_layer=1, n_head=2, n_positions=16, initializer_range=0.5)
    policy = GPT2LMHeadModel(config).eval()
    samples = draw(policy, group_size=10)
    rows = [x.repeat_interleave(10, 0) for x in (PROMPTS, PROMPT_MASK)]
    with torch.no_grad():
        batched = torch.log_softmax(policy_logits(policy, *rows, samples.completions), -1)
        for i in range(30):
            prompt, length = PROMPTS[i // 10][PROMPT_MASK[i // 10] == 1], int(samples.mask[i].sum())
            answer = samples.completions[i, :length]
            logp = torch.log_softmax(policy(torch.cat([prompt, answer])[None]).logits[0, len(prompt) - 1 : -1], -1)
            expected = logp.gather(-1, answer[:, None]).squeeze(-1)
            torch.testing.assert_close(samples.logp[i, :length], expected, rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(batched[i, :length], logp, rtol=1e-4, atol=1e-4)


def test_padding_helpers():
    ids, mask = pad_left([[1, 2], [3]], pad_id=9)
    assert ids.tolist() == [[1, 2], [9, 3]]
    assert mask.tolist() == [[1, 1], [0, 1]]
    assert pad_right([[1, 2], [3]], pad_id=9).tolist() == [[1, 2], [3, 9]]


@pytest.mark.parametrize("temperature", [1e-7, 1e-40, 5e-324, float("nan")])
def test_temperatures_whose_logits_overflow_are_refused_wherever_one_is_given(temperature):
    logits = torch.randn(1, 2, 3)
    model = tiny_llama(5, width=16, heads=2, layers=1)
    ids = torch.ones(1, 2, dtype=torch.long)
    for call in (
        lambda: Config(temperature=temperature),
        lambda: token_logprobs(logits, ids, temperature=temperature),
        lambda: token_entropy(logits, temperature=temperature),
        lambda: sample(model, ids, ids, eos_id=0, pad_id=0, max_new_tokens=2, group_size=1, temperature=temperature),
    ):
        with pytest.raises(ValueError, match="temperature"):
            call()
    samples = sample(model, ids, ids, eos_id=0, pad_id=0, max_new_tokens=2, group_size=1, temperature=1e-6)
    greedy = sample(model, ids, ids, eos_id=0, pad_id=0, max_new_tokens=2, group_size=1, temperature=0.0)
    assert samples.completions.tolist() == greedy.completions.tolist()
    assert samples.logp.isfinite().all()
    assert token_logprobs(logits * 1e4, ids, temperature=1e-6).isfinite().all()
