"""Sampling with fixed shapes writes what sampling with a growing cache writes."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from rlhf_minimal.functional.logprobs import token_logprobs
from rlhf_minimal.lab import compiled
from rlhf_minimal.lab.compiled import sample_compiled
from rlhf_minimal.models import policy_logits, tiny_llama
from rlhf_minimal.sample import sample

ROOT = Path(__file__).resolve().parent.parent.parent
REQUEST = {"max_new_tokens": 10, "eos_id": 0, "pad_id": 0, "group_size": 3}


def prompts():
    ids = torch.randint(1, 13, (4, 6), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    ids[0, :2] = mask[0, :2] = 0  # a shorter one
    return ids, mask


def qwen3():
    torch.manual_seed(1)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "head_dim": 16}
    config = Qwen3Config(vocab_size=13, num_attention_heads=2, num_key_value_heads=1, **sizes)
    return Qwen3ForCausalLM(config).eval()


@pytest.mark.parametrize("make", [lambda: tiny_llama(13), qwen3], ids=["llama", "qwen3"])
def test_greedy_answers_are_those_of_the_growing_cache(make):
    model = make()
    one = sample(model, *prompts(), temperature=0.0, **REQUEST)
    other = sample_compiled(model, *prompts(), temperature=0.0, compiled=False, **REQUEST)
    for name in ("completions", "logp", "mask", "truncated"):
        assert torch.equal(getattr(one, name), getattr(other, name)), name


def check_logp(model, samples, temperature=1.0):
    ids, mask = (x.repeat_interleave(3, dim=0) for x in prompts())
    logp = token_logprobs(
        policy_logits(model, ids, mask, samples.completions), samples.completions, temperature=temperature
    )
    torch.testing.assert_close(samples.logp, logp.detach() * samples.mask, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_every_token_has_the_log_prob_it_was_drawn_with(temperature):
    model = tiny_llama(13)
    for seed in range(3):
        draws = torch.Generator().manual_seed(seed)
        samples = sample_compiled(
            model, *prompts(), temperature=temperature, generator=draws, compiled=False, **REQUEST
        )
        assert samples.truncated.any()
        assert not samples.truncated.all()  # rows that end and rows that do not
        check_logp(model, samples, temperature)


def test_its_draws_are_those_of_the_growing_cache():
    model = tiny_llama(13)
    one, other = (
        write(model, *prompts(), generator=torch.Generator().manual_seed(2), **REQUEST, **options)
        for write, options in ((sample, {}), (sample_compiled, {"compiled": False}))
    )
    assert torch.equal(one.completions, other.completions)
    assert one.truncated.any()
    assert not one.truncated.all()


def test_nothing_is_computed_after_the_last_row_has_ended():
    model, (ids, mask) = tiny_llama(13), prompts()
    first = sample(model, ids[1:2], mask[1:2], temperature=0.0, **REQUEST).completions[0, 0].item()
    request = {**REQUEST, "eos_id": first, "temperature": 0.0}
    samples = sample_compiled(model, ids[1:2], mask[1:2], compiled=False, **request)
    assert samples.completions.tolist() == [[first]] * 3
    assert not samples.truncated.any()


def test_under_autocast_keys_and_values_are_kept_in_its_precision(monkeypatch):
    made = []

    class Seen(compiled._FixedLayer):
        def __init__(self, length):
            super().__init__(length)
            made.append(self)

    monkeypatch.setattr(compiled, "_FixedLayer", Seen)
    greedy = {**REQUEST, "temperature": 0.0}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        samples = sample_compiled(tiny_llama(13), *prompts(), compiled=False, **greedy)
        growing = sample(tiny_llama(13), *prompts(), **greedy)
    assert {x.dtype for layer in made for x in (layer.keys, layer.values)} == {torch.bfloat16}
    assert samples.logp.dtype == torch.float32
    assert torch.equal(samples.completions, growing.completions)


COMPILED = """
import torch
from tests.training.test_compiled import REQUEST, prompts
from rlhf_minimal.models import tiny_llama
from rlhf_minimal.lab.compiled import sample_compiled
draws = []
for compiled in (True, False):
    generator = torch.Generator().manual_seed(4)
    draws.append(sample_compiled(tiny_llama(13), *prompts(), generator=generator, compiled=compiled, **REQUEST))
assert torch.equal(draws[0].completions, draws[1].completions)
torch.testing.assert_close(draws[0].logp, draws[1].logp, rtol=1e-4, atol=1e-5)
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="nothing can be compiled without a C++ compiler")
def test_the_compiled_step_is_the_step():
    # in a process of its own: the hook that checks shapes in this one is nothing that can be compiled
    subprocess.run([sys.executable, "-c", COMPILED], cwd=ROOT, check=True, timeout=300)


def test_requests_are_checked_as_in_sample():
    ids, mask = prompts()
    with pytest.raises(ValueError, match="pad prompts on the left"):
        sample_compiled(tiny_llama(13), ids.flip(1), mask.flip(1), **REQUEST)
    with pytest.raises(ValueError, match="max_new_tokens >= 1"):
        sample_compiled(tiny_llama(13), ids, mask, **{**REQUEST, "max_new_tokens": 0})
