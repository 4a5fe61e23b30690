"""Find the bug: three pieces of a critic's bookkeeping, each of which trains, and none of which is right."""

from collections.abc import Callable

import torch
from torch import Tensor

from ..bug import Bug

# ── the end of a completion ────────────────────────────────────────────────────────────────────────────────────────


def suspect_gae(
    rewards: Tensor, values: Tensor, mask: Tensor, lam: float = 0.95
) -> Tensor:
    """Advantages [B, T] with gamma 1; rewards, values and mask are [B, T]."""
    advantages, following = torch.zeros_like(rewards), torch.zeros(len(rewards))
    for t in reversed(range(rewards.shape[1])):
        inside = t + 1 < rewards.shape[1]
        next_value = values[:, t + 1] if inside else torch.zeros(len(rewards))
        delta = rewards[:, t] + next_value - values[:, t]
        following = (delta + lam * following) * mask[:, t]
        advantages[:, t] = following
    return advantages


def last_token_of_a_short_completion(gae: Callable[..., Tensor]) -> None:
    """A wrong completion of two tokens, valued 0.5, beside longer and longer ones."""
    for width in (2, 3, 6):
        rewards, values = torch.zeros(2, width), torch.full((2, width), 0.5)
        mask = (torch.arange(width) < torch.tensor([[2], [width]])).float()
        last = gae(rewards, values, mask)[0, 1].item()
        print(f"longest completion {width}: the last token gets {last:+.3f}")


def padding_is_never_read(gae: Callable[..., Tensor]) -> None:
    """Another number is written under the zero mask: no advantage may change."""
    rewards, values = torch.tensor([[0.0, 1.0, 0.0]]), torch.tensor([[0.5, 0.5, 0.5]])
    mask = torch.tensor([[1.0, 1.0, 0.0]])
    before = gae(rewards, values, mask)[0, :2]
    after = gae(rewards, values + 3 * (1 - mask), mask)[0, :2]
    change = (after - before).abs().max().item()
    assert change < 1e-6, (
        f"another number under the padding moves an advantage by {change:.3f}"
    )


def mended_gae(
    rewards: Tensor, values: Tensor, mask: Tensor, lam: float = 0.95
) -> Tensor:
    """Advantages [B, T] with gamma 1; rewards, values and mask are [B, T]."""
    advantages, following = torch.zeros_like(rewards), torch.zeros(len(rewards))
    next_value = torch.zeros(len(rewards))
    for t in reversed(range(rewards.shape[1])):
        trained = mask[:, t] != 0
        advantage = rewards[:, t] + next_value - values[:, t] + lam * following
        following = torch.where(trained, advantage, following)
        next_value = torch.where(trained, values[:, t], next_value)
        advantages[:, t] = torch.where(trained, advantage, torch.zeros_like(advantage))
    return advantages


PADDING_LEAK = Bug(
    id="gae-padding-leak",
    title="a wrong answer that is nobody's fault",
    concept="gae",
    minutes=6,
    statement="""
    Everything is multiplied by the mask, and padded places get advantage 0, as they should. The cell prints the
    advantage of the last token of one and the same wrong answer (reward 0, valued at .5), in batches that differ only
    in the length of *another* completion. What should the three numbers be, and what do they turn into?
    """,
    wrong=suspect_gae,
    symptom=last_token_of_a_short_completion,
    reveals=padding_is_never_read,
    mended=mended_gae,
    idea="""
    Take a completion that is shorter than the batch is wide. At its last token, which number does the code read as
    the next value? Which number should it be?
    """,
    outline="""
    Carry the next value along from the right, as the next advantage is carried, and let neither of them move at a
    zero mask:

    ```python
    following = torch.where(trained, ..., following)
    next_value = torch.where(trained, ..., ...)  # begins at 0, after the end
    ```
    """,
    moral="""
    The TD error of the last token reads its next value from the next column, and for all but the longest
    completion that column is padding. A critic says something there, as it does everywhere, and what it says resembles
    its last opinion: the disappointment of a wrong answer is cancelled by a promise that nobody will keep.
    Multiplying the advantage by the mask comes one step too late. After the last token the value is 0 by definition.
    The habit: write rubbish under the padding of every test batch, NaN if you dare.
    """,
)


# ── the critic's targets ─────────────────────────────────────────────────────────────────────────────────────────


def suspect_targets(
    advantages: Tensor, values: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor]:
    """Whitened advantages, and the critic's targets: advantage plus value, [B, T]."""
    mean = (advantages * mask).sum() / mask.sum()
    var = ((advantages - mean) ** 2 * mask).sum() / (mask.sum() - 1)
    advantages = (advantages - mean) / torch.sqrt(var + 1e-8)
    return advantages * mask, (advantages + values) * mask


def ten_rollouts(targets: Callable[..., tuple[Tensor, Tensor]]) -> None:
    """A critic takes over the mean of its targets. One token each, 3 of 4 right."""
    rewards, mask = torch.tensor([[1.0], [1.0], [1.0], [0.0]]), torch.ones(4, 1)
    value = 0.0
    for rollout in range(11):
        if rollout in (0, 1, 10):
            print(
                f"after {rollout:2d} rollouts the critic expects {abs(value):.3f}; "
                "0.750 is right"
            )
        values = torch.full((4, 1), value)
        value = targets(rewards - values, values, mask)[1].mean().item()


