"""Formulas are compared by value, the last one counts, and none of them is a program."""

import builtins
import os
import signal
import threading
import time

import pytest

from rlhf_minimal.lab import math_answers, math_worker
from rlhf_minimal.lab.math_answers import LONGEST, is_readable, marked, same_answer
from rlhf_minimal.lab.math_worker import COMMANDS, DEEPEST, is_affordable, is_same, read_formula
from rlhf_minimal.tasks import VerifierWarning, get_task, verify_all
from tests.tasks.false_positives import FALSE_POSITIVES
from tests.tasks.math_boxes import OPERAND, STANDS_ALONE
from tests.tasks.math_cases import RIGHT, WRONG
from tests.tasks.math_formats import PAID, REFUSED

MATRIX = r"\begin{pmatrix} 1 & 2 \\ a & b \end{pmatrix}"


@pytest.mark.parametrize(
    ("completion", "answer"),
    [
        ("42", "42"),
        ("The answer is 42.", "42"),
        ("It is 41. No: 42", "42"),
        (r"It is $41$. No: $42$", "42"),
        (r"\boxed{41}, no, \boxed{42}, and then $43$ and 44.", "42"),
        ("<think>\\boxed{41}</think><answer>42</answer> or 43", "42"),
        ("$$42$$", "$42$"),
        (r"\[ 42 \]", r"\boxed{42}"),
        (r"so \( x = 42 \).", "42"),
        ("x = 42", "42"),
        ("1,234", "1234"),
        ("I paid $5 and then $7", "7"),
        ("5 meters", r"5 \text{ m}"),
        (r"50\%", "50"),
        ("0.5", "1/2"),
        (r"\boxed{\dfrac{1}{2}}", "$0.5$"),
        ("$\\frac12$", r"\frac{2}{4}"),
        ("10^3", "1000"),
        ("x+1", "1+x"),
        ("$(x+1)^2$", "x^2 + 2x + 1"),
        (r"$\sqrt{8}$", r"2\sqrt2"),
        (r"$\sin^2 x + \cos^2 x$", "1"),
        (r"$\{1, 2\}$", r"\{2, 1\}"),
        (r"$\left(1,2\right]$", "(1,2]"),
        ("$" + MATRIX.replace(" ", "") + "$", MATRIX),
        (r"\boxed{\text{Evelyn}}", "Evelyn"),
        ("no solution", "no solution"),
        ("$8$", "2**3"),
        ("I paid $5 and then $ 7", "7"),
        (r"the set \[\left\{ \frac{1}{2},\; -3 \right\}\] is it.", r"\{-3, 0.5\}"),
    ],
)
def test_what_is_the_same(completion, answer):
    assert same_answer(completion, answer)


@pytest.mark.parametrize(
    ("completion", "answer"),
    [
        ("", "42"),
        ("forty-two", "42"),
        ("42 or 43", "42"),
        ("answer: 42 or 43", "42"),
        ("$42$ or $43$", "42"),
        (r"\boxed{42, 43}", "42"),
        (r"$42$ and $\boxed{43}$", "42"),
        ("<answer>43</answer> 42", "42"),
        (r"\boxed{42", "42"),  # never finished
        (r"\boxed 42 \boxed{}", "42"),
        ("-42", "42"),
        ("2x+3", "3"),
        ("[1,2]", "(1,2]"),
        ("1/3", "0.33"),
        ("x42", "42"),
        (r"so $\sum_{n=0}^{42} n$ it is", "42"),
        ("the answer is no solution", "no"),
    ],
)
def test_what_is_another(completion, answer):
    assert not same_answer(completion, answer)


@pytest.mark.parametrize(("completion", "answer"), RIGHT)
def test_what_is_paid(completion, answer):
    assert is_readable(answer)
    assert same_answer(completion, answer)


@pytest.mark.parametrize(("completion", "answer"), [*WRONG, ("from $3 to $7", "7")])
def test_what_is_not_paid(completion, answer):
    assert is_readable(answer)
    assert not same_answer(completion, answer)


