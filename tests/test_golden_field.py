"""Every number in data/field_losses.json that our cells can say: eight libraries on the rows of 2025 and 2026.

A case is a call of a production function. Here it is a row of the table in which only the case's own numbers are
changed, or, where a case tests a part or a row that is not in the table yet, an `Algorithm` of the cells that it names.
Advantages are computed here from the case's rewards and compared on the way; gradients are compared at 1e-7. Cases
whose cells do not exist are listed by name with the cell that they lack, and may not stay there once it exists.
"""

import inspect
import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

import rlhf_minimal.functional as functional
from library_settings import MODULES
from rlhf_minimal import ALGORITHMS, KL, Algorithm, Batch, contrib, policy_loss, prepare
from rlhf_minimal.functional import advantages, aggregation, gates, ratios

GOLDEN = json.loads((Path(__file__).parent / "data" / "field_losses.json").read_text())
INPUTS = {name: torch.tensor(numbers, dtype=torch.float64) for name, numbers in GOLDEN["inputs"].items()}
INPUTS["truncated"] = INPUTS["truncated"] != 0
MASK, G = INPUTS["mask"], GOLDEN["group_size"]
TRAINED = MASK != 0
ADVANTAGES = {name: torch.tensor(numbers, dtype=torch.float64) for name, numbers in GOLDEN["advantages"].items()}
CASES = {case["id"]: case for case in GOLDEN["cases"] + GOLDEN["formulas"]}
CLOSE = {"rtol": 0.0, "atol": GOLDEN["tolerance"]}

# case -> the cell that is not written yet.
NOT_YET = {
    "sequence gate by the geometric mean: openrlhf mask .9 to 1.1": "corrections.sequence_gate",
    "opd: prime-rl ref_kl with its one-sided mask": "trust.one_sided",
    "kl_cov: verl": "trust.kl_cov",
    "formula: aspo": "gates.flip_weight",
}

# GDPO's last step is the one in which libraries differ.
GDPO = {
    "verl": advantages.whiten,
    "trl": partial(contrib.advantages.zscore_rows, eps=1e-4),
    "nemo": partial(contrib.advantages.zscore_rows, eps=0.0),
}
RENAMED = {"gamma": "vespo"}  # since the file was made
OURS = {"abs": "absolute"}  # names that are a builtin's
NO_OPTION = {"group_size", "weights"}  # settings that are the batch's, or handled apart


def cell_named(column, name):
    """The cell of that name, of the core or of contrib."""
    (found,) = [getattr(module, name) for module in MODULES[column] if name in vars(module)][:1]
    return found


def with_numbers(cell, numbers):
    """The cell with other numbers; a number that it does not have is an error of the case or of ours."""
    numbers = {name: x for name, x in numbers.items() if name not in NO_OPTION}
    assert set(numbers) <= set(inspect.signature(cell).parameters), (cell, numbers)
    return partial(cell, **numbers) if numbers else cell


def base_of(case) -> dict:
    """Cells that the case does not name: its row's, or none."""
    row = case["row"]
    if row == "opd" and case["cells"]["kl"][0]["place"] == "loss":
        row = None  # the other form has no advantage
    if row in ALGORITHMS:
        found = {name: getattr(ALGORITHMS[row], name) for name in (*MODULES, "kl")}
        if row == "gdpo":
            weights = tuple(case["settings"]["weights"])
            library = case["advantages" if "advantages" in case else "expect"].split()[0]
            found |= {"advantage": partial(contrib.advantages.gdpo, weights=weights), "normalize": GDPO[library]}
        return found if "grad" in case else found | {"kl": ()}  # advantages alone
    assert row is None  # cells alone
    nothing = {"advantage": advantages.returns_to_go, "ratio": ratios.on_policy, "gate": gates.none}
    return nothing | {"aggregate": aggregation.token_mean, "kl": ()}


def algorithm_of(case) -> Algorithm:
    """The case in our words."""
    named, numbers, found = case["cells"], dict(case["settings"]), base_of(case)
    if seed := re.search(r"manual_seed\((\d+)\)", case["id"]):
        numbers["trust"] = {**numbers["trust"], "seed": int(seed[1])}
    for column in MODULES:
        name = RENAMED.get(named.get(column), named.get(column))
        if name is not None and name != "given":
            own = found.get(column)
            same = getattr(getattr(own, "func", own), "__name__", None) == name
            found[column] = own if same else cell_named(column, name)
        if column == "targets" and "targets" in numbers:
            found[column] = advantages.gae
        if found.get(column) is not None:
            found[column] = with_numbers(found[column], numbers.get(column, {}))
    reads_teacher = case["row"] == "opd" or named.get("advantage") == "prefix_weighted"
    if "kl" in named and not (reads_teacher and named["kl"][0]["place"] == "reward"):  # that is its advantage
        coefs = [coef for coef in numbers.get("kl", []) if coef]  # 0 is a KL left out
        terms = [{**term, "estimator": OURS.get(term["estimator"], term["estimator"])} for term in named["kl"]]
        found["kl"] = tuple(KL(coef, **term) for coef, term in zip(coefs, terms, strict=True))
    return Algorithm(**found, entropy=numbers.get("entropy", 0.0))


