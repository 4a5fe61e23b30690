"""The critic's loss, clipped."""

import torch
from torch import Generator, Tensor

from ..draws import integer, to_the_front, with_holes
from ..exercise import Case, Exercise, Mistake


def my_value_loss(
    values: Tensor, old_values: Tensor, returns: Tensor, mask: Tensor, clip: float
) -> Tensor:
    """[B, T] values, old values, targets, mask -> one number, to minimise."""
    near = old_values + (values - old_values).clamp(-clip, clip)
    error = torch.maximum((values - returns) ** 2, (near - returns) ** 2)
    return 0.5 * (error * mask).sum() / mask.sum()


def _errors(
    values: Tensor, old_values: Tensor, returns: Tensor, clip: float
) -> tuple[Tensor, Tensor]:
    near = old_values + (values - old_values).clamp(-clip, clip)
    return (values - returns) ** 2, (near - returns) ** 2


def _unclipped(
    values: Tensor, old_values: Tensor, returns: Tensor, mask: Tensor, clip: float
) -> Tensor:
    free, _ = _errors(values, old_values, returns, clip)
    return 0.5 * (free * mask).sum() / mask.sum()


def _clipped_alone(
    values: Tensor, old_values: Tensor, returns: Tensor, mask: Tensor, clip: float
) -> Tensor:
    _, near = _errors(values, old_values, returns, clip)
    return 0.5 * (near * mask).sum() / mask.sum()


def _minimum(
    values: Tensor, old_values: Tensor, returns: Tensor, mask: Tensor, clip: float
) -> Tensor:
    free, near = _errors(values, old_values, returns, clip)
    return 0.5 * (torch.minimum(free, near) * mask).sum() / mask.sum()


def _no_half(
    values: Tensor, old_values: Tensor, returns: Tensor, mask: Tensor, clip: float
) -> Tensor:
    return 2 * my_value_loss(values, old_values, returns, mask, clip)


def _padded(
    values: Tensor, old_values: Tensor, returns: Tensor, mask: Tensor, clip: float
) -> Tensor:
    free, near = _errors(values, old_values, returns, clip)
    return 0.5 * torch.maximum(free, near).mean()


def _padded_width(
    values: Tensor, old_values: Tensor, returns: Tensor, mask: Tensor, clip: float
) -> Tensor:
    free, near = _errors(values, old_values, returns, clip)
    return 0.5 * (torch.maximum(free, near) * mask).mean()


def _mean_of_means(
    values: Tensor, old_values: Tensor, returns: Tensor, mask: Tensor, clip: float
) -> Tensor:
    free, near = _errors(values, old_values, returns, clip)
    return 0.5 * ((torch.maximum(free, near) * mask).sum(1) / mask.sum(1)).mean()


def _around_the_returns(
    values: Tensor, old_values: Tensor, returns: Tensor, mask: Tensor, clip: float
) -> Tensor:
    near = returns + (values - returns).clamp(-clip, clip)
    error = torch.maximum((values - returns) ** 2, (near - returns) ** 2)
    return 0.5 * (torch.minimum(error, (near - returns) ** 2) * mask).sum() / mask.sum()


def _of_means(
    values: Tensor, old_values: Tensor, returns: Tensor, mask: Tensor, clip: float
) -> Tensor:
    free, near = _errors(values, old_values, returns, clip)
    return 0.5 * torch.maximum((free * mask).sum(), (near * mask).sum()) / mask.sum()


def _like_a_ratio(
    values: Tensor, old_values: Tensor, returns: Tensor, mask: Tensor, clip: float
) -> Tensor:
    near = old_values * (values / old_values).clamp(1 - clip, 1 + clip)
    error = torch.maximum((values - returns) ** 2, (near - returns) ** 2)
    return 0.5 * (error * mask).sum() / mask.sum()


def _front(
    values: Tensor, old_values: Tensor, returns: Tensor, mask: Tensor, clip: float
) -> Tensor:
    return my_value_loss(values, old_values, returns, to_the_front(mask), clip)


def _case(rows: list[int], seed: int, clip: float) -> Case:
    generator = torch.Generator().manual_seed(seed)
    return _drawn(rows, max(rows), generator, clip)


def _holed(case: Case, generator: Generator) -> Case:
    given = case.arguments
    return Case({**given, "mask": with_holes(given["mask"], generator)})


