"""`pretrain` on texts, `sft`, `reward`, `prefer`, called in-process: whole runs, resumed ones, bad input."""

import json
import math
import shlex
import shutil
import signal

import pytest
import torch
from safetensors.torch import load_file

from rlhf_minimal.cli import main, parsed
from rlhf_minimal.lab.rows import TextRow, hold_out, read_rows, write_rows
from rlhf_minimal.models import RewardModel, Vocabulary, load_reward_model, tiny_llama
from rlhf_minimal.tasks import CompletionRow, PairRow, get_task
from rlhf_minimal.training import load_policy, save_policy, write_folder
from rlhf_minimal.training.progress import Progress
from tests.commands import SCORED, USUAL, fails
from tests.commands import rows as metrics

REVIEWS = get_task("reviews")
VOCABULARY = Vocabulary(REVIEWS.alphabet)
FAST = ["--steps", "4", "--batch-size", "8", "--held-out", "10", "--save-every", "2"]
OWN = ["--rows", "24"]

WORDS = {
    "pretrain": ["pretrain", "--task", "reviews"],
    "sft": ["sft", "--start", "{starts}/pretrain"],
    "reward": ["reward", "--start", "{starts}/sft"],
    "dpo": ["prefer", "dpo", "--start", "{starts}/sft"],
    "ipo": ["prefer", "ipo", "--start", "{starts}/sft"],
    "spin": ["prefer", "spin", "--start", "{starts}/sft"],
}
each = pytest.mark.parametrize("name", [name for name in WORDS if name != "ipo"])  # which goes as dpo does
KINDS = {"pretrain": TextRow, "sft": CompletionRow, "spin": CompletionRow}  # the others take pairs

PROMPTS = [f"{guest} {dish}?" for guest in ("ada", "bob", "mia") for dish in ("tea", "pie", "jam", "egg")]
DATA = {
    TextRow: [TextRow(f"hot tea. {prompt}") for prompt in PROMPTS],
    CompletionRow: [CompletionRow(prompt, "yum yum hot wow") for prompt in PROMPTS],
    PairRow: [PairRow(prompt, "yum wow", "bad dry") for prompt in PROMPTS],
}


@pytest.fixture(scope="session")
def starts(tmp_path_factory):
    """What a course has before: a pretrained and a fine-tuned policy, of a few steps each."""
    folder = tmp_path_factory.mktemp("starts")
    for name in ("pretrain", "sft"):
        words = [word.format(starts=folder) for word in WORDS[name]]
        assert main([*words, *OWN, *FAST, "--out", str(folder / name)]) == 0
    return folder


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a run without --out must land under the current folder, and only there


@pytest.fixture(scope="session")
def words(starts):
    return lambda name: [word.format(starts=starts) for word in WORDS[name]]


@pytest.fixture(scope="session")
def trained(words, tmp_path_factory):
    """The folder of a finished run, on rows of its own: one run of each kind for all tests."""
    folder = tmp_path_factory.mktemp("trained")

    def trained(name):
        if not (folder / name).exists():
            assert main([*words(name), *OWN, *FAST, "--out", str(folder / name)]) == 0
        return folder / name

    return trained


@pytest.fixture
def whole(trained, tmp_path):
    """Puts a copy of a finished run where a test may change it."""
    return lambda name, out: shutil.copytree(trained(name), tmp_path / out)


def data_file(path, name, rows=None):
    write_rows(path, rows or DATA[KINDS.get(name, PairRow)])
    return ["--data", str(path)]


def contents(run):
    """All that a run has come to, as values that can be compared: weights, moments, numbers, rows."""
    tensors = {
        f"{path.relative_to(run)}/{name}": value.tolist()
        for path in sorted(run.rglob("*.safetensors"))
        for name, value in load_file(path).items()
    }
    evaluation = json.loads((run / "evaluation.json").read_text())
    texts = [(run / name).read_text() for name in ("rows.jsonl", "held-out.jsonl", "report.txt")]
    return {"tensors": tensors, "metrics": metrics(run), "evaluation": evaluation, "texts": texts}


# --- a run ---------------------------------------------------------------------------------------------------------

FILES = {"config.json", "metrics.jsonl", "evaluation.json", "report.txt", "learning-curve.png", "checkpoint"}
FILES |= {"rows.jsonl", "held-out.jsonl", "run.lock"}


