"""Bugs put into a training run, one at a time, with the library left as it is.

A disease changes what a run is made of: a cell of the row, a number of the config, the way completions are read, the
function that takes the update. So every sick run is the library's own loop with one thing wrong, and its metrics are
what somebody with that bug would see. `rlhf_minimal.lab.diagnosis` has to name the cause from them.
"""

import copy
import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.resources import as_file, files
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from rlhf_minimal import ALGORITHMS, KL, Algorithm
from rlhf_minimal.config import Config
from rlhf_minimal.functional import advantages
from rlhf_minimal.functional.masked import last_token, sequence_mean
from rlhf_minimal.lab.fast import Fast, fast, plain
from rlhf_minimal.metrics import Metrics
from rlhf_minimal.objective import Batch, NotFinite
from rlhf_minimal.optimizer import new_optimizer
from rlhf_minimal.sample import Samples
from rlhf_minimal.sample import sample as library_sample
from rlhf_minimal.tasks import RewardFunction, Task, get_task
from rlhf_minimal.train import PolicyOutput, Recipe, train_step, update
from rlhf_minimal.train_state import Learner
from rlhf_minimal.training import load_policy


@dataclass(frozen=True)
class Setting:
    """What a run trains when nothing is wrong with it.

    Attributes:
        row: A row of the table.
        task: A task's name; the shipped start that fits is where the run begins.
        config: The numbers; a run sets the seed.
        cut: A token budget that ends most right completions of the task early.
    """

    row: str
    task: str
    config: Config
    cut: int = 3


@dataclass
class Patient:
    """The parts of one run, which a disease changes.

    Attributes:
        algorithm: The row.
        task: Problems and verifier.
        config: The numbers.
        cut: As in `Setting`.
        reward: In place of the verifier, if anything.
        reading: How completions are read; None: all at once, as they come.
        sampler: How they are sampled.
        change: What is done to a prepared batch before the update.
        begun: What is done to the learner before the first step.
    """

    algorithm: Algorithm
    task: Task
    config: Config
    cut: int = 3
    reward: RewardFunction | None = None
    reading: Fast | None = Fast()
    sampler: Callable[..., Samples] = library_sample
    change: Callable[[Batch], Batch] = field(default=lambda batch: batch)
    begun: Callable[[Learner], None] = field(default=lambda learner: None)


@dataclass(frozen=True)
class Disease:
    """One bug.

    Attributes:
        id: Its name in the record.
        what: What is wrong, in words.
        cause: Which cause of `rlhf_minimal.lab.diagnosis.CAUSES` is the right answer; None for a bug that leaves
            no trace in the metrics of these runs.
        infect: Puts it into a run.
        needs: What the row must have: "kl", "group" or "critic".
    """

    id: str
    what: str
    cause: str | None
    infect: Callable[[Patient], None]
    needs: str | None = None


# ── cells of the row ─────────────────────────────────────────────────────────────────────────────────────────────────


def around(
    cell: Callable[..., Tensor], outer: Callable[..., Tensor]
) -> Callable[..., Tensor]:
    """A cell that calls another: outer(cell, *fixed, **context), and declares what that one declares."""

    @functools.wraps(cell)
    def wrapped(*fixed: Any, **context: Any) -> Tensor:
        return outer(cell, *fixed, **context)

    return wrapped


def _cell(column: str, outer: Callable[..., Tensor]) -> Callable[[Patient], None]:
    def infect(patient: Patient) -> None:
        cell = around(getattr(patient.algorithm, column), outer)
        changed: dict[str, Any] = {column: cell}
        patient.algorithm = replace(patient.algorithm, **changed)

    return infect


def _flipped(cell: Callable[..., Tensor], *fixed: Any, **context: Any) -> Tensor:
    return -cell(*fixed, **context)


def _inverted(cell: Callable[..., Tensor], *fixed: Any, **context: Any) -> Tensor:
    return 1 / cell(*fixed, **context)


def _shuffled(
    cell: Callable[..., Tensor], rewards: Tensor, mask: Tensor, **context: Any
) -> Tensor:
    """The reward of another completion, wherever that one ended."""
    order = torch.randperm(len(rewards), generator=torch.Generator().manual_seed(1))
    outcome = rewards.sum(1)[order]
    return cell(last_token(mask) * outcome[:, None], mask, **context)


