"""The online loop: sample, score, prepare, update. One step is `train_step`, and everything else here is its parts.

    task -> collect: completions and rewards -> prepare_batch: log-probs of reference and critic's values are added, and
    `prepare` turns rewards into advantages -> update: epochs x minibatches x micro-batches of `policy_loss`, until the
    policy is too far from the sampler -> end_step: the reference and the KL coefficient are updated

What stays fixed is a `Recipe`, what changes is a `Learner`.

The loop never asks an algorithm for its name. It asks what the algorithm `needs` (a critic? a reference? a baseline?)
and computes that and nothing else; it asks what the algorithm will `keep`, and refills the rest.

Every step draws its problems, samples and shuffles from (seed, step). So there is no random state to save, and a
resumed run repeats the numbers of one that was never interrupted.
"""

import math
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from rlhf_minimal.objective import Batch, NotFinite, policy_loss, prepare, value_loss
from rlhf_minimal.training.config import Config
from rlhf_minimal.training.groups import Rollout, join
from rlhf_minimal.training.kl_control import next_factor, with_kl_factor
from rlhf_minimal.training.learner import Learner
from rlhf_minimal.training.metrics import (
    Metrics,
    clock,
    describe_batch,
    describe_distance,
    describe_rollouts,
    peak_memory,
    sequence_kl,
    weight_norm,
)
from rlhf_minimal.training.optimizers import parameters_of
from rlhf_minimal.training.recipe import Recipe
from rlhf_minimal.training.rollout import collect, parts_of, roll_out
from rlhf_minimal.training.scores import trained_scores
from rlhf_minimal.training.watch import Watch

# A function that trains on a prepared batch: `update`, or another with its arguments (`trpo.trust_region_update`).
Updater = Callable[[Learner, Recipe, Rollout, Batch, int], Metrics] | None
Watcher = Callable[[int, Rollout], object] | None  # sees a step's number and all that was sampled in it


class NothingToLearn(Exception):
    """The algorithm kept no group to train on, for example because each was all right or all wrong."""


def train(
    learner: Learner,
    recipe: Recipe,
    on_step: Callable[[Metrics], bool | None] = lambda metrics: None,
    *,
    updater: Updater = None,
    on_rollout: Watcher = None,
) -> list[Metrics]:
    """Steps until `recipe.config.steps` are done.

    Args:
        learner: Changed in place; a resumed one goes on where it stopped.
        recipe: Algorithm, task, reward and numbers.
        on_step: Called with each step's metrics; training stops early if it returns False.
        updater: As in `train_step`.
        on_rollout: As in `train_step`.

    Returns:
        The metrics of every step taken, in order.

    Raises:
        NothingToLearn, ValueError: As `train_step`.
    """
    history: list[Metrics] = []
    while learner.step < recipe.config.steps:
        history.append(train_step(learner, recipe, updater=updater, on_rollout=on_rollout))
        if on_step(history[-1]) is False:
            break
    return history


def train_step(learner: Learner, recipe: Recipe, *, updater: Updater = None, on_rollout: Watcher = None) -> Metrics:
    """One step of online reinforcement learning, with any row of the table.

    Args:
        learner: Changed in place.
        recipe: Algorithm, task, reward and numbers.
        updater: The function that trains on the prepared batch; default: `update`, minibatches with AdamW.
        on_rollout: Called with the step's number and all that was sampled in it, before the filter and the update: the
            completions themselves, with their rewards and marks.

    Returns:
        The step's metrics; `training.metrics.METRICS` says what each means.

    Raises:
        NothingToLearn: If the algorithm's filter left no group. The learner is as it was before the step.
        NotFinite: If a ratio, a loss or a gradient is not finite: no step is skipped silently.
    """
    device, step = learner.policy.device, learner.step + 1
    began = clock(device)
    groups, sampled = collect(learner.policy, learner.vocabulary, recipe, step, learner.processes)
    if on_rollout is not None:
        on_rollout(step, join(sampled))
    metrics = {"step": step, **describe_rollouts(sampled, recipe)}
    if groups is None:
        raise NothingToLearn(
            f"step {step}: in {len(sampled)} rounds of {recipe.config.prompts} problems the algorithm kept no group "
            f"(mean reward {metrics['reward']:.2f})"
        )
    sampled_at = clock(device)
    if recipe.config.kl_control == "adaptive":
        recipe = replace(recipe, algorithm=with_kl_factor(recipe.algorithm, learner.kl_factor))
    if recipe.config.changes_scores:
        learner.scores.add(groups.rewards)
    batch, distance = prepare_batch(learner, recipe, groups, step)
    metrics |= distance | describe_batch(recipe, sampled, batch)
    prepared_at = clock(device)
    updater = warm_up_critic if step <= recipe.config.value_warm_up else updater or update
    metrics |= updater(learner, recipe, groups, batch, step)
    metrics |= {"sampling_seconds": sampled_at - began, "update_seconds": clock(device) - prepared_at}
    end_step(learner, recipe, batch, metrics["reward"])
    return metrics | {**peak_memory(device), "seconds": clock(device) - began}


