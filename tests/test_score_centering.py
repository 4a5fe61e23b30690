"""Score centering: the mean score under the sampler is 0 afterwards, exactly; and what follows on the tree."""

import math

import pytest
import torch

from rlhf_book.tabular import Tree
from rlhf_minimal.contrib.corrections import score_centering

TREE = Tree(vocab=3, length=3)
TOKENS = torch.arange(3)


def close(actual, expected, tolerance=1e-12):
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def draw(seed, K=8, B=3, T=4):
    g = torch.Generator().manual_seed(seed)
    logits, noise = (torch.randn(B, T, K, generator=g, dtype=torch.float64) for _ in range(2))
    mask = (torch.rand(B, T, generator=g) < 0.8).double()
    return logits, (logits + noise).log_softmax(-1), mask


def mean_score(logits, sampler_logp, mask, weight):
    """[B, T, V] the gradient of what samples of mu give in the mean, each with its importance weight."""
    logits = logits.clone().requires_grad_()
    logp = logits.log_softmax(-1)
    w = weight((logp - sampler_logp).exp()).detach()
    (gradient,) = torch.autograd.grad(((sampler_logp.exp() * w * logp).sum(-1) * mask).sum(), logits)
    return gradient


def term(logits, sampler_logp, mask, **bounds):
    logits = logits.clone().requires_grad_()
    value = score_centering(logits.log_softmax(-1), sampler_logp, mask, **bounds)
    return value, torch.autograd.grad(value.sum(), logits)[0]


@pytest.mark.parametrize(
    ("bounds", "weight"),
    [
        ({}, torch.ones_like),
        ({"floor": 0.0, "cap": 2.0}, lambda w: w.clamp(max=2.0)),
        ({"floor": 0.5, "cap": 1.3}, lambda w: w.clamp(0.5, 1.3)),
    ],
    ids=["no weight", "truncated", "both sides"],
)
def test_with_all_tokens_its_gradient_is_the_mean_score(bounds, weight):
    for seed in range(10):
        logits, sampler_logp, mask = draw(seed)
        _, gradient = term(logits, sampler_logp, mask, **bounds)
        expected = mean_score(logits, sampler_logp, mask, weight)
        close(gradient, expected)
        assert expected.norm() > 0.1


def test_an_exact_weight_leaves_nothing_to_take_away():
    logits, sampler_logp, mask = draw(0)
    _, gradient = term(logits, sampler_logp, mask, floor=0.0, cap=1e9)
    assert gradient.abs().max() < 1e-12


def test_with_the_likeliest_alone_it_is_exact_where_the_others_are_the_policys():
    """mu is the policy, but for two tokens, and the rest keeps its proportions."""
    logits, _, mask = draw(1)
    p = logits.softmax(-1)
    q = p.clone()
    q[..., 0], q[..., 1] = 0.5 * p[..., 0], 0.2 * p[..., 1]
    rest = p[..., 2:].sum(-1, keepdim=True)
    q[..., 2:] = p[..., 2:] / rest * (1 - q[..., :2].sum(-1, keepdim=True))
    for bounds in ({}, {"floor": 0.0, "cap": 1.05}):
        x = logits.clone().requires_grad_()
        value = score_centering(x.log_softmax(-1)[..., :2], q.log()[..., :2], mask, **bounds)
        (gradient,) = torch.autograd.grad(value.sum(), x)
        low, high = bounds.get("floor", 1.0), bounds.get("cap", 1.0)
        close(gradient, mean_score(logits, q.log(), mask, lambda w, a=low, b=high: w.clamp(a, b)))


def test_two_places_by_a_plain_loop():
    """NeMo RL's documentation, written again: m = clamp(p, lo q, hi q), alpha = clamp(1, lo rho, hi rho)."""
    p, q = [0.5, 0.2], [0.25, 0.5]
    lo, hi = 0.0, 1.5
    rho = (1 - sum(q)) / (1 - sum(p))
    alpha = min(max(1.0, lo * rho), hi * rho)
    expected = sum((min(max(a, lo * b), hi * b) - alpha * a) * math.log(a) for a, b in zip(p, q, strict=True))
    tensors = [torch.tensor([[x]], dtype=torch.float64).log() for x in (p, q)]
    assert score_centering(*tensors, torch.ones(1, 1), floor=lo, cap=hi).item() == pytest.approx(expected, abs=1e-12)


# ---- on the tree ------------------------------------------------------------------------------------------------


def centred_gradient(theta, sampler, advantages):
    """The exact mean gradient of A (log pi - C) over completions of the sampler."""
    x = theta.clone().requires_grad_()
    places = (TREE.node[..., None], TOKENS)  # all three tokens at each place
    C = score_centering(x.log_softmax(-1)[places], sampler.log_softmax(-1)[places], TREE.mask)
    p = TREE.probs(sampler)[:, None]
    return TREE.grad((p * advantages * (TREE.logp(x) - C) * TREE.mask).sum(), x)


def test_a_constant_in_the_reward_moves_nothing():
    theta, sampler = TREE.random_logits(0), TREE.random_logits(1)
    assert centred_gradient(theta, sampler, torch.ones(15, 1)).abs().max() < 1e-12
    x = theta.clone().requires_grad_()
    plain = TREE.grad((TREE.probs(sampler)[:, None] * TREE.logp(x) * TREE.mask).sum(), x)
    assert plain.norm() > 0.1


def test_for_a_table_of_logits_it_is_the_samplers_own_policy_gradient():
    """Score minus its mean is one-hot minus mu: what the sampler's logits would be told."""
    for seed in range(5):
        theta, sampler = TREE.random_logits(seed), TREE.random_logits(100 + seed)
        R = torch.rand(15, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        late = TREE.policy_gradient(sampler.clone().requires_grad_(), R)
        close(centred_gradient(theta, sampler, R[:, None]), late)


# ---- edges ------------------------------------------------------------------------------------------------------


def test_outside_the_mask_nothing_is_read():
    logits, sampler_logp, mask = draw(2)
    assert (mask == 0).any()
    clean = score_centering(logits.log_softmax(-1), sampler_logp, mask)
    x = logits.log_softmax(-1).requires_grad_()
    spoiled = torch.where((mask == 0)[..., None], torch.nan, x)
    value = score_centering(spoiled, torch.where((mask == 0)[..., None], torch.nan, sampler_logp), mask)
    assert torch.equal(value, clean)
    assert (value[mask == 0] == 0).all()
    assert torch.isfinite(torch.autograd.grad(value.sum(), x)[0]).all()


def test_a_token_that_neither_can_write():
    logp = torch.tensor([[[0.5, 0.5, 0.0]]], dtype=torch.float64).log()
    other = torch.tensor([[[0.7, 0.3, 0.0]]], dtype=torch.float64).log()
    assert torch.isfinite(score_centering(logp, other, torch.ones(1, 1))).all()
