"""Every fast path against the plain one: the same loss, the same gradient, the same metrics, in less time.

The plain path is `plain(recipe)`: every row read from its first token to its last, padded to the longest, all
logits at once, each row with its backward.
"""

import dataclasses
import functools
import itertools
import weakref
from functools import partial

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, MistralConfig, MistralForCausalLM

from rlhf_minimal import ALGORITHMS, KL, Batch, contrib, policy_loss
from rlhf_minimal.config import Config
from rlhf_minimal.functional import advantages, aggregation, corrections
from rlhf_minimal.functional.logprobs import token_entropy, token_logprobs
from rlhf_minimal.lab import fast
from rlhf_minimal.lab.chunked import chunked_logprobs
from rlhf_minimal.lab.fast import (
    Fast,
    continue_prompts,
    has_linear_head,
    pieces_by_length,
    read_prompts,
    widths,
    without_effect,
)
from rlhf_minimal.metrics import NONDETERMINISTIC
from rlhf_minimal.models import (
    Critic,
    Vocabulary,
    policy_logits,
    tiny_llama,
)
from rlhf_minimal.sample import pad_left
from rlhf_minimal.tasks import get_task
from rlhf_minimal.train import Recipe, collect, minibatches, prepare_batch, train_step, update
from rlhf_minimal.train_state import Learner
from tests.training.reading import Plain, logp_of, read_by

EVEN = get_task("even")  # prompts of two to four tokens, so that most are padded on the left
SMALL = Config(steps=1, prompts=5, group_size=4, lr=1e-3, max_new_tokens=9, grad_clip=1e9)
NONE = Fast(shared_prefix=False, sort_lengths=False, skip_idle=False, logit_chunk=None)
SHARED, SORTED = dataclasses.replace(NONE, shared_prefix=True), dataclasses.replace(NONE, sort_lengths=True)
SKIPPED, CHUNKED = dataclasses.replace(NONE, skip_idle=True), dataclasses.replace(NONE, logit_chunk=40)
ALL = Fast(logit_chunk=40)
ONE_BY_ONE = [NONE, SHARED, SORTED, SKIPPED, CHUNKED]
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5}

ENTROPY = dataclasses.replace(ALGORITHMS["dr_grpo"], entropy=0.3)
CORRECTED = dataclasses.replace(ALGORITHMS["dr_grpo"], correct=corrections.truncated_importance)
SHORT_ONLY = dataclasses.replace(ALGORITHMS["dr_grpo"], keep=contrib.filters.not_truncated)
ROWS = {**ALGORITHMS, "entropy bonus": ENTROPY, "corrected": CORRECTED, "masked rows": SHORT_ONLY}


def some_dead(rewards_of):
    """A reward under which the first group's answers are equal, and so are the last one's."""

    def reward(prompts, completions, problem, step, **others):
        found = [rewards_of(text) for text in completions]
        return [1.0 if i < 4 or i >= 16 else x for i, x in enumerate(found)]

    return reward


def gpt2(vocab_size):
    """Positions from a table, and no step in single precision: a Llama's norms and rotations round to it even here."""
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=vocab_size, n_embd=16, n_layer=2, n_head=2, n_positions=16, initializer_range=0.3)
    return GPT2LMHeadModel(config).eval().double()


def begin(algorithm, config, *, dtype=torch.float64, reward=None, reading=None):
    vocabulary = Vocabulary(EVEN.alphabet)
    size = len(vocabulary)
    policy = gpt2(size) if dtype == torch.float64 else tiny_llama(size, width=16, layers=2, heads=2, seed=3)
    teacher = gpt2(size) if algorithm.needs_teacher else None
    if teacher is not None:
        with torch.no_grad():
            next(teacher.parameters()).mul_(2.0)  # another model than the policy
    learner = Learner.begin(policy, vocabulary, algorithm, config, teacher=teacher)
    if learner.critic is not None:
        learner.critic.to(dtype)
    return learner, read_by(Recipe(algorithm, EVEN, config, reward), reading or Plain())


def by_length(text):
    return 0.1 * len(text)