def settings_of(*words):
    """What a command would have as its settings, before anything is loaded."""
    args = parsed(list(words))
    return args.command._plan(args).settings


@pytest.mark.parametrize("words", ["pretrain --task reviews", "sft", "reward", "prefer dpo"])
def test_a_real_model_begins_with_a_rate_that_it_survives(words):
    words = [*words.split(), "--model", "smollm2-135m"]
    assert settings_of(*words)["lr"] == 1e-5
    assert settings_of(*words, "--lr", "0.25")["lr"] == 0.25
    assert settings_of(*words[:-2])["lr"] > 1e-4


def test_without_a_task_it_is_that_of_the_start(tmp_path, capsys):
    start = ["pretrain", "--task", "addition", "--steps", "2", "--accept", "9", "--held-out", "10", "--out"]
    assert main([*start, "first"]) == 0
    (tmp_path / "right.jsonl").write_text(
        '{"prompt": "1+2=", "completion": "3"}\n{"prompt": "2+3=", "completion": "5"}\n'
    )
    assert main(["sft", "--data", "right.jsonl", "--start", "first", "--steps", "1", "--out", "second"]) == 0
    assert json.loads((tmp_path / "second" / "config.json").read_text())["task"] == "addition"
    assert main(["sample", "second", "-n", "1"]) == 0
    for command in ("pretrain", "sft"):
        assert settings_of(command, "--start", "first")["task"] == "addition"
        assert settings_of(command, "--start", "first", "--task", "clock")["task"] == "clock"


def test_a_resumed_run_keeps_its_task_whatever_its_start_has(tmp_path):
    tiny = ["--steps", "1", "--prompts", "4", "--group-size", "4", "--held-out", "10"]
    words = ["train", "grpo", "--start", "first", "--out", "second", *tiny]
    assert main(["train", "grpo", "--out", "first", *tiny]) == 0
    assert main([*words, "--task", "addition2"]) == 0
    assert main([*words, "--resume"]) == 0
    assert json.loads((tmp_path / "second" / "config.json").read_text())["task"] == "addition2"


@pytest.fixture
def all_samples(monkeypatch):
    """As many samples are scored as outside of tests."""
    monkeypatch.setattr(SCORED, "__defaults__", USUAL)


@each
@pytest.mark.usefixtures("drawn", "all_samples")
@pytest.mark.parametrize("source", ["own", "file"])
def test_a_run_leaves_everything_behind(tmp_path, capsys, words, name, source):
    rows = OWN if source == "own" else data_file(tmp_path / "rows.jsonl", name)
    assert main([*words(name), *rows, *FAST, "--out", "run"]) == 0
    out, run = capsys.readouterr().out, tmp_path / "run"
    assert {path.name for path in run.iterdir()} - {"reference"} == FILES
    assert (run / "reference").exists() == (words(name)[0] == "prefer")
    assert "step 4/4" in out
    assert (run / "report.txt").read_text().strip() in out
    assert (run / "learning-curve.png").read_bytes().startswith(b"\x89PNG")

    history = metrics(run)
    assert [row["step"] for row in history] == [1, 2, 3, 4]
    assert ["held_out_loss" in row for row in history] == [False, True, False, True]
    evaluation = json.loads((run / "evaluation.json").read_text())
    assert evaluation["loss"] == pytest.approx(history[-1]["held_out_loss"], rel=1e-4)
    settings = json.loads((run / "config.json").read_text())
    assert (settings["command"], settings["steps"], settings["save_every"]) == (words(name)[0], 4, 2)

    kind = KINDS.get(name, PairRow)
    kept = [read_rows(run / f"{file}.jsonl", kind, VOCABULARY, max_length=64) for file in ("rows", "held-out")]
    if source == "file":
        assert kept == list(hold_out(DATA[kind], 10, REVIEWS.identity))
    else:
        assert [len(rows) for rows in kept] == [24, 10]
    if name == "reward":
        assert load_reward_model(run).mean != 0
        assert evaluation["pairs"] == len(kept[1])
    else:
        load_policy(run)
        assert evaluation["held_out"] == len(kept[1])
    assert ("score of 1000 samples (10 distinct problems) by the task" in out) == (
        source == "own" and name not in ("pretrain", "reward")
    )


