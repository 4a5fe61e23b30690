"""Every number in data/production_losses.json, which TRL 1.16.0 and verl 0.9.1 computed, by cells of our table.

A setting of theirs is an `Algorithm` of ours and nothing else: were a knob of a library missing here, its setting could
not be written down. Gradients are compared for all settings, values for all too; where a library carries the gradient
in log pi instead of the ratio, its value is another number with the same gradient and is converted by hand below.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import exp
from pathlib import Path

import pytest
import torch

from rlhf_minimal import KL, Algorithm, Batch, contrib, policy_loss, prepare, value_loss
from rlhf_minimal.contracts import read_cell
from rlhf_minimal.functional import advantages, aggregation, gates, ratios

GOLDEN = json.loads((Path(__file__).parent / "data" / "production_losses.json").read_text())
INPUTS = {name: torch.tensor(rows, dtype=torch.float64) for name, rows in GOLDEN["inputs"].items()}
MASK, G, BUDGET = INPUTS["mask"], GOLDEN["group_size"], GOLDEN["max_completion_length"]
EXACT = 1e-12  # float64 throughout on both sides
CAST = 1e-7  # the library passes through float32 or adds an epsilon to a denominator: said at the setting


def row(ratio, gate, aggregate, *kl: KL) -> Algorithm:
    # The advantages are given with the batch, so that cell never runs.
    return Algorithm(advantages.group_normalized, ratio, gate, aggregate, kl=kl)


def divergence(estimator: str) -> Algorithm:
    """A loss that is a KL term alone: no advantage is left (see `loss_and_gradient`)."""
    return row(ratios.on_policy, gates.none, aggregation.token_mean, KL(1.0, estimator))


def times_log_prob(weight: Callable[[torch.Tensor], torch.Tensor], denominator: float) -> float:
    """-sum weight(w) A log pi / denominator, the value of a loss whose gradient is carried by log pi."""
    total = 0.0
    for i, j in MASK.nonzero().tolist():
        logp = INPUTS["logp"][i, j]
        total -= weight((logp - INPUTS["old_logp"][i, j]).exp()) * INPUTS["advantages"][i] * logp
    return float(total / denominator)


@dataclass(frozen=True)
class Setting:
    """How a library's setting is written here, and how far the two may be apart."""

    algorithm: Algorithm
    tolerance: float = EXACT
    value: Callable[[], float] | None = None  # where the library's value is not the surrogate's


clip = partial(gates.clip, low=0.2, high=0.2)
clip_higher = partial(gates.clip, low=0.2, high=0.28)
gspo_clip = partial(gates.clip, low=3e-4, high=4e-4)
log_clip = partial(gates.clip, low=1 - exp(-0.4), high=exp(0.4) - 1)
dual_clip = partial(contrib.gates.dual_clip, low=0.2, high=0.2, c=3.0)
sapo_gate = partial(gates.sigmoid, tau_pos=1.0, tau_neg=1.05)
cap = partial(gates.clip_weight, cap=5.0)
TOKENS = float(MASK.sum())

