"""Answers to the exercises of the whiteboard: wrong ones that are on nobody's list, and right ones by another route."""

import torch
from torch.nn import functional

# ── wrong, on nobody's list ──────────────────────────────────────────────────────────────────────────────────────


def logprobs_of_the_likeliest(logits, ids, temperature):
    """The log-prob of the token that the model would have preferred."""
    return (logits[:, :-1] / temperature).log_softmax(-1).amax(-1)


def mean_around_the_median(x, mask):
    """The lower median of the tokens instead of their mean."""
    return x[mask != 0].median()


def ratio_of_the_median(logp, old_logp, mask):
    """The median of a completion's token ratios."""
    rows = zip(logp - old_logp, mask, strict=True)
    return torch.stack([drift[kept != 0].median().exp() for drift, kept in rows])


def reward_loss_of_half_the_gap(chosen, rejected):
    """A probability that is too cautious."""
    return functional.softplus((rejected - chosen) / 2).mean()


def dpo_with_a_target(chosen, rejected, ref_chosen, ref_rejected, beta):
    """A margin of one that has to be kept."""
    return functional.softplus(1 - beta * (chosen - ref_chosen - rejected + ref_rejected)).mean()


UNLISTED = [
    ("board-logprobs", logprobs_of_the_likeliest, "you return"),
    ("board-masked-mean", mean_around_the_median, "you return"),
    ("board-gspo-ratio", ratio_of_the_median, "you return"),
    ("board-reward-loss", reward_loss_of_half_the_gap, "you return"),
    ("board-dpo", dpo_with_a_target, "you return"),
]


# ── right, by another route ──────────────────────────────────────────────────────────────────────────────────────


def logprobs_by_cross_entropy(logits, ids, temperature):
    """What torch calls a loss, token by token."""
    rows = [
        torch.stack(
            [-functional.cross_entropy(row[t] / temperature, tokens[t + 1]) for t in range(len(tokens) - 1)],
        )
        for row, tokens in zip(logits, ids, strict=True)
    ]
    return torch.stack(rows)


def mean_in_a_loop(x, mask):
    """Token by token."""
    kept = [a for a, m in zip(x.flatten(), mask.flatten(), strict=True) if m != 0]
    return sum(kept) / len(kept)


def ratio_as_a_root(logp, old_logp, mask):
    """The root of the product of the tokens' ratios, as GSPO's paper prints it."""
    found = []
    for new, old, kept in zip(logp.double(), old_logp.double(), mask, strict=True):
        product, length = 1.0, 0
        for t in range(len(new)):
            if kept[t] != 0:
                product, length = product * new[t].exp() / old[t].exp(), length + 1
        found.append(product ** (1 / length))
    return torch.stack(found)


def reward_loss_by_logsumexp(chosen, rejected):
    """The cross-entropy of a choice between two."""
    return (torch.logaddexp(chosen, rejected) - chosen).mean()


def dpo_pair_by_pair(chosen, rejected, ref_chosen, ref_rejected, beta):
    """Bradley-Terry on the implicit rewards, one pair after the other."""
    total = 0.0
    for i in range(len(chosen)):
        reward = [beta * (chosen[i] - ref_chosen[i]), beta * (rejected[i] - ref_rejected[i])]
        total = total - torch.stack(reward).log_softmax(0)[0]
    return total / len(chosen)


RIGHT = [
    ("board-logprobs", logprobs_by_cross_entropy),
    ("board-masked-mean", mean_in_a_loop),
    ("board-gspo-ratio", ratio_as_a_root),
    ("board-reward-loss", reward_loss_by_logsumexp),
    ("board-dpo", dpo_pair_by_pair),
]
