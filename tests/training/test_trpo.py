"""TRPO's parts, each against something that was made in another way: dense matrices, enumeration, torch.linalg.

The policies are small enough for a dense Fisher matrix: a tiny GPT-2 in float64 (a Llama's norms and rotations are
computed in float32 whatever its weights are, which 1e-9 would see), and tables of logits (`Tree`).
"""

import copy
import math
from dataclasses import replace
from functools import partial

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from rlhf_book.tabular import Tree
from rlhf_minimal import ALGORITHMS, KL
from rlhf_minimal.config import Config
from rlhf_minimal.evaluate import evaluate
from rlhf_minimal.functional import gates, ratios
from rlhf_minimal.lab.trust_region import (
    TrustRegion,
    conjugate_gradients,
    fisher_vector_product,
    mean_kl,
    trpo_step,
    trust_region_step,
    trust_region_update,
)
from rlhf_minimal.models import Vocabulary, policy_logits, tiny_llama
from rlhf_minimal.tasks import get_task
from rlhf_minimal.train import Recipe, collect, prepare_batch, train, update
from rlhf_minimal.train_state import Learner

EVEN = get_task("even")
PLAIN = replace(ALGORITHMS["grpo"], gate=gates.none, kl=())  # TRPO's surrogate: ratio times advantage
CRITIC = replace(ALGORITHMS["ppo"], gate=gates.none, kl=(), normalize=None)


@pytest.fixture(autouse=True)
def _differentiable_twice():
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        yield


def flat(tensors):
    return torch.cat([x.detach().reshape(-1) for x in tensors]).clone()


# --- a tiny transformer and a batch with padding and a hole --------------------------------------------------------

PROMPTS = torch.tensor([[0, 1], [2, 1], [1, 2]])
PROMPT_MASK = torch.tensor([[0, 1], [1, 1], [1, 1]])
COMPLETIONS = torch.tensor([[1, 2, 0, 0], [2, 2, 1, 1], [2, 0, 0, 0]])
MASK = torch.tensor([[1.0, 1, 1, 0], [1, 0, 1, 1], [1, 1, 0, 0]])  # row 1 has a hole
IDS = (PROMPTS, PROMPT_MASK, COMPLETIONS)


def tiny(seed=0):
    config = GPT2Config(vocab_size=3, n_positions=6, n_embd=4, n_layer=1, n_head=1, initializer_range=0.3)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = GPT2LMHeadModel(config).double().eval()
    return model, list(model.parameters())


def kl_of(model, old, mask=MASK, temperature=1.0):
    return mean_kl(old, policy_logits(model, *IDS), mask, temperature=temperature)


def dense_fisher(model, parameters, temperature=1.0):
    """E[score score'] written out: every trained state, every token of the vocabulary, one backward pass each."""
    logp = torch.log_softmax(policy_logits(model, *IDS) / temperature, -1)
    size = sum(p.numel() for p in parameters)
    F = torch.zeros(size, size, dtype=torch.float64)
    states = MASK.nonzero().tolist()
    for i, t in states:
        for v in range(logp.shape[-1]):
            score = torch.autograd.grad(logp[i, t, v], parameters, retain_graph=True)
            score = torch.cat([g.reshape(-1) for g in score])
            F += logp[i, t, v].exp().item() * torch.outer(score, score) / len(states)
    return F


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_a_fisher_vector_product_is_the_dense_matrix_times_the_vector(temperature):
    model, parameters = tiny()
    F = dense_fisher(model, parameters, temperature)
    old = policy_logits(model, *IDS).detach()
    generator = torch.Generator().manual_seed(0)
    for _ in range(3):
        v = torch.randn(len(F), generator=generator, dtype=torch.float64)
        found = fisher_vector_product([kl_of(model, old, temperature=temperature)], parameters, v)
        torch.testing.assert_close(found, F @ v, rtol=1e-9, atol=1e-9)
    assert F.norm() > 0.1  # else the above would hold for nothing


