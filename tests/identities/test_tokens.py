"""Two roads to one number: log-probabilities from logits, masks and places."""

import math

import pytest
import torch

from rlhf_minimal.functional import advantages, logprobs, masked
from tests.identities.batches import close

# ---- from logits --------------------------------------------------------------------------------------------


def test_the_logits_of_a_completion_are_shifted_by_one():
    """Position t predicts token t + 1: the last two of five tokens are predicted at positions 2 and 3."""
    logits = torch.arange(10.0).reshape(1, 5, 2)
    assert logprobs.completion_logits(logits, 2).tolist() == [[[4.0, 5.0], [6.0, 7.0]]]
    assert logprobs.completion_logits(logits, 4).tolist() == logits[:, :4].tolist()


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probs_and_entropy_by_hand(temperature):
    """A token of logit -inf has no probability, and 0 log 0 is 0."""
    logits = torch.tensor([[[1.0, 2.0, -math.inf], [0.0, -1.0, 3.0]], [[5.0, 5.0, 5.0], [-2.0, 0.5, 0.1]]]).double()
    ids = torch.tensor([[1, 2], [0, 2]])
    options = {} if temperature == 1.0 else {"temperature": temperature}
    logp, entropy = logprobs.token_logprobs(logits, ids, **options), logprobs.token_entropy(logits, **options)
    for i in range(2):
        for t in range(2):
            weights = [math.exp(z / temperature) for z in logits[i, t].tolist()]
            probs = [w / sum(weights) for w in weights]
            assert float(logp[i, t]) == pytest.approx(math.log(probs[ids[i, t]]), abs=1e-12)
            assert float(entropy[i, t]) == pytest.approx(-sum(p * math.log(p) for p in probs if p), abs=1e-12)


def test_half_precision_logits_become_float32_log_probs():
    logits = torch.tensor([[[1.0, 2.0, 3.0]]])
    for dtype in (torch.bfloat16, torch.float16):
        ours = logprobs.token_logprobs(logits.to(dtype), torch.tensor([[1]]))
        assert ours.dtype == torch.float32
        close(ours, logprobs.token_logprobs(logits, torch.tensor([[1]])))
    assert logprobs.token_entropy(logits.double()).dtype == torch.float64


# ---- masks and places -----------------------------------------------------------------------------------------


def test_the_completion_mask_counts_the_first_eos_in_and_stops():
    ids = torch.tensor([[5, 2, 7, 2], [5, 6, 7, 8], [2, 2, 2, 2], [2, 5, 5, 5]])
    expected = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0], [1, 0, 0, 0]]).float()
    assert torch.equal(masked.completion_mask(ids, eos_id=2), expected)
    limits = torch.tensor([4, 2, 4, 4])
    assert masked.completion_mask(ids, eos_id=2).dtype == torch.float32
    cut = expected.clone()
    cut[1, 2:] = 0
    assert torch.equal(masked.completion_mask(ids, eos_id=2, limits=limits), cut)


def test_an_outcome_stands_on_the_last_trained_token():
    mask = torch.tensor([[1, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0]])
    expected = torch.tensor([[0, 1, 0, 0], [0, 0, 2, 0], [0, 0, 0, 3], [4, 0, 0, 0]]).double()
    assert torch.equal(advantages.place_rewards(torch.tensor([1.0, 2, 3, 4]).double(), mask), expected)
    for dtype in (torch.float64, torch.float32):
        assert masked.last_token(mask.to(dtype)).dtype == dtype
