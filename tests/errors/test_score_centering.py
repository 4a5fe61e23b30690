"""What score centering refuses, and what it says."""

import pytest
import torch

from rlhf_minimal.contrib.corrections import score_centering


def test_what_is_refused():
    x = torch.full((2, 3, 4), 0.25).log()
    mask = torch.ones(2, 3)
    for words, change in {
        "expected .2, 3.: one number for each place": {"mask": torch.ones(2, 4)},
        "K tokens at each place": {"logp": x[0], "sampler_logp": x[0]},
        "floor is 1.5 and cap 2": {"floor": 1.5, "cap": 2.0},
        "floor is 0.5 and cap 0.9": {"floor": 0.5, "cap": 0.9},
        "sum to more than 1": {"sampler_logp": torch.zeros(2, 3, 4)},
        "shape": {"sampler_logp": x[..., :2]},
    }.items():
        given = {"logp": x, "sampler_logp": x, "mask": mask, **change}
        with pytest.raises(ValueError, match=words):
            score_centering(given.pop("logp"), given.pop("sampler_logp"), given.pop("mask"), **given)


def test_probabilities_that_sum_to_more_than_one_are_told_by_name():
    """At any place, by as little as a thousandth; rounding in float32 is let pass."""
    x = torch.full((1, 2, 4), 0.25).log()
    for name in ("logp", "sampler_logp"):
        for factor in (1.001, 2.0):
            over = x.clone()
            over[0, 1] += torch.tensor(factor).log()
            with pytest.raises(ValueError, match=f"the probabilities of {name} sum to more than 1"):
                score_centering(**{"logp": x, "sampler_logp": x} | {name: over}, mask=torch.ones(1, 2))
    score_centering(logp=x, sampler_logp=x + 1e-6, mask=torch.ones(1, 2))
