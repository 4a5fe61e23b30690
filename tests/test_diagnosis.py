"""What `diagnose` says: the metrics it reads against loops, each rule where it should fire, the command."""

import copy
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import nbformat
import numpy as np
import pytest
import torch
import yaml
from PIL import Image

from rlhf_book.diseases import DISEASES, MILD, Setting, begin, run
from rlhf_minimal import ALGORITHMS, Batch
from rlhf_minimal.cli import main
from rlhf_minimal.cli.report import health, in_lines
from rlhf_minimal.config import Config
from rlhf_minimal.lab import diagnosis
from rlhf_minimal.lab.diagnosis import CAUSES, DATA, diagnose, likely
from rlhf_minimal.metrics import METRICS, UpdateStats, _describe_advantages, weight_norm
from rlhf_minimal.objective import prepare
from rlhf_minimal.training.run_folder import RunFolder
from tests.commands import fails

ROOT = Path(__file__).resolve().parent.parent
SMALL = Setting("grpo", "addition", Config(steps=2, prompts=4, group_size=4))


def healthy(steps=20):
    """Twenty steps in which nothing is wrong, with a little noise."""
    wave = [0.01 * (-1) ** i for i in range(steps)]
    return [
        {
            "step": i + 1,
            "reward": 0.2 + 0.02 * i + wave[i],
            "accuracy": 0.2 + 0.02 * i + wave[i],
            "kl": 0.01 * i,
            "entropy": 0.4 - 0.01 * i,
            "truncated": 0.0,
            "dead_groups": 0.3,
            "gap": 1e-7,
            "trained": 1.0,
            "agreement": 0.98,
            "between": 0.0,
            "weight_norm": 40.0 + 0.01 * i,
            "kl_coef": 0.04,
            "explained_variance": 0.1 + wave[i],
        }
        for i in range(steps)
    ]


def changed(**metrics):
    """A healthy run with some metrics replaced: by a number, or by a function of the step."""
    rows = healthy()
    for i, row in enumerate(rows):
        row |= {name: value(i) if callable(value) else value for name, value in metrics.items()}
    return rows


# One run for each rule, that fires it; the causes that come first are compared, too.
SICK = {
    "the verifier fails": {"verifier_errors": lambda i: 3},
    "the weights stay as they are": {"weight_norm": 40.0},
    "no distance is ever measured": {"kl_reference": 1e-14},
    "more is trained than was sampled": {"trained": 1.05},
    "less is trained than was sampled": {"trained": 0.9},
    "the untrained policy is far from itself": {"gap": 0.3, "kl": 5.0},
    "trainer and sampler disagree from the start": {"gap": 0.05, "kl": lambda i: 0.02 + 0.01 * i},
    "trainer and sampler disagree only where a gradient is taken": {"gap": 0.05},
    "trainer and sampler drift apart": {"gap": lambda i: 0.01 * i},
    "the KL coefficient is large": {"kl_coef": 4.0},
    "advantages against rewards": {"agreement": -0.9},
    "a group's advantages do not sum to 0": {"between": 0.3},
    "advantages without relation to rewards": {"agreement": 0.1},
    "completions are cut off": {"truncated": 0.9},
    "nothing is earned": {"dead_groups": 1.0, "reward": 0.0, "accuracy": 0.0},
    "all earn the same": {"dead_groups": 1.0, "reward": 1.0},
    "reward rises without accuracy": {"accuracy": lambda i: 0.2 + 0.01 * (-1) ** i},
    "values are constant": {"explained_variance": 0.0},
    "the weights shrink": {"weight_norm": lambda i: 40.0 - 0.3 * i},
    "entropy rises": {"entropy": lambda i: 0.2 + 0.1 * i},
    "far from the start": {"kl": lambda i: 0.5 * i},
    "reward falls": {"reward": lambda i: 0.4 - 0.02 * i, "accuracy": lambda i: 0.4 - 0.02 * i},
    "nothing moves": {"kl": 1e-5, "reward": lambda i: 0.2 + 0.01 * (-1) ** i},
    "reward rises and falls back": {"reward": lambda i: 0.2 + 0.05 * min(i, 19 - i)},
    "entropy dies": {"entropy": lambda i: 0.5 * 0.7**i},
    "completions are cut off late": {"truncated": lambda i: 0.05 + 0.9 * (i > 9)},
}
ADDED = {"reward rises and falls back", "entropy dies", "completions are cut off late"}


