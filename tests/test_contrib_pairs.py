"""KTO, SimPO and ORPO: exact on the tree, by hand, and through the loop that trains any row of the second table."""

import math
from dataclasses import replace
from functools import partial

import pytest
import torch

from rlhf_book.tabular import Tree
from rlhf_minimal import PAIRWISE, Pairs, PairwiseAlgorithm, contrib, pairwise_gap, pairwise_loss, table
from rlhf_minimal.contrib.pairs import kto_loss, margin_loss, mean_logp, odds_ratio_loss
from rlhf_minimal.fit import FitConfig
from rlhf_minimal.lab.train_pairs import encode_pairs, make_pairs, train_pairwise
from rlhf_minimal.models import tiny_llama
from rlhf_minimal.pairs import log_ratio, logistic_loss
from rlhf_minimal.tasks import PairRow
from rlhf_minimal.vocabulary import Vocabulary

KTO, SIMPO, ORPO = (contrib.PAIRWISE[name] for name in ("kto", "simpo", "orpo"))
TREE = Tree(vocab=3, length=3)
VOCABULARY = Vocabulary("0123456789:")
every_row = pytest.mark.parametrize("name", contrib.PAIRWISE)


def close(actual, expected, tolerance=1e-9):
    torch.testing.assert_close(actual, torch.as_tensor(expected, dtype=actual.dtype), rtol=tolerance, atol=tolerance)


def normal(seed, *size):
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def listed(theta, ref, anchor=0.3):
    """Every ordered pair of the 15 completions."""
    i, j = (x.flatten() for x in torch.meshgrid(torch.arange(15), torch.arange(15), indexing="ij"))
    logp, ref_logp = TREE.logp(theta), TREE.logp(ref)
    return Pairs(
        chosen_logp=logp[i],
        rejected_logp=logp[j],
        chosen_mask=TREE.mask[i],
        rejected_mask=TREE.mask[j],
        ref_chosen_logp=ref_logp[i],
        ref_rejected_logp=ref_logp[j],
        anchor=torch.full((225,), anchor, dtype=torch.float64),
    )


def test_the_rows_as_a_table():
    assert table(contrib.PAIRWISE).splitlines()[2:] == [
        "| `kto` | `log_ratio` | `frozen` | `kto_loss(beta=0.1)` |",
        "| `simpo` | `mean_logp` | - | `margin_loss(beta=2, gamma=1)` |",
        "| `orpo` | `mean_logp` | - | `odds_ratio_loss(coef=0.1)` |",
    ]


def test_what_a_row_asks_for():
    assert (KTO.needs, KTO.loss_needs) == ({"logp", "ref_logp", "mask"}, {"chosen", "rejected", "anchor"})
    assert (SIMPO.needs, SIMPO.loss_needs) == ({"logp", "mask"}, set())
    assert (ORPO.needs, ORPO.loss_needs) == ({"logp", "mask"}, {"chosen", "rejected"})
    assert all(not row.loss_needs for row in PAIRWISE.values())


def test_a_loss_of_c_that_does_not_say_its_arguments_reads_the_gap():
    row = PairwiseAlgorithm(log_ratio, torch.nn.functional.softplus, reference="frozen")
    pairs = listed(TREE.random_logits(0), TREE.random_logits(1))
    assert row.loss_needs == set()
    close(pairwise_loss(row, pairs), torch.nn.functional.softplus(pairwise_gap(row, pairs)).mean())


