"""Runs of a pretrained model: the script works on a tiny one of another architecture, and what is on file is whole."""

import dataclasses
import itertools
import json

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from rlhf_book.entries import KNOWN, checksum, faults, line, main, score
from rlhf_minimal.config import Config
from rlhf_minimal.functional.advantages import group_normalized
from rlhf_minimal.lab.memory import memory_ledger
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


@pytest.fixture(scope="module")
def entry(bench):
    """What the script would write for the tiny model, its arms and seeds."""
    arms = [("start", 0), *((arm, seed) for arm in ("grpo", "coin") for seed in SMALL.seeds)]
    runs = [{"arm": arm, "seed": seed, **bench.run(arm, seed)} for arm, seed in arms]
    for run in runs[1:]:
        run["seconds"] = 1  # it takes less than one
    head = {"model": "tiny", "task": "three sums", "config": {"lr": 1e-4}, "machine": {"device": "here"}}
    return json.loads(json.dumps(head | {"runs": runs}))


def test_the_same_runs_on_a_model_of_another_architecture(entry):
    start, *runs = entry["runs"]
    assert len(start["prompts"]) == 3
    assert all(len(run["reward"]) == len(run["accuracy"]) == 2 for run in runs)
    assert all(len(run["greedy_texts"]) == 3 for run in entry["runs"])
    assert all([len(texts) for texts in run["drawn_texts"]] == [4, 4] for run in entry["runs"])
    coins = [value for run in runs if run["arm"] == "coin" for value in run["reward"]]
    assert any(coins), "a coin rewards an untrained model, which is never right"
    assert not any(value for run in runs if run["arm"] == "coin" for value in run["accuracy"])


def test_own_right_answers_are_imitated(bench, monkeypatch):
    """An untrained model has no right answer: a verifier that likes every second one stands for it."""
    likes = dataclasses.replace(bench.task, verify=lambda completion, _: float(len(completion) % 2))
    monkeypatch.setattr(bench, "task", likes)
    found = bench.run("own", 0)
    assert found["drawn"] == 2 * 2 * 2
    assert 0 < found["right"] <= found["drawn"]
    assert found["loss"]
    assert all(value > 0 for value in found["loss"])


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
        script.ALGORITHMS["grpo"], shapes, sequences=rows, prompt_length=150, completion_length=config.max_new_tokens
    )
    held = sum(model.held for model in ledger)
    assert 0.55e9 < ledger[0].parameters < 0.65e9
    assert held == 20 * ledger[0].parameters
    assert held + ledger[0].activations < 72e9


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


def test_the_mean_step_under_a_coin_is_zero():
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


def without(entry, **changes):
    return json.loads(json.dumps(entry)) | changes


def changed(entry, arm, seed, **changes):
    runs = [run | (changes if (run["arm"], run["seed"]) == (arm, seed) else {}) for run in entry["runs"]]
    return entry | {"runs": runs}


def test_an_entry_that_shows_everything_has_a_line(entry):
    assert faults(entry) == []
    assert line(entry).startswith("| tiny | three sums | 0 | 0, 0, 0 | 0, 0, 0 |")


def faulty(entry):
    runs = entry["runs"]
    start = runs[0]
    yield "no run of coin", entry | {"runs": [run for run in runs if run["arm"] != "coin"]}
    yield "no run of grpo", entry | {"runs": [run for run in runs if run["arm"] != "grpo"]}
    yield "no run of start", entry | {"runs": runs[1:]}
    yield "grpo has 2 seeds", entry | {"runs": [run for run in runs if run["seed"] < 2]}
    yield "other seeds", entry | {"runs": [run for run in runs if (run["arm"], run["seed"]) != ("coin", 2)]}
    yield "machine is missing", entry | {"machine": None}
    yield "config is missing", {name: value for name, value in entry.items() if name != "config"}
    yield "twice", changed(entry, "start", 0, prompts=[start["prompts"][0]] * 3)
    yield "no questions", changed(entry, "start", 0, prompts=[])
    yield "no number: 'seven'", changed(entry, "start", 0, answers=["seven", *start["answers"][1:]])
    yield "not the held-out questions", entry | {"task": "sums in words"}
    yield "grpo, seed 1: not one greedy", changed(entry, "grpo", 1, greedy_texts=["#### 1"])
    yield "coin, seed 2: not as many drawn", changed(entry, "coin", 2, drawn_texts=[["#### 1"] * 4])
    yield "grpo, seed 0: the seconds", changed(entry, "grpo", 0, seconds=0)


def test_what_an_entry_lacks_is_said(entry, tmp_path, capsys):
    told = list(faulty(entry))
    for fault, broken in told:
        assert [found for found in faults(broken) if fault in found], fault
        with pytest.raises(ValueError, match="cannot stand in the table"):
            line(broken)
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(json.dumps(entry))
    bad.write_text(json.dumps(told[0][1]))
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
    wanted = [("start", 0), *((arm, seed) for arm in ("grpo", "coin", "own") for seed in script.CPU.seeds)]
    assert [(run["arm"], run["seed"]) for run in record["runs"]] == wanted
    for run in record["runs"][1:]:
        if run["arm"] == "own":
            assert run["drawn"] == script.CPU.config.steps * 64
        else:
            assert len(run["reward"]) == script.CPU.config.steps
    coins = [run["reward"] for run in record["runs"] if run["arm"] == "coin"]
    assert all(abs(sum(rewards) / len(rewards) - 0.5) < 0.05 for rewards in coins)
