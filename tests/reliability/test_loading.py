"""Loading never executes: a folder full of bombs is refused in one line, and nothing goes off."""

import ast
import contextlib
import json
import pickle
import shutil
from hashlib import sha256
from pathlib import Path

import pytest
import safetensors.torch
import torch
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel

from rlhf_minimal.cli import main
from rlhf_minimal.lab.rows import read_rows
from rlhf_minimal.models import (
    RewardModel,
    Vocabulary,
    character_tokenizer,
    load_pretrained,
    load_reward_model,
    tiny_llama,
)
from rlhf_minimal.runs import resume_learner, save_learner
from rlhf_minimal.tasks import CompletionRow
from rlhf_minimal.train_state import Learner
from rlhf_minimal.training import load_policy, save_policy, write_folder

PACKAGE = Path(__file__).resolve().parent.parent.parent / "rlhf_minimal"
VOCABULARY = Vocabulary("abc")


class Bomb:
    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return (Path.touch, (self.mark,))


@pytest.fixture
def mark(tmp_path):
    """The file that exists once a bomb has gone off."""
    mark = tmp_path / "exploded"
    pickle.loads(pickle.dumps(Bomb(mark)))
    assert mark.exists()  # it does go off where a pickle is read
    mark.unlink()
    return mark


@pytest.fixture
def folders(tmp_path):
    policy = tiny_llama(4, width=16, layers=1, heads=2)
    write_folder(tmp_path / "policy", lambda new: save_policy(new, policy, VOCABULARY))
    reward_model = RewardModel.from_policy(policy, VOCABULARY)
    write_folder(tmp_path / "reward", reward_model.save)
    return tmp_path


LOADERS = {"policy": load_policy, "reward": load_reward_model}


def refuses(load, folder, mark):
    with pytest.raises(ValueError, match="cannot read|cannot load|holds no") as error:
        load(folder)
    assert "\n" not in str(error.value)
    assert not mark.exists()


@pytest.mark.parametrize("kind", LOADERS)
@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "vocabulary.json", None])
def test_a_pickle_in_the_place_of_a_file_is_not_read(folders, mark, kind, file):
    load = LOADERS[kind]
    load(folders / kind)
    for path in list((folders / kind).iterdir()):
        if file in (path.name, None):
            path.write_bytes(pickle.dumps(Bomb(mark)))
    refuses(load, folders / kind, mark)


@pytest.mark.parametrize("kind", LOADERS)
def test_weights_that_lie_there_as_a_pickle_are_not_taken(folders, mark, kind):
    folder = folders / kind
    (folder / "model.safetensors").rename(folder / "elsewhere")
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb(mark)))
    with pytest.raises(ValueError, match="no checkpoint"):
        LOADERS[kind](folder)
    with pytest.raises(ValueError, match="cannot load the model"):
        load_pretrained(str(folder))
    assert not mark.exists()