@each
def test_training_rows_and_held_out_ones_share_no_prompt(tmp_path, words, name):
    assert main([*words(name), "--rows", "300", "--held-out", "60", "--steps", "1", "--out", "run"]) == 0
    texts = [(tmp_path / "run" / f"{file}.jsonl").read_text().splitlines() for file in ("rows", "held-out")]
    rows = [[json.loads(line) for line in lines] for lines in texts]
    column = "text" if name == "pretrain" else "prompt"
    seen = [{row[column] for row in part} for part in rows]
    assert not seen[0] & seen[1]
    if name != "pretrain":
        assert [{REVIEWS.is_held_out(prompt) for prompt in prompts} for prompts in seen] == [{False}, {True}]


def test_without_a_start_the_shipped_policy_of_the_task_is_taken(tmp_path):
    for words in (["reward"], ["prefer", "dpo"]):
        assert main([*words, *OWN, *FAST, "--out", words[0]]) == 0
        settings = json.loads((tmp_path / words[0] / "config.json").read_text())
        assert (settings["task"], settings["started_from"]) == ("reviews", "shipped (reviews)")


def test_the_course_from_texts_to_ppo(tmp_path, capsys, starts):
    """As the book has it: each command begins with what the one before has left."""
    assert main(["reward", "--start", str(starts / "sft"), *OWN, *FAST, "--out", "reward"]) == 0
    flags = ["--task", "reviews", "--steps", "1", "--prompts", "4", "--group-size", "2", "--held-out", "8"]
    ppo = ["train", "ppo", *flags, "--start", str(starts / "sft"), "--reward-model", "reward", "--out", "ppo"]
    assert main(ppo) == 0
    assert {"reward", "gold"} <= set(metrics(tmp_path / "ppo")[0])
    settings = json.loads((starts / "sft" / "config.json").read_text())
    assert settings["started_from"] == str(starts / "pretrain" / "checkpoint")


def test_scores_are_normalised_at_the_end_or_not(tmp_path, words):
    for how in ("samples", "none"):
        assert main([*words("reward"), *OWN, *FAST, "--normalize", how, "--out", how]) == 0
    plain, scaled = (load_reward_model(tmp_path / how) for how in ("none", "samples"))
    assert (plain.mean, plain.std) == (0.0, 1.0)
    rows = read_rows(tmp_path / "none" / "rows.jsonl", PairRow, VOCABULARY, max_length=64)
    answers = [row.chosen for row in rows] + [row.rejected for row in rows]
    scores = scaled.score([row.prompt for row in rows] * 2, answers)
    assert scores.mean().item() == pytest.approx(0, abs=1e-5)
    assert scores.std().item() == pytest.approx(1, abs=1e-5)
    raw = scaled.raw_scores([row.prompt for row in rows], [row.chosen for row in rows])
    assert torch.equal(raw, plain.raw_scores([row.prompt for row in rows], [row.chosen for row in rows]))


# --- without a reward model ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["dpo", "ipo", "spin"])
def test_a_preference_is_learnt_against_the_start(tmp_path, words, starts, name):
    """Twelve steps on eleven pairs that all say the same; one pair is held out."""
    rows = data_file(tmp_path / "rows.jsonl", name)
    flags = ["--steps", "12", "--batch-size", "11", "--lr", "2e-3", "--warm-up", "2", "--save-every", "12"]
    assert main([*words(name), *rows, *flags, "--out", "run"]) == 0
    history, evaluation = metrics(tmp_path / "run"), json.loads((tmp_path / "run" / "evaluation.json").read_text())
    first = {"ipo": 25.0}.get(name, math.log(2))  # (1 / (2 beta))^2, or the loss of a coin
    assert history[0]["loss"] == pytest.approx(first, abs=1e-4)
    assert history[-1]["gap"] > 1
    assert history[-1]["accuracy"] > 0.8
    assert evaluation["gap"] > 1
    assert evaluation["gap"] == pytest.approx(evaluation["chosen"] - evaluation["rejected"], abs=1e-4)
    reference, start = (
        load_file(folder / "model.safetensors") for folder in (tmp_path / "run/reference", starts / "sft/checkpoint")
    )
    assert all(torch.equal(reference[key], start[key]) for key in start)


