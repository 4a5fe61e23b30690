"""Answers to the exercises on distillation: wrong ones that are on no list, and right ones by another route."""

import math

import torch
from torch.nn.functional import kl_div

# ── wrong, on nobody's list ──────────────────────────────────────────────────────────────────────────────────────


def half_centred(student, teacher, ids):
    """Half of the mean is taken off."""
    gap = teacher.log_softmax(-1) - student.log_softmax(-1)
    mean = (student.softmax(-1) * gap).sum(-1)
    return gap.gather(-1, ids[..., None])[..., 0] - mean / 2


def rest_without_its_weight(student, teacher, k):
    """The rest's log-ratio, not weighed by its probability."""
    p, u = student.softmax(-1), teacher.softmax(-1)
    top = p.topk(k).indices
    return (p[top] * (p[top] / u[top]).log()).sum() + ((1 - p[top].sum()) / (1 - u[top].sum())).log()


def mass_of_the_geometric_mean(teacher_mass, beta):
    """Between the two ends on a logarithmic scale."""
    return teacher_mass * math.exp(beta - 1)


UNLISTED = [
    ("dist-centred-gap", half_centred, "you return"),
    ("dist-rest", rest_without_its_weight, "you return"),
    ("dist-mass-left", mass_of_the_geometric_mean, "you return"),
]


# ── right, by another route ──────────────────────────────────────────────────────────────────────────────────────


def centred_by_the_kl(student, teacher, ids):
    """The gap plus torch's KL from student to teacher."""
    logp, logu = student.log_softmax(-1), teacher.log_softmax(-1)
    divergence = kl_div(logu, logp, reduction="none", log_target=True).sum(-1)
    return (logu - logp).gather(-1, ids[..., None])[..., 0] + divergence


def rest_by_sorting(student, teacher, k):
    """Sorted by the student, the tail summed into the last place."""
    p, order = student.softmax(-1).sort(descending=True)
    u = teacher.softmax(-1)[order]
    both = [torch.cat([x[:k], x[k:].sum()[None]]) for x in (p, u)]
    return kl_div(both[1].log(), both[0].log(), reduction="sum", log_target=True)


def mass_on_a_lattice(teacher_mass, beta):
    """The smallest value on ever finer lattices."""
    low, high = 1e-9, 1 - 1e-9

    def loss(a):
        rest = (1 - a) * math.log((1 - a) / (1 - teacher_mass))
        return a * math.log(a / teacher_mass) + beta * rest

    for _ in range(90):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, right) if loss(left) < loss(right) else (left, high)
    return (low + high) / 2


RIGHT = [
    ("dist-centred-gap", centred_by_the_kl),
    ("dist-rest", rest_by_sorting),
    ("dist-mass-left", mass_on_a_lattice),
]
