"""Recorded runs of a chapter as a picture of a model that learns, drawn when the page is built, with its words.

Lines, caption and alternative text are made from the file under notebooks/results/, so they follow a new recording. It
is drawn with the page's own colour, in light and in dark. On a page: `{learning-picture}`, in book/_ext/figures.py.
"""

from dataclasses import dataclass
from html import escape
from statistics import mean

from data_files import read, using
from recorded_runs import path_of

ENDS = 5  # steps at the end whose mean is told
WIDTH, HEIGHT = 640, 310
LEFT, RIGHT, TOP, BOTTOM = 68, 12, 34, 46  # around the axes
WORDS = 0.4, 0.09  # of the axes: the width and height that words beside a line need, on a phone, too
CHECKED, COIN = "checked", "coin"


@dataclass(frozen=True)
class Curves:
    """The share of right completions, [seeds][steps], of two arms with the same seeds."""

    checked: list[list[float]]
    coin: list[list[float]]
    completions: int
    replaced: tuple[float, ...] = ()  # where the runs end that the record says were replaced

    @property
    def steps(self):
        return len(self.checked[0])

    @property
    def first(self):
        return mean(mean(run[:ENDS]) for run in self.checked)

    @property
    def last(self):
        return mean(self.ends)

    @property
    def last_coin(self):
        return mean(mean(run[-ENDS:]) for run in self.coin)

    @property
    def ends(self):
        """Where the runs with a reward for being right end, the lowest first."""
        return sorted(mean(run[-ENDS:]) for run in self.checked)

    @property
    def stray(self):
        """How many of them end nearer to the start than to the best; 0 unless they are a minority."""
        start = mean(run[0] for run in self.checked)  # sampled before anything is learned
        low = sum(end < (start + self.ends[-1]) / 2 for end in self.ends)
        return low if low < len(self.ends) / 2 else 0

    @property
    def seeds(self):
        return f"{len(self.checked)} seeds" if len(self.checked) > 1 else "one seed"

    def told(self):
        """What the numbers say."""
        return (
            f"The share of right completions is {self.first:.2f} in the first {ENDS} steps and {self.last:.2f} in the "
            f"last {ENDS} (mean of {self.seeds}{self.parted()}). If a coin decides the reward, it ends at "
            f"{self.last_coin:.2f}.{self.not_drawn()}"
        )

    def parted(self):
        """What a mean over seeds hides, where some of them end far below the others."""
        if not self.stray:
            return ""
        low, high = self.ends[: self.stray], self.ends[self.stray :]
        named = " and ".join(f"{end:.2f}" for end in low)
        return f": {len(high)} end at {high[0]:.2f} or above, and {len(low)} at {named}"

    def not_drawn(self):
        """What the reader does not see: the starts that were replaced."""
        if not self.replaced:
            return ""
        ends = " and ".join(f"{end:.2f}" for end in self.replaced)
        was = "start that was" if len(self.replaced) == 1 else "starts that were"
        return f" Not drawn: {len(self.replaced)} {was} replaced by the next seed, ending at {ends}."

    def alt(self):
        """For a reader who does not see it."""
        direction = "rises" if self.last > self.first else "falls"
        return (
            f"Two curves over {self.steps} training steps: the share of completions that are right. With a reward for "
            f"being right it {direction} from {self.first:.2f} to {self.last:.2f} on average over "
            f"{self.seeds}{self.parted()}. With a reward from a coin it ends at {self.last_coin:.2f}."
        )


