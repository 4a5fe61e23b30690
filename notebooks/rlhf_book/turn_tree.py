"""Two turns, listed whole: every transcript that a policy and an environment can write, and exact gradients on it.

The policy writes one token. `s` and `l` ask a short and a long tool, which answer `h` or `t`, a coin that they have
tossed; the long one adds three tokens of talk. Then the policy says `h` or `t`, and is paid 1 if that is the coin. The
short tool lies in 30 % of cases, the long one in 5 %. A first token that asks nobody gets no reply and no reward. The
policy always writes two tokens, so nothing but replies makes transcripts differ in length. There are 55 of them.

Chapter: agents.
"""

import itertools
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

VOCABULARY = "slhtz"
LIES = {"s": 0.3, "l": 0.05}
TALK = {"s": "", "l": "zzz"}


class Tree:
    """All transcripts, N = 55 of at most T = 6 tokens.

    Args:
        step: A reward that is paid at once for asking the short tool.
        shared: Whether places share logits: five rows (begun, short or long tool asked, h or t heard), and one row that
            is added everywhere. Otherwise every prefix has a row of its own.
        talk: Whether the long tool talks. Without it there are 40 transcripts, of at most three tokens.

    Attributes:
        texts: The transcripts.
        own: [N, T] 1 where the policy wrote.
        read: [N, T] 1 where anybody wrote.
        rewards: [N, T] what is paid after each token.
        total: [N] the sum of a transcript's rewards.
    """

    def __init__(
        self, *, step: float = 0.0, shared: bool = False, talk: bool = True
    ) -> None:
        self.vocabulary = VOCABULARY if talk else VOCABULARY.replace("z", "")
        rows = []  # text, tokens of the policy, probability of the environment, rewards
        for tool, coin, heard, said in itertools.product(
            "sl", "ht", "ht", self.vocabulary
        ):
            chance = 0.5 * (LIES[tool] if heard != coin else 1 - LIES[tool])
            text = tool + heard + TALK[tool] * talk + said
            paid = (
                [step * (tool == "s")] + [0.0] * (len(text) - 2) + [float(said == coin)]
            )
            rows.append((text, (0, len(text) - 1), chance, paid))
        for first, said in itertools.product(self.vocabulary[2:], self.vocabulary):
            rows.append((first + said, (0, 1), 1.0, [0.0, 0.0]))
        self.texts = [row[0] for row in rows]
        N, T = len(rows), max(map(len, self.texts))
        prefixes = sorted({text[:t] for text in self.texts for t in range(len(text))})
        places = [_shared_place(p) if shared else i for i, p in enumerate(prefixes)]
        # [prefixes, rows of logits]: the logits of a prefix are a sum of rows
        self.features = torch.eye(max(places) + 1, dtype=torch.float64)[places]
        if shared:
            self.features = torch.cat(
                [self.features, torch.ones_like(self.features[:, :1])], 1
            )
        self.own, self.read, self.rewards = (
            torch.zeros(N, T, dtype=torch.float64) for _ in range(3)
        )
        self._node, self._token = (
            torch.zeros(N, T, dtype=torch.long) for _ in range(2)
        )
        for n, (text, by_policy, _, paid) in enumerate(rows):
            self.own[n, list(by_policy)] = 1.0
            self.read[n, : len(text)] = 1.0
            self.rewards[n, : len(text)] = torch.tensor(paid, dtype=torch.float64)
            for t, token in enumerate(text):
                self._node[n, t] = prefixes.index(text[:t])
                self._token[n, t] = self.vocabulary.index(token)
        self.chance = torch.tensor([row[2] for row in rows], dtype=torch.float64)
        self.total = self.rewards.sum(1)

    def policy(self, seed: int) -> Tensor:
        """Random logits, [rows, V]."""
        draws = torch.Generator().manual_seed(seed)
        size = self.features.shape[1], len(self.vocabulary)
        return torch.randn(size, generator=draws, dtype=torch.float64)

    def probabilities(self, theta: Tensor) -> Tensor:
        """[N] of each transcript: the policy's tokens times what the environment does."""
        logp = (self.features @ theta).log_softmax(-1)[
            self._node, self._token
        ]  # [N, T]
        return self.chance * (logp * self.own).sum(1).exp()

    def true_gradient(self, theta: Tensor) -> Tensor:
        """The derivative of the expected reward, by autograd and nothing else."""
        theta = theta.clone().requires_grad_()
        value = self.probabilities(theta) @ self.total
        return torch.autograd.grad(value, theta)[0]

    def scores(self, theta: Tensor) -> Tensor:
        """[N, T, rows, V] the gradient of each token's log-prob, replies included."""
        pi = (self.features @ theta).softmax(-1)  # [prefixes, V]
        one_hot = torch.eye(len(self.vocabulary), dtype=torch.float64)
        by_logits = one_hot[self._token] - pi[self._node]  # [N, T, V]
        return self.features[self._node][..., None] * by_logits[:, :, None]

    def estimate(self, theta: Tensor, weight: Tensor) -> tuple[Tensor, float]:
        """Mean and variance (the trace) of the sum over t of weight times score, of one sampled transcript.

        Args:
            theta: The policy.
            weight: [N, T] what each token's score is multiplied by.
        """
        p = self.probabilities(theta)
        each = torch.einsum("nt,ntkv->nkv", weight * self.read, self.scores(theta))
        mean = torch.einsum("n,nkv->kv", p, each)
        return mean, float(p @ (each**2).sum((1, 2)) - (mean**2).sum())

    def to_go(self) -> Tensor:
        """[N, T] the rewards from each token on."""
        return self.rewards.flip(1).cumsum(1).flip(1)


