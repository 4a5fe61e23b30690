"""What a perfect imitator of a teacher gets right, sampled and greedy."""

import torch
from torch import Generator, Tensor

from ..draws import integer
from ..exercise import Case, Exercise, Mistake


def my_two_decoders(teacher: Tensor, right: Tensor) -> Tensor:
    """[Q, A] chances of each answer, [Q] the right one: [2], sampled and greedy."""
    sampled = teacher.gather(1, right[:, None].long()).mean()
    greedy = (teacher.argmax(1) == right).double().mean()
    return torch.stack([sampled, greedy.to(sampled)])


def _swapped(teacher: Tensor, right: Tensor) -> Tensor:
    return my_two_decoders(teacher, right).flip(0)


def _sampled_twice(teacher: Tensor, right: Tensor) -> Tensor:
    return my_two_decoders(teacher, right)[:1].expand(2)


def _over_half(teacher: Tensor, right: Tensor) -> Tensor:
    p = teacher.gather(1, right[:, None].long()).squeeze(1)
    return torch.stack([p.mean(), (p > 0.5).to(p).mean()])


def _most_probable_chance(teacher: Tensor, right: Tensor) -> Tensor:
    sampled = my_two_decoders(teacher, right)[0]
    return torch.stack([sampled, teacher.amax(1).mean()])


def _one_for_all(teacher: Tensor, right: Tensor) -> Tensor:
    sampled = my_two_decoders(teacher, right)[0]
    best = teacher.mean(0).argmax()
    return torch.stack([sampled, (right == best).to(sampled).mean()])


def _agreement(teacher: Tensor, right: Tensor) -> Tensor:
    greedy = my_two_decoders(teacher, right)[1]
    return torch.stack([(teacher**2).sum(1).mean(), greedy])


def _table(rows: list[list[float]], right: list[int]) -> Case:
    return Case(
        {
            "teacher": torch.tensor(rows, dtype=torch.float64),
            "right": torch.tensor(right),
        }
    )


def _draw(generator: Generator) -> Case:
    Q, A = integer(generator, 1, 6), integer(generator, 2, 5)
    logits = 2 * torch.randn(Q, A, generator=generator, dtype=torch.float64)
    right = torch.randint(A, (Q,), generator=generator)
    return Case({"teacher": logits.softmax(-1), "right": right})


TWO_DECODERS = Exercise(
    id="lm-two-decoders",
    title="better than the teacher",
    concept="sft",
    minutes=8,
    difficulty="core",
    statement=r"""
    For each of $Q$ questions a teacher gives each of $A$ answers with the chances in `teacher` `[Q, A]`; `right` `[Q]` says which
    one is right. A model imitates perfectly. Write `my_two_decoders`: its share of right answers if it samples, and if it is greedy.
    (An answer is one token here.) Then find a teacher whose imitator is greedy always right, and who is himself right in less
    than one answer of four.
    """,
    solution=my_two_decoders,
    cases=(
        _table([[0.2, 0.8, 0.0], [1.0, 0.0, 0.0]], [0, 0]),
        _table([[0.4, 0.35, 0.25], [0.3, 0.3, 0.4], [0.1, 0.6, 0.3]], [0, 1, 1]),
        _table([[0.2, 0.15, 0.35, 0.3], [0.1, 0.4, 0.3, 0.2]], [2, 0]),
    ),
    draw=_draw,
    mistakes=(
        Mistake(_swapped, "The first number is for sampling, the second for greedy."),
        Mistake(_sampled_twice, "Greedy does not draw: it always takes one answer."),
        Mistake(
            _over_half,
            "The most probable answer need not have more than half of the probability.",
        ),
        Mistake(
            _most_probable_chance,
            "This is the chance of the likeliest answer. Is that answer right?",
        ),
        Mistake(
            _one_for_all,
            "You take the likeliest answer over all questions. It differs from question to question.",
        ),
        Mistake(
            _agreement,
            "This is how often two draws agree. What is the chance of the right answer?",
        ),
    ),
    where="A perfect imitator is the teacher's distribution: one number is a mean probability, the other counts argmaxes.",
    idea="""
    A sampled answer is right with the probability that the teacher gives to the right answer. A greedy answer is
    right or wrong: it is the likeliest one, and either that is the right one or it is not. Both are then averaged
    over the questions.
    """,
    outline="""
    ```python
    sampled = teacher.gather(..., ...).mean()  # one number a row: the chance of its right answer
    greedy = (... == ...).double().mean()
    ```

    Both go into one tensor of two numbers.
    """,
    right=(
        "Right. Where errors scatter, the right answer can be the likeliest with little probability; with twenty answers, "
        "0.24 for the right one and 0.04 for each other is enough. Where an error is systematic, greedy is worse than sampling."
    ),
)
