"""Two roads to one number: KL penalties in the reward and in the loss, and the entropy bonus."""

import pytest
import torch

from rlhf_minimal import KL, Batch, policy_loss
from rlhf_minimal.functional import aggregation
from tests.identities.batches import SEEDS, B, G, P, T, cells, close, differ, run, sample


@pytest.mark.parametrize("seed", SEEDS)
def test_k1_in_the_reward_as_a_token_and_as_a_response(seed):
    """For one number a response it does not matter where in the response the penalty stands; for returns it does."""
    x = sample(seed)
    token, response = (KL(0.3, "k1", place="reward", level=level) for level in ("token", "sequence"))
    rloo = [run(cells("rloo", kl=(kl,)), x) for kl in (token, response)]
    close(rloo[0][1], rloo[1][1])
    reinforce = [run(cells("reinforce", kl=(kl,)), x) for kl in (token, response)]
    differ(reinforce[0][1], reinforce[1][1])


def test_k1_in_the_reward_by_hand():
    """Reward minus beta times the response's log-ratio of the *sampler* to the reference."""
    x = sample(1)
    A = run(cells("rloo", kl=(KL(0.3, "k1", place="reward"),)), x)[2]
    total = x["rewards"] - 0.3 * ((x["old_logp"] - x["ref_logp"]) * x["mask"]).sum(-1)
    others = (total.view(P, G).sum(-1, keepdim=True) - total.view(P, G)) / (G - 1)
    close(A[:, 0], (total.view(P, G) - others).flatten())


@pytest.mark.parametrize("estimator", ["k2", "k3"])
def test_k2_and_k3_of_a_response_in_the_reward(estimator):
    x = sample(2)
    A = run(cells("rloo", kl=(KL(0.3, estimator, place="reward", level="sequence"),)), x)[2]
    d = ((x["old_logp"] - x["ref_logp"]) * x["mask"]).sum(-1)
    penalty = d**2 / 2 if estimator == "k2" else (-d).exp() - 1 + d
    total = (x["rewards"] - 0.3 * penalty).view(P, G)
    close(A[:, 0], (total - (total.sum(-1, keepdim=True) - total) / (G - 1)).flatten())


@pytest.mark.parametrize("seed", SEEDS)
def test_several_kl_penalties_add_up(seed):
    x = sample(seed)
    first, second = KL(0.1, "k2"), KL(0.2, "k3", weighted=True, aggregate=aggregation.token_mean)
    none, a, b, c = (run(cells("grpo", kl=kl), x)[1] for kl in ((), (first,), (second,), (first, second)))
    close(c - none, (a - none) + (b - none))


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("against", ["reference", "old"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("estimator", ["k1", "k2", "k3", "absolute"])
def test_every_kl_penalty_in_the_loss_by_hand(estimator, weighted, against, level):
    """No advantage, so that the loss is the leash: summed in a loop over tokens or over responses."""
    x = sample(3)
    mean = None if level == "sequence" else aggregation.token_mean
    kl = KL(0.7, estimator, against=against, level=level, weighted=weighted, aggregate=mean)
    ours = run(cells("grpo", kl=(kl,)), x, advantages=torch.zeros(B, dtype=torch.float64))
    logp = x["logp"].clone().requires_grad_()
    target = x["ref_logp" if against == "reference" else "old_logp"]
    total, count = torch.zeros((), dtype=torch.float64), 0
    for i in range(B):
        tokens = [t for t in range(T) if x["mask"][i, t]]
        pieces = [[t] for t in tokens] if level == "token" else [tokens]
        for piece in pieces:
            d = sum(logp[i, t] - target[i, t] for t in piece)
            estimate = {"k1": d, "k2": d * d / 2, "k3": torch.exp(-d) - 1 + d, "absolute": abs(d)}[estimator]
            w = torch.exp(sum(logp[i, t] - x["old_logp"][i, t] for t in piece)) if weighted else 1.0
            total, count = total + w * estimate, count + 1
    expected = 0.7 * total / count
    close(ours[0], expected.detach())
    close(ours[1], torch.autograd.grad(expected, logp)[0])


def test_the_entropy_bonus_by_hand():
    x = sample(4)
    entropy = torch.rand(B, T, dtype=torch.float64).requires_grad_()
    row = cells("grpo", kl=(), entropy=0.02)
    batch = Batch(**x, group_size=G, entropy=entropy)
    loss = policy_loss(row, batch)
    bonus = ((entropy * x["mask"]).sum(-1) / x["mask"].sum(-1)).mean()
    close(loss, run(cells("grpo", kl=()), x)[0] - 0.02 * bonus)
    close(torch.autograd.grad(loss, entropy)[0], -0.02 * x["mask"] / x["mask"].sum(-1, keepdim=True) / B)
