"""Bad pairs and bad rows: a ValueError that says what was given, what was expected and what to do.

B = T = 4, so that [B] would broadcast against [B, T] without a word. These tests run without the shape hook.
"""

from dataclasses import replace

import pytest
import torch

from rlhf_minimal import ALGORITHMS, PAIRWISE, Pairs, PairwiseAlgorithm, diff, pairwise_gap, pairwise_loss, table
from rlhf_minimal import pairs as pairwise

B, T, U = 4, 4, 6
NAN, INF = float("nan"), float("inf")
PER_ROW = ("chosen_scores", "rejected_scores", "margin")
PER_TOKEN = ("chosen_logp", "rejected_logp", "ref_chosen_logp", "ref_rejected_logp")


def good():
    g = torch.Generator().manual_seed(0)
    mask = torch.tensor([[1, 1, 1, 1], [1, 0, 1, 0], [1, 1, 0, 0], [1, 0, 0, 0]]).float()
    wide = torch.cat([mask, torch.zeros(B, U - T)], dim=1)
    return {
        **{name: torch.randn(B, generator=g) for name in PER_ROW},
        **{name: torch.randn(B, T if "chosen" in name else U, generator=g) for name in PER_TOKEN},
        "chosen_mask": mask,
        "rejected_mask": wide,
    }


def refused(message, **changes):
    with pytest.raises(ValueError, match=message) as caught:
        Pairs(**good() | changes)
    assert len(str(caught.value)) > 25


def test_the_good_pairs_are_good():
    pairs = Pairs(**good())
    assert len(pairs) == B
    for row in PAIRWISE.values():
        assert torch.isfinite(pairwise_loss(row, pairs))


@pytest.mark.parametrize("name", PER_ROW)
def test_per_row_tensors(name):
    for shape in [(), (B, 1), (1, B), (B + 1,), (1,), (B, T)]:
        refused(rf"{name} has shape .*, expected \(4,\): one number", **{name: torch.ones(shape)})
    for dtype in (torch.int64, torch.bool):
        refused(rf"{name} has dtype", **{name: good()[name].to(dtype)})
    refused(rf"{name} is a list, expected a tensor", **{name: good()[name].tolist()})
    refused("move them to one device", **{name: good()[name].to("meta")})
    for value in (NAN, INF):
        refused(rf"{name} holds a number that is not finite", **{name: torch.full((B,), value)})


@pytest.mark.parametrize("name", PER_TOKEN)
def test_per_token_tensors(name):
    x = good()[name]
    width = x.shape[1]
    for shape in [(1, width), (B, 1), (1, 1), (B, width + 1), (B, width, 1), (B,), (1,)]:
        refused(r"has shape|rows, expected", **{name: torch.ones(shape)})
    for dtype in (torch.int64, torch.bool):
        refused(rf"{name} has dtype .*, expected floating point", **{name: x.to(dtype)})
    refused(rf"{name} is a list, expected a tensor", **{name: x.tolist()})
    for value in (NAN, INF, -INF):
        spoiled, padding = x.clone(), x.clone()
        spoiled[1, 2], padding[1, 3] = value, value
        refused(rf"{name} is not finite on a trained token", **{name: spoiled})
        Pairs(**good() | {name: padding})
    if name != "chosen_logp":
        refused("move them to one device", **{name: x.to("meta")})


@pytest.mark.parametrize("wrong", [[name] for name in PER_TOKEN] + [PER_TOKEN, PER_TOKEN[:2], PER_TOKEN[::2]])
def test_negative_log_likelihoods(wrong):
    """Of both sides, or of one beside a right one."""
    right = {name: -good()[name].abs() - 0.01 for name in PER_TOKEN}
    Pairs(**good() | right)
    refused("more on every trained token.*pass log pi", **right | {name: -right[name] for name in wrong})


@pytest.mark.parametrize("name", ["chosen_mask", "rejected_mask"])
def test_masks(name):
    mask = good()[name]
    for dtype in (torch.bool, torch.int64, torch.float64):
        Pairs(**good() | {name: mask.to(dtype)})
    refused(rf"{name} must hold only 0 and 1", **{name: mask * 0.5})
    refused(rf"{name} is a list, expected a tensor", **{name: mask.tolist()})
    refused(rf"{name} has shape \(4,\), expected \[B, T\]", **{name: mask[:, 0]})
    refused(rf"{name} has 3 rows, expected 4: one for each pair", **{name: mask[:3]})
    mask[2] = 0
    refused(rf"{name} is zero everywhere in row 2: a completion has at least its EOS, so drop the pair", **{name: mask})


@pytest.mark.parametrize("name", [name for name in good() if name != "margin"])
def test_half_of_a_pair(name):
    refused(f"{name} is missing: a pair has two completions", **{name: None})


def test_a_batch_with_nothing_in_it():
    with pytest.raises(ValueError, match="nothing to score: pass chosen_scores and rejected_scores"):
        Pairs()
    with pytest.raises(ValueError, match="nothing to score"):
        Pairs(margin=torch.zeros(3))
    with pytest.raises(ValueError, match=r"shape \(0,\), expected at least one pair"):
        Pairs(chosen_scores=torch.zeros(0), rejected_scores=torch.zeros(0))
    with pytest.raises(ValueError, match=r"shape \(\), expected at least one pair"):
        Pairs(chosen_scores=torch.zeros(()), rejected_scores=torch.zeros(()))
    for wrong in (0, -1, 2.0, True):
        refused("total is .*, expected a whole number of at least 1", total=wrong)