def test_beta_is_the_rows_unless_it_is_given(tmp_path, words):
    rows = data_file(tmp_path / "rows.jsonl", "ipo")
    losses = []
    for beta in ([], ["--beta", "0.1"], ["--beta", "0.5"]):
        out = f"run{len(losses)}"
        assert main([*words("ipo"), *rows, "--steps", "1", *beta, "--out", out]) == 0
        losses.append(metrics(tmp_path / out)[0]["loss"])
    assert losses == pytest.approx([25.0, 25.0, 1.0], abs=1e-4)


def test_the_next_iteration_of_spin_begins_where_the_last_one_ended(tmp_path, whole):
    whole("spin", "first")
    assert main(["prefer", "spin", "--start", "first", *OWN, *FAST, "--out", "second"]) == 0
    end, reference = (
        load_file(tmp_path / name / "model.safetensors") for name in ("first/checkpoint", "second/reference")
    )
    assert all(torch.equal(end[key], reference[key]) for key in end)
    assert metrics(tmp_path / "second")[0]["loss"] == pytest.approx(math.log(2), abs=1e-4)


# --- stopping and going on -----------------------------------------------------------------------------------------


def press_ctrl_c(monkeypatch, at):
    update = Progress.update

    def pressing(self, step, row):
        update(self, step, row)
        if step == at:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Progress, "update", pressing)


@pytest.mark.parametrize(
    ("name", "source"),
    [("pretrain", "own"), ("pretrain", "file"), ("sft", "file"), ("reward", "own"), ("reward", "file"), ("dpo", "own")]
    + [("dpo", "file"), ("spin", "own")],
)
def test_ctrl_c_and_resume_repeat_every_bit(tmp_path, capsys, monkeypatch, words, whole, name, source):
    """The rows are the run's own by then: their file may be gone, or be another."""
    rows = OWN if source == "own" else data_file(tmp_path / "rows.jsonl", name)
    if source == "own":
        whole(name, "whole")
    else:
        assert main([*words(name), *rows, *FAST, "--out", "whole"]) == 0
    with monkeypatch.context() as patch:
        press_ctrl_c(patch, at=1 if source == "own" else 3)
        assert main([*words(name), *rows, *FAST, "--out", "cut"]) == 130
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert not (tmp_path / "cut" / "evaluation.json").exists()
    (load_reward_model if name == "reward" else load_policy)(tmp_path / "cut")
    if source == "file":
        data_file(tmp_path / "rows.jsonl", name, DATA[KINDS.get(name, PairRow)][:3])
    said = capsys.readouterr().out.splitlines()[-1]
    assert said.startswith(f"stopped after step {1 if source == 'own' else 3}; go on with: python -m rlhf_minimal ")
    assert main(shlex.split(said.partition(" rlhf_minimal ")[2])) == 0
    assert contents(tmp_path / "cut") == contents(tmp_path / "whole")


@pytest.mark.parametrize("name", ["sft", "reward", "spin"])
def test_a_crash_between_two_checkpoints_costs_the_steps_since_the_last(tmp_path, monkeypatch, words, name, whole):
    whole(name, "whole")
    update = Progress.update

    class Crash(BaseException):
        """Nothing that a command would catch."""

    def crash(self, step, row):
        if step == 3:
            raise Crash  # after its line in metrics.jsonl, with the checkpoint of step 2
        update(self, step, row)

    with monkeypatch.context() as patch:
        patch.setattr(Progress, "update", crash)
        with pytest.raises(Crash):
            main([*words(name), *OWN, *FAST, "--out", "cut"])
    assert len(metrics(tmp_path / "cut")) == 3
    assert main([*words(name), "--out", "cut", "--resume"]) == 0
    assert contents(tmp_path / "cut") == contents(tmp_path / "whole")