@pytest.mark.parametrize("kind", LOADERS)
@pytest.mark.parametrize("model_type", ["llama", "of_my_own"])
def test_code_that_a_folder_brings_along_is_not_run(folders, mark, kind, model_type):
    folder = folders / kind
    (folder / "evil.py").write_text(f"from pathlib import Path\nPath({str(mark)!r}).touch()\n")
    names = ("AutoConfig", "AutoModelForCausalLM", "AutoModelForSequenceClassification", "AutoModel")
    own = {"auto_map": dict.fromkeys(names, "evil.Evil"), "model_type": model_type}
    config = json.loads((folder / "config.json").read_text()) | own
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "vocabulary.json").unlink()
    tokenizer = json.loads((folder / "tokenizer_config.json").read_text())
    tokenizer |= {"tokenizer_class": "Evil", "auto_map": {"AutoTokenizer": ["evil.Evil", "evil.Evil"]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    with contextlib.suppress(ValueError):  # where transformers knows the type, its own classes may read the rest
        LOADERS[kind](folder)
    assert not mark.exists()
    with pytest.raises(ValueError, match="trust_remote_code"):
        load_pretrained(str(folder), trust_remote_code=True)
    assert not mark.exists()


# --- weights that are not the model's --------------------------------------------------------------------------------


def named_pretrained(folder):
    return load_pretrained(str(folder))


def rewritten(folder, change):
    """The folder with other tensors in its file; `change` takes and gives a dict."""
    file = folder / "model.safetensors"
    tensors = {name: tensor.clone() for name, tensor in safetensors.torch.load_file(file).items()}
    safetensors.torch.save_file(change(tensors), file, metadata={"format": "pt"})


NORM = "model.norm.weight"
DAMAGES = {
    "one is missing": (lambda w: {k: v for k, v in w.items() if k != NORM}, [f"missing: {NORM}"]),
    "all are missing": (lambda w: {}, ["missing: ", "in all)"]),
    "all have other names": (
        lambda w: {f"module.x.{k}": v for k, v in w.items()},
        ["missing: ", "not of this model: module.x.", "in all)"],
    ),
    "one is too many": (lambda w: w | {"extra.weight": torch.ones(2)}, ["not of this model: extra.weight"]),
    "one has another shape": (lambda w: w | {NORM: torch.ones(3)}, [f"of another shape: {NORM} (3, not 16)"]),
    "one is of integers": (
        lambda w: w | {NORM: w[NORM].to(torch.int32)},
        ["not floating-point numbers", f"{NORM} (I32)"],
    ),
    "one is of truth values": (lambda w: w | {NORM: w[NORM] > 0}, ["not floating-point numbers", f"{NORM} (BOOL)"]),
}
WAYS = {"--model": ("policy", named_pretrained), "--start": ("policy", load_policy)}
WAYS |= {"--reward-model": ("reward", load_reward_model)}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("damage", DAMAGES)
def test_weights_that_are_not_the_models_are_refused_by_name(folders, way, damage):
    kind, load = WAYS[way]
    load(folders / kind)
    change, words = DAMAGES[damage]
    rewritten(folders / kind, change)
    with pytest.raises(ValueError, match="cannot load the model|cannot read the checkpoint|no reward model") as caught:
        load(folders / kind)
    said = str(caught.value)
    assert "\n" not in said
    if "no reward model" not in said:
        assert all(part in said for part in words)
    else:
        assert damage.startswith("all ")


def test_weights_that_a_file_may_leave_out_are_not_missed(folders):
    """Tied weights stand in the file once, under either name; positions are computed."""
    want = load_policy(folders / "policy")[0](torch.tensor([[1, 2, 3]])).logits
    for name, other in (
        ("lm_head.weight", "model.embed_tokens.weight"),
        ("model.embed_tokens.weight", "lm_head.weight"),
    ):
        rewritten(folders / "policy", lambda w: {other if k == name else k: v for k, v in w.items()})  # noqa: B023
        for load in (load_policy, named_pretrained):
            torch.testing.assert_close(load(folders / "policy")[0](torch.tensor([[1, 2, 3]])).logits, want)
    rewritten(folders / "policy", lambda w: w | {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)})
    named_pretrained(folders / "policy")  # as models of 2023 have it


def test_old_masks_among_the_weights_are_no_weights(tmp_path):
    """GPT-2's files hold its causal mask as truth values: transformers knows and leaves it."""
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=4, n_positions=16, n_embd=16, n_layer=1, n_head=2, eos_token_id=0, bos_token_id=None)
    GPT2LMHeadModel(config).save_pretrained(tmp_path)
    character_tokenizer("abc").save_pretrained(tmp_path)
    rewritten(tmp_path, lambda w: w | {"h.0.attn.bias": torch.ones(1, 1, 16, 16, dtype=torch.bool)})
    load_pretrained(str(tmp_path))
    rewritten(tmp_path, lambda w: w | {"transformer.ln_f.weight": torch.ones(16, dtype=torch.int8)})
    with pytest.raises(ValueError, match=r"not floating-point numbers: transformer.ln_f.weight \(I8\)"):
        load_pretrained(str(tmp_path))


