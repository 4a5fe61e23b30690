"""The online loop, from a problem to a gradient, in the order in which it happens. One step is `train_step`.

    roll_out: sample and score -> collect: groups that the algorithm keeps -> prepare_batch: log-probs of the reference,
    the critic's values, advantages -> update: epochs x minibatches x micro-batches of `policy_loss` -> _end_step

What stays fixed is a `Recipe`, what changes is a `Learner`.

The loop never asks an algorithm for its name. It asks what the algorithm `needs` (a critic? a reference? a baseline?)
and computes that; it asks what the algorithm will `keep`, and samples fresh problems in place of the rest.

Every step draws its problems, samples and shuffles from (seed, step). So there is no random state to save, and a
resumed run repeats the numbers of one that was never interrupted.
"""

import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import pad
from transformers import PreTrainedModel

from rlhf_minimal.config import Config
from rlhf_minimal.functional.advantages import place_rewards
from rlhf_minimal.functional.logprobs import token_entropy, token_logprobs
from rlhf_minimal.functional.masked import last_token, lengths
from rlhf_minimal.kl_control import next_factor, with_kl_factor
from rlhf_minimal.metrics import (
    Metrics,
    UpdateStats,
    describe_batch,
    describe_distance,
    describe_rollouts,
    peak_memory,
    sequence_kl,
    synchronized_time,
    weight_norm,
)
from rlhf_minimal.models import (
    AnyVocabulary,
    Critic,
    TokenizerVocabulary,
    Vocabulary,
    checkpointing,
    critic_values,
    policy_logits,
    policy_logits_and_values,
)
from rlhf_minimal.objective import Algorithm, Batch, NotFinite, policy_loss, prepare, value_loss
from rlhf_minimal.optimizer import parameters_of
from rlhf_minimal.renamed import keywords
from rlhf_minimal.reward_scaling import scale_rewards
from rlhf_minimal.sample import Rollout, Samples, check_length, join, pad_left, sample, select
from rlhf_minimal.tasks import Problem, RewardFunction, Step, StepReward, Task, score_all, verify_all
from rlhf_minimal.train_state import ALONE, Learner, Processes


class NothingToLearn(Exception):
    """The algorithm kept no group to train on, for example because each was all right or all wrong."""


