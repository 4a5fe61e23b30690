"""The recorded runs on process reward models: which of them tell right moves from wrong ones, and what is that worth?

    python notebooks/results/prm_runs.py                 runs what is not yet recorded (10 minutes of one core)
    python notebooks/results/prm_runs.py scalar ratio    only the arms named

Writes notebooks/results/prm-runs.json, a line a run. All of it is on the task clock:slip, from its shipped start. A
run samples completions of training problems, labels their steps, trains a scorer on them, and measures it on
completions of held-out problems: `auc` is the chance that a right move has a higher score than a wrong one, every 50
steps of its training. The arms:

    log-prob          nothing is trained: the score of a move is the policy's own log-prob of it
    scalar-frozen     a number read at the last token of a move; only the head is trained
    bilinear-frozen   the same for a head that takes the hidden state one position earlier, and the token's embedding
    scalar            as scalar-frozen, and the body is trained as well
    ratio             the log-ratio of a move's tokens to the start (beta 10), labels by program like all of the above
    outcome           the same with one label a completion, its outcome (beta 1): an implicit process reward model
    checker           nothing is trained: the task's own checker
    none              nothing at all

Arms that have `votes` weigh with them the votes of 16 completions of each of 100 held-out problems. Arms that have
`accuracy` give marks to the moves of an RL run; `none` is the same run for the outcome alone. Seeds 0 to 2 were fixed
beforehand and all are recorded. Learning rates, steps and betas were chosen after a few shorter runs with seed 0.

**What came out**, smallest and largest of the seeds. AUC of moves: the policy's own log-prob .99 to 1.00, without any
training; scalar-frozen .55 to .57 and bilinear-frozen .99 to 1.00, so it is the place where the head reads that counts;
scalar .63 to .87, ratio .98 to .99, outcome .83 to .87. Votes of 16 completions are right for .32 to .42 of the problems
by majority, .58 to .71 with the checker's weights, .58 to .70 with ratio (min), .38 to .55 with outcome (sum), .38 to
.51 with scalar (min). RL, last ten steps: none .47 to .56, checker .57 to .67, ratio .53 to .60; three seeds do not
separate ratio from checker.

**Labels of Math-Shepherd were tried and are not recorded**: seed 100, 1000 rows, the share of 8 completions that go on
from the end of a step and are right. They say what the text so far is worth, which is something else than whether the
move is right. A right move with 13 moves to go has .05 on average and with none to go .95, since each move to come may
slip; the first wrong move has .04, and a right move after it .03. Taken as scores of all moves, the labels themselves
have an AUC of .60 against the checker's marks. The AUC of heads that learnt them:

    ratio, beta 10       .31: it turns them round. At one place all probabilities sum to 1, so a log-ratio can say which
                         move is better than another there, and not that the place is a bad one. Right moves are what
                         the start mostly writes, and three quarters of their labels are below 1/2. So they lose
                         probability, and others gain it. The mean scores of moves with nothing wrong before them
                         fit that: right -.7, wrong +1.1.
    bilinear-frozen      .74, and .80 among moves with nothing wrong before them
    scalar               .52
    ratio, labels 1 if one of the 8 is right                                    .48
    ratio, labels divided by that of the step before, at most 1                 .68
    the same where that divisor is at least 1/2: 551 labels of 7845             .86, with bilinear-frozen .94

So a ratio needs labels that compare a step with the one before it: what it keeps of the chance of success. One seed, and
the floor of 1/2 was the second that was tried.
"""

import copy
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from importlib.resources import as_file, files
from typing import Any

import torch
from recording import record
from torch import Tensor, nn
from transformers import PreTrainedModel

from rlhf_minimal import ALGORITHMS
from rlhf_minimal.functional import advantages
from rlhf_minimal.functional.logprobs import token_logprobs
from rlhf_minimal.models import Vocabulary, policy_logits
from rlhf_minimal.models.forward import joined, positions
from rlhf_minimal.tasks import (
    RewardFunction,
    StepReward,
    StepRow,
    checked_steps,
    get_task,
)
from rlhf_minimal.training import (
    Config,
    FitConfig,
    Learner,
    Recipe,
    Rollout,
    StepScorer,
    Student,
    evaluate_votes,
    fit,
    load_policy,
    roll_out,
    rows_of_step,
    sample_steps,
    scored_steps,
    train,
    verified_steps,
    weigh_steps,
)
from rlhf_minimal.training.steps import AGGREGATES, auc, label_steps, step_loss