def sharded(folder):
    """The folder's weights behind an index, and the file of one of them."""
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    safetensors.torch.save_file(tensors, folder / "part.safetensors", metadata={"format": "pt"})
    return dict.fromkeys(tensors, "part.safetensors")


def write_index(folder, weights):
    index = {"metadata": {"total_size": 1}, "weight_map": weights}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


@pytest.mark.parametrize("file", ["evil.bin", "../part.safetensors", "/etc/passwd", "evil", "sub/part.safetensors", 3])
def test_an_index_names_safetensors_files_of_its_own_folder(folders, mark, file):
    folder = folders / "policy"
    weights = sharded(folder)
    write_index(folder, weights)
    load_pretrained(str(folder))
    name = next(iter(weights))
    shutil.copy(folder / "part.safetensors", folders / "part.safetensors")
    (folder / "sub").mkdir()
    shutil.copy(folder / "part.safetensors", folder / "sub")
    torch.save({name: torch.ones(4, 16)}, folder / "evil.bin")  # harmless, and read if nobody looked
    (folder / "evil").write_bytes(pickle.dumps(Bomb(mark)))
    write_index(folder, weights | {name: file})
    with pytest.raises(ValueError, match="cannot load the model") as caught:
        load_pretrained(str(folder))
    assert "model.safetensors.index.json" in str(caught.value)
    assert "never from pickles" in str(caught.value) or file == 3
    assert not mark.exists()


def test_shards_are_held_to_the_same(folders):
    folder = folders / "policy"
    weights = sharded(folder)
    write_index(folder, weights)
    tensors = safetensors.torch.load_file(folder / "part.safetensors")
    safetensors.torch.save_file(
        tensors | {NORM: torch.ones(16, dtype=torch.int32)}, folder / "part.safetensors", metadata={"format": "pt"}
    )
    with pytest.raises(ValueError, match=r"not floating-point numbers: model.norm.weight \(I32\)"):
        load_pretrained(str(folder))


@pytest.mark.parametrize("kind", ["policy", "reward"])
@pytest.mark.parametrize("file", ["adapter_model.bin", "../model.safetensors", "index.safetensors.index.json"])
def test_a_config_that_names_its_weights_is_held_to_the_same(folders, kind, file):
    folder = folders / kind
    shutil.copy(folder / "model.safetensors", folders / "model.safetensors")
    torch.save(safetensors.torch.load_file(folder / "model.safetensors"), folder / "adapter_model.bin")
    weights = dict.fromkeys(safetensors.torch.load_file(folder / "model.safetensors"), "adapter_model.bin")
    index = {"metadata": {"total_size": 1}, "weight_map": weights}
    (folder / "index.safetensors.index.json").write_text(json.dumps(index))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"transformers_weights": file}))
    with pytest.raises(ValueError, match="never from pickles"):
        {"policy": named_pretrained, "reward": load_reward_model}[kind](folder)


@pytest.mark.parametrize("kind", ["policy", "reward"])
def test_an_adapter_is_no_model(folders, mark, kind):
    """transformers would read it without a word, from a pickle if that is what there is."""
    folder = folders / kind
    own = {"peft_type": "LORA", "base_model_name_or_path": str(folder), "r": 2, "target_modules": ["q_proj"]}
    (folder / "adapter_config.json").write_text(json.dumps(own))
    (folder / "adapter_model.bin").write_bytes(pickle.dumps(Bomb(mark)))
    with pytest.raises(ValueError, match="it holds an adapter of PEFT, not a whole model"):
        {"policy": named_pretrained, "reward": load_reward_model}[kind](folder)
    assert not mark.exists()


