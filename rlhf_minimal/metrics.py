"""The metrics of every step, and what each of them means: one entry for each key of `metrics.jsonl`."""

import math
import sys
import time
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from rlhf_minimal.config import Config
from rlhf_minimal.functional.advantages import returns_to_go
from rlhf_minimal.functional.kl import k1, k3
from rlhf_minimal.functional.masked import masked_mean, masked_var, sequence_mean, sequence_sum
from rlhf_minimal.kl_control import kl_coefficient
from rlhf_minimal.objective import Algorithm, Batch, _rewards_of_tokens, _trust_weight
from rlhf_minimal.sample import Rollout
from rlhf_minimal.train_state import ALONE, Processes

Metrics = dict[str, int | float]  # one step's line in metrics.jsonl

METRICS: dict[str, str] = {
    "step": "number of the training step, from 1",
    "reward": "mean reward of all completions that were sampled, those of refilled groups included, before scaling. "
    "Where a reward model is trained for, this is its score",
    "gold": "mean of the task's own verifier over the same completions, where another reward is trained for",
    "accuracy": "share of the sampled completions that the task's verifier calls right, whatever the reward was",
    "kl": "KL(policy || start) in nats per token: k3 of the sampler's log-probs on its samples, before the update",
    "kl_sequence": "the same in nats per completion: the log-ratio summed over its tokens (k1), mean over the rows",
    "kl_reference": "KL(policy || reference) as `kl`, where the reference is not the start: a teacher, or "
    "one that moves",
    "kl_coef": "coefficient of the KL against the reference in this step, where the algorithm has one",
    "trained_reward": "mean reward after scaling, clip and penalty, where one of them is switched on",
    "entropy": "mean entropy in nats of the policy's next-token distribution, over the trained tokens",
    "length": "mean tokens per sampled completion, the end-of-sequence token included",
    "length_right": "the same of the completions that the task's verifier calls right (in steps that had any)",
    "length_wrong": "the same of the others (in steps that had any)",
    "steps": "mean number of marked steps of a sampled completion (where any was marked)",
    "step_mark": "mean mark of these steps",
    "truncated": "share of the sampled completions that ran into the token budget",
    "verifier_errors": "sampled completions over which the verifier or the reward function raised or hung, and which "
    "therefore got 0 (only in steps that had any)",
    "dead_groups": "share of the sampled groups whose rewards are all equal (groups of 2 or more; not with a teacher)",
    "refills": "extra rounds of sampling, because the filter left groups over to be replaced",
    "groups": "groups that were trained on",
    "loss": "value of the policy loss, mean over the optimiser steps; its gradient is what matters, not its size",
    "clip_fraction": "share of trained tokens with an advantage to which the gate, or trust, gives no gradient",
    "ratio_min": "smallest ratio, at the algorithm's own level (token or sequence), over the trained tokens",
    "ratio_max": "largest ratio, likewise",
    "approx_kl": "KL(sampler || policy) in nats per token on the last minibatch that was looked at, before its "
    "optimiser step: k3 on the sampled tokens",
    "early_stop": "number of the minibatch at which target_kl ended the step's updates, from 1; 0 if none did (with "
    "target_kl only)",
    "gap": "mean |log(policy / sampler)| over the tokens of the step's first minibatch, before any update: 0 but for "
    "rounding, unless trainer and sampler disagree about what was sampled",
    "trained": "trained tokens of the update, as a share of the sampled tokens of the same completions: 1, unless the "
    "mask is wrong",
    "agreement": "correlation, within groups, of a completion's mean advantage with its reward: near 1 (in steps that "
    "had a group with a difference)",
    "between": "share of the advantages' mean square that lies between groups: 0 with a baseline from the group (rows "
    "with one, and without marks for steps)",
    "weight_norm": "norm of the policy's trained weights, after the update (not with a trust region)",
    "grad_norm": "norm of the policy's gradient before clipping, mean over the optimiser steps; the value head's "
    "included if the trunk is shared",
    "value_loss": "loss of the critic, mean over the optimiser steps (critics only)",
    "explained_variance": "1 - var(returns - values) / var(returns) at sampling time, over the trained tokens: 1 is a "
    "perfect critic, 0 one that knows no more than the mean, below 0 one that is worse than the mean. The returns are "
    "sums of the rewards that came, from a token to the end (KL penalty in the reward included, discounted by the "
    "row's gamma): the critic's targets at lambda 1, which hold none of its own values (critics only)",
    "accepted": "1 if the line search found a step, 0 if the policy stayed as it was (trust region only)",
    "step_kl": "exact mean KL(old || new) of that step in nats per token, at most the bound (trust region only)",
    "step_kl_predicted": "what the second-order model said it would be (trust region only)",
    "improvement": "by how much the step raised the surrogate on its own batch (trust region only)",
    "improvement_predicted": "what the gradient alone said it would be (trust region only)",
    "backtracks": "times the step was shortened before it was accepted or given up (trust region only)",
    "cg_residual": "what conjugate gradients left unsolved, relative to the gradient's norm (trust region only)",
    "seconds": "wall-clock time of the step",
    "sampling_seconds": "of these, the time of writing and scoring the completions",
    "update_seconds": "and the time of the updates",
    "tokens": "tokens sampled in the step, over all processes",
    "tokens_read": "tokens that the updates read, prompts included, padding not; over all processes (not with a trust "
    "region)",
    "peak_memory": "most bytes held so far: by torch's tensors on CUDA, elsewhere by the whole process (where the "
    "system tells it)",
}
NONDETERMINISTIC = ("seconds", "sampling_seconds", "update_seconds", "peak_memory")  # these differ from run to run


