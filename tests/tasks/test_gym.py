"""reasoning-gym's datasets as tasks: their scores, the split of their problems, and that no model's program is run."""

import builtins
import dataclasses
import inspect
import random
import string
import sys

import pytest
from reasoning_gym import create_dataset
from reasoning_gym.factory import DATASETS

from rlhf_minimal import ALGORITHMS
from rlhf_minimal.config import Config
from rlhf_minimal.evaluate import evaluate
from rlhf_minimal.lab.gym import EVALUATES, INSTRUCTION, READABLE, REFUSED, SIZES, TRUSTED, reasoning_gym_task
from rlhf_minimal.models import TokenizerVocabulary, character_tokenizer, tiny_llama
from rlhf_minimal.tasks import Problem, get_task, verify_all
from rlhf_minimal.tasks.base import normalised, question_core
from rlhf_minimal.train import Recipe, train
from rlhf_minimal.train_state import Learner

SUM = "reasoning-gym:chain_sum,min_terms=2,max_terms=2,min_digits=1,max_digits=2"
MAZE = "reasoning-gym:maze,min_grid_size=5,max_grid_size=5"


@pytest.fixture(autouse=True)
def any_hash_seed(monkeypatch):
    monkeypatch.setenv("PYTHONHASHSEED", "0")


@pytest.mark.parametrize("name", [SUM, "reasoning-gym:chain_sum", "reasoning-gym:gsm_symbolic"])
def test_training_and_held_out_problems_are_disjoint(name):
    task = get_task(name)
    train_side = {problem.prompt for problem in task.problems("train", 300, seed=0)}
    held_out = {problem.prompt for problem in task.problems("held_out", 40, seed=0)}
    assert len(train_side) > 200
    assert len(held_out) > 30
    assert not train_side & held_out


@pytest.mark.parametrize("name", SIZES)
def test_datasets_that_make_their_items_at_once_are_kept_small(name):
    problems = get_task(f"reasoning-gym:{name}").problems("train", 5, seed=0)
    assert len({problem.prompt for problem in problems}) > 3


def test_problems_are_a_function_of_the_seed():
    one, same, other = (
        reasoning_gym_task.__wrapped__(SUM.partition(":")[2]).problems("train", 50, seed=s) for s in "112"
    )
    assert one == same != other
    assert [problem.entry["metadata"] for problem in one] == [problem.entry["metadata"] for problem in same]


def test_what_a_problem_carries():
    task = get_task(SUM)
    problem = task.problems("held_out", 1, seed=0)[0]
    assert problem.entry["question"] == problem.prompt
    assert problem.answer == problem.entry["answer"]
    numbers = [int(word) for word in problem.prompt.replace("+", " ").split() if word.isdigit()]
    assert len(numbers) == 2
    assert max(numbers) < 100
    assert problem == Problem(problem.prompt, problem.answer)  # the entry is no part of what makes two equal
    assert "entry" not in repr(problem)
    assert (task.alphabet, task.max_new_tokens, task.instruction, task.score_range) == ("", 64, INSTRUCTION, None)


@pytest.mark.parametrize(
    ("form", "score"),
    [
        ("{}", 1.0),
        ("  {}\n", 1.0),
        ("<answer>{}</answer>", 1.0),
        ("<think>7 or 8</think><answer> {} </answer>", 1.0),
        ("<answer>none</answer> no: <answer>{}</answer> done", 1.0),
        ("<think>{} or 8</think>{}", 1.0),
        ("<answer>{}</answer><answer>none</answer>", 0.0),
        ("<think>{}</think>", 0.0),
        ("none", 0.0),
        ("", 0.0),
    ],
)
def test_where_the_answer_stands(form, score):
    problem = get_task(SUM).problems("train", 1, seed=0)[0]
    assert get_task(SUM).verify(form.replace("{}", problem.answer), problem) == score


def test_a_part_of_the_point_stays_a_part():
    task = get_task(SUM)
    problem = next(problem for problem in task.problems("train", 50, seed=0) if len(problem.answer) == 2)
    assert task.verify(f"it is {problem.answer}", problem) == 2 / len("it is 12")


def test_an_answer_that_a_scorer_cannot_read_is_wrong():
    task = get_task("reasoning-gym:prime_factorization")
    problem = task.problems("train", 1, seed=0)[0]
    with pytest.raises(ValueError, match="invalid literal"):
        create_dataset("prime_factorization").score_answer("no idea", problem.entry)
    assert (task.verify("no idea", problem), task.verify(problem.answer, problem)) == (0.0, 1.0)
    with pytest.raises(ValueError, match="no reasoning-gym entry"):
        task.verify("7", Problem(problem.prompt, problem.answer))


