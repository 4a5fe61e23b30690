"""Process reward models: labels of steps, scorers that learn them, and what their scores are for."""

import dataclasses
import itertools
import json
import math
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from rlhf_minimal import ALGORITHMS, contrib
from rlhf_minimal.cli import fitting, main
from rlhf_minimal.cli.starts import ASSETS
from rlhf_minimal.config import Config
from rlhf_minimal.fit import FitConfig, fit
from rlhf_minimal.lab.process_reward import (
    AGGREGATES,
    StepScorer,
    auc,
    evaluate_steps,
    label_steps,
    load_step_scorer,
    sample_steps,
    scored_steps,
    step_ends,
    step_loss,
    weigh_steps,
)
from rlhf_minimal.lab.rows import StepRow, read_rows, write_rows
from rlhf_minimal.lab.votes import evaluate_votes
from rlhf_minimal.model_files import STEP_SCORER_FILE
from rlhf_minimal.models import RewardModel, Vocabulary, load_reward_model, tiny_llama
from rlhf_minimal.sample import select
from rlhf_minimal.tasks import Problem, Step, Task, get_task
from rlhf_minimal.train import Recipe, roll_out
from rlhf_minimal.training import load_policy, save_policy
from tests.commands import fails
from tests.commands import rows as metrics
from tests.training.test_steps import BYTES

CLOCK = get_task("clock10")
RECIPE = Recipe(ALGORITHMS["reinforce"], CLOCK, Config())
ROWS = [
    StepRow("3+8+....:", "3d8b=b", (Step(2, 1.0), Step(4, 1.0), Step(6, 1.0))),
    StepRow("3+8+5+..:", "3d8c5h", (Step(2, 1.0), Step(4, 0.0), Step(6, 0.0))),
    StepRow("3+......:", "=a", (Step(2, 0.0),)),
    StepRow("9+......:", "9j.j.j=j", (Step(2, 1.0), Step(4, 0.5), Step(6, 0.25), Step(8, 1.0))),
]
HEADS = ("ratio", "scalar")
both = pytest.mark.parametrize("head", HEADS)


@pytest.fixture(scope="module")
def start():
    return load_policy(ASSETS / "clock10")


def scorer_of(head, *, moved=True, task=CLOCK, beta=0.7):
    """A tiny scorer, by default one whose weights are no longer those of its start."""
    vocabulary = Vocabulary(task.alphabet)
    policy = tiny_llama(len(vocabulary), width=16, layers=1, heads=2, max_length=128)
    scorer = StepScorer.from_policy(policy, vocabulary, head, beta=beta)
    if moved:
        draws = torch.Generator().manual_seed(0)
        for weight in scorer.model.parameters():
            weight.data += 0.3 * torch.randn(weight.shape, generator=draws)
    return scorer


# --- labels ----------------------------------------------------------------------------------------------------------


def test_labels_by_program_are_the_checkers_and_the_last_is_the_outcome(start):
    rows = sample_steps(*start, RECIPE, 60, labels="program", at_once=25)
    assert len(rows) == 60
    problems = {problem.prompt: problem for problem in CLOCK.problems("train", 60, seed="steps/0")}
    for row in rows:
        *before, last = row.steps
        checked = CLOCK.steps(row.completion, problems[row.prompt])
        assert before == [step for step in checked if step.end < len(row.completion)]
        assert last == (len(row.completion), CLOCK.verify(row.completion, problems[row.prompt]))
    marks = [mark for row in rows for _, mark in row.steps[:-1]]
    assert {0.0, 1.0} == set(marks)


def test_an_outcome_is_the_label_of_one_step(start):
    rows = sample_steps(*start, RECIPE, 20, labels="outcome")
    whole = sample_steps(*start, RECIPE, 20, labels="program")
    assert [row.steps for row in rows] == [row.steps[-1:] for row in whole]


def test_training_and_held_out_rows_ask_different_questions(start):
    rows = sample_steps(*start, RECIPE, 20, split="held_out", labels="outcome")
    assert all(CLOCK.is_held_out(row.prompt) for row in rows)
    assert sample_steps(*start, RECIPE, 20, labels="outcome", seed=1) != sample_steps(
        *start, RECIPE, 20, labels="outcome"
    )


