"""The chapter `from-zero` needs no library of ours, and its loop is a module for its records and exercises."""

import ast
import contextlib
import copy
import dataclasses
import functools
import importlib.util
import io
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import torch

import book_facts
from rlhf_book import loop
from rlhf_book.exercises import from_zero
from rlhf_minimal import ALGORITHMS, Batch, policy_loss
from rlhf_minimal.functional import gates

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
    """The chapter trains with `push_loss` first, and comes to `grpo_loss` later; nothing else differs."""
    own = definitions(Path(loop.__file__).read_text(encoding="utf-8"))
    shown = {}
    for cell in CELLS:
        shown |= definitions(cell.source)
    assert {"log_probs", "train", "METHODS", "BUDGET"} <= set(own)
    assert shown["train"].count("'push_loss'") == 1
    shown["train"] = shown["train"].replace("'push_loss'", "'grpo_loss'")
    assert {name: shown.get(name) for name in own} == own


def test_the_chapters_first_loss_has_the_gradient_of_grpo_at_the_first_update(batch_in_float64):
    """So the recorded runs of GRPO, with one update on each batch, are those of the chapter's loop."""
    model, ids, completions, mask, right, _ = batch_in_float64
    names = vars(loop).copy()
    exec(next(cell.source for cell in CELLS if cell.id == "loss"), names)
    A = names["group_advantage"](right.view(8, 8)).flatten()
    found = []
    for loss_of in (names["push_loss"], loop.grpo_loss):
        logp = loop.log_probs(model, ids, completions)
        found.append(vector(loss_of(logp, logp.detach(), A, mask), list(model.parameters())))
    assert norm_of_the_difference(*found) <= 1e-12
    assert len(set(mask.sum(-1).tolist())) == 5


def test_the_chapter_imports_nothing_of_ours():
    assert [cell.id for cell in CELLS if "import rlhf" in cell.source or "from rlhf" in cell.source] == []


def test_the_lines_of_the_chapter_fit_the_page():
    assert [line for cell in CELLS for line in cell.source.splitlines() if len(line) > 88] == []


def test_the_chapter_needs_nothing_but_torch_transformers_matplotlib_and_a_kernel():
    """Every import of every cell."""
    found = set()
    for cell in CELLS:
        for node in ast.walk(ast.parse(cell.source)):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add(node.module.partition(".")[0])
    # matplotlib_inline is the part of a kernel (of IPython) that draws a figure into a cell's output.
    kernel = {"IPython", "matplotlib_inline"}
    assert found - sys.stdlib_module_names == {"torch", "transformers", "matplotlib"} | kernel


def shortened(source, *changes):
    """A program with other defaults, such as `steps: int = 2` for `steps: int = 60`. Nothing else in it changes."""
    for before, after in changes:
        assert source.count(before) == 1, before
        source = source.replace(before, after)
    return source


# What these cells find out needs a model that has been trained to the end: `pytest --nbval-lax notebooks` runs that.
NEED_TRAINING = {"measure", "batch", "one-update", "history", "learnt", "coin"}


