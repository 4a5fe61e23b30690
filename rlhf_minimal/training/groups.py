"""Sampled completions with their rewards, and how such batches are cut and put together."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, cat
from torch.nn.functional import pad

from rlhf_minimal.functional.advantages import place_rewards
from rlhf_minimal.functional.masked import last_token
from rlhf_minimal.models import TokenizerVocabulary, Vocabulary
from rlhf_minimal.tasks import Problem, Step


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
        mask: [B, T] 1.0 for sampled tokens.
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

    def with_outcome(self, rewards: Float[Tensor, " B"]) -> dict[str, Tensor]:
        """`step_rewards` and `step_ends` of a `Batch`: the marks, and the outcome's reward on the last token."""
        last = last_token(self.mask)
        return {
            "step_rewards": self.step_marks + place_rewards(rewards, self.mask),
            "step_ends": torch.maximum(self.step_ends, last),
        }


TENSORS = tuple(f.name for f in fields(Rollout) if f.name not in ("problems", "texts"))


def place_steps(
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
        >>> place_steps(Vocabulary("abc="), torch.tensor([[1, 2, 4, 3, 0]]), mask, [[Step(2, 0.5)]])["step_marks"]
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


def select(whole: Rollout, rows: Tensor) -> Rollout:
    """The rows at the given indices, in that order."""
    chosen = rows.tolist()
    tensors = {name: getattr(whole, name)[rows] for name in TENSORS}
    return Rollout([whole.problems[i] for i in chosen], [whole.texts[i] for i in chosen], **tensors)


def join(rollouts: list[Rollout]) -> Rollout:
    """Several rollouts one below the other; prompts are widened on the left, completions on the right."""
    prompt_width = max(one.prompts.shape[1] for one in rollouts)
    width = max(one.completions.shape[1] for one in rollouts)
    rollouts = [widened(one, prompt_width, width) for one in rollouts]
    problems = [problem for one in rollouts for problem in one.problems]
    texts = [text for one in rollouts for text in one.texts]
    return Rollout(problems, texts, **{name: cat([getattr(one, name) for one in rollouts]) for name in TENSORS})


def widened(rollout: Rollout, prompt_width: int, width: int) -> Rollout:
    """With zeros before its prompts and behind its completions."""

    def wide(name: str) -> Tensor:
        x: Tensor = getattr(rollout, name)
        if name.startswith("prompt"):
            return pad(x, (prompt_width - x.shape[1], 0))
        return pad(x, (0, width - x.shape[1])) if x.dim() == 2 else x

    return Rollout(rollout.problems, rollout.texts, **{name: wide(name) for name in TENSORS})


def moved(rollout: Rollout, device: str | torch.device) -> Rollout:
    """The same rollout on another device."""
    return replace(rollout, **{name: getattr(rollout, name).to(device) for name in TENSORS})
