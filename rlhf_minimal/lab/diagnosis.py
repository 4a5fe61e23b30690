"""What stands out in the metrics of a run, the likely causes, and which section of the book explains each.

The rules and causes are data, `diagnosis.yml` beside this file; what is more than one number compared with a threshold
is a function here. The causes of a run are those of the rules that fire, in the order of the rules.

Of the settings only the precision is read, which says how large an honest gap is, and the KL coefficient, a metric of
a step: any other number that somebody has set may be right.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from math import inf, isfinite, nan, sqrt
from statistics import fmean, stdev
from typing import Any

import yaml

from rlhf_minimal.metrics import Metrics

LEAST = 10  # steps, below which nothing is said
DATA = yaml.safe_load(files("rlhf_minimal.lab").joinpath("diagnosis.yml").read_text(encoding="utf-8"))
CAUSES: dict[str, dict[str, str]] = DATA["causes"]


@dataclass(frozen=True)
class Finding:
    """A rule that fired: its name, its figures, the reason for its threshold, and its causes, the likeliest first."""

    rule: str
    figures: str
    why: str
    causes: tuple[str, ...]


class Series:
    """A run's metrics by name.

    Args:
        history: The metrics of every step, in order.
        rounding: The largest gap that precision may leave between trainer and sampler.
    """

    def __init__(self, history: Sequence[Metrics], rounding: float = 1e-3):
        # span: steps of the beginning, and of the end
        self.rows, self.span, self.rounding = history, max(5, len(history) // 5), rounding

    def all(self, name: str) -> list[float]:
        """The metric in the steps that have it as a finite number."""
        return [float(row[name]) for row in self.rows if name in row and isfinite(row[name])]

    def first(self, name: str) -> float:
        """Its mean over the first steps; 0 where no step has it."""
        return fmean(self.all(name)[: self.span] or [0.0])

    def last(self, name: str) -> float:
        """Its mean over the last steps; 0 where no step has it."""
        return fmean(self.all(name)[-self.span :] or [0.0])

    def left(self, name: str) -> float:
        """Which share of the first steps' mean the last steps still have; all of it where there was none."""
        return self.last(name) / self.first(name) if self.first(name) else 1.0

    def lost(self, name: str) -> float:
        """By how much the last steps are below the best window of as many; 0 where there is no such window."""
        values, last = self.all(name), self.last(name)
        windows = (fmean(values[i : i + self.span]) for i in range(len(values) - self.span + 1))
        return max(windows, default=last) - last

    def rise(self, name: str) -> tuple[float, float]:
        """By how much the end is above the first three steps, and the same in standard errors of that difference.

        Below two values there is no such error: both are NaN then, which is above and below no threshold.
        """
        if len(self.all(name)) < 2:
            return nan, nan
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


def first_gap(run: Series, kind: int) -> str | None:
    """A gap in the first step, where the policy is still the start: how far from itself does the trainer find it?

    Of kind 0 it is not at all: it reads as the sampler wrote where no gradient is taken. Of kind 2 it is by half a nat.
    Between lies kind 1: a KL that comes of the same change as the gap is at least about half the gap's square. A run in
    which no KL was measured is of kind 1, too, which says the least.
    """
    gap, kl = (run.all("gap") or [0.0])[0], (run.all("kl") or [inf])[0]
    found = 1 if kl == inf else (kl >= 0.5) + (kl >= min(0.5, gap**2 / 10))
    moved = "not measured" if kl == inf else f"{kl:.1g}"
    return f"gap {gap:.3g}, kl {moved} in the first step" if gap > run.rounding and found == kind else None


def gap_later(run: Series) -> str | None:
    """They agree in the first step, and not later."""
    first, most = (run.all("gap") or [0.0])[0], max(run.all("gap") or [0.0])
    late = first <= run.rounding < most and most > 3 * first
    return f"gap {first:.1g} in the first step, later up to {most:.2g}" if late else None


def no_difference(run: Series, kind: int) -> str | None:
    """Hardly a group with a difference from the beginning on; of kind 0 and hardly a reward, of kind 1 and rewards."""
    dead, reward = run.first("dead_groups"), run.first("reward")
    found = dead > 0.9 and (reward >= 0.02) == kind
    return f"dead_groups {dead:.2f}, reward {reward:.3g} (first steps)" if found else None


def hole(run: Series) -> str | None:
    """The reward rises, and the verifier's verdict by less than a quarter of it.

    `gold` that is another number than the share of right completions is a score in its own units: if it rises by more
    than its noise, the reward rises for something.
    """
    if run.all("gold") not in ([], run.all("accuracy")) and run.rise("gold")[1] > 3:
        return None
    (paid, sure), right = run.rise("reward"), run.rise("accuracy")[0] if len(run.all("accuracy")) >= LEAST else inf
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
    function: Callable[..., str | None] = globals()[rule.get("saw", "compared")]
    return function(run, **{name: rule[name] for name in ("metric", "of", "above", "below", "kind") if name in rule})


def diagnose(history: Sequence[Metrics], rounding: float = 1e-3) -> list[Finding]:
    """The rules that fire, in their order. A rule whose metric the run does not have says nothing.

    Args:
        history: The metrics of every step of a run.
        rounding: The largest gap that precision may leave between trainer and sampler: 1e-3 is generous in float32; in
            bfloat16 about 2e-2.

    Raises:
        ValueError: If there are fewer than `LEAST` steps, or a step has no reward.

    Example:
        >>> steps = [{"step": i + 1, "gap": 0.2, "reward": 0.5, "accuracy": 0.5, "kl": 0.01} for i in range(10)]
        >>> [finding.rule for finding in diagnose(steps)]
        ['trainer and sampler disagree from the start']
    """
    if len(history) < LEAST:
        raise ValueError(f"the run has taken {len(history)} steps, and below {LEAST} nothing can be said: let it go on")
    if any("reward" not in row for row in history):
        raise ValueError("the metrics have no reward in some step: is this the metrics.jsonl of the command train?")
    run = Series(history, rounding)
    seen = [(rule, _saw(rule, run)) for rule in DATA["rules"]]
    return [Finding(rule["name"], saw, rule["why"], tuple(rule["causes"])) for rule, saw in seen if saw is not None]


def likely(findings: Sequence[Finding], most: int = 3) -> list[str]:
    """The likeliest causes of all findings together, each once.

    Args:
        findings: As `diagnose` returns them.
        most: How many.
    """
    return list(dict.fromkeys(cause for finding in findings for cause in finding.causes))[:most]
