"""Find the bug: a loss that falls to almost nothing, and a model that has learnt nothing."""

from collections.abc import Callable

import torch
from torch import Tensor

from ..bug import Bug


def suspect_language_loss(logits: Tensor, ids: Tensor) -> Tensor:
    """Logits [B, L, V] at every place of the texts with ids [B, L] -> the loss."""
    logp = logits.log_softmax(-1)
    return -logp.gather(-1, ids[..., None]).mean()


def train_on_random_text(loss: Callable[..., Tensor]) -> None:
    """A table of next-token logits learns text in which nothing can be predicted."""
    generator = torch.Generator().manual_seed(0)
    table = torch.zeros(10, 10, requires_grad=True)  # the row of the token at a place
    optimizer = torch.optim.AdamW([table], lr=0.3)
    for step in range(1, 61):
        ids = torch.randint(10, (32, 16), generator=generator)
        value = loss(table[ids], ids)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        if step in (1, 20, 60):
            print(
                f"step {step:2d}: loss {value.item():.2f}, a guess costs log 10 = 2.30"
            )


def places_predict_what_comes_next(loss: Callable[..., Tensor]) -> None:
    """The loss of logits that name the next token, surely, has to be almost zero."""
    ids = torch.tensor([[1, 4, 2, 0, 3]])
    logits = torch.zeros(1, 5, 5)
    logits[0, torch.arange(4), ids[0, 1:]] = 20.0  # the last place has nothing to name
    value = loss(logits, ids).item()
    assert value < 1e-3, f"logits that name the next token have the loss {value:.4f}"


def mended_language_loss(logits: Tensor, ids: Tensor) -> Tensor:
    """Logits [B, L, V] at every place of the texts with ids [B, L] -> the loss."""
    logp = logits[:, :-1].log_softmax(-1)
    return -logp.gather(-1, ids[:, 1:, None]).mean()


SHIFT = Bug(
    id="lm-shift",
    title="a loss that is too good",
    concept="next-token-ce",
    minutes=5,
    statement="""
    The text is random digits, so nobody can predict the next one, and no loss below log 10 is honest. The block trains a small
    table and prints its loss. What has the table learnt, and what is missing in the loss?
    """,
    wrong=suspect_language_loss,
    symptom=train_on_random_text,
    reveals=places_predict_what_comes_next,
    mended=mended_language_loss,
    idea="""
    Write two texts below each other: what the logits at place 0, 1, 2 are a forecast of, and which token the code
    compares them with. Are they the same token?
    """,
    outline="""
    ```python
    logp = logits[:, ...].log_softmax(-1)  # one place has no successor
    return -logp.gather(-1, ids[:, ..., None]).mean()  # and one token has no forecast
    ```
    """,
    moral="""
    The logits at a place are compared with the token *at* that place, which the model reads there. It learns to copy its input.
    Shift by one: logits without the last place, tokens without the first. Libraries that take `labels` shift inside; whoever
    shifts as well is off by two. The habit: train on text without any pattern once, and see the loss stay at its entropy.
    """,
)

BUGS = (SHIFT,)
