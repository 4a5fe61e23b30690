"""`diagnose`: what stands out in a run's metrics, what may cause it, and where the book explains it."""

import argparse

from rlhf_minimal.cli.console import printable
from rlhf_minimal.lab.diagnosis import CAUSES, DATA, diagnose, likely
from rlhf_minimal.training.run_folder import RunFolder


def add_arguments(sub: argparse.ArgumentParser) -> None:
    """The command's argument."""
    sub.add_argument("run", metavar="RUN", help="A run folder, as train writes it.")


def run(args: argparse.Namespace) -> int:
    """Prints findings, the likeliest causes and what to test next."""
    folder = RunFolder(args.run)
    settings, history = folder.settings("train"), folder.history()
    findings = diagnose(history, 2e-2 if settings.get("precision") == "bfloat16" else 1e-3)
    print(printable(f"{args.run}: {settings.get('algorithm', 'a row')}, {len(history)} steps\n"))
    for finding in findings:
        print(f"stands out  {finding.rule}: {finding.figures}\n            ({finding.why})")
    if not findings:
        print(DATA["nothing"])
    for place, name in enumerate(likely(findings), start=1):
        print("\n{}. {what}\n   test: {test}\n   read: {section}".format(place, **CAUSES[name]))
    return 0