@torch.no_grad()
def prepare_batch(learner: Learner, recipe: Recipe, groups: Rollout, step: int) -> tuple[Batch, Metrics]:
    """From a rollout to a prepared batch: everything that is fixed before the first update.

    Only what the algorithm `needs` is computed. The start's log-probs are the exception, since the metrics report
    the distance from it (`Config.watch_kl`); while the reference is the start they are the reference's too, and cost
    nothing extra.

    Returns:
        The batch with its advantages, and how far the policy is from the start: `kl` and `kl_sequence` of `METRICS`,
        and `kl_reference` where the reference is another model.
    """
    needs, config, processes = recipe.algorithm.needs, recipe.config, learner.processes
    logp_of = partial(recipe.reader.logp, groups=groups, config=config, processes=processes)
    old_logp, rewards, distance = groups.logp, groups.rewards, Metrics()
    known: dict[str, Any] = {"truncated": groups.truncated, "budget": recipe.budget}
    is_start = learner.reference is learner.start
    if config.changes_scores:
        rewards = trained_scores(rewards, groups.truncated, learner.scores, config)
    if learner.start is not None and (config.watch_kl == "on" or ("ref_logp" in needs and is_start)):
        start_logp = logp_of(learner.start)  # [B, T]
        distance = describe_distance(groups.logp, start_logp, groups.mask)
    if "ref_logp" in needs:
        assert learner.reference is not None
        known["ref_logp"] = start_logp if is_start else logp_of(learner.reference)
        if not is_start:
            distance["kl_reference"] = describe_distance(groups.logp, known["ref_logp"], groups.mask)["kl"]
    if "sampler_logp" in needs:  # the same tokens' log-probs in the trainer's own computation, and in the sampler's
        old_logp, known["sampler_logp"] = logp_of(learner.policy), groups.logp
    if learner.critic is not None:
        own = recipe.reader.values(learner.critic, groups, processes.own_rows(groups.mask), config)
        known["values"] = processes.gather(own)
    if "baseline" in needs:  # what to expect of a row before it was sampled: never its own reward
        known["baseline"] = torch.full_like(groups.rewards, learner.mean_reward)
        if config.baseline == "greedy":
            known["baseline"] = _greedy_rewards(learner, recipe, groups, step)
    if "greedy_rewards" in needs:
        known["greedy_rewards"] = _greedy_rewards(learner, recipe, groups, step)
    if "reward_parts" in needs:
        known["reward_parts"] = parts_of(recipe, groups)
    known |= groups.with_outcome(rewards) if recipe.step_reward else {}
    if "entropy" in needs:
        known["entropy"] = torch.zeros_like(old_logp)  # a placeholder, like the first argument: `update` replaces both
    batch = Batch(old_logp, old_logp, groups.mask, rewards, config.group_size, **known)
    return prepare(recipe.algorithm, batch), distance


