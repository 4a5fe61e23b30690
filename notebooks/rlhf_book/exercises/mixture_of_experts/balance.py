"""The load-balancing loss of the Switch Transformer, for several picks."""

import torch
from torch import Generator, Tensor

from ..draws import integer
from ..exercise import Case, Exercise, Mistake
from ..mistakes import given


def my_balance(logits: Tensor, picked: int) -> Tensor:
    """[n, E] logits of a router -> the load-balancing loss, one number."""
    n, experts = logits.shape
    p = logits.softmax(-1)
    chosen = p.topk(picked, -1)[1]
    share = torch.bincount(chosen.flatten(), minlength=experts) / n  # sums to K
    return experts * (share * p.mean(0)).sum()


def _without_experts(logits: Tensor, picked: int) -> Tensor:
    return my_balance(logits, picked) / logits.shape[-1]


def _divided(logits: Tensor, picked: int) -> Tensor:
    return my_balance(logits, picked) / picked


def _only_probabilities(logits: Tensor, picked: int) -> Tensor:
    mean = logits.softmax(-1).mean(0)
    return logits.shape[-1] * picked * (mean**2).sum()


def _over_picked(logits: Tensor, picked: int) -> Tensor:
    n, experts = logits.shape
    top, chosen = logits.topk(picked, -1)
    share = torch.bincount(chosen.flatten(), minlength=experts) / n
    p = torch.zeros_like(logits).scatter(-1, chosen, top.softmax(-1))
    return experts * (share * p.mean(0)).sum()


def _by_token(logits: Tensor, picked: int) -> Tensor:
    experts = logits.shape[-1]
    p = logits.softmax(-1)
    return experts * p.topk(picked, -1)[0].sum(-1).mean()


def _draw(generator: Generator) -> Case:
    experts = integer(generator, 3, 9)
    n = integer(generator, 2, 20)
    logits = 2 * torch.randn(n, experts, generator=generator, dtype=torch.float64)
    return Case({"logits": logits, "picked": integer(generator, 1, experts - 1)})


BALANCE = Exercise(
    id="moe-balance",
    title="a loss that counts",
    concept="moe",
    minutes=10,
    difficulty="core",
    statement=r"""
    Against a router that sends all tokens to a few experts, pretraining adds the *load-balancing loss* $E \sum_e F_e P_e$. Write it, `my_balance(logits, picked)`, for `[n, E]` router
    logits and $K$ = `picked`; the result is one number. $F_e$ is the share of the $n$ tokens that pick expert $e$, and $P_e$ the mean over the tokens of the
    softmax over all experts. Before you run it: all tokens pick the same $K$ experts, each with probability $1/K$. How large is the
    loss then, and how large if all experts are used alike?
    """,
    solution=my_balance,
    cases=(
        Case(
            {
                "logits": torch.tensor(
                    [[2.0, 1.0, 0.0], [0.0, 2.0, 1.0]], dtype=torch.float64
                ),
                "picked": 2,
            }
        ),
        Case(
            {
                "logits": torch.tensor(
                    [[5.0, 1.0, 0.0, -1.0]] * 3, dtype=torch.float64
                ),
                "picked": 1,
            }
        ),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _without_experts,
            "The factor E is missing. With it, even use has the value K for any number of experts.",
        ),
        Mistake(
            _divided,
            "You divide the counts by all picks, so that they sum to 1. Here a share of tokens sums to K.",
        ),
        Mistake(
            _only_probabilities,
            "No pick occurs in it. F counts choices, and only P is a mean of probabilities.",
        ),
        Mistake(
            given(my_balance, picked=1),
            "You count the first pick only. A token has K of them.",
        ),
        Mistake(
            _over_picked,
            "P is the softmax over all experts, also those that are not picked.",
        ),
        Mistake(
            _by_token,
            "You multiply pick and probability token by token. The loss multiplies two means over the batch.",
        ),
    ),
    where="Two vectors of length E, each a mean over tokens. Then one product, and one sum.",
    idea=r"""
    $F$ counts picks: each token gives a 1 to $K$ experts, so $F$ sums to $K$. $P$ is a mean of probabilities and
    sums to 1. The loss is $E \sum_e F_e P_e$.
    """,
    outline="""
    ```python
    p = ...  # [n, E], over all experts
    chosen = ...  # [n, K] indices
    share = ... / n  # [E], how often each index occurs
    return experts * (...).sum()
    ```
    """,
    right="Right: E if K experts get all, K if all are used alike. Which of the two vectors carries the gradient?",
)
