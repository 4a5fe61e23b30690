"""What the router figure draws: how noise in the layers reaches a token's log-prob, with experts and without.

A small stack of feed-forward blocks with a residual path, random weights and no attention, so that every token stands for itself.
In each block the input is read with relative noise: an engine that computes a little differently. In "experts" a router
picks k of E blocks for each token; "dense", the control, has one block of the width of k experts and gets the same
noise. "replay" is "experts" again, where the noisy pass is sent to the experts of the exact pass. The difference of the
two passes' log-probs of one token is the logarithm of its ratio, at zero updates.
"""

import functools
from typing import Any

import torch
from torch import Generator, Tensor
from torch.nn.functional import silu

LAYERS = (1, 4, 12, 24)
EXPERTS = (8, 32)
PICKED = (1, 2, 4)
NOISES = (0.001, 0.003, 0.01, 0.03, 0.1)
SEQUENCES, LENGTH = 32, 16  # tokens of each sequence
HIDDEN, WIDTH, WORDS = 16, 16, 32


def normed(x: Tensor) -> Tensor:
    """[..., d] scaled to a mean square of 1."""
    return x / x.pow(2).mean(-1, keepdim=True).sqrt()


def block(x: Tensor, up: Tensor, gate: Tensor, down: Tensor) -> Tensor:
    """[n, d] through one or all of the feed-forward blocks [..., w, d]: [n, ..., d]."""
    inner = silu(torch.einsum("nd,...wd->n...w", x, gate))
    return torch.einsum(
        "n...w,...dw->n...d", inner * torch.einsum("nd,...wd->n...w", x, up), down
    )


class Stack:
    """The weights of one stack; the same for every noise.

    Args:
        layers: blocks, one behind the other.
        experts: in each block; 1 is the dense control.
        picked: how many a token is sent to.
        width: of an expert.
        seed: of the weights.

    Example:
        >>> Stack(2, 8, 2, 16, seed=0).read(torch.randn(5, HIDDEN))[0].shape
        torch.Size([5, 32])
    """

    def __init__(self, layers: int, experts: int, picked: int, width: int, seed: int):
        generator = Generator().manual_seed(seed)

        def weights(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator) / shape[-1] ** 0.5

        self.picked = picked
        self.router = [weights(experts, HIDDEN) for _ in range(layers)]
        self.blocks = [
            (
                weights(experts, width, HIDDEN),
                weights(experts, width, HIDDEN),
                weights(experts, HIDDEN, width),
            )
            for _ in range(layers)
        ]
        self.head = 2 * weights(WORDS, HIDDEN)

    def read(
        self,
        x: Tensor,
        noise: Tensor | None = None,
        replay: list[Tensor] | None = None,
    ) -> tuple[Tensor, list[Tensor]]:
        """[n, d] inputs -> log-probs [n, words], and the picked experts [n, k] of each layer.

        Args:
            x: what enters the first block.
            noise: [layers, n, d], relative to what each block reads.
            replay: experts to use in place of the router's choice.
        """
        picked = []
        for layer, (router, (up, gate, down)) in enumerate(
            zip(self.router, self.blocks, strict=True)
        ):
            h = normed(x)
            if noise is not None:
                h = h * (1 + noise[layer])
            p = (h @ router.T).softmax(-1)  # [n, E]
            chosen = p.topk(self.picked, -1)[1] if replay is None else replay[layer]
            picked.append(chosen)
            weight = p.gather(-1, chosen)
            weight = weight / weight.sum(-1, keepdim=True)  # [n, k]
            share = torch.zeros_like(p).scatter(-1, chosen, weight)  # [n, E]
            x = x + torch.einsum("ne,ned->nd", share, block(h, up, gate, down))
        return (normed(x) @ self.head.T).log_softmax(-1), picked


def differ(before: list[Tensor], after: list[Tensor]) -> Tensor:
    """[layers, n] whether a token has another set of experts."""
    return torch.stack(
        [
            (a.sort(-1)[0] != b.sort(-1)[0]).any(-1)
            for a, b in zip(before, after, strict=True)
        ]
    )


def setting(layers: int, experts: int, picked: int) -> list[dict[str, float]]:
    """What every noise does to one stack and to its dense control.

    Returns:
        One entry a noise, with `flips` (share of tokens with a changed set in one layer, mean of the layers), `any` (in at
        least one layer), `independent` (that share if layers were independent), and the standard deviation of the
        log-ratio of a token and of a sequence's mean, with `experts`, with `replay`, and `dense`.

    Example:
        >>> quiet, *_, loud = setting(4, 8, 2)
        >>> quiet["any"] < loud["any"] and quiet["dense"] < loud["dense"]
        True
    """
    generator = Generator().manual_seed(100 + layers)
    count = SEQUENCES * LENGTH
    x = torch.randn(count, HIDDEN, generator=generator)
    bare = torch.randn(layers, count, HIDDEN, generator=generator)
    words = torch.randint(WORDS, (count, 1), generator=generator)
    sparse = Stack(layers, experts, picked, WIDTH, seed=layers)
    dense = Stack(layers, 1, 1, picked * WIDTH, seed=layers)
    exact, chosen = sparse.read(x)
    exact_dense, _ = dense.read(x)
    found = []
    for noise in NOISES:
        now, other = sparse.read(x, noise * bare)
        kept, _ = sparse.read(x, noise * bare, chosen)
        now_dense, _ = dense.read(x, noise * bare)
        by_layer = differ(chosen, other).float()  # [layers, n]
        line = {
            "flips": by_layer.mean().item(),
            "any": by_layer.max(0)[0].mean().item(),
            "independent": 1 - (1 - by_layer.mean(1)).prod().item(),
        }
        for name, (a, b) in {
            "experts": (now, exact),
            "replay": (kept, exact),
            "dense": (now_dense, exact_dense),
        }.items():
            log_w = (a - b).gather(-1, words).view(SEQUENCES, LENGTH)
            line[name] = log_w.std().item()
            line[f"{name}_mean"] = log_w.mean(-1).std().item()
        found.append({key: float(f"{value:.4g}") for key, value in line.items()})
    return found


@functools.cache
def routing() -> dict[str, Any]:
    """All settings of the figure, by "layers/experts/picked".

    Example:
        >>> sorted(routing()["data"])
        ['experts', 'layers', 'noises', 'picked', 'table']
    """
    with torch.no_grad():
        table = {
            f"{layers}/{experts}/{picked}": setting(layers, experts, picked)
            for layers in LAYERS
            for experts in EXPERTS
            for picked in PICKED
        }
    choices = {"layers": LAYERS, "experts": EXPERTS, "picked": PICKED, "noises": NOISES}
    return {"data": {name: list(x) for name, x in choices.items()} | {"table": table}}