def targets_of_lambda_one_are_the_returns(
    targets: Callable[..., tuple[Tensor, Tensor]],
) -> None:
    """With lambda 1 advantage plus value is the return, whatever the critic thinks."""
    rewards = torch.tensor([[1.0], [0.0], [0.0]])
    values = torch.tensor([[0.2], [0.6], [0.1]])
    target = targets(rewards - values, values, torch.ones(3, 1))[1]
    gap = (target - rewards).abs().max().item()
    assert gap < 1e-6, f"reward {rewards[0, 0]:.0f} has the target {target[0, 0]:.3f}"


def mended_targets(
    advantages: Tensor, values: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor]:
    """Whitened advantages, and the critic's targets: advantage plus value, [B, T]."""
    returns = (advantages + values) * mask
    mean = (advantages * mask).sum() / mask.sum()
    var = ((advantages - mean) ** 2 * mask).sum() / (mask.sum() - 1)
    whitened = (advantages - mean) / torch.sqrt(var + 1e-8)
    return whitened * mask, returns


WHITENED_RETURNS = Bug(
    id="gae-whitened-returns",
    title="a critic that never learns the level",
    concept="gae-critic-noise",
    minutes=6,
    statement="""
    The critic trains, its loss is finite, and yet its mean never comes near the mean reward. Every line of this
    function is right on its own. The cell gives it an easy world: one state, three right answers of four, and a
    critic that takes over the mean of its targets at once.
    """,
    wrong=suspect_targets,
    symptom=ten_rollouts,
    reveals=targets_of_lambda_one_are_the_returns,
    mended=mended_targets,
    idea=r"""
    Set $\lambda = 1$: advantage plus value is the return. Print the targets, and look which `advantages` they are
    made of.
    """,
    outline="""
    The order of three things decides: the advantages, the targets, the whitening.

    ```python
    returns = ...  # which of the other two has happened by now?
    ```
    """,
    moral="""
    `advantages` has been overwritten by its whitened self when the targets are made of it. Whitened
    advantages have mean 0, so the targets have the mean of the critic's own values: it is told every time that its
    level is right. They also have standard deviation 1, which is not the unit of the reward. The order is:
    advantages, targets, and only then whiten. The habit: at lambda 1 the targets have to equal the returns, whatever
    the critic says.
    """,
)


# ── the place where the critic is read ───────────────────────────────────────────────────────────────────────────


def suspect_values(
    critic: Callable[[Tensor], Tensor], prompts: Tensor, completions: Tensor
) -> Tensor:
    """The value of each token, [B, T]; the critic gives [B, S + T] numbers."""
    everything = critic(torch.cat([prompts, completions], dim=1))
    return everything[:, -completions.shape[1] :]


def credit_of_a_coin(read: Callable[..., Tensor]) -> None:
    """Token 1 wins, token 0 loses, one more follows; a perfect critic, lambda 1."""
    prompts, completions = torch.tensor([[0], [0]]), torch.tensor([[1, 0], [0, 0]])
    rewards = torch.tensor([1.0, 0.0])

    def perfect(
        ids: Tensor,
    ) -> Tensor:  # after the prompt 1/2; then the first token decides
        won = ids[:, 1].float()
        return torch.stack([torch.full_like(won, 0.5), won, won], dim=1)

    advantages = rewards[:, None] - read(perfect, prompts, completions)
    for name, row in zip(("winning", "losing"), advantages[:, 0].tolist(), strict=True):
        print(f"the {name} token gets {row:+.2f}")


def a_value_has_not_seen_its_token(read: Callable[..., Tensor]) -> None:
    """Exchange the first completion token: the value before it may not change."""

    def causal(ids: Tensor) -> Tensor:  # position j has seen tokens 0 to j
        return ids.float().cumsum(1)

    prompts = torch.tensor([[3, 1]])
    one = read(causal, prompts, torch.tensor([[0, 2]]))[0, 0].item()
    other = read(causal, prompts, torch.tensor([[5, 2]]))[0, 0].item()
    assert one == other, (
        f"before a token the value is {one:.0f} or {other:.0f}, by that token"
    )


def mended_values(
    critic: Callable[[Tensor], Tensor], prompts: Tensor, completions: Tensor
) -> Tensor:
    """The value of each token, [B, T]; the critic gives [B, S + T] numbers."""
    everything = critic(torch.cat([prompts, completions], dim=1))
    return everything[:, -completions.shape[1] - 1 : -1]


PEEKING_CRITIC = Bug(
    id="gae-peeking-critic",
    title="a perfect critic, and no credit",
    concept="gae-critic-noise",
    minutes=6,
    statement="""
    The critic explains more of the variance than anybody expected of it, and the policy hardly learns. The cell shows
    why with a perfect critic: the first token decides everything, and yet neither choice is credited or blamed. What
    has the value of a token seen, and what should it have seen?
    """,
    wrong=suspect_values,
    symptom=credit_of_a_coin,
    reveals=a_value_has_not_seen_its_token,
    mended=mended_values,
    idea="""
    Count positions for a prompt of two tokens and a completion of two: at which of the four positions has the
    critic seen the prompt alone? It is the position whose logits write the first completion token.
    """,
    outline="""
    ```python
    everything = critic(...)  # [B, S + T]
    return everything[:, ... : ...]  # T positions, each one before its token
    ```
    """,
    moral="""
    The last T positions have each *seen* their token. As a baseline such a value takes away what the token
    is worth: the expected advantage of any token but the last is zero, with the best of critics most exactly. The
    value of a token is read where its logits are read, one position earlier. The habit: exchange a token, and see
    that the value before it stays.
    """,
)


BUGS: tuple[Bug, ...] = (PADDING_LEAK, WHITENED_RETURNS, PEEKING_CRITIC)
