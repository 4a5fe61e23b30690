"""Every row of the table against a loop-written transcription that imports nothing of it.

Value and gradient, float64, 1e-9, over odd shapes and many seeds. The transcriptions share no code with each
other either: an error would have to be made twice, in two styles, to pass.
"""

import ast
import importlib.util
import inspect
import math
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import pytest
import torch

from rlhf_minimal import ALGORITHMS, PAIRWISE, Batch, contrib, policy_loss
from tests.complete import COMPLETE

HERE = Path(__file__).parent
FILES = sorted(path for path in HERE.glob("*.py") if not path.stem.startswith(("test_", "_", "conftest")))
MAY_IMPORT = {"torch", "math"}
NO_GROUP = {name for name, row in ALGORITHMS.items() if "group" not in row.needs}  # they accept a group of one
WHITENED = {name for name, row in ALGORITHMS.items() if row.normalize is not None}  # one token has no sample variance
TOLERANCE = {"rtol": 1e-9, "atol": 1e-9}
SEEDS = range(6)


@dataclass(frozen=True)
class Shape:
    """What a random batch looks like: P prompts, G responses each, T tokens, and what is odd about it."""

    name: str
    P: int
    G: int
    T: int
    holes: float = 0.0  # chance that a token inside a response is untrained
    empty: tuple[int, ...] = ()  # rows without a trained token
    full: bool = False  # every response has T tokens
    rewards: str = "mixed"
    budget: int | None = None  # default T + 2

    def __str__(self):
        return self.name


SHAPES = [
    Shape("plain", 3, 4, 6),
    Shape("one_token", 3, 3, 1, full=True),
    Shape("one_prompt", 1, 4, 5),
    Shape("one_prompt_of_two_one_token", 1, 2, 1, full=True),
    Shape("pairs", 4, 2, 5),
    Shape("binary", 3, 5, 4, rewards="binary"),
    Shape("constant_groups", 3, 4, 5, rewards="constant"),
    Shape("one_constant_group", 2, 4, 5, rewards="one_constant"),
    Shape("empty_rows", 3, 4, 5, empty=(0, 5, 11)),
    Shape("empty_group", 3, 3, 4, empty=(3, 4, 5)),
    Shape("one_trained_row", 2, 2, 4, empty=(0, 2, 3)),
    Shape("one_trained_token", 1, 2, 1, empty=(0,), full=True),
    Shape("holes", 3, 3, 8, holes=0.4),
    Shape("holes_and_empty_rows", 2, 4, 7, holes=0.5, empty=(2, 7)),
    Shape("large_group", 1, 48, 3),
    Shape("square", 2, 3, 6),  # B == T: a broadcast along the wrong axis would not raise
    Shape("long_over_budget", 2, 3, 12, budget=7),  # lengths on both sides of the overlong ramp, and beyond it
    Shape("ramp", 2, 6, 12, budget=12),
    Shape("singles", 6, 1, 4),
]
SPREADS = [0.0, 2e-4, 0.1, 0.4, 1.5]  # how far pi is from pi_old, in nats a token


def make_batch(shape: Shape, seed: int) -> dict:
    """Random inputs in float64, with NaN or an infinity in every tensor wherever the mask is zero."""
    g = torch.Generator().manual_seed(1000 * seed + len(shape.name))
    P, G, T = shape.P, shape.G, shape.T
    B = P * G

    def normal(scale):
        return scale * torch.randn(B, T, generator=g, dtype=torch.float64)

    lengths = torch.full((B,), T) if shape.full else torch.randint(1, T + 1, (B,), generator=g)
    mask = torch.arange(T)[None, :] < lengths[:, None]
    mask &= torch.rand(B, T, generator=g) >= shape.holes
    mask[:, 0] |= ~mask.any(dim=1)  # only the rows named empty are empty
    for row in shape.empty:
        mask[row] = False

    old_logp = -normal(1.6).abs() - 0.1
    logp = (old_logp + normal(SPREADS[seed % len(SPREADS)])).clamp(max=-0.02)
    ref_logp = (old_logp + normal(0.5)).clamp(max=-0.02)
    values = normal(1.0)
    sampler_logp = (old_logp + normal(0.6)).clamp(max=-0.02)
    for x in (logp, old_logp, ref_logp, values, sampler_logp):
        x[~mask] = (math.nan, -math.inf, math.inf)[seed % 3]

    rewards = torch.randn(P, G, generator=g, dtype=torch.float64)
    if shape.rewards == "binary":
        rewards = (rewards > 0).double()
    elif shape.rewards == "constant":
        rewards = torch.tensor([0.7, 1.1, -0.3], dtype=torch.float64)[:P, None].expand(P, G)
    elif shape.rewards == "one_constant":
        rewards[0] = 0.7
    rewards = rewards - 2 * rewards.mean(1, keepdim=True).clamp(max=0)  # maxrl refuses a group's mean below 0
    entropy = normal(1.0).abs()
    entropy[~mask] = math.nan
    parts = torch.stack([rewards.reshape(B), torch.randn(B, generator=g, dtype=torch.float64).round()], dim=1)
    greedy = torch.randn(P, generator=g, dtype=torch.float64).repeat_interleave(G)
    return {
        "logp": logp,
        "old_logp": old_logp,
        "mask": mask if seed % 2 else mask.double(),
        "rewards": rewards.reshape(B).clone(),
        "group_size": G,
        "ref_logp": ref_logp,
        "values": values,
        "sampler_logp": sampler_logp,
        "entropy": entropy,
        "reward_parts": parts,
        "greedy_rewards": greedy,
        "budget": shape.budget or T + 2,
    }


