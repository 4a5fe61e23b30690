"""Answers to the exercises on Dr. GRPO: wrong ones that are on nobody's list, and right ones by another route."""

import math
from dataclasses import replace

import torch

from rlhf_minimal import ALGORITHMS, Batch, policy_loss
from rlhf_minimal.functional import aggregation
from rlhf_minimal.functional.aggregation import Totals

# ── wrong, on nobody's list ──────────────────────────────────────────────────────────────────────────────────────


def weights_by_root(advantages, lengths, budget):
    """A compromise between the two means."""
    return weights_by_autograd(advantages, lengths.sqrt().ceil(), budget)


def reward_by_median(probs, rewards, lengths, group_size):
    """Some other centre."""
    return (rewards - rewards.median()) / lengths


def drift_of_the_expected_length(q, advantage):
    """Plugs the expected length into 1/n + q."""
    return advantage * (1 / (1 + 1 / q) + q)


def residual_to_third_order(q, responses):
    return q * (1 - q) / responses**2 * (1 + (2 - q) / responses)


def objective_by_midpoint(p, group_size):
    """The weight at p / 2, times p."""
    return p * weight(p / 2, group_size)


def loss_with_squares(logp, old_logp, rewards, mask, group_size, budget):
    """Squares the ratio."""
    return loss_by_the_library(2 * logp, 2 * old_logp, rewards, mask, group_size, budget)


def factors_of_squares(lengths, micro_batches):
    return factors_by_loops(lengths**2, micro_batches)


UNLISTED = [
    ("dr-grpo-weights", weights_by_root, "you return"),
    ("dr-grpo-effective-reward", reward_by_median, "you return"),
    ("dr-grpo-stop-drift", drift_of_the_expected_length, "you return"),
    ("dr-grpo-residual", residual_to_third_order, "you return"),
    ("dr-grpo-objective", objective_by_midpoint, "you return"),
    ("dr-grpo-loss", loss_with_squares, "you return"),
    ("dr-grpo-micro", factors_of_squares, "you return"),
]


# ── right, by another route ──────────────────────────────────────────────────────────────────────────────────────


def weights_by_autograd(advantages, lengths, budget):
    """The library's aggregations, differentiated by the first token of each response."""
    T = int(lengths.max())
    mask = (torch.arange(T) < lengths[:, None]).double()
    rows = []
    for aggregate in (aggregation.sequence_mean, aggregation.token_mean, aggregation.fixed_length):
        x = torch.zeros(len(lengths), T, dtype=torch.float64, requires_grad=True)
        totals = Totals.of(mask, budget)
        options = {"budget": budget} if aggregate is aggregation.fixed_length else {}
        aggregate(x * advantages[:, None].double(), mask, totals=totals, **options).backward()
        rows.append(x.grad[:, 0])
    return torch.stack(rows)


def reward_by_listing_pairs(probs, rewards, lengths, group_size):
    """E[A_1 | o_1] / |o_1|, with the other completions averaged one by one."""
    found = []
    for n in range(len(probs)):
        mean_of_others = sum(float(p * r) for p, r in zip(probs, rewards, strict=True))
        baseline = (group_size - 1) * mean_of_others / (group_size - 1)
        found.append((float(rewards[n]) - baseline) / float(lengths[n]))
    return torch.tensor(found)


def drift_by_summing(q, advantage):
    """Over the lengths, as far as they matter."""
    most = int(40 / q) + 40
    total = 0.0
    for n in range(1, most):
        score = (1 - q) - (n - 1) * q
        total += (1 - q) ** (n - 1) * q * advantage * score / n
    return total


def residual_simplified(q, responses):
    return q * (1 - q) / responses**2


def weight(p, group_size):
    """c(G, p), with the sample standard deviation."""
    ways = (math.comb(group_size, k) * p**k * (1 - p) ** (group_size - k) for k in range(group_size + 1))
    root = sum(way * math.sqrt(k * (group_size - k)) for k, way in enumerate(ways))
    return math.sqrt((group_size - 1) / group_size) * root / (group_size * p * (1 - p))


def objective_by_integrating(p, group_size):
    """Simpson's rule on the weight, away from its two ends, where it is a quotient of zeros."""
    xs = torch.linspace(1e-9, p, 201, dtype=torch.float64).tolist()
    ys = [weight(x, group_size) for x in xs]
    return (xs[1] - xs[0]) / 3 * (ys[0] + ys[-1] + 4 * sum(ys[1:-1:2]) + 2 * sum(ys[2:-1:2]))


def loss_by_the_library(logp, old_logp, rewards, mask, group_size, budget):
    return policy_loss(ALGORITHMS["dr_grpo"], Batch(logp, old_logp, mask, rewards, group_size, budget=budget))


def loss_by_the_sum(logp, old_logp, rewards, mask, group_size, budget):
    """A plain sum over tokens, over a plain number."""
    row = replace(ALGORITHMS["dr_grpo"], aggregate=aggregation.sequence_sum)
    return policy_loss(row, Batch(logp, old_logp, mask, rewards, group_size)) / budget


def factors_by_loops(lengths, micro_batches):
    rows, extra = divmod(len(lengths), micro_batches)
    factors, at = [], 0
    for part in range(micro_batches):
        size = rows + (part < extra)
        factors.append(sum(lengths[at : at + size].tolist()))
        at += size
    return [factor / sum(factors) for factor in factors]


RIGHT = [
    ("dr-grpo-weights", weights_by_autograd),
    ("dr-grpo-effective-reward", reward_by_listing_pairs),
    ("dr-grpo-stop-drift", drift_by_summing),
    ("dr-grpo-residual", residual_simplified),
    ("dr-grpo-objective", objective_by_integrating),
    ("dr-grpo-loss", loss_by_the_library),
    ("dr-grpo-loss", loss_by_the_sum),
    ("dr-grpo-micro", factors_by_loops),
]
