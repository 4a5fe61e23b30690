"""From problems to scored completions, and the replacement of groups that the algorithm does not keep."""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from rlhf_minimal.functional.masked import lengths
from rlhf_minimal.models import AnyVocabulary
from rlhf_minimal.tasks import Problem, score_all, verify_all
from rlhf_minimal.training.groups import Rollout, join, moved, place_steps, select
from rlhf_minimal.training.processes import ALONE, Processes
from rlhf_minimal.training.recipe import Recipe
from rlhf_minimal.training.sampler import Samples, check_length, going_on, pad_left


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
    processes: Processes = ALONE,
    prefixes: Sequence[Sequence[int]] | None = None,
) -> Rollout:
    """Samples `group_size` completions for each problem and scores them.

    Args:
        policy: The model that is sampled.
        vocabulary: Its vocabulary.
        problems: P of them.
        recipe: Its task, reward function and token budget are used.
        group_size: Completions per problem, G.
        temperature: Of the sampler; 0 is greedy.
        seed: Any text; equal texts give equal samples.
        step: Passed on to the reward function.
        processes: Each samples and scores the completions of its share of the problems, with a seed of its own.
        prefixes: The beginning of the completions of each problem, as ids (`vocabulary.encode(text)`): they go on from
            there. It counts towards the budget and is scored with the rest; its tokens are not trained (mask 0), and
            their log-probs are 0.

    Returns:
        A `Rollout` of P x G rows on the policy's device, the same in every process.

    Raises:
        ValueError: If there are fewer problems than processes; if a prefix is missing, ends a completion, or leaves
            nothing of the budget; as the sampler.
    """
    if processes.count > 1:
        own = prefixes and prefixes[processes.share(len(problems))]
        write = partial(roll_out, policy, vocabulary, recipe=recipe, temperature=temperature, step=step, prefixes=own)
        return _roll_out_together(write, problems, group_size, seed, processes)
    encoded = [vocabulary.encode_prompt(problem.prompt, system=recipe.task.instruction) for problem in problems]
    prompts, prompt_mask = (x.to(policy.device) for x in pad_left(encoded, vocabulary.pad_id))
    draws = torch.Generator(policy.device).manual_seed(zlib.crc32(f"sample/{seed}".encode()))
    options = {"group_size": group_size, "temperature": temperature, "generator": draws}
    options |= {"max_new_tokens": recipe.budget, "eos_id": vocabulary.eos_ids, "pad_id": vocabulary.pad_id}
    sampler = recipe.sampler or recipe.reader.sample
    sampler = sampler if prefixes is None else going_on(sampler, prefixes)
    with recipe.config.autocast(policy.device):
        samples = sampler(policy, prompts, prompt_mask, **options)
    rows = [problem for problem in problems for _ in range(group_size)]
    texts = [vocabulary.decode(ids) for ids in samples.completions.tolist()]
    prompts, prompt_mask = (x.repeat_interleave(group_size, dim=0) for x in (prompts, prompt_mask))  # [B, S]
    scores = {name: x.to(policy.device) for name, x in _scores(recipe, rows, texts, step, samples, vocabulary).items()}
    return Rollout(rows, texts, prompts, prompt_mask, **vars(samples), **scores)


def force(
    policy: PreTrainedModel,
    vocabulary: AnyVocabulary,
    problems: list[Problem],
    recipe: Recipe,
    *,
    at: int,
    text: str,
    **options: Any,
) -> Rollout:
    """As `roll_out`, but a completion that has not ended after `at` tokens gets a text put in, and goes on from there.

    With the text that comes before a final answer, this forces an answer from a budget of `at` tokens ("budget
    forcing": s1, arXiv 2501.19393). A completion that holds the text already gets nothing. The tokens that are put in
    are not trained (mask 0).

    Args:
        policy: The model that is sampled.
        vocabulary: Its vocabulary.
        problems: P of them.
        recipe: As for `roll_out`; its budget holds for the whole completion.
        at: Tokens after which the text is put in; with it, there must be some of the budget left.
        text: What is put in.
        **options: Further arguments of `roll_out`.

    Raises:
        ValueError: As `roll_out`.
    """
    short = replace(recipe, config=replace(recipe.config, max_new_tokens=at))
    first = roll_out(policy, vocabulary, problems, short, **options)
    rows = first.truncated.nonzero().squeeze(-1)
    if len(rows) == 0:
        return first
    cut = select(first, rows)
    put_in = vocabulary.encode(text)
    prefixes = [
        ids[:at] + ([] if text in written else put_in)
        for ids, written in zip(cut.completions.tolist(), cut.texts, strict=True)
    ]
    again = options | {"group_size": 1, "seed": f"{options.get('seed', 0)}/forced"}
    whole = roll_out(policy, vocabulary, cut.problems, recipe, prefixes=prefixes, **again)
    whole.logp[:, :at], whole.mask[:, :at] = cut.logp[:, :at], cut.mask[:, :at]
    order = torch.arange(len(first.texts), device=rows.device)
    order[rows] = len(order) + torch.arange(len(rows), device=rows.device)
    return select(join([first, whole]), order)


def check_context(
    policy: PreTrainedModel, vocabulary: AnyVocabulary, recipe: Recipe, problems: Sequence[Problem]
) -> None:
    """Refuses problems whose prompts and completions do not fit the policy's context, before any of them is sampled.

    Raises:
        ValueError: Naming the longest prompt.
    """
    system = recipe.task.instruction
    lengths = {len(vocabulary.encode_prompt(one.prompt, system=system)): one.prompt for one in problems}
    try:
        check_length(policy, max(lengths), recipe.budget)
    except ValueError as error:
        raise ValueError(f"{error}; the prompt begins with {lengths[max(lengths)][:60]!r}") from error


