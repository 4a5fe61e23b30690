"""Answers to the exercises on policy gradients: wrong ones on nobody's list, right ones by another route."""

import torch

from rlhf_minimal.functional import advantages

# ── wrong, on nobody's list ──────────────────────────────────────────────────────────────────────────────────────


def samples_by_spread(probs, rewards, scores, baseline):
    """The noise of the largest parameter alone."""
    noise = []
    for b in (0.0, baseline):
        x = (rewards - b)[:, None] * scores
        noise.append((probs[:, None] * (x - probs @ x) ** 2).sum(0).max())
    return noise[0] / noise[1]


def bias_of_the_likeliest(probs, baseline):
    """Compares with the baseline of the most probable token."""
    return -probs * (baseline - baseline[probs.argmax()])


def push_by_the_mean_length(p, short, long, reward, baseline):
    """Divides by the mean length."""
    return p * (1 - p) * (reward - baseline) * (long - short) / (p * short + (1 - p) * long)


def norm_of_surprise(probs):
    """The mean surprise, squared."""
    return ((probs * probs.log()).sum(-1) ** 2).sum()


def leaving_one_out(token_rewards, mask):
    """The mean of the others, where there are others."""
    to_go = (token_rewards * mask).flip(1).cumsum(1).flip(1) * mask
    others = (to_go.sum(0) - to_go) / (mask.sum(0) - 1).clamp(min=1)
    return (to_go - others) * mask


UNLISTED = [
    ("pg-samples", samples_by_spread, "you return"),
    ("pg-action-baseline", bias_of_the_likeliest, "you return"),
    ("pg-length-push", push_by_the_mean_length, "you return"),
    ("pg-score-norm", norm_of_surprise, "you return"),
    ("pg-position-baseline", leaving_one_out, "you return"),
]


# ── right, by another route ──────────────────────────────────────────────────────────────────────────────────────


def samples_by_covariance(probs, rewards, scores, baseline):
    """Traces of covariance matrices, completion by completion."""

    def trace(b):
        mean = sum(p * (r - b) * g for p, r, g in zip(probs, rewards, scores, strict=True))
        second = sum(p * (r - b) ** 2 * (g @ g) for p, r, g in zip(probs, rewards, scores, strict=True))
        return second - mean @ mean

    return trace(0.0) / trace(baseline)


def bias_by_autograd(probs, baseline):
    """Minus the gradient of E[b], with the chances differentiated and b not."""
    logits = probs.log().requires_grad_()
    (gradient,) = torch.autograd.grad((logits.softmax(-1) * baseline).sum(), logits)
    return -gradient


def push_by_autograd(p, short, long, reward, baseline):
    x = torch.tensor(p, dtype=torch.float64).logit().requires_grad_()
    chance = x.sigmoid()
    objective = (reward - baseline) * (chance / short + (1 - chance) / long)
    return torch.autograd.grad(objective, x)[0].item()


def norm_by_pairs(probs):
    """Two independent draws of a token: half the mean squared distance of their scores."""
    V = probs.shape[-1]
    pairs = probs[:, :, None] * probs[:, None, :]  # [T, V, V]
    return (pairs * (1 - torch.eye(V, dtype=probs.dtype))).sum()


def position_by_the_library(token_rewards, mask):
    to_go = advantages.returns_to_go(token_rewards, mask)
    out = torch.zeros_like(to_go)
    for t in range(mask.shape[1]):
        rows = mask[:, t] > 0
        if rows.any():
            out[rows, t] = to_go[rows, t] - to_go[rows, t].mean()
    return out


RIGHT = [
    ("pg-samples", samples_by_covariance),
    ("pg-action-baseline", bias_by_autograd),
    ("pg-length-push", push_by_autograd),
    ("pg-score-norm", norm_by_pairs),
    ("pg-position-baseline", position_by_the_library),
]
