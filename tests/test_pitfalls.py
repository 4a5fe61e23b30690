"""What published code got wrong, one test each: a property that the wrong form fails and ours passes.

The wrong forms are written out below as they were found, in our own code. Each test first shows that its property
rejects the wrong form (a property that cannot fail proves nothing), then that the library has it.
"""

import math
from dataclasses import replace
from functools import partial

import pytest
import torch

from rlhf_book.tabular import Tree
from rlhf_minimal import ALGORITHMS, KL, Batch, contrib, gradient_weight, policy_loss, prepare, token_weights
from rlhf_minimal.functional import advantages, aggregation, gates, kl, logprobs, masked, ratios

f64 = partial(torch.tensor, dtype=torch.float64)


def same(a, b, tolerance=1e-9):
    a, b = (torch.as_tensor(x, dtype=torch.float64) for x in (a, b))
    return torch.allclose(a, b, rtol=tolerance, atol=tolerance)


def cosine(a, b):
    return (torch.dot(a.flatten(), b.flatten()) / (a.norm() * b.norm())).item()


def mask_of(lengths):
    return (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).double()


def batch_of(log_ratio, mask, A, group_size=1, **more):
    """A prepared batch with given log-ratios and advantages; the rewards are not used."""
    log_ratio = torch.as_tensor(log_ratio, dtype=torch.float64).expand(mask.shape)
    old = torch.full(mask.shape, -2.0, dtype=torch.float64)
    logp = (old + log_ratio).requires_grad_()
    A = torch.as_tensor(A, dtype=torch.float64)
    return Batch(logp, old, mask, torch.zeros(len(mask)).double(), group_size, advantages=A, **more)


def gradient(loss, logp):
    return torch.autograd.grad(loss, logp)[0]


@pytest.fixture
def categorical():
    """One action of five under two policies far apart, and the reward of each action."""
    tree = Tree(vocab=5, length=1)
    return tree, tree.random_logits(0, 1.5).requires_grad_(), tree.random_logits(1, 1.5)


# P1
def test_kl_sign_and_direction(categorical):
    """k1 negated, k3 on the inverse ratio. The property: the mean over pi's own samples is the exact KL(pi || ref)."""
    tree, pi, ref = categorical

    def is_kl(estimator):
        return same(tree.expect(pi, estimator(tree.sequence_logp(pi), tree.sequence_logp(ref))), tree.kl(pi, ref))

    def negated_k1(logp, ref_logp):
        return -(logp - ref_logp)

    def inverse_k3(logp, ref_logp):
        return torch.expm1(logp - ref_logp) - (logp - ref_logp)

    assert not is_kl(negated_k1)
    assert not is_kl(inverse_k3)
    assert is_kl(kl.k1)
    assert is_kl(kl.k3)

    ten, one = f64([10.0]), f64([1.0])
    zero = torch.zeros(1).double()
    assert inverse_k3(ten, zero) > 22_000  # the spikes that were reported as "k3 is unstable"
    assert same(kl.k3(ten, zero), 9 + math.exp(-10))
    assert same(kl.k3(one, zero), [1 / math.e])  # not e - 2


# P2
def test_kl_gradient_in_the_loss(categorical):
    """Which KL in the loss pulls to the reference? The property: E[gradient] = grad KL(pi || ref), on-policy."""
    tree, pi, ref = categorical
    wanted, forward = tree.grad(tree.kl(pi, ref), pi), tree.grad(tree.kl(ref, pi), pi)

    def of(term):
        algorithm = replace(ALGORITHMS["reinforce"], kl=(term,))

        def loss(logp, rows):
            ref_logp = tree.logp(ref)[rows]
            return policy_loss(algorithm, Batch(logp, logp.detach(), tree.mask[rows], f64([0.0]), 1, ref_logp=ref_logp))

        return tree.expected_loss(loss, pi, 1)[1]

    assert same(of(KL(1.0, "k1")), torch.zeros_like(wanted))  # no leash at all
    assert same(of(KL(1.0, "k3")), forward)  # another leash
    assert cosine(forward, wanted) < 0.95
    for term in (KL(1.0, "k2"), KL(1.0, "k1", weighted=True), KL(1.0, "k3", weighted=True), KL(1.0, "k1", "reward")):
        assert same(of(term), wanted), term


