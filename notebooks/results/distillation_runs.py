"""The recorded runs of the chapter on distillation: who writes, what a token is told, at an equal number of completions.

    python notebooks/results/distillation_grid.py          the learning rates, on seeds of their own
    python notebooks/results/distillation_runs.py          runs what is not yet recorded (65 runs, six minutes)
    python notebooks/results/distillation_runs.py full     only the arms named

Writes notebooks/results/distillation-runs.json, a line a run. The student is the shipped start of the adding task. The
teacher begins there, too, and has then imitated 200 times 128 right answers. A run takes 20 steps of 128 completions
(16 prompts, eight each), one update of AdamW a step.

    arm        who writes   the loss of a token
    sft        teacher      minus its log-prob
    soft       teacher      KL(teacher || student), the whole vocabulary
    sampled    student      the row `opd`: minus (log teacher - log student), held fixed, times the log-prob
    to-go      student      the same with the sum of this and all later gaps
    full       student      KL(student || teacher), the whole vocabulary
    cover      student      KL(teacher || student), the whole vocabulary
    rest       student      KL(student || teacher), the teacher's top 3 tokens and all others as one
    renormal   student      the same of both distributions divided by their mass on these 3
    cut        student      the sum over these 3 alone
    rest-long  student      rest for four times the steps
    cut-long   student      cut for four times the steps, at the rate of rest
    rl         student      GRPO's, with the task's checker; no teacher
    coin       student      the same with a coin in place of the checker: the control

All losses are means over the tokens of the batch. The learning rate of each arm is the best of five, by the share of
right samples after the last step in the runs of `distillation_grid.py`, on seed 100; coin has that of rl.
Seeds 0 to 4 and the arms were fixed before anything was measured, but for those with the top 3, which were added when the
others were known, and the two long ones, added when cut at its own best rate, the lowest, had not fled in 20 steps. The
number 3 was not tried out.
"""

import json
import random
import time
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import torch
from recording import SEEDS as SEEDS
from recording import record
from torch import Tensor
from transformers import PreTrainedModel

from rlhf_minimal import ALGORITHMS
from rlhf_minimal.config import Config
from rlhf_minimal.fit import completion_loss
from rlhf_minimal.functional.logprobs import token_logprobs
from rlhf_minimal.lab.fast import fast
from rlhf_minimal.models import Vocabulary, policy_logits
from rlhf_minimal.tasks import CompletionRow, get_task
from rlhf_minimal.train import Recipe, roll_out
from rlhf_minimal.training import load_policy

TASK = get_task("addition")
STEPS, PROMPTS, GROUP = 20, 16, 8
TEACHER_STEPS, TEACHER_ROWS, TEACHER_LR = 200, 128, 1e-3
TOP = 3
BY_TOP = ("rest", "renormal", "cut")
LONG = {"rest-long": "rest", "cut-long": "cut"}
ARMS = (
    *("sft", "soft", "sampled", "to-go", "full", "cover"),
    *(*BY_TOP, *LONG, "rl", "coin"),
)
BY_TEACHER = ("sft", "soft")
QUESTIONS, TRIED, TRIES = 500, 200, 8


def recipe(seed: int = 0) -> Recipe:
    """What the rollouts need: the task and its budget."""
    return fast(
        Recipe(
            ALGORITHMS["grpo"],
            TASK,
            Config(prompts=PROMPTS, group_size=GROUP, seed=seed),
        )
    )


def start() -> tuple[PreTrainedModel, Vocabulary]:
    """The shipped start of the adding task."""
    with as_file(files("rlhf_minimal") / "assets" / "addition") as folder:
        policy, vocabulary = load_policy(folder)
    assert isinstance(vocabulary, Vocabulary)
    return policy, vocabulary


