"""`{api} rlhf_minimal.functional`: every public module of a package, from its docstrings, without a list to keep.

The line is replaced by one `automodule` a module before the page is parsed, so that a new file has its place in the
book on the day on which it is written. `{commands}` is replaced in the same way by what the parser of the command line
says for `--help`, one section a command.
"""

import argparse
import ast
import re
from pathlib import Path

from data_files import ROOT

LINE = re.compile(r"^```\{api\} ([\w.]+)\n```$", re.MULTILINE)

COMMANDS = re.compile(r"^```\{commands\}\n```$", re.MULTILINE)
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


def expand(app, docname, source):
    def sections(line):
        try:
            found = modules(line[1])
        except ValueError as problem:
            raise ValueError(f"{docname}: {problem}") from problem
        return "\n".join(SECTION.format(name=m.removeprefix("rlhf_minimal."), module=m) for m in found)

    source[0] = LINE.sub(sections, source[0])
    source[0] = COMMANDS.sub(lambda line: commands(), source[0])


def note_dependencies(app, env):
    """An API page is stale as soon as a file of its package is newer, or there is a new one."""
    stale = []
    for docname in env.found_docs:
        if docname.startswith("book/api/") and (path := Path(env.doc2path(docname))).exists():
            names = LINE.findall(path.read_text(encoding="utf-8"))
            sources = [source(m) for name in names for m in modules(name)]
            newest = max((_modified(s) for s in sources), default=0)
            if docname in env.all_docs and newest > env.all_docs[docname] / 1e6:
                stale.append(docname)
    return stale


def _modified(path: Path) -> float:
    file = path.with_suffix(".py")
    return (file if file.exists() else path / "__init__.py").stat().st_mtime


def setup(app):
    app.connect("source-read", expand)
    app.connect("env-get-outdated", lambda app, env, added, changed, removed: note_dependencies(app, env))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
