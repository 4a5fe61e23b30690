"""The recorded runs on process reward models: which of them tell right moves from wrong ones, and what is that worth?

    python notebooks/results/prm_runs.py                 runs what is not yet recorded (20 minutes of one core)
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
    shepherd-...      as "ratio", "scalar" and "bilinear-frozen", with Math-Shepherd's labels: the share of 4 completions
                      that go on from the end of a step and are right
    hard-ratio        as "ratio", the label is 1 if one of the 4 is right
    kept-ratio        as "ratio", the label is the share divided by that of the step before it, at most 1; steps have a
                      label only where that divisor is at least 1/2
    checker           nothing is trained: the task's own checker
    none              nothing at all

Arms that have `votes` weigh with them the votes of 16 completions of each of 100 held-out problems. Arms that have
`accuracy` give marks to the moves of an RL run; `none` is the same run for the outcome alone. Seeds 0 to 4 were fixed
beforehand and all are recorded; 3 and 4 were run later than the others. Learning rates, steps and betas were chosen
after a few shorter runs with seed 0.

**What came out**, smallest and largest of the seeds. AUC of moves: the policy's own log-prob .99 to 1.00, without any
training; scalar-frozen .53 to .57 and bilinear-frozen .99 to 1.00, so it is the place where the head reads that counts;
scalar .64 to .91, ratio .98 to 1.00, outcome .83 to .90. Votes of 16 completions are right for .32 to .42 of the problems
by majority, .59 to .71 with the checker's weights, .57 to .70 with ratio (min), .38 to .55 with outcome (sum), .38 to
.51 with scalar (min). RL, last ten steps: none .48 to .56, checker .58 to .67, ratio .54 to .60. Each of the three is
separated from the two others; after three seeds ratio and checker were not.

**Labels of Math-Shepherd** say what the text so far is worth, which is something else than whether the move is right. A
right move with all right before it has .29 in the mean, the first wrong move .03, and a right move after that .03. So the
labels themselves, taken as scores of all moves, have an AUC of .59 to .60 against the checker's marks; of .74 to .76 up to
the first wrong move, between moves with equally many to go (`labels_place_auc`; `place_auc` is the same of what was
learnt). AUC of all moves, and in brackets that of equal places:

    shepherd-ratio              .42 to .60 (.50 to .63)
    hard-ratio                  .61 to .68 (.72 to .78)
    shepherd-scalar             .54 to .56 (.58 to .62)
    shepherd-bilinear-frozen    .80 to .83 (.86 to .90)
    kept-ratio                  .79 to .85 (.82 to .87)

So the same labels teach a head that reads one position earlier, better than they are themselves, and a ratio hardly
anything; rounded up to 1 they teach it a little. The loss of shepherd-ratio stays near .70 (bilinear-frozen: .35). A
ratio has little room for such labels: at one place all probabilities sum to 1, so it can say which move is better than
another there, and not that no move there is worth much. That is a reason, and no run here tests it. Labels that compare a
step with the one before it do reach the ratio, although only 1667 to 1755 of some 20 000 moves get one. Its AUC falls
again: after 50 steps it was .88 to .91. With its weights (min) votes of 16 are right for .52 to .66 of the problems: above
the majority and, by .04 to .08, below ratio with labels by program. Both are separated: one sign in all seeds, and a mean
beyond the 5 % limit of a t-test paired by seed.

What did not replicate: in a first try with seed 100, 1000 rows and shares of 8, shepherd-ratio had an AUC of .31 and
hard-ratio one of .48, and wrong moves had the higher mean score. Here that is so in one seed of five for shepherd-ratio.
In that try kept labels without a floor for the divisor gave .68, and with the floor .86. No other floor was tried, and no
other beta than 10 with these labels.
"""

import copy
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from importlib.resources import as_file, files
from typing import Any

import torch
from recording import record
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits
from transformers import PreTrainedModel

