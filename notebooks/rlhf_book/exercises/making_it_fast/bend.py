"""From how many rows on arithmetic decides, if each row brings a cache of its own."""

from torch import Generator

from ..draws import uniform
from ..exercise import Case, Exercise, Mistake
from ..mistakes import given, swapped


def my_bend(
    weights: float,
    kept: float,
    weight_bytes: float,
    cache_bytes: float,
    bandwidth: float,
    flops: float,
) -> float:
    """Rows from which arithmetic is the slower of the two; 0.0 if there are none."""
    gained = 2 * weights / flops - kept * cache_bytes / bandwidth  # by each row
    return weights * weight_bytes / bandwidth / gained if gained > 0 else 0.0


def _short_caches(
    weights: float,
    kept: float,
    weight_bytes: float,
    cache_bytes: float,
    bandwidth: float,
    flops: float,
) -> float:
    return weight_bytes * flops / 2 / bandwidth


def _one_size(
    weights: float,
    kept: float,
    weight_bytes: float,
    cache_bytes: float,
    bandwidth: float,
    flops: float,
) -> float:
    return my_bend(weights, kept, weight_bytes, weight_bytes, bandwidth, flops)


def _one_operation(
    weights: float,
    kept: float,
    weight_bytes: float,
    cache_bytes: float,
    bandwidth: float,
    flops: float,
) -> float:
    gained = weights / flops - kept * cache_bytes / bandwidth
    return weights * weight_bytes / bandwidth / gained if gained > 0 else 0.0


def _no_limit(
    weights: float,
    kept: float,
    weight_bytes: float,
    cache_bytes: float,
    bandwidth: float,
    flops: float,
) -> float:
    return (
        weights
        * weight_bytes
        / bandwidth
        / (2 * weights / flops - kept * cache_bytes / bandwidth)
    )


def _one_cache_for_all(
    weights: float,
    kept: float,
    weight_bytes: float,
    cache_bytes: float,
    bandwidth: float,
    flops: float,
) -> float:
    return (
        (weights * weight_bytes + kept * cache_bytes)
        / bandwidth
        / (2 * weights / flops)
    )


def _added(
    weights: float,
    kept: float,
    weight_bytes: float,
    cache_bytes: float,
    bandwidth: float,
    flops: float,
) -> float:
    return (
        weights
        * weight_bytes
        / bandwidth
        / (2 * weights / flops + kept * cache_bytes / bandwidth)
    )


def _draw(generator: Generator) -> Case:
    size, kept, bandwidth, flops = (float(x) for x in uniform(generator, 4))
    bytes_of = (0.5, 1.0, 2.0, 4.0)
    one, other = (bytes_of[int(4 * x)] for x in uniform(generator, 2))
    arguments = {
        "weights": 1e8 + 9e8 * size,
        "kept": 1e4 + 3e6 * kept,
        "weight_bytes": one,
        "cache_bytes": other,
        "bandwidth": 1e12 + 2e12 * bandwidth,
        "flops": 1e14 + 5e14 * flops,
    }
    return Case(arguments)


BEND = Exercise(
    id="fast-bend",
    title="a bend, with caches and two precisions",
    concept="decode-batch",
    minutes=15,
    difficulty="core",
    statement=r"""
    The weights have been rounded to 4 bits for sampling, half a byte each; the cache has not. Write `my_bend(weights,
    kept, weight_bytes, cache_bytes, bandwidth, flops)` with $N$, how many numbers a row's cache keeps, the bytes of a
    weight and of a number in the cache, $M$ and $F$. It returns the number of rows (a float, not rounded) at which fetching
    and computing take equally long, with the operations of attention left out; `0.0` if fetching takes longer for every number of rows.
    Predict first: does rounding the weights move the bend to more rows or to fewer? Does it change from which cache on there is none?
    """,
    solution=my_bend,
    cases=(
        Case(
            {
                "weights": 1.5e9,
                "kept": 2.8e6,
                "weight_bytes": 0.5,
                "cache_bytes": 2.0,
                "bandwidth": 3.35e12,
                "flops": 989e12,
            }
        ),
        Case(
            {
                "weights": 1.5e9,
                "kept": 6e6,
                "weight_bytes": 2.0,
                "cache_bytes": 2.0,
                "bandwidth": 3.35e12,
                "flops": 989e12,
            }
        ),
        Case(
            {
                "weights": 7e9,
                "kept": 1e6,
                "weight_bytes": 2.0,
                "cache_bytes": 1.0,
                "bandwidth": 2e12,
                "flops": 3e14,
            }
        ),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _short_caches,
            "That is the bend of rows without a cache. Each row brings its own bytes, too.",
        ),
        Mistake(_one_size, "A number in the cache has its own size in bytes."),
        Mistake(
            swapped(my_bend, "weight_bytes", "cache_bytes"),
            "The two sizes in bytes are exchanged.",
        ),
        Mistake(
            _one_operation,
            "A weight takes a multiplication and an addition for each token.",
        ),
        Mistake(
            _no_limit,
            "A negative number of rows: what does it mean, and what is to be returned then?",
        ),
        Mistake(
            _one_cache_for_all,
            "You fetch one cache for all rows. Nobody shares it: every row fetches its own.",
        ),
        Mistake(
            _added,
            "A sign: both sides grow with the rows, and only the difference counts.",
        ),
        Mistake(
            given(
                my_bend,
                weights=lambda weights: 3 * weights,
                weight_bytes=lambda weight_bytes: weight_bytes / 3,
            ),
            "A step of the sampler reads a token: two operations for each weight, not six.",
        ),
    ),
    where="Write both times as functions of the rows, set them equal, and solve. When has the equation no positive solution?",
    idea=r"""
    With $k$ numbers in each row's cache, fetching takes $(N b_w + B k b_c)/M$ seconds for $B$ rows, computing
    $2 N B / F$. Both are straight lines in $B$; fetching begins above 0. They meet only if computing rises faster.
    """,
    outline="""
    ```python
    gained = ... - ...  # by how much computing catches up with each row
    return ... / gained if gained > 0 else 0.0
    ```
    """,
    right="Right. Half a byte instead of two moves the bend to a quarter of the rows, and does not change from which "
    "cache on there is none: that line does not know the weights' size in bytes.",
)
