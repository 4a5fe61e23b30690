"""Many architectures: saved is what was trained, sampled is what the model predicts, or one line says no."""

import json

import pytest
import safetensors.torch
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from rlhf_minimal.cli import main
from rlhf_minimal.functional.logprobs import token_logprobs
from rlhf_minimal.models import (
    RewardModel,
    Vocabulary,
    add_lora,
    context_length,
    load_policy,
    load_pretrained,
    load_reward_model,
    policy_logits,
    save_policy,
    tiny_llama,
)
from rlhf_minimal.runs import resume_learner
from rlhf_minimal.sample import sample
from tests.commands import fails
from tests.models.zoo import ATTENTION, HYBRID, MENDED, REFUSED, VOCABULARY, tiny

IDS = torch.tensor([[5, 17, 9, 23, 31, 12, 38, 2, 1, 30]])
NO_LORA = [("falcon_h1", "LoRA"), ("jamba", "LoRA")]  # peft cannot adapt the one, and merges the other wrongly


@torch.no_grad()
def log_probs(model):
    return model(input_ids=IDS, use_cache=False).logits.log_softmax(-1)


def train(model, seed=1):
    """Moves all trained weights, far enough to be seen."""
    with torch.no_grad():
        for number, weight in enumerate(weight for weight in model.parameters() if weight.requires_grad):
            weight += 0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(seed + number))


# --- what is saved is what was trained ----------------------------------------------------------------------------


WAYS = [(architecture, how) for architecture in [*ATTENTION, *HYBRID] for how in ("weights", "LoRA")]


@pytest.mark.parametrize(("architecture", "how"), [way for way in WAYS if way not in NO_LORA])
def test_a_saved_policy_is_the_one_that_was_trained(architecture, how, tmp_path):
    """Read by transformers alone, and again by this library after one more round."""
    model = tiny(architecture)
    if how == "LoRA":
        before = log_probs(model)
        add_lora(model, rank=2)
        assert torch.equal(log_probs(model), before)  # it begins as nothing
    train(model)
    want = log_probs(model)
    save_policy(tmp_path, model, VOCABULARY)
    assert torch.equal(log_probs(model), want)  # saving changes nothing
    alone, found = AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(found.values())
    torch.testing.assert_close(log_probs(alone.eval()), want, rtol=0, atol=3e-5 if how == "LoRA" else 1e-6)
    loaded, _ = load_policy(tmp_path)
    (tmp_path / "again").mkdir()
    save_policy(tmp_path / "again", loaded, VOCABULARY)
    assert torch.equal(log_probs(load_policy(tmp_path / "again")[0]), log_probs(loaded))


@pytest.mark.parametrize("architecture", ["phimoe", "mamba", *(name for name, _ in NO_LORA)])
def test_a_lora_that_could_not_be_saved_is_refused_before_training(architecture):
    model = tiny(architecture)
    with pytest.raises(
        ValueError, match=f"LoRA cannot adapt {type(model).__name__}: .*; train all its weights"
    ) as caught:
        add_lora(model, rank=2)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("architecture", ["mixtral", "qwen3_moe"])
def test_a_run_with_lora_on_experts_evaluates_as_it_trained(architecture, tmp_path, monkeypatch):
    """The checkpoint's policy is the one that the run's own report measured."""
    monkeypatch.chdir(tmp_path)
    from rlhf_minimal.tasks import get_task

    vocabulary = Vocabulary(get_task("even").alphabet)
    (tmp_path / "start").mkdir()
    save_policy(tmp_path / "start", tiny(architecture, len(vocabulary)), vocabulary)
    words = [
        "--task",
        "even",
        "--steps",
        "3",
        "--prompts",
        "4",
        "--group-size",
        "4",
        "--lr",
        "0.03",
        "--held-out",
        "50",
    ]
    assert main(["train", "rloo", "--start", "start", "--lora-rank", "2", "--out", "run", *words]) == 0
    from rlhf_minimal import ALGORITHMS
    from rlhf_minimal.config import Config

    config = Config(steps=3, prompts=4, group_size=4, lr=0.03, lora_rank=2)
    learner = resume_learner(tmp_path / "run" / "checkpoint", ALGORITHMS["rloo"], config, "cpu")
    ids = torch.tensor([[1, 2, 3, 4]])
    trained, saved = learner.policy(ids).logits, load_policy(tmp_path / "run")[0](ids).logits
    assert (trained - learner.start(ids).logits).abs().max() > 1e-2
    torch.testing.assert_close(saved, trained, rtol=0, atol=3e-5)


