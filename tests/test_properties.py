"""What every row of the table must do on every batch, whatever its cells say.

The rows come from the table, so a new one is held to all of this by being there. Hypothesis draws shapes, masks and
seeds; it is derandomised (conftest.py), and a failure comes with the smallest case that shows it.
"""

import dataclasses
import inspect
from dataclasses import replace
from functools import partial

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rlhf_minimal import ALGORITHMS, KL, Batch, contrib, gradient_weight, policy_loss, prepare, value_loss
from rlhf_minimal.contracts import read_cell
from rlhf_minimal.functional import advantages, aggregation, corrections, gates, kl, logprobs, masked, ratios

every_row = pytest.mark.parametrize("name", ALGORITHMS)
# Each row draws scenes of its own, and each cell stands in several rows: four a row are more than a hundred in all.
few_each = settings(max_examples=4)
with_group_baseline = pytest.mark.parametrize(
    "name",
    [
        name
        for name, row in ALGORITHMS.items()
        if "group" in read_cell("advantage", row.advantage).needs and row.normalize is None
    ],
)
whitened_groups = pytest.mark.parametrize("name", [n for n, row in ALGORITHMS.items() if row.normalize is not None])
PER_TOKEN = ("logp", "old_logp", "ref_logp", "sampler_logp", "values", "entropy")
NAN = float("nan")


@dataclasses.dataclass
class Scene:
    """Random inputs of a batch: tensors by name, and what is no tensor."""

    tensors: dict[str, torch.Tensor]
    G: int
    budget: int

    def __repr__(self):
        return f"Scene(G={self.G}, budget={self.budget}, mask={self.tensors['mask'].tolist()})"

    def batch(self, **changes) -> Batch:
        tensors = self.tensors | changes
        logp = tensors["logp"].detach().clone().requires_grad_()
        return Batch(**tensors | {"logp": logp}, group_size=self.G, budget=self.budget)

    def rows(self, order) -> "Scene":
        return Scene({name: x[order] for name, x in self.tensors.items()}, self.G, self.budget)

    def unlikely(self, nats) -> "Scene":
        """Every token less likely by as much, under every policy: room for a ratio to move up."""
        lower = {name: x - nats if name.endswith("logp") else x for name, x in self.tensors.items()}
        return Scene(lower, self.G, self.budget)

    def to(self, dtype) -> "Scene":
        return Scene({name: x.to(dtype) for name, x in self.tensors.items()}, self.G, self.budget)


def make_scene(P, G, T, seed, spread, masked_rows) -> Scene:
    g = torch.Generator().manual_seed(seed)
    B = P * G

    def normal(*size):
        return torch.randn(*size, generator=g, dtype=torch.float64)

    mask = (torch.rand(B, T, generator=g) < 0.7).double()  # holes and short rows
    mask[0, 0] = mask[-1, -1] = 1  # whitening wants two trained tokens
    if masked_rows:
        mask[torch.randint(1, B, (1,), generator=g)] = 0
        mask[0, :2] = 1
    old = -normal(B, T).abs() - 0.05
    rewards = normal(P, G)
    rewards -= 2 * rewards.mean(1, keepdim=True).clamp(max=0)  # of both signs; maxrl refuses a group's mean below 0
    tensors = {
        "logp": (old + spread * normal(B, T)).clamp(max=-0.01),
        "old_logp": old,
        "ref_logp": (old + 0.3 * normal(B, T)).clamp(max=-0.01),
        "sampler_logp": (old + 0.2 * normal(B, T)).clamp(max=-0.01),
        "values": normal(B, T),
        "entropy": normal(B, T).abs(),
        "rewards": rewards.flatten(),
        "mask": mask,
        "reward_parts": torch.stack([rewards.flatten(), normal(B).round()], dim=1),
        "greedy_rewards": normal(P).repeat_interleave(G),
    }
    return Scene(tensors, G, budget=T + 2)


@st.composite
def scenes(draw, spread=(0.0, 1e-3, 0.1, 0.5), groups=(2, 3, 4)):
    # The widest: 3 prompts, 4 completions, 6 tokens. Two tokens at least, so that a masked row leaves two trained ones.
    P, G, T = draw(st.integers(1, 3)), draw(st.sampled_from(groups)), draw(st.integers(2, 6))
    seed, masked_rows = draw(st.integers(0, 10**6)), draw(st.booleans())
    return make_scene(P, G, T, seed, draw(st.sampled_from(spread)), masked_rows)


def loss_and_gradient(algorithm, batch):
    loss = policy_loss(algorithm, batch)
    (gradient,) = torch.autograd.grad(loss, batch.logp)
    return loss.detach(), gradient


