"""The supervised loop in one file: imitation, reward models, and policies that learn from pairs.

    rows -> the batch of a step -> loss -> gradient, clipped -> AdamW at the step's learning rate -> metrics

`fit` is the loop. Three losses stand on it: the cross-entropy of completions or of texts (`imitate`), Bradley-Terry for
reward models (`reward_model_loss`), and every row of the second table (`train_pairwise`: DPO, IPO, SPIN). The rows of a
step come from (seed, step) alone, so a resumed run repeats the numbers of one that was never interrupted.
"""

import copy
import math
import random
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
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
from rlhf_minimal.pairs import Pairs, PairwiseAlgorithm, log_ratio, pairwise_loss, pairwise_scores
from rlhf_minimal.sample import pad_left, pad_right, sample_ids
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


# --- pairs: every row of the second table ---


@dataclass(frozen=True)
class EncodedPair:
    """One row as token ids: a sample keeps the tokens that were drawn, which encoding its text again might not give."""

    row: PairRow | CompletionRow
    prompt: list[int]
    chosen: list[int]
    rejected: list[int]
    ref_chosen: list[float] | None = None  # the reference's log-probs, one a token, where it was read beforehand
    ref_rejected: list[float] | None = None


def train_pairwise(
    algorithm: PairwiseAlgorithm,
    model: PreTrainedModel | RewardModel,
    vocabulary: AnyVocabulary,
    rows: Sequence[PairRow | CompletionRow],
    config: FitConfig,
    *,
    iterations: int = 1,
    max_new_tokens: int | None = None,
    on_step: OnStep = lambda metrics: None,
) -> list[Metrics]:
    """Trains `model` in place on pairs, with any row of the second table.

    Nothing here asks a row for its name. It asks what its score `needs` (a reward model's scores, or a policy's
    log-probs and its reference's), where its `rejected` completions come from, and how long its `reference` lasts.

    Args:
        algorithm: A row of `PAIRWISE`, or a variant of one.
        model: A `RewardModel` where the score is given by one, else the policy.
        vocabulary: The model's.
        rows: Each a `PairRow`; where the algorithm rejects its own samples, a `CompletionRow` is enough.
        config: Steps (of each iteration), batch size, learning rate, seed.
        iterations: How many times training begins with a new optimiser, a new reference ("previous") and new samples
            ("own").
        max_new_tokens: Budget of a sample; None takes the longest completion of the rows.
        on_step: Called with each step's metrics; training stops early if it returns False.

    Returns:
        Of every step: `step`, `iteration`, `loss`, `grad_norm`, `lr`, `seconds`; `accuracy`, the share of the batch's
        pairs that were ranked as labelled before the step (a tie is half); `gap`, their mean lead; `chosen` and
        `rejected`, the mean scores of either side, since a gap also grows while both fall.

    Raises:
        ValueError: If the model is of the wrong kind, a row cannot be trained on (the message names it), the loss or a
            gradient is not finite.
    """
    by_reward_model = "scores" in algorithm.needs
    if by_reward_model != isinstance(model, RewardModel):
        raise ValueError(
            f"this algorithm's score reads {', '.join(sorted(algorithm.needs))}, so it trains a "
            f"{'reward model' if by_reward_model else 'policy'}; got {type(model).__name__}"
        )
    if not isinstance(iterations, int) or iterations < 1:
        raise ValueError(f"iterations must be at least 1; got {iterations!r}")
    network = model.model if isinstance(model, RewardModel) else model
    reference = copy.deepcopy(network).requires_grad_(False) if algorithm.reference else None
    examples = encode_pairs(rows, vocabulary, sampled=algorithm.rejected == "own")
    history: list[Metrics] = []

    def batch_of(step: int) -> list[EncodedPair]:
        return batch_of_step(examples, before + step, config.batch_size, config.seed)

    def loss(batch: Sequence[EncodedPair]) -> tuple[Tensor, Metrics]:
        return direct_preference_loss(algorithm, model, vocabulary, batch, reference)

    def record(metrics: Metrics) -> bool | None:
        history.append({**metrics, "step": before + int(metrics["step"]), "iteration": iteration})
        return on_step(history[-1])

    for iteration in range(1, iterations + 1):
        before = len(history)
        if algorithm.reference == "previous" and iteration > 1:
            reference = copy.deepcopy(network).requires_grad_(False)
        if algorithm.rejected == "own":
            assert reference is not None  # a row that rejects its own samples has one
            seed = f"{config.seed}/{iteration}"
            examples = sample_rejected(examples, reference, vocabulary, max_new_tokens, seed=seed)
        fit(network, batch_of, loss, config, on_step=record)
        if len(history) < before + config.steps:
            break  # on_step has ended the training
    return history


