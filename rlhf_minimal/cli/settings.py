"""The settings of a run, each declared once: a flag with its help, a default, a line of `config.json` with its type."""

import argparse
import dataclasses
import inspect
import platform
import re
import sys
import time
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import torch
import transformers

from rlhf_minimal import __version__
from rlhf_minimal.cli.console import printable
from rlhf_minimal.training.run_folder import RunFolder
from rlhf_minimal.vocabulary import TokenizerVocabulary


@dataclass(frozen=True)
class Setting:
    """One setting.

    Args:
        name: Its name in `config.json`; the flag is the same with dashes.
        kind: The type of its value: a type, a type or None, or a `Literal` of words.
        default: What a new run takes unless told otherwise.
        about: What it means, in sentences; the help of the flag. Empty for what has no flag: `config.json` keeps it.
        said: How help names the default, where its value does not say enough.
    """

    name: str
    kind: Any
    default: Any
    about: str = ""
    said: str = ""

    @property
    def help(self) -> str:
        """What `--help` prints."""
        shown = f"{self.default:g}" if isinstance(self.default, float) else str(self.default).lower()
        return f"{self.about.removesuffix('.')} (default {self.said or shown})."


def fields_of(config: type, said: Mapping[str, str] = {}, **defaults: Any) -> list[Setting]:
    """A setting for every field of a dataclass; what its docstring says of a field under `Args:` is the help.

    What ends with "; None: ..." says how help names a default of None.

    Args:
        config: The dataclass.
        said: How help names a field's default, where its value does not say enough.
        defaults: In place of the class's own.

    Example:
        >>> from rlhf_minimal.fit import FitConfig
        >>> fields_of(FitConfig, steps=9)[0].help
        'Optimiser steps (default 9).'
    """
    kinds = typing.get_type_hints(config)
    entries = re.findall(r"^    (\w+): (.+(?:\n        .+)*)", inspect.getdoc(config) or "", re.MULTILINE)
    about = {name: _as_help(text, kinds).removesuffix(".").partition("; None: ") for name, text in entries}
    return [
        Setting(f.name, kinds[f.name], defaults.get(f.name, f.default), meaning, said.get(f.name, without))
        for f in dataclasses.fields(config)
        for meaning, _, without in [about[f.name]]
    ]


def _as_help(text: str, fields: Iterable[str]) -> str:
    """A docstring's words on a field as those on a flag: names of other fields become flags."""

    def spoken(code: re.Match[str]) -> str:
        words = re.sub(r"\w+", lambda m: f"--{m[0].replace('_', '-')}" if m[0] in fields else m[0], code[1])
        return re.sub(r'="(\w+)"', r" \1", words)

    return re.sub("`([^`]*)`", spoken, " ".join(text.split()))


def add_flags(sub: Any, settings: Sequence[Setting], *, filled: bool = False) -> None:
    """A flag for each setting that has one.

    Args:
        sub: A command's grammar, or a group of its flags.
        settings: What to add.
        filled: Whether a flag that is not given takes its default. If False it takes None, so that a resumed run can
            keep its own value.
    """
    for setting in (setting for setting in settings if setting.about):
        options = typing.get_args(setting.kind)  # of `float | None` or of `Literal["a", "b"]`
        kind = options[0] if options else setting.kind
        words = options if isinstance(kind, str) else None
        switch = (
            {"nargs": "?", "const": "on"} if words and set(words) == {"off", "on"} else {}
        )  # `--fast` is `--fast on`
        sub.add_argument(
            "--" + setting.name.replace("_", "-"),
            **switch,
            type=str if words else kind,
            choices=words,
            metavar=None if words or kind is str else kind.__name__.upper(),
            default=setting.default if filled else None,
            help=setting.help,
        )


def add_run_flags(sub: Any, *, out: str = "a new one under runs/") -> None:
    """The flags that say where a run is, and whether it goes on."""
    sub.add_argument("--out", help=f"Run folder (default: {out}).")
    sub.add_argument("--resume", action="store_true", help="Continue the run in --out with its own settings.")
    sub.add_argument("--overwrite", action="store_true", help="Replace the run in --out.")


