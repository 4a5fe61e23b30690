"""The pictures of the table are true: each weight by the formula that the book prints, each word by a cell."""

import dataclasses
import itertools
import math
from dataclasses import replace
from functools import partial

import pytest
import torch

from rlhf_minimal import ALGORITHMS, KL, Algorithm, anatomy, contrib, diff, gradient_weight, table, token_weights
from rlhf_minimal.functional import advantages, aggregation, corrections, gates, ratios
from rlhf_minimal.pairs import PairwiseAlgorithm
from tests.complete import share, weight

every_row = pytest.mark.parametrize("name", ALGORITHMS)
# On both sides of every bound of every row, and never on one: a kink has two slopes.
RATIOS = [
    1e-3,
    0.05,
    0.1,
    0.5,
    0.66,
    0.68,
    0.69,
    0.75,
    0.79,
    0.81,
    0.85,
    0.997,
    0.9985,
    0.9996,
    0.9998,
    1.0,
    1.0002,
    1.0003,
]
RATIOS += [
    1.0005,
    1.002,
    1.003,
    1.15,
    1.19,
    1.21,
    1.25,
    1.27,
    1.29,
    1.3,
    1.45,
    1.48,
    1.5,
    1.6,
    2.0,
    4.9,
    5.1,
    9.0,
    20.0,
]
SIGNED = [-3.0, -1.0, -0.2, 0.0, 0.2, 1.0, 3.0]


# ---- gradient_weight --------------------------------------------------------------------------------------------


@every_row
def test_gradient_weight_is_the_closed_form(name):
    w, A = (torch.tensor(x, dtype=torch.float64) for x in zip(*itertools.product(RATIOS, SIGNED), strict=True))
    expected = [weight(name, float(a), float(b)) for a, b in zip(w, A, strict=True)]
    weights = gradient_weight(name, w, A)
    torch.testing.assert_close(weights, torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=1e-12)
    assert not (weights.signbit() & (weights == 0)).any()  # 0 is printed as 0, and not as -0


@pytest.mark.parametrize(
    ("w", "A", "trains"),
    [(0.7, 1, True), (1.0, 1, True), (1.3, 1, False), (0.7, -1, False), (1.0, -1, True), (1.3, -1, True)],
)
@pytest.mark.parametrize("name", ["ppo", "reinforce_pp", "grpo", "dr_grpo", "dapo"])
def test_the_six_cells_of_clipping(name, w, A, trains):
    """Below, inside and above the band, for each sign: two of the six are still, and they are not the same two."""
    weight = float(gradient_weight(name, w, float(A)))
    assert weight == pytest.approx(w * A if trains else 0.0)


def test_gradient_weight_broadcasts_and_keeps_the_shape():
    assert gradient_weight("grpo", 1.0, 2.0).shape == ()
    assert gradient_weight("grpo", torch.ones(3, 1), torch.ones(2)).shape == (3, 2)
    grid = gradient_weight("cispo", torch.tensor([[1.0], [9.0]]), torch.tensor([1.0, -2.0]))
    assert grid.tolist() == [[1.0, -2.0], [5.0, -10.0]]
    assert grid.dtype == torch.float64


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "dapo", "ppo"])
def test_gradient_weight_of_one_point_does_not_see_the_others(name):
    many = gradient_weight(name, torch.tensor([0.5, 0.9, 2.0]), -1.0)
    alone = torch.stack([gradient_weight(name, w, -1.0) for w in (0.5, 0.9, 2.0)])
    torch.testing.assert_close(many, alone)


def test_gradient_weight_leaves_out_what_needs_a_third_policy_and_nothing_else():
    row = replace(ALGORITHMS["grpo"], kl=(KL(0.5, "k3"), KL(0.5, "k2", against="old")))
    assert float(gradient_weight(row, math.e, 1.0)) == pytest.approx(0.0 - 0.5)  # clipped; k2's pull is 0.5 log w
    row = replace(ALGORITHMS["grpo"], entropy=0.1, correct=corrections.truncated_importance)
    assert float(gradient_weight(row, 1.1, 1.0)) == pytest.approx(1.1)