def test_a_finished_run_that_is_resumed_stays_as_it_is(tmp_path, words, whole):
    whole("reward", "run")
    before = contents(tmp_path / "run")
    assert main([*words("reward"), *OWN, *FAST, "--out", "run", "--resume"]) == 0  # the same words, and --resume
    assert contents(tmp_path / "run") == before


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("pretrain", ["--seed", "1"], "has seed 0, not 1"),
        ("pretrain", ["--task", "addition"], "has task reviews, not addition"),
        ("sft", ["--steps", "9"], "has steps 4, not 9"),
        ("sft", ["--start", "elsewhere"], "not elsewhere"),
        ("sft", ["--rows", "25"], "has rows 24, not 25"),
        ("sft", ["--data", "other.jsonl"], "has data None, not other.jsonl"),
        ("sft", ["--save-every", "3"], "has save_every 2, not 3"),
        ("reward", ["--normalize", "none"], "has normalize samples, not none"),
        ("reward", ["--lr", "0.5"], "has lr 0.002, not 0.5"),
        ("dpo", ["--beta", "0.3"], "has beta None, not 0.3"),
        ("dpo", ["--overwrite"], "--resume needs --out with the run to continue, and no --overwrite"),
    ],
)
def test_a_resumed_run_keeps_its_settings(tmp_path, capsys, words, name, change, message, whole):
    whole(name, "run")
    before = contents(tmp_path / "run")
    assert message in fails(capsys, *words(name), "--out", "run", "--resume", *change)
    assert contents(tmp_path / "run") == before


def test_only_a_run_of_the_same_command_is_resumed(tmp_path, capsys, whole):
    whole("dpo", "dpo")
    for command in ("pretrain", "sft", "reward"):
        assert f"was made by the command prefer, not {command}" in fails(capsys, command, "--out", "dpo", "--resume")
    assert "has algorithm dpo, not ipo" in fails(capsys, "prefer", "ipo", "--out", "dpo", "--resume")
    online = ["train", "grpo", "--steps", "1", "--prompts", "2", "--group-size", "2", "--held-out", "2", "--out", "rl"]
    assert main(online) == 0
    assert "the run in rl was made by the command train, not sft" in fails(capsys, "sft", "--out", "rl", "--resume")


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("rows.jsonl", "cannot read run/rows.jsonl"),
        ("held-out.jsonl", "cannot read run/held-out.jsonl"),
        ("reference/model.safetensors", "no checkpoint in run/reference"),
        ("checkpoint/trainer.json", "cannot read the checkpoint in run/checkpoint"),
        ("config.json", "no run in run"),
    ],
)
def test_a_run_that_has_lost_a_file_cannot_go_on(tmp_path, capsys, file, message, whole):
    whole("dpo", "run")
    (tmp_path / "run" / file).unlink()
    assert message in fails(capsys, "prefer", "dpo", "--out", "run", "--resume")


# --- what can go wrong ---------------------------------------------------------------------------------------------


@each
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--out", "full"], "holds files that do not belong to a run"),
        (["--out", "full", "--overwrite"], "holds files that do not belong to a run"),
        (["--out", "file"], "is a file"),
        (["--out", "file/run"], "cannot write"),
        (["--resume"], "--resume needs --out"),
        (["--resume", "--out", "nowhere"], "no run in nowhere"),
        (["--start", "nowhere"], "no checkpoint in nowhere"),
        (["--steps", "0"], "steps must be at least 1; got 0"),
        (["--lr", "nan"], "lr must be a finite number"),
        (["--rows", "0"], "--rows must be at least 1; got 0"),
        (["--held-out", "0"], "--held-out must be at least 1; got 0"),
        (["--save-every", "0"], "--save-every must be at least 1; got 0"),
        (["--device", "abacus"], "cannot use the device 'abacus'"),
        (["--task", "sums"], "unknown task 'sums'"),
        (["--data", "nowhere.jsonl"], "cannot read nowhere.jsonl"),
        (["--data", "file", "--rows", "3"], "--rows says how many rows the task makes"),
    ],
)
def test_one_line_and_nothing_written(tmp_path, capsys, words, name, change, message):
    (tmp_path / "file").write_text("a file where a folder should be")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("precious")
    assert message in fails(capsys, *words(name), *change)
    assert {path.name for path in tmp_path.iterdir()} == {"file", "full"}
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["sft", "--task", "even"], "the task 'even' has no teacher to imitate; give a file of rows with --data"),
        (["prefer", "spin", "--task", "even"], "the task 'even' has no teacher to imitate"),
        (["pretrain", "--task", "addition", "--rows", "5"], "--rows is for texts, and addition has none"),
        (["pretrain", "--task", "even"], "the task 'even' has no teacher"),
        (["reward", "--start", "untrained"], "the samples of an untrained policy are noise"),
        (
            ["reward", "--task", "reverse"],
            "no start is shipped for the task reverse, so training would",
        ),
        (["prefer", "dpo", "--start", "untrained"], "the samples of an untrained policy are noise"),
        (["prefer", "spin", "--task", "reverse"], "no start is shipped for the task reverse"),
        (["reward", "--normalize", "always"], "invalid choice: 'always'"),
        (["prefer"], "required: algorithm"),
        (["prefer", "bradley_terry"], "invalid choice: 'bradley_terry'"),
        (["prefer", "grpo"], "invalid choice: 'grpo'"),
        (["prefer", "dpo", "--beta", "0"], "--beta must be above 0; got 0.0"),
        (["prefer", "ipo", "--beta", "nan"], "--beta must be above 0; got nan"),
        (["sft", "--data", "", "--start", "untrained"], "cannot read"),
        (["sft", "--start", "shipped", "--task", "addition", "--data", "DATA"], "row 1: characters a, d"),
    ],
)
def test_what_a_command_cannot_begin_with(tmp_path, capsys, argv, message):
    data_file(tmp_path / "rows.jsonl", "sft")
    assert message in fails(capsys, *("rows.jsonl" if word == "DATA" else word for word in argv))
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]


