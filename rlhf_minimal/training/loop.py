"""The online loop: sample, score, judge, update. One step is `train_step`, and everything else here is its parts.

    task -> collect: completions and rewards -> judge: reference and critic look on, `prepare` turns rewards into
    advantages -> update: epochs x minibatches x micro-batches of `policy_loss`, until the policy is too far from the
    sampler -> the reference follows, or stays; the leash is shortened, or not

What stays fixed is a `Recipe`, what changes is a `Learner`.

The loop never asks an algorithm for its name. It asks what the algorithm `needs` (a critic? a reference? a baseline?)
and computes that and nothing else; it asks what the algorithm will `keep`, and refills the rest.

Every step draws its problems, samples and shuffles from (seed, step). So there is no random state to save, and a
resumed run repeats the numbers of one that was never interrupted.
"""

import math
import zlib
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from rlhf_minimal.functional.kl import k1, k3
from rlhf_minimal.functional.masked import masked_mean, sequence_sum
from rlhf_minimal.objective import Batch, policy_loss, prepare, value_loss
from rlhf_minimal.training.config import Config, Recipe
from rlhf_minimal.training.kl_control import kl_coefficient, leashed, next_factor
from rlhf_minimal.training.learner import Learner
from rlhf_minimal.training.metrics import Metrics, Watch, clock, describe, explained_variance, peak_memory
from rlhf_minimal.training.passes import Pass, perhaps_idle, read_logp, read_values
from rlhf_minimal.training.rollout import Rollout, collect, roll_out
from rlhf_minimal.training.scores import trained_scores

# What moves the learner once a batch is prepared: `update`, or another with its arguments (`trpo.trust_region_update`).
Updater = Callable[[Learner, Recipe, Rollout, Batch, int], Metrics]


class NothingToLearn(Exception):
    """No group was left to train on: every one had all its answers right, or all wrong."""


def train(
    learner: Learner,
    recipe: Recipe,
    on_step: Callable[[Metrics], bool | None] = lambda metrics: None,
    *,
    updater: Updater | None = None,
) -> list[Metrics]:
    """Steps until `recipe.config.steps` are done.

    Args:
        learner: Changed in place; a resumed one goes on where it stopped.
        recipe: Algorithm, task, reward and numbers.
        on_step: Called with each step's metrics; training stops early if it returns False.
        updater: As in `train_step`.

    Returns:
        The metrics of every step taken, in order.

    Raises:
        NothingToLearn, ValueError: As `train_step`.
    """
    history: list[Metrics] = []
    while learner.step < recipe.config.steps:
        history.append(train_step(learner, recipe, updater=updater))
        if on_step(history[-1]) is False:
            break
    return history


def train_step(learner: Learner, recipe: Recipe, *, updater: Updater | None = None) -> Metrics:
    """One step of online reinforcement learning, with any row of the table.

    Args:
        learner: What changes.
        recipe: What does not.
        updater: What moves the learner once the batch is prepared; default: `update`, minibatches with AdamW.

    Returns:
        The step's metrics; `training.metrics.METRICS` says what each means.

    Raises:
        NothingToLearn: If the algorithm's filter left no group. The learner is as it was before the step.
        ValueError: If a loss or a gradient is not finite: nothing is skipped in silence.
    """
    device = learner.policy.device
    began = clock(device)
    step = learner.step + 1
    groups, sampled = collect(learner.policy, learner.vocabulary, recipe, step, learner.processes)
    if groups is None:
        raise NothingToLearn(
            f"step {step}: in {len(sampled)} rounds of {recipe.config.prompts} problems the algorithm kept no group "
            f"(mean reward {describe(sampled, 1)['reward']:.2f})"
        )
    sampled_at = clock(device)
    if recipe.config.kl_control == "adaptive":
        recipe = replace(recipe, algorithm=leashed(recipe.algorithm, learner.kl_factor))
    learner.scores.add(groups.rewards)
    batch, distance = judge(learner, recipe, groups, step)
    metrics = {"step": step, **describe(sampled, recipe.config.group_size), **distance}
    metrics["groups"] = len(groups.texts) // recipe.config.group_size
    if recipe.reward is not None:
        metrics["gold"] = torch.cat([part.correct for part in sampled]).mean().item()
    if recipe.config.changes_scores:
        metrics["trained_reward"] = batch.rewards.mean().item()
    if coefficient := kl_coefficient(recipe.algorithm):
        metrics["kl_coef"] = coefficient
    if batch.values is not None and batch.returns is not None:
        metrics["explained_variance"] = explained_variance(batch.values, batch.returns, batch.mask)
    judged_at = clock(device)
    metrics |= (updater or update)(learner, recipe, groups, batch, step)
    ended = clock(device)

    learner.step = step
    learner.mean_reward += (1 - recipe.config.baseline_decay) * (metrics["reward"] - learner.mean_reward)
    if batch.ref_logp is not None:
        kl = sequence_kl(batch.old_logp, batch.ref_logp, batch.mask)
        learner.kl_factor = next_factor(learner.kl_factor, kl, len(groups.texts), recipe.config)
    move_reference(learner, recipe.config)
    times = {"sampling_seconds": sampled_at - began, "update_seconds": ended - judged_at}
    return metrics | {**times, **peak_memory(device), "seconds": clock(device) - began}


