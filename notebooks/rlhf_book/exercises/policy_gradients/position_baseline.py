"""Returns-to-go, minus what completions that are still running get at the same position."""

import torch
from torch import Generator, Tensor

from ..draws import integer
from ..exercise import Case, Exercise, Mistake


def my_position_baseline(token_rewards: Tensor, mask: Tensor) -> Tensor:
    """[B, T] rewards at tokens, [B, T] mask -> [B, T], 0 under a zero mask."""
    paid = token_rewards * mask
    to_go = paid.flip(1).cumsum(1).flip(1)  # [B, T]
    running = mask.sum(0).clamp(min=1)  # [T]
    baseline = (to_go * mask).sum(0) / running  # [T]
    return (to_go - baseline) * mask


def _to_go(rewards: Tensor) -> Tensor:
    return rewards.flip(1).cumsum(1).flip(1)


def _all_rows(token_rewards: Tensor, mask: Tensor) -> Tensor:
    to_go = _to_go(token_rewards * mask)
    return (to_go - to_go.mean(0)) * mask


def _rubbish_counts(token_rewards: Tensor, mask: Tensor) -> Tensor:
    to_go = _to_go(token_rewards)
    baseline = (to_go * mask).sum(0) / mask.sum(0).clamp(min=1)
    return (to_go - baseline) * mask


def _whole_return(token_rewards: Tensor, mask: Tensor) -> Tensor:
    total = (token_rewards * mask).sum(1, keepdim=True).expand_as(mask)
    baseline = (total * mask).sum(0) / mask.sum(0).clamp(min=1)
    return (total - baseline) * mask


def _one_number(token_rewards: Tensor, mask: Tensor) -> Tensor:
    to_go = _to_go(token_rewards * mask)
    return (to_go - (to_go * mask).sum() / mask.sum()) * mask


def _no_mask_at_the_end(token_rewards: Tensor, mask: Tensor) -> Tensor:
    to_go = _to_go(token_rewards * mask)
    return to_go - (to_go * mask).sum(0) / mask.sum(0).clamp(min=1)


def _strictly_later(token_rewards: Tensor, mask: Tensor) -> Tensor:
    paid = token_rewards * mask
    to_go = _to_go(paid) - paid
    return (to_go - (to_go * mask).sum(0) / mask.sum(0).clamp(min=1)) * mask


def _forwards(token_rewards: Tensor, mask: Tensor) -> Tensor:
    so_far = (token_rewards * mask).cumsum(1)
    return (so_far - (so_far * mask).sum(0) / mask.sum(0).clamp(min=1)) * mask


def _no_baseline(token_rewards: Tensor, mask: Tensor) -> Tensor:
    return _to_go(token_rewards * mask) * mask


def _case(lengths: list[int], rewards: Tensor) -> Case:
    T = rewards.shape[1]
    mask = (torch.arange(T) < torch.tensor(lengths)[:, None]).double()
    return Case({"token_rewards": rewards, "mask": mask})


def _draw(generator: Generator) -> Case:
    B, T = integer(generator, 2, 6), integer(generator, 2, 6)
    lengths = torch.randint(1, T + 1, (B,), generator=generator).tolist()
    return _case(lengths, torch.randn(B, T, generator=generator, dtype=torch.float64))


_FIRST = torch.tensor(
    [[0.5, 0.0, 1.0], [0.0, 1.0, 7.0], [1.0, 7.0, 7.0]], dtype=torch.float64
)

POSITION_BASELINE = Exercise(
    id="pg-position-baseline",
    title="a baseline for every position",
    concept="token-mdp",
    minutes=12,
    difficulty="core",
    statement=r"""
    The completions of one prompt, with a reward at every token: `token_rewards` and `mask` are `[B, T]`, and under a
    zero mask the rewards are rubbish. Write `my_position_baseline`: for each token the sum of this and all later
    rewards of its completion, minus the mean of that sum, at the same position, over the completions that still have
    a token there. Return `[B, T]`, with 0 under a zero mask. What does a completion get at positions where it is the
    only one left?
    """,
    solution=my_position_baseline,
    cases=(
        _case([3, 2, 1], _FIRST),
        _case([2, 2], torch.tensor([[1.0, 2.0], [0.0, -1.0]], dtype=torch.float64)),
        _case(
            [1, 4],
            torch.tensor(
                [[2.0, 9.0, 9.0, 9.0], [1.0, 0.0, 0.5, 1.0]], dtype=torch.float64
            ),
        ),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _all_rows,
            "You divide by the number of all completions. Those that have ended have no token there.",
        ),
        Mistake(
            _rubbish_counts,
            "What stands under a zero mask has entered your sums.",
        ),
        Mistake(
            _whole_return,
            "Every token gets the whole reward, also the part that was paid before it.",
        ),
        Mistake(
            _one_number,
            "You subtract one number for all positions. The exercise asks for one for each.",
        ),
        Mistake(
            _no_mask_at_the_end,
            "Under a zero mask the result has to be 0, and yours is not.",
        ),
        Mistake(
            _strictly_later,
            "A token's own reward belongs to it: this and all later ones.",
        ),
        Mistake(
            _forwards,
            "You add up what was paid so far. What can a token still change?",
        ),
        Mistake(_no_baseline, "Nothing is subtracted yet."),
    ),
    where="Do it in three steps: mask the rewards, add them up from the end, then average each column over its mask.",
    idea="""
    Write down three tensors for two completions of 2 and 3 tokens: the rewards with zeros under the mask, the sum
    from each token to the end, and for each *column* the number of completions that still run. The baseline is
    `[T]`.
    """,
    outline="""
    ```python
    paid = ...  # [B, T], without the rubbish
    to_go = ...  # [B, T], a sum from the right: turn round, add up, turn back
    running = ...  # [T], how many are still there, at least 1
    baseline = ... / running  # [T], only of those that are
    return ...  # and 0 under a zero mask
    ```
    """,
    right=(
        "Right. A completion that is the only one left gets 0 there: it is its own baseline. With few completions left such "
        "a baseline takes the signal away; a critic does not."
    ),
)
