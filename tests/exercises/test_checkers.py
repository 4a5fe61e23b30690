"""Each checker against the stub, the solution, the mistakes on its list, and answers that are on nobody's list.

Solutions are held to the library, to enumeration or to plain loops, never to themselves. Wrong answers have to be
rejected each with a sentence of its own; right answers by another route have to pass.
"""

import importlib
import inspect
import itertools
import re
import sys

import numpy as np
import pytest
import torch
from IPython.core.formatters import DisplayFormatter

from rlhf_book.exercises import BUGS, EXERCISES, Exercise, Verdict, check, hint, solution, world
from rlhf_book.exercises import exercise as machinery
from rlhf_book.exercises.cells import imports
from rlhf_book.exercises.exercise import Case, Mistake
from rlhf_book.exercises.grpo.advantage import my_group_advantage
from rlhf_book.exercises.grpo.clipped_loss import my_clipped_loss
from rlhf_book.exercises.grpo.closed_form import my_scores
from rlhf_book.exercises.grpo.dead_groups import my_dead_share
from rlhf_book.exercises.grpo.k3_penalty import my_k3_penalty
from rlhf_book.exercises.grpo.leave_one_out import my_leave_one_out
from rlhf_book.exercises.grpo.on_policy import my_on_policy_loss
from rlhf_book.exercises.grpo.process import my_process_advantage
from tests.exercises.answers import grpo

MISTAKES = [(e, m) for e in EXERCISES.values() for m in e.mistakes]


@pytest.fixture(autouse=True)
def _patience(monkeypatch):
    """A reader waits a minute for a verdict. A machine that runs many tests may be slow without being wrong."""
    monkeypatch.setattr(machinery, "_TOGETHER", 600.0)


@pytest.fixture
def fewer_draws(monkeypatch):
    """Where the solution itself has passed all draws, a part of them tells another text or route apart from it."""
    assert machinery.HIDDEN_DRAWS == 1000
    monkeypatch.setattr(machinery, "HIDDEN_DRAWS", 80)


def name_of(value):
    if isinstance(value, Exercise):
        return value.id
    return value.wrong.__name__ if isinstance(value, Mistake) else None


# ── the list ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("exercise", EXERCISES.values(), ids=name_of)
def test_the_solution_passes(exercise):
    """All draws that a reader may meet have an answer that equals itself; on some of them it is asked once more."""
    for number, case in enumerate(exercise._every_case):
        answer = exercise._right(number)
        assert not answer.problem, (case, answer.problem)
        assert machinery._same(answer, answer, case.exact), (case, "not a number")
    assert number + 1 == len(exercise.cases) + 1000
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machinery, "HIDDEN_DRAWS", 80)
        verdict = exercise.check(exercise.solution)
    assert verdict.passed, verdict
    assert verdict.message == exercise.right


@pytest.mark.parametrize("exercise", EXERCISES.values(), ids=name_of)
def test_the_stub_fails_as_a_stub(exercise):
    """The text that the chapter prints runs, is told to be a stub, and holds nothing of the solution."""
    names = {}
    exec(imports(exercise.needs) + exercise.stub.rsplit("\n\n\ncheck(", 1)[0], names)
    verdict = exercise.check(names[exercise.solution.__name__])
    assert not verdict.passed
    assert not verdict.begun
    assert "still the stub" in verdict.message
    body = inspect.getsource(exercise.solution).split('"""')[2]
    for line in (line.strip() for line in body.splitlines() if any(map(str.isalnum, line))):
        assert line not in exercise.stub


@pytest.mark.parametrize("exercise", EXERCISES.values(), ids=name_of)
@pytest.mark.usefixtures("fewer_draws")
def test_the_printed_solution_runs(exercise):
    names = {}
    (code,) = re.findall(r"```python\n(.*?)```", solution(exercise.id).markdown, re.DOTALL)
    exec(imports(exercise.needs) + code, names)
    assert exercise.check(names[exercise.solution.__name__]).passed


@pytest.mark.parametrize("item", [*EXERCISES.values(), *BUGS.values()], ids=lambda item: item.id)
def test_there_is_a_hint_that_is_shorter_than_the_solution(item):
    first, then = hint(item.id, level=1), solution(item.id)
    assert item.id in repr(first)
    assert len(item.hint.split()) >= 6
    assert item.hint[-1] in ".?"
    assert item.hint in first._repr_markdown_()
    assert "```" not in first.markdown
    assert "```python\ndef " in then._repr_markdown_()
    assert repr(then) == then.markdown
    assert len(then.markdown) > len(first.markdown)


