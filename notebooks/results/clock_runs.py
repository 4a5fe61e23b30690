"""The recorded runs on the clock: when do completions grow, what do marks for steps pay, and which cells matter here?

    python notebooks/results/clock_runs.py               runs what is not yet recorded
    python notebooks/results/clock_runs.py growth coin   only the arms named

Writes notebooks/results/clock-runs.json, a line a run. Every run begins with a shipped start. Seeds were fixed
beforehand: 0 to 4; in the last three groups 3 and 4 were added later. An arm is an entry of ARMS; within a group arms
differ in what is named and in nothing else, the learning rate included. Accuracy below is of the last ten steps, smallest and
largest of the seeds. "Separated" means one sign in all seeds and a mean beyond the 5 % limit of a t-test paired by seed.
tests/results/test_clock_runs.py holds these figures to the record.

**When completions grow.** "growth" trains the row dr_grpo on the task clock for its verifier: accuracy .79 to .82, and
length from 6.5 to 8.7 tokens up to 19 to 20. The length has nearly its last value by step 30; moves go on to slip less
often. "coin" is the same run with a reward that is the toss of a coin: .08 to .14, from .19 to .29. So the control does
not stand still at this learning rate, it loses what the start knew. 2e-4 and 3e-4 were tried for both on seeds 10 and
11; the coin ended at .18 and .10 with the lower, at .17 and .06 with the higher.

**Marks for steps**, on clock:slip,low=12,high=14, where hardly a completion works without a slip. "outcome" is GRPO
without KL. The others differ from it in what marks the steps and in the advantage:

    outcome     .03 to .36: three seeds stay at chance, two get away from it
    own         .58 to .66: 1 for a right move, for the tokens of that move alone (own_step)
    blame       .56 to .61: a fine for the tokens of the first wrong move alone (first_wrong)
    future      .42 to .47: 1 for a right move, summed from each token on with the outcome (process)
    marks       .27 to .34: the same, and nothing for the outcome
    fine        .02 to .05: -1 for the first wrong move, summed from each token on with the outcome (process)

Two are hacked. A payment for every right move breeds idle moves, which are easy to get right: 2.3 to 3.1 a completion
in "future", 3.9 to 4.7 in "marks", .5 to 1.8 in "own", at most .3 in "blame" (.2 to .5 in the first steps). A fine that
is summed teaches to write no move at all: completions of 3 tokens.

**Divisors**, on clock:slip: GRPO without KL, a completion's own length, all tokens, or a constant; the gradient's norm is
not clipped. Accuracy ends at .55 to .65 with the own length (1/|o|), at .59 to .66 with all tokens and .62 to .66 with
the constant. The own length is separated from each of the others, which have .033 and .045 more in the mean of the seeds;
these two are not separated from each other. After three seeds nothing was. So 1/|o| is seen to cost a little here, at one
learning rate. These are two of six comparisons (accuracy and the gap below), and with a limit of 5 % divided by six
neither would pass. The runs do not say why. A runaway of wrong completions is not the reason, there is none: they are
longer than right ones in every arm (their problems are harder), by 3 to 6 tokens at the end, and all completions of a step
have 18 to 22 tokens in the mean at the end of every arm. What did not replicate: after three seeds that gap was .7 tokens
smaller with the constant than with the own length, which was separated. In five it is .5 smaller, with both signs.

**Clip ranges**, on clock:slip, four updates a rollout. "band-paper" is GSPO, 3e-4 and 4e-4: it clips 39 to 46 % of
the tokens all the time and ends at .56 to .63. A range a hundred times wider clips 1 to 4 % and ends at .70 to .76;
GRPO's clip of .2 on token ratios at .71 to .75 and no clip at .72 to .77. The paper's range is separated from each of
the others (.09 to .20 below them), and these are not separated from each other. One learning rate was tried.

**A critic**, on clock:slip: PPO's row, whitened, with a constant divisor and no KL, one update a rollout, one
learning rate. "group" has no critic (the mean of the group's others) and ends at .59 to .67; "critic-1" at .60 to .69
and "critic-0.95" at .58 to .70, GAE with that lambda. With lambda 1 the critic is ahead by .026 in the mean, which is
separated (t = 2.9), and after three seeds was not. The critic explains .01 to .10 of the variance of the returns at
the end, and its runs take 1.6 times as long. In the arms "paid-" every right move of the problem earns 1 at once, and
the outcome 1. There the critic comes to explain .5 to .7 and ends lower: accuracy .14 to .51 with lambda 1 and .34 to
.59 with .95, against .61 to .71 for "paid-position", the returns from a token on minus their mean over the group's
others at that position. Both differences are separated. These are five comparisons; with 5 % divided by five (t =
4.6) none would pass. Accuracy is not what these arms are paid for (a return counts right moves too).

A reason may be a critic that knows too little. Tried with seed 10 alone and not recorded: 20 steps in which the critic
alone is trained, then four passes over each step's samples, and lambda .95. It explains .72 of the variance in the first
ten steps of the policy and .88 at the end, and accuracy ends at .65, as without a critic. A critic with a new body of four
layers ends at .66, lambda .5 at .61. In that seed a trained critic catches up with the mean at that position and is not
seen to be better.

So no setting was found here in which a critic pays for its time. The positive control is in the chapter on GAE, which
computes it: the chain of rlhf_book/chain.py, paid at every token, where over twenty seeds a critic with lambda .8
scores .92 and the mean over the batch at the same position .83, separated.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import as_file, files
from typing import Any

from recording import SEEDS as SEEDS
from recording import record
from torch import Tensor

from rlhf_minimal import ALGORITHMS, Algorithm, contrib
from rlhf_minimal.config import Config
from rlhf_minimal.functional import advantages, aggregation, gates
from rlhf_minimal.functional.masked import zero_outside
from rlhf_minimal.lab.fast import fast
from rlhf_minimal.sample import Rollout
from rlhf_minimal.tasks import (
    Problem,
    Step,
    StepReward,
    Task,
    checked_steps,
    get_task,
    random_reward,
)
from rlhf_minimal.train import Recipe, train
from rlhf_minimal.train_state import Learner
from rlhf_minimal.training import load_policy

LAST = 10  # steps, at the end of a run, over which its numbers are means

# By step, means over its completions; and over its moves the share that is right.
KEPT = ("accuracy", "length", "idle", "right")
LENGTHS = ("length_right", "length_wrong")


def at_its_position(token_rewards: Tensor, mask: Tensor, *, group_size: int) -> Tensor:
    """The rewards from a token on, minus their mean over the group's other completions at that position."""
    to_go = advantages.returns_to_go(token_rewards, mask)
    groups = to_go.view(-1, group_size, to_go.shape[1])  # [P, G, T]
    others = (groups.sum(1, keepdim=True) - groups) / (group_size - 1)
    return zero_outside(to_go - others.view_as(to_go), mask)