def _mixed(
    cell: Callable[..., Tensor], rewards: Tensor, mask: Tensor, **context: Any
) -> Tensor:
    """Rows are [P, G] and are taken for [G, P]: a group holds completions of several prompts."""
    size = context["group_size"]
    order = torch.arange(len(rewards)).view(-1, size).T.reshape(-1)
    found = cell(rewards[order], mask[order], **context)
    return torch.empty_like(found).index_copy(0, order, found)


def _kl_times(factor: float) -> Callable[[Patient], None]:
    def infect(patient: Patient) -> None:
        found = patient.algorithm.kl
        terms = tuple(replace(kl, coef=factor * kl.coef) for kl in found)
        patient.algorithm = replace(patient.algorithm, kl=terms)

    return infect


def _entropy(bonus: float) -> Callable[[Patient], None]:
    def infect(patient: Patient) -> None:
        patient.algorithm = replace(patient.algorithm, entropy=bonus)

    return infect


# ── what leaves no trace ─────────────────────────────────────────────────────────────────────────────────────────────


def _other_std(patient: Patient) -> None:
    cell = partial(advantages.group_normalized, ddof=0)
    patient.algorithm = replace(patient.algorithm, advantage=cell)


def _larger(gate: Callable[..., Tensor], ratio: Tensor, advantage: Tensor) -> Tensor:
    clipped = ratio.clamp(0.8, 1.2) * advantage
    return torch.where(
        advantage >= 0,
        gate(ratio, advantage),
        torch.maximum(ratio * advantage, clipped),
    )


def _k1_in_loss(patient: Patient) -> None:
    patient.algorithm = replace(patient.algorithm, kl=(KL(0.04, "k1"),))


# ── numbers ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _rate(factor: float) -> Callable[[Patient], None]:
    def infect(patient: Patient) -> None:
        patient.config = replace(patient.config, lr=factor * patient.config.lr)

    return infect


def _short(patient: Patient) -> None:
    patient.config = replace(patient.config, max_new_tokens=patient.cut)


def _decay(learner: Learner) -> None:
    for group in learner.optimizer.param_groups:
        group["weight_decay"] = 30.0


def _frozen(learner: Learner) -> None:
    others = copy.deepcopy(learner.policy).parameters()
    learner.optimizer = new_optimizer(others, 1e-3, eps=1e-8)


def _frozen_critic(learner: Learner) -> None:
    assert learner.critic_optimizer is not None
    for group in learner.critic_optimizer.param_groups:
        group["lr"] = 0.0


def _aliased(learner: Learner) -> None:
    learner.reference = learner.policy


def _begun(change: Callable[[Learner], None]) -> Callable[[Patient], None]:
    def infect(patient: Patient) -> None:
        patient.begun = change

    return infect


# ── rewards ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _never_right(patient: Patient) -> None:
    patient.task = replace(patient.task, verify=lambda text, problem: 0.0)


def _constant(patient: Patient) -> None:
    patient.reward = lambda *, completions, **columns: [1.0 for _ in completions]


def _hole(patient: Patient) -> None:
    """The share of a text's characters that are its most frequent one."""
    patient.reward = lambda *, completions, **columns: [
        max(map(text.count, text), default=0) / max(len(text), 1)
        for text in completions
    ]


# ── trainer and sampler ──────────────────────────────────────────────────────────────────────────────────────────────


class _AtOne(Fast):
    """Reads at temperature 1, whatever the sampler's is."""

    def read(
        self, policy: Any, groups: Any, rows: Any, config: Config, **more: Any
    ) -> PolicyOutput:
        return super().read(
            policy, groups, rows, replace(config, temperature=1.0), **more
        )


def _sampled_at(temperature: float) -> Callable[[Patient], None]:
    def infect(patient: Patient) -> None:
        patient.config = replace(patient.config, temperature=temperature)
        patient.reading = _AtOne()

    return infect


class _Shifted(Fast):
    """The log-prob of each token stands in the place of the next one."""

    def read(self, *given: Any, **more: Any) -> PolicyOutput:
        reading = super().read(*given, **more)
        return reading._replace(logp=reading.logp.roll(1, dims=1))


