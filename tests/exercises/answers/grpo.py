"""Answers to the exercises on GRPO: wrong ones that are on nobody's list, and right ones by another route."""

import itertools
import math
import statistics

import numpy as np
import torch

from rlhf_book.exercises.grpo.advantage import my_group_advantage
from rlhf_book.exercises.grpo.clipped_loss import my_clipped_loss
from rlhf_book.exercises.grpo.closed_form import my_scores
from rlhf_book.exercises.grpo.k3_penalty import my_k3_penalty
from rlhf_book.exercises.grpo.on_policy import my_on_policy_loss
from rlhf_book.exercises.grpo.process import my_process_advantage
from rlhf_book.exercises.grpo.ragged_groups import my_ragged_advantage
from rlhf_book.exercises.grpo.std_weight import my_weight
from rlhf_minimal import Batch, contrib, policy_loss
from rlhf_minimal.algorithms import ALGORITHMS
from rlhf_minimal.functional import advantages, kl

# ── answers on nobody's list ─────────────────────────────────────────────────────────────────────────────────────


def by_median(rewards, group_size, eps=1e-4):
    groups = rewards.view(-1, group_size)
    spread = groups.std(-1, keepdim=True) + eps
    return ((groups - groups.median(-1, keepdim=True).values) / spread).flatten()


def for_groups_of_four(rewards, group_size, eps=1e-4):
    return my_group_advantage(rewards, 4, eps)


def remembered(rewards, group_size, eps=1e-4):
    z = 1.4997
    return torch.tensor([z, -z / 3, -z / 3, -z / 3, z / 3, z / 3, -z, z / 3])[: len(rewards)]


def ragged_by_median(rewards, prompts, eps=1e-4):
    advantages = my_ragged_advantage(rewards, prompts, eps)
    for prompt in prompts.unique():
        rows = prompts == prompt
        advantages[rows] -= advantages[rows].median()
    return advantages


def two_mistakes(logp, old_logp, advantages, mask, low, high):
    ratio = torch.exp(logp - old_logp)
    a = advantages[:, None]
    return -(torch.maximum(ratio * a, ratio.clamp(1 - low, 1 + high) * a) * mask).sum() / mask.sum()


def half_the_clip(logp, old_logp, advantages, mask, low, high):
    return my_clipped_loss(logp, old_logp, advantages, mask, low / 2, high / 2)


def half_a_gradient(logp, ref_logp, mask):
    k3 = torch.exp(ref_logp - logp.detach()) - 1 - (ref_logp - logp)
    return ((k3 * mask).sum(1) / mask.sum(1)).mean()


def half_a_k3(logp, ref_logp, mask):
    return my_k3_penalty(logp, ref_logp, mask) / 2


def gradient_of_another(logp, advantages, mask):
    right = my_on_policy_loss(logp.detach(), advantages, mask)
    return right + logp.sum() - logp.sum().detach()


def for_one_over_n(rewards, group_size):
    others = torch.tensor([[float(x) for x in row] for row in rewards.view(-1, group_size)])
    return (others - others.roll(1, -1)).flatten()


def forgets_the_wrong(p, group_size):
    return 2 * (p**group_size).mean()


def squared(k, group_size):
    right, wrong = my_scores(k, group_size)
    return right**2, -(wrong**2)


def remembered_count(k, group_size):
    return 1.5, -0.5


def discounted(step_rewards, step_ends, eps=1e-4):
    right = my_process_advantage(step_rewards, step_ends, eps)
    return right * 0.9 ** torch.arange(right.shape[1])


def weight_of_the_likeliest_group(p, group_size):
    k = round(group_size * p)
    return ((group_size - 1) / group_size) ** 0.5 * (k * (group_size - k)) ** 0.5 / (group_size * p * (1 - p))


def remembered_weight(p, group_size):
    return my_weight(0.2, 4)


def push_of_one_answer_short(p, grad_p, baseline, group_size):
    return (group_size - 1) / group_size * baseline / (1 - p) * grad_p


