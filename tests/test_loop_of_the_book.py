"""The chapter `from-zero` needs no library of ours, and its loop is the one that later chapters change."""

import ast
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import torch

from rlhf_book import loop

ROOT = Path(__file__).resolve().parents[1]
CHAPTER = ROOT / "notebooks" / "from-zero.ipynb"
RESULTS = ROOT / "notebooks" / "results"
CELLS = [cell for cell in nbformat.read(CHAPTER, as_version=4).cells if cell.cell_type == "code"]


def definitions(source):
    """Functions and constants by name, as trees: layout and comments do not count, docstrings do."""
    found = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = ast.dump(node)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id.isupper():
            found[node.targets[0].id] = ast.dump(node.value)
    return found


def test_every_line_of_the_loop_stands_in_the_chapter():
    own = definitions(Path(loop.__file__).read_text(encoding="utf-8"))
    shown = {}
    for cell in CELLS:
        shown |= definitions(cell.source)
    assert {"log_probs", "train", "METHODS", "BUDGET"} <= set(own)
    assert {name: shown.get(name) for name in own} == own


def test_the_chapter_imports_nothing_of_ours_but_for_the_comparison():
    importing = [cell.id for cell in CELLS if "import rlhf" in cell.source or "from rlhf" in cell.source]
    assert importing == ["parity"]


def test_the_lines_of_the_chapter_fit_the_page():
    assert [line for cell in CELLS for line in cell.source.splitlines() if len(line) > 88] == []


def test_the_chapter_runs_where_our_packages_cannot_be_imported(tmp_path):
    """In an empty folder, with torch, transformers, matplotlib and a kernel: two cells say what they skip."""
    hidden = "import sys\nsys.modules['rlhf_minimal'] = sys.modules['rlhf_book'] = None  # an import of either raises"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(hidden), *CELLS])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    (tmp_path / "chapter.ipynb").write_text(nbformat.writes(notebook))
    program = (
        "import nbformat; from nbclient import NotebookClient; n = nbformat.read('chapter.ipynb', as_version=4);"
        "NotebookClient(n, timeout=1200, resources={'metadata': {'path': '.'}}).execute();"
        "nbformat.write(n, 'done.ipynb')"
    )
    environment = {**os.environ, "PYTHONPATH": "", "OMP_NUM_THREADS": "1"}
    environment.pop("MPLBACKEND", None)
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr[-2000:]
    said = {
        cell.id: "".join(output.get("text", "") for output in cell.outputs)
        for cell in nbformat.read(tmp_path / "done.ipynb", as_version=4).cells
    }
    assert {name for name, text in said.items() if "Skipped" in text} == {"five-seeds", "parity"}
    assert "not here" in said["curve"]


def test_the_mask_ends_with_the_first_end():
    completions = loop.encode(["3740$", "3$0$1", "37400"])
    assert loop.token_mask(completions).tolist() == [[1] * 5, [1, 1, 0, 0, 0], [1] * 5]
    assert [loop.decode(ids) for ids in completions] == ["3740$", "3$", "37400"]


def test_the_teacher_is_right_exactly_where_he_carries_or_need_not():
    import random

    rng = random.Random(0)
    prompts = [loop.make_prompt(rng) for _ in range(2000)]
    marks = loop.is_right(prompts, loop.encode([loop.teacher(prompt, rng) for prompt in prompts]))
    # No column of three carries with probability .55 ** 3, and then every completion of his is right.
    assert abs(marks.mean() - (0.2 + 0.8 * 0.55**3)) < 0.04
    assert loop.right_answer("128+345=") == "3740$"


def test_shift_and_gather_agree_with_one_question_for_each_token():
    model = loop.new_model(0)
    prompts, completions = loop.encode(["128+345=", "999+001="]), loop.encode(["3740$", "0001$"])
    found = loop.log_probs(model, prompts, completions)
    for place in range(loop.BUDGET):
        logits = model(torch.cat([prompts, completions[:, :place]], dim=1)).logits[:, -1].log_softmax(-1)
        torch.testing.assert_close(found[:, place], logits[torch.arange(2), completions[:, place]])


def record():
    file = RESULTS / "from-zero.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None


@pytest.mark.skipif(record() is None, reason="nothing has been recorded")
def test_the_record_holds_the_same_seeds_of_every_method():
    runs = record()["runs"]
    seeds = {}
    for run in runs:
        seeds.setdefault(run["arm"], set()).add(run["seed"])
        assert len(run["right"]) == record()["steps"]
        assert all(0 <= right <= record()["completions_a_step"] for right in run["right"])
        assert run["imitation_loss"] < 0.16
    assert len({tuple(sorted(of)) for of in seeds.values()}) == 1
    assert {"GRPO", "GRPO, reward from a coin"} <= set(seeds) <= {*loop.METHODS, "GRPO, reward from a coin"}


def test_a_run_of_the_script_can_be_repeated(monkeypatch):
    monkeypatch.syspath_prepend(str(RESULTS))
    spec = importlib.util.spec_from_file_location("from_zero", RESULTS / "from_zero.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    monkeypatch.setattr(script, "imitate", lambda model, seed: loop.imitate(model, steps=50, seed=seed))
    one, two = (script.run("RLOO", 7, steps=2) for _ in range(2))
    assert one["right"] == two["right"]
    assert len(one["right"]) == 2
