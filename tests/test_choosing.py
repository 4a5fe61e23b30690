"""The tree of choices: every leaf's lines run, its row is a row, and its evidence is what the records say."""

import html
import json
import re
import shlex
from functools import cache
from pathlib import Path

import pytest
import torch

from rlhf_book import choosing
from rlhf_book.choosing import TREE, Leaf, Question, follow, leaves, tree_html, tree_table
from rlhf_book.choosing_runs import (
    BLOCKS,
    COMPARISONS,
    ELSEWHERE,
    NOT_HERE,
    PANELS,
    REPEATS,
    found_in,
    number,
    paired,
    shown,
)
from rlhf_minimal import ALGORITHMS, PAIRWISE
from rlhf_minimal.cli import main
from tests.results.scripts import load

ROOT = Path(__file__).resolve().parents[1]
LEAVES = list(leaves())
TRAINED = [leaf for leaf in LEAVES if leaf.lines and not leaf.pairwise]
each_leaf = pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.id)


def arguments(line, folder):
    """The arguments of a printed command, with its folder of runs moved."""
    words = shlex.split(line)
    assert words[:3] == ["python", "-m", "rlhf_minimal"]
    return [word.replace("runs/", f"{folder}/") for word in words[3:]]


@each_leaf
def test_a_leaf_names_a_row_and_says_why(leaf):
    assert leaf.row is None or leaf.row in (PAIRWISE if leaf.pairwise else ALGORITHMS)
    assert leaf.because
    assert leaf.settings
    assert leaf.evidence
    for one in leaf.evidence:
        assert one.kind in ("ours", "of a neighbour", "paper", "none")
        assert bool(one.comparisons) == (one.kind in ("ours", "of a neighbour"))
        assert one.kind != "paper" or re.search(r"arXiv \d{4}\.\d{5}", one.says)
        assert set(one.comparisons) <= COMPARISONS.keys()


@each_leaf
def test_a_paper_of_the_evidence_is_in_the_bibliography(leaf):
    text = (ROOT / "book" / "references.bib").read_text(encoding="utf-8")
    for paper in re.findall(r"arXiv (\d{4}\.\d{5})", " ".join(one.says for one in leaf.evidence)):
        assert f"eprint = {{{paper}}}" in text, paper


@pytest.mark.parametrize("leaf", TRAINED, ids=lambda leaf: leaf.id)
def test_the_printed_lines_train_and_export_and_no_export_is_forgotten(leaf, tmp_path):
    """A run that is not written for a library is refused by it; then the leaf says in words what to do."""
    train, *exports = leaf.lines
    assert main([*arguments(train, tmp_path), "--steps", "1", "--held-out", "8", "--prompts", "4"]) == 0
    config = json.loads((tmp_path / leaf.id / "config.json").read_text())
    assert leaf.row in str(config)
    assert [line.split()[-1] for line in exports] == list(leaf.exports)
    for line in exports:
        assert main([*arguments(line, tmp_path), "--out", str(tmp_path / "out" / line.split()[-1])]) == 0
        assert any((tmp_path / "out" / line.split()[-1]).iterdir())
    if missing := {"trl", "verl"} - set(leaf.exports):
        assert leaf.by_hand
    for name in missing:
        assert main(["export", str(tmp_path / leaf.id), "--to", name, "--out", str(tmp_path / name)]) != 0


def test_the_line_for_pairs_runs(tmp_path):
    pairs = follow("pairs of completions")
    assert main([*arguments(pairs.lines[0], tmp_path), "--steps", "1", "--rows", "64", "--held-out", "8"]) == 0
    assert (tmp_path / pairs.id / "config.json").exists()


def test_a_leaf_without_a_line_says_what_to_set():
    without = {leaf.id for leaf in LEAVES if leaf.row and not leaf.lines}
    assert without == {"experts", "stale"}
    assert all(leaf.by_hand for leaf in LEAVES if leaf.id in without)


