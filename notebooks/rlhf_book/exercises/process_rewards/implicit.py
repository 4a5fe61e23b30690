"""From log-probs of two models to scores of steps."""

import torch
from torch import Generator, Tensor

from ..draws import integer
from ..exercise import Case, Exercise, Mistake
from ..mistakes import given, swapped


def my_step_scores(
    logp: Tensor, ref_logp: Tensor, step_ends: Tensor, mask: Tensor, beta: float
) -> Tensor:
    """[B, T]: at the last token of each step its score, 0 elsewhere."""
    q = beta * ((logp - ref_logp) * mask).cumsum(-1)  # [B, T]
    scores = torch.zeros_like(q)
    for i in range(len(q)):
        before = torch.zeros_like(q[i, 0])
        for t in step_ends[i].nonzero()[:, 0].tolist():
            scores[i, t], before = q[i, t] - before, q[i, t]
    return scores


def _q(logp: Tensor, ref_logp: Tensor, mask: Tensor, beta: float) -> Tensor:
    return beta * ((logp - ref_logp) * mask).cumsum(-1)


def _values(
    logp: Tensor, ref_logp: Tensor, step_ends: Tensor, mask: Tensor, beta: float
) -> Tensor:
    return _q(logp, ref_logp, mask, beta) * step_ends


def _last_token(
    logp: Tensor, ref_logp: Tensor, step_ends: Tensor, mask: Tensor, beta: float
) -> Tensor:
    return beta * (logp - ref_logp) * mask * step_ends


def _mean(
    logp: Tensor, ref_logp: Tensor, step_ends: Tensor, mask: Tensor, beta: float
) -> Tensor:
    ones = torch.zeros_like(logp)
    count = my_step_scores(ones + 1, ones, step_ends, mask, 1.0)
    return my_step_scores(logp, ref_logp, step_ends, mask, beta) / count.clamp(min=1)


def _every_token(
    logp: Tensor, ref_logp: Tensor, step_ends: Tensor, mask: Tensor, beta: float
) -> Tensor:
    return beta * (logp - ref_logp) * mask


def _case(generator: Generator, beta: float) -> Case:
    B, T = 3, 6
    shape = (B, T)
    mask = torch.ones(shape).double()
    mask[1, 1] = 0.0  # a token that a tool wrote
    mask[2, 4:] = 0.0
    ends = torch.zeros(shape).double()
    for i in range(B):
        ends[i, integer(generator, 2, 4)] = 1
        ends[i, 0] = float(integer(generator, 0, 2))
    ends[0, 5] = 1
    logp, ref = (-3 * torch.rand(shape, generator=generator).double() for _ in range(2))
    return Case(
        {"logp": logp, "ref_logp": ref, "step_ends": ends, "mask": mask, "beta": beta}
    )


def _draw(generator: Generator) -> Case:
    return _case(generator, 0.1 + float(torch.rand((), generator=generator)))


IMPLICIT = Exercise(
    id="prm-implicit-steps",
    title="step scores from two language models",
    concept="prm-orm",
    minutes=15,
    difficulty="core",
    statement=r"""
    The implicit PRM in code. `logp` and `ref_logp` `[B, T]` are the log-probabilities of the tokens under $\pi_\phi$ and
    $\pi_{ref}$, `step_ends` `[B, T]` is 1 on the last token of each step, and `mask` is 0 on tokens that the policy did not
    write (also in the middle). Write `my_step_scores(logp, ref_logp, step_ends, mask, beta)`: `[B, T]` with $q_k - q_{k-1}$ on the last token of each
    step, and 0 elsewhere. Tokens behind the last step belong to none.
    """,
    solution=my_step_scores,
    cases=(
        _case(torch.Generator().manual_seed(3), 0.5),
        _case(torch.Generator().manual_seed(4), 2.0),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _values,
            "These are the values of the prefixes. A step's score is what it adds.",
        ),
        Mistake(
            _last_token,
            "A step has more tokens than its last one, and all of them count.",
        ),
        Mistake(
            given(my_step_scores, beta=1.0), "The scale is wrong: what is a nat worth?"
        ),
        Mistake(
            swapped(my_step_scores, "logp", "ref_logp"),
            "The sign is wrong: the trained model stands in the numerator.",
        ),
        Mistake(
            given(my_step_scores, mask=torch.ones_like),
            "Tokens that the policy did not write count in your scores.",
        ),
        Mistake(
            _mean,
            "You average over the tokens of a step. Then the scores no longer sum to that of the completion.",
        ),
        Mistake(
            _every_token,
            "These are the parts of single tokens. They have to be collected at the ends of steps.",
        ),
    ),
    where="Sum the log-ratios from the first token on. What changes from the end of one step to the end of the next?",
    idea=r"""
    Let $q_t$ be $\beta$ times the sum of the log-ratios of trained tokens up to $t$. A step's score is $q$ at its
    own end minus $q$ at the end of the step before; the first step begins at 0.
    """,
    outline="""
    ```python
    q = ...  # [B, T], a running sum of what the policy wrote
    for i in range(len(q)):
        before = ...
        for t in ...:  # the ends of this row's steps, in order
            scores[i, t], before = ..., ...
    ```
    """,
    right="Right. The sum over all steps is the completion's own log-ratio, less what stands behind the last step.",
)