# P3
def test_dr_grpo_is_both_halves():
    """Dropping the std and keeping 1/|o|. The property: equal advantages give every token equal weight."""
    mask = mask_of([2, 8])

    def even(algorithm):
        weights = token_weights(algorithm, mask, budget=8)[mask.bool()]
        return same(weights, weights[0])

    half = replace(ALGORITHMS["dr_grpo"], aggregate=aggregation.sequence_mean)
    weights = token_weights(half, mask, budget=8)
    assert same(weights[:, 0], [0.25, 0.0625])
    assert not even(half)
    assert even(ALGORITHMS["dr_grpo"])


# P4
@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "dapo", "cispo"])
@pytest.mark.parametrize("micro_batches", [2, 3, 4])
def test_micro_batches_do_not_count(name, micro_batches):
    """Averaging the micro-batches' own averages. The property: the gradient does not depend on the split."""
    algorithm = replace(ALGORITHMS[name], kl=())
    mask = mask_of([2, 2, 200, 200])
    batch = batch_of(0.0, mask, [1.0] * 4, group_size=2, budget=200)
    whole = gradient(policy_loss(algorithm, batch), batch.logp)

    def by_sum(parts):
        return gradient(sum(policy_loss(algorithm, part) for part in parts), batch.logp)

    assert same(by_sum(batch.split(micro_batches)), whole)

    if name in ("dapo", "cispo") and micro_batches == 2:  # what was found: each half divides by its own tokens
        halves = [batch.minibatch(torch.tensor([0, 1])), batch.minibatch(torch.tensor([2, 3]))]
        wrong = by_sum(halves) / 2
        assert not same(wrong, whole)
        assert wrong[0, 0] / wrong[2, 0] == pytest.approx(100)
        assert same(whole[0, 0], whole[2, 0])


def test_the_last_window_may_be_smaller():
    """Six rows in windows of four and two, each averaged, then halved: the last two rows count double."""
    algorithm, A = replace(ALGORITHMS["grpo"], kl=()), [1.0, -1.0, 0.5, -0.5, 2.0, -2.0]
    batch = batch_of(0.0, torch.ones(6, 3), A, group_size=2)
    whole = gradient(policy_loss(algorithm, batch), batch.logp)
    windows = [batch.minibatch(torch.arange(0, 4)), batch.minibatch(torch.arange(4, 6))]
    halved = gradient(sum(policy_loss(algorithm, window) for window in windows) / 2, batch.logp)
    assert same(halved[4:], 1.5 * whole[4:])
    uneven = batch.split(4)
    assert len({len(part.mask) for part in uneven}) == 2
    assert same(gradient(sum(policy_loss(algorithm, part) for part in uneven), batch.logp), whole)


# P5
def test_log_probs_are_those_of_the_sampled_distribution(categorical):
    """Sampling at T = .6 or top-2 and scoring with T = 1. The property: E_behaviour[grad log pi] = 0."""
    tree, logits, _ = categorical
    R = torch.randn(5, generator=torch.Generator().manual_seed(2), dtype=torch.float64)

    def mean_score(behaviour, temperature):
        logp = logprobs.token_logprobs(logits[tree.node], tree.tokens, temperature=temperature).squeeze(1)
        return tuple(tree.grad((behaviour.detach() * f * logp).sum(), logits) for f in (1.0, R, R + 10))

    cooled = tree.probs(logits, 0.6)
    top_two = tree.probs(tree.top_p(logits, 0.9))
    assert (top_two > 0).sum() == 2
    zero = torch.zeros_like(logits)
    assert not same(mean_score(cooled, 1.0)[0], zero)
    assert not same(mean_score(top_two, 1.0)[0], zero)
    assert same(mean_score(cooled, 0.6)[0], zero)
    assert same(mean_score(tree.probs(logits), 1.0)[0], zero)

    # Hence a constant added to every reward is free in the one case and an update of its own in the other.
    _, gradient_of_R, shifted = mean_score(cooled, 0.6)
    assert same(gradient_of_R, tree.grad((cooled * R).sum(), logits))
    assert same(shifted, gradient_of_R)
    _, gradient_of_R, shifted = mean_score(cooled, 1.0)
    assert (shifted - gradient_of_R).norm() > gradient_of_R.norm()


