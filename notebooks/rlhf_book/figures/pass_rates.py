"""What the pass-rate figure draws: how much a prompt counts, by the share of its completions that are right.

Rewards are 1 and 0, samples are fresh, and a prompt's pass rate p is known. With k of G completions right a row gives a
right completion the advantage a(k) and a wrong one b(k). The scores of right completions have the mean grad p / p, those
of wrong ones -grad p / (1 - p). So the expected update of the prompt is weight(p) x grad p, with

    weight(p) = E[ (k / G) a(k) / p  -  (1 - k / G) b(k) / (1 - p) ],     k binomial (G, p).

Advantages come from the rows of the table; nothing here knows one of them.
"""

import math

import torch
from torch import Tensor

from rlhf_book.figures.gates import _color, _dashes
from rlhf_minimal import ALGORITHMS, Algorithm, contrib
from rlhf_minimal.functional import advantages

SIZES = (2, 4, 8, 16, 64)
RATES = [round(0.01 * i, 2) for i in range(1, 100)]

# Cells that see the rewards of one group and nothing else.
OF_A_GROUP = (
    advantages.returns_to_go,
    advantages.leave_one_out,
    advantages.group_centered,
    advantages.group_normalized,
    contrib.advantages.maxrl,
    contrib.advantages.opo,
    contrib.advantages.best_minus_second,
)


def of_a_group(row: Algorithm) -> bool:
    """Whether a row's advantages follow from the rewards of one group.

    Not so for a critic, a teacher, the reward of a greedy completion, several rewards that are compared one by one, the
    spread of a whole batch, or whitening over the batch.

    Example:
        >>> of_a_group(ALGORITHMS["grpo"]), of_a_group(ALGORITHMS["ppo"])
        (True, False)
    """
    return row.advantage in OF_A_GROUP and row.normalize is None


def group_advantages(row: Algorithm, G: int) -> tuple[Tensor, Tensor]:
    """Advantages of a right and of a wrong completion, [G + 1] each, by the number k of right ones.

    Of several right ones the mean is taken (all rows here give them the same). Where k = 0 there is no right one, and
    where k = G no wrong one: 0 stands there.

    Example:
        >>> right, wrong = group_advantages(ALGORITHMS["dr_grpo"], 4)
        >>> right.tolist()
        [0.0, 0.75, 0.5, 0.25, 0.0]
    """
    right, wrong = torch.zeros(2, G + 1, dtype=torch.float64)
    for k in range(G + 1):
        rewards = (torch.arange(G) < k).double()[:, None]  # [G, 1], the k first are 1
        context = {} if row.advantage is advantages.returns_to_go else {"group_size": G}
        A = row.advantage(rewards, torch.ones(G, 1), **context)[:, 0]  # [G]
        if k > 0:
            right[k] = A[:k].mean()
        if k < G:
            wrong[k] = A[k:].mean()
    return right, wrong


def prompt_weight(row: Algorithm, G: int, p: Tensor) -> Tensor:
    """Weight on grad p in the expected update of a prompt, exact over all k; p strictly between 0 and 1, [N].

    Raises:
        ValueError: a row whose advantages need more than the group's rewards.

    Example:
        >>> prompt_weight(ALGORITHMS["maxrl"], 8, torch.tensor([0.5])).round(decimals=3)
        tensor([1.9840], dtype=torch.float64)
    """
    if not of_a_group(row):
        raise ValueError(
            "this row's advantages need more than the rewards of one group, so a prompt has no weight of its own"
        )
    p = p.double()[:, None]  # [N, 1]
    k = torch.arange(G + 1, dtype=torch.float64)  # [G + 1]
    ways = torch.tensor([math.comb(G, i) for i in range(G + 1)], dtype=torch.float64)
    chance = ways * p**k * (1 - p) ** (G - k)  # [N, G + 1]
    right, wrong = group_advantages(row, G)
    one = k / G * right / p - (1 - k / G) * wrong / (1 - p)  # [N, G + 1]
    return (chance * one).sum(-1)


def pass_rates() -> dict:
    """What the figure looks up: weights by row, group size and pass rate.

    Rows with one advantage share a curve. Weights are rounded to five digits.

    Returns:
        `sizes` and `rates` of the axes; `curves`, each {"G": weights}; `rows`, each with its name, the number of its
        curve, its colour and its dashes; `left_out`, the rows that have no such weight.

    Example:
        >>> found = pass_rates()
        >>> found["rows"][0], found["left_out"][:2]
        ({'name': 'reinforce', 'curve': 0, 'color': 'currentColor', 'dashes': []}, ['ppo', 'reinforce_pp'])
    """
    p = torch.tensor(RATES, dtype=torch.float64)
    curves: list[dict[str, list[float]]] = []
    rows, left_out = [], []
    for name, row in ALGORITHMS.items():
        if not of_a_group(row):
            left_out.append(name)
            continue
        curve = {
            str(G): [float(f"{x:.5g}") for x in prompt_weight(row, G, p).tolist()]
            for G in SIZES
        }
        if curve not in curves:
            curves.append(curve)
        rows.append(
            {
                "name": name,
                "curve": curves.index(curve),
                "color": _color(name),
                "dashes": _dashes(name),
            }
        )
    return {
        "sizes": list(SIZES),
        "rates": RATES,
        "curves": curves,
        "rows": rows,
        "left_out": left_out,
    }