def test_the_librarys_own_llama_too_as_far_as_its_float32_norms_go():
    model = tiny_llama(3, width=4, layers=1, heads=1).double()
    parameters = list(model.parameters())
    F, old = dense_fisher(model, parameters), policy_logits(model, *IDS).detach()
    v = torch.randn(len(F), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = fisher_vector_product([kl_of(model, old)], parameters, v)
    torch.testing.assert_close(found, F @ v, rtol=0, atol=1e-6 * (F @ v).norm().item())


def test_fisher_is_the_hessian_of_the_kl_of_whole_responses_and_their_scores_second_moment():
    """On a table: with states weighted by how often they are visited, for responses of several tokens, by listing."""
    tree = Tree(vocab=3, length=3)
    theta = tree.random_logits(seed=0).requires_grad_()
    old, visits, probs = theta.detach().clone(), tree.visits(theta.detach()), tree.probs(theta).detach()

    scores = [torch.autograd.grad(lp, theta, retain_graph=True)[0].flatten() for lp in tree.sequence_logp(theta)]
    moment = sum(p * torch.outer(s, s) for p, s in zip(probs, scores, strict=True))

    def kl(flat_theta):  # sum over states of visits(old) x KL of the next token = KL of whole responses
        return tree.kl(old, flat_theta.view_as(old))

    hessian = torch.autograd.functional.hessian(kl, old.flatten())
    torch.testing.assert_close(hessian, moment, rtol=1e-9, atol=1e-12)
    for v in torch.eye(old.numel(), dtype=torch.float64):
        pieces = (d * tree.token_kl(old, theta)[s] for s, d in enumerate(visits))  # one piece a state
        torch.testing.assert_close(fisher_vector_product(pieces, [theta], v), moment @ v, rtol=1e-9, atol=1e-12)


def test_away_from_the_old_policy_the_hessian_is_no_longer_the_fisher_matrix():
    """So the promise "taken at the old policy" is needed: without it the identity fails."""
    model, parameters = tiny()
    with torch.no_grad():
        old = policy_logits(model, *IDS) + torch.randn(3, 4, 3, generator=torch.Generator().manual_seed(0)).double()
    v = torch.ones(sum(p.numel() for p in parameters), dtype=torch.float64)
    found = fisher_vector_product([kl_of(model, old)], parameters, v)
    expected = dense_fisher(model, parameters) @ v
    assert (found - expected).norm() > 0.01 * expected.norm()


# --- the exact KL --------------------------------------------------------------------------------------------------


def test_mean_kl_is_the_sum_over_the_vocabulary_written_out():
    generator = torch.Generator().manual_seed(0)
    old, new = (torch.randn(3, 4, 5, generator=generator, dtype=torch.float64) for _ in range(2))
    for temperature in (1.0, 0.5):
        total = 0.0
        for i, t in MASK.nonzero().tolist():
            p = [math.exp(x / temperature) for x in old[i, t].tolist()]
            q = [math.exp(x / temperature) for x in new[i, t].tolist()]
            total += sum(a / sum(p) * math.log((a / sum(p)) / (b / sum(q))) for a, b in zip(p, q, strict=True))
        assert mean_kl(old, new, MASK, temperature=temperature).item() == pytest.approx(total / 8, rel=1e-12)


def test_what_is_masked_is_never_read_and_gets_no_gradient():
    old = torch.randn(3, 4, 5, dtype=torch.float64)
    new = torch.randn(3, 4, 5, dtype=torch.float64)
    clean = mean_kl(old, new, MASK)
    new[MASK == 0], old[MASK == 0] = math.nan, math.inf
    new.requires_grad_()
    dirty = mean_kl(old, new, MASK)
    dirty.backward()
    assert dirty == clean
    assert (new.grad[MASK == 0] == 0).all()
    assert (new.grad[MASK == 1] != 0).all()


def test_mean_kl_says_what_does_not_fit():
    logits = torch.zeros(1, 2, 3)
    with pytest.raises(ValueError, match="temperature"):
        mean_kl(logits, logits, torch.ones(1, 2), temperature=0.0)
    with pytest.raises(ValueError, match="tokens"):
        mean_kl(logits, logits, torch.zeros(1, 2))


# --- conjugate gradients -------------------------------------------------------------------------------------------


def spd(n, seed=0):
    root = torch.randn(n, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return root @ root.T / n + 0.1 * torch.eye(n, dtype=torch.float64)


@pytest.mark.parametrize("n", [1, 5, 20])
def test_conjugate_gradients_solve_what_linalg_solves(n):
    A, b = spd(n), torch.randn(n, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    x, residual = conjugate_gradients(lambda v: A @ v, b, iterations=3 * n, tolerance=1e-13)
    torch.testing.assert_close(x, torch.linalg.solve(A, b), rtol=1e-9, atol=1e-9)
    assert residual == pytest.approx(((A @ x - b).norm() / b.norm()).item(), abs=1e-12)


def test_after_k_products_the_answer_is_the_best_of_the_krylov_space():
    """Among all combinations of b, Ab, ..., A^(k-1) b it is nearest to the solution in A's norm: what CG promises."""
    A, b = spd(12), torch.randn(12, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for k in (1, 2, 4):
        x, residual = conjugate_gradients(lambda v: A @ v, b, iterations=k)
        space = torch.linalg.qr(torch.stack([torch.linalg.matrix_power(A, j) @ b for j in range(k)], 1))[0]
        best = space @ torch.linalg.solve(space.T @ A @ space, space.T @ b)
        torch.testing.assert_close(x, best, rtol=1e-8, atol=1e-9)
        assert residual == pytest.approx(((A @ x - b).norm() / b.norm()).item(), rel=1e-9)


def test_products_are_not_wasted_and_zero_is_solved_by_zero():
    calls = []
    A = torch.diag(torch.tensor([2.0, 2.0, 5.0], dtype=torch.float64))  # two eigenvalues: two products do

    def product(v):
        calls.append(1)
        return A @ v

    x, residual = conjugate_gradients(product, torch.ones(3, dtype=torch.float64), iterations=50)
    assert len(calls) == 2
    torch.testing.assert_close(x, 1 / A.diagonal())
    assert residual < 1e-12
    x, residual = conjugate_gradients(product, torch.zeros(3, dtype=torch.float64))
    assert (x == 0).all()
    assert residual == 0.0
    assert len(calls) == 2


def test_a_direction_that_the_matrix_does_not_see_ends_the_search_with_an_honest_residual():
    """Without that check the second product of this singular matrix divides by zero and x is not a number."""
    A = torch.diag(torch.tensor([1.0, 0.0], dtype=torch.float64))
    b = torch.ones(2, dtype=torch.float64)
    x, residual = conjugate_gradients(lambda v: A @ v, b)
    assert torch.isfinite(x).all()
    assert residual == pytest.approx(((A @ x - b).norm() / b.norm()).item())
    assert residual > 0.5


# --- the step ------------------------------------------------------------------------------------------------------


def transformer_problem(model, advantages_=None):
    """Surrogate and divergence of the tiny transformer on the batch with the hole."""
    old = policy_logits(model, *IDS).detach()
    A = torch.tensor([[1.0], [-0.5], [0.3]], dtype=torch.float64) if advantages_ is None else advantages_
    before = torch.log_softmax(old, -1).gather(-1, COMPLETIONS[..., None]).squeeze(-1)

    def surrogate():
        logp = torch.log_softmax(policy_logits(model, *IDS), -1).gather(-1, COMPLETIONS[..., None]).squeeze(-1)
        return [((logp - before).exp() * A * MASK).sum() / MASK.sum()]

    return surrogate, lambda: [kl_of(model, old)]


@pytest.mark.parametrize("damping", [1e-3, 0.1])
def test_the_step_is_the_dense_natural_gradient_scaled_to_the_bound(damping):
    model, parameters = tiny()
    surrogate, divergence = transformer_problem(model)
    g = torch.cat([x.reshape(-1) for x in torch.autograd.grad(surrogate()[0], parameters)])
    F = dense_fisher(model, parameters)
    x = torch.linalg.solve(F + damping * torch.eye(len(F), dtype=torch.float64), g)
    expected = math.sqrt(2 * 1e-4 / (x @ F @ x)) * x

    before = flat(parameters)
    region = TrustRegion(1e-4, cg_iterations=300, cg_damping=damping, cg_tolerance=1e-13)
    report = trust_region_step(parameters, surrogate, divergence, region)
    step = (flat(parameters) - before) / region.shrink**report.backtracks
    assert report.accepted
    torch.testing.assert_close(step, expected, rtol=1e-6, atol=1e-9)
    assert report.grad_norm == pytest.approx(g.norm().item())
    assert report.predicted_kl == pytest.approx(1e-4 * region.shrink ** (2 * report.backtracks))
    assert report.predicted_improvement == pytest.approx((g @ step).item() * region.shrink**report.backtracks)


def test_without_damping_the_prediction_of_the_kl_is_third_order_exact():
    """|KL - x'Fx / 2| falls eightfold when the step is halved; a wrong F would leave a gap that falls fourfold."""
    model, parameters = tiny()
    surrogate, divergence = transformer_problem(model)
    before, gaps = flat(parameters), []
    for max_kl in (1e-4, 2.5e-5, 6.25e-6):  # each step half as long as the one before
        report = trust_region_step(parameters, surrogate, divergence, TrustRegion(max_kl=max_kl, backtracks=0))
        if not report.accepted:  # the true KL is above the bound: the same step under a wider one
            region = TrustRegion(max_kl=max_kl, backtracks=30, shrink=0.99)
            report = trust_region_step(parameters, surrogate, divergence, region)
        assert report.accepted
        gaps.append(abs(report.kl - report.predicted_kl) / report.predicted_kl**1.5)
        assert report.kl == pytest.approx(report.predicted_kl, rel=0.1)
        start = iter(before.split([p.numel() for p in parameters]))
        with torch.no_grad():
            for p in parameters:
                p.copy_(next(start).view_as(p))
    assert gaps[0] > 0
    for gap, finer in zip(gaps, gaps[1:], strict=False):
        assert finer == pytest.approx(gap, rel=0.2)  # gap / step^3 is a constant


def test_what_is_accepted_is_measured():
    model, parameters = tiny()
    surrogate, divergence = transformer_problem(model)
    before = surrogate()[0].item()
    report = trust_region_step(parameters, surrogate, divergence, TrustRegion(0.05))
    assert report.accepted
    assert report.kl == pytest.approx(divergence()[0].item(), rel=1e-12)
    assert report.improvement == pytest.approx(surrogate()[0].item() - before, rel=1e-9)
    assert 0 < report.kl <= 0.05
    assert report.improvement > 0


def test_a_step_beyond_the_bound_is_shortened_until_it_keeps_it():
    """The divergence measured in the search is made larger than the one that F was taken from, as bad luck would."""
    model, parameters = tiny()
    surrogate, divergence = transformer_problem(model)

    def inflated():  # adds cubic growth: at the old policy neither its gradient nor its Hessian differ
        return [kl + 40 * kl**1.5 if kl > 0 else kl for kl in divergence()]

    region = TrustRegion(0.01, shrink=0.5)
    report = trust_region_step(parameters, surrogate, inflated, region)
    assert report.accepted
    assert report.backtracks > 0
    assert report.kl <= 0.01
    assert inflated()[0].item() == pytest.approx(report.kl)
    assert report.predicted_kl == pytest.approx(0.01 * 0.25**report.backtracks)


@pytest.mark.parametrize("spoil", ["bound", "improvement", "nan"])
def test_if_no_length_will_do_nothing_has_moved(spoil):
    model, parameters = tiny()
    surrogate, divergence = transformer_problem(model)
    before = flat(parameters)

    def moved():
        return not torch.equal(flat(parameters), before)

    def worse():
        value = surrogate()[0]
        return [value - 1.0 if moved() else value]

    def wide():
        kl = divergence()[0]
        return [kl + (math.nan if spoil == "nan" else 1.0) if moved() else kl]

    report = trust_region_step(
        parameters,
        worse if spoil == "improvement" else surrogate,
        divergence if spoil == "improvement" else wide,
        TrustRegion(0.01, backtracks=3),
    )
    assert not report.accepted
    assert "4 lengths were tried" in report.why
    assert (report.kl, report.improvement, report.backtracks) == (0.0, 0.0, 3)
    assert not moved()  # bit for bit
    assert all(p.grad is None for p in parameters)


def test_a_batch_that_says_nothing_moves_nothing():
    model, parameters = tiny()
    before = flat(parameters)
    surrogate, divergence = transformer_problem(model, torch.zeros(3, 1, dtype=torch.float64))
    report = trust_region_step(parameters, surrogate, divergence)
    assert not report.accepted
    assert "gradient is 0" in report.why
    assert torch.equal(flat(parameters), before)


def test_a_direction_that_the_policy_does_not_feel_is_no_step():
    """A surrogate outside the policy: softmax does not see a constant added to all logits."""
    theta = torch.zeros(1, 1, 2, dtype=torch.float64, requires_grad=True)
    kl = lambda: [mean_kl(torch.zeros(1, 1, 2, dtype=torch.float64), theta, torch.ones(1, 1))]  # noqa: E731
    report = trust_region_step([theta], lambda: [theta.sum()], kl)
    assert not report.accepted
    assert "does not change the policy" in report.why
    assert (theta == 0).all()


def test_a_step_refuses_what_it_cannot_work_with():
    half = torch.zeros(2, dtype=torch.bfloat16, requires_grad=True)
    with pytest.raises(ValueError, match="load the policy in float32"):
        trust_region_step([half], lambda: [half.sum()], lambda: [half.sum()])
    theta = torch.zeros(2, requires_grad=True)
    with pytest.raises(ValueError, match="not finite"):
        trust_region_step([theta], lambda: [(theta * math.inf).sum()], lambda: [theta.sum()])
    with pytest.raises(ValueError, match=r"vector has shape \(3,\), expected \(2,\)"):
        fisher_vector_product([theta.sum()], [theta], torch.zeros(3))
    with pytest.raises(ValueError, match="iterations"):
        conjugate_gradients(lambda v: v, torch.ones(1), iterations=0)


@pytest.mark.parametrize(
    "wrong",
    [{"max_kl": 0.0}, {"cg_iterations": 0}, {"cg_damping": -1.0}, {"cg_tolerance": -1.0}, {"backtracks": -1}]
    + [{"shrink": value} for value in (0.0, 1.0)],
    ids=str,
)
def test_a_trust_region_names_the_number_that_is_out_of_range(wrong):
    ((name, value),) = wrong.items()
    with pytest.raises(ValueError, match=f"{name} is {value}"):
        TrustRegion(**wrong)


# --- the natural gradient does not ask how a policy is written ------------------------------------------------------


def test_a_natural_step_is_the_same_policy_however_the_policy_is_written():
    """First order: halve the step and the gap between two parametrisations falls fourfold, the gradient's only twofold.

    Steps are taken at full length, without the line search, so that only directions are compared.
    """
    tree = Tree(vocab=3, length=2)
    start = tree.random_logits(seed=1)
    start = start - start.mean(-1, keepdim=True)
    rewards = torch.linspace(-1, 2, len(tree), dtype=torch.float64) ** 2
    mix = torch.eye(start.numel(), dtype=torch.float64) + 0.3 * torch.randn(
        start.numel(), start.numel(), generator=torch.Generator().manual_seed(2), dtype=torch.float64
    )

    def write(phi):  # a bent and mixed way of writing the same logits: sinh, then a matrix
        return (mix @ torch.sinh(phi.flatten())).view_as(phi)

    def read(logits):
        return torch.asinh(torch.linalg.solve(mix, logits.flatten())).view_as(logits)

    torch.testing.assert_close(write(read(start)), start)

    def gap(max_kl, damping):
        # F of a softmax table has directions without effect: damping of 1e-9 leaves the rest alone
        region = TrustRegion(max_kl, cg_iterations=200, cg_damping=damping, cg_tolerance=1e-13, backtracks=0)
        one = _full_step(region, tree, start, rewards, lambda x: x, lambda x: x.clone())
        two = _full_step(region, tree, start, rewards, write, read)
        moved = (one - start.log_softmax(-1)).norm()
        return ((one - two).norm() / moved).item()

    natural = [gap(max_kl, 1e-9) for max_kl in (4e-4, 1e-4, 2.5e-5)]
    plain = [gap(max_kl, 1e9) for max_kl in (4e-4, 1e-4, 2.5e-5)]
    assert natural[0] < 0.05
    for wide, fine in zip(natural, natural[1:], strict=False):
        assert fine == pytest.approx(wide / 2, rel=0.1)  # vanishes with the step, relative to the step
    assert min(plain) > 0.2  # the gradient's own direction depends on how one writes it down


def _full_step(region, tree, start, rewards, write, read):
    """The step of length sqrt(2 delta / x'Fx) itself, whatever the true KL says."""
    phi = read(start).requires_grad_()
    (g,) = torch.autograd.grad(tree.expect(write(phi), rewards), phi)

    def fisher(v):
        return fisher_vector_product([tree.kl(start, write(phi))], [phi], v)

    x, _ = conjugate_gradients(
        lambda v: fisher(v) + region.cg_damping * v,
        g.flatten(),
        iterations=region.cg_iterations,
        tolerance=region.cg_tolerance,
    )
    x = math.sqrt(2 * region.max_kl / (x @ fisher(x))) * x
    return write(phi.detach() + x.view_as(phi)).log_softmax(-1)


# --- in the loop ---------------------------------------------------------------------------------------------------


def begin(algorithm=PLAIN, seed=0, *, width=16, double=False, **changes):
    config = replace(Config(steps=2, prompts=4, group_size=4, seed=seed), **changes)
    vocabulary = Vocabulary(EVEN.alphabet)
    policy = tiny_llama(len(vocabulary), width=width, layers=1, heads=2, seed=seed)
    teacher = tiny_llama(len(vocabulary), width=8, layers=1, heads=2) if algorithm.needs_teacher else None
    learner = Learner.begin(policy.double() if double else policy, vocabulary, algorithm, config, teacher=teacher)
    return learner, Recipe(algorithm, EVEN, config)


def updated(algorithm=PLAIN, *, micro_batches=1, change=lambda groups, batch: (groups, batch), **changes):
    """Weights and metrics after one update in float64."""
    learner, recipe = begin(algorithm, double=True, micro_batches=micro_batches, **changes)
    groups, _ = collect(learner.policy, learner.vocabulary, recipe, 1)
    groups, batch = change(groups, prepare_batch(learner, recipe, groups, 1)[0])
    metrics = trust_region_update(learner, recipe, groups, batch, 1)
    return flat(learner.policy.parameters()), metrics, learner


@pytest.mark.parametrize("algorithm", [PLAIN, CRITIC], ids=["group", "critic"])
def test_micro_batches_change_nothing(algorithm):
    whole, metrics, learner = updated(algorithm, temperature=0.8)
    assert metrics["accepted"] == 1.0
    for pieces in (5, 16)[: 1 if algorithm is CRITIC else 2]:
        parts, same, other = updated(algorithm, micro_batches=pieces, temperature=0.8)
        torch.testing.assert_close(parts, whole, rtol=1e-7, atol=1e-9)
        assert same == pytest.approx(metrics, rel=1e-5, abs=1e-9)
        if learner.critic is not None:
            pair = flat(learner.critic.parameters()), flat(other.critic.parameters())
            torch.testing.assert_close(*pair, rtol=1e-6, atol=1e-8)


def test_padding_and_holes_never_matter():
    """Rows widened on the right by tokens that are masked; and a hole, whose token and log-probs may be anything."""

    def hole(groups, batch, spoil=False):
        mask, completions, logp = batch.mask.clone(), groups.completions, batch.old_logp.clone()
        mask[3, 0] = 0.0
        if spoil:
            logp[3, 0] = math.nan
            logp[mask == 0] = -77.0
        batch = replace(batch, mask=mask, logp=logp, old_logp=logp, advantages=batch.advantages)
        return replace(groups, completions=completions, mask=mask), batch

    def widen(groups, batch):
        groups, batch = hole(groups, batch, spoil=True)
        width = 3
        grow = lambda x, value: torch.nn.functional.pad(x, (0, width), value=value)  # noqa: E731
        completions = grow(groups.completions, 5)
        wide = {"mask": grow(batch.mask, 0.0), "advantages": grow(batch.advantages, 9.0)}
        wide |= {"logp": grow(batch.logp, -1.0), "old_logp": grow(batch.old_logp, -1.0)}
        rest = {name: grow(getattr(groups, name), 0.0) for name in ("logp", "mask", "step_ends", "step_marks")}
        return replace(groups, completions=completions, **rest), replace(batch, **wide)

    clean, metrics, _ = updated(change=hole)
    dirty, again, _ = updated(change=widen)
    assert metrics["accepted"] == again["accepted"] == 1.0
    torch.testing.assert_close(dirty, clean, rtol=1e-7, atol=1e-9)
    assert again == pytest.approx(metrics, rel=1e-5, abs=1e-9)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_the_update_is_a_step_on_the_policy_loss_and_touches_nothing_else(temperature):
    """Against a step on a surrogate written out with plain operations, on the same rollout."""
    learner, recipe = begin(double=True, temperature=temperature)
    by_hand = copy.deepcopy(learner.policy)
    start = flat(learner.start.parameters())
    groups, _ = collect(learner.policy, learner.vocabulary, recipe, 1)
    batch, _ = prepare_batch(learner, recipe, groups, 1)
    metrics = trust_region_update(learner, recipe, groups, batch, 1)

    ids = (groups.prompts, groups.prompt_mask, groups.completions)
    old = policy_logits(by_hand, *ids).detach() / temperature

    def surrogate():
        logp = (policy_logits(by_hand, *ids) / temperature).log_softmax(-1).gather(-1, ids[2][..., None])[..., 0]
        terms = (logp - groups.logp.double()).exp() * batch.advantages * groups.mask
        return [(terms.sum(-1) / groups.mask.sum(-1)).mean()]  # the row's mean within each response

    def divergence():
        a, b = old.log_softmax(-1), (policy_logits(by_hand, *ids) / temperature).log_softmax(-1)
        return [((a.exp() * (a - b)).sum(-1) * groups.mask).sum() / groups.mask.sum()]

    before = surrogate()[0].item()
    report = trust_region_step(list(by_hand.parameters()), surrogate, divergence)
    torch.testing.assert_close(flat(learner.policy.parameters()), flat(by_hand.parameters()), rtol=1e-7, atol=1e-9)
    assert metrics["step_kl"] == pytest.approx(report.kl)
    assert metrics["improvement"] == pytest.approx(report.improvement)
    assert metrics["loss"] == pytest.approx(-before)
    assert metrics["ratio_max"] == pytest.approx(1.0, abs=1e-5)
    assert torch.equal(flat(learner.start.parameters()), start)
    assert not learner.optimizer.state  # AdamW has not been asked
    assert all(p.grad is None for p in learner.policy.parameters())


def test_an_unaccepted_step_leaves_the_policy_bit_for_bit():
    """A coin that always shows heads: every group is dead and the gradient is 0."""
    learner, recipe = begin()
    recipe = replace(recipe, reward=lambda completions, **kwargs: [1.0] * len(completions))
    before = flat(learner.policy.parameters())
    metrics = trpo_step(learner, recipe)
    assert metrics["accepted"] == 0.0
    assert metrics["step_kl"] == 0.0
    assert torch.equal(flat(learner.policy.parameters()), before)
    assert learner.step == 1  # the step was taken, and said so


@pytest.mark.parametrize("name", ["reinforce", "rloo", "kimi_k2"])
def test_a_row_whose_ratio_is_always_one_is_refused(name):
    learner, recipe = begin(ALGORITHMS[name])
    with pytest.raises(ValueError, match=r"ratio is always 1 .*ratios.token"):
        trpo_step(learner, recipe)
    trpo_step(*begin(replace(ALGORITHMS[name], ratio=ratios.token)))


@pytest.mark.parametrize("name", [name for name, row in ALGORITHMS.items() if row.ratio is not ratios.on_policy])
def test_every_other_row_can_be_stepped(name):
    learner, recipe = begin(ALGORITHMS[name], micro_batches=1 if ALGORITHMS[name].needs_whole_step else 2)
    metrics = trpo_step(learner, recipe)
    assert all(math.isfinite(value) for value in metrics.values())
    assert metrics["step_kl"] <= 0.01


def test_a_kl_and_an_entropy_bonus_in_the_row_are_part_of_the_surrogate():
    """Against a reference that is not the policy: the gradient and the line search both know of them."""

    def with_reference(groups, batch):
        noise = torch.rand(batch.old_logp.shape, generator=torch.Generator().manual_seed(0)).double()
        return groups, replace(batch, ref_logp=batch.old_logp - noise)

    rows = (PLAIN, replace(PLAIN, entropy=0.5), replace(PLAIN, kl=(KL(1.0, "k3"),)))
    plain, bonus, leash = (updated(row, change=with_reference) for row in rows)
    assert all(metrics["accepted"] == 1.0 for _, metrics, _ in (plain, bonus, leash))
    for weights, metrics, _ in (bonus, leash):
        assert (weights - plain[0]).norm() > 0.1 * (plain[0] - flat(begin(double=True)[0].policy.parameters())).norm()
        assert abs(metrics["loss"] - plain[1]["loss"]) > 0.01


def test_the_critic_learns_exactly_what_it_learns_in_the_loop():
    changes = {"epochs": 2, "minibatches": 3, "micro_batches": 2, "value_lr": 1e-2}
    critics = []
    for how, clip in ((update, 1e-3), (trust_region_update, 1e-3), (trust_region_update, None)):
        learner, recipe = begin(CRITIC, **changes, value_clip=clip)
        groups, _ = collect(learner.policy, learner.vocabulary, recipe, 1)
        batch, _ = prepare_batch(learner, recipe, groups, 1)
        before = flat(learner.critic.parameters())
        metrics = how(learner, recipe, groups, batch, 1)
        critics.append((flat(learner.critic.parameters()), metrics["value_loss"]))
        assert not torch.equal(critics[-1][0], before)
    assert torch.equal(critics[0][0], critics[1][0])
    assert critics[0][1] == critics[1][1]
    assert not torch.equal(critics[1][0], critics[2][0])  # the clip was felt


@pytest.mark.parametrize(
    ("changes", "message"), [({"critic": "shared"}, 'critic="separate"'), ({"target_kl": 0.01}, "TrustRegion.max_kl")]
)
def test_what_a_trust_region_can_do_nothing_with_is_refused(changes, message):
    learner, recipe = begin(CRITIC, **changes)
    before = flat(learner.policy.parameters())
    with pytest.raises(ValueError, match=message):
        trpo_step(learner, recipe)
    assert torch.equal(flat(learner.policy.parameters()), before)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_it_learns_and_no_accepted_step_breaks_the_bound(seed):
    learner, recipe = begin(seed=seed, prompts=16, group_size=8, steps=10)
    before = evaluate(learner.policy, learner.vocabulary, recipe, n=500).sampled.share
    region = TrustRegion(max_kl=0.03, cg_iterations=5)
    history = train(learner, recipe, update=partial(trust_region_update, region=region))
    after = evaluate(learner.policy, learner.vocabulary, recipe, n=500).sampled.share
    assert after > before + 0.35, (before, after)
    assert after > 0.85, (before, after)  # the standard error of 500 samples is 0.015
    assert all(step["step_kl"] <= 0.03 for step in history)
    assert sum(step["accepted"] for step in history) >= 9


def test_the_surrogate_gains_more_per_nat_along_the_natural_gradient_than_along_the_gradient():
    """On the batch at hand, one step each from the same start under the same bound: what "steepest" means."""
    gains = {}
    for damping in (1e-3, 1e6):
        learner, recipe = begin(double=True, prompts=16, group_size=8)
        metrics = trpo_step(learner, recipe, region=TrustRegion(cg_damping=damping, cg_iterations=30))
        gains[damping] = metrics["improvement"] / math.sqrt(metrics["step_kl"])
    assert gains[1e-3] > 1.5 * gains[1e6]