from rlhf_minimal import ALGORITHMS, contrib
from rlhf_minimal.config import Config
from rlhf_minimal.fit import FitConfig, fit, optimizer_of
from rlhf_minimal.functional.logprobs import token_logprobs
from rlhf_minimal.lab.fast import fast
from rlhf_minimal.lab.process_reward import (
    AGGREGATES,
    StepScorer,
    auc,
    label_steps,
    sample_steps,
    scored_steps,
    step_loss,
    weigh_steps,
)
from rlhf_minimal.lab.rows import StepRow
from rlhf_minimal.lab.votes import evaluate_votes, verified_steps
from rlhf_minimal.models import Vocabulary, concatenate, policy_logits, positions
from rlhf_minimal.sample import Rollout
from rlhf_minimal.tasks import (
    Problem,
    RewardFunction,
    Step,
    StepReward,
    checked_steps,
    get_task,
)
from rlhf_minimal.train import Recipe, roll_out, train
from rlhf_minimal.train_state import Learner
from rlhf_minimal.training import load_policy

SEEDS = range(5)
TASK = get_task("clock:slip")
SAMPLING = fast(Recipe(ALGORITHMS["reinforce"], TASK))
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
    "shepherd-ratio",
    "shepherd-bilinear-frozen",
    "kept-ratio",
    "shepherd-scalar",
    "hard-ratio",
)
VOTERS = ("scalar", "ratio", "outcome", "checker", "none", "kept-ratio")
PAYERS = ("ratio", "checker", "none")
SHARES = ("shepherd", "hard", "kept")  # labels made of shares of right completions
ROLLOUTS, FLOOR = 4, 0.5


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
        ids, seen = concatenate(prompts, mask, completions)
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
    if "bilinear" in arm:
        scorer: StepScorer = Bilinear.begin(policy, vocabulary)
    else:
        head = "scalar" if "scalar" in arm else "ratio"
        beta = 1.0 if arm == "outcome" else 10.0
        scorer = StepScorer.from_policy(policy, vocabulary, head, beta)
    if arm.endswith("frozen"):
        scorer.model.base_model.requires_grad_(False)
    return scorer


@cache
def labelled(labels: str, seed: int) -> list[StepRow]:
    """The rows that a scorer learns from."""
    if labels in ("hard", "kept"):
        relabel = hard if labels == "hard" else kept
        return [relabel(row) for row in labelled("shepherd", seed)]
    options = {"rollouts": ROLLOUTS} if labels == "shepherd" else {}
    return sample_steps(*start(), SAMPLING, ROWS, labels=labels, seed=seed, **options)


def hard(row: StepRow) -> StepRow:
    """1 where one of the completions was right."""
    steps = tuple(Step(end, float(share > 0)) for end, share in row.steps)
    return replace(row, steps=steps)


def kept(row: StepRow) -> StepRow:
    """Which part of the chance of success a step keeps; NaN where there is none, or too little to divide by."""
    shares = [math.nan, *(share for _, share in row.steps)]
    steps = [
        Step(end, min(1.0, share / before) if before >= FLOOR else math.nan)
        for before, (end, share) in zip(shares[:-1], row.steps, strict=True)
    ]
    return replace(row, steps=tuple(steps))


def labels_of(arm: str) -> str:
    """What an arm learns from."""
    first = arm.partition("-")[0]
    return first if first in (*SHARES, "outcome") else "program"


def known_loss(scorer: StepScorer, rows: Sequence[StepRow]) -> Tensor:
    """`step_loss` over the steps that have a label."""
    labels = torch.tensor([mark for row in rows for _, mark in row.steps])
    known = ~labels.isnan()
    logits = scorer.logits(rows)[known]
    return binary_cross_entropy_with_logits(logits, labels[known])


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


def places(rows: list[StepRow], marks: list[list[float]]) -> tuple[Tensor, Tensor]:
    """Of every move: whether no earlier one is wrong, and how many the problem has left."""
    reached = [all(own[:i]) for own in marks for i in range(len(own))]
    left = [
        row.prompt.count("+") - i - 1
        for row, own in zip(rows, marks, strict=True)
        for i in range(len(own))
    ]
    return torch.tensor(reached), torch.tensor(left)


