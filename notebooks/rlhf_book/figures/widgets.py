"""Figures that move: the same `.mjs` modules that the pages of the book use, as widgets for notebooks.

They compute in the browser. Saved with the notebook's widget state they stay alive in the published page, without a
kernel and without a network. Needs the extra `notebooks` (anywidget).
"""

import re
from pathlib import Path
from typing import Any

try:
    import anywidget
    import traitlets
    from traitlets import Bool, Dict, Enum, Float, Int, List, Unicode
except ModuleNotFoundError as problem:
    raise ModuleNotFoundError(
        f"Figures that move in a notebook need the package {problem.name}, which is not "
        "installed here. Install it and run the cell again: "
        "python -m pip install anywidget ipywidgets",
        name=problem.name,
    ) from problem

from rlhf_minimal import ALGORITHMS

from . import joined
from .gates import gate_gallery
from .pass_rates import SIZES, of_a_group, pass_rates
from .routing import EXPERTS, LAYERS, NOISES, PICKED, routing

_HERE = Path(__file__).parent


def in_a_notebook(module: Path) -> str:
    """The text of a figure's module as a notebook needs it: its controls keep their keys from JupyterLab's shortcuts.

    Args:
        module: a file with one `export default`.

    Example:
        >>> in_a_notebook(_HERE / "group_explorer.mjs").count("export default")
        1
    """
    text, count = re.subn(
        r"^export default\b", "const figure_ =", joined(module), flags=re.M
    )
    if count != 1:
        raise ValueError(f"{module.name} has {count} `export default`, expected one")
    return text + (_HERE / "keyboard.js").read_text(encoding="utf-8")


class LiveFigure(anywidget.AnyWidget):
    """A figure that moves. A figure of its own is a row of a table: a name, which is its module's, words, and settings.

    The settings stand in the order of the arguments; `_tables` has what else the module reads.

    Args:
        settings: the values of the first settings.
        static: a picture for where nothing runs, such as GitHub and print: a figure of matplotlib. It is closed, so that a
            notebook shows it nowhere else.
        named: settings by name.

    Raises:
        TypeError: a setting that the figure does not have, or one that is given twice.
        traitlets.TraitError: a value that the figure cannot show.
    """

    words = ""  # what a reader should know who does not see it
    alt = Unicode().tag(sync=True)

    def __init_subclass__(cls, **options: Any) -> None:
        module = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()
        if "_esm" not in vars(cls):
            cls._esm = in_a_notebook(_HERE / f"{module}.mjs")
        for trait in vars(cls).values():
            if isinstance(trait, traitlets.TraitType):
                trait.tag(sync=True)
        super().__init_subclass__(**options)

    def __init__(self, *settings: Any, static: Any = None, **named: Any):
        names = [
            name
            for name, trait in vars(type(self)).items()
            if isinstance(trait, traitlets.TraitType) and name != "alt"
        ]
        if len(settings) > len(names) or {*named} - {*names, "alt"}:
            raise TypeError(f"{type(self).__name__} has the settings {names}")
        if twice := {*names[: len(settings)]} & {*named}:
            raise TypeError(f"{type(self).__name__} is given {twice} twice")
        given = dict(zip(names, settings)) | named
        self._static = None if static is None else _drawn(static)
        super().__init__(**given | self._tables(given))

    @classmethod
    def _tables(cls, given: dict[str, Any]) -> dict[str, Any]:
        """What the module reads besides the settings that are given, or in their place."""
        return {}

    @traitlets.default("alt")
    def _words(self) -> str:
        return self.words

    def __repr__(self) -> str:
        return f"[Interactive figure. {self.alt}]"

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle and self._static:
            bundle[0]["image/svg+xml"] = self._static
        return bundle


def _drawn(figure: Any) -> str:
    """A matplotlib figure as a notebook keeps it, and closed."""
    import matplotlib.pyplot as plt

    from rlhf_book.plotting import as_svg

    drawn = as_svg(figure)
    plt.close(figure)
    return drawn


class GroupExplorer(LiveFigure):
    """Move the rewards of a group; see its z-scores, centred rewards and leave-one-out advantages.

    Chapter: grpo.

    Args:
        rewards: 2 to 16 numbers between 0 and 2; the sliders move in steps of 0.05.
        eps: added to the standard deviation.
        ddof: 1 = sample standard deviation, 0 = population.
        alt: what a reader should know who does not see it.

    Raises:
        traitlets.TraitError: too few or too many rewards, a reward out of range, another ddof.

    Example:
        >>> GroupExplorer([1.0, 0.0, 0.0, 0.0]).rewards
        [1.0, 0.0, 0.0, 0.0]
    """

    words = (
        "Sliders for the rewards of a group of completions; beside each, three bars: its z-score, its reward minus the "
        "group's mean, and its reward minus the mean of the others. A sentence says what the group teaches."
    )
    rewards = List(Float(min=0.0, max=2.0), [1.0] + [0.0] * 7, minlen=2, maxlen=16)
    eps = Float(1e-4, min=0.0)
    ddof = Enum([0, 1], 1)


