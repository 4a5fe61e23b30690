"""Bad batches, bad rows and bad questions: a ValueError that says what was given, what was expected and what to do."""

import dataclasses
import inspect
from dataclasses import replace
from functools import partial

import pytest
import torch

import rlhf_minimal
from rlhf_minimal import (
    ALGORITHMS,
    KL,
    Algorithm,
    Batch,
    Totals,
    algorithms,
    anatomy,
    contrib,
    diff,
    gradient_weight,
    objective,
    policy_loss,
    prepare,
    table,
    token_weights,
    value_loss,
)
from rlhf_minimal.algorithms import get_algorithm
from rlhf_minimal.functional import advantages, aggregation, corrections, filters, gates, ratios

B, T, G = 4, 4, 2  # B = T: a broadcast along the wrong axis would not raise by itself
NAN, INF = float("nan"), float("inf")
every_row = pytest.mark.parametrize("name", ALGORITHMS)

PER_TOKEN = "logp old_logp ref_logp values advantages step_rewards sampler_logp entropy returns".split()
PER_ROW = ["rewards", "baseline", "greedy_rewards"]
PROMPTS = ["prompt_of", "prompt_tokens"]
REQUIRED = ["logp", "old_logp", "mask", "rewards"]


def good(seed=0) -> dict:
    g = torch.Generator().manual_seed(seed)
    mask = torch.tensor([[1, 1, 1, 1], [1, 0, 1, 0], [1, 1, 0, 0], [1, 0, 0, 0]]).float()
    tensors = {name: torch.randn(B, T, generator=g) for name in PER_TOKEN}
    tensors |= {name: -x.abs() for name, x in tensors.items() if name.endswith("logp")}
    tensors |= {name: torch.randn(B, generator=g) for name in PER_ROW}
    tensors["rewards"] = tensors["rewards"].abs()  # maxrl refuses a group whose mean is negative
    truncated = torch.tensor([True, False, False, True])
    parts = torch.randn(B, 2, generator=g)
    rest = {"step_ends": mask, "truncated": truncated, "reward_parts": parts, "group_size": G, "budget": 8}
    return tensors | {"mask": mask} | rest


def batch(**changes) -> Batch:
    """A batch from which prepare is still to make advantages."""
    return Batch(**{**good(), "advantages": None, "returns": None, **changes})


def k3(logp, ref_logp):
    return (logp - ref_logp) ** 4


def refused(match, make, *args, **kwargs):
    with pytest.raises(ValueError, match=match) as caught:
        make(*args, **kwargs)
    assert len(str(caught.value)) > 25
    return str(caught.value)


def test_every_public_name_is_tried_here():
    """A function or class that joins these modules must join these tests."""
    tried = {
        *("KL", "Algorithm", "Batch", "NotFinite", "Totals", "prepare", "policy_loss", "value_loss"),
        *("get_algorithm", "table", "diff", "gradient_weight", "token_weights"),
    }
    found = {
        name
        for module in (objective, algorithms, anatomy)
        for name, thing in vars(module).items()
        if not name.startswith("_")
        and (inspect.isfunction(thing) or inspect.isclass(thing))
        and thing.__module__ == module.__name__
    }
    assert found | {"Totals"} == tried  # Totals lives in functional.aggregation
    second = {"PAIRWISE", "PairwiseAlgorithm", "Pairs", "pairwise_gap", "pairwise_loss"}  # see test_pairwise.py
    assert set(rlhf_minimal.__all__) - {"ALGORITHMS", "contrib"} - second == tried - {"get_algorithm"}
    methods = {name for name in vars(Batch) if not name.startswith("_")} - {f.name for f in dataclasses.fields(Batch)}
    assert methods == {"lengths", "minibatch", "part", "split"}
    tensors = {f.name for f in dataclasses.fields(Batch)} - {"group_size", "budget", "totals"}
    assert tensors == {*PER_TOKEN, *PER_ROW, *PROMPTS, "mask", "step_ends", "truncated", "reward_parts"}


# ---- Batch ------------------------------------------------------------------------------------------------------


def test_the_good_batch_is_good():
    Batch(**good())
    batch()


