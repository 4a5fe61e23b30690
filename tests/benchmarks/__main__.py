"""How fast, against what, on which machine: `make bench`, or `python -m tests.benchmarks`. No part of the test suite.

Everything is measured in one run, the two sides taking turns, and written down as ratios with their spread: a machine
that is busy with something else slows both. Words after the command choose measurements, as in
`python -m tests.benchmarks step`. What was measured goes to notebooks/results/benchmarks.json, from which the book's
page is made.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import transformers

from rlhf_minimal import __version__
from rlhf_minimal.evaluate import evaluate
from rlhf_minimal.lab.fast import Fast, _Pieces, fast, plain
from rlhf_minimal.metrics import peak_memory
from rlhf_minimal.sample import pad_left, sample
from rlhf_minimal.train import prepare_batch, train_step, update
from tests.benchmarks.arms import (
    CASES,
    OFF,
    Between,
    Case,
    a_rollout,
    assert_equal_gradients,
    one_step,
    problems_of,
    seed_everything,
    trl_trainer,
)

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "notebooks" / "results" / "benchmarks.json"
Measured = dict[str, Any]


def ratio(slow: list[float], fast: list[float]) -> Measured:
    """Median of the pairwise ratios, and the range in which the middle half of them lies."""
    pairs = sorted(a / b for a, b in zip(slow, fast, strict=True))
    low, middle, high = statistics.quantiles(pairs, n=4)
    return {
        "ratio": round(middle, 2),
        "middle_half": [round(low, 2), round(high, 2)],
        "range": [round(pairs[0], 2), round(pairs[-1], 2)],
        "n": len(pairs),
        "seconds": [round(statistics.median(slow), 4), round(statistics.median(fast), 4)],
    }


def in_turns(slow: Callable[[], Any], fast: Callable[[], Any], n: int) -> Measured:
    """Both once to warm up, then n times each, in turns."""
    times: list[list[float]] = [[], []]
    for turn in range(n + 1):
        for which, work in enumerate((slow, fast)):
            began = time.perf_counter()
            work()
            if turn:
                times[which].append(time.perf_counter() - began)
    return ratio(*times)


# --- (a) a full step against TRL -----------------------------------------------------------------------------------


def step_against_trl(case: Case, n: int) -> Measured:
    """Samples per second of full steps, TRL at the batch size that is its best."""
    difference = assert_equal_gradients(case)
    rows = case.config.prompts * case.config.group_size
    seconds = {}
    for batch in (rows, rows // 2, rows // 4, rows // 8):
        watch = Between(lambda step: None)
        trl_trainer(case, 3, batch=batch, callback=watch).train()
        seconds[batch] = min(watch.seconds[1:])
    best = min(seconds, key=lambda batch: seconds[batch])

    learner, recipe = case.learner(), case.recipe
    plain_recipe = plain(recipe)
    ours, slower = [], []

    def turn(step: int) -> None:
        ours.append(one_step(learner, recipe))
        slower.append(one_step(learner, plain_recipe))

    watch = Between(turn)
    trl_trainer(case, n + 1, batch=best, callback=watch).train()
    found = ratio(watch.seconds[1:], ours[1:])
    trl_s, our_s = found["seconds"]
    return {
        **found,
        "samples_per_second": [round(rows / trl_s), round(rows / our_s)],
        "plain_loop_against_trl": ratio(watch.seconds[1:], slower[1:]),
        "gradient_difference": difference,
        "trl_seconds_by_batch_size": {str(batch): round(s, 3) for batch, s in seconds.items()},
        "trl_batch_size": best,
        "tokens_read": tokens_read(case),
        **lengths(case),
    }


def tokens_read(case: Case) -> float:
    """How many times as many tokens TRL has to read: the ratio to expect where matrix products are all that counts.

    It reads prompt and padding with every completion; both read once to sample and
    thrice, forward and backward, to learn.
    """
    _, _, groups = a_rollout(case)
    rows, T = groups.mask.shape
    S, prompts = groups.prompts.shape[1], case.config.prompts
    return round(rows * (S + T) / (prompts * S + float(groups.mask.sum())), 2)


def lengths(case: Case) -> Measured:
    """How long the completions are."""
    _, _, groups = a_rollout(case)
    tokens = groups.mask.sum(-1)
    found = {"mean": tokens.mean(), "median": tokens.median(), "longest": tokens.max()}
    return {"tokens": {name: round(float(x), 1) for name, x in found.items()}}


# --- (b) sampling --------------------------------------------------------------------------------------------------


def sampling_against_generate(case: Case, n: int) -> Measured:
    """The same prompts, the same number of rows at once, no top-k, no top-p."""
    policy, vocabulary, config = case.start(), case.vocabulary, case.config
    prompts, mask = pad_left([vocabulary.encode(p.prompt) for p in problems_of(case, 1)], vocabulary.pad_id)
    wide, wide_mask = (x.repeat_interleave(config.group_size, 0) for x in (prompts, mask))
    options = {"do_sample": True, "top_k": 0, "top_p": 1.0, "temperature": 1.0, "eos_token_id": 0, "pad_token_id": 0}

    def theirs() -> None:
        policy.generate(wide, attention_mask=wide_mask, max_new_tokens=case.recipe.budget, **options)

    def ours() -> None:
        sample(
            policy,
            prompts,
            mask,
            max_new_tokens=case.recipe.budget,
            eos_id=0,
            pad_id=0,
            group_size=config.group_size,
        )

    return in_turns(theirs, ours, n)


# --- (c) the update ------------------------------------------------------------------------------------------------


def update_against_plain(case: Case, n: int, *, half_dead: bool = False, **means: Any) -> Measured:
    """The update with some means of the fast path against the plain one, on one rollout and from one policy."""
    learner, recipe, groups = a_rollout(case, rewards="half dead" if half_dead else "as they are")
    batch, _ = prepare_batch(learner, recipe, groups, 1)
    quick = fast(recipe, Fast(**means))
    slow = fast(recipe, Fast(skip_idle=False)) if half_dead else plain(recipe)
    return in_turns(
        lambda: update(learner, slow, groups, batch, 1), lambda: update(learner, quick, groups, batch, 1), n
    )


# --- (d) time to 90 % ----------------------------------------------------------------------------------------------


def learn_once(seed: int, *, target: float, every: int, most: int) -> Measured:
    """One seed: the two sides take turns step by step until both have reached the target; looking is not timed."""
    case = replace(CASES["addition"], config=replace(CASES["addition"].config, seed=seed))
    recipe, learner = case.recipe, case.learner()
    steps: dict[str, int] = {}
    seconds = {"ours": 0.0, "trl": 0.0}

    def reached(policy: Any) -> bool:
        was, _ = policy.training, policy.eval()
        share = evaluate(policy, case.vocabulary, recipe, n=500).sampled.share
        policy.train(was)
        return share >= target

    def turn(step: int) -> bool:
        if "ours" not in steps:
            seconds["ours"] += one_step(learner, recipe)
            if step % every == 0 and reached(learner.policy):
                steps["ours"] = step
        if "trl" not in steps:
            seconds["trl"] = sum(watch.seconds)
            if step % every == 0 and reached(trainer.model):
                steps["trl"] = step
        return len(steps) < 2

    watch = Between(turn)
    seed_everything(seed)
    trainer = trl_trainer(case, most, callback=watch)
    trainer.train()
    return {"seed": seed, "steps": steps, "seconds": {name: round(s, 2) for name, s in seconds.items()}}


def time_to_learn(seeds: int, *, target: float = 0.9, every: int = 10, most: int = 400) -> Measured:
    """Training seconds from the shipped start until 90 % of held-out sums come out right (one drawn answer each)."""
    runs = [learn_once(seed, target=target, every=every, most=most) for seed in range(seeds)]
    ratios = sorted(run["seconds"]["trl"] / run["seconds"]["ours"] for run in runs if len(run["steps"]) == 2)
    found = {"ratio": round(statistics.median(ratios), 2), "range": [round(ratios[0], 2), round(ratios[-1], 2)]}
    return {"runs": runs, **found}


# --- (e) memory ----------------------------------------------------------------------------------------------------


def peak() -> float:
    """Megabytes that this process has held at most."""
    return peak_memory(torch.device("cpu"))["peak_memory"] / 2**20


def memory_of(side: str, name: str, batch: int) -> Measured:
    """In a process of its own: megabytes before the first step, and at the peak of three."""
    case = CASES[name]

    if side == "trl":
        trainer = trl_trainer(case, 3, batch=batch)
        before = peak()
        trainer.train()
    else:
        learner, recipe = case.learner(), case.recipe
        if side == "plain":
            recipe = plain(recipe)
        before = peak()
        for _ in range(3):
            train_step(learner, recipe)
    return {"before": round(before), "peak": round(peak()), "step": round(peak() - before)}


def memory_against_trl(case: Case, batch: int) -> Measured:
    """Peak memory of three steps, each side in a fresh process."""
    found: Measured = {}
    for side in ("trl", "plain", "ours"):
        command = [sys.executable, "-m", "tests.benchmarks", "--memory", side, case.name, str(batch)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        found[side] = json.loads(done.stdout.splitlines()[-1])
    found["ratio_of_peaks"] = round(found["ours"]["peak"] / found["trl"]["peak"], 2)
    found["ratio_of_steps"] = round(found["ours"]["step"] / found["trl"]["step"], 2)
    return found


# --- (f) how much of the machine -----------------------------------------------------------------------------------


def peak_flops(n: int = 1024, times: int = 12) -> float:
    """The best rate of a square matrix product in single precision, operations a second."""
    a, b = torch.randn(n, n), torch.randn(n, n)
    best = float("inf")
    for _ in range(times):
        began = time.perf_counter()
        a @ b
        best = min(best, time.perf_counter() - began)
    return 2 * n**3 / best


def share_of_peak(case: Case, n: int) -> Measured:
    """Floating-point operations that a step needs, over what the machine could do in the time that it took.

    Needed are two operations a weight and token in a forward, four in a backward: sampling once, the update thrice;
    prompts once for each group. Attention is left out: it is less than a tenth.
    """
    learner, recipe = case.learner(), case.recipe
    weights = sum(p.numel() for p in learner.policy.parameters())
    config = case.config
    needed, seconds, peaks = [], [], []
    for turn in range(n + 1):
        peaks.append(peak_flops())
        began = time.perf_counter()
        metrics = train_step(learner, recipe)
        took = time.perf_counter() - began
        tokens = metrics["length"] * config.prompts * config.group_size
        tokens += config.prompts * len(problems_of(case, 1)[0].prompt)
        if turn:
            needed.append(2 * weights * tokens * 4)
            seconds.append(took)
    shares = sorted(f / s / p for f, s, p in zip(needed, seconds, peaks[1:], strict=True))
    return {
        "weights": weights,
        "gflop_needed": round(statistics.median(needed) / 1e9, 2),
        "peak_gflop_per_second": round(statistics.median(peaks) / 1e9, 1),
        "share": round(statistics.median(shares), 3),
        "range": [round(shares[0], 3), round(shares[-1], 3)],
        "seconds_at_peak": round(statistics.median(needed) / statistics.median(peaks), 4),
    }


# --- (g) what no loop can save that calls the same model -----------------------------------------------------------


def best_of(work: Callable[[], Any], times: int = 3) -> float:
    """Seconds of the fastest; of the processor, since a moment of a busy machine would not slow the best of three."""
    seconds = []
    for _ in range(times):
        began = time.process_time()
        work()
        seconds.append(time.process_time() - began)
    return min(seconds)


def product_seconds(sizes: Counter[tuple[int, int]], tokens: int, backward: bool) -> float:
    """The matrix products of one forward over so many tokens, and of its backward, with nothing around them.

    Args:
        sizes: How many linear layers the model has of each size (in, out).
        tokens: Rows of the activations.
        backward: Whether the gradients in activations and weights are wanted too.
    """
    total = 0.0
    for (wide, out), layers in sizes.items():
        x, weight, slope = torch.randn(tokens, wide), torch.randn(out, wide), torch.randn(tokens, out)
        works = [partial(torch.matmul, x, weight.T)]
        if backward:
            works += [partial(torch.matmul, slope, weight), partial(torch.matmul, slope.T, x)]
        total += layers * sum(best_of(work) for work in works)
    return total


def call_seconds(policy: Any) -> dict[bool, float]:
    """A forward of one token, and one with its backward: what calling the model costs before there is work to do."""
    one = torch.ones(1, 1, dtype=torch.long)

    def forward() -> None:
        with torch.no_grad():
            policy(input_ids=one, use_cache=True)

    def both() -> None:
        policy(input_ids=one, use_cache=True).logits.sum().backward()

    found = {False: best_of(forward, 10), True: best_of(both, 10)}
    policy.zero_grad()
    return found


def floor_of(case: Case, n: int) -> Measured:
    """A step, the share of it inside the model's forwards and backwards, and the least that these could take.

    The least is what the same matrix products take alone, at their own sizes, and as many calls of the model with a
    single token. Attention, norms, activations and the cache come on top of it.
    """
    learner, recipe = case.learner(), case.recipe
    policy = learner.policy
    sizes = Counter((m.in_features, m.out_features) for m in policy.modules() if isinstance(m, torch.nn.Linear))
    calls: list[tuple[int, bool]] = []  # tokens, and whether a backward follows
    inside = 0.0
    forward, backward = policy.forward, _Pieces.backward

    def timed(work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        nonlocal inside
        began = time.process_time()
        found = work(*args, **kwargs)
        inside += time.process_time() - began
        return found

    def watched(*args: Any, **kwargs: Any) -> Any:
        calls.append((kwargs["input_ids"].numel(), torch.is_grad_enabled()))
        return timed(forward, *args, **kwargs)

    rows: list[dict[str, float]] = []
    for _ in range(n + 1):
        calls.clear()
        inside = 0.0
        with (
            patch.object(policy, "forward", watched),
            patch.object(_Pieces, "backward", lambda pieces, slopes: timed(backward, pieces, slopes)),
        ):
            began = time.process_time()
            train_step(learner, recipe)
            took = time.process_time() - began
        products = sum(product_seconds(sizes, *call) * times for call, times in Counter(calls).items())
        each = call_seconds(policy)
        rows.append({"step": took, "inside": inside, "products": products, "calls": sum(each[b] for _, b in calls)})
    floors = sorted((row["products"] + row["calls"]) / row["step"] for row in rows[1:])
    found = {name: round(statistics.median(row[name] for row in rows[1:]), 4) for name in rows[0]}
    return {
        "seconds": found,
        "forwards": {"sampling": sum(not b for _, b in calls), "update": sum(b for _, b in calls)},
        "inside_share": round(statistics.median(row["inside"] / row["step"] for row in rows[1:]), 3),
        "floor_share": round(statistics.median(floors), 3),
        "range": [round(floors[0], 3), round(floors[-1], 3)],
        "n": n,
    }


# --- all of it -----------------------------------------------------------------------------------------------------

SWITCHES = {
    "shared prompts": {**OFF, "shared_prefix": True},
    "rows by length": {**OFF, "sort_lengths": True},
    "both": {**OFF, "shared_prefix": True, "sort_lengths": True},
}


def step(n: int) -> Measured:
    """Full steps against TRL."""
    return {name: step_against_trl(case, n) for name, case in CASES.items()}


def sampling(n: int) -> Measured:
    """Sampling against generate."""
    return {name: sampling_against_generate(case, n) for name, case in CASES.items()}


def updates(n: int) -> Measured:
    """The update against the padded one, one means at a time."""
    return {
        name: {means: update_against_plain(CASES[name], n, **switches) for means, switches in SWITCHES.items()}
        for name in ("short", "long", "addition")
    }


def idle(n: int) -> Measured:
    """Half of the groups dead: rows without a backward against all rows with one, everything else on."""
    return {name: update_against_plain(CASES[name], n, half_dead=True) for name in ("short", "long")}


def memory(n: int) -> Measured:
    """Peak memory."""
    return {name: memory_against_trl(CASES[name], 512) for name in ("short", "long")}


def roofline(n: int) -> Measured:
    """Share of the peak."""
    return {name: share_of_peak(CASES[name], n) for name in ("short", "long", "addition")}


def floor(n: int) -> Measured:
    """What of a step no loop can save."""
    return {name: floor_of(CASES[name], n) for name in ("short", "long", "addition")}


def learning(n: int) -> Measured:
    """Seconds to 90 %."""
    return time_to_learn(3)


MEASUREMENTS = {
    "step": step,
    "sampling": sampling,
    "updates": updates,
    "idle": idle,
    "memory": memory,
    "roofline": roofline,
    "floor": floor,
    "learning": learning,
}


def machine() -> Measured:
    """What it was measured on, and with what."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    import trl

    return {
        "processor": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load_before": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "trl": trl.__version__,
        "rlhf_minimal": __version__,
        "day": time.strftime("%Y-%m-%d"),
    }


