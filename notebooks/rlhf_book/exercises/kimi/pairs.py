"""The squared loss over pairs of a prompt's completions: no constant is left."""

import torch
from torch import Generator, Tensor

from ..draws import batch, integer, uniform
from ..exercise import Case, Exercise, Mistake
from ..mistakes import given


def my_pair_loss(
    logp: Tensor,
    old_logp: Tensor,
    mask: Tensor,
    rewards: Tensor,
    group_size: int,
    tau: float,
) -> Tensor:
    """[B, T] log-probs and mask, [B] rewards: mean squared error over pairs."""
    log_ratio = ((logp - old_logp) * mask).sum(1)  # [B]
    residual = (rewards - tau * log_ratio).view(-1, group_size)  # [P, G]
    differences = residual[:, :, None] - residual[:, None, :]  # [P, G, G]
    pairs = group_size * (group_size - 1)
    return differences.square().sum((1, 2)).mean() / pairs


def _of(log_ratio: Tensor, rewards: Tensor, group_size: int, tau: float) -> Tensor:
    residual = (rewards - tau * log_ratio).view(-1, group_size)
    differences = residual[:, :, None] - residual[:, None, :]
    return differences.square().sum((1, 2)).mean() / (group_size * (group_size - 1))


def _token_mean(
    logp: Tensor,
    old_logp: Tensor,
    mask: Tensor,
    rewards: Tensor,
    group_size: int,
    tau: float,
) -> Tensor:
    ell = ((logp - old_logp) * mask).sum(1) / mask.sum(1)
    return _of(ell, rewards, group_size, tau)


def _padding(
    logp: Tensor,
    old_logp: Tensor,
    mask: Tensor,
    rewards: Tensor,
    group_size: int,
    tau: float,
) -> Tensor:
    return _of((logp - old_logp).sum(1), rewards, group_size, tau)


def _all_pairs(
    logp: Tensor,
    old_logp: Tensor,
    mask: Tensor,
    rewards: Tensor,
    group_size: int,
    tau: float,
) -> Tensor:
    ell = ((logp - old_logp) * mask).sum(1)
    return _of(ell, rewards, len(rewards), tau)


def _with_itself(
    logp: Tensor,
    old_logp: Tensor,
    mask: Tensor,
    rewards: Tensor,
    group_size: int,
    tau: float,
) -> Tensor:
    loss = my_pair_loss(logp, old_logp, mask, rewards, group_size, tau)
    return loss * (group_size - 1) / group_size


def _mean_reward(
    logp: Tensor,
    old_logp: Tensor,
    mask: Tensor,
    rewards: Tensor,
    group_size: int,
    tau: float,
) -> Tensor:
    ell = ((logp - old_logp) * mask).sum(1)
    groups = rewards.view(-1, group_size)
    centred = (groups - groups.mean(1, keepdim=True)).view(-1)
    return (centred - tau * ell).square().mean()


def _summed(
    logp: Tensor,
    old_logp: Tensor,
    mask: Tensor,
    rewards: Tensor,
    group_size: int,
    tau: float,
) -> Tensor:
    loss = my_pair_loss(logp, old_logp, mask, rewards, group_size, tau)
    return loss * group_size * (group_size - 1) / 2


def _case(lengths: list[int], group_size: int, tau: float, seed: int) -> Case:
    generator = Generator().manual_seed(seed)
    made = batch(lengths, generator)
    return Case(
        {
            "logp": made["logp"],
            "old_logp": made["old_logp"],
            "mask": made["mask"],
            "rewards": (uniform(generator, len(lengths)) > 0.5).double(),
            "group_size": group_size,
            "tau": tau,
        }
    )


def _draw(generator: Generator) -> Case:
    group_size, prompts = integer(generator, 2, 5), integer(generator, 1, 4)
    lengths = torch.randint(1, 6, (group_size * prompts,), generator=generator)
    made = batch(lengths.tolist(), generator)
    return Case(
        {
            "logp": made["logp"],
            "old_logp": made["old_logp"],
            "mask": made["mask"],
            "rewards": uniform(generator, len(lengths)),
            "group_size": group_size,
            "tau": 0.1 + 2 * float(uniform(generator, 1)),
        }
    )


PAIRS = Exercise(
    id="kimi-pairs",
    title="a constant that cancels",
    concept="kimi-k2",
    minutes=15,
    difficulty="core",
    statement=r"""
    For two completions $y, y'$ of one prompt, $\tau \log Z$ cancels in the difference of their two equations:
    $R(y) - R(y') = \tau \log \frac{\pi^*(y)}{\pi_{old}(y)} - \tau \log \frac{\pi^*(y')}{\pi_{old}(y')}$. Write
    `my_pair_loss(logp, old_logp, mask, rewards, group_size, tau)`: the squared difference of the two sides with
    $\pi_\theta$ in the place of $\pi^*$, averaged over all pairs of *different rows* of a prompt's group, and over prompts. The rows of a
    prompt lie together. Then show on paper that it is $2G/(G-1)$ times the group's variance of
    $R - \tau \ell$ (with the divisor $G$).
    """,
    solution=my_pair_loss,
    cases=(
        _case([2, 4, 3, 1, 2, 4, 3, 2], 4, 0.5, 1),
        _case([3, 1], 2, 1.0, 2),
        _case([1, 5, 2, 2, 3, 4], 3, 0.2, 3),
        _case([4, 4, 4, 4], 2, 2.0, 4),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _token_mean,
            "You average the log-ratio over a completion's tokens. The log-probability of a completion is a sum.",
        ),
        Mistake(
            _padding,
            "Numbers behind the end of a completion enter your log-ratio.",
        ),
        Mistake(
            _all_pairs,
            "You pair completions of different prompts, whose constants differ and do not cancel.",
        ),
        Mistake(
            _with_itself,
            "Too small by a factor: a completion paired with itself has error 0, and your mean counts it.",
        ),
        Mistake(
            given(my_pair_loss, tau=lambda tau: -tau),
            "The sign of the log-ratio is wrong: this policy is pushed away from the better completion.",
        ),
        Mistake(
            given(my_pair_loss, tau=1.0),
            "Your loss does not depend on tau.",
        ),
        Mistake(
            _mean_reward,
            "That is the loss with the mean reward as its constant. Pairs need no constant.",
        ),
        Mistake(
            _summed,
            "You sum over the pairs of a prompt. The exercise asks for their mean.",
        ),
    ),
    where="Compute one number a completion, the reward minus tau times its log-ratio, and compare these within a prompt.",
    idea=r"""
    For a pair the two sides differ by $e(y) - e(y')$, with $e = R - \tau\ell$ and $\ell$ the log-ratio of the whole
    completion. So compute `[P, G]` numbers, all differences within a row, and average their squares over the
    $G(G-1)$ ordered pairs.
    """,
    outline="""
    ```python
    log_ratio = ...  # [B], a masked sum
    residual = ...  # [P, G]
    differences = ... - ...  # [P, G, G], two axes against each other
    return ... / ...  # a mean over prompts; how many pairs are of different rows?
    ```
    """,
    right="Right. Neither a critic nor an estimate of log Z is needed, and the fit ends at the KL-regularised optimum.",
    gradient_of="logp",
)