def _shared_place(prefix: str) -> int:
    """The row of logits: 0 begun, 1 and 2 a tool is asked, 3 and 4 what was heard (or said to nobody)."""
    heard = [c for c in prefix[1:] if c in "ht"]
    asked = prefix[:1].replace("z", "h")
    return {"": 0, "s": 1, "l": 2, "h": 3, "t": 4}[heard[0] if heard else asked]


def compare(
    tree: Tree,
    arms: Callable[[Tree, Tensor], Mapping[str, Tensor]],
    *,
    policies: int = 20,
) -> dict[str, dict[str, float]]:
    """Each arm's expected gradient beside the true one, over random policies.

    Args:
        tree: The transcripts.
        arms: (tree, theta) -> the [N, T] weights of each arm.
        policies: How many.

    Returns:
        For each arm: `cosine` and `least` (its mean, and the smallest), `length` (of its part along the true gradient,
        in the true one's lengths), `variance` (of one transcript, in squared lengths of the true one; the median).
    """
    found: dict[str, list[tuple[float, ...]]] = {}
    for seed in range(policies):
        theta = tree.policy(seed)
        true = tree.true_gradient(theta)
        for name, weight in arms(tree, theta).items():
            mean, variance = tree.estimate(theta, weight)
            along = float((mean * true).sum())
            cosine = along / float(mean.norm() * true.norm())
            square = float((true**2).sum())
            found.setdefault(name, []).append(
                (cosine, along / square, variance / square)
            )
    return _summary(found)


def _summary(
    found: Mapping[str, list[tuple[float, ...]]],
) -> dict[str, dict[str, float]]:
    """Cosine, length and variance of each policy, as the columns of a table."""
    table = {}
    for name, rows in found.items():
        cosine, length, variance = torch.tensor(rows, dtype=torch.float64).unbind(1)
        table[name] = {
            "cosine": float(cosine.mean()),
            "least": float(cosine.min()),
            "length": float(length.mean()),
            "variance": float(variance.median()),
        }
    return table


def who_is_trained(tree: Tree, theta: Tensor) -> dict[str, Tensor]:
    """Weights with and without replies, in the loss and in the divisor; a turn begins anew behind a reply."""
    advantage = (tree.total - tree.probabilities(theta) @ tree.total)[:, None]
    own, read = tree.own, tree.read
    n_own, n_read = own.sum(1, keepdim=True), read.sum(1, keepdim=True)
    turns = 1 + (n_read > n_own).to(own.dtype)
    mean_read = tree.probabilities(theta) @ n_read
    return {
        "own tokens": advantage * own,
        "replies in the loss": advantage * read,
        "mean over own tokens": advantage * own / n_own,
        "divided by own and replies": advantage * own / n_read,
        "divided by turns": advantage * own / turns,
        "one divisor for the batch": advantage * own / mean_read,
        "replies in both": advantage * read / n_read,
    }


