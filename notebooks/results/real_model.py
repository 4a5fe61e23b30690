"""The recorded runs of a pretrained model: GRPO against a coin and against imitation of its own right answers.

    python notebooks/results/real_model.py                   SmolLM2 on sums in words, one core (about two hours)
    python notebooks/results/real_model.py grpo coin         only these arms
    python notebooks/results/real_model.py --device cuda --model Qwen/Qwen3-0.6B-Base \\
        --files gsm8k-train.jsonl,gsm8k-test.jsonl --transfer math-500.jsonl
                                                             the same on GSM8K, written to real-model-cuda.json, and
                                                             every arm answers MATH-500 greedily, untrained on it

The weights of SmolLM2-135M-Instruct are those of a file that keeps four bits a weight, read back as float32: not quite
the published model. It is asked without its chat template, with two worked examples before each question.

    start   the model before any training, on the held-out questions
    start-0.5, start-0.25   the same, drawn at a lower temperature: what decoding gives without training
    grpo    the row GRPO, rewarded where the number behind #### is right (`gsm8k:`, strict)
    coin    the same, but a coin that does not look at the completion decides the reward: the control
    own     as many completions of the start, at the same questions; its right ones are imitated, three times each
    lot     the same with as many of these completions chosen by lot, right or wrong: the control of `own`
    lora    GRPO with adapters, on a GPU only

Every arm is measured on the same held-out questions with the same draws, and every completion of these is kept: what is
said of strict and lenient scores, of pass@k and of votes is computed from the texts.
"""

import argparse
import dataclasses
import json
import math
import random
import re
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import recording
import torch

from rlhf_minimal import ALGORITHMS
from rlhf_minimal.config import Config
from rlhf_minimal.fit import FitConfig, imitate
from rlhf_minimal.lab.fast import fast
from rlhf_minimal.metrics import synchronized_time
from rlhf_minimal.models import load_pretrained
from rlhf_minimal.sample import Rollout, join
from rlhf_minimal.tasks import Problem, Task, get_task, random_reward
from rlhf_minimal.train import Recipe, collect, roll_out, train
from rlhf_minimal.train_state import Learner

COOLER = {"start-0.5": 0.5, "start-0.25": 0.25}  # no training, drawn less boldly
UNTRAINED = ("start", *COOLER)
ARMS = (*UNTRAINED, "grpo", "coin", "own", "lot", "lora")
PASSES = 3  # over the right completions of `own`
AT_ONCE = 640  # completions that are sampled together in an evaluation

NAMES = ("Mia", "Tom", "Ann", "Ben", "Lea", "Sam")
THINGS = ("apples", "pens", "books", "coins", "eggs", "stamps")
QUESTIONS = (  # the operation that a story asks for, and the story
    ("+", "{n} has {a} {t}. {m} gives {n} {b} more. How many {t} does {n} have now?"),
    ("+", "{n} has {a} {t} and finds {b} more. How many {t} are there now?"),
    (
        "+",
        "There are {a} {t} in a box and {b} {t} on the table. How many {t} are there?",
    ),
    (
        "-",
        "{n} has {a} {t} and gives {m} {b} of them. How many {t} does {n} have left?",
    ),
    ("-", "{n} had {a} {t} and lost {b}. How many {t} are left?"),
    ("-", "{n} has {a} {t}. {m} has {b} fewer. How many {t} does {m} have?"),
)
EXAMPLES = (
    "Q: Eva has 15 cards and gives Max 3 of them. How many cards does Eva have left?\n"
    "A: 15 - 3 = 12. #### 12\n\n"
    "Q: Kim has 6 keys and buys 8 more. How many keys does Kim have?\n"
    "A: 6 + 8 = 14. #### 14\n\n"
)


@dataclasses.dataclass(frozen=True)
class Scale:
    """What a machine can bear.

    Attributes:
        config: Settings of the runs that learn by a reward.
        seeds: Of every arm but `start`, fixed beforehand.
        held_out: Questions of the evaluation, one greedy answer each.
        tried: How many of them are answered `tries` times, at temperature 1.
        tries: How often.
    """

    config: Config
    seeds: tuple[int, ...] = (0, 1, 2)
    held_out: int = 100
    tried: int = 40
    tries: int = 16


CPU = Scale(Config(steps=24, prompts=8, group_size=8, lr=1e-5, max_new_tokens=20))
CUDA = Scale(
    Config(
        steps=60,
        prompts=64,
        group_size=8,
        micro_batches=32,
        lr=1e-6,
        max_new_tokens=400,
        precision="bfloat16",
    ),
    held_out=1319,
    tried=300,
)


def write_sums(path: Path, n: int = 3000) -> None:
    """Sums in words in GSM8K's form, the worked examples before each: n rows, some of them equal."""
    rng = random.Random("sums in words")
    with path.open("w", encoding="utf-8") as file:
        for _ in range(n):
            sign, story = rng.choice(QUESTIONS)
            a, b = rng.randrange(1, 20), rng.randrange(1, 20)
            if sign == "-":
                a, b = max(a, b) + 1, min(a, b)
            result = a + b if sign == "+" else a - b
            name, other = rng.sample(NAMES, 2)
            asked = story.format(a=a, b=b, n=name, m=other, t=rng.choice(THINGS))
            row = {
                "question": f"{EXAMPLES}Q: {asked}\nA:",
                "answer": f" {a} {sign} {b} = {result}. #### {result}",
            }
            file.write(json.dumps(row) + "\n")


