"""The benchmarks are no part of the suite. That they compare like with like and are told as they came out is tested."""

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

import benchmarks as page
from rlhf_minimal.lab.fast import Fast
from tests.benchmarks import __main__ as bench
from tests.benchmarks.__main__ import MEASUREMENTS, floor_of, product_seconds, ratio
from tests.benchmarks.arms import CASES, assert_equal_gradients

pytest.importorskip("trl", reason="TRL is not installed: pip install trl==1.16.0")

ROOT = Path(__file__).resolve().parents[1]

RECORD = json.loads(page.RECORD.read_text(encoding="utf-8"))
TEXT = (ROOT / "book" / "benchmarks.md").read_text(encoding="utf-8")


def test_both_sides_are_given_the_same_loss():
    case = CASES["addition"]
    small = replace(case, config=replace(case.config, prompts=4, group_size=4))
    assert assert_equal_gradients(small) < 1e-4


def test_a_ratio_is_that_of_the_turns():
    found = ratio([2.0, 4.0, 9.0], [1.0, 1.0, 1.0])
    assert (found["ratio"], found["range"], found["n"]) == (4.0, [2.0, 9.0], 3)


def test_the_floor_has_three_products_for_every_layer_that_learns(monkeypatch):
    monkeypatch.setattr(bench, "best_of", lambda work: float(work().numel()))
    assert product_seconds(Counter({(2, 3): 4}), 5, False) == 4 * 5 * 3
    assert product_seconds(Counter({(2, 3): 4}), 5, True) == 4 * (5 * 3 + 5 * 2 + 3 * 2)


def test_the_floor_counts_the_forwards_of_a_step_and_the_time_inside_them():
    case = CASES["short"]
    config = replace(case.config, prompts=8, group_size=4)  # surely one row has all four tokens
    one_piece = Fast(sort_lengths=False, skip_idle=False)
    found = floor_of(replace(case, config=config, reading=one_piece), 1)
    # To sample: the prompts, then each token but the last. To learn: the prompts, then all completions.
    assert found["forwards"] == {"sampling": 4, "update": 2}
    assert 0 < found["seconds"]["inside"] < found["seconds"]["step"]
    assert found["seconds"]["calls"] > 0


def test_every_measurement_is_on_record_and_every_table_on_the_page():
    assert set(MEASUREMENTS) == set(page.TABLES) <= set(RECORD)
    asked = re.findall(r"^```\{generated\} benchmarks:markdown (\w+)$", TEXT, re.MULTILINE)
    assert sorted(asked) == sorted(["goals", "machine", *page.TABLES])
    for name in asked:
        rows = page.markdown(name).splitlines()
        assert len(rows) > 2
        assert len({row.count("|") for row in rows}) == 1
    for name in ("step", "sampling"):
        assert set(RECORD[name]) >= set(CASES)
    assert all(case["gradient_difference"] < 1e-4 for name, case in RECORD["step"].items() if name in CASES)
