"""Answers to the exercises on GAE: wrong ones that are on nobody's list, and right ones by another route."""

import numpy as np
import torch

from rlhf_book.exercises.gae.error import my_error
from rlhf_book.exercises.gae.recursion import my_gae
from rlhf_book.exercises.gae.value_loss import my_value_loss
from rlhf_minimal.functional import advantages
from rlhf_minimal.objective import value_loss

# ── wrong, on nobody's list ──────────────────────────────────────────────────────────────────────────────────────


def weights_of_four(lam, steps):
    """Knows the printed length alone."""
    return torch.tensor([(1 - lam), (1 - lam) * lam, (1 - lam) * lam**2, lam**3])


def weights_by_halves(lam, steps):
    """The last estimate and the others share equally."""
    return torch.tensor([0.5 / max(steps - 1, 1)] * (steps - 1) + [0.5])


def two_step(rewards, values, n):
    """Whatever n is."""
    return advantages.gae(rewards[None], torch.ones(1, len(rewards)), values=values[None], lam=0.0)[0]


def gae_of_the_means(rewards, values, mask, gamma, lam):
    """Centred on top."""
    right = my_gae(rewards, values, mask, gamma, lam)
    return (right - right.mean()) * mask


def error_that_fades(errors, lam, gamma):
    """Another gamma on the errors themselves."""
    return my_error(errors * 0.9 ** torch.arange(len(errors)), lam, gamma)


def noise_of_neighbours(sigma, lam, later):
    """Only one state after the token."""
    return sigma**2 * (1 + (1 - lam) ** 2), sigma**2 * (1 - lam) ** 2


def push_by_softmax(probs, next_errors):
    """A step of the policy towards the overrated state, and not the gradient."""
    return (probs.log() + next_errors).softmax(-1) - probs


def value_loss_by_absolute_error(values, old_values, returns, mask, clip):
    """Another norm."""
    return 0.5 * ((values - returns).abs() * mask).sum() / mask.sum()


def value_loss_of_half_the_clip(values, old_values, returns, mask, clip):
    return my_value_loss(values, old_values, returns, mask, clip / 2)


UNLISTED = [
    ("gae-weights", weights_of_four, "Right on the first example"),
    ("gae-weights", weights_by_halves, "you return"),
    ("gae-n-step", two_step, "you return"),
    ("gae-recursion", gae_of_the_means, "you return"),
    ("gae-error", error_that_fades, "you return"),
    ("gae-noise", noise_of_neighbours, "you return"),
    ("gae-push", push_by_softmax, "you return"),
    ("gae-value-loss", value_loss_by_absolute_error, "you return"),
    ("gae-value-loss", value_loss_of_half_the_clip, "you return"),
]


# ── right, by another route ──────────────────────────────────────────────────────────────────────────────────────


def weights_by_summing(lam, steps):
    """A thousand terms of the endless series, the rest of them on the last estimate."""
    if lam == 1.0:
        return [0.0] * (steps - 1) + [1.0]
    series = (1 - lam) * lam ** np.arange(100_000)
    return [*series[: steps - 1], series[steps - 1 :].sum()]


def n_step_by_td_errors(rewards, values, n):
    """The sum of n TD errors, which telescopes."""
    following = torch.cat([values[1:], torch.zeros(1, dtype=values.dtype)])
    deltas = rewards + following - values
    return torch.stack([deltas[t : t + n].sum() for t in range(len(deltas))])


def gae_by_the_library(rewards, values, mask, gamma, lam):
    rubbish = torch.where(mask != 0, values, float("nan"))
    return advantages.gae(rewards, mask, values=rubbish, gamma=gamma, lam=lam)


def gae_by_the_mean_of_n_steps(rewards, values, mask, gamma, lam):
    """Equation 16 of the paper word for word: every n-step advantage, weighted, row by row without its gaps."""
    answer = torch.zeros_like(rewards)
    for i in range(len(rewards)):
        at = mask[i].nonzero()[:, 0].tolist()
        r, v = rewards[i, at].tolist(), [*values[i, at].tolist(), 0.0]
        for t in range(len(at)):
            left = len(at) - t
            total = 0.0
            for n in range(1, left + 1):
                estimate = sum(gamma**k * r[t + k] for k in range(n)) + gamma**n * v[t + n] - v[t]
                total += estimate * (lam ** (left - 1) if n == left else (1 - lam) * lam ** (n - 1))
            answer[i, at[t]] = total
    return answer


def error_by_difference(errors, lam, gamma):
    """GAE with the wrong critic minus GAE with the right one, for values and rewards that do not matter."""
    T = len(errors)
    generator = torch.Generator().manual_seed(0)
    rewards, values = torch.randn(2, 1, T, generator=generator, dtype=torch.float64)
    common = {"mask": torch.ones(1, T), "lam": lam, "gamma": gamma}
    wrong = advantages.gae(rewards, values=values + errors, **common)
    return (wrong - advantages.gae(rewards, values=values, **common))[0]


def noise_in_closed_form(sigma, lam, later):
    harmful = sigma**2 * (1 - lam) * (1 - lam ** (2 * later)) / (1 + lam)
    return sigma**2 + harmful, harmful


def push_by_autograd(probs, next_errors):
    """Expected score times a wrong advantage minus expected score times a right one."""
    logits = probs.log().requires_grad_()
    logp = logits.log_softmax(-1)
    q = torch.linspace(-1, 1, len(probs), dtype=probs.dtype)  # any true values after the tokens
    v = (probs * q).sum()
    right = torch.autograd.grad((probs * logp * (q - v)).sum(), logits, retain_graph=True)[0]
    wrong = torch.autograd.grad((probs * logp * (q + next_errors - v - 0.3)).sum(), logits)[0]
    return wrong - right


def value_loss_by_the_library(values, old_values, returns, mask, clip):
    return value_loss(values, old_values, returns, mask, clip=clip)


RIGHT = [
    ("gae-weights", weights_by_summing),
    ("gae-n-step", n_step_by_td_errors),
    ("gae-recursion", gae_by_the_library),
    ("gae-recursion", gae_by_the_mean_of_n_steps),
    ("gae-error", error_by_difference),
    ("gae-noise", noise_in_closed_form),
    ("gae-push", push_by_autograd),
    ("gae-value-loss", value_loss_by_the_library),
]
