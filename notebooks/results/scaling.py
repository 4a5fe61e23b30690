"""The recorded measurements of the chapter on scaling up: a real model of 135 million parameters on this machine.

    python notebooks/results/scaling.py                    everything, on the CPU (about four hours of one core)
    python notebooks/results/scaling.py --device cuda      the same on a GPU, with larger batches
    python notebooks/results/scaling.py speed precision    only the parts named

Writes notebooks/results/scaling-cpu.json or scaling-cuda.json, part by part: a part that is on file is left as it is,
and measured again when it is deleted there. The model is SmolLM2-135M-Instruct, from its packaged file or from the hub.

    learn        an arithmetic task of reasoning-gym, several algorithms, one set of settings for all. Asked without the
                 chat template: as a conversation the model talks about the sum and is next to never right, while after
                 "12 + 30 =" it goes on with a number
    controls     the same runs with a coin as reward, and with the start's own right completions imitated: as many of its
                 completions, at the same questions, each right one three times. What a gain of `learn` has to exceed
                 before it is due to the reward, and due to reinforcement
    temperature  the start's answers again, drawn at several temperatures, without any training
    sharper      one trained model and the start, the same problems at the same temperatures. Its weights were not kept,
                 so the first run of `learn` is repeated. The problems are distinct, more, and not those of `learn`
    speed        sampling against `generate`, the update against a plain one, and the share of the machine's peak
    trl          whole steps of the same run by TRL, as `export` writes it down, in turns with ours (if it is installed)
    precision    the same tokens read by the sampler and by the trainer, in float32 and in bfloat16
    memory       the most that one step holds, each means of saving it alone and together, against the ledger
"""

import argparse
import dataclasses
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import recording
import torch
import transformers

from rlhf_minimal import ALGORITHMS, __version__
from rlhf_minimal.config import Config
from rlhf_minimal.evaluate import Evaluation, evaluate
from rlhf_minimal.fit import FitConfig, imitate
from rlhf_minimal.functional.kl import k3
from rlhf_minimal.functional.masked import masked_mean
from rlhf_minimal.lab.compiled import sample_compiled
from rlhf_minimal.lab.export import trl_arguments
from rlhf_minimal.lab.fast import Fast, fast, plain
from rlhf_minimal.lab.memory import Dtypes, memory_ledger, most_at_once
from rlhf_minimal.metrics import peak_memory, synchronized_time
from rlhf_minimal.models import load_pretrained
from rlhf_minimal.sample import pad_left, sample
from rlhf_minimal.tasks import CompletionRow, Problem, get_task, random_reward
from rlhf_minimal.train import (
    NothingToLearn,
    Recipe,
    collect,
    prepare_batch,
    roll_out,
    train,
    train_step,
    update,
)
from rlhf_minimal.train_state import Learner

MODEL = "smollm2-135m"
TASK = "reasoning-gym:chain_sum,min_terms=2,max_terms=2,min_digits=1,max_digits=2"
ARMS = (
    "grpo",
    "rloo",
    "dapo",
)  # a standard deviation, none; a filter and a length penalty, without a KL term

CONTROLS = ("coin", "own")  # a reward that looks at nothing; imitation, no reward
SHOWN = 12  # greedy answers that are kept as they are
PASSES = 3  # over the right completions of `own`

TRIES = 16
TEMPERATURES = (0.25, 0.5, 0.75, 1.0)
SHARPER = (
    1.0,
    0.75,
    0.5,
    0.25,
    1.25,
)  # of the start and of the trained model, in this order


@dataclasses.dataclass(frozen=True)
class Scale:
    """What a machine can bear.

    Attributes:
        learn: The runs' settings.
        seeds: Theirs, fixed beforehand.
        timed: Settings of a step that is timed.
        turns: How often.
        held_out: Problems of an evaluation, one answer each.
        tried: Problems that are answered `TRIES` times.
        compared: Problems on which start and trained model are compared, `TRIES` answers at each temperature.
    """

    learn: Config
    seeds: tuple[int, ...]
    timed: Config
    turns: int
    held_out: int
    tried: int
    compared: int


