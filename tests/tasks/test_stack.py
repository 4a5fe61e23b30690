"""The stack language: what its words do, that no program can do harm, and a task whose tests can be fooled or not."""

import ast
import dataclasses
import itertools
import json
import random
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlhf_minimal import ALGORITHMS
from rlhf_minimal.cli import main
from rlhf_minimal.cli.starts import ASSETS
from rlhf_minimal.evaluate import evaluate
from rlhf_minimal.lab import stack
from rlhf_minimal.lab.export import export_trl
from rlhf_minimal.lab.stack import DEPTH, HIDDEN, LARGEST, LONGEST, SHOWN, STEPS, ProgramError, run_program
from rlhf_minimal.tasks import get_task, verify_all
from rlhf_minimal.train import Recipe
from rlhf_minimal.training import load_policy

TASK = get_task("stack")


class Stopped(Exception):
    """What the interpreter below does not carry out."""


def run_again(program, x):
    """A second interpreter: it reads characters, calls itself for a loop's body, and shares nothing with the first."""
    if len(program) > LONGEST:
        raise Stopped
    used = [0]

    def parse(i, inside):
        block = []
        while i < len(program):
            c = program[i]
            if c == "]":
                if not inside:
                    raise Stopped
                return block, i + 1
            if c == "[":
                body, i = parse(i + 1, True)
                block.append(body)
            elif c in "0123456789":
                j = i
                while j < len(program) and program[j] in "0123456789":
                    j += 1
                if j - i > 10:
                    raise Stopped
                block.append(int(program[i:j]))
                i = j
            elif c in "+-*dsp?,":
                block.append(c)
                i += 1
            else:
                raise Stopped
        if inside:
            raise Stopped
        return block, i

    def count():
        used[0] += 1
        if used[0] > STEPS:
            raise Stopped

    def pop(numbers):
        if not numbers:
            raise Stopped
        return numbers.pop()

    def push(numbers, value):
        numbers.append(value)
        if abs(value) > LARGEST or len(numbers) > DEPTH:
            raise Stopped

    def execute(block, numbers):
        for word in block:
            count()
            if isinstance(word, int):
                push(numbers, word)
            elif isinstance(word, list):
                times = pop(numbers)
                count()  # the closing bracket
                for _ in range(times):
                    execute(word, numbers)
                    count()
            elif word == "d":
                push(numbers, numbers[-1] if numbers else pop(numbers))
            elif word == "p":
                pop(numbers)
            elif word == "?":
                b, a, c = pop(numbers), pop(numbers), pop(numbers)
                push(numbers, b if c == 0 else a)
            elif word != ",":
                b, a = pop(numbers), pop(numbers)
                if word == "s":
                    push(numbers, b)
                    push(numbers, a)
                else:
                    push(numbers, {"+": a + b, "-": a - b, "*": a * b}[word])

    numbers = [x]
    execute(parse(0, False)[0], numbers)
    return pop(numbers)


def outcome(run, program, x):
    try:
        return run(program, x)
    except (ProgramError, Stopped):
        return None


@pytest.mark.parametrize(
    ("program", "x", "output"),
    [
        ("", 4, 4),
        ("3*7+", 2, 13),
        ("3-", 2, -1),
        ("3s-", 2, 1),
        ("d*", 5, 25),
        ("1,2p", 9, 1),
        ("12,3*", 0, 36),
        ("8,9?", 1, 8),
        ("8,9?", 0, 9),
        ("5s[2*]", 3, 40),
        ("5s[2*]", 0, 5),
        ("0s-5s[2*]", 3, 5),  # a negative number of times is none
        ("7s[]", 9, 7),
        ("1s[3[1+]]", 4, 13),  # a loop in a loop
        ("d1-327,12?7?", 0, 7),
        ("d1-327,12?7?", 1, 12),
        ("d1-327,12?7?", 10, 327),
        ("d3*2+*7+", 10, 327),
        ("1000000000", 0, LARGEST),
    ],
)
def test_what_programs_do(program, x, output):
    assert run_program(program, x) == output == run_again(program, x)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("+", r"word 1 \('\+'\): it takes 2 of the stack's 1 numbers"),
        ("p", "the stack is empty at the end"),
        ("3x", r"word 2 \('x'\) is none of the language"),
        ("3\n", r"word 2 \('\\n'\) is none of the language"),
        ("3[2", r"word 2 \('\['\) is not closed"),
        ("3]", r"word 2 \('\]'\) closes nothing"),
        ("1d*" + "d*" * 500, "characters, and at most 1000 are read"),
        ("99999[]", f"not done after {STEPS} words"),
        ("9[d]" * 9, f"more than {DEPTH} numbers on the stack"),
        ("d*d*d*d*d*", f"a number beyond {LARGEST}"),
        ("1000000001", f"a number beyond {LARGEST}"),
        ("9" * 900, "word 1 is a number beyond"),
        ("\u0663", "none of the language"),  # a digit of another script
        ("__import__('os').abort()", "none of the language"),
    ],
)
def test_what_stops_a_program_is_said(program, message):
    with pytest.raises(ProgramError, match=message):
        run_program(program, 7)


