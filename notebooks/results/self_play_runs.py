"""The recorded runs on self-play: a model that learns from its own right completions, and one that judges itself.

python notebooks/results/self_play_runs.py                runs what is not yet recorded
python notebooks/results/self_play_runs.py own coin       only the arms named
Writes notebooks/results/self-play-runs.json, a line a run. All of it is on the task addition. Every run begins with the
shipped start assets/addition-judge: that of addition, after 300 steps in which it also learnt to judge from 1000 of its
own completions with the verifier's labels (`judge_start`). Seeds were fixed beforehand: 0 to 4; settings were looked at
with seed 10. tests/results/test_self_play_runs.py holds what is said here and in the chapter to the record.

**Who pays**, GRPO without KL, 100 steps of 32 x 8 completions, 8e-4. In "dose-N" a completion earns what the present
weights judge, and N % of the problems are paid by the verifier; "frozen" is judged by the start's weights; in "taught-5"
the verifier's labels on 5 % of the problems also train the judge in every step; "majority" pays agreement with the most
frequent completion of the group; "coin" a coin. Share right in the last ten steps: .00 to .07 without a dose, .01 to .15
with 5 %, .18 to .51 with 20 %, .82 to .87 with 50 %, .92 to .93 with the verifier alone. The rewards end at 1.0, .95, .86,
.87 and .92. Frozen: 0 to .01. Coin: 0 to .04, so at this rate a fall says nothing against a judge, frozen or not. "slow-"
is the same at 2e-4, run after the others: there the own judge is ahead of the coin in steps 21 to 30, by .12, and then
falls in every seed, to .08 to .17, below its own step 1 (coin .13 to .24: not separated from it at the end). "slow-frozen",
run last, does the same: ahead by .11, then .06 to .21. The fast ones are ahead in steps 1 to 10, by .09 and .11. Of the
wrong completions of its last ten steps the start's judge accepts .68 in "slow-frozen", which it pays, and .18 in
"slow-coin", which still drops its carries; but .38 in "coin", which does not, so wear alone brings a part. Taught-5 ended with a judge who says no to everything,
in all seeds; one setting was tried.

**Reuse**: three rounds of 256 x 8 completions, 60 steps of 128 rows on each. "rft" imitates the right ones, "clipped" is
GRPO without KL with its clip: .81/.95/.97 and .41/.56/.72 in seed 0, the same order in all seeds and rounds. "rft-clipped" is
"rft" with ratio and clip and lies between: .52/.77/.92 in the mean. The rate of "clipped" is the best of 2.5e-4, 5e-4,
1e-3 and 2e-3 on seed 10; for "rft" 1e-3 alone was tried.

**SPIN**: three rounds of 1024 demonstrations, 60 steps of 128 pairs, beta 1, 1e-4. "spin-right" falls in the first round,
then rises to .50 to .64; "spin-teacher" has a teacher's demonstrations, most of which drop every carry. Tried on seed 10
and left: 5e-4 (.02 after a round), and beta .1 with 2e-4 (0 after a round).
"""

import random
import time
from collections import Counter
from dataclasses import replace
from functools import cache, partial
from importlib.resources import as_file, files
from typing import Any

import torch
from recording import SEEDS as SEEDS
from recording import record
from torch import Tensor
from transformers import PreTrainedModel

from rlhf_minimal import ALGORITHMS, Batch, policy_loss
from rlhf_minimal import pairs as pairwise
from rlhf_minimal.fit import FitConfig, completion_loss, imitate, teacher_rows
from rlhf_minimal.functional.logprobs import token_logprobs
from rlhf_minimal.functional.masked import completion_mask
from rlhf_minimal.lab.fast import fast
from rlhf_minimal.models import Vocabulary, policy_logits
from rlhf_minimal.pairs import PAIRWISE, Pairs, pairwise_loss
from rlhf_minimal.sample import Rollout, pad_left, pad_right
from rlhf_minimal.tasks import CompletionRow, get_task
from rlhf_minimal.tasks.addition import add
from rlhf_minimal.train import Recipe, roll_out
from rlhf_minimal.training import load_policy

