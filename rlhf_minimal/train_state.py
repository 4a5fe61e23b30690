"""What changes from step to step: the policy, its optimiser, the critic, and what the algorithm compares it with."""

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch
from jaxtyping import Int, Shaped
from torch import Tensor, nn
from transformers import PreTrainedModel

from rlhf_minimal.config import Config
from rlhf_minimal.models import AnyVocabulary, Critic, add_lora, context_length, share_weights, tiny_llama
from rlhf_minimal.objective import Algorithm
from rlhf_minimal.optimizer import new_optimizer
from rlhf_minimal.reward_scaling import RunningScores
from rlhf_minimal.sample import Rollout
from rlhf_minimal.tasks import Problem


class Processes:
    """The processes that share a run: one. `lab.processes` has several, which share rows and add up gradients."""

    count: int = 1

    @property
    def is_main(self) -> bool:
        """Whether this is the process that writes files and prints."""
        return True

    def roll_out(
        self, rollout_fn: Callable[..., Rollout], problems: list[Problem], *, group_size: int, seed: str
    ) -> Rollout:
        """The completions of all problems."""
        return rollout_fn(problems, group_size=group_size, seed=seed)

    def local_rows(self, x: Shaped[Tensor, "n ..."]) -> Int[Tensor, " m"]:
        """The numbers of this process's share of the rows of `x`."""
        return torch.arange(len(x), device=x.device)

    def all_gather(self, share: Shaped[Tensor, "m ..."]) -> Shaped[Tensor, "n ..."]:
        """All rows in order, from each process's share of them."""
        return share

    def all_reduce_sum(self, x: Tensor) -> Tensor:
        """The sum over all processes."""
        return x

    def all_reduce_max(self, x: Tensor) -> Tensor:
        """The largest of all processes, entry by entry."""
        return x

    def all_reduce_any(self, flag: bool) -> bool:
        """Whether the value is true in any process."""
        return flag

    def all_reduce_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Every gradient becomes the sum of all processes' gradients."""

    def barrier(self) -> None:
        """Waits until every process has called this."""

    def close(self) -> None:
        """Closes the connection between them."""


ALONE = Processes()


@dataclass
class Learner:
    """All that changes while training: what a checkpoint holds and `--resume` restores.

    Attributes:
        policy: The model being trained.
        vocabulary: Its vocabulary.
        start: The policy as it was at the beginning, for the KL that the metrics report. None if nothing reads it:
            neither a metric (`Config.watch_kl`) nor a KL term nor a LoRA, to which it costs no weights.
        reference: What the algorithm's KL terms are measured against; the same object as `start` while frozen, a
            teacher if there is one, and None if it moves and there are no such terms.
        optimizer: The policy's, and the value head's if the trunk is shared.
        critic: Present if the algorithm needs values.
        critic_optimizer: The critic's; None if the trunk is shared.
        mean_reward: Moving average of past rewards, the "ema" baseline.
        kl_factor: What an adaptive KL controller multiplies the row's coefficients by; 1 while they are fixed.
        scores: Mean and spread of all rewards so far, for `score_scaling="running"`.
        step: Steps taken.
        processes: Those that share the run; this one alone unless several were launched.
    """

    policy: PreTrainedModel
    vocabulary: AnyVocabulary
    start: PreTrainedModel | None
    reference: PreTrainedModel | None
    optimizer: torch.optim.Optimizer
    critic: Critic | None = None
    critic_optimizer: torch.optim.Optimizer | None = None
    mean_reward: float = 0.0
    kl_factor: float = 1.0
    scores: RunningScores = field(default_factory=RunningScores)
    step: int = 0
    processes: Processes = ALONE
    needs_teacher: bool = False  # then no checkpoint holds it

    @classmethod
    def begin(
        cls,
        policy: PreTrainedModel,
        vocabulary: AnyVocabulary,
        algorithm: Algorithm,
        config: Config,
        critic_start: PreTrainedModel | None = None,
        teacher: PreTrainedModel | None = None,
    ) -> "Learner":
        """A learner at step 0; `policy` will be trained in place.

        Args:
            policy: The model to train.
            vocabulary: Its vocabulary.
            algorithm: A row of the table.
            config: The numbers.
            critic_start: The model with whose body the critic begins, in place of the policy's; it must read the
                policy's tokens. It is copied.
            teacher: A model in the reference's place, which reads the policy's tokens. It is frozen, and moved to the
                policy's device.

        Raises:
            ValueError: If the config asks of the algorithm what it does not have (`Config.check_fits`). If a
                `critic_start` is given where there is no critic, where the critic is shared, or where the config has a
                size for it. If a teacher is given where nothing reads the reference or where the reference moves, or
                missing where the algorithm learns from nothing else.
        """
        config.check_fits(algorithm)
        check_teacher(algorithm, config, given=teacher is not None)
        critic, critic_optimizer = None, None
        if critic_start is not None:
            check_critic_start(algorithm, config)
        if "values" in algorithm.needs:
            shared, body = config.critic == "shared", critic_start
            if config.value_layers is not None or config.value_width is not None:
                body = _small_body(policy, config)
            critic = Critic(policy, shared=shared, init=config.value_head_init, seed=config.seed, body=body)
            critic.to(policy.device)
            if not shared:
                critic_optimizer = new_optimizer(critic.parameters(), config.value_lr, eps=config.adam_eps)
        start, reference = _frozen_copies(policy, config, needed="ref_logp" in algorithm.needs and teacher is None)
        if teacher is not None:
            reference = teacher.requires_grad_(False).eval().to(policy.device)
        trained = [weight for weight in policy.parameters() if weight.requires_grad]
        if critic is not None and critic.shared:
            trained += critic.parameters()
        optimizer = new_optimizer(trained, config.lr, eps=config.adam_eps)
        learner = cls(policy, vocabulary, start, reference, optimizer, critic, critic_optimizer)
        learner.needs_teacher = teacher is not None
        return learner


