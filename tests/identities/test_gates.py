"""Two roads to one number: gates against the formulas of papers and libraries, GMPO's and Kimi K2's with theirs."""

import math
from functools import partial

import pytest
import torch

from rlhf_minimal import ALGORITHMS, KL, contrib
from rlhf_minimal.functional import advantages, aggregation, gates
from tests.identities.batches import INF, SEEDS, B, G, P, T, cells, close, differ, plain, run, sample

# ---- gates ------------------------------------------------------------------------------------------------------


def grid():
    w = torch.linspace(0.01, 6, 240, dtype=torch.float64)
    A = torch.tensor([-2.0, -0.5, 0.0, 0.5, 2.0], dtype=torch.float64)
    w, A = torch.meshgrid(w, A, indexing="ij")
    return w.contiguous().requires_grad_(), A.contiguous()


def curve(gate):
    w, A = grid()
    value = gate(w, A)
    return value.detach(), torch.autograd.grad(value.sum(), w)[0]


def both(gate, formula):
    for ours, theirs in zip(curve(gate), curve(formula), strict=True):
        close(ours, theirs)


@pytest.mark.parametrize(("low", "high", "delta"), [(0.2, 0.2, 3.0), (0.2, 0.28, 1.5), (0.1, 0.5, 4.0)])
def test_dual_clip_is_trls_delta(low, high, delta):
    """TRL 1.16: coef_1 = clamp(w, max=delta), then min(coef_1 A, clamp(w, 1 - low, 1 + high) A)."""

    def trl(w, A):
        return torch.min(w.clamp(max=delta) * A, w.clamp(1 - low, 1 + high) * A)

    both(partial(contrib.gates.dual_clip, low=low, high=high, c=delta), trl)


def test_dual_clip_with_a_far_floor_is_clip():
    both(partial(contrib.gates.dual_clip, low=0.2, high=0.3, c=1e9), partial(gates.clip, low=0.2, high=0.3))


def test_dual_clip_holds_bad_tokens_at_c():
    value, slope = curve(partial(contrib.gates.dual_clip, low=0.2, high=0.2, c=3.0))
    w, A = grid()
    far = (w > 3) & (A < 0)
    close(value[far], 3 * A[far])
    assert (slope[far] == 0).all()


def test_clip_with_infinite_bounds_is_no_clip():
    both(partial(gates.clip, low=INF, high=INF), gates.none)


def test_clip_by_cases():
    """PPO's minimum as the drawing that everybody knows: flat where the policy has gone far enough, w A elsewhere."""
    value, slope = curve(partial(gates.clip, low=0.2, high=0.3))
    w, A = (x.detach() for x in grid())
    expected_value, expected_slope = w * A, A.clone()
    up, down = (w > 1.3) & (A > 0), (w < 0.8) & (A < 0)
    expected_value[up], expected_value[down] = 1.3 * A[up], 0.8 * A[down]
    expected_slope[up | down] = 0
    close(value, expected_value)
    close(slope, expected_slope)


def test_clip_never_promises_more_than_no_clip():
    value, _ = curve(partial(gates.clip, low=0.2, high=0.3))
    assert (value <= curve(gates.none)[0]).all()


@pytest.mark.parametrize(("floor", "cap"), [(0.0, 5.0), (0.0, 1.0), (0.8, 1.2)])
@pytest.mark.parametrize("seed", SEEDS)
def test_cispo_gradient(seed, floor, cap):
    """-sg[clip(w)] A grad log pi over the tokens of the batch, summed by hand."""
    x = sample(seed, spread=1.0)
    ours = run(plain(partial(gates.clip_weight, cap=cap, floor=floor)), x)
    expected = torch.zeros(B, T, dtype=torch.float64)
    for i in range(B):
        for t in range(T):
            if x["mask"][i, t]:
                w = math.exp(x["logp"][i, t] - x["old_logp"][i, t])
                expected[i, t] = -min(max(w, floor), cap) * ours[2][i, t] / x["mask"].sum()
    close(ours[1], expected)


def test_cispo_keeps_every_gradient_that_clip_drops():
    _, slope = curve(partial(gates.clip_weight, cap=5.0))
    w, A = (x.detach() for x in grid())
    close(slope * w, w.clamp(max=5.0) * A)  # the weight on grad log pi is slope times w


@pytest.mark.parametrize(("tau_pos", "tau_neg"), [(1.0, 1.05), (0.3, 5.0)])
def test_sapo_slope(tau_pos, tau_neg):
    """4 p (1 - p) A with p = sigmoid(tau (w - 1)): A at w = 1, fading on both sides alike."""
    _, slope = curve(partial(gates.sigmoid, tau_pos=tau_pos, tau_neg=tau_neg))
    w, A = (x.detach() for x in grid())
    for i in range(len(w)):
        for j in range(A.shape[1]):
            tau = tau_pos if A[i, j] > 0 else tau_neg
            p = 1 / (1 + math.exp(-tau * (float(w[i, j]) - 1)))
            assert float(slope[i, j]) == pytest.approx(4 * p * (1 - p) * float(A[i, j]), abs=1e-12)