TASK = get_task("addition")
RECIPE = fast(Recipe(ALGORITHMS["grpo"], TASK))
ROW = replace(ALGORITHMS["grpo"], kl=())

# How the start learns to judge, once, before any arm.
LESSONS = FitConfig(steps=300, batch_size=128, lr=2e-3, seed=0)
LABELLED, TAUGHT = 1000, 4000  # labelled completions, and the teacher's beside them

# A run with a reward of its own: so many steps of so many completions.
STEPS, PROMPTS, GROUP, LR, SLOW = 100, 32, 8, 8e-4, 2e-4
EXAM, EVERY = 200, 10  # completions of the start on which the judge is asked again

# The same completions, used otherwise: rounds of samples, and passes over them.
ROUNDS, ASKED, PASSES, ROWS = 3, 256, 60, 128
REUSE_LR = {"rft": 1e-3, "clipped": 5e-4, "rft-clipped": 1e-3}
SHOWS, SHOWN_LR, BETA = 1024, 1e-4, 1.0  # SPIN: demonstrations a round, rate, beta
SEEN = ("reward", "right", "yes_right", "yes_wrong", "kinds", "exam")

SPIN = replace(PAIRWISE["spin"], loss=partial(pairwise.logistic_loss, beta=BETA))

DOSES = {"dose-0": 0.0, "dose-5": 0.05, "dose-20": 0.2, "dose-50": 0.5, "dose-100": 1.0}
JUDGED = (*DOSES, "frozen", "taught-5", "majority", "coin")
GENTLE = ("slow-dose-0", "slow-dose-100", "slow-coin", "slow-frozen")  # a quarter of it
# Runs whose completions the start's judge reads as well, by kind: those that it pays, and those that a coin pays.
SHOWN_TO_START = ("coin", "slow-coin", "slow-frozen")
KINDS = (
    "right",
    "all carries dropped",
    "one digit wrong",
    "more digits wrong",
    "another length",
)
REUSED = ("rft", "clipped", "rft-clipped")
SHOWN = ("spin-right", "spin-teacher")
ARMS = (*JUDGED, *GENTLE, *REUSED, *SHOWN)


def question(prompt: str, completion: str) -> str:
    """What the judge reads: the problem, the completion, and one more equals sign. It writes 1 for right, 0 for wrong."""
    return f"{prompt}{completion}="


def judgements(
    model: PreTrainedModel, vocabulary: Vocabulary, prompts: list[str], texts: list[str]
) -> Tensor:
    """[B]: the judge's probability of 1 against 0, for each completion."""
    asked = [
        vocabulary.encode(question(p, t)) for p, t in zip(prompts, texts, strict=True)
    ]
    ids, mask = pad_left(asked, vocabulary.pad_id)
    no, yes = vocabulary.encode("01")
    with torch.no_grad():
        logits = policy_logits(model, ids, mask, torch.full((len(ids), 1), no))[:, 0]
    return (logits[:, yes] - logits[:, no]).sigmoid()


def labelled(rollout: Rollout) -> list[CompletionRow]:
    """Completions as questions, with the verifier's answers."""
    return [
        CompletionRow(question(problem.prompt, text), str(int(right)))
        for problem, text, right in zip(
            rollout.problems, rollout.texts, rollout.correct.tolist(), strict=True
        )
    ]


def shipped() -> tuple[PreTrainedModel, Vocabulary]:
    """The shipped start of addition."""
    with as_file(files("rlhf_minimal") / "assets" / "addition") as folder:
        policy, vocabulary = load_policy(folder)
    assert isinstance(vocabulary, Vocabulary)
    return policy, vocabulary