def at_equal_places(scores: Tensor, right: Tensor, left: Tensor) -> float:
    """AUC of pairs that have equally many moves left."""
    found = pairs = 0.0
    for number in left.unique():
        here = left == number
        count = int(right[here].sum()) * int((~right[here]).sum())
        if count:
            found += count * auc(scores[here], right[here])
            pairs += count
    return found / pairs


def up_to_the_first_wrong(scorer: StepScorer, seed: int) -> dict[str, Any]:
    """AUC and mean scores where all that came before is right: AUC at equally many moves left."""
    rows = held_out(seed)
    marks = [[mark for _, mark in row.steps] for row in rows]
    reached, left = places(rows, marks)
    right = torch.tensor([mark == 1 for own in marks for mark in own])[reached]
    scores = torch.cat(scorer.score(rows))[reached]
    means = [scores[side].mean().item() for side in (right, ~right)]
    return {
        "place_auc": round(at_equal_places(scores, right, left[reached]), 4),
        "mean_scores": [round(x, 3) for x in means],
    }


def about_labels(rows: list[StepRow]) -> dict[str, Any]:
    """What the labels of moves have to do with the checker's marks.

    `mean_labels` is of right moves and of the first wrong one, where all before is right, and of right moves after
    that. `labels_auc` takes the label itself as a score of all moves.
    """
    assert TASK.steps is not None
    marks, labels = [], []
    for row in rows:
        label = dict(row.steps)
        checked = TASK.steps(row.completion, Problem(row.prompt, ""))
        own = [step for step in checked if step.end in label]
        marks.append([mark for _, mark in own])
        labels += [label[end] for end, _ in own]
    values = torch.tensor(labels)
    known = ~values.isnan()
    reached, left = places(rows, marks)
    right = torch.tensor([mark == 1 for own in marks for mark in own])
    sides = (right & reached, ~right & reached, right & ~reached)
    means = [values[side & known].mean().item() for side in sides]
    of = reached & known
    return {
        "labels": int(known.sum()),
        "mean_labels": [round(x, 3) for x in means],
        "labels_auc": round(auc(values[known], right[known]), 4),
        "labels_place_auc": round(at_equal_places(values[of], right[of], left[of]), 4),
    }


def config_of(arm: str) -> FitConfig:
    """How an arm's scorer is trained."""
    if arm.endswith("frozen"):
        return FROZEN
    return LONGER if "scalar" in arm else TRAINED


def learn(
    scorer: StepScorer, arm: str, seed: int, steps: int | None = None
) -> Iterator[tuple[int, float]]:
    """Trains a scorer; every 50 steps its step and its loss."""
    config = replace(config_of(arm), seed=seed)
    rows, measure = labelled(labels_of(arm), seed), step_loss
    if labels_of(arm) == "kept":
        rows = [row for row in rows if any(mark == mark for _, mark in row.steps)]
        measure = known_loss
    optimizer, done = optimizer_of(scorer.model, config), 0
    last = steps or config.steps

    def pause(metrics: dict[str, float]) -> bool:
        return metrics["step"] % EVERY != 0 and metrics["step"] < last

    while done < last:
        history = fit(
            scorer.model,
            rows,
            partial(measure, scorer),
            config,
            optimizer=optimizer,
            done=done,
            on_step=pause,
        )
        done = int(history[-1]["step"])
        yield done, sum(one["loss"] for one in history) / len(history)


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
            rollout_fn=lambda *_, **__: written,
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
    cell = contrib.advantages.own_step if marks else OUTCOME.advantage
    config = replace(LOOP, seed=seed)
    return fast(
        Recipe(replace(OUTCOME, advantage=cell), TASK, config, step_reward=marks)
    )


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
        if labels_of(arm) in SHARES:
            found |= about_labels(labelled(labels_of(arm), seed))
            found |= up_to_the_first_wrong(scorer, seed)
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
