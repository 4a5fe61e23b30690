"""The reference: every public module of a package, from its docstrings, without a list to keep; and the commands.

A module becomes one `automodule`, so that a new file has its place in the book on the day on which it is written.
Commands are what the parser of the command line says for `--help`, one section each.
"""

import argparse
import ast
import importlib.util
import pkgutil
from pathlib import Path

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


def sections(name: str) -> str:
    """A section a module."""
    return "\n".join(SECTION.format(name=one.removeprefix("rlhf_minimal."), module=one) for one in modules(name))


def modules(name: str) -> list[str]:
    """A module, or all the modules of a package, its own file first where it defines something."""
    spec = importlib.util.find_spec(name)
    if spec is None:
        raise ValueError(f"there is no module {name} to write an API page for")
    inside = [one.name for one in pkgutil.iter_modules(spec.submodule_search_locations or ()) if not one.ispkg]
    whole = [name] if not inside or _defines(Path(spec.origin or "")) else []
    return whole + [f"{name}.{one}" for one in inside if not one.startswith("_")]


def _defines(file: Path) -> bool:
    body = ast.parse(file.read_text(encoding="utf-8")).body
    return any(isinstance(n, ast.FunctionDef | ast.ClassDef) and not n.name.startswith("_") for n in body)


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
