"""The critic: the network that PPO asks how good a half-written answer is."""

import copy

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import PreTrainedModel

HEAD_INITS = ("zero", "normal", "orthogonal")


class Critic(nn.Module):
    """A language model's body with one number per token in place of its vocabulary head.

    The body is a copy of the policy's at the start, or, if shared, the policy's own.

    A copy costs a second model, and is the default: the value loss then cannot move the policy, and a difference
    between PPO and a critic-free method can be read as a difference between algorithms. A shared trunk costs one
    number per token. What the critic learns then shapes what the policy knows, for better or worse, and a weight
    has to say how much (`Config.value_coef`). OpenAI's first RLHF shared it (arXiv 1909.08593), InstructGPT did not.

    A head of zeros expects nothing anywhere before it has seen a reward, so the first advantages are simply the
    rewards. A random head adds noise of its own opinions to them. With one output, a normal head of variance
    1 / (width + 1) has a length near 1, and an orthogonal one is a random direction of length exactly 1: the two
    hardly differ.

    Chapter: ppo-rlhf. Paper: arXiv 2203.02155, appendix C.4 (the value function is a network of its own); normal
    heads: arXiv 2009.01325; orthogonal ones: arXiv 2005.12729, section 3.

    Args:
        policy: The causal language model whose body is copied or shared.
        shared: Use the policy's body itself. The parameters of this module are then the head's alone: the body is
            trained and saved with the policy.
        init: How the head's weights begin: "zero", "normal" or "orthogonal". Its bias begins at 0.
        seed: Decides random weights; the global random state is left as it was.

    Raises:
        ValueError: If `init` is none of the three.

    Example:
        >>> from rlhf_minimal.models import tiny_llama
        >>> policy = tiny_llama(13, width=32, heads=2)
        >>> Critic(policy)(torch.tensor([[1, 2, 3]]), torch.ones(1, 3)).tolist()
        [[0.0, 0.0, 0.0]]
        >>> sum(p.numel() for p in Critic(policy, shared=True).parameters())
        33
    """

    body: nn.Module

    def __init__(self, policy: PreTrainedModel, *, shared: bool = False, init: str = "zero", seed: int = 0):
        super().__init__()
        if init not in HEAD_INITS:
            raise ValueError(f"a value head's init is one of {', '.join(HEAD_INITS)}; got {init!r}")
        self.shared = shared
        if shared:
            # Past torch's register of submodules: else the policy's weights would be this module's parameters too.
            object.__setattr__(self, "body", policy.base_model)
        else:
            self.body = copy.deepcopy(policy.base_model)
        width = policy.config.get_text_config().hidden_size
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
        """One value per position of `ids` [B, L], padding included (meaningless there)."""
        hidden = self.body(
            input_ids=ids, attention_mask=attention_mask, position_ids=position_ids, use_cache=False
        ).last_hidden_state
        return self.values(hidden)

    def values(self, hidden: Float[Tensor, "B L H"]) -> Float[Tensor, "B L"]:
        """The head alone, on the body's last hidden states."""
        with torch.autocast(hidden.device.type, enabled=False):  # of a value in bfloat16, two digits would be left
            return self.head(hidden.to(self.head.weight.dtype)).squeeze(-1)
