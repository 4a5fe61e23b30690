"""Rows that are still being written, if each token ends its completion with the same chance."""

from torch import Generator

from ..draws import integer, uniform
from ..exercise import Case, Exercise, Mistake


def my_rows_read(stop: float, budget: int, rows: int) -> tuple[float, float]:
    """Expected rows, summed over steps: ended rows taken out, and all carried along."""
    alive = [(1 - stop) ** (t - 1) for t in range(1, budget + 1)]
    return rows * sum(alive), rows * sum(1 - (1 - chance) ** rows for chance in alive)


def _one_late(stop: float, budget: int, rows: int) -> tuple[float, float]:
    alive = [(1 - stop) ** t for t in range(1, budget + 1)]
    return rows * sum(alive), rows * sum(1 - (1 - chance) ** rows for chance in alive)


def _to_the_budget(stop: float, budget: int, rows: int) -> tuple[float, float]:
    return my_rows_read(stop, budget, rows)[0], float(rows * budget)


def _no_budget(stop: float, budget: int, rows: int) -> tuple[float, float]:
    return rows / stop, my_rows_read(stop, budget, rows)[1]


def _a_row(stop: float, budget: int, rows: int) -> tuple[float, float]:
    out, along = my_rows_read(stop, budget, rows)
    return out / rows, along / rows


def _steps(stop: float, budget: int, rows: int) -> tuple[float, float]:
    out, along = my_rows_read(stop, budget, rows)
    return out, along / rows


def _while_all(stop: float, budget: int, rows: int) -> tuple[float, float]:
    alive = [(1 - stop) ** (t - 1) for t in range(1, budget + 1)]
    return rows * sum(alive), rows * sum(chance**rows for chance in alive)


def _swapped(stop: float, budget: int, rows: int) -> tuple[float, float]:
    out, along = my_rows_read(stop, budget, rows)
    return along, out


def _mean_for_all(stop: float, budget: int, rows: int) -> tuple[float, float]:
    out, _ = my_rows_read(stop, budget, rows)
    return out, out


def _draw(generator: Generator) -> Case:
    stop = 0.03 + 0.5 * float(uniform(generator, 1))
    return Case(
        {
            "stop": stop,
            "budget": integer(generator, 2, 33),
            "rows": integer(generator, 2, 17),
        }
    )


ALIVE = Exercise(
    id="fast-alive",
    title="how many rows are still being written?",
    concept="finished-rows",
    minutes=15,
    difficulty="core",
    statement=r"""
    Every token of every completion ends it with probability $q$, independently, and no completion is longer than the
    budget $T$. Write `my_rows_read(stop, budget, rows)` with $q$, $T$ and the number of rows $B$. It returns two
    expected numbers of rows, summed over the steps of the sampler: with ended rows taken out, and with all $B$
    rows carried along until the last of them has ended. A row takes part in the step that writes its last token. Then
    try $q = 0.1$ and $T = 1000$ with 8 and with 512 rows.
    """,
    solution=my_rows_read,
    cases=(
        Case({"stop": 0.1, "budget": 40, "rows": 8}),
        Case({"stop": 0.25, "budget": 2, "rows": 2}),
        Case({"stop": 0.5, "budget": 30, "rows": 3}),
        Case({"stop": 0.05, "budget": 10, "rows": 16}),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _one_late,
            "Your sums begin one step late: in the first step every row is being written.",
        ),
        Mistake(
            _to_the_budget,
            "Your second number goes to the budget. The loop stops when the last row has ended, which may be earlier.",
        ),
        Mistake(
            _no_budget,
            "Your first number is that of completions without a limit: nobody writes past the budget.",
        ),
        Mistake(
            _a_row,
            "These are numbers of steps of one row. The exercise asks for all rows together.",
        ),
        Mistake(
            _steps,
            "Your second number is how many steps there are: each of them carries all rows along.",
        ),
        Mistake(
            _while_all,
            "Your second loop stops when the first row ends. It has to go on while any row is alive.",
        ),
        Mistake(
            _swapped,
            "The two numbers are exchanged: taking rows out cannot cost more than carrying them.",
        ),
        Mistake(
            _mean_for_all,
            "Twice the same number: without taking rows out it is the longest completion that decides, and the mean of a "
            "maximum is more than the maximum of the means.",
        ),
    ),
    where="The mean of a length is the sum over t of the chance that it is at least t; so is the mean of a maximum.",
    idea="""
    A row takes part in step $t$ if it has not ended before: $(1-q)^{t-1}$. First number: $B$ times the sum of
    these. Second: all $B$ take part in step $t$ if *any* of them is still alive.
    """,
    outline="""
    ```python
    alive = [... for t in range(1, budget + 1)]
    return rows * ..., rows * sum(... for chance in alive)
    ```
    """,
    right="Right. The mean stays near 1/q, the longest of B grows like log(B)/q: large batches need this most.",
)
