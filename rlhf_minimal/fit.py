"""The supervised loop in one file: imitation, and reward models.

    rows -> the batch of a step -> loss -> gradient, clipped -> AdamW at the step's learning rate -> metrics

`fit` is the loop. Two losses stand here: the cross-entropy of completions or of texts (`imitate`), and Bradley-Terry
for reward models (`reward_model_loss`). `lab.train_pairs` trains policies on pairs with the same loop (DPO, IPO, SPIN).
The rows of a step come from (seed, step) alone, so a resumed run repeats the numbers of one that was never interrupted.
"""

import math
import random
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel

from rlhf_minimal.config import check_numbers
from rlhf_minimal.functional.logprobs import token_logprobs
from rlhf_minimal.functional.masked import completion_mask, masked_mean
from rlhf_minimal.metrics import Metrics
from rlhf_minimal.models import AnyVocabulary, RewardModel, context_length, policy_logits
from rlhf_minimal.optimizer import new_optimizer
from rlhf_minimal.pairs import Pairs, PairwiseAlgorithm, pairwise_loss
from rlhf_minimal.sample import pad_left, pad_right
from rlhf_minimal.tasks import CompletionRow, PairRow, Problem, ReplyRow, Task, completion_rows

Row = TypeVar("Row")
OnStep = Callable[[Metrics], bool | None]


@dataclass(frozen=True)
class FitConfig:
    """Settings of a supervised run.

    Args:
        steps: Optimiser steps.
        batch_size: Rows per step.
        lr: Peak learning rate of AdamW, 1e-3 to 4e-3 for the tiny models; 1e-5 is usual at a billion parameters.
        warm_up: Steps over which the learning rate rises to its peak; then it falls linearly to zero.
        weight_decay: Weight decay of AdamW.
        grad_clip: Largest norm of the gradient; a larger one is scaled down to it.
        seed: Seed of the rows that a task makes, of their order, and of new weights.

    Raises:
        ValueError: If a number is out of its range; the message names it.
    """

    steps: int = 600
    batch_size: int = 128
    lr: float = 3e-3
    warm_up: int = 50
    weight_decay: float = 0.0
    grad_clip: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        check_numbers(self, above_0="lr grad_clip", at_least_0="warm_up weight_decay", at_least_1="steps batch_size")


# --- the loop ---


def fit(
    model: torch.nn.Module,
    rows: Sequence[Row] | Callable[[int], Sequence[Row]],
    loss: Callable[[Sequence[Row]], Tensor | tuple[Tensor, Metrics]],
    config: FitConfig,
    *,
    optimizer: torch.optim.Optimizer | None = None,
    done: int = 0,
    on_step: OnStep = lambda metrics: None,
) -> list[Metrics]:
    """Trains `model` in place until `config.steps` are done.

    The learning rate rises for `warm_up` steps and then falls to zero. With a constant one the result would depend on
    the noise of the last few steps.

    Args:
        model: What is trained, the network itself.
        rows: All of them: each comes once in a pass, in a new order (`batch_of_step`). Or a function
            from the number of a step, from 1, to the rows of that step.
        loss: Takes the rows of a step and returns the scalar to minimise, alone or with further metrics of these rows.
        config: The numbers.
        optimizer: That of `optimizer_of(model, config)`, with the moments of the steps before; None: a new one.
        done: Steps taken already, by a run that is continued.
        on_step: Called with each step's metrics; training stops early if it returns False.

    Returns:
        The metrics of every step taken, in order: `step`, `loss`, `grad_norm` (before the clip), `lr`, `seconds`, and
        those of the loss.

    Raises:
        ValueError: If there are no rows, or if a loss or a gradient is not finite. The model is as it was before the
            step.

    Example:
        >>> line = torch.nn.Linear(1, 1)
        >>> points = [(float(x), 2.0 * x + 1.0) for x in range(4)]
        >>> def squared(batch):
        ...     x, y = torch.tensor(batch).unbind(-1)
        ...     return ((line(x[:, None]).squeeze(-1) - y) ** 2).mean()
        >>> history = fit(line, points, squared, FitConfig(steps=200, batch_size=4, lr=0.1, warm_up=5))
        >>> history[-1]["loss"] < 0.01
        True
    """
    optimizer = optimizer or optimizer_of(model, config)
    history: list[Metrics] = []
    for step in range(done + 1, config.steps + 1):
        began = time.perf_counter()
        batch = rows(step) if callable(rows) else batch_of_step(rows, step, config.batch_size, config.seed)
        optimizer.zero_grad()
        result = loss(batch)
        value, further = result if isinstance(result, tuple) else (result, {})
        value.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), config.grad_clip).item()
        if not (math.isfinite(value.item()) and math.isfinite(norm)):
            raise ValueError(
                f"step {step}: the loss is {value.item()} and its gradient's norm {norm}; lower --lr, or look for "
                "damaged weights in the start"
            )
        lr = config.lr * min(step / max(config.warm_up, 1), 1.0, (config.steps - step + 1) / config.steps)
        for group in optimizer.param_groups:
            group["lr"] = lr
        optimizer.step()
        seconds = time.perf_counter() - began
        history.append({"step": step, "loss": value.item(), "grad_norm": norm, "lr": lr, "seconds": seconds, **further})
        if on_step(history[-1]) is False:
            break
    return history


