"""The decision tree of the chapter on choosing: questions, leaves, and how the two are shown.

One source: the chapter, its tests and the exercise read this file. A leaf names a row and the flags of `train` with which
its line runs; what holds of the row (cells, models held) is read off the row and written nowhere. The recorded runs that
speak for or against a leaf stand in `choosing_runs.py`, and are had from here too.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from html import escape

from rlhf_minimal import ALGORITHMS, diff
from rlhf_minimal.lab.export import trl_settings, verl_settings

from .choosing_runs import (  # noqa: F401  (the chapters take the rest from here)
    COMPARISONS,
    LEARNED,
    NAMES,
    PANELS,
    REPEATS,
    found_in,
    number,
    paired,
    scores_of,
    shown,
)

BASE = "grpo"  # the row that the others are shown beside


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
    "no KL; then sweep the learning rate",
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
    "divided by its own length, a long wrong completion is punished less for each token",
    "no KL; a budget of tokens that few completions meet",
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
    "no KL, its filter; compare by completions and not by steps",
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
    "no KL, clip 0.2, old log-probs from before the first update",
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
    "ratios of single tokens jump with the experts, their mean over a completion hardly",
    "no KL, a band set by the share that is clipped",
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
    "no KL, old log-probs from the sampler, one update a batch",
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
    "GLM-5's band of 0.5 to 2 first (IcePop's own paper has 0.5 to 5); log the share that is left out",
    "the two disagree by much on a few tokens, which are left out",
    "no KL, old log-probs from the trainer, the sampler's beside them, GLM-5's band of 0.5 to 2",
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


def tree_table() -> str:
    """The ends of the tree as one table: a line a leaf, in the order of the tree."""
    heads = ("what you have", "row", "begin with", "why", "evidence")
    cell = (
        "text-align:left; vertical-align:top; white-space:normal; padding:0.2em 0.5em"
    )
    head = "".join(f"<th scope='col' style='{cell}'>{name}</th>" for name in heads)
    body = ""
    for leaf in leaves():
        row = (
            f"<code style='white-space:nowrap'>{leaf.row}</code>"
            if leaf.row
            else "none"
        )
        texts = (
            escape(leaf.title),
            row,
            escape(leaf.begin),
            escape(leaf.short),
            evidence_in_short(leaf),
        )
        cells = "".join(f"<td style='{cell}'>{text}</td>" for text in texts)
        body += f"<tr>{cells}</tr>"
    table = "font-size:0.92em; border-collapse:collapse"
    return f"<table style='{table}'><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def evidence_in_short(leaf: Leaf) -> str:
    """Whose evidence a leaf has; of ours, whether any comparison of this very leaf is separated."""
    said = []
    mine = [
        name for one in leaf.evidence if one.kind == "ours" for name in one.comparisons
    ]
    if mine:
        apart = any(paired(COMPARISONS[name]).separated for name in mine)
        said.append("ours" if apart else "ours: no difference shown")
    if any(one.kind == "paper" for one in leaf.evidence):
        said.append("a paper's")
    return "; ".join(said) or "none"


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
