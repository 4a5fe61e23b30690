"""GRPO pays steps: completions that begin alike share the step, and how often it was taken counts."""

import torch
from torch import Generator, Tensor

from ..draws import integer, uniform
from ..exercise import Case, Exercise, Mistake


def _sharers(tokens: Tensor) -> Tensor:
    """[G, T] -> [G, G, T]: whether two completions are equal up to and with token t."""
    return (tokens[:, None] == tokens[None]).long().cumprod(-1).bool()


def my_shared_steps(
    tokens: Tensor, mask: Tensor, advantages: Tensor
) -> tuple[Tensor, Tensor]:
    """[G, T], [G, T], [G] -> [G, T] value of each step, [G, T] how many share it."""
    alike = (tokens[:, None] == tokens[None]).long().cumprod(-1)  # [G, G, T], up to t
    same = alike * mask[:, None] * mask[None]
    count = same.sum(1).clamp(min=1)  # [G, T]
    value = (same * advantages[None, :, None]).sum(1) / count  # [G, T]
    return value * mask, same.sum(1)


def _token_alone(
    tokens: Tensor, mask: Tensor, advantages: Tensor
) -> tuple[Tensor, Tensor]:
    same = (tokens[:, None] == tokens[None]) * mask[:, None] * mask[None]
    value = (same * advantages[None, :, None]).sum(1) / same.sum(1).clamp(min=1)
    return value * mask, same.sum(1)


def _before(tokens: Tensor, mask: Tensor, advantages: Tensor) -> tuple[Tensor, Tensor]:
    same = torch.ones(len(tokens), *tokens.shape)
    same[..., 1:] = _sharers(tokens)[..., :-1]
    same = same * mask[:, None] * mask[None]
    value = (same * advantages[None, :, None]).sum(1) / same.sum(1).clamp(min=1)
    return value * mask, same.sum(1)


def _summed(tokens: Tensor, mask: Tensor, advantages: Tensor) -> tuple[Tensor, Tensor]:
    value, count = my_shared_steps(tokens, mask, advantages)
    return value * count, count


def _own(tokens: Tensor, mask: Tensor, advantages: Tensor) -> tuple[Tensor, Tensor]:
    return advantages[:, None] * mask, my_shared_steps(tokens, mask, advantages)[1]


def _over_group(
    tokens: Tensor, mask: Tensor, advantages: Tensor
) -> tuple[Tensor, Tensor]:
    value, count = my_shared_steps(tokens, mask, advantages)
    return value * count / len(tokens), count


def _padding(tokens: Tensor, mask: Tensor, advantages: Tensor) -> tuple[Tensor, Tensor]:
    same = _sharers(tokens).to(mask.dtype)
    return (same * advantages[None, :, None]).sum(1) / same.sum(1), same.sum(1)


def _without_itself(
    tokens: Tensor, mask: Tensor, advantages: Tensor
) -> tuple[Tensor, Tensor]:
    value, count = my_shared_steps(tokens, mask, advantages)
    others = (count - 1).clamp(min=1)
    return (value * count - advantages[:, None] * mask) / others, count


def _case(tokens: list[list[int]], lengths: list[int], advantages: list[float]) -> Case:
    ids = torch.tensor(tokens)
    mask = (torch.arange(ids.shape[1]) < torch.tensor(lengths)[:, None]).double()
    return Case(
        {
            "tokens": ids,
            "mask": mask,
            "advantages": torch.tensor(advantages, dtype=torch.float64),
        }
    )


def _draw(generator: Generator) -> Case:
    G, T = integer(generator, 3, 7), integer(generator, 2, 5)
    tokens = torch.randint(1, 3, (G, T), generator=generator)
    lengths = torch.randint(1, T + 1, (G,), generator=generator)
    tokens[torch.arange(G), lengths - 1] = 0  # the end
    tokens = tokens * (torch.arange(T) < lengths[:, None])
    A = uniform(generator, G)
    return _case(tokens.tolist(), lengths.tolist(), (A - A.mean()).tolist())


SHARED = Exercise(
    id="prm-shared-steps",
    title="the process rewards in GRPO",
    concept="q-l2-prm-orm",
    minutes=15,
    difficulty="core",
    statement=r"""
    A group of G completions, `tokens` and `mask` `[G, T]` (padding is 0, as the end token is), and their `advantages` `[G]`. Completions that are equal up to
    and with token $t$ have taken the same step there. Write `my_shared_steps(tokens, mask, advantages)`: for each trained token the
    mean advantage of all completions that share its step, 0 on padding; and how many share it, 0 on padding. Both are `[G, T]`.
    """,
    solution=my_shared_steps,
    cases=(
        _case(
            [[1, 1, 0], [1, 2, 0], [1, 1, 0], [2, 1, 0]],
            [3, 3, 3, 3],
            [0.75, -0.25, -0.25, -0.25],
        ),
        _case(
            [[1, 0, 0], [1, 1, 0], [2, 1, 0], [2, 0, 0], [0, 0, 0]],
            [2, 3, 3, 2, 1],
            [0.6, -0.4, 0.6, -0.4, -0.4],
        ),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _token_alone,
            "Two completions with the same token after different beginnings have not taken the same step.",
        ),
        Mistake(
            _before,
            "You compare what stands before the token. A step is shared only if the token is the same, too.",
        ),
        Mistake(_summed, "You return the sum of those that share, not their mean."),
        Mistake(
            _own, "Each token has its own completion's advantage: nothing is shared."
        ),
        Mistake(
            _over_group,
            "You divide by all of the group. The mean is over those that share the step.",
        ),
        Mistake(
            _padding,
            "Padding takes no step. Its value and its count are 0, and it counts for nobody.",
        ),
        Mistake(
            _without_itself,
            "You leave the completion itself out. It has taken the step, too.",
        ),
    ),
    where="Which completions have the same tokens from the first to this one?",
    idea="""
    Compare every completion with every other one, token by token: `[G, G, T]`. They share step $t$ if all tokens up
    to it agree, which is a running product, and if both still write there. Then count and average over one axis.
    """,
    outline="""
    ```python
    alike = (...).long().cumprod(-1)  # [G, G, T]
    same = alike * ... * ...  # both have a token there
    count = ...  # [G, T], at least 1
    value = (same * ...).sum(1) / count
    ```
    """,
    right=(
        "Right. At ratio 1 GRPO's gradient is the same with these values in the place of the completion's advantage: its sum over the completions "
        "is a sum over steps, each with its mean outcome times how often it was taken. λ-GRPO divides by that count."
    ),
)
