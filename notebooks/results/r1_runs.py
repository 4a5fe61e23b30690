"""The recorded runs of the chapter on DeepSeek-R1: four stages in miniature, what each reward does, who teaches the small.

python notebooks/results/r1_runs.py                runs what is not yet recorded
python notebooks/results/r1_runs.py zero coin      only the arms named

Writes notebooks/results/r1-runs.json, a line a run. The task is rlhf_book/tongues.py. Seeds were fixed beforehand: 0 to 4;
settings were looked at with seed 10. Every run begins with a shipped start: `assets/tongues`, 84,608 weights that have
imitated 600 batches of 128 completions of an untidy crowd (`base_start`), or one of two of 21,824 weights: `tongues-small`
after the same lessons, `tongues-small-more` after twice as many. GRPO without KL, 16 x 8 completions a step, 1e-3.

**From the base** (60 steps). What is paid, beside 1 for the right hour, is in PAID; the arms in CENTRED have an advantage
that is not divided by the group's spread, one cell of the row. Three more ask why the format wins: `zero-tenth` pays it a
tenth as much, `zero-dropped` pays nothing in groups that tie in rightness, `zero-fixed` does not divide a completion's loss
by its length, another cell. **Stages** (`stages`): cold start, RL with three rules,
imitation of kept completions from the base again, RL on both kinds of questions with a reward model for one (30 steps).
`no-language` is the first two without the reward for small letters. **Distillation**: a quarter of the weights, 60 updates,
7,680 completions each, whoever writes them. OWN is the control: a small start imitates those of its own 7,680 completions
that earn everything, at the rate at which it imitates the large model's. FEW is the control of the control: as many rows,
and so as many epochs, but of the large model's, drawn by lot. `more-rl-small` is RL paid for small letters as well, which
the imitated rows all are. `scorer` asks the reward models of stage 4.

**Counted** (`counted`): 300 questions x 8 completions of models as they are, without an update: in how many groups a rule
says the same of all, and which language those completions speak that work all their moves. `kept` counts the models after
stages 2 and 3 so, and how many questions and distinct rows there are among the completions that each writer's filter keeps.
`worked` counts how many of those kept completions write every move; the others are guesses that happen to be right.
"""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import as_file, files
from typing import Any

import torch
from recording import SEEDS as SEEDS
from recording import record
from torch import Tensor
from transformers import PreTrainedModel

from rlhf_book import tongues
from rlhf_minimal import ALGORITHMS, Algorithm, Batch, policy_loss
from rlhf_minimal.fit import FitConfig, imitate, reward_model_loss
from rlhf_minimal.functional import advantages, aggregation
from rlhf_minimal.functional.logprobs import token_logprobs
from rlhf_minimal.lab.fast import fast
from rlhf_minimal.lab.sampled_rows import sample_pairs
from rlhf_minimal.models import RewardModel, Vocabulary, policy_logits, tiny_llama
from rlhf_minimal.pairs import PAIRWISE
from rlhf_minimal.sample import Rollout
from rlhf_minimal.tasks import CompletionRow, Problem
from rlhf_minimal.train import Recipe, roll_out
from rlhf_minimal.training import load_policy

GRPO = replace(ALGORITHMS["grpo"], kl=())
CENTRED_GRPO = replace(GRPO, advantage=advantages.group_centered)
FIXED_GRPO = replace(GRPO, aggregate=aggregation.fixed_length)
STEPS, PROMPTS, GROUP, LR = 60, 16, 8, 1e-3
BUDGET = tongues.task("reasoning").max_new_tokens
FORMAT, LANGUAGE = 0.2, 0.2  # what a tidy box and small letters pay, beside 1

# From the base: what is paid beside the right hour. "tidy" is the box ("tenth" a tenth of that), "small" and "capital" a
# language.
PAID: dict[str, tuple[str, ...]] = {
    "accuracy": (),
    "zero": ("tidy",),
    "zero-centred": ("tidy",),
    "small-centred": ("tidy", "small"),
    "capital-centred": ("tidy", "capital"),
    "coin": (),
    "zero-tenth": ("tenth",),
    "zero-dropped": ("tidy",),
    "zero-fixed": ("tidy",),
}
CENTRED = ("zero-centred", "small-centred", "capital-centred")
ROWS = dict.fromkeys(CENTRED, CENTRED_GRPO) | {"zero-fixed": FIXED_GRPO}

