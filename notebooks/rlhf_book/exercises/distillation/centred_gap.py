"""The advantage of a sampled token, minus what it is on average."""

import torch
from torch import Generator, Tensor

from ..exercise import Case, Exercise, Mistake
from ..mistakes import negated


def my_centred_gap(student: Tensor, teacher: Tensor, ids: Tensor) -> Tensor:
    """[B, T, V] logits of both, [B, T] ids -> [B, T]: gaps whose mean is 0."""
    logp, logu = student.log_softmax(-1), teacher.log_softmax(-1)
    gap = logu - logp  # [B, T, V]
    mean = (logp.exp() * gap).sum(-1)  # [B, T], minus the KL
    return gap.gather(-1, ids[..., None])[..., 0] - mean


def _plain(student: Tensor, teacher: Tensor, ids: Tensor) -> Tensor:
    gap = teacher.log_softmax(-1) - student.log_softmax(-1)
    return gap.gather(-1, ids[..., None])[..., 0]


def _plain_mean(student: Tensor, teacher: Tensor, ids: Tensor) -> Tensor:
    gap = teacher.log_softmax(-1) - student.log_softmax(-1)
    return gap.gather(-1, ids[..., None])[..., 0] - gap.mean(-1)


def _teacher_mean(student: Tensor, teacher: Tensor, ids: Tensor) -> Tensor:
    logu = teacher.log_softmax(-1)
    gap = logu - student.log_softmax(-1)
    return gap.gather(-1, ids[..., None])[..., 0] - (logu.exp() * gap).sum(-1)


def _twice(student: Tensor, teacher: Tensor, ids: Tensor) -> Tensor:
    logp, logu = student.log_softmax(-1), teacher.log_softmax(-1)
    gap = logu - logp
    return gap.gather(-1, ids[..., None])[..., 0] + (logp.exp() * gap).sum(-1)


def _batch_mean(student: Tensor, teacher: Tensor, ids: Tensor) -> Tensor:
    gap = _plain(student, teacher, ids)
    return gap - gap.mean()


def _logits(student: Tensor, teacher: Tensor, ids: Tensor) -> Tensor:
    gap = teacher - student
    return gap.gather(-1, ids[..., None])[..., 0]


def _draw(generator: Generator) -> Case:
    student, teacher = 2 * torch.randn(
        2, 2, 3, 5, generator=generator, dtype=torch.float64
    )
    ids = torch.randint(5, (2, 3), generator=generator)
    return Case({"student": student, "teacher": teacher, "ids": ids})


def _case(student: list[float], teacher: list[float], token: int) -> Case:
    rows = [
        torch.tensor(x, dtype=torch.float64)[None, None] for x in (student, teacher)
    ]
    return Case(
        {"student": rows[0], "teacher": rows[1], "ids": torch.tensor([[token]])}
    )


CENTRED_GAP = Exercise(
    id="dist-centred-gap",
    title="a baseline for free",
    concept="distillation-estimators",
    minutes=10,
    difficulty="core",
    statement=r"""
    If you have all log-probs of a position, you can keep `opd` and give its advantage a baseline. Predict: is the
    gap of a sampled token positive or negative on average, if the student samples? Then write
    `my_centred_gap(student, teacher, ids)`: the gap $\log \pi_T - \log \pi$ of each sampled token, minus its exact mean
    over the tokens that the student could have drawn there. Logits are `[B, T, V]`, ids `[B, T]`; the result is `[B, T]`. To
    subtract a number that does not depend on the drawn token leaves the gradient unbiased. Why?
    """,
    solution=my_centred_gap,
    cases=(
        _case([0.0, 1.0, 2.0], [2.0, 1.0, 0.0], 0),
        _case([0.0, 1.0, 2.0], [2.0, 1.0, 0.0], 2),
        _case([1.0, 1.0, 3.0, 0.0], [1.0, 2.0, 0.0, 0.0], 1),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _plain, "That is the gap itself: its mean under the student is minus a KL."
        ),
        Mistake(
            _plain_mean,
            "You count every token of the vocabulary alike. How often does the student draw each?",
        ),
        Mistake(
            _teacher_mean,
            "You average over what the teacher would draw. Who has sampled?",
        ),
        Mistake(
            _twice,
            "The mean is added, not taken off: the average is now twice what it was.",
        ),
        Mistake(
            _batch_mean,
            "You take the mean over this batch's tokens. Each prefix has a mean of its own.",
        ),
        Mistake(
            negated(my_centred_gap),
            "The sign is turned: a token that the teacher likes better should be pushed up.",
        ),
        Mistake(
            _logits,
            "Differences of logits are not differences of log-probs: two normalising constants are missing.",
        ),
    ),
    where="For one prefix: the sum over the vocabulary of the student's probability times the gap.",
    idea="""
    At each place compute the gap for *all* tokens of the vocabulary, `[B, T, V]`. Its mean under the student is one
    number a place. Take the sampled token's gap, and subtract that.
    """,
    outline="""
    ```python
    gap = ... - ...  # [B, T, V], teacher minus student
    mean = ...  # [B, T], weighted with the student
    return ... - mean  # the gap at the sampled ids
    ```
    """,
    right="Right: on average the gap is minus the KL, so the baseline adds the KL. In the table of estimators in depth this is *sampled, minus the KL*.",
)