LETTERS = Task(
    "letters",
    "two letters a",
    "ab:",
    4,
    make=lambda rng: Problem(rng.choice(["a:", "b:", "ab:", "ba:", "aa:", "bb:", "bab:", "aba:"]), ""),
    verify=lambda completion, problem: float(completion.count("a") == 2),
    steps=lambda completion, problem: [Step(end, 1.0) for end in range(1, len(completion) + 1)],
)


def chance_of_being_right(policy, vocabulary, prompt, begun, budget):
    """Exactly: over all completions that go on from there."""
    if len(begun) == budget or begun[-1:] == [vocabulary.eos_id]:
        return float(LETTERS.verify(vocabulary.decode(begun), Problem(prompt, "")))
    with torch.no_grad():
        logits = policy(torch.tensor([[*vocabulary.encode(prompt), *begun]])).logits[0, -1]
    return sum(
        p * chance_of_being_right(policy, vocabulary, prompt, [*begun, token], budget)
        for token, p in enumerate(logits.double().softmax(-1).tolist())
    )


def test_shepherds_label_is_the_chance_of_being_right_from_there():
    """Against an enumeration of every completion; and what is finished has its outcome as label."""
    vocabulary = Vocabulary(LETTERS.alphabet)
    policy = tiny_llama(len(vocabulary), width=16, layers=1, heads=2, seed=1)
    recipe = Recipe(ALGORITHMS["reinforce"], LETTERS, Config())
    problems = [Problem(prompt, "") for prompt in ("a:", "b:", "bab:")]
    written = roll_out(policy, vocabulary, problems, recipe, group_size=4, seed="s")
    rows = label_steps(policy, vocabulary, recipe, written, labels="shepherd", rollouts=1500)
    hard = label_steps(policy, vocabulary, recipe, written, labels="shepherd-hard", rollouts=40)
    seen = set()
    for i, (row, sharp) in enumerate(zip(rows, hard, strict=True)):
        *before, last = row.steps
        assert last == sharp.steps[-1] == (len(row.completion), written.correct[i].item())
        for (end, label), (_, either) in zip(before, sharp.steps, strict=False):
            exact = chance_of_being_right(policy, vocabulary, row.prompt, vocabulary.encode(row.completion[:end]), 4)
            assert label == pytest.approx(exact, abs=5 * math.sqrt(exact * (1 - exact) / 1500) + 1e-9)
            assert either in (0.0, 1.0)
            assert either == (exact > 0) or 0 < exact < 0.15
            seen.add(round(exact, 3))
    assert len(seen) > 5
    assert {0.0} < seen


def test_another_seed_draws_other_completions(start):
    written = roll_out(*start, CLOCK.problems("train", 20, seed=0), RECIPE, seed="s")
    labels = [label_steps(*start, RECIPE, written, labels="shepherd", rollouts=3, seed=seed) for seed in "112"]
    assert labels[0] == labels[1] != labels[2]


def test_empty_completions_have_no_steps_to_label(start):
    policy, vocabulary = start
    silent = tiny_llama(len(vocabulary), width=16, layers=1, heads=2, max_length=128)
    silent.lm_head.weight.data.zero_()  # every token is as likely as another: one completion in 26 is empty
    rows = sample_steps(silent, vocabulary, RECIPE, 200, labels="outcome")
    assert len(rows) < 200
    assert all(row.completion for row in rows)


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({}, {"labels": "teacher"}, "labels of steps are program, shepherd, shepherd-hard, outcome; got 'teacher'"),
        ({}, {"labels": "shepherd", "rollouts": 0}, "rollouts is 0, expected a whole number of at least 1"),
        ({"score_range": (0.0, 1.0)}, {}, "whose completions are right or wrong; 'clock10' grades them"),
        ({"steps": None}, {}, "the task 'clock10' does not say where a step ends: give it steps"),
    ],
)
def test_labels_that_cannot_be_made(start, change, options, message):
    recipe = dataclasses.replace(RECIPE, task=dataclasses.replace(CLOCK, **change))
    with pytest.raises(ValueError, match=message):
        sample_steps(*start, recipe, 2, **options)


# --- scores ----------------------------------------------------------------------------------------------------------


@both
def test_before_training_every_score_is_0(head):
    assert scorer_of(head, moved=False).logits(ROWS).tolist() == [0.0] * 11