# The stages.
COLD = FitConfig(steps=30, batch_size=64, lr=1e-3, warm_up=5)
COLD_ROWS, COLD_TIDY = 200, ("tidy", "small")
KEPT = FitConfig(steps=STEPS, batch_size=PROMPTS * GROUP, lr=1e-3, warm_up=10)
PAIRS, SCORER = 1500, FitConfig(steps=120, batch_size=64, lr=1e-3, warm_up=10)
LAST_STEPS, LAST_LR = 30, 3e-4
LAST = ("last", "last-rules", "last-fast")  # the fourth, three ways

# Who teaches the small one, of which start, with how many completions from the large one, and steps of its own.
TAUGHT = {
    "small-rl": ("tongues-small", 0, STEPS),
    "small-sft": ("tongues-small", STEPS, 0),
    "small-both": ("tongues-small", STEPS // 2, STEPS // 2),
    "more-rl": ("tongues-small-more", 0, STEPS),
    "more-sft": ("tongues-small-more", STEPS, 0),
    "more-rl-small": ("tongues-small-more", 0, STEPS),
}
OWN = {"small-own": "tongues-small", "more-own": "tongues-small-more"}  # its own kept
FEW = {"small-few": "small-own", "more-few": "more-own"}  # as many of the large one's
ARMS = (
    *("stages", "no-language", *TAUGHT, *PAID, *OWN, "scorer", *FEW),
    *("counted", "kept", "worked"),
)
EXTRA = (0, 2, 4, 6)  # letters too many, of which the reward model is asked
SEEN = ("accuracy", "format", "small", "length", "dead")


def recipe(kind: str) -> Recipe:
    """What the rollouts need: questions of a kind, and their budget."""
    return fast(Recipe(GRPO, tongues.task(kind)))


def begin(name: str = "tongues") -> tuple[PreTrainedModel, Vocabulary]:
    """A shipped start."""
    with as_file(files("rlhf_minimal") / "assets" / name) as folder:
        policy, vocabulary = load_policy(folder)
    assert isinstance(vocabulary, Vocabulary)
    return policy, vocabulary


def base_start(width: int = 64, steps: int = 600) -> tuple[PreTrainedModel, Vocabulary]:
    """How the starts were made: widths 64 and 32 with 600 steps, and 32 with 1200."""
    task = tongues.task("both")
    vocabulary = Vocabulary(task.alphabet)
    model = tiny_llama(len(vocabulary), width=width, heads=4, max_length=64)
    imitate(
        model, vocabulary, task, FitConfig(steps=steps, batch_size=128, lr=3e-3, seed=0)
    )
    return model, vocabulary


def parts(text: str, problem: Problem) -> dict[str, float]:
    """What each rule says of a completion."""
    letters = any(c.isalpha() for c in text)
    small = tongues.consistency(text)
    return {
        "accuracy": tongues.accuracy(text, problem),
        "tidy": tongues.in_format(text),
        "tenth": tongues.in_format(text),
        "small": small,
        "capital": letters - small,
    }


def rule(text: str, problem: Problem, paid: Sequence[str]) -> float:
    """The sum of the rules: 1 for the right hour, and the others' weights."""
    said = parts(text, problem)
    weights = {"tidy": FORMAT, "tenth": FORMAT / 10}
    weights |= {"small": LANGUAGE, "capital": LANGUAGE}
    return said["accuracy"] + sum(weights[name] * said[name] for name in paid)


def update(
    model: PreTrainedModel,
    optimizer: torch.optim.Optimizer,
    out: Rollout,
    rewards: Tensor,
    row: Algorithm = GRPO,
) -> None:
    """One step of a row, GRPO without KL, with the gradient's norm held to 1."""
    logits = policy_logits(model, out.prompts, out.prompt_mask, out.completions)
    logp = token_logprobs(logits, out.completions)
    batch = Batch(logp, out.logp, out.mask, rewards, GROUP, budget=BUDGET)
    loss = policy_loss(row, batch)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def reinforce(
    model: PreTrainedModel,
    vocabulary: Vocabulary,
    paid: Sequence[str],
    where: str,
    *,
    steps: int = STEPS,
    lr: float = LR,
    row: Algorithm = GRPO,
    coin: bool = False,
    dropped: bool = False,
    kind: str = "reasoning",
    general: Callable[[Sequence[Problem], Sequence[str]], Tensor] | None = None,
) -> dict[str, list[float]]:
    """Trains a model in place on rules, and what is seen on the way.

    Args:
        model: The policy.
        vocabulary: Its vocabulary.
        paid: What the rules pay beside the right hour.
        where: Names the problems, samples and tosses.
        steps: Of one update each.
        lr: Of AdamW.
        row: Of the table.
        coin: Whether a coin pays instead.
        dropped: Whether groups that tie in rightness get nothing, and so no advantage.
        kind: "reasoning", or "both".
        general: Scores the replies to questions that have no rule; None leaves those at 0.
    """
    what, tosses = recipe(kind), random.Random(f"coin/{where}")
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.0)
    seen: dict[str, list[float]] = {name: [] for name in SEEN}
    if general is not None:
        seen |= {"score": [], "liking": []}
    for step in range(steps):
        name = f"r1/{where}/{step}"
        problems = asked(kind, name)
        out = roll_out(model, vocabulary, problems, what, group_size=GROUP, seed=name)
        ruled = torch.tensor([tongues.has_rule(p.prompt) for p in out.problems])
        rows = list(zip(out.problems, out.texts, strict=True))
        rewards = torch.tensor(
            [rule(t, p, paid) if tongues.has_rule(p.prompt) else 0.0 for p, t in rows]
        )
        if coin:
            rewards = torch.tensor([float(tosses.random() < 0.5) for _ in rows])
        if general is not None and not ruled.all():
            others = [row for row in rows if not tongues.has_rule(row[0].prompt)]
            scores = general([p for p, _ in others], [t for _, t in others])
            rewards[~ruled] = scores
            seen["score"].append(round(scores.mean().item(), 4))
            liked = [tongues.liking(t, p) for p, t in others]
            seen["liking"].append(round(sum(liked) / len(liked), 4))
        if dropped:
            right = torch.tensor([tongues.accuracy(t, p) for p, t in rows])
            rewards[ties(right).repeat_interleave(GROUP)] = 0.0
        note(seen, out, ruled)
        update(model, optimizer, out, rewards, row)
    return seen