@every_row
def test_the_mean_of_all_pairs_by_a_plain_loop(name):
    """Each formula written again in Python floats, pair by pair, with the sums of the tree's own probabilities."""
    theta, ref = TREE.random_logits(0), TREE.random_logits(1)
    whole, ref_whole = TREE.sequence_logp(theta).tolist(), TREE.sequence_logp(ref).tolist()
    n = TREE.mask.sum(1).tolist()

    def sigmoid(x):
        return 1 / (1 + math.exp(-x))

    def one(w, l):  # noqa: E741
        if name == "kto":
            good, bad = whole[w] - ref_whole[w] - 0.3, 0.3 - (whole[l] - ref_whole[l])
            return (1 - sigmoid(0.1 * good) + 1 - sigmoid(0.1 * bad)) / 2
        a, b = whole[w] / n[w], whole[l] / n[l]
        if name == "simpo":
            return -math.log(sigmoid(2 * (a - b) - 1))
        p, q = math.exp(a), math.exp(b)
        return -a - 0.1 * math.log(sigmoid(math.log(p / (1 - p) / (q / (1 - q)))))

    expected = sum(one(w, l) for w in range(15) for l in range(15)) / 225  # noqa: E741
    close(pairwise_loss(contrib.PAIRWISE[name], listed(theta, ref)), expected)


@every_row
def test_micro_batches_sum_to_the_whole(name):
    pairs = listed(TREE.random_logits(0), TREE.random_logits(1))
    row = contrib.PAIRWISE[name]
    close(sum(pairwise_loss(row, part) for part in pairs.split(7)), pairwise_loss(row, pairs))


@every_row
def test_the_slopes_are_those_of_differences(name):
    theta = TREE.random_logits(0).requires_grad_()
    ref = TREE.random_logits(1)
    assert torch.autograd.gradcheck(lambda x: pairwise_loss(contrib.PAIRWISE[name], listed(x, ref)), theta)


def test_ktos_pull_goes_where_a_label_is_surely_wrong_and_dpos_does_not():
    s = torch.tensor([-100.0, 0.0, 100.0], dtype=torch.float64, requires_grad=True)
    zero = torch.zeros(3, dtype=torch.float64)
    (kto,) = torch.autograd.grad(kto_loss(s, zero, zero, beta=0.1).sum(), s)
    (dpo,) = torch.autograd.grad(logistic_loss(s, beta=0.1).sum(), s)
    far = -0.05 * math.exp(-10) / (1 + math.exp(-10)) ** 2
    close(kto, [far, -0.0125, far])
    close(dpo, [-0.1 / (1 + math.exp(-10)), -0.05, -0.1 * math.exp(-10) / (1 + math.exp(-10))])
    assert 0 <= kto_loss(s, zero, zero).min() <= kto_loss(s, zero, zero).max() <= 1


def test_ktos_weights_and_its_anchor_are_constants():
    one, z = normal(0, 4), normal(1, 4).abs().requires_grad_()
    loss = kto_loss(one.requires_grad_(), normal(2, 4), z, good=3.0, bad=0.0)
    close(loss, 3 * kto_loss(one, normal(2, 4), z, bad=0.0))
    assert torch.autograd.grad(loss.sum(), z, allow_unused=True)[0] is None


def test_a_gap_of_the_margin_costs_what_none_costs_without():
    close(margin_loss(torch.tensor([0.25]).double(), beta=4.0, gamma=1.0), [math.log(2)])
    close(margin_loss(normal(0, 5), beta=0.7, gamma=0.0), logistic_loss(normal(0, 5), beta=0.7))


def test_simpo_and_dpo_rank_a_pair_differently_by_length_alone():
    """Two completions of one log-prob a token, of 1 and of 4 tokens: SimPO's gap is 0, a sum would prefer the short."""
    logp, mask = torch.full((1, 4), -0.5), torch.ones(1, 4)
    assert mean_logp(logp, mask) == mean_logp(logp[:, :1], mask[:, :1]) == -0.5


def test_orpo_holds_the_chosen_up_where_a_gap_alone_lets_both_fall():
    """Gradient in the two mean log-probs: at ORPO the chosen one rises at least as fast as by imitation."""
    s = torch.tensor([-1.0, -2.0], dtype=torch.float64, requires_grad=True)
    chosen, rejected = torch.autograd.grad(odds_ratio_loss(s[:1], s[1:], coef=0.1).sum(), s)[0]
    assert chosen < -1
    assert rejected > 0


