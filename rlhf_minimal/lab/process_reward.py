"""Process reward models: labels for the steps of completions, a scorer that learns them, and what its scores are for.

    sample_steps -> rows with labelled steps -> step_loss (by `fit`) -> StepScorer -> scored_steps: marks in a run
                                                                                    -> weigh_steps: weights of votes

Where steps end is said by the task's checker (`Task.steps`), whose marks only the labels by program read. What follows
the last of these ends, to the end of the completion, is one more step: its label is the outcome.
"""

import copy
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, logsigmoid
from transformers import PreTrainedModel

from rlhf_minimal.functional.checks import check_count
from rlhf_minimal.functional.logprobs import token_logprobs
from rlhf_minimal.lab.forced_tokens import roll_out_from_prefixes
from rlhf_minimal.lab.rows import StepRow
from rlhf_minimal.metrics import Metrics
from rlhf_minimal.model_files import STEP_SCORER_FILE, damaged, find_checkpoint
from rlhf_minimal.models import (
    AnyVocabulary,
    RewardModel,
    concatenate,
    load_policy,
    load_reward_model,
    policy_logits,
    positions,
    save_policy,
)
from rlhf_minimal.sample import Rollout, check_length, pad_left, pad_right, select
from rlhf_minimal.tasks import Problem, RewardFunction, Step, StepReward, Task
from rlhf_minimal.tasks.base import Split
from rlhf_minimal.train import Recipe, roll_out

LABELS = ("program", "shepherd", "shepherd-hard", "outcome")

# What a completion's steps are worth together, from their scores [K] as log-odds.
AGGREGATES: dict[str, Callable[[Tensor], Tensor]] = {
    "min": lambda x: x.min().sigmoid(),
    "mean": lambda x: x.sigmoid().mean(),
    "last": lambda x: x[-1].sigmoid(),
    "product": lambda x: logsigmoid(x).sum().exp(),
    "sum": lambda x: x.sum().sigmoid(),
}


def step_ends(task: Task, completion: str, problem: Problem) -> list[int]:
    """Where the steps of a completion end, in characters: as the task's checker says, and at the end of the text.

    Raises:
        ValueError: If the task has no steps.

    Example:
        >>> from rlhf_minimal.tasks import get_task
        >>> step_ends(get_task("clock10"), "3d8c=c", Problem("3+8:", "b"))
        [2, 4, 6]
    """
    if task.steps is None:
        raise ValueError(f"the task {task.name!r} does not say where a step ends: give it steps (Task.steps)")
    ends = [end for end, _ in task.steps(completion, problem)]
    return [*(end for end in ends if end < len(completion)), len(completion)]


# --- labels ---


