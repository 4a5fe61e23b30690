"""One recorded run of a real model: SmolLM2-135M learns to do without the worked examples that its teacher reads.

    python notebooks/results/context_distillation.py       one run, about six minutes of one core

Writes notebooks/results/context-distillation.json. Teacher and student are the same model, SmolLM2-135M-Instruct from
its packaged file or from the hub, asked without the chat template. The teacher reads eight worked examples before the
question, the student reads the question alone. Nothing in a question says what is asked; the examples do:

    teacher     285 -> 286 (newline) 877 -> 878 (newline) ... six more lines ... 347 ->
    student     347 ->

The student writes, the teacher reads the same tokens behind its examples, and each token's loss is the reverse KL over
the whole vocabulary. No completion is checked while training. All weights are trained by AdamW; the teacher stays the
model as it was. There is one run. Seed and learning rate were fixed before it; no other was tried.

Before, and every ten steps, 100 questions that are in no step are asked greedily and by one sample each. Two measures: a
completion is `right` if it is the number and then the end of the line or of the text; `number` asks for the right
number at the beginning, whatever follows but a digit.
"""

import argparse
import copy
import json
import random
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import recording
import torch
from torch import Tensor
from transformers import PreTrainedModel

from rlhf_minimal.models import load_pretrained

MODEL = "smollm2-135m"
SEED, STEPS, EVERY, ROWS, LR, BUDGET = 0, 50, 10, 8, 3e-5, 6
SHOTS, QUESTIONS, DRAWS = 8, 100, 1
RECORD = Path(__file__).with_name("context-distillation.json")


def questions() -> tuple[list[str], list[str], list[str]]:
    """Worked examples, test questions and the rest: the numbers of three digits in a fixed order.

    All questions are of one length in tokens, so that nothing is padded.
    """
    every = [f"{number} ->" for number in range(100, 999)]
    random.Random("context distillation").shuffle(every)
    return every[:SHOTS], every[SHOTS : SHOTS + QUESTIONS], every[SHOTS + QUESTIONS :]


def answer(question: str) -> int:
    """The next number: of `347 ->` it is 348. Nothing in the question says so; the worked examples do."""
    return int(question[:3]) + 1


def is_right(question: str, text: str) -> bool:
    """The number, and then the end of the line or of the text."""
    return (
        re.fullmatch(rf" ?{answer(question)} *(\n.*|<\|im_end\|>)", text, re.DOTALL)
        is not None
    )


def has_number(question: str, text: str) -> bool:
    """The number at the beginning, and no further digit."""
    return re.match(rf" ?{answer(question)}(?![0-9])", text) is not None


class Reader:
    """A model with a text before every question, which it has read once.

    Args:
        model: Any causal language model of transformers.
        tokenizer: Its tokenizer.
        before: What stands before each question; "" for nothing.
    """

    def __init__(self, model: PreTrainedModel, tokenizer: Any, before: str = ""):
        self.model, self.tokenizer, self.cache = model, tokenizer, None
        if before:
            ids = torch.tensor([tokenizer.encode(before, add_special_tokens=False)])
            with torch.no_grad():
                self.cache = model(ids, use_cache=True).past_key_values
        newline = tokenizer.encode("\n", add_special_tokens=False)
        self.ends = torch.tensor([*newline, tokenizer.eos_token_id])

    def encode(self, asked: list[str]) -> Tensor:
        """[B, S] ids of questions, all of one length."""
        return torch.tensor(
            [self.tokenizer.encode(q, add_special_tokens=False) for q in asked]
        )

    def begin(self, rows: int) -> Any:
        """The cache of the text before, for so many rows; None where there is no text."""
        cache = copy.deepcopy(self.cache)
        if cache is not None:
            cache.batch_repeat_interleave(rows)
        return cache

    def logits(self, prompts: Tensor, completions: Tensor) -> Tensor:
        """[B, T, V]: those from which each token of the completions is drawn."""
        ids = torch.cat([prompts, completions[:, :-1]], dim=1)
        cache = self.begin(len(ids))
        T = completions.shape[1]
        return self.model(
            ids, past_key_values=cache, use_cache=cache is not None, logits_to_keep=T
        ).logits

    @torch.no_grad()
    def write(self, prompts: Tensor, *, greedy: bool = False) -> Tensor:
        """[B, T] completions of exactly `BUDGET` tokens; `mask` says where they end."""
        cache, ids, written = self.begin(len(prompts)), prompts, []
        for _ in range(BUDGET):
            out = self.model(
                ids, past_key_values=cache, use_cache=True, logits_to_keep=1
            )
            cache, logits = out.past_key_values, out.logits[:, -1]
            ids = (
                logits.argmax(-1, keepdim=True)
                if greedy
                else torch.multinomial(logits.softmax(-1), 1)
            )
            written.append(ids)
        return torch.cat(written, dim=1)

    def mask(self, completions: Tensor) -> Tensor:
        """[B, T]: 1.0 up to and including the first end of a line or of the text."""
        end = torch.isin(completions, self.ends).long()
        return (end.cumsum(-1) - end == 0).float()

    def texts(self, completions: Tensor) -> list[str]:
        """The text of each row up to and including its end."""
        lengths = self.mask(completions).sum(-1).long().tolist()
        return [
            self.tokenizer.decode(ids[:n].tolist(), clean_up_tokenization_spaces=False)
            for ids, n in zip(completions, lengths, strict=True)
        ]


