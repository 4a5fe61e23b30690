"""The recorded runs of the chapter `from-zero`: the same loop with the lines of six methods, and a coin.

    python notebooks/results/from_zero.py         runs what is not yet recorded (42 runs)
    python notebooks/results/from_zero.py GRPO    only the methods named

Writes notebooks/results/from-zero.json, a line a run. Seed s imitates the teacher with seed s; every method starts
from that one model and meets the same questions, none of which was imitated. Nothing differs but the advantage, the loss and the updates on
each batch: 60 steps of 16 prompts x 16 completions, AdamW at 8e-4, gradient norm at most 1. The learning rate was
chosen for GRPO, and the other methods got it as it is.

Which seeds are shown: 0 to 4, but a start whose imitation loss is above 0.16, the limit at which the chapter's cell
stops and advises another seed, is replaced by the next seed. So 5 stands for 4. The limit is older than the runs of seed
5; that they replace those of seed 4 was decided when the latter were known and the former were not. Both are recorded,
and the head says which was replaced.
"""

import copy
import time
from functools import cache
from typing import Any

from recording import record

from rlhf_book.loop import METHODS, imitate, new_model, train

COIN = "GRPO, reward from a coin"
STEPS, PROMPTS, GROUP = 60, 16, 16
LIMIT = 0.16  # nats per token: an imitation with a larger loss has not worked
SEEDS, REPLACED = range(6), {"4": 5}  # a test compares the second with the losses


@cache
def begin(seed: int) -> tuple[Any, float]:
    """The model after imitation, and its loss."""
    model = new_model(seed)
    return model, imitate(model, seed=seed)


def run(arm: str, seed: int, steps: int = STEPS) -> dict[str, Any]:
    """One run, as it is recorded."""
    start, loss = begin(seed)
    advantage, loss_of, updates = METHODS["GRPO" if arm == COIN else arm]
    began = time.process_time()
    history = train(
        copy.deepcopy(start),
        advantage,
        loss_of,
        updates,
        steps=steps,
        prompts=PROMPTS,
        group=GROUP,
        seed=seed,
        coin=arm == COIN,
    )
    seconds = round(time.process_time() - began, 1)
    return {
        "imitation_loss": round(loss, 4),
        "cpu_seconds": seconds,
        "right": [round(x * PROMPTS * GROUP) for x in history],
    }


if __name__ == "__main__":
    record(
        __file__,
        [*METHODS, COIN],
        run,
        seeds=SEEDS,
        steps=STEPS,
        completions_a_step=PROMPTS * GROUP,
        group_size=GROUP,
        imitation_limit=LIMIT,
        replaced=REPLACED,
    )