def test_log_probs_masks_and_references_belong_together():
    refused("log-probs and masks go together", chosen_mask=None, rejected_mask=None)
    scores_and_masks = {"chosen_logp": None, "rejected_logp": None, "ref_chosen_logp": None, "ref_rejected_logp": None}
    refused("log-probs and masks go together", **scores_and_masks)
    alone = {"chosen_logp": None, "rejected_logp": None, "chosen_mask": None, "rejected_mask": None}
    refused("ref_chosen_logp is given without chosen_logp", **alone)


@pytest.mark.parametrize(
    ("name", "without", "message"),
    [
        (
            *("bradley_terry", "scores"),
            r"needs scores: pass Pairs\(...\) with chosen_scores and rejected_scores \[B\], a reward model's$",
        ),
        (
            *("dpo", "ref_"),
            r"needs ref_logp: pass Pairs\(...\) with ref_chosen_logp and ref_rejected_logp \[B, T\], the reference's$",
        ),
        ("spin", "ref_", "needs ref_logp"),
        ("ipo", "logp|mask", r"with chosen_logp and rejected_logp \[B, T\], the policy's$"),
    ],
)
def test_what_a_row_lacks_it_asks_for(name, without, message):
    left = {key: x for key, x in good().items() if not any(word in key for word in without.split("|"))}
    for call in (pairwise_loss, pairwise_gap):
        with pytest.raises(ValueError, match=message):
            call(PAIRWISE[name], Pairs(**left))


@pytest.mark.parametrize("call", [pairwise_loss, pairwise_gap])
def test_something_else_instead(call):
    with pytest.raises(ValueError, match=r"algorithm is 'dpo', expected .*: a row is PAIRWISE\[name\]"):
        call("dpo", Pairs(**good()))
    with pytest.raises(ValueError, match="expected a PairwiseAlgorithm"):
        call(ALGORITHMS["grpo"], Pairs(**good()))
    with pytest.raises(ValueError, match=r"pairs is a dict, expected Pairs\("):
        call(PAIRWISE["dpo"], good())


def test_splits():
    pairs = Pairs(**good())
    for wrong in (0, -1, 1.0, None):
        with pytest.raises(ValueError, match="n is .*, expected a whole number"):
            pairs.split(wrong)
    with pytest.raises(ValueError, match="cannot split 4 pairs into 5"):
        pairs.split(5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"score": "log_ratio"}, "score is 'log_ratio', expected a function"),
        ({"loss": None}, "loss is None, expected a function"),
        ({"score": len}, r"score says that it reads obj: name its arguments after what it reads"),
        ({"score": pairwise.given_score}, "reference is 'frozen', and the score reads scores: a score that reads"),
        ({"reference": None}, "reference is None, and the score reads logp, mask, ref_logp"),
        ({"reference": "old"}, "reference is 'old', expected one of None, 'frozen', 'previous'"),
        ({"rejected": "mine"}, "rejected is 'mine', expected one of 'data', 'own'"),
        ({"center": -0.1}, "center is -0.1, expected a number of at least 0"),
        ({"center": NAN}, "center is nan"),
    ],
)
def test_a_row_that_has_no_meaning(change, message):
    with pytest.raises(ValueError, match=message):
        replace(PAIRWISE["dpo"], **change)


def test_own_samples_need_a_policy_to_draw_them_from():
    with pytest.raises(ValueError, match="rejected is 'own', but there is no reference to sample them from"):
        replace(PAIRWISE["bradley_terry"], rejected="own")


def test_a_score_of_something_else():
    def value(values):
        return values

    with pytest.raises(ValueError, match="reads values: name its arguments .* out of scores, logp, ref_logp, mask"):
        PairwiseAlgorithm(value, pairwise.logistic_loss)

    def per_token(scores):
        return scores[:, None].expand(B, T)

    with pytest.raises(ValueError, match=r"score has shape \(4, 4\), expected \(4,\)"):
        pairwise_loss(PairwiseAlgorithm(per_token, pairwise.logistic_loss), Pairs(**good()))


def test_a_score_that_reads_the_mask_alone():
    def length(mask):
        return mask.sum(1)

    scores = {name: good()[name] for name in ("chosen_scores", "rejected_scores")}
    with pytest.raises(ValueError, match=r"needs mask: pass .* with chosen_mask and rejected_mask \[B, T\]$"):
        pairwise_loss(PairwiseAlgorithm(length, pairwise.logistic_loss), Pairs(**scores))


def test_a_loss_that_is_not_finite():
    def endless(gap):
        return gap / 0.0

    with pytest.raises(ValueError, match="the loss is .*: the scores exceed what this precision can hold"):
        pairwise_loss(replace(PAIRWISE["dpo"], loss=endless), Pairs(**good()))


def test_rows_of_two_tables():
    with pytest.raises(ValueError, match="'dpo' and 'grpo' are in different tables"):
        diff("dpo", "grpo")
    with pytest.raises(ValueError, match="'grpo' is .*, expected a PairwiseAlgorithm"):
        table({"dpo": PAIRWISE["dpo"], "grpo": ALGORITHMS["grpo"]})
    with pytest.raises(ValueError, match="'grpo' is .*, expected a PairwiseAlgorithm"):
        table({"grpo": ALGORITHMS["grpo"], "dpo": PAIRWISE["dpo"]})
    with pytest.raises(ValueError, match="unknown algorithm 'dpoo'"):
        diff("dpoo", "dpo")
