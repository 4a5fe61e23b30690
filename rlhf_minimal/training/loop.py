"""The online loop: sample, score, judge, update. One step is `train_step`, and everything else here is its parts.

    task -> collect: completions and rewards -> judge: reference and critic look on, `prepare` turns rewards into
    advantages -> update: epochs x minibatches x micro-batches of `policy_loss` -> the reference follows, or stays

What stays fixed is a `Recipe`, what changes is a `Learner`.

The loop never asks an algorithm for its name. It asks what the algorithm `needs` (a critic? a reference? a baseline?)
and computes that and nothing else; it asks what the algorithm will `keep`, and refills the rest.

Every step draws its problems, samples and shuffles from (seed, step). So there is no random state to save, and a
resumed run repeats the numbers of one that was never interrupted.
"""

import math
import time
import zlib
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from rlhf_minimal.functional.kl import k3
from rlhf_minimal.functional.logprobs import token_entropy, token_logprobs
from rlhf_minimal.functional.masked import masked_mean
from rlhf_minimal.models import critic_values, policy_logits
from rlhf_minimal.objective import Batch, policy_loss, prepare, value_loss
from rlhf_minimal.training.config import Config, Recipe
from rlhf_minimal.training.learner import Learner
from rlhf_minimal.training.metrics import Metrics, Watch, describe, explained_variance
from rlhf_minimal.training.rollout import Rollout, collect, roll_out

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
    began = time.perf_counter()
    step = learner.step + 1
    groups, sampled = collect(learner.policy, learner.vocabulary, recipe, step)
    if groups is None:
        raise NothingToLearn(
            f"step {step}: in {len(sampled)} rounds of {recipe.config.prompts} problems the algorithm kept no group "
            f"(mean reward {describe(sampled, 1)['reward']:.2f})"
        )
    batch, kl = judge(learner, recipe, groups, step)
    metrics = {"step": step, **describe(sampled, recipe.config.group_size), "kl": kl}
    metrics["groups"] = len(groups.texts) // recipe.config.group_size
    if batch.values is not None and batch.returns is not None:
        metrics["explained_variance"] = explained_variance(batch.values, batch.returns, batch.mask)
    metrics |= (updater or update)(learner, recipe, groups, batch, step)

    learner.step = step
    learner.mean_reward += (1 - recipe.config.baseline_decay) * (metrics["reward"] - learner.mean_reward)
    move_reference(learner, recipe.config)
    return metrics | {"seconds": time.perf_counter() - began}


@torch.no_grad()
def judge(learner: Learner, recipe: Recipe, groups: Rollout, step: int) -> tuple[Batch, float]:
    """From a rollout to a prepared batch: everything that is fixed before the first update.

    Only what the algorithm `needs` is computed. The start's log-probs are the exception, since the metrics report
    the distance from it; while the reference is frozen they are the reference's too, and cost nothing extra.

    Returns:
        The batch with its advantages, and KL(policy || start) in nats per token (k3 on these samples).
    """
    needs, temperature = recipe.algorithm.needs, recipe.config.temperature
    start_logp = _logp(learner.start, groups, temperature)  # [B, T]
    kl = masked_mean(k3(groups.logp, start_logp), groups.mask).item()

    old_logp, sampler_logp, ref_logp, values, baseline = groups.logp, None, None, None, None
    if "sampler_logp" in needs:  # the trainer's own opinion of the sampler's tokens, to weigh one against the other
        old_logp, sampler_logp = _logp(learner.policy, groups, temperature), groups.logp
    if "ref_logp" in needs:
        frozen = learner.reference is learner.start
        ref_logp = start_logp if frozen else _logp(learner.reference, groups, temperature)
    if learner.critic is not None:
        values = critic_values(learner.critic, groups.prompts, groups.prompt_mask, groups.completions)
    if "baseline" in needs:
        baseline = _baseline(learner, recipe, groups, step)
    batch = Batch(
        old_logp,  # stands in for logp, which `update` puts in its place
        old_logp,
        groups.mask,
        groups.rewards,
        recipe.config.group_size,
        ref_logp=ref_logp,
        values=values,
        budget=recipe.budget,
        baseline=baseline,
        sampler_logp=sampler_logp,
        entropy=torch.zeros_like(old_logp) if "entropy" in needs else None,  # likewise
        truncated=groups.truncated,
    )
    return prepare(recipe.algorithm, batch), kl


