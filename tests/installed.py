"""Does the wheel work where there is nothing else? Run by a Python that has installed it, in an empty folder.

    python -m venv /tmp/empty && /tmp/empty/bin/pip install "rlhf-minimal[notebooks] @ file:///…/rlhf_minimal-….whl"
    mkdir /tmp/nothing && cd /tmp/nothing && /tmp/empty/bin/python /path/to/tests/installed.py

It imports nothing of this repository but the two packages, and checks that these are the installed ones: it trains,
prints the table and a difference, saves a figure that moves and has an exercise checked. The release does this with
what the index gives (`.github/workflows/release.yml`), `tests/test_wheel.py` with what is installed here.
"""

import json
import os
import subprocess
import sys
import sysconfig
from importlib.metadata import version
from pathlib import Path

import torch

PURE = Path(sysconfig.get_path("purelib")).resolve()
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>
<script type="application/vnd.jupyter.widget-state+json">{state}</script>
<script type="application/vnd.jupyter.widget-view+json">{view}</script></html>"""


def packages() -> None:
    """Both packages come from this environment, with their data, and say one version."""
    import rlhf_book
    import rlhf_minimal
    from rlhf_book.records import read_record

    for package in (rlhf_minimal, rlhf_book):
        assert Path(package.__file__).resolve().is_relative_to(PURE), f"{package.__file__} is not in {PURE}"
    assert rlhf_minimal.__version__ == version("rlhf-minimal")
    assert read_record("learning-curve")["runs"]


def train(steps: int = 2) -> None:
    """Training from the shipped start leaves a run folder whose policy can be sampled."""
    done = run(
        "rlhf_minimal", "train", "grpo", "--steps", str(steps), "--seed", "0", "--held-out", "16", "--out", "run"
    )
    assert "held-out accuracy" in done
    metrics = [json.loads(line) for line in Path("run/metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(metrics) == steps
    assert {"checkpoint", "config.json", "evaluation.json", "learning-curve.png"} <= set(os.listdir("run"))
    assert "=" in run("rlhf_minimal", "sample", "run", "-n", "2")


def tables() -> None:
    """The command that the wheel installs prints the table and the cells in which two rows differ."""
    assert "| grpo |" in command("table").replace("`", "")
    difference = command("diff", "dr_grpo", "grpo")
    assert "group_centered" in difference
    assert "fixed_length" in difference


def figure() -> None:
    """A figure that moves is made, and saved as a page with its module and its numbers in it."""
    from ipywidgets.embed import embed_data

    from rlhf_book.figures.widgets import GroupExplorer

    explorer = GroupExplorer(rewards=[1.0, 0.0, 0.0, 1.0])
    data = embed_data(views=[explorer], drop_defaults=False)
    (view,) = data["view_specs"]
    state = data["manager_state"]["state"][view["model_id"]]["state"]
    assert "export default" in state["_esm"]
    assert state["rewards"] == [1.0, 0.0, 0.0, 1.0]
    texts = {
        name: json.dumps(value).replace("</", "<\\/")
        for name, value in (("state", data["manager_state"]), ("view", view))
    }
    page = PAGE.format(title=type(explorer).__name__, **texts)
    Path("figure.html").write_text(page, encoding="utf-8")


def exercise() -> None:
    """A right answer is accepted, and a wrong one is told what is wrong."""
    from rlhf_book.exercises import check

    def advantage(rewards: torch.Tensor, group_size: int, eps: float = 1e-4) -> torch.Tensor:
        rows = []
        for group in rewards.split(group_size):
            same = bool((group == group[0]).all())
            rows.append(torch.zeros_like(group) if same else (group - group.mean()) / (group.std() + eps))
        return torch.cat(rows)

    def of_the_batch(rewards: torch.Tensor, group_size: int, eps: float = 1e-4) -> torch.Tensor:
        return (rewards - rewards.mean()) / (rewards.std() + eps)

    assert check("grpo-advantage", advantage)
    wrong = check("grpo-advantage", of_the_batch)
    assert not wrong
    assert "Not yet" in repr(wrong)


def run(*words: str) -> str:
    """What `python -m …` prints."""
    return said([sys.executable, "-m", *words])


def command(*words: str) -> str:
    """What the installed command prints."""
    return said([str(Path(sysconfig.get_path("scripts")) / "rlhf-minimal"), *words])


def said(words: list[str]) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr[-2000:]}"
    return done.stdout


def main(words: list[str]) -> int:
    """All of it, or what is named: `packages train tables figure exercise`."""
    parts = {part.__name__: part for part in (packages, train, tables, figure, exercise)}
    for name in words or parts:
        parts[name]()
        print(f"works: {name}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