@pytest.mark.parametrize("name", PER_TOKEN)
def test_per_token_tensors(name):
    x = good()[name]
    shapes = [(), (1, T), (B, 1), (1, 1), (B, T + 1), (B + 1, T), (B, T, 1), (B + 1,), (1,)]
    if name != "advantages":  # ... for which one number a row is meant and spread over the row
        shapes.append((B,))
    for shape in shapes:
        refused(r"has shape|\(", Batch, **good() | {name: torch.ones(shape)})
    for dtype in (torch.int64, torch.bool):
        refused(rf"{name} has dtype .*, expected floating point", Batch, **good() | {name: x.to(dtype)})
    refused(rf"{name} is a list, expected a tensor", Batch, **good() | {name: x.tolist()})
    for value in (NAN, INF, -INF):
        spoiled = x.clone()
        spoiled[1, 2] = value
        refused(rf"{name} is not finite on a trained token", Batch, **good() | {name: spoiled})
        padding = x.clone()
        padding[1, 3] = value
        Batch(**good() | {name: padding})
    if name == "logp":
        refused(
            r"logp has shape \(4, 4, 1\), expected \[B, T\], one row a completion",
            Batch,
            **good() | {name: x[..., None]},
        )
    else:
        refused("move them to one device", Batch, **good() | {name: x.to("meta")})


@pytest.mark.parametrize("name", PER_ROW)
def test_per_row_tensors(name):
    x = good()[name]
    for shape in [(), (B, 1), (1, B), (B + 1,), (1,), (B, T)]:
        refused(rf"{name} has shape .*, expected \(4,\): one number", Batch, **good() | {name: torch.ones(shape)})
    for dtype in (torch.int64, torch.bool):
        refused(rf"{name} has dtype", Batch, **good() | {name: x.to(dtype)})
    refused(rf"{name} is a list", Batch, **good() | {name: x.tolist()})
    for value in (NAN, INF):
        refused(rf"{name} holds a number that is not finite", Batch, **good() | {name: torch.full((B,), value)})
    refused("move them to one device", Batch, **good() | {name: x.to("meta")})


@pytest.mark.parametrize("name", REQUIRED)
def test_what_every_batch_has(name):
    refused(rf"{name} is a NoneType, expected a tensor", Batch, **good() | {name: None})


def test_one_advantage_a_row_is_spread_along_the_row():
    """With B == T, ratio * advantages would give every token another row's number."""
    A = torch.tensor([1.0, 2.0, 3.0, 4.0])
    spread = Batch(**good() | {"advantages": A}).advantages
    assert torch.equal(spread, A[:, None].expand(B, T))
    refused("advantages holds a number that is not finite", Batch, **good() | {"advantages": A * NAN})
    refused(r"advantages has shape \(3,\), expected \(4,\)", Batch, **good() | {"advantages": A[:3]})


def test_masks():
    for name in ("mask", "step_ends"):
        for wrong in (torch.ones(B), torch.ones(B, T, 1), torch.ones(0, T)):
            refused(rf"{name} has shape", Batch, **good() | {name: wrong})
        for value in (0.5, -1.0, NAN):
            refused(f"{name} must hold only 0 and 1", Batch, **good() | {name: torch.full((B, T), value)})
        refused(f"{name} is a list", Batch, **good() | {name: good()[name].tolist()})
    refused(r"mask has shape \(4, 5\), expected \(4, 4\)", Batch, **good() | {"mask": torch.ones(B, T + 1)})
    refused(r"step_ends \(4, 5\) and mask \(4, 4\)", Batch, **good() | {"step_ends": torch.ones(B, T + 1)})
    refused("zero everywhere, so no token would be trained: drop this batch", batch, mask=torch.zeros(B, T))


def test_truncated():
    for wrong in (torch.ones(B), torch.ones(B, dtype=torch.int64), torch.ones(B, 1, dtype=torch.bool)):
        refused(r"truncated is .*, expected bool \(4,\)", Batch, **good() | {"truncated": wrong})
    refused("truncated is a list", Batch, **good() | {"truncated": [True] * B})


def test_groups():
    refused("4 sequences do not divide into groups of 3", batch, group_size=3)
    refused("4 sequences do not divide into groups of 5", batch, group_size=5)
    for wrong in (0, -2, 2.0, "2", None, NAN, True):
        refused("group_size is .*, expected a whole number of at least 1", batch, group_size=wrong)
        refused("group_size is .*, expected a whole number of at least 1", Batch, **good() | {"group_size": wrong})


