"""Every bug shows its symptom, fails its property, and is mended; the cells that the chapters print run as printed."""

import contextlib
import io

import pytest
import torch

from rlhf_book.exercises import BUGS
from rlhf_minimal import Batch, policy_loss
from rlhf_minimal.algorithms import ALGORITHMS
from rlhf_minimal.functional import advantages, kl

each_bug = pytest.mark.parametrize("bug", BUGS.values(), ids=lambda bug: bug.id)


def printed(call, *arguments):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        call(*arguments)
    return out.getvalue()


@each_bug
def test_the_property_fails_for_the_wrong_code_alone(bug):
    with pytest.raises(AssertionError, match="."):
        bug.reveals(bug.wrong)
    bug.reveals(bug.mended)


@each_bug
def test_the_symptom_is_seen(bug):
    """What is printed for the wrong code is not what is printed for the mended one."""
    assert printed(bug.symptom, bug.wrong) != printed(bug.symptom, bug.mended)


@each_bug
def test_the_cells_run_as_printed(bug):
    names = {}
    texts = [printed(exec, cell, names) for cell in (bug.symptom_cell, bug.property_cell, bug.mended_cell)]
    assert texts[0] == printed(bug.symptom, bug.wrong)
    assert texts[1].startswith("The property fails: ")
    assert texts[2] == "The property holds.\n"


@each_bug
def test_the_title_and_the_statement_do_not_give_it_away(bug):
    changed = set(bug.mended_cell.splitlines()) - set(bug.symptom_cell.splitlines())
    for line in filter(None, map(str.strip, changed)):
        assert line not in bug.markdown
    assert 1 <= bug.minutes <= 20


def test_the_weight_halves_with_the_width():
    text = printed(BUGS["padded-mean"].symptom, BUGS["padded-mean"].wrong)
    weights = [float(line.split()[-1]) for line in text.splitlines()]
    assert weights == pytest.approx([1 / (2 * width) for width in (4, 8, 16, 32, 64)], abs=5e-5)


def test_the_mended_forms_are_the_librarys():
    generator = torch.Generator().manual_seed(0)
    logp = torch.randn(4, 3, generator=generator)
    old = logp + 0.4 * torch.randn(4, 3, generator=generator)
    mask, rewards = torch.tensor([[1.0, 1, 1], [1, 0, 0], [1, 1, 0], [1, 1, 1]]), torch.tensor([0.7, 0.1, 0.1, 0.9])
    scores = BUGS["tiny-epsilon"].mended(rewards, 4)
    torch.testing.assert_close(
        scores, advantages.group_normalized(rewards[:, None], torch.ones(4, 1), group_size=4)[:, 0]
    )
    import dataclasses

    row = dataclasses.replace(ALGORITHMS["grpo"], kl=())
    torch.testing.assert_close(
        BUGS["padded-mean"].mended(logp, old, scores, mask), policy_loss(row, Batch(logp, old, mask, rewards, 4))
    )
    torch.testing.assert_close(BUGS["k3-upside-down"].mended(logp, old), kl.k3(logp, old))
