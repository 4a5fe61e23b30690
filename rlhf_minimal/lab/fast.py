"""The fast path: log-probs of completions without computation that is repeated or has no effect.

`fast(recipe)` is the same recipe, read in this way, and no gradient changes; each of the four options of `Fast` can be
switched off alone, for measurements. With all off it does what `train.compute_logprobs` with `bucket_size=None` does.

    shared_prefix   the G completions of one prompt go on from one reading of it (`read_prompts`, `continue_prompts`)
    sort_lengths    rows of like length are read together, each piece as wide as its own longest (`pieces_by_length`)
    skip_idle       rows without effect on the loss have no backward (`_Pieces.backward`)
    logit_chunk     no more logits than this exist at once (`lab.chunked.chunked_logprobs`)

G completions of a prompt of S tokens cost G (S + T) tokens when they are read one by one, and S + G T when they share
it, in the backward too.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad
from transformers import Cache, DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer

from rlhf_minimal.config import Config
from rlhf_minimal.functional.logprobs import completion_logits, token_entropy, token_logprobs
from rlhf_minimal.lab.chunked import chunked_logprobs
from rlhf_minimal.models import (
    Critic,
    cache_name,
    critic_values,
    forward,
    policy_logits,
    policy_logits_and_values,
    positions,
)
from rlhf_minimal.objective import Algorithm, Batch
from rlhf_minimal.sample import Rollout
from rlhf_minimal.train import (
    PolicyOutput,
    Recipe,
    autocast_and_checkpointing,
    compute_logprobs,
    compute_values,
    uses_checkpointing,
)

Loss = tuple[Algorithm, Batch]  # the row of the table, and the prepared completions of which a loss will be made


@dataclass(frozen=True)
class Fast:
    """Reads what `train.compute_logprobs` and `train.compute_values` read, with less work.

    Chapter: making-it-fast.

    Args:
        shared_prefix: Read each prompt once for all its completions. Not where layers are computed again in the
            backward (`gradient_checkpointing`): they keep no cache to go on from.
        sort_lengths: Read rows of like length together, so that hardly any padding is computed.
        skip_idle: Leave out the backward of rows that have no effect on the loss.
        logit_chunk: Most logits that exist at once. Where there would be more, they are computed a few tokens at a
            time, and anew in the backward. None never does.

    Raises:
        ValueError: If `logit_chunk` is below 1.
    """

    shared_prefix: bool = True
    sort_lengths: bool = True
    skip_idle: bool = True
    logit_chunk: int | None = 2**24

    def __post_init__(self) -> None:
        if self.logit_chunk is not None and self.logit_chunk < 1:
            raise ValueError(f"logit_chunk must be at least 1, or None for no chunks; got {self.logit_chunk}")

    def read(
        self,
        policy: PreTrainedModel,
        groups: Rollout,
        rows: Int[Tensor, " n"],
        config: Config,
        *,
        critic: Critic | None = None,
        loss: Loss | None = None,
    ) -> PolicyOutput:
        """As `train.compute_logprobs`."""
        return _Pieces(self, policy, groups, rows, config, critic, loss).reading()

    def values(self, critic: Critic, groups: Rollout, rows: Int[Tensor, " n"], config: Config) -> Float[Tensor, "n T"]:
        """As `train.compute_values`."""
        pieces, values = self.pieces(groups.mask[rows]), []
        with autocast_and_checkpointing(critic.body, config):
            prefix, owner = self.prefix(critic.body, groups, rows, config)
            for places, width in pieces:
                ids = _ids(groups, rows[places], width)
                if prefix is None:
                    values.append(critic_values(critic, *ids))
                else:
                    _, hidden = continue_prompts(critic.body, prefix, owner[places], ids[2])
                    assert hidden is not None
                    values.append(critic.values(hidden))
        return _in_place(groups.mask[rows].shape, pieces, values)

    def prefix(
        self, model: nn.Module, groups: Rollout, rows: Int[Tensor, " n"], config: Config, *, hidden: bool = False
    ) -> "tuple[Prefix | None, Int[Tensor, ' n']]":
        """The prompts of some rows, each read once, and which of them is whose.

        None in place of the prompts where they are not shared: where there are more than half as many as rows, so that
        a second forward costs more than it saves, and where layers are computed again.

        Raises:
            ValueError: If `config.group_size` is not that of the rollout.
        """
        prompts, owner = (rows // config.group_size).unique(return_inverse=True)
        if not self.shared_prefix or 2 * len(prompts) > len(rows) or uses_checkpointing(config):
            return None, owner
        first = prompts * config.group_size
        if not torch.equal(groups.prompts[first][owner], groups.prompts[rows]):
            raise ValueError(
                f"the rows of a group of {config.group_size} have different prompts: set group_size to that of the "
                "rollout, or shared_prefix=False"
            )
        return read_prompts(model, groups.prompts[first], groups.prompt_mask[first], hidden=hidden), owner

    def pieces(
        self, mask: Shaped[Tensor, "n T"], apart: Bool[Tensor, " n"] | None = None
    ) -> list[tuple[Int[Tensor, " b"], int]]:
        """Places of the rows that are read together, and the columns that they need; rows set apart come last."""
        sizes, T = widths(mask), mask.shape[1]
        places = torch.arange(len(mask), device=mask.device)
        kinds = [places] if apart is None or not apart.any() or apart.all() else [places[~apart], places[apart]]
        if not self.sort_lengths:
            return [(kind, T) for kind in kinds]
        pieces = [kind[piece] for kind in kinds for piece in pieces_by_length(sizes[kind])]
        return [(piece, int(sizes[piece].max())) for piece in pieces] or [(places[:1], 1)]


def fast(recipe: Recipe, how: Fast = Fast()) -> Recipe:
    """The recipe whose completions are read by `Fast`: the same gradients in less time.

    Example:
        >>> from rlhf_minimal import ALGORITHMS
        >>> from rlhf_minimal.tasks import get_task
        >>> fast(Recipe(ALGORITHMS["grpo"], get_task("addition"))).sort_minibatches
        True
    """
    return replace(recipe, compute_logprobs=how.read, compute_values=how.values, sort_minibatches=how.shared_prefix)


def plain(recipe: Recipe) -> Recipe:
    """The recipe whose completions are all read at once, as they come and padded to the longest: for comparisons."""
    logprobs, values = partial(compute_logprobs, bucket_size=None), partial(compute_values, bucket_size=None)
    return replace(recipe, compute_logprobs=logprobs, compute_values=values, sort_minibatches=False)


class _Piece(NamedTuple):
    """Some rows of a reading: their places in it, their columns, and what was read, [b, width] each."""

    places: Int[Tensor, " b"]
    width: int
    logp: Float[Tensor, "b t"]
    entropy: Float[Tensor, "b t"]
    values: Float[Tensor, "b t"] | None

    def differentiable(self) -> list[Tensor]:
        return [x for x in (self.logp, self.entropy, self.values) if x is not None and x.requires_grad]


class _Pieces:
    """Some rows of a rollout on their way through a policy, piece by piece, and their backward.

    The loss is asked of all rows together, as if there were no pieces. Its gradient in what was read then goes back
    piece by piece, and no further where it is zero: a row on which nothing in the loss acts is known by that,
    whichever cells made the loss.
    """

    def __init__(
        self,
        means: Fast,
        policy: PreTrainedModel,
        groups: Rollout,
        rows: Tensor,
        config: Config,
        critic: Critic | None,
        loss: Loss | None,
    ) -> None:
        self.means, self.policy, self.critic, self.config, self.loss = means, policy, critic, config, loss
        self.mask = groups.mask[rows]
        vocabulary, most = policy.config.get_text_config().vocab_size, means.logit_chunk
        self.chunk: int | None = None  # tokens whose logits exist at once; None: all
        if most is not None and self.mask.numel() * vocabulary > most:
            self.chunk = max(most // vocabulary, 1)
        apart = without_effect(*loss) if means.skip_idle and loss is not None else None
        with autocast_and_checkpointing(policy, config):
            hidden = critic is not None or self.chunk is not None
            self.prefix, self.owner = means.prefix(policy, groups, rows, config, hidden=hidden)
            if self.chunk is not None and self.prefix is not None:
                assert self.prefix.logits is not None
                assert self.prefix.hidden is not None
                self.chunk = self.chunk if has_linear_head(policy, self.prefix.logits, self.prefix.hidden) else None
            self.pieces = [
                _Piece(places, width, *self._read(places, _ids(groups, rows[places], width)))
                for places, width in means.pieces(self.mask, apart)
            ]
        prompt_mask = groups.prompt_mask[rows] if self.prefix is None else self.prefix.mask
        self.tokens = int(prompt_mask.sum()) + int((self.mask != 0).sum())

    def reading(self) -> PolicyOutput:
        """What was read, in the order of the rows; its gradient comes back through `backward`."""
        where = [(piece.places, piece.width) for piece in self.pieces]
        whole = {
            name: _in_place(self.mask.shape, where, [getattr(piece, name).detach() for piece in self.pieces])
            for name in ("logp", "entropy", "values")
            if name != "values" or self.critic is not None
        }
        names = [name for name in whole if getattr(self.pieces[0], name).requires_grad]
        if names:
            start = torch.zeros((), requires_grad=True)  # no input of this node has a gradient that autograd could see
            tracked = _HandedToPieces.apply(self, start, *(whole[name] for name in names))
            whole |= dict(zip(names, tracked, strict=True))
        return PolicyOutput(whole["logp"], whole["entropy"], whole.get("values"), self.tokens)

    def backward(self, slopes: Sequence[Tensor]) -> None:
        """From the loss's gradient in the reading to the weights."""
        tensors: list[Tensor] = []
        gradients: list[Tensor] = []
        for piece in self.pieces:
            own = [slope[piece.places, : piece.width] for slope in slopes]
            idle = self.means.skip_idle and not any(slope.any() for slope in own)
            # One piece always has a backward: the optimiser needs a gradient, even one of 0.
            if not idle or (piece is self.pieces[-1] and not tensors):
                tensors += piece.differentiable()
                gradients += own
        torch.autograd.backward(tensors, gradients)

    def _read(self, places: Tensor, ids: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor | None]:
        logits = hidden = values = None
        if self.prefix is not None:
            logits, hidden = continue_prompts(
                self.policy, self.prefix, self.owner[places], ids[2], logits=self.chunk is None
            )
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
            return logp, entropy if has_entropy_bonus(self.loss) else entropy.detach(), values
        logits = policy_logits(self.policy, *ids) if logits is None else logits  # [b, t, V]
        return *logp_and_entropy(logits, ids[2], self.config, self.loss), values


