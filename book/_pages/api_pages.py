"""The reference: every public module of a package, from its docstrings, without a list to keep; and the commands.

A module becomes one `automodule`, so that a new file has its place in the book on the day on which it is written.
Commands are what the parser of the command line says for `--help`, one section each.
"""

import argparse
import ast
from pathlib import Path

from data_files import ROOT

EXAMPLES = {
    "train": "train grpo --seed 0 --out runs/grpo",
    "pretrain": "pretrain --task reviews --out runs/pretrain",
    "sft": "sft --start runs/pretrain --out runs/sft",
    "reward": "reward --start runs/sft --out runs/reward",
    "prefer": "prefer dpo --start runs/sft --out runs/dpo",
    "sample": 'sample runs/grpo --prompt "128+345=" --temperature 0',
    "evaluate": "evaluate runs/grpo -n 500",
    "diagnose": "diagnose runs/grpo",
    "table": "table",
    "memory": "memory ppo --reward-model policy --sequences 64",
    "export": "export runs/grpo --to trl",
    "diff": "diff dapo grpo",
}
WIDTH = 88

SECTION = """\
## `{name}`

```{{eval-rst}}
.. automodule:: {module}
   :members:
   :member-order: bysource
   :ignore-module-all:
```
"""


def source(name: str) -> Path:
    """Where a module of either package lies, without its suffix: the second one is among the notebooks."""
    places = [root.joinpath(*name.split(".")) for root in (ROOT, ROOT / "notebooks")]
    return next((path for path in places if path.with_suffix(".py").exists() or path.is_dir()), places[0])


def sections(name: str) -> str:
    """A section a module."""
    return "\n".join(SECTION.format(name=one.removeprefix("rlhf_minimal."), module=one) for one in modules(name))


def modules(name: str) -> list[str]:
    """A module, or all the modules of a package, its own file first where it defines something."""
    path = source(name)
    if path.with_suffix(".py").exists():
        return [name]
    if not path.is_dir():
        raise ValueError(f"there is no module {name} to write an API page for")
    found = [file for file in sorted(path.glob("*.py")) if not file.stem.startswith("_") or _defines(file)]
    return [name if file.stem == "__init__" else f"{name}.{file.stem}" for file in found if file.stem != "__main__"]


def _defines(file: Path) -> bool:
    body = ast.parse(file.read_text(encoding="utf-8")).body
    kinds = ast.FunctionDef | ast.ClassDef
    return file.stem == "__init__" and any(isinstance(n, kinds) and not n.name.startswith("_") for n in body)


def commands() -> str:
    """Every subcommand with an example and its help."""
    from rlhf_minimal.cli import parser

    choices = next(a for a in parser()._actions if isinstance(a, argparse._SubParsersAction)).choices
    text = []
    for name, sub in choices.items():
        sub.formatter_class = lambda prog: argparse.HelpFormatter(prog, width=WIDTH)  # not the terminal's
        text.append(f"## `{name}`\n\n```sh\npython -m rlhf_minimal {EXAMPLES[name]}\n```\n")
        text.append(f"```text\n{sub.format_help()}```\n")
    return "\n".join(text)