def by_hand(model, vocabulary, row):
    """log-probs of a completion's tokens, its end among them, from one unpadded forward."""
    prompt, completion = vocabulary.encode(row.prompt), [*vocabulary.encode(row.completion), vocabulary.eos_id]
    with torch.no_grad():
        logits = model(torch.tensor([prompt + completion])).logits[0]
    return [logits[len(prompt) + t - 1].log_softmax(-1)[token].item() for t, token in enumerate(completion)]


def test_log_ratios_of_steps_sum_to_that_of_the_completion():
    scorer = scorer_of("ratio")
    for row, scores in zip(ROWS, scorer.score(ROWS), strict=True):
        new, old = (by_hand(model, scorer.vocabulary, row) for model in (scorer.model, scorer.reference))
        assert scores.sum().item() == pytest.approx(0.7 * (sum(new) - sum(old)), abs=1e-4)
        assert abs(scores.sum().item()) > 0.01
        begin = 0
        for score, (end, _) in zip(scores.tolist(), row.steps, strict=True):
            last = end + (end == len(row.completion))  # the end token belongs to the last step
            assert score == pytest.approx(0.7 * (sum(new[begin:last]) - sum(old[begin:last])), abs=1e-4)
            begin = last


def test_a_step_may_end_within_a_token():
    """Byte pairs: the scores still sum to the completion's."""
    policy = tiny_llama(len(BYTES), width=16, layers=1, heads=2, max_length=128)
    scorer = StepScorer.from_policy(policy, BYTES)
    for weight in scorer.model.parameters():
        weight.data *= 1.1
    text = "7 + 5 = 12, so 12 + 9 = 21"
    cut = StepRow("3d8b5g9f", text, tuple(Step(end, 1.0) for end in (*range(1, len(text)), len(text))))
    scores = scorer.score([cut, StepRow("3d8b5g9f", text, (Step(len(text), 1.0),))])
    assert len(scores[0]) == len(text)
    assert scores[0].sum().item() == pytest.approx(scores[1].item(), abs=1e-4)
    assert (scores[0] == 0).any()  # a token of several characters counts once


@both
def test_order_company_and_what_follows_do_not_matter(head):
    scorer = scorer_of(head)
    scores = scorer.score(ROWS)
    assert [len(own) for own in scores] == [len(row.steps) for row in ROWS]
    for order in itertools.permutations(range(4)):
        for i, own in zip(order, scorer.score([ROWS[i] for i in order]), strict=True):
            torch.testing.assert_close(own, scores[i], atol=1e-5, rtol=0)
    for row, own in zip(ROWS, scores, strict=True):
        torch.testing.assert_close(scorer.score([row])[0], own, atol=1e-5, rtol=0)
    longer = StepRow(ROWS[0].prompt, "3d8bzzzz".replace("z", "."), (*ROWS[0].steps[:2], Step(8, 0.0)))
    torch.testing.assert_close(scorer.score([longer])[0][:2], scores[0][:2], atol=1e-5, rtol=0)


def test_a_scalar_is_read_at_the_last_token_of_a_step():
    scorer = scorer_of("scalar")
    row = ROWS[1]
    ids = torch.tensor([[*scorer.vocabulary.encode(row.prompt + row.completion), scorer.vocabulary.eos_id]])
    with torch.no_grad():
        numbers = scorer.model.score(scorer.model.base_model(ids).last_hidden_state)[0, :, 0]
    at = [len(row.prompt) + 1, len(row.prompt) + 3, len(row.prompt) + 6]  # after 3d, 8c, and the end token
    torch.testing.assert_close(scorer.score([row])[0], numbers[at])


def test_no_rows_have_no_scores():
    assert scorer_of("ratio").score([]) == []


def test_a_context_that_is_too_short_is_named():
    scorer = scorer_of("ratio")
    long = StepRow("3+" * 60 + ":", "3d" * 5, (Step(10, 1.0),))
    with pytest.raises(ValueError, match="a prompt of 121 tokens and a completion of up to 11 are longer than the 128"):
        scorer.score([long])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"head": "vector"}, "the head of a step scorer is 'ratio' or 'scalar'; got 'vector'"),
        ({"beta": 0.0}, "beta must be above 0; got 0.0"),
    ],
)
def test_scorers_that_there_are_not(options, message):
    with pytest.raises(ValueError, match=message):
        StepScorer.from_policy(tiny_llama(5, width=16), Vocabulary("abc:"), **options)


# --- learning --------------------------------------------------------------------------------------------------------


