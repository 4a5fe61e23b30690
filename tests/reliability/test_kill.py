"""Kill -9 at any moment: a whole checkpoint is left, and a resumed run repeats the uninterrupted one bit for bit."""

import random
import shutil
import sys
from pathlib import Path

import pytest
import torch

from rlhf_minimal.model_files import find_checkpoint
from rlhf_minimal.models import Vocabulary, tiny_llama
from rlhf_minimal.runs import save_learner
from rlhf_minimal.tasks import get_task
from rlhf_minimal.train import collect, train_step
from rlhf_minimal.train_state import Learner
from rlhf_minimal.training import save_policy, write_folder
from rlhf_minimal.training.run_folder import RunFolder

sys.path.insert(0, str(Path(__file__).parent))
import scenes

KILLED = -9


# --- at every point of a checkpoint's write ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    """A checkpoint of step 1, and what it holds after one more step."""
    folder = tmp_path_factory.mktemp("learner")
    vocabulary = Vocabulary(get_task("even").alphabet)
    policy = tiny_llama(len(vocabulary), width=16, layers=1, heads=2)
    write_folder(folder / "checkpoint", lambda new: save_policy(new, policy, vocabulary))
    recipe = scenes.recipe()
    learner = Learner.begin(policy, vocabulary, recipe.algorithm, recipe.config)
    train_step(learner, recipe)
    save_learner(learner, folder / "checkpoint", {})
    return folder


def everything(folder):
    """All that a resumed run begins with, as tensors by name: what is carried, and what would be drawn next."""
    learner, recipe = scenes.learner(folder)
    found = {f"policy.{k}": v for k, v in learner.policy.state_dict().items()}
    found |= {f"start.{k}": v for k, v in learner.start.state_dict().items()}
    found |= {f"reference.{k}": v for k, v in learner.reference.state_dict().items()}
    found |= {f"critic.{k}": v for k, v in learner.critic.state_dict().items()}
    for name in ("optimizer", "critic_optimizer"):
        state = getattr(learner, name).state_dict()["state"]
        assert state, "no moments: nothing would be compared"
        found |= {f"{name}.{i}.{k}": v for i, moments in state.items() for k, v in moments.items()}
    scores = learner.scores
    numbers = [learner.step, learner.mean_reward, learner.kl_factor, scores.count, scores.mean, scores.squares]
    found["numbers"] = torch.tensor(numbers, dtype=torch.float64)
    batch, _ = collect(learner.policy, learner.vocabulary, recipe, learner.step + 1)
    names = ("prompts", "completions", "logp", "rewards")
    return found | {f"next.{name}": getattr(batch, name) for name in names}


def equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_killed_at_every_change_of_a_checkpoints_write_the_old_one_or_the_new_one_is_left(
    command, before, state, tmp_path
):
    old = everything(before / "checkpoint")
    shutil.copytree(before, tmp_path / "whole")
    whole = command(tmp_path / "whole", scene="take_a_step_and_save")
    assert whole.code == 0, whole.err
    new = everything(tmp_path / "whole" / "checkpoint")
    assert not equal(old, new)
    assert sum(change.startswith("os.rename") for change in whole.changes) == 2  # the swap itself is among the points
    assert len(whole.changes) > 25

    # Equal files are equal tensors, moments, numbers and draws, which `everything` has just looked at.
    files = {name: state(place / "checkpoint") for name, place in {"old": before, "new": tmp_path / "whole"}.items()}
    left = []
    for point in range(1, len(whole.changes)):  # the last line is the count
        folder = tmp_path / "cut"
        shutil.copytree(before, folder)
        assert command(folder, scene="take_a_step_and_save", kill_at=point).code == KILLED
        found = state(find_checkpoint(folder / "checkpoint"))
        assert found in files.values(), whole.changes[point - 1]
        left.append("old" if found == files["old"] else "new")
        if left[-1] == "old" and point % 5 == 0:  # what lies about does not hinder the next attempt
            assert command(folder, scene="take_a_step_and_save").code == 0
            assert equal(everything(folder / "checkpoint"), new)
            assert {path.name for path in folder.iterdir()} == {"checkpoint"}
        shutil.rmtree(folder)
    assert left == sorted(left, reverse=True)  # old up to one point, new from there on
    assert {"old", "new"} == set(left)


# --- anywhere in a run -----------------------------------------------------------------------------------------------

TINY = "--steps 5 --prompts 2 --group-size 4 --held-out 4 --save-every 2"
EVERYTHING = "--reference ema --kl-control adaptive --kl-control-horizon 100 --score-scaling running --epochs 2"
RUNS = {
    "train": f"train ppo {TINY} {EVERYTHING}",
    "sft": "sft --steps 5 --batch-size 4 --rows 12 --held-out 4 --save-every 2 --task addition --start shipped",
    "reward": "reward --steps 5 --batch-size 4 --rows 12 --held-out 8 --save-every 2 --task addition",
    "prefer": "prefer dpo --steps 5 --batch-size 4 --rows 12 --held-out 8 --save-every 2 --task addition",
    "imitate": "pretrain --steps 5 --batch-size 4 --held-out 4 --save-every 2 --accept 9",
    "pretrain": "pretrain --steps 5 --batch-size 4 --rows 12 --held-out 4 --save-every 2 --task reviews",
}


