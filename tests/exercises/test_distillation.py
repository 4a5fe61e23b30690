"""The solutions on distillation, held to enumeration, to the library and to each other."""

import pytest
import torch

from rlhf_book.exercises.distillation.bugs import mended_gap
from rlhf_book.exercises.distillation.centred_gap import my_centred_gap
from rlhf_book.exercises.distillation.flee import my_mass_left
from rlhf_book.exercises.distillation.rest import my_kl_with_rest
from rlhf_minimal.contrib.advantages import teacher_gap


def test_the_centred_gap_has_the_gradient_of_the_reverse_kl():
    g = torch.Generator().manual_seed(0)
    z, y = torch.randn(2, 6, generator=g, dtype=torch.float64)
    z.requires_grad_()
    p = z.softmax(-1)
    every = my_centred_gap(z.expand(1, 6, 6), y.expand(1, 6, 6), torch.arange(6)[None])[0]
    assert (p * every).sum().abs() < 1e-12
    (sampled,) = torch.autograd.grad(-(p.detach() * every.detach() * p.log()).sum(), z, retain_graph=True)
    (exact,) = torch.autograd.grad((p * (p.log() - y.log_softmax(-1))).sum(), z)
    torch.testing.assert_close(sampled, exact)


def test_a_rest_is_below_the_whole_and_grows_to_it():
    g = torch.Generator().manual_seed(1)
    z, y = torch.randn(2, 8, generator=g, dtype=torch.float64)
    p, u = z.softmax(-1), y.softmax(-1)
    values = [my_kl_with_rest(z, y, k).item() for k in range(1, 8)]
    assert values == sorted(values)
    assert values[-1] == pytest.approx((p * (p / u).log()).sum().item())
    assert values[0] >= 0


def test_the_ends_of_half_a_look():
    assert my_mass_left(0.9, 1e-9) == pytest.approx(0.9 / torch.e, abs=1e-6)
    assert my_mass_left(0.9, 1 - 1e-9) == pytest.approx(0.9, abs=1e-6)


def test_the_mended_gap_is_the_librarys():
    g = torch.Generator().manual_seed(2)
    student, teacher = torch.randn(2, 7, 5, generator=g), torch.randn(2, 9, 5, generator=g)
    ids = torch.randint(5, (2, 4), generator=g)
    own, taught = (x[:, -5:-1].log_softmax(-1).gather(-1, ids[..., None])[..., 0] for x in (student, teacher))
    mask = torch.ones(2, 4)
    want = teacher_gap(torch.zeros(2, 4), mask, old_logp=own, ref_logp=taught)
    torch.testing.assert_close(mended_gap(student, teacher, ids, 3), want)