class GroupStrip(LiveFigure):
    """Move the rewards of a group as dots; see how mean and standard deviation make advantages of them.

    Chapter: grpo.

    Args:
        rewards: 2 to 16 numbers from 0 to 1; the dots move in steps of 0.05.
        scale: "std" divides by the standard deviation (GRPO), "none" does not (Dr. GRPO).

    Raises:
        traitlets.TraitError: too few or too many rewards, a reward out of range, another scale.

    Example:
        >>> GroupStrip([1, 0, 0, 0], scale="none").rewards
        [1.0, 0.0, 0.0, 0.0]
    """

    words = (
        "The rewards of a group as dots on a line, with their mean and a band of one standard deviation. From each dot a line "
        "leads down to its advantage on a second axis, so that one sees the shift by the mean and the spread by one over the "
        "standard deviation. Dots are moved, buttons show examples and leave the division out. A sentence says what it gives."
    )
    rewards = List(
        Float(min=0.0, max=1.0), [0.0] * 3 + [1.0] + [0.0] * 4, minlen=2, maxlen=16
    )
    scale = Enum(["std", "none"], "std")


class GaeStaircase(LiveFigure):
    """Move a critic's values and lambda; see TD errors, their fading weights, and the advantage of a token as their sum.

    Chapter: gae.

    Args:
        values: four numbers from 0 to 1, before each token; the levels move in steps of 0.05.
        reward: 1 or 0, after the last token.
        lam: lambda, from 0 to 1.
        at: the token whose advantage is drawn, 0 to 3.

    Raises:
        traitlets.TraitError: another number of values, a number out of range.

    Example:
        >>> GaeStaircase([0.5, 0.5, 0.5, 0.5], reward=1, lam=1).lam
        1.0
    """

    words = (
        "A critic's values over the tokens of one completion as a staircase; each step between two values is a TD error. Below, "
        "the steps from a chosen token on, each shrunk by its weight 1, lambda, lambda squared and so on, and their sum, the "
        "token's advantage. Levels are dragged, a slider sets lambda, buttons choose the token, the reward and kinds of "
        "critics. A sentence does the sum."
    )
    values = List(Float(min=0.0, max=1.0), [0.4, 0.35, 0.3, 0.1], minlen=4, maxlen=4)
    reward = Enum([0, 1], 0)
    lam = Float(0.5, min=0.0, max=1.0)
    at = Int(0, min=0, max=3)


class MeanBalance(LiveFigure):
    """Move token log-ratios; see where they balance, in which clip range that lies, and what their product does.

    Chapter: gspo.

    Args:
        log_ratios: six numbers from -0.5 to 0.5, in nats; the dots move in steps of 0.01.
        times: how often the six tokens are repeated: 1, 2, 5, 10, 20, 50, 100 or 200.
        sign: of the completion's advantage, 1 or -1.

    Raises:
        traitlets.TraitError: another number of tokens, a log-ratio out of range, another length or sign.

    Example:
        >>> MeanBalance([0.3, 0, 0, 0, 0, 0], times=100).sign
        1
    """

    words = (
        "Six token log-ratios as dots on a line; their mean is the point where they balance. The clip range of GRPO stands on "
        "the line as a wide band, that of GSPO as a hair, to scale, and once more enlarged. Dots are dragged. A second picture "
        "shows the product of all ratios and their geometric mean against the number of tokens. A sentence says what is clipped."
    )
    log_ratios = List(
        Float(min=-0.5, max=0.5),
        [0.3, 0.02, -0.03, 0.05, -0.07, 0.01],
        minlen=6,
        maxlen=6,
    )
    times = Enum([1, 2, 5, 10, 20, 50, 100, 200], 1)
    sign = Enum([1, -1], 1)


class TurnWeights(LiveFigure):
    """Choose who is trained, what divides, and which rewards count; see return and weight of each token of a transcript.

    Chapter: agents.

    Args:
        replies: "masked" or "trained".
        divisor: "nothing", "policy tokens", "all tokens" or "turns", of this transcript.
        credit: "one number" for the transcript, "to go", "reset" at a reply, or discounted "by token" or "by policy token".
        price: what the calculation costs, 0, 0.1 or 0.3.

    Raises:
        traitlets.TraitError: a choice that has no button.

    Example:
        >>> TurnWeights(replies="trained", price=0.1).credit
        'one number'
    """

    words = (
        "The transcript of an agent in four turns, token by token: what the policy wrote in squares, what the environment replied "
        "in round, dashed boxes. Under each token stand its return and, as a bar and a number, its weight in the loss. Buttons "
        "put the replies into the loss, choose the divisor and the kind of return, and set a price on the calculation. A "
        "sentence says whether that is still the policy gradient, and if not, why."
    )
    replies = Enum(["masked", "trained"], "masked")
    divisor = Enum(["nothing", "policy tokens", "all tokens", "turns"], "nothing")
    credit = Enum(
        ["one number", "to go", "reset", "by token", "by policy token"], "one number"
    )
    price = Enum([0, 0.1, 0.3], 0)


