"""The critic: the network that estimates the value of an unfinished answer, for PPO."""

import copy
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import PreTrainedModel

HEAD_INITS = ("zero", "normal", "orthogonal")


class Critic(nn.Module):
    """A language model's body with a head that gives one number per token, in place of the vocabulary head.

    The body begins as a copy of the policy's, or it is the policy's own body, which is then shared, or it is that of
    another model that reads the same tokens: a smaller or larger one, or a reward model (as in InstructGPT).

    A copy is the default, and costs the memory of a second model. The value loss then cannot change the policy, so a
    difference between PPO and a method without a critic is a difference between the algorithms. A shared body costs
    only the weights of the head. The value loss then changes the policy as well, for better or worse, and
    `Config.value_coef` is its weight. OpenAI's first RLHF shared the body (arXiv 1909.08593), InstructGPT did not.

    With a head of zeros, all values are 0 before the first update, so the first advantages are computed from the
    rewards alone. A random head adds noise to them. With one output, a normal head of variance 1 / (width + 1) has a
    norm near 1, and an orthogonal one is a random direction of norm exactly 1: the two hardly differ.

    Chapter: ppo-rlhf. Paper: arXiv 2203.02155, appendix C.4 (the value function is a network of its own); normal
    heads: arXiv 2009.01325; orthogonal ones: arXiv 2005.12729, section 3.

    Args:
        policy: The causal language model whose body is copied or shared.
        shared: Use the policy's body itself. This module then has only the parameters of the head; the body is
            trained and saved with the policy.
        init: Initial weights of the head: "zero", "normal" or "orthogonal". Its bias begins at 0.
        seed: Seed of random weights; the global random state does not change.
        body: The model whose body is copied in place of the policy's.

    Raises:
        ValueError: If `init` is none of the three; if there is a `body` and the policy's is to be shared; if the body
            knows fewer tokens than the policy.

    Example:
        >>> from rlhf_minimal.models import tiny_llama
        >>> policy = tiny_llama(13, width=32, heads=2)
        >>> Critic(policy)(torch.tensor([[1, 2, 3]]), torch.ones(1, 3)).tolist()
        [[0.0, 0.0, 0.0]]
        >>> sum(p.numel() for p in Critic(policy, shared=True).parameters())
        33
    """

    body: Any  # the body of a PreTrainedModel

    def __init__(
        self,
        policy: PreTrainedModel,
        *,
        shared: bool = False,
        init: str = "zero",
        seed: int = 0,
        body: PreTrainedModel | None = None,
    ):
        super().__init__()
        if body is not None and shared:
            raise ValueError("a shared critic has the policy's body: leave body out, or shared")
        if init not in HEAD_INITS:
            raise ValueError(f"a value head's init is one of {', '.join(HEAD_INITS)}; got {init!r}")
        self.shared = shared
        if body is not None:
            known, needed = (model.config.get_text_config().vocab_size for model in (body, policy))
            if known < needed:
                raise ValueError(
                    f"the critic's body knows {known} tokens, and the policy writes {needed}: take another"
                )
        if shared:
            # Not registered as a submodule: otherwise the policy's weights would be parameters of this module, too.
            object.__setattr__(self, "body", policy.base_model)
        else:
            self.body = copy.deepcopy((body or policy).base_model).requires_grad_(True)
        width = self.body.config.get_text_config().hidden_size
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.head = nn.Linear(width, 1)
            if init == "zero":
                nn.init.zeros_(self.head.weight)
            elif init == "normal":
                nn.init.normal_(self.head.weight, std=(width + 1) ** -0.5)
            else:
                nn.init.orthogonal_(self.head.weight)
            nn.init.zeros_(self.head.bias)

    def forward(self, ids: Tensor, attention_mask: Tensor, position_ids: Tensor | None = None) -> Float[Tensor, "B L"]:
        """One value per position of `ids` [B, L]; those of padding have no meaning."""
        hidden = self.body(
            input_ids=ids, attention_mask=attention_mask, position_ids=position_ids, use_cache=False
        ).last_hidden_state
        return self.values(hidden)

    def values(self, hidden: Float[Tensor, "B L H"]) -> Float[Tensor, "B L"]:
        """The values for the body's last hidden states: the head alone."""
        with torch.autocast(hidden.device.type, enabled=False):  # bfloat16 has only two to three digits
            return self.head(hidden.to(self.head.weight.dtype)).squeeze(-1)
