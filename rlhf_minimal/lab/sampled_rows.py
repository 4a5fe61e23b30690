"""Rows that a model writes, to train on: completions of its own or of another model, and labelled pairs of them."""

import random
import zlib
from dataclasses import replace
from typing import Any, Literal

import torch
from transformers import PreTrainedModel

from rlhf_minimal.functional.checks import check_count
from rlhf_minimal.models import AnyVocabulary
from rlhf_minimal.pairs import bradley_terry
from rlhf_minimal.sample import Samples, pad_left, sample
from rlhf_minimal.tasks import CompletionRow, PairRow, Task, verify_all
from rlhf_minimal.tasks.base import Split
from rlhf_minimal.train import Recipe, roll_out


def sample_completions(
    policy: PreTrainedModel,
    vocabulary: AnyVocabulary,
    recipe: Recipe,
    *,
    problems: int,
    group_size: int = 1,
    keep: Literal["all", "right"] = "right",
    temperature: float = 1.0,
    seed: int = 0,
    at_once: int = 64,
) -> list[CompletionRow]:
    """Completions that a model writes for training problems, as rows for `imitate` or the command `sft`.

    Args:
        policy: The model that writes: the student itself (rejection sampling), or another one (distillation).
        vocabulary: Its vocabulary.
        recipe: Its task and token budget are used.
        problems: How many training problems; they are new for another seed.
        group_size: Completions per problem.
        keep: The `"right"` ones (the task's verifier gives 1, whatever the recipe's reward is), or `"all"`. Completions
            that ran into the token budget are left out of both: they have no end to imitate.
        temperature: Of the sampler; 0 is greedy.
        seed: Of problems and samples.
        at_once: Problems that are sampled together.

    Returns:
        The rows, in the order of the problems. The prompt is the text that the policy read, a chat template included.

    Example:
        >>> from rlhf_minimal import ALGORITHMS
        >>> from rlhf_minimal.models import Vocabulary, tiny_llama
        >>> from rlhf_minimal.tasks import get_task
        >>> even, vocabulary = get_task("even"), Vocabulary(get_task("even").alphabet)
        >>> recipe = Recipe(ALGORITHMS["grpo"], even)
        >>> rows = sample_completions(tiny_llama(12), vocabulary, recipe, problems=4, group_size=8)
        >>> all(row.completion[0] in "02468" for row in rows)
        True
    """
    if keep not in ("all", "right"):
        raise ValueError(f"keep must be 'all' or 'right'; got {keep!r}")
    refuse_replies(recipe.task)
    check_count(problems=problems, group_size=group_size, at_once=at_once)
    rows, by_verifier = [], replace(recipe, reward=None)
    asked = recipe.task.problems("train", problems, seed=f"completions/{seed}")
    for first in range(0, problems, at_once):
        part = asked[first : first + at_once]
        draw = f"completions/{seed}/{first}"
        written = roll_out(
            policy, vocabulary, part, by_verifier, group_size=group_size, temperature=temperature, seed=draw
        )
        kept = ~written.truncated & ((written.correct == 1) | (keep == "all"))
        for row in kept.nonzero().flatten().tolist():
            prompt = vocabulary.prompt_text(written.problems[row].prompt, system=recipe.task.instruction)
            rows.append(CompletionRow(prompt, written.texts[row]))
    return rows