@pytest.mark.parametrize(("completion", "answer"), PAID)
def test_the_format_of_a_right_answer_costs_nothing(completion, answer):
    assert same_answer(completion, answer)


@pytest.mark.parametrize(("completion", "answer"), REFUSED)
def test_a_right_number_in_a_sentence_that_does_not_give_it_is_not_paid(completion, answer):
    assert not same_answer(completion, answer)


@pytest.mark.parametrize("completion", STANDS_ALONE)
def test_what_stands_beside_an_answer_costs_nothing(completion):
    assert same_answer(completion, "4")


@pytest.mark.parametrize("completion", OPERAND)
def test_a_part_of_an_expression_is_no_answer(completion):
    assert not same_answer(completion, "4")
    assert not same_answer(completion, "6") or "6" not in completion


@pytest.mark.parametrize(("completion", "answer", "why"), FALSE_POSITIVES)
def test_what_looks_right_and_is_wrong(completion, answer, why):
    assert not same_answer(completion, answer), why


def test_math_verify_alone_takes_many_of_them():
    """Or the collection would hold nothing worth looking at."""
    from math_verify import parse, verify

    def alone(completion, answer):
        gold, found = parse(f"${answer}$", parsing_timeout=None), parse(completion, parsing_timeout=None)
        return bool(gold) and verify(gold, found, timeout_seconds=None)

    assert sum(alone(completion, answer) for completion, answer, _ in FALSE_POSITIVES) >= 15


@pytest.mark.parametrize(
    ("completion", "answer"),
    [
        (r"\boxed{x=5}", "5"),
        (r"\boxed{x_1 = 5}", "5"),
        (r"\boxed{f(x) = 5}", "5"),
        (r"\boxed{\theta = 5}", "5"),
        (r"\boxed{\text{area} = 5}", "5"),
        (r"\boxed{2+3=5}", "5"),
        (r"\boxed{x = 2 + 3 = 5}", "5"),
        (r"\boxed{1 = 1}", "1"),
        ("2 + 3 = 5", "5"),
        ("It is 2 + 3 = 5.", "5"),
        ("5", "x=5"),
        ("x=5", "x=5"),
        (r"\boxed{2x + 3y = 6}", "2x+3y=6"),
        (r"\boxed{y = 2x + 1}", "y=2x+1"),
        (r"\boxed{y = 2x + 1}", "2x+1"),
        (r"\boxed{x \approx 3.14}", "3.14"),
        (r"\boxed{\sqrt{2} \approx 1.414}", r"\sqrt{2}"),
        (r"\boxed{\sqrt{2} \approx 1.414}", "1.414"),
        (r"\boxed{x = \frac{22}{7} \approx 3.143}", r"\frac{22}{7}"),
        (r"\boxed{50\%}", r"50\%"),
        ("50%", r"50\%"),
        ("50", r"50\%"),
        (r"\boxed{12_3}", "12_{3}"),
        ("0.333333", "1/3"),
        ("0.0000001", "0.0000001"),
        ("0.0000001", r"10^{-7}"),
        ("3.141593", r"\pi"),
        (r"\boxed{999!}", "999!"),
        (r"\boxed{2^{1000}}", "2^{1000}"),
        (r"\boxed{e^{-x^2/2}}", "e^{-x^2/2}"),
        (r"\boxed{\text{No}}", r"\text{No}"),
        ("x < 5", "x<5"),
    ],
)
def test_what_is_right_though_it_looks_like_one_of_these(completion, answer):
    assert same_answer(completion, answer)


