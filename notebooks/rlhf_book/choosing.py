"""The decision tree of the chapter on choosing: questions, leaves, and the recorded runs that speak for or against them.

One source: the chapter, its tests and the exercise read this file. A leaf names a row and the flags of `train` with which
its line runs; what holds of the row (cells, models held) is read off the row and written nowhere. A piece of evidence that
is ours names two arms of a record; its numbers are computed from the record each time.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from html import escape
from typing import Any

import torch
from torch import Tensor

from rlhf_minimal import ALGORITHMS, diff
from rlhf_minimal.evaluate import t_quantile
from rlhf_minimal.lab.export import trl_settings, verl_settings

from .records import read_record

BASE = "grpo"  # the row that the others are shown beside


@dataclass(frozen=True)
class Comparison:
    """Two arms of a record that were run with the same seeds.

    Args:
        record: File of `notebooks/results`, without its ending.
        arm: The one in question.
        against: The one it is compared with.
        measure: A number of each run.
        says: What was compared, in words.
        clean: Whether the two arms differ in one cell or setting alone.
        later: Whether the arm, or some of its seeds, were added when others had been seen.
        panel: Which question it belongs to.
    """

    record: str
    arm: str
    against: str
    measure: str
    says: str
    clean: bool = True
    later: bool = False
    panel: str = ""


@dataclass(frozen=True)
class Block:
    """Arms of a record that share task, start, completions and learning rate, and the plain one among them.

    Every arm is compared with the plain one. A block may lie inside another: its arms share a disturbance (a hole, old
    samples) that the outer block's do not have. Then all its arms, the plain one too, are also compared with the outer
    block's plain one.

    Args:
        record: File of `notebooks/results`, without its ending.
        measure: A number of each run, or a curve by completions, of which the end counts.
        panel: Which question it belongs to.
        against: The plain arm.
        says: What the block is, in words.
        plain: The plain arm in words; a plus at the end where it was added when others had been seen.
        arms: Every other arm, and it in words; at the end a star where it differs from the plain one in more than
            one cell or setting, a plus where it or some of its seeds were added when others had been seen, an equals
            sign where it differs from the outer block's plain one in the disturbance alone.
        inside: The outer block.
    """

    record: str
    measure: str
    panel: str
    against: str
    says: str
    plain: str
    arms: dict[str, str]
    inside: str = ""


JUDGE, WHOSE, BOUND, SCALE, LEARNED = PANELS = (
    "who judges",
    "whose samples",
    "bound of an update",
    "baseline, scale, critic, filter",
    "learned reward (gold units)",
)


def _lag(lag: str, says: str, arms: str, mark: str = "") -> Block:
    """One age of the samples: each way beside the ratio to the sampler, and all beside fresh samples."""
    words = {
        "blind": "as if fresh=",
        "truncated": "truncated*",
        "masked": "IcePop*+",
        "dppo": "DPPO*+",
        "unclipped": "no clip+",
        "sequence": "sequence mask*+",
        "narrow": "narrow mask*+",
        "wide": "wide clip+",
        "product": "product*+",
        "product-3": "product, 3 at most*+",
        "product-0-above-3": "product, 0 above 3*+",
    }
    number, _, slow = lag.partition("-")
    end = f"-{slow}" if slow else ""
    return Block(
        "lag-runs",
        "sampled",
        WHOSE,
        f"{number}-ratio{end}",
        says,
        f"ratio{mark}",
        {f"{number}-{way}{end}": words[way] + mark for way in arms.split()},
        f"fresh{end}",
    )


def _baselines(lr: str, arms: str) -> Block:
    words = {
        "centred": "mean of all",
        "batch": "batch mean",
        "pp-baseline": "whitening",
        "std": "RLOO ÷ spread",
        "std-others": "RLOO ÷ others' spread",
        "pp": "whitened returns",
    }
    return Block(
        "rloo-runs",
        "sampled",
        SCALE,
        f"rloo-{lr}",
        f"rate {lr}",
        "RLOO",
        {f"{arm}-{lr}": words[arm] for arm in arms.split()},
    )


END = 512  # completions, at the end of a curve by completions
# All arms of the records that a leaf uses, but for those in ELSEWHERE.
BLOCKS: dict[str, Block] = {
    "verifier": Block(
        "verifier-runs",
        "last_accuracy",
        JUDGE,
        "hidden",
        "programs",
        "sound",
        {
            "accepts": "lenient by lot",
            "fixed": "lenient, kept lot+",
            "rejects": "strict by lot",
            "both": "both by lot",
        },
    ),
    "hole": Block(
        "verifier-runs",
        "last_accuracy",
        JUDGE,
        "visible",
        "hole",
        "plain row",
        {
            "visible_kl": "KL+",
            "visible_z": "GRPO's scales*+",
            "spot": "one hidden test",
            "mended": "mended later*",
        },
        "verifier",
    ),
    "hole-long": Block(
        "verifier-runs",
        "last_accuracy",
        JUDGE,
        "visible_long",
        "hole, 80 steps",
        "plain row",
        {"visible_kl_long": "KL+"},
    ),
    "loose": Block(
        "verifier-runs",
        "last_accuracy",
        JUDGE,
        "strict",
        "clock",
        "strict",
        {"loose": "loose verifier"},
    ),
    "teacher": Block(
        "distillation-runs",
        "sampled",
        JUDGE,
        "rl",
        "teacher",
        "verifier",
        {
            "sampled": "row opd*",
            "to-go": "opd, summed*",
            "full": "full KL*",
            "cover": "forward KL*",
            "sft": "its samples*",
            "soft": "its samples, KL*",
            "rest": "top 3 and rest*+",
            "renormal": "top 3 of 1*+",
            "cut": "top 3 alone*+",
        },
    ),
    "fresh": Block("lag-runs", "sampled", WHOSE, "0", "addition", "fresh", {}),
    "fresh-slow": Block(
        "lag-runs",
        "sampled",
        WHOSE,
        "0-slow",
        "rate/4",
        "fresh",
        {"4-blind-slow": "4 old, as if fresh+"},
    ),
    "lag-1": _lag("1", "1 old", "blind truncated masked dppo", "+"),
    "lag-4": _lag("4", "4 old", "blind truncated masked dppo unclipped"),
    "lag-16": _lag(
        "16",
        "16 old",
        "blind truncated masked dppo unclipped sequence narrow wide"
        " product product-3 product-0-above-3",
    ),
    "lag-1-slow": _lag("1-slow", "1 old", "blind truncated", "+"),
    "lag-16-slow": _lag("16-slow", "16 old", "blind truncated", "+"),
    "updates-16": Block(
        "gate-runs",
        "sampled",
        BOUND,
        "clip",
        "16 updates",
        "clip",
        {
            "none": "no gate",
            "log-clip": "wide log clip",
            "gmpo": "GMPO*",
            "sapo": "SAPO",
            "sapo-steep": "SAPO, steep+",
            "cispo": "CISPO",
            "cispo-0.2": "CISPO, cap 0.2",
            "cispo-floor": "CISPO, floor+",
            "cispo-near": "CISPO, 0.8-1.2",
        },
    ),
    "updates-4": Block(
        "gspo-runs",
        "sampled",
        BOUND,
        "grpo",
        "4 updates",
        "clip",
        {
            "none": "no gate",
            "gspo-paper": "GSPO*",
            "gspo-wide": "GSPO, wide*",
            "gspo-grpo-band": "GSPO, 0.2",
        },
    ),
    "clock-4": Block(
        "clock-runs",
        "last_accuracy",
        BOUND,
        "band-token",
        "clock, 4 updates",
        "clip",
        {
            "band-none": "no gate+",
            "band-paper": "GSPO*+",
            "band-wide": "GSPO, wide*+",
        },
    ),
    "experts": Block(
        "replay-runs",
        "sampled",
        BOUND,
        "experts-grpo",
        "experts",
        "GRPO",
        {
            "experts-gspo": "GSPO's ratio",
            "experts-r2": "routing replay",
            "experts-balance": "balance loss",
        },
    ),
    "dense": Block(
        "replay-runs",
        "sampled",
        BOUND,
        "dense-grpo",
        "the same, dense",
        "GRPO",
        {"dense-gspo": "GSPO's ratio"},
    ),
    "baseline": _baselines("0.001", "centred batch pp-baseline pp std std-others"),
    "baseline-slow": _baselines("0.0003", "centred batch pp-baseline"),
    "baseline-fast": _baselines("0.002", "centred batch pp-baseline"),
    "divisor": Block(
        "clock-runs",
        "last_accuracy",
        SCALE,
        "divisor-own",
        "divisor, clock",
        "own length",
        {"divisor-tokens": "all tokens+", "divisor-constant": "constant+"},
    ),
    "dapo": Block(
        "dapo-runs",
        "accuracy",
        SCALE,
        "dapo",
        "clock",
        "DAPO",
        {
            "no-higher": "clip 0.2 above",
            "no-filter": "no filter",
            "no-token": "mean of means",
            "no-overlong": "no shaped reward",
            "prompt": "mean by prompt",
            "none": "none of its parts*",
        },
    ),
    "critic": Block(
        "clock-runs",
        "last_accuracy",
        SCALE,
        "group",
        "clock",
        "group",
        {"critic-1": "critic, λ 1*+", "critic-0.95": "critic, λ .95*+"},
    ),
    "paid": Block(
        "clock-runs",
        "last_accuracy",
        SCALE,
        "paid-position",
        "clock, paid moves",
        "group",
        {"paid-critic-1": "critic, λ 1*+", "paid-critic-0.95": "critic, λ .95*+"},
    ),
    "rlhf": Block(
        "rlhf-runs",
        "gold",
        LEARNED,
        "grpo",
        "reviews",
        "GRPO",
        {
            "ppo": "PPO*",
            "ppo-wide": "PPO, one a prompt*",
            "no-critic": "no baseline*",
            "rloo": "RLOO*",
        },
    ),
    "pairs": Block(
        "pair-runs",
        "gold",
        LEARNED,
        "dpo",
        "reviews",
        "DPO",
        {
            "online": "online DPO*",
            "reward-rl": "reward model + RL*",
            "gold-rl": "gold reward + RL*",
        },
    ),
}
# Arms of the same records that are no choice of a leaf.
ELSEWHERE: dict[str, dict[str, str]] = {
    "verifier-runs": {"coin": "a control"},
    "distillation-runs": {
        "coin": "a control",
        "rest-long": "four times the steps",
        "cut-long": "four times the steps",
    },
    "rloo-runs": {"coin-0.001": "a control"},
    "lag-runs": {
        "1-unclipped": "recorded after the comparisons were counted: off-policy in depth"
    },
    "dapo-runs": {
        "coin": "a control",
        **dict.fromkeys(
            ("higher", "bonus", "once", "high"),
            "against a loss of entropy: the chapter on DAPO",
        ),
    },
    "pair-runs": {"coin": "a control"},
    "replay-runs": {"experts": "a start, not trained", "dense": "a start, not trained"},
    "rlhf-runs": {
        "first": "without KL: another reward model, not another row",
        "more": "without KL: another reward model, not another row",
        "again": "without KL: another reward model, not another row",
        "fresh": "without KL: another reward model, not another row",
        "price": "measures seconds",
    },
    "clock-runs": {
        "growth": "one arm, to see lengths grow",
        "coin": "a control",
        **dict.fromkeys(
            ("outcome", "future", "own", "blame", "fine", "marks"),
            "marks for steps: the chapter on process rewards",
        ),
    },
}


# What the words of the list mean, a question each.
NAMES = (
    "**Judges.** *By lot*: wrong verdicts on as many programs as the hole has, by chance; *lenient* passes wrong ones, *strict* fails right ones. *Mended later*: the hole for twenty steps, then the sound verifier. *Teacher*: losses towards a better model on the student's samples or on *its* own; *summed*: with the gaps of later tokens; *top 3*: over the teacher's three likeliest tokens, *and rest*: all others as one, *of 1*: divided by their sum.",
    "**Samples.** *Ratio*: to the sampler, clipped. *Truncated*: each token is weighted by that ratio, 2 at most. *IcePop*: left out if it is below .5 or above 2; *narrow mask*: .8 to 1.2. *DPPO*: left out once the probability has gone .2 too far. *Sequence mask*: bad completions that have become unlikely are left out. *Wide clip*: .5 to 2. *Product*: each completion is weighted by the product of its tokens' ratios, *3 at most* or *0 above 3*.",
    "**Gates**, for a good token at ratio 1.6. *Clip*: no gradient; *log clip* and *GMPO* have wider bounds (GMPO a geometric mean). *SAPO* fades: weight 1.46; *steep*, .02. *CISPO* caps the weight and never stops: 1.6; *cap 0.2*, *floor* (.8). *Routing replay* uses the experts picked earlier; *balance loss* spreads tokens over them.",
    "**Baselines.** *Batch mean*: of all rewards of the batch. *Whitening*: group's mean, then the batch's spread; *whitened returns*: without groups. *λ*: of GAE, for a critic; *paid moves* earn at once. *Mean of means*, *mean by prompt*: how tokens are averaged.",
)
# Records that a leaf mentions and whose numbers are not compared here.
NOT_HERE = {
    "dr-grpo-runs": "lengths, which are no score",
    "row-benchmark": "rows that differ in several cells, with a correction of their own",
}


def scores_of(record: str, arm: str, measure: str) -> dict[int, float]:
    """Seed -> score of an arm: a number of the run, or the mean of a curve's end."""
    return {
        run["seed"]: _score(run, measure) for run in _runs(record) if run["arm"] == arm
    }


