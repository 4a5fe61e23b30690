"""Answers to the exercises on trust regions: wrong ones on nobody's list, right ones by another route."""

import math

import torch

# ── wrong, on nobody's list ──────────────────────────────────────────────────────────────────────────────────────


def product_of_squares(probs, visits, v):
    """The probability twice."""
    return visits[:, None] / visits.sum() * probs**2 * (v - (probs * v).sum(-1, keepdim=True))


def step_with_the_bound_squared(F, g, delta, damping):
    """The bound in place of its root."""
    x = torch.linalg.solve(F + damping * torch.eye(len(g), dtype=g.dtype), g)
    return 2 * delta / (x @ F @ x).sqrt() * x


def beta_from_the_range(probs, advantages, delta):
    """The spread from end to end in place of the standard deviation."""
    return (advantages.max() - advantages.min()).item() / (2 * delta) ** 0.5


def bound_at_the_last_token(alpha, A_max, gamma, T):
    """Every token as far as the last one."""
    return 4 * A_max * alpha * sum(gamma**t for t in range(T)) * (1 - (1 - alpha) ** (T - 1))


UNLISTED = [
    ("tr-product", product_of_squares, "you return"),
    ("tr-length", step_with_the_bound_squared, "you return"),
    ("tr-beta", beta_from_the_range, "you return"),
    ("tr-bound", bound_at_the_last_token, "you return"),
]


# ── right, by another route ──────────────────────────────────────────────────────────────────────────────────────


def product_by_autograd(probs, visits, v):
    """The derivative of a derivative of the mean KL."""
    old = probs.log().double()
    theta = old.clone().requires_grad_()
    kl = (probs * (old - theta.log_softmax(-1))).sum(-1)
    (slope,) = torch.autograd.grad((visits * kl).sum() / visits.sum(), theta, create_graph=True)
    return torch.autograd.grad((slope * v).sum(), theta)[0]


def step_by_eigenvectors(F, g, delta, damping):
    values, vectors = torch.linalg.eigh(F)
    part = (vectors.T @ g) / (values + damping)
    return vectors @ part * math.sqrt(2 * delta / (values * part**2).sum().item())


def beta_by_newton(probs, advantages, delta):
    """Newton's method on t = 1 / beta, where KL(old || pi_t) = log E[e^(tA)] - t E[A] is convex."""
    mean, t = probs @ advantages, torch.tensor(50.0, dtype=torch.float64)
    top = advantages.max()
    for _ in range(500):
        weights = probs * (t * (advantages - top)).exp()
        kl = weights.sum().log() + t * top - t * mean
        slope = (weights @ advantages) / weights.sum() - mean
        new = t - (kl - delta) / slope
        t = new if new > 0 else t / 2
    return 1 / t.item()


def bound_in_closed_form(alpha, A_max, gamma, T):
    def geometric(q):
        return T if q == 1 else (1 - q**T) / (1 - q)

    return 4 * A_max * alpha * (geometric(gamma) - geometric(gamma * (1 - alpha)))


RIGHT = [
    ("tr-product", product_by_autograd),
    ("tr-length", step_by_eigenvectors),
    ("tr-beta", beta_by_newton),
    ("tr-bound", bound_in_closed_form),
]