@keywords
@dataclass(frozen=True)
class Recipe:
    """Everything that stays fixed while a `Learner` changes: the objective, the task, the reward and the numbers.

    Args:
        algorithm: A row of the table, or a variant of one.
        task: Problems and their verifier.
        config: The numbers.
        reward: What to train for, in TRL's calling form (see `tasks.rewards`); None takes the task's own verifier.
        step_reward: Marks for the steps of a completion, besides the reward for its outcome (see `tasks.rewards`);
            `checked_steps(task)` is the task's own checker. The row's advantage decides what they pay.
        sample: How completions are sampled: a function called like `sample.sample`.
        compute_logprobs: Another way to the log-probs of completions: a function called like `train.compute_logprobs`.
        compute_values: Another way to the values of a critic: a function called like `train.compute_values`.
        sort_minibatches: Whether the rows of a minibatch are sorted, so that completions of one prompt are next to
            each other: for a `compute_logprobs` that uses it (`lab.fast`).

    Raises:
        ValueError: If the config asks of the algorithm what it does not have (`Config.check_fits`); if the algorithm
            pays for steps and nothing marks them.

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
    step_reward: StepReward | None = None
    sample: Callable[..., Samples] = sample
    compute_logprobs: "Callable[..., PolicyOutput] | None" = None
    compute_values: Callable[..., Tensor] | None = None
    sort_minibatches: bool = False

    def __post_init__(self) -> None:
        self.config.check_fits(self.algorithm)
        if "step_ends" in self.algorithm.needs and self.step_reward is None:
            raise ValueError(
                "this algorithm pays for single steps, and nothing marks them: give a step reward, "
                "Recipe(..., step_reward=checked_steps(task)), or --step-reward on the command line"
            )

    @property
    def budget(self) -> int:
        """Largest number of tokens of a completion."""
        return self.config.max_new_tokens or self.task.max_new_tokens


# ---- sample and score ----------------------------------------------------------------------------------------------


def roll_out(
    policy: PreTrainedModel,
    vocabulary: AnyVocabulary,
    problems: list[Problem],
    recipe: Recipe,
    *,
    group_size: int = 1,
    temperature: float = 1.0,
    seed: str = "0",
    step: int = 0,
) -> Rollout:
    """Samples `group_size` completions for each problem and scores them.

    Args:
        policy: The model that is sampled.
        vocabulary: Its vocabulary.
        problems: P of them.
        recipe: Its task, reward function, sampler and token budget are used.
        group_size: Completions per problem, G.
        temperature: Of the sampler; 0 is greedy.
        seed: Any text; equal texts give equal samples.
        step: Passed on to the reward function.

    Returns:
        A `Rollout` of P x G rows on the policy's device.

    Raises:
        ValueError: As the sampler.
    """
    encoded = [vocabulary.encode_prompt(problem.prompt, system=recipe.task.instruction) for problem in problems]
    prompts, prompt_mask = (x.to(policy.device) for x in pad_left(encoded, vocabulary.pad_id))  # [P, S]
    rows = [problem for problem in problems for _ in range(group_size)]
    replies = {} if recipe.task.reply is None else {"reply": _reply_of(recipe.task, vocabulary, rows)}
    with recipe.config.autocast(policy.device):
        samples = recipe.sample(
            policy,
            prompts,
            prompt_mask,
            group_size=group_size,
            temperature=temperature,
            generator=torch.Generator(policy.device).manual_seed(zlib.crc32(f"sample/{seed}".encode())),
            max_new_tokens=recipe.budget,
            eos_id=vocabulary.eos_ids,
            pad_id=vocabulary.pad_id,
            **replies,
        )
    texts = [vocabulary.decode(ids) for ids in samples.completions.tolist()]
    prompts, prompt_mask = (x.repeat_interleave(group_size, dim=0) for x in (prompts, prompt_mask))  # [B, S]
    scored = score(recipe, rows, texts, step, samples, vocabulary)
    scored = {name: x.to(policy.device) for name, x in scored.items()}
    return Rollout(rows, texts, prompts, prompt_mask, **vars(samples), **scored)


def _reply_of(task: Task, vocabulary: AnyVocabulary, rows: list[Problem]) -> Callable[[int, list[int]], list[int]]:
    """The argument `reply` of the sampler, for a task that answers while the policy writes."""
    assert task.reply is not None
    ask = task.reply
    if isinstance(vocabulary, TokenizerVocabulary):
        raise ValueError(f"{task.name} answers after a character: use a model of characters, or lab.turns for a chat")

    def reply(row: int, ids: list[int]) -> list[int]:
        return vocabulary.encode((ids[-1] not in vocabulary.eos_ids and ask(vocabulary.decode(ids), rows[row])) or "")

    return reply


def score(
    recipe: Recipe, problems: list[Problem], texts: list[str], step: int, samples: Samples, vocabulary: AnyVocabulary
) -> dict[str, Tensor]:
    """What the verifier, the reward function and the step reward say: `rewards`, `correct`, ... of a `Rollout`."""
    seconds, marks = recipe.config.verifier_timeout, dict[str, Tensor]()
    with torch.set_grad_enabled(torch.is_grad_enabled()):  # somebody's function may leave gradients switched off
        # An evaluation, step 0, is no step: it has no first one that could fail.
        correct = rewards = verify_all(recipe.task, problems, texts, seconds=seconds, step=step or None)
        if recipe.reward is not None:
            rewards = score_all(recipe.reward, problems, texts, step, seconds=seconds)
        faults = correct.faults | rewards.faults
        if recipe.step_reward is not None:
            marked = score_all(recipe.step_reward, problems, texts, step, of_steps=True, seconds=seconds)
            faults |= marked.faults
            marks = _scatter_steps(vocabulary, samples.completions, samples.mask, marked.values)
    failed = torch.tensor([row in faults for row in range(len(problems))])
    return {"rewards": torch.tensor(rewards.values), "correct": torch.tensor(correct.values), "failed": failed} | marks


def _scatter_steps(
    vocabulary: Vocabulary | TokenizerVocabulary,
    completions: Int[Tensor, "B T"],
    mask: Float[Tensor, "B T"],
    steps: Sequence[Sequence[Step]],
) -> dict[str, Float[Tensor, "B T"]]:
    """Steps at the tokens that end them: `step_ends` and `step_marks` of a `Rollout`.

    The last token of a completion belongs to its outcome: a step that the budget ends there has no mark. Steps that
    end in one token become one, with the lowest of their marks.

    Args:
        vocabulary: Says which token ends how many characters.
        completions: [B, T] ids.
        mask: [B, T] 1 for sampled tokens.
        steps: Those of each completion, in order.

    Example:
        >>> mask = torch.ones(1, 5)
        >>> _scatter_steps(Vocabulary("abc="), torch.tensor([[1, 2, 4, 3, 0]]), mask, [[Step(2, 0.5)]])["step_marks"]
        tensor([[0.0000, 0.5000, 0.0000, 0.0000, 0.0000]])
    """
    ends, marks = torch.zeros(mask.shape), torch.zeros(mask.shape)
    before_last = zip(completions.tolist(), last_token(mask).argmax(-1).tolist(), strict=True)
    for row, (ids, last) in enumerate(before_last):
        for end, mark in steps[row]:
            if (place := vocabulary.token_of(ids[:last], end)) < last:
                marks[row, place] = min(mark, float(marks[row, place])) if ends[row, place] else mark
                ends[row, place] = 1.0
    return {"step_ends": ends.to(mask.device), "step_marks": marks.to(mask.device)}


def collect(
    policy: PreTrainedModel, vocabulary: AnyVocabulary, recipe: Recipe, step: int, processes: Processes = ALONE
) -> tuple[Rollout | None, list[Rollout]]:
    """One step's groups, sampled again until there are enough that the algorithm keeps.

    A group of which the algorithm keeps no row is dropped, and a fresh problem takes its place. A dropped row in
    a group that is kept is masked: it is not trained on, but its reward still counts in its group's statistics.

    Problems and samples depend on (seed, step, round) and the number of processes alone, so an interrupted run draws
    the same ones again.

    Returns:
        The groups to train on, at most `config.prompts` of them (None if not one was found within
        `config.max_refills` extra rounds), and everything that was sampled, because metrics of the kept
        groups alone would be biased.
    """
    config, G = recipe.config, recipe.config.group_size
    kept, sampled, missing = list[Rollout](), list[Rollout](), config.prompts
    rollout_fn = partial(roll_out, policy, vocabulary, recipe=recipe, step=step, temperature=config.temperature)
    while missing and len(sampled) <= config.max_refills:
        seed = f"{config.seed}/{step}/{len(sampled)}"
        problems = recipe.task.problems("train", config.prompts, seed=seed)
        rollout = processes.roll_out(rollout_fn, problems, group_size=G, seed=seed)
        sampled.append(rollout)
        if recipe.algorithm.keep is None:
            return rollout, sampled
        facts = {"truncated": rollout.truncated, "group_size": G, "budget": recipe.budget}
        keep = recipe.algorithm.call("keep", rollout.rewards, lengths=lengths(rollout.mask), **facts)  # [B]
        groups = keep.view(-1, G).any(-1).nonzero()[:missing]  # [p, 1]
        if len(groups):
            rows = (groups * G + torch.arange(G, device=groups.device)).flatten()  # [p * G]
            kept.append(select(replace(rollout, mask=rollout.mask * keep[:, None]), rows))
        missing -= len(groups)
    return join(kept) if kept else None, sampled


def check_context(
    policy: PreTrainedModel, vocabulary: AnyVocabulary, recipe: Recipe, problems: Sequence[Problem]
) -> None:
    """Refuses problems whose prompts and completions do not fit the policy's context, before any of them is sampled.

    Raises:
        ValueError: Naming the longest prompt.
    """
    system = recipe.task.instruction
    prompts = {len(vocabulary.encode_prompt(one.prompt, system=system)): one.prompt for one in problems}
    try:
        check_length(policy, max(prompts), recipe.budget)
    except ValueError as error:
        raise ValueError(f"{error}; the prompt begins with {prompts[max(prompts)][:60]!r}") from error


# ---- log-probs and values ------------------------------------------------------------------------------------------


class PolicyOutput(NamedTuple):
    """What a policy says of some completions, [n, T] each, and how many tokens were read for it.

    The log-probs of their tokens, at the temperature of the sampler; the entropies of the policy's next-token
    distributions, with a gradient only if the loss has a bonus for them; the values of a critic on the policy's body,
    if there is one. The tokens are those of prompts and completions, without padding.
    """

    logp: Float[Tensor, "n T"]
    entropy: Float[Tensor, "n T"]
    values: Float[Tensor, "n T"] | None
    tokens: int


def compute_logprobs(
    policy: PreTrainedModel,
    groups: Rollout,
    rows: Int[Tensor, " n"],
    config: Config,
    *,
    critic: Critic | None = None,
    loss: tuple[Algorithm, Batch] | None = None,
    bucket_size: int | None = 64,
) -> PolicyOutput:
    """Log-probs and entropies of some completions, with their gradient.

    Args:
        policy: The model.
        groups: The rollout.
        rows: [n] which of its rows.
        config: Temperature, precision, checkpointing.
        critic: A critic that shares the policy's body; its values are computed in the same forward.
        loss: The algorithm and the n prepared rows for which the loss will be computed.
        bucket_size: About how many rows of like length are computed together; None: all at once, as they come.

    Returns:
        A `PolicyOutput`; 0 where padding was left out.
    """
    bonus = loss is not None and bool(loss[0].entropy)

    def forward(*ids: Tensor) -> list[Tensor]:
        values: list[Tensor] = []
        if critic is None:
            logits = policy_logits(policy, *ids)  # [b, t, V]
        else:
            logits, *values = policy_logits_and_values(policy, critic, *ids)
        logp = token_logprobs(logits, ids[2], temperature=config.temperature)
        with torch.set_grad_enabled(torch.is_grad_enabled() and bonus):
            return [logp, token_entropy(logits, temperature=config.temperature), *values]

    with autocast_and_checkpointing(policy, config):
        logp, entropy, *values = forward_in_length_buckets(forward, groups, rows, bucket_size)
    tokens = int(groups.prompt_mask[rows].sum()) + int((groups.mask[rows] != 0).sum())
    return PolicyOutput(logp, entropy, values[0] if values else None, tokens)


def compute_values(
    critic: Critic, groups: Rollout, rows: Int[Tensor, " n"], config: Config, *, bucket_size: int | None = 64
) -> Float[Tensor, "n T"]:
    """Values, before each token of some completions, of a critic alone, without the policy; with gradient."""
    with autocast_and_checkpointing(critic.body, config):
        return forward_in_length_buckets(lambda *ids: [critic_values(critic, *ids)], groups, rows, bucket_size)[0]


def forward_in_length_buckets(
    forward: Callable[..., list[Tensor]], groups: Rollout, rows: Int[Tensor, " n"], bucket_size: int | None
) -> list[Float[Tensor, "n T"]]:
    """Applies a forward pass to pieces of like length, so that hardly any padding is computed; 0 where it was left out.

    Args:
        forward: From prompts, their mask and completions to [b, t] tensors.
        groups: The rollout.
        rows: [n] which of its rows.
        bucket_size: About how many of them are computed together; None: all, with all columns.
    """
    T = groups.completions.shape[1]
    columns = torch.arange(1, T + 1, device=rows.device)
    widths = torch.where(groups.mask[rows] != 0, columns, 0).amax(-1)  # [n] up to the last trained token
    order = torch.arange(len(rows), device=rows.device) if bucket_size is None else widths.argsort(stable=True)
    read = []
    for part in order.tensor_split(max(len(rows) // bucket_size, 1) if bucket_size else 1):
        width = max(int(widths[part].max()), 1) if bucket_size else T
        ids = groups.prompts[rows[part]], groups.prompt_mask[rows[part]], groups.completions[rows[part], :width]
        read.append([pad(x, (0, T - width)) for x in forward(*ids)])
    back = order.argsort()
    return [torch.cat(pieces).index_select(0, back) for pieces in zip(*read, strict=True)]


@contextmanager
def autocast_and_checkpointing(model: nn.Module, config: Config) -> Iterator[None]:
    """A forward at the config's precision, its layers computed again in the backward if the config says so."""
    device, again = next(model.parameters()).device, uses_checkpointing(config)
    # Recomputed layers round their weights again; otherwise rounded copies of all weights would stay in memory.
    with config.autocast(device, keep_copies=not again), checkpointing(model) if again else nullcontext():
        yield