def update(learner: Learner, recipe: Recipe, groups: Rollout, batch: Batch, step: int) -> Metrics:
    """Inner epochs over one rollout: each pass shuffles the rows and cuts them into minibatches.

    A minibatch is one optimiser step. Micro-batches only cut its forward and backward into pieces that fit in
    memory: they carry the minibatch's denominators, so their losses and gradients add up to its own. Several processes
    share a minibatch in the same way.

    With a target KL, a minibatch on which the policy is already further from the sampler is not stepped on, and all
    that would have followed is left out; of the critic's updates too, unless it has epochs or minibatches of its own.

    Returns:
        The metrics that belong to the update.
    """
    watch = Watch(learner.processes, target_kl=recipe.config.target_kl)
    for rows, minibatch in cut(recipe, batch, step, recipe.config.epochs, recipe.config.minibatches):
        for micro_rows, micro in micro_batches(learner, recipe, minibatch):
            _forward_backward(learner, recipe, groups, rows[micro_rows], micro, watch)
        if not _step_policy(learner, recipe.config, watch, step):
            break
    watch.value_losses += fit_critic(learner, recipe, groups, batch, step, early_stop=watch.early_stop)
    return watch.metrics() | {"weight_norm": weight_norm(learner.policy)}


def warm_up_critic(learner: Learner, recipe: Recipe, groups: Rollout, batch: Batch, step: int) -> Metrics:
    """The update of a step in which the critic alone is trained."""
    losses = fit_critic(learner, recipe, groups, batch, step)
    return {"value_loss": sum(losses) / max(len(losses), 1)}


def fit_critic(
    learner: Learner, recipe: Recipe, groups: Rollout, batch: Batch, step: int, *, early_stop: int | None = None
) -> list[float]:
    """Trains a critic with a body of its own on a prepared batch, in epochs of minibatches; the policy is not read.

    Args:
        learner: Its critic is changed; nothing happens if it has none, or one that shares the policy's body.
        recipe: The numbers, `value_epochs` and `value_minibatches` among them.
        groups: The rollout.
        batch: The same, prepared: its returns are the targets.
        step: Seed of the shuffles, with the config's; the policy's minibatches are cut in the same way.
        early_stop: Number of the minibatch at which the policy's updates ended, if they did: the critic's end there
            too, unless it has epochs or minibatches of its own.

    Returns:
        The value loss of each optimiser step.
    """
    critic, optimizer, config, losses = learner.critic, learner.critic_optimizer, recipe.config, list[float]()
    if critic is None or optimizer is None:
        return losses
    epochs, minibatches = config.value_epochs or config.epochs, config.value_minibatches or config.minibatches
    stop = None if not early_stop or config.value_epochs or config.value_minibatches else early_stop - 1
    for rows, minibatch in islice(cut(recipe, batch, step, epochs, minibatches), stop):
        total = torch.zeros(1, dtype=torch.float64)
        for micro_rows, micro in micro_batches(learner, recipe, minibatch):
            loss = critic_loss_of(recipe.reader.values(critic, groups, rows[micro_rows], config), micro, config)
            loss.backward()
            total += loss.item()
        learner.processes.add_gradients(parameters_of(optimizer))
        step_optimizer(optimizer, config, step)
        losses.append(learner.processes.total(total).item())
    return losses


def cut(recipe: Recipe, batch: Batch, step: int, epochs: int, minibatches: int) -> Iterator[tuple[Tensor, Batch]]:
    """The rows of every optimiser step and what is trained on there: each epoch in an order of its own."""
    shuffle = torch.Generator().manual_seed(zlib.crc32(f"shuffle/{recipe.config.seed}/{step}".encode()))
    for _ in range(epochs):
        order = torch.randperm(len(batch.mask), generator=shuffle).to(batch.mask.device)
        for rows in order.tensor_split(minibatches):
            rows = recipe.reader.arrange(rows)
            minibatch = batch.minibatch(rows)
            if minibatch.mask.any():  # else the filter has masked every row of it: there is nothing to divide by
                yield rows, minibatch


def micro_batches(learner: Learner, recipe: Recipe, minibatch: Batch) -> Iterator[tuple[Tensor, Batch]]:
    """Places of rows in a minibatch and the rows themselves, of this process's share of it, a few at a time."""
    own_rows = learner.processes.own_rows(minibatch.mask)
    for rows in own_rows.tensor_split(max(min(recipe.config.micro_batches, len(own_rows)), 1)):
        if len(rows):  # none where there are more processes than rows
            yield rows, minibatch.part(rows)


