"""Runs of a pretrained model: the script works on a tiny one of another architecture, and what is on file is whole."""

import dataclasses
import itertools
import json
import random
import re

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from rlhf_book.entries import KNOWN, checksum, faults, line, main, score
from rlhf_minimal.config import Config
from rlhf_minimal.functional.advantages import group_normalized
from rlhf_minimal.lab.memory import Dtypes, memory_ledger
from rlhf_minimal.lab.word_problems import number, strict
from rlhf_minimal.tasks import get_task
from tests.chat_model import tokenizer
from tests.results.scripts import FOLDER, module

script = module("real_model")
SMALL = script.Scale(
    Config(steps=2, prompts=2, group_size=2, lr=1e-4, max_new_tokens=4, max_refills=0),
    seeds=(0, 1, 2),
    held_out=3,
    tried=2,
    tries=4,
)


@pytest.fixture(scope="module")
def sums(tmp_path_factory):
    file = tmp_path_factory.mktemp("sums") / "sums.jsonl"
    script.write_sums(file)
    return file


@pytest.fixture(scope="module")
def bench(sums, tmp_path_factory):
    """A tiny Qwen3, as in the command for a GPU, and a file in GSM8K's form."""
    folder, own = tmp_path_factory.mktemp("qwen"), tokenizer(template=None)
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(own),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        eos_token_id=own.eos_token_id,
        pad_token_id=own.pad_token_id,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    own.save_pretrained(folder)
    task = dataclasses.replace(get_task(f"gsm8k:{sums}"), instruction="")
    return script.Bench(torch.device("cpu"), SMALL, str(folder), task)


def test_the_same_runs_on_a_model_of_another_architecture(bench):
    start, grpo, coin, cooler = (bench.run(arm, 0) for arm in ("start", "grpo", "coin", "start-0.5"))
    assert len(start["prompts"]) == len(start["answers"]) == 3
    assert len(grpo["reward"]) == len(coin["accuracy"]) == 2
    for run in (start, grpo, coin, cooler):
        assert len(run["greedy_texts"]) == 3
        assert [len(texts) for texts in run["drawn_texts"]] == [4, 4]
    assert any(coin["reward"]), "a coin rewards an untrained model, which is never right"
    assert not any(coin["accuracy"])
    assert cooler["greedy_texts"] == start["greedy_texts"]
    assert cooler["drawn_texts"] != start["drawn_texts"]


def test_another_file_is_answered_by_every_arm_and_trained_on_by_none(bench, tmp_path):
    """MATH-500's form: the columns of MATH and more; all questions count, those that would be held out and the rest."""
    rows = [
        {"problem": f"What is ${n}+1$?", "solution": rf"It is $\boxed{{{n + 1}}}$.", "level": 1, "unique_id": f"{n}"}
        for n in range(30)
    ]
    file = tmp_path / "math-500.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    other = get_task(f"competition-math:{file}")
    assert 0 < sum(other.is_held_out(row["problem"]) for row in rows) < 30
    liked = dataclasses.replace(other, verify=lambda completion, problem: float(int(problem.answer) <= 3))
    both = script.Bench(bench.device, bench.scale, bench.model, bench.task, liked)
    alone, start, grpo, cooler = bench.run("grpo", 0), *(both.run(arm, 0) for arm in ("start", "grpo", "start-0.5"))
    assert sorted(start["transfer_prompts"]) == sorted(row["problem"] for row in rows)
    asked = zip(start["transfer_prompts"], start["transfer_answers"], start["transfer_right"], strict=True)
    for prompt, answer, right in asked:
        assert prompt == f"What is ${int(answer) - 1}+1$?"
        assert right == (int(answer) <= 3)
    assert len(grpo["transfer_texts"]) == 30
    assert "transfer_prompts" not in grpo
    assert "transfer_texts" not in cooler
    for what in ("reward", "greedy_texts", "drawn_texts"):  # the other file changes no run
        assert grpo[what] == alone[what]


def test_an_evaluation_in_pieces_answers_every_question_in_order(bench, monkeypatch):
    whole = bench.run("start", 0)
    monkeypatch.setattr(script, "AT_ONCE", 4)
    pieces = bench.run("start", 0)
    assert pieces["greedy_texts"] == whole["greedy_texts"]
    assert [len(texts) for texts in pieces["drawn_texts"]] == [4, 4]


