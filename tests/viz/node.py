"""A figure's module in Node: its numbers without a page."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest


def run_in_node(module: Path, script: str) -> Any:
    """What a script prints as JSON, in which `maths` is that of the module; skipped where there is no Node."""
    if shutil.which("node") is None:
        pytest.skip("no Node on this machine; tests/browser runs this comparison in Chromium")
    source = f"import figure from {json.dumps(module.as_uri())};\nconst maths = figure.maths;\n{script}"
    done = subprocess.run(
        ["node", "--input-type=module", "-"], input=source, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
