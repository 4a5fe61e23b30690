"""The share of a token under a mean over the tokens of each prompt."""

import torch
from torch import Generator, Tensor

from ..draws import integer
from ..exercise import Case, Exercise, Mistake


def my_share(mask: Tensor, group_size: int) -> Tensor:
    """[B, T] mask, 1 on trained tokens -> [B, T] shares, 0 on the others."""
    groups = mask.view(-1, group_size, mask.shape[1])  # [P, G, T]
    tokens = groups.sum((1, 2), keepdim=True)  # [P, 1, 1]
    return (groups / tokens / len(groups)).view_as(mask)


def _batch(mask: Tensor, group_size: int) -> Tensor:
    return mask / mask.sum()


def _completions(mask: Tensor, group_size: int) -> Tensor:
    return mask / mask.sum(1, keepdim=True) / len(mask)


def _no_prompts(mask: Tensor, group_size: int) -> Tensor:
    return my_share(mask, group_size) * (len(mask) // group_size)


def _by_completions(mask: Tensor, group_size: int) -> Tensor:
    return _no_prompts(mask, group_size) / len(mask)


def _padded(mask: Tensor, group_size: int) -> Tensor:
    return mask / (group_size * mask.shape[1]) / (len(mask) // group_size)


def _on_padding(mask: Tensor, group_size: int) -> Tensor:
    return my_share(mask, group_size).amax(1, keepdim=True).expand_as(mask)


def _interleaved(mask: Tensor, group_size: int) -> Tensor:
    groups = mask.view(group_size, -1, mask.shape[1])
    return (groups / groups.sum((0, 2), keepdim=True) / groups.shape[1]).reshape(
        mask.shape
    )


def _draw(generator: Generator) -> Case:
    G, P, T = (integer(generator, 2, 5) for _ in range(3))
    lengths = torch.randint(1, T + 1, (P * G, 1), generator=generator)
    return Case({"mask": (torch.arange(T) < lengths).double(), "group_size": G})


def _mask(*lengths: int) -> Tensor:
    return (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).double()


PROMPT_MEAN = Exercise(
    id="anatomy-prompt-mean",
    title="DAPO's average, as its paper prints it",
    concept="token-level-loss",
    minutes=10,
    difficulty="core",
    statement=r"""
    DAPO's paper prints its average over the tokens of *one prompt's* group; then the expectation over prompts is taken. Libraries take one mean over all tokens of the batch.
    Write the share of a token under the printed form: first the mean over all tokens of the completions of a prompt, then the mean over
    prompts. `my_share(mask, group_size)`: `mask` is `[B, T]`, with 1 on the tokens that are trained, and the `group_size` rows
    of a prompt lie together. The result is `[B, T]`, with 0 where the mask is 0. Predict before you run it: which of the three, this one, `token_mean`
    or `sequence_mean`, lets a token's weight depend on completions of *other* prompts?
    """,
    solution=my_share,
    cases=(
        Case({"mask": _mask(2, 4, 3, 1, 2, 4, 3, 2), "group_size": 4}),
        Case({"mask": _mask(1, 1, 3, 5), "group_size": 2}),
        Case({"mask": _mask(1, 2, 3, 4, 5, 6), "group_size": 3}),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _batch,
            "This is the mean over all tokens of the batch: a prompt with long completions counts more than one with short ones.",
        ),
        Mistake(
            _completions,
            "You average within each completion first. Here the tokens of all completions of a prompt count alike.",
        ),
        Mistake(
            _no_prompts,
            "The shares of each prompt add up to 1. What is left to do with several prompts?",
        ),
        Mistake(
            _by_completions,
            "You divide by the number of completions. The last mean is over prompts.",
        ),
        Mistake(
            _padded,
            "The padding counts as tokens. Only what the mask marks is a token.",
        ),
        Mistake(
            _on_padding,
            "Padding has a share in your answer. It must be 0 where the mask is 0.",
        ),
        Mistake(
            _interleaved,
            "Your groups mix the prompts: the rows of one prompt lie together.",
        ),
    ),
    where="Take two prompts with two completions each, of 1, 1 and of 3, 5 tokens: what do all shares of each prompt add up to?",
    idea="""
    A prompt's tokens are counted over its whole group, `[P]`. Each of its trained tokens weighs one over that
    count, and then one over the number of prompts. All shares sum to 1.
    """,
    outline="""
    ```python
    groups = mask.view(..., ..., ...)  # [P, G, T]
    tokens = ...  # [P, 1, 1]
    return (groups / ... / ...).view_as(mask)
    ```
    """,
    right=(
        "Right. Every prompt counts alike, and a token's weight depends on its siblings alone. It is the aggregate of "
        "the row `scalerl`."
    ),
)
