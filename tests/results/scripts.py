"""The scripts that record runs lie beside their records, outside the library: load them by path."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import Tensor

from rlhf_minimal.evaluate import t_quantile

FOLDER = Path(__file__).resolve().parents[2] / "notebooks" / "results"


def module(name: str) -> ModuleType:
    """A script under notebooks/results/: module("grpo_sweeps")."""
    if str(FOLDER) not in sys.path:
        sys.path.append(str(FOLDER))  # the scripts share recording.py
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def load(name: str) -> tuple[ModuleType, dict[str, Any]]:
    """A script and what it recorded."""
    return module(name), json.loads((FOLDER / f"{name.replace('_', '-')}.json").read_text())


def separated(before: Tensor, after: Tensor) -> bool:
    """The chapters' criterion: one sign in all seeds, and a mean beyond what 5 % of a t-test asks for."""
    d = after - before
    one_sign = bool((d > 0).all() or (d < 0).all())
    return one_sign and bool(d.mean().abs() > t_quantile(len(d) - 1) * d.std() / len(d) ** 0.5)
