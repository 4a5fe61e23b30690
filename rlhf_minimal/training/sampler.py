"""Sampling completions: many at once, each prompt read once, with the log-prob of every token."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from rlhf_minimal.functional.masked import completion_mask
from rlhf_minimal.models import AnyVocabulary
from rlhf_minimal.training.decoding import Decoder, ShrinkingDecoder


@dataclass(frozen=True)
class Samples:
    """Completions of a batch of prompts; the G completions of one prompt are next to each other.

    Attributes:
        completions: [B, T] token ids, padded on the right; T is the longest completion, at most the budget.
        logp: [B, T] log-probability of each token under the distribution it was drawn from (temperature included);
            0 in the padding.
        mask: [B, T] 1.0 for sampled tokens, the end-of-sequence token included.
        truncated: [B] True where the budget ran out before the end-of-sequence token.
    """

    completions: Int[Tensor, "B T"]
    logp: Float[Tensor, "B T"]
    mask: Float[Tensor, "B T"]
    truncated: Bool[Tensor, "B"]


@torch.no_grad()
def sample(
    model: PreTrainedModel,
    prompts: Int[Tensor, "P S"],
    prompt_mask: Int[Tensor, "P S"],
    *,
    max_new_tokens: int,
    eos_id: int | Collection[int],
    pad_id: int,
    group_size: int = 1,
    temperature: float = 1.0,
    generator: torch.Generator | None = None,
    decoder: type[Decoder] = ShrinkingDecoder,
) -> Samples:
    """Draws `group_size` completions for every prompt, with a key-value cache.

    No top-k and no top-p: a policy gradient is unbiased only for the distribution that was sampled, and both remove
    tokens from it that the log-probs of training still include.

    Args:
        model: Any causal language model of transformers.
        prompts: [P, S] ids, padded on the left.
        prompt_mask: [P, S], 1 for real prompt tokens.
        max_new_tokens: Budget in tokens, the end-of-sequence token included.
        eos_id: The token that ends a completion, or all of those that do.
        pad_id: The token that fills the columns after it (may equal `eos_id`).
        group_size: Completions per prompt, G.
        temperature: Logits are divided by it; 1 is the policy itself. 0 is greedy decoding: the most likely token
            is then certain, so its log-probability is 0.
        generator: Source of randomness, on the model's device. Only rows that have not ended draw from it.
        decoder: How the cache is kept; changes time and memory, not the samples.

    Returns:
        `Samples` with B = P x G rows, on the model's device.

    Raises:
        ValueError: If the budget or the group size is below 1, the temperature negative, a prompt empty, or the
            policy's logits are not a number; if prompt and budget are more than the model's context.
    """
    check_request(prompt_mask, max_new_tokens, group_size, temperature)
    check_length(model, int(prompt_mask.sum(-1).max()), max_new_tokens)
    model_so_far = decoder(model, prompts, prompt_mask, group_size, max_new_tokens)
    logits = model_so_far.logits  # [B, V]
    rows = torch.arange(len(logits), device=prompts.device)  # rows that have not ended
    completions = torch.full((len(rows), max_new_tokens), pad_id, device=prompts.device)
    logp = torch.zeros(len(rows), max_new_tokens, device=prompts.device)
    truncated = torch.ones(len(rows), dtype=torch.bool, device=prompts.device)
    ends = torch.tensor([eos_id] if isinstance(eos_id, int) else [*eos_id], device=prompts.device)
    for t in range(max_new_tokens):
        tokens, logp[rows, t] = draw(logits, temperature, generator)
        completions[rows, t] = tokens
        truncated[rows] = goes_on = ~torch.isin(tokens, ends)
        rows = rows[goes_on]
        if len(rows) == 0 or t == max_new_tokens - 1:
            break
        logits = model_so_far.step(completions[:, t], rows)

    completions, logp = completions[:, : t + 1], logp[:, : t + 1]  # the longest completion ends here
    return Samples(completions, logp, completion_mask(completions, eos_id), truncated)


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


def going_on(sampler: Callable[..., Samples], prefixes: Sequence[Sequence[int]]) -> Callable[..., Samples]:
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
        budget, pad_id = options["max_new_tokens"], options["pad_id"]
        check_prefixes(prefixes, len(prompts), options["eos_id"], budget)
        rows = zip(prompts, prompt_mask, prefixes, strict=True)
        read_first = pad_left([[*ids[kept != 0].tolist(), *prefix] for ids, kept, prefix in rows], pad_id)
        options["max_new_tokens"] = budget - min(map(len, prefixes))
        samples = sampler(policy, *(x.to(prompts.device) for x in read_first), **options)
        return behind(samples, prefixes, group_size=options["group_size"], budget=budget, pad_id=pad_id)

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


def behind(
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
        >>> whole = behind(sampled, [[7, 8]], group_size=1, budget=3, pad_id=0)
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


def check_request(prompt_mask: Tensor, max_new_tokens: int, group_size: int, temperature: float) -> None:
    """Checks the arguments of a sampling function.

    Raises:
        ValueError: If one of them is out of its range, or a prompt ends in padding.
    """
    if max_new_tokens < 1 or group_size < 1 or temperature < 0:
        raise ValueError(
            "need max_new_tokens >= 1, group_size >= 1 and temperature >= 0; "
            f"got {max_new_tokens}, {group_size} and {temperature}"
        )
    if prompt_mask.shape[1] == 0 or not bool((prompt_mask[:, -1] == 1).all()):
        raise ValueError("a prompt ends in padding: pad prompts on the left, and give every prompt at least one token")


def check_length(model: PreTrainedModel, prompt: int, max_new_tokens: int) -> None:
    """Refuses a prompt and a budget, in tokens, that are together longer than what the model reads.

    Beyond its context a model with rotary positions answers without a word, and badly; one with learnt positions fails.
    """
    config = getattr(model, "config", None)
    limit = getattr(config and config.get_text_config(), "max_position_embeddings", None)
    if limit and prompt + max_new_tokens > limit:
        raise ValueError(
            f"a prompt of {prompt} tokens and a completion of up to {max_new_tokens} are longer than the {limit} that "
            "the model reads: lower --max-new-tokens (max_new_tokens), or shorten the prompt"
        )


def draw(logits: Tensor, temperature: float, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
    """One token for each row of [B, V] and its log-probability under the distribution it came from.

    Raises:
        ValueError: If the logits are not a number.
    """
    if logits.isnan().any():
        raise ValueError("the policy's logits are not a number: training has destroyed it; lower the learning rate")
    if temperature == 0:
        tokens = logits.argmax(-1)
        return tokens, torch.zeros_like(logits[:, 0], dtype=torch.float32)
    scores = torch.log_softmax(logits.float() / temperature, dim=-1)
    tokens = torch.multinomial(scores.exp(), 1, generator=generator)  # [B, 1]
    return tokens.squeeze(-1), scores.gather(-1, tokens).squeeze(-1)


def pad_left(rows: list[list[int]], pad_id: int) -> tuple[Int[Tensor, "P S"], Int[Tensor, "P S"]]:
    """Prompts of different lengths as one tensor, padded on the left, and its mask.

    Example:
        >>> ids, mask = pad_left([[5], [6, 7, 8]], pad_id=0)
        >>> ids.tolist(), mask.tolist()
        ([[0, 0, 5], [6, 7, 8]], [[0, 0, 1], [1, 1, 1]])
    """
    width = max(len(row) for row in rows)
    ids = torch.tensor([[pad_id] * (width - len(row)) + row for row in rows], dtype=torch.long)
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows], dtype=torch.long)
    return ids, mask


def pad_right(rows: list[list[int]], pad_id: int) -> Int[Tensor, "B T"]:
    """Completions of different lengths as one tensor, padded on the right.

    Example:
        >>> pad_right([[5], [6, 7, 8]], pad_id=0).tolist()
        [[5, 0, 0], [6, 7, 8]]
    """
    width = max(len(row) for row in rows)
    return torch.tensor([row + [pad_id] * (width - len(row)) for row in rows])