def judge_start(
    lessons: FitConfig = LESSONS, n: int = LABELLED
) -> tuple[PreTrainedModel, Vocabulary]:
    model, vocabulary = shipped()
    problems = TASK.problems("train", n, seed="self-play/labelled")
    seen = roll_out(model, vocabulary, problems, RECIPE, seed="self-play/labelled")
    rows = labelled(seen)
    rows = rows * (TAUGHT // len(rows)) if len(rows) < TAUGHT else rows
    rows += teacher_rows(TASK, vocabulary, 0, TAUGHT, 0)
    imitate(model, vocabulary, rows, lessons)
    return model, vocabulary


def begin() -> tuple[PreTrainedModel, Vocabulary]:
    """The start that can write and judge, as shipped: where every arm begins."""
    with as_file(files("rlhf_minimal") / "assets" / "addition-judge") as folder:
        policy, vocabulary = load_policy(folder)
    assert isinstance(vocabulary, Vocabulary)
    return policy, vocabulary


def paid_by_majority(texts: list[str]) -> list[float]:
    """1 for each completion that equals the most frequent one of its group; of several, the first that was written."""
    paid: list[float] = []
    for i in range(0, len(texts), GROUP):
        group = texts[i : i + GROUP]
        (most, _), *_ = Counter(group).most_common(1)
        paid += [float(text == most) for text in group]
    return paid


def rewards_of(
    arm: str, out: Rollout, yes: Tensor, verified: Tensor, draws: random.Random
) -> Tensor:
    """[B]: what an arm pays.

    Args:
        arm: Its name.
        out: The step's completions, those of a problem next to each other.
        yes: [B], 1 where the judge of the arm says that a completion is right.
        verified: [B], True for completions of problems that have a verifier.
        draws: For the coin.
    """
    if arm == "majority":
        return torch.tensor(paid_by_majority(out.texts))
    if arm == "coin":
        return torch.tensor([float(draws.random() < 0.5) for _ in out.texts])
    return torch.where(verified, (out.correct == 1).float(), yes)


def share(x: Tensor, of: Tensor) -> float | None:
    """The mean of x over the rows of a mask; None if there is none."""
    return round(x[of].mean().item(), 4) if of.any() else None


def kind(prompt: str, answer: str, text: str) -> str:
    """Which of `KINDS` a completion is."""
    if text == answer:
        return "right"
    a, b = prompt[:-1].split("+")
    if text == add(int(a), int(b), len(a), carry=False):
        return "all carries dropped"
    if len(text) != len(answer):
        return "another length"
    wrong = sum(x != y for x, y in zip(text, answer, strict=True))
    return "one digit wrong" if wrong == 1 else "more digits wrong"


def by_kind(out: Rollout, said: Tensor) -> list[list[int]]:
    """How many completions of each of `KINDS` there are, and to how many of them a judge said yes."""
    kinds = [
        kind(problem.prompt, problem.answer, text)
        for problem, text in zip(out.problems, out.texts, strict=True)
    ]
    counts = []
    for name in KINDS:
        rows = torch.tensor([one == name for one in kinds])
        counts.append([int(rows.sum()), int(said[rows].sum())])
    return counts


def train(
    arm: str, seed: int, *, steps: int = STEPS
) -> tuple[PreTrainedModel, dict[str, list[Any]]]:
    """The policy after so many steps of GRPO without KL, and what is seen on the way."""
    read, reads = arm in SHOWN_TO_START, dict[int, Tensor]()
    lr, arm = (SLOW if arm in GENTLE else LR), arm.removeprefix("slow-")
    model, vocabulary = begin()
    fixed, _ = begin()
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.0)
    draws = random.Random(f"{arm}/{seed}")
    dose = DOSES.get(arm, 0.05 if arm == "taught-5" else 0.0)
    exam, key = examination()
    seen: dict[str, list[Any]] = {name: [] for name in SEEN}
    for step in range(steps):
        where = f"self-play/{seed}/{step}"
        problems = TASK.problems("train", PROMPTS, seed=where)
        out = roll_out(
            model, vocabulary, problems, RECIPE, group_size=GROUP, seed=where
        )
        asked = [problem.prompt for problem in out.problems]
        judge = fixed if arm == "frozen" else model
        yes = (judgements(judge, vocabulary, asked, out.texts) > 0.5).float()
        if read:
            of_start = (judgements(fixed, vocabulary, asked, out.texts) > 0.5).float()
            counts = torch.tensor(by_kind(out, of_start))
            reads[step // EVERY] = counts + reads.get(step // EVERY, 0)
        lot = random.Random(f"dose/{seed}/{step}")  # the same problems in every arm
        chosen = torch.tensor([lot.random() < dose for _ in problems])
        verified = chosen.repeat_interleave(GROUP)
        rewards = rewards_of(arm, out, yes, verified, draws)
        right = out.correct == 1
        seen["reward"].append(round(rewards.mean().item(), 4))
        seen["right"].append(round(right.float().mean().item(), 4))
        seen["yes_right"].append(share(yes, right))
        seen["yes_wrong"].append(share(yes, ~right))
        seen["kinds"].append(
            round(len(set(zip(asked, out.texts, strict=True))) / PROMPTS, 3)
        )
        if step % EVERY == 0:
            said = judgements(
                model, vocabulary, [q for q, _ in exam], [t for _, t in exam]
            )
            seen["exam"].append(round(((said > 0.5) == key).float().mean().item(), 4))
        logits = policy_logits(model, out.prompts, out.prompt_mask, out.completions)
        logp = token_logprobs(logits, out.completions)
        loss = policy_loss(ROW, Batch(logp, out.logp, out.mask, rewards, GROUP))
        if arm == "taught-5" and verified.any():
            known = [
                row
                for row, seen_by in zip(labelled(out), verified.tolist(), strict=True)
                if seen_by
            ]
            loss = loss + completion_loss(model, vocabulary, known)
        take(optimizer, model, loss)
    if read:  # for each ten steps and kind: how many, and how many the start accepts
        seen["start_reads"] = [counts.tolist() for counts in reads.values()]
    return model, seen


@cache
def examination() -> tuple[list[tuple[str, str]], Tensor]:
    """Completions of the start, as many right as wrong, and which are right: the same questions at any time."""
    model, vocabulary = begin()
    problems = TASK.problems("held_out", 600, seed="self-play/exam", distinct=True)
    out = roll_out(model, vocabulary, problems, RECIPE, seed="self-play/exam")
    rows: list[tuple[str, str]] = []
    for wanted in (1.0, 0.0):
        picked = (out.correct == wanted).nonzero().flatten()[: EXAM // 2].tolist()
        rows += [(out.problems[i].prompt, out.texts[i]) for i in picked]
    return rows, torch.tensor([i < EXAM // 2 for i in range(EXAM)])


def reuse(
    arm: str, seed: int, *, rounds: int = ROUNDS, passes: int = PASSES
) -> tuple[PreTrainedModel, dict[str, list[Any]]]:
    """The policy after rounds of samples, each of which is used for so many optimiser steps.

    `rft` imitates the right completions, all of them alike; `clipped` is GRPO without KL, in as many steps of as many
    rows of its samples. `rft-clipped` is `rft` with the ratio and the clip of GRPO, and nothing else of it.
    """
    model, vocabulary = begin()
    seen: dict[str, list[Any]] = {"right": [], "held_out": []}
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=REUSE_LR[arm], weight_decay=0.0
    )
    for turn in range(rounds):
        where = f"self-play/{seed}/{turn}"
        problems = TASK.problems("train", ASKED, seed=where)
        out = roll_out(
            model, vocabulary, problems, RECIPE, group_size=GROUP, seed=where
        )
        groups = (out.correct == 1).float().view(-1, GROUP)
        seen["right"].append(round(groups.mean().item(), 4))
        weight = groups
        if arm == "clipped":
            spread = groups.std(1, keepdim=True) + 1e-4
            weight = (groups - groups.mean(1, keepdim=True)) / spread
        A = weight.flatten()
        rows = A.nonzero().flatten().tolist()
        order = random.Random(where)
        for _ in range(passes):
            some = torch.tensor(order.choices(rows, k=ROWS))
            ids, mask, w = out.completions[some], out.mask[some], A[some, None]
            logits = policy_logits(model, out.prompts[some], out.prompt_mask[some], ids)
            logp = token_logprobs(logits, ids)
            if arm.endswith("clipped"):
                known = {"advantages": w * mask, "rewards": A[some]}
                batch = Batch(logp, out.logp[some], mask, group_size=1, **known)
                loss = policy_loss(ROW, batch)
            else:
                loss = -(w * logp * mask).sum() / (w * mask).sum()
            take(optimizer, model, loss)
        seen["held_out"].append(accuracy(model, vocabulary, 500))
    return model, seen


def take(
    optimizer: torch.optim.Optimizer, model: PreTrainedModel, loss: Tensor
) -> None:
    """One step, with the gradient's norm held to 1."""
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def demonstrate(
    arm: str, seed: int, *, rounds: int = ROUNDS, passes: int = PASSES
) -> tuple[PreTrainedModel, dict[str, list[Any]]]:
    """The policy after rounds of SPIN.

    `spin-right` has right answers to show, `spin-teacher` the teacher's, of which most drop the carries. In each round
    the policy that wrote the rejected completions is the reference.
    """
    model, vocabulary = begin()
    seen: dict[str, list[Any]] = {"right": [], "held_out": []}
    optimizer = torch.optim.AdamW(model.parameters(), lr=SHOWN_LR, weight_decay=0.0)
    assert TASK.teacher is not None
    for turn in range(rounds):
        where = f"self-play/{seed}/{turn}"
        problems = TASK.problems("train", SHOWS, seed=where)
        habits = random.Random(where)
        shown = [
            p.answer if arm.endswith("right") else TASK.teacher(p, habits)
            for p in problems
        ]
        out = roll_out(model, vocabulary, problems, RECIPE, seed=where)
        seen["right"].append(round((out.correct == 1).float().mean().item(), 4))
        eos, pad = vocabulary.eos_id, vocabulary.pad_id
        ids = pad_right([[*vocabulary.encode(text), eos] for text in shown], pad)
        mask = completion_mask(ids, eos)
        with torch.no_grad():
            logits = policy_logits(model, out.prompts, out.prompt_mask, ids)
            ref = token_logprobs(logits, ids)
        order = random.Random(where)
        for _ in range(passes):
            some = torch.tensor(order.sample(range(SHOWS), ROWS))
            place = out.prompts[some], out.prompt_mask[some]
            chosen = token_logprobs(policy_logits(model, *place, ids[some]), ids[some])
            own = out.completions[some]
            pairs = Pairs(
                chosen_logp=chosen,
                rejected_logp=token_logprobs(policy_logits(model, *place, own), own),
                chosen_mask=mask[some],
                rejected_mask=out.mask[some],
                ref_chosen_logp=ref[some],
                ref_rejected_logp=out.logp[some],
            )
            take(optimizer, model, pairwise_loss(SPIN, pairs))
        seen["held_out"].append(accuracy(model, vocabulary, 500))
    return model, seen


def accuracy(
    model: PreTrainedModel, vocabulary: Vocabulary, n: int, temperature: float = 1.0
) -> float:
    """Share of held-out problems with a right completion."""
    problems = TASK.problems("held_out", n, seed="self-play", distinct=True)
    out = roll_out(
        model, vocabulary, problems, RECIPE, temperature=temperature, seed="held"
    )
    return round((out.correct == 1).float().mean().item(), 4)


METHOD = dict.fromkeys((*JUDGED, *GENTLE), train) | dict.fromkeys(REUSED, reuse)
METHOD |= dict.fromkeys(SHOWN, demonstrate)


def run(arm: str, seed: int) -> dict[str, Any]:
    """One run, as it is recorded."""
    begin(), examination()
    began = time.process_time()
    model, seen = METHOD[arm](arm, seed)
    seconds = round(time.process_time() - began, 1)
    _, vocabulary = begin()
    ends = {
        "sampled": accuracy(model, vocabulary, 1000),
        "greedy": accuracy(model, vocabulary, 1000, 0.0),
    }
    return {**ends, "cpu_seconds": seconds, **seen}


if __name__ == "__main__":
    record(
        __file__,
        ARMS,
        run,
        steps=STEPS,
        completions_a_step=PROMPTS * GROUP,
        rounds=ROUNDS,
    )