def test_nothing_stands_out_in_a_healthy_run():
    assert diagnose(healthy()) == []


@pytest.mark.parametrize("rule", DATA["rules"], ids=lambda rule: rule["name"])
def test_each_rule_fires_on_its_own_run_and_names_its_causes_first(rule):
    findings = diagnose(changed(**SICK[rule["name"]]))
    assert rule["name"] in [finding.rule for finding in findings]
    first = next(finding for finding in findings if finding.rule == rule["name"])
    assert re.search(r"\d", first.figures)
    assert set(likely([first])) <= set(CAUSES)
    assert likely(findings)[0] in likely(findings[:1])


@pytest.mark.parametrize("finite", range(6))
def test_where_few_rewards_are_finite_nothing_is_said_of_their_course(finite):
    """A step whose mean reward is no number says nothing, and five steps are the shortest window."""
    history = changed(reward=lambda i: 0.9 - 0.1 * i if i < finite else math.nan, accuracy=math.nan, kl=1e-5)
    found = {finding.rule for finding in diagnose(history)}
    if finite < 2:
        assert not found & {"nothing moves", "reward falls", "reward rises without accuracy"}
    assert "reward rises and falls back" not in found


def test_every_rule_is_whole_and_every_cause_is_reached():
    assert set(SICK) == {rule["name"] for rule in DATA["rules"]}
    named = {cause for rule in DATA["rules"] for cause in rule["causes"]}
    assert named == set(CAUSES)
    assert {one.cause for one in DISEASES.values()} - {None} <= named
    for rule in DATA["rules"]:
        assert rule["why"]
        assert rule.get("added") == ("after the scoring" if rule["name"] in ADDED else None)
        assert ("saw" in rule) != ("metric" in rule)
        assert hasattr(diagnosis, rule["saw"]) if "saw" in rule else rule["metric"] in METRICS
    assert yaml.safe_dump(DATA)


@pytest.mark.parametrize("name", CAUSES)
def test_every_cause_names_a_section_that_exists(name):
    chapter, _, title = CAUSES[name]["section"].partition(": ")
    cells = nbformat.read(ROOT / "notebooks" / f"{chapter}.ipynb", as_version=4).cells
    titles = [t for cell in cells if cell.cell_type == "markdown" for t in re.findall(r"^## (.+)", cell.source, re.M)]
    assert title in titles


OPTIONAL = ("gap", "trained", "agreement", "between", "weight_norm", "kl_coef", "explained_variance", "kl")


@pytest.mark.parametrize("names", [*zip(OPTIONAL), OPTIONAL], ids=lambda names: names[0] if len(names) == 1 else "all")
def test_a_metric_that_a_run_does_not_have_is_no_finding(names):
    rows = [{name: value for name, value in row.items() if name not in names} for row in healthy()]
    assert diagnose(rows) == []


def test_a_gap_without_a_kl_is_not_taken_for_one_with_a_kl_of_0():
    rows = [{name: value for name, value in row.items() if name != "kl"} for row in changed(gap=0.05)]
    (finding,) = diagnose(rows)
    assert finding.rule == "trainer and sampler disagree from the start"
    assert finding.figures == "gap 0.05, kl not measured in the first step"


def test_a_metric_that_is_not_finite_in_a_step_is_read_in_the_others():
    rows = changed(
        kl=lambda i: math.nan if i == 3 else 0.01 * i, reward=lambda i: math.inf if i == 0 else 0.2 + 0.02 * i
    )
    assert diagnose(rows) == []