# P6
def test_k1_in_the_loss_under_another_sampler_pulls_to_the_sampler(categorical):
    """k1 in the loss on samples of q: the gradient is q - pi on the logits, on average. The reference drops out."""
    tree, pi, ref = categorical
    q = tree.probs(pi, 0.8).detach()
    algorithm = replace(ALGORITHMS["reinforce"], kl=(KL(1.0, "k1"),))

    def of(reference):
        def loss(logp, rows):
            more = {"ref_logp": tree.logp(reference)[rows]}
            return policy_loss(algorithm, Batch(logp, logp.detach(), tree.mask[rows], f64([0.0]), 1, **more))

        return tree.expected_loss(loss, pi, 1, behaviour=pi.detach() / 0.8)[1]

    by_token = (q - tree.probs(pi)).detach()  # responses of a tree of length 1 are its tokens, in order
    assert [s[0] for s in tree.sequences] == [0, 1, 2, 3, 4]
    assert same(of(ref), by_token[None])
    assert same(of(ref), of(-3 * ref))
    descent = pi.detach() - 0.1 * of(ref)
    assert entropy(descent) > entropy(pi.detach())  # a cooled sampler makes the model hotter, step after step


def entropy(logits):
    table = logits.log_softmax(-1)
    return -(table.exp() * table).sum().item()


# P7
CLIP_TABLE = {  # (ratio, sign of A): does the token still learn?
    (0.5, +1): True,
    (0.5, -1): False,  # already less likely than the band allows: no more
    (1.0, +1): True,
    (1.0, -1): True,
    (1.5, +1): False,
    (1.5, -1): True,  # moved the wrong way: must be pulled back, without limit
}


@pytest.mark.parametrize("name", ["ppo", "grpo", "dr_grpo", "dapo", "reinforce_pp"])
def test_clip_takes_the_minimum_for_both_signs(name):
    """max in the place of min for A < 0. The property: the six cells of the clip table."""

    def maximum_for_negative(ratio, advantage, *, low, high):
        unclipped, clipped = ratio * advantage, ratio.clamp(1 - low, 1 + high) * advantage
        return torch.where(advantage >= 0, torch.minimum(unclipped, clipped), torch.maximum(unclipped, clipped))

    def learns(algorithm):
        return {cell: gradient_weight(algorithm, *map(float, cell)).item() != 0 for cell in CLIP_TABLE}

    row = ALGORITHMS[name]
    wrong = replace(row, gate=partial(maximum_for_negative, low=0.2, high=0.2))
    assert learns(wrong) != CLIP_TABLE
    assert not learns(wrong)[1.5, -1]
    assert learns(wrong)[0.5, -1]
    assert learns(row) == CLIP_TABLE


# P8
def test_the_first_eos_is_trained_and_padding_is_not():
    """The mask from `ids != pad`, where pad is EOS. The property: the first EOS is in, everything after it is out."""
    eos = pad = 0
    ids = torch.tensor([[5, 6, eos, pad, pad], [7, eos, 8, eos, pad], [5, 6, 7, 8, 9], [eos, pad, pad, pad, pad]])
    right = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 1, 1], [1, 0, 0, 0, 0]])
    from_pad = ids != pad
    assert not from_pad[0, 2]
    assert from_pad[1, 2]
    assert same(masked.completion_mask(ids, eos), right)


