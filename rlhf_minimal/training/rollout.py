"""From problems to scored completions, and the replacement of groups that the algorithm will not train on."""

import zlib
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad
from transformers import PreTrainedModel

from rlhf_minimal.extras.compiled import sample_compiled
from rlhf_minimal.functional.masked import lengths
from rlhf_minimal.models import TokenizerVocabulary, Vocabulary
from rlhf_minimal.tasks import Problem, score_all, verify_all
from rlhf_minimal.training.config import Recipe
from rlhf_minimal.training.processes import ALONE, Processes
from rlhf_minimal.training.sampler import pad_left, sample


@dataclass(frozen=True)
class Rollout:
    """Completions with their rewards: B = P x G rows, the G completions of one problem next to each other.

    Attributes:
        problems: The problem of every row, B of them.
        texts: The completion of every row, as text.
        prompts: [B, S] ids, padded on the left.
        prompt_mask: [B, S] 1 for real prompt tokens.
        completions: [B, T] ids, padded on the right; T is the longest of them, at most the token budget.
        logp: [B, T] log-probs under the distribution that was sampled.
        mask: [B, T] 1.0 for written tokens.
        truncated: [B] True where the budget ran out.
        rewards: [B] what the run trains for.
        correct: [B] what the task's verifier says, 1 for a right answer; differs from `rewards` only if another
            reward is trained for.
        failed: [B] True where the verifier or the reward function raised or hung: it counts as 0.
    """

    problems: list[Problem]
    texts: list[str]
    prompts: Int[Tensor, "B S"]
    prompt_mask: Int[Tensor, "B S"]
    completions: Int[Tensor, "B T"]
    logp: Float[Tensor, "B T"]
    mask: Float[Tensor, "B T"]
    truncated: Bool[Tensor, " B"]
    rewards: Float[Tensor, " B"]
    correct: Float[Tensor, " B"]
    failed: Bool[Tensor, " B"]


def roll_out(
    policy: PreTrainedModel,
    vocabulary: Vocabulary | TokenizerVocabulary,
    problems: list[Problem],
    recipe: Recipe,
    *,
    group_size: int = 1,
    temperature: float = 1.0,
    seed: str = "0",
    step: int = 0,
    processes: Processes = ALONE,
) -> Rollout:
    """Writes `group_size` completions for each problem and scores them.

    Args:
        policy: The model that writes.
        vocabulary: Its vocabulary.
        problems: P of them.
        recipe: Its task verifies, its reward scores, its budget limits.
        group_size: Completions per problem, G.
        temperature: Of the sampler; 0 is greedy.
        seed: Any text; it names the draw and makes it repeatable.
        step: Passed on to the reward function.
        processes: Each writes and scores the completions of its share of the problems, with draws of its own.

    Returns:
        A `Rollout` of P x G rows on the policy's device, the same in every process.
    """
    if processes.count > 1:
        if len(problems) < processes.count:
            raise ValueError(
                f"{len(problems)} problems cannot be shared by {processes.count} processes: raise --prompts"
            )
        part = roll_out(
            policy,
            vocabulary,
            problems[processes.share(len(problems))],
            recipe,
            group_size=group_size,
            temperature=temperature,
            seed=f"{seed}/process {processes.rank}",
            step=step,
        )
        return _gathered(part, problems, group_size, vocabulary, processes)
    device = policy.device
    encoded = [vocabulary.encode_prompt(problem.prompt, system=recipe.task.instruction) for problem in problems]
    prompts, prompt_mask = (x.to(device) for x in pad_left(encoded, vocabulary.pad_id))
    with recipe.config.autocast(device):
        write = sample if recipe.config.decoding == "dynamic" else sample_compiled
        samples = write(
            policy,
            prompts,
            prompt_mask,
            max_new_tokens=recipe.budget,
            eos_id=vocabulary.eos_id,
            pad_id=vocabulary.pad_id,
            group_size=group_size,
            temperature=temperature,
            generator=torch.Generator(device).manual_seed(zlib.crc32(f"sample/{seed}".encode())),
        )
    rows = [problem for problem in problems for _ in range(group_size)]
    texts = [vocabulary.decode(ids) for ids in samples.completions.tolist()]
    seconds = recipe.config.verifier_timeout
    correct = verify_all(recipe.task, rows, texts, seconds=seconds)
    rewards = correct if recipe.reward is None else score_all(recipe.reward, rows, texts, step, seconds=seconds)
    faults = correct.faults | rewards.faults
    return Rollout(
        rows,
        texts,
        prompts.repeat_interleave(group_size, dim=0),
        prompt_mask.repeat_interleave(group_size, dim=0),
        samples.completions,
        samples.logp,
        samples.mask,
        samples.truncated,
        torch.tensor(rewards.values, device=device),
        torch.tensor(correct.values, device=device),
        torch.tensor([row in faults for row in range(len(rows))], device=device),
    )


