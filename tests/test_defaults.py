"""A default is a claim about a paper or a convention: each one stands here once more, with where it comes from.

So are the numbers in the rows that `contrib` adds; its comments say whose each of them is.
"""

import importlib
import inspect
import pkgutil
from dataclasses import replace

import pytest
import torch

from rlhf_minimal import ALGORITHMS, Batch, contrib, functional, pairs, policy_loss, prepare, table
from rlhf_minimal.functional import advantages, corrections, gates, logprobs, masked, shaping
from rlhf_minimal.lab import chunked

# cell -> its defaults. What is meant when nothing is said is printed in the book, and a library's or a paper's number.
DEFAULTS = {
    advantages.gae: {"gamma": 1.0, "lam": 0.95},  # Ziegler et al. 1909.08593: no discount; lambda as in its code
    advantages.returns_to_go: {"gamma": 1.0},
    advantages.group_normalized: {"eps": 1e-4, "ddof": 1},  # TRL's epsilon; torch.std
    contrib.advantages.leave_one_out_normalized: {"std": "group", "eps": 1e-4},
    contrib.advantages.process: {"eps": 1e-4, "ddof": 1},
    contrib.advantages.own_step: {"coef": 1.0, "eps": 1e-4, "ddof": 1},
    contrib.advantages.first_wrong: {"coef": 1.0, "threshold": 0.5, "eps": 1e-4, "ddof": 1},
    corrections.truncated_importance: {"cap": 2.0, "floor": 0.0, "level": "token"},
    contrib.corrections.masked_importance: {"low": 0.5, "high": 2.0, "level": "token"},  # GLM-5 2602.15763: beta = 2
    contrib.corrections.score_centering: {"floor": 1.0, "cap": 1.0},  # no weight
    contrib.corrections.normalized_importance: {"cap": 2.0, "floor": 0.0, "level": "token"},
    contrib.advantages.batch_std: {"eps": 1e-4, "ddof": 1},  # TRL
    contrib.advantages.gae_by_length: {"alpha": 1.5, "gamma": 1.0},  # SAO 2607.07508, as reimplemented
    contrib.advantages.prefix_weighted: {"gamma": 0.5},  # TRL
    contrib.advantages.maxrl: {"eps": 1e-6},  # SkyRL
    contrib.advantages.best_minus_second: {"eps": 1e-6},  # verl
    contrib.advantages.gdpo: {"eps": 1e-6, "ddof": 1},  # verl
    contrib.advantages.zscore_rows: {"eps": 1e-4, "ddof": 1},  # TRL
    contrib.trust.off_policy_sequence: {"delta": 0.5},  # TRL
    contrib.trust.dppo_tv: {"low": 0.2, "high": 0.2},  # prime-rl
    contrib.trust.dppo_kl: {"low": 0.05, "high": 0.05},
    contrib.trust.probability_band: {"bound": 0.3},  # prime-rl
    contrib.pairs.margin_loss: {"beta": 2.0, "gamma": 1.0},  # within the ranges of SimPO 2405.14734
    contrib.pairs.odds_ratio_loss: {"coef": 0.1},  # TRL
    contrib.pairs.kto_loss: {"beta": 0.1, "good": 1.0, "bad": 1.0},  # KTO 2402.01306
    contrib.trust.high_entropy: {"share": 0.2},  # Wang et al. 2506.01939
    # verl
    contrib.trust.clip_cov: {"share": 2e-4, "low": 1.0, "high": 5.0, "clip_low": 0.2, "clip_high": 0.2, "seed": 1},
    advantages.whiten: {"eps": 1e-8, "ddof": 1},
    gates.clip_weight: {"floor": 0.0},
    contrib.gates.dual_clip: {"c": 3.0},  # Ye et al. 1912.09729
    gates.sigmoid: {"tau_pos": 1.0, "tau_neg": 1.05},  # SAPO 2511.20347
    contrib.gates.vespo: {"k_pos": 2.0, "k_neg": 3.0, "lam_pos": 3.0, "lam_neg": 2.0},  # VESPO 2602.10693
    chunked.chunked_logprobs: {"temperature": 1.0, "chunk": 1024},
    logprobs.token_logprobs: {"temperature": 1.0},
    logprobs.token_entropy: {"temperature": 1.0},
    masked.masked_var: {"ddof": 1},
    pairs.logistic_loss: {"beta": 1.0, "smoothing": 0.0},
    shaping.soft_overlong: {"cache_fraction": 0.2},  # DAPO 2503.14476: 4096 of 20480 tokens
    contrib.shaping.length_reward: {"coef": 1.0},
    contrib.shaping.cosine: {"right_short": 1.0, "right_long": 0.5, "wrong_short": -1.0, "wrong_long": -0.5},  # TRL
}