@every_row
def test_values_outside_the_mask_are_not_read(name):
    row = contrib.PAIRWISE[name]
    pairs = listed(TREE.random_logits(0), TREE.random_logits(1))
    given = {field: x.clone() for field, x in pairs._tensors()}
    for side in ("chosen", "rejected"):
        for field in (f"{side}_logp", f"ref_{side}_logp"):
            given[field][given[f"{side}_mask"] == 0] = -torch.inf
    assert pairwise_loss(row, Pairs(**given)) == pairwise_loss(row, pairs)


# ---- refused ----------------------------------------------------------------------------------------------------


def test_what_is_refused():
    s = torch.zeros(2)
    pairs = listed(TREE.random_logits(0), TREE.random_logits(1))
    given = dict(pairs._tensors())
    with pytest.raises(ValueError, match="needs anchor: pass Pairs"):
        pairwise_loss(KTO, Pairs(**{k: x for k, x in given.items() if k != "anchor"}))
    with pytest.raises(ValueError, match="leave margin out"):
        pairwise_loss(ORPO, Pairs(**given, margin=torch.ones(225)))
    with pytest.raises(ValueError, match="anchor"):
        Pairs(chosen_scores=s, rejected_scores=s, anchor=torch.zeros(3))
    with pytest.raises(ValueError, match="has no odds"):
        odds_ratio_loss(s, s - 1)
    with pytest.raises(ValueError, match="coef"):
        odds_ratio_loss(s - 1, s - 1, coef=-0.1)
    with pytest.raises(ValueError, match="beta"):
        kto_loss(s, s, s, beta=0.0)
    with pytest.raises(ValueError, match="good"):
        kto_loss(s, s, s, good=-1.0)
    with pytest.raises(ValueError, match="gamma"):
        margin_loss(s, gamma=-1.0)
    with pytest.raises(ValueError, match="beta"):
        margin_loss(s, beta=0.0)
    with pytest.raises(ValueError, match="mask"):
        mean_logp(torch.zeros(1, 2), torch.zeros(1, 2))


# ---- in the loop ------------------------------------------------------------------------------------------------

ROWS = [PairRow(f"{a}:", chosen=str(a), rejected=str((a + 3) % 10)) for a in range(10)]
QUICK = FitConfig(steps=30, batch_size=10, lr=3e-3, seed=0)


def policy(seed=0):
    return tiny_llama(len(VOCABULARY), width=32, layers=1, max_length=8, seed=seed)


@every_row
def test_the_loop_trains_it(name):
    history = train_pairwise(contrib.PAIRWISE[name], policy(), VOCABULARY, ROWS, QUICK)
    assert history[-1]["loss"] < history[0]["loss"] - 0.02
    assert history[-1]["accuracy"] == 1


def test_the_anchor_is_what_the_batch_says_of_each_others_prompts():
    reference, model = policy(0), policy(1)
    examples = encode_pairs(ROWS, VOCABULARY)
    pairs = make_pairs(KTO, model, VOCABULARY, examples, reference)
    crossed = [replace(x, prompt=ROWS[(k + 1) % 10].prompt) for k, x in enumerate(ROWS)]
    other = make_pairs(PAIRWISE["dpo"], model, VOCABULARY, encode_pairs(crossed, VOCABULARY), reference)
    both = [
        log_ratio(getattr(other, f"{side}_logp"), getattr(other, f"ref_{side}_logp"), getattr(other, f"{side}_mask"))
        for side in ("chosen", "rejected")
    ]
    close(pairs.anchor, torch.cat(both).mean().clamp(min=0).expand(10).detach(), 1e-5)
    assert make_pairs(KTO, reference, VOCABULARY, examples, reference).anchor.abs().max() < 1e-6
    with pytest.raises(ValueError, match="at least two pairs a batch"):
        make_pairs(KTO, model, VOCABULARY, examples[:1], reference)


def test_variants_are_made_as_for_any_row():
    row = replace(SIMPO, loss=partial(margin_loss, beta=10.0, gamma=3.0))
    pairs = listed(TREE.random_logits(0), TREE.random_logits(1))
    close(pairwise_loss(row, pairs), -torch.nn.functional.logsigmoid(10 * pairwise_gap(row, pairs) - 3).mean())
