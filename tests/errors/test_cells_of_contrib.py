"""What the cells of `contrib` and their like refuse, option by option: each is named as it was given."""

import dataclasses

import pytest
import torch

from rlhf_minimal import KL, Batch, contrib
from rlhf_minimal.functional import corrections, kl, masked, shaping
from rlhf_minimal.functional.aggregation import Totals
from rlhf_minimal.pairs import centering_loss, squared_loss

NAN = float("nan")
ONE = torch.ones(1, 2)


def refuses(message, function, *args, **kwargs):
    with pytest.raises(ValueError, match=message):
        function(*args, **kwargs)


def test_options_of_cells():
    refuses("coef is -1, expected", KL, -1, "k1")
    refuses("floor is -1, expected", corrections.truncated_importance, ONE, ONE, ONE, floor=-1)
    lengths = torch.tensor([2, 2])
    for name in ("right_short", "right_long", "wrong_short", "wrong_long"):
        refuses(f"{name} is nan", contrib.shaping.cosine, ONE[0], lengths, budget=8, **{name: NAN})
    refuses("budget is 0, expected a whole number", contrib.shaping.cosine, ONE[0], lengths, budget=0)
    for name in ("k_pos", "k_neg", "lam_pos", "lam_neg"):
        refuses(f"{name} is 0, expected a number above 0", contrib.gates.vespo, ONE, ONE, **{name: 0})
    given = {"logp": ONE, "old_logp": ONE, "advantages": ONE}
    refuses("share is 2, expected", contrib.trust.clip_cov, ONE, **given, share=2)
    for name in ("low", "high", "clip_low", "clip_high"):
        refuses(f"{name} is -1, expected", contrib.trust.clip_cov, ONE, **given, **{name: -1})


def test_a_token_on_the_edge_of_the_clip_range_may_still_be_drawn():
    """Stopped is what lies beyond: a good token at 1 + high and a bad one at 1 - low are among those drawn from."""
    logp = torch.tensor([[1.5, 0.5, 1.0, 1.0]], dtype=torch.float64).log()
    given = {"logp": logp, "old_logp": 0 * logp, "advantages": torch.tensor([[2.0, -2.0, 0.0, 0.0]]).double()}
    kept = contrib.trust.clip_cov(torch.ones(1, 4), **given, share=0.5, low=0.0, high=9.0, clip_low=0.5, clip_high=0.5)
    assert kept.tolist() == [[0, 0, 1, 1]]


def test_an_empty_row_among_others_has_no_mean():
    logp, mask = -torch.ones(3, 2), torch.tensor([[1.0, 1], [0, 0], [1, 0]])
    refuses("mask is zero everywhere in row 1: a completion has", contrib.pairs.mean_logp, logp, mask)


def test_pairs_of_contrib():
    low, high = torch.tensor([-1.0]), torch.tensor([0.0])
    for side in ("chosen", "rejected"):
        for bad in (high, high + 0.5):
            given = {"chosen": low, "rejected": low} | {side: bad}
            refuses(f"{side} has a mean log-prob that is .* not below 0", contrib.pairs.odds_ratio_loss, **given)
    square = -torch.ones(1, 1)
    refuses(r"rejected has shape \(1, 1\)|expected", contrib.pairs.odds_ratio_loss, square, square)
    good = {"chosen": torch.zeros(2), "rejected": torch.zeros(2), "anchor": torch.zeros(2)}
    for name in good:
        refuses(name, contrib.pairs.kto_loss, **good | {name: torch.zeros(3)})
        refuses(name, contrib.pairs.kto_loss, **good | {name: torch.zeros(2, dtype=torch.long)})
    column = {name: x[:, None] for name, x in good.items()}
    refuses("expected", contrib.pairs.kto_loss, **column)


def test_a_square_may_be_as_large_as_float32_holds():
    large = torch.tensor([1e15])
    assert squared_loss(large, beta=1e9) == pytest.approx(1e30)
    assert centering_loss(large, 0 * large) == pytest.approx(1e30)
    refuses("the square of the distance of a gap", squared_loss, 1e20 * ONE[0], beta=1.0)
    refuses("the square of the sum of two scores", centering_loss, 1e20 * ONE[0], ONE[0])
    refuses("the variance", masked.masked_var, torch.tensor([[1e30, -1e30]]), ONE)
    refuses("k2", kl.k2, torch.tensor([[-1e25, 0.0]]), torch.zeros(1, 2))


def test_past_the_budget_the_ramp_goes_no_lower():
    found = shaping.soft_overlong(torch.ones(2), torch.tensor([10, 13]), budget=10)
    assert found.tolist() == [0.0, 0.0]


def test_a_batch_and_its_totals_are_fixed_once_they_are_checked():
    batch = Batch(-ONE, -ONE, ONE, torch.ones(1), 1)
    for thing in (batch, Totals(1, 2)):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(thing, dataclasses.fields(thing)[0].name, None)


def test_four_tokens_of_a_policy_tell_a_negative_log_likelihood_and_three_do_not():
    def batch(n):
        return Batch(0.5 * torch.ones(1, n), -torch.ones(1, n), torch.ones(1, n), torch.ones(1), 1)

    batch(3)
    refuses("pass log pi instead of -log pi", batch, 4)
