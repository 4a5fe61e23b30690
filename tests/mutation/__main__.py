"""Break the library in every small way that the mutator knows, and see whether a test goes red: `make mutants`.

    python -m tests.mutation                what has changed since it was last tried; writes record.json and REPORT.md
    python -m tests.mutation gates kl.py    of this, only files whose name contains one of these words
    python -m tests.mutation --all          everything anew
    python -m tests.mutation --stale        only say what has changed since it was last tried (a second)
    python -m tests.mutation --report       only write REPORT.md, with what is stale named in it (a second)

Two mutants are tried at a time, at low priority; `-j N` makes it N. A run that was stopped goes on where it was.
The exit status is 1 when a survivor has no explanation in explained.json, or fewer than 95 % were killed.
"""

import argparse
import os
import sys
from pathlib import Path

from tests.mutation.record import Now, Record
from tests.mutation.report import REPORT, report
from tests.mutation.sources import ROOT


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="*", help="only files of the library whose path contains one of these words")
    parser.add_argument("--all", action="store_true", help="try everything anew")
    parser.add_argument("--stale", action="store_true", help="only say what has changed since it was last tried")
    parser.add_argument("--report", action="store_true", help="only write REPORT.md")
    parser.add_argument("-j", type=int, default=2, metavar="N", help="mutants at a time (2)")
    parser.add_argument("--measure", type=Path, metavar="FILE", help="append the seconds of each mutant to a file")
    arguments = parser.parse_args(words)
    os.chdir(ROOT)
    record = Record.load()
    if arguments.all:
        record.functions = {f: entry for f, entry in record.functions.items() if not chosen(f[0], arguments.files)}
    now = Now(record)
    if arguments.stale:
        stale = now.stale()
        print("\n".join(f"{file}, {function}: {why}" for (file, function), why in stale.items()))
        print(f"{len(stale)} of {len(now.mutants)} functions are stale" if stale else "nothing is stale")
        return 0
    if not arguments.report:
        work = [(function, i) for function, i in now.to_try() if chosen(function[0], arguments.files)]
        print(f"{len(work)} of {sum(map(len, now.mutants.values()))} mutants to try", flush=True)
        if work:
            from tests.mutation.run import run  # imports torch, which takes longer than all of --stale

            if code := run(now, work, arguments.j, arguments.measure):
                return code
            now = Now(Record.load())
    text, wrong = report(now)
    REPORT.write_text(text)
    print("\n".join(wrong) or "every survivor is explained", f"\nwrote {REPORT.relative_to(ROOT)}")
    return int(bool(wrong))


def chosen(file: str, words: list[str]) -> bool:
    return not words or any(word in file for word in words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
