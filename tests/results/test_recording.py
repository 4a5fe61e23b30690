"""The file of recorded runs: several may write it at once, it is whole at any time, and each line says its versions."""

import json
import multiprocessing
import os
import runpy
import signal
import sys
import time

import pytest

from rlhf_book.records import recorded_with, versions_of
from tests.results.scripts import FOLDER, module

recording = module("recording")
OWN = recording.versions()

SCRIPT = """
import time
from pathlib import Path
from recording import record

def run(arm, seed):
    with (Path(__file__).parent / "begun.log").open("a") as log:
        log.write(f"{arm} {seed}\\n")
    time.sleep(0.05)
    return {"value": seed + 0.5, "curve": [0.1, 0.2]}

record(__file__, ("a", "b"), run, steps=3)
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "x_runs.py"
    path.write_text(SCRIPT)
    return path


def started(script, *arms):
    """A process that runs the script, forked from this one, which has torch already, and where its output goes."""
    output = script.with_name(f"output-{len(list(script.parent.glob('output-*')))}")
    output.touch()

    def main():
        sys.argv = [str(script), *arms]
        with output.open("w") as sys.stdout:
            runpy.run_path(str(script), run_name="__main__")

    process = multiprocessing.get_context("fork").Process(target=main)
    process.start()
    return process, output


def ended(both):
    process, output = both
    process.join(timeout=120)
    assert process.exitcode == 0
    return output.read_text()


def on_file(script):
    return json.loads(script.with_name("x-runs.json").read_text())


# ── several at once ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_two_processes_with_an_arm_each_lose_no_run(script):
    both = [started(script, arm) for arm in "ab"]
    for process in both:
        ended(process)
    assert [(run["arm"], run["seed"]) for run in on_file(script)["runs"]] == [(a, s) for a in "ab" for s in range(5)]


def test_two_processes_share_the_same_arms_and_make_no_run_twice(script):
    both = [started(script) for _ in range(2)]
    texts = [ended(process) for process in both]
    begun = (script.parent / "begun.log").read_text().splitlines()
    assert len(begun) == len(set(begun)) == len(on_file(script)["runs"]) == 10
    assert sum(text.count("value") for text in texts) == 10  # each is told by the one that made it


def test_what_is_under_way_elsewhere_is_left_to_it_and_said(script):
    record = recording.Record(script.with_name("x-runs.json"), str(script))
    with record.claim(recording.number_of("a", 2)) as own:
        assert own
        text = ended(started(script, "a"))
    assert "arm a seed 2 is under way in another process" in text
    assert [run["seed"] for run in on_file(script)["runs"]] == [0, 1, 3, 4]
    ended(started(script))
    assert len(on_file(script)["runs"]) == 10


def append_for_ever(path):
    record = recording.Record(path, "x_runs.py")
    filler = [0.123] * 20_000  # so that writing takes most of the time
    for seed in range(10_000):
        record.add({"arm": "a", "seed": seed, "curve": filler}, {}, lambda run: run["seed"])


def test_a_writer_that_is_killed_leaves_a_whole_file(tmp_path):
    """Killed twenty times at any point of its work: the file is always one that can be read, and nothing is lost."""
    path, before = tmp_path / "x-runs.json", 0
    for i in range(20):
        process = multiprocessing.get_context("fork").Process(target=append_for_ever, args=(path,))
        process.start()
        time.sleep(0.15 + 0.013 * i)
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        if path.exists():
            runs = json.loads(path.read_text())["runs"]
            assert len(runs) >= before
            before = len(runs)
    assert before > 0


def test_a_line_that_is_deleted_is_measured_again_and_the_others_stay(script):
    ended(started(script))
    file = script.with_name("x-runs.json")
    text = file.read_text()
    file.write_text("".join(line for i, line in enumerate(text.splitlines(keepends=True)) if i != 3))
    (script.parent / "begun.log").unlink()
    ended(started(script))
    assert file.read_text() == text
    assert (script.parent / "begun.log").read_text() == "a 2\n"


# ── versions ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def added(path, *versions):
    """The record after a run under each of these versions of the library."""
    record = recording.Record(path, "x_runs.py")
    for seed, version in enumerate(versions):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(recording, "versions", lambda version=version: OWN | {"rlhf_minimal": version})
            record.add({"arm": "a", "seed": seed}, {"steps": 3}, lambda run: run["seed"])
    return json.loads(path.read_text())


def test_a_later_version_speaks_for_its_own_lines_alone(tmp_path):
    found = added(tmp_path / "x-runs.json", "0.1.0", "0.1.0", "9.9.9", "0.1.0")
    assert found["versions"] == OWN | {"rlhf_minimal": "0.1.0"}
    assert [run.get("versions") for run in found["runs"]] == [None, None, {"rlhf_minimal": "9.9.9"}, None]
    assert versions_of(found)["rlhf_minimal"] == {"0.1.0": 3, "9.9.9": 1}
    assert recorded_with(found).startswith("rlhf_minimal 0.1.0 (3 runs) and 9.9.9 (1 run), torch ")


def test_the_benchmark_appends_in_the_same_way(tmp_path):
    """Its lines stay as they are; a version that differs is added to the line."""
    from tests.results.made_up import made_up_run
    from tests.results.made_up import script as benchmark

    record, home = benchmark.Record(tmp_path / "row-benchmark.json"), sys.modules["recording"]
    lines = []
    for seed, version in ((0, "0.1.0"), (1, "9.9.9")):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(home, "versions", lambda version=version: OWN | {"rlhf_minimal": version})
            lines.append(
                {"group": "reviews-4", "row": "ppo", "seed": seed, **made_up_run("reviews-4", "ppo", seed, 4e-4)}
            )
            record.keep(lines[-1])
    found = json.loads((tmp_path / "row-benchmark.json").read_text())
    assert found["versions"]["rlhf_minimal"] == "0.1.0"
    assert found["runs"] == [lines[0], lines[1] | {"versions": {"rlhf_minimal": "9.9.9"}}]


def test_where_one_version_recorded_everything_it_is_named_without_counts(tmp_path):
    found = added(tmp_path / "x-runs.json", "0.1.0", "0.1.0")
    assert recorded_with(found) == ", ".join(f"{name} {v}" for name, v in (OWN | {"rlhf_minimal": "0.1.0"}).items())


def test_lines_that_an_older_version_recorded_say_so():
    """As the history of these two files has it: 65 and 149 lines are older than the version at the head."""
    for name, older, newer in (("r1-runs", 65, 15), ("diagnosis-runs", 149, 30)):
        record = json.loads((FOLDER / f"{name}.json").read_text())
        found = versions_of(record)["rlhf_minimal"]
        assert found["0.1.0"] == older, name
        assert found["0.2.0"] >= newer, name


def test_every_record_says_with_what_each_line_was_recorded():
    for file in sorted(FOLDER.glob("*.json")):
        record = json.loads(file.read_text())
        if "runs" not in record:
            continue
        assert {"rlhf_minimal", "torch"} <= set(versions_of(record)), file.name
        for run in record["runs"]:
            own = run.get("versions", {})
            assert set(own) <= set(record["versions"]), file.name
            assert all(record["versions"][package] != number for package, number in own.items()), file.name


def test_all_scripts_write_their_records_through_the_one_module():
    for file in sorted(FOLDER.glob("*.py")):
        if file.name != "recording.py":
            text = file.read_text(encoding="utf-8")
            assert "write_text" not in text, file.name
            assert "os.replace" not in text, file.name
