"""The loop of `loop.py` with a critic: PPO as it is run on language models.

Text, task, model, sampling and log-probs are those of `loop.py`. New are a critic that
estimates the reward to come before each token, advantages from its estimates (GAE), a
loss for the critic, a penalty for leaving the model at the start (KL), and four updates
on each batch. The critic needs no group, so every completion answers its own prompt.

The chapters about PPO show their lines as a change of this file. A test holds both
gradients, the policy's and the critic's, equal to those of the library's row `ppo`.
"""

import copy
import random

import torch
from torch import Tensor, nn
from transformers import LlamaForCausalLM

from rlhf_book.loop import encode, is_right, log_probs, make_prompt, sample, token_mask

# ---- the critic ----------------------------------------------------------------------


class Critic(nn.Module):
    """A copy of the model, with one number for each token in place of the logits."""

    def __init__(self, model: LlamaForCausalLM):
        super().__init__()
        self.body = copy.deepcopy(model.model)
        self.head = nn.Linear(model.config.hidden_size, 1)
        nn.init.zeros_(self.head.weight)  # it expects nothing before it has learnt
        nn.init.zeros_(self.head.bias)

    def forward(self, prompts: Tensor, completions: Tensor) -> Tensor:
        """[B, T]: the reward that it expects, before it sees each token."""
        ids = torch.cat([prompts, completions], dim=1)  # [B, S+T]
        hidden = self.body(ids).last_hidden_state  # [B, S+T, H]
        hidden = hidden[:, prompts.shape[1] - 1 : -1]  # [B, T, H]: the shift
        return self.head(hidden).squeeze(-1)  # [B, T]


# ---- from rewards to advantages ------------------------------------------------------


def token_rewards(
    rewards: Tensor, old: Tensor, reference: Tensor, mask: Tensor
) -> Tensor:
    """[B] rewards to [B, T]: at the last token, and at each token the KL penalty."""
    is_last = (mask.cumsum(-1) == mask.sum(-1, keepdim=True)) * mask  # [B, T]
    return is_last * rewards.unsqueeze(-1) - 0.02 * (old - reference) * mask


def gae(rewards: Tensor, values: Tensor, mask: Tensor, lam: float = 0.95) -> Tensor:
    """[B, T] token rewards and values to [B, T] advantages, from the last token back."""
    advantages = torch.zeros_like(values)
    next_value = next_advantage = torch.zeros_like(values[:, 0])  # [B], behind the end
    for t in reversed(range(values.shape[1])):
        td_error = rewards[:, t] + next_value - values[:, t]
        advantages[:, t] = (td_error + lam * next_advantage) * mask[:, t]
        next_value, next_advantage = values[:, t] * mask[:, t], advantages[:, t]
    return advantages


def whiten(advantages: Tensor, mask: Tensor) -> Tensor:
    """Mean 0 and variance 1 over all tokens of the batch."""
    mean = (advantages * mask).sum() / mask.sum()
    variance = ((advantages - mean) ** 2 * mask).sum() / (mask.sum() - 1)
    return (advantages - mean) / (variance + 1e-8).sqrt()


# ---- two losses ----------------------------------------------------------------------


def ppo_loss(logp: Tensor, old: Tensor, A: Tensor, mask: Tensor) -> Tensor:
    """The policy's loss, as in `loop.py`, but with [B, T] advantages, one a token."""
    ratio = torch.exp(logp - old)  # [B, T]
    objective = torch.minimum(ratio * A, ratio.clamp(0.8, 1.2) * A)  # [B, T]
    return -((objective * mask).sum(-1) / mask.sum(-1)).mean()


def value_loss(values: Tensor, old: Tensor, returns: Tensor, mask: Tensor) -> Tensor:
    """The critic's squared error; no pull once moved more than 0.2 towards its target.

    What has moved past its target is pulled back.
    """
    near = old + (values - old).clamp(-0.2, 0.2)
    error = torch.maximum((values - returns) ** 2, (near - returns) ** 2)  # [B, T]
    return 0.5 * (error * mask).sum() / mask.sum()


# ---- the loop ------------------------------------------------------------------------


def train(
    model: LlamaForCausalLM,
    *,
    steps: int = 60,
    prompts: int = 256,
    updates: int = 4,
    seed: int = 0,
) -> list[float]:
    """Reinforcement learning; the share of right completions in each step."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    reference, critic = copy.deepcopy(model), Critic(model)
    both = [*model.parameters(), *critic.parameters()]
    optimizer = torch.optim.AdamW(both, lr=8e-4, weight_decay=0.0)
    history = []
    for _ in range(steps):
        asked = [make_prompt(rng) for _ in range(prompts)]
        ids = encode(asked)  # [B, S], B = prompts
        completions = sample(model, ids)  # [B, T]
        mask = token_mask(completions)  # [B, T]
        right = is_right(asked, completions)  # [B]
        with torch.no_grad():
            old_logp = log_probs(model, ids, completions)  # [B, T]
            old_values = critic(ids, completions)  # [B, T]
            ref_logp = log_probs(reference, ids, completions)  # [B, T]
        rewards = token_rewards(right, old_logp, ref_logp, mask)  # [B, T]
        advantages = gae(rewards, old_values, mask)  # [B, T]
        returns = advantages + old_values  # [B, T]: what the critic should have said
        advantages = whiten(advantages, mask)
        for _ in range(updates):
            logp = log_probs(model, ids, completions)  # [B, T]
            values = critic(ids, completions)  # [B, T]
            policy_part = ppo_loss(logp, old_logp, advantages, mask)
            critic_part = value_loss(values, old_values, returns, mask)
            optimizer.zero_grad()
            (policy_part + critic_part).backward()  # they share no weights
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            torch.nn.utils.clip_grad_norm_(critic.parameters(), 1.0)
            optimizer.step()
        history.append(right.mean().item())
    return history
