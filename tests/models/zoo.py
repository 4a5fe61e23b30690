"""Tiny models of many architectures, with random weights that are large enough to show every mistake."""

import torch
import transformers
from packaging.version import Version
from transformers import AutoConfig, AutoModelForCausalLM

from rlhf_minimal.models import Vocabulary

VOCABULARY = Vocabulary("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLM")  # 39 characters and the end
EXPERTS = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
EXPERTS |= {"n_routed_experts": 4, "n_shared_experts": 1, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1}
LATENT = {"head_dim": 4, "q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4}
LATENT |= {"v_head_dim": 8, "num_key_value_heads": 4}
LINEAR = {"linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8}
LINEAR |= {"layer_types": ["linear_attention", "full_attention"]}
MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_n_groups": 1}
OLD = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}

ATTENTION = {  # what an architecture's config needs besides `SIZES`
    "llama": {},
    "qwen2": {},
    "qwen3": {},
    "smollm3": {},
    "qwen3_moe": EXPERTS,
    "mixtral": EXPERTS,
    "gemma2": {},
    "gemma3_text": {},
    "phi": {},
    "phi3": {},
    "gpt2": OLD,
    "gptj": OLD | {"rotary_dim": 4},
    "gpt_neox": {},
    "opt": {"ffn_dim": 64, "word_embed_proj_dim": 32},
    "falcon": {},
    "bloom": {"n_layer": 2, "n_head": 4},
    "cohere": {},
    "gpt_oss": EXPERTS,
    "deepseek_v3": EXPERTS | LATENT,
    "olmoe": EXPERTS,
    "glm4_moe": EXPERTS,
}
HYBRID = {  # some of whose layers keep a state, and which sample as they should
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "qwen3_next": EXPERTS | LINEAR | {"shared_expert_intermediate_size": 32},
    "qwen3_5_text": LINEAR,
    "falcon_h1": {"mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_n_groups": 1},
    "granitemoehybrid": EXPERTS | MAMBA | {"layer_types": ["mamba", "attention"], "mamba_expand": 2},
    "jamba": EXPERTS | {"attn_layer_period": 2, "attn_layer_offset": 1} | {"mamba_d_state": 8, "mamba_dt_rank": 4},
    "bamba": MAMBA | {"attn_layer_indices": [1]},
}
REFUSED = {  # which this library cannot sample: padding runs into their state, or they keep no cache that it can use
    "rwkv": {"attention_hidden_size": 32, "context_length": 64},
    "recurrent_gemma": {"lru_width": 32, "block_types": ["recurrent", "attention"], "attention_window_size": 64},
    "minimax": EXPERTS | {"layer_types": ["linear_attention", "full_attention"], "block_size": 8},
    "mamba": {"state_size": 8},
    "mamba2": {"num_heads": 8, "head_dim": 8, "state_size": 8, "n_groups": 1},
    "openai-gpt": OLD,
    # whose cache computes the state without the bound on a step that a whole reading has
    "nemotron_h": EXPERTS
    | {"layer_types": ["linear_attention", "full_attention", "mlp"], "num_hidden_layers": 3, "ssm_state_size": 8}
    | {"mamba_num_heads": 8, "mamba_head_dim": 8, "n_groups": 1},
    "zamba2": {"mamba_d_state": 8, "n_mamba_heads": 8, "mamba_ngroups": 1, "mamba_headdim": 8, "chunk_size": 8}
    | {"layers_block_type": ["mamba", "hybrid"], "hybrid_layer_ids": [1], "num_mem_blocks": 1},
}
# 5.24 mended its padding and its cache; peft cannot adapt it
MENDED = {"mamba2": REFUSED.pop("mamba2")} if Version(transformers.__version__) >= Version("5.24") else {}
SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
SIZES |= {"num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64}
TOKENS = {"eos_token_id": 0, "bos_token_id": None, "pad_token_id": None}


def tiny(architecture, vocab_size=40, seed=0, **options):
    """A model of an architecture, with some thousand weights."""
    own = (ATTENTION | HYBRID | REFUSED | MENDED | {"phimoe": EXPERTS})[architecture]
    settings = {"vocab_size": vocab_size, **SIZES, **TOKENS, **own, **options}
    if architecture == "falcon":
        del settings["head_dim"]  # which it computes
    config = AutoConfig.for_model(architecture, **settings)
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config).eval()
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.normal_(std=0.2)
    return model