PAIR = {"prompt": "ada tea?", "chosen": "yum", "rejected": "bad"}
ANSWER = {"prompt": "ada tea?", "completion": "yum"}


@pytest.mark.parametrize(
    ("name", "bad", "message"),
    [
        ("pretrain", {"text": " "}, "row 12: the text is empty"),
        ("pretrain", {"text": "yum " * 16}, "row 12: 65 tokens in the text, the end included, and the model reads at"),
        ("sft", ANSWER | {"prompt": ""}, "row 12: the prompt is empty"),
        ("sft", ANSWER | {"completion": ""}, "row 12: the completion is empty"),
        ("sft", ANSWER | {"completion": "yum " * 20}, "row 12: 89 tokens in prompt and completion"),
        ("sft", ANSWER | {"completion": "Yum"}, "row 12: characters Y of 'Yum'"),
        ("spin", ANSWER | {"prompt": ""}, "row 12: the prompt is empty"),
        ("spin", ANSWER | {"prompt": "ada " * 12 + "tea?"}, "tea?': the prompt and a sample of 16 tokens take 68"),
        ("reward", PAIR | {"prompt": " "}, "row 12: the prompt is empty"),
        ("reward", PAIR | {"rejected": "yum"}, "row 12: chosen and rejected are equal"),
        ("reward", PAIR | {"chosen": "yum " * 20}, "row 12: 89 tokens in prompt and chosen"),
        ("reward", PAIR | {"score_chosen": math.nan, "score_rejected": 0}, "row 12: score_chosen is nan"),
        ("dpo", PAIR | {"rejected": "yum"}, "row 12: chosen and rejected are equal"),
        ("dpo", PAIR | {"rejected": "yum " * 20}, "row 12: 89 tokens in prompt and rejected"),
        ("ipo", {"prompt": "ada tea?", "chosen": "yum"}, "row 12: there is no column 'rejected'"),
    ],
)
def test_a_bad_row_is_named_and_nothing_written(tmp_path, capsys, words, name, bad, message):
    flags = data_file(tmp_path / "rows.jsonl", name)
    good = (tmp_path / "rows.jsonl").read_text().splitlines()
    (tmp_path / "rows.jsonl").write_text("\n".join([*good[:11], json.dumps(bad), good[11]]) + "\n")
    assert message in fails(capsys, *words(name), *flags)
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]