def test_a_gguf_file_without_a_weight_is_refused_by_name(folders, capsys):
    gguf = pytest.importorskip("gguf")
    model = tiny_llama(4, width=32, layers=1, heads=2)
    for left_out in (None, "output_norm.weight"):
        file = folders / "tiny.gguf"
        write_gguf(gguf, file, model, left_out)
        if left_out is None:
            got = load_pretrained(str(file))[0]
            assert capsys.readouterr().err == ""  # no progress bar
            ids = torch.tensor([[1, 2, 3]])
            torch.testing.assert_close(got(ids).logits, model(ids).logits)
        else:
            with pytest.raises(ValueError, match="cannot load the model .*missing: model.norm.weight"):
                load_pretrained(str(file))


def write_gguf(gguf, file, model, left_out):
    """A llama in one file, as llama.cpp names its parts."""
    config = model.config
    writer = gguf.GGUFWriter(str(file), "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(100.0)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(["<|end|>", "a", "b", "ab"])
    writer.add_token_types([3, 1, 1, 1])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    names = {"model.embed_tokens": "token_embd", "model.norm": "output_norm"}
    parts = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v"}
    parts |= {"self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up"}
    parts |= {"mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
    names |= {f"model.layers.0.{part}": f"blk.0.{other}" for part, other in parts.items()}
    for name, other in names.items():
        weight = model.get_submodule(name).weight.detach()
        if name.endswith(("q_proj", "k_proj")):  # llama.cpp keeps the pairs that are turned next to each other
            heads = config.num_attention_heads
            weight = weight.view(heads, 2, -1, weight.shape[1]).transpose(1, 2).reshape(weight.shape)
        if f"{other}.weight" != left_out:
            writer.add_tensor(f"{other}.weight", weight.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("way", ["--model", "--start"])
def test_an_encoder_is_refused(tmp_path, way):
    config = BertConfig(
        vocab_size=4, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, eos_token_id=0
    )
    BertForMaskedLM(config).save_pretrained(tmp_path)
    character_tokenizer("abc").save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="is an encoder, which sees later tokens; use a causal language model"):
        WAYS[way][1](tmp_path)


@pytest.mark.parametrize("way", WAYS)
def test_a_config_that_asks_for_tuples_is_overruled(folders, way):
    kind, load = WAYS[way]
    path = folders / kind / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"return_dict": False}))
    loaded = load(folders / kind)
    if kind == "reward":
        assert loaded.score(["a"], ["b"]).shape == (1,)
    else:
        assert loaded[0](torch.tensor([[1, 2]])).logits.shape == (1, 2, 4)


@pytest.mark.parametrize("kind", LOADERS)
@pytest.mark.parametrize("alphabet", ["ab", "abcd"])
def test_an_alphabet_of_another_size_is_not_the_models(folders, kind, alphabet):
    (folders / kind / "vocabulary.json").write_text(json.dumps({"alphabet": alphabet}))
    with pytest.raises(
        ValueError, match="cannot read the checkpoint in .*vocabulary.json does not belong to this model"
    ):
        LOADERS[kind](folders / kind)


@pytest.mark.parametrize("way", WAYS)
def test_weights_are_read_in_float32_whatever_the_config_says(folders, way):
    """AdamW's small steps would be lost to rounding in bfloat16."""
    kind, load = WAYS[way]
    path = folders / kind / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"dtype": "bfloat16"}))
    loaded = load(folders / kind)
    model = loaded.model if kind == "reward" else loaded[0]
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}
    assert model.config.dtype == torch.float32  # a checkpoint of it says so, too