def fine_for_the_first_wrong(task: Task) -> StepReward:
    """-1 for the first wrong move, and no other mark."""
    check = checked_steps(task)

    def marks(**columns: Any) -> list[Sequence[Step]]:
        wrong = [
            [Step(end, -1.0) for end, mark in steps if mark == 0]
            for steps in check(**columns)
        ]
        return [steps[:1] for steps in wrong]

    return marks


def no_idle_moves(task: Task) -> StepReward:
    """1 for a right move, 0 for a wrong one; moves that the problem does not have are no steps."""
    check = checked_steps(task)

    def marks(**columns: Any) -> list[Sequence[Step]]:
        return [
            steps[: moves(problem)]
            for steps, problem in zip(check(**columns), columns["problem"], strict=True)
        ]

    return marks


def nothing(completions: Sequence[str], **columns: Any) -> list[float]:
    """A reward for no outcome."""
    return [0.0 for _ in completions]


@dataclass(frozen=True)
class Arm:
    """What a run trains on, and with what.

    Attributes:
        task: Its name; the shipped start that fits is where the run begins.
        algorithm: The row.
        config: The numbers; a run sets the seed.
        reward: For the outcome: the task's "verifier", a "coin", or "nothing".
        marks: What marks the steps, if anything does.
        kept: Curves that are recorded beside `KEPT`.
    """

    task: str
    algorithm: Algorithm
    config: Config
    reward: str = "verifier"
    marks: Callable[[Task], StepReward] | None = None
    kept: tuple[str, ...] = ()


GROWTH = Config(steps=60, prompts=32, group_size=8, lr=2e-4, watch_kl="off")
STEPS = Config(steps=80, prompts=8, group_size=8, lr=5e-4, watch_kl="off")
BAND = Config(
    steps=60, prompts=16, group_size=8, minibatches=4, lr=4e-4, watch_kl="off"
)

OUTCOME = replace(ALGORITHMS["grpo"], kl=())
GSPO = ALGORITHMS["gspo"]
PPO = replace(ALGORITHMS["ppo"], kl=(), aggregate=aggregation.fixed_length)
LONG, ALL = "clock:slip,low=12,high=14", "clock:slip"

DIVISORS = {
    "own": aggregation.sequence_mean,
    "tokens": aggregation.token_mean,
    "constant": aggregation.fixed_length,
}
BANDS = {
    "paper": GSPO,
    "wide": replace(GSPO, gate=partial(gates.clip, low=0.03, high=0.04)),
    "token": OUTCOME,
    "none": replace(OUTCOME, gate=gates.none),
}


def gae(lam: float) -> Algorithm:
    """PPO's row, with a critic."""
    return replace(PPO, advantage=partial(advantages.gae, gamma=1.0, lam=lam))