def test_every_id_is_one_of_an_exercise_or_of_a_bug():
    assert not EXERCISES.keys() & BUGS.keys()


def test_a_notebook_shows_nothing_for_a_stub_and_every_other_verdict():
    def show(verdict):
        return DisplayFormatter().format(verdict)[0]

    untouched = check("grpo-advantage", lambda *_: ...)
    assert show(untouched) == {}
    assert "still the stub" in repr(untouched)
    for answer in (lambda *_: None, by_median, my_group_advantage):
        assert set(show(check("grpo-advantage", answer))) == {"text/plain", "text/html"}
    assert "text/markdown" in show(hint("grpo-advantage", level=1))


@pytest.mark.parametrize(("exercise", "mistake"), MISTAKES, ids=name_of)
def test_each_mistake_gets_its_own_sentence(exercise, mistake):
    verdict = exercise.check(mistake.wrong)
    assert not verdict.passed
    assert verdict.message == mistake.message


@pytest.mark.parametrize("exercise", EXERCISES.values(), ids=name_of)
def test_an_exercise_is_complete(exercise):
    messages = [mistake.message for mistake in exercise.mistakes]
    assert len(set(messages)) == len(messages) >= 6, "six mistakes or more, each with a sentence of its own"
    assert exercise.difficulty in ("warm-up", "core", "stretch")
    assert 1 <= exercise.minutes <= 60
    assert exercise.solution.__name__.startswith("my_")  # never shadows a name of the chapter
    assert exercise.solution.__name__ in exercise.markdown
    for text in [*messages, exercise.right, exercise.where]:
        assert text[-1] in ".?"
        assert len(re.findall(r"[.?!](?:\s|$)", text)) <= 3, text  # one or two sentences, and a question at most


@pytest.mark.parametrize("exercise", EXERCISES.values(), ids=name_of)
def test_no_sentence_gives_the_solution_away(exercise):
    body = inspect.getsource(exercise.solution).split('"""')[2]
    code = [re.sub(r"#.*", "", line).strip().removeprefix("return ") for line in body.splitlines()]
    expressions = [line.split(" = ", 1)[-1] for line in code if len(line) > 12]
    for text in [exercise.markdown, exercise.where, *(mistake.message for mistake in exercise.mistakes)]:
        assert not any(expression in text for expression in expressions)


# ── answers on nobody's list ─────────────────────────────────────────────────────────────────────────────────────

CHAPTERS = [
    importlib.import_module(f"tests.exercises.answers.{name}")
    for name in (
        "language_models",
        "policy_gradients",
        "reward_models",
        "kl_divergence",
        "trust_regions",
        "ppo_clip",
        "gae",
        "ppo_rlhf",
        "grpo",
        "rloo",
        "dr_grpo",
        "dapo",
        "gspo",
        "mixture_of_experts",
        "soft_gates",
        "kimi",
        "off_policy",
        "distillation",
        "anatomy",
        "rlvr",
        "deepseek_r1",
        "process_rewards",
        "test_time_scaling",
        "self_play",
        "judges",
        "agents",
        "diagnosis",
        "making_it_fast",
        "scaling_up",
        "choosing",
        "whiteboard",
    )
]
UNLISTED = [entry for chapter in CHAPTERS for entry in chapter.UNLISTED]
RIGHT = [entry for chapter in CHAPTERS for entry in chapter.RIGHT]
by_median = grpo.by_median


@pytest.mark.parametrize(("exercise", "answer", "words"), UNLISTED)
def test_an_unlisted_wrong_answer_is_rejected_with_an_example(exercise, answer, words):
    verdict = check(exercise, answer)
    assert not verdict.passed
    assert words in verdict.message
    assert verdict.message not in [mistake.message for mistake in EXERCISES[exercise].mistakes]


def test_every_exercise_meets_an_answer_outside_its_list_and_one_that_only_remembers():
    assert {name for name, *_ in UNLISTED} == set(EXERCISES)