def check_critic_start(algorithm: Algorithm, config: Config) -> None:
    """Refuses a start for the critic where nothing would read it.

    Raises:
        ValueError: If there is no critic, if it shares the policy's body, or if the config has a size for it.
    """
    sized = config.value_layers is not None or config.value_width is not None
    if "values" not in algorithm.needs or config.critic == "shared" or sized:
        raise ValueError(
            'critic_start is for an algorithm with a critic, such as ppo, with critic="separate" and without '
            "value_layers and value_width, since a start has a size of its own: leave one of them out"
        )


def check_teacher(algorithm: Algorithm, config: Config, *, given: bool) -> None:
    """Refuses a teacher that nothing reads, and an algorithm that has nothing else to learn from.

    Raises:
        ValueError: See there.
    """
    if not given and algorithm.needs_teacher:
        raise ValueError(
            "this algorithm learns from a teacher alone, whose log-probs pay each token: give one, --teacher FOLDER "
            "or Learner.begin(..., teacher=model)"
        )
    if given and "ref_logp" not in algorithm.needs:
        raise ValueError("nothing reads a teacher: this algorithm has no KL against a reference; take opd, or add one")
    if given and config.reference != "frozen":
        raise ValueError(f"a teacher stands still: reference={config.reference!r} would move it; leave one of them out")


def _small_body(policy: PreTrainedModel, config: Config) -> PreTrainedModel:
    """A critic's body of a size of its own, with random weights."""
    text = policy.config.get_text_config()
    layers, width = config.value_layers or 2, config.value_width or 64
    length = context_length(policy)
    return tiny_llama(text.vocab_size, width=width, layers=layers, max_length=length, seed=config.seed)


def _frozen_copies(
    policy: PreTrainedModel, config: Config, *, needed: bool
) -> tuple[PreTrainedModel | None, PreTrainedModel | None]:
    """The start and the reference, where something reads them; a LoRA is put into the policy between the two.

    Args:
        policy: Changed in place if the config asks for a LoRA.
        config: What is reported and what the reference does.
        needed: Whether the algorithm has a KL against the reference.
    """
    start: PreTrainedModel | None = None
    if config.lora_rank is not None:
        start = share_weights(policy.requires_grad_(False))  # the very weights of the policy, which no step changes
        add_lora(policy, rank=config.lora_rank, alpha=config.lora_alpha, seed=config.seed)
    elif config.watch_kl == "on" or (needed and config.reference == "frozen"):
        start = copy.deepcopy(policy).requires_grad_(False)
    if config.reference == "frozen":
        return start, start
    if not needed:
        return start, None
    copied = copy.deepcopy(policy) if config.lora_rank is None else share_weights(policy)
    return start, copied.requires_grad_(False)