# The rows as `table` prints them: what a row writes out stands here even where it is the cell's default.
ROWS = """
reinforce_pp_baseline: advantage group_centered | normalize whiten | ratio token | gate clip(low=0.2, high=0.2) |
    aggregate token_mean | kl k2 in loss 0.001
icepop: advantage group_normalized | ratio token | gate clip(low=0.2, high=0.28) | aggregate sequence_mean |
    correct masked_importance(low=0.5, high=2)
deepseek_v32: advantage group_centered | ratio token | gate clip(low=0.2, high=0.2) |
    trust off_policy_sequence(delta=0.5) | aggregate sequence_mean | kl k3 weighted in loss 0.001
dppo: advantage group_centered | ratio token | gate none | trust dppo_tv(low=0.2, high=0.2) |
    aggregate token_mean | kl k2 in loss against old 0.002
scalerl: advantage batch_std | ratio token | gate clip_weight(cap=5) | aggregate prompt_mean | keep mixed_outcomes
lite_ppo: advantage batch_std | ratio token | gate clip(low=0.2, high=0.2) | aggregate token_mean
dro: advantage group_centered | ratio on_policy | gate none | aggregate token_mean | kl k2 in loss against old 0.1
luspo: advantage group_normalized | ratio sequence | gate clip(low=0.002, high=0.0025) | aggregate sequence_sum
olmo3: advantage group_centered | ratio token | gate clip(low=0.2, high=0.272) | aggregate token_mean |
    keep mixed_outcomes | correct truncated_importance(cap=2)
kimi_k25: advantage group_centered | ratio token | gate mask_weight(low=0.2, high=0.28) | aggregate token_mean |
    kl k2 in loss against old 0.02
topr: advantage group_centered | ratio token | gate topr | aggregate sequence_sum
maxrl: advantage maxrl | ratio token | gate clip(low=0.2, high=0.28) | aggregate token_mean
opo: advantage opo | ratio on_policy | gate none | aggregate sequence_sum
pass_at_k: advantage best_minus_second | ratio on_policy | gate none | aggregate sequence_sum
sao: advantage gae_by_length(alpha=1.5) | targets gae(lam=1) | ratio token | gate mask_weight(low=0.3, high=5) |
    aggregate token_mean
opd: advantage teacher_gap | ratio token | gate none | aggregate token_mean
sdpo: advantage teacher_gap | ratio token | gate clip_weight(cap=2) | aggregate sequence_mean
remax: advantage greedy_baseline | ratio on_policy | gate none | aggregate sequence_sum
high_entropy: advantage group_normalized | ratio token | gate clip(low=0.2, high=0.28) |
    trust high_entropy(share=0.2) | aggregate token_mean | keep mixed_outcomes
gdpo: advantage gdpo | normalize whiten | ratio token | gate clip(low=0.2, high=0.2) | aggregate token_mean
vespo: advantage group_normalized | ratio product_token | gate vespo | aggregate token_mean
"""


def defaults(function):
    """Every default of a function; None is no number, it says that nothing was given."""
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.default not in (p.empty, None)}


