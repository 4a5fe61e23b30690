"""Answers to the exercises on soft gates: wrong ones that are on nobody's list, and right ones by another route."""

import math

import torch

from rlhf_book.figures.pass_rates import prompt_weight
from rlhf_minimal import ALGORITHMS, Batch, gradient_weight, policy_loss
from rlhf_minimal.functional import gates

# ── wrong, on nobody's list ──────────────────────────────────────────────────────────────────────────────────────


def peak_of_another_gate(tau):
    """A Gaussian in place of the hyperbolic secant."""
    w = (1 + math.sqrt(1 + 8 / tau**2)) / 2
    return w, w * math.exp(-(tau**2) * (w - 1) ** 2 / 4)


def climbs_the_mean(p, G):
    """The mean of pass@k over k."""
    return sum(1 - (1 - p) ** k for k in range(1, G)) / (G - 1)


def neighbour_by_the_arithmetic_mean(jump, n, low, high, epsilon):
    """An arithmetic mean where GMPO takes the geometric one."""
    s = math.exp(jump / n)
    return 1.0, 0.0 if s > 1 + high else s, (n - 1 + math.exp(min(jump, epsilon))) / n


UNLISTED = [
    ("gates-peak", peak_of_another_gate, "you return"),
    ("gates-climbs", climbs_the_mean, "you return"),
    ("gates-neighbour", neighbour_by_the_arithmetic_mean, "you return"),
]


# ── right, by another route ──────────────────────────────────────────────────────────────────────────────────────


def peak_by_the_library(tau):
    """The largest of the library's weights, on grids that close in."""
    from dataclasses import replace
    from functools import partial

    row = replace(ALGORITHMS["sapo"], gate=partial(gates.sigmoid, tau_pos=tau, tau_neg=tau))
    low, high = 1.0, 2.0 + 4 / tau
    for _ in range(12):
        w = torch.linspace(low, high, 201, dtype=torch.float64)
        c = gradient_weight(row, w, 1.0)
        at = int(c.argmax())
        low, high = w[max(at - 1, 0)].item(), w[min(at + 1, 200)].item()
        if high - low < 1e-7:
            break
    return w[at].item(), c[at].item()


def climbs_by_integration(p, G):
    """Simpson's rule over the library's weight of a prompt."""
    x = torch.linspace(1e-9, p, 2001, dtype=torch.float64)
    f = prompt_weight(ALGORITHMS["maxrl"], G, x)
    rule = torch.ones(2001, dtype=torch.float64)
    rule[1:-1:2], rule[2:-1:2] = 4, 2
    return ((rule * f).sum() * (x[1] - x[0]) / 3).item()


def neighbour_by_autograd(jump, n, low, high, epsilon):
    from dataclasses import replace
    from functools import partial

    def weight(row):
        logp = torch.full((1, n), -10.0, dtype=torch.float64)
        old = logp.clone()
        logp[0, 0] += jump
        logp.requires_grad_()
        batch = Batch(
            logp, old, torch.ones(1, n).double(), torch.zeros(1).double(), 1, advantages=torch.ones(1).double()
        )
        (gradient,) = torch.autograd.grad(policy_loss(row, batch), logp)
        return (0.0 - gradient[0, 1] * n).item()

    clip = partial(gates.clip, low=low, high=high)
    log_clip = partial(gates.clip, low=1 - math.exp(-epsilon), high=math.exp(epsilon) - 1)
    return (
        weight(replace(ALGORITHMS["grpo"], kl=(), gate=clip)),
        weight(replace(ALGORITHMS["gspo"], gate=clip)),
        weight(replace(ALGORITHMS["gmpo"], gate=log_clip)),
    )


RIGHT = [
    ("gates-peak", peak_by_the_library),
    ("gates-climbs", climbs_by_integration),
    ("gates-neighbour", neighbour_by_autograd),
]
