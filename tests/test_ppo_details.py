"""The sections that list PPO's details: every switch they name exists, and every switch of PPO is in them."""

import re
from dataclasses import fields
from pathlib import Path

import nbformat

from rlhf_minimal import ALGORITHMS, Algorithm
from rlhf_minimal.cli import parser
from rlhf_minimal.config import Config
from rlhf_minimal.functional import advantages
from rlhf_minimal.metrics import METRICS
from rlhf_minimal.models import RewardModel

DEPTH = Path(__file__).parent.parent / "notebooks" / "ppo-rlhf-in-depth.ipynb"
PAGE = "\n\n".join(cell.source for cell in nbformat.read(DEPTH, 4).cells if cell.id.startswith("details-"))

# Settings that belong to every algorithm or to none in particular, and where they are explained.
NOT_A_DETAIL = {
    "steps", "prompts", "group_size", "micro_batches", "lr", "max_new_tokens", "seed", "max_refills",  # how much
    "verifier_timeout",  # what may go wrong
    "reference", "refresh_every", "ema_decay",  # the chapter on KL
    "baseline", "baseline_decay",  # algorithms without a critic
    "precision", "gradient_checkpointing", "lora_rank", "lora_alpha",  # the chapter on scaling up
    "watch_kl",  # time and memory: the results are equal
}  # fmt: skip


def rows():
    """The cells of every line of every table, without heads."""
    lines = [line.strip().strip("|").split("|") for line in PAGE.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in cells] for cells in lines if cells[0].strip() != "detail"]


def test_every_setting_that_is_named_exists():
    named = set(re.findall(r"`Config\.(\w+)`", PAGE))
    settings = {field.name for field in fields(Config)}
    assert named <= settings
    assert settings - named == NOT_A_DETAIL
    train = parser()._subparsers._group_actions[0].choices["train"]
    assert named <= {action.dest for action in train._actions}  # and so it is a flag


def test_every_cell_and_flag_that_is_named_exists():
    cells = set(re.findall(r"the row's `(\w+)`", PAGE))
    assert cells <= {field.name for field in fields(Algorithm)}
    assert cells >= {"advantage", "normalize", "gate", "aggregate", "kl", "entropy"}
    ppo = ALGORITHMS["ppo"]
    assert (ppo.advantage.keywords["gamma"], ppo.advantage.keywords["lam"]) == (1.0, 0.95)
    assert ppo.normalize is advantages.whiten
    assert callable(RewardModel.normalize)
    train = parser()._subparsers._group_actions[0].choices["train"].format_help()
    flags = set(re.findall(r"`(--[a-z][a-z-]+)`", PAGE))
    assert flags
    assert all(flag in train for flag in flags)


def test_every_detail_has_a_switch_or_a_reason():
    assert len(rows()) > 25
    for detail, what, switch in rows():
        assert what.endswith("."), detail
        if switch.startswith("none"):
            assert switch == "none" or len(switch) > 12, detail
        else:
            assert re.search(r"`(Config\.\w+|--[\w-]+|\w+)`", switch), detail


def test_every_metric_that_is_named_is_logged():
    logged = PAGE.split("## What is logged")[1]
    named = set(re.findall(r"`(\w+)`", logged))
    assert named <= set(METRICS)
    assert {"gold", "kl_sequence", "early_stop", "explained_variance"} <= named