@pytest.mark.parametrize("exercise", EXERCISES.values(), ids=name_of)
def test_right_on_the_shown_batch_only(exercise):
    """An answer that knows the printed batch by heart and returns nonsense elsewhere."""
    shown = exercise.cases[0].arguments

    def by_heart(*given):
        known = all(
            torch.equal(a, b) if isinstance(b, torch.Tensor) and a.shape == b.shape else a is b or a == b
            for a, b in zip(given, shown.values(), strict=True)
            if not isinstance(b, torch.Tensor) or a.shape == b.shape
        ) and all(
            not isinstance(b, torch.Tensor) or a.shape == b.shape for a, b in zip(given, shown.values(), strict=True)
        )
        right = exercise.solution(*given)
        if known:
            return right
        return tuple(x + 1 for x in right) if isinstance(right, tuple) else right + 1

    verdict = exercise.check(by_heart)
    assert not verdict.passed
    assert verdict.message.startswith("Right on the first example, but not on others.")


@pytest.mark.parametrize("exercise", EXERCISES.values(), ids=name_of)
def test_right_on_every_printed_case_only(exercise):
    """One that even knows the cases in our source is caught by the drawn batches."""
    calls = itertools.count()

    def lucky(*given):
        right = exercise.solution(*given)
        if next(calls) < len(exercise.cases):
            return right
        return tuple(x + 1 for x in right) if isinstance(right, tuple) else right + 1

    assert not exercise.check(lucky).passed


@pytest.mark.parametrize(
    ("factor", "words"),
    [(-1.0, "sign"), (3.0, "3 times the right one")],
)
def test_signs_and_factors_are_named_without_a_list(factor, words):
    verdict = check("grpo-process", lambda *given: factor * my_process_advantage(*given))
    assert words in verdict.message


def test_a_constant_factor_is_named_for_a_single_number_too():
    verdict = check("grpo-k3", lambda *given: 0.1 * my_k3_penalty(*given))
    assert "Every number is 0.1 times the right one." in verdict.message


def test_a_factor_that_changes_is_named_without_batches():
    """The arguments may be two integers."""
    verdict = check("grpo-closed-form", lambda k, g: [k * score for score in my_scores(k, g)])
    assert "the factor changes from call to call" in verdict.message


def test_zeros_are_called_zeros():
    verdict = check("grpo-process", lambda *given: 0 * my_process_advantage(*given))
    assert "Every number that you return is 0." in verdict.message
    assert "factor" not in verdict.message


def test_a_sign_is_named_beside_another_mistake():
    named = 0
    for exercise in (EXERCISES["grpo-clipped-loss"], EXERCISES["gae-recursion"], EXERCISES["grpo-k3"]):
        listed = {mistake.message for mistake in exercise.mistakes}
        both = {f"The sign is wrong, and it is not the only mistake. {message}" for message in listed}
        for mistake in exercise.mistakes:
            verdict = exercise.check(lambda *given, wrong=mistake.wrong: -wrong(*given))
            if verdict:  # two wrong signs
                assert "sign" in mistake.message or "minimise" in mistake.message
                continue
            named += verdict.message in both
            assert verdict.message in both | listed, mistake
    assert named > 15


def test_a_wrong_shape_does_not_show_what_is_expected():
    verdict = check("gspo-noise", lambda sigma, n: 1.0)
    assert "The shape is (), expected (3,)." in verdict.message
    right = EXERCISES["gspo-noise"].solution(*EXERCISES["gspo-noise"].cases[0].arguments.values())
    assert not any(f"{number:g}"[:5] in verdict.message for number in right)


def test_masking_the_arguments_of_gae_first_is_known():
    """What many write: right with padding, and wrong with a hole."""

    def masked_first(rewards, values, mask, gamma, lam):
        rewards, values = rewards * mask, values * mask
        advantages, last = torch.zeros_like(rewards), 0.0
        for t in reversed(range(rewards.shape[1])):
            following = values[:, t + 1] if t + 1 < rewards.shape[1] else 0.0
            last = rewards[:, t] + gamma * following - values[:, t] + gamma * lam * last
            advantages[:, t] = last
        return advantages

    for answer in (masked_first, lambda *given: masked_first(*given) * given[2]):
        assert "a hole in the middle becomes a token with reward 0" in check("gae-recursion", answer).message


def natural_clipped_loss(logp, old_logp, advantages, mask, low, high):
    ratio = logp / old_logp
    objective = torch.min(ratio * advantages[:, None], torch.clamp(ratio, 1 - low, 1 + high) * advantages[:, None])
    return -((objective * mask).sum(dim=1) / mask.sum(dim=1)).mean()