UNLISTED = [
    ("grpo-advantage", by_median, "expected ["),
    ("grpo-ragged-groups", ragged_by_median, "expected ["),
    ("grpo-advantage", for_groups_of_four, "Right on the first example"),
    ("grpo-advantage", remembered, "Right on the first example"),
    ("grpo-clipped-loss", two_mistakes, "you return"),
    ("grpo-clipped-loss", half_the_clip, "you return"),
    ("grpo-k3", half_a_gradient, "gradient with respect to `logp` is not"),
    ("grpo-k3", half_a_k3, "you return"),
    ("grpo-on-policy", gradient_of_another, "gradient with respect to `logp` is not"),
    ("grpo-leave-one-out", for_one_over_n, "expected ["),
    ("grpo-dead-groups", forgets_the_wrong, "you return"),
    ("grpo-closed-form", squared, "you return"),
    ("grpo-closed-form", remembered_count, "Right on the first example"),
    ("grpo-process", discounted, "expected ["),
    ("grpo-std-weight", weight_of_the_likeliest_group, "you return"),
    ("grpo-std-weight", remembered_weight, "Right on the first example"),
    ("grpo-all-wrong", push_of_one_answer_short, "expected ["),
]


# ── right answers by another route ───────────────────────────────────────────────────────────────────────────────


def advantage_with_statistics(rewards, group_size, eps=1e-4):
    """Plain Python floats and no torch: another route, another precision."""
    answer = []
    for start in range(0, len(rewards), group_size):
        group = [float(x) for x in rewards[start : start + group_size]]
        same = len(set(group)) == 1
        answer += [0.0 if same else (x - statistics.mean(group)) / (statistics.stdev(group) + eps) for x in group]
    return answer


def advantage_by_the_library(rewards, group_size, eps=1e-4):
    mask = torch.ones(len(rewards), 1)
    return advantages.group_normalized(rewards[:, None], mask, group_size=group_size, eps=eps)[:, 0]


def advantage_in_double(rewards, group_size, eps=1e-4):
    return my_group_advantage(rewards.double(), group_size, eps)


def advantage_in_single(rewards, group_size, eps=1e-4):
    return my_group_advantage((rewards - rewards[0]).float(), group_size, eps)


def scores_by_listing(k, group_size):
    rewards = [1.0] * k + [0.0] * (group_size - k)
    mean, std = statistics.mean(rewards), statistics.stdev(rewards)
    return torch.tensor([(1 - mean) / std, -mean / std])


def leave_one_out_by_the_factor(rewards, group_size):
    groups = rewards.double().view(-1, group_size)
    return ((groups - groups.mean(-1, keepdim=True)) * group_size / (group_size - 1)).flatten()


def leave_one_out_by_loops(rewards, group_size):
    answer = []
    for i, reward in enumerate(rewards.tolist()):
        first = i // group_size * group_size
        others = [rewards[j].item() for j in range(first, first + group_size) if j != i]
        answer.append(reward - sum(others) / len(others))
    return np.array(answer)


def loss_by_loops(logp, old_logp, advantages, mask, low, high):
    total = 0.0
    for i in range(len(logp)):
        row = 0.0
        for t in range(logp.shape[1]):
            if mask[i, t]:
                w = (logp[i, t] - old_logp[i, t]).exp()
                bound = 1 + high if advantages[i] > 0 else 1 - low
                stopped = (w > bound) if advantages[i] > 0 else (w < bound)
                row = row + (bound if stopped else w) * advantages[i]
        total = total + row / mask[i].sum()
    return -total / len(logp)


def loss_by_the_library(logp, old_logp, advantages, mask, low, high):
    from dataclasses import replace
    from functools import partial

    from rlhf_minimal.functional import gates

    row = replace(ALGORITHMS["grpo"], kl=(), gate=partial(gates.clip, low=low, high=high))
    return policy_loss(row, Batch(logp, old_logp, mask, torch.zeros(len(logp)), 1, advantages=advantages))


def k3_by_the_library(logp, ref_logp, mask):
    logp, ref_logp, mask = logp.double(), ref_logp.double(), mask.double()
    return sum(kl.k3(logp[i], ref_logp[i])[mask[i] > 0].mean() for i in range(len(logp))) / len(logp)