def test_budget_and_totals():
    for wrong in (0, -1, 8.0, "8", NAN):
        refused("budget is .*, expected a whole number of at least 1", batch, budget=wrong)
        refused("budget is .*, expected a whole number of at least 1", Totals, 1, 1, wrong)
    refused(r"totals is 9, expected Totals\(sequences, tokens, budget\)", batch, totals=9)


def test_minibatch_and_split():
    prepared = prepare(ALGORITHMS["grpo"], batch())
    for part in (lambda b: b.minibatch(torch.arange(2)), lambda b: b.part(torch.arange(2)), lambda b: b.split(2)):
        refused(r"prepare\(algorithm, batch\) first: advantages need whole groups", part, batch())
    for n in (0, -1, 2.0, "2", None):
        refused("n is .*, expected a whole number of at least 1", prepared.split, n)
    refused("cannot split 4 rows into 5 micro-batches", prepared.split, 5)
    refused("idx is a list, expected a tensor", prepared.minibatch, [0, 1])
    refused("idx has dtype torch.float32, expected integers", prepared.minibatch, torch.ones(2))
    last = prepared.minibatch(torch.tensor([-4, 3]))  # counted from the end, as everywhere
    assert torch.equal(last.logp, prepared.logp[[0, 3]])
    wrong = [torch.tensor([0, 4]), torch.tensor([-5]), torch.ones(3, dtype=torch.bool), torch.zeros(1, 1).long()]
    for idx in wrong:
        refused("idx is .*, expected row numbers below 4, or one bool for each of 4 rows", prepared.minibatch, idx)
    refused("with at least one token", prepared.minibatch, torch.tensor([], dtype=torch.int64))


# ---- prepare and policy_loss --------------------------------------------------------------------------------


@every_row
def test_whatever_a_row_needs_is_asked_for_by_name(name):
    algorithm = ALGORITHMS[name]
    policy_loss(algorithm, batch())
    for field in algorithm.needs - {"group"}:
        lacking = batch(**{field: None})
        asked_late = field == "entropy"  # that of the policy being trained, which is known only in the loss
        for ask in (policy_loss,) if asked_late else (prepare, policy_loss):
            refused(rf"needs {field}: pass Batch\(\.\.\., {field}=\.\.\.\)", ask, algorithm, lacking)


@every_row
def test_what_a_row_does_not_need_need_not_be_given(name):
    algorithm = ALGORITHMS[name]
    optional = {"ref_logp", "values", "budget", "baseline", "sampler_logp", "entropy", "step_rewards", "step_ends"}
    optional |= {"greedy_rewards", "reward_parts"}
    policy_loss(algorithm, batch(truncated=None, **dict.fromkeys(optional - algorithm.needs)))


@every_row
def test_a_prepared_batch_needs_only_what_the_loss_reads(name):
    """Advantages came with the batch: the critic, a penalty in the reward and its budget have done their work."""
    algorithm = ALGORITHMS[name]
    spent = dict.fromkeys(["values", "baseline", "step_rewards", "step_ends", "returns", "truncated"])
    if not any(kl.place == "loss" and kl.against == "reference" for kl in algorithm.kl):
        spent["ref_logp"] = None
    if algorithm.aggregate is not aggregation.fixed_length:
        spent["budget"] = None
    policy_loss(algorithm, Batch(**good() | spent | {"advantages": torch.ones(B)}))


@every_row
def test_a_group_of_one(name):
    algorithm, single = ALGORITHMS[name], batch(group_size=1)
    if "group" not in algorithm.needs:
        assert torch.isfinite(policy_loss(algorithm, single))
        return
    for ask in (prepare, policy_loss):
        refused("group_size is 1.*at least 2: sample more completions", ask, algorithm, single)


@pytest.mark.parametrize(
    ("cells", "field"),
    [
        ({"advantage": contrib.advantages.given_baseline}, "baseline"),
        ({"advantage": advantages.gae}, "values"),
        ({"aggregate": aggregation.fixed_length}, "budget"),
        ({"correct": corrections.truncated_importance}, "sampler_logp"),
        ({"entropy": 0.01}, "entropy"),
        ({"kl": (KL(0.1, "k1", place="reward"),)}, "ref_logp"),
        ({"kl": (KL(0.1, "k2"),)}, "ref_logp"),
    ],
)
def test_whatever_a_cell_needs_is_asked_for_by_name(cells, field):
    algorithm = replace(ALGORITHMS["grpo"], kl=(), **{k: v for k, v in cells.items() if k != "kl"})
    algorithm = replace(algorithm, kl=cells.get("kl", ()))
    assert field in algorithm.needs
    policy_loss(algorithm, batch())
    message = refused(rf"needs {field}: pass Batch", policy_loss, algorithm, batch(**{field: None}))
    assert message.endswith(f"=...), {ADVICE[field]}")