def test_own_right_answers_are_imitated_or_as_many_by_lot(bench, monkeypatch):
    """An untrained model has no right answer: a verifier that likes every second one stands for it."""
    nothing = bench.run("own", 0)
    assert (nothing["right"], nothing["loss"]) == (0, [])
    likes = dataclasses.replace(bench.task, verify=lambda completion, _: float(len(completion) % 2))
    monkeypatch.setattr(bench, "task", likes)
    own, lot = bench.run("own", 0), bench.run("lot", 0)
    assert own["drawn"] == lot["drawn"] == 2 * 2 * 2
    assert 0 < own["right"] == own["imitated"] == lot["imitated"] < own["drawn"]
    assert lot["right"] <= lot["imitated"]
    assert len(own["loss"]) == len(lot["loss"]) > 0
    assert all(value > 0 for value in own["loss"])


def test_adapters_are_an_arm_for_a_gpu(bench):
    assert bench.recipe("lora", 0).config.lora_rank == 32
    assert bench.recipe("grpo", 0).config.lora_rank is None
    assert len(bench.run("lora", 0)["reward"]) == 2


def test_the_command_for_a_gpu_fits_a_card_by_the_ledger():
    """Qwen3-0.6B's shapes: what is held and the most at once, a micro-batch at a time."""
    shapes = Qwen3Config(
        vocab_size=151936,
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        tie_word_embeddings=True,
    )
    config = script.CUDA.config
    rows = config.prompts * config.group_size // config.micro_batches
    ledger = memory_ledger(
        script.ALGORITHMS["grpo"],
        shapes,
        sequences=rows,
        sampled=max(config.prompts * config.group_size, script.AT_ONCE),
        prompt_length=150,
        completion_length=config.max_new_tokens,
        dtypes=Dtypes(activations=torch.bfloat16),
    )
    held = sum(model.held for model in ledger)
    assert 0.55e9 < ledger[0].parameters < 0.65e9
    assert held == 20 * ledger[0].parameters
    assert held + max(ledger[0].activations, ledger[0].cache) < 72e9


def test_sums_in_words_say_what_they_ask(sums):
    rows = [json.loads(row) for row in sums.read_text().splitlines()]
    assert len(rows) == 3000
    for row in rows:
        said = row["question"].rpartition("Q: ")[2]
        a, sign, b = row["answer"].split()[:3]
        assert a in said
        assert b in said
        fewer = any(word in said for word in ("gives", "lost", "fewer")) and "more" not in said
        assert (sign == "-") == fewer
        assert number(strict(row["answer"])) == str(int(a) + int(b) if sign == "+" else int(a) - int(b))
        assert int(strict(row["answer"])) > 0


def test_three_in_four_held_out_questions_have_a_twin_in_training(sums):
    """As the chapter says: the same story with the same two numbers, of other people and things."""
    task = dataclasses.replace(get_task(f"gsm8k:{sums}"), instruction="")
    strings = "|".join([*script.NAMES, *script.THINGS])

    def story(prompt):
        return re.sub(rf"\b({strings})\b", "_", prompt.rpartition("Q: ")[2])

    rows = [json.loads(row)["question"] for row in sums.read_text().splitlines()]
    record = json.loads((FOLDER / "real-model-cpu.json").read_text())
    held_out = record["runs"][0]["prompts"]
    training = {story(question) for question in rows if not task.is_held_out(question)}
    assert not {prompt.rpartition("Q: ")[2] for prompt in held_out} & {
        question.rpartition("Q: ")[2] for question in rows if not task.is_held_out(question)
    }
    assert 70 <= sum(story(prompt) in training for prompt in held_out) <= 80
    for seed in script.CPU.seeds:  # among the questions that a run draws, about one in seven has its twin
        steps = range(1, script.CPU.config.steps + 1)
        asked = [task.problems("train", script.CPU.config.prompts, seed=f"{seed}/{step}/0") for step in steps]
        seen = {story(problem.prompt) for problems in asked for problem in problems}
        assert 14 <= sum(story(prompt) in seen for prompt in held_out) <= 16
        (run,) = (run for run in record["runs"] if (run["arm"], run["seed"]) == ("grpo", seed))
        texts = zip(held_out, run["greedy_texts"], record["runs"][0]["answers"], strict=True)
        new = [strict(text) == answer for prompt, text, answer in texts if story(prompt) not in seen]
        assert 0.795 <= sum(new) / len(new) <= 0.83


@pytest.mark.parametrize(
    ("cut", "text", "kept"),
    [
        (True, " 2 + 3 = 5. #### 5\n\nQ: Eva", " 2 + 3 = 5. #### 5"),
        (False, " 2 + 3 = 5. #### 5\n", " 2 + 3 = 5. #### 5\n"),
        (True, " 2 + 3", " 2 + 3"),
    ],
)
def test_what_is_imitated_of_a_completion_that_was_cut(cut, text, kept):
    assert script.answer_of(text, cut=cut) == kept