# P9
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_constant_group_has_exactly_no_advantage(dtype):
    """(r - mean) / (std + 1e-8) on equal rewards: the mean rounds and the quotient is of order one. The property: 0."""

    def naive(rewards):
        return (rewards - rewards.mean()) / (rewards.std() + 1e-8)

    worst = 0.0
    for G in (2, 3, 5, 7, 8, 12, 16, 33, 64):
        for r in (0.1, 0.7, 1.1, 1 / 3, 1e6 + 0.1, -2.3):
            rewards = torch.full((G,), r, dtype=dtype)
            worst = max(worst, naive(rewards).abs().max().item())
            token_rewards, mask = rewards[:, None], torch.ones(G, 1, dtype=dtype)
            for cell in (
                advantages.group_centered,
                advantages.group_normalized,
                partial(advantages.group_normalized, eps=1e-8),
                advantages.leave_one_out,
                contrib.advantages.leave_one_out_normalized,
            ):
                A = cell(token_rewards, mask, group_size=G)
                assert (A == 0).all(), (cell, G, r)
    if dtype == torch.float32:
        assert worst > 0.5


def test_a_constant_group_still_feels_the_kl():
    """ "Zero advantage, so no gradient" holds without a KL in the loss only."""
    logp = f64([[-1.0], [-2.0]]).requires_grad_()
    batch = Batch(logp, logp.detach(), torch.ones(2, 1), f64([0.7, 0.7]), 2, ref_logp=f64([[-2.0], [-1.0]]))
    assert gradient(policy_loss(ALGORITHMS["grpo"], batch), logp).abs().min() > 1e-3
    bare = replace(ALGORITHMS["grpo"], kl=())
    assert (gradient(policy_loss(bare, batch), logp) == 0).all()


# P10
@pytest.mark.parametrize("G", [2, 4, 8])
def test_the_standard_deviation_is_the_samples(G):
    """ddof 0 against ddof 1: advantages differ by sqrt(G/(G-1)), 1.41 at G = 2. A choice, and here stated: ddof 1."""
    rewards = torch.randn(G, 1, generator=torch.Generator().manual_seed(G), dtype=torch.float64)
    mask = torch.ones(G, 1)
    ours = advantages.group_normalized(rewards, mask, group_size=G, eps=1e-12)
    population = advantages.group_normalized(rewards, mask, group_size=G, eps=1e-12, ddof=0)
    assert same(ours.std(), 1.0)
    assert same(population / ours, math.sqrt(G / (G - 1)))
    # The rows take the sample std too, with eps 1e-4 beside it.
    batch = Batch(-mask.double(), -mask.double(), mask, rewards.squeeze(1), G, ref_logp=-mask.double())
    prepared = prepare(ALGORITHMS["grpo"], batch).advantages
    assert same(prepared, (rewards - rewards.mean()) / (rewards.std() + 1e-4))


def test_a_group_of_one_is_an_error_and_not_a_nan():
    """torch.std of one number is NaN, which would travel silently into the weights."""
    one = torch.ones(1, 1, dtype=torch.float64)
    assert (one.var(correction=0) / 0).isnan()  # what ddof 1 makes of it
    for cell in (advantages.group_normalized, advantages.group_centered, advantages.leave_one_out):
        with pytest.raises(ValueError):
            cell(one, one, group_size=1)


# P11
def test_dividing_by_the_std_raises_hard_prompts_and_removing_it_does_not():
    """Said the wrong way round in print: that without the std advantages grow, and that hard prompts vary most."""
    G = 8
    z, centred, variance = {}, {}, {}
    for k in range(1, G):
        rewards = (torch.arange(G) < k).double()[:, None]
        z[k] = advantages.group_normalized(rewards, torch.ones(G, 1), group_size=G).abs().mean().item()
        centred[k] = advantages.group_centered(rewards, torch.ones(G, 1), group_size=G).abs().mean().item()
        variance[k] = rewards.var().item()
    assert z[1] == pytest.approx(0.619, abs=1e-3)
    assert centred[1] == pytest.approx(0.219, abs=1e-3)
    assert all(centred[k] < z[k] for k in z)  # removing the std scales binary advantages down, every one
    assert min(variance, key=variance.get) in (1, G - 1)  # and one in eight right is where rewards vary least
    boost = {k: z[k] / centred[k] for k in z}
    assert boost[1] == max(boost.values())


