"""The weight of a token, from a paper's description in words."""

import torch
from torch import Generator, Tensor

from ..draws import integer
from ..exercise import Case, Exercise, Mistake


def my_weight(ratio: Tensor, A: Tensor) -> Tensor:
    """[N] ratios, [N] advantages -> [N] weights on grad log pi."""
    return torch.where(A > 0, A, ratio.clamp(max=1.0) * A)


def _both_signs(ratio: Tensor, A: Tensor) -> Tensor:
    return ratio.clamp(max=1.0) * A


def _swapped(ratio: Tensor, A: Tensor) -> Tensor:
    return torch.where(A > 0, ratio.clamp(max=1.0) * A, A)


def _clip_drops(ratio: Tensor, A: Tensor) -> Tensor:
    return torch.where(A > 0, A, torch.where(ratio > 1, 0.0, ratio * A))


def _no_cut(ratio: Tensor, A: Tensor) -> Tensor:
    return torch.where(A > 0, A, ratio * A)


def _cut_from_below(ratio: Tensor, A: Tensor) -> Tensor:
    return torch.where(A > 0, A, ratio.clamp(min=1.0) * A)


def _ratio_on_good(ratio: Tensor, A: Tensor) -> Tensor:
    return torch.where(A > 0, ratio * A, ratio.clamp(max=1.0) * A)


def _only_the_factor(ratio: Tensor, A: Tensor) -> Tensor:
    return torch.where(A > 0, torch.ones_like(A), ratio.clamp(max=1.0))


def _no_sign(ratio: Tensor, A: Tensor) -> Tensor:
    return my_weight(ratio, A).abs()


def _draw(generator: Generator) -> Case:
    n = integer(generator, 2, 9)
    ratio = torch.randn(n, generator=generator, dtype=torch.float64).exp()
    A = torch.randn(n, generator=generator, dtype=torch.float64)
    return Case({"ratio": ratio, "A": A})


DESCRIBED = Exercise(
    id="anatomy-described",
    title="a row from a description",
    concept="gate-gallery",
    minutes=10,
    difficulty="core",
    statement=r"""
    A paper (Le Roux et al. 2025, *Tapered off-policy REINFORCE*, arXiv 2503.14286) treats the two signs differently.
    What is good is imitated as in supervised fine-tuning, with no regard to how far the policy has moved. For what is bad
    the gradient of the log-probability is multiplied by the importance weight, cut to the interval from 0 to 1; no gradient
    flows through that factor. (The paper takes the ratio of the whole completion; here a completion has one token.)

    Predict first: what is the weight at $w = 4$ for both signs, and is any token silent? Then write `my_weight(ratio, A)`, the
    weight of each token, `[N]`. When it passes, write the *gate* as a function of ratio and advantage whose weight this is, build a
    row with `replace(ALGORITHMS["grpo"], kl=(), gate=...)`, and compare `library_weight` of your row with your prediction.
    """,
    solution=my_weight,
    cases=(
        Case(
            {
                "ratio": torch.tensor([0.25, 1.0, 4.0, 0.25, 1.0, 4.0]),
                "A": torch.tensor([1.0, 1.0, 1.0, -1.0, -1.0, -1.0]),
            }
        ),
        Case(
            {
                "ratio": torch.tensor([0.5, 0.5, 3.0]),
                "A": torch.tensor([2.0, -2.0, -0.5]),
            }
        ),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _both_signs,
            "You cut the ratio for both signs. The description gives good tokens no ratio at all.",
        ),
        Mistake(
            _swapped,
            "The two signs are swapped: which of them is imitated as it is?",
        ),
        Mistake(
            _clip_drops,
            "Above 1 you drop the token, as a clip of the objective does. Here the factor is cut, and it is detached: "
            "what is left of the gradient?",
        ),
        Mistake(
            _no_cut,
            "Nothing stops the weight of a bad token from growing. The description cuts it.",
        ),
        Mistake(
            _cut_from_below,
            "You cut small ratios and keep the large ones: it is the other way round.",
        ),
        Mistake(
            _ratio_on_good,
            "Good tokens have no importance weight here, wherever the policy has gone.",
        ),
        Mistake(
            _only_the_factor,
            "This is what multiplies the advantage. The weight contains the advantage, too.",
        ),
        Mistake(
            _no_sign,
            "A bad token has a negative weight: it is made less probable.",
        ),
    ),
    where="Write down the step for one good token and for one bad one as the description says it, factor times A times grad log pi.",
    idea="""
    A good token's factor is 1 whatever the ratio is; a bad one's is the ratio, held in $[0, 1]$. A ratio is never
    negative, so one bound is enough. The weight is factor times $A$.
    """,
    outline="""
    ```python
    return torch.where(A > 0, ..., ...)
    ```
    """,
    right=(
        "Right. One gate with this weight is A log w for good tokens and the detached factor times A log w for bad "
        "ones; good tokens are never held back."
    ),
)
