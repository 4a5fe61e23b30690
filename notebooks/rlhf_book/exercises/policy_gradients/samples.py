"""How many samples a baseline is worth."""

import torch
from torch import Generator, Tensor

from ..draws import integer
from ..exercise import Case, Exercise, Mistake


def my_samples(
    probs: Tensor, rewards: Tensor, scores: Tensor, baseline: float
) -> Tensor:
    """[N] chances and rewards, [N, D] scores -> scalar: samples without for one."""
    noise = []
    for b in (0.0, baseline):
        estimates = (rewards - b)[:, None] * scores  # [N, D]
        mean = (probs[:, None] * estimates).sum(0)  # [D]
        noise.append((probs * ((estimates - mean) ** 2).sum(1)).sum())
    return noise[0] / noise[1]


def _variance(
    probs: Tensor, rewards: Tensor, scores: Tensor, b: float, centre: bool = True
) -> Tensor:
    estimates = (rewards - b)[:, None] * scores
    mean = (probs[:, None] * estimates).sum(0) if centre else 0.0
    return (probs * ((estimates - mean) ** 2).sum(1)).sum()


def _inverse(probs: Tensor, rewards: Tensor, scores: Tensor, baseline: float) -> Tensor:
    return 1 / my_samples(probs, rewards, scores, baseline)


def _root(probs: Tensor, rewards: Tensor, scores: Tensor, baseline: float) -> Tensor:
    return my_samples(probs, rewards, scores, baseline).sqrt()


def _squared(probs: Tensor, rewards: Tensor, scores: Tensor, baseline: float) -> Tensor:
    return my_samples(probs, rewards, scores, baseline) ** 2


def _not_centred(
    probs: Tensor, rewards: Tensor, scores: Tensor, baseline: float
) -> Tensor:
    free, with_it = (
        _variance(probs, rewards, scores, b, centre=False) for b in (0.0, baseline)
    )
    return free / with_it


def _listed_once(
    probs: Tensor, rewards: Tensor, scores: Tensor, baseline: float
) -> Tensor:
    even = torch.full_like(probs, 1 / len(probs))
    return my_samples(even, rewards, scores, baseline)


def _of_the_reward(
    probs: Tensor, rewards: Tensor, scores: Tensor, baseline: float
) -> Tensor:
    return (probs * rewards**2).sum() / (probs * (rewards - baseline) ** 2).sum()


def _difference(
    probs: Tensor, rewards: Tensor, scores: Tensor, baseline: float
) -> Tensor:
    free, with_it = (_variance(probs, rewards, scores, b) for b in (0.0, baseline))
    return free - with_it


def _draw(generator: Generator) -> Case:
    N, D = integer(generator, 3, 7), integer(generator, 2, 5)
    probs = torch.randn(N, generator=generator, dtype=torch.float64).softmax(0)
    scores = torch.randn(N, D, generator=generator, dtype=torch.float64)
    rewards = torch.randn(N, generator=generator, dtype=torch.float64) + 1
    b = torch.randn((), generator=generator).item() + 1
    return Case(
        {
            "probs": probs,
            "rewards": rewards,
            "scores": scores - probs @ scores,  # their mean is zero
            "baseline": b,
        }
    )


def _case(probs: list[float], rewards: list[float], baseline: float) -> Case:
    p = torch.tensor(probs, dtype=torch.float64)
    return Case(
        {
            "probs": p,
            "rewards": torch.tensor(rewards, dtype=torch.float64),
            "scores": torch.eye(len(p), dtype=torch.float64) - p,
            "baseline": baseline,
        }
    )


SAMPLES = Exercise(
    id="pg-samples",
    title="what is a baseline worth in samples?",
    concept="policy-gradient",
    minutes=10,
    difficulty="warm-up",
    statement=r"""
    There are $N$ possible completions, with probabilities `probs` `[N]`, rewards `rewards` `[N]` and scores
    $\nabla \log \pi$ in the rows of `scores` `[N, D]` (their mean under `probs` is zero). An estimate is
    $(R - b)\, \nabla \log \pi$ of one sample; its variance is the expected squared distance from its mean. Write
    `my_samples`: how many samples have to be averaged without a baseline for the variance that one sample has with the
    constant `baseline`? Predict first, for a softmax over three completions with rewards of 100, 101 and 102, equally
    probable, and their mean as the baseline: is it 2, 20 or more than 1000?
    """,
    solution=my_samples,
    cases=(
        _case([0.5, 0.3, 0.2], [3.0, 2.0, 1.0], 2.0),
        _case([0.5, 0.3, 0.2], [101.0, 100.0, 100.0], 100.4),
        _case([0.8, 0.1, 0.1], [0.0, 1.0, 0.0], 1.0),
        _case([1 / 3, 1 / 3, 1 / 3], [100.0, 101.0, 102.0], 101.0),
    ),
    draw=_draw,
    mistakes=(
        Mistake(_inverse, "The other way round: how many samples WITHOUT a baseline?"),
        Mistake(
            _root,
            "You compare standard deviations. What does averaging n samples do to the variance?",
        ),
        Mistake(
            _squared,
            "It is a variance already. It need not be squared again.",
        ),
        Mistake(
            _not_centred,
            "These are second moments. A variance is taken from the mean, which both estimates share.",
        ),
        Mistake(
            _listed_once,
            "You count every completion once. Which is drawn how often?",
        ),
        Mistake(
            _of_the_reward,
            "You look at the rewards alone. Each is multiplied by a score, and some scores are longer.",
        ),
        Mistake(
            _difference,
            "You subtract the two variances. How does a variance fall with the number of samples?",
        ),
    ),
    where="Averaging n independent samples divides the variance by n.",
    idea=r"""
    Compute one number twice, with $b = 0$ and with the baseline: the variance $\sum_i p_i \lVert x_i - \bar x
    \rVert^2$, where $x_i = (R_i - b)\, s_i$ and $\bar x$ is the mean of the $x_i$ under `probs`. How many samples
    bring the first down to the second?
    """,
    outline="""
    For each of the two baselines, in this order: the `[N, D]` estimates; their mean `[D]`, weighted by `probs`; the
    squared distance of each estimate from it, summed over D; the mean of that, weighted again. What is returned is
    made of the two variances alone: which one is divided by which?
    """,
    right="Right. For rewards of 100, 101 and 102 it is about 30,600: without a baseline the variance is nearly that of "
    "the scores alone, times 100 squared.",
)
