"""Exact expectations for a policy small enough that everything it can say can be listed.

A language model samples, so what an algorithm does *on average* can usually only be estimated. With a
vocabulary of three tokens, one of them EOS, and at most three tokens a completion there are fifteen completions
in all. Their probabilities can be written down, and with them every expectation, the exact KL divergence
between two policies, the exact gradient of the expected reward, and, by listing every group of G completions
too, the exact expected gradient of any group-based loss. A claim such as "this estimator is unbiased" then is
an equality between two numbers, and holds to rounding error or not at all.

    >>> tree = Tree(vocab=3, length=3)
    >>> len(tree), tree.text(0), tree.text(5)            # 15 completions; token 0 is EOS, printed as "."
    (15, '.', 'ab.')
    >>> theta = tree.random_logits(seed=0).requires_grad_()
    >>> bool(torch.isclose(tree.probs(theta).sum(), torch.tensor(1.0, dtype=torch.float64)))
    True

A policy is nothing but its table of logits [prefixes, vocab], a plain tensor, so that any function of it can
be differentiated by autograd. The score function, whose mean is zero under the policy's own samples, shows
the pattern:

    >>> weights = tree.probs(theta).detach()             # sampling is not differentiated, as in training
    >>> score = tree.grad((weights * tree.sequence_logp(theta)).sum(), theta)
    >>> bool(score.abs().max() < 1e-12)
    True

This file imports nothing of the library, so that the library can be proved against it.

Everything is float64. The cost is what it looks like: len(tree) terms for one completion, len(tree)^G for a
group.
"""

import itertools
import math
from collections.abc import Callable

import torch
from torch import Tensor

EOS = 0


