"""The supervised start: what the loss counts, and that the shipped start is what its command makes."""

import json
import random
from dataclasses import replace

import pytest
import torch

from rlhf_minimal import ALGORITHMS
from rlhf_minimal.cli import main
from rlhf_minimal.cli.starts import ASSETS
from rlhf_minimal.config import Config
from rlhf_minimal.evaluate import evaluate
from rlhf_minimal.fit import FitConfig, batch_of_step, imitate, supervised_loss
from rlhf_minimal.lab.rows import read_rows, write_rows
from rlhf_minimal.lab.sampled_rows import sample_completions
from rlhf_minimal.models import TokenizerVocabulary, Vocabulary, character_tokenizer, tiny_llama
from rlhf_minimal.tasks import CompletionRow, get_task
from rlhf_minimal.train import Recipe
from rlhf_minimal.training import load_policy


def test_loss_counts_the_answer_and_its_end_and_nothing_of_the_prompt():
    vocabulary = Vocabulary("0123456789+=")
    policy = tiny_llama(13, width=16, heads=2)
    loss = supervised_loss(policy, vocabulary, ["1+2=", "30+4="], ["3", "430"])
    total, tokens = 0.0, 0
    for prompt, answer in (("1+2=", "3"), ("30+4=", "430")):
        ids = [*vocabulary.encode(prompt + answer), vocabulary.eos_id]
        logp = torch.log_softmax(policy(torch.tensor([ids])).logits[0], -1)
        for i in range(len(prompt), len(ids)):
            total, tokens = total - logp[i - 1, ids[i]].item(), tokens + 1
    assert tokens == 6  # two answers of one and three characters, and two ends
    assert loss.item() == pytest.approx(total / tokens, rel=1e-5)


QUICK = FitConfig(steps=30, batch_size=32)


def test_imitation_learns_and_repeats():
    task = get_task("reverse")
    vocabulary = Vocabulary(task.alphabet)
    losses = []
    for _ in range(2):
        policy = tiny_llama(len(vocabulary), width=32, layers=1, heads=2)
        losses.append([])
        imitate(policy, vocabulary, task, QUICK, lambda metrics: losses[-1].append(metrics["loss"]))
    assert losses[0] == losses[1]
    assert losses[0][-1] < losses[0][0] - 0.3  # nats per token


def four_steps(policy, vocabulary, batches):
    """The loop written out: AdamW on batches of (prompts, completions), with the rate of `fit`; its losses."""
    optimizer, losses = torch.optim.AdamW(policy.parameters(), weight_decay=0.0), []
    for step, (prompts, completions) in enumerate(batches, start=1):
        loss = supervised_loss(policy, vocabulary, prompts, completions)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.param_groups[0]["lr"] = 3e-3 * min(step / 50, 1.0, (5 - step) / 4)
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_imitation_is_the_loop_written_out():
    """AdamW on fresh problems of the teacher, with a learning rate that rises for fifty steps and falls to zero."""
    task, config = get_task("reverse"), FitConfig(steps=4, batch_size=8, seed=3)
    vocabulary = Vocabulary(task.alphabet)
    mine, other = (tiny_llama(len(vocabulary), width=32, layers=1, heads=2) for _ in range(2))
    mean = imitate(mine, vocabulary, task, config)
    batches = []
    for step in range(1, 5):
        problems = task.problems("train", 8, seed=f"imitate/3/{step}")
        rng = random.Random(f"teacher/3/{step}")
        batches.append(([problem.prompt for problem in problems], [task.teacher(problem, rng) for problem in problems]))
    assert mean == sum(four_steps(other, vocabulary, batches)) / 4
    assert all(torch.equal(a, b) for a, b in zip(mine.parameters(), other.parameters(), strict=True))


def test_a_task_without_a_teacher_cannot_be_imitated():
    task = get_task("even")
    vocabulary = Vocabulary(task.alphabet)
    with pytest.raises(ValueError, match="no teacher"):
        imitate(tiny_llama(len(vocabulary), width=16, heads=2), vocabulary, task)


def rows_of(n=6):
    return [{"prompt": f"{i:04d}>", "completion": f"{i:04d}"[::-1]} for i in range(n)]


@pytest.mark.parametrize("given", ["dicts", "rows", "read from a file", "generator"])
def test_imitation_of_given_rows_is_the_loop_written_out(tmp_path, given):
    """Every row once in a pass; AdamW on the mean over the tokens of the completions."""
    rows, config = rows_of(), FitConfig(steps=4, batch_size=3, seed=1)
    file, vocabulary = tmp_path / "rows.jsonl", Vocabulary("0123456789>")
    write_rows(file, [CompletionRow(**row) for row in rows])
    source = {
        "dicts": rows,
        "rows": [CompletionRow(**row) for row in rows],
        "read from a file": read_rows(file, CompletionRow, vocabulary, max_length=64),
        "generator": (row for row in rows),
    }[given]
    mine, other = (tiny_llama(len(vocabulary), width=32, layers=1, heads=2) for _ in range(2))
    seen = []
    mean = imitate(mine, vocabulary, source, config, lambda metrics: seen.append(metrics["loss"]))
    passes = [batch_of_step(range(6), step, 3, seed=1) for step in (1, 2, 3, 4)]
    assert sorted(passes[0] + passes[1]) == sorted(passes[2] + passes[3]) == list(range(6))
    batches = [tuple([rows[i][name] for i in chosen] for name in ("prompt", "completion")) for chosen in passes]
    losses = four_steps(other, vocabulary, batches)
    assert (mean, seen) == (sum(losses) / 4, losses)
    assert all(torch.equal(a, b) for a, b in zip(mine.parameters(), other.parameters(), strict=True))


