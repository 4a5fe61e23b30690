"""Policies (a tiny model with random weights, or a real model loaded by name), critics and reward models."""

from rlhf_minimal.models.forward import critic_values, policy_logits, policy_logits_and_values, positions
from rlhf_minimal.models.heads import Critic
from rlhf_minimal.models.lora import adapter, add_lora, load_adapter, merged, share_weights
from rlhf_minimal.models.pretrained import SHORT_NAMES, load_config, load_pretrained
from rlhf_minimal.models.recompute import recomputing
from rlhf_minimal.models.reward_model import RewardModel, load_reward_model, sequence_scores
from rlhf_minimal.models.tiny import tiny_llama
from rlhf_minimal.models.vocabulary import (
    AnyVocabulary,
    TokenizerVocabulary,
    Vocabulary,
    character_tokenizer,
    check_same_vocabulary,
)

__all__ = [
    "SHORT_NAMES",
    "AnyVocabulary",
    "Critic",
    "RewardModel",
    "TokenizerVocabulary",
    "Vocabulary",
    "adapter",
    "add_lora",
    "load_adapter",
    "merged",
    "recomputing",
    "character_tokenizer",
    "check_same_vocabulary",
    "critic_values",
    "load_config",
    "load_pretrained",
    "load_reward_model",
    "policy_logits",
    "policy_logits_and_values",
    "positions",
    "sequence_scores",
    "share_weights",
    "tiny_llama",
]
