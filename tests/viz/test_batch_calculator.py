"""The batch calculator: its numbers are Python's, Python's are those of TRL's own sampler and of what `export` writes.

The module runs under Node here; tests/browser runs the same comparison inside Chromium.
"""

import json
import re
from functools import partial
from pathlib import Path

import pytest
import traitlets

from rlhf_book.figures.widgets import BatchCalculator, in_a_notebook
from rlhf_minimal import ALGORITHMS
from rlhf_minimal.config import Config
from rlhf_minimal.lab.export import trl_arguments, verl_overrides
from rlhf_minimal.tasks import get_task
from rlhf_minimal.train import Recipe
from tests.viz.batches import LIBRARIES, UPDATES, batches
from tests.viz.node import run_in_node

MODULE = Path(__file__).resolve().parents[2] / "notebooks" / "rlhf_book" / "figures" / "batch_calculator.mjs"
TRL = ("steps_per_generation", "gradient_accumulation_steps", "num_iterations", "processes", "num_generations")
VERL = ("train_batch_size", "rollout.n", "ppo_mini_batch_size", "ppo_epochs", "gpus")
CASES = [
    *(["trl", dict(zip(TRL, v, strict=True))] for v in [(4, 4, 1, 1, 8), (16, 4, 3, 2, 4), (6, 4, 1, 1, 4)]),
    *(["trl", dict(zip(TRL, v, strict=True))] for v in [(1, 4, 2, 1, 8), (3, 4, 2, 2, 8), (4, 4, 1, 1, 7)]),
    *(["verl", dict(zip(VERL, v, strict=True))] for v in [(128, 8, 128, 1, 8), (64, 5, 16, 2, 4), (64, 4, 24, 1, 2)]),
    *(["verl", dict(zip(VERL, v, strict=True))] for v in [(32, 4, 8, 3, 3), (32, 4, 8, 0, 1)]),
    ["prime-rl", {"batch_size": 512, "max_async_level": 2}],
    *(["prime-rl", {"max_async_level": level}] for level in (0, 1.5, -1)),
    ["prime-rl", {"batch_size": 100}],
    ["verl", {"gpus": 10**6 + 1}],
    ["verl", {"ppo_epochs": 10**6}],
    ["trl", {"num_iterations": 10**6}],
    *([name, {}] for name in LIBRARIES),
]


def python(library, numbers):
    return batches(library, **{name.replace(".", "__"): value for name, value in numbers.items()})


def compare(computed):
    """Used by tests/browser, too."""
    assert len(computed) == len(CASES)
    refused = set()
    for (library, numbers), got in zip(CASES, computed, strict=True):
        if "problem" in got:
            refused.add(got["problem"])
            with pytest.raises(ValueError, match=f"^{re.escape(got['problem'])}$"):
                python(library, numbers)
            continue
        found = python(library, numbers)
        assert got == {
            "prompts": found.prompts,
            "completions": found.completions,
            "step": found.step,
            "micro": found.micro,
            "rollouts": found.rollouts,
            "ages": list(found.ages),
        }
    assert len(refused) == 9


in_node = partial(run_in_node, MODULE)


def test_its_numbers_are_pythons():
    compare(in_node(f"console.log(JSON.stringify({json.dumps(CASES)}.map((c) => maths.compute(...c))))"))
    assert in_node("console.log(JSON.stringify(maths.libraries))") == LIBRARIES


@pytest.mark.parametrize(
    ("case", "parts"),
    [
        (["trl", {"steps_per_generation": 4}], ["4 prompts, 32 completions in all", "a clip has nothing to do"]),
        (
            ["trl", {}],
            ["A rollout pays for 4 updates", "Of these, 1 is on-policy and 3 off-policy", "by 3 updates"],
        ),
        (["trl", {"steps_per_generation": 2}], ["2 rollouts pay for 1 update of 32 completions"]),
        (
            ["trl", {"num_generations": 7}],
            ["This does not work: 128 completions are no multiple of num_generations, 7"],
        ),
        (["verl", {"ppo_mini_batch_size": 128}], ["A rollout pays for 1 update of 1024", "on-policy"]),
        (["prime-rl", {}], ["Every update is off-policy, by up to 1 update."]),
        (["prime-rl", {"max_async_level": 0}], ["1 update of 256 completions", "its own weights: on-policy"]),
        (["verl", {"gpus": 0}], ["gpus: expected a whole number from 1 to 1000000, got 0"]),
    ],
)
def test_it_says_what_is_off_policy(case, parts):
    text = in_node(f"console.log(JSON.stringify(maths.words(...{json.dumps(case)})))")
    for part in parts:
        assert part in text


def micro_batch_by_micro_batch(span, micro, updates):
    """The ages in TRL's loop: a rollout whenever `span` micro-batches are used up, an update after `micro` of them."""
    made, drawn, oldest = 0, 0, 0
    for at in range(updates * micro):
        if at % span == 0:
            drawn = made
        oldest = max(oldest, made - drawn)
        if at % micro == micro - 1:
            yield oldest
            oldest, made = 0, made + 1


