r"""The one place where the columns meet: a batch of sampled sequences goes in, a scalar to minimise comes out.

    rewards --shape--> token_rewards --advantage--> A --normalize--> A    (no gradient: `prepare`)
    logp, old_logp --ratio--> w                                            (the gradient enters here, only here)
    gate(w, A) * correct * trust --> objective [B, T] --aggregate--> scalar   minus KL --> loss      (`policy_loss`)

Left out on purpose: models, sampling and the optimiser (see `train`), and every algorithm's name. An algorithm is a
choice of cells, and nothing in this file depends on its name. `contracts` describes what a column gives its cells.

Shapes: P prompts, G completions each, B = P * G sequences with groups contiguous, T completion tokens padded on the
right.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from .contracts import CONTEXT, Cell, read_cell
from .functional import kl as kl_estimators
from .functional import masked
from .functional.advantages import place_rewards
from .functional.aggregation import Totals
from .functional.checks import (
    check,
    check_count,
    check_flags,
    check_floating,
    check_group,
    check_integers,
    check_logprobs,
    check_mask,
    check_not_negative,
    check_parts,
    check_positive,
    check_rows,
    check_step_ends,
    check_tensor,
    check_tokens,
)

__all__ = ["KL", "Algorithm", "Batch", "NotFinite", "Totals", "policy_loss", "prepare", "value_loss"]


@dataclass(frozen=True)
class KL:
    r"""One KL penalty: against the reference or the old policy, in the reward, the advantage or the loss.

    At level "token" the estimator is applied to each token; at level "sequence" to the sum of the log-ratio over the
    whole completion, which is then averaged over completions.

    Args:
        coef: beta, usually 0.001 to 0.1; 0 switches the term off, and no reference is needed.
        estimator: "k1", "k2", "k3" or "absolute", or the function of `functional.kl`.
        place: "reward" (subtracted from token rewards; a group's baseline then subtracts the KL of the other
            completions as well), "advantage" (subtracted after the baseline, before whitening), or "loss". The first
            two use the old policy's log-probs and have no gradient.
        against: "reference" or "old" (the policy that sampled).
        level: "token" or "sequence".
        weighted: multiply by the ratio pi / pi_old, with its gradient (in the loss only). The gradient of k1 and k3 is
            then that of KL(pi || ref), off-policy too; per token, that of the next-token KLs with fixed prefixes.
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
        for name, estimator in kl_estimators.ESTIMATORS.items():  # kl.k3 for "k3"
            if self.estimator is estimator:
                object.__setattr__(self, "estimator", name)
        check_not_negative(coef=self.coef)
        choices = {
            "estimator": tuple(kl_estimators.ESTIMATORS),
            "place": ("reward", "advantage", "loss"),
            "against": ("reference", "old"),
            "level": ("token", "sequence"),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"KL {name} is {getattr(self, name)!r}, expected one of {', '.join(allowed)}")
        if self.place != "loss" and self.against == "old":
            raise ValueError(f"a KL against the old policy in the {self.place} is always 0: put it in the loss")
        if self.place != "loss" and (self.weighted or self.aggregate is not None):
            raise ValueError(
                f"weighted and aggregate belong to a KL in the loss: in the {self.place} nothing is averaged"
            )
        if self.level == "sequence" and self.aggregate is not None:
            raise ValueError("a sequence-level KL is averaged over sequences: leave aggregate out")
        if self.aggregate is not None and not callable(self.aggregate):
            raise ValueError(f"KL aggregate is {self.aggregate!r}, expected a function of functional.aggregation")
        if self._mean is not None and not _is_linear(self._mean.function):
            raise ValueError("a geometric mean cannot average a KL: choose another KL(aggregate=...)")

    @cached_property
    def _mean(self) -> Cell | None:
        return None if self.aggregate is None else read_cell("aggregate", self.aggregate)


