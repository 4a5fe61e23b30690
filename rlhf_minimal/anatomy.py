"""The tables as text, the cells in which two rows differ, and the weight that a row gives to a token."""

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from .algorithms import ALGORITHMS, ROWS, get_algorithm
from .functional.checks import check_mask
from .objective import KL, Algorithm, Batch, Totals, policy_loss
from .pairs import PAIRWISE, PairwiseAlgorithm

Row = Algorithm | PairwiseAlgorithm
# The order in which a reader needs the columns: whitening follows the advantage, shape and keep come late.
_ORDER = {
    Algorithm: (
        "advantage normalize targets ratio gate trust aggregate kl shape keep correct entropy entropy_aggregate".split()
    ),
    PairwiseAlgorithm: "score reference rejected loss center".split(),
}


def table(algorithms: Mapping[str, Algorithm] | Mapping[str, PairwiseAlgorithm] | None = None) -> str:
    """A table as Markdown: one line for each row. Columns that no row uses are left out.

    Args:
        algorithms: name -> row. Default: the rows of `algorithms.py`; `contrib.ALGORITHMS` for the others,
            `ALGORITHMS` for all, `PAIRWISE` for the second table.

    Returns:
        Markdown.

    Raises:
        ValueError: a value that is not an `Algorithm` or `PairwiseAlgorithm`, or rows of both tables.

    Example:
        >>> print(table({"reinforce": ALGORITHMS["reinforce"]}))
        | algorithm | advantage | ratio | gate | aggregate |
        | --- | --- | --- | --- | --- |
        | `reinforce` | `returns_to_go` | `on_policy` | `none` | `sequence_sum` |
    """
    if algorithms is None:
        algorithms = {name: row for name, row in ALGORITHMS.items() if name in ROWS}
    if not isinstance(algorithms, Mapping):
        raise ValueError(f"algorithms is a {type(algorithms).__name__}, expected {{name: Algorithm}}")
    kind = PairwiseAlgorithm if any(isinstance(row, PairwiseAlgorithm) for row in algorithms.values()) else Algorithm
    for name, row in algorithms.items():
        if not isinstance(row, kind):
            raise ValueError(f"{name!r} is {row!r}, expected {'an' if kind is Algorithm else 'a'} {kind.__name__}")
    default = {field.name: field.default for field in dataclasses.fields(kind)}
    used = [c for c in _ORDER[kind] if any(getattr(row, c) != default[c] for row in algorithms.values())]
    lines = ["| algorithm | " + " | ".join(used) + " |", "| --- " * (len(used) + 1) + "|"]
    for name, row in algorithms.items():
        cells = (getattr(row, column) for column in used)
        marked = [f"`{_show(cell)}`" if _show(cell) != "-" else "-" for cell in cells]
        lines.append(f"| `{name}` | " + " | ".join(marked) + " |")
    return "\n".join(lines)


def diff(first: str | Row, second: str | Row) -> str:
    """The cells in which two algorithms of one table differ.

    Args:
        first: a name of either table, an `Algorithm` or a `PairwiseAlgorithm`.
        second: the same.

    Returns:
        "column: first -> second; ..." over the changed cells, "" if there are none.

    Raises:
        ValueError: an unknown name, rows of different tables.

    Example:
        >>> diff("gspo", "gspo_token")
        'ratio: sequence -> sequence_token'
        >>> diff("dpo", "spin")
        'reference: frozen -> previous; rejected: data -> own'
    """
    a, b = (_row(one) for one in (first, second))
    if type(a) is not type(b):
        raise ValueError(f"{first!r} and {second!r} are in different tables: they have no column in common")
    changes = []
    for column in (field.name for field in dataclasses.fields(a)):
        cells = getattr(a, column), getattr(b, column)
        before, after = (_show(cell, exact=True) for cell in cells)
        if before == after:
            continue
        short = [_show(cell) for cell in cells]
        changes.append(f"{column}: " + " -> ".join(short if short[0] != short[1] else (before, after)))
    return "; ".join(changes)


