"""The ledger against what is really there: parameters, gradients and moments of learners, and what autograd saves."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers
from transformers import GPT2Config, LlamaConfig, LlamaForCausalLM

from rlhf_minimal import ALGORITHMS
from rlhf_minimal.config import Config
from rlhf_minimal.functional.logprobs import token_entropy, token_logprobs
from rlhf_minimal.lab.fast import fast, plain
from rlhf_minimal.lab.memory import (
    Dtypes,
    ModelMemory,
    activation_bytes,
    cache_bytes,
    memory_ledger,
    memory_table,
    most_at_once,
)
from rlhf_minimal.metrics import peak_memory
from rlhf_minimal.models import (
    Critic,
    RewardModel,
    Vocabulary,
    add_lora,
    cache_name,
    checkpointing,
    critic_values,
    policy_logits,
    tiny_llama,
)
from rlhf_minimal.optimizer import new_optimizer
from rlhf_minimal.tasks import get_task
from rlhf_minimal.train import Recipe, collect, prepare_batch, train, update
from rlhf_minimal.train_state import Learner
from tests.models.zoo import ATTENTION, HYBRID, tiny

EVEN = get_task("even")
DIGITS = Vocabulary(EVEN.alphabet)
PLAIN = replace(ALGORITHMS["grpo"], kl=())


def llama(vocab=11, width=16, ffn=24, layers=1, heads=2, kv_heads=None, tie=True, kind="Llama", **more):
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=vocab,
        hidden_size=width,
        intermediate_size=ffn,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads or heads,
        max_position_embeddings=128,
        tie_word_embeddings=tie,
        **more,
    )
    return getattr(transformers, f"{kind}ForCausalLM")(config).eval()


def bytes_of(tensors):
    return sum(x.numel() * x.element_size() for x in tensors)


def saved_bytes(models, run):
    """What autograd keeps while `run` builds a graph: every storage once, the models' own weights left out."""
    weights = {p.untyped_storage().data_ptr() for model in models for p in model.parameters()}
    kept = {}

    def pack(x):
        storage = x.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = (storage.nbytes(), x)  # x keeps the address from being used again
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        result = run()
    del result
    return sum(size for size, _ in kept.values())


def ids(B, S, T, padded=False, vocab=11):
    generator = torch.Generator().manual_seed(0)
    prompts, completions = (torch.randint(vocab, (B, n), generator=generator) for n in (S, T))
    mask = torch.ones(B, S, dtype=torch.long)
    if padded:
        mask[0, 0] = 0
    return prompts, mask, completions


# --- activations: the formula against autograd ---------------------------------------------------------------------