def asked(kind: str, name: str) -> list[Problem]:
    """The problems of a step; of "both", at least one of each kind, which 16 coins may miss."""
    problems = tongues.task(kind).problems("train", PROMPTS, seed=name)
    if kind == "both" and len({tongues.has_rule(p.prompt) for p in problems}) < 2:
        return asked(kind, f"{name}/again")
    return problems


def ties(right: Tensor) -> Tensor:
    """[P]: whether the completions of a group agree, of what a rule says of them, [B]."""
    groups = right.view(-1, GROUP)
    return groups.amax(1) - groups.amin(1) < 1e-6


def note(seen: dict[str, list[float]], out: Rollout, ruled: Tensor) -> None:
    """Adds what the rules see in a step: means over the questions of moves."""
    rows = [
        (text, problem)
        for text, problem, has in zip(
            out.texts, out.problems, ruled.tolist(), strict=True
        )
        if has
    ]
    said = [parts(*row) for row in rows]
    for name, part in (
        ("accuracy", "accuracy"),
        ("format", "tidy"),
        ("small", "small"),
    ):
        seen[name].append(round(sum(one[part] for one in said) / len(said), 4))
    seen["length"].append(round(out.mask.sum(1)[ruled].mean().item(), 3))
    dead = ties(torch.tensor([one["accuracy"] for one in said]))
    seen["dead"].append(round(dead.float().mean().item(), 4))