def uses_checkpointing(config: Config) -> bool:
    """Whether layers are computed again in the backward; then there is no cache that completions could share."""
    return config.gradient_checkpointing == "on" and torch.is_grad_enabled()


# ---- what the algorithm needs, and advantages ----------------------------------------------------------------------


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
    rows = processes.local_rows(groups.mask)

    def logp_of(model: PreTrainedModel) -> Tensor:
        output = (recipe.compute_logprobs or compute_logprobs)(model, groups, rows, config)
        return processes.all_gather(output.logp)  # [B, T]

    old_logp, rewards, distance = groups.logp, groups.rewards, Metrics()
    fixed: dict[str, Any] = {"truncated": groups.truncated, "budget": recipe.budget}
    is_start = learner.reference is learner.start
    if config.changes_scores:
        rewards = scale_rewards(rewards, groups.truncated, learner.scores, config)
    if learner.start is not None and (config.watch_kl == "on" or ("ref_logp" in needs and is_start)):
        start_logp = logp_of(learner.start)
        distance = describe_distance(groups.logp, start_logp, groups.mask)
    if "ref_logp" in needs:
        assert learner.reference is not None
        fixed["ref_logp"] = start_logp if is_start else logp_of(learner.reference)
        if not is_start:
            distance["kl_reference"] = describe_distance(groups.logp, fixed["ref_logp"], groups.mask)["kl"]
    if "sampler_logp" in needs:  # the same tokens' log-probs in the trainer's own computation, and in the sampler's
        old_logp, fixed["sampler_logp"] = logp_of(learner.policy), groups.logp
    if learner.critic is not None:
        values = (recipe.compute_values or compute_values)(learner.critic, groups, rows, config)
        fixed["values"] = processes.all_gather(values)
    if "baseline" in needs:  # what to expect of a row before it was sampled: never its own reward
        fixed["baseline"] = torch.full_like(groups.rewards, learner.mean_reward)
        if config.baseline == "greedy":
            fixed["baseline"] = _greedy_rewards(learner, recipe, groups, step)
    if "greedy_rewards" in needs:
        fixed["greedy_rewards"] = _greedy_rewards(learner, recipe, groups, step)
    if "reward_parts" in needs:
        fixed["reward_parts"] = _parts_of(recipe, groups, step)
    if recipe.step_reward is not None:  # the marks, and the outcome's reward on the last token
        fixed["step_rewards"] = groups.step_marks + place_rewards(rewards, groups.mask)
        fixed["step_ends"] = torch.maximum(groups.step_ends, last_token(groups.mask))
    if "entropy" in needs:
        fixed["entropy"] = torch.zeros_like(old_logp)  # like the first argument, a placeholder until `forward_backward`
    batch = Batch(old_logp, old_logp, groups.mask, rewards, config.group_size, **fixed)
    return prepare(recipe.algorithm, batch), distance


