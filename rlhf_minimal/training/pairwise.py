"""Learning from pairs with every row of the second table, a reward model or a policy: `train_pairwise` and its parts.

    rows -> prompt, chosen, rejected -> forward of all 2 B completions -> `Pairs` -> `pairwise_loss` -> step

Nothing here asks a row for its name. It asks what its score `needs` (a reward model's scores, or a policy's log-probs
and its reference's), where its `rejected` answers come from, and how long its `reference` lasts:

    for each iteration:  a new reference, if the row measures against the previous policy
                         its samples as rejected completions, if the row rejects its own
                         `config.steps` optimiser steps

Everything random comes from (seed, iteration, step), so equal seeds give equal runs. The commands `prefer` and `reward`
train one iteration with the same parts; they can be stopped and resumed.
"""

import copy
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from rlhf_minimal.functional.logprobs import token_logprobs
from rlhf_minimal.models import AnyVocabulary, RewardModel, context_length, policy_logits
from rlhf_minimal.pairwise import Pairs, PairwiseAlgorithm, pairwise_loss, pairwise_scores
from rlhf_minimal.tasks import CompletionRow, PairRow
from rlhf_minimal.training.fit import FitConfig, Student, fit, rows_of_step
from rlhf_minimal.training.metrics import Metrics
from rlhf_minimal.training.preferences import pair_scores
from rlhf_minimal.training.sampler import pad_left, pad_right, sample_ids

Model = PreTrainedModel | RewardModel


@dataclass(frozen=True)
class Example:
    """One row as token ids: a sample keeps the tokens that were drawn, which encoding its text again might not give."""

    row: PairRow | CompletionRow
    prompt: list[int]
    chosen: list[int]
    rejected: list[int]
    ref_chosen: list[float] | None = None  # the reference's log-probs, one a token, where it was read beforehand
    ref_rejected: list[float] | None = None


