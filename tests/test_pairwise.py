"""The second table, proved: optima by enumeration, identities, and what every row must do on every batch.

The proofs list all completions of a tiny policy (`Tree`) and every pair of them, so that an expectation is a sum and a
claim about an optimum is a gradient that vanishes. Float64, 1e-9.
"""

import itertools
import math
from dataclasses import FrozenInstanceError, replace
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlhf_book.tabular import Tree
from rlhf_minimal import PAIRWISE, Pairs, PairwiseAlgorithm, contrib, diff, pairwise_gap, pairwise_loss, table
from rlhf_minimal import pairs as pairwise
from rlhf_minimal.pairs import given_score, pairwise_scores

TREE = Tree(vocab=3, length=3)  # 15 completions of 1 to 3 tokens
SMALL = Tree(vocab=3, length=2)  # 7 completions
DPO, IPO, SPIN, BRADLEY_TERRY = (PAIRWISE[name] for name in ("dpo", "ipo", "spin", "bradley_terry"))
LOG_2 = math.log(2)
every_row = pytest.mark.parametrize("name", PAIRWISE)
of_policies = pytest.mark.parametrize("name", [name for name, row in PAIRWISE.items() if "logp" in row.needs])


def close(actual, expected, tolerance=1e-9):
    torch.testing.assert_close(actual, torch.as_tensor(expected, dtype=actual.dtype), rtol=tolerance, atol=tolerance)


def normal(seed, *size):
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def with_beta(row: PairwiseAlgorithm, beta: float) -> PairwiseAlgorithm:
    return replace(row, loss=partial(row.loss, beta=beta))


# ---- exact expectations -----------------------------------------------------------------------------------------


def listed(tree, theta, ref):
    """Every ordered pair of completions as a batch: pair number i N + j has completion i chosen and j rejected."""
    N = len(tree)
    i, j = (x.flatten() for x in torch.meshgrid(torch.arange(N), torch.arange(N), indexing="ij"))
    logp, ref_logp = tree.logp(theta), tree.logp(ref)
    return Pairs(
        chosen_logp=logp[i],
        rejected_logp=logp[j],
        chosen_mask=tree.mask[i],
        rejected_mask=tree.mask[j],
        ref_chosen_logp=ref_logp[i],
        ref_rejected_logp=ref_logp[j],
    )


def expected_loss(row, pairs, share):
    """The loss of infinitely much data in which completion i beats completion j in a `share` [N, N] of all pairs."""
    assert abs(share.sum() - 1) < 1e-12
    return (share.flatten() * row.loss(pairwise_gap(row, pairs))).sum()


def compared(prefer, drawn):
    """[N, N] share of pairs in which i is chosen and j rejected: two completions drawn, one of them preferred."""
    return 2 * drawn[:, None] * drawn[None, :] * prefer


def slope(row, tree, theta, ref, share):
    """The exact gradient of the expected loss in the policy's logits."""
    theta = theta.detach().requires_grad_()
    return tree.grad(expected_loss(row, listed(tree, theta, ref), share), theta)


def descend(loss, start):
    """The minimum that is found from `start` by L-BFGS."""
    x = start.detach().clone().requires_grad_()
    optimizer = torch.optim.LBFGS(
        [x], max_iter=500, tolerance_grad=1e-12, tolerance_change=1e-16, line_search_fn="strong_wolfe"
    )

    def closure():
        optimizer.zero_grad()
        value = loss(x)
        value.backward()
        return value

    optimizer.step(closure)
    return x.detach()


def cyclic(seed, N):
    """Preferences that no score explains: any probabilities with P(i > j) + P(j > i) = 1."""
    upper = torch.sigmoid(2 * normal(seed, N, N)).triu(1)
    return upper + (1 - upper.T).tril(-1) + 0.5 * torch.eye(N, dtype=torch.float64)


def test_the_expectation_is_what_batches_average_to():
    """A batch that holds each pair as often as it occurs has the expected loss: the oracle is the library's mean."""
    theta, ref = SMALL.random_logits(0).requires_grad_(), SMALL.random_logits(1)
    pairs = listed(SMALL, theta, ref)
    times = torch.randint(0, 4, (len(pairs),), generator=torch.Generator().manual_seed(2))
    rows = torch.repeat_interleave(torch.arange(len(pairs)), times)
    batch = Pairs(**{name: x[rows] for name, x in pairs._tensors()})
    for row in (DPO, IPO, SPIN):
        ours = pairwise_loss(row, batch)
        share = (times / times.sum(dtype=torch.float64)).view(len(SMALL), -1)
        exact = expected_loss(row, pairs, share)
        close(ours, exact.detach())
        close(SMALL.grad(ours, theta), SMALL.grad(exact, theta))