@pytest.mark.parametrize("way", WAYS)
def test_a_token_that_the_model_does_not_know_is_named(folders, way):
    kind, load = WAYS[way]
    character_tokenizer("abcd").save_pretrained(folders / kind)
    (folders / kind / "vocabulary.json").write_text('{"chat": false}')
    loaded = load(folders / kind)
    vocabulary = loaded.vocabulary if kind == "reward" else loaded[1]
    assert vocabulary.encode("abc") == [1, 2, 3]
    with pytest.raises(ValueError, match="the tokenizer writes 'd' as token 4, and the model knows 4 only"):
        vocabulary.encode("abd")
    own = character_tokenizer("abcd")
    own.eos_token = "d"
    own.save_pretrained(folders / kind)
    with pytest.raises(ValueError, match="the tokenizer's end token has the id 4, and the model knows 4"):
        load(folders / kind)


@pytest.mark.parametrize("damage", ["one is missing", "one has another shape", "one is of integers"])
def test_the_weights_of_a_resumed_run_are_held_to_the_same(folders, damage):
    from rlhf_minimal import ALGORITHMS
    from rlhf_minimal.config import Config

    for lora_rank, name in ((2, "model.layers.0.mlp.up_proj.lora_A.default.weight"), (None, NORM)):
        config = Config(prompts=2, group_size=2, lora_rank=lora_rank)
        algorithm = ALGORITHMS["grpo"]
        policy, vocabulary = load_policy(folders / "policy")
        run = folders / f"run{lora_rank}"
        save_learner(Learner.begin(policy, vocabulary, algorithm, config), run, {})
        resume_learner(run, algorithm, config, "cpu")
        key = f"{'start' if lora_rank is None else 'adapter'}.{name}"
        tensors = safetensors.torch.load_file(run / "trainer.safetensors")
        other = {"one has another shape": torch.ones(3, 3), "one is of integers": tensors[key].int()}
        changed = {k: v for k, v in tensors.items() if k != key}
        if damage in other:
            changed[key] = other[damage]
        safetensors.torch.save_file(changed, run / "trainer.safetensors")
        with pytest.raises(ValueError, match=name.replace(".", r"\.")):
            resume_learner(run, algorithm, config, "cpu")


def test_a_trainers_state_is_not_unpickled(folders, mark):
    from rlhf_minimal import ALGORITHMS
    from rlhf_minimal.config import Config

    config = Config(prompts=2, group_size=2)
    policy, vocabulary = load_policy(folders / "policy")
    save_learner(Learner.begin(policy, vocabulary, ALGORITHMS["grpo"], config), folders / "run", {})
    for name in ("trainer.safetensors", "trainer.json"):
        other = folders / name
        shutil.copytree(folders / "run", other)
        (other / name).write_bytes(pickle.dumps(Bomb(mark)))
        with pytest.raises(ValueError, match="cannot read the checkpoint"):
            resume_learner(other, ALGORITHMS["grpo"], config, "cpu")
        assert not mark.exists()


