"""Find the bug: a squared loss as it was once written."""

from collections.abc import Callable

import torch
from torch import Tensor

from ..bug import Bug


def suspect_fit(
    logits: Tensor, rewards: Tensor, tau: float, updates: int, lr: float
) -> Tensor:
    """[N] logits over N completions: those after updates on the squared loss."""
    probs = logits.softmax(0)  # of the sampler, listed instead of sampled
    A = rewards - (probs * rewards).sum()
    logits = logits.clone()
    for _ in range(updates):
        logits.requires_grad_()
        logp = logits.log_softmax(0)
        old_logp = logp.detach()
        log_ratio = logp - old_logp
        loss = (probs * (A - tau * log_ratio) ** 2).sum() / (2 * tau)
        (gradient,) = torch.autograd.grad(loss, logits)
        logits = (logits - lr * gradient).detach()
    return logits


def same_fit_at_two_temperatures(fit: Callable[..., Tensor]) -> None:
    """Three completions of which the first is right, after more and more updates."""
    logits, rewards = torch.zeros(3), torch.tensor([1.0, 0.0, 0.0])
    print("updates   share right: tau 0.5   tau 5")
    for updates in (10, 100, 1000):
        fits = [fit(logits, rewards, tau, updates, 0.5) for tau in (0.5, 5.0)]
        shares = [one.softmax(0)[0] for one in fits]
        print(f"{updates:7d} {shares[0]:18.3f} {shares[1]:10.3f}")


def the_fit_ends(fit: Callable[..., Tensor]) -> None:
    """With enough updates the fit comes to rest, and earlier for a larger tau."""
    logits, rewards = (
        torch.zeros(3).double(),
        torch.tensor([1.0, 0.0, 0.0]).double(),
    )
    some, more = (fit(logits, rewards, 1.0, n, 0.3).softmax(0) for n in (600, 1200))
    assert (some - more).abs().max() < 1e-3, (
        f"after 600 updates a share of {some[0]:.3f} is right, after 1200 {more[0]:.3f}: nothing holds the policy"
    )
    soft = fit(logits, rewards, 3.0, 600, 0.3).softmax(0)
    assert soft[0] < some[0] - 0.05, (
        f"tau 3 ends at {soft[0]:.3f} right and tau 1 at {some[0]:.3f}"
    )
    assert soft[0] > 1 / 3 + 0.02, f"with tau 3 nothing is learnt: {soft[0]:.3f}"


def mended_fit(
    logits: Tensor, rewards: Tensor, tau: float, updates: int, lr: float
) -> Tensor:
    """[N] logits over N completions: those after updates on the squared loss."""
    probs = logits.softmax(0)  # of the sampler, listed instead of sampled
    A = rewards - (probs * rewards).sum()
    old_logp = logits.log_softmax(0).detach()
    logits = logits.clone()
    for _ in range(updates):
        logits.requires_grad_()
        logp = logits.log_softmax(0)
        log_ratio = logp - old_logp
        loss = (probs * (A - tau * log_ratio) ** 2).sum() / (2 * tau)
        (gradient,) = torch.autograd.grad(loss, logits)
        logits = (logits - lr * gradient).detach()
    return logits


SLACK = Bug(
    id="slack-spring",
    title="a temperature without effect",
    concept="kimi-k2",
    minutes=5,
    statement="""
    The fit should come to rest where the pull balances the rewards, and a larger tau should end nearer to the start. The
    cell prints the share of right completions after more and more updates on one batch, for two values of tau. What should the
    last row look like, and why does no test of the *gradient at the first update* find this?
    """,
    wrong=suspect_fit,
    symptom=same_fit_at_two_temperatures,
    reveals=the_fit_ends,
    mended=mended_fit,
    idea="""
    Print the log-ratio at the beginning of each update. Should it still be 0 in the second one?
    """,
    outline="""
    ```python
    old_logp = ...  # of the sampler: taken where, and how often?
    for _ in range(updates):
        ...
    ```
    """,
    moral="""
    The old log-probs are taken anew before every update, so the log-ratio is 0 whenever its gradient is computed and the pull
    never acts. They belong to the policy that sampled: take them once for a batch. Mended, the last two rows are 0.699 at tau 0.5 and 0.379 at tau 5. At the first update both codes agree,
    so a test has to make two updates. The habit: change tau tenfold, and see that something changes.
    """,
)

BUGS = (SLACK,)