class ClipExplorer(LiveFigure):
    """Send a token to each of the six cases of the clip; see PPO's objective, its gradient, and the case in words.

    Chapter: ppo-clip.

    Args:
        ratio: 0.01 to 2.5, new probability over old.
        advantage: -1.5 to 1.5.
        low: epsilon below 1, 0 to 1.
        high: epsilon above 1, 0 to 1.

    Raises:
        traitlets.TraitError: a number out of its range.

    Example:
        >>> ClipExplorer(ratio=0.6, advantage=-1.0).low
        0.2
    """

    words = (
        "The six cases of the clip as buttons, by the sign of the advantage and the place of the ratio; the one that is pressed "
        "sends a token there. Two curves over the ratio follow it: the clipped objective, flat where the token has gone far "
        "enough, and the weight on the gradient of its log-probability, zero there. The token can be dragged, and sliders "
        "move ratio, advantage and both bounds. A sentence names the case and says why."
    )
    ratio = Float(1.5, min=0.01, max=2.5)
    advantage = Float(1.0, min=-1.5, max=1.5)
    low = Float(0.2, min=0.0, max=1.0)
    high = Float(0.2, min=0.0, max=1.0)


class RatioExplorer(LiveFigure):
    """Move the token log-ratios of one response; see what GRPO clips, what GSPO does, and the product of all ratios.

    Chapter: gspo.

    Args:
        log_ratios: six numbers between -0.5 and 0.5, in nats; the sliders move in steps of 0.01.
        still: further tokens of the response, which have not moved: 0, 14, 94 or 994.
        sign: of the response's advantage, 1 or -1.
        token_band: GRPO's bounds, by their name in the menu.
        sequence_band: GSPO's bounds.

    Raises:
        traitlets.TraitError: another number of tokens, a log-ratio out of range, a choice that the menus lack.

    Example:
        >>> RatioExplorer([0.3, 0, 0, 0, 0, 0]).sequence_band
        '3e-4 / 4e-4'
    """

    words = (
        "Sliders for the log-ratios of six tokens of one response; beside each, two bars: its weight in GRPO, where every "
        "token has its own and may be clipped alone, and its weight in GSPO, which is the same for all tokens or gone for "
        "all. A sentence says what is clipped and how large the product of all ratios is."
    )
    BANDS = ("0.2 / 0.2", "0.2 / 0.27", "0.03 / 0.04", "3e-4 / 4e-4")

    log_ratios = List(
        Float(min=-0.5, max=0.5),
        [0.12, -0.2, 0.05, 0.31, -0.09, -0.15],
        minlen=6,
        maxlen=6,
    )
    still = Enum([0, 14, 94, 994], 0)
    sign = Enum([1, -1], 1)
    token_band = Enum(BANDS, "0.2 / 0.2")
    sequence_band = Enum(BANDS, "3e-4 / 4e-4")


class GaeExplorer(LiveFigure):
    """Move lambda, make the critic wrong, change tokens; see TD errors, advantages, their bias and their spread.

    Chapter: gae.

    Args:
        response: six tokens as "1" (good) and "0" (bad); it ends at the fourth good or the third bad one.
        lam: lambda, in steps of 0.05.
        critic: in which way it is wrong: right, offset, noisy, blind or late.
        size: 0 is the right critic, 1 the mistake in full; in steps of 0.1.
        alt: what a reader should know who does not see it.

    Raises:
        traitlets.TraitError: a response that is not six of 0 and 1, a number out of range, another critic.

    Example:
        >>> GaeExplorer(lam=0.5, critic="late").critic
        'late'
    """

    words = (
        "A response of up to six tokens, each good or bad, with a row for each: what the critic expects and what is right, "
        "the TD error, and the advantage beside the exact one, with its mean and spread over all ways to go on. Sliders "
        "set lambda and how wrong the critic is, a menu in which way. A sentence says how far off the policy gradient is."
    )
    response = Unicode("101101")
    lam = Float(0.95, min=0.0, max=1.0)
    critic = Enum(["right", "offset", "noisy", "blind", "late"], "offset")
    size = Float(0.5, min=0.0, max=1.0)

    @traitlets.validate("response")
    def _six_tokens(self, proposal: dict[str, Any]) -> str:
        if len(proposal["value"]) != 6 or set(proposal["value"]) - {"0", "1"}:
            raise traitlets.TraitError(
                f"response is {proposal['value']!r}, expected six tokens, each 0 or 1"
            )
        return proposal["value"]


class LengthExplorer(LiveFigure):
    """Set the lengths of a group's responses and who is right; see what a token and a response weigh under a divisor.

    Chapter: dr-grpo.

    Args:
        lengths: 2 to 8 numbers of tokens between 1 and 1000; the sliders stop at round ones.
        rewards: 1 for a right response, 0 for a wrong one, as many as lengths.
        divisor: own (GRPO), batch (a token mean) or constant (Dr. GRPO).
        budget: of the constant divisor: 1000, 2000, 4000 or 8000 tokens.
        std: whether advantages are divided by the group's standard deviation.
        alt: what a reader should know who does not see it.

    Raises:
        traitlets.TraitError: lengths and rewards of different numbers, a number out of range, another choice.

    Example:
        >>> LengthExplorer([10, 1000], [0, 1], divisor="batch").divisor
        'batch'
    """

    words = (
        "Sliders for the lengths of a group's responses, each with a box that says whether it is right; beside each, two "
        "bars: what one of its tokens weighs in the gradient and what the whole response weighs. A menu chooses the "
        "divisor. A sentence says what the shortest and the longest wrong response pay."
    )
    lengths = List(Int(min=1, max=1000), [20] * 5 + [800], minlen=2, maxlen=8)
    rewards = List(Enum([0, 1]), [1, 1, 0, 0, 0, 0], minlen=2, maxlen=8)
    divisor = Enum(["own", "batch", "constant"], "own")
    budget = Enum([1000, 2000, 4000, 8000], 1000)
    std = Bool(False)

    @classmethod
    def _tables(cls, given: dict[str, Any]) -> dict[str, Any]:
        lengths, rewards = (
            given.get(name, getattr(cls, name).default())
            for name in ("lengths", "rewards")
        )
        if len(lengths) != len(rewards):
            raise traitlets.TraitError(
                f"{len(lengths)} lengths and {len(rewards)} rewards: each response has one"
            )
        return {}


