"""What a baseline from elsewhere says about a group in which everything is wrong."""

import torch
from torch import Generator, Tensor

from ..draws import integer, uniform
from ..exercise import Case, Exercise, Mistake
from ..mistakes import negated


def my_all_wrong_push(
    p: float, grad_p: Tensor, baseline: float, group_size: int
) -> Tensor:
    """E[1/G sum_i (R_i - b) grad log pi(o_i)], given all wrong; grad_p is [N]."""
    return baseline / (1 - p) * grad_p


def _score_averages_to_zero(
    p: float, grad_p: Tensor, baseline: float, group_size: int
) -> Tensor:
    return 0 * grad_p


def _not_given(p: float, grad_p: Tensor, baseline: float, group_size: int) -> Tensor:
    return baseline * grad_p


def _given_right(p: float, grad_p: Tensor, baseline: float, group_size: int) -> Tensor:
    return baseline / max(p, 1e-3) * grad_p


def _summed(p: float, grad_p: Tensor, baseline: float, group_size: int) -> Tensor:
    return group_size * my_all_wrong_push(p, grad_p, baseline, group_size)


def _of_the_whole_group(
    p: float, grad_p: Tensor, baseline: float, group_size: int
) -> Tensor:
    return baseline / (1 - p) ** group_size * grad_p


def _own_baseline(p: float, grad_p: Tensor, baseline: float, group_size: int) -> Tensor:
    return p / (1 - p) * grad_p


def _times_its_chance(
    p: float, grad_p: Tensor, baseline: float, group_size: int
) -> Tensor:
    return (1 - p) ** group_size * my_all_wrong_push(p, grad_p, baseline, group_size)


def _draw(generator: Generator) -> Case:
    p, baseline = uniform(generator, 2).tolist()
    grad_p = 2 * uniform(generator, integer(generator, 1, 6)) - 1
    return Case(
        {
            "p": 0.95 * p,
            "grad_p": grad_p,
            "baseline": baseline,
            "group_size": integer(generator, 2, 17),
        }
    )


ALL_WRONG = Exercise(
    id="grpo-all-wrong",
    title="what can be learnt when everything is wrong?",
    concept="q-x-all-wrong",
    minutes=10,
    difficulty="core",
    statement=r"""
    Rewards are 0 or 1 and a completion is right with probability $p < 1$. Instead of the group's mean subtract a number
    $b$ that comes from elsewhere, such as the average reward of other prompts, and do not divide by anything. Write
    `my_all_wrong_push(p, grad_p, baseline, group_size)`: the expected step
    $\frac1G \sum_i (R_i - b) \nabla \log \pi(o_i)$, given that all $G$ completions turned out wrong. `grad_p` is
    $\nabla p$, `[N]`, and so is the result. Then put in $p = 0$, where $\nabla p$ is 0 as well: what is left of the
    idea?
    """,
    solution=my_all_wrong_push,
    cases=(
        Case(
            {
                "p": 0.25,
                "grad_p": torch.tensor([0.2, -0.1], dtype=torch.float64),
                "baseline": 0.5,
                "group_size": 4,
            }
        ),
        Case(
            {
                "p": 0.5,
                "grad_p": torch.tensor([0.3], dtype=torch.float64),
                "baseline": 0.25,
                "group_size": 8,
            }
        ),
        Case(
            {
                "p": 0.0,
                "grad_p": torch.zeros(3, dtype=torch.float64),
                "baseline": 0.5,
                "group_size": 8,
            }
        ),
        Case(
            {
                "p": 0.1,
                "grad_p": torch.tensor([0.1, 0.4], dtype=torch.float64),
                "baseline": 0.0,
                "group_size": 2,
            }
        ),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            negated(my_all_wrong_push),
            "Away from what fails is towards what works: which sign has that along the gradient of p?",
        ),
        Mistake(
            _score_averages_to_zero,
            "The score averages to zero over all completions. Here only the wrong ones are left.",
        ),
        Mistake(
            _not_given,
            "This is the average over all completions, with zero for the right ones. The exercise asks for the average "
            "among the wrong ones.",
        ),
        Mistake(
            _given_right,
            "You condition on the right completions. These are the wrong ones.",
        ),
        Mistake(_summed, "You add up the group. The step is its mean."),
        Mistake(
            _of_the_whole_group,
            "That all others are wrong too tells nothing about this completion: they are drawn independently.",
        ),
        Mistake(
            _own_baseline,
            "You subtract p. The number to subtract is the one given, wherever it comes from.",
        ),
        Mistake(
            _times_its_chance,
            "You weigh the step by the chance of such a group. Given that it happened, that chance is 1.",
        ),
    ),
    where="Split E[grad log pi] = 0 into its right and its wrong part: what is E[grad log pi | wrong]?",
    idea=r"""
    Given that all are wrong, every $R_i$ is 0, and the sum is $-b$ times the mean score of a wrong completion.
    Because $\mathbb E[\nabla\log\pi] = 0$, the probability-weighted scores of right and wrong ones cancel; and
    those of the right ones are $\nabla p$.
    """,
    outline=r"""
    $p\,\mathbb E[\nabla\log\pi \mid \text{right}] = \nabla p$, and $(1 - p)\,\mathbb E[\nabla\log\pi \mid
    \text{wrong}]$ is minus that. So the mean score of a wrong completion is $-\nabla p$ over something, and

    ```python
    return ... * grad_p  # one number times the vector; G is gone: why?
    ```
    """,
    right="Right. A push away from failure is a push towards success, as long as success is possible at all.",
)
