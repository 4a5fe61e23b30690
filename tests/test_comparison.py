"""What the benchmark calls separated: the statistics against numbers from tables and by hand."""

import math
import random

import pytest
import torch

from rlhf_book.comparison import (
    LEVEL,
    against,
    all_pairs,
    critical,
    holm,
    needed,
    paired,
    two_sided,
)
from tests.results.scripts import separated


@pytest.mark.parametrize(
    ("degrees", "t"), [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (7, 2.365), (10, 2.228), (30, 2.042)]
)
def test_the_quantiles_of_five_per_cent_are_those_of_the_tables(degrees, t):
    assert critical(0.05, degrees) == pytest.approx(t, abs=6e-4)
    assert two_sided(t, degrees) == pytest.approx(0.05, abs=6e-5)
    assert two_sided(-t, degrees) == two_sided(t, degrees)


@pytest.mark.parametrize(("degrees", "t"), [(4, 4.604), (5, 4.032), (9, 3.250)])
def test_so_are_those_of_one_per_cent(degrees, t):
    assert two_sided(t, degrees) == pytest.approx(0.01, abs=2e-5)


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 5, 8])
def test_the_finite_sum_is_the_integral_of_the_density(degrees):
    """By Simpson's rule, from the density and the gamma function."""
    scale = math.gamma((degrees + 1) / 2) / math.sqrt(degrees * math.pi) / math.gamma(degrees / 2)
    for t in (0.3, 1.7, 6.0):
        n = 4000
        x = torch.linspace(0, t, n + 1, dtype=torch.float64)
        density = scale * (1 + x**2 / degrees) ** (-(degrees + 1) / 2)
        weights = torch.ones(n + 1, dtype=torch.float64)
        weights[1:-1:2], weights[2:-1:2] = 4, 2
        inside = 2 * (weights * density).sum().item() * t / n / 3
        assert two_sided(t, degrees) == pytest.approx(1 - inside, abs=1e-10)


def test_a_paired_difference_by_hand():
    # Differences 1, 2, 3, 4, 5: mean 3, variance 10 / 4, standard error sqrt(2.5 / 5); t = 3 / .7071 = 4.2426.
    found = paired([2.0, 4.0, 6.0, 8.0, 10.0], [1.0, 2.0, 3.0, 4.0, 5.0])
    assert found.values == (1, 2, 3, 4, 5)
    assert found.mean == 3
    assert (found.low, found.high) == pytest.approx((3 - 2.7764 * 0.70711, 3 + 2.7764 * 0.70711), abs=1e-3)
    assert found.p == pytest.approx(0.0132, abs=1e-4)
    turned = paired([1.0, 2.0, 3.0, 4.0, 5.0], [2.0, 4.0, 6.0, 8.0, 10.0])
    assert (turned.mean, turned.p) == (-3, found.p)


def test_what_the_rows_share_does_not_count():
    """A seed that is hard for all leaves the paired difference as it is, and would swamp an unpaired one."""
    hard = [0.0, 10.0, -7.0, 30.0, 5.0]
    easy = [0.0] * 5
    first, second = [0.3, 0.31, 0.29, 0.3, 0.32], [0.1, 0.12, 0.09, 0.1, 0.11]
    for shift in (easy, hard):
        found = paired(
            [a + s for a, s in zip(first, shift, strict=True)], [b + s for b, s in zip(second, shift, strict=True)]
        )
        assert found.p == pytest.approx(paired(first, second).p, rel=1e-6)
        assert found.p < 1e-4


def test_without_any_spread():
    assert paired([1.0, 1.0], [1.0, 1.0]).p == 1
    assert paired([2.0, 2.0], [1.0, 1.0]).p == 0


@pytest.mark.parametrize(("one", "other"), [([1.0], [2.0]), ([1.0, 2.0], [1.0, 2.0, 3.0])])
def test_what_cannot_be_paired_is_refused(one, other):
    with pytest.raises(ValueError, match="seeds on both sides"):
        paired(one, other)


