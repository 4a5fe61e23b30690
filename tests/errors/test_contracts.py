"""Cells that a column cannot call, and rows whose cells have no meaning together: refused when the row is built."""

import inspect
from dataclasses import FrozenInstanceError, replace
from functools import partial

import pytest
import torch

from rlhf_minimal import ALGORITHMS, KL, Algorithm, contrib, policy_loss, prepare
from rlhf_minimal.contracts import COLUMNS, CONTEXT, FIXED, _named, read_cell
from rlhf_minimal.functional import advantages, aggregation, corrections, gates, shaping
from tests.errors.test_objective import B, G, T, batch, refused

GRPO = replace(ALGORITHMS["grpo"], kl=())
DAPO = ALGORITHMS["dapo"]


# ---- one cell ---------------------------------------------------------------------------------------------------


def test_every_column_of_a_row_has_a_contract():
    fields = {name for name, field in Algorithm.__dataclass_fields__.items() if "Callable" in str(field.type)}
    assert fields == set(COLUMNS)


@pytest.mark.parametrize("column", COLUMNS)
def test_a_cell_that_wants_what_its_column_has_not(column):
    def cell(*fixed, anything): ...

    message = refused(f"{column} is cell, which wants anything: set an option with partial", read_cell, column, cell)
    for name in CONTEXT[column]:
        assert name in message
    assert read_cell(column, partial(cell, anything=1)).reads == ()


@pytest.mark.parametrize("column", COLUMNS)
def test_what_a_cell_reads_and_what_its_row_needs_for_it(column):
    """A batch always has some of it, or it is counted from the mask: no row needs these."""
    always = {"totals", "prompt_tokens", "lengths", "logp", "old_logp", "advantages"}
    for name in CONTEXT[column]:
        parameters = [inspect.Parameter("fixed", inspect.Parameter.VAR_POSITIONAL)]
        parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY))

        def cell(*fixed, **context): ...

        cell.__signature__ = inspect.Signature(parameters)
        read = read_cell(column, cell)
        assert read.reads == (name,)
        assert read.needs == ({"group" if name == "group_size" else name} - always)
        with pytest.raises(FrozenInstanceError):
            read.reads = ()


def test_the_names_of_a_contract():
    assert FIXED["gate"] == ("ratio", "advantage")
    assert CONTEXT["normalize"] == ("group_size",)
    assert _named(COLUMNS["correct"], inspect.Parameter.POSITIONAL_ONLY) == ("old_logp", "sampler_logp", "mask")
    assert _named(COLUMNS["correct"], inspect.Parameter.KEYWORD_ONLY) == ("totals",)


@pytest.mark.parametrize("column", COLUMNS)
def test_context_of_another_column(column):
    foreign = {name for names in CONTEXT.values() for name in names} - set(CONTEXT[column])
    for name in sorted(foreign):
        for default in (inspect.Parameter.empty, None):
            parameters = [inspect.Parameter("fixed", inspect.Parameter.VAR_POSITIONAL)]
            parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default))

            def cell(*fixed, **context): ...

            cell.__signature__ = inspect.Signature(parameters)
            refused(f"{column} is cell, which declares {name}: this column", read_cell, column, cell)


@pytest.mark.parametrize("column", COLUMNS)
def test_the_wrong_number_of_positional_arguments(column):
    n = len(FIXED[column])
    names = [f"x{i}" for i in range(n + 1)]
    for wrong in (names[: n - 1], names):
        cell = eval(f"lambda {', '.join(wrong)}: None")  # a function of so many arguments
        refused(rf"but this column calls {column}\({', '.join(FIXED[column])}\)", read_cell, column, cell)
    right = eval(f"lambda {', '.join(names[:n])}: None")
    assert read_cell(column, right).reads == ()


def test_context_in_front_of_the_star():
    def mine(token_rewards, mask, group_size): ...

    refused(
        r"mine\(token_rewards, mask, group_size\), but .* what else is read comes after a \*",
        replace,
        GRPO,
        advantage=mine,
    )


def test_any_keyword_at_all():
    def mine(token_rewards, mask, **context): ...

    refused("takes any keyword: name what it reads after a", replace, GRPO, advantage=mine)


def test_something_without_a_signature():
    refused("arguments cannot be read: wrap it in a function", replace, GRPO, gate=min)


def test_a_gate_without_its_bounds():
    refused(
        r"gate is clip, which wants low, high: set an option with partial\(clip, low=", replace, GRPO, gate=gates.clip
    )