def test_a_score_in_units_of_its_own_that_rises_clears_a_learned_reward():
    """As on the task reviews: `accuracy` is the share of perfect reviews, `gold` the true score."""
    learned = {"reward": lambda i: -0.1 + 0.2 * i, "accuracy": 0.05}
    assert "reward rises without accuracy" in [finding.rule for finding in diagnose(changed(**learned))]
    wave = [0.01 * (-1) ** i for i in range(20)]
    assert diagnose(changed(**learned, gold=lambda i: 0.7 + 0.1 * i + wave[i])) == []
    flat = diagnose(changed(**learned, gold=lambda i: 0.7 + wave[i]))
    assert [finding.rule for finding in flat] == ["reward rises without accuracy"]


@pytest.mark.parametrize(
    "words",
    [
        "opd --start untrained --teacher shipped",
        "rloo --task reviews --reward-model shipped",
    ],
)
def test_nothing_stands_out_where_a_teacher_or_a_reward_model_pays(words, tmp_path):
    """Lines of the leaves of the chapter on choosing, shorter."""
    line = ["train", *words.split(), "--steps", "10", "--prompts", "16", "--group-size", "4", "--held-out", "16"]
    assert main([*line, "--out", str(tmp_path / "run")]) == 0
    history = RunFolder(tmp_path / "run").history()
    assert diagnose(history) == []
    assert ("dead_groups" in history[0]) == ("opd" not in words)


def test_a_history_without_the_tasks_verdict_is_read_as_far_as_it_goes():
    rows = changed(**SICK["reward rises without accuracy"])
    for row in rows:
        del row["accuracy"]
    assert diagnose(rows) == []
    assert diagnose([row | {"gap": 0.1} for row in rows])


@pytest.mark.parametrize("gap", [0.002, 0.01, 0.05, 0.2])
def test_a_small_gap_with_its_kl_is_not_taken_for_dropout(gap):
    """A policy at another temperature is about gap^2 / 2 from itself, however small that is; with dropout it is not."""
    assert likely(diagnose(changed(gap=gap, kl=lambda i: gap**2 / 2 + 0.01 * i)))[0] == "temperature"
    assert likely(diagnose(changed(gap=gap)))[0] == "dropout"


def test_a_gap_that_precision_may_leave_is_no_finding_where_the_run_says_so():
    rows = changed(gap=0.01, kl=lambda i: 5e-5 + 0.01 * i)
    assert diagnose(rows)
    assert diagnose(rows, rounding=2e-2) == []
    assert diagnose(changed(gap=0.05), rounding=2e-2)
    assert diagnose(changed(gap=lambda i: 8e-4 + 1e-5 * i * i / 4)) == []  # a little too much, and growing a little


def test_a_long_run_that_collapses_at_its_end_is_seen():
    """Rules that compare the beginning with the end alone see nothing here."""
    rows = healthy(300)
    for i, row in enumerate(rows):
        row["reward"] = row["accuracy"] = 0.2 + 0.5 * min(i, 299 - i) / 150 + 0.01 * (-1) ** i
        row["kl"], row["entropy"] = 0.002 * i, 0.4 - 0.001 * i
    assert [finding.rule for finding in diagnose(rows)] == ["reward rises and falls back"]


def test_the_first_three_causes_come_each_once():
    findings = diagnose(changed(**SICK["nothing moves"], weight_norm=40.0))
    assert likely(findings) == ["weights-frozen", "rate-low", "leash"]
    assert likely(findings, most=1) == ["weights-frozen"]


# ── the metrics it reads ─────────────────────────────────────────────────────────────────────────────────────────


def batch_of(rewards, advantages=None, mask=None):
    zeros = torch.zeros(len(rewards), 3) - 1
    mask = torch.ones(len(rewards), 3) if mask is None else mask
    return Batch(zeros, zeros, mask, torch.tensor(rewards), 2, advantages=advantages)


