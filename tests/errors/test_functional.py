"""Every public function of `functional`, given what it cannot use: a ValueError that names it and says what to do.

Found by introspection, so that a function added tomorrow is tested tomorrow: its shape annotations say which tensors
are wrong, and an option of its own must be given bad values in `BAD_OPTIONS`. These tests run without the hook that
checks the annotations, as a reader's program does.

B = T = 4 throughout. Where the two agree, [B] broadcasts against [B, T] without a word, along the wrong axis.
"""

import importlib
import inspect
import pkgutil
import re
import typing
from functools import partial

import pytest
import torch

import rlhf_minimal.functional
from rlhf_minimal import contrib, pairs
from rlhf_minimal.functional import advantages, aggregation, gates, kl, masked
from rlhf_minimal.functional.aggregation import Totals
from rlhf_minimal.lab import chunked

B, T, V, H, L, G = 4, 4, 5, 3, 6, 2
NAN, INF = float("nan"), float("inf")
MODULES = [
    importlib.import_module(f"{package.__name__}.{info.name}")
    for package in (rlhf_minimal.functional, contrib)
    for info in pkgutil.iter_modules(package.__path__)
    if info.name != "checks"  # those are the checks themselves: see test_checks.py
] + [pairs, chunked]
FUNCTIONS = {
    f"{module.__name__.removeprefix('rlhf_minimal.').removeprefix('functional.')}.{name}": function
    for module in MODULES
    for name, function in vars(module).items()
    if inspect.isfunction(function) and function.__module__ == module.__name__ and not name.startswith("_")
    if not name.startswith("pairwise_")  # those take Pairs: see test_pairwise.py
}


def tensors(seed=0):
    """Good tensors by argument name; the names mean the same in the whole library."""
    g = torch.Generator().manual_seed(seed)

    def normal(*size):
        return torch.randn(*size, generator=g)

    mask = torch.tensor([[1, 1, 1, 1], [1, 0, 1, 0], [1, 1, 0, 0], [1, 0, 0, 0]]).float()
    per_token = "token_rewards values advantages advantage x entropy old_logp sampler_logp ref_logp logp".split()
    return {
        **{name: normal(B, T) for name in per_token},
        **{name: normal(B) for name in ("scores", "gap", "chosen", "rejected", "anchor")},
        "ratio": normal(B, T).exp(),
        "mask": mask,
        "step_ends": mask.clone(),
        "rewards": normal(B),
        "baseline": normal(B),
        "greedy_rewards": normal(B),
        "reward_parts": normal(B, 3),
        "prompt_tokens": torch.tensor([6, 6, 3, 3]),
        "truncated": torch.tensor([True, False, False, True]),
        "lengths": torch.tensor([4, 2, 2, 1]),
        "limits": torch.tensor([4, 2, 2, 1]),
        "logits": normal(B, T, V),
        "hidden": normal(B, T, H),
        "weight": normal(V, H),
        "bias": normal(V),
        "ids": torch.randint(0, V, (B, T), generator=g),
    }