def _greedy_rewards(learner: Learner, recipe: Recipe, groups: Rollout, step: int) -> Tensor:
    """[B] the reward of the greedy completion of each row's prompt."""
    G = recipe.config.group_size
    rollout_fn = partial(roll_out, learner.policy, learner.vocabulary, recipe=recipe, temperature=0.0, step=step)
    greedy = learner.processes.roll_out(rollout_fn, groups.problems[::G], group_size=1, seed="greedy")
    return greedy.rewards.repeat_interleave(G)


def _parts_of(recipe: Recipe, groups: Rollout, step: int) -> Tensor:
    """[B, K] the parts of each completion's reward (`Task.parts`); K = 1, the reward, if the task has none.

    Another reward than the task's has no parts. A completion on which the task's code fails or takes too long gets 0 in
    each, as from a verifier.

    Raises:
        ValueError: If completions have different numbers of parts, or the task's code fails on all of them.
    """
    if recipe.task.parts is None or recipe.reward is not None:
        return groups.rewards[:, None]
    seconds = recipe.config.verifier_timeout
    with torch.set_grad_enabled(torch.is_grad_enabled()):  # as in `score`
        asked = verify_all(recipe.task, groups.problems, groups.texts, seconds=seconds, step=step, in_parts=True)
    counts = {len(parts) for row, parts in enumerate(asked.values) if row not in asked.faults}
    if len(counts) != 1:
        raise ValueError(
            f"{recipe.task.name}: its parts are {sorted(counts) or 'no'} numbers for a completion: give as many for "
            "all, 0 where a part was not earned"
        )
    rows = [[*parts] or [0.0] * max(counts) for parts in asked.values]
    return torch.tensor(rows, dtype=groups.rewards.dtype, device=groups.rewards.device)