def test_rows_that_cannot_be_imitated_are_named():
    vocabulary = Vocabulary("0123456789>")
    policy = tiny_llama(len(vocabulary), width=16, heads=2, max_length=12)
    for rows, message in (
        ([*rows_of(), {"prompt": "1>"}], "^row 7: "),
        ([{"prompt": "1>", "completion": ""}], "row 1: the completion is empty"),
        ([{"prompt": "1>", "completion": "1" * 20}], "row 1: 23 tokens .* reads at most 12"),
        ([], "there is no row"),
        ([CompletionRow("1>", " ")], "row 1: the completion is empty"),
        ([{"prompt": [{"role": "user", "content": "1"}], "completion": []}], "row 1: .*lab.rows.read_rows"),
        ([{"messages": []}], "row 1: this is a conversation: read the rows with rlhf_minimal.lab.rows.read_rows"),
    ):
        with pytest.raises(ValueError, match=message):
            imitate(policy, vocabulary, rows, QUICK)


def test_completions_are_the_policys_own_and_the_right_ones_are_the_verifiers():
    policy, vocabulary = load_policy(ASSETS / "addition")
    task = get_task("addition")
    never = Recipe(ALGORITHMS["grpo"], task, reward=lambda completions, **columns: [0.0] * len(completions))
    options = {"problems": 30, "group_size": 4, "seed": 3}
    every = sample_completions(policy, vocabulary, never, keep="all", **options)
    right = sample_completions(policy, vocabulary, never, **options)

    def is_right(row):
        a, b = row.prompt[:-1].split("+")
        return row.completion == f"{int(a) + int(b):04d}"[::-1]

    assert 0 < len(right) < len(every) <= 120
    assert right == [row for row in every if is_right(row)]
    assert len({row.prompt for row in every}) <= 30
    assert not any(task.is_held_out(row.prompt) for row in every)
    assert sample_completions(policy, vocabulary, never, keep="all", **options) == every
    other = sample_completions(policy, vocabulary, never, keep="all", problems=30, seed=4)
    assert {row.prompt for row in other} != {row.prompt for row in every}


def test_completions_that_do_not_end_are_left_out():
    vocabulary = Vocabulary("0123456789:")
    policy = tiny_llama(len(vocabulary), width=16, heads=2)
    recipe = Recipe(ALGORITHMS["grpo"], get_task("even"), Config(max_new_tokens=2))
    rows = sample_completions(policy, vocabulary, recipe, problems=50, group_size=2, keep="all", at_once=7)
    assert 0 < len(rows) < 60
    assert all(len(row.completion) <= 1 for row in rows)


def test_a_chat_models_prompt_is_written_as_it_was_read():
    tokenizer = character_tokenizer("0123456789:")
    tokenizer.chat_template = "{% for m in messages %}:{{ m['content'] }}{% endfor %}"
    vocabulary = TokenizerVocabulary(tokenizer)
    policy = tiny_llama(len(vocabulary), width=16, heads=2)
    recipe = Recipe(ALGORITHMS["grpo"], replace(get_task("even"), instruction="77"))
    rows = sample_completions(policy, vocabulary, recipe, problems=20, keep="all")
    assert rows
    assert all(row.prompt.startswith(":77:") for row in rows)
    assert vocabulary.encode(rows[0].prompt) == vocabulary.encode_prompt(rows[0].prompt[4:], system="77")


def test_rejection_sampling_improves_the_policy_it_samples():
    """One round: 1024 completions of a start that is right in 28 % of them, thirty steps on the right ones."""
    policy, vocabulary = load_policy(ASSETS / "addition")
    recipe = Recipe(ALGORITHMS["grpo"], get_task("addition"))
    rows = sample_completions(policy, vocabulary, recipe, problems=128, group_size=8)
    imitate(policy, vocabulary, rows, FitConfig(steps=30, batch_size=64, lr=1e-3, warm_up=5))
    assert evaluate(policy, vocabulary, recipe, n=300).sampled.share > 0.45


def shares(folder):
    policy, vocabulary = load_policy(folder)
    result = evaluate(policy, vocabulary, Recipe(ALGORITHMS["reinforce"], get_task("addition")), n=2000, seed="test")
    return result.sampled, result.greedy


def test_the_shipped_start_is_small_and_right_in_under_a_third():
    notes = json.loads((ASSETS / "addition" / "pretrain.json").read_text())
    assert 0.10 < notes["loss"] < 0.13
    assert (ASSETS / "addition" / "model.safetensors").stat().st_size < 2_000_000
    sampled, greedy = shares(ASSETS / "addition")
    assert 0.2 < sampled.share < 1 / 3
    assert 0.1 < greedy.share < 1 / 3
    assert greedy.share < sampled.share  # its most likely answer forgets to carry


def test_the_command_reproduces_the_shipped_start(tmp_path, capsys):
    """About a minute: the real command with its defaults. Equal to the last bit only on an equal machine."""
    assert main(["pretrain", "--out", str(tmp_path / "start")]) == 0
    shipped = json.loads((ASSETS / "addition" / "pretrain.json").read_text())
    made = json.loads((tmp_path / "start" / "config.json").read_text())
    flags = "--task {task} --steps {steps} --batch-size {batch_size} --lr {lr} --seed {seed}".format(**made)
    assert f"python -m rlhf_minimal pretrain {flags}" == shipped["command"]
    evaluation = json.loads((tmp_path / "start" / "evaluation.json").read_text())
    assert evaluation["training_loss"] == pytest.approx(shipped["loss"], abs=0.02)
    for mine, theirs in zip(shares(tmp_path / "start"), shares(ASSETS / "addition"), strict=True):
        assert mine.share == pytest.approx(theirs.share, abs=0.06)
