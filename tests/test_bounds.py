"""What a cell does exactly at its bounds, as its docstring says: at most, less than, and an advantage of 0."""

import math

import pytest
import torch
from torch import Tensor

from rlhf_minimal import contrib
from rlhf_minimal.functional import advantages, aggregation

LOG_2 = math.log(2)


def row(*numbers: float) -> Tensor:
    """[1, T] in double precision."""
    return torch.tensor([numbers], dtype=torch.float64)


def column(*numbers: float) -> Tensor:
    """[B, 1] in double precision."""
    return row(*numbers).T


def kept(cell, **given) -> list[float]:
    """The weights that a trust cell gives, all tokens trained."""
    return cell(torch.ones_like(given["logp"]), **given).flatten().tolist()


def test_a_bad_sequence_is_kept_at_a_drift_of_delta_and_one_without_an_advantage_always():
    given = {"logp": column(-3, -3, -3), "sampler_logp": column(-2, -2, -1), "advantages": column(-1, -1, 0)}
    assert kept(contrib.trust.off_policy_sequence, **given, delta=1.0) == [1, 1, 1]
    assert kept(contrib.trust.off_policy_sequence, **given, delta=0.99) == [0, 0, 1]


def test_dppo_tv_keeps_a_token_at_its_bound():
    """Probabilities 0 and 1: they have moved by 1, and 1 is allowed."""
    given = {"logp": row(0, -1000, 0), "old_logp": row(-1000, 0, -1000), "advantages": row(1, -1, 0)}
    assert kept(contrib.trust.dppo_tv, **given, low=1.0, high=1.0) == [1, 1, 1]
    assert kept(contrib.trust.dppo_tv, **given, low=0.0, high=0.99) == [0, 0, 1]  # a rise without advantage is no fall


def test_dppo_kl_keeps_a_token_at_its_bound():
    """A probability that falls from 1 by one nat has a distance of 1; one that rises from 0 to 1/2 has log 2."""
    given = {"logp": row(-1, -LOG_2), "old_logp": row(0, -1000), "advantages": row(-1, 1)}
    assert kept(contrib.trust.dppo_kl, **given, low=1.0, high=LOG_2) == [1, 1]
    assert kept(contrib.trust.dppo_kl, **given, low=0.999, high=LOG_2 - 1e-9) == [0, 0]


def test_dppo_kl_leaves_a_token_without_an_advantage_alone():
    given = {"logp": row(-1, -LOG_2), "old_logp": row(0, -1000), "advantages": row(0, 0)}
    assert kept(contrib.trust.dppo_kl, **given, low=0.0, high=0.0) == [1, 1]


def test_dppo_kl_takes_a_log_prob_that_rounding_has_put_above_0():
    given = {"logp": row(-1, 1e-9), "old_logp": row(1e-9, -1), "advantages": row(-1, 1)}
    assert kept(contrib.trust.dppo_kl, **given) == [0, 0]


def test_a_product_at_the_edge_of_the_band_of_clip_cov_is_not_drawn():
    given = {"logp": row(0, -4), "old_logp": row(0, -4), "advantages": row(1, -1), "share": 1.0}  # both products are 2
    assert kept(contrib.trust.clip_cov, **given, low=1.99, high=2.01) == [0, 0]
    assert kept(contrib.trust.clip_cov, **given, low=2.0, high=3.0) == [1, 1]
    assert kept(contrib.trust.clip_cov, **given, low=1.0, high=2.0) == [1, 1]


@pytest.mark.parametrize("A", [row(1, -1), row(0, 0, 3), row(0, 0, -3)])
def test_clip_cov_may_draw_what_has_not_left_the_clip_range(A):
    """Ratios of 1 are inside a range of 0; and without an advantage no ratio is stopped."""
    logp = row(0, -4) if A.shape[1] == 2 else row(-1, -9, -9 if A.sum() > 0 else -1)
    band = {"low": 0.0, "high": 99.0, "share": 1.0}
    free = kept(contrib.trust.clip_cov, logp=logp, old_logp=logp, advantages=A, **band)
    assert 0 in free
    assert (
        kept(contrib.trust.clip_cov, logp=logp, old_logp=logp, advantages=A, **band, clip_low=0.0, clip_high=0.0)
        == free
    )
    if A.shape[1] == 3:  # the two tokens without an advantage have moved, one up and one down
        moved = logp + row(-1, 1, 0)
        assert kept(contrib.trust.clip_cov, logp=logp, old_logp=moved, advantages=A, **band) == free