@pytest.mark.parametrize("span", range(1, 25))
def test_the_formula_for_ages_is_what_counting_micro_batches_gives(span):
    for micro in range(1, 25):
        found = batches(
            "trl",
            steps_per_generation=span,
            gradient_accumulation_steps=micro,
            per_device_train_batch_size=4,
            num_generations=2,
        )
        assert found.rollouts * span == len(found.ages) * micro
        assert found.ages == tuple(micro_batch_by_micro_batch(span, micro, len(found.ages)))
        assert found.ages * 2 == tuple(micro_batch_by_micro_batch(span, micro, 2 * len(found.ages)))  # a cycle it is
        assert found.off_policy == sum(age > 0 for age in found.ages)


@pytest.mark.parametrize(
    ("typed", "number"), [("1e3", 1000), (" 8 ", 8), ("2.5", 2.5), ("", None), ("  ", None), ("8 gpus", None)]
)
def test_what_is_typed_is_read_whole(typed, number):
    """A blank and a word are no number, which JSON writes as null; 2.5 is one, and refused as a setting."""
    assert in_node(f"console.log(JSON.stringify(maths.number({json.dumps(typed)})))") == number
    said = in_node(f"console.log(JSON.stringify(maths.wrong('gpus', maths.number({json.dumps(typed)}))))")
    if isinstance(number, int):
        assert said is None
    else:
        assert said == f"gpus: expected a whole number from 1 to 1000000, got {number or 'nothing'}"


@pytest.mark.parametrize("updates", [1, 48, 49, 512])
def test_the_drawing_is_called_what_it_is(updates):
    found = f"maths.drawn(maths.compute('verl', {{train_batch_size: {32 * updates}}}))"
    ages, label = in_node(f"console.log(JSON.stringify({found}))")
    assert ages == list(range(min(updates, 48)))
    many = f"{updates} update{'s' * (updates > 1)}"
    assert label == f"ages of {'the first 48 of ' * (updates > 48)}{many}: {', '.join(map(str, ages))}"


@pytest.mark.parametrize("prompts", [8, 16])
@pytest.mark.parametrize(("epochs", "minibatches", "micro"), [(1, 1, 1), (3, 2, 2), (2, 4, 1)])
def test_what_export_writes_means_what_our_config_means(prompts, epochs, minibatches, micro):
    config = Config(prompts=prompts, group_size=4, epochs=epochs, minibatches=minibatches, micro_batches=micro)
    recipe = Recipe(ALGORITHMS["grpo"], get_task("addition"), config)
    arguments, overrides = trl_arguments(recipe), verl_overrides(recipe)
    trl = batches("trl", **{name: arguments[name] for name in LIBRARIES["trl"] if name != "processes"})
    theirs = {name.split(".", 1)[1].replace("actor.", ""): value for name, value in overrides.items() if "." in name}
    verl = batches("verl", gpus=1, **{n.replace(".", "__"): theirs[n] for n in LIBRARIES["verl"] if n != "gpus"})
    for found in (trl, verl):
        assert (found.prompts, found.completions) == (prompts, 4 * prompts)
        assert found.step * minibatches == found.completions
        assert found.ages == tuple(range(epochs * minibatches))
        assert found.micro == micro


def test_trls_config_counts_the_same(tmp_path):
    trl = pytest.importorskip("trl")
    said = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "num_generations": 8}
    for more in ({}, {"steps_per_generation": 6}):
        args = trl.GRPOConfig(output_dir=str(tmp_path), bf16=False, use_cpu=True, report_to=[], **said, **more)
        found = batches("trl", **said, steps_per_generation=args.steps_per_generation)
        assert found.completions == args.generation_batch_size


def test_the_widget_carries_its_source_its_state_and_its_words():
    widget = BatchCalculator("verl", numbers={"ppo_epochs": 2})
    state = widget.get_state()
    assert (state["library"], state["numbers"]) == ("verl", {"ppo_epochs": 2})
    assert state["_esm"] == in_a_notebook(MODULE)
    assert BatchCalculator.words in repr(widget)
    source = MODULE.read_text(encoding="utf-8")
    assert "http" not in source
    assert len(source.splitlines()) < 175


@pytest.mark.parametrize(
    "arguments", [{"library": "unsloth"}, {"numbers": {"gpus": 1.5}}, {"numbers": {"gpus": "two"}}]
)
def test_the_widget_refuses_what_it_cannot_show(arguments):
    with pytest.raises(traitlets.TraitError):
        BatchCalculator(**arguments)


@pytest.mark.parametrize(
    ("library", "settings", "said"),
    [
        ("nemo", {}, "expected one of trl, verl, prime-rl"),
        ("trl", {"gpus": 2}, "trl has no gpus here"),
        ("trl", {"processes": 0}, "processes: expected a whole number from 1 to 1000000, got 0"),
        ("trl", {"processes": 1.5}, "processes: expected a whole number from 1 to 1000000, got 1.5"),
        ("prime-rl", {"max_async_level": -1}, "max_async_level: expected a whole number from 0 to"),
        ("verl", {"ppo_epochs": UPDATES}, "too many updates to count"),
        ("verl", {"train_batch_size": 100}, "100 prompts are no multiple of ppo_mini_batch_size, 32"),
    ],
)
def test_settings_that_mean_nothing_are_refused(library, settings, said):
    with pytest.raises(ValueError, match=said):
        batches(library, **settings)