def _forward_backward(
    learner: Learner, recipe: Recipe, groups: Rollout, rows: Tensor, micro: Batch, watch: Watch
) -> None:
    """The gradient of one micro-batch, added to what is there.

    A function of its own, so that nothing it has read is still held while the next one is read, or while the optimiser
    steps: rows without a gradient never had the backward that frees what was kept for it.
    """
    algorithm, config, critic, critic_loss = recipe.algorithm, recipe.config, learner.critic, None
    shared = critic if critic is not None and critic.shared else None  # one trunk, one gradient
    reading = recipe.reader.read(learner.policy, groups, rows, config, critic=shared, loss=(algorithm, micro))
    micro = replace(micro, logp=reading.logp, entropy=None if micro.entropy is None else reading.entropy)
    loss = policy_loss(algorithm, micro)
    if reading.values is not None:
        critic_loss = critic_loss_of(reading.values, micro, config)
        (loss + config.value_coef * critic_loss).backward()
    else:
        loss.backward()
    watch.record(algorithm, micro, reading.entropy.detach(), groups.mask[rows])
    watch.add(loss, critic_loss, reading.tokens)


def critic_loss_of(values: Tensor, micro: Batch, config: Config) -> Tensor:
    """The value loss of a prepared micro-batch."""
    assert micro.values is not None
    assert micro.returns is not None
    return value_loss(values, micro.values, micro.returns, micro.mask, clip=config.value_clip, totals=micro.totals)


def _step_policy(learner: Learner, config: Config, watch: Watch, step: int) -> bool:
    """Ends a minibatch: the policy steps, unless it is too far from the sampler; whether it was not."""
    learner.processes.add_gradients(parameters_of(learner.optimizer))
    watch.end_minibatch()
    if watch.early_stop:
        learner.optimizer.zero_grad()
        return False
    watch.grad_norms.append(step_optimizer(learner.optimizer, config, step))
    return True


def step_optimizer(optimizer: torch.optim.Optimizer, config: Config, step: int) -> float:
    """Clip, update, clear; returns the gradient's norm before clipping."""
    norm = nn.utils.clip_grad_norm_(parameters_of(optimizer), config.grad_clip).item()
    if not math.isfinite(norm):
        raise NotFinite(f"step {step}: the gradient is not finite; lower the learning rate (now {config.lr:g})")
    optimizer.step()
    optimizer.zero_grad()
    return norm


def _greedy_rewards(learner: Learner, recipe: Recipe, groups: Rollout, step: int) -> Tensor:
    """[B] the reward of the greedy completion of each row's prompt."""
    group_size = recipe.config.group_size
    greedy = roll_out(
        learner.policy,
        learner.vocabulary,
        groups.problems[::group_size],
        recipe,
        temperature=0.0,
        seed="greedy",
        step=step,
        processes=learner.processes,
    )
    return greedy.rewards.repeat_interleave(group_size)


def end_step(learner: Learner, recipe: Recipe, batch: Batch, reward: float) -> None:
    """Updates what a learner keeps besides weights: the mean reward, the KL controller's factor, the reference."""
    learner.step += 1
    learner.mean_reward += (1 - recipe.config.baseline_decay) * (reward - learner.mean_reward)
    if batch.ref_logp is not None and learner.step > recipe.config.value_warm_up:
        kl = sequence_kl(batch.old_logp, batch.ref_logp, batch.mask)
        learner.kl_factor = next_factor(learner.kl_factor, kl, len(batch.mask), recipe.config)
    move_reference(learner, recipe.config)


def move_reference(learner: Learner, config: Config) -> None:
    """The reference stays (frozen), is set to the policy every N steps (refresh), or averages it (ema)."""
    if learner.reference is None:
        return
    if config.reference == "refresh" and learner.step % config.refresh_every == 0:
        learner.reference.load_state_dict(learner.policy.state_dict())
    elif config.reference == "ema":
        with torch.no_grad():
            for reference, policy in zip(learner.reference.parameters(), learner.policy.parameters(), strict=True):
                reference.lerp_(policy, 1 - config.ema_decay)