@pytest.mark.parametrize("name", READABLE)
def test_the_right_answer_can_be_read_where_only_some_texts_are(name):
    task = get_task(f"reasoning-gym:{name}")
    problems = [p for p in task.problems("train", 6, seed=0) if "Integral(" not in p.answer]  # sympy found no primitive
    assert len(problems) >= 2
    for problem in problems[:2]:
        assert task.verify(problem.answer, problem) == 1.0


WITH_A_LIST = {"binary_matrix": 0.1, "spiral_matrix": 0.1, "string_insertion": 0.1, "n_queens": 0.5}


@pytest.mark.parametrize("name", WITH_A_LIST)
def test_a_list_still_gets_its_part_of_the_point(name):
    task = get_task(f"reasoning-gym:{name}")
    problem = next(problem for problem in task.problems("train", 9, seed=1) if problem.answer)
    rows = [line.split() for line in problem.answer.splitlines()]
    written = {"string_insertion": list(problem.answer), "spiral_matrix": rows[0]}.get(name, rows)
    text = repr(written) if name in ("n_queens", "string_insertion") else repr(written).replace("'", "")
    assert task.verify(text, problem) == WITH_A_LIST[name]


PROGRAMS = [
    "{}",
    " {}",
    "[{}]",
    "[{}, 1]",
    "1 + {}",
    "x + {}",
    "sin({})",
    "x if {} else 1",
    "[x for x in [{}]]",
    "(lambda: {})()",
    "# \n{}",
    "2\n+ {}",
    "C + Symbol({})",
    'f"{' + "{}" + '}"',
]
CALLS = ["canary(1)", '__import__("builtins").canary(1)', "(canary)(1)", "canary (1)", "canary\\\n(1)"]


@pytest.fixture
def canary(monkeypatch):
    sung = []
    monkeypatch.setattr(builtins, "canary", sung.append, raising=False)
    return sung


@pytest.mark.parametrize("name", [*READABLE, *sorted(TRUSTED)])
def test_no_program_of_a_models_is_run(name, canary):
    task = get_task(f"reasoning-gym:{name}")
    problem = task.problems("train", 1, seed=0)[0]
    for program in PROGRAMS:
        for call in CALLS:
            for text in (program.replace("{}", call), f"{problem.answer} + {call}", f"{problem.answer}, {call}"):
                assert task.verify(text, problem) < 1
    assert canary == []
    if name in READABLE:  # the scorer itself would run it
        create_dataset(name).score_answer("canary(1)", problem.entry)
        assert canary


def test_every_dataset_that_evaluates_something_is_known():
    evaluating = {
        name
        for name, (kind, _) in DATASETS.items()
        if EVALUATES.search(inspect.getsource(sys.modules[kind.__module__]))
    }
    assert evaluating == {*READABLE, *TRUSTED, "codeio"}


def test_a_dataset_that_evaluates_and_that_nobody_has_read_is_refused(monkeypatch):
    monkeypatch.delitem(READABLE, "countdown")
    with pytest.raises(ValueError, match="this version of reasoning-gym evaluates texts in countdown"):
        reasoning_gym_task.__wrapped__("countdown")


def test_a_sum_that_would_take_for_ever_is_not_begun():
    task = get_task("reasoning-gym:countdown")
    problem = task.problems("train", 1, seed=0)[0]
    assert verify_all(task, [problem], ["9**9**9**9"], seconds=0.5).faults == {}
    assert task.verify("9*9*9*9", problem) == 0.05  # and this one is read


def test_why_a_scorer_is_refused():
    entry = create_dataset("game_of_life_halting", seed=0, size=5)[0]
    assert create_dataset("game_of_life_halting").score_answer("anything", entry) == 1.0
    assert set(REFUSED) <= set(DATASETS)


def test_generators_that_give_up_and_that_print(capsys):
    index = next(i for i in range(10**6) if fails(create_dataset("maze", seed=0, size=10**6), i))

    class Indices(random.Random):
        drawn = [index, index, 5]

        def randrange(self, size):
            return self.drawn.pop(0)

    task = get_task("reasoning-gym:maze")
    assert task.make(Indices()).prompt == create_dataset("maze", seed=0, size=10)[5]["question"]
    get_task("reasoning-gym:bf").problems("train", 2, seed=0)
    assert capsys.readouterr() == ("", "")