def describe_rollouts(sampled: list[Rollout], algorithm: Algorithm, config: Config) -> Metrics:
    """Metrics of everything that was sampled in a step, kept or not."""
    rewards = torch.cat([rollout.rewards for rollout in sampled])
    right = torch.cat([rollout.correct for rollout in sampled]) == 1
    lengths = torch.cat([rollout.mask.sum(-1) for rollout in sampled])
    metrics = {
        "reward": rewards.mean().item(),
        "accuracy": right.float().mean().item(),
        "length": lengths.mean().item(),
        "truncated": torch.cat([rollout.truncated for rollout in sampled]).float().mean().item(),
        "refills": float(len(sampled) - 1),
        "tokens": sum(int(rollout.mask.sum()) for rollout in sampled),
    }
    for name, rows in (("length_right", right), ("length_wrong", ~right)):
        if rows.any():
            metrics[name] = lengths[rows].mean().item()
    if marked := sum(float(rollout.step_ends.sum()) for rollout in sampled):
        metrics["steps"] = marked / len(rewards)
        metrics["step_mark"] = sum(float(rollout.step_marks.sum()) for rollout in sampled) / marked
    if errors := sum(int(rollout.failed.sum()) for rollout in sampled):
        metrics["verifier_errors"] = errors
    if config.group_size > 1 and not algorithm.needs_teacher:
        groups = rewards.view(-1, config.group_size)  # [P, G]
        metrics["dead_groups"] = (groups.amax(-1) == groups.amin(-1)).float().mean().item()
    return metrics


