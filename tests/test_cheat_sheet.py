"""The cheat sheet's formulas, evaluated, against the library: gradient weights and each token's share."""

import math
from pathlib import Path

import pytest
import torch
import yaml

from rlhf_minimal import ALGORITHMS, gradient_weight, token_weights

SHEET = yaml.safe_load((Path(__file__).resolve().parents[1] / "book" / "data" / "cheat-sheet.yml").read_text())
FUNCTIONS = {"exp": math.exp, "log": math.log, "min": min, "sigmoid": lambda x: 1 / (1 + math.exp(-x))}
# On both sides of every bound of every row, and never on one: a kink has two slopes.
RATIOS = [
    0.05,
    0.5,
    0.66,
    0.68,
    0.79,
    0.81,
    0.9996,
    0.9998,
    1.0,
    1.0003,
    1.0005,
    1.19,
    1.21,
    1.27,
    1.29,
    1.48,
    1.5,
    4.9,
    5.1,
    9.0,
]


def value(code, **names):
    return float(eval(code, {"__builtins__": {}, **FUNCTIONS}, names))


def test_the_sheet_has_every_row_in_the_order_of_the_table():
    assert list(SHEET) == list(ALGORITHMS)


@pytest.mark.parametrize("name", SHEET)
@pytest.mark.parametrize("advantage", [1.3, -0.7])
def test_the_printed_weight_is_the_gradient(name, advantage):
    weights = gradient_weight(name, torch.tensor(RATIOS, dtype=torch.float64), advantage)
    printed = [value(SHEET[name]["weight_code"], w=w, A=advantage) for w in RATIOS]
    torch.testing.assert_close(weights, torch.tensor(printed, dtype=torch.float64), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", SHEET)
def test_the_printed_share_is_that_of_a_token(name):
    lengths, budget = [1, 2, 5], 8
    mask = torch.tensor([[1.0] * n + [0.0] * (6 - n) for n in lengths])
    for group_size in (1, 3):
        shares = token_weights(name, mask, budget=budget, group_size=group_size)
        for row, n in enumerate(lengths):
            prompt = {"P": 3 // group_size, "N_p": n if group_size == 1 else sum(lengths)}
            printed = value(SHEET[name]["share_code"], B=len(lengths), N=sum(lengths), L=budget, n=n, **prompt)
            assert shares[row, :n].tolist() == pytest.approx([printed] * n)
            assert shares[row, n:].abs().max() == 0
