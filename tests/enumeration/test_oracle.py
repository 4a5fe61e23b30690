"""Exact expectations: the oracle itself, against something that is not it."""

import itertools

import pytest
import torch

from tests.enumeration.exact import SMALL, TREE, close, policy, rewards_of


def test_oracle_lists_every_response_once():
    """All words without EOS inside, ended by EOS or by the length limit: checked against all strings of tokens."""
    strings = set()
    for s in itertools.product(range(3), repeat=3):
        strings.add(s[: s.index(0) + 1] if 0 in s else s)
    assert set(TREE.sequences) == strings
    assert len(TREE) == len(strings) == 15


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_oracle_probabilities_sum_to_one(temperature):
    theta = TREE.random_logits(3)
    close(TREE.probs(theta, temperature).sum(), torch.tensor(1.0, dtype=torch.float64))
    close(TREE.probs(TREE.top_p(theta, 0.6)).sum(), torch.tensor(1.0, dtype=torch.float64))
    for G in (1, 2, 3):
        close(TREE.group_probs(theta, G, temperature).sum(), torch.tensor(1.0, dtype=torch.float64))


def test_oracle_groups_are_the_ordered_tuples_counted():
    """E[max of 3] over multisets = over all 343 ordered triples."""
    theta, R = SMALL.random_logits(0), rewards_of(SMALL)
    p = SMALL.probs(theta)
    ordered = sum(
        p[i] * p[j] * p[k] * max(R[i], R[j], R[k]) for i, j, k in itertools.product(range(len(SMALL)), repeat=3)
    )
    rows, _ = SMALL.groups(3)
    close((SMALL.group_probs(theta, 3) * R[rows].max(1).values).sum(), ordered)


def test_oracle_gradient_is_the_finite_difference():
    theta, R, h = policy(), rewards_of(), 1e-5
    numeric = torch.zeros_like(theta)
    with torch.no_grad():
        for s, v in itertools.product(range(len(TREE.prefixes)), range(TREE.vocab)):
            bump = torch.zeros_like(theta)
            bump[s, v] = h
            numeric[s, v] = (TREE.expect(theta + bump, R) - TREE.expect(theta - bump, R)) / (2 * h)
    torch.testing.assert_close(TREE.policy_gradient(theta, R), numeric, rtol=1e-6, atol=1e-9)


def test_oracle_values_satisfy_bellman():
    """V(s) = sum_a pi(a|s) (r + V(s')), and V(start) = E[R]."""
    theta, R = TREE.random_logits(0), rewards_of()
    V = TREE.values(theta, TREE.outcome(R))
    close(V[:, 0], TREE.expect(theta, R).expand(len(TREE)))
    table, of = theta.softmax(-1), {s: n for n, s in enumerate(TREE.sequences)}
    for n, sequence in enumerate(TREE.sequences):
        for t in range(len(sequence)):
            total = 0.0
            for a in range(TREE.vocab):
                prefix = (*sequence[:t], a)
                if prefix in of:
                    total += table[TREE.node[n, t], a] * R[of[prefix]]
                else:
                    later = next(m for m, s in enumerate(TREE.sequences) if s[: t + 1] == prefix)
                    total += table[TREE.node[n, t], a] * V[later, t + 1]
            close(V[n, t], total)


def test_oracle_kl_obeys_the_chain_rule():
    """KL over responses = sum over prefixes of P(prefix) KL of the next token."""
    theta, ref = TREE.random_logits(0), TREE.random_logits(1)
    close(TREE.kl(theta, ref), (TREE.visits(theta) * TREE.token_kl(theta, ref)).sum())


def test_oracle_tilted_policy_is_the_regularised_optimum():
    """grad( E[R] - tau KL(pi || ref) ) = 0 at pi = ref exp(R/tau) / Z, where the objective equals tau log Z."""
    ref, R, tau = TREE.random_logits(1), rewards_of(), 0.3
    best, log_Z = TREE.tilted(ref, R / tau)
    best.requires_grad_()
    objective = TREE.expect(best, R) - tau * TREE.kl(best, ref)
    close(TREE.grad(objective, best), torch.zeros_like(best))
    close(objective, tau * log_Z)