@torch.no_grad()
def judge(learner: Learner, recipe: Recipe, groups: Rollout, step: int) -> tuple[Batch, Metrics]:
    """From a rollout to a prepared batch: everything that is fixed before the first update.

    Only what the algorithm `needs` is computed. The start's log-probs are the exception, since the metrics report
    the distance from it (`Config.watch_kl`); while the reference is frozen they are the reference's too, and cost
    nothing extra.

    Returns:
        The batch with its advantages, and how far the policy is from the start: `kl` and `kl_sequence` of `METRICS`.
    """
    needs, config = recipe.algorithm.needs, recipe.config
    distance: Metrics = {}
    start_logp = None
    if learner.start is not None and (
        config.watch_kl == "on" or ("ref_logp" in needs and learner.reference is learner.start)
    ):
        start_logp = read_logp(learner.start, groups, config, learner.processes)  # [B, T]
        distance["kl"] = masked_mean(k3(groups.logp, start_logp), groups.mask).item()
        distance["kl_sequence"] = sequence_kl(groups.logp, start_logp, groups.mask)

    old_logp, sampler_logp, ref_logp, values, baseline = groups.logp, None, None, None, None
    if "sampler_logp" in needs:  # the trainer's own opinion of the sampler's tokens, to weigh one against the other
        old_logp, sampler_logp = read_logp(learner.policy, groups, config, learner.processes), groups.logp
    if "ref_logp" in needs:
        assert learner.reference is not None
        frozen = learner.reference is learner.start
        ref_logp = start_logp if frozen else read_logp(learner.reference, groups, config, learner.processes)
    if learner.critic is not None:
        own = torch.arange(len(groups.mask), device=groups.mask.device)[learner.processes.share(len(groups.mask))]
        values = learner.processes.gather(read_values(learner.critic, groups, config, own), len(groups.mask))
    if "baseline" in needs:
        baseline = _baseline(learner, recipe, groups, step)
    batch = Batch(
        old_logp,  # stands in for logp, which `update` puts in its place
        old_logp,
        groups.mask,
        trained_scores(groups.rewards, groups.truncated, learner.scores, recipe.config),
        recipe.config.group_size,
        ref_logp=ref_logp,
        values=values,
        budget=recipe.budget,
        baseline=baseline,
        sampler_logp=sampler_logp,
        entropy=torch.zeros_like(old_logp) if "entropy" in needs else None,  # likewise
        truncated=groups.truncated,
    )
    return prepare(recipe.algorithm, batch), distance


def sequence_kl(logp: Tensor, other: Tensor, mask: Tensor) -> float:
    """KL(policy || other) of whole completions in nats, from samples of the policy: their mean log-ratio (k1).

    k3 is no help here. Far from the other policy its correction is nearly -1 for most tokens and huge for a few that
    are hardly ever drawn, so a sample shows about a nat per token too little; and far is where this number is read.

    Args:
        logp: [B, T] log-probs of the sampled tokens under the policy that drew them.
        other: [B, T] of the same tokens under the other.
        mask: [B, T] 1 = trained token. Rows without any are left out.
    """
    rows = (mask != 0).any(-1)
    return sequence_sum(k1(logp, other), mask)[rows].mean().item()


