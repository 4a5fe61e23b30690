"""Supervised learning: imitating completions of a teacher, of another model, or the right ones of the policy itself.

Every RL run starts from such a model. With `sample_completions`, `imitate` is rejection sampling (a policy's own right
completions) and distillation (another model's).
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel

from rlhf_minimal.functional.checks import check_count
from rlhf_minimal.functional.logprobs import token_logprobs
from rlhf_minimal.functional.masked import completion_mask, masked_mean
from rlhf_minimal.models import AnyVocabulary, context_length, policy_logits, save_policy
from rlhf_minimal.tasks import CompletionRow, Task, read_rows
from rlhf_minimal.tasks.rows import Source
from rlhf_minimal.training.fit import FitConfig, Student, fit, rows_of_step
from rlhf_minimal.training.metrics import Metrics
from rlhf_minimal.training.recipe import Recipe
from rlhf_minimal.training.rollout import roll_out
from rlhf_minimal.training.sampler import pad_left, pad_right


def supervised_loss(
    model: PreTrainedModel, vocabulary: AnyVocabulary, prompts: list[str], completions: list[str]
) -> Float[Tensor, ""]:
    """Cross-entropy of the completions, a mean over their tokens; prompt tokens carry no loss.

    Args:
        model: The policy.
        vocabulary: Turns text into the model's ids.
        prompts: One text a row, as the model reads it: of a chat model, with its template (`vocabulary.prompt_text`).
            Only the beginning-of-text token is put before it, if the tokenizer writes one.
        completions: The completions to imitate, without the end-of-sequence token, which is added here and trained.

    Returns:
        A scalar to minimise, in nats per token.
    """
    prompt_ids, prompt_mask = pad_left([vocabulary.encode_beginning(p) for p in prompts], vocabulary.pad_id)
    answer_ids = pad_right([[*vocabulary.encode(a), vocabulary.eos_id] for a in completions], vocabulary.pad_id)
    prompt_ids, prompt_mask, answer_ids = (x.to(model.device) for x in (prompt_ids, prompt_mask, answer_ids))
    logp = token_logprobs(policy_logits(model, prompt_ids, prompt_mask, answer_ids), answer_ids)
    return -masked_mean(logp, completion_mask(answer_ids, vocabulary.eos_id))


def completion_loss(
    model: PreTrainedModel, vocabulary: AnyVocabulary, rows: Sequence[CompletionRow]
) -> Float[Tensor, ""]:
    """`supervised_loss` of rows."""
    return supervised_loss(model, vocabulary, [row.prompt for row in rows], [row.completion for row in rows])


def language_loss(model: PreTrainedModel, vocabulary: AnyVocabulary, texts: list[str]) -> Float[Tensor, ""]:
    """Cross-entropy of whole texts, a mean over their tokens: pretraining.

    The first token of a text carries no loss, since nothing stands before it, unless the tokenizer writes a
    beginning-of-text token there (a chat's vocabulary writes none, see `encode_beginning`); the end-of-sequence token
    carries one.

    Args:
        model: The language model.
        vocabulary: Turns text into the model's ids.
        texts: One a row, each of at least one token.

    Returns:
        A scalar to minimise, in nats per token.
    """
    rows = [[*vocabulary.encode_beginning(text), vocabulary.eos_id] for text in texts]
    first = torch.tensor([[row[0]] for row in rows], device=model.device)  # [B, 1]
    rest = pad_right([row[1:] for row in rows], vocabulary.pad_id).to(model.device)  # [B, T]
    logp = token_logprobs(policy_logits(model, first, torch.ones_like(first), rest), rest)
    return -masked_mean(logp, completion_mask(rest, vocabulary.eos_id))


IMITATION = FitConfig(steps=1300)  # what makes the shipped start of addition


def imitate(
    model: PreTrainedModel,
    vocabulary: AnyVocabulary,
    source: Task | Source | Sequence[CompletionRow],
    config: FitConfig = IMITATION,
    on_step: Callable[[Metrics], bool | None] = lambda metrics: None,
) -> float:
    """Trains `model` in place on completions: `fit` on new ones of a task's teacher at every step, or on given ones.

    Args:
        model: The policy.
        vocabulary: Its vocabulary.
        source: A task with a teacher; or rows with prompt and completion (see `tasks.rows`): a list, or the name of a
            file. Every row comes once in each pass, and the order is new for each.
        config: The numbers; the seed decides the problems and the teacher's completions, or the order of the rows.
        on_step: As in `fit`.

    Returns:
        The mean loss of the last fifty steps, in nats per token.

    Raises:
        ValueError: If the task has no teacher; if a row cannot be read (`tasks.read_rows`); as from `fit`.

    Example:
        >>> from rlhf_minimal.models import Vocabulary, tiny_llama
        >>> vocabulary = Vocabulary("0123456789+=")
        >>> rows = [{"prompt": "1+2=", "completion": "3"}, {"prompt": "2+2=", "completion": "4"}]
        >>> imitate(tiny_llama(13, width=16), vocabulary, rows, FitConfig(steps=2, batch_size=2)) > 0
        True
    """
    given = []
    if not isinstance(source, Task):
        raw = source if isinstance(source, str | Path) else [_as_dict(row) for row in source]
        limit = context_length(model)
        given = read_rows(raw, CompletionRow, vocabulary, max_length=limit)

    def loss(step: int) -> Tensor:
        if isinstance(source, Task):
            rows = teacher_rows(source, vocabulary, step, config.batch_size, config.seed)
        else:
            rows = rows_of_step(given, step, config.batch_size, config.seed)
        return completion_loss(model, vocabulary, rows)

    student = Student.begin(model, lambda folder: save_policy(folder, model, vocabulary), config)
    last = [metrics["loss"] for metrics in fit(student, config, loss, on_step)[-50:]]
    return sum(last) / len(last)


def teacher_rows(task: Task, vocabulary: AnyVocabulary, step: int, batch_size: int, seed: int) -> list[CompletionRow]:
    """Training prompts of one step with completions of the task's teacher, right or wrong.

    Args:
        task: A task with a teacher.
        vocabulary: The model's; the prompts are written as it will be asked, a chat template included.
        step: The step's number, from 1.
        batch_size: Number of rows.
        seed: Seed of problems and completions, together with the step.

    Raises:
        ValueError: If the task has no teacher.
    """
    if task.teacher is None:
        raise ValueError(f"the task {task.name!r} has no teacher to imitate; train on it from an untrained model")
    problems = task.problems("train", batch_size, seed=f"imitate/{seed}/{step}")
    rng = random.Random(f"teacher/{seed}/{step}")
    prompts = [vocabulary.prompt_text(problem.prompt, system=task.instruction) for problem in problems]
    return [CompletionRow(asked, task.teacher(problem, rng)) for asked, problem in zip(prompts, problems, strict=True)]


def _as_dict(row: Any) -> Any:
    return vars(row) if isinstance(row, CompletionRow) else row


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
    check_count(problems=problems, group_size=group_size, at_once=at_once)
    rows, by_verifier = [], replace(recipe, reward=None)
    asked = recipe.task.problems("train", problems, seed=f"completions/{seed}")
    for first in range(0, problems, at_once):
        some = asked[first : first + at_once]
        draw = f"completions/{seed}/{first}"
        written = roll_out(
            policy, vocabulary, some, by_verifier, group_size=group_size, temperature=temperature, seed=draw
        )
        kept = ~written.truncated & ((written.correct == 1) | (keep == "all"))
        for row in kept.nonzero().flatten().tolist():
            prompt = vocabulary.prompt_text(written.problems[row].prompt, system=recipe.task.instruction)
            rows.append(CompletionRow(prompt, written.texts[row]))
    return rows