def settings_of_run(
    args: argparse.Namespace, declared: Sequence[Setting], command: str, name: str, may_change: tuple[str, ...]
) -> tuple[RunFolder, dict[str, Any], dict[str, Any]]:
    """The folder of a run and its settings: what was given, else what a resumed run keeps, else the defaults.

    Args:
        args: The command's flags, `out`, `resume` and `overwrite` among them.
        declared: Every setting of the command.
        command: Its name, which the run keeps.
        name: What a new run is called, before its task and the time.
        may_change: Settings that a resumed run may be given anew.

    Returns:
        The folder, all settings, and those that stand in the command line.

    Raises:
        ValueError: If there is no such run to resume, or if it was begun with another setting than the one given.
    """
    given = {s.name: getattr(args, s.name) for s in declared if getattr(args, s.name, None) is not None}
    # `programs`: the checksums of rows and tasks of one's own (see `user_code`).
    defaults = {"command": command, "programs": {}, **{s.name: s.default for s in declared}}
    settings = {**defaults, **given, "versions": own_versions()}
    # The name of a task may hold a path or parameters, which have no place in a folder's name.
    plain = re.sub(r"[^\w.]+", "-", f"{name}-{settings['task']}")
    folder = RunFolder(args.out or f"runs/{plain}-{time.strftime('%Y%m%d-%H%M%S')}")
    if args.resume:
        settings |= _kept_settings(args, folder, declared, command, given, may_change)
    return folder, settings, given


def kinds_of(declared: Sequence[Setting]) -> dict[str, Any]:
    """The type of every setting of a run, to check its `config.json`."""
    return {"programs": dict, **{setting.name: setting.kind for setting in declared}}


def _kept_settings(
    args: argparse.Namespace,
    folder: RunFolder,
    declared: Sequence[Setting],
    command: str,
    given: Mapping[str, Any],
    may_change: tuple[str, ...],
) -> dict[str, Any]:
    """The settings with which a resumed run was begun, but for those that are given anew."""
    if args.overwrite or not args.out:
        raise ValueError("--resume needs --out with the run to continue, and no --overwrite")
    kept = folder.settings(command, kinds_of(declared))
    folder.check_resumable(kept, may_change)
    before = {"day": str(TokenizerVocabulary.day), **kept.pop("versions")}
    TokenizerVocabulary.day = date.fromisoformat(str(before["day"]))
    _warn_of_other_versions(folder, before)
    for setting, value in given.items():
        if setting not in may_change and kept[setting] != value:
            *some, last = [f"--{free.replace('_', '-')}" for free in may_change]
            flags = f"{', '.join(some)} and {last}" if some else last
            raise ValueError(
                f"the run in {folder.path} has {setting} {kept[setting]}, not {value}; a resumed run keeps its "
                f"settings, only {flags} may change"
            )
    return {**kept, **given, "versions": own_versions()}


def check_read(settings: Mapping[str, Any], given: Iterable[str], goes_with: Mapping[str, tuple[str, Any]]) -> None:
    """Refuses flags that nothing would read.

    Args:
        settings: The run's.
        given: Those that stand in the command line.
        goes_with: The name of a setting, and which other one needs which value for it; None: any but None or "none".
    """
    for name, (other, value) in goes_with.items():
        if name in given and (settings[other] in (None, "none") if value is None else settings[other] != value):
            flag, needed = (f"--{word.replace('_', '-')}" for word in (name, other))
            if other in given:
                advice = f"leave it out, or give {needed} {value or 'N'}"
                raise ValueError(f"{flag} changes nothing with {needed} {settings[other]}: {advice}")
            raise ValueError(f"{flag} changes nothing by itself: give {needed} {value or 'N'} as well")


def own_versions() -> dict[str, str]:
    """The versions that the numbers of a run may depend on, and the day that its chat template is told."""
    libraries = {"rlhf_minimal": __version__, "torch": torch.__version__, "transformers": transformers.__version__}
    return {**libraries, "python": platform.python_version(), "day": str(TokenizerVocabulary.day)}


def _warn_of_other_versions(folder: RunFolder, before: dict[str, str]) -> None:
    """One line if a run is resumed under other versions than it was begun with: its last bits may then differ."""
    changed = [
        f"{name} {printable(str(before.get(name)))} -> {own}"
        for name, own in own_versions().items()
        if before.get(name) != own
    ]
    if changed:
        print(
            f"warning: {folder.path} was begun with other versions ({', '.join(changed)}); numbers may differ from "
            "those of an uninterrupted run",
            file=sys.stderr,
        )