def _drawn(lengths: list[int], width: int, generator: Generator, clip: float) -> Case:
    shape = (len(lengths), width)
    old = torch.randn(shape, generator=generator, dtype=torch.float64)
    return Case(
        {
            "values": old
            + 0.5 * torch.randn(shape, generator=generator, dtype=torch.float64),
            "old_values": old,
            "returns": old
            + torch.randn(shape, generator=generator, dtype=torch.float64),
            "mask": (torch.arange(width) < torch.tensor(lengths)[:, None]).double(),
            "clip": clip,
        }
    )


def _draw(generator: Generator) -> Case:
    rows, width = integer(generator, 1, 5), integer(generator, 1, 6)
    lengths = torch.randint(1, width + 1, (rows,), generator=generator).tolist()
    drawn = _drawn(lengths, width, generator, 0.1 + 0.1 * integer(generator, 0, 6))
    return _holed(drawn, generator) if integer(generator, 0, 2) else drawn


def _one(value: float, old: float, target: float, clip: float = 0.2) -> Case:
    numbers = {"values": value, "old_values": old, "returns": target, "mask": 1.0}
    return Case(
        {
            name: torch.full((1, 1), x, dtype=torch.float64)
            for name, x in numbers.items()
        }
        | {"clip": clip}
    )


VALUE_LOSS = Exercise(
    id="gae-value-loss",
    title="the clipped value loss",
    concept="gae-critic-noise",
    minutes=10,
    difficulty="core",
    statement=r"""
    A critic should not move far on one rollout. So a second version of each new value is made, held within `clip` of the
    old one. For each token the squared errors of both against the target are compared, and the *larger* one counts. The
    loss is half the mean over all trained tokens of the batch. Write `my_value_loss`: from `values`, `old_values`,
    `returns` (the targets), `mask` (1 on trained tokens, and perhaps 0 between them) `[B, T]` and the number `clip` return one number, to minimise. Before you try it: for
    which values is the gradient 0? The checker compares the value and the gradient with respect to `values`.
    """,
    solution=my_value_loss,
    cases=(
        _one(0.5, 0.0, 1.0),
        _one(-0.5, 0.0, 1.0),
        _one(0.1, 0.0, 1.0),
        _one(1.5, 0.0, 1.0),
        _case([3, 1, 4], 1, 0.2),
        _case([2, 5], 2, 0.4),
        _holed(_case([5, 4, 6], 3, 0.2), torch.Generator().manual_seed(6)),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _unclipped,
            "Nothing is clipped: a value that has moved far keeps its full gradient.",
        ),
        Mistake(
            _clipped_alone,
            "Only the clipped error counts. A value that has moved away from its target has no gradient to come back.",
        ),
        Mistake(
            _minimum,
            "min where there should be max. Follow a value that has gone the wrong way: which of the two errors still "
            "has a gradient?",
        ),
        Mistake(_no_half, "The factor 1/2 is missing."),
        Mistake(_padded, "The padding is averaged in, with whatever stands there."),
        Mistake(
            _front,
            "You read as many tokens from the front of a row as it has trained ones. The mask may have zeros in between, "
            "where a tool's output stands: multiply by it.",
        ),
        Mistake(
            _padded_width,
            "You divide by the number of places in the padded batch and not by the trained tokens.",
        ),
        Mistake(
            _mean_of_means,
            "You average within each completion first. Here every token of the batch counts the same.",
        ),
        Mistake(
            _around_the_returns,
            "You hold the value near its target. It is to be held near its old opinion.",
        ),
        Mistake(
            _of_means,
            "You take the larger of two means. The comparison is made for each token.",
        ),
        Mistake(
            _like_a_ratio,
            "You clip the quotient of values, as for a policy's ratio. Here the difference is held.",
        ),
    ),
    where="Take one token with old value 0 and target 1, and let V go from -1 to 2: where should the gradient vanish?",
    idea="""
    For one token there are two candidates: the new value, and the old value plus a change held within ±clip. Each
    has a squared error against the target. Take the larger *error*, not the larger value, then half the mean over
    all trained tokens.
    """,
    outline="""
    ```python
    near = old_values + ...  # the change is held, not the value
    error = torch.maximum(..., ...)
    return 0.5 * ... / ...  # one sum and one count over the whole batch
    ```
    """,
    right="Right, value and gradient. Rewards of 10 and a clip of .2: how many rollouts until the critic gets there?",
    gradient_of="values",
)