def examined(
    model: PreTrainedModel, vocabulary: Vocabulary, n: int = 300, tries: int = 16
) -> dict[str, float]:
    """Held-out questions of both kinds, sampled; `known` is the share that is worked and right in one of 16 tries."""
    task = tongues.task("reasoning")
    asked = task.problems("held_out", n, seed="r1/exam", distinct=True)
    what = recipe("reasoning")
    out = roll_out(model, vocabulary, asked, what, seed="r1/exam")
    rows = list(zip(out.texts, out.problems, strict=True))
    said = [parts(*row) for row in rows]
    moves = [tongues.right_moves(*row) for row in rows]
    letters = tongues.task("general").problems(
        "held_out", n // 3, seed="r1/exam", distinct=True
    )
    replies = roll_out(model, vocabulary, letters, recipe("general"), seed="r1/exam")
    liked = [tongues.liking(t, p) for t, p in zip(replies.texts, letters, strict=True)]
    more = roll_out(
        model, vocabulary, asked[:60], what, group_size=tries, seed="r1/many"
    )
    known = torch.tensor(
        [
            tongues.accuracy(t, p) * tongues.right_moves(t, p)[2]
            for t, p in zip(more.texts, more.problems, strict=True)
        ]
    )
    found = {
        "accuracy": mean([one["accuracy"] for one in said]),
        "format": mean([one["tidy"] for one in said]),
        "small": mean([one["small"] for one in said]),
        "pure": mean([float(one["small"] in (0.0, 1.0)) for one in said]),
        "works_all": mean([float(all_of_them) for *_, all_of_them in moves]),
        "moves_right": sum(right for _, right, _ in moves)
        / max(1, sum(count for count, *_ in moves)),
        "length": out.mask.sum(1).mean().item(),
        "liking": mean(liked),
        "known_1": known.mean().item(),
        "known_16": known.view(-1, tries).amax(1).mean().item(),
    }
    return {name: round(value, 4) for name, value in found.items()}


def counted(
    model: PreTrainedModel,
    vocabulary: Vocabulary,
    where: str,
    split: str = "held_out",
    n: int = 300,
) -> dict[str, float]:
    """Groups in which a rule says the same of all, and the languages of what works all its moves; nothing is trained."""
    what = recipe("reasoning")
    asked = what.task.problems(split, n, seed=where, distinct=True)
    out = roll_out(model, vocabulary, asked, what, group_size=GROUP, seed=where)
    rows = list(zip(out.texts, out.problems, strict=True))
    said = [parts(*row) for row in rows]

    same = ties(torch.tensor([one["accuracy"] for one in said]))
    tidy = ties(torch.tensor([one["tidy"] for one in said]))
    total = ties(torch.tensor([rule(*row, COLD_TIDY) for row in rows]))
    worked = [
        one for one, row in zip(said, rows, strict=True) if tongues.right_moves(*row)[2]
    ]
    small, capital = ([one for one in worked if one["small"] == k] for k in (1.0, 0.0))
    found = {
        "right": mean([one["accuracy"] for one in said]),
        "alike": same.float().mean().item(),
        "by_format": (same & ~tidy).float().mean().item(),
        "alike_sum": total.float().mean().item(),
        "worked": len(worked) / len(rows),
        "one_language": (len(small) + len(capital)) / len(worked),
    }
    for name, those in (("small", small), ("capital", capital)):
        if len(those) >= 30:  # fewer say little
            found[f"right_{name}"] = mean([one["accuracy"] for one in those])
    return {name: round(value, 4) for name, value in found.items()}


def mean(values: Sequence[float]) -> float:
    """The mean of numbers."""
    return sum(values) / len(values)


def copy_of(model: PreTrainedModel) -> PreTrainedModel:
    """Another model with the same weights."""
    other = type(model)(model.config).eval()
    other.load_state_dict(model.state_dict())
    return other


# ---- the stages ----------------------------------------------------------------------


def cold_start(seed: int) -> tuple[PreTrainedModel, Vocabulary]:
    """Stage 1: the base, after a few tidy demonstrations that work every move."""
    model, vocabulary = begin()
    task = tongues.task("reasoning", tongues.TIDY)
    asked = task.problems("train", COLD_ROWS, seed=f"r1/cold/{seed}")
    hand = random.Random(f"r1/cold/{seed}")
    rows = [
        CompletionRow(p.prompt, tongues.write(p.prompt, tongues.TIDY, hand))
        for p in asked
    ]
    imitate(model, vocabulary, rows, replace(COLD, seed=seed))
    return model, vocabulary