# ---- GMPO -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_gmpo_is_the_exponential_of_a_clipped_mean(seed):
    """The authors' form: clip log w to [-.4, .4] on the side that A's sign asks for, then exp of the mean, times A."""
    x = sample(seed, spread=0.6)
    value, gradient, A = run(ALGORITHMS["gmpo"], x)
    logp = x["logp"].clone().requires_grad_()
    total = torch.zeros((), dtype=torch.float64)
    for i in range(B):
        a = float(A[i, 0])
        logs = [logp[i, t] - x["old_logp"][i, t] for t in range(T) if x["mask"][i, t]]
        logs = [log.clamp(max=0.4) if a > 0 else log.clamp(min=-0.4) for log in logs]
        total = total + a * torch.stack(logs).mean().exp()
    expected = -total / B
    close(value, expected.detach())
    close(gradient, torch.autograd.grad(expected, logp)[0])


@pytest.mark.parametrize("seed", SEEDS)
def test_gmpo_without_its_clip_is_gspo_without_its_clip(seed):
    x = sample(seed)
    gmpo, gspo = (run(cells(row, gate=gates.none), x) for row in ("gmpo", "gspo"))
    close(gmpo[0], gspo[0])
    close(gmpo[1], gspo[1])


def test_geometric_mean_of_no_advantage_is_nothing():
    x = sample(0)
    x["rewards"] = torch.ones(B, dtype=torch.float64)
    x["rewards"][:G] = torch.arange(G)
    value, gradient, A = run(ALGORITHMS["gmpo"], x)
    assert (A[G:] == 0).all()
    assert (gradient[G:] == 0).all()
    assert torch.isfinite(value)
    assert (gradient[:G][x["mask"][:G] != 0] != 0).any()


def test_geometric_mean_by_hand():
    numbers = torch.tensor([[2.0, 8.0, 99.0], [-1.0, -1.0, -27.0], [0.0, 5.0, 5.0]], dtype=torch.float64)
    mask = torch.tensor([[1, 1, 0], [1, 1, 1], [1, 1, 1]])
    close(aggregation.geometric_mean(numbers, mask), torch.tensor((4 - 3 + 0) / 3, dtype=torch.float64))


def test_geometric_mean_of_a_number_too_small_to_divide_by_counts_as_zero():
    """1 / x of a subnormal number overflows: the gradient would be infinite though the mean is not."""
    tiny = torch.finfo(torch.float32).tiny
    for small, counts in ((tiny, True), (tiny / 4, False)):
        x = torch.tensor([[small, 1.0]], requires_grad=True)
        mean = aggregation.geometric_mean(x, torch.ones(1, 2))
        (gradient,) = torch.autograd.grad(mean, x)
        assert torch.isfinite(gradient).all()
        assert (mean > 0) == counts
        assert (gradient != 0).all() == counts


# ---- Kimi K2 ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tau", [0.1, 1.0])
@pytest.mark.parametrize("seed", SEEDS)
def test_kimi_k2_gradient_is_the_squared_loss_over_two_tau(seed, tau):
    """(R - mean R - tau log(pi / pi_old))^2 / (2 tau), over whole responses, written from the report."""
    x = sample(seed)
    row = cells("kimi_k2", kl=(KL(tau, "k2", against="old", level="sequence"),))
    _, gradient, A = run(row, x)
    logp = x["logp"].clone().requires_grad_()
    centred = x["rewards"] - x["rewards"].view(P, G).mean(-1).repeat_interleave(G)
    log_ratio = ((logp - x["old_logp"]) * x["mask"]).sum(-1)
    squared = ((centred - tau * log_ratio) ** 2).mean() / (2 * tau)
    close(gradient, torch.autograd.grad(squared, logp)[0])
    close(A[:, 0], centred)


def test_kimi_k2_per_token_is_another_gradient():
    """As two libraries have it: the square of each token's log-ratio instead of the response's."""
    x = sample(0)
    per_token = cells("kimi_k2", kl=(KL(1.0, "k2", against="old", aggregate=aggregation.sequence_sum),))
    per_response = cells("kimi_k2", kl=(KL(1.0, "k2", against="old", level="sequence"),))
    differ(run(per_token, x)[1], run(per_response, x)[1])


def test_kimi_k2_on_policy_is_the_centred_policy_gradient():
    x = sample(0, spread=0.0)
    close(run(ALGORITHMS["kimi_k2"], x)[1], run(cells("rloo", kl=(), advantage=advantages.group_centered), x)[1])