def _shifted(patient: Patient) -> None:
    patient.reading = _Shifted()


class _Noisy(Fast):
    """A tenth of every layer's output is dropped while training, and not while sampling."""

    def read(self, policy: PreTrainedModel, *given: Any, **more: Any) -> PolicyOutput:
        def drop(layer: Any, ids: Any, output: Any) -> Any:
            if isinstance(output, tuple):
                return (torch.dropout(output[0], 0.1, True), *output[1:])
            return torch.dropout(output, 0.1, True)

        layers: Any = policy.base_model.layers if torch.is_grad_enabled() else ()
        hooks = [layer.register_forward_hook(drop) for layer in layers]
        try:
            return super().read(policy, *given, **more)
        finally:
            for hook in hooks:
                hook.remove()


def _dropout(patient: Patient) -> None:
    patient.reading = _Noisy()


def _stale(patient: Patient) -> None:
    kept: list[PreTrainedModel] = []
    calls = 0

    def sample(policy: PreTrainedModel, *given: Any, **options: Any) -> Samples:
        nonlocal calls
        if calls % 10 == 0:
            kept[:] = [copy.deepcopy(policy)]
        calls += 1
        return library_sample(kept[0], *given, **options)

    patient.sampler = sample


# ── masks ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _without_end(batch: Batch) -> Batch:
    return replace(batch, mask=batch.mask - last_token(batch.mask))


def _with_padding(batch: Batch) -> Batch:
    assert batch.advantages is not None
    own = sequence_mean(batch.advantages, batch.mask)[:, None]
    wide = torch.where(batch.mask != 0, batch.advantages, own)
    return replace(batch, mask=torch.ones_like(batch.mask), advantages=wide)


def _changed(change: Callable[[Batch], Batch]) -> Callable[[Patient], None]:
    def infect(patient: Patient) -> None:
        patient.change, patient.reading = change, None

    return infect


DISEASES = {
    one.id: one
    for one in (
        Disease(
            "flipped-advantage",
            "the advantage has the other sign",
            "advantage-sign",
            _cell("advantage", _flipped),
        ),
        Disease(
            "shuffled-rewards",
            "each completion gets the reward of another one",
            "rewards-misplaced",
            _cell("advantage", _shuffled),
        ),
        Disease(
            "mixed-groups",
            "a group holds completions of several prompts",
            "groups-mixed",
            _cell("advantage", _mixed),
            needs="group",
        ),
        Disease(
            "inverted-ratio",
            "old policy / policy in place of policy / old policy",
            "ratio-inverted",
            _cell("ratio", _inverted),
        ),
        Disease("rate-high", "learning rate times 30", "rate-high", _rate(30.0)),
        Disease("rate-low", "learning rate times 0.01", "rate-low", _rate(0.01)),
        Disease(
            "frozen-weights",
            "the optimiser holds the weights of a copy",
            "weights-frozen",
            _begun(_frozen),
        ),
        Disease(
            "never-right",
            "the verifier expects a form that is never written",
            "never-right",
            _never_right,
        ),
        Disease("short-budget", "the budget ends most completions", "budget", _short),
        Disease(
            "constant-reward",
            "every completion earns 1",
            "reward-constant",
            _constant,
        ),
        Disease(
            "reward-hole",
            "the reward is for one character, again and again",
            "reward-hole",
            _hole,
        ),
        Disease(
            "temperature",
            "sampled at 0.6, trained at 1",
            "temperature",
            _sampled_at(0.6),
        ),
        Disease(
            "stale-sampler",
            "the sampler gets new weights every ten steps",
            "stale-sampler",
            _stale,
        ),
        Disease(
            "shifted-logp",
            "log-probs are shifted by one token",
            "logp-shifted",
            _shifted,
        ),
        Disease("dropout", "dropout of 0.1 while training", "dropout", _dropout),
        Disease(
            "untrained-end",
            "the last token of a completion is masked",
            "end-untrained",
            _changed(_without_end),
        ),
        Disease(
            "trained-padding",
            "the padding is trained",
            "padding-trained",
            _changed(_with_padding),
        ),
        Disease(
            "kl-high", "KL coefficient times 100", "leash", _kl_times(100.0), needs="kl"
        ),
        Disease(
            "aliased-reference",
            "the reference is the policy itself",
            "reference-aliased",
            _begun(_aliased),
            needs="kl",
        ),
        Disease(
            "weight-decay",
            "weight decay of 30 in place of 0",
            "weight-decay",
            _begun(_decay),
        ),
        Disease("entropy-bonus", "entropy bonus of 1", "entropy-bonus", _entropy(1.0)),
        Disease(
            "frozen-critic",
            "the critic's learning rate is 0",
            "critic-frozen",
            _begun(_frozen_critic),
            needs="critic",
        ),
        Disease("other-std", "the group's spread is divided by G", None, _other_std),
        Disease(
            "larger-of-two",
            "max in place of min for bad completions",
            None,
            _cell("gate", _larger),
        ),
        Disease("k1-in-loss", "k1 as the KL term of a loss", None, _k1_in_loss),
    )
}

