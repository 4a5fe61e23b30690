"""The recorded runs behind the limits of imitation: what is imitated, what is masked, and what is done with a checker.

    python notebooks/results/imitation_runs.py           runs what is not yet recorded (30 runs, a quarter of an hour)
    python notebooks/results/imitation_runs.py prompts   only the arms named

Writes notebooks/results/imitation-runs.json, a line a run. Three arms imitate from random weights: 1300 steps of 128
completions, as in `rlhf_book.loop`.

    forgets     the loop's teacher: one completion in five is right, the others forget every carry
    prompts     the same, with the loss on the tokens of the prompts, too
    careless    another teacher: two completions in five are right, in the others every digit is wrong, each at random

Three more go on from the model of `forgets` with the same seed, by 60 updates of AdamW at 8e-4:

    more        each on 256 further completions of the teacher
    filtered    the same, with the loss on those of the 256 that are right
    once        before the first update the model writes 15360 completions; each update draws 256 of the right ones

That is what the runs of `from_zero.py` do from the same models with fresh samples and a checker in each update. `once`
is rejection-sampling fine-tuning, in one round.

Every model is then asked 2000 questions that no run has seen, and answers each sampled and greedy. Seeds 0 to 4 were
fixed beforehand and all are recorded; seed 100 was used before that, to see how long a run takes.
"""

import copy
import random
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from recording import SEEDS as SEEDS
from recording import record
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import LlamaForCausalLM

from rlhf_book import loop
from rlhf_book.loop import BUDGET, encode, is_right, make_prompt, right_answer, sample

Teacher = Callable[[str, random.Random], str]
STEPS, ROWS, LR = 60, 256, 8e-4  # of the arms that go on
QUESTIONS = 2000


def careless(prompt: str, rng: random.Random) -> str:
    """Two completions in five are right; in the others each digit is one of the nine wrong ones."""
    answer = right_answer(prompt)
    if rng.random() < 0.4:
        return answer
    return "".join(str((int(x) + rng.randrange(1, 10)) % 10) for x in answer[:-1]) + "$"


def imitation_loss(model: LlamaForCausalLM, ids: Tensor, *, prompts: bool) -> Tensor:
    """The mean over the tokens of the completions, or over all tokens but the first."""
    tokens = ids.shape[1] - 1 if prompts else BUDGET
    logits = model(ids).logits[:, -tokens - 1 : -1]
    return cross_entropy(logits.flatten(0, 1), ids[:, -tokens:].flatten())


def imitate(
    model: LlamaForCausalLM,
    seed: int,
    teacher: Teacher = loop.teacher,
    *,
    prompts: bool = False,
    steps: int = 1300,
    stop: int | None = None,
) -> list[float]:
    """`rlhf_book.loop.imitate` with another teacher, or a loss on prompts; every loss. A test holds the two equal."""
    rng, lr, losses = random.Random(seed), 3e-3, []
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.0)
    for step in range(steps if stop is None else stop):
        asked = [make_prompt(rng, "imitate") for _ in range(128)]
        ids = encode([prompt + teacher(prompt, rng) for prompt in asked])
        loss = imitation_loss(model, ids, prompts=prompts)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = lr * min(1.0, (step + 1) / 50, (steps - step) / steps)
        optimizer.step()
        losses.append(loss.item())
    return losses


FROM_NOTHING: dict[str, dict[str, Any]] = {
    "forgets": {},
    "prompts": {"prompts": True},
    "careless": {"teacher": careless},
}


GOING_ON = ("more", "filtered", "once")


@cache
def begin(seed: int) -> tuple[LlamaForCausalLM, list[float]]:
    """The model that has imitated the teacher who forgets, and the losses."""
    model = loop.new_model(seed)
    return model, imitate(model, seed)


def group_questions(rng: random.Random) -> list[str]:
    """The questions of one update: 16 new ones, each 16 times, as in `loop.train`."""
    return [
        question
        for question in (make_prompt(rng) for _ in range(16))
        for _ in range(16)
    ]


def are_right(texts: list[str]) -> list[bool]:
    """Of questions with their completions."""
    return [text[8:] == right_answer(text[:8]) for text in texts]


