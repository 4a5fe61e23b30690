"""What the figure on test-time scaling draws: accuracy against tokens a problem, by method, before and after training.

Everything comes from the record of `sampling_runs.py`, for its first 100 problems (beam search: 60). A method's point is the
mean over problems; where it has several seeds, over these as well. The interval draws problems again.
"""

from functools import cache
from typing import Any

import torch
from torch import Tensor

from rlhf_book import sampling

PROBLEMS = 100
SETS = {"all": (0, 99), "2 to 5": (2, 5), "6 to 9": (6, 9), "10 to 14": (10, 14)}
METHODS = {
    "pass": "one of n is right (pass@n)",
    "majority": "majority of n",
    "best": "best of n, outcome scorer",
    "vote": "vote of n, weighed by that scorer",
    "steps": "vote of n, weighed by a scorer of moves",
    "search": "beam search with that scorer of moves",
    "held": "answer held back, greedy",
}
DRAWS = 24  # choices of n completions that a vote is averaged over

Points = list[tuple[int, Tensor, Tensor]]  # n, tokens [P], right [P]


def _of_n(
    table: sampling.Completions, seeds: list[dict[str, Tensor]]
) -> dict[str, Points]:
    """Pass@n, votes and best of n of one model, from its completions and their scores."""
    K, cost = table.right.shape[1], table.tokens.double().mean(1)  # [P]
    right, answers = table.right, table.answers
    found: dict[str, Points] = {name: [] for name in ("pass", "majority")}
    for n in sampling.sizes(K):
        tokens = n * cost
        found["pass"].append((n, tokens, sampling.pass_at(n, right.sum(1), K)))
        plain = sampling.voted(n, answers, draws=DRAWS)
        found["majority"].append((n, tokens, plain))
        for name, scores in (one for own in seeds for one in own.items()):
            if name == "best":
                value = sampling.best_of(n, scores, right)
            else:
                value = sampling.voted(n, answers, scores.sigmoid(), draws=DRAWS)
            found.setdefault(name, []).append((n, tokens, value))
    return found


def _scores(prefix: str, seed: int) -> dict[str, Tensor]:
    """The scores that one seed's scorers gave to the first problems; those of moves have fewer seeds."""
    found: dict[str, Tensor] = {}
    for arm, name, methods in (
        ("outcome", "sum", ("best", "vote")),
        ("process", "min", ("steps",)),
    ):
        runs = sampling.runs_of(arm)
        if seed < len(runs) and prefix + name in runs[seed]:
            scores = sampling.scores_of(runs[seed], prefix + name)[:PROBLEMS]
            found |= dict.fromkeys(methods, scores)
    return found


def _searched() -> Points:
    """Beam search by the smallest of its scores, for each width and seed."""
    right = sampling.record()["answers"]
    points: Points = []
    for run in sampling.runs_of("search"):
        for name, found in run.items():
            if name.startswith("min "):
                pairs = zip(found["answers"].lower(), right, strict=False)
                hits = torch.tensor([float(a == b) for a, b in pairs]).double()
                tokens = torch.tensor(found["tokens"]).double()
                points.append((int(name[4]), tokens, hits))
    return points


def _held() -> Points:
    """The start's greedy completions whose answer is held back, by the number of tokens."""
    points: Points = []
    (run,) = sampling.runs_of("forced")
    for until, found in zip(sampling.record()["held"], run["greedy"], strict=True):
        hits = torch.tensor(sampling.numbers(found["right"])).double()
        tokens = torch.full_like(hits, found["tokens"])  # only their mean is recorded
        points.append((until, tokens, hits))
    return points


@cache
def points_of(model: str) -> dict[str, Points]:
    """All points of "start" or "trained": method -> its points; several seeds have several with one n.

    Example:
        >>> sorted(points_of("start"))
        ['best', 'held', 'majority', 'pass', 'search', 'steps', 'vote']
    """
    found: dict[str, Points] = {}
    if model == "start":
        table = _first(sampling.completions_of(sampling.runs_of("start")[0]))
        scorers = [
            _scores("", seed) for seed in range(len(sampling.runs_of("outcome")))
        ]
        found = _of_n(table, scorers) | {"search": _searched(), "held": _held()}
    else:
        for seed, run in enumerate(sampling.runs_of("trained")):
            scored = seed < len(sampling.runs_of("outcome"))
            scorers = [_scores("trained ", seed)] if scored else []
            table = _first(sampling.completions_of(run))
            for name, points in _of_n(table, scorers).items():
                found.setdefault(name, []).extend(points)
    return found


def _first(table: sampling.Completions) -> sampling.Completions:
    """The first problems of a table."""
    fields = (table.answers, table.right, table.sound, table.tokens)
    return sampling.Completions(*(x[:PROBLEMS] for x in fields))


@cache
def budget_table() -> dict[str, Any]:
    """The whole figure: `curves` [model][method][set], a list of [n, tokens, accuracy, low, high] each; its words.

    Example:
        >>> table = budget_table()
        >>> list(table["curves"])
        ['start', 'trained']
    """
    moves = sampling.moves()
    curves: dict[str, Any] = {}
    for model in ("start", "trained"):
        curves[model] = {}
        for method, points in points_of(model).items():
            sizes = sorted({n for n, _, _ in points})
            curves[model][method] = {
                name: [_point(n, points, moves, *ends) for n in sizes]
                for name, ends in SETS.items()
                if name == "all" or method != "held"
            }
    return {"curves": curves, "methods": METHODS, "sets": list(SETS)}


def _point(
    n: int, points: Points, moves: Tensor, low: int, high: int
) -> list[int | float]:
    """One point of a curve: its seeds together, for problems with so many moves."""
    own = [(tokens, right) for m, tokens, right in points if m == n]
    right = torch.stack([right for _, right in own]).mean(0)  # [P]
    tokens = torch.stack([tokens for tokens, _ in own]).mean(0)  # [P]
    size = moves[: len(right)]
    kept = (size >= low) & (size <= high)
    ends = sampling.interval(right[kept], 1000)
    shares = right[kept].mean().item(), *ends
    return [n, round(tokens[kept].mean().item(), 1), *(round(x, 3) for x in shares)]