def test_holm_by_hand():
    # Sorted: .005 x 4 = .02, .01 x 3 = .03, .03 x 2 = .06, .04 x 1 = .04, but not below the one before: .06.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_more_pairs_ask_for_more():
    draw = random.Random(0)
    two = {"a": [0.10, 0.13, 0.12, 0.11, 0.14], "b": [0.20, 0.22, 0.23, 0.20, 0.26]}
    (alone,) = all_pairs(two).values()
    assert alone.separated
    many = two | {f"noise {i}": [draw.gauss(0.15, 0.05) for _ in range(5)] for i in range(40)}
    among = all_pairs(many)["a", "b"]
    assert (among.mean, among.p) == (alone.mean, alone.p)
    assert among.adjusted > alone.adjusted
    assert len(all_pairs(many)) == 42 * 41 // 2


def test_one_pair_alone_is_the_test_of_the_chapters():
    draw = random.Random(1)
    seen = set()
    for _ in range(200):
        one = [draw.gauss(0, 1) for _ in range(5)]
        other = [draw.gauss(1.5, 1) for _ in range(5)]
        (found,) = all_pairs({"one": one, "other": other}).values()
        # The chapters ask in addition for one sign in all seeds, and round the quantile to three digits.
        if separated(torch.tensor(one), torch.tensor(other)):
            seen.add(found.separated)
            assert found.adjusted < LEVEL + 1e-4
    assert True in seen


def test_where_nothing_differs_hardly_a_table_has_a_separated_pair():
    """The level is that of the whole table: at most 5 % of tables of equal rows; most of them without it."""
    draw = random.Random(2)
    wrong = uncorrected = 0
    for _ in range(200):
        rows = {str(i): [draw.gauss(0, 1) for _ in range(5)] for i in range(8)}
        found = all_pairs(rows).values()
        wrong += any(one.separated for one in found)
        uncorrected += any(one.p < LEVEL for one in found)
    assert wrong <= 0.05 * 200 + 3 * math.sqrt(200 * 0.05 * 0.95)
    assert uncorrected > 100


def test_the_control_is_a_family_of_its_own():
    rows = {"a": [0.5, 0.52, 0.51], "b": [0.3, 0.31, 0.35], "coin": [0.1, 0.11, 0.09]}
    found = against("coin", rows)
    assert list(found) == [("a", "coin"), ("b", "coin")]
    assert found["a", "coin"].mean == pytest.approx(0.41)
    raw = [paired(rows[row], rows["coin"]).p for row in "ab"]
    assert [one.adjusted for one in found.values()] == pytest.approx(holm(raw))


def test_what_would_have_been_enough():
    """The median pair, with its own spread and that mean, is just at the limit of the first step of Holm's."""
    draw = random.Random(3)
    found = all_pairs({str(i): [draw.gauss(0, 1) for _ in range(5)] for i in range(3)})
    enough = needed(found)
    at_limit = []
    for one in found.values():
        moved = [v - one.mean + enough for v in one.values]
        at_limit.append(3 * paired(moved, [0.0] * 5).p)
    assert sorted(at_limit)[1] == pytest.approx(LEVEL, rel=1e-6)


def test_a_level_has_to_lie_between_0_and_1():
    for level in (0.0, 1.0):
        with pytest.raises(ValueError, match="between 0 and 1"):
            critical(level, 4)
    with pytest.raises(ValueError, match="degree"):
        two_sided(1.0, 0)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_result_that_is_not_finite_is_refused_and_named(bad):
    fine = [1.0, 1.2, 1.9]
    for one, other in (([0.0, bad, 2.0], fine), (fine, [0.0, bad, 2.0])):
        with pytest.raises(ValueError, match=r"finite.*place 1"):
            paired(one, other)
    with pytest.raises(ValueError, match="finite"):
        all_pairs({"a": [bad, 1.0, 2.0], "b": fine})
    with pytest.raises(ValueError, match="finite"):
        against("b", {"a": [bad, 1.0, 2.0], "b": fine})


def test_no_p_is_made_of_nan():
    with pytest.raises(ValueError, match="nan"):
        two_sided(math.nan, 4)
    with pytest.raises(ValueError, match="nan"):
        holm([math.nan, 0.001, 0.9])
    assert two_sided(math.inf, 4) == 0


def test_an_empty_table_needs_nothing_that_could_be_said():
    with pytest.raises(ValueError, match="no pair"):
        needed({})
