"""The playground in Node: its engine as the page's worker has it, its module, and what was recorded of both."""

import base64
import importlib.util
import json
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from rlhf_book.figures.playground import ENGINE, engine, kernel, rows, weights
from tests.viz.node import run_in_node

ROOT = Path(__file__).resolve().parents[2]
MODULE = ENGINE.parent / "playground.mjs"
ROWS = rows()

# `make` is a run with the settings of an arm as the page gives them: {row: "grpo", lr: ..., bounds: {...}, ...}.
PRELUDE = """
const START = floatsOf(bytesOf(%(weights)s)), KERNEL = bytesOf(%(kernel)s), ROWS = %(rows)s;
const USUAL = { row: "grpo", lr: 8e-4, prompts: 16, group: 16, verdict: "checked", values: [0, 1], kl: 0, seed: 0 };
function make(settings = {}, { wasm = true, shared = true, rows = 0 } = {}) {
  const all = { ...USUAL, ...settings }, row = { ...ROWS[all.row] };
  row.bounds = { ...row.bounds, ...settings.bounds };
  const machine = new Machine({ rows: rows || rowsFor(all.prompts, all.group), policies: 2,
    wasm: wasm ? KERNEL : null });
  for (const policy of machine.policies) machine.load(policy, START);
  const [reference, policy] = machine.policies;
  return new Trainer(machine, policy, reference, { ...all, row, updates: all.updates ?? row.updates }, { shared });
}
const say = (value) => console.log(JSON.stringify(value));
"""


def in_engine(script: str, timeout: float = 300, **given: Any) -> Any:
    """What a script says as JSON; what is given to it stands in constants of the same names."""
    if shutil.which("node") is None:
        pytest.skip("no Node on this machine; tests/browser trains in Chromium")
    values = {
        "weights": base64.b64encode(weights()).decode(),
        "kernel": base64.b64encode(kernel()).decode(),
        "rows": rows(),
    }
    prelude = PRELUDE % {name: json.dumps(value) for name, value in values.items()}
    constants = "".join(f"const {name} = {json.dumps(value)};\n" for name, value in given.items())
    source = f"{engine()}\n{prelude}\n{constants}\n{script}"
    done = subprocess.run(
        ["node", "--expose-gc", "-"], input=source, capture_output=True, text=True, timeout=timeout, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def challenges() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((ENGINE / "challenges.json").read_text(encoding="utf-8"))
    return found


@cache
def script(name):
    """A script that has made a file of tests/data."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "tests" / "data" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def recorded(name):
    return json.loads((ROOT / "tests" / "data" / f"{name}.json").read_text(encoding="utf-8"))


def in_page(script, **given):
    constants = "".join(f"const {name} = {json.dumps(value)};\n" for name, value in given.items())
    return run_in_node(MODULE, f"const rows = {json.dumps(ROWS)};\n{constants}{script}")