class LandscapeExplorer(LiveFigure):
    """Move a policy of two parameters over its expected reward; see the exact gradient and sixty estimates of it.

    Chapter: policy-gradients.

    Args:
        a: the logit of the outcome with reward 3, in steps of 0.1; that of reward 1 is 0.
        b: the logit of the outcome with reward 2.
        baseline: what is subtracted from the rewards: none, mean, best or useless (twice the best).
        batch: samples in one estimate: 1, 4, 16, 64 or 256.
        draw: which sixty are drawn.
        alt: what a reader should know who does not see it.

    Raises:
        traitlets.TraitError: a parameter beyond 3, another baseline or batch, a negative draw.

    Example:
        >>> LandscapeExplorer(baseline="best", batch=64).batch
        64
    """

    words = (
        "A map of the expected reward over the two parameters of a policy with three outcomes. From one point start the exact "
        "gradient and sixty estimates of it. Sliders or the mouse move the point, menus set the baseline and the number of "
        "samples in an estimate. A sentence says the noise, and how many estimates point uphill."
    )
    a = Float(-1.0, min=-3.0, max=3.0)
    b = Float(0.5, min=-3.0, max=3.0)
    baseline = Enum(["none", "mean", "best", "useless"], "none")
    batch = Enum([1, 4, 16, 64, 256], 16)
    draw = Int(0, min=0, max=999)


class TrustRegionExplorer(LiveFigure):
    """Move a policy of three actions; see the KL region, the clip box, and where four kinds of step end.

    Chapter: trust-regions.

    Args:
        a: the logit of the action with reward 3, in steps of 0.1; that of reward 1 is 0.
        b: the logit of the action with reward 2.
        delta: the KL bound that plain and natural gradient are followed to: 0.001, 0.01 or 0.05.
        eps: the clip range: 0.1, 0.2 or 0.3.
        beta: the price of the KL in the penalty: 1, 3, 10 or 30.
        steps: all 4, or plain and natural gradient alone: 2.
        alt: what a reader should know who does not see it.

    Raises:
        traitlets.TraitError: a parameter beyond 3, another bound, clip range, price or number of steps.

    Example:
        >>> TrustRegionExplorer(1.0, delta=0.05).delta
        0.05
    """

    words = (
        "Sliders for the two logits of a policy over three actions. A map of the policies near it shows the line of equal KL, "
        "the box of the clip range, and where four steps end: plain gradient, natural gradient, clip and KL penalty. Menus set "
        "the KL bound, the clip range and the price of the penalty. A table and a sentence say ratios, KL and gain of each step."
    )
    a = Float(-2.0, min=-3.0, max=3.0)
    b = Float(0.5, min=-3.0, max=3.0)
    delta = Enum([0.001, 0.01, 0.05], 0.01)
    eps = Enum([0.1, 0.2, 0.3], 0.2)
    beta = Enum([1, 3, 10, 30], 3)
    steps = Enum([2, 4], 4)


class KlExplorer(LiveFigure):
    """Move a policy of three outcomes away from its reference; see values and gradients of k1, k2 and k3.

    Chapter: kl-divergence.

    Args:
        policy: three logits from -3 to 3; the sliders stop at tenths.
        reference: three logits from -3 to 3.
        place: loss, reward, or weighted (in the loss, times the ratio).
        alt: what a reader should know who does not see it.

    Raises:
        traitlets.TraitError: not three logits, a logit out of range, another place.

    Example:
        >>> KlExplorer([1, 0, 0], place="reward").place
        'reward'
    """

    words = (
        "Sliders for the logits of a policy and of a reference over three outcomes. A table gives the exact KL divergence "
        "of both directions and the estimators k1, k2 and k3: the mean and the spread of one sample, and bars for what a "
        "step does to each logit. A menu puts the estimate in the loss, in the reward, or in the loss times the ratio. A "
        "sentence says which values and which gradients are right."
    )
    policy = List(Float(min=-3.0, max=3.0), [2.0, 0.0, -1.0], minlen=3, maxlen=3)
    reference = List(Float(min=-3.0, max=3.0), [-1.0, 1.0, 1.0], minlen=3, maxlen=3)
    place = Enum(["loss", "reward", "weighted"], "loss")


