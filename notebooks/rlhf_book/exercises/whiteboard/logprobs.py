"""From logits to the log-probs of the tokens that were written: the shift by one."""

import torch
from torch import Generator, Tensor

from ..draws import integer
from ..exercise import Case, Exercise, Mistake
from ..mistakes import given, negated


def my_logprobs(logits: Tensor, ids: Tensor, temperature: float) -> Tensor:
    """Logits [B, S, V], ids [B, S] -> log-probs [B, S - 1], without the first token."""
    ahead = (logits[:, :-1] / temperature).log_softmax(-1)  # [B, S - 1, V]
    return ahead.gather(-1, ids[:, 1:, None]).squeeze(-1)


def _taken(scores: Tensor, ids: Tensor) -> Tensor:
    return scores.gather(-1, ids[..., None]).squeeze(-1)


def _no_shift(logits: Tensor, ids: Tensor, temperature: float) -> Tensor:
    return _taken((logits[:, 1:] / temperature).log_softmax(-1), ids[:, 1:])


def _all_positions(logits: Tensor, ids: Tensor, temperature: float) -> Tensor:
    return _taken((logits / temperature).log_softmax(-1), ids)


def _backwards(logits: Tensor, ids: Tensor, temperature: float) -> Tensor:
    return _taken((logits[:, 1:] / temperature).log_softmax(-1), ids[:, :-1])


def _own_token(logits: Tensor, ids: Tensor, temperature: float) -> Tensor:
    return _taken((logits[:, :-1] / temperature).log_softmax(-1), ids[:, :-1])


def _raw(logits: Tensor, ids: Tensor, temperature: float) -> Tensor:
    return _taken(logits[:, :-1] / temperature, ids[:, 1:])


def _probabilities(logits: Tensor, ids: Tensor, temperature: float) -> Tensor:
    return my_logprobs(logits, ids, temperature).exp()


def _temperature_too_late(logits: Tensor, ids: Tensor, temperature: float) -> Tensor:
    return my_logprobs(logits, ids, 1.0) / temperature


def _wrong_axis(logits: Tensor, ids: Tensor, temperature: float) -> Tensor:
    return _taken((logits[:, :-1] / temperature).log_softmax(1), ids[:, 1:])


def _detached(logits: Tensor, ids: Tensor, temperature: float) -> Tensor:
    return my_logprobs(logits, ids, temperature).detach()


def _log_of_a_zero(logits: Tensor, ids: Tensor, temperature: float) -> Tensor:
    return _taken((logits[:, :-1] / temperature).softmax(-1).log(), ids[:, 1:])


def _exp_of_a_large_number(logits: Tensor, ids: Tensor, temperature: float) -> Tensor:
    weights = (logits[:, :-1] / temperature).exp()
    return _taken(weights, ids[:, 1:]).log() - weights.sum(-1).log()


def _batch(
    generator: Generator,
    rows: int,
    length: int,
    words: int,
    t: float,
    wide: bool = False,
) -> Case:
    shape = (rows, length, words)
    logits = 2 * torch.randn(shape, generator=generator, dtype=torch.float64)
    return Case(
        {
            "logits": (30 * logits).float() if wide else logits,
            "ids": torch.randint(words, (rows, length), generator=generator),
            "temperature": t,
        }
    )


def _draw(generator: Generator) -> Case:
    sizes = [integer(generator, *bounds) for bounds in ((1, 4), (2, 7), (2, 7))]
    temperature = (0.5, 0.7, 1.0, 1.5)[integer(generator, 0, 4)]
    wide = integer(generator, 0, 3) == 0
    return _batch(generator, sizes[0], sizes[1], sizes[2], temperature, wide)


LOGPROBS = Exercise(
    id="board-logprobs",
    title="log-probs, with the shift",
    concept="next-token-ce",
    minutes=5,
    difficulty="warm-up",
    statement=r"""
    A model has read the token ids `ids`, `[B, S]`, and returned `logits`, `[B, S, V]`. The logits at position $t$ are
    about the token that *follows* position $t$. Write `my_logprobs(logits, ids, temperature)`: for every token but the
    first its log-prob given those before it, `[B, S - 1]`, under the distribution that was sampled, which is the softmax of
    the logits divided by the temperature. It has to survive logits that are hundreds apart, in single precision. The
    checker compares the values and the gradient with respect to `logits`.
    """,
    solution=my_logprobs,
    cases=(
        _batch(torch.Generator().manual_seed(0), 1, 3, 3, 0.5),
        _batch(torch.Generator().manual_seed(1), 2, 4, 5, 1.0),
        _batch(torch.Generator().manual_seed(2), 2, 5, 4, 1.5),
        Case(
            {
                "logits": torch.tensor(
                    [[[200.0, -200.0, 0.0], [-200.0, 0.0, 200.0], [0.0, 1.0, 2.0]]]
                ),
                "ids": torch.tensor([[0, 1, 2]]),
                "temperature": 1.0,
            }
        ),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _no_shift,
            "You ask each position about its own token, which the model has read there already. Whose logits are about it?",
        ),
        Mistake(
            _all_positions,
            "You return a number for the first token, too, and ask each position about the token that stands there. "
            "Nothing comes before the first token, and the last logits are about a token that nobody has written.",
        ),
        Mistake(
            _backwards,
            "The shift goes the wrong way: you ask a position about the token before it.",
        ),
        Mistake(
            _own_token,
            "The logits are the right ones, but you look up the token that stands there instead of the one that follows.",
        ),
        Mistake(
            _raw,
            "These are logits, not log-probs: nothing makes them sum to one over the vocabulary.",
        ),
        Mistake(_probabilities, "These are probabilities; take their logarithm."),
        Mistake(
            given(my_logprobs, temperature=1.0),
            "The temperature is not used: these are not the log-probs of the distribution that was sampled.",
        ),
        Mistake(
            _temperature_too_late,
            "You divide log-probs by the temperature. Divided like that they no longer sum to one: where does it belong?",
        ),
        Mistake(
            given(my_logprobs, temperature=lambda temperature: 1 / temperature),
            "A high temperature makes the distribution flatter. Yours gets sharper.",
        ),
        Mistake(
            _wrong_axis,
            "You normalise over positions. The probabilities of which things sum to one?",
        ),
        Mistake(
            _detached,
            "The values are right, but they are cut off from the model: nothing would be learned.",
        ),
        Mistake(
            negated(my_logprobs),
            "The sign is the other way round: this is the cross-entropy of each token, its negative log-prob.",
        ),
        Mistake(
            _log_of_a_zero,
            "Right as long as no token is rare. A small probability is rounded to 0 before its logarithm is taken.",
        ),
        Mistake(
            _exp_of_a_large_number,
            "Right for small logits. The exponential of a large one is infinite, and infinity minus infinity is no number.",
        ),
    ),
    where="Write three tokens on a line, and under each the token that its logits are about.",
    idea="""
    The logits at place $t$ go with the token at $t + 1$: drop the last place of one and the first of the other.
    Divide by the temperature, take the softmax *in logarithms*, and pick the observed token.
    """,
    outline="""
    ```python
    ahead = (...).log_softmax(-1)  # [B, S - 1, V]
    return ahead.gather(-1, ...).squeeze(-1)
    ```
    """,
    right="Right. Which of these log-probs belong to the completion, if the prompt has five tokens?",
    gradient_of="logits",
)