# ---- Bradley-Terry ----------------------------------------------------------------------------------------------


def scored(scores):
    """Every ordered pair of N scored completions."""
    N = len(scores)
    i, j = (x.flatten() for x in torch.meshgrid(torch.arange(N), torch.arange(N), indexing="ij"))
    return Pairs(chosen_scores=scores[i], rejected_scores=scores[j])


def test_bradley_terry_is_a_share_of_two():
    """exp(a) / (exp(a) + exp(b)), which is how Bradley and Terry write it; both orders sum to 1."""
    a, b = normal(0, 50), normal(1, 50)
    close(pairwise.bradley_terry(a, b), a.exp() / (a.exp() + b.exp()))
    close(pairwise.bradley_terry(a, b) + pairwise.bradley_terry(b, a), torch.ones(50))
    close(-pairwise.bradley_terry(a, b).log(), pairwise.logistic_loss(a - b))


def test_a_reward_models_gradient_is_its_error_in_probability():
    """d L / d score_i = sum over j of how often the two meet x (believed - true P(i > j)): 0 where all are believed."""
    true, scores, drawn = normal(0, 6), normal(1, 6).requires_grad_(), torch.softmax(normal(2, 6), 0)
    prefer = torch.sigmoid(true[:, None] - true[None, :])
    (gradient,) = torch.autograd.grad(expected_loss(BRADLEY_TERRY, scored(scores), compared(prefer, drawn)), scores)
    s, mu = scores.tolist(), drawn.tolist()
    by_hand = [
        sum(2 * mu[i] * mu[j] * (1 / (1 + math.exp(s[j] - s[i])) - prefer[i, j].item()) for j in range(6) if j != i)
        for i in range(6)
    ]
    close(gradient, by_hand)
    shifted = (true + 3.7).requires_grad_()  # right but for its level
    (gradient,) = torch.autograd.grad(expected_loss(BRADLEY_TERRY, scored(shifted), compared(prefer, drawn)), shifted)
    close(gradient, torch.zeros(6))


@pytest.mark.parametrize("seed", range(3))
def test_a_reward_model_recovers_the_true_differences(seed):
    """Descent from zero finds the true scores up to their level, which the data cannot show."""
    true, drawn = 2 * normal(seed, 6), torch.softmax(normal(seed + 10, 6), 0)
    share = compared(torch.sigmoid(true[:, None] - true[None, :]), drawn)
    found = descend(lambda scores: expected_loss(BRADLEY_TERRY, scored(scores), share), torch.zeros_like(true))
    close(found - found[0], true - true[0], 1e-5)


def test_the_beta_of_a_reward_model_is_its_unit():
    true = normal(0, 5)
    share = compared(torch.sigmoid(true[:, None] - true[None, :]), torch.full((5,), 0.2, dtype=torch.float64))
    found = descend(lambda s: expected_loss(with_beta(BRADLEY_TERRY, 0.5), scored(s), share), torch.zeros_like(true))
    close(found - found[0], 2 * (true - true[0]), 1e-5)


@pytest.mark.parametrize("smoothing", [0.05, 0.3])
@pytest.mark.parametrize("P", [0.5, 0.8, 1.0])
def test_smoothing_believes_that_labels_are_flipped(P, smoothing):
    """The optimum's probability is (1 - eps) P + eps (1 - P): bounded where P is 1, where without it none exists."""
    believed = (1 - smoothing) * P + smoothing * (1 - P)
    gap = torch.tensor([math.log(believed / (1 - believed)) / 0.5], dtype=torch.float64).requires_grad_()
    loss = partial(pairwise.logistic_loss, beta=0.5, smoothing=smoothing)
    (gradient,) = torch.autograd.grad((P * loss(gap) + (1 - P) * loss(-gap)).sum(), gap)
    close(gradient, torch.zeros(1))
    assert P < 1 or (torch.autograd.grad(pairwise.logistic_loss(gap).sum(), gap)[0] < -1e-3).all()


def test_a_margin_moves_the_optimum_by_itself():
    """With a lead of m asked for, the believed probability is that of the gap less m."""
    margin = torch.tensor([0.7, -0.2], dtype=torch.float64)
    scores = normal(0, 2).requires_grad_(), normal(1, 2).requires_grad_()
    pairs = Pairs(chosen_scores=scores[0], rejected_scores=scores[1], margin=margin)
    close(pairwise_gap(BRADLEY_TERRY, pairs), (scores[0] - scores[1] - margin).detach())
    assert pairwise_scores(BRADLEY_TERRY, pairs) == (scores[0], scores[1])  # before anything is asked of them
    moved = Pairs(chosen_scores=scores[0] - margin, rejected_scores=scores[1])
    close(pairwise_loss(BRADLEY_TERRY, pairs), pairwise_loss(BRADLEY_TERRY, moved).detach())