def one_update(algorithm, reading=None, dtype=torch.float64, *, moved=0.05, changes=None, reward=by_length):
    """Gradients (by one SGD step of size 1) and metrics of one update, the policy a little away from the sampler.

    The rollout, and what is prepared before the update, are those of the plain path however the update reads.
    """
    config = dataclasses.replace(SMALL, **(changes or {}))
    learner, recipe = begin(algorithm, config, dtype=dtype, reward=some_dead(reward))
    groups, _ = collect(learner.policy, learner.vocabulary, recipe, step=1)
    batch, _ = prepare_batch(learner, recipe, groups, step=1)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in learner.policy.parameters():
            p += moved * p.abs().mean() * torch.randn(p.shape, generator=generator).to(dtype)
    learner.optimizer = torch.optim.SGD(learner.optimizer.param_groups[0]["params"], lr=1.0)
    trained = [learner.policy] + ([learner.critic] if learner.critic is not None else [])
    if learner.critic_optimizer is not None:
        learner.critic_optimizer = torch.optim.SGD(learner.critic.parameters(), lr=1.0)
    metrics = update(learner, read_by(recipe, reading or Plain()), groups, batch, step=1)
    after = torch.cat([p.detach().flatten() for model in trained for p in model.parameters()])
    return after, metrics, groups


def same(one, other, dtype):
    tolerance = TOLERANCE[dtype]
    torch.testing.assert_close(one[0], other[0], rtol=tolerance, atol=tolerance)
    assert numbers(one[1]) == pytest.approx(numbers(other[1]), rel=50 * tolerance, abs=50 * tolerance)


# --- the whole update ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ROWS)
def test_no_switch_changes_an_update_of_any_row(name):
    plain = one_update(ROWS[name])
    lengths = plain[2].mask.sum(-1)
    assert len(lengths.unique()) > 3  # ragged completions
    assert (plain[2].prompt_mask == 0).any()  # prompts padded on the left
    for reading in (*ONE_BY_ONE, ALL):
        same(one_update(ROWS[name], reading), plain, torch.float64)


@pytest.mark.parametrize("name", ["grpo", "dapo", "gspo", "ppo", "entropy bonus"])
def test_in_single_precision_they_differ_by_rounding(name):
    same(one_update(ROWS[name], ALL, torch.float32), one_update(ROWS[name], None, torch.float32), torch.float32)


@pytest.mark.parametrize("critic", ["shared", "separate"])
@pytest.mark.parametrize("reading", [*ONE_BY_ONE, ALL], ids=str)
def test_a_critic_learns_the_same(critic, reading):
    changes = {"critic": critic, "value_head_init": "normal", "value_clip": 0.2}
    same(
        one_update(ALGORITHMS["ppo"], reading, changes=changes),
        one_update(ALGORITHMS["ppo"], changes=changes),
        torch.float64,
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"epochs": 2, "minibatches": 3, "micro_batches": 2},  # minibatches cut through groups
        {"micro_batches": 20},
        {"group_size": 1, "prompts": 20},  # nothing to share
        {"temperature": 0.6},
        {"epochs": 3, "minibatches": 2, "target_kl": 1e-3},
    ],
    ids=str,
)
def test_whatever_the_cutting(changes):
    row = dataclasses.replace(ALGORITHMS["dr_grpo"], advantage=advantages.returns_to_go)
    plain = one_update(row, changes=changes)
    for reading in (*ONE_BY_ONE, ALL):
        same(one_update(row, reading, changes=changes), plain, torch.float64)


def numbers(metrics):
    """What does not depend on the machine, nor on how often a prompt is read."""
    return {name: value for name, value in metrics.items() if name not in (*NONDETERMINISTIC, "tokens_read")}


def test_a_whole_step_draws_learns_and_reports_the_same():
    for name in ("grpo", "dapo", "ppo"):
        ends = []
        for reading in (Plain(), ALL):
            learner, recipe = begin(ALGORITHMS[name], SMALL, reading=reading)
            metrics = [train_step(learner, recipe) for _ in range(3)]
            ends.append(([p.detach().clone() for p in learner.policy.parameters()], metrics))
        torch.testing.assert_close(ends[0][0], ends[1][0], rtol=1e-6, atol=1e-8)  # AdamW divides by small numbers
        for plain, quick in zip(ends[0][1], ends[1][1], strict=True):
            assert numbers(plain) == pytest.approx(numbers(quick), rel=1e-6, abs=1e-8)


