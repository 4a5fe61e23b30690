r"""THE TABLE. One row an algorithm, one cell a column; this is the code that runs.

Read a row from left to right: who gets the credit, how far has the policy moved, how much of the step is allowed, who
counts how much, which KL penalty. Two rows differ where their cells differ, and nowhere else: `diff("dapo", "grpo")`.

These are the rows that chapters derive; `contrib` has more, and `rlhf_minimal.ALGORITHMS` holds both. No row inherits
from another. Adding one is one more entry. Numbers are the papers' own unless a comment says "our choice". Arguments
in order: advantage, ratio, gate, aggregate.
"""

import difflib
from functools import partial
from math import exp

from .functional import advantages, aggregation, filters, gates, ratios, shaping
from .objective import KL, Algorithm

ALGORITHMS: dict[str, Algorithm] = {
    # Williams 1992. Not baselined; the value of its loss is the surrogate's, its gradient is -A grad log pi.
    "reinforce": Algorithm(
        advantages.returns_to_go,
        ratios.on_policy,
        gates.none,
        aggregation.sequence_sum,
    ),
    # Ahmadian et al., arXiv 2402.14740: REINFORCE with a leave-one-out baseline, no clip. (TRL's RLOO clips the product
    # of ratios; on-policy the gradients agree.) The KL of the whole completion enters the reward before the baseline;
    # beta .05 is TRL's default.
    "rloo": Algorithm(
        advantages.leave_one_out,
        ratios.on_policy,
        gates.none,
        aggregation.sequence_sum,
        kl=(KL(0.05, "k1", place="reward"),),
    ),
    # Schulman et al., arXiv 1707.06347, as RLHF uses it (Ouyang et al., arXiv 2203.02155: per-token KL in the reward,
    # beta .02). gamma 1, lambda .95, whitening: Huang et al. 2024. The mean within each completion is DeepSeekMath's
    # way of writing it (arXiv 2402.03300, eq. 1); other libraries average over tokens.
    "ppo": Algorithm(
        partial(advantages.gae, gamma=1.0, lam=0.95),
        ratios.token,
        partial(gates.clip, low=0.2, high=0.2),
        aggregation.sequence_mean,
        kl=(KL(0.02, "k1", place="reward"),),
        normalize=advantages.whiten,
    ),
    # Hu et al., arXiv 2501.03262: PPO without a critic. Whitening is over the batch and weighted by tokens, not by
    # prompts; the KL is a token's reward and so enters the returns-to-go. beta .01 is OpenRLHF's default.
    "reinforce_pp": Algorithm(
        advantages.returns_to_go,
        ratios.token,
        partial(gates.clip, low=0.2, high=0.2),
        aggregation.sequence_mean,
        kl=(KL(0.01, "k1", place="reward"),),
        normalize=advantages.whiten,
    ),
    # Shao et al., arXiv 2402.03300, eq. 3-4, outcome supervision. (The paper prints no epsilon for the clip; .2 is
    # what libraries take.)
    "grpo": Algorithm(
        advantages.group_normalized,
        ratios.token,
        partial(gates.clip, low=0.2, high=0.2),
        aggregation.sequence_mean,
        kl=(KL(0.04, "k3"),),
    ),
    # Liu et al., arXiv 2503.20783: GRPO without the two divisions that bias it, std and length.
    "dr_grpo": Algorithm(
        advantages.group_centered,
        ratios.token,
        partial(gates.clip, low=0.2, high=0.2),
        aggregation.fixed_length,
    ),
    # Yu et al., arXiv 2503.14476. Its four parts: clip-higher, the mixed-outcome filter (the loop refills), token-level
    # mean (over the batch, as every library has it; the paper prints it over a prompt's group), soft overlong penalty.
    # Masking truncated completions is a cell of its own: keep=contrib.filters.not_truncated.
    "dapo": Algorithm(
        advantages.group_normalized,
        ratios.token,
        partial(gates.clip, low=0.2, high=0.28),
        aggregation.token_mean,
        shape=shaping.soft_overlong,
        keep=filters.mixed_outcomes,
    ),
    # Zheng et al., arXiv 2507.18071, eq. 5-7. The bounds fit a geometric mean over long completions. The paper omits
    # its KL term "for brevity"; none here.
    "gspo": Algorithm(
        advantages.group_normalized,
        ratios.sequence,
        partial(gates.clip, low=3e-4, high=4e-4),
        aggregation.sequence_mean,
    ),
    # The same, eq. 13-14: the sequence's ratio with each token's own gradient, for advantages that vary by token.
    "gspo_token": Algorithm(
        advantages.group_normalized,
        ratios.sequence_token,
        partial(gates.clip, low=3e-4, high=4e-4),
        aggregation.sequence_mean,
    ),
    # Zhao et al., arXiv 2507.20673: the clip is in log space, [-.4, .4] on log w, one side at a time by the sign of A,
    # as min does it; then a geometric mean over the completion.
    "gmpo": Algorithm(
        advantages.group_normalized,
        ratios.token,
        partial(gates.clip, low=1 - exp(-0.4), high=exp(0.4) - 1),
        aggregation.geometric_mean,
    ),
    # MiniMax, arXiv 2506.13585, eq. 4-5: no lower bound, and the cap is absolute, 1 + epsilon_high (5: TRL's
    # recommendation, the report gives none). The loss alone: the report also kept DAPO's filter and its length penalty
    # (said after eq. 5). For the recipe put both back: keep=filters.mixed_outcomes, shape=shaping.soft_overlong.
    "cispo": Algorithm(
        advantages.group_normalized,
        ratios.token,
        partial(gates.clip_weight, cap=5.0),
        aggregation.token_mean,
    ),
    # Gao et al., arXiv 2511.20347: a sigmoid in place of the clip, a little steeper for A <= 0.
    "sapo": Algorithm(
        advantages.group_normalized,
        ratios.token,
        partial(gates.sigmoid, tau_pos=1.0, tau_neg=1.05),
        aggregation.sequence_mean,
    ),
    # Kimi K2, arXiv 2507.20534, section 3.2.3: (R - mean R - tau log pi/pi_old)^2 over completions. Written as its
    # surrogate, whose gradient is the squared loss's divided by 2 tau: -(A - tau L) grad L. (Per token, as some
    # libraries have it, is another gradient.) The report gives no tau; .1 is our choice.
    "kimi_k2": Algorithm(
        advantages.group_centered,
        ratios.on_policy,
        gates.none,
        aggregation.sequence_sum,
        kl=(KL(0.1, "k2", against="old", level="sequence"),),
    ),
}

ROWS = tuple(ALGORITHMS)  # those of this file; the package's front page adds the rows of `contrib`


def get_algorithm(algorithm: str | Algorithm) -> Algorithm:
    """A row by its name; an `Algorithm` passes through.

    Args:
        algorithm: a name of the table, or a variant of your own.

    Returns:
        The row.

    Raises:
        ValueError: an unknown name, with the nearest known one.

    Example:
        >>> get_algorithm("kimi")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ValueError: unknown algorithm 'kimi'; did you mean kimi_k2? Known: reinforce, rloo, ...
    """
    if isinstance(algorithm, Algorithm):
        return algorithm
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        near = difflib.get_close_matches(str(algorithm), ALGORITHMS, n=1)
        hint = f"; did you mean {near[0]}?" if near else "."
        raise ValueError(f"unknown algorithm {algorithm!r}{hint} Known: {', '.join(ALGORITHMS)}")
    return ALGORITHMS[algorithm]
