"""Each row beside its paper and the production libraries, from rlhf_minimal/row_facts.yml and from the cells.

A mark of verification is the name of a setting in tests/test_trl.py or tests/test_golden.py, or of a case of
tests/data/field_losses.json. Names are looked up when the page is built: one that is not there stops the build.
"""

import ast
import json
from functools import cache

import rlhf_minimal
from data_files import ROOT, using
from rlhf_book import facts
from rlhf_book.facts import facts_of
from rows import cells

LIBRARIES = {"trl": "TRL 1.16", "verl": "verl 0.9", "openrlhf": "OpenRLHF 0.11"}
FIELD = ROOT / "tests" / "data" / "field_losses.json"
# kind of mark -> the dictionary of settings in a test file
WHERE = {
    "trl": ("tests/test_trl.py", "GRPO_SETTINGS", "test_grpo_trainer"),
    "golden": ("tests/test_golden.py", "SETTINGS", "test_loss"),
    "advantages": ("tests/test_golden.py", "ESTIMATORS", "test_advantages"),
}
LIVE = ("tests/test_trl.py", "tests/test_trl_self_distillation.py")  # where a mark "test" is looked for
KINDS = (*WHERE, "field", "test", "value")


@cache
def keys(file, dictionary):
    """The keys of a dictionary that a test file defines, read without running it."""
    for node in ast.parse((ROOT / file).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == dictionary:
            return {key.value for key in node.value.keys}
    raise LookupError(f"{file} has no dictionary {dictionary}")


@cache
def cases():
    """The cases of the libraries' numbers that `tests/test_golden_field.py` compares."""
    found = json.loads(FIELD.read_text(encoding="utf-8"))
    named = {case["id"] for case in found["cases"] + found["formulas"]}
    return named - keys("tests/test_golden_field.py", "NOT_YET")


@cache
def functions(file):
    return {n.name for n in ast.parse((ROOT / file).read_text(encoding="utf-8")).body if isinstance(n, ast.FunctionDef)}


def test_of(mark):
    """The test that stands behind a mark, as pytest names it; LookupError where there is none."""
    kind, colon, name = mark.partition(": ")
    if not colon or kind not in KINDS:
        raise LookupError(f"{mark!r} is no mark: expected one of {', '.join(KINDS)}, then a colon and a name")
    if kind == "test":
        file = next((path for path in LIVE if name in functions(path)), LIVE[0])
        test = name
    elif kind == "value":
        file, test = "tests/test_golden.py", "test_value_loss"
    elif kind == "field":
        if name not in cases():
            raise LookupError(f"tests/test_golden_field.py compares no case {name!r}, which is called verified")
        file, test = "tests/test_golden_field.py", f"test_a_case[{name}]"
    else:
        file, dictionary, test = WHERE[kind]
        if name not in keys(file, dictionary):
            raise LookupError(f"{file} does not try the setting {name!r}, which is called verified")
        test = f"{test}[{name}]"
    if test.split("[")[0] not in functions(file):
        raise LookupError(f"{file} has no {test}")
    return f"{file}::{test}"


def here(name):
    """The row as it runs."""
    return ", ".join(f"{column} {cell}" for column, cell in cells(name).items() if column != "algorithm")


def settings(entry):
    chosen = entry.get("set")
    if not chosen:
        return ""
    if isinstance(chosen, dict):
        arguments = ", ".join(f"{key}={value!r}" for key, value in chosen.items())
        return f"{entry['class']}({arguments})"
    return str(chosen)


def page():
    """Every row of the table under its title."""
    return "\n\n".join(markdown(name, facts_of(name)) for name in rlhf_minimal.ALGORITHMS)


def markdown(name, says_of, path=None):
    """One row: its paper, its cells, and a paragraph a library."""
    with using(path or facts.ROWS):
        text = [f"(fidelity-{name})=\n## {says_of.title}"]
        text += [f"**Paper.** {says_of.fidelity['paper']}", f"**Here.** {here(name)}."]
        for library, title in LIBRARIES.items():
            says = says_of.fidelity[library]
            text.append(f"**{title}.** {says['differs']}")
            if chosen := settings(says):
                text.append("```text\n" + chosen.replace("; ", "\n").replace(" --", "\n--") + "\n```")
            if not says.get("exported", True):
                text.append("The command `export` does not write these settings.")
            if marks := says.get("verified"):
                what = f" ({says['as']})" if "as" in says else ""
                tests = ", ".join(f"`{test_of(mark)}`" for mark in marks)
                text.append(f"```{{container}} verified\n✓ verified{what}: {tests}\n```")
    return "\n\n".join(text)
