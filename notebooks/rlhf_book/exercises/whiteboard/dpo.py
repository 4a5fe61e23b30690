"""DPO's loss, from the log-probs of whole completions."""

import torch
from torch import Generator, Tensor
from torch.nn.functional import logsigmoid

from ..draws import integer
from ..exercise import Case, Exercise, Mistake
from ..mistakes import given, negated


def my_dpo_loss(
    chosen: Tensor,
    rejected: Tensor,
    ref_chosen: Tensor,
    ref_rejected: Tensor,
    beta: float,
) -> Tensor:
    """Log-probs [N] under policy and reference -> one number, to minimise."""
    margin = (chosen - ref_chosen) - (rejected - ref_rejected)
    return -torch.nn.functional.logsigmoid(beta * margin).mean()


def _no_reference(
    chosen: Tensor,
    rejected: Tensor,
    ref_chosen: Tensor,
    ref_rejected: Tensor,
    beta: float,
) -> Tensor:
    return -logsigmoid(beta * (chosen - rejected)).mean()


def _swapped(
    chosen: Tensor,
    rejected: Tensor,
    ref_chosen: Tensor,
    ref_rejected: Tensor,
    beta: float,
) -> Tensor:
    return my_dpo_loss(rejected, chosen, ref_rejected, ref_chosen, beta)


def _beta_outside(
    chosen: Tensor,
    rejected: Tensor,
    ref_chosen: Tensor,
    ref_rejected: Tensor,
    beta: float,
) -> Tensor:
    return beta * my_dpo_loss(chosen, rejected, ref_chosen, ref_rejected, 1.0)


def _no_logarithm(
    chosen: Tensor,
    rejected: Tensor,
    ref_chosen: Tensor,
    ref_rejected: Tensor,
    beta: float,
) -> Tensor:
    margin = (chosen - ref_chosen) - (rejected - ref_rejected)
    return -torch.sigmoid(beta * margin).mean()


def _same_reference(
    chosen: Tensor,
    rejected: Tensor,
    ref_chosen: Tensor,
    ref_rejected: Tensor,
    beta: float,
) -> Tensor:
    return my_dpo_loss(chosen, rejected, chosen, rejected, beta)


def _summed(
    chosen: Tensor,
    rejected: Tensor,
    ref_chosen: Tensor,
    ref_rejected: Tensor,
    beta: float,
) -> Tensor:
    return len(chosen) * my_dpo_loss(chosen, rejected, ref_chosen, ref_rejected, beta)


def _only_the_chosen(
    chosen: Tensor,
    rejected: Tensor,
    ref_chosen: Tensor,
    ref_rejected: Tensor,
    beta: float,
) -> Tensor:
    return -logsigmoid(beta * (chosen - ref_chosen)).mean()


def _squared(
    chosen: Tensor,
    rejected: Tensor,
    ref_chosen: Tensor,
    ref_rejected: Tensor,
    beta: float,
) -> Tensor:
    margin = (chosen - ref_chosen) - (rejected - ref_rejected)
    return ((margin - 1 / (2 * beta)) ** 2).mean()


def _overflows(
    chosen: Tensor,
    rejected: Tensor,
    ref_chosen: Tensor,
    ref_rejected: Tensor,
    beta: float,
) -> Tensor:
    margin = (chosen - ref_chosen) - (rejected - ref_rejected)
    return -torch.log(torch.sigmoid(beta * margin)).mean()


def _case(n: int, generator: Generator, beta: float, long: bool = False) -> Case:
    ref = -20 * torch.rand(2, n, generator=generator, dtype=torch.float64) - 1
    now = ref + 3 * torch.randn(2, n, generator=generator, dtype=torch.float64)
    if long:  # thousands of tokens, in single precision
        ref, now = (300 * ref).float(), (300 * now).float()
    return Case(
        {
            "chosen": now[0].clamp(max=-0.1),
            "rejected": now[1].clamp(max=-0.1),
            "ref_chosen": ref[0],
            "ref_rejected": ref[1],
            "beta": beta,
        }
    )


def _draw(generator: Generator) -> Case:
    beta = (0.05, 0.1, 0.3, 0.5)[integer(generator, 0, 4)]
    return _case(
        integer(generator, 1, 7), generator, beta, long=integer(generator, 0, 3) == 0
    )


