"""Completions that begin with given tokens: a prefix to continue from, or a text that is put in when a budget ends."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from rlhf_minimal.models import AnyVocabulary
from rlhf_minimal.sample import Samples, pad_left, pad_right
from rlhf_minimal.tasks import Problem
from rlhf_minimal.train import Recipe, Rollout, join, roll_out, select


def roll_out_from_prefixes(
    policy: PreTrainedModel,
    vocabulary: AnyVocabulary,
    problems: list[Problem],
    recipe: Recipe,
    *,
    prefixes: Sequence[Sequence[int]],
    **options: Any,
) -> Rollout:
    """`roll_out`, with completions that go on from given beginnings.

    A prefix counts towards the budget and is scored with the rest; its tokens are not trained (mask 0), and their
    log-probs are 0.

    Args:
        policy: The model that is sampled.
        vocabulary: Its vocabulary.
        problems: P of them.
        recipe: As for `roll_out`.
        prefixes: The beginning of the completions of each problem, as ids (`vocabulary.encode(text)`).
        **options: Further arguments of `roll_out`.

    Raises:
        ValueError: If a prefix is missing, ends a completion, or leaves nothing of the budget; as `roll_out`.
    """
    begun = replace(recipe, sample=with_prefixes(recipe.sample, prefixes))
    return roll_out(policy, vocabulary, problems, begun, **options)


def with_prefixes(sampler: Callable[..., Samples], prefixes: Sequence[Sequence[int]]) -> Callable[..., Samples]:
    """A sampler whose completions begin with given tokens, which it reads and does not draw.

    Args:
        sampler: As `sample`.
        prefixes: The beginning of each prompt's completions, as ids.

    Returns:
        A function with the arguments of `sample`; its budget holds for prefix and continuation together.

    Raises:
        ValueError: When called, if a prefix is missing, ends a completion, or leaves nothing of the budget.
    """

    def whole(policy: PreTrainedModel, prompts: Tensor, prompt_mask: Tensor, **options: Any) -> Samples:
        if options.get("reply"):
            raise ValueError("this task replies while the policy writes: its completions cannot go on from a prefix")
        budget, pad_id = options["max_new_tokens"], options["pad_id"]
        check_prefixes(prefixes, len(prompts), options["eos_id"], budget)
        rows = zip(prompts, prompt_mask, prefixes, strict=True)
        read_first = pad_left([[*ids[kept != 0].tolist(), *prefix] for ids, kept, prefix in rows], pad_id)
        options["max_new_tokens"] = budget - min(map(len, prefixes))
        samples = sampler(policy, *(x.to(prompts.device) for x in read_first), **options)
        return prepend_prefixes(samples, prefixes, group_size=options["group_size"], budget=budget, pad_id=pad_id)

    return whole


def check_prefixes(
    prefixes: Sequence[Sequence[int]], problems: int, eos_id: int | Collection[int], budget: int
) -> None:
    """Refuses prefixes from which nothing can go on.

    Raises:
        ValueError: Naming the first problem, counted from 1, whose prefix has ended or is as long as the budget.
    """
    if len(prefixes) != problems:
        raise ValueError(f"one prefix for each problem: got {len(prefixes)} for {problems} problems")
    ends = {eos_id} if isinstance(eos_id, int) else {*eos_id}
    for number, prefix in enumerate(prefixes, start=1):
        if ends & {*prefix} or len(prefix) >= budget:
            raise ValueError(
                f"the prefix of problem {number} has {len(prefix)} tokens of a budget of {budget}, or holds the token "
                "that ends a completion: nothing can go on from it; cut it, or raise max_new_tokens"
            )


def prepend_prefixes(
    samples: Samples, prefixes: Sequence[Sequence[int]], *, group_size: int, budget: int, pad_id: int
) -> Samples:
    """The same completions with what they went on from before them; it was not sampled, so its mask is 0.

    Args:
        samples: What was sampled behind the prefixes, G completions each.
        prefixes: P beginnings of completions, as ids.
        group_size: Completions per prefix, G.
        budget: Largest number of tokens of a whole completion; what was sampled beyond it is cut off.
        pad_id: As for `sample`.

    Example:
        >>> one = torch.ones(1, 2)
        >>> sampled = Samples(torch.tensor([[5, 6]]), -one, one, torch.tensor([True]))
        >>> whole = prepend_prefixes(sampled, [[7, 8]], group_size=1, budget=3, pad_id=0)
        >>> whole.completions.tolist(), whole.mask.tolist()
        ([[7, 8, 5]], [[0.0, 0.0, 1.0]])
    """
    rows = [list(prefix) for prefix in prefixes for _ in range(group_size)]
    sizes = torch.tensor([[len(row)] for row in rows], device=samples.completions.device)  # [B, 1]
    places = sizes + torch.arange(samples.completions.shape[1], device=sizes.device)  # [B, T]
    width = int(places.max()) + 1

    def moved(x: Tensor, start: Tensor) -> Tensor:
        return start.to(x).scatter(1, places, x)

    mask = moved(samples.mask, torch.zeros(len(rows), width))
    before = pad_right([row + [pad_id] * (width - len(row)) for row in rows], pad_id)
    used = slice(int(torch.where(mask != 0, torch.arange(1, width + 1, device=mask.device), 0)[:, :budget].max()))
    return Samples(
        moved(samples.completions, before)[:, used],
        moved(samples.logp, torch.zeros(len(rows), width))[:, used],
        mask[:, used],
        samples.truncated | (mask[:, budget:] != 0).any(-1),
    )


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
    prefixes = [
        ids[:at] + ([] if text in written else vocabulary.encode_after(written, text))
        for ids, written in zip(cut.completions.tolist(), cut.texts, strict=True)
    ]
    again = options | {"group_size": 1, "seed": f"{options.get('seed', 0)}/forced"}
    whole = roll_out_from_prefixes(policy, vocabulary, cut.problems, recipe, prefixes=prefixes, **again)
    whole.logp[:, :at], whole.mask[:, :at] = cut.logp[:, :at], cut.mask[:, :at]
    order = torch.arange(len(first.texts), device=rows.device)
    order[rows] = len(order) + torch.arange(len(rows), device=rows.device)
    return select(join([first, whole]), order)
