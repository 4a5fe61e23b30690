"""Policies: one that can be listed, tiny ones made on the spot, real ones by name, and the critic that PPO adds."""

from rlhf_minimal.models.forward import critic_values, policy_logits, positions
from rlhf_minimal.models.heads import Critic
from rlhf_minimal.models.pretrained import load_pretrained
from rlhf_minimal.models.tabular import Tree
from rlhf_minimal.models.tiny import tiny_llama
from rlhf_minimal.models.vocabulary import TokenizerVocabulary, Vocabulary

__all__ = [
    "Critic",
    "TokenizerVocabulary",
    "Tree",
    "Vocabulary",
    "critic_values",
    "load_pretrained",
    "policy_logits",
    "positions",
    "tiny_llama",
]