class Tree:
    """Every completion over `vocab` tokens that ends with EOS (token 0) or at `length` tokens.

    Attributes (N completions, T = length, S prefixes):
        tokens [N, T]: the completions, padded with EOS.
        mask [N, T]: 1.0 at the tokens of a completion, its EOS included.
        node [N, T]: which prefix (row of the logits) each token was chosen at.
        lengths [N]: number of tokens, EOS included.
        prefixes: the S prefixes, as tuples; prefix 0 is the empty one.
    """

    def __init__(self, vocab: int = 3, length: int = 3):
        self.vocab, self.length = vocab, length
        words = range(1, vocab)  # every token but EOS
        self.prefixes = [
            p for n in range(length) for p in itertools.product(words, repeat=n)
        ]
        ended = [(*p, EOS) for p in self.prefixes]
        cut_off = list(itertools.product(words, repeat=length))
        self.sequences = sorted(ended + cut_off)

        N = len(self.sequences)
        self.tokens = torch.full((N, length), EOS)
        self.node = torch.zeros(N, length, dtype=torch.long)
        self.mask = torch.zeros(N, length, dtype=torch.float64)
        row = {prefix: i for i, prefix in enumerate(self.prefixes)}
        for n, sequence in enumerate(self.sequences):
            for t, token in enumerate(sequence):
                self.tokens[n, t] = token
                self.node[n, t] = row[sequence[:t]]
                self.mask[n, t] = 1.0
        self.lengths = self.mask.sum(1)
        self.truncated = torch.tensor(
            [EOS not in sequence for sequence in self.sequences]
        )

    def __len__(self) -> int:
        return len(self.sequences)

    def text(self, n: int) -> str:
        """Completion n as letters, EOS as a full stop."""
        return "".join(
            "." if token == EOS else chr(ord("a") + token - 1)
            for token in self.sequences[n]
        )

    # Policies. A policy is a table of logits [S, vocab].

    def random_logits(self, seed: int, scale: float = 1.0) -> Tensor:
        """A policy with normal logits: `scale` 0 is uniform, large is nearly deterministic."""
        generator = torch.Generator().manual_seed(seed)
        return scale * torch.randn(
            len(self.prefixes), self.vocab, generator=generator, dtype=torch.float64
        )

    def top_p(self, logits: Tensor, p: float) -> Tensor:
        """What a nucleus sampler plays: the fewest tokens that reach p at each prefix, the rest at -inf."""
        probs, order = logits.softmax(-1).sort(-1, descending=True)
        dropped = probs.cumsum(-1) - probs >= p  # what came before was already enough
        return logits.masked_fill(
            torch.zeros_like(dropped).scatter(-1, order, dropped), -math.inf
        )

    def logp(self, logits: Tensor, temperature: float = 1.0) -> Tensor:
        """Log-probability of each token of each completion given its prefix, [N, T]; 0 after the end."""
        table = (logits / temperature).log_softmax(-1)
        return torch.where(self.mask.bool(), table[self.node, self.tokens], 0.0)

    def sequence_logp(self, logits: Tensor, temperature: float = 1.0) -> Tensor:
        """Log-probability of each whole completion, [N]."""
        return self.logp(logits, temperature).sum(1)

    def probs(self, logits: Tensor, temperature: float = 1.0) -> Tensor:
        """Probability of each completion, [N]. They sum to 1."""
        return self.sequence_logp(logits, temperature).exp()

    def visits(self, logits: Tensor) -> Tensor:
        """Probability that a completion passes through each prefix, [S]."""
        p = self.probs(logits)
        seen = torch.zeros(len(self), len(self.prefixes), dtype=torch.float64)
        for n, t in self.mask.nonzero().tolist():
            seen[n, self.node[n, t]] = 1.0
        return p @ seen

    # Exact expectations, and their gradients.

    def expect(self, logits: Tensor, f: Tensor) -> Tensor:
        """E[f] for one sampled completion; f is [N], or [N, T] and then summed over a completion's tokens."""
        if f.ndim == 2:
            f = torch.where(self.mask.bool(), f, 0.0).sum(1)
        return (self.probs(logits) * f).sum()

    def grad(self, scalar: Tensor, logits: Tensor) -> Tensor:
        """The gradient d scalar / d logits, [S, vocab]."""
        return torch.autograd.grad(scalar, logits, retain_graph=True)[0]

    def policy_gradient(self, logits: Tensor, rewards: Tensor) -> Tensor:
        """The gradient of E[R], by differentiating the probabilities themselves: no score function."""
        return self.grad(self.expect(logits, rewards), logits)

    def kl(self, logits: Tensor, other: Tensor) -> Tensor:
        """KL(policy || other) between the distributions over whole completions."""
        return self.expect(
            logits, self.sequence_logp(logits) - self.sequence_logp(other)
        )

    def token_kl(self, logits: Tensor, other: Tensor) -> Tensor:
        """KL(policy || other) of the next token at each prefix, [S]. Weighted by `visits` it sums to `kl`."""
        a, b = logits.log_softmax(-1), other.log_softmax(-1)
        return (a.exp() * (a - b)).sum(-1)

    def chi2(self, logits: Tensor, other: Tensor) -> Tensor:
        """The chi-square divergence E[policy/other] - 1 between the distributions over whole completions."""
        return (
            self.expect(
                logits, (self.sequence_logp(logits) - self.sequence_logp(other)).exp()
            )
            - 1
        )

    def values(self, logits: Tensor, token_rewards: Tensor) -> Tensor:
        """V(s_t), the expected sum of this and later token rewards given the prefix, [N, T]."""
        p = self.probs(logits).detach()
        to_go = token_rewards.flip(1).cumsum(1).flip(1)
        total, weight = (
            torch.zeros(len(self.prefixes), dtype=torch.float64) for _ in range(2)
        )
        for n, t in self.mask.nonzero().tolist():
            total[self.node[n, t]] += p[n] * to_go[n, t]
            weight[self.node[n, t]] += p[n]
        return torch.where(self.mask.bool(), (total / weight)[self.node], 0.0)

    def tilted(self, logits: Tensor, rewards: Tensor) -> tuple[Tensor, Tensor]:
        """The policy with probabilities p(y) exp(R(y)) / Z, and log Z.

        With rewards R / tau it is the optimum of E[R] - tau KL(. || policy): what KL-regularised RL converges to.
        """
        weight = (self.sequence_logp(logits) + rewards).exp()
        through = torch.zeros(len(self.prefixes), self.vocab, dtype=torch.float64)
        for n, t in self.mask.nonzero().tolist():
            through[self.node[n, t], self.tokens[n, t]] += weight[n]
        return through.log(), weight.sum().log()

    def outcome(self, rewards: Tensor) -> Tensor:
        """Rewards [N] as token rewards [N, T]: paid on the last token."""
        last = torch.arange(self.length) == (self.lengths - 1).long()[:, None]
        return torch.where(last, rewards[:, None], 0.0)

    # Groups: every way in which G independent samples can come out.

    def groups(self, group_size: int) -> tuple[Tensor, Tensor]:
        """Every group of G completions, order disregarded: indices [M, G], and the number of its orders [M].

        A sampled group is an ordered tuple, but no loss here depends on the order, so the len(tree)^G tuples
        are counted by their contents: 680 groups instead of 3375 for G = 3.
        """
        rows = list(
            itertools.combinations_with_replacement(range(len(self)), group_size)
        )
        orders = [
            math.factorial(group_size)
            // math.prod(math.factorial(r.count(n)) for n in set(r))
            for r in rows
        ]
        return torch.tensor(rows), torch.tensor(orders, dtype=torch.float64)

    def group_probs(
        self, logits: Tensor, group_size: int, temperature: float = 1.0
    ) -> Tensor:
        """Probability of each group of `groups(group_size)`, all its orders together, [M]. They sum to 1."""
        rows, orders = self.groups(group_size)
        return orders * self.sequence_logp(logits, temperature)[rows].sum(1).exp()

    def expected_loss(
        self,
        loss: Callable[[Tensor, Tensor], Tensor],
        logits: Tensor,
        group_size: int,
        behaviour: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The exact mean of a loss over all groups, and the exact mean of its gradient.

        The groups are drawn from `behaviour` (default: the policy itself), and drawing is not differentiated:
        this is the average of what `loss.backward()` leaves in the logits, not the gradient of the average.

        Args:
            loss: maps (logp [G, T] of one group, its rows [G]) to a scalar. Rows index every [N] table.
            logits: the policy that is being trained, [S, vocab].
            group_size: G.
            behaviour: the policy that sampled.

        Returns:
            The expected loss, and its expected gradient [S, vocab].
        """
        rows, _ = self.groups(group_size)
        with torch.no_grad():
            probability = self.group_probs(
                logits if behaviour is None else behaviour, group_size
            )
        logp = self.logp(logits)
        value, weight = torch.zeros((), dtype=torch.float64), torch.zeros_like(logp)
        for group, p in zip(rows, probability, strict=True):
            leaf = logp.detach()[group].requires_grad_()
            group_loss = loss(leaf, group)
            (g,) = torch.autograd.grad(group_loss, leaf)
            value += p * group_loss.detach()
            weight.index_add_(
                0, group, p * g
            )  # a completion may occur in a group twice
        return value, torch.autograd.grad(logp, logits, weight, retain_graph=True)[0]