# ---- loss and step -------------------------------------------------------------------------------------------------


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
    config = recipe.config
    stats = UpdateStats(learner.processes, target_kl=config.target_kl)
    for rows, minibatch in minibatches(recipe, batch, step, config.epochs, config.minibatches):
        for places, micro in micro_batches(learner, recipe, minibatch):
            forward_backward(learner, recipe, groups, rows[places], micro, stats)
        learner.processes.all_reduce_gradients(parameters_of(learner.optimizer))
        stats.end_minibatch()
        if stats.early_stop:
            learner.optimizer.zero_grad()
            break
        stats.grad_norms.append(step_optimizer(learner.optimizer, config, step))
    stats.value_losses += fit_critic(learner, recipe, groups, batch, step, early_stop=stats.early_stop)
    return stats.metrics() | {"weight_norm": weight_norm(learner.policy)}


def minibatches(recipe: Recipe, batch: Batch, step: int, epochs: int, count: int) -> Iterator[tuple[Tensor, Batch]]:
    """The rows of every optimiser step and what is trained on there: each epoch in an order of its own."""
    shuffle = torch.Generator().manual_seed(zlib.crc32(f"shuffle/{recipe.config.seed}/{step}".encode()))
    for _ in range(epochs):
        order = torch.randperm(len(batch.mask), generator=shuffle).to(batch.mask.device)
        for rows in order.tensor_split(count):
            rows = rows.sort().values if recipe.sort_minibatches else rows
            if not len(rows):  # the filter has left fewer rows than there are minibatches
                continue
            minibatch = batch.minibatch(rows)
            if minibatch.mask.any():  # else the filter has masked every row of it: there is nothing to divide by
                yield rows, minibatch


