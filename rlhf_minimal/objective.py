r"""The one place where the columns meet: a batch of sampled sequences goes in, a scalar to minimise comes out.

    rewards --shape--> token_rewards --advantage--> A            (no gradient: `prepare`)
    logp, old_logp --ratio--> w                                    (the gradient enters here, only here)
    gate(w, A) --> objective [B, T] --aggregate--> scalar   minus KL --> loss      (`policy_loss`)

Left out on purpose: models, sampling and the optimiser (see `training`), and every algorithm's name. An algorithm is a
choice of cells; nothing in this file asks which.

Shapes: P prompts, G completions each, B = P * G sequences with groups contiguous, T completion tokens padded on the
right.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from .functional import kl as kl_estimators
from .functional import masked
from .functional.advantages import place_rewards
from .functional.aggregation import Totals
from .functional.checks import (
    check,
    check_count,
    check_floating,
    check_group,
    check_integers,
    check_mask,
    check_not_negative,
    check_positive,
    check_rows,
    check_tensor,
    check_tokens,
    needed,
)

__all__ = ["KL", "Algorithm", "Batch", "Totals", "policy_loss", "prepare", "value_loss"]


@dataclass(frozen=True)
class KL:
    r"""One leash: a divergence from the reference or from the old policy, in the reward or in the loss.

    At level "token" the estimator is applied to each token; at level "sequence" to the sum of the log-ratio over the
    whole response, which is then averaged over responses.

    Args:
        coef: beta, usually 0.001 to 0.1; 0 switches the term off, and no reference is needed.
        estimator: "k1", "k2" or "k3", or the function of `functional.kl`.
        place: "reward" (subtracted from token rewards, the sampler's log-probs, no gradient) or "loss".
        against: "reference" or "old" (the policy that sampled).
        level: "token" or "sequence".
        weighted: multiply by the ratio pi / pi_old, with its gradient (in the loss only): makes k1's and k3's gradient
            that of KL(pi || ref), off-policy too; per token it is that of the next-token KLs, prefixes held fixed.
        aggregate: how a token-level term in the loss is averaged; default: as the policy term is.

    Raises:
        ValueError: a choice that does not exist or would do nothing.

    Example:
        >>> KL(0.04, "k3")
        KL(coef=0.04, estimator='k3', place='loss', against='reference', level='token', weighted=False, aggregate=None)
    """

    coef: float
    estimator: str | Callable[..., Tensor]
    place: str = "loss"
    against: str = "reference"
    level: str = "token"
    weighted: bool = False
    aggregate: Callable[..., Tensor] | None = None

    def __post_init__(self) -> None:
        if callable(self.estimator):  # kl.k3 for "k3"
            object.__setattr__(self, "estimator", getattr(self.estimator, "__name__", "?"))
        check_not_negative(coef=self.coef)
        choices = {
            "estimator": tuple(kl_estimators.ESTIMATORS),
            "place": ("reward", "loss"),
            "against": ("reference", "old"),
            "level": ("token", "sequence"),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"KL {name} is {getattr(self, name)!r}, expected one of {', '.join(allowed)}")
        if self.place == "reward" and self.against == "old":
            raise ValueError("a KL against the old policy in the reward is always 0: put it in the loss")
        if self.place == "reward" and (self.weighted or self.aggregate is not None):
            raise ValueError("weighted and aggregate belong to a KL in the loss: in the reward nothing is averaged")
        if self.level == "sequence" and self.aggregate is not None:
            raise ValueError("a sequence-level KL is averaged over sequences: leave aggregate out")
        if self.aggregate is not None and not callable(self.aggregate):
            raise ValueError(f"KL aggregate is {self.aggregate!r}, expected a function of functional.aggregation")


@dataclass(frozen=True)
class Algorithm:
    """One row of the table: a choice for each column. Every cell is a plain function or a partial of one.

    Make a variant with ``dataclasses.replace(ALGORITHMS["grpo"], gate=partial(gates.clip, low=0.2, high=0.28))``.

    Args:
        advantage: who gets the credit? (`functional.advantages`)
        ratio: how far has the policy moved, at which level? (`functional.ratios`)
        gate: how much of the step is allowed? (`functional.gates`)
        aggregate: who counts how much? (`functional.aggregation`)
        kl: where is the leash? None, one or several `KL`.
        normalize: is the advantage whitened over the batch?
        shape: what is added to the reward? (`functional.shaping`)
        keep: which sequences are trained on? (`functional.filters`; asked by the loop alone)
        correct: whose log-probs were sampled? (`functional.corrections`)
        entropy: coefficient of an entropy bonus, usually 0 to 0.01.

    Raises:
        ValueError: a combination that has no meaning.

    Example:
        >>> from rlhf_minimal import ALGORITHMS
        >>> sorted(ALGORITHMS["ppo"].needs)
        ['ref_logp', 'values']
    """

    advantage: Callable[..., Tensor]
    ratio: Callable[..., Tensor]
    gate: Callable[..., Tensor]
    aggregate: Callable[..., Tensor]
    kl: tuple[KL, ...] = ()
    normalize: Callable[..., Tensor] | None = None
    shape: Callable[..., Tensor] | None = None
    keep: Callable[..., Tensor] | None = None
    correct: Callable[..., Tensor] | None = None
    entropy: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "kl", tuple(self.kl) if isinstance(self.kl, tuple | list) else (self.kl,))
        for kl in self.kl:
            if not isinstance(kl, KL):
                raise ValueError(f"kl holds {kl!r}, expected KL(coef, estimator, ...)")
        for column in (*_CELLS_BEFORE, *_CELLS_IN_LOSS):
            cell = getattr(self, column)
            if not callable(cell) and (cell is not None or column in _NEVER_EMPTY):
                raise ValueError(f"{column} is {cell!r}, expected a function, such as those of rlhf_minimal.functional")
        check_not_negative(entropy=self.entropy)
        if not getattr(getattr(self.aggregate, "func", self.aggregate), "linear", True):
            bare = [kl for kl in self.kl if kl.place == "loss" and kl.level == "token" and kl.aggregate is None]
            if bare:
                raise ValueError(
                    "a geometric mean cannot average a KL: give it its own, "
                    "KL(..., aggregate=aggregation.sequence_mean)"
                )
            if self.entropy:
                raise ValueError("a geometric mean cannot average an entropy bonus: use another aggregate")

    @property
    def needs(self) -> frozenset[str]:
        """Which optional fields of the batch its cells read, and "group" if it compares completions of a prompt.

        This is what a training loop asks: values? then keep a critic. ref_logp? then run the reference.
        """
        return self._needs(_CELLS_BEFORE, "reward") | self._needs_in_loss

    @property
    def _needs_in_loss(self) -> frozenset[str]:
        """What is still read once a batch is prepared."""
        return self._needs(_CELLS_IN_LOSS, "loss") | ({"entropy"} if self.entropy else set())

    def _needs(self, columns: tuple[str, ...], place: str) -> frozenset[str]:
        names = {name for column in columns for name in needed(getattr(self, column))}
        if any(kl.coef and kl.against == "reference" and kl.place == place for kl in self.kl):
            names.add("ref_logp")
        return frozenset(names)


_CELLS_BEFORE = ("advantage", "normalize", "shape", "keep")  # their work is done when a batch is prepared
_CELLS_IN_LOSS = ("ratio", "gate", "aggregate", "correct")
_NEVER_EMPTY = ("advantage", "ratio", "gate", "aggregate")


@dataclass(frozen=True)
class Batch:
    """What was sampled, and what is known about it. Validated once, here; the cells can trust it.

    Everything but ``logp`` and ``entropy`` is treated as a constant. Whatever stands under a zero mask is never read.
    Half precision is raised to float32; other tensors follow the dtype of ``logp``.

    Args:
        logp: [B, T] log-probs (nats) under the policy being trained; carries the gradient.
        old_logp: [B, T] under the policy that sampled, temperature included.
        mask: [B, T], 1 = trained token (the first EOS included), 0 = padding or a tool's output; may have holes.
        rewards: [B] one outcome a sequence.
        group_size: G, completions a prompt; rows of one group are contiguous.
        ref_logp: [B, T] under the reference, for a KL.
        values: [B, T] the critic's estimate before each token.
        advantages: [B] or [B, T]; given, nothing is computed from the rewards any more.
        budget: tokens a completion was allowed.
        step_rewards: [B, T] rewards where they were earned; default: ``rewards`` on the last trained token.
        step_ends: [B, T], 1 on the last token of each step; default: the last trained token.
        baseline: [B] for advantages.given_baseline.
        sampler_logp: [B, T] by the engine that sampled, where it is not the trainer.
        entropy: [B, T] of the policy being trained, for an entropy bonus; carries the gradient.
        truncated: [B] bool, True where the budget ended the completion.
        returns: [B, T] the critic's targets; `prepare` fills it.
        totals: denominators of the optimiser step, where this batch is a part of it; default: counted here.

    Raises:
        ValueError: shapes, dtypes or devices that do not fit, a number that is not finite on a trained token, a mask
            without a trained token, rows that do not divide into groups.

    Example:
        >>> zeros = torch.zeros(2, 3)
        >>> Batch(zeros, zeros, torch.ones(2, 3), torch.tensor([1.0, 0.0]), group_size=2).lengths
        tensor([3, 3])
    """

    logp: Tensor
    old_logp: Tensor
    mask: Tensor
    rewards: Tensor
    group_size: int
    _: dataclasses.KW_ONLY
    ref_logp: Tensor | None = None
    values: Tensor | None = None
    advantages: Tensor | None = None
    budget: int | None = None
    step_rewards: Tensor | None = None
    step_ends: Tensor | None = None
    baseline: Tensor | None = None
    sampler_logp: Tensor | None = None
    entropy: Tensor | None = None
    truncated: Tensor | None = None
    returns: Tensor | None = None
    totals: Totals | None = None

    def __post_init__(self) -> None:
        check_floating("logp", self.logp)
        if self.logp.dim() != 2:
            raise ValueError(f"logp has shape {tuple(self.logp.shape)}, expected [B, T], one row a completion")
        check_mask(self.mask)
        if self.mask.shape != self.logp.shape:
            raise ValueError(f"mask has shape {tuple(self.mask.shape)}, expected {tuple(self.logp.shape)} as logp has")
        for name, x in self._tensors():
            if x.device != self.logp.device:
                raise ValueError(f"{name} is on {x.device} and logp on {self.logp.device}: move them to one device")
        check_rows("rewards", self.rewards, len(self.logp))
        if self.baseline is not None:
            check_rows("baseline", self.baseline, len(self.logp))
        if self.advantages is not None:
            check_floating("advantages", self.advantages)
            if self.advantages.dim() == 1:
                check_rows("advantages", self.advantages, len(self.logp))
                object.__setattr__(self, "advantages", self.advantages[:, None].expand_as(self.logp))
        if self.truncated is not None:
            check_tensor("truncated", self.truncated)
            if self.truncated.shape != self.rewards.shape or self.truncated.dtype != torch.bool:
                given = f"{self.truncated.dtype} {tuple(self.truncated.shape)}"
                raise ValueError(f"truncated is {given}, expected bool ({len(self.logp)},): did the budget end it?")
        if self.step_ends is not None:
            check_mask(self.step_ends, "step_ends")
            if self.step_ends.shape != self.mask.shape:
                raise ValueError(f"step_ends {tuple(self.step_ends.shape)} and mask {tuple(self.mask.shape)} differ")
        if self.budget is not None:
            check_count(budget=self.budget)
        if self.totals is not None and not isinstance(self.totals, Totals):
            raise ValueError(f"totals is {self.totals!r}, expected Totals(sequences, tokens, budget)")
        # A part of a batch (totals given) may be masked throughout and may cut through a group.
        check_all = check if self.totals is None else check_tokens
        optional = {name: x for name in _OPTIONAL if (x := getattr(self, name)) is not None}
        check_all(self.mask, logp=self.logp, old_logp=self.old_logp, **optional)
        check_count(group_size=self.group_size)
        if self.advantages is None:
            check_group(len(self.logp), self.group_size)
        self._cast()

    def _tensors(self) -> list[tuple[str, Tensor]]:
        fields = ((field.name, getattr(self, field.name)) for field in dataclasses.fields(self))
        return [(name, x) for name, x in fields if isinstance(x, Tensor)]

    def _cast(self) -> None:
        half = self.logp.dtype in (torch.float16, torch.bfloat16)
        dtype = torch.float32 if half else self.logp.dtype
        for name, x in self._tensors():
            if name != "truncated":
                object.__setattr__(self, name, x.to(dtype) if name in ("logp", "entropy") else x.detach().to(dtype))

    @property
    def lengths(self) -> Tensor:
        """[B] trained tokens of each row."""
        return masked.lengths(self.mask)

    def minibatch(self, idx: Tensor) -> "Batch":
        """The rows ``idx`` as an optimiser step of their own: denominators are counted anew.

        Args:
            idx: [N] row numbers or [B] bool.

        Raises:
            ValueError: before `prepare`, since a group that is cut has lost its baseline; rows that do not exist.
        """
        B = len(self.logp)
        check_tensor("idx", idx)
        if idx.dtype != torch.bool:
            check_integers("idx", idx)
        fits = idx.shape == (B,) if idx.dtype == torch.bool else idx.dim() == 1 and ((-B <= idx) & (idx < B)).all()
        if not fits:
            raise ValueError(f"idx is {idx.tolist()}, expected row numbers below {B}, or one bool for each of {B} rows")
        return self._rows(idx, Totals.of(self.mask[idx], self.budget))

    def split(self, n: int) -> "list[Batch]":
        """``n`` micro-batches with the denominators of the whole: their losses sum to the loss of the whole.

        Args:
            n: between 1 and B; rows are dealt out in order, as evenly as they go, through groups too.

        Raises:
            ValueError: before `prepare`, or an ``n`` out of range.
        """
        check_count(n=n)
        if n > len(self.logp):
            raise ValueError(f"cannot split {len(self.logp)} rows into {n} micro-batches")
        rows = torch.arange(len(self.logp), device=self.logp.device)
        return [self.part(idx) for idx in torch.tensor_split(rows, n)]

    def part(self, idx: Tensor) -> "Batch":
        """The rows ``idx`` as a micro-batch, with the denominators of the whole: see `split`, which deals out all.

        Args:
            idx: [N] row numbers.

        Raises:
            ValueError: before `prepare`.
        """
        return self._rows(idx, _totals(self))

    def _rows(self, idx: Tensor, totals: Totals) -> "Batch":
        if self.advantages is None:
            raise ValueError(
                "prepare(algorithm, batch) first: advantages need whole groups, a part may cut through one"
            )
        part: dict[str, Any] = {name: x[idx] for name, x in self._tensors()}
        return dataclasses.replace(self, **part, totals=totals)


# What may be given for each token: [B, T], finite wherever the mask is 1.
_OPTIONAL = ("ref_logp", "values", "advantages", "step_rewards", "sampler_logp", "entropy", "returns")


@torch.no_grad()
def prepare(algorithm: Algorithm, batch: Batch) -> Batch:
    """From rewards to advantages, once a rollout, without gradient (:eq:`eq-prepare`).

    In this order: shape the outcome reward, place it on the last token, subtract the KL that belongs in the reward (the
    sampler's log-probs), compute advantages, the critic's targets, and only then whiten.

    Chapter: grpo.

    Args:
        algorithm: a row of the table.
        batch: whole groups.

    Returns:
        The batch with ``advantages``, and ``returns`` = advantages + values where there is a critic.

    Raises:
        ValueError: something that the algorithm needs is missing; anything a cell refuses.

    Example:
        >>> from rlhf_minimal import ALGORITHMS
        >>> zeros = torch.zeros(2, 1)
        >>> batch = Batch(zeros, zeros, torch.ones(2, 1), torch.tensor([1.0, 0.0]), group_size=2)
        >>> prepare(ALGORITHMS["dr_grpo"], dataclasses.replace(batch, budget=1)).advantages.flatten()
        tensor([ 0.5000, -0.5000])
    """
    _check_kinds(algorithm, batch)
    _check_given(algorithm.needs - {"entropy"}, batch)  # the entropy is the trained policy's: not known before the loss
    shaped = batch.rewards
    if algorithm.shape is not None:
        shaped = algorithm.shape(batch.rewards, batch.lengths, group_size=batch.group_size, budget=batch.budget)
    token_rewards = place_rewards(shaped, batch.mask)
    if batch.step_rewards is not None:
        outcome = place_rewards(batch.rewards, batch.mask)
        token_rewards = token_rewards - outcome + masked.zero_outside(batch.step_rewards, batch.mask)
    for kl in algorithm.kl:
        if kl.place == "reward" and kl.coef:
            token_rewards = token_rewards - kl.coef * _kl_in_reward(kl, batch)
    advantages = algorithm.advantage(
        token_rewards,
        batch.mask,
        group_size=batch.group_size,
        values=batch.values,
        baseline=batch.baseline,
        step_ends=batch.step_ends,
    )
    returns = batch.returns
    if "values" in algorithm.needs and batch.values is not None:
        returns = masked.zero_outside(advantages + batch.values, batch.mask)
    if algorithm.normalize is not None:
        advantages = algorithm.normalize(advantages, batch.mask)
    return dataclasses.replace(batch, advantages=advantages, returns=returns)


def policy_loss(algorithm: Algorithm, batch: Batch) -> Float[Tensor, ""]:
    r"""The loss of one optimiser step or micro-batch, to MINIMISE (:eq:`eq-policy-loss`).

    .. math:: L = -\text{aggregate}\big(c \cdot \text{gate}(w, A)\big) + \sum_k \beta_k\, \text{KL}_k - \eta\, H

    The one sign flip of the library is here. It prepares the batch if that was not done, and never filters.

    Chapter: grpo.

    Args:
        algorithm: a row of the table.
        batch: prepared, or whole groups.

    Returns:
        Scalar with a gradient in ``batch.logp`` (and ``batch.entropy``). Its value says little on its own: on-policy,
        with a mean within each response and no KL, it is minus the mean advantage, 0 for a group baseline, while its
        gradient is not 0.

    Raises:
        ValueError: something that the algorithm needs is missing; a ratio or loss that is not finite.

    Example:
        >>> from rlhf_minimal import ALGORITHMS
        >>> logp = torch.tensor([[-1.0], [-2.0]], requires_grad=True)
        >>> batch = Batch(logp, logp, torch.ones(2, 1), torch.tensor([1.0, 0.0]), group_size=2, budget=1)
        >>> policy_loss(ALGORITHMS["dr_grpo"], batch).backward()
        >>> logp.grad.flatten()
        tensor([-0.2500,  0.2500])
    """
    _check_kinds(algorithm, batch)
    if batch.advantages is None:
        batch = prepare(algorithm, batch)
    _check_given(algorithm._needs_in_loss, batch)  # what prepare has used up need not be kept
    mask, totals = batch.mask, _totals(batch)
    assert batch.advantages is not None
    if not (mask != 0).any():  # a micro-batch that is masked throughout adds nothing, with a gradient of nothing
        return masked.zero_outside(batch.logp, mask).sum()
    ratio = algorithm.ratio(batch.logp, batch.old_logp, mask)
    if not torch.isfinite(ratio).all():
        raise ValueError(
            f"a ratio overflows {_largest(batch)}: train fewer steps on one rollout, or lower the learning rate"
        )
    objective = algorithm.gate(ratio, masked.zero_outside(batch.advantages, mask))
    if algorithm.correct is not None:
        objective = objective * algorithm.correct(batch.old_logp, batch.sampler_logp, mask)
    loss = -algorithm.aggregate(objective, mask, totals=totals)
    for kl in algorithm.kl:
        if kl.place == "loss" and kl.coef:
            loss = loss + kl.coef * _kl_in_loss(kl, algorithm, batch, totals)
    if algorithm.entropy:
        loss = loss - algorithm.entropy * algorithm.aggregate(batch.entropy, mask, totals=totals)
    if not torch.isfinite(loss):
        raise ValueError(f"the loss is not finite {_largest(batch)}: the policy has left what this precision can hold")
    return loss


def value_loss(
    values: Float[Tensor, "B T"],
    old_values: Float[Tensor, "B T"],
    returns: Float[Tensor, "B T"],
    mask: Shaped[Tensor, "B T"],
    *,
    clip: float | None = None,
    totals: Totals | None = None,
) -> Float[Tensor, ""]:
    r"""The critic's squared error, optionally clipped as in PPO (:eq:`eq-value-loss`).

    .. math::
        \frac{1}{2 \sum_i |o_i|} \sum_{i,t} \max\big((V - R)^2,\; (\text{clip}(V, V_{old} \pm \epsilon) - R)^2\big)

    The clip keeps the critic near its last opinion; the maximum keeps the gradient where it has moved the wrong way.

    Chapter: gae (what the clip does), ppo-rlhf. Source: OpenAI baselines; as in InstructGPT's code family.

    Args:
        values: [B, T] the critic being trained.
        old_values: [B, T] at rollout time, a constant.
        returns: [B, T] targets, `prepare` makes them.
        mask: [B, T], 1 on trained tokens.
        clip: largest move in the units of the reward, usually 0.2; None = no clip.
        totals: denominators of the whole optimiser batch; default: this mask.

    Returns:
        Scalar to minimise.

    Raises:
        ValueError: bad tensors, a clip not above 0, an all-masked batch without totals.

    Example:
        >>> ones = torch.ones(1, 2)
        >>> value_loss(ones, ones, torch.tensor([[1.0, 3.0]]), ones)
        tensor(1.)
    """
    if clip is not None:
        check_positive(clip=clip)
    check_all = check if totals is None else check_tokens
    check_all(mask, values=values, old_values=old_values, returns=returns)
    totals = Totals.of(mask) if totals is None else totals
    if not (mask != 0).any():  # a micro-batch that is masked throughout
        return masked.zero_outside(values, mask).sum()
    check_count(tokens=totals.tokens)
    old_values, returns = old_values.detach(), returns.detach()
    error = (values - returns) ** 2
    if clip is not None:
        near = old_values + (values - old_values).clamp(-clip, clip)
        error = torch.maximum(error, (near - returns) ** 2)
    return 0.5 * masked.zero_outside(error, mask).sum() / totals.tokens


def _kl_in_reward(kl: KL, batch: Batch) -> Tensor:
    """[B, T] penalty on token rewards: the estimator a token, or of the whole response on its last token."""
    assert batch.ref_logp is not None
    logp, ref_logp = (masked.zero_outside(x, batch.mask) for x in (batch.old_logp, batch.ref_logp))
    estimate = kl_estimators.ESTIMATORS[str(kl.estimator)]
    if kl.level == "token":
        return masked.zero_outside(estimate(logp, ref_logp), batch.mask)
    return place_rewards(estimate(logp.sum(-1), ref_logp.sum(-1)), batch.mask)


def _kl_in_loss(kl: KL, algorithm: Algorithm, batch: Batch, totals: Totals) -> Tensor:
    target = batch.ref_logp if kl.against == "reference" else batch.old_logp
    assert target is not None
    logp, old_logp, target = (masked.zero_outside(x, batch.mask) for x in (batch.logp, batch.old_logp, target))
    if kl.level == "sequence":  # the log-prob of a response is the sum over its tokens
        logp, old_logp, target = logp.sum(-1), old_logp.sum(-1), target.sum(-1)
    penalty = kl_estimators.ESTIMATORS[str(kl.estimator)](logp, target)
    if kl.weighted:
        penalty = penalty * torch.exp(logp - old_logp)
    if kl.level == "sequence":
        return penalty.sum() / totals.sequences
    return (kl.aggregate or algorithm.aggregate)(penalty, batch.mask, totals=totals)


def _totals(batch: Batch) -> Totals:
    return Totals.of(batch.mask, batch.budget) if batch.totals is None else batch.totals


_HOW_TO_GIVE: dict[str, str] = {
    "values": "a critic's estimates [B, T]",
    "ref_logp": "the reference's log-probs [B, T], or take the KL out with replace(algorithm, kl=())",
    "budget": "the number of tokens a completion was allowed (not the padded width)",
    "baseline": "one number for each sequence [B]",
    "sampler_logp": "the log-probs of the engine that sampled [B, T]",
    "entropy": "the policy's entropy at each token [B, T], with its gradient",
}


def _check_kinds(algorithm: Any, batch: Any) -> None:
    if not isinstance(algorithm, Algorithm):
        raise ValueError(f"algorithm is {algorithm!r}, expected an Algorithm: a row is ALGORITHMS[name]")
    if not isinstance(batch, Batch):
        raise ValueError(
            f"batch is a {type(batch).__name__}, expected Batch(logp, old_logp, mask, rewards, group_size)"
        )


def _check_given(names: frozenset[str], batch: Batch) -> None:
    for name in sorted(names & _HOW_TO_GIVE.keys()):
        missing: Any = getattr(batch, name)
        if missing is None and not (name == "budget" and batch.totals is not None and batch.totals.budget):
            raise ValueError(f"this algorithm needs {name}: pass Batch(..., {name}=...), {_HOW_TO_GIVE[name]}")
    if "group" in names:
        check_group(len(batch.logp), batch.group_size, at_least=2)


def _largest(batch: Batch) -> str:
    logp, old_logp = (masked.zero_outside(x.detach(), batch.mask) for x in (batch.logp, batch.old_logp))
    return f"(largest log-ratio of a token {(logp - old_logp).abs().max():.3g} nats, lowest log-prob {logp.min():.3g})"
