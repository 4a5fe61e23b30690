"""What a submission forges, a result, a message, a reply: it earns nothing, and costs its own part alone."""

import json
import os
import signal
import sys
import warnings
from types import SimpleNamespace

import pytest
import torch

from rlhf_book.course import session, worker
from rlhf_book.course.grading import grade_all
from tests.course import submitted
from tests.course.submitted import FIRST, FULL, LIMITS, SECOND, hand_in, points

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="walls around a process are Linux's")
grader, _fewer_draws = submitted.grader, submitted.fewer_draws


FORGED = """
import atexit, builtins, gc, io, json, os, sys, types
import torch
from rlhf_book.exercises import check, solution
import rlhf_minimal

torch.allclose = torch.equal = torch.Tensor.allclose = lambda *_, **__: True
torch.Tensor.__eq__ = lambda *_: True
builtins.all = builtins.isinstance if False else (lambda *_: True)
sys.modules["rlhf_book.exercises.exercise"] = types.ModuleType("exercise")
atexit.register(lambda: print('{"points": 100}'))
print("Passed", json.dumps({"passed": True}), file=sys.__stdout__)
assert solution("board-masked-mean") is None  # no solution is in here
assert not [name for name in sys.modules if "variants" in name or "grading" in name]


class Liar:
    __eq__ = __ne__ = lambda *_: True
    __float__ = lambda self: 1.0
    shape = property(lambda self: ())


def my_masked_mean(x, mask):
    return Liar()


def my_lora(x, weight, down, up, alpha):
    frames, frame = [], sys._getframe()
    while frame:
        frames += [v for v in list(frame.f_locals.values()) + list(frame.f_globals.values())]
        frame = frame.f_back
    found = [v for v in frames + gc.get_objects() if getattr(v, "__name__", "") == "my_lora" and v is not my_lora]
    return found[0](x, weight, down, up, alpha) if found else x @ weight.T
"""


def test_a_forged_result_earns_nothing(grader, tmp_path):
    """Patched comparisons, a printed verdict, a lying object, a search through frames: the comparison is elsewhere."""
    rows = grader.grade(hand_in(tmp_path, "a/week-01.ipynb", FORGED))
    assert points(rows) == [0, 0], rows


WRITES = """
import os, stat

def my_masked_mean(x, mask):
    for n in range(3, 12):
        try:
            pipe = stat.S_ISFIFO(os.fstat(n).st_mode)
        except OSError:
            continue
        if pipe:
            said = b'{"value": {"plain": true}, "passed": true, "points": 100}'
            os.write(n, len(said).to_bytes(4, "big") + said + b"\\xff" * 8)
    return 1.0
"""


def test_messages_on_the_line_are_no_verdicts(grader, tmp_path):
    """The pipe is found and written to: a reply of its own, then a length of four gigabytes."""
    rows = grader.grade(hand_in(tmp_path, "a/week-01.ipynb", WRITES, SECOND))
    assert points(rows) == [0, FULL[1]], rows  # the one after it is asked in a new process


@pytest.mark.parametrize(
    "said",
    [
        None,
        [],
        {},
        {"tensor": "float64", "shape": [10**5, 10**5], "data": ""},
        {"tensor": "float64", "shape": [-1], "data": ""},
        {"tensor": "float64", "shape": [2], "data": "AAAA"},
        {"tensor": "object", "shape": [], "data": "AAAA"},
        {"tensor": "bool", "shape": [3], "data": "AgIC"},
        {"plain": {"a": 1}},
        {"list": [{"list": [{"list": [{"list": [{"list": [{"list": []}]}]}]}]}]},
    ],
)
def test_what_no_worker_would_say_is_no_value(said):
    with pytest.raises(ValueError):
        worker.decode(said)


def test_values_come_through_as_they_are():
    values = [1, 2.5, True, None, ..., "a", (1.0, 2.0), [torch.arange(3), torch.tensor([True, False])]]
    for value in [*values, torch.zeros(0, 2), torch.tensor(float("nan")), torch.randn(2, 3, dtype=torch.float64)]:
        back = worker.decode(json.loads(json.dumps(worker.encode(value))))
        assert type(back) is type(value)
        if isinstance(value, torch.Tensor):
            assert back.dtype == value.dtype
            torch.testing.assert_close(back, value, rtol=0, atol=0, equal_nan=True)
        elif not isinstance(value, list):
            assert back == value


FRAMED = """
import os, stat
for n in range(3, 40):
    try:
        pipe = stat.S_ISFIFO(os.fstat(n).st_mode)
    except OSError:
        continue
    if pipe:
        try:
            os.write(n, len(said).to_bytes(4, "big") + said)
        except OSError:
            pass
"""