def test_without_options_everything_is_switched_on():
    assert Fast() == Fast(shared_prefix=True, sort_lengths=True, skip_idle=True, logit_chunk=16_777_216)
    prefix = read_prompts(tiny_llama(8, width=16, heads=2), PROMPTS, PROMPT_MASK)
    for frozen, name in ((Fast(), "logit_chunk"), (prefix, "mask")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(frozen, name, None)


@pytest.mark.parametrize(("reading", "prompts"), [(NONE, 20), (SHARED, 5)])
def test_the_tokens_that_are_read_are_counted(reading, prompts):
    """Each prompt as often as it is read, and of the completions what is trained."""
    policy, groups, config = some_groups()
    found = reading.read(policy, groups, torch.arange(20), config)
    read = groups.prompt_mask if prompts == 20 else groups.prompt_mask[::4]
    assert (len(read), found.tokens) == (prompts, int(read.sum()) + int((groups.mask != 0).sum()))
    assert 0 < (groups.mask == 0).sum() != groups.mask.sum()


# --- shared prompts ------------------------------------------------------------------------------------------------


def test_prompts_are_read_once_for_their_group():
    shapes = []
    learner, recipe = begin(ALGORITHMS["dr_grpo"], SMALL, reading=SHARED)
    groups, _ = collect(learner.policy, learner.vocabulary, recipe, step=1)
    batch, _ = prepare_batch(learner, recipe, groups, step=1)
    learner.policy.register_forward_pre_hook(
        lambda module, args, kwargs: shapes.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    update(learner, recipe, groups, batch, step=1)
    assert shapes == [(5, groups.prompts.shape[1]), (20, groups.completions.shape[1] - 1)]


def test_groups_of_another_size_are_refused():
    """Else completions would go on from the prompt of another problem."""
    learner, recipe = begin(ALGORITHMS["dr_grpo"], SMALL, reading=SHARED)
    groups, _ = collect(learner.policy, learner.vocabulary, recipe, step=1)
    rows = torch.arange(len(groups.mask))
    wrong = dataclasses.replace(SMALL, group_size=SMALL.group_size * 2)
    with pytest.raises(ValueError, match="set group_size to that of the rollout"):
        SHARED.read(learner.policy, groups, rows, wrong)


def some_groups(reading=ALL):
    """Of 5 prompts, 4 completions each."""
    learner, recipe = begin(ALGORITHMS["dr_grpo"], SMALL, reading=reading)
    groups, _ = collect(learner.policy, learner.vocabulary, recipe, step=1)
    return learner.policy, groups, recipe.config


def test_prompts_are_shared_where_at_least_two_rows_have_the_same():
    policy, groups, config = some_groups()

    def shared(*rows):
        return SHARED.prefix(policy, groups, torch.tensor(rows), config)

    prefix, owner = shared(0, 4, 5, 1)  # two of each
    assert len(prefix.mask) == 2
    assert owner.tolist() == [0, 1, 1, 0]
    for rows in ((0, 4, 8), (0, 4, 5)):  # one of each; more prompts than half the rows
        assert shared(*rows)[0] is None
    prefix, owner = NONE.prefix(policy, groups, torch.tensor([0, 1]), config)
    assert prefix is None
    assert owner.tolist() == [0, 0]


def test_rows_are_put_in_order_only_where_prompts_are_shared():
    for reading, in_order in ((SHARED, True), (SORTED, False), (Plain(), False)):
        learner, recipe = begin(ALGORITHMS["dr_grpo"], SMALL, reading=reading)
        groups, _ = collect(learner.policy, learner.vocabulary, recipe, step=1)
        batch, _ = prepare_batch(learner, recipe, groups, step=1)
        for rows, _ in minibatches(recipe, batch, 1, epochs=1, count=2):
            assert (rows.tolist() == sorted(rows.tolist())) == in_order


PROMPTS, PROMPT_MASK = pad_left([[3], [4, 5, 2, 6], [5, 5]], pad_id=0)


@pytest.mark.parametrize(
    ("make", "tolerance"), [(partial(tiny_llama, width=16, heads=2), 2e-5), (gpt2, 1e-12)], ids=["rotary", "table"]
)
@pytest.mark.parametrize("T", [1, 2, 5])
def test_going_on_from_a_prompt_is_reading_it_again(make, tolerance, T):
    model, rows = make(8), torch.tensor([0, 1, 1, 1, 2, 0])
    completions = torch.randint(8, (6, T), generator=torch.Generator().manual_seed(1))
    weight = torch.randn(6, T, 8, generator=torch.Generator().manual_seed(2), dtype=model.dtype)

    plain = policy_logits(model, PROMPTS[rows], PROMPT_MASK[rows], completions)
    (plain * weight).sum().backward()
    expected = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()

    prefix = read_prompts(model, PROMPTS, PROMPT_MASK)
    loss = 0.0
    for piece in (torch.tensor([5, 0, 2]), torch.tensor([1, 3, 4])):
        logits, hidden = continue_prompts(model, prefix, rows[piece], completions[piece])
        assert hidden is None
        torch.testing.assert_close(logits, plain[piece], rtol=tolerance, atol=tolerance)
        loss = loss + (logits * weight[piece]).sum()
    loss.backward()
    torch.testing.assert_close([p.grad for p in model.parameters()], expected, rtol=10 * tolerance, atol=10 * tolerance)


def test_a_prompt_is_kept_also_by_a_model_that_would_keep_nothing():
    model = tiny_llama(8, width=16, heads=2)
    model.config.use_cache = False
    assert read_prompts(model, PROMPTS, PROMPT_MASK) is not None


def test_a_model_that_forgets_is_read_in_whole_rows():
    """With a sliding window the cache does not hold all of the prompt: the fast path must stand aside."""
    config = MistralConfig(
        vocab_size=12, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, sliding_window=3,
    )  # fmt: skip
    torch.manual_seed(0)
    model = MistralForCausalLM(config).eval()
    assert read_prompts(model, PROMPTS, PROMPT_MASK) is None
    learner, recipe = begin(ALGORITHMS["dr_grpo"], SMALL, reading=ALL)
    groups, _ = collect(learner.policy, learner.vocabulary, recipe, step=1)
    plain = token_logprobs(
        policy_logits(model, groups.prompts, groups.prompt_mask, groups.completions), groups.completions
    )
    found = logp_of(ALL, model, groups, recipe.config)
    torch.testing.assert_close(found * groups.mask, plain.detach() * groups.mask, rtol=1e-5, atol=1e-5)


def test_reading_without_gradient_is_the_plain_forward():
    learner, recipe = begin(ALGORITHMS["ppo"], SMALL)
    groups, _ = collect(learner.policy, learner.vocabulary, recipe, step=1)
    for shared in (False, True):
        critic = Critic(learner.policy, shared=shared, init="normal").double()
        rows = torch.arange(len(groups.mask))
        plain = Plain().values(critic, groups, rows, SMALL).detach()
        assert plain.abs().min() > 0
        for reading in (*ONE_BY_ONE, ALL):
            found = reading.values(critic, groups, rows, SMALL)
            torch.testing.assert_close(found * groups.mask, plain * groups.mask, rtol=1e-12, atol=1e-12)
    plain = Plain().logp(learner.policy, groups, SMALL)
    for reading in (*ONE_BY_ONE, ALL):
        found = logp_of(reading, learner.policy, groups, SMALL)
        torch.testing.assert_close(found * groups.mask, plain * groups.mask, rtol=1e-12, atol=1e-12)


# --- rows by length ------------------------------------------------------------------------------------------------


def cost(pieces, sizes, overhead):
    return sum(len(rows) * int(sizes[rows].max()) + overhead for rows in pieces)


@pytest.mark.parametrize("overhead", [1, 3, 10, 1000])
def test_the_cuts_are_the_cheapest_there_are(overhead):
    generator = torch.Generator().manual_seed(overhead)
    for _ in range(20):
        sizes = torch.randint(0, 9, (9,), generator=generator)
        found = pieces_by_length(sizes, overhead=overhead)
        assert sorted(torch.cat(found).tolist()) == (sizes > 0).nonzero().flatten().tolist()
        rows = sizes.sort(stable=True).indices[int((sizes == 0).sum()) :]
        all_cuts = itertools.chain.from_iterable(
            itertools.combinations(range(1, len(rows)), n) for n in range(len(rows))
        )
        cheapest = min(cost(rows.tensor_split(cuts), sizes, overhead) for cuts in all_cuts)
        assert cost(found, sizes, overhead) == cheapest


def test_long_rows_are_told_apart_roughly_and_nothing_is_lost():
    sizes = torch.arange(2000) % 700
    found = pieces_by_length(sizes, overhead=100)
    assert sorted(torch.cat(found).tolist()) == (sizes > 0).nonzero().flatten().tolist()
    assert cost(found, sizes, 100) < 1.1 * int(sizes.sum())
    assert len(found) <= 32
    assert pieces_by_length(torch.zeros(3, dtype=torch.long)) == []


def test_a_cut_has_to_save_more_than_a_piece_costs():
    assert [len(piece) for piece in pieces_by_length(torch.tensor([1] * 129 + [2]))] == [129, 1]
    assert [len(piece) for piece in pieces_by_length(torch.tensor([1] * 128 + [2]))] == [129]


def test_lengths_are_rounded_up_before_they_are_told_apart():
    """Of four lengths and two steps the lower half is one, and the upper half the other."""
    pieces = pieces_by_length(torch.tensor([1, 2, 3, 4]), overhead=0, steps=2)
    assert [piece.tolist() for piece in pieces] == [[0, 1], [2, 3]]


def test_a_piece_is_as_wide_as_its_longest_row(monkeypatch):
    monkeypatch.setattr(fast, "pieces_by_length", partial(pieces_by_length, overhead=4))
    learner, recipe = begin(ALGORITHMS["dr_grpo"], SMALL, reading=SORTED)
    groups, _ = collect(learner.policy, learner.vocabulary, recipe, step=1)
    shapes = []
    learner.policy.register_forward_pre_hook(
        lambda module, args, kwargs: shapes.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    found = SORTED.read(learner.policy, groups, torch.arange(20), recipe.config)
    assert found.logp.shape == groups.mask.shape
    pieces = pieces_by_length(widths(groups.mask), overhead=4)
    assert len(pieces) > 1
    S, lengths = groups.prompts.shape[1], widths(groups.mask)
    assert shapes == [(len(piece), S + int(lengths[piece].max())) for piece in pieces]


def test_holes_in_a_mask_are_read_across():
    mask = torch.tensor([[1, 0, 0, 1, 0], [0, 0, 0, 0, 0], [1, 1, 0, 0, 0]])
    assert widths(mask).tolist() == [4, 0, 2]


def test_of_rows_that_have_no_token_one_column_of_one_is_read():
    """A reading without any piece would have nothing to hand a gradient to."""
    [(places, width)] = SORTED.pieces(torch.zeros(3, 4))
    assert (places.tolist(), width) == ([0], 1)


def test_places_lie_where_the_mask_lies():
    [(places, width)] = NONE.pieces(torch.ones(3, 4, device="meta"))
    assert (places.device.type, len(places), width) == ("meta", 3, 4)


# --- rows that nothing acts on -------------------------------------------------------------------------------------

TWO_DEAD = torch.tensor([1.0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0])  # G = 2: groups 0, 1, 3, 4, 5 are dead, 2 is not


def prepared(algorithm, **more):
    logp = torch.full((12, 3), -1.0)
    plain = {"ref_logp": logp - 0.3, "sampler_logp": logp, "entropy": -logp, "values": logp}
    batch = Batch(logp, logp, torch.ones(12, 3), TWO_DEAD, 2, budget=3, **plain | more)
    centred = TWO_DEAD.view(-1, 2) - TWO_DEAD.view(-1, 2).mean(-1, keepdim=True)
    return dataclasses.replace(batch, advantages=centred.flatten())


@pytest.mark.parametrize("name", ROWS)
def test_rows_are_set_apart_where_and_only_where_nothing_acts_on_them(name):
    """By the definition: a row is idle if its own log-probs and entropies get no gradient, however they lie."""
    algorithm, batch = ROWS[name], prepared(ROWS[name])
    apart = without_effect(algorithm, batch)
    acts = torch.zeros(12, dtype=torch.bool)
    for seed in range(20):
        moved = torch.randn(12, 3, generator=torch.Generator().manual_seed(seed))
        logp, entropy = (batch.logp + moved).requires_grad_(), torch.rand(12, 3).requires_grad_()
        loss = policy_loss(algorithm, dataclasses.replace(batch, logp=logp, entropy=entropy))
        slopes = torch.autograd.grad(loss, (logp, entropy), allow_unused=True, materialize_grads=True)
        acts |= sum(slope.abs() for slope in slopes).sum(-1) > 0
    assert torch.equal(apart, ~acts)


def test_one_token_with_an_advantage_keeps_its_row_awake_and_what_is_masked_does_not():
    batch = prepared(ALGORITHMS["dr_grpo"])
    uneven = torch.zeros(12, 3)
    uneven[0, 2] = uneven[1, 2] = 1.0
    mask = torch.ones(12, 3)
    mask[1, 2] = 0
    batch = dataclasses.replace(batch, advantages=uneven, mask=mask)
    assert without_effect(ALGORITHMS["dr_grpo"], batch).tolist() == [False] + [True] * 11


def own_gate(ratio, advantage):
    """Pulls every ratio towards 1, whatever its advantage: no cell says so, only the gradient does."""
    return ratio * advantage - 0.1 * (ratio - 1) ** 2


DR = ALGORITHMS["dr_grpo"]
CELLS = {
    "plain": (DR, 12),
    "KL in reward": (dataclasses.replace(DR, kl=(KL(0.04, "k3", place="reward"),)), 12),  # in the advantage already
    "KL of 0": (dataclasses.replace(DR, kl=(KL(0.0, "k3"),)), 12),
    "KL": (dataclasses.replace(DR, kl=(KL(0.04, "k3"),)), 20),
    "KL of responses": (dataclasses.replace(DR, kl=(KL(0.04, "k2", against="old", level="sequence"),)), 20),
    "entropy": (ENTROPY, 20),
    "own gate": (dataclasses.replace(DR, gate=own_gate), 20),
    "products": (dataclasses.replace(DR, ratio=contrib.ratios.sequence_product), 12),
    "token mean": (dataclasses.replace(DR, aggregate=aggregation.token_mean), 12),
    "dual clip": (dataclasses.replace(DR, gate=partial(contrib.gates.dual_clip, low=0.2, high=0.2)), 12),
    "corrected": (CORRECTED, 12),
}


@pytest.mark.parametrize("name", CELLS)
def test_a_backward_reaches_those_rows_that_something_acts_on(name):
    """Counted where the gradient of the hidden states passes: 8 of 20 rows have no advantage."""
    algorithm, expected = CELLS[name]
    same(one_update(algorithm, SKIPPED), one_update(algorithm), torch.float64)
    learner, recipe = begin(algorithm, SMALL, reward=some_dead(by_length), reading=SKIPPED)
    groups, _ = collect(learner.policy, learner.vocabulary, recipe, step=1)
    batch, _ = prepare_batch(learner, recipe, groups, step=1)
    with torch.no_grad():  # away from the sampler, where some KLs have no slope
        for p in learner.policy.parameters():
            p += 0.05 * p.abs().mean() * torch.randn(p.shape, generator=torch.Generator().manual_seed(0)).double()
    rows = {"forward": 0, "backward": 0}

    def count(module, given, output):
        rows["forward"] += len(output)
        output.register_hook(lambda slope: rows.__setitem__("backward", rows["backward"] + len(slope)))

    learner.policy.transformer.ln_f.register_forward_hook(count)
    metrics = update(learner, recipe, groups, batch, step=1)
    assert rows == {"forward": 20, "backward": expected}  # all are looked at
    assert metrics["entropy"] > 0


def test_a_first_piece_without_gradient_has_no_backward_if_another_has_one(monkeypatch):
    monkeypatch.setattr(fast, "pieces_by_length", partial(pieces_by_length, overhead=4))
    policy, groups, config = some_groups()
    rows = {"backward": 0}

    def count(module, given, output):
        output.register_hook(lambda slope: rows.__setitem__("backward", rows["backward"] + len(slope)))

    policy.transformer.ln_f.register_forward_hook(count)
    pieces = fast._Pieces(
        dataclasses.replace(SORTED, skip_idle=True), policy, groups, torch.arange(20), config, None, None
    )
    assert len(pieces.pieces) > 2
    slope = torch.zeros_like(groups.mask)
    slope[pieces.pieces[1].places] = 1.0
    pieces.backward([slope])
    assert rows["backward"] == len(pieces.pieces[1].places)


def test_an_entropy_bonus_reaches_rows_whose_log_probs_get_nothing(monkeypatch):
    """All groups are dead, so no piece has a slope in its log-probs, and every piece has one in its entropies."""
    monkeypatch.setattr(fast, "pieces_by_length", partial(pieces_by_length, overhead=4))
    plain = one_update(ENTROPY, reward=lambda text: 1.0)
    assert plain[1]["grad_norm"] > 0
    same(one_update(ENTROPY, ALL, reward=lambda text: 1.0), plain, torch.float64)


@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_a_step_of_nothing_but_dead_groups_still_moves_with_its_momentum(reward):
    """AdamW goes on with what it has gathered when a gradient is 0, and stands still when there is none."""
    ends = []
    for reading in (Plain(), ALL):
        learner, recipe = begin(ALGORITHMS["dr_grpo"], SMALL, reading=reading)
        train_step(learner, recipe)
        before = [p.detach().clone() for p in learner.policy.parameters()]
        dead = dataclasses.replace(recipe, reward=lambda prompts, **others: [reward] * len(prompts))
        metrics = train_step(learner, dead)
        assert metrics["grad_norm"] == 0
        ends.append([p.detach().clone() for p in learner.policy.parameters()])
        assert any(not torch.equal(a, b) for a, b in zip(before, ends[-1], strict=True))
    torch.testing.assert_close(ends[0], ends[1], rtol=1e-6, atol=1e-8)


# --- a head a few tokens at a time ---------------------------------------------------------------------------------


def test_logits_are_cut_where_there_would_be_more_than_asked_for():
    policy, groups, config = some_groups()
    rows = torch.arange(len(groups.mask))
    vocabulary = policy.config.vocab_size
    whole = groups.mask.numel() * vocabulary

    def tokens_at_once(most):
        reading = dataclasses.replace(NONE, logit_chunk=most)
        return fast._Pieces(reading, policy, groups, rows, config, None, None).chunk

    cuts = {None: None, whole: None, whole - 1: (whole - 1) // vocabulary, 2 * vocabulary: 2, vocabulary - 1: 1, 1: 1}
    assert {most: tokens_at_once(most) for most in cuts} == cuts
    with pytest.raises(ValueError, match="logit_chunk must be at least 1, or None for no chunks; got 0"):
        Fast(logit_chunk=0)


@pytest.mark.parametrize("reading", [CHUNKED, dataclasses.replace(CHUNKED, shared_prefix=True)], ids=str)
def test_where_logits_are_cut_no_head_makes_those_of_a_whole_completion(reading):
    policy, groups, config = some_groups()
    tokens = []
    policy.get_output_embeddings().register_forward_hook(lambda module, given, out: tokens.append(out.shape[1]))
    learner, recipe = begin(DR, SMALL)
    batch, _ = prepare_batch(learner, recipe, groups, step=1)
    tokens.clear()
    found = reading.read(policy, groups, torch.arange(20), config, loss=(DR, batch))
    assert tokens
    assert set(tokens) == {1}
    assert found.logp.requires_grad
    assert not found.entropy.requires_grad  # nothing in the loss reads it


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("chunk", [1, 4, 100])
def test_a_chunked_head_is_the_whole_head(bias, chunk):
    generator = torch.Generator().manual_seed(0)
    hidden, weight, b = (torch.randn(*size, generator=generator).double() for size in ((2, 3, 5), (7, 5), (7,)))
    ids = torch.randint(7, (2, 3), generator=generator)
    pushes = [torch.randn(2, 3, generator=generator).double() for _ in range(2)]
    leaves = [x.requires_grad_() for x in ((hidden, weight, b) if bias else (hidden, weight))]

    def gradients(logp, entropy, which):
        loss = sum((push * x).sum() for push, x, used in zip(pushes, (logp, entropy), which, strict=True) if used)
        return torch.autograd.grad(loss, leaves, retain_graph=True)

    logits = torch.nn.functional.linear(hidden, weight, b if bias else None)
    whole = [f(logits, *more, temperature=0.7) for f, more in ((token_logprobs, (ids,)), (token_entropy, ()))]
    found = chunked_logprobs(hidden, weight, ids, bias=b if bias else None, temperature=0.7, chunk=chunk)
    torch.testing.assert_close(list(found), whole, rtol=1e-12, atol=1e-12)
    for which in ((True, False), (False, True), (True, True)):
        torch.testing.assert_close(gradients(*found, which), gradients(*whole, which), rtol=1e-12, atol=1e-12)


def test_a_chunked_head_by_finite_differences():
    generator = torch.Generator().manual_seed(1)
    hidden, weight, bias = (torch.randn(*size, generator=generator).double() for size in ((1, 3, 4), (5, 4), (5,)))
    ids = torch.tensor([[0, 4, 2]])

    def head(hidden, weight, bias):
        return chunked_logprobs(hidden, weight, ids, bias=bias, temperature=1.3, chunk=2)

    assert torch.autograd.gradcheck(head, [x.requires_grad_() for x in (hidden, weight, bias)])


def test_half_precision_is_raised_before_the_softmax():
    hidden, weight = torch.randn(1, 4, 8).bfloat16(), torch.randn(9, 8).bfloat16()
    ids = torch.tensor([[1, 2, 3, 8]])
    logp, entropy = chunked_logprobs(hidden.requires_grad_(), weight, ids, chunk=3)
    assert logp.dtype == entropy.dtype == torch.float32
    torch.testing.assert_close(logp, token_logprobs(torch.nn.functional.linear(hidden, weight), ids))
    logp.sum().backward()
    assert hidden.grad.dtype == torch.bfloat16


def test_a_head_that_is_more_than_a_matrix_is_left_alone():
    model = tiny_llama(8, width=16, heads=2)
    prefix = read_prompts(model, PROMPTS, PROMPT_MASK, hidden=True)
    assert has_linear_head(model, prefix.logits, prefix.hidden)
    assert not has_linear_head(model, torch.tanh(prefix.logits), prefix.hidden)

    class Own(torch.nn.Module):  # the same numbers, from a module of one's own
        def forward(self, hidden):
            return torch.nn.functional.linear(hidden, model.lm_head.weight)

    other = tiny_llama(8, width=16, heads=2)
    other.lm_head = Own()
    assert not has_linear_head(other, prefix.logits, prefix.hidden)

    class Squashed(type(model)):
        @functools.wraps(type(model).forward)
        def forward(self, *args, **kwargs):
            output = super().forward(*args, **kwargs)
            output.logits = 3 * torch.tanh(output.logits / 3)
            return output

    for reading in (CHUNKED, dataclasses.replace(CHUNKED, shared_prefix=True)):
        learner, recipe = begin(ALGORITHMS["dr_grpo"], SMALL)
        learner.policy = tiny_llama(12, width=16, heads=2)
        learner.policy.__class__ = Squashed
        groups, _ = collect(learner.policy, learner.vocabulary, recipe, step=1)
        found = logp_of(reading, learner.policy, groups, recipe.config)
        torch.testing.assert_close(found.float() * groups.mask, groups.logp, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [1e-4, 1.0, 1e4])
def test_a_head_may_round_by_a_thousandth_of_a_logit_or_of_one(size):
    model = tiny_llama(8, width=16, heads=2)
    hidden = size * torch.randn(5, 1, 16, generator=torch.Generator().manual_seed(0))
    logits = model.lm_head(hidden).detach()
    assert has_linear_head(model, logits * (1 + 5e-4), hidden)
    assert has_linear_head(model, logits + 5e-4, hidden)
    assert not has_linear_head(model, logits * 1.01 + 0.01, hidden)


# --- what is watched -----------------------------------------------------------------------------------------------


def test_the_distance_from_the_start_costs_nothing_where_it_is_not_asked_for():
    for name, expected in (("dr_grpo", 0), ("grpo", 1)):  # the KL needs it anyway
        learner, recipe = begin(ALGORITHMS[name], dataclasses.replace(SMALL, watch_kl="off"))
        calls = []
        assert (learner.start is not None) == bool(expected)  # nor is a copy kept
        if learner.start is not None:
            learner.start.register_forward_hook(lambda *_, calls=calls: calls.append(1))
        metrics = train_step(learner, recipe)
        assert len(calls) == expected
        assert ("kl" in metrics) == ("kl_sequence" in metrics) == bool(expected)


def test_nothing_of_a_pass_is_held_while_the_next_is_read_or_the_optimiser_steps(monkeypatch):
    """Idle rows have no backward, so what was kept for theirs would stay as long as anything points to it."""
    config = dataclasses.replace(SMALL, micro_batches=2)
    learner, recipe = begin(ALGORITHMS["dr_grpo"], config, reward=some_dead(by_length), reading=SKIPPED)
    readings, alive = [], []

    class Watched(fast._Pieces):
        def __init__(self, *args, **options):
            if torch.is_grad_enabled():
                assert not any(reading() is not None for reading in readings)
            super().__init__(*args, **options)
            readings.extend(weakref.ref(x) for x in (self, *(piece.logp for piece in self.pieces)))

    monkeypatch.setattr(fast, "_Pieces", Watched)
    learner.optimizer.register_step_pre_hook(lambda *_: alive.append(sum(r() is not None for r in readings)))
    train_step(learner, recipe)
    assert len(readings) > 4  # two micro-batches of more than one piece
    assert alive == [0]


def test_what_is_computed_again_is_rounded_again(monkeypatch):
    """Copies of all weights until the forward ends would take back what checkpointing saves."""
    seen = {}
    for again in ("off", "on"):
        changes = {"precision": "bfloat16", "gradient_checkpointing": again, "watch_kl": "off"}
        learner, recipe = begin(
            ALGORITHMS["dr_grpo"],
            dataclasses.replace(SMALL, **changes),
            dtype=torch.float32,
            reward=some_dead(by_length),
        )
        groups, _ = collect(learner.policy, learner.vocabulary, recipe, step=1)
        kept = []
        learner.policy.register_forward_hook(lambda *_, kept=kept: kept.append(torch.is_autocast_cache_enabled()))
        read = Plain().read(learner.policy, groups, torch.arange(len(groups.mask)), recipe.config)
        seen[again] = set(kept), read.logp.detach()
    assert [kept for kept, _ in seen.values()] == [{True}, {False}]
    assert torch.equal(seen["off"][1], seen["on"][1])