def curves_of(record, arm, control):
    """The two arms of a record, without the seeds that it says were replaced by others."""
    shown = [run for run in record["runs"] if str(run["seed"]) not in record.get("replaced", {})]
    runs = {name: {run["seed"]: run["right"] for run in shown if run["arm"] == name} for name in (arm, control)}
    known = ", ".join(sorted({run["arm"] for run in record["runs"]}))
    for name, found in runs.items():
        if not found:
            raise ValueError(f"no run has the arm {name!r}; there are {known}")
        if len({len(right) for right in found.values()}) != 1 or not min(map(len, found.values())):
            raise ValueError(f"the runs of {name!r} have different numbers of steps")
    if runs[arm].keys() != runs[control].keys():
        raise ValueError(f"{arm!r} and {control!r} should have the same seeds")
    completions = record["completions_a_step"]
    shares = [[[count / completions for count in found[seed]] for seed in sorted(found)] for found in runs.values()]
    if not all(0 <= value <= 1 for runs_of_arm in shares for run in runs_of_arm for value in run):
        raise ValueError(f"a count of right completions is not between 0 and {completions}")
    stuck = [r["right"][-ENDS:] for r in record["runs"] if r["arm"] == arm and r not in shown]
    return Curves(*shares, completions, tuple(mean(right) / completions for right in stuck))


def word_at(own, other):
    """The share at which an arm's words stand, on their lower edge: beside its mean, where few lines run.

    The words are nearer to the mean of their own arm than to the other's, so that nobody takes them for the other's.

    Args:
        own: [seeds][steps] the arm's curves.
        other: Those of the other arm.
    """
    width, height = WORDS
    first = min(int(len(own[0]) * (1 - width)), len(own[0]) - 1)
    mine, yours = (mean(mean(run[first:]) for run in runs) for runs in (own, other))
    values = [value for run in (*own, *other) for value in run[first:]]

    def distance(low, share):
        return abs(low + height / 2 - share)

    def cost(low):
        covered = sum(low < value < low + height for value in values) / len(values)
        return distance(low, mine) + 2 * covered

    places = [place / 100 for place in range(1, 100 - int(100 * height))]
    return min([low for low in places if distance(low, mine) <= distance(low, yours)] or places, key=cost)


def svg(curves):
    """The picture: a thin line a seed, a thick one for the mean, and words beside the lines."""
    steps = max(curves.steps, len(curves.coin[0]))

    def x(step):
        return LEFT + (WIDTH - LEFT - RIGHT) * step / max(steps - 1, 1)

    def y(share):
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - share)

    def line(values, kind):
        points = " ".join(f"{x(step):.1f},{y(value):.1f}" for step, value in enumerate(values))
        return f'<polyline class="{kind}" points="{points}"/>'

    parts = []
    for share in (0, 0.25, 0.5, 0.75, 1):
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(share):.1f}" y2="{y(share):.1f}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y(share) + 5:.1f}" text-anchor="end">{share:.0%}</text>')
    for step in range(0, steps + 1, 20 if steps <= 100 else 50):
        if step:
            parts.append(f'<text x="{x(step - 1):.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{step}</text>')
    parts.append(f'<text x="{LEFT - 8 - 42}" y="18">completions that are right</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(
        f'<text x="{middle:.0f}" y="{HEIGHT - 6}" text-anchor="middle">training step ({curves.completions} completions '
        "each)</text>"
    )
    for runs, kind in ((curves.coin, COIN), (curves.checked, CHECKED)):
        parts += [line(run, f"run {kind}") for run in runs]
        parts.append(line([mean(values) for values in zip(*runs, strict=True)], f"mean {kind}"))
    words = {CHECKED: "reward: is it right?", COIN: "reward: a coin"}
    runs = {CHECKED: curves.checked, COIN: curves.coin}
    for kind, other in ((CHECKED, COIN), (COIN, CHECKED)):
        height = y(word_at(runs[kind], runs[other]))
        parts.append(
            f'<text class="{kind}" x="{WIDTH - RIGHT}" y="{height:.1f}" text-anchor="end">{words[kind]}</text>'
        )
    return (
        f'<svg class="learning" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(curves.alt())}">'
        f"{''.join(parts)}</svg>"
    )


def drawn(name, arm, control):
    """The picture of a record under notebooks/results/, and what is said below it."""
    path = path_of(name)
    with using(path):
        curves = curves_of(read(path), arm, control)
    return svg(curves), curves.told()