@both
def test_the_loss_is_the_cross_entropy_of_all_steps(head):
    scorer = scorer_of(head)
    scores = torch.cat(scorer.score(ROWS)).tolist()
    labels = [mark for row in ROWS for _, mark in row.steps]
    expected = [
        -y * math.log(1 / (1 + math.exp(-s))) - (1 - y) * math.log(1 - 1 / (1 + math.exp(-s)))
        for s, y in zip(scores, labels, strict=True)
    ]
    assert step_loss(scorer, ROWS).item() == pytest.approx(sum(expected) / 11, abs=1e-5)
    assert evaluate_steps(scorer, ROWS)["loss"] == pytest.approx(sum(expected) / 11, abs=1e-5)


@both
def test_a_scorer_learns_and_its_start_stays(head):
    scorer = scorer_of(head, moved=False)
    before = [weight.clone() for weight in scorer.reference.parameters()] if scorer.reference else []
    fit(scorer.model, lambda step: ROWS, partial(step_loss, scorer), FitConfig(steps=60, lr=1e-2, warm_up=5))
    assert evaluate_steps(scorer, ROWS)["loss"] < 0.3 < math.log(2)
    assert evaluate_steps(scorer, ROWS)["auc"] == 1
    assert all(torch.equal(*pair) for pair in zip(before, scorer.reference.parameters() if before else [], strict=True))


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=2, max_size=12))
def test_auc_is_the_share_of_pairs_in_order(pairs):
    right = [score for score, is_right in pairs if is_right]
    wrong = [score for score, is_right in pairs if not is_right]
    found = auc(torch.tensor([float(s) for s, _ in pairs]), torch.tensor([is_right for _, is_right in pairs]))
    if not right or not wrong:
        assert math.isnan(found)
        return
    ordered = [1.0 if r > w else 0.5 if r == w else 0.0 for r in right for w in wrong]
    assert found == pytest.approx(sum(ordered) / len(ordered))


# --- folders ---------------------------------------------------------------------------------------------------------


@both
def test_a_saved_scorer_is_the_same(head, tmp_path):
    scorer = scorer_of(head)
    scorer.save(tmp_path)
    assert json.loads((tmp_path / STEP_SCORER_FILE).read_text()) == {"head": head, "beta": 0.7}
    assert load_file(tmp_path / "model.safetensors")
    again = load_step_scorer(tmp_path)
    assert torch.equal(again.logits(ROWS), scorer.logits(ROWS))
    assert type(again) is StepScorer
    assert again.beta == 0.7
    assert not any(weight.requires_grad for weight in (again.reference.parameters() if again.reference else []))


@both
def test_a_folder_of_another_kind_is_refused_by_name(head, tmp_path):
    scorer = scorer_of(head)
    for name in ("scorer", "policy", "reward"):
        (tmp_path / name).mkdir()
    scorer.save(tmp_path / "scorer")
    policy = tiny_llama(len(scorer.vocabulary), width=16)
    save_policy(tmp_path / "policy", policy, scorer.vocabulary)
    RewardModel.from_policy(policy, scorer.vocabulary).save(tmp_path / "reward")
    for load in (load_policy, load_reward_model):
        with pytest.raises(ValueError, match="scorer holds a step scorer: that is for --step-reward and --scorer"):
            load(tmp_path / "scorer")
    for name in ("policy", "reward"):
        with pytest.raises(ValueError, match=f"{name} holds no step scorer: make one with `python -m rlhf_minimal rew"):
            load_step_scorer(tmp_path / name)
    with pytest.raises(ValueError, match="no checkpoint in"):
        load_step_scorer(tmp_path)
    for text in ("{", "[]", '{"head": "tail", "beta": 1}', '{"head": "ratio", "beta": "x"}', '{"head": "ratio"}'):
        (tmp_path / "scorer" / STEP_SCORER_FILE).write_text(text)
        with pytest.raises(ValueError, match="cannot read the checkpoint in .*scorer"):
            load_step_scorer(tmp_path / "scorer")