@cache
def transcription(name: str):
    spec = importlib.util.spec_from_file_location(f"transcription_of_{name}", HERE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def value_and_gradient(loss_of_logp, logp):
    logp = logp.clone().requires_grad_()
    loss = loss_of_logp(logp)
    if not loss.requires_grad:  # nothing to learn from at all: GMPO skips a constant group
        return loss.detach(), torch.zeros_like(logp)
    (gradient,) = torch.autograd.grad(loss, logp, allow_unused=True)
    return loss.detach(), torch.zeros_like(logp) if gradient is None else gradient


def by_transcription(name, batch):
    reads = inspect.signature(transcription(name).loss).parameters  # few know of an engine that sampled
    rest = {key: x for key, x in batch.items() if key != "logp" and key in reads}
    return value_and_gradient(lambda logp: transcription(name).loss(logp=logp, **rest), batch["logp"])


def by_library(name, batch):
    return by_row(ALGORITHMS[name], batch)


def by_row(algorithm, batch):
    rest = {key: x for key, x in batch.items() if key not in ("logp", "old_logp", "mask", "rewards", "group_size")}

    def loss(logp):
        return policy_loss(
            algorithm,
            Batch(logp, batch["old_logp"], batch["mask"], batch["rewards"], batch["group_size"], **rest),
        )

    return value_and_gradient(loss, batch["logp"])


def explain(seed, what, message):
    return f"{what}, batch of seed {seed}: {message}"


def lone(shape):
    """Shapes whose batch may be left with a single trained token."""
    return shape.name in {"one_trained_row", "one_trained_token"}


def applies(name, shape):
    return (shape.G > 1 or name in NO_GROUP) and not (lone(shape) and name in WHITENED)


CASES = [
    pytest.param(name, shape, id=f"{name}-{shape}") for name in ALGORITHMS for shape in SHAPES if applies(name, shape)
]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_transcription_is_independent(path):
    """A transcription imports torch and math and nothing else, in any spelling, and belongs to a row of a table."""
    assert path.stem in {*ALGORITHMS, *PAIRWISE, *contrib.PAIRWISE}, f"{path.name} transcribes no row of a table"
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported = {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported = {(node.module or "").split(".")[0] if node.level == 0 else "a neighbour"}
        else:
            assert not (isinstance(node, ast.Name) and node.id in {"__import__", "exec", "eval"}), path.name
            continue
        assert imported <= MAY_IMPORT, f"{path.name} imports {imported - MAY_IMPORT}; it may import only {MAY_IMPORT}"


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_row_equals_its_transcription(name, shape):
    for seed in SEEDS:
        batch = make_batch(shape, seed)
        value, gradient = by_library(name, batch)
        expected_value, expected_gradient = by_transcription(name, batch)
        assert (gradient[~batch["mask"].bool()] == 0).all(), f"seed {seed}: an untrained token has a gradient"
        torch.testing.assert_close(gradient, expected_gradient, **TOLERANCE, msg=partial(explain, seed, "gradient"))
        if getattr(
            transcription(name), "SAME_VALUE", True
        ):  # else the same gradient of another value: its file says why
            torch.testing.assert_close(value, expected_value, **TOLERANCE, msg=partial(explain, seed, "value"))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_old_policy_is_a_constant(name):
    """One live tensor given as both logp and old_logp: only the numerator is differentiated."""
    batch = make_batch(SHAPES[0], 0)
    _, expected = by_transcription(name, {**batch, "logp": batch["old_logp"]})
    rest = {key: x for key, x in batch.items() if key not in ("logp", "old_logp")}
    _, gradient = value_and_gradient(
        lambda logp: policy_loss(ALGORITHMS[name], Batch(logp=logp, old_logp=logp, **rest)), batch["old_logp"]
    )
    torch.testing.assert_close(gradient, expected, **TOLERANCE)
    assert gradient.abs().max() > 1e-3


@pytest.mark.parametrize("name", sorted(WHITENED))
def test_one_token_cannot_be_whitened(name):
    """Both refuse a batch with one trained token: its sample variance is 0/0."""
    (shape,) = (shape for shape in SHAPES if shape.name == "one_trained_token")
    for by in (by_library, by_transcription):
        with pytest.raises(ValueError):
            by(name, make_batch(shape, 0))


@pytest.mark.parametrize("shape", [s for s in SHAPES if s.G > 1], ids=str)
def test_kimi_k2_value_is_the_squared_loss_up_to_its_constant(shape):
    """(A - tau L)^2/(2 tau) = A^2/(2 tau) - A L + tau L^2/2; the surrogate: -A |o| + tau L^2/2."""
    tau = 0.1
    for seed in SEEDS:
        batch = make_batch(shape, seed)
        value, _ = by_library("kimi_k2", batch)
        squared, _ = by_transcription("kimi_k2", batch)
        difference, B = 0.0, len(batch["rewards"])
        for i in range(B):
            trained = batch["mask"][i].bool()
            if trained.any():
                q = i // shape.G
                A = (batch["rewards"][i] - batch["rewards"][q * shape.G : (q + 1) * shape.G].mean()).item()
                L = (batch["logp"] - batch["old_logp"])[i][trained].sum().item()
                difference += (A**2 / (2 * tau) - A * L + A * trained.sum().item()) / B
        torch.testing.assert_close(squared - value, torch.tensor(difference, dtype=torch.float64), **TOLERANCE)


def test_the_cases_tell_the_rows_apart():
    """No row agrees with another's transcription on all cases, but where its own says that this is a theorem.

    Otherwise agreement would prove little: a batch on which GRPO equals DAPO cannot find GRPO's formula in
    DAPO's place.
    """
    cases = [make_batch(shape, seed) for shape in SHAPES if shape.G > 1 and not lone(shape) for seed in (2, 4)]
    library = {name: [by_library(name, batch) for batch in cases] for name in COMPLETE}
    written = {name: [by_transcription(name, batch) for batch in cases] for name in COMPLETE}
    confused, theorems = set(), set()
    for row in COMPLETE:
        theorems |= {tuple(sorted((row, other))) for other in getattr(transcription(row), "SAME_GRADIENT_AS", ())}
        for other in COMPLETE:
            if row < other:
                same = all(
                    torch.allclose(a[1], b[1].nan_to_num(), **TOLERANCE)
                    for a, b in zip(library[row], written[other], strict=True)
                )
                if same:
                    confused.add((row, other))
    assert confused == theorems


def numbers(algorithm):
    """Every number in a row, set or left at its default: (what it is, the row with that number changed)."""
    for column in ("advantage", "gate", "aggregate", "normalize", "shape", "correct", "trust"):
        cell = getattr(algorithm, column)
        if cell is None:
            continue
        given = cell.keywords if isinstance(cell, partial) else {}
        for keyword, parameter in inspect.signature(cell).parameters.items():
            number = given.get(keyword, parameter.default)
            if type(number) in (int, float):
                # A bound at which a token is dropped is felt by a token between the two bounds.
                drops = column in ("correct", "trust") or getattr(cell, "func", cell) is contrib.gates.mask_weight
                less = 0.8 if drops else 0.99
                changed = {"ddof": 1 - number, "eps": 100 * number, "floor": 0.5}.get(keyword, less * number)
                yield f"{column}.{keyword}", replace(algorithm, **{column: partial(cell, **{keyword: changed})})
    for term in algorithm.kl:
        yield "kl.coef", replace(algorithm, kl=(replace(term, coef=1.01 * term.coef),))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_cases_feel_every_number_of_a_row(name):
    """Change one number of a row by a per cent, one at a time: some case must then come out otherwise."""
    cases = [make_batch(shape, seed) for shape in SHAPES if applies(name, shape) and not lone(shape) for seed in (1, 4)]
    written = [by_library(name, batch) for batch in cases]
    for number, changed in numbers(ALGORITHMS[name]):
        felt = any(
            not torch.allclose(one, other, **TOLERANCE)
            for batch, row in zip(cases, written, strict=True)
            for one, other in zip(by_row(changed, batch), row, strict=True)
        )
        assert felt, f"no case depends on {number}"


def test_the_cases_reach_both_sides_of_every_bound():
    """Tokens below, inside and above each band, for both signs of A, and lengths all along the ramp."""
    below, inside, above, capped = set(), set(), set(), 0
    ramp = set()
    for shape in SHAPES:
        for seed in SEEDS:
            batch = make_batch(shape, seed)
            trained = batch["mask"].bool()
            ratio = (batch["logp"] - batch["old_logp"]).exp()
            rewards = batch["rewards"].view(-1, shape.G)
            sign = (rewards - rewards.mean(1, keepdim=True)).sign().reshape(-1, 1).expand_as(ratio)
            for s in (-1.0, 1.0):
                here = trained & (sign == s)
                below |= {s} if (ratio[here] < math.exp(-0.4)).any() else set()
                above |= {s} if (ratio[here] > math.exp(0.4)).any() else set()
                inside |= {s} if ((ratio[here] - 1).abs() < 3e-4).any() else set()
            capped += int((ratio[trained] > 5).sum())
            length, budget = trained.sum(1), batch["budget"]
            ramp |= {"free"} if (length <= 0.8 * budget).any() else set()
            ramp |= {"ramp"} if ((length > 0.8 * budget) & (length < budget)).any() else set()
            ramp |= {"beyond"} if (length > budget).any() else set()
    assert below == inside == above == {-1.0, 1.0}
    assert capped > 10
    assert ramp == {"free", "ramp", "beyond"}