SEEDS = range(3)
TASK = get_task("clock:slip")
SAMPLING = Recipe(ALGORITHMS["reinforce"], TASK)
ROWS, HELD_OUT, EVERY = 3000, 300, 50
FROZEN = FitConfig(steps=150, batch_size=64, lr=1e-2)
TRAINED = FitConfig(steps=100, batch_size=64, lr=1e-3)
LONGER = replace(TRAINED, steps=300)  # of the arm "scalar"
LOOP = Config(steps=60, prompts=8, group_size=8, lr=5e-4, watch_kl="off")
OUTCOME = replace(ALGORITHMS["grpo"], kl=())
UNTRAINED = ("log-prob", "checker", "none")
ARMS = (
    "log-prob",
    "scalar-frozen",
    "bilinear-frozen",
    "scalar",
    "ratio",
    "outcome",
    "checker",
    "none",
)
VOTERS = ("scalar", "ratio", "outcome", "checker", "none")
PAYERS = ("ratio", "checker", "none")


def start() -> tuple[PreTrainedModel, Any]:
    """The shipped start of the task."""
    with as_file(files("rlhf_minimal") / "assets" / TASK.start) as folder:
        return load_policy(folder)


class OwnLogProb(StepScorer):
    """Scores a step by the log-prob of its tokens."""

    def of_tokens(self, prompts: Tensor, mask: Tensor, completions: Tensor) -> Tensor:
        """[B, T] log-probs."""
        logits = policy_logits(self.model, prompts, mask, completions)
        return token_logprobs(logits, completions)


class Bilinear(StepScorer):
    """Reads the hidden state before a step's last token, and the token's embedding: h' W e."""

    @classmethod
    def begin(cls, policy: PreTrainedModel, vocabulary: Vocabulary) -> "Bilinear":
        """With W = 0, so that every score is 0."""
        model: Any = StepScorer.from_policy(policy, vocabulary, "scalar").model
        width = model.config.hidden_size
        model.score = nn.Linear(width, width, bias=False)
        nn.init.zeros_(model.score.weight)
        return cls(model, vocabulary)

    def of_tokens(self, prompts: Tensor, mask: Tensor, completions: Tensor) -> Tensor:
        """[B, T] scores."""
        ids, seen = joined(prompts, mask, completions)
        model: Any = self.model
        hidden = model.base_model(
            input_ids=ids,
            attention_mask=seen,
            position_ids=positions(seen),
            use_cache=False,
        ).last_hidden_state[:, -completions.shape[1] - 1 : -1]  # [B, T, H]
        return (model.score(hidden) * model.get_input_embeddings()(completions)).sum(-1)


def scorer_of(arm: str) -> StepScorer:
    """An arm's scorer before its training."""
    policy, vocabulary = start()
    if arm == "log-prob":
        return OwnLogProb(policy, vocabulary, reference=policy)
    if arm.startswith("bilinear"):
        scorer: StepScorer = Bilinear.begin(policy, vocabulary)
    else:
        head = "scalar" if arm.startswith("scalar") else "ratio"
        beta = 1.0 if arm == "outcome" else 10.0
        scorer = StepScorer.from_policy(policy, vocabulary, head, beta)
    if arm.endswith("frozen"):
        scorer.model.base_model.requires_grad_(False)
    return scorer


@cache
def labelled(labels: str, seed: int) -> list[StepRow]:
    """The rows that a scorer learns from."""
    return sample_steps(*start(), SAMPLING, ROWS, labels=labels, seed=seed)


@cache
def held_out(seed: int) -> list[StepRow]:
    """Moves of held-out problems, with the checker's marks; without what ends a completion."""
    problems = TASK.problems("held_out", HELD_OUT, seed=f"prm/{seed}")
    written = roll_out(*start(), problems, SAMPLING, seed=f"prm/{seed}")
    rows = label_steps(*start(), SAMPLING, written, labels="program")
    return [replace(row, steps=row.steps[:-1]) for row in rows if len(row.steps) > 1]


@cache
def ballots(seed: int) -> Rollout:
    """16 completions of each of 100 held-out problems."""
    problems = TASK.problems("held_out", 100, seed=f"votes/{seed}", distinct=True)
    return roll_out(*start(), problems, SAMPLING, group_size=16, seed=f"votes/{seed}")


def moves_auc(scorer: StepScorer, seed: int) -> float:
    """How well it tells right moves from wrong ones."""
    rows = held_out(seed)
    right = torch.tensor([mark == 1 for row in rows for _, mark in row.steps])
    return round(auc(torch.cat(scorer.score(rows)), right), 4)