def test_labelled_rows_survive_a_file(tmp_path):
    write_rows(tmp_path / "rows.jsonl", ROWS)
    assert read_rows(tmp_path / "rows.jsonl", StepRow, Vocabulary(CLOCK.alphabet), max_length=64) == ROWS


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (None, r"row 1: steps must be pairs \(end, mark\)"),
        ([[2, 1.0], [1, 1.0]], r"ends ascending, from 1 to the 6 characters of the completion"),
        ([[7, 1.0]], "row 1: steps must be pairs"),
        ([[2, 1.5]], r"row 1: steps is \[\[2, 1.5\]\], and should hold a step and labels from 0 to 1"),
        ([], r"steps is \[\], and should hold a step"),
    ],
)
def test_rows_with_steps_that_are_none(steps, message):
    raw = {"prompt": "3+8+....:", "completion": "3d8b=b", "steps": steps}
    with pytest.raises(ValueError, match=message):
        read_rows([raw], StepRow, Vocabulary(CLOCK.alphabet), max_length=64)


# --- what scores are for ---------------------------------------------------------------------------------------------


@both
def test_the_marks_of_a_rollout_are_what_the_scorer_says(head):
    scorer = scorer_of(head)
    policy, vocabulary = load_policy(ASSETS / "clock10")
    algorithm = dataclasses.replace(ALGORITHMS["grpo"], advantage=contrib.advantages.own_step, kl=())
    recipe = Recipe(algorithm, CLOCK, Config(), step_reward=scored_steps(scorer, CLOCK))
    written = roll_out(policy, vocabulary, CLOCK.problems("train", 12, seed=0), recipe, group_size=2, seed="s")
    assert written.step_ends.any()
    for i, (problem, text) in enumerate(zip(written.problems, written.texts, strict=True)):
        ends = step_ends(CLOCK, text, problem)[:-1]
        assert written.step_ends[i].nonzero().flatten().tolist() == [end - 1 for end in ends]
        scores = scorer.score([StepRow(problem.prompt, text, tuple(Step(end, 0.0) for end in ends))])[0]
        torch.testing.assert_close(
            written.step_marks[i, [end - 1 for end in ends]], scores.sigmoid(), atol=1e-6, rtol=0
        )
    order = torch.randperm(24, generator=torch.Generator().manual_seed(0))
    mixed = select(written, order)
    columns = {"prompts": [p.prompt for p in mixed.problems], "completions": mixed.texts, "problem": mixed.problems}
    marks = [[mark for _, mark in steps] for steps in recipe.step_reward(**columns)]
    expected = [written.step_marks[i][written.step_ends[i] != 0].tolist() for i in order.tolist()]
    assert [len(own) for own in marks] == [len(own) for own in expected]
    assert sum(marks, []) == pytest.approx(sum(expected, []), abs=1e-5)


def test_what_the_steps_of_a_completion_are_worth_together():
    scorer = scorer_of("ratio")
    problems = [Problem(row.prompt, "") for row in ROWS]
    columns = {"prompts": [p.prompt for p in problems], "completions": [row.completion for row in ROWS]}
    odds = [scores.tolist() for scores in scorer.score(ROWS)]
    p = [[1 / (1 + math.exp(-x)) for x in own] for own in odds]
    expected = {
        "min": [min(own) for own in p],
        "mean": [sum(own) / len(own) for own in p],
        "last": [own[-1] for own in p],
        "product": [math.prod(own) for own in p],
        "sum": [1 / (1 + math.exp(-sum(own))) for own in odds],
    }
    assert expected.keys() == AGGREGATES.keys()
    for name, weights in expected.items():
        found = weigh_steps(scorer, CLOCK, name)(**columns, problem=problems)
        assert found == pytest.approx(weights, abs=1e-5)
    with pytest.raises(ValueError, match="aggregated by min, mean, last, product, sum; got 'max'"):
        weigh_steps(scorer, CLOCK, "max")


def test_a_scorer_weighs_votes(start):
    """One that is sure of the completions that work, and of no other."""
    scorer = scorer_of("ratio")
    scorer.score = lambda rows: [torch.full((len(row.steps),), float(len(row.steps)) - 20) for row in rows]
    votes = evaluate_votes(*start, RECIPE, samples=4, n=20, scorer=weigh_steps(scorer, CLOCK))
    assert votes.weighted[4].share != votes.majority[4].share


# --- the commands ----------------------------------------------------------------------------------------------------

FAST = ["--rows", "30", "--held-out", "10", "--steps", "2", "--batch-size", "8", "--save-every", "1"]
REWARD = ["reward", "--task", "clock10", *FAST]