def describe_batch(algorithm: Algorithm, config: Config, batch: Batch, *, compares: bool = True) -> Metrics:
    """Metrics of what is trained on.

    Args:
        algorithm: The row.
        config: The numbers.
        batch: Prepared, whole groups.
        compares: Whether a group's completions are compared by one reward each.
    """
    metrics: Metrics = {"groups": len(batch.mask) // config.group_size}
    if config.changes_scores:
        metrics["trained_reward"] = batch.rewards.mean().item()
    if coefficient := kl_coefficient(algorithm):
        metrics["kl_coef"] = coefficient
    if batch.values is not None:
        returns = _monte_carlo_returns(algorithm, batch)
        metrics["explained_variance"] = explained_variance(batch.values, returns, batch.mask)
    return metrics | _describe_advantages(batch, compares=compares and "group" in algorithm.needs)


def _describe_advantages(batch: Batch, *, compares: bool) -> Metrics:
    """Whether the advantages of a prepared batch belong to its rewards: `agreement` and `between` of `METRICS`.

    Args:
        batch: Whole groups.
        compares: Whether the row's baseline comes from the group.
    """
    whole = (batch.mask != 0).any(-1).view(-1, batch.group_size).all(-1)  # [P] no row of it was filtered out
    if batch.advantages is None or batch.group_size == 1 or not whole.any():
        return {}
    own = sequence_mean(batch.advantages, batch.mask)
    groups, rewards = (x.view(-1, batch.group_size)[whole].double() for x in (own, batch.rewards))  # [P, G]
    within, rewards = (x - x.mean(-1, keepdim=True) for x in (groups, rewards))
    size, spread = groups.square().sum().item(), (within.square().sum() * rewards.square().sum()).sqrt().item()
    metrics: Metrics = {"agreement": (within * rewards).sum().item() / spread} if spread > 1e-9 else {}
    return metrics | ({"between": 1 - within.square().sum().item() / size} if compares and size > 1e-9 else {})


def describe_distance(
    logp: Float[Tensor, "B T"], start_logp: Float[Tensor, "B T"], mask: Float[Tensor, "B T"]
) -> Metrics:
    """How far the policy is from the start, by samples of the policy: `kl` and `kl_sequence` of `METRICS`."""
    return {"kl": masked_mean(k3(logp, start_logp), mask).item(), "kl_sequence": sequence_kl(logp, start_logp, mask)}


class UpdateStats:
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

    def add_tokens(
        self, algorithm: Algorithm, batch: Batch, entropy: Float[Tensor, "B T"], sampled: Float[Tensor, "B T"]
    ) -> None:
        """Adds what one micro-batch says of its tokens; `sampled` is 1 for each token that the sampler wrote."""
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

    def add_losses(self, loss: Tensor, critic_loss: Tensor | None, tokens_read: int) -> None:
        """Adds one micro-batch's share of its minibatch's losses, and the number of tokens that were read for it."""
        both = [loss.item(), 0.0 if critic_loss is None else critic_loss.item()]
        self._losses += torch.tensor(both, dtype=torch.float64)
        self.has_critic = critic_loss is not None
        self.tokens_read += tokens_read

    def end_minibatch(self) -> float:
        """How far the policy was from the sampler on the minibatch just seen, in nats per token.

        If that is too far, `early_stop` is the minibatch's number from now on.
        """
        self.minibatches += 1
        moved, tokens = self.processes.all_reduce_sum(self._kl)
        self.approx_kl = float(moved / tokens.clamp(min=1))
        self._kl.zero_()
        if self.target_kl is not None and self.approx_kl > self.target_kl:
            self.early_stop = self.minibatches
            return self.approx_kl
        loss, critic_loss = self.processes.all_reduce_sum(self._losses).tolist()
        self._losses.zero_()
        self.losses.append(loss)
        if self.has_critic:
            self.value_losses.append(critic_loss)
        return self.approx_kl

    def metrics(self) -> Metrics:
        """The update's metrics."""
        sums = [self.tokens, self.entropy, self.weighted, self.clipped, self.tokens_read, self.sampled, *self.gap]
        totals = self.processes.all_reduce_sum(torch.tensor(sums, dtype=torch.float64))
        tokens, entropy, weighted, clipped, read, sampled, apart, first = totals.tolist()
        ends = torch.tensor([-self.ratio_min, self.ratio_max], dtype=torch.float64)
        low, high = self.processes.all_reduce_max(ends).tolist()
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


def weight_norm(model: torch.nn.Module) -> float:
    """`weight_norm` of `METRICS`; weights without a gradient do not count."""
    with torch.no_grad():
        return math.hypot(*(weight.norm().item() for weight in model.parameters() if weight.requires_grad))


def peak_memory(device: torch.device) -> Metrics:
    """`peak_memory`, where it can be known: bytes allocated on a GPU, else what the process has had in memory.

    Linux counts what the parent process held into `ru_maxrss`, so there the process's own status is read.
    """
    if device.type == "cuda":
        return {"peak_memory": torch.cuda.max_memory_allocated(device)}
    if (status := Path("/proc/self/status")).exists():
        own = [line.split()[1] for line in status.read_text(encoding="utf-8").splitlines() if line.startswith("VmHWM")]
        if own:  # some sandboxes leave it out
            return {"peak_memory": int(own[0]) * 1024}
    try:
        import resource
    except ImportError:  # Windows
        return {}
    unit = 1 if sys.platform == "darwin" else 1024
    return {"peak_memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit}


def synchronized_time(device: torch.device) -> float:
    """The time in seconds, after the device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def sequence_kl(logp: Tensor, other: Tensor, mask: Tensor) -> float:
    """KL(policy || other) of whole completions in nats, from samples of the policy: their mean log-ratio (k1).

    k3 would be too low here. Far from the other policy its correction is nearly -1 for most tokens and huge for a few
    that are hardly ever drawn, so a sample shows about a nat per token too little; and this metric matters when the
    policies are far apart.

    Args:
        logp: [B, T] log-probs of the sampled tokens under the policy that drew them.
        other: [B, T] of the same tokens under the other.
        mask: [B, T] 1 = trained token. Rows without any are left out.
    """
    rows = (mask != 0).any(-1)
    return sequence_sum(k1(logp, other), mask)[rows].mean().item()


def _monte_carlo_returns(algorithm: Algorithm, batch: Batch) -> Float[Tensor, "B T"]:
    """Sums of the rewards that came, from each token to the end: what a critic is judged by.

    With lambda below 1 the critic's targets contain its own values, so that a critic that predicts nothing agrees with
    them well. These contain none, whatever lambda is. The discount is the `gamma` of the row's cell.

    Args:
        algorithm: A row of the table.
        batch: Whole groups, prepared or not.
    """
    cell = algorithm.targets or algorithm.advantage
    gamma = getattr(cell, "keywords", {}).get("gamma", 1.0)
    return returns_to_go(_rewards_of_tokens(algorithm, batch), batch.mask, gamma=gamma)


def explained_variance(
    values: Float[Tensor, "B T"], returns: Float[Tensor, "B T"], mask: Float[Tensor, "B T"]
) -> float:
    """1 - var(returns - values) / var(returns) over trained tokens; 0 if the returns do not vary.

    Example:
        >>> returns = torch.tensor([[0.0, 1.0]])
        >>> explained_variance(returns, returns, torch.ones(1, 2))
        1.0
    """
    spread = masked_var(returns, mask).item()
    return 1 - masked_var(returns - values, mask).item() / spread if spread > 0 else 0.0