def who_gets_credit(
    tree: Tree, theta: Tensor, *, gamma: float = 0.8
) -> dict[str, Tensor]:
    """Weights that differ in which rewards a token is paid."""
    p, own, rewards, to_go = (
        tree.probabilities(theta),
        tree.own,
        tree.rewards,
        tree.to_go(),
    )
    first = torch.zeros_like(own)
    first[:, 0] = 1.0
    last = own - first
    by_turn = first * (p @ to_go[:, 0]) + last * (p @ (to_go * last).sum(1))
    key = [[text[:t] for t in range(own.shape[1])] for text in tree.texts]
    value = torch.zeros_like(own)
    for n, t in own.nonzero().tolist():
        same = [
            m
            for m, text in enumerate(tree.texts)
            if len(text) > t and key[m][t] == key[n][t]
        ]
        value[n, t] = p[same] @ to_go[same, t] / p[same].sum()
    discount, by_token = (
        gamma ** torch.arange(own.shape[1], dtype=own.dtype),
        torch.zeros_like(own),
    )
    for t in range(own.shape[1]):
        by_token[:, t] = (rewards[:, t:] * discount[: own.shape[1] - t]).sum(1)
    per_turn = (
        first * (rewards[:, :1] + gamma * (rewards * last).sum(1, keepdim=True))
        + last * to_go
    )
    mean = p @ tree.total
    return {
        "one number a transcript": (tree.total - mean)[:, None] * own,
        "to go, less its mean at that turn": (to_go - by_turn) * own,
        "to go, less V(state)": (to_go - value) * own,
        "returns reset at the reply": rewards * own,
        "discount by turns": per_turn * own,
        "discount by tokens, replies too": by_token * own,
    }


def compare_groups(tree: Tree, *, policies: int = 3) -> dict[str, dict[str, float]]:
    """Baselines from a group of three transcripts: of rows, of turns, and of equal states ("anchors", GiGPO).

    All groups are listed, so mean and variance are exact. The columns are those of `compare`, for the gradient of a
    group, a mean over its three transcripts.
    """
    G, n = 3, len(tree.texts)
    groups = torch.tensor(list(itertools.combinations_with_replacement(range(n), G)))
    orders = torch.tensor([{3: 6, 2: 3, 1: 1}[len(set(g))] for g in groups.tolist()])
    turns = torch.stack(
        [torch.zeros(n, dtype=torch.long), tree.read.sum(1).long() - 1], 1
    )
    reward = tree.to_go().gather(1, turns)[groups]  # [M, G, 2] to go
    prefixes = [["", text[: t[1]]] for text, t in zip(tree.texts, turns.tolist())]
    names = sorted({one for pair in prefixes for one in pair})
    state = torch.tensor([[names.index(one) for one in pair] for pair in prefixes])[
        groups
    ]
    same = (state[:, :, None] == state[:, None]).double()  # [M, G, G, 2]
    count, summed = same.sum(2), (same * reward[:, None]).sum(2)
    alone = count < 2
    mean, others = summed / count, (summed - reward) / (count - 1).clamp(min=1)
    by_turn = (reward.sum(1, keepdim=True) - reward) / (G - 1)
    total = tree.total[groups][..., None].expand_as(reward)
    centred = total - total.mean(1, keepdim=True)
    spread = (
        (same * (reward[:, None] - mean[:, :, None]) ** 2).sum(2)
        / (count - 1).clamp(min=1)
    ).sqrt()
    weights = {
        "rows, less the group's mean": centred,
        "rows, leave one out": centred * G / (G - 1),
        "turns, leave one out": reward - by_turn,
        "equal states, less their mean": reward - mean,
        "equal states, leave one out, 0 if alone": torch.where(
            alone, 0.0, reward - others
        ),
        "equal states, leave one out, if alone by turn": reward
        - torch.where(alone, by_turn, others),
        "z-scores of rows and of equal states (GiGPO)": centred
        / (total.std(1, keepdim=True) + 1e-4)
        + torch.where(alone, 0.0, (reward - mean) / (spread + 1e-4)),
    }
    found: dict[str, list[tuple[float, ...]]] = {}
    for seed in range(policies):
        theta = tree.policy(seed)
        true = tree.true_gradient(theta).flatten()
        chance = orders * tree.probabilities(theta)[groups].prod(1)
        scores = tree.scores(theta).flatten(2)[torch.arange(n)[:, None], turns][groups]
        for name, weight in weights.items():
            each = torch.einsum("mik,mikp->mp", weight, scores) / G
            expected = chance @ each
            along = float(expected @ true)
            square = float(true @ true)
            variance = float(chance @ (each**2).sum(1)) - float(expected @ expected)
            cosine = along / float(expected.norm() * true.norm())
            found.setdefault(name, []).append(
                (cosine, along / square, variance / square)
            )
    return _summary(found)
