"""Supervised learning: imitating completions of a teacher, right or wrong. Every RL run starts from such a model."""

import random
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel

from rlhf_minimal.functional.logprobs import token_logprobs
from rlhf_minimal.functional.masked import completion_mask, masked_mean
from rlhf_minimal.models import TokenizerVocabulary, Vocabulary, policy_logits
from rlhf_minimal.tasks import CompletionRow, Task
from rlhf_minimal.training.checkpoints import save_policy
from rlhf_minimal.training.fit import FitConfig, Student, fit
from rlhf_minimal.training.metrics import Metrics
from rlhf_minimal.training.sampler import pad_left, pad_right


def supervised_loss(
    model: PreTrainedModel,
    vocabulary: Vocabulary | TokenizerVocabulary,
    prompts: list[str],
    completions: list[str],
) -> Float[Tensor, ""]:
    """Cross-entropy of the completions, a mean over their tokens; prompt tokens carry no loss.

    Args:
        model: The policy.
        vocabulary: Turns text into the model's ids.
        prompts: One text a row.
        completions: The completions to imitate, without the end-of-sequence token, which is added here and trained.

    Returns:
        A scalar to minimise, in nats per token.
    """
    prompt_ids, prompt_mask = pad_left([vocabulary.encode(p) for p in prompts], vocabulary.pad_id)
    answer_ids = pad_right([[*vocabulary.encode(a), vocabulary.eos_id] for a in completions], vocabulary.pad_id)
    prompt_ids, prompt_mask, answer_ids = (x.to(model.device) for x in (prompt_ids, prompt_mask, answer_ids))
    logp = token_logprobs(policy_logits(model, prompt_ids, prompt_mask, answer_ids), answer_ids)
    return -masked_mean(logp, completion_mask(answer_ids, vocabulary.eos_id))


def language_loss(
    model: PreTrainedModel, vocabulary: Vocabulary | TokenizerVocabulary, texts: list[str]
) -> Float[Tensor, ""]:
    """Cross-entropy of whole texts, a mean over their tokens: pretraining.

    The first token of a text carries no loss, since nothing stands before it; the end-of-sequence token carries one.

    Args:
        model: The language model.
        vocabulary: Turns text into the model's ids.
        texts: One a row, each of at least one token.

    Returns:
        A scalar to minimise, in nats per token.
    """
    rows = [[*vocabulary.encode(text), vocabulary.eos_id] for text in texts]
    first = torch.tensor([[row[0]] for row in rows], device=model.device)  # [B, 1]
    rest = pad_right([row[1:] for row in rows], vocabulary.pad_id).to(model.device)  # [B, T]
    logp = token_logprobs(policy_logits(model, first, torch.ones_like(first), rest), rest)
    return -masked_mean(logp, completion_mask(rest, vocabulary.eos_id))


IMITATION = FitConfig(steps=1300)  # what makes the shipped start of addition


def imitate(
    model: PreTrainedModel,
    vocabulary: Vocabulary | TokenizerVocabulary,
    task: Task,
    config: FitConfig = IMITATION,
    on_step: Callable[[Metrics], bool | None] = lambda metrics: None,
) -> float:
    """Trains `model` in place on the task's teacher: `fit` on problems that are new at every step.

    Args:
        model: The policy.
        vocabulary: Its vocabulary.
        task: A task with a teacher.
        config: The numbers; the seed decides the problems and the teacher's completions.
        on_step: As in `fit`.

    Returns:
        The mean loss of the last fifty steps, in nats per token.

    Raises:
        ValueError: If the task has no teacher; as from `fit`.
    """

    def loss(step: int) -> Tensor:
        rows = teacher_rows(task, step, config.batch_size, config.seed)
        return supervised_loss(model, vocabulary, [row.prompt for row in rows], [row.completion for row in rows])

    student = Student.begin(model, lambda folder: save_policy(folder, model, vocabulary), config)
    last = [metrics["loss"] for metrics in fit(student, config, loss, on_step)[-50:]]
    return sum(last) / len(last)


def teacher_rows(task: Task, step: int, batch_size: int, seed: int) -> list[CompletionRow]:
    """Training prompts of one step with completions of the task's teacher, right or wrong.

    Args:
        task: A task with a teacher.
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
    return [CompletionRow(problem.prompt, task.teacher(problem, rng)) for problem in problems]
