"""What is peculiar to the exercises on the anatomy: their curves are those of the library's gates."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from rlhf_book.exercises import EXERCISES
from rlhf_book.exercises.anatomy.which_gate import _curves, _grid, my_gate
from rlhf_minimal import ALGORITHMS, contrib, gradient_weight
from rlhf_minimal.functional import gates

IDS = ["anatomy-which-gate", "anatomy-described", "anatomy-prompt-mean"]
GATES = {
    1: partial(gates.clip, low=0.15, high=0.35),
    2: partial(contrib.gates.dual_clip, low=0.15, high=0.35, c=2.5),
    3: partial(gates.clip_weight, cap=2.5),
    4: partial(gates.sigmoid, tau_pos=1.6, tau_neg=1.6),
}


def test_they_stand_in_the_order_of_the_chapter():
    assert [name for name in EXERCISES if name.startswith("anatomy-")] == IDS


@pytest.mark.parametrize("number", GATES)
def test_the_drawn_curves_are_the_gradients_of_the_librarys_gates(number):
    ratio = _grid(97)
    case = _curves(number, ratio, 0.15, 0.35, 2.5).arguments
    row = replace(ALGORITHMS["grpo"], gate=GATES[number], kl=())
    for sign, name in ((1.0, "good"), (-1.0, "bad")):
        torch.testing.assert_close(gradient_weight(row, ratio, sign), case[name])
    assert my_gate(ratio, case["good"], case["bad"]) == number


def test_rows_of_the_book_are_recognised():
    ratio = _grid(120)
    for name, number in {"reinforce": 0, "ppo": 1, "dapo": 1, "gmpo": 1, "cispo": 3, "sapo": 4}.items():
        assert my_gate(ratio, *(gradient_weight(name, ratio, sign) for sign in (1.0, -1.0))) == number
