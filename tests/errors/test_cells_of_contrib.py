"""What the cells of `contrib` and their like refuse, option by option: each is named as it was given."""

import dataclasses

import pytest
import torch

from rlhf_minimal import ALGORITHMS, KL, Algorithm, Batch, contrib, pairwise_loss, policy_loss, prepare
from rlhf_minimal.functional import advantages, aggregation, corrections, gates, kl, masked, ratios, shaping
from rlhf_minimal.functional.aggregation import Totals
from rlhf_minimal.pairs import Pairs, centering_loss, squared_loss

NAN = float("nan")
ONE = torch.ones(1, 2)


def refuses(message, function, *args, **kwargs):
    with pytest.raises(ValueError, match=message):
        function(*args, **kwargs)


def test_options_of_cells():
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
    """Stopped is what lies beyond the edge: the two tokens on it are among those that `clip_cov` draws from."""
    old = torch.zeros(1, 4, dtype=torch.float64)
    logp = torch.tensor([[1.5, 0.5, 1.0, 1.0]], dtype=torch.float64).log()
    for sign in (1.0, -1.0):  # the edge of a good token is 1.5, of a bad one 0.5; each is alone in the band
        A = sign * torch.tensor([[2.0, -2.0, 0.0, 0.0]], dtype=torch.float64)
        given = {"logp": logp, "old_logp": old, "advantages": A, "share": 0.5, "clip_low": 0.5, "clip_high": 0.5}
        product = (A - A.mean()) * (logp - logp.mean())
        band = {"low": 0.0, "high": float(product.abs().max()) + 1}
        kept = contrib.trust.clip_cov(torch.ones(1, 4), **given, **band)
        assert (kept == 0).sum() == (min(2, int((product > 0).sum())) if sign > 0 else 0)


def test_pairs_of_contrib():
    empty = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
    refuses("completion", contrib.pairs.mean_logp, -torch.ones(2, 2), empty)
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


def test_the_anchor_has_no_gradient():
    s = torch.tensor([0.3], requires_grad=True)
    contrib.pairs.kto_loss(torch.ones(1), torch.ones(1), s + 0 * torch.ones(1, requires_grad=True)).sum()
    loss = contrib.pairs.kto_loss(s, torch.ones(1), 2 * s).sum()
    (found,) = torch.autograd.grad(loss, s)
    z = torch.tensor([0.6])
    (alone,) = torch.autograd.grad(contrib.pairs.kto_loss(s, torch.ones(1), z).sum(), s)
    assert torch.equal(found, alone)


def test_a_loss_of_scores_wants_no_margin_and_its_anchor():
    logp = -torch.ones(2, 3)
    sides = {
        f"{side}_{what}": x for side in ("chosen", "rejected") for what, x in (("logp", logp), ("mask", 0 * logp + 1))
    }
    refs = {"ref_chosen_logp": logp, "ref_rejected_logp": logp}
    kto = contrib.PAIRWISE["kto"]
    refuses("needs anchor: pass Pairs", pairwise_loss, kto, Pairs(**sides, **refs))
    given = Pairs(**sides, **refs, anchor=torch.zeros(2), margin=torch.ones(2))
    refuses("a margin belongs to a gap: leave margin out", pairwise_loss, kto, given)
    assert pairwise_loss(kto, Pairs(**sides, **refs, anchor=torch.zeros(2))) == 0.5
    orpo = contrib.PAIRWISE["orpo"]  # reads both scores and no anchor
    assert torch.isfinite(pairwise_loss(orpo, Pairs(**sides)))
    refuses(
        "needs logp: pass .* with chosen_logp and rejected_logp",
        pairwise_loss,
        orpo,
        Pairs(chosen_scores=torch.ones(2), rejected_scores=torch.ones(2)),
    )


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


def test_what_a_penalty_and_a_row_are_made_of():
    refuses("coef is -1, expected", KL, -1, "k1")
    refuses("a KL against the old policy in the reward is always 0", KL, 0.1, "k1", place="reward", against="old")
    cells = {"advantage": advantages.group_centered, "ratio": ratios.token, "gate": gates.none}
    cells["aggregate"] = aggregation.token_mean
    for column in cells:
        refuses(f"{column} is None, expected a function", Algorithm, **cells | {column: None})
    refuses("normalize is 'whiten', expected a function", Algorithm, **cells, normalize="whiten")


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


def test_what_is_missing_is_asked_for_in_words():
    row, logp = ALGORITHMS["dr_grpo"], -torch.ones(4, 3)
    batch = Batch(logp, logp, torch.ones(4, 3), torch.tensor([1.0, 0, 0, 1]), 4, budget=8)
    said = {
        "ref_logp": (ALGORITHMS["grpo"], r"the reference's log-probs \[B, T\], or take the KL out"),
        "budget": (row, r"the number of tokens a completion was allowed"),
        "sampler_logp": (contrib.ALGORITHMS["icepop"], r"the log-probs of the engine that sampled"),
        "entropy": (dataclasses.replace(row, entropy=0.1), r"the policy's entropy at each token"),
    }
    for name, (wants, words) in said.items():

        def whole(wants=wants, name=name):
            return policy_loss(wants, prepare(wants, dataclasses.replace(batch, **{name: None})))

        with pytest.raises(ValueError, match=f"(?s){name}.*{words}"):
            whole()
