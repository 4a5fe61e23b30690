"""Every row of the second table against a loop-written transcription that imports nothing of it.

Value and gradient, float64, 1e-9, over odd shapes and many seeds, with NaN or an infinity wherever the mask is zero.
That the transcriptions are independent is held by test_transcriptions.py, which reads all files of this folder.
"""

import importlib.util
import inspect
import math
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import pytest
import torch

from rlhf_minimal import PAIRWISE as CORE
from rlhf_minimal import Pairs, contrib, pairwise_loss

HERE = Path(__file__).parent
TOLERANCE = {"rtol": 1e-9, "atol": 1e-9}
SEEDS = range(6)
SPREADS = [0.0, 1e-3, 0.1, 0.5, 2.0]  # how far the policy is from its reference, in nats a token
LEAVES = ("chosen_logp", "rejected_logp", "chosen_scores", "rejected_scores")
PAIRWISE = CORE | contrib.PAIRWISE
every_row = pytest.mark.parametrize("name", PAIRWISE)


@dataclass(frozen=True)
class Shape:
    """What random pairs look like: B of them, T and U tokens, and what is odd about them."""

    name: str
    B: int
    T: int
    U: int  # of the rejected responses
    holes: float = 0.0
    full: bool = False

    def __str__(self):
        return self.name


SHAPES = [
    Shape("plain", 5, 6, 6),
    Shape("one_pair", 1, 4, 3),
    Shape("one_token", 4, 1, 1, full=True),
    Shape("short_and_long", 4, 2, 9),
    Shape("square", 5, 5, 5),  # a mean over the wrong axis would not raise
    Shape("holes", 4, 8, 7, holes=0.4),
    Shape("many", 33, 3, 4),
]


def make_pairs(shape: Shape, seed: int) -> dict[str, torch.Tensor]:
    g = torch.Generator().manual_seed(1000 * seed + len(shape.name))

    def side(length):
        lengths = (
            torch.full((shape.B,), length) if shape.full else torch.randint(1, length + 1, (shape.B,), generator=g)
        )
        mask = torch.arange(length)[None, :] < lengths[:, None]
        mask &= torch.rand(shape.B, length, generator=g) >= shape.holes
        mask[:, 0] |= ~mask.any(dim=1)
        ref = -torch.randn(shape.B, length, generator=g, dtype=torch.float64).abs() - 0.1
        logp = -(ref + SPREADS[seed % 5] * torch.randn(shape.B, length, generator=g, dtype=torch.float64)).abs()
        for x in (ref, logp):
            x[~mask] = (math.nan, -math.inf, math.inf)[seed % 3]
        return (
            logp,
            ref,
            mask if seed % 2 else mask.double(),
            3 * torch.randn(shape.B, generator=g, dtype=torch.float64),
        )

    pairs = {}
    for name, length in (("chosen", shape.T), ("rejected", shape.U)):
        logp, ref, mask, scores = side(length)
        pairs |= {f"{name}_logp": logp, f"ref_{name}_logp": ref, f"{name}_mask": mask, f"{name}_scores": scores}
    return pairs | {"anchor": torch.full((shape.B,), 0.3 * seed, dtype=torch.float64)}