def on_policy_by_the_product_rule(logp, advantages, mask):
    """Value and gradient put together by hand: A + A (logp - its value)."""
    a = advantages[:, None] * mask
    per_token = a + a * (logp - logp.clone().detach())
    return -(per_token.sum(1) / mask.sum(1)).mean()


def dead_share_by_enumeration(p, group_size):
    if group_size > 8:  # two to the G outcomes
        return ((p.log() * group_size).exp() + ((1 - p).log() * group_size).exp()).mean()
    share = 0.0
    for chance in p.tolist():
        for outcome in itertools.product((0, 1), repeat=group_size):
            if len(set(outcome)) == 1:
                share += np.prod([chance if right else 1 - chance for right in outcome])
    return share / len(p)


def process_by_the_library(step_rewards, step_ends, eps=1e-4):
    mask = torch.ones_like(step_rewards)
    return contrib.advantages.process(step_rewards, mask, group_size=len(mask), step_ends=step_ends, eps=eps)


def weight_by_listing(p, group_size):
    """Every group of answers, one logit a prompt: the score is 1 - p or -p, the gradient of p is p (1 - p)."""
    if group_size > 8:  # two to the G groups
        outcomes = [(math.comb(group_size, k), [1.0] * k + [0.0] * (group_size - k)) for k in range(group_size + 1)]
    else:
        outcomes = [(1, list(rewards)) for rewards in itertools.product((1.0, 0.0), repeat=group_size)]
    step = 0.0
    for ways, rewards in outcomes:
        if len(set(rewards)) > 1:
            mean, std = statistics.mean(rewards), statistics.stdev(rewards)
            chance = ways * math.prod(p if reward else 1 - p for reward in rewards)
            step += chance * statistics.mean((reward - mean) / std * (reward - p) for reward in rewards)
    return step / (p * (1 - p))


def push_by_listing(p, grad_p, baseline, group_size):
    """Every answer of a policy with one right answer and two wrong ones, whose probabilities move as they must."""
    answers = [(p, grad_p), (0.25 * (1 - p), -0.25 * grad_p), (0.75 * (1 - p), -0.75 * grad_p)]
    wrong = answers[1:]
    total = sum(chance for chance, _ in wrong)
    push = 0 * grad_p
    for chance, gradient in wrong:  # the answers of a group are alike, so the mean is that of any one of them
        push = push + chance / total * (0.0 - baseline) * gradient / chance
    return push


def ragged_with_statistics(rewards, prompts, eps=1e-4):
    groups = {}
    for reward, prompt in zip(rewards.tolist(), prompts.tolist(), strict=True):
        groups.setdefault(prompt, []).append(reward)
    found = []
    for reward, prompt in zip(rewards.tolist(), prompts.tolist(), strict=True):
        group = groups[prompt]
        equal = len(set(group)) == 1
        found.append(0.0 if equal else (reward - statistics.mean(group)) / (statistics.stdev(group) + eps))
    return torch.tensor(found, dtype=rewards.dtype)


RIGHT = [
    ("grpo-ragged-groups", ragged_with_statistics),
    ("grpo-advantage", advantage_with_statistics),
    ("grpo-advantage", advantage_by_the_library),
    ("grpo-advantage", advantage_in_double),
    ("grpo-advantage", advantage_in_single),
    ("grpo-closed-form", scores_by_listing),
    ("grpo-leave-one-out", leave_one_out_by_the_factor),
    ("grpo-leave-one-out", leave_one_out_by_loops),
    ("grpo-clipped-loss", loss_by_loops),
    ("grpo-clipped-loss", loss_by_the_library),
    ("grpo-k3", k3_by_the_library),
    ("grpo-on-policy", on_policy_by_the_product_rule),
    ("grpo-dead-groups", dead_share_by_enumeration),
    ("grpo-process", process_by_the_library),
    ("grpo-std-weight", weight_by_listing),
    ("grpo-all-wrong", push_by_listing),
]