class _HandedToPieces(torch.autograd.Function):
    """Leaves a reading as it is, and hands the gradient that arrives at it to its pieces.

    So the loop calls `loss.backward()` and nothing else, as on the plain path. The weights' gradients are added up
    by the backward of the pieces, so a `torch.autograd.grad` in the weights sees none.
    """

    @staticmethod
    def forward(ctx: Any, pieces: _Pieces, start: Tensor, *reading: Tensor) -> tuple[Tensor, ...]:
        ctx.pieces = pieces
        return reading

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        ctx.pieces.backward(slopes)
        return None, None, *(None for _ in slopes)


def logp_and_entropy(
    logits: Float[Tensor, "n T V"], ids: Int[Tensor, "n T"], config: Config, loss: Loss | None
) -> tuple[Float[Tensor, "n T"], Float[Tensor, "n T"]]:
    """Both at the sampler's temperature; the entropy has a gradient only if the loss has an entropy bonus."""
    logp = token_logprobs(logits, ids, temperature=config.temperature)
    with torch.set_grad_enabled(torch.is_grad_enabled() and has_entropy_bonus(loss)):
        return logp, token_entropy(logits, temperature=config.temperature)


def has_entropy_bonus(loss: Loss | None) -> bool:
    """Whether the loss has an entropy bonus, and so a gradient in the entropies."""
    return loss is not None and bool(loss[0].entropy)


