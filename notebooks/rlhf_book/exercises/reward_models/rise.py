"""How often a chosen completion becomes likelier at DPO's optimum."""

import torch
from torch import Generator, Tensor

from ..draws import integer
from ..exercise import Case, Exercise, Mistake


def my_share_that_rises(reference: Tensor, rewards: Tensor, beta: float) -> Tensor:
    """[V] probabilities, [V] rewards -> share of chosen completions that rise."""
    threshold = beta * (reference.log() + rewards / beta).logsumexp(0)
    wins = (rewards[:, None] - rewards[None, :]).sigmoid()
    chosen = 2 * reference * (wins @ reference)  # [V], sums to 1
    return (chosen * (rewards > threshold)).sum()


def _share(weights: Tensor, rewards: Tensor, threshold: Tensor) -> Tensor:
    return (weights * (rewards > threshold)).sum()


def _threshold(reference: Tensor, rewards: Tensor, beta: float) -> Tensor:
    return beta * (reference.log() + rewards / beta).logsumexp(0)


def _chosen(reference: Tensor, rewards: Tensor) -> Tensor:
    return 2 * reference * ((rewards[:, None] - rewards[None, :]).sigmoid() @ reference)


def _all_samples(reference: Tensor, rewards: Tensor, beta: float) -> Tensor:
    return _share(reference, rewards, _threshold(reference, rewards, beta))


def _rejected(reference: Tensor, rewards: Tensor, beta: float) -> Tensor:
    weights = 2 * reference - _chosen(reference, rewards)
    return _share(weights, rewards, _threshold(reference, rewards, beta))


def _above_the_mean(reference: Tensor, rewards: Tensor, beta: float) -> Tensor:
    return _share(_chosen(reference, rewards), rewards, (reference * rewards).sum())


def _beta_forgotten(reference: Tensor, rewards: Tensor, beta: float) -> Tensor:
    return _share(
        _chosen(reference, rewards), rewards, _threshold(reference, rewards, 1.0)
    )


def _plain_log_z(reference: Tensor, rewards: Tensor, beta: float) -> Tensor:
    log_z = (reference.log() + rewards / beta).logsumexp(0)
    return _share(_chosen(reference, rewards), rewards, log_z)


def _not_doubled(reference: Tensor, rewards: Tensor, beta: float) -> Tensor:
    return my_share_that_rises(reference, rewards, beta) / 2


def _counted(reference: Tensor, rewards: Tensor, beta: float) -> Tensor:
    rising = rewards > _threshold(reference, rewards, beta)
    return rising.double().mean()


def _draw(generator: Generator) -> Case:
    n = integer(generator, 2, 7)
    logits, rewards = torch.randn(2, n, generator=generator, dtype=torch.float64)
    beta = integer(generator, 1, 10) / 5
    return Case({"reference": logits.softmax(0), "rewards": 2 * rewards, "beta": beta})


def _case(reference: list[float], rewards: list[float], beta: float) -> Case:
    ref, r = (torch.tensor(x, dtype=torch.float64) for x in (reference, rewards))
    return Case({"reference": ref, "rewards": r, "beta": beta})


RISE = Exercise(
    id="rm-rise",
    title="how many chosen completions rise?",
    concept="dpo",
    minutes=12,
    difficulty="core",
    statement=r"""
    Both completions of a pair are drawn from the `reference` `[V]` (they may be the same one; then a coin decides), and Bradley-Terry with
    `rewards` `[V]` says which is chosen. The policy ends at $\pi^*$. Write `my_share_that_rises(reference, rewards, beta)`: the probability that the
    *chosen* completion of a pair is likelier under $\pi^*$ than under the reference. Predict first: as $\beta$ goes to 0, where does it go?
    """,
    solution=my_share_that_rises,
    cases=(
        _case([0.6, 0.3, 0.1], [0.0, 1.0, 3.0], 0.5),
        _case([0.5, 0.5], [0.0, 2.0], 1.0),
        _case([0.2, 0.3, 0.4, 0.1], [1.0, 0.8, 0.0, 2.0], 2.0),
        _case([0.4, 0.3, 0.2, 0.1], [0.0, 1.0, 2.0, 2.5], 0.2),
        _case([0.4, 0.3, 0.2, 0.1], [3.0, 4.0, 5.0, 5.5], 0.5),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _all_samples,
            "This is the share among all samples. Chosen completions are better than samples.",
        ),
        Mistake(_rejected, "This is the share of the rejected ones."),
        Mistake(
            _above_the_mean,
            "The threshold is no mean reward. Look at the sign of the log-ratio of the optimum.",
        ),
        Mistake(_beta_forgotten, "Your threshold does not depend on beta."),
        Mistake(_plain_log_z, "You compare a reward with a number without its unit."),
        Mistake(
            _not_doubled,
            "A pair has two places: the chosen completion may stand in either.",
        ),
        Mistake(
            _counted, "You count completions. They are not equally likely to be chosen."
        ),
    ),
    where="When is log(pi* / ref) above 0? And with which probability is completion i the chosen one of a pair?",
    idea=r"""
    $\log(\pi^*/\pi_{ref})$ of completion $i$ is $r_i/\beta - \log Z$: so it rises if its reward is above $\beta
    \log Z$. It is the chosen one if it came first and won, or came second and won: twice $\pi_{ref}(i)$ times its
    mean chance of winning.
    """,
    outline="""
    ```python
    threshold = beta * ...  # the logarithm of Z: a logsumexp over the tilted reference
    wins = ...  # [V, V], i against j
    chosen = 2 * ... * ...  # [V], sums to 1
    return (chosen * ...).sum()
    ```
    """,
    right=(
        "Right. As beta goes to 0 the threshold goes to the best reward: only the best completion rises, and nearly all chosen ones "
        "fall, however good they are. A falling chosen log-prob is then what learning looks like."
    ),
)