@cache
def _runs(record: str) -> list[dict[str, Any]]:
    read = read_record(record)
    assert read is not None, f"nothing is recorded under {record}"
    return list(read["runs"])


def _score(run: dict[str, Any], measure: str) -> float:
    if not isinstance(run[measure], list):
        return float(run[measure])
    drawn = run["samples"]
    kept = [x for n, x in zip(drawn, run[measure], strict=True) if n > drawn[-1] - END]
    return sum(kept) / len(kept)


def _repeats() -> dict[tuple[str, str], str]:
    """Record and arm -> the earlier arm of that record whose score it has with every seed: one measurement, not two."""
    found: dict[tuple[str, str], str] = {}
    seen: dict[tuple[str, tuple[float, ...]], str] = {}
    for block in BLOCKS.values():
        for arm in (block.against, *block.arms):
            got = scores_of(block.record, arm, block.measure)
            key = block.record, tuple(got[seed] for seed in sorted(got))
            first = seen.setdefault(key, arm)
            if first != arm:
                found[block.record, arm] = first
    return found


def _pair(
    block: Block, arm: str, says: str, against: str, plain: str, clean: bool
) -> Comparison:
    words = says.rstrip("*+=")
    return Comparison(
        block.record,
        arm,
        against,
        block.measure,
        f"{words} − {plain.rstrip('+')}",
        clean,
        "+" in says[len(words) :],
        block.panel,
    )