def marked(cell: Callable[..., Tensor], **other: Any) -> Arm:
    """The arm "outcome" with marks for steps, and a cell that reads them."""
    other = {"marks": checked_steps} | other
    row = replace(OUTCOME, advantage=cell)
    return Arm(LONG, row, STEPS, kept=("moves",), **other)


def ppo(algorithm: Algorithm, *, paid: bool = False) -> Arm:
    """PPO's row or one without a critic; paid for the outcome alone, or for every move too."""
    kept = ("explained_variance",) if "values" in algorithm.needs else ()
    marks = no_idle_moves if paid else None
    return Arm(ALL, algorithm, STEPS, "verifier", marks, kept)


ARMS = {
    "growth": Arm("clock", ALGORITHMS["dr_grpo"], GROWTH, kept=("moves", *LENGTHS)),
    "coin": Arm(
        "clock", ALGORITHMS["dr_grpo"], GROWTH, "coin", kept=("moves", *LENGTHS)
    ),
    "outcome": Arm(LONG, OUTCOME, STEPS, kept=("moves", *LENGTHS)),
    "future": marked(contrib.advantages.process),
    "own": marked(contrib.advantages.own_step),
    "blame": marked(contrib.advantages.first_wrong),
    "fine": marked(contrib.advantages.process, marks=fine_for_the_first_wrong),
    "marks": marked(contrib.advantages.process, reward="nothing"),
    **{
        f"divisor-{name}": Arm(
            ALL,
            replace(OUTCOME, aggregate=cell),
            replace(STEPS, grad_clip=1e9),
            kept=LENGTHS,
        )
        for name, cell in DIVISORS.items()
    },
    **{
        f"band-{name}": Arm(ALL, row, BAND, kept=("clip_fraction",))
        for name, row in BANDS.items()
    },
    "group": ppo(replace(PPO, advantage=advantages.leave_one_out)),
    "critic-1": ppo(gae(1.0)),
    "critic-0.95": ppo(gae(0.95)),
    "paid-position": ppo(replace(PPO, advantage=at_its_position), paid=True),
    "paid-critic-1": ppo(gae(1.0), paid=True),
    "paid-critic-0.95": ppo(gae(0.95), paid=True),
}
HEAD = {  # of the record
    "completions_a_step": {
        arm: what.config.prompts * what.config.group_size for arm, what in ARMS.items()
    },
    "lr": {arm: what.config.lr for arm, what in ARMS.items()},
}


def recipe(arm: str, seed: int, **config: Any) -> Recipe:
    """All that stays the same in a run; numbers of its config may be changed."""
    what = ARMS[arm]
    task = get_task(what.task)
    reward = {"verifier": None, "coin": random_reward(seed), "nothing": nothing}
    return fast(
        Recipe(
            what.algorithm,
            task,
            replace(what.config, seed=seed, **config),
            reward[what.reward],
            step_reward=what.marks and what.marks(task),
        )
    )


def moves(problem: Problem) -> int:
    """How many moves a problem has."""
    return problem.prompt.count("+")


def seen(task: Task, rollout: Rollout) -> dict[str, float]:
    """How much a step's completions work, and how well; nothing is right or wrong where no move is written."""
    assert task.steps is not None
    idle = right = written = 0.0
    for text, problem in zip(rollout.texts, rollout.problems, strict=True):
        marks = [mark for _, mark in task.steps(text, problem)]
        idle += max(0, len(marks) - moves(problem))
        written += len(marks)
        right += sum(marks)
    rows = len(rollout.texts)
    found = {"idle": idle / rows, "moves": written / rows}
    return found | ({"right": right / written} if written else {})


def run(arm: str, seed: int, **config: Any) -> dict[str, Any]:
    """One run: its curves, a number a step, and its processor seconds."""
    plan = recipe(arm, seed, **config)
    with as_file(
        files("rlhf_minimal") / "assets" / (plan.task.start or plan.task.name)
    ) as folder:
        policy, vocabulary = load_policy(folder)
    learner = Learner.begin(policy, vocabulary, plan.algorithm, plan.config)
    looked: list[dict[str, float]] = []
    began = time.process_time()
    history = train(
        learner,
        plan,
        on_rollout=lambda step, rollout: looked.append(seen(plan.task, rollout)),
    )
    seconds = round(time.process_time() - began, 1)
    rows = [one | other for one, other in zip(history, looked, strict=True)]
    curves = {
        name: [None if name not in row else round(row[name], 3) for row in rows]
        for name in (*KEPT, *ARMS[arm].kept)
    }
    last = {name: [x for x in curves[name][-LAST:] if x is not None] for name in KEPT}
    shown = {
        f"last_{name}": round(sum(xs) / len(xs), 3) if xs else None
        for name, xs in last.items()
    }
    return {**shown, "seconds": seconds, **curves}


if __name__ == "__main__":
    record(__file__, ARMS, run, **HEAD)