def without_effect(algorithm: Algorithm, batch: Batch) -> Bool[Tensor, " B"]:
    """True for rows that may turn out to get no gradient: no advantage on any trained token, no KL, no bonus.

    This is only a guess, since a gate of the user's own may still act on them: the gradient that reaches a row decides
    whether it is left out (`_Pieces.backward`). Here such rows are set apart, so that they share no piece with others.
    They still count in the denominators, because they are part of the batch.

    Chapter: making-it-fast-in-depth.

    Args:
        algorithm: A row of the table, or any other choice of cells.
        batch: Prepared.

    Example:
        >>> from rlhf_minimal import ALGORITHMS
        >>> zeros, rewards = torch.zeros(4, 1), torch.tensor([1.0, 1.0, 1.0, 0.0])
        >>> batch = Batch(zeros, zeros, torch.ones(4, 1), rewards, 2, advantages=rewards - 1)
        >>> without_effect(ALGORITHMS["dr_grpo"], batch).tolist()
        [True, True, True, False]
        >>> without_effect(ALGORITHMS["grpo"], batch).tolist()  # its KL acts on every row
        [False, False, False, False]
    """
    assert batch.advantages is not None
    nothing_else = not algorithm.entropy and not any(kl.coef and kl.place == "loss" for kl in algorithm.kl)
    return ((batch.advantages == 0) | (batch.mask == 0)).all(-1) & nothing_else


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

    Chapter: making-it-fast-in-depth.

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