def natural_k3(logp, ref_logp, mask):
    r = ref_logp / logp
    return (((r - 1 - r.log()) * mask).sum(dim=1) / mask.sum(dim=1)).mean()


def natural_on_policy(logp, advantages, mask):
    ratio = logp / logp.detach()
    return -((ratio * advantages.unsqueeze(1) * mask).sum(dim=1) / mask.sum(dim=1)).mean()


@pytest.mark.parametrize(
    ("exercise", "answer"),
    [
        ("grpo-clipped-loss", natural_clipped_loss),
        ("grpo-k3", natural_k3),
        ("grpo-on-policy", natural_on_policy),
    ],
)
def test_a_quotient_of_log_probs_is_recognised_as_readers_write_it(exercise, answer):
    """In the first example the padding of both is 0: the quotient is NaN there, and is recognised nevertheless."""
    assert "divide one log-prob by the other" in check(exercise, answer).message


# ── functions that misbehave ─────────────────────────────────────────────────────────────────────────────────────


def raises(*_):
    raise RuntimeError("a bad day")


def in_place(rewards, group_size, eps=1e-4):
    rewards -= rewards.mean()
    return rewards


def in_place_on_a_leaf(logp, ref_logp, mask):
    logp -= ref_logp
    return logp.mean()


MISBEHAVING = [
    ("grpo-advantage", raises, "raised RuntimeError: a bad day"),
    ("grpo-advantage", lambda rewards: rewards, "raised TypeError"),
    ("grpo-advantage", lambda *_: None, "returned None: it lacks a return"),
    ("grpo-advantage", lambda *_: "1.0", "returned a str"),
    ("grpo-advantage", lambda *_: {}, "returned a dict"),
    ("grpo-advantage", lambda *_: ..., "still the stub"),
    ("grpo-advantage", 3, "This is an int"),
    ("grpo-advantage", lambda r, g, e: r.view(-1, g), "The shape is (1, 2), expected (2,)"),
    ("grpo-advantage", lambda r, g, e: r / 0, "not finite"),
    ("grpo-advantage", in_place, "changed its argument `rewards` in place"),
    ("grpo-k3", in_place_on_a_leaf, "changed its argument `logp` in place"),
    ("grpo-k3", lambda *_: float("nan"), "not finite"),
    ("grpo-closed-form", lambda k, g: (1.0, [2.0, 3.0]), "returned a tuple"),
    ("grpo-advantage", torch.ones(8), "without calling it"),
]


@pytest.mark.parametrize(("exercise", "function", "words"), MISBEHAVING)
def test_a_function_that_misbehaves_gets_an_answer(exercise, function, words):
    verdict = check(exercise, function)
    assert not verdict.passed
    assert words in verdict.message


def test_the_random_state_is_left_alone():
    def noisy(*given):
        torch.rand(3)
        return my_leave_one_out(*given)

    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002  (readers have it, too)
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    assert check("grpo-leave-one-out", noisy)
    assert check("grpo-clipped-loss", my_clipped_loss)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (np.random.get_state()[1] == before[1]).all()  # noqa: NPY002


def test_verdicts_are_the_same_every_time():
    assert repr(check("grpo-advantage", by_median)) == repr(check("grpo-advantage", by_median))


def test_inside_no_grad_losses_are_still_judged():
    with torch.no_grad():
        assert check("grpo-on-policy", my_on_policy_loss)


def test_an_unknown_exercise_is_an_error_with_a_hint():
    with pytest.raises(ValueError, match="did you mean 'grpo-advantage'"):
        check("grpo-advantages", my_group_advantage)
    with pytest.raises(ValueError, match=r"expected one of .*\bgrpo-advantage\b"):
        check("xyz", my_group_advantage)
    for ask in (hint, solution):
        with pytest.raises(ValueError, match="there is no exercise 'paded-mean': did you mean 'padded-mean'"):
            ask("paded-mean")
        with pytest.raises(ValueError, match=r"expected one of .*\bpadded-mean\b"):
            ask("xyz")


def test_a_verdict_reads_well():
    verdict = Verdict("x", False, "a < b & c.")
    assert repr(verdict) == "Not yet (x). a < b & c."
    assert "a &lt; b &amp; c." in verdict._repr_html_()
    assert 'role="status"' in verdict._repr_html_()
    assert "Passed" in Verdict("x", True, "Right.")._repr_html_()


