"""Supervised learning: imitate a teacher's answers, right or wrong. This is where every RL run starts."""

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
    answers: list[str],
) -> Float[Tensor, ""]:
    """Cross-entropy of the answers, a mean over their tokens; the prompt is read, not learnt.

    Args:
        model: The policy.
        vocabulary: Turns text into the model's ids.
        prompts: One text a row.
        answers: The answer to imitate, without the end-of-answer token: that is added here, and trained.

    Returns:
        A scalar to minimise, in nats per token.
    """
    prompt_ids, prompt_mask = pad_left([vocabulary.encode(p) for p in prompts], vocabulary.pad_id)
    answer_ids = pad_right([[*vocabulary.encode(a), vocabulary.eos_id] for a in answers], vocabulary.pad_id)
    prompt_ids, prompt_mask, answer_ids = (x.to(model.device) for x in (prompt_ids, prompt_mask, answer_ids))
    logp = token_logprobs(policy_logits(model, prompt_ids, prompt_mask, answer_ids), answer_ids)
    return -masked_mean(logp, completion_mask(answer_ids, vocabulary.eos_id))


def language_loss(
    model: PreTrainedModel, vocabulary: Vocabulary | TokenizerVocabulary, texts: list[str]
) -> Float[Tensor, ""]:
    """Cross-entropy of whole texts, a mean over their tokens: pretraining.

    The first token of a text is read and not learnt, since nothing stands before it; the end token is learnt.

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
        config: The numbers; the seed decides problems and the teacher's answers.
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
    """Training problems of one step with the answers of the task's teacher, right or wrong.

    Args:
        task: A task with a teacher.
        step: The step's number, from 1.
        batch_size: How many.
        seed: Decides problems and answers, together with the step.

    Raises:
        ValueError: If the task has no teacher.
    """
    if task.teacher is None:
        raise ValueError(f"the task {task.name!r} has no teacher to imitate; train on it from an untrained model")
    problems = task.problems("train", batch_size, seed=f"imitate/{seed}/{step}")
    rng = random.Random(f"teacher/{seed}/{step}")
    return [CompletionRow(problem.prompt, task.teacher(problem, rng)) for problem in problems]