# Arguments that are no tensors and have no default.
OPTIONS = {
    "group_size": G,
    "budget": 8,
    "totals": Totals(sequences=B, tokens=9, budget=8, prompts=2),
    "eos_id": 2,
    "length": 3,
    "low": 0.2,
    "high": 0.2,
    "cap": 5.0,
    "beta": 0.1,
}
# Numbers and words that an option must refuse. An option without an entry fails the suite.
SHARE = [-0.1, 1.1, NAN, "0.5", None]
NOT_NEGATIVE = [-0.1, NAN, "0.5", None]
ABOVE_ZERO = [0.0, -1.0, NAN, "0.5", None]
COUNT = [0, -1, 2.0, NAN, "2", True]
BAD_OPTIONS = {
    "gamma": SHARE,
    "lam": SHARE,
    "bound": SHARE,
    "good": NOT_NEGATIVE,
    "bad": NOT_NEGATIVE,
    "alpha": ABOVE_ZERO,
    "cache_fraction": SHARE,
    "eps": NOT_NEGATIVE,
    "ddof": [-1, 2, 0.5, None],
    "std": ["all", None, 1],
    "low": NOT_NEGATIVE,
    "high": NOT_NEGATIVE,
    "floor": [*NOT_NEGATIVE, 6.0],
    "delta": NOT_NEGATIVE,
    "share": SHARE,
    "clip_low": NOT_NEGATIVE,
    "clip_high": NOT_NEGATIVE,
    "seed": COUNT,
    "weights": [(1.0,), 1.0, (1.0, 2.0, "3"), (1.0, 2.0, NAN)],
    "cap": ABOVE_ZERO,
    "limit": ABOVE_ZERO[:-1],  # None is no limit
    "c": [*ABOVE_ZERO, 1.1],
    "tau_pos": ABOVE_ZERO,
    "k_pos": ABOVE_ZERO,
    "k_neg": ABOVE_ZERO,
    "lam_pos": ABOVE_ZERO,
    "lam_neg": ABOVE_ZERO,
    "tau_neg": ABOVE_ZERO,
    "temperature": ABOVE_ZERO,
    "beta": ABOVE_ZERO,
    "smoothing": [*SHARE, 0.5],
    "level": ["row", None],
    "coef": NOT_NEGATIVE,
    "budget": [*COUNT, None],
    "chunk": [*COUNT, None],
    "threshold": [NAN, "0.5", None],
    **dict.fromkeys(("right_short", "right_long", "wrong_short", "wrong_long"), [NAN, INF, "1", None]),
    "length": [*COUNT, None, T, T + 1],
    "group_size": [*COUNT, None, 3, 5],
    "totals": [Totals(0, 0), Totals(4, 0), Totals(0, 9)],
}
# The same word with another range.
BAD_OPTIONS_OF = {
    ("contrib.pairs.margin_loss", "gamma"): NOT_NEGATIVE,  # a margin, no discount
    ("contrib.corrections.score_centering", "floor"): [*NOT_NEGATIVE, 1.1],
    ("contrib.corrections.score_centering", "cap"): [*ABOVE_ZERO, 0.9],
}
ANY_VALUE = {"eos_id"}  # any integer may be the end of a sequence

# Functions that see no mask cannot know which positions count, and leave what stands there alone.
MASKLESS = {name for name, f in FUNCTIONS.items() if "mask" not in inspect.signature(f).parameters}
# A row or a micro-batch without a trained token is legal where nothing is divided by the tokens of the batch.
MAY_BE_EMPTY = {"advantages.place_rewards"} | {
    f"masked.{name}" for name in ("zero_outside", "sequence_sum", "sequence_mean", "lengths", "last_token")
}
# Statistics of a whole optimiser step, of which a part is refused.
WHOLE_STEP = {"contrib.trust.high_entropy", "contrib.trust.clip_cov", "contrib.corrections.normalized_importance"}
# The only functions that pass non-finite trained tokens on: one moves tensors and has nothing to say about numbers.
PASSES_ON = {"masked.zero_outside"}


def kind(annotation) -> tuple[str, str] | None:
    """("Float", "B T") of a jaxtyping annotation, optional or not."""
    for part in (annotation, *typing.get_args(annotation)):
        if hasattr(part, "dim_str"):
            return part.__name__.partition("[")[0], part.dim_str
    return None


def arguments(name) -> dict[str, tuple[str, str]]:
    """The tensors that a function reads."""
    function = FUNCTIONS[name]
    hints = typing.get_type_hints(function)
    return {key: kind(hints[key]) for key in inspect.signature(function).parameters if kind(hints[key])}


def options(name) -> list[str]:
    function = FUNCTIONS[name]
    hints = typing.get_type_hints(function)
    return [k for k in inspect.signature(function).parameters if not kind(hints[k])]