def test_icepops_band_contains_its_ends_and_that_of_mask_weight_does_not():
    old, sampler = row(-LOG_2, 0), row(0, -LOG_2)  # weights 1/2 and 2
    assert contrib.corrections.masked_importance(old, sampler, torch.ones(1, 2), low=0.5, high=2.0).tolist() == [
        [0.5, 2]
    ]
    ends = contrib.gates.mask_weight(row(0.5, 2, 0.51, 1.99), row(1, 1, 1, 1), low=0.5, high=1.0)
    assert ends.tolist() == [[0, 0, 0.51, 1.99]]


def test_weights_that_are_all_0_stay_0_over_their_mean():
    nothing = contrib.corrections.normalized_importance(row(-1000, -1000), row(0, 0), torch.ones(1, 2))
    assert nothing.tolist() == [[0, 0]]


def test_a_lambda_is_never_below_0():
    """A completion of one token with alpha 1/2: the lambda is 0, and the critic is believed for all that follows."""
    rewards, values = row(0, 1), row(0.5, 0.25)
    short = contrib.advantages.gae_by_length(rewards, torch.ones(1, 2), values=values, alpha=0.25)
    assert short.tolist() == advantages.gae(rewards, torch.ones(1, 2), values=values, lam=0.0).tolist()
    assert short.tolist() == [[-0.25, 0.75]]


def test_gpg_counts_a_single_reward_as_one():
    one = contrib.advantages.gpg(column(1, 0, 0, 0), torch.ones(4, 1), group_size=4)
    assert one.flatten().tolist() == [3, -1, -1, -1]


def test_zscore_rows_needs_two_rows_and_no_more():
    two = contrib.advantages.zscore_rows(column(1, 3), torch.ones(2, 1), eps=0.0, ddof=0)
    assert two.flatten().tolist() == [-1, 1]


def test_the_cosine_of_a_wrong_answer_goes_from_its_short_value_to_its_long_one():
    given = {"rewards": torch.zeros(3, dtype=torch.float64), "lengths": torch.tensor([0, 50, 100]), "budget": 100}
    worth = contrib.shaping.cosine(**given, wrong_short=-3.0, wrong_long=-1.0)
    assert worth.tolist() == pytest.approx([-3, -2, -1])


def test_a_step_whose_mark_is_the_threshold_is_not_wrong():
    """Two completions of two tokens, a step at the first one: the one is marked with the threshold, the other below."""
    marks, ends = torch.tensor([[0.5, 0.0], [0.25, 0.0]]), torch.tensor([[1, 0], [1, 0]])
    A = contrib.advantages.first_wrong(marks, torch.ones(2, 2), group_size=2, step_ends=ends, threshold=0.5, coef=1.0)
    assert A[0].tolist() == [0, 0]
    assert A[1].tolist() == [-1, 0]


def test_a_band_of_probabilities_keeps_a_token_at_its_bound_on_both_sides():
    given = {"logp": row(0, -1000, LOG_2 * -1), "old_logp": row(-1000, 0, LOG_2 * -2)}
    assert kept(contrib.trust.probability_band, **given, bound=1.0) == [1, 1, 1]
    assert kept(contrib.trust.probability_band, **given, bound=0.25) == [0, 0, 1]
    assert kept(contrib.trust.probability_band, **given, bound=0.24) == [0, 0, 0]


@pytest.mark.parametrize("prompts", [0, -1])
def test_totals_take_a_whole_number_of_prompts(prompts):
    with pytest.raises(ValueError, match="prompts"):
        aggregation.Totals(sequences=1, tokens=1, prompts=prompts)