def test_the_entropy_of_a_policy_is_not_known_before_it_is_trained():
    algorithm = replace(ALGORITHMS["grpo"], entropy=0.01)
    prepared = prepare(algorithm, batch(entropy=None))
    refused("needs entropy", policy_loss, algorithm, prepared)


def test_a_kl_penalty_with_coefficient_zero_needs_no_reference():
    loose = replace(ALGORITHMS["grpo"], kl=(KL(0.0, "k3"), KL(0.0, "k1", place="reward")))
    assert "ref_logp" not in loose.needs
    expected = policy_loss(replace(loose, kl=()), batch())
    assert torch.equal(policy_loss(loose, batch(ref_logp=None)), expected)


def test_the_budget_may_come_with_the_totals():
    """A part of a batch knows the denominators of the whole, the budget among them."""
    dr_grpo = ALGORITHMS["dr_grpo"]
    prepared = prepare(dr_grpo, batch())
    part = replace(prepared, budget=None, totals=Totals(B, 9, budget=8))
    assert torch.equal(policy_loss(dr_grpo, part), policy_loss(dr_grpo, prepared))
    refused("needs budget", policy_loss, dr_grpo, replace(part, totals=Totals(B, 9)))
    # It stands in for nothing else.
    refused("needs ref_logp", policy_loss, ALGORITHMS["grpo"], replace(part, ref_logp=None))


def test_a_cell_of_ones_own_that_needs_a_group_gets_one():
    def mine(token_rewards, mask, *, group_size):
        return advantages.returns_to_go(token_rewards, mask)

    algorithm = replace(ALGORITHMS["reinforce"], advantage=mine)
    assert torch.isfinite(policy_loss(algorithm, batch()))
    refused("group_size is 1.*at least 2: sample more completions", policy_loss, algorithm, batch(group_size=1))


def test_an_algorithm_is_not_its_name():
    for ask in (prepare, policy_loss):
        refused(r"algorithm is 'grpo', expected an Algorithm: a row is ALGORITHMS\[name\]", ask, "grpo", batch())
        refused(r"batch is a dict, expected Batch\(logp", ask, ALGORITHMS["grpo"], good())


@pytest.mark.parametrize("name", ["grpo", "gspo", "cispo", "reinforce"])
def test_a_ratio_that_overflows(name):
    far = batch(logp=good()["old_logp"], old_logp=good()["old_logp"] - 100.0)  # exp(100) is not a float32
    algorithm = ALGORITHMS[name]
    if algorithm.ratio is ratios.on_policy:
        assert torch.isfinite(policy_loss(algorithm, far))
        return
    message = refused("a ratio overflows.*train fewer steps on one rollout", policy_loss, algorithm, far)
    assert "100 nats" in message


def test_a_kl_penalty_that_overflows():
    """Its padding may hold anything, and is not what the message speaks of."""
    ref, old = good()["old_logp"], good()["old_logp"] - 100.0
    logp = old.masked_fill(good()["mask"] == 0, NAN)
    message = refused("finite", policy_loss, ALGORITHMS["grpo"], batch(logp=logp, old_logp=old, ref_logp=ref))
    assert "nan" not in message


def test_a_kl_of_whole_completions_that_overflows():
    """It goes through no aggregation, which would have said so."""
    penalty = KL(0.1, "k3", level="sequence")
    ref, old = good()["old_logp"], good()["old_logp"] - 40.0
    far = batch(ref_logp=ref, old_logp=old, logp=old.masked_fill(good()["mask"] == 0, NAN))
    message = refused("the loss is not finite .*: the numbers exceed", policy_loss, cells_of("dr_grpo", penalty), far)
    with pytest.raises(objective.NotFinite):  # by which a loop may know that the run has collapsed
        policy_loss(cells_of("dr_grpo", penalty), far)
    assert "largest log-ratio of a token 0 nats" in message
    assert "nan" not in message


