"""Answers to the exercises on GSPO: wrong ones that are on nobody's list, and right ones by another route."""

import math
from dataclasses import replace
from functools import partial

import torch

from rlhf_minimal import ALGORITHMS, Batch, policy_loss
from rlhf_minimal.functional import gates, ratios

# ── wrong, on nobody's list ──────────────────────────────────────────────────────────────────────────────────────


def truncated_weight(logp, old_logp, mask, rewards):
    """An importance weight with a cap, which is biased."""
    weight = torch.where(mask > 0, logp - old_logp, 0.0).sum(1).exp()
    return (weight.clamp(max=1.2) * rewards).mean()


def gap_by_the_range(log_ratio, mask):
    """Some other measure of spread."""
    high = torch.where(mask > 0, log_ratio, -math.inf).amax(1)
    low = torch.where(mask > 0, log_ratio, math.inf).amin(1)
    return (high - low) ** 2 / 8


def noise_to_first_order(sigma, n):
    """exp(x) - 1 taken for x, in the product alone."""
    return n * sigma**2 * (1 + n * sigma**2 / 2), (math.exp(sigma**2) - 1) / n, sigma**2 / n


def loss_of_log_clip(logp, old_logp, advantages, mask, low, high):
    """Clips the mean log-ratio to [-low, high], and exponentiates afterwards."""
    drift = torch.where(mask > 0, logp - old_logp, 0.0).sum(1) / mask.sum(1)
    clipped = drift.clamp(-low, high).exp()
    return -torch.minimum(drift.exp() * advantages, clipped * advantages).mean()


def gradient_squared(logp, old_logp, advantages, mask, low, high):
    """The ratio twice."""
    s = ratios.sequence(logp, old_logp, mask)
    return s * gradient_by_autograd(logp, old_logp, advantages, mask, low, high)


def token_loss_of_the_sign(logp, old_logp, advantages, mask, low, high):
    """Looks only at the signs of the advantages."""
    return token_loss_by_the_library(logp, old_logp, advantages.sign(), mask, low, high)


def jump_of_the_widest(rest, n, low, high):
    """The wider side of the clip range for both."""
    widest = max(low, high)
    return n * math.log(1 + widest) - rest, n * math.log(1 - widest) - rest


UNLISTED = [
    ("gspo-jump", jump_of_the_widest, "you return"),
    ("gspo-reweight", truncated_weight, "you return"),
    ("gspo-gap", gap_by_the_range, "you return"),
    ("gspo-noise", noise_to_first_order, "you return"),
    ("gspo-loss", loss_of_log_clip, "you return"),
    ("gspo-gradient", gradient_squared, "you return"),
    ("gspo-token", token_loss_of_the_sign, "you return"),
]


# ── right, by another route ──────────────────────────────────────────────────────────────────────────────────────


def reweight_by_loops(logp, old_logp, mask, rewards):
    total = 0.0
    for i in range(len(rewards)):
        new = old = 1.0
        for t in range(int(mask[i].sum())):
            new, old = new * logp[i, t].exp().item(), old * old_logp[i, t].exp().item()
        total += new / old * rewards[i].item()
    return total / len(rewards)


def gap_by_halving(log_ratio, mask):
    """The exact difference for tiny multiples of the log-ratios, scaled back up: what is left is second order."""
    x, h = log_ratio.double(), 1e-3
    count = mask.double().sum(1)

    def difference(scale):
        y = torch.where(mask > 0, scale * x, 0.0)
        arithmetic = torch.where(mask > 0, y.exp(), 0.0).sum(1) / count
        return (arithmetic - (y.sum(1) / count).exp()) / scale**2

    return (difference(h) + difference(-h)) / 2


def noise_by_moments(sigma, n):
    """Second moments of normal exponentials; the mean of n as a double sum over pairs."""

    def moment(variance, mean):  # of exp(X)
        return math.exp(mean + variance / 2)

    square = moment(4 * sigma**2, -(sigma**2))  # E[w^2]
    product = square**n - 1
    pairs = n * square + n * (n - 1) * 1.0
    return product, pairs / n**2 - 1, sum(sigma**2 for _ in range(n)) / n**2


def loss_by_the_library(logp, old_logp, advantages, mask, low, high):
    row = replace(ALGORITHMS["gspo"], gate=partial(gates.clip, low=low, high=high))
    return policy_loss(row, Batch(logp, old_logp, mask, torch.zeros(len(logp)), 1, advantages=advantages))


def loss_by_roots(logp, old_logp, advantages, mask, low, high):
    """The n-th root of a product of ratios, one response at a time."""
    total = 0.0
    for i in range(len(logp)):
        n = int(mask[i].sum())
        s = ((logp[i, :n] - old_logp[i, :n]).exp()).prod() ** (1 / n)
        a = advantages[i]
        total = total + (torch.minimum(s, s * 0 + 1 + high) if a > 0 else torch.maximum(s, s * 0 + 1 - low)) * a
    return -total / len(logp)


def gradient_by_autograd(logp, old_logp, advantages, mask, low, high):
    leaf = logp.detach().clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss_by_roots(leaf, old_logp, advantages, mask, low, high), leaf)
    return torch.where(mask > 0, gradient, 0.0)


def token_loss_by_the_library(logp, old_logp, advantages, mask, low, high):
    row = replace(ALGORITHMS["gspo_token"], gate=partial(gates.clip, low=low, high=high))
    return policy_loss(row, Batch(logp, old_logp, mask, torch.zeros(len(logp)), 1, advantages=advantages))


def jump_by_search(rest, n, low, high):
    """Tries 129 log-ratios of the last token, for both signs at once, until the library's gate takes the gradient."""
    signs, steps = torch.tensor([1.0, -1.0], dtype=torch.float64), torch.linspace(0, 1, 129, dtype=torch.float64)

    def clipped(last):
        logp = torch.zeros(last.numel(), n, dtype=torch.float64)
        logp[:, 0], logp[:, 1] = rest, last.flatten()
        logp.requires_grad_()
        advantages = signs[:, None].expand_as(last).flatten()
        loss = loss_by_the_library(logp, torch.zeros_like(logp), advantages, torch.ones_like(logp), low, high)
        return (torch.autograd.grad(loss, logp)[0] == 0).all(-1).view_as(last)

    inside, outside = -20 * signs, 20 * signs
    for _ in range(6):
        tried = inside[:, None] + (outside - inside)[:, None] * steps
        first = clipped(tried).int().argmax(-1, keepdim=True)
        inside, outside = tried.gather(1, first - 1)[:, 0], tried.gather(1, first)[:, 0]
    return tuple(float(x) for x in outside)


RIGHT = [
    ("gspo-jump", jump_by_search),
    ("gspo-reweight", reweight_by_loops),
    ("gspo-gap", gap_by_halving),
    ("gspo-noise", noise_by_moments),
    ("gspo-loss", loss_by_the_library),
    ("gspo-loss", loss_by_roots),
    ("gspo-gradient", gradient_by_autograd),
    ("gspo-token", token_loss_by_the_library),
]