def damaged(monkeypatch, harm=lambda tensors: None, **config):
    """From here on, saving harms the tensors of the file, or what config.json says."""
    whole = PreTrainedModel.save_pretrained

    def save(self, folder, **options):
        whole(self, folder, **options)
        tensors = safetensors.torch.load_file(folder / "model.safetensors")
        harm(tensors)
        safetensors.torch.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        file = folder / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | config))

    monkeypatch.setattr(PreTrainedModel, "save_pretrained", save)


def no_expert(tensors):
    name = next(name for name in tensors if ".experts.3." in name)
    tensors[name] = torch.zeros_like(tensors[name])


def another_row(tensors):
    tensors["model.embed_tokens.weight"][37] += 0.01


def another_head(tensors):
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"] + 0.01


DAMAGE = {
    "one expert is zeroed": ("mixtral", no_expert, {}, "block_sparse_moe|mlp.experts"),
    "one row of the embedding is another": ("llama", another_row, {}, "model.embed_tokens.weight"),
    "one number of a norm is another": (
        "llama",
        lambda w: w["model.norm.weight"][5].add_(0.02),
        {},
        "model.norm.weight",
    ),
    "the head is no longer the embedding": ("tied", another_head, {}, "lm_head.weight"),
    "the head is drawn anew": ("tied", lambda w: None, {"tie_word_embeddings": False}, "lm_head.weight"),
    "the head is a copy of the embedding": (
        "tied",
        lambda w: w.update({"lm_head.weight": w["model.embed_tokens.weight"].clone()}),
        {"tie_word_embeddings": False},
        "lm_head.weight",
    ),
    "a tensor is lost": ("llama", lambda w: w.pop("model.layers.1.mlp.up_proj.weight"), {}, "up_proj.weight"),
    "the config is another": ("llama", lambda w: None, {"rms_norm_eps": 0.5}, "its log-probs differ by"),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("what", DAMAGE)
def test_a_policy_that_is_saved_wrongly_is_not_saved(what, dtype, tmp_path, monkeypatch):
    """One tensor suffices, whatever tokens meet it."""
    name, harm, config, says = DAMAGE[what]
    policy = tiny("llama", tie_word_embeddings=True) if name == "tied" else tiny(name)
    policy.to(dtype)
    save_policy(tmp_path, policy, VOCABULARY)
    damaged(monkeypatch, harm, **config)
    with pytest.raises(ValueError, match=f"saved in .* is not the one that was trained: .*({says})") as caught:
        save_policy(tmp_path, policy, VOCABULARY)
    assert "\n" not in str(caught.value)


def test_a_reward_model_that_is_saved_wrongly_is_not_saved(tmp_path, monkeypatch):
    reward_model = RewardModel.from_policy(tiny("llama"), VOCABULARY)
    damaged(monkeypatch, lambda tensors: tensors["score.weight"][0, 3].add_(0.01))
    with pytest.raises(ValueError, match=r"is not the one that was trained: .*score.weight"):
        reward_model.save(tmp_path)


def test_weights_that_are_no_numbers_are_saved_as_they_are(tmp_path):
    policy = tiny("llama")
    policy.model.embed_tokens.weight.data[7] = float("nan")
    save_policy(tmp_path, policy, VOCABULARY)
    assert load_policy(tmp_path)[0].model.embed_tokens.weight[7].isnan().all()


@pytest.mark.parametrize("step", [0.1, 1e-4])
@pytest.mark.parametrize(
    ("architecture", "kind"), [("llama", "Linear"), ("gpt2", "Linear"), ("mixtral", "ParamWrapper")]
)
def test_a_lora_of_which_one_matrix_is_not_merged_is_not_saved(architecture, kind, step, tmp_path, monkeypatch):
    """However small the correction is; neither is such a run begun."""
    import peft.tuners.lora.layer as layers

    wrapper, model, other = getattr(layers, kind), tiny(architecture), tiny(architecture)
    add_lora(model, rank=2)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight += step * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1))
    save_policy(tmp_path, model, VOCABULARY)
    merge, seen = wrapper.merge, []

    def loses(self, *words, **options):
        seen.append(self)
        return None if len(seen) == 4 else merge(self, *words, **options)

    monkeypatch.setattr(wrapper, "merge", loses)
    with pytest.raises(ValueError, match=r"the correction of \S+ is not in the merged weights"):
        save_policy(tmp_path, model, VOCABULARY)
    seen.clear()
    with pytest.raises(ValueError, match=r"LoRA cannot adapt .*the correction of .* is not in the merged weights"):
        add_lora(other, rank=2)


