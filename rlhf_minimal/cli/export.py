"""`export`: the files with which a production library repeats a run."""

import argparse
from pathlib import Path

from rlhf_minimal.cli.journal import check_writable
from rlhf_minimal.cli.python_file import is_program
from rlhf_minimal.cli.settings import kinds_of
from rlhf_minimal.cli.starts import load_start
from rlhf_minimal.cli.train_flags import SETTINGS, recipe_of
from rlhf_minimal.lab.export import ONLY_VERIFIER, export_trl, export_verl
from rlhf_minimal.training.run_folder import RunFolder

# What each library is called, what writes its files, and what starts it from them.
LIBRARIES = {"trl": ("TRL 1.16", export_trl, "python train.py"), "verl": ("verl 0.9", export_verl, "bash train.sh")}


def add_arguments(sub: argparse.ArgumentParser) -> None:
    """The command's flags."""
    sub.add_argument("run", metavar="RUN", help="Run folder of train.")
    libraries = " or ".join(name for name, _, _ in LIBRARIES.values())
    sub.add_argument("--to", choices=LIBRARIES, required=True, help=f"The library: {libraries}.")
    sub.add_argument(
        "--row", metavar="FILE.py:NAME", help="The row of your own that the run trains: the Python file is run."
    )
    sub.add_argument("--out", help="Folder to write (default: the run's, with -trl or -verl at the end).")
    sub.add_argument("--overwrite", action="store_true", help="Replace an existing export.")


def run(args: argparse.Namespace) -> int:
    """Writes the folder, and prints the command that trains it."""
    folder = RunFolder(args.run)
    out = Path(args.out or f"{folder.path}-{args.to}")
    settings = folder.settings("train", kinds_of(SETTINGS))
    if out.exists() and not args.overwrite:
        raise ValueError(f"{out} exists already: --overwrite replaces it")
    if out.exists() and not (out / "model").is_dir():
        raise ValueError(f"{out} was not written by export, so it is not replaced; name another folder with --out")
    check_writable(out)
    if settings["optimizer"] != "adamw":
        raise ValueError(f"only runs with AdamW are exported, and {folder.path} has {settings['optimizer']}")
    if settings["reward_model"] is not None or settings["step_reward"] is not None:
        raise ValueError(ONLY_VERIFIER)
    if is_program(settings["task"]):
        raise ValueError(f"only tasks of the library are exported, and {folder.path} has {settings['task']}")
    recipe = recipe_of(settings, args.row, None)
    policy, vocabulary, _ = load_start(settings["start"], recipe.task, recipe.config.seed, settings["chat"])
    _, write, words = LIBRARIES[args.to]
    write(recipe, policy, vocabulary, out)
    print(f"wrote {out}; run {words} in that folder to train")
    return 0
