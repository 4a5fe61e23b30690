"""How often to keep a layer's input, when everything else is computed again."""

from torch import Generator

from ..draws import integer
from ..exercise import Case, Exercise, Mistake


def my_most_kept(layers: int, every: int, entering: int, inside: int) -> int:
    """n layers, k, bytes of an input and inside a layer -> the most bytes at once."""
    kept = -(-layers // every)  # rounded up: the last stretch may be shorter
    return kept * entering + min(every, layers) * inside


def _plain(layers: int, every: int, entering: int, inside: int) -> int:
    return layers * inside


def _one_layer(layers: int, every: int, entering: int, inside: int) -> int:
    return -(-layers // every) * entering + inside


def _inputs_alone(layers: int, every: int, entering: int, inside: int) -> int:
    return -(-layers // every) * entering


def _all_inputs(layers: int, every: int, entering: int, inside: int) -> int:
    return layers * entering + min(every, layers) * inside


def _rounded_down(layers: int, every: int, entering: int, inside: int) -> int:
    return layers // every * entering + min(every, layers) * inside


def _swapped(layers: int, every: int, entering: int, inside: int) -> int:
    return -(-layers // every) * inside + min(every, layers) * entering


def _longer_than_all(layers: int, every: int, entering: int, inside: int) -> int:
    return -(-layers // every) * entering + every * inside


def _draw(generator: Generator) -> Case:
    entering = integer(generator, 1, 50)
    sizes = {"entering": entering, "inside": entering * integer(generator, 2, 40) + 1}
    return Case(
        {
            "layers": integer(generator, 1, 60),
            "every": integer(generator, 1, 20),
            **sizes,
        }
    )


CHECKPOINT = Exercise(
    id="scale-checkpoint",
    title="how often to keep an input",
    concept="gradient-checkpointing",
    minutes=10,
    difficulty="core",
    statement=r"""
    Of $n$ equal layers, the forward keeps the input of the first and of every $k$-th after it ($x$ bytes each), and
    nothing else. The backward takes the stretches of $k$ layers from the last to the first: it computes a stretch
    again from its input, keeps what is inside each of its layers ($a$ bytes each), goes backward through it, and
    throws that away. Write `my_most_kept(layers, every, entering, inside)` for $n$, $k$, $x$, $a$: the bytes that
    exist at the fullest moment. Count all kept inputs, from first to last; the last stretch may be shorter than the
    others. Then find the best $k$ for $n = 30$ and $a = 20x$: is it 1, is it $\sqrt n$?
    """,
    solution=my_most_kept,
    cases=(
        Case({"layers": 30, "every": 4, "entering": 10, "inside": 200}),
        Case({"layers": 12, "every": 3, "entering": 7, "inside": 90}),
        Case({"layers": 5, "every": 8, "entering": 3, "inside": 31}),
        Case({"layers": 9, "every": 1, "entering": 2, "inside": 5}),
    ),
    draw=_draw,
    mistakes=(
        Mistake(_plain, "This is what is kept without checkpoints."),
        Mistake(
            _one_layer,
            "A stretch has several layers, and the insides of all of them exist at the same time.",
        ),
        Mistake(
            _inputs_alone,
            "These are the inputs. While a stretch goes backward, its insides exist as well.",
        ),
        Mistake(
            _all_inputs, "You keep the input of every layer. Only one in k is kept."
        ),
        Mistake(
            _rounded_down,
            "The last stretch may be a short one, and its input is kept, too.",
        ),
        Mistake(
            _swapped,
            "Inputs and insides have changed places: many small ones are kept all the time.",
        ),
        Mistake(
            _longer_than_all,
            "With k above n, there is only one stretch. How many layers does it have?",
        ),
    ),
    where="Draw the layers in a row, mark the kept inputs, and shade the stretch that is being computed again.",
    idea="""
    Kept inputs: one for every started stretch of $k$ layers, so $n/k$ rounded up. At the fullest moment one whole
    stretch is laid open besides: $k$ layers, or $n$ if there are fewer.
    """,
    outline="""
    ```python
    kept = ...  # rounded up
    return kept * ... + ... * inside
    ```
    """,
    right="Right. The sum n x / k + k a is least at k = sqrt(n x / a): with insides much larger than inputs that is 1.",
)