def test_centring_leaves_a_single_pair_its_gap_and_takes_a_little_from_many():
    centred = replace(BRADLEY_TERRY, center=0.05)

    def optimum(N):
        prefer = torch.sigmoid(true[:N, None] - true[None, :N])
        i, j = zip(*itertools.permutations(range(N), 2), strict=True)

        def loss(scores):
            chosen, rejected = scores[list(i)], scores[list(j)]
            weight = prefer[list(i), list(j)] / (N * (N - 1) / 2)
            losses = centred.loss(chosen - rejected) + 0.05 * pairwise.centering_loss(chosen, rejected)
            return (weight * losses).sum()

        return descend(loss, torch.ones(N, dtype=torch.float64))

    true = torch.tensor([1.5, 0.0, -0.5], dtype=torch.float64)
    pair = optimum(2)
    close(pair[0] - pair[1], 1.5, 1e-6)
    close(pair.sum(), 0.0, 1e-6)
    three = optimum(3)
    close(three.sum(), 0.0, 0.3)
    assert 1.2 < three[0] - three[1] < 1.49  # not the true 1.5
    scores = torch.tensor([1.0, 2.0], dtype=torch.float64)
    pairs = Pairs(chosen_scores=scores, rejected_scores=scores - 1)
    close(pairwise_loss(centred, pairs), math.log(1 + math.exp(-1)) + 0.05 * (1 + 9) / 2)  # and the loss has it


# ---- DPO --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("beta", [0.1, 0.5, 2.0])
@pytest.mark.parametrize("tree", [SMALL, TREE], ids=["7 completions", "15 completions"])
def test_dpos_optimum_is_that_of_rl_with_a_kl(tree, beta):
    """Where preferences are Bradley-Terry's with reward r: pi_ref exp(r / beta) / Z, whatever was compared."""
    ref, r = tree.random_logits(0), normal(3, len(tree))
    row = with_beta(DPO, beta)
    optimum, _ = tree.tilted(ref, r / beta)
    prefer = torch.sigmoid(r[:, None] - r[None, :])
    for drawn in (tree.probs(ref), torch.softmax(normal(4, len(tree)), 0)):
        share = compared(prefer, drawn)
        close(slope(row, tree, optimum, ref, share), torch.zeros_like(optimum))
        lowest = expected_loss(row, listed(tree, optimum, ref), share)
        entropy = -(share * prefer.log()).sum()
        close(lowest, entropy)  # what the labels' own noise leaves: no model of them can have less
        for seed in range(5):
            near = optimum + 0.3 * normal(seed, *optimum.shape)
            assert expected_loss(row, listed(tree, near, ref), share) > lowest + 1e-6
    # The same policy is where the gradient of RL's own objective, E[r] - beta KL(pi || pi_ref), vanishes.
    theta = optimum.clone().requires_grad_()
    close(tree.grad(tree.expect(theta, r) - beta * tree.kl(theta, ref), theta), torch.zeros_like(theta))


def test_dpo_descends_to_it():
    ref, r, beta = SMALL.random_logits(0), normal(3, len(SMALL)), 0.5
    share = compared(torch.sigmoid(r[:, None] - r[None, :]), SMALL.probs(ref))
    row = with_beta(DPO, beta)
    found = descend(lambda theta: expected_loss(row, listed(SMALL, theta, ref), share), ref)
    close(SMALL.probs(found), SMALL.probs(SMALL.tilted(ref, r / beta)[0]), 1e-5)


def test_the_policy_is_its_own_reward_model():
    """At the optimum beta log pi/pi_ref differs from r by one number, beta log Z, the same for all completions."""
    ref, r, beta = TREE.random_logits(0), normal(3, len(TREE)), 0.5
    optimum, log_z = TREE.tilted(ref, r / beta)
    implicit = beta * pairwise.log_ratio(TREE.logp(optimum), TREE.logp(ref), TREE.mask)
    close(implicit, r - beta * log_z)


