"""What stands out in the metrics of a run, the likely causes, and which section of the book explains each.

The rules and causes are data, `diagnosis.yml` beside this file; what is more than one number compared with a threshold
is a function here. The causes of a run are those of the rules that fire, in the order of the rules.

Only metrics are read, never the settings: a number that somebody has set may be right.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from math import inf, sqrt
from statistics import fmean, stdev
from typing import Any

import yaml

from rlhf_minimal.training.metrics import Metrics

LEAST = 10  # steps, below which nothing is said
DATA = yaml.safe_load(files("rlhf_minimal.extras").joinpath("diagnosis.yml").read_text(encoding="utf-8"))
CAUSES: dict[str, dict[str, str]] = DATA["causes"]


@dataclass(frozen=True)
class Finding:
    """A rule that fired: its name, the figures it rests on, and its causes, the likeliest first."""

    rule: str
    figures: str
    causes: tuple[str, ...]


class Series:
    """A run's metrics by name.

    Args:
        history: The metrics of every step, in order.
    """

    def __init__(self, history: Sequence[Metrics]):
        self.rows, self.span = history, max(5, len(history) // 5)  # steps of the beginning, and of the end

    def all(self, name: str) -> list[float]:
        """The metric in the steps that have it."""
        return [float(row[name]) for row in self.rows if name in row]

    def first(self, name: str) -> float:
        """Its mean over the first steps; 0 where no step has it."""
        return fmean(self.all(name)[: self.span] or [0.0])

    def last(self, name: str) -> float:
        """Its mean over the last steps; 0 where no step has it."""
        return fmean(self.all(name)[-self.span :] or [0.0])

    def rise(self, name: str) -> tuple[float, float]:
        """By how much the end is above the first three steps, and the same in standard errors of that difference."""
        begin, end = self.all(name)[:3], self.all(name)[-self.span :]  # three: what breaks a policy takes few steps
        risen, error = fmean(end) - fmean(begin), max(stdev(begin), stdev(end)) * sqrt(1 / 3 + 1 / self.span)
        return risen, risen / error if error else inf * risen if risen else 0.0


def compared(run: Series, metric: str, of: str = "all", above: float = -inf, below: float = inf) -> str | None:
    """The figures, if a metric is within two thresholds; None if it is not, or if the run does not have it."""
    if not run.all(metric):
        return None
    value = fmean(run.all(metric)) if of == "all" else getattr(run, of)(metric)
    return f"{metric} {value:.3g} (mean of {of} steps)" if above < value < below else None


def still(run: Series) -> str | None:
    """The norm of the weights is the same in every step."""
    norms = run.all("weight_norm")
    return f"weight_norm {norms[0]:.6g} in every step" if norms and min(norms) == max(norms) else None


def no_distance(run: Series) -> str | None:
    """A KL is 0 in every step."""
    zero = [name for name in ("kl_reference", "kl") if (xs := run.all(name)) and max(xs) < 1e-9]
    return f"{zero[0]} 0 in every step" if zero else None


def _gap(run: Series, low: float, high: float) -> str | None:
    """A gap in the first step, where the policy is still the start: how far from itself does the trainer find it?"""
    gap, kl = (run.all("gap") or [0.0])[0], (run.all("kl") or [0.0])[0]
    return f"gap {gap:.3g}, kl {kl:.1g} in the first step" if gap > 1e-3 and low <= kl < high else None


def gap_in_training(run: Series) -> str | None:
    """Without a gradient the trainer reads as the sampler wrote, with one it does not."""
    return _gap(run, -inf, 1e-4)


def gap_at_once(run: Series) -> str | None:
    """The trainer reads all completions a little differently."""
    return _gap(run, 1e-4, 0.5)


def other_tokens(run: Series) -> str | None:
    """The trainer finds the untrained policy far from itself."""
    return _gap(run, 0.5, inf)


def gap_later(run: Series) -> str | None:
    """They agree in the first step, and not later."""
    gaps = run.all("gap") or [0.0]
    return f"gap {gaps[0]:.1g} in the first step, later up to {max(gaps):.2g}" if gaps[0] <= 1e-3 < max(gaps) else None


def _no_difference(run: Series) -> str | None:
    dead = run.first("dead_groups")
    return f"dead_groups {dead:.2f}, reward {run.first('reward'):.3g} (first steps)" if dead > 0.9 else None


def nothing_earned(run: Series) -> str | None:
    """Hardly a group with a difference from the beginning on, and hardly a reward."""
    return _no_difference(run) if run.first("reward") < 0.02 else None


def all_the_same(run: Series) -> str | None:
    """Hardly a group with a difference from the beginning on, and rewards."""
    return _no_difference(run) if run.first("reward") >= 0.02 else None


def hole(run: Series) -> str | None:
    """The reward rises, and the verifier's verdict by less than a quarter of it."""
    (paid, sure), (right, _) = run.rise("reward"), run.rise("accuracy")
    return f"reward {paid:+.3f}, accuracy {right:+.3f}" if sure > 3 and paid > 0.02 and right < paid / 4 else None


