"""The library stays small and its plain path short; and what counts them counts right."""

import ast
from pathlib import Path

import torch

from tests import lines

ROOT = Path(__file__).resolve().parents[1]

SOURCE = '''"""What it is,
in two lines."""

import os  # why


def f(x):
    """Not code."""
    check_floating("x", x)
    if x < 0:
        raise ValueError(
            "no"
        )
    text = """a string
    of two lines"""
    assert text
    return x if x else os.name
'''


def test_a_line_of_code_holds_more_than_blanks_comments_and_docstrings():
    assert sorted(lines.code_lines(SOURCE)) == [4, 7, 9, 10, 11, 12, 13, 14, 15, 16, 17]


def test_what_only_refuses_is_known():
    assert sorted(lines.refusing_lines(ast.parse(SOURCE))) == [9, 10, 11, 12, 13, 16]


def test_the_library_does_not_grow():
    # Each bound is what there is, rounded up to the next 50: what is added has to replace something.
    rooms = lines.rooms()
    assert {".", "functional", "tasks", "lab"} <= set(rooms)
    assert lines.core(rooms) <= 4800, "what is added to the core replaces something, or stands in contrib or lab"
    # 400 of them: pairs, self-distillation, turns, in contrib and lab; 100: files of word problems; 150: one question
    # in every form of a row; 20: the new name in the answer to an old keyword; 100: what stands around a formula
    # that is marked, speakers that a prompt names, further formats of files; 150: what stands around a box, and around
    # a question; 150: every tensor of a save compared, files of an export copied, questions in other spellings,
    # answers taken back; 50: formats around an answer, and the sentences that give none
    assert rooms.total() <= 12000, "say in the commit what the new lines are for, and raise this bound by their number"


def test_the_walk_from_the_command_to_the_first_step_does_not_grow():
    before = torch.optim.AdamW.step
    on_it = lines.walk()
    assert torch.optim.AdamW.step is before  # nothing is left of the trace
    called = {name for functions in on_it.values() for name in functions}
    assert {"main", "train", "train_step", "roll_out", "sample", "prepare", "policy_loss", "group_normalized"} <= called
    assert {
        "forward_backward",
        "compute_logprobs",
        "policy_logits",
        "clip",
        "sequence_mean",
        "step_optimizer",
    } <= called
    assert not any(file.startswith(("lab/fast", "contrib")) for file in on_it)
    assert lines.length(on_it) <= 2250
    assert len(on_it) <= 43


def test_no_file_is_longer_than_one_sitting():
    """Six hundred lines of code at most; exercises, and scripts that make a record, are read piece by piece."""
    folders = ("rlhf_minimal", "notebooks/rlhf_book", "book", "tests")
    files = [ROOT / "conftest.py", *(file for folder in folders for file in (ROOT / folder).rglob("*.py"))]
    files = [file for file in files if "exercises" not in file.parts]
    assert len(files) > 500
    long = {str(file.relative_to(ROOT)): len(lines.code_lines(file.read_text(encoding="utf-8"))) for file in files}
    assert {file: n for file, n in long.items() if n > 600} == {}, "split it along its subjects"