class TargetExplorer(LiveFigure):
    """Set the rewards of four completions and tau; see where a squared loss ends, with either constant.

    Chapter: kimi.

    Args:
        rewards: four numbers from 0 to 1.
        old: four probabilities under the old policy, which sum to 1.
        tau: the temperature, one of the menu.
        alt: what a reader should know who does not see it.

    Raises:
        ValueError: probabilities that are not above 0 or do not sum to 1.
        traitlets.TraitError: not four numbers, a reward out of range, another tau.

    Example:
        >>> TargetExplorer([1, 0, 0, 0], tau=0.5).tau
        0.5
    """

    words = (
        "Sliders for the rewards of four completions of one prompt, and a menu for tau. A table shows each completion's "
        "probability under the old policy and at the end of a squared loss, once with tau log Z as its constant and once "
        "with the mean reward, as numbers and bars. A sentence gives both constants, the weight of the pull that the mean "
        "reward adds, and the reward at both ends."
    )
    rewards = List(Float(min=0.0, max=1.0), [1.0, 0.0, 0.0, 0.0], minlen=4, maxlen=4)
    old = List(Float(min=0.0, max=1.0), [0.1, 0.2, 0.3, 0.4], minlen=4, maxlen=4)
    tau = Enum([0.03, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0], 0.1)

    @classmethod
    def _tables(cls, given: dict[str, Any]) -> dict[str, Any]:
        old = given.get("old", [1.0])
        if not all(q > 0 for q in old) or abs(sum(old) - 1) > 1e-6:
            raise ValueError(
                f"old must be probabilities above 0 that sum to 1; got {list(old)}"
            )
        return {}


class PairLossExplorer(LiveFigure):
    """Move the gap of a pair; see what Bradley-Terry, DPO, IPO and SPIN make of it.

    Chapter: reward-models.

    Args:
        gap: score of the chosen minus score of the rejected completion, from -8 to 8.
        beta: coefficient of the KL penalty, from 0.05 to 1; Bradley-Terry has none.
        wins: share of comparisons that agree with the label, from 0.5 to 1.
        alt: what a reader should know who does not see it.

    Raises:
        traitlets.TraitError: a number out of range.

    Example:
        >>> PairLossExplorer(2, beta=0.1).gap
        2.0
    """

    words = (
        "Sliders for the gap between the scores of a chosen and a rejected completion, for beta, and for the share of labels "
        "that agree. Curves show how strongly Bradley-Terry, DPO and IPO pull on the gap. A table gives for the four rows "
        "for pairs the mean loss, the mean pull and the gap at which the pull ends. A sentence says who widens the gap."
    )
    gap = Float(0.0, min=-8.0, max=8.0)
    beta = Float(0.5, min=0.05, max=1.0)
    wins = Float(1.0, min=0.5, max=1.0)


class HeadroomExplorer(LiveFigure):
    """Move a token's probability and both clip bounds; see how far it may go before its gradient is cut.

    Chapter: dapo.

    Args:
        p: the token's probability when it was sampled, from 0.0001 to 0.999.
        low: the lower bound is 1 - low, from 0 to 0.9.
        high: the upper bound is 1 + high, from 0 to 1.
        alt: what a reader should know who does not see it.

    Raises:
        traitlets.TraitError: a number out of range.

    Example:
        >>> HeadroomExplorer(0.5, high=0.2).p
        0.5
    """

    words = (
        "Sliders for the probability that a token had when it was sampled, and for both clip bounds. Two axes, one of "
        "probabilities and one logarithmic, show how far the probability may move up and down before the token's gradient "
        "is cut. A sentence gives both ways in numbers, and says when the upper bound cannot be reached."
    )
    p = Float(0.01, min=1e-4, max=0.999)
    low = Float(0.2, min=0.0, max=0.9)
    high = Float(0.28, min=0.0, max=1.0)


class SelfRewardExplorer(LiveFigure):
    """Choose a reward of the model's own and a dose of verified problems; see which way the policy gradient goes.

    Chapter: self-play.

    Args:
        source: "judge", "majority-3" or "majority-15": what pays the problems without a verifier.
        share: right completions at the start, from 0.02 to 0.98.
        gap: how much oftener the judge says yes to right completions than to wrong ones, from -1 to 1.
        dose: share of the problems that have a verifier, from 0 to 1.
        alt: what a reader should know who does not see it.

    Raises:
        traitlets.TraitError: another source, a number out of range.

    Example:
        >>> SelfRewardExplorer("majority-3", share=0.4).share
        0.4
    """

    words = (
        "A menu for what pays completions without a verifier, a judge or a majority, and sliders for the share of right "
        "completions, for how much oftener the judge says yes to right ones, and for the dose of verified problems. Two "
        "curves: what a right completion earns more than a wrong one, against the share that is right, and that share "
        "over sixty steps. A sentence says who wins, and from which dose on right completions would."
    )
    source = Enum(["judge", "majority-3", "majority-15"], "judge")
    share = Float(0.6, min=0.02, max=0.98)
    gap = Float(-0.3, min=-1.0, max=1.0)
    dose = Float(0.05, min=0.0, max=1.0)


_ROWS = tuple(ALGORITHMS)
_GROUP_ROWS = tuple(name for name, row in ALGORITHMS.items() if of_a_group(row))