def optimizer_of(model: torch.nn.Module, config: FitConfig) -> torch.optim.Optimizer:
    """AdamW for all weights of `model`, as `fit` makes it."""
    return new_optimizer(model.parameters(), config.lr, weight_decay=config.weight_decay)


def batch_of_step(rows: Sequence[Row], step: int, batch_size: int, seed: int) -> list[Row]:
    """The rows that a step trains on: every row once in each pass, in an order that is new for each pass.

    Args:
        rows: All of them.
        step: The step's number, from 1.
        batch_size: Rows per step; may be more than there are.
        seed: Seed of the orders.

    Raises:
        ValueError: If there are no rows.

    Example:
        >>> first, second = (batch_of_step("abcdef", step, 3, seed=0) for step in (1, 2))
        >>> sorted(first + second)
        ['a', 'b', 'c', 'd', 'e', 'f']
    """
    if not rows:
        raise ValueError("there is no row to train on: give some")
    chosen: list[Row] = []
    at = (step - 1) * batch_size
    while len(chosen) < batch_size:
        epoch, offset = divmod(at, len(rows))
        shuffle = torch.Generator().manual_seed(zlib.crc32(f"rows/{seed}/{epoch}".encode()))
        order = torch.randperm(len(rows), generator=shuffle)
        taken = order[offset : offset + batch_size - len(chosen)].tolist()
        chosen += [rows[i] for i in taken]
        at += len(taken)
    return chosen


# --- imitation: cross-entropy of completions, or of whole texts ---


def supervised_loss(
    model: PreTrainedModel,
    vocabulary: AnyVocabulary,
    prompts: list[str],
    completions: list[str],
    replies: Sequence[Sequence[tuple[int, int]]] = (),
) -> Float[Tensor, ""]:
    """Cross-entropy of the completions, a mean over their tokens; prompt tokens and replies carry no loss.

    Args:
        model: The policy.
        vocabulary: Turns text into the model's ids.
        prompts: One text a row, as the model reads it: of a chat model, with its template (`vocabulary.prompt_text`).
            Only the beginning-of-text token is put before it, if the tokenizer writes one.
        completions: The completions to imitate, without the token that ends them, which is added here and trained.
        replies: For each row, where an environment wrote in its completion, in characters (`Task.replies`).

    Returns:
        A scalar to minimise, in nats per token.
    """
    prompt_ids, prompt_mask = pad_left([vocabulary.encode_beginning(p) for p in prompts], vocabulary.pad_id)
    end, written = vocabulary.end_id, map(vocabulary.encode_after, prompts, completions)
    ids = pad_right([[*one, end] for one in written], vocabulary.pad_id)
    prompt_ids, prompt_mask, ids = (x.to(model.device) for x in (prompt_ids, prompt_mask, ids))
    logp = token_logprobs(policy_logits(model, prompt_ids, prompt_mask, ids), ids)
    mask = completion_mask(ids, end)
    for row, spans in enumerate(replies):
        for first, last in spans:
            places = (vocabulary.token_of(ids[row].tolist(), place) for place in (first + 1, last))
            mask[row, next(places) : next(places) + 1] = 0.0
    return -masked_mean(logp, mask)