def main(argv: list[str] | None = None) -> int:
    """Measures what is asked for, and keeps what was measured before of the rest."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", help=", ".join(MEASUREMENTS))
    parser.add_argument("-n", type=int, default=15, help="turns of each comparison (default 15)")
    parser.add_argument("--threads", type=int, default=1, help="of torch (default 1)")
    parser.add_argument("--out", type=Path, default=RECORD, help="where the record is written")
    parser.add_argument("--memory", nargs=3, metavar=("SIDE", "CASE", "BATCH"), help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(args.threads)
    if args.memory:
        side, name, batch = args.memory
        print(json.dumps(memory_of(side, name, int(batch))))
        return 0
    if unknown := set(args.names) - set(MEASUREMENTS):
        parser.error(f"no measurement {', '.join(sorted(unknown))}; there are {', '.join(MEASUREMENTS)}")
    record = json.loads(args.out.read_text()) if args.out.exists() and args.names else {}
    record["command"] = "python -m tests.benchmarks"
    configs = {name: case.describe() for name, case in CASES.items()}
    record["cases"] = configs
    print(json.dumps(configs, indent=1))
    for name in args.names or MEASUREMENTS:
        here = machine()
        began = time.perf_counter()
        print(f"-- {name}", flush=True)
        found = MEASUREMENTS[name](args.n)
        record[name] = {"machine": here, "minutes": round((time.perf_counter() - began) / 60, 1), **found}
        print(json.dumps(found, indent=1), flush=True)
        args.out.write_text(json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