# P12
def test_whitening_sees_trained_tokens_only():
    """Mean and std over the padding too. The property: mean 0 and sample variance 1 over trained tokens."""
    mask = mask_of([10, 2])
    A = f64([1.0, -1.0])[:, None].expand(2, 10)
    padded = A * mask

    def is_white(x):
        x = x[mask.bool()]
        return same(x.mean(), 0.0) and same(x.var(), 1.0, 1e-6)

    over_padding = (padded - padded.mean()) / padded.std()
    with_the_mean_added_back = advantages.whiten(A, mask) + A[mask.bool()].mean()
    assert not is_white(over_padding)
    assert not is_white(with_the_mean_added_back)
    white = advantages.whiten(A, mask)
    assert is_white(white)
    assert same(white[:, 0], [0.4282, -2.1409], 1e-4)


# P13
def is_geometric_mean(ratio):
    """A drift of c nats on every token gives e^c at any length, and drifts that cancel give exactly 1."""
    for T in (1, 7, 256):
        mask = torch.ones(1, T)
        old = torch.full((1, T), -2.0, dtype=torch.float64)
        if not same(ratio(old + 0.05, old, mask)[0], math.exp(0.05)):
            return False
    mask, zigzag = torch.ones(1, 8), f64([[0.3, -0.3] * 4])
    return same(ratio(zigzag - 2, torch.full((1, 8), -2.0).double(), mask)[0], 1.0)


def test_gspo_ratio():
    """Without 1/|y|; divided by |y| without a sum; arithmetic mean. The property: it is a geometric mean."""

    def no_length(logp, old_logp, mask):
        return ((logp - old_logp) * mask).sum(1, keepdim=True).exp().expand_as(logp)

    def no_sum(logp, old_logp, mask):
        return ((logp - old_logp) / mask.sum(1, keepdim=True)).exp()

    def arithmetic(logp, old_logp, mask):
        return ((logp - old_logp).exp() * mask).sum(1, keepdim=True).expand_as(logp) / mask.sum(1, keepdim=True)

    for wrong in (no_length, no_sum, arithmetic):
        assert not is_geometric_mean(wrong), wrong.__name__
    assert is_geometric_mean(ratios.sequence)
    assert is_geometric_mean(ratios.sequence_token)
    assert is_geometric_mean(ALGORITHMS["gspo"].ratio)


def test_gspo_band_is_that_of_a_geometric_mean():
    """GRPO's .2 as GSPO's band: it never binds, and the algorithm is unclipped without a word."""
    generator = torch.Generator().manual_seed(0)
    noise = 0.05 * torch.randn(1000, 64, generator=generator, dtype=torch.float64)
    mask = torch.ones(1000, 64)
    s = ratios.sequence(noise - 2, torch.full_like(noise, -2.0), mask)[:, 0]

    def share_outside(low, high):
        return ((s < 1 - low) | (s > 1 + high)).double().mean().item()

    band = ALGORITHMS["gspo"].gate.keywords
    assert share_outside(0.2, 0.2) == 0
    assert share_outside(band["low"], band["high"]) > 0.8
    product = contrib.ratios.sequence_product(noise - 2, torch.full_like(noise, -2.0), mask)[:, 0]
    assert ((product - 1).abs() > 0.2).double().mean() > 0.5  # and a product leaves .2 most of the time