def _equal(one, other):
    """Every number of two cases; their own text leaves large tensors out."""
    return one.arguments.keys() == other.arguments.keys() and all(
        x.shape == y.shape and torch.equal(x, y) if isinstance(x, torch.Tensor) else x == y
        for x, y in zip(one.arguments.values(), other.arguments.values(), strict=True)
    )


def test_the_hidden_batches_differ_from_the_shown_one():
    for exercise in EXERCISES.values():
        shown, drawn = exercise.cases[0], exercise._every_case[len(exercise.cases) :]
        assert len(drawn) == 1000
        met = any(_equal(shown, case) for case in drawn)
        assert not met or exercise.id in ("grpo-closed-form", "diag-verdict")  # which have few inputs to choose among
        assert _equal(shown, shown)


# ── right answers by another route ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("exercise", "answer"), RIGHT)
@pytest.mark.usefixtures("fewer_draws")
def test_a_right_answer_by_another_route_passes(exercise, answer):
    """These also hold each solution to something that is not itself."""
    verdict = check(exercise, answer)
    assert verdict.passed, verdict


def test_every_solution_is_held_to_another_route():
    assert {name for name, _ in RIGHT} == set(EXERCISES)


def test_k3_is_the_kl_in_expectation():
    """Over a small vocabulary the solution's expectation is the exact KL(pi || ref), and not the other direction."""
    generator = torch.Generator().manual_seed(0)
    pi, ref = torch.randn(2, 6, generator=generator, dtype=torch.float64).softmax(-1)
    one = torch.ones(1, 1, dtype=torch.float64)
    each = [my_k3_penalty(pi[v].log().view(1, 1), ref[v].log().view(1, 1), one) for v in range(6)]
    torch.testing.assert_close((pi * torch.stack(each)).sum(), (pi * (pi / ref).log()).sum())
    assert abs(float((pi * (pi / ref).log()).sum() - (ref * (ref / pi).log()).sum())) > 0.05


def test_dead_groups_of_the_statement():
    """The trap in the statement: the same mean of p, very different waste."""
    spread, same = torch.tensor([0.1, 0.9]), torch.tensor([0.5, 0.5])
    assert my_dead_share(spread, 8).item() == pytest.approx(0.43, abs=5e-3)
    assert my_dead_share(same, 8).item() == pytest.approx(0.0078, abs=5e-4)


def test_a_case_prints_small_and_large():
    assert str(Case({"x": torch.tensor([1.0, 0.25]), "n": 2})) == "x=[1, 0.25], n=2"
    assert str(Case({"x": torch.zeros(50, 2)})) == "x=<50 x 2 tensor>"


# ── what a verdict costs ─────────────────────────────────────────────────────────────────────────────────────────


def test_fewer_draws_are_fewer_calls_whatever_was_drawn_before(monkeypatch):
    exercise, calls = EXERCISES["grpo-advantage"], itertools.count()

    def counted(*given):
        next(calls)
        return exercise.solution(*given)

    for draws in (30, 20, 40):
        monkeypatch.setattr(machinery, "HIDDEN_DRAWS", draws)
        before = next(calls)
        assert exercise.check(counted)
        assert next(calls) - before - 1 == len(exercise.cases) + draws
    few, more = list(itertools.islice(exercise.hidden(), 20)), list(exercise.hidden())
    assert [str(case) for case in few] == [str(case) for case in more[:20]]  # the same ones, in the same order


@pytest.mark.parametrize("exercise", EXERCISES.values(), ids=name_of)
def test_all_that_a_verdict_is_made_with_is_looked_at_after_each_call(exercise):
    """The checker, the module of the exercise, and every function and class of the package that it uses."""
    judges = world.made_with(exercise.check, exercise.draw, exercise.solution, *(m.wrong for m in exercise.mistakes))
    assert {machinery, world, importlib.import_module(exercise.solution.__module__)} <= set(judges)
    for judge in (judge for judge in judges if inspect.ismodule(judge)):
        assert judge.__name__.startswith("rlhf_book.exercises")
        for thing in vars(judge).values():
            if inspect.isfunction(thing) or inspect.isclass(thing):
                module = thing.__module__
                assert not module.startswith("rlhf_book.exercises.") or sys.modules[module] in judges, thing