def test_a_cell_receives_what_it_declares_and_nothing_else():
    seen = {}

    def mine(token_rewards, mask, *, step_ends=None, baseline, scale=2.0):
        seen.update(step_ends=step_ends, baseline=baseline, scale=scale)
        return token_rewards

    row = replace(GRPO, advantage=mine)
    assert row.needs == {"baseline"}
    given = batch()
    prepare(row, given)
    assert seen["scale"] == 2.0
    assert torch.equal(seen["step_ends"], given.step_ends)
    assert torch.equal(seen["baseline"], given.baseline)
    prepare(row, batch(step_ends=None))
    assert seen["step_ends"] is None
    refused("needs baseline: pass Batch", prepare, row, batch(baseline=None))


def test_a_partial_that_has_attributes_is_read_to_its_end():
    inner = partial(advantages.group_normalized, group_size=4)
    inner.__name__ = "mine"  # so that Python does not make one partial of the two
    assert read_cell("advantage", partial(inner, eps=0.1)).reads == ()


def test_context_that_partial_has_set_is_left_alone():
    row = replace(GRPO, aggregate=partial(aggregation.fixed_length, budget=3))
    assert row.needs == {"group"}
    by_batch = replace(GRPO, aggregate=aggregation.fixed_length)
    assert torch.equal(policy_loss(row, batch()), policy_loss(by_batch, batch(budget=3)))


def test_a_signature_is_read_once(monkeypatch):
    row = replace(GRPO)
    monkeypatch.setattr(inspect, "signature", None)
    assert torch.isfinite(policy_loss(row, batch()))


def test_a_weight_that_is_not_finite():
    def endless(mask, *, logp):
        return logp / 0.0

    refused(
        "trust, endless, gives a token a weight that is not finite", policy_loss, replace(GRPO, trust=endless), batch()
    )


# ---- cells together ---------------------------------------------------------------------------------------------

GAE = partial(advantages.gae, lam=0.9)
SPLIT = replace(GRPO, advantage=contrib.advantages.gdpo)


@pytest.mark.parametrize(
    ("row", "cells", "message"),
    [
        (
            SPLIT,
            {"kl": KL(0.1, "k1", place="reward")},
            "gdpo, reads reward_parts .* a KL in the reward would do",
        ),
        (SPLIT, {"shape": shaping.soft_overlong}, "so shape=soft_overlong would do nothing"),
        (GRPO, {"targets": GAE}, "targets train a critic, but the advantage, group_normalized, reads no values"),
        (
            ALGORITHMS["ppo"],
            {"targets": advantages.returns_to_go},
            "targets must subtract the values, but returns_to_go reads",
        ),
        (GRPO, {"entropy_aggregate": aggregation.token_mean}, "but entropy is 0: set entropy as well"),
        (GRPO, {"entropy": 0.1, "entropy_aggregate": aggregation.geometric_mean}, "choose another entropy_aggregate"),
        (ALGORITHMS["gmpo"], {"trust": contrib.trust.dppo_tv}, "0 for a sequence with a 0, and trust sets tokens to 0"),
        (ALGORITHMS["gmpo"], {"entropy": 0.1}, "give it its own, entropy_aggregate"),
    ],
)
def test_a_combination_without_a_meaning(row, cells, message):
    refused(message, replace, row, **cells)


def test_the_same_with_a_meaning():
    for row in (
        replace(SPLIT, kl=(KL(0.1, "k1", place="advantage"), KL(0.0, "k1", place="reward"))),
        replace(ALGORITHMS["ppo"], targets=partial(advantages.gae, lam=1.0)),
        replace(ALGORITHMS["gmpo"], entropy=0.1, entropy_aggregate=aggregation.token_mean),
        replace(GRPO, trust=contrib.trust.off_policy_sequence),
    ):
        assert torch.isfinite(policy_loss(row, batch(reward_parts=torch.randn(B, 3))))


def test_a_geometric_mean_of_a_kl_of_its_own():
    refused("choose another KL", KL, 0.1, "k3", aggregate=aggregation.geometric_mean)


@pytest.mark.parametrize(
    ("cells", "field"),
    [
        ({"trust": contrib.trust.off_policy_sequence}, "sampler_logp"),
        ({"trust": contrib.trust.high_entropy}, "entropy"),
        ({"correct": contrib.corrections.masked_importance}, "sampler_logp"),
        ({"advantage": contrib.advantages.gdpo}, "reward_parts"),
        ({"kl": (KL(0.1, "k1", place="advantage"),)}, "ref_logp"),
        ({"kl": (KL(0.1, "k3", aggregate=aggregation.fixed_length),)}, "budget"),
        ({"entropy": 0.1, "entropy_aggregate": aggregation.fixed_length}, "budget"),
    ],
)
def test_what_a_new_column_needs_is_asked_for_by_name(cells, field):
    row = replace(GRPO, **cells)
    assert field in row.needs
    good = batch(reward_parts=torch.randn(B, 3))
    assert torch.isfinite(policy_loss(row, good))
    refused(rf"needs {field}: pass Batch\(\.\.\., {field}=", policy_loss, row, replace(good, **{field: None}))


