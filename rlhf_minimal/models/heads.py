"""The critic: the network that PPO asks how good a half-written answer is."""

import copy

from jaxtyping import Float
from torch import Tensor, nn
from transformers import PreTrainedModel


class Critic(nn.Module):
    """A language model's body with one number per token in place of its vocabulary head.

    The body is a copy of the policy's at the start, not shared with it. Sharing would be cheaper, but then the value
    loss would move the policy too, and a difference between PPO and a critic-free method could no longer be read as
    a difference between algorithms. Separate networks are also what RLHF systems with PPO run.

    The head starts at zero: before it has seen a reward, the critic expects nothing anywhere, so the first
    advantages are simply the rewards.

    Chapter: ppo-rlhf. Paper: arXiv 2203.02155, appendix C.4 (the value function is a network of its own).

    Args:
        policy: The causal language model whose body is copied.

    Example:
        >>> import torch
        >>> from rlhf_minimal.models import tiny_llama
        >>> critic = Critic(tiny_llama(13, width=32, heads=2))
        >>> critic(torch.tensor([[1, 2, 3]]), torch.ones(1, 3)).tolist()
        [[0.0, 0.0, 0.0]]
    """

    def __init__(self, policy: PreTrainedModel):
        super().__init__()
        self.body = copy.deepcopy(policy.base_model)
        width = policy.config.get_text_config().hidden_size
        self.head = nn.Linear(width, 1)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, ids: Tensor, attention_mask: Tensor, position_ids: Tensor | None = None) -> Float[Tensor, "B L"]:
        """One value per position of `ids` [B, L], padding included (meaningless there)."""
        hidden = self.body(
            input_ids=ids, attention_mask=attention_mask, position_ids=position_ids, use_cache=False
        ).last_hidden_state
        return self.head(hidden.to(self.head.weight.dtype)).squeeze(-1)
