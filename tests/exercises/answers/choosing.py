"""Answers to the exercises on choosing: wrong ones on nobody's list, right ones by another route."""

import statistics

# ── wrong, on nobody's list ──────────────────────────────────────────────────────────────────────────────────────


def one_more_seed(gap, spread, t):
    """The right number and one to be safe."""
    return right_seeds(gap, spread, t) + 1


def second_best(scores):
    """The arm with the second-best mean."""
    return sorted(scores.mean(1).tolist())[-2]


def room_without_moments(card, critic, frozen):
    """Eight bytes a trained weight."""
    return 0.9 * card / (8 * (1 + critic) + 2 * frozen.sum().item())


UNLISTED = [
    ("choose-seeds", one_more_seed, "you return"),
    ("choose-honest", second_best, "you return"),
    ("choose-room", room_without_moments, "you return"),
]


# ── right, by another route ──────────────────────────────────────────────────────────────────────────────────────


def right_seeds(gap, spread, t):
    """From above: the last number that still separates."""
    return min(n for n in range(2, len(t)) if (gap / spread) ** 2 * n > float(t[n - 1]) ** 2)


def right_honest(scores):
    """Seed by seed, in lists."""
    table, kept = scores.tolist(), []
    for seed in range(len(table[0])):
        others = [[x for s, x in enumerate(row) if s != seed] for row in table]
        best = max(range(len(table)), key=lambda arm: statistics.fmean(others[arm]))
        kept.append(table[best][seed])
    return statistics.fmean(kept)


def right_room(card, critic, frozen):
    """Bisection on the bytes."""
    low, high = 0.0, card

    def bytes_of(n):
        return 16 * n + 16 * critic * n + sum(2 * n * size for size in frozen.tolist())

    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if bytes_of(middle) <= 0.9 * card else (low, middle)
    return low


RIGHT = [
    ("choose-seeds", right_seeds),
    ("choose-honest", right_honest),
    ("choose-room", right_room),
]