@pytest.mark.parametrize(
    "flags",
    [
        ["--label-steps", "program", "--head", "scalar"],
        ["--label-steps", "shepherd", "--rollouts", "2", "--beta", "0.1"],
        ["--label-steps", "outcome"],
    ],
)
def test_the_command_trains_a_scorer_for_a_run_and_for_votes(tmp_path, capsys, monkeypatch, flags):
    monkeypatch.chdir(tmp_path)
    assert main([*REWARD, *flags, "--out", "scorer"]) == 0
    out = capsys.readouterr().out
    assert "steps held out: AUC" in out
    assert {"loss", "held_out_loss", "held_out_auc"} <= set(metrics(tmp_path / "scorer")[1])
    scorer = load_step_scorer("scorer")
    assert (scorer.reference is None) == ("scalar" in flags)
    if "scalar" in flags:
        main([*REWARD, *flags, "--out", "short", "--steps", "1"])
    small = ["--steps", "1", "--prompts", "4", "--group-size", "2", "--held-out", "4"]
    run = ["train", "grpo", "--task", "clock10", *small, "--step-reward", "scorer", "--out", "run"]
    assert main(run) == 0
    assert "step_mark" in metrics(tmp_path / "run")[0]
    assert main(["train", "grpo", "--resume", "--out", "run", "--steps", "2"]) == 0
    capsys.readouterr()
    votes = ["evaluate", "start", "--task", "clock10", "-n", "6", "--samples", "2", "--scorer", "scorer"]
    assert main([*votes, "--aggregate", "sum"]) == 0
    assert "weighted" in capsys.readouterr().out


def test_where_all_steps_are_right_there_is_no_auc_and_the_run_goes_on(tmp_path, capsys, monkeypatch):
    """One held-out completion, whose only label is its outcome: nothing to tell it apart from."""
    monkeypatch.chdir(tmp_path)
    assert main([*REWARD, "--label-steps", "outcome", "--held-out", "1", "--out", "run"]) == 0
    seen = metrics(tmp_path / "run")
    assert len(seen) == 2
    assert all("held_out_loss" in row and "held_out_auc" not in row for row in seen)
    assert "1 steps held out: no AUC, since all are right or all are wrong, loss 0." in capsys.readouterr().out
    assert json.loads((tmp_path / "run" / "evaluation.json").read_text()).keys() == {"held_out", "loss"}


def test_a_resumed_scorer_is_the_uninterrupted_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = [*REWARD, "--label-steps", "program"]
    assert main([*words, "--out", "whole"]) == 0
    kept = fitting.save_fit

    def killed(folder, write, optimizer, step, notes):
        kept(folder, write, optimizer, step, notes)
        if step == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(fitting, "save_fit", killed)
    assert main([*words, "--out", "cut"]) == 130
    monkeypatch.setattr(fitting, "save_fit", kept)
    assert main(["reward", "--resume", "--out", "cut"]) == 0
    one, other = (load_file(tmp_path / run / "checkpoint" / "model.safetensors") for run in ("whole", "cut"))
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["reward", "--head", "scalar"], "--head changes nothing by itself: give --label-steps N as well"),
        (
            ["reward", "--label-steps", "program", "--normalize", "none"],
            "--normalize changes nothing with --label-steps program: leave it out, or give --label-steps none",
        ),
        (["reward", "--label-steps", "program"], "the task 'reviews' has no steps; give a file of rows with --data"),
        ([*REWARD, "--label-steps", "program", "--beta", "0"], "beta must be above 0; got 0.0"),
        (
            ["train", "grpo", "--task", "clock10", "--step-reward", "nowhere"],
            "'nowhere' is no folder with a scorer of steps",
        ),
        (
            ["train", "grpo", "--task", "clock10", "--step-reward", str(ASSETS / "clock10")],
            "clock10 holds no step scorer",
        ),
        (["evaluate", "start", "--aggregate", "min"], "--aggregate changes nothing by itself: give --scorer FOLDER"),
        (
            ["evaluate", "start", "--samples", "2", "--scorer", "steps", "--aggregate", "min"],
            "--aggregate changes nothing by itself",
        ),
    ],
)
def test_flags_of_scorers_that_do_not_fit(tmp_path, capsys, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    assert message in fails(capsys, *words)


def test_a_scorer_has_to_read_the_task(tmp_path, capsys):
    scorer_of("ratio", task=LETTERS).save(tmp_path)
    command = ["evaluate", "start", "--task", "clock10", "-n", "2", "--samples", "2", "--scorer", str(tmp_path)]
    assert "this checkpoint knows 'ab:', but clock10 is written in" in fails(capsys, *command)
