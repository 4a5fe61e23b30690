"""What the weight of a token in a row's gradient is made of: every factor of it, computed by the library.

The weight is that of the token's log-probability in the step, minus the derivative of `policy_loss` with respect to it.
Where it is positive, the loss asks for more of the token; what becomes of it, all weights of the batch decide.
"""

from dataclasses import dataclass, fields, replace

import torch
from jaxtyping import Float
from torch import Tensor

from rlhf_minimal import (
    ALGORITHMS,
    Algorithm,
    Batch,
    gradient_weight,
    policy_loss,
    token_weights,
)
from rlhf_minimal.functional import masked

__all__ = ["Factors", "factors_of", "fitting_rows"]

# What a rollout with its log-probs holds. A critic's values, a greedy completion, the parts of a reward and entropies
# are more than that.
HELD = frozenset({"group", "ref_logp", "sampler_logp", "budget"})


def fitting_rows() -> list[str]:
    """The rows that read no more than one rollout and four log-probs of each of its tokens.

    A row whose reference is a teacher is left out: there is none here.

    Example:
        >>> rows = fitting_rows()
        >>> "grpo" in rows, "icepop" in rows, "ppo" in rows, "opd" in rows
        (True, True, False, False)
    """
    return [
        name
        for name, row in ALGORITHMS.items()
        if row.needs <= HELD and not row.needs_teacher
    ]


@dataclass(frozen=True)
class Factors:
    """`share x advantage x gate x correct x trust + pull = weight`, token by token, [B, T] each, float64.

    Attributes:
        ratio: As the row's own cell has it: of the token, of its whole completion, or 1.
        advantage: The credit.
        gate: What the ratio and the gate leave of the gradient; 1 at ratio 1, 0 where a clip cuts. NaN where the
            advantage is 0.
        correct: The weight between trainer and sampler.
        trust: 0 where a token is left out.
        share: The aggregation's weight of the token, on-policy.
        pull: What KL terms in the loss add.
        weight: By autograd of the row's loss.
    """

    ratio: Float[Tensor, "B T"]
    advantage: Float[Tensor, "B T"]
    gate: Float[Tensor, "B T"]
    correct: Float[Tensor, "B T"]
    trust: Float[Tensor, "B T"]
    share: Float[Tensor, "B T"]
    pull: Float[Tensor, "B T"]
    weight: Float[Tensor, "B T"]

    @property
    def product(self) -> Float[Tensor, "B T"]:
        """The weight as the factors give it."""
        gate = torch.where(self.advantage == 0, 0.0, self.gate)
        return (
            self.share * self.advantage * gate * self.correct * self.trust + self.pull
        )

    def rows(self, idx: slice) -> "Factors":
        """Some completions of them."""
        return Factors(*(getattr(self, field.name)[idx] for field in fields(self)))


def factors_of(algorithm: Algorithm, batch: Batch) -> Factors:
    """The weight of every token of a prepared batch, by autograd, and its factors, each computed by itself.

    Args:
        algorithm: A row of the table that `fitting_rows` names, or a variant of one.
        batch: Prepared, with the log-probs of the policy as it is now.

    Returns:
        Factors, 0 under a zero mask, where a ratio is 1.

    Raises:
        ValueError: If the batch is not prepared, and as `policy_loss`.

    Example:
        >>> logp = torch.log(torch.tensor([[0.3], [0.2]]))
        >>> old = torch.log(torch.tensor([[0.2], [0.2]]))
        >>> batch = Batch(logp, old, torch.ones(2, 1), torch.zeros(2), 2, advantages=torch.tensor([1.0, -1.0]))
        >>> found = factors_of(ALGORITHMS["dapo"], batch)
        >>> found.gate.flatten().tolist(), found.weight.flatten().tolist()
        ([0.0, 1.0], [0.0, -0.5])
    """
    advantage = batch.advantages
    if advantage is None:
        raise ValueError("the batch has no advantages yet: prepare(algorithm, batch)")
    batch = replace(batch, logp=batch.logp.detach().double())
    mask = batch.mask
    advantage = masked.zero_outside(advantage.to(batch.logp.dtype), mask)
    ratio = algorithm.ratio(batch.logp, batch.old_logp, mask)
    ratio = torch.where(mask != 0, ratio, torch.ones_like(ratio))
    ones = torch.ones_like(ratio)
    correct = trust = ones
    if algorithm.correct is not None:
        correct = algorithm.call("correct", batch.old_logp, batch.sampler_logp, mask)
    if algorithm.trust is not None:
        trust = algorithm.call(
            "trust",
            mask,
            logp=batch.logp,
            old_logp=batch.old_logp,
            sampler_logp=batch.sampler_logp,
            advantages=advantage,
        )
    share = token_weights(
        algorithm, mask, budget=batch.budget, group_size=batch.group_size
    )
    flat = replace(batch, advantages=torch.zeros_like(advantage))
    return Factors(
        ratio=ratio,
        advantage=advantage,
        gate=_gate(algorithm, ratio, advantage, mask),
        correct=correct.to(ratio.dtype),
        trust=trust.to(ratio.dtype),
        share=share,
        pull=_by_autograd(algorithm, flat),
        weight=_by_autograd(algorithm, batch),
    )


def _by_autograd(algorithm: Algorithm, batch: Batch) -> Tensor:
    """[B, T] minus the gradient of the loss in the log-probs."""
    logp = batch.logp.clone().requires_grad_()
    loss = policy_loss(algorithm, replace(batch, logp=logp))
    (gradient,) = torch.autograd.grad(loss, logp)
    return 0.0 - gradient


def _gate(
    algorithm: Algorithm, ratio: Tensor, advantage: Tensor, mask: Tensor
) -> Tensor:
    """[B, T] what a one-token completion with this ratio would weigh, for an advantage of 1; NaN where that is 0.

    Under a geometric mean a token weighs its elasticity, 1 or 0 with a clip, times the mean of the completion.
    """
    bare = replace(algorithm, kl=(), entropy=0.0, entropy_aggregate=None)
    sign = torch.where(advantage < 0, -1.0, 1.0).to(ratio.dtype)
    slope = gradient_weight(bare, ratio, sign) / sign
    if not getattr(algorithm.aggregate, "linear", True):
        value = algorithm.gate(ratio, sign) / sign
        mean = masked.sequence_mean(value.log(), mask).exp()[:, None]
        slope = slope / value * mean
    return torch.where(advantage == 0, torch.nan, slope)