@dataclass(frozen=True)
class Algorithm:
    """One row of the table: one cell for each column. Every cell is a plain function or a partial of one.

    Make a variant with ``dataclasses.replace(ALGORITHMS["grpo"], gate=partial(gates.clip, low=0.2, high=0.28))``.

    Args:
        advantage: who gets the credit? (`functional.advantages`)
        ratio: how far has the policy moved, at which level? (`functional.ratios`)
        gate: how much of the step is allowed? (`functional.gates`)
        aggregate: who counts how much? (`functional.aggregation`)
        kl: how is the policy kept near another one? one or several `KL`, or none: `()`.
        normalize: is the advantage whitened over the batch?
        shape: what is added to the reward? (`functional.shaping`)
        keep: which sequences are trained on? (`functional.filters`; only the training loop calls it)
        correct: whose log-probs were sampled? (`functional.corrections`)
        entropy: coefficient of an entropy bonus, usually 0 to 0.01.
        trust: which tokens may be trained on? A weight that may see the policy as it is now (`contrib.trust`).
        targets: what is the critic taught? A cell of the advantage column that reads values; default: what the policy's
            own advantage implies.
        entropy_aggregate: how the entropy bonus is averaged; default: as the policy term is.

    Raises:
        ValueError: a cell that cannot be called as its column calls it (`contracts`); a combination that has no
            meaning.

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
    trust: Callable[..., Tensor] | None = None
    targets: Callable[..., Tensor] | None = None
    entropy_aggregate: Callable[..., Tensor] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "kl", tuple(self.kl) if isinstance(self.kl, tuple | list) else (self.kl,))
        for kl in self.kl:
            if not isinstance(kl, KL):
                raise ValueError(f"kl holds {kl!r}, expected KL(coef, estimator, ...)")
        for column in (*_CELLS_BEFORE, "keep", *_CELLS_IN_LOSS):
            cell = getattr(self, column)
            if not callable(cell) and (cell is not None or column in _NEVER_EMPTY):
                raise ValueError(f"{column} is {cell!r}, expected a function, such as those of rlhf_minimal.functional")
        check_not_negative(entropy=self.entropy)
        self._check_rewards()  # reads the cells, and refuses one that its column cannot call
        self._check_means()
        self._check_critic()

    @cached_property
    def _cells(self) -> dict[str, Cell]:
        """What each cell declares of its column's context, read once."""
        columns = (*_CELLS_BEFORE, "keep", *_CELLS_IN_LOSS)
        return {name: read_cell(name, cell) for name in columns if (cell := getattr(self, name)) is not None}

    def _check_means(self) -> None:
        """Refuses a geometric mean of what may be 0 or negative, and a mean of an entropy bonus that is not there."""
        if not _is_linear(self.aggregate):
            bare = [kl for kl in self.kl if kl.place == "loss" and kl.level == "token" and kl.aggregate is None]
            if bare:
                raise ValueError(
                    "a geometric mean cannot average a KL: give it its own, "
                    "KL(..., aggregate=aggregation.sequence_mean)"
                )
            if self.entropy and self.entropy_aggregate is None:
                raise ValueError("a geometric mean cannot average an entropy bonus: give it its own, entropy_aggregate")
            if self.trust is not None:
                raise ValueError(
                    "a geometric mean is 0 for a sequence with a 0, and trust sets tokens to 0: use another aggregate"
                )
        if self.entropy_aggregate is not None:
            if not self.entropy:
                raise ValueError("entropy_aggregate averages the entropy bonus, but entropy is 0: set entropy as well")
            if not _is_linear(self.entropy_aggregate):
                raise ValueError("a geometric mean cannot average an entropy bonus: choose another entropy_aggregate")

    def _check_rewards(self) -> None:
        """Refuses a shape or a KL in the reward where the advantage does not read the rewards."""
        if "reward_parts" not in self._cells["advantage"].needs:
            return
        unread = [f"shape={_name(self.shape)}"] if self.shape is not None else []
        unread += ["a KL in the reward"] if any(kl.place == "reward" and kl.coef for kl in self.kl) else []
        if unread:
            raise ValueError(
                f"the advantage, {_name(self.advantage)}, reads reward_parts and no token rewards, so "
                f"{' and '.join(unread)} would do nothing: put a KL into the advantage or the loss, and shape the "
                "parts themselves"
            )

    def _check_critic(self) -> None:
        """Refuses targets where there is no critic, and targets that do not subtract the critic's values."""
        if self.targets is None:
            return
        if "values" not in self._cells["advantage"].needs:
            raise ValueError(
                f"targets train a critic, but the advantage, {_name(self.advantage)}, reads no values: leave "
                "targets out, or use an advantage with a critic, such as advantages.gae"
            )
        if "values" not in self._cells["targets"].needs:
            raise ValueError(
                f"the critic learns targets + values, so targets must subtract the values, but {_name(self.targets)} "
                "reads none: for the plain return use partial(advantages.gae, lam=1.0)"
            )

    @property
    def needs(self) -> frozenset[str]:
        """Which optional fields of the batch its cells read, and "group" if it compares completions of a prompt.

        A training loop reads it: with "values" it keeps a critic, with "ref_logp" it runs the reference.
        """
        return self._needs_before | self._needs_in_loss | self._needs(("keep",))

    @property
    def needs_teacher(self) -> bool:
        """Whether its advantage is read from the reference, so that it learns nothing from a copy of itself."""
        return "ref_logp" in self._cells["advantage"].needs

    @property
    def needs_whole_step(self) -> bool:
        """Whether a weight of it is a statistic of all tokens of an optimiser step: then a micro-batch is refused."""
        return any("totals" in self._cells[name].reads for name in ("trust", "correct") if name in self._cells)

    @property
    def _needs_before(self) -> frozenset[str]:
        """What `prepare` reads."""
        return self._needs(_CELLS_BEFORE, "reward", "advantage")

    @property
    def _needs_in_loss(self) -> frozenset[str]:
        """What is still read once a batch is prepared."""
        names = set(self._needs(_CELLS_IN_LOSS, "loss"))
        names |= {"entropy"} if self.entropy else set()
        names |= {"sampler_logp"} if self.correct is not None else set()
        return frozenset(names)

    def _needs(self, columns: tuple[str, ...], *places: str) -> frozenset[str]:
        names = {name for column in columns if column in self._cells for name in self._cells[column].needs}
        for kl in self.kl:
            if kl.coef and kl.place in places:
                names |= {"ref_logp"} if kl.against == "reference" else set()
                names |= set() if kl._mean is None else kl._mean.needs
        return frozenset(names)

    def call(self, column: str, *fixed: Any, **context: Any) -> Any:
        """Calls the cell of a column with the part of the context that it declares.

        Args:
            column: one of `contracts.COLUMNS`, in which this row has a cell.
            *fixed: the column's fixed arguments.
            **context: the context that is available; None counts as missing.

        Returns:
            The cell's result.
        """
        return self._cells[column](*fixed, **context)


