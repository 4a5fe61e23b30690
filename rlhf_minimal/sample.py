"""Sampling: many completions at once, each prompt read once for its whole group, with the log-prob of every token."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, fields

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad
from transformers import PreTrainedModel

from rlhf_minimal.functional.checks import check_temperature
from rlhf_minimal.models import forward_with_cache, positions
from rlhf_minimal.tasks import Problem

# Reads the tokens [B] at place t of their completions; gives the logits [n, V] of what follows in the rows [n].
Step = Callable[[Tensor, Tensor, int], Tensor]


@dataclass(frozen=True)
class Samples:
    """Completions of a batch of prompts; the G completions of one prompt are next to each other.

    Attributes:
        completions: [B, T] token ids, padded on the right; T is the longest completion, at most the budget.
        logp: [B, T] log-probability of each token under the distribution it was drawn from (temperature included);
            0 in the padding and in replies.
        mask: [B, T] 1.0 for sampled tokens, the end-of-sequence token included; 0 in the padding and in replies.
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
    decode: Callable[..., tuple[Tensor, Step]] | None = None,
    reply: Callable[[int, list[int]], list[int]] | None = None,
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
        decode: How the model is called, `decode_with_cache` by default; changes time and memory, not the samples.
        reply: (row, its tokens so far) -> tokens of an environment that the row reads next, `[]` for none; asked after
            every sampled token. A row reads one of them a column, so rows at different turns never wait for each other.

    Returns:
        `Samples` with B = P x G rows, on the model's device.

    Raises:
        ValueError: If the budget or the group size is below 1, the temperature negative, a prompt empty, or the
            policy's logits are not a number; if prompt and budget are more than the model's context.
    """
    _check_request(prompt_mask, max_new_tokens, group_size, temperature)
    check_length(model, int(prompt_mask.sum(-1).max()), max_new_tokens)
    logits, step = (decode or decode_with_cache)(model, prompts, prompt_mask, group_size, max_new_tokens)  # [B, V]
    rows = torch.arange(len(logits), device=prompts.device)  # rows that have not ended
    completions = torch.full((len(rows), max_new_tokens), pad_id, device=prompts.device)
    logp = torch.zeros(len(rows), max_new_tokens, device=prompts.device)
    mask, unread = torch.zeros_like(logp), [list[int]() for _ in rows]  # replies, as far as they are not read
    truncated = torch.ones(len(rows), dtype=torch.bool, device=prompts.device)
    ends = torch.tensor([eos_id] if isinstance(eos_id, int) else [*eos_id], device=prompts.device)
    for t in range(max_new_tokens):
        tokens, logp[rows, t] = _draw(logits, temperature, generator)
        mask[rows, t], goes_on = 1.0, ~torch.isin(tokens, ends)
        for i, row in enumerate(rows.tolist() if reply else ()):
            if unread[row]:
                tokens[i], logp[row, t], mask[row, t], goes_on[i] = unread[row].pop(0), 0.0, 0.0, True
            elif reply and (said := reply(row, [*completions[row, :t].tolist(), int(tokens[i])])):
                unread[row], goes_on[i] = [*said], True
        completions[rows, t], truncated[rows] = tokens, goes_on
        rows = rows[goes_on]
        if len(rows) == 0 or t == max_new_tokens - 1:
            break
        logits = step(completions[:, t], rows, t)
    used = slice(t + 1)  # the longest completion ends here
    return Samples(completions[:, used], logp[:, used], mask[:, used], truncated)


def decode_with_cache(
    model: PreTrainedModel,
    prompts: Int[Tensor, "P S"],
    prompt_mask: Int[Tensor, "P S"],
    group_size: int,
    max_new_tokens: int,
) -> tuple[Float[Tensor, "B V"], Step]:
    """Reads every prompt once, and from then on one token of each completion that goes on.

    Rows that have ended leave the cache (chapter making-it-fast).

    Returns:
        The logits of the first tokens, and the function that reads the next ones.
    """
    length = prompts.shape[1]
    mask = pad(prompt_mask.long(), (0, max_new_tokens), value=1)  # [P, S + max_new_tokens]
    places = positions(mask)
    first, cache = forward_with_cache(model, prompts, mask[:, :length], places[:, :length], None)
    of_prompt = torch.arange(len(mask), device=prompts.device).repeat_interleave(group_size)  # [B]
    cache.reorder_cache(of_prompt)
    mask, places, first = mask[of_prompt], places[of_prompt], first[of_prompt]
    kept = torch.arange(len(mask), device=prompts.device)  # the rows that the cache holds

    def step(tokens: Tensor, rows: Tensor, t: int) -> Tensor:
        nonlocal kept, cache
        if len(rows) < len(kept):
            cache.reorder_cache(torch.searchsorted(kept, rows))
            kept = rows
        end = length + t + 1
        logits, cache = forward_with_cache(
            model, tokens[kept, None], mask[kept, :end], places[kept, end - 1 : end], cache
        )
        return logits[torch.searchsorted(kept, rows)]

    return first, step


def _draw(logits: Tensor, temperature: float, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
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


def _check_request(prompt_mask: Tensor, max_new_tokens: int, group_size: int, temperature: float) -> None:
    """Checks the arguments of a sampling function.

    Raises:
        ValueError: If one of them is out of its range, or a prompt ends in padding.
    """
    if max_new_tokens < 1 or group_size < 1 or temperature < 0:
        raise ValueError(
            "need max_new_tokens >= 1, group_size >= 1 and temperature >= 0; "
            f"got {max_new_tokens}, {group_size} and {temperature}"
        )
    if temperature != 0:
        check_temperature(temperature)
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


@dataclass(frozen=True)
class Rollout:
    """Completions with their rewards: B = P x G rows, the G completions of one problem next to each other.

    Attributes:
        problems: The problem of every row, B in all.
        texts: The completion of every row, as text.
        prompts: [B, S] ids, padded on the left.
        prompt_mask: [B, S] 1 for real prompt tokens.
        completions: [B, T] ids, padded on the right; T is the longest of them, at most the token budget.
        logp: [B, T] log-probs under the distribution that was sampled.
        mask: [B, T] 1.0 for sampled tokens, 0 for replies of the task.
        truncated: [B] True where the token budget ran out.
        rewards: [B] the rewards that the run trains for.
        correct: [B] the score by the task's verifier, 1 for a right answer; differs from `rewards` only if another
            reward is trained for.
        failed: [B] True where the verifier or the reward function raised or hung: it counts as 0.
        step_ends: [B, T] 1 at the token that ends a step, where there is a step reward. Default: no step is marked.
        step_marks: [B, T] the mark of the step that ends there, 0 elsewhere.
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
    step_ends: Float[Tensor, "B T"] = None  # type: ignore[assignment]
    step_marks: Float[Tensor, "B T"] = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        for name in ("step_ends", "step_marks"):
            if getattr(self, name) is None:
                object.__setattr__(self, name, torch.zeros_like(self.mask))


TENSORS = tuple(f.name for f in fields(Rollout) if f.name not in ("problems", "texts"))


def select(rollout: Rollout, rows: Tensor) -> Rollout:
    """The rows at the given indices, in that order."""
    chosen = rows.tolist()
    tensors = {name: getattr(rollout, name)[rows] for name in TENSORS}
    return Rollout([rollout.problems[i] for i in chosen], [rollout.texts[i] for i in chosen], **tensors)


def join(rollouts: list[Rollout]) -> Rollout:
    """Several rollouts one below the other; prompts are widened on the left, completions on the right."""
    S = max(one.prompts.shape[1] for one in rollouts)
    T = max(one.completions.shape[1] for one in rollouts)

    def wide(name: str, x: Tensor) -> Tensor:
        if x.dim() < 2:
            return x
        return pad(x, (S - x.shape[1], 0) if name.startswith("prompt") else (0, T - x.shape[1]))

    tensors = {name: torch.cat([wide(name, getattr(one, name)) for one in rollouts]) for name in TENSORS}
    problems = [problem for one in rollouts for problem in one.problems]
    return Rollout(problems, [text for one in rollouts for text in one.texts], **tensors)
