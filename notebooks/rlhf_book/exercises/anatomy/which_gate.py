"""From the curve of weights to the gate that made it."""

import torch
from torch import Generator, Tensor

from ..draws import integer, uniform
from ..exercise import Case, Exercise, Mistake


def my_gate(ratio: Tensor, good: Tensor, bad: Tensor) -> int:
    """[N] ratios, the weights at A = +1 and at A = -1 -> the number of the gate."""
    if torch.allclose(good, torch.ones_like(good)):
        return 0
    if (good == 0).any():
        return 2 if bad[-1] == 0 else 1
    return 3 if torch.isclose(good[-1], good[-2]) else 4


def _blind_to_dual(ratio: Tensor, good: Tensor, bad: Tensor) -> int:
    found = my_gate(ratio, good, bad)
    return 1 if found == 2 else found


def _swapped(ratio: Tensor, good: Tensor, bad: Tensor) -> int:
    found = my_gate(ratio, good, bad)
    return {1: 2, 2: 1}.get(found, found)


def _silent_only(ratio: Tensor, good: Tensor, bad: Tensor) -> int:
    found = my_gate(ratio, good, bad)
    return 0 if found > 2 else found


def _soft_is_capped(ratio: Tensor, good: Tensor, bad: Tensor) -> int:
    return min(my_gate(ratio, good, bad), 3)


def _capped_is_soft(ratio: Tensor, good: Tensor, bad: Tensor) -> int:
    found = my_gate(ratio, good, bad)
    return 4 if found == 3 else found


def _below_one(ratio: Tensor, good: Tensor, bad: Tensor) -> int:
    low = good[ratio < 1]
    if torch.allclose(low, torch.ones_like(low)):
        return 0
    return 1 if torch.allclose(low, ratio[ratio < 1]) else 4


def _open_is_capped(ratio: Tensor, good: Tensor, bad: Tensor) -> int:
    found = my_gate(ratio, good, bad)
    return 3 if found == 1 else found


def _curves(gate: int, ratio: Tensor, low: float, high: float, top: float) -> Case:
    """Weights of one gate; `top` is where a second bound, a cap or a sigmoid acts."""
    zero = torch.zeros_like(ratio)
    if gate == 0:
        good, bad = zero + 1, zero - 1
    elif gate in (1, 2):
        good = torch.where(ratio > 1 + high, zero, ratio)
        bad = torch.where(ratio < 1 - low, zero, -ratio)
        bad = torch.where(ratio > top, zero, bad) if gate == 2 else bad
    elif gate == 3:
        good, bad = ratio.clamp(max=top), -ratio.clamp(max=top)
    else:
        tau = 4 / top  # between 0.7 and 2
        soft = 4 * torch.sigmoid(tau * (ratio - 1)) * torch.sigmoid(tau * (1 - ratio))
        good, bad = soft * ratio, -soft * ratio
    return Case({"ratio": ratio, "good": good, "bad": bad})


def _grid(n: int) -> Tensor:
    """1/8 to 8, the same factor between neighbours."""
    return torch.logspace(-3, 3, n, base=2, dtype=torch.float64)


def _draw(generator: Generator) -> Case:
    low, high, top = (0.1 + 0.4 * uniform(generator, 3)).tolist()
    ratio = _grid(integer(generator, 60, 200))
    return _curves(integer(generator, 0, 5), ratio, low, high, 2 + 8 * (top - 0.1))


WHICH_GATE = Exercise(
    id="anatomy-which-gate",
    title="which gate was it?",
    concept="gate-gallery",
    minutes=10,
    difficulty="core",
    statement=r"""
    Somebody shows you curves of weights, and not the code. `ratio` is `[N]`, from 1/8 to 8 in small steps; `good` and `bad` are
    the weights of a token at these ratios for $A = +1$ and $A = -1$. Write `my_gate(ratio, good, bad)`. It returns
    **0** for no gate and no ratio (REINFORCE), **1** for a clip, **2** for a dual clip (it also drops bad tokens above a second
    bound), **3** for a capped weight (CISPO), **4** for a sigmoid (SAPO). Bounds, caps and temperatures are *not* the book's: bounds lie between 0.1 and 0.5 from 1, caps
    and second bounds between 2 and 5.2, temperatures between 0.7 and 2. Before you write, say which two of the five agree on
    all good tokens, and where you have to look to tell them apart.
    """,
    solution=my_gate,
    cases=(
        _curves(1, _grid(100), 0.2, 0.2, 3.0),
        _curves(2, _grid(100), 0.2, 0.28, 3.0),
        _curves(0, _grid(80), 0.2, 0.2, 3.0),
        _curves(3, _grid(120), 0.2, 0.2, 5.0),
        _curves(4, _grid(120), 0.2, 0.2, 4.0),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _blind_to_dual,
            "A dual clip passes as a clip. On good tokens they are the same: look at bad tokens that became far more "
            "probable.",
        ),
        Mistake(
            _swapped,
            "Clip and dual clip are swapped. Which of them leaves bad tokens with a growing weight at large ratios?",
        ),
        Mistake(
            _silent_only,
            "You look for weights of 0 alone. A gate can also bend the curve and never reach 0.",
        ),
        Mistake(
            _soft_is_capped,
            "A sigmoid passes as a cap. Both never reach 0, but only one of them is flat at large ratios.",
        ),
        Mistake(
            _capped_is_soft,
            "A cap passes as a sigmoid. Which of them falls again at large ratios?",
        ),
        Mistake(
            _below_one,
            "Good tokens below ratio 1 do not tell a clip from a cap. Where do these two part?",
        ),
        Mistake(
            _open_is_capped,
            "A clip passes as a cap. Beyond the bound the advantage pushes to, a clip's weight is 0.",
        ),
    ),
    where="Draw the five pairs of curves side by side, and mark for each pair of gates one ratio and one sign that tell them apart.",
    idea="""
    Make a small table of what each gate does far out: good at ratio 8, bad at ratio 8, zeros anywhere. No gate is
    flat at 1. A clip and a dual clip have zeros for good tokens; a cap is constant at the end; a sigmoid still
    falls.
    """,
    outline="""
    ```python
    if ...:  # flat everywhere
        return 0
    if ...:  # good tokens are silent somewhere
        return 2 if ... else 1  # look at bad tokens that became far likelier
    return 3 if ... else 4  # the last two ratios: constant, or still moving
    ```
    """,
    right="Right. A clip and a dual clip agree on every good token; only bad ones that became far more probable tell.",
)