def _is_linear(mean: Callable[..., Any]) -> bool:
    return getattr(getattr(mean, "func", mean), "linear", True)


def _name(cell: Any) -> str:
    return getattr(getattr(cell, "func", cell), "__name__", repr(cell))


_CELLS_BEFORE = ("advantage", "targets", "normalize", "shape")  # called by `prepare`
_CELLS_IN_LOSS = ("ratio", "gate", "aggregate", "correct", "trust", "entropy_aggregate")  # called by `policy_loss`
_NEVER_EMPTY = ("advantage", "ratio", "gate", "aggregate")


class NotFinite(ValueError):
    """A ratio, a loss or a gradient is beyond what the precision can hold: the run has collapsed."""


@dataclass(frozen=True)
class Batch:
    """Sampled sequences and what is known about them, validated when it is made.

    So a mistake is named as the argument that it was made in. Cells check again what they read: they are also called
    on their own, and what one column gives to the next is not in any batch.

    Everything but ``logp`` and ``entropy`` is treated as a constant. Values under a zero mask are never read.
    Half precision is raised to float32; other tensors follow the dtype of ``logp``.

    Args:
        logp: [B, T] log-probs (nats) under the policy being trained; carries the gradient.
        old_logp: [B, T] under the policy that sampled, temperature included.
        mask: [B, T], 1 = trained token (the first EOS included), 0 = padding or a tool's output; may have holes.
        rewards: [B] one outcome a sequence.
        group_size: G, completions a prompt; rows of one group are contiguous.
        ref_logp: [B, T] under the reference, for a KL.
        values: [B, T] the critic's estimate before each token.
        advantages: [B] or [B, T]; if given, the rewards are not used any more.
        budget: tokens a completion was allowed.
        step_rewards: [B, T] rewards where they were earned; default: ``rewards`` on the last trained token.
        step_ends: [B, T], 1 on the last token of each step; default: the last trained token.
        baseline: [B] for contrib.advantages.given_baseline.
        greedy_rewards: [B] the reward of the greedy completion of each row's prompt.
        sampler_logp: [B, T] by the engine that sampled, if that is not the trainer itself.
        entropy: [B, T] of the policy being trained, for an entropy bonus; carries the gradient.
        truncated: [B] bool, True where the budget ended the completion.
        reward_parts: [B, K] the parts that a reward is made of, for contrib.advantages.gdpo.
        returns: [B, T] the critic's targets; `prepare` fills it.
        totals: denominators of the optimiser step, if this batch is a part of one; default: counted here.
        prompt_of: [B] integers, the prompt of each row, if the rows are no longer whole groups in order; `minibatch`
            and `split` fill it.
        prompt_tokens: [B] integers, trained tokens of the row's prompt in the whole optimiser step; filled likewise.

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
    greedy_rewards: Tensor | None = None
    sampler_logp: Tensor | None = None
    entropy: Tensor | None = None
    truncated: Tensor | None = None
    reward_parts: Tensor | None = None
    returns: Tensor | None = None
    totals: Totals | None = None
    prompt_of: Tensor | None = None
    prompt_tokens: Tensor | None = None

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
        for name in ("baseline", "greedy_rewards"):
            if (rewards := getattr(self, name)) is not None:
                check_rows(name, rewards, len(self.logp))
        if self.advantages is not None:
            check_floating("advantages", self.advantages)
            if self.advantages.dim() == 1:
                check_rows("advantages", self.advantages, len(self.logp))
                object.__setattr__(self, "advantages", self.advantages[:, None].expand_as(self.logp))
        if self.truncated is not None:
            check_flags("truncated", self.truncated, len(self.logp))
        if self.reward_parts is not None:
            check_parts(self.reward_parts, len(self.logp))
        for name in ("prompt_of", "prompt_tokens"):
            if (numbers := getattr(self, name)) is not None:
                check_integers(name, numbers)
                if numbers.shape != self.rewards.shape:
                    raise ValueError(f"{name} has shape {tuple(numbers.shape)}, expected ({len(self.logp)},)")
        if self.step_ends is not None:
            check_step_ends(self.step_ends, self.mask)
        if self.budget is not None:
            check_count(budget=self.budget)
        if self.totals is not None and not isinstance(self.totals, Totals):
            raise ValueError(f"totals is {self.totals!r}, expected Totals(sequences, tokens, budget)")
        # A part of a batch (totals given) may have no trained token and may cut through a group.
        check_all = check if self.totals is None else check_tokens
        optional = {name: x for name in _OPTIONAL if (x := getattr(self, name)) is not None}
        check_all(self.mask, logp=self.logp, old_logp=self.old_logp, **optional)
        check_count(group_size=self.group_size)
        if self.advantages is None:
            check_group(len(self.logp), self.group_size)
        if self.totals is None:  # a part was checked with its whole
            self._check_range()
        self._cast()

    def _check_range(self) -> None:
        """Refuses numbers whose squares and sums float32 cannot hold, and negative log-likelihoods."""
        trained = self.mask != 0
        for name, x in self._tensors():
            if name in _NO_NUMBERS:
                continue
            x = x.detach()[trained] if x.shape == trained.shape else x.detach()
            low, high = x.aminmax()
            if max(-low, high) >= LARGEST:
                raise ValueError(
                    f"{name} holds {float(high if high > -low else low):.3g}, and from {LARGEST:g} on sums and squares "
                    "overflow: scale it down, or find out where it comes from"
                )
        # Numbers made up for a test may be above 0 in one of the two, so both have to look like -log pi, or one beside
        # another that can only be log pi; `logp` not of a few tokens, since a ratio made up for one takes it above 0.
        logps = {name: x.detach()[trained] for name in _LOGPS if (x := getattr(self, name)) is not None}
        logp, old_logp = logps.pop("logp"), logps["old_logp"]
        check_logprobs(logp=logp if logp.numel() > 3 else old_logp, old_logp=old_logp)
        check_logprobs(**logps)

    def _tensors(self) -> list[tuple[str, Tensor]]:
        fields = ((field.name, getattr(self, field.name)) for field in dataclasses.fields(self))
        return [(name, x) for name, x in fields if isinstance(x, Tensor)]

    def _cast(self) -> None:
        half = self.logp.dtype in (torch.float16, torch.bfloat16)
        dtype = torch.float32 if half else self.logp.dtype
        for name, x in self._tensors():
            if name not in ("truncated", "prompt_of", "prompt_tokens"):
                object.__setattr__(self, name, x.to(dtype) if name in ("logp", "entropy") else x.detach().to(dtype))

    @property
    def lengths(self) -> Tensor:
        """[B] trained tokens of each row."""
        return masked.lengths(self.mask)

    def minibatch(self, idx: Tensor) -> "Batch":
        """The rows ``idx`` as an optimiser step of their own, with denominators counted from these rows.

        Args:
            idx: [N] row numbers or [B] bool.

        Raises:
            ValueError: before `prepare`, since a group that is cut has no baseline any more; rows that do not exist.
        """
        B = len(self.logp)
        check_tensor("idx", idx)
        if idx.dtype != torch.bool:
            check_integers("idx", idx)
        fits = idx.shape == (B,) if idx.dtype == torch.bool else idx.dim() == 1 and ((-B <= idx) & (idx < B)).all()
        if not fits:
            raise ValueError(f"idx is {idx.tolist()}, expected row numbers below {B}, or one bool for each of {B} rows")
        mask, prompts = self.mask[idx], _prompt_of(self)[idx]
        totals = Totals.of(mask, self.budget, prompts=len(prompts.unique()))
        return self._rows(idx, totals, _tokens_of_prompts(mask, prompts))

    def split(self, n: int) -> "list[Batch]":
        """``n`` micro-batches with the denominators of the whole: their losses sum to the loss of the whole.

        Args:
            n: between 1 and B; rows are divided in order and as evenly as possible; a group may be cut.

        Raises:
            ValueError: before `prepare`, or an ``n`` out of range.
        """
        check_count(n=n)
        if n > len(self.logp):
            raise ValueError(f"cannot split {len(self.logp)} rows into {n} micro-batches")
        rows = torch.arange(len(self.logp), device=self.logp.device)
        return [self.part(idx) for idx in torch.tensor_split(rows, n)]

    def part(self, idx: Tensor) -> "Batch":
        """The rows ``idx`` as a micro-batch, with the denominators of the whole; `split` divides all rows so.

        Args:
            idx: [N] row numbers.

        Raises:
            ValueError: before `prepare`.
        """
        return self._rows(idx, _totals(self), _prompt_tokens(self)[idx])

    def _rows(self, idx: Tensor, totals: Totals, prompt_tokens: Tensor) -> "Batch":
        if self.advantages is None:
            raise ValueError(
                "prepare(algorithm, batch) first: advantages need whole groups, and a part may cut a group"
            )
        part: dict[str, Any] = {name: x[idx] for name, x in self._tensors()}
        part |= {"totals": totals, "prompt_of": _prompt_of(self)[idx], "prompt_tokens": prompt_tokens}
        return dataclasses.replace(self, **part)


LARGEST = 1e18  # its square is still a float32, and so is the sum of some thousands of them
_LOGPS = ("logp", "old_logp", "ref_logp", "sampler_logp")
_NO_NUMBERS = ("mask", "step_ends", "truncated", "prompt_of", "prompt_tokens")
# Optional fields with a number for each token: [B, T], finite wherever the mask is 1.
_OPTIONAL = ("ref_logp", "values", "advantages", "step_rewards", "sampler_logp", "entropy", "returns")


@torch.no_grad()
def _rewards_of_tokens(algorithm: Algorithm, batch: Batch) -> Float[Tensor, "B T"]:
    """What every token earns before credit is assigned: the shaped outcome, rewards of steps, minus KL in the reward.

    Args:
        algorithm: a row of the table.
        batch: whole groups, prepared or not.

    Example:
        >>> from rlhf_minimal import ALGORITHMS
        >>> zeros = torch.zeros(2, 3)
        >>> batch = Batch(zeros, zeros, torch.ones(2, 3), torch.tensor([1.0, 0.0]), group_size=2)
        >>> _rewards_of_tokens(ALGORITHMS["grpo"], batch)
        tensor([[0., 0., 1.],
                [0., 0., 0.]])
    """
    shaped = batch.rewards
    if algorithm.shape is not None:
        known = {"group_size": batch.group_size, "budget": _budget(batch), "truncated": batch.truncated}
        shaped = algorithm.call("shape", batch.rewards, batch.lengths, **known)
    token_rewards = place_rewards(shaped, batch.mask)
    if batch.step_rewards is not None:
        outcome = place_rewards(batch.rewards, batch.mask)
        token_rewards = token_rewards - outcome + masked.zero_outside(batch.step_rewards, batch.mask)
    for kl in algorithm.kl:
        if kl.place == "reward" and kl.coef:
            token_rewards = token_rewards - kl.coef * _kl_before_loss(kl, batch)
    return token_rewards


@torch.no_grad()
def prepare(algorithm: Algorithm, batch: Batch) -> Batch:
    """From rewards to advantages, once a rollout, without gradient (:eq:`eq-prepare`).

    In this order: shape the outcome reward, place it on the last token, subtract the KL in the reward, compute
    advantages and the critic's targets, subtract the KL in the advantage, and only then whiten.

    Chapter: grpo.

    Args:
        algorithm: a row of the table.
        batch: whole groups.

    Returns:
        The batch with ``advantages``, and with ``returns`` = targets + values if there is a critic. A row without
        targets of its own uses the advantages before KL and whitening as targets.

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
    # The entropy is that of the policy being trained, which is known only in the loss.
    _check_given(algorithm._needs_before | algorithm._needs_in_loss - {"entropy"}, batch)
    token_rewards = _rewards_of_tokens(algorithm, batch)
    context = {name: getattr(batch, name) for name in CONTEXT["advantage"]}
    advantages = algorithm.call("advantage", token_rewards, batch.mask, **context)
    returns = batch.returns
    if "values" in algorithm.needs and batch.values is not None:
        to_values = advantages
        if algorithm.targets is not None:
            to_values = algorithm.call("targets", token_rewards, batch.mask, **context)
        returns = masked.zero_outside(to_values + batch.values, batch.mask)
    for kl in algorithm.kl:
        if kl.place == "advantage" and kl.coef:
            advantages = advantages - kl.coef * _kl_before_loss(kl, batch)
    if algorithm.normalize is not None:
        advantages = algorithm.call("normalize", advantages, batch.mask, group_size=batch.group_size)
    return dataclasses.replace(batch, advantages=advantages, returns=returns)