def micro_batches(learner: Learner, recipe: Recipe, minibatch: Batch) -> Iterator[tuple[Tensor, Batch]]:
    """Places of rows in a minibatch and the rows themselves, of this process's share of it, a few at a time."""
    share = learner.processes.local_rows(minibatch.mask)
    for places in share.tensor_split(max(min(recipe.config.micro_batches, len(share)), 1)):
        if len(places):  # none where there are more processes than rows
            yield places, minibatch.part(places)


def forward_backward(
    learner: Learner, recipe: Recipe, groups: Rollout, rows: Tensor, micro: Batch, stats: UpdateStats
) -> None:
    """The gradient of one micro-batch, added to what is there.

    A function of its own, so that nothing it has read is still held while the next one is read, or while the optimiser
    steps.
    """
    algorithm, config, critic_loss = recipe.algorithm, recipe.config, None
    shared = learner.critic if learner.critic is not None and learner.critic.shared else None
    forward = recipe.compute_logprobs or compute_logprobs
    output = forward(learner.policy, groups, rows, config, critic=shared, loss=(algorithm, micro))
    micro = replace(micro, logp=output.logp, entropy=None if micro.entropy is None else output.entropy)
    loss = policy_loss(algorithm, micro)
    if output.values is None:
        loss.backward()
    else:  # one body, one gradient
        critic_loss = _critic_loss_of(output.values, micro, config)
        (loss + config.value_coef * critic_loss).backward()
    stats.add_tokens(algorithm, micro, output.entropy.detach(), groups.mask[rows])
    stats.add_losses(loss, critic_loss, output.tokens)