def test_agreement_and_between_by_hand():
    rewards = [1.0, 0.0, 0.0, 3.0]
    right = prepare(ALGORITHMS["kimi_k2"], batch_of(rewards))
    found = _describe_advantages(right, compares=True)
    assert found["agreement"] == pytest.approx(1)
    assert found["between"] == pytest.approx(0, abs=1e-6)
    other = batch_of(rewards, advantages=torch.tensor([-1.0, 1.0, 0.0, 0.0]))
    # Centred rewards are .5, -.5, -1.5, 1.5: the product is -1, the lengths sqrt(2) and sqrt(5).
    assert _describe_advantages(other, compares=True)["agreement"] == pytest.approx(-1 / 10**0.5)
    shifted = batch_of(rewards, advantages=torch.tensor([1.0, 1.0, 0.0, 2.0]))
    # Means of groups are 1 and 1, what is left within them 0, 0, -1, 1: 4 of 6 lie between.
    assert _describe_advantages(shifted, compares=True)["between"] == pytest.approx(4 / 6)
    assert "between" not in _describe_advantages(shifted, compares=False)
    equal = batch_of([1.0, 1.0, 0.0, 0.0], advantages=torch.zeros(4))
    assert _describe_advantages(equal, compares=True) == {}


def test_a_group_of_which_a_row_was_filtered_out_does_not_count():
    mask = torch.tensor([[1.0] * 3, [0.0] * 3, [1.0] * 3, [1.0] * 3])
    batch = batch_of([1.0, 0.0, 0.0, 1.0], torch.tensor([5.0, 0.0, -1.0, 1.0]), mask)
    assert _describe_advantages(batch, compares=True) == {"agreement": pytest.approx(1), "between": pytest.approx(0)}


def test_the_gap_is_that_of_the_first_minibatch_and_trained_counts_tokens():
    old = torch.full((1, 4), -1.0)
    mask, sampled = torch.tensor([[1.0, 1.0, 0.0, 0.0]]), torch.tensor([[1.0, 1.0, 1.0, 0.0]])
    watch = UpdateStats()
    for moved in (0.1, 0.7):
        logp = old - torch.tensor([[moved, -moved, 9.0, 9.0]])
        batch = Batch(logp, old, mask, torch.zeros(1), 1, advantages=torch.ones(1))
        watch.add_tokens(ALGORITHMS["grpo"], batch, torch.zeros(1, 4), sampled)
        watch.end_minibatch()
    found = watch.metrics()
    assert found["gap"] == pytest.approx(0.1)
    assert found["trained"] == pytest.approx(2 / 3)


def test_the_norm_counts_weights_with_a_gradient():
    one, other = torch.nn.Parameter(torch.tensor([3.0])), torch.nn.Parameter(torch.tensor([[4.0]]))
    frozen = torch.nn.Parameter(torch.tensor([100.0]), requires_grad=False)
    assert weight_norm(torch.nn.ParameterList([one, other, frozen])) == pytest.approx(5)


@pytest.mark.parametrize("row", ["grpo", "ppo", "rloo", "dapo", "reinforce"])
def test_a_healthy_loop_holds_these_metrics_at_their_values(row):
    setting = replace(SMALL, row=row, config=replace(SMALL.config, minibatches=2))
    for metrics in run(setting, None, 0):
        assert metrics["gap"] < 1e-5
        assert metrics["trained"] == 1
        assert metrics.get("agreement", 1) > 0.5
        assert abs(metrics.get("between", 0)) < 1e-6


# ── bugs that are put in ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("disease", [*DISEASES.values(), *MILD.values()], ids=lambda disease: disease.id)
def test_a_bug_runs_and_changes_the_run_and_leaves_the_table_alone(disease):
    before = copy.copy(ALGORITHMS)
    row = {"critic": "ppo"}.get(disease.needs, "grpo")
    setting = replace(SMALL, row=row, config=replace(SMALL.config, epochs=2, steps=3))
    sick, well = run(setting, disease.id, 0), run(setting, None, 0)
    names = set(well[-1]) - {"seconds", "sampling_seconds", "update_seconds", "peak_memory"}
    if disease.id != "trained-padding":  # in three steps completions may all have one length
        assert any(a.get(name) != b.get(name) for a, b in zip(sick, well, strict=True) for name in names)
    assert before == ALGORITHMS
    begin(setting, disease.id, 0)


