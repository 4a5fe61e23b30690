"""Policies that learn from pairs of completions, by the rows of the second table: DPO, IPO, SPIN and those of contrib.

    pairs of texts -> token ids -> the batch of a step -> log-probs of policy and reference -> `pairwise_loss` -> `fit`

The table and its loss are `rlhf_minimal.pairs`, the loop is `fit.fit`; here stands what lies between texts and loss.
"""

import copy
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel

from rlhf_minimal.fit import FitConfig, OnStep, batch_of_step, fit, pair_scores
from rlhf_minimal.functional.logprobs import token_logprobs
from rlhf_minimal.lab.sampled_rows import sample_ids
from rlhf_minimal.metrics import Metrics
from rlhf_minimal.models import AnyVocabulary, RewardModel, context_length, policy_logits
from rlhf_minimal.pairs import Pairs, PairwiseAlgorithm, log_ratio, pairwise_loss, pairwise_scores
from rlhf_minimal.sample import pad_left, pad_right
from rlhf_minimal.tasks import CompletionRow, PairRow


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
