"""The KL coefficient at which a flawed completion takes a given share from an honest one."""

import math

from torch import Generator

from ..draws import uniform
from ..exercise import Case, Exercise, Mistake


def my_beta(gain: float, nats: float, share: float) -> float:
    """Proxy gained, nats less likely, share of the flawed one -> the coefficient."""
    return gain / (nats + math.log(share / (1 - share)))


def _even(gain: float, nats: float, share: float) -> float:
    return gain / nats


def _share_as_odds(gain: float, nats: float, share: float) -> float:
    return gain / (nats + math.log(share))


def _sign(gain: float, nats: float, share: float) -> float:
    return gain / (nats - math.log(share / (1 - share)))


def _upside_down(gain: float, nats: float, share: float) -> float:
    return 1 / my_beta(gain, nats, share)


def _probability(gain: float, nats: float, share: float) -> float:
    return gain / (math.exp(nats) + math.log(share / (1 - share)))


def _odds_added(gain: float, nats: float, share: float) -> float:
    return gain / nats + math.log(share / (1 - share))


def _draw(generator: Generator) -> Case:
    gain, nats, share = uniform(generator, 3).tolist()
    return Case(
        {"gain": 0.2 + 3 * gain, "nats": 4 + 10 * nats, "share": 0.05 + 0.9 * share}
    )


THRESHOLD = Exercise(
    id="rlhf-threshold",
    title="where a flaw takes over",
    concept="reward-hacking",
    minutes=8,
    difficulty="core",
    statement=r"""
    A prompt has two completions, an honest one and a flawed one. The reference writes the flawed one less often: its
    log-probability is lower by `nats`. The reward model likes it better: its score is higher by `gain`. Let training
    reach the optimum of $\mathbb E[R_\phi] - \beta\,\mathrm{KL}(\pi\,\|\,\pi_{ref})$. Write `my_beta`: the coefficient
    $\beta$ at which the policy writes the flawed completion with probability `share`. Before you write: what happens to the share when $\beta$ falls?
    """,
    solution=my_beta,
    cases=(
        Case({"gain": 1.0, "nats": 5.0, "share": 0.5}),
        Case({"gain": 0.5, "nats": 8.0, "share": 0.9}),
        Case({"gain": 0.5, "nats": 8.0, "share": 0.1}),
        Case({"gain": 2.5, "nats": 12.0, "share": 0.01}),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _even,
            "This is where both are equally likely. The share that is asked for is another one.",
        ),
        Mistake(
            _share_as_odds,
            "You took the logarithm of the share. What belongs here is the logarithm of the odds.",
        ),
        Mistake(
            _sign,
            "A larger share of the flawed completion needs a smaller coefficient. Check one sign.",
        ),
        Mistake(_upside_down, "This is $1/\\beta$, how hard the proxy is optimised."),
        Mistake(
            _odds_added,
            "The odds of the share stand beside the nats, in the same sum, before you divide.",
        ),
        Mistake(
            _probability,
            "`nats` is a difference of log-probabilities already; it needs no exponential.",
        ),
    ),
    where="Write down the log-odds of the two completions under the optimum of section 5; the constant $Z$ cancels.",
    idea=r"""
    At the optimum $\log \pi = \log \pi_{ref} + R_\phi/\beta - \log Z$. Subtract the two completions: the log-odds
    of the flawed one are −`nats` + `gain`/β. They must equal the log-odds of `share`.
    """,
    outline=r"""
    Write $\log\frac{\text{share}}{1 - \text{share}} = \dots$ with $\beta$ on the right side, and solve for $\beta$:

    ```python
    return gain / (...)
    ```
    """,
    right="Right. A flaw that is worth half a point of proxy and eight nats away is out of reach for a coefficient of 0.1. Is it at 0.05?",
)