def test_a_filter_that_reads_lengths():
    def the_shorter_half(rewards, *, lengths, group_size):
        return lengths <= lengths.float().view(-1, group_size).median(-1).values.repeat_interleave(group_size)

    row = replace(GRPO, keep=the_shorter_half)
    known = {"lengths": torch.tensor([4, 2, 2, 1]), "truncated": None, "group_size": G, "budget": 8}
    assert row.call("keep", torch.zeros(B), **known).tolist() == [False, True, False, True]
    assert replace(GRPO, keep=contrib.filters.not_truncated).needs == {"group", "truncated"}


# ---- batches ----------------------------------------------------------------------------------------------------


def test_negative_log_likelihoods():
    logp, old_logp, trained = batch().logp.detach(), batch().old_logp, batch().mask != 0
    logp, old_logp = -logp.abs() - 0.01, -old_logp.abs() - 0.01
    refused(
        "more on every trained token.*: if these are negative log-likelihoods, pass log pi",
        batch,
        logp=-logp,
        old_logp=-old_logp,
    )
    batch(
        logp=torch.where(trained, logp, 9.0), old_logp=torch.where(trained, old_logp, 9.0)
    )  # nobody reads the padding
    batch(logp=torch.full((B, T), 0.4), old_logp=torch.zeros(B, T))  # a ratio that was made up
    for name in ("logp", "old_logp"):  # one of the two alone, beside a right one
        wrong = {"logp": logp, "old_logp": old_logp} | {name: -(logp if name == "logp" else old_logp)}
        refused(f"{name}: .*more on every trained token.*: if these are negative log-likelihoods", batch, **wrong)
    one = torch.zeros(B, T)
    one[0, :2] = 1.0
    batch(logp=old_logp + 3.0, old_logp=old_logp, mask=one)  # two tokens with a ratio that was made up


@pytest.mark.parametrize("name", ["rewards", "baseline", "values", "step_rewards", "old_logp", "ref_logp"])
@pytest.mark.parametrize("size", [-1e18, -3e38])
def test_numbers_that_float32_cannot_square(name, size):
    x = getattr(batch(), name).clone()
    x.view(-1)[0] = size
    refused(f"{name} holds -.*: scale it down, or find out where it comes from", batch, **{name: x})
    x.view(-1)[0] = -1e17
    batch(**{name: x})


def test_rewards_that_whitening_would_silence():
    """Their variance overflows to infinity, and every advantage became 0 without a word."""
    refused("rewards holds 1e", batch, rewards=torch.tensor([1e19, 0.0, 0.0, 1e19]))
    row = replace(GRPO, normalize=advantages.whiten)
    large = prepare(row, batch(rewards=torch.tensor([1e17, 0.0, 0.0, 1e17]), step_rewards=None))
    assert (large.advantages[large.mask != 0].abs() > 0.1).any()


def test_reward_parts():
    for wrong in (torch.zeros(B), torch.zeros(B + 1, 2), torch.zeros(B, 0), torch.zeros(B, 2, 1)):
        refused(r"reward_parts has shape .*, expected \(4, K\)", batch, reward_parts=wrong)
    refused("reward_parts has dtype", batch, reward_parts=torch.zeros(B, 2).long())
    refused("reward_parts holds a number that is not finite", batch, reward_parts=torch.full((B, 2), float("nan")))


@pytest.mark.parametrize("name", ["prompt_of", "prompt_tokens"])
def test_prompts(name):
    refused(f"{name} has dtype", batch, **{name: torch.zeros(B)})
    refused(rf"{name} has shape \(3,\), expected \(4,\)", batch, **{name: torch.zeros(3).long()})


def test_a_quantile_of_a_part():
    row = replace(GRPO, trust=contrib.trust.high_entropy)
    assert row.needs_whole_step
    assert replace(GRPO, correct=contrib.corrections.normalized_importance).needs_whole_step
    assert not replace(GRPO, correct=corrections.truncated_importance, trust=contrib.trust.dppo_tv).needs_whole_step
    prepared = prepare(row, batch())
    assert torch.isfinite(policy_loss(row, prepared))
    assert torch.isfinite(policy_loss(row, prepared.minibatch(torch.arange(2))))
    for part in prepared.split(2):
        refused(
            "a quantile over the whole optimiser step, 4 sequences .*: train with micro_batches=1",
            policy_loss,
            row,
            part,
        )


def test_totals_without_the_number_of_prompts():
    row = ALGORITHMS["scalerl"]
    prepared = prepare(row, batch())
    bare = replace(prepared, totals=aggregation.Totals(B, 9, 8))
    refused("divides by the number of prompts", policy_loss, row, bare)
