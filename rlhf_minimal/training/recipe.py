"""What stays the same throughout a run: an algorithm, a task, a reward, the numbers, and how the work is done."""

from collections.abc import Callable
from dataclasses import dataclass

from rlhf_minimal.objective import Algorithm
from rlhf_minimal.tasks import RewardFunction, StepReward, Task
from rlhf_minimal.training.config import Config
from rlhf_minimal.training.fast import Fast
from rlhf_minimal.training.reading import Plain
from rlhf_minimal.training.sampler import Samples


@dataclass(frozen=True)
class Recipe:
    """Everything that stays fixed while a `Learner` changes: the objective, the task, the reward and the numbers.

    Args:
        algorithm: A row of the table, or a variant of one.
        task: Problems and their verifier.
        config: The numbers.
        reward: What to train for, in TRL's calling form (see `tasks.rewards`); None takes the task's own verifier.
        reading: How completions are sampled and read; for measurements, `Fast` with some of its options switched off.
            None follows `Config.fast`.
        sampler: Another sampling function, called like `training.sample`, such as `extras.compiled.sample_compiled`.
        step_reward: Marks for the steps of a completion, besides the reward for its outcome (see `tasks.rewards`);
            `checked_steps(task)` is the task's own checker. The row's advantage decides what they pay.

    Raises:
        ValueError: If the config asks of the algorithm what it does not have (`Config.check_fits`), or if it asks for
            compiled decoding and no sampler is given; if the algorithm pays for steps and nothing marks them.

    Example:
        >>> from rlhf_minimal import ALGORITHMS
        >>> from rlhf_minimal.tasks import get_task
        >>> Recipe(ALGORITHMS["grpo"], get_task("addition")).budget
        8
    """

    algorithm: Algorithm
    task: Task
    config: Config = Config()
    reward: RewardFunction | None = None
    reading: Plain | None = None
    sampler: Callable[..., Samples] | None = None
    step_reward: StepReward | None = None

    def __post_init__(self) -> None:
        self.config.check_fits(self.algorithm)
        if "step_ends" in self.algorithm.needs and self.step_reward is None:
            raise ValueError(
                "this algorithm pays for single steps, and nothing marks them: give a step reward, "
                "Recipe(..., step_reward=checked_steps(task)), or --step-reward on the command line"
            )
        if self.config.decoding == "compiled" and self.sampler is None:
            raise ValueError(
                'decoding="compiled" is done by a sampler: Recipe(..., sampler=extras.compiled.sample_compiled)'
            )

    @property
    def reader(self) -> Plain:
        """How completions are sampled and read; this alone chooses between the fast path and the plain one."""
        return self.reading or (Fast() if self.config.fast == "on" else Plain())

    @property
    def budget(self) -> int:
        """Largest number of tokens of a completion."""
        return self.config.max_new_tokens or self.task.max_new_tokens