def by_the_rule() -> dict[str, Comparison]:
    """Block/arm -> that arm beside the plain one: all of them, but for repeats."""
    every: dict[str, Comparison] = {}
    for name, block in BLOCKS.items():
        outside = f"{BLOCKS[block.inside].says}: " if block.inside else ""
        for arm, says in block.arms.items():
            every[f"{name}/{arm}"] = _pair(
                block,
                arm,
                f"{outside}{block.says}{',' if outside else ':'} {says}",
                block.against,
                block.plain,
                "*" not in says,
            )
        if block.inside:
            outer = BLOCKS[block.inside]
            for arm, says in {block.against: f"{block.plain}=", **block.arms}.items():
                every[f"{block.inside}/{arm}"] = _pair(
                    block,
                    arm,
                    f"{outer.says}: {block.says}, {says}",
                    outer.against,
                    outer.plain,
                    "=" in says,
                )
    return {
        name: one for name, one in every.items() if (one.record, one.arm) not in REPEATS
    }


REPEATS = _repeats()
COMPARISONS = by_the_rule()


@dataclass(frozen=True)
class Found:
    """A comparison's differences, paired by seed.

    Attributes:
        differences: [seeds] arm minus the other.
        mean: Their mean.
        half: Half the width of its 95 % interval, by Student's t.
        separated: All of one sign, and the interval leaves 0 out.
    """

    differences: Tensor
    mean: float
    half: float
    separated: bool


