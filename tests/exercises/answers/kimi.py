"""Answers to the exercises on Kimi's losses: wrong ones that are on nobody's list, and right ones by another route."""

import itertools
import math

import torch

# ── wrong, on nobody's list ──────────────────────────────────────────────────────────────────────────────────────


def gap_with_the_mode(rewards, probs, tau):
    """The right constant against the reward of the likeliest completion."""
    return tau * torch.logsumexp(rewards / tau + probs.log(), 0) - rewards[probs.argmax()]


def pairs_with_the_next(logp, old_logp, mask, rewards, group_size, tau):
    """Each completion against its neighbour alone."""
    residual = (rewards - tau * ((logp - old_logp) * mask).sum(1)).view(-1, group_size)
    return (residual - residual.roll(1, 1)).square().mean()


def log_ratio_from_the_cut(logp, first, second, cuts, lengths):
    """Only the part of the first author."""
    place = torch.arange(logp.shape[1])
    return torch.where(place < torch.minimum(cuts, lengths)[:, None], logp - first, 0.0).sum(1)


def estimate_at_the_mean(p, K, tau):
    """Half way between the two constants."""
    return (p + tau * math.log(1 + p * math.expm1(1 / tau))) / 2


UNLISTED = [
    ("kimi-gap", gap_with_the_mode, "you return"),
    ("kimi-pairs", pairs_with_the_next, "you return"),
    ("kimi-partial", log_ratio_from_the_cut, "you return"),
    ("kimi-estimate", estimate_at_the_mean, "you return"),
]


# ── right, by another route ──────────────────────────────────────────────────────────────────────────────────────


def gap_from_the_largest(rewards, probs, tau):
    """Everything relative to the largest reward."""
    top = rewards.max()
    below = (probs * ((rewards - top) / tau).exp()).sum()
    return tau * below.log() + (probs * (top - rewards)).sum()


def pairs_by_the_variance(logp, old_logp, mask, rewards, group_size, tau):
    """Twice the group's variance with the divisor G - 1."""
    residual = rewards - tau * torch.where(mask != 0, logp - old_logp, 0.0).sum(1)
    return 2 * residual.view(-1, group_size).var(1, correction=1).mean()


def log_ratio_token_by_token(logp, first, second, cuts, lengths):
    """A loop for every token."""
    found = []
    for i in range(len(logp)):
        total = logp.new_zeros(())
        for t in range(int(lengths[i])):
            author = first if t < int(cuts[i]) else second
            total = total + logp[i, t] - author[i, t]
        found.append(total)
    return torch.stack(found)


def estimate_by_counting(p, K, tau):
    """By the number of right ones, built up one draw at a time."""
    chances = [1.0]
    for _ in range(K):
        padded = [0.0, *chances, 0.0]
        chances = [p * a + (1 - p) * b for a, b in itertools.pairwise(padded)]
    top = 1 / tau
    logs = [tau * math.log(1 - k / K + k / K * math.exp(top)) if k < K else 1.0 for k in range(K + 1)]
    return sum(c * x for c, x in zip(chances, logs, strict=True))


RIGHT = [
    ("kimi-gap", gap_from_the_largest),
    ("kimi-pairs", pairs_by_the_variance),
    ("kimi-partial", log_ratio_token_by_token),
    ("kimi-estimate", estimate_by_counting),
]
