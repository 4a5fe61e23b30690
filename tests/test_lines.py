"""The library stays small and its plain path short; and what counts them counts right."""

import ast

import torch

from tests import lines

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
    # The bound is what the library has, rounded up to the next 50: a reader can only keep a small library in the head.
    # What is added has to replace something, and the aim stays 7,000.
    rooms = lines.rooms()
    assert {"training", "functional", "models", "objective.py"} <= set(rooms)
    assert rooms.total() <= 10500


def test_the_plain_path_from_the_command_to_the_gradient_has_at_most_600_lines():
    before = torch.Tensor.backward, torch.autograd.backward
    on_it, beside = lines.path()
    assert (torch.Tensor.backward, torch.autograd.backward) == before  # nothing is left of the trace
    called = {name for functions in on_it.values() for name in functions}
    assert {"main", "train", "train_step", "roll_out", "sample", "prepare", "policy_loss", "group_normalized"} <= called
    assert {"_forward_backward", "Plain.read", "policy_logits", "token_logprobs", "clip", "sequence_mean"} <= called
    assert not any(file.startswith(("training/fast", "extras")) for file in on_it)
    assert all(sum(files.values()) for files in beside.values())  # no reason that nothing has
    assert lines.length(on_it) <= 600