def batch_of(case, algorithm) -> Batch:
    given = {field: INPUTS[name] for field, name in case["inputs"].items() if name != "zero"}
    if "greedy_rewards" in algorithm.needs:
        given["greedy_rewards"] = given.pop("baseline")
    given.setdefault("rewards", torch.zeros(len(MASK), dtype=torch.float64))
    given.setdefault("old_logp", given["logp"])
    for name in ("logp", "entropy"):
        if name in given:
            given[name] = given[name].clone().requires_grad_()
    if algorithm.keep is not None and "truncated" in given:  # as the loop does it: masked, and their rewards stay
        given["mask"] = given["mask"] * algorithm.call("keep", given["rewards"], truncated=given["truncated"])[:, None]
    if case["cells"].get("advantage") == "given":
        given["advantages"] = ADVANTAGES[case["advantages"]]
    return Batch(**given, group_size=G)


COMPARED = [name for name in CASES if name not in NOT_YET]


@pytest.mark.parametrize("name", COMPARED)
def test_a_case(name):
    case = CASES[name]
    algorithm = algorithm_of(case)
    batch = batch_of(case, algorithm)
    prepared = batch if batch.advantages is not None else prepare(algorithm, batch)
    trained = prepared.mask != 0
    if expected := case.get("advantages") or case.get("expect"):
        torch.testing.assert_close(prepared.advantages[trained], ADVANTAGES[expected][trained], **CLOSE)
    if expected := case.get("expect_returns"):
        torch.testing.assert_close(prepared.returns[trained], ADVANTAGES[expected][trained], **CLOSE)
    if "grad" not in case:
        return
    loss = policy_loss(algorithm, prepared)
    for field in ("logp", "entropy"):
        if (expected := case.get({"logp": "grad", "entropy": "grad_entropy"}[field])) is not None:
            (gradient,) = torch.autograd.grad(loss, getattr(batch, field), retain_graph=True)
            torch.testing.assert_close(gradient, torch.tensor(expected, dtype=torch.float64), **CLOSE)
            assert gradient.abs().max() > 1e-5
    for pieces in (2, 3, 8):  # and the same of micro-batches, through the groups
        if algorithm.needs_whole_step:
            continue
        parts = [policy_loss(algorithm, part) for part in prepared.split(pieces)]
        torch.testing.assert_close(sum(parts), loss)


def cells_of(algorithm) -> dict:
    """The functions of a row without their numbers."""
    columns = {name: getattr(algorithm, name) for name in (*MODULES, "normalize", "shape")}
    bare = {name: getattr(cell, "func", cell) for name, cell in columns.items() if name != "keep"}
    return bare | {"kl": [replace(term, coef=1.0) for term in algorithm.kl]}


# No library's numbers of these are recorded; a live library computes them in the test that stands beside.
HELD_LIVE = {"sdpo": "test_trl_self_distillation.py"}
recorded_row = pytest.mark.parametrize("row", [row for row in contrib.ALGORITHMS if row not in HELD_LIVE])


def test_what_has_no_recorded_numbers_is_held_by_a_live_library():
    for row, file in HELD_LIVE.items():
        assert f'"{row}"' in (Path(__file__).parent / file).read_text(encoding="utf-8")
        assert not any(CASES[name]["row"] == row for name in COMPARED), f"{row} has recorded numbers now"


@recorded_row
def test_every_row_of_the_field_is_compared_as_it_stands(row):
    """Whole, with the case's numbers in the place of its own: no cell of it is another one in such a case."""
    whole = [
        name
        for name in COMPARED
        if CASES[name]["row"] == row and "grad" in CASES[name]
        if cells_of(algorithm_of(CASES[name])) == cells_of(contrib.ALGORITHMS[row])
    ]
    assert whole, (
        "no case compares this row whole: record another library's numbers in tests/data/field_losses.json, or compare "
        "with a live one and name the row in HELD_LIVE; a row that no library has is for `--row FILE.py:NAME`"
    )


@recorded_row
def test_the_numbers_of_a_row_are_those_of_some_case(row):
    """Not only the cells: one library computes the row with the very numbers that stand in it, epsilons apart."""
    found = [algorithm_of(CASES[name]) for name in COMPARED if CASES[name]["row"] == row and "grad" in CASES[name]]

    def numbers(algorithm):
        cells = [getattr(algorithm, name) for name in ("ratio", "gate", "aggregate", "correct", "trust")]
        return [(getattr(cell, "func", cell), options(cell)) for cell in cells], algorithm.kl

    def options(cell):  # those that are said, and those that are left at their defaults
        return {} if cell is None else {p.name: p.default for p in inspect.signature(cell).parameters.values()}

    assert numbers(contrib.ALGORITHMS[row]) in [numbers(one) for one in found]


def test_a_case_is_compared_or_lacks_a_cell_that_does_not_exist():
    assert set(NOT_YET) <= set(CASES)
    for name, lacking in NOT_YET.items():
        module, _, cell = lacking.partition(".")
        there = [vars(getattr(shelf, module)) for shelf in (functional, contrib) if hasattr(shelf, module)]
        assert there
        assert not any(cell in names for names in there), f"{lacking} is written now: compare {name!r}"
    assert not any(CASES[name]["row"] in ALGORITHMS for name in NOT_YET)


def test_a_case_that_lacks_a_cell_cannot_be_written():
    """Otherwise the list would grow old: these are refused for want of the cell, and for nothing else."""
    for name in NOT_YET:
        with pytest.raises((LookupError, AttributeError, ValueError)):
            algorithm_of(CASES[name])


def test_the_file_is_the_one_that_was_made():
    assert GOLDEN["dtype"] == "float64"
    assert (GOLDEN["prompts"] * G, GOLDEN["tokens"]) == tuple(MASK.shape)
    assert len(CASES) == len(GOLDEN["cases"]) + len(GOLDEN["formulas"])
    assert all(count > 0 for count in GOLDEN["coverage"].values())
    assert not GOLDEN["left_out"]
