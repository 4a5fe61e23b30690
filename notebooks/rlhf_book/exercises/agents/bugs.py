"""Find the bug: who wrote the text that is scored, and who is trained."""

from collections.abc import Callable

import torch
from torch import Tensor

from ..bug import Bug

# ── the text that is scored ──────────────────────────────────────────────────────────────────────────────────────────


def suspect_scored_text(letters: list[str], read: Tensor, own: Tensor) -> str:
    """What is scored: [T] 1 where anybody wrote, [T] 1 where the policy did."""
    return "".join(letter for letter, here in zip(letters, read.tolist()) if here)


def a_calculator_that_is_right(scored: Callable[..., str]) -> None:
    """The answer is 11. Two of three call the calculator, which says so."""
    for transcript, heard in (("!4711=11", (3, 4)), ("!4711=80", (3, 4)), ("=80", ())):
        own = torch.tensor([t not in heard for t in range(len(transcript))]).double()
        text = scored(list(transcript), torch.ones(len(transcript)), own)
        print(f"{transcript:10} is scored as right: {'11' in text}")


def the_tools_words_earn_nothing(scored: Callable[..., str]) -> None:
    """What the environment wrote must not change what is scored: put any other letter into its places."""
    for transcript, heard in (("!4711=80", (3, 4)), ("?k4?q7=11", (2, 5)), ("=80", ())):
        own = torch.tensor([t not in heard for t in range(len(transcript))]).double()
        read = torch.ones(len(transcript))
        seen = []
        for other in ("x", "1"):
            letters = [other if t in heard else c for t, c in enumerate(transcript)]
            seen.append(scored(letters, read, own))
        assert seen[0] == seen[1], (
            f"{transcript}: another reply gives another text to score"
        )
        mine = "".join(c for t, c in enumerate(transcript) if t not in heard)
        assert seen[0] == mine, f"{transcript}: scored is {seen[0]!r}, written {mine!r}"


def mended_scored_text(letters: list[str], read: Tensor, own: Tensor) -> str:
    """What is scored: [T] 1 where anybody wrote, [T] 1 where the policy did."""
    return "".join(letter for letter, mine in zip(letters, own.tolist()) if mine)


WHOSE_ANSWER = Bug(
    id="whose-answer",
    title="a reward that reads everything",
    concept="forged-reply",
    minutes=5,
    statement="""
    The score of a tool-using policy rises to nearly 1, and after a while its answers get worse. A reward function looks for the right number in
    the text that it is handed; that function is tested and correct. The cell prints which of three transcripts it calls right.
    """,
    wrong=suspect_scored_text,
    symptom=a_calculator_that_is_right,
    reveals=the_tools_words_earn_nothing,
    mended=mended_scored_text,
    idea="""
    Change a letter of the calculator's print. Does the scored text change? Which of the two masks says who wrote a
    letter?
    """,
    outline="""
    ```python
    return "".join(letter for letter, mine in zip(letters, ...) if mine)
    ```
    """,
    moral="""
    The text was decoded with the mask of what was *read*, not of what was *written*: the calculator's print was paid as an answer. The
    habit: change every reply to nonsense, and see that no score changes.
    """,
)

# ── the tokens that are trained ──────────────────────────────────────────────────────────────────────────────────────


def suspect_turn_loss(
    logp: Tensor, advantage: Tensor, state: Tensor, read: Tensor
) -> Tensor:
    """[B, T] log-probs, [B] advantages, [B, T] 1: environment, [B, T] 1: anybody."""
    mask = read * state
    return -(advantage[:, None] * logp * mask).sum() / mask.sum()


def a_calm_loss(loss_of: Callable[..., Tensor]) -> None:
    """Two transcripts of two turns: where does the gradient arrive?"""
    logp = torch.full((2, 6), -1.0, requires_grad=True)
    state = torch.tensor([[0, 0, 1, 0, 0, 0], [0, 1, 1, 1, 0, 0]]).double()
    read = torch.tensor([[1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1]]).double()
    loss = loss_of(logp, torch.tensor([1.0, -1.0]), state, read)
    (gradient,) = torch.autograd.grad(loss, logp)
    print(f"the loss is finite: {bool(torch.isfinite(loss))}")
    for i in range(2):
        writers = "".join(
            "e" if s else "p" if r else "-" for s, r in zip(state[i], read[i])
        )
        moved = "".join("^" if g else " " for g in gradient[i])
        print(f"written by {writers}\n     moved {moved}")


def only_own_tokens_move(loss_of: Callable[..., Tensor]) -> None:
    """The gradient is 0 at every token of the environment and of the padding, and at no token of the policy."""
    draws = torch.Generator().manual_seed(0)
    for _ in range(20):
        state = torch.randint(0, 2, (3, 7), generator=draws).double()
        state[:, 0] = 0.0
        read = (torch.arange(7) < torch.randint(2, 8, (3, 1), generator=draws)).double()
        logp = (-torch.rand(3, 7, generator=draws).double()).requires_grad_()
        loss = loss_of(logp, torch.tensor([1.0, -1.0, 0.5]).double(), state, read)
        (gradient,) = torch.autograd.grad(loss, logp)
        own = (read == 1) & (state == 0)
        assert (gradient[~own] == 0).all(), (
            "a token that the policy did not write has a gradient"
        )
        assert (gradient[own] != 0).all(), "a token that the policy wrote has none"
        want = -torch.tensor([[1.0], [-1.0], [0.5]]).double() / own.sum()
        assert torch.allclose(gradient[own], want.expand(3, 7)[own]), (
            "the divisor counts others' tokens"
        )


def mended_turn_loss(
    logp: Tensor, advantage: Tensor, state: Tensor, read: Tensor
) -> Tensor:
    """[B, T] log-probs, [B] advantages, [B, T] 1: environment, [B, T] 1: anybody."""
    mask = read * (1 - state)
    return -(advantage[:, None] * logp * mask).sum() / mask.sum()


STATES_TRAINED = Bug(
    id="states-trained",
    title="a run that foretells",
    concept="observation-mask",
    minutes=5,
    statement="""
    A policy of several turns is trained, and the loss behaves well. After an hour it gets no better, but it foretells what its tools will say
    better and better. The cell shows who wrote each token (`p` the policy, `e` the environment, `-` nobody) and which of them the loss moves.
    """,
    wrong=suspect_turn_loss,
    symptom=a_calm_loss,
    reveals=only_own_tokens_move,
    mended=mended_turn_loss,
    idea="""
    Print the gradient at each token of one row, with the letters S (environment) and A (policy) above it. Where is
    it not 0?
    """,
    outline="""
    ```python
    mask = read * (...)  # 1 where somebody wrote and it was not the environment
    ```
    """,
    moral="""
    A mask of *states* was multiplied in where one of *actions* belongs. Both are zeros and ones of one shape, so nothing fails. The habit: one
    batch by hand, and a look at where the gradient is not 0.
    """,
)

BUGS = (WHOSE_ANSWER, STATES_TRAINED)
