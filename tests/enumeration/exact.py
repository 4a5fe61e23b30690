"""A tiny policy's responses, all of them, and what a row's loss and gradient are in the mean over them.

Claims about expectations are held to exact values: nothing is sampled. Float64, 1e-9. Most claims come with a
neighbour that is false, so that the oracle is seen to reject something.
"""

from dataclasses import replace

import torch

from rlhf_book.tabular import Tree
from rlhf_minimal import ALGORITHMS, Algorithm, Batch, policy_loss
from rlhf_minimal.functional import gates, kl

TREE = Tree(vocab=3, length=3)  # 15 responses of 1 to 3 tokens
SMALL = Tree(vocab=3, length=2)  # 7 responses, for groups of three and more
ESTIMATORS = {"k1": kl.k1, "k2": kl.k2, "k3": kl.k3}


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)


def differ(actual, expected, by=1e-3):
    assert (actual - expected).abs().max() > by


def cosine(a, b):
    return (torch.dot(a.flatten(), b.flatten()) / (a.norm() * b.norm())).item()


def policy(tree=TREE, seed=0, scale=1.0):
    return tree.random_logits(seed, scale).requires_grad_()


def rewards_of(tree=TREE, seed=7):
    return torch.randn(len(tree), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def binary_of(tree=TREE):
    """Right: the responses that begin with "a"."""
    return (tree.tokens[:, 0] == 1).double()


def expected(algorithm, theta, G, tree=TREE, *, old=None, behaviour=None, ref=None, budget=None, **tables):
    """Exact expected loss and expected gradient of `algorithm`, from groups sampled by `old` (default: theta itself).

    Keyword tables have one row a response: rewards [N], values [N, T], advantages [N] or [N, T], ...
    """
    old = theta if old is None else old
    tables = {"rewards": torch.zeros(len(tree), dtype=torch.float64), **tables}
    tables |= {"old_logp": tree.logp(old).detach(), "mask": tree.mask}
    if ref is not None:
        tables["ref_logp"] = tree.logp(ref).detach()

    def loss(logp, rows):
        cells = {name: table[rows] for name, table in tables.items()}
        return policy_loss(algorithm, Batch(logp=logp, group_size=G, budget=budget, **cells))

    return tree.expected_loss(loss, theta, G, behaviour=old if behaviour is None else behaviour)


def plain(**cells) -> Algorithm:
    """REINFORCE's row with other cells: sum over tokens, mean over responses, nothing else."""
    return replace(ALGORITHMS["reinforce"], **cells)


def unclipped(name, **cells) -> Algorithm:
    return replace(ALGORITHMS[name], **{"gate": gates.none, "kl": (), "shape": None, "normalize": None, **cells})
