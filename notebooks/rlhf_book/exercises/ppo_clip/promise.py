"""What the surrogate promises beyond what the return delivers, for two tokens."""

from torch import Generator

from ..draws import uniform
from ..exercise import Case, Exercise, Mistake


def my_excess(p_old: float, q_old: float, p_new: float, q_new: float) -> float:
    """P(a) and P(b after a), before and after -> promised minus true gain."""
    return -(p_new - p_old) * (q_new - q_old)


def _true_gain(p_old: float, q_old: float, p_new: float, q_new: float) -> float:
    return p_new * q_new - p_old * q_old


def _promised(p_old: float, q_old: float, p_new: float, q_new: float) -> float:
    return (p_new - p_old) * q_old + p_old * (q_new - q_old)


def _other_way(p_old: float, q_old: float, p_new: float, q_new: float) -> float:
    return (p_new - p_old) * (q_new - q_old)


def _raw_rewards(p_old: float, q_old: float, p_new: float, q_new: float) -> float:
    both = p_old * q_old  # both tokens get the reward, and not the advantage
    return both * (p_new / p_old + q_new / q_old) - p_new * q_new


def _levels(p_old: float, q_old: float, p_new: float, q_new: float) -> float:
    return _promised(p_old, q_old, p_new, q_new) - p_new * q_new


def _product(p_old: float, q_old: float, p_new: float, q_new: float) -> float:
    return p_old * q_old * (p_new / p_old * q_new / q_old) - p_new * q_new


def _one_baseline(p_old: float, q_old: float, p_new: float, q_new: float) -> float:
    """The completion's reward minus V(start) on every token, of all three completions."""
    value, r, s = p_old * q_old, p_new / p_old, q_new / q_old
    not_a, not_b = (1 - p_new) / (1 - p_old), (1 - q_new) / (1 - q_old)
    promised = (
        p_old * q_old * (r + s) * (1 - value)
        - p_old * (1 - q_old) * (r + not_b) * value
    )
    promised -= (1 - p_old) * not_a * value
    return promised - _true_gain(p_old, q_old, p_new, q_new)


def _relative(p_old: float, q_old: float, p_new: float, q_new: float) -> float:
    return my_excess(p_old, q_old, p_new, q_new) / (p_old * q_old)


def _second_only(p_old: float, q_old: float, p_new: float, q_new: float) -> float:
    return p_old * (q_new - q_old) - _true_gain(p_old, q_old, p_new, q_new)


def _case(p_old: float, q_old: float, p_new: float, q_new: float) -> Case:
    return Case({"p_old": p_old, "q_old": q_old, "p_new": p_new, "q_new": q_new})


def _draw(generator: Generator) -> Case:
    return _case(*(0.05 + 0.9 * uniform(generator, 4)).tolist())


PROMISE = Exercise(
    id="ppo-clip-promise",
    title="a promise that is not kept",
    concept="clipped-surrogate",
    minutes=15,
    difficulty="stretch",
    statement=r"""
    A completion is two tokens: first `a` (probability $p$) or something else, which ends it; after `a` comes `b`
    (probability $q$) or something else. Only `ab` is right: reward 1, otherwise 0. The policy moves from
    $(p_{\text{old}}, q_{\text{old}})$ to $(p_{\text{new}}, q_{\text{new}})$. The surrogate, with the exact advantages
    $A_t = Q - V$ of the *old* policy and no clip,

    $$\mathbb E_{\text{old}} \Big[ \sum_t (r_t - 1)\, A_t \Big],$$

    promises a gain. Write `my_excess(p_old, q_old, p_new, q_new)`: the promised gain minus the true gain of the
    expected reward. Work it out on paper: few terms survive. In which direction do you have to move for the promise to
    be too good?
    """,
    solution=my_excess,
    cases=(
        _case(0.5, 0.5, 0.59, 0.42),
        _case(0.5, 0.5, 0.6, 0.6),
        _case(0.2, 0.9, 0.2, 0.5),
        _case(0.3, 0.4, 0.7, 0.1),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _true_gain,
            "This is the true gain of the return. Subtract it from what the surrogate promises.",
        ),
        Mistake(
            _promised, "This is what the surrogate promises. How much of it is true?"
        ),
        Mistake(
            _other_way,
            "The sign: promised minus true, so a promise that is too good counts as positive.",
        ),
        Mistake(
            _raw_rewards,
            "You took the reward of the whole completion for the advantage of each token. A token's advantage is Q minus "
            "V, under the old policy, where it stands.",
        ),
        Mistake(
            _one_baseline,
            "You subtract the value of the empty prefix from both tokens. After `a` the value is another one.",
        ),
        Mistake(
            _levels,
            "You compare a gain with a level: the true gain is the new return minus the old one.",
        ),
        Mistake(
            _product,
            "You multiplied the two ratios. That is the exact weight, and promises nothing false; the surrogate adds "
            "up one term a token.",
        ),
        Mistake(
            _relative,
            "You divide by the old return. The exercise asks for the difference itself.",
        ),
        Mistake(
            _second_only,
            "The first token has an advantage too: choosing `a` opens the way to `b`.",
        ),
    ),
    where="Write down Q and V of both prefixes under the old policy: there are only two of each that matter.",
    idea=r"""
    Under the old policy $V(\text{start}) = p_{\text{old}} q_{\text{old}}$, $Q(a) = q_{\text{old}}$ and $V(a) =
    q_{\text{old}}$. The mean of $(r_1 - 1) A_1$ is then $(p_{\text{new}} - p_{\text{old}})\, q_{\text{old}}$. Do
    the second token in the same way: it is reached with the *old* probability of `a`.
    """,
    outline=r"""
    Promised: $\Delta p \cdot q_{\text{old}} + p_{\text{old}} \cdot \Delta q$. True: $p_{\text{new}}
    q_{\text{new}} - p_{\text{old}} q_{\text{old}}$, and with $p_{\text{new}} = p_{\text{old}} + \Delta p$ it has
    three terms. Subtract: which one term is left, and with which sign?
    """,
    right="Right: one product of two moves. Each may stay inside the clip range, and the promise can still be too good.",
)