# ---- IPO --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("beta", [0.1, 0.5, 2.0])
@pytest.mark.parametrize("tree", [SMALL, TREE], ids=["7 completions", "15 completions"])
def test_ipos_optimum_needs_no_bradley_terry(tree, beta):
    """For any preferences: pi_ref exp(P(y > a completion of mu) / beta) / Z (eq. 7 of the paper, Psi = identity)."""
    ref, row = tree.random_logits(0), with_beta(IPO, beta)
    drawn = torch.softmax(normal(4, len(tree)), 0)
    prefer = cyclic(5, len(tree))
    share = compared(prefer, drawn)
    wins = prefer @ drawn
    optimum, _ = tree.tilted(ref, wins / beta)
    close(slope(row, tree, optimum, ref, share), torch.zeros_like(optimum), 1e-8)
    lowest = expected_loss(row, listed(tree, optimum, ref), share)
    for seed in range(5):
        near = optimum + 0.3 * normal(seed, *optimum.shape)
        assert expected_loss(row, listed(tree, near, ref), share) > lowest + 1e-6
    # It is where the gradient of E[P(y > y')] - beta KL(pi || pi_ref) vanishes, with y' from mu.
    theta = optimum.clone().requires_grad_()
    close(tree.grad(tree.expect(theta, wins) - beta * tree.kl(theta, ref), theta), torch.zeros_like(theta))
    assert slope(DPO, tree, optimum, ref, share).abs().max() > 1e-3  # DPO's is another
    assert slope(with_beta(IPO, 1.5 * beta), tree, optimum, ref, share).abs().max() > 1e-3


def test_ipo_descends_to_it():
    ref, prefer = SMALL.random_logits(0), cyclic(5, len(SMALL))
    drawn, row = SMALL.probs(ref), with_beta(IPO, 0.5)
    share = compared(prefer, drawn)
    found = descend(lambda theta: expected_loss(row, listed(SMALL, theta, ref), share), ref)
    close(SMALL.probs(found), SMALL.probs(SMALL.tilted(ref, prefer @ drawn / 0.5)[0]), 1e-5)


def test_where_every_comparison_comes_out_alike_dpo_drops_the_kl_penalty_and_ipo_does_not():
    """Deterministic preferences: DPO's loss falls all the way to 0 along one ray; IPO's optimum stays in reach."""
    ref, r = SMALL.random_logits(0), torch.arange(7.0, dtype=torch.float64)
    prefer = (r[:, None] > r[None, :]).double() + 0.5 * torch.eye(7, dtype=torch.float64)
    drawn = SMALL.probs(ref)
    unequal = compared(prefer, drawn).fill_diagonal_(0)
    share = unequal / unequal.sum()

    def losses(row, lengths):
        policies = (SMALL.tilted(ref, length * r)[0] for length in lengths)
        return [expected_loss(row, listed(SMALL, theta, ref), share).item() for theta in policies]

    dpo = losses(with_beta(DPO, 0.5), [0, 1, 4, 16, 64])
    assert dpo == sorted(dpo, reverse=True)
    assert dpo[-1] < 1e-6
    ipo = losses(with_beta(IPO, 0.5), [0, 0.2, 4, 16, 64])
    assert ipo[1] < ipo[0] < ipo[2] < ipo[3] < ipo[4]
    optimum, _ = SMALL.tilted(ref, prefer @ drawn / 0.5)
    assert SMALL.kl(optimum, ref) < 1 / 0.5  # the reward is a probability, so beta KL cannot exceed 1
    bare = compared(prefer, drawn)
    close(slope(with_beta(IPO, 0.5), SMALL, optimum, ref, bare), torch.zeros_like(optimum))


# ---- SPIN -------------------------------------------------------------------------------------------------------


def played(tree, data, policy):
    """[N, N] share of pairs: chosen from the data, rejected from the policy."""
    return tree.probs(data)[:, None] * tree.probs(policy)[None, :]


def test_spin_stops_at_the_data_and_only_there():
    """When the opponent is the data, no policy beats log 2 and the gradient is 0. Elsewhere there is a way down."""
    data, other = TREE.random_logits(0), TREE.random_logits(1)
    share = played(TREE, data, data)
    close(slope(SPIN, TREE, data, data, share), torch.zeros_like(data))
    for seed in range(5):
        assert expected_loss(SPIN, listed(TREE, data + 0.3 * normal(seed, *data.shape), data), share) > LOG_2
    assert slope(SPIN, TREE, other, other, played(TREE, data, other)).abs().max() > 1e-3


@pytest.mark.parametrize("beta", [0.1, 1.0])
def test_spins_first_step_is_supervised_learning(beta):
    """While the policy is still its own opponent the gradient is beta/2 times that of the data's cross-entropy."""
    data, theta = TREE.random_logits(0), TREE.random_logits(1).requires_grad_()
    supervised = TREE.grad(-(TREE.probs(data) * TREE.sequence_logp(theta)).sum(), theta)
    found = slope(with_beta(SPIN, beta), TREE, theta, theta.detach(), played(TREE, data, theta.detach()))
    close(found, beta / 2 * supervised)