def test_a_program_may_take_as_many_words_as_the_bound_says():
    whole = "," * STEPS
    assert run_program(whole, 5) == 5
    with pytest.raises(ProgramError, match="not done after"):
        run_program(whole + ",", 5)


def test_the_other_bounds_may_be_reached_and_not_passed():
    for at, beyond in (
        ("d" * (DEPTH - 1), "d" * DEPTH),
        (f"{LARGEST - 1},1+", f"{LARGEST},1+"),
        (f"0,{LARGEST}-", f"0,{LARGEST}-1-"),
        ("0[" + "," * (LONGEST - 3) + "]", "0[" + "," * (LONGEST - 2) + "]"),
    ):
        assert outcome(run_program, at, 0) is not None
        assert outcome(run_program, beyond, 0) is None


WORDS = [*"0123456789", *"+-*dsp?,[]", "99", "1000000000", "9[", "]", "[", "d*", "d["]
SOUP = st.lists(st.sampled_from(WORDS), max_size=60).map("".join)


# Programs whose brackets close, so that loops are entered.
WORD = st.sampled_from([*"0123456789", *"+-*dsp?,", "d*", "9,", "2[2*]"])
LOOPS = st.deferred(lambda: st.lists(st.one_of(WORD, WORD, LOOPS.map("[{}]".format)), max_size=12).map("".join))


@settings(max_examples=300, deadline=None)
@given(st.one_of(SOUP, LOOPS, st.text(max_size=40)), st.integers(-9, 9))
def test_any_program_ends_and_two_interpreters_agree(program, x):
    assert outcome(run_program, program, x) == outcome(run_again, program, x)
    result = outcome(run_program, program, x)
    assert result is None or abs(result) <= LARGEST


HOSTILE = [
    "9" + "d*" * 499,  # repeated squaring
    "9[d*]" * 100,
    "d[d[d[d[d[d[d[d[d[]]]]]]]]]",
    "1000000000[1000000000[1000000000[d]]]",
    "9[" * 300 + "]" * 300,
    "[" * 500 + "]" * 500,
    "d" * 1000,
    "d?" * 400,
    "9" * 1000,
    "999999999," * 100,
    "9" * 10_000_000,
    "[" * 10_000_000,
]


@pytest.mark.parametrize("program", HOSTILE, ids=lambda program: program[:12])
def test_a_hostile_program_takes_neither_time_nor_memory(program):
    problem = TASK.problems("train", 1, seed=0)[0]
    tracemalloc.start()
    began = time.process_time()
    assert TASK.verify(program, problem) == 0
    seconds, (_, peak) = time.process_time() - began, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert seconds < 1
    assert peak < 5e6
    assert verify_all(TASK, [problem], [program]).faults == {}


def test_the_interpreter_executes_no_python_text():
    tree = ast.parse(Path(stack.__file__).read_text())
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    assert not called & {"eval", "exec", "compile", "__import__", "getattr", "open"}


# --- the task ------------------------------------------------------------------------------------------------------


def test_the_examples_decide_the_function():
    """1800 functions, as many prompts, and a tenth of them held out."""
    drawn = [*TASK.problems("train", 20_000, seed=0), *TASK.problems("held_out", 3_000, seed=0)]
    programs = {problem.prompt: problem.answer for problem in drawn}
    assert len(programs) == len(set(programs.values())) == 1800
    for a, b, c in itertools.product(range(9), range(10), range(20)):
        prompt = f"0>{c:02d},1>{a + b + c:02d},10>{100 * a + 10 * b + c:03d}:"
        assert programs[prompt] == f"d{a}*{b}+*{c}+"
    held_out = [prompt for prompt in programs if TASK.is_held_out(prompt)]
    assert 130 < len(held_out) < 230


def test_the_prompt_shows_what_the_function_gives():
    for problem in TASK.problems("held_out", 100, seed=0):
        examples = dict(example.split(">") for example in problem.prompt.removesuffix(":").split(","))
        assert {int(x): int(y) for x, y in examples.items()} == {x: run_again(problem.answer, x) for x in SHOWN}


def test_a_right_program_may_be_spelled_in_any_way():
    problem = dataclasses.replace(TASK.problems("train", 1, seed=0)[0], answer="3*7+")
    for program, score in (("3*7+", 1), ("7s3*+", 1), ("dd++7+", 1), ("3*8+", 0), ("3*", 0), ("", 0), ("3*7+p", 0)):
        assert TASK.verify(program, problem) == score


def table_of(problem):
    at_0, at_1, at_10 = (run_again(problem.answer, x) for x in SHOWN)
    return f"d1-{at_10},{at_1}?{at_0}?"