@dataclass(frozen=True)
class Prefix:
    """Prompts that a model has read: what is needed to continue them with completions.

    Attributes:
        mask: [P, S] 1 for real prompt tokens, S the longest prompt.
        cache: Keys and values, one after the other for each layer, each [P, heads, S, size].
        logits: [P, 1, V] that predict the first completion token; None for a body without a vocabulary head.
        hidden: [P, 1, H] last hidden state of the prompt's last token; None unless it was asked for.
    """

    mask: Int[Tensor, "P S"]
    cache: tuple[Tensor, ...]
    logits: Float[Tensor, "P 1 V"] | None
    hidden: Float[Tensor, "P 1 H"] | None


def read_prompts(
    model: nn.Module, prompts: Int[Tensor, "P S"], prompt_mask: Int[Tensor, "P S"], *, hidden: bool = False
) -> Prefix | None:
    """Reads every prompt once, however many completions continue it.

    Chapter: making-it-fast-in-depth.

    Args:
        model: A causal language model of transformers, or its body (`model.base_model`, `critic.body`).
        prompts: [P, S] ids, padded on the left.
        prompt_mask: [P, S], 1 for real prompt tokens.
        hidden: Whether last hidden states are wanted beside logits; a body has them in any case.

    Returns:
        What `continue_prompts` takes; None if the model keeps something else than the keys and values of all tokens
        (a sliding window, a recurrent state, nothing while activations are checkpointed): read whole rows then.

    Example:
        >>> from rlhf_minimal.models import policy_logits, tiny_llama
        >>> model = tiny_llama(13)
        >>> prompts, completions = torch.tensor([[1, 2, 3]]), torch.tensor([[4, 5], [6, 7]])
        >>> prefix = read_prompts(model, prompts, torch.ones_like(prompts))
        >>> logits, _ = continue_prompts(model, prefix, torch.tensor([0, 0]), completions)
        >>> twice = prompts.expand(2, 3)
        >>> torch.allclose(logits, policy_logits(model, twice, torch.ones_like(twice), completions), atol=1e-5)
        True
    """
    S = int(prompt_mask.sum(-1).max())
    prompts, prompt_mask = prompts[:, -S:], prompt_mask[:, -S:]
    last, cache = _forward(model, prompts, prompt_mask.long(), positions(prompt_mask), None, 1, hidden)
    layers = getattr(cache, "layers", [])
    if not layers or any(type(layer) is not DynamicLayer for layer in layers):
        return None
    return Prefix(prompt_mask, tuple(x for layer in layers for x in (layer.keys, layer.values)), **last)


def continue_prompts(
    model: nn.Module, prefix: Prefix, rows: Int[Tensor, " b"], completions: Int[Tensor, "b T"], *, logits: bool = True
) -> tuple[Float[Tensor, "b T V"] | None, Float[Tensor, "b T H"] | None]:
    """`policy_logits` of completions whose prompts were read before.

    Chapter: making-it-fast-in-depth.

    Args:
        model: The one that read the prompts.
        prefix: From `read_prompts`.
        rows: [b] which prompt each completion belongs to.
        completions: [b, T] ids, padded on the right.
        logits: False leaves the vocabulary head to whoever takes the hidden states (`chunked_logprobs`).

    Returns:
        [b, T, V] logits (None from a body, or if not wanted) and [b, T, H] hidden states (None if the prefix kept
        none). Entry t belongs to completion token t.
    """
    first = {
        "logits": prefix.logits.index_select(0, rows) if logits and prefix.logits is not None else None,
        "hidden": prefix.hidden.index_select(0, rows) if prefix.hidden is not None else None,
    }
    if completions.shape[1] > 1:  # what follows the last token is not needed
        pairs = zip(prefix.cache[::2], prefix.cache[1::2], strict=True)
        cache = DynamicCache([(_rows_of(key, rows), _rows_of(value, rows)) for key, value in pairs])
        ids = completions[:, :-1]
        attention_mask = torch.cat([prefix.mask[rows].long(), torch.ones_like(ids)], dim=1)
        where = positions(attention_mask)[:, prefix.mask.shape[1] :]
        keep = ids.shape[1] if logits else 1
        further, _ = _forward(model, ids, attention_mask, where, cache, keep, first["hidden"] is not None)
        first = {name: None if x is None else torch.cat([x, further[name]], dim=1) for name, x in first.items()}
    return first["logits"], first["hidden"]