def label_steps(
    policy: PreTrainedModel,
    vocabulary: AnyVocabulary,
    recipe: Recipe,
    written: Rollout,
    *,
    labels: str = "program",
    rollouts: int = 8,
    seed: str = "0",
) -> list[StepRow]:
    r"""Labels for the steps of completions (:eq:`eq-step-label`).

    .. math::
        y_k = \frac1N \sum_{j=1}^N [\,o^{(j)} \text{ is right}\,], \qquad o^{(j)} \sim \pi(\cdot \mid q, o_{\le k})

    That is the label of `"shepherd"`: the share of N completions that go on from the end of step k and are right. The
    label of `"shepherd-hard"` is 1 if one of them is. `"program"` takes the marks of the task's checker, and
    `"outcome"` has one step, the whole completion. The label of the last step is the outcome in all of them: it is
    finished, so every completion that goes on from it is itself.

    Chapter: process-rewards. Papers: Math-Shepherd, arXiv 2312.08935, equations 3 and 4; `"outcome"` is the label of an
    implicit process reward model, PRIME, arXiv 2502.01456.

    Args:
        policy: The model that goes on from the steps.
        vocabulary: Its vocabulary.
        recipe: Its task and budget are used.
        written: The completions, sampled in any way.
        labels: One of `LABELS`.
        rollouts: N, for the labels of Math-Shepherd.
        seed: Names the draw of these completions.

    Raises:
        ValueError: If there are no such labels, or the task grades completions or has no steps.
    """
    task, by_verifier = recipe.task, replace(recipe, reward=None)
    if labels not in LABELS:
        raise ValueError(f"labels of steps are {', '.join(LABELS)}; got {labels!r}")
    if task.score_range is not None:
        raise ValueError(f"labels of steps need a task whose completions are right or wrong; {task.name!r} grades them")
    check_count(rollouts=rollouts)
    label_at: list[dict[int, float]] = []  # of every row: end of a step -> label
    points, prefixes = [], []  # where completions go on: row and end of a step, and what is written up to there
    for row, (problem, text) in enumerate(zip(written.problems, written.texts, strict=True)):
        ends = [] if labels == "outcome" else step_ends(task, text, problem)[:-1]
        label_at.append(dict(task.steps(text, problem)) if task.steps and labels == "program" else {})
        label_at[row][len(text)] = float(written.correct[row] == 1)
        if labels.startswith("shepherd"):
            ids = vocabulary.encode_after(vocabulary.prompt_text(problem.prompt, system=task.instruction), text)
            points += [(row, end) for end in ends]
            prefixes += [ids[: vocabulary.token_of(ids, end) + 1] for end in ends]
    for i in range(0, len(points), 128):
        part, draw = points[i : i + 128], f"shepherd/{seed}/{i}"
        asked, begun = [written.problems[row] for row, _ in part], prefixes[i : i + 128]
        again = roll_out_from_prefixes(
            policy, vocabulary, asked, by_verifier, prefixes=begun, group_size=rollouts, seed=draw
        )
        right = (again.correct == 1).double().view(-1, rollouts)  # [steps, N]
        share = right.amax(1) if labels == "shepherd-hard" else right.mean(1)
        for (row, end), label in zip(part, share.tolist(), strict=True):
            label_at[row][end] = label
    prompts = [vocabulary.prompt_text(problem.prompt, system=task.instruction) for problem in written.problems]
    rows = zip(prompts, written.texts, label_at, strict=True)
    return [StepRow(asked, text, tuple(Step(*one) for one in sorted(marks.items()))) for asked, text, marks in rows]


def sample_steps(
    policy: PreTrainedModel,
    vocabulary: AnyVocabulary,
    recipe: Recipe,
    n: int,
    *,
    split: Split = "train",
    seed: int = 0,
    at_once: int = 500,
    **options: Any,
) -> list[StepRow]:
    """A policy's completions of `n` problems, with labels for their steps; empty completions are left out.

    Args:
        policy: The model that writes.
        vocabulary: Its vocabulary.
        recipe: Its task and budget are used.
        n: Problems, with one completion each.
        split: `"train"` or `"held_out"`.
        seed: Of problems and samples.
        at_once: Problems that are sampled together.
        **options: Further arguments of `label_steps`: `labels`, `rollouts`.

    Raises:
        ValueError: As `label_steps`.
    """
    rows: list[StepRow] = []
    by_verifier, asked = replace(recipe, reward=None), recipe.task.problems(split, n, seed=f"steps/{seed}")
    for i in range(0, n, at_once):
        draw = f"steps/{split}/{seed}/{i}"
        written = roll_out(policy, vocabulary, asked[i : i + at_once], by_verifier, seed=draw)
        kept = torch.tensor([row for row, text in enumerate(written.texts) if text.strip()], dtype=torch.long)
        rows += label_steps(policy, vocabulary, recipe, select(written, kept), seed=draw, **options)
    return rows


# --- the scorer ---