def step_optimizer(optimizer: torch.optim.Optimizer, config: Config, step: int) -> float:
    """Clip, update, clear; returns the gradient's norm before clipping."""
    norm = nn.utils.clip_grad_norm_(parameters_of(optimizer), config.grad_clip).item()
    if not math.isfinite(norm):
        rate = optimizer.param_groups[0]["lr"]
        raise NotFinite(f"step {step}: the gradient is not finite; lower the learning rate (now {rate:g})")
    optimizer.step()
    optimizer.zero_grad()
    return norm


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
    epochs, count = config.value_epochs or config.epochs, config.value_minibatches or config.minibatches
    stop = None if not early_stop or config.value_epochs or config.value_minibatches else early_stop - 1
    for rows, minibatch in islice(minibatches(recipe, batch, step, epochs, count), stop):
        total = torch.zeros(1, dtype=torch.float64)
        for places, micro in micro_batches(learner, recipe, minibatch):
            values = (recipe.compute_values or compute_values)(critic, groups, rows[places], config)
            loss = _critic_loss_of(values, micro, config)
            loss.backward()
            total += loss.item()
        learner.processes.all_reduce_gradients(parameters_of(optimizer))
        step_optimizer(optimizer, config, step)
        losses.append(learner.processes.all_reduce_sum(total).item())
    return losses


def _critic_loss_of(values: Tensor, micro: Batch, config: Config) -> Tensor:
    """The value loss of a prepared micro-batch."""
    assert micro.values is not None
    assert micro.returns is not None
    return value_loss(values, micro.values, micro.returns, micro.mask, clip=config.value_clip, totals=micro.totals)


def _warm_up_critic(learner: Learner, recipe: Recipe, groups: Rollout, batch: Batch, step: int) -> Metrics:
    """The update of a step in which the critic alone is trained."""
    losses = fit_critic(learner, recipe, groups, batch, step)
    return {"value_loss": sum(losses) / max(len(losses), 1)}


# ---- one step, and all of them -------------------------------------------------------------------------------------

# A function that trains on a prepared batch: `update`, or another with its arguments.
Update = Callable[[Learner, Recipe, Rollout, Batch, int], Metrics]
OnRollout = Callable[[int, Rollout], object] | None  # sees a step's number and all that was sampled in it