SIZES = {
    "tiny": ({}, (2, 3, 4)),
    "wide": ({"width": 64, "ffn": 200, "heads": 4}, (3, 5, 9)),
    "deep": ({"layers": 5}, (3, 5, 9)),
    "long": ({"layers": 2}, (2, 40, 60)),
    "many heads": ({"width": 32, "heads": 16}, (2, 3, 4)),
    "few key-value heads": ({"width": 32, "heads": 4, "kv_heads": 2, "layers": 2}, (4, 5, 6)),
    "heads of another size": ({"width": 32, "heads": 4, "head_dim": 12, "layers": 2}, (4, 5, 6)),
    "large vocabulary": ({"vocab": 1000, "tie": False}, (2, 3, 8)),
    "one token": ({}, (1, 1, 1)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("size", SIZES)
def test_the_activations_of_a_policy_are_what_autograd_saves(size, dtype):
    """To the byte: no tolerance."""
    options, (B, S, T) = SIZES[size]
    model = llama(**options).to(dtype)
    batch = ids(B, S, T, vocab=model.config.vocab_size)
    found = saved_bytes([model], lambda: token_logprobs(policy_logits(model, *batch), batch[2]))
    shape = {"sequences": B, "prompt_length": S, "completion_length": T}
    assert activation_bytes(model.config, **shape, dtype=dtype) == found


@pytest.mark.parametrize("kind", ["Mistral", "Qwen2", "Qwen3"])
def test_relatives_of_llama_are_counted_as_well(kind):
    model = llama(kind=kind, width=32, heads=4, kv_heads=2, layers=2, head_dim=8)
    batch = ids(3, 4, 5)
    found = saved_bytes([model], lambda: token_logprobs(policy_logits(model, *batch), batch[2]))
    assert activation_bytes(model.config, sequences=3, prompt_length=4, completion_length=5) == found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_padded_prompts_bring_a_mask_for_every_layer(dtype, kv_heads):
    """And keys and values for every head, where several share one; a single one for all is not repeated."""
    model = llama(layers=3, heads=4, kv_heads=kv_heads, width=32).to(dtype)
    shape = {"sequences": 4, "prompt_length": 5, "completion_length": 6, "dtype": dtype}
    counts = {}
    for padded in (False, True):
        batch = ids(4, 5, 6, padded=padded)
        counts[padded] = saved_bytes([model], lambda: token_logprobs(policy_logits(model, *batch), batch[2]))  # noqa: B023
        assert activation_bytes(model.config, **shape, padded=padded) == counts[padded]
    repeated = 2 * 4 * 11 * {1: 0, 2: 2, 4: 0}[kv_heads] * 8
    assert counts[True] - counts[False] == 3 * (4 * 11 * 11 + repeated) * dtype.itemsize


AUTOCAST = {
    "tiny": {},
    "deep": {"layers": 5, "width": 32, "heads": 4, "kv_heads": 2},
    "untied": {"vocab": 300, "tie": False},
    "Qwen2": {"kind": "Qwen2", "layers": 2},
    "Qwen3": {"kind": "Qwen3", "layers": 2, "head_dim": 8},
}


def autocast(run):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return run()


@pytest.mark.parametrize("padded", [False, True], ids=["even", "padded"])
@pytest.mark.parametrize("size", AUTOCAST)
def test_autocast_keeps_copies_of_the_weights_and_a_stream_as_fine_as_they_are(size, padded):
    """To the byte as well, and more than half is kept."""
    model = llama(**AUTOCAST[size])
    shape = {"sequences": 3, "prompt_length": 5, "completion_length": 6, "padded": padded}
    batch = ids(3, 5, 6, padded=padded, vocab=model.config.vocab_size)
    found = saved_bytes([model], lambda: autocast(lambda: token_logprobs(policy_logits(model, *batch), batch[2])))
    half = {"dtype": torch.bfloat16, "weights": torch.float32}
    assert activation_bytes(model.config, **shape, **half) == found
    assert activation_bytes(model.config, **shape, dtype=torch.bfloat16) < found


def test_a_critic_under_autocast():
    critic, batch = Critic(llama(layers=2)), ids(3, 4, 5)
    found = saved_bytes([critic], lambda: autocast(lambda: critic_values(critic, *batch)))
    shape = {"sequences": 3, "prompt_length": 4, "completion_length": 5}
    half = {"dtype": torch.bfloat16, "weights": torch.float32}
    assert activation_bytes(critic.body.config, **shape, head="value", **half) == found


@pytest.mark.parametrize("half", [False, True], ids=["float32", "autocast"])
@pytest.mark.parametrize("layers", [1, 4])
def test_a_checkpointed_forward_keeps_inputs_and_the_ledger_adds_one_inside(layers, half):
    options = {"width": 64, "ffn": 200, "heads": 4}
    model, batch = llama(layers=layers, **options), ids(3, 5, 9)

    def run():
        with checkpointing(model):
            return token_logprobs(policy_logits(model, *batch), batch[2])

    found = saved_bytes([model], lambda: autocast(run) if half else run())
    shape = {"sequences": 3, "prompt_length": 5, "completion_length": 9}
    shape |= {"dtype": torch.bfloat16, "weights": torch.float32} if half else {}
    inside = activation_bytes(llama(layers=2, **options).config, **shape)
    inside -= activation_bytes(llama(layers=1, **options).config, **shape)
    angles = 2 * 3 * 14 * 16 * 4  # cosines and sines: every layer's second forward has them at hand, but not autograd
    assert activation_bytes(model.config, **shape, recomputed=True) == found + angles + inside


def test_an_entropy_bonus_keeps_three_more_tables_of_the_vocabulary():
    model, batch = llama(), ids(3, 4, 5)

    def run():
        logits = policy_logits(model, *batch)
        return token_logprobs(logits, batch[2]), token_entropy(logits)

    shape = {"sequences": 3, "prompt_length": 4, "completion_length": 5}
    assert activation_bytes(model.config, **shape, entropy=True) == saved_bytes([model], run)
    extra = activation_bytes(model.config, **shape, entropy=True) - activation_bytes(model.config, **shape)
    assert extra == 3 * 3 * 5 * 11 * 4


def test_a_critic_keeps_a_body_and_what_its_head_reads():
    critic, batch = Critic(llama(layers=2)), ids(3, 4, 5)
    found = saved_bytes([critic], lambda: critic_values(critic, *batch))
    shape = {"sequences": 3, "prompt_length": 4, "completion_length": 5}
    assert activation_bytes(critic.body.config, **shape, head="value") == found


def test_the_cache_is_that_of_a_model_which_has_read_all_but_the_last_token():
    model = llama(width=32, heads=4, kv_heads=2, layers=3)
    prompts, _, completions = ids(5, 6, 7)
    with torch.no_grad():
        output = model(torch.cat([prompts, completions], 1)[:, :-1], use_cache=True)
    measured = bytes_of(x for layer in output[cache_name(model)].layers for x in (layer.keys, layer.values))
    assert cache_bytes(model.config, sequences=5, prompt_length=6, completion_length=7) == measured


# --- the ledger against learners -----------------------------------------------------------------------------------


def learner_and_recipe(algorithm, vocabulary=DIGITS, *, width=16, layers=1, **changes):
    config = replace(Config(steps=1, prompts=4, group_size=4), **changes)
    policy = tiny_llama(len(vocabulary), width=width, layers=layers, heads=2)
    return Learner.begin(policy, vocabulary, algorithm, config), Recipe(algorithm, EVEN, config)


def held(model, optimizer=None):
    """Weights, gradients and moments that are really there."""
    weights = bytes_of(model.parameters())
    if optimizer is None:
        return (weights, 0, 0)
    gradients = bytes_of(p.grad for p in model.parameters())
    return (weights, gradients, bytes_of(x for state in optimizer.state.values() for x in state.values() if x.dim()))


@pytest.mark.parametrize("name", ["ppo", "grpo", "dr_grpo"])
@pytest.mark.parametrize(("width", "layers"), [(16, 1), (48, 3)])
def test_weights_gradients_and_moments_are_to_the_byte_what_a_learner_holds(name, width, layers):
    """After one real step; gradients are looked at in the moment before the step clears them."""
    learner, recipe = learner_and_recipe(ALGORITHMS[name], width=width, layers=layers)
    rows = {row.model: row for row in memory_ledger(recipe.algorithm, learner.policy.config)}
    measured = {}

    def look(role, model):
        def before_step(optimizer, *_):
            measured[role] = held(model, optimizer)[:2]

        return before_step

    learner.optimizer.register_step_pre_hook(look("policy", learner.policy))
    if learner.critic is not None:
        learner.critic_optimizer.register_step_pre_hook(look("critic", learner.critic))
    train(learner, recipe)
    optimizers = {"policy": (learner.policy, learner.optimizer), "critic": (learner.critic, learner.critic_optimizer)}
    for role, (model, optimizer) in optimizers.items():
        assert (role in rows) == (model is not None)
        if model is not None:
            moments = bytes_of(x for state in optimizer.state.values() for x in state.values() if x.dim())
            row = rows[role]
            assert (row.weights, row.gradients, row.optimizer) == (*measured[role], moments)
            assert row.parameters == sum(p.numel() for p in model.parameters())
    assert ("reference" in rows) == ("ref_logp" in recipe.algorithm.needs)
    if "reference" in rows:
        assert (rows["reference"].weights, 0, 0) == held(learner.reference)


def test_a_reward_model_is_counted_where_the_reward_is_learned_and_only_there():
    policy = tiny_llama(len(Vocabulary(EVEN.alphabet)), width=16, layers=1, heads=2)
    reward_model = RewardModel.from_policy(policy, Vocabulary(EVEN.alphabet)).model
    rows = memory_ledger(ALGORITHMS["grpo"], policy.config, reward_model=policy.config)
    assert [row.model for row in rows] == ["policy", "reference", "reward model"]
    assert rows[-1].weights == rows[-1].held == bytes_of(reward_model.parameters())
    rows = memory_ledger(ALGORITHMS["grpo"], policy.config)
    assert [row.model for row in rows] == ["policy", "reference"]


WATCHED = {**{name: ALGORITHMS[name] for name in ("ppo", "grpo", "dr_grpo")}, "bonus": replace(PLAIN, entropy=0.01)}


@pytest.mark.parametrize("name", WATCHED)
@pytest.mark.parametrize("words", [12, 600])
def test_what_a_whole_update_saves_is_the_ledgers_activations_within_two_percent(name, words):
    """The loop itself, one micro-batch: the loss adds a few [B, T] numbers that the formula leaves out.

    The ledger counts whole rows; what spares prompts and padding is switched off here, and keeps less below.
    """
    vocabulary = Vocabulary(EVEN.alphabet + "".join(chr(0x4E00 + i) for i in range(words - 12)))
    size = {"width": 64, "layers": 2, "prompts": 4, "group_size": 8}
    learner, recipe = learner_and_recipe(WATCHED[name], vocabulary, **size)
    recipe = plain(recipe)
    groups, _ = collect(learner.policy, learner.vocabulary, recipe, 1)
    batch, _ = prepare_batch(learner, recipe, groups, 1)
    models = [learner.policy] + ([learner.critic] if learner.critic is not None else [])
    measured = saved_bytes(models, lambda: update(learner, recipe, groups, batch, 1))
    B, T = groups.completions.shape
    shape = {"sequences": B, "prompt_length": groups.prompts.shape[1], "completion_length": T}
    padded = bool((groups.prompt_mask == 0).any())
    rows = memory_ledger(recipe.algorithm, learner.policy.config, **shape, padded=padded)
    expected = sum(row.activations for row in rows)
    assert measured == pytest.approx(expected, rel=0.02)
    assert measured > expected  # else this test would be looking at nothing of the loss
    learner, recipe = learner_and_recipe(WATCHED[name], vocabulary, **size)
    recipe = fast(recipe)
    batch, _ = prepare_batch(learner, recipe, groups, 1)
    models = [learner.policy] + ([learner.critic] if learner.critic is not None else [])
    assert saved_bytes(models, lambda: update(learner, recipe, groups, batch, 1)) < 0.75 * expected


def test_the_numbers_agree_with_those_of_the_chapter_on_grpo():
    """Its section 15 counts 16 bytes for a trained parameter and 4 for a frozen one, and compares four setups."""
    config = LlamaConfig(vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=8)
    grpo, ppo = ALGORITHMS["grpo"], ALGORITHMS["ppo"]
    setups = {40: (ppo, config), 24: (grpo, config), 20: (grpo, None), 16: (replace(grpo, kl=()), None)}
    for expected, (algorithm, reward_model) in setups.items():
        rows = memory_ledger(algorithm, config, reward_model=reward_model)
        # untied: critic and reward model have a head of one number in place of the vocabulary's
        assert sum(row.held for row in rows) / rows[0].parameters == pytest.approx(expected, rel=0.01)
    rows = memory_ledger(ppo, config, reward_model=config)
    assert [row.held // row.parameters for row in rows] == [16, 16, 4, 4]


def test_the_shipped_models_critic_costs_what_the_chapter_measured():
    config = tiny_llama(13).config
    policy, critic, reference = memory_ledger(ALGORITHMS["ppo"], config)
    per_parameter = [f"{row.held / policy.parameters:.2f}" for row in (reference, policy, critic)]
    assert per_parameter == ["4.00", "16.00", "16.01"]


def test_a_critic_may_be_another_model():
    big, small = (tiny_llama(13, width=w, heads=2).config for w in (64, 16))
    rows = {row.model: row for row in memory_ledger(ALGORITHMS["ppo"], big, critic=small, reward_model=small)}
    own = {row.model: row for row in memory_ledger(ALGORITHMS["ppo"], small)}
    assert rows["critic"] == own["critic"]
    assert rows["reference"].parameters == rows["policy"].parameters
    assert rows["reward model"].parameters == own["critic"].parameters - 1


def test_precision():
    config = tiny_llama(13).config
    mixed = Dtypes(torch.bfloat16, torch.bfloat16, torch.float32, torch.bfloat16, master=torch.float32)
    full, half = memory_ledger(ALGORITHMS["grpo"], config), memory_ledger(ALGORITHMS["grpo"], config, dtypes=mixed)
    n = full[0].parameters
    assert [(row.weights, row.gradients, row.optimizer) for row in half] == [(2 * n, 2 * n, 12 * n), (2 * n, 0, 0)]
    assert half[0].held == full[0].held  # the well-known sixteen bytes, either way
    assert half[0].cache * 2 == full[0].cache
    assert full[0].activations / 2 < half[0].activations < full[0].activations  # norms and log-probs stay float32


def test_micro_batches_save_activations_and_nothing_else():
    config = tiny_llama(13).config
    whole, part = (memory_ledger(ALGORITHMS["ppo"], config, sequences=n, sampled=64)[0] for n in (64, 8))
    assert whole.activations == 8 * part.activations
    assert (whole.held, whole.cache) == (part.held, part.cache)


def test_a_model_of_another_architecture_is_counted_as_far_as_it_can_be():
    config = GPT2Config(vocab_size=11, n_positions=16, n_embd=8, n_layer=1, n_head=2)
    policy, critic, _ = memory_ledger(ALGORITHMS["ppo"], config)
    assert policy.parameters == sum(p.numel() for p in transformers.GPT2LMHeadModel(config).parameters())
    assert critic.parameters == sum(p.numel() for p in transformers.GPT2Model(config).parameters()) + 9
    assert policy.activations is None
    assert policy.cache is None
    assert "not known" in memory_table([policy, critic])
    for count in (activation_bytes, cache_bytes):
        with pytest.raises(ValueError, match="no formula .* 'gpt2'.* llama, mistral"):
            count(config, sequences=1, prompt_length=1, completion_length=1)
    with pytest.raises(ValueError, match="known for llama"):
        most_at_once([policy])


def test_what_is_no_language_model_and_what_is_no_count_is_refused():
    with pytest.raises(ValueError, match="'vit' makes no causal language model"):
        memory_ledger(ALGORITHMS["grpo"], transformers.ViTConfig())
    for name in ("sequences", "sampled", "prompt_length", "completion_length"):
        with pytest.raises(ValueError, match=f"{name} is 0"):
            memory_ledger(ALGORITHMS["grpo"], tiny_llama(13).config, **{name: 0})


def test_a_large_model_is_counted_without_being_made():
    """Llama-3 8B's config: its parameters are public, 8.03 billion, and a policy under AdamW holds 16 bytes of each."""
    config = LlamaConfig(
        vocab_size=128256,
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=8,
        tie_word_embeddings=False,
    )
    rows = memory_ledger(ALGORITHMS["ppo"], config, reward_model=config)
    assert rows[0].parameters == 8_030_261_248
    assert rows[1].parameters == rows[0].parameters - 128256 * 4096 + 4097
    assert sum(row.held for row in rows) / 2**30 == pytest.approx(290, rel=0.01)


def test_the_table_prints_every_row_and_the_sum():
    rows = memory_ledger(ALGORITHMS["ppo"], tiny_llama(13).config, reward_model=tiny_llama(13).config)
    lines = memory_table(rows).splitlines()
    assert [line.split(" | ")[0].strip("| ") for line in lines[2:]] == [
        "policy",
        "critic",
        "reference",
        "reward model",
        "all",
    ]
    assert all(line.count("|") == 9 for line in lines)
    assert lines[-1].endswith("| 40.02 |")
    huge = memory_table([ModelMemory("policy", 10**12, 4 * 10**12)])
    assert "3.6 TiB" in huge
    assert most_at_once(rows) == sum(row.held for row in rows) + max(
        rows[0].activations + rows[1].activations, rows[0].cache
    )


def test_a_llama_that_is_really_made_has_the_parameters_that_are_counted():
    config = LlamaConfig(
        vocab_size=20, hidden_size=64, intermediate_size=24, num_hidden_layers=2, tie_word_embeddings=False
    )
    counted = memory_ledger(ALGORITHMS["grpo"], config)[0].parameters
    assert counted == sum(p.numel() for p in LlamaForCausalLM(config).parameters())


@pytest.mark.parametrize("rank", [1, 8])
def test_a_lora_is_counted_as_it_is_added(rank):
    model = tiny_llama(13)
    base = sum(p.numel() for p in model.parameters())
    (row,) = memory_ledger(ALGORITHMS["grpo"], model.config, lora_rank=rank)  # and no reference: it shares the weights
    learner = Learner.begin(model, Vocabulary("0123456789+="), ALGORITHMS["grpo"], Config(lora_rank=rank))
    trained = [p.numel() for p in learner.policy.parameters() if p.requires_grad]
    assert row.parameters == base + sum(trained)
    assert (row.weights, row.gradients, row.optimizer) == (4 * row.parameters, 4 * sum(trained), 8 * sum(trained))
    own = {p.data_ptr() for p in learner.policy.parameters()}
    assert all(p.data_ptr() in own for p in learner.start.parameters())


NO_LORA = ("falcon_h1", "jamba")  # peft cannot adapt the one, and merges the other wrongly


@pytest.mark.parametrize("architecture", [name for name in [*ATTENTION, *HYBRID] if name not in NO_LORA])
def test_a_lora_is_counted_on_every_architecture(architecture):
    """Linear layers that are stored transposed, and experts in one tensor: parameters, gradients and moments."""
    model = tiny(architecture)
    (row,) = memory_ledger(PLAIN, model.config, lora_rank=2)
    base = bytes_of(model.parameters())
    add_lora(model, rank=2)
    weights = list(model.parameters())
    trained = [weight for weight in weights if weight.requires_grad]
    assert row.parameters == sum(weight.numel() for weight in weights)
    assert row.weights == bytes_of(weights) == base + bytes_of(trained)
    for weight in trained:
        weight.grad = torch.zeros_like(weight)
    assert row.gradients == bytes_of(weight.grad for weight in trained) > 0
    optimizer = new_optimizer(trained, 1e-3)
    optimizer.step()
    moments = [x for state in optimizer.state.values() for name, x in state.items() if name != "step"]
    assert row.optimizer == bytes_of(moments)


def test_a_lora_that_peft_cannot_add_is_not_counted(monkeypatch):
    with pytest.raises(ValueError, match="LoRA cannot adapt FalconH1ForCausalLM: peft does not wrap its layers; train"):
        memory_ledger(PLAIN, tiny("falcon_h1").config, lora_rank=2)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match="pip install peft"):
        memory_ledger(PLAIN, tiny_llama(13).config, lora_rank=2)


OF_A_CHILD = """
import sys
import torch
from rlhf_minimal.metrics import peak_memory
sys.stdout.write(str(peak_memory(torch.device("cpu"))["peak_memory"]))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux only")
def test_a_run_does_not_report_what_the_process_that_started_it_held():
    ballast = torch.ones(2**28)  # 1 GiB, most of it more than Python and torch need
    child = subprocess.run([sys.executable, "-c", OF_A_CHILD], capture_output=True, text=True, check=True)
    own = peak_memory(torch.device("cpu"))["peak_memory"]
    assert ballast[-1] == 1
    assert 2**27 < int(child.stdout) < own - 2**28
