"""Find the bug: replays of a router's choice, each as it was once written."""

from collections.abc import Callable

import torch
from torch import Tensor

from ..bug import Bug


def suspect_stored_layer(
    logits: Tensor, outputs: Tensor, stored: tuple[Tensor, Tensor]
) -> Tensor:
    """Logits [n, E], experts' outputs [n, E, d], stored picks and weights: [n, d]."""
    picks, weights = stored  # [n, K] each, of the old policy
    chosen = outputs.gather(1, picks[..., None].expand(-1, -1, outputs.shape[-1]))
    return (weights[..., None] * chosen).sum(1)


def ratio_and_gradient(layer: Callable[..., Tensor]) -> None:
    """At zero updates the layer is the old one; what reaches the router's logits?"""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 5, generator=generator, requires_grad=True)
    outputs = torch.randn(6, 5, 4, generator=generator, requires_grad=True)
    top, picks = logits.detach().topk(2, -1)
    stored = picks, top.softmax(-1)
    y = layer(logits, outputs, stored)
    old = layer(logits.detach(), outputs.detach(), stored)
    y.pow(2).sum().backward()
    for name, leaf in (("router's logits", logits), ("experts", outputs)):
        size = 0.0 if leaf.grad is None else leaf.grad.norm().item()
        print(f"gradient of the {name}: {size:.3f}")
    print(f"difference at zero updates: {(y - old).abs().max().item():.3f}")


def the_router_is_trained(layer: Callable[..., Tensor]) -> None:
    """Today's logits weigh the stored experts: the router gets a gradient, and moved logits change the output."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 5, generator=generator, requires_grad=True)
    outputs = torch.randn(6, 5, 4, generator=generator)
    top, picks = logits.detach().topk(2, -1)
    stored = picks, top.softmax(-1)
    y = layer(logits, outputs, stored)
    assert y.requires_grad, "the output does not depend on the router's logits of today"
    y.pow(2).sum().backward()
    assert logits.grad is not None and logits.grad.norm() > 1e-3, (
        "no gradient reaches the router's logits"
    )
    with torch.no_grad():
        picks, weights = stored
        chosen = outputs.gather(1, picks[..., None].expand(-1, -1, 4))
        expected = (weights[..., None] * chosen).sum(1)
        assert torch.allclose(y, expected), "at zero updates it is not the old layer"
        shifted = layer(logits * 3, outputs, stored)
        by_hand = ((logits * 3).gather(-1, picks).softmax(-1)[..., None] * chosen).sum(
            1
        )
        assert torch.allclose(shifted, by_hand), (
            "with other logits the stored experts have to be weighed anew"
        )


def mended_stored_layer(
    logits: Tensor, outputs: Tensor, stored: tuple[Tensor, Tensor]
) -> Tensor:
    """Logits [n, E], experts' outputs [n, E, d], stored picks and weights: [n, d]."""
    picks, _ = stored  # [n, K], of the old policy
    weights = logits.gather(-1, picks).softmax(-1)  # of today's router
    chosen = outputs.gather(1, picks[..., None].expand(-1, -1, outputs.shape[-1]))
    return (weights[..., None] * chosen).sum(1)


STORED = Bug(
    id="stored-weights",
    title="a router that learns nothing",
    concept="routing-replay",
    minutes=5,
    statement="""
    Routing replay was switched on, and training became calm: all ratios of the first update are exactly 1. Months later
    somebody compares two checkpoints, and the routers' weights are the same to the last bit. The cell prints what reaches the
    router. What was stored that should not have been used?
    """,
    wrong=suspect_stored_layer,
    symptom=ratio_and_gradient,
    reveals=the_router_is_trained,
    mended=mended_stored_layer,
    idea="""
    Ask autograd for the gradient of the output in today's logits. Which of the two stored tensors took their place?
    """,
    outline="""
    ```python
    picks, _ = stored  # the choice is replayed, and nothing else
    weights = ...  # [n, K], from today's logits at these picks; they sum to 1
    ```
    """,
    moral="""
    The replay used the stored *weights* as well as the stored choice. Then the router's logits occur nowhere in the forward
    pass, and no gradient reaches them. Replay only indices, and compute the softmax over them from today's logits. The habit:
    after the first step look for parameters whose gradient is missing or exactly 0.
    """,
)

BUGS = (STORED,)