class Bench:
    """One machine, one model, one task.

    Args:
        device: Where the model is.
        scale: How much of everything.
        model: What `load_pretrained` takes.
        task: With questions and their answers.
        transfer: Questions that no arm is trained on: all of them are answered greedily.
    """

    def __init__(
        self,
        device: torch.device,
        scale: Scale,
        model: str,
        task: Task,
        transfer: Task | None = None,
    ):
        self.device, self.scale, self.model = device, scale, model
        self.task, self.transfer = task, transfer

    def recipe(self, arm: str, seed: int) -> Recipe:
        config = dataclasses.replace(self.scale.config, seed=seed)
        if arm == "lora":  # a matrix of rank 32 is trained at ten times the rate
            config = dataclasses.replace(config, lora_rank=32, lr=10 * config.lr)
        reward = random_reward(seed) if arm == "coin" else None
        return fast(Recipe(ALGORITHMS["grpo"], self.task, config, reward=reward))

    def run(self, arm: str, seed: int) -> dict[str, Any]:
        """What is kept of one run: its steps, and every held-out completion of the model that it leaves."""
        torch.manual_seed(seed)
        recipe = self.recipe(arm, seed)
        policy, vocabulary = load_pretrained(self.model, chat=False)
        policy = policy.to(self.device)
        begun, busy = synchronized_time(self.device), time.process_time()
        kept: dict[str, Any] = {}
        if arm in ("own", "lot"):
            by_lot = arm == "lot"
            kept = self.imitate_own(policy, vocabulary, recipe, by_lot=by_lot)
        elif arm not in UNTRAINED:
            learner = Learner.begin(policy, vocabulary, recipe.algorithm, recipe.config)
            history: list[dict[str, Any]] = []
            train(learner, recipe, partial(show, history))
            policy = learner.policy
            names = ("reward", "accuracy", "length", "truncated", "entropy", "kl")
            kept = {name: [round(step[name], 4) for step in history] for name in names}
        seconds = round(synchronized_time(self.device) - begun)
        cpu_seconds = round(time.process_time() - busy)
        return {
            "seconds": seconds,
            **({"cpu_seconds": cpu_seconds} if self.device.type == "cpu" else {}),
            **kept,
            **self.held_out(policy, vocabulary, recipe, arm),
        }

    def imitate_own(
        self, policy: Any, vocabulary: Any, recipe: Recipe, *, by_lot: bool
    ) -> dict[str, Any]:
        """Rejection sampling: the questions and the number of completions of a run of `grpo`, none of its updates.

        By lot, as many of the completions are imitated as are right, whether they are right or not.
        """
        every: list[tuple[dict[str, str], bool]] = []
        for step in range(1, recipe.config.steps + 1):
            for rollout in collect(policy, vocabulary, recipe, step)[1]:
                answers = zip(
                    rollout.problems,
                    rollout.texts,
                    rollout.correct.tolist(),
                    rollout.truncated.tolist(),
                    strict=True,
                )
                for problem, text, right, cut in answers:
                    said = answer_of(text, cut=cut)
                    row = {"prompt": problem.prompt, "completion": said}
                    every.append((row, bool(right)))
            print(f"step {step}: {len(every)} drawn", flush=True)
        rows, drawn = [row for row, right in every if right], len(every)
        right = len(rows)
        if not rows:
            return {"drawn": drawn, "right": 0, "loss": []}
        if by_lot:
            lot = random.Random(f"lot/{recipe.config.seed}").sample(every, right)
            rows = [row for row, _ in lot]
            right = sum(one for _, one in lot)
        size = 16
        config = FitConfig(
            steps=math.ceil(PASSES * len(rows) / size),
            batch_size=min(size, len(rows)),
            lr=recipe.config.lr,
            warm_up=2,
            seed=recipe.config.seed,
        )
        losses: list[float] = []
        imitate(
            policy,
            vocabulary,
            rows,
            config,
            lambda metrics: losses.append(round(float(metrics["loss"]), 4)),
        )
        return {"drawn": drawn, "imitated": len(rows), "right": right, "loss": losses}

    def answers(
        self,
        policy: Any,
        vocabulary: Any,
        recipe: Recipe,
        problems: list[Problem],
        *,
        group_size: int = 1,
        temperature: float,
    ) -> Rollout:
        """Completions of held-out questions, as many at once as a cache may hold."""
        width = max(1, AT_ONCE // group_size)
        parts = [
            roll_out(
                policy,
                vocabulary,
                problems[i : i + width],
                recipe,
                group_size=group_size,
                temperature=temperature,
                seed=f"real-model/{i}" if i else "real-model",
            )
            for i in range(0, len(problems), width)
        ]
        return join(parts)

    def held_out(
        self, policy: Any, vocabulary: Any, recipe: Recipe, arm: str
    ) -> dict[str, Any]:
        """One greedy completion of every held-out question and several drawn ones of some, as they are."""
        problems = self.task.problems(
            "held_out", self.scale.held_out, seed="real-model", distinct=True
        )
        some, tries = problems[: self.scale.tried], self.scale.tries
        ask = partial(self.answers, policy, vocabulary, recipe)
        drawn = ask(some, group_size=tries, temperature=COOLER.get(arm, 1.0))
        texts = [drawn.texts[i : i + tries] for i in range(0, len(drawn.texts), tries)]
        found = {
            "truncated_held_out": round(float(drawn.truncated.float().mean()), 4),
            "length_held_out": round(float(drawn.mask.sum(1).mean()), 2),
            "greedy_texts": ask(problems, temperature=0.0).texts,
            "drawn_texts": texts,
        }
        if arm == "start":
            found["prompts"] = [problem.prompt for problem in problems]
            found["answers"] = [problem.answer for problem in problems]
        return found | self.transferred(policy, vocabulary, recipe, arm)

    def transferred(
        self, policy: Any, vocabulary: Any, recipe: Recipe, arm: str
    ) -> dict[str, Any]:
        """One greedy completion of every question of the other file, in its own form and budget."""
        if self.transfer is None or arm in COOLER:  # a greedy answer has no temperature
            return {}
        problems = list(self.transfer.listed)
        config = dataclasses.replace(recipe.config, max_new_tokens=None)
        recipe = dataclasses.replace(recipe, task=self.transfer, config=config)
        said = self.answers(policy, vocabulary, recipe, problems, temperature=0.0)
        found = {
            "transfer_right": [int(right) for right in said.correct.tolist()],
            "transfer_truncated": round(float(said.truncated.float().mean()), 4),
            "transfer_texts": said.texts,
        }
        if arm == "start":
            found["transfer_prompts"] = [problem.prompt for problem in problems]
            found["transfer_answers"] = [problem.answer for problem in problems]
        return found


def answer_of(text: str, *, cut: bool) -> str:
    """A completion up to its marked number, if the budget has cut what came behind; else all of it."""
    marked = re.match(r".*?####[ \t]*\S+", text, re.DOTALL) if cut else None
    return marked[0] if marked else text


def show(history: list[dict[str, Any]], metrics: dict[str, Any]) -> None:
    history.append(metrics)
    step = f"reward {metrics['reward']:.3f} accuracy {metrics['accuracy']:.3f}"
    print("step", len(history), step, f"{metrics['seconds']:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("arm", nargs="*", help="only these arms")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--files", help="in GSM8K's form: TRAIN.jsonl,TEST.jsonl")
    parser.add_argument(
        "--transfer", help="in MATH's form: FILE.jsonl, never trained on"
    )
    chosen = parser.parse_args()
    scale = CPU if chosen.device == "cpu" else CUDA
    arms = [arm for arm in ARMS if arm != "lora" or chosen.device == "cuda"]
    file = Path(__file__).with_name(f"real-model-{chosen.device}.json")
    told = "sums in words" if chosen.files is None else f"gsm8k:{chosen.files}"
    if file.exists():  # runs of two models or tasks do not belong into one record
        head = json.loads(file.read_text())
        held = head["model"], head["task"], head.get("transfer")
        if held != (chosen.model, told, chosen.transfer):
            also = f" with {held[2]}" if held[2] else ""
            parser.error(
                f"{file.name} holds runs of {held[0]} on {held[1]}{also}: "
                "move it away first"
            )
    with tempfile.TemporaryDirectory() as folder:
        files = chosen.files
        if files is None:
            files = str(Path(folder, "sums.jsonl"))
            write_sums(Path(files))
        task = get_task(f"gsm8k:{files}")
        if (
            chosen.files is None
        ):  # examples show the form; elsewhere a sentence asks for it
            task = dataclasses.replace(task, instruction="")
        device = torch.device(chosen.device)
        on_gpu = device.type == "cuda"
        name = torch.cuda.get_device_name() if on_gpu else recording.cpu_name()
        asked = f" --device cuda --model {chosen.model}" if on_gpu else ""
        asked += f" --files {chosen.files}" if chosen.files else ""
        transfer, settings = None, {}
        if chosen.transfer:
            transfer = get_task(f"competition-math:{chosen.transfer}")
            asked += f" --transfer {chosen.transfer}"
            settings = {"transfer": chosen.transfer}
        recording.record(
            __file__,
            arms,
            Bench(device, scale, chosen.model, task, transfer).run,
            seeds=scale.seeds,
            fewer=dict.fromkeys(UNTRAINED, 1),
            to=file,
            only=chosen.arm,
            command=f"python notebooks/results/real_model.py{asked}",
            model=chosen.model,
            task=told,
            config=dataclasses.asdict(scale.config),
            tries=scale.tries,
            passes=PASSES,
            machine={"device": name, "threads": torch.get_num_threads()},
            **settings,
        )


if __name__ == "__main__":
    main()