@pytest.mark.parametrize(
    "text",
    [r"\( " * 50_000, "$" * 100_000, "$x" * 50_000, r"\[" * 50_000, "(" * 100_000, "-+" * 50_000, "1" * 100_000]
    + [
        "not " * 25_000 + "5",
        "x=1 or " * 15_000 + "x=2",
        "$7$ and " * 9_000,
        "'a" * 50_000,
        "<sup>" * 20_000,
        '"answer": ' * 10_000,
    ]
    + [
        r"\boxed{" + "7" * 100_000 + "}",
        "1.234." * 17_000,
        r"\boxed{5} " + "is " * 33_000,
        r"\boxed{5} " + "only " * 20_000,
        "x = 7" + r" \lor \pi" * 9_000,
        "{" * 10_000 + "7" + "}" * 10_000,
    ]
    + ["$5 and " * 15_000, "$?$ " * 25_000, r"\boxed{" * 15_000, r"\a{ " * 30_000, "1 " * 50_000, "$$x " * 30_000],
    ids=lambda text: text[:8],
)
def test_reading_takes_time_in_proportion_to_the_text(text):
    began = time.process_time()
    assert not same_answer(text, "7")
    assert time.process_time() - began < 4  # a search from every bracket took 25 s for a text of this length


def test_formulas_are_found_where_they_were():
    r"""In dollars, \(...\) and \[...\], one after another."""
    found = {
        "a $x$ b": ["x"],
        "$$x$$ and $y$": ["x", "y"],
        r"\(a\) \[b\] \(c": ["a", "b"],
        "$5 and $7": [],
        "$5 and $ 7": ["5 and "],
        "$x$5$": ["5"],
        "$$ $": [" "],
        "$$a$$$b$": ["a", "b"],
        r"\(\)\)": [r"\)"],
        "": [],
    }
    for text, inside in found.items():
        assert [formula for _, _, formula in marked(text)] == inside, text


COSTLY = ["10^{10^{10}}", r"\gcd(10^{10^{10}},7)", "9!!!!!!", "9!!", "1000!", "99999999999!", "9^9^9^9", "9**9**9"]
COSTLY += ["((10^{100})^{100})^{100}", r"\left(10^{99}\right)^{99}", "{10^{999}}^{999}", "10^ {10 ^10}", "10^{5!}"]
COSTLY += ["(x+1)^{99999}", r"10^{10\cdot 10\cdot 10\cdot 10}", "10^{(10)(1000)}", "10^{e^{100}}", "10^{1000}!"]
COSTLY += ["(10^3)!", "(3!)!", r"\binom{1000000}{500000}", "10^{|-9999|}", "2^{\\sqrt{10^9}}", "10^100000"]


@pytest.mark.parametrize("formula", COSTLY)
def test_numbers_that_no_memory_holds_are_never_written_out(monkeypatch, formula):
    import math_verify

    assert not is_affordable(formula)
    monkeypatch.setattr(math_verify, "parse", lambda *_, **__: pytest.fail("it was read"))
    assert read_formula.__wrapped__(formula) == ()
    for text in (rf"\boxed{{{formula}}}", f"${formula}$", formula):
        assert not same_answer(text, "1")
        assert not is_readable(text)


@pytest.mark.parametrize(
    "formula", ["9!", "n!", "(2n)!", "10^{100}", "2^{-3}", "x^{2n+1}", "e^{-x^2}", "(9^9)^9", "x^{y^z}"]
)
def test_numbers_of_a_reasonable_size_are(formula):
    assert is_affordable(formula)
    assert is_readable(formula)


@pytest.mark.parametrize(
    "formula",
    [
        r"\sum_{n=0}^{3} n",
        r"\\sum_{n=0}^{3} n",  # its clean-up makes \sum of these
        r"\\!sum_{n=0}^{3} n",
        r"\\displaystyle\sum_{n=0}^{3} n",
        r"\prod_{n=1}^{3} n",
        r"\int_0^6 1 dx",
        r"\lim_{x \to 6} x",
        r"\operatorname{lcm}(2, 3)",
        r"\mathop{lcm}(2, 3)",
        r"6 + \text{f(x)} - \text{f(x)}",
        r"6 + \variable{f} - \variable{f}",
        "6" + " " * LONGEST + "+ 0",
    ],
)
def test_formulas_that_sympy_would_turn_into_a_program_are_not_read(formula):
    assert read_formula(formula) == ()
    assert not is_readable(formula)
    assert not same_answer(f"${formula}$", "6")
    assert not same_answer(rf"\boxed{{{formula}}}", "6")
    assert is_readable(r"\frac{12}{2}")  # where nothing of the kind stands in it


