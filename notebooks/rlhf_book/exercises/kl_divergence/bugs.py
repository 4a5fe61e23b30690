"""Find the bug: penalties on the distance from the reference, each as it was once written."""

from collections.abc import Callable

import torch
from torch import Tensor

from ..bug import Bug

# ── a penalty in the reward ──────────────────────────────────────────────────────────────────────────────────────


def suspect_penalised(
    rewards: Tensor, logp: Tensor, ref_logp: Tensor, mask: Tensor, beta: float
) -> Tensor:
    """Rewards [B] minus beta times the distance of each completion: [B]."""
    log_ratio = (logp - ref_logp) * mask  # [B, T]
    distance = log_ratio.sum(dim=1) / mask.sum(dim=1)  # [B]
    return rewards - beta * distance


def price_of_a_detour(penalised: Callable[..., Tensor]) -> None:
    """Eight odd tokens, and then more and more that the reference writes as well."""
    for rest in (0, 8, 56, 248):
        mask = torch.ones(1, 8 + rest)
        ref_logp = torch.full_like(mask, -3.0)
        logp = ref_logp + 0.5 * (torch.arange(8 + rest) < 8)
        reward = penalised(torch.ones(1), logp, ref_logp, mask, 0.1).item()
        print(f"8 odd tokens and {rest:3d} usual ones: penalty {1 - reward:.4f}")


def usual_tokens_are_free(penalised: Callable[..., Tensor]) -> None:
    """Tokens that policy and reference write alike change no penalty; and every odd token costs the same."""
    penalties = []
    for odd, rest in ((8, 0), (8, 56), (4, 4)):
        mask = torch.ones(1, odd + rest)
        ref_logp = torch.full_like(mask, -3.0)
        logp = ref_logp + 0.5 * (torch.arange(odd + rest) < odd)
        penalties.append(1 - penalised(torch.ones(1), logp, ref_logp, mask, 0.1).item())
    first, longer, half = penalties
    assert abs(first - longer) < 1e-5, (
        f"8 odd tokens cost {first:.4f}, with 56 usual ones behind them {longer:.4f}"
    )
    assert abs(first - 2 * half) < 1e-5, (
        f"8 odd tokens cost {first:.4f} and 4 of them {half:.4f}"
    )


def mended_penalised(
    rewards: Tensor, logp: Tensor, ref_logp: Tensor, mask: Tensor, beta: float
) -> Tensor:
    """Rewards [B] minus beta times the distance of each completion: [B]."""
    log_ratio = (logp - ref_logp) * mask  # [B, T]
    distance = log_ratio.sum(dim=1)  # [B]
    return rewards - beta * distance


DILUTED = Bug(
    id="diluted-penalty",
    title="a penalty that one can talk away",
    concept="kl-in-reward",
    minutes=5,
    statement="""
    The KL penalty stands in the reward, as it should, and its estimator is $k_1$. During training completions become
    longer and longer, with harmless phrases at their end, and the penalty in the log falls. The cell prints the penalty
    of a completion with eight tokens that the reference would hardly write, followed by more and more tokens that both
    write alike. What should the column of numbers do?
    """,
    wrong=suspect_penalised,
    symptom=price_of_a_detour,
    reveals=usual_tokens_are_free,
    mended=mended_penalised,
    idea="""
    Append ten tokens on which both models agree to a completion, and compute its penalty by hand before and after.
    What should it do, and what does the code do?
    """,
    outline="""
    The KL of whole completions adds tokens up. The line to change is the one that goes from `[B, T]` to `[B]`:

    ```python
    distance = ...  # [B], made of log_ratio [B, T]
    ```
    """,
    moral="""
    The log-ratio is averaged over the completion. The KL between two policies over whole completions is a *sum* over
    tokens, and only the sum has its gradient in the reward. Under the mean a completion that has left the reference pays less
    the longer it goes on. The habit: append tokens on which both models agree, and see that nothing changes.
    """,
)


# ── a penalty in the loss ────────────────────────────────────────────────────────────────────────────────────────


def suspect_reference(logp: Tensor, ref_logp: Tensor, mask: Tensor) -> Tensor:
    """The KL term of a loss that is a sum over tokens: k2, per completion."""
    d = logp - ref_logp
    k2 = d * d.detach()
    return (k2 * mask).sum(dim=1).mean()


def pull_of_a_token(term: Callable[..., Tensor]) -> None:
    """One token, further and further from the reference: value and derivative."""
    for d in (0.1, 0.5, 2.0):
        logp = torch.full((1, 1), -3.0 + d, requires_grad=True)
        value = term(logp, torch.full((1, 1), -3.0), torch.ones(1, 1))
        value.backward()
        assert logp.grad is not None
        print(f"d = {d}: value {value.item():.4f}, derivative {logp.grad.item():.4f}")


def the_value_has_its_derivative(term: Callable[..., Tensor]) -> None:
    """The derivative that autograd gives is the slope of the printed value, by finite differences."""
    ref_logp, mask, step = (
        torch.zeros(1, 1).double() - 3,
        torch.ones(1, 1).double(),
        1e-5,
    )
    for d in (0.1, 0.5, -2.0):
        logp = (ref_logp + d).requires_grad_()
        term(logp, ref_logp, mask).backward()
        assert logp.grad is not None
        up, down = (
            term(logp.detach() + s, ref_logp, mask).item() for s in (step, -step)
        )
        slope = (up - down) / (2 * step)
        assert abs(slope - logp.grad.item()) < 1e-4, (
            f"at d = {d} the value has the slope {slope:.4f} and autograd says {logp.grad.item():.4f}"
        )
        assert abs(logp.grad.item() - d) < 1e-6, (
            f"at d = {d} the derivative of k2 is {logp.grad.item():.4f}"
        )


def mended_reference(logp: Tensor, ref_logp: Tensor, mask: Tensor) -> Tensor:
    """The KL term of a loss that is a sum over tokens: k2, per completion."""
    d = logp - ref_logp
    k2 = d**2 / 2
    return (k2 * mask).sum(dim=1).mean()


HALF_DETACHED = Bug(
    id="half-detached-k2",
    title="a logged KL that is twice too large",
    concept="kl-placement",
    minutes=5,
    statement="""
    The term should be $k_2$. Training behaves as expected, but the KL in the log is twice what an evaluation finds. The
    cell prints value and derivative of the term for one token at several distances. Which of the two columns is wrong?
    """,
    wrong=suspect_reference,
    symptom=pull_of_a_token,
    reveals=the_value_has_its_derivative,
    mended=mended_reference,
    idea=r"""
    Write the printed value and its slope for one number $d$: the code gives $d \cdot d$ with one factor held fixed.
    Which value belongs to the slope $d$?
    """,
    outline="""
    ```python
    k2 = ...  # a function of d whose derivative is d, nothing detached
    ```

    The sum over tokens and the mean over completions stay as they are.
    """,
    moral="""
    With one factor detached the derivative of $d \\cdot d$ is $d$, which is that of $k_2$, so training is right. The value
    is $d^2$, twice $k_2$. Whoever reads the log and lowers the coefficient breaks what was right. The habit: hold the
    derivative to the slope of the value wherever both are meant to belong together.
    """,
)

BUGS = (DILUTED, HALF_DETACHED)
