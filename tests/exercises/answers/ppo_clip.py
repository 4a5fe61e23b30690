"""Answers to the exercises on clipping: wrong ones that are on nobody's list, and right ones by another route."""

import math
from dataclasses import replace
from functools import partial

import torch

from rlhf_book.exercises.ppo_clip.loss import my_ppo_loss
from rlhf_minimal import ALGORITHMS, Batch, gradient_weight, policy_loss
from rlhf_minimal.functional import aggregation, gates

# ── wrong, on nobody's list ──────────────────────────────────────────────────────────────────────────────────────


def variance_of_centred_advantages(old, new, advantages):
    """Subtracts a baseline first, which changes the variance."""
    return variance_by_pairs(old, new, advantages - (old * advantages).sum())


def excess_in_log_space(p_old, q_old, p_new, q_new):
    """To second order in the log-ratios, and not exactly."""
    return -p_old * q_old * math.log(p_new / p_old) * math.log(q_new / q_old)


def weight_of_a_soft_edge(ratio, advantages, low, high):
    """Halves the gradient outside instead of removing it."""
    inside = weight_by_autograd(ratio, advantages, low, high)
    return torch.where(inside == 0, 0.5 * ratio * advantages, inside)


def ratios_by_a_temperature(old, bad, low):
    """Lowers the bad action by flattening the whole distribution a little."""
    flat = old**0.9 / (old**0.9).sum()
    return flat / old


def loss_of_half_the_clip(logp, old_logp, advantages, mask, eps):
    return my_ppo_loss(logp, old_logp, advantages, mask, eps / 2)


def step_of_the_root_of_the_length(logits, rewards, lengths):
    return step_by_autograd(logits, rewards, lengths.sqrt())


UNLISTED = [
    ("ppo-clip-variance", variance_of_centred_advantages, "you return"),
    ("ppo-clip-promise", excess_in_log_space, "you return"),
    ("ppo-clip-weight", weight_of_a_soft_edge, "you return"),
    ("ppo-clip-leak", ratios_by_a_temperature, "you return"),
    ("ppo-clip-loss", loss_of_half_the_clip, "you return"),
    ("ppo-clip-length", step_of_the_root_of_the_length, "you return"),
]


# ── right, by another route ──────────────────────────────────────────────────────────────────────────────────────


def variance_by_pairs(old, new, advantages):
    """Half the mean squared difference of two independent draws."""
    x = new / old * advantages
    return 0.5 * (old[:, None] * old * (x[:, None] - x) ** 2).sum()


def excess_by_listing(p_old, q_old, p_new, q_new):
    """Every response, with Q and V written out."""
    V_start, V_a = p_old * q_old, q_old
    responses = [  # old probability, [(ratio, advantage) of each token]
        (p_old * q_old, [(p_new / p_old, V_a - V_start), (q_new / q_old, 1 - V_a)]),
        (p_old * (1 - q_old), [(p_new / p_old, V_a - V_start), ((1 - q_new) / (1 - q_old), 0 - V_a)]),
        (1 - p_old, [((1 - p_new) / (1 - p_old), 0 - V_start)]),
    ]
    promised = sum(chance * sum((r - 1) * A for r, A in tokens) for chance, tokens in responses)
    return promised - (p_new * q_new - p_old * q_old)


def weight_by_autograd(ratio, advantages, low, high):
    logp = ratio.log().requires_grad_()
    objective = gates.clip(logp.exp()[None], advantages[None].to(ratio), low=low, high=high).sum()
    return torch.autograd.grad(objective, logp)[0]


def weight_by_the_library(ratio, advantages, low, high):
    row = replace(ALGORITHMS["ppo"], kl=(), gate=partial(gates.clip, low=low, high=high))
    return gradient_weight(row, ratio, advantages)


def ratios_by_bisection(old, bad, low):
    """Lower the logit until the ratio is there."""
    logits = old.log()
    above, below = 0.0, -50.0
    for _ in range(100):
        middle = (above + below) / 2
        moved = logits + middle * (torch.arange(len(old)) == bad)
        ratios = moved.softmax(-1) / old
        above, below = (middle, below) if ratios[bad] > 1 - low else (above, middle)
    return ratios


def ppo_loss_by_loops(logp, old_logp, advantages, mask, eps):
    total, count = 0.0, 0
    for i in range(logp.shape[0]):
        for t in range(logp.shape[1]):
            if mask[i, t]:
                r, A = (logp[i, t] - old_logp[i, t]).exp(), advantages[i, t]
                edge = 1 + eps if A > 0 else 1 - eps
                done = r > edge if A > 0 else r < edge
                total, count = total + (edge * A if done else r * A), count + 1
    return -total / count


def ppo_loss_by_the_library(logp, old_logp, advantages, mask, eps):
    row = replace(
        ALGORITHMS["ppo"], kl=(), gate=partial(gates.clip, low=eps, high=eps), aggregate=aggregation.token_mean
    )
    return policy_loss(row, Batch(logp, old_logp, mask, torch.zeros(len(logp)), 1, advantages=advantages))


def step_by_autograd(logits, rewards, lengths):
    """Differentiates the expected reward per token itself: no score function."""
    leaf = logits.detach().clone().requires_grad_()
    return torch.autograd.grad((leaf.softmax(-1) * rewards / lengths).sum(), leaf)[0]


def step_by_scores(logits, rewards, lengths):
    pi = logits.softmax(-1)
    step = torch.zeros_like(logits)
    for n in range(len(logits)):
        score = (torch.arange(len(logits)) == n).to(pi) - pi
        step += pi[n] * rewards[n] / lengths[n] * score
    return step


RIGHT = [
    ("ppo-clip-variance", variance_by_pairs),
    ("ppo-clip-promise", excess_by_listing),
    ("ppo-clip-weight", weight_by_autograd),
    ("ppo-clip-weight", weight_by_the_library),
    ("ppo-clip-leak", ratios_by_bisection),
    ("ppo-clip-loss", ppo_loss_by_loops),
    ("ppo-clip-loss", ppo_loss_by_the_library),
    ("ppo-clip-length", step_by_autograd),
    ("ppo-clip-length", step_by_scores),
]