def direct_preference_loss(
    algorithm: PairwiseAlgorithm,
    model: PreTrainedModel | RewardModel,
    vocabulary: AnyVocabulary,
    examples: Sequence[EncodedPair],
    reference: PreTrainedModel | None = None,
) -> tuple[Float[Tensor, ""], Metrics]:
    """The loss of a row of the second table, and how the batch is ranked; the arguments are those of `make_pairs`.

    Returns:
        A scalar to minimise, in nats per pair, and `accuracy` (a tie is half), `gap`, `chosen` and `rejected`, means.
    """
    pairs = make_pairs(algorithm, model, vocabulary, examples, reference)
    with torch.no_grad():
        chosen, rejected = pairwise_scores(algorithm, pairs)
    accuracy = (chosen > rejected).float() + 0.5 * (chosen == rejected).float()
    means = {"accuracy": accuracy, "gap": chosen - rejected, "chosen": chosen, "rejected": rejected}
    return pairwise_loss(algorithm, pairs), {name: x.mean().item() for name, x in means.items()}


@torch.no_grad()
def evaluate_pairs(
    algorithm: PairwiseAlgorithm,
    model: PreTrainedModel | RewardModel,
    vocabulary: AnyVocabulary,
    examples: Sequence[EncodedPair],
    reference: PreTrainedModel | None = None,
    *,
    batch_size: int = 512,
) -> Metrics:
    """How a trained model ranks pairs, usually held-out ones.

    Args:
        algorithm: The row that it was trained with.
        model: As in `train_pairwise`.
        vocabulary: The model's.
        examples: Pairs as token ids (`encode_pairs`).
        reference: What log-ratios are measured against, a copy of the policy before training; None if the examples hold
            its log-probs (`add_reference_logprobs`).
        batch_size: Pairs in one forward.

    Returns:
        `loss`, `accuracy`, `gap`, `chosen` and `rejected`, means over all pairs.

    Raises:
        ValueError: If the row needs a reference, and there is none.
    """
    total: Metrics = {}
    for start in range(0, len(examples), batch_size):
        part = examples[start : start + batch_size]
        loss, metrics = direct_preference_loss(algorithm, model, vocabulary, part, reference)
        for name, value in {"loss": loss.item(), **metrics}.items():
            total[name] = total.get(name, 0.0) + value * len(part) / len(examples)
    return total