def has_linear_head(model: PreTrainedModel, logits: Float[Tensor, "b n V"], hidden: Float[Tensor, "b n H"]) -> bool:
    """Whether a model's logits are its output matrix times its last hidden state and nothing more.

    Some models scale or squash what comes out of the matrix, and `lab.chunked.chunked_logprobs` knows nothing
    of that.

    Args:
        model: The model.
        logits: [b, n, V] of some tokens.
        hidden: [b, n, H] last hidden states of the same tokens.
    """
    head = model.get_output_embeddings()
    if not isinstance(head, nn.Linear):
        return False
    with torch.no_grad():
        return torch.allclose(head(hidden), logits, rtol=1e-3, atol=1e-3)


def _rows_of(x: Tensor, rows: Tensor) -> Tensor:
    """`x[rows]`, with a backward that adds whole rows up.

    That of `x[rows]` adds one number at a time, and so does that of `index_select` where the gradient is a slice of
    something wider, as the cache hands it back, which keeps prompt and completion in one piece.
    """
    picked = x.index_select(0, rows)
    if picked.requires_grad:
        picked.register_hook(lambda slope: slope.contiguous())
    return picked


def _forward(
    model: nn.Module, ids: Tensor, attention_mask: Tensor, where: Tensor, cache: Cache | None, keep: int, hidden: bool
) -> tuple[dict[str, Any], Cache | None]:
    """Logits of the last `keep` tokens and hidden states (of the last token, or all where a cache went before)."""
    options: dict[str, Any] = {cache_name(model): cache, "use_cache": True}
    is_body = getattr(model, "get_output_embeddings", lambda: None)() is None
    if not is_body:
        options |= {"logits_to_keep": keep, "output_hidden_states": hidden}
    output = model(input_ids=ids, attention_mask=attention_mask, position_ids=where, **options)
    states = output.last_hidden_state if is_body else output.hidden_states[-1] if hidden else None
    if states is not None and cache is None:
        states = states[:, -1:]
    return {"logits": None if is_body else output.logits, "hidden": states}, output[cache_name(model)]


def policy_hidden(
    model: PreTrainedModel,
    prompts: Int[Tensor, "B S"],
    prompt_mask: Int[Tensor, "B S"],
    completions: Int[Tensor, "B T"],
) -> tuple[Float[Tensor, "B T H"], bool]:
    """The last hidden states behind `policy_logits`, for a head that is applied a few tokens at a time.

    Args and padding as in `policy_logits`.

    Returns:
        [B, T, H], and whether the model's head is such a one (`has_linear_head`).
    """
    output = forward(model, prompts, prompt_mask, completions, logits_to_keep=1, output_hidden_states=True)
    hidden = output.hidden_states[-1]
    return completion_logits(hidden, completions.shape[1]), has_linear_head(model, output.logits, hidden[:, -1:])


def _ids(groups: Rollout, rows: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor]:
    return groups.prompts[rows], groups.prompt_mask[rows], groups.completions[rows, :width]


def _in_place(shape: torch.Size, pieces: list[tuple[Tensor, int]], read: Sequence[Tensor]) -> Tensor:
    """[n, T] from pieces that hold some of its rows and columns each."""
    left_out = torch.ones(shape[0], dtype=torch.bool, device=read[0].device)
    for piece, _ in pieces:
        left_out[piece] = False
    rest = left_out.nonzero().squeeze(-1)
    stacked = torch.cat([*(pad(x, (0, shape[1] - x.shape[1])) for x in read), read[0].new_zeros(len(rest), shape[1])])
    order = torch.cat([*(piece for piece, _ in pieces), rest])
    return stacked.index_select(0, order.argsort())
