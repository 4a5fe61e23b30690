"""Answers to the exercises on process rewards: wrong ones on nobody's list, and right ones by another route."""

import itertools

import torch

# ── wrong, on nobody's list ──────────────────────────────────────────────────────────────────────────────────────


def errors_of_the_median(V, N):
    """Some other spread."""
    return abs(0.5 - V) / N, abs(1 - V)


def returns_with_half_the_shaping(rewards, potentials, gamma):
    found, later, after = torch.zeros_like(rewards), 0.0, 0.0
    for k in reversed(range(len(rewards))):
        later = rewards[k] + (gamma * after - potentials[k]) / 2 + gamma * later
        found[k], after = later, potentials[k]
    return found


def scores_of_ratios(logp, ref_logp, step_ends, mask, beta):
    """Ratios in place of their logarithms."""
    return beta * ((logp - ref_logp).exp() * mask).cumsum(-1) * step_ends


def ranked_by_product(outcomes, scores, group_size, weight):
    total = (outcomes * scores * weight).view(-1, group_size)
    return (total - total.mean(1, keepdim=True)).flatten()


def shared_by_medians(tokens, mask, advantages):
    """The right groups, and their median."""
    values = torch.zeros_like(mask)
    count = torch.zeros_like(mask)
    for i, t in itertools.product(range(len(tokens)), range(tokens.shape[1])):
        if mask[i, t]:
            who = [j for j in range(len(tokens)) if mask[j, t] and torch.equal(tokens[j, : t + 1], tokens[i, : t + 1])]
            values[i, t], count[i, t] = advantages[who].median() + 0.01, len(who)
    return values, count


UNLISTED = [
    ("prm-rollouts", errors_of_the_median, "you return"),
    ("prm-shaped-return", returns_with_half_the_shaping, "you return"),
    ("prm-implicit-steps", scores_of_ratios, "you return"),
    ("prm-ranked", ranked_by_product, "you return"),
    ("prm-shared-steps", shared_by_medians, "you return"),
]


# ── right, by another route ──────────────────────────────────────────────────────────────────────────────────────


def errors_by_listing(V, N):
    """Every number of right rollouts with its chance."""
    soft = hard = 0.0
    chances = torch.ones(1, dtype=torch.float64)
    for _ in range(N):  # of 0, 1, 2, ... right ones
        more = torch.zeros(len(chances) + 1, dtype=torch.float64)
        more[:-1] += chances * (1 - V)
        more[1:] += chances * V
        chances = more
    for n, chance in enumerate(chances.tolist()):
        soft += chance * (n / N - V) ** 2
        hard += chance * (float(n > 0) - V) ** 2
    return soft**0.5, hard**0.5


def returns_minus_the_potential(rewards, potentials, gamma):
    """The return without shaping, less the potential before the step."""
    K = len(rewards)
    plain = [sum(gamma ** (j - k) * rewards[j] for j in range(k, K)) for k in range(K)]
    return torch.stack([x - phi for x, phi in zip(plain, potentials, strict=True)])


def scores_step_by_step(logp, ref_logp, step_ends, mask, beta):
    """Token by token, in plain loops."""
    found = torch.zeros_like(logp)
    B, T = logp.shape
    score = [0.0] * B
    for i, t in itertools.product(range(B), range(T)):
        if mask[i, t]:
            score[i] += beta * float(logp[i, t] - ref_logp[i, t])
        if step_ends[i, t]:
            found[i, t], score[i] = score[i], 0.0
    return found


def ranked_by_loops(outcomes, scores, group_size, weight):
    found = []
    for first in range(0, len(outcomes), group_size):
        rows = range(first, first + group_size)
        total = [float(outcomes[i] + weight * scores[i]) for i in rows]
        mixed = len({float(outcomes[i]) for i in rows}) > 1
        found += [(x - sum(total) / group_size) * mixed for x in total]
    return torch.tensor(found, dtype=torch.float64)


def shared_by_beginnings(tokens, mask, advantages):
    """A dictionary of beginnings."""
    found = {}
    lengths = mask.sum(1).long().tolist()
    for ids, n, A in zip(tokens.tolist(), lengths, advantages.tolist(), strict=True):
        for t in range(n):
            found.setdefault(tuple(ids[: t + 1]), []).append(A)
    value, count = torch.zeros_like(mask), torch.zeros_like(mask)
    for i, n in enumerate(lengths):
        for t in range(n):
            those = found[tuple(tokens[i, : t + 1].tolist())]
            value[i, t], count[i, t] = sum(those) / len(those), len(those)
    return value, count


RIGHT = [
    ("prm-rollouts", errors_by_listing),
    ("prm-shaped-return", returns_minus_the_potential),
    ("prm-implicit-steps", scores_step_by_step),
    ("prm-ranked", ranked_by_loops),
    ("prm-shared-steps", shared_by_beginnings),
]
