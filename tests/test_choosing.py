"""The tree of choices: every leaf's lines run, its row is a row, and its evidence is what the records say."""

import json
import re
import shlex
from pathlib import Path

import pytest
import torch

from rlhf_book import choosing
from rlhf_book.choosing import COMPARISONS, GOLD, TREE, Leaf, Question, follow, found_in, leaves, paired, tree_html
from rlhf_minimal import ALGORITHMS, PAIRWISE
from rlhf_minimal.cli import main
from rlhf_minimal.extras.export import trl_settings, verl_settings

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
        assert one.kind in ("ours", "paper", "none")
        assert bool(one.comparisons) == (one.kind == "ours")
        assert one.kind != "paper" or re.search(r"arXiv \d{4}\.\d{5}", one.says)
        assert set(one.comparisons) <= COMPARISONS.keys() | GOLD.keys()


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


@each_leaf
def test_a_library_that_is_not_named_refuses_the_row(leaf):
    """So "export: none" is true of each library, and no library is forgotten."""
    if leaf.row is None or leaf.pairwise:
        assert leaf.exports == ()
        return
    for name, settings in (("trl", trl_settings), ("verl", lambda row: verl_settings(row, budget=32))):
        if name in leaf.exports:
            settings(ALGORITHMS[leaf.row])
        else:
            with pytest.raises(ValueError, match="cannot express"):
                settings(ALGORITHMS[leaf.row])


def test_the_models_held_are_those_that_the_row_needs():
    held = {leaf.id: leaf.holds for leaf in LEAVES}
    assert held["learned-critic"] == "policy, critic, reference"
    assert held["learned-groups"] == held["leaky"] == "policy, reference"
    assert held["fresh"] == held["updates"] == held["experts"] == "policy"


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


@pytest.mark.parametrize("name", [*COMPARISONS, *GOLD])
def test_a_comparison_is_paired_by_seed(name):
    comparison = (COMPARISONS | GOLD)[name]
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
    assert found.mean == pytest.approx(sum(by_hand) / 5)


def test_every_comparison_speaks_at_a_leaf():
    used = {name for leaf in LEAVES for one in leaf.evidence for name in one.comparisons}
    assert used == COMPARISONS.keys() | GOLD.keys()


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
