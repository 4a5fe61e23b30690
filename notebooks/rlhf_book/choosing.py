"""The decision tree of the chapter on choosing: questions, leaves, and the recorded runs that speak for or against them.

One source: the chapter, its tests and the exercise read this file. A leaf names a row and the flags of `train` with which
its line runs; what holds of the row (cells, models held) is read off the row and written nowhere. A piece of evidence that
is ours names two arms of a record; its numbers are computed from the record each time.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape

import torch
from torch import Tensor

from rlhf_minimal import ALGORITHMS, diff
from rlhf_minimal.training.metrics import student

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
    """

    record: str
    arm: str
    against: str
    measure: str
    says: str
    clean: bool = True


COMPARISONS: dict[str, Comparison] = {
    "critic-or-group": Comparison(
        "clock-runs", "critic-1", "group", "last_accuracy", "critic − group", False
    ),
    "loo-or-batch": Comparison(
        "rloo-runs", "rloo-0.001", "pp-baseline-0.001", "sampled", "RLOO − whitening"
    ),
    "spread": Comparison(
        "rloo-runs", "std-0.001", "centred-0.001", "sampled", "÷ group spread − not"
    ),
    "divisor": Comparison(
        "clock-runs",
        "divisor-constant",
        "divisor-own",
        "last_accuracy",
        "÷ constant − ÷ own length",
    ),
    "clip": Comparison("gate-runs", "clip", "none", "sampled", "clip − no gate"),
    "gmpo": Comparison("gate-runs", "gmpo", "clip", "sampled", "GMPO − clip", False),
    "sapo": Comparison("gate-runs", "sapo", "clip", "sampled", "SAPO − clip"),
    "sapo-steep": Comparison(
        "gate-runs", "sapo-steep", "clip", "sampled", "SAPO, steep − clip"
    ),
    "gspo-dense": Comparison(
        "gspo-runs", "gspo-paper", "grpo", "sampled", "GSPO − GRPO, dense", False
    ),
    "gspo-band": Comparison(
        "clock-runs",
        "band-paper",
        "band-token",
        "last_accuracy",
        "GSPO, its band − token clip",
        False,
    ),
    "gspo-wide": Comparison(
        "clock-runs",
        "band-wide",
        "band-token",
        "last_accuracy",
        "GSPO, wide band − token clip",
        False,
    ),
    "gspo-experts": Comparison(
        "replay-runs",
        "experts-gspo",
        "experts-grpo",
        "sampled",
        "GSPO − GRPO, experts",
        False,
    ),
    "replay": Comparison(
        "replay-runs",
        "experts-r2",
        "experts-grpo",
        "sampled",
        "routing replay − none",
    ),
    "lag-1": Comparison(
        "lag-runs", "1-ratio", "1-blind", "sampled", "1 step old: ratio − none"
    ),
    "lag-16": Comparison(
        "lag-runs", "16-ratio", "16-blind", "sampled", "16 steps old: ratio − none"
    ),
    "dppo": Comparison(
        "lag-runs", "16-dppo", "16-ratio", "sampled", "16 old: DPPO − ratio", False
    ),
    "dppo-wide": Comparison(
        "lag-runs", "16-dppo", "16-wide", "sampled", "16 old: DPPO − wide clip", False
    ),
    "icepop": Comparison(
        "lag-runs", "16-masked", "16-blind", "sampled", "16 old: IcePop − none"
    ),
    "hole": Comparison(
        "verifier-runs", "visible", "hidden", "last_accuracy", "hole − sound verifier"
    ),
    "hole-kl": Comparison(
        "verifier-runs", "visible_kl", "visible", "last_accuracy", "hole: KL − no KL"
    ),
    "teacher": Comparison(
        "distillation-runs", "full", "rl", "sampled", "teacher − verifier", False
    ),
}
# The same on the shipped reviews, whose true score is no share; its unit is the gold model's.
GOLD: dict[str, Comparison] = {
    "gold-critic": Comparison("rlhf-runs", "ppo", "grpo", "gold", "PPO − GRPO", False),
    "gold-rloo": Comparison("rlhf-runs", "rloo", "grpo", "gold", "RLOO − GRPO", False),
    "gold-online": Comparison(
        "pair-runs", "online", "dpo", "gold", "online − offline DPO", False
    ),
    "gold-reward": Comparison(
        "pair-runs", "reward-rl", "dpo", "gold", "reward model + RL − DPO", False
    ),
}


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
        >>> paired(COMPARISONS["hole"]).separated
        True
    """
    record = read_record(comparison.record)
    assert record is not None, f"nothing is recorded under {comparison.record}"
    arms = [
        {
            run["seed"]: run[comparison.measure]
            for run in record["runs"]
            if run["arm"] == arm
        }
        for arm in (comparison.arm, comparison.against)
    ]
    if not arms[0] or arms[0].keys() != arms[1].keys():
        raise ValueError(
            f"{comparison.arm} and {comparison.against} lack the same seeds"
        )
    return found_in(
        torch.tensor([arms[0][seed] - arms[1][seed] for seed in sorted(arms[0])])
    )


def found_in(differences: Tensor) -> Found:
    """The interval of paired differences, and whether they are separated from 0."""
    d = differences.double()
    half = student(len(d) - 1) * d.std().item() / len(d) ** 0.5
    one_sign = bool((d > 0).all() or (d < 0).all())
    return Found(d, d.mean().item(), half, one_sign and abs(d.mean().item()) > half)


@dataclass(frozen=True)
class Evidence:
    """What speaks for a leaf.

    Args:
        kind: "ours", with the names of comparisons; "paper", with what it reports and at which scale; or "none".
        says: In words.
        comparisons: Names in COMPARISONS or GOLD.
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
        flags: Of `train`, for the line that runs.
        exports: The libraries to which `export` can write it.
        evidence: What speaks for it.
        pairwise: Whether the row is one of the second table, which `prefer` trains.
    """

    id: str
    title: str
    row: str | None
    because: str
    settings: str
    flags: str = ""
    exports: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    pairwise: bool = False

    @property
    def lines(self) -> tuple[str, ...]:
        """The commands: a run of this row, and its export."""
        if self.row is None:
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
        without_kl = "--kl-coef 0 " in f"{self.flags} " and "values" not in needs
        names = ["policy", "critic" if "values" in needs else ""]
        names.append("reference" if "ref_logp" in needs and not without_kl else "")
        return ", ".join(name for name in names if name)

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


PAIRS = Leaf(
    "pairs",
    "pairs, and no reward to ask",
    "dpo",
    "The loss needs no reward model and no sampling while it learns. If you can sample and have new pairs judged, do that before you tune beta.",
    "beta 0.1; watch the log-prob of the chosen completions, which falls, too",
    evidence=(
        Evidence(
            "ours",
            "fresh pairs beat a fixed set on the shipped reviews",
            ("gold-online", "gold-reward"),
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
    "The oldest recipe with a learned reward. Take it if you have it running; nothing of ours says that the critic pays here.",
    "KL to the start from the first step on, its coefficient by a sweep; stop by a score that is not trained for",
    exports=("verl",),
    evidence=(
        Evidence("ours", "true score on the shipped reviews", ("gold-critic",)),
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
    "Two models instead of three. The KL penalty stays: the reward can be over-optimised, whatever the baseline.",
    "groups of 4 to 8; KL to the start; stop by a score that is not trained for",
    exports=("trl", "verl"),
    evidence=(
        Evidence("ours", "true score on the shipped reviews", ("gold-rloo",)),
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
    "the student's own samples; full distributions where both models fit",
    flags="--start untrained --teacher shipped",
    evidence=(
        Evidence("ours", "at equal completions, on addition", ("teacher",)),
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
    evidence=(
        Evidence("none", "follows from the advantage: equal rewards give no gradient"),
    ),
)
LEAKY = Leaf(
    "leaky",
    "a program that checks less than you mean",
    "grpo",
    "First mend the verifier: one hidden test is worth more than any row. Until then keep a penalty to the start.",
    "KL coefficient by a score that is not trained for, over a factor of 30",
    flags="--kl-coef 0.1",
    exports=("trl", "verl"),
    evidence=(
        Evidence("ours", "programs with a hole in their tests", ("hole", "hole-kl")),
    ),
)
FRESH = Leaf(
    "fresh",
    "fresh samples, short completions",
    "rloo",
    "With one update a batch every ratio is 1: gates do nothing, and what is left is the baseline.",
    "no KL; groups of 4 to 16; learning rate first",
    flags="--kl-coef 0",
    exports=("trl", "verl"),
    evidence=(
        Evidence(
            "ours",
            "baselines and scales on addition",
            ("loo-or-batch", "spread", "critic-or-group"),
        ),
    ),
)
LONG = Leaf(
    "long",
    "fresh samples, long completions of unequal length",
    "dr_grpo",
    "No division by a completion's own length, which makes long wrong completions cheap.",
    "a budget that few completions meet; watch the lengths of right and wrong ones apart",
    exports=("trl", "verl"),
    evidence=(
        Evidence(
            "ours",
            "accuracy on the clock; that lengths differ is shown in the chapter on Dr. GRPO",
            ("divisor",),
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
    exports=("trl", "verl"),
    evidence=(
        Evidence(
            "paper",
            "Yu et al. (arXiv 2503.14476), 32 billion weights, AIME 2024: parts added one by one, no spread reported",
        ),
        Evidence(
            "none",
            "of ours: at equal completions our runs do not separate the accuracies (chapter on DAPO)",
        ),
    ),
)
UPDATES = Leaf(
    "updates",
    "several updates a batch, a dense model",
    "grpo",
    "Now the gate matters. The plain clip is a good first one; none of ours is shown to be better.",
    "no KL; clip 0.2; half the updates before a cleverer gate",
    flags="--kl-coef 0 --epochs 2 --minibatches 4",
    exports=("trl", "verl"),
    evidence=(
        Evidence(
            "ours",
            "16 updates a batch on addition",
            ("clip", "gmpo", "sapo", "sapo-steep"),
        ),
    ),
)
EXPERTS = Leaf(
    "experts",
    "several updates a batch, a mixture of experts",
    "gspo",
    "A change of experts moves single tokens' ratios far; a mean over the completion hardly sees it.",
    "clip 3e-4 and 4e-4 belong to long completions: with n tokens a ratio's noise shrinks with the root of n, so set the band by the share that is clipped",
    flags="--minibatches 4",
    exports=("trl", "verl"),
    evidence=(
        Evidence(
            "ours",
            "16 experts, 0.4 million weights; dense on addition; dense on the clock, with the paper's band and a wide one",
            ("gspo-experts", "replay", "gspo-dense", "gspo-band", "gspo-wide"),
        ),
        Evidence(
            "paper",
            "Zheng et al. (arXiv 2507.18071), Qwen3-30B-A3B: GSPO trains without routing replay, GRPO needs it",
        ),
    ),
)
STALE = Leaf(
    "stale",
    "samples that are some steps old",
    "grpo",
    "Keep the sampler's log-probs and take the ratio to them: the clip then corrects and bounds in one. Without them a lag of one step already cost.",
    "no KL; one update a batch, old log-probs from the sampler; a clip of 0.5 below and 1 above if samples are very old",
    flags="--kl-coef 0",
    exports=("trl", "verl"),
    evidence=(
        Evidence(
            "ours",
            "samples 1 and 16 steps old, on addition",
            ("lag-1", "lag-16", "dppo", "dppo-wide"),
        ),
    ),
)
ENGINE = Leaf(
    "engine",
    "another engine samples than trains",
    "icepop",
    "The two disagree on a few tokens by much. Leave those out, and look for the reason.",
    "band 0.5 to 2 first; log the share that is left out",
    exports=("trl", "verl"),
    evidence=(
        Evidence(
            "ours",
            "age in place of another engine, which is another disturbance",
            ("icepop",),
        ),
        Evidence(
            "paper",
            "Ling Team (arXiv 2510.18855), a trillion weights, mixture of experts",
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
        "another engine's, same weights": ENGINE,
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
    """A difference with its interval, and what it separates."""
    return f"{found.mean:+.2f} ± {found.half:.2f}, {'separated' if found.separated else 'not separated'}"


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
    if leaf.row and not leaf.exports:
        facts.append(("export", "none: neither TRL 1.16 nor verl 0.9 has these cells"))
    for one in leaf.evidence:
        numbers = "; ".join(
            f"{_all()[name].says}: {number(paired(_all()[name]))}"
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


def _all() -> dict[str, Comparison]:
    return COMPARISONS | GOLD