def kept_rows(
    model: PreTrainedModel, vocabulary: Vocabulary, seed: int
) -> tuple[list[CompletionRow], int]:
    """Stage 3: right, tidy completions in small letters, the policy's own, and how many it wrote."""
    where = f"r1/kept/{seed}"
    what = recipe("reasoning")
    asked = what.task.problems("train", STEPS * PROMPTS, seed=where)
    out = roll_out(model, vocabulary, asked, what, group_size=GROUP, seed=where)
    rows = [
        CompletionRow(p.prompt, t)
        for t, p in zip(out.texts, out.problems, strict=True)
        if all(parts(t, p)[name] == 1 for name in ("accuracy", "tidy", "small"))
    ]
    return rows, len(out.texts)


def general_rows(n: int, seed: int) -> list[CompletionRow]:
    """Replies by hand to questions of letters, which stage 3 has beside the kept completions."""
    hand = random.Random(f"r1/general/{seed}")
    asked = tongues.task("general").problems("train", n, seed=f"r1/general/{seed}")
    return [
        CompletionRow(p.prompt, tongues.write(p.prompt, tongues.TIDY, hand))
        for p in asked
    ]


def scorer(seed: int) -> RewardModel:
    """A reward model of replies, from pairs of the base's own with noisy labels of people."""
    model, vocabulary = begin()
    task = tongues.task("general")
    rows = sample_pairs(model, vocabulary, task, PAIRS, seed=seed)
    judge = RewardModel.from_policy(model, vocabulary, seed=seed)
    optimizer = torch.optim.AdamW(
        judge.model.parameters(), lr=SCORER.lr, weight_decay=0.0
    )
    order = random.Random(f"r1/scorer/{seed}")
    for step in range(SCORER.steps):
        batch = order.sample(rows, SCORER.batch_size)
        loss = reward_model_loss(PAIRWISE["bradley_terry"], judge, batch)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(judge.model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = SCORER.lr * min(
                (step + 1) / SCORER.warm_up, 1 - step / SCORER.steps
            )
        optimizer.step()
    return judge


def asked_scorer(seed: int) -> dict[str, Any]:
    """What a reward model knows: fresh pairs of the base's own, and good replies with letters too many."""
    judge = scorer(seed)
    model, vocabulary = begin()
    task = tongues.task("general")
    pairs = sample_pairs(model, vocabulary, task, 500, split="held_out", seed=seed)
    pairs = [p for p in pairs if p.score_chosen != p.score_rejected]
    prompts = [p.prompt for p in pairs]
    first = judge.score(prompts, [p.chosen for p in pairs])
    other = judge.score(prompts, [p.rejected for p in pairs])
    better = torch.tensor([p.score_chosen > p.score_rejected for p in pairs])
    asked = task.problems("held_out", 100, seed=f"r1/extra/{seed}", distinct=True)
    hand = random.Random(f"r1/extra/{seed}")
    scores, liked = [], []
    for extra in EXTRA:
        texts = [
            tongues.letters_of(p.prompt)
            + "".join(hand.choice(tongues.HOURS) for _ in range(extra))
            for p in asked
        ]
        told = judge.score([p.prompt for p in asked], texts)
        scores.append(round(told.mean().item(), 4))
        rows = zip(texts, asked, strict=True)
        liked.append(round(mean([tongues.liking(t, p) for t, p in rows]), 4))
    return {
        "agrees": round(((first > other) == better).float().mean().item(), 4),
        "pairs": len(pairs),
        "score_by_extra": scores,
        "liking_by_extra": liked,
    }


def imitates_itself(name: str, seed: int) -> dict[str, Any]:
    """A small start, and what it becomes by imitating its own kept completions."""
    model, vocabulary = begin(name)
    found: dict[str, Any] = {"start": examined(model, vocabulary)}
    rows, written = kept_rows(model, vocabulary, seed)
    imitate(model, vocabulary, rows, replace(KEPT, lr=3e-3, warm_up=5, seed=seed))
    found |= {"rows": len(rows), "written": written, **examined(model, vocabulary)}
    return found | {"distinct": len({(r.prompt, r.completion) for r in rows})}


@cache
def of_the_large(seed: int) -> tuple[PreTrainedModel, list[CompletionRow]]:
    """The large model after its first two stages, and what it keeps."""
    model, vocabulary = cold_start(seed)
    reinforce(model, vocabulary, COLD_TIDY, f"stages/{seed}")
    return model, kept_rows(model, vocabulary, seed)[0]


def kinds(rows: Sequence[CompletionRow]) -> dict[str, int]:
    """How many rows, of how many questions, and how many differ."""
    questions = {row.prompt for row in rows}
    distinct = {(row.prompt, row.completion) for row in rows}
    return {"rows": len(rows), "questions": len(questions), "distinct": len(distinct)}


def few_of_the_large(
    arm: str, seed: int
) -> tuple[PreTrainedModel, list[CompletionRow]]:
    """A small start after as many of the large model's kept completions as it has of its own, drawn by lot."""
    model, vocabulary = begin(OWN[FEW[arm]])
    own, _ = kept_rows(model, vocabulary, seed)
    rows = random.Random(seed).sample(of_the_large(seed)[1], len(own))
    imitate(model, vocabulary, rows, replace(KEPT, lr=3e-3, warm_up=5, seed=seed))
    return model, rows


def kept(seed: int) -> dict[str, dict[str, Any]]:
    """What every writer's filter keeps, and the large model after stages 2 and 3, counted."""
    where = f"r1/counted/{seed}"
    model, rows = of_the_large(seed)
    base, vocabulary = begin()
    found: dict[str, dict[str, Any]] = {"large": kinds(rows)}
    for arm, start in OWN.items():
        found[arm] = kinds(kept_rows(*begin(start), seed)[0])
    both = rows + general_rows(len(rows) // 3, seed)
    imitate(base, vocabulary, both, replace(KEPT, seed=seed))
    for name, one in (("rl", model), ("kept", base)):
        found[name] = counted(one, vocabulary, where)
        found[f"{name}-train"] = counted(one, vocabulary, where, "train")
    return found


def worked(rows: Sequence[CompletionRow]) -> dict[str, int]:
    """How many rows, and how many of them write every move of their question."""
    every = [
        tongues.right_moves(row.completion, Problem(row.prompt, ""))[2] for row in rows
    ]
    return {"rows": len(rows), "worked": sum(every)}


def kept_and_worked(seed: int) -> dict[str, dict[str, int]]:
    """Of what every writer's filter keeps, how much works all its moves."""
    found = {"large": worked(of_the_large(seed)[1])}
    for arm, start in OWN.items():
        found[arm] = worked(kept_rows(*begin(start), seed)[0])
    return found


def counts(seed: int) -> dict[str, dict[str, float]]:
    """Starts, and two models after RL, counted on one draw of questions."""
    where = f"r1/counted/{seed}"
    model, vocabulary = begin()
    found = {
        "base": counted(model, vocabulary, where),
        "base-train": counted(model, vocabulary, where, "train"),
    }
    reinforce(model, vocabulary, PAID["accuracy"], f"zero/{seed}")
    found["base-rl"] = counted(model, vocabulary, where)
    model, _ = cold_start(seed)
    found["cold"] = counted(model, vocabulary, where)
    found["cold-train"] = counted(model, vocabulary, where, "train")
    found["more"] = counted(*begin(TAUGHT["more-rl"][0]), where)
    found["more-rl"] = counted(taught("more-rl", seed), vocabulary, where)
    return found


def last_stage(
    way: str,
    model: PreTrainedModel,
    vocabulary: Vocabulary,
    judge: RewardModel,
    seed: int,
) -> dict[str, list[float]]:
    """Stage 4: with the reward model, with the rules alone, or with the reward model at three times the rate."""

    def score(problems: Sequence[Problem], texts: Sequence[str]) -> Tensor:
        return judge.score([p.prompt for p in problems], list(texts))

    def nothing(problems: Sequence[Problem], texts: Sequence[str]) -> Tensor:
        return torch.zeros(len(texts))

    return reinforce(
        model,
        vocabulary,
        COLD_TIDY,
        f"last/{seed}",
        steps=LAST_STEPS,
        lr=LR if way == "last-fast" else LAST_LR,
        kind="both",
        general=nothing if way == "last-rules" else score,
    )


@cache
def stages(seed: int) -> tuple[list[CompletionRow], dict[str, Any]]:
    """All four: the kept completions of the third, and what was measured after each."""
    model, vocabulary = begin()
    began = time.process_time()
    found: dict[str, Any] = {"base": examined(model, vocabulary)}
    model, _ = cold_start(seed)
    found["cold"] = examined(model, vocabulary)
    steps = reinforce(model, vocabulary, COLD_TIDY, f"stages/{seed}")
    found["rl"] = examined(model, vocabulary)
    rows, written = kept_rows(model, vocabulary, seed)
    model, _ = begin()  # the base again, as in the paper
    both = rows + general_rows(len(rows) // 3, seed)
    imitate(model, vocabulary, both, replace(KEPT, seed=seed))
    found["kept"] = examined(model, vocabulary)
    found |= {"rows": len(rows), "written": written, "steps": steps}
    judge = scorer(seed)
    found["last_steps"] = {}
    for way in LAST:
        end = copy_of(model)
        found["last_steps"][way] = last_stage(way, end, vocabulary, judge, seed)
        found[way] = examined(end, vocabulary)
    return rows, {"cpu_seconds": round(time.process_time() - began, 1), **found}


def taught(arm: str, seed: int) -> PreTrainedModel:
    """The small model after imitation of the large one's kept completions, RL of its own, or half of each."""
    start, lessons, steps = TAUGHT[arm]
    model, vocabulary = begin(start)
    if lessons:
        rows, _ = stages(seed)
        share = rows[: len(rows) * lessons // STEPS]
        config = replace(KEPT, steps=lessons, lr=3e-3, warm_up=5, seed=seed)
        imitate(model, vocabulary, share, config)
    if steps:
        paid = COLD_TIDY if arm == "more-rl-small" else ("tidy",)
        where = f"small/{seed}"
        reinforce(model, vocabulary, paid, where, steps=steps, row=CENTRED_GRPO)
    return model


COUNTED: dict[str, Callable[[int], dict[str, Any]]] = {
    "counted": counts,
    "kept": kept,
    "worked": kept_and_worked,
}


def run(arm: str, seed: int) -> dict[str, Any]:
    """One run, as it is recorded."""
    _, vocabulary = begin()
    began = time.process_time()
    if arm == "stages":
        return stages(seed)[1]
    if arm in OWN or arm == "scorer":
        found = (
            asked_scorer(seed) if arm == "scorer" else imitates_itself(OWN[arm], seed)
        )
        return {"cpu_seconds": round(time.process_time() - began, 1), **found}
    if arm in COUNTED:
        found = COUNTED[arm](seed)
        return {"cpu_seconds": round(time.process_time() - began, 1), **found}
    if arm in FEW:
        model, rows = few_of_the_large(arm, seed)
        seconds = round(time.process_time() - began, 1)
        found = examined(model, vocabulary)
        return {"cpu_seconds": seconds, **kinds(rows), **found}
    seen: dict[str, list[float]] = {}
    if arm in TAUGHT:
        if TAUGHT[arm][1]:
            stages(seed)
        began = time.process_time()
        model = taught(arm, seed)
    elif arm == "no-language":
        model, _ = cold_start(seed)
        seen = reinforce(model, vocabulary, ("tidy",), f"stages/{seed}")
    else:
        model, _ = begin()
        seen = reinforce(
            model,
            vocabulary,
            PAID[arm],
            f"zero/{seed}",
            row=ROWS.get(arm, GRPO),
            coin=arm == "coin",
            dropped=arm == "zero-dropped",
        )
    seconds = round(time.process_time() - began, 1)
    found = {**examined(model, vocabulary), "cpu_seconds": seconds}
    return found | ({"steps": seen} if seen else {})


if __name__ == "__main__":
    record(__file__, ARMS, run, steps=STEPS, completions_a_step=PROMPTS * GROUP)
