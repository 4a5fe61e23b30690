"""What the four models hold, each whole, and as adapters on one frozen body."""

from torch import Generator

from ..draws import integer
from ..exercise import Case, Exercise, Mistake


def my_bytes(n: int, a: int) -> tuple[int, int]:
    """Parameters of a model, of an adapter -> bytes: four models; one body."""
    return 2 * (16 * n) + 2 * (2 * n), 2 * n + 2 * (16 * a) + 2 * a


def _moments_in_16_bits(n: int, a: int) -> tuple[int, int]:
    return 2 * (8 * n) + 2 * (2 * n), 2 * n + 2 * (8 * a) + 2 * a


def _reference_is_an_adapter(n: int, a: int) -> tuple[int, int]:
    return 36 * n, 2 * n + 2 * (16 * a) + 2 * (2 * a)


def _body_is_trained(n: int, a: int) -> tuple[int, int]:
    return 36 * n, 16 * n + 2 * (16 * a) + 2 * a


def _reward_model_is_trained(n: int, a: int) -> tuple[int, int]:
    return 36 * n, 2 * n + 3 * (16 * a)


def _one_trained_model(n: int, a: int) -> tuple[int, int]:
    return 16 * n + 3 * (2 * n), 2 * n + 2 * (16 * a) + 2 * a


def _four_bodies(n: int, a: int) -> tuple[int, int]:
    return 36 * n, 4 * (2 * n) + 2 * (16 * a) + 2 * a


def _draw(generator: Generator) -> Case:
    a = integer(generator, 1, 500)
    return Case({"n": a * integer(generator, 10, 200), "a": a})


BYTES = Exercise(
    id="rlhf-bytes",
    title="four models on one body",
    concept="four-models",
    minutes=8,
    difficulty="core",
    statement=r"""
    Mixed precision: 16 bytes for a trained parameter, 2 for a frozen one. Write `my_bytes(n, a)`: return two
    numbers, the bytes that PPO for RLHF holds with four whole models of `n` parameters, and those that it holds if there is *one*
    frozen body of `n` parameters and every model that differs from the start is an adapter of `a` parameters on it. Which
    of the four needs no adapter, and which is there but not trained? (Heads of one output are left out.)
    """,
    solution=my_bytes,
    cases=(
        Case({"n": 7_000_000_000, "a": 40_000_000}),
        Case({"n": 1_000, "a": 10}),
        Case({"n": 500, "a": 500}),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _moments_in_16_bits,
            "A trained parameter has 16 bytes here: 2 + 2 + 8 + 4. The moments and the copy are in 32 bits.",
        ),
        Mistake(
            _reference_is_an_adapter,
            "The reference is the start itself: the body with its adapters switched off.",
        ),
        Mistake(_body_is_trained, "The body is frozen: 2 bytes a parameter."),
        Mistake(
            _reward_model_is_trained,
            "The reward model's adapter was trained before RL began, and is frozen now.",
        ),
        Mistake(_one_trained_model, "Two of the four whole models are trained."),
        Mistake(
            _four_bodies, "There is one body, whatever the number of adapters on it."
        ),
    ),
    where="Count the trained and the frozen parameters apart. Policy, critic and reward model differ from the start.",
    idea="""
    First number: policy and critic are trained, reference and reward model are frozen, all whole. Second number:
    one frozen body, and an adapter for each model that differs from the start. Two of the adapters are trained, one
    is not, and the reference needs none.
    """,
    outline="""
    ```python
    four_models = 2 * ... + 2 * ...
    one_body = ... + 2 * ... + ...  # body, trained adapters, the adapter that is only read
    ```
    """,
    right="Right. With adapters the critic hardly costs memory. What does it still cost?",
)