def cells_of(name, *kl):
    return replace(ALGORITHMS[name], kl=kl)


def test_everything_but_the_policy_is_a_constant():
    """A reference, a critic or a sampler that carries a graph gets no gradient from the policy's loss."""
    x = {
        name: value.clone().requires_grad_() if name in PER_TOKEN + PER_ROW else value for name, value in good().items()
    }
    algorithm = replace(
        cells_of("grpo", KL(0.1, "k3"), KL(0.1, "k2", against="old")),
        entropy=0.1,
        correct=corrections.truncated_importance,
    )
    policy_loss(algorithm, Batch(**x)).backward()
    reached = {name for name in PER_TOKEN + PER_ROW if x[name].grad is not None}
    assert reached == {"logp", "entropy"}


def test_only_the_critic_being_trained_learns():
    x = {name: torch.randn(B, T).requires_grad_() for name in ("values", "old_values", "returns")}
    value_loss(**x, mask=good()["mask"], clip=0.2).backward()
    assert [name for name in x if x[name].grad is not None] == ["values"]


ADVICE = {
    "values": "a critic's estimates [B, T]",
    "ref_logp": "the reference's log-probs [B, T], or take the KL out with replace(algorithm, kl=())",
    "budget": "the number of tokens a completion was allowed (not the padded width)",
    "baseline": "one number for each sequence [B]",
    "sampler_logp": "the log-probs of the engine that sampled [B, T]",
    "entropy": "the policy's entropy at each token [B, T], with its gradient",
}


def test_geometric_mean_of_advantages_of_both_signs():
    A = torch.tensor([[1.0, -1.0, 1.0, 1.0]] * B)
    refused("both signs within one sequence", policy_loss, ALGORITHMS["gmpo"], Batch(**good() | {"advantages": A}))


# ---- value_loss -------------------------------------------------------------------------------------------------


def test_value_loss():
    names = ("values", "old_values", "returns")
    arguments = {name: torch.randn(B, T, generator=torch.Generator().manual_seed(1)) for name in names}
    mask = good()["mask"]
    assert torch.isfinite(value_loss(**arguments, mask=mask))
    for name in names:
        for shape in [(), (B,), (T,), (1, T), (B, 1), (B, T + 1), (B, T, 1)]:
            wrong = arguments | {name: torch.ones(shape)}
            refused(rf"{name} has shape .*, expected \(4, 4\)", value_loss, **wrong, mask=mask)
        refused(f"{name} has dtype", value_loss, **arguments | {name: torch.ones(B, T).long()}, mask=mask)
        refused(f"{name} is a list", value_loss, **arguments | {name: [[0.0]]}, mask=mask)
        spoiled = arguments[name].clone()
        spoiled[1, 2] = NAN
        refused(f"{name} is not finite on a trained token", value_loss, **arguments | {name: spoiled}, mask=mask)
        padding = arguments | {name: arguments[name].masked_fill(mask == 0, NAN)}
        assert torch.equal(value_loss(**padding, mask=mask), value_loss(**arguments, mask=mask))
    for clip in (0.0, -0.2, NAN, "0.2"):
        refused("clip is .*, expected a number above 0", value_loss, **arguments, mask=mask, clip=clip)
    nothing = torch.zeros(B, T)
    refused("zero everywhere", value_loss, **arguments, mask=nothing)
    assert value_loss(**arguments, mask=nothing, totals=Totals(9, 9)) == 0
    refused("tokens is 0", value_loss, **arguments, mask=mask, totals=Totals(4, 0))
    refused("mask must hold only 0 and 1", value_loss, **arguments, mask=mask / 2)