def paired(comparison: Comparison) -> Found:
    """What a record says of two arms.

    Example:
        >>> paired(COMPARISONS["verifier/visible"]).separated
        True
    """
    arms = [
        scores_of(comparison.record, arm, comparison.measure)
        for arm in (comparison.arm, comparison.against)
    ]
    if not arms[0] or arms[0].keys() != arms[1].keys():
        raise ValueError(
            f"{comparison.arm} and {comparison.against} lack the same seeds"
        )
    return found_in(
        torch.tensor([arms[0][seed] - arms[1][seed] for seed in sorted(arms[0])])
    )


def shown(found: dict[str, Found], panel: str) -> list[str]:
    """Three comparisons of a question for a figure: by size the largest difference, the middle one and the smallest.

    They are taken among those that differ in one thing, or among all where there is none. Of an even number the middle
    is the larger of two.

    Example:
        >>> [COMPARISONS[name].arm for name in shown({n: paired(c) for n, c in COMPARISONS.items()}, WHOSE)]
        ['16-blind', '1-blind', '1-blind-slow']
    """
    names = [name for name in found if COMPARISONS[name].panel == panel]
    names = [name for name in names if COMPARISONS[name].clean] or names
    names.sort(key=lambda name: -abs(found[name].mean))
    return [names[0], names[(len(names) - 1) // 2], names[-1]]


def found_in(differences: Tensor) -> Found:
    """The interval of paired differences, and whether they are separated from 0."""
    d = differences.double()
    half = t_quantile(len(d) - 1) * d.std().item() / len(d) ** 0.5
    one_sign = bool((d > 0).all() or (d < 0).all())
    return Found(d, d.mean().item(), half, one_sign and abs(d.mean().item()) > half)


@dataclass(frozen=True)
class Evidence:
    """What speaks for a leaf.

    Args:
        kind: "ours", with the names of comparisons of this very leaf; "of a neighbour", comparisons of ours that are about
            something else; "paper", with what it reports and at which scale; or "none".
        says: In words.
        comparisons: Names in COMPARISONS.
    """

    kind: str
    says: str
    comparisons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Leaf:
    """Where the questions end.

    Args:
        id: Stable.
        title: What you have, in a few words.
        row: A row of the table of algorithms or, with `pairwise`, of the table of pairs; None where none helps.
        because: Why this row.
        settings: What to set first, in words.
        short: Why this row, in one line of the table.
        begin: The setting to begin with, in one line of the table.
        flags: Of `train`, for the line that runs.
        runs: Whether the command line can make this situation.
        exports: The libraries to which `export` can write that run.
        by_hand: What the lines do not do, and what to set in TRL or verl.
        evidence: What speaks for it.
        pairwise: Whether the row is one of the second table, which `prefer` trains.
    """

    id: str
    title: str
    row: str | None
    because: str
    settings: str
    short: str
    begin: str
    flags: str = ""
    runs: bool = True
    by_hand: str = ""
    exports: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    pairwise: bool = False

    @property
    def lines(self) -> tuple[str, ...]:
        """The commands: a run of this row, and its export."""
        if self.row is None or not self.runs:
            return ()
        if self.pairwise:
            return (f"python -m rlhf_minimal prefer {self.row} --out runs/{self.id}",)
        train = f"python -m rlhf_minimal train {self.row} {self.flags}".rstrip()
        return (
            f"{train} --out runs/{self.id}",
            *(
                f"python -m rlhf_minimal export runs/{self.id} --to {to}"
                for to in self.exports
            ),
        )

    @property
    def holds(self) -> str:
        """The models in memory, by what the row needs."""
        if self.row is None or self.pairwise:
            return "policy, reference" if self.pairwise else "-"
        needs = ALGORITHMS[self.row].needs
        if "--teacher" in self.flags:
            return "policy, teacher"
        _, asked, rest = f"{self.flags} ".partition("--kl-coef ")
        kl = float(rest.split()[0]) > 0 if asked else "ref_logp" in needs
        names = ["policy"]
        names += ["critic"] if "values" in needs else []
        names += ["reference"] if kl else []
        return ", ".join(names)

    @property
    def cells(self) -> str:
        """The cells in which the row differs from BASE."""
        if self.row is None or self.pairwise:
            return "-"
        return diff(BASE, self.row) or f"none: this is {BASE}"


@dataclass(frozen=True)
class Question:
    """A question, and what follows from each answer."""

    id: str
    asks: str
    answers: dict[str, "Question | Leaf"] = field(default_factory=dict)


BY_VERIFIER = (
    "The export writes runs that are paid by the task's own verifier, and this one is not. "
    "Export the row from a run with a verifier, and put your reward in there by hand."
)
PAIRS = Leaf(
    "pairs",
    "pairs, and no reward to ask",
    "dpo",
    "The loss needs no reward model and no sampling while it learns. If you can sample and have new pairs judged, do that before you tune beta.",
    "beta 0.1; watch the log-prob of the chosen completions, which falls, too",
    "no reward model is fitted, and nothing is sampled while it learns",
    "beta 0.1; watch the log-prob of the chosen completions",
    by_hand='Our export does not write losses of pairs. TRL has this one: DPOTrainer with loss_type="sigmoid" and beta=0.1.',
    evidence=(
        Evidence(
            "ours",
            "fresh pairs beside a fixed set, true score on the shipped reviews",
            ("pairs/online",),
        ),
        Evidence(
            "ours",
            "against this row: of the same fixed pairs a reward model, and RL on it",
            ("pairs/reward-rl",),
        ),
        Evidence(
            "paper",
            "Xu et al. (arXiv 2404.10719): a well-set PPO above DPO on dialogue and code, 7 to 34 billion weights",
        ),
    ),
    pairwise=True,
)
CRITIC = Leaf(
    "learned-critic",
    "a learned reward, room for a critic",
    "ppo",
    "The usual recipe with a learned reward. Take it if you have it running; nothing of ours says that the critic pays here. Its clip also serves several updates a batch.",
    "KL to the start from the first step on, its coefficient by a sweep; stop by a score that is not trained for",
    "the usual recipe; nothing of ours says that the critic pays",
    "a KL from the first step on, its coefficient by a sweep",
    flags="--task reviews --reward-model shipped",
    by_hand=f"{BY_VERIFIER} verl has this row; TRL 1.16 has no trainer with a critic to which we export.",
    evidence=(
        Evidence(
            "ours",
            "true score on the shipped reviews",
            ("rlhf/ppo", "rlhf/ppo-wide", "rlhf/no-critic"),
        ),
        Evidence(
            "paper",
            "Ouyang et al. (arXiv 2203.02155), up to 175 billion weights: the recipe, without this comparison",
        ),
    ),
)
GROUPS = Leaf(
    "learned-groups",
    "a learned reward, no room for a critic",
    "rloo",
    "No critic is held. The KL penalty stays: the reward can be over-optimised, whatever the baseline.",
    "one update a batch, since this row has no ratio and no gate (with several take ppo's ratio, clip and KL in the reward with a group's baseline; the row grpo as it stands, with its KL in the loss, over-optimised in our comparison at all four rates); groups of 4 to 8; stop by a score that is not trained for",
    "no critic is held; the reward can still be over-optimised",
    "keep the KL; one update a batch, groups of 4 to 8",
    flags="--task reviews --reward-model shipped",
    by_hand=f"{BY_VERIFIER} TRL and verl have this row.",
    evidence=(
        Evidence(
            "ours",
            "true score on the shipped reviews, with ppo's KL and clip",
            ("rlhf/rloo",),
        ),
        Evidence(
            "paper",
            "Ahmadian et al. (arXiv 2402.14740): RLOO above PPO on TL;DR and HH, up to 7 billion weights",
        ),
    ),
)
TEACHER = Leaf(
    "teacher",
    "a better model with the same vocabulary",
    "opd",
    "A teacher says something about every token; a verifier says one number about all of them.",
    "the student's own samples; full distributions where both models fit, which is another loss than this row",
    "a teacher says something about every token",
    "samples that the student writes itself",
    flags="--start untrained --teacher shipped",
    by_hand="The line begins untrained, the recorded runs did not. Our export does not write this row. TRL 1.16 has a DistillationTrainer, whose beta=1 is the KL over the whole vocabulary and not this row.",
    evidence=(
        Evidence(
            "ours",
            "this row beside a verifier, at equal completions, on addition; each arm at its own rate",
            ("teacher/sampled",),
        ),
        Evidence(
            "of a neighbour",
            "full distributions, which this row does not use",
            ("teacher/full",),
        ),
        Evidence(
            "paper",
            "Qwen3 (arXiv 2505.09388), 8 billion weights: above RL at about a tenth of the GPU hours",
        ),
    ),
)
NOTHING = Leaf(
    "never",
    "a verifier, and a start that never succeeds",
    None,
    "Every group is all wrong, every advantage 0. No row mends that: demonstrations, a teacher, easier prompts or a reward in steps do.",
    "measure pass@k of the start, k as large as your groups, before anything else",
    "all rewards are equal, so no row has a gradient",
    "measure pass@k; then demonstrations, a teacher, easier prompts or rewards in steps",
    evidence=(
        Evidence("none", "follows from the advantage: equal rewards give no gradient"),
    ),
)
LEAKY = Leaf(
    "leaky",
    "a program that checks less than you mean",
    "grpo",
    "First mend the verifier: one hidden test a program, drawn anew, gave the very runs of the sound verifier. Until then keep a penalty to the start, which brought back more than half.",
    "KL coefficient by a score that is not trained for, over a factor of 30",
    "what it passes wrongly is learnt; a KL brought back more than half",
    "mend the program; until then KL 0.04, swept over a factor of 30",
    flags="--task stack:tests=visible --kl-coef 0.04 --group-size 8",
    by_hand=f'The recorded runs have dr_grpo with this penalty, replace(ALGORITHMS["dr_grpo"], kl=ALGORITHMS["grpo"].kl); the command line changes the KL of rows that have one, so the line has grpo. {BY_VERIFIER}',
    evidence=(
        Evidence(
            "ours",
            "programs with a hole in their tests",
            (
                "verifier/visible",
                "verifier/visible_kl",
                "hole/visible_kl",
                "hole/visible_z",
                "hole/mended",
            ),
        ),
    ),
)
FRESH = Leaf(
    "fresh",
    "fresh samples, short completions",
    "rloo",
    "With one update a batch every ratio is 1: gates do nothing, and what is left is the baseline. The mean of the whole batch scored higher in our runs, by little; it assumes that prompts are equally hard.",
    "no KL; groups of 4 to 16; then the learning rate, by a sweep",
    "every ratio is 1, so gates do nothing, and the baseline is left",
    "no KL, groups of 4 to 16; then sweep the learning rate",
    flags="--kl-coef 0",
    by_hand="Where both carry their KL, ppo and this row could not be told apart (the comparison of all rows). The line trains without a KL.",
    exports=("trl", "verl"),
    evidence=(
        Evidence(
            "ours",
            "baselines and scales on addition, three learning rates",
            (
                "baseline/batch-0.001",
                "baseline-slow/batch-0.0003",
                "baseline-fast/batch-0.002",
                "baseline/pp-baseline-0.001",
                "baseline-fast/pp-baseline-0.002",
                "baseline/std-0.001",
                "baseline/std-others-0.001",
            ),
        ),
        Evidence(
            "of a neighbour",
            "a critic on the clock, 1.6 times as long: ahead in one of its two settings, and not after the correction for all comparisons",
            ("critic/critic-1", "critic/critic-0.95"),
        ),
    ),
)
LONG = Leaf(
    "long",
    "fresh samples, long completions of unequal length",
    "dr_grpo",
    "No division by a completion's own length, which makes long wrong completions cheap.",
    "a budget that few completions meet; watch the lengths of right and wrong ones apart",
    "dividing by a completion's own length makes long wrong ones cheap",
    "a budget of tokens that few completions meet",
    flags="--task clock",
    by_hand="The recorded comparison changes the divisor alone; this row also leaves the spread out.",
    exports=("trl", "verl"),
    evidence=(
        Evidence(
            "ours",
            "accuracy on the clock; that lengths differ is shown in the chapter on Dr. GRPO",
            ("divisor/divisor-constant", "divisor/divisor-tokens"),
        ),
        Evidence(
            "paper",
            "Liu et al. (arXiv 2503.20783), 1.5 and 7 billion weights: shorter wrong completions, similar accuracy",
        ),
    ),
)
DEAD = Leaf(
    "dead",
    "fresh samples, most groups all right or all wrong",
    "dapo",
    "Groups without a signal are drawn again, so each update has a full batch. It costs completions.",
    "count completions, not steps, when you compare",
    "groups without a signal are drawn again, so batches stay full",
    "its filter; compare by completions and not by steps",
    by_hand="The filter is the reason of this leaf; read below what an export leaves out of it. Easier or harder prompts are the other way out.",
    exports=("trl", "verl"),
    evidence=(
        Evidence(
            "ours",
            "at equal completions, on the clock: the filter taken out, and all four parts",
            ("dapo/no-filter", "dapo/none"),
        ),
        Evidence(
            "paper",
            "Yu et al. (arXiv 2503.14476), 32 billion weights, AIME 2024: parts added one by one, no spread reported",
        ),
    ),
)
UPDATES = Leaf(
    "updates",
    "several updates a batch, a dense model",
    "grpo",
    "At sixteen updates a batch a clip was ahead of none, at four it was not told from none. The plain clip is a good first gate; none of ours is shown to be better.",
    "no KL; clip 0.2",
    "at sixteen updates a clip was ahead of none; no gate was shown to be better",
    "no KL, clip 0.2",
    flags="--kl-coef 0 --minibatches 4",
    exports=("trl", "verl"),
    evidence=(
        Evidence(
            "ours",
            "at 4 updates a batch, as in the line, on addition and on the clock; in the comparison of all rows on addition no row with a clip is ahead of reinforce, which has no bound",
            ("updates-4/none", "clock-4/band-none"),
        ),
        Evidence(
            "ours",
            "at 16 updates a batch, on addition (--epochs 4 --minibatches 4)",
            (
                "updates-16/none",
                "updates-16/gmpo",
                "updates-16/sapo",
                "updates-16/sapo-steep",
                "updates-16/cispo",
            ),
        ),
    ),
)
EXPERTS = Leaf(
    "experts",
    "several updates a batch, a mixture of experts",
    "gspo",
    "A change of experts moves single tokens' ratios far; a mean over the completion hardly sees it. Routing replay with the plain row is the alternative; our runs tell neither from doing nothing.",
    "a band by the share that is clipped: 3e-4 and 4e-4 belong to long completions, since with n tokens a ratio's noise shrinks with the root of n",
    "single tokens' ratios jump with the experts, their mean over a completion hardly",
    "a band set by the share that is clipped",
    runs=False,
    by_hand='The command line sets no band and ships no experts, so there is no line. In Python: replace(ALGORITHMS["gspo"], gate=partial(gates.clip, low=0.03, high=0.04)), a hundred times the paper\'s, for a dozen tokens. In TRL importance_sampling_level="sequence" with epsilon and epsilon_high, in verl policy_loss.loss_mode=gspo with clip_ratio_low and clip_ratio_high.',
    evidence=(
        Evidence(
            "ours",
            "16 experts, 0.4 million weights",
            ("experts/experts-gspo", "experts/experts-r2"),
        ),
        Evidence(
            "of a neighbour",
            "dense models and short completions: the paper's band and a wide one",
            (
                "updates-4/gspo-paper",
                "updates-4/gspo-wide",
                "clock-4/band-paper",
                "clock-4/band-wide",
            ),
        ),
        Evidence(
            "paper",
            "the authors of the row, Zheng et al. (arXiv 2507.18071), Qwen3-30B-A3B: GSPO trains without routing replay, GRPO needs it",
        ),
    ),
)
STALE = Leaf(
    "stale",
    "samples that are some steps old",
    "grpo",
    "Keep the sampler's log-probs and take the ratio to them: the clip then corrects and bounds in one. At sixteen steps it saves most of what is lost otherwise, not all. On completions of five tokens their product, 3 at most, saved more; on long ones it is too noisy.",
    "no KL; one update a batch, old log-probs from the sampler; a clip of 0.5 below and 1 above if samples are very old; a lower learning rate also helps",
    "the ratio to the sampler corrects, and the clip bounds",
    "old log-probs from the sampler, no KL, one update a batch",
    flags="--kl-coef 0",
    runs=False,
    by_hand="train draws fresh samples and has no lag, so there is no line, and an export of grpo would not do it. In TRL 1.16 GRPOTrainer does not keep the sampler's log-probs for its ratio; the experimental AsyncGRPOTrainer does (max_staleness, epsilon, epsilon_high). In verl set algorithm.rollout_correction.bypass_mode=True, with clip_ratio_low and clip_ratio_high; else the trainer computes the old log-probs anew.",
    evidence=(
        Evidence(
            "ours",
            "samples 1, 4 and 16 steps old on addition, with the ratio and as if fresh; at 16 other bounds, and the product over a completion, beside the ratio's clip",
            (
                "fresh/1-ratio",
                "fresh/1-blind",
                "fresh/4-ratio",
                "fresh/4-blind",
                "fresh/16-ratio",
                "fresh/16-blind",
                "fresh-slow/1-blind-slow",
                "fresh-slow/16-ratio-slow",
                "fresh-slow/16-blind-slow",
                "lag-16/16-wide",
                "lag-16/16-dppo",
                "lag-16/16-sequence",
                "lag-16/16-product-3",
            ),
        ),
    ),
)
ENGINE = Leaf(
    "engine",
    "another engine samples than trains",
    "icepop",
    "The two disagree on a few tokens by much. Leave those out, and look for the reason. Cutting their weight (truncation) is the usual alternative.",
    "band 0.5 to 2 first; log the share that is left out",
    "the two disagree by much on a few tokens, which are left out",
    "band 0.5 to 2; log the share that is left out",
    by_hand="The line runs the row, but here one engine samples and trains, so that no token is left out; the exports set the correction.",
    exports=("trl", "verl"),
    evidence=(
        Evidence("none", "of ours: no run has a second engine"),
        Evidence(
            "of a neighbour",
            "old samples, another disturbance, where the plain ratio to the sampler was better",
            (
                "lag-1/1-masked",
                "lag-4/4-masked",
                "lag-16/16-masked",
                "lag-16/16-truncated",
            ),
        ),
        Evidence(
            "paper",
            "Ling Team (arXiv 2510.18855), a trillion weights, mixture of experts; the band is that of GLM-5 (2602.15763, equation 1)",
        ),
    ),
)

LENGTHS = Question(
    "lengths",
    "What do your groups look like?",
    {
        "short completions, groups with both right and wrong": FRESH,
        "long completions, of very unequal length": LONG,
        "most groups are all right or all wrong": DEAD,
    },
)
SAMPLES = Question(
    "samples",
    "Whose samples do you train on?",
    {
        "the policy's own, one update each": LENGTHS,
        "the policy's own, several updates": Question(
            "mixture",
            "Is the model a mixture of experts?",
            {"no": UPDATES, "yes": EXPERTS},
        ),
        "some steps old (the sampler runs ahead)": STALE,
        "another engine's": ENGINE,
    },
)
TREE = Question(
    "judge",
    "Who says what is good?",
    {
        "a program": Question(
            "program",
            "Does the program check what you mean, and does your start ever pass?",
            {"both": SAMPLES, "it has holes": LEAKY, "the start never passes": NOTHING},
        ),
        "a learned reward model": Question(
            "memory",
            "Is there memory for a critic of the policy's size (16 bytes a weight)?",
            {"yes": CRITIC, "no": GROUPS},
        ),
        "pairs of completions": PAIRS,
        "a better model": TEACHER,
    },
)


def leaves(node: "Question | Leaf" = TREE) -> Iterator[Leaf]:
    """Every leaf, in the order of the tree."""
    if isinstance(node, Leaf):
        yield node
    else:
        for answer in node.answers.values():
            yield from leaves(answer)


def follow(*answers: str, node: "Question | Leaf" = TREE) -> Leaf:
    """The leaf at the end of some answers.

    Raises:
        ValueError: an answer that the question does not have, or too few or too many of them.

    Example:
        >>> follow("a learned reward model", "no").row
        'rloo'
    """
    for answer in answers:
        if isinstance(node, Leaf):
            raise ValueError(
                f"{node.title!r} is the end; {answer!r} is one answer too many"
            )
        if answer not in node.answers:
            raise ValueError(
                f"{node.asks} {answer!r} is none of {', '.join(node.answers)}"
            )
        node = node.answers[answer]
    if isinstance(node, Question):
        raise ValueError(
            f"one more answer, please: {node.asks} {', '.join(node.answers)}"
        )
    return node


def number(found: Found) -> str:
    """A difference with its interval, and what it separates; a third digit where two would hide which is larger."""
    said = "separated" if found.separated else "not separated"
    one_sign = bool((found.differences > 0).all() or (found.differences < 0).all())
    if not found.separated and abs(found.mean) > found.half:
        said += " (beyond 0, but both signs)"
    elif not found.separated and one_sign:
        said += " (all seeds of one sign, but the interval includes 0)"
    digits = 2 if abs(abs(found.mean) - found.half) >= 0.005 else 3
    mean = round(found.mean, digits) + 0.0  # no minus before a 0
    return f"{mean:+.{digits}f} ± {found.half:.{digits}f}, {said}"


def tree_table(node: "Question | Leaf" = TREE) -> str:
    """The tree as one table: a line a question, indented, and a row where the answers end."""
    heads = ("what you have", "row", "why", "begin with")
    cell = (
        "text-align:left; vertical-align:top; white-space:normal; padding:0.2em 0.5em"
    )
    head = "".join(f"<th scope='col' style='{cell}'>{name}</th>" for name in heads)
    body = "".join(_lines_html(node, "", 0, cell))
    table = "font-size:0.92em; border-collapse:collapse"
    return f"<table style='{table}'><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _lines_html(
    node: "Question | Leaf", answer: str, depth: int, cell: str
) -> Iterator[str]:
    indented = f"{cell}; padding-left:{0.5 + 1.1 * max(depth - 1, 0):.1f}em"
    if isinstance(node, Leaf):
        row = (
            f"<code style='white-space:nowrap'>{node.row}</code>"
            if node.row
            else "none"
        )
        rest = (row, escape(node.short), escape(node.begin))
        answer += f": {node.title}" if answer in ("yes", "no") else ""
        cells = "".join(f"<td style='{cell}'>{text}</td>" for text in rest)
        yield f"<tr><td style='{indented}'>{escape(answer)}</td>{cells}</tr>"
        return
    said = f"<b>{escape(answer)}.</b> " if answer else ""
    asks = f"{said}<i>{escape(node.asks)}</i>"
    yield f"<tr><td colspan='4' style='{indented}'>{asks}</td></tr>"
    for given, then in node.answers.items():
        yield from _lines_html(then, given, depth + 1, cell)


def tree_html(node: "Question | Leaf" = TREE) -> str:
    """The tree as nested details: it opens by click, tap, Enter or space, and needs no script."""
    if isinstance(node, Leaf):
        return _leaf_html(node)
    parts = [f"<p><b>{escape(node.asks)}</b></p>"]
    for answer, then in node.answers.items():
        parts.append(
            "<details style='margin-left:0.8em'>"
            f"<summary style='padding:0.2em 0'>{escape(answer)}</summary>{tree_html(then)}</details>"
        )
    return "".join(parts)


def export_differs(leaf: Leaf, library: str) -> str:
    """What the library does differently with the leaf's row, as the export says it."""
    assert leaf.row is not None
    row = replace(ALGORITHMS[leaf.row], kl=())
    told = trl_settings(row) if library == "trl" else verl_settings(row, budget=32)
    return " ".join(told.differs)


def _leaf_html(leaf: Leaf) -> str:
    facts = [("row", f"<code>{leaf.row}</code>" if leaf.row else "none")]
    facts.append(("why", escape(leaf.because)))
    if leaf.row and not leaf.pairwise:
        facts.append((f"cells beside {BASE}", f"<code>{escape(leaf.cells)}</code>"))
    if leaf.row:
        facts.append(("holds", escape(leaf.holds)))
    facts.append(("set first", escape(leaf.settings)))
    for line in leaf.lines:
        facts.append(
            (
                "run" if "export" not in line else "export",
                f"<code>{escape(line)}</code>",
            )
        )
    for library in leaf.exports:
        if told := export_differs(leaf, library):
            facts.append((f"{library} differs", escape(told)))
    if leaf.by_hand:
        facts.append(("not in a line", escape(leaf.by_hand)))
    for one in leaf.evidence:
        numbers = "; ".join(
            f"{COMPARISONS[name].says}: {number(paired(COMPARISONS[name]))}"
            for name in one.comparisons
        )
        facts.append(
            (
                f"evidence, {one.kind}",
                escape(one.says + (f" ({numbers})" if numbers else "")),
            )
        )
    items = "".join(f"<li><i>{name}:</i> {text}</li>" for name, text in facts)
    return f"<ul style='overflow-wrap:anywhere'>{items}</ul>"
