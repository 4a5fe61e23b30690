"""The benchmark behind the advice: every row of a chapter, and five more, on the same task with the same samples.

    python notebooks/results/row_benchmark.py                    runs what is not yet recorded
    python notebooks/results/row_benchmark.py addition-1 clock-1 only the groups named
    python notebooks/results/row_benchmark.py --check            says how much of the plan is on file

The plan has 870 runs, about two core-hours by the time that one run of each kind took. It
writes notebooks/results/row-benchmark.json, a line a run, as soon as it is finished; it can be stopped at any time and
goes on where it was. Several processes share the plan: each holds a lock on the run that it is in, which the system
lets go when it ends, however it ends.

A **group** is a task and a number of updates a rollout. In a group every run begins with the same shipped start and
samples the same number of completions, refills included, and nothing differs but the row and its learning rate.

**Rates.** Each row has the best of four learning rates, the same four for all rows of a group, each twice the one
before. The best is the one with the highest held-out accuracy after the last update, averaged over TUNING seeds; of
equal ones, the lowest. Reported seeds are others. The gradient's norm is not clipped and AdamW divides a gradient by a
running size of its own, so a loss that is larger by one constant factor, the same in every batch, takes the same steps, up
to AdamW's epsilon. A divisor that differs from batch to batch, such as the number of tokens, is no such factor.

**Rows that coincide.** Where two rows have the same gradient up to one constant factor, in every batch that can occur,
they take the same steps and are run once. `partners` finds these rows from their gradients, with rewards of 0 and 1
where a verifier pays and with real ones where a model does. With one update a rollout
the policy that is trained is the one that sampled, all ratios are 1, and more rows coincide.

**Control.** "coin" is the row dr_grpo, with its rate, paid by a coin.

**What is kept** of a reported run: `curve`, held-out accuracy of sampled completions at equal distances in samples,
from the start on; its mean height `area` (trapezoids); `sampled` and `greedy` after the last update; `entropy`, nats a
token, and `kl`, nats a completion from the start, on the same held-out samples; `updates` that the optimiser made;
`cpu` and `wall` seconds of the training steps, one thread. On the task reviews, where a reward model is trained for,
accuracy is the task's own score and `proxy` the reward model's. A tuning run keeps `sampled` and the seconds.
"""

import argparse
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import recording
import torch
from recording import SEEDS as SEEDS
from recording import record_of
from torch import Tensor
from transformers import PreTrainedModel

from rlhf_minimal import ALGORITHMS, Algorithm, Batch, contrib, policy_loss
from rlhf_minimal.config import Config
from rlhf_minimal.lab.fast import fast
from rlhf_minimal.models import Vocabulary, load_reward_model
from rlhf_minimal.objective import prepare
from rlhf_minimal.sample import Rollout
from rlhf_minimal.tasks import RewardFunction, get_task, model_reward, random_reward
from rlhf_minimal.train import (
    NothingToLearn,
    Recipe,
    compute_logprobs,
    roll_out,
    train_step,
)
from rlhf_minimal.train_state import Learner
from rlhf_minimal.training import load_policy

TUNING = (100, 101)  # seeds on which rates are chosen; SEEDS are reported
POINTS = 6  # of a curve, after the start
HELD_OUT, ON_THE_WAY = (
    1000,
    500,
)  # completions of held-out problems: at the end, and at each point before
CONTROL, CONTROLLED = "coin", "dr_grpo"

CHAPTERS = tuple(name for name in ALGORITHMS if name not in contrib.ALGORITHMS)
OTHERS = (
    "maxrl",
    "opo",
    "dppo",
    "sao",
    "vespo",
)  # each has a cell that no other row has
ROWS = (*CHAPTERS, *OTHERS)


@dataclass(frozen=True)
class Group:
    """A task with its numbers, and the rows that are run on it.

    Attributes:
        task: Its name; the shipped start of that name is where runs begin.
        updates: A rollout: so many minibatches, one pass.
        steps: Rollouts, where nothing is refilled.
        prompts: A rollout.
        group_size: Completions a prompt.
        rates: The four.
        rows: Which.
        reward: What is trained for: the "verifier", or the shipped reward "model".
    """

    task: str
    updates: int
    steps: int
    prompts: int
    group_size: int
    rates: tuple[float, ...]
    rows: tuple[str, ...] = ROWS
    reward: str = "verifier"

    @property
    def rollout(self) -> int:
        """Completions a rollout."""
        return self.prompts * self.group_size

    @property
    def samples(self) -> int:
        """Completions a run."""
        return self.steps * self.rollout


def rates(lowest: float) -> tuple[float, ...]:
    """Four, each twice the one before."""
    return tuple(lowest * 2**i for i in range(4))