def test_the_danger_is_real(monkeypatch):
    """Without our look at the formula, a name that a model wrote is compiled as a call."""
    from math_verify import parse, verify

    compiled = []
    real = compile

    def watched(source, *rest, **named):
        compiled.append(source)
        return real(source, *rest, **named)

    monkeypatch.setattr(builtins, "compile", watched)
    sly = r"$\sum_{n=0}^{\infty} \frac{1}{(n+f(3))!}$"
    verify(parse("$2.5$", parsing_timeout=None), parse(sly, parsing_timeout=None), timeout_seconds=None)
    assert any(isinstance(source, str) and "n + f(3) + 1" in source for source in compiled)
    compiled.clear()
    assert not is_same("2.5", sly.strip("$"))
    assert compiled == []


CALLS = ["canary(1)", '__import__("builtins").canary(1)', "canary", "(canary)(1)", "1 + canary(1)", "1.5.canary(1)"]


@pytest.mark.parametrize("call", CALLS)
def test_no_program_is_run(monkeypatch, call):
    """What the process is asked is asked here, where a call would be seen."""
    sung = []
    monkeypatch.setattr(builtins, "canary", sung.append, raising=False)
    monkeypatch.setattr(math_answers, "_ask", ask_here)
    for text in (
        call,
        f"The answer is {call}.",
        f"${call}$",
        rf"\boxed{{{call}}}",
        rf"\boxed{{\text{{{call}}}, 2}}",
        rf"$\operatorname{{{call}}}(1)$",
        rf"$x_{{{call}}} + 1$",
        rf"$\{{\text{{{call}}}, 3\}} \cup \{{2\}}$",
        rf"$\frac{{{call}}}{{2}} < 3$",
    ):
        same_answer(text, "42")
        same_answer(text, "x < 3")
    assert sung == []


def ask_here(*request):
    try:
        return is_same(*request) if len(request) == 2 else bool(read_formula(*request))
    except Exception:  # as in the process: a formula that cannot be read
        return False


def test_no_text_reaches_the_reader_that_evaluates(monkeypatch):
    """math-verify's reader of plain text ends in `sympy.parse_expr`, which is Python's `eval`."""
    import sympy
    from math_verify import parser
    from sympy.parsing import sympy_parser

    def evaluated(*_, **__):
        raise AssertionError("a text was evaluated")

    monkeypatch.setattr(parser, "parse_expr_cached", evaluated)
    monkeypatch.setattr(sympy_parser, "eval_expr", evaluated)
    monkeypatch.setattr(math_answers, "_ask", ask_and_see)
    with pytest.raises(AssertionError):
        sympy.parse_expr("1 + 1")
    for text in ("it is 2+2*(3-4)", "it is 1/2.", "8 ** 2 so", "at 5+f(3)", "or 3*x+2 and", "1+2;exit()", "e 1+1_000"):
        same_answer(text, "42")
    assert same_answer("it is 84/2.", "42")


def ask_and_see(*request):
    read_formula.cache_clear()
    return is_same(*request) if len(request) == 2 else bool(read_formula(*request))


def test_what_is_nested_too_deep_is_not_read():
    assert is_readable("(" * (DEEPEST - 1) + "1" + ")" * (DEEPEST - 1))
    assert not is_readable("(" * (DEEPEST + 1) + "1" + ")" * (DEEPEST + 1))


def test_no_command_that_is_read_is_a_sum_or_a_name():
    assert not set(COMMANDS) & {"sum", "prod", "int", "lim", "operatorname", "variable", "text", "mathop", "boxed"}


BOMBS = [
    "$9^{9^{9^9}}$",
    "9^9^9^9 it is",
    r"\boxed{99999999999!}",
    "$(x+1)^{99999}$",
    "$" + "(" * 240 + "1" + ")" * 240 + "$",
]