@pytest.mark.parametrize("beta", [0.4, 1.0, 5.0])
def test_an_iteration_of_spin_played_to_its_end(beta):
    """Its optimum is pi_t (data / pi_t)^(1 / beta): which of two came from the data is a Bradley-Terry question."""
    data, policy = TREE.random_logits(0), TREE.random_logits(1)
    towards = TREE.sequence_logp(data) - TREE.sequence_logp(policy)
    optimum, _ = TREE.tilted(policy, towards / beta)
    row = with_beta(SPIN, beta)
    close(slope(row, TREE, optimum, policy, played(TREE, data, policy)), torch.zeros_like(optimum))
    assert slope(row, TREE, policy, policy, played(TREE, data, policy)).abs().max() > 1e-4


def test_spin_descends_to_it():
    data, policy, row = SMALL.random_logits(0), SMALL.random_logits(1), with_beta(SPIN, 1.0)
    share = played(SMALL, data, policy)
    found = descend(lambda theta: expected_loss(row, listed(SMALL, theta, policy), share), policy)
    close(SMALL.probs(found), SMALL.probs(data), 1e-5)  # at beta 1 one iteration is enough


@pytest.mark.parametrize(("beta", "approaches"), [(5.0, True), (1.0, True), (0.6, True), (0.4, False), (0.1, False)])
def test_spin_overshoots_when_a_small_beta_is_played_to_its_end(beta, approaches):
    """The distance in log-odds is multiplied by 1 - 1/beta an iteration, so it shrinks for beta > 1/2 only."""
    data = SMALL.random_logits(0, 0.5)
    policy = data + 0.05 * normal(1, *data.shape)

    def odds(logits):  # log-odds against the data, free of the normalisation
        x = SMALL.sequence_logp(logits) - SMALL.sequence_logp(data)
        return x - x[0]

    before, start = odds(policy), SMALL.kl(data, policy)
    for _ in range(2):
        towards = SMALL.sequence_logp(data) - SMALL.sequence_logp(policy)
        policy, _ = SMALL.tilted(policy, towards / beta)
        close(odds(policy), (1 - 1 / beta) * before, 1e-8)
        before = odds(policy)
    assert (SMALL.kl(data, policy) < start) == approaches


# ---- identities -------------------------------------------------------------------------------------------------


def make_pairs(seed=0, B=5, T=6, U=4, spread=0.5, **changes):
    """Random log-probs, scores and masks with holes, as plain tensors."""
    g = torch.Generator().manual_seed(seed)
    tensors = {}
    for side, length in (("chosen", T), ("rejected", U)):
        mask = (torch.rand(B, length, generator=g) < 0.7).double()
        mask[:, 0] = 1
        ref = -8 - torch.randn(B, length, generator=g, dtype=torch.float64).abs()  # a policy's stay below 0, too
        tensors |= {
            f"{side}_mask": mask,
            f"ref_{side}_logp": ref,
            f"{side}_logp": ref + spread * torch.randn(B, length, generator=g, dtype=torch.float64),
            f"{side}_scores": torch.randn(B, generator=g, dtype=torch.float64),
        }
    return tensors | changes


LEAVES = ("chosen_logp", "rejected_logp", "chosen_scores", "rejected_scores")


def loss_and_gradients(row, tensors, **more):
    leaves = {name: tensors[name].detach().clone().requires_grad_() for name in LEAVES}
    loss = pairwise_loss(row, Pairs(**{**tensors, **leaves}, **more))
    gradients = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True, materialize_grads=True)
    return loss.detach(), dict(zip(LEAVES, gradients, strict=True))


def test_dpo_is_bradley_terry_with_beta_log_ratios_for_scores():
    tensors = make_pairs()
    scores = {
        f"{side}_scores": 0.1
        * pairwise.log_ratio(tensors[f"{side}_logp"], tensors[f"ref_{side}_logp"], tensors[f"{side}_mask"])
        for side in ("chosen", "rejected")
    }
    ours, gradients = loss_and_gradients(DPO, tensors)
    theirs, in_scores = loss_and_gradients(BRADLEY_TERRY, tensors | scores)
    close(ours, theirs)
    for side in ("chosen", "rejected"):  # by the chain rule: beta for each token of the completion
        close(gradients[f"{side}_logp"], 0.1 * in_scores[f"{side}_scores"][:, None] * tensors[f"{side}_mask"])


@pytest.mark.parametrize("beta", [0.1, 0.7])
def test_the_first_step(beta):
    """At the reference all pairs pull alike: DPO by beta/2 a token, IPO by 1/beta, chosen up, rejected down."""
    tensors = make_pairs(spread=0.0)
    for row, pull in ((DPO, beta / 2), (SPIN, beta / 2), (IPO, 1 / beta)):
        loss, gradients = loss_and_gradients(with_beta(row, beta), tensors)
        for side, sign in (("chosen", -1), ("rejected", 1)):
            close(gradients[f"{side}_logp"], sign * pull / 5 * tensors[f"{side}_mask"])
        close(loss, LOG_2 if row is not IPO else 1 / (4 * beta**2))


