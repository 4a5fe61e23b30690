"""What a training loop must provide for a cell, and for a row."""

from functools import partial

import pytest

from rlhf_minimal import ALGORITHMS, contrib
from rlhf_minimal.contracts import read_cell
from rlhf_minimal.functional import advantages, aggregation, corrections, filters, shaping

# module of functional -> column, and the cells of another column than their neighbours'
COLUMN_OF = {
    "advantages": "advantage",
    "aggregation": "aggregate",
    "shaping": "shape",
    "filters": "keep",
    "corrections": "correct",
    "trust": "trust",
    advantages.whiten: "normalize",
    contrib.advantages.zscore_rows: "normalize",
}
NEEDS = {
    advantages.gae: {"values"},
    advantages.returns_to_go: set(),
    advantages.group_centered: {"group"},
    advantages.group_normalized: {"group"},
    advantages.leave_one_out: {"group"},
    contrib.advantages.leave_one_out_normalized: {"group"},
    contrib.advantages.process: {"group"},
    contrib.advantages.given_baseline: {"baseline"},
    contrib.advantages.greedy_baseline: {"greedy_rewards"},
    contrib.advantages.gpg: {"group"},
    advantages.whiten: set(),
    contrib.advantages.batch_std: {"group"},
    contrib.advantages.gae_by_length: {"values"},
    contrib.advantages.maxrl: {"group"},
    contrib.advantages.opo: {"group"},
    contrib.advantages.best_minus_second: {"group"},
    contrib.advantages.teacher_gap: {"ref_logp"},
    contrib.advantages.prefix_weighted: {"ref_logp"},
    contrib.advantages.gdpo: {"group", "reward_parts"},
    contrib.advantages.zscore_rows: set(),
    aggregation.token_mean: set(),
    contrib.aggregation.token_sum: set(),
    contrib.aggregation.prompt_mean: set(),  # what it divides by is counted from every batch
    aggregation.sequence_mean: set(),
    aggregation.sequence_sum: set(),
    aggregation.fixed_length: {"budget"},
    aggregation.geometric_mean: set(),
    shaping.soft_overlong: {"budget"},
    contrib.shaping.cosine: {"budget"},
    contrib.shaping.length_reward: {"group"},  # it compares the completions of a prompt
    filters.mixed_outcomes: {"group"},
    contrib.filters.not_truncated: {"truncated"},
    contrib.trust.off_policy_sequence: {"sampler_logp"},
    contrib.trust.dppo_tv: set(),
    contrib.trust.dppo_kl: set(),
    contrib.trust.probability_band: set(),
    contrib.trust.high_entropy: {"entropy"},
    contrib.trust.clip_cov: set(),
    contrib.corrections.masked_importance: set(),
    contrib.corrections.normalized_importance: set(),
    corrections.truncated_importance: set(),  # whose column always takes sampler_logp
}


@pytest.mark.parametrize("cell", NEEDS)
def test_what_a_training_loop_must_provide_for_a_cell(cell):
    column = COLUMN_OF.get(cell) or COLUMN_OF[cell.__module__.rpartition(".")[2]]
    assert set(read_cell(column, cell).needs) == set(read_cell(column, partial(cell)).needs) == NEEDS[cell]


def test_what_a_training_loop_must_provide_for_a_row():
    expected = {
        "reinforce": set(),
        "rloo": {"group", "ref_logp"},
        "ppo": {"values", "ref_logp"},
        "reinforce_pp": {"ref_logp"},
        "grpo": {"group", "ref_logp"},
        "dr_grpo": {"group", "budget"},
        "dapo": {"group", "budget"},
        "reinforce_pp_baseline": {"group", "ref_logp"},
        **dict.fromkeys(["icepop", "olmo3"], {"group", "sampler_logp"}),
        "deepseek_v32": {"group", "ref_logp", "sampler_logp"},
        **dict.fromkeys(["gspo", "gspo_token", "gmpo", "cispo", "sapo", "kimi_k2", "dppo", "scalerl"], {"group"}),
        **dict.fromkeys(["lite_ppo", "dro", "luspo", "kimi_k25", "topr", "maxrl", "opo", "pass_at_k"], {"group"}),
        "sao": {"values"},
        "opd": {"ref_logp"},
        "sdpo": {"ref_logp"},
        "remax": {"greedy_rewards"},
        "high_entropy": {"group", "entropy"},
        "gdpo": {"group", "reward_parts"},
        "vespo": {"group"},
    }
    assert {name: set(row.needs) for name, row in ALGORITHMS.items()} == expected