class StepScorer:
    r"""A model that scores the steps of a completion, as log-odds that a step is right (:eq:`eq-step-score`).

    .. math:: s_k = \beta \sum_{t \in k} \log \frac{\pi_\phi(o_t)}{\pi_{ref}(o_t)}

    That is the head "ratio": a language model is trained against a frozen copy of itself, and the ratio of their
    probabilities says what it has learnt about the tokens of a step. The scores of all steps sum to that of the whole
    completion. So the model may be trained on outcomes alone and still score single steps: an implicit process reward
    model. The head "scalar" reads one number at the last token of a step, where the model knows nothing yet that it
    would compute for the token that follows.

    The score of a step is at most beta times -log pi_ref, since no probability is above 1. With a small beta, a right
    step that the start finds likely anyway stays near 0, and as a reward the scores then pay for what the start finds
    unlikely. Nor can all tokens of a place be bad at once, since probabilities sum to 1.

    Before training, every score is 0.

    Chapter: process-rewards. Papers: PRIME, arXiv 2502.01456; a number at the ends of steps: arXiv 2305.20050.

    Args:
        model: A causal language model; or, for the head "scalar", a sequence-classification model with one label.
        vocabulary: Its vocabulary.
        reference: The frozen copy, for the head "ratio".
        beta: What a nat of log-ratio is worth.

    Raises:
        ValueError: If beta is not above 0.

    Example:
        >>> from rlhf_minimal.models import Vocabulary, tiny_llama
        >>> scorer = StepScorer.from_policy(tiny_llama(6, width=16), Vocabulary("abc=:"))
        >>> scorer.logits([StepRow("a:", "bc=b", (Step(2, 1.0), Step(4, 0.0)))]).tolist()
        [0.0, 0.0]
    """

    def __init__(
        self,
        model: PreTrainedModel,
        vocabulary: AnyVocabulary,
        *,
        reference: PreTrainedModel | None = None,
        beta: float = 10.0,
    ):
        if not 0 < beta < math.inf:
            raise ValueError(f"beta must be above 0; got {beta}")
        self.model, self.vocabulary, self.reference, self.beta = model, vocabulary, reference, beta

    @classmethod
    def from_policy(
        cls, policy: PreTrainedModel, vocabulary: AnyVocabulary, head: str = "ratio", beta: float = 10.0
    ) -> "StepScorer":
        """A scorer that begins with a copy of a policy; its head is "ratio" or "scalar"."""
        if head == "ratio":
            reference = copy.deepcopy(policy).requires_grad_(False)
            return cls(copy.deepcopy(policy), vocabulary, reference=reference, beta=beta)
        if head != "scalar":
            raise ValueError(f"the head of a step scorer is 'ratio' or 'scalar'; got {head!r}")
        model: Any = RewardModel.from_policy(policy, vocabulary).model
        torch.nn.init.zeros_(model.score.weight)
        return cls(model, vocabulary, beta=beta)

    def logits(self, rows: Sequence[StepRow]) -> Float[Tensor, " N"]:
        """The scores of all steps, one row after the other, with gradient.

        Args:
            rows: B completions, without their end token, which belongs to a step that ends with its text. A step begins
                where the one before it ends; labels are not read. Prompts are as the policy read them; only the
                beginning-of-text token is put before them, if the tokenizer writes one.

        Raises:
            ValueError: If a text does not fit the vocabulary or the context.
        """
        vocabulary, number = self.vocabulary, 0
        ids = [[*vocabulary.encode_after(row.prompt, row.completion), vocabulary.end_id] for row in rows]
        places: list[tuple[int, int, int]] = []  # of every token that counts: row, place in the completion, step
        for i, (written, row) in enumerate(zip(ids, rows, strict=True)):
            begin = 0
            for end, _ in row.steps:
                at_end = end == len(row.completion)
                last = len(written) - 1 if at_end else vocabulary.token_of(written[:-1], end)
                places += [(i, t, number) for t in (range(begin, last + 1) if self.reference else [last])]
                begin, number = last + 1, number + 1
        prompts, mask = pad_left([vocabulary.encode_beginning(row.prompt) for row in rows], vocabulary.pad_id)
        completions = pad_right(ids, vocabulary.pad_id)  # [B, T]
        check_length(self.model, int(mask.sum(-1).max()), completions.shape[1])
        x = self.of_tokens(*(x.to(self.model.device) for x in (prompts, mask, completions)))  # [B, T]
        at, tokens, steps = torch.tensor(places, dtype=torch.long, device=x.device).view(-1, 3).unbind(-1)
        return x.new_zeros(number).index_add(0, steps, x[at, tokens])

    def of_tokens(
        self, prompts: Int[Tensor, "B S"], prompt_mask: Int[Tensor, "B S"], completions: Int[Tensor, "B T"]
    ) -> Float[Tensor, "B T"]:
        """What a step's score is made of: the log-ratio of each token times beta, or the head's number after it.

        Args:
            prompts: [B, S] ids, padded on the left.
            prompt_mask: [B, S].
            completions: [B, T] ids, padded on the right.
        """
        if self.reference is None:
            ids, mask = concatenate(prompts, prompt_mask, completions)
            hidden = self.model.base_model(
                input_ids=ids, attention_mask=mask, position_ids=positions(mask), use_cache=False
            ).last_hidden_state[:, -completions.shape[1] :]  # [B, T, H]
            return self.model.score(hidden).squeeze(-1)  # type: ignore[operator]
        given, reference = (prompts, prompt_mask, completions), self.reference.to(self.model.device)  # type: ignore[arg-type]
        with torch.no_grad():
            before = token_logprobs(policy_logits(reference, *given), completions)
        return self.beta * (token_logprobs(policy_logits(self.model, *given), completions) - before)

    @torch.no_grad()
    def score(self, rows: Sequence[StepRow]) -> list[Float[Tensor, " K"]]:
        """`logits` of each row apart, without gradient and on the CPU, for any number of rows."""
        parts = [self.logits(rows[i : i + 512]).cpu() for i in range(0, len(rows), 512)]
        return list(torch.cat(parts).split([len(row.steps) for row in rows])) if parts else []

    def save(self, folder: Path) -> None:
        """Writes the model's files and what kind it is into an existing folder; the frozen copy under `reference/`."""
        notes = {"head": "ratio" if self.reference else "scalar", "beta": self.beta}
        (folder / STEP_SCORER_FILE).write_text(json.dumps(notes), encoding="utf-8")
        if self.reference is None:
            return RewardModel(self.model, self.vocabulary).save(folder)
        save_policy(folder, self.model, self.vocabulary)
        (folder / "reference").mkdir()
        return save_policy(folder / "reference", self.reference, self.vocabulary)