def _scores(
    recipe: Recipe, problems: list[Problem], texts: list[str], step: int, samples: Samples, vocabulary: AnyVocabulary
) -> dict[str, Tensor]:
    """What the verifier, the reward function and the step reward say: `rewards`, `correct`, ... of a `Rollout`."""
    seconds, placed = recipe.config.verifier_timeout, {}
    # An evaluation is no step.
    with torch.set_grad_enabled(torch.is_grad_enabled()):  # somebody's function may leave gradients switched off
        correct = rewards = verify_all(recipe.task, problems, texts, seconds=seconds, step=step or None)
        if recipe.reward is not None:
            rewards = score_all(recipe.reward, problems, texts, step, seconds=seconds)
        faults = correct.faults | rewards.faults
        if recipe.step_reward is not None:
            marked = score_all(recipe.step_reward, problems, texts, step, of_steps=True, seconds=seconds)
            faults |= marked.faults
            placed = place_steps(vocabulary, samples.completions, samples.mask, marked.values)
    failed = [row in faults for row in range(len(problems))]
    return placed | {
        "rewards": torch.tensor(rewards.values),
        "correct": torch.tensor(correct.values),
        "failed": torch.tensor(failed),
    }


def parts_of(recipe: Recipe, groups: Rollout) -> Tensor:
    """[B, K] the parts of each completion's reward (`Task.parts`); K = 1, the reward, if the task has none.

    Raises:
        ValueError: If completions have different numbers of parts.
    """
    if recipe.task.parts is None:
        return groups.rewards[:, None]
    rows = [list(recipe.task.parts(text, problem)) for text, problem in zip(groups.texts, groups.problems, strict=True)]
    if len({len(row) for row in rows}) > 1:
        raise ValueError(
            f"{recipe.task.name}: its parts are {len(rows[0])} numbers for one completion and another number for "
            "another one: give as many for all, 0 where a part was not earned"
        )
    return torch.tensor(rows, dtype=groups.rewards.dtype, device=groups.rewards.device)


def collect(
    policy: PreTrainedModel, vocabulary: AnyVocabulary, recipe: Recipe, step: int, processes: Processes = ALONE
) -> tuple[Rollout | None, list[Rollout]]:
    """One step's groups, refilled until there are enough that the algorithm keeps.

    A group of which the algorithm keeps no row is dropped, and a fresh problem takes its place. A dropped row in
    a group that is kept is masked: it is not trained on, but its reward still counts in its group's statistics.

    Problems and samples depend on (seed, step, round) and the number of processes alone, so an interrupted run draws
    the same ones again.

    Returns:
        The groups to train on, at most `config.prompts` of them (None if not one was found within
        `config.max_refills` extra rounds), and everything that was sampled, because metrics of the kept
        groups alone would be biased.
    """
    config, sampled = recipe.config, list[Rollout]()
    write = partial(roll_out, policy, vocabulary, recipe=recipe, step=step, processes=processes)

    def fresh() -> Rollout:
        seed = f"{config.seed}/{step}/{len(sampled)}"
        problems = recipe.task.problems("train", config.prompts, seed=seed)
        sampled.append(write(problems, group_size=config.group_size, temperature=config.temperature, seed=seed))
        return sampled[-1]

    return fresh() if recipe.algorithm.keep is None else _refilled(fresh, recipe), sampled


def _refilled(fresh: Callable[[], Rollout], recipe: Recipe) -> Rollout | None:
    """Groups that the algorithm keeps, from as many rounds of sampling as needed and allowed by the config."""
    config, group_size = recipe.config, recipe.config.group_size
    assert recipe.algorithm.keep is not None
    kept: list[Rollout] = []
    missing = config.prompts
    for _ in range(1 + config.max_refills):
        rollout = fresh()
        known = {"truncated": rollout.truncated, "group_size": group_size, "budget": recipe.budget}
        keep = recipe.algorithm.call("keep", rollout.rewards, lengths=lengths(rollout.mask), **known)  # [B]
        alive = keep.view(-1, group_size).any(-1).nonzero()[:missing]  # [p, 1]
        if len(alive):
            rows = (alive * group_size + torch.arange(group_size, device=alive.device)).flatten()  # [p * G]
            kept.append(select(replace(rollout, mask=rollout.mask * keep[:, None]), rows))
        missing -= len(alive)
        if missing == 0:
            break
    return join(kept) if kept else None


def _roll_out_together(
    write: Callable[..., Rollout], problems: list[Problem], group_size: int, seed: str, processes: Processes
) -> Rollout:
    """The whole rollout, for which each process samples the completions of its share of the problems."""
    if len(problems) < processes.count:
        raise ValueError(f"{len(problems)} problems cannot be shared by {processes.count} processes: raise --prompts")
    own = write(
        problems[processes.share(len(problems))], group_size=group_size, seed=f"{seed}/process {processes.rank}"
    )
    # A task may put anything into its problems, and every process has them already: they are not sent.
    whole = join(processes.everyones(moved(replace(own, problems=[]), "cpu")))
    rows = [problem for problem in problems for _ in range(group_size)]
    return moved(replace(whole, problems=rows), own.mask.device)
