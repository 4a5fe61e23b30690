"""The penalty k3 and its direction."""

import torch
from torch import Generator, Tensor

from ..draws import (
    any_batch,
    batch,
    books_batch,
    holed,
    mean_of_means,
    to_the_front,
)
from ..exercise import Case, Exercise, Mistake
from ..mistakes import given, negated, swapped

BOOK = books_batch()


def my_k3_penalty(logp: Tensor, ref_logp: Tensor, mask: Tensor) -> Tensor:
    """logp, ref_logp, mask [B, T] -> scalar: the mean of k3 as in GRPO."""
    log_ratio = ref_logp - logp  # [B, T], of the reference to the policy
    k3 = torch.exp(log_ratio) - 1 - log_ratio
    return ((k3 * mask).sum(1) / mask.sum(1)).mean()


def _k1(logp: Tensor, ref_logp: Tensor, mask: Tensor) -> Tensor:
    return mean_of_means(logp - ref_logp, mask)


def _k2(logp: Tensor, ref_logp: Tensor, mask: Tensor) -> Tensor:
    return mean_of_means((logp - ref_logp) ** 2 / 2, mask)


def _k3_without_one(logp: Tensor, ref_logp: Tensor, mask: Tensor) -> Tensor:
    return mean_of_means(torch.exp(ref_logp - logp) - (ref_logp - logp), mask)


def _k3_sign_of_log(logp: Tensor, ref_logp: Tensor, mask: Tensor) -> Tensor:
    return mean_of_means(torch.exp(ref_logp - logp) - 1 + (ref_logp - logp), mask)


def _k3_no_mask(logp: Tensor, ref_logp: Tensor, mask: Tensor) -> Tensor:
    return (torch.exp(ref_logp - logp) - 1 - (ref_logp - logp)).mean()


def _k3_padded(logp: Tensor, ref_logp: Tensor, mask: Tensor) -> Tensor:
    return ((torch.exp(ref_logp - logp) - 1 - (ref_logp - logp)) * mask).mean()


def _k3_token_mean(logp: Tensor, ref_logp: Tensor, mask: Tensor) -> Tensor:
    return (
        (torch.exp(ref_logp - logp) - 1 - (ref_logp - logp)) * mask
    ).sum() / mask.sum()


def _k3_sum(logp: Tensor, ref_logp: Tensor, mask: Tensor) -> Tensor:
    return ((torch.exp(ref_logp - logp) - 1 - (ref_logp - logp)) * mask).sum(1).mean()


def _k3_quotient_of_logs(logp: Tensor, ref_logp: Tensor, mask: Tensor) -> Tensor:
    r = ref_logp / logp
    return mean_of_means(r - 1 - torch.log(r), mask)


def _k3_times_beta(logp: Tensor, ref_logp: Tensor, mask: Tensor) -> Tensor:
    return 0.04 * my_k3_penalty(
        logp, ref_logp, mask
    )  # GRPO's beta; other values are told as a factor


def _front(logp: Tensor, ref_logp: Tensor, mask: Tensor) -> Tensor:
    return my_k3_penalty(logp, ref_logp, to_the_front(mask))


def _draw_penalty(generator: Generator) -> Case:
    return _penalty_case(any_batch(generator, holes=True))


def _penalty_case(batch: dict[str, Tensor]) -> Case:
    return Case(
        {"logp": batch["logp"], "ref_logp": batch["old_logp"], "mask": batch["mask"]}
    )


K3 = Exercise(
    id="grpo-k3",
    title="the KL penalty",
    concept="grpo-objective",
    minutes=10,
    difficulty="core",
    statement=r"""
    Write `my_k3_penalty(logp, ref_logp, mask)`, the term that GRPO multiplies by $\beta$ and adds to the loss. For
    each trained token (the mask is 1 there, and may be 0 between two of them)

    $$k_3 = r - 1 - \log r, \qquad r = \frac{\pi_{\mathrm{ref}}(o_{i,t})}{\pi(o_{i,t})},$$

    then the mean within each completion and the mean over completions. Mind which policy stands on top. The checker
    compares the value and the gradient with respect to `logp`.
    """,
    solution=my_k3_penalty,
    cases=(
        _penalty_case({**BOOK, "old_logp": BOOK["ref_logp"]}),
        Case(
            {
                "logp": torch.tensor([[-1.0]]),
                "ref_logp": torch.tensor([[-3.0]]),
                "mask": torch.ones(1, 1),
            }
        ),
        Case(
            {
                "logp": torch.tensor([[-3.0]]),
                "ref_logp": torch.tensor([[-1.0]]),
                "mask": torch.ones(1, 1),
            }
        ),
        _penalty_case(batch([2, 5, 1], Generator().manual_seed(5), apart=1.0)),
        _penalty_case(holed(batch([5, 4, 6], Generator().manual_seed(4)))),
    ),
    draw=_draw_penalty,
    mistakes=(
        Mistake(
            swapped(my_k3_penalty, "logp", "ref_logp"),
            "The ratio is upside down, pi over pi_ref. Near the reference the two look alike; at a log-ratio of 10 "
            "yours is 22015 and the right one is 9. On samples of pi it estimates another divergence.",
        ),
        Mistake(
            _k1,
            "This is k1, the plain log-ratio. In the loss its expected gradient is zero: it holds nothing back.",
        ),
        Mistake(
            _k2, "This is k2, half the squared log-ratio. The exercise asks for k3."
        ),
        Mistake(
            _k3_without_one,
            "Two equal policies should cost nothing. What is your value at r = 1?",
        ),
        Mistake(
            _k3_sign_of_log,
            "The sign of the logarithm: k3 is never negative, and yours is for r below 1.",
        ),
        Mistake(
            given(my_k3_penalty, logp=Tensor.detach),
            "The value is right, but no gradient reaches `logp`: this penalty does not see the policy.",
        ),
        Mistake(
            _k3_no_mask,
            "The mask is not used: rubbish in the padding enters the penalty.",
        ),
        Mistake(
            _front,
            "You read as many tokens from the front of a row as it has trained ones. The mask may have zeros in between, "
            "where a tool's output stands: multiply by it.",
        ),
        Mistake(
            _k3_padded,
            "You divide by the padded width T; each completion has its own length.",
        ),
        Mistake(
            _k3_token_mean,
            "This is one mean over all tokens. GRPO averages within a completion first.",
        ),
        Mistake(
            _k3_sum,
            "Within a completion you sum over tokens: the factor 1/|o| is missing.",
        ),
        Mistake(
            negated(my_k3_penalty),
            "The sign: a penalty is added to the loss, so it has to be positive.",
        ),
        Mistake(
            _k3_quotient_of_logs,
            "You divide one log-prob by the other. r is a quotient of probabilities: log-probs subtract, and the "
            "difference is exponentiated.",
        ),
        Mistake(
            _k3_times_beta,
            "Every number is 0.04 times the right one, as if beta were in it. Here the penalty is asked for alone: "
            "GRPO multiplies by beta afterwards.",
        ),
    ),
    where="Check one token by hand, once with the policy surer than the reference and once with it less sure.",
    idea=r"""
    Work with the logarithm: $\log r = \log\pi_{ref} - \log\pi$, one subtraction in a certain order. Then $r$ is its
    exponential. The two means are GRPO's, within each completion and then over completions.
    """,
    outline="""
    ```python
    log_ratio = ... - ...  # [B, T], which policy is on top?
    k3 = ... - 1 - ...
    return (... / mask.sum(1)).mean()
    ```
    """,
    right="Right, value and gradient. Which is larger: k3 where the policy is surer than the reference, or less sure?",
    gradient_of="logp",
)
