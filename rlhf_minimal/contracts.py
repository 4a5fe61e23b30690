r"""What each column gives its cells: one `Protocol` per column, and the check that a function can be its cell.

A cell is a plain function. The column fixes its positional arguments. After a ``*`` the cell declares what else it
reads of the batch, its *context*, and it receives nothing more:

    without a default   required: a batch without it is refused, with its name, and a training loop provides it
    with a default      optional: given if the batch has it

Every other keyword argument is an option, with a default or bound by ``functools.partial``. All of this is read from
the signature once, when a row is built.

The cells themselves are in `functional`, which does not import this file.

Shapes: P prompts, G completions each, B = P * G sequences, T completion tokens.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from jaxtyping import Bool, Float, Int, Real, Shaped
from torch import Tensor

from .functional.aggregation import Totals


class AdvantageCell(Protocol):
    """Columns advantage and targets: who gets the credit, and what is the critic taught?

    Called once a rollout, on whole groups, without gradient.

    Args:
        token_rewards: [B, T] earned at each token, in the reward's units, KL in the reward subtracted.
        mask: [B, T], 1 on trained tokens; holes are skipped.
        group_size: G, rows of a group contiguous; at least 2 if required: the cell compares completions of one prompt.
        values: [B, T] the critic's estimate before each token.
        baseline: [B] one number a sequence.
        greedy_rewards: [B] the reward of the greedy completion of each row's prompt.
        step_ends: [B, T], 1 on the last token of each step.
        reward_parts: [B, K]; a cell that requires them does not read token_rewards.
        old_logp: [B, T] log-probs (nats) under the policy that sampled.
        ref_logp: [B, T] under the reference; a cell that requires it learns from a teacher.

    Returns:
        [B, T], 0 under a zero mask. A cell with one number a sequence gives it to each of the sequence's tokens.

    Raises:
        ValueError: tensors of another shape or dtype, or not finite on a trained token; no trained token; rows that do
            not divide into groups, or groups of one where they are compared.
    """

    def __call__(
        self, token_rewards: Float[Tensor, "B T"], mask: Shaped[Tensor, "B T"], /, *, group_size: int,
        values: Float[Tensor, "B T"], baseline: Float[Tensor, " B"], greedy_rewards: Float[Tensor, " B"],
        step_ends: Shaped[Tensor, "B T"], reward_parts: Float[Tensor, "B K"],
        old_logp: Float[Tensor, "B T"], ref_logp: Float[Tensor, "B T"],
    ) -> Float[Tensor, "B T"]: ...  # fmt: skip


class NormalizeCell(Protocol):
    """Column normalize: advantages of the whole rollout in, [B, T] out.

    Raises:
        ValueError: as `AdvantageCell`; too few trained tokens or sequences to have a spread.
    """

    def __call__(
        self, advantages: Float[Tensor, "B T"], mask: Shaped[Tensor, "B T"], /, *, group_size: int
    ) -> Float[Tensor, "B T"]: ...


class RatioCell(Protocol):
    """Column ratio: how far has the policy moved? The gradient enters the loss here, and only here.

    Args:
        logp: [B, T] log-probs (nats) under the policy being trained.
        old_logp: [B, T] under the policy that sampled, a constant.
        mask: [B, T], 1 on trained tokens.

    Returns:
        [B, T], positive, 1 = not moved; finite under a zero mask too.

    Raises:
        ValueError: tensors of another shape or dtype, or not finite on a trained token; no trained token.
    """

    def __call__(
        self, logp: Float[Tensor, "B T"], old_logp: Float[Tensor, "B T"], mask: Shaped[Tensor, "B T"], /
    ) -> Float[Tensor, "B T"]: ...


class GateCell(Protocol):
    """Column gate: how much of the step is allowed? What reads more than ratio and advantage is a trust cell.

    Args:
        ratio: [B, T] from a ratio cell, 1 = not moved.
        advantage: [B, T], positive = reinforce.

    Returns:
        [B, T] objective, larger is better.

    Raises:
        ValueError: shapes that differ, integers.
    """

    def __call__(self, ratio: Float[Tensor, "B T"], advantage: Float[Tensor, "B T"], /) -> Float[Tensor, "B T"]: ...


class CorrectCell(Protocol):
    """Column correct: a weight from the engine that sampled to the old policy, fixed during the update; [B, T]."""

    def __call__(
        self, old_logp: Float[Tensor, "B T"], sampler_logp: Float[Tensor, "B T"], mask: Shaped[Tensor, "B T"], /, *,
        totals: Totals,
    ) -> Float[Tensor, "B T"]: ...  # fmt: skip


class TrustCell(Protocol):
    """Column trust: which tokens may be trained on? A weight [B, T] on the gated objective, mostly 0 or 1.

    It reads the current policy, detached: no gradient flows through the weight. It multiplies only the policy term, not
    the KL or the entropy bonus, and never changes a denominator: a token of weight 0 is still counted. ``totals`` are
    those of the whole optimiser step; the mask may be a part of it.
    """

    def __call__(
        self, mask: Shaped[Tensor, "B T"], /, *, logp: Float[Tensor, "B T"], old_logp: Float[Tensor, "B T"],
        sampler_logp: Float[Tensor, "B T"], advantages: Float[Tensor, "B T"], entropy: Float[Tensor, "B T"],
        totals: Totals,
    ) -> Float[Tensor, "B T"]: ...  # fmt: skip


class AggregateCell(Protocol):
    """Columns aggregate and entropy_aggregate, and `KL(aggregate=...)`: who counts how much?

    Args:
        x: [B, T] objective, or a penalty, of each token.
        mask: [B, T], 1 on trained tokens.
        totals: denominators of the whole optimiser step, so that the losses of its micro-batches add up; default: those
            of this mask.
        prompt_tokens: [B] trained tokens of each row's prompt in the whole step.
        budget: tokens a completion was allowed.

    Returns:
        Scalar.

    Raises:
        ValueError: tensors of another shape or dtype, or not finite on a trained token; no trained token and no totals.
    """

    def __call__(
        self, x: Float[Tensor, "B T"], mask: Shaped[Tensor, "B T"], /, *, totals: Totals,
        prompt_tokens: Int[Tensor, " B"], budget: int,
    ) -> Float[Tensor, ""]: ...  # fmt: skip


class ShapeCell(Protocol):
    """Column shape: outcome rewards [B] in, [B] out, before anything else sees them."""

    def __call__(
        self, rewards: Float[Tensor, " B"], lengths: Real[Tensor, " B"], /, *, group_size: int, budget: int,
        truncated: Bool[Tensor, " B"],
    ) -> Float[Tensor, " B"]: ...  # fmt: skip


class KeepCell(Protocol):
    """Column keep: which sequences are trained on? Raw rewards [B] in, bool [B] out; only the loop calls it.

    ``truncated`` is True where the budget ended the completion.
    """

    def __call__(
        self, rewards: Float[Tensor, " B"], /, *, truncated: Bool[Tensor, " B"], lengths: Real[Tensor, " B"],
        group_size: int, budget: int,
    ) -> Bool[Tensor, " B"]: ...  # fmt: skip


COLUMNS: dict[str, type] = {
    "advantage": AdvantageCell,
    "targets": AdvantageCell,
    "normalize": NormalizeCell,
    "ratio": RatioCell,
    "gate": GateCell,
    "correct": CorrectCell,
    "trust": TrustCell,
    "aggregate": AggregateCell,
    "entropy_aggregate": AggregateCell,
    "shape": ShapeCell,
    "keep": KeepCell,
}


def _named(contract: type, kind: Any) -> tuple[str, ...]:
    parameters = list(inspect.signature(contract.__call__).parameters.values())[1:]  # without self
    return tuple(p.name for p in parameters if p.kind is kind)


FIXED = {column: _named(contract, inspect.Parameter.POSITIONAL_ONLY) for column, contract in COLUMNS.items()}
CONTEXT = {column: _named(contract, inspect.Parameter.KEYWORD_ONLY) for column, contract in COLUMNS.items()}
_ANY_CONTEXT = {name for names in CONTEXT.values() for name in names}
# Every batch has these, or they are counted from its mask, so no row needs them.
_ALWAYS_THERE = {"totals", "prompt_tokens", "lengths", "logp", "old_logp", "advantages"}


@dataclass(frozen=True)
class Cell:
    """A function and what it declares. It is called with the whole context and passes on the declared part.

    Args:
        function: the cell.
        reads: context that it declares.
        needs: what the row needs for it: fields of the batch, and "group" for ``group_size``.
    """

    function: Callable[..., Any]
    reads: tuple[str, ...] = ()
    needs: frozenset[str] = frozenset()

    def __call__(self, *fixed: Any, **context: Any) -> Any:
        """The function's result; context that is None counts as missing."""
        given = {name: context[name] for name in self.reads if context.get(name) is not None}
        return self.function(*fixed, **given)