CELLS = [
    '{"error": 5}',
    '{"error": null}',
    '{"error": ["a"]}',
    '{"error": [1, 2]}',
    '{"error": {"a": NaN}}',
    '{"error": ["a", ' + "[" * 900 + "]" * 900 + "]}",
    '{"error": ' + "[" * 9000 + "]" * 9000 + "}",
    '{"done": ' + "9" * 5000 + "}",
    "[NaN]",
]


class Forked:
    """The worker without walls, and without the second that a start takes: a fork of this process, which has torch."""

    def __init__(self, *_):
        (hears, asks), (answers, speaks) = os.pipe(), os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads: the child has none
            self.pid = os.fork()
        if self.pid == 0:
            try:
                os.dup2(hears, 0)
                os.dup2(speaks, 1)
                os.closerange(3, 4096)  # what a forger finds is the line to the grader alone
                worker.main()
            finally:
                os._exit(0)
        os.close(hears)
        os.close(speaks)
        self.popen = SimpleNamespace(stdin=os.fdopen(asks, "wb", 0), stdout=os.fdopen(answers, "rb", 0))

    def why(self):
        return ""

    def end(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self.popen.stdin.close()
        self.popen.stdout.close()


@pytest.fixture
def forked(monkeypatch):
    monkeypatch.setattr(session, "Process", Forked)


def lies_in_cells(forged):
    return [f"said = {said.encode()!r}" + FRAMED for said in forged]


def lies_in_calls(forged):
    body = FRAMED.strip().replace("\n", "\n    ")
    heads = ("my_masked_mean(x, mask)", "my_lora(x, weight, down, up, alpha)")
    return [
        f"def {head}:\n    said = {said.encode()!r}\n    {body}\n    return 1.0"
        for head, said in zip(heads, forged, strict=True)
    ]


def test_a_forged_reply_to_a_cell_costs_that_cell(grader, tmp_path):
    """Each ends its process; all the others run again."""
    found = hand_in(tmp_path / "in", "anna/week-01.ipynb", *lies_in_cells([CELLS[0], CELLS[-2]]), FIRST, SECOND)
    rows = grade_all(grader, [found], tmp_path / "out", say=lambda _: None)
    assert points(rows) == FULL, rows
    for number in (1, 2):
        assert f"cell {number} left out: its process did not keep to the form" in rows[0].note


@pytest.mark.parametrize("forged", [CELLS[:5], CELLS[5:]], ids=["first", "rest"])
@pytest.mark.usefixtures("forked")
def test_whatever_is_forged_in_a_cell_costs_that_cell(library, way, forged):
    running = session.Session(way, library, LIMITS, [*lies_in_cells(forged), FIRST, SECOND])
    try:
        running.start()
        assert running.has("my_masked_mean")
        assert running.has("my_lora")
    finally:
        running.close()
    assert running.notes == dict.fromkeys(range(1, len(forged) + 1), f"left out: {session.FORM}")


CALLS = [
    '{"error": 7}',
    '{"value": {"plain": 1' + "0" * 4200 + "}}",
    '{"value": {"plain": NaN}}',
    '{"value": {"plain": 1.0}, "changed": 5}',
    '{"value": {"plain": 1.0}, "changed": [' + "0," * 99 + "0]}",
    '{"value": {"tensor": ' + "[" * 900 + "]" * 900 + "}}",
    '{"value": {"tensor": "float64", "shape": [], "data": "AAAAAAAA+H8="}, "gradients": 5}',
    '{"value": {"tensor": "float64", "shape": [], "data": "AAAAAAAA+H8="}, "gradients": [null, null, null]}',
    '{"value": {"tensor": "float64", "shape": [], "data": "AAAAAAAA+H8="}, "gradient_error": [[], 1]}',
    '{"value": {"list": [' + '{"plain": 1},' * 20000 + '{"plain": 1}]}}',
]


def earn_nothing(grader, folder, forged):
    found = hand_in(folder / "in", "anna/week-01.ipynb", *lies_in_calls(forged))
    rows = grade_all(grader, [found], folder / "out", say=lambda _: None)
    assert points(rows) == [0, 0], rows
    assert not any("the grader failed" in row.says for row in rows), rows


def test_a_forged_reply_to_a_call_costs_that_exercise(grader, tmp_path):
    earn_nothing(grader, tmp_path, (CALLS[0], CALLS[3]))


@pytest.mark.parametrize("forged", list(zip(CALLS[::2], CALLS[1::2], strict=True)), ids=range(len(CALLS) // 2))
@pytest.mark.usefixtures("forked")
def test_whatever_is_forged_in_a_call_costs_that_exercise(grader, tmp_path, forged):
    earn_nothing(grader, tmp_path, forged)