def test_rows_and_runs_are_not_unpickled(folders, mark, capsys, monkeypatch):
    monkeypatch.chdir(folders)
    file = folders / "rows.jsonl"
    file.write_bytes(pickle.dumps(Bomb(mark)))
    with pytest.raises(ValueError, match="rows.jsonl"):
        read_rows(file, CompletionRow, VOCABULARY, max_length=9)
    (folders / "run").mkdir()
    for name in ("config.json", "metrics.jsonl"):
        (folders / "run" / name).write_bytes(pickle.dumps(Bomb(mark)))
    assert main(["train", "grpo", "--resume", "--out", "run"]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not mark.exists()


@pytest.mark.parametrize("setting", ["algorithm", "task"])
@pytest.mark.parametrize("words", ["train grpo --resume --out", "sample", "evaluate", "export --to trl"])
def test_a_program_that_a_run_folder_names_is_not_run(folders, mark, capsys, monkeypatch, setting, words):
    """A stranger's folder brings a program along, and its config.json names it with the right checksum."""
    monkeypatch.chdir(folders)
    tiny = ["--steps", "1", "--prompts", "2", "--group-size", "2", "--held-out", "2", "--out", "run"]
    assert main(["train", "grpo", *tiny]) == 0
    evil = folders / "run" / "evil.py"
    evil.write_text(f"from pathlib import Path\nPath({str(mark)!r}).touch()\n")
    config = json.loads((folders / "run" / "config.json").read_text())
    config |= {setting: "run/evil.py:NAME", "programs": {"run/evil.py:NAME": sha256(evil.read_bytes()).hexdigest()}}
    (folders / "run" / "config.json").write_text(json.dumps(config))
    capsys.readouterr()
    answers = setting == "algorithm" and words.startswith(("sample", "evaluate"))  # which need no algorithm
    assert main([*words.split(), "run"]) == (0 if answers else 1)
    assert len(capsys.readouterr().err.splitlines()) == (0 if answers else 1)
    assert not mark.exists()


# --- what could execute is not even there ----------------------------------------------------------------------------

FORBIDDEN_MODULES = {"pickle", "_pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}
# What runs a program, which only the file does that runs what the command line names.
RUNS_PROGRAMS = {"runpy", "imp", "subprocess"}
FORBIDDEN_METHODS = {"exec_module", "import_module", "load_module", "run_path", "run_module"}


def forbidden(source, modules=FORBIDDEN_MODULES | RUNS_PROGRAMS):
    """Whatever in a source reads pickles or runs what it has read."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.split(".")[0] in modules]
        elif isinstance(node, ast.ImportFrom):
            found += [node.module] if (node.module or "").split(".")[0] in modules else []
            found += ["yaml"] if node.module == "yaml" else []
            found += ["torch.load"] if node.module == "torch" and "load" in {a.name for a in node.names} else []
        elif isinstance(node, ast.Call):
            name = node.func.id if isinstance(node.func, ast.Name) else None
            found += [name] if name in FORBIDDEN_CALLS else []
            method = getattr(node.func, "attr", None)
            found += [method] if method in FORBIDDEN_METHODS and "runpy" in modules else []
            if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
                dotted = f"{node.func.value.id}.{node.func.attr}"
                reads_yaml = dotted.startswith("yaml.") and dotted != "yaml.safe_load"  # which makes plain values only
                found += [dotted] if reads_yaml or dotted in ("torch.load", "np.load", "numpy.load") else []
            for keyword in node.keywords:
                value = keyword.value
                trusting = keyword.arg in ("trust_remote_code", "allow_pickle")
                found += [keyword.arg] if trusting and not (isinstance(value, ast.Constant) and not value.value) else []
    return found


@pytest.mark.parametrize("file", sorted(PACKAGE.rglob("*.py")), ids=lambda file: str(file.relative_to(PACKAGE)))
def test_no_module_can_read_a_pickle_or_run_what_it_reads(file):
    # a user's own program; a command and a task of the lab by their names; formulas in a process that can be killed
    runs = ("cli/python_file.py", "cli/__init__.py", "tasks/__init__.py", "lab/math_answers.py")
    may_run = file.relative_to(PACKAGE).as_posix() in runs
    assert forbidden(file.read_text(), FORBIDDEN_MODULES | (set() if may_run else RUNS_PROGRAMS)) == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "import runpy",
        "yaml.load(text, Loader=yaml.Loader)",
        "yaml.unsafe_load(text)",
        "from yaml import load",
        "importlib.import_module('x')",
        "spec.loader.exec_module(module)",
        "from pickle import loads",
        "from torch import load",
        "torch.load('x')",
        "eval('1')",
        "f(trust_remote_code=True)",
        "f(trust_remote_code=anything)",
    ],
)
def test_the_search_finds_every_form(source):
    assert forbidden(source)


def test_every_transformers_loader_is_told_not_to_trust():
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                owner = getattr(node.func.value, "id", "")
                if owner.startswith("Auto") and node.func.attr == "from_pretrained":
                    assert "trust_remote_code" in {k.arg for k in node.keywords}, (file.name, node.lineno)