LEARNED = ("ppo", "reinforce_pp", "rloo", "grpo", "dr_grpo")
GROUPS = {
    "addition-1": Group("addition", 1, 42, 32, 8, rates(4e-4)),
    "addition-4": Group("addition", 4, 42, 32, 8, rates(2e-4)),
    "clock-1": Group("clock", 1, 42, 16, 8, rates(2e-4)),
    "clock-4": Group("clock", 4, 42, 16, 8, rates(1e-4)),
    "reviews-4": Group("reviews", 4, 30, 32, 4, rates(2e-4), LEARNED, "model"),
}


# ---- rows that take the same steps --------------------------------------------------------------------------------


def gradient(row: Algorithm, batch: Batch) -> Tensor:
    """[B, T] of the policy loss, with respect to the log-probs of a batch that is not prepared yet."""
    ready = prepare(row, batch)
    logp = batch.logp.clone().requires_grad_()
    keep = ready.mask if row.keep is None else ready.mask * kept(row, batch)[:, None]
    if not keep.any():
        return torch.zeros_like(batch.logp)
    ready = replace(ready, mask=keep, totals=None)
    policy_loss(row, replace(ready, logp=logp)).backward()
    assert logp.grad is not None
    return logp.grad


def kept(row: Algorithm, batch: Batch) -> Tensor:
    """[B] the completions on which a row is trained."""
    known = {"truncated": batch.truncated, "group_size": batch.group_size}
    lengths = batch.mask.sum(-1)
    return row.call(
        "keep", batch.rewards, lengths=lengths, budget=batch.budget, **known
    )


def batches(
    on_policy: bool, n: int = 6, *, reward: str = "verifier"
) -> Iterator[Batch]:
    """Batches of every kind that a run can meet: mixed and dead groups, all lengths up to the budget, a policy that
    has left the start, and, unless it is on-policy, the one that sampled. A reward "model" pays real numbers."""
    draw = torch.Generator().manual_seed(0)
    budget, group = 8, 4

    def noise(scale: float) -> Tensor:
        return scale * torch.randn(24, budget, generator=draw, dtype=torch.float64)

    for _ in range(n):
        lengths = torch.randint(1, budget + 1, (24,), generator=draw)
        mask = (torch.arange(budget) < lengths[:, None]).double()
        right = torch.rand(24, generator=draw) < 0.4
        right[:group], right[group : 2 * group] = True, False
        rewards = right.double()
        if reward == "model":
            rewards = torch.randn(24, generator=draw, dtype=torch.float64)
            rewards[:group] = rewards[0]  # a dead group
        logp = -noise(1.0).abs() - 0.1
        yield Batch(
            logp,
            logp if on_policy else logp - noise(0.3),
            mask,
            rewards,
            group,
            ref_logp=logp - noise(0.3),
            values=noise(0.3),
            budget=budget,
            truncated=lengths == budget,
        )


@cache
def gradients(row: Algorithm, on_policy: bool, reward: str) -> Tensor:
    """The `gradient` of a row in all `batches`, one after another."""
    drawn = batches(on_policy, reward=reward)
    return torch.cat([gradient(row, batch).flatten() for batch in drawn])


def coincide(
    one: Algorithm, other: Algorithm, *, on_policy: bool, reward: str = "verifier"
) -> bool:
    """Whether the gradients of two rows differ by one constant factor, the same in all `batches`."""
    if (one.keep is None) != (other.keep is None):
        return False  # one refills, and the other does not
    if ("values" in one.needs) != ("values" in other.needs):
        return False
    first, second = (gradients(row, on_policy, reward) for row in (one, other))
    factor = first.norm() / second.norm()
    return bool((first - factor * second).abs().max() < 1e-9 * first.abs().max())


@cache
def partners(
    names: tuple[str, ...], updates: int, reward: str = "verifier"
) -> dict[str, str]:
    """row -> the first row of the group whose steps it takes; for most, itself."""
    found: dict[str, str] = {}
    for name in names:
        runs = dict.fromkeys(found.values())
        same = (
            one
            for one in runs
            if coincide(
                ALGORITHMS[one],
                ALGORITHMS[name],
                on_policy=updates == 1,
                reward=reward,
            )
        )
        found[name] = next(same, name)
    return found


def shared(group: Group) -> dict[str, str]:
    """The `partners` of a group's rows."""
    return partners(group.rows, group.updates, group.reward)


# ---- the plan -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """A run of the plan. One that is reported has no rate before those of its tuning are on file."""

    group: str
    row: str
    seed: int
    lr: float | None

    def of(self, run: dict[str, Any]) -> bool:
        """Whether a run on file is this one."""
        same = (run["group"], run["row"], run["seed"]) == (
            self.group,
            self.row,
            self.seed,
        )
        return same and self.lr in (None, run["lr"])