def test_gradient_weight_of_a_variant():
    dual = replace(ALGORITHMS["grpo"], gate=partial(contrib.gates.dual_clip, low=0.2, high=0.2, c=3.0))
    assert gradient_weight(dual, torch.tensor([2.9, 3.1]), -1.0).tolist() == pytest.approx([-2.9, 0.0])


# ---- token_weights ----------------------------------------------------------------------------------------------

MASKS = {
    "short and long": [[1, 1, 1, 1, 1, 1], [1, 1, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0]],
    "holes": [[1, 0, 1, 1, 0, 1], [0, 1, 1, 0, 1, 0]],
    "a masked row": [[1, 1, 1], [0, 0, 0], [1, 0, 0]],
    "one token": [[1]],
}
BUDGET = 8


# Means in which whole responses count alike (or prompts, which have one response each here); in the others tokens do.
OF_RESPONSES = (aggregation.sequence_mean, aggregation.geometric_mean, contrib.aggregation.prompt_mean)


@every_row
@pytest.mark.parametrize("case", MASKS)
def test_token_weights_are_the_closed_form(name, case):
    mask = MASKS[case]
    for group_size in {1, len(mask)}:
        weights = token_weights(name, torch.tensor(mask), budget=BUDGET, group_size=group_size)
        for i, row in enumerate(mask):
            for t, trained in enumerate(row):
                expected = share(name, mask, i, BUDGET, group_size) if trained else 0.0
                assert float(weights[i, t]) == pytest.approx(expected, abs=1e-15)
        assert not weights.signbit().any()


@every_row
def test_row_sums_say_who_counts(name):
    """A response's total weight: the same for all, or as long as it is."""
    mask = torch.tensor(MASKS["short and long"])
    sums, lengths = token_weights(name, mask, budget=BUDGET).sum(-1), mask.sum(-1).double()
    mean = ALGORITHMS[name].aggregate
    if mean in OF_RESPONSES:
        torch.testing.assert_close(sums, torch.full_like(sums, 1 / 3))
    else:
        torch.testing.assert_close(sums / sums[0], lengths / lengths[0])
    if mean in (*OF_RESPONSES, aggregation.token_mean):
        assert float(sums.sum()) == pytest.approx(1.0)


@every_row
def test_token_weights_take_any_mask(name):
    mask = torch.tensor(MASKS["holes"])
    expected = token_weights(name, mask, budget=BUDGET)
    for dtype in (torch.bool, torch.float32, torch.bfloat16):
        assert torch.equal(token_weights(name, mask.to(dtype), budget=BUDGET), expected)
    assert expected.dtype == torch.float64
    assert not expected.requires_grad


def test_token_weights_are_of_the_policy_term_alone():
    row = replace(ALGORITHMS["grpo"], kl=(KL(3.0, "k2", against="old"),), entropy=0.5)
    row = replace(row, correct=corrections.truncated_importance, keep=contrib.filters.not_truncated)
    mask = torch.tensor(MASKS["holes"])
    assert torch.equal(token_weights(row, mask), token_weights("grpo", mask))


# ---- table and diff ---------------------------------------------------------------------------------------------


def rows_of(markdown):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in markdown.splitlines()]


def test_table_has_every_row_in_order_and_is_rectangular():
    header, rule, *rows = rows_of(table())
    assert [row[0] for row in rows] == [f"`{name}`" for name in ALGORITHMS if name not in contrib.ALGORITHMS]
    assert header == "algorithm advantage normalize ratio gate aggregate kl shape keep".split()
    assert set(rule) == {"---"}
    assert {len(row) for row in (header, rule, *rows)} == {len(header)}


@pytest.mark.parametrize("kind", [Algorithm, PairwiseAlgorithm])
def test_table_knows_every_column(kind):
    """A field that is not in the printed order would never be printed."""
    assert sorted(anatomy._ORDER[kind]) == sorted(field.name for field in dataclasses.fields(kind))


def test_table_says_what_the_cells_are():
    header, _, *rows = rows_of(table())
    by_name = {row[0]: dict(zip(header, row, strict=True)) for row in rows}
    assert by_name["`ppo`"] == {
        "algorithm": "`ppo`",
        "advantage": "`gae(gamma=1, lam=0.95)`",
        "normalize": "`whiten`",
        "ratio": "`token`",
        "gate": "`clip(low=0.2, high=0.2)`",
        "aggregate": "`sequence_mean`",
        "kl": "`k1 in reward 0.02`",
        "shape": "-",
        "keep": "-",
    }
    assert by_name["`gmpo`"]["gate"] == "`clip(low=0.3297, high=0.4918)`"
    assert by_name["`kimi_k2`"]["kl"] == "`k2 in loss against old per sequence 0.1`"
    assert by_name["`dapo`"]["keep"] == "`mixed_outcomes`"