def collect(
    policy: PreTrainedModel,
    vocabulary: Vocabulary | TokenizerVocabulary,
    recipe: Recipe,
    step: int,
    processes: Processes = ALONE,
) -> tuple[Rollout | None, list[Rollout]]:
    """One step's groups, refilled until there are enough that the algorithm wants to train on.

    A group of which the algorithm keeps no row is dropped, and a fresh problem takes its place. A row dropped out of
    a group that stays is masked: it is not trained on, but its reward still counts in its group's statistics.

    Problems and samples depend on (seed, step, round) and the number of processes alone, so an interrupted run draws
    the same ones again.

    Returns:
        The groups to train on, at most `config.prompts` of them (None if not one was found within
        `config.max_refills` extra rounds), and everything that was sampled on the way: metrics of the kept groups
        alone would flatter or slander the policy.
    """
    config, group_size = recipe.config, recipe.config.group_size
    kept: list[Rollout] = []
    sampled: list[Rollout] = []
    missing = config.prompts
    for attempt in range(1 + config.max_refills):
        seed = f"{config.seed}/{step}/{attempt}"
        part = roll_out(
            policy,
            vocabulary,
            recipe.task.problems("train", config.prompts, seed=seed),
            recipe,
            group_size=group_size,
            temperature=config.temperature,
            seed=seed,
            step=step,
            processes=processes,
        )
        sampled.append(part)
        if recipe.algorithm.keep is None:
            return part, sampled
        known = {"truncated": part.truncated, "group_size": group_size, "budget": recipe.budget}
        keep = recipe.algorithm.call("keep", part.rewards, lengths=lengths(part.mask), **known)  # [B]
        alive = keep.view(-1, group_size).any(-1).nonzero()[:missing]  # [p, 1]
        if len(alive):
            rows = (alive * group_size + torch.arange(group_size, device=alive.device)).flatten()  # [p * G]
            kept.append(select(replace(part, mask=part.mask * keep[:, None]), rows))
        missing -= len(alive)
        if missing == 0:
            break
    return (join(kept) if kept else None), sampled


def _gathered(
    part: Rollout,
    problems: list[Problem],
    group_size: int,
    vocabulary: Vocabulary | TokenizerVocabulary,
    processes: Processes,
) -> Rollout:
    """The whole rollout, from each process's part of it."""
    rows = [problem for problem in problems for _ in range(group_size)]
    wide = {}
    for name in ("prompts", "completions"):
        wide[name] = int(processes.most(torch.tensor(getattr(part, name).shape[1], device=part.prompts.device)))
    part = _widened(part, wide["prompts"], wide["completions"])
    # Shares are of problems, and rows are of whole groups: gather groups.
    tensors = {}
    for name in _TENSORS:
        own = getattr(part, name)
        own = own.view(-1, group_size, *own.shape[1:])
        tensors[name] = processes.gather(own, len(problems)).flatten(0, 1)
    lengths = tensors["mask"].sum(-1).long().tolist()
    pairs = zip(tensors["completions"].tolist(), lengths, strict=True)
    texts = [vocabulary.decode(ids[:length]) for ids, length in pairs]
    return Rollout(rows, texts, **tensors)


_TENSORS = ("prompts", "prompt_mask", "completions", "logp", "mask", "truncated", "rewards", "correct", "failed")


def select(whole: Rollout, rows: Tensor) -> Rollout:
    """The rows at the given indices, in that order."""
    chosen = rows.tolist()
    tensors = {name: getattr(whole, name)[rows] for name in _TENSORS}
    return Rollout([whole.problems[i] for i in chosen], [whole.texts[i] for i in chosen], **tensors)


def join(parts: list[Rollout]) -> Rollout:
    """Several rollouts one below the other; prompts are widened on the left, completions on the right."""
    prompt_width = max(part.prompts.shape[1] for part in parts)
    width = max(part.completions.shape[1] for part in parts)
    parts = [_widened(part, prompt_width, width) for part in parts]
    problems = [problem for part in parts for problem in part.problems]
    texts = [text for part in parts for text in part.texts]
    return Rollout(problems, texts, **{name: torch.cat([getattr(part, name) for part in parts]) for name in _TENSORS})


def _widened(part: Rollout, prompt_width: int, width: int) -> Rollout:
    """With zeros before its prompts and behind its completions."""

    def wide(name: str) -> Tensor:
        x: Tensor = getattr(part, name)
        if name.startswith("prompt"):
            return pad(x, (prompt_width - x.shape[1], 0))
        return pad(x, (0, width - x.shape[1])) if x.dim() == 2 else x

    return Rollout(part.problems, part.texts, **{name: wide(name) for name in _TENSORS})