def test_a_settled_pair_pulls_no_more_under_dpo_and_back_under_ipo():
    gap = torch.tensor([-50.0, 5.0, 50.0, 500.0], dtype=torch.float64, requires_grad=True)
    (dpo,) = torch.autograd.grad(DPO.loss(gap).sum(), gap)
    close(dpo, [-0.1 / (1 + math.exp(-5.0)), -0.1 / (1 + math.exp(0.5)), -0.1 / (1 + math.exp(5.0)), 0.0])
    (ipo,) = torch.autograd.grad(IPO.loss(gap).sum(), gap)
    close(ipo, [-110.0, 0.0, 90.0, 990.0])  # the lead that is wanted is 1 / (2 x 0.1) = 5


def test_the_logistic_loss_of_both_orders():
    """l(g) - l(-g) = -beta g (1 - 2 eps): a line, the same for every g."""
    gap = 3 * normal(0, 40)
    for beta, smoothing in ((1.0, 0.0), (0.3, 0.2)):
        loss = partial(pairwise.logistic_loss, beta=beta, smoothing=smoothing)
        close(loss(gap) - loss(-gap), -beta * (1 - 2 * smoothing) * gap)


def test_a_mean_is_the_sum_over_the_length():
    tensors = make_pairs()
    given = tensors["chosen_logp"], tensors["ref_chosen_logp"], tensors["chosen_mask"]
    close(contrib.pairs.mean_log_ratio(*given) * tensors["chosen_mask"].sum(1), pairwise.log_ratio(*given))
    by_loop = [sum((p - q).item() for p, q, m in zip(*rows, strict=True) if m) for rows in zip(*given, strict=True)]
    close(pairwise.log_ratio(*given), by_loop)


def test_cells_against_finite_differences():
    gap = normal(0, 5).requires_grad_()
    logp, ref = (normal(seed, 3, 4).requires_grad_() for seed in (1, 2))
    mask = torch.tensor([[1, 1, 1, 1], [1, 0, 1, 0], [1, 0, 0, 0]])
    assert torch.autograd.gradcheck(partial(pairwise.logistic_loss, beta=0.4, smoothing=0.1), gap)
    assert torch.autograd.gradcheck(partial(pairwise.squared_loss, beta=0.4), gap)
    assert torch.autograd.gradcheck(pairwise.bradley_terry, (gap, normal(3, 5).requires_grad_()))
    assert torch.autograd.gradcheck(pairwise.centering_loss, (gap, normal(3, 5).requires_grad_()))
    for cell in (pairwise.log_ratio, contrib.pairs.mean_log_ratio):
        assert not cell(logp.detach(), ref, mask).requires_grad  # a reference is a constant
        assert torch.autograd.gradcheck(lambda x, f=cell: f(x, ref.detach(), mask), logp)


# ---- what every row must do on every batch ----------------------------------------------------------------------


@st.composite
def scenes(draw):
    B, T, U = (draw(st.integers(1, 5)) for _ in range(3))
    return make_pairs(draw(st.integers(0, 10**6)), B, T, U, draw(st.sampled_from([0.0, 0.1, 1.0])))


def same(one, other):
    close(one[0], other[0])
    for name in LEAVES:
        close(one[1][name], other[1][name])


@every_row
@given(tensors=scenes(), rubbish=st.sampled_from([0.0, 1e9, math.nan, math.inf]), wider=st.integers(0, 3))
def test_padding_never_matters(name, tensors, rubbish, wider):
    spoiled = dict(tensors)
    for side in ("chosen", "rejected"):
        mask = torch.nn.functional.pad(tensors[f"{side}_mask"], (0, wider))
        spoiled[f"{side}_mask"] = mask
        for key in (f"{side}_logp", f"ref_{side}_logp"):
            spoiled[key] = torch.nn.functional.pad(tensors[key], (0, wider)).masked_fill(mask == 0, rubbish)
    loss, gradients = loss_and_gradients(PAIRWISE[name], spoiled)
    for side in ("chosen", "rejected"):
        assert (gradients[f"{side}_logp"][spoiled[f"{side}_mask"] == 0] == 0).all()
        gradients[f"{side}_logp"] = gradients[f"{side}_logp"][:, : tensors[f"{side}_logp"].shape[1]]
    same((loss, gradients), loss_and_gradients(PAIRWISE[name], tensors))


@every_row
@given(tensors=scenes(), seed=st.integers(0, 99))
def test_the_order_of_prompts_never_matters(name, tensors, seed):
    order = torch.randperm(len(tensors["chosen_logp"]), generator=torch.Generator().manual_seed(seed))
    loss, gradients = loss_and_gradients(PAIRWISE[name], {key: x[order] for key, x in tensors.items()})
    back = order.argsort()
    same((loss, {key: x[back] for key, x in gradients.items()}), loss_and_gradients(PAIRWISE[name], tensors))


