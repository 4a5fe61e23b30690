"""The page that lists every setting of two libraries: what it says is here is built, and what is held is compared."""

import dataclasses
import importlib.util
import re
from pathlib import Path

import pytest
import torch
import yaml

import library_settings as settings
from rlhf_book.facts import facts_of
from rlhf_minimal import ALGORITHMS, Batch, policy_loss, prepare
from rlhf_minimal.config import Config
from tests import test_golden, test_golden_field

ROOT = Path(__file__).resolve().parents[1]

LIBRARIES = list(settings.libraries())
ALL = [(library, setting) for library in LIBRARIES for setting in settings.settings(library)]
NAMES = [f"{library}: {setting.name}" for library, setting in ALL]
every_setting = pytest.mark.parametrize(("library", "setting"), ALL, ids=NAMES)
HELD = [(library, setting, mark) for library, setting in ALL for mark in setting.held]
LOSS = ("ratio", "gate", "aggregate")


def function(cell):
    return getattr(cell, "func", cell)


def batch(seed=0):
    """Everything that any cell reads: two prompts, four completions each, and a sampler that is another policy."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*size):
        return torch.randn(*size, generator=generator, dtype=torch.float64)

    old = -normal(8, 5).abs() - 0.1
    mask = (torch.arange(5) < torch.tensor([5, 4, 3, 5, 2, 5, 1, 4])[:, None]).double()
    return Batch(
        (old + 0.3 * normal(8, 5)).clamp(max=0.0).requires_grad_(),
        old,
        mask,
        normal(8).abs(),
        4,
        ref_logp=(old + 0.3 * normal(8, 5)).clamp(max=0.0),
        sampler_logp=(old + 0.3 * normal(8, 5)).clamp(max=0.0),
        values=normal(8, 5),
        baseline=normal(8),
        greedy_rewards=normal(8),
        reward_parts=normal(8, 2),
        entropy=normal(8, 5).abs().requires_grad_(),
        truncated=torch.tensor([True] + 7 * [False]),
        budget=6,
    )


def test_the_two_libraries_are_those_of_the_numbers_and_all_their_settings_are_there():
    """39 and 49 are the sizes of the lists that were drawn up; a setting may not get lost."""
    assert {library: len(settings.settings(library)) for library in LIBRARIES} == {"trl": 39, "verl": 49}
    versions = {library: test_golden_field.GOLDEN["libraries"][library] for library in LIBRARIES}
    assert {name: title.split()[1] for name, (title, _) in settings.libraries().items()} == versions
    for library in LIBRARIES:
        groups = settings.libraries()[library][1]
        for group, found in groups.items():
            assert len({one.name for one in found}) == len(found), group


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_counts_are_those_of_the_file(library):
    """Counted again from the text, and found in the table of the page."""
    data = yaml.safe_load(settings.DATA.read_text(encoding="utf-8"))[library]
    entries = [entry for group in data["groups"] for entry in group["settings"]]
    of = {status: sum(status in entry for entry in entries) for status in settings.STATUSES}
    here, held = len(entries) - of["not"], sum("held" in entry for entry in entries)
    head, _, *lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in settings.summary().splitlines()]
    printed = {line[0]: int(line[head.index(data["title"])]) for line in lines}
    assert printed == {"settings": len(entries), "here": here, **of, "held": held}
    assert here + of["not"] == len(entries)


def test_the_page_has_every_setting_once_and_types_no_count():
    page, text = settings.page(), (ROOT / "book" / "coverage.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert [line.split("`")[1] for line in rows] == [setting.name for _, setting in ALL]
    assert len([line for line in rows if "*not:*" in line]) == sum(setting.status == "not" for _, setting in ALL)
    for name in ("summary", "statuses", "page"):
        assert f"```{{generated}} library_settings:{name}\n" in text
    assert not re.search(r"\b(3\d|4\d)\b", text)
    for title, _ in settings.libraries().values():
        assert title in text


@every_setting
def test_a_setting_is_what_it_says(library, setting):
    """A row or cells have a gradient on a batch, and it is that of the fields that the setting takes."""
    algorithm = setting.algorithm()
    if algorithm is None:
        assert setting.status in ("loop", "not")
        if setting.status == "loop":
            assert Config(**setting.ours) != Config()
        return
    sampled = batch()
    used = dataclasses.replace(sampled, **{field: getattr(sampled, other) for field, other in setting.given.items()})
    if algorithm.keep is not None:
        known = {"group_size": used.group_size, "truncated": used.truncated}
        kept = algorithm.call("keep", used.rewards, **known)
        used = dataclasses.replace(used, mask=used.mask * kept[:, None])
    (gradient,) = torch.autograd.grad(policy_loss(algorithm, prepare(algorithm, used)), used.logp)
    assert torch.isfinite(gradient).all()
    assert gradient.abs().max() > 1e-6
    if setting.given:
        (other,) = torch.autograd.grad(policy_loss(algorithm, prepare(algorithm, sampled)), sampled.logp)
        assert (gradient - other).abs().max() > 1e-6


@every_setting
def test_a_change_changes_the_row(library, setting):
    """A column that is named beside a row is another one there."""
    if setting.status == "row":
        for column in setting.changes:
            assert getattr(setting.algorithm(), column) != getattr(ALGORITHMS[setting.ours], column)


@pytest.mark.parametrize(("library", "setting", "mark"), HELD, ids=[f"{a}: {b.name}: {c}" for a, b, c in HELD])
def test_what_is_held_is_compared_with_these_cells(library, setting, mark):
    """The case is the library's, and has the setting's functions in the columns that the setting names."""
    kind, name = mark.split(": ", 1)
    if kind == "advantages":  # an estimator alone
        assert name.split()[0] == library
        return
    if kind == "test":  # its settings stand in its body
        assert library == "trl"
        return
    ran, columns = what_ran(library, kind, name)
    ours = setting.algorithm()
    named = set(setting.ours) if setting.status == "cells" else {*LOSS, "advantage", "normalize", *setting.changes}
    compared = [column for column in columns if column in named]
    assert compared
    for column in compared:
        if column == "kl":
            assert {term.estimator for term in ours.kl} == {term.estimator for term in ran.kl}
        else:
            assert function(getattr(ours, column)) is function(getattr(ran, column)), column


def what_ran(library, kind, name):
    """The algorithm of a case of the library, and the columns that the case compares."""
    if kind == "trl":
        assert library == "trl"
        return grpo_settings()[name][0], (*LOSS, "kl", "correct")
    if kind == "golden":
        assert name.startswith(f"{library}: ")
        return test_golden.SETTINGS[name].algorithm, ("kl",) if ": kl " in name else (*LOSS, "kl")
    case = test_golden_field.CASES[name]
    assert library in case["library"].split(" + ")  # advantages of one, the loss of another
    columns = ("advantage", "normalize") if "advantages" in case or "expect" in case else ()
    if "grad" in case:
        columns += (
            *LOSS,
            "kl",
            "correct",
            "trust",
            "entropy_aggregate",
            *(["keep"] if "keep" in case["cells"] else []),
        )
    return test_golden_field.algorithm_of(case), columns


def grpo_settings():
    pytest.importorskip("trl")
    return load("test_trl").GRPO_SETTINGS


def load(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tests" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# ---- no contradiction ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", LIBRARIES)
def test_fidelity_does_not_say_otherwise(library):
    """A row that is a setting of the library as it stands is not one that the library lacks."""
    for setting in settings.settings(library):
        if setting.status == "row":
            says = facts_of(setting.ours).fidelity[library]
            assert not says["differs"].startswith("No such"), (setting.name, setting.ours)


def test_a_loss_type_of_one_row_is_that_row_on_both_pages():
    ours = {
        setting.name.split('"')[1]: setting.ours
        for setting in settings.settings("trl")
        if setting.name.startswith("loss_type=")
    }
    shared = {"grpo", "bnpo", "dapo"}  # of several rows, which differ elsewhere
    seen = set()
    for name in ALGORITHMS:
        chosen = facts_of(name).fidelity["trl"].get("set")
        if isinstance(chosen, dict) and chosen.get("loss_type", "grpo") not in shared:
            assert ours[chosen["loss_type"]] == name
            seen.add(name)
    assert seen >= {"dr_grpo", "cispo", "sapo", "luspo"}


# ---- the library's words ------------------------------------------------------------------------------------------


def test_trls_options_and_trainers_exist_and_defaults_are_defaults():
    trl = pytest.importorskip("trl")
    from trl import GRPOConfig, RLOOConfig

    options = {field.name: field.default for kind in (RLOOConfig, GRPOConfig) for field in dataclasses.fields(kind)}
    source = "\n".join(path.read_text(encoding="utf-8") for path in Path(trl.__file__).parent.rglob("*.py"))
    for setting in settings.settings("trl"):
        option, equals, value = setting.name.partition("=")
        first = setting.name.split(",")[0]
        if equals and "," not in option:
            assert option in options, setting.name
            if "the default" in setting.means:
                assert str(options[option]) == value.strip('"'), setting.name
        elif first.isidentifier():
            assert re.search(rf"^(class|def) {first}\b", source, re.MULTILINE), first
    assert sum("the default" in setting.means for setting in settings.settings("trl")) == 3


# ---- the reader ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({}, "x: expected one of row, cells, loop, not, got none"),
        ({"row": "grpo", "not": "it is not here"}, "expected one of row, cells, loop, not, got row, not"),
        ({"row": "gpro"}, "x: there is no row 'gpro'"),
        ({"row": "grpo", "with": {"gates": "clip"}}, "there is no column gates; there are advantage, aggregate"),
        ({"row": "grpo", "with": {"gate": "clop"}}, "gate: rlhf_minimal.functional.gates has no 'clop'"),
        ({"cells": {"gate": {"clip": {"hihg": 1.0}}}}, "gate: clip takes no hihg"),
        ({"cells": {"gate": "none"}, "with": {"kl": []}}, "x: with does not belong to an entry with cells"),
        ({"cells": {"gate": "none"}, "given": {"old_logq": "logp"}}, "x: a batch has no old_logq"),
        ({"cells": {"gate": "none"}, "held": ["trl: nothing"]}, "does not try the setting 'nothing'"),
        ({"cells": {"gate": "none"}, "held": ["field: nothing"]}, "compares no case 'nothing'"),
        ({"cells": {"gate": "none"}, "held": ["field: formula: aspo"]}, "compares no case 'formula: aspo'"),
        ({"loop": {"score_clop": 1.0}}, "score_clop"),
        ({"not": "no"}, "x: a setting that is not here has a reason in a sentence"),
        ({"not": "it is not here", "held": ["trl: grpo"]}, "x: a setting that is not here has a reason"),
        ({"cells": {"kl": [{"coef": 1.0, "estimator": "k4"}]}}, "KL estimator is 'k4'"),
    ],
)
def test_an_entry_that_cannot_be_built_is_refused_with_the_files_name(entry, words, tmp_path):
    path = tmp_path / "coverage.yml"
    says = {"setting": "x", "means": "y", **entry}
    path.write_text(yaml.safe_dump({"trl": {"title": "TRL", "groups": [{"title": "all", "settings": [says]}]}}))
    with pytest.raises(ValueError, match=r"coverage\.yml") as raised:
        settings.libraries(path)
    assert words in str(raised.value)