def encode_pairs(
    rows: Sequence[PairRow | CompletionRow], vocabulary: AnyVocabulary, *, sampled: bool = False
) -> list[EncodedPair]:
    """Rows as token ids, completions with their end token.

    A completion that is the beginning of the other one is a pair like any other: the two differ by the end token.

    Args:
        rows: Checked rows (`lab.rows.read_rows`), prompts as the model reads them. Only the beginning-of-text token is
            put before a prompt, if the tokenizer writes one.
        vocabulary: The model's.
        sampled: Whether rejected completions are still to be sampled: those of the rows, if they have any, are left
            out.

    Raises:
        ValueError: If there is no row, a prompt is empty, a rejected completion is missing, or two completions are
            equal; names the row.
    """
    if not rows:
        raise ValueError("there is no row to train on: give some")
    examples = []
    for number, row in enumerate(rows, start=1):
        if not row.prompt:
            raise ValueError(f"row {number}: the prompt is empty; remove the row, or write what the model is asked")
        rejected = "" if sampled else getattr(row, "rejected", None)
        if rejected is None:
            raise ValueError(f"row {number} has no rejected completion; give pairs, or an algorithm that samples them")
        chosen = row.chosen if isinstance(row, PairRow) else row.completion
        if chosen == rejected and not sampled:
            raise ValueError(f"row {number}: chosen and rejected are equal, so nothing is preferred; remove the row")
        prompt, write = vocabulary.encode_beginning(row.prompt), partial(vocabulary.encode_after, row.prompt)
        ids = [[*write(text), vocabulary.end_id] for text in (chosen, rejected)]
        examples.append(EncodedPair(row, prompt, ids[0], ids[1]))
    return examples


def sample_rejected(
    examples: Sequence[EncodedPair],
    policy: PreTrainedModel,
    vocabulary: AnyVocabulary,
    max_new_tokens: int | None,
    *,
    seed: str,
) -> list[EncodedPair]:
    """The same prompts and chosen completions, and for each a sample of the policy to reject.

    Samples stay token ids, and one that the budget cut off has no end token. A sample may equal the chosen completion:
    its gap is then 0 and has no gradient, so training stops once the policy's samples equal the data.

    Args:
        examples: The prompts, with their chosen completions.
        policy: The policy that samples; in SPIN the reference.
        vocabulary: Its vocabulary.
        max_new_tokens: Budget of a sample; None takes the longest chosen completion.
        seed: Any text; it names the draw and makes it repeatable.

    Raises:
        ValueError: If a prompt and the budget do not fit the policy's context; names the row.
    """
    budget = max_new_tokens or max(len(example.chosen) for example in examples)
    limit = context_length(policy)
    for number, example in enumerate(examples, start=1):
        if len(example.prompt) + budget > limit:
            raise ValueError(
                f"row {number}, {example.row.prompt[:60]!r}: the prompt and a sample of {budget} tokens take "
                f"{len(example.prompt) + budget}, and the policy reads at most {limit}; lower max_new_tokens or "
                "shorten the row"
            )
    generator = torch.Generator(policy.device).manual_seed(zlib.crc32(f"own/{seed}".encode()))
    sampled = []
    for start in range(0, len(examples), 512):
        part = examples[start : start + 512]
        prompts = [example.prompt for example in part]
        samples = sample_ids(policy, vocabulary, prompts, max_new_tokens=budget, generator=generator)
        lengths = samples.mask.sum(1).long().tolist()
        for example, ids, length in zip(part, samples.completions.tolist(), lengths, strict=True):
            sampled.append(replace(example, rejected=ids[:length]))
    return sampled


@torch.no_grad()
def add_reference_logprobs(
    examples: Sequence[EncodedPair], reference: PreTrainedModel, vocabulary: AnyVocabulary, *, batch_size: int = 512
) -> list[EncodedPair]:
    """The same examples with the reference's log-probs, so that it is run once and not in every pass.

    Args:
        examples: Token ids of both completions.
        reference: The frozen policy.
        vocabulary: Its vocabulary.
        batch_size: Pairs in one forward; always the same pairs together, so that a second reading repeats every bit.
    """
    read = []
    for start in range(0, len(examples), batch_size):
        part = examples[start : start + batch_size]
        inputs, _ = _ids_and_mask(part, vocabulary, reference.device)
        logp = token_logprobs(policy_logits(reference, *inputs), inputs[2])
        for example, one, other in zip(part, *(side.tolist() for side in logp.chunk(2)), strict=True):
            one, other = one[: len(example.chosen)], other[: len(example.rejected)]
            read.append(replace(example, ref_chosen=one, ref_rejected=other))
    return read