def test_two_matrices_of_a_file_whose_config_ties_them_both_stay(tmp_path):
    model = tiny_llama(len(VOCABULARY), width=16, heads=2)
    (tmp_path / "one").mkdir()
    save_policy(tmp_path / "one", model, VOCABULARY)
    tensors = safetensors.torch.load_file(tmp_path / "one" / "model.safetensors")
    embedding = tensors["model.embed_tokens.weight"]
    for head, tied in ((embedding.clone(), True), (embedding + 0.5, False)):
        both = tensors | {"lm_head.weight": head}
        safetensors.torch.save_file(both, tmp_path / "one" / "model.safetensors", metadata={"format": "pt"})
        for load in (lambda folder: load_pretrained(str(folder))[0], lambda folder: load_policy(folder)[0]):
            loaded = load(tmp_path / "one")
            assert (loaded.lm_head.weight is loaded.model.embed_tokens.weight) is tied
            assert loaded.config.tie_word_embeddings is tied
            train(loaded)
            (tmp_path / f"{tied}").mkdir(exist_ok=True)
            save_policy(tmp_path / f"{tied}", loaded, VOCABULARY)
            again = AutoModelForCausalLM.from_pretrained(tmp_path / f"{tied}")
            assert torch.equal(log_probs(again), log_probs(loaded))
            assert again.config.tie_word_embeddings is tied


def test_the_generation_config_stays(chat_model, tmp_path):
    model, _ = load_pretrained(str(chat_model))
    model.generation_config.update(eos_token_id=[2, 7, 9], temperature=0.6, do_sample=True, top_p=0.9)
    model.save_pretrained(tmp_path / "start")
    for file in chat_model.glob("*token*"):
        (tmp_path / "start" / file.name).write_bytes(file.read_bytes())
    policy, vocabulary = load_pretrained(str(tmp_path / "start"))
    (tmp_path / "saved").mkdir()
    save_policy(tmp_path / "saved", policy, vocabulary)
    one, other = (json.loads((tmp_path / n / "generation_config.json").read_text()) for n in ("start", "saved"))
    assert one == other
    assert set(load_policy(tmp_path / "saved")[1].eos_ids) == {2, 7, 9}


def test_a_reward_model_of_experts_comes_back(tmp_path):
    reward_model = RewardModel.from_policy(tiny("mixtral"), VOCABULARY)
    reward_model.save(tmp_path)
    texts = ["abc", "d"], ["ef", ""]
    assert torch.equal(load_reward_model(tmp_path).score(*texts), reward_model.score(*texts))


# --- what is sampled is what the model predicts -------------------------------------------------------------------


@pytest.mark.parametrize("architecture", [*HYBRID, *MENDED, "llama", "gemma3_text", "gpt_oss", "deepseek_v3", "bloom"])
def test_sampled_log_probs_are_those_of_a_whole_reading(architecture, tmp_path):
    """Prompts of two lengths, groups, and rows that end at different times, on a model that was loaded."""
    save_policy(tmp_path, tiny(architecture), VOCABULARY)
    model, _ = load_policy(tmp_path)
    prompts, mask = torch.tensor([[0, 0, 5, 6], [1, 2, 3, 4]]), torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])
    generator = torch.Generator().manual_seed(0)
    options = {"eos_id": range(12), "pad_id": 0, "group_size": 6, "generator": generator}
    found = sample(model, prompts, mask, max_new_tokens=10, **options)
    assert 1 < len(set(found.mask.sum(-1).tolist()))
    rows = [x.repeat_interleave(6, 0) for x in (prompts, mask)]
    with torch.no_grad():
        want = token_logprobs(policy_logits(model, *rows, found.completions), found.completions)
    torch.testing.assert_close(found.logp, want * found.mask, rtol=0, atol=1e-4)