CPU = Scale(
    learn=Config(
        steps=40, prompts=8, group_size=8, lr=1e-5, max_new_tokens=8, max_refills=1
    ),
    seeds=(0, 1, 2),
    timed=Config(prompts=4, group_size=8, lr=1e-6, max_new_tokens=32),
    turns=3,
    held_out=200,
    tried=60,
    compared=120,
)
CUDA = Scale(
    learn=Config(
        steps=150,
        prompts=32,
        group_size=16,
        lr=1e-5,
        max_new_tokens=32,
        precision="bfloat16",
    ),
    seeds=(0, 1, 2),
    timed=Config(
        prompts=32, group_size=16, lr=1e-6, max_new_tokens=256, precision="bfloat16"
    ),
    turns=9,
    held_out=1000,
    tried=200,
    compared=200,
)


class Bench:
    """One machine's measurements.

    Args:
        device: Where the model is.
        scale: How much of everything.
        model: What `load_pretrained` takes.
    """

    def __init__(self, device: torch.device, scale: Scale, model: str = MODEL):
        self.device, self.scale, self.model = device, scale, model

    def recipe(
        self,
        config: Config,
        arm: str = "dr_grpo",
        *,
        sharing: bool = True,
        compiled: bool = False,
    ) -> Recipe:
        task = dataclasses.replace(
            get_task(TASK), instruction=""
        )  # no conversation, no system message
        recipe = Recipe(ALGORITHMS[arm], task, config)
        recipe = (
            dataclasses.replace(recipe, sample=sample_compiled) if compiled else recipe
        )
        return fast(recipe) if sharing else plain(recipe)

    def learner(self, recipe: Recipe) -> Learner:
        policy, vocabulary = load_pretrained(self.model, chat=False)
        return Learner.begin(
            policy.to(self.device), vocabulary, recipe.algorithm, recipe.config
        )

    # --- learn -----------------------------------------------------------------------------------------------------

    def learn(self, kept: list[dict[str, Any]]) -> Any:
        """Yields the runs so far, one more at a time: every arm's first seed, every arm's second, ..."""
        yield from self.each(kept, ((arm, s) for s in self.scale.seeds for arm in ARMS))

    def controls(self, kept: list[dict[str, Any]]) -> Any:
        """As `learn`: every seed of the coin, then every seed of the imitation."""
        order = ((arm, s) for arm in CONTROLS for s in self.scale.seeds)
        yield from self.each(kept, order)

    def each(
        self, kept: list[dict[str, Any]], order: Iterable[tuple[str, int]]
    ) -> Iterator[list[dict[str, Any]]]:
        """Adds the runs of an order that are not there yet."""
        runs = list(kept)
        for arm, seed in order:
            if all((run["arm"], run["seed"]) != (arm, seed) for run in runs):
                found = self.one(arm, seed, runs[0] if runs else None)
                runs.append({"arm": arm, "seed": seed, **found})
                yield runs

    def one(
        self, arm: str, seed: int, other: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """A run: how it went, and what the model could do before and after.

        Args:
            arm: Of `ARMS` or `CONTROLS`.
            seed: Of the run.
            other: Another run. Every run begins with the same model and is asked with the same draws, so that what was
                measured before that run need not be measured again.
        """
        config = dataclasses.replace(self.scale.learn, seed=seed)
        recipe = self.recipe(config, "grpo" if arm in CONTROLS else arm)
        if arm == "coin":
            recipe = dataclasses.replace(recipe, reward=random_reward(seed))
        learner = self.learner(recipe)
        if other is None:
            found = self.ask(learner, recipe)
            greedy = found.greedy_samples
            other = {
                "before": found.as_json(),
                "tries": {"before": self.tries(learner, recipe)},
                "samples": [
                    [problem.prompt, text, ""]
                    for problem, text in zip(
                        greedy.problems[:SHOWN], greedy.texts[:SHOWN], strict=True
                    )
                ],
            }
        series = (self.imitate_own if arm == "own" else self.reinforce)(learner, recipe)
        after = self.ask(learner, recipe)
        samples = [
            [prompt, before, now]
            for (prompt, before, _), now in zip(
                other["samples"], after.greedy_samples.texts, strict=False
            )
        ]
        tries = {
            "before": other["tries"]["before"],
            "after": self.tries(learner, recipe),
        }
        return {
            "stopped": series.pop("stopped"),
            "before": other["before"],
            "after": after.as_json(),
            "samples": samples,
            "tries": tries,
            **series,
        }

    def ask(self, learner: Learner, recipe: Recipe) -> Evaluation:
        """Held-out problems, one sampled answer and one greedy answer each."""
        n = self.scale.held_out
        return evaluate(learner.policy, learner.vocabulary, recipe, n=n)

    def reinforce(self, learner: Learner, recipe: Recipe) -> dict[str, Any]:
        """Trains by the recipe's reward; the metrics of its steps."""
        history: list[dict[str, Any]] = []
        stopped = None
        try:
            train(learner, recipe, partial(show, history))
        except NothingToLearn as reason:  # a filter that finds no group to keep
            stopped = str(reason)
        names = (
            "reward",
            "accuracy",
            "length",
            "truncated",
            "entropy",
            "kl",
            "seconds",
            "tokens",
        )
        series: dict[str, Any] = {
            name: [round(step[name], 4) for step in history] for name in names
        }
        return {"stopped": stopped, **series}

    def imitate_own(self, learner: Learner, recipe: Recipe) -> dict[str, Any]:
        """Rejection sampling: the questions and the number of completions of a run of `learn`, none of its updates."""
        rows: list[CompletionRow] = []
        drawn, accuracy = 0, []
        for step in range(1, recipe.config.steps + 1):
            _, sampled = collect(learner.policy, learner.vocabulary, recipe, step)
            right = 0
            for rollout in sampled:
                answers = zip(
                    rollout.problems,
                    rollout.texts,
                    rollout.correct.tolist(),
                    rollout.truncated.tolist(),
                    strict=True,
                )
                for problem, text, score, cut in answers:
                    drawn += 1
                    if score >= 1:  # one that is close gets less than 1
                        right += 1
                        # What the budget has cut has no end: its first sentence, if that is right, has one.
                        said = text.partition(".")[0] + "." if cut else text
                        if recipe.task.verify(said, problem) < 1:
                            said = text
                        rows.append(CompletionRow(problem.prompt, said))
            accuracy.append(round(right / sum(len(r.texts) for r in sampled), 4))
            print(f"step {step}: {drawn} drawn, {len(rows)} right", flush=True)
        losses: list[float] = []
        if rows:
            size = min(16, len(rows))
            fit = FitConfig(
                steps=math.ceil(PASSES * len(rows) / size),
                batch_size=size,
                lr=recipe.config.lr,
                warm_up=2,
                seed=recipe.config.seed,
            )
            keep = lambda metrics: losses.append(round(float(metrics["loss"]), 4))  # noqa: E731
            imitate(learner.policy, learner.vocabulary, rows, fit, keep)
        return {
            "stopped": None,
            "drawn": drawn,
            "imitated": len(rows),
            "accuracy": accuracy,
            "loss": losses,
        }

    def tries(
        self, learner: Learner, recipe: Recipe, temperature: float = 1.0
    ) -> list[int]:
        """How many of `TRIES` drawn answers to each of some held-out problems are right."""
        problems = recipe.task.problems(
            "held_out", self.scale.tried, seed="tries", distinct=True
        )
        return self.right_of(learner, recipe, problems, temperature)

    def right_of(
        self,
        learner: Learner,
        recipe: Recipe,
        problems: list[Problem],
        temperature: float,
    ) -> list[int]:
        """How many of `TRIES` drawn answers to each problem are right."""
        draws = {"group_size": TRIES, "temperature": temperature, "seed": "tries"}
        found = roll_out(learner.policy, learner.vocabulary, problems, recipe, **draws)  # type: ignore[arg-type]
        return [int(n) for n in found.correct.view(-1, TRIES).sum(-1)]

    # --- temperature -----------------------------------------------------------------------------------------------

    def temperature(self) -> dict[str, list[int]]:
        """The start's `tries`, drawn more and less boldly: what training has to be compared with."""
        recipe = self.recipe(self.scale.learn)
        learner = self.learner(recipe)
        return {
            str(value): self.tries(learner, recipe, value) for value in TEMPERATURES
        }

    def sharper(self, kept: dict[str, Any]) -> Any:
        """Yields what is known so far: the start at each temperature, then the first run of `learn` again, likewise."""
        arm, seed = ARMS[0], self.scale.seeds[0]
        recipe = self.recipe(dataclasses.replace(self.scale.learn, seed=seed), arm)
        problems = recipe.task.problems(
            "held_out", self.scale.compared, seed="sharper", distinct=True
        )
        found = {"arm": arm, "seed": seed, "start": {}, "trained": {}} | kept
        found["prompts"] = [problem.prompt for problem in problems]
        learner = self.learner(recipe)

        def ask(when: str) -> Any:
            for value in SHARPER:
                if str(value) not in found[when]:
                    counts = self.right_of(learner, recipe, problems, value)
                    found[when][str(value)] = counts
                    print(when, value, sum(counts) / TRIES / len(counts), flush=True)
                    yield found

        yield from ask("start")
        history: list[dict[str, Any]] = []
        train(learner, recipe, partial(show, history))
        found["reward"] = [round(step["reward"], 4) for step in history]
        yield from ask("trained")

    # --- speed -----------------------------------------------------------------------------------------------------

    def speed(self) -> dict[str, Any]:
        """Seconds, in turns; tokens a second; and which share of the machine's peak that is."""
        config = self.scale.timed
        recipe = self.recipe(config)
        learner = self.learner(recipe)
        policy, vocabulary = learner.policy, learner.vocabulary
        problems = recipe.task.problems("train", config.prompts, seed="speed")
        encoded = [
            vocabulary.encode_prompt(p.prompt, system=recipe.task.instruction)
            for p in problems
        ]
        prompts, mask = (
            x.to(self.device) for x in pad_left(encoded, vocabulary.pad_id)
        )
        nothing_ends = {
            "max_new_tokens": config.max_new_tokens,
            "eos_id": -1,
            "pad_id": vocabulary.pad_id,
        }

        def ours() -> None:
            with config.autocast(self.device):
                sample(
                    policy, prompts, mask, group_size=config.group_size, **nothing_ends
                )

        def compiled() -> None:
            with config.autocast(self.device):
                sample_compiled(
                    policy, prompts, mask, group_size=config.group_size, **nothing_ends
                )

        def generate() -> None:
            budget = {
                "min_new_tokens": config.max_new_tokens,
                "max_new_tokens": config.max_new_tokens,
            }
            with config.autocast(self.device), torch.no_grad():
                policy.generate(
                    input_ids=prompts,
                    attention_mask=mask,
                    do_sample=True,
                    top_k=0,
                    top_p=1.0,
                    num_return_sequences=config.group_size,
                    pad_token_id=vocabulary.pad_id,
                    **budget,
                )

        ways = {"ours": ours, "compiled": compiled, "generate": generate}
        seconds = self.in_turns(ways)
        written = config.prompts * config.group_size * (config.max_new_tokens or 0)
        read = int(mask.sum())
        rows = config.prompts * config.group_size
        passed = read + written - rows  # nobody reads a completion's last token
        size = sum(p.numel() for p in policy.parameters())
        peak = self.peak_flops()
        sampling = {
            name: {
                "seconds": times,
                "tokens_per_second": round(written / statistics.median(times), 1),
                "of_peak": round(
                    2 * size * passed / statistics.median(times) / peak, 4
                ),
            }
            for name, times in seconds.items()
        }
        return {
            "config": dataclasses.asdict(config),
            "parameters": size,
            "tokens_written": written,
            "prompt_tokens": read,
            "peak_flops": peak,
            "sampling": sampling,
            "update": self.updates(peak, size),
        }

    def updates(self, peak: float, size: int) -> dict[str, Any]:
        """An update of the same rollout, with the loop's means and without."""
        recipes = {"ours": self.recipe(self.scale.timed)}
        recipes["plain"] = self.recipe(self.scale.timed, sharing=False)
        learner = self.learner(recipes["ours"])
        groups, _ = collect(learner.policy, learner.vocabulary, recipes["ours"], 1)
        assert groups is not None
        # What is measured is the work, not this batch's luck: every group has something to learn.
        rewards = (
            torch.arange(len(groups.rewards), device=self.device).remainder(2).float()
        )
        groups = dataclasses.replace(groups, rewards=rewards)
        batch, _ = prepare_batch(learner, recipes["ours"], groups, 1)
        tokens: dict[str, int] = {}

        def one(name: str) -> Callable[[], None]:
            def work() -> None:
                tokens[name] = int(
                    update(learner, recipes[name], groups, batch, 1)["tokens_read"]
                )

            return work

        seconds = self.in_turns({name: one(name) for name in recipes})
        return {
            name: {
                "seconds": times,
                "tokens_read": tokens[name],
                "tokens_per_second": round(tokens[name] / statistics.median(times), 1),
                "of_peak": round(
                    6 * size * tokens[name] / statistics.median(times) / peak, 4
                ),
            }
            for name, times in seconds.items()
        }

    def in_turns(self, ways: dict[str, Callable[[], None]]) -> dict[str, list[float]]:
        """Once each to warm up, then `turns` times each, in turns."""
        times: dict[str, list[float]] = {name: [] for name in ways}
        for turn in range(self.scale.turns + 1):
            for name, work in ways.items():
                began = synchronized_time(self.device)
                work()
                if turn:
                    times[name].append(round(synchronized_time(self.device) - began, 4))
        return times

    def peak_flops(self, n: int = 2048, times: int = 8) -> float:
        """Of a large matrix product at the precision that is trained with, the best of several."""
        dtype = (
            torch.bfloat16
            if self.scale.timed.precision == "bfloat16"
            else torch.float32
        )
        n = n if self.device.type == "cpu" else 8192
        a, b = (torch.randn(n, n, device=self.device, dtype=dtype) for _ in range(2))
        best = min(self._seconds_of(lambda: a @ b) for _ in range(times))
        return 2 * n**3 / best

    def _seconds_of(self, work: Callable[[], Any]) -> float:
        began = synchronized_time(self.device)
        work()
        return synchronized_time(self.device) - began

    # --- trl -------------------------------------------------------------------------------------------------------

    def trl(self) -> dict[str, Any] | None:
        """Seconds of whole steps on the same prompts, in turns: a step of ours, then one of TRL's."""
        try:
            from datasets import Dataset
            from transformers import TrainerCallback
            from trl import GRPOConfig, GRPOTrainer
        except ImportError:
            return None
        steps = self.scale.turns + 1  # the first of each warms up
        recipe = self.recipe(
            dataclasses.replace(self.scale.timed, steps=steps, watch_kl="off")
        )
        learner = self.learner(recipe)
        times: dict[str, list[float]] = {"ours": [], "trl": []}
        lengths: dict[str, list[float]] = {"ours": [], "trl": []}
        bench = self

        class InTurns(TrainerCallback):  # type: ignore[misc]
            began = 0.0

            def on_step_begin(self, *args: Any, **others: Any) -> None:
                metrics = train_step(learner, recipe)
                times["ours"].append(round(metrics["seconds"], 4))
                lengths["ours"].append(round(metrics["length"], 2))
                self.began = synchronized_time(bench.device)

            def on_step_end(self, *args: Any, **others: Any) -> None:
                times["trl"].append(
                    round(synchronized_time(bench.device) - self.began, 4)
                )

            def on_log(
                self,
                args: Any,
                state: Any,
                control: Any,
                logs: dict[str, Any],
                **others: Any,
            ) -> None:
                if "completions/mean_length" in logs:
                    lengths["trl"].append(round(logs["completions/mean_length"], 2))

        problems = recipe.task.problems("train", recipe.config.prompts * steps, seed=0)
        by_prompt = {problem.prompt: problem for problem in problems}

        def reward(
            prompts: list[str], completions: list[str], **columns: Any
        ) -> list[float]:
            pairs = zip(prompts, completions, strict=True)
            return [
                recipe.task.verify(text, by_prompt[prompt]) for prompt, text in pairs
            ]

        policy, vocabulary = load_pretrained(self.model, chat=False)
        settings = trl_arguments(recipe) | {"logging_steps": 1, "disable_tqdm": True}
        with tempfile.TemporaryDirectory() as folder:
            trainer = GRPOTrainer(
                model=policy,
                args=GRPOConfig(
                    output_dir=folder, use_cpu=self.device.type == "cpu", **settings
                ),
                reward_funcs=reward,
                train_dataset=Dataset.from_list(
                    [{"prompt": problem.prompt} for problem in problems]
                ),
                processing_class=vocabulary.tokenizer,
                callbacks=[InTurns()],
            )
            trainer.train()
        return {
            "seconds": {k: v[1:] for k, v in times.items()},
            "lengths": {k: v[1:] for k, v in lengths.items()},
        }

    # --- precision -------------------------------------------------------------------------------------------------

    def precision(self) -> dict[str, Any]:
        """Token log-ratios between what the sampler said of its tokens and what the trainer says of them."""
        found = {}
        for kind in ("float32", "bfloat16"):
            for decoding in (
                ("dynamic", "compiled") if self.device.type == "cuda" else ("dynamic",)
            ):
                config = dataclasses.replace(self.scale.timed, precision=kind)
                recipe = self.recipe(config, compiled=decoding == "compiled")
                learner = self.learner(recipe)
                groups, _ = collect(learner.policy, learner.vocabulary, recipe, 1)
                assert groups is not None
                with torch.no_grad():
                    every = torch.arange(len(groups.mask), device=self.device)
                    read = Fast().read(learner.policy, groups, every, config).logp
                apart = ((read - groups.logp) * groups.mask)[groups.mask != 0]
                sums = ((read - groups.logp) * groups.mask).sum(-1)
                found[f"{kind}, {decoding}"] = {
                    "tokens": int(groups.mask.sum()),
                    "log_ratio_std": apart.std().item(),
                    "log_ratio_most": apart.abs().max().item(),
                    "sequence_log_ratio_std": sums.std().item(),
                    "kl_per_token": masked_mean(
                        k3(groups.logp, read), groups.mask
                    ).item(),
                    "outside_a_clip_of_0.2": (apart.exp() - 1)
                    .abs()
                    .gt(0.2)
                    .float()
                    .mean()
                    .item(),
                    "sequences_outside_3e-4": (sums / groups.mask.sum(-1))
                    .abs()
                    .gt(3e-4)
                    .float()
                    .mean()
                    .item(),
                }
        return found

    # --- memory ----------------------------------------------------------------------------------------------------

    def memory(self) -> list[dict[str, Any]]:
        """Every way in a process of its own, since a process never gives back its peak.

        The weights come from a folder of plain ones: multiplying out a packed file holds both for a moment. On Linux
        the C library is told to give back at once what is freed, so that a peak is what was needed.
        """
        rows = []
        with tempfile.TemporaryDirectory() as folder:
            policy, vocabulary = load_pretrained(self.model, chat=False)
            policy.save_pretrained(folder)
            vocabulary.tokenizer.save_pretrained(folder)
            del policy
            for name, changes in WAYS_TO_SAVE.items():
                command = [
                    sys.executable,
                    __file__,
                    "--device",
                    str(self.device),
                    "--model",
                    folder,
                ]
                command += ["--one-step", json.dumps(changes)]
                own = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"}
                run = subprocess.run(
                    command, check=True, capture_output=True, text=True, env=own
                )
                rows.append(
                    {
                        "name": name,
                        "changes": changes,
                        **json.loads(run.stdout.splitlines()[-1]),
                    }
                )
                print(name, rows[-1], flush=True)
        return rows

    def one_step(self, changes: dict[str, Any]) -> dict[str, Any]:
        """What a process holds before there is a model, and at most in steps; and the ledger's count.

        Two steps, since the optimiser's moments are there from the second one on. No start is kept for the metric
        `kl`: what is held is what the algorithm needs, as the ledger counts it.
        """
        empty = self.peak_memory()
        changes = dict(changes)
        sharing = changes.pop("fast", "on") == "on"
        config = dataclasses.replace(self.scale.timed, watch_kl="off", **changes)
        recipe = self.recipe(config, sharing=sharing)
        learner = self.learner(recipe)
        for _ in range(2):
            train_step(learner, recipe)
        peak = self.peak_memory()
        groups, _ = collect(
            learner.policy, learner.vocabulary, recipe, 1
        )  # the step's shapes, near enough
        assert groups is not None
        half = recipe.config.precision == "bfloat16"
        rows = memory_ledger(
            recipe.algorithm,
            learner.policy.config,
            sequences=-(-len(groups.completions) // recipe.config.micro_batches),
            sampled=len(groups.completions),
            prompt_length=groups.prompts.shape[1],
            completion_length=groups.completions.shape[1],
            padded=bool((groups.prompt_mask == 0).any()),
            gradient_checkpointing=recipe.config.gradient_checkpointing == "on",
            lora_rank=recipe.config.lora_rank,
            dtypes=Dtypes(activations=torch.bfloat16) if half else Dtypes(),
        )
        return {
            "empty": empty,
            "peak": peak,
            "trained_parameters": sum(
                p.numel() for p in learner.policy.parameters() if p.requires_grad
            ),
            "shape": [*groups.completions.shape, groups.prompts.shape[1]],
            "ledger": most_at_once(rows),
        }

    def peak_memory(self) -> int:
        return int(peak_memory(self.device)["peak_memory"])


WAYS_TO_SAVE: dict[str, dict[str, Any]] = {
    "plain": {"fast": "off"},
    "the loop's own means": {},
    "8 micro-batches": {"micro_batches": 8},
    "bfloat16": {"precision": "bfloat16"},
    "gradient checkpointing": {"gradient_checkpointing": "on"},
    "LoRA, rank 16": {"lora_rank": 16},
    "all of them": {
        "micro_batches": 8,
        "precision": "bfloat16",
        "gradient_checkpointing": "on",
        "lora_rank": 16,
    },
}


def show(history: list[dict[str, Any]], metrics: dict[str, Any]) -> None:
    history.append(metrics)
    names = ("step", "reward", "accuracy", "length", "entropy", "kl", "seconds")
    print(*(f"{name} {metrics[name]:.3g}" for name in names), flush=True)


def machine(device: torch.device) -> dict[str, Any]:
    """What the numbers belong to."""
    from importlib.metadata import PackageNotFoundError, version

    import peft
    import reasoning_gym

    versions = {
        "rlhf_minimal": __version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    versions |= {"peft": peft.__version__, "reasoning_gym": reasoning_gym.__version__}
    try:
        versions["trl"] = version("trl")
    except PackageNotFoundError:
        pass
    name = (
        torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else recording.cpu_name()
    )
    return {
        "device": name,
        "threads": torch.get_num_threads(),
        **versions,
        "python": platform.python_version(),
    }


def main() -> None:
    """Measure what is asked for and not yet on file."""
    parts = (
        "learn",
        "controls",
        "temperature",
        "sharper",
        "speed",
        "trl",
        "precision",
        "memory",
    )
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", nargs="*", help=", ".join(parts))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--one-step", help=argparse.SUPPRESS)
    parser.add_argument("--model", default=MODEL, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if unknown := set(args.part) - set(parts):
        parser.error(
            f"no part {', '.join(sorted(unknown))}; there are {', '.join(parts)}"
        )
    torch.set_num_threads(1)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    device = torch.device(args.device)
    bench = Bench(device, CPU if device.type == "cpu" else CUDA, args.model)
    if args.one_step is not None:
        print(json.dumps(bench.one_step(json.loads(args.one_step))))
        return
    file = Path(__file__).with_name(f"scaling-{device.type}.json")
    found = json.loads(file.read_text()) if file.exists() else {}
    found["command"] = f"python notebooks/results/scaling.py --device {device.type}"
    found["model"], found["task"] = MODEL, TASK

    def save(part: str) -> None:
        own = machine(
            device
        )  # of the first part; another one of a later part is beside it
        differ = {
            k: v for k, v in own.items() if found.setdefault("machine", own).get(k) != v
        }
        if differ:
            found.setdefault("machine_of", {})[part] = differ
        recording.write(file, json.dumps(found, indent=1) + "\n")

    for part in args.part or parts:
        if part in ("learn", "controls"):
            found["learn_config"] = dataclasses.asdict(bench.scale.learn) | {
                "held_out": bench.scale.held_out
            }
            for runs in getattr(bench, part)(found.get(part, [])):
                found[part] = runs
                save(part)
        elif part == "sharper":
            kept = found.get(part, {})
            if len(kept.get("trained", {})) < len(SHARPER):
                for found[part] in bench.sharper(kept):
                    save(part)
        elif part not in found:
            found[part] = getattr(bench, part)()
            save(part)


if __name__ == "__main__":
    main()
