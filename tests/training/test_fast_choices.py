"""What `Fast` decides before it reads anything: which rows go together, and what is handed to the loop."""

from dataclasses import replace

import torch

from rlhf_minimal import ALGORITHMS, KL, Batch
from rlhf_minimal.config import Config
from rlhf_minimal.functional.logprobs import token_entropy, token_logprobs
from rlhf_minimal.lab.fast import Fast, fast, logp_and_entropy, plain, without_effect
from rlhf_minimal.tasks import get_task
from rlhf_minimal.train import Recipe, compute_logprobs, compute_values

RECIPE = Recipe(ALGORITHMS["grpo"], get_task("addition"))


def test_what_the_loop_is_given():
    how = Fast(shared_prefix=False)
    given = fast(RECIPE, how)
    assert (given.compute_logprobs, given.compute_values, given.sort_minibatches) == (how.read, how.values, False)
    assert fast(RECIPE).sort_minibatches
    alone = plain(replace(RECIPE, sort_minibatches=True))
    assert (alone.compute_logprobs.func, alone.compute_logprobs.keywords) == (compute_logprobs, {"bucket_size": None})
    assert (alone.compute_values.func, alone.compute_values.keywords) == (compute_values, {"bucket_size": None})
    assert not alone.sort_minibatches


def test_rows_without_effect_share_no_piece_with_others():
    apart = torch.tensor([True, False, True, False])
    for how in (Fast(), Fast(sort_lengths=False)):
        found = [(sorted(places.tolist()), width) for places, width in how.pieces(torch.ones(4, 3), apart)]
        assert found == [([1, 3], 3), ([0, 2], 3)]
        for all_alike in (apart | True, apart & False):
            assert [sorted(places.tolist()) for places, _ in how.pieces(torch.ones(4, 3), all_alike)] == [[0, 1, 2, 3]]


def test_a_kl_has_an_effect_where_it_is_in_the_loss():
    zeros = torch.zeros(2, 1)
    batch = Batch(zeros, zeros, torch.ones(2, 1), torch.ones(2), 2, advantages=zeros)
    plain_row = replace(ALGORITHMS["dr_grpo"], kl=())
    for kl, idle in ((KL(0.1, "k1", place="reward"), True), (KL(0.0, "k3"), True), (KL(0.1, "k3"), False)):
        assert without_effect(replace(plain_row, kl=(kl,)), batch).tolist() == [idle, idle]
    assert without_effect(replace(plain_row, entropy=0.1), batch).tolist() == [False, False]


def test_log_probs_and_entropies_are_the_samplers():
    logits, ids = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(1)), torch.ones(2, 3, dtype=torch.long)
    logp, entropy = logp_and_entropy(logits, ids, Config(temperature=2.0), None)
    torch.testing.assert_close(logp, token_logprobs(logits, ids, temperature=2.0))
    torch.testing.assert_close(entropy, token_entropy(logits, temperature=2.0))
    assert not torch.allclose(logp, token_logprobs(logits, ids))
