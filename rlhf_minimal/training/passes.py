"""How completions are read for an update: prompts once, no padding, no backward where nothing would come of it.

Nothing here changes a gradient. Each means can be switched off in `Config`, and with all of them off every row is read
from its first token to its last, padded to the longest, as `models.policy_logits` does it.

    shared_prefix   G completions of one prompt go on from one reading of it (`models.read_prompts`)
    sort_lengths    rows of like length are read together, each piece as wide as its own longest (`pieces_by_length`)
    skip_idle       rows that no part of the loss acts on go without a backward (`Pass.backward`)
    logit_chunk     no more logits than this exist at once (`functional.logprobs.chunked_logprobs`)
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn
from torch.nn.functional import pad
from transformers import PreTrainedModel

from rlhf_minimal.functional.logprobs import chunked_logprobs, token_entropy, token_logprobs
from rlhf_minimal.models import (
    Critic,
    Prefix,
    continue_prompts,
    critic_values,
    has_linear_head,
    policy_hidden,
    policy_logits,
    policy_logits_and_values,
    read_prompts,
    recomputing,
)
from rlhf_minimal.objective import Algorithm, Batch
from rlhf_minimal.training.config import Config
from rlhf_minimal.training.processes import ALONE, Processes
from rlhf_minimal.training.rollout import Rollout


def widths(mask: Shaped[Tensor, "B T"]) -> Int[Tensor, " B"]:
    """Columns up to the last trained token of each row; 0 for a row without any.

    Example:
        >>> widths(torch.tensor([[1, 0, 1, 0], [0, 0, 0, 0]])).tolist()
        [3, 0]
    """
    columns = torch.arange(1, mask.shape[1] + 1, device=mask.device)
    return torch.where(mask != 0, columns, 0).amax(-1)


def pieces_by_length(widths: Int[Tensor, " B"], *, overhead: int = 128, steps: int = 32) -> list[Int[Tensor, " b"]]:
    """Rows in order of length, cut where padding would cost more than one forward and backward more.

    A piece of n rows costs n times its longest row, in tokens, and `overhead` for being a piece at all. The cuts are
    those with the least sum, found by dynamic programming over the lengths that occur.

    Chapter: making-it-fast.

    Args:
        widths: [B] tokens of each row; rows of none are in no piece.
        overhead: What a piece costs beside its tokens, in tokens; around 100 for tiny models on two cores.
        steps: Lengths are told apart this finely, which bounds the search.

    Returns:
        Row numbers of each piece, shortest rows first. The result depends on nothing but the arguments.

    Example:
        >>> [rows.tolist() for rows in pieces_by_length(torch.tensor([9, 1, 8, 0, 1]), overhead=2)]
        [[1, 4], [2, 0]]
    """
    order = widths.sort(stable=True).indices
    order = order[widths[order] > 0]
    if len(order) == 0:
        return []
    sizes = widths[order].tolist()
    coarse = [-(-size * steps // sizes[-1]) for size in sizes] if sizes[-1] > steps else sizes
    ends = [i + 1 for i in range(len(sizes)) if i + 1 == len(sizes) or coarse[i] != coarse[i + 1]]  # where one may cut
    best, came_from = [0], [0]
    for j, end in enumerate(ends):
        starts = [0, *ends[:j]]
        costs = [best[i] + (end - start) * sizes[end - 1] + overhead for i, start in enumerate(starts)]
        came_from.append(min(range(len(costs)), key=costs.__getitem__))
        best.append(costs[came_from[-1]])
    cuts, j = [], len(ends)
    while j > 0:
        cuts.append(ends[j - 1])
        j = came_from[j]
    return [piece for piece in order.tensor_split(cuts[:0:-1]) if len(piece)]


def perhaps_idle(algorithm: Algorithm, batch: Batch) -> Bool[Tensor, " B"]:
    """True for rows that may turn out to get no gradient: no advantage on any trained token, no KL, no bonus.

    Perhaps: a gate of one's own may still act on them. Whether they are idle is decided by the gradient that reaches
    them (`Pass.backward`); here they are only sorted out beforehand, so that they share no piece with others. Idle
    rows still count in the denominators: they are part of the batch.

    Chapter: making-it-fast.

    Args:
        algorithm: A row of the table, or any other choice of cells.
        batch: Prepared.

    Example:
        >>> from rlhf_minimal import ALGORITHMS
        >>> zeros, rewards = torch.zeros(4, 1), torch.tensor([1.0, 1.0, 1.0, 0.0])
        >>> batch = Batch(zeros, zeros, torch.ones(4, 1), rewards, 2, advantages=rewards - 1)
        >>> perhaps_idle(ALGORITHMS["dr_grpo"], batch).tolist()
        [True, True, True, False]
        >>> perhaps_idle(ALGORITHMS["grpo"], batch).tolist()  # its KL acts on every row
        [False, False, False, False]
    """
    assert batch.advantages is not None
    nothing_else = not algorithm.entropy and not any(kl.coef and kl.place == "loss" for kl in algorithm.kl)
    return ((batch.advantages == 0) | (batch.mask == 0)).all(-1) & nothing_else


class Reading(NamedTuple):
    """What a policy says about some completions, [n, T] each; 0 where padding was left out.

    Log-probs at the temperature of the sampler; the entropy of the policy's next-token distributions, with a gradient
    only if it was asked for; and the critic's values, where it shares the policy's body.
    """

    logp: Float[Tensor, "n T"]
    entropy: Float[Tensor, "n T"]
    values: Float[Tensor, "n T"] | None


class Pass:
    """Some rows of a rollout on their way through a policy, piece by piece, and their backward.

    The loss is asked of all rows together, as if there were no pieces; its gradient in what was read then goes back
    piece by piece, and no further where it is zero: a row on which nothing in the loss acts is known by that,
    whichever cells made the loss.

    Args:
        policy: The model.
        groups: The rollout.
        rows: [n] its rows that are read here.
        config: Its switches.
        critic: A critic on the policy's body, to be read along.
        entropy_gradient: Whether the entropy is part of the loss.
        apart: [n] rows that may turn out to be idle: they share no piece with the others.

    Attributes:
        reading: What was read.
        tokens: How many tokens that took, padding not counted.
    """

    def __init__(
        self,
        policy: PreTrainedModel,
        groups: Rollout,
        rows: Int[Tensor, " n"],
        config: Config,
        *,
        critic: Critic | None = None,
        entropy_gradient: bool = False,
        apart: Bool[Tensor, " n"] | None = None,
    ):
        self.config, self.policy, self.critic, self.entropy_gradient = config, policy, critic, entropy_gradient
        vocabulary, most = policy.config.get_text_config().vocab_size, config.logit_chunk
        many = most is not None and groups.mask[rows].numel() * vocabulary > most
        self.chunk = max(most // vocabulary, 1) if most is not None and many else None  # tokens at a time; None: all
        self.pieces = _pieces(groups.mask[rows], config, apart)
        with _at_precision(policy, config):
            self.prompts = _Prompts(policy, groups, rows, config, hidden=critic is not None or many)
            prefix = self.prompts.prefix
            if self.chunk is not None and prefix is not None:
                assert prefix.logits is not None
                assert prefix.hidden is not None
                self.chunk = self.chunk if has_linear_head(policy, prefix.logits, prefix.hidden) else None
            self.parts = [self._read(piece, _ids(groups, rows[piece], width)) for piece, width in self.pieces]
        prompts = groups.prompt_mask[rows] if self.prompts.prefix is None else self.prompts.prefix.mask
        self.tokens = int(prompts.sum()) + int((groups.mask[rows] != 0).sum())
        shape = groups.mask[rows].shape
        logp, entropy, values = (
            None if x[0] is None else _in_place(shape, self.pieces, x) for x in zip(*self.parts, strict=True)
        )
        assert logp is not None
        assert entropy is not None
        self.reading = Reading(logp, entropy, values)

    def backward(self, loss: Tensor) -> None:
        """From a loss of the whole reading to the weights."""
        found = [x for x in self.reading if x is not None and x.requires_grad]
        slopes = torch.autograd.grad(loss, found, allow_unused=True, materialize_grads=True)
        tensors: list[Tensor] = []
        gradients: list[Tensor] = []
        for number, ((piece, width), part) in enumerate(zip(self.pieces, self.parts, strict=True)):
            pairs = [
                (narrow, slope[piece, :width])
                for narrow, slope in zip((x for x in part if x is not None and x.requires_grad), slopes, strict=True)
            ]
            idle = self.config.skip_idle == "on" and not any(slope.any() for _, slope in pairs)
            # One piece has its backward in any case: an optimiser wants a gradient, if only of 0.
            if not idle or (number == len(self.pieces) - 1 and not tensors):
                tensors += [narrow for narrow, _ in pairs]
                gradients += [slope for _, slope in pairs]
        torch.autograd.backward(tensors, gradients)

    def _read(self, piece: Tensor, ids: tuple[Tensor, Tensor, Tensor]) -> Reading:
        logits = hidden = values = None
        if self.prompts.prefix is not None:
            logits, hidden = self.prompts.go_on(self.policy, piece, ids[2], logits=self.chunk is None)
            if self.critic is not None and hidden is not None:
                values = self.critic.values(hidden)
        elif self.critic is not None:
            logits, values = policy_logits_and_values(self.policy, self.critic, *ids)
        elif self.chunk is not None:
            hidden, linear = policy_hidden(self.policy, *ids)
            self.chunk = self.chunk if linear else None
        if self.chunk is not None and logits is None and hidden is not None:
            head = self.policy.get_output_embeddings()
            options = {"bias": head.bias, "temperature": self.config.temperature, "chunk": self.chunk}
            logp, entropy = chunked_logprobs(hidden, head.weight, ids[2], **options)
            return Reading(logp, entropy if self.entropy_gradient else entropy.detach(), values)
        logits = policy_logits(self.policy, *ids) if logits is None else logits  # [b, t, V]
        logp = token_logprobs(logits, ids[2], temperature=self.config.temperature)
        with torch.set_grad_enabled(self.entropy_gradient and torch.is_grad_enabled()):
            entropy = token_entropy(logits, temperature=self.config.temperature)
        return Reading(logp, entropy, values)


class _Prompts:
    """The prompts of some rows, each read once, or (`prefix` None) not worth it or not possible."""

    def __init__(self, model: nn.Module, groups: Rollout, rows: Tensor, config: Config, *, hidden: bool = False):
        owners, self.which = (rows // config.group_size).unique(return_inverse=True)
        self.prefix: Prefix | None = None
        if config.shared_prefix == "on" and 2 * len(owners) <= len(rows) and not _recomputes(config):
            first = owners * config.group_size
            self.prefix = read_prompts(model, groups.prompts[first], groups.prompt_mask[first], hidden=hidden)

    def go_on(
        self, model: nn.Module, piece: Tensor, ids: Tensor, *, logits: bool = True
    ) -> tuple[Tensor | None, Tensor | None]:
        assert self.prefix is not None
        return continue_prompts(model, self.prefix, self.which[piece], ids, logits=logits)


@torch.no_grad()
def read_logp(
    policy: PreTrainedModel, groups: Rollout, config: Config, processes: Processes = ALONE
) -> Float[Tensor, "B T"]:
    """Log-probs of a rollout's completions under a model, at the temperature they were sampled with, no gradient.

    Args:
        policy: The model.
        groups: The rollout.
        config: Its switches.
        processes: Each reads its share of the rows.

    Returns:
        [B, T]; 0 under the mask where `sort_lengths` leaves padding out.
    """
    B = len(groups.mask)
    rows = torch.arange(B, device=groups.mask.device)[processes.share(B)]
    return processes.gather(Pass(policy, groups, rows, config).reading.logp, B)


def read_values(
    critic: Critic, groups: Rollout, config: Config, rows: Int[Tensor, " n"] | None = None
) -> Float[Tensor, "n T"]:
    """A critic's values before each token of a rollout's completions, of all rows or of some; with their gradient.

    Returns:
        [n, T]; 0 under the mask where `sort_lengths` leaves padding out.
    """
    rows = torch.arange(len(groups.mask), device=groups.mask.device) if rows is None else rows
    pieces, parts = _pieces(groups.mask[rows], config), []
    with _at_precision(critic.body, config):
        prompts = _Prompts(critic.body, groups, rows, config)
        for piece, width in pieces:
            ids = _ids(groups, rows[piece], width)
            if prompts.prefix is None:
                parts.append(critic_values(critic, *ids))
            else:
                _, hidden = prompts.go_on(critic.body, piece, ids[2])
                assert hidden is not None
                parts.append(critic.values(hidden))
    return _in_place(groups.mask[rows].shape, pieces, parts)


def _recomputes(config: Config) -> bool:
    """Whether layers are computed again in the backward; then they keep no cache that a completion could go on from."""
    return config.gradient_checkpointing == "on" and torch.is_grad_enabled()


@contextmanager
def _at_precision(model: nn.Module, config: Config) -> Iterator[None]:
    device, again = next(model.parameters()).device, _recomputes(config)
    # What is computed again is rounded again: else the copies of all weights would be there at the forward's end.
    with config.autocast(device, keep_copies=not again), recomputing(model, on=again):
        yield


def _pieces(mask: Tensor, config: Config, apart: Tensor | None = None) -> list[tuple[Tensor, int]]:
    """Places of the rows that are read together, and the columns that they need; rows set apart come last."""
    sizes, T = widths(mask), mask.shape[1]
    places = torch.arange(len(mask), device=mask.device)
    parts = [places] if apart is None or not apart.any() or apart.all() else [places[~apart], places[apart]]
    if config.sort_lengths == "off":
        return [(part, T) for part in parts]
    found = [part[piece] for part in parts for piece in pieces_by_length(sizes[part])]
    return [(piece, int(sizes[piece].max())) for piece in found] or [(places[:1], 1)]


def _ids(groups: Rollout, rows: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor]:
    return groups.prompts[rows], groups.prompt_mask[rows], groups.completions[rows, :width]


def _in_place(shape: torch.Size, pieces: list[tuple[Tensor, int]], parts: Sequence[Tensor]) -> Tensor:
    """[n, T] from pieces that hold some of its rows and columns each."""
    left_out = torch.ones(shape[0], dtype=torch.bool, device=parts[0].device)
    for piece, _ in pieces:
        left_out[piece] = False
    rest = left_out.nonzero().squeeze(-1)
    stacked = torch.cat([*(pad(x, (0, shape[1] - x.shape[1])) for x in parts), parts[0].new_zeros(len(rest), shape[1])])
    order = torch.cat([*(piece for piece, _ in pieces), rest])
    return stacked.index_select(0, order.argsort())
