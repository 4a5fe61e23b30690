"""Find the bug: a reference that follows, and a score that is read at the wrong place."""

from collections.abc import Callable

import torch
from torch import Tensor

from ..bug import Bug

# ── a reference that is no copy ──────────────────────────────────────────────────────────────────────────────────


def suspect_dpo(theta: Tensor, pairs: list[tuple[int, int]], steps: int) -> list[float]:
    """DPO on logits [V]: the loss before each step; theta is trained in place."""
    reference = theta.detach()
    losses = []
    for _ in range(steps):
        leaf = theta.detach().requires_grad_()
        s = leaf.log_softmax(0) - reference.log_softmax(0)  # [V]
        loss = -torch.stack([(s[i] - s[j]).sigmoid().log() for i, j in pairs]).mean()
        (slope,) = torch.autograd.grad(loss, leaf)
        theta -= 2 * slope
        losses.append(loss.item())
    return losses


def train_three(dpo: Callable[..., list[float]]) -> None:
    """Three completions, the first one always preferred."""
    theta = torch.zeros(3)
    losses = dpo(theta, [(0, 1), (0, 2)], 20)
    for step in (0, 1, 10, 19):
        print(f"step {step:2d}: loss {losses[step]:.4f}")
    print("policy at the end:", [round(p, 3) for p in theta.softmax(0).tolist()])


def the_loss_falls_below_log_2(dpo: Callable[..., list[float]]) -> None:
    """A step on one pair, small enough, has to lower its loss: from log 2 on, the gap grows away from a fixed reference."""
    theta = torch.zeros(2)
    losses = dpo(theta, [(0, 1)], 3)
    assert losses[2] < losses[1] < losses[0] - 0.1, (
        f"the losses of three steps on one pair are {losses}"
    )


def mended_dpo(theta: Tensor, pairs: list[tuple[int, int]], steps: int) -> list[float]:
    """DPO on logits [V]: the loss before each step; theta is trained in place."""
    reference = theta.detach().clone()
    losses = []
    for _ in range(steps):
        leaf = theta.detach().requires_grad_()
        s = leaf.log_softmax(0) - reference.log_softmax(0)  # [V]
        loss = -torch.stack([(s[i] - s[j]).sigmoid().log() for i, j in pairs]).mean()
        (slope,) = torch.autograd.grad(loss, leaf)
        theta -= 2 * slope
        losses.append(loss.item())
    return losses


SAME_REFERENCE = Bug(
    id="rm-same-reference",
    title="a loss that stays at 0.693",
    concept="dpo",
    minutes=5,
    statement="""
    DPO on three completions, without a word of warning. The loss does not move, and yet the policy does. What is the number at which it
    stays, what has the policy been trained on, and which line is it?
    """,
    wrong=suspect_dpo,
    symptom=train_three,
    reveals=the_loss_falls_below_log_2,
    mended=mended_dpo,
    idea="""
    Print the reference before and after the first step. Then ask what `detach()` copies and what it shares.
    """,
    outline="""
    ```python
    reference = ...  # detached, and with memory of its own
    ```

    Nothing else changes.
    """,
    moral="""
    `detach()` cuts the gradient and shares the memory: the reference is trained with the policy, every gap is 0, every loss $\\log 2$, and
    every pair has the largest weight for ever. There is no KL penalty left. The habit: the first loss is $\\log 2$, the second one is not.
    """,
)


# ── a score that is read at the wrong place ──────────────────────────────────────────────────────────────────────


def suspect_scores(hidden: Tensor, head: Tensor, mask: Tensor) -> Tensor:
    """[B, L, H] hidden states, [H] head, [B, L] mask -> [B] scores at the end token."""
    scores = hidden @ head  # [B, L]
    last = mask.sum(1).long() - 1  # [B]
    return scores.gather(1, last[:, None]).squeeze(1)


def score_one_text_twice(scores: Callable[..., Tensor]) -> None:
    """The same text of three tokens, padded on the left and on the right."""
    hidden = torch.tensor([[0.0, 0.0, 1.0, 2.0, 5.0], [1.0, 2.0, 5.0, 0.0, 0.0]])[
        ..., None
    ]
    mask = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 0, 0]])
    left, right = scores(hidden, torch.ones(1), mask).tolist()
    print(f"padded on the left: score {left:.1f}; on the right: {right:.1f}")


def padding_does_not_matter(scores: Callable[..., Tensor]) -> None:
    """The score of a text is the same whether it is padded on the left, on the right or not at all."""
    generator = torch.Generator().manual_seed(0)
    text, head = (
        torch.randn(1, 3, 4, generator=generator),
        torch.randn(4, generator=generator),
    )
    found = []
    for before, after in ((0, 0), (0, 2), (2, 0), (1, 1)):
        pads = [torch.zeros(1, n, 4) for n in (before, after)]
        mask = torch.tensor([[0] * before + [1] * 3 + [0] * after])
        found.append(
            scores(torch.cat([pads[0], text, pads[1]], dim=1), head, mask).item()
        )
    assert max(found) - min(found) < 1e-6, f"one text has the scores {found}"


def mended_scores(hidden: Tensor, head: Tensor, mask: Tensor) -> Tensor:
    """[B, L, H] hidden states, [H] head, [B, L] mask -> [B] scores at the end token."""
    scores = hidden @ head  # [B, L]
    columns = torch.arange(mask.shape[1], device=mask.device)
    last = (mask * columns).argmax(1)  # [B]
    return scores.gather(1, last[:, None]).squeeze(1)


LAST_TOKEN = Bug(
    id="rm-last-token",
    title="one text, two scores",
    concept="bradley-terry",
    minutes=5,
    statement="""
    A reward model reads its score at the end token. In training all batches were padded on the right. In the RL loop prompts are padded on the
    left, and the scores come out low and nearly equal. Which assumption is in which line?
    """,
    wrong=suspect_scores,
    symptom=score_one_text_twice,
    reveals=padding_does_not_matter,
    mended=mended_scores,
    idea="""
    Write down the mask of a text padded on the left, and what `mask.sum() - 1` says for it. Which place is the last
    one with a 1?
    """,
    outline="""
    ```python
    last = (mask * ...).argmax(1)  # [B], largest where the last 1 stands
    return scores.gather(1, last[:, None]).squeeze(1)
    ```
    """,
    moral="""
    The number of real tokens is the place of the last one only if they stand at the front. The habit: score one text with every kind of
    padding, once, and compare. A related mistake finds the place by the padding *id*, which often is the end token's.
    """,
)

BUGS = (SAME_REFERENCE, LAST_TOKEN)