def policy_loss(algorithm: Algorithm, batch: Batch) -> Float[Tensor, ""]:
    r"""The loss of one optimiser step or micro-batch, to MINIMISE (:eq:`eq-policy-loss`).

    .. math:: L = -\text{aggregate}\big(c\, m \cdot \text{gate}(w, A)\big) + \sum_k \beta_k\, \text{KL}_k - \eta\, H

    with the correction c and the trust weight m, both without gradient.

    The library's only change of sign, from objective to loss, is here. The batch is prepared if it was not yet, and
    never filtered.

    Chapter: grpo.

    Args:
        algorithm: a row of the table.
        batch: prepared, or whole groups.

    Returns:
        Scalar with a gradient in ``batch.logp`` (and ``batch.entropy``). Its value says little on its own: on-policy,
        with a mean within each completion and no KL, it is minus the mean advantage, 0 for a group baseline, while its
        gradient is not 0.

    Raises:
        ValueError: something that the algorithm needs is missing.
        NotFinite: a ratio or the loss.

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
    _check_given(algorithm._needs_in_loss, batch)  # what only `prepare` reads may be dropped
    mask = batch.mask
    assert batch.advantages is not None
    if not (mask != 0).any():  # a micro-batch without a trained token: loss 0, gradient 0
        return masked.zero_outside(batch.logp, mask).sum()
    known = {"totals": _totals(batch), "budget": _budget(batch), "prompt_tokens": _prompt_tokens(batch)}
    ratio = algorithm.ratio(batch.logp, batch.old_logp, mask)
    if not torch.isfinite(ratio).all():
        raise NotFinite(
            f"a ratio overflows {_largest(batch)}: train fewer steps on one rollout, or lower the learning rate"
        )
    objective = algorithm.gate(ratio, masked.zero_outside(batch.advantages, mask))
    if algorithm.correct is not None:
        objective = objective * algorithm.call("correct", batch.old_logp, batch.sampler_logp, mask, **known)
    if algorithm.trust is not None:
        objective = objective * _trust_weight(algorithm, batch)
    loss: Tensor = -algorithm.call("aggregate", objective, mask, **known)
    for kl in algorithm.kl:
        if kl.place == "loss" and kl.coef:
            loss = loss + kl.coef * _kl_in_loss(kl, algorithm, batch, known)
    if algorithm.entropy:
        column = "aggregate" if algorithm.entropy_aggregate is None else "entropy_aggregate"
        loss = loss - algorithm.entropy * algorithm.call(column, batch.entropy, mask, **known)
    if not torch.isfinite(loss):
        raise NotFinite(f"the loss is not finite {_largest(batch)}: the numbers exceed what this precision can hold")
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

    The clip limits how far a value moves on one rollout. The maximum keeps the gradient where it moved the wrong way.

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
    old_values, returns = old_values.detach(), returns.detach()
    # Before anything is squared: 0 times NaN is NaN, and would be the gradient if only the squares were masked.
    values, old_values, returns = (masked.zero_outside(x, mask) for x in (values, old_values, returns))
    if not (mask != 0).any():  # a micro-batch without a trained token
        return values.sum()
    check_count(tokens=totals.tokens)
    error = (values - returns) ** 2
    if clip is not None:
        near = old_values + (values - old_values).clamp(-clip, clip)
        error = torch.maximum(error, (near - returns) ** 2)
    loss = 0.5 * error.sum() / totals.tokens
    if not torch.isfinite(loss):
        raise NotFinite(
            "the value loss is not finite: the errors are too large to be squared, so scale the rewards down"
        )
    return loss


def _trust_weight(algorithm: Algorithm, batch: Batch) -> Tensor:
    """[B, T] the trust column's weight on each token of a prepared batch, without gradient; 0 outside the mask."""
    weight = algorithm.call(
        "trust",
        batch.mask,
        logp=batch.logp.detach(),
        old_logp=batch.old_logp,
        sampler_logp=batch.sampler_logp,
        advantages=batch.advantages,
        entropy=None if batch.entropy is None else batch.entropy.detach(),
        totals=_totals(batch),
    )
    weight = masked.zero_outside(weight.detach().to(batch.logp.dtype), batch.mask)
    if not torch.isfinite(weight).all():
        raise ValueError(f"trust, {_name(algorithm.trust)}, gives a token a weight that is not finite")
    return weight