@pytest.mark.parametrize("architecture", REFUSED)
def test_a_model_that_padding_or_a_cache_changes_is_refused_at_loading(architecture, tmp_path, capsys):
    from rlhf_minimal.models import _save

    model = tiny(architecture)
    _save(tmp_path, model, VOCABULARY, AutoModelForCausalLM, trained=model)
    for load in (load_policy, lambda folder: load_pretrained(str(folder))):
        with pytest.raises(ValueError, match=f"{type(model).__name__}.*take another model") as caught:
            load(tmp_path)
        assert "\n" not in str(caught.value)
    said = fails(capsys, "train", "grpo", "--start", str(tmp_path), "--steps", "1")
    assert type(model).__name__ in said


def test_what_transformers_makes_no_reward_model_of_is_one_plain_line(tmp_path):
    """No list of the classes that it knows, and no traceback for a head of another name."""
    from transformers import BertConfig, BertLMHeadModel

    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    bert = BertLMHeadModel(BertConfig(vocab_size=40, is_decoder=True, pad_token_id=None, **small)).eval()
    for model, says in (
        (bert, "head called score; BertForSequenceClassification .* is none: take another model"),
        *((tiny(name), f"no reward model of the type '{name}'$") for name in ("falcon_h1", "cohere", "olmoe", "lfm2")),
    ):
        with pytest.raises(ValueError, match=says) as caught:
            RewardModel.from_policy(model, VOCABULARY)
        assert "<class" not in str(caught.value)
        assert "\n" not in str(caught.value)
    save_policy(tmp_path, tiny("falcon_h1"), VOCABULARY)
    with pytest.raises(ValueError, match="no reward model of the type 'falcon_h1'$"):
        load_reward_model(tmp_path)


def test_a_model_that_reads_ahead_is_refused_though_its_config_names_no_length(tmp_path):
    """XLNet's config says -1, which is no length; and it has no cache of ours."""
    from transformers import XLNetConfig, XLNetLMHeadModel

    sizes = {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64}
    model = XLNetLMHeadModel(XLNetConfig(vocab_size=40, eos_token_id=0, bos_token_id=None, **sizes)).eval()
    assert model.config.max_position_embeddings == -1
    assert context_length(model) > 10**9
    save_policy(tmp_path, model, VOCABULARY)
    for load in (load_policy, lambda folder: load_pretrained(str(folder))):
        with pytest.raises(
            ValueError, match="XLNetLMHeadModel has no cache to go on from in sampling.*take another"
        ) as caught:
            load(tmp_path)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("limit", [-1, 0])
def test_a_largest_length_that_is_none_is_no_limit(limit):
    model = tiny_llama(5)
    model.config.max_position_embeddings = limit
    assert context_length(model) > 10**9


def test_a_config_without_a_largest_length_has_no_limit():
    assert context_length(tiny_llama(5, max_length=48)) == 48
    model = tiny("bloom", max_position_embeddings=None)
    assert context_length(model) > 10**9
    reward_model = RewardModel.from_policy(model, VOCABULARY)
    assert reward_model.score(["abc" * 40], ["d"]).isfinite().all()


# --- rounding is no fault -----------------------------------------------------------------------------------------


def after_a_high_rate(architecture, seed, dtype=torch.float32):
    """A model whose LoRA has weights so large that attention turns rounding into much more."""
    model = tiny(architecture, num_hidden_layers=4, seed=seed).to(dtype)
    add_lora(model, rank=4, seed=seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_" in name:
                weight.copy_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(seed)))
    return model


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("architecture", "seeds"), [("smollm3", range(16)), ("qwen2", range(6)), ("mixtral", range(3))]
)
def test_a_policy_that_enlarges_rounding_is_saved_and_read_again(architecture, seeds, dtype, tmp_path):
    for seed in seeds:
        save_policy(tmp_path, after_a_high_rate(architecture, seed, dtype), VOCABULARY)
        load_policy(tmp_path)
