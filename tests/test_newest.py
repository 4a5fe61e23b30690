"""What the weekly job `newest` runs needs nothing that `pip install ".[test,scale]"` does not bring.

The job itself installs into an empty environment. Here everything is installed, so each package that the library and
these extras do not lead to is hidden; then the job's command is asked to collect its tests, and the examples in files
that import a hidden package somewhere are run.
"""

import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
WITHOUT = """
import sys
sys.modules.update(dict.fromkeys({hidden!r}))  # None there: no such module
import pytest
for words in {runs!r}:
    code = pytest.main([*words, "-qq", "-p", "no:cacheprovider"])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):  # a file may have no example
        sys.exit(code)
"""


def newest() -> dict[str, str]:
    """The commands of the job: the one that installs, and the one that runs the tests."""
    steps = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())["jobs"]["newest"]["steps"]
    commands = [step["run"].removeprefix("python -m ") for step in steps if "run" in step]
    return dict(command.split(" ", 1) for command in commands)


def brought(names: list[str]) -> set[str]:
    """The distributions that these requirements lead to, themselves included."""
    found: set[tuple[str, str]] = set()
    todo = [(Requirement(name), "") for name in names]
    while todo:
        requirement, extra = todo.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        for own in ("", *requirement.extras):
            key = (canonicalize_name(requirement.name), own)
            if key not in found:
                found.add(key)
                try:
                    todo += [(Requirement(text), own) for text in requires(requirement.name) or ()]
                except PackageNotFoundError:
                    found.remove(key)  # for another platform
    return {name for name, _ in found}


def without(hidden: list[str], *runs: list[str]) -> subprocess.CompletedProcess:
    """Run pytest with these words, one after the other, where the hidden packages cannot be imported."""
    script = WITHOUT.format(hidden=hidden, runs=runs)
    return subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)


def hidden_packages() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (extras,) = re.fullmatch(r'install "\.\[([\w,]+)\]"', newest()["pip"]).groups()
    more = [name for extra in extras.split(",") for name in project["optional-dependencies"][extra]]
    here = brought([*project["dependencies"], *more]) | {project["name"]}
    own = {path.stem for path in ROOT.iterdir()}  # what is imported from the clone, whoever else has that name
    every = packages_distributions()
    return sorted(
        name for name, of in every.items() if name not in own and not {canonicalize_name(x) for x in of} & here
    )


def imports_one_of(path: Path, packages: list[str]) -> bool:
    return bool(re.search(rf"\b(import|from) ({'|'.join(map(re.escape, packages))})\b", path.read_text()))


def test_its_command_needs_only_what_it_installs():
    hidden, command = hidden_packages(), newest()["pytest"].split()
    assert {"anywidget", "math_verify", "reasoning_gym", "jupyter_book"} <= {*hidden}
    assert not {"torch", "transformers", "peft", "numpy", "pytest", "hypothesis", "trl", "rlhf_minimal"} & {*hidden}
    files = [str(path) for path in sorted((ROOT / "rlhf_minimal").rglob("*.py")) if imports_one_of(path, hidden)]
    assert files
    done = without(hidden, [*command, "--collect-only"], ["--doctest-modules", *files])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "tests/enumeration/test_kl.py" in done.stdout


@pytest.mark.parametrize("workflow", sorted((ROOT / ".github" / "workflows").glob("*.yml")), ids=lambda path: path.stem)
def test_the_files_that_a_workflow_names_exist(workflow):
    """pytest would say so a week later, and `make` or a shell only on the server."""
    steps = [step for job in yaml.safe_load(workflow.read_text())["jobs"].values() for step in job["steps"]]
    words = [word for step in steps for word in re.split(r"[\s\"';]+", step.get("run", ""))]
    named = [word for word in words if re.match(r"(tests|book|notebooks|rlhf_minimal|\.ci)(/|$)", word)]
    assert named or workflow.stem != "test"
    assert [word for word in named if not (ROOT / word).exists()] == []
    modules = [word for one, word in zip(words, words[1:], strict=False) if one == "-m" and word.startswith("tests.")]
    assert [name for name in modules if not (ROOT / f"{name.replace('.', '/')}.py").exists()] == []


def test_its_command_computes_in_bfloat16_with_a_cache_and_with_lora():
    """Where a new version of transformers or peft has broken runs before."""
    named = [ROOT / word for word in newest()["pytest"].split() if word.startswith("tests/")]
    texts = {path: path.read_text() for place in named for path in (place.rglob("*.py") if place.is_dir() else [place])}
    for words in ('"--precision", "bfloat16"', "torch.autocast", "sample_compiled(", "add_lora(", '"--lora-rank"'):
        assert [path.name for path, text in texts.items() if words in text], words


def test_a_package_that_is_hidden_and_needed_is_noticed():
    done = without(["torch"], ["--doctest-modules", "--collect-only", "rlhf_minimal/functional/gates.py"])
    assert done.returncode != 0
    assert "import of torch halted" in done.stdout + done.stderr


WARNS = """
import logging, pytest, warnings

@pytest.mark.parametrize("category", [FutureWarning, DeprecationWarning, PendingDeprecationWarning])
def test_a_category(category):
    warnings.warn("use the other", category)

def test_a_log():
    logging.getLogger("transformers.modeling_utils").warning("`torch_dtype` is deprecated! Use `dtype` instead!")

def test_another_log():
    logging.getLogger("transformers.modeling_utils").warning("some weights are new")
"""


def test_what_a_newer_version_warns_of_fails_the_job_and_nobody_elses_tests():
    """The job sets the variable that the tests' configuration reads."""
    steps = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())["jobs"]["newest"]["steps"]
    (variables,) = [step["env"] for step in steps if "env" in step]
    file = ROOT / "tests" / f"test_warns_{os.getpid()}.py"
    file.write_text(WARNS)
    try:
        for more, failed in ((variables, 4), ({}, 0)):
            words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)]
            done = subprocess.run(words, cwd=ROOT, env=os.environ | more, capture_output=True, text=True)
            assert f"{5 - failed} passed" in done.stdout, done.stdout
            assert (f"{failed} failed" in done.stdout) == bool(failed)
    finally:
        file.unlink()