def test_a_coin_pushes_nowhere_on_average():
    """All groups of three completions and all tosses: GRPO's advantages times scores, each row by its own length.

    By a reward that looks at the completion the same sum is not zero.
    """
    G, lengths = 3, torch.tensor([1.0, 2.0, 3.0])
    logits = torch.tensor([0.3, -0.4, 0.9], requires_grad=True)
    logp = logits.log_softmax(-1)
    tosses = [torch.tensor(toss) for toss in itertools.product((0.0, 1.0), repeat=G)]

    def mean_step(rewards_of):
        total = torch.zeros(3)
        for group in itertools.product(range(3), repeat=G):
            chosen = logp[list(group)]
            for chance, rewards in rewards_of(group):
                advantages = group_normalized(rewards[:, None], torch.ones(G, 1), group_size=G)[:, 0]
                gain = (advantages * chosen / lengths[list(group)]).sum()
                step = torch.autograd.grad(gain, logits, retain_graph=True)[0]
                total += chance * chosen.detach().sum().exp() * step
        return total

    coin = mean_step(lambda _: [(1 / len(tosses), toss) for toss in tosses])
    looks = mean_step(lambda group: [(1.0, (torch.tensor(group) == 2).float())])
    assert coin.abs().max() < 1e-6
    assert looks.abs().max() > 0.05


# --- entries -------------------------------------------------------------------------------------------------------


@pytest.fixture
def entry():
    """Made up, whole: two arms of three seeds, 30 questions of 8 completions each."""
    rng = random.Random(0)

    def run(arm, seed, right):
        drawn = [
            [f"#### {7 if rng.random() < right else rng.randrange(100, 1000)}" for _ in range(8)] for _ in range(30)
        ]
        rewards = {} if arm == "start" else {"reward": [0.5, 0.45], "seconds": 60}
        return {"arm": arm, "seed": seed, "drawn_texts": drawn, "greedy_texts": ["#### 7"] * 30, **rewards}

    questions = {"prompts": [f"Q{i}" for i in range(30)], "answers": ["7"] * 30}
    runs = [run("start", 0, 0.2) | questions]
    runs += [run(arm, seed, {"grpo": 0.6, "coin": 0.2}[arm]) for arm in ("grpo", "coin") for seed in range(3)]
    head = {"model": "tiny", "task": "three sums", "config": {"steps": 2}, "machine": {"device": "here"}}
    return head | {"runs": runs}


def changed(entry, arm, seed, **changes):
    runs = [run | (changes if (run["arm"], run["seed"]) == (arm, seed) else {}) for run in entry["runs"]]
    return entry | {"runs": runs}


def test_an_entry_that_shows_everything_has_a_line(entry):
    assert faults(entry) == []
    cells = [cell.strip() for cell in line(entry | {"model": "a | b"}).split("|")]
    assert len(cells) == 11
    before, after, coin = (list(map(int, cell.split(", "))) for cell in cells[3:6])
    assert max(before + coin) < 30 < 50 < min(after)
    assert cells[8:10] == ["1", "here"]