# ── the command, and the report of train ─────────────────────────────────────────────────────────────────────────


def write(folder, rows, **settings):
    folder.mkdir()
    known = {"command": "train", "algorithm": "grpo", "format": 1} | settings
    (folder / "config.json").write_text(json.dumps(known))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(folder)


@pytest.fixture
def form(tmp_path, monkeypatch, capsys):
    """A folder with one short run of `train`, and what the run printed."""
    monkeypatch.chdir(tmp_path)
    words = ["train", "ppo", "--steps", "12", "--prompts", "4", "--group-size", "4", "--held-out", "10", "--out", "run"]
    assert main(words) == 0
    return tmp_path / "run", capsys.readouterr().out


@pytest.mark.usefixtures("drawn")
def test_the_command_reads_what_train_wrote_and_the_report_shows_what_matters(form, capsys):
    folder, out = form
    assert "diagnose run" in out
    table = (folder / "report.txt").read_text()
    for name in ("kl", "entropy", "clip_fraction", "grad_norm", "length", "truncated", "explained_variance"):
        assert re.search(rf"^{name} +\S+ +\S+  [▁-█]{{12}}$", table, re.MULTILINE), name
    assert max(map(len, table.splitlines())) <= 80
    width, height = Image.open(folder / "learning-curve.png").size
    assert height > width  # the panels stand under the curve
    assert main(["diagnose", "run"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("run: ppo, 12 steps")

    settings = json.loads((folder / "config.json").read_text())
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    sick = [json.loads(line) | {"trained": 0.8} for line in lines]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in sick))
    assert main(["diagnose", "run"]) == 0
    said = capsys.readouterr().out
    assert "stands out  less is trained than was sampled: trained 0.8" in said
    assert "1. the last token of a completion is not trained\n   test: " in said
    assert "read: language-models: 6. Which tokens count" in said
    assert "(the share is 1, without any noise; less is meant" in said
    even = [json.loads(line) | {"trained": 1.0, "gap": 0.01} for line in lines]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in even))
    for precision, seen in (("float32", True), ("bfloat16", False)):
        (folder / "config.json").write_text(json.dumps(settings | {"precision": precision}))
        assert main(["diagnose", "run"]) == 0
        assert ("trainer and sampler disagree" in capsys.readouterr().out) == seen
    (folder / "config.json").write_text(json.dumps(settings | {"command": "sft"}))
    assert "was made by the command sft" in fails(capsys, "diagnose", "run")


def test_a_folder_that_holds_too_little_or_nothing_is_one_clear_line(form, capsys):
    folder, _ = form
    lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    (folder / "metrics.jsonl").write_text("".join(lines[:9]))
    assert "has taken 9 steps, and below 10 nothing can be said" in fails(capsys, "diagnose", "run")
    (folder / "metrics.jsonl").write_text("{}\n" + "".join(lines))
    assert "expected an object with a step" in fails(capsys, "diagnose", "run")
    (folder / "metrics.jsonl").write_text("".join(f'{{"step": {i}}}\n' for i in range(12)))
    assert "the metrics have no reward" in fails(capsys, "diagnose", "run")
    (folder / "metrics.jsonl").unlink()
    assert "cannot read" in fails(capsys, "diagnose", "run")
    assert "no run in nowhere" in fails(capsys, "diagnose", "nowhere")


def test_the_course_of_a_metric_in_blocks():
    head, rising, flat = in_lines({"kl": [float(i) for i in range(100)], "truncated": [0.0] * 7})
    assert head.startswith("metric")
    blocks = rising.split()[-1]
    assert len(blocks) == 36
    assert list(blocks) == sorted(blocks)
    assert (blocks[0], blocks[-1]) == ("▁", "█")
    assert flat.split()[1:] == ["0", "0", "▁▁▁▁▁▁▁"]
    assert np.allclose([float(x) for x in rising.split()[1:3]], [2, 97])
    assert health([{"kl": 1.0}, {}]) == {}
    assert health([]) == {}