def train_pairwise(
    algorithm: PairwiseAlgorithm,
    model: Model,
    vocabulary: AnyVocabulary,
    rows: Sequence[PairRow | CompletionRow],
    config: FitConfig,
    *,
    iterations: int = 1,
    max_new_tokens: int | None = None,
    on_step: Callable[[Metrics], bool | None] = lambda metrics: None,
) -> list[Metrics]:
    """Trains `model` in place on pairs, with any row of the second table.

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
    _check_kind(algorithm, model)
    if not isinstance(iterations, int) or iterations < 1:
        raise ValueError(f"iterations must be at least 1; got {iterations!r}")
    if not rows:
        raise ValueError("there is no row to train on: give some")
    network = _network(model)
    reference = _frozen(network) if algorithm.reference else None
    examples = encode(rows, vocabulary, own=algorithm.rejected == "own")
    history: list[Metrics] = []
    seen: Metrics = {}

    def loss(step: int) -> Tensor:
        batch = rows_of_step(examples, before + step, config.batch_size, config.seed)
        pairs = make_pairs(algorithm, model, vocabulary, batch, reference)
        seen.update(describe(algorithm, pairs))
        return pairwise_loss(algorithm, pairs)

    def note(metrics: Metrics) -> bool | None:
        history.append({**metrics, "step": before + int(metrics["step"]), "iteration": iteration, **seen})
        return on_step(history[-1])

    for iteration in range(1, iterations + 1):
        before = len(history)
        if algorithm.reference == "previous" and iteration > 1:
            reference = _frozen(network)
        if algorithm.rejected == "own":
            assert reference is not None  # a row that rejects its own samples has one
            examples = sample_rejected(
                examples, reference, vocabulary, max_new_tokens, seed=f"{config.seed}/{iteration}"
            )
        fit(Student.begin(network, network.save_pretrained, config), config, loss, note)
        if len(history) < before + config.steps:
            break  # on_step has ended the training
    return history


@torch.no_grad()
def evaluate_examples(
    algorithm: PairwiseAlgorithm,
    model: Model,
    vocabulary: AnyVocabulary,
    examples: Sequence[Example],
    reference: PreTrainedModel | None = None,
    *,
    batch_size: int = 512,
) -> Metrics:
    """How a trained model ranks pairs, usually held-out ones.

    Args:
        algorithm: The row that it was trained with.
        model: As in `train_pairwise`.
        vocabulary: The model's.
        examples: Pairs as token ids (`encode`).
        reference: What log-ratios are measured against, a copy of the policy before training; None if the examples hold
            its log-probs (`read_reference`).
        batch_size: Pairs in one forward.

    Returns:
        `loss`, `accuracy`, `gap`, `chosen` and `rejected`, means over all pairs.

    Raises:
        ValueError: If the row needs a reference, and there is none.
    """
    total: Metrics = {}
    for start in range(0, len(examples), batch_size):
        part = examples[start : start + batch_size]
        pairs = make_pairs(algorithm, model, vocabulary, part, reference)
        measured = {"loss": pairwise_loss(algorithm, pairs).item(), **describe(algorithm, pairs)}
        total = {name: total.get(name, 0.0) + value * len(part) / len(examples) for name, value in measured.items()}
    return total


def encode(rows: Sequence[PairRow | CompletionRow], vocabulary: AnyVocabulary, *, own: bool) -> list[Example]:
    """Rows as token ids, completions with their end token.

    Args:
        rows: Checked rows (`tasks.read_rows`), prompts as the model reads them. Only the beginning-of-text token is put
            before a prompt, if the tokenizer writes one.
        vocabulary: The model's.
        own: Whether rejected completions are still to be sampled: those of the rows, if they have any, are left out.

    Raises:
        ValueError: If a prompt is empty, a rejected completion is missing, or two completions are equal; names the row.
    """
    examples = []
    for number, row in enumerate(rows, start=1):
        if not row.prompt:
            raise ValueError(f"row {number}: the prompt is empty; remove the row, or write what the model is asked")
        rejected = "" if own else getattr(row, "rejected", None)
        if rejected is None:
            raise ValueError(f"row {number} has no rejected completion; give pairs, or an algorithm that samples them")
        chosen = row.chosen if isinstance(row, PairRow) else row.completion
        if chosen == rejected and not own:
            raise ValueError(f"row {number}: chosen and rejected are equal, so nothing is preferred; remove the row")
        prompt, end = vocabulary.encode_beginning(row.prompt), [vocabulary.eos_id]
        examples.append(Example(row, prompt, vocabulary.encode(chosen) + end, vocabulary.encode(rejected) + end))
    return examples


def sample_rejected(
    examples: Sequence[Example],
    policy: PreTrainedModel,
    vocabulary: AnyVocabulary,
    max_new_tokens: int | None,
    *,
    seed: str,
) -> list[Example]:
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
def read_reference(
    examples: Sequence[Example], reference: PreTrainedModel, vocabulary: AnyVocabulary, *, batch_size: int = 512
) -> list[Example]:
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
        given, _ = _ids_and_mask(part, vocabulary, reference.device)
        logp = token_logprobs(policy_logits(reference, *given), given[2])
        for example, chosen, rejected in zip(part, *(side.tolist() for side in logp.chunk(2)), strict=True):
            known = {"ref_chosen": chosen[: len(example.chosen)], "ref_rejected": rejected[: len(example.rejected)]}
            read.append(replace(example, **known))
    return read


def make_pairs(
    algorithm: PairwiseAlgorithm,
    model: Model,
    vocabulary: AnyVocabulary,
    examples: Sequence[Example],
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
        chosen, rejected = pair_scores(model, [x.row for x in examples if isinstance(x.row, PairRow)])
        return Pairs(chosen_scores=chosen, rejected_scores=rejected)
    given, mask = _ids_and_mask(examples, vocabulary, model.device)
    tensors: dict[str, Any] = {}

    def take(name: str, x: Tensor) -> None:
        tensors[name.format("chosen")], tensors[name.format("rejected")] = x.chunk(2)

    take("{}_mask", mask)
    take("{}_logp", token_logprobs(policy_logits(model, *given), given[2]))
    if algorithm.reference and reference is not None:
        with torch.no_grad():
            take("ref_{}_logp", token_logprobs(policy_logits(reference, *given), given[2]))
    elif algorithm.reference:
        read = [example.ref_chosen for example in examples] + [example.ref_rejected for example in examples]
        known = [torch.tensor(logp) for logp in read if logp is not None]
        if len(known) < len(read):
            raise ValueError(
                "this algorithm measures against a reference: pass a copy of the policy before training, or read it "
                "into the examples first (read_reference)"
            )
        take("ref_{}_logp", torch.nn.utils.rnn.pad_sequence(known, batch_first=True).to(model.device))
    return Pairs(**tensors)


def _ids_and_mask(
    examples: Sequence[Example], vocabulary: AnyVocabulary, device: torch.device
) -> tuple[list[Tensor], Tensor]:
    """Prompts [2 B, S], their mask, completions [2 B, T]; and the completions' mask. The chosen ones come first."""
    completions = [example.chosen for example in examples] + [example.rejected for example in examples]
    prompt_ids, prompt_mask = pad_left([example.prompt for example in examples], vocabulary.pad_id)
    ids = pad_right(completions, vocabulary.pad_id)  # [2 B, T]
    lengths = torch.tensor([len(ids) for ids in completions])
    mask = (torch.arange(ids.shape[1]) < lengths[:, None]).float()  # from lengths: the end token counts
    return [x.to(device) for x in (prompt_ids.repeat(2, 1), prompt_mask.repeat(2, 1), ids)], mask.to(device)


def describe(algorithm: PairwiseAlgorithm, pairs: Pairs) -> Metrics:
    """How a batch is ranked: `accuracy` (a tie is half), `gap`, and the mean scores `chosen` and `rejected`."""
    with torch.no_grad():
        chosen, rejected = pairwise_scores(algorithm, pairs)
    accuracy = (chosen > rejected).float() + 0.5 * (chosen == rejected).float()
    means = {"accuracy": accuracy, "gap": chosen - rejected, "chosen": chosen, "rejected": rejected}
    return {name: x.mean().item() for name, x in means.items()}


def _network(model: Model) -> PreTrainedModel:
    return model.model if isinstance(model, RewardModel) else model


def _frozen(policy: PreTrainedModel) -> PreTrainedModel:
    return copy.deepcopy(policy).requires_grad_(False)


def _check_kind(algorithm: PairwiseAlgorithm, model: Model) -> None:
    by_reward_model = "scores" in algorithm.needs
    if by_reward_model != isinstance(model, RewardModel):
        raise ValueError(
            f"this algorithm's score reads {', '.join(sorted(algorithm.needs))}, so it trains a "
            f"{'reward model' if by_reward_model else 'policy'}; got {type(model).__name__}"
        )
