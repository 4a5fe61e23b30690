"""What a benchmark separates: paired differences over seeds, their intervals, and a correction for how many were looked at.

Two rows that were run with the same seeds saw the same problems, so their results are compared seed by seed. A
difference is called **separated** if its p-value, times a factor for the number of pairs that were looked at (Holm), is
below five per cent. Everything else is called not separated, which does not say that two rows are equal.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations

LEVEL = 0.05


def two_sided(t: float, degrees: int) -> float:
    """How likely a Student's t is to lie at least this far from 0, on either side; a finite sum, exact.

    Args:
        t: The statistic.
        degrees: Of freedom, at least 1.

    Example:
        >>> round(two_sided(2.776, 4), 4), round(two_sided(-4.604, 4), 4)
        (0.05, 0.01)
    """
    if degrees < 1:
        raise ValueError(
            f"a t statistic has at least one degree of freedom, not {degrees}"
        )
    if math.isnan(t):
        raise ValueError("a t statistic is a number; got nan")
    angle = math.atan2(abs(t), math.sqrt(degrees))
    term, total = 1.0, 0.0
    square = math.cos(angle) ** 2
    if degrees % 2:
        for k in range(1, (degrees - 1) // 2 + 1):
            term = (
                math.cos(angle) if k == 1 else term * square * (2 * k - 2) / (2 * k - 1)
            )
            total += term
        inside = 2 / math.pi * (angle + math.sin(angle) * total)
    else:
        for k in range(degrees // 2):
            term = 1.0 if k == 0 else term * square * (2 * k - 1) / (2 * k)
            total += term
        inside = math.sin(angle) * total
    return max(0.0, 1.0 - inside)


@cache
def critical(level: float, degrees: int) -> float:
    """The t that is exceeded, on either side, with this probability: the inverse of `two_sided`.

    Example:
        >>> round(critical(0.05, 4), 3), round(critical(0.05 / 78, 4), 2)
        (2.776, 9.67)
    """
    if not 0 < level < 1:
        raise ValueError(f"a level lies between 0 and 1; got {level}")
    low, high = 0.0, 1.0
    while two_sided(high, degrees) > level:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if two_sided(middle, degrees) > level else (low, middle)
        )
    return high


@dataclass(frozen=True)
class Difference:
    """One row's results minus another's, seed by seed.

    Attributes:
        values: A number a seed.
        mean: Of these.
        low: End of the 95 % interval of the mean (Student's t), for this pair alone.
        high: Its other end.
        p: Of a t-test that the mean is 0, for this pair alone.
        adjusted: The same after the correction for all pairs looked at; `p` before one was made.
    """

    values: tuple[float, ...]
    mean: float
    low: float
    high: float
    p: float
    adjusted: float

    @property
    def separated(self) -> bool:
        """Whether the difference survives the correction."""
        return self.adjusted < LEVEL


def paired(one: Sequence[float], other: Sequence[float]) -> Difference:
    """`one` minus `other`, with the interval and the p-value of the mean.

    Raises:
        ValueError: Fewer than two seeds, not the same number on both sides, or a result that is not finite.

    Example:
        >>> found = paired([3.0, 5.0, 4.0], [1.0, 2.0, 0.0])
        >>> found.mean, round(found.low, 2), round(found.high, 2), round(found.p, 3)
        (3.0, 0.52, 5.48, 0.035)
    """
    if len(one) != len(other) or len(one) < 2:
        raise ValueError(
            f"a paired difference takes two or more seeds on both sides; got {len(one)} and {len(other)}"
        )
    for place, pair in enumerate(zip(one, other, strict=True)):
        if not all(map(math.isfinite, pair)):
            raise ValueError(
                f"every result has to be finite; the seed in place {place} has {pair[0]} and {pair[1]}"
            )
    values = tuple(a - b for a, b in zip(one, other, strict=True))
    n = len(values)
    mean = math.fsum(values) / n
    error = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1) / n)
    if error == 0:
        p = 1.0 if mean == 0 else 0.0
    else:
        p = two_sided(mean / error, n - 1)
    half = critical(LEVEL, n - 1) * error
    return Difference(values, mean, mean - half, mean + half, p, p)


def holm(ps: Sequence[float]) -> list[float]:
    """Adjusted p-values (Holm 1979): the smallest times n, the next times n - 1, ..., and none below the one before.

    Whatever the tests have to do with each other, the chance that any true null falls below a level is at most that level.

    Example:
        >>> [round(p, 3) for p in holm([0.04, 0.001, 0.02])]
        [0.04, 0.003, 0.04]
    """
    if any(map(math.isnan, ps)):
        raise ValueError(f"a p-value is a number between 0 and 1; got nan among {ps}")
    order = sorted(range(len(ps)), key=lambda i: ps[i])
    adjusted, largest = [0.0] * len(ps), 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(ps) - rank) * ps[i]))
        adjusted[i] = largest
    return adjusted


def _corrected(
    found: dict[tuple[str, str], Difference],
) -> dict[tuple[str, str], Difference]:
    """With the correction for all pairs of this dictionary."""
    ps = holm([one.p for one in found.values()])
    return {
        pair: Difference(one.values, one.mean, one.low, one.high, one.p, adjusted)
        for (pair, one), adjusted in zip(found.items(), ps, strict=True)
    }


def all_pairs(
    results: Mapping[str, Sequence[float]],
) -> dict[tuple[str, str], Difference]:
    """Every pair of rows, (one, other) -> one minus other, corrected for all of them together.

    Args:
        results: A row's results, a number a seed, in the same order of seeds.

    Example:
        >>> found = all_pairs({"a": [1.0, 1.1, 0.9], "b": [0.0, 0.1, -0.1001], "c": [1.0, 0.0, 1.1]})
        >>> {pair: one.separated for pair, one in found.items()}
        {('a', 'b'): True, ('a', 'c'): False, ('b', 'c'): False}
    """
    return _corrected(
        {
            (one, other): paired(results[one], results[other])
            for one, other in combinations(results, 2)
        }
    )


def against(
    control: str, results: Mapping[str, Sequence[float]]
) -> dict[tuple[str, str], Difference]:
    """Every row minus the control, corrected for all of these together."""
    return _corrected(
        {
            (row, control): paired(results[row], results[control])
            for row in results
            if row != control
        }
    )


def needed(found: Mapping[tuple[str, str], Difference]) -> float:
    """How large a mean difference would have to be to be the first one that is separated: the median over the pairs.

    Args:
        found: What `all_pairs` has returned.

    Raises:
        ValueError: There is no pair.
    """
    if not found:
        raise ValueError("no pair of rows: one row alone needs no difference")
    halves = []
    for one in found.values():
        n = len(one.values)
        spread = math.fsum((v - one.mean) ** 2 for v in one.values) / (n - 1)
        halves.append(critical(LEVEL / len(found), n - 1) * math.sqrt(spread / n))
    halves.sort()
    middle = len(halves) // 2
    return (
        halves[middle] if len(halves) % 2 else (halves[middle - 1] + halves[middle]) / 2
    )