def test_the_chapter_runs_where_our_packages_cannot_be_imported(tmp_path):
    """In an empty folder every cell runs to its last assert, with a training of few steps: one says what it skips.

    What has not been trained to the end fails the assertions about training, and nothing else. And imitation that has
    not worked stops with advice.
    """
    hidden = "import sys\nsys.modules['rlhf_minimal'] = sys.modules['rlhf_book'] = None  # an import of either raises"
    short = {"imitate": ("steps: int = 1300", "steps: int = 10"), "train": ("steps: int = 60", "steps: int = 6")}
    cells = copy.deepcopy(CELLS)
    for cell in cells:
        if cell.id in short:
            cell.source = shortened(cell.source, short[cell.id])
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(hidden), *cells])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    (tmp_path / "chapter.ipynb").write_text(nbformat.writes(notebook))
    program = (
        "import nbformat; from nbclient import NotebookClient; n = nbformat.read('chapter.ipynb', as_version=4);"
        "NotebookClient(n, timeout=300, allow_errors=True, resources={'metadata': {'path': '.'}}).execute();"
        "nbformat.write(n, 'done.ipynb')"
    )
    environment = {**os.environ, "PYTHONPATH": "", "OMP_NUM_THREADS": "1"}
    environment.pop("MPLBACKEND", None)
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr[-2000:]
    done = {cell.id: cell.outputs for cell in nbformat.read(tmp_path / "done.ipynb", as_version=4).cells}
    errors = {name: out for name, outputs in done.items() for out in outputs if out.output_type == "error"}
    advice = errors.pop("imitate")
    assert advice.ename == "RuntimeError"
    assert "new_model(seed=1)" in advice.evalue
    assert {name: error.ename for name, error in errors.items() if name not in NEED_TRAINING} == {}
    for name, error in errors.items():
        assert error.ename == "AssertionError", error.traceback
        last = ast.parse(next(cell.source for cell in CELLS if cell.id == name)).body[-1]
        assert isinstance(last, ast.Assert), f"what stands behind the asserts of {name} was not run"
    said = {name: "".join(out.get("text", "") for out in outputs) for name, outputs in done.items()}
    assert "not here" in said["curve"]
    assert "<svg" in done["loop-drawn"][0]["data"]["text/html"]


def test_the_mask_ends_with_the_first_end():
    completions = loop.encode(["3740$", "3$0$1", "37400"])
    assert loop.token_mask(completions).tolist() == [[1] * 5, [1, 1, 0, 0, 0], [1] * 5]
    assert [loop.decode(ids) for ids in completions] == ["3740$", "3$", "37400"]


def asked_of(monkeypatch, module, call):
    """The questions that a function draws."""
    drawn, make = [], loop.make_prompt

    def noted(rng, *use):
        drawn.append(make(rng, *use))
        return drawn[-1]

    with monkeypatch.context() as patch:
        patch.setattr(module, "make_prompt", noted)
        call()
    return drawn


def test_no_question_is_imitated_and_learnt_from_or_tested(monkeypatch):
    """What `imitate` draws, what the loop draws, and what the chapter tests with: three kinds, by the same numbers."""
    tiny = loop.new_model(0)
    imitated = asked_of(monkeypatch, loop, lambda: loop.imitate(tiny, steps=20))
    learnt = asked_of(monkeypatch, loop, lambda: loop.train(tiny, steps=12, group=2))
    rng = random.Random(3)
    tested = [loop.make_prompt(rng, "test") for _ in range(1000)]
    assert len(imitated) == 20 * 128
    assert len(learnt) == 12 * 16
    kinds = [{int(asked[:3] + asked[4:7]) % 7 for asked in drawn} for drawn in (imitated, learnt, tested)]
    assert kinds == [{2, 3, 4, 5, 6}, {1}, {0}]


def test_the_coin_takes_nothing_from_the_generator_that_samples(monkeypatch):
    """The first completions are the same with both rewards, and so is the state of torch's generator afterwards."""
    states, sampled = [], []
    true = loop.sample
    monkeypatch.setattr(loop, "sample", lambda *args: sampled.append(true(*args)) or sampled[-1])
    for coin in (False, True):
        loop.train(loop.new_model(0), steps=1, prompts=4, group=4, coin=coin)
        states.append(torch.get_rng_state())
    assert torch.equal(*sampled)
    assert torch.equal(*states)


def test_the_teacher_is_right_exactly_where_he_carries_or_need_not():
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


# ── its gradients ───────────────────────────────────────────────────────────────────────────────────────


def vector(loss, parameters):
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters, retain_graph=True)])


def norm_of_the_difference(ours, theirs):
    assert theirs.norm() > 1e-3
    return (ours - theirs).norm() / theirs.norm()