def good(name, seed=0) -> dict:
    """Arguments that the function accepts."""
    available = tensors(seed)
    if name == "aggregation.geometric_mean":
        available["x"] = available["x"].abs()
    if name == "contrib.advantages.maxrl":  # no group's mean is negative
        available["token_rewards"] = available["token_rewards"].abs()
    if name == "contrib.advantages.zscore_rows":  # one number a sequence
        available["advantages"] = available["advantages"][:, :1].expand(B, T).clone()
    if name == "contrib.pairs.odds_ratio_loss":  # mean log-probs
        available |= {side: -available[side].abs() - 0.1 for side in ("chosen", "rejected")}
    if name == "contrib.corrections.score_centering":  # log-probs of several tokens at each place
        available |= {which: torch.randn(B, T, V).log_softmax(-1) for which in ("logp", "sampler_logp")}
    if name == "logprobs.completion_logits":
        available["logits"] = torch.randn(B, T, V)
    parameters = inspect.signature(FUNCTIONS[name]).parameters
    given = {key: available[key] for key in parameters if key in available}
    required = {
        k: OPTIONS[k] for k, p in parameters.items() if k in OPTIONS and (p.default is p.empty or k == "totals")
    }
    return given | required


def call(name, **changes):
    return FUNCTIONS[name](**good(name) | changes)


def complaint(name, argument, value) -> str:
    """The message of the ValueError, which names the argument."""
    with pytest.raises(ValueError) as caught:
        call(name, **{argument: value})
    message = str(caught.value)
    assert re.search(rf"\b{argument}\b", message), f"{message!r} does not name {argument}"
    assert len(message) > 25, message
    return message


READS = [(name, argument) for name in FUNCTIONS for argument in arguments(name)]
each_function = pytest.mark.parametrize("name", FUNCTIONS)
each_argument = pytest.mark.parametrize(("name", "argument"), READS, ids=[f"{n}-{a}" for n, a in READS])


def test_the_functions_are_found():
    assert len(FUNCTIONS) > 40
    assert {"gates.clip", "kl.k3", "masked.completion_mask"} < FUNCTIONS.keys()


@each_function
def test_the_good_arguments_are_good(name):
    """Or every error below could be an error of this file."""
    out = call(name)
    for x in out if isinstance(out, tuple) else (out,):
        assert torch.isfinite(x.float()).all()


def wrong_shapes(name, argument):
    """Shapes that must not be taken: another rank always, another size where a second tensor has the same axis."""
    _, dims = arguments(name)[argument]
    x = good(name)[argument]
    shapes = [()] if dims == "*shape" else [(), (*x.shape, 1)]
    others = {axis for key, (_, what) in arguments(name).items() if key != argument for axis in what.split()}
    if others & {"B", "*shape"}:
        shapes += [(1, T), (1, 1), (B + 1, T), (B + 1,), (1,)]
    if others & {"T", "*shape"}:
        shapes += [(B,)] if dims == "B K" else [(B,), (B, 1), (B, T + 1)]  # any number of parts is a number of parts
    if dims == "B T":
        shapes += [(T,), (B * T,)]
    return [shape for shape in dict.fromkeys(shapes) if shape != tuple(x.shape)]


@each_argument
def test_a_wrong_shape(name, argument):
    x = good(name)[argument]
    for shape in wrong_shapes(name, argument):
        value = torch.ones(shape, dtype=x.dtype) if x.dtype != torch.bool else torch.ones(shape, dtype=torch.bool)
        with pytest.raises(ValueError, match=r"shape|\(\)|\(\d+,") as caught:
            call(name, **{argument: value})
        named = "|".join(arguments(name))  # two tensors disagree: either may be blamed
        assert re.search(rf"\b({named})\b|sequences do not divide", str(caught.value)), caught.value