class GateGallery(LiveFigure):
    """Choose two rows and a ratio; see the weight that a token's score gets in each, by the sign of its advantage.

    Chapter: soft-gates.

    Args:
        first: a row of the table.
        second: another one.
        sign: 1 for a good token, -1 for a bad one.
        log2: the ratio's logarithm to base 2, -3 to 3.
        alt: what a reader should know who does not see it.

    Raises:
        traitlets.TraitError: an unknown row, another sign, a ratio beyond 8.

    Example:
        >>> GateGallery("cispo", "sapo", log2=1).second
        'sapo'
    """

    words = (
        "Menus for two rows of the table and for a good or a bad token, and a slider for the token's ratio. Two curves show "
        "the weight that the gradient of the token's log-probability gets, over ratios from an eighth to eight. A sentence "
        "says both weights."
    )
    first = Enum(_ROWS, "grpo")
    second = Enum(_ROWS, "sapo")
    sign = Enum([1, -1], 1)
    log2 = Float(0.3, min=-3.0, max=3.0)
    curves = List(Dict())
    rows = List(Dict())
    reach = Int()
    step = Float()

    @classmethod
    def _tables(cls, given: dict[str, Any]) -> dict[str, Any]:
        return gate_gallery(step=0.02)


class PassRates(LiveFigure):
    """Choose two rows, the size of a group and a prompt's pass rate; see how much the prompt counts in each.

    Chapter: soft-gates.

    Args:
        first: a row whose advantages follow from the rewards of one group.
        second: another one.
        size: completions a prompt: 2, 4, 8, 16 or 64.
        rate: pass rate, 0.01 to 0.99.
        alt: what a reader should know who does not see it.

    Raises:
        traitlets.TraitError: a row that has no such weight, another size, a rate out of range.

    Example:
        >>> PassRates("maxrl", "grpo", size=16).size
        16
    """

    words = (
        "Menus for two rows of the table and for the number of completions a prompt, and a slider for the share of them that "
        "is right. Two curves show how much the prompt counts over that share. A sentence says both weights, what they are "
        "beside those of a prompt at one half, and how many groups have one outcome only."
    )
    first = Enum(_GROUP_ROWS, "grpo")
    second = Enum(_GROUP_ROWS, "maxrl")
    size = Enum(SIZES, 8)
    rate = Float(0.1, min=0.01, max=0.99)
    curves = List(Dict())
    rows = List(Dict())
    sizes = List(Int())
    rates = List(Float())

    @classmethod
    def _tables(cls, given: dict[str, Any]) -> dict[str, Any]:
        made = pass_rates()
        return {name: made[name] for name in ("curves", "rows", "sizes", "rates")}


class RoutingExplorer(LiveFigure):
    """Choose layers, experts and an engine's noise; see flips, and the spread of log-ratios beside replay and a dense control.

    Chapter: mixture-of-experts.

    Args:
        layers: 1, 4, 12 or 24.
        experts: of a layer, 8 or 32.
        picked: of them for a token, 1, 2 or 4.
        noise: relative to what each block reads: 0.001, 0.003, 0.01, 0.03 or 0.1.
        alt: what a reader should know who does not see it.

    Raises:
        traitlets.TraitError: a setting that the table does not have.

    Example:
        >>> RoutingExplorer(24, noise=0.1).picked
        2
    """

    words = (
        "Menus for the number of layers, of experts in a layer and of experts picked, and a slider for relative noise. Three bars "
        "on a logarithmic axis show the standard deviation of a token's log-ratio: with experts, with the old choice replayed, "
        "and in a dense control. A sentence says how many tokens change an expert."
    )
    layers = Enum(LAYERS, 12)
    experts = Enum(EXPERTS, 32)
    picked = Enum(PICKED, 2)
    noise = Enum(NOISES, 0.001)
    data = Dict()

    @classmethod
    def _tables(cls, given: dict[str, Any]) -> dict[str, Any]:
        return routing()


class TrustExplorer(LiveFigure):
    """Move a token's probability away from where it was sampled; see which rows still train on it, and how strongly.

    Chapter: off-policy.

    Args:
        now: its probability under the policy that is trained; the nearest on the figure's lattice is taken.
        sampled: its probability under the engine that sampled; likewise.
        old: "sampler" if the old log-probs are the sampler's, "own" if the trainer has just read them.
        sign: of the completion's advantage, 1 or -1.
        alt: what a reader should know who does not see it.

    Raises:
        traitlets.TraitError: another choice of old or sign.
        ValueError: a probability that is not between 0 and 1.

    Example:
        >>> TrustExplorer(0.25, 0.1, sign=-1).sign
        -1
    """

    words = (
        "Sliders for a token's probability when it was sampled and now, and menus for the sign of its completion and for whose "
        "log-probs are the old ones. A table shows for twelve rows with what weight and sign each still trains on the token. A "
        "sentence says who leaves it out and who weighs it most."
    )
    now = Int(min=0)
    sampled = Int(min=0)
    old = Enum(["sampler", "own"], "sampler")
    sign = Enum([1, -1], 1)
    table = Dict()

    @classmethod
    def _tables(cls, given: dict[str, Any]) -> dict[str, Any]:
        from .trust import nearest, trust_table

        at = nearest(given.get("now", 0.25), given.get("sampled", 0.119))
        return trust_table() | at