def test_what_the_stale_leaf_says_of_trl_is_so():
    """The settings that it names are those of TRL's own configs."""
    trl = pytest.importorskip("trl")
    root = Path(trl.__file__).parent
    text = (root / "experimental" / "async_grpo" / "async_grpo_config.py").read_text(encoding="utf-8")
    for name in ("max_staleness", "epsilon", "epsilon_high"):
        assert re.search(rf"^    {name}: ", text, re.MULTILINE), name
    assert "old_log_probs" in (root / "experimental" / "async_grpo" / "async_grpo_trainer.py").read_text(
        encoding="utf-8"
    )


def test_the_models_held_are_those_that_the_row_needs():
    held = {leaf.id: leaf.holds for leaf in LEAVES}
    assert held["learned-critic"] == "policy, critic, reference"
    assert held["learned-groups"] == held["leaky"] == "policy, reference"
    assert held["fresh"] == held["updates"] == held["experts"] == "policy"
    assert held["teacher"] == "policy, teacher"


def test_ids_stand_once_and_every_question_has_a_choice():
    def questions(node):
        if isinstance(node, Question):
            yield node
            for answer in node.answers.values():
                yield from questions(answer)

    asked = list(questions(TREE))
    ids = [node.id for node in (*asked, *LEAVES)]
    assert len(set(ids)) == len(ids)
    assert all(len(node.answers) >= 2 for node in asked)
    assert {leaf.id for leaf in vars(choosing).values() if isinstance(leaf, Leaf)} == {leaf.id for leaf in LEAVES}


@cache
def runs_of(record):
    return json.loads((ROOT / "notebooks" / "results" / f"{record}.json").read_text())["runs"]


def score(run, of):
    """A number of the run, or of a curve by completions the mean of the last 512."""
    if isinstance(run[of.measure], float):
        return run[of.measure]
    end = [x for n, x in zip(run["samples"], run[of.measure], strict=True) if n > run["samples"][-1] - 512]
    return sum(end) / len(end)


@pytest.mark.parametrize("name", COMPARISONS)
def test_a_comparison_is_paired_by_seed(name):
    comparison = COMPARISONS[name]
    found = paired(comparison)
    assert len(found.differences) == 5
    by_hand = []
    for seed in range(5):
        one, two = (
            score(
                next(run for run in runs_of(comparison.record) if (run["arm"], run["seed"]) == (arm, seed)), comparison
            )
            for arm in (comparison.arm, comparison.against)
        )
        by_hand.append(one - two)
    assert found.differences.tolist() == pytest.approx(by_hand, abs=1e-6)
    assert found.mean == pytest.approx(sum(by_hand) / 5, abs=1e-6)


def test_every_arm_of_a_record_is_compared_or_said_to_belong_elsewhere():
    """The rule of the list: no arm of a record that is used is left out without a word."""
    for name in {block.record for block in BLOCKS.values()}:
        record = json.loads((ROOT / "notebooks" / "results" / f"{name}.json").read_text())
        blocks = [block for block in BLOCKS.values() if block.record == name]
        told = {arm for block in blocks for arm in (block.against, *block.arms)}
        left = set(ELSEWHERE.get(name, {}))
        assert not told & left
        assert told | left == {run["arm"] for run in record["runs"]}, name


