"""Log-probs, entropies and values of completions, computed in the plain way."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from rlhf_minimal.functional.logprobs import token_entropy, token_logprobs
from rlhf_minimal.models import Critic, critic_values, policy_logits, policy_logits_and_values, recomputing
from rlhf_minimal.objective import Algorithm, Batch
from rlhf_minimal.training.config import Config
from rlhf_minimal.training.decoding import Decoder
from rlhf_minimal.training.groups import Rollout
from rlhf_minimal.training.processes import ALONE, Processes
from rlhf_minimal.training.sampler import sample


class Reading(NamedTuple):
    """The output of a policy for some completions, [n, T] each, and how many tokens were read for it.

    The log-probs of their tokens, at the temperature of the sampler; the entropies of the policy's next-token
    distributions, with a gradient only if the loss has a bonus for them; the values of a critic on the policy's body,
    if there is one. The tokens are those of prompts and completions, without padding.
    """

    logp: Float[Tensor, "n T"]
    entropy: Float[Tensor, "n T"]
    values: Float[Tensor, "n T"] | None
    tokens: int


class Plain:
    """Every row is read from its first token to its last, padded to the longest, with all its logits at once.

    `fast.Fast` computes the same in less time. In the padding the two may differ.
    """

    sample = staticmethod(partial(sample, decoder=Decoder))

    def arrange(self, rows: Int[Tensor, " n"]) -> Int[Tensor, " n"]:
        """The order in which the rows of a minibatch are read."""
        return rows

    def read(
        self,
        policy: PreTrainedModel,
        groups: Rollout,
        rows: Int[Tensor, " n"],
        config: Config,
        *,
        critic: Critic | None = None,
        loss: tuple[Algorithm, Batch] | None = None,
    ) -> Reading:
        """Log-probs and entropies of some completions, with their gradient.

        Args:
            policy: The model.
            groups: The rollout.
            rows: [n] which of its rows.
            config: Temperature, precision, checkpointing.
            critic: A critic that shares the policy's body; its values are computed in the same forward.
            loss: The algorithm and the n prepared rows for which the loss will be computed.
        """
        ids = groups.prompts[rows], groups.prompt_mask[rows], groups.completions[rows]
        with at_precision(policy, config):
            if critic is None:
                logits, values = policy_logits(policy, *ids), None  # [n, T, V]
            else:
                logits, values = policy_logits_and_values(policy, critic, *ids)
            logp, entropy = logp_and_entropy(logits, ids[2], config, loss)
        return Reading(logp, entropy, values, int(ids[1].sum()) + int((groups.mask[rows] != 0).sum()))

    def values(self, critic: Critic, groups: Rollout, rows: Int[Tensor, " n"], config: Config) -> Float[Tensor, "n T"]:
        """Values, before each token of some completions, of a critic with a body of its own; with gradient."""
        with at_precision(critic.body, config):
            return critic_values(critic, groups.prompts[rows], groups.prompt_mask[rows], groups.completions[rows])

    @torch.no_grad()
    def logp(
        self, policy: PreTrainedModel, groups: Rollout, config: Config, processes: Processes = ALONE
    ) -> Float[Tensor, "B T"]:
        """Log-probs of all completions of a rollout without a gradient, each process reading its share of the rows."""
        rows = processes.own_rows(groups.mask)
        return processes.gather(self.read(policy, groups, rows, config).logp)


def logp_and_entropy(
    logits: Float[Tensor, "n T V"], ids: Int[Tensor, "n T"], config: Config, loss: tuple[Algorithm, Batch] | None
) -> tuple[Float[Tensor, "n T"], Float[Tensor, "n T"]]:
    """Both at the sampler's temperature; the entropy has a gradient only if the loss has an entropy bonus."""
    logp = token_logprobs(logits, ids, temperature=config.temperature)
    with torch.set_grad_enabled(torch.is_grad_enabled() and has_entropy_bonus(loss)):
        return logp, token_entropy(logits, temperature=config.temperature)


def has_entropy_bonus(loss: tuple[Algorithm, Batch] | None) -> bool:
    """Whether the loss has an entropy bonus, and so a gradient in the entropies."""
    return loss is not None and bool(loss[0].entropy)


def recomputes(config: Config) -> bool:
    """Whether layers are computed again in the backward; then there is no cache that completions could share."""
    return config.gradient_checkpointing == "on" and torch.is_grad_enabled()


@contextmanager
def at_precision(model: nn.Module, config: Config) -> Iterator[None]:
    """A forward at the config's precision, its layers computed again in the backward if the config says so."""
    device, again = next(model.parameters()).device, recomputes(config)
    # Recomputed layers round their weights again; otherwise rounded copies of all weights would stay in memory.
    with config.autocast(device, keep_copies=not again), recomputing(model) if again else nullcontext():
        yield
