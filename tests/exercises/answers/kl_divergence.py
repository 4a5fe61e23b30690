"""Answers to the exercises on KL divergence: wrong ones that are on nobody's list, and right ones by another route."""

import math

import torch

from rlhf_minimal.config import Config
from rlhf_minimal.functional import kl
from rlhf_minimal.kl_control import next_factor

# ── wrong, on nobody's list ──────────────────────────────────────────────────────────────────────────────────────


def multiple_of_the_ratio(policy, reference):
    """Some other quotient."""
    return (policy * (policy / reference).log()).sum() / (reference * (reference / policy).log()).sum()


def optimum_of_the_square(p, beta):
    """The reward counted twice."""
    odds = p / (1 - p) * math.exp(2 / beta)
    q = odds / (1 + odds)
    return q, q * math.log(q / p) + (1 - q) * math.log((1 - q) / (1 - p))


def straight_through_squared(logp, ref_logp):
    """The square of the log-ratio, as its own value."""
    d = logp - ref_logp
    return d**2 * kl.k3(logp, ref_logp).detach()


def support_by_k2(policy, reference, kept):
    """Another estimator on the cut policy."""
    cut = policy[kept] / policy[kept].sum()
    return (cut * (cut / reference[kept]).log() ** 2 / 2).sum()


def coefficients_of_the_mean(beta, distances, target, completions, horizon):
    """Sees the mean distance so far instead of the last one."""
    means = distances.double().cumsum(0) / torch.arange(1, len(distances) + 1)
    factors = 1 + (means / target - 1).clamp(-0.2, 0.2) * completions / horizon
    return beta * factors.cumprod(0)


UNLISTED = [
    ("kl-variate", multiple_of_the_ratio, "you return"),
    ("kl-optimum", optimum_of_the_square, "you return"),
    ("kl-straight-through", straight_through_squared, "you return"),
    ("kl-support", support_by_k2, "you return"),
    ("kl-control", coefficients_of_the_mean, "you return"),
]


# ── right, by another route ──────────────────────────────────────────────────────────────────────────────────────


def multiple_by_three_points(policy, reference):
    """The vertex of the parabola through the variances at c = -1, 0, 1."""
    logp, ref = policy.log(), reference.log()

    def variance(c):
        k = kl.k1(logp, ref) + c * ((ref - logp).exp() - 1)
        return (policy * k**2).sum() - (policy * k).sum() ** 2

    left, middle, right = variance(-1), variance(0), variance(1)
    return (left - right) / (2 * (left + right - 2 * middle))


def optimum_by_gibbs(p, beta):
    """From log Z: the best value is beta log Z, and KL = E[R] / beta - log Z."""
    z = 1 - p + p * math.exp(1 / beta)
    share = p * math.exp(1 / beta) / z
    return share, share / beta - math.log(z)


def straight_through_by_detached_difference(logp, ref_logp):
    moving, fixed = kl.k2(logp, ref_logp), kl.k2(logp.detach(), ref_logp)
    return kl.k3(logp.detach(), ref_logp) + moving - fixed


def support_by_the_shortfall(policy, reference, kept):
    """The divergence minus the reference's mass outside."""
    cut = policy[kept] / policy[kept].sum()
    return (cut * (cut.log() - reference[kept].log())).sum() - reference[~kept].sum()


def coefficients_by_the_library(beta, distances, target, completions, horizon):
    config = Config(kl_control="adaptive", kl_control_target=target, kl_control_horizon=horizon)
    factor, found = 1.0, []
    for distance in distances.tolist():
        factor = next_factor(factor, distance, completions, config)
        found.append(beta * factor)
    return torch.tensor(found, dtype=torch.float64)


RIGHT = [
    ("kl-variate", multiple_by_three_points),
    ("kl-optimum", optimum_by_gibbs),
    ("kl-straight-through", straight_through_by_detached_difference),
    ("kl-support", support_by_the_shortfall),
    ("kl-control", coefficients_by_the_library),
]