@pytest.fixture(scope="module")
def batch_in_float64():
    """Samples of a random model with ends in every place; the policy has moved since."""
    torch.manual_seed(0)
    start = loop.new_model(0)
    model = copy.deepcopy(start).double()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.03 * torch.randn_like(p))
    rng = random.Random(0)
    ids = loop.encode([loop.make_prompt(rng) for _ in range(64)])
    completions = loop.sample(start, ids)
    completions[0, 0] = completions[1, 1] = completions[2, 2] = completions[3, 3] = completions[4, 4] = loop.END
    mask = loop.token_mask(completions).double()
    assert set(mask.sum(-1).tolist()) == {1, 2, 3, 4, 5}
    right = torch.randint(2, (64,)).double()
    with torch.no_grad():
        old = loop.log_probs(start.double(), ids, completions)
    ratio = torch.exp(loop.log_probs(model, ids, completions).detach() - old)
    assert 0.05 < ((ratio < 0.8) | (ratio > 1.2)).double().mean() < 0.95, "some are clipped and some are not"
    return model, ids, completions, mask, right, old


def test_every_replaced_line_has_the_gradient_of_its_row(batch_in_float64):
    """As the chapter's own cell finds it, here with completions of every length."""
    model, ids, completions, mask, right, old = batch_in_float64
    weights, logp = list(model.parameters()), loop.log_probs(model, ids, completions)
    rows = ["grpo", "reinforce", "rloo", "dr_grpo", "grpo", "gspo"]
    for (name, (advantage, loss_of, _)), row in zip(loop.METHODS.items(), rows, strict=True):
        algorithm = dataclasses.replace(ALGORITHMS[row], kl=())
        if row == "gspo":
            algorithm = dataclasses.replace(algorithm, gate=functools.partial(gates.clip, low=0.2, high=0.2))
        theirs = vector(policy_loss(algorithm, Batch(logp, old, mask, right, 8, budget=loop.BUDGET)), weights)
        ours = vector(loss_of(logp, old, advantage(right.view(8, 8)).flatten(), mask), weights)
        assert norm_of_the_difference(ours, theirs) <= 1e-6, name


def test_the_loop_learns_what_is_rewarded(monkeypatch):
    """A model that knows nothing learns in a few steps to end at once, if that is what is rewarded."""
    monkeypatch.setattr(loop, "is_right", lambda prompts, completions: (completions[:, 0] == loop.END).float())
    history = loop.train(loop.new_model(0), steps=12, prompts=8)
    assert sum(history[:2]) / 2 < 0.3
    assert sum(history[-2:]) / 2 > 0.9


def test_the_program_says_how_it_learns(capsys):
    source = shortened(
        Path(loop.__file__).read_text(encoding="utf-8"),
        ("steps: int = 1300", "steps: int = 5"),
        ("prompts: int = 16", "prompts: int = 1"),
        ("group: int = 16", "group: int = 2"),
    )
    exec(compile(source, "loop.py", "exec"), {"__name__": "__main__"})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("loss after imitation")
    assert [line[:14] for line in lines[1:]] == [f"steps {a + 1:2d} to {a + 10}" for a in range(0, 60, 10)]


# ── the exercises ────────────────────────────────────────────────────────────────────────────────────────────────


def verdict(check, function):
    """What the chapter's own checker prints."""
    names = {**vars(loop), "model": loop.new_model(0), "questions": ["128+345=", "999+001=", "000+000="] * 3}
    exec(next(cell.source for cell in CELLS if cell.id == "checkers"), names)
    with contextlib.redirect_stdout(io.StringIO()) as said:
        names["attempt"](names[check], function)
    return said.getvalue().strip()


def at_one(model, prompts, temperature):
    return loop.sample(model, prompts)


def the_other_way(model, prompts, temperature):
    return from_zero.my_temperature(model, prompts, 1 / temperature)


def most_probable(model, prompts, temperature):
    return model(prompts).logits.argmax(-1)[:, : loop.BUDGET]


def divided_after_the_softmax(model, prompts, temperature):
    p = model(prompts).logits[:, -1].softmax(-1) / temperature
    return torch.multinomial(p, loop.BUDGET, replacement=True)


def with_the_prompt(model, prompts, temperature):
    return torch.cat([prompts, from_zero.my_temperature(model, prompts, temperature)], dim=1)


def groups_crosswise(rewards, group):
    columns = rewards.view(group, -1).T
    return (columns == columns[:, :1]).all(-1).float().mean()


def only_the_wrong_groups(rewards, group):
    return (rewards.view(-1, group).sum(-1) == 0).float().mean()


