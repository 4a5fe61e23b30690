"""A chain of letters with a reward for each, where the best score is known: does a critic pay?

A completion is `length` letters long. The reward of a letter depends on its position, the letter before and the letter
itself: a table of normal random numbers, another one for each seed. The policy is a table of logits and the critic a
table of values, both for (position, letter before). They are trained by plain gradient ascent: sums over tokens, no
whitening, no clip. What a policy is worth is computed exactly, so a score has no noise of measurement.

All learning rates and all seeds are trained side by side, as one batch of tables:

    >>> score = train(Way(lam=0.8, subtract="critic"), seeds=[0, 1, 2], rates=[0.5, 1.0], updates=5)
    >>> score.shape                                      # [rates, seeds], 0 at the start, 1 is the best possible
    torch.Size([2, 3])
    >>> at_chosen_rate(score)[0].shape                   # of each seed, at the rate that is best for the others
    torch.Size([3])

This file imports nothing of the library.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

LENGTH, LETTERS, BATCH = 60, 3, 8


@dataclass(frozen=True)
class Way:
    """How a token gets its advantage, and when the rewards are paid.

    Attributes:
        lam: lambda of GAE; read only with a critic.
        subtract: "nothing", the plain return; "mean", the return minus its mean over the batch's other completions at
            that position; or "critic", GAE with the learnt values.
        at_the_end: pay the sum of the rewards at the last letter, instead of each reward at once.
        knows_earned: the critic adds what the text before has already earned, and learns what is still to come. That
            is a critic whose state holds the sum so far. Only with `at_the_end` is there a difference to be known.
        critic_step: how far a value moves towards the mean target of its state after each update of the policy.
    """

    lam: float = 1.0
    subtract: str = "nothing"
    at_the_end: bool = False
    knows_earned: bool = False
    critic_step: float = 0.5

    def __post_init__(self) -> None:
        if self.subtract not in ("nothing", "mean", "critic"):
            raise ValueError(
                f"subtract is {self.subtract!r}; choose nothing, mean or critic"
            )
        if self.knows_earned and not (self.subtract == "critic" and self.at_the_end):
            raise ValueError(
                "knows_earned needs subtract='critic' and at_the_end=True: "
                "elsewhere nothing is left to be known"
            )


def rewards_of(seeds: Sequence[int], length: int = LENGTH) -> Tensor:
    """The table of rewards of each seed, [seeds, length, letter before, letter]."""
    dice = [torch.Generator().manual_seed(1000 + seed) for seed in seeds]
    shape = (length, LETTERS, LETTERS)
    return torch.stack(
        [torch.randn(shape, generator=g, dtype=torch.float64) for g in dice]
    )


def expected(pay: Tensor, choose: Callable[[Tensor, int], Tensor]) -> Tensor:
    """The expected sum of rewards of each table, [N].

    Args:
        pay: the rewards, [N, length, letter before, letter].
        choose: makes the values [N, letter before] of what each letter leads to, [N, letter before, letter], at a
            position: a mean under a policy, or a maximum.
    """
    V = torch.zeros_like(pay[:, 0, :, 0])
    for t in reversed(range(pay.shape[1])):
        V = choose(pay[:, t] + V[:, None, :], t)
    return V[:, 0]  # the letter before the first counts as 0


def score(logits: Tensor, pay: Tensor) -> Tensor:
    """How good a policy is, [N]: 0 for the uniform one, 1 for the best possible."""
    pi = logits.softmax(-1)
    now = expected(pay, lambda q, t: (pi[:, t] * q).sum(-1))
    first = expected(pay, lambda q, t: q.mean(-1))
    best = expected(pay, lambda q, t: q.amax(-1))
    return (now - first) / (best - first)


def sample(pi: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """The letter before each position and the letter chosen there, [N, B, T] each.

    `pi` is [N, T, letter before, letter]; `uniform` [N, B, T] holds numbers between 0 and 1 that decide.
    """
    N, B, T = uniform.shape
    row, letter = torch.arange(N)[:, None], torch.zeros(N, B, dtype=torch.long)
    edges = pi.cumsum(-1)[..., :-1]
    before = []
    for t in range(T):
        before.append(letter)
        letter = (uniform[:, :, t, None] > edges[row, t, letter]).sum(-1)
    return torch.stack(before, -1), torch.stack([*before[1:], letter], -1)


def advantages(way: Way, rewards: Tensor, values: Tensor) -> Tensor:
    """Rewards and values [N, B, T] -> advantages [N, B, T]. All completions are equally long."""
    returns = rewards.flip(-1).cumsum(-1).flip(-1)
    if way.subtract == "nothing":
        return returns
    if way.subtract == "mean":  # of the others: B / (B - 1) times the centred return
        B = returns.shape[1]
        return (returns - returns.mean(1, keepdim=True)) * B / (B - 1)
    A = torch.zeros_like(rewards)
    V_next = A_next = torch.zeros_like(rewards[..., 0])
    for t in reversed(range(rewards.shape[-1])):
        delta = rewards[..., t] + V_next - values[..., t]
        A_next = delta + way.lam * A_next
        A[..., t], V_next = A_next, values[..., t]
    return A


def train(
    way: Way,
    seeds: Sequence[int],
    rates: Sequence[float],
    updates: int = 40,
    batch: int = BATCH,
    length: int = LENGTH,
) -> Tensor:
    """The score after training, [rates, seeds]. A seed has the same table and the same dice at every rate."""
    S, N = len(seeds), len(rates) * len(seeds)
    pay = rewards_of(seeds, length).repeat(len(rates), 1, 1, 1)  # [N, T, 3, 3]
    rate = torch.tensor(rates).double().repeat_interleave(S)[:, None, None, None]
    dice = [torch.Generator().manual_seed(seed) for seed in seeds]
    row, position = torch.arange(N)[:, None, None], torch.arange(length)
    logits = torch.zeros_like(pay)
    V = torch.zeros(N, length, LETTERS, dtype=torch.float64)
    for _ in range(updates):
        u = [torch.rand(batch, length, generator=g, dtype=torch.float64) for g in dice]
        pi = logits.softmax(-1)
        before, after = sample(pi, torch.stack(u).repeat(len(rates), 1, 1))
        r = pay[row, position, before, after]  # [N, B, T]
        values = V[row, position, before]
        if way.at_the_end:
            earned = r.cumsum(-1) - r  # before this letter
            r = torch.cat([torch.zeros_like(r[..., 1:]), r.sum(-1, keepdim=True)], -1)
            if way.knows_earned:
                values = values + earned
        A = advantages(way, r, values)
        state = (row * length + position) * LETTERS + before
        push = torch.nn.functional.one_hot(after, LETTERS) - pi[row, position, before]
        step = torch.zeros(N * length * LETTERS, LETTERS, dtype=torch.float64)
        step.index_add_(0, state.flatten(), (push * A[..., None]).reshape(-1, LETTERS))
        logits = logits + rate * step.view_as(logits) / batch
        if way.subtract == "critic":  # it learns after it was used; targets of lambda 1
            gap = r.flip(-1).cumsum(-1).flip(-1) - values
            total, visits = torch.zeros(2, V.numel(), dtype=torch.float64)
            total.index_add_(0, state.flatten(), gap.flatten())
            visits.index_add_(0, state.flatten(), torch.ones_like(gap.flatten()))
            V += way.critic_step * (total / visits.clamp(min=1)).view_as(V)
    return score(logits, pay).view(len(rates), S)


def at_chosen_rate(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Of each seed the score at the rate that is best for the OTHER seeds, and which rate that was, [seeds] each.

    So no seed takes part in the choice of its own rate, and every way that is compared is treated alike.
    `scores` is [rates, seeds], from two seeds on.
    """
    if scores.ndim != 2 or scores.shape[1] < 2:
        raise ValueError(
            f"scores have shape {list(scores.shape)}; [rates, seeds] is needed, two seeds or more"
        )
    others = scores.sum(1, keepdim=True) - scores
    chosen = others.argmax(0)
    return scores.gather(0, chosen[None])[0], chosen