@each_argument
def test_a_wrong_dtype(name, argument):
    what, _ = arguments(name)[argument]
    x = good(name)[argument]
    wrong = {
        "Float": [torch.int64, torch.bool],
        "Int": [torch.float32, torch.bool],
        "Bool": [torch.float32, torch.int64],
        "Real": [torch.bool],
    }
    for dtype in wrong.get(what, []):
        assert "dtype" in complaint(name, argument, x.to(dtype)) or "bool" in complaint(name, argument, x.to(dtype))
    if what == "Real":  # lengths: integers or floats, but whole
        assert torch.equal(call(name, **{argument: x.double()}), call(name, **{argument: x}))
        for value in (0.5, -1.0, NAN):
            one_wrong = x.float()
            one_wrong[0] = value
            assert "whole numbers" in complaint(name, argument, one_wrong)
    if what == "Shaped" and name not in PASSES_ON:  # a mask: any dtype, zeros and ones only
        for value in (0.5, -1.0, 2.0, NAN):
            assert "0 and 1" in complaint(name, argument, x.masked_fill(x == 0, value))


@each_argument
def test_a_list_or_nothing_instead_of_a_tensor(name, argument):
    x = good(name)[argument]
    message = complaint(name, argument, x.tolist())
    assert "tensor" in message
    hint = typing.get_type_hints(FUNCTIONS[name])[argument]
    optional = type(None) in typing.get_args(hint)
    required = {"values", "baseline", "sampler_logp"}  # optional in the column, not in the cell that reads it
    if argument in required or not optional:
        complaint(name, argument, None)
    elif "truncated" == argument:
        assert "pass truncated" in complaint(name, argument, None)


COUNTS = [  # floating-point numbers of which it is known which ones count
    (name, argument)
    for name, argument in READS
    if arguments(name)[argument] == ("Float", "B")
    or (arguments(name)[argument] == ("Float", "B T") and name not in MASKLESS | PASSES_ON)
]


@pytest.mark.parametrize(("name", "argument"), COUNTS, ids=[f"{n}-{a}" for n, a in COUNTS])
@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_a_number_that_is_not_finite(name, argument, value):
    x = good(name)[argument].clone()
    x[(0,) * x.dim()] = value
    assert "finite" in complaint(name, argument, x)
    if "totals" in options(name) and name != "aggregation.fixed_length":  # a whole batch, as well as a part of one
        with pytest.raises(ValueError, match=rf"{argument} is not finite on a trained token"):
            call(name, **{argument: x}, totals=None)


MASKED = [(n, a) for n, a in READS if n not in MASKLESS and arguments(n)[a] == ("Float", "B T")]


@pytest.mark.parametrize(("name", "argument"), MASKED, ids=[f"{n}-{a}" for n, a in MASKED])
@pytest.mark.parametrize("value", [NAN, INF])
def test_what_stands_under_a_zero_mask_changes_nothing(name, argument, value):
    arguments_ = good(name)
    spoiled = arguments_[argument].masked_fill(arguments_["mask"] == 0, value)
    assert torch.equal(call(name, **{argument: spoiled}), call(name))


@pytest.mark.parametrize(("name", "argument"), MASKED, ids=[f"{n}-{a}" for n, a in MASKED])
@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_what_stands_under_a_zero_mask_changes_no_gradient(name, argument, value):
    """A right value is not enough: if NaN was computed and then masked, the gradient is zero times NaN."""
    nothing = good(name)["mask"] == 0

    def gradients(under_the_mask):
        arguments_ = good(name)
        if under_the_mask is not None:
            arguments_[argument] = arguments_[argument].masked_fill(nothing, under_the_mask)
        leaves = {key: x.requires_grad_() for key, x in arguments_.items() if kind_of(key) == ("Float", "B T")}
        out = FUNCTIONS[name](**arguments_)
        if not out.requires_grad:
            return {}
        weighed = (out * torch.linspace(1, 2, out.numel()).view(out.shape)).sum()  # a plain sum of whitened is constant
        found = torch.autograd.grad(weighed, list(leaves.values()), allow_unused=True, materialize_grads=True)
        return dict(zip(leaves, found, strict=True))

    kind_of = arguments(name).get
    expected, found = gradients(None), gradients(value)
    assert found.keys() == expected.keys()
    for key, gradient in found.items():
        assert torch.isfinite(gradient).all(), key
        assert torch.equal(gradient, expected[key]), key
        assert (gradient[nothing] == 0).all(), key


