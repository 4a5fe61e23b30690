"""Time every chapter and record the result for the build report: `python book/_tools/run_times.py`.

The notebooks are executed in a copy and stay as they are.
"""

import datetime
import importlib.metadata
import json
import os
import platform
import sys
import time
from pathlib import Path

import nbformat

sys.path.insert(0, str(Path(__file__).parent))
import notebooks

ROOT = Path(__file__).resolve().parents[2]
REPORT = ROOT / "book" / "data" / "run-times.json"


def main(paths: list[Path]) -> None:
    """Execute each notebook once; keep the old time of those that are not asked for."""
    seconds = json.loads(REPORT.read_text())["notebooks"] if REPORT.exists() else {}
    for path in paths:
        notebook = nbformat.read(path, as_version=4)
        start = time.monotonic()
        notebooks.execute(notebook, path.resolve().parent)
        seconds[path.stem] = round(time.monotonic() - start, 1)
        print(f"{path.stem}: {seconds[path.stem]} s", flush=True)
    present = {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")}
    report = {
        "date": datetime.date.today().isoformat(),
        "python": platform.python_version(),
        "torch": importlib.metadata.version("torch").split("+")[0],
        "machine": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "notebooks": {name: seconds[name] for name in sorted(seconds) if name in present},
    }
    REPORT.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main([Path(p) for p in sys.argv[1:]] or sorted((ROOT / "notebooks").glob("*.ipynb")))