@cache
@torch.enable_grad()  # it may first be asked for where no gradient is taken
def teacher(steps: int = TEACHER_STEPS) -> PreTrainedModel:
    """The start after so many steps on right answers, at a rate that falls to zero."""
    model, vocabulary = start()
    optimizer = torch.optim.AdamW(model.parameters(), lr=TEACHER_LR, weight_decay=0.0)
    for step in range(steps):
        problems = TASK.problems("train", TEACHER_ROWS, seed=f"teacher/{step}")
        rows = [CompletionRow(p.prompt, p.answer) for p in problems]
        loss = completion_loss(model, vocabulary, rows)
        optimizer.zero_grad()
        loss.backward()
        for group in optimizer.param_groups:
            group["lr"] = TEACHER_LR * (1 - step / steps)
        optimizer.step()
    return model.requires_grad_(False).eval()


def token_losses(
    arm: str,
    student: Tensor,
    taught: Tensor,
    ids: Tensor,
    mask: Tensor,
    rewards: Tensor,
) -> Tensor:
    """[B, T]: what each token adds to the loss.

    Args:
        arm: Its name.
        student: [B, T, V] logits, with gradient.
        taught: [B, T, V] logits of the teacher.
        ids: [B, T] the tokens that were written.
        mask: [B, T], 1 for tokens of a completion.
        rewards: [B], read by rl and coin alone.
    """
    logp, logq = student.log_softmax(-1), taught.log_softmax(-1)
    if arm == "full":
        return (logp.exp() * (logp - logq)).sum(-1)
    if arm in ("soft", "cover"):
        return (logq.exp() * (logq - logp)).sum(-1)
    if (arm := LONG.get(arm, arm)) in BY_TOP:
        return top_loss(arm, logp, logq)
    own = token_logprobs(student, ids)
    if arm == "sft":
        return -own
    gap = ((token_logprobs(taught, ids) - own) * mask).detach()
    if arm == "sampled":
        return -gap * own
    if arm == "to-go":
        return -gap.flip(1).cumsum(1).flip(1) * own
    rewards = rewards.view(PROMPTS, GROUP)
    spread = rewards.std(1, keepdim=True) + 1e-4
    A = ((rewards - rewards.mean(1, keepdim=True)) / spread).view(-1, 1)
    return -A * own


def top_loss(arm: str, logp: Tensor, logq: Tensor) -> Tensor:
    """[B, T]: the reverse KL that is left of log-probs [B, T, V] where only the teacher's top 3 are handed over."""
    top = logq.topk(TOP).indices
    both = [x.gather(-1, top) for x in (logp, logq)]  # a probability may be below what
    if arm == "renormal":  # the precision holds, and its logarithm is not
        both = [x - x.logsumexp(-1, keepdim=True) for x in both]
    if (
        arm == "rest"
    ):  # one more "token", whose mass has a floor: it is a rounded 1 - ...
        left = [(1 - x.exp().sum(-1, keepdim=True)).clamp_min(1e-6) for x in both]
        both = [torch.cat((x, y.log()), -1) for x, y in zip(both, left, strict=True)]
    logp, logq = both
    return (logp.exp() * (logp - logq)).sum(-1)


def train(
    arm: str, seed: int, *, lr: float, steps: int = STEPS, every: int = 5
) -> tuple[PreTrainedModel, dict[str, list[float]]]:
    """The student after so many steps, and what is seen on the way."""
    student, vocabulary = start()
    what = recipe(seed)
    tossing = random.Random(f"coin/{seed}")
    optimizer = torch.optim.AdamW(student.parameters(), lr=lr, weight_decay=0.0)
    seen: dict[str, list[float]] = {
        "loss": [],
        "right": [],
        "tokens": [],
        "grad_norm": [],
        "held_out": [],
    }
    for step in range(steps):
        problems = TASK.problems("train", PROMPTS, seed=f"distil/{seed}/{step}")
        writer = teacher() if arm in BY_TEACHER else student
        out = roll_out(
            writer,
            vocabulary,
            problems,
            what,
            group_size=GROUP,
            seed=f"distil/{seed}/{step}",
        )
        place = out.prompts, out.prompt_mask, out.completions
        with torch.no_grad():
            taught = policy_logits(teacher(), *place)
        coin = torch.tensor([float(tossing.random() < 0.5) for _ in problems * GROUP])
        rewards = coin if arm == "coin" else out.correct.float()
        each = token_losses(
            arm,
            policy_logits(student, *place),
            taught,
            out.completions,
            out.mask,
            rewards,
        )
        loss = (each * out.mask).sum() / out.mask.sum()
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        optimizer.step()
        seen["loss"].append(round(loss.item(), 5))
        seen["right"].append(out.correct.float().mean().item())
        seen["tokens"].append(int(out.mask.sum()))
        seen["grad_norm"].append(round(norm.item(), 4))
        if (step + 1) % every == 0:
            seen["held_out"].append(
                right_of(student, vocabulary, QUESTIONS, 1).mean().item()
            )
    return student, seen


