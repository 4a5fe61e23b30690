"""An adaptive KL coefficient: it rises while the KL is above its target, and falls while it is below.

Ziegler et al., arXiv 1909.08593, section 2.2. With KL the measured distance and K the gain,

    error = clip((KL - target) / target, -0.2, 0.2)        coefficient <- coefficient * (1 + K * error)

Their paper writes K = 0.1; their code, and everybody since, K = completions of the step / horizon, so that the change
of the coefficient depends on the number of completions and not on how they are cut into steps. This module has that
form.

What is remembered is one factor on the row's own coefficients. A row with several KL terms keeps their proportions.
"""

from dataclasses import replace

from rlhf_minimal.config import Config
from rlhf_minimal.objective import Algorithm

ERROR = 0.2  # the relative error is clipped to plus or minus this


def next_factor(factor: float, kl: float, completions: int, config: Config) -> float:
    """One step of the controller.

    Args:
        factor: What the row's coefficients were multiplied by in this step.
        kl: KL(policy || reference) that this step's samples showed, in nats per completion.
        completions: Number of completions of the step.
        config: Target and horizon; with `kl_control="fixed"` the factor stays.

    Returns:
        The factor of the next step, above 0.

    Example:
        >>> config = Config(kl_control="adaptive", kl_control_target=6.0, kl_control_horizon=1000)
        >>> next_factor(1.0, 6.6, 100, config), next_factor(1.0, 60.0, 100, config)  # a tenth too far; far too far
        (1.01, 1.02)
    """
    if config.kl_control == "fixed":
        return factor
    error = min(max(kl / config.kl_control_target - 1, -ERROR), ERROR)
    return factor * (1 + error * completions / config.kl_control_horizon)


def with_kl_factor(algorithm: Algorithm, factor: float) -> Algorithm:
    """The algorithm with its coefficients of KL against the reference multiplied by a factor.

    Example:
        >>> from rlhf_minimal import ALGORITHMS
        >>> with_kl_factor(ALGORITHMS["grpo"], 2.0).kl[0].coef
        0.08
    """
    terms = [replace(kl, coef=kl.coef * factor) if kl.against == "reference" else kl for kl in algorithm.kl]
    return replace(algorithm, kl=tuple(terms))


def kl_coefficient(algorithm: Algorithm) -> float:
    """Reward or loss per nat of distance from the reference: the sum over the row's KL terms; 0 without any.

    Example:
        >>> from rlhf_minimal import ALGORITHMS
        >>> kl_coefficient(ALGORITHMS["grpo"]), kl_coefficient(ALGORITHMS["dapo"])
        (0.04, 0.0)
    """
    return float(sum(kl.coef for kl in algorithm.kl if kl.against == "reference"))
