"""Find the bug: masks and log-probs of old samples, each as it was once written."""

from collections.abc import Callable

import torch
from torch import Tensor

from ..bug import Bug

# ── a mask by the mean drift of a completion ─────────────────────────────────────────────────────────────────────


def suspect_left_behind(
    logp: Tensor, sampler_logp: Tensor, A: Tensor, mask: Tensor, delta: float = 0.5
) -> Tensor:
    """[B, T] and advantages [B] -> [B]: 1.0 where a completion is still trained on."""
    drift = ((sampler_logp - logp) * mask).mean(dim=1)  # [B], nats per token
    return ((A >= 0) | (drift <= delta)).float()


def same_completion_in_other_batches(rule: Callable[..., Tensor]) -> None:
    """A bad completion of four tokens, beside neighbours of other lengths."""
    for width in (4, 8, 16):
        mask = (torch.arange(width) < 4).float()[None]
        sampler_logp = torch.full((1, width), -1.0)
        logp = sampler_logp - 0.8 * mask
        kept = rule(logp, sampler_logp, torch.tensor([-1.0]), mask).item()
        print(f"longest neighbour {width:2d} tokens: trained on {kept:.0f}")


def padding_decides_nothing(rule: Callable[..., Tensor]) -> None:
    """Whether a completion is trained on does not depend on how far its row is padded."""
    for drop, wanted in ((0.8, 0.0), (0.4, 1.0)):
        for width in (4, 8, 64):
            mask = (torch.arange(width) < 4).float()[None]
            sampler_logp = torch.full((1, width), -1.0)
            logp = sampler_logp - drop * mask
            kept = rule(logp, sampler_logp, torch.tensor([-1.0]), mask).item()
            assert kept == wanted, (
                f"four tokens that each lost {drop} nats, padded to {width}: {kept:.0f}, expected {wanted:.0f}"
            )
            good = rule(logp, sampler_logp, torch.tensor([1.0]), mask).item()
            assert good == 1.0, "a good completion is always trained on"


def mended_left_behind(
    logp: Tensor, sampler_logp: Tensor, A: Tensor, mask: Tensor, delta: float = 0.5
) -> Tensor:
    """[B, T] and advantages [B] -> [B]: 1.0 where a completion is still trained on."""
    drift = ((sampler_logp - logp) * mask).sum(dim=1) / mask.sum(dim=1)
    return ((A >= 0) | (drift <= delta)).float()


DILUTED_DRIFT = Bug(
    id="diluted-drift",
    title="a mask that long neighbours switch off",
    concept="off-policy-brake",
    minutes=5,
    statement="""
    Bad completions that have become much unlikelier since they were sampled are to be left out, as in DeepSeek-V3.2. On
    short tasks the mask works; in mixed batches it hardly ever acts, and the same completion is left out in one batch
    and trained on in the next. The cell prints what the rule says of one completion beside neighbours of other lengths.
    """,
    wrong=suspect_left_behind,
    symptom=same_completion_in_other_batches,
    reveals=padding_decides_nothing,
    mended=mended_left_behind,
    idea="""
    Take a completion of two tokens in a batch ten wide. By which number is its drift divided? What happens to the
    mean when the padding grows?
    """,
    outline="""
    ```python
    drift = (...).sum(dim=1) / ...  # [B], each by its own count
    ```
    """,
    moral="""
    `mean(dim=1)` divides by the width of the batch, and so by the length of the longest neighbour. The zeros under the mask dilute
    the drift of every shorter completion. The habit: pad a row further, and see that nothing changes.
    """,
)


# ── log-probs of a sampler that cuts off its tail ────────────────────────────────────────────────────────────────


def suspect_nucleus_logp(logits: Tensor, tokens: Tensor, kept: Tensor) -> Tensor:
    """[B, T, V], [B, T], bool [B, T, V] -> [B, T]: log-probs of what was sampled."""
    logp = logits.log_softmax(dim=-1)
    logp = torch.where(kept, logp, -torch.inf)
    return logp.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)


def all_that_could_be_drawn(logp_of: Callable[..., Tensor]) -> None:
    """The probabilities of all tokens that can be drawn, for three cut-offs."""
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, -2.0])
    for count in (5, 3, 1):
        kept = torch.arange(5) < count
        tokens = torch.arange(count)[None]
        shape = (1, count, 5)
        found = logp_of(logits.expand(shape), tokens, kept.expand(shape))
        shown = ", ".join(f"{p:.3f}" for p in found.exp()[0].tolist())
        print(f"the best {count}: {shown}")


def what_can_be_drawn_is_certain(logp_of: Callable[..., Tensor]) -> None:
    """The probabilities of all tokens that can be drawn sum to 1."""
    for count in (1, 2, 4, 5):
        logits = torch.linspace(1, -2, 5)
        kept = torch.arange(5) < count
        shape = (1, count, 5)
        found = logp_of(
            logits.expand(shape), torch.arange(count)[None], kept.expand(shape)
        )
        total = found.exp().sum().item()
        assert abs(total - 1) < 1e-5, (
            f"the best {count} of 5 tokens have {total:.4f} together"
        )


def mended_nucleus_logp(logits: Tensor, tokens: Tensor, kept: Tensor) -> Tensor:
    """[B, T, V], [B, T], bool [B, T, V] -> [B, T]: log-probs of what was sampled."""
    logp = logits.masked_fill(~kept, -torch.inf).log_softmax(dim=-1)
    return logp.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)


LOST_MASS = Bug(
    id="lost-mass",
    title="a sampler that is never sure",
    concept="nucleus-logprobs",
    minutes=5,
    statement="""
    The engine samples from the most probable tokens only. The trainer is handed the set that was kept, and computes the
    log-probs of what was sampled. Its ratios to the engine's log-probs are all below 1, the smaller the fewer tokens are kept. The cell
    prints the probabilities of everything that can be drawn.
    """,
    wrong=suspect_nucleus_logp,
    symptom=all_that_could_be_drawn,
    reveals=what_can_be_drawn_is_certain,
    mended=mended_nucleus_logp,
    idea="""
    Sum the exponentials of the code's log-probs over the kept tokens of one place. What is missing?
    """,
    outline="""
    ```python
    logp = ...  # which comes first, the cut or the softmax?
    return logp.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
    ```
    """,
    moral="""
    The softmax was taken before the tail was cut, so the mass of the tail is missing. The sampler's distribution is the softmax over what
    is kept. The habit: sum a distribution over everything that can come out.
    """,
)

BUGS = (DILUTED_DRIFT, LOST_MASS)