def pool_of_right(model: LlamaForCausalLM, rng: random.Random) -> list[str]:
    """The right ones among as many samples of the model as all updates of an arm take."""
    texts: list[str] = []
    for _ in range(STEPS):
        questions = group_questions(rng)
        written = sample(model, encode(questions))
        texts += [
            q + loop.decode(ids) for q, ids in zip(questions, written, strict=True)
        ]
    return [text for text, ok in zip(texts, are_right(texts), strict=True) if ok]


def go_on(
    model: LlamaForCausalLM, arm: str, seed: int, steps: int = STEPS
) -> list[float]:
    """Trains in place; the share of right completions in each step, before any filter."""
    rng, right = random.Random(seed), []
    torch.manual_seed(seed)
    pool = pool_of_right(model, rng) if arm == "once" else []
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.0)
    for _ in range(steps):
        if arm == "once":
            texts = [rng.choice(pool) for _ in range(ROWS)]
        else:
            texts = [
                question + loop.teacher(question, rng)
                for question in group_questions(rng)
            ]
        ok = are_right(texts)
        right.append(sum(ok) / ROWS)
        if arm == "filtered":
            texts = [text for text, good in zip(texts, ok, strict=True) if good]
        loss = imitation_loss(model, encode(texts), prompts=False)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return right


@torch.no_grad()
def greedy(model: LlamaForCausalLM, prompts: Tensor) -> Tensor:
    """As `sample`, with the most probable token at each place."""
    ids = prompts
    for _ in range(BUDGET):
        ids = torch.cat([ids, model(ids).logits[:, -1:].argmax(-1)], dim=1)
    return ids[:, prompts.shape[1] :]


@torch.no_grad()
def measured(model: LlamaForCausalLM, seed: int) -> dict[str, float]:
    """Shares of right completions of the test questions, and the loss of right answers' tokens under the model."""
    rng = random.Random(10_000)  # the same questions for every run
    asked = [make_prompt(rng, "test") for _ in range(QUESTIONS)]
    ids = encode(asked)
    carry = torch.tensor([loop.right_answer(q) != no_carry(q) for q in asked])
    torch.manual_seed(seed)
    found: dict[str, float] = {}
    for name, write in (("sampled", sample), ("greedy", greedy)):
        right = is_right(asked, write(model, ids))
        found[name] = round(right.mean().item(), 4)
        found[f"{name}_carry"] = round(right[carry].mean().item(), 4)
        found[f"{name}_none"] = round(right[~carry].mean().item(), 4)
    return found


def no_carry(prompt: str) -> str:
    """The completion of the teacher who forgets."""
    columns = zip(reversed(prompt[:3]), reversed(prompt[4:7]), strict=True)
    return "".join(str((int(x) + int(y)) % 10) for x, y in columns) + "0$"


@torch.no_grad()
def held_out_loss(model: LlamaForCausalLM, teacher: Teacher) -> float:
    """Nats per token of the completions of a teacher to the test questions: the same measure for every mask."""
    rng = random.Random(20_000)
    asked = [make_prompt(rng, "test") for _ in range(QUESTIONS)]
    ids = encode([question + teacher(question, rng) for question in asked])
    return round(imitation_loss(model, ids, prompts=False).item(), 4)


def run(arm: str, seed: int) -> dict[str, Any]:
    """One run, as it is recorded."""
    began = time.process_time()
    if arm in FROM_NOTHING:
        model, losses = begin(seed) if arm == "forgets" else (loop.new_model(seed), [])
        losses = losses or imitate(model, seed, **FROM_NOTHING[arm])
        means = [sum(losses[i : i + 50]) / 50 for i in range(0, len(losses), 50)]
        kept: dict[str, Any] = {"losses": [round(x, 4) for x in means]}
    else:
        model = copy.deepcopy(begin(seed)[0])
        kept = {"right": [round(x, 4) for x in go_on(model, arm, seed)]}
    teacher = careless if arm == "careless" else loop.teacher
    return {
        **measured(model, seed),
        "held_out_loss": held_out_loss(model, teacher),
        "cpu_seconds": round(time.process_time() - began, 1),
        **kept,
    }


if __name__ == "__main__":
    record(
        __file__,
        [*FROM_NOTHING, *GOING_ON],
        run,
        questions=QUESTIONS,
        losses="means of 50 steps",
        completions_a_step={"from nothing": 128, "going on": ROWS},
    )
