"""Random batches for the identities, in float64, and what a row makes of one.

Where a formula stands on one side of an identity, it is written out and not taken from the library; where two rows must
agree, both are the library's and the identity is the test.
"""

from dataclasses import replace

import torch

from rlhf_minimal import ALGORITHMS, Algorithm, Batch, policy_loss, prepare
from rlhf_minimal.functional import advantages, aggregation, ratios

SEEDS = range(10)
INF = float("inf")
P, G, T = 3, 4, 6
B = P * G


def close(actual, expected, tolerance=1e-11):
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def differ(actual, expected):
    assert (actual - expected).abs().max() > 1e-3


def sample(seed, spread=0.4):
    g = torch.Generator().manual_seed(seed)

    def normal(*size):
        return torch.randn(*size, generator=g, dtype=torch.float64)

    mask = (torch.rand(B, T, generator=g) < 0.8).double()
    mask[:, 0] = 1
    old = -normal(B, T).abs() - 0.1
    return {
        "logp": (old + spread * normal(B, T)).clamp(max=-0.02),
        "old_logp": old,
        "mask": mask,
        "rewards": normal(B),
        "ref_logp": (old + 0.3 * normal(B, T)).clamp(max=-0.02),
        "values": normal(B, T),
    }


def run(algorithm, x, **more):
    """Value, gradient, and the advantages that were used."""
    logp = x["logp"].clone().requires_grad_()
    batch = Batch(**{"budget": T + 2} | x | {"logp": logp} | more, group_size=G)
    if batch.advantages is None:
        batch = prepare(algorithm, batch)
    loss = policy_loss(algorithm, batch)
    return loss.detach(), torch.autograd.grad(loss, logp)[0], batch.advantages


def cells(row, **changes) -> Algorithm:
    return replace(ALGORITHMS[row] if isinstance(row, str) else row, **changes)


def plain(gate, ratio=ratios.token, aggregate=aggregation.token_mean) -> Algorithm:
    return Algorithm(advantages.group_normalized, ratio, gate, aggregate)


def sampler_of(x, seed=1):
    noise = torch.randn(B, T, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return (x["old_logp"] + 0.5 * noise).clamp(max=-0.02)