def beyond_the_end(prompts, completions):
    right = loop.encode([loop.right_answer(prompt) for prompt in prompts])
    return (completions == right).float().mean(-1)


def divided_by_the_length(prompts, completions):
    mask = loop.token_mask(completions)
    right = loop.encode([loop.right_answer(prompt) for prompt in prompts])
    return ((completions == right) * mask).sum(-1) / mask.sum(-1)


@pytest.mark.parametrize(
    ("check", "solution", "wrong"),
    [
        (
            "check_temperature",
            from_zero.my_temperature,
            [at_one, the_other_way, most_probable, divided_after_the_softmax, with_the_prompt],
        ),
        ("check_equal_groups", from_zero.my_equal_groups, [groups_crosswise, only_the_wrong_groups]),
        ("check_partial", from_zero.my_partial, [beyond_the_end, divided_by_the_length, loop.is_right]),
    ],
)
def test_the_chapters_checkers_know_right_from_wrong(check, solution, wrong):
    assert verdict(check, solution) == "Right."
    said = [verdict(check, function) for function in [*wrong, lambda *_: None]]
    assert all(text.startswith("Not yet: ") for text in said), said
    assert verdict(check, lambda *_: ...) == "", "a stub is no wrong answer"


def test_every_exercise_of_the_chapter_has_a_hint():
    text = "\n".join(cell.source for cell in nbformat.read(CHAPTER, as_version=4).cells if "exercise-" in cell.id)
    assert text.count(" minutes)") == len(from_zero.HINTS) == 4
    assert "exchangeable" in from_zero.COIN  # the one with pencil


def test_the_chapter_is_read_in_one_sitting_and_its_main_point_in_ten_minutes():
    assert book_facts.reading_minutes(CHAPTER) <= 35
    assert book_facts.opening_minutes(CHAPTER) <= 10
    assert book_facts.exercise_minutes(CHAPTER) == 45  # beside these


def record():
    return json.loads((RESULTS / "from-zero.json").read_text(encoding="utf-8"))


def test_the_record_holds_the_same_seeds_of_every_method():
    runs = record()["runs"]
    seeds = {}
    for run in runs:
        seeds.setdefault(run["arm"], set()).add(run["seed"])
        assert len(run["right"]) == record()["steps"]
        assert all(0 <= right <= record()["completions_a_step"] for right in run["right"])
        assert run["cpu_seconds"] > 0
    assert seeds == {arm: set(range(6)) for arm in [*loop.METHODS, "GRPO, reward from a coin"]}


def test_which_start_was_replaced_follows_from_the_losses():
    """The first five seeds whose imitation worked are shown; each that did not has the next one in its place."""
    losses = {run["seed"]: run["imitation_loss"] for run in record()["runs"] if run["arm"] == "GRPO"}
    limit = record()["imitation_limit"]
    setup = next(cell.source for cell in CELLS if cell.id == "setup")
    assert f"STUCK = {limit}" in setup
    stuck = [seed for seed, loss in sorted(losses.items()) if loss > limit]
    assert record()["replaced"] == {str(seed): 5 + n for n, seed in enumerate(stuck)} == {"4": 5}
    captions = str([cell.outputs for cell in CELLS if cell.id == "curve"])
    assert captions.count(f"(its loss was {losses[4]:.3f}; section 2 says what is good)") == 1
    assert "one start of six" in CHAPTER.read_text(encoding="utf-8")


def test_the_path_is_about_two_hundred_lines():
    lines = [line for line in Path(loop.__file__).read_text(encoding="utf-8").splitlines() if line.strip()]
    assert 180 <= len(lines) <= 220


def test_a_run_of_the_script_can_be_repeated(monkeypatch):
    monkeypatch.syspath_prepend(str(RESULTS))
    spec = importlib.util.spec_from_file_location("from_zero", RESULTS / "from_zero.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    monkeypatch.setattr(script, "imitate", lambda model, seed: loop.imitate(model, steps=5, seed=seed))
    one, two = (script.run("RLOO", 7, steps=2) for _ in range(2))
    assert one["right"] == two["right"]
    assert len(one["right"]) == 2
