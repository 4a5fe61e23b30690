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
from rlhf_minimal.tasks import Task
from rlhf_minimal.training.optimizers import new_optimizer
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


def imitate(
    model: PreTrainedModel,
    vocabulary: Vocabulary | TokenizerVocabulary,
    task: Task,
    *,
    steps: int = 1300,
    batch_size: int = 128,
    lr: float = 3e-3,
    seed: int = 0,
    on_step: Callable[[int, float], None] = lambda step, loss: None,
) -> float:
    """Trains `model` in place on the task's teacher, training problems only.

    The learning rate falls linearly to zero, which settles the model: without it the last steps' noise would decide
    what the start can do.

    Args:
        model: The policy.
        vocabulary: Its vocabulary.
        task: A task with a teacher.
        steps: Optimiser steps.
        batch_size: Fresh problems a step.
        lr: Peak learning rate of AdamW, 1e-3 to 4e-3 for the tiny models.
        seed: Decides problems and the teacher's moods.
        on_step: Called after every step with its number (from 1) and loss.

    Returns:
        The mean loss of the last fifty steps, in nats per token.

    Raises:
        ValueError: If the task has no teacher.
    """
    if task.teacher is None:
        raise ValueError(f"the task {task.name!r} has no teacher to imitate; train on it from an untrained model")
    optimizer = new_optimizer(model.parameters(), lr)
    losses: list[float] = []
    for step in range(1, steps + 1):
        problems = task.problems("train", batch_size, seed=f"imitate/{seed}/{step}")
        rng = random.Random(f"teacher/{seed}/{step}")
        answers = [task.teacher(problem, rng) for problem in problems]
        loss = supervised_loss(model, vocabulary, [p.prompt for p in problems], answers)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        warm_up, decay = step / 50, (steps - step + 1) / steps
        for group in optimizer.param_groups:
            group["lr"] = lr * min(1.0, warm_up, decay)
        optimizer.step()
        losses.append(loss.item())
        on_step(step, losses[-1])
    last = losses[-50:]
    return sum(last) / len(last)