def test_the_list_is_what_the_rule_gives():
    """Each arm beside the plain one of its block, and of the block outside; an arm that repeats another not at all."""
    pairs = []
    for block in BLOCKS.values():
        pairs += [(block, arm, block.against) for arm in block.arms]
        if block.inside:
            outer = BLOCKS[block.inside]
            assert (outer.record, outer.measure, outer.panel) == (block.record, block.measure, block.panel)
            assert not outer.inside
            pairs += [(block, arm, outer.against) for arm in (block.against, *block.arms)]
    scores = {}
    for block in BLOCKS.values():
        for arm in (block.against, *block.arms):
            five = sorted((run["seed"], score(run, block)) for run in runs_of(block.record) if run["arm"] == arm)
            scores.setdefault((block.record, str(five)), []).append(arm)
    repeats = {(record, arm) for (record, _), arms in scores.items() for arm in set(arms[1:]) - {arms[0]}}
    assert (
        repeats
        == set(REPEATS)
        == {
            ("verifier-runs", "spot"),
            ("rloo-runs", "centred-0.001"),
            ("rloo-runs", "centred-0.0003"),
        }
    )
    wanted = [(block.record, arm, against) for block, arm, against in pairs if (block.record, arm) not in repeats]
    assert len(wanted) == len(set(wanted)), "no pair twice"
    assert len({one.says for one in COMPARISONS.values()}) == len(COMPARISONS), "no two in the same words"
    assert sorted((one.record, one.arm, one.against) for one in COMPARISONS.values()) == sorted(wanted)
    assert not {(one.record, one.against) for one in COMPARISONS.values()} & repeats


def test_one_hidden_test_gives_the_very_runs_of_the_sound_verifier():
    """All that a run records but its seconds, so that its differences are no second measurement."""
    kept = {
        arm: [
            {k: v for k, v in run.items() if k not in ("arm", "seconds")}
            for run in runs_of("verifier-runs")
            if run["arm"] == arm
        ]
        for arm in ("hidden", "spot")
    }
    assert kept["hidden"] == kept["spot"]
    assert len(kept["spot"]) == 5


def test_arms_of_a_block_share_what_the_rule_says():
    """Task, start, learning rate, steps and completions, by the scripts that ran them."""
    clock, lag, dapo, rloo = (load(f"{name}_runs")[0] for name in ("clock", "lag", "dapo", "rloo"))
    shared = {
        "clock-runs": lambda arm: (clock.ARMS[arm].task, clock.ARMS[arm].config, clock.ARMS[arm].reward),
        "lag-runs": lambda arm: lag.ARMS[arm][2],
        "dapo-runs": lambda arm: (dapo.ARMS[arm].config, dapo.ARMS[arm].coin),
        "rloo-runs": lambda arm: rloo.ARMS[arm][1:],
    }
    for name, block in BLOCKS.items():
        if block.record not in shared:
            continue
        arms = {block.against, *block.arms} | ({BLOCKS[block.inside].against} if block.inside else set())
        settings = [shared[block.record](arm) for arm in arms]
        assert all(one == settings[0] for one in settings), name
    ages = {
        name: {lag.ARMS[arm][0] for arm in (block.against, *block.arms)}
        for name, block in BLOCKS.items()
        if block.inside.startswith("fresh")
    }
    assert all(len(age) == 1 and age != {0} for age in ages.values()), "a block inside is one age"


def test_marks_are_those_that_the_scripts_tell():
    """What was added after a look has a dagger, in every comparison."""
    script, _ = load("lag_runs")
    first = {"0", *(f"{lag}-{way}" for lag in (4, 16) for way in script.FIRST)}
    for one in COMPARISONS.values():
        if one.record == "lag-runs":
            assert one.later == (not {one.arm, one.against} <= first), one.arm
        if one.record == "clock-runs":
            assert one.later, "seeds 3 and 4 were added"


def test_a_record_is_used_because_a_leaf_relies_on_it():
    used = {COMPARISONS[name].record for leaf in LEAVES for one in leaf.evidence for name in one.comparisons}
    assert used == {block.record for block in BLOCKS.values()}
    assert not used & set(NOT_HERE)
    assert all((ROOT / "notebooks" / "results" / f"{name}.json").exists() for name in NOT_HERE)


