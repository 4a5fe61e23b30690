"""The scripts that record runs lie beside their records, outside the library: load them by path."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

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