def sample_pairs(
    policy: PreTrainedModel,
    vocabulary: AnyVocabulary,
    task: Task,
    n: int,
    *,
    split: Split = "train",
    seed: int = 0,
    batch_size: int = 500,
) -> list[PairRow]:
    """Pairs of a policy's own samples, labelled by the task's verifier with Bradley-Terry noise.

    Two completions of one prompt are sampled at temperature 1; the first is chosen with probability
    sigmoid(gold of the first - gold of the second). Pairs of equal completions, empty completions and those on which
    the verifier fails are replaced. The row keeps the gold scores for measuring; the reward model never sees them.

    Args:
        policy: Whose samples are compared.
        vocabulary: Its vocabulary.
        task: Its `verify` is the gold score. Its instruction and a chat template stand in the prompts of the rows, as
            the policy has read them.
        n: How many pairs.
        split: Which problems to ask, `"train"` or `"held_out"`.
        seed: Seed of problems, samples and labels.
        batch_size: Prompts sampled at once.

    Raises:
        ValueError: If the policy's completions are nearly all equal or empty, so that no pairs can be made.
    """
    refuse_replies(task)
    pairs: list[PairRow] = []
    for attempt in range(10 + 10 * n // batch_size):
        name = f"pairs/{split}/{seed}/{attempt}"
        problems = task.problems(split, batch_size, seed=name)
        system, budget = task.instruction, task.max_new_tokens
        asked = [problem.prompt for problem in problems]
        texts = write_completions(
            policy, vocabulary, asked, group_size=2, max_new_tokens=budget, seed=name, system=system
        )
        prompts = [vocabulary.prompt_text(prompt, system=system) for prompt in asked]
        rng = random.Random(name)
        scored = verify_all(task, [problem for problem in problems for _ in range(2)], texts)
        for i, (prompt, one, other) in enumerate(zip(prompts, texts[::2], texts[1::2], strict=True)):
            if one != other and one.strip() and other.strip() and not scored.faults.keys() & {2 * i, 2 * i + 1}:
                pairs.append(label_pair(prompt, (one, other), (scored.values[2 * i], scored.values[2 * i + 1]), rng))
        if len(pairs) >= n:
            return pairs[:n]
    raise ValueError(
        f"{attempt + 1} rounds of {batch_size} prompts gave only {len(pairs)} pairs of two different completions: the "
        "policy writes nearly always the same; take an earlier checkpoint"
    )


def refuse_replies(task: Task) -> None:
    """Refuses a task whose completions are not the policy's alone: rows on file do not say who wrote what."""
    if task.reply is not None:
        raise ValueError(f"{task.name} replies while the policy writes, and rows would train on its replies as well")


def label_pair(prompt: str, completions: tuple[str, str], gold: tuple[float, float], rng: random.Random) -> PairRow:
    """One comparison: the first completion is chosen with probability sigmoid(its gold score - the other's)."""
    chance = bradley_terry(*torch.tensor(gold, dtype=torch.float64).unbind()).item()
    if rng.random() < chance:
        return PairRow(prompt, *completions, *gold)
    return PairRow(prompt, *completions[::-1], *gold[::-1])


def write_completions(
    policy: PreTrainedModel,
    vocabulary: AnyVocabulary,
    prompts: list[str],
    *,
    group_size: int,
    max_new_tokens: int,
    seed: str,
    system: str = "",
) -> list[str]:
    """Samples at temperature 1 as text, those of one prompt next to each other; equal seeds give equal samples.

    The policy is asked as in a run (`vocabulary.encode_prompt`): in its chat template, if it has one, after the message
    `system`.
    """
    asked = [vocabulary.encode_prompt(prompt, system=system) for prompt in prompts]
    draws = torch.Generator(policy.device).manual_seed(zlib.crc32(f"answers/{seed}".encode()))
    options = {"max_new_tokens": max_new_tokens, "group_size": group_size, "generator": draws}
    samples = sample_ids(policy, vocabulary, asked, **options)
    return [vocabulary.decode(row) for row in samples.completions.tolist()]


def sample_ids(model: PreTrainedModel, vocabulary: AnyVocabulary, prompts: list[list[int]], **options: Any) -> Samples:
    """`sample` for prompts of different lengths.

    Args:
        model: The model that is sampled.
        vocabulary: Its vocabulary, which knows the token that ends a completion and the one that fills.
        prompts: The ids of each.
        **options: Further arguments of `sample`.
    """
    ids, mask = (x.to(model.device) for x in pad_left(prompts, vocabulary.pad_id))
    return sample(model, ids, mask, eos_id=vocabulary.eos_ids, pad_id=vocabulary.pad_id, **options)
