"""The tree of choices: every leaf's lines run, its row is a row, and its evidence is what the records say."""

import json
import re
import shlex
from pathlib import Path

import pytest
import torch

from rlhf_book import choosing
from rlhf_book.choosing import (
    BLOCKS,
    COMPARISONS,
    ELSEWHERE,
    TREE,
    Leaf,
    Question,
    follow,
    found_in,
    leaves,
    paired,
    tree_html,
)
from rlhf_minimal import ALGORITHMS, PAIRWISE
from rlhf_minimal.cli import main

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
    for number in re.findall(r"arXiv (\d{4}\.\d{5})", " ".join(one.says for one in leaf.evidence)):
        assert f"eprint = {{{number}}}" in text, number


@pytest.mark.parametrize("leaf", TRAINED, ids=lambda leaf: leaf.id)
def test_the_printed_lines_train_and_export(leaf, tmp_path):
    train, *exports = leaf.lines
    assert main([*arguments(train, tmp_path), "--steps", "1", "--held-out", "8", "--prompts", "4"]) == 0
    config = json.loads((tmp_path / leaf.id / "config.json").read_text())
    assert leaf.row in str(config)
    assert [line.split()[-1] for line in exports] == list(leaf.exports)
    for line in exports:
        assert main([*arguments(line, tmp_path), "--out", str(tmp_path / "out" / line.split()[-1])]) == 0
        assert any((tmp_path / "out" / line.split()[-1]).iterdir())


def test_the_line_for_pairs_runs(tmp_path):
    pairs = follow("pairs of completions")
    assert main([*arguments(pairs.lines[0], tmp_path), "--steps", "1"]) == 0
    assert (tmp_path / pairs.id / "config.json").exists()


@pytest.mark.parametrize("leaf", TRAINED, ids=lambda leaf: leaf.id)
def test_no_export_is_forgotten_and_a_missing_one_is_told(leaf, tmp_path):
    """A run that is not written for a library is refused by it; then the leaf says in words what to do."""
    if set(leaf.exports) == {"trl", "verl"}:
        return
    assert leaf.by_hand
    train = leaf.lines[0]
    assert main([*arguments(train, tmp_path), "--steps", "1", "--held-out", "8", "--prompts", "4"]) == 0
    for name in {"trl", "verl"} - set(leaf.exports):
        assert main(["export", str(tmp_path / leaf.id), "--to", name, "--out", str(tmp_path / name)]) != 0


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


@pytest.mark.parametrize("name", COMPARISONS)
def test_a_comparison_is_paired_by_seed(name):
    comparison = COMPARISONS[name]
    found = paired(comparison)
    assert len(found.differences) == 5
    record = json.loads((ROOT / "notebooks" / "results" / f"{comparison.record}.json").read_text())
    by_hand = []
    for seed in range(5):
        one, two = (
            next(run for run in record["runs"] if (run["arm"], run["seed"]) == (arm, seed))[comparison.measure]
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


def test_a_record_is_used_because_a_leaf_relies_on_it():
    used = {COMPARISONS[name].record for leaf in LEAVES for one in leaf.evidence for name in one.comparisons}
    assert used == {block.record for block in BLOCKS.values()}


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
