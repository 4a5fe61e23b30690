"""How many routers have to disagree, if so many tokens are touched?"""

import torch
from torch import Generator, Tensor

from ..draws import integer, uniform
from ..exercise import Case, Exercise, Mistake


def my_rate_of_a_layer(touched: Tensor, layers: int) -> Tensor:
    """[N] shares of tokens with a flip somewhere -> [N]: the rate of one layer."""
    return 1 - (1 - touched) ** (1 / layers)


def _divided(touched: Tensor, layers: int) -> Tensor:
    return touched / layers


def _root_of_touched(touched: Tensor, layers: int) -> Tensor:
    return touched ** (1 / layers)


def _kept(touched: Tensor, layers: int) -> Tensor:
    return (1 - touched) ** (1 / layers)


def _forward(touched: Tensor, layers: int) -> Tensor:
    return 1 - (1 - touched) ** layers


def _rare(touched: Tensor, layers: int) -> Tensor:
    return -torch.log(1 - touched) / layers


def _one_minus_root(touched: Tensor, layers: int) -> Tensor:
    return 1 - touched ** (1 / layers)


def _draw(generator: Generator) -> Case:
    return Case(
        {
            "touched": 0.05 + 0.9 * uniform(generator, 4),
            "layers": integer(generator, 2, 60),
        }
    )


LAYERS = Exercise(
    id="moe-layers",
    title="from tokens to routers",
    concept="moe",
    minutes=10,
    difficulty="core",
    statement=r"""
    Suppose that flips in different layers are independent and equally likely. A share `touched` of the tokens has a flip in
    at least one of `layers` layers. Write `my_rate_of_a_layer(touched, layers)`: how likely is a flip in one layer? `touched`
    is `[N]`, so is the result.

    Predict first, then ask for 0.94 and 48, the tokens and layers of arXiv 2510.11370. The paper reports about 0.10
    for one layer. What does the difference say about independence?
    """,
    solution=my_rate_of_a_layer,
    cases=(
        Case({"touched": torch.tensor([0.5, 0.94], dtype=torch.float64), "layers": 2}),
        Case({"touched": torch.tensor([0.94], dtype=torch.float64), "layers": 48}),
        Case({"touched": torch.tensor([0.3, 0.0], dtype=torch.float64), "layers": 1}),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _divided,
            "Divided by the layers: a token with two flips would count twice. What is the chance of none at all?",
        ),
        Mistake(
            _root_of_touched,
            "A root of the wrong share. Which event is a product over layers: some flip, or no flip?",
        ),
        Mistake(
            _kept,
            "That is the chance that one layer keeps its experts. Asked is the flip.",
        ),
        Mistake(
            _forward,
            "That goes from one layer to all of them. Here the share of all layers is given.",
        ),
        Mistake(
            _one_minus_root,
            "You took the root of the tokens that are touched. The product is over layers that keep their experts.",
        ),
        Mistake(
            _rare,
            "Close where flips are rare: the logarithm of 1 - p is not -p elsewhere.",
        ),
    ),
    where="A token without a flip has none in every single layer.",
    idea=r"""
    With a rate $f$ for one layer, a token escapes a flip in all layers with the chance $(1-f)^L$, if layers are
    independent. That chance is $1 - \text{touched}$. Solve for $f$.
    """,
    outline="""
    ```python
    escapes = ...  # [N], no flip anywhere
    return 1 - ...  # the chance of one layer, out of that of all
    ```
    """,
    right="Right. 0.94 over 48 layers needs only 0.057 in each. With 0.10, independence gives 0.994: flips come together.",
)