@pytest.mark.parametrize("name", [n for n, a in READS if a == "mask"])
def test_no_token_is_trained(name):
    nothing = {"mask": torch.zeros(B, T)}
    if "step_ends" in good(name):
        nothing["step_ends"] = torch.zeros(B, T)
    if name in MAY_BE_EMPTY:
        assert torch.isfinite(call(name, **nothing).float()).all()
        return
    if "totals" in options(name) and name not in WHOLE_STEP:  # a micro-batch may be masked throughout; a batch may not
        assert call(name, **nothing) == 0
        nothing["totals"] = None
    with pytest.raises(ValueError, match=r"mask is zero everywhere.*drop this batch"):
        call(name, **nothing)


OPTION_OF = [(name, option) for name in FUNCTIONS for option in options(name)]


@pytest.mark.parametrize(("name", "option"), OPTION_OF, ids=[f"{n}-{o}" for n, o in OPTION_OF])
def test_a_wrong_option(name, option):
    if option in ANY_VALUE:
        return
    for value in BAD_OPTIONS_OF.get((name, option)) or BAD_OPTIONS[option]:
        with pytest.raises(ValueError) as caught:
            call(name, **{option: value})
        message = str(caught.value)
        named = {"totals": "sequences|tokens", "group_size": "group_size|groups of"}.get(option, option)
        said = "completion tokens asked" in message  # a length that leaves no prompt
        assert said or re.search(rf"\b({named})\b", message), message


@pytest.mark.parametrize("name", [name for name, option in OPTION_OF if option == "group_size"])
def test_a_group_of_one(name):
    if name == "contrib.shaping.length_reward":
        assert torch.equal(call(name, group_size=1), good(name)["rewards"])  # nobody to be shorter than
        return
    with pytest.raises(ValueError, match=r"group_size is 1.*at least 2.*sample more completions"):
        call(name, group_size=1)


@pytest.mark.parametrize(
    ("name", "argument", "advice"),
    [
        ("advantages.gae", "values", r"gae needs a critic: pass Batch\(\.\.\., values="),
        ("contrib.advantages.given_baseline", "baseline", r"given_baseline needs one: pass Batch\(\.\.\., baseline="),
        ("corrections.truncated_importance", "sampler_logp", r"pass Batch\(\.\.\., sampler_logp="),
        ("contrib.corrections.masked_importance", "sampler_logp", r"pass Batch\(\.\.\., sampler_logp="),
        ("shaping.soft_overlong", "budget", r"pass Batch\(\.\.\., budget="),
        ("contrib.shaping.cosine", "budget", r"pass Batch\(\.\.\., budget="),
        ("contrib.filters.not_truncated", "truncated", "which completions hit the budget: pass truncated"),
    ],
)
def test_what_a_cell_lacks_it_asks_for(name, argument, advice):
    with pytest.raises(ValueError, match=advice):
        call(name, **{argument: None})


def test_the_others_of_a_pair_have_no_spread():
    with pytest.raises(ValueError, match=r"group_size is 2.*at least 3"):
        call("contrib.advantages.leave_one_out_normalized", std="others")


def test_a_pair_with_one_scored_step():
    only = torch.zeros(B, T)
    only[0, 0] = 1
    with pytest.raises(ValueError, match="fewer than two scored steps"):
        call("contrib.advantages.process", step_ends=only)


@pytest.mark.parametrize("name", ["pairs.log_ratio", "contrib.pairs.mean_log_ratio"])
def test_a_completion_without_a_token(name):
    mask = torch.ones(B, T)
    mask[2] = 0
    with pytest.raises(ValueError, match=r"mask is zero everywhere in row 2: .* drop the pair"):
        call(name, mask=mask)


