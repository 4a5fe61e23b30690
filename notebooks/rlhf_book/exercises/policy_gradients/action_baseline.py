"""The bias that a baseline brings when it depends on the token that it judges."""

import torch
from torch import Generator, Tensor

from ..draws import integer
from ..exercise import Case, Exercise, Mistake
from ..mistakes import negated


def my_bias(probs: Tensor, baseline: Tensor) -> Tensor:
    """[V] probabilities, [V] baselines, one for each token -> [V] bias."""
    expected = (probs * baseline).sum()
    return -probs * (baseline - expected)


def _none(probs: Tensor, baseline: Tensor) -> Tensor:
    return 0 * probs


def _not_centred(probs: Tensor, baseline: Tensor) -> Tensor:
    return -probs * baseline


def _plain_mean(probs: Tensor, baseline: Tensor) -> Tensor:
    return -probs * (baseline - baseline.mean())


def _not_weighted(probs: Tensor, baseline: Tensor) -> Tensor:
    return (probs * baseline).sum() - baseline


def _own_score_alone(probs: Tensor, baseline: Tensor) -> Tensor:
    return -probs * (1 - probs) * baseline


def _probability_twice(probs: Tensor, baseline: Tensor) -> Tensor:
    return probs * my_bias(probs, baseline)


def _draw(generator: Generator) -> Case:
    V = integer(generator, 2, 7)
    logits, baseline = torch.randn(2, V, generator=generator, dtype=torch.float64)
    if integer(generator, 0, 5) == 0:
        baseline = torch.full_like(baseline, 0.7)  # one number: no bias
    return Case({"probs": (1.5 * logits).softmax(-1), "baseline": baseline})


def _numbers(*x: float) -> Tensor:
    return torch.tensor(x, dtype=torch.float64)


ACTION_BASELINE = Exercise(
    id="pg-action-baseline",
    title="a baseline that looks at the token",
    concept="policy-gradient",
    minutes=12,
    difficulty="stretch",
    statement=r"""
    Somebody subtracts from the reward a number $b(a)$ that depends on the token $a$ that was sampled. Take one state
    with $V$ tokens, and the gradient with respect to the logits of that state. Write `my_bias`: from the
    probabilities `probs`, $\pi(a)$, and the numbers `baseline`, $b(a)$, return `[V]`, the mean of
    $(R - b(a))\, \nabla \log \pi(a)$ minus the mean of $R\, \nabla \log \pi(a)$. (The derivative of $\log \pi(a)$ in
    logit $k$ is $[a = k] - \pi(k)$.) Predict first: which tokens does such a baseline push up, those with a large
    $b(a)$ or those with a small one?
    """,
    solution=my_bias,
    cases=(
        Case({"probs": _numbers(0.5, 0.3, 0.2), "baseline": _numbers(0.0, 1.0, 1.0)}),
        Case({"probs": _numbers(0.7, 0.2, 0.1), "baseline": _numbers(0.5, -0.2, 1.0)}),
        Case({"probs": _numbers(0.25, 0.75), "baseline": _numbers(0.3, 0.3)}),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _none,
            "That a baseline brings no bias was proved by taking it out of a sum over tokens. Does this one come out?",
        ),
        Mistake(
            negated(my_bias),
            "This is the mean of b times the score. It is subtracted, not added.",
        ),
        Mistake(
            _not_centred,
            "A baseline that is the same for all tokens would have a bias here, and it has none.",
        ),
        Mistake(
            _plain_mean,
            "You compare with the plain mean of the baselines. Which tokens are drawn how often?",
        ),
        Mistake(
            _not_weighted,
            "A token that is never drawn gets a push here. How often does each token's score enter the mean?",
        ),
        Mistake(
            _own_score_alone,
            "You let each token move its own logit only. The score of a token moves the logits of the others as well.",
        ),
        Mistake(
            _probability_twice,
            "One probability too many. The mean over sampled tokens brings it in once.",
        ),
    ),
    where="Write the mean of b(a) times the score as a sum over the tokens, and collect what stands at logit k.",
    idea=r"""
    Logit $k$ of $-\sum_a \pi(a)\, b(a)\, ([a = k] - \pi(k))$ has two parts. In the first only $a = k$ survives. In
    the second $\pi(k)$ does not depend on $a$ and comes out of the sum. Which number is the sum that is left?
    """,
    outline="""
    ```python
    expected = ...  # scalar, the mean of b under the policy
    return -probs * (...)  # how far each b is from something
    ```
    """,
    right=(
        "Right. The bias is minus the gradient of E[b]: tokens that the baseline flatters are pushed down. A baseline may "
        "see the state and not the action."
    ),
)