def config_of(arm: str) -> FitConfig:
    """How an arm's scorer is trained."""
    if arm.endswith("frozen"):
        return FROZEN
    return LONGER if arm == "scalar" else TRAINED


def learn(
    scorer: StepScorer, arm: str, seed: int, steps: int | None = None
) -> Iterator[tuple[int, float]]:
    """Trains a scorer; every 50 steps its step and its loss."""
    config = replace(config_of(arm), seed=seed)
    rows = labelled("outcome" if arm == "outcome" else "program", seed)
    losses: list[float] = []

    def loss(step: int) -> Tensor:
        return step_loss(scorer, rows_of_step(rows, step, config.batch_size, seed))

    student = Student.begin(scorer.model, scorer.save, config)
    last = steps or config.steps

    def pause(metrics: dict[str, float]) -> bool:
        return metrics["step"] % EVERY != 0 and metrics["step"] < last

    while student.step < last:
        history = fit(student, config, loss, pause)
        losses = [one["loss"] for one in history]
        yield student.step, sum(losses) / len(losses)


def votes_of(weigh: dict[str, RewardFunction | None], seed: int) -> dict[str, Any]:
    """The share of problems that 1, 4 and 16 completions decide rightly, by each of several weights."""
    written, found = ballots(seed), {}
    for name, weights in weigh.items():
        options: dict[str, Any] = {"n": 100, "seed": str(seed), "batch_size": 1600}
        votes = evaluate_votes(
            *start(),
            SAMPLING,
            samples=16,
            scorer=weights,
            write=lambda *_, **__: written,
            **options,
        )
        of = {"passed": votes.passed, "majority": votes.majority}
        of |= {name: votes.weighted, f"{name}-best": votes.best}
        found |= {
            key: [round(shares[n].share, 4) for n in (1, 4, 16)]
            for key, shares in of.items()
            if shares
        }
    return found


def weights_of(arm: str, scorer: StepScorer | None) -> dict[str, RewardFunction | None]:
    """What an arm weighs votes with: all aggregates of its scores."""
    if scorer is None:
        return {"steps": verified_steps(TASK) if arm == "checker" else None}
    known = copy.copy(scorer)
    plain = cache(lambda rows: scorer.score(rows))  # the scores are the same for all
    known.score = lambda rows: plain(tuple(rows))  # type: ignore[method-assign]
    return {name: weigh_steps(known, TASK, name) for name in AGGREGATES}


def plan_of(arm: str, seed: int, scorer: StepScorer | None) -> Recipe:
    """The RL run that an arm's marks pay for."""
    marks: StepReward | None = checked_steps(TASK) if arm == "checker" else None
    if scorer is not None:
        marks = scored_steps(scorer, TASK)
    cell = advantages.own_step if marks else OUTCOME.advantage
    config = replace(LOOP, seed=seed)
    return Recipe(replace(OUTCOME, advantage=cell), TASK, config, step_reward=marks)


def rehearse(plan: Recipe) -> dict[str, Any]:
    """One RL run: its curves of accuracy and length."""
    policy, vocabulary = start()
    learner = Learner.begin(policy, vocabulary, plan.algorithm, plan.config)
    history = train(learner, plan)
    return {
        name: [round(one[name], 4) for one in history]
        for name in ("accuracy", "length")
    }


def run(arm: str, seed: int) -> dict[str, Any]:
    """All of one arm and seed."""
    began = time.process_time()
    found: dict[str, Any] = {}
    scorer = None if arm in ("checker", "none") else scorer_of(arm)
    if scorer is not None:
        curve = [(0, moves_auc(scorer, seed))]
        losses = []
        if arm not in UNTRAINED:
            for step, loss in learn(scorer, arm, seed):
                curve.append((step, moves_auc(scorer, seed)))
                losses.append(round(loss, 4))
        found |= {"last_auc": curve[-1][1], "auc": [value for _, value in curve]}
        found |= {"losses": losses}
    found["seconds_to_train"] = round(time.process_time() - began, 1)
    if arm in VOTERS:
        found["votes"] = votes_of(weights_of(arm, scorer), seed)
    if arm in PAYERS:
        found |= rehearse(plan_of(arm, seed, scorer))
    return {**found, "seconds": round(time.process_time() - began, 1)}


if __name__ == "__main__":
    record(
        __file__,
        ARMS,
        run,
        seeds=SEEDS,
        rows=ROWS,
        lr={"frozen": FROZEN.lr, "others": TRAINED.lr, "rl": LOOP.lr},
        auc_every=EVERY,
        votes_of=[1, 4, 16],
    )