def test_one_token_has_no_variance():
    mask = torch.zeros(B, T)
    mask[0, 0] = 1
    for name in ("masked.masked_var", "advantages.whiten"):
        with pytest.raises(ValueError, match=r"1 trained token.*larger batch"):
            call(name, mask=mask)
        assert torch.isfinite(call(name, mask=mask, ddof=0)).all()


def test_a_prompt_mean_without_prompts():
    for totals in (None, Totals(B, 9)):
        with pytest.raises(ValueError, match="divides by the number of prompts"):
            call("contrib.aggregation.prompt_mean", totals=totals)
    with pytest.raises(ValueError, match="expected one number for each of 4 rows, .* at least as many as its own"):
        call("contrib.aggregation.prompt_mean", prompt_tokens=torch.tensor([3, 6, 3, 3]))


def test_a_group_whose_mean_reward_is_negative():
    rewards = torch.tensor([0.0, -0.5, 1.0, -0.25])[:, None]
    contrib.advantages.maxrl(rewards[2:], torch.ones(2, 1), group_size=2)  # one is negative, their mean is not
    with pytest.raises(ValueError, match=r"group 0 is -0\.25, and maxrl divides by it"):
        contrib.advantages.maxrl(rewards, torch.ones(4, 1), group_size=2)


def test_rows_whose_tokens_differ_have_no_z_score():
    A = torch.randn(B, T, generator=torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match="these differ by token: use whiten instead"):
        call("contrib.advantages.zscore_rows", advantages=A)
    mask = torch.zeros(B, T)
    mask[0] = 1
    with pytest.raises(ValueError, match="one sequence has no spread"):
        call("contrib.advantages.zscore_rows", mask=mask)


def test_a_band_that_is_empty():
    with pytest.raises(ValueError, match="low below high"):
        call("contrib.corrections.masked_importance", low=2.0, high=2.0)
    with pytest.raises(ValueError, match="low below high"):
        call("contrib.trust.clip_cov", low=2.0, high=2.0)
    for name in ("corrections.truncated", "contrib.corrections.normalized"):
        with pytest.raises(ValueError, match="the cap is the larger of the two"):
            call(f"{name}_importance", floor=2.0)


@pytest.mark.parametrize("name", sorted(WHOLE_STEP))
def test_a_statistic_of_a_part(name):
    with pytest.raises(ValueError, match="5 sequences with 20 tokens, and got 4 with 9"):
        call(name, totals=Totals(5, 20))


def test_fixed_length_without_a_budget():
    for totals in (None, Totals(B, 9), Totals(B, 9, budget=8)):
        with pytest.raises(ValueError, match=r"budget, which is missing: pass Batch\(\.\.\., budget="):
            call("aggregation.fixed_length", totals=totals, budget=None)


def test_a_geometric_mean_of_both_signs():
    x = torch.ones(B, T)
    x[0, 1] = -1
    with pytest.raises(ValueError, match="both signs within one sequence"):
        call("aggregation.geometric_mean", x=x)
    x[0, 1], x[1] = 1, -x[1]  # another row may have another sign
    assert torch.isfinite(aggregation.geometric_mean(x, good("aggregation.geometric_mean")["mask"]))


def test_a_bound_that_crosses_another():
    with pytest.raises(ValueError, match="the cap is absolute"):
        call("gates.clip_weight", cap=0.5, floor=0.5)
    with pytest.raises(ValueError, match="the two clips contradict each other"):
        call("contrib.gates.dual_clip", c=1.2)


def test_ids_outside_the_vocabulary():
    for wrong in (-100, V):  # -100 is what some libraries pad labels with
        ids = good("logprobs.token_logprobs")["ids"].clone()
        ids[1, 1] = wrong
        with pytest.raises(ValueError, match=f"the vocabulary has {V} tokens"):
            call("logprobs.token_logprobs", ids=ids)


