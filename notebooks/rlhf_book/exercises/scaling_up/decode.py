"""How many tokens a second a decoder can write at most, by the roofline."""

from torch import Generator

from ..draws import integer
from ..exercise import Case, Exercise, Mistake


def my_tokens_per_second(
    parameters: float, rows: int, width: int, bandwidth: float, flops: float
) -> float:
    """N weights of `width` bytes, rows, bytes and operations a second -> tokens/s."""
    return rows / max(width * parameters / bandwidth, 2 * parameters * rows / flops)


def _added(
    parameters: float, rows: int, width: int, bandwidth: float, flops: float
) -> float:
    return rows / (width * parameters / bandwidth + 2 * parameters * rows / flops)


def _memory(
    parameters: float, rows: int, width: int, bandwidth: float, flops: float
) -> float:
    return rows / (width * parameters / bandwidth)


def _compute(
    parameters: float, rows: int, width: int, bandwidth: float, flops: float
) -> float:
    return flops / (2 * parameters)


def _one_operation(
    parameters: float, rows: int, width: int, bandwidth: float, flops: float
) -> float:
    return rows / max(width * parameters / bandwidth, parameters * rows / flops)


def _each_row_reads(
    parameters: float, rows: int, width: int, bandwidth: float, flops: float
) -> float:
    return 1 / max(width * parameters / bandwidth, 2 * parameters / flops)


def _a_step(
    parameters: float, rows: int, width: int, bandwidth: float, flops: float
) -> float:
    return max(width * parameters / bandwidth, 2 * parameters * rows / flops)


def _steps(
    parameters: float, rows: int, width: int, bandwidth: float, flops: float
) -> float:
    return 1 / _a_step(parameters, rows, width, bandwidth, flops)


def _better_of_both(
    parameters: float, rows: int, width: int, bandwidth: float, flops: float
) -> float:
    return rows / min(width * parameters / bandwidth, 2 * parameters * rows / flops)


def _training(
    parameters: float, rows: int, width: int, bandwidth: float, flops: float
) -> float:
    return rows / max(width * parameters / bandwidth, 6 * parameters * rows / flops)


def _draw(generator: Generator) -> Case:
    machine = {
        "bandwidth": float(integer(generator, 5, 500)),
        "flops": float(integer(generator, 100, 50_000)),
    }
    rows = 2 ** integer(generator, 1, 11)
    return Case(
        {
            "parameters": float(integer(generator, 1, 90)),
            "rows": rows,
            "width": 2,
            **machine,
        }
    )


def _case(rows: int, width: int) -> Case:
    return Case(
        {
            "parameters": 0.135,
            "rows": rows,
            "width": width,
            "bandwidth": 3.35,
            "flops": 990.0,
        }
    )


DECODE = Exercise(
    id="scale-decode",
    title="tokens a second, at most",
    concept="utilisation",
    minutes=5,
    difficulty="warm-up",
    statement=r"""
    A step of decoding reads all $N$ weights once, `width` bytes each, and does $2N$ operations for each of its rows.
    The machine moves `bandwidth` bytes and does `flops` operations a second, both at the same time. Write
    `my_tokens_per_second(parameters, rows, width, bandwidth, flops)`: how many tokens it can write in a second at
    most, all rows together. Ignore the cache. (Units: in the first example, $10^9$ weights and $10^{12}$ bytes and
    operations a second, so the answer is in thousands.) Where is the bend, and does it move with $N$?
    """,
    solution=my_tokens_per_second,
    cases=(
        _case(64, 2),
        _case(1024, 2),
        _case(512, 4),
        Case(
            {"parameters": 7.0, "rows": 1, "width": 2, "bandwidth": 3.0, "flops": 5.0}
        ),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _added,
            "You add the two times. The machine reads and computes at the same time.",
        ),
        Mistake(
            _memory,
            "This is the memory's limit. With many rows, another one is reached first.",
        ),
        Mistake(
            _compute,
            "This is the limit of the operations. With few rows, another one is reached first.",
        ),
        Mistake(
            _one_operation,
            "A weight costs two operations a token: a multiplication and an addition.",
        ),
        Mistake(
            _each_row_reads,
            "You read the weights once for each row. One reading serves all of them.",
        ),
        Mistake(_a_step, "These are the seconds of a step."),
        Mistake(
            _steps, "These are steps a second. A step writes a token in every row."
        ),
        Mistake(
            _better_of_both,
            "You take the faster of the two. A step is done when both are.",
        ),
        Mistake(
            _training,
            "Six operations a weight are those of training. Decoding has no backward.",
        ),
    ),
    where="First the seconds of one step, then tokens over seconds.",
    idea="""
    A step's two times are bytes over bandwidth and operations over flops. They run at the same time, so the step
    takes the longer one. It writes one token a row.
    """,
    outline="""
    ```python
    return rows / max(..., ...)  # seconds of fetching, of computing
    ```
    """,
    right="Right. The bend is at width F / 2M rows, whatever N: a larger model is slower on both sides alike.",
)
