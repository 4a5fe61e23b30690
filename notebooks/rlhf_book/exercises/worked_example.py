"""The one small batch that every chapter works through by hand: two prompts, four completions each.

A reader who meets the same eight completions again sees only the algorithm change. The numbers are made up, and made to
be read: probabilities of two digits, ratios of one. No model says exactly this, but one could: tokens that share a
prefix share a total of at most 1.

Every case of the clipped objective occurs. With a clip range of .2, each of the four cases outside the band stands on
exactly one token: a good token that has already gained (42), a good one that has lost (it), a bad one that has gained
(about) and a bad one that has already lost (the lone end of completion 4).
"""

import torch

from rlhf_minimal import Batch

PROMPTS = ("6 x 7 = ?", "2 + 2 = ?")
REWARDS = (1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0)
GROUP_SIZE = 4
BUDGET = 5  # tokens a completion was allowed; the longest has four

# One line a token: text, then its probability under the old policy (which sampled), the new one (being trained) and the
# reference, then the critic's value of the prefix before it.
COMPLETIONS: tuple[tuple[tuple[str, float, float, float, float], ...], ...] = (
    (
        ("42", 0.20, 0.26, 0.13, 0.3),
        ("<eos>", 0.80, 0.80, 0.80, 0.9),
    ),
    (
        ("I", 0.40, 0.36, 0.36, 0.3),
        ("think", 0.50, 0.50, 0.50, 0.3),
        ("48", 0.25, 0.25, 0.25, 0.3),
        ("<eos>", 0.80, 0.80, 0.80, 0.1),
    ),
    (
        ("about", 0.20, 0.26, 0.26, 0.3),
        ("40", 0.50, 0.50, 0.50, 0.2),
        ("<eos>", 0.80, 0.80, 0.80, 0.1),
    ),
    (("<eos>", 0.10, 0.07, 0.07, 0.3),),
    (
        ("4", 0.40, 0.44, 0.22, 0.8),
        ("<eos>", 0.90, 0.90, 0.90, 0.9),
    ),
    (
        ("it", 0.20, 0.14, 0.28, 0.8),
        ("is", 0.90, 0.90, 0.90, 0.8),
        ("4", 0.80, 0.80, 0.80, 0.8),
        ("<eos>", 0.50, 0.50, 0.50, 0.9),
    ),
    (
        ("not", 0.10, 0.09, 0.09, 0.8),
        ("sure", 0.50, 0.50, 0.50, 0.3),
        ("<eos>", 0.80, 0.80, 0.80, 0.1),
    ),
    (
        ("four", 0.10, 0.11, 0.11, 0.8),
        ("<eos>", 0.80, 0.80, 0.80, 0.9),
    ),
)


def worked_example() -> Batch:
    """The book's batch as the library takes it: 8 rows of 1 to 4 tokens, float64, no randomness.

    Returns:
        A fresh `Batch` whose ``logp`` is a leaf with a gradient. It holds whatever some row of the table may need:
        ``old_logp``, ``ref_logp``, ``values`` and ``budget``. Padding holds 0.

    Example:
        >>> batch = worked_example()
        >>> batch.lengths.tolist()
        [2, 4, 3, 1, 2, 4, 3, 2]
        >>> [round(w, 4) for w in (batch.logp - batch.old_logp).exp()[0, :2].tolist()]
        [1.3, 1.0]
    """
    width = max(map(len, COMPLETIONS))

    def column(index: int, padding: float) -> torch.Tensor:
        rows = [[token[index] for token in completion] for completion in COMPLETIONS]
        padded = [row + [padding] * (width - len(row)) for row in rows]
        return torch.tensor(padded, dtype=torch.float64)

    return Batch(
        logp=column(2, 1.0).log().requires_grad_(),
        old_logp=column(1, 1.0).log(),
        mask=(column(1, 0.0) > 0).double(),
        rewards=torch.tensor(REWARDS, dtype=torch.float64),
        group_size=GROUP_SIZE,
        ref_logp=column(3, 1.0).log(),
        values=column(4, 0.0),
        budget=BUDGET,
    )