def plan(groups: Iterable[str] = GROUPS) -> list[Job]:
    """All runs, in an order of which each beginning is of use: group by group, rates first."""
    jobs = []
    for name in groups:
        group = GROUPS[name]
        own = list(dict.fromkeys(shared(group).values()))
        jobs += [
            Job(name, row, seed, lr)
            for row in own
            for seed in TUNING
            for lr in group.rates
        ]
        jobs += [
            Job(name, row, seed, None) for seed in SEEDS for row in (*own, CONTROL)
        ]
    return jobs


def chosen(runs: list[dict[str, Any]], name: str, row: str) -> float | None:
    """The rate of a row of a group; None while some of its tuning is not on file."""
    group = GROUPS[name]
    if row == CONTROL:
        row = shared(group)[CONTROLLED]
    scores: dict[float, dict[int, float]] = {lr: {} for lr in group.rates}
    for run in runs:
        if (run["group"], run["row"]) == (name, row) and run["seed"] in TUNING:
            scores[run["lr"]][run["seed"]] = run["sampled"]
    if any(len(of) < len(TUNING) for of in scores.values()):
        return None
    return max(group.rates, key=lambda lr: round(sum(scores[lr].values()), 6))


# ---- one run ------------------------------------------------------------------------------------------------------


def shipped(name: str) -> tuple[PreTrainedModel, Vocabulary]:
    """A start."""
    with as_file(files("rlhf_minimal") / "assets" / name) as folder:
        policy, vocabulary = load_policy(folder)
    assert isinstance(vocabulary, Vocabulary)
    return policy, vocabulary


@cache
def learned_reward() -> RewardFunction:
    """That of the shipped reward model."""
    with as_file(files("rlhf_minimal") / "assets" / "reviews-reward") as folder:
        return model_reward(load_reward_model(folder))


def recipe(name: str, row: str, seed: int, lr: float) -> Recipe:
    """All that stays the same in a run."""
    group = GROUPS[name]
    config = Config(
        steps=group.steps,
        prompts=group.prompts,
        group_size=group.group_size,
        minibatches=group.updates,
        lr=lr,
        grad_clip=1e9,
        watch_kl="off",
        seed=seed,
    )
    reward = learned_reward() if group.reward == "model" else None
    if row == CONTROL:
        row, reward = CONTROLLED, random_reward(seed)
    return fast(Recipe(ALGORITHMS[row], get_task(group.task), config, reward))


def held_out(
    learner: Learner, what: Recipe, n: int = HELD_OUT, *, temperature: float = 1.0
) -> Rollout:
    """Completions of held-out problems, the same ones in all runs; one each, or more where there are fewer problems."""
    problems = what.task.problems("held_out", n, seed="rows", distinct=True)
    return roll_out(
        learner.policy,
        learner.vocabulary,
        problems,
        what,
        group_size=n // len(problems) if temperature else 1,
        temperature=temperature,
        seed="rows",
    )


def run(
    name: str, row: str, seed: int, lr: float, *, points: int = POINTS
) -> dict[str, Any]:
    """One run, as it is recorded.

    Args:
        name: Of the group.
        row: Which.
        seed: One of TUNING, or else it is a reported run.
        lr: The learning rate.
        points: To stop after so many points of the curve.
    """
    group, what = GROUPS[name], recipe(name, row, seed, lr)
    policy, vocabulary = shipped(what.task.start or what.task.name)
    learner = Learner.begin(policy, vocabulary, what.algorithm, what.config)
    whole = seed not in TUNING
    curve: list[float] = []
    spent = updates = 0
    cpu = wall = 0.0

    def count(step: int, rollout: Rollout) -> None:
        nonlocal spent
        spent += len(rollout.texts)

    for point in range(points + 1):
        due = point * group.samples // POINTS
        while spent < due:
            left = (
                due - spent
            ) // group.rollout - 1  # a point of the curve waits for no refill
            ask = replace(what, config=replace(what.config, max_refills=min(left, 8)))
            clocks = time.process_time(), time.perf_counter()
            try:
                train_step(learner, ask, on_rollout=count)
                updates += group.updates
            except NothingToLearn:
                learner.step += 1  # on to other problems
            cpu += time.process_time() - clocks[0]
            wall += time.perf_counter() - clocks[1]
        if whole and point < points:
            curve.append(accuracy(held_out(learner, what, ON_THE_WAY)))
    end = held_out(learner, what)
    curve.append(accuracy(end))
    found: dict[str, Any] = {
        "lr": lr,
        "samples": spent,
        "sampled": accuracy(end),
        "cpu": round(cpu, 2),
    }
    if not whole:
        return found
    greedy = accuracy(held_out(learner, what, temperature=0.0))
    inner = sum(curve[1:-1]) + (curve[0] + curve[-1]) / 2
    return {
        **found,
        "greedy": greedy,
        "area": round(inner / (len(curve) - 1), 4),
        **distance(learner, what, end),
        "updates": updates,
        "wall": round(wall, 2),
        "curve": curve,
    }