def update(learner: Learner, recipe: Recipe, groups: Rollout, batch: Batch, step: int) -> Metrics:
    """Inner epochs over one rollout: each pass shuffles the rows and cuts them into minibatches.

    A minibatch is one optimiser step. Micro-batches only cut its forward and backward into pieces that fit in
    memory: they carry the minibatch's denominators, so their losses and gradients add up to its own. Several processes
    share a minibatch in the same way.

    With a target KL, a minibatch on which the policy is already further from the sampler is not stepped on, and all
    that would have followed is left out: the critic's updates too, since they come in the same minibatches.

    Returns:
        The metrics that belong to the update.
    """
    config = recipe.config
    shuffle = torch.Generator().manual_seed(zlib.crc32(f"shuffle/{config.seed}/{step}".encode()))
    optimizers = [one for one in (learner.optimizer, learner.critic_optimizer) if one is not None]
    processes = learner.processes
    watch = Watch(processes)
    if config.target_kl is not None:
        watch.early_stop = 0
    for _ in range(config.epochs):
        order = torch.randperm(len(batch.mask), generator=shuffle).to(batch.mask.device)
        for rows in order.tensor_split(config.minibatches):
            rows = rows.sort().values if config.shared_prefix == "on" else rows  # neighbours share a prompt
            minibatch = batch.minibatch(rows)
            if not minibatch.mask.any():
                continue  # the filter has masked every row of it: there is nothing to divide by
            loss = critic_loss = 0.0
            places = torch.arange(len(rows), device=rows.device)[processes.share(len(rows))]
            for part in places.tensor_split(max(min(config.micro_batches, len(places)), 1)):
                if len(part) == 0:
                    continue  # more processes than rows
                own, critics = _forward_backward(learner, recipe, groups, rows[part], minibatch.part(part), watch)
                loss, critic_loss = loss + own, critic_loss + critics
            for optimizer in optimizers:
                processes.add_gradients(parameters_of(optimizer))
            if watch.end_minibatch() > (math.inf if config.target_kl is None else config.target_kl):
                watch.early_stop = watch.minibatches
                for optimizer in optimizers:
                    optimizer.zero_grad()
                return watch.metrics()
            loss, critic_loss = processes.total(torch.tensor([loss, critic_loss], dtype=torch.float64)).tolist()
            watch.losses.append(loss)
            watch.grad_norms.append(_step(learner.optimizer, config, step))
            if learner.critic is not None:
                watch.value_losses.append(critic_loss)
            if learner.critic_optimizer is not None:
                _step(learner.critic_optimizer, config, step)
    return watch.metrics()


def _forward_backward(
    learner: Learner, recipe: Recipe, groups: Rollout, rows: Tensor, micro: Batch, watch: Watch
) -> tuple[float, float]:
    """The gradient of one micro-batch, added to what is there; its part of the loss and of the critic's.

    A function of its own, so that nothing it has read is still held while the next one is read, or while the optimiser
    steps: rows without a gradient never had the backward that frees what was kept for it.
    """
    algorithm, config = recipe.algorithm, recipe.config
    reads_entropy = micro.entropy is not None  # it is watched always, and differentiated only for a bonus
    through = Pass(
        learner.policy,
        groups,
        rows,
        config,
        critic=learner.critic if learner.critic is not None and learner.critic.shared else None,
        entropy_gradient=bool(algorithm.entropy),
        apart=perhaps_idle(algorithm, micro) if config.skip_idle == "on" else None,
    )
    watch.tokens_read += through.tokens
    logp, entropy, values = through.reading
    micro = replace(micro, logp=logp, entropy=entropy if reads_entropy else None)
    loss, critic_loss = policy_loss(algorithm, micro), None
    if values is not None:  # one trunk, one gradient
        critic_loss = _value_loss(values, micro, config)
        through.backward(loss + config.value_coef * critic_loss)
    else:
        through.backward(loss)
        if learner.critic is not None:
            critic_loss = _value_loss(read_values(learner.critic, groups, config, rows), micro, config)
            critic_loss.backward()
    watch.look(algorithm, micro, entropy.detach())
    return loss.item(), 0.0 if critic_loss is None else critic_loss.item()


def _value_loss(values: Tensor, micro: Batch, config: Config) -> Tensor:
    assert micro.values is not None
    assert micro.returns is not None
    return value_loss(values, micro.values, micro.returns, micro.mask, clip=config.value_clip, totals=micro.totals)


def move_reference(learner: Learner, config: Config) -> None:
    """The reference stays (frozen), jumps to the policy now and then (refresh), or drifts after it (ema)."""
    if learner.reference is None:
        return
    if config.reference == "refresh" and learner.step % config.refresh_every == 0:
        learner.reference.load_state_dict(learner.policy.state_dict())
    elif config.reference == "ema":
        with torch.no_grad():
            pairs = zip(learner.reference.parameters(), learner.policy.parameters(), strict=True)
            for reference, policy in pairs:
                reference.lerp_(policy, 1 - config.ema_decay)


def _baseline(learner: Learner, recipe: Recipe, groups: Rollout, step: int) -> Tensor:
    """[B] what to expect of each row before it was written; it must not depend on the row's own reward."""
    if recipe.config.baseline == "ema":
        return torch.full_like(groups.rewards, learner.mean_reward)
    group_size = recipe.config.group_size
    problems = groups.problems[::group_size]
    greedy = roll_out(
        learner.policy,
        learner.vocabulary,
        problems,
        recipe,
        temperature=0.0,
        seed="greedy",
        step=step,
        processes=learner.processes,
    )
    return greedy.rewards.repeat_interleave(group_size)


def parameters_of(optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
    """What an optimiser moves."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _step(optimizer: torch.optim.Optimizer, config: Config, step: int) -> float:
    """Clip, update, clear; returns the gradient's norm before clipping."""
    norm = nn.utils.clip_grad_norm_(parameters_of(optimizer), config.grad_clip).item()
    if not math.isfinite(norm):
        raise ValueError(f"step {step}: the gradient is not finite; lower the learning rate (now {config.lr:g})")
    optimizer.step()
    optimizer.zero_grad()
    return norm
