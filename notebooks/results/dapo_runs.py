"""The recorded runs of the chapter on DAPO: each of its four parts taken out alone, and what keeps the entropy.

    python notebooks/results/dapo_runs.py            runs what is not yet recorded
    python notebooks/results/dapo_runs.py coin none  only the arms named

Writes notebooks/results/dapo-runs.json, a line a run. Every run begins with the shipped start of the task clock, may
write 32 tokens (a problem of 14 moves, the longest, is worked and answered with 31), and ends with the first step after
which at least `SAMPLES` completions have been sampled. Those of dropped groups count: a step samples 8 prompts of 8
completions, and as many again for each round that the filter makes necessary. Each step's rollout is trained on in two
passes of two minibatches. Learning rate, passes and budget were chosen on seed 100 alone, with the row
dapo and the arm "none". Seeds 0 to 4 were fixed beforehand and all are recorded.

The ablation. "dapo" is the row. The next four leave out one part each, and differ from it in one cell:

    no-higher   the upper clip bound is 0.2, as the lower one
    no-filter   every group is trained on
    no-token    a mean within each completion, then over completions
    no-overlong the reward is not shaped

"coin" is the row with the toss of a coin for a reward. "none" has none of the four parts.

Remedies for the loss of entropy, each one change of "none":

    higher      the upper clip bound is 0.28
    bonus       an entropy bonus of 0.01
    once        one pass of one minibatch over each rollout, so one update for four
    high        only the fifth of each minibatch's tokens with the highest entropy is trained on

"prompt" is the row with its loss as the paper prints it: a mean over the tokens of a prompt's group, then over prompts.

By step, of all that it sampled, before its update: `samples`, the completions drawn up to and with it; the share that
the verifier calls right; the mean length, of the right and of the wrong; the share that ran into the budget;
`surprisal`, the mean of -log pi over all sampled tokens, which estimates the entropy of the sampler whatever is dropped
later; groups of equal rewards. Of the updates: the share of tokens to which gate or trust give no gradient.
"""

import time
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import as_file, files
from typing import Any

from recording import SEEDS as SEEDS
from recording import record

from rlhf_minimal import ALGORITHMS, Algorithm, contrib
from rlhf_minimal.config import Config
from rlhf_minimal.functional import aggregation, gates
from rlhf_minimal.lab.fast import fast
from rlhf_minimal.metrics import Metrics
from rlhf_minimal.sample import Rollout
from rlhf_minimal.tasks import get_task, random_reward
from rlhf_minimal.train import Recipe, train
from rlhf_minimal.train_state import Learner
from rlhf_minimal.training import load_policy

SAMPLES = 2048  # completions of a run
CONFIG = Config(
    steps=10_000,  # a run ends by SAMPLES
    prompts=8,
    group_size=8,
    epochs=2,
    minibatches=2,
    lr=4e-4,
    max_new_tokens=32,
    watch_kl="off",
)
ROUND = CONFIG.prompts * CONFIG.group_size  # completions of one round of sampling

KEPT = (
    "accuracy",
    "length",
    "length_right",
    "length_wrong",
    "truncated",
    "dead_groups",
    "clip_fraction",
)


@dataclass(frozen=True)
class Arm:
    """What a run trains with.

    Attributes:
        algorithm: The row.
        config: The numbers; a run sets the seed.
        coin: Whether a coin decides the rewards.
    """

    algorithm: Algorithm
    config: Config = CONFIG
    coin: bool = False


DAPO = ALGORITHMS["dapo"]
SYMMETRIC = partial(gates.clip, low=0.2, high=0.2)
NONE = replace(
    DAPO,
    gate=SYMMETRIC,
    aggregate=aggregation.sequence_mean,
    shape=None,
    keep=None,
)

ARMS = {
    "dapo": Arm(DAPO),
    "no-higher": Arm(replace(DAPO, gate=SYMMETRIC)),
    "no-filter": Arm(replace(DAPO, keep=None)),
    "no-token": Arm(replace(DAPO, aggregate=aggregation.sequence_mean)),
    "no-overlong": Arm(replace(DAPO, shape=None)),
    "none": Arm(NONE),
    "coin": Arm(DAPO, coin=True),
    "higher": Arm(replace(NONE, gate=DAPO.gate)),
    "bonus": Arm(replace(NONE, entropy=0.01)),
    "once": Arm(NONE, replace(CONFIG, epochs=1, minibatches=1)),
    "high": Arm(replace(NONE, trust=partial(contrib.trust.high_entropy, share=0.2))),
    "prompt": Arm(replace(DAPO, aggregate=contrib.aggregation.prompt_mean)),
}


def recipe(arm: str, seed: int) -> Recipe:
    """All that stays the same in a run."""
    what = ARMS[arm]
    reward = random_reward(seed) if what.coin else None
    return fast(
        Recipe(
            what.algorithm, get_task("clock"), replace(what.config, seed=seed), reward
        )
    )


def surprisal(rollout: Rollout) -> float:
    """Mean of -log pi over the sampled tokens, in nats: its expectation is the sampler's entropy per token."""
    return float(-(rollout.logp * rollout.mask).sum() / rollout.mask.sum())


def learn(
    arm: str, seed: int, samples: int = SAMPLES
) -> tuple[Learner, dict[str, list[Any]]]:
    """A run until that many completions are sampled: the learner at its end, and what was seen at each step."""
    plan = recipe(arm, seed)
    with as_file(files("rlhf_minimal") / "assets" / "clock") as folder:
        policy, vocabulary = load_policy(folder)
    learner = Learner.begin(policy, vocabulary, plan.algorithm, plan.config)
    seen: dict[str, list[Any]] = {"samples": [], "surprisal": []}
    seen |= {name: [] for name in KEPT}

    def look(step: int, rollout: Rollout) -> None:
        before = seen["samples"][-1] if step > 1 else 0
        seen["samples"].append(before + len(rollout.texts))
        seen["surprisal"].append(round(surprisal(rollout), 4))

    def go_on(metrics: Metrics) -> bool:
        for name in KEPT:
            value = metrics.get(name)
            seen[name].append(None if value is None else round(value, 4))
        return bool(seen["samples"][-1] < samples)

    train(learner, plan, go_on, on_rollout=look)
    return learner, seen


def run(arm: str, seed: int) -> dict[str, Any]:
    """One run, as it is recorded."""
    began = time.process_time()
    _, seen = learn(arm, seed)
    return {
        "spent": seen["samples"][-1],
        "updates": len(seen["samples"]),
        "seconds": round(time.process_time() - began, 1),
        **seen,
    }


if __name__ == "__main__":
    record(
        __file__,
        ARMS,
        run,
        samples=SAMPLES,
        prompts=CONFIG.prompts,
        group_size=CONFIG.group_size,
        epochs=CONFIG.epochs,
        minibatches=CONFIG.minibatches,
        lr=CONFIG.lr,
        budget=CONFIG.max_new_tokens,
    )