@every_row
@given(tensors=scenes(), n=st.integers(1, 5), with_margin=st.booleans())
def test_micro_batches_never_matter(name, tensors, n, with_margin):
    row = replace(PAIRWISE[name], center=0.01)
    B = len(tensors["chosen_logp"])
    tensors = tensors | ({"margin": normal(0, B)} if with_margin else {})
    leaves = {key: tensors[key].clone().requires_grad_() for key in LEAVES}
    parts = Pairs(**{**tensors, **leaves}).split(min(n, B))
    loss = sum(pairwise_loss(row, part) for part in parts)
    again = sum(pairwise_loss(row, finer) for part in parts for finer in part.split(len(part)))
    gradients = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True, materialize_grads=True)
    whole = loss_and_gradients(row, tensors)
    close(again.detach(), whole[0])
    same((loss.detach(), dict(zip(LEAVES, gradients, strict=True))), whole)


def other_side(tensors):
    swap = {"chosen": "rejected", "rejected": "chosen"}
    return {"_".join(swap.get(word, word) for word in key.split("_")): x for key, x in tensors.items()}


@every_row
@given(tensors=scenes())
def test_a_swapped_pair_has_the_opposite_gap(name, tensors):
    gap = pairwise_gap(PAIRWISE[name], Pairs(**tensors))
    close(pairwise_gap(PAIRWISE[name], Pairs(**other_side(tensors))), -gap)


@every_row
@given(tensors=scenes(), seed=st.integers(0, 99))
def test_what_a_prompt_adds_to_both_of_its_completions_drops_out(name, tensors, seed):
    """Of a reward model the level of its scores, of a policy a factor on all completions to a prompt."""
    shift = -5 * normal(seed, len(tensors["chosen_logp"])).abs()  # a log-probability stays below 0
    moved = {
        f"{side}_{kind}": tensors[f"{side}_{kind}"] + (shift if kind == "scores" else 0)
        for side in ("chosen", "rejected")
        for kind in ("scores", "logp")
    }
    for side in ("chosen", "rejected"):
        moved[f"{side}_logp"][:, 0] += shift  # the first token is always trained here
    same(loss_and_gradients(PAIRWISE[name], tensors | moved), loss_and_gradients(PAIRWISE[name], tensors))


@every_row
def test_chosen_goes_up_and_rejected_down(name):
    """In every pair that does not lead by enough, and by the same amount."""
    tensors = make_pairs(spread=0.01)
    _, gradients = loss_and_gradients(PAIRWISE[name], tensors)
    kind = "logp" if "logp" in PAIRWISE[name].needs else "scores"
    up, down = gradients[f"chosen_{kind}"], gradients[f"rejected_{kind}"]
    assert (up <= 0).all()
    assert (down >= 0).all()
    close(up.reshape(5, -1).amin(1), -down.reshape(5, -1).amax(1))
    assert up.abs().max() > 1e-3


@every_row
@pytest.mark.parametrize("size", [1e-6, 1.0, 1e4])
def test_no_gap_is_too_large(name, size):
    for sign in (-1, 1):
        tensors = make_pairs(spread=0.0)
        tensors["chosen_logp"][:, 0] += sign * size
        tensors["chosen_scores"] = tensors["chosen_scores"] + sign * size
        loss, gradients = loss_and_gradients(PAIRWISE[name], tensors)
        assert torch.isfinite(loss)
        assert all(torch.isfinite(x).all() for x in gradients.values())


@every_row
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_raised_before_differences_are_taken(name, dtype):
    tensors = {key: x.to(dtype) for key, x in make_pairs().items()}
    pairs = Pairs(**tensors)
    gap = pairwise_gap(PAIRWISE[name], pairs)
    assert gap.dtype == torch.float32
    assert torch.equal(gap, pairwise_gap(PAIRWISE[name], Pairs(**{key: x.float() for key, x in tensors.items()})))


@of_policies
def test_a_policy_at_its_reference_ranks_nothing(name):
    assert (pairwise_gap(PAIRWISE[name], Pairs(**make_pairs(spread=0.0))) == 0).all()


# ---- the table --------------------------------------------------------------------------------------------------


def test_the_numbers_in_the_table():
    """The papers' own, or a choice that the row's comment admits."""
    betas = {
        name: row.loss.keywords.get("beta") if isinstance(row.loss, partial) else 1.0 for name, row in PAIRWISE.items()
    }
    assert betas == {"bradley_terry": 1.0, "dpo": 0.1, "ipo": 0.1, "spin": 0.1}
    gap = torch.tensor([0.7])
    assert pairwise.logistic_loss(gap) == pairwise.logistic_loss(gap, beta=1.0, smoothing=0.0)
    assert [row.center for row in PAIRWISE.values()] == [0.0] * 4


