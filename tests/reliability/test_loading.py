"""Loading never executes: a folder full of bombs is refused in one line, and nothing goes off."""

import ast
import contextlib
import json
import pickle
import shutil
from hashlib import sha256
from pathlib import Path

import pytest

from rlhf_minimal.cli import main
from rlhf_minimal.models import RewardModel, Vocabulary, load_pretrained, load_reward_model, tiny_llama
from rlhf_minimal.tasks import CompletionRow, read_rows
from rlhf_minimal.training import Learner, load_policy, save_policy, write_folder

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


def test_a_trainers_state_is_not_unpickled(folders, mark):
    from rlhf_minimal import ALGORITHMS
    from rlhf_minimal.training import Config

    config = Config(prompts=2, group_size=2)
    policy, vocabulary = load_policy(folders / "policy")
    Learner.begin(policy, vocabulary, ALGORITHMS["grpo"], config).save(folders / "run", {})
    for name in ("trainer.safetensors", "trainer.json"):
        other = folders / name
        shutil.copytree(folders / "run", other)
        (other / name).write_bytes(pickle.dumps(Bomb(mark)))
        with pytest.raises(ValueError, match="cannot read the checkpoint"):
            Learner.resume(other, ALGORITHMS["grpo"], config, "cpu")
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

FORBIDDEN_MODULES = {"pickle", "_pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "yaml"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}
RUNS_PROGRAMS = {"runpy", "importlib", "subprocess", "imp"}  # in the one file that runs what the command line names


def forbidden(source, modules=FORBIDDEN_MODULES | RUNS_PROGRAMS):
    """Whatever in a source reads pickles or runs what it has read."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.split(".")[0] in modules]
        elif isinstance(node, ast.ImportFrom):
            found += [node.module] if (node.module or "").split(".")[0] in modules else []
            found += ["torch.load"] if node.module == "torch" and "load" in {a.name for a in node.names} else []
        elif isinstance(node, ast.Call):
            name = node.func.id if isinstance(node.func, ast.Name) else None
            found += [name] if name in FORBIDDEN_CALLS else []
            if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
                dotted = f"{node.func.value.id}.{node.func.attr}"
                found += [dotted] if dotted in ("torch.load", "np.load", "numpy.load") else []
            for keyword in node.keywords:
                value = keyword.value
                trusting = keyword.arg in ("trust_remote_code", "allow_pickle")
                found += [keyword.arg] if trusting and not (isinstance(value, ast.Constant) and not value.value) else []
    return found


@pytest.mark.parametrize("file", sorted(PACKAGE.rglob("*.py")), ids=lambda file: str(file.relative_to(PACKAGE)))
def test_no_module_can_read_a_pickle_or_run_what_it_reads(file):
    may_run = file == PACKAGE / "cli" / "programs.py"
    assert forbidden(file.read_text(), FORBIDDEN_MODULES | (set() if may_run else RUNS_PROGRAMS)) == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "import runpy",
        "from importlib import import_module",
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