def completion_loss(
    model: PreTrainedModel, vocabulary: AnyVocabulary, rows: Sequence[CompletionRow]
) -> Float[Tensor, ""]:
    """`supervised_loss` of rows. Of a conversation only the last turn is trained; earlier ones belong to the prompt."""
    replies = [getattr(row, "replies", ()) for row in rows]
    return supervised_loss(model, vocabulary, [row.prompt for row in rows], [row.completion for row in rows], replies)


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
    source: Task | Iterable[CompletionRow | Mapping[str, Any]],
    config: FitConfig = IMITATION,
    on_step: OnStep = lambda metrics: None,
) -> float:
    """Trains `model` in place on completions: `fit` on new ones of a task's teacher at every step, or on fixed ones.

    With `sample_completions` it is rejection sampling (a policy's own right completions) and distillation (another
    model's). Every RL run starts from such a model.

    Args:
        model: The policy.
        vocabulary: Its vocabulary.
        source: A task with a teacher; or rows with prompt and completion, or dicts of these (of a file:
            `lab.rows.read_rows`). Every row comes once in each pass, and the order is new for each.
        config: The numbers; the seed decides the problems and the teacher's completions, or the order of the rows.
        on_step: As in `fit`.

    Returns:
        The mean loss of the last fifty steps, in nats per token.

    Raises:
        ValueError: If the task has no teacher; if a row is faulty (`tasks.completion_rows`); as from `fit`.

    Example:
        >>> from rlhf_minimal.models import Vocabulary, tiny_llama
        >>> vocabulary = Vocabulary("0123456789+=")
        >>> rows = [{"prompt": "1+2=", "completion": "3"}, {"prompt": "2+2=", "completion": "4"}]
        >>> imitate(tiny_llama(13, width=16), vocabulary, rows, FitConfig(steps=2, batch_size=2)) > 0
        True
    """
    if isinstance(source, Task):
        rows: Any = partial(teacher_rows, source, vocabulary, batch_size=config.batch_size, seed=config.seed)
    else:
        rows = completion_rows(source, vocabulary, max_length=context_length(model))
    history = fit(model, rows, lambda batch: completion_loss(model, vocabulary, batch), config, on_step=on_step)
    last = [metrics["loss"] for metrics in history[-50:]]
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
    return teacher_completions(task, vocabulary, problems, rng)


def teacher_completions(
    task: Task, vocabulary: AnyVocabulary, problems: Sequence[Problem], rng: random.Random
) -> list[CompletionRow]:
    """Completions of the task's teacher for these problems; each a `ReplyRow` if somebody answers on the way."""
    assert task.teacher is not None
    prompts = [vocabulary.prompt_text(problem.prompt, system=task.instruction) for problem in problems]
    rows = [CompletionRow(one, task.teacher(problem, rng)) for one, problem in zip(prompts, problems, strict=True)]
    if task.reply is None:
        return rows
    asked = zip(rows, problems, strict=True)
    return [ReplyRow(**vars(row), replies=tuple(task.replies(row.completion, problem))) for row, problem in asked]


# --- reward models ---


def reward_model_loss(
    algorithm: PairwiseAlgorithm, reward_model: RewardModel, rows: Sequence[PairRow]
) -> Float[Tensor, ""]:
    """The loss of a row of the second table for a reward model, with all 2 B completions in one forward.

    Args:
        algorithm: `PAIRWISE["bradley_terry"]` or a variant of it.
        reward_model: Its raw scores are read, with gradient; normalisation does not matter.
        rows: A batch of pairs.

    Returns:
        A scalar to minimise, in nats per pair.
    """
    chosen, rejected = pair_scores(reward_model, rows)
    return pairwise_loss(algorithm, Pairs(chosen_scores=chosen, rejected_scores=rejected))


def pair_scores(reward_model: RewardModel, rows: Sequence[PairRow]) -> tuple[Float[Tensor, " B"], Float[Tensor, " B"]]:
    """[B] raw scores of the chosen and of the rejected completions, with gradient: all 2 B in one forward."""
    completions = [row.chosen for row in rows] + [row.rejected for row in rows]
    chosen, rejected = reward_model.raw_scores([row.prompt for row in rows] * 2, completions).chunk(2)
    return chosen, rejected