@cache
def transcription(name: str):
    spec = importlib.util.spec_from_file_location(f"transcription_of_{name}", HERE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if "anchor" in inspect.signature(module.loss).parameters:
        return module.loss
    return lambda *, anchor=None, **tensors: module.loss(**tensors)


def value_and_gradients(loss, pairs):
    leaves = {name: pairs[name].clone().requires_grad_() for name in LEAVES}
    value = loss(**{**pairs, **leaves})
    gradients = torch.autograd.grad(value, list(leaves.values()), allow_unused=True, materialize_grads=True)
    return value.detach(), *gradients


def by_transcription(name, pairs):
    return value_and_gradients(transcription(name), pairs)


def by_row(algorithm, pairs):
    return value_and_gradients(lambda **tensors: pairwise_loss(algorithm, Pairs(**tensors)), pairs)


@every_row
def test_every_row_has_a_transcription(name):
    assert (HERE / f"{name}.py").exists(), (
        f"Row {name!r} has no independent transcription: add tests/transcriptions/{name}.py "
        "with `loss(*, chosen_logp, rejected_logp, chosen_mask, rejected_mask, ref_chosen_logp, ref_rejected_logp, "
        "chosen_scores, rejected_scores)`, from the paper, in loops, importing nothing of rlhf_minimal."
    )


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@every_row
def test_row_equals_its_transcription(name, shape):
    for seed in SEEDS:
        pairs = make_pairs(shape, seed)
        ours, theirs = by_row(PAIRWISE[name], pairs), by_transcription(name, pairs)
        for x, side in ((ours[1], "chosen"), (ours[2], "rejected")):
            assert (x[pairs[f"{side}_mask"] == 0] == 0).all(), f"seed {seed}: an untrained token has a gradient"
        assert max(x.abs().max() for x in ours[1:]) > 1e-9
        for what, x, y in zip(("value", *LEAVES), ours, theirs, strict=True):
            torch.testing.assert_close(x, y, **TOLERANCE, msg=partial("seed {}, {}: {}".format, seed, what))


@every_row
def test_the_reference_is_a_constant(name):
    """One live tensor given as policy and as reference: only the policy is differentiated."""
    pairs = make_pairs(SHAPES[0], 0)

    def at_its_reference(loss):
        return value_and_gradients(
            lambda **tensors: loss(
                **{**tensors, **{f"ref_{side}_logp": tensors[f"{side}_logp"] for side in ("chosen", "rejected")}}
            ),
            pairs,
        )

    ours = at_its_reference(lambda **tensors: pairwise_loss(PAIRWISE[name], Pairs(**tensors)))
    theirs = at_its_reference(transcription(name))
    assert max(x.abs().max() for x in ours[1:]) > 1e-3
    for x, y in zip(ours, theirs, strict=True):
        torch.testing.assert_close(x, y, **TOLERANCE)


def test_the_cases_tell_the_rows_apart():
    """No row agrees with another's transcription, but for DPO and SPIN: one loss, fed by different loops."""
    cases = [make_pairs(shape, seed) for shape in SHAPES for seed in (2, 4)]
    library = {name: [by_row(row, pairs) for pairs in cases] for name, row in PAIRWISE.items()}
    written = {name: [by_transcription(name, pairs) for pairs in cases] for name in PAIRWISE}

    def same(one, other):
        return all(
            all(torch.allclose(x, y, **TOLERANCE) for x, y in zip(a, b, strict=True))
            for a, b in zip(library[one], written[other], strict=True)
        )

    confused = {(one, other) for one in PAIRWISE for other in PAIRWISE if one < other and same(one, other)}
    assert confused == {("dpo", "spin")}


@every_row
def test_the_cases_feel_every_number_of_a_row(name):
    """Change one number of a row by a per cent, one at a time: some case must then come out otherwise."""
    row = PAIRWISE[name]
    given = row.loss.keywords if isinstance(row.loss, partial) else {}
    numbers = {
        key: given.get(key, parameter.default)
        for key, parameter in inspect.signature(row.loss).parameters.items()
        if parameter.default is not parameter.empty
    }
    assert numbers
    cases = [make_pairs(shape, seed) for shape in SHAPES for seed in (1, 4)]
    for key, number in numbers.items():
        changed = replace(row, loss=partial(row.loss, **{key: 0.99 * number + (0.01 if number == 0 else 0)}))
        assert any(
            not torch.allclose(x, y, **TOLERANCE)
            for pairs in cases
            for x, y in zip(by_row(row, pairs), by_row(changed, pairs), strict=True)
        ), f"no case depends on {key}"


def test_the_cases_reach_both_orders_and_both_ends():
    """Gaps of either sign, near zero and far from it, chosen responses longer and shorter than the rejected ones."""
    signs, far, longer = set(), 0, set()
    for shape in SHAPES:
        for seed in SEEDS:
            pairs = make_pairs(shape, seed)
            gap = pairs["chosen_scores"] - pairs["rejected_scores"]
            signs |= set(gap.sign().tolist())
            far += int((gap.abs() > 5).sum())
            longer |= set((pairs["chosen_mask"].sum(1) - pairs["rejected_mask"].sum(1)).sign().tolist())
    assert signs == {-1.0, 1.0}
    assert far > 10
    assert longer == {-1.0, 0.0, 1.0}
