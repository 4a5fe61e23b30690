"""Find the bug: two implementations of GSPO's parts, each as it was once written."""

from collections.abc import Callable

import torch
from torch import Tensor

from ..bug import Bug

# ── the ratio of a completion ──────────────────────────────────────────────────────────────────────────────────────


def suspect_ratio(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    """GSPO's ratio, on each token of its completion: [B, T]."""
    log_ratio = (logp - old_logp) * mask
    return torch.exp(log_ratio / mask.sum(dim=1, keepdim=True))


def a_drift_at_every_length(ratio: Callable[..., Tensor]) -> None:
    """Every token of every completion has gained 1 % of probability."""
    for length in (1, 4, 16, 64, 256):
        old_logp, mask = torch.full((1, length), -2.0), torch.ones(1, length)
        largest = ratio(old_logp + 0.00995, old_logp, mask).max().item()
        outside = "outside" if largest > 1 + 4e-4 else "inside"
        print(f"{length:3d} tokens: ratio {largest:.5f}, {outside} the clip range")


def one_ratio_a_completion(ratio: Callable[..., Tensor]) -> None:
    """All tokens of a completion share one ratio, and a drift of 1 % on each makes it 1.01 at any length."""
    for length in (1, 7, 64):
        old_logp, mask = torch.full((1, length), -2.0), torch.ones(1, length)
        found = ratio(old_logp + torch.tensor(1.01).log(), old_logp, mask)
        assert (found - 1.01).abs().max() < 1e-5, (
            f"at {length} tokens a drift of 1 % is {found.max():.4f}"
        )
    moved = torch.tensor([[-2.0, -1.7, -2.1]])
    found = ratio(moved, torch.full((1, 3), -2.0), torch.ones(1, 3))
    assert (found - found[0, 0]).abs().max() < 1e-6, (
        f"the tokens of one completion have ratios {found.tolist()}"
    )


def mended_ratio(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    """GSPO's ratio, on each token of its completion: [B, T]."""
    log_ratio = (logp - old_logp) * mask
    mean = log_ratio.sum(dim=1, keepdim=True) / mask.sum(dim=1, keepdim=True)
    return torch.exp(mean).expand_as(logp)


UNSUMMED_RATIO = Bug(
    id="unsummed-ratio",
    title="a ratio that calms down",
    concept="geometric-mean-ratio",
    minutes=5,
    statement="""
    "Divide the log-ratio by the length", said the paper, and so does this code. The training is remarkably calm: hardly
    a completion is ever clipped, and the longer the completions, the fewer. The cell prints the ratio of completions whose
    every token has gained 1 % of probability. What should the column of numbers be, and what is missing?
    """,
    wrong=suspect_ratio,
    symptom=a_drift_at_every_length,
    reveals=one_ratio_a_completion,
    mended=mended_ratio,
    idea="""
    Give every token the log-ratio 0.01, at lengths 1 and 10. What are the ratios of the code, and what is the
    exponential of the *mean*?
    """,
    outline="""
    ```python
    mean = log_ratio.sum(...) / ...  # [B, 1], one number for each completion
    return ...  # [B, T], the same for all tokens of a row
    ```
    """,
    moral="""
    Each token's log-ratio is divided by the length, and they are never added up. So there are as many ratios as tokens,
    and all of them go to 1 as completions grow: the clip is off, and no error is raised. The habit: feed a ratio a drift that
    is the same on every token, at several lengths. A geometric mean gives the same answer each time.
    """,
)


# ── who counts how much ──────────────────────────────────────────────────────────────────────────────────────────


def suspect_token_loss(
    logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor
) -> Tensor:
    """GSPO in its token form: logp, old_logp, mask [B, T], advantages [B]."""
    drift = ((logp - old_logp) * mask).sum(dim=1) / mask.sum(dim=1)
    ratio = torch.exp(drift).detach()[:, None] * torch.exp(logp - logp.detach())
    clipped = ratio.clamp(1 - 3e-4, 1 + 4e-4)
    objective = torch.minimum(
        ratio * advantages[:, None], clipped * advantages[:, None]
    )
    return -(objective * mask).sum() / mask.sum()


def pull_of_a_completion(loss: Callable[..., Tensor]) -> None:
    """A short right completion and a long wrong one: what do their gradients sum to?"""
    for length in (4, 16, 64, 256):
        logp = torch.full((2, length), -1.0, requires_grad=True)
        mask = (torch.arange(length) < torch.tensor([[4], [length]])).float()
        loss(logp, logp.detach(), torch.tensor([1.0, -1.0]), mask).backward()
        assert logp.grad is not None
        right, wrong = (-logp.grad).sum(1).tolist()
        print(
            f"the wrong one has {length:3d} tokens: pull of the right one "
            f"{right:+.3f}, of the wrong one {wrong:+.3f}"
        )


def every_completion_counts_once(loss: Callable[..., Tensor]) -> None:
    """Before the first update a completion of advantage A pulls with A / B in all, whatever its length."""
    logp = torch.full((3, 8), -1.0, requires_grad=True)
    mask = (torch.arange(8) < torch.tensor([[1], [3], [8]])).float()
    loss(logp, logp.detach(), torch.tensor([1.0, 1.0, -2.0]), mask).backward()
    assert logp.grad is not None
    pulls = [round(pull, 4) for pull in (-3 * logp.grad).sum(1).tolist()]
    assert pulls == [1.0, 1.0, -2.0], f"advantages 1, 1 and -2 pull with {pulls}"


def mended_token_loss(
    logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor
) -> Tensor:
    """GSPO in its token form: logp, old_logp, mask [B, T], advantages [B]."""
    drift = ((logp - old_logp) * mask).sum(dim=1) / mask.sum(dim=1)
    ratio = torch.exp(drift).detach()[:, None] * torch.exp(logp - logp.detach())
    clipped = ratio.clamp(1 - 3e-4, 1 + 4e-4)
    objective = torch.minimum(
        ratio * advantages[:, None], clipped * advantages[:, None]
    )
    per_completion = (objective * mask).sum(dim=1) / mask.sum(dim=1)
    return -per_completion.mean()


LOUD_LENGTH = Bug(
    id="loud-length",
    title="the long completion counts twice",
    concept="gspo-token",
    minutes=5,
    statement="""
    This is GSPO in its token form, and a test against plain GSPO passes on a batch of equal lengths. In training the
    completions get shorter and shorter, and nothing in GSPO explains it. The cell prints how hard a right and a wrong
    completion pull, while the wrong one gets longer. Which line lets length decide?
    """,
    wrong=suspect_token_loss,
    symptom=pull_of_a_completion,
    reveals=every_completion_counts_once,
    mended=mended_token_loss,
    idea="""
    Take a completion of one token and one of nine, both with advantage 1, and add up the gradient of each. Which
    average makes the two sums equal?
    """,
    outline="""
    ```python
    per_completion = (objective * mask).sum(dim=1) / ...  # [B]
    return -...  # then over completions
    ```
    """,
    moral="""
    The token form has a term for every token, and the code takes one mean over all of them, as a library's default may
    do for you. Then a completion weighs in proportion to its length. GSPO counts completions: average within each, then
    over them. The habit: put very different lengths into the test batch, and print what each *completion* adds up to.
    """,
)

BUGS = (UNSUMMED_RATIO, LOUD_LENGTH)