@pytest.fixture
def task(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = "".join(f'{{"prompt": "What is half of {i}?", "answer": "{i}/2"}}\n' for i in range(60))
    (tmp_path / "halves.jsonl").write_text(rows)
    return get_task("math:halves.jsonl")


def test_the_alarm_is_left_to_the_guard(task):
    problem = task.problems("train", 1, seed=0)[0]
    signal.setitimer(signal.ITIMER_REAL, 1000)
    try:
        for text in (problem.answer, f"${problem.answer}$", r"\boxed{\frac{x}{y}}", "it is 1/7"):
            task.verify(text, problem)
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 900
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def processes():
    math_answers.is_readable("1")
    return math_answers._WORKER.process


def test_a_process_that_does_not_answer_is_killed_and_costs_its_completion_alone(task, monkeypatch):
    """A formula that the library computes for ever would do the same; none is known that is read at all."""
    monkeypatch.setattr(math_answers, "SECONDS", 0.5)
    math_answers._ask.cache_clear()
    assert same_answer("1/2", "0.5")
    stuck = math_answers._WORKER.process
    os.kill(stuck.pid, signal.SIGSTOP)
    began = time.monotonic()
    assert not same_answer("3/2", "1.5")
    assert time.monotonic() - began < 5
    assert stuck.poll() is not None
    math_answers._ask.cache_clear()
    assert same_answer("3/2", "1.5")
    assert math_answers._WORKER.process is not stuck


def test_a_process_that_has_died_is_started_again():
    math_answers._ask.cache_clear()
    assert same_answer("5/2", "2.5")
    math_answers._WORKER.process.kill()
    math_answers._WORKER.process.wait()
    math_answers._ask.cache_clear()
    assert same_answer("5/2", "2.5")


def test_the_guards_limit_interrupts_the_wait_and_the_late_answer_is_nobodys(task):
    problems = task.problems("train", 3, seed=0)
    math_answers._ask.cache_clear()
    assert same_answer("7/2", "3.5")
    os.kill(math_answers._WORKER.process.pid, signal.SIGSTOP)
    math_answers._ask.cache_clear()
    with pytest.warns(VerifierWarning, match="TimeoutError"):
        scored = verify_all(task, problems[:1], [problems[0].answer + " + 0"], seconds=0.2)
    assert scored.values == [0.0]
    math_answers._ask.cache_clear()
    assert [task.verify(problem.answer + " + 0", problem) for problem in problems] == [1.0] * 3
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_is_wrong_within_seconds(bomb):
    began = time.monotonic()
    assert not same_answer(bomb, "42")
    assert time.monotonic() - began < 10


def test_memory_has_a_limit():
    resource = pytest.importorskip("resource")
    pid = processes().pid
    assert resource.prlimit(pid, resource.RLIMIT_AS)[1] == math_worker.MEMORY


def test_costly_formulas_are_wrong_and_no_fault_of_the_verifier(task):
    """A run counts the verifier's faults: a policy that writes towers of powers is wrong, and nothing is broken."""
    problems = task.problems("train", len(COSTLY), seed=0)
    began = time.process_time()
    scored = verify_all(task, problems, [rf"\boxed{{{formula}}}" for formula in COSTLY])
    assert (scored.values, scored.faults) == ([0.0] * len(COSTLY), {})
    assert time.process_time() - began < 2


def test_off_the_main_thread_answers_are_compared_as_well():
    """math-verify's own limit works in the main thread alone."""
    found = []
    math_answers._ask.cache_clear()
    thread = threading.Thread(target=lambda: found.append((same_answer("9/2", "4.5"), same_answer("9/2", "5"))))
    thread.start()
    thread.join(60)
    assert found == [(True, False)]


def test_nothing_is_said(capfd):
    math_answers._WORKER.stop()
    math_answers._ask.cache_clear()
    same_answer("$42$", "43")
    assert capfd.readouterr() == ("", "")
