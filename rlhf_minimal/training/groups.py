"""Sampled completions with their rewards, and how such batches are cut and put together."""

from dataclasses import dataclass

from jaxtyping import Bool, Float, Int
from torch import Tensor, cat
from torch.nn.functional import pad

from rlhf_minimal.tasks import Problem


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


TENSORS = ("prompts", "prompt_mask", "completions", "logp", "mask", "truncated", "rewards", "correct", "failed")


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