SETTINGS = {
    "trl: grpo eps=.2": Setting(row(ratios.token, clip, aggregation.sequence_mean)),
    "trl: bnpo eps=.2": Setting(row(ratios.token, clip, aggregation.token_mean)),
    "trl: dr_grpo eps=.2": Setting(row(ratios.token, clip, aggregation.fixed_length)),
    "trl: dapo eps=.2/.28": Setting(row(ratios.token, clip_higher, aggregation.token_mean)),
    "trl: dapo eps=.2 delta=3": Setting(row(ratios.token, dual_clip, aggregation.token_mean)),
    "trl: grpo eps=.2 beta=.04 k3 uncorrected": Setting(
        row(ratios.token, clip, aggregation.sequence_mean, KL(0.04, "k3"))
    ),
    "trl: grpo eps=.2 beta=.04 k3 times ratio": Setting(
        row(ratios.token, clip, aggregation.sequence_mean, KL(0.04, "k3", weighted=True))
    ),
    "trl: gspo 3e-4/4e-4": Setting(row(ratios.sequence, gspo_clip, aggregation.sequence_mean)),
    "trl: gspo .2/.2": Setting(row(ratios.sequence, clip, aggregation.sequence_mean)),
    "trl: cispo cap=5 absolute": Setting(
        row(ratios.token, cap, aggregation.token_mean), value=lambda: times_log_prob(lambda w: w.clamp(max=5), TOKENS)
    ),
    "trl: cispo cap=2 absolute": Setting(
        row(ratios.token, partial(gates.clip_weight, cap=2.0), aggregation.token_mean),
        value=lambda: times_log_prob(lambda w: w.clamp(max=2), TOKENS),
    ),
    # torch.where(A > 0, 1.0, 1.05) of two Python numbers is a float32 tensor: TRL's tau is 1.0499999523.
    "trl: sapo 1/1.05": Setting(row(ratios.token, sapo_gate, aggregation.sequence_mean), CAST),
    # GSPO times the length: the sequence's ratio, summed over its tokens.
    "trl: luspo .2": Setting(row(ratios.sequence, clip, aggregation.sequence_sum)),
    "trl: gmpo log-clip .4": Setting(row(ratios.token, log_clip, aggregation.geometric_mean)),
    "trl: rloo sequence-sum ratio eps=.2": Setting(
        row(contrib.ratios.sequence_product, clip, aggregation.sequence_mean)
    ),
    "verl: vanilla token-mean eps=.2 dual clip 3": Setting(row(ratios.token, dual_clip, aggregation.token_mean)),
    # verl's mean within a sequence divides by its length + 1e-8.
    "verl: vanilla seq-mean-token-mean eps=.2 no dual clip": Setting(
        row(ratios.token, clip, aggregation.sequence_mean), CAST
    ),
    "verl: vanilla constant 9 eps=.2 no dual clip": Setting(row(ratios.token, clip, aggregation.fixed_length)),
    # The same + 1e-8.
    "verl: gspo (token form) 3e-4/4e-4 seq-mean-token-mean": Setting(
        row(ratios.sequence_token, gspo_clip, aggregation.sequence_mean), CAST
    ),
    # The same + 1e-8. (Its temperatures are float64, so it is nearer to us than to TRL.)
    "verl: sapo 1/1.05": Setting(row(ratios.token, sapo_gate, aggregation.sequence_mean), CAST),
    # The same + 1e-8, in the exponent.
    "verl: gmpo log-clip .4": Setting(row(ratios.token, log_clip, aggregation.geometric_mean), CAST),
    "verl: cispo weight in [0,5]": Setting(
        row(ratios.token, cap, aggregation.token_mean), value=lambda: times_log_prob(lambda w: w.clamp(0, 5), TOKENS)
    ),
    "verl: cispo weight in [.8,1.2]": Setting(
        row(ratios.token, partial(gates.clip_weight, floor=0.8, cap=1.2), aggregation.token_mean),
        value=lambda: times_log_prob(lambda w: w.clamp(0.8, 1.2), TOKENS),
    ),
    "verl: reinforce token-mean": Setting(
        row(ratios.on_policy, gates.none, aggregation.token_mean),
        value=lambda: times_log_prob(lambda w: torch.ones_like(w), TOKENS),
    ),
    "verl: kl k1 token-mean": Setting(divergence("k1")),
    "verl: kl k2 token-mean": Setting(divergence("k2")),
    "verl: kl low_var_kl token-mean": Setting(divergence("k3")),
}
VALUE_LOSS = "verl: value loss clip .5 (vpred=logp, old=old_logp, returns=ref_logp)"


