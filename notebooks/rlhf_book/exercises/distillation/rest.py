"""The reverse KL over the best tokens of the student, all others put into one."""

import torch
from torch import Generator, Tensor

from ..exercise import Case, Exercise, Mistake


def my_kl_with_rest(student: Tensor, teacher: Tensor, k: int) -> Tensor:
    """[V] logits of both -> scalar: KL over the student's top k and a rest."""
    p, u = student.softmax(-1), teacher.softmax(-1)
    top = p.topk(k).indices
    a, b = 1 - p[top].sum(), 1 - u[top].sum()
    return (p[top] * (p[top] / u[top]).log()).sum() + a * (a / b).log()


def _cut(student: Tensor, teacher: Tensor, k: int) -> Tensor:
    p, u = student.softmax(-1), teacher.softmax(-1)
    top = p.topk(k).indices
    return (p[top] * (p[top] / u[top]).log()).sum()


def _renormalised(student: Tensor, teacher: Tensor, k: int) -> Tensor:
    p, u = student.softmax(-1), teacher.softmax(-1)
    top = p.topk(k).indices
    a, b = p[top] / p[top].sum(), u[top] / u[top].sum()
    return (a * (a / b).log()).sum()


def _teachers(student: Tensor, teacher: Tensor, k: int) -> Tensor:
    p, u = student.softmax(-1), teacher.softmax(-1)
    top = u.topk(k).indices
    a, b = 1 - p[top].sum(), 1 - u[top].sum()
    return (p[top] * (p[top] / u[top]).log()).sum() + a * (a / b).log()


def _own_sets(student: Tensor, teacher: Tensor, k: int) -> Tensor:
    p, u = student.softmax(-1).topk(k).values, teacher.softmax(-1).topk(k).values
    a, b = 1 - p.sum(), 1 - u.sum()
    return (p * (p / u).log()).sum() + a * (a / b).log()


def _forward(student: Tensor, teacher: Tensor, k: int) -> Tensor:
    p, u = student.softmax(-1), teacher.softmax(-1)
    top = p.topk(k).indices
    a, b = 1 - p[top].sum(), 1 - u[top].sum()
    return (u[top] * (u[top] / p[top]).log()).sum() + b * (b / a).log()


def _whole(student: Tensor, teacher: Tensor, k: int) -> Tensor:
    p, u = student.softmax(-1), teacher.softmax(-1)
    return (p * (p / u).log()).sum()


def _draw(generator: Generator) -> Case:
    student, teacher = 2 * torch.randn(2, 8, generator=generator, dtype=torch.float64)
    k = int(torch.randint(1, 6, (1,), generator=generator))
    return Case({"student": student, "teacher": teacher, "k": k})


def _case(student: list[float], teacher: list[float], k: int) -> Case:
    rows = [torch.tensor(x, dtype=torch.float64) for x in (student, teacher)]
    return Case({"student": rows[0], "teacher": rows[1], "k": k})


REST = Exercise(
    id="dist-rest",
    title="the student's top k",
    concept="distillation-estimators",
    minutes=10,
    difficulty="core",
    statement=r"""
    An inference server hands out the *teacher's* best $k$ tokens, and the KL puts all others into one. Now the trainer chooses: it
    asks the teacher for the tokens that *the student* finds most probable, and for nothing else. Predict: can this KL see that the student
    misses the teacher's favourite token? Write `my_kl_with_rest(student, teacher, k)`: the KL from student to teacher after all
    tokens outside of the student's top $k$ have become one. Logits are `[V]`, without ties; the result is a scalar.
    """,
    solution=my_kl_with_rest,
    cases=(
        _case([3.0, 2.0, 1.0, 0.0], [0.0, 1.0, 2.0, 3.5], 2),
        _case([3.0, 2.0, 1.0, 0.0], [2.0, 3.0, 0.0, -1.0], 1),
        _case([0.1, 0.2, 0.3, 2.0, 1.0], [4.0, 0.0, 1.0, 1.5, 0.0], 3),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _cut,
            "Without the rest this is no divergence: it can be negative, and rewards leaving the set.",
        ),
        Mistake(
            _renormalised,
            "You have divided by the mass of the set. Then nobody notices how much lies outside.",
        ),
        Mistake(
            _teachers, "These are the teacher's best tokens. Asked are the student's."
        ),
        Mistake(
            _own_sets,
            "You compare the student's best token with the teacher's best, whatever they are. Take one set for both.",
        ),
        Mistake(_forward, "That is the other direction: teacher from student."),
        Mistake(_whole, "That is the whole vocabulary."),
    ),
    where="k + 1 outcomes: the chosen tokens as they are, and one with all that is left, of student and of teacher.",
    idea="""
    Choose the $k$ tokens by the student. Then there are two distributions over $k+1$ outcomes; the last one is 1
    minus the mass of the chosen, for the student and for the teacher. The KL is a sum over all of them.
    """,
    outline="""
    ```python
    top = ...  # indices of the student's favourites
    a, b = ..., ...  # what is left of each
    return (...).sum() + ...  # the chosen tokens, and the rest as one token
    ```
    """,
    right="Right. It sees a missing favourite only as mass of the rest, and says nothing about which token it is. Who would tell the student?",
)