def _kl_before_loss(kl: KL, batch: Batch) -> Tensor:
    """[B, T] penalty on token rewards or advantages.

    The estimate for a whole completion is subtracted from its last token's reward, or from all its advantages.
    """
    assert batch.ref_logp is not None
    penalty = kl_estimators.ESTIMATORS[str(kl.estimator)](*_at_level(kl, batch, batch.old_logp, batch.ref_logp))
    if kl.level == "token":
        return penalty
    if kl.place == "reward":
        return place_rewards(penalty, batch.mask)
    return masked.zero_outside(penalty[:, None].expand_as(batch.mask), batch.mask)


def _at_level(kl: KL, batch: Batch, *logps: Tensor) -> list[Tensor]:
    """Log-probs of tokens [B, T], 0 under a zero mask, or of whole completions [B], the sums over their tokens."""
    tokens = [masked.zero_outside(x, batch.mask) for x in logps]
    return tokens if kl.level == "token" else [x.sum(-1) for x in tokens]


def _kl_in_loss(kl: KL, algorithm: Algorithm, batch: Batch, known: dict[str, Any]) -> Tensor:
    """The KL term, averaged."""
    target = batch.ref_logp if kl.against == "reference" else batch.old_logp
    assert target is not None
    logp, old_logp, target = _at_level(kl, batch, batch.logp, batch.old_logp, target)
    penalty = kl_estimators.ESTIMATORS[str(kl.estimator)](logp, target)
    if kl.weighted:
        penalty = penalty * torch.exp(logp - old_logp)
    if kl.level == "sequence":
        return penalty.sum() / known["totals"].sequences
    scalar: Tensor = (kl._mean or algorithm._cells["aggregate"])(penalty, batch.mask, **known)
    return scalar


