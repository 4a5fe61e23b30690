"""Two ways of reading completions, for tests that compare them: all rows as they come, and what `lab.fast` does."""

from functools import partial

import torch

from rlhf_minimal.lab.fast import fast, plain
from rlhf_minimal.train import compute_logprobs, compute_values


class Plain:
    """Every row is read from its first token to its last, padded to the longest."""

    read = staticmethod(partial(compute_logprobs, bucket_size=None))
    values = staticmethod(partial(compute_values, bucket_size=None))

    def logp(self, policy, groups, config):
        return logp_of(self, policy, groups, config)


@torch.no_grad()
def logp_of(how, policy, groups, config):
    """[B, T] log-probs of all completions of a rollout, read in this way."""
    return how.read(policy, groups, torch.arange(len(groups.mask)), config).logp


def read_by(recipe, how):
    """The recipe with this way of reading; None leaves it as it is."""
    return recipe if how is None else plain(recipe) if isinstance(how, Plain) else fast(recipe, how)