# ---- KL and Algorithm ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"coef": -0.1}, "coef is -0.1, expected a number of at least 0"),
        ({"coef": NAN}, "coef is nan"),
        ({"coef": "0.1"}, "coef is '0.1'"),
        ({"estimator": "k4"}, "KL estimator is 'k4', expected one of k1, k2, k3"),
        ({"estimator": gates.clip}, "KL estimator is <function clip at .*, expected one of k1, k2, k3, absolute"),
        ({"estimator": partial(rlhf_minimal.functional.kl.k1)}, "KL estimator is functools.partial"),
        ({"estimator": k3}, "KL estimator is <function k3 at"),  # of one's own, not the library's
        ({"place": "gradient"}, "KL place is 'gradient', expected one of reward, advantage, loss"),
        ({"place": "advantage", "against": "old"}, "in the advantage is always 0: put it in the loss"),
        ({"place": "advantage", "weighted": True}, "belong to a KL in the loss: in the advantage nothing is averaged"),
        ({"against": "ref"}, "KL against is 'ref', expected one of reference, old"),
        ({"level": "row"}, "KL level is 'row', expected one of token, sequence"),
        ({"place": "reward", "against": "old"}, "is always 0: put it in the loss"),
        ({"place": "reward", "weighted": True}, "belong to a KL in the loss"),
        ({"place": "reward", "aggregate": aggregation.token_mean}, "belong to a KL in the loss"),
        ({"level": "sequence", "aggregate": aggregation.token_mean}, "leave aggregate out"),
        ({"aggregate": "token_mean"}, "KL aggregate is 'token_mean', expected a function"),
    ],
)
def test_a_kl_penalty_that_does_not_exist_or_would_do_nothing(options, message):
    refused(message, KL, **{"coef": 0.1, "estimator": "k3"} | options)


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ({"advantage": "gae"}, "advantage is 'gae', expected a function"),
        ({"advantage": None}, "advantage is None, expected a function"),
        ({"ratio": None}, "ratio is None, expected a function"),
        ({"gate": None}, "gate is None, expected a function"),
        ({"gate": 0.2}, "gate is 0.2, expected a function"),
        ({"aggregate": None}, "aggregate is None"),
        ({"normalize": True}, "normalize is True"),
        ({"shape": "soft_overlong"}, "shape is 'soft_overlong'"),
        ({"keep": 1}, "keep is 1"),
        ({"correct": 2.0}, "correct is 2.0"),
        ({"kl": (0.04,)}, r"kl holds 0.04, expected KL\(coef, estimator"),
        ({"kl": 0.04}, r"kl holds 0.04, expected KL\(coef, estimator"),
        ({"entropy": -0.01}, "entropy is -0.01, expected a number of at least 0"),
        ({"entropy": "0.01"}, "entropy is '0.01'"),
    ],
)
def test_a_row_with_a_cell_that_is_none(cells, message):
    refused(message, replace, ALGORITHMS["grpo"], **cells)


def test_a_geometric_mean_averages_nothing_but_ratios():
    for mean in (aggregation.geometric_mean, partial(aggregation.geometric_mean)):
        gmpo = replace(ALGORITHMS["gmpo"], aggregate=mean)
        refused("a geometric mean cannot average a KL: give it its own", replace, gmpo, kl=(KL(0.04, "k3"),))
        refused("a geometric mean cannot average an entropy bonus", replace, gmpo, entropy=0.01)
        for kl in (
            KL(0.04, "k3", aggregate=aggregation.sequence_mean),
            KL(0.04, "k2", level="sequence"),
            KL(0.04, "k1", place="reward"),
        ):
            assert torch.isfinite(policy_loss(replace(gmpo, kl=(kl,)), batch()))


def test_kl_penalties_in_any_wrapping():
    penalty = KL(0.04, "k3")
    for kl in (penalty, [penalty], (penalty,)):
        assert replace(ALGORITHMS["dapo"], kl=kl).kl == (penalty,)
    assert KL(0.04, rlhf_minimal.functional.kl.k3) == penalty


def test_a_filter_in_a_row_does_not_filter_in_the_loss():
    kept = replace(ALGORITHMS["grpo"], keep=filters.mixed_outcomes)
    assert torch.equal(policy_loss(kept, batch()), policy_loss(ALGORITHMS["grpo"], batch()))


@pytest.mark.parametrize(
    "thing", [KL(0.1, "k1"), ALGORITHMS["grpo"], batch(), Totals(1, 1)], ids=lambda x: type(x).__name__
)
def test_nothing_is_changed_in_place(thing):
    """A row or a batch that changed under its reader would not be the one that was checked: use replace."""
    name = dataclasses.fields(thing)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(thing, name, None)


# ---- the table and its pictures -------------------------------------------------------------------------------


