"""The recorded runs that speak for or against the leaves of the tree in `choosing.py`: blocks of arms, and their comparisons.

A piece of evidence that is ours names two arms of a record; its numbers are computed from the record each time.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from rlhf_minimal.evaluate import t_quantile

from .records import read_record


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