# P15
@pytest.mark.parametrize("A", [1.0, -2.0])
def test_cispo_bounds_the_weight_from_above_only(A):
    """A lower bound; the cap read as 1 + eps; the inverse ratio. The property: the weight is min(r, cap) A."""
    r = f64([0.01, 0.1, 0.5, 1.0, 2.0, 4.9, 5.1, 6.0, 50.0])
    cap = 5.0
    right = r.clamp(max=cap) * A

    def weight(gate):
        return gradient_weight(replace(ALGORITHMS["cispo"], gate=gate), r, A)

    def two_sided(ratio, advantage):
        return (ratio.clamp(0.8, 1.2) / ratio).detach() * ratio * advantage

    def inverse(ratio, advantage):
        return ((1 / ratio).clamp(max=cap) / ratio).detach() * ratio * advantage

    def differentiated(ratio, advantage):  # no stop-gradient: the cap then drops tokens, which CISPO exists to avoid
        return ratio.clamp(max=cap) * advantage

    for wrong in (two_sided, inverse, differentiated, partial(gates.clip_weight, cap=1 + cap)):
        assert not same(weight(wrong), right)
    assert same(gradient_weight("cispo", r, A), right)


def test_cispo_counts_tokens():
    """Averaged per response. The property: every token of the batch has the same weight."""
    mask = mask_of([1, 4, 9])

    def even(algorithm):
        weights = token_weights(algorithm, mask)[mask.bool()]
        return same(weights, 1 / 14)

    assert not even(replace(ALGORITHMS["cispo"], aggregate=aggregation.sequence_mean))
    assert even(ALGORITHMS["cispo"])


# P16
@pytest.mark.parametrize(("A", "tau"), [(1.0, 1.0), (-1.0, 1.05)])
def test_sapo_weighs_by_the_gates_derivative(A, tau):
    """The gate's value, detached, in the place of its derivative: 2 at r = 1, and rising with r.

    The property: 1 at r = 1, r f'(r) elsewhere (by finite differences of f), and going to 0 far away.
    """
    r = f64([0.25, 0.5, 1.0, 2.0, 4.0, 12.0])

    def f(x):
        return 4 / tau * torch.sigmoid(tau * (x - 1))

    def gate_value(ratio, advantage):
        return (f(ratio).detach() / ratio.detach()) * ratio * advantage

    h = 1e-6
    right = r * (f(r + h) - f(r - h)) / (2 * h) * A
    wrong = gradient_weight(replace(ALGORITHMS["sapo"], gate=gate_value), r, A)
    assert abs(wrong[2].item()) == pytest.approx(2.0 / tau)
    assert (wrong.abs().diff() > 0).all()
    assert not same(wrong, right, 1e-3)

    ours = gradient_weight("sapo", r, A)
    assert same(ours, right, 1e-7)
    assert same(ours[2], A)
    assert ours[5].abs() < 1e-3
    if A > 0:
        assert ours[4].item() == pytest.approx(0.72, abs=0.01)


# P17
def test_gmpo_advantage_multiplies_the_mean():
    """exp(mean(log r A)), the advantage inside the exponent: equal at r = 1. The property: gradient linear in A."""
    mask, r = torch.ones(1, 4), -1.0

    def wrong(log_ratio, A):
        leaf = torch.full((1, 4), log_ratio, dtype=torch.float64, requires_grad=True)
        return gradient(-(leaf * A).mean().exp(), leaf)

    def ours(log_ratio, A, **cells):
        batch = batch_of(log_ratio, mask, [A])
        return gradient(policy_loss(replace(ALGORITHMS["gmpo"], **cells), batch), batch.logp)

    free = partial(ours, gate=gates.none)
    assert same(wrong(0.0, -2.0), ours(0.0, -2.0))  # which is why it was not noticed
    assert wrong(r, -2.0)[0, 0].item() == pytest.approx(3.69, abs=0.01)
    assert free(r, -2.0)[0, 0].item() == pytest.approx(0.184, abs=0.001)
    assert not same(wrong(r, -2.0), 2 * wrong(r, -1.0))
    assert same(free(r, -2.0), 2 * free(r, -1.0))
    assert same(free(r, 2.0), -free(r, -2.0))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_gmpo_band_is_in_log_space_and_one_sided(sign):
    """Bounds 1 -+ .4 or a two-sided clip. The property: tokens stop at |log r| = .4, on the side where A pushes."""

    def stops(log_ratio, gate=ALGORITHMS["gmpo"].gate):
        batch = batch_of(log_ratio, torch.ones(1, 1), [sign])
        return (gradient(policy_loss(replace(ALGORITHMS["gmpo"], gate=gate), batch), batch.logp) == 0).item()

    edge = sign * 0.4
    assert not stops(0.999 * edge)
    assert stops(1.001 * edge)
    assert not stops(-3.0 * edge)
    ratio_space = partial(gates.clip, low=0.4, high=0.4)
    assert stops(0.999 * edge, ratio_space) or not stops(1.001 * edge, ratio_space)