def accuracy(seen: Rollout) -> float:
    """Share of right completions; where the task has scores instead, their mean."""
    return round(seen.correct.mean().item(), 4)


@torch.no_grad()
def distance(learner: Learner, what: Recipe, seen: Rollout) -> dict[str, float]:
    """Entropy of the policy, and its distance from the start, on its own completions; with the reward, if learned."""
    start, _ = shipped(what.task.start or what.task.name)
    every, config = torch.arange(len(seen.texts)), what.config
    here = compute_logprobs(learner.policy, seen, every, config, bucket_size=None)
    there = compute_logprobs(start, seen, every, config, bucket_size=None)
    mask = seen.mask
    kl = ((here.logp - there.logp) * mask).sum(-1).mean().item()
    found = {
        "entropy": round(((here.entropy * mask).sum() / mask.sum()).item(), 4),
        "kl": round(kl, 3),
    }
    if what.task.score_range is not None:
        found["proxy"] = round(seen.rewards.mean().item(), 4)
    return found


# ---- the record ---------------------------------------------------------------------------------------------------


class Record(recording.Record):
    """The file of runs, in the order of the plan; a claim's number is the place of the run there."""

    def __init__(self, path: Path, script: str = __file__) -> None:
        super().__init__(path, script)

    def keep(self, run: dict[str, Any]) -> None:
        """Writes one more line."""
        order = {
            (job.group, job.row, job.seed, job.lr): at for at, job in enumerate(plan())
        }

        def place(one: dict[str, Any]) -> int:
            key = (one["group"], one["row"], one["seed"])
            return order.get((*key, one["lr"]), order.get((*key, None), len(order)))

        self.add(run, head(), place)


def head() -> dict[str, Any]:
    """What holds for all runs."""
    return {
        "seeds": list(SEEDS),
        "tuning_seeds": list(TUNING),
        "held_out": HELD_OUT,
        "held_out_on_the_way": ON_THE_WAY,
        "points": POINTS,
        "control": CONTROL,
        "groups": {name: of_group(name) for name in GROUPS},
    }


def of_group(name: str) -> dict[str, Any]:
    """The settings of a group, and which row has run for which."""
    group = GROUPS[name]
    found = asdict(group) | {"rows": list(group.rows), "rates": list(group.rates)}
    return found | {
        "samples": group.samples,
        "runs": shared(group),
    }


def work(
    record: Record,
    groups: Iterable[str] = GROUPS,
    do: Callable[..., dict[str, Any]] = run,
    *,
    wait: float = 5.0,
) -> None:
    """Runs what is missing, until nothing is.

    Args:
        record: Where to.
        groups: Only these.
        do: What makes a run.
        wait: Seconds before looking again, where all that is left is under way in other processes.
    """
    chosen_groups = set(groups)
    numbered = [
        (at, job) for at, job in enumerate(plan()) if job.group in chosen_groups
    ]
    while numbered:
        begun = False
        for at, job in list(numbered):
            with record.claim(at) as own:
                if not own:
                    continue
                runs = record.runs()
                if any(
                    job.of(one) and is_reported(one) == (job.lr is None) for one in runs
                ):
                    numbered.remove((at, job))
                    continue
                lr = job.lr or chosen(runs, job.group, job.row)
                if lr is None:
                    continue
                key = {"group": job.group, "row": job.row, "seed": job.seed}
                line = key | do(job.group, job.row, job.seed, lr)
                record.keep(line)
                numbered.remove((at, job))
                begun = True
                single = {k: v for k, v in line.items() if not isinstance(v, list)}
                print(*(f"{k} {v}" for k, v in single.items()), flush=True)
        if numbered and not begun:
            time.sleep(wait)


def is_reported(run: dict[str, Any]) -> bool:
    """Whether a run on file is one of those that are reported."""
    return run["seed"] not in TUNING


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=f"{len(plan())} runs.")
    parser.add_argument("group", nargs="*", help=f"only these: {', '.join(GROUPS)}")
    parser.add_argument("--check", action="store_true", help="only count")
    args = parser.parse_args()
    if unknown := set(args.group) - set(GROUPS):
        parser.error(f"no group {', '.join(sorted(unknown))}")
    torch.set_num_threads(1)
    record = Record(record_of(__file__))
    if args.check:
        done = record.runs()
        for name in GROUPS:
            on_file = sum(one["group"] == name for one in done)
            print(f"{name}: {on_file} of {len(plan([name]))}")
        return
    work(record, args.group or GROUPS)


if __name__ == "__main__":
    main()
