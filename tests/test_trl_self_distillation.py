"""TRL's self-distillation losses, SDPO and SDFT, called live: the row `sdpo` has their gradients.

Of the losses at the sampled token only gradients are compared: TRL's value is the gap times log pi, which means
nothing. The row takes the gap from the policy that sampled and TRL from the policy as it is now, so the two agree at a
ratio of 1; with the KL in the loss, which is the row's other form, at any ratio below the cap.
"""

from collections import defaultdict
from dataclasses import fields, replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from rlhf_minimal import ALGORITHMS, KL, Batch, contrib, policy_loss
from rlhf_minimal.functional import advantages, gates

trl = pytest.importorskip("trl", reason="TRL is not installed: pip install trl==1.16.0")
from trl.experimental.sdft import sdft_trainer  # noqa: E402
from trl.experimental.sdpo import sdpo_trainer  # noqa: E402

SDPO = ALGORITHMS["sdpo"]
TRAINERS = pytest.mark.parametrize("module", [sdpo_trainer, sdft_trainer], ids=["sdpo", "sdft"])
SEEDS = range(10)
B, T, V = 6, 5, 7


def sample(seed):
    g = torch.Generator().manual_seed(seed)
    student, taught, noise = (torch.randn(B, T, V, generator=g, dtype=torch.float64) for _ in range(3))
    ids = torch.randint(V, (B, T), generator=g)
    lengths = torch.randint(1, T + 1, (B,), generator=g)
    mask = (torch.arange(T) < lengths[:, None]).double()
    return student, taught, noise, ids, mask


def at(logits, ids):
    return logits.log_softmax(-1).gather(-1, ids[..., None])[..., 0]


def trl_gradient(module, student, taught, ids, mask, *, old=None, mode="sampled_token", alpha=1.0):
    name = "SDPOTrainer" if module is sdpo_trainer else "SDFTTrainer"
    trainer = getattr(module, name).__new__(getattr(module, name))
    trainer.__dict__.update(
        args=SimpleNamespace(distillation_mode=mode, distillation_alpha=alpha, distillation_is_clip=2.0),
        accelerator=SimpleNamespace(gather=lambda x: x),
        _metrics=defaultdict(lambda: defaultdict(list)),
    )
    student = student.clone().requires_grad_()
    given = {"completion_ids": ids, "loss_mask": mask, "student_logits": student, "teacher_logits": taught}
    known = {field.name for field in fields(module.DistillationLogits)}
    logits = module.DistillationLogits(**given, **({"completion_mask": mask} if "completion_mask" in known else {}))
    inputs = {} if old is None else {"old_per_token_logps": old}
    loss = trainer._compute_self_distillation_loss(SimpleNamespace(training=True), inputs, logits)
    return torch.autograd.grad(loss, student)[0]


def our_gradient(algorithm, student, taught, ids, mask, *, old):
    student = student.clone().requires_grad_()
    batch = Batch(
        logp=at(student, ids),
        old_logp=old,
        ref_logp=at(taught, ids),
        mask=mask,
        rewards=torch.zeros(B, dtype=torch.float64),
        group_size=B,
    )
    return torch.autograd.grad(policy_loss(algorithm, batch), student)[0]


@TRAINERS
def test_at_the_first_update_the_row_has_trls_gradient(module):
    for seed in SEEDS:
        student, taught, _, ids, mask = sample(seed)
        old = at(student, ids)
        ours = our_gradient(SDPO, student, taught, ids, mask, old=old)
        torch.testing.assert_close(ours, trl_gradient(module, student, taught, ids, mask), rtol=1e-9, atol=1e-9)
        again = trl_gradient(module, student, taught, ids, mask, old=old)
        torch.testing.assert_close(ours, again, rtol=1e-9, atol=1e-9)


@TRAINERS
def test_later_the_kl_in_the_loss_has_it_below_the_cap(module):
    other = replace(SDPO, advantage=advantages.returns_to_go, gate=gates.none, kl=(KL(1.0, "k3", weighted=True),))
    for seed in SEEDS:
        student, taught, noise, ids, mask = sample(seed)
        old = at(student + 0.1 * noise, ids)
        ratio = (at(student, ids) - old).exp()
        assert ((ratio < 2) | (mask == 0)).all()
        theirs = trl_gradient(module, student, taught, ids, mask, old=old)
        ours = our_gradient(other, student, taught, ids, mask, old=old)
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)
        row = our_gradient(SDPO, student, taught, ids, mask, old=old)
        assert (row - theirs).norm() > 1e-3 * theirs.norm()  # whose gap is the sampler's


@TRAINERS
def test_the_cap_of_two_is_trls(module):
    """Both gaps equal and every ratio far above 2: what is left is the cap."""
    student, taught, _, ids, mask = sample(0)
    old = at(student, ids) - 3
    theirs = trl_gradient(module, student, taught, ids, mask, old=old)

    def gap_now(token_rewards, mask, *, old_logp, ref_logp):
        return (ref_logp - (old_logp + 3)) * mask

    ours = our_gradient(replace(SDPO, advantage=gap_now), student, taught, ids, mask, old=old)
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)
    uncapped = replace(SDPO, advantage=gap_now, gate=partial(gates.clip_weight, cap=1e9))
    assert (our_gradient(uncapped, student, taught, ids, mask, old=old) / theirs)[mask != 0].nanmean() > 5


@TRAINERS
def test_the_sampled_loss_is_the_reverse_kl_in_the_mean(module):
    """Over all V tokens at each place, weighted by the student's probabilities: the gradient of TRL's full loss."""
    student, taught, _, _, _ = sample(1)
    student, taught, mask = student[:1, :1], taught[:1, :1], torch.ones(1, 1).double()
    p = student.softmax(-1)[0, 0]
    mean = sum(p[v] * trl_gradient(module, student, taught, torch.tensor([[v]]), mask) for v in range(V))
    full = trl_gradient(module, student, taught, torch.zeros(1, 1).long(), mask, mode="full_logits")
    torch.testing.assert_close(mean, full, rtol=1e-9, atol=1e-9)


def test_a_completion_that_nothing_is_said_about_has_no_gradient():
    student, taught, _, ids, mask = sample(2)
    taught[0] = student[0]
    gradient = our_gradient(SDPO, student, taught, ids, mask, old=at(student, ids))
    assert gradient[0].abs().max() == 0
    assert (gradient[1:].flatten(1).norm(dim=1) > 0).all()


def test_the_row_is_opd_with_two_other_cells():
    opd = ALGORITHMS["opd"]
    assert SDPO.advantage is opd.advantage is contrib.advantages.teacher_gap
    assert SDPO.ratio is opd.ratio
    assert SDPO.kl == opd.kl == ()
    assert SDPO.needs_teacher
