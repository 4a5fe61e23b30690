"""Collects the numbers of an update, micro-batch by micro-batch, and makes the metrics of them."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from rlhf_minimal.functional.kl import k3
from rlhf_minimal.objective import Algorithm, Batch, _trust_weight
from rlhf_minimal.training.metrics import Metrics
from rlhf_minimal.training.processes import ALONE, Processes


class Watch:
    """Sums over the micro-batches of an update, from which its metrics are made.

    How far the policy has moved from the sampler is estimated by k3 on the sampled tokens (`functional.kl.k3` with the
    sampler in the place of the policy, since the sampler drew them). k1, the plain log-ratio, has the same mean but
    a standard deviation near the square root of the distance, so that a minibatch can even give a negative value; k2 is
    never negative, but biased. Near the sampler, where the target KL is checked, k3 has less noise than k1, and both
    are right on average.

    Args:
        processes: The processes that share the update, each with its own micro-batches.
        target_kl: How far the policy may be from the sampler before the update ends, in nats per token; None: any.
    """

    def __init__(self, processes: Processes = ALONE, target_kl: float | None = None) -> None:
        self.processes, self.target_kl = processes, target_kl
        self.tokens_read = 0  # forwards and backwards
        self.tokens = 0
        self.entropy = 0.0
        self.weighted = 0  # trained tokens with an advantage
        self.clipped = 0  # of those, the ones to which the gate, or trust, gives no gradient
        self.sampled = 0  # tokens of the same completions that were sampled
        self.gap = torch.zeros(2, dtype=torch.float64)  # of the first minibatch: sum of |log-ratio|, and tokens
        self.ratio_min, self.ratio_max = math.inf, -math.inf
        self.losses: list[float] = []
        self.grad_norms: list[float] = []
        self.value_losses: list[float] = []
        self.minibatches = 0
        self.has_critic = False
        self.approx_kl: float | None = None
        self.early_stop: int | None = None if target_kl is None else 0
        self._losses = torch.zeros(2, dtype=torch.float64)  # this minibatch's policy loss and value loss
        self._kl = torch.zeros(2, dtype=torch.float64)  # sum over this minibatch's trained tokens, and their number

    def record(
        self, algorithm: Algorithm, batch: Batch, entropy: Float[Tensor, "B T"], sampled: Float[Tensor, "B T"]
    ) -> None:
        """Takes in one micro-batch; `sampled` is 1 for each token that the sampler wrote."""
        trained = batch.mask != 0
        if not trained.any() or batch.advantages is None:
            return
        ratio = algorithm.ratio(batch.logp.detach(), batch.old_logp, batch.mask).requires_grad_()
        (slope,) = torch.autograd.grad(algorithm.gate(ratio, batch.advantages).sum(), ratio)
        weighted = trained & (batch.advantages != 0)
        self.tokens += int(trained.sum())
        self.sampled += int((sampled != 0).sum())
        if self.minibatches == 0:
            sampler = batch.old_logp if batch.sampler_logp is None else batch.sampler_logp
            apart = (batch.logp.detach() - sampler)[trained].abs()
            self.gap += torch.tensor([apart.sum().item(), len(apart)], dtype=torch.float64)
        self.entropy += entropy[trained].sum().item()
        self.weighted += int(weighted.sum())
        if algorithm.trust is not None:
            slope = slope * _trust_weight(algorithm, batch)
        self.clipped += int((weighted & (slope == 0)).sum())
        self.ratio_min = min(self.ratio_min, ratio[trained].min().item())
        self.ratio_max = max(self.ratio_max, ratio[trained].max().item())
        moved = k3(batch.old_logp, batch.logp.detach())[trained]
        self._kl += torch.tensor([moved.sum().item(), len(moved)], dtype=torch.float64)

    def add(self, loss: Tensor, critic_loss: Tensor | None, tokens_read: int) -> None:
        """Adds one micro-batch's share of its minibatch's losses, and what was read for it."""
        both = [loss.item(), 0.0 if critic_loss is None else critic_loss.item()]
        self._losses += torch.tensor(both, dtype=torch.float64)
        self.has_critic = critic_loss is not None
        self.tokens_read += tokens_read

    def end_minibatch(self) -> float:
        """How far the policy was from the sampler on the minibatch just seen, in nats per token.

        If that is too far, `early_stop` is the minibatch's number from now on.
        """
        self.minibatches += 1
        moved, tokens = self.processes.total(self._kl)
        self.approx_kl = float(moved / tokens.clamp(min=1))
        self._kl.zero_()
        if self.target_kl is not None and self.approx_kl > self.target_kl:
            self.early_stop = self.minibatches
            return self.approx_kl
        loss, critic_loss = self.processes.total(self._losses).tolist()
        self._losses.zero_()
        self.losses.append(loss)
        if self.has_critic:
            self.value_losses.append(critic_loss)
        return self.approx_kl

    def metrics(self) -> Metrics:
        """The update's metrics."""
        sums = [self.tokens, self.entropy, self.weighted, self.clipped, self.tokens_read, self.sampled, *self.gap]
        totals = self.processes.total(torch.tensor(sums, dtype=torch.float64))
        tokens, entropy, weighted, clipped, read, sampled, apart, first = totals.tolist()
        ends = torch.tensor([-self.ratio_min, self.ratio_max], dtype=torch.float64)
        low, high = self.processes.most(ends).tolist()
        always = {
            "loss": _mean(self.losses),
            "grad_norm": _mean(self.grad_norms),
            "entropy": entropy / max(tokens, 1),
            "clip_fraction": clipped / max(weighted, 1),
            "gap": apart / max(first, 1),
            "trained": tokens / max(sampled, 1),
            "ratio_min": -low,
            "ratio_max": high,
        }
        more: dict[str, int | float | None] = {"tokens_read": int(read) or None}
        more |= {"approx_kl": self.approx_kl, "early_stop": self.early_stop}
        more["value_loss"] = _mean(self.value_losses) if self.value_losses else None
        return always | {name: value for name, value in more.items() if value is not None}


def _mean(numbers: list[float]) -> float:
    return sum(numbers) / max(len(numbers), 1)