def gradient_weight(
    algorithm: str | Algorithm, ratio: float | Float[Tensor, "*#n"], advantage: float | Float[Tensor, "*#n"]
) -> Float[Tensor, "..."]:
    r"""The weight on grad log pi of a one-token completion, by autograd (:eq:`eq-gradient-weight`).

    .. math:: -\frac{\partial L}{\partial \log\pi} \quad\text{at}\quad \pi/\pi_{old} = w

    Positive makes the token likelier. On-policy (w = 1) it is A for every row of the table. Parts that need more than
    w and A are left out: a KL against the reference, the correction, trust.

    Chapter: anatomy.

    Args:
        algorithm: a name of the table or an `Algorithm`.
        ratio: w, positive; broadcasts with the advantage.
        advantage: A.

    Returns:
        float64 tensor of the broadcast shape.

    Raises:
        ValueError: an unknown name, a ratio not above 0.

    Example:
        >>> gradient_weight("grpo", torch.tensor([0.5, 1.0, 1.5]), 1.0)
        tensor([0.5000, 1.0000, 0.0000], dtype=torch.float64)
    """
    row = get_algorithm(algorithm)
    try:
        w, a = torch.broadcast_tensors(
            torch.as_tensor(ratio, dtype=torch.float64), torch.as_tensor(advantage, dtype=torch.float64)
        )
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"ratio and advantage must be numbers or tensors that broadcast: {error}") from error
    if not (w > 0).all():
        raise ValueError("a ratio of probabilities is above 0")
    old = tuple(kl for kl in row.kl if kl.against == "old")
    row = dataclasses.replace(row, kl=old, correct=None, trust=None, entropy=0.0, entropy_aggregate=None)
    log_ratio = w.log().reshape(-1, 1)
    one = torch.ones_like(log_ratio)
    lowest = -log_ratio.max().clamp(min=0).expand_as(log_ratio)  # low enough for every ratio: no log-prob is above 0
    logp = (lowest + log_ratio).requires_grad_()
    batch = Batch(
        logp,
        lowest,
        one,
        torch.zeros(len(one), dtype=torch.float64),
        group_size=1,
        advantages=a.reshape(-1, 1),
        budget=1,
        totals=Totals(sequences=1, tokens=1, budget=1, prompts=1),  # every row is a batch of its own
    )
    (gradient,) = torch.autograd.grad(policy_loss(row, batch), logp)
    return 0.0 - gradient.reshape(w.shape)  # and not -0.0


def token_weights(
    algorithm: str | Algorithm, mask: Shaped[Tensor, "B T"], *, budget: int | None = None, group_size: int = 1
) -> Float[Tensor, "B T"]:
    r"""How much each token counts: the weight on its grad log pi, on-policy and for A = 1 (:eq:`eq-token-weights`).

    Chapter: anatomy.

    Args:
        algorithm: a name of the table or an `Algorithm`.
        mask: [B, T], 1 on trained tokens.
        budget: the generation budget, for rows that divide by it.
        group_size: completions per prompt, for rows whose mean depends on the prompt.

    Returns:
        [B, T] float64, 0 under a zero mask.

    Raises:
        ValueError: an unknown name, an all-masked batch, a missing budget.

    Example:
        >>> token_weights("grpo", torch.tensor([[1, 1], [1, 0]]))
        tensor([[0.2500, 0.2500],
                [0.5000, 0.0000]], dtype=torch.float64)
    """
    check_mask(mask)
    row = get_algorithm(algorithm)
    row = dataclasses.replace(row, kl=(), entropy=0.0, entropy_aggregate=None, correct=None, trust=None, shape=None)
    logp = torch.zeros(mask.shape, dtype=torch.float64, device=mask.device, requires_grad=True)
    ones = torch.ones(len(mask), dtype=torch.float64, device=mask.device)
    batch = Batch(logp, logp, mask, ones, group_size=group_size, advantages=ones, budget=budget)
    (gradient,) = torch.autograd.grad(policy_loss(row, batch), logp)
    return 0.0 - gradient


def _row(name: str | Row) -> Row:
    """A row of either table by its name; a row passes through."""
    if isinstance(name, PairwiseAlgorithm):
        return name
    return PAIRWISE[name] if isinstance(name, str) and name in PAIRWISE else get_algorithm(name)


def _show(cell: Any, exact: bool = False) -> str:
    """A cell as the table prints it; ``exact``: with every digit, and with the module of a function."""
    if cell is None or cell == () or cell == 0.0:
        return "-"
    if isinstance(cell, str):
        return cell
    number = repr if exact else "{:.4g}".format
    if isinstance(cell, tuple):
        return " + ".join(_show(part, exact) for part in cell)
    if isinstance(cell, KL):
        words = [str(cell.estimator), "weighted" if cell.weighted else "", f"in {cell.place}"]
        words += [f"against {cell.against}" if cell.against != "reference" else ""]
        words += [f"per {cell.level}" if cell.level != "token" else "", number(cell.coef)]
        words += [f"by {_show(cell.aggregate, exact)}" if cell.aggregate else ""]
        return " ".join(word for word in words if word)
    if isinstance(cell, partial):
        options = sorted(cell.keywords.items()) if exact else cell.keywords.items()
        keywords = ", ".join(f"{key}={number(x) if isinstance(x, float) else repr(x)}" for key, x in options)
        return f"{_show(cell.func, exact)}({keywords})"
    if callable(cell):
        name = getattr(cell, "__qualname__" if exact else "__name__", repr(cell))
        return f"{cell.__module__}.{name}" if exact else name
    return number(cell)