def test_an_unknown_name():
    for ask in (get_algorithm, partial(diff, "grpo"), lambda name: diff(name, "grpo")):
        refused("unknown algorithm 'gropo'; did you mean grpo\\? Known: reinforce, ", ask, "gropo")
        refused("unknown algorithm 'xyz'. Known: reinforce, ", ask, "xyz")
        for wrong in (None, 3, ["grpo"]):
            refused("unknown algorithm .* Known: reinforce, ", ask, wrong)
    refused("unknown algorithm 'gropo'", gradient_weight, "gropo", 1.0, 1.0)
    refused("unknown algorithm 'gropo'", token_weights, "gropo", torch.ones(1, 1))


def test_a_table_of_something_else():
    refused("'mine' is 3, expected an Algorithm", table, {"mine": 3})
    refused(r"algorithms is a list, expected \{name: Algorithm\}", table, [ALGORITHMS["grpo"]])


def test_gradient_weight():
    for ratio in (0.0, -1.0, NAN, [1.0, 0.0]):
        refused("a ratio of probabilities is above 0", gradient_weight, "grpo", torch.tensor(ratio), 1.0)
    refused("not finite", gradient_weight, "grpo", INF, 1.0)
    refused("advantages is not finite", gradient_weight, "grpo", 1.0, NAN)
    refused("numbers or tensors that broadcast", gradient_weight, "grpo", torch.ones(2), torch.ones(3))
    refused("numbers or tensors that broadcast", gradient_weight, "grpo", None, 1.0)
    refused("numbers or tensors that broadcast", gradient_weight, "grpo", "1", 1.0)


def test_token_weights():
    ones = torch.ones(2, 3)
    refused("zero everywhere", token_weights, "grpo", 0 * ones)
    refused("mask must hold only 0 and 1", token_weights, "grpo", ones / 2)
    refused("mask has shape", token_weights, "grpo", torch.ones(3))
    refused("mask is a list", token_weights, "grpo", [[1, 0]])
    refused("needs budget", token_weights, "dr_grpo", ones)
    for budget in (0, -1, 2.5):
        refused("budget is .*, expected a whole number", token_weights, "dr_grpo", ones, budget=budget)


def test_a_row_of_ones_own_is_checked_like_any_other():
    mine = Algorithm(advantages.group_centered, ratios.token, gates.none, aggregation.fixed_length)
    refused("needs budget", policy_loss, mine, batch(budget=None))


def test_negative_log_likelihoods_are_told_from_log_probs():
    """Also where a token is certain, and so 0 on both scales; and in one field beside others that are right."""
    nll = torch.tensor([[0.0, 2.0], [0.7, 0.0]])
    rest = {"mask": torch.ones(2, 2), "rewards": torch.tensor([1.0, 0.0]), "group_size": 2}
    with pytest.raises(ValueError, match="logp and old_logp.*pass log pi instead of -log pi"):
        Batch(nll, nll, **rest)
    for name in ("ref_logp", "sampler_logp"):
        with pytest.raises(ValueError, match=f"{name}: .*up to 2.*pass log pi instead of -log pi"):
            Batch(-nll, -nll, **rest, **{name: nll})
        Batch(-nll, -nll, **rest, **{name: -nll})
    with pytest.raises(ValueError, match="old_logp: .*up to 2"):
        Batch(-nll, nll, **rest)
    hidden = rest | {"mask": torch.tensor([[1, 0], [0, 1]])}  # what is not trained on is not read
    Batch(nll * 0 + torch.tensor([[0.0, 2.0], [2.0, 0.0]]), nll, **hidden)
    Batch(nll.half() * 2e-4, nll.half() * 2e-4, **rest)  # rounding in half precision


def test_pairs_of_negative_log_likelihoods_are_refused():
    nll, mask = torch.tensor([[0.0, 2.0]]), torch.ones(1, 2)
    given = {"chosen_mask": mask, "rejected_mask": mask, "chosen_logp": -nll, "rejected_logp": -nll}
    rlhf_minimal.Pairs(**given)
    with pytest.raises(ValueError, match="pass log pi instead of -log pi"):
        rlhf_minimal.Pairs(**given | {"chosen_logp": nll, "rejected_logp": nll})
    with pytest.raises(ValueError, match="ref_chosen_logp and ref_rejected_logp: .*up to 2"):
        rlhf_minimal.Pairs(**given, ref_chosen_logp=nll, ref_rejected_logp=nll)
