r"""More cells of the aggregate column; denominators as in `functional.aggregation`."""

from jaxtyping import Float, Int, Shaped
from torch import Tensor

from ..functional.aggregation import Totals, _totals
from ..functional.checks import check_integers
from ..functional.masked import lengths, zero_outside


def token_sum(
    x: Float[Tensor, "B T"], mask: Shaped[Tensor, "B T"], *, totals: Totals | None = None
) -> Float[Tensor, ""]:
    r"""A plain sum (:eq:`eq-token-sum`): the step grows with the batch, so the learning rate has to know its size.

    .. math:: \sum_i \sum_t x_{i,t}

    Chapter: anatomy-in-depth. Source: verl's `token-sum`.

    Args:
        totals: not read; a column gives it to every aggregate.

    Example:
        >>> import torch
        >>> token_sum(torch.tensor([[1.0, 1.0], [4.0, 0.0]]), torch.tensor([[1, 1], [1, 0]]))
        tensor(6.)
    """
    _totals(x, mask, totals)
    return zero_outside(x, mask).sum()


def prompt_mean(
    x: Float[Tensor, "B T"],
    mask: Shaped[Tensor, "B T"],
    *,
    prompt_tokens: Int[Tensor, " B"],
    totals: Totals | None = None,
) -> Float[Tensor, ""]:
    r"""Every prompt weighs the same, and within it every token (:eq:`eq-prompt-mean`), as in ScaleRL.

    .. math:: \frac1P \sum_p \frac1{\sum_{i \in g(p)} |o_i|} \sum_{i \in g(p)} \sum_t x_{i,t}

    Between `token_mean`, in which a prompt with long completions weighs more, and `sequence_mean`, in which a token of
    a long completion weighs less. It is DAPO's loss as the paper writes it.

    Chapter: dapo. Source: DAPO, arXiv 2503.14476, eq. 8; ScaleRL, arXiv 2510.13786.

    Args:
        prompt_tokens: [B] trained tokens of each row's prompt in the whole optimiser batch, including rows
            that are not in this part.
        totals: denominators of the whole optimiser batch, the number of prompts among them.

    Raises:
        ValueError: no number of prompts.

    Example:
        >>> import torch
        >>> x, mask = torch.tensor([[1.0, 1.0], [4.0, 0.0], [6.0, 0.0]]), torch.tensor([[1, 1], [1, 0], [1, 0]])
        >>> totals = Totals(sequences=3, tokens=4, prompts=2)
        >>> prompt_mean(x, mask, prompt_tokens=torch.tensor([3, 3, 1]), totals=totals)
        tensor(4.)
    """
    given, totals = totals, _totals(x, mask, totals)
    check_integers("prompt_tokens", prompt_tokens)
    if prompt_tokens.shape != mask.shape[:1]:
        raise ValueError(f"prompt_tokens has shape {tuple(prompt_tokens.shape)}, expected ({len(mask)},): one a row")
    if not (prompt_tokens >= lengths(mask)).all():
        raise ValueError(
            f"prompt_tokens is {prompt_tokens.tolist()}, expected one number for each of {len(mask)} rows, the trained "
            "tokens of its prompt, at least as many as its own"
        )
    if given is None or totals.prompts is None:
        raise ValueError(
            "prompt_mean divides by the number of prompts: pass totals=Totals(sequences, tokens, prompts=P), as "
            "Batch does itself"
        )
    return (zero_outside(x, mask).sum(-1) / prompt_tokens.clamp(min=1)).sum() / totals.prompts


def _check_whole(totals: Totals, mask: Tensor, what: str) -> None:
    """Refuses a mask that is a part of the step, for `what`, which takes a statistic over all of it."""
    here = (len(mask), int(lengths(mask).sum()))
    if here != (totals.sequences, totals.tokens):
        raise ValueError(
            f"{what} over the whole optimiser step, {totals.sequences} sequences with {totals.tokens} tokens, and got "
            f"{here[0]} with {here[1]}: train with micro_batches=1 in one process"
        )
