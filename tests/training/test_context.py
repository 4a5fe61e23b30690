"""A prompt and a budget that are longer than the model's context are refused before anything runs."""

import json

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from rlhf_minimal import ALGORITHMS
from rlhf_minimal.cli import main
from rlhf_minimal.config import Config
from rlhf_minimal.evaluate import evaluate
from rlhf_minimal.models import Vocabulary, tiny_llama
from rlhf_minimal.sample import sample
from rlhf_minimal.tasks import get_task
from rlhf_minimal.train import Recipe, roll_out
from rlhf_minimal.training import save_policy
from tests.chat_model import tokenizer
from tests.commands import fails

VOCABULARY = Vocabulary(get_task("addition").alphabet)  # prompts of 8 characters, budget 8
PROMPT = len(VOCABULARY.encode_prompt(get_task("addition").problems("train", 1, seed=0)[0].prompt))


def model(kind, positions):
    if kind == "llama":
        return tiny_llama(len(VOCABULARY), width=16, heads=2, max_length=positions)
    config = GPT2Config(vocab_size=len(VOCABULARY), n_positions=positions, n_embd=8, n_layer=1, n_head=2)
    return GPT2LMHeadModel(config).eval()


@pytest.fixture(params=["llama", "gpt2"])
def kind(request):
    return request.param


def test_a_sampler_reads_up_to_the_context_and_no_further(kind):
    policy = model(kind, 12)
    prompts, mask = torch.ones(2, 9, dtype=torch.long), torch.tensor([[1] * 9, [0] * 5 + [1] * 4])
    options = {"eos_id": 0, "pad_id": 0}
    assert len(sample(policy, prompts, mask, max_new_tokens=3, **options).mask) == 2
    with pytest.raises(ValueError, match="prompt of 9 tokens and a completion of up to 4 are longer than the 12 that"):
        sample(policy, prompts, mask, max_new_tokens=4, **options)
    # Padding takes no position.
    assert len(sample(policy, prompts[1:], mask[1:], max_new_tokens=8, **options).mask) == 1


@pytest.mark.parametrize("how", ["budget", "prompt"])
def test_an_evaluation_begins_with_the_check(kind, how, monkeypatch):
    positions, budget = (PROMPT + 20, 21) if how == "budget" else (PROMPT + 7, None)
    recipe = Recipe(ALGORITHMS["grpo"], get_task("addition"), Config(max_new_tokens=budget))
    called = []
    policy = model(kind, positions)
    monkeypatch.setattr(policy, "forward", lambda *args, **options: called.append(1))
    with pytest.raises(ValueError, match="longer than the .* the model reads.*the prompt begins with '"):
        evaluate(policy, VOCABULARY, recipe, n=4)
    with pytest.raises(ValueError, match="longer than"):
        roll_out(policy, VOCABULARY, recipe.task.problems("train", 2, seed=0), recipe)
    assert not called


@pytest.fixture
def folder(kind, tmp_path):
    """A checkpoint with a short context."""
    (tmp_path / "start").mkdir()
    save_policy(tmp_path / "start", model(kind, PROMPT + 8), VOCABULARY)
    return tmp_path / "start"


def test_every_command_refuses_it_before_it_writes(folder, tmp_path, capsys):
    tiny = ["--steps", "1", "--prompts", "2", "--group-size", "2", "--held-out", "2", "--out", str(tmp_path / "run")]
    start = ["train", "grpo", "--start", str(folder), *tiny]
    assert "longer than" in fails(capsys, *start, "--max-new-tokens", "100000")
    assert not (tmp_path / "run").exists()
    assert "longer than" in fails(capsys, "sample", str(folder), "--prompt", "1+" * 20 + "1=")
    assert main(["evaluate", str(folder), "-n", "2"]) == 0  # at the limit all is well
    assert main(start) == 0


def test_all_prompts_of_a_file_are_looked_at(kind, tmp_path, capsys):
    own = tokenizer()
    sizes = {"vocab_size": len(own), "pad_token_id": own.pad_token_id}
    from transformers import LlamaConfig, LlamaForCausalLM

    if kind == "llama":
        shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
        policy = LlamaForCausalLM(LlamaConfig(**sizes, **shape, max_position_embeddings=300))
    else:
        policy = GPT2LMHeadModel(GPT2Config(**sizes, n_positions=300, n_embd=8, n_layer=1, n_head=2))
    policy.save_pretrained(tmp_path / "model")
    own.save_pretrained(tmp_path / "model")
    task = get_task("even")
    rows = [{"prompt": f"{i}", "answer": "1"} for i in range(60)]
    rows[next(i for i in range(40, 60) if not task.is_held_out(f"{i}"))]["prompt"] = "7 + " * 100
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["--model", str(tmp_path / "model"), "--task", f"exact:{tmp_path / 'rows.jsonl'}", "--max-new-tokens", "4"]
    tiny = ["--steps", "1", "--prompts", "1", "--group-size", "2", "--held-out", "2", "--out", str(tmp_path / "run")]
    said = fails(capsys, "train", "grpo", *words, *tiny)
    assert "longer than the 300 that the model reads" in said
    assert "the prompt begins with '7 + 7 + " in said
    assert not (tmp_path / "run").exists()