def test_what_a_row_asks_a_training_loop_for():
    assert BRADLEY_TERRY.needs == {"scores"}
    assert all(PAIRWISE[name].needs == {"logp", "ref_logp", "mask"} for name in ("dpo", "ipo", "spin"))
    assert [(row.reference, row.rejected) for row in PAIRWISE.values()] == [
        *[(None, "data"), ("frozen", "data")],
        *[("frozen", "data"), ("previous", "own")],
    ]


def test_the_table_as_markdown():
    assert table(PAIRWISE).splitlines() == [
        "| algorithm | score | reference | rejected | loss |",
        "| --- | --- | --- | --- | --- |",
        "| `bradley_terry` | `given_score` | - | `data` | `logistic_loss` |",
        "| `dpo` | `log_ratio` | `frozen` | `data` | `logistic_loss(beta=0.1)` |",
        "| `ipo` | `log_ratio` | `frozen` | `data` | `squared_loss(beta=0.1)` |",
        "| `spin` | `log_ratio` | `previous` | `own` | `logistic_loss(beta=0.1)` |",
    ]
    centred = {"mine": replace(BRADLEY_TERRY, center=0.01)}
    assert table(centred).splitlines()[0] == "| algorithm | score | loss | center |"
    assert "`0.01`" in table(centred)


def test_where_two_rows_differ():
    assert diff("dpo", "ipo") == "loss: logistic_loss(beta=0.1) -> squared_loss(beta=0.1)"
    assert diff("dpo", "spin") == "reference: frozen -> previous; rejected: data -> own"
    assert diff("dpo", with_beta(DPO, 0.5)) == "loss: logistic_loss(beta=0.1) -> logistic_loss(beta=0.5)"
    assert diff(SPIN, "spin") == ""


def test_rows_and_pairs_stay_as_they_were_made():
    pairs = Pairs(**make_pairs())
    for thing, field in ((DPO, "reference"), (pairs, "margin")):
        with pytest.raises(FrozenInstanceError):
            setattr(thing, field, None)


def test_reference_and_margin_are_constants():
    tensors = {key: x.requires_grad_() if "mask" not in key else x for key, x in make_pairs().items()}
    pairs = Pairs(**tensors, margin=normal(0, 5).requires_grad_())
    live = {name for name, x in pairs._tensors() if x.requires_grad}
    assert live == set(LEAVES)


def test_a_row_with_means_is_the_row_on_means():
    tensors = make_pairs()
    gap = pairwise_gap(replace(IPO, score=contrib.pairs.mean_log_ratio), Pairs(**tensors))
    means = [
        ((tensors[f"{side}_logp"] - tensors[f"ref_{side}_logp"]) * tensors[f"{side}_mask"]).sum(1)
        / tensors[f"{side}_mask"].sum(1)
        for side in ("chosen", "rejected")
    ]
    close(gap, means[0] - means[1])


def test_a_score_may_read_all_there_is():
    def mixed(scores, logp, ref_logp, mask):
        return scores + 0.5 * pairwise.log_ratio(logp, ref_logp, mask)

    tensors = make_pairs()
    gap = pairwise_gap(replace(DPO, score=mixed), Pairs(**tensors))
    halves = (pairwise_gap(BRADLEY_TERRY, Pairs(**tensors)), 0.5 * pairwise_gap(DPO, Pairs(**tensors)))
    close(gap, sum(halves))


def test_a_score_of_your_own():
    """SimPO's score, arXiv 2405.14734: no reference, the mean log-prob; its margin is the batch's."""

    def mean_logp(logp, mask):
        return (logp * mask).sum(1) / mask.sum(1)

    row = PairwiseAlgorithm(mean_logp, partial(pairwise.logistic_loss, beta=2.0))
    tensors = make_pairs()
    pairs = Pairs(**{key: x for key, x in tensors.items() if "ref" not in key}, margin=torch.full((5,), 0.25).double())
    by_hand = 0.0
    for i in range(5):
        means = [
            tensors[f"{side}_logp"][i][tensors[f"{side}_mask"][i] == 1].mean().item() for side in ("chosen", "rejected")
        ]
        by_hand += math.log(1 + math.exp(-2.0 * (means[0] - means[1] - 0.25))) / 5
    close(pairwise_loss(row, pairs), by_hand)


def test_the_score_of_a_completion_is_the_heads():
    scores = torch.tensor([1.5, -0.25])
    assert given_score(scores) is scores