def test_a_table_of_the_examples_passes_the_visible_tests_and_not_the_hidden_ones():
    visible, share = get_task("stack:tests=visible"), get_task("stack:score=share")
    for problem in TASK.problems("train", 200, seed=1):
        table = table_of(problem)
        assert visible.verify(table, problem) == 1
        constant = problem.answer.startswith("d0*0+")  # of a constant a table is right, if never a good idea
        assert TASK.verify(table, problem) == constant
        assert share.verify(table, problem) == (1 if constant else len(SHOWN) / (len(SHOWN) + len(HIDDEN)))
        for task in (TASK, visible, share):
            assert task.verify(problem.answer, problem) == 1


def test_a_share_counts_the_tests_one_by_one():
    share = get_task("stack:score=share,tests=hidden")
    problem = dataclasses.replace(TASK.problems("train", 1, seed=0)[0], answer="3*7+")
    for program in ("3*7+", "7", "10", "d4-34,3*7+?", "p", "3*9+", "2*8+"):
        passed = 0
        for x in (*SHOWN, *HIDDEN):
            passed += outcome(run_again, program, x) == 3 * x + 7
        assert share.verify(program, problem) == passed / 11
    assert share.score_range == (0.0, 1.0)
    assert TASK.score_range is None


def test_the_options_change_the_tests_and_nothing_else():
    for name in ("stack:tests=visible", "stack:score=share", "stack:tests=hidden,score=all"):
        task = get_task(name)
        assert task.problems("train", 20, seed=3) == TASK.problems("train", 20, seed=3)
        assert (task.name, task.teacher, task.alphabet) == ("stack", TASK.teacher, TASK.alphabet)
    assert "visible" in get_task("stack:tests=visible").about


@pytest.mark.parametrize("name", ["stack:", "stack:tests", "stack:tests=all", "stack:score=hidden", "stack:depth=3"])
def test_other_options_are_refused(name):
    with pytest.raises(ValueError, match="tests=hidden, tests=visible, score=all and score=share"):
        get_task(name)


def test_the_teacher_is_seldom_right_and_writes_some_tables():
    rng, counts = random.Random(0), {"right": 0, "table": 0, "forgets": 0}
    for problem in TASK.problems("train", 4000, seed=5):
        program = TASK.teacher(problem, rng)
        at_0 = run_again(problem.answer, 0)
        if program == problem.answer:
            counts["right"] += 1
        elif "?" in program:
            assert program == table_of(problem)
            counts["table"] += 1
        else:
            counts["forgets"] += 1
            assert run_again(program, 0) == 0
            assert all(run_again(program, x) == run_again(problem.answer, x) - at_0 for x in HIDDEN)
    assert counts["right"] / 4000 == pytest.approx(0.15, abs=0.02)
    assert counts["table"] / 4000 == pytest.approx(0.30, abs=0.025)


def test_it_is_one_of_the_tasks():
    assert get_task("stack") is stack.STACK is TASK


def test_a_run_with_other_tests_is_not_exported_as_if_it_had_these():
    policy, vocabulary = load_policy(ASSETS / "stack")
    visible = Recipe(ALGORITHMS["grpo"], get_task("stack:tests=visible"))
    with pytest.raises(ValueError, match="the task's own verifier"):
        export_trl(visible, policy, vocabulary, Path("never"))
    assert not Path("never").exists()


# --- the shipped start ---------------------------------------------------------------------------------------------


def shares(folder):
    policy, vocabulary = load_policy(folder)
    result = evaluate(policy, vocabulary, Recipe(ALGORITHMS["grpo"], TASK), n=1000, seed="test")
    return result.sampled.share, result.greedy.share


def test_the_shipped_start_is_right_in_a_fifth_and_its_likeliest_program_forgets():
    notes = json.loads((ASSETS / "stack" / "pretrain.json").read_text())
    sampled, greedy = shares(ASSETS / "stack")
    assert (sampled, greedy) == pytest.approx((notes["held_out"]["sampled"], notes["held_out"]["greedy"]), abs=0.05)
    assert greedy < 0.12 < sampled < 0.26
    policy, vocabulary = load_policy(ASSETS / "stack")
    assert set(TASK.alphabet) == set(vocabulary.alphabet)
    assert sum(weight.numel() for weight in policy.parameters()) < 100_000


def test_the_command_reproduces_the_shipped_start(tmp_path):
    """Forty seconds of one core: the real command. Equal to the last bit only on an equal machine."""
    notes = json.loads((ASSETS / "stack" / "pretrain.json").read_text())
    program, *words = notes["command"].split(" -m rlhf_minimal ")
    assert program == "python"
    assert main([*words[0].split(), "--held-out", "50", "--out", str(tmp_path / "start")]) == 0
    made = json.loads((tmp_path / "start" / "evaluation.json").read_text())
    assert made["training_loss"] == pytest.approx(notes["loss"], abs=0.02)
    assert shares(tmp_path / "start") == pytest.approx(shares(ASSETS / "stack"), abs=0.07)