def update(learner: Learner, recipe: Recipe, groups: Rollout, batch: Batch, step: int) -> Metrics:
    """Inner epochs over one rollout: each pass shuffles the rows and cuts them into minibatches.

    A minibatch is one optimiser step. Micro-batches only cut its forward and backward into pieces that fit in
    memory: they carry the minibatch's denominators, so their losses and gradients add up to its own.

    Returns:
        The metrics that belong to the update.
    """
    algorithm, config = recipe.algorithm, recipe.config
    shuffle = torch.Generator().manual_seed(zlib.crc32(f"shuffle/{config.seed}/{step}".encode()))
    watch = Watch()
    for _ in range(config.epochs):
        order = torch.randperm(len(batch.mask), generator=shuffle).to(batch.mask.device)
        for rows in order.tensor_split(config.minibatches):
            minibatch = batch.minibatch(rows)
            if not minibatch.mask.any():
                continue  # the filter has masked every row of it: there is nothing to divide by
            pieces = min(config.micro_batches, len(rows))
            loss = critic_loss = 0.0
            for micro, micro_rows in zip(minibatch.split(pieces), rows.tensor_split(pieces), strict=True):
                ids = (groups.prompts[micro_rows], groups.prompt_mask[micro_rows], groups.completions[micro_rows])
                logits = policy_logits(learner.policy, *ids)  # [b, T, V]
                logp = token_logprobs(logits, ids[2], temperature=config.temperature)
                entropy = token_entropy(logits, temperature=config.temperature)
                micro = replace(micro, logp=logp, entropy=None if micro.entropy is None else entropy)
                piece = policy_loss(algorithm, micro)
                piece.backward()
                loss += piece.item()
                if learner.critic is not None:
                    assert micro.values is not None
                    assert micro.returns is not None
                    piece = value_loss(
                        critic_values(learner.critic, *ids),
                        micro.values,
                        micro.returns,
                        micro.mask,
                        clip=config.value_clip,
                        totals=micro.totals,
                    )
                    piece.backward()
                    critic_loss += piece.item()
                watch.look(algorithm, micro, entropy.detach())
            watch.losses.append(loss)
            watch.grad_norms.append(_step(learner.policy, learner.optimizer, config, step))
            if learner.critic is not None and learner.critic_optimizer is not None:
                watch.value_losses.append(critic_loss)
                _step(learner.critic, learner.critic_optimizer, config, step)
    return watch.metrics()


def move_reference(learner: Learner, config: Config) -> None:
    """The reference stays (frozen), jumps to the policy now and then (refresh), or drifts after it (ema)."""
    if config.reference == "refresh" and learner.step % config.refresh_every == 0:
        learner.reference.load_state_dict(learner.policy.state_dict())
    elif config.reference == "ema":
        with torch.no_grad():
            pairs = zip(learner.reference.parameters(), learner.policy.parameters(), strict=True)
            for reference, policy in pairs:
                reference.lerp_(policy, 1 - config.ema_decay)


def _logp(model: PreTrainedModel, groups: Rollout, temperature: float) -> Tensor:
    """[B, T] log-probs of the completions under a model, at the temperature they were sampled with."""
    logits = policy_logits(model, groups.prompts, groups.prompt_mask, groups.completions)
    return token_logprobs(logits, groups.completions, temperature=temperature)


def _baseline(learner: Learner, recipe: Recipe, groups: Rollout, step: int) -> Tensor:
    """[B] what to expect of each row before it was written; it must not depend on the row's own reward."""
    if recipe.config.baseline == "ema":
        return torch.full_like(groups.rewards, learner.mean_reward)
    group_size = recipe.config.group_size
    problems = groups.problems[::group_size]
    greedy = roll_out(
        learner.policy, learner.vocabulary, problems, recipe, group_size=1, temperature=0.0, seed="greedy", step=step
    )
    return greedy.rewards.repeat_interleave(group_size)


def _step(model: nn.Module, optimizer: torch.optim.Optimizer, config: Config, step: int) -> float:
    """Clip, update, clear; returns the gradient's norm before clipping."""
    norm = nn.utils.clip_grad_norm_(model.parameters(), config.grad_clip).item()
    if not math.isfinite(norm):
        raise ValueError(f"step {step}: the gradient is not finite; lower the learning rate (now {config.lr:g})")
    optimizer.step()
    optimizer.zero_grad()
    return norm