def test_every_default_of_a_cell_is_claimed_here():
    """A new one is a claim like the others: a budget, say, has none, since it is never the padded width."""
    modules = [pairs, chunked] + [
        importlib.import_module(f"{package.__name__}.{module.name}")
        for package in (functional, contrib)
        for module in pkgutil.iter_modules(package.__path__)
        if module.name != "checks"
    ]
    cells = {cell for m in modules for cell in vars(m).values() if getattr(cell, "__module__", "") == m.__name__}
    public = {cell for cell in cells if inspect.isfunction(cell) and not cell.__name__.startswith("_")}
    assert {cell.__name__: defaults(cell) for cell in public if defaults(cell)} == {
        cell.__name__: claimed for cell, claimed in DEFAULTS.items()
    }


def printed(rows):
    """What a table says of each row, without the columns that it leaves empty."""
    header, _, *lines = ([cell.strip(" `") for cell in line.split("|")[1:-1]] for line in table(rows).splitlines())
    cells = (" | ".join(f"{c} {x}" for c, x in zip(header[1:], line[1:], strict=True) if x != "-") for line in lines)
    return dict(zip(rows, cells, strict=True))


def test_every_number_in_a_row_of_contrib_is_claimed_here():
    """Those of its pairwise rows stand in test_contrib_pairs.py."""
    lines = ROWS.strip().replace("\n    ", " ").splitlines()
    assert printed(contrib.ALGORITHMS) == dict(line.split(": ") for line in lines)


def test_an_option_left_out_is_its_default():
    """By what comes out, not by what is written down: two calls that differ in the option alone."""
    ratio = torch.tensor([[0.2, 5.0]], dtype=torch.float64)
    bad = -torch.ones_like(ratio)
    plain = {"low": 0.2, "high": 0.2}
    assert torch.equal(
        contrib.gates.dual_clip(ratio, bad, **plain), contrib.gates.dual_clip(ratio, bad, **plain, c=3.0)
    )
    assert not torch.equal(
        contrib.gates.dual_clip(ratio, bad, **plain), contrib.gates.dual_clip(ratio, bad, **plain, c=4.0)
    )
    for advantage, changed in ((-bad, {"tau_pos": 2.0}), (bad, {"tau_neg": 2.05})):
        assert torch.equal(gates.sigmoid(ratio, advantage), gates.sigmoid(ratio, advantage, tau_pos=1.0, tau_neg=1.05))
        assert not torch.equal(gates.sigmoid(ratio, advantage), gates.sigmoid(ratio, advantage, **changed))
    old, sampled, mask = torch.zeros(1, 2), torch.tensor([[-3.0, 0.1]]), torch.ones(1, 2)
    assert corrections.truncated_importance(old, sampled, mask)[0, 0] == 2.0
    rewards = torch.tensor([[1.0], [0.0], [0.0], [0.5]], dtype=torch.float64)
    given = {"group_size": 4, "std": "others"}
    found = contrib.advantages.leave_one_out_normalized(rewards, torch.ones(4, 1), **given)
    torch.testing.assert_close(
        found, contrib.advantages.leave_one_out_normalized(rewards, torch.ones(4, 1), **given, eps=1e-4), rtol=0, atol=0
    )


def test_a_part_of_a_batch_keeps_its_budget_in_its_totals():
    """Taking the field away from a part changes nothing; taking it from a whole batch is an error."""
    row = ALGORITHMS["dr_grpo"]
    logp = -torch.ones(4, 3)
    batch = prepare(row, Batch(logp, logp, torch.ones(4, 3), torch.tensor([1.0, 0, 0, 1]), 4, budget=8))
    part = batch.split(2)[0]
    assert part.totals is not None
    torch.testing.assert_close(policy_loss(row, replace(part, budget=None)), policy_loss(row, part))
    with pytest.raises(ValueError, match="needs budget"):
        policy_loss(row, replace(batch, budget=None))
    other = prepare(ALGORITHMS["grpo"], replace(batch, ref_logp=logp))
    with pytest.raises(ValueError, match="needs ref_logp"):
        policy_loss(ALGORITHMS["grpo"], replace(other.split(2)[0], ref_logp=None))