def begin() -> tuple[Reader, Reader]:
    """Student and teacher: the same weights, held twice."""
    model, vocabulary = load_pretrained(MODEL, chat=False)
    tokenizer = vocabulary.tokenizer
    examples = "".join(f"{q} {answer(q)}\n" for q in questions()[0])
    teacher = copy.deepcopy(model).requires_grad_(False)
    return Reader(model, tokenizer), Reader(teacher, tokenizer, examples)


def reverse_kl(student: Tensor, teacher: Tensor) -> Tensor:
    """[B, T] of [B, T, V] logits: KL(student || teacher), summed over the vocabulary."""
    logp, logq = student.log_softmax(-1), teacher.log_softmax(-1)
    return (logp.exp() * (logp - logq)).sum(-1)


def train(
    student: Reader,
    teacher: Reader,
    steps: int = STEPS,
    on_step: Callable[[int, dict[str, list[float]]], None] = lambda step, seen: None,
) -> dict[str, list[float]]:
    """Trains the student in place; per step the loss and what its samples are worth."""
    rng, pool = random.Random(SEED), questions()[2]
    torch.manual_seed(SEED)
    weights = student.model.parameters()
    optimizer = torch.optim.AdamW(weights, lr=LR, weight_decay=0.0)
    seen: dict[str, list[float]] = {"kl": [], "right": [], "number": [], "length": []}
    for step in range(steps):
        asked = rng.sample(pool, ROWS)
        prompts = student.encode(asked)
        completions = student.write(prompts)
        mask = student.mask(completions)
        with torch.no_grad():
            target = teacher.logits(prompts, completions)
        kl = reverse_kl(student.logits(prompts, completions), target)
        loss = (kl * mask).sum() / mask.sum()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(student.model.parameters(), 1.0)
        optimizer.step()
        pairs = list(zip(asked, student.texts(completions), strict=True))
        seen["kl"].append(round(loss.item(), 4))
        seen["right"].append(sum(is_right(*pair) for pair in pairs) / ROWS)
        seen["number"].append(sum(has_number(*pair) for pair in pairs) / ROWS)
        seen["length"].append(round(mask.sum().item() / ROWS, 3))
        print(step + 1, {name: x[-1] for name, x in seen.items()}, flush=True)
        on_step(step + 1, seen)
    return seen


def measured(reader: Reader, n: int = QUESTIONS) -> dict[str, Any]:
    """By question: the greedy text, and how many of the drawn ones are right, by both measures."""
    asked = questions()[1][:n]
    torch.manual_seed(10_000)
    prompts = reader.encode(asked)
    greedy = reader.texts(reader.write(prompts, greedy=True))
    draws = [reader.texts(reader.write(prompts)) for _ in range(DRAWS)]
    found: dict[str, Any] = {"texts": greedy}
    for name, measure in (("right", is_right), ("number", has_number)):
        found[f"greedy_{name}"] = [
            int(measure(q, x)) for q, x in zip(asked, greedy, strict=True)
        ]
        found[f"drawn_{name}"] = [
            sum(measure(q, texts[i]) for texts in draws) for i, q in enumerate(asked)
        ]
    shares = {k: round(sum(v) / n, 3) for k, v in found.items() if k != "texts"}
    print(shares, greedy[:6], draws[0][:6], flush=True)
    return found


def main() -> None:
    """The run, as it is recorded."""
    argparse.ArgumentParser(description="One run; it takes no arguments.").parse_args()
    torch.set_num_threads(1)
    began = time.process_time()
    student, teacher = begin()
    found = {"teacher": measured(teacher), "0": measured(student)}

    def write(step: int, seen: dict[str, list[float]]) -> None:
        if step % EVERY:
            return
        found[str(step)] = measured(student)
        torch.manual_seed(SEED + step)  # the questions drew, too
        head = {
            "command": f"python notebooks/results/{Path(__file__).name}",
            "model": MODEL,
            "seed": SEED,
            "steps": step,
            "completions_a_step": ROWS,
            "lr": LR,
            "draws": DRAWS,
            "cpu_seconds": round(time.process_time() - began, 1),
            "versions": recording.versions(),
        }
        lines = [
            f"{json.dumps(k)}: {json.dumps(v)}" for k, v in {**head, **seen}.items()
        ]
        ends = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in found.items())
        recording.write(
            RECORD, "{" + ",\n".join(lines) + ',\n"asked": {\n' + ends + "\n}}\n"
        )

    train(student, teacher, on_step=write)


if __name__ == "__main__":
    main()