def load_step_scorer(folder: str | Path) -> StepScorer:
    """Reads a step scorer back, in float32 on the CPU.

    Args:
        folder: What `StepScorer.save` wrote, or a run folder that holds it under `checkpoint/`.

    Raises:
        ValueError: If it is missing or damaged, or if it holds a policy or a reward model.
    """
    folder = find_checkpoint(folder, of_steps=True)
    try:
        notes = json.loads((folder / STEP_SCORER_FILE).read_text(encoding="utf-8"))
        head, beta = ("ratio", "scalar").index(notes["head"]), float(notes["beta"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(damaged(folder, error)) from error
    if head == 1:
        reward_model = load_reward_model(folder, of_steps=True)
        return StepScorer(reward_model.model, reward_model.vocabulary, beta=beta)
    model, vocabulary = load_policy(folder, of_steps=True)
    reference = load_policy(folder / "reference")[0].requires_grad_(False)
    return StepScorer(model, vocabulary, reference=reference, beta=beta)


# --- learning, and how good it is ---


def step_loss(scorer: StepScorer, rows: Sequence[StepRow]) -> Float[Tensor, ""]:
    r"""Cross-entropy between labels and scores, a mean over steps (:eq:`eq-step-loss`).

    .. math:: L = -\frac{1}{K} \sum_k \Big[ y_k \log \sigma(s_k) + (1 - y_k) \log\big(1 - \sigma(s_k)\big) \Big]

    Chapter: process-rewards. Papers: Math-Shepherd, arXiv 2312.08935, equation 2; with one step a completion it is the
    loss of an implicit process reward model, PRIME, arXiv 2502.01456.

    Args:
        scorer: With gradient.
        rows: A batch.

    Returns:
        A scalar to minimise, in nats per step.
    """
    labels = torch.tensor([mark for row in rows for _, mark in row.steps], device=scorer.model.device)
    return binary_cross_entropy_with_logits(scorer.logits(rows), labels)


@torch.no_grad()
def evaluate_steps(scorer: StepScorer, rows: Sequence[StepRow]) -> Metrics:
    """How well a scorer tells steps apart, usually held-out ones.

    Returns:
        `loss`; `auc`, the chance that a step with a label of at least one half has a higher score than another one.
    """
    scores = torch.cat(scorer.score(rows))
    labels = torch.tensor([mark for row in rows for _, mark in row.steps])
    return {"loss": binary_cross_entropy_with_logits(scores, labels).item(), "auc": auc(scores, labels >= 0.5)}


def auc(scores: Tensor, right: Tensor) -> float:
    """The chance that a right one has a higher score than a wrong one, ties counting one half; NaN without either.

    Args:
        scores: [N] numbers.
        right: [N] True or False.

    Example:
        >>> auc(torch.tensor([0.0, 1.0, 1.0, 2.0]), torch.tensor([False, False, True, True]))
        0.875
    """
    wrong, scores = scores[~right].double().sort().values, scores[right].double()
    below, up_to = (torch.searchsorted(wrong, scores, right=side) for side in (False, True))
    return ((below + up_to) / 2 / len(wrong)).mean().item() if len(wrong) else math.nan


# --- what scores are for ---


def scored_steps(scorer: StepScorer, task: Task) -> StepReward:
    """A scorer as a step reward: the probability that it gives each step before the end of the text.

    What ends with the text is the outcome's, which the run's reward pays.

    Args:
        scorer: The model.
        task: Says where steps end; the scorer is asked with its instruction, as the policy was.
    """
    return lambda **columns: [
        [Step(*one) for one in zip(ends[:-1], scores[:-1].sigmoid().tolist(), strict=True)]
        for ends, scores in _scored(scorer, task, columns)
    ]


def weigh_steps(scorer: StepScorer, task: Task, aggregate: str = "min") -> RewardFunction:
    """A scorer as a reward function, for the weights of votes: what the steps of a completion are worth together.

    Args:
        scorer: The model.
        task: Says where steps end; the scorer is asked with its instruction, as the policy was.
        aggregate: One of `AGGREGATES`. Of the probabilities of the steps `"min"`, as in Math-Shepherd, `"mean"`,
            `"last"` or `"product"`; or the probability of the `"sum"` of scores, which for a scorer that was trained on
            outcomes is the probability of the outcome.

    Raises:
        ValueError: If there is no such aggregate.
    """
    if aggregate not in AGGREGATES:
        raise ValueError(f"the scores of steps are aggregated by {', '.join(AGGREGATES)}; got {aggregate!r}")

    return lambda **columns: [AGGREGATES[aggregate](scores).item() for _, scores in _scored(scorer, task, columns)]


def _scored(scorer: StepScorer, task: Task, columns: Mapping[str, Any]) -> list[tuple[list[int], Tensor]]:
    """The ends and the scores of the steps of every completion."""
    texts, problems = columns["completions"], columns["problem"]
    ends = [step_ends(task, text, problem) for text, problem in zip(texts, problems, strict=True)]
    steps = (tuple(Step(end, 0.0) for end in row) for row in ends)
    prompts = [scorer.vocabulary.prompt_text(prompt, system=task.instruction) for prompt in columns["prompts"]]
    rows = [StepRow(*row) for row in zip(prompts, texts, steps, strict=True)]
    return list(zip(ends, scorer.score(rows), strict=True))
