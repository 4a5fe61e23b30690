"""What a library's batch settings mean: what a rollout holds, how many updates it pays for, and which are off-policy.

Read in TRL 1.16.0's sampler and in the documentation of verl and prime-rl, in autumn 2026. It is what the figure
`batch_calculator.mjs` has to equal, in numbers and in what it refuses. `test_batch_calculator.py` holds this to TRL's
own counting and to the settings that `export` writes.
"""

from dataclasses import dataclass
from math import lcm

# library -> its settings, with the numbers that the figure begins with
LIBRARIES = {
    "trl": {
        "per_device_train_batch_size": 8,
        "processes": 1,
        "gradient_accumulation_steps": 4,
        "num_generations": 8,
        "num_iterations": 1,
        "steps_per_generation": 16,
    },
    "verl": {
        "train_batch_size": 128,
        "rollout.n": 8,
        "ppo_mini_batch_size": 32,
        "ppo_epochs": 1,
        "ppo_micro_batch_size_per_gpu": 16,
        "gpus": 8,
    },
    "prime-rl": {"batch_size": 256, "rollouts_per_example": 8, "max_async_level": 1},
}
LEAST = {"max_async_level": 0}  # at 0 sampler and trainer take turns; of all else there is one at least
LARGEST, UPDATES = 10**6, 10**5  # of a setting, and of a cycle


@dataclass(frozen=True)
class Batches:
    """What settings mean, of completions and updates.

    Args:
        prompts: different prompts in a rollout.
        completions: completions in a rollout.
        step: completions in an update of the weights.
        micro: micro-batches of an update, on one device.
        rollouts: in one cycle, after which rollouts and updates begin together again.
        ages: of each update in a cycle: how many updates older than the weights its oldest completions are.
    """

    prompts: int
    completions: int
    step: int
    micro: int
    rollouts: int
    ages: tuple[int, ...]

    @property
    def off_policy(self) -> int:
        """How many updates of a cycle use completions of older weights."""
        return sum(age > 0 for age in self.ages)


def batches(library: str, **settings: int) -> Batches:
    """What a library makes of its batch settings.

    Args:
        library: "trl", "verl" or "prime-rl".
        settings: those of `LIBRARIES`; a dot in a name is written as two underscores. What is left out is as there.

    Returns:
        Numbers of completions and updates.

    Raises:
        ValueError: another library or setting, a number out of range, numbers that do not come out even.

    Example:
        >>> found = batches("trl", gradient_accumulation_steps=4, steps_per_generation=8)
        >>> found.prompts, found.completions, found.step, found.ages
        (8, 64, 32, (0, 1))
    """
    if library not in LIBRARIES:
        raise ValueError(f"expected one of {', '.join(LIBRARIES)}, got {library!r}")
    named = {name.replace("__", "."): value for name, value in settings.items()}
    if unknown := named.keys() - LIBRARIES[library].keys():
        raise ValueError(f"{library} has no {', '.join(sorted(unknown))} here")
    v = {**LIBRARIES[library], **named}
    for name, value in v.items():
        least = LEAST.get(name, 1)
        if type(value) is not int or not least <= value <= LARGEST:
            raise ValueError(f"{name}: expected a whole number from {least} to {LARGEST}, got {value!r}")
    if library == "trl":
        piece = v["per_device_train_batch_size"] * v["processes"]
        rows, group = piece * v["steps_per_generation"], v["num_generations"]
        _even(rows, group, "completions", "num_generations")
        span = v["steps_per_generation"] * v["num_iterations"]
        micro = v["gradient_accumulation_steps"]
        period = lcm(span, micro)
        return Batches(
            rows // group,
            rows,
            piece * micro,
            micro,
            period // span,
            _ages(span, micro),
        )
    if library == "verl":
        prompts, mini, n = (
            v["train_batch_size"],
            v["ppo_mini_batch_size"],
            v["rollout.n"],
        )
        _even(prompts, mini, "prompts", "ppo_mini_batch_size")
        _even(mini * n, v["gpus"], "completions of an update", "gpus")
        local = mini * n // v["gpus"]
        micro = -(-local // v["ppo_micro_batch_size_per_gpu"])
        updates = prompts // mini * v["ppo_epochs"]
        return Batches(prompts, prompts * n, mini * n, micro, 1, _ages(updates, 1))
    rows, group = v["batch_size"], v["rollouts_per_example"]
    _even(rows, group, "completions", "rollouts_per_example")
    return Batches(rows // group, rows, rows, 1, 1, (v["max_async_level"],))


def _even(whole: int, part: int, what: str, name: str) -> None:
    if whole % part:
        raise ValueError(f"{whole} {what} are no multiple of {name}, {part}: nothing is cut evenly")


def _ages(span: int, micro: int) -> tuple[int, ...]:
    """Of each update in a cycle: a rollout serves `span` micro-batches, and an update takes `micro` of them.

    The oldest completions of an update are those of its first micro-batch: number `first` of the cycle, of the rollout
    that was drawn before micro-batch `drawn`, when `drawn // micro` updates had been made.
    """
    updates = lcm(span, micro) // micro
    if updates > UPDATES:
        raise ValueError("too many updates to count")
    drawn = (first // span * span for first in range(0, updates * micro, micro))
    return tuple(update - start // micro for update, start in enumerate(drawn))