def same(first, second, tolerance=1e-11):
    for a, b in zip(first, second, strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


# ---- padding and masks ------------------------------------------------------------------------------------------


@every_row
@few_each
@given(scenes())
def test_what_stands_under_a_zero_mask_is_never_read(name, scene):
    loss, gradient = loss_and_gradient(ALGORITHMS[name], scene.batch())
    nothing = scene.tensors["mask"] == 0
    spoiled = {key: scene.tensors[key].masked_fill(nothing, NAN) for key in PER_TOKEN}
    with_nan = loss_and_gradient(ALGORITHMS[name], scene.batch(**spoiled))
    assert torch.equal(with_nan[0], loss)
    assert torch.equal(with_nan[1], gradient)


@every_row
@pytest.mark.parametrize("rubbish", [NAN, float("inf"), -float("inf")])
def test_what_stands_under_a_zero_mask_has_no_gradient(name, rubbish):
    """Nor does it change that of other tokens, in any term that a loss may have, and in the entropy as well."""
    scene, mean = make_scene(2, 3, 5, seed=3, spread=0.1, masked_rows=True), aggregation.token_mean
    row = ALGORITHMS[name]
    terms = (KL(0.1, "k3", weighted=True, aggregate=mean), KL(0.1, "k2", against="old", aggregate=mean))
    row = replace(
        row,
        kl=(*row.kl, *terms, KL(0.1, "k3", level="sequence"), KL(0.1, "absolute", place="advantage")),
        correct=row.correct or partial(corrections.truncated_importance, level="sequence"),
        entropy=0.1,
        entropy_aggregate=mean,
    )
    nothing = scene.tensors["mask"] == 0

    def gradients(**spoiled):
        leaves = [(scene.tensors | spoiled)[key].clone().requires_grad_() for key in ("logp", "entropy")]
        batch = dataclasses.replace(scene.batch(**spoiled), logp=leaves[0], entropy=leaves[1])
        return torch.autograd.grad(policy_loss(row, batch), leaves)

    scene.tensors["step_rewards"] = advantages.place_rewards(scene.tensors["rewards"], scene.tensors["mask"])
    expected = gradients()
    for key in (*PER_TOKEN, "step_rewards"):
        spoiled = scene.tensors[key].masked_fill(nothing, rubbish)
        for gradient, right in zip(gradients(**{key: spoiled}), expected, strict=True):
            assert torch.equal(gradient, right), key
            assert (gradient[nothing] == 0).all(), key


@pytest.mark.parametrize("clip", [None, 0.2])
@pytest.mark.parametrize("rubbish", [NAN, float("inf"), -float("inf")])
@pytest.mark.parametrize("spoiled", ["values", "old_values", "returns"])
def test_the_critic_has_no_gradient_under_a_zero_mask(spoiled, rubbish, clip):
    """Zero times NaN is the gradient of a square that is masked only afterwards, whatever the value says."""
    tensors = make_scene(2, 3, 5, seed=3, spread=0.1, masked_rows=True).tensors
    arguments = {"values": tensors["values"], "old_values": tensors["values"].flip(0), "returns": tensors["entropy"]}
    nothing = tensors["mask"] == 0

    def gradient(**x):
        values = x["values"].clone().requires_grad_()
        return torch.autograd.grad(value_loss(**x | {"values": values}, mask=tensors["mask"], clip=clip), values)[0]

    found = gradient(**arguments | {spoiled: arguments[spoiled].masked_fill(nothing, rubbish)})
    assert (found[nothing] == 0).all()
    assert found.any()
    assert torch.equal(found, gradient(**arguments))


@every_row
@few_each
@given(scenes())
def test_a_masked_token_never_learns(name, scene):
    _, gradient = loss_and_gradient(ALGORITHMS[name], scene.batch())
    assert (gradient[scene.tensors["mask"] == 0] == 0).all()


@every_row
@few_each
@given(scenes(), st.integers(1, 3))
def test_the_padded_width_never_matters(name, scene, extra):
    loss, gradient = loss_and_gradient(ALGORITHMS[name], scene.batch())
    wider = {
        key: torch.cat([x, torch.full((len(x), extra), 0.0 if key == "mask" else NAN, dtype=x.dtype)], dim=1)
        for key, x in scene.tensors.items()
        if x.dim() == 2 and key != "reward_parts"
    }
    wide_loss, wide_gradient = loss_and_gradient(ALGORITHMS[name], scene.batch(**wider))
    same((wide_loss, wide_gradient[:, :-extra]), (loss, gradient))
    assert (wide_gradient[:, -extra:] == 0).all()


@every_row
@few_each
@given(scenes())
def test_masks_of_any_dtype_say_the_same(name, scene):
    expected = loss_and_gradient(ALGORITHMS[name], scene.batch())
    for dtype in (torch.bool, torch.int64, torch.uint8, torch.float32, torch.bfloat16):
        given_mask = scene.tensors["mask"].to(dtype)
        assert all(map(torch.equal, loss_and_gradient(ALGORITHMS[name], scene.batch(mask=given_mask)), expected))


# ---- order and partition ----------------------------------------------------------------------------------------


@every_row
@few_each
@given(scenes(), st.randoms(use_true_random=False))
def test_the_order_of_prompts_and_of_siblings_never_matters(name, scene, random):
    loss, gradient = loss_and_gradient(ALGORITHMS[name], scene.batch())
    prompts = [list(range(first, first + scene.G)) for first in range(0, len(gradient), scene.G)]
    random.shuffle(prompts)
    for siblings in prompts:
        random.shuffle(siblings)
    order = torch.tensor(prompts).flatten()
    same(loss_and_gradient(ALGORITHMS[name], scene.rows(order).batch()), (loss, gradient[order]))


@every_row
@few_each
@given(scenes(), st.data())
def test_micro_batches_never_matter(name, scene, data):
    """Any number of them: through groups, of one row, of rows that are masked throughout."""
    algorithm, batch = ALGORITHMS[name], scene.batch()
    loss, gradient = loss_and_gradient(algorithm, batch)
    n = data.draw(st.integers(1, len(batch.logp)), label="micro-batches")
    if ALGORITHMS[name].needs_whole_step and n > 1:
        with pytest.raises(ValueError, match="micro_batches=1"):
            [policy_loss(algorithm, part) for part in prepare(algorithm, batch).split(n)]
        return
    parts = [loss_and_gradient(algorithm, part) for part in prepare(algorithm, batch).split(n)]
    assert len(parts) == n
    same((sum(part[0] for part in parts), torch.cat([part[1] for part in parts])), (loss, gradient))


@given(scenes(), st.data())
def test_micro_batches_of_the_critic_never_matter(scene, data):
    algorithm = ALGORITHMS["ppo"]
    batch = prepare(algorithm, scene.batch())
    new = batch.values + scene.tensors["logp"]
    whole = value_loss(new, batch.values, batch.returns, batch.mask, clip=0.2)
    n = data.draw(st.integers(1, len(new)), label="micro-batches")
    parts = [
        value_loss(now, part.values, part.returns, part.mask, clip=0.2, totals=part.totals)
        for now, part in zip(torch.tensor_split(new, n), batch.split(n), strict=True)
    ]
    same([sum(parts)], [whole])


@every_row
@few_each
@given(scenes(), st.data())
def test_a_minibatch_is_an_optimiser_step_of_its_own(name, scene, data):
    """Its denominators are those of its own rows, and it can be cut further."""
    algorithm, batch = ALGORITHMS[name], prepare(ALGORITHMS[name], scene.batch())
    B = len(batch.logp)
    chosen = data.draw(st.lists(st.integers(0, B - 1), min_size=1, unique=True), label="rows")
    idx = torch.tensor(chosen)
    assume((batch.mask[idx] != 0).any())
    part = batch.minibatch(idx)
    tokens = int((batch.mask[idx] != 0).sum())
    assert (part.totals.sequences, part.totals.tokens, part.totals.budget) == (len(chosen), tokens, scene.budget)
    alone = replace(scene.rows(idx).batch(advantages=batch.advantages[idx], prompt_of=idx // scene.G), totals=None)
    expected = loss_and_gradient(algorithm, alone)
    loss = policy_loss(algorithm, part)
    same((loss.detach(), torch.autograd.grad(loss, part.logp)[0]), expected)
    if not ALGORITHMS[name].needs_whole_step:
        pieces = [policy_loss(algorithm, piece) for piece in part.split(len(chosen))]
        same([sum(pieces)], [loss])
    as_bool = torch.zeros(B, dtype=torch.bool)
    as_bool[idx] = True
    same([policy_loss(algorithm, batch.minibatch(as_bool))], [loss])


# ---- learning signals -------------------------------------------------------------------------------------------


@with_group_baseline
@few_each
@given(scenes(), st.sampled_from([0.1, 0.7, 1.0, -3.3, 1e6 / 3]))
def test_equal_rewards_within_a_group_give_no_policy_gradient(name, scene, reward):
    """Exactly none, though a mean of equal floating-point numbers is not always that number."""
    algorithm = replace(ALGORITHMS[name], kl=(), shape=None)  # a leash and a length penalty pull all the same
    equal = scene.tensors["rewards"].clone()
    equal[: scene.G] = reward
    for dtype in (torch.float64, torch.float32):
        _, gradient = loss_and_gradient(
            algorithm, Scene(scene.tensors | {"rewards": equal}, scene.G, 9).to(dtype).batch()
        )
        assert (gradient[: scene.G] == 0).all()


@whitened_groups
@given(scenes(), st.sampled_from([0.1, 0.7, -3.3]))
def test_whitening_moves_an_equal_group_with_the_others_and_not_alone(name, scene, reward):
    """Where all groups are equal there is nothing to whiten; beside others, an equal group gets minus their mean."""
    row = ALGORITHMS[name]
    if "group" not in row.needs:
        row = replace(row, advantage=advantages.group_centered)
    row = replace(row, kl=(), shape=None)
    rewards = torch.full_like(scene.tensors["rewards"], reward)
    equal = Scene(scene.tensors | {"rewards": rewards, "reward_parts": rewards[:, None]}, scene.G, 9)
    assert (loss_and_gradient(row, equal.batch())[1] == 0).all()
    mixed = scene.tensors["rewards"].clone()
    mixed[: scene.G] = reward
    changed = {"rewards": mixed, "reward_parts": mixed[:, None]}
    batch = prepare(row, Scene(scene.tensors | changed, scene.G, 9).batch())
    first = batch.advantages[: scene.G][batch.mask[: scene.G] != 0]
    same([first], [first[:1].expand_as(first)])


@every_row
@pytest.mark.parametrize("A", [-2.0, -0.3, 0.4, 3.0])
def test_at_ratio_one_every_row_has_slope_a(name, A):
    torch.testing.assert_close(gradient_weight(name, 1.0, A), torch.tensor(A, dtype=torch.float64), rtol=0, atol=1e-14)


GATES = {
    "none": gates.none,
    "clip": partial(gates.clip, low=0.2, high=0.3),
    "dual_clip": partial(contrib.gates.dual_clip, low=0.2, high=0.3, c=3.0),
    "clip_weight": partial(gates.clip_weight, cap=5.0),
    "sigmoid": partial(gates.sigmoid, tau_pos=0.5, tau_neg=2.0),
    "mask_weight": partial(contrib.gates.mask_weight, low=0.2, high=0.3),
    "topr": contrib.gates.topr,
    "vespo": contrib.gates.vespo,
}


def test_no_gate_is_forgotten():
    public = {
        name
        for module in (gates, contrib.gates)
        for name, f in vars(module).items()
        if inspect.isfunction(f) and f.__module__ == module.__name__
    }
    assert {name for name in public if not name.startswith("_")} == GATES.keys()


@pytest.mark.parametrize("gate", GATES)
@given(st.floats(-4, 4).filter(lambda a: a == 0 or abs(a) > 1e-3), st.integers(0, 10))
def test_every_gate_has_slope_a_at_ratio_one(gate, A, seed):
    ratio = torch.ones(1, 3, dtype=torch.float64, requires_grad=True)
    advantage = torch.full((1, 3), A, dtype=torch.float64)
    (slope,) = torch.autograd.grad(GATES[gate](ratio, advantage).sum(), ratio)
    torch.testing.assert_close(slope, advantage)


@every_row
@few_each
@given(scenes(spread=(0.0,)))
def test_on_policy_the_gate_never_matters(name, scene):
    algorithm = ALGORITHMS[name]
    _, gradient = loss_and_gradient(algorithm, scene.batch())
    for gate in GATES.values():
        other = replace(algorithm, gate=gate)
        if algorithm.aggregate is aggregation.geometric_mean and gate is GATES["sigmoid"]:
            continue  # the mean's slope is its value over |o|, and SAPO's value at ratio 1 is 2 A / tau
        same([loss_and_gradient(other, scene.batch())[1]], [gradient])


@every_row
@few_each
@given(scenes())
def test_old_log_probs_that_carry_a_graph_are_constants(name, scene):
    """The commonest slip of a first epoch: old_logp = logp, not detached, and the gradient cancels."""
    algorithm = ALGORITHMS[name]
    logp = scene.tensors["logp"].clone().requires_grad_()
    given_by_name = ("logp", "old_logp", "mask", "rewards")
    first, second = (
        Batch(logp, old, scene.tensors["mask"], scene.tensors["rewards"], scene.G, budget=scene.budget, **rest)
        for old in (logp, logp.detach())
        for rest in [{key: x for key, x in scene.tensors.items() if key not in given_by_name}]
    )
    # Where the best row of a pair is masked, the lead over the second teaches nothing.
    taught = prepare(algorithm, second).advantages != 0
    if algorithm.trust is not None:
        known = scene.tensors | {"advantages": prepare(algorithm, second).advantages}
        taught &= algorithm.call("trust", known.pop("mask"), **known) != 0
    assume(taught[scene.tensors["mask"] != 0].any())
    gradients = [torch.autograd.grad(policy_loss(algorithm, batch), logp)[0] for batch in (first, second)]
    assert torch.equal(*gradients)
    assert (gradients[0] != 0).any()


@pytest.mark.parametrize("ratio", [ratios.on_policy, ratios.token, ratios.sequence, ratios.sequence_token])
def test_ratios_called_alone_treat_the_old_policy_as_a_constant(ratio):
    logp = torch.tensor([[-1.0, -2.0], [-0.5, -1.0]], requires_grad=True)
    (gradient,) = torch.autograd.grad(ratio(logp, logp, torch.ones(2, 2)).sum(), logp)
    torch.testing.assert_close(gradient, torch.ones(2, 2))


# ---- precision --------------------------------------------------------------------------------------------------


@every_row
@few_each
@given(scenes(spread=(0.1, 0.5)))
def test_float32_says_what_float64_says(name, scene):
    algorithm = ALGORITHMS[name]
    loss, gradient = loss_and_gradient(algorithm, scene.batch())
    for step in (1e-5, -1e-5):  # at the edge of a clip, rounding decides the side
        moved = loss_and_gradient(algorithm, scene.batch(logp=scene.tensors["logp"] + step))[1]
        assume(torch.allclose(moved, gradient, rtol=1e-3, atol=1e-4))
    single = loss_and_gradient(algorithm, scene.to(torch.float32).batch())
    assert all(x.dtype == torch.float32 for x in single)
    same([x.double() for x in single], (loss, gradient), tolerance=2e-4)


@every_row
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@few_each
@given(scenes())
def test_half_precision_is_raised_at_the_door(name, dtype, scene):
    """The same numbers, rounded, and float32 from there on: nothing else is lost."""
    algorithm, half = ALGORITHMS[name], scene.to(dtype)
    logp = half.tensors["logp"].clone().requires_grad_()
    batch = Batch(**half.tensors | {"logp": logp}, group_size=scene.G, budget=scene.budget)
    loss = policy_loss(algorithm, batch)
    (gradient,) = torch.autograd.grad(loss, logp)
    expected = loss_and_gradient(algorithm, half.to(torch.float32).batch())
    assert loss.dtype == torch.float32
    assert gradient.dtype == dtype
    assert torch.isfinite(gradient).all()
    assert torch.equal(loss, expected[0])
    assert torch.equal(gradient, expected[1].to(dtype))


@every_row
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(scenes(), st.data())
def test_extreme_ratios_give_finite_numbers_or_a_clear_error(name, dtype, scene, data):
    """Never a NaN in silence: a token 80 nats from where it was is a bug or a broken run, and must look like one."""
    scene = scene.unlikely(80.0)
    shape = scene.tensors["logp"].shape
    choice = data.draw(st.lists(st.integers(0, 4), min_size=shape.numel(), max_size=shape.numel()), label="log-ratios")
    moved = torch.tensor([-80.0, -0.1, 0.0, 0.05, 80.0])[torch.tensor(choice)].reshape(shape)
    small = 10.0 ** -data.draw(st.sampled_from([0, 0, 3]), label="scale of the rewards")
    tensors = scene.tensors | {"logp": scene.tensors["old_logp"] + moved, "rewards": scene.tensors["rewards"] * small}
    batch = Scene(tensors, scene.G, scene.budget).to(dtype).batch()
    try:
        loss, gradient = loss_and_gradient(ALGORITHMS[name], batch)
    except ValueError as error:
        message = str(error)
        assert "finite" in message or "overflows" in message  # noqa: PT017  (an error is one of two right answers)
        return
    assert torch.isfinite(loss)
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("log_ratio", [-80.0, 80.0])
@every_row
def test_one_extreme_token_is_no_error_for_float32(name, log_ratio):
    """A single token that moved 80 nats is within float32; no row may lose the batch over it, except by its product."""
    scene = make_scene(2, 2, 3, seed=0, spread=0.1, masked_rows=False).unlikely(80.0).to(torch.float32)
    logp = scene.tensors["logp"].clone()
    logp[0, 0] = scene.tensors["old_logp"][0, 0] + log_ratio
    loss, gradient = loss_and_gradient(ALGORITHMS[name], scene.batch(logp=logp))
    assert torch.isfinite(loss)
    assert torch.isfinite(gradient).all()


# ---- advantages -------------------------------------------------------------------------------------------------


def outcome(cell, scene, rewards=None, **context):
    rewards = scene.tensors["rewards"] if rewards is None else rewards
    mask = scene.tensors["mask"]
    ask = read_cell("advantage", cell)
    return ask(advantages.place_rewards(rewards, mask), mask, group_size=scene.G, **context)


@given(scenes(), st.floats(-5, 5), st.floats(0.1, 10))
def test_the_z_score_does_not_see_shift_and_scale(scene, shift, scale):
    cell = partial(advantages.group_normalized, eps=0.0)
    moved = scale * scene.tensors["rewards"] + shift
    same([outcome(cell, scene, moved)], [outcome(cell, scene)], tolerance=1e-8)


@pytest.mark.parametrize("ddof", [0, 1])
@given(scenes())
def test_the_z_score_has_mean_zero_and_the_spread_asked_for(ddof, scene):
    full = Scene(scene.tensors | {"mask": torch.ones_like(scene.tensors["mask"])}, scene.G, scene.budget)
    A = outcome(partial(advantages.group_normalized, eps=0.0, ddof=ddof), full)[:, 0].view(-1, scene.G)
    same([A.mean(-1)], [torch.zeros(len(A), dtype=A.dtype)])
    same([(A**2).sum(-1) / (scene.G - ddof)], [torch.ones(len(A), dtype=A.dtype)])


@given(scenes())
def test_centred_rewards_sum_to_zero_and_keep_their_differences(scene):
    full = Scene(scene.tensors | {"mask": torch.ones_like(scene.tensors["mask"])}, scene.G, scene.budget)
    A = outcome(advantages.group_centered, full)[:, 0]
    same([A.view(-1, scene.G).sum(-1)], [torch.zeros(len(A) // scene.G, dtype=A.dtype)])
    R = full.tensors["rewards"]
    same([A[1] - A[0]], [R[1] - R[0]])


@given(scenes())
def test_leave_one_out_is_the_centred_reward_scaled(scene):
    G = scene.G
    same([outcome(advantages.leave_one_out, scene)], [G / (G - 1) * outcome(advantages.group_centered, scene)])


@given(scenes())
def test_leave_one_out_does_not_see_ones_own_reward_in_its_baseline(scene):
    """Raising one's own reward raises one's own advantage by exactly as much."""
    raised = scene.tensors["rewards"].clone()
    raised[0] += 1
    difference = outcome(advantages.leave_one_out, scene, raised) - outcome(advantages.leave_one_out, scene)
    first = scene.tensors["mask"][0] != 0
    same([difference[0][first]], [torch.ones_like(difference[0][first])])


@given(scenes(groups=(3, 4)))
def test_leave_one_out_with_the_others_std_does_not_see_ones_own_reward_either(scene):
    cell = partial(contrib.advantages.leave_one_out_normalized, std="others", eps=0.0)
    A, R = outcome(cell, scene), scene.tensors["rewards"]
    others = R[1 : scene.G]
    expected = (R[0] - others.mean()) / others.std()
    first = scene.tensors["mask"][0] != 0
    same([A[0][first]], [expected.expand(int(first.sum()))], tolerance=1e-9)


@given(scenes())
def test_leave_one_out_over_the_groups_std_is_a_scaled_z_score(scene):
    G = scene.G
    ours = outcome(partial(contrib.advantages.leave_one_out_normalized, std="group", eps=0.01), scene)
    same([ours], [G / (G - 1) * outcome(partial(advantages.group_normalized, eps=0.01), scene)])


@pytest.mark.parametrize("ddof", [0, 1])
@given(scenes())
def test_whitening_gives_mean_zero_and_variance_one_over_trained_tokens(ddof, scene):
    white = advantages.whiten(scene.tensors["values"], scene.tensors["mask"], eps=0.0, ddof=ddof)
    trained = white[scene.tensors["mask"] != 0]
    same([trained.sum(), (trained**2).sum()], [torch.tensor(0.0).double(), torch.tensor(len(trained) - ddof).double()])
    assert (white[scene.tensors["mask"] == 0] == 0).all()


@given(scenes())
def test_gae_with_lambda_one_is_the_return_minus_the_value(scene):
    values, mask = scene.tensors["values"], scene.tensors["mask"]
    ours = outcome(partial(advantages.gae, lam=1.0), scene, values=values)
    same([ours], [masked.zero_outside(outcome(advantages.returns_to_go, scene) - values, mask)])


@given(scenes(), st.floats(0, 1), st.floats(0, 1))
def test_gae_is_the_discounted_sum_of_temporal_differences(scene, gamma, lam):
    """Row by row, over the trained tokens alone: holes are not there."""
    values, mask, rewards = (scene.tensors[key] for key in ("values", "mask", "rewards"))
    ours = outcome(partial(advantages.gae, gamma=gamma, lam=lam), scene, values=values)
    for i in range(len(mask)):
        V = [*values[i][mask[i] != 0].tolist(), 0.0]
        n = len(V) - 1
        deltas = [(float(rewards[i]) if t == n - 1 else 0.0) + gamma * V[t + 1] - V[t] for t in range(n)]
        expected = [sum((gamma * lam) ** (k - t) * deltas[k] for k in range(t, n)) for t in range(n)]
        same([ours[i][mask[i] != 0]], [torch.tensor(expected, dtype=torch.float64)])


@given(scenes(), st.floats(0, 1))
def test_returns_to_go_discount_what_is_still_to_come(scene, gamma):
    mask, rewards = scene.tensors["mask"], scene.tensors["values"]  # a reward at every token
    ours = advantages.returns_to_go(rewards, mask, gamma=gamma)
    for i in range(len(mask)):
        r = rewards[i][mask[i] != 0].tolist()
        expected = [sum(gamma ** (k - t) * r[k] for k in range(t, len(r))) for t in range(len(r))]
        same([ours[i][mask[i] != 0]], [torch.tensor(expected, dtype=torch.float64)])


@pytest.mark.parametrize("cell", ["gae", "returns_to_go", "group_centered", "group_normalized", "leave_one_out"])
@given(scenes())
def test_advantages_are_zero_under_a_zero_mask(cell, scene):
    A = outcome(getattr(advantages, cell), scene, values=scene.tensors["values"])
    assert (A[scene.tensors["mask"] == 0] == 0).all()


@given(scenes())
def test_a_masked_row_still_counts_in_the_statistics_of_its_group(scene):
    mask = scene.tensors["mask"].clone()
    mask[1] = 0
    whole, without = scene, Scene(scene.tensors | {"mask": mask}, scene.G, scene.budget)
    a, b = outcome(advantages.group_normalized, whole), outcome(advantages.group_normalized, without)
    assert torch.equal(a[0], b[0])
    assert (b[1] == 0).all()


# ---- gradients against finite differences ---------------------------------------------------------------------


def without_stop_gradients(algorithm, logp, scene):
    """The same row with its stop-gradients written out as the constants that they are at ``logp``.

    A finite difference sees the value alone, and a stop-gradient makes a value that does not move.
    """
    old, mask = scene.tensors["old_logp"], scene.tensors["mask"]
    now, constant = masked.zero_outside(logp.detach(), mask), algorithm.ratio(logp.detach(), old, mask)
    cells = {}
    if algorithm.ratio in (ratios.on_policy, ratios.sequence_token, contrib.ratios.product_token):
        cells["ratio"] = lambda logp, old, mask: constant * torch.exp(masked.zero_outside(logp, mask) - now)
    if getattr(algorithm.gate, "func", None) is gates.clip_weight:
        cap = algorithm.gate.keywords["cap"]
        cells["gate"] = lambda ratio, advantage: constant.clamp(max=cap) / constant * ratio * advantage
    if algorithm.gate is contrib.gates.topr:
        taper = lambda A: torch.where(A > 0, torch.ones_like(constant), constant.clamp(max=1.0))  # noqa: E731
        cells["gate"] = lambda ratio, advantage: taper(advantage) / constant * ratio * advantage
    if algorithm.gate is contrib.gates.vespo:
        weight = lambda A: contrib.gates.vespo(constant, A) / A.where(A != 0, torch.ones_like(A))  # noqa: E731
        cells["gate"] = lambda ratio, advantage: weight(advantage) / constant * ratio * advantage
    return replace(algorithm, **cells)


@every_row
@settings(max_examples=3)
@given(scenes(spread=(0.1, 0.5)))
def test_gradient_of_every_row_is_the_finite_difference(name, scene):
    algorithm, batch = ALGORITHMS[name], scene.batch()
    _, gradient = loss_and_gradient(algorithm, batch)
    smooth = without_stop_gradients(algorithm, batch.logp, scene)
    prepared = prepare(algorithm, batch)
    for step in (1e-4, -1e-4):  # a kink between the two points of a difference belongs to neither
        moved = loss_and_gradient(smooth, scene.batch(logp=batch.logp + step, advantages=prepared.advantages))[1]
        assume(torch.allclose(moved, gradient, rtol=1e-2, atol=1e-3))
    logp = batch.logp.detach().clone().requires_grad_()

    def loss_of(logp):
        return policy_loss(smooth, replace(prepared, logp=logp))

    assert torch.autograd.gradcheck(loss_of, (logp,), eps=1e-6, atol=1e-6)
    same([torch.autograd.grad(loss_of(logp), logp)[0]], [gradient])


@settings(max_examples=6)
@pytest.mark.parametrize("clip", [None, 0.2])
@given(scenes())
def test_gradient_of_the_value_loss_is_the_finite_difference(clip, scene):
    mask, old = scene.tensors["mask"], scene.tensors["values"]
    values = (old + scene.tensors["logp"]).requires_grad_()
    returns = scene.tensors["ref_logp"]
    assert torch.autograd.gradcheck(lambda v: value_loss(v, old, returns, mask, clip=clip), (values,))


SMOOTH = {
    "token": lambda x, mask: ratios.token(x, x.detach() * 0 - 1, mask),
    "sequence": lambda x, mask: ratios.sequence(x, x.detach() * 0 - 1, mask),
    "sequence_product": lambda x, mask: contrib.ratios.sequence_product(x, x.detach() * 0 - 1, mask),
    **{f"gate {name}": partial(lambda gate, x, mask: gate(x.exp(), mask - 0.4), gate) for name, gate in GATES.items()},
    **{
        cell.__name__: partial(lambda cell, x, mask: cell(x, mask, totals=aggregation.Totals(2, 9)), cell)
        for cell in (
            aggregation.token_mean,
            contrib.aggregation.token_sum,
            aggregation.sequence_mean,
            aggregation.sequence_sum,
        )
    },
    "prompt_mean": lambda x, mask: contrib.aggregation.prompt_mean(
        x, mask, prompt_tokens=torch.full((len(x),), 9), totals=aggregation.Totals(2, 9, prompts=3)
    ),
    "fixed_length": lambda x, mask: aggregation.fixed_length(x, mask, budget=5, totals=aggregation.Totals(2, 9)),
    "geometric_mean": lambda x, mask: aggregation.geometric_mean(-x.exp(), mask),
    "masked_mean": lambda x, mask: masked.masked_mean(x, mask),
    "masked_var": lambda x, mask: masked.masked_var(x, mask),
    "masked sequence_mean": lambda x, mask: masked.sequence_mean(x, mask),
    "whiten": lambda x, mask: advantages.whiten(x, mask),
    "k1": lambda x, mask: kl.k1(x, mask - 2),
    "k2": lambda x, mask: kl.k2(x, mask - 2),
    "k3": lambda x, mask: kl.k3(x, mask - 2),
    "absolute": lambda x, mask: kl.absolute(x, mask - 2),
    "token_logprobs": lambda x, mask: logprobs.token_logprobs(x[None], mask[None, :, 0].long(), temperature=0.7),
    "token_entropy": lambda x, mask: logprobs.token_entropy(x[None], temperature=0.7),
}
for gate in ("clip_weight", "topr", "vespo"):  # a stop-gradient; held to its constant above, with the row that uses it
    del SMOOTH[f"gate {gate}"]


@pytest.mark.parametrize("name", SMOOTH)
@given(scenes(spread=(0.3,)))
@settings(max_examples=4)
def test_gradient_of_every_cell_is_the_finite_difference(name, scene):
    mask = scene.tensors["mask"]
    x = (scene.tensors["logp"] / 2).requires_grad_()
    assert torch.autograd.gradcheck(partial(SMOOTH[name], mask=mask), (x,), eps=1e-7, atol=1e-5)


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("against", ["reference", "old"])
@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
@pytest.mark.parametrize("weighted", [False, True])
@given(scenes(spread=(0.1,)))
@settings(max_examples=3)
def test_gradient_of_every_kl_penalty_is_the_finite_difference(level, against, estimator, weighted, scene):
    algorithm = replace(
        ALGORITHMS["gspo"], gate=gates.none, kl=(KL(0.3, estimator, against=against, level=level, weighted=weighted),)
    )
    batch = prepare(algorithm, scene.batch())
    logp = batch.logp.detach().clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: policy_loss(algorithm, replace(batch, logp=x)), (logp,))


def test_entropy_and_correction_reach_the_loss_alike_in_every_partition():
    algorithm = replace(ALGORITHMS["grpo"], entropy=0.01, correct=corrections.truncated_importance)
    scene = make_scene(2, 3, 4, seed=5, spread=0.2, masked_rows=True)
    batch = prepare(algorithm, scene.batch())
    parts = [policy_loss(algorithm, part) for part in batch.split(5)]
    same([sum(parts)], [policy_loss(algorithm, batch)])