def test_table_shows_a_column_once_a_row_uses_it():
    assert "correct" not in table()
    mine = replace(ALGORITHMS["grpo"], correct=corrections.truncated_importance, entropy=0.01)
    header, _, row = rows_of(table({"mine": mine}))
    assert header[-2:] == ["correct", "entropy"]
    assert row[-2:] == ["`truncated_importance`", "`0.01`"]


def test_every_word_of_a_kl_penalty_is_shown():
    kl = (KL(0.04, "k3", weighted=True, aggregate=aggregation.token_mean), KL(0.1, "k1", place="reward"))
    shown = rows_of(table({"mine": replace(ALGORITHMS["grpo"], kl=kl)}))[2][-1]
    assert shown == "`k3 weighted in loss 0.04 by token_mean + k1 in reward 0.1`"


@pytest.mark.parametrize(("first", "second"), list(itertools.combinations(ALGORITHMS, 2)))
def test_diff_names_the_cells_that_differ_and_no_others(first, second):
    a, b = ALGORITHMS[first], ALGORITHMS[second]
    there, back = diff(first, second), diff(second, first)
    changed = [part.partition(": ") for part in there.split("; ")]
    columns = [column for column, _, _ in changed]
    assert columns == [
        f.name for f in dataclasses.fields(Algorithm) if not same(getattr(a, f.name), getattr(b, f.name))
    ]
    mirrored = [part.partition(": ") for part in back.split("; ")]
    assert [(c, *t.split(" -> ")) for c, _, t in changed] == [(c, *t.split(" -> ")[::-1]) for c, _, t in mirrored]


def same(a, b):
    """Two cells: one function with one set of options. (Partials of equal options are not equal objects.)"""
    return (getattr(a, "func", a), getattr(a, "keywords", {})) == (getattr(b, "func", b), getattr(b, "keywords", {}))


@every_row
def test_diff_with_itself_is_empty(name):
    assert diff(name, name) == ""
    assert diff(name, replace(ALGORITHMS[name])) == ""


def test_diff_shows_what_changed():
    assert diff("gspo", "gspo_token") == "ratio: sequence -> sequence_token"
    assert diff("reinforce", "rloo") == "advantage: returns_to_go -> leave_one_out; kl: - -> k1 in reward 0.05"
    assert diff("grpo", replace(ALGORITHMS["grpo"], gate=partial(gates.clip, low=0.2, high=0.28))) == (
        "gate: clip(low=0.2, high=0.2) -> clip(low=0.2, high=0.28)"
    )
    assert diff("grpo", replace(ALGORITHMS["grpo"], entropy=0.01)) == "entropy: - -> 0.01"


def test_options_that_differ_in_a_late_digit_are_not_shown_as_equal():
    """Printed short, and still never an empty difference between two rows that differ."""
    near = replace(ALGORITHMS["grpo"], gate=partial(gates.clip, low=0.2, high=0.2 + 1e-9))
    assert diff("grpo", near) != ""
    named_alike = replace(ALGORITHMS["grpo"], aggregate=aggregation.masked.sequence_mean)
    assert diff("grpo", named_alike) != ""
    gate = partial(gates.clip, high=0.2, low=0.2)  # the order of options is no difference
    assert diff("grpo", replace(ALGORITHMS["grpo"], gate=gate)) == ""


def test_cells_of_ones_own_have_a_name():
    class Half:
        def __call__(self, x, mask, *, totals=None):
            return aggregation.token_mean(x, mask, totals=totals) / 2

        def __repr__(self):
            return "Half()"

    mine = Algorithm(advantages.group_centered, ratios.token, gates.none, Half())
    assert "`Half()`" in table({"mine": mine})
    assert diff(mine, "dr_grpo").startswith("gate: none -> clip(low=0.2, high=0.2); aggregate: Half() -> fixed_length")
