"""Answers to the exercises on language models: wrong ones on nobody's list, right ones by another route."""

import torch
from torch.nn.functional import cross_entropy

# ── wrong, on nobody's list ──────────────────────────────────────────────────────────────────────────────────────


def gradient_by_the_longest(logits, targets, mask):
    """Divides by the longest completion."""
    one_hot = torch.nn.functional.one_hot(targets, logits.shape[-1])
    return (logits.softmax(-1) - one_hot) * mask[..., None] / mask.sum(-1).max() / len(mask)


def weights_by_the_longest(mask):
    """The longest completion of each micro-batch."""
    longest = mask.sum(-1).amax(-1)
    return longest / longest.sum()


def decoders_by_the_least(teacher, right):
    """Takes the least probable answer for greedy."""
    sampled = teacher.gather(1, right[:, None]).mean()
    return torch.stack([sampled, (teacher.argmin(1) == right).double().mean()])


UNLISTED = [
    ("lm-masked-gradient", gradient_by_the_longest, "you return"),
    ("lm-micro-weights", weights_by_the_longest, "you return"),
    ("lm-two-decoders", decoders_by_the_least, "you return"),
]


# ── right, by another route ──────────────────────────────────────────────────────────────────────────────────────


def gradient_by_autograd(logits, targets, mask):
    logits = logits.detach().clone().requires_grad_()
    loss = 0.0
    for one, tokens, learnt in zip(logits, targets, mask, strict=True):
        n = int(learnt.sum())
        loss = loss + cross_entropy(one[:n], tokens[:n]) / len(mask)
    return torch.autograd.grad(loss, logits)[0]


def weights_by_counting(mask):
    counts = [sum(float(x) for row in part for x in row) for part in mask]
    return torch.tensor([n / sum(counts) for n in counts], dtype=mask.dtype)


def decoders_by_loops(teacher, right):
    sampled = greedy = 0.0
    for chances, answer in zip(teacher.tolist(), right.tolist(), strict=True):
        sampled += chances[answer] / len(teacher)
        greedy += (max(chances) == chances[answer]) / len(teacher)
    return torch.tensor([sampled, greedy], dtype=teacher.dtype)


RIGHT = [
    ("lm-masked-gradient", gradient_by_autograd),
    ("lm-micro-weights", weights_by_counting),
    ("lm-two-decoders", decoders_by_loops),
]