def read_cell(column: str, function: Callable[..., Any]) -> Cell:
    """Reads what a function declares and makes it a cell of a column.

    Args:
        column: a key of `COLUMNS`.
        function: the cell, or a partial of one.

    Returns:
        The cell with its context.

    Raises:
        ValueError: the function cannot be called as this column calls its cells; the message lists what the column
            gives.

    Example:
        >>> from rlhf_minimal.functional import advantages
        >>> read_cell("advantage", advantages.gae).needs
        frozenset({'values'})
        >>> def mine(token_rewards, mask, *, entropy): ...
        >>> read_cell("advantage", mine)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ValueError: advantage is mine, which declares entropy: this column's context is group_size, values, ...
    """
    cell: Callable[..., Any] = function
    bound: set[str] = set()
    while isinstance(cell, partial):  # Python makes one of two, unless the inner one has attributes
        bound |= cell.keywords.keys()
        cell = cell.func
    shown, context = getattr(cell, "__name__", repr(function)), CONTEXT[column]
    there = f"this column's context is {', '.join(context)}" if context else "this column has no context"
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        raise ValueError(f"{column} is {shown}, whose arguments cannot be read: wrap it in a function") from error
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        raise ValueError(f"{column} is {shown}, which takes any keyword: name what it reads after a *; {there}")
    fixed = FIXED[column]
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = sum(p.default is p.empty for p in positional)
    most = len(fixed) if any(p.kind is p.VAR_POSITIONAL for p in parameters) else len(positional)
    if not required <= len(fixed) <= most:
        raise ValueError(
            f"{column} is {shown}({', '.join(p.name for p in positional)}), but this column calls "
            f"{column}({', '.join(fixed)}), and what else is read comes after a *; {there}"
        )
    declared = [p for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in bound]
    foreign = [p.name for p in declared if p.name in _ANY_CONTEXT and p.name not in context]
    if foreign:
        raise ValueError(f"{column} is {shown}, which declares {', '.join(foreign)}: {there}")
    unset = [p.name for p in declared if p.default is p.empty and p.name not in context]
    if unset:
        raise ValueError(
            f"{column} is {shown}, which wants {', '.join(unset)}: set an option with "
            f"partial({shown}, {unset[0]}=...); {there}"
        )
    reads = [p for p in declared if p.name in context]
    needs = {p.name for p in reads if p.default is p.empty} - _ALWAYS_THERE
    needs = {"group" if name == "group_size" else name for name in needs}
    return Cell(function, tuple(p.name for p in reads), frozenset(needs))