@pytest.mark.parametrize("panel", PANELS)
def test_the_short_figure_has_the_largest_the_middle_and_the_smallest(panel):
    found = {name: paired(one) for name, one in COMPARISONS.items()}
    largest, middle, smallest = shown(found, panel)
    family = [name for name in found if COMPARISONS[name].panel == panel]
    one_thing = [name for name in family if COMPARISONS[name].clean]
    sizes = [abs(found[name].mean) for name in (one_thing or family)]
    assert {largest, middle, smallest} <= set(one_thing or family)
    assert abs(found[largest].mean) == max(sizes)
    assert abs(found[smallest].mean) == min(sizes)
    here = abs(found[middle].mean)
    above, below = sum(x > here for x in sizes), sum(x < here for x in sizes)
    assert 0 <= below - above <= 1


def test_a_number_says_which_of_the_two_is_larger():
    near = found_in(torch.tensor([-0.050, -0.037, -0.005, -0.002, -0.052]))
    assert number(near) == "-0.029 ± 0.030, not separated (all seeds of one sign, but the interval includes 0)"
    assert number(found_in(torch.tensor([-0.0102, 0.01, -0.01, 0.01, -0.001]))) == "+0.00 ± 0.01, not separated"


def test_separated_needs_one_sign_and_an_interval_without_0():
    assert found_in(torch.tensor([0.1, 0.11, 0.09, 0.1, 0.1])).separated
    assert not found_in(torch.tensor([0.1, 0.11, 0.09, 0.1, -0.01])).separated
    assert not found_in(torch.tensor([0.001, 0.5, 0.01, 0.01, 0.02])).separated
    found = found_in(torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]))
    assert found.half == pytest.approx(2.776 * (2.5**0.5) / 5**0.5)


def test_answers_lead_to_a_leaf_or_say_what_is_missing():
    path = ("a program", "both", "the policy's own, several updates", "yes")
    assert follow(*path).id == "experts"
    with pytest.raises(ValueError, match="one more answer"):
        follow(*path[:-1])
    with pytest.raises(ValueError, match="is none of"):
        follow("a coin")
    with pytest.raises(ValueError, match="one answer too many"):
        follow(*path, "yes")


def test_the_drawn_tree_holds_every_answer_and_every_line():
    text = tree_html()
    assert text.count("<details") == text.count("</details>") == text.count("<summary")
    for leaf in LEAVES:
        for line in leaf.lines:
            assert line in text
    assert "<script" not in text
    assert " on" not in re.sub(r">[^<]*<", "><", text), "no attribute of an event"


def test_the_table_has_each_leaf_once_with_its_row_a_setting_and_its_evidence():
    text = tree_table()
    told = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", text)[1:]]
    titles, rows, begins, shorts, evidence = zip(*told, strict=True)
    assert [html.unescape(title) for title in titles] == [leaf.title for leaf in LEAVES]
    assert [re.sub("<.*?>", "", row) for row in rows] == [leaf.row or "none" for leaf in LEAVES]
    assert [html.unescape(begin) for begin in begins] == [leaf.begin for leaf in LEAVES]
    assert [html.unescape(short) for short in shorts] == [leaf.short for leaf in LEAVES]
    assert dict(zip([leaf.id for leaf in LEAVES], evidence, strict=True)) == {
        "fresh": "ours",
        "long": "ours; a paper's",
        "dead": "ours: no difference shown; a paper's",
        "updates": "ours",
        "experts": "ours: no difference shown; a paper's",
        "stale": "ours",
        "engine": "a paper's",
        "leaky": "ours",
        "never": "none",
        "learned-critic": "ours: no difference shown; a paper's",
        "learned-groups": "ours: no difference shown; a paper's",
        "pairs": "ours; a paper's",
        "teacher": "ours: no difference shown; a paper's",
    }
    for leaf in LEAVES:
        assert len(leaf.short.split()) <= 16, leaf.id
        settings = f"{leaf.settings} {leaf.because} {leaf.flags}"
        assert set(re.findall(r"[\d.]*\d", leaf.begin)) <= set(re.findall(r"[\d.]*\d", settings)), leaf.id
