"""Hints and solutions for the exercises of the chapter `from-zero`.

The chapter needs no library of ours, so it holds its own checkers, and this file only what should not stand on its page.
A test shows the solutions, and typical wrong answers, to the chapter's checkers.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rlhf_book.loop import BUDGET, encode, right_answer, token_mask

HINTS = {
    "temperature": "Start from `sample`. One division is new; where? At the digit where the carry belongs two tokens "
    "share nearly all of the probability: what becomes of 0.2 and 0.8 when both logits shrink?",
    "groups": "Print `asked[:17]` in both cases. Which rows does `view(prompts, group)` put into one group?",
    "coin": "Write the expected gradient as a sum over completions, and take the expectation over the coins first, with "
    "the completions held fixed. Then ask what one step does, and not the expected one.",
    "partial": "Compare the ids with those of the right answers, position by position, and multiply by `token_mask` before you "
    "count.",
}


@torch.no_grad()
def my_temperature(
    model: Callable[[Tensor], Any], prompts: Tensor, temperature: float
) -> Tensor:
    """[B, S] ids of prompts to [B, T] ids, sampled at a temperature.

    ANSWER
    """
    ids = prompts
    for _ in range(BUDGET):
        p = (model(ids).logits[:, -1] / temperature).softmax(-1)  # [B, V]
        ids = torch.cat([ids, torch.multinomial(p, 1)], dim=1)
    return ids[:, prompts.shape[1] :]


def my_equal_groups(rewards: Tensor, group: int) -> Tensor:
    """[B] rewards to the share of groups whose rewards are all equal.

    `questions * group` puts each question once into every group. Such a group compares different questions, and its mean
    is no longer what was to be expected of *this* question: who got an easy one is rewarded for it. Without the bug a group
    is equal where the question has no carry (about one in six: each of three columns stays below ten with probability 0.55)
    or where none of its 16 completions is right. At the start both are frequent, and about a third of the groups is equal.
    Later the first kind is left, and questions that the model has learnt to answer every time.
    """
    rows = rewards.view(-1, group)  # [P, G]
    return (rows == rows[:, :1]).all(-1).float().mean()


COIN = r"""
At the first update on a batch the gradient is $-\frac1B \sum_i A_i g_i$, where $g_i$ is the mean of
$\nabla \log \pi$ over the tokens of $o_i$. Take the expectation over the coins with the completions held fixed:
$-\frac1B \sum_i E[A_i]\, g_i$. This is the step that needs a coin which does not look: if the rewards depended on the
completions, $A_i$ and $g_i$ could not be taken apart. The coins of a group are exchangeable, so all $E[A_i]$ of a group are
equal, and with a group's advantage they add up to 0: each is 0. The expected gradient is 0, whatever the completions are.

With the raw reward of a coin $E[A_i] = \frac12$, and what is left is $-\frac12 E[g_i]$. Under a sum over tokens $E[g_i] = 0$, since the
score has mean 0. Under a mean over each completion's tokens it is $\nabla E[1/|o|]$, which is not 0: the coin then pushes on length.

A step is no expectation. Its direction is random, its length is not small (the norm is cut at 1, and AdamW divides by the
size of recent gradients), and sixty such steps are a random walk of the weights. Most directions away from a model that
imitates well lead to one that does worse.
"""


def my_partial(prompts: list[str], completions: Tensor) -> Tensor:
    """[B] rewards between 0 and 1: the share of places that are right.

    What it does to the curve is for you to measure, with more than one seed.
    """
    right = encode([right_answer(prompt) for prompt in prompts])  # [B, T]
    same = (completions == right) * token_mask(completions)
    return same.mean(-1)
