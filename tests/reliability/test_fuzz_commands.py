"""Random and hostile words on the command line: a valid run or one line that says why not, in bounded time."""

import random
import string

import pytest

from rlhf_minimal import ALGORITHMS

NUMBERS = ["0", "-1", "1", "2", "3", "1.5", "x", "", "nan", "inf", "-inf", " 2 ", "٣", "1e999", "9" * 5000, "0x2", "--"]
ANY = [*NUMBERS, "1e-300", "1e300", str(2**63), str(-(2**70)), "0.5"]
WORDS = ["", "\0", "a\nb", "\ud800", "..", "x" * 300, "/dev/null/x", "~", "hf:", "hf:\0", "None", "even", "addition"]
WORDS += ["rows.py:X", ".py:", "x.py:y:z", "\0.py:X"]
# Flags whose size is the work that is asked for: what is large there is no mistake, and would take long.
WORK = [
    "steps",
    "prompts",
    "group-size",
    "epochs",
    "minibatches",
    "micro-batches",
    "max-new-tokens",
    "held-out",
    "threads",
]
SMALL = ["0", "-1", "1", "2", "x", "", "nan", "1.5", "٣"]
OTHERS = [
    *("lr", "value-lr", "value-clip", "value-coef", "adam-eps", "grad-clip", "temperature", "score-clip"),
    *("missing-eos-penalty", "refresh-every", "ema-decay", "kl-control-target", "kl-control-horizon", "target-kl"),
    *("baseline-decay", "verifier-timeout", "seed", "save-every", "kl-coef", "max-kl"),
]
CHOICES = {
    "critic": ["separate", "shared", "x"],
    "value-head-init": ["zero", "normal", "orthogonal"],
    "score-scaling": ["none", "batch", "running"],
    "reference": ["frozen", "refresh", "ema", ""],
    "kl-control": ["fixed", "adaptive"],
    "baseline": ["ema", "greedy"],
    "reward": ["verifier", "random", "applause"],
    "optimizer": ["adamw", "trpo", "sgd"],
    "task": WORDS,
    "start": [*WORDS, "untrained", "shipped"],
    "out": WORDS,
    "reward-model": WORDS,
    "device": ["cpu", "cpu:0", "cpu:9", "meta", "\0", "cuda:99", "x"],
}


def train_command(rng):
    flags = {
        "steps": "1",
        "prompts": "2",
        "group-size": "2",
        "held-out": "2",
        "task": "even",
        "start": "untrained",
        "out": "run",
    }
    for _ in range(rng.randint(1, 3)):
        kind = rng.random()
        if kind < 0.2:
            flags[rng.choice(WORK)] = rng.choice(SMALL)
        elif kind < 0.65:
            flags[rng.choice(OTHERS)] = rng.choice(ANY)
        else:
            name = rng.choice(list(CHOICES))
            flags[name] = rng.choice(CHOICES[name])
    argv = ["train", rng.choice(list(ALGORITHMS)) if rng.random() < 0.9 else f"--row={rng.choice(WORDS)}"]
    for name, value in flags.items():
        argv += [f"--{name}={value}"]
    return argv + rng.choice([[], [], [], [], ["--resume"], ["--overwrite"], ["-x"], ["\0"]])


def other_command(rng):
    name = rng.choice(["sample", "evaluate", "memory", "diff", "table", "sft", "reward", "pretrain", "dance"])
    words = [*WORDS, *ANY, "start", "run", "grpo", "ppo"]
    flags = {
        "sample": ["-n", "--prompt", "--temperature", "--seed", "--device", "--task"],
        "evaluate": ["-n", "--seed", "--device", "--task"],
        "memory": ["--model", "--reward-model", "--sequences", "--sampled", "--prompt-length", "--completion-length"],
        "sft": ["--task", "--start", "--data", "--lr", "--warm-up", "--seed"],
        "reward": ["--task", "--start", "--data", "--lr", "--normalize", "--weight-decay"],
        "pretrain": ["--task", "--start", "--data", "--lr", "--accept", "--seed"],
    }.get(name, ["--help-me"])
    argv = [name]
    if name in ("sample", "evaluate", "memory", "diff"):
        argv += rng.choices(words, k=1 + (name == "diff"))
    if name in ("sft", "reward", "pretrain"):
        argv += ["--steps", "1", "--batch-size", "2", "--out", "fitted"]
        argv += [] if name == "pretrain" and rng.random() < 0.5 else ["--rows", "4", "--held-out", "2"]
    for flag in rng.choices(flags, k=rng.randint(0, 2)):
        large = flag == "-n" or flag.endswith(("length", "sequences", "sampled"))
        argv += [f"{flag}={rng.choice(SMALL if large else words)}" if flag != "-n" else f"-n{rng.choice(SMALL)}"]
    return argv


@pytest.mark.parametrize("make", [train_command, other_command])
def test_whatever_is_typed_the_answer_is_a_result_or_one_line(command, tmp_path, make):
    codes = []
    for draw in range(40):
        argv = make(random.Random(f"{make.__name__}/{draw}"))
        ended = command(tmp_path, argv, timeout=30, limits={"as": 2_000_000_000})
        assert ended.code in (0, 1, 2), (argv, ended.code, ended.err)
        errors = [line for line in ended.err.splitlines() if not line.startswith(("warning: ", "newest run: "))]
        if ended.code:
            assert len(errors) == 1, (argv, ended.err)
            assert errors[0].startswith("error: "), (argv, ended.err)
            assert set(errors[0]) <= set(string.printable) or errors[0].isprintable(), argv
        else:
            assert errors == [], (argv, ended.err)
        codes.append(ended.code)
    assert set(codes) == {0, 1, 2}  # valid runs, refusals and what cannot be parsed were all among them