def train_step(learner: Learner, recipe: Recipe, *, update: Update = update, on_rollout: OnRollout = None) -> Metrics:
    """One step of online reinforcement learning, with any row of the table.

    Args:
        learner: Changed in place.
        recipe: Algorithm, task, reward and numbers.
        update: The function that trains on the prepared batch; by default minibatches with AdamW.
        on_rollout: Called with the step's number and all that was sampled in it, before the filter and the update: the
            completions themselves, with their rewards and marks.

    Returns:
        The step's metrics; `metrics.METRICS` says what each means.

    Raises:
        NothingToLearn: If the algorithm's filter left no group. The learner is as it was before the step.
        NotFinite: If a ratio, a loss or a gradient is not finite: no step is skipped silently.
    """
    device, step = learner.policy.device, learner.step + 1
    began = synchronized_time(device)
    groups, sampled = collect(learner.policy, learner.vocabulary, recipe, step, learner.processes)
    if on_rollout is not None:
        on_rollout(step, join(sampled))
    metrics = {"step": step, **describe_rollouts(sampled, recipe.algorithm, recipe.config)}
    if groups is None:
        raise NothingToLearn(
            f"step {step}: in {len(sampled)} rounds of {recipe.config.prompts} problems the algorithm kept no group "
            f"(mean reward {metrics['reward']:.2f})"
        )
    sampled_at = synchronized_time(device)
    if recipe.config.kl_control == "adaptive":
        recipe = replace(recipe, algorithm=with_kl_factor(recipe.algorithm, learner.kl_factor))
    if recipe.config.changes_scores:
        learner.scores.add(groups.rewards)
    batch, distance = prepare_batch(learner, recipe, groups, step)
    metrics |= distance | describe_batch(recipe.algorithm, recipe.config, batch, compares=not recipe.step_reward)
    if recipe.reward is not None:
        metrics["gold"] = torch.cat([rollout.correct for rollout in sampled]).mean().item()
    prepared_at = synchronized_time(device)
    train_on = _warm_up_critic if step <= recipe.config.value_warm_up else update
    metrics |= train_on(learner, recipe, groups, batch, step)
    metrics |= {"sampling_seconds": sampled_at - began, "update_seconds": synchronized_time(device) - prepared_at}
    _end_step(learner, recipe, batch, metrics["reward"])
    return metrics | {**peak_memory(device), "seconds": synchronized_time(device) - began}


def _end_step(learner: Learner, recipe: Recipe, batch: Batch, reward: float) -> None:
    """Updates what else a learner keeps: its step, the mean reward, the KL controller's factor, the reference."""
    config = recipe.config
    learner.step += 1
    learner.mean_reward += (1 - config.baseline_decay) * (reward - learner.mean_reward)
    if batch.ref_logp is not None and learner.step > config.value_warm_up:
        kl = sequence_kl(batch.old_logp, batch.ref_logp, batch.mask)
        learner.kl_factor = next_factor(learner.kl_factor, kl, len(batch.mask), config)
    if learner.reference is not None:
        _move_reference(learner, learner.reference, config)


def _move_reference(learner: Learner, reference: PreTrainedModel, config: Config) -> None:
    """The policy's weights for the reference every N steps, or a share of them in each, if the config says so."""
    if config.reference == "refresh" and learner.step % config.refresh_every == 0:
        reference.load_state_dict(learner.policy.state_dict())
    elif config.reference == "ema":
        with torch.no_grad():
            for kept, trained in zip(reference.parameters(), learner.policy.parameters(), strict=True):
                kept.lerp_(trained, 1 - config.ema_decay)


def train(
    learner: Learner,
    recipe: Recipe,
    on_step: Callable[[Metrics], bool | None] = lambda metrics: None,
    *,
    update: Update = update,
    on_rollout: OnRollout = None,
) -> list[Metrics]:
    """Steps until `recipe.config.steps` are done.

    Args:
        learner: Changed in place; a resumed one goes on where it stopped.
        recipe: Algorithm, task, reward and numbers.
        on_step: Called with each step's metrics; training stops early if it returns False.
        update: As in `train_step`.
        on_rollout: As in `train_step`.

    Returns:
        The metrics of every step taken, in order.

    Raises:
        NothingToLearn, ValueError: As `train_step`.
    """
    history: list[Metrics] = []
    while learner.step < recipe.config.steps:
        history.append(train_step(learner, recipe, update=update, on_rollout=on_rollout))
        if on_step(history[-1]) is False:
            break
    return history
