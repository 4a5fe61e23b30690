"""Every bug shows its symptom, fails its property, and is mended; the cells that the chapters print run as printed."""

import contextlib
import io
import re

import pytest
import torch

from rlhf_book.exercises import BUGS, check, solution
from rlhf_book.exercises.cells import imports, source
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
def test_the_code_runs_as_printed(bug):
    """The cell of the chapter, and below it both blocks of the solution."""
    names = {}
    assert printed(exec, imports(bug.needs) + bug.symptom_cell, names) == printed(bug.symptom, bug.wrong)
    for code in re.findall(r"```python\n(.*?)```", solution(bug.id).markdown, re.DOTALL):
        exec(code, names)
    reveals, wrong, mended = (names[f.__name__] for f in (bug.reveals, bug.wrong, bug.mended))
    with pytest.raises(AssertionError, match="."):
        reveals(wrong)
    reveals(mended)


@each_bug
def test_a_readers_version_is_checked_by_the_property(bug):
    verdict = check(bug.id, bug.wrong)
    assert not verdict
    assert "a property that your version does not have: " in verdict.message
    assert check(bug.id, bug.mended)


def test_whatever_a_readers_version_does_there_is_a_verdict():
    def leave(*given):
        raise SystemExit

    for given, words in ((leave, "raised SystemExit"), (lambda: 0, "raised TypeError"), (3, "without calling it")):
        verdict = check("padded-mean", given)
        assert not verdict
        assert words in verdict.message
    state = torch.get_rng_state()
    with torch.no_grad():
        assert check("padded-mean", BUGS["padded-mean"].mended)
    assert torch.equal(torch.get_rng_state(), state)


@each_bug
def test_the_title_and_the_statement_do_not_give_it_away(bug):
    changed = set(source(bug.mended).splitlines()) - set(bug.symptom_cell.splitlines())
    for line in (line.strip() for line in changed if any(map(str.isalnum, line))):
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