def again(name):
    return {"train": "train ppo", "prefer": "prefer dpo", "imitate": "pretrain"}.get(name, name) + " --out run --resume"


@pytest.fixture(scope="module")
def whole(command, tmp_path_factory):
    """Every command's run without interruption."""
    runs = {}

    def run(name):
        if name not in runs:
            folder = tmp_path_factory.mktemp(name)
            ended = command(folder, f"{RUNS[name]} --out run")
            assert ended.code == 0, ended.err
            runs[name] = folder / "run", ended
        return runs[name]

    return run


@pytest.mark.parametrize(
    ("name", "draw"), [(name, draw) for name in RUNS for draw in range(4 if name == "train" else 2)]
)
def test_killed_at_a_random_change_and_resumed_the_run_is_the_same(command, whole, same_run, tmp_path, name, draw):
    run, ended = whole(name)
    last = len(ended.changes) - 1
    first = 1 + next(i for i, change in enumerate(ended.changes) if "checkpoint.new" in change)
    rng = random.Random(f"{name}/{draw}")
    point = rng.randint(first, last)
    assert command(tmp_path, f"{RUNS[name]} --out run", kill_at=point).code == KILLED
    if RunFolder(tmp_path / "run").whole_step() is None:  # the very first checkpoint was not there yet
        refused = command(tmp_path, again(name))
        assert refused.code == 1
        assert "--overwrite starts it again" in refused.line
        resumed = command(tmp_path, f"{RUNS[name]} --out run --overwrite")
    else:
        command(tmp_path, again(name), kill_at=rng.randint(1, 60))  # once more, if it comes so far
        resumed = command(tmp_path, again(name))
    assert resumed.code == 0, resumed.err
    same_run(run, tmp_path / "run")


@pytest.mark.parametrize("draw", range(3))
def test_killed_by_the_clock_and_resumed_the_run_is_the_same(command, whole, same_run, tmp_path, draw):
    run, ended = whole("train")
    seconds = random.Random(draw).uniform(0.3, 0.9) * ended.seconds
    command(tmp_path, f"{RUNS['train']} --out run", kill_after=seconds)
    flag = "--resume" if RunFolder(tmp_path / "run").whole_step() is not None else "--overwrite"
    resumed = command(tmp_path, again("train") if flag == "--resume" else f"{RUNS['train']} --out run {flag}")
    assert resumed.code == 0, resumed.err
    same_run(run, tmp_path / "run")


def test_half_a_line_of_metrics_is_written_again(command, whole, same_run, tmp_path):
    run, _ = whole("train")
    point = _change(whole, "run/metrics.jsonl", 5)
    assert command(tmp_path, f"{RUNS['train']} --out run", kill_at=point).code == KILLED
    file = tmp_path / "run" / "metrics.jsonl"
    assert len(file.read_text().splitlines()) >= 3
    file.write_text(file.read_text()[:-30])
    assert command(tmp_path, again("train")).code == 0
    same_run(run, tmp_path / "run")


def _change(whole, text, number):
    """The number of the change that names `text` for the `number`-th time."""
    found = [i for i, change in enumerate(whole("train")[1].changes, start=1) if change.endswith(text)]
    return found[number]


@pytest.mark.parametrize("overwrite", [False, True])
def test_killed_while_the_folder_is_made_it_is_still_known_for_ours(command, whole, same_run, tmp_path, overwrite):
    run, _ = whole("train")
    if overwrite:
        shutil.copytree(run, tmp_path / "run")
    argv = f"{RUNS['train']} --out run" + " --overwrite" * overwrite
    for point in range(1, 24, 2):
        assert command(tmp_path, argv, kill_at=point).code == KILLED
        if (tmp_path / "run").exists() and any((tmp_path / "run").iterdir()):
            refused = command(tmp_path, f"{RUNS['train']} --out run")
            assert "--overwrite" in refused.line
            argv = f"{RUNS['train']} --out run --overwrite"
    assert command(tmp_path, argv).code == 0
    same_run(run, tmp_path / "run")


def test_overwriting_never_resumes_from_what_was_overwritten(command, whole, tmp_path):
    """A spare checkpoint of the old run must not be taken for one of the new."""
    shutil.copytree(whole("train")[0], tmp_path / "run")
    shutil.copytree(tmp_path / "run" / "checkpoint", tmp_path / "run" / "checkpoint.old")
    argv = f"{RUNS['train']} --out run --overwrite"
    changes = command(tmp_path, argv).changes
    shutil.copytree(tmp_path / "run" / "checkpoint", tmp_path / "run" / "checkpoint.old")
    begun = 1 + next(i for i, change in enumerate(changes) if "checkpoint.new/config.json" in change)
    assert command(tmp_path, argv, kill_at=begun).code == KILLED
    assert "--overwrite starts it again" in command(tmp_path, again("train")).line
