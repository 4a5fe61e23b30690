"""What stands out in the metrics of a run, the likely causes, and which section of the book explains each.

A rule is a row of `RULES`: a name, a function of the run's `Series` that says what it saw or nothing, and causes with
the likeliest first. Rules stand in order of how little else could explain them: first quantities that a healthy loop
holds at a known value (a gap of 0, a trained share of 1), last what many bugs have in common (the reward falls). The
run's causes are those of the rules that fire, in that order.

Only metrics are read, never the settings: a number that somebody has set may be right.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, sqrt
from statistics import fmean, stdev

from rlhf_minimal.training.metrics import Metrics

LEAST = 10  # steps, below which nothing is said


@dataclass(frozen=True)
class Cause:
    """What may be wrong.

    Attributes:
        what: In words.
        test: What would tell whether it is this.
        section: The chapter and the section that explain it.
    """

    what: str
    test: str
    section: str


@dataclass(frozen=True)
class Finding:
    """A rule that fired: its name, the figures it rests on, and its causes, the likeliest first."""

    rule: str
    figures: str
    causes: tuple[str, ...]


CAUSES: dict[str, Cause] = {
    "verifier-raises": Cause(
        "the verifier raises or hangs", "call it on ten completions by hand", "rlvr: 3. From scratch"
    ),
    "weights-frozen": Cause(
        "the optimiser holds other weights, or its rate is 0",
        "compare the ids of the optimiser's and the policy's parameters",
        "from-zero: 6. The loop",
    ),
    "reference-aliased": Cause(
        "the reference is the policy itself, or follows it",
        "after a step, compare a weight of both",
        "kl-divergence: 8. In practice",
    ),
    "padding-trained": Cause(
        "padding, prompts or tool outputs are trained",
        "print the trained tokens of one row",
        "language-models: 6. Which tokens count",
    ),
    "end-untrained": Cause(
        "the last token of a completion is not trained",
        "print the trained tokens of one row that ended",
        "language-models: 6. Which tokens count",
    ),
    "logp-shifted": Cause(
        "the trainer reads the log-probs of other tokens",
        "recompute one row by hand, token by token",
        "from-zero: 4. The log-probability of what was sampled",
    ),
    "temperature": Cause(
        "sampler and trainer use different temperatures",
        "set both to 1: the gap should vanish",
        "off-policy: 1. Whose log-probs?",
    ),
    "dropout": Cause(
        "dropout is on while training",
        "read one batch twice: the log-probs should be equal",
        "off-policy: 1. Whose log-probs?",
    ),
    "precision": Cause(
        "sampler and trainer compute with other kernels or digits",
        "read one batch in float32 in both",
        "off-policy: 7. In practice",
    ),
    "stale-sampler": Cause(
        "the sampler lags behind the trainer",
        "copy the weights before each rollout: the gap should vanish",
        "off-policy: 1. Whose log-probs?",
    ),
    "advantage-sign": Cause(
        "the advantage has the wrong sign",
        "print rewards and advantages of one group",
        "grpo: 4. One batch by hand",
    ),
    "rewards-misplaced": Cause(
        "rewards or advantages belong to other completions",
        "print the text, its reward and its advantage in one line",
        "grpo: 3. From scratch",
    ),
    "groups-mixed": Cause(
        "groups hold completions of several prompts",
        "the advantages of a prompt should sum to 0",
        "grpo: 4. One batch by hand",
    ),
    "budget": Cause(
        "the token budget ends completions early", "double it and look at `truncated`", "dapo: 9. In practice"
    ),
    "never-right": Cause(
        "the verifier accepts nothing, or the problems are too hard",
        "give it a right answer; sample 64 times",
        "rlvr: 2. Symbols, and kinds of verifiers",
    ),
    "reward-constant": Cause(
        "the reward is the same for all",
        "score one right and one wrong completion",
        "dapo: 3. Dynamic sampling: what it keeps, and its price",
    ),
    "reward-hole": Cause(
        "the reward pays for something else", "read twenty completions with a high reward", "rlvr: 1. Why it exists"
    ),
    "leash": Cause("the KL coefficient is too large", "divide it by 10", "kl-divergence: 7. Does it hold a policy?"),
    "critic-frozen": Cause("the critic is not trained", "does `value_loss` fall on one batch?", "gae: 7. In practice"),
    "weight-decay": Cause("weight decay shrinks the weights", "set it to 0", "scaling-up: 8. In practice"),
    "entropy-bonus": Cause(
        "the entropy bonus outweighs the reward",
        "set it to 0",
        "dapo-in-depth: The pull of an entropy bonus",
    ),
    "rate-high": Cause("the learning rate is too large", "divide it by 10", "scaling-up: 8. In practice"),
    "ratio-inverted": Cause(
        "a sign or the ratio is inverted in the loss",
        "after one update, are good tokens likelier?",
        "ppo-clip: 1. The objective, and its six cases",
    ),
    "rate-low": Cause("the learning rate is too small", "multiply it by 10", "scaling-up: 8. In practice"),
}


class Series:
    """A run's metrics by name; NaN-free, since a folder refuses to hold such numbers.

    Args:
        history: The metrics of every step, in order.
    """

    def __init__(self, history: Sequence[Metrics]):
        self.rows, self.span = history, max(5, len(history) // 5)  # steps of the beginning, and of the end

    def all(self, name: str) -> list[float]:
        """The metric in the steps that have it."""
        return [row[name] for row in self.rows if name in row]

    def first(self, name: str) -> float:
        """Its mean over the first steps; 0 where no step has it."""
        return fmean(self.all(name)[: self.span] or [0.0])

    def last(self, name: str) -> float:
        """Its mean over the last steps; 0 where no step has it."""
        return fmean(self.all(name)[-self.span :] or [0.0])

    def mean(self, name: str) -> float:
        """Its mean over all steps; NaN-free: 0 where no step has it."""
        return fmean(self.all(name) or [0.0])

    def rise(self, name: str) -> tuple[float, float]:
        """By how much the end is above the beginning, and that in standard errors of the difference."""
        xs = self.all(name)
        begin, end = xs[: self.span], xs[-self.span :]
        risen = fmean(end) - fmean(begin)
        error = sqrt((stdev(begin) ** 2 + stdev(end) ** 2) / self.span)
        return risen, risen / error if error else inf * (risen > 0) - inf * (risen < 0) if risen else 0.0


@dataclass(frozen=True)
class Rule:
    """One thing that may stand out.

    Attributes:
        name: What stands out.
        saw: Given the run, the figures if it does, else None.
        causes: Names of `CAUSES`, the likeliest first.
        why: Why the threshold is what it is.
    """

    name: str
    saw: Callable[[Series], str | None]
    causes: tuple[str, ...]
    why: str


def _when(holds: bool, figures: str) -> str | None:
    return figures if holds else None


def _sees(name: str, holds: Callable[[float], bool], of: str = "mean") -> Callable[[Series], str | None]:
    """A rule on one number of one metric: its mean, or its mean over the first or the last steps."""

    def saw(run: Series) -> str | None:
        if not run.all(name):
            return None
        value = getattr(run, of)(name)
        return _when(holds(value), f"{name} {value:.3g} ({'all' if of == 'mean' else of} steps)")

    return saw


def _still(run: Series) -> str | None:
    norms = run.all("weight_norm")
    return _when(bool(norms) and min(norms) == max(norms), f"weight_norm {norms[0] if norms else 0:.6g} in every step")


def _no_distance(run: Series) -> str | None:
    for name in ("kl_reference", "kl"):
        if (xs := run.all(name)) and max(xs) < 1e-9:
            return f"{name} 0 in every step"
    return None


def _gap_at_once(run: Series) -> str | None:
    gaps = run.all("gap") or [0.0]
    return _when(gaps[0] > 1e-3, f"gap {gaps[0]:.3g} in the first step")


def _gap_later(run: Series) -> str | None:
    gaps = run.all("gap") or [0.0]
    return _when(gaps[0] <= 1e-3 < max(gaps), f"gap {gaps[0]:.3g} in the first step, later up to {max(gaps):.3g}")


def _nothing_earned(run: Series) -> str | None:
    dead, reward = run.first("dead_groups"), run.first("reward")
    return _when(dead > 0.9 and reward < 0.02, f"reward {reward:.3g}, dead_groups {dead:.2f} (first steps)")


def _all_the_same(run: Series) -> str | None:
    dead, reward = run.first("dead_groups"), run.first("reward")
    return _when(dead > 0.9 and reward >= 0.02, f"reward {reward:.3g}, dead_groups {dead:.2f} (first steps)")


def _hole(run: Series) -> str | None:
    if not run.all("accuracy"):
        return None
    (paid, sure), (right, _) = run.rise("reward"), run.rise("accuracy")
    return _when(sure > 3 and paid > 0.02 and right < 0.25 * paid, f"reward {paid:+.3f}, accuracy {right:+.3f}")


def _constant_values(run: Series) -> str | None:
    explained = run.all("explained_variance")[1:]
    return _when(bool(explained) and max(map(abs, explained)) < 1e-4, "explained_variance 0 in every step")


def _shrinks(run: Series) -> str | None:
    if not (norms := run.all("weight_norm")):
        return None
    return _when(norms[-1] < 0.98 * norms[0], f"weight_norm from {norms[0]:.4g} to {norms[-1]:.4g}")


def _entropy_rises(run: Series) -> str | None:
    before, after = run.first("entropy"), run.last("entropy")
    return _when(after > before + 0.5, f"entropy from {before:.2f} to {after:.2f} nats")


def _falls(run: Series) -> str | None:
    risen, sure = run.rise("reward")
    return _when(sure < -3 and risen < -0.05, f"reward {risen:+.3f}, {-sure:.1f} standard errors")


def _does_not_move(run: Series) -> str | None:
    (risen, sure), kl = run.rise("reward"), run.last("kl")
    return _when(bool(run.all("kl")) and kl < 1e-3 and sure < 3, f"kl {kl:.2g} (last steps), reward {risen:+.3f}")


RULES: tuple[Rule, ...] = (
    Rule(
        "the verifier fails",
        _sees("verifier_errors", lambda errors: errors > 0),
        ("verifier-raises",),
        "a verifier that works never raises",
    ),
    Rule("the weights stay as they are", _still, ("weights-frozen",), "any step of Adam changes them"),
    Rule(
        "no distance is ever measured",
        _no_distance,
        ("reference-aliased", "weights-frozen"),
        "between two policies it is above 0; equal ones show rounding, 1e-12",
    ),
    Rule(
        "more is trained than was sampled",
        _sees("trained", lambda share: share > 1.001),
        ("padding-trained",),
        "1 exactly",
    ),
    Rule(
        "less is trained than was sampled",
        _sees("trained", lambda share: share < 0.999),
        ("end-untrained",),
        "1 exactly",
    ),
    Rule(
        "trainer and sampler disagree from the start",
        _gap_at_once,
        ("temperature", "logp-shifted", "dropout", "precision"),
        "float32 leaves 1e-7, bfloat16 1e-2 at most: then look at precision first",
    ),
    Rule(
        "trainer and sampler drift apart",
        _gap_later,
        ("stale-sampler", "precision"),
        "as above; both begin with the same weights",
    ),
    Rule(
        "advantages against rewards",
        _sees("agreement", lambda r: r < -0.2),
        ("advantage-sign", "rewards-misplaced"),
        "+1 but for lengths, values and penalties",
    ),
    Rule(
        "a group's advantages do not sum to 0",
        _sees("between", lambda share: share > 0.05),
        ("groups-mixed", "rewards-misplaced"),
        "0 but for rounding",
    ),
    Rule(
        "advantages without relation to rewards",
        _sees("agreement", lambda r: -0.2 <= r < 0.5),
        ("rewards-misplaced", "groups-mixed"),
        "0.9 and more in healthy runs",
    ),
    Rule(
        "completions are cut off",
        _sees("truncated", lambda share: share > 0.5, "first"),
        ("budget", "end-untrained"),
        "most of what is written can earn nothing",
    ),
    Rule(
        "nothing is earned",
        _nothing_earned,
        ("never-right", "budget"),
        "nine of ten groups without a difference: no gradient to speak of",
    ),
    Rule("all earn the same", _all_the_same, ("reward-constant", "never-right"), "as above"),
    Rule(
        "reward rises without accuracy",
        _hole,
        ("reward-hole", "reward-constant"),
        "3 standard errors; a quarter of the gain should be true",
    ),
    Rule(
        "the KL coefficient is large",
        _sees("kl_coef", lambda coef: coef >= 0.5),
        ("leash",),
        "0.001 to 0.1 is usual",
    ),
    Rule("values are constant", _constant_values, ("critic-frozen",), "any update of the critic changes them"),
    Rule(
        "the weights shrink",
        _shrinks,
        ("weight-decay", "rate-high"),
        "healthy steps make the norm grow, by 1e-3 here",
    ),
    Rule(
        "entropy rises",
        _entropy_rises,
        ("entropy-bonus", "rate-high", "ratio-inverted"),
        "healthy runs lose it or gain 0.1",
    ),
    Rule(
        "far from the start",
        _sees("kl", lambda kl: kl > 2, "last"),
        ("rate-high", "ratio-inverted", "leash"),
        "nats per token; 0.1 to 0.8 where these tasks are learnt",
    ),
    Rule(
        "reward falls",
        _falls,
        ("ratio-inverted", "rate-high", "advantage-sign"),
        "3 standard errors, the trend that no sampling noise has",
    ),
    Rule(
        "nothing moves",
        _does_not_move,
        ("rate-low", "leash", "weights-frozen"),
        "nats per token; one step at a usual rate gives more",
    ),
)


def diagnose(history: Sequence[Metrics]) -> list[Finding]:
    """The rules that fire, in their order.

    Args:
        history: The metrics of every step of a run.

    Raises:
        ValueError: If there are fewer than `LEAST` steps.

    Example:
        >>> steps = [{"step": i + 1, "gap": 0.2, "reward": 0.5} for i in range(10)]
        >>> [finding.rule for finding in diagnose(steps)]
        ['trainer and sampler disagree from the start']
    """
    if len(history) < LEAST:
        raise ValueError(f"the run has taken {len(history)} steps, and nothing can be said below {LEAST}: let it go on")
    run = Series(history)
    return [Finding(rule.name, seen, rule.causes) for rule in RULES if (seen := rule.saw(run)) is not None]


def likely(findings: Sequence[Finding], most: int = 3) -> list[str]:
    """The likeliest causes of all findings together, each once.

    Args:
        findings: As `diagnose` returns them.
        most: How many.
    """
    return list(dict.fromkeys(cause for finding in findings for cause in finding.causes))[:most]