def theirs(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    (record,) = [r for r in GOLDEN["losses"] if f"{r['library']}: {r['setting']}" == name]
    return torch.tensor(record["loss"], dtype=torch.float64), torch.tensor(record["grad"], dtype=torch.float64)


def loss_and_gradient(name: str, setting: Setting) -> tuple[torch.Tensor, torch.Tensor]:
    logp = INPUTS["logp"].clone().requires_grad_()
    batch = Batch(
        logp,
        INPUTS["old_logp"],
        MASK,
        INPUTS["rewards"],
        G,
        ref_logp=INPUTS["ref_logp"],
        advantages=0 * INPUTS["advantages"] if ": kl " in name else INPUTS["advantages"],
        budget=BUDGET,
    )
    loss = policy_loss(setting.algorithm, batch)
    (gradient,) = torch.autograd.grad(loss, logp)
    return loss.detach(), gradient


@pytest.mark.parametrize("name", SETTINGS)
def test_loss(name):
    setting = SETTINGS[name]
    value, gradient = theirs(name)
    loss, ours = loss_and_gradient(name, setting)
    torch.testing.assert_close(ours, gradient, rtol=0, atol=setting.tolerance)
    if setting.value is not None:
        assert abs(loss - value) > 1e-2  # really another number: see gates.clip_weight and ratios.on_policy
        loss = torch.tensor(setting.value(), dtype=torch.float64)
    torch.testing.assert_close(loss, value, rtol=0, atol=setting.tolerance)


def test_value_loss():
    value, gradient = theirs(VALUE_LOSS)
    values = INPUTS["logp"].clone().requires_grad_()
    loss = value_loss(values, INPUTS["old_logp"], INPUTS["ref_logp"], MASK, clip=0.5)
    (ours,) = torch.autograd.grad(loss, values)
    torch.testing.assert_close(ours, gradient, rtol=0, atol=EXACT)
    torch.testing.assert_close(loss.detach(), value, rtol=0, atol=EXACT)


def outcome(cell) -> torch.Tensor:
    rewards = advantages.place_rewards(INPUTS["rewards"], MASK)
    ask = read_cell("advantage", cell)
    return ask(rewards, MASK, group_size=G, values=INPUTS["values"], baseline=length_weighted_baseline())


def length_weighted_baseline() -> torch.Tensor:
    """OPO's: a group's mean reward, each response counted by its length. It arrives with the batch."""
    weight = MASK.sum(-1).view(-1, G)
    mean = (weight * INPUTS["rewards"].view(-1, G)).sum(-1) / weight.sum(-1)
    return mean.repeat_interleave(G)


def gpg() -> torch.Tensor:
    """Centred rewards times (sequences / rewards that are not 0), one constant for the batch."""
    return outcome(advantages.group_centered) * len(MASK) / INPUTS["rewards"].count_nonzero()


def whitened(cell) -> torch.Tensor:
    return advantages.whiten(outcome(cell), MASK)


gae = partial(advantages.gae, gamma=1.0, lam=0.95)
ESTIMATORS = {
    "verl grpo": (lambda: outcome(partial(advantages.group_normalized, eps=1e-6)), EXACT),
    "verl grpo without std": (lambda: outcome(advantages.group_centered), EXACT),
    "verl rloo": (lambda: outcome(advantages.leave_one_out), EXACT),
    "verl gpg": (gpg, CAST),  # its constant is a float32 tensor
    "verl opo": (lambda: outcome(contrib.advantages.given_baseline), EXACT),
    # verl whitens with sums divided by (tokens + 1e-8).
    "verl reinforce_plus_plus": (lambda: whitened(advantages.returns_to_go), CAST),
    "verl reinforce_plus_plus_baseline": (lambda: whitened(advantages.group_centered), CAST),
    "verl gae gamma=1 lam=.95 whitened": (lambda: whitened(gae), CAST),
    "verl gae returns": (lambda: outcome(gae) + INPUTS["values"], EXACT),
    "trl grpo scale_rewards=group (ddof 1, eps 1e-4)": (lambda: outcome(advantages.group_normalized), EXACT),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_advantages(name):
    ours, tolerance = ESTIMATORS[name]
    numbers = torch.tensor(GOLDEN["advantages"][name], dtype=torch.float64)
    if numbers.dim() == 1:
        numbers = numbers[:, None].expand_as(MASK)
    trained = MASK != 0  # verl leaves numbers on the padding
    torch.testing.assert_close(ours()[trained], numbers[trained], rtol=0, atol=tolerance)


def test_a_prepared_batch_holds_their_advantages_and_their_critics_targets():
    """Through `prepare`, as the loop takes them: GAE on the placed rewards, targets before whitening, then whitened."""
    algorithm = Algorithm(gae, ratios.token, clip, aggregation.sequence_mean, normalize=advantages.whiten)
    batch = Batch(
        INPUTS["logp"], INPUTS["old_logp"], MASK, INPUTS["rewards"], G, values=INPUTS["values"], budget=BUDGET
    )
    batch = prepare(algorithm, batch)
    trained = MASK != 0
    for ours, name in ((batch.advantages, "verl gae gamma=1 lam=.95 whitened"), (batch.returns, "verl gae returns")):
        numbers = torch.tensor(GOLDEN["advantages"][name], dtype=torch.float64)
        torch.testing.assert_close(ours[trained], numbers[trained], rtol=0, atol=ESTIMATORS[name][1])


@pytest.mark.parametrize("pieces", [2, 3, 8])
def test_their_value_loss_is_the_sum_of_our_micro_batches(pieces):
    value, gradient = theirs(VALUE_LOSS)
    values, total = INPUTS["logp"].clone().requires_grad_(), 0.0
    batch = Batch(
        INPUTS["logp"], INPUTS["old_logp"], MASK, INPUTS["rewards"], G, advantages=0 * INPUTS["logp"], budget=BUDGET
    )
    rows = torch.arange(len(MASK)).tensor_split(pieces)
    for micro, idx in zip(batch.split(pieces), rows, strict=True):
        old, returns = INPUTS["old_logp"][idx], INPUTS["ref_logp"][idx]
        piece = value_loss(values[idx], old, returns, micro.mask, clip=0.5, totals=micro.totals)
        piece.backward()
        total += piece.item()
    torch.testing.assert_close(values.grad, gradient, rtol=0, atol=EXACT)
    assert total == pytest.approx(value.item(), abs=EXACT)


def test_their_token_rewards_are_ours():
    assert torch.equal(advantages.place_rewards(INPUTS["rewards"], MASK), INPUTS["token_rewards"])


def test_their_advantages_are_the_ones_that_the_losses_used():
    numbers = GOLDEN["advantages"]["trl grpo scale_rewards=group (ddof 1, eps 1e-4)"]
    assert numbers == GOLDEN["inputs"]["advantages"]


def test_every_number_of_the_file_is_tested():
    """A key that nobody reads would be a claim that nobody checks."""
    assert {f"{r['library']}: {r['setting']}" for r in GOLDEN["losses"]} == {*SETTINGS, VALUE_LOSS}
    assert len(GOLDEN["losses"]) == len(SETTINGS) + 1
    assert all(record.keys() == {"library", "setting", "loss", "grad"} for record in GOLDEN["losses"])
    assert GOLDEN["advantages"].keys() == ESTIMATORS.keys()
    inputs = "logp old_logp ref_logp mask rewards token_rewards values advantages"
    assert GOLDEN["inputs"].keys() == set(inputs.split())
    settings = "versions dtype prompts group_size tokens max_completion_length inputs losses advantages"
    assert GOLDEN.keys() == set(settings.split())
    assert GOLDEN["dtype"] == "float64"
    assert (GOLDEN["prompts"] * G, GOLDEN["tokens"]) == tuple(MASK.shape)
    assert GOLDEN["versions"] == {"torch": "2.13.0+cpu", "trl": "1.16.0", "verl": "0.9.1"}


def test_the_batch_tells_the_settings_apart():
    """Were two settings the same number on this batch, one could stand in for the other unnoticed."""
    same = {  # the same loss in two libraries, or by two of one library's names
        frozenset({"trl: dapo eps=.2 delta=3", "verl: vanilla token-mean eps=.2 dual clip 3"}),
        frozenset({"trl: grpo eps=.2", "verl: vanilla seq-mean-token-mean eps=.2 no dual clip"}),
        frozenset({"trl: dr_grpo eps=.2", "verl: vanilla constant 9 eps=.2 no dual clip"}),
        frozenset({"trl: gspo 3e-4/4e-4", "verl: gspo (token form) 3e-4/4e-4 seq-mean-token-mean"}),
        frozenset({"trl: sapo 1/1.05", "verl: sapo 1/1.05"}),
        frozenset({"trl: gmpo log-clip .4", "verl: gmpo log-clip .4"}),
        frozenset({"trl: cispo cap=5 absolute", "verl: cispo weight in [0,5]"}),
    }
    names = list(SETTINGS)
    for i, first in enumerate(names):
        for second in names[i + 1 :]:
            apart = max(float((a - b).abs().max()) for a, b in zip(theirs(first), theirs(second), strict=True))
            assert (apart < 1e-6) == (frozenset({first, second}) in same), (first, second, apart)