def _totals(batch: Batch) -> Totals:
    if batch.totals is not None:
        return batch.totals
    return Totals.of(batch.mask, batch.budget, prompts=len(_prompt_of(batch).unique()))


def _budget(batch: Batch) -> int | None:
    return batch.budget if batch.budget is not None or batch.totals is None else batch.totals.budget


def _prompt_of(batch: Batch) -> Tensor:
    """[B] the number of each row's prompt."""
    rows = torch.arange(len(batch.mask), device=batch.mask.device)
    return rows // batch.group_size if batch.prompt_of is None else batch.prompt_of


def _prompt_tokens(batch: Batch) -> Tensor:
    """[B] trained tokens of each row's prompt, counted here unless this batch is a part of another."""
    if batch.prompt_tokens is not None:
        return batch.prompt_tokens
    return _tokens_of_prompts(batch.mask, _prompt_of(batch))


def _tokens_of_prompts(mask: Tensor, prompt_of: Tensor) -> Tensor:
    _, which = prompt_of.unique(return_inverse=True)
    return torch.zeros_like(which).index_add(0, which, masked.lengths(mask))[which]


_HOW_TO_GIVE: dict[str, str] = {
    "values": "a critic's estimates [B, T]",
    "ref_logp": "the reference's log-probs [B, T], or take the KL out with replace(algorithm, kl=())",
    "budget": "the number of tokens a completion was allowed (not the padded width)",
    "baseline": "one number for each sequence [B]",
    "greedy_rewards": "the reward of the greedy completion of each row's prompt [B]",
    "sampler_logp": "the log-probs of the engine that sampled [B, T]",
    "entropy": "the policy's entropy at each token [B, T], with its gradient",
    "reward_parts": "the parts of each reward [B, K], one column a reward",
    "truncated": "bool [B], True where the budget ended the completion",
    "step_ends": "1 on the last token of each step [B, T], and step_rewards with their marks",
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
