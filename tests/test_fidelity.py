"""The page that compares this book with production libraries: its marks name tests of the settings it prints."""

import importlib.util
import sys
from pathlib import Path

import pytest

import fidelity
import rlhf_minimal
from rlhf_book.facts import facts_of
from rlhf_minimal import ALGORITHMS
from tests.complete import COMPLETE, all_rows_complete

ROOT = Path(__file__).resolve().parents[1]

ENTRIES = {name: facts_of(name).fidelity for name in COMPLETE}
MARKS = [
    (name, library, mark)
    for name, entry in ENTRIES.items()
    for library in fidelity.LIBRARIES
    for mark in entry[library].get("verified", [])
]
TRL = [(name, entry["trl"]) for name, entry in ENTRIES.items() if isinstance(entry["trl"].get("set"), dict)]


def load(name):
    """A test module as data: what it ran is what the page may claim."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "tests" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@all_rows_complete
def test_every_row_is_on_the_page():
    assert "```{generated} fidelity:page\n" in (ROOT / "book" / "fidelity.md").read_text(encoding="utf-8")
    titles = [line.removeprefix("## ") for line in fidelity.page().splitlines() if line.startswith("## ")]
    assert titles == [facts_of(name).title for name in ALGORITHMS]


@pytest.mark.parametrize(("name", "library", "mark"), MARKS)
def test_a_mark_names_a_test(name, library, mark):
    assert fidelity.test_of(mark)
    assert library in mark or mark.startswith(("test: ", "value: ")), (
        "a mark stands beside the library that it is about"
    )


def test_a_mark_without_a_test_is_refused():
    for mark in ("trl: no such setting", "golden: trl: grpo eps=.3", "test: test_nothing"):
        with pytest.raises(LookupError):
            fidelity.test_of(mark)


@pytest.mark.parametrize(("name", "library", "mark"), [m for m in MARKS if m[2].startswith(("trl: ", "golden: "))])
def test_a_mark_is_about_the_row(name, library, mark):
    """Where the page does not say which cell is another one ("as"), the setting that was run has the row's cells."""
    entry = ENTRIES[name][library]
    kind, setting = mark.split(": ", 1)
    if ": kl " in setting:  # a KL term alone
        return
    if kind == "trl":
        pytest.importorskip("trl")
        algorithm, _ = load("test_trl").GRPO_SETTINGS[setting]
    else:
        algorithm = load("test_golden").SETTINGS[setting].algorithm
    columns = {"ratio", "gate", "aggregate"} | ({"kl"} if entry.get("kl") else set())
    changed = {change.split(":")[0] for change in rlhf_minimal.diff(ALGORITHMS[name], algorithm).split("; ") if change}
    if "as" in entry or "dual clip 3" in setting:  # said beside the mark, or under "differs"
        assert changed & columns or entry.get("as", "").endswith("one advantage a response")
    else:
        assert not changed & columns


@pytest.mark.parametrize(("name", "entry"), TRL, ids=[name for name, _ in TRL])
def test_the_printed_settings_of_trl_exist_and_are_the_ones_that_were_run(name, entry, tmp_path):
    pytest.importorskip("trl")
    from trl import GRPOConfig
    from trl.experimental.gmpo import GMPOConfig

    classes = {"GRPOConfig": GRPOConfig, "GMPOConfig": GMPOConfig}
    config = classes[entry["class"]](output_dir=str(tmp_path), bf16=False, use_cpu=True, report_to=[], **entry["set"])
    printed = {
        "loss_type": config.loss_type,
        "importance_sampling_level": config.importance_sampling_level,
        "beta": config.beta,
        "epsilon_low": config.epsilon,
        "epsilon_high": config.epsilon if config.epsilon_high is None else config.epsilon_high,
        "delta": config.delta,
        "sapo_temperature_pos": config.sapo_temperature_pos,
        "sapo_temperature_neg": config.sapo_temperature_neg,
    }
    (run,) = [m for m in entry["verified"] if m.startswith(("trl: ", "test: "))][:1]
    if run.startswith("test: "):  # test_gmpo_trainer; its settings stand in its body
        assert (printed["epsilon_low"], printed["epsilon_high"], printed["beta"]) == (0.4, 0.4, 0.0)
        return
    _, ran = load("test_trl").GRPO_SETTINGS[run.removeprefix("trl: ")]
    default = {
        "importance_sampling_level": "token",
        "beta": 0.0,
        "epsilon_low": 0.2,
        "epsilon_high": 0.2,
        "delta": None,
        "sapo_temperature_pos": 1.0,
        "sapo_temperature_neg": 1.05,
    }
    assert printed == {**default, **{key: value for key, value in ran.items() if key in printed}}
    if printed["beta"]:
        assert config.use_bias_correction_kl == ran["use_bias_correction_kl"]
    # The row's advantage, which these losses are given from outside.
    scales = {"group_normalized": "group", "batch_std": "batch"}
    assert config.scale_rewards == scales.get(ALGORITHMS[name].advantage.__name__, "none")