def fails(dataset, index):
    try:
        dataset[index]
    except RuntimeError:
        return True
    return False


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("chain_sums", "reasoning-gym has no dataset 'chain_sums'; did you mean chain_sum or decimal_chain_sum?"),
        ("", "reasoning-gym has no dataset ''; choose one of ab, acre, "),
        ("chain_sum,min_term=2", "no setting 'min_term'; did you mean min_terms"),
        ("chain_sum,zzz=2", "no setting 'zzz'; choose one of allow_negation, "),
        ("chain_sum,min_terms", "'min_terms' is not a setting; write key=value"),
        ("chain_sum,", "'' is not a setting; write key=value"),
        ("chain_sum,min_terms=", "'min_terms=' is not a setting"),
        ("chain_sum,min_terms=two", "min_terms is 'two', and should be a whole number"),
        ("chain_sum,min_terms=2.5", "min_terms is '2.5', and should be a whole number"),
        ("chain_sum,allow_negation=1", "allow_negation is '1', and should be true or false"),
        ("codeio", "codeio is not offered: it runs other people's programs"),
        ("circuit_logic,neg_prob=often", "neg_prob is 'often', and should be a number"),
        ("chain_sum,min_terms=2,min_terms=3", "sets min_terms twice"),
        ("chain_sum,seed=1", "seed cannot be set; the run's own seed draws the problems"),
        ("chain_sum,size=9", "size cannot be set"),
        (
            "chain_sum,min_terms=9,max_terms=2",
            "reasoning-gym refuses reasoning-gym:chain_sum,min_terms=9,max_terms=2: ",
        ),
        ("basic_arithmetic,operators=+", "operators takes more than one value"),
        ("word_ladder,max_word_length=99", "reasoning-gym refuses"),
        *((name, f"{name} is not offered: ") for name in REFUSED),
    ],
)
def test_what_is_no_task(text, message):
    with pytest.raises(ValueError) as caught:
        get_task(f"reasoning-gym:{text}")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_values_have_the_kind_of_the_setting():
    task = get_task("reasoning-gym:chain_sum, allow_negation = true, min_digits=3,max_digits=3")
    assert any("-" in problem.answer for problem in task.problems("train", 30, seed=0))
    task = get_task("reasoning-gym:figlet_font,static_word=CAT")  # a setting without a default
    assert {problem.answer for problem in task.problems("train", 5, seed=0)} == {"CAT"}


def test_settings_that_make_no_problem_are_refused():
    with pytest.raises(ValueError, match="reasoning-gym cannot make a problem of reasoning-gym:maze,.*RuntimeError"):
        get_task(f"{MAZE},min_dist=90,max_dist=99")
    with pytest.raises(ValueError, match="reasoning-gym refuses reasoning-gym:figlet_font") as caught:
        get_task("reasoning-gym:figlet_font,static_font=none")  # it would list hundreds of fonts
    assert len(str(caught.value)) < 300


def test_a_dataset_that_depends_on_the_hash_seed_needs_one(monkeypatch):
    get_task("reasoning-gym:ransom_note")
    for seed in ("random", None):
        if seed:
            monkeypatch.setenv("PYTHONHASHSEED", seed)
        else:
            monkeypatch.delenv("PYTHONHASHSEED")
        with pytest.raises(ValueError, match="PYTHONHASHSEED=0"):
            reasoning_gym_task.__wrapped__("ransom_note")


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    message = "the task reasoning-gym:lcm needs the package reasoning-gym: pip install reasoning-gym"
    with pytest.raises(ValueError) as caught:
        get_task("reasoning-gym:lcm")
    assert str(caught.value) == message


def test_a_run_and_its_accuracy_count_whole_points_only():
    tokenizer = character_tokenizer(string.printable)
    vocabulary = TokenizerVocabulary(tokenizer)
    task = dataclasses.replace(get_task(SUM), verify=lambda completion, problem: 0.5 + 0.5 * ("e" in completion))
    config = Config(steps=2, prompts=4, group_size=4, max_new_tokens=4)
    recipe = Recipe(ALGORITHMS["grpo"], task, config)
    learner = Learner.begin(
        tiny_llama(len(vocabulary), width=16, heads=2, max_length=128), vocabulary, recipe.algorithm, config
    )
    history = train(learner, recipe)
    assert all(row["accuracy"] == pytest.approx(2 * row["reward"] - 1) for row in history)
    found = evaluate(learner.policy, vocabulary, recipe, n=40)
    assert found.sampled.right == sum("e" in text for text in found.samples.texts)
    assert found.scores is None


def test_what_a_dataset_writes_around_a_question_does_not_move_it_to_the_other_side():
    """Recorded runs divided whole prompts; a row that asks the same in another form stays on the same side."""
    task = get_task("reasoning-gym:chain_sum,min_terms=2,max_terms=2,min_digits=1,max_digits=2")
    for seed in range(5):
        prompt = task.make(random.Random(seed)).prompt
        assert question_core(prompt) != normalised(prompt)
        assert task.identity(prompt) == normalised(prompt)
        assert task.identity(f"### Question\n{question_core(prompt)}\nLet's think step by step.") == task.identity(
            prompt
        )