def make_pairs(
    algorithm: PairwiseAlgorithm,
    model: PreTrainedModel | RewardModel,
    vocabulary: AnyVocabulary,
    examples: Sequence[EncodedPair],
    reference: PreTrainedModel | None = None,
) -> Pairs:
    """What the score of a batch needs: all 2 B completions in one forward, and in another of the reference.

    Args:
        algorithm: Says what it needs.
        model: With gradient.
        vocabulary: Its vocabulary.
        examples: The batch.
        reference: Without gradient; None if the row has none, or the examples hold its log-probs already.

    Raises:
        ValueError: If the row measures against a reference, and neither is there.
    """
    if isinstance(model, RewardModel):
        scores = pair_scores(model, [x.row for x in examples if isinstance(x.row, PairRow)])
        return Pairs(chosen_scores=scores[0], rejected_scores=scores[1])
    inputs, mask = _ids_and_mask(examples, vocabulary, model.device)
    both = {"{}_mask": mask, "{}_logp": token_logprobs(policy_logits(model, *inputs), inputs[2])}  # [2 B, T]
    if algorithm.reference and reference is not None:
        with torch.no_grad():
            both["ref_{}_logp"] = token_logprobs(policy_logits(reference, *inputs), inputs[2])
    elif algorithm.reference:
        stored = [x.ref_chosen for x in examples] + [x.ref_rejected for x in examples]
        rows = [torch.tensor(logp) for logp in stored if logp is not None]
        if len(rows) < len(stored):
            raise ValueError(
                "this algorithm measures against a reference: pass a copy of the policy before training, or read it "
                "into the examples first (add_reference_logprobs)"
            )
        both["ref_{}_logp"] = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).to(model.device)
    sides: dict[str, Tensor] = {}
    for name, x in both.items():
        sides[name.format("chosen")], sides[name.format("rejected")] = x.chunk(2)
    if "anchor" in algorithm.loss_needs:
        sides["anchor"] = _anchor(model, reference, vocabulary, examples)
    return Pairs(**sides)  # type: ignore[arg-type]


@torch.no_grad()
def _anchor(
    model: PreTrainedModel,
    reference: PreTrainedModel | None,
    vocabulary: AnyVocabulary,
    examples: Sequence[EncodedPair],
) -> Float[Tensor, " B"]:
    """[B] of one number: the mean log-ratio of the batch's completions under each other's prompts, at least 0."""
    if reference is None or len(examples) < 2:
        raise ValueError(
            "this loss holds completions against those of other prompts, which no stored log-probs have: pass a copy "
            "of the policy before training, and at least two pairs a batch"
        )
    others = [*examples[1:], examples[0]]
    crossed = [replace(example, prompt=other.prompt) for example, other in zip(examples, others, strict=True)]
    inputs, mask = _ids_and_mask(crossed, vocabulary, model.device)
    logp, ref_logp = (token_logprobs(policy_logits(x, *inputs), inputs[2]) for x in (model, reference))
    return log_ratio(logp, ref_logp, mask).mean().clamp(min=0).expand(len(examples))


def _ids_and_mask(
    examples: Sequence[EncodedPair], vocabulary: AnyVocabulary, device: torch.device
) -> tuple[list[Tensor], Tensor]:
    """Prompts [2 B, S], their mask, completions [2 B, T]; and the completions' mask. The chosen ones come first."""
    completions = [example.chosen for example in examples] + [example.rejected for example in examples]
    prompt_ids, prompt_mask = pad_left([example.prompt for example in examples], vocabulary.pad_id)
    ids = pad_right(completions, vocabulary.pad_id)  # [2 B, T]
    lengths = torch.tensor([len(ids) for ids in completions])
    mask = (torch.arange(ids.shape[1]) < lengths[:, None]).float()  # from lengths: the end token counts
    return [x.to(device) for x in (prompt_ids.repeat(2, 1), prompt_mask.repeat(2, 1), ids)], mask.to(device)