def faulty(entry):
    runs = entry["runs"]
    start = runs[0]
    by = {(run["arm"], run["seed"]): run for run in runs}
    yield "no run of coin", entry | {"runs": [run for run in runs if run["arm"] != "coin"]}
    yield "no run of grpo", entry | {"runs": [run for run in runs if run["arm"] != "grpo"]}
    yield "no run of start", entry | {"runs": runs[1:]}
    yield "several runs of start", entry | {"runs": [start, *runs]}
    yield "grpo has 2 seeds", entry | {"runs": [run for run in runs if run["seed"] < 2]}
    yield "a seed of grpo stands there twice", entry | {"runs": [*runs, by["grpo", 0]]}
    yield "other seeds", entry | {"runs": [run for run in runs if (run["arm"], run["seed"]) != ("coin", 2)]}
    yield "machine is missing", entry | {"machine": None}
    yield "device is missing", entry | {"machine": {"device": " "}}
    yield "config is missing", {name: value for name, value in entry.items() if name != "config"}
    yield "29 questions stand there twice", changed(entry, "start", 0, prompts=["Q1" + " " * i for i in range(30)])
    yield "no questions", changed(entry, "start", 0, prompts=[])
    yield "no number: 'seven'", changed(entry, "start", 0, answers=["seven", *start["answers"][1:]])
    yield "not the held-out questions", entry | {"task": "sums in words"}
    yield "of 1 questions", entry | {"runs": [run | {"drawn_texts": run["drawn_texts"][:1]} for run in runs]}
    yield "1 completions are drawn", entry | {"runs": [run | {"drawn_texts": [["#### 7"]] * 30} for run in runs]}
    yield "grpo, seed 1: not one greedy", changed(entry, "grpo", 1, greedy_texts=["#### 1"])
    yield "coin, seed 2: not as many drawn", changed(entry, "coin", 2, drawn_texts=[["#### 1"] * 8])
    yield "grpo, seed 0: the seconds", changed(entry, "grpo", 0, seconds=0)
    yield "coin, seed 1: the completions of start", changed(entry, "coin", 1, drawn_texts=start["drawn_texts"])
    yield "grpo, seed 2: the completions of grpo", changed(entry, "grpo", 2, drawn_texts=by["grpo", 1]["drawn_texts"])
    yield "coin, seed 0: a mean reward of 0.10", changed(entry, "coin", 0, reward=[0.1, 0.1])
    yield "coin, seed 0: 1 rewards for 2 steps", changed(entry, "coin", 0, reward=[0.5])
    for broken in ([], {}, {"runs": [{}]}, entry | {"machine": "a laptop"}, changed(entry, "grpo", 0, seconds="long")):
        yield "no file of real_model.py", broken
    yield "no file of real_model.py", changed(entry, "start", 0, answers=[7] * 30)
    yield "no file of real_model.py", {**entry, "runs": [{"arm": run["arm"]} for run in runs]}


def test_what_an_entry_lacks_is_said(entry, tmp_path, capsys):
    told = list(faulty(entry))
    for fault, broken in told:
        assert [found for found in faults(broken) if fault in found], fault
        if isinstance(broken, dict):
            with pytest.raises(ValueError, match="cannot stand in the table"):
                line(broken)
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(json.dumps(entry))
    bad.write_text(json.dumps(told[0][1]))
    (tmp_path / "text.json").write_text("no JSON")
    assert main([str(tmp_path / "text.json"), str(tmp_path / "none.json")]) == 1
    assert capsys.readouterr().out.count("cannot be read") == 2
    assert main([str(good)]) == 0
    assert "| tiny |" in capsys.readouterr().out
    assert main([str(good), str(bad)]) == 1
    assert "bad.json: there is no run of coin" in capsys.readouterr().out


def test_scores_are_those_of_the_texts():
    run = {
        "greedy_texts": ["2 + 3 = 5. #### 5", "#### 9"],
        "drawn_texts": [["#### 5", "it is 5", "#### 4", "#### 4"], ["#### 8", "#### 8", "", "8 or 9"]],
    }
    found = score(run, ["5", "8"])
    assert found.drawn == (1 / 4 + 2 / 4) / 2
    assert found.drawn_lenient == (2 / 4 + 2 / 4) / 2
    assert (found.greedy, found.greedy_lenient) == (0.5, 0.5)
    assert found.passed == {1: found.drawn, 2: pytest.approx((1 / 2 + 5 / 6) / 2), 4: 1.0}


# --- the record ----------------------------------------------------------------------------------------------------


def test_the_record_is_an_entry_of_the_held_out_questions(sums):
    record = json.loads((FOLDER / "real-model-cpu.json").read_text())
    assert faults(record) == []
    start = record["runs"][0]
    task = get_task(f"gsm8k:{sums}")
    held_out = task.problems("held_out", script.CPU.held_out, seed="real-model", distinct=True)
    assert start["prompts"] == [problem.prompt for problem in held_out]
    assert start["answers"] == [problem.answer for problem in held_out]
    assert checksum(start) == KNOWN["sums in words"]
    assert record["config"] == dataclasses.asdict(script.CPU.config)
    wanted = [(arm, 0) for arm in script.UNTRAINED]
    wanted += [(arm, seed) for arm in ("grpo", "coin", "own", "lot") for seed in script.CPU.seeds]
    assert [(run["arm"], run["seed"]) for run in record["runs"]] == wanted
    for run in record["runs"][len(script.UNTRAINED) :]:
        if run["arm"] in ("own", "lot"):
            assert run["drawn"] == script.CPU.config.steps * 64
        else:
            assert len(run["reward"]) == script.CPU.config.steps
    coins = [run["reward"] for run in record["runs"] if run["arm"] == "coin"]
    assert all(abs(sum(rewards) / len(rewards) - 0.5) < 0.05 for rewards in coins)