def right_of(
    model: PreTrainedModel,
    vocabulary: Vocabulary,
    questions: int,
    tries: int,
    temperature: float = 1.0,
) -> Tensor:
    """[questions, tries]: 1 where a completion of a held-out question is right."""
    problems = TASK.problems(
        "held_out", questions, seed=f"distil/{tries}", distinct=True
    )
    out = roll_out(
        model,
        vocabulary,
        problems,
        recipe(),
        group_size=tries,
        temperature=temperature,
        seed=f"held/{tries}",
    )
    return out.correct.view(questions, tries).float()


@torch.no_grad()
def divergence(
    writer: PreTrainedModel, reader: PreTrainedModel, vocabulary: Vocabulary
) -> float:
    """Nats per token of KL(writer || reader), over the writer's own completions of held-out questions."""
    problems = TASK.problems("held_out", QUESTIONS, seed="distil/kl", distinct=True)
    out = roll_out(writer, vocabulary, problems, recipe(), seed="kl")
    place = out.prompts, out.prompt_mask, out.completions
    logp, logq = (policy_logits(m, *place).log_softmax(-1) for m in (writer, reader))
    kl = (logp.exp() * (logp - logq)).sum(-1)
    return ((kl * out.mask).sum() / out.mask.sum()).item()


def measured(model: PreTrainedModel) -> dict[str, float]:
    """Accuracy, coverage and both divergences from the teacher, on held-out questions."""
    vocabulary = start()[1]
    tried = right_of(model, vocabulary, TRIED, TRIES)
    found = {
        "sampled": right_of(model, vocabulary, 1000, 1).mean().item(),
        "greedy": right_of(model, vocabulary, 1000, 1, 0.0).mean().item(),
        "pass_at_8": tried.amax(1).mean().item(),
        "reverse_kl": divergence(model, teacher(), vocabulary),
        "forward_kl": divergence(teacher(), model, vocabulary),
    }
    return {name: round(value, 5) for name, value in found.items()}


@cache
def rates() -> dict[str, float]:
    """The learning rate of each arm: the best on the grid, by the mean over its seeds."""
    grid = json.loads(Path(__file__).with_name("distillation-grid.json").read_text())
    found: dict[str, dict[float, list[float]]] = {}
    for one in grid["runs"]:
        arm, lr = one["arm"].split("@")
        found.setdefault(arm, {}).setdefault(float(lr), []).append(one["held_out"][-1])
    best = {arm: max(of, key=lambda lr: sum(of[lr])) for arm, of in found.items()}
    return best | {"coin": best["rl"]} | dict.fromkeys(LONG, best["rest"])


def steps_of(arm: str) -> int:
    """How many steps a run of this arm takes."""
    return 4 * STEPS if arm in LONG else STEPS


def run(arm: str, seed: int) -> dict[str, Any]:
    """One run, as it is recorded."""
    teacher()  # not part of a run's seconds
    began = time.process_time()
    student, seen = train(arm, seed, lr=rates()[arm], steps=steps_of(arm))
    seconds = round(time.process_time() - began, 1)
    return {"lr": rates()[arm], **measured(student), "cpu_seconds": seconds, **seen}


if __name__ == "__main__":
    record(
        __file__,
        ARMS,
        run,
        steps=STEPS,
        completions_a_step=PROMPTS * GROUP,
        teacher=measured(teacher()),
        start=measured(start()[0]),
    )
