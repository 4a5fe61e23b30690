"""How many numbers the comparisons of a data set leave free."""

import torch
from torch import Generator, Tensor

from ..draws import integer
from ..exercise import Case, Exercise, Mistake


def my_free_numbers(pairs: Tensor, completions: int) -> int:
    """[M, 2] indices of compared completions, how many there are -> free numbers."""
    group = list(range(completions))
    for one, other in pairs.tolist():
        old, new = group[one], group[other]
        group = [new if g == old else g for g in group]
    return len(set(group))


def _one(pairs: Tensor, completions: int) -> int:
    return 1


def _minus_pairs(pairs: Tensor, completions: int) -> int:
    return completions - len(pairs)


def _distinct_pairs(pairs: Tensor, completions: int) -> int:
    return completions - len({tuple(sorted(pair)) for pair in pairs.tolist()})


def _compared_alone(pairs: Tensor, completions: int) -> int:
    seen = set(pairs.flatten().tolist())
    group = {i: i for i in seen}
    for one, other in pairs.tolist():
        old, new = group[one], group[other]
        group = {i: new if g == old else g for i, g in group.items()}
    return len(set(group.values()))


def _never_compared(pairs: Tensor, completions: int) -> int:
    return completions - len(set(pairs.flatten().tolist()))


def _without_following(pairs: Tensor, completions: int) -> int:
    parent = list(range(completions))
    for one, other in pairs.tolist():
        parent[one] = min(parent[one], other)
        parent[other] = min(parent[other], one)
    return sum(parent[i] == i for i in range(completions))


def _case(pairs: list[list[int]], completions: int) -> Case:
    return Case({"pairs": torch.tensor(pairs), "completions": completions})


def _draw(generator: Generator) -> Case:
    n = integer(generator, 3, 9)
    m = integer(generator, 1, n)
    firsts = torch.randint(n, (m,), generator=generator)
    seconds = (firsts + torch.randint(1, n, (m,), generator=generator)) % n
    return Case({"pairs": torch.stack([firsts, seconds], dim=1), "completions": n})


FREE_NUMBERS = Exercise(
    id="rm-free-numbers",
    title="how many numbers are free?",
    concept="bradley-terry",
    minutes=10,
    difficulty="core",
    statement=r"""
    A data set has `completions` completions, of whatever prompts, and the comparisons `pairs` `[M, 2]` (a pair may come twice, some completions are
    in none). Write `my_free_numbers`: the number of directions in which the scores can move without any gap moving.
    """,
    solution=my_free_numbers,
    cases=(
        _case([[0, 1], [0, 2], [0, 3], [4, 5], [5, 6], [6, 7]], 8),
        _case([[0, 1], [1, 2], [2, 0]], 3),
        _case([[0, 1], [0, 1]], 3),
        _case([[0, 3], [1, 2], [2, 3]], 5),
        _case([[2, 3], [1, 2], [4, 5], [0, 5], [3, 4]], 6),
        _case([[0, 2], [1, 3], [2, 3]], 5),
    ),
    draw=_draw,
    mistakes=(
        Mistake(
            _one,
            "One is right only if a chain of comparisons connects any two completions.",
        ),
        Mistake(
            _minus_pairs,
            "A comparison takes away a free number only if it tells something new.",
        ),
        Mistake(
            _distinct_pairs,
            "Three comparisons among three completions: does the third gap follow from the others?",
        ),
        Mistake(_compared_alone, "What of a completion that is in no pair?"),
        Mistake(
            _never_compared,
            "This counts the completions in no pair. Groups that never meet are free, too.",
        ),
        Mistake(
            _without_following,
            "Follow chains to their end: a is compared with b, b with c.",
        ),
    ),
    where="Draw completions as points and comparisons as lines. Inside a connected piece only one constant is free.",
    idea="""
    Add a constant to all scores of one connected piece: no gap moves. So count the connected pieces, and a
    completion that is in no comparison is a piece of its own.
    """,
    outline="""
    Begin with every completion in a group of its own. Go through the pairs; for each one, give everything that
    carries the label of the one's group the label of the other's. After the last pair, count what is left. What is
    being counted?
    """,
    right=(
        "Right: the connected pieces of the graph of comparisons. Different prompts are never connected, so there are at least as many as "
        "prompts. A network shares weights and picks one of the solutions; which one, the pairs do not say."
    ),
)