# P18
def test_grpo_ratios_are_per_token():
    """log pi summed over the response before the ratio. The property: a token's gate looks at that token alone."""
    T = 10
    mask = torch.ones(1, T)
    row = replace(ALGORITHMS["grpo"], kl=())

    def of(algorithm, log_ratio):
        batch = batch_of(log_ratio, mask, [1.0])
        return gradient(policy_loss(algorithm, batch), batch.logp)[0]

    summed = replace(row, ratio=contrib.ratios.sequence_product)
    everywhere = torch.full((1, T), math.log(1.1), dtype=torch.float64)
    assert (of(summed, everywhere) == 0).all()  # 1.1^10 = 2.6 is out of the band: the whole response is lost
    assert same(of(row, everywhere), -1.1 / T)

    one_spike = torch.zeros(1, T, dtype=torch.float64)
    one_spike[0, 3] = 1.0
    right = torch.full((T,), -1 / T, dtype=torch.float64)
    right[3] = 0.0
    assert same(of(row, one_spike), right)
    assert (of(summed, one_spike) == 0).all()


# P19
def test_the_reward_kl_is_a_sum_over_tokens():
    """The mean over tokens as a penalty: long responses dilute it. The property: E[gradient] = grad(beta KL - E[R])."""
    tree, beta = Tree(vocab=3, length=3), 0.5
    pi, ref = tree.random_logits(0).requires_grad_(), tree.random_logits(1)
    R = torch.randn(len(tree), generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    wanted = -tree.grad(tree.expect(pi, R) - beta * tree.kl(pi, ref), pi)
    log_ratio = (tree.logp(pi) - tree.logp(ref)).detach()

    def of(algorithm, rewards):
        def loss(logp, rows):
            more = {"ref_logp": tree.logp(ref)[rows]}
            return policy_loss(algorithm, Batch(logp, logp.detach(), tree.mask[rows], rewards[rows], 1, **more))

        return tree.expected_loss(loss, pi, 1)[1]

    row = ALGORITHMS["reinforce"]
    averaged = R - beta * log_ratio.sum(1) / tree.lengths
    assert not same(of(row, averaged), wanted)
    assert not same(of(replace(row, kl=(KL(beta, "k3", place="reward"),)), R), wanted)
    assert same(of(row, R - beta * log_ratio.sum(1)), wanted)
    assert same(of(replace(row, kl=(KL(beta, "k1", place="reward"),)), R), wanted)


# the accidental broadcast
def test_advantages_do_not_broadcast_along_tokens_when_b_equals_t():
    """ratio [B, T] * A [B] goes along T when B == T, silently. The property: row i has advantage A_i at each token."""
    A = f64([1.0, 2.0, 3.0])
    batch = batch_of(0.0, torch.ones(3, 3), A)
    g = gradient(policy_loss(ALGORITHMS["reinforce"], batch), batch.logp)
    along_tokens = -(torch.ones(3, 3).double() * A) / 3
    assert same(g, -A[:, None].expand(3, 3) / 3)
    assert not same(g, along_tokens)
    with pytest.raises(ValueError):
        Batch(batch.logp, batch.old_logp, batch.mask, torch.zeros(3, 3).double(), 1)
