"""What the mean within a completion optimises."""

import torch
from torch import Generator, Tensor

from ..draws import integer, uniform
from ..exercise import Case, Exercise, Mistake
from ..mistakes import negated


def my_expected_step(logits: Tensor, rewards: Tensor, lengths: Tensor) -> Tensor:
    """Three times [N], one number a completion -> [N]: E[R / |o| grad log pi(o)]."""
    pi = logits.softmax(-1)
    per_token = rewards / lengths
    return pi * (per_token - (pi * per_token).sum())


def _no_length(logits: Tensor, rewards: Tensor, lengths: Tensor) -> Tensor:
    pi = logits.softmax(-1)
    return pi * (rewards - (pi * rewards).sum())


def _baseline_undivided(logits: Tensor, rewards: Tensor, lengths: Tensor) -> Tensor:
    pi = logits.softmax(-1)
    return pi * (rewards / lengths - (pi * rewards).sum())


def _divided_outside(logits: Tensor, rewards: Tensor, lengths: Tensor) -> Tensor:
    pi = logits.softmax(-1)
    return pi * (rewards - (pi * rewards).sum()) / lengths


def _mean_length(logits: Tensor, rewards: Tensor, lengths: Tensor) -> Tensor:
    pi = logits.softmax(-1)
    return pi * (rewards - (pi * rewards).sum()) / (pi * lengths).sum()


def _no_mean(logits: Tensor, rewards: Tensor, lengths: Tensor) -> Tensor:
    return logits.softmax(-1) * rewards / lengths


def _no_pi(logits: Tensor, rewards: Tensor, lengths: Tensor) -> Tensor:
    pi, per_token = logits.softmax(-1), rewards / lengths
    return per_token - (pi * per_token).sum()


def _multiplied(logits: Tensor, rewards: Tensor, lengths: Tensor) -> Tensor:
    pi, total = logits.softmax(-1), rewards * lengths
    return pi * (total - (pi * total).sum())


def _padded(logits: Tensor, rewards: Tensor, lengths: Tensor) -> Tensor:
    return _no_length(logits, rewards, lengths) / lengths.max()


def _case(logits: list[float], rewards: list[float], lengths: list[float]) -> Case:
    names = ("logits", "rewards", "lengths")
    return Case(
        {
            name: torch.tensor(x, dtype=torch.float64)
            for name, x in zip(names, (logits, rewards, lengths), strict=True)
        }
    )


def _draw(generator: Generator) -> Case:
    n = integer(generator, 2, 7)
    lengths = torch.randint(1, 9, (n,), generator=generator).double()
    return Case(
        {
            "logits": 2 * uniform(generator, n) - 1,
            "rewards": 3 * uniform(generator, n) - 1,
            "lengths": lengths,
        }
    )


LENGTH = Exercise(
    id="ppo-clip-length",
    title="what the mean within a completion optimises",
    concept="ppo-length-normalised",
    minutes=15,
    difficulty="stretch",
    statement=r"""
    A policy chooses among $N$ whole completions with a softmax over `logits`, `[N]`. Completion $o$ has reward $R(o)$ and
    $|o|$ tokens. All of a completion's tokens get the advantage $R(o)$, and their terms are averaged *within* the
    completion, so that a sampled completion contributes

    $$\frac{1}{|o|}\, R(o)\, \nabla \log \pi(o)$$

    in the first step. Write `my_expected_step(logits, rewards, lengths)`: the expectation of this over completions of the
    policy, as a vector `[N]` of derivatives with respect to the logits. Then read your formula: of which expected
    quantity is it the gradient?
    """,
    solution=my_expected_step,
    cases=(
        _case([0.0, 0.0, 0.0], [1.0, 1.0, 0.0], [2.0, 8.0, 4.0]),
        _case([0.5, -0.5], [-1.0, -1.0], [1.0, 10.0]),
        _case([1.0, 0.0, -1.0, 0.3], [1.0, 0.5, 2.0, -1.0], [3.0, 1.0, 5.0, 2.0]),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _no_length,
            "This is the gradient of the expected reward. Where did the length go?",
        ),
        Mistake(
            _baseline_undivided,
            "What you subtract is the mean of R. The softmax subtracts the mean of whatever is being averaged.",
        ),
        Mistake(
            _divided_outside,
            "You divide each component by its own completion's length. Every sampled completion moves all logits, and "
            "brings its own length along.",
        ),
        Mistake(
            _mean_length,
            "You divide by the mean length. Each completion is divided by its own.",
        ),
        Mistake(
            _no_mean,
            "The score of a softmax has a second part: raising one logit lowers all other probabilities.",
        ),
        Mistake(
            _no_pi,
            "Completions come up with their probabilities. Each sampled one has to be weighted by its own.",
        ),
        Mistake(
            _multiplied,
            "You multiply by the length. That is what a sum over equal token rewards would do.",
        ),
        Mistake(
            _padded,
            "You divide by the longest length. Each completion is divided by its own.",
        ),
        Mistake(
            negated(my_expected_step), "Every sign is turned: this points downhill."
        ),
    ),
    where="Write the expectation as a sum over completions, and use that pi times grad log pi is grad pi.",
    idea=r"""
    $\sum_o \pi(o)\, \frac{R(o)}{|o|}\, \nabla \log \pi(o) = \sum_o \frac{R(o)}{|o|} \nabla \pi(o)$. So this is the
    gradient of an expected *something*, with one number for each completion. For a softmax, the gradient of
    $\mathbb E[f]$ in logit $k$ is $\pi_k (f_k - \mathbb E[f])$.
    """,
    outline="""
    ```python
    pi = logits.softmax(-1)
    f = ...  # [N], the number whose mean is climbed
    return pi * (f - ...)
    ```
    """,
    right="Right: it is the gradient of the expected reward per token. Which of two right completions does it prefer?",
)