class StepExplorer(LiveFigure):
    """Change the scores of steps; see the number of a completion, the vote, and what each step is paid.

    Chapter: process-rewards.

    Args:
        scores: of four completions the scores of their steps, 1 to 6 numbers from 0 to 1.
        answers: their four final answers; "q" is right.
        aggregate: min, mean, last or product.
        payment: outcome, sum, own, potential or change.
        alt: what a reader should know who does not see it.

    Raises:
        ValueError: a completion without a step or with more than six, or a score that is not from 0 to 1.
        traitlets.TraitError: not four completions or answers, another aggregate or payment.

    Example:
        >>> StepExplorer(aggregate="product").payment
        'outcome'
    """

    words = (
        "Four completions of one prompt, each a row of steps with scores and an answer. A click changes a score, buttons "
        "make a completion longer or shorter. One menu chooses the number that stands for a completion, another one what its "
        "steps are paid for. Under each step stands its advantage. A sentence says which answer wins the vote, which "
        "completion is best, and which first step gains most."
    )
    scores = List(
        List(Float(min=0.0, max=1.0)),
        [[0.9, 0.9, 0.9], [0.9, 0.1, 0.5], [0.9, 0.5, 0.1], [0.5, 0.1, 0.1]],
        minlen=4,
        maxlen=4,
    )
    answers = List(Unicode(), ["q", "q", "f", "f"], minlen=4, maxlen=4)
    aggregate = Enum(["min", "mean", "last", "product"], "min")
    payment = Enum(["outcome", "sum", "own", "potential", "change"], "outcome")

    @traitlets.validate("scores")
    def _check_scores(self, proposal: Any) -> Any:
        for own in proposal["value"]:
            if not 1 <= len(own) <= 6:
                raise ValueError(f"a completion has 1 to 6 steps; got {len(own)}")
        return proposal["value"]


class VerifierExplorer(LiveFigure):
    """Give a verifier a hole, or let it err by lot; see what the expected update makes of three kinds of completions.

    Chapter: rlvr-in-depth.

    Args:
        honest: the share of right completions at the start, in per cent, 1 to 60.
        exploit: the share of wrong completions that use the hole, in per cent, 0 to 39.
        passes: how often the verifier passes these, in per cent.
        accepts: how often it passes other wrong ones, by lot, in per cent, at most 60.
        rejects: how often it fails right ones, by lot, in per cent, at most 60.
        rule: "mean" for the reward minus the group's mean, "zscore" for the same divided by the group's spread.
        alt: what a reader should know who does not see it.

    Raises:
        traitlets.TraitError: a number that its slider does not have, or another rule.

    Example:
        >>> VerifierExplorer(passes=0, rule="zscore").passes
        0
    """

    words = (
        "Sliders for three kinds of completions, right ones, an exploit and other wrong ones, and for how often a verifier passes "
        "each; a menu for the advantage. A table shows each kind's share, its chance to pass, the expected push on its logit and "
        "its share after 120 expected steps. Curves show the reward, the share of right completions and that of the exploit. A "
        "sentence says what happened."
    )
    honest = Int(18, min=1, max=60)
    exploit = Int(30, min=0, max=39)
    passes = Int(100, min=0, max=100)
    accepts = Int(0, min=0, max=60)
    rejects = Int(0, min=0, max=60)
    rule = Enum(["mean", "zscore"], "mean")


class BudgetExplorer(LiveFigure):
    """Choose a budget of tokens; see what each method makes of it, for the start and for the trained model.

    Chapter: test-time-scaling.

    Args:
        shown: "both", "start" or "trained".
        set: problems by their moves: "all", "2 to 5", "6 to 9" or "10 to 14".
        place: of the budget, in quarters of an octave above 4 tokens, at most 32.
        alt: what a reader should know who does not see it.

    Raises:
        traitlets.TraitError: another model or set, or a place that the slider does not have.

    Example:
        >>> BudgetExplorer(shown="start", place=9).place
        9
    """

    words = (
        "Accuracy against tokens a problem on a logarithmic scale, for a model before and after training, by method: one of n "
        "is right, majority, best of n, two weighted votes, beam search, and an answer that is held back. Menus choose the "
        "model and the problems, a slider the budget. A table and a sentence say what each method reaches within it."
    )
    shown = Enum(["both", "start", "trained"], "both")
    set = Enum(["all", "2 to 5", "6 to 9", "10 to 14"], "all")
    place = Int(16, min=0, max=32)
    curves = Dict()
    methods = Dict()
    sets = List(Unicode())

    @classmethod
    def _tables(cls, given: dict[str, Any]) -> dict[str, Any]:
        from .budget import budget_table

        return budget_table()


class BatchCalculator(LiveFigure):
    """Type in a library's batch settings; see what a rollout holds, how many updates it pays for and how old their samples are.

    Args:
        library: "trl", "verl" or "prime-rl".
        numbers: settings by name, whole numbers; what is left out is as the library's fields begin.
        alt: what a reader should know who does not see it.

    Raises:
        traitlets.TraitError: another library, or a number that is not whole.

    Example:
        >>> BatchCalculator("verl", numbers={"ppo_epochs": 2}).library
        'verl'
    """

    words = (
        "Buttons for TRL, verl and prime-rl, and a field for each of the library's batch settings. A bar for each update "
        "of the weights, blue where its completions come from the weights themselves, orange and taller the older they "
        "are. A sentence says how many prompts and completions a rollout holds, how many updates it pays for, and which "
        "are off-policy."
    )
    library = Enum(["trl", "verl", "prime-rl"], "trl")
    numbers = Dict(value_trait=Int())