def _printed(numbers: dict[str, list[float]]) -> Case:
    tensors = {name: torch.tensor(value) for name, value in numbers.items()}
    return Case({**tensors, "beta": 0.5})


DPO = Exercise(
    id="board-dpo",
    title="DPO's loss",
    concept="dpo",
    minutes=6,
    difficulty="core",
    statement=r"""
    Write `my_dpo_loss(chosen, rejected, ref_chosen, ref_rejected, beta)`. The first four are log-probs of whole
    completions, `[N]` each, summed over their tokens: of the chosen and of the rejected one under the policy, then under
    the reference. DPO is the loss of a reward model whose reward is $\beta \log \frac{\pi(y)}{\pi_{\mathrm{ref}}(y)}$: the
    mean over pairs of minus the log of the probability with which the chosen one wins. It has to survive log-ratios in the
    thousands, in single precision. The checker compares the value and the gradients with respect to `chosen` and
    `rejected`.
    """,
    solution=my_dpo_loss,
    cases=(
        _printed(
            {
                "chosen": [-4.0, -6.0],
                "rejected": [-5.0, -3.0],
                "ref_chosen": [-5.0, -5.5],
                "ref_rejected": [-4.5, -4.0],
            }
        ),
        _case(1, torch.Generator().manual_seed(0), 0.1),
        _case(4, torch.Generator().manual_seed(1), 0.3),
        Case(
            {
                "chosen": torch.tensor([-2400.0, -310.0]),
                "rejected": torch.tensor([-300.0, -2200.0]),
                "ref_chosen": torch.tensor([-500.0, -300.0]),
                "ref_rejected": torch.tensor([-400.0, -350.0]),
                "beta": 0.1,
            }
        ),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _no_reference,
            "The reference is not used. The implicit reward of a completion is a log-ratio: which two policies does it compare?",
        ),
        Mistake(_swapped, "This loss is small when the rejected completion wins."),
        Mistake(
            given(my_dpo_loss, beta=1.0),
            "There is no beta: it scales the implicit reward.",
        ),
        Mistake(
            _beta_outside,
            "Beta stands outside of the logarithm, where it only changes the step size. It scales the reward.",
        ),
        Mistake(
            given(my_dpo_loss, beta=lambda beta: 1 / beta),
            "You divide by beta: a small one should make the reward of a given log-ratio small.",
        ),
        Mistake(
            given(
                my_dpo_loss,
                ref_chosen=lambda ref_chosen: -ref_chosen,
                ref_rejected=lambda ref_rejected: -ref_rejected,
            ),
            "The reference has the wrong sign: a completion's reward is 0 where both policies agree on it.",
        ),
        Mistake(
            _no_logarithm,
            "This is minus the probability that the chosen one wins. Take its logarithm.",
        ),
        Mistake(
            _same_reference,
            "Policy and reference are the same numbers here: the loss would stay at log 2, with the wrong gradient.",
        ),
        Mistake(
            _summed, "This is the sum over the pairs; the mean over them is asked for."
        ),
        Mistake(
            negated(my_dpo_loss), "This is to be maximised: a loss has the other sign."
        ),
        Mistake(
            _only_the_chosen,
            "The rejected completion does not enter: a comparison needs the rewards of both.",
        ),
        Mistake(_squared, "This is IPO's squared loss, a cell away from DPO's."),
        Mistake(
            _overflows,
            "Right for short completions. A log-ratio of a long one can be in the thousands, and the probability is rounded "
            "to 0 before its logarithm is taken.",
        ),
        Mistake(
            given(my_dpo_loss, rejected=Tensor.detach),
            "The value is right, but no gradient reaches `rejected`: half of the method is missing.",
        ),
    ),
    where="Write the reward model's loss first, then put the implicit rewards into it.",
    idea=r"""
    The implicit reward is $\beta$ times a log-ratio. The reward model's loss asks for chosen minus rejected, so
    there are four log-probs in one margin, with two signs each.
    """,
    outline="""
    ```python
    margin = (...) - (...)  # [N], a log-ratio of each completion
    return ...  # minus a mean: as in the reward model's loss
    ```
    """,
    right="Right. Which log-probs can be computed once, before training, and which at every step?",
    gradient_of=("chosen", "rejected"),
)