def test_tensors_on_two_devices():
    """Named, instead of torch's own error from deep inside; the check comes before any number is read."""
    for name, argument in set(MASKED) - {("masked.zero_outside", "x")}:
        with pytest.raises(ValueError, match="move them to one device"):
            call(name, **{argument: good(name)[argument].to("meta")})


@pytest.mark.parametrize(
    "gate", [gates.none, gates.clip, contrib.gates.dual_clip, gates.clip_weight, gates.sigmoid, contrib.gates.topr]
)
def test_a_gate_leaves_a_nan_where_it_is(gate):
    """A gate sees no mask: rubbish in the padding must pass through it and touch no neighbour."""
    name = f"{gate.__module__.removeprefix('rlhf_minimal.').removeprefix('functional.')}.{gate.__name__}"
    arguments_ = good(name)
    advantage = arguments_["advantage"].clone()
    advantage[0, 0] = NAN
    out = call(name, advantage=advantage)
    assert out[0, 0].isnan()
    assert torch.equal(out.flatten()[1:], call(name).flatten()[1:])


@pytest.mark.parametrize("estimator", kl.ESTIMATORS)
def test_an_estimator_leaves_a_nan_where_it_is(estimator):
    logp = good(f"kl.{estimator}")["logp"].clone()
    logp[0, 0] = NAN
    out = call(f"kl.{estimator}", logp=logp)
    assert torch.equal(out.flatten()[1:], call(f"kl.{estimator}").flatten()[1:])


HUGE = torch.tensor([[1e20, -3e20], [2e20, 5e20], [0.0, 1e20], [-1e20, 7e20]])
SQUARES = {
    "whiten": lambda x, mask: advantages.whiten(x, mask),
    "masked_var": lambda x, mask: masked.masked_var(x, mask),
    "k2": lambda x, mask: kl.k2(x, torch.zeros_like(x)),
    "squared_loss": lambda x, mask: pairs.squared_loss(x[:, 0], beta=0.1),
    "centering_loss": lambda x, mask: pairs.centering_loss(x[:, 0], x[:, 1]),
    "value_loss": lambda x, mask: rlhf_minimal.value_loss(x, x, -x, mask),
}


@pytest.mark.parametrize("name", SQUARES)
def test_what_is_too_large_to_be_squared_is_refused(name):
    """In float32 the square of 1e20 is an infinity, and one over its root a 0: every advantage was 0 without a word."""
    with pytest.raises(ValueError, match=r"too large to be squared|not finite"):
        SQUARES[name](HUGE, torch.ones(4, 2))
    assert torch.isfinite(SQUARES[name](HUGE.double(), torch.ones(4, 2))).all()  # which can hold it
    assert torch.isfinite(SQUARES[name](HUGE / 1e12, torch.ones(4, 2))).all()


def test_whitened_values_that_are_large_and_fit_are_right():
    x = torch.tensor([[1e17, 3e17, 5e17]])
    torch.testing.assert_close(advantages.whiten(x, torch.ones(1, 3)), torch.tensor([[-1.0, 0.0, 1.0]]))


@pytest.mark.parametrize(
    "cell",
    [
        advantages.group_normalized,
        contrib.advantages.batch_std,
        contrib.advantages.best_minus_second,
        partial(contrib.advantages.leave_one_out_normalized, std="others"),
    ],
)
def test_a_spread_of_huge_rewards_is_right_or_refused(cell):
    """As the same rewards in float64 say, whose squares it can hold; never 0 where rewards differ."""
    rewards, mask = torch.tensor([[1e20], [3e20], [4e20], [9e20]]), torch.ones(4, 1)
    expected = cell(rewards.double(), mask, group_size=4)
    torch.testing.assert_close(cell(rewards, mask, group_size=4), expected.float())
    with pytest.raises(ValueError, match="too large to be squared"):
        cell(torch.tensor([[3.3e38], [-3.3e38], [3.3e38], [-3.3e38]]), mask, group_size=4)
