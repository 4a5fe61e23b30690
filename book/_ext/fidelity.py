"""`{fidelity}`: each row beside its paper and three libraries, from book/data/fidelity.yml and from the rows.

A mark of verification is the name of a setting in tests/test_trl.py or tests/test_golden.py. Names are looked up in
those files when the page is built: one that is not there stops the build.
"""

import ast
from functools import cache
from pathlib import Path

from data_files import read, told_on_the_page, using
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

import rlhf_minimal

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "book" / "data" / "fidelity.yml"
LIBRARIES = {"trl": "TRL 1.16", "verl": "verl 0.9", "openrlhf": "OpenRLHF 0.11"}
# kind of mark -> the dictionary of settings in a test file
WHERE = {
    "trl": ("tests/test_trl.py", "GRPO_SETTINGS", "test_grpo_trainer"),
    "golden": ("tests/test_golden.py", "SETTINGS", "test_loss"),
    "advantages": ("tests/test_golden.py", "ESTIMATORS", "test_advantages"),
}


@cache
def entries():
    return read(DATA)


@cache
def keys(file, dictionary):
    """The keys of a dictionary that a test file defines, read without running it."""
    for node in ast.parse((ROOT / file).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == dictionary:
            return {key.value for key in node.value.keys}
    raise LookupError(f"{file} has no dictionary {dictionary}")


@cache
def functions(file):
    return {n.name for n in ast.parse((ROOT / file).read_text(encoding="utf-8")).body if isinstance(n, ast.FunctionDef)}


def test_of(mark):
    """The test that stands behind a mark, as pytest names it; LookupError where there is none."""
    kind, colon, name = mark.partition(": ")
    if not colon or kind not in (*WHERE, "test", "value"):
        kinds = ", ".join((*WHERE, "test", "value"))
        raise LookupError(f"{mark!r} is no mark: expected one of {kinds}, then a colon and a name")
    if kind == "test":
        file, test = "tests/test_trl.py", name
    elif kind == "value":
        file, test = "tests/test_golden.py", "test_value_loss"
    else:
        file, dictionary, test = WHERE[kind]
        if name not in keys(file, dictionary):
            raise LookupError(f"{file} does not try the setting {name!r} that book/data/fidelity.yml calls verified")
        test = f"{test}[{name}]"
    if test.split("[")[0] not in functions(file):
        raise LookupError(f"{file} has no {test}")
    return f"{file}::{test}"


def here(name):
    """The row as it runs."""
    head, _, line = rlhf_minimal.table({name: rlhf_minimal.ALGORITHMS[name]}).splitlines()
    names, cells = ([part.strip() for part in text.strip("|").split("|")] for text in (head, line))
    return ", ".join(f"{n} {c}" for n, c in list(zip(names, cells, strict=True))[1:])


def settings(entry):
    chosen = entry.get("set")
    if not chosen:
        return ""
    if isinstance(chosen, dict):
        arguments = ", ".join(f"{key}={value!r}" for key, value in chosen.items())
        return f"{entry['class']}({arguments})"
    return str(chosen)


def markdown(name, entry):
    lines = [f"**Paper.** {entry['paper']}", "", f"**Here.** {here(name)}.", ""]
    for library, title in LIBRARIES.items():
        says = entry[library]
        lines += [f"**{title}.** {says['differs']}", ""]
        if chosen := settings(says):
            lines += [*("```text", *chosen.replace("; ", "\n").replace(" --", "\n--").splitlines(), "```"), ""]
        if marks := says.get("verified"):
            what = f" ({says['as']})" if "as" in says else ""
            tests = ", ".join(f"`{test_of(mark)}`" for mark in marks)
            lines += ["```{container} verified", f"✓ verified{what}: {tests}", "```", ""]
    return lines


class Fidelity(SphinxDirective):
    required_arguments = 1

    @told_on_the_page
    def run(self):
        name = self.arguments[0]
        for file in (DATA, ROOT / "tests/test_trl.py", ROOT / "tests/test_golden.py"):
            self.env.note_dependency(str(file))
        with using(DATA):
            if name not in entries():
                raise ValueError(f"there is no row {name!r}; there are {', '.join(map(str, entries()))}")
            text = markdown(name, entries()[name])
        box = nodes.container(classes=["fidelity"])
        self.state.nested_parse(StringList(text, source=str(DATA)), self.content_offset, box)
        return [box]


def setup(app):
    app.add_directive("fidelity", Fidelity)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
