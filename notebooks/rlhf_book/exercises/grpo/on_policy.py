"""A loss of zero that teaches."""

import torch
from torch import Generator, Tensor

from ..draws import any_batch, batch, books_batch, mean_of_means
from ..exercise import Case, Exercise, Mistake
from ..mistakes import negated

BOOK = books_batch()


def my_on_policy_loss(logp: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """logp, mask [B, T], advantages [B] -> scalar: GRPO's loss on fresh samples."""
    ratio = torch.exp(logp - logp.detach())  # 1 everywhere, with the gradient of log pi
    per_completion = (ratio * advantages[:, None] * mask).sum(1) / mask.sum(1)  # [B]
    return -per_completion.mean()


def _same_twice(logp: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    return -mean_of_means(torch.exp(logp - logp) * advantages[:, None], mask)


def _reinforce(logp: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    return -mean_of_means(logp * advantages[:, None], mask)


def _wrong_one_detached(logp: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    return -mean_of_means(torch.exp(logp.detach() - logp) * advantages[:, None], mask)


def _on_policy_log(logp: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    return -mean_of_means((logp - logp.detach()) * advantages[:, None], mask)


def _on_policy_no_mask(logp: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    return -(torch.exp(logp - logp.detach()) * advantages[:, None]).mean()


def _on_policy_padded(logp: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    return -(torch.exp(logp - logp.detach()) * advantages[:, None] * mask).mean()


def _on_policy_tokens(logp: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    return (
        -(torch.exp(logp - logp.detach()) * advantages[:, None] * mask).sum()
        / mask.sum()
    )


def _on_policy_quotient_of_logs(
    logp: Tensor, advantages: Tensor, mask: Tensor
) -> Tensor:
    return -mean_of_means(logp / logp.detach() * advantages[:, None], mask)


def _draw_on_policy(generator: Generator) -> Case:
    return _on_policy_case(any_batch(generator))


def _on_policy_case(batch: dict[str, Tensor]) -> Case:
    return Case({name: batch[name] for name in ("logp", "advantages", "mask")})


ON_POLICY = Exercise(
    id="grpo-on-policy",
    title="a loss of zero that teaches",
    concept="grpo-objective",
    minutes=10,
    difficulty="core",
    statement=r"""
    In the first step after sampling the policy *is* the old policy. Write `my_on_policy_loss(logp, advantages, mask)`:
    GRPO's loss (mean within each completion, then over completions; no clip, no KL) with

    $$w_{i,t} = \frac{\pi(o_{i,t})}{\pi_{\mathrm{old}}(o_{i,t})},
    \qquad \pi_{\mathrm{old}} = \pi \text{ as it is now, a constant.}$$

    There is no second tensor of log-probs to read: you have to make the constant. The value should be what the formula
    says, and the gradient alive. The checker compares both.
    """,
    solution=my_on_policy_loss,
    cases=(
        _on_policy_case(BOOK),
        Case(
            {
                "logp": torch.tensor([[-0.7]]),
                "advantages": torch.tensor([2.0]),
                "mask": torch.ones(1, 1),
            }
        ),
        _on_policy_case(batch([2, 5, 1], Generator().manual_seed(7))),
    ),
    draw=_draw_on_policy,
    mistakes=(
        Mistake(
            _same_twice,
            "The value is right and the gradient is zero. A ratio that happens to be 1 still has a derivative: the "
            "old policy is a constant, even where it equals the new one, and the new one is not.",
        ),
        Mistake(
            _reinforce,
            "The gradient is right, the value is not: this is -A log pi, whose derivative happens to agree. The "
            "exercise asks for the ratio, whose value here is 1.",
        ),
        Mistake(
            _wrong_one_detached,
            "The wrong half is held constant: the numerator is the policy that learns.",
        ),
        Mistake(
            _on_policy_log,
            "This is the logarithm of the ratio: right gradient, but the value is always 0.",
        ),
        Mistake(
            _on_policy_quotient_of_logs,
            "You divide one log-prob by the other: 1 as well, but with another gradient. w is a quotient of "
            "probabilities: log-probs subtract, and the difference is exponentiated.",
        ),
        Mistake(
            negated(my_on_policy_loss),
            "The sign: this is the objective. A loss is minimised.",
        ),
        Mistake(
            _on_policy_no_mask,
            "The mask is not used: padding is averaged as if it had been sampled.",
        ),
        Mistake(
            _on_policy_padded,
            "You divide by the padded width T; each completion has its own length.",
        ),
        Mistake(
            _on_policy_tokens,
            "This is one mean over all tokens. GRPO averages within a completion first.",
        ),
    ),
    where="With one completion of one token: what is the value, and what is its derivative with respect to log pi?",
    idea=r"""
    The value of the ratio is 1 and its derivative in $\log\pi$ is 1 as well. So make $e^{x - c}$ in which $c$ has
    the value of $x$ and no gradient.
    """,
    outline="""
    ```python
    ratio = torch.exp(logp - ...)  # 1 everywhere, and alive
    per_completion = ...  # [B], a mean within each
    return -per_completion.mean()
    ```
    """,
    right="Right: the value says nothing about learning. Print it for advantages that sum to zero.",
    gradient_of="logp",
)