# The same bugs at doses that somebody might choose; they came after the score.
MILD = {
    one.id: one
    for one in (
        Disease("rate-x5", "learning rate times 5", "rate-high", _rate(5.0)),
        Disease("rate-x0.1", "learning rate times 0.1", "rate-low", _rate(0.1)),
        Disease("entropy-0.3", "entropy bonus of 0.3", "entropy-bonus", _entropy(0.3)),
        Disease(
            "temperature-0.9",
            "sampled at 0.9, trained at 1",
            "temperature",
            _sampled_at(0.9),
        ),
        Disease(
            "temperature-0.97",
            "sampled at 0.97, trained at 1",
            "temperature",
            _sampled_at(0.97),
        ),
        Disease("kl-x9", "KL coefficient times 9", "leash", _kl_times(9.0), needs="kl"),
    )
}


def begin(
    setting: Setting, disease: str | None, seed: int
) -> tuple[Learner, Recipe, Callable[[Batch], Batch]]:
    """A learner at the shipped start, what it trains, and what happens to its batches.

    Args:
        setting: What is trained.
        disease: The bug that is put in; None for a healthy run.
        seed: Of everything random.
    """
    torch.manual_seed(seed)  # for dropout alone: the loop draws from its own seeds
    patient = Patient(
        ALGORITHMS[setting.row],
        get_task(setting.task),
        replace(setting.config, seed=seed),
        setting.cut,
    )
    if disease is not None:
        (DISEASES | MILD)[disease].infect(patient)
    recipe = Recipe(
        patient.algorithm,
        patient.task,
        patient.config,
        patient.reward,
        sample=patient.sampler,
    )
    how = patient.reading
    recipe = plain(recipe) if how is None else fast(recipe, how)
    with as_file(
        files("rlhf_minimal") / "assets" / (patient.task.start or patient.task.name)
    ) as folder:
        policy, vocabulary = load_policy(folder)
    # Loading drew a model's first weights when these runs were recorded; dropout's noise comes after those draws.
    torch.manual_seed(seed)
    AutoModelForCausalLM.from_config(policy.config)
    learner = Learner.begin(policy, vocabulary, recipe.algorithm, recipe.config)
    patient.begun(learner)
    return learner, recipe, patient.change


def run(
    setting: Setting, disease: str | None, seed: int, steps: int | None = None
) -> list[Metrics]:
    """The metrics of a run, healthy or not; fewer steps than asked if its numbers are not finite any more.

    Args:
        setting: What is trained.
        disease: The bug that is put in; None for none.
        seed: Of everything random.
        steps: How many; default: the config's.
    """
    learner, recipe, change = begin(setting, disease, seed)

    def updater(
        learner: Learner, recipe: Recipe, groups: Any, batch: Batch, step: int
    ) -> Metrics:
        return update(learner, recipe, groups, change(batch), step)

    history: list[Metrics] = []
    while learner.step < (steps or recipe.config.steps):
        try:
            history.append(train_step(learner, recipe, update=updater))
        except (
            NotFinite
        ):  # nothing else ends a run early: a bug that is refused is an error
            break
    return history
