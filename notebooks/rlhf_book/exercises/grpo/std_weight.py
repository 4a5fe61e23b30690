"""How the division by the standard deviation reweights prompts."""

import math

from torch import Generator

from ..draws import integer, uniform
from ..exercise import Case, Exercise, Mistake


def my_weight(p: float, group_size: int) -> float:
    """c(G, p), the factor before grad p in GRPO's expected step; 0 < p < 1."""
    expected_root = 0.0
    for k in range(
        1, group_size
    ):  # the two constant groups, k = 0 and k = G, add nothing
        chance = math.comb(group_size, k) * p**k * (1 - p) ** (group_size - k)
        expected_root += chance * math.sqrt(k * (group_size - k))
    shrink = math.sqrt(
        (group_size - 1) / group_size
    )  # sample instead of population standard deviation
    return shrink * expected_root / (group_size * p * (1 - p))


def _population(p: float, group_size: int) -> float:
    return my_weight(p, group_size) * math.sqrt(group_size / (group_size - 1))


def _in_the_limit(p: float, group_size: int) -> float:
    return 1 / math.sqrt(p * (1 - p))


def _root_of_the_mean(p: float, group_size: int) -> float:
    mean = group_size * (group_size - 1) * p * (1 - p)  # of k (G - k)
    return math.sqrt((group_size - 1) / group_size * mean) / (group_size * p * (1 - p))


def _sequences_uncounted(p: float, group_size: int) -> float:
    ways = (
        p**k * (1 - p) ** (group_size - k) * math.sqrt(k * (group_size - k))
        for k in range(group_size + 1)
    )
    return (
        math.sqrt((group_size - 1) / group_size)
        * sum(ways)
        / (group_size * p * (1 - p))
    )


def _alive_groups_only(p: float, group_size: int) -> float:
    return my_weight(p, group_size) / (1 - p**group_size - (1 - p) ** group_size)


def _not_averaged(p: float, group_size: int) -> float:
    return group_size * my_weight(p, group_size)


def _against_p_itself(p: float, group_size: int) -> float:
    return my_weight(p, group_size) * p * (1 - p)


def _centred(p: float, group_size: int) -> float:
    return (group_size - 1) / group_size


def _upside_down(p: float, group_size: int) -> float:
    return 1 / my_weight(p, group_size)


def _draw(generator: Generator) -> Case:
    return Case(
        {
            "p": 0.01 + 0.98 * float(uniform(generator, 1)),
            "group_size": integer(generator, 2, 33),
        }
    )


STD_WEIGHT = Exercise(
    id="grpo-std-weight",
    title="what the spread does to a prompt",
    concept="std-bias",
    minutes=15,
    difficulty="stretch",
    statement=r"""
    Rewards are 0 or 1, and a completion is right with probability $p$. GRPO's expected step on such a prompt, at
    $\pi_\theta = \pi_\text{old}$, is a number times $\nabla p$:

    $$\mathbb E\Big[\frac1G \sum_i A_i \nabla \log \pi(o_i)\Big] = c(G, p)\, \nabla p .$$

    Derive it, then write `my_weight(p, group_size)`, which returns $c(G, p)$ for $0 < p < 1$, with the *sample*
    standard deviation and without epsilon. A group of equals has advantage 0. Start from one group with $k$ right
    completions, and ask what a right one and a wrong one push on average. Then try $G = 2$ and $G = 3$ at several $p$.
    """,
    solution=my_weight,
    cases=(
        Case({"p": 0.2, "group_size": 4}),
        Case({"p": 0.5, "group_size": 2}),
        Case({"p": 0.5, "group_size": 8}),
        Case({"p": 0.98, "group_size": 16}),
        Case({"p": 0.3, "group_size": 3}),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _population,
            "Right for the population's standard deviation; the sample's is a little larger.",
        ),
        Mistake(
            _in_the_limit,
            "This is the limit of an infinite group. At finite G a rare success is often not in the group at all.",
        ),
        Mistake(
            _root_of_the_mean,
            "The root of an average is not the average of the roots: each number of right completions has its own spread.",
        ),
        Mistake(
            _sequences_uncounted,
            "In how many orders can k of G completions be right? Each order is a group of its own.",
        ),
        Mistake(
            _alive_groups_only,
            "You average over the groups that have a signal. The dead ones are drawn too, and add zero.",
        ),
        Mistake(_not_averaged, "You add up the group. The step is its mean."),
        Mistake(
            _against_p_itself,
            "One factor is missing: a right completion's average score is more than the gradient of p.",
        ),
        Mistake(
            _centred,
            "This is the factor without the division by the spread, for rewards minus their mean.",
        ),
        Mistake(
            _upside_down,
            "The weight is upside down: are rare successes louder or quieter than common ones?",
        ),
    ),
    where="With k of G right, what are the two z-scores, and what is E[grad log pi] given a right completion?",
    idea=r"""
    With $k$ of $G$ right the scores are $\sqrt{\frac{G-1}{G}}\sqrt{\frac{G-k}{k}}$ and minus
    $\sqrt{\frac{G-1}{G}}\sqrt{\frac{k}{G-k}}$. A right completion pushes $\nabla p / p$ on average, a wrong one
    $-\nabla p / (1-p)$. Multiply by how many there are of each, and add: both parts contain $\sqrt{k(G-k)}$.
    """,
    outline="""
    ```python
    expected_root = 0.0
    for k in range(1, group_size):  # constant groups give nothing
        chance = ...  # that exactly k of G are right
        expected_root += chance * ...
    shrink = ...
    return shrink * expected_root / (...)  # 1/p + 1/(1 - p) is one fraction
    ```
    """,
    right="Right. For pairs and triples it does not depend on p at all: the famous reweighting needs larger groups.",
)