def constant_values(run: Series) -> str | None:
    """The critic explains nothing and misleads in nothing: it says the same everywhere."""
    explained = run.all("explained_variance")[1:]
    return "explained_variance 0 in every step" if explained and max(map(abs, explained)) < 1e-4 else None


def shrinks(run: Series) -> str | None:
    """The weights' norm has lost 2 %."""
    norms = run.all("weight_norm") or [0.0]
    return f"weight_norm from {norms[0]:.4g} to {norms[-1]:.4g}" if norms[-1] < 0.98 * norms[0] else None


def entropy_rises(run: Series) -> str | None:
    """By more than a quarter of a nat, and by half."""
    before, after = run.first("entropy"), run.last("entropy")
    return f"entropy from {before:.2f} to {after:.2f} nats" if after > max(before + 0.25, 1.5 * before) else None


def falls(run: Series) -> str | None:
    """The reward falls by more than its noise."""
    risen, sure = run.rise("reward")
    return f"reward {risen:+.3f}, {-sure:.1f} standard errors" if sure < -3 and risen < -0.05 else None


def does_not_move(run: Series) -> str | None:
    """The policy stays where it began, and so does the reward."""
    (risen, sure), kl = run.rise("reward"), run.last("kl")
    return f"kl {kl:.2g} (last steps), reward {risen:+.3f}" if run.all("kl") and kl < 1e-3 and sure < 3 else None


def _saw(rule: dict[str, Any], run: Series) -> str | None:
    if "saw" in rule:
        function: Callable[[Series], str | None] = globals()[rule["saw"]]
        return function(run)
    return compared(run, **{name: rule[name] for name in ("metric", "of", "above", "below") if name in rule})


def diagnose(history: Sequence[Metrics]) -> list[Finding]:
    """The rules that fire, in their order.

    Args:
        history: The metrics of every step of a run.

    Raises:
        ValueError: If there are fewer than `LEAST` steps.

    Example:
        >>> steps = [{"step": i + 1, "gap": 0.2, "reward": 0.5, "accuracy": 0.5, "kl": 0.01} for i in range(10)]
        >>> [finding.rule for finding in diagnose(steps)]
        ['trainer and sampler disagree from the start']
    """
    if len(history) < LEAST:
        raise ValueError(f"the run has taken {len(history)} steps, and below {LEAST} nothing can be said: let it go on")
    if missing := [name for name in ("reward", "accuracy") if any(name not in row for row in history)]:
        raise ValueError(
            f"the metrics have no {missing[0]} in some step: is this the metrics.jsonl of the command train?"
        )
    run = Series(history)
    seen = [(rule, _saw(rule, run)) for rule in DATA["rules"]]
    return [Finding(rule["name"], figures, tuple(rule["causes"])) for rule, figures in seen if figures is not None]


def likely(findings: Sequence[Finding], most: int = 3) -> list[str]:
    """The likeliest causes of all findings together, each once.

    Args:
        findings: As `diagnose` returns them.
        most: How many.
    """
    return list(dict.fromkeys(cause for finding in findings for cause in finding.causes))[:most]