class DivergenceExplorer(LiveFigure):
    """Move a student with one knob past a teacher with two modes; see where each divergence wants it.

    Chapter: distillation.

    Args:
        divergence: one of `rlhf_book.figures.divergences.DIVERGENCES`.
        centre: of the student, from 0 to 11; the nearest fifth is taken.
        alt: what a reader should know who does not see it.

    Raises:
        traitlets.TraitError: another divergence, or a centre out of range.

    Example:
        >>> DivergenceExplorer("reverse", 8.0).centre
        40
    """

    words = (
        "A menu for the divergence and a slider for the centre of a bell-shaped student over twelve outcomes. A curve shows the "
        "loss over the centre. A table shows for each outcome the probability under a teacher with two modes and under the "
        "student as bars, and how the loss would push its logit. A sentence says where the loss is smallest."
    )
    divergence = Enum(
        [
            *("forward", "jsd 0.1", "jsd 0.5", "jsd 0.9"),
            *("reverse", "top 3, cut", "top 3 and rest"),
        ],
        "forward",
    )
    centre = Int(min=0, max=55)
    table = Dict()

    @classmethod
    def _tables(cls, given: dict[str, Any]) -> dict[str, Any]:
        from .divergences import tabulate

        return tabulate() | {"centre": round(5 * given.get("centre", 2.0))}


class RowBenchmark(LiveFigure):
    """Choose a task and two rows of the benchmark; see their difference seed by seed, and whether it is separated.

    Page: comparison.

    Args:
        group: a task with a number of updates a rollout, such as "addition-1"; the first that is recorded if this one is
            not.
        first: a row of the group, or the coin.
        second: another one, which is subtracted.
        record: runs as `row_benchmark.py` writes them; None takes the book's.
        alt: what a reader should know who does not see it.

    Raises:
        traitlets.TraitError: a row that the benchmark does not have.

    Example:
        >>> RowBenchmark("addition-1", "grpo", "coin").second
        'coin'
    """

    words = (
        "Menus for a task with a number of updates, and for two rows. Thin lines show the difference of their held-out results "
        "over the samples, one line a seed, and a thick line the mean with its 95 % interval at each point. A sentence says "
        "the mean at the end, its interval, and whether the two are separated."
    )
    groups = List(Dict())
    seeds = Int()
    t = Float()
    group = Unicode()
    first = Unicode()
    second = Unicode()

    def __init__(
        self,
        group: str = "addition-1",
        first: str = "reinforce",
        second: str = "gspo",
        *,
        record: dict[str, Any] | None = None,
    ):
        from rlhf_book.benchmark import explorer_table

        table = explorer_table(record)
        known = {row["name"] for one in table["groups"] for row in one["rows"]}
        for name in (first, second):
            if known and name not in known:
                raise traitlets.TraitError(
                    f"the benchmark has no row {name!r}; it has {', '.join(sorted(known))}"
                )
        super().__init__(**table, group=group, first=first, second=second)


class TokenInspector(LiveFigure):
    """Choose a recorded step and one or two rows; see what each gives to every token of a group, and why.

    Page: inspector.

    Args:
        run: "clock" or "smollm2".
        step: one that was recorded; None takes the run's last.
        prompt: 0 or 1, of the groups that are kept.
        first: a row that reads no more than the batch holds, see `rlhf_book.factors.fitting_rows`.
        second: another one, or "" for none.
        record: runs as `token_inspector.py` writes them; None takes the book's.
        alt: what a reader should know who does not see it.

    Raises:
        traitlets.TraitError: a run, a step or a row that was not recorded.

    Example:
        >>> TokenInspector(first="grpo", second="dr_grpo").step
        40
    """

    words = (
        "Menus for a recorded run, a step, a prompt and two rows. Below, the completions of the prompt's group, token by token: "
        "a token is blue with a solid line under it if the row pushes it up, orange with a dashed line if it pushes it down, and "
        "dotted if it has an advantage and no gradient from it. A chosen token shows its ratio, share, advantage, gate and KL pull, "
        "whose product and sum is its weight. Buttons show examples."
    )
    runs = List(Dict())
    rows = List(Dict())
    kinds = List(Unicode())
    examples = List(Dict())
    run = Unicode()
    step = Int()
    prompt = Int(0, min=0)
    first = Unicode()
    second = Unicode()
    completion = Int(0, min=0)
    token = Int(0, min=0)

    def __init__(
        self,
        run: str = "clock",
        step: int | None = None,
        prompt: int = 0,
        *,
        first: str = "grpo",
        second: str = "gspo",
        record: dict[str, Any] | None = None,
    ):
        from .inspector import inspector_table

        table = inspector_table(record)
        steps = {
            one["name"]: [s["step"] for s in one["steps"]] for one in table["runs"]
        }
        names = [row["name"] for row in table["rows"]]
        step = steps.get(run, [0])[-1] if step is None else step
        if run not in steps:
            raise traitlets.TraitError(f"no run {run!r}; there are {', '.join(steps)}")
        if step not in steps[run]:
            raise traitlets.TraitError(f"{run} has no step {step}; it has {steps[run]}")
        for name in (first, second):
            if name and name not in names:
                raise traitlets.TraitError(
                    f"no row {name!r} in this record; it has {', '.join(names)}"
                )
        super().__init__(
            **table, run=run, step=step, prompt=prompt, first=first, second=second
        )
