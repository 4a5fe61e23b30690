"""The forward pass over prompt and completion, with gradient.

Outputs of policy and critic are taken at the same positions: at the prompt's last token, and at all completion tokens
but the last. There the T completion tokens are predicted (`functional.logprobs.completion_logits` does this shift).

The model reads every row from its first token to its last, without a cache. In `lab.fast` it reads a prompt once
for its whole group.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from rlhf_minimal.functional.logprobs import completion_logits
from rlhf_minimal.models.heads import Critic


def positions(attention_mask: Tensor) -> Tensor:
    """Position of every token, counted from the first real one: left padding does not move a prompt.

    Args:
        attention_mask: [B, L], 1 for real tokens, 0 for padding.

    Returns:
        [B, L] integers; padding gets 0, which is never attended to.

    Example:
        >>> positions(torch.tensor([[0, 0, 1, 1, 1]])).tolist()
        [[0, 0, 0, 1, 2]]
    """
    return (attention_mask.long().cumsum(-1) - 1).clamp(min=0)


def policy_logits(
    model: PreTrainedModel,
    prompts: Int[Tensor, "B S"],
    prompt_mask: Int[Tensor, "B S"],
    completions: Int[Tensor, "B T"],
) -> Float[Tensor, "B T V"]:
    """The logits from which each completion token was drawn, or would be drawn.

    Args:
        model: Any causal language model of transformers.
        prompts: [B, S] ids, padded on the left.
        prompt_mask: [B, S], 1 for real prompt tokens.
        completions: [B, T] ids, padded on the right with any id: no token sees those that follow it.

    Returns:
        [B, T, V] logits; entry t is for completion token t.
    """
    T = completions.shape[1]
    logits = forward(model, prompts, prompt_mask, completions, logits_to_keep=T + 1).logits
    return completion_logits(logits, T)


def critic_values(
    critic: Critic,
    prompts: Int[Tensor, "B S"],
    prompt_mask: Int[Tensor, "B S"],
    completions: Int[Tensor, "B T"],
) -> Float[Tensor, "B T"]:
    """The critic's estimate before each completion token is written: entry t has seen tokens 0 to t - 1 only.

    Args and padding as in `policy_logits`.

    Returns:
        [B, T] values, in units of reward.
    """
    ids, attention_mask = joined(prompts, prompt_mask, completions)
    values = critic(ids, attention_mask, positions(attention_mask))  # [B, S + T]
    return completion_logits(values.unsqueeze(-1), completions.shape[1]).squeeze(-1)


def policy_logits_and_values(
    model: PreTrainedModel,
    critic: Critic,
    prompts: Int[Tensor, "B S"],
    prompt_mask: Int[Tensor, "B S"],
    completions: Int[Tensor, "B T"],
) -> tuple[Float[Tensor, "B T V"], Float[Tensor, "B T"]]:
    """`policy_logits` and `critic_values` of a policy and a critic that share their body, in one pass through it.

    Args:
        model: The policy.
        critic: A critic that shares its body.
        prompts: As in `policy_logits`, like the two that follow.
        prompt_mask: [B, S].
        completions: [B, T].

    Returns:
        [B, T, V] logits and [B, T] values; the gradient of either goes through the shared body.

    Raises:
        ValueError: If the critic has a body of its own.
    """
    if not critic.shared:
        raise ValueError("this critic has a body of its own: compute its values with critic_values")
    T = completions.shape[1]
    output = forward(model, prompts, prompt_mask, completions, logits_to_keep=T + 1, output_hidden_states=True)
    values = critic.values(output.hidden_states[-1])  # [B, S + T]; the last hidden states are after the final norm
    return completion_logits(output.logits, T), completion_logits(values.unsqueeze(-1), T).squeeze(-1)


def forward(model: PreTrainedModel, prompts: Tensor, prompt_mask: Tensor, completions: Tensor, **options: Any) -> Any:
    """What a model of transformers returns for prompts followed by their completions, read without a cache.

    Args:
        model: Any causal language model of transformers.
        prompts: As in `policy_logits`, like the two that follow.
        prompt_mask: [B, S].
        completions: [B, T].
        **options: Passed on to the model: `logits_to_keep=n` computes the logits of the last n tokens only.
    """
    ids, attention_mask = joined(prompts, prompt_mask, completions)
    position_ids = positions(attention_mask)
    return model(input_ids=ids, attention_mask=attention_mask, position_ids=position_ids, use_cache=False, **options)


def joined(prompts: Tensor, prompt_mask: Tensor, completions: Tensor) -> tuple[Tensor, Tensor]:
    """[B, S + T] ids and attention mask of prompts followed by their completions."""
    ids = torch.cat([prompts, completions], dim=1)  # [B, S + T]
    return ids, torch.cat([prompt_mask.long(), torch.ones_like(completions)], dim=1)