def test_the_wall_stands_in_a_file_whatever_its_order_and_its_white_space(tmp_path, capsys, words):
    """No question is trained on and measured, sorted files are no trouble, and what is said counts distinct rows."""
    dishes = ("tea", "pie", "jam", "egg")
    asked = [f"{guest} {one} {other}?" for guest in ("ada", "bob") for one in dishes for other in dishes]
    plain = [CompletionRow(prompt, "yum") for prompt in asked]
    spaced = [CompletionRow(row.prompt.replace(" ", "  "), "wow") for row in plain]
    flags = data_file(tmp_path / "rows.jsonl", "sft", [*plain, *spaced, *plain[:5]])
    assert main([*words("sft"), *flags, "--steps", "1", "--out", "run"]) == 0
    said = capsys.readouterr().out
    sides = []
    for name in ("rows", "held-out"):
        found = [json.loads(line)["prompt"] for line in (tmp_path / "run" / f"{name}.jsonl").read_text().splitlines()]
        sides.append({" ".join(prompt.split()) for prompt in found})
        assert len(found) == 2 * len(sides[-1])
    assert not sides[0] & sides[1]
    assert sides[0] | sides[1] == {row.prompt for row in plain}
    assert "5 of 69 rows are not used: they stand twice" in said
    n = 2 * len(sides[1])
    assert f"sft: {64 - n} rows, {n} held out ({n} distinct), start" in said
    flags = data_file(tmp_path / "again.jsonl", "sft", [plain[0]] * 60)
    assert "the data holds one row only" in fails(capsys, *words("sft"), *flags, "--out", "other")


@each
def test_one_row_is_not_enough(tmp_path, capsys, words, name):
    flags = data_file(tmp_path / "rows.jsonl", name, DATA[KINDS.get(name, PairRow)][:1])
    assert "holds one row only, and at least one more is needed to measure on" in fails(capsys, *words(name), *flags)
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]
    flags = data_file(tmp_path / "rows.jsonl", name, DATA[KINDS.get(name, PairRow)][:2])
    assert main([*words(name), *flags, "--steps", "1", "--out", "run"]) == 0


@each
def test_a_run_is_not_overwritten_by_accident(tmp_path, capsys, words, name, whole):
    whole(name, "run")
    before = contents(tmp_path / "run")
    again = [*words(name), *OWN, *FAST, "--seed", "1", "--out", "run"]
    assert "already holds a run: --resume continues it, --overwrite replaces it" in fails(capsys, *again)
    assert contents(tmp_path / "run") == before
    assert main([*again, "--overwrite"]) == 0
    assert metrics(tmp_path / "run") != before["metrics"]


def test_what_replaces_a_run_leaves_nothing_of_it(tmp_path, words, whole):
    whole("dpo", "run")
    assert main([*words("sft"), *OWN, *FAST, "--out", "run", "--overwrite"]) == 0
    assert {path.name for path in (tmp_path / "run").iterdir()} == FILES


def test_damaged_weights_are_an_error_and_no_step(tmp_path, capsys, starts, words):
    policy, vocabulary = load_policy(starts / "sft")
    with torch.no_grad():
        policy.get_input_embeddings().weight[3] = math.nan
    write_folder(tmp_path / "start", lambda new: save_policy(new, policy, vocabulary))
    rows = data_file(tmp_path / "rows.jsonl", "sft")
    assert "not finite" in fails(capsys, "sft", "--start", "start", *rows, "--out", "run")
    assert metrics(tmp_path / "run") == []


def test_a_reward_model_reads_what_its_policy_reads(tmp_path, capsys, starts):
    """Another alphabet, a reward model for a policy, a policy for a reward model."""
    other = Vocabulary(REVIEWS.alphabet[::-1])
    reward_model = RewardModel.from_policy(tiny_llama(len(other), width=16, heads=2), other)
    write_folder(tmp_path / "other", reward_model.save)
    train = ["train", "ppo", "--task", "reviews", "--start", str(starts / "sft")]
    assert "has another vocabulary than the policy" in fails(capsys, *train, "--reward-model", "other")
    assert "holds no reward model" in fails(capsys, *train, "--reward-model", str(starts / "sft"))
    assert "holds a reward model, and a policy is needed" in fails(capsys, "reward", "--start", "other")
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_a_policy_without_words_for_the_task_is_refused(tmp_path, capsys):
    policy = tiny_llama(4, width=16, heads=2)
    write_folder(tmp_path / "start", lambda new: save_policy(new, policy, Vocabulary("abc")))
    for command in (["pretrain", "--task", "reviews"], ["sft"], ["reward"], ["prefer", "dpo"], ["prefer", "spin"]):
        assert "not in this model's alphabet abc" in fails(capsys, *command, "--start", "start")
    assert [path.name for path in tmp_path.iterdir()] == ["start"]
