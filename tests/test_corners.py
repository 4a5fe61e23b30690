"""Corners of cells and of the objective: what every docstring takes for granted and no algorithm comes across."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor

from rlhf_minimal import ALGORITHMS, Batch, contrib, policy_loss, prepare
from rlhf_minimal.functional import advantages, checks
from rlhf_minimal.functional.aggregation import Totals
from rlhf_minimal.functional.checks import ROUNDING
from rlhf_minimal.lab import chunked

BARE = replace(ALGORITHMS["grpo"], kl=(), shape=None, trust=None)


def batch(B: int = 4, T: int = 3, **other) -> Batch:
    """Groups of two, the first completion of each right, all tokens trained; a policy that has moved."""
    logp = -torch.arange(1.0, B * T + 1).view(B, T) / 10
    given = {
        "logp": logp,
        "old_logp": logp - 0.05,
        "mask": torch.ones(B, T),
        "rewards": torch.tensor([1.0, 0.0] * (B // 2)),
    }
    return Batch(**given | {"group_size": 2, "budget": T} | other)


# ---- what a column hands to its cell ----------------------------------------------------------------------------


def test_a_shape_is_told_which_completions_were_cut_off():
    def half_if_cut(rewards, lengths, *, truncated):
        return torch.where(truncated, rewards / 2, rewards)

    cut = torch.tensor([True, False, False, False])
    row = replace(BARE, advantage=advantages.group_centered, shape=half_if_cut)
    assert prepare(row, batch(truncated=cut)).advantages[:, 0].tolist() == [0.25, -0.25, 0.5, -0.5]


def test_a_normalisation_is_told_the_size_of_a_group():
    def over_the_group(A, mask, *, group_size):
        return A / group_size

    row = replace(BARE, advantage=advantages.group_centered, normalize=over_the_group)
    assert prepare(row, batch()).advantages[:, 0].tolist() == [0.25, -0.25, 0.25, -0.25]


def gradient_of(row, given: Batch) -> Tensor:
    """[B, T] of the loss in the log-probs."""
    logp = given.logp.clone().requires_grad_(True)
    policy_loss(row, prepare(row, replace(given, logp=logp))).backward()
    return logp.grad


def test_a_trust_cell_has_no_gradient_and_changes_no_dtype():
    def by_probability(mask, *, logp):
        return logp.exp().double()

    given = batch()
    plain = gradient_of(BARE, given)
    assert torch.allclose(gradient_of(replace(BARE, trust=by_probability), given), plain * given.logp.exp())
    row = replace(BARE, trust=by_probability)
    assert policy_loss(row, prepare(row, given)).dtype == torch.float32


def test_a_trust_cell_is_given_constants_and_gives_one():
    """No gradient reaches the policy through it, and none what it has learned from elsewhere."""
    scale, seen = torch.ones((), requires_grad=True), []

    def scaled(mask, *, logp, entropy):
        seen.extend([logp.requires_grad, entropy.requires_grad])
        return scale * torch.ones_like(logp)

    logp, entropy = batch().logp.clone().requires_grad_(), torch.ones(4, 3, requires_grad=True)
    policy_loss(replace(BARE, trust=scaled, entropy=0.1), batch(logp=logp, entropy=entropy)).backward()
    assert seen == [False, False]
    assert scale.grad is None
    assert logp.grad.any()
    assert (entropy.grad != 0).all()


def test_an_error_names_the_function_under_a_partial():
    def lost(mask, *, logp, by):
        return logp * float("nan")

    row = replace(BARE, trust=partial(lost, by=1))
    with pytest.raises(ValueError, match="trust, lost, gives"):
        policy_loss(row, prepare(row, batch()))


# ---- what a batch takes -----------------------------------------------------------------------------------------


def test_flags_and_indices_of_a_batch_are_no_numbers():
    """They have no range: a flag may be a bool, and whole numbers may be as large as they are."""
    given = batch(step_ends=torch.ones(4, 3, dtype=torch.bool), prompt_of=torch.full((4,), 2**62))
    assert given.prompt_of.tolist() == [2**62] * 4


def test_a_prompt_may_have_any_number_of_tokens():
    assert batch(prompt_tokens=torch.full((4,), 2**62)).prompt_tokens.tolist() == [2**62] * 4


def test_log_probs_are_refused_only_where_all_of_them_are_above_0():
    logp = batch().logp
    logp[0, 0] = 0.5
    batch(logp=logp, old_logp=logp)
    level = torch.full((4, 3), ROUNDING, dtype=torch.float64)
    batch(logp=level, old_logp=level)
    with pytest.raises(ValueError, match="at most 0"):
        batch(logp=level * 1.01, old_logp=level * 1.01)


# ---- what is said to whom ---------------------------------------------------------------------------------------


def test_a_statistic_of_the_whole_step_says_which_cell_takes_it():
    x, mask, more = torch.zeros(2, 2), torch.ones(2, 2), Totals(sequences=4, tokens=8)
    for name, what, call in (
        ("high_entropy", "a quantile", partial(contrib.trust.high_entropy, mask, entropy=x)),
        ("clip_cov", "means", partial(contrib.trust.clip_cov, mask, logp=x, old_logp=x, advantages=x)),
        ("normalized_importance", "a mean", partial(contrib.corrections.normalized_importance, x, x, mask)),
    ):
        with pytest.raises(ValueError, match=f"^{name} takes {what} over the whole optimiser step"):
            call(totals=more)


def test_the_quantile_of_more_tokens_than_torch_takes():
    """512 completions of 32 768 tokens are 2**24, and the quantile of 0 to n is its share of n."""
    n = 2**24 + 4
    entropy = torch.cat([torch.tensor([float("nan")]).double(), torch.arange(n, -1, -1).double()])[None]
    weight = contrib.trust.high_entropy(~entropy.isnan(), entropy=entropy, share=0.625)  # half-way between two tokens
    assert torch.equal(weight != 0, entropy >= 0.375 * n)


def test_the_quantile_is_that_of_torch_while_torch_takes_it():
    """Its rounding too, by which a token on the edge is kept or not: 0.6 of 50 is a little more than 30 in float32."""
    entropy = torch.arange(51.0)[None]
    weight = contrib.trust.high_entropy(torch.ones(1, 51), entropy=entropy, share=0.4)
    assert torch.equal(weight != 0, entropy >= torch.quantile(entropy, 1 - 0.4))
    assert weight.sum() == 20  # without the rounding 21


@pytest.mark.parametrize(
    ("field", "advantage", "words"),
    [
        (
            "greedy_rewards",
            contrib.advantages.greedy_baseline,
            "the reward of the greedy completion of each row's prompt [B]",
        ),
        ("reward_parts", contrib.advantages.gdpo, "the parts of each reward [B, K], one column a reward"),
        (
            "step_ends",
            contrib.advantages.own_step,
            "1 on the last token of each step [B, T], and step_rewards with their marks",
        ),
        ("truncated", None, "bool [B], True where the budget ended the completion"),
    ],
)
def test_what_a_row_lacks_it_asks_for(field, advantage, words):
    def half_if_cut(rewards, lengths, *, truncated):
        return torch.where(truncated, rewards / 2, rewards)

    row = replace(BARE, shape=half_if_cut) if advantage is None else replace(BARE, advantage=advantage)
    with pytest.raises(ValueError, match=f"needs {field}: pass Batch") as caught:
        prepare(row, batch())
    assert str(caught.value).endswith(f"Batch(..., {field}=...), {words}")


def test_what_an_option_should_be():
    with pytest.raises(ValueError, match=r"expected a finite number$"):
        checks.check_numbers(right=float("inf"))


def test_a_cosine_of_a_batch_without_tokens_to_spare_is_its_long_value():
    long = contrib.shaping.cosine(
        torch.tensor([1.0, 0.0]), torch.tensor([9, 9]), budget=8, wrong_short=-3.0, wrong_long=-1.0
    )
    assert long.tolist() == [0.5, -1.0]


def test_weights_below_1_are_brought_to_a_mean_of_1():
    old = torch.tensor([[-1.0, -2.0]])
    weights = contrib.corrections.normalized_importance(old, torch.tensor([[-0.5, -0.5]]), torch.ones(1, 2))
    assert weights.mean().item() == pytest.approx(1)
    assert weights[0, 0] > 1 > weights[0, 1]


# ---- log-probs, a chunk at a time ---------------------------------------------------------------------------------


def head(
    dtype: torch.dtype = torch.float32, *, bias: Tensor | None = None, ids: int = 0
) -> tuple[Tensor, Tensor, list]:
    """Log-probs and entropies of six tokens, three a chunk, vocabulary of four; and the gradients of their sum."""
    torch.manual_seed(0)
    hidden = torch.randn(2, 3, 5).to(dtype).requires_grad_(True)
    weight = torch.randn(4, 5, requires_grad=True)
    picked = torch.full((2, 3), ids)
    logp, entropy = chunked.chunked_logprobs(hidden, weight, picked, bias=bias, chunk=3)
    wanted = [hidden, weight] + ([] if bias is None else [bias])
    return logp, entropy, list(torch.autograd.grad((logp + entropy).sum(), wanted))


def test_a_token_that_is_forbidden_has_no_share_in_entropy_and_gradient():
    """A bias of -inf takes it out of the vocabulary: what is left is a vocabulary without it."""
    bias = torch.tensor([0.0, 0.0, 0.0, float("-inf")], requires_grad=True)
    logp, entropy, (of_hidden, of_weight, of_bias) = head(bias=bias)
    assert all(torch.isfinite(x).all() for x in (logp, entropy, of_hidden, of_weight, of_bias))
    assert (of_weight[3] == 0).all()
    assert of_bias[3] == 0
    torch.manual_seed(0)
    hidden, weight = torch.randn(2, 3, 5), torch.randn(4, 5)[:3]
    there = (hidden @ weight.T).log_softmax(-1)
    torch.testing.assert_close(entropy, -(there.exp() * there).sum(-1))
    torch.testing.assert_close(logp, there[..., 0])


def test_the_chunks_take_what_autocast_hands_them():
    with torch.autocast("cpu", torch.bfloat16):
        _, _, (of_hidden, of_weight) = head(torch.bfloat16)
    assert of_hidden.dtype == torch.bfloat16
    assert of_weight.dtype == torch.float32
    assert torch.isfinite(of_weight).all()


def test_a_token_outside_the_vocabulary_is_named():
    with pytest.raises(ValueError, match="ids go from 4 to 4, but the vocabulary has 4"):
        head(ids=4)
